//! Golden tables, copied and damaged.

#![allow(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::fs;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use super::*;
use crate::files::{open as open_path, probe};
use pagewarden_core::database::Probe;
use pagewarden_core::source::store::{Store, StoredBytes};
use pagewarden_core::verdict::Verdict;
use pagewarden_core::verify::{Caching, Options, Sink, verify};

const DELTA: &str = "deltalake-1.6.6/table";
const ICEBERG: &str = "pyiceberg-0.12.0/table";
/// Of the Spark connector: checkpoints of several files, and of JSON lines with the rest elsewhere. Both
/// have deletion vectors.
const PARTS: &str = "delta-spark-4.0.0/parts";
const V2: &str = "delta-spark-4.0.0/v2";
/// Of its Spark runtime, with deletion vectors.
const ICEBERG_3: &str = "iceberg-spark-1.10.0/v3";

/// What a Delta table begins with.
const BEGIN: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"}]}"}}"#;

/// What else an added file must have.
const REST: &str = r#""partitionValues":{},"modificationTime":1,"dataChange":true"#;

struct Table(tempfile::TempDir);

#[derive(Default)]
struct Kept {
    findings: Vec<Finding>,
    unread: Vec<Unread>,
    notes: Vec<String>,
}

impl Sink for Kept {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unread.push(unread.clone());
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes.push(note.text.clone());
        Ok(())
    }
}

fn copy(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        let to = target.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

impl Table {
    fn golden(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/parquet");
        let table = Self(tempfile::tempdir().unwrap());
        copy(&Path::new(folder).join(name), table.0.path());
        table
    }

    fn path(&self, place: &Path) -> PathBuf {
        self.0.path().join(place)
    }

    /// The files that the current state names, and its engine.
    fn named(&self) -> Vec<PathBuf> {
        let folder = StorePath::local(self.0.path());
        let books = Form::of(&folder).unwrap().unwrap().read(&folder);
        books.unwrap().files.into_iter().map(|file| file.place.unwrap()).collect()
    }

    fn check(&self) -> (Verdict, u64, Kept) {
        let path = self.0.path();
        let metadata = fs::metadata(path).unwrap();
        assert_eq!(probe(path, &metadata), Probe::Yes);
        let target = open_path(path, &metadata, &OpenOptions::default()).unwrap();
        let mut seen = Kept::default();
        let options =
            Options { jobs: NonZero::<usize>::MIN, caching: Caching::Cached, ..Options::default() };
        let verified = verify(target, &options, &(), &mut seen).unwrap();
        (verified.verdict(), verified.summary.files, seen)
    }

    /// The kinds of all findings, with their files.
    fn found(&self) -> Vec<(Kind, String)> {
        let (_, _, seen) = self.check();
        seen.findings.into_iter().map(|it| (it.kind, it.place.file)).collect()
    }
}

#[test]
fn golden_tables_are_sound_and_files_of_earlier_states_are_not_tested() {
    for (name, files) in [(DELTA, 3), (ICEBERG, 2)] {
        let (verdict, read, seen) = Table::golden(name).check();
        let said = (verdict, read, seen.findings.len(), seen.unread.len(), seen.notes.len());
        assert_eq!(said, (Verdict::Unprotected, files, 0, 0, 0), "{name}: {:?}", seen.findings);
    }
}

#[test]
fn each_file_that_is_gone_cut_or_another_one_is_damage() {
    for name in [DELTA, ICEBERG] {
        let names = Table::golden(name).named();
        assert!(names.len() > 1);
        for (place, other) in names.iter().zip(names.iter().rev()) {
            let table = Table::golden(name);
            let file = place.to_string_lossy().into_owned();
            let content = fs::read(table.path(place)).unwrap();
            fs::remove_file(table.path(place)).unwrap();
            assert_eq!(table.found(), [(Kind::Missing, file.clone())]);
            fs::write(table.path(place), &content[..300]).unwrap();
            let cut = (Kind::Truncated, file.clone());
            assert_eq!(table.found(), [cut.clone(), cut]);
            if place != other {
                fs::copy(table.path(other), table.path(place)).unwrap();
                let kinds: Vec<_> = table.found().into_iter().map(|(kind, _)| kind).collect();
                assert!(!kinds.is_empty(), "{file}");
            }
        }
    }
}

#[test]
fn file_that_nothing_names_is_a_notice_and_one_of_an_earlier_state_is_none() {
    for name in [DELTA, ICEBERG] {
        let table = Table::golden(name);
        let first = table.named().remove(0);
        fs::copy(table.path(&first), table.path(Path::new("left-over.parquet"))).unwrap();
        let (verdict, _, seen) = table.check();
        assert_eq!(verdict, Verdict::Unprotected, "{name}");
        let [finding] = seen.findings.as_slice() else { panic!("{:?}", seen.findings) };
        assert_eq!(finding.severity, Severity::Notice);
        assert!(finding.detail.as_ref().unwrap().starts_with("1 Parquet file in the folder"));
    }
}

#[test]
fn books_that_are_gone_or_destroyed_are_damage_and_files_are_tested_all_the_same() {
    for version in [0, 1] {
        let table = Table::golden(DELTA);
        fs::remove_file(table.path(&log(version))).unwrap();
        let (verdict, files, seen) = table.check();
        assert_eq!((verdict, seen.findings[0].kind), (Verdict::Damaged, Kind::Missing));
        assert!(files > 2, "{files}");
        let table = Table::golden(DELTA);
        let mut content = fs::read(table.path(&log(version))).unwrap();
        content[0] = b'[';
        fs::write(table.path(&log(version)), content).unwrap();
        assert_eq!(table.check().0, Verdict::Damaged);
    }
    let table = Table::golden(ICEBERG);
    let mut books: Vec<_> = fs::read_dir(table.path(Path::new("metadata"))).unwrap().collect();
    books.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let mut needed = 0;
    for entry in books {
        let path = entry.unwrap().path();
        let content = fs::read(&path).unwrap();
        if path.extension().unwrap() == "json" {
            continue;
        }
        fs::remove_file(&path).unwrap();
        let gone = table.check();
        // Those that only earlier snapshots need may be gone.
        if gone.0 == Verdict::Damaged {
            needed += 1;
            assert_eq!(gone.2.findings[0].kind, Kind::Missing);
            fs::write(&path, &content[..content.len() - 20]).unwrap();
            let (verdict, files, _) = table.check();
            assert_eq!(verdict, Verdict::Damaged);
            assert!(files >= 2, "{files}");
        }
        fs::write(&path, content).unwrap();
    }
    // A list and a manifest that has the files, and one of deleted ones.
    assert!(needed >= 2, "{needed}");
}

/// The versions up to the newest checkpoint are deleted after a while.
fn clean(table: &Table) {
    for version in 0..=6 {
        fs::remove_file(table.path(&log(version))).unwrap();
    }
}

fn log(version: u32) -> PathBuf {
    PathBuf::from(format!("_delta_log/{version:020}.json"))
}

/// The files of the checkpoint of a version, first those that name others.
fn checkpoint(table: &Table, version: u32) -> Vec<PathBuf> {
    let begin = format!("{version:020}.checkpoint.");
    let mut places = Vec::new();
    for folder in ["_delta_log", "_delta_log/_sidecars"] {
        for entry in fs::read_dir(table.path(Path::new(folder))).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            places.extend(name.starts_with(&begin).then(|| Path::new(folder).join(name)));
        }
    }
    places
}

#[test]
fn tables_of_spark_are_intact_by_all_versions_and_by_a_checkpoint() {
    for name in [PARTS, V2] {
        let table = Table::golden(name);
        let (verdict, all, seen) = table.check();
        assert_eq!(verdict, Verdict::Intact, "{name}: {:?} {:?}", seen.findings, seen.notes);
        let named = table.named();
        let values = || {
            let books = Form::Delta.read(&StorePath::local(table.0.path())).unwrap();
            let of = |file: Named| (file.place, file.values);
            books.files.into_iter().map(of).collect::<HashMap<_, _>>()
        };
        let by_the_log = values();
        assert!(by_the_log.values().any(|values| !values.is_empty()), "{name} has partitions");
        clean(&table);
        assert_eq!(values(), by_the_log, "{name}");
        let (verdict, files, seen) = table.check();
        assert_eq!((verdict, files), (Verdict::Intact, all), "{name}: {:?}", seen.findings);
        assert_eq!(table.named(), named, "{name}");
        assert!(seen.notes.is_empty() && seen.unread.is_empty(), "{name}: {:?}", seen.notes);
    }
}

#[test]
fn checkpoint_that_is_gone_or_destroyed_is_damage_if_it_is_needed() {
    for name in [PARTS, V2] {
        let count = checkpoint(&Table::golden(name), 6).len();
        assert!(count > 1, "{name}");
        for number in 0..count {
            let table = Table::golden(name);
            clean(&table);
            let place = checkpoint(&table, 6).remove(number);
            let content = fs::read(table.path(&place)).unwrap();
            fs::remove_file(table.path(&place)).unwrap();
            let (verdict, files, seen) = table.check();
            assert_eq!(verdict, Verdict::Damaged, "{name}");
            assert_eq!(seen.findings[0].kind, Kind::Missing, "{:?}", seen.findings);
            assert!(files > 4, "{name}: {files}");
            // A footer has no sum: only where it begins and what it lacks is seen.
            let mut other = content.clone();
            other[..content.len() - 20].reverse();
            for wounded in [content[..content.len() / 2].to_vec(), Vec::new(), other] {
                fs::write(table.path(&place), wounded).unwrap();
                let (verdict, _, seen) = table.check();
                let files: Vec<_> =
                    seen.findings.iter().map(|it| Path::new(&it.place.file)).collect();
                assert_eq!(verdict, Verdict::Damaged, "{name}: {place:?}");
                assert!(files.contains(&&*place), "{name}: {place:?} {files:?}");
            }
        }
    }
}

/// A program that begins there would see another table.
#[test]
fn checkpoint_with_other_files_than_the_versions_before_it_is_damage() {
    for name in [PARTS, V2] {
        let table = Table::golden(name);
        checkpoint(&table, 6).iter().for_each(|place| fs::remove_file(table.path(place)).unwrap());
        // Readers are led to it, although all versions are there.
        let missing = "_delta_log/00000000000000000006.checkpoint.parquet".to_owned();
        assert_eq!(table.found(), [(Kind::Missing, missing)], "{name}");
        fs::remove_file(table.path(Path::new("_delta_log/_last_checkpoint"))).unwrap();
        assert_eq!(table.check().0, Verdict::Intact, "{name}");
        for place in checkpoint(&table, 3).iter().filter(|it| !it.ends_with("_sidecars")) {
            let text = place.to_string_lossy().replace("3.checkpoint", "4.checkpoint");
            if !text.contains("_sidecars") {
                fs::rename(table.path(place), table.path(Path::new(&text))).unwrap();
            }
        }
        let (verdict, _, seen) = table.check();
        let [finding] = seen.findings.as_slice() else { panic!("{:?}", seen.findings) };
        assert_eq!((verdict, finding.kind), (Verdict::Damaged, Kind::Structure));
        assert!(finding.place.file.contains("4.checkpoint"), "{finding:?}");
        let detail = finding.detail.as_ref().unwrap();
        assert!(detail.contains("which versions 0 to 4 have"), "{detail}");
        // Where they are gone, only the sum of a later version contradicts it.
        (0..=4).for_each(|version| fs::remove_file(table.path(&log(version))).unwrap());
        assert_eq!(table.check().0, Verdict::Damaged, "{name}");
        let sums = (4..=8).map(|version| log(version).with_extension("crc"));
        sums.for_each(|sum| fs::remove_file(table.path(&sum)).unwrap());
        assert_eq!(table.check().0, Verdict::Intact, "{name}");
    }
}

#[test]
fn version_that_says_nothing_or_no_table_is_damage() {
    for (name, last) in [(DELTA, 2), (V2, 8)] {
        for version in 0..=last {
            let table = Table::golden(name);
            fs::write(table.path(&log(version)), "\n").unwrap();
            let found = table.found();
            let expected = (Kind::Structure, log(version).to_string_lossy().into_owned());
            assert!(found.contains(&expected), "{name} {version}: {found:?}");
        }
        for action in ["protocol", "metaData"] {
            let table = Table::golden(name);
            let begin = fs::read_to_string(table.path(&log(0))).unwrap();
            let lines = begin.lines().filter(|line| !line.starts_with(&format!("{{\"{action}\"")));
            fs::write(table.path(&log(0)), lines.collect::<Vec<_>>().join("\n")).unwrap();
            assert_eq!(table.check().0, Verdict::Damaged, "{name} {action}");
            // An action of a newer protocol, or one bit of a known one.
            let other = begin.replacen(action, "another", 1);
            fs::write(table.path(&log(0)), other).unwrap();
            let (verdict, _, seen) = table.check();
            assert_eq!(verdict, Verdict::Damaged, "{name} {action}");
            assert!(seen.notes[0].contains("another"), "{:?}", seen.notes);
        }
    }
}

#[test]
fn list_of_another_snapshot_or_another_kind_is_no_list_of_the_current_one() {
    let table = Table::golden(ICEBERG);
    let mut lists = Vec::new();
    let mut manifests = Vec::new();
    for entry in fs::read_dir(table.path(Path::new("metadata"))).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.extension().is_some_and(|it| it == "avro") {
            true if name.starts_with("snap-") => lists.push(path),
            true => manifests.push(path),
            false => {}
        }
    }
    let good =
        |lists: &Vec<PathBuf>| lists.iter().map(|it| fs::read(it).unwrap()).collect::<Vec<_>>();
    let contents = good(&lists);
    let other_kind = fs::read(&manifests[0]).unwrap();
    let mut verdicts = Vec::new();
    for (list, content) in lists.iter().zip(&contents) {
        fs::write(list, &other_kind).unwrap();
        verdicts.push(table.check().0);
        for other in contents.iter().filter(|other| *other != content) {
            fs::write(list, other).unwrap();
            verdicts.push(table.check().0);
        }
        fs::write(list, content).unwrap();
    }
    // One list is the current one.
    let wrong: Vec<_> =
        verdicts.iter().filter(|verdict| **verdict != Verdict::Unprotected).collect();
    assert_eq!(wrong.len(), lists.len(), "{verdicts:?}");
}

#[test]
fn sum_of_a_version_with_other_files_than_the_log_is_damage() {
    for name in [PARTS, V2] {
        let table = Table::golden(name);
        let sum = |version| log(version).with_extension("crc");
        fs::copy(table.path(&sum(5)), table.path(&sum(8))).unwrap();
        let expected = [(Kind::Checksum, sum(8).to_string_lossy().into_owned())];
        assert_eq!(table.found(), expected, "{name}");
        clean(&table);
        assert_eq!(table.found(), expected, "{name}");
        // That of the checkpoint, with no other behind it.
        [7, 8].iter().for_each(|version| fs::remove_file(table.path(&sum(*version))).unwrap());
        assert_eq!(table.found(), []);
        fs::copy(table.path(&sum(5)), table.path(&sum(6))).unwrap();
        assert_eq!(table.found()[0].0, Kind::Checksum);
        fs::write(table.path(&sum(6)), "{}").unwrap();
        let (verdict, _, seen) = table.check();
        assert_eq!((verdict, seen.findings[0].severity), (Verdict::Intact, Severity::Notice));
    }
}

#[test]
fn each_bit_of_a_deletion_vector_counts() {
    for (name, form) in [(PARTS, Form::Delta), (V2, Form::Delta), (ICEBERG_3, Form::Iceberg)] {
        let table = Table::golden(name);
        let books = form.read(&StorePath::local(table.0.path())).unwrap();
        let mut vectors = 0;
        for named in books.files {
            let Content::Vectors(_, of_file) = named.content else { continue };
            let place = named.place.unwrap();
            let content = fs::read(table.path(&place)).unwrap();
            let file = place.to_string_lossy().into_owned();
            for vector in &of_file {
                vectors += 1;
                let begin = usize::try_from(vector.offset).unwrap();
                let length = u32::from_be_bytes(*content[begin..].first_chunk().unwrap());
                for at in begin..begin + 8 + usize::try_from(length).unwrap() {
                    let mut other = content.clone();
                    other[at] ^= 1 << (at % 8);
                    fs::write(table.path(&place), other).unwrap();
                    let [(kind, found)] = &table.found()[..] else { panic!("{file} {at}") };
                    let is_length = at < begin + 4;
                    let expected = if is_length { Kind::Structure } else { Kind::Checksum };
                    assert_eq!((*kind, found), (expected, &file), "{at}");
                }
            }
            let mut other = content.clone();
            other[0] = 2;
            fs::write(table.path(&place), other).unwrap();
            assert_eq!(table.found(), [(Kind::Header, file.clone())]);
            fs::write(table.path(&place), &content[..content.len() - 1]).unwrap();
            let kinds: Vec<_> = table.found().into_iter().map(|(kind, _)| kind).collect();
            let expected: &[Kind] = match form {
                Form::Delta => &[Kind::Truncated],
                // Its length is in a manifest, and its end has a mark.
                Form::Iceberg => &[Kind::Truncated, Kind::Header],
            };
            assert_eq!(kinds, expected);
            fs::remove_file(table.path(&place)).unwrap();
            assert_eq!(table.found(), [(Kind::Missing, file)]);
            fs::write(table.path(&place), &content).unwrap();
        }
        assert!(vectors >= 3, "{name}: {vectors}");
    }
}

/// The program was ended, or is about to write the hint.
#[test]
fn states_that_follow_the_hint_count_and_those_behind_a_gap_do_not() {
    let table = Table::golden(ICEBERG_3);
    let state = || Form::Iceberg.read(&StorePath::local(table.0.path())).unwrap().state;
    assert_eq!(state(), "by metadata/v9.metadata.json");
    fs::write(table.path(Path::new("metadata/version-hint.text")), "6").unwrap();
    assert_eq!(state(), "by metadata/v9.metadata.json");
    fs::remove_file(table.path(Path::new("metadata/v8.metadata.json"))).unwrap();
    assert_eq!(state(), "by metadata/v7.metadata.json");
    let hint = table.path(Path::new("metadata/version-hint.text"));
    fs::write(&hint, u64::MAX.to_string()).unwrap();
    assert_eq!(state(), "by metadata/v9.metadata.json");
    // The newest state is lost. Of an old one that was removed in time, the hint may still tell.
    fs::write(&hint, "10").unwrap();
    assert_eq!(table.found()[0], (Kind::Missing, "metadata/v10.metadata.json".to_owned()));
    fs::write(&hint, "0").unwrap();
    assert!(table.found().iter().all(|(_, file)| !file.contains("/v0.")));
}

#[test]
fn footer_of_a_puffin_file_must_have_the_vectors_that_the_table_names() {
    let table = Table::golden(ICEBERG_3);
    assert_eq!(table.found(), []);
    let books = Form::Iceberg.read(&StorePath::local(table.0.path())).unwrap();
    let is_puffin = |named: &&Named| matches!(named.content, Content::Vectors(..));
    let place = books.files.iter().find(is_puffin).unwrap().place.clone().unwrap();
    let content = fs::read(table.path(&place)).unwrap();
    let find = |text: &[u8]| content.windows(text.len()).rposition(|it| it == text).unwrap();
    let length = content.len() - 12;
    let offset = find(b"\"offset\":") + 9;
    for (at, byte) in
        [(0, b'X'), (content.len() - 1, b'X'), (length, 0xFF), (length + 2, 0xFF), (offset, b'8')]
    {
        let mut other = content.clone();
        assert_ne!(other[at], byte);
        other[at] = byte;
        fs::write(table.path(&place), other).unwrap();
        let expected = (Kind::Header, place.to_string_lossy().into_owned());
        assert_eq!(table.found(), [expected], "{at}");
    }
}

/// Nothing says then which files are current.
#[test]
fn table_that_has_lost_all_of_its_books_is_still_a_table() {
    for (name, folder, ending) in [(DELTA, "_delta_log", ""), (ICEBERG, "metadata", ".json")] {
        let table = Table::golden(name);
        for entry in fs::read_dir(table.path(Path::new(folder))).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with(ending) {
                fs::remove_file(path).unwrap();
            }
        }
        assert!(is_table(&table.0.path().into()).unwrap(), "{name}");
        let (verdict, _, seen) = table.check();
        let said = (verdict, seen.findings.len(), seen.unread.len());
        assert_eq!(said, (Verdict::Incomplete, 0, 1), "{name}");
        let refused = snapshot(&table.0.path().into()).unwrap_err();
        assert!(matches!(refused, Obstacle::Unsupported(_)), "{refused:?}");
    }
}

/// deltalake refuses a table whose log lacks what the protocol requires.
#[test]
fn action_that_lacks_what_the_protocol_requires_is_damage() {
    let table = Table::golden(DELTA);
    let place = log(0);
    let good = fs::read_to_string(table.path(&place)).unwrap();
    for name in [
        "size",
        "partitionValues",
        "modificationTime",
        "dataChange",
        "minReaderVersion",
        "minWriterVersion",
    ] {
        let field = format!("\"{name}\":");
        assert!(good.contains(&field), "{name}");
        fs::write(table.path(&place), good.replacen(&field, "\"x\":", 1)).unwrap();
        let found = table.found();
        let expected = (Kind::Header, place.to_string_lossy().into_owned());
        assert!(found.contains(&expected), "{name}: {found:?}");
    }
}

/// Those of a shallow clone are read where they are, and those of another store are unread.
#[test]
fn files_outside_of_the_folder_of_a_table_are_followed_in_the_same_store() {
    let golden = Table::golden(DELTA);
    let data = golden.named().pop().unwrap();
    let bytes = fs::metadata(golden.path(&data)).unwrap().len();
    let absolute = golden.path(&data).display().to_string();
    let up = Path::new("..").join(golden.0.path().file_name().unwrap()).join(&data);
    let is = |path: &str| {
        let table = Table(tempfile::tempdir().unwrap());
        fs::create_dir(table.path(Path::new("_delta_log"))).unwrap();
        let line =
            format!("{BEGIN}\n{{\"add\":{{\"path\":\"{path}\",\"size\":{bytes},{REST}}}}}\n");
        fs::write(table.path(Path::new("_delta_log/00000000000000000000.json")), line).unwrap();
        let (_, files, seen) = table.check();
        let is_read = snapshot(&table.0.path().into()).is_ok();
        (files, seen.unread.len(), seen.findings.len(), is_read)
    };
    let escaped = |path: &str| path.replace('%', "%25");
    for path in [&absolute, &format!("file:{absolute}"), &format!("file://{absolute}")] {
        assert_eq!(is(&escaped(path)), (1, 0, 0, true), "{path}");
    }
    assert_eq!(is(&escaped(&up.display().to_string())), (1, 0, 0, true));
    assert_eq!(is(&format!("{absolute}.gone")), (0, 0, 1, true));
    assert_eq!(is("s3://b/a.parquet"), (0, 1, 0, false));
    // It is inside, and not there.
    assert_eq!(is("k=x%3Ay/a:b.parquet"), (0, 0, 1, true));
}

/// Any byte of the books may be wrong: no panic, and an end.
#[test]
fn books_with_any_byte_changed_are_read_to_their_end() {
    for name in [DELTA, ICEBERG, V2] {
        let table = Table::golden(name);
        let folder = if name == ICEBERG { "metadata" } else { "_delta_log" };
        for entry in fs::read_dir(table.path(Path::new(folder))).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let good = fs::read(&path).unwrap();
            for at in (0..good.len()).step_by(61) {
                let mut bytes = good.clone();
                bytes[at] ^= 0x55;
                fs::write(&path, &bytes).unwrap();
                if is_table(&table.0.path().into()).unwrap() {
                    table.check();
                }
            }
            fs::write(&path, &good).unwrap();
        }
    }
}

#[test]
fn hostile_avro_ends_in_an_error() {
    let schema = |schema: &str| {
        let mut file = b"Obj\x01\x02\x16avro.schema".to_vec();
        let [low, ..] = schema.len().to_le_bytes();
        let [high, ..] = (schema.len() >> 6).to_le_bytes();
        file.extend([low << 1 | 0x80, high]);
        file.extend(schema.as_bytes());
        file.push(0);
        file.extend([7; 16]);
        file
    };
    let endless = r#"{"type":"record","name":"a","fields":[{"name":"b","type":"a"}]}"#;
    for (kind, block) in [
        // A record in itself.
        (endless, vec![2, 0]),
        // Nothing, a million million times.
        (r#""null""#, vec![0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0]),
        (r#"{"type":"array","items":"null"}"#, vec![2, 0x0C, 0xFE, 0xFF, 0xFF, 0xFF, 0x7F, 0]),
        (r#"["null"]"#, vec![2, 2, 9]),
        (r#""nothing of the kind""#, vec![2, 0]),
    ] {
        let file = [schema(kind), block, vec![7; 16]].concat();
        assert!(avro::records(&file).is_err(), "{kind}");
    }
}

/// Rows that are not simply those of the files are refused, and never read as if they were.
#[test]
fn snapshot_of_rows_that_are_not_those_of_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("_delta_log")).unwrap();
    let schema = r#"{\"fields\":[{\"name\":\"id\",\"type\":\"long\"}]}"#;
    let why = |settings: &str, vector: &str| {
        let log = format!(
            "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"schemaString\":\"{schema}\",\"partitionColumns\":[],\
             \"configuration\":{{{settings}}}}}}}\n\
             {{\"add\":{{\"path\":\"a.parquet\",\"size\":9,{REST}{vector}}}}}\n"
        );
        fs::write(folder.path().join("_delta_log/00000000000000000000.json"), log).unwrap();
        match snapshot(&folder.path().into()) {
            Ok(snapshot) => format!("{} of {}", snapshot.files.len(), snapshot.columns[0].name),
            Err(Obstacle::Unsupported(why)) => why,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(why("", ""), "1 of id");
    let vector = r#","deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^",
        "offset":1,"sizeInBytes":40,"cardinality":6}"#;
    assert_eq!(why("", &vector.replace('\n', "")), "1 of id");
    assert!(why(r#""delta.columnMapping.mode":"name""#, "").contains("column mapping"));
    assert!(why(r#""delta.columnMapping.mode":"other""#, "").contains("column mapping"));
    assert!(matches!(snapshot(&Path::new("/nonexistent").into()), Err(Obstacle::Io(_))));
}

/// The folders of this machine, as a store elsewhere has them, which lists each once.
#[derive(Debug, Default)]
struct Remembering(Mutex<HashMap<PathBuf, Vec<Listed>>>);

impl Store for Remembering {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let mut known = self.0.lock().unwrap();
        if let Some(listed) = known.get(folder) {
            return Ok(listed.clone());
        }
        let listed = self.list_again(folder)?;
        known.insert(folder.to_owned(), listed.clone());
        Ok(listed)
    }

    fn list_again(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        StorePath::local(folder).list()
    }

    fn look(&self, path: &Path) -> io::Result<Seen> {
        StorePath::local(path).look()
    }

    fn open(&self, file: &Path) -> io::Result<Arc<dyn StoredBytes>> {
        Ok(Arc::new(fs::File::open(file)?))
    }
}

/// Vacuumed while it is checked: the store does not list it again by itself.
#[test]
fn file_that_went_with_a_new_state_of_a_table_in_a_store_is_unread_and_not_missing() {
    for (name, book) in [
        (DELTA, "_delta_log/00000000000000000009.json"),
        (ICEBERG, "metadata/00099-later.metadata.json"),
    ] {
        for has_new_state in [false, true] {
            let table = Table::golden(name);
            let gone = table.path(&table.named()[0]);
            let folder = StorePath::new(Arc::new(Remembering::default()), table.0.path());
            let target = open(&folder, &OpenOptions::default()).unwrap();
            fs::remove_file(gone).unwrap();
            if has_new_state {
                fs::write(table.path(Path::new(book)), "{}").unwrap();
            }
            let mut kept = Kept::default();
            let options = Options { jobs: NonZero::<usize>::MIN, ..Options::default() };
            let verdict = verify(target, &options, &(), &mut kept).unwrap().verdict();
            let said = (verdict, kept.findings.len(), kept.unread.len());
            let expected = match has_new_state {
                true => (Verdict::Incomplete, 0, 1),
                false => (Verdict::Damaged, 1, 0),
            };
            assert_eq!(said, expected, "{name}: {:?} {:?}", kept.findings, kept.unread);
        }
    }
}
