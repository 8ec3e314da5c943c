//! The changed pages of a tablespace, as incremental backups hold them: `t.ibd.delta`
//! with `t.ibd.meta` beside it.
//!
//! A `.delta` file is a row of clusters, each a page with numbers and then the pages
//! of these numbers, in their order:
//!
//! ```text
//! offset  size  field (big-endian)
//!      0     4  "xtra", in the last cluster "XTRA"
//!      4    4n  the number of each page, counted from the tablespace's file; FFFFFFFF
//!               ends them where the page is not full
//! ```
//!
//! A `.meta` file has lines `name = value`: `page_size`, `zip_size` (0, or bytes in
//! a page of ROW_FORMAT=COMPRESSED), `space_id`, in newer versions `space_flags`.
//!
//! Source: `write_filt.cc` of MariaDB 10.11's backup program, and its backups.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::fields::u32_at;
use crate::files::state::read_small;
use crate::files::tablespace::SYSTEM_SPACE;
use crate::page::InnodbPages;
use crate::page::layout::{Form, Layout};
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::page::{PageFinding, PageFormat, PageRun, RunVerdict};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{Finding, Kind, PageNo, Severity, Unread};

const MAGIC: &[u8; 4] = b"xtra";
const MAGIC_OF_LAST: &[u8; 4] = b"XTRA";
const NUMBER_BYTES: usize = 4;
const END: u32 = u32::MAX;
/// Stands in the list of numbers where a page of numbers lies.
pub(super) const PAGE_OF_NUMBERS: u32 = u32::MAX;
/// On page 0: the tablespace's flags.
const FSP_FLAGS: usize = 54;
pub(super) const META_BYTES_MAX: usize = 4096;
/// This number of pages are asked for their layout.
pub(super) const SAMPLE_PAGES: usize = 16;
/// 16 GiB of changes in pages of 4 KiB: a list of 16 MiB.
const PAGES_MAX: usize = 1 << 22;

/// What stands in a `.meta` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Bytes in a page of the file.
    pub page_size: usize,
    /// Pages are those of ROW_FORMAT=COMPRESSED.
    pub is_zip: bool,
    /// The tablespace's number.
    pub space: Option<u32>,
    /// Its flags.
    pub flags: Option<u32>,
}

impl Meta {
    /// Reads it; `None` where it does not say how large a page is.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value = |wanted: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once('=')?;
                (name.trim() == wanted).then(|| value.trim().parse::<u32>().ok()).flatten()
            })
        };
        let zip = value("zip_size").filter(|bytes| *bytes > 0);
        let page_size = usize::try_from(zip.or_else(|| value("page_size"))?).ok()?;
        let is_possible = page_size.is_power_of_two() && (1024..=65_536).contains(&page_size);
        is_possible.then(|| Self {
            page_size,
            is_zip: zip.is_some(),
            space: value("space_id").filter(|space| *space != u32::MAX),
            flags: value("space_flags"),
        })
    }
}

/// A file whose numbers were read.
#[derive(Debug)]
pub(crate) struct Delta {
    meta: Meta,
    indexes: Vec<u32>,
    layout: Layout,
    listed_bytes: u64,
}

/// Reads the numbers of a file's pages.
///
/// # Errors
/// A step that says why it cannot be judged.
pub(crate) fn open(path: &Path, shown: &str) -> Result<Delta, Box<Step>> {
    let unread = |error: String| Box::new(Step::Unread(Unread::of_file(shown, error)));
    let file = open_regular(path).map_err(|error| unread(error.to_string()))?;
    let listed_bytes = file.metadata().map_err(|error| unread(error.to_string()))?.len();
    let meta = read_small(&path.with_extension("meta"), META_BYTES_MAX);
    let meta = meta.and_then(|text| Meta::parse(&String::from_utf8_lossy(&text)));
    let Some(meta) = meta else {
        return Err(unread(
            "its .meta file is not there or does not say how large a page is".into(),
        ));
    };
    let indexes = match numbers(&file, meta.page_size, listed_bytes) {
        Ok(indexes) => indexes,
        Err(Broken::Io(error)) => return Err(unread(error.to_string())),
        Err(Broken::Kind(kind, detail)) => {
            let detail = format!("no file of changed pages: {detail}");
            let finding = Finding::of_file(shown, Severity::Damage, kind, detail);
            return Err(Box::new(Step::Finding(finding)));
        }
    };
    let layout = meta.layout_of(&samples(&file, &meta, &indexes));
    Ok(Delta { meta, indexes, layout, listed_bytes })
}

/// The numbers on a list of pages, and whether it is the last; `None` if it is none.
pub(super) fn pages_of(list: &[u8]) -> Option<(Vec<u32>, bool)> {
    let is_last = list.starts_with(MAGIC_OF_LAST);
    if !is_last && !list.starts_with(MAGIC) {
        return None;
    }
    let places = (NUMBER_BYTES..list.len()).step_by(NUMBER_BYTES);
    let numbers = places.filter_map(|at| u32_at(list, at)).take_while(|page| *page != END);
    Some((numbers.collect(), is_last))
}

enum Broken {
    Io(std::io::Error),
    Kind(Kind, String),
}

fn numbers(file: &File, page_size: usize, bytes: u64) -> Result<Vec<u32>, Broken> {
    let page_bytes = u64::try_from(page_size).unwrap_or(u64::MAX);
    let mut indexes = Vec::new();
    let mut page = vec![0; page_size];
    loop {
        let place = u64::try_from(indexes.len()).unwrap_or(u64::MAX).saturating_mul(page_bytes);
        let count = read_fully(file, &mut page, place).map_err(Broken::Io)?;
        if count < page_size {
            let detail = format!("it ends at {bytes} bytes without a last list of pages");
            return Err(Broken::Kind(Kind::Truncated, detail));
        }
        let Some((listed, is_last)) = pages_of(&page) else {
            let detail = format!("at offset {place} a list of pages must begin, and does not");
            return Err(Broken::Kind(Kind::Header, detail));
        };
        indexes.push(PAGE_OF_NUMBERS);
        indexes.extend(listed);
        if is_last || indexes.len() > PAGES_MAX {
            break;
        }
    }
    let due = u64::try_from(indexes.len()).unwrap_or(u64::MAX).saturating_mul(page_bytes);
    if due > bytes {
        let detail = format!("{bytes} bytes, by its lists {due}");
        return Err(Broken::Kind(Kind::Truncated, detail));
    }
    Ok(indexes)
}

/// The first pages with their numbers.
fn samples(file: &File, meta: &Meta, indexes: &[u32]) -> Vec<(u32, Vec<u8>)> {
    let page_bytes = u64::try_from(meta.page_size).unwrap_or(u64::MAX);
    indexes
        .iter()
        .zip(0_u64..)
        .filter(|(index, _)| **index != PAGE_OF_NUMBERS)
        .take(SAMPLE_PAGES)
        .filter_map(|(index, at)| {
            let mut page = vec![0; meta.page_size];
            let count = read_fully(file, &mut page, at.checked_mul(page_bytes)?).ok()?;
            (count == meta.page_size).then_some((*index, page))
        })
        .collect()
}

impl Meta {
    /// By the flags, if they are known, or by the layout that most of these pages
    /// have.
    pub(super) fn layout_of(&self, samples: &[(u32, Vec<u8>)]) -> Layout {
        let flags = self.flags.or_else(|| {
            let (_, first) = samples.iter().find(|(index, _)| *index == 0)?;
            u32_at(first, FSP_FLAGS)
        });
        if let Some(layout) = flags.and_then(Layout::of_flags)
            && layout.page_size == self.page_size
        {
            return layout;
        }
        let forms: &[Form] = if self.is_zip { &[Form::Zip] } else { &[Form::FullCrc32, Form::Old] };
        let fitting = |form: &Form| {
            let format = InnodbPages::new(Layout::guessed(*form, self.page_size));
            let is_sound = |(index, page): &&(u32, Vec<u8>)| {
                let mut verdict = RunVerdict::default();
                let run = PageRun { first: PageNo(u64::from(*index)), bytes: page };
                format.judge(run, &mut verdict);
                verdict.counts.ok > 0
            };
            samples.iter().filter(is_sound).count()
        };
        let form = forms.iter().copied().max_by_key(fitting).unwrap_or(Form::Old);
        Layout::guessed(form, self.page_size)
    }
}

impl Delta {
    /// The file for the engine; `None` if it holds no page.
    pub(crate) fn into_page_file(
        self,
        shown: &str,
        path: PathBuf,
        database: Option<Arc<str>>,
        object: Option<Arc<str>>,
    ) -> Option<PageFile> {
        if self.indexes.iter().all(|index| *index == PAGE_OF_NUMBERS) {
            return None;
        }
        let format = Arc::new(ChangedPages::new(self.layout, self.meta.space));
        Some(PageFile {
            selection: Some(self.indexes.into()),
            database,
            object,
            ..PageFile::of(shown, path, self.listed_bytes, format)
        })
    }
}

/// Pages of a tablespace among lists of their numbers.
#[derive(Debug)]
pub(super) struct ChangedPages(InnodbPages);

impl ChangedPages {
    pub(super) fn new(layout: Layout, space: Option<u32>) -> Self {
        let mut pages = InnodbPages::new(layout);
        pages.space_id = space;
        if space == Some(SYSTEM_SPACE) {
            // The doublewrite area, where every server puts it when it makes the file.
            let extent = u64::try_from(layout.extent_pages()).unwrap_or(0);
            pages.doublewrite = std::iter::once(extent..extent.saturating_mul(3)).collect();
        }
        Self(pages)
    }
}

impl PageFormat for ChangedPages {
    fn page_size(&self) -> usize {
        self.0.page_size()
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        // No two numbers that follow one another are that of a list.
        if run.first == PageNo(u64::from(PAGE_OF_NUMBERS)) {
            run.bytes.chunks_exact(self.0.page_size()).for_each(|_| verdict.skip());
        } else {
            self.0.judge(run, verdict);
        }
    }

    fn explain(
        &self,
        page: &[u8],
        finding: &mut PageFinding,
        neighbours: &dyn pagewarden_core::page::Neighbours,
    ) {
        self.0.explain(page, finding, neighbours);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_says_how_large_pages_are() {
        let meta = Meta::parse("page_size = 16384\nzip_size = 0 \nspace_id = 5\n").unwrap();
        assert_eq!(
            (meta.page_size, meta.is_zip, meta.space, meta.flags),
            (16_384, false, Some(5), None)
        );
        let meta = Meta::parse("page_size = 16384\nzip_size = 4096\nspace_id = 5\n").unwrap();
        assert_eq!((meta.page_size, meta.is_zip), (4096, true));
        for text in
            ["", "page_size = 0", "page_size = 5000", "page_size = x", "zip_size = 4096000000"]
        {
            assert_eq!(Meta::parse(text), None, "{text}");
        }
    }

    #[test]
    fn lists_are_read_to_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.ibd.delta");
        let list = |magic: &[u8; 4], numbers: &[u32]| {
            let mut page = magic.to_vec();
            numbers.iter().for_each(|number| page.extend(number.to_be_bytes()));
            page.resize(1024, 0xFF);
            page
        };
        let all: Vec<u32> = (0..255).collect();
        let first = [list(MAGIC, &all), vec![0; 255 * 1024]].concat();
        let last = [list(MAGIC_OF_LAST, &[300, 7]), vec![0; 2 * 1024]].concat();
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            numbers(&File::open(&path).unwrap(), 1024, bytes.len() as u64)
        };
        let found = read(&[first.clone(), last.clone()].concat()).ok().unwrap();
        assert_eq!(found.len(), 256 + 3);
        assert_eq!(found[256..], [PAGE_OF_NUMBERS, 300, 7]);
        assert!(matches!(read(&first), Err(Broken::Kind(Kind::Truncated, _))));
        assert!(matches!(read(&last[..2048]), Err(Broken::Kind(Kind::Truncated, _))));
        assert!(matches!(read(&[1; 4096]), Err(Broken::Kind(Kind::Header, _))));
    }
}
