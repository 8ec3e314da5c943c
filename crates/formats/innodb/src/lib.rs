//! InnoDB: tablespaces, data directories and backups of MySQL and MariaDB.

mod binlog;
pub mod checksum;
pub mod files;
pub mod page;
pub mod protect;
pub mod repair;
pub mod xbstream;

use pagewarden_core::database::{Format, Probe, StreamKind, TurnedOn};
use pagewarden_format_aria::page::specimens as of_aria;

/// What it can do.
pub const FORMAT: Format = Format {
    name: "innodb",
    title: "MySQL and MariaDB",
    summary: "data directories, backups, tablespaces and binary logs of MySQL and MariaDB, with Aria tables",
    endings: &["ibd"],
    folder_mark: |_, listed| files::state::mark_among(listed),
    probe: files::probe,
    open: files::open,
    stream: Some(StreamKind {
        name: "xbstream of a MySQL or MariaDB backup",
        probe: |begin| Probe::yes_if(xbstream::looks_like_xbstream(begin)),
        open: files::stream::open,
    }),
    in_store: None,
    parts: None,
    repositories: &[],
    in_folder: None,
    with_log: Some(binlog::open_with_log),
    turned_on: TurnedOn::Here,
    experiments: &["e0-mariadb"],
    sidecars: &[],
    link_maker: files::link_maker,
    specimens: Some(|| page::specimens::specimens().into_iter().chain(of_aria()).collect()),
    protect: Some(protect::ENGINE),
    repair: Some(repair::ENGINE),
};

#[cfg(test)]
pagewarden_core::conformance!(page::specimens::specimens());
