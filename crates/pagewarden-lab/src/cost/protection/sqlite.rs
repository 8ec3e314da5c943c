//! SQLite's official checksum VFS: 64 bits at the end of the page, no page
//! number, and an all-zero page fits. And the marker of our own VFS in its three
//! modes: 16 bytes there, with the page's number and the database's. The
//! library's own functions compute both.

use std::num::NonZeroU32;

use pagewarden::formats::sqlite::checksum::page_verify::{self, Marker, Mode, Room};
use pagewarden::formats::sqlite::checksum::{page_sum, stamp, stored_sum};
use pagewarden::verdict::PageNo;

use super::{Protection, Write};

pub(super) const CKSUMVFS: Protection = Protection {
    name: "cksumvfs",
    page_bytes: 4096,
    write: |page, _, _| stamp(page),
    sum_fits: |page, _| page_sum(page) == stored_sum(page),
    is_taken: |page, _| page_sum(page) == stored_sum(page),
};

pub(super) const MARKER_NONE: Protection =
    marked("marker-none", |page, number, _| mark(page, number, Mode::None));
pub(super) const MARKER_TORN: Protection =
    marked("marker-torn", |page, number, _| mark(page, number, Mode::Torn));
pub(super) const MARKER_CHECKSUM: Protection =
    marked("marker-checksum", |page, number, _| mark(page, number, Mode::Checksum));

/// Pages with our marker, which are verified by the mode that they say.
const fn marked(name: &'static str, write: Write) -> Protection {
    Protection { name, page_bytes: 4096, write, sum_fits, is_taken }
}

/// Any number but 0, the same on all pages of a database.
const DATABASE: NonZeroU32 = NonZeroU32::MIN;

fn mark(page: &mut [u8], number: u32, mode: Mode) {
    let marker = Marker { mode, setting: None, database: DATABASE, room: Room::Marker };
    page_verify::stamp(page, PageNo(number.into()), marker);
}

/// By the page's own mode, whatever the database's setting is.
fn sum_fits(page: &[u8], number: u32) -> bool {
    page_verify::verify(page, PageNo(number.into())).is_some()
}

fn is_taken(page: &[u8], number: u32) -> bool {
    let marker = page_verify::verify(page, PageNo(number.into()));
    marker.is_some_and(|marker| marker.database == DATABASE)
}
