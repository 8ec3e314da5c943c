//! Repositories that pgBackRest made: healthy ones, and ones damaged at named bytes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pagewarden::database::OpenOptions;
use pagewarden::database::repository::{self, RepositoryOptions, RepositoryPart};
use pagewarden::verdict::{Finding, Kind, Note, Severity, Unread, Verdict};
use pagewarden::verify::{Caching, Options, Sink, Verified, verify};
use serde_json::Value;

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
    let kind = repository::kind_of(path, None).expect("a repository");
    let sets = (kind.open)(path, options).unwrap();
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
            let expected = if is_sound {
                vec![]
            } else {
                vec![(3, Severity::Damage), (6, Severity::Damage)]
            };
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
        for pass in [None, Some("another one")] {
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
                assert!(!format!("{set:?}").contains("another one"));
            }
        }
        let text = format!("{right:?} {:?}", check(&repository.path, &right));
        assert!(!text.contains("fixture-pass"));
    }
}
