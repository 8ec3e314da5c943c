//! A page of a column chunk: its header, and what is stored behind it.
//!
//! | in the header | tests |
//! |---|---|
//! | a CRC | every byte behind the header, as it is stored |
//! | no CRC | nothing for sure; but what is compressed must expand to the length in the header |
//!
//! Pages have lengths of their own: each is a run by itself, judged by a format of its own.

#![deny(clippy::arithmetic_side_effects)]

use crate::checksum::{flipped_bit, page_sum};
use pagewarden_core::page::{
    Fingerprint, Neighbours, PageFinding, PageFormat, PageRun, RunVerdict, Specimen,
};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing};

pub mod codec;

use codec::{Codec, Expanded, expanded, may_expand_to};

/// What is behind the header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Bytes that are stored as they are, then what expands to `length` bytes.
    Compressed {
        /// How it is compressed.
        codec: Codec,
        /// Levels at the front of a page of version 2, which are not compressed.
        bare_bytes: usize,
        /// What the rest expands to.
        length: usize,
    },
    /// It needs a key.
    Encrypted,
}

/// One page: all that must be known to judge it.
#[derive(Debug, Clone, Copy)]
pub struct ParquetPage {
    /// Bytes of its header.
    pub header_bytes: usize,
    /// Bytes behind it.
    pub stored_bytes: usize,
    /// The CRC in its header.
    pub sum: Option<u32>,
    /// What they are.
    pub content: Content,
    /// Expand it even if it has a CRC.
    pub expands_all: bool,
}

impl ParquetPage {
    fn judge_one(&self, number: PageNo, page: &[u8], verdict: &mut RunVerdict) {
        let stored = page.get(self.header_bytes..).unwrap_or_default();
        let Content::Compressed { codec, bare_bytes, length } = self.content else {
            return verdict.pass(Standing::Unverifiable, Protection::Checksum);
        };
        let failed = |kind| PageFinding::failed(number, Severity::Damage, kind);
        if let Some(sum) = self.sum {
            let computed = page_sum(stored);
            if computed != sum {
                let kind = if is_zero(stored) { Kind::Zeroed } else { Kind::Checksum };
                let finding = PageFinding {
                    stored: Some(format!("{sum:08x}")),
                    computed: Some(format!("{computed:08x}")),
                    ..failed(kind)
                };
                return verdict.fail(Protection::Checksum, finding);
            }
        }
        let protection = if self.sum.is_some() { Protection::Checksum } else { Protection::None };
        let compressed = stored.get(bare_bytes..).unwrap_or_default();
        let outcome = match self.sum {
            // Only what a look at it shows: the bytes are those that were written.
            Some(_) if !self.expands_all && may_expand_to(codec, compressed, length) => {
                Expanded::AsExpected
            }
            _ => expanded(codec, compressed, length),
        };
        match (outcome, self.sum) {
            (Expanded::AsExpected | Expanded::Unknown, Some(_)) => {
                verdict.pass(Standing::Ok, protection);
            }
            (Expanded::AsExpected, None) => verdict.pass(Standing::Unprotected, protection),
            (Expanded::Unknown, None) => verdict.pass(Standing::Unverifiable, protection),
            (Expanded::No(why), Some(_)) => {
                let detail = format!("its CRC fits, but {why}: its header may be damaged");
                verdict.fail(protection, failed(Kind::Structure).with_detail(detail));
            }
            (Expanded::No(why), None) => {
                let kind = if is_zero(stored) { Kind::Zeroed } else { Kind::Structure };
                let detail = format!("it has no CRC, and {why}");
                verdict.fail(protection, failed(kind).with_detail(detail));
            }
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0)
}

impl PageFormat for ParquetPage {
    /// Any length: of the page that it is for.
    fn page_size(&self) -> usize {
        self.header_bytes.saturating_add(self.stored_bytes).max(1)
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        for (page, index) in run.bytes.chunks_exact(self.page_size()).zip(0_u64..) {
            self.judge_one(run.first.plus(index), page, verdict);
        }
    }

    fn explain(&self, page: &[u8], finding: &mut PageFinding, _: &dyn Neighbours) {
        let (Kind::Checksum, Some(sum)) = (finding.kind, self.sum) else { return };
        let stored = page.get(self.header_bytes..).unwrap_or_default();
        if let Some((byte, bit)) = flipped_bit(stored, sum) {
            let place = self.header_bytes.saturating_add(byte);
            finding.kind = Kind::BitFlip;
            finding.detail =
                Some(format!("one flipped bit explains it: bit {bit} of byte {place}"));
        }
    }

    fn fingerprint(&self, page: &[u8]) -> Fingerprint {
        Fingerprint::of_bytes(0, page)
    }
}

const SPECIMEN_BYTES: usize = 4096;
/// The sum of any bytes with their own sum behind them, the lowest byte first.
const SUM_WITH_ITS_SUM: u32 = 0x2144_DF1C;

/// Pages for the conformance suite. The CRC is not in the page, so that the page is made to fit it.
pub fn specimens() -> Vec<Specimen> {
    let codec = Codec::Uncompressed;
    let content = Content::Compressed { codec, bare_bytes: 0, length: SPECIMEN_BYTES };
    let format = ParquetPage {
        header_bytes: 0,
        stored_bytes: SPECIMEN_BYTES,
        sum: Some(SUM_WITH_ITS_SUM),
        content,
        expands_all: false,
    };
    let mut good: Vec<u8> = (0..SPECIMEN_BYTES)
        .map(|at| u32::try_from(at).unwrap_or(0).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    stamp(&mut good);
    vec![Specimen {
        name: "parquet page",
        format: Box::new(format),
        page: PageNo(2),
        good,
        standing: Standing::Ok,
        stamp: Some(|page, _| stamp(page)),
        blind_bytes: Vec::new(),
        blind_bits: Vec::new(),
        zero: Standing::Damaged,
    }]
}

fn stamp(page: &mut [u8]) {
    if let Some((content, sum)) = page.split_last_chunk_mut() {
        *sum = page_sum(content).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(format: &ParquetPage, page: &[u8]) -> RunVerdict {
        let mut verdict = RunVerdict::default();
        format.judge(PageRun { first: PageNo(7), bytes: page }, &mut verdict);
        verdict
    }

    fn snappy(sum: bool) -> (ParquetPage, Vec<u8>) {
        let plain: Vec<u8> = (0..5000_u32).map(|at| (at / 9).to_le_bytes()[0]).collect();
        let stored = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
        let page = [b"header".to_vec(), stored.clone()].concat();
        let content =
            Content::Compressed { codec: Codec::Snappy, bare_bytes: 0, length: plain.len() };
        let format = ParquetPage {
            header_bytes: 6,
            stored_bytes: stored.len(),
            sum: sum.then(|| page_sum(&stored)),
            content,
            expands_all: false,
        };
        (format, page)
    }

    #[test]
    fn page_without_crc_is_unprotected_and_damage_if_it_does_not_expand() {
        let (format, mut page) = snappy(false);
        assert_eq!(judged(&format, &page).counts.unprotected, 1);
        page.truncate(format.page_size());
        page[6..].fill(0);
        let verdict = judged(&format, &page);
        assert_eq!((verdict.counts.total(), verdict.findings[0].kind), (0, Kind::Zeroed));
        assert_eq!(verdict.findings[0].page, PageNo(7));
    }

    #[test]
    fn header_that_promises_another_length_is_damage_although_the_crc_fits() {
        let (mut format, page) = snappy(true);
        assert_eq!(judged(&format, &page).counts.ok, 1);
        format.content = Content::Compressed { codec: Codec::Snappy, bare_bytes: 0, length: 5001 };
        assert_eq!(judged(&format, &page).findings[0].kind, Kind::Structure);
        format.content = Content::Encrypted;
        assert_eq!(judged(&format, &page).counts.unverifiable, 1);
    }
}
