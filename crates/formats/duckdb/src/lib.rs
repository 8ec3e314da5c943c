//! DuckDB: database files of storage version 64 and later (DuckDB 0.10 to 2.0).

pub mod checksum;
pub mod files;
pub mod page;

use pagewarden_core::database::{Format, LinkMaker, TurnedOn};

/// What it can do.
pub const FORMAT: Format = Format {
    name: "duckdb",
    title: "DuckDB",
    summary: "a DuckDB database file",
    endings: &["duckdb", "ddb"],
    folder_mark: |_, _| None,
    probe: files::probe,
    open: files::open,
    stream: None,
    in_store: None,
    parts: None,
    repositories: &[],
    in_folder: None,
    with_log: None,
    turned_on: TurnedOn::Never,
    experiments: &[],
    sidecars: &[
        (".wal", "log"),
        (".wal.checkpoint", "log of a checkpoint"),
        (".wal.recovery", "log of a recovery"),
    ],
    link_maker: |_| LinkMaker::Unknown,
    specimens: Some(page::specimens),
    protect: None,
    repair: None,
};

#[cfg(test)]
pagewarden_core::conformance!(page::specimens());
