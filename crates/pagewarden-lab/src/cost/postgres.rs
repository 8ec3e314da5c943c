//! What the experiments on PostgreSQL share: which servers, arms as copies of
//! one data directory, and reading what pgbench, psql and the log's position say.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Context, Result};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use super::experiment::{Arm, Better, Kind, Metric, Reading};
use super::{program, server_cpu};

/// The versions that are measured where they are installed: Debian's, and the
/// newest, which has checksums on by default.
const MEASURED: &[&str] = &["15", "18"];
const PROGRAMS: &[&str] = &["psql", "pgbench", "pg_checksums"];

/// The arms of most experiments.
pub const NONE_OR_CHECKSUMS: &[Arm] = &[
    Arm { name: "none", what: "data checksums off" },
    Arm { name: "checksums", what: "data checksums on" },
];

/// What the experiments with pgbench measure.
pub const THROUGHPUT: &[Metric] = &[
    Metric { name: "tps", unit: "1/s", kind: Kind::Timed, better: Better::Higher },
    Metric { name: "cpu_us", unit: "us", kind: Kind::Timed, better: Better::Lower },
];

/// The servers that can be measured here, oldest first: those of 15 and 18 that
/// are installed with their client programs, or else the newest of any other
/// version.
#[must_use]
pub fn installations() -> Vec<Installation> {
    let complete = |one: &Installation| PROGRAMS.iter().all(|program| one.has(program));
    let measured: Vec<_> = MEASURED
        .iter()
        .filter_map(|version| Installation::find(version))
        .filter(complete)
        .collect();
    if !measured.is_empty() {
        return measured;
    }
    Installation::all().into_iter().rev().find(complete).into_iter().collect()
}

/// The newest of [`installations`]: for experiments that take long.
#[must_use]
pub fn newest() -> Option<Installation> {
    installations().pop()
}

/// Why there is nothing to measure, if so.
#[must_use]
pub fn unavailable() -> Option<String> {
    installations().is_empty().then(|| {
        "no PostgreSQL with psql, pgbench and pg_checksums is installed here\n\
         hint: apt-get install postgresql-15, or cargo xtask servers 15 18"
            .to_owned()
    })
}

/// How a condition or a setting names a server.
#[must_use]
pub fn label(installation: &Installation) -> String {
    format!("PostgreSQL {}", installation.version)
}

/// The newest server, or the error that [`unavailable`] explains.
///
/// # Errors
/// There is none.
pub fn required_newest() -> Result<Installation> {
    newest().context("no PostgreSQL to measure")
}

/// A stopped cluster without checksums and without tables.
///
/// # Errors
/// It could not be made.
pub fn empty_base(installation: &Installation) -> Result<Cluster> {
    let options = Options { checksums: false, ..Options::default() }
        .with("autovacuum", "off")
        .with("shared_buffers", "128MB")
        .with("max_wal_size", "8GB")
        .with("checkpoint_timeout", "1h");
    Cluster::init(installation, &options)
}

/// A cluster without checksums, filled by pgbench: what the arms are copies of.
/// Rows are frozen and every page is written out, so that reading changes
/// nothing.
///
/// # Errors
/// It could not be made.
pub fn base(installation: &Installation, scale: u32, stop: &AtomicBool) -> Result<Cluster> {
    let mut cluster = empty_base(installation)?;
    cluster.start()?;
    let arguments = ["-i", "-q", "-s", &scale.to_string()];
    program::expect(cluster.client("pgbench")?.args(arguments), "", stop)?;
    query(&cluster, "VACUUM (FREEZE, ANALYZE)", stop)?;
    cluster.stop(StopMode::Fast)?;
    Ok(cluster)
}

/// A copy of `base` that differs by the switch and by `settings` only. Both
/// arms are copies, so that neither lies on the disk as it was first written.
///
/// # Errors
/// The copy could not be made or flipped.
pub fn arm(
    base: &Cluster,
    checksums: bool,
    settings: &[(&str, &str)],
    stop: &AtomicBool,
) -> Result<Cluster> {
    let copy = base.duplicate()?;
    if checksums {
        enable(&copy, &[], stop)?;
    }
    copy.append_settings(settings.iter().copied())?;
    copy.home_of_server().write_out()?;
    Ok(copy)
}

/// Turns checksums on in a stopped cluster by the server's own tool.
///
/// # Errors
/// It failed.
pub fn enable(cluster: &Cluster, arguments: &[&str], stop: &AtomicBool) -> Result<program::Output> {
    let mut command = cluster.tool("pg_checksums");
    command.arg("--enable").args(arguments).arg("-D").arg(cluster.data_dir());
    program::expect(&mut command, "", stop)
}

/// Settings for the record.
#[must_use]
pub fn settings(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Adds the exact version of the servers to the record.
pub fn add_version<'a>(
    settings: &mut BTreeMap<String, String>,
    clusters: impl IntoIterator<Item = &'a Cluster>,
) {
    if let Some(installation) = clusters.into_iter().next().map(Cluster::installation)
        && let Ok(version) = installation.server_version()
    {
        settings.insert(label(installation), version);
    }
}

/// As [`add_version`], of every cluster.
pub fn add_version_each<'a>(
    settings: &mut BTreeMap<String, String>,
    clusters: impl IntoIterator<Item = &'a Cluster>,
) {
    for cluster in clusters {
        add_version(settings, [cluster]);
    }
}

/// What a session answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// A line a row, columns separated by `|`.
    pub rows: Vec<String>,
    /// Seconds for each statement, as the client saw them.
    pub seconds: Vec<f64>,
}

impl Answer {
    /// Seconds of all statements.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.seconds.iter().sum()
    }
}

/// Runs SQL in one session, statement by statement, and says how long each took.
///
/// # Errors
/// What the server said about the first that failed.
pub fn query(cluster: &Cluster, sql: &str, stop: &AtomicBool) -> Result<Answer> {
    let mut command = cluster.client("psql")?;
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
    let output = program::expect(&mut command, &format!("\\timing on\n{sql};\n"), stop)?;
    Ok(answer(&output.stdout))
}

/// `Time: 1234.567 ms (00:01.235)` follows the rows of each statement.
fn answer(stdout: &str) -> Answer {
    let mut answer = Answer::default();
    for line in stdout.lines() {
        let time = line.strip_prefix("Time: ").and_then(|rest| rest.split(' ').next());
        match time.and_then(|text| text.parse::<f64>().ok()) {
            Some(milliseconds) => answer.seconds.push(milliseconds / 1e3),
            None => answer.rows.push(line.to_owned()),
        }
    }
    answer
}

/// What pgbench counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// Transactions a second, without the time for connecting.
    pub tps: f64,
    /// How many there were.
    pub transactions: f64,
}

impl Throughput {
    /// As metrics, beside the server's processor time.
    #[must_use]
    pub fn reading(self, cpu_seconds: f64) -> Reading {
        let reading = Reading::of([("tps", self.tps), ("transactions", self.transactions)]);
        if self.transactions > 0.0 {
            return reading.with_value("cpu_us", cpu_seconds * 1e6 / self.transactions);
        }
        reading
    }
}

/// Runs pgbench against the cluster.
///
/// # Errors
/// It failed, or said nothing that can be read.
pub fn pgbench(cluster: &Cluster, arguments: &[&str], stop: &AtomicBool) -> Result<Throughput> {
    let output = program::expect(cluster.client("pgbench")?.args(arguments), "", stop)?;
    throughput(&output.stdout).with_context(|| format!("pgbench says: {}", output.said()))
}

fn throughput(stdout: &str) -> Option<Throughput> {
    let after = |head: &str| {
        let rest = stdout.lines().find_map(|line| line.strip_prefix(head))?;
        // With -t the count is followed by what it ought to be: `100/100`.
        rest.split([' ', '/']).find(|word| !word.is_empty())?.parse::<f64>().ok()
    };
    Some(Throughput {
        tps: after("tps = ")?,
        transactions: after("number of transactions actually processed:")?,
    })
}

/// Started copies of one data directory, `off` and `on`, for measurements that
/// change nothing.
#[derive(Debug)]
pub struct ReadOnlyArms {
    clusters: BTreeMap<&'static str, Cluster>,
    /// One more of each that was asked for twice at once.
    twins: BTreeMap<&'static str, Cluster>,
}

impl ReadOnlyArms {
    /// Fills a data directory at `scale` and makes the copies.
    ///
    /// # Errors
    /// They could not be made or started.
    pub fn new(
        installation: &Installation,
        scale: u32,
        settings: &[(&str, &str)],
        stop: &AtomicBool,
    ) -> Result<Self> {
        let clusters = started_arms(base(installation, scale, stop)?, settings, stop)?;
        Ok(Self { clusters, twins: BTreeMap::new() })
    }

    /// The clusters of the arms.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    /// The cluster of an arm.
    ///
    /// # Errors
    /// There is no such arm.
    pub fn get(&mut self, arm: &Arm) -> Result<&mut Cluster> {
        self.clusters.get_mut(arm.name).with_context(|| format!("no arm {}", arm.name))
    }

    /// Measures several arms at the same moment, each on a server of its own.
    ///
    /// # Errors
    /// One of the measurements failed, or an arm is wanted more than twice.
    pub fn at_once(
        &mut self,
        arms: &[Arm],
        measure: impl Fn(&mut Cluster) -> Result<Reading> + Sync,
    ) -> Result<Vec<Reading>> {
        self.make_twins(arms)?;
        let all = self.clusters.iter_mut().chain(&mut self.twins);
        let mut free: Vec<(&'static str, &mut Cluster)> =
            all.map(|(name, cluster)| (*name, cluster)).collect();
        thread::scope(|scope| {
            let mut running = Vec::new();
            for arm in arms {
                let place = free.iter().position(|(name, _)| *name == arm.name);
                let place = place.with_context(|| format!("no server for {}", arm.name))?;
                let (_, cluster) = free.swap_remove(place);
                let measure = &measure;
                running.push(scope.spawn(move || measure(cluster)));
            }
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Reading>>| match thread.join() {
                Ok(reading) => reading,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            running.into_iter().map(join).collect()
        })
    }

    /// A second server, on one more copy, for each arm that stands twice.
    fn make_twins(&mut self, arms: &[Arm]) -> Result<()> {
        for arm in arms {
            let wanted = arms.iter().filter(|other| other.name == arm.name).count();
            if wanted < 2 || self.twins.contains_key(arm.name) {
                continue;
            }
            let cluster = self.get(arm)?;
            cluster.stop(StopMode::Fast)?;
            let mut twin = cluster.duplicate()?;
            cluster.start()?;
            twin.home_of_server().write_out()?;
            twin.start()?;
            self.twins.insert(arm.name, twin);
        }
        Ok(())
    }
}

/// Two started copies of `base`: `off` and `on`.
///
/// # Errors
/// They could not be made or started.
pub fn started_arms(
    mut base: Cluster,
    settings: &[(&str, &str)],
    stop: &AtomicBool,
) -> Result<BTreeMap<&'static str, Cluster>> {
    base.stop(StopMode::Fast)?;
    let mut arms = BTreeMap::new();
    for arm in NONE_OR_CHECKSUMS {
        let mut cluster = self::arm(&base, arm.name == "checksums", settings, stop)?;
        cluster.start()?;
        arms.insert(arm.name, cluster);
    }
    Ok(arms)
}

/// pgbench's select-only transactions, and what one of them costs the whole
/// server.
///
/// # Errors
/// pgbench failed.
pub fn select_only(
    cluster: &mut Cluster,
    clients: u32,
    seconds: u32,
    stop: &AtomicBool,
) -> Result<Reading> {
    let (clients, seconds) = (clients.to_string(), seconds.to_string());
    let arguments = ["-n", "-S", "-M", "prepared", "-c", &clients, "-j", "1", "-T", &seconds];
    let (throughput, cpu) = with_server_cpu(cluster, |cluster| pgbench(cluster, &arguments, stop))?;
    Ok(throughput.reading(cpu))
}

/// Seconds of processor time of the whole server while `work` ran.
///
/// # Errors
/// Those of `work`; the server does not run.
pub fn with_server_cpu<T>(
    cluster: &mut Cluster,
    work: impl FnOnce(&Cluster) -> Result<T>,
) -> Result<(T, f64)> {
    let pid = cluster.postmaster_pid().context("the server does not run")?;
    let before = server_cpu::seconds(pid).context("the server does not run")?;
    let result = work(cluster)?;
    let after = server_cpu::seconds(pid).context("the server does not run")?;
    Ok((result, after - before))
}

/// The end of the write-ahead log, in bytes.
///
/// # Errors
/// The server does not say.
pub fn wal_position(cluster: &Cluster, stop: &AtomicBool) -> Result<u64> {
    let answer = query(cluster, "SELECT pg_current_wal_insert_lsn()", stop)?;
    let text = answer.rows.first().map(String::as_str).unwrap_or_default();
    parse_lsn(text).with_context(|| format!("{text:?} is no position in the log"))
}

/// `0/1A2B3C`: the high and the low half, hexadecimal.
fn parse_lsn(text: &str) -> Option<u64> {
    let (high, low) = text.trim().split_once('/')?;
    let high = u64::from(u32::from_str_radix(high, 16).ok()?);
    Some(high << 32 | u64::from(u32::from_str_radix(low, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_rows() {
        let answer = answer("100000|x\nTime: 12.500 ms\nTime: 1234.567 ms (00:01.235)\n");
        assert_eq!(answer.rows, ["100000|x"]);
        assert!((answer.total_seconds() - 1.247_067).abs() < 1e-9);
    }

    #[test]
    fn figures_of_pgbench_are_read() {
        let text = "number of transactions actually processed: 84231\n\
            number of failed transactions: 0 (0.000%)\nlatency average = 0.118 ms\n\
            initial connection time = 3.511 ms\ntps = 8423.519873 (without initial connection time)\n";
        let read = throughput(text).unwrap();
        assert!(
            (read.tps - 8_423.519_873).abs() < 1e-9 && (read.transactions - 84231.0).abs() < 0.1
        );
        let counted =
            throughput("number of transactions actually processed: 20/20\ntps = 1.5 (x)\n");
        assert!((counted.unwrap().transactions - 20.0).abs() < 0.1);
        assert_eq!(throughput("tps = fast"), None);
    }

    #[test]
    fn position_in_the_log_is_read() {
        assert_eq!(parse_lsn("1/A0"), Some(0x1_0000_00A0));
        assert_eq!(parse_lsn("1"), None);
        assert_eq!(parse_lsn("1/FFFFFFFFF"), None);
    }
}
