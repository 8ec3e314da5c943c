//! `pagewarden mount`: files and servers on mounted packs, and every way a mount ends.
//!
//! Where there is no FUSE they say so and are skipped; `PAGEWARDEN_REQUIRE=fuse` forbids
//! that.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::{mariadb, postgres::StopMode, required};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::clusters::{contents, installations, sample};
use crate::damage::Dice;
use crate::runner::{Outcome, Started, pagewarden, run};
use crate::sqlite;

mod durable;
mod ends;
mod ordinary_users;
mod repack_kills;
mod servers;
mod tablespaces;

/// What a read-only workload may leave, at most.
const READ_ONLY_DELTA_BYTES: u64 = 16 << 20;

/// False, and said aloud, where packs cannot be mounted.
fn has_fuse() -> bool {
    let may_mount = rustix::process::geteuid().is_root()
        || ["/bin/fusermount3", "/usr/bin/fusermount3"].iter().any(|path| Path::new(path).exists());
    let found = Path::new("/dev/fuse").exists() && may_mount;
    if !found {
        assert!(!required("fuse"), "PAGEWARDEN_REQUIRE asks for FUSE, and it cannot be used here");
        // Past the capture of the test harness.
        let _ = writeln!(std::io::stderr(), "SKIPPED: FUSE cannot be used here");
    }
    found
}

/// True if something is mounted on a folder, dead or alive.
fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == folder.to_str())
}

/// A pack that is mounted. Dropping it takes the mount away, whatever has happened.
struct Mount {
    started: Option<Started>,
    folder: PathBuf,
}

impl Mount {
    fn begin(pack: &Path, folder: &Path, options: &[&str]) -> Self {
        Self::in_words(pack, folder, &[&["--json"], options].concat())
    }

    /// One that tells its end to people.
    fn in_words(pack: &Path, folder: &Path, options: &[&str]) -> Self {
        let mut command = pagewarden();
        Self::spawn(command.arg("mount").args(options).arg(pack).arg(folder), folder)
    }

    /// One that this command makes.
    fn spawn(command: &mut Command, folder: &Path) -> Self {
        Self::attempt(command, folder)
            .unwrap_or_else(|outcome| panic!("it is not mounted: {outcome:?}"))
    }

    /// The same, or what it says where it refuses.
    fn attempt(command: &mut Command, folder: &Path) -> Result<Self, Outcome> {
        let mut started = Started::spawn(command);
        let begin = Instant::now();
        while !is_mounted(folder) {
            if !started.is_running() || begin.elapsed() > Duration::from_secs(30) {
                return Err(started.wait());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { started: Some(started), folder: folder.to_owned() })
    }

    fn signal(&self, signal: Signal) {
        self.started.as_ref().unwrap().signal(signal);
    }

    /// Waits for the end, and says how it was.
    fn wait(mut self) -> Outcome {
        self.started.take().unwrap().wait()
    }

    /// Ends it as Ctrl-C does.
    fn end(self) -> (Outcome, Value) {
        self.signal(Signal::INT);
        let folder = self.folder.clone();
        let outcome = self.wait();
        assert!(!is_mounted(&folder), "{outcome:?}");
        let json = serde_json::from_str(&outcome.stdout).unwrap();
        (outcome, json)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            started.signal(Signal::KILL);
            started.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        }
    }
}

/// A folder with a pack of a SQLite database in it.
struct Packed {
    folder: TempDir,
    pack: PathBuf,
    plain: Vec<u8>,
}

impl Packed {
    /// `None` where there is no shell to make it, which that says.
    fn new() -> Option<Self> {
        if !has_fuse() || !sqlite::has_shell() {
            return None;
        }
        // Others must get in, and `/tmp` itself is open to them.
        let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        sqlite::shell(
            folder.path(),
            ".open shop.db\n\
             CREATE TABLE stock(id INTEGER PRIMARY KEY, quantity INT, data TEXT);\n\
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)\n\
             INSERT INTO stock SELECT i, i % 100, hex(randomblob(40)) FROM n;",
        );
        let source = folder.path().join("shop.db");
        let pack = folder.path().join("shop.pwk");
        make_pack(&source, &pack);
        let plain = fs::read(&source).unwrap();
        Some(Self { folder, pack, plain })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn make_pack(source: &Path, pack: &Path) {
    let outcome = run(pagewarden().arg("pack").arg(source).arg("-o").arg(pack));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
}

fn kind(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap()
}

#[test]
fn a_mounted_cluster_is_the_very_files() {
    if !has_fuse() {
        return;
    }
    let Some(installation) = crate::clusters::any_installation() else { return };
    let mut source = sample(&installation, true).copy();
    source.execute("postgres", &["DROP TABLE elsewhere"]).unwrap();
    source.execute("postgres", &["DROP TABLESPACE sample_space"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (pack, place) = (folder.path().join("x.pwk"), folder.path().join("files"));
    make_pack(source.data_dir(), &pack);
    let mount = Mount::begin(&pack, &place, &[]);
    let attributes = |root: &Path| {
        contents(root)
            .into_iter()
            .map(|(path, sum)| {
                let data = fs::symlink_metadata(&path).unwrap();
                let owner = rustix::process::geteuid().is_root().then(|| (data.uid(), data.gid()));
                let name = path.strip_prefix(root).unwrap().to_owned();
                (name, sum, data.len(), data.mode(), owner, data.mtime(), data.mtime_nsec())
            })
            .collect::<Vec<_>>()
    };
    let source = source.data_dir();
    assert_eq!(attributes(&place), attributes(source));
    for name in ["", "pg_wal", "pg_wal/archive_status", "base"] {
        let of = |root: &Path| {
            let data = fs::metadata(root.join(name)).unwrap();
            (data.mode(), data.mtime(), fs::read_dir(root.join(name)).unwrap().count())
        };
        assert_eq!(of(&place), of(source), "{name}");
    }
    let (outcome, json) = mount.end();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!((&json["verdict"], &json["delta_bytes_max"]), (&"intact".into(), &0.into()));
    assert!(outcome.stderr.contains("is mounted on"), "{}", outcome.stderr);
}

#[test]
fn files_can_be_changed_and_are_the_old_ones_the_next_time() {
    let Some(packed) = Packed::new() else { return };
    let place = packed.path("files");
    let before = fs::read(&packed.pack).unwrap();
    for options in [&[][..], &["--scratch", "/tmp"]] {
        let mount = Mount::begin(&packed.pack, &place, options);
        let file = place.join("shop.db");
        assert!(fs::read(&file).unwrap() == packed.plain);
        let open = OpenOptions::new().read(true).write(true).open(&file).unwrap();
        open.write_all_at(b"changed", 8190).unwrap();
        open.sync_all().unwrap();
        let mut expected = packed.plain.clone();
        expected[8190..8197].copy_from_slice(b"changed");
        assert!(fs::read(&file).unwrap() == expected);
        open.set_len(5000).unwrap();
        open.set_len(20_000).unwrap();
        expected.truncate(5000);
        expected.resize(20_000, 0);
        assert!(fs::read(&file).unwrap() == expected);
        names_change(&place);
        drop(open);
        let (outcome, json) = mount.end();
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        assert!(json["written_bytes"].as_u64().unwrap() >= 7, "{json}");
        let delta = json["delta_bytes_max"].as_u64().unwrap();
        assert!((8192..200_000).contains(&delta), "{json}");
    }
    assert!(fs::read(&packed.pack).unwrap() == before, "the pack is never written");
    let mount = Mount::begin(&packed.pack, &place, &["--read-only"]);
    assert!(fs::read(place.join("shop.db")).unwrap() == packed.plain);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    assert_eq!(kind(&fs::write(place.join("new"), "x").unwrap_err()), libc_number("EROFS"));
    mount.end();
}

/// What servers do with names.
fn names_change(place: &Path) {
    let at = |name: &str| place.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/new"), "one").unwrap();
    fs::rename(at("d/new"), at("d/other")).unwrap();
    fs::hard_link(at("d/other"), at("d/linked")).unwrap();
    assert_eq!(fs::metadata(at("d/linked")).unwrap().nlink(), 2);
    fs::write(at("d/temporary"), "two").unwrap();
    fs::rename(at("d/temporary"), at("d/other")).unwrap();
    assert_eq!(fs::read(at("d/other")).unwrap(), b"two");
    assert_eq!(fs::read(at("d/linked")).unwrap(), b"one");
    // A file that is open and has no name any longer.
    let mut open = File::options().read(true).append(true).open(at("d/linked")).unwrap();
    fs::remove_file(at("d/linked")).unwrap();
    open.write_all(b" more").unwrap();
    let mut text = vec![0; 8];
    open.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(text, b"one more");
    symlink("other", at("d/symbolic")).unwrap();
    assert_eq!(fs::read(at("d/symbolic")).unwrap(), b"two");
    fs::set_permissions(at("d/other"), Permissions::from_mode(0o640)).unwrap();
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::options().write(true).open(at("d/other")).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(long_ago)).unwrap();
    let data = fs::metadata(at("d/other")).unwrap();
    assert_eq!((data.mode() & 0o7777, data.mtime()), (0o640, 1_000_000_000));
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(fs::metadata(at("d/other")).unwrap().len(), 100_000);
    assert_eq!(fs::remove_dir(at("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::create_dir(at("d")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let listed: Vec<_> =
        fs::read_dir(at("d")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(listed, ["other", "symbolic"]);
    fs::remove_file(at("d/symbolic")).unwrap();
    fs::remove_file(at("d/other")).unwrap();
    fs::remove_dir(at("d")).unwrap();
    assert_eq!(fs::metadata(at("d")).unwrap_err().kind(), ErrorKind::NotFound);
}

/// Numbers of errors that the standard library has no name for.
fn libc_number(name: &str) -> i32 {
    match name {
        "EIO" => rustix::io::Errno::IO,
        "EROFS" => rustix::io::Errno::ROFS,
        "ENOSPC" => rustix::io::Errno::NOSPC,
        "ENOTCONN" => rustix::io::Errno::NOTCONN,
        other => panic!("{other}"),
    }
    .raw_os_error()
}

#[test]
fn what_is_written_is_bounded_and_kept_in_order_by_many_writers() {
    let Some(packed) = Packed::new() else { return };
    let place = packed.path("files");
    let mount = Mount::begin(&packed.pack, &place, &["--delta-max", "4MiB"]);
    let error = fs::write(place.join("large"), vec![1; 8 << 20]).unwrap_err();
    assert_eq!(kind(&error), libc_number("ENOSPC"), "{error}");
    fs::remove_file(place.join("large")).unwrap();
    assert!(fs::read(place.join("shop.db")).unwrap() == packed.plain);
    // Each thread has pages of its own in one file, and a file of its own.
    thread::scope(|scope| {
        for number in 0..4_usize {
            let (place, plain) = (&place, &packed.plain);
            scope.spawn(move || {
                let mut dice = Dice::seeded();
                let mut options = File::options();
                let file = options.read(true).write(true).open(place.join("shop.db")).unwrap();
                for _ in 0..40 {
                    let page = dice.within(0..40) * 4 + number;
                    let byte = u8::try_from(number + 1).unwrap();
                    file.write_all_at(&[byte; 4096], page as u64 * 4096).unwrap();
                    let mut out = vec![0; 4 * 4096];
                    file.read_exact_at(&mut out, (page - number) as u64 * 4096).unwrap();
                    assert!(out[number * 4096..(number + 1) * 4096].iter().all(|one| *one == byte));
                    let untouched = dice.within(200..plain.len() / 4096) * 4096;
                    let mut out = vec![0; 4096];
                    file.read_exact_at(&mut out, untouched as u64).unwrap();
                    assert!(out == plain[untouched..untouched + 4096]);
                    let own = place.join(format!("own{number}"));
                    fs::write(&own, [byte; 5000]).unwrap();
                    assert_eq!(fs::read(&own).unwrap(), [byte; 5000]);
                    fs::remove_file(&own).unwrap();
                }
            });
        }
    });
    let (outcome, json) = mount.end();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(json["delta_bytes_max"].as_u64().unwrap() <= 4 << 20, "{json}");
    assert!(json["delta_bytes"].as_u64().unwrap() <= 160 * 4096 + 8192, "{json}");
}

#[test]
fn owners_are_kept_or_chosen_and_others_come_in_as_modes_allow() {
    let Some(packed) = Packed::new() else { return };
    let place = packed.path("files");
    let file = place.join("shop.db");
    let ourselves = fs::metadata(&packed.pack).unwrap().uid();
    let is_root = rustix::process::geteuid().is_root();
    let mount = Mount::begin(&packed.pack, &place, &[]);
    assert_eq!(fs::metadata(&file).unwrap().uid(), ourselves);
    if is_root {
        let cat = || Command::new("cat").arg(&file).uid(65534).gid(65534).output().unwrap();
        assert!(cat().stdout == packed.plain, "its mode lets others read");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert!(!cat().status.success(), "and now it does not");
    }
    mount.end();
    let mount = Mount::begin(&packed.pack, &place, &["--owner", "1234:5678"]);
    let data = fs::metadata(&file).unwrap();
    assert_eq!((data.uid(), data.gid()), (1234, 5678));
    mount.end();
    let refused =
        run(pagewarden().args(["mount", "--owner", "no such user"]).arg(&packed.pack).arg(&place));
    assert_eq!(refused.status, Some(2), "{refused:?}");
}

#[test]
fn a_delta_is_mounted_with_what_it_builds_on() {
    let Some(packed) = Packed::new() else { return };
    let (delta, place) = (packed.path("delta.pwk"), packed.path("files"));
    sqlite::shell(
        packed.folder.path(),
        ".open shop.db\nUPDATE stock SET quantity = 7 WHERE id % 5000 = 0;",
    );
    let source = packed.path("shop.db");
    let mut command = pagewarden();
    command.arg("pack").arg("--base").arg(&packed.pack).arg(&source).arg("-o").arg(&delta);
    let made = run(&mut command);
    assert_eq!(made.status, Some(0), "{made:?}");
    let plain = fs::read(&source).unwrap();
    assert!(plain != packed.plain && fs::metadata(&delta).unwrap().len() < 1 << 20);
    let mount = Mount::begin(&delta, &place, &[]);
    assert!(fs::read(place.join("shop.db")).unwrap() == plain);
    mount.end();
    let elsewhere = packed.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::rename(&packed.pack, elsewhere.join("base.pwk")).unwrap();
    let refused = run(pagewarden().arg("mount").arg(&delta).arg(&place));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let base = elsewhere.join("base.pwk");
    let mount = Mount::begin(&delta, &place, &["--base", base.to_str().unwrap()]);
    assert!(fs::read(place.join("shop.db")).unwrap() == plain);
    mount.end();
}

#[test]
fn a_damaged_block_is_an_error_with_a_name_and_never_wrong_bytes() {
    let Some(packed) = Packed::new() else { return };
    let place = packed.path("files");
    let mut bytes = fs::read(&packed.pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&packed.pack, &bytes).unwrap();
    let mount = Mount::begin(&packed.pack, &place, &[]);
    let file = File::open(place.join("shop.db")).unwrap();
    let mut failures = Vec::new();
    for (number, plain) in packed.plain.chunks(4096).enumerate() {
        let mut page = vec![0; plain.len()];
        match file.read_exact_at(&mut page, number as u64 * 4096) {
            Ok(()) => assert!(page == plain, "page {number}"),
            Err(error) => {
                assert_eq!(kind(&error), libc_number("EIO"), "page {number}: {error}");
                failures.push(number as u64 * 4096);
            }
        }
    }
    let block = failures.first().expect("the damaged block was read") / 65536 * 65536;
    assert!(failures.iter().all(|offset| (block..block + 65536).contains(offset)), "{failures:?}");
    // As a program that reads it through.
    let mut file = file;
    let mut all = Vec::new();
    assert_eq!(kind(&file.read_to_end(&mut all).unwrap_err()), libc_number("EIO"));
    assert!(packed.plain.starts_with(&all));
    drop(file);
    let (outcome, json) = mount.end();
    assert_eq!((outcome.status, &json["verdict"]), (Some(1), &"damaged".into()), "{outcome:?}");
    let message = format!("shop.db: cannot read from byte {block} on");
    assert_eq!(outcome.stderr.matches(&message).count(), 1, "told once: {}", outcome.stderr);
}
