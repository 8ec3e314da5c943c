//! Real files as people leave them in public: stripes alone, differential and log backups, several sets
//! in one file, filler behind the last extent, log files. Each is sound, and is cut, zeroed and
//! overwritten here in many places: none of the results may be called intact.
//!
//! The files lie in the folder `wild` of the collection, some compressed with `xz`, which must be
//! installed to read them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Copy, fixture, folder, sum_stream};
use crate::runner::{Finding, Report, pagewarden, run};

const EXTENT: usize = 1 << 16;
const STREAM_HEADER: usize = 22;
/// One file of each kind: full of 2012, 2019 and with torn bits, differential, of the log, with filler.
const PUBS: &str = "../pubs-full-2012.bak";
const NORTHWIND_TORN: &str = "salihdemirog_Northwind.bak";
const FULL_2019: &str = "oguzz_full_backup.bak";
const DIFFERENTIAL: &str = "oguzz_diff_backup.bak";
const DIFFERENTIAL_SMALL: &str = "senemarici_Northwind_Final_Diff.bak";
const LOG: &str = "oguzz_transaction_log.trn";
const FILLED_UP: &str = "truonghai_QLSV.bak";
const SIX_SETS: &str = "ThanhTam_diff_6sets.bak";
const STRIPE: &str = "MarcinPepke_xyz_1of2.bak";

/// A file of the folder; `None`, said aloud, where it is not here.
pub fn wild(name: &str) -> Option<Vec<u8>> {
    let path = folder().join("wild").join(name);
    if path.exists() {
        return fixture(&format!("wild/{name}"));
    }
    let compressed = folder().join("wild").join(format!("{name}.xz"));
    let unpacked = Command::new("xz").arg("-dc").arg(&compressed).output();
    match unpacked {
        Ok(unpacked) if unpacked.status.success() => Some(unpacked.stdout),
        other => {
            assert!(std::env::var_os("CI").is_none(), "{}: {other:?}", compressed.display());
            eprintln!("SKIPPED: {}: {other:?}", compressed.display());
            None
        }
    }
}

/// A stream of a backup: its type, where its header begins, and how long its contents are.
struct Stream {
    kind: [u8; 4],
    at: usize,
    bytes: usize,
}

impl Stream {
    /// Where extents or log begin.
    fn data(&self) -> usize {
        self.at + STREAM_HEADER + 2
    }

    fn extents(&self) -> usize {
        self.bytes.saturating_sub(2) / EXTENT
    }
}

/// The streams of a plain backup, by a walk of our own.
fn streams(bytes: &[u8]) -> Vec<Stream> {
    let mut found = Vec::new();
    let mut block = 0;
    while let Some(header) = bytes.get(block..block + 52) {
        let size = usize::from(u16::from_le_bytes([header[8], header[9]]));
        let mut at = block + size;
        if &header[..4] == b"SFMB" {
            block = at;
            continue;
        }
        loop {
            let header = &bytes[at..at + STREAM_HEADER];
            let length = u64::from_le_bytes(header[8..16].try_into().unwrap());
            let kind: [u8; 4] = header[..4].try_into().unwrap();
            let length = usize::try_from(length).unwrap();
            found.push(Stream { kind, at, bytes: length });
            at = (at + STREAM_HEADER + length).next_multiple_of(4);
            if &kind == b"SPAD" {
                break;
            }
        }
        block = at;
    }
    found
}

fn checked(name: &str, bytes: &[u8]) -> Report {
    Copy::of(name.rsplit('/').next().unwrap(), bytes).check()
}

/// Says of damaged files which of them were called intact all the same.
#[derive(Default)]
struct Campaign {
    runs: usize,
    intact: Vec<String>,
}

impl Campaign {
    fn try_one(&mut self, what: &str, bytes: &[u8]) -> String {
        self.runs += 1;
        let name = if what.contains(".ldf") { "x.ldf" } else { "x.bak" };
        let verdict = checked(name, bytes).verdict().to_owned();
        if matches!(verdict.as_str(), "intact" | "unprotected") {
            self.intact.push(what.to_owned());
        }
        verdict
    }

    fn end(self, runs_min: usize) {
        assert!(self.runs >= runs_min, "{} runs", self.runs);
        assert!(self.intact.is_empty(), "{} runs, called intact: {:?}", self.runs, self.intact);
    }
}

#[test]
fn sound_files_are_intact() {
    for (name, pages) in [
        (NORTHWIND_TORN, 472),
        (FULL_2019, 456),
        ("oguzz_full_backup_recoveryfull.bak", 456),
        (DIFFERENTIAL, 136),
        (DIFFERENTIAL_SMALL, 56),
        (SIX_SETS, 336),
        (LOG, 0),
        // Forty-eight pages of filler are no pages of the database.
        (FILLED_UP, 336),
        ("sankara_NORTHWND_created_sql2000.mdf", 432),
    ] {
        let Some(bytes) = wild(name) else { return };
        let report = checked(name, &bytes);
        assert_eq!((report.verdict(), report.findings()), ("intact", vec![]), "{name}");
        assert_eq!(report.pages("total"), pages, "{name}");
    }
}

#[test]
fn extents_that_were_zeroed_are_never_intact() {
    let mut campaign = Campaign::default();
    for name in [PUBS, NORTHWIND_TORN, DIFFERENTIAL, DIFFERENTIAL_SMALL, FILLED_UP] {
        let Some(bytes) = wild(name) else { return };
        for stream in streams(&bytes).iter().filter(|stream| &stream.kind == b"MQDA") {
            for extent in 0..stream.extents() {
                let at = stream.data() + extent * EXTENT;
                // Filler is worth nothing.
                if bytes[at + 1] == 101 {
                    continue;
                }
                let mut damaged = bytes.clone();
                damaged[at..at + EXTENT].fill(0);
                let verdict = campaign.try_one(&format!("{name}: extent {extent}"), &damaged);
                assert_eq!(verdict, "damaged", "{name}: extent {extent} at {at}");
            }
        }
    }
    campaign.end(170);
}

#[test]
fn extents_that_were_taken_out_are_never_intact() {
    let mut campaign = Campaign::default();
    for name in [PUBS, NORTHWIND_TORN, DIFFERENTIAL, DIFFERENTIAL_SMALL, FILLED_UP] {
        let Some(bytes) = wild(name) else { return };
        for stream in streams(&bytes).iter().filter(|stream| &stream.kind == b"MQDA") {
            for extent in 0..stream.extents() {
                let at = stream.data() + extent * EXTENT;
                if bytes[at + 1] == 101 {
                    continue;
                }
                let mut damaged = bytes.clone();
                damaged.drain(at..at + EXTENT);
                let length = (stream.bytes - EXTENT) as u64;
                damaged[stream.at + 8..stream.at + 16].copy_from_slice(&length.to_le_bytes());
                sum_stream(&mut damaged[stream.at..]);
                let verdict = campaign.try_one(&format!("{name}: extent {extent}"), &damaged);
                assert_eq!(verdict, "damaged", "{name}: extent {extent} at {at}");
            }
        }
    }
    campaign.end(170);
}

/// What a power failure or a broken copy leaves.
#[test]
fn backups_whose_last_extents_are_zero_are_never_intact() {
    let mut campaign = Campaign::default();
    for name in [PUBS, NORTHWIND_TORN, FULL_2019, DIFFERENTIAL] {
        let Some(bytes) = wild(name) else { return };
        for stream in streams(&bytes).iter().filter(|stream| stream.extents() > 0) {
            for count in [1, 2, 4].into_iter().filter(|count| *count <= stream.extents()) {
                let end = stream.at + STREAM_HEADER + stream.bytes;
                let mut damaged = bytes.clone();
                damaged[end - count * EXTENT..end].fill(0);
                campaign.try_one(&format!("{name}: last {count} at {}", stream.at), &damaged);
            }
        }
    }
    campaign.end(18);
}

#[test]
fn log_of_a_backup_that_is_lost_in_part_or_as_a_whole_is_never_intact() {
    let mut campaign = Campaign::default();
    for name in [PUBS, NORTHWIND_TORN, FULL_2019, DIFFERENTIAL, LOG, FILLED_UP] {
        let Some(bytes) = wild(name) else { return };
        let all = streams(&bytes);
        let log = all.iter().find(|stream| &stream.kind == b"MQTL").unwrap();
        let end = log.at + STREAM_HEADER + log.bytes;
        for (fill, at, verdict) in [
            (0, log.data()..end, "damaged"),
            (0xAA, log.data()..end, "incomplete"),
            (0, log.data()..log.data() + 512, "damaged"),
            (0, log.data() + 1024..log.data() + 1536, "damaged"),
        ] {
            let mut damaged = bytes.clone();
            damaged[at.clone()].fill(fill);
            let found = campaign.try_one(&format!("{name}: {fill} in {at:?}"), &damaged);
            assert_eq!(found, verdict, "{name}: {fill} in {at:?}");
        }
        // Blocks of torn databases have no sums.
        for byte in [30, 300, 450].into_iter().filter(|_| name != NORTHWIND_TORN) {
            let mut damaged = bytes.clone();
            damaged[log.data() + byte] ^= 0x20;
            assert_eq!(campaign.try_one(&format!("{name}: byte {byte}"), &damaged), "damaged");
        }
        // All blocks of the log cut out, whole as each of the others is.
        let blocks: Vec<_> = (0..bytes.len())
            .step_by(512)
            .filter(|at| bytes[*at..].starts_with(b"MSTL") || bytes[*at..].starts_with(b"MSLS"))
            .collect();
        let mut damaged = bytes.clone();
        damaged.drain(blocks[0]..*blocks.last().unwrap());
        let found = campaign.try_one(&format!("{name}: without log"), &damaged);
        assert_eq!(found, "damaged", "{name}");
    }
    campaign.end(40);
}

#[test]
fn what_a_set_says_of_itself_is_held_against_what_it_says_at_its_end() {
    let mut campaign = Campaign::default();
    for name in [PUBS, NORTHWIND_TORN, DIFFERENTIAL, LOG, FILLED_UP] {
        let Some(bytes) = wild(name) else { return };
        for stream in streams(&bytes).iter().filter(|stream| &stream.kind == b"MQCI") {
            // The database's name, the server, the first file, and all of the positions in the log.
            let contents = stream.at + STREAM_HEADER;
            let scin = |at: usize| {
                usize::from(u16::from_le_bytes([bytes[contents + at], bytes[contents + at + 1]]))
            };
            for (at, length) in [
                (scin(106), scin(104)),
                (scin(110), scin(108)),
                (32, 40),
                (77, 5),
                (94, 2),
                (500, 1500),
                (8, stream.bytes - 8),
            ] {
                let mut damaged = bytes.clone();
                let place = contents + at..contents + at + length;
                for (byte, seed) in damaged[place].iter_mut().zip(1_u32..) {
                    *byte = (seed.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0];
                }
                campaign.try_one(&format!("{name}: {length} at {at} of {contents}"), &damaged);
            }
        }
    }
    campaign.end(60);
}

#[test]
fn stripe_alone_is_incomplete_whatever_is_in_it() {
    for name in [STRIPE, "../northwind-stripe2of2-torn-2008r2.bak"] {
        let Some(bytes) = wild(name) else { return };
        let copy = Copy::of("x.bak", &bytes);
        let report = copy.check();
        assert_eq!(report.verdict(), "incomplete");
        let unread = report.target()["unread"].as_array().unwrap();
        assert_eq!(unread.len(), 1);
        assert!(unread[0]["file"].as_str().unwrap().starts_with("media family "), "{unread:?}");
        assert_eq!((&unread[0]["offset"], &unread[0]["length"]), (&Value::Null, &Value::Null));
        let outcome = run(pagewarden().args(["check", "--nagios"]).arg(&copy.path));
        assert_eq!(outcome.status, Some(3), "{outcome:?}");
        assert!(outcome.stdout.contains("incomplete"), "{outcome:?}");
        let outcome = run(pagewarden().arg("check").arg(&copy.path));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
    }
}

/// RESTORE reads the media header first.
#[test]
fn backup_without_its_first_block_is_damaged() {
    for (name, cut) in
        [(PUBS, 4096), (FULL_2019, 4096), (FILLED_UP, 1024), (LOG, 4096), (LOG, 8192)]
    {
        let Some(bytes) = wild(name) else { return };
        let report = checked(name, &bytes[cut..]);
        assert_eq!(report.verdict(), "damaged", "{name}");
        let serious = report.serious();
        assert_eq!((serious.len(), serious[0].kind.as_str()), (1, "header"), "{name}");
        assert_eq!(serious[0].offset, Some(0), "{name}");
    }
}

/// It begins with the first page of a data file then, and is none.
#[test]
fn backup_that_was_cut_to_where_its_pages_begin_is_no_data_file() {
    for (name, cut) in [(FULL_2019, 16_384), ("../test-2datafiles-2016.bak", 16_384)] {
        let Some(bytes) = wild(name) else { return };
        let report = checked(name, &bytes[cut..]);
        assert_eq!(report.verdict(), "damaged", "{name}");
    }
    // A data file is one, whatever it is called.
    let Some(bytes) = wild("../pubs-checksum-2008.mdf") else { return };
    assert_eq!(checked("pubs.bak", &bytes).verdict(), "intact");
}

/// Whether a set is a full backup stands where no sum is, and stands there again at its end.
#[test]
fn set_whose_kind_or_number_was_overwritten_is_suspect() {
    for name in [PUBS, FULL_2019, DIFFERENTIAL, LOG] {
        let Some(bytes) = wild(name) else { return };
        let set = (0..bytes.len()).step_by(512).find(|at| bytes[*at..].starts_with(b"SSET"));
        for at in [52, 62] {
            let mut damaged = bytes.clone();
            damaged[set.unwrap() + at] ^= 0xC;
            let report = checked(name, &damaged);
            assert_eq!(report.verdict(), "suspect", "{name} {at}");
            let serious = report.serious();
            let is_told = |one: &Finding| matches!(&*one.kind, "header" | "misplaced");
            assert!(serious.iter().all(is_told), "{name} {at}: {serious:?}");
        }
    }
}

/// The text of all notes.
fn notes(report: &Report) -> Vec<String> {
    let notes = report.target()["notes"].as_array().unwrap();
    notes.iter().map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_backup_set_of_a_file_is_described() {
    let Some(bytes) = wild(SIX_SETS) else { return };
    let found = notes(&checked(SIX_SETS, &bytes));
    assert_eq!(found.len(), 6, "{found:?}");
    for (note, (number, database, begun)) in found.iter().zip([
        (1, "DB_QLBH", "2021-07-31 09:49:39"),
        (2, "DB_QLBH", "2021-07-31 09:50:04"),
        (3, "DB_QLBH1", "2021-07-31 09:51:36"),
        (4, "DB_QLBH1", "2021-07-31 09:55:43"),
        (5, "DB_QLBH1", "2021-07-31 10:01:13"),
        (6, "DB_QLBH1", "2021-07-31 10:07:28"),
    ]) {
        let begin = format!(
            "backup set {number}: differential backup of database {database}, begun {begun}"
        );
        assert!(note.starts_with(&begin), "{note}");
        assert!(note.contains("cannot be restored without that backup"), "{note}");
    }
    for (name, words) in [
        (LOG, "backup set 1: log backup of database BLM4522"),
        (FULL_2019, "backup set 1: full backup of database BLM4522"),
    ] {
        let Some(bytes) = wild(name) else { return };
        let found = notes(&checked(name, &bytes));
        assert!(found[0].starts_with(words), "{found:?}");
        assert!(found[0].ends_with("3 blocks with their sums"), "{found:?}");
    }
}

#[test]
fn differential_backup_is_never_said_to_be_all_of_the_database() {
    let Some(bytes) = wild(DIFFERENTIAL) else { return };
    let copy = Copy::of("x.bak", &bytes);
    let outcome = run(pagewarden().arg("check").arg(&copy.path));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(!outcome.stdout.contains("every page that is in use"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("a differential backup"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("proves only those"), "{}", outcome.stdout);
}

#[test]
fn unpacked_files_are_as_sound_as_the_backup_they_come_from() {
    for name in [NORTHWIND_TORN, FULL_2019, FILLED_UP] {
        let Some(bytes) = wild(name) else { return };
        let copy = Copy::of("x.bak", &bytes);
        let folder = copy.beside("out");
        let outcome = run(pagewarden().arg("unpack").arg(&copy.path).arg(&folder));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let mut files = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let report = crate::runner::check([&path]).report();
            assert_eq!((report.verdict(), report.findings()), ("intact", vec![]), "{name}");
            files += 1;
        }
        assert_eq!(files, 1, "{name}");
    }
}

#[test]
fn data_file_cut_below_what_every_file_has_is_truncated() {
    for name in ["../pubs-checksum-2008.mdf", "sankara_NORTHWND_created_sql2000.mdf"] {
        let Some(bytes) = wild(name) else { return };
        for pages in 1..10 {
            let report = checked("x.mdf", &bytes[..pages * 8192]);
            assert_eq!(report.verdict(), "damaged", "{name} {pages}");
            let found = report.serious();
            assert!(found.iter().any(|one| one.kind == "truncated"), "{name} {pages}: {found:?}");
        }
    }
    let Some(page) = wild("made_cut_to_one_page.mdf") else { return };
    assert_eq!(checked("x.mdf", &page).verdict(), "damaged");
    // Under a name that says nothing as well.
    assert_eq!(checked("x", &page).verdict(), "damaged");
    let Some(ndf) = fixture("derived-test-file3-2016.ndf") else { return };
    assert_eq!(checked("x.ndf", &ndf[..7 * 8192]).verdict(), "damaged");
    assert_eq!(checked("x.ndf", &ndf[..8 * 8192]).verdict(), "suspect");
}

/// All log files of the folder; there may be none.
fn log_files() -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder().join("wild")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names
        .map(|name| name.trim_end_matches(".xz").to_owned())
        .filter(|name| {
            Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("ldf"))
        })
        .collect();
    names.sort();
    if names.is_empty() {
        eprintln!("SKIPPED: no log file in {}", folder().join("wild").display());
    }
    names.into_iter().filter_map(|name| Some((name.clone(), wild(&name)?))).collect()
}

#[test]
fn real_log_files_are_intact_and_never_once_they_are_cut_or_zeroed() {
    let mut campaign = Campaign::default();
    for (name, bytes) in log_files() {
        let report = checked("x.ldf", &bytes);
        assert!(matches!(report.verdict(), "intact" | "unprotected"), "{name}");
        assert!(report.findings().is_empty(), "{name}");
        for eighth in 0..8 {
            let length = (8192 + (bytes.len() - 8192) * eighth / 8).next_multiple_of(512);
            campaign.try_one(&format!("{name}.ldf cut to {length}"), &bytes[..length]);
        }
        let mut damaged = bytes.clone();
        damaged[8192..].fill(0);
        campaign.try_one(&format!("{name}.ldf zeroed"), &damaged);
        damaged.copy_from_slice(&bytes);
        damaged[8192..8192 + EXTENT].fill(0);
        campaign.try_one(&format!("{name}.ldf beginning zeroed"), &damaged);
    }
    campaign.end(0);
}

/// Where each block of a backup begins, and its type.
fn blocks(bytes: &[u8]) -> Vec<([u8; 4], usize)> {
    let streams = streams(bytes);
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let kind: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        found.push((kind, at));
        let size = usize::from(u16::from_le_bytes([bytes[at + 8], bytes[at + 9]]));
        let end = streams.iter().find(|stream| stream.at > at && &stream.kind == b"SPAD");
        at = match end {
            Some(end) if &kind != b"SFMB" => {
                (end.at + STREAM_HEADER + end.bytes).next_multiple_of(4)
            }
            _ => at + size,
        };
    }
    found
}

/// The begin and the end of the block of that type in a set, counted from 0 on.
fn block_of(bytes: &[u8], set: usize, kind: &[u8; 4]) -> std::ops::Range<usize> {
    let blocks = blocks(bytes);
    let mut begun = 0;
    let found = blocks.iter().zip(1..).find(|((of, _), _)| {
        begun += usize::from(of == b"SSET");
        begun == set + 1 && of == kind
    });
    let ((_, begin), next) = found.unwrap();
    *begin..blocks.get(next).map_or(bytes.len(), |(_, end)| *end)
}

/// All that belongs to a set.
fn set_of(bytes: &[u8], set: usize) -> std::ops::Range<usize> {
    let begins = blocks(bytes).into_iter().filter(|(kind, _)| kind == b"SSET");
    let begins: Vec<_> = begins.map(|(_, at)| at).collect();
    begins[set]..begins.get(set + 1).copied().unwrap_or(bytes.len())
}

/// A set without any data is a set all the same: its pages are missing, or its log is.
#[test]
fn set_without_data_between_others_is_looked_at() {
    let Some(bytes) = wild(SIX_SETS) else { return };
    for set in 0..6 {
        let mut damaged = bytes.clone();
        damaged.drain(block_of(&bytes, set, b"MSDA"));
        let report = checked(SIX_SETS, &damaged);
        assert_eq!(report.verdict(), "damaged", "set {set}");
        assert_eq!(notes(&report).len(), 6, "set {set}");
    }
    let (Some(log), Some(full)) = (wild(LOG), wild(FULL_2019)) else { return };
    let full_set = set_of(&full, 0);
    let log_set = set_of(&log, 0);
    let mut file = full.clone();
    let begin = file.len();
    file.extend_from_slice(&log[log_set.clone()]);
    file.extend_from_slice(&full[full_set]);
    let sound = checked("three.bak", &file);
    assert_ne!(sound.verdict(), "damaged", "{:?}", sound.findings());
    let stream = streams(&log).into_iter().find(|stream| &stream.kind == b"MQTL").unwrap();
    let at = begin + stream.data() - log_set.start;
    file[at..at + stream.bytes - 2].fill(0xAA);
    assert_ne!(checked("three.bak", &file).verdict(), sound.verdict());
}

#[test]
fn blocks_and_sets_that_are_gone_or_elsewhere_are_never_intact() {
    let mut campaign = Campaign::default();
    for name in [SIX_SETS, DIFFERENTIAL, LOG] {
        let Some(bytes) = wild(name) else { return };
        let blocks = blocks(&bytes);
        for ((kind, begin), next) in blocks.iter().zip(1..) {
            let end = blocks.get(next).map_or(bytes.len(), |(_, end)| *end);
            let kind = String::from_utf8_lossy(kind);
            let mut damaged = bytes.clone();
            damaged.drain(*begin..end);
            campaign.try_one(&format!("{name}: {kind} at {begin} cut out"), &damaged);
            let mut damaged = bytes.clone();
            damaged.splice(end..end, bytes[*begin..end].to_vec());
            if kind != "TAPE" {
                campaign.try_one(&format!("{name}: {kind} at {begin} twice"), &damaged);
            }
        }
    }
    let Some(bytes) = wild(SIX_SETS) else { return };
    for (one, other) in [(0, 1), (1, 4), (2, 3)] {
        let (first, second) = (set_of(&bytes, one), set_of(&bytes, other));
        let mut damaged = bytes[..first.start].to_vec();
        damaged.extend_from_slice(&bytes[second.clone()]);
        damaged.extend_from_slice(&bytes[first.end..second.start]);
        damaged.extend_from_slice(&bytes[first]);
        damaged.extend_from_slice(&bytes[second.end..]);
        campaign.try_one(&format!("sets {one} and {other} changed places"), &damaged);
        let mut damaged = bytes.clone();
        damaged.splice(
            block_of(&bytes, one, b"MSDA"),
            bytes[block_of(&bytes, other, b"MSDA")].to_vec(),
        );
        campaign.try_one(&format!("set {one} with the data of set {other}"), &damaged);
    }
    campaign.end(100);
}
