//! A second look at a page that failed: which one flipped bit explains it, whether it is torn,
//! whether it is a page at all.
//!
//! A candidate for a flipped bit comes from the linearity of the sums, and counts only if the
//! page with that bit flipped back passes every test: number, space id and LSNs decide between
//! the twins that sums of several runs have.

use super::fields::{
    CHECKSUM, ENCRYPTED_SUM, KEY_VERSION, KEY_VERSION_FULL_CRC32, LSN, LSN_LOW, PAGE_NUMBER,
    PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED_MARK, read_u16, read_u32, read_u64, trailer_first,
    trailer_second,
};
use super::layout::Form;
use super::{InnodbPages, Look, compressed_bytes, is_stored_otherwise, is_zero};
use crate::checksum::flip::{FlippedBit, flipped_bits, flipped_field_bit};
use crate::checksum::fold::{new_fold, old_fold};
use crate::checksum::{
    HEADER_RUN, SUM_BYTES, TRAILER_BYTES, ZIP_BODY_BEGIN, ZIP_RUNS, body_run, crc32, full_crc32,
    zip_crc32,
};
use pagewarden_core::page::{Neighbours, PageFinding};
use pagewarden_core::verdict::{Kind, PageNo, joined};

/// What devices write in one piece.
const SECTOR_BYTES: usize = 512;

impl InnodbPages {
    pub(super) fn refine(
        &self,
        page: &[u8],
        finding: &mut PageFinding,
        neighbours: &dyn Neighbours,
    ) {
        if finding.kind == Kind::Misplaced {
            return self.find_home(page, finding, neighbours);
        }
        if !matches!(finding.kind, Kind::Checksum | Kind::Torn) || self.is_copy(finding.page.0) {
            return;
        }
        let flips = self.flips(finding.page.0, page);
        if let Some(words) = in_words(&flips) {
            finding.kind = Kind::BitFlip;
            finding.detail = Some(words);
        } else if finding.kind == Kind::Checksum {
            self.tell_torn_from_foreign(page, finding);
        }
    }

    /// Whether the page whose number it carries is the same.
    fn find_home(&self, page: &[u8], finding: &mut PageFinding, neighbours: &dyn Neighbours) {
        let own = u64::from(read_u32(page, PAGE_NUMBER));
        if own == finding.page.0 {
            return;
        }
        if neighbours.page(PageNo(own)).is_some_and(|home| home == page) {
            let words = "that page holds the same bytes";
            finding.detail = Some(joined(finding.detail.take(), words));
        }
    }

    fn tell_torn_from_foreign(&self, page: &[u8], finding: &mut PageFinding) {
        let number_fits = u64::from(read_u32(page, PAGE_NUMBER)) == finding.page.0;
        let space = read_u32(page, SPACE_ID);
        let space_fits = self.space_id.is_none_or(|expected| expected == space);
        if !number_fits && !space_fits && self.has_clear_space_id(page) {
            finding.kind = Kind::Header;
            let words = format!(
                "neither number ({}) nor space id ({space}) are those of this place",
                read_u32(page, PAGE_NUMBER)
            );
            finding.detail = Some(joined(finding.detail.take(), &words));
            return;
        }
        if !number_fits || !space_fits || !self.has_clear_trailer(page) {
            return;
        }
        let Some(words) = self.torn_detail(page) else { return };
        finding.kind = Kind::Torn;
        finding.detail = Some(joined(finding.detail.take(), &words));
        if let Some(begin) = zero_sectors_from(page) {
            let words = format!("all from byte {begin} on is zero");
            finding.detail = Some(joined(finding.detail.take(), &words));
        }
    }

    fn has_clear_space_id(&self, page: &[u8]) -> bool {
        self.layout.form != Form::FullCrc32 || self.is_in_the_clear(page)
    }

    fn has_clear_trailer(&self, page: &[u8]) -> bool {
        self.layout.form != Form::Zip && self.is_in_the_clear(page)
    }

    /// The page is neither encrypted nor compressed, as far as its header can be believed.
    pub(crate) fn is_in_the_clear(&self, page: &[u8]) -> bool {
        let page_type = read_u16(page, PAGE_TYPE);
        match self.layout.form {
            Form::Old | Form::Zip => !is_stored_otherwise(page_type),
            Form::FullCrc32 => {
                page_type & TYPE_COMPRESSED_MARK == 0 && read_u32(page, KEY_VERSION_FULL_CRC32) == 0
            }
        }
    }

    /// The bits each of which alone explains what is wrong.
    fn flips(&self, number: u64, page: &[u8]) -> Vec<FlippedBit> {
        let mut candidates = match self.layout.form {
            Form::Old => old_candidates(page),
            Form::Zip => zip_candidates(page),
            Form::FullCrc32 => self.full_crc32_candidates(page),
        };
        let end = self.trailer_lsn(page);
        let lsn_field = page.len().saturating_sub(match self.layout.form {
            Form::FullCrc32 => TRAILER_BYTES,
            Form::Old | Form::Zip => TRAILER_BYTES / 2,
        });
        candidates.extend(
            end.and_then(|end| flipped_field_bit(end ^ read_u32(page, LSN_LOW), lsn_field)),
        );
        candidates.sort_unstable_by_key(|flip| (flip.byte, flip.bit));
        candidates.dedup();
        let mut mended = page.to_vec();
        candidates.retain(|flip| {
            flip.flip(&mut mended);
            let passes = matches!(self.look(number, &mended, None), Look::Sound(..));
            flip.flip(&mut mended);
            passes
        });
        candidates
    }

    fn full_crc32_candidates(&self, page: &[u8]) -> Vec<FlippedBit> {
        let of_size = |size: usize| {
            let part = page.get(..size).unwrap_or(page);
            let difference = trailer_second(part) ^ full_crc32(part);
            let end = part.len().saturating_sub(SUM_BYTES);
            let run = 0..end;
            let mut found = flipped_bits(difference, std::slice::from_ref(&run));
            found.extend(flipped_field_bit(difference, end));
            found
        };
        let mut candidates = of_size(page.len());
        if let Some(size) = compressed_bytes(&self.layout, page) {
            candidates.extend(of_size(size));
        }
        if self.layout.may_be_page_compressed {
            // The type says how much the sum covers, and may itself be what is wrong.
            let of_type = [PAGE_TYPE, PAGE_TYPE.saturating_add(1)];
            candidates.extend(
                of_type
                    .into_iter()
                    .flat_map(|byte| (0..8).map(move |bit| FlippedBit { byte, bit })),
            );
        }
        candidates
    }
}

fn old_candidates(page: &[u8]) -> Vec<FlippedBit> {
    let (first, second) = (read_u32(page, CHECKSUM), trailer_first(page));
    let second_field = page.len().saturating_sub(TRAILER_BYTES);
    let runs = [HEADER_RUN, body_run(page.len())];
    let crc = crc32(page);
    let mut candidates = Vec::new();
    if first == second {
        candidates.extend(flipped_bits(first ^ crc, &runs));
    }
    candidates.extend(flipped_field_bit(first ^ crc, CHECKSUM));
    candidates.extend(flipped_field_bit(second ^ crc, second_field));
    if read_u32(page, KEY_VERSION) != 0 {
        let difference = read_u32(page, ENCRYPTED_SUM) ^ crc;
        candidates.extend(flipped_bits(difference, &runs));
        candidates.extend(flipped_field_bit(difference, ENCRYPTED_SUM));
    }
    candidates.extend(flipped_field_bit(first ^ new_fold(page), CHECKSUM));
    candidates.extend(flipped_field_bit(second ^ old_fold(page), second_field));
    candidates
}

fn zip_candidates(page: &[u8]) -> Vec<FlippedBit> {
    let [first, second] = ZIP_RUNS;
    let runs = [first, second, ZIP_BODY_BEGIN..page.len().max(ZIP_BODY_BEGIN)];
    let crc = zip_crc32(page);
    let difference = read_u32(page, CHECKSUM) ^ crc;
    let mut candidates = flipped_bits(difference, &runs);
    candidates.extend(flipped_field_bit(difference, CHECKSUM));
    if read_u32(page, KEY_VERSION) != 0 {
        let difference = read_u32(page, ENCRYPTED_SUM) ^ crc;
        candidates.extend(flipped_bits(difference, &runs));
        candidates.extend(flipped_field_bit(difference, ENCRYPTED_SUM));
    }
    candidates
}

fn in_words(flips: &[FlippedBit]) -> Option<String> {
    let place = |flip: &FlippedBit| format!("bit {} of byte {}", flip.bit, flip.byte);
    let places: Vec<_> = flips.iter().map(place).collect();
    if places.is_empty() {
        return None;
    }
    Some(format!("one flipped bit explains it: {}", places.join(", or ")))
}

/// Where the zero sectors at the end of a page begin, if it ends with some and was written.
fn zero_sectors_from(page: &[u8]) -> Option<usize> {
    if read_u64(page, LSN) == 0 {
        return None;
    }
    let zero = page.chunks_exact(SECTOR_BYTES).rev().take_while(|sector| is_zero(sector)).count();
    let bytes = zero.checked_mul(SECTOR_BYTES).filter(|bytes| *bytes > 0)?;
    page.len().checked_sub(bytes)
}
