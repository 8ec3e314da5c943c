//! Real clusters to look at: one loaded for each version and checksum setting,
//! shared by all tests, copied by those that change something.
//!
//! `PAGEWARDEN_TEST_VERSIONS` says which versions, as `9.6 15 18` or `all`.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use pagewarden::crc::crc32c;
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode, VERSIONS};

/// The version of tests that one version is enough for.
pub const ANY_VERSION: &str = "15";

/// The versions to test, where they are installed.
pub fn installations() -> Vec<Installation> {
    let wanted = env::var("PAGEWARDEN_TEST_VERSIONS").unwrap_or_else(|_| "15 18".to_owned());
    if wanted.trim() == "all" {
        return VERSIONS.iter().filter_map(|version| Installation::find(version)).collect();
    }
    let listed = wanted.split([' ', ',']).filter(|version| !version.is_empty());
    listed.filter_map(|version| Installation::for_test(version).unwrap()).collect()
}

/// The installations for campaigns that take long: the newest one, unless others are asked for.
pub fn installations_for_campaigns() -> Vec<Installation> {
    let mut installations = installations();
    if env::var_os("PAGEWARDEN_TEST_VERSIONS").is_none() {
        installations.drain(..installations.len().saturating_sub(1));
    }
    installations
}

/// The installation for tests that one version is enough for.
pub fn any_installation() -> Option<Installation> {
    Installation::for_test(ANY_VERSION).unwrap()
}

/// A loaded cluster, cleanly shut down. Not to be changed.
pub struct Sample {
    pub cluster: Cluster,
    /// Files by relation, relative to the data directory: `item`, `item_hash`,
    /// `wide_toast`, `pg_class`, and `other.item` of the second database.
    pub files: BTreeMap<String, String>,
    /// The file of `item` as it was before its last update.
    pub item_before: Vec<u8>,
    loans: Mutex<Vec<Cluster>>,
}

type Shared = HashMap<(String, bool), Arc<OnceLock<Sample>>>;

/// The loaded cluster of an installation.
pub fn sample(installation: &Installation, checksums: bool) -> &'static Sample {
    static SHARED: OnceLock<Mutex<Shared>> = OnceLock::new();
    let key = (installation.version.clone(), checksums);
    let place = {
        let shared = SHARED.get_or_init(Mutex::default);
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Never freed: the cluster is removed when the process ends.
        Arc::clone(shared.entry(key).or_default())
    };
    let place: &'static OnceLock<Sample> = Box::leak(Box::new(place));
    place.get_or_init(|| Sample::load(installation, checksums))
}

impl Sample {
    fn load(installation: &Installation, checksums: bool) -> Self {
        let options = Options { checksums, ..Options::default() };
        let mut cluster = Cluster::init(installation, &options).unwrap();
        cluster.load_sample(1).unwrap();
        let mut files = BTreeMap::new();
        for (database, prefix) in [("postgres", ""), ("other", "other.")] {
            let rows = cluster
                .execute(
                    database,
                    &["SELECT relname, pg_relation_filepath(oid) FROM pg_class \
                       WHERE pg_relation_filepath(oid) IS NOT NULL \
                       UNION ALL \
                       SELECT relname || '_toast', pg_relation_filepath(reltoastrelid) \
                       FROM pg_class WHERE relname = 'wide'"],
                )
                .unwrap();
            files.extend(rows.lines().map(|row| {
                let (name, file) = row.split_once('|').unwrap();
                (format!("{prefix}{name}"), file.to_owned())
            }));
        }
        cluster.execute("postgres", &["CHECKPOINT"]).unwrap();
        let item_before = fs::read(cluster.data_dir().join(&files["item"])).unwrap();
        cluster.execute("postgres", &["UPDATE item SET word = 'new ' || word"]).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        Self { cluster, files, item_before, loans: Mutex::default() }
    }

    /// The file of a relation, relative to the data directory.
    pub fn file(&self, relation: &str) -> &str {
        self.files.get(relation).unwrap_or_else(|| panic!("{relation} is not in the sample"))
    }

    /// A copy to be changed and started.
    pub fn copy(&self) -> Cluster {
        self.cluster.duplicate().unwrap()
    }

    /// A copy for those who put everything back before they let it go: it is
    /// handed to the next one. Not to be started.
    pub fn loan(&'static self) -> Loan {
        let waiting = self.loans.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Loan { cluster: Some(waiting.unwrap_or_else(|| self.copy())), owner: self }
    }
}

/// See [`Sample::loan`].
pub struct Loan {
    cluster: Option<Cluster>,
    owner: &'static Sample,
}

impl Deref for Loan {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.cluster.as_ref().unwrap()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // It is not known what a failing test leaves.
        if let Some(cluster) = self.cluster.take().filter(|_| !thread::panicking()) {
            self.owner.loans.lock().unwrap_or_else(PoisonError::into_inner).push(cluster);
        }
    }
}

/// All files that hold pages, with their lengths: counted without the product,
/// by the rules of `pg_checksums`.
pub fn page_files(data_dir: &Path) -> BTreeMap<String, u64> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::from("global"), "base".into(), "pg_tblspc".into()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(data_dir.join(&folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = folder.join(&name);
            let metadata = fs::metadata(data_dir.join(&path)).unwrap();
            if name.starts_with("pgsql_tmp") {
                continue;
            }
            if metadata.is_dir() {
                folders.push(path);
            } else if name.starts_with(|c: char| c.is_ascii_digit() || c == 't') {
                files.insert(path.into_os_string().into_string().unwrap(), metadata.len());
            }
        }
    }
    files
}

/// Every path below `root` and behind its links.
fn tree(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if metadata.is_symlink() {
            paths.extend(fs::read_link(&path).ok().filter(|target| target.exists()));
        }
        all.push(path);
    }
    all
}

/// A sum over each file.
pub fn contents(root: &Path) -> BTreeMap<PathBuf, u32> {
    let files = tree(root).into_iter().filter(|path| path.is_file());
    files.map(|path| (path.clone(), crc32c(&fs::read(path).unwrap()))).collect()
}

/// Makes every file look as if it was not read for years, so that the next
/// read shows in its access time.
pub fn forget_accesses(root: &Path) {
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for path in tree(root).into_iter().filter(|path| path.is_file()) {
        let file = fs::File::open(path).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(long_ago)).unwrap();
    }
}

/// What must be the same after we looked: owner, mode, links, times. Listing a
/// folder shows in its access time, whatever program does it.
pub fn metadata(root: &Path) -> BTreeMap<PathBuf, String> {
    let print = |path: PathBuf| {
        let data = fs::symlink_metadata(&path).unwrap();
        let accessed = if data.is_file() { data.atime() } else { 0 };
        let print = format!(
            "{:o} {}:{} {} links, {} bytes, modified {}.{} changed {}.{} accessed {accessed}",
            data.permissions().mode(),
            data.uid(),
            data.gid(),
            data.nlink(),
            data.len(),
            data.mtime(),
            data.mtime_nsec(),
            data.ctime(),
            data.ctime_nsec(),
        );
        (path, print)
    };
    tree(root).into_iter().map(print).collect()
}

/// Gives a file that a test made to the owner of the folder it lies in.
pub fn give_to_owner_of_folder(path: &Path) {
    let folder = fs::metadata(path.parent().unwrap()).unwrap();
    std::os::unix::fs::lchown(path, Some(folder.uid()), Some(folder.gid())).unwrap();
}
