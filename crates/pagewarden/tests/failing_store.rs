//! Repositories in a store that is not this machine's, and that does not give all it has: what was not
//! read is never called good, and never damaged.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pagewarden::database::OpenOptions;
use pagewarden::database::repository;
use pagewarden::source::store::{Listed, NotRead, Seen, Store, StorePath, StoredBytes};
use pagewarden::verdict::Verdict;
use pagewarden::verify::{Options, verify};

use crate::backup_sets::Report;

/// What is asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    List,
    Look,
    Open,
    /// The first bytes of a file, or those behind them.
    Read,
    ReadOn,
}

/// A folder of this machine as a store that is another's.
#[derive(Debug, Default)]
struct Inner {
    folder: PathBuf,
    /// What fails, each time.
    fails: Option<(Ask, PathBuf)>,
    /// What was asked of what is there.
    asked: Mutex<BTreeSet<(Ask, PathBuf)>>,
}

#[derive(Debug, Clone)]
struct Elsewhere(Arc<Inner>);

const ROOT: &str = "s3://bucket/prefix";
/// Bytes of a file that are read before it is read on.
const FIRST_BYTES: u64 = 4096;

impl Elsewhere {
    fn of(folder: &Path, fails: Option<(Ask, PathBuf)>) -> Self {
        Self(Arc::new(Inner { folder: folder.to_owned(), fails, asked: Mutex::default() }))
    }

    fn ask(&self, ask: Ask, path: &Path) -> io::Result<PathBuf> {
        let below = path.strip_prefix(ROOT).map_err(|_| io::ErrorKind::NotFound)?;
        let here = self.0.folder.join(below);
        if here.exists() {
            self.0.asked.lock().unwrap().insert((ask, below.to_owned()));
        }
        match &self.0.fails {
            Some((fails, at)) if *fails == ask && at == below => {
                Err(NotRead("the request failed (503 Slow Down)".to_owned()).into())
            }
            _ => Ok(here),
        }
    }

    fn place(&self) -> StorePath {
        StorePath::new(Arc::new(self.clone()), ROOT)
    }
}

impl Store for Elsewhere {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        StorePath::local(self.ask(Ask::List, folder)?).list()
    }

    fn look(&self, path: &Path) -> io::Result<Seen> {
        StorePath::local(self.ask(Ask::Look, path)?).look()
    }

    fn open(&self, file: &Path) -> io::Result<Arc<dyn StoredBytes>> {
        let bytes = fs::read(self.ask(Ask::Open, file)?)?;
        Ok(Arc::new(Bytes { store: self.clone(), path: file.to_owned(), bytes }))
    }
}

#[derive(Debug)]
struct Bytes {
    store: Elsewhere,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl StoredBytes for Bytes {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let is_first = offset < FIRST_BYTES;
        self.store.ask(if is_first { Ask::Read } else { Ask::ReadOn }, &self.path)?;
        let there = &self.bytes[usize::try_from(offset).unwrap().min(self.bytes.len())..];
        let most = if is_first { FIRST_BYTES - offset } else { u64::MAX };
        let count = there.len().min(bytes.len()).min(usize::try_from(most).unwrap_or(usize::MAX));
        bytes[..count].copy_from_slice(&there[..count]);
        Ok(count)
    }
}

/// The reports of all sets and of the repository; `None` where it could not be opened.
fn check(place: &StorePath, options: &OpenOptions) -> Option<Vec<Report>> {
    let kind = repository::kind_of(place, None)?;
    let sets = (kind.open)(place, options).ok()?;
    let reports = sets.targets.map(|target| {
        let mut report = Report::default();
        let verified = verify(target, &Options::default(), &(), &mut report).unwrap();
        report.verdict = Some(verified.verdict());
        report.pages = verified.summary.pages.total();
        report
    });
    Some(reports.collect())
}

/// Folders of fixtures with a repository, which all are healthy.
const HEALTHY: [(&str, &str); 8] = [
    ("pgbackrest-2.60-block-zst", "repo"),
    ("pgbackrest-2.60-bundle-gz-cipher", "repo"),
    ("pgbackrest-2.60-zst", "repo"),
    ("barman-3.4-tar-gz", "demo"),
    ("barman-3.19-tar-zstd", "demo"),
    ("barman-cloud-snappy", "snappy"),
    ("walg-brotli-parts", "repo"),
    ("walg-zstd-libsodium", "repo"),
];
/// Failures that are tried with each repository, spread over all that is asked of it.
const TRIED: usize = 14;

/// The repository and its options.
fn fixture(name: &str, folder: &str, keys: &Path) -> Option<(PathBuf, OpenOptions)> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from);
    let fixture = root.join("backups").join(name);
    if !fixture.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "{} is not there", fixture.display());
        eprintln!("SKIPPED: {} is not there", fixture.display());
        return None;
    }
    let manifest = fs::read(fixture.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let mut options = OpenOptions::default();
    // What `barman-cloud-backup` leaves has no log of its own.
    options.repository.no_log = name.starts_with("barman-cloud");
    let key = ["cipher_pass", "libsodium_key_hex"].iter().find_map(|key| manifest[key].as_str());
    if let Some(key) = key {
        let file = keys.join(name);
        fs::write(&file, key).unwrap();
        options.repository.cipher_pass_file = Some(file);
    }
    Some((fixture.join(folder), options))
}

#[test]
fn what_a_store_does_not_give_is_neither_good_nor_damaged() {
    let keys = tempfile::tempdir().unwrap();
    for (name, folder) in HEALTHY {
        let Some((folder, options)) = fixture(name, folder, keys.path()) else { continue };
        let healthy = Elsewhere::of(&folder, None);
        let reports = check(&healthy.place(), &options).expect("a repository");
        let here = check(&StorePath::local(&folder), &options).expect("a repository");
        let said = |reports: &[Report]| -> Vec<_> {
            let one = |report: &Report| (report.verdict, report.pages, report.notes.len());
            reports.iter().map(one).collect()
        };
        assert_eq!(said(&reports), said(&here), "{name}: as on this machine");
        assert!(reports.iter().all(Report::is_intact), "{name}: {reports:?}");

        let asked: Vec<_> = healthy.0.asked.lock().unwrap().iter().cloned().collect();
        let step = asked.len().div_ceil(TRIED).max(1);
        for (ask, path) in asked.iter().step_by(step) {
            let case = format!("{name}: {ask:?} {}", path.display());
            let store = Elsewhere::of(&folder, Some((*ask, path.clone())));
            // One that cannot be opened is an error, which says so.
            let Some(reports) = check(&store.place(), &options) else { continue };
            for report in &reports {
                assert!(report.findings.is_empty(), "{case}: {:?}", report.findings);
            }
            // What only a look would have told may be learned from the bytes; what a list of the repository
            // itself would have told, by asking for each name, if nothing of it is missed.
            let is_asked_singly = *ask == Ask::List && path.as_os_str().is_empty();
            let is_known = *ask == Ask::Look || is_asked_singly && said(&reports) == said(&here);
            let worst = reports.iter().filter_map(|report| report.verdict).min();
            assert!(
                is_known || worst == Some(Verdict::Incomplete),
                "{case}: {:?}",
                reports.iter().map(|report| (report.verdict, &report.unread)).collect::<Vec<_>>()
            );
        }
    }
}
