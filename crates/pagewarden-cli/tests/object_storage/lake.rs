//! Parquet files and tables of Delta Lake and Iceberg in a bucket, by our own server and by real ones:
//! sound and damaged in each way, they give the reports that a disk gives.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::server::{Fault, Server};
use super::stores::{KINDS, Kind, Store};
use super::{command, comparable};
use crate::parquet::{CRC, golden, golden_table, parquet_files};
use crate::runner::{pagewarden, run};

const TABLES: [&str; 2] = ["deltalake-1.6.6/table", "pyiceberg-0.12.0/table"];

/// What is wrong with a table, and the kind of finding that it must give; `None`: nothing.
const WOUNDS: [(&str, Option<&str>); 9] = [
    ("nothing", None),
    ("a file is gone", Some("missing")),
    ("a file was cut", Some("truncated")),
    ("a byte of a header is flipped", Some("header")),
    ("a file has other rows", Some("structure")),
    ("a file is another one", Some("structure")),
    ("a book is gone", Some("missing")),
    ("a book is destroyed", Some("header")),
    ("a file is left over", Some("structure")),
];

/// A book that the current state of the table needs.
fn book(table: &Path) -> PathBuf {
    let delta = table.join("_delta_log/00000000000000000001.json");
    if delta.exists() {
        return delta;
    }
    let mut books: Vec<_> =
        fs::read_dir(table.join("metadata")).unwrap().map(|it| it.unwrap().path()).collect();
    books.sort();
    // The newest metadata names the current list of manifests.
    let is_state = |path: &&PathBuf| path.to_string_lossy().ends_with(".metadata.json");
    let newest = fs::read_to_string(books.iter().rfind(is_state).unwrap()).unwrap();
    let newest: Value = serde_json::from_str(&newest).unwrap();
    let snapshots = newest["snapshots"].as_array().unwrap();
    let current = snapshots.iter().find(|it| it["snapshot-id"] == newest["current-snapshot-id"]);
    let list = current.unwrap()["manifest-list"].as_str().unwrap().to_owned();
    table.join("metadata").join(list.rsplit('/').next().unwrap())
}

/// A file of the current state: its loss is damage.
fn needed(table: &Path) -> PathBuf {
    let is_needed = |file: &PathBuf| {
        let content = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let is_needed = run(pagewarden().arg("check").arg(table)).status == Some(1);
        fs::write(file, content).unwrap();
        is_needed
    };
    let mut files = parquet_files(table);
    files.sort();
    files.into_iter().find(is_needed).unwrap()
}

fn wound(table: &Path, what: &str) {
    let file = needed(table);
    let mut content = fs::read(&file).unwrap();
    match what {
        "nothing" => {}
        "a file is gone" => fs::remove_file(&file).unwrap(),
        "a file was cut" => fs::write(&file, &content[..content.len() / 2]).unwrap(),
        "a byte of a header is flipped" => {
            content[5] ^= 0x55;
            fs::write(&file, content).unwrap();
        }
        "a file has other rows" => other_rows(table, &file),
        "a file is another one" => fs::write(&file, golden(CRC)).unwrap(),
        "a book is gone" => fs::remove_file(book(table)).unwrap(),
        "a book is destroyed" => fs::write(book(table), [0x55; 700]).unwrap(),
        "a file is left over" => {
            fs::copy(&file, table.join("left over+1.parquet")).unwrap();
        }
        _ => panic!("{what}"),
    }
}

/// The footer counts another number of rows than the table: in Thrift, as a number of one or two bytes.
fn other_rows(table: &Path, file: &Path) {
    let mut content = fs::read(file).unwrap();
    let tail = content.len() - 8;
    let footer = u32::from_le_bytes(content[tail..tail + 4].try_into().unwrap());
    let begin = tail - usize::try_from(footer).unwrap();
    for at in begin..tail {
        content[at] ^= 2;
        fs::write(file, &content).unwrap();
        let said = run(pagewarden().arg("check").arg(table)).stdout;
        if said.contains(" rows, the table says ") {
            return;
        }
        content[at] ^= 2;
    }
    panic!("no byte of the footer counts rows");
}

/// The report of a folder of this machine and that of its copy in a bucket.
fn reports(
    path: &Path,
    address: &str,
    check: impl Fn(&[&str]) -> std::process::Command,
) -> (Value, Value, String) {
    let here = run(pagewarden().args(["check", "--json"]).arg(path));
    let there = run(&mut check(&["--json", address]));
    let case = format!("{address}: {} {}", there.stdout, there.stderr);
    assert_eq!(there.status, here.status, "{case}");
    assert!(!there.stdout.contains("temporary file"), "{case}");
    let (here, there) = (here.report().json, there.report().json);
    assert_eq!(comparable(&there, address), comparable(&here, path.to_str().unwrap()), "{case}");
    (here, there, case)
}

#[test]
fn table_in_a_bucket_gives_the_report_that_it_gives_on_a_disk_whatever_is_wrong() {
    for name in TABLES {
        for (what, kind) in WOUNDS {
            let folder = golden_table(name);
            let table = folder.path().join("table");
            wound(&table, what);
            let server = Server::start();
            server.put_folder("lake of/it+x", &table);
            let address = "s3://bucket/lake of/it+x";
            let (here, there, case) =
                reports(&table, address, |arguments| command(&server, "check", arguments));
            let case = format!("{what}: {case}");
            let target = &here["targets"][0];
            let kinds: Vec<_> = target["findings"].as_array().unwrap().iter().collect();
            match kind {
                None => assert!(kinds.is_empty(), "{case}"),
                Some(kind) => assert!(kinds.iter().any(|it| it["kind"] == kind), "{case}"),
            }
            let expected = match what {
                "nothing" | "a file is left over" => "unprotected",
                _ => "damaged",
            };
            assert_eq!(target["verdict"], expected, "{case}");

            // Requests are counted; nothing is read twice, and what no state names is not read.
            let seen = server.seen();
            assert_eq!(there["storage"]["requests"].as_u64(), Some(seen.len() as u64), "{case}");
            let heads: Vec<_> =
                seen.iter().map(|seen| seen.head.lines().next().unwrap().to_owned()).collect();
            // The books are listed once more where a file is gone.
            let is_once = |head: &&String| heads.iter().filter(|it| it == head).count() == 1;
            let is_list = |head: &&String| head.contains("prefix=") && what.ends_with("is gone");
            assert!(heads.iter().all(|it| is_once(&it) || is_list(&it)), "{heads:#?}");
            let reads = |head: &String| ["GET /", "HEAD /"].iter().any(|it| head.starts_with(it));
            assert!(heads.iter().all(reads), "{heads:#?}");
            assert!(!heads.iter().any(|head| head.contains("left")), "{heads:#?}");
            // In a folder of tables it is found as a whole.
            let folder = run(&mut command(&server, "check", &["--json", "s3://bucket/lake of"]));
            let folder = folder.report().json;
            assert_eq!(folder["targets"].as_array().unwrap().len(), 1, "{case}");
            let findings = |report: &Value| report["targets"][0]["findings"].to_string();
            assert_eq!(findings(&folder), findings(&there), "{case}");
        }
    }
}

#[test]
fn survey_of_a_table_in_a_bucket_is_that_of_a_disk_and_other_folders_are_refused() {
    for name in TABLES {
        let folder = golden_table(name);
        let table = folder.path().join("table");
        let server = Server::start();
        server.put_folder("lake/it", &table);
        let here = run(pagewarden().args(["survey", "--json"]).arg(&table));
        let there = run(&mut command(&server, "survey", &["--json", "s3://bucket/lake/it"]));
        let case = format!("{}{}", there.stdout, there.stderr);
        assert_eq!((there.status, here.status), (Some(0), Some(0)), "{case}");
        let [here, there] =
            [here, there].map(|it| serde_json::from_str::<Value>(&it.stdout).unwrap());
        for key in ["verdict", "engine", "state", "pages", "severities", "protection", "findings"] {
            assert_eq!(here[key], there[key], "{key}");
        }
        let other = run(&mut command(&server, "survey", &["s3://bucket/lake"]));
        assert_eq!(other.status, Some(2), "{}", other.stdout);
        assert!(other.stderr.contains("name a single file"), "{}", other.stderr);
    }
}

/// The values of pages have sums where their writer wrote some.
#[test]
fn flipped_bit_of_a_page_of_a_table_in_a_bucket_is_found_by_its_sum() {
    let folder = tempfile::tempdir().unwrap();
    let mut content = golden(CRC);
    let begin = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"schemaString":"{\"type\":\"struct\",\"fields\":[]}"}}"#;
    let add = format!(
        "{{\"add\":{{\"path\":\"of%20it.parquet\",\"size\":{},\"partitionValues\":{{}},\"modificationTime\":1,\"dataChange\":true}}}}",
        content.len()
    );
    let log = format!("{begin}\n{add}\n");
    fs::create_dir(folder.path().join("_delta_log")).unwrap();
    fs::write(folder.path().join("_delta_log/00000000000000000000.json"), log).unwrap();
    for (bit, verdict) in [(0, "intact"), (1, "damaged")] {
        content[2000] ^= bit;
        fs::write(folder.path().join("of it.parquet"), &content).unwrap();
        let server = Server::start();
        server.put_folder("it", folder.path());
        let check = |arguments: &[&str]| command(&server, "check", arguments);
        let (_, there, case) = reports(folder.path(), "s3://bucket/it", check);
        let target = &there["targets"][0];
        assert_eq!(target["verdict"], verdict, "{case}");
        let is_found = target["findings"][0]["kind"] == "bit_flip";
        assert_eq!(is_found, verdict == "damaged", "{case}");
    }
}

/// A folder of Parquet files, one that nothing names so among them, and a file of another kind.
fn exports() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let good = golden(CRC);
    let mut flipped = good.clone();
    flipped[2000] ^= 1;
    fs::create_dir(folder.path().join("day=1")).unwrap();
    for (name, bytes) in [
        ("day=1/good.parquet", &good[..]),
        ("day=1/flipped.PARQUET", &flipped),
        ("cut.parquet", &good[..9000]),
        ("empty.parquet", b""),
        ("without-a-name", &good),
        ("notes.txt", b"PAR1 is the mark of Parquet"),
    ] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// What is in a report of several targets, by the last part of their paths.
fn found(report: &Value) -> Vec<(String, String, String)> {
    let of = |target: &Value| {
        let path = target["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        (path, target["verdict"].to_string(), target["findings"].to_string())
    };
    report["targets"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn files_of_a_bucket_are_found_by_content_and_by_name_as_on_a_disk() {
    let folder = exports();
    let server = Server::start();
    server.put_folder("exports", folder.path());
    let here = run(pagewarden().args(["check", "--json"]).arg(folder.path())).report().json;
    let there = run(&mut command(&server, "check", &["--json", "s3://bucket/exports"]));
    let there = there.report().json;
    assert_eq!(found(&there), found(&here));
    assert_eq!(found(&there).len(), 5, "{there}");
    let verdicts: Vec<_> = found(&there).into_iter().map(|(_, verdict, _)| verdict).collect();
    assert_eq!(verdicts.iter().filter(|it| *it == "\"damaged\"").count(), 3, "{there}");
    // One of them alone.
    let path = folder.path().join("day=1/flipped.PARQUET");
    let address = "s3://bucket/exports/day=1/flipped.PARQUET";
    reports(&path, address, |arguments| command(&server, "check", arguments));
}

#[test]
fn part_of_a_table_that_the_store_does_not_give_is_unread_and_never_good_or_damaged() {
    let says = ["SlowDown", "check that the credentials", "the request failed", "another part"];
    for name in TABLES {
        let folder = golden_table(name);
        let table = folder.path().join("table");
        let (file, book) = (needed(&table), book(&table));
        for (part, fault, says) in [
            (&file, Fault::Status(503), says[0]),
            (&file, Fault::Status(403), says[1]),
            (&file, Fault::CutBody, says[2]),
            (&file, Fault::WrongRange, says[3]),
            (&file, Fault::Replaced, "replaced or changed"),
            (&file, Fault::ReplacedUnsaid, "replaced or changed"),
            (&file, Fault::Status(404), "removed while"),
            (&book, Fault::Status(503), says[0]),
        ] {
            let server = Server::start();
            server.put_folder("it", &table);
            let part: &str = part.file_name().unwrap().to_str().unwrap();
            server.fail(part.to_owned().leak(), usize::MAX, fault);
            let outcome = run(&mut command(&server, "check", &["--json", "s3://bucket/it"]));
            let case = format!("{name} {part} {fault:?}: {}{}", outcome.stdout, outcome.stderr);
            assert_eq!(outcome.status, Some(2), "{case}");
            let target = &outcome.report().json["targets"][0];
            assert_eq!(target["findings"].as_array().unwrap().len(), 0, "{case}");
            assert_ne!(target["unread"].as_array().map_or(0, Vec::len), 0, "{case}");
            assert!(target["unread"].to_string().contains(says), "{case}");
        }
        // Folders: it is not known what the table is, or what else is in it.
        let (log, data) = if name == TABLES[0] {
            ("prefix=it%2F_delta_log", "prefix=it%2Fkind")
        } else {
            ("prefix=it%2Fmetadata", "prefix=it%2Fdata")
        };
        for part in [log, data] {
            let server = Server::start();
            server.put_folder("it", &table);
            server.fail(part, usize::MAX, Fault::Status(503));
            let outcome = run(&mut command(&server, "check", &["s3://bucket/it"]));
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert_eq!(outcome.status, Some(2), "{part}: {said}");
            assert!(said.contains("SlowDown") && !said.contains("damage "), "{part}: {said}");
        }
    }
}

#[test]
fn table_of_a_bucket_is_checked_by_parts_of_a_plan() {
    let folder = golden_table(TABLES[0]);
    let table = folder.path().join("table");
    wound(&table, "a file is gone");
    let server = Server::start();
    server.put_folder("lake/it", &table);
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plan, result) = (place("plan"), place("result"));
    let planned = run(&mut command(&server, "plan", &["s3://bucket/lake", "-o", &plan]));
    assert_eq!(planned.status, Some(0), "{planned:?}");
    let part = run(&mut command(&server, "check", &["--plan", &plan, "-o", &result]));
    assert_eq!(part.status, Some(1), "{part:?}");
    let merged = run(pagewarden().args(["merge", "--json", &plan, &result])).report().json;
    let whole = run(&mut command(&server, "check", &["--json", "s3://bucket/lake"]));
    assert_eq!(comparable(&merged, "-"), comparable(&whole.report().json, "-"));
}

#[test]
fn table_in_a_bucket_is_compared_with_its_copy_here_and_what_does_not_come_is_never_equal() {
    let folder = golden_table(TABLES[1]);
    let table = folder.path().join("table");
    let here = format!("parquet:{}", table.display());
    let there = "parquet:s3://bucket/lake/table";
    let file = needed(&table);
    let name: &str = file.file_name().unwrap().to_str().unwrap().to_owned().leak();
    let compare = |server: &Server| run(&mut command(server, "compare", &["--json", &here, there]));
    let json = |text: &str| -> Value { serde_json::from_str(text).unwrap() };

    let server = Server::start();
    server.put_folder("lake/table", &table);
    let equal = compare(&server);
    assert_eq!(equal.status, Some(0), "{equal:?}");
    assert_eq!(json(&equal.stdout)["verdict"], "equal", "{equal:?}");
    let sums = |of: &str| {
        let summed = run(&mut command(&server, "checksum", &["--json", of]));
        assert_eq!(summed.status, Some(0), "{summed:?}");
        let table = json(&summed.stdout)["tables"][0].clone();
        (table["checksum"].clone(), table["rows"].clone())
    };
    assert_eq!(sums(there).1, 110);
    assert_eq!(sums(there), sums(&here));

    for fault in [Fault::Status(503), Fault::Status(403), Fault::CutBody] {
        let server = Server::start();
        server.put_folder("lake/table", &table);
        server.fail(name, usize::MAX, fault);
        let outcome = compare(&server);
        assert_eq!(outcome.status, Some(2), "{fault:?}: {outcome:?}");
        assert!(!outcome.stdout.contains("\"verdict\":\"equal\""), "{fault:?}: {outcome:?}");
    }
    let absent = run(&mut command(&server, "compare", &["parquet:s3://bucket/none", &here]));
    assert_eq!(absent.status, Some(2), "{absent:?}");
    assert!(absent.stderr.contains("there is no such object"), "{absent:?}");
}

#[test]
fn real_stores_give_the_reports_of_tables_and_files_that_a_disk_gives() {
    for kind in KINDS {
        let Some(store) = Store::start(kind) else { continue };
        for name in TABLES {
            for (number, (what, _)) in WOUNDS.iter().enumerate() {
                // The others are tried with one store.
                if number > 3 && kind != Kind::Versity {
                    continue;
                }
                let folder = golden_table(name);
                let table = folder.path().join("table");
                wound(&table, what);
                let key = format!("{}/{number} a+b", name.replace('/', "-"));
                store.put_folder(&key, &table);
                let address = store.address(&key);
                reports(&table, &address, |arguments| store.command("check", arguments));
            }
        }
        let folder = exports();
        store.put_folder("exports", folder.path());
        let here = run(pagewarden().args(["check", "--json"]).arg(folder.path())).report().json;
        let there = run(&mut store.command("check", &["--json", &store.address("exports")]));
        assert_eq!(found(&there.report().json), found(&here), "{kind:?}");
    }
}
