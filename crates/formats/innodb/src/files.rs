//! InnoDB: tablespaces, data directories and backups of MySQL and MariaDB.
//!
//! | path | what is read |
//! | --- | --- |
//! | a data directory, or a backup of one | all of it: see `directory` |
//! | a folder inside one | the tables in that folder |
//! | a tablespace file | that file: see `single`; by its directory's state where that is not at rest; as in use where a server has it open |
//! | a file of an Aria table | that file, by the table's `.MAI` |
//! | a doublewrite file of MySQL | the sums of the pages in it |
//! | a binary log, or a folder of them | every event: see `binlog` |
//! | an xbstream, from a file or a pipe | the tables in it: see `stream` |

use std::fs::Metadata;
use std::path::Path;

use crate::binlog;
use pagewarden_core::database::{LinkMaker, OpenOptions, Probe, Target};
use pagewarden_core::error::Error;

mod absent;
mod aria;
pub(crate) mod aria_control;
mod books;
mod definitions;
mod delta;
pub(crate) mod description;
mod dictionary;
pub(crate) mod directory;
pub mod doublewrite;
mod elsewhere;
mod evidence;
mod feed;
mod fields;
mod foreign;
mod frm;
mod in_use;
mod links;
mod lone;
mod myisam;
pub mod names;
mod open_files;
mod places;
mod reached;
pub mod redo;
mod siblings;
pub mod single;
pub mod state;
pub(super) mod stream;
mod structure;
pub(crate) mod system;
mod tables;
pub mod tablespace;
mod tablespaces;
mod unfinished;
pub(crate) mod untested;

/// A database of its may lie elsewhere.
pub(super) fn link_maker(link: &Path) -> LinkMaker {
    let (Some(folder), Some(name)) = (link.parent(), link.file_name()) else {
        return LinkMaker::Unknown;
    };
    match state::is_root(folder) && directory::is_database(&name.to_string_lossy()) {
        true => LinkMaker::Server,
        false => LinkMaker::Unknown,
    }
}

pub(super) fn probe(path: &Path, metadata: &Metadata) -> Probe {
    match metadata.is_dir() {
        true => directory::probe(path).max(binlog::probe_folder(path)),
        false if binlog::is_binlog(path) => Probe::Yes,
        false if lone::is_known(path) || stream::is_known(path) => Probe::Yes,
        false => single::probe(path, metadata),
    }
}

pub(super) fn open(
    path: &Path,
    metadata: &Metadata,
    options: &OpenOptions,
) -> Result<Target, Error> {
    match metadata.is_dir() {
        true if directory::probe(path) == Probe::No && binlog::probe_folder(path) == Probe::Yes => {
            binlog::open_folder(path)
        }
        true => directory::open(path, options),
        false if binlog::is_binlog(path) => binlog::open_file(path),
        false if lone::is_known(path) => lone::open(path),
        false if stream::is_known(path) => stream::open_file(path, options),
        false => match directory::open_inside(path, options)? {
            Some(target) => Ok(target),
            None => single::open(path, metadata, options),
        },
    }
}

/// A file of the shared fixtures; `None` where they are not available, which a message says.
#[cfg(test)]
pub(crate) fn fixture(name: &str) -> Option<Vec<u8>> {
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/fixtures").into(),
        std::path::PathBuf::from,
    );
    let path = root.join("innodb").join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) if std::env::var_os("CI").is_some() => panic!("{}: {error}", path.display()),
        Err(_) => {
            eprintln!("SKIPPED: {} is not there", path.display());
            None
        }
    }
}
