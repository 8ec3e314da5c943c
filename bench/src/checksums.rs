//! `pagewarden checksum` on eight tables of MariaDB, every strategy beside the others: three
//! widths of rows in two sizes, and one of them in Aria and MyISAM. All of it is in memory.
#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use pagewarden_scratch::mariadb::sample::{self, IN_MEMORY, MEDIUM, NARROW, Shape, WIDE};
use pagewarden_scratch::mariadb::{Installation, Server};

use crate::subject::{load, pagewarden};

/// What to measure, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Thousands of rows of the smaller table of medium width
    #[arg(long, default_value_t = 200)]
    thousands: u32,
    /// How often all of it is summed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The program to measure; otherwise the one built beside this one
    #[arg(long)]
    pagewarden: Option<PathBuf>,
}

/// Tables: the name, the storage engine, the rows, and how many of them for a thousand of the
/// option.
const TABLES: &[(&str, &str, Shape, u32)] = &[
    ("narrow", "InnoDB", NARROW, 2_000),
    ("narrow_large", "InnoDB", NARROW, 20_000),
    ("medium", "InnoDB", MEDIUM, 1_000),
    ("medium_large", "InnoDB", MEDIUM, 10_000),
    ("medium_large_aria", "Aria", MEDIUM, 10_000),
    ("medium_large_myisam", "MyISAM", MEDIUM, 10_000),
    ("wide", "InnoDB", WIDE, 50),
    ("wide_large", "InnoDB", WIDE, 500),
];

/// Runs the benchmark; the tables are those that `pagewarden checksum` prints.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pagewarden = pagewarden(arguments.pagewarden.as_deref())?;
    let installation = Installation::find().context("no MariaDB")?;
    let mut server = Server::install(&installation, IN_MEMORY)?;
    server.start()?;
    println!("making eight tables in MariaDB {}", installation.version()?);
    server.sql("CREATE DATABASE shop")?;
    for (name, engine, shape, rows) in TABLES {
        let table = sample::table(name, engine, *shape, rows.saturating_mul(arguments.thousands));
        server.sql(&format!("SET sql_log_bin = 0; USE shop; {table}"))?;
    }
    let url = format!("mysql://root@/shop?socket={}", server.socket().display());
    for round in 1..=arguments.rounds {
        println!("\nround {round}, load {}", load());
        for words in [
            &["--strategy", "native,replicate,accum,bitxor,count,multiset", "--yes"][..],
            &["--strategy", "accum,bitxor", "--function", "crc32"],
        ] {
            let mut command = Command::new(&pagewarden);
            command.args(["checksum", "--quiet", "--side-by-side"]).args(words).arg(&url);
            // No file of the user says who logs in; warnings of a strategy are no news here.
            command.env("HOME", server.home().path()).env_remove("MYSQL_PWD");
            let status = command.stderr(Stdio::null()).status().context("cannot run pagewarden")?;
            ensure!(status.success(), "pagewarden checksum failed: {status}");
        }
    }
    Ok(())
}
