//! Tables of Aria: an index file (`.MAI`) that says how both files are laid out,
//! and a data file (`.MAD`).

#![deny(clippy::arithmetic_side_effects)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::names;
use crate::files::state::read_small;
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity, Unread};
use pagewarden_format_aria::page::header::{AriaHeader, HEADER_BYTES};
use pagewarden_format_aria::page::{AriaFile, AriaPages, Bitmaps, Written, bitmap_every};

/// The two files of a table.
pub const INDEX_ENDING: &str = "MAI";
/// See [`INDEX_ENDING`].
pub const DATA_ENDING: &str = "MAD";

const HINT: &str =
    "CHECK TABLE names what is broken; restore the table from a backup, or REPAIR TABLE";

/// What a directory knows of its tables.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// What a page that fails is in a table that was closed.
    pub failure: Severity,
    /// Files may come and go.
    pub is_live: bool,
    /// Nothing was going on when they were last written.
    pub is_settled: bool,
    /// What a file is that is shorter than when its table was closed; `None` where that is
    /// no evidence.
    pub cut: Option<Severity>,
}

/// One table, by its files without their endings.
#[derive(Debug)]
pub struct AriaTable<'a> {
    /// The path without ending.
    pub stem: &'a Path,
    /// The name in the report, without ending.
    pub shown: &'a str,
    /// Its database.
    pub database: Option<Arc<str>>,
    /// Its name for people.
    pub object: Option<Arc<str>>,
}

impl AriaTable<'_> {
    /// Where its files are.
    #[must_use]
    pub fn paths(&self) -> [PathBuf; 2] {
        [INDEX_ENDING, DATA_ENDING].map(|ending| with_ending(self.stem, ending))
    }

    /// Its files, or what is wrong with them.
    #[must_use]
    pub fn steps(&self, surroundings: Surroundings) -> Vec<Step> {
        let [index_path, data_path] = self.paths();
        let shown = |ending: &str| format!("{}.{ending}", self.shown);
        let has_data = data_path.is_file();
        let header = match self.header(surroundings) {
            Ok(header) => header,
            Err(steps) => return steps,
        };
        if surroundings.is_live && is_being_made(&index_path, header.page_size) {
            return Vec::new();
        }
        // While a table is open, or after a crash, a page may be half written.
        let failure = match header.is_closed || surroundings.is_live {
            true => surroundings.failure,
            false => surroundings.failure.min(Severity::Suspect),
        };
        let page_size = u64::try_from(header.page_size).unwrap_or(u64::MAX);
        let index_pages = header.index_begin.checked_div(page_size).unwrap_or(0);
        let is_known = surroundings.is_settled && !surroundings.is_live && header.is_closed;
        let known = |written| if is_known { written } else { Written::Unknown };
        let file = |path: &Path, ending: &str, which: AriaFile, written: Written| {
            let listed_bytes = std::fs::symlink_metadata(path).map_or(0, |metadata| metadata.len());
            let written = known(written);
            let format = Arc::new(AriaPages { header, file: which, failure, written });
            Step::File(PageFile {
                // A file that was being made or extended ends anywhere, and a table that
                // no server opened since its last one was killed keeps that end: seen after a
                // recovery and a clean stop.
                partial_page: Severity::Notice,
                hint: Some(HINT.into()),
                database: self.database.clone(),
                object: self.object.clone(),
                ..PageFile::of(shown(ending), path, listed_bytes, format)
            })
        };
        let cut = |path: &Path, ending: &str, wanted: Wanted| {
            let finding = wanted.missing(path, &shown(ending), header, surroundings)?;
            if header.is_unused {
                return Some(Step::Finding(self.named(finding)));
            }
            // A checkpoint writes into it how long files will be once their pages are written, and
            // a file may have become shorter since. Recovery goes by the log.
            let text = format!(
                "the server ended while this table was open: {}, which says nothing of a table that was \
                 not closed; CHECK TABLE tests it",
                finding.detail.unwrap_or_default()
            );
            Some(Step::Note(Note { file: shown(ending), text }))
        };
        let mut steps = Vec::new();
        let by_header = |bytes| Wanted { bytes, by: "the table's header" };
        steps.extend(cut(&index_path, INDEX_ENDING, by_header(header.index_bytes)));
        let written = Written::Before(header.index_bytes.checked_div(page_size).unwrap_or(0));
        steps.push(file(&index_path, INDEX_ENDING, AriaFile::Index(index_pages), written));
        if !has_data {
            steps.extend(self.missing(&shown(DATA_ENDING), surroundings));
        } else if header.has_data_pages {
            let pages =
                AriaPages { header, file: AriaFile::Data, failure, written: Written::Unknown };
            let mut bitmaps = Bitmaps::default();
            let in_use = read_bitmaps(&data_path, &pages, &mut bitmaps).unwrap_or(0);
            let wanted = match in_use > header.data_bytes {
                true => Wanted { bytes: in_use, by: "the table's bitmap" },
                false => by_header(header.data_bytes),
            };
            steps.extend(cut(&data_path, DATA_ENDING, wanted));
            steps.extend(self.zeroed_bitmap(&data_path, header, surroundings));
            let written = Written::InUse(Arc::new(bitmaps));
            steps.push(file(&data_path, DATA_ENDING, AriaFile::Data, written));
        }
        steps
    }

    /// What its index file begins with; else what there is to say of it.
    fn header(&self, surroundings: Surroundings) -> Result<AriaHeader, Vec<Step>> {
        let [index_path, data_path] = self.paths();
        let name = format!("{}.{INDEX_ENDING}", self.shown);
        let Some(head) = read_small(&index_path, HEADER_BYTES) else {
            return Err(match (index_path.is_file(), data_path.is_file()) {
                // Not ours to read.
                (true, _) => {
                    let why = "the header of the table cannot be read";
                    vec![Step::Unread(Unread::of_file(name, why))]
                }
                (false, true) => self.missing(&name, surroundings),
                (false, false) => Vec::new(),
            });
        };
        AriaHeader::parse(&head).ok_or_else(|| {
            if head.len() < HEADER_BYTES {
                return self.cut_header(head.len(), &data_path, surroundings);
            }
            // One that is being made.
            if surroundings.is_live {
                return Vec::new();
            }
            let text = "not the header of an Aria table: its pages cannot be judged".to_owned();
            let finding = Finding::of_file(&name, surroundings.failure, Kind::Header, text);
            vec![Step::Finding(self.named(finding))]
        })
    }

    /// True if the rows are of a format without pages: there is nothing to verify
    /// them by.
    #[must_use]
    pub fn has_rows_without_pages(&self) -> bool {
        let [index_path, _] = self.paths();
        let header =
            read_small(&index_path, HEADER_BYTES).and_then(|head| AriaHeader::parse(&head));
        header.is_some_and(|header| !header.has_data_pages)
    }

    /// True if its pages are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        let [index_path, _] = self.paths();
        let header =
            read_small(&index_path, HEADER_BYTES).and_then(|head| AriaHeader::parse(&head));
        header.is_some_and(|header| header.is_encrypted)
    }

    /// A header that is not all there. Servers that are killed while they make a table leave such:
    /// but the data file gets its first bytes when the header is complete.
    fn cut_header(&self, bytes: usize, data: &Path, surroundings: Surroundings) -> Vec<Step> {
        if surroundings.is_live || !surroundings.is_settled {
            return Vec::new();
        }
        let has_rows = data.metadata().is_ok_and(|metadata| metadata.len() > 0);
        let severity = if has_rows { surroundings.failure } else { Severity::Suspect };
        let detail = format!("{bytes} bytes: the header of the table is not all there");
        let file = format!("{}.{INDEX_ENDING}", self.shown);
        let finding = Finding::of_file(&file, severity, Kind::Truncated, detail);
        vec![Step::Finding(self.named(finding))]
    }

    /// The first page of a data file is a bitmap, which is written when the table is made.
    fn zeroed_bitmap(
        &self,
        data: &Path,
        header: AriaHeader,
        surroundings: Surroundings,
    ) -> Option<Step> {
        if !surroundings.is_settled || !header.is_closed || header.rows == 0 {
            return None;
        }
        let page = read_small(data, header.page_size)?;
        let is_zero = page.len() == header.page_size && page.iter().all(|byte| *byte == 0);
        let shown = format!("{}.{DATA_ENDING}", self.shown);
        let detail =
            format!("all zero, and the table's header says that it has {} rows", header.rows);
        let finding = Finding::of_file(&shown, surroundings.failure, Kind::Zeroed, detail)
            .at(Some(PageNo(0)), Some(ByteOffset(0)));
        is_zero.then(|| Step::Finding(self.named(finding)))
    }

    /// A server makes, renames or removes a table file by file, and the definition is there all the
    /// while: where it is after a clean shutdown, the file was lost. Otherwise this may be what a
    /// server left that was killed meanwhile.
    fn missing(&self, file: &str, surroundings: Surroundings) -> Vec<Step> {
        if !surroundings.is_settled {
            return Vec::new();
        }
        let detail = "the other file of this table is there, this one is not".to_owned();
        let severity = match self.has_definition() {
            true => surroundings.failure,
            false => Severity::Suspect,
        };
        let finding = Finding::of_file(file, severity, Kind::Missing, detail);
        vec![Step::Finding(self.named(finding))]
    }

    /// The table is there for the server: of partitions, the table that they are of.
    fn has_definition(&self) -> bool {
        let name = self.stem.file_name().unwrap_or_default().to_string_lossy();
        let table = names::parts(&name).table;
        let definition = self.stem.with_file_name(format!("{table}.frm"));
        definition.is_file()
    }

    fn named(&self, finding: Finding) -> Finding {
        finding.with_hint(HINT).about(self.database.as_deref(), self.object.as_deref())
    }
}

/// How long a file must be.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    bytes: u64,
    /// What says so.
    by: &'static str,
}

impl Wanted {
    /// A finding, if the file is shorter.
    fn missing(
        self,
        path: &Path,
        shown: &str,
        header: AriaHeader,
        surroundings: Surroundings,
    ) -> Option<Finding> {
        let bytes = path.metadata().ok()?.len();
        let severity = surroundings.cut.filter(|_| !surroundings.is_live && bytes < self.bytes)?;
        let page_bytes = u64::try_from(header.page_size).ok()?;
        let page = bytes.div_ceil(page_bytes);
        let detail = format!("{bytes} bytes, and by {} it had {}", self.by, self.bytes);
        let offset = page.checked_mul(page_bytes).map(ByteOffset);
        let finding = Finding::of_file(shown, severity, Kind::Truncated, detail);
        Some(finding.at(Some(PageNo(page)), offset))
    }
}

/// Keeps the bitmaps of a data file that pass their test. Returns how many bytes the file has by what
/// they have in use.
fn read_bitmaps(path: &Path, pages: &AriaPages, bitmaps: &mut Bitmaps) -> Option<u64> {
    let file = open_regular(path).ok()?;
    let page_bytes = u64::try_from(pages.header.page_size).ok()?;
    let every = bitmap_every(pages.header.page_size).checked_mul(page_bytes)?;
    let length = file.metadata().ok()?.len();
    let mut page = vec![0; pages.header.page_size];
    let mut end = 0_u64;
    let mut at = 0_u64;
    while at.saturating_add(page_bytes) <= length {
        let is_whole = read_fully(&file, &mut page, at).ok()? == page.len();
        let number = PageNo(at.checked_div(page_bytes)?);
        let found = pages.end_by_bitmap(number, &page).filter(|_| is_whole);
        bitmaps.push(found.map(|_| page.as_slice()));
        end = end.max(found.unwrap_or(0));
        at = at.saturating_add(every);
    }
    Some(end.saturating_mul(page_bytes))
}

/// True for a file that does not even have its first page for some time.
fn is_being_made(path: &Path, page_size: usize) -> bool {
    const LOOKS: u32 = 5;
    const A_MOMENT: std::time::Duration = std::time::Duration::from_millis(20);
    let page_bytes = u64::try_from(page_size).unwrap_or(u64::MAX);
    (0..LOOKS).all(|_| {
        let is_short = path.metadata().map_or(true, |metadata| metadata.len() < page_bytes);
        if is_short {
            std::thread::sleep(A_MOMENT);
        }
        is_short
    })
}

/// A path with an ending more: table names may have dots in them.
fn with_ending(stem: &Path, ending: &str) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(".");
    path.push(ending);
    path.into()
}
