//! pgBackRest.

use std::path::Path;

use crate::database::repository::{RepositoryKind, Sets};
use crate::database::{OpenOptions, Probe};
use crate::error::Error;

/// The tool.
pub(super) const REPOSITORY: RepositoryKind = RepositoryKind { tool: "pgBackRest", probe, open };

fn probe(_: &Path) -> Probe {
    Probe::No
}

fn open(path: &Path, _: &OpenOptions) -> Result<Sets, Error> {
    Err(Error::unrecognised(path, "no repository", "none"))
}
