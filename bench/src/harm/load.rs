//! Servers with their usual load: pgbench, sysbench.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use pagewarden_scratch::mariadb::{Installation, Server};
use pagewarden_scratch::postgres::{Cluster, Options};

use crate::subject;

/// Clients of either load.
const CLIENTS: &str = "4";
/// Rows of sysbench's table in a MiB of data.
const ROWS_A_MEBIBYTE: u32 = 4300;
/// Mebibytes of a pgbench scale.
const MEBIBYTES_A_SCALE: u32 = 15;

/// What the transactions of a phase took, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Latencies {
    pub p50: f64,
    pub p99: f64,
    pub per_second: f64,
}

/// A server with its load.
pub trait Load {
    /// Runs the load for so long, at this many transactions a second or at as many as it can.
    fn run(&self, per_second: Option<f64>, seconds: u32) -> Result<Latencies>;
    /// What is to be verified.
    fn folder(&self) -> &Path;
    /// Puts the page cache into the state that the trial is about.
    fn forget(&self) -> Result<()>;
}

struct Postgres {
    cluster: Cluster,
    short: bool,
}

/// A PostgreSQL with pgbench's tables, running.
pub fn of_postgres(version: &str, mebibytes: u32, memory: u64) -> Result<Box<dyn Load>> {
    let options = Options::default()
        .with("shared_buffers", "128MB")
        .with("max_wal_size", "4GB")
        .with("checkpoint_timeout", "1min");
    let mut cluster = Cluster::init(&subject::postgres(version)?, &options)?;
    if memory > 0 {
        cluster.home_of_server().limit_memory(memory << 20)?;
    }
    cluster.start()?;
    let scale = (mebibytes / MEBIBYTES_A_SCALE).max(1).to_string();
    cluster.pgbench(&["--initialize", "--quiet", "--scale", &scale])?;
    cluster.psql("CHECKPOINT")?;
    Ok(Box::new(Postgres { cluster, short: memory > 0 }))
}

impl Load for Postgres {
    fn run(&self, per_second: Option<f64>, seconds: u32) -> Result<Latencies> {
        // Where the server's user may write.
        let folder = self.cluster.add_dir("transactions")?;
        let mut pgbench = self.cluster.client("pgbench")?;
        pgbench.args(["-n", "-c", CLIENTS, "-j", "2", "-T", &seconds.to_string(), "-l"]);
        pgbench.arg(format!("--log-prefix={}/log", folder.display()));
        if let Some(rate) = per_second {
            pgbench.args(["-R", &rate.to_string()]);
        }
        let output = pgbench.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut micros: Vec<f64> = Vec::new();
        for entry in fs::read_dir(&folder)? {
            // client, number, microseconds, ...
            let text = fs::read_to_string(entry?.path())?;
            micros.extend(
                text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()),
            );
        }
        fs::remove_dir_all(folder)?;
        micros.sort_by(f64::total_cmp);
        let at =
            |share: usize| micros.get(micros.len() * share / 100).map(|micros| micros / 1000.0);
        let count = u32::try_from(micros.len()).unwrap_or(u32::MAX);
        Ok(Latencies {
            p50: at(50).context("no transactions")?,
            p99: at(99).context("no transactions")?,
            per_second: f64::from(count) / f64::from(seconds),
        })
    }

    fn folder(&self) -> &Path {
        self.cluster.data_dir()
    }

    fn forget(&self) -> Result<()> {
        if self.short { self.cluster.home_of_server().drop_page_cache() } else { Ok(()) }
    }
}

struct Mariadb {
    server: Server,
    rows: u32,
    short: bool,
    folder: PathBuf,
}

/// A MariaDB with sysbench's table, running.
pub fn of_mariadb(mebibytes: u32, memory: u64) -> Result<Box<dyn Load>> {
    let installation = Installation::find()
        .context("no MariaDB\nhint: apt-get install mariadb-server sysbench")?;
    let mut server = Server::install(
        &installation,
        &["innodb-buffer-pool-size=128M", "innodb-log-file-size=1G"],
    )?;
    if memory > 0 {
        server.home().limit_memory(memory << 20)?;
    }
    server.start()?;
    server.sql("CREATE DATABASE sbtest")?;
    let folder = server.data_dir().to_owned();
    let load = Mariadb { server, rows: mebibytes * ROWS_A_MEBIBYTE, short: memory > 0, folder };
    load.sysbench(&["prepare"])?;
    Ok(Box::new(load))
}

impl Mariadb {
    fn sysbench(&self, words: &[&str]) -> Result<String> {
        let output = Command::new("sysbench")
            .args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root"])
            .args(["--mysql-db=sbtest", "--tables=1", "--rand-type=uniform"])
            .arg(format!("--mysql-socket={}", self.server.socket().display()))
            .arg(format!("--table-size={}", self.rows))
            .args(words)
            .output()
            .context("no sysbench\nhint: apt-get install sysbench")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{text}");
        Ok(text)
    }
}

impl Load for Mariadb {
    fn run(&self, per_second: Option<f64>, seconds: u32) -> Result<Latencies> {
        let rate = per_second.map_or(0.0, f64::round);
        let (time, rate) = (format!("--time={seconds}"), format!("--rate={rate}"));
        let threads = format!("--threads={CLIENTS}");
        let text = self.sysbench(&[
            &time,
            &rate,
            &threads,
            "--histogram=on",
            "--mysql-ignore-errors=all",
            "run",
        ])?;
        latencies(&text, seconds).with_context(|| format!("no histogram in {text}"))
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn forget(&self) -> Result<()> {
        if self.short { self.server.home().drop_page_cache() } else { Ok(()) }
    }
}

/// What sysbench's histogram says: lines of `milliseconds |**** count`.
fn latencies(text: &str, seconds: u32) -> Option<Latencies> {
    let lines: Vec<(f64, f64)> = text
        .lines()
        .filter_map(|line| {
            let (value, rest) = line.split_once('|')?;
            Some((value.trim().parse().ok()?, rest.split_whitespace().last()?.parse().ok()?))
        })
        .collect();
    let all: f64 = lines.iter().map(|(_, count)| count).sum();
    let at = |share: f64| {
        let mut seen = 0.0;
        let found = lines.iter().find(|(_, count)| {
            seen += count;
            seen >= all * share
        });
        found.map(|(value, _)| *value)
    };
    Some(Latencies { p50: at(0.5)?, p99: at(0.99)?, per_second: all / f64::from(seconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_is_read() {
        let text = "Latency histogram (values are in milliseconds)\n       value  ------------- \
                    distribution ------------- count\n       1.000 |****     50\n       2.000 |***** \
                    49\n      30.000 |     1\n \nSQL statistics:\n";
        let read = latencies(text, 10).unwrap();
        assert!((read.p50 - 1.0).abs() < 1e-9 && (read.p99 - 2.0).abs() < 1e-9, "{read:?}");
        assert!((read.per_second - 10.0).abs() < 1e-9);
        assert!(latencies("", 1).is_none());
    }
}
