//! E2g: which tool notices which damage.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use pagewarden::verdict::{Finding, Note, Severity, Unread, Verdict};
use pagewarden::verify::{self, Sink};
use pagewarden::{database, verdict};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Kind, Lab, Metric, Prepared, Reading,
};
use crate::cost::{postgres, program};
use crate::stats::random::Random;

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct BlindSpots;

const PAGE_BYTES: usize = 8192;
/// A page in the middle of the table.
const VICTIM: usize = 200;
const ROWS: u32 = 20_000;
/// Fields of the page header.
const LSN: std::ops::Range<usize> = 0..8;
const PD_UPPER: std::ops::Range<usize> = 14..16;

static DESCRIPTION: Description = Description {
    name: "e2g",
    title: "blind spots of the tools",
    question: "Which damage to a table does each tool notice?",
    seed: "enabling data checksums by default: Andres and Tomas on zeroed pages and random headers that pass",
    by_hand: "\
1. initdb -k; CREATE TABLE victim with 20000 rows on 409 pages and a primary key; VACUUM FREEZE; stop the server.
2. For each fault: change the table's file (SELECT pg_relation_filepath('victim')) at page 200 with dd, and
   then, each on the damaged directory:
   SELECT count(body) FROM victim; pg_checksums --check; pg_basebackup; pg_amcheck --parent-check
   --heapallindexed; pagewarden check. Put the sound bytes back with the server stopped.
3. A tool has noticed if it ends with an error. A wrong count without an error is not noticed.",
    arms: &[
        Arm { name: "select", what: "SELECT count(body) by a scan of the table" },
        Arm { name: "pg_checksums", what: "pg_checksums --check" },
        Arm { name: "pg_basebackup", what: "pg_basebackup, which verifies checksums" },
        Arm { name: "pg_amcheck", what: "pg_amcheck --parent-check --heapallindexed" },
        Arm { name: "pagewarden", what: "pagewarden check" },
    ],
    metrics: &[Metric { name: "found", unit: "", kind: Kind::Found, better: Better::Higher }],
    is_price: true,
    decides: None,
    seed_figures: &[],
    blocks: (1, 1),
};

/// A kind of damage.
struct Fault {
    name: &'static str,
    inject: fn(&mut Vec<u8>),
}

const FAULTS: &[Fault] = &[
    Fault { name: "bit flip", inject: |file| flip_bit(file) },
    Fault { name: "page zeroed", inject: |file| page_of(file, VICTIM, |page| page.fill(0)) },
    Fault { name: "page of random bytes", inject: |file| page_of(file, VICTIM, randomise) },
    Fault { name: "LSN all ones and a bit flip", inject: |file| future_lsn(file) },
    Fault { name: "pd_upper zero and a bit flip", inject: |file| looks_new(file) },
    Fault { name: "last 3 pages cut off", inject: cut },
    Fault { name: "two pages swapped", inject: |file| swap(file) },
];

fn page_of(file: &mut [u8], page: usize, change: impl FnOnce(&mut [u8])) {
    if let Some(bytes) = file.chunks_exact_mut(PAGE_BYTES).nth(page) {
        change(bytes);
    }
}

fn flip_bit(file: &mut [u8]) {
    page_of(file, VICTIM, |page| {
        if let Some(byte) = page.get_mut(PAGE_BYTES / 2) {
            *byte ^= 0x10;
        }
    });
}

fn randomise(page: &mut [u8]) {
    let mut random = Random::new(1);
    page.fill_with(|| random.bits().to_le_bytes()[0]);
}

fn future_lsn(file: &mut [u8]) {
    flip_bit(file);
    page_of(file, VICTIM, |page| {
        if let Some(lsn) = page.get_mut(LSN) {
            lsn.fill(0xFF);
        }
    });
}

fn looks_new(file: &mut [u8]) {
    flip_bit(file);
    page_of(file, VICTIM, |page| {
        if let Some(upper) = page.get_mut(PD_UPPER) {
            upper.fill(0);
        }
    });
}

fn cut(file: &mut Vec<u8>) {
    file.truncate(file.len().saturating_sub(3 * PAGE_BYTES));
}

fn swap(file: &mut [u8]) {
    let mut pages = file.chunks_exact_mut(PAGE_BYTES).skip(VICTIM);
    if let (Some(one), Some(other)) = (pages.next(), pages.next()) {
        one.swap_with_slice(other);
    }
}

impl Experiment for BlindSpots {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn unavailable(&self) -> Option<String> {
        postgres::unavailable()
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let mut victims = Vec::new();
        for installation in postgres::installations() {
            let options = Options::default().with("autovacuum", "off");
            let mut cluster = Cluster::init(&installation, &options)?;
            cluster.start()?;
            let sql = format!(
                "CREATE TABLE victim (id int PRIMARY KEY, body text);
                INSERT INTO victim SELECT i, repeat(md5(i::text), 4) FROM generate_series(1, {ROWS}) i;
                CREATE EXTENSION amcheck; VACUUM (FREEZE, ANALYZE)"
            );
            postgres::query(&cluster, &sql, &lab.stop)?;
            let relation = cluster.relation_path("postgres", "victim")?;
            cluster.stop(StopMode::Fast)?;
            let path = cluster.data_dir().join(relation);
            let sound = fs::read(&path).context("cannot read the table's file")?;
            victims.push(Victim { name: postgres::label(&installation), cluster, path, sound });
        }
        Ok(Box::new(Damaged { victims, stop: Arc::clone(&lab.stop) }))
    }
}

/// A cluster, stopped between measurements, with the table that is damaged.
struct Victim {
    name: String,
    cluster: Cluster,
    path: PathBuf,
    sound: Vec<u8>,
}

struct Damaged {
    victims: Vec<Victim>,
    stop: Arc<AtomicBool>,
}

impl Prepared for Damaged {
    fn conditions(&self) -> Vec<String> {
        let names = |victim: &Victim| {
            let name = victim.name.clone();
            FAULTS.iter().map(move |fault| condition(&name, fault))
        };
        self.victims.iter().flat_map(names).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        postgres::add_version_each(&mut settings, self.victims.iter().map(|one| &one.cluster));
        settings
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let stop = &self.stop;
        let found = self.victims.iter_mut().find_map(|victim| {
            let of_this = |fault: &&Fault| self::condition(&victim.name, fault) == condition;
            FAULTS.iter().find(of_this).map(|fault| (victim, fault))
        });
        let (victim, fault) = found.with_context(|| format!("{condition} is not measured"))?;
        let mut damaged = victim.sound.clone();
        (fault.inject)(&mut damaged);
        fs::write(&victim.path, &damaged).context("cannot damage the table's file")?;
        let answer = ask(arm.name, &mut victim.cluster, stop);
        victim.cluster.stop(StopMode::Fast)?;
        fs::write(&victim.path, &victim.sound).context("cannot restore the table's file")?;
        let (found, word) = answer?;
        Ok(Reading::of([("found", f64::from(u8::from(found)))]).with_word("found", word))
    }
}

fn condition(version: &str, fault: &Fault) -> String {
    format!("{version}: {}", fault.name)
}

/// Asks a tool about the damaged cluster: has it noticed, and in what words?
fn ask(tool: &str, cluster: &mut Cluster, stop: &AtomicBool) -> Result<(bool, String)> {
    match tool {
        "select" => select(cluster, stop),
        "pg_checksums" => {
            let mut command = cluster.tool("pg_checksums");
            command.arg("--check").arg("-D").arg(cluster.data_dir());
            Ok(by_status(&program::run(&mut command, "", stop)?))
        }
        "pg_basebackup" => {
            cluster.start()?;
            let target = cluster.home().join("backup");
            let mut command = cluster.client("pg_basebackup")?;
            command.arg("-D").arg(&target).args(["--checkpoint=fast", "--no-sync", "-X", "none"]);
            let output = program::run(&mut command, "", stop)?;
            if target.exists() {
                fs::remove_dir_all(&target).context("cannot remove the backup")?;
            }
            Ok(by_status(&output))
        }
        "pg_amcheck" => {
            cluster.start()?;
            let mut command = cluster.client("pg_amcheck")?;
            command.args(["--parent-check", "--heapallindexed", "-d", "postgres", "-t", "victim"]);
            Ok(by_status(&program::run(&mut command, "", stop)?))
        }
        "pagewarden" => pagewarden_check(cluster, stop),
        other => bail!("{other} is no tool that is asked"),
    }
}

fn select(cluster: &mut Cluster, stop: &AtomicBool) -> Result<(bool, String)> {
    cluster.start()?;
    let mut command = cluster.client("psql")?;
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
    let output = program::run(&mut command, "SELECT count(body) FROM victim;\n", stop)?;
    if output.status == Some(0) {
        let rows = output.stdout.trim();
        return Ok((false, format!("silent: {rows} of {ROWS} rows")));
    }
    Ok(by_status(&output))
}

/// The last words of a tool that fails are the telling ones; standard output
/// comes first in what pg_amcheck says.
fn by_status(output: &program::Output) -> (bool, String) {
    if output.status == Some(0) {
        return (false, "silent".to_owned());
    }
    let said = output.said();
    let telling = ["ERROR", "WARNING", "error", "warning", "damaged"];
    let line = telling
        .iter()
        .find_map(|word| said.lines().find(|line| line.contains(word)))
        .or(said.lines().rev().find(|line| !line.trim().is_empty()))
        .unwrap_or_default();
    (true, without_paths(line))
}

/// What matters to who reads the report: from the error on, without paths.
fn without_paths(line: &str) -> String {
    let line = line.find("ERROR:").and_then(|begin| line.get(begin..)).unwrap_or(line);
    let words = line.split_whitespace().filter(|word| !word.contains("/pagewarden-"));
    words.collect::<Vec<_>>().join(" ")
}

fn pagewarden_check(cluster: &mut Cluster, stop: &AtomicBool) -> Result<(bool, String)> {
    let target = database::open(cluster.data_dir(), None)?;
    let mut found = Found::default();
    let options = verify::Options { stop: Arc::default(), ..verify::Options::default() };
    let verified = verify::verify(target, &options, &(), &mut found)?;
    program::go_on(stop)?;
    let verdict = verified.verdict();
    let noticed = matches!(verdict, Verdict::Damaged | Verdict::Suspect);
    Ok((noticed, if noticed { found.words() } else { "silent".to_owned() }))
}

/// The kinds of what was found.
#[derive(Debug, Default)]
struct Found {
    kinds: BTreeMap<(Severity, &'static str), u32>,
}

impl Found {
    fn words(&self) -> String {
        let word = |((severity, kind), count): (&(Severity, &'static str), &u32)| {
            format!("{}: {kind} ({count})", severity.name())
        };
        self.kinds.iter().rev().map(word).collect::<Vec<_>>().join(", ")
    }
}

impl Sink for Found {
    fn finding(&mut self, finding: &Finding) -> std::io::Result<()> {
        let key = (finding.severity, verdict::Kind::name(finding.kind));
        *self.kinds.entry(key).or_default() += 1;
        Ok(())
    }

    fn unread(&mut self, _unread: &Unread) -> std::io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _note: &Note) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_change_what_they_say() {
        let sound: Vec<u8> =
            (0..409).flat_map(|page: u32| vec![page.to_le_bytes()[0]; PAGE_BYTES]).collect();
        for fault in FAULTS {
            let mut file = sound.clone();
            (fault.inject)(&mut file);
            let changed: Vec<usize> = sound
                .chunks(PAGE_BYTES)
                .zip(file.chunks(PAGE_BYTES))
                .enumerate()
                .filter_map(|(page, (before, after))| (before != after).then_some(page))
                .collect();
            match fault.name {
                "last 3 pages cut off" => assert_eq!(file.len(), 406 * PAGE_BYTES),
                "two pages swapped" => assert_eq!(changed, [VICTIM, VICTIM + 1]),
                name => assert_eq!(changed, [VICTIM], "{name}"),
            }
        }
    }

    #[test]
    fn paths_are_left_out_of_the_words() {
        let line = "pg_checksums: error: could not open \"/tmp/pagewarden-x/data/1\": no";
        assert_eq!(without_paths(line), "pg_checksums: error: could not open no");
        assert_eq!(without_paths("psql:<stdin>:1: ERROR: invalid page"), "ERROR: invalid page");
    }
}
