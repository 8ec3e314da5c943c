//! The pages of a file for programs that read the values: each tested as `check` tests it, and
//! expanded.
//!
//! A page whose CRC does not fit, or that does not expand to the length in its header, is no page:
//! the reading ends with the reason. What a header says is bounded here, so that a decoder may take
//! memory on the word of what it gets: values by those of the footer, those of a dictionary by its
//! bytes.

#![deny(clippy::arithmetic_side_effects)]

use std::io;
use std::path::{Path, PathBuf};

use super::footer::{Footer, Place};
use super::header::{PageHeader, PageKind};
use super::unchanged::State;
use super::window::Window;
use super::{
    ENCRYPTED_MAGIC, Ends, FOOTER_BYTES_MAX, MAGIC, MAGIC_BYTES, SLACK_BYTES, forgets_headers,
    open_file,
};
use crate::checksum::page_sum;
use crate::page::Content;
use crate::page::codec::{Codec, expand};
use crate::thrift::ThriftError;
use pagewarden_core::source::store::{StorePath, StoredFile};

/// Headers may hold the smallest and the largest value of their page.
const HEADER_BYTES_MAX: usize = 16 << 20;
/// Most are shorter.
const HEADER_BYTES: usize = 256;

/// Why values cannot be read.
#[derive(Debug)]
pub enum Obstacle {
    /// What the system says.
    Io(io::Error),
    /// The file is not as its writer left it: where, and what is wrong.
    Damaged(String),
    /// It is sound for all that is known, but not of a kind that is read here.
    Unsupported(String),
}

impl Obstacle {
    /// The same of a file among others.
    #[must_use]
    pub fn at(self, name: &str) -> Self {
        match self {
            Self::Damaged(why) => Self::Damaged(format!("{name}: {why}")),
            Self::Unsupported(why) => Self::Unsupported(format!("{name}: {why}")),
            Self::Io(error) => Self::Io(io::Error::new(error.kind(), format!("{name}: {error}"))),
        }
    }
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A file whose footer was read.
#[derive(Debug)]
pub struct ContentFile {
    path: PathBuf,
    file: StoredFile,
    /// When it was opened: its length and when it was written to.
    as_opened: State,
    footer_begin: u64,
    footer: Footer,
    footer_bytes: Vec<u8>,
}

impl ContentFile {
    /// Opens it, and reads its footer.
    ///
    /// # Errors
    /// It cannot be read, has no footer that says where everything is, or needs a key.
    pub fn open(at: &StorePath) -> Result<Self, Obstacle> {
        let file = open_file(at)?;
        let as_opened = State::of(&file)?;
        let ends = Ends::read(&file)?;
        if ends.mark() == ENCRYPTED_MAGIC {
            return Err(Obstacle::Unsupported("its footer is encrypted".to_owned()));
        }
        let place = ends.footer().filter(|place| place.bytes <= FOOTER_BYTES_MAX);
        let (Some(place), true) = (place, ends.mark() == MAGIC && ends.head == MAGIC) else {
            let why = "it does not begin and end as a Parquet file: it was cut or written over, or a \
                       program is still writing it";
            return Err(Obstacle::Damaged(why.to_owned()));
        };
        let window = Window::new(file);
        let length = usize::try_from(place.bytes).unwrap_or(usize::MAX);
        let footer_bytes = window.read(place.begin, length)?;
        let footer = Footer::read(&footer_bytes)
            .map_err(|why| Obstacle::Damaged(format!("the footer cannot be read: {why}")))?;
        if let Some(detail) = footer.contradictions().into_iter().next() {
            return Err(Obstacle::Damaged(format!("the footer contradicts itself: {detail}")));
        }
        let sum = footer.groups.iter().try_fold(0_u64, |sum, group| sum.checked_add(group.rows));
        if sum != Some(footer.rows) {
            let why = "it has rows by its footer that its row groups do not have: they are in other \
                       files";
            return Err(Obstacle::Unsupported(why.to_owned()));
        }
        Ok(Self {
            path: at.path().to_owned(),
            file: window.into_file(),
            as_opened,
            footer_begin: place.begin,
            footer,
            footer_bytes,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.as_opened.bytes
    }

    /// What its footer says.
    #[must_use]
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The footer as it is stored.
    #[must_use]
    pub fn footer_bytes(&self) -> &[u8] {
        &self.footer_bytes
    }

    /// Forgets the footer as it is stored.
    pub fn drop_footer_bytes(&mut self) {
        self.footer_bytes = Vec::new();
    }

    /// True if it has not been written to since it was opened.
    #[must_use]
    pub fn is_as_opened(&self) -> bool {
        self.as_opened.is_that_of(&self.file)
    }

    /// The pages of a column in a row group.
    ///
    /// # Errors
    /// There are none in this file, or not where the footer says.
    pub fn pages(&self, group: usize, leaf: usize) -> Result<ContentPages, Obstacle> {
        let name = self.footer.name_of(group, leaf);
        let damaged = |why: &str| Obstacle::Damaged(format!("{name}: {why}"));
        let unsupported = |why: String| Obstacle::Unsupported(format!("{name}: {why}"));
        let entry = self.footer.groups.get(group).and_then(|group| group.chunks.get(leaf));
        let entry = entry.ok_or_else(|| damaged("the footer has no such column chunk"))?;
        if entry.elsewhere.as_ref().is_some_and(|path| !path.is_empty()) {
            return Err(unsupported("its pages are in another file".to_owned()));
        }
        let Some(column) = entry.column.as_ref().filter(|_| !entry.is_encrypted) else {
            return Err(unsupported("it is encrypted".to_owned()));
        };
        let codec = Codec::of(column.codec)
            .filter(|codec| *codec != Codec::Lzo)
            .ok_or_else(|| unsupported(format!("no decompressor for codec {}", column.codec)))?;
        let place = Place { begin: column.begin(), bytes: column.stored_bytes };
        let is_inside = place.begin >= MAGIC_BYTES
            && place.begin.checked_add(place.bytes) <= Some(self.footer_begin);
        if !is_inside && (place.bytes > 0 || column.values > 0) {
            return Err(damaged("its pages are not inside the file"));
        }
        let slack = if forgets_headers(&self.footer.writer) { SLACK_BYTES } else { 0 };
        Ok(ContentPages {
            window: Window::new(self.file.clone()),
            name,
            offset: place.begin,
            end: place.end(),
            limit: place.end().saturating_add(slack).min(self.footer_begin),
            codec,
            left: column.values,
            next: None,
        })
    }
}

/// A page that is expanded.
#[derive(Debug)]
pub struct ContentPage {
    /// Its header.
    pub header: PageHeader,
    /// What it stores, expanded; levels at its front as they are.
    pub bytes: Vec<u8>,
}

/// The pages of a column chunk, one after the other.
#[derive(Debug)]
pub struct ContentPages {
    window: Window,
    name: String,
    offset: u64,
    end: u64,
    limit: u64,
    codec: Codec,
    /// Values that are to come.
    left: u64,
    next: Option<PageHeader>,
}

impl ContentPages {
    /// `row group 0, column a.b`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn damaged(&self, why: &str) -> Obstacle {
        Obstacle::Damaged(format!("{}, byte {}: {why}", self.name, self.offset))
    }

    /// The header of the next page with values or of a dictionary; none at the end.
    ///
    /// # Errors
    /// It is none, or there are fewer values than the footer says.
    pub fn peek(&mut self) -> Result<Option<&PageHeader>, Obstacle> {
        while self.next.is_none() {
            if self.offset >= self.end || (self.limit > self.end && self.left == 0) {
                return match self.left {
                    0 => Ok(None),
                    left => Err(self
                        .damaged(&format!("{left} values fewer are there than the footer says"))),
                };
            }
            let header = self.header()?;
            if header.kind == PageKind::Index {
                self.pass(&header);
                continue;
            }
            self.next = Some(header);
        }
        Ok(self.next.as_ref())
    }

    fn header(&mut self) -> Result<PageHeader, Obstacle> {
        let range = self.offset..self.limit;
        let mut wanted = HEADER_BYTES;
        let header = loop {
            let head = self.window.head(&range, wanted)?;
            let is_all = head.len() < wanted;
            match PageHeader::read(head) {
                Ok(header) => break header,
                Err(ThriftError::Ends) if !is_all && wanted < HEADER_BYTES_MAX => {
                    wanted = wanted.max(head.len()).saturating_mul(4);
                }
                Err(why) => {
                    let why = format!("the header of this page is none: {why}");
                    return Err(self.damaged(&why));
                }
            }
        };
        let length = to_u64(header.bytes.saturating_add(header.stored_bytes));
        if length > self.limit.saturating_sub(self.offset) {
            return Err(self.damaged("the page is longer than what is left of its column chunk"));
        }
        let most = match header.kind {
            PageKind::Dictionary => to_u64(header.expanded_bytes),
            PageKind::Data | PageKind::DataV2 | PageKind::Index => self.left,
        };
        if header.values > most {
            return Err(self.damaged("the page has more values by its header than it can have"));
        }
        Ok(header)
    }

    fn pass(&mut self, header: &PageHeader) {
        let length = to_u64(header.bytes.saturating_add(header.stored_bytes));
        self.offset = self.offset.saturating_add(length);
        if matches!(header.kind, PageKind::Data | PageKind::DataV2) {
            self.left = self.left.saturating_sub(header.values);
        }
    }

    /// Goes past the next page without reading it.
    ///
    /// # Errors
    /// Those of [`peek`](Self::peek).
    pub fn skip(&mut self) -> Result<(), Obstacle> {
        self.peek()?;
        if let Some(header) = self.next.take() {
            self.pass(&header);
        }
        Ok(())
    }

    /// The next page; none at the end.
    ///
    /// # Errors
    /// It cannot be read, its CRC does not fit, or it does not expand to its length.
    pub fn next_page(&mut self) -> Result<Option<ContentPage>, Obstacle> {
        self.peek()?;
        let Some(header) = self.next.take() else { return Ok(None) };
        let begin = self.offset.saturating_add(to_u64(header.bytes));
        let stored = self.window.read(begin, header.stored_bytes)?;
        if stored.len() != header.stored_bytes {
            return Err(self.damaged("the file ends in this page"));
        }
        if let Some(sum) = header.sum {
            let computed = page_sum(&stored);
            if computed != sum {
                return Err(self.damaged(&format!(
                    "the CRC of this page is {sum:08x}, its bytes have {computed:08x}"
                )));
            }
        }
        let bytes = match header.content(self.codec) {
            Content::Compressed { codec: Codec::Uncompressed, bare_bytes, length }
                if bare_bytes.checked_add(length) == Some(stored.len()) =>
            {
                stored
            }
            Content::Compressed { codec, bare_bytes, length } => {
                let (bare, rest) = stored.split_at_checked(bare_bytes).unwrap_or_default();
                let plain = expand(codec, rest, length).map_err(|why| self.damaged(&why))?;
                if bare.is_empty() { plain } else { [bare, &plain].concat() }
            }
            Content::Encrypted => return Err(self.damaged("it is encrypted")),
        };
        self.pass(&header);
        Ok(Some(ContentPage { header, bytes }))
    }
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
