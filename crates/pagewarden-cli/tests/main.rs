//! The program from outside: real clusters, real damage, hostile input.
//!
//! `PAGEWARDEN_TEST_VERSIONS` chooses the PostgreSQL versions,
//! `PAGEWARDEN_SEED` the damage, `PAGEWARDEN_REQUIRE=postgres` forbids skipping.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod clusters;
mod damage;
mod live_files;
mod mariadb_samples;
mod read_record;
mod runner;
mod tar_files;

mod backups;
mod binlogs;
mod book;
mod browser;
mod campaigns;
mod checksums;
mod compare_state;
mod compares;
mod cost;
mod crashed;
mod drills;
mod duckdb;
mod file_damage;
mod guarded_hour;
mod guarded_kills;
mod heal_sqlite;
mod healthy;
mod histories;
mod hostile;
mod hostile_http;
mod index_pages;
mod innochecksum;
mod innodb_backups;
mod innodb_directories;
mod innodb_healthy;
mod innodb_matrix;
mod innodb_running;
mod innodb_sums_made_right;
mod iotest;
mod matrix;
mod mounts;
mod mysql;
mod mysql_running;
mod notifications;
mod object_storage;
mod options;
mod pack_estimate;
mod pack_null;
mod packaging;
mod packs;
mod packs_base;
mod packs_elsewhere;
mod packs_interrupted;
mod page_cache;
mod page_damage;
mod parquet;
mod parts;
mod pgbackrest;
mod pictures;
mod plain_log;
mod plans;
mod promises;
mod protect;
mod protect_innodb;
mod protect_sqlite;
mod recovery;
mod repair;
mod repair_innodb;
mod repair_sqlite;
mod repair_sqlserver;
mod replicates;
mod repository_log;
mod repository_threads;
mod running;
mod scrub;
mod seals;
mod serve;
mod serve_scale;
mod sqlite;
mod sqlite_logs;
mod sqlite_streams;
mod sqlite_structure;
mod sqlserver;
mod sums_made_right;
mod survey;
mod sysbench;
mod two_users;
mod what_must_be_there;
mod witnesses;
mod words;
mod wounds;
