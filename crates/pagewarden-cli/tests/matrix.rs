//! The 15 kinds of damage that the tools of PostgreSQL were measured on, and what
//! each of them says, beside ours.
//!
//! One table of a hundred thousand rows, with or without an index, with or
//! without a VACUUM after it was loaded (which sets bits in its visibility map),
//! compared with a seal or not. Ours must be `damage` at the right page wherever
//! a witness or the seal vouches for it.
//!
//! `PAGEWARDEN_SEEDS` says how often each kind is drawn (1 if it is not set).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::clusters::installations;
use crate::damage::{Damage, Dice, PAGE, page, page_mut};
use crate::runner::check;

/// The rows of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    ZeroedPage,
    ZeroedRange,
    CutBetweenPages,
    CutInsideAPage,
    MissingFile,
    WrongBlock,
    HeaderSmallLsn,
    HeaderHugeLsn,
    HeaderUpperZero,
    UpperZero,
    TornPage,
    BitInTuple,
    BitInHighLsn,
    StalePage,
    StaleFile,
}

const ROWS: [Row; 15] = [
    Row::ZeroedPage,
    Row::ZeroedRange,
    Row::CutBetweenPages,
    Row::CutInsideAPage,
    Row::MissingFile,
    Row::WrongBlock,
    Row::HeaderSmallLsn,
    Row::HeaderHugeLsn,
    Row::HeaderUpperZero,
    Row::UpperZero,
    Row::TornPage,
    Row::BitInTuple,
    Row::BitInHighLsn,
    Row::StalePage,
    Row::StaleFile,
];

impl Row {
    fn name(self) -> &'static str {
        match self {
            Self::ZeroedPage => "zeroed page",
            Self::ZeroedRange => "zeroed range (32 pages)",
            Self::CutBetweenPages => "file cut by 10 pages",
            Self::CutInsideAPage => "cut inside a page",
            Self::MissingFile => "file missing",
            Self::WrongBlock => "page in wrong block",
            Self::HeaderSmallLsn => "random header, small LSN",
            Self::HeaderHugeLsn => "random header, huge LSN",
            Self::HeaderUpperZero => "random header, pd_upper 0",
            Self::UpperZero => "only pd_upper zeroed",
            Self::TornPage => "torn page",
            Self::BitInTuple => "bit flip in a tuple",
            Self::BitInHighLsn => "bit flip in the high LSN",
            Self::StalePage => "stale page (lost write)",
            Self::StaleFile => "stale file",
        }
    }

    /// True if only something outside the page can tell.
    fn needs_a_witness(self) -> bool {
        matches!(self, Self::ZeroedPage | Self::ZeroedRange | Self::CutBetweenPages)
    }

    fn needs_a_seal(self) -> bool {
        matches!(self, Self::StalePage | Self::StaleFile)
    }
}

/// A cluster with the table, shut down, and its table as it was before.
struct Subject {
    cluster: Cluster,
    file: PathBuf,
    before: Vec<u8>,
    has_index: bool,
    is_vacuumed: bool,
    seal: PathBuf,
}

impl Subject {
    fn new(installation: &Installation, has_index: bool, is_vacuumed: bool) -> Self {
        let options = Options { checksums: true, ..Options::default() }
            .with("max_wal_senders", "4")
            .with("autovacuum", "off");
        let mut cluster = Cluster::init(installation, &options).unwrap();
        cluster.start().unwrap();
        let mut load = vec![
            "CREATE TABLE precious AS SELECT i, md5(i::text) AS word FROM generate_series(1, 100000) i",
        ];
        if has_index {
            load.push("CREATE INDEX precious_i ON precious (i)");
        }
        load.push("CHECKPOINT");
        cluster.execute("postgres", &load).unwrap();
        let file = cluster.relation_path("postgres", "precious").unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let before = fs::read(cluster.data_dir().join(&file)).unwrap();
        cluster.start().unwrap();
        // All pages change, none is added: there is room for every new version.
        let mut change = vec!["DELETE FROM precious WHERE i % 7 = 0"];
        if is_vacuumed {
            change.push("VACUUM precious");
        }
        change.push("CHECKPOINT");
        cluster.execute("postgres", &change).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let seal = cluster.home().join("seal");
        let outcome = check(["--seal".as_ref(), seal.as_os_str(), cluster.data_dir().as_os_str()]);
        assert_eq!((outcome.report().verdict(), outcome.status), ("intact", Some(0)));
        assert!(seal.exists());
        Self { cluster, file, before, has_index, is_vacuumed, seal }
    }

    fn path(&self) -> PathBuf {
        self.cluster.data_dir().join(&self.file)
    }

    fn can_witness(&self) -> bool {
        self.has_index || self.is_vacuumed
    }

    /// Damages the table; returns the block that must be named, if any.
    fn inflict(&self, row: Row, dice: &mut Dice, bytes: &mut Vec<u8>) -> Option<u64> {
        // From 16 on, a file may have been extended further than it is used.
        let used = |page: &[u8]| page.iter().any(|byte| *byte != 0);
        let pages = bytes.chunks_exact(PAGE).rposition(used).unwrap() + 1;
        let block = dice.within(pages / 4..pages / 2);
        let at_block = |damage: Damage, dice: &mut Dice, bytes: &mut [u8]| {
            damage.inflict(dice, page_mut(bytes, block as u32), block as u32);
        };
        match row {
            Row::ZeroedPage => page_mut(bytes, block as u32).fill(0),
            Row::ZeroedRange => bytes[block * PAGE..][..32 * PAGE].fill(0),
            Row::CutBetweenPages => {
                bytes.truncate((pages - 10) * PAGE);
                return Some(pages as u64 - 10);
            }
            Row::CutInsideAPage => {
                bytes.truncate((pages - 5) * PAGE + 1000);
                return Some(pages as u64 - 5);
            }
            Row::MissingFile => return None,
            Row::WrongBlock => {
                let other = page(bytes, block as u32 + 3).to_vec();
                page_mut(bytes, block as u32).copy_from_slice(&other);
            }
            Row::HeaderSmallLsn => at_block(Damage::HeaderSmallLsn, dice, bytes),
            Row::HeaderHugeLsn => at_block(Damage::HeaderHugeLsn, dice, bytes),
            Row::HeaderUpperZero => at_block(Damage::HeaderUpperZero, dice, bytes),
            Row::UpperZero => at_block(Damage::UpperZero, dice, bytes),
            Row::BitInTuple => at_block(Damage::BitInTuple, dice, bytes),
            Row::BitInHighLsn => at_block(Damage::BitInHighLsn, dice, bytes),
            Row::TornPage => {
                let old = &page(&self.before, block as u32)[PAGE / 2..];
                let new = page_mut(bytes, block as u32);
                if new[PAGE / 2..] == *old {
                    // The deletion marked no tuple in this half: any other will do.
                    new[PAGE / 2..].reverse();
                } else {
                    new[PAGE / 2..].copy_from_slice(old);
                }
            }
            Row::StalePage => {
                page_mut(bytes, block as u32).copy_from_slice(page(&self.before, block as u32));
            }
            Row::StaleFile => bytes.clone_from(&self.before),
        }
        Some(block as u64)
    }

    /// True if the program finds damage in the table, at this block.
    fn found(&self, block: Option<u64>, arguments: &[&Path]) -> bool {
        let mut all: Vec<_> = arguments.iter().map(|argument| argument.as_os_str()).collect();
        all.push(self.cluster.data_dir().as_os_str());
        let outcome = check(all);
        let report = outcome.report();
        let file = self.file.to_str().unwrap();
        let in_table: Vec<_> = report
            .findings()
            .into_iter()
            .filter(|finding| finding.severity == "damage")
            .inspect(|finding| assert_eq!(finding.file, file, "nothing else is damaged"))
            .collect();
        assert_eq!(outcome.status == Some(1), !in_table.is_empty());
        match block {
            None => in_table.iter().any(|finding| finding.page.is_none()),
            Some(_) => in_table.iter().any(|finding| finding.page == block),
        }
    }

    /// What the server's own tools say: true if they end with an error.
    fn peers(&mut self) -> BTreeMap<&'static str, bool> {
        let mut said = BTreeMap::new();
        let data_dir = self.cluster.data_dir().to_owned();
        let installation = self.cluster.installation().clone();
        if installation.has("pg_checksums") {
            let output = self.cluster.pg_checksums(&["--check", "-D", data_dir.to_str().unwrap()]);
            said.insert("pg_checksums", !output.unwrap().success());
        }
        if installation.has("pg_basebackup") {
            self.cluster.start().unwrap();
            let backup = self.cluster.home().join("backup");
            let mut command = self.cluster.client("pg_basebackup").unwrap();
            command.args(["-c", "fast", "-X", "none", "-D"]).arg(&backup);
            said.insert("pg_basebackup", !command.output().unwrap().status.success());
            if installation.has("pg_verifybackup") && backup.join("backup_manifest").exists() {
                let mut command = self.cluster.client("pg_verifybackup").unwrap();
                command.args(["-n"]).arg(&backup);
                said.insert("pg_verifybackup", !command.output().unwrap().status.success());
            }
            let _ = fs::remove_dir_all(&backup);
            if installation.has("pg_amcheck") && installation.has_extension("amcheck") {
                self.cluster.psql("CREATE EXTENSION IF NOT EXISTS amcheck").unwrap();
                let mut command = self.cluster.client("pg_amcheck").unwrap();
                command.args(["--parent-check", "--heapallindexed", "-t", "precious", "postgres"]);
                said.insert("pg_amcheck", !command.output().unwrap().status.success());
            }
            self.cluster.stop(StopMode::Immediate).unwrap();
        }
        said
    }
}

#[test]
fn matrix_of_fifteen_kinds_of_damage() {
    let seeds: u32 = std::env::var("PAGEWARDEN_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let mut dice = Dice::seeded();
    for installation in installations() {
        for (has_index, is_vacuumed) in [(true, true), (true, false), (false, true), (false, false)]
        {
            let subject = Subject::new(&installation, has_index, is_vacuumed);
            let version = &installation.version;
            let setting = format!(
                "PostgreSQL {version}, {} index, {} VACUUM",
                if has_index { "with" } else { "without" },
                if is_vacuumed { "after" } else { "without" }
            );
            let sound = fs::read(subject.path()).unwrap();
            for row in ROWS {
                for _ in 0..seeds {
                    let mut bytes = sound.clone();
                    let block = subject.inflict(row, &mut dice, &mut bytes);
                    if row == Row::MissingFile {
                        fs::remove_file(subject.path()).unwrap();
                    } else {
                        write_in_place(&subject.path(), &bytes);
                    }
                    let alone = subject.found(block, &[]);
                    let sealed = subject.found(block, &[Path::new("--against"), &subject.seal]);
                    let expected =
                        !row.needs_a_seal() && (subject.can_witness() || !row.needs_a_witness());
                    let what = format!("{setting}: {}, block {block:?}", row.name());
                    assert!(alone || !expected, "{what}: not found");
                    assert!(!alone || expected || row.needs_a_seal(), "{what}: found by what?");
                    assert!(sealed, "{what}: not found with a seal");
                    if row == Row::MissingFile {
                        fs::write(subject.path(), &sound).unwrap();
                        crate::clusters::give_to_owner_of_folder(&subject.path());
                    } else {
                        write_in_place(&subject.path(), &sound);
                    }
                }
            }
            let report = check([
                "--against".as_ref(),
                subject.seal.as_os_str(),
                subject.cluster.data_dir().as_os_str(),
            ])
            .report();
            assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{setting}");
        }
    }
}

/// The table for people: run with `--ignored --nocapture`.
#[test]
#[ignore = "slow: runs the server's own tools on every row"]
fn slow_matrix_beside_the_servers_own_tools() {
    let mut dice = Dice::seeded();
    for installation in installations() {
        let subject = Subject::new(&installation, true, true);
        println!("\nPostgreSQL {}, with index, after VACUUM", installation.version);
        println!(
            "{:<26} {:>12} {:>13} {:>15} {:>10} {:>10} {:>10}",
            "damage",
            "pg_checksums",
            "pg_basebackup",
            "pg_verifybackup",
            "pg_amcheck",
            "check",
            "sealed"
        );
        for row in ROWS {
            let mut copy = Subject {
                cluster: subject.cluster.duplicate().unwrap(),
                file: subject.file.clone(),
                before: subject.before.clone(),
                seal: subject.seal.clone(),
                ..subject
            };
            let mut bytes = fs::read(copy.path()).unwrap();
            let block = copy.inflict(row, &mut dice, &mut bytes);
            if row == Row::MissingFile {
                fs::remove_file(copy.path()).unwrap();
            } else {
                write_in_place(&copy.path(), &bytes);
            }
            let ours = copy.found(block, &[]);
            let sealed = copy.found(block, &[Path::new("--against"), &copy.seal]);
            let peers = copy.peers();
            let word = |found: Option<&bool>| match found {
                Some(true) => "found",
                Some(false) => "miss",
                None => "-",
            };
            println!(
                "{:<26} {:>12} {:>13} {:>15} {:>10} {:>10} {:>10}",
                row.name(),
                word(peers.get("pg_checksums")),
                word(peers.get("pg_basebackup")),
                word(peers.get("pg_verifybackup")),
                word(peers.get("pg_amcheck")),
                word(Some(&ours)),
                word(Some(&sealed)),
            );
            assert!(sealed, "{}", row.name());
        }
    }
}

/// Owner and mode stay.
fn write_in_place(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}
