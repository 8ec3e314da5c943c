//! Which symbolic links of a data directory are PostgreSQL's.

use std::fs;
use std::path::Path;

use pagewarden_core::database::LinkMaker;

/// Where the links to tablespaces lie.
const TABLESPACES: &str = "pg_tblspc";

/// Its log and its tablespaces may lie elsewhere; its messages often do.
pub fn link_maker(link: &Path) -> LinkMaker {
    let (Some(folder), Some(name)) = (link.parent(), link.file_name()) else {
        return LinkMaker::Unknown;
    };
    let name = name.to_string_lossy();
    match &*name {
        "pg_wal" | "pg_xlog" if is_cluster(folder) => return LinkMaker::Server,
        "log" | "pg_log" if is_cluster(folder) => return LinkMaker::Logging,
        _ => {}
    }
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_of_tablespaces = folder.file_name().is_some_and(|folder| folder == TABLESPACES)
        && folder.parent().is_some_and(is_cluster);
    if is_number && is_of_tablespaces { LinkMaker::Server } else { LinkMaker::Unknown }
}

/// The folders of databases have a version file, too. No link counts: it may lead anywhere.
fn is_cluster(folder: &Path) -> bool {
    let found = |name| fs::symlink_metadata(folder.join(name));
    found("PG_VERSION").is_ok_and(|found| found.is_file())
        && found("global").is_ok_and(|found| found.is_dir())
}
