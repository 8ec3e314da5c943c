//! The data files that are repaired: one file, or those of one database in a folder.
//!
//! What decides what is exact is read here: the boot page (how it was left, which database it is), the
//! file headers with the differential base, and the maps of changed extents. Where such a page has one
//! flipped bit that is known, it is read as it was before.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::checksum::{PAGE_BYTES, Page};
use crate::files::data_file::{Identity, identify, identify_by_sample, read_page};
use crate::files::{backup, file_name, not_ours, open_file, read_head};
use crate::page::diff_map::{DiffMap, is_beyond_the_map, map_page_of};
use crate::page::header::{Header, Lsn, Tested, tested};
use crate::page::system::{BOOT_PAGE, BootPage, DifferentialBase, FileHeader};
use crate::page::{Allocation, Allocations, SqlServerPages};
use pagewarden_core::error::Error;
use pagewarden_core::verdict::PageNo;

const PAGE: u64 = PAGE_BYTES as u64;
/// How data files are called, as a rule.
const EXTENSIONS: [&str; 2] = ["mdf", "ndf"];
/// Behind the names of files of a copy that are not whole.
pub(super) const UNFINISHED: &str = ".pagewarden-unfinished";
/// More files than this in a folder are no database's.
const FILES_MAX: usize = 1024;

/// A page by the number of its file and its own.
pub(super) type PageId = (u16, u64);

/// See the module.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) path: PathBuf,
    /// By the numbers of the files.
    pub(super) files: BTreeMap<u16, DataFile>,
    pub(super) boot: Option<Boot>,
}

/// The boot page.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) page: Box<Page>,
    pub(super) says: BootPage,
}

/// One data file.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) number: u16,
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) bytes: u64,
    pub(super) header: Option<FileHeader>,
}

/// What all pages of a file say, but for the damaged ones.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Pages with the header of their place.
    pub(super) formatted: u64,
    /// The maps of changed extents, by the numbers of their pages.
    maps: BTreeMap<u64, DiffMap>,
    /// A page that changed after the differential base, by its own LSN, and that the map does not name.
    pub(super) unmarked: Option<u64>,
    /// A page that changed after the last checkpoint, by its own LSN.
    pub(super) late: Option<u64>,
}

impl Scan {
    /// True if the file's map says that the extent of this page did not change since the base;
    /// `None` if there is no map that can be believed.
    pub(super) fn is_unchanged(&self, page: u64) -> Option<bool> {
        self.maps.get(&map_page_of(page)).map(|map| !map.is_changed(page))
    }
}

/// Which pages are in use is not asked.
#[derive(Debug)]
struct NotAsked;

impl Allocations for NotAsked {
    fn of(&self, _: PageNo) -> Allocation {
        Allocation::Unknown
    }
}

/// How the pages of a file are judged one by one.
pub(super) fn pages_of(file: u16) -> SqlServerPages {
    SqlServerPages { file, allocations: std::sync::Arc::new(NotAsked), writes_checksums: false }
}

impl DataFile {
    fn new(path: &Path, file: File, identity: Identity) -> Result<Self, Error> {
        let metadata = file.metadata().map_err(|error| Error::io("open", path, error))?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            Error::refused(
                path,
                "its name is no UTF-8",
                "give it another name, or make a link to it",
            )
        })?;
        let mut found = Self {
            number: identity.number,
            name: name.to_owned(),
            path: path.to_owned(),
            bytes: metadata.len(),
            header: None,
            file,
        };
        found.header = found.mended(0).and_then(|page| FileHeader::parse(&page));
        Ok(found)
    }

    pub(super) fn page(&self, number: u64) -> Option<Page> {
        read_page(&self.file, number)
    }

    /// A page, with a flipped bit turned back where one is known.
    fn mended(&self, number: u64) -> Option<Page> {
        let page = self.page(number)?;
        let mended = pages_of(self.number).mended(PageNo(number), &page);
        Some(mended.map_or(page, |mended| mended.page))
    }

    /// The full backup that its map of changed extents counts from.
    pub(super) fn base(&self) -> Option<DifferentialBase> {
        self.header.as_ref()?.base
    }

    /// Reads all pages but the damaged ones.
    pub(super) fn scan(&self, wounded: &HashSet<PageId>, checkpoint: Option<Lsn>) -> Scan {
        let mut scan = Scan::default();
        let base = self.base().map(|base| base.checkpoint);
        for number in 0..self.bytes / PAGE {
            if number == map_page_of(number)
                && let Some(map) = self.page(number)
                && !wounded.contains(&(self.number, number))
                && let Some(map) = DiffMap::parse(&map, self.number, number)
            {
                scan.maps.insert(number, map);
            }
        }
        for number in 0..self.bytes / PAGE {
            let Some(page) = self.page(number) else { continue };
            let header = Header::parse(&page);
            if !header.is_of(self.number, number) || wounded.contains(&(self.number, number)) {
                continue;
            }
            scan.formatted = scan.formatted.saturating_add(1);
            let is_unmarked = base.is_some_and(|base| header.lsn > base)
                && scan.is_unchanged(number) == Some(true)
                && !is_beyond_the_map(self.number, number)
                && tested(&page, &header) == Tested::Sound;
            if is_unmarked && scan.unmarked.is_none() {
                scan.unmarked = Some(number);
            }
            if checkpoint.is_some_and(|checkpoint| header.lsn > checkpoint)
                && scan.late.is_none()
                && tested(&page, &header) == Tested::Sound
            {
                scan.late = Some(number);
            }
        }
        scan
    }
}

impl Database {
    /// Opens the data file, or those in the folder.
    ///
    /// # Errors
    /// There is none; it is a backup or a log; the files are of more than one database.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let metadata = fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
        let files = match metadata.is_dir() {
            true => files_in(path)?,
            false => vec![open_one(path)?],
        };
        if files.is_empty() {
            return Err(Error::unrecognised(
                path,
                "there is no data file of SQL Server in this folder",
                "name a data file (x.mdf), or the folder that holds those of one database",
            ));
        }
        let mut database = Self { path: path.to_owned(), files: BTreeMap::new(), boot: None };
        for file in files {
            database.add(file)?;
        }
        database.boot = database.files.get(&1).and_then(|file| {
            let page = file.mended(BOOT_PAGE)?;
            Some(Boot { says: BootPage::parse(&page)?, page: Box::new(page) })
        });
        Ok(database)
    }

    fn add(&mut self, file: DataFile) -> Result<(), Error> {
        let binding = |file: &DataFile| file.header.as_ref().and_then(|header| header.binding);
        for other in self.files.values() {
            let differ = binding(&file).zip(binding(other)).is_some_and(|(one, two)| one != two);
            if differ || file.number == other.number {
                let reason =
                    format!("files of more than one database: {} and {}", other.name, file.name);
                let hint = "name a folder that holds the files of one database, or one file";
                return Err(Error::refused(&self.path, reason, hint));
            }
        }
        self.files.insert(file.number, file);
        Ok(())
    }

    /// The file of this name.
    pub(super) fn named(&self, name: &str) -> Option<&DataFile> {
        self.files.values().find(|file| file.name == name)
    }

    /// What is the same in all its files.
    pub(super) fn binding(&self) -> Option<[u8; 16]> {
        self.files.values().find_map(|file| file.header.as_ref()?.binding)
    }

    pub(super) fn family(&self) -> Option<[u8; 16]> {
        self.boot.as_ref()?.says.family
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.boot.as_ref()?.says.database.as_deref()
    }

    /// Shut down cleanly, for sure.
    pub(super) fn is_at_rest(&self) -> bool {
        self.boot.as_ref().is_some_and(|boot| boot.says.is_at_rest())
    }

    /// The last checkpoint.
    pub(super) fn checkpoint(&self) -> Option<Lsn> {
        self.boot.as_ref().map(|boot| boot.says.checkpoint)
    }
}

/// True for a data file, or a folder with one.
pub(super) fn is_known(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if metadata.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten().take(FILES_MAX);
        return entries.map(|entry| entry.path()).any(|path| is_data_file(&path));
    }
    metadata.is_file()
        && open_file(path).is_ok_and(|file| {
            is_named(&path_without_links(path), &EXTENSIONS)
                || is_named(path, &["ldf"])
                || identify(&file, path).is_some()
                || read_head(&file).is_ok_and(|head| backup::is_backup(&head))
        })
}

fn path_without_links(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// True for a file of a folder that holds pages.
fn is_data_file(path: &Path) -> bool {
    let is_unfinished = path.to_string_lossy().ends_with(UNFINISHED);
    !is_unfinished && path.is_file() && open_file(path).is_ok_and(|file| found(path, &file))
}

fn found(path: &Path, file: &File) -> bool {
    let is_backup = read_head(file).is_ok_and(|head| backup::is_backup(&head));
    !is_backup && which(path, file).is_some_and(|identity| !identity.is_log)
}

/// Which file it is; a file that is called like a data file is asked more.
fn which(path: &Path, file: &File) -> Option<Identity> {
    identify(file, path)
        .or_else(|| is_named(path, &EXTENSIONS).then(|| identify_by_sample(file)).flatten())
}

fn is_named(path: &Path, names: &[&str]) -> bool {
    let extension = path.extension().map(std::ffi::OsStr::to_ascii_lowercase);
    extension.is_some_and(|extension| names.iter().any(|name| extension == *name))
}

fn files_in(folder: &Path) -> Result<Vec<DataFile>, Error> {
    let listed = |error| Error::io("list", folder, error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(listed)? {
        paths.push(entry.map_err(listed)?.path());
        if paths.len() > FILES_MAX {
            let reason = format!("more than {FILES_MAX} files are in this folder");
            let hint = "name a data file, or a folder that holds the files of one database only";
            return Err(Error::refused(folder, reason, hint));
        }
    }
    paths.sort();
    paths.iter().filter(|path| is_data_file(path)).map(|path| open_one(path)).collect()
}

fn open_one(path: &Path) -> Result<DataFile, Error> {
    let file = open_file(path).map_err(|error| Error::io("open", path, error))?;
    let head = read_head(&file).map_err(|error| Error::io("read", path, error))?;
    if backup::is_backup(&head) {
        let reason = "a backup, which is no database";
        let hint = "name the data file (x.mdf), and the backup with --from";
        return Err(Error::refused(path, reason, hint));
    }
    match which(path, &file) {
        Some(identity) if identity.is_log => {
            let reason = "a log file: its blocks are in no backup of the data files";
            let hint = "name a data file (x.mdf), or the folder of the database";
            Err(Error::refused(path, reason, hint))
        }
        Some(identity) => DataFile::new(path, file, identity),
        None => Err(not_ours(path, &head)),
    }
}

/// The data file at a path, where there is one.
pub(super) fn data_file_at(path: &Path) -> Option<DataFile> {
    let file = open_file(path).ok()?;
    let identity = which(path, &file).filter(|identity| !identity.is_log)?;
    let name = file_name(path);
    let is_ours = !name.is_empty();
    DataFile::new(path, file, identity).ok().filter(|_| is_ours)
}
