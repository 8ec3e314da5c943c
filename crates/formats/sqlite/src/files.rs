//! A SQLite database file.
//!
//! The file is opened read-only and read with plain reads; the library is never used, because it
//! would play back what is left of an interrupted transaction. What stands beside the file is
//! described, see `sidecars.rs`.
//!
//! A trap for programs that use this as a library: closing any descriptor of a file drops all POSIX
//! locks that the same *process* holds on it. Do not check a database from within a process that
//! has it open through SQLite.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::FORMAT;
use crate::checksum::page_verify::Room;
use crate::page::header::{DatabaseHeader, HEADER_BYTES, MAGIC};
use crate::page::marked::protection as protection_of;
use crate::page::{Excuses, FirstPage, PageSet, SqlitePages};
use pagewarden_core::database::{
    Description, Epoch, Evidence, OpenOptions, PageFile, Probe, Step, Target,
};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_anything, read_fully};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Protection, Severity};
use pagewarden_core::words::counted;

mod freelist;
pub(super) mod geometry;
mod glance;
mod journal;
pub(super) mod owners;
pub(super) mod sidecars;
pub(super) mod stream;
mod structure;
pub(super) mod wal;

use geometry::{Geometry, SUM_RESERVE};
use glance::Glance;
use owners::Owners;
use sidecars::Sidecars;

/// The page size of a new database, for a file that has no page yet.
const PAGE_SIZE_DEFAULT: usize = 4096;
const HINT: &str = "restore the file from a backup, or save what is readable with the sqlite3 shell's \
                    .recover, into a new file";
const HINT_LOG: &str = "copy the database with its -wal and -journal before any program opens it: what \
                        does not fit is forgotten then; restore the rest from a backup";

pub(super) fn probe(path: &Path, metadata: &Metadata) -> Probe {
    if !metadata.is_file() {
        return Probe::No;
    }
    if metadata.len() < to_u64(MAGIC.len()) {
        return Probe::yes_if(metadata.len() == 0 && lost_pages(path).is_some());
    }
    let Ok(file) = open_anything(path) else { return Probe::No };
    match read_head(&file) {
        Ok(head) if head.starts_with(MAGIC) => Probe::Yes,
        Ok(head) if geometry::is_nearly_a_database(&head) => Probe::Yes,
        Ok(head) if stream::is_packed(path, &head) => Probe::Yes,
        Ok(head) if may_have_lost_its_head(path, &head) => {
            Probe::yes_if(geometry::pages_prove_one(&file, metadata.len()))
        }
        _ => Probe::No,
    }
}

/// True if it is worth a look at more pages than the first: other files that begin with zeroes, or have
/// such a name, are few.
fn may_have_lost_its_head(path: &Path, head: &[u8]) -> bool {
    let ending = path.extension().unwrap_or_default();
    ending.eq_ignore_ascii_case("db") || head.iter().all(|byte| *byte == 0)
}

pub(super) fn open(
    path: &Path,
    metadata: &Metadata,
    options: &OpenOptions,
) -> Result<Target, Error> {
    if !metadata.is_file() {
        return Err(Error::unrecognised(
            path,
            "not a file",
            "a SQLite database is one file: name it",
        ));
    }
    let file = open_anything(path).map_err(|source| Error::io("open", path, source))?;
    // What is asked is the file that was opened, not what had this name before.
    let metadata = file.metadata().map_err(|source| Error::io("open", path, source))?;
    if metadata.len() == 0 {
        return Ok(match lost_pages(path) {
            Some(pages) => cut_to_nothing(path, pages),
            None => empty_database(path),
        });
    }
    let head = read_head(&file).map_err(|source| Error::io("read", path, source))?;
    if stream::is_packed(path, &head) {
        return stream::open_file(path, options);
    }
    open_database(path, file, &metadata, &head, false, options)
}

/// Opens a database as if its pages carried no markers, to be judged by its structure alone, rows against
/// indexes too. `owners` hears whose its pages are.
pub(super) fn open_without_markers(path: &Path, owners: Owners) -> Result<Target, Error> {
    let file = open_anything(path).map_err(|source| Error::io("open", path, source))?;
    let metadata = file.metadata().map_err(|source| Error::io("open", path, source))?;
    let head = read_head(&file).map_err(|source| Error::io("read", path, source))?;
    let Some(geometry) = geometry::find(&file, metadata.len(), &head) else {
        let reason = "neither its header nor its pages are those of a SQLite database";
        return Err(Error::unrecognised(path, reason, "restore it from a backup"));
    };
    let geometry = Geometry { markers: None, has_sums: false, ..geometry };
    let mut database = Database::look_at(path, file, &metadata, geometry, false);
    database.compares = true;
    database.owners = Some(owners);
    Ok(database.into_target())
}

/// Opens our own copy of a database, of which the end may not have come.
pub(super) fn open_copy(path: &Path, is_cut: bool, options: &OpenOptions) -> Result<Target, Error> {
    let file = open_anything(path).map_err(|source| Error::io("open", path, source))?;
    let metadata = file.metadata().map_err(|source| Error::io("open", path, source))?;
    let head = read_head(&file).map_err(|source| Error::io("read", path, source))?;
    open_database(path, file, &metadata, &head, is_cut, options)
}

fn open_database(
    path: &Path,
    file: File,
    metadata: &Metadata,
    head: &[u8],
    is_cut: bool,
    options: &OpenOptions,
) -> Result<Target, Error> {
    let Some(geometry) = geometry::find(&file, metadata.len(), head) else {
        return Err(Error::unrecognised(
            path,
            "neither its header nor its pages are those of a SQLite database",
            "an encrypted database looks like this: only a program that has its key can check it",
        ));
    };
    let mut database = Database::look_at(path, file, metadata, geometry, is_cut);
    database.is_asked = !options.no_witness;
    database.is_walked &= database.is_asked;
    database.compares = options.structure;
    Ok(database.into_target())
}

/// A database of which all has been looked at but the pages.
struct Database {
    path: PathBuf,
    name: String,
    /// Kept open: it is asked later whether anybody came to write.
    file: File,
    bytes: u64,
    modified: Option<SystemTime>,
    header: Option<DatabaseHeader>,
    sidecars: Sidecars,
    /// What is wrong with the files beside it.
    beside: Vec<Step>,
    is_live: bool,
    /// No process has it open, and nothing waits to be recovered.
    is_at_rest: bool,
    /// Its structure is looked at.
    is_walked: bool,
    /// Whether its structure is wanted.
    is_asked: bool,
    /// Rows are compared with indexes.
    compares: bool,
    /// Pages of which it is asked whose they are.
    owners: Option<Owners>,
    format: Arc<SqlitePages>,
}

impl Database {
    /// Of a file that may end before its end (`is_cut`), because the rest of it did not come.
    fn look_at(
        path: &Path,
        file: File,
        metadata: &Metadata,
        geometry: Geometry,
        is_cut: bool,
    ) -> Self {
        // First: what a writer leaves that is killed from now on, the journal undoes.
        let Glance { bytes, modified, first_page, is_live } =
            Glance::settled(&file, metadata, geometry.page_size);
        // SQLite itself looks for the journal beside the file that a symbolic link leads to.
        let real_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut sidecars = Sidecars::beside(&real_path, geometry.page_size);
        let mut beside = wal::look(&file, &real_path);
        let page_bytes = (!geometry.is_encrypted).then_some(geometry.page_size);
        beside.extend(journal::look(&file, &real_path, page_bytes));
        let header = DatabaseHeader::parse(&first_page);
        let mut format = SqlitePages {
            page_size: geometry.page_size,
            reserved_bytes: geometry.reserved_bytes,
            has_sums: geometry.has_sums,
            markers: geometry.markers,
            is_encrypted: geometry.is_encrypted,
            ..SqlitePages::default()
        };
        let first = format.judge_first(&first_page);
        // Of a page 1 that is wrong nothing is believed, least of all where the rest is.
        let is_readable = !geometry.is_encrypted
            && match &first {
                FirstPage::Wrong(finding) => finding.severity != Severity::Damage,
                FirstPage::Sound | FirstPage::StaleSum => true,
            };
        let is_at_rest = !is_live && !is_cut && !sidecars.have_content();
        if let Some(header) = header.filter(|_| !matches!(first, FirstPage::Wrong(_))) {
            // A writer may add pages while they are read: then the end is not known.
            format.page_count = header.page_count().filter(|_| !is_live);
            if !geometry.is_encrypted {
                let pages = format.page_count.unwrap_or(u64::MAX);
                let list = freelist::walk(&file, &format, &header, pages);
                let has_sums = format.has_sums || format.markers.is_some();
                format.free_leaves = if has_sums { list.leaves } else { PageSet::default() };
                // A fault between two pages is one only if no process wrote in between.
                let is_unchanged = || {
                    !sidecars::is_locked(&file)
                        && read_first_page(&file, geometry.page_size) == first_page
                };
                format.condemned.extend(list.fault.filter(|_| is_at_rest && is_unchanged()));
            }
        }
        let in_wal = sidecars.wal.take();
        format.excuses = Excuses {
            hot_journal: sidecars.hot_journal,
            is_begun: first_page.iter().all(|byte| *byte == 0)
                && sidecars::may_be_written_without_journal(&file, &real_path),
            foreign_writer: first == FirstPage::StaleSum
                && !sidecars.hot_journal
                && !in_wal.as_ref().is_some_and(|pages| pages.contains(1)),
            in_wal: in_wal.unwrap_or_default(),
            sums_are_rare: geometry.sums_are_rare,
            wal_mode: header.is_some_and(|header| header.is_wal()),
        };
        Self {
            path: path.to_owned(),
            name: file_name(path),
            file,
            bytes,
            modified,
            header,
            sidecars,
            beside,
            is_live,
            is_at_rest,
            is_walked: is_readable && !is_cut,
            is_asked: true,
            compares: false,
            owners: None,
            format: Arc::new(format),
        }
    }

    /// The change counter, which transactions raise that are not in a WAL.
    fn epoch(&self) -> Option<Epoch> {
        let header = self.header.filter(|header| !header.is_wal())?;
        Some(Epoch {
            database: "sqlite".to_owned(),
            position: u64::from(header.change_counter),
            is_at_rest: self.is_at_rest,
        })
    }

    fn into_target(mut self) -> Target {
        let mut steps = self.notes();
        steps.append(&mut self.beside);
        steps.extend(self.missing_pages().map(Step::Finding));
        let description = self.description();
        let structure = self.structure(&description);
        let format = Arc::clone(&self.format);
        let partial_page = match (self.is_at_rest, self.format.page_count) {
            // Allocated ahead, or left by a crash: no part of the database.
            (_, Some(count)) if self.whole_pages() >= count => Severity::Notice,
            (true, _) => Severity::Damage,
            (false, _) => Severity::Suspect,
        };
        steps.push(Step::File(PageFile {
            first_page: PageNo(1),
            partial_page,
            hint: Some(HINT.into()),
            ..PageFile::of(self.name, self.path, self.bytes, format)
        }));
        let (file, bytes, modified) = (self.file, self.bytes, self.modified);
        let woken = Box::new(move || {
            sidecars::is_locked(&file)
                || file
                    .metadata()
                    .map_or(true, |now| now.len() != bytes || now.modified().ok() != modified)
        });
        let steps = Box::new(steps.into_iter().chain(structure));
        Target { description, steps, woken: Some(woken) }
    }

    /// The look at its structure, if there is one; or why there is none.
    fn structure(&mut self, description: &Description) -> Box<dyn Iterator<Item = Step> + Send> {
        let evidence = self.evidence_of_pages();
        let file = match self.file.try_clone() {
            Ok(file) if self.is_walked => file,
            _ if self.format.is_encrypted || !self.is_asked => return Box::new(std::iter::empty()),
            _ => {
                let text = "its structure was not looked at: its first page, or its end, is not \
                            as it must be"
                    .to_owned();
                return Box::new(std::iter::once(Step::Note(Note {
                    file: self.name.clone(),
                    text,
                })));
            }
        };
        structure::steps(structure::Subject {
            name: self.name.clone(),
            real_path: std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone()),
            file,
            format: Arc::clone(&self.format),
            is_live: self.is_live,
            compares: self.compares,
            owners: self.owners.clone(),
            otherwise: Description { evidence, ..description.clone() },
        })
    }

    fn description(&self) -> Description {
        let format = &self.format;
        let protection = if format.markers.is_some() {
            "page_verify VFS"
        } else if format.is_encrypted {
            "encrypted"
        } else if format.has_sums {
            "checksum VFS"
        } else {
            "no page checksums"
        };
        let journal = if format.excuses.wal_mode { "write-ahead log" } else { "rollback journal" };
        let mut state = vec![protection.to_owned(), journal.to_owned()];
        if let Some(library) = self.header.and_then(|header| header.library()) {
            state.push(format!("last written by SQLite {library}"));
        }
        if format.markers.is_some() && self.header.is_some_and(|header| header.is_guarded()) {
            state.push("guarded: programs without the VFS only read it".to_owned());
        }
        if self.is_live {
            state.push("open in another process".to_owned());
        }
        Description {
            part: None,
            path: self.path.clone(),
            format: FORMAT.name,
            engine: "SQLite 3".to_owned(),
            page_size: u32::try_from(format.page_size).unwrap_or(u32::MAX),
            setting: match (format.has_sums, format.is_encrypted, format.reserved_bytes) {
                _ if format.markers.is_some() => {
                    format.markers.and_then(|markers| markers.setting).map(protection_of)
                }
                (true, _, _) => Some(Protection::Checksum),
                // Another program uses the end of each page for something that cannot be read here.
                (false, true, _) | (false, false, SUM_RESERVE) => None,
                (false, false, _) => Some(Protection::None),
            },
            state: state.join(", "),
            evidence: if self.is_walked {
                self.evidence_of_all()
            } else {
                self.evidence_of_pages()
            },
            live: self.is_live,
            epoch: self.epoch(),
        }
    }

    /// What a check of single pages is worth.
    fn evidence_of_pages(&self) -> Evidence {
        if self.format.markers.is_some() {
            Evidence {
                tested_by: "64-bit markers with the page's number, by each page's own mode, and the \
                            database header",
                unseen: "older versions of a page; the content of pages in the mode NONE",
            }
        } else if self.format.has_sums {
            Evidence {
                tested_by: "64-bit checksums and the database header",
                unseen: "zeroed pages; sound pages in the wrong place; older versions of a page",
            }
        } else {
            Evidence {
                tested_by: "the database header and the length of the file only",
                unseen: "damage to pages other than the first",
            }
        }
    }

    /// What it is worth together with a look at the structure.
    fn evidence_of_all(&self) -> Evidence {
        if self.format.markers.is_some() {
            Evidence {
                tested_by: "64-bit markers with the page's number, by each page's own mode, the \
                            database header, and the structure of all tables, indexes and lists",
                unseen: "older versions of a page that fit the others; values on pages in the mode NONE",
            }
        } else if self.format.has_sums {
            Evidence {
                tested_by: "64-bit checksums, the database header, and the structure of all tables, \
                            indexes and lists",
                unseen: "older versions of a page that fit the others; zeroed pages of blobs",
            }
        } else if self.compares {
            Evidence {
                tested_by: "the database header, the structure of all tables, indexes and lists, and \
                            each row against its indexes",
                unseen: "changed values that no index holds; older versions of a page that fit the \
                         others; free pages",
            }
        } else {
            Evidence {
                tested_by: "the database header and the structure of all tables, indexes and lists: \
                            which page leads where, bounds, order of rowids, lengths of values",
                unseen: "changed values that leave the structure whole; older versions of a page that \
                         fit the others; free pages",
            }
        }
    }

    fn notes(&mut self) -> Vec<Step> {
        let format = &self.format;
        let mut texts = Vec::new();
        if format.is_encrypted {
            texts.push(
                "the pages are encrypted: without the key nothing can be verified".to_owned(),
            );
        } else if !format.has_sums && format.reserved_bytes == SUM_RESERVE {
            texts.push(
                "8 reserved bytes on each page, but they are not the checksum VFS's sums"
                    .to_owned(),
            );
        } else if !format.has_sums && format.markers.is_none() && format.reserved_bytes > 0 {
            let bytes = format.reserved_bytes;
            let is_unused =
                geometry::reserve_is_zero(&self.file, self.bytes, format.page_size, bytes);
            texts.push(match (is_unused, bytes) {
                (false, _) => {
                    format!("{bytes} reserved bytes on each page, used by something that is not known")
                }
                (true, _) if Room::of_bytes(bytes).is_some() => format!(
                    "{bytes} reserved bytes on each page, all zero: VACUUM by a program without the \
                     pagewarden VFS leaves this of a protected database; pagewarden protect --mode \
                     checksum gives it markers again"
                ),
                (true, _) => format!(
                    "{bytes} reserved bytes on each page, all zero and used by nothing, as the \
                     SQLite of macOS leaves them; pagewarden protect takes such a database"
                ),
            });
        }
        if self.header.is_some_and(|header| header.has_magic && !header.versions_are_known()) {
            texts.push("the file format version is newer than what is known here".to_owned());
        }
        if let Some(beyond) =
            format.page_count.and_then(|count| self.whole_pages().checked_sub(count))
            && beyond > 0
        {
            texts.push(format!(
                "{beyond} pages behind the end of the database: allocated ahead or left over, and \
                 no part of it"
            ));
        }
        let own = texts.into_iter().map(|text| Note { file: self.name.clone(), text });
        let beside = self.sidecars.notes.drain(..).map(|(file, text)| Note { file, text });
        own.chain(beside).map(Step::Note).collect()
    }

    fn whole_pages(&self) -> u64 {
        self.bytes.checked_div(to_u64(self.format.page_size)).unwrap_or(0)
    }

    /// The pages that the header counts and the file does not have. One that is cut in the middle
    /// is reported with the pages.
    fn missing_pages(&self) -> Option<Finding> {
        let page_bytes = to_u64(self.format.page_size);
        let begun = self.bytes.div_ceil(page_bytes.max(1));
        let count = self.format.page_count.filter(|count| *count > begun)?;
        let real_path = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        // A server that is killed while it copies its log into the database leaves this.
        let is_in_log = !self.is_at_rest
            && wal::pages_after_recovery(&real_path).is_some_and(|end| end >= count);
        // So does one that is killed while a transaction makes the file longer.
        let is_undone = self.sidecars.hot_journal
            && journal::pages_before(&real_path).is_some_and(|pages| pages <= begun);
        let severity = match (self.is_at_rest, is_in_log || is_undone) {
            (true, _) => Severity::Damage,
            (_, true) => Severity::Notice,
            _ => Severity::Suspect,
        };
        let mut detail = format!(
            "the header counts {count} pages, the file ends with page {begun}: {} are missing",
            count.saturating_sub(begun)
        );
        if is_in_log {
            detail.push_str(
                "; the write-ahead log holds a later state, and recovery makes the file so long",
            );
        } else if is_undone {
            detail.push_str("; they are of a transaction that SQLite will undo");
        } else if !self.is_at_rest {
            detail.push_str("; recovery may bring them back");
        }
        let (page, offset) = (begun.saturating_add(1), begun.checked_mul(page_bytes));
        let finding = Finding::of_file(&self.name, severity, Kind::Truncated, detail)
            .at(Some(PageNo(page)), offset.map(ByteOffset))
            .with_hint(HINT);
        Some(finding)
    }
}

/// A file without a byte is a database in which nothing was ever written.
fn empty_database(path: &Path) -> Target {
    let note = "an empty file, which is a SQLite database without a page: nothing to check";
    let steps = [Step::Note(Note { file: file_name(path), text: note.to_owned() })];
    Target {
        description: Description {
            part: None,
            path: path.to_owned(),
            format: FORMAT.name,
            engine: "SQLite 3".to_owned(),
            page_size: u32::try_from(PAGE_SIZE_DEFAULT).unwrap_or(u32::MAX),
            setting: Some(Protection::None),
            state: "empty".to_owned(),
            evidence: Evidence { tested_by: "nothing", unseen: "there is no page to judge" },
            live: false,
            epoch: None,
        },
        steps: Box::new(steps.into_iter()),
        woken: None,
    }
}

/// How many pages the log beside an empty file says that the database has. SQLite makes the first page in the
/// file itself before there is a log, and it deletes the log of a file that is empty.
fn lost_pages(path: &Path) -> Option<u64> {
    let real_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    wal::pages_after_recovery(&real_path).filter(|pages| *pages > 0)
}

/// An empty file whose log has a database.
fn cut_to_nothing(path: &Path, pages: u64) -> Target {
    let detail = format!(
        "the file is empty, and its log has a database of {}: SQLite deletes that log when it opens the file",
        counted(pages, "page")
    );
    let name = file_name(path);
    let finding = Finding::of_file(&name, Severity::Damage, Kind::Truncated, detail);
    let steps = [Step::Finding(finding.with_hint(HINT_LOG))];
    Target { steps: Box::new(steps.into_iter()), ..empty_database(path) }
}

/// The first bytes: a database header with the byte behind it, or that of an archive's first member.
fn read_head(file: &File) -> std::io::Result<Vec<u8>> {
    read_up_to(file, (HEADER_BYTES + 1).max(stream::HEAD_BYTES))
}

/// Page 1, cut short if the file is.
///
/// A page that is being written is read as two halves of different age. A second look tells, and
/// whatever comes out here is only used to set the check up: each page is judged when it is read.
fn read_first_page(file: &File, page_size: usize) -> Vec<u8> {
    const LOOKS_MAX: usize = 5;
    let mut page = read_up_to(file, page_size).unwrap_or_default();
    for _ in 0..LOOKS_MAX {
        let again = read_up_to(file, page_size).unwrap_or_default();
        if again == page {
            break;
        }
        page = again;
    }
    page
}

fn read_up_to(file: &File, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let filled = read_fully(file, &mut bytes, 0)?;
    bytes.truncate(filled);
    Ok(bytes)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy())
        .into_owned()
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
