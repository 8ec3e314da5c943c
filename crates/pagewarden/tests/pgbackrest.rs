//! Repositories that pgBackRest made: healthy ones, and ones damaged at named bytes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pagewarden::database::OpenOptions;
use pagewarden::database::repository::{self, RepositoryOptions, RepositoryPart};
use pagewarden::source::store::StorePath;
use pagewarden::verdict::{Finding, Kind, Note, Severity, Unread, Verdict};
use pagewarden::verify::{Caching, Options, Sink, Verified, verify};
use serde_json::Value;
use sha1::{Digest as _, Sha1};

/// One target's report.
#[derive(Debug, Default)]
pub struct Set {
    pub label: String,
    pub findings: Vec<Finding>,
    pub unread: Vec<Unread>,
    pub notes: Vec<Note>,
    pub verified: Option<Verified>,
}

impl Set {
    pub fn verdict(&self) -> Verdict {
        self.verified.as_ref().unwrap().verdict()
    }

    pub fn pages(&self) -> u64 {
        self.verified.as_ref().unwrap().summary.pages.total()
    }

    /// Findings of this severity about a stored file.
    fn damage_in(&self, stored_file: &str) -> Vec<&Finding> {
        let is_in = |finding: &&Finding| {
            finding.severity == Severity::Damage
                && finding.origin.as_ref().is_some_and(|origin| origin.stored_file == stored_file)
        };
        self.findings.iter().filter(is_in).collect()
    }
}

impl Sink for Set {
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

/// A repository of the collection, copied so that it can be damaged.
pub struct Repository {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
    pub manifest: Value,
    pub options: OpenOptions,
}

/// All repositories of the tool; none, said aloud, where there are no fixtures.
pub fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(root()) else {
        assert!(std::env::var_os("CI").is_none(), "{} is not there", root().display());
        eprintln!("SKIPPED: {} is not there", root().display());
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("pgbackrest-")).collect();
    names.sort();
    names
}

fn root() -> PathBuf {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures").into();
    std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from).join("backups")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_file() {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl Repository {
    pub fn named(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("repo");
        copy(&root().join(name).join("repo"), &path);
        let manifest = fs::read(root().join(name).join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let mut options = OpenOptions::default();
        if let Some(pass) = manifest["cipher_pass"].as_str() {
            let file = folder.path().join("pass");
            fs::write(&file, format!("{pass}\n")).unwrap();
            options.repository.cipher_pass_file = Some(file);
        }
        Self { _folder: folder, path, manifest, options }
    }

    /// The folder of its only stanza, in the repository.
    pub fn stanza(&self) -> PathBuf {
        self.path.join("backup/demo")
    }

    pub fn labels(&self) -> Vec<String> {
        let labels = self.manifest["labels"].as_array().unwrap();
        labels.iter().map(|label| label.as_str().unwrap().to_owned()).collect()
    }

    pub fn check(&self) -> Vec<Set> {
        check(&self.path, &self.options)
    }

    pub fn xor(&self, file: &str, offset: usize, mask: u8) {
        let path = self.path.join(file);
        let mut bytes = fs::read(&path).unwrap();
        bytes[offset] ^= mask;
        fs::write(path, bytes).unwrap();
    }
}

/// Checks a repository as the program does, one target after the other.
pub fn check(path: &Path, options: &OpenOptions) -> Vec<Set> {
    let kind = repository::kind_of(&StorePath::local(path), None).expect("a repository");
    let sets = (kind.open)(&StorePath::local(path), options).unwrap();
    let count = sets.count;
    let options = Options { caching: Caching::Cached, ..Options::default() };
    let reports: Vec<_> = sets
        .targets
        .map(|target| {
            let mut report = Set::default();
            if let Some(RepositoryPart::Set(backup)) = &target.description.part {
                report.label.clone_from(&backup.label);
            }
            report.verified = Some(verify(target, &options, &(), &mut report).unwrap());
            report
        })
        .collect();
    assert_eq!(reports.len(), count);
    reports
}

fn worst(sets: &[Set]) -> Verdict {
    sets.iter().map(Set::verdict).min().unwrap()
}

#[test]
fn healthy_repositories_are_intact_and_every_set_is_named() {
    for name in names() {
        let repository = Repository::named(&name);
        let sets = repository.check();
        let labels: Vec<_> = sets.iter().map(|set| set.label.clone()).collect();
        assert_eq!(labels[..labels.len() - 1], repository.labels(), "{name}");
        assert!(sets[0].pages() > 700, "{name}: {}", sets[0].pages());
        for set in &sets {
            assert_eq!(set.unread, [], "{name} {}", set.label);
            // Two pages were damaged before the backup was taken, and all sets have them.
            let is_sound = !name.contains("pageerror") || set.label.is_empty();
            let pages: Vec<_> =
                set.findings.iter().map(|it| (it.place.page.unwrap().0, it.severity)).collect();
            let expected =
                if is_sound { vec![] } else { vec![(3, Severity::Damage), (6, Severity::Damage)] };
            assert_eq!(pages, expected, "{name} {}: {:?}", set.label, set.findings);
            let verdict = if is_sound { Verdict::Intact } else { Verdict::Damaged };
            assert_eq!(set.verdict(), verdict, "{name} {}", set.label);
        }
    }
}

/// What is shared is read once; a set by itself is read whole.
#[test]
fn sets_by_themselves_have_all_pages() {
    for name in names() {
        let repository = Repository::named(&name);
        let together = repository.check();
        for label in repository.labels() {
            let options = OpenOptions {
                repository: RepositoryOptions {
                    sets: vec![label.clone()],
                    ..repository.options.repository.clone()
                },
                ..OpenOptions::default()
            };
            let by_option = check(&repository.path, &options);
            let by_path = check(&repository.stanza().join(&label), &repository.options);
            assert_eq!(by_option.len(), 2, "the set and the repository");
            assert_eq!(by_path.len(), 1);
            assert_eq!((&by_path[0].label, by_path[0].pages()), (&label, by_option[0].pages()));
            assert!(by_path[0].pages() > 700, "{name} {label}: {}", by_path[0].pages());
            assert_eq!(by_path[0].verdict(), together[0].verdict(), "{name} {label}");
        }
        assert!(together[1].pages() < 100 && together[2].pages() < 100, "{name}");
    }
}

#[test]
fn named_damage_is_found_with_its_stored_file_and_its_page() {
    for name in names() {
        let damage = Repository::named(&name).manifest["damage"].clone();
        for damage in damage.as_array().unwrap() {
            let repository = Repository::named(&name);
            let file = damage["file"].as_str().unwrap().strip_prefix("repo/").unwrap();
            let offset = usize::try_from(damage["offset"].as_u64().unwrap()).unwrap();
            repository.xor(file, offset, u8::try_from(damage["xor"].as_u64().unwrap()).unwrap());
            let what = damage["in"].as_str().unwrap();
            let sets = repository.check();
            let found: Vec<_> = sets.iter().flat_map(|set| set.damage_in(file)).collect();
            assert!(!found.is_empty(), "{name} {what}: {sets:#?}");
            assert_eq!(worst(&sets), Verdict::Damaged, "{name} {what}");
            if what.starts_with("the manifest") {
                continue;
            }
            let database_file = what
                .split_whitespace()
                .find(|word| word.starts_with("pg_data/") || word.starts_with("pg_tblspc/"))
                .unwrap();
            let database_file = database_file.strip_prefix("pg_data/").unwrap_or(database_file);
            for finding in &found {
                assert_eq!(finding.place.file, database_file, "{name} {what}");
                let stored = finding.origin.as_ref().unwrap().stored_offset.unwrap();
                assert!(stored.0 <= offset as u64, "{name} {what}: {stored:?}");
            }
            let has_page = found.iter().any(|finding| finding.place.page.is_some());
            assert!(has_page || what.contains("block map"), "{name} {what}: {found:#?}");
            // Every set that refers to it, and no other.
            let labels: Vec<_> = repository.labels();
            let hit = |set: &&Set| !set.damage_in(file).is_empty();
            let hit: Vec<_> = sets.iter().filter(hit).map(|set| &set.label).collect();
            let owner = labels.iter().rfind(|label| file.contains(&format!("/{label}/"))).unwrap();
            assert!(hit.contains(&owner), "{name} {what}: {hit:?}");
        }
    }
}

#[test]
fn without_the_passphrase_every_set_is_named_and_incomplete() {
    for name in names().iter().filter(|name| name.contains("cipher")) {
        let mut repository = Repository::named(name);
        let right = repository.options.clone();
        for pass in [None, Some("a-wrong-one")] {
            repository.options = OpenOptions::default();
            let file = repository.path.join("../wrong");
            if let Some(pass) = pass {
                fs::write(&file, pass).unwrap();
                repository.options.repository.cipher_pass_file = Some(file);
            }
            let sets = repository.check();
            let labels: Vec<_> = sets.iter().map(|set| set.label.clone()).collect();
            assert_eq!(labels[..3], repository.labels(), "{name}");
            for set in &sets {
                assert_eq!(set.verdict(), Verdict::Incomplete, "{name} {pass:?}: {set:#?}");
                assert!(set.findings.is_empty());
                assert!(set.unread[0].error.contains("PGBACKREST_REPO1_CIPHER_PASS"));
                assert!(!format!("{set:?}").contains("a-wrong-one"));
            }
        }
        let text = format!("{right:?} {:?}", check(&repository.path, &right));
        assert!(!text.contains("fixture-pass"));
    }
}

/// The manifest's text with its own checksum made to fit: as one that was edited with the tool's means.
fn with_sum(text: &str) -> String {
    let body = &text[..text.rfind("\n[backrest]\nbackrest-checksum=").unwrap()];
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in body.lines().filter(|line| !line.is_empty()) {
        if line.starts_with('[') && line.ends_with(']') {
            sections.push((line[1..line.len() - 1].to_owned(), Vec::new()));
            continue;
        }
        let at = line.find("={").or_else(|| line.find('=')).unwrap();
        let key = Value::from(&line[..at]);
        sections.last_mut().unwrap().1.push(format!("{key}:{}", &line[at + 1..]));
    }
    sections.retain(|(_, lines)| !lines.is_empty());
    let sections: Vec<_> = sections
        .iter()
        .map(|(name, lines)| format!("{}:{{{}}}", Value::from(name.as_str()), lines.join(",")))
        .collect();
    let sum = Sha1::digest(format!("{{{}}}", sections.join(",")));
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{body}\n[backrest]\nbackrest-checksum=\"{sum}\"\n")
}

/// Changes a file of lines in sections, and its copy, so that their sums fit.
fn edit_file(path: &Path, edit: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let edited = edit(&text);
    assert_ne!(edited, text, "nothing was edited");
    for end in ["", ".copy"] {
        let mut path = path.as_os_str().to_owned();
        path.push(end);
        fs::write(path, with_sum(&edited)).unwrap();
    }
}

impl Repository {
    /// Changes the manifest of a set, and its copy, so that their sums fit.
    fn edit(&self, label: &str, edit: impl Fn(&str) -> String) {
        edit_file(&self.stanza().join(label).join("backup.manifest"), edit);
    }

    /// Takes a set from the list of sets.
    fn unlist(&self, label: &str) {
        edit_file(&self.stanza().join("backup.info"), |text| {
            let lines = text.lines().filter(|line| !line.starts_with(label));
            lines.map(|line| format!("{line}\n")).collect()
        });
    }

    /// Changes the entry of a file.
    fn edit_entry(&self, label: &str, name: &str, edit: impl Fn(&mut Value)) {
        self.edit(label, |text| {
            let edited = |line: &str| match line.strip_prefix(&format!("{name}={{")) {
                None => line.to_owned(),
                Some(rest) => {
                    let mut value: Value = serde_json::from_str(&format!("{{{rest}")).unwrap();
                    edit(&mut value);
                    format!("{name}={value}")
                }
            };
            text.lines().map(|line| edited(line) + "\n").collect()
        });
    }
}

/// What is edited, in words and as a function on a file's entry.
type Edit = (&'static str, fn(&mut Value));

const BIG: &str = "pg_data/base/1/16782";

#[test]
fn edited_manifests_with_right_sums_are_found() {
    for name in names().iter().filter(|name| name.ends_with("2.60-block-zst")) {
        let label = &Repository::named(name).labels()[0];
        let cases: [Edit; 6] = [
            ("another place", |entry| entry["bno"] = 0.into()),
            ("another bundle", |entry| entry["bni"] = 77.into()),
            ("another sum", |entry| entry["checksum"] = "00".repeat(20).into()),
            ("another stored sum", |entry| entry["rck"] = "00".repeat(20).into()),
            ("another size", |entry| entry["size"] = 8192.into()),
            ("a map that is not there", |entry| entry["bim"] = 7.into()),
        ];
        for (what, edit) in cases {
            let repository = Repository::named(name);
            repository.edit_entry(label, BIG, edit);
            let sets = repository.check();
            assert_eq!(sets[0].verdict(), Verdict::Damaged, "{what}: {sets:#?}");
            let is_it = |finding: &Finding| finding.place.file == "base/1/16782";
            assert!(sets[0].findings.iter().all(is_it), "{what}: {:#?}", sets[0].findings);
            // The other sets have manifests of their own.
            assert_eq!(sets[1].verdict(), Verdict::Intact, "{what}");
        }
        // Files that a server needs are missed though nothing lists them.
        for missing in
            ["base/1/pg_filenode.map", "global/pg_control", "PG_VERSION", "global/pg_filenode.map"]
        {
            let repository = Repository::named(name);
            let prefix = format!("pg_data/{missing}={{");
            repository.edit(label, |text| {
                text.lines()
                    .filter(|it| !it.starts_with(&prefix))
                    .map(|it| format!("{it}\n"))
                    .collect()
            });
            let sets = repository.check();
            let found = sets[0].findings.iter().find(|finding| finding.place.file == missing);
            assert_eq!(found.map(|it| it.kind), Some(Kind::Missing), "{missing}");
            assert_eq!(sets[0].verdict(), Verdict::Damaged, "{missing}");
        }
    }
}

/// A page that fails and was not seen to fail when the backup was taken may be one that was torn while
/// it was read: pgBackRest keeps it, and the log mends it.
#[test]
fn page_that_fails_under_right_sums_is_suspect_unless_the_server_did_not_run() {
    for name in names().iter().filter(|name| name.contains("pageerror")) {
        let repository = Repository::named(name);
        let label = &repository.labels()[0];
        repository.edit_entry(label, BIG, |entry| {
            entry.as_object_mut().unwrap().remove("checksum-page-error");
        });
        let judged = || {
            let sets = repository.check();
            let severities: Vec<_> = sets[0].findings.iter().map(|it| it.severity).collect();
            (sets[0].verdict(), severities)
        };
        assert_eq!(judged(), (Verdict::Suspect, vec![Severity::Suspect; 2]));
        repository.edit(label, |text| text.replace("option-online=true", "option-online=false"));
        assert_eq!(judged(), (Verdict::Damaged, vec![Severity::Damage; 2]));
    }
}

#[test]
fn hostile_manifests_are_bounded_and_lead_nowhere() {
    for name in names().iter().filter(|name| name.ends_with("2.60-block-zst")) {
        let label = &Repository::named(name).labels()[0];
        let cases: [Edit; 8] = [
            ("a reference above", |entry| entry["reference"] = "../../../etc".into()),
            ("a huge size", |entry| entry["size"] = u64::MAX.into()),
            ("a huge stored size", |entry| entry["repo-size"] = (u64::MAX - 7).into()),
            ("a huge offset", |entry| entry["bno"] = u64::MAX.into()),
            ("a large file", |entry| entry["size"] = (1_u64 << 50).into()),
            ("huge blocks", |entry| entry["bi"] = u64::MAX.into()),
            ("a huge map", |entry| {
                entry["repo-size"] = (1_u64 << 50).into();
                entry["bim"] = (1_u64 << 49).into();
            }),
            ("a bundle without end", |entry| entry["bni"] = u64::MAX.into()),
        ];
        for (what, edit) in cases {
            let repository = Repository::named(name);
            repository.edit_entry(label, BIG, edit);
            let sets = repository.check();
            assert!(sets[0].verdict() <= Verdict::Incomplete, "{what}: {sets:#?}");
        }
        // Names that lead out, twice the same name, and references in a circle.
        let line = r#"={"checksum":"00","rck":"00","repo-size":3,"size":3}"#;
        for key in ["pg_data/../../../../../../etc/passwd", "/etc/passwd", "pg_data/a//b", BIG] {
            let repository = Repository::named(name);
            repository.edit(label, |text| {
                text.replacen("[target:file]\n", &format!("[target:file]\n{key}{line}\n"), 1)
            });
            let sets = repository.check();
            assert!(sets[0].verdict() <= Verdict::Incomplete, "{key}");
        }
        let repository = Repository::named(name);
        let labels = repository.labels();
        repository.edit(label, |text| {
            text.replace("\"repo-size\"", &format!("\"reference\":\"{}\",\"repo-size\"", labels[2]))
        });
        assert_eq!(repository.check()[0].verdict(), Verdict::Damaged);
    }
}

#[test]
fn stored_files_that_are_cut_or_gone_are_named() {
    for name in names() {
        let repository = Repository::named(&name);
        let labels = repository.labels();
        let file = repository.manifest["damage"][0]["file"].as_str().unwrap();
        let file = file.strip_prefix("repo/").unwrap();
        let path = repository.path.join(file);
        let whole = fs::read(&path).unwrap();
        for length in [whole.len() - 1, whole.len() / 2, 0] {
            fs::write(&path, &whole[..length]).unwrap();
            let sets = repository.check();
            let found = sets[0].damage_in(file);
            let is_cut = |it: &&Finding| it.kind == Kind::Truncated;
            assert!(found.iter().any(is_cut), "{name} {length}: {:#?}", sets[0].findings);
            assert_eq!(sets[0].verdict(), Verdict::Damaged);
        }
        fs::remove_file(&path).unwrap();
        let sets = repository.check();
        // Later sets have a file of their own, but all share a bundle.
        let sharing = if file.contains("/bundle/") { 3 } else { 1 };
        for set in &sets[..sharing] {
            let is_missing = |it: &Finding| it.kind == Kind::Missing;
            let found = set.findings.iter().any(is_missing);
            assert!(found, "{name} {}: {:#?}", set.label, set.findings);
        }
        // A set on which the others build is gone as a whole, but still listed.
        fs::remove_dir_all(repository.stanza().join(&labels[0])).unwrap();
        let sets = repository.check();
        assert_eq!(sets[0].label, labels[0]);
        for set in &sets[..3] {
            assert_eq!(set.verdict(), Verdict::Damaged, "{name} {}", set.label);
            assert!(set.findings.iter().any(|it| it.kind == Kind::Missing), "{name}");
        }
    }
}

/// The tool removes manifests, then writes its list without their sets, then removes their files.
#[test]
fn set_that_is_expired_while_it_is_read_is_unread() {
    let name = names().into_iter().find(|name| name.ends_with("2.60-block-zst"));
    let Some(name) = name else { return };
    let is_unread = |sets: &[Set], label: &str| {
        let set = sets.iter().find(|set| set.label == label).unwrap();
        assert_eq!((set.verdict(), &set.findings), (Verdict::Incomplete, &vec![]), "{set:#?}");
        assert!(set.unread.iter().all(|it| it.error.contains("was expired")), "{set:#?}");
    };
    let repository = Repository::named(&name);
    let label = repository.labels().pop().unwrap();
    let folder = repository.stanza().join(&label);
    for manifest in ["backup.manifest", "backup.manifest.copy"] {
        fs::remove_file(folder.join(manifest)).unwrap();
    }
    // It is still listed for a while.
    let sets = std::thread::scope(|scope| {
        let check = scope.spawn(|| repository.check());
        std::thread::sleep(std::time::Duration::from_millis(1500));
        repository.unlist(&label);
        check.join().unwrap()
    });
    is_unread(&sets, &label);
    // Its manifest was read before, and its files are gone by the time when they are to be read.
    let repository = Repository::named(&name);
    let folder = repository.stanza().join(&label);
    let kind = repository::kind_of(&StorePath::local(&repository.path), None).unwrap();
    let opened = (kind.open)(&StorePath::local(&repository.path), &repository.options).unwrap();
    let mut sets = Vec::new();
    for target in opened.targets {
        let mut set = Set::default();
        if let Some(RepositoryPart::Set(backup)) = &target.description.part {
            set.label.clone_from(&backup.label);
        }
        if set.label == label {
            repository.unlist(&label);
            fs::remove_dir_all(&folder).unwrap();
        }
        let options = Options { caching: Caching::Cached, ..Options::default() };
        set.verified = Some(verify(target, &options, &(), &mut set).unwrap());
        sets.push(set);
    }
    is_unread(&sets, &label);
}

#[test]
fn manifest_of_which_only_the_copy_is_left_is_damage_in_a_set_that_is_listed() {
    for name in names().iter().take(2) {
        let repository = Repository::named(name);
        let labels = repository.labels();
        let manifest = repository.stanza().join(&labels[1]).join("backup.manifest");
        // Not all repositories of the collection have their copies.
        fs::rename(&manifest, manifest.with_extension("manifest.copy")).unwrap();
        let sets = repository.check();
        let found: Vec<_> = sets[1].findings.iter().filter(|it| it.kind == Kind::Missing).collect();
        assert_eq!((sets[1].verdict(), found.len()), (Verdict::Damaged, 1), "{name}: {found:?}");
        assert!(sets[1].unread.is_empty(), "{name}: {:?}", sets[1].unread);
        // One that is not listed is being taken, or its taking was ended.
        let taken = repository.stanza().join("20991231-235959F");
        fs::create_dir(&taken).unwrap();
        fs::copy(manifest.with_extension("manifest.copy"), taken.join("backup.manifest.copy"))
            .unwrap();
        let sets = check(&taken, &repository.options);
        let said = (sets[0].verdict(), sets[0].findings.len(), sets[0].unread.len());
        assert_eq!(said, (Verdict::Incomplete, 0, 1), "{name}: {sets:#?}");
    }
}

#[test]
fn log_of_another_cluster_and_log_without_backups_are_damage() {
    let name = names().into_iter().find(|name| name.ends_with("2.60-block-zst"));
    let Some(name) = name else { return };
    let repository = Repository::named(&name);
    let archive = repository.path.join("archive");
    copy(&archive.join("demo"), &archive.join("other"));
    let sets = repository.check();
    let [finding] = &sets.last().unwrap().findings[..] else { panic!("{sets:#?}") };
    assert_eq!((finding.kind, &*finding.place.file), (Kind::Missing, "backup/other"));
    fs::remove_dir_all(archive.join("other")).unwrap();
    edit_file(&archive.join("demo/archive.info"), |text| {
        text.replace("\"db-id\":7", "\"db-id\":6")
    });
    let sets = repository.check();
    let [finding] = &sets.last().unwrap().findings[..] else { panic!("{sets:#?}") };
    assert_eq!(
        (finding.kind, &*finding.place.file),
        (Kind::Misplaced, "archive/demo/archive.info")
    );
}

#[test]
fn only_what_is_asked_for_is_read() {
    for name in names().iter().take(1) {
        let mut repository = Repository::named(name);
        let newest = repository.labels().pop().unwrap();
        repository.options.repository.latest = true;
        let labels = |sets: Vec<Set>| sets.into_iter().map(|set| set.label).collect::<Vec<_>>();
        assert_eq!(labels(repository.check()), [newest.clone(), String::new()]);
        repository.options.repository.latest = false;
        repository.options.repository.stanza = Some("demo".to_owned());
        assert_eq!(repository.check().len(), 4);
        let kind = repository::kind_of(&StorePath::local(&repository.path), None).unwrap();
        repository.options.repository.sets = vec![newest.clone(), "20200101-000000F".to_owned()];
        let error =
            (kind.open)(&StorePath::local(&repository.path), &repository.options).unwrap_err();
        assert!(error.to_string().contains(&newest), "{error}");
        repository.options.repository.sets.clear();
        repository.options.repository.stanza = Some("other".to_owned());
        assert!((kind.open)(&StorePath::local(&repository.path), &repository.options).is_err());
        // As one database it cannot be opened, and the error says what it is.
        let error = pagewarden::check(&repository.path).unwrap_err().to_string();
        assert!(error.contains("pgBackRest"), "{error}");
        // Its stanza is found from there, too.
        assert_eq!(check(&repository.stanza(), &OpenOptions::default()).len(), 4);
        assert!(
            repository::kind_of(&StorePath::local(repository.path.join("archive")), None).is_none()
        );
    }
}

/// Unfinished backups have no manifest but a copy, and are not listed; nor is one that is being expired.
#[test]
fn sets_that_are_not_listed_are_a_note() {
    for name in names().iter().take(1) {
        let repository = Repository::named(name);
        fs::create_dir(repository.stanza().join("20271231-235959F")).unwrap();
        let sets = repository.check();
        assert_eq!((sets.len(), worst(&sets)), (4, Verdict::Intact));
        let is_it = |note: &Note| note.file == "backup/demo/20271231-235959F";
        assert!(sets[3].notes.iter().any(is_it));
        // Without the list, all folders are taken for sets.
        for file in ["backup.info", "backup.info.copy"] {
            fs::write(repository.stanza().join(file), "[backrest]\nnonsense=1\n").unwrap();
        }
        let sets = repository.check();
        assert_eq!(sets.len(), 5);
        assert_eq!(sets[0].verdict(), Verdict::Intact);
        assert_eq!(sets[4].verdict(), Verdict::Damaged);
    }
}

/// The list of sets came back from before the newest one, by itself or with its copy; or is another file.
#[test]
fn list_that_is_not_that_of_the_sets_is_no_proof_of_them() {
    for name in names().iter().filter(|name| !name.contains("cipher")).take(2) {
        let repository = Repository::named(name);
        let labels = repository.labels();
        let newest = labels.last().unwrap();
        let info = repository.stanza().join("backup.info");
        let right = fs::read(&info).unwrap();
        repository.unlist(newest);
        for copy in ["", ", but its copy does"] {
            let sets = repository.check();
            assert_eq!(sets.len(), labels.len(), "{name}: the others, and the log");
            assert_eq!(worst(&sets), Verdict::Suspect, "{name}");
            let [finding] = &sets.last().unwrap().findings[..] else { panic!("{sets:#?}") };
            assert_eq!(finding.place.file, format!("backup/demo/{newest}"));
            let detail = finding.detail.as_ref().unwrap();
            assert!(
                detail.contains(&format!("does not list{copy}: it was not judged")),
                "{detail}"
            );
            fs::write(repository.stanza().join("backup.info.copy"), &right).unwrap();
        }
        // Its sum fits, as that of any file that the tool wrote.
        fs::copy(repository.path.join("archive/demo/archive.info"), &info).unwrap();
        let sets = repository.check();
        assert_eq!(sets.len(), labels.len() + 1, "{name}: the copy lists them");
        let [finding] = &sets.last().unwrap().findings[..] else { panic!("{sets:#?}") };
        assert_eq!(
            (finding.kind, &*finding.place.file),
            (Kind::Checksum, "backup/demo/backup.info")
        );
        assert!(finding.detail.as_ref().unwrap().contains("it is another file"));
        fs::write(&info, right).unwrap();
        assert_eq!(worst(&repository.check()), Verdict::Intact, "{name}");
    }
}

/// Bits flipped in stored files of all kinds: none passes, and no set is called damaged that does not
/// need the file.
#[test]
fn flipped_bits_in_stored_files_are_all_found() {
    let (mut flips, mut missed) = (0, Vec::new());
    for name in names() {
        let repository = Repository::named(&name);
        let baseline: usize = repository.check().iter().map(|set| set.findings.len()).sum();
        let mut files = Vec::new();
        list(&repository.path.join("backup"), &mut files);
        files.sort();
        let mut state = 0x5EED_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        };
        let rounds = std::env::var("PAGEWARDEN_WOUNDS").ok().and_then(|text| text.parse().ok());
        for _ in 0..rounds.unwrap_or(6) {
            // By bytes, so that bundles get most.
            let sizes: Vec<_> = files.iter().map(|it| fs::metadata(it).unwrap().len()).collect();
            let total: u64 = sizes.iter().sum();
            let mut at = u64::try_from(random(usize::try_from(total).unwrap())).unwrap();
            let hit = sizes.iter().position(|size| {
                let is_here = at < *size;
                at -= if is_here { 0 } else { *size };
                is_here
            });
            let path = &files[hit.unwrap()];
            let whole = fs::read(path).unwrap();
            let mut bytes = whole.clone();
            bytes[usize::try_from(at).unwrap()] ^= 1 << random(8);
            fs::write(path, &bytes).unwrap();
            let sets = repository.check();
            flips += 1;
            let findings: usize = sets.iter().map(|set| set.findings.len()).sum();
            let shown = path.strip_prefix(&repository.path).unwrap().display().to_string();
            let named = sets.iter().any(|set| !set.damage_in(&shown).is_empty());
            if findings == baseline || !named {
                missed.push(format!("{name} {shown} byte {at}"));
            }
            // Sets before that of the file do not need it.
            let labels = repository.labels();
            let owner = labels.iter().rposition(|label| shown.contains(&format!("/{label}/")));
            for set in &sets[..owner.unwrap_or(sets.len() - 1)] {
                let invented = set
                    .findings
                    .iter()
                    .find(|it| it.origin.is_some() || it.place.file != "base/1/16782");
                assert!(invented.is_none(), "{name} {shown} byte {at}: {} {invented:?}", set.label);
            }
            fs::write(path, whole).unwrap();
        }
    }
    println!("{flips} flips, {} missed", missed.len());
    assert_eq!(missed, [""; 0]);
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}
