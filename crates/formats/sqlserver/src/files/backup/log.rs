//! The log in a backup: what makes the pages in it one database again, and all there is in a backup
//! of the log.
//!
//! Pages of a backup were copied one after the other while the database was in use. RESTORE rolls
//! them forward with the log that was written meanwhile, so that a backup without it is none. Its
//! blocks lie in MQTL as in the log file, one behind the other; the block before says in which part
//! of the log file they lay (`mtf::details`). The configuration at the set's end says which log must
//! be there: from the block of the first LSN up to the block of the last LSN, which itself is left
//! out. So it is in all 20 plain sets that were available, 2008 R2 to 2019. What cannot be followed
//! for another reason than damage is unread.

use std::collections::BTreeMap;

use crate::checksum::SECTOR_BYTES;
use crate::mtf::details::{LogRange, Lsn};
use crate::page::log::{BlockTest, FIRST_BLOCK, LogBlock, sectors_in};
use pagewarden_core::verdict::{Kind, Severity};

/// Faults of one set that are reported one by one.
const FAULTS_MAX: usize = 1000;

/// Blocks without a gap between them, of one virtual log file.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// One past their last sector.
    end: u32,
    /// The size of the block before them.
    previous_bytes: u16,
    /// The size of the last one.
    last_bytes: u16,
}

/// Something wrong with the log.
#[derive(Debug, Clone)]
pub(super) struct LogFault {
    /// Where in the file, or in the expanded stream.
    pub(super) offset: u64,
    /// In which of the families.
    pub(super) family: usize,
    /// What is known of the place: the LSN of a block.
    place: (u32, u32),
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// A block fails its test.
    Failed(BlockTest),
    /// This number of sectors hold no block where one must be.
    Gap { sectors: u32, is_zero: bool },
}

/// The log of one backup set, of all its families.
#[derive(Debug, Default)]
pub(super) struct SetLog {
    /// By virtual log file and first sector.
    spans: BTreeMap<(u32, u32), Span>,
    sound: u64,
    unsummed: u64,
    streams: u64,
    /// A sound block lay where another one was due: the log is laid out in a way that is not known.
    is_strange: bool,
    faults: Vec<LogFault>,
}

impl SetLog {
    /// Adds the log of a family.
    pub(super) fn append(&mut self, other: Self, family: usize) {
        for ((sequence, begin), span) in other.spans {
            self.add_span(sequence, begin, span);
        }
        self.sound = self.sound.saturating_add(other.sound);
        self.unsummed = self.unsummed.saturating_add(other.unsummed);
        self.streams = self.streams.saturating_add(other.streams);
        self.is_strange |= other.is_strange;
        let faults = other.faults.into_iter().map(|fault| LogFault { family, ..fault });
        self.faults.extend(faults);
    }

    fn add_span(&mut self, sequence: u32, begin: u32, span: Span) {
        let mut span = span;
        if let Some(next) = self.spans.remove(&(sequence, span.end)) {
            (span.end, span.last_bytes) = (next.end, next.last_bytes);
        }
        let before = self.spans.range_mut((sequence, 0)..(sequence, begin)).next_back();
        if let Some((_, before)) = before.filter(|(_, before)| before.end == begin) {
            (before.end, before.last_bytes) = (span.end, span.last_bytes);
            return;
        }
        self.spans.insert((sequence, begin), span);
    }

    fn add(&mut self, block: &LogBlock, test: BlockTest, offset: u64) {
        match test {
            BlockTest::Sound => self.sound = self.sound.saturating_add(1),
            BlockTest::NoSum => self.unsummed = self.unsummed.saturating_add(1),
            BlockTest::Torn(_) | BlockTest::Sum { .. } => {
                let place = (block.sequence, block.place);
                self.fault(LogFault { offset, family: 0, place, what: What::Failed(test) });
            }
        }
        let span = Span {
            end: block.end(),
            previous_bytes: block.previous_bytes,
            last_bytes: block.bytes,
        };
        self.add_span(block.sequence, block.place, span);
    }

    fn fault(&mut self, fault: LogFault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }

    /// Blocks that passed their test, and of these the ones without a sum.
    pub(super) fn blocks(&self) -> (u64, u64) {
        (self.sound.saturating_add(self.unsummed), self.unsummed)
    }

    /// True if there was nothing at all of it.
    pub(super) fn is_absent(&self) -> bool {
        self.streams == 0
    }

    /// How far the log goes that must be there; `None` for all of it.
    pub(super) fn ends_before(&self, first: Lsn, last: Lsn) -> Option<Lsn> {
        let (mut sequence, mut block) = (first.file, first.block);
        while (sequence, block) < (last.file, last.block) {
            let at = Lsn { file: sequence, block, slot: 1 };
            let span = self.spans.range((sequence, 0)..=(sequence, block)).next_back();
            let Some((_, span)) = span.filter(|(_, span)| span.end > block) else {
                return Some(at);
            };
            if sequence == last.file {
                let is_all = span.end >= last.block;
                return (!is_all).then_some(Lsn { block: span.end, ..at });
            }
            // Numbers may be left out. The next one follows if its first block says so.
            let following = (sequence.saturating_add(1), 0)..=(last.file, u32::MAX);
            let Some((next, begin)) = self.spans.range(following).next() else {
                let is_last = last.block <= FIRST_BLOCK;
                return (!is_last).then_some(Lsn { block: span.end, ..at });
            };
            if next.1 != FIRST_BLOCK || begin.previous_bytes != span.last_bytes {
                return Some(Lsn { block: span.end, ..at });
            }
            (sequence, block) = *next;
        }
        None
    }

    /// The faults in the order of the file, with what each of them proves.
    ///
    /// How the log of a striped backup is dealt out to its files was not seen: there, and where blocks
    /// do not lie as they do elsewhere, only a flipped bit is sure not to be of their making.
    pub(super) fn faults(
        &self,
        is_striped: bool,
    ) -> impl Iterator<Item = (&LogFault, Severity, Kind, String)> {
        // A log of which no block fits may be encrypted: such have not been seen.
        let is_known = self.sound.saturating_add(self.unsummed) > 0;
        let is_plain = !is_striped && !self.is_strange;
        let is_sure = move |fault: &&LogFault| {
            is_plain || matches!(fault.what, What::Failed(test) if test.is_one_bit())
        };
        self.faults.iter().filter(is_sure).filter_map(move |fault| {
            let (file, block) = fault.place;
            let place = format!("block {file}:{block} of the log");
            let proven = if is_known { Severity::Damage } else { Severity::Suspect };
            let (severity, kind, text) = match fault.what {
                What::Failed(BlockTest::Torn(sector)) => (
                    proven,
                    Kind::Torn,
                    format!("{place}: its sector {sector} is of another write"),
                ),
                What::Failed(test @ BlockTest::Sum { stored, computed }) => {
                    let severity = if test.is_one_bit() { Severity::Damage } else { proven };
                    let text =
                        format!("{place} says {stored:#010x} and sums up to {computed:#010x}");
                    (severity, Kind::Checksum, text)
                }
                What::Failed(_) => return None,
                What::Gap { sectors, is_zero: true } => {
                    let text = format!("{place} is missing: {sectors} sectors are all zero");
                    (Severity::Damage, Kind::Zeroed, text)
                }
                What::Gap { sectors, is_zero: false } => {
                    let text = format!("{place} is missing: {sectors} sectors hold something else");
                    (proven, Kind::Header, text)
                }
            };
            Some((fault, severity, kind, text))
        })
    }
}

/// Reads the log of one family.
#[derive(Debug, Default)]
pub(super) struct LogReader {
    /// Of the set so far.
    set: SetLog,
    /// Where the next block must lie, and how many bytes of log are still to come.
    range: Option<(u32, u32, u64)>,
    /// Nothing came of it yet.
    is_fresh: bool,
    /// Bytes that came and were not looked at, and where they begin.
    waiting: Vec<u8>,
    offset: u64,
    gap: Option<LogFault>,
}

impl LogReader {
    /// A block MSTL begins.
    pub(super) fn begin(&mut self, range: Option<LogRange>) {
        self.end();
        self.is_fresh = true;
        self.range = range.and_then(|range| {
            let bytes = range.end.checked_sub(range.begin)?;
            let sectors = range.begin.checked_sub(range.vlf_begin)?;
            let place = sectors_in(sectors);
            let is_possible = place >= FIRST_BLOCK
                && range.end <= range.vlf_begin.saturating_add(range.vlf_bytes)
                && sectors.is_multiple_of(SECTOR_BYTES as u64)
                && bytes.is_multiple_of(SECTOR_BYTES as u64);
            is_possible.then_some((range.sequence, place, bytes))
        });
    }

    /// A stream of log begins.
    pub(super) fn begin_stream(&mut self) {
        self.set.streams = self.set.streams.saturating_add(1);
    }

    /// A piece of it comes, which lies at `offset`.
    pub(super) fn take(&mut self, bytes: &[u8], offset: u64) {
        if std::mem::take(&mut self.is_fresh) {
            // A sound block knows best where it lay.
            let first = LogBlock::parse(bytes).filter(|first| {
                let place = self.range.map(|(sequence, place, _)| (sequence, place));
                let whole = bytes.get(..usize::from(first.bytes));
                place != Some((first.sequence, first.place))
                    && whole.is_some_and(|whole| first.test(whole).passes())
            });
            if let Some(first) = first {
                self.range = Some((first.sequence, first.place, u64::MAX));
            }
        }
        let Some((_, _, left)) = &mut self.range else { return };
        let is_bounded = *left != u64::MAX;
        let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
        if self.waiting.is_empty() {
            self.offset = offset;
        }
        self.waiting.extend_from_slice(bytes.get(..wanted).unwrap_or_default());
        if is_bounded {
            *left = left.saturating_sub(wanted as u64);
        }
        let is_last = *left == 0;
        self.look(is_last, is_bounded);
    }

    /// Some of the log is lost: what follows is passed.
    pub(super) fn lose(&mut self) {
        self.waiting.clear();
        self.range = Some((0, 0, 0));
    }

    /// No more of it comes.
    fn end(&mut self) {
        self.set.faults.extend(self.gap.take());
        self.waiting.clear();
        self.range = None;
    }

    /// The log of a set, which is over.
    pub(super) fn end_set(&mut self) -> SetLog {
        self.end();
        std::mem::take(&mut self.set)
    }

    /// Looks at all blocks that are whole.
    fn look(&mut self, is_last: bool, is_bounded: bool) {
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = waiting.as_slice();
        while let (Some((sequence, place, _)), false) = (&mut self.range, rest.is_empty()) {
            if rest.len() < SECTOR_BYTES {
                break;
            }
            let block = LogBlock::parse(rest)
                .filter(|block| (block.sequence, block.place) == (*sequence, *place));
            let mut passed = SECTOR_BYTES;
            if let Some(block) = block {
                let size = usize::from(block.bytes);
                let Some(bytes) = rest.get(..size) else {
                    if is_last {
                        // It would reach over the end.
                        extend_gap(&mut self.gap, rest, self.offset, (*sequence, *place));
                    }
                    break;
                };
                let test = block.test(bytes);
                let follows = rest.get(size..).unwrap_or_default();
                let fits = test.passes()
                    || follows.is_empty()
                    || LogBlock::parse(follows).is_some_and(|next| next.place == block.end());
                self.set.faults.extend(self.gap.take());
                if fits {
                    self.set.add(&block, test, self.offset);
                    passed = size;
                } else {
                    extend_gap(&mut self.gap, rest, self.offset, (*sequence, *place));
                }
            } else if is_bounded {
                self.set.is_strange |= LogBlock::parse(rest).is_some_and(|other| {
                    rest.get(..usize::from(other.bytes)).is_some_and(|all| other.test(all).passes())
                });
                extend_gap(&mut self.gap, rest, self.offset, (*sequence, *place));
            } else {
                // Filler.
                self.range = Some((0, 0, 0));
                return;
            }
            let sectors = sectors_in(passed as u64);
            *place = place.saturating_add(sectors);
            self.offset = self.offset.saturating_add(passed as u64);
            rest = rest.get(passed..).unwrap_or_default();
        }
        self.waiting = rest.to_vec();
    }
}

/// A sector in which no block begins.
fn extend_gap(gap: &mut Option<LogFault>, rest: &[u8], offset: u64, place: (u32, u32)) {
    let sector = rest.get(..SECTOR_BYTES).unwrap_or(rest);
    let zero = sector.iter().all(|byte| *byte == 0);
    let what = What::Gap { sectors: 0, is_zero: true };
    let fault = gap.get_or_insert(LogFault { offset, family: 0, place, what });
    if let What::Gap { sectors, is_zero } = &mut fault.what {
        *sectors = sectors.saturating_add(1);
        *is_zero &= zero;
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test's own numbers")]
mod tests {
    use super::*;

    const VLF_BYTES: u64 = 1 << 20;

    /// A block without a sum, with its length in sectors.
    fn block(sequence: u32, place: u32, sectors: u16, previous: u16) -> Vec<u8> {
        let size = sectors * 512;
        let mut bytes = vec![7; usize::from(size)];
        for sector in bytes.chunks_mut(512) {
            sector[0] = 0x40;
        }
        bytes[0] |= 0x10;
        bytes[usize::from(size) - 512] |= 0x08;
        bytes[4..6].copy_from_slice(&size.to_le_bytes());
        bytes[6..8].copy_from_slice(&size.to_le_bytes());
        bytes[10..12].copy_from_slice(&previous.to_le_bytes());
        bytes[12..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&place.to_le_bytes());
        bytes[24..28].fill(0);
        bytes
    }

    fn range(sequence: u32, place: u32, bytes: &[u8]) -> LogRange {
        let begin = VLF_BYTES + u64::from(place) * 512;
        let end = begin + bytes.len() as u64;
        LogRange { begin, end, sequence, vlf_begin: VLF_BYTES, vlf_bytes: VLF_BYTES }
    }

    fn lsn(file: u32, block: u32) -> Lsn {
        Lsn { file, block, slot: 1 }
    }

    /// Log of two virtual log files, the second begun, in pieces of this size.
    fn read(pieces: usize, change: impl Fn(&mut Vec<u8>)) -> SetLog {
        let mut first = block(5, 2000, 40, 512);
        first.extend(block(5, 2040, 8, 40 * 512));
        let mut second = block(7, 16, 1, 8 * 512);
        second.extend(block(7, 17, 3, 512));
        change(&mut first);
        let mut reader = LogReader::default();
        for (bytes, range) in [(&first, range(5, 2000, &first)), (&second, range(7, 16, &second))] {
            reader.begin(Some(range));
            reader.begin_stream();
            let filled: Vec<u8> = bytes.iter().copied().chain([9; 5000]).collect();
            let mut at = 0;
            for piece in filled.chunks(pieces) {
                reader.take(piece, at);
                at += piece.len() as u64;
            }
        }
        reader.end_set()
    }

    #[test]
    fn log_is_followed_over_virtual_log_files_whatever_pieces_it_comes_in() {
        for pieces in [512, 1000, 4096, 65_536] {
            let log = read(pieces, |_| ());
            assert_eq!((log.blocks(), log.faults(false).count()), ((4, 4), 0), "{pieces}");
            assert_eq!(log.ends_before(lsn(5, 2000), lsn(7, 20)), None, "{pieces}");
            assert_eq!(log.ends_before(lsn(5, 2040), lsn(7, 17)), None, "{pieces}");
            assert_eq!(log.ends_before(lsn(5, 2000), lsn(7, 21)), Some(lsn(7, 20)));
            assert_eq!(log.ends_before(lsn(5, 1999), lsn(7, 20)), Some(lsn(5, 1999)));
            assert_eq!(log.ends_before(lsn(4, 16), lsn(7, 20)), Some(lsn(4, 16)));
        }
    }

    #[test]
    fn zeroed_block_is_damage_and_log_in_an_unknown_order_is_only_not_followed() {
        let log = read(65_536, |first| first[40 * 512..].fill(0));
        let found: Vec<_> =
            log.faults(false).map(|(_, severity, kind, _)| (severity, kind)).collect();
        assert_eq!(found, [(Severity::Damage, Kind::Zeroed)]);
        assert_eq!(log.faults(true).count(), 0, "a stripe");
        assert_eq!(log.ends_before(lsn(5, 2000), lsn(7, 20)), Some(lsn(5, 2040)));
        let log = read(65_536, |first| {
            let other = block(5, 3000, 8, 512);
            first[40 * 512..].copy_from_slice(&other);
        });
        assert_eq!(log.faults(false).count(), 0);
        assert!(log.ends_before(lsn(5, 2000), lsn(7, 20)).is_some());
    }
}
