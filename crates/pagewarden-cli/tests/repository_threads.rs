//! Repositories that are read by several threads: the report is that of one, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::pgbackrest::repository;
use crate::runner::{pagewarden, run};

/// Stored repositories, with the folder below that of the collection.
const REPOSITORIES: [(&str, &str); 15] = [
    ("barman-3.19-tar-zstd", "demo"),
    ("barman-3.4-tar-gz", "demo"),
    ("barman-cloud-gz", "gz"),
    ("barman-cloud-snappy", "snappy"),
    ("pgbackrest-2.45-bundle-lz4", "repo"),
    ("pgbackrest-2.45-gz", "repo"),
    ("pgbackrest-2.60-block-lz4", "repo"),
    ("pgbackrest-2.60-block-zst", "repo"),
    ("pgbackrest-2.60-block-zst-cipher", "repo"),
    ("pgbackrest-2.60-block-zst-pageerror", "repo"),
    ("pgbackrest-2.60-bundle-gz-cipher", "repo"),
    ("pgbackrest-2.60-zst", "repo"),
    ("walg-brotli-parts", "repo"),
    ("walg-lz4", "repo"),
    ("walg-zstd", "repo"),
];

/// All that a report says, but how long it took.
fn report(folder: &Path, pass: &str, jobs: &str) -> String {
    let mut check = pagewarden();
    check.args(["check", "--json", "--jobs", jobs]).arg(folder);
    let outcome = run(check.env("PGBACKREST_REPO1_CIPHER_PASS", pass));
    let mut json = outcome.report().json;
    without_times(&mut json);
    let status = outcome.status;
    format!("{status:?}\n{}\n{}", outcome.stderr, serde_json::to_string_pretty(&json).unwrap())
}

fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !["elapsed", "second", "pace"].iter().any(|it| name.contains(it))
            });
            fields.values_mut().for_each(without_times);
        }
        Value::Array(values) => values.iter_mut().for_each(without_times),
        _ => {}
    }
}

fn is_the_same_with_all(folder: &Path, pass: &str, what: &str) -> String {
    let one = report(folder, pass, "1");
    for jobs in ["2", "4", "16"] {
        assert_eq!(report(folder, pass, jobs), one, "{what}, {jobs} threads");
    }
    one
}

fn copy(from: &Path, to: &Path, files: &mut Vec<PathBuf>) {
    fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> = fs::read_dir(from).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to, files);
        } else if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), &to).unwrap();
            files.push(to);
        }
    }
}

#[test]
fn report_of_a_repository_is_the_same_with_any_number_of_threads() {
    for (name, folder) in REPOSITORIES {
        let Some((repository, pass)) = repository(name) else { return };
        is_the_same_with_all(&repository.with_file_name(folder), &pass, name);
    }
}

#[test]
fn report_of_a_damaged_repository_is_the_same_with_any_number_of_threads() {
    for (name, folder) in REPOSITORIES {
        let Some((repository, pass)) = repository(name) else { return };
        let place = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        copy(&repository.with_file_name(folder), place.path(), &mut files);
        files.retain(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            !name.contains(".info") && !name.contains("manifest") && !name.contains("json")
        });
        // Many files, in all the ways in which a disk loses them.
        for (index, path) in files.iter().enumerate().filter(|(index, _)| index % 3 == 0) {
            let mut bytes = fs::read(path).unwrap();
            match index % 4 {
                0 if !bytes.is_empty() => {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 0x40;
                    fs::write(path, bytes).unwrap();
                }
                1 => fs::remove_file(path).unwrap(),
                2 => fs::write(path, &bytes[..bytes.len() * 2 / 3]).unwrap(),
                _ => {
                    bytes.extend_from_slice(b"more");
                    fs::write(path, bytes).unwrap();
                }
            }
        }
        let report = is_the_same_with_all(place.path(), &pass, name);
        assert!(report.starts_with("Some(1)"), "{name} is found to be damaged: {report}");
    }
}
