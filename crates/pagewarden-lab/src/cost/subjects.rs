//! Whole databases at rest, one of each engine, that are read from end to end.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};
use pagewarden_scratch::home::Home;
use pagewarden_scratch::mariadb::{Installation, Server};
use pagewarden_scratch::postgres::{Cluster, StopMode};
use rusqlite::Connection;

use crate::cost::experiment::Form;
use crate::cost::{postgres, program, read_only};

/// The engines, as conditions name them.
pub const ENGINES: [&str; 3] = ["PostgreSQL", "MariaDB", "SQLite"];
const SQLITE_FILE: &str = "stock.db";

/// A database, and who keeps its files.
#[derive(Debug)]
pub enum Subject {
    /// A cluster with checksums, filled by pgbench.
    Postgres(Cluster),
    /// One table, with the server's own checksums.
    MariaDb(Box<Server>),
    /// One file.
    Sqlite(Home),
}

impl Subject {
    /// Makes it; `Err` inside says which programs are missing.
    ///
    /// # Errors
    /// It could not be made.
    pub fn make(
        engine: &str,
        form: Form,
        stop: &AtomicBool,
    ) -> Result<std::result::Result<Self, String>> {
        let whole = form == Form::Whole;
        match engine {
            "PostgreSQL" => {
                if let Some(reason) = postgres::unavailable() {
                    return Ok(Err(reason));
                }
                let installation = postgres::required_newest()?;
                let base = postgres::base(&installation, if whole { 100 } else { 3 }, stop)?;
                postgres::enable(&base, &[], stop)?;
                Ok(Ok(Self::Postgres(base)))
            }
            "MariaDB" => {
                let Some(installation) = Installation::find() else {
                    return Ok(Err(Installation::missing().unwrap_or_default()));
                };
                let mut server = Server::install(&installation, &[])?;
                server.start()?;
                let rows = if whole { 3_000_000 } else { 100_000 };
                let sql = format!(
                    "CREATE DATABASE shop; USE shop;
                    CREATE TABLE item (id INT PRIMARY KEY, quantity INT, body TEXT) ENGINE=InnoDB;
                    INSERT INTO item SELECT seq, 0, REPEAT(SHA1(seq), 10) FROM seq_1_to_{rows};"
                );
                program::expect(&mut server.client(), &sql, stop)?;
                server.stop()?;
                Ok(Ok(Self::MariaDb(Box::new(server))))
            }
            "SQLite" => {
                let home = Home::new()?;
                let rows = if whole { 12_000_000 } else { 500_000 };
                read_only::make(&home.path().join(SQLITE_FILE), rows, 1)?;
                Ok(Ok(Self::Sqlite(home)))
            }
            other => anyhow::bail!("no engine {other}"),
        }
    }

    /// Changes some rows, and leaves it at rest again.
    ///
    /// # Errors
    /// The engine fails.
    pub fn change(&mut self, stop: &AtomicBool) -> Result<()> {
        match self {
            Self::Postgres(cluster) => {
                cluster.start()?;
                let sql = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid <= 1000";
                postgres::query(cluster, sql, stop)?;
                Ok(cluster.stop(StopMode::Fast)?)
            }
            Self::MariaDb(server) => {
                server.start()?;
                let sql = "UPDATE shop.item SET quantity = quantity + 1 WHERE id <= 1000";
                program::expect(&mut server.client(), sql, stop)?;
                server.stop()
            }
            Self::Sqlite(home) => {
                let database = Connection::open(home.path().join(SQLITE_FILE))?;
                let sql = "UPDATE stock SET quantity = quantity + 1 WHERE id <= 1000";
                database.execute(sql, []).context("cannot change the database")?;
                Ok(())
            }
        }
    }

    /// What `pagewarden` is given to look at.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Postgres(cluster) => cluster.data_dir().to_owned(),
            Self::MariaDb(server) => server.data_dir().to_owned(),
            Self::Sqlite(home) => home.path().join(SQLITE_FILE),
        }
    }

    /// Where everything of it lies.
    #[must_use]
    pub fn home(&self) -> &Home {
        match self {
            Self::Postgres(cluster) => cluster.home_of_server(),
            Self::MariaDb(server) => server.home(),
            Self::Sqlite(home) => home,
        }
    }

    /// A folder beside the database, on the same disk.
    #[must_use]
    pub fn beside(&self) -> &Path {
        self.home().path()
    }
}
