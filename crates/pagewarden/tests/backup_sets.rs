//! Repositories of WAL-G and Barman, as their tools wrote them: what is healthy has no finding, what is
//! damaged is named with its stored file, its file of the database and its page.
//!
//! The repositories lie beside the project, in `../shared/fixtures/backups`, or where
//! `PAGEWARDEN_FIXTURES` says. `PAGEWARDEN_SET_WOUNDS` is the number of wounds for each, 8 without it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use pagewarden::database::repository::{self, RepositoryOptions, RepositoryPart};
use pagewarden::database::{OpenOptions, open_with};
use pagewarden::source::decode::{Compression, decode, decode_as};
use pagewarden::source::store::StorePath;
use pagewarden::source::tar::{Archive, MemberKind};
use pagewarden::verdict::{Finding, Kind, Note, Severity, Unread, Verdict};
use pagewarden::verify::{Options, Sink, verify};
use serde_json::Value;
use tempfile::TempDir;

mod wounds;

/// Fixtures with the repository in them, what it is packed with, and the number of its sets.
const WALG: [&str; 4] = ["walg-lz4", "walg-zstd", "walg-brotli-parts", "walg-zstd-libsodium"];
const BARMAN: [(&str, &str, usize); 5] = [
    ("barman-3.4-tar-gz", "demo", 1),
    ("barman-3.19-tar-zstd", "demo", 1),
    ("barman-3.4-local-rsync", "demo", 2),
    ("barman-cloud-gz", "gz", 1),
    ("barman-cloud-snappy", "snappy", 1),
];
const FULL: usize = 0;

/// A copy of a fixture that may be damaged.
pub struct Repository {
    pub name: &'static str,
    folder: TempDir,
    manifest: Value,
}

impl Repository {
    /// `None` where the fixtures are not there, said aloud.
    pub fn copy(name: &'static str) -> Option<Self> {
        let shared = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
        let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(shared, PathBuf::from);
        let source = root.join("backups").join(name);
        if !source.is_dir() {
            assert!(std::env::var_os("CI").is_none(), "{} is not there", source.display());
            eprintln!("SKIPPED: {} is not there", source.display());
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        copy_tree(&source, folder.path());
        let packed = folder.path().join("demo.tar.zst");
        if packed.is_file() {
            unpack(&fs::read(&packed).unwrap(), folder.path());
        }
        let text = fs::read_to_string(folder.path().join("manifest.json")).unwrap();
        Some(Self { name, folder, manifest: serde_json::from_str(&text).unwrap() })
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The key of an encrypted one, in a file.
    pub fn options(&self) -> RepositoryOptions {
        let key = self.manifest["libsodium_key_hex"].as_str().map(|key| {
            let path = self.at("key");
            fs::write(&path, key).unwrap();
            path
        });
        RepositoryOptions { cipher_pass_file: key, ..RepositoryOptions::default() }
    }

    /// All backups, oldest first.
    fn labels(&self) -> Vec<String> {
        let labels = self.manifest["backups"].as_array().unwrap();
        labels.iter().map(|label| label.as_str().unwrap().to_owned()).collect()
    }

    /// The stored file whose name begins like this.
    fn stored(&self, begin: &str) -> PathBuf {
        let begin = self.at(begin.trim_end_matches('*'));
        let name = begin.file_name().unwrap().to_str().unwrap().to_owned();
        let found = fs::read_dir(begin.parent().unwrap()).unwrap().flatten();
        let is_it = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with(&name);
        found.map(|entry| entry.path()).find(|path| is_it(path)).expect("a stored file")
    }
}

/// What a check said of one target.
#[derive(Debug, Default)]
pub struct Report {
    pub path: String,
    pub label: Option<String>,
    pub findings: Vec<Finding>,
    pub unread: Vec<Unread>,
    pub notes: Vec<Note>,
    pub verdict: Option<Verdict>,
    pub pages: u64,
}

impl Report {
    pub fn is_intact(&self) -> bool {
        self.verdict == Some(Verdict::Intact)
    }

    /// True if a stored file is named with a file of the database.
    fn names(&self, stored: &str, file: &str) -> bool {
        self.findings.iter().any(|finding| {
            finding.place.file == file
                && finding
                    .origin
                    .as_ref()
                    .is_some_and(|origin| stored.ends_with(&origin.stored_file))
        })
    }
}

impl Sink for Report {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unread.push(unread.clone());
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes.push(note.clone());
        Ok(())
    }
}

/// Checks a repository, or a part of one: a report for each set, and one for itself.
pub fn checked(path: &Path, repository: RepositoryOptions) -> Vec<Report> {
    let kind = repository::kind_of(&StorePath::local(path), None).expect("a repository");
    let options = OpenOptions { repository, ..OpenOptions::default() };
    let sets = (kind.open)(&StorePath::local(path), &options).expect("it can be opened");
    let count = sets.count;
    let reports: Vec<Report> = sets
        .targets
        .map(|target| {
            let mut report = Report::default();
            let verified = verify(target, &Options::default(), &(), &mut report).unwrap();
            report.verdict = Some(verified.verdict());
            report.pages = verified.summary.pages.total();
            report.path = verified.description.path.to_string_lossy().into_owned();
            if let Some(RepositoryPart::Set(backup)) = &verified.description.part {
                report.label = Some(backup.label.clone());
            }
            report
        })
        .collect();
    assert_eq!(reports.len(), count);
    reports
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            // Not copied: the fixtures may not be written to.
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Unpacks an archive in any compression but brotli.
fn unpack(packed: &[u8], folder: &Path) {
    let decoded = decode(Box::new(io::Cursor::new(packed.to_vec()))).unwrap();
    let mut archive = Archive::new(decoded.reader);
    while let Some(member) = archive.next_member().unwrap() {
        assert_eq!(member.objection, None);
        let path = folder.join(&member.name);
        match member.kind {
            MemberKind::Folder => fs::create_dir_all(&path).unwrap(),
            MemberKind::File => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let mut bytes = vec![0; usize::try_from(member.bytes).unwrap()];
                archive.read_data(&mut bytes).unwrap();
                fs::write(&path, bytes).unwrap();
            }
            MemberKind::HardLink => {
                fs::hard_link(folder.join(member.link.unwrap()), &path).unwrap();
            }
            other => panic!("{other:?}: {}", member.name),
        }
    }
}

/// A stored archive's content.
pub fn decoded(path: &Path) -> (Compression, Vec<u8>) {
    let source = Box::new(io::Cursor::new(fs::read(path).unwrap()));
    let decoded = match path.extension().is_some_and(|ending| ending == "br") {
        true => decode_as(source, Compression::Brotli),
        false => decode(source),
    };
    let mut decoded = decoded.unwrap();
    let mut all = Vec::new();
    decoded.reader.read_to_end(&mut all).unwrap();
    (decoded.compression, all)
}

/// Packs content as the stored archive was.
fn encoded(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        Compression::Snappy => {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).unwrap();
            encoder.into_inner().unwrap()
        }
        Compression::Brotli => stored_brotli(bytes),
        other => panic!("{other:?}"),
    }
}

/// A brotli stream whose blocks are stored as they are: RFC 7932, section 9.
fn stored_brotli(bytes: &[u8]) -> Vec<u8> {
    // A window of 2^16, then blocks: not the last, five digits of the length, not compressed.
    let mut stream = Vec::new();
    for (index, block) in bytes.chunks(1 << 16).enumerate() {
        let length = block.len() - 1;
        let header = (length << 3) | 1 << 19;
        let (header, bits) = if index == 0 { (header << 1, 21) } else { (header, 20) };
        let count = if bits > 16 { 3 } else { 2 };
        stream.extend(&header.to_le_bytes()[..count]);
        stream.extend(block);
    }
    stream.push(0b11);
    stream
}

/// Where a member's data begins in an archive, by its name there.
fn member_at(archive: &[u8], name: &str) -> Option<usize> {
    let header = [name.as_bytes(), b"\0"].concat();
    let at = archive.chunks(512).position(|block| block.starts_with(&header))?;
    Some((at + 1) * 512)
}

#[test]
fn healthy_sets_of_walg_are_intact_and_every_page_is_seen() {
    for name in WALG {
        let Some(repository) = Repository::copy(name) else { return };
        let root = repository.at("repo");
        let reports = checked(&root, repository.options());
        let labels: Vec<_> = reports.iter().filter_map(|report| report.label.clone()).collect();
        assert_eq!(labels, repository.labels(), "{name}");
        for report in &reports {
            assert!(report.is_intact(), "{name}: {report:#?}");
        }
        let full = reports[FULL].pages;
        assert!(full > 700, "{name}: {full}");
        // A delta alone is read with all that it builds on: the table in it has grown.
        for label in &labels[1..] {
            let sets = vec![label.clone()];
            let alone = checked(&root, RepositoryOptions { sets, ..repository.options() });
            assert!(alone.iter().all(Report::is_intact), "{name}: {alone:#?}");
            assert!(alone[0].pages >= full, "{name}: {} {full}", alone[0].pages);
        }
        // So is one that is named by its folder.
        let last = labels.last().unwrap();
        let one = checked(&root.join("basebackups_005").join(last), repository.options());
        assert_eq!((one.len(), one[0].label.as_ref()), (1, Some(last)));
        assert!(one[0].pages >= full && one[0].is_intact());
    }
}

#[test]
fn healthy_sets_of_barman_are_intact() {
    for (name, server, count) in BARMAN {
        let Some(repository) = Repository::copy(name) else { return };
        let reports = checked(&repository.at(server), RepositoryOptions::default());
        assert_eq!(reports.len(), count + 1, "{name}");
        // The collection has not the log of those in clouds: they are incomplete without it.
        let has_log = !name.starts_with("barman-cloud");
        for report in &reports {
            let is_intact = report.label.is_some() || has_log;
            assert_eq!(report.is_intact(), is_intact, "{name}: {report:#?}");
            assert!(report.label.is_none() || report.pages > 700, "{name}: {report:#?}");
        }
        let without_log = RepositoryOptions { no_log: true, ..RepositoryOptions::default() };
        let reports = checked(&repository.at(server), without_log);
        assert!(reports.iter().all(Report::is_intact), "{name}: {reports:#?}");
        for label in reports.iter().filter_map(|report| report.label.as_ref()) {
            let set = repository.at(server).join("base").join(label);
            let alone = checked(&set, RepositoryOptions::default());
            assert!(alone.len() == 1 && alone[0].is_intact(), "{name}: {alone:#?}");
            assert_eq!(alone[0].label.as_ref(), Some(label));
        }
    }
}

/// The damaged variants that the fixture names.
#[test]
fn damage_that_the_fixtures_name_is_found() {
    let servers = BARMAN.iter().map(|(name, server, _)| (*name, *server));
    for (name, folder) in WALG.map(|name| (name, "repo")).into_iter().chain(servers) {
        let Some(repository) = Repository::copy(name) else { return };
        let damages = repository.manifest["damage"].as_array().unwrap().clone();
        assert!(!damages.is_empty(), "{name}");
        for damage in damages {
            let Some(repository) = Repository::copy(name) else { return };
            let stored = damage["file"].as_str().unwrap().to_owned();
            let action = damage["action"].as_str().unwrap_or("flip");
            let is_encrypted = repository.manifest["libsodium_key_hex"].is_string();
            let mut page_of = None;
            if action == "flip" {
                let path = repository.at(&stored);
                let mut bytes = fs::read(&path).unwrap();
                let at = usize::try_from(damage["offset"].as_u64().unwrap()).unwrap();
                bytes[at] ^= u8::try_from(damage["xor"].as_u64().unwrap()).unwrap();
                // Not through a hard link: of one set only.
                fs::remove_file(&path).unwrap();
                fs::write(&path, bytes).unwrap();
            } else if action == "delete" {
                fs::remove_file(repository.stored(&stored)).unwrap();
            } else if action.starts_with("delete the folder") {
                fs::remove_dir_all(repository.at(&stored)).unwrap();
                fs::remove_file(repository.at(&format!("{stored}_backup_stop_sentinel.json")))
                    .unwrap();
            } else if is_encrypted {
                continue;
            } else {
                let inside = if folder == "repo" { "/base/1/16782" } else { "base/1/16782" };
                let beside = repository.stored(&stored).parent().unwrap().to_owned();
                let paths = fs::read_dir(beside).unwrap().flatten().map(|entry| entry.path());
                let archives = paths.filter(|path| path.to_string_lossy().contains(".tar."));
                let (path, (compression, mut archive), at) = archives
                    .map(|path| (decoded(&path), path))
                    .find_map(|(it, path)| Some((path, it.clone(), member_at(&it.1, inside)?)))
                    .expect("an archive with the member");
                page_of = Some(path.clone());
                archive[at + 5000] ^= 0xFF;
                fs::write(&path, encoded(compression, &archive)).unwrap();
            }
            let reports = checked(&repository.at(folder), repository.options());
            let failed: Vec<_> = reports.iter().filter(|report| !report.is_intact()).collect();
            assert!(!failed.is_empty(), "{name}: {damage}");
            if let Some(path) = page_of {
                let report = failed[0];
                let path = path.to_string_lossy();
                assert!(report.names(&path, "base/1/16782"), "{name}: {report:#?}");
                let page = report.findings.iter().find_map(|finding| finding.place.page);
                assert_eq!(page.map(|page| page.0), Some(0), "{name}");
            }
            let is_named = failed.iter().any(|report| {
                report.findings.iter().any(|finding| {
                    let origin = finding.origin.as_ref();
                    origin.is_some_and(|it| {
                        stored.contains(&*it.stored_file) || it.stored_file.contains("sentinel")
                    }) || stored.ends_with(&finding.place.file)
                        || finding.place.file == "global/pg_control"
                        || (finding.place.file.starts_with("pg_tblspc/") && stored.contains("/PG_"))
                        || action.starts_with("unpack")
                })
            });
            assert!(is_named, "{name}: {damage} {failed:#?}");
        }
    }
}

#[test]
fn damage_in_a_set_is_named_in_the_sets_that_build_on_it() {
    let Some(repository) = Repository::copy("walg-zstd") else { return };
    let labels = repository.labels();
    let part = format!("repo/basebackups_005/{}/tar_partitions/part_001.tar", labels[FULL]);
    let path = repository.stored(&part);
    let (compression, mut archive) = decoded(&path);
    let at = member_at(&archive, "/base/1/16782").unwrap();
    archive[at + 5000] ^= 0xFF;
    fs::write(&path, encoded(compression, &archive)).unwrap();
    let reports = checked(&repository.at("repo"), RepositoryOptions::default());
    for report in &reports[..labels.len()] {
        assert_eq!(report.verdict, Some(Verdict::Suspect), "{report:#?}");
        assert!(report.names(&path.to_string_lossy(), "base/1/16782"), "{report:#?}");
    }
}

#[test]
fn set_without_sentinel_is_none_and_sets_in_a_circle_are_found() {
    let Some(repository) = Repository::copy("walg-lz4") else { return };
    let labels = repository.labels();
    let sentinel = |label: &str| {
        repository.at(&format!("repo/basebackups_005/{label}_backup_stop_sentinel.json"))
    };
    // The full one builds on the newest.
    let text = fs::read_to_string(sentinel(&labels[FULL])).unwrap();
    let circle = text.replacen('{', &format!("{{\"DeltaFrom\":\"{}\",", labels[2]), 1);
    fs::write(sentinel(&labels[FULL]), circle).unwrap();
    let list = repository.at(&format!("repo/basebackups_005/{}/files_metadata.json", labels[FULL]));
    let files = fs::read_to_string(&list).unwrap();
    let skipped = files.replacen("\"IsSkipped\":false", "\"IsSkipped\":true", 400);
    fs::write(&list, skipped).unwrap();
    let reports = checked(&repository.at("repo"), RepositoryOptions::default());
    let words = |report: &Report| format!("{:?}", report.findings);
    assert!(words(&reports[FULL]).contains("circle"), "{:#?}", reports[FULL].findings.first());
    assert_eq!(reports[FULL].verdict, Some(Verdict::Damaged));
    fs::write(sentinel(&labels[FULL]), text).unwrap();
    fs::write(&list, files).unwrap();
    // The newest one is unfinished.
    fs::remove_file(sentinel(&labels[2])).unwrap();
    let reports = checked(&repository.at("repo"), RepositoryOptions::default());
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(Report::is_intact), "{reports:#?}");
    let notes = &reports[2].notes;
    assert!(notes.iter().any(|note| note.file.ends_with(&labels[2])), "{notes:?}");
}

#[test]
fn part_that_is_missing_or_cut_is_named_with_what_was_in_it() {
    let Some(repository) = Repository::copy("walg-zstd") else { return };
    let label = &repository.labels()[FULL];
    let part =
        repository.stored(&format!("repo/basebackups_005/{label}/tar_partitions/part_001.tar"));
    let whole = fs::read(&part).unwrap();
    fs::write(&part, &whole[..whole.len() / 2]).unwrap();
    let reports = checked(&repository.at("repo"), RepositoryOptions::default());
    let first = &reports[FULL];
    assert_eq!(first.verdict, Some(Verdict::Damaged));
    let cut = first.findings.iter().find(|finding| finding.kind == Kind::Truncated).unwrap();
    assert!(cut.place.file.starts_with("base/1/") && cut.origin.is_some(), "{cut:?}");
    assert!(first.findings.iter().any(|finding| finding.kind == Kind::Missing));
    // No set that builds on it is called good.
    assert!(reports[..3].iter().all(|report| report.verdict == Some(Verdict::Damaged)));
    fs::remove_file(&part).unwrap();
    let reports = checked(&repository.at("repo"), RepositoryOptions::default());
    let first = &reports[FULL];
    let missing = first.findings.iter().filter(|finding| finding.kind == Kind::Missing);
    assert!(missing.count() > 10, "{:#?}", first.findings);
    assert_eq!(first.verdict, Some(Verdict::Damaged));
}

#[test]
fn encrypted_set_without_its_key_is_incomplete_with_a_remedy() {
    let Some(repository) = Repository::copy("walg-zstd-libsodium") else { return };
    let wrong = repository.at("wrong");
    fs::write(&wrong, "11".repeat(32)).unwrap();
    for cipher_pass_file in [None, Some(wrong)] {
        let options = RepositoryOptions { cipher_pass_file, ..RepositoryOptions::default() };
        for report in &checked(&repository.at("repo"), options)[..3] {
            assert_eq!(report.verdict, Some(Verdict::Incomplete), "{report:#?}");
            assert!(report.findings.is_empty() && report.pages == 0, "{report:#?}");
            assert!(report.unread[0].error.contains("--cipher-pass-file"), "{report:#?}");
        }
    }
    let Some(repository) = Repository::copy("walg-zstd") else { return };
    let label = &repository.labels()[FULL];
    let parts = repository.at(&format!("repo/basebackups_005/{label}/tar_partitions"));
    for part in fs::read_dir(parts).unwrap().flatten() {
        // A packet of a session key, version 3.
        fs::write(part.path(), [&[0x85, 1, 12, 3][..], &[7; 400]].concat()).unwrap();
    }
    let reports = checked(&repository.at("repo"), RepositoryOptions::default());
    assert_eq!(reports[FULL].verdict, Some(Verdict::Incomplete));
    assert!(reports[FULL].unread[0].error.contains("wal-g backup-fetch"), "{:#?}", reports[FULL]);
}

#[test]
fn barman_backup_that_is_not_done_is_a_note_and_one_that_is_gone_is_damage() {
    let Some(repository) = Repository::copy("barman-3.19-tar-zstd") else { return };
    let label = &repository.labels()[FULL];
    let info = repository.at(&format!("demo/meta/{label}-backup.info"));
    let text = fs::read_to_string(&info).unwrap();
    fs::write(&info, text.replace("status=DONE", "status=FAILED")).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    assert_eq!(reports.len(), 1);
    assert!(reports[0].notes.iter().any(|note| note.text.contains("FAILED")), "{reports:#?}");
    fs::write(&info, text.replace("status=DONE", "status=DONF")).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    assert_eq!(reports[0].verdict, Some(Verdict::Damaged), "{reports:#?}");
    fs::write(&info, &text).unwrap();
    fs::remove_file(repository.at(&format!("demo/base/{label}/data/16770.tar.zst"))).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    let missing = reports[0].findings.iter().find(|finding| finding.kind == Kind::Missing).unwrap();
    assert!(missing.place.file.contains("16770.tar"), "{missing:?}");
    fs::remove_dir_all(repository.at(&format!("demo/base/{label}"))).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    assert_eq!(reports[0].verdict, Some(Verdict::Damaged), "{reports:#?}");
}

#[test]
fn encrypted_archives_of_barman_are_incomplete_with_the_pipe_as_remedy() {
    let Some(repository) = Repository::copy("barman-3.4-tar-gz") else { return };
    let data = repository.at(&format!("demo/base/{}/data", repository.labels()[FULL]));
    fs::rename(data.join("base.tar.gz"), data.join("base.tar.gz.gpg")).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    assert_eq!(reports[0].verdict, Some(Verdict::Incomplete), "{reports:#?}");
    assert!(reports[0].unread[0].error.contains("gpg -d "), "{reports:#?}");
}

/// The method that writes plain files links tablespaces by absolute paths.
#[test]
fn plain_backup_of_barman_is_whole_where_its_links_lead_nowhere() {
    let Some(repository) = Repository::copy("barman-3.4-tar-gz") else { return };
    let set = repository.at(&format!("demo/base/{}", repository.labels()[FULL]));
    let packed = set.join("packed");
    fs::rename(set.join("data"), &packed).unwrap();
    fs::create_dir_all(set.join("data/pg_tblspc")).unwrap();
    unpack(&fs::read(packed.join("base.tar.gz")).unwrap(), &set.join("data"));
    unpack(&fs::read(packed.join("16770.tar.gz")).unwrap(), &set.join("16770"));
    fs::copy(packed.join("backup_manifest"), set.join("data/backup_manifest")).unwrap();
    fs::remove_dir_all(&packed).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all/16770", set.join("data/pg_tblspc/16770")).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    assert!(reports[0].is_intact() && reports[0].pages > 700, "{reports:#?}");
    // The data directory alone, without the log, which lies elsewhere in the repository.
    let repository_options = RepositoryOptions { no_log: true, ..RepositoryOptions::default() };
    let options = OpenOptions { repository: repository_options, ..OpenOptions::default() };
    let target = open_with(&set.join("data"), None, &options).unwrap();
    let mut report = Report::default();
    let verified = verify(target, &Options::default(), &(), &mut report).unwrap();
    assert_eq!(
        (verified.verdict(), verified.summary.pages.total()),
        (Verdict::Intact, reports[0].pages)
    );
    let table = set.join("16770/PG_15_202209061/1/16776");
    let mut bytes = fs::read(&table).unwrap();
    bytes[5000] ^= 0xFF;
    fs::write(&table, bytes).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    let names: Vec<_> = reports[0].findings.iter().map(|it| it.place.file.as_str()).collect();
    assert!(names.contains(&"pg_tblspc/16770/PG_15_202209061/1/16776"), "{names:?}");
    assert_eq!(reports[0].verdict, Some(Verdict::Damaged));
    fs::remove_dir_all(set.join("16770")).unwrap();
    let reports = checked(&repository.at("demo"), RepositoryOptions::default());
    assert_eq!(reports[0].verdict, Some(Verdict::Damaged), "{reports:#?}");
}

#[test]
fn set_that_is_asked_for_and_is_not_there_is_refused() {
    let Some(repository) = Repository::copy("walg-lz4") else { return };
    let path = repository.at("repo");
    let sets = vec!["base_000000010000000000000099".to_owned()];
    let wanted = RepositoryOptions { sets, ..RepositoryOptions::default() };
    let options = OpenOptions { repository: wanted, ..OpenOptions::default() };
    let kind = repository::kind_of(&StorePath::local(&path), None).unwrap();
    let error = (kind.open)(&StorePath::local(&path), &options).unwrap_err().to_string();
    assert!(error.contains("base_000000010000000000000099"), "{error}");
    let latest = RepositoryOptions { latest: true, ..RepositoryOptions::default() };
    let reports = checked(&path, latest);
    assert_eq!((reports.len(), reports[0].label.as_ref()), (2, repository.labels().last()));
    assert!(reports[0].is_intact() && reports[0].pages > 700);
}

/// The part of a pgBackRest set that is left when only changed files are stored.
#[test]
fn data_folder_of_an_incremental_set_has_no_false_damage() {
    let Some(repository) = Repository::copy("barman-3.4-local-rsync") else { return };
    let set = repository.at(&format!("demo/base/{}", repository.labels()[FULL]));
    let part = set.join("pg_data");
    fs::rename(set.join("data"), &part).unwrap();
    fs::write(set.join("backup.manifest"), "[backup]\nbackup-type=\"incr\"\n").unwrap();
    for name in ["PG_VERSION", "base/1/pg_filenode.map", "global/pg_filenode.map", "base/1/16384"] {
        fs::remove_file(part.join(name)).unwrap();
    }
    let target = open_with(&part, None, &OpenOptions::default()).unwrap();
    let mut report = Report::default();
    let verified = verify(target, &Options::default(), &(), &mut report).unwrap();
    assert_eq!(verified.verdict(), Verdict::Incomplete, "{report:#?}");
    assert!(report.findings.iter().all(|it| it.severity < Severity::Suspect), "{report:#?}");
    assert!(report.unread.iter().any(|it| it.error.contains("pgBackRest")), "{report:#?}");
}

/// Members of an archive that have pages, by name.
pub fn relations(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut archive = Archive::new(archive);
    while let Ok(Some(member)) = archive.next_member() {
        let last = member.name.rsplit('/').next().unwrap_or_default();
        let has_pages = last.starts_with(|letter: char| letter.is_ascii_digit())
            && (member.name.contains("base/")
                || member.name.contains("global/")
                || member.name.contains("/PG_"));
        if member.kind == MemberKind::File && has_pages {
            let mut bytes = vec![0; usize::try_from(member.bytes).unwrap()];
            if archive.read_data(&mut bytes).is_err() {
                break;
            }
            found.insert(member.name, bytes);
        }
    }
    found
}
