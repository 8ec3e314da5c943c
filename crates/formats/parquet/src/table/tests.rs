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
    let log = |version: u32| PathBuf::from(format!("_delta_log/{version:020}.json"));
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

/// Versions that a checkpoint replaces are deleted after a while.
#[test]
fn table_that_begins_with_a_checkpoint_is_incomplete_and_its_files_are_tested() {
    let table = Table::golden(DELTA);
    let log = table.path(Path::new("_delta_log"));
    let some = table.path(&table.named()[0]);
    fs::copy(some, log.join("00000000000000000001.checkpoint.parquet")).unwrap();
    for version in [0, 1] {
        fs::remove_file(log.join(format!("{version:020}.json"))).unwrap();
    }
    let (verdict, files, seen) = table.check();
    assert_eq!((verdict, seen.findings.len()), (Verdict::Incomplete, 0), "{:?}", seen.findings);
    assert!(seen.notes[0].contains("checkpoint"), "{:?}", seen.notes);
    // Three that are current, and the checkpoint.
    assert_eq!(files, 4);
}

#[test]
fn names_that_lead_out_of_the_table_are_not_followed() {
    for (path, is_inside) in
        [("../other/a.parquet", false), ("/etc/passwd", false), ("s3://b/a.parquet", true)]
    {
        let table = Table(tempfile::tempdir().unwrap());
        fs::create_dir(table.path(Path::new("_delta_log"))).unwrap();
        let line = format!("{{\"add\":{{\"path\":\"{path}\",\"size\":5}}}}\n");
        fs::write(table.path(Path::new("_delta_log/00000000000000000000.json")), line).unwrap();
        let (_, files, seen) = table.check();
        let said = (files, seen.unread.len(), seen.findings.len());
        // As a folder of that name, it would be inside: it is not there.
        assert_eq!(said, if is_inside { (0, 0, 1) } else { (0, 1, 0) }, "{path}");
    }
}

/// Any byte of the books may be wrong: no panic, and an end.
#[test]
fn books_with_any_byte_changed_are_read_to_their_end() {
    for name in [DELTA, ICEBERG] {
        let table = Table::golden(name);
        let folder = if name == DELTA { "_delta_log" } else { "metadata" };
        for entry in fs::read_dir(table.path(Path::new(folder))).unwrap() {
            let path = entry.unwrap().path();
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
            "{{\"metaData\":{{\"schemaString\":\"{schema}\",\"partitionColumns\":[],\
             \"configuration\":{{{settings}}}}}}}\n\
             {{\"add\":{{\"path\":\"a.parquet\",\"size\":9{vector}}}}}\n"
        );
        fs::write(folder.path().join("_delta_log/00000000000000000000.json"), log).unwrap();
        match snapshot(&folder.path().into()) {
            Ok(snapshot) => format!("{} of {}", snapshot.files.len(), snapshot.columns[0].name),
            Err(Obstacle::Unsupported(why)) => why,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(why("", ""), "1 of id");
    let vector = r#","deletionVector":{"storageType":"u","cardinality":6}"#;
    assert!(why("", vector).contains("deletion vectors"));
    assert!(why(r#""delta.columnMapping.mode":"name""#, "").contains("column mapping by name"));
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
