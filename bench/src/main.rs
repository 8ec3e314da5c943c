//! Paired measurements: what checking costs beside `cat`, `fio` and the
//! engines' own tools. `cargo run --release -p pagewarden-bench -- --help`.

use clap::{Parser, Subcommand};

mod cache;
mod check;
mod checksums;
mod compare;
mod harm;
mod innodb;
mod kernel;
mod lake;
mod packs;
mod pieces;
mod process;
mod protect;
mod repository;
mod rewrite;
mod samples;
mod sqlserver;
mod structure;
mod subject;
mod sums;

/// Measures pagewarden beside its peers, in pairs, and prints medians and ratios
#[derive(Debug, Parser)]
#[command(name = "pagewarden-bench")]
struct Arguments {
    #[command(subcommand)]
    command: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// The checksum kernels against plain ones and others'
    Kernel,
    /// `pagewarden check` on a pgbench cluster against cat, `pg_checksums` and fio
    Check(check::Arguments),
    /// `pagewarden check` on a pgBackRest repository against `pgbackrest verify`
    Repository(repository::Arguments),
    /// `pagewarden check` on a SQL Server data file against cat
    Sqlserver(sqlserver::Arguments),
    /// `pagewarden check` on large InnoDB tablespaces against cat and innochecksum
    Innodb(innodb::Arguments),
    /// What `pagewarden scrub` does to the transactions of a busy server, and what it reads beside it
    Harm(harm::Arguments),
    /// `pagewarden protect` on a pgbench cluster against `pg_checksums --enable`
    Protect(protect::Arguments),
    /// `pagewarden checksum` on eight tables of MariaDB, every strategy beside the others
    Checksums(checksums::Arguments),
    /// `pagewarden compare` against COUNT(*), pt-table-checksum and reladiff
    Compare(compare::Arguments),
    /// `pagewarden compare` of PostgreSQL with Parquet, beside PostgreSQL with PostgreSQL
    Lake(lake::Arguments),
    /// A read-only database in a pack beside plain and compressed file systems
    Packs(packs::Arguments),
    /// `pagewarden check --structure` against `pg_amcheck`, `PRAGMA integrity_check` and `CHECK TABLE`
    Structure(structure::Arguments),
    /// Asks SQLite what it thinks of a file, in a process of its own
    #[command(hide = true)]
    Pragma(structure::engines::Pragma),
    /// Asks a database, in a process of its own
    #[command(hide = true)]
    Query(packs::sqlite::Arguments),
    /// Serves a folder by FUSE: what a mounted pack is measured beside
    #[command(hide = true)]
    Pass(packs::passed::Arguments),
    /// Reads files and writes them back: what `protect` is measured beside
    #[command(hide = true)]
    Rewrite(rewrite::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Benchmark::Kernel => kernel::run().and_then(|()| sums::run()),
        Benchmark::Check(arguments) => check::run(&arguments),
        Benchmark::Repository(arguments) => repository::run(&arguments),
        Benchmark::Sqlserver(arguments) => sqlserver::run(&arguments),
        Benchmark::Harm(arguments) => harm::run(&arguments),
        Benchmark::Innodb(arguments) => innodb::run(&arguments),
        Benchmark::Protect(arguments) => protect::run(&arguments),
        Benchmark::Checksums(arguments) => checksums::run(&arguments),
        Benchmark::Compare(arguments) => compare::run(&arguments),
        Benchmark::Lake(arguments) => lake::run(&arguments),
        Benchmark::Packs(arguments) => packs::run(&arguments),
        Benchmark::Structure(arguments) => structure::run(&arguments),
        Benchmark::Pragma(arguments) => structure::engines::pragma(&arguments),
        Benchmark::Query(arguments) => packs::sqlite::run(&arguments),
        Benchmark::Pass(arguments) => packs::passed::run(&arguments),
        Benchmark::Rewrite(arguments) => rewrite::run(&arguments),
    }
}
