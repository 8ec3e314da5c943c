//! `pagewarden pack`, `unpack` and `check` of packs, on real clusters and SQLite
//! databases.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use pagewarden_scratch::postgres::StopMode;
use serde_json::Value;

use crate::clusters::{any_installation, contents, metadata, sample};
use crate::damage::Dice;
use crate::runner::{Outcome, pagewarden, run};
use crate::sqlite;

/// Runs `pagewarden COMMAND --json ARGUMENTS` to its end.
pub fn json(command: &str, arguments: &[&Path], status: i32) -> Value {
    let outcome = run(pagewarden().args([command, "--json"]).args(arguments));
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// A sum over each file below a folder.
pub fn below(root: &Path) -> BTreeMap<PathBuf, u32> {
    let relative = |path: PathBuf| path.strip_prefix(root).unwrap().to_owned();
    contents(root).into_iter().map(|(path, sum)| (relative(path), sum)).collect()
}

pub fn refused(arguments: &[&Path]) -> String {
    let outcome: Outcome = run(pagewarden().arg("pack").args(arguments));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    outcome.stderr
}

/// How often each is killed that must leave nothing half done: `PAGEWARDEN_PACK_KILLS`,
/// or as often as is usual.
pub fn kills(usually: u32) -> u32 {
    std::env::var("PAGEWARDEN_PACK_KILLS").map_or(usually, |kills| kills.parse().unwrap())
}

/// A database of some hundred pages, if there is a shell to make it.
pub fn database(folder: &Path) -> Option<PathBuf> {
    if !sqlite::has_shell() {
        return None;
    }
    sqlite::shell(
        folder,
        ".open shop.db\n\
         CREATE TABLE stock(id INTEGER PRIMARY KEY, quantity INT, data TEXT);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)\n\
         INSERT INTO stock SELECT i, i % 100, hex(randomblob(30)) FROM n;",
    );
    Some(folder.join("shop.db"))
}

/// The same with some seconds' worth of rows at the lowest rate that may be asked for.
pub fn large_database(folder: &Path) -> Option<PathBuf> {
    let database = database(folder)?;
    sqlite::shell(
        folder,
        ".open shop.db\n\
         WITH RECURSIVE n(i) AS (SELECT 20001 UNION ALL SELECT i + 1 FROM n WHERE i < 26000)\n\
         INSERT INTO stock SELECT i, i % 100, hex(randomblob(500)) FROM n;",
    );
    Some(database)
}

#[test]
fn a_cluster_comes_back_as_it_was_and_its_server_starts() {
    let Some(installation) = any_installation() else { return };
    let mut source = sample(&installation, true).copy();
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("x.pwk");
    let output = Path::new("--output");
    source.execute("postgres", &["DROP TABLE elsewhere"]).unwrap();
    source.execute("postgres", &["DROP TABLESPACE sample_space"]).unwrap();
    let mut target = source.duplicate().unwrap();
    let from = source.data_dir().to_owned();
    let before = (contents(&from), metadata(&from));
    let made = json("pack", &[&from, output, &pack], 0);
    assert_eq!((&made["verdict"], &made["check"]["verdict"]), (&"intact".into(), &"intact".into()));
    assert_eq!((contents(&from), metadata(&from)), before, "nothing is changed");

    let checked = json("check", &[&pack], 0);
    assert_eq!(checked["targets"][0]["format"], "pack");
    assert_eq!(checked["verdict"], "intact");
    assert_eq!(checked["bytes"], made["packed"]["bytes"], "a last block is not a whole one");

    let to = target.data_dir().to_owned();
    fs::remove_dir_all(&to).unwrap();
    let unpacked = json("unpack", &[&pack, &to], 0);
    assert_eq!(unpacked["root"], made["packed"]["root"]);
    assert_eq!(below(&to), below(&from));
    for name in ["", "base", "global/pg_control", "PG_VERSION"] {
        let attributes = |root: &Path| {
            let data = fs::metadata(root.join(name)).unwrap();
            (data.mode(), data.uid(), data.gid(), data.mtime(), data.mtime_nsec())
        };
        assert_eq!(attributes(&to), attributes(&from), "{name}");
    }
    target.start().unwrap();
    assert!(target.is_running());
    target.stop(StopMode::Fast).unwrap();

    // A part of it.
    let part = folder.path().join("part");
    json("unpack", &[&pack, &part, Path::new("--only"), Path::new("global")], 0);
    assert!(part.join("global/pg_control").exists() && !part.join("base").exists());
}

#[test]
fn damage_ends_it_or_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    // Its header knows how long it was.
    let bytes = fs::metadata(&database).unwrap().len();
    fs::OpenOptions::new().write(true).open(&database).unwrap().set_len(bytes - 8192).unwrap();
    let pack = folder.path().join("x.pwk");
    let refused = json("pack", &[&database, Path::new("-o"), &pack], 1);
    assert_eq!((&refused["verdict"], &refused["packed"]), (&"damaged".into(), &Value::Null));
    assert!(!pack.exists());
    let kept = json("pack", &[&database, Path::new("-o"), &pack, Path::new("--keep-damaged")], 1);
    assert_eq!(kept["check"]["targets"][0]["findings"][0]["kind"], "truncated");
    let checked = json("check", &[&pack], 0);
    assert!(checked.to_string().contains("said: damaged"), "{checked}");
    let back = folder.path().join("back");
    json("unpack", &[&pack, &back], 0);
    assert_eq!(fs::read(back.join("shop.db")).unwrap(), fs::read(&database).unwrap());
}

#[test]
fn what_cannot_be_packed_soundly_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let output = Path::new("-o");
    let pack = folder.path().join("x.pwk");
    fs::write(&pack, "precious").unwrap();
    assert!(refused(&[&database, output, &pack]).contains("it exists"));
    assert_eq!(fs::read(&pack).unwrap(), b"precious");
    assert!(refused(&[folder.path(), output, &folder.path().join("y.pwk")]).contains("inside"));
    // No user can make a file there. The error has the name that was given.
    let message = refused(&[&database, output, Path::new("/proc/y.pwk")]);
    assert!(message.contains("cannot write /proc/y.pwk"), "{message}");
    assert!(!message.contains(".pagewarden-"), "{message}");
    fs::write(folder.path().join("shop.db-wal"), "not empty").unwrap();
    let other = tempfile::tempdir().unwrap();
    let message = refused(&[&database, output, &other.path().join("y.pwk")]);
    assert!(message.contains("-wal is part of it"), "{message}");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0, "nothing is left");
    // No pack, and a folder that is in use.
    symlink(&database, folder.path().join("link")).unwrap();
    json("unpack", &[&pack, &folder.path().join("new")], 2);
}

/// What is wrong at its begin is nothing that anybody recognises.
#[test]
fn what_is_not_recognised_can_be_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let mut bytes = fs::read(&database).unwrap();
    bytes[..16].fill(b'?');
    // By the name that it had, its other pages would be looked at.
    let database = database.with_file_name("shop.data");
    fs::write(&database, &bytes).unwrap();
    let pack = folder.path().join("x.pwk");
    let message = refused(&[&database, Path::new("-o"), &pack]);
    assert!(message.contains("say so with --format"), "{message}");
    let named = ["--format", "sqlite", "--keep-damaged"].map(Path::new);
    let made = json("pack", &[&[&database, Path::new("-o"), &pack], &named[..]].concat(), 1);
    assert_eq!(made["check"]["targets"][0]["format"], "sqlite", "{made}");
    let back = folder.path().join("back");
    json("unpack", &[&pack, &back], 0);
    assert!(fs::read(back.join("shop.data")).unwrap() == bytes);
}

/// A database, its pack, and what is in the pack.
fn packed(folder: &Path) -> Option<(PathBuf, PathBuf, Vec<u8>)> {
    let database = database(folder)?;
    let pack = folder.join("x.pwk");
    json("pack", &[&database, Path::new("-o"), &pack], 0);
    let whole = fs::read(&pack).unwrap();
    Some((database, pack, whole))
}

/// That what is in the pack is still what was packed: a flipped bit that no decoder
/// looks at, as there are a few in a compressed block, changes nothing that is read.
#[track_caller]
fn expands_to(pack: &Path, database: &Path, byte: usize) {
    let back = pack.with_file_name("back");
    json("unpack", &[pack, &back], 0);
    assert!(fs::read(back.join("shop.db")).unwrap() == fs::read(database).unwrap(), "byte {byte}");
    fs::remove_dir_all(&back).unwrap();
}

#[test]
fn a_flipped_byte_of_a_pack_is_found_and_never_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let Some((database, pack, whole)) = packed(folder.path()) else { return };
    let mut dice = Dice::seeded();
    for _ in 0..20 {
        let at = dice.within(0..whole.len());
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << dice.within(0..8);
        fs::write(&pack, &bytes).unwrap();
        let checked = run(pagewarden().args(["check", "--json"]).arg(&pack));
        assert!(matches!(checked.status, Some(0..=2)), "byte {at}: {checked:?}");
        let back = folder.path().join("back");
        let unpacked = run(pagewarden().arg("unpack").arg(&pack).arg(&back));
        if checked.status == Some(0) || unpacked.status == Some(0) {
            // What is there twice may be wrong once.
            let _ = fs::remove_dir_all(&back);
            expands_to(&pack, &database, at);
        }
        assert!(!back.exists(), "byte {at}");
    }
}

/// The index says where each block is, and is read as blocks are.
#[test]
fn a_flipped_byte_of_the_index_of_a_pack_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let Some((database, pack, whole)) = packed(folder.path()) else { return };
    let mut damaged = 0;
    // From the last block on.
    for at in (whole.len() - 2000..whole.len()).step_by(13) {
        let mut bytes = whole.clone();
        bytes[at] ^= 64;
        fs::write(&pack, &bytes).unwrap();
        let outcome = run(pagewarden().args(["check", "--json"]).arg(&pack));
        assert!(!outcome.stderr.contains("panicked"), "byte {at}: {}", outcome.stderr);
        match outcome.status {
            Some(0) => expands_to(&pack, &database, at),
            Some(1) => damaged += 1,
            Some(2) => {}
            other => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(damaged > 100, "{damaged}");
}

#[test]
fn reading_to_nowhere_counts_every_page_and_changes_nothing() {
    let Some(installation) = any_installation() else { return };
    let source = sample(&installation, true).copy();
    let root = source.data_dir().to_owned();
    let before = (contents(&root), metadata(&root));
    let read = run(pagewarden().args(["pack", "--to", "null:", "--stats", "50"]).arg(&root));
    assert_eq!(read.status, Some(0), "{read:?}");
    assert_eq!((contents(&root), metadata(&root)), before);
    let checked = json("check", &[&root], 0);
    let counted = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix("Processed ")?;
        rest.split(' ').next()?.replace(',', "").parse().ok()
    };
    let lines = || read.stdout.lines().filter(|line| line.starts_with("Processed "));
    let by_file = lines().filter(|line| line.contains(" for database ")).filter_map(counted);
    let total = lines().filter(|line| line.contains(" seconds (")).filter_map(counted).next_back();
    assert_eq!(total, checked["targets"][0]["pages"]["total"].as_u64());
    assert_eq!(by_file.sum::<u64>(), total.unwrap());
    assert!(read.stdout.contains("50 percent processed."), "{}", read.stdout);
    let last = lines().next_back().unwrap();
    assert_eq!(read.stdout.lines().next_back(), Some(last));
    let (_, rate) = last.split_once(" seconds (").unwrap();
    let tenth = rate.strip_suffix(" MiB/s).").unwrap().split_once('.').unwrap().1;
    assert_eq!(tenth.len(), 1, "{last}");
}

/// A person types options where they come to mind.
#[test]
fn options_of_unpack_stand_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    json("pack", &[&database, Path::new("-o"), Path::new(&at("x.pwk"))], 0);
    let (pack, name) = (at("x.pwk"), "shop.db");
    let delta = at("y.pwk");
    json("pack", &[&database, "--base".as_ref(), pack.as_ref(), "-o".as_ref(), delta.as_ref()], 0);
    for (place, words) in [
        ["--only", name, &pack, &at("a")],
        [&pack, "--only", name, &at("b")],
        [&pack, &at("c"), "--only", name],
        [&delta, "--quiet", "--base", &pack],
    ]
    .iter()
    .enumerate()
    {
        let mut words = words.to_vec();
        let last = at("d");
        if place == 3 {
            words.push(&last);
        }
        let outcome = run(pagewarden().arg("unpack").args(&words));
        assert_eq!(outcome.status, Some(0), "{words:?}: {outcome:?}");
        let back = Path::new(&at(["a", "b", "c", "d"][place])).join(name);
        assert!(fs::read(back).unwrap() == fs::read(&database).unwrap(), "{words:?}");
    }
    for words in [&["unpack", &pack][..], &["unpack", &pack, "--only", name]] {
        let outcome = run(pagewarden().args(words));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("hint: pagewarden unpack FILE DIR"), "{outcome:?}");
    }
}
