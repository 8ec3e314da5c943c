//! Stretches of relations' files as they come from an archive: cut at their last whole page, and sampled,
//! for where no control file says whether pages carry sums.

use std::sync::Arc;

use crate::checksum::{checksum, hash_pages};
use crate::page::Header;
use pagewarden_core::database::{PageFile, StreamedPages};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Severity};

/// Sums of pages that were sampled.
#[derive(Debug, Default)]
pub(super) struct Sample {
    tested: u64,
    fit: u64,
}

/// A stretch of a relation's file, cut at its last whole page.
pub(super) struct Cut {
    pub(super) pages: StreamedPages,
    /// Bytes behind it.
    pub(super) rest: u64,
    /// What is wrong with these.
    pub(super) partial: Option<Finding>,
}

impl Cut {
    /// The stretch at `offset` of a file of `file_bytes`.
    pub(super) fn of(
        file: &Arc<PageFile>,
        file_bytes: u64,
        offset: u64,
        mut bytes: Vec<u8>,
    ) -> Self {
        let page_size = file.format.page_size();
        // What lies behind the last block that a header names is no page.
        let end = file.end(file_bytes).0.saturating_sub(offset);
        let whole = bytes.len() - bytes.len() % page_size;
        let whole = whole.min(usize::try_from(end).unwrap_or(usize::MAX));
        let rest = (bytes.len() - whole) as u64;
        bytes.truncate(whole);
        let partial = (rest > 0 && file.selection.is_none()).then(|| {
            let begin = ByteOffset(offset.saturating_add(whole as u64));
            let detail = format!("the file ends after {rest} of {page_size} bytes of this page");
            let mut finding =
                Finding::of_file(&file.name, Severity::Suspect, Kind::Truncated, detail)
                    .at(Some(file.page_at(begin)), Some(begin));
            finding.hint = file.hint.as_deref().map(str::to_owned);
            finding
        });
        let pages = StreamedPages::whole(Arc::clone(file), ByteOffset(offset), bytes);
        Self { pages, rest, partial }
    }
}

impl Sample {
    /// Takes the votes of another.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.tested = self.tested.saturating_add(other.tested);
        self.fit = self.fit.saturating_add(other.fit);
    }

    /// Takes the first page of a stretch into the vote.
    pub(super) fn add(&mut self, file: &PageFile, offset: ByteOffset, bytes: &[u8]) {
        let page_size = file.format.page_size();
        let Some(page) = bytes.get(..page_size) else { return };
        let Some(header) = Header::read(page).filter(|header| header.upper > 0) else { return };
        let Ok(block) = u32::try_from(file.page_at(offset).0) else { return };
        let mut hash = [0_u32];
        hash_pages(page, page_size, &mut hash);
        let [hash] = hash;
        self.tested = self.tested.saturating_add(1);
        if checksum(hash, block) == header.checksum {
            self.fit = self.fit.saturating_add(1);
        }
    }

    /// A quarter is far beyond chance, and still reached where most is damaged.
    pub(super) fn most_fit(&self) -> bool {
        self.fit > 0 && self.fit.saturating_mul(4) >= self.tested
    }
}
