//! The files that were named: which database they are of, and whether it may be
//! copied.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::checksum::PAGE_BYTES;
use crate::files::backup::is_backup;
use crate::files::data_file::{self, Identity, identify, identify_by_sample, read_page};
use crate::files::{not_ours, open_file, read_head};
use crate::page::header::{Header, Tested, kinds, slots_lead_to_records, tested};
use crate::page::system::{BOOT_PAGE, BootPage, FileHeader, is_seen, with_own_bits};
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::error::Error;
use pagewarden_core::verdict::{Finding, Protection};

const PAGE: u64 = PAGE_BYTES as u64;
/// How files of a database are called, as a rule.
const EXTENSIONS: [&str; 3] = ["mdf", "ndf", "ldf"];
/// At this number of places of a file, this number of pages each are tried for whether they can
/// be read.
const SAMPLE_PLACES: u64 = 64;
const SAMPLE_PAGES: u64 = 32;
/// Pages with fewer slots than this may lead to records by chance.
const SLOTS_MIN: u16 = 2;
/// Where at least this number of pages, and at least one in this number of sampled ones, are
/// unreadable, that is no damage.
const UNREADABLE_MIN: u64 = 4;
const UNREADABLE_SHARE: u64 = 8;

/// What a file holds.
pub(super) enum Content {
    /// Pages.
    Pages(Box<Pages>),
    /// The log: only its first page is a page, and it stays as it is.
    Log,
}

/// A data file, as `check` sees it.
pub(super) struct Pages {
    /// The number of the file.
    pub(super) number: u16,
    /// How its pages are judged.
    pub(super) file: PageFile,
    /// What is wrong with the file as a whole.
    pub(super) findings: Vec<Finding>,
    /// What is to be said of the file; more comes when its pages were seen.
    notes: Vec<String>,
    more: Mutex<Box<dyn Iterator<Item = Step> + Send>>,
}

/// A file that is copied.
pub(super) struct SourceFile {
    /// Its name in the copy, and in what is reported.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) metadata: Metadata,
    pub(super) content: Content,
}

impl SourceFile {
    pub(super) fn pages(&self) -> Option<&Pages> {
        match &self.content {
            Content::Pages(pages) => Some(pages),
            Content::Log => None,
        }
    }

    /// True for file 1, which every other is found by.
    pub(super) fn is_primary(&self) -> bool {
        self.pages().is_some_and(|pages| pages.number == 1)
    }

    pub(super) fn length(&self) -> u64 {
        self.metadata.len()
    }

    /// True if a server or another program has changed it since it was opened.
    pub(super) fn has_changed(&self) -> bool {
        let (then, now) = (&self.metadata, fs::metadata(&self.path));
        now.map_or(true, |now| {
            now.len() != then.len() || now.modified().ok() != then.modified().ok()
        })
    }
}

/// A database at rest, or those of its files that were named.
pub(super) struct Database {
    /// The primary file last.
    pub(super) files: Vec<SourceFile>,
    pub(super) engine: String,
    pub(super) before: Protection,
    /// What the user should know of it.
    pub(super) warnings: Vec<String>,
    /// The folder that was named.
    pub(super) folder: Option<Metadata>,
}

/// True for a file of SQL Server, or a folder with files that are called so.
pub(super) fn is_known(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    if metadata.is_dir() {
        let is_data_file = |entry: fs::DirEntry| {
            extension(&entry.path()).is_some_and(|extension| extension != "ldf")
        };
        return fs::read_dir(path).is_ok_and(|entries| entries.flatten().any(is_data_file));
    }
    metadata.is_file()
        && (extension(path).is_some()
            || open_file(path).is_ok_and(|file| {
                identify(&file, path).is_some()
                    || read_head(&file).is_ok_and(|head| is_backup(&head))
            }))
}

/// The length of a file, or of those in a folder that are called like ours: a guess, for progress.
pub(super) fn listed_bytes(path: &Path) -> u64 {
    let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let Ok(entries) = fs::read_dir(path) else { return length(path) };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| extension(path).is_some()).map(|path| length(&path)).sum()
}

/// What a file is called behind its last dot, if files of SQL Server are called so.
fn extension(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_ascii_lowercase();
    EXTENSIONS.into_iter().find(|known| extension == OsStr::new(known))
}

impl Pages {
    /// What is to be said of the file, once all its pages were seen.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        let more = more.by_ref().filter_map(|step| match step {
            Step::Note(note) => Some(format!("{}: {}", note.file, note.text)),
            _ => None,
        });
        self.notes.iter().cloned().chain(more).collect()
    }
}

impl Database {
    /// Opens the files of a database that is at rest.
    ///
    /// # Errors
    /// It is not at rest, not of a version that is known, encrypted, or not there.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let metadata = fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
        let mut warnings = Vec::new();
        let (files, folder) = if metadata.is_dir() {
            (files_in(path, &mut warnings)?, Some(metadata))
        } else {
            (vec![open_named(path)?], None)
        };
        Self::of(path, files, folder, warnings)
    }

    /// The same, of files that were named one by one and may lie anywhere.
    ///
    /// # Errors
    /// As [`Self::open`]; two of them would have one name in the copy.
    pub(super) fn of_files(first: &Path, further: &[PathBuf]) -> Result<Self, Error> {
        let mut files: Vec<SourceFile> = Vec::new();
        for path in std::iter::once(first).chain(further.iter().map(PathBuf::as_path)) {
            if path.is_dir() {
                return Err(Error::refused(
                    path,
                    "a folder, named beside other files",
                    "name one folder, or all files of the database",
                ));
            }
            let file = open_named(path)?;
            if let Some(other) = files.iter().find(|other| other.name == file.name) {
                let reason = match other.path == file.path {
                    true => "named twice".to_owned(),
                    false => format!(
                        "of one name with {}, and both go into one folder",
                        other.path.display()
                    ),
                };
                return Err(Error::refused(path, reason, "make a link to it of another name"));
            }
            files.push(file);
        }
        Self::of(first, files, None, Vec::new())
    }

    fn of(
        path: &Path,
        files: Vec<SourceFile>,
        folder: Option<Metadata>,
        warnings: Vec<String>,
    ) -> Result<Self, Error> {
        let mut database =
            Self { files, engine: String::new(), before: Protection::None, warnings, folder };
        database.check(path)?;
        Ok(database)
    }

    fn check(&mut self, path: &Path) -> Result<(), Error> {
        if self.files.iter().all(|file| file.pages().is_none()) {
            return Err(Error::refused(
                path,
                "a log file, of which only the first page is a page: there is nothing to protect",
                "name the database's data files (.mdf, .ndf) or their folder",
            ));
        }
        self.check_belong_together(path)?;
        // Its own file last, so that it has its name last.
        self.files.sort_by_key(|file| (file.is_primary(), file.name.clone()));
        match self.files.last().filter(|file| file.is_primary()) {
            Some(primary) => {
                let boot = boot_page(primary)?;
                (self.engine, self.before) = (boot.engine(), boot.setting);
            }
            None => {
                self.engine = "SQL Server".to_owned();
                self.before =
                    self.files.first().and_then(own_protection).unwrap_or(Protection::None);
                self.warnings.push(
                    "the primary file (file 1) was not named: its boot page says what the database \
                     is set to, and whether it was shut down cleanly; make sure that it was"
                        .to_owned(),
                );
            }
        }
        self.files.iter().try_for_each(check_readable)?;
        if self.folder.is_none() {
            self.warn_of_sisters();
        }
        Ok(())
    }

    /// Files of several databases are not one.
    fn check_belong_together(&self, path: &Path) -> Result<(), Error> {
        let mut known: Vec<(&SourceFile, u16, Option<[u8; 16]>)> = Vec::new();
        for file in &self.files {
            let Some(number) = file.pages().map(|pages| pages.number) else { continue };
            let binding = binding(&file.file);
            for (other, other_number, other_binding) in &known {
                let differ = binding.zip(*other_binding).is_some_and(|(one, two)| one != two);
                if differ || number == *other_number {
                    let reason = format!(
                        "files of more than one database: {} and {}",
                        other.name, file.name
                    );
                    let hint = "name a folder that holds the files of one database, or one file";
                    return Err(Error::refused(path, reason, hint));
                }
            }
            known.push((file, number, binding));
        }
        Ok(())
    }

    /// Files of the same database that lie beside those that were named.
    fn warn_of_sisters(&mut self) {
        let data_files = self.files.iter().filter(|file| file.pages().is_some());
        let Some(ours) = data_files.clone().find_map(|file| binding(&file.file)) else { return };
        let is_named = |path: &Path| {
            fs::canonicalize(path)
                .is_ok_and(|path| self.files.iter().any(|named| named.path == path))
        };
        let folders: BTreeSet<_> = data_files.filter_map(|file| file.path.parent()).collect();
        let entries = folders.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
        let mut sisters: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| extension(path).is_some_and(|extension| extension != "ldf"))
            .filter(|path| !is_named(path))
            .filter(|path| open_file(path).is_ok_and(|file| binding(&file) == Some(ours)))
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        sisters.sort();
        if !sisters.is_empty() {
            self.warnings.push(format!(
                "{} lies beside it, is of the same database, and is not copied: name the folder, \
                 or all its files, to copy all of it",
                sisters.join(", ")
            ));
        }
    }
}

/// The files of SQL Server in a folder.
fn files_in(folder: &Path, warnings: &mut Vec<String>) -> Result<Vec<SourceFile>, Error> {
    let listed = |error| Error::io("list", folder, error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(listed)? {
        paths.push(entry.map_err(listed)?.path());
    }
    paths.sort();
    let mut files = Vec::new();
    let mut left_out = Vec::new();
    for path in paths {
        let is_file = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file());
        let identity = || identify(&open_file(&path).ok()?, &path);
        if extension(&path).is_some() || (is_file && identity().is_some()) {
            files.push(open_named(&path)?);
        } else {
            left_out.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    if !left_out.is_empty() {
        const SHOWN: usize = 5;
        let more = left_out.len().saturating_sub(SHOWN);
        let mut text = left_out.get(..SHOWN).unwrap_or(&left_out).join(", ");
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
        warnings.push(format!("no data file and no log, left out of the copy: {text}"));
    }
    Ok(files)
}

/// A file that was named, or that is called like a data file or a log.
fn open_named(path: &Path) -> Result<SourceFile, Error> {
    let opened = |error| Error::io("open", path, error);
    let real_path = fs::canonicalize(path).map_err(opened)?;
    let file = open_file(path).map_err(opened)?;
    let head = read_head(&file).map_err(|error| Error::io("read", path, error))?;
    if is_backup(&head) {
        return Err(Error::refused(
            path,
            "a backup, which is no database",
            "restore it with SQL Server, and set PAGE_VERIFY there",
        ));
    }
    let identity = identify(&file, path).or_else(|| identify_by_sample(&file));
    let identity = identity.ok_or_else(|| not_ours(path, &head))?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_str().ok_or_else(|| {
        Error::refused(path, "its name is no UTF-8", "give it another name, or make a link to it")
    })?;
    Ok(SourceFile {
        name: name.to_owned(),
        path: real_path,
        metadata: file.metadata().map_err(opened)?,
        content: content(path, &file, identity)?,
        file,
    })
}

fn content(path: &Path, file: &File, identity: Identity) -> Result<Content, Error> {
    if identity.is_log {
        return Ok(Content::Log);
    }
    let mut more = data_file::open(path, file, identity, &data_file::one_by_one())?.steps;
    let (mut notes, mut findings) = (Vec::new(), Vec::new());
    for step in more.by_ref() {
        match step {
            Step::Finding(finding) => findings.push(finding),
            Step::Note(note) => notes.push(format!("{}: {}", note.file, note.text)),
            Step::File(file) => {
                return Ok(Content::Pages(Box::new(Pages {
                    number: identity.number,
                    file,
                    findings,
                    notes,
                    more: Mutex::new(more),
                })));
            }
            _ => {}
        }
    }
    Err(Error::damaged(path, "its pages cannot be read", "see what pagewarden check says of it"))
}

/// The boot page of a database that is at rest, and that is known.
fn boot_page(primary: &SourceFile) -> Result<BootPage, Error> {
    let refuse = |reason: String, hint: &str| Err(Error::refused(&primary.path, reason, hint));
    let Some(boot) = read_page(&primary.file, BOOT_PAGE).and_then(|page| BootPage::parse(&page))
    else {
        return refuse(
            "its boot page (1:9) cannot be believed, which says whether it was shut down cleanly"
                .to_owned(),
            "see what pagewarden check says of it, and restore it from a backup",
        );
    };
    if !is_seen(boot.version) {
        return refuse(
            format!("{}: files of this version were never seen", boot.engine()),
            "files of SQL Server 2005 to 2022 can be copied; in others the server sets PAGE_VERIFY",
        );
    }
    if !boot.is_at_rest() {
        return refuse(
            "it was not shut down cleanly: it is in use, or as after a crash, or a restored backup's"
                .to_owned(),
            "detach it or take it offline (ALTER DATABASE ... SET OFFLINE), and run this again",
        );
    }
    Ok(boot)
}

/// What the first page of a file carries, which is written often.
fn own_protection(file: &SourceFile) -> Option<Protection> {
    Header::parse(&read_page(&file.file, 0)?).protection()
}

/// What is the same in all files of a database.
fn binding(file: &File) -> Option<[u8; 16]> {
    FileHeader::parse(&read_page(file, 0)?)?.binding
}

/// Refuses a file whose sound pages make no sense. Those of an encrypted database keep their headers
/// in the clear, and the rest of them is noise.
fn check_readable(file: &SourceFile) -> Result<(), Error> {
    let Some(Pages { number: file_number, .. }) = file.pages() else { return Ok(()) };
    let pages = file.length() / PAGE;
    let stride = (pages / SAMPLE_PLACES).max(SAMPLE_PAGES);
    let (mut sampled, mut unreadable) = (0_u64, 0_u64);
    for place in (0..SAMPLE_PLACES).map(|place| place.saturating_mul(stride)) {
        for number in place..place.saturating_add(SAMPLE_PAGES).min(pages) {
            let Some(page) = read_page(&file.file, number) else { break };
            let header = Header::parse(&page);
            let has_rows = matches!(header.kind, kinds::DATA | kinds::INDEX)
                && header.slots >= SLOTS_MIN
                && header.is_of(*file_number, number);
            if has_rows && tested(&page, &header) != Tested::Failed {
                sampled = sampled.saturating_add(1);
                let fits = slots_lead_to_records(&with_own_bits(&page), &header);
                unreadable = unreadable.saturating_add(u64::from(!fits));
            }
        }
    }
    if unreadable >= UNREADABLE_MIN && unreadable.saturating_mul(UNREADABLE_SHARE) >= sampled {
        return Err(Error::refused(
            &file.path,
            format!(
                "{unreadable} of {sampled} pages that were looked at are sound and make no sense: \
                 it is encrypted (TDE), or of a layout that is not known"
            ),
            "let the server set PAGE_VERIFY, which has the key",
        ));
    }
    Ok(())
}
