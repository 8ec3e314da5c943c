//! What every command promises, tried with each of them: one JSON object also where
//! nothing could be done, and words that fit.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, mkfifoat};
use rustix::process::Signal;
use serde_json::Value;

use crate::packs::{database, large_database};
use crate::runner::{OrdinaryUser, Outcome, Started, open_to_all, pagewarden, run};
use crate::sqlite;

/// The one object of a command that could do nothing.
fn failure(outcome: &Outcome, command: &str) -> Value {
    assert_eq!(outcome.status, Some(2), "{command}: {outcome:?}");
    let object: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{command}: {error}: {outcome:?}"));
    assert_eq!(object["pagewarden"], env!("CARGO_PKG_VERSION"), "{outcome:?}");
    assert_eq!(object["command"], command, "{outcome:?}");
    assert_eq!(object["verdict"], "incomplete", "{outcome:?}");
    assert!(object["seconds"].is_number() && object["error"].is_string(), "{outcome:?}");
    object
}

/// Each command that looks at a path, with what it needs beside it.
const LOOKS: [(&str, &[&str], &[&str]); 8] = [
    ("check", &[], &[]),
    ("survey", &[], &[]),
    ("scrub", &["--state", "state"], &[]),
    ("pack", &["-o", "new.pwk"], &[]),
    ("pack", &["--to", "null:"], &[]),
    ("pack", &["--estimate"], &[]),
    ("unpack", &[], &["new"]),
    ("mount", &[], &["folder"]),
];

#[test]
fn what_is_no_database_is_one_object_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("noise"), [0xa7; 9000]).unwrap();
    fs::write(root.join("cut.pwk"), "pagewarden").unwrap();
    fs::create_dir(root.join("folder")).unwrap();
    mkfifoat(rustix::fs::CWD, root.join("pipe"), Mode::from(0o600)).unwrap();
    for name in ["empty", "noise", "cut.pwk", "folder", "pipe", "/dev/zero", "gone"] {
        for (command, before, after) in LOOKS {
            let mut started = pagewarden();
            started.current_dir(root).args([command, "--json"]).args(before).arg(name).args(after);
            let outcome = run(&mut started);
            failure(&outcome, command);
            assert!(outcome.stderr.starts_with("pagewarden: "), "{outcome:?}");
        }
    }
    assert!(!root.join("new.pwk").exists() && !root.join("new").exists());
    assert_eq!(fs::read_dir(root.join("folder")).unwrap().count(), 0);
}

#[test]
fn what_may_not_be_written_is_one_object_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let pack = folder.path().join("x.pwk");
    let url = format!("sqlite:{}", database.display());
    let database = database.as_os_str();
    let made = run(pagewarden().args(["pack", "--quiet", "-o"]).arg(&pack).arg(database));
    assert_eq!(made.status, Some(0), "{made:?}");
    let pack = pack.as_os_str();
    let word = OsStr::new;
    let gone = word("/nowhere/at/all/x");
    let url = word(&url);
    let cases: [(&str, &[&OsStr]); 7] = [
        ("pack", &[database, word("-o"), pack]),
        ("pack", &[database, word("-o"), gone]),
        ("pack", &[database, word("-o"), word("/dev/null")]),
        ("unpack", &[pack, folder.path().as_os_str()]),
        ("unpack", &[pack, word("/proc/x")]),
        ("check", &[database, word("--html"), gone]),
        ("compare", &[url, url, word("--metrics"), gone]),
    ];
    for (command, arguments) in cases {
        let outcome = run(pagewarden().args([command, "--json"]).args(arguments));
        let error = failure(&outcome, command)["error"].to_string();
        assert!(error.len() > 20 && !error.contains("(os error 2): "), "{error}");
    }
}

#[test]
fn a_wrong_command_line_names_its_command_in_json() {
    for command in ["check", "pack", "unpack", "mount", "checksum", "compare", "survey", "scrub"] {
        for words in [&[command, "--json"][..], &[command, "--json", "--no-such-flag", "x", "y"]] {
            failure(&run(pagewarden().args(words)), command);
        }
    }
    let outcome = run(pagewarden().args(["chekc", "--json"]));
    let object: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert!(object["command"].is_null() && object["error"].is_string(), "{outcome:?}");
}

#[test]
fn unpack_says_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise");
    fs::write(&file, "noise").unwrap();
    let outcome = run(pagewarden().arg("unpack").arg(&file).arg(Path::new("/tmp/never-made")));
    assert!(outcome.stderr.contains("neither a pack nor a SQL Server backup"), "{outcome:?}");
}

#[test]
fn a_file_that_may_not_be_read_is_not_called_unknown() {
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    open_to_all(folder.path());
    let Some(database) = database(folder.path()) else { return };
    fs::set_permissions(&database, fs::Permissions::from_mode(0o0)).unwrap();
    let outcome = OrdinaryUser::new().check(&database);
    let error = failure(&outcome, "check")["error"].to_string();
    assert!(error.contains("ermission denied"), "{error}");
}

#[test]
fn a_pack_is_not_written_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let mut command = pagewarden();
    let outcome = run(command.current_dir(folder.path()).args(["pack", "-o", "-"]).arg(database));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("standard output\nhint: "), "{outcome:?}");
    assert!(!folder.path().join("-").exists());
}

/// A single file brings no folder along whose mode there would be.
#[test]
fn the_folder_of_an_unpacked_file_is_as_open_as_it_was_or_as_new_ones_are() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let pack = folder.path().join("x.pwk");
    assert_eq!(run(pagewarden().arg("pack").arg(&database).arg("-o").arg(&pack)).status, Some(0));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let new = folder.path().join("new");
    fs::create_dir(&new).unwrap();
    let usual = mode(&new);
    fs::set_permissions(&new, fs::Permissions::from_mode(0o2751)).unwrap();
    for (name, expected) in [("new", 0o2751), ("never", usual)] {
        let place = folder.path().join(name);
        let outcome = run(pagewarden().arg("unpack").arg(&pack).arg(&place));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert_eq!(mode(&place), expected, "{name}");
    }
}

#[test]
fn a_name_that_is_no_text_is_read_once_by_a_null_run() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let bytes = fs::metadata(&database).unwrap().len();
    let odd = folder.path().join(OsStr::from_bytes(b"a\nb\xff.db"));
    fs::rename(database, &odd).unwrap();
    let outcome = run(pagewarden().args(["pack", "--to", "null:", "--json"]).arg(&odd));
    let object: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(object["bytes"], bytes, "{object}");
}

#[test]
fn nothing_to_compare_is_said() {
    if !sqlite::has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let url = format!("sqlite:{}", folder.path().join("empty").display());
    let outcome = run(pagewarden().args(["compare", "--json", &url, &url]));
    let error = failure(&outcome, "compare")["error"].to_string();
    assert!(error.contains("no table to compare"), "{error}");
}

#[test]
fn a_checksum_that_failed_is_not_counted_as_made() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = database(folder.path()) else { return };
    let url = format!("sqlite:{}", database.display());
    let outcome = run(pagewarden().args(["checksum", &url, "--strategy", "count,native"]));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let last = outcome.stdout.lines().next_back().unwrap();
    assert!(last.starts_with("Made 1 checksum in ") && last.ends_with(", 1 failed"), "{last}");
}

/// `timeout` signals the program, and then its process group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = large_database(folder.path()) else { return };
    for _ in 0..5 {
        let mut command = pagewarden();
        command.args(["pack", "--to", "null:", "--json", "--rate", "1MiB/s"]).arg(&database);
        let started = Started::spawn(&mut command);
        std::thread::sleep(Duration::from_millis(1000));
        started.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(1));
        started.signal(Signal::INT);
        let outcome = started.wait();
        assert_eq!(outcome.status, Some(3), "{outcome:?}");
        let object: Value = serde_json::from_str(&outcome.stdout).expect(&outcome.stdout);
        assert_eq!(object["verdict"], "incomplete");
    }
}

#[test]
fn checksums_that_were_stopped_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let Some(database) = large_database(folder.path()) else { return };
    let url = format!("sqlite:{}", database.display());
    let started = Started::spawn(pagewarden().args(["checksum", "--rate", "1MiB/s", &url]));
    std::thread::sleep(Duration::from_millis(1000));
    started.signal(Signal::INT);
    let outcome = started.wait();
    assert_eq!(outcome.status, Some(3), "{outcome:?}");
    assert!(outcome.stdout.ends_with(", stopped early\n"), "{outcome:?}");
}

/// An archive of anything else is no damaged database, whatever it is called.
#[test]
fn an_archive_without_a_database_is_not_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    for (name, byte) in [("a.txt", b'a'), ("b.bin", 0), ("photo.jpg", 0xFF)] {
        fs::write(folder.path().join(name), vec![byte; 20_000]).unwrap();
    }
    let archive = std::process::Command::new("tar")
        .args(["--create", "a.txt", "b.bin", "photo.jpg"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(archive.status.success(), "{archive:?}");
    for name in ["x.tar", "photos.dat", "16384"] {
        let path = folder.path().join(name);
        fs::write(&path, &archive.stdout).unwrap();
        let outcome = run(pagewarden().arg("check").arg(&path));
        assert_eq!(outcome.status, Some(2), "{name}: {outcome:?}");
        assert!(outcome.stderr.contains("no relations were found"), "{name}: {outcome:?}");
    }
}
