//! How the command behaves: what it refuses, prints and leaves, and how it ends.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pagewarden_scratch::postgres::StopMode;
use serde_json::Value;

use crate::clusters::{any_installation, contents, installations, sample};
use crate::damage::PAGE;
use crate::runner::{Outcome, check, pagewarden, run};

fn repair(path: &Path, arguments: &[&str]) -> Outcome {
    run(pagewarden().args(["repair", "--json"]).arg(path).args(arguments))
}

fn result(outcome: &Outcome, status: i32, verdict: &str) -> Value {
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(json["pagewarden"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&json["command"], &json["verdict"]), (&"repair".into(), &verdict.into()), "{json}");
    assert!(json["seconds"].is_number(), "{json}");
    for page in json["pages"].as_array().unwrap_or(&Vec::new()) {
        for field in ["file", "page", "kind", "source", "proof", "reason", "written"] {
            assert!(page.as_object().unwrap().contains_key(field), "{field}: {page}");
        }
    }
    json
}

fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(super) fn ruin(root: &Path, file: &str, block: usize) {
    let path = root.join(file);
    let mut bytes = fs::read(&path).unwrap();
    bytes[block * PAGE + 5000..block * PAGE + 6000].iter_mut().for_each(|byte| *byte ^= 0x3C);
    fs::write(path, bytes).unwrap();
}

fn attributes(root: &Path) -> BTreeMap<PathBuf, (u32, u32, u32)> {
    let files = contents(root).into_keys();
    let of = |path: PathBuf| {
        let data = fs::metadata(&path).unwrap();
        (path, (data.mode(), data.uid(), data.gid()))
    };
    files.map(of).collect()
}

#[test]
fn one_page_is_planned_repaired_checked_and_undone() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let mut cluster = sample.copy();
        let root = cluster.data_dir().to_owned();
        let source = text_of(sample.cluster.data_dir()).to_owned();
        let item = sample.file("item");
        assert_eq!(
            result(&repair(&root, &["--from", &source, "--yes"]), 0, "nothing to repair")["pages"],
            Value::Array(Vec::new())
        );
        let sound = contents(&root);
        ruin(&root, item, 7);
        let before = (contents(&root), attributes(&root));

        // Nothing but itself: what there is in the log, or nothing.
        let alone = repair(&root, &[]);
        assert!([Some(0), Some(1)].contains(&alone.status), "{alone:?}");
        let plan = result(&repair(&root, &["--from", &source]), 0, "planned");
        let page = &plan["pages"][0];
        assert_eq!(plan["pages"].as_array().unwrap().len(), 1, "{plan}");
        assert_eq!((&page["file"], &page["page"]), (&item.into(), &7.into()));
        assert_eq!((&page["proof"], &page["written"]), (&"exact".into(), &false.into()), "{page}");
        assert!(page["source"].as_str().unwrap().starts_with(&source), "{page}");
        assert_eq!((contents(&root), attributes(&root)), before, "a plan wrote");

        let done = result(&repair(&root, &["--from", &source, "--yes"]), 0, "repaired");
        assert_eq!(done["pages"][0]["written"], true, "{done}");
        let undo = PathBuf::from(done["undo_file"].as_str().unwrap());
        assert_eq!(undo, root.join("pagewarden-repair.undo"));
        assert_eq!(fs::metadata(&undo).unwrap().uid(), fs::metadata(&root).unwrap().uid());
        assert_eq!(check([&root]).report().verdict(), "intact");
        let mut after = contents(&root);
        after.remove(&undo);
        assert!(after == sound, "not what it was");
        let mut kept = attributes(&root);
        kept.remove(&undo);
        assert_eq!(kept, before.1);
        result(&repair(&root, &["--from", &source, "--yes"]), 0, "nothing to repair");

        let undo = text_of(&undo).to_owned();
        // The undo file knows the database.
        let undone =
            result(&run(pagewarden().args(["repair", "--json", "--undo", &undo])), 0, "undone");
        assert_eq!(undone["pages"].as_array().unwrap().len(), 1);
        assert_eq!(undone["path"], text_of(&root));
        assert_eq!((contents(&root), attributes(&root)), before, "undone");

        // In a copy, and the server reads it.
        result(&repair(&root, &["--from", &source, "--yes"]), 0, "repaired");
        cluster.start().unwrap();
        if cluster.has_psql() {
            cluster.psql("SELECT count(*), max(word) FROM item").unwrap();
        }
        cluster.stop(StopMode::Fast).unwrap();
    }
}

#[test]
fn older_pages_are_taken_only_where_that_is_accepted() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let source = sample.copy();
    let mut cluster = sample.copy();
    cluster.execute("postgres", &["UPDATE item SET word = 'newest ' || word"]).unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir();
    let (item, from) = (sample.file("item"), text_of(source.data_dir()));
    ruin(root, item, 3);
    let page = |json: &Value| json["pages"][0].clone();
    // Without the log of what came in between.
    for entry in fs::read_dir(source.data_dir().join("pg_wal")).unwrap().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    let outcome = repair(root, &["--from", from]);
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    if page(&json)["proof"] == "exact" {
        // The log holds the whole page, and nothing behind it.
        assert!(page(&json)["source"].as_str().unwrap().contains("pg_wal"), "{json}");
        return;
    }
    let json = result(&outcome, 1, "impossible");
    assert_eq!(page(&json)["proof"], "older", "{json}");
    assert!(page(&json)["hint"].as_str().unwrap().contains("--accept-older"), "{json}");
    let before = contents(root);
    result(&repair(root, &["--from", from, "--yes"]), 1, "impossible");
    assert!(contents(root) == before);
    let json = result(&repair(root, &["--from", from, "--accept-older", "--yes"]), 0, "repaired");
    assert_eq!((&page(&json)["proof"], &page(&json)["written"]), (&"older".into(), &true.into()));
    let bytes = |root: &Path| fs::read(root.join(item)).unwrap()[3 * PAGE..4 * PAGE].to_vec();
    assert!(bytes(root) == bytes(source.data_dir()));
}

#[test]
fn copy_is_repaired_and_the_database_left_alone() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let mut cluster =
        pagewarden_scratch::postgres::Cluster::init(&installation, &Default::default()).unwrap();
    cluster
        .execute("postgres", &["CREATE TABLE t AS SELECT generate_series(1, 3000) AS i"])
        .unwrap();
    let table = cluster.relation_path("postgres", "t").unwrap();
    let table = text_of(&table).to_owned();
    cluster.stop(StopMode::Fast).unwrap();
    let source = cluster.duplicate().unwrap();
    let root = cluster.data_dir();
    ruin(root, &table, 2);
    ruin(root, &table, 4);
    let before = contents(root);
    let target = cluster.home().join("new");
    let (from, to) = (text_of(source.data_dir()), text_of(&target));
    result(&repair(root, &["--from", from, "--copy-to", to]), 0, "planned");
    assert!(!target.exists());
    let many = result_of_refusal(&repair(root, &["--from", from, "--max-pages", "1"]));
    assert!(many.contains("--max-pages 1"), "{many}");
    let json = result(&repair(root, &["--from", from, "--copy-to", to, "--yes"]), 0, "repaired");
    assert_eq!(json["copy"], to);
    assert!(contents(root) == before, "the database was written to");
    assert!(
        fs::read(target.join(&table)).unwrap() == fs::read(source.data_dir().join(&table)).unwrap()
    );
    assert_eq!(check([&target]).report().verdict(), "intact");
    // The same command again, and a folder with something else in it.
    result(&repair(root, &["--from", from, "--copy-to", to, "--yes"]), 0, "nothing to repair");
    let other = text_of(sample.cluster.data_dir());
    let refused = repair(root, &["--from", from, "--copy-to", other, "--yes"]);
    assert!(result_of_refusal(&refused).contains("no copy of this one"), "{refused:?}");

    // A person reads why, and what to do.
    let outcome = run(pagewarden().arg("repair").arg(root).arg("--from").arg(from));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("exact") && outcome.stdout.contains("--yes"), "{outcome:?}");
    assert!(outcome.stdout.contains("2 of 2 pages would be repaired"), "{outcome:?}");
}

fn result_of_refusal(outcome: &Outcome) -> String {
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    json["error"].as_str().unwrap().to_owned()
}

#[test]
fn running_crashed_and_foreign_databases_are_refused() {
    let Some(installation) = any_installation() else { return };
    let mut cluster = sample(&installation, true).copy();
    let root = cluster.data_dir().to_owned();
    cluster.start().unwrap();
    let error = result_of_refusal(&repair(&root, &["--yes"]));
    assert!(error.contains("a server runs") && error.contains("hint: "), "{error}");
    cluster.crash().unwrap();
    let _ = fs::remove_file(root.join("postmaster.pid"));
    let error = result_of_refusal(&repair(&root, &["--yes"]));
    assert!(error.contains("not shut down cleanly"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = result_of_refusal(&repair(folder.path(), &[]));
    assert!(error.contains("no database whose pages can be repaired"), "{error}");
    let file = folder.path().join("undo");
    fs::write(&file, "pagewarden repair undo 3\n").unwrap();
    let sound = sample(&installation, true).copy();
    let error = result_of_refusal(&repair(sound.data_dir(), &["--undo", text_of(&file)]));
    assert!(error.contains("version 3"), "{error}");
}
