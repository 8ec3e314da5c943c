//! `pagewarden unpack`: data files out of backups, byte for byte.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use pagewarden::formats::sqlserver::checksum::{
    PAGE_BYTES, Page, TornBits, restore_torn_bits, torn_bits,
};

use super::backups::striped;
use super::{Copy, STRIPE, fixture, u16_at, u32_at};
use crate::runner::{Outcome, Report, check, pagewarden, run};

fn unpack(arguments: &[&str], files: &[&Path], folder: &Path) -> Outcome {
    run(pagewarden().args(["unpack", "--json"]).args(arguments).args(files).arg(folder))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn intact(outcome: &Outcome) -> Report {
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let report = outcome.report();
    assert_eq!(report.json["command"], "unpack");
    report
}

#[test]
fn both_files_of_a_backup_come_out_as_restore_writes_them() {
    let (Some(bytes), Some(ndf)) =
        (fixture("test-2datafiles-2016.bak"), fixture("derived-test-file3-2016.ndf"))
    else {
        return;
    };
    let copy = Copy::of("test.bak", &bytes);
    let folder = copy.beside("out");
    let report = intact(&unpack(&[], &[&copy.path], &folder));
    assert_eq!(report.pages("total"), 408);
    assert_eq!(names(&folder), ["G2.ndf", "Test.mdf"]);
    // As long as it was on its server: what the backup leaves out is zero.
    let unpacked = fs::read(folder.join("G2.ndf")).unwrap();
    assert!(unpacked[..ndf.len()] == ndf, "not the same bytes");
    assert!(unpacked[ndf.len()..].iter().all(|byte| *byte == 0));
    let mdf = check([folder.join("Test.mdf")]).report();
    assert_eq!((mdf.findings(), mdf.pages("ok")), (vec![], 291));
}

/// What another user's folder gets belongs to that user, and is open to no others.
#[test]
fn data_files_belong_to_the_owner_of_the_folder_and_are_closed_to_others() {
    use std::os::unix::fs::chown;

    let Some(bytes) = fixture("test-2datafiles-2016.bak") else { return };
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    crate::runner::open_to_all(folder.path());
    let (backup, home) = (folder.path().join("test.bak"), folder.path().join("home"));
    fs::write(&backup, &bytes).unwrap();
    crate::runner::open_to_all(&backup);
    fs::create_dir(&home).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&home, Some(65534), Some(65534)).unwrap();
    }
    intact(&unpack(&[], &[&backup], &home.join("out")));
    let owner = fs::metadata(&home).unwrap().uid();
    for name in names(&home.join("out")) {
        let data = fs::metadata(home.join("out").join(&name)).unwrap();
        assert_eq!((data.uid(), data.mode() & 0o137), (owner, 0), "{name}");
    }
    if is_root {
        // What that user cannot read is not read for them.
        fs::set_permissions(&backup, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let outcome = unpack(&[], &[&backup], &home.join("other"));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("with the rights of"), "{outcome:?}");
    }
}

/// Every page that is in the file lies in the backup, and under its own number.
#[test]
fn unpacked_pages_are_those_of_the_backup() {
    for (name, ok) in [
        ("pubs-full-2012.bak", 356),
        ("library-compressed-2014.bak", 322),
        ("products-full-2019.bak", 305),
        ("das-verifynone-2sets-2008r2.bak", 115),
    ] {
        let Some(bytes) = fixture(name) else { return };
        let copy = Copy::of(name, &bytes);
        let folder = copy.beside("out");
        let outcome = unpack(&[], &[&copy.path], &folder);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let path = folder.join(&names(&folder)[0]);
        let report = check([&path]).report();
        assert_eq!((report.findings(), report.pages("ok")), (vec![], ok), "{name}");
        let unpacked = fs::read(&path).unwrap();
        for (page, number) in unpacked.chunks_exact(PAGE_BYTES).zip(0..) {
            if page[0] == 1 {
                assert_eq!(u32_at(page, 32), number, "{name}");
            }
        }
    }
}

/// SQL Server 2019 writes the first extents again: the boot page is a later one.
#[test]
fn later_copy_of_a_page_wins() {
    let Some(bytes) = fixture("products-full-2019.bak") else { return };
    let copy = Copy::of("x.bak", &bytes);
    let folder = copy.beside("out");
    intact(&unpack(&["-j", "4"], &[&copy.path], &folder));
    let unpacked = fs::read(folder.join("ChallengeProducts.mdf")).unwrap();
    let boot = &unpacked[9 * PAGE_BYTES..10 * PAGE_BYTES];
    let second = 3_353_088 + 9 * PAGE_BYTES;
    assert!(boot == &bytes[second..second + PAGE_BYTES], "the first copy");
    let first = 8704 + 9 * PAGE_BYTES;
    assert!(boot != &bytes[first..first + PAGE_BYTES], "both copies are the same");
}

#[test]
fn other_sets_are_unpacked_by_number() {
    let Some(bytes) = fixture("das-verifynone-2sets-2008r2.bak") else { return };
    let copy = Copy::of("x.bak", &bytes);
    let mut seen = Vec::new();
    for (set, ok) in [("1", 115), ("2", 113)] {
        let folder = copy.beside(set);
        assert_eq!(unpack(&["--set", set], &[&copy.path], &folder).status, Some(0));
        let path = folder.join(&names(&folder)[0]);
        assert_eq!(check([&path]).report().pages("ok"), ok);
        seen.push(fs::read(path).unwrap());
    }
    assert!(seen[0] != seen[1]);
    let folder = copy.beside("3");
    let outcome = unpack(&["--set", "3"], &[&copy.path], &folder);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("no data file"), "{outcome:?}");
    assert!(names(&folder).is_empty());
}

#[test]
fn stripes_together_are_the_backup_and_one_alone_is_not_all_of_it() {
    let Some(bytes) = fixture("pubs-full-2012.bak") else { return };
    let whole = Copy::of("whole.bak", &bytes);
    intact(&unpack(&[], &[&whole.path], &whole.beside("out")));
    let [first, second] = striped(&bytes, 16_384);
    let copy = Copy::of("1.bak", &first);
    let other = copy.beside("2.bak");
    fs::write(&other, second).unwrap();
    intact(&unpack(&[], &[&other, &copy.path], &copy.beside("out")));
    let of = |folder: &Copy| fs::read(folder.beside("out").join("pubs.mdf")).unwrap();
    assert!(of(&whole) == of(&copy), "not the same bytes");
    let outcome = unpack(&[], &[&copy.path], &copy.beside("half"));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("1 of 2 files"), "{outcome:?}");
    let outcome = unpack(&[], &[&copy.path, &whole.path], &copy.beside("mixed"));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(!copy.beside("mixed").exists());
}

#[test]
fn damage_is_reported_and_unpacked_as_it_is() {
    let Some(bytes) = fixture("pubs-full-2012.bak") else { return };
    let mut damaged = bytes.clone();
    damaged[16_384 + 20 * PAGE_BYTES + 5000] ^= 8;
    let copy = Copy::of("x.bak", &damaged);
    let folder = copy.beside("out");
    let outcome = unpack(&[], &[&copy.path], &folder);
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(1), "damaged"));
    let report = check([folder.join("pubs.mdf")]).report();
    assert_eq!(report.serious().len(), 1);
    assert_eq!(report.serious()[0].page, Some(20));
}

#[test]
fn nothing_that_exists_is_overwritten_and_nothing_is_left_behind() {
    let Some(bytes) = fixture("pubs-full-2012.bak") else { return };
    let copy = Copy::of("x.bak", &bytes);
    let folder = copy.beside("out");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("pubs.mdf"), "mine").unwrap();
    let outcome = unpack(&[], &[&copy.path], &folder);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("is not overwritten"), "{outcome:?}");
    assert_eq!(names(&folder), ["pubs.mdf"]);
    assert_eq!(fs::read(folder.join("pubs.mdf")).unwrap(), b"mine");
    // Nor is the backup's own folder a place for a file of a backup's name.
    let outcome = unpack(&[], &[&copy.path], &copy.path);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(fs::read(&copy.path).unwrap() == bytes);
    let not_one = Copy::of("y.bak", b"no backup at all");
    let outcome = unpack(&[], &[&not_one.path], &copy.beside("none"));
    assert_eq!(outcome.status, Some(2));
    let error = outcome.report().json["error"].as_str().unwrap().to_owned();
    assert!(error.contains("is neither a pack nor a SQL Server backup"), "{error}");
    assert!(!copy.beside("none").exists());
}

#[test]
fn torn_bits_are_put_back_on_demand_only() {
    let Some(bytes) = fixture(STRIPE) else { return };
    let copy = Copy::of("x.bak", &bytes);
    for (name, arguments) in [("as-is", &[][..]), ("own", &["--restore-bits"][..])] {
        // Half of the backup: not all, but what is there.
        assert_eq!(unpack(arguments, &[&copy.path], &copy.beside(name)).status, Some(2));
    }
    let read = |name: &str| fs::read(copy.beside(name).join("northwnd.mdf")).unwrap();
    let (as_is, own) = (read("as-is"), read("own"));
    let mut torn = 0;
    for (before, after) in as_is.chunks_exact(PAGE_BYTES).zip(own.chunks_exact(PAGE_BYTES)) {
        let mut page: Page = before.try_into().unwrap();
        if u16_at(before, 4) & 0x100 == 0 {
            assert!(before == after);
            continue;
        }
        torn += 1;
        assert_eq!(torn_bits(&page), TornBits::Agree);
        restore_torn_bits(&mut page);
        page[5] &= !1;
        assert!(page[..] == *after);
    }
    assert_eq!(torn, 202);
}

/// The option of earlier versions is taken, and changes nothing.
#[test]
fn unpacked_file_is_as_long_as_it_was_with_a_hole_behind_the_last_page() {
    let Some(bytes) = fixture("pubs-full-2012.bak") else { return };
    let copy = Copy::of("x.bak", &bytes);
    for (name, arguments) in [("as-is", &[][..]), ("full", &["--full-size"][..])] {
        let folder = copy.beside(name);
        intact(&unpack(arguments, &[&copy.path], &folder));
        let metadata = fs::metadata(folder.join("pubs.mdf")).unwrap();
        assert_eq!(metadata.len(), 520 * 8192);
        assert!(metadata.blocks() * 512 < 3_500_000, "{}", metadata.blocks());
        assert_eq!(check([folder.join("pubs.mdf")]).report().findings(), []);
    }
}

#[test]
fn unpack_says_which_of_several_sets_it_took_and_that_another_is_newer() {
    let Some(bytes) = fixture("das-verifynone-2sets-2008r2.bak") else { return };
    let copy = Copy::of("x.bak", &bytes);
    for (set, newer) in [("1", true), ("2", false)] {
        let outcome = unpack(&["--set", set], &[&copy.path], &copy.beside(set));
        let notes = outcome.report().target()["notes"].to_string();
        assert!(notes.contains(&format!("of 2 backup sets, set {set} was taken")), "{notes}");
        assert_eq!(notes.contains("set 2 is newer"), newer, "{notes}");
    }
}
