//! Markers in frames of the write-ahead log.
//!
//! A frame's page is stamped as it goes into the log. So a plain SQLite that brings the log into the
//! main file, or a tool that ships logs, brings a page that passes. SQLite has put a sum of the
//! page into the frame's header before, and every later sum goes on from it. So the eight bytes in
//! front of the marker, the balance, are set such that the sum comes out as it stands there. That is
//! always possible: a step of that sum takes eight bytes and can lead from any state to any other. And
//! since a step can be taken back, the sum in front of the last bytes is had from the one in the header.
//!
//! | the frame's header | what is done |
//! |---|---|
//! | came just before the page | marker, and the balance for its sum |
//! | has no sum yet, or the page is written once more in its place | marker; SQLite sums it anew, from what is in the log |
//!
//! Pages are stamped only where the page 1 that SQLite knows has room for it. A transaction in which
//! pages get another room, as a copy over the database by the backup API, is refused when its page 1
//! comes, which is before it is committed. Where writes to the log may be split at sectors, nothing of
//! this is done.

use std::ffi::c_int;

use pagewarden::formats::sqlite::checksum::page_verify::{self, Marker, Mode, Room};
use pagewarden::verdict::PageNo;
use rusqlite::ffi;

use crate::database::{Database, LESS_ROOM, Layout};
use crate::first::{self, FirstPage};
use crate::log;
use crate::wal::{self, Sum, TAIL_BYTES, number_of};

const MARKER_BYTES: usize = page_verify::MARKER_BYTES;

impl Database {
    /// A page was read from the log.
    pub fn frame_read(&mut self, page: &mut [u8], offset: i64) {
        if !first::is_first(page) || self.frame_number(page.len(), offset) != Some(1) {
            return;
        }
        let Some(first) = FirstPage::show(page, false) else { return };
        if self.checkpoint.is_some() {
            self.checkpoint_guard = first.guard;
        } else {
            self.first = first;
        }
    }

    /// The number of the page that these bytes of the log are.
    fn frame_number(&mut self, bytes: usize, offset: i64) -> Option<u32> {
        let wal = self.wal.as_mut()?;
        let frame = wal.frame_of_page(bytes, offset)?;
        wal.header_of(frame).map(|(header, _)| number_of(&header))
    }

    /// A page is about to be written to the log: stamps it. True if it has the digest of all its content
    /// now.
    ///
    /// # Errors
    ///
    /// SQLite's code for a transaction that must not be committed.
    pub fn frame_comes(&mut self, page: &mut [u8], offset: i64) -> Result<bool, c_int> {
        let Layout::Marked { database, setting, room } = self.layout else { return Ok(false) };
        if room != Room::BalanceAndMarker || self.first.reserved != room.bytes() {
            return Ok(false);
        }
        // Of the main file SQLite asks whether it splits what it writes to the log.
        if self.file.device_characteristics() & ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE == 0 {
            return self.split_frame_comes().map(|()| false);
        }
        let guard = self.guard();
        let Some(wal) = self.wal.as_mut() else { return Ok(false) };
        let Some(frame) = wal.frame_of_page(page.len(), offset) else { return Ok(false) };
        let Some((header, is_new)) = wal.header_of(frame) else { return Ok(false) };
        let number = number_of(&header);
        if number == 1 && page.get(20) != Some(&room.bytes()) {
            log(ffi::SQLITE_IOERR_WRITE, &format!("{}: {LESS_ROOM}", self.path));
            return Err(ffi::SQLITE_IOERR_WRITE);
        }
        let setting_there = (number == 1).then_some(setting);
        let marker = Marker { mode: setting, setting: setting_there, database, room };
        let stamp = Stamp { number, marker, guard: number == 1 && guard };
        let target = wal::stored_sum(&header);
        if !is_new || target == wal::GAP {
            stamp.put(page);
        } else {
            stamp.put_balanced(page, target, wal.reads_big_endian(&header));
        }
        Ok(setting == Mode::Checksum)
    }

    /// Pieces of frames have no markers, and a page 1 that comes so would be without the guard.
    fn split_frame_comes(&self) -> Result<(), c_int> {
        if !self.guard() {
            return Ok(());
        }
        let words = "the guard does not hold in a write-ahead log that is written in pieces: leave out psow=0";
        log(ffi::SQLITE_IOERR_WRITE, &format!("{}: {words}", self.path));
        Err(ffi::SQLITE_IOERR_WRITE)
    }

    /// It was written: SQLite's own buffer is as SQLite knows the page.
    pub fn frame_written(&mut self, page: &mut [u8], offset: i64) {
        if first::is_first(page) && self.frame_number(page.len(), offset) == Some(1) {
            let first = FirstPage::show(page, false);
            self.first = first.unwrap_or(self.first);
        }
    }
}

/// What is put on a page.
struct Stamp {
    number: u32,
    marker: Marker,
    guard: bool,
}

impl Stamp {
    fn put(&self, page: &mut [u8]) {
        if self.guard {
            first::set_guard(page);
        }
        if let Some(balance) = page_verify::balance_of(page, self.marker.room) {
            balance.fill(0);
        }
        page_verify::stamp(page, PageNo(self.number.into()), self.marker);
    }

    /// `target` is the sum behind the page as it comes, and stays the one behind it as it goes: what
    /// lies in front of changed bytes is what taking them off leaves.
    fn put_balanced(&self, page: &mut [u8], target: Sum, is_big_endian: bool) {
        let Some((content, tail)) = page.split_last_chunk::<TAIL_BYTES>() else { return };
        let mut from = wal::take_off(target, tail, is_big_endian);
        let before = self.guard.then(|| wal::take_off(from, content, is_big_endian));
        self.put(page);
        let Some((content, tail)) = page.split_last_chunk::<TAIL_BYTES>() else { return };
        if let Some(before) = before {
            from = wal::add(before, content, is_big_endian);
        }
        let marker = tail.last_chunk::<MARKER_BYTES>().map_or(&[][..], |marker| marker);
        let to = wal::take_off(target, marker, is_big_endian);
        if let Some(balance) = page_verify::balance_of(page, self.marker.room) {
            *balance = wal::between(from, to, is_big_endian);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    /// Whatever the page and the sums are.
    #[test]
    fn stamped_page_leads_to_the_sum_that_stands_in_its_frame() {
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        };
        for size in [512, 4096, 65_536] {
            for is_big_endian in [false, true] {
                for mode in [Mode::None, Mode::Torn, Mode::Checksum] {
                    let mut page: Vec<u8> = (0..size).map(|_| random().to_be_bytes()[0]).collect();
                    page[18] = 1;
                    let before = (random(), random());
                    let target = wal::add(before, &page, is_big_endian);
                    assert_eq!(wal::take_off(target, &page, is_big_endian), before);
                    let (database, room) = (NonZeroU32::MIN, Room::BalanceAndMarker);
                    let marker = Marker { mode, setting: Some(mode), database, room };
                    for guard in [false, true] {
                        let stamp = Stamp { number: 1, marker, guard };
                        stamp.put_balanced(&mut page, target, is_big_endian);
                        assert_eq!(wal::add(before, &page, is_big_endian), target);
                        assert_eq!(page_verify::verify(&page, PageNo(1)), Some(marker));
                        assert_eq!(page[18] == 3, guard);
                    }
                }
            }
        }
    }
}
