//! Pages whose headers were read, so that several threads may read the pages themselves.
//!
//! Where a page begins is known only once the header of the one before it was read. Headers are short:
//! one thread reads them, and others read and test the pages, a batch each. In an object store each
//! read is a request: there a page is read with its header.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;
use std::sync::Arc;

use super::footer::Place;
use super::unchanged::Unchanged;
use super::window::Window;
use pagewarden_core::database::{Apart, PageFile, Step, StreamedPages};
use pagewarden_core::source::store::StoredFile;
use pagewarden_core::verdict::{ByteOffset, Unread};

/// Much against what it costs to hand a batch on. Small files of tests have several batches, too.
const BATCH_BYTES: u64 = if cfg!(test) { 512 } else { 2 << 20 };

/// What is said of bytes that were there when the file was opened.
pub const BECAME_SHORTER: &str = "the file became shorter while it was read";

/// One page that is to be read.
#[derive(Debug)]
pub struct Ahead {
    /// The file, as the report has it of this page.
    pub file: Arc<PageFile>,
    /// The page with its header.
    pub place: Place,
}

impl Ahead {
    /// Reads it; all of it, or why that could not be done.
    ///
    /// # Errors
    /// The stretch that was not read.
    pub fn read(self, window: &Window) -> Result<StreamedPages, Unread> {
        let Place { begin, bytes } = self.place;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let why = match window.read(begin, length) {
            Ok(read) if read.len() == length => {
                return Ok(StreamedPages::whole(self.file, ByteOffset(begin), read));
            }
            Ok(_) => BECAME_SHORTER.to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Unread::stretch(self.file.name.clone(), ByteOffset(begin), bytes, why))
    }
}

/// Pages that follow one another.
#[derive(Debug, Default)]
pub struct Batch {
    pages: VecDeque<Ahead>,
    bytes: u64,
}

impl Batch {
    /// One more.
    pub fn push(&mut self, page: Ahead) {
        self.bytes = self.bytes.saturating_add(page.place.bytes);
        self.pages.push_back(page);
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// It is time to hand it on.
    pub fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// The steps that read its pages and test them; the batch is empty then.
    pub fn take(&mut self, file: &StoredFile, unchanged: &Arc<Unchanged>) -> Apart {
        let Self { mut pages, .. } = std::mem::take(self);
        let name = pages.front().map(|page| page.file.name.clone()).unwrap_or_default();
        let (window, unchanged) = (Window::new(file.clone()), Arc::clone(unchanged));
        let mut is_over = false;
        Apart::new(std::iter::from_fn(move || match pages.pop_front() {
            Some(page) => Some(page.read(&window).map_or_else(Step::Unread, Step::Pages)),
            None if is_over => None,
            None => {
                is_over = true;
                unchanged.look(&name, window.file())
            }
        }))
    }
}
