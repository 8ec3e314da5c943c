//! Files that are missing, cut between two pages or inside one, on real clusters: brought back whole, or left
//! as they are; and what was dropped or cut off by the server never comes back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use pagewarden::repair::{Outcome, Page, Proof, Request, Verdict};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use super::history::{History, base_backup};
use super::{contents_of, is_same_version, run};
use crate::clusters::installations_for_campaigns;
use crate::damage::{Dice, PAGE};

/// Files of one round.
const AT_ONCE: usize = 24;

/// What became of files: exact, left as they were, and not seen by the check.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) exact: usize,
    pages: usize,
    left: usize,
    unseen: usize,
}

/// Main forks with pages.
fn places(sound: &BTreeMap<String, Vec<u8>>) -> Vec<&String> {
    let is_main = |name: &str| name.rsplit('/').next().is_some_and(|name| !name.contains('_'));
    sound
        .iter()
        .filter(|(name, bytes)| is_main(name) && !bytes.is_empty())
        .map(|one| one.0)
        .collect()
}

/// Removes files, or cuts them, as the dice say.
fn cut(root: &Path, sound: &BTreeMap<String, Vec<u8>>, dice: &mut Dice) -> Vec<String> {
    let mut places = places(sound);
    let mut names = Vec::new();
    for _ in 0..AT_ONCE.min(places.len()) {
        let name = places.swap_remove(dice.within(0..places.len()));
        let bytes = &sound[name];
        let kept = match dice.within(0..3) {
            0 => None,
            1 => Some(dice.within(0..bytes.len() / PAGE) * PAGE),
            _ => Some(dice.within(0..bytes.len())),
        };
        match kept {
            None => fs::remove_file(root.join(name)).unwrap(),
            Some(kept) => fs::write(root.join(name), &bytes[..kept]).unwrap(),
        }
        names.push(name.clone());
    }
    names
}

/// A file as it was, for the same owner and with the same mode.
fn put_back(root: &Path, name: &str, bytes: &[u8]) {
    let owner = fs::metadata(root.join("PG_VERSION")).unwrap();
    fs::write(root.join(name), bytes).unwrap();
    fs::set_permissions(root.join(name), owner.permissions()).unwrap();
    chown(root.join(name), Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// True if a file is what it was, hints aside, and but for pages at its end that were never used.
fn is_back(before: &[u8], now: &[u8]) -> bool {
    let (same, rest) = before.split_at(now.len().min(before.len()));
    now.len() <= before.len()
        && rest.iter().all(|byte| *byte == 0)
        && same.chunks(PAGE).zip(now.chunks(PAGE)).all(|(one, other)| {
            one == other || one.iter().any(|byte| *byte != 0) && is_same_version(one, other)
        })
}

fn judge(
    root: &Path,
    outcome: &Outcome,
    names: &[String],
    [sound, wounded, repaired]: [&BTreeMap<String, Vec<u8>>; 3],
) -> Tally {
    let mut tally = Tally::default();
    for name in names {
        let pages: Vec<_> = outcome.pages.iter().filter(|page| page.file == *name).collect();
        if pages.is_empty() {
            tally.unseen += 1;
        }
        if repaired.get(name) == wounded.get(name) {
            tally.left += usize::from(!pages.is_empty());
            continue;
        }
        let mut written = pages.iter().filter(|page| page.written);
        let is_exact = written.all(|page| page.proof == Some(Proof::Exact));
        assert!(is_exact, "{name} was written: {pages:?}");
        assert!(is_back(&sound[name], &repaired[name]), "{name} is called exact: {pages:?}");
        let [file, like] = [name, "PG_VERSION"].map(|name| fs::metadata(root.join(name)).unwrap());
        assert_eq!((file.uid(), file.mode()), (like.uid(), like.mode()), "{name}");
        tally.exact += 1;
        tally.pages += pages.len();
    }
    // No other file has come or changed, but for one that two findings name by another segment.
    for (name, bytes) in repaired {
        assert!(names.contains(name) || sound.get(name) == Some(bytes), "{name}");
    }
    tally
}

/// A round: files are cut, planned, repaired, judged and undone, and then as they were.
pub(super) fn attack(request: &Request, dice: &mut Dice) -> Tally {
    let root = request.path.as_path();
    let sound = contents_of(root);
    let names = cut(root, &sound, dice);
    let wounded = contents_of(root);
    let plan = run(request);
    assert!(contents_of(root) == wounded, "a plan wrote");
    let outcome = run(&Request { write: true, ..request.clone() });
    // What only contradicted pages that are back by now is no damage that is left.
    let is_left_out = |page: &&Page| {
        !outcome.pages.iter().any(|one| one.file == page.file && one.page == page.page)
    };
    let left_out: Vec<_> = plan.pages.iter().filter(is_left_out).collect();
    assert!(left_out.iter().all(|page| page.proof.is_none()), "{left_out:?}");
    assert_eq!(plan.pages.len(), outcome.pages.len() + left_out.len());
    let repaired = contents_of(root);
    if std::env::var_os("PAGEWARDEN_SHOW").is_some() {
        outcome.pages.iter().for_each(|page| println!("{page:?}"));
    }
    let tally = judge(root, &outcome, &names, [&sound, &wounded, &repaired]);
    if let Some(undo) = &outcome.undo_file {
        let undo = Some(undo.clone());
        let undone = run(&Request { undo, write: true, ..Request::new(root) });
        assert_eq!(undone.verdict, Verdict::Undone);
    }
    assert!(contents_of(root) == wounded, "not every byte is back");
    names.iter().for_each(|name| put_back(root, name, &sound[name]));
    tally
}

#[test]
fn missing_and_cut_files_are_brought_back_whole_or_left() {
    let mut dice = Dice::seeded();
    for installation in installations_for_campaigns() {
        let Some(history) = History::new(&installation) else { continue };
        let root = history.cluster.data_dir();
        let version = &installation.version;
        for (source, sources) in history.sources() {
            let request = Request { sources: super::places(&sources), ..Request::new(root) };
            let tally = attack(&request, &mut dice);
            println!("PostgreSQL {version}, {source}: {tally:?}");
            match source {
                "own log" => {}
                _ => assert!(tally.exact > 0, "{source}: {tally:?}"),
            }
        }
        history.check_server();
    }
}

const CHANGES: &[&str] = &[
    "DROP TABLE dropped",
    "VACUUM FULL rewritten",
    // All rows of some pages, and none of the others.
    "DELETE FROM shorter WHERE ctid >= '(9,0)'",
    "VACUUM shorter",
    "TRUNCATE emptied",
    "INSERT INTO grown SELECT i, md5(i::text) FROM generate_series(4001, 6000) i",
    "CHECKPOINT",
    // Whole pages are in the log after a checkpoint.
    "UPDATE grown SET word = 'last'",
    "VACUUM FREEZE grown",
];

/// The file of each table, before and after the changes.
const TABLES: [&str; 6] = ["dropped", "rewritten", "shorter", "emptied", "grown", "still"];

fn file_of(cluster: &Cluster, table: &str) -> String {
    cluster
        .psql(&format!("SELECT coalesce(pg_relation_filepath(to_regclass('{table}')), '')"))
        .unwrap()
}

#[test]
fn what_the_server_has_cut_dropped_or_rewritten_never_comes_back_and_the_server_starts() {
    for installation in installations_for_campaigns() {
        let options = Options { wal_segment_mib: Some(1), ..Options::default() }
            .with("autovacuum", "off")
            .with("wal_keep_size", "'256MB'");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        if !cluster.has_psql() || cluster.client("pg_basebackup").is_err() {
            continue;
        }
        for table in TABLES {
            let sql = format!(
                "CREATE TABLE {table} AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 4000) i; CREATE INDEX ON {table} (id)"
            );
            cluster.psql(&sql).unwrap();
        }
        cluster.psql("VACUUM FREEZE").unwrap();
        let before: BTreeMap<_, _> =
            TABLES.iter().map(|table| (*table, file_of(&cluster, table))).collect();
        let backup = base_backup(&cluster, "backup", &["-X", "none"]);
        cluster.execute("postgres", CHANGES).unwrap();
        let after: BTreeMap<_, _> =
            TABLES.iter().map(|table| (*table, file_of(&cluster, table))).collect();
        let counts = |cluster: &Cluster| {
            cluster.psql("SELECT (SELECT count(word) FROM shorter), (SELECT count(word) FROM grown), (SELECT count(word) FROM still), (SELECT count(word) FROM rewritten), (SELECT count(*) FROM emptied)").unwrap()
        };
        let counted = counts(&cluster);
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir().to_owned();
        let sound = contents_of(&root);
        let lost: Vec<_> = after.values().filter(|file| !file.is_empty()).cloned().collect();
        lost.iter().for_each(|file| fs::remove_file(root.join(file)).unwrap());
        let wounded = contents_of(&root);
        let request =
            Request { sources: vec![backup.as_path().into()], write: true, ..Request::new(&root) };
        let outcome = run(&request);
        let repaired = contents_of(&root);
        let tally = judge(&root, &outcome, &lost, [&sound, &wounded, &repaired]);
        println!("PostgreSQL {}: {tally:?}", installation.version);
        let is_repaired = |table: &str| repaired.contains_key(&after[table]);
        assert!(is_repaired("still") && is_repaired("shorter"), "{:?}", outcome.pages);
        assert!(
            repaired[&after["shorter"]].len()
                < fs::metadata(request.sources[0].join(&before["shorter"]).path()).unwrap().len()
                    as usize
        );
        // Also where older versions are accepted, nothing comes back that is gone.
        let outcome = run(&Request { accept_older: true, ..request.clone() });
        let accepted = contents_of(&root);
        for table in ["dropped", "rewritten", "emptied"] {
            let file = &before[table];
            assert!(accepted.get(file).is_none_or(Vec::is_empty), "{table}: {:?}", outcome.pages);
        }
        // What could not be proved is put back, so that the server can say what the rest is worth.
        for file in lost.iter().filter(|file| !repaired.contains_key(*file)) {
            put_back(&root, file, &sound[file]);
        }
        cluster.start().unwrap();
        assert_eq!(counts(&cluster), counted);
        cluster
            .psql("SET enable_seqscan = off; SELECT count(*) FROM still WHERE id > 0; VACUUM")
            .unwrap();
        cluster.stop(StopMode::Fast).unwrap();
    }
}
