//! Base backups of a busy server in every form: sound ones raise no alarm,
//! damage is found where it is, and what is cut off is called incomplete.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pagewarden_scratch::postgres::{Cluster, Installation, Options};
use rustix::process::Signal;

use crate::clusters::{any_installation, installations, sample};
use crate::damage::{PAGE, page_mut};
use crate::object_storage::server::{Fault, Server};
use crate::object_storage::{command as in_store, comparable};
use crate::runner::{Finding, Started, check, pagewarden, run};
use crate::tar_files::{BLOCK, file, header, member, members, read, seal, write};

/// Backups of one busy server.
struct Backups {
    cluster: Cluster,
    /// The file of a relation that no session changed while they were taken.
    quiet: String,
    /// The file of one that everybody changed.
    busy: String,
    /// The file of a quiet relation in the tablespace, below the data directory.
    elsewhere: String,
}

/// All forms as folders, with the arguments that make them.
const FORMS: [(&str, &[&str]); 8] = [
    ("plain", &["-Fp"]),
    ("tar", &["-Ft"]),
    ("gzip", &["-Ft", "--compress=client-gzip:1"]),
    ("lz4", &["-Ft", "--compress=client-lz4"]),
    ("zstd", &["-Ft", "--compress=client-zstd:1"]),
    ("server-lz4", &["-Ft", "--compress=server-lz4"]),
    ("sha", &["-Ft", "-Xnone", "--manifest-checksums=SHA256"]),
    ("fetch", &["-Ft", "-Xfetch"]),
];

/// Those in archives, with the name of the base.
const ARCHIVES: [(&str, &str); 7] = [
    ("tar", "base.tar"),
    ("gzip", "base.tar.gz"),
    ("lz4", "base.tar.lz4"),
    ("zstd", "base.tar.zst"),
    ("server-lz4", "base.tar.lz4"),
    ("sha", "base.tar"),
    ("fetch", "base.tar"),
];

/// Statements that change pages all over the server until they are ended.
struct Load(Child);

impl Load {
    fn on(cluster: &Cluster) -> Self {
        let mut command = cluster.client("pgbench").unwrap();
        command.args(["-n", "-T", "300", "-c", "3"]).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Backups {
    fn of(installation: &Installation) -> &'static Self {
        type Shared = HashMap<String, Arc<OnceLock<Backups>>>;
        static SHARED: OnceLock<Mutex<Shared>> = OnceLock::new();
        let place = {
            let mut shared =
                SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(shared.entry(installation.version.clone()).or_default())
        };
        let place: &'static OnceLock<Self> = Box::leak(Box::new(place));
        place.get_or_init(|| Self::take_all(installation))
    }

    fn take_all(installation: &Installation) -> Self {
        let mut options = Options::default().with("max_wal_senders", "6");
        if installation.major >= 17 {
            options = options.with("summarize_wal", "on");
        }
        let mut cluster = Cluster::init(installation, &options).unwrap();
        cluster.start().unwrap();
        cluster.pgbench(&["-i", "-q", "-s", "2"]).unwrap();
        cluster.add_tablespace("elsewhere").unwrap();
        cluster
            .psql(
                "CREATE TABLE quiet AS SELECT g AS n, repeat('quiet', 20) AS word \
                     FROM generate_series(1, 5000) g; \
                 CREATE TABLE faraway TABLESPACE elsewhere AS SELECT * FROM quiet; \
                 VACUUM (FREEZE) quiet; VACUUM (FREEZE) faraway; CHECKPOINT;",
            )
            .unwrap();
        let mut path = |relation: &str| {
            cluster.relation_path("postgres", relation).unwrap().to_str().unwrap().to_owned()
        };
        let (quiet, busy) = (path("quiet"), path("pgbench_accounts"));
        let elsewhere = path("faraway");
        let backups = Self { cluster, quiet, busy, elsewhere };
        let load = Load::on(&backups.cluster);
        for (name, arguments) in FORMS {
            backups.take(name, arguments);
        }
        if installation.major >= 17 {
            let manifest = backups.folder("plain").join("backup_manifest");
            let base = format!("--incremental={}", manifest.display());
            backups.take("incremental", &["-Fp", &base]);
            backups.take("incremental-tar", &["-Ft", &base]);
        }
        drop(load);
        // A backup to standard output is one archive, without tablespaces.
        backups.cluster.psql("DROP TABLE faraway; DROP TABLESPACE elsewhere;").unwrap();
        backups
    }

    /// Takes a backup into a folder of that name.
    fn take(&self, name: &str, arguments: &[&str]) {
        let folder = self.folder(name);
        let tablespace = self.cluster.home().join("tablespace_elsewhere");
        let moved = format!(
            "--tablespace-mapping={}={}",
            tablespace.display(),
            self.folder(&format!("{name}-elsewhere")).display()
        );
        let mut command = self.cluster.client("pg_basebackup").unwrap();
        command.args(["-c", "fast", "-D"]).arg(&folder).args(arguments);
        if arguments.contains(&"-Fp") {
            command.arg(moved);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.cluster.home().join(name)
    }

    /// A backup to standard output, of the base alone.
    fn stream(&self) -> Command {
        let mut command = self.cluster.client("pg_basebackup").unwrap();
        command.args(["-c", "fast", "-D", "-", "-Ft", "-X", "none"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}

fn backups() -> impl Iterator<Item = &'static Backups> {
    let installations = installations().into_iter();
    installations
        .filter(|one| one.major >= 15 && one.has("pg_basebackup"))
        .map(|one| Backups::of(&one))
}

/// A copy of a backup to be damaged.
fn copy(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let status =
        Command::new("cp").arg("-a").arg(folder.join(".")).arg(copy.path()).status().unwrap();
    assert!(status.success());
    copy
}

fn check_piped(bytes: &[u8]) -> crate::runner::Outcome {
    let scratch = tempfile::NamedTempFile::new().unwrap();
    fs::write(scratch.path(), bytes).unwrap();
    let mut source =
        Command::new("cat").arg(scratch.path()).stdout(Stdio::piped()).spawn().unwrap();
    let input = Stdio::from(source.stdout.take().unwrap());
    let outcome = run(pagewarden().args(["check", "--json", "-"]).stdin(input));
    source.wait().unwrap();
    outcome
}

#[test]
fn backups_of_a_busy_server_are_sound_in_every_form() {
    for backups in backups() {
        let version = &backups.cluster.installation().version;
        let extra = ["incremental", "incremental-tar"].iter();
        for name in FORMS.iter().map(|(name, _)| name).chain(extra) {
            let folder = backups.folder(name);
            if !folder.exists() {
                continue;
            }
            let outcome = check([&folder]);
            let report = outcome.report();
            assert_eq!(report.findings(), [], "{version} {name}");
            assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"), "{version} {name}");
            let target = report.target();
            assert_eq!(target["engine"], format!("PostgreSQL {version}"), "{name}");
            assert_eq!(target["format"], "postgres");
            assert_eq!(target["setting"], "checksum", "{version} {name}");
            assert!(report.pages("ok") > 1000, "{version} {name}: {target}");
            assert!(target["notes"].as_array().unwrap().is_empty(), "{version} {name}: {target}");
        }
    }
}

#[test]
fn archive_alone_names_what_lies_elsewhere_and_a_tablespace_needs_no_control_file() {
    for backups in backups() {
        for (form, base) in ARCHIVES {
            let outcome = check([backups.folder(form).join(base)]);
            let report = outcome.report();
            assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"), "{form}");
            assert_eq!(report.findings(), [], "{form}");
            let unread: Vec<_> = report.unread().into_keys().collect();
            assert_eq!(unread.len(), 1, "{form}: {unread:?}");

            let oid = unread[0].strip_prefix("pg_tblspc/").unwrap();
            let tablespace = backups.folder(form).join(base.replace("base", oid));
            let outcome = check([&tablespace]);
            let report = outcome.report();
            assert_eq!(outcome.status, Some(0), "{form}");
            assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{form}");
            assert!(report.target()["setting"].is_null());
            assert!(report.pages("ok") > 50);
        }
    }
}

#[test]
fn backup_is_checked_while_it_is_taken() {
    for backups in backups() {
        let load = Load::on(&backups.cluster);
        let mut taking = backups.stream().spawn().unwrap();
        let input = Stdio::from(taking.stdout.take().unwrap());
        let outcome = run(pagewarden().args(["check", "--json", "-"]).stdin(input));
        drop(load);
        assert!(taking.wait().unwrap().success());
        let report = outcome.report();
        assert_eq!(report.findings(), []);
        assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"));
        assert!(report.pages("ok") > 1000);
        assert!(report.target()["notes"].as_array().unwrap().is_empty());
    }
}

#[test]
fn backup_whose_taking_is_killed_is_incomplete() {
    for backups in backups() {
        let mut taking = backups.stream().args(["-r", "8M"]).spawn().unwrap();
        let input = Stdio::from(taking.stdout.take().unwrap());
        let mut command = pagewarden();
        let started = Started::spawn(command.args(["check", "--json", "-"]).stdin(input));
        thread::sleep(Duration::from_millis(1500));
        taking.kill().unwrap();
        taking.wait().unwrap();
        let outcome = started.wait();
        let report = outcome.report();
        assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"));
        assert_eq!(report.serious(), []);
    }
}

/// The writer holds the pipe open and says nothing.
#[test]
fn silent_stream_is_given_up_when_told_to() {
    let mut silent = Command::new("sleep").arg("60").stdout(Stdio::piped()).spawn().unwrap();
    let input = Stdio::from(silent.stdout.take().unwrap());
    let started = Started::spawn(pagewarden().args(["check", "--json", "-"]).stdin(input));
    thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    started.signal(Signal::INT);
    let outcome = started.wait();
    silent.kill().unwrap();
    silent.wait().unwrap();
    assert_eq!(outcome.status, Some(3), "{outcome:?}");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn stream_that_is_cut_off_is_incomplete() {
    for backups in backups() {
        let archive = read(&backups.folder("tar").join("base.tar"));
        let places = [archive.len() / 2, archive.len() - 1024, archive.len() - 2000, 4096];
        for length in places {
            let outcome = check_piped(&archive[..length]);
            let report = outcome.report();
            assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"), "{length}");
            assert_eq!(report.serious(), [], "{length}");
            let unread = report.unread();
            assert!(unread.values().any(|error| error.contains("cut off")), "{unread:?}");
        }
        // All of it, but for the tablespace, which has an archive of its own.
        let whole = check_piped(&archive).report();
        let unread: Vec<_> = whole.unread().into_keys().collect();
        assert!(matches!(*unread, [file] if file.starts_with("pg_tblspc/")), "{unread:?}");
        for (form, base) in &ARCHIVES[1..5] {
            let compressed = fs::read(backups.folder(form).join(base)).unwrap();
            let outcome = check_piped(&compressed[..compressed.len() / 3]);
            let report = outcome.report();
            assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"), "{form}");
        }
    }
}

/// In an archive on its own, in the folder of archives, and in a plain folder.
#[test]
fn damaged_page_is_found_at_its_place_in_every_form() {
    for backups in backups() {
        for (form, base) in ARCHIVES {
            let folder = copy(&backups.folder(form));
            let path = folder.path().join(base);
            let mut archive = read(&path);
            let quiet = member(&archive, &backups.quiet);
            page_mut(&mut archive[quiet.data..], 7)[5000] ^= 4;
            write(&path, &archive);
            let expected = [
                Finding::file(&backups.quiet, "damage", "checksum"),
                Finding::page(&backups.quiet, 7, "damage", "checksum"),
            ];
            for target in [folder.path(), &path] {
                let outcome = check([target]);
                let report = outcome.report();
                assert_eq!((outcome.status, report.verdict()), (Some(1), "damaged"), "{form}");
                assert_eq!(report.serious(), expected, "{form}");
                assert_eq!(report.pages("damaged"), 1, "{form}");
            }
            // Without its manifest the page speaks for itself.
            fs::remove_file(folder.path().join("backup_manifest")).unwrap();
            let report = check([&path]).report();
            assert_eq!(report.serious(), expected[1..], "{form}");
            let report = check_piped(&fs::read(&path).unwrap()).report();
            assert_eq!(report.serious(), expected[1..], "{form}");
        }
        let tablespace = copy(&backups.folder("tar"));
        let archives = fs::read_dir(tablespace.path()).unwrap();
        let path = archives
            .map(|entry| entry.unwrap().path())
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with('1'))
            .unwrap();
        let mut archive = read(&path);
        let inside = backups.elsewhere.split('/').skip(2).collect::<Vec<_>>().join("/");
        let faraway = member(&archive, &inside);
        page_mut(&mut archive[faraway.data..], 3)[5000] ^= 4;
        write(&path, &archive);
        let report = check([tablespace.path()]).report();
        let page = Finding::page(&backups.elsewhere, 3, "damage", "checksum");
        assert!(report.serious().contains(&page), "{:?}", report.serious());
        let report = check([&path]).report();
        let page = Finding::page(&inside, 3, "damage", "checksum");
        assert!(report.serious().contains(&page), "{:?}", report.serious());
    }
}

/// A page that was changed while the backup was taken may have been read half
/// written; one from after its end may not.
#[test]
fn page_from_during_the_backup_is_suspect() {
    for backups in backups() {
        let folder = copy(&backups.folder("tar"));
        // With the log available, it would say more.
        fs::remove_file(folder.path().join("pg_wal.tar")).unwrap();
        let path = folder.path().join("base.tar");
        let sound = read(&path);
        let (start, end) = range_of(folder.path());
        let (start, end) = (number_of(&start), number_of(&end));
        assert!(start < end);
        for (lsn, severity) in [
            (start - 1, "damage"),
            (start, "suspect"),
            (end, "suspect"),
            (end + 1, "damage"),
            (u64::MAX, "damage"),
        ] {
            let mut archive = sound.clone();
            let begin = member(&archive, &backups.busy).data;
            let page = page_mut(&mut archive[begin..], 2);
            page[..4].copy_from_slice(&((lsn >> 32) as u32).to_le_bytes());
            page[4..8].copy_from_slice(&(lsn as u32).to_le_bytes());
            page[6000] ^= 1;
            write(&path, &archive);
            let report = check([&path]).report();
            let page = Finding::page(&backups.busy, 2, severity, "checksum");
            assert!(report.serious().contains(&page), "{lsn:x}: {:?}", report.serious());
        }
    }
}

/// Blocks of a relation that the log of the backup holds a full image of before
/// anything else is said about them, by the server's own tool. The first and the last
/// segment also hold records from before the backup's start and after its end.
fn blocks_with_images(backups: &Backups, folder: &Path, wal: &Path, relation: &str) -> Vec<u32> {
    let first = first_records(backups, folder, wal, relation);
    let blocks: Vec<_> =
        first.into_iter().filter(|(_, is_image)| *is_image).map(|(block, _)| block).collect();
    assert!(!blocks.is_empty(), "nothing changed {relation} while the backup was taken");
    blocks
}

/// The blocks of a relation that the log of a backup changes, and whether the first record that does
/// so brings the whole page.
fn first_records(
    backups: &Backups,
    folder: &Path,
    wal: &Path,
    relation: &str,
) -> BTreeMap<u32, bool> {
    let (start, end) = range_of(folder);
    let mut command = backups.cluster.installation().command("pg_waldump");
    command.arg("-p").arg(wal).args(["-s", &start, "-e", &end]);
    let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(!output.is_empty(), "pg_waldump told nothing of {}", wal.display());
    let number = relation.rsplit('/').next().unwrap();
    let mut first = BTreeMap::new();
    for reference in output.split("blkref #").skip(1) {
        let reference = reference.lines().next().unwrap();
        let words: Vec<_> = reference.split([' ', ',', ';', '/']).collect();
        let is_ours = words.contains(&number) && !reference.contains("fork");
        let block = words.iter().position(|word| *word == "blk").map(|at| words[at + 1]);
        if let Some(block) = block.filter(|_| is_ours) {
            first.entry(block.parse().unwrap()).or_insert(reference.contains("FPW"));
        }
    }
    first
}

/// Where a backup's log starts and ends, as its manifest words it.
fn range_of(folder: &Path) -> (String, String) {
    let manifest = fs::read_to_string(folder.join("backup_manifest")).unwrap();
    let lsn = |name: &str| {
        let text = manifest.split(&format!("\"{name}\": \"")).nth(1).unwrap();
        text.split('"').next().unwrap().to_owned()
    };
    (lsn("Start-LSN"), lsn("End-LSN"))
}

/// The number of a log position.
fn number_of(lsn: &str) -> u64 {
    let (high, low) = lsn.split_once('/').unwrap();
    let part = |digits| u64::from_str_radix(digits, 16).unwrap();
    part(high) << 32 | part(low)
}

/// In `pg_wal.tar`, in the archive itself, or in a folder that is named.
#[test]
fn page_that_the_log_of_the_backup_overwrites_is_a_notice() {
    for backups in backups().filter(|backups| backups.cluster.installation().has("pg_waldump")) {
        let wal = tempfile::tempdir().unwrap();
        let unpack = |archive: PathBuf, only: &[&str]| {
            let mut tar = Command::new("tar");
            tar.arg("-xf").arg(archive).arg("-C").arg(wal.path()).args(only);
            assert!(tar.status().unwrap().success());
        };
        for form in ["tar", "gzip", "zstd", "fetch"] {
            let folder = copy(&backups.folder(form));
            let base = ARCHIVES.iter().find(|(name, _)| *name == form).unwrap().1;
            let path = folder.path().join(base);
            // Only gzip compresses the log too.
            let logs = ["pg_wal.tar", "pg_wal.tar.gz"].map(|name| folder.path().join(name));
            let log = logs.into_iter().find(|log| log.exists()).unwrap_or_default();
            fs::remove_dir_all(wal.path()).unwrap();
            fs::create_dir(wal.path()).unwrap();
            let wal = if form == "fetch" {
                unpack(path.clone(), &["pg_wal"]);
                wal.path().join("pg_wal")
            } else {
                unpack(log.clone(), &[]);
                wal.path().to_owned()
            };
            let images = blocks_with_images(backups, folder.path(), &wal, &backups.busy);
            let block = u64::from(images[images.len() / 2]);
            let mut archive = read(&path);
            let begin = member(&archive, &backups.busy).data;
            archive[begin + block as usize * PAGE + 5000] ^= 1;
            let quiet = member(&archive, &backups.quiet).data;
            archive[quiet + PAGE + 5000] ^= 1;
            write(&path, &archive);

            let mended = |severity: &str| Finding::page(&backups.busy, block, severity, "checksum");
            let expect = |what: &str, arguments: &[&OsStr], severity: &str| {
                let what = format!("{form}, {what}");
                let report = check(arguments).report();
                let pages: Vec<_> =
                    report.findings().into_iter().filter(|one| one.page.is_some()).collect();
                assert!(pages.contains(&mended(severity)), "{what}: {pages:?}");
                let damage = Finding::page(&backups.quiet, 1, "damage", "checksum");
                assert!(pages.contains(&damage), "{what}: {pages:?}");
                assert_eq!(pages.len(), 2, "{what}: {pages:?}");
                let told = report.details().iter().any(|words| words.contains("replay of the log"));
                assert_eq!(told, severity == "notice", "{what}: {:?}", report.details());
            };
            let named = [OsStr::new("--wal"), wal.as_os_str(), path.as_os_str()];
            expect("beside", &[folder.path().as_os_str()], "notice");
            expect("alone", &[path.as_os_str()], "notice");
            expect("named", &named, "notice");
            if form != "fetch" {
                fs::remove_file(&log).unwrap();
                expect("not there", &[path.as_os_str()], without_log(&archive, begin, block));
                expect("named only", &named, "notice");
            }
        }
    }
}

/// What `pg_basebackup --format=tar` made, in a bucket: what is said of it on a disk is said of it there.
#[test]
fn archives_in_a_bucket_give_the_report_that_they_give_on_a_disk() {
    for backups in backups().take(1) {
        for (form, base) in ARCHIVES {
            let folder = copy(&backups.folder(form));
            let assert_same = |what: &str, verdict: &str| {
                let server = Server::start();
                server.put_folder("backups/monday", folder.path());
                let here = check([folder.path()]);
                let address = "s3://bucket/backups/monday";
                let there = run(&mut in_store(&server, "check", &["--json", address]));
                let what = format!("{form}, {what}: {}", there.stderr);
                let report = here.report();
                assert_eq!((there.status, report.verdict()), (here.status, verdict), "{what}");
                let here = comparable(&report.json, folder.path().to_str().unwrap());
                assert_eq!(comparable(&there.report().json, address), here, "{what}");
                // Nor is it several databases to one who names the folder above it.
                let all = ["--json", "s3://bucket/backups"];
                let all = run(&mut in_store(&server, "check", &all)).report().json;
                assert_eq!(all["targets"].as_array().unwrap().len(), 1, "{what}: {all}");
                assert_eq!(all["verdict"], verdict, "{what}");
            };
            assert_same("sound", "intact");
            let path = folder.path().join(base);
            let mut archive = read(&path);
            let quiet = member(&archive, &backups.quiet);
            page_mut(&mut archive[quiet.data..], 7)[5000] ^= 4;
            write(&path, &archive);
            assert_same("a flipped bit", "damaged");
            let mut archives: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            archives.retain(|path| {
                path.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with(|it: char| it.is_ascii_digit())
            });
            fs::remove_file(&archives[0]).unwrap();
            assert_same("a tablespace is lost", "damaged");
        }
    }
}

/// A page that the log overwrites is no damage because a store did not give the log.
#[test]
fn log_that_a_store_does_not_give_makes_no_damage() {
    for backups in backups().filter(|it| it.cluster.installation().has("pg_waldump")).take(1) {
        let folder = copy(&backups.folder("tar"));
        let (path, log) = (folder.path().join("base.tar"), folder.path().join("pg_wal.tar"));
        let wal = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        assert!(tar.arg("-xf").arg(&log).arg("-C").arg(wal.path()).status().unwrap().success());
        let images = blocks_with_images(backups, folder.path(), wal.path(), &backups.busy);
        let block = u64::from(images[images.len() / 2]);
        let mut archive = read(&path);
        let begin = member(&archive, &backups.busy).data;
        archive[begin + block as usize * PAGE + 5000] ^= 1;
        write(&path, &archive);
        // What stands in the manifest is not so either, which would say more than the page does.
        fs::remove_file(folder.path().join("backup_manifest")).unwrap();
        for (is_given, severity) in [(true, "notice"), (false, "suspect")] {
            let server = Server::start();
            server.put_folder("monday", folder.path());
            if !is_given {
                server.fail("GET /bucket/monday/pg_wal.tar", usize::MAX, Fault::Status(503));
            }
            let outcome = run(&mut in_store(&server, "check", &["--json", "s3://bucket/monday"]));
            let report = outcome.report();
            let page = Finding::page(&backups.busy, block, severity, "checksum");
            assert!(report.findings().contains(&page), "{:?}", report.findings());
            let serious = if is_given { vec![] } else { vec![page] };
            assert_eq!(report.serious(), serious);
            let told = report.details().iter().any(|words| words.contains("was not read: s3://"));
            assert_eq!(told, !is_given, "{:?}", report.details());
        }
    }
}

/// What a failing page of a server's backup is by its LSN alone: from before the
/// backup's start, damage.
fn without_log(archive: &[u8], begin: usize, block: u64) -> &'static str {
    let page = &archive[begin + block as usize * PAGE..];
    let word = |at: usize| u64::from(u32::from_le_bytes(page[at..at + 4].try_into().unwrap()));
    let label = member(archive, "backup_label");
    let label = std::str::from_utf8(&archive[label.data..label.data + label.bytes]).unwrap();
    let start = label.split("START WAL LOCATION: ").nth(1).unwrap().split(' ').next().unwrap();
    if (word(0) << 32 | word(4)) < number_of(start) { "damage" } else { "suspect" }
}

#[test]
fn file_that_is_not_as_in_the_manifest_is_damage() {
    for backups in backups() {
        let folder = copy(&backups.folder("tar"));
        let path = folder.path().join("base.tar");
        let sound = read(&path);
        let quiet = member(&sound, &backups.quiet);
        let without = [&sound[..quiet.header], &sound[quiet.end()..]].concat();
        write(&path, &without);
        let missing = Finding::file(&backups.quiet, "damage", "missing");
        assert_eq!(check([&path]).report().serious(), vec![missing.clone()]);
        assert_eq!(check([folder.path()]).report().serious(), vec![missing.clone()]);

        // Zeroes where a page was, which nothing else could tell from a new one.
        let mut zeroed = sound.clone();
        page_mut(&mut zeroed[quiet.data..], 5).fill(0);
        write(&path, &zeroed);
        let wrong = Finding::file(&backups.quiet, "damage", "checksum");
        assert_eq!(check([&path]).report().serious(), vec![wrong.clone()]);

        let mut shorter = sound.clone();
        let bytes = quiet.bytes - PAGE;
        shorter.drain(quiet.data + bytes..quiet.end());
        let field = &mut shorter[quiet.header..quiet.header + BLOCK];
        field[124..136].copy_from_slice(format!("{bytes:011o} ").as_bytes());
        seal(field);
        write(&path, &shorter);
        let truncated = Finding::file(&backups.quiet, "damage", "truncated");
        assert_eq!(check([&path]).report().serious(), vec![truncated.clone()]);

        let mut foreign = sound.clone();
        let configuration = member(&sound, "postgresql.conf");
        foreign[configuration.data] ^= 1;
        write(&path, &foreign);
        let changed = Finding::file("postgresql.conf", "damage", "checksum");
        assert_eq!(check([&path]).report().serious(), vec![changed.clone()]);

        let manifest = folder.path().join("backup_manifest");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(&manifest, text.replacen("\"Size\": ", "\"Size\": 1", 1)).unwrap();
        write(&path, &sound);
        let broken = Finding::file("backup_manifest", "damage", "checksum");
        assert_eq!(check([&path]).report().serious(), vec![broken.clone()]);

        let plain = copy(&backups.folder("plain"));
        fs::remove_file(plain.path().join(&backups.quiet)).unwrap();
        let conf = plain.path().join("postgresql.conf");
        let mut bytes = fs::read(&conf).unwrap();
        bytes[0] ^= 1;
        let written = fs::metadata(&conf).unwrap().modified().unwrap();
        fs::write(&conf, bytes).unwrap();
        // A medium that loses a bit leaves the time as it was.
        File::options().write(true).open(&conf).unwrap().set_modified(written).unwrap();
        fs::write(plain.path().join("global/stray"), "").unwrap();
        let report = check([plain.path()]).report();
        let mut serious = report.serious();
        serious.sort();
        let mut expected = vec![missing, changed];
        expected.sort();
        assert_eq!(serious, expected);
        let notes = report.target()["notes"].to_string();
        assert!(notes.contains("global/stray"), "{notes}");
        // Settings are edited before a restored backup is started.
        File::options().write(true).open(&conf).unwrap().set_modified(SystemTime::now()).unwrap();
        let missing = Finding::file(&backups.quiet, "damage", "missing");
        assert_eq!(check([plain.path()]).report().serious(), [missing]);
    }
}

/// A server starts on it without a word, and does not replay the log from where the backup began.
#[test]
fn backup_that_has_lost_its_label_is_damaged_and_one_that_was_started_is_none() {
    for backups in backups() {
        let plain = copy(&backups.folder("plain"));
        fs::remove_file(plain.path().join("backup_label")).unwrap();
        for options in [&[][..], &["--no-log"], &["--structure"]] {
            let report = check(options.iter().map(AsRef::as_ref).chain([plain.path().as_os_str()]));
            let report = report.report();
            let missing = Finding::file("backup_label", "damage", "missing");
            assert!(report.serious().contains(&missing), "{options:?}: {:?}", report.serious());
            assert_eq!(report.verdict(), "damaged", "{options:?}");
        }
        // A server that starts writes the control file.
        let control = plain.path().join("global/pg_control");
        let mut bytes = fs::read(&control).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&control, bytes).unwrap();
        assert_ne!(check([plain.path()]).report().verdict(), "damaged");
    }
}

#[test]
fn incremental_backup_is_judged_by_the_numbers_of_its_blocks() {
    for backups in backups() {
        let source = backups.folder("incremental-tar");
        if !source.exists() {
            continue;
        }
        let folder = copy(&source);
        let path = folder.path().join("base.tar");
        let mut archive = read(&path);
        let (parent, name) = backups.busy.rsplit_once('/').unwrap();
        let whole = members(&archive).into_iter().find(|member| member.name == backups.busy);
        if whole.is_some() {
            // Nine tenths of it had changed.
            continue;
        }
        let changed = format!("{parent}/INCREMENTAL.{name}");
        let changed = member(&archive, &changed);
        let word = |at: usize| {
            let bytes = &archive[changed.data + at..changed.data + at + 4];
            u32::from_le_bytes(bytes.try_into().unwrap())
        };
        let count = word(4) as usize;
        assert!(count > 1);
        // One that was changed while the backup was taken is mended by its log: the busier the
        // machine, the more of them.
        let wal = tempfile::tempdir().unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(folder.path().join("pg_wal.tar")).arg("-C").arg(wal.path());
        assert!(tar.status().unwrap().success());
        let first = first_records(backups, folder.path(), wal.path(), &backups.busy);
        let block_at = |index: usize| word(12 + 4 * index);
        let quiet = (1..count).find(|index| !first.contains_key(&block_at(*index)));
        let mended = || (1..count).find(|index| first.get(&block_at(*index)) == Some(&true));
        let index = quiet.or_else(mended).expect("a block that is mended, or that is not changed");
        let number = block_at(index);
        let begin = changed.bytes - count * PAGE + index * PAGE;
        let severity = match quiet {
            Some(_) => without_log(&archive, changed.data + begin, 0),
            None => "notice",
        };
        archive[changed.data + begin + 5000] ^= 16;
        write(&path, &archive);
        let report = check([folder.path()]).report();
        let found: Vec<_> =
            report.findings().into_iter().filter(|one| one.page.is_some()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].page, found[0].offset), (Some(number.into()), Some(begin as u64)));
        assert_eq!((&*found[0].file, &*found[0].severity), (&*changed.name, severity));

        let plain = copy(&backups.folder("incremental"));
        let sound = check([plain.path()]).report();
        assert_eq!(sound.serious(), []);
        let state = sound.target()["state"].as_str().unwrap();
        assert!(state.contains("an incremental backup"), "{state}");
        let header = plain.path().join(&changed.name);
        if let Ok(mut bytes) = fs::read(&header) {
            bytes[0] ^= 1;
            fs::write(&header, bytes).unwrap();
            let report = check([plain.path()]).report();
            let finding = Finding::file(&changed.name, "damage", "header");
            assert!(report.serious().contains(&finding), "{:?}", report.serious());
        }
    }
}

/// Packed by any program, from a cluster that was shut down: what fails is damage.
#[test]
fn archive_of_a_cluster_at_rest_is_judged_like_the_cluster() {
    let Some(installation) = any_installation() else { return };
    for checksums in [true, false] {
        let sample = sample(&installation, checksums);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cold.tar");
        let status = Command::new("tar")
            .arg("-C")
            .arg(sample.cluster.data_dir().parent().unwrap())
            .args(["--format=ustar", "-cf"])
            .args([path.as_os_str(), "data".as_ref()])
            .status()
            .unwrap();
        assert!(status.success());
        let report = check([&path]).report();
        assert_eq!(report.serious(), []);
        // The tablespace lies elsewhere.
        assert_eq!(report.verdict(), "incomplete");
        assert!(report.unread().keys().all(|file| file.contains("pg_tblspc/")));
        let direct = check([sample.cluster.data_dir()]).report();
        let in_archive = |name: &str| report.pages(name);
        for name in ["ok", "empty", "unprotected"] {
            let elsewhere = direct.pages("total") - report.pages("total");
            assert!(in_archive(name) + elsewhere >= direct.pages(name), "{name}");
        }
        let mut archive = read(&path);
        let item = format!("data/{}", sample.file("item"));
        let place = member(&archive, &item);
        page_mut(&mut archive[place.data..], 1)[18] = 0;
        page_mut(&mut archive[place.data..], 2)[6000] ^= 1;
        write(&path, &archive);
        let report = check([&path]).report();
        let mut expected = vec![Finding::page(&item, 1, "damage", "header")];
        if checksums {
            expected.push(Finding::page(&item, 2, "damage", "checksum"));
        }
        assert_eq!(report.serious(), expected);
        assert_eq!(report.pages("damaged"), expected.len() as u64);
    }
}

#[test]
fn hostile_archives_are_refused_in_clear_words() {
    let page = vec![0_u8; PAGE];
    let sound = file("base/5/1259", &page);
    let end = vec![0_u8; 2 * BLOCK];
    let pax = |text: &str| [header("pax", b'x', text.len() as u64), padded(text)].concat();
    for (bytes, word) in [
        (file("../base/5/1", &page), "'..'"),
        (file("/base/5/1", &page), "absolute"),
        (sound.clone(), "two files of this name"),
        (header("base/5/1", b'2', 0), "not followed"),
        (header("base/5/1", b'1', 0), "not followed"),
        (header("base/5/1", b'3', 0), "not followed"),
        (header("base/5/1", b'S', 0), "sparse"),
        (header("x", b'x', 1 << 30), "record of 1073741824 bytes"),
        (header("x", b'L', 1 << 30), "record of 1073741824 bytes"),
        ([pax("11 size=77\n"), file("base/5/1", &page)].concat(), "two sizes"),
        (vec![7; BLOCK], "checksum does not fit"),
        (file("other/base/5/7", &page), "second data directory"),
    ] {
        let outcome = check_piped(&[sound.clone(), bytes, end.clone()].concat());
        let report = outcome.report();
        assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"), "{word}");
        let unread = report.unread();
        assert!(unread.values().any(|error| error.contains(word)), "{word}: {unread:?}");
        assert!(outcome.memory_kib < 128 << 10, "{word}: {} KiB", outcome.memory_kib);
    }
    let outcome = check_piped(&[sound, end, b"more".to_vec()].concat());
    assert_eq!(outcome.status, Some(0));
    assert!(outcome.stdout.contains("something follows the end"));
}

fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

#[test]
fn stream_that_is_no_backup_is_refused_with_advice() {
    let end = vec![0_u8; 2 * BLOCK];
    for (bytes, word) in [
        (Vec::new(), "standard input was empty"),
        (b"something else and more".to_vec(), "save it to a file"),
        (vec![0; 8192], "no tar archive"),
        ([file("readme", b"hello"), end].concat(), "no relations were found"),
    ] {
        let outcome = check_piped(&bytes);
        assert_eq!(outcome.status, Some(2), "{word}");
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
        outcome.report();
    }
}
