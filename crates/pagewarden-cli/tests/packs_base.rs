//! `pack --base`: deltas, what they are read by, and what they are refused by.

use std::fs;
use std::path::Path;

use pagewarden_scratch::postgres::StopMode;
use serde_json::Value;

use crate::clusters::{any_installation, contents, forget_accesses, metadata, sample};
use crate::packs::{below, database, json, refused};
use crate::runner::{pagewarden, run};
use crate::sqlite;

fn root(made: &Value) -> String {
    made["packed"]["root"].as_str().unwrap().to_owned()
}

/// `pack SOURCE -o PACK --base BASE --json`, to its end.
fn delta(source: &Path, pack: &Path, base: &Path) -> Value {
    let paths = [source, Path::new("-o"), pack, Path::new("--base"), base];
    json("pack", &paths, 0)
}

#[test]
fn a_cluster_that_went_on_comes_back_from_a_chain_and_starts() {
    let Some(installation) = any_installation() else { return };
    let mut source = sample(&installation, true).copy();
    source.execute("postgres", &["DROP TABLE elsewhere"]).unwrap();
    source.execute("postgres", &["DROP TABLESPACE sample_space"]).unwrap();
    let mut target = source.duplicate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let from = source.data_dir().to_owned();
    let whole = json("pack", &[&from, Path::new("-o"), &at("a.pwk")], 0);
    source.execute("postgres", &["UPDATE item SET word = 'newer' WHERE id < 50"]).unwrap();
    let first = delta(&from, &at("b.pwk"), &at("a.pwk"));
    assert_eq!(first["packed"]["base"], whole["packed"]["root"]);
    source.execute("postgres", &["CREATE TABLE late AS SELECT 7 AS seven"]).unwrap();
    let second = delta(&from, &at("c.pwk"), &at("b.pwk"));
    assert_eq!(second["packed"]["base"], first["packed"]["root"]);
    let bytes = |made: &Value| made["packed"]["stored_bytes"].as_u64().unwrap();
    // New segments of the log weigh more than the pages.
    assert!(bytes(&second) < bytes(&whole), "{second}");
    assert!(second["packed"]["blocks"]["base"].as_u64().unwrap() > 50, "{second}");

    let checked = json("check", &[&at("c.pwk")], 0);
    assert!(checked.to_string().contains(&root(&first)), "{checked}");
    let bases = [&at("b.pwk"), &at("a.pwk")];
    let chain = [at("c.pwk"), "--base".into(), bases[0].clone(), "--base".into(), bases[1].clone()];
    let chain: Vec<&Path> = chain.iter().map(AsRef::as_ref).collect();
    let checked = json("check", &chain, 0);
    let pages = |checked: &Value| checked["targets"][0]["pages"]["total"].as_u64().unwrap();
    assert!(pages(&checked) > pages(&json("check", &[&at("c.pwk")], 0)));

    let to = target.data_dir().to_owned();
    fs::remove_dir_all(&to).unwrap();
    json("unpack", &[&at("c.pwk"), &to], 0);
    assert_eq!(below(&to), below(&from));
    let answer = target.execute("postgres", &["SELECT seven FROM late"]).unwrap();
    assert_eq!(answer.trim(), "7");
    target.stop(StopMode::Fast).unwrap();
}

/// Packs deltas of a source before and after a run to nowhere.
fn nowhere_between_deltas(folder: &Path, source: &Path) {
    let at = |name: &str| folder.join(name);
    let before = delta(source, &at("b.pwk"), &at("a.pwk"));
    let root_of_files = if source.is_dir() { source } else { source.parent().unwrap() };
    let sums = contents(root_of_files);
    // Only then: to sum up is to read.
    forget_accesses(root_of_files);
    let times = metadata(root_of_files);
    let read = run(pagewarden().args(["pack", "--to", "null:"]).arg(source));
    assert_eq!(read.status, Some(0), "{read:?}");
    assert!(metadata(root_of_files) == times, "a time, an owner or a length has changed");
    assert!(contents(root_of_files) == sums, "a byte has changed");
    let after = delta(source, &at("c.pwk"), &at("a.pwk"));
    assert_eq!(root(&before), root(&after));
    // The reports inside differ by the time that they took.
    assert_eq!(before["packed"]["blocks"], after["packed"]["blocks"]);
    assert!(after["packed"]["blocks"]["base"].as_u64().unwrap() > 10, "{after}");
    let back = |name: &str| {
        json("unpack", &[&at(name), &at("back")], 0);
        let files = below(&at("back"));
        fs::remove_dir_all(at("back")).unwrap();
        files
    };
    assert!(back("b.pwk") == back("c.pwk"));
}

#[test]
fn a_run_to_nowhere_changes_nothing_of_a_later_delta() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::rename(&database, source.join("shop.db")).unwrap();
    let database = source.join("shop.db");
    json("pack", &[&database, Path::new("-o"), &folder.path().join("a.pwk")], 0);
    sqlite::shell(&source, ".open shop.db\nUPDATE stock SET data = 'x' WHERE id % 5000 = 0;");
    nowhere_between_deltas(folder.path(), &database);
}

#[test]
fn nor_of_a_cluster_that_went_on() {
    let Some(installation) = any_installation() else { return };
    let mut source = sample(&installation, true).copy();
    source.execute("postgres", &["DROP TABLE elsewhere"]).unwrap();
    source.execute("postgres", &["DROP TABLESPACE sample_space"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let from = source.data_dir().to_owned();
    json("pack", &[&from, Path::new("-o"), &folder.path().join("a.pwk")], 0);
    source.execute("postgres", &["UPDATE item SET word = 'newer' WHERE id < 50"]).unwrap();
    nowhere_between_deltas(folder.path(), &from);
}

#[test]
fn a_base_that_is_another_or_missing_or_damaged_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let at = |name: &str| folder.path().join(name);
    let whole = json("pack", &[&database, Path::new("-o"), &at("a.pwk")], 0);
    sqlite::shell(folder.path(), ".open shop.db\nUPDATE stock SET data = 'x' WHERE id = 7;");
    let other = json("pack", &[&database, Path::new("-o"), &at("other.pwk")], 0);
    fs::create_dir(at("alone")).unwrap();
    let lone = at("alone").join("b.pwk");
    let made = delta(&database, &lone, &at("a.pwk"));
    assert!(made["packed"]["stored_bytes"].as_u64() < whole["packed"]["stored_bytes"].as_u64());
    let unpack = |base: Option<&Path>| {
        let mut command = pagewarden();
        command.arg("unpack").arg(&lone).arg(at("back"));
        let outcome =
            run(command.args(base.into_iter().flat_map(|base| [Path::new("--base"), base])));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(!at("back").exists());
        outcome.stderr
    };
    let message = unpack(None);
    assert!(message.contains(&root(&whole)) && message.contains("--base"), "{message}");
    let message = unpack(Some(&at("other.pwk")));
    assert!(message.contains(&root(&whole)) && message.contains(&root(&other)), "{message}");
    let mut bytes = fs::read(at("a.pwk")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(at("a.pwk"), &bytes).unwrap();
    let message = unpack(Some(&at("a.pwk")));
    assert!(message.contains("in its base") && message.contains(&root(&whole)), "{message}");
    let paths = [&database, Path::new("-o"), &at("new.pwk"), Path::new("--base"), &at("a.pwk")];
    let message = refused(&paths);
    assert!(message.contains("in its base"), "{message}");
    let paths = [&database, Path::new("-o"), &at("new.pwk"), Path::new("--base"), &at("no.pwk")];
    assert!(refused(&paths).contains("no.pwk"));
    assert!(!at("new.pwk").exists());
}
