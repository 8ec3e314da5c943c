//! `pagewarden pack --estimate`, and what `pack` foretells of the speed of scans.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::clusters::{any_installation, contents, forget_accesses, metadata, sample};
use crate::runner::{pagewarden, run};
use crate::sqlite;

fn json(arguments: &[&str], path: &Path) -> Value {
    let outcome = run(pagewarden().args(["pack", "--json"]).args(arguments).arg(path));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name}: {value}"))
}

/// A database of this many rows of a kibibyte, of which some shrink and some do not.
fn database(folder: &Path, rows: u32) -> Option<PathBuf> {
    if !sqlite::has_shell() {
        return None;
    }
    sqlite::shell(
        folder,
        &format!(
            ".open shop.db\n\
             PRAGMA synchronous=OFF;\n\
             CREATE TABLE t(id INTEGER PRIMARY KEY, random BLOB, rest BLOB);\n\
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})\n\
             INSERT INTO t SELECT i, randomblob(i % 900), zeroblob(900 - i % 900) FROM n;"
        ),
    );
    Some(folder.join("shop.db"))
}

#[test]
fn a_sample_tells_the_size_that_the_pack_then_has() {
    let folder = tempfile::tempdir().unwrap();
    // More than is looked at.
    let Some(path) = database(folder.path(), 90_000) else { return };
    forget_accesses(folder.path());
    let before = metadata(folder.path());
    let estimated = json(&["--estimate", "--level", "1"], &path);
    assert!(metadata(folder.path()) == before, "nothing is written, and no time changes");
    let estimate = &estimated["estimate"];
    assert_eq!(estimate["is_exact"], false);
    let sampled = number(estimate, "sampled_bytes");
    assert!(sampled <= (64 << 20) && sampled > (60 << 20), "{estimated}");
    assert_eq!(number(estimate, "bytes"), fs::metadata(&path).unwrap().len());
    let elsewhere = tempfile::tempdir().unwrap();
    let output = elsewhere.path().join("x.pwk");
    let packed = json(&["--level", "1", "-o", output.to_str().unwrap()], &path);
    let stored = number(&packed["packed"], "stored_bytes");
    let (low, high) = (number(estimate, "low_bytes"), number(estimate, "high_bytes"));
    // One in twenty may lie outside; none by as much as the interval is wide.
    assert!((low - (high - low)..=high + (high - low)).contains(&stored), "{stored} {estimated}");
    assert!(high - low < stored / 20, "an interval that says nothing: {estimated}");
    // Both were told how fast it can be read.
    for answer in [&estimated, &packed] {
        let prediction = &answer["prediction"];
        assert!(number(prediction, "cores") >= 1, "{answer}");
        for coding in ["chosen", "other"] {
            let coding = &prediction[coding];
            assert!(coding["decode_bytes_per_second"].as_f64().unwrap() > 1e6, "{answer}");
            assert!(coding["ratio"].as_f64().unwrap() >= 1.0, "{answer}");
        }
        assert_eq!(prediction["chosen"]["codec"], "zstd");
        if let Some(read) = prediction["read_bytes_per_second"].as_f64() {
            let scan = prediction["chosen"]["cold_scan"].as_f64().unwrap();
            let ratio = prediction["chosen"]["ratio"].as_f64().unwrap();
            assert!(read > 1e6 && scan >= 0.999 / ratio, "{answer}");
        }
    }
}

#[test]
fn tables_are_told_by_name_the_largest_first() {
    let Some(installation) = any_installation() else { return };
    let mut source = sample(&installation, true).copy();
    source.execute("postgres", &["DROP TABLE elsewhere"]).unwrap();
    source.execute("postgres", &["DROP TABLESPACE sample_space"]).unwrap();
    let root = source.data_dir().to_owned();
    let before = contents(&root);
    let estimated = json(&["--estimate"], &root);
    assert_eq!(contents(&root), before);
    assert_eq!(estimated["verdict"], "estimated");
    let estimate = &estimated["estimate"];
    let tables = estimate["tables"].as_array().unwrap();
    let sizes: Vec<u64> = tables.iter().map(|table| number(table, "expected_bytes")).collect();
    assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1]), "{sizes:?}");
    let bytes: u64 = tables.iter().map(|table| number(table, "bytes")).sum();
    assert_eq!(bytes, number(estimate, "bytes"));
    let expected = number(estimate, "expected_bytes");
    assert!(sizes.iter().sum::<u64>().abs_diff(expected) < expected / 20, "{estimated}");
    let names: Vec<&str> = tables.iter().map(|table| table["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.ends_with(" in postgres")), "{names:?}");
    assert!(names.contains(&"global/pg_control"), "{names:?}");
    let text = run(pagewarden().args(["pack", "--estimate"]).arg(&root)).stdout;
    assert!(text.contains("times smaller (") && text.contains("nothing was written"), "{text}");
}

#[test]
fn the_forecast_is_one_line_before_packing_and_can_be_silenced() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = database(folder.path(), 20_000) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let pack = |name: &str, flags: &[&str]| {
        let output = elsewhere.path().join(name);
        let outcome = run(pagewarden().args(["pack", "-o"]).arg(output).args(flags).arg(&path));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        outcome
    };
    let loud = pack("loud.pwk", &[]).stderr;
    assert!(loud.starts_with("decode ") && loud.lines().count() == 1, "{loud}");
    assert!(loud.contains(" a cold scan will take "), "{loud}");
    assert_eq!(pack("quiet.pwk", &["--quiet"]).stderr, "");
    // A forecast does not read faster than a user's ceiling on reading.
    let limited = pack("limited.pwk", &["--rate", "1GiB/s"]).stderr;
    assert!(limited.contains("the disk was not measured"), "{limited}");
    // Of a moment's reading there is nothing to foretell.
    let small = tempfile::tempdir().unwrap();
    let Some(path) = database(small.path(), 100) else { return };
    let outcome = run(pagewarden().args(["pack", "--json", "--estimate"]).arg(&path));
    let small: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(
        (&small["prediction"], &small["estimate"]["is_exact"]),
        (&Value::Null, &true.into())
    );
}

#[test]
fn an_estimate_needs_no_place_for_a_pack() {
    let folder = tempfile::tempdir().unwrap();
    for also in [["-o", "x.pwk"], ["--to", "null:"]] {
        let mut command = pagewarden();
        let outcome = run(command.args(["pack", "--estimate"]).args(also).arg(folder.path()));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("cannot be used with"), "{outcome:?}");
    }
}
