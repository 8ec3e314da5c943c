//! Fuzzes everything that parses bytes from disks and servers, one target at a time.
//!
//! `FUZZ_TARGET` names the target. One program for all of them, as each that is linked
//! takes as long as the library itself; `run.sh` builds and runs it.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

/// The modules, and the table of what each does with an input.
macro_rules! targets {
    ($($name:ident)*) => {
        $(mod $name;)*

        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::run)),*];
    };
}

targets! {
    aria_page
    db_answer
    db_heap
    db_location
    db_rows
    db_state
    db_values
    decode
    duckdb_target
    innodb_binlog
    innodb_doublewrite
    innodb_keyring
    innodb_page
    innodb_redo
    innodb_structure
    innodb_target
    mssqlbak
    mtf
    pack
    page_formats
    parquet_table
    parquet_target
    postgres_archive
    postgres_catalogue
    postgres_control
    postgres_file
    postgres_incremental
    postgres_index
    postgres_manifest
    postgres_map
    postgres_names
    postgres_summary
    postgres_target
    postgres_wal
    postgres_walg
    seal
    sqlite_page
    sqlite_target
    sqlserver_page
    sqlserver_pfs
    sqlserver_structure
    sqlserver_target
    tar
    xbstream
    xpress
}

/// What is run in this process.
static RUN: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(
    init: {
        let asked = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let known = TARGETS.iter().find(|(name, _)| *name == asked);
        let Some((_, run)) = known else {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            panic!("FUZZ_TARGET names none of the targets: {}", names.join(" "));
        };
        let _ = RUN.set(*run);
    },
    |input: &[u8]| {
        if let Some(run) = RUN.get() {
            run(input);
        }
    }
);
