//! `pagewarden protect --copy-to` on files of real servers: through all modes and back, damaged
//! afterwards, and killed on the way. No SQL Server is here to say yes: `check` says so, and a plain
//! reckoning of what each mode may change on a page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::formats::sqlserver::checksum::{PAGE_BYTES, Page, stamp_checksum};
use rustix::process::Signal;
use serde_json::Value;

use super::mutations::{TABLE, is_sound, protected};
use super::{Copy, DATA_FILES, Random, fixture, found, page_of, u16_at, u32_at};
use crate::damage::Dice;
use crate::runner::{Outcome, Report, Started, check, pagewarden, run};

const CHECKSUM: u16 = 0x200;
const TORN: u16 = 0x100;
const MODES: [(&str, u16); 3] = [("checksum", CHECKSUM), ("torn", TORN), ("none", 0)];
const BOOT_PAGE: u64 = 9;

fn protect(path: &Path, mode: &str, copy: &Path, arguments: &[&str]) -> Outcome {
    let mut command = pagewarden();
    command.args(["protect", "--json", "--mode", mode]).arg(path).arg("--copy-to").arg(copy);
    run(command.args(arguments))
}

/// The result of a run that ended with this status.
fn result(outcome: &Outcome, status: i32) -> Value {
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(
        (&json["command"], &json["pagewarden"]),
        (&"protect".into(), &env!("CARGO_PKG_VERSION").into())
    );
    json
}

fn is_formatted(page: &[u8], number: u64, file: u16) -> bool {
    // All types that the fixtures have are known ones.
    page[0] == 1 && u64::from(u32_at(page, 32)) == number && u16_at(page, 36) == file
}

fn numbered(bytes: &[u8]) -> impl Iterator<Item = (u64, &Page)> {
    (0..).zip(bytes.as_chunks::<PAGE_BYTES>().0)
}

/// A page as a reader of rows wants it: the bits that torn bits displace in their places, and
/// nothing of what protects it; nor the setting on the boot page.
fn content(page: &Page, number: u64, file: u16) -> Page {
    let mut own = *page;
    if !is_formatted(page, number, file) {
        return own;
    }
    if u16_at(page, 4) & TORN != 0 {
        let field = u32_at(page, 60);
        for sector in 1..16 {
            let last = &mut own[sector * 512 + 511];
            *last = *last & !3 | (field >> (2 * sector) & 3) as u8;
        }
    }
    own[5] &= !3;
    own[60..64].fill(0);
    if number == BOOT_PAGE && file == 1 {
        let status = usize::from(u16_at(&own, PAGE_BYTES - 2)) + 36;
        own[status] &= !0x10;
        own[status + 2] &= !1;
    }
    own
}

/// Fails unless one file is a copy of the other in this mode; how many of its pages are formatted.
fn assert_copy(before: &[u8], after: &[u8], flag: u16, what: &str) -> u64 {
    assert_eq!(before.len(), after.len(), "{what}");
    let file = u16_at(before, 36);
    let mut formatted = 0;
    for ((number, was), (_, is)) in numbered(before).zip(numbered(after)) {
        let what = format!("{what} page {number}");
        assert!(content(was, number, file) == content(is, number, file), "{what}");
        if !is_formatted(is, number, file) {
            assert!(was == is, "{what}");
            continue;
        }
        formatted += 1;
        assert_eq!(u16_at(is, 4) & (CHECKSUM | TORN), flag, "{what}");
        assert_eq!(u16_at(is, 4) & !0x300, u16_at(was, 4) & !0x300, "{what}");
        if flag == 0 && u16_at(was, 4) & 0x300 != 0 {
            assert_eq!(u32_at(is, 60), 0, "{what}");
        }
    }
    formatted
}

/// Fails if one copy has changed pages that were right, but for the boot page, which says it too.
fn assert_right_pages_are_left(before: &[u8], after: &[u8], flag: u16, what: &str) {
    let file = u16_at(before, 36);
    for ((number, was), (_, is)) in numbered(before).zip(numbered(after)) {
        let is_right = is_formatted(was, number, file) && u16_at(was, 4) & 0x300 == flag;
        let is_boot = number == BOOT_PAGE && file == 1;
        assert!(!is_right || is_boot || was == is, "{what} page {number}");
    }
}

/// A file through a sequence of copies, each made of the one before.
struct Chain {
    first: Copy,
    last: PathBuf,
    count: usize,
}

impl Chain {
    fn of(name: &str, bytes: &[u8]) -> Self {
        let first = Copy::of(name, bytes);
        Self { last: first.path.clone(), first, count: 0 }
    }

    fn step(&mut self, mode: &str) -> (Vec<u8>, Value) {
        self.count += 1;
        let folder = self.first.beside(&format!("copy-{}", self.count));
        let json = result(&protect(&self.last, mode, &folder, &[]), 0);
        self.last = folder.join(self.last.file_name().unwrap());
        (fs::read(&self.last).unwrap(), json)
    }
}

#[test]
fn real_files_go_through_all_modes_and_back() {
    for name in DATA_FILES {
        let Some(original) = fixture(name) else { return };
        let is_secondary = name.ends_with(".ndf");
        let mut chain = Chain::of(name, &original);
        let mut before = original.clone();
        let mut seen: Vec<(u16, Vec<u8>)> = Vec::new();
        // Every mode behind every other, and each twice.
        for index in [0, 2, 1, 0, 1, 2, 0, 0, 2, 2, 1, 1] {
            let (mode, flag) = MODES[index];
            let what = format!("{name}, copy {} to {mode}", chain.count + 1);
            let right = right_already(&before, flag);
            let (after, json) = chain.step(mode);
            let formatted = assert_copy(&before, &after, flag, &what);
            assert_copy(&original, &after, flag, &what);
            assert_right_pages_are_left(&before, &after, flag, &what);
            let counts = &json["pages"];
            assert_eq!(counts["changed"], formatted - right, "{what}: {json}");
            assert_eq!(counts["right"], right, "{what}: {json}");
            assert_eq!(counts["total"], (after.len() / PAGE_BYTES) as u64, "{what}");
            assert_eq!((&counts["damaged"], &json["after"]), (&0.into(), &mode.into()), "{what}");
            assert_eq!(json["bytes_verified"], json["bytes_written"], "{what}");
            let warnings = json["warnings"].to_string();
            assert!(warnings.contains("experimental: no SQL Server has read"), "{warnings}");
            assert_eq!(warnings.contains("hold foreign bytes"), name.starts_with("nerd"));

            let report = check([&chain.last]).report();
            assert_eq!(report.findings(), [], "{what}");
            for (other, _) in MODES {
                let expected = if other == mode { formatted } else { 0 };
                assert_eq!(report.target()["by_mode"][other], expected, "{what}");
            }
            if !is_secondary {
                assert_eq!(report.target()["setting"], mode, "{what}");
            }
            let unprotected = if flag == 0 { formatted } else { 0 };
            assert_eq!(report.pages("unprotected"), unprotected, "{what}");
            assert_eq!(report.pages("ok"), formatted - unprotected, "{what}");
            // Whatever the way, in the end it is the same.
            match seen.iter().find(|(it, _)| *it == flag) {
                Some((_, same)) => assert!(*same == after, "{what}"),
                None => seen.push((flag, after.clone())),
            }
            before = after;
        }
        assert_way_back(&original, &seen, name);
    }
}

/// How many formatted pages need not be written: they carry it, and the boot page says so.
fn right_already(bytes: &[u8], flag: u16) -> u64 {
    let file = u16_at(bytes, 36);
    let right = numbered(bytes).filter(|(number, page)| {
        let says_so = *number != BOOT_PAGE || file != 1 || setting(page) == flag;
        u16_at(*page, 4) & 0x300 == flag && is_formatted(*page, *number, file) && says_so
    });
    right.count() as u64
}

/// What a boot page says. The torn bits of a page are in none of its status's bytes, and displace
/// nothing of where its only record lies: behind the header.
fn setting(page: &Page) -> u16 {
    let status = u32_at(page, 96 + 36);
    match (status & 0x1_0000 != 0, status & 0x10 != 0) {
        (true, _) => CHECKSUM,
        (false, true) => TORN,
        (false, false) => 0,
    }
}

/// Back in its own mode, a file is what it was: pages that were unprotected and are not now aside,
/// and of torn bits the pattern, which alternates from write to write and is 1 in the copy.
fn assert_way_back(original: &[u8], seen: &[(u16, Vec<u8>)], name: &str) {
    let own = if name.contains("torn") { TORN } else { CHECKSUM };
    let after = &seen.iter().find(|(flag, _)| *flag == own).unwrap().1;
    let file = u16_at(original, 36);
    let (mut same, mut other_pattern, mut were_unprotected) = (0, 0, 0);
    for ((number, was), (_, is)) in numbered(original).zip(numbered(after)) {
        if was == is {
            same += 1;
            continue;
        }
        assert!(is_formatted(was, number, file), "{name} page {number}");
        match u16_at(was, 4) & 0x300 {
            0 => were_unprotected += 1,
            flag => {
                assert_eq!((flag, was[60] & 3, is[60] & 3), (TORN, 2, 1), "{name} page {number}");
                // Nothing but the pattern, in the field and in 15 sectors.
                let differing: Vec<_> = (0..PAGE_BYTES).filter(|at| was[*at] != is[*at]).collect();
                assert_eq!(differing.len(), 16, "{name} page {number}");
                assert!(differing.iter().all(|at| *at == 60 || at % 512 == 511));
                other_pattern += 1;
            }
        }
    }
    let expected = match name {
        "northwind-torn-2008r2.mdf" => (119, 5),
        "pubs-checksum-2008.mdf" => (0, 4),
        "nerddinner-stray-2008r2.mdf" | "empty-checksum-2005.mdf" => (0, 3),
        "testdb-checksum-2014.mdf" => (0, 2),
        _ => (0, 0),
    };
    assert_eq!((other_pattern, were_unprotected), expected, "{name}, {same} the same");
}

/// What is damaged after each mode is found as theory says, no more and no less.
#[test]
fn damage_to_copies_is_found_exactly_where_theory_says() {
    for name in DATA_FILES {
        let Some(original) = fixture(name) else { return };
        let mut chain = Chain::of(name, &original);
        for (mode, flag) in MODES {
            let (bytes, _) = chain.step(mode);
            let pages: Vec<_> = protected(&bytes).into_iter().filter(|(at, _)| *at > 15).collect();
            assert_eq!(pages.is_empty(), flag == 0, "{name} {mode}");
            for (index, (what, damage, ..)) in TABLE.iter().enumerate() {
                let mut random = Random(index as u64 + 40);
                let mut damaged = bytes.clone();
                let mut expected = BTreeSet::new();
                for (number, flags) in &pages {
                    assert_eq!(*flags, flag);
                    let page = page_of(&mut damaged, *number);
                    damage(page, &mut random);
                    if !is_sound(page) {
                        expected.insert(*number);
                    }
                }
                let report = Copy::of(name, &damaged).check_one_by_one();
                assert_eq!(found(&report), expected, "{name} {mode}: {what}");
            }
        }
    }
}

/// A database of two files, as RESTORE leaves it and a clean shutdown marks it.
fn two_files() -> Option<(tempfile::TempDir, PathBuf)> {
    let bytes = fixture("test-2datafiles-2016.bak")?;
    let backup = Copy::of("test.bak", &bytes);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("data");
    let unpacked = run(pagewarden().args(["unpack", "--full-size"]).arg(&backup.path).arg(&root));
    assert_eq!(unpacked.status, Some(0), "{unpacked:?}");
    let path = root.join("Test.mdf");
    let mut mdf = fs::read(&path).unwrap();
    let boot = page_of(&mut mdf, BOOT_PAGE);
    let status = usize::from(u16_at(boot, PAGE_BYTES - 2)) + 36;
    assert_eq!(boot[status + 3] & 0x40, 0, "a backup's database was running");
    boot[status + 3] |= 0x40;
    stamp_checksum(boot);
    fs::write(&path, mdf).unwrap();
    fs::write(root.join("Test_log.ldf"), [0x5C; 70_000]).unwrap();
    Some((folder, root))
}

#[test]
fn folder_of_two_data_files_is_copied_whole() {
    let Some((folder, root)) = two_files() else { return };
    // A log is known by its first page.
    let mut log = fs::read(root.join("Test_log.ldf")).unwrap();
    let first = fs::read(root.join("G2.ndf")).unwrap();
    log[..PAGE_BYTES].copy_from_slice(&first[..PAGE_BYTES]);
    log[36] = 2;
    stamp_checksum(log.first_chunk_mut().unwrap());
    fs::write(root.join("Test_log.ldf"), &log).unwrap();
    fs::write(root.join("readme.txt"), "of no matter").unwrap();
    for (mode, flag) in MODES {
        let copy = folder.path().join(mode);
        let dry = result(&protect(&root, mode, &copy, &["--dry-run"]), 0);
        assert!(!copy.exists());
        let json = result(&protect(&root, mode, &copy, &[]), 0);
        assert_eq!((&dry["pages"], &json["files"]), (&json["pages"], &2.into()));
        let warnings = json["warnings"].to_string();
        assert!(warnings.contains("left out of the copy: readme.txt"), "{warnings}");
        let mut names: Vec<_> =
            fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["G2.ndf", "Test.mdf", "Test_log.ldf"]);
        for name in ["G2.ndf", "Test.mdf"] {
            let of = |root: &Path| fs::read(root.join(name)).unwrap();
            assert_copy(&of(&root), &of(&copy), flag, &format!("{name} {mode}"));
            let report = check([copy.join(name)]).report();
            assert_eq!(report.findings(), [], "{name} {mode}");
        }
        assert!(fs::read(copy.join("Test_log.ldf")).unwrap() == log);
    }
    // One of them alone says what it lacks.
    let json = result(&protect(&root.join("Test.mdf"), "torn", &folder.path().join("one"), &[]), 0);
    assert!(json["warnings"].to_string().contains("G2.ndf lies beside it"), "{json}");
    let json = result(&protect(&root.join("G2.ndf"), "torn", &folder.path().join("two"), &[]), 0);
    assert!(json["warnings"].to_string().contains("primary file (file 1)"), "{json}");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let Some(mdf) = fixture("pubs-checksum-2008.mdf") else { return };
    let Some(backup) = fixture("pubs-full-2012.bak") else { return };
    let copy = Copy::of("pubs.mdf", &mdf);
    let refused = |outcome: Outcome, words: &str| {
        let json = result(&outcome, 2);
        let error = json["error"].as_str().unwrap();
        assert!(error.contains(words) && error.contains("hint:"), "{error}");
    };
    let in_place = run(pagewarden().args(["protect", "--json", "--mode", "torn"]).arg(&copy.path));
    refused(in_place, "not changed in place");
    assert!(fs::read(&copy.path).unwrap() == mdf);
    let target = copy.beside("copy");
    let path = copy.beside("pubs.bak");
    fs::write(&path, &backup).unwrap();
    refused(protect(&path, "torn", &target, &[]), "a backup");
    // A backup's database was running.
    let unpacked = copy.beside("unpacked");
    run(pagewarden().arg("unpack").arg(&path).arg(&unpacked));
    refused(protect(&unpacked, "torn", &target, &[]), "not shut down cleanly");
    let full = copy.beside("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "mine").unwrap();
    refused(protect(&copy.path, "torn", &full, &[]), "not empty");
    assert!(!target.exists());
}

#[test]
fn damaged_pages_are_named_and_left() {
    let Some(mut mdf) = fixture("testdb-checksum-2014.mdf") else { return };
    page_of(&mut mdf, 100)[3000] ^= 4;
    page_of(&mut mdf, 150).fill(0);
    let copy = Copy::of("x.mdf", &mdf);
    let target = copy.beside("copy");
    let outcome = protect(&copy.path, "torn", &target, &[]);
    let json = result(&outcome, 1);
    let pages: Vec<_> =
        json["findings"].as_array().unwrap().iter().map(|one| &one["page"]).collect();
    assert_eq!((pages, &json["verdict"]), (vec![&100.into(), &150.into()], &"damaged".into()));
    assert_eq!(json["after"], "checksum");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    let json = result(&protect(&copy.path, "torn", &target, &["--skip-damaged"]), 1);
    assert_eq!((&json["after"], &json["pages"]["damaged"]), (&"torn".into(), &2.into()));
    // What was wrong before is wrong now, and nothing else.
    let report: Report = check([target.join("x.mdf")]).report();
    assert_eq!(found(&report), [100, 150].into_iter().collect::<BTreeSet<_>>());
    assert_eq!(report.target()["by_mode"]["checksum"], 1);
}

/// A database whose files lie in two places is named by them.
#[test]
fn files_of_one_database_are_named_one_by_one() {
    let Some((folder, root)) = two_files() else { return };
    fs::remove_file(root.join("Test_log.ldf")).unwrap();
    let whole = folder.path().join("whole");
    result(&protect(&root, "torn", &whole, &[]), 0);
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let second = elsewhere.join("G2.ndf");
    fs::rename(root.join("G2.ndf"), &second).unwrap();
    let copy = folder.path().join("copy");
    let json =
        result(&protect(&root.join("Test.mdf"), "torn", &copy, &[second.to_str().unwrap()]), 0);
    assert_eq!((&json["files"], &json["after"]), (&2.into(), &"torn".into()));
    assert_eq!(json["paths"].as_array().unwrap().len(), 2);
    for name in ["Test.mdf", "G2.ndf"] {
        assert!(
            fs::read(copy.join(name)).unwrap() == fs::read(whole.join(name)).unwrap(),
            "{name}"
        );
    }
}

/// Kills runs at moments spread over their length. `PAGEWARDEN_KILLS` says how often.
#[test]
fn killed_at_any_time_the_copy_is_unfinished_and_the_same_command_makes_it() {
    let Some((folder, root)) = two_files() else { return };
    fs::remove_file(root.join("Test_log.ldf")).unwrap();
    const RATE: &str = "24MiB/s";
    let kills = std::env::var("PAGEWARDEN_KILLS").ok().and_then(|text| text.parse().ok());
    let whole = folder.path().join("whole");
    let begin = Instant::now();
    result(&protect(&root, "torn", &whole, &["--rate", RATE]), 0);
    let length = begin.elapsed().as_micros() as usize;
    let of = |root: &Path, name: &str| fs::read(root.join(name));
    let (mut interrupted, mut unfinished, mut complete) = (0, 0, 0);
    let mut dice = Dice::seeded();
    for round in 0..kills.unwrap_or(15) {
        let copy = folder.path().join(format!("copy-{round}"));
        let mut command = pagewarden();
        command.args(["protect", "--mode", "torn", "--rate", RATE]);
        let at_work = Started::spawn(command.arg(&root).arg("--copy-to").arg(&copy));
        thread::sleep(Duration::from_micros(dice.within(0..length) as u64));
        at_work.signal(Signal::KILL);
        interrupted += usize::from(at_work.wait().status.is_none());
        // Whatever has its own name is whole, and the primary file has it last.
        let has_primary = copy.join("Test.mdf").exists();
        for name in ["G2.ndf", "Test.mdf"] {
            match of(&copy, name) {
                Ok(bytes) => assert!(bytes == of(&whole, name).unwrap(), "{name}"),
                Err(_) => assert!(!has_primary, "{name} is missing"),
            }
        }
        let is_marked = copy.join("pagewarden-protect.copy").exists();
        let is_begun = copy.exists() && fs::read_dir(&copy).unwrap().next().is_some();
        assert!(has_primary || is_marked || !is_begun, "nothing says that it is unfinished");
        unfinished += usize::from(is_marked);
        let is_done = has_primary && !is_marked;
        complete += usize::from(is_done);
        result(&protect(&root, "torn", &copy, &[]), if is_done { 2 } else { 0 });
        for name in ["G2.ndf", "Test.mdf"] {
            assert!(of(&copy, name).unwrap() == of(&whole, name).unwrap(), "{name}");
        }
        assert_eq!(fs::read_dir(&copy).unwrap().count(), 2);
        fs::remove_dir_all(&copy).unwrap();
    }
    println!(
        "{interrupted} killed in time, {unfinished} marked as unfinished, {complete} complete"
    );
}
