//! Backups that mariabackup makes: folders before and after they are prepared,
//! streams, increments, and files that were compressed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewarden_scratch::mariadb::Server;
use tempfile::TempDir;

use crate::mariadb_samples::{CHANGES, Shape, installation, server, tables};
use crate::runner::{Finding, Outcome, check, pagewarden, run};

/// A running server and the folder that its backups go to; nothing where there is
/// no server, or no program for backups.
struct Source {
    server: Server,
    folder: TempDir,
    _keys: TempDir,
}

impl Source {
    fn new() -> Option<Self> {
        let installation = installation()?;
        if Command::new("mariabackup").arg("--version").output().is_err() {
            assert!(!pagewarden_scratch::required("mariadb"), "mariabackup is required");
            eprintln!("SKIPPED: mariabackup is not installed here; apt-get install mariadb-backup");
            return None;
        }
        let (mut server, keys) = server(&installation, Shape::USUAL);
        server.start().unwrap();
        server.sql(&tables(Shape::USUAL)).unwrap();
        // So that all pages are in the files, and not in the log only, and none is purged later.
        server.sql("SET GLOBAL innodb_fast_shutdown=0").unwrap();
        server.stop().unwrap();
        server.start().unwrap();
        let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
        Some(Self { server, folder, _keys: keys })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn backup(&self, arguments: &[&str]) -> Vec<u8> {
        let output = Command::new("mariabackup")
            .args(["--no-defaults", "--backup", "--user=root"])
            .arg(format!("--socket={}", self.server.home().path().join("socket").display()))
            .arg(format!("--datadir={}", self.server.data_dir().display()))
            .args(arguments)
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}");
        output.stdout
    }

    fn backup_to(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let folder = self.path(name);
        let target = format!("--target-dir={}", folder.display());
        self.backup(&[&[target.as_str()], arguments].concat());
        folder
    }
}

fn prepare(folder: &Path) {
    let target = format!("--target-dir={}", folder.display());
    let output =
        Command::new("mariabackup").args(["--no-defaults", "--prepare", &target]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn check_piped(bytes: &[u8]) -> Outcome {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    run(pagewarden().args(["check", "--json", "-"]).stdin(Stdio::from(file)))
}

fn must_be_intact(outcome: &Outcome, state: &str, what: &str) -> u64 {
    let report = outcome.report();
    assert_eq!(report.findings(), [], "{what}: {:?}", report.details());
    assert!(report.unread().is_empty(), "{what}: {:?}", report.unread());
    assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"), "{what}");
    let said = report.target()["state"].as_str().unwrap();
    assert!(said.contains(state), "{what}: {said}");
    report.pages("total")
}

/// Changes one byte of a page.
fn damage(path: &Path, page: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[page * 16_384 + 7000] ^= 0xFF;
    fs::write(path, bytes).unwrap();
}

#[test]
fn backups_are_intact_in_every_form_and_damage_in_them_is_found() {
    let Some(source) = Source::new() else { return };
    let full = source.backup_to("full", &[]);
    let pages = must_be_intact(&check([&full]), "a backup: its log has yet", "full");
    assert!(pages > 1000, "{pages}");

    let stream = source.backup(&["--stream=xbstream", "--parallel=2"]);
    let streamed = must_be_intact(&check_piped(&stream), "a stream of a backup", "stream");
    assert_eq!(streamed, pages, "as many pages as in the folder");
    let packed = zstd::encode_all(stream.as_slice(), 1).unwrap();
    assert_eq!(must_be_intact(&check_piped(&packed), "a stream of a backup", "packed"), pages);
    let file = source.path("backup.xbstream");
    fs::write(&file, &stream).unwrap();
    assert_eq!(must_be_intact(&check([&file]), "a stream of a backup", "a file"), pages);

    // Another form of the same: each table packed by itself.
    let packed = source.path("packed");
    assert!(Command::new("cp").arg("-a").args([&full, &packed]).status().unwrap().success());
    let mut formats = [0, 0];
    for (index, entry) in fs::read_dir(packed.join("shop")).unwrap().flatten().enumerate() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "ibd") {
            pack(&path, index % 2 == 0);
            formats[index % 2] += 1;
        }
    }
    pack(&packed.join("ibdata1"), true);
    assert!(formats.iter().all(|count| *count > 0), "{formats:?}");
    assert_eq!(must_be_intact(&check([&packed]), "a backup", "each packed"), pages);
    let name = packed.join("shop/unknown.ibd.qp");
    fs::write(&name, b"qpress10").unwrap();
    let outcome = check([&packed]);
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(2), "incomplete"));
    assert!(outcome.report().unread()["shop/unknown.ibd.qp"].contains("qpress"));

    let found = [Finding::page_at("shop/dynamic.ibd", 4, 4 * 16_384, "damage", "checksum")];
    damage(&full.join("shop/dynamic.ibd"), 4);
    assert_eq!(check([&full]).report().findings(), found);
    let header = fs::read(full.join("shop/dynamic.ibd")).unwrap()[4 * 16_384..][..512].to_vec();
    let mut stream = stream;
    let at = stream.windows(512).position(|window| window == header).unwrap();
    stream[at + 7000] ^= 0xFF;
    let outcome = check_piped(&stream);
    let findings = outcome.report().findings();
    assert!(findings.contains(&found[0]), "{findings:?}");
    // The piece of the stream has a sum too.
    assert_eq!(findings.len(), 2, "{findings:?}");
    for length in [stream.len() / 3, 40] {
        let outcome = check_piped(&stream[..length]);
        assert_eq!(outcome.status.filter(|status| *status > 0), outcome.status);
        assert!(!outcome.report().unread().is_empty(), "cut at {length}");
    }
}

fn pack(path: &Path, with_zstd: bool) {
    let bytes = fs::read(path).unwrap();
    let name = path.to_string_lossy().into_owned();
    if with_zstd {
        fs::write(format!("{name}.zst"), zstd::encode_all(bytes.as_slice(), 1).unwrap()).unwrap();
    } else {
        let file = fs::File::create(format!("{name}.lz4")).unwrap();
        let mut encoder = lz4_flex::frame::FrameEncoder::new(file);
        encoder.write_all(&bytes).unwrap();
        encoder.finish().unwrap();
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn increments_are_judged_page_by_page_and_prepared_ones_as_a_whole() {
    let Some(source) = Source::new() else { return };
    let full = source.backup_to("full", &[]);
    source.server.sql(CHANGES).unwrap();
    let base = format!("--incremental-basedir={}", full.display());
    let increment = source.backup_to("increment", &[&base]);
    let pages = must_be_intact(&check([&increment]), "incremental", "increment");
    assert!(pages > 100, "{pages}");
    let stream = source.backup(&[&base, "--stream=xbstream"]);
    must_be_intact(&check_piped(&stream), "incremental", "stream of an increment");

    // The first page of a file of changed pages is a list.
    let delta = increment.join("shop/late.ibd.delta");
    damage(&delta, 3);
    let report = check([&increment]).report();
    let findings = report.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(
        (findings[0].file.as_str(), findings[0].offset),
        ("shop/late.ibd.delta", Some(3 * 16_384))
    );
    assert_eq!(findings[0].severity, "damage");

    prepare(&full);
    must_be_intact(&check([&full]), "a prepared backup", "prepared");
    let table = full.join("shop/dynamic.ibd");
    let mut bytes = fs::read(&table).unwrap();
    bytes[4 * 16_384..5 * 16_384].fill(0);
    fs::write(&table, bytes).unwrap();
    let expected = Finding::page_at("shop/dynamic.ibd", 4, 4 * 16_384, "damage", "zeroed");
    assert_eq!(check([&full]).report().findings(), [expected]);
}
