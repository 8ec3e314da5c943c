//! `checksum` from outside, with SQLite: lines, JSON, strategies, exit statuses.

use std::process::Command;

use tempfile::TempDir;

use crate::compares::{json, plain};
use crate::packs;
use crate::runner::run;
use crate::sqlite::has_shell;

fn database() -> Option<(TempDir, String)> {
    let folder = has_shell().then(|| tempfile::tempdir().unwrap())?;
    let path = folder.path().join("a b.db");
    let sql = "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT);
        INSERT INTO orders VALUES (1, 'one'), (2, NULL); CREATE TABLE empty (id INTEGER)";
    let output = Command::new("sqlite3").arg(&path).arg(sql).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let url = format!("sqlite:{}", path.display());
    Some((folder, url))
}

#[test]
fn every_table_and_strategy_has_a_line() {
    let Some((_folder, url)) = database() else { return };
    let words = ["checksum", &url, "--strategy", "count,accum,bitxor,multiset"];
    let outcome = run(plain().args(words));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 9, "{}", outcome.stdout);
    assert!(
        lines[0].starts_with("empty ") && lines[4].starts_with("orders  count "),
        "{}",
        outcome.stdout
    );
    assert!(lines[8].starts_with("Made 8 checksums in "));
    let report = json(&run(plain().args(words).arg("--json")));
    assert_eq!((&report["command"], &report["verdict"]), (&"checksum".into(), &"complete".into()));
    let tables = report["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 8);
    for table in tables {
        let rows = if table["table"] == "orders" { 2 } else { 0 };
        assert_eq!(table["rows"], rows, "{table}");
        assert!(table["seconds"].is_number() && table["error"].is_null());
        assert_eq!(table["checksum"].is_null(), table["strategy"] == "count", "{table}");
    }
    let parallel = json(&run(plain().args(words).args(["--json", "--jobs", "4"])));
    let sums = |report: &serde_json::Value| -> Vec<serde_json::Value> {
        report["tables"].as_array().unwrap().iter().map(|table| table["checksum"].clone()).collect()
    };
    assert_eq!(sums(&parallel), sums(&report), "the same, in the same order");
    assert_eq!(tables[7]["checksum"].as_str().unwrap().len(), 32);
}

#[test]
fn strategies_stand_beside_each_other() {
    let Some((_folder, url)) = database() else { return };
    let words = ["checksum", &url, "--side-by-side", "--strategy", "count,native,multiset"];
    let outcome = run(plain().args(words));
    assert_eq!(outcome.status, Some(2), "SQLite has no checksum of its own: {outcome:?}");
    let lines: Vec<Vec<&str>> =
        outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["table", "rows", "size", "count", "native", "multiset"]);
    assert_eq!(lines[1][..3], ["empty", "native", "failed:"]);
    for (line, begin) in [(&lines[2], ["empty", "0"]), (&lines[4], ["orders", "2"])] {
        assert_eq!(line[..2], begin);
        let [.., count, "s", "failed", multiset, "s"] = line[..] else { panic!("{line:?}") };
        assert!([count, multiset].iter().all(|seconds| seconds.parse::<f64>().is_ok()), "{line:?}");
    }
    assert!(outcome.stdout.lines().last().unwrap().starts_with("Made 4 checksums"));
    let outcome = run(plain().args(words).arg("--json"));
    assert_eq!(outcome.status, Some(2), "one or the other: {outcome:?}");
}

#[test]
fn crc32_joined_by_exclusive_or_is_warned_of() {
    let Some((_folder, url)) = database() else { return };
    let words = ["checksum", &url, "--strategy", "bitxor", "--function"];
    let outcome = run(plain().args(words).arg("crc32"));
    assert!(outcome.stderr.contains("blind"), "{outcome:?}");
    let outcome = run(plain().args(words).arg("md5"));
    assert_eq!(outcome.stderr, "");
}

#[test]
fn what_cannot_be_done_is_said() {
    let Some((_folder, url)) = database() else { return };
    for (words, said, verdict) in [
        (&["--strategy", "native"][..], "SQLite has no checksum", "incomplete"),
        (&["--table", "nothing"], "there is no table nothing", "incomplete"),
        (&["--strategy", "replicate"], "needs --yes", "incomplete"),
        (&["--strategy", "replicate", "--yes"], "no replicas", "incomplete"),
    ] {
        let outcome = run(plain().args(["checksum", &url]).args(words));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(format!("{}{}", outcome.stdout, outcome.stderr).contains(said), "{outcome:?}");
        let outcome = run(plain().args(["checksum", &url, "--json"]).args(words));
        assert_eq!((outcome.status, &json(&outcome)["verdict"]), (Some(2), &verdict.into()));
    }
    for url in ["sqlite:/nowhere/x.db", "x.db", "sqlite:/etc/passwd"] {
        let outcome = run(plain().args(["checksum", url, "--json"]));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(json(&outcome)["error"].is_string());
    }
}

#[test]
fn a_database_in_a_pack_is_summed_and_compared_as_the_plain_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = packs::database(folder.path()) else { return };
    let pack = folder.path().join("shop.pwk");
    packs::json("pack", &[&database, "-o".as_ref(), &pack], 0);
    let [plain_url, packed_url] =
        [&database, &pack].map(|path| format!("sqlite:{}", path.display()));
    let sums = |url: &str| {
        let report = json(&run(plain().args(["checksum", url, "--json"])));
        let table = &report["tables"][0];
        assert_eq!(
            (&table["table"], &table["rows"]),
            (&"stock".into(), &20_000.into()),
            "{report}"
        );
        table["checksum"].as_str().unwrap().to_owned()
    };
    assert_eq!(sums(&plain_url), sums(&packed_url));
    let compare = || run(plain().args(["compare", &plain_url, &packed_url, "--json"]));
    let equal = compare();
    assert_eq!((equal.status, &json(&equal)["verdict"]), (Some(0), &"equal".into()), "{equal:?}");
    // What cannot be read of a pack is neither equal nor different.
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    let broken = compare();
    assert_eq!(broken.status, Some(2), "{broken:?}");
    assert_eq!(json(&broken)["verdict"], "incomplete", "{broken:?}");
}
