//! SQLite: database files, their logs, and the page marker of our own VFS.

pub mod checksum;
pub mod files;
pub mod page;
pub mod protect;
pub mod repair;

use pagewarden_core::database::{Format, LinkMaker, Probe, StreamKind, TurnedOn};

/// What it can do.
pub const FORMAT: Format = Format {
    name: "sqlite",
    title: "SQLite",
    summary: "a SQLite database file, with or without a checksum VFS",
    endings: &["sqlite", "sqlite3", "db3"],
    folder_mark: |_, _| None,
    probe: files::probe,
    open: files::open,
    stream: Some(StreamKind {
        name: "SQLite database",
        probe: |begin| Probe::yes_if(files::stream::is_known(begin)),
        open: files::stream::open,
    }),
    in_store: None,
    parts: None,
    repositories: &[],
    in_folder: None,
    with_log: None,
    turned_on: TurnedOn::Here,
    experiments: &["e0-sqlite", "e2b-sqlite"],
    sidecars: &[("-wal", "log"), ("-journal", "rollback journal")],
    link_maker: |_| LinkMaker::Unknown,
    specimens: Some(page::specimens),
    // The SQLite extension does it: it needs SQLite itself.
    protect: None,
    repair: Some(repair::ENGINE),
};

#[cfg(test)]
pagewarden_core::conformance!(page::specimens());
