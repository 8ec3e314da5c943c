//! InnoDB tablespaces and data directories.

use std::fs::Metadata;
use std::path::Path;

use crate::error::Error;
use crate::target::{OpenOptions, Probe, Target, TargetKind};

pub mod single;
pub mod tablespace;

/// InnoDB's entry in the list of target kinds.
pub const KIND: TargetKind = TargetKind {
    name: "innodb",
    summary: "an InnoDB tablespace file of MySQL or MariaDB",
    probe,
    open,
    open_stream: None,
};

fn probe(path: &Path, metadata: &Metadata) -> Probe {
    single::probe(path, metadata)
}

fn open(path: &Path, metadata: &Metadata, options: &OpenOptions) -> Result<Target, Error> {
    single::open(path, metadata, options)
}
