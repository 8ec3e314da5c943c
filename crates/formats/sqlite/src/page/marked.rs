//! Pages that carry the marker of our own VFS, see [`crate::checksum::page_verify`].
//!
//! | page | what it counts as |
//! |---|---|
//! | passes in the mode CHECKSUM or TORN | ok |
//! | passes in the mode NONE | unprotected |
//! | fails | damage, with the excuses of the module above |
//!
//! The VFS leaves no page unwritten, so that a page of zeroes is damage like any other.

#![deny(clippy::arithmetic_side_effects)]

use std::num::NonZeroU32;

use crate::checksum::page_verify::{
    Fault, Marker, Mode, Room, digest, fault, stamp, stored_digest, verify,
};
use crate::page::SqlitePages;
use pagewarden_core::page::{PageFinding, RunVerdict, Specimen};
use pagewarden_core::verdict::{Kind, PageNo, Protection, Severity, Standing};

/// What all markers of a database have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Markers {
    /// The number on all pages of the database.
    pub database: NonZeroU32,
    /// How pages are written now, where page 1 says so.
    pub setting: Option<Mode>,
    /// What is reserved for them on each page.
    pub room: Room,
}

/// The protection that a mode is.
#[must_use]
pub fn protection(mode: Mode) -> Protection {
    match mode {
        Mode::None => Protection::None,
        Mode::Torn => Protection::Torn,
        Mode::Checksum => Protection::Checksum,
    }
}

impl Markers {
    /// True if `page` is sound and of this database.
    #[must_use]
    pub fn pass(&self, page: &[u8], number: PageNo) -> bool {
        self.verified(page, number).is_some()
    }

    fn verified(&self, page: &[u8], number: PageNo) -> Option<Marker> {
        verify(page, number).filter(|marker| marker.database == self.database)
    }

    /// What the page counts as by its own mode, if it passes.
    pub(super) fn judge(
        &self,
        format: &SqlitePages,
        number: PageNo,
        page: &[u8],
        verdict: &mut RunVerdict,
    ) {
        if let Some(marker) = self.verified(page, number) {
            let standing = match marker.mode {
                Mode::None => Standing::Unprotected,
                Mode::Torn | Mode::Checksum => Standing::Ok,
            };
            return verdict.pass(standing, protection(marker.mode));
        }
        verdict.fail(self.protection_of(page), self.weighed(format, number, page));
    }

    /// The protection of a page that fails, by its own word.
    pub(super) fn protection_of(&self, page: &[u8]) -> Protection {
        let mode = Marker::read(page).map(|marker| marker.mode).or(self.setting);
        protection(mode.unwrap_or(Mode::Checksum))
    }

    /// Why `page` fails, and whether that is damage.
    pub(super) fn weighed(&self, format: &SqlitePages, number: PageNo, page: &[u8]) -> PageFinding {
        let finding = self.finding(page, number);
        // A writer without the VFS leaves old markers and pages that were never written. It also moves
        // pages with their markers, but not from one database into another.
        let may_be_foreign = match finding.kind {
            Kind::Checksum | Kind::Zeroed => true,
            Kind::Misplaced if self.is_ours(page) => true,
            _ => number == PageNo(1),
        };
        format.weighed(finding, may_be_foreign, false)
    }

    fn is_ours(&self, page: &[u8]) -> bool {
        Marker::read(page).is_some_and(|marker| marker.database == self.database)
    }

    /// The page that `page` was written as, where it passes as another one of this database.
    #[must_use]
    pub fn moved_from(&self, page: &[u8], number: PageNo) -> Option<PageNo> {
        match fault(page, number)? {
            Fault::Misplaced(own) if self.is_ours(page) => Some(own),
            _ => None,
        }
    }

    /// Why `page` fails, as damage.
    pub(super) fn finding(&self, page: &[u8], number: PageNo) -> PageFinding {
        let mut finding = PageFinding::failed(number, Severity::Damage, Kind::Checksum);
        if let Some(marker) = Marker::read(page) {
            finding.stored = Some(format!("{:016x}", stored_digest(page)));
            finding.computed = Some(format!("{:016x}", digest(page, marker, number)));
        }
        let (kind, detail) = match fault(page, number) {
            None => (Kind::Misplaced, "a sound page, but of another database".to_owned()),
            Some(Fault::Zeroed) => {
                (Kind::Zeroed, "the VFS writes a marker on every page, empty ones too".to_owned())
            }
            Some(Fault::Misplaced(own)) if !self.is_ours(page) => {
                (Kind::Misplaced, format!("its marker is that of page {own} of another database"))
            }
            Some(Fault::Misplaced(own)) => {
                (Kind::Misplaced, format!("its marker is that of page {own}"))
            }
            Some(Fault::FlippedBit { byte, bit }) => {
                (Kind::BitFlip, format!("one flipped bit explains it: bit {bit} of byte {byte}"))
            }
            Some(Fault::Torn { parts, part_bytes }) => {
                let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
                let parts = parts.join(", ");
                let detail =
                    format!("of another age than the marker: {part_bytes} bytes each from {parts}");
                (Kind::Torn, detail)
            }
            Some(Fault::NoMarker) => (Kind::Checksum, "it has no marker".to_owned()),
            Some(Fault::Mismatch) => return finding,
        };
        finding.kind = kind;
        finding.with_detail(detail)
    }
}

const SPECIMEN_DATABASE: NonZeroU32 = NonZeroU32::MIN;

fn stamp_as(page: &mut [u8], number: PageNo, mode: Mode, room: Room) {
    let setting = (number == PageNo(1)).then_some(Mode::Checksum);
    stamp(page, number, Marker { mode, setting, database: SPECIMEN_DATABASE, room });
}

/// A leaf in each mode, and page 1; `first` and `leaf` are made for a number of reserved bytes.
pub(super) fn specimens(first: fn(u8) -> Vec<u8>, leaf: fn(u8) -> Vec<u8>) -> Vec<Specimen> {
    let new = |name, number, mode, room: Room, stamp: fn(&mut [u8], PageNo)| {
        let mut page = if number == PageNo(1) { first(room.bytes()) } else { leaf(room.bytes()) };
        stamp(&mut page, number);
        let markers = Markers { database: SPECIMEN_DATABASE, setting: Some(Mode::Checksum), room };
        let is_blind = mode == Mode::None;
        // The marker is covered in every mode.
        let content = page.len().saturating_sub(Room::Marker.bytes().into());
        let used = page.len().saturating_sub(room.bytes().into());
        let blind = if is_blind { 0..content } else { used..content };
        let format = SqlitePages {
            page_size: page.len(),
            reserved_bytes: room.bytes(),
            markers: Some(markers),
            ..SqlitePages::default()
        };
        Specimen {
            name,
            format: Box::new(format),
            page: number,
            good: page,
            standing: if is_blind { Standing::Unprotected } else { Standing::Ok },
            stamp: (!is_blind).then_some(stamp),
            blind_bytes: std::iter::once(blind).filter(|bytes| !bytes.is_empty()).collect(),
            blind_bits: Vec::new(),
            zero: Standing::Damaged,
        }
    };
    let (one, two) = (PageNo(1), PageNo(2));
    let (marker, both) = (Room::Marker, Room::BalanceAndMarker);
    vec![
        new("sqlite page in mode CHECKSUM", two, Mode::Checksum, marker, |page, number| {
            stamp_as(page, number, Mode::Checksum, Room::Marker);
        }),
        new("sqlite page in mode TORN", two, Mode::Torn, marker, |page, number| {
            stamp_as(page, number, Mode::Torn, Room::Marker);
        }),
        new("sqlite page in mode NONE", two, Mode::None, marker, |page, number| {
            stamp_as(page, number, Mode::None, Room::Marker);
        }),
        new("sqlite page 1 in mode CHECKSUM", one, Mode::Checksum, marker, |page, number| {
            stamp_as(page, number, Mode::Checksum, Room::Marker);
        }),
        new("sqlite page with a balance", two, Mode::Checksum, both, |page, number| {
            stamp_as(page, number, Mode::Checksum, Room::BalanceAndMarker);
        }),
        new("sqlite page with a balance in mode TORN", two, Mode::Torn, both, |page, number| {
            stamp_as(page, number, Mode::Torn, Room::BalanceAndMarker);
        }),
    ]
}
