//! `check --restore-drill`: a backup is brought back by our own reader, and a real server of its version
//! replays its log to the end and reads every row.
//!
//! How such a server is kept to itself is in `restored.rs`. It does run what the database itself has made of its
//! indexes: functions in expressions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pagewarden::Error;
use pagewarden::database::repository::RepositoryOptions;
use pagewarden::error::ErrorKind;
use pagewarden::report::drill::{Drill, DrillVerdict};
use pagewarden::source::store::{StorePath, Stores as _};
use pagewarden_scratch::postgres::{Cluster, StopMode};

use crate::args::Check;
use crate::commands::restored::{End, RECOVERY_LIMIT, Ready, last_words, ready};
use crate::commands::storage::Storage;

const COMPLAINTS_MAX: usize = 1000;

/// What a server says that misses log; whether that is damage, the check of the log says.
const NO_LOG: [&str; 4] = [
    "could not locate required checkpoint record",
    "could not find redo location",
    "WAL ends before end of online backup",
    "WAL ends before consistent recovery point",
];

/// True where texts may be sorted in another way here than where the indexes were made. Before 15 a server
/// does not know the version of a database's own collation.
const SORTS_OTHERWISE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_collation \
        WHERE collversion <> pg_catalog.pg_collation_actual_version(oid))";
const SORTS_OTHERWISE_15: &str = " OR EXISTS (SELECT FROM pg_catalog.pg_database \
        WHERE datname = current_database() \
          AND datcollversion <> pg_catalog.pg_database_collation_actual_version(oid))";
const SORTS_OTHERWISE_14: &str = " OR EXISTS (SELECT FROM pg_catalog.pg_database \
        WHERE datname = current_database() AND datcollate NOT IN ('C', 'POSIX'))";

const DATABASES: &str = "SELECT oid FROM pg_catalog.pg_database WHERE datallowconn ORDER BY oid";
/// Tables whose rows are stored, each as a statement that reads all of them.
const COUNTS: &str = "SELECT format('SELECT count(*) FROM ONLY %I.%I', nspname, relname) \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace \
    WHERE relkind IN ('r', 'm', 't') AND relpersistence <> 't' AND relispopulated \
    ORDER BY c.oid";
/// So that the tables are read, and not their indexes.
const READ_TABLES: &str = "SET enable_indexscan = off; SET enable_indexonlyscan = off; \
    SET enable_bitmapscan = off; SET row_security = off;";

/// What is to be brought back.
pub struct Wanted {
    place: StorePath,
    repository: RepositoryOptions,
    log: Vec<StorePath>,
}

impl Wanted {
    /// Of these arguments, the set of this label; empty: the newest one.
    pub fn of(arguments: &Check, set: &str, storage: &Storage) -> anyhow::Result<Self> {
        let [path] = arguments.paths.as_slice() else {
            anyhow::bail!("a restore drill is of one backup or repository\nhint: name one PATH");
        };
        let sets = match set {
            "" => arguments.set.clone(),
            set => vec![set.to_owned()],
        };
        let log: Result<_, _> = arguments.log.iter().map(|path| storage.at(path)).collect();
        Ok(Self {
            place: storage.at(path)?,
            repository: RepositoryOptions {
                sets,
                stanza: arguments.stanza.clone(),
                cipher_pass_file: arguments.cipher_pass_file.clone(),
                ..RepositoryOptions::default()
            },
            log: log?,
        })
    }
}

/// Tries it. What keeps it from being tried is a result too.
pub fn run(wanted: &Wanted, stop: &AtomicBool) -> Drill {
    let begin = Instant::now();
    let mut drill = Drill {
        verdict: DrillVerdict::Impossible,
        backup: wanted.place.path().display().to_string(),
        server: None,
        files: 0,
        bytes: 0,
        replayed_to: None,
        last_transaction: None,
        databases: 0,
        tables: 0,
        rows: 0,
        amcheck: false,
        notes: Vec::new(),
        complaints: Vec::new(),
        seconds: Duration::ZERO,
    };
    let is_damaged = |error: &anyhow::Error| {
        let error = error.downcast_ref::<Error>();
        error.is_some_and(|error| error.kind() == ErrorKind::Damaged)
    };
    match tried(wanted, stop, &mut drill) {
        _ if stop.load(Ordering::Relaxed) => drill.complaints.push("it was stopped".to_owned()),
        Err(error) => {
            if is_damaged(&error) {
                drill.verdict = DrillVerdict::Failed;
            }
            drill.complaints.push(format!("{error:#}").replace('\n', "; "));
        }
        Ok(()) if drill.complaints.is_empty() => drill.verdict = DrillVerdict::Passed,
        Ok(()) => drill.verdict = DrillVerdict::Failed,
    }
    drill.seconds = begin.elapsed();
    drill
}

/// `Err`: it could not be tried. What goes wrong with the backup is a complaint.
fn tried(wanted: &Wanted, stop: &AtomicBool, drill: &mut Drill) -> anyhow::Result<()> {
    let is_over = || stop.load(Ordering::Relaxed);
    if is_over() {
        return Ok(());
    }
    let Wanted { place, repository, log } = wanted;
    let Ready { mut cluster, restored, log_losses } = ready(place, repository, log, End::OfTheLog)?;
    drill.complaints.extend(log_losses);
    drill.backup = format!("{}: {}", wanted.place.path().display(), restored.what);
    (drill.files, drill.bytes) = (restored.files, restored.bytes);
    for (name, why) in &restored.losses {
        drill.complaints.push(format!("{name} could not be brought back: {why}"));
    }
    drill.server = Some(format!("PostgreSQL {}", cluster.installation().server_version()?));
    if let Err(error) = cluster.start_within(RECOVERY_LIMIT, &is_over) {
        let said = format!("{error:#}");
        if NO_LOG.iter().any(|words| last_words(&said).contains(words)) {
            anyhow::bail!(
                "the log that it needs is not here; --log DIR names a folder with more: {}",
                last_words(&said)
            );
        }
        drill.complaints.push(format!("the server does not open it: {}", last_words(&said)));
        return Ok(());
    }
    let log = cluster.log();
    drill.replayed_to = said_after(&log, "redo done at ");
    drill.last_transaction = said_after(&log, "last completed transaction was at log time ");
    let_us_in(&mut cluster)?;
    read_all(&cluster, stop, drill)?;
    if !is_over() {
        check_indexes(&cluster, drill)?;
    }
    cluster.stop(StopMode::Immediate)
}

/// The word or time behind these words, where the server said them last.
fn said_after(log: &str, words: &str) -> Option<String> {
    let (_, rest) = log.rsplit_once(words)?;
    let line = rest.lines().next()?;
    Some(line.split(" system usage").next()?.trim_end().to_owned())
}

/// The superuser of the database may have another name than ours.
fn let_us_in(cluster: &mut Cluster) -> anyhow::Result<()> {
    match cluster.psql_in("template1", "SELECT 1") {
        Ok(_) => return Ok(()),
        Err(error) if format!("{error:#}").contains("does not exist") => {}
        Err(error) => return Err(error),
    }
    cluster.stop(StopMode::Fast)?;
    cluster.single_user("template1", &["CREATE ROLE postgres SUPERUSER LOGIN"])?;
    cluster.start()
}

/// The names of the databases that can be connected to.
fn databases(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let numbers = cluster.psql_in("template1", DATABASES)?;
    let name_of = |number| {
        let name = format!("SELECT datname FROM pg_catalog.pg_database WHERE oid = {number}");
        cluster.psql_in("template1", &name)
    };
    numbers.lines().map(name_of).collect()
}

/// A database for the server's programs: a name by itself could be read as the address of another server.
fn address(database: &str) -> String {
    format!("dbname='{}'", database.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Reads every row of every table.
fn read_all(cluster: &Cluster, stop: &AtomicBool, drill: &mut Drill) -> anyhow::Result<()> {
    for database in &databases(cluster)? {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        drill.databases += 1;
        let statements = match cluster.psql_in(&address(database), COUNTS) {
            Ok(statements) => statements,
            Err(error) => {
                complain(drill, database, &format!("{error:#}"));
                continue;
            }
        };
        let all: Vec<_> = statements.lines().collect();
        let script = |statements: &[&str]| format!("{READ_TABLES} {};", statements.join("; "));
        // One after the other only where one of them fails.
        let pieces = match cluster.psql_in(&address(database), &script(&all)) {
            Ok(counts) => vec![Ok(counts)],
            Err(_) => all
                .iter()
                .map(|one| {
                    cluster
                        .psql_in(&address(database), &script(&[*one]))
                        .map_err(|error| (one, error))
                })
                .collect(),
        };
        drill.tables += all.len() as u64;
        for piece in pieces {
            match piece {
                Ok(counts) => {
                    drill.rows +=
                        counts.lines().filter_map(|it| it.parse::<u64>().ok()).sum::<u64>();
                }
                Err((statement, error)) => {
                    complain(drill, database, &format!("{statement}: {error:#}"));
                }
            }
        }
    }
    Ok(())
}

/// Has the server's own tool look at tables and B-tree indexes, where it is installed.
fn check_indexes(cluster: &Cluster, drill: &mut Drill) -> anyhow::Result<()> {
    let installation = cluster.installation();
    if !installation.has("pg_amcheck") || !installation.has_extension("amcheck") {
        return Ok(());
    }
    let of_version = if installation.major < 15 { SORTS_OTHERWISE_14 } else { SORTS_OTHERWISE_15 };
    for database in &databases(cluster)? {
        let mut tool = cluster.client("pg_amcheck")?;
        tool.args(["--install-missing", "-j", "2"]).arg(address(database));
        let question = format!("{SORTS_OTHERWISE}{of_version}");
        if cluster.psql_in(&address(database), &question)? == "t" {
            drill.notes.push(format!(
                "the indexes of {database} were not looked at: texts may be sorted in another way here"
            ));
            tool.arg("--no-dependent-indexes");
        } else {
            tool.args(["--heapallindexed", "--parent-check"]);
        }
        let output = tool.output().context("cannot run pg_amcheck")?;
        drill.amcheck = true;
        if output.status.success() {
            continue;
        }
        for text in [&output.stdout, &output.stderr] {
            for line in String::from_utf8_lossy(text).lines().filter(|line| !line.is_empty()) {
                complain(drill, "pg_amcheck", line);
            }
        }
    }
    Ok(())
}

fn complain(drill: &mut Drill, of: &str, what: &str) {
    if drill.complaints.len() < COMPLAINTS_MAX {
        let what: Vec<_> = what.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        drill.complaints.push(format!("{of}: {}", what.join("; ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_database_is_never_an_address() {
        assert_eq!(address("shop"), "dbname='shop'");
        assert_eq!(address("host=other"), "dbname='host=other'");
        assert_eq!(address("it's \\"), "dbname='it\\'s \\\\'");
    }
}
