//! One engine, one room: its checksums, pages, files, backups, and how its protection is changed.
//!
//! To add a format: one folder here, one line in [`FORMATS`].

use crate::database::Format;
use crate::page::Specimen;
use crate::protect::Engine;

pub use pagewarden_format_aria as aria;
pub use pagewarden_format_duckdb as duckdb;
pub use pagewarden_format_innodb as innodb;
pub mod pack;
pub use pagewarden_format_parquet as parquet;
pub use pagewarden_format_postgres as postgres;
pub use pagewarden_format_sqlite as sqlite;
pub use pagewarden_format_sqlserver as sqlserver;

/// Every format there is. Where several of them may own a path, the first one gets it.
pub static FORMATS: &[Format] = &[
    postgres::FORMAT,
    sqlite::FORMAT,
    innodb::FORMAT,
    sqlserver::FORMAT,
    duckdb::FORMAT,
    parquet::FORMAT,
    pack::FORMAT,
];

/// The pages of all formats that the conformance suite and the fuzzer damage.
#[must_use]
pub fn specimens() -> Vec<Specimen> {
    FORMATS.iter().filter_map(|format| format.specimens).flat_map(|specimens| specimens()).collect()
}

/// The engines whose protection this library changes, in the order in which they are asked.
pub fn protecting() -> impl Iterator<Item = Engine> {
    FORMATS.iter().filter_map(|format| format.protect)
}

/// The engines whose damaged pages this library repairs, in the order in which they are asked.
pub fn repairing() -> impl Iterator<Item = crate::repair::Engine> {
    FORMATS.iter().filter_map(|format| format.repair)
}
