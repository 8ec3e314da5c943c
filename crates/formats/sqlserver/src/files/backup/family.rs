//! One file of a backup: a media family, plain or in the compressed container.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::PathBuf;

use crate::files::backup::log::{LogReader, SetLog};
use crate::files::backup::order::Order;
use crate::mssqlbak::{self, Container, Expanded};
use crate::mtf::details::{Configuration, Date, Details, Guid, Media};
use crate::mtf::{self, EXTENT_BYTES, Event, Extent, Walk};
use crate::stretch::{Sectors, Stretch, Stretches, Whole};
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, Severity, Unread};

/// Notes on one file; more of them say nothing new.
const NOTES_MAX: usize = 20;
/// Findings on the container and on headers of one file.
const FAULTS_MAX: usize = 10_000;

/// Where a family's bytes come from.
pub(super) enum Source {
    /// A file, whose bad sectors cost what lies in them.
    File(Sectors),
    /// What can be read only once.
    Stream(Whole<Box<dyn Read + Send>>),
}

impl Stretches for Source {
    fn next_stretch(&mut self, bytes: &mut [u8]) -> io::Result<Stretch> {
        match self {
            Self::File(file) => file.next_stretch(bytes),
            Self::Stream(stream) => stream.next_stretch(bytes),
        }
    }
}

/// What comes along in a family.
pub(super) enum Item {
    /// A backup set begins.
    Set(SetBegin),
    /// What is in the set; at its end it comes again.
    Configuration(Box<Configuration>),
    /// Data begins; the second time in a set some of it comes again.
    Data,
    /// A piece of data.
    Extent(Extent, Box<[u8; EXTENT_BYTES]>),
    /// The set ends, and this was its log.
    SetEnd(Box<SetLog>),
    /// To be reported to the caller.
    Say(Step),
}

/// What a backup set says of itself where it begins.
#[derive(Debug, Clone, Default)]
pub(super) struct SetBegin {
    /// It holds a part of the database's pages.
    pub(super) is_partial: bool,
    /// That part is what changed since a full backup.
    pub(super) is_differential: bool,
    /// What the backup set is called; empty for none.
    pub(super) name: String,
    /// When it began.
    pub(super) date: Option<Date>,
    /// Its own id.
    pub(super) id: Guid,
}

/// See the module.
pub(super) struct Family {
    /// What it is called in the report.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Which file of how many this is.
    pub(super) media: Option<Media>,
    pub(super) is_compressed: bool,
    /// Something of it is lost, and what was lost is not known exactly.
    pub(super) is_broken: bool,
    walk: Walk<Container<Source>>,
    buffer: Box<[u8; EXTENT_BYTES]>,
    ready: VecDeque<Item>,
    log: LogReader,
    order: Order,
    /// Something of the file came along.
    has_begun: bool,
    /// The attributes and the number of the last set that began.
    begun: Option<(u32, u16)>,
    is_in_set: bool,
    has_ended: bool,
    said_truncated: bool,
    notes: usize,
    faults: usize,
}

impl Family {
    /// Of a file that begins with these bytes, which come again with `source`.
    pub(super) fn new(name: String, path: PathBuf, begin: &[u8], source: Source) -> Self {
        let is_compressed = begin.starts_with(mssqlbak::MAGIC);
        let bytes = match is_compressed {
            true => Container::Compressed(Box::new(Expanded::new(source))),
            false => Container::Plain(source),
        };
        Self {
            name,
            path,
            media: None,
            is_compressed,
            is_broken: false,
            walk: Walk::new(bytes),
            buffer: Box::new([0; EXTENT_BYTES]),
            ready: VecDeque::new(),
            log: LogReader::default(),
            order: Order::new(!is_compressed),
            has_begun: false,
            begun: None,
            is_in_set: false,
            has_ended: false,
            said_truncated: false,
            notes: 0,
            faults: 0,
        }
    }

    /// What comes next; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.has_ended {
                return None;
            }
            let event = self.walk.next_event(&mut self.buffer);
            self.take_container_faults();
            self.take_bad_sectors();
            match event {
                Ok(Some(event)) => self.take(event),
                Ok(None) => {
                    self.has_ended = true;
                    self.end_set();
                }
                Err(error) => {
                    self.end_set();
                    self.has_ended = true;
                    self.is_broken = true;
                    let offset = self.walk.offset();
                    self.unread(offset, 0, error.to_string());
                }
            }
        }
    }

    /// Reads on until it is known which file of the backup this is.
    pub(super) fn find_media(&mut self) {
        const ITEMS_AHEAD: usize = 64;
        let mut ahead = VecDeque::new();
        while self.media.is_none() && ahead.len() < ITEMS_AHEAD {
            let Some(item) = self.next() else { break };
            let is_late = matches!(item, Item::Set(_) | Item::Extent(..));
            ahead.push_back(item);
            if is_late {
                break;
            }
        }
        ahead.append(&mut self.ready);
        self.ready = ahead;
    }

    fn take(&mut self, event: Event) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.say_lost_beginning(&event);
        }
        if let Event::Block(block) = &event
            && let Some(detail) = self.order.take(block)
        {
            let detail = format!(
                "{detail}: something was cut out of the backup before it, or put in, or changed \
                 places"
            );
            self.find(block.offset, Severity::Suspect, Kind::Misplaced, &detail);
        }
        match event {
            Event::Block(block) => match &block.kind.0 {
                b"SSET" => self.begin_set(block.details),
                b"MSDA" => self.ready.push_back(Item::Data),
                b"MSTL" => self.log.begin(match block.details {
                    Some(Details::Log(range)) => Some(range),
                    _ => None,
                }),
                b"ESET" => {
                    self.say_other_set(block.offset, block.details.as_ref());
                    self.end_set();
                }
                _ => {}
            },
            Event::Stream(stream) => {
                self.media = self.media.or(stream.media);
                if let Some(configuration) = stream.configuration {
                    self.ready.push_back(Item::Configuration(Box::new(configuration)));
                } else if stream.is_checksummed() {
                    let text = format!(
                        "stream {} at byte {} says that a checksum belongs to it, as of a backup \
                         WITH CHECKSUM: that sum was not tested",
                        stream.kind, stream.offset
                    );
                    self.note(text);
                }
                if stream.kind.0 == *b"MQTL" {
                    self.log.begin_stream();
                }
            }
            Event::Extent(extent) => {
                let bytes = std::mem::replace(&mut self.buffer, Box::new([0; EXTENT_BYTES]));
                self.ready.push_back(Item::Extent(extent, bytes));
            }
            Event::Log(piece) => match self.buffer.get(..piece.bytes) {
                Some(bytes) if piece.holes.is_empty() => self.log.take(bytes, piece.offset),
                _ => self.log.lose(),
            },
            Event::Fault(fault) => self.take_fault(fault),
        }
    }

    /// RESTORE reads the media header first, and nothing without it.
    fn say_lost_beginning(&mut self, event: &Event) {
        if let Event::Block(block) = event
            && block.kind.0 != *b"TAPE"
        {
            let detail = format!(
                "the file begins with a block {}, and not with the media header (TAPE): its \
                 beginning was cut off, and RESTORE cannot read the rest",
                block.kind
            );
            self.find(0, Severity::Damage, Kind::Header, &detail);
            self.order.lose_beginning();
        }
    }

    /// The blocks at the end of a set repeat its kind and its number: so they do in all 19 sets
    /// that were available, full, differential and of the log.
    fn say_other_set(&mut self, offset: u64, details: Option<&Details>) {
        let (Some(begun), Some(Details::SetEnd { attributes, number, .. })) = (self.begun, details)
        else {
            return;
        };
        if begun != (*attributes, *number) {
            let detail = format!(
                "this block ends backup set {number} with the attributes {attributes:#x}, and what \
                 began is set {} with {:#x}: one of the two was overwritten",
                begun.1, begun.0
            );
            self.find(offset, Severity::Suspect, Kind::Header, &detail);
        }
    }

    fn begin_set(&mut self, details: Option<Details>) {
        const FULL: u32 = 0x4;
        const DIFFERENTIAL: u32 = 0x8;
        self.end_set();
        self.is_in_set = true;
        self.begun = match &details {
            Some(Details::SetBegin { attributes, number, .. }) => Some((*attributes, *number)),
            _ => None,
        };
        let begin = match details {
            Some(Details::SetBegin { attributes, name, date, id, .. }) => SetBegin {
                is_partial: attributes & FULL == 0,
                is_differential: attributes & DIFFERENTIAL != 0,
                name,
                date,
                id,
            },
            _ => SetBegin::default(),
        };
        self.ready.push_back(Item::Set(begin));
    }

    fn end_set(&mut self) {
        if std::mem::take(&mut self.is_in_set) {
            self.ready.push_back(Item::SetEnd(Box::new(self.log.end_set())));
        }
    }

    fn take_fault(&mut self, fault: mtf::Fault) {
        use mtf::FaultKind as F;
        let offset = fault.offset;
        match fault.kind {
            F::BlockSum { stored, computed } => {
                let what = "the header of a descriptor block does not fit its sum";
                self.sums(offset, what, u32::from(stored), u32::from(computed), 4);
            }
            F::StreamSum { stored, computed } => {
                let what = "the header of a stream does not fit its sum";
                self.sums(offset, what, u32::from(stored), u32::from(computed), 4);
            }
            F::Unreadable => {
                self.is_broken = true;
                self.unread(offset, 0, fault.kind.to_string());
            }
            F::Layout => {
                self.find(offset, Severity::Damage, Kind::Header, "a block of impossible size");
            }
            F::UnknownBlock(kind) => {
                self.note(format!("block {kind} at byte {offset} is of a type that is not known"));
            }
            F::UnknownStream(kind) => {
                self.note(format!("stream {kind} at byte {offset} is of a type that is not known"));
            }
            F::Skipped(bytes) => {
                self.is_broken = true;
                self.unread(offset, bytes, "no header fits its sum here: passed".to_owned());
            }
            F::Encoded => {
                self.is_broken = true;
                self.unread(offset, 0, fault.kind.to_string());
            }
            F::Extents(bytes) => {
                let detail = format!("a data stream of {bytes} bytes, which are not whole extents");
                // Its header's sum fits: it may be of a form that is not known.
                self.find(offset, Severity::Suspect, Kind::Header, &detail);
            }
            F::Configuration => {
                let detail = fault.kind.to_string();
                self.find(offset, Severity::Suspect, Kind::Header, &detail);
            }
            F::Truncated | F::Unfinished => self.truncated(offset),
            F::Trailing(bytes) => self.note(format!(
                "{bytes} bytes behind the last backup set, from byte {offset} on, are no part of it"
            )),
        }
    }

    fn take_container_faults(&mut self) {
        use mssqlbak::FaultKind as F;
        let Some(expanded) = self.walk.source_mut().expanded() else { return };
        let faults: Vec<_> = expanded.take_faults().collect();
        for fault in faults {
            let offset = fault.file_offset;
            self.is_broken |= fault.lost_bytes > 0;
            match fault.kind {
                F::Versions(first, second) => self.note(format!(
                    "a container of versions {first} and {second}, which were not seen before"
                )),
                F::Sum { stored, computed } => {
                    let what = "a compressed chunk does not fit its sum";
                    self.sums(offset, what, stored, computed, 8);
                }
                // Whole by its sum: it may be of a form that is not known.
                F::Expand(_) => self.unread(offset, 0, fault.kind.to_string()),
                F::Header(byte) => {
                    let detail = format!(
                        "byte {byte} of a chunk's header is wrong; its sum and its size tell what \
                         it must be"
                    );
                    self.find(offset, Severity::Damage, Kind::Header, &detail);
                }
                F::Unknown { file_bytes, .. } => {
                    self.unread(offset, file_bytes, fault.kind.to_string());
                }
                F::Unreadable => self.unread(offset, 0, fault.kind.to_string()),
                F::Truncated => self.truncated(offset),
                F::IndexSum { stored, computed } => {
                    self.sums(offset, "an index does not fit its sum", stored, computed, 8);
                }
                F::IndexEnd => self.find(
                    offset,
                    Severity::Damage,
                    Kind::Header,
                    "the end of an index does not repeat its beginning",
                ),
                F::IndexEntries(_) => self.note(format!("{} at byte {offset}", fault.kind)),
            }
        }
    }

    fn take_bad_sectors(&mut self) {
        let Container::Plain(Source::File(file)) = self.walk.source_mut() else { return };
        let bad: Vec<_> = file.take_bad().collect();
        for bad in bad {
            self.is_broken = true;
            let length = bad.at.end.saturating_sub(bad.at.start);
            self.unread(bad.at.start, length, bad.error.to_string());
        }
    }

    fn truncated(&mut self, offset: u64) {
        self.is_broken = true;
        if !std::mem::replace(&mut self.said_truncated, true) {
            let detail = "the backup ends before its last set does: it was cut, or not finished";
            self.find(offset, Severity::Damage, Kind::Truncated, detail);
        }
    }

    fn sums(&mut self, offset: u64, detail: &str, stored: u32, computed: u32, digits: usize) {
        let hexadecimal = |sum: u32| Some(format!("{sum:0digits$x}"));
        let (stored, computed) = (hexadecimal(stored), hexadecimal(computed));
        let finding = self.finding(offset, Severity::Damage, Kind::Checksum, detail);
        self.say_finding(finding.with_sums(stored, computed));
    }

    fn find(&mut self, offset: u64, severity: Severity, kind: Kind, detail: &str) {
        let finding = self.finding(offset, severity, kind, detail);
        self.say_finding(finding);
    }

    fn finding(&self, offset: u64, severity: Severity, kind: Kind, detail: &str) -> Finding {
        let finding = Finding::of_file(&self.name, severity, kind, detail.to_owned());
        finding.at(None, Some(ByteOffset(offset))).with_hint(
            "make another backup while the database is there; pagewarden unpack saves what is \
             whole of this one",
        )
    }

    fn say_finding(&mut self, finding: Finding) {
        self.faults = self.faults.saturating_add(1);
        if self.faults <= FAULTS_MAX {
            self.ready.push_back(Item::Say(Step::Finding(finding)));
        }
    }

    fn note(&mut self, text: String) {
        self.notes = self.notes.saturating_add(1);
        if self.notes <= NOTES_MAX {
            self.ready.push_back(Item::Say(Step::Note(Note { file: self.name.clone(), text })));
        }
    }

    fn unread(&mut self, offset: u64, length: u64, error: String) {
        self.ready.push_back(Item::Say(Step::Unread(Unread::stretch(
            self.name.clone(),
            ByteOffset(offset),
            length,
            error,
        ))));
    }
}
