//! Parquet files: golden ones, and those of the Python package `pyarrow` where it is installed
//! (`PAGEWARDEN_PARQUET` names the Python to use; `PAGEWARDEN_REQUIRE=parquet` forbids skipping).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden_scratch::python::{Python, files_of};

use crate::damage::Dice;
use crate::runner::{check, pagewarden, run};

pub(crate) const CRC: &str = "pyarrow-26.0.1/crc.parquet";

pub(crate) fn golden(name: &str) -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/parquet");
    fs::read(Path::new(root).join(name)).unwrap()
}

fn file_of(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.parquet");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn golden_files_have_their_verdicts_and_row_group_and_column_are_named() {
    for (name, verdict, pages, unprotected) in [
        (CRC, "intact", 20, 0),
        ("pyarrow-26.0.1/plain.parquet", "unprotected", 20, 20),
        ("pyarrow-26.0.1/sealed.parquet", "incomplete", 0, 0),
        ("pyarrow-26.0.1/columns.parquet", "incomplete", 20, 16),
        ("duckdb-2.0.1/plain.parquet", "unprotected", 7, 7),
    ] {
        let (_folder, path) = file_of(&golden(name));
        let report = check([&path]).report();
        assert_eq!(report.verdict(), verdict, "{name}");
        let counts = (report.pages("total"), report.pages("unprotected"));
        assert_eq!(counts, (pages, unprotected), "{name}");
        assert_eq!(report.findings().len(), 0, "{name}");
    }
    let mut bytes = golden(CRC);
    bytes[2000] ^= 1;
    let (_folder, path) = file_of(&bytes);
    let text = run(pagewarden().arg("check").arg(&path));
    assert!(text.stdout.contains("row group 0, column id"), "{}", text.stdout);
    assert!(text.stdout.contains("one flipped bit explains it"), "{}", text.stdout);
}

#[test]
fn folder_is_searched_and_files_that_are_empty_or_cut_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let good = golden(CRC);
    for (name, bytes) in
        [("a.parquet", &good[..]), ("empty.parquet", b""), ("cut.parquet", &good[..9000])]
    {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    fs::write(folder.path().join("_SUCCESS"), "").unwrap();
    let outcome = run(pagewarden().arg("check").arg(folder.path()));
    let said = (outcome.status, outcome.stdout.matches("damage   truncated").count());
    assert_eq!(said, (Some(1), 2), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("of 3 files"), "{}", outcome.stdout);
}

#[test]
fn parts_of_a_plan_say_what_one_check_says() {
    let (folder, path) = file_of(&golden(CRC));
    let place = |name: &str| folder.path().join(name);
    let plan = run(pagewarden().arg("plan").arg(&path).arg("-o").arg(place("plan")));
    assert_eq!(plan.status, Some(0), "{plan:?}");
    let part = run(pagewarden()
        .args(["check", "--part", "1/1", "--plan"])
        .arg(place("plan"))
        .arg("-o")
        .arg(place("part")));
    assert_eq!(part.status, Some(0), "{part:?}");
    let merged =
        run(pagewarden().args(["merge", "--json"]).arg(place("plan")).arg(place("part"))).report();
    let whole = check([&path]).report();
    assert_eq!((merged.verdict(), merged.pages("ok")), ("intact", whole.pages("ok")));
}

/// Pages of all lengths: each is one tile of the map, and `survey` advises what works.
#[test]
fn map_and_survey_know_pages_of_all_lengths() {
    let (folder, path) = file_of(&golden(CRC));
    let html = folder.path().join("report.html");
    let outcome = run(pagewarden().args(["check", "--map", "--html"]).arg(&html).arg(&path));
    assert!(outcome.stdout.contains("map: one tile is one page\n"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains(&".".repeat(20)), "{}", outcome.stdout);
    assert!(fs::read_to_string(html).unwrap().contains("20"));
    fs::write(&path, golden("duckdb-2.0.1/plain.parquet")).unwrap();
    let survey = run(pagewarden().arg("survey").arg(&path)).stdout;
    assert!(survey.contains("write_page_checksum=True") && !survey.contains("--seal"), "{survey}");
    assert!(survey.contains("Parquet: 7 pages in 1 file"), "{survey}");
}

#[test]
fn packed_file_comes_back_byte_by_byte() {
    let good = golden(CRC);
    let (folder, path) = file_of(&good);
    let pack = folder.path().join("shop.pwk");
    let packed = run(pagewarden().args(["pack", "--output"]).arg(&pack).arg(&path));
    assert_eq!(packed.status, Some(0), "{packed:?}");
    let out = folder.path().join("out");
    assert_eq!(run(pagewarden().arg("unpack").arg(&pack).arg(&out)).status, Some(0));
    let restored = if out.is_dir() { out.join("shop.parquet") } else { out };
    assert!(fs::read(restored).unwrap() == good);
}

pub(crate) fn golden_table(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/parquet").join(name);
    let target = folder.path().join("table");
    let copied = Command::new("cp").arg("-r").arg(source).arg(target).status();
    assert!(copied.unwrap().success());
    folder
}

#[test]
fn tables_are_checked_as_a_whole_also_in_a_folder_of_tables() {
    for (name, engine) in
        [("deltalake-1.6.6/table", "Delta table"), ("pyiceberg-0.12.0/table", "Iceberg table")]
    {
        let folder = golden_table(name);
        let path = folder.path().join("table");
        let report = check([&path]).report();
        assert_eq!((report.verdict(), report.findings().len()), ("unprotected", 0), "{name}");
        let outcome = run(pagewarden().arg("check").arg(folder.path()));
        assert!(outcome.stdout.contains(engine), "{}", outcome.stdout);
        let books = if engine == "Delta table" { "_delta_log" } else { "metadata" };
        for entry in fs::read_dir(path.join(books)).unwrap() {
            let book = entry.unwrap().path();
            if book.ends_with("00000000000000000000.json")
                || book.file_name().unwrap().to_string_lossy().starts_with("snap-")
            {
                fs::remove_file(book).unwrap();
            }
        }
        let report = check([&path]).report();
        assert_eq!(report.verdict(), "damaged", "{name}");
        assert!(report.findings().iter().any(|one| one.kind == "missing"), "{name}");
    }
}

const TABLES: &str = r#"
import sys, deltalake, pyarrow
from pyiceberg.catalog.sql import SqlCatalog
root = sys.argv[1]
goods = pyarrow.table({"id": list(range(5000)), "kind": [at % 3 for at in range(5000)]})
delta = f"{root}/delta"
for step in range(4):
    deltalake.write_deltalake(delta, goods.slice(step * 1000, 1000), mode="append", partition_by=["kind"])
deltalake.DeltaTable(delta).delete("id < 100")
deltalake.DeltaTable(delta).optimize.compact()
deltalake.DeltaTable(delta).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
catalog = SqlCatalog("shop", uri="sqlite://", warehouse=f"file://{root}")
catalog.create_namespace("shop")
for version in ("1", "2"):
    table = catalog.create_table("shop.t" + version, schema=goods.schema,
        location=f"file://{root}/iceberg{version}", properties={"format-version": version})
    for step in range(3):
        table.append(goods.slice(step * 1000, 1000))
    table.delete("id < 100")
    table.overwrite(goods.slice(0, 700))
"#;

/// Appends, deletes, compaction, vacuum, overwrites; and each file of the current state is needed.
#[test]
fn tables_of_deltalake_and_pyiceberg_raise_no_alarm_and_each_file_that_is_gone_is_found() {
    let Some(folder) = files_of("parquet", TABLES) else { return };
    for name in ["delta", "iceberg1", "iceberg2"] {
        let path = folder.path().join(name);
        let report = check([&path]).report();
        assert_eq!((report.verdict(), report.findings().len()), ("unprotected", 0), "{name}");
        let files = report.target()["files"].as_u64().unwrap();
        let mut needed = 0;
        for file in parquet_files(&path) {
            let content = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            let report = check([&path]).report();
            if report.verdict() == "damaged" {
                needed += 1;
                assert_eq!(report.findings()[0].kind, "missing", "{name}");
            }
            fs::write(&file, content).unwrap();
        }
        assert_eq!(needed, files, "{name}: as many as the current state has");
    }
}

pub(crate) fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(parquet_files(&path)),
            false if path.extension().is_some_and(|it| it == "parquet") => found.push(path),
            false => {}
        }
    }
    found
}

const SCRIPT: &str = r#"
import sys, pyarrow, pyarrow.parquet as parquet
print(pyarrow.__version__, flush=True)
rows = 3000
table = pyarrow.table({
    "id": list(range(rows)),
    "word": [None if at % 11 == 0 else f"name {at % 97}" for at in range(rows)],
    "list": [None if at % 7 == 0 else list(range(at % 5)) for at in range(rows)],
    "deep": [{"a": at, "b": [{"c": "x" * (at % 4)}] * (at % 3)} for at in range(rows)],
    "nothing": pyarrow.nulls(rows, pyarrow.int32()),
})
codecs = ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]
def make(path, number):
    bit = lambda at: bool(number >> at & 1)
    parquet.write_table(
        table.slice(0, [rows, 0, 1][number % 3]), path, compression=codecs[number % 6],
        data_page_version="2.0" if bit(0) else "1.0", write_page_checksum=bit(1),
        write_page_index=bit(2), use_dictionary=bit(3), row_group_size=1000, data_page_size=2048)
    return "done"
def read(path):
    try:
        found = parquet.ParquetFile(path, page_checksum_verification=True).read()
        found.validate(full=True)
        return "same" if found.equals(table) else "others"
    except BaseException as error:
        return "refused"
for line in sys.stdin:
    command, path, number = line.rstrip("\n").split("\t")
    print(make(path, int(number)) if command == "make" else read(path), flush=True)
"#;

/// Codecs, versions of pages, dictionaries, indexes; with CRC and without, of no row, one, and many.
#[test]
fn healthy_files_of_pyarrow_raise_no_alarm() {
    let Some(mut arrow) = Python::with("parquet", "pyarrow", SCRIPT) else { return };
    let (_folder, path) = file_of(b"");
    for number in 0..96 {
        assert_eq!(arrow.ask("make", &path, number), "done");
        for options in [&["--json"][..], &["--json", "--structure"]] {
            let report = run(pagewarden().arg("check").args(options).arg(&path)).report();
            // Of a column of nulls alone there may be pages without a byte that could be tested.
            let verdict = report.verdict().to_owned();
            let expected = if number & 2 == 2 { "intact" } else { "unprotected" };
            let is_right = verdict == expected || report.pages("total") == 0;
            assert!(is_right && report.findings().is_empty(), "{number}: {verdict}");
        }
    }
}

/// What pyarrow refuses or reads otherwise is found in pages that have a CRC; and nothing is called
/// damaged that it reads as it was, but for words that it does not look at.
#[test]
fn wounds_of_pages_with_crc_are_found_where_pyarrow_stumbles_on_them() {
    let Some(mut arrow) = Python::with("parquet", "pyarrow", SCRIPT) else { return };
    let (_folder, path) = file_of(b"");
    let mut dice = Dice::seeded();
    let (mut found, mut harmless) = (0, 0);
    // Of 3,000 rows with CRC: of both versions, with and without indexes and dictionaries.
    for number in [3, 6, 15, 18, 30, 42] {
        assert_eq!(arrow.ask("make", &path, number), "done");
        let good = fs::read(&path).unwrap();
        let footer = u32::from_le_bytes(*good[..good.len() - 4].last_chunk().unwrap());
        let pages = good.len() - 8 - footer as usize;
        for round in 0..40 {
            let mut bytes = good.clone();
            let at = dice.within(0..pages);
            let sector = at / 512 * 512..(at / 512 * 512 + 512).min(pages);
            match round % 4 {
                0 => bytes[at] ^= 1 << dice.within(0..8),
                1 => bytes[sector].fill(0),
                2 => dice.fill(&mut bytes[sector]),
                _ => bytes.truncate(at),
            }
            fs::write(&path, &bytes).unwrap();
            let verdict = check([&path]).report().verdict().to_owned();
            match arrow.ask("read", &path, 0).as_str() {
                "same" => harmless += 1,
                answer => {
                    found += 1;
                    assert_eq!(verdict, "damaged", "{number}, round {round}: {answer}");
                }
            }
        }
    }
    eprintln!("{found} wounds that pyarrow refuses or reads otherwise, {harmless} without effect");
    assert!(found > 150);
}
