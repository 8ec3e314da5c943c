//! Input that was made to harm: a clear message, no panic, no waiting, no
//! more memory than a healthy cluster takes. No server is needed here: the
//! cluster is put together from golden files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::damage::{Dice, PAGE, stamp};
use crate::runner::{Finding, OrdinaryUser, Outcome, Started, open_to_all, pagewarden, run};

/// More than any run here may take.
const MEMORY_KIB_MAX: u64 = 64 << 10;
/// Pages of the only relation.
const PAGES: u32 = 20;

/// `pagewarden check --json PATH`. A cluster made by hand has pages and little else: what no
/// server could do without is not asked for.
fn check<I: IntoIterator<Item: AsRef<OsStr>>>(paths: I) -> Outcome {
    run(pagewarden().args(["check", "--no-witness", "--json"]).args(paths))
}

/// The same in text.
fn check_text<I: IntoIterator<Item: AsRef<OsStr>>>(paths: I) -> Outcome {
    run(pagewarden().args(["check", "--no-witness"]).args(paths))
}

/// A cluster of 15 at rest: one database with one relation, and a catalogue.
struct Handmade {
    folder: TempDir,
}

impl Handmade {
    fn cluster() -> Self {
        let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
        open_to_all(folder.path());
        let handmade = Self { folder };
        for below in ["global", "base/5", "pg_tblspc", "pg_xact"] {
            fs::create_dir_all(handmade.path(below)).unwrap();
        }
        handmade.put("PG_VERSION", b"15\n");
        handmade.put("global/pg_control", &golden("control.on.shutdown"));
        handmade.put("global/pg_filenode.map", &golden("filenode.global.map"));
        handmade.put("base/5/pg_filenode.map", &golden("filenode.database.map"));
        handmade.put("global/1262", &pages(1));
        handmade.put("base/5/16397", &pages(PAGES));
        handmade.put("pg_xact/0000", &[0x55; PAGE]);
        handmade
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root().join(below)
    }

    fn put(&self, below: impl AsRef<Path>, bytes: &[u8]) {
        fs::write(self.path(below), bytes).unwrap();
    }

    /// Checks it, in JSON and in text.
    fn check(&self) -> Outcome {
        let text = check_text([self.root()]);
        assert_calm(&text);
        let json = check([self.root()]);
        assert_calm(&json);
        assert_eq!(text.status, json.status);
        json
    }

    /// Checks it and expects the relation of it to be read and sound whatever
    /// else there is.
    fn check_intact_pages(&self) -> Outcome {
        let outcome = self.check();
        assert_eq!(outcome.report().pages("ok"), u64::from(PAGES) + 1);
        outcome
    }
}

fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/postgres/15");
    fs::read(folder.join(name)).unwrap()
}

fn pages(count: u32) -> Vec<u8> {
    let mut bytes = golden("heap.3.page").repeat(count as usize);
    for (block, page) in (0..count).zip(bytes.chunks_exact_mut(PAGE)) {
        stamp(page, block);
    }
    bytes
}

fn assert_calm(outcome: &Outcome) {
    assert!(outcome.memory_kib <= MEMORY_KIB_MAX, "{} KiB of memory", outcome.memory_kib);
    assert_eq!(outcome.signal, None);
    for text in [&outcome.stdout, &outcome.stderr] {
        let wild = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(wild, None, "{text:?}");
    }
}

#[test]
fn handmade_cluster_is_intact() {
    let handmade = Handmade::cluster();
    let outcome = handmade.check_intact_pages();
    let report = outcome.report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"));
    assert_eq!(report.target()["notes"].as_array().unwrap().len(), 0, "{}", report.json);
}

#[test]
fn what_is_no_database_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut noise = vec![0; 1 << 20];
    Dice::seeded().fill(&mut noise);
    fs::create_dir(path("empty folder")).unwrap();
    fs::create_dir(path("other folder")).unwrap();
    fs::write(path("other folder/PG_VERSION"), b"15\n").unwrap();
    fs::write(path("empty"), b"").unwrap();
    fs::write(path("noise"), &noise).unwrap();
    fs::write(path("16397"), &noise).unwrap();
    fs::write(path("zeroes"), vec![0; 1 << 20]).unwrap();
    fs::write(path("text"), b"no database\n".repeat(1000)).unwrap();
    fs::write(path("short"), b"x").unwrap();
    for name in
        ["empty folder", "other folder", "empty", "noise", "16397", "zeroes", "text", "short"]
    {
        let outcome = check([path(name)]);
        assert_calm(&outcome);
        assert_eq!(outcome.status, Some(2), "{name}: {outcome:?}");
        let error = outcome.report().json["error"].as_str().unwrap().to_owned();
        assert!(error.contains(name) && error.contains("hint: "), "{name}: {error}");
        assert!(outcome.stderr.contains("hint: "), "{name}: {}", outcome.stderr);
    }
}

#[test]
fn what_is_neither_file_nor_folder_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("16397");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let link = folder.path().join("link");
    symlink("link", &link).unwrap();
    for path in [&fifo, &socket, &link, Path::new("/dev/zero"), Path::new("/dev/null")] {
        let outcome = check([path]);
        assert_calm(&outcome);
        assert_eq!(outcome.status, Some(2), "{}", path.display());
        outcome.report();
    }
}

#[test]
fn folder_without_permission_is_an_error() {
    let user = OrdinaryUser::new();
    let handmade = Handmade::cluster();
    let closed =
        |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    let check = || {
        let outcome = user.check(handmade.root());
        assert_calm(&outcome);
        outcome
    };
    assert_eq!(check().status, Some(0));
    closed(&handmade.path("base/5"));
    let outcome = check();
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"));
    assert_eq!(report.unread().keys().collect::<Vec<_>>(), [&"base/5"]);
    assert!(report.unread()["base/5"].contains("ermission denied"), "{:?}", report.unread());
    assert_eq!(report.pages("ok"), 1, "the rest was checked");
    closed(&handmade.path("base"));
    assert_eq!(check().report().unread().keys().collect::<Vec<_>>(), [&"base"]);
    closed(handmade.root());
    let outcome = check();
    assert_eq!(outcome.status, Some(2));
    let error = outcome.report().json["error"].as_str().unwrap().to_owned();
    assert!(error.contains("ermission denied"), "{error}");
    open_to_all(handmade.root());
    open_to_all(&handmade.path("base"));
    open_to_all(&handmade.path("base/5"));
}

#[test]
fn file_without_permission_is_unread_and_the_rest_is_checked() {
    let user = OrdinaryUser::new();
    let handmade = Handmade::cluster();
    handmade.put("base/5/16400", &pages(3));
    let closed = handmade.path("base/5/16400");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let outcome = user.check(handmade.root());
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"));
    assert_eq!(report.unread().keys().collect::<Vec<_>>(), [&"base/5/16400"]);
    assert_eq!(report.target()["unread"][0]["length"], 3 * PAGE);
    assert_eq!(report.pages("ok"), u64::from(PAGES) + 1);
    assert_eq!(report.pages("total"), u64::from(PAGES) + 1, "what is unread is in no count");

    // Damage found elsewhere weighs more.
    let mut bytes = pages(PAGES);
    bytes[8000] ^= 1;
    handmade.put("base/5/16397", &bytes);
    let outcome = user.check(handmade.root());
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(1), "damaged"));
}

/// The pages are judged all the same, by what they show themselves.
#[test]
fn control_file_without_permission_is_unread_and_the_pages_are_checked() {
    let user = OrdinaryUser::new();
    let handmade = Handmade::cluster();
    let control = handmade.path("global/pg_control");
    fs::set_permissions(&control, fs::Permissions::from_mode(0o000)).unwrap();
    let outcome = user.check(handmade.root());
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"));
    let unread = report.unread();
    assert_eq!(unread.keys().collect::<Vec<_>>(), [&"global/pg_control"]);
    assert!(unread["global/pg_control"].contains("ermission denied"), "{unread:?}");
    assert_eq!(report.pages("total"), u64::from(PAGES) + 1);
    assert_eq!(report.findings(), []);
    let state = report.target()["state"].as_str().unwrap();
    assert!(state.contains("we may not read pg_control"), "{state}");

    // What fails may be what a crash tore.
    let mut bytes = pages(PAGES);
    bytes[8000] ^= 1;
    handmade.put("base/5/16397", &bytes);
    let found = user.check(handmade.root()).report().findings();
    assert_eq!(found, [Finding::page("base/5/16397", 0, "suspect", "checksum")]);
}

#[test]
fn control_file_that_is_no_file_is_unread() {
    let handmade = Handmade::cluster();
    let control = handmade.path("global/pg_control");
    fs::remove_file(&control).unwrap();
    mknodat(CWD, &control, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let outcome = handmade.check();
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(2), "incomplete"));
    assert!(outcome.stdout.contains("pg_control"), "{}", outcome.stdout);
    fs::remove_file(&control).unwrap();
    fs::create_dir(&control).unwrap();
    let outcome = handmade.check();
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(2), "incomplete"));
}

/// A FIFO would wait for ever, a device never end, a link lead anywhere.
#[test]
fn what_is_named_like_a_relation_but_is_no_file_is_not_opened() {
    let handmade = Handmade::cluster();
    mknodat(CWD, handmade.path("base/5/20000"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _listener = UnixListener::bind(handmade.path("base/5/20001")).unwrap();
    fs::create_dir(handmade.path("base/5/20002")).unwrap();
    // /dev/zero; only root may make one.
    let device = handmade.path("base/5/20003");
    let made = mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR, makedev(1, 5)).is_ok();
    let report = handmade.check_intact_pages().report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"));
    let notes = report.target()["notes"].to_string();
    for name in ["20000", "20001", "20002", "20003"].into_iter().take(if made { 4 } else { 3 }) {
        assert!(notes.contains(name), "{name}: {notes}");
    }

    // What a link leads to may be a relation that is then missing here.
    symlink("/dev/zero", handmade.path("base/5/20004")).unwrap();
    symlink("16397", handmade.path("base/5/20005")).unwrap();
    symlink("20006", handmade.path("base/5/20006")).unwrap();
    let outcome = handmade.check_intact_pages();
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"));
    let unread: Vec<_> = report.unread().into_keys().collect();
    assert_eq!(unread, ["base/5/20004", "base/5/20005", "base/5/20006"]);
}

#[test]
fn small_files_of_other_kinds_are_not_waited_for() {
    for name in ["postmaster.pid", "backup_label", "base/5/pg_filenode.map", "pg_xact/0001"] {
        let handmade = Handmade::cluster();
        let path = handmade.path(name);
        let _ = fs::remove_file(&path);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        handmade.check_intact_pages();
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        handmade.check_intact_pages();
    }
    // Found from inside, the cluster's version is not looked at before.
    let handmade = Handmade::cluster();
    let version = handmade.path("PG_VERSION");
    fs::remove_file(&version).unwrap();
    mknodat(CWD, &version, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let outcome = check([handmade.path("base/5")]);
    assert_calm(&outcome);
    assert_eq!(outcome.report().pages("ok"), u64::from(PAGES));
    fs::remove_file(&version).unwrap();
    symlink("/dev/zero", &version).unwrap();
    let outcome = check([handmade.path("base/5")]);
    assert_calm(&outcome);
    assert_eq!(outcome.report().pages("ok"), u64::from(PAGES));
}

#[test]
fn links_in_a_circle_end() {
    let handmade = Handmade::cluster();
    let tablespaces = handmade.path("pg_tblspc");
    symlink("16385", tablespaces.join("16385")).unwrap();
    symlink(handmade.root(), tablespaces.join("16386")).unwrap();
    symlink("/", tablespaces.join("16387")).unwrap();
    symlink(&tablespaces, tablespaces.join("16388")).unwrap();
    // A tablespace whose version folder leads back into the cluster.
    fs::create_dir(tablespaces.join("16389")).unwrap();
    symlink(handmade.path("base"), tablespaces.join("16389/PG_15_202209061")).unwrap();
    symlink("..", handmade.path("base/6")).unwrap();
    let outcome = handmade.check_intact_pages();
    let report = outcome.report();
    assert_eq!(report.pages("total"), u64::from(PAGES) + 1, "no page is counted twice");
    assert_eq!(report.serious(), []);
    // Not followed, so not read, by whichever way one comes upon it.
    let unread: Vec<_> = report.unread().into_keys().collect();
    assert_eq!(
        unread,
        [
            "base/6",
            "pg_tblspc/16385",
            "pg_tblspc/16386",
            "pg_tblspc/16387",
            "pg_tblspc/16388",
            "pg_tblspc/16389/PG_15_202209061/6"
        ]
    );
}

#[test]
fn huge_segment_numbers_overflow_nothing() {
    let handmade = Handmade::cluster();
    let names = [
        "16398.131071",
        "16399.4294967295",
        "4294967295.4294967295",
        "4294967295_fsm.4294967295",
        "t4294967295_4294967295.4294967295",
    ];
    for name in names {
        handmade.put(format!("base/5/{name}"), &pages(2));
    }
    // No relation's names: nothing is read.
    for name in ["4294967296", "16397.4294967296", "16397.18446744073709551616", "-1", "16397.-1"] {
        handmade.put(format!("base/5/{name}"), &pages(2));
    }
    let outcome = handmade.check_intact_pages();
    assert_eq!(outcome.status, Some(1));
    let report = outcome.report();
    assert_eq!(report.pages("total"), u64::from(PAGES) + 1 + 2 * names.len() as u64);
    let pages: Vec<_> = report.findings().iter().filter_map(|one| one.page).collect();
    assert!(pages.contains(&(131_071 * 131_072)), "{pages:?}");
    assert!(pages.contains(&(4_294_967_295 * 131_072 + 1)), "{pages:?}");
    // Alone, too.
    for name in names {
        let outcome = check([handmade.path(format!("base/5/{name}"))]);
        assert_calm(&outcome);
        outcome.report();
        let copy = tempfile::tempdir().unwrap();
        fs::copy(handmade.path(format!("base/5/{name}")), copy.path().join(name)).unwrap();
        let outcome = check([copy.path().join(name)]);
        assert_calm(&outcome);
        outcome.report();
    }
}

#[test]
fn names_with_control_characters_are_escaped() {
    let handmade = Handmade::cluster();
    let names: [&[u8]; 5] = [
        b"16397\n  damage   everything is lost",
        b"\x1b[2J\x1b[31mred",
        b"\xff\xfe not UTF-8",
        "\u{202e}desrever".as_bytes(),
        b"\"quoted\\",
    ];
    for name in names {
        handmade.put(Path::new("base/5").join(OsStr::from_bytes(name)), b"x");
        fs::create_dir(handmade.path("base").join(OsStr::from_bytes(name))).unwrap();
        fs::create_dir(handmade.path("pg_tblspc").join(OsStr::from_bytes(name))).unwrap();
        let outcome = handmade.check_intact_pages();
        assert_eq!(outcome.report().verdict(), "intact");
        let outcome = check_text([handmade.root()]);
        assert!(!outcome.stdout.contains('\u{202e}'), "{:?}", outcome.stdout);
        assert!(!outcome.stdout.contains("\n  damage"), "{}", outcome.stdout);

        // Also where it is the target itself, or missing.
        let target = handmade.path("pg_tblspc").join(OsStr::from_bytes(name));
        for path in [target.clone(), target.join("nothing")] {
            let outcome = check_text([&path]);
            assert_calm(&outcome);
            assert_eq!(outcome.status, Some(2));
            let outcome = check([&path]);
            assert_calm(&outcome);
            outcome.report();
        }
    }
}

/// Whatever is printed of a database in a folder of such a name, by whichever command.
#[test]
fn no_character_that_misleads_reaches_the_terminal() {
    const MISLEADING: [char; 11] = [
        '\u{1b}',
        '\u{7f}',
        '\u{9b}',
        '\u{ad}',
        '\u{61c}',
        '\u{200b}',
        '\u{202e}',
        '\u{2066}',
        '\u{3164}',
        '\u{feff}',
        '\u{e0041}',
    ];
    let handmade = Handmade::cluster();
    let name: String = format!("x{}y", String::from_iter(MISLEADING));
    handmade.put(Path::new("base/5").join(&name), b"x");
    handmade.put("base/5/16397", &[0x5a; 8192]);
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    open_to_all(folder.path());
    let root = folder.path().join(&name);
    let copied = Command::new("cp").arg("-a").arg(handmade.root()).arg(&root).status();
    assert!(copied.unwrap().success());
    let table = root.join("base/5/16397");
    let nothing = folder.path().join(format!("{name}.pwk"));
    let page = folder.path().join("page.html");
    let picture = folder.path().join("picture.svg");
    let metrics = folder.path().join("metrics.prom");
    let as_arguments = |list: &[&dyn AsRef<OsStr>]| -> Vec<OsString> {
        list.iter().map(|one| one.as_ref().to_owned()).collect()
    };
    let bad_option = format!("--{name}");
    for arguments in [
        as_arguments(&[&"check", &root]),
        as_arguments(&[&"check", &"--map", &"--verbose", &root]),
        as_arguments(&[&"check", &"--progress", &root, &nothing]),
        as_arguments(&[&"check", &"--nagios", &root]),
        as_arguments(&[&"check", &"--html", &page, &root]),
        as_arguments(&[&"check", &"--picture", &picture, &root]),
        as_arguments(&[&"check", &"--metrics", &metrics, &root]),
        as_arguments(&[&"check", &"--json", &root, &nothing]),
        as_arguments(&[&"check", &table]),
        as_arguments(&[&"check", &bad_option]),
        as_arguments(&[&bad_option]),
        as_arguments(&[&"check", &"--seal", &nothing, &root]),
        as_arguments(&[&"survey", &root]),
        as_arguments(&[&"pack", &root, &"-o", &nothing]),
        as_arguments(&[&"pack", &"--estimate", &root]),
        as_arguments(&[&"unpack", &nothing, &folder.path()]),
        as_arguments(&[&"unpack", &root, &root]),
        as_arguments(&[&"mount", &nothing, &root]),
        as_arguments(&[&"mount", &"--cleanup", &root]),
        as_arguments(&[&"protect", &root]),
        as_arguments(&[&"iotest", &nothing]),
        as_arguments(&[&"cost", &"analyse", &nothing]),
        as_arguments(&[&"checksum", &format!("sqlite:{}", nothing.display())]),
    ] {
        let outcome = run(pagewarden().args(&arguments));
        assert_calm(&outcome);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!said.is_empty(), "{arguments:?}");
        let found: Vec<_> = said.chars().filter(|it| MISLEADING.contains(it)).collect();
        assert!(found.is_empty(), "{arguments:?}: {found:?} {said}");
    }
    for file in [page, picture, metrics] {
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains(MISLEADING), "{}", file.display());
    }
}

#[test]
fn many_foreign_files_are_not_a_note_each() {
    let handmade = Handmade::cluster();
    for number in 0..2000 {
        handmade.put(format!("base/5/foreign {number}"), b"");
        fs::create_dir(handmade.path(format!("base/foreign {number}"))).unwrap();
        handmade.put(format!("pg_tblspc/foreign {number}"), b"");
    }
    let report = handmade.check_intact_pages().report();
    let notes = report.target()["notes"].as_array().unwrap().len();
    assert!((1..200).contains(&notes), "{notes} notes");
}

/// A hole costs nothing to make and a day to read. Nothing of it is kept.
#[test]
fn terabyte_of_holes_is_read_in_bounded_memory_and_can_be_stopped() {
    let handmade = Handmade::cluster();
    let huge = File::create(handmade.path("base/5/16400")).unwrap();
    huge.set_len(1 << 40).unwrap();
    for words in [&["--jobs", "2"][..], &["--cached", "--jobs", "4"], &["--direct"]] {
        let mut command = pagewarden();
        let mut started = Started::spawn(
            command.args(["check", "--no-witness", "--json"]).args(words).arg(handmade.root()),
        );
        thread::sleep(Duration::from_millis(800));
        assert!(started.is_running());
        let begin = Instant::now();
        started.signal(Signal::INT);
        let outcome = started.wait();
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
        assert_calm(&outcome);
        assert_eq!(outcome.status, Some(3));
        let report = outcome.report();
        assert!(report.pages("empty") > 1000, "{}", report.pages("empty"));
        // No segment is as long as that.
        let expected = [Finding::file("base/5/16400", "damage", "structure")];
        assert_eq!(report.findings(), expected);
    }
}

/// Every page damaged: as many findings as pages, in no more memory.
#[test]
fn hundred_thousand_findings_take_no_more_memory() {
    let handmade = Handmade::cluster();
    let mut bytes = vec![0xA5; 100_000 * PAGE];
    for page in bytes.chunks_exact_mut(PAGE) {
        page[14] = 1;
    }
    handmade.put("base/5/16400", &bytes);
    drop(bytes);
    let outcome = check([handmade.root()]);
    assert_calm(&outcome);
    assert_eq!(outcome.status, Some(1));
    let report = outcome.report();
    assert_eq!(report.findings().len(), 100_000);
    assert_eq!(report.pages("damaged"), 100_000);
    // For people they are one line.
    let outcome = check_text([handmade.root()]);
    assert_calm(&outcome);
    assert!(outcome.stdout.contains("pages 0 to 99999 (100,000 pages)"), "{}", outcome.stdout);
    assert!(outcome.stdout.lines().count() < 10, "{}", outcome.stdout);
}

#[test]
fn file_where_every_page_seems_to_belong_elsewhere_takes_bounded_time() {
    let handmade = Handmade::cluster();
    // Each page is that of its mirror image: every one is searched for.
    let count = 20_000_u32;
    let mut bytes = golden("heap.3.page").repeat(count as usize);
    for (block, page) in (0..count).zip(bytes.chunks_exact_mut(PAGE)) {
        page[8100..8104].copy_from_slice(&block.to_le_bytes());
        stamp(page, count - 1 - block);
    }
    handmade.put("base/5/16400", &bytes);
    let begin = Instant::now();
    let outcome = check([handmade.root()]);
    assert_calm(&outcome);
    let report = outcome.report();
    assert_eq!(report.pages("damaged"), u64::from(count));
    let misplaced = report.findings().iter().filter(|one| one.kind == "misplaced").count();
    assert_eq!(misplaced, count as usize);
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
}

#[test]
fn damaged_control_files_are_named_and_never_a_panic() {
    let handmade = Handmade::cluster();
    let sound = golden("control.on.shutdown");
    let seal = |bytes: &mut Vec<u8>| {
        let crc = pagewarden::crc::crc32c(&bytes[..288]);
        bytes[288..292].copy_from_slice(&crc.to_le_bytes());
    };
    handmade.put("global/pg_control", &[0; 8192]);
    let report = handmade.check_intact_pages().report();
    assert_eq!(report.findings(), [Finding::file("global/pg_control", "damage", "header")]);
    // Sealed, but with numbers that no server has: block size, segment size,
    // WAL segment size, maxAlign, and all of them.
    for (at, value) in [
        (216, 0_u32),
        (216, 1),
        (216, 1 << 31),
        (216, u32::MAX),
        (220, 0),
        (220, 1),
        (220, u32::MAX),
        (228, 0),
        (228, u32::MAX),
        (200, 0),
        (200, u32::MAX),
        (16, u32::MAX),
        (32, u32::MAX),
        (8, u32::MAX),
        (8, 0),
    ] {
        let mut bytes = sound.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        seal(&mut bytes);
        handmade.put("global/pg_control", &bytes);
        let outcome = handmade.check();
        outcome.report();
    }
    let mut dice = Dice::seeded();
    for _ in 0..30 {
        let mut bytes = sound.clone();
        let (begin, length) = (dice.within(8..280), dice.within(1..64));
        dice.fill(&mut bytes[begin..begin + length]);
        seal(&mut bytes);
        handmade.put("global/pg_control", &bytes);
        handmade.check().report();
    }
}

/// Segment sizes that no build has, with segments to match.
#[test]
fn segments_by_a_strange_segment_size_overflow_nothing() {
    let handmade = Handmade::cluster();
    let mut control = golden("control.on.shutdown");
    for segment_pages in [1_u32, 2, u32::MAX] {
        control[220..224].copy_from_slice(&segment_pages.to_le_bytes());
        let crc = pagewarden::crc::crc32c(&control[..288]);
        control[288..292].copy_from_slice(&crc.to_le_bytes());
        handmade.put("global/pg_control", &control);
        for segment in [1_u32, 2, 4_294_967_295] {
            handmade.put(format!("base/5/16397.{segment}"), &pages(2));
        }
        handmade.check().report();
    }
}

#[test]
fn version_file_of_a_mebibyte_of_noise_is_not_shown() {
    let handmade = Handmade::cluster();
    let mut noise = vec![0; 1 << 20];
    Dice::seeded().fill(&mut noise);
    for bytes in [&noise[..], &b"15".repeat(1 << 19), b"", b"\n", b"\x1b[2J15\n"] {
        handmade.put("PG_VERSION", bytes);
        let report = handmade.check_intact_pages().report();
        let engine = report.target()["engine"].as_str().unwrap();
        assert!(engine.starts_with("PostgreSQL ") && engine.len() < 40, "{engine}");
    }
}

#[test]
fn deep_nesting_is_not_followed() {
    let handmade = Handmade::cluster();
    let mut deep = handmade.path("base/5");
    for _ in 0..60 {
        deep.push("5");
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("16397"), pages(1)).unwrap();
    }
    let report = handmade.check_intact_pages().report();
    assert_eq!(report.pages("total"), u64::from(PAGES) + 1);
    // Named directly, it is no folder of this cluster.
    let outcome = check([&deep]);
    assert_calm(&outcome);
    outcome.report();
}
