//! What is said of the archive of a real server, whole and with something lost or damaged.

use std::fs;
use std::path::Path;

use super::*;
use crate::files::archived_log::folder::decoded;
use crate::files::archived_log::{LogFolder, plain_file};
use pagewarden_core::source::read_ahead::Seats;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::verdict::Severity;

const FIRST: u64 = 0xF;
const LAST: u64 = 0x14;

/// The archive of a real server, segments `..0F` to `..14`, decompressed into a folder.
fn archive() -> Option<tempfile::TempDir> {
    let stored = pagewarden_core::testing::fixtures::backups("walg-lz4/repo/wal_005")?;
    let folder = tempfile::tempdir().unwrap();
    for number in FIRST..=LAST {
        let name = name(number);
        let mut plain = plain_file(
            &mut *decoded(&StorePath::local(stored.join(format!("{name}.lz4")))).unwrap(),
        )
        .unwrap();
        io::Seek::rewind(&mut plain).unwrap();
        let mut file = fs::File::create(folder.path().join(name)).unwrap();
        io::copy(&mut plain, &mut file).unwrap();
    }
    Some(folder)
}

fn name(number: u64) -> String {
    format!("0000000100000000{number:08X}")
}

fn set(label: &str, from: u64, to: u64) -> Arc<Backup> {
    Arc::new(Backup {
        label: label.to_owned(),
        timeline: Some(1),
        from_lsn: Some(Lsn(from)),
        to_lsn: Some(Lsn(to)),
        ..Backup::default()
    })
}

/// As the sentinels of the fixture have them.
fn sets() -> Vec<Arc<Backup>> {
    vec![
        set("first", 0x100_0028, 0x100_0100),
        set("second", 0x120_0028, 0x120_0100),
        set("third", 0x140_0028, 0x140_0100),
    ]
}

fn read(folder: &Path, sets: Vec<Arc<Backup>>) -> (Vec<Finding>, Vec<Unread>, Log, String) {
    let archive = LogFolder::list(&folder.into(), &folder.into(), Box::new(decoded)).unwrap();
    let name = "main".to_owned();
    let archive = Arc::new(archive);
    let log = ArchivedLog { name, archive, sets, asked: None, waits_for_log: true };
    let (path, what) = (folder.to_owned(), "a test".to_owned());
    let outcomes = Outcomes::default();
    let log = ArchivedLogs { path, what, logs: vec![log], outcomes };
    let (mut findings, mut unread, mut end) = (Vec::new(), Vec::new(), None);
    let mut is_fetched = false;
    for step in log.into_target().steps {
        match step {
            Step::Finding(finding) => findings.push(finding),
            Step::Unread(it) => unread.push(it),
            Step::Settled(settled) => end = Some(settled.description),
            Step::Passed(_) => {}
            // One segment is fetched ahead, the next one opened in its turn.
            Step::Apart(fetch) => {
                is_fetched = !is_fetched;
                if is_fetched {
                    fetch.into_steps(&Seats::new(0)).for_each(drop);
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let Some(Description { part: Some(RepositoryPart::Whole(Some(log))), state, .. }) = end else {
        return (findings, unread, Log::default(), String::new());
    };
    (findings, unread, (*log).clone(), state)
}

fn said(findings: &[Finding]) -> Vec<(&str, Severity, Kind)> {
    findings.iter().map(|it| (&*it.place.file, it.severity, it.kind)).collect()
}

#[test]
fn sound_log_brings_every_set_to_its_end() {
    let Some(folder) = archive() else { return };
    let (findings, unread, log, state) = read(folder.path(), sets());
    assert_eq!((said(&findings), unread.len()), (vec![], 0), "{findings:?}");
    assert_eq!((log.segments, log.gaps.len()), (LAST - FIRST + 1, 0));
    let ways: Vec<_> = log.restorable.iter().map(|it| (&*it.set, it.timeline, it.to_lsn)).collect();
    let end = Lsn((LAST + 1) << 20);
    assert_eq!(ways, [("first", 1, end), ("second", 1, end), ("third", 1, end)]);
    assert!(state.starts_with("restorable from LSN 0/1000100 to 0/1500000"), "{state}");
    assert!(log.restorable[0].to_time.is_some());
}

#[test]
fn missing_segment_is_damage_to_the_set_that_needs_it() {
    for number in FIRST..=LAST {
        let Some(folder) = archive() else { return };
        fs::remove_file(folder.path().join(name(number))).unwrap();
        let (findings, _, log, _) = read(folder.path(), sets());
        let expected = match number {
            // Nothing needs the first one.
            FIRST => vec![],
            0x10 | 0x12 | 0x14 => vec![(name(number), Severity::Damage, Kind::Missing)],
            // What a tool removes that keeps the log of its sets only.
            0x11 | 0x13 => vec![(name(number), Severity::Notice, Kind::Missing)],
            _ => unreachable!(),
        };
        let found: Vec<_> = said(&findings)
            .into_iter()
            .map(|(file, severity, kind)| (file.to_owned(), severity, kind))
            .collect();
        assert_eq!(found, expected, "{number:x}");
        let lost = usize::from(matches!(number, 0x10 | 0x12 | 0x14));
        assert_eq!(log.restorable.len(), 3 - lost, "{number:x}: {:?}", log.restorable);
    }
}

#[test]
fn flipped_bit_in_any_record_is_found() {
    let mut checked = 0;
    for (number, at) in
        [(0x10, 0x28 + 30), (0x11, 0x2000 + 18), (0x11, 60), (0x12, 0x90), (0x13, 44)]
    {
        let Some(folder) = archive() else { return };
        let path = folder.path().join(name(number));
        let mut bytes = fs::read(&path).unwrap();
        if bytes[at..at + 8].iter().all(|byte| *byte == 0) {
            continue;
        }
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (findings, _, log, _) = read(folder.path(), sets());
        assert!(!findings.is_empty(), "{number:x} {at:x}: {log:?}");
        checked += 1;
    }
    assert!(checked >= 3, "{checked}");
}

#[test]
fn cut_or_foreign_segment_is_no_part_of_the_log() {
    let Some(folder) = archive() else { return };
    let path = folder.path().join(name(0x12));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..0x8000]).unwrap();
    let (findings, _, _, _) = read(folder.path(), sets());
    assert_eq!(said(&findings), [(&*name(0x12), Severity::Damage, Kind::Truncated)]);
    let mut foreign = whole;
    foreign[24] ^= 1;
    fs::write(&path, foreign).unwrap();
    let (findings, _, _, _) = read(folder.path(), sets());
    assert_eq!(said(&findings), [(&*name(0x12), Severity::Damage, Kind::Checksum)]);
}

#[test]
fn archive_without_log_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (findings, unread, log, _) = read(folder.path(), sets());
    assert_eq!((findings.len(), unread.len(), log), (3, 0, Log::default()));
    assert!(findings.iter().all(|it| it.severity == Severity::Damage), "{findings:?}");
    fs::write(folder.path().join(name(1)), vec![0; 1 << 20]).unwrap();
    let (findings, unread, _, _) = read(folder.path(), sets());
    assert_eq!((findings.len(), unread.len()), (1, 1));
}
