//! DuckDB databases: golden ones, and those of the Python package `duckdb` where it is installed
//! (`PAGEWARDEN_DUCKDB` names the Python to use; `PAGEWARDEN_REQUIRE=duckdb` forbids skipping).

use std::fs;
use std::path::{Path, PathBuf};

use crate::damage::Dice;
use crate::runner::{Report, check, pagewarden, run};
use pagewarden_scratch::python::Python;

const HEADERS: usize = 12_288;
const BLOCK: usize = 16_384;

fn golden(name: &str) -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/duckdb");
    fs::read(Path::new(root).join(name)).unwrap()
}

fn database_of(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.duckdb");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn checked(bytes: &[u8]) -> Report {
    let (_folder, path) = database_of(bytes);
    check([&path]).report()
}

#[test]
fn golden_databases_are_intact_and_encrypted_ones_incomplete() {
    for (name, verdict, pages, unverifiable) in [
        ("1.1.3/shop.duckdb", "intact", 5, 0),
        ("2.0.0/shop.duckdb", "intact", 3, 0),
        ("2.0.0/locked.duckdb", "incomplete", 3, 3),
    ] {
        let report = checked(&golden(name));
        assert_eq!(report.verdict(), verdict, "{name}");
        assert_eq!(report.pages("total"), pages, "{name}");
        assert_eq!(report.pages("unverifiable"), unverifiable, "{name}");
        assert_eq!(report.findings().len(), 0, "{name}");
    }
}

/// Block 4 to 7 are free, so that nothing is lost with them.
#[test]
fn every_flipped_bit_of_a_block_in_use_is_found_and_none_of_a_free_one() {
    let good = golden("1.1.3/shop.duckdb");
    for number in 0..9 {
        let mut bytes = good.clone();
        bytes[HEADERS + number * BLOCK + 1000 * number + 9] ^= 0x10;
        let report = checked(&bytes);
        if (4..8).contains(&number) {
            assert_eq!((report.verdict(), report.findings().len()), ("intact", 0), "{number}");
        } else {
            let findings = report.findings();
            assert_eq!((report.verdict(), findings.len()), ("damaged", 1), "{number}");
            assert_eq!(
                (findings[0].kind.as_str(), findings[0].page),
                ("bit_flip", Some(number as u64))
            );
        }
    }
}

/// What the sums cannot detect passes; a seal finds it.
#[test]
fn swapped_blocks_and_words_pass_and_a_seal_finds_them() {
    let good = golden("1.1.3/shop.duckdb");
    let (folder, path) = database_of(&good);
    let seal = folder.path().join("shop.seal");
    let sealed = run(pagewarden().args(["check", "--json", "--seal"]).arg(&seal).arg(&path));
    assert_eq!(sealed.report().verdict(), "intact");
    let block = |number: usize| HEADERS + number * BLOCK..HEADERS + (number + 1) * BLOCK;
    let mut blocks = good.clone();
    blocks[block(1)].copy_from_slice(&good[block(2)]);
    blocks[block(2)].copy_from_slice(&good[block(1)]);
    let mut words = good.clone();
    let (one, other) = (HEADERS + BLOCK + 80, HEADERS + BLOCK + 8000);
    assert_ne!(good[one..one + 8], good[other..other + 8]);
    words[one..one + 8].copy_from_slice(&good[other..other + 8]);
    words[other..other + 8].copy_from_slice(&good[one..one + 8]);
    for (bytes, expected) in [(good, vec![]), (blocks, vec![1, 2]), (words, vec![1])] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(check([&path]).report().verdict(), "intact");
        let report = run(pagewarden().args(["check", "--json", "--against"]).arg(&seal).arg(&path));
        let report = report.report();
        let pages: Vec<_> = report.findings().iter().map(|one| one.page.unwrap()).collect();
        assert_eq!(pages, expected);
        assert_eq!(report.verdict(), if expected.is_empty() { "intact" } else { "damaged" });
    }
}

#[test]
fn packed_database_comes_back_byte_by_byte() {
    let good = golden("1.1.3/shop.duckdb");
    let (folder, path) = database_of(&good);
    let pack = folder.path().join("shop.pwk");
    let packed = run(pagewarden().args(["pack", "--output"]).arg(&pack).arg(&path));
    assert_eq!(packed.status, Some(0), "{packed:?}");
    assert_eq!(check([&pack]).report().verdict(), "intact");
    let out = folder.path().join("out");
    let unpacked = run(pagewarden().arg("unpack").arg(&pack).arg(&out));
    assert_eq!(unpacked.status, Some(0), "{unpacked:?}");
    let restored = if out.is_dir() { out.join("shop.duckdb") } else { out };
    assert!(fs::read(restored).unwrap() == good);
}

const SCRIPT: &str = r#"
import sys, subprocess, duckdb
print(duckdb.__version__, flush=True)
LIFE = """
import sys, os, duckdb
path, crash = sys.argv[1], int(sys.argv[2])
c = duckdb.connect()
c.execute(f"attach '{path}' as shop (block_size 16384)")
c.execute("use shop")
c.execute("create table t (i bigint, s varchar)")
for step in range(6):
    c.execute(f"insert into t select range + {step * 10000}, md5(range::varchar) from range(5000)")
    c.execute(f"create or replace table u{step} as select * from t limit 4000")
    if step == 2: c.execute("checkpoint")
    if step == 3: c.execute("delete from t where i % 3 = 0"); c.execute("checkpoint")
    if step == 4: c.execute("drop table u2"); c.execute("vacuum"); c.execute("checkpoint")
    if step == crash:
        c.execute("begin")
        c.execute("create table torn as select range i, md5(range::varchar) s from range(60000)")
        os.kill(os.getpid(), 9)
c.execute("use memory")
c.execute("detach shop")
"""
def rows(path):
    try:
        c = duckdb.connect(path, read_only=True)
        tables = c.execute("select table_name from duckdb_tables() order by 1").fetchall()
        query = "select '{0}', count(*), sum(hash({0})) from {0}"
        answers = [c.execute(query.format(table)).fetchall() for table, in tables]
        c.close()
        return str(answers)
    except BaseException as error:
        return "refused " + str(error).replace("\n", " ")
for line in sys.stdin:
    command, path, number = line.rstrip("\n").split("\t")
    if command == "rows":
        print(rows(path), flush=True)
    else:
        subprocess.run([sys.executable, "-c", LIFE, path, number])
        print("done", flush=True)
"#;

/// All rows of a database, as one line; that DuckDB refuses begins with `refused`.
fn rows_of(duck: &mut Python, path: &Path) -> String {
    duck.ask("rows", path, 0)
}

const NEVER: usize = 99;

/// Deletes, drops, checkpoints, vacuums and kill -9, with what each leaves in free blocks.
#[test]
fn healthy_lives_of_a_database_raise_no_alarm() {
    let Some(mut duck) = Python::with("duckdb", "duckdb", SCRIPT) else { return };
    let folder = tempfile::tempdir().unwrap();
    for crash in [0, 1, 2, 3, 4, 5, NEVER] {
        let path = folder.path().join(format!("{crash}.duckdb"));
        assert_eq!(duck.ask("life", &path, crash), "done");
        let report = check([&path]).report();
        assert_eq!((report.verdict(), report.findings().len()), ("intact", 0), "after {crash}");
        let rows = rows_of(&mut duck, &path);
        assert!(!rows.starts_with("refused"), "after {crash}: {rows}");
    }
}

/// The verdict is what DuckDB would do: what it refuses, or answers otherwise, is found, except
/// for what the sums cannot detect; and what is found does harm.
#[test]
fn wounds_are_found_where_duckdb_stumbles_on_them() {
    let Some(mut duck) = Python::with("duckdb", "duckdb", SCRIPT) else { return };
    let (_folder, path) = database_of(&[]);
    fs::remove_file(&path).unwrap();
    assert_eq!(duck.ask("life", &path, NEVER), "done");
    let good = fs::read(&path).unwrap();
    let rows = rows_of(&mut duck, &path);
    let mut dice = Dice::seeded();
    let (mut found, mut harmless) = (0, 0);
    for round in 0..120 {
        let mut bytes = good.clone();
        let mut below = |limit: usize| dice.within(0..limit);
        let sector = below(good.len() / 512) * 512;
        match round % 4 {
            0 => bytes[below(good.len())] ^= 1 << below(8),
            1 => bytes[sector..sector + 512].fill(0),
            2 => bytes[sector..sector + 512].iter_mut().for_each(|byte| *byte = below(256) as u8),
            _ => bytes.truncate(below(good.len())),
        }
        fs::write(&path, &bytes).unwrap();
        let outcome = check([&path]);
        // Without DuckDB's mark at its head the file may be anything.
        let verdict = match outcome.status {
            Some(2) => "damaged".to_owned(),
            _ => outcome.report().verdict().to_owned(),
        };
        if rows_of(&mut duck, &path) == rows {
            harmless += 1;
            assert_eq!(verdict, "intact", "round {round}: a false alarm");
        } else {
            found += 1;
            assert_eq!(verdict, "damaged", "round {round}: not found");
        }
    }
    eprintln!("{found} wounds that DuckDB refuses or answers wrongly, {harmless} without effect");
    assert!(found > 30);
}
