//! Tables of Aria: an index file (`.MAI`) that says how both files are laid out,
//! and a data file (`.MAD`).

#![deny(clippy::arithmetic_side_effects)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::page::aria::header::{AriaHeader, HEADER_BYTES};
use crate::page::aria::{AriaFile, AriaPages};
use crate::target::innodb::state::read_small;
use crate::target::{PageFile, Step};
use crate::verdict::{ByteOffset, Finding, Kind, PageNo, Severity, Unread};

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
        let Some(head) = read_small(&index_path, HEADER_BYTES) else {
            let name = shown(INDEX_ENDING);
            return match (index_path.is_file(), has_data) {
                // Not ours to read.
                (true, _) => vec![Step::Unread(Unread {
                    file: name,
                    offset: ByteOffset(0),
                    length: 0,
                    error: "the header of the table cannot be read".to_owned(),
                })],
                (false, true) => self.missing(&name, surroundings),
                (false, false) => Vec::new(),
            };
        };
        let Some(header) = AriaHeader::parse(&head) else {
            // One that is being made, or was when the server was killed.
            if surroundings.is_live || head.len() < HEADER_BYTES {
                return Vec::new();
            }
            let finding = Finding::of_file(
                &shown(INDEX_ENDING),
                surroundings.failure,
                Kind::Header,
                "not the header of an Aria table: its pages cannot be judged".to_owned(),
            );
            return vec![Step::Finding(self.named(finding))];
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
        let file = |path: &Path, ending: &str, which: AriaFile| {
            let listed_bytes = std::fs::symlink_metadata(path).map_or(0, |metadata| metadata.len());
            Step::File(PageFile {
                name: shown(ending),
                path: path.to_owned(),
                listed_bytes,
                first_page: PageNo(0),
                format: Arc::new(AriaPages { header, file: which, failure }),
                // A file that was being made or extended ends anywhere, and a table that
                // nobody opened since its server was killed keeps that end: seen after a
                // recovery and a clean stop.
                partial_page: Severity::Notice,
                relation: None,
                selection: None,
                hint: Some(HINT.into()),
                database: self.database.clone(),
                object: self.object.clone(),
                witnesses: Vec::new(),
            })
        };
        let mut steps = vec![file(&index_path, INDEX_ENDING, AriaFile::Index(index_pages))];
        if !has_data {
            steps.extend(self.missing(&shown(DATA_ENDING), surroundings));
        } else if header.has_data_pages {
            steps.push(file(&data_path, DATA_ENDING, AriaFile::Data));
        }
        steps
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

    /// Whoever makes, renames or removes a table does it file by file. Aria's log does
    /// not tell here whether that was going on, so that this is never proven.
    fn missing(&self, file: &str, surroundings: Surroundings) -> Vec<Step> {
        if !surroundings.is_settled {
            return Vec::new();
        }
        let detail = "the other file of this table is there, this one is not".to_owned();
        let finding = Finding::of_file(file, Severity::Suspect, Kind::Missing, detail);
        vec![Step::Finding(self.named(finding))]
    }

    fn named(&self, finding: Finding) -> Finding {
        Finding {
            database: self.database.as_deref().map(str::to_owned),
            object: self.object.as_deref().map(str::to_owned),
            ..finding.with_hint(HINT)
        }
    }
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
