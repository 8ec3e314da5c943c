//! The main file of a database: verifies what is read, stamps what is written. See
//! `docs/sqlite-vfs.md` for the rules and why they are so.

use std::ffi::c_int;
use std::num::NonZeroU32;

use pagewarden::crc::crc64 as crc;
use pagewarden::formats::sqlite::checksum as official;
use pagewarden::formats::sqlite::checksum::page_verify::{self, Fault, Marker, Mode, Room};
use pagewarden::formats::sqlite::page::header::{DatabaseHeader, HEADER_BYTES};
use pagewarden::formats::sqlite::page::lock_byte_page;
use pagewarden::verdict::PageNo;
use rusqlite::ffi;

use crate::first::{self, FirstPage};
use crate::free_pages;
use crate::parent::Parent;
use crate::wal::Wal;
use crate::{log, suspects};

/// The reserve of the official checksum VFS.
const RESERVE_OFFICIAL: u8 = 8;
/// What databases get that have no markers yet.
pub const ROOM: Room = Room::BalanceAndMarker;
/// The lowest number that the page with SQLite's lock byte has: with the largest pages.
const LOCK_PAGE_MIN: u32 = 16_385;
/// Pages that are asked what the file is, where page 1 does not say.
const PAGES_ASKED: u32 = 8;
/// Said where page 1 comes without the room that the pages of the file have.
pub const LESS_ROOM: &str =
    "a database with fewer reserved bytes cannot be copied over a protected one";

/// Said where the first page of a new database comes without room for a marker.
const NO_ROOM: &str = "a copy of a database without reserved bytes has no page verification";
const NO_ROOM_HINT: &str =
    "hint: copy it without vfs=pagewarden, then pagewarden protect --mode checksum";

/// What the pages of a file carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Nothing.
    Plain,
    /// The sums of the official checksum VFS.
    Official,
    /// Our markers.
    Marked {
        /// The number on all of them.
        database: NonZeroU32,
        /// The mode of pages to be written.
        setting: Mode,
        /// What is reserved on each page.
        room: Room,
    },
}

/// A checkpoint that is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// The pages of the log go into the main file.
    Sound,
    /// The log's own sum fails: nothing of it may reach the main file.
    Rotten,
}

/// The open main file of a database.
#[derive(Debug)]
pub struct Database {
    pub file: Parent,
    /// For messages.
    pub path: String,
    pub layout: Layout,
    pub page_size: usize,
    /// What was known of the file may be old, and nothing is read or written before it is known
    /// anew.
    is_unseen: bool,
    /// The mode that a database gets which has none yet.
    pub initial: Mode,
    /// It was opened by this VFS on purpose, and not because this is the default.
    pub is_chosen: bool,
    /// It was looked at whether room for markers must be asked for.
    is_reserve_asked: bool,
    /// Pages that fail are handed out all the same.
    pub ignores: bool,
    /// They are, without a word, while they are about to be stamped again.
    pub heals: bool,
    /// The level of SQLite's lock on the file.
    pub lock: c_int,
    /// The connection is in WAL mode.
    pub has_shm: bool,
    pub wal: Option<Wal>,
    pub checkpoint: Option<Checkpoint>,
    /// Page 1 as SQLite knows it.
    pub first: FirstPage,
    /// Page 1 in the log, which a checkpoint is bringing into the file, has the guard.
    pub checkpoint_guard: bool,
    /// The guard of the transaction that is under way, where it changes it.
    pub next_guard: Option<bool>,
    /// Random bits for a database number.
    seed: NonZeroU32,
    /// Where the file ends, while it is written.
    end: i64,
    /// Page 1 was written with another reserve than the file had.
    converts: bool,
    /// The layout as of the commit that is under way.
    next_layout: Option<Layout>,
    /// What was read from the rollback journal last.
    playback: Option<Playback>,
}

/// An image of a page that comes out of the rollback journal.
#[derive(Debug, Clone, Copy)]
struct Playback {
    number: u32,
    /// Its CRC, as SQLite was shown it.
    crc: u64,
    /// It is a page 1 with the guard.
    guard: bool,
}

/// A number that fits what SQLite takes.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn check(result: c_int) -> Result<(), c_int> {
    if result == ffi::SQLITE_OK { Ok(()) } else { Err(result) }
}

impl Database {
    pub fn new(file: Parent, path: String, initial: Mode, seed: NonZeroU32) -> Self {
        Self {
            file,
            path,
            layout: Layout::Plain,
            page_size: 0,
            is_unseen: false,
            initial,
            is_chosen: false,
            is_reserve_asked: false,
            ignores: false,
            heals: false,
            lock: ffi::SQLITE_LOCK_NONE,
            has_shm: false,
            wal: None,
            checkpoint: None,
            first: FirstPage::default(),
            checkpoint_guard: false,
            next_guard: None,
            seed,
            end: 0,
            converts: false,
            next_layout: None,
            playback: None,
        }
    }

    /// Reads page 1 from the file and takes from it what the file is.
    ///
    /// # Errors
    ///
    /// SQLite's code for what could not be read. What the file was taken for, it still is.
    pub fn look(&mut self) -> Result<(), c_int> {
        // As a rule it is as long as it was.
        if self.page_size != 0 {
            let mut page = vec![0; self.page_size];
            if self.read_all(&mut page, 0)? && self.see_first(&page)? {
                return Ok(());
            }
        }
        let mut head = [0; HEADER_BYTES];
        if !self.read_all(&mut head, 0)? {
            self.layout = Layout::Plain;
            return Ok(());
        }
        let Some(page_size) = DatabaseHeader::parse(&head).and_then(|header| header.page_size())
        else {
            return Ok(());
        };
        let mut page = vec![0; page_size];
        check(self.file.read_or_zero(&mut page, 0))?;
        self.see_first(&page)?;
        Ok(())
    }

    /// Fills `buffer` from the file; false if the file ends before that.
    fn read_all(&self, buffer: &mut [u8], offset: i64) -> Result<bool, c_int> {
        match self.file.read(buffer, offset) {
            ffi::SQLITE_OK => Ok(true),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(false),
            error => Err(error),
        }
    }

    /// Takes from page 1 what the file is. False if this is no page 1 of the length that it says.
    fn see_first(&mut self, page: &[u8]) -> Result<bool, c_int> {
        let Some(header) = DatabaseHeader::parse(page).filter(|header| header.has_magic) else {
            return Ok(false);
        };
        let Some(page_size) = header.page_size().filter(|size| *size == page.len()) else {
            return Ok(false);
        };
        self.page_size = page_size;
        let marked = |marker: Marker| Layout::Marked {
            database: marker.database,
            setting: marker.setting.unwrap_or(Mode::Checksum),
            room: marker.room,
        };
        let room = Room::of_bytes(header.reserved_bytes);
        self.layout = match (header.reserved_bytes, room) {
            (RESERVE_OFFICIAL, _) => Layout::Official,
            // Damaged or not: a marker says what the file is.
            (_, Some(room)) => match Marker::read(page).filter(|marker| marker.room == room) {
                Some(marker) => marked(marker),
                None => self.ask_other_pages(page, room)?,
            },
            _ => match Marker::read(page).filter(|marker| reserve_is_damaged(page, marker.room)) {
                Some(marker) => marked(marker),
                None => Layout::Plain,
            },
        };
        Ok(true)
    }

    /// Page 1 has room for a marker and none: damaged, or never protected.
    fn ask_other_pages(&self, first: &[u8], room: Room) -> Result<Layout, c_int> {
        if let Layout::Marked { .. } = self.layout {
            return Ok(self.layout);
        }
        let mut page = vec![0; first.len()];
        for number in 2..2_u32.saturating_add(PAGES_ASKED) {
            if !self.read_all(&mut page, self.offset(number))? {
                break;
            }
            let marker = page_verify::verify(&page, PageNo(number.into()));
            if let Some(Marker { database, .. }) = marker.filter(|marker| marker.room == room) {
                return Ok(Layout::Marked { database, setting: Mode::Checksum, room });
            }
        }
        Ok(Layout::Plain)
    }

    pub fn offset(&self, number: u32) -> i64 {
        i64::from(number).saturating_sub(1).saturating_mul(signed(self.page_size))
    }

    /// The number of the page that these bytes are; `None` if they are not one page.
    fn page_number(&self, bytes: usize, offset: i64) -> Option<u32> {
        // A page size is a power of two: no division for every page that is read.
        let page_bytes = signed(self.page_size);
        if bytes != self.page_size || offset & page_bytes.wrapping_sub(1) != 0 {
            return None;
        }
        let index = offset.checked_shr(self.page_size.trailing_zeros())?;
        u32::try_from(index).ok()?.checked_add(1)
    }

    pub fn is_lock_page(&self, number: u32) -> bool {
        number >= LOCK_PAGE_MIN && u64::from(number) == lock_byte_page(self.page_size)
    }

    pub fn passes(&self, page: &[u8], number: u32) -> bool {
        match self.layout {
            Layout::Plain => true,
            Layout::Official => official::stored_sum(page) == official::page_sum(page),
            Layout::Marked { database, .. } => page_verify::verify(page, PageNo(number.into()))
                .is_some_and(|marker| marker.database == database),
        }
    }

    pub fn read(&mut self, buffer: &mut [u8], offset: i64) -> c_int {
        if self.is_unseen
            && let Err(error) = self.see()
        {
            return error;
        }
        let result = self.file.read(buffer, offset);
        if result != ffi::SQLITE_OK {
            return result;
        }
        if let Err(error) = self.look_on_the_way(buffer, offset) {
            return error;
        }
        let result = match self.page_number(buffer.len(), offset) {
            Some(number) if !self.is_lock_page(number) && !self.passes(buffer, number) => {
                self.failed(buffer, number, offset)
            }
            _ => ffi::SQLITE_OK,
        };
        if offset == 0 && result == ffi::SQLITE_OK {
            self.first = FirstPage::show(buffer, self.has_markers()).unwrap_or(self.first);
        }
        result
    }

    fn has_markers(&self) -> bool {
        matches!(self.layout, Layout::Marked { .. })
    }

    /// What was read may say that the file is another than it was.
    fn look_on_the_way(&mut self, buffer: &[u8], offset: i64) -> Result<(), c_int> {
        if offset == 0 && self.lock < ffi::SQLITE_LOCK_RESERVED {
            if buffer.len() >= 512 {
                self.see_first(buffer)?;
            } else if buffer.len() >= HEADER_BYTES {
                self.look()?;
            }
        } else if self.layout == Layout::Plain && self.has_shm && offset != 0 {
            // Page 1 may lie in the WAL, so that SQLite does not read it here, and another process
            // may have begun to protect the file.
            self.look()?;
        }
        Ok(())
    }

    /// A page failed: reads it once more, then tells.
    #[cold]
    fn failed(&mut self, page: &mut [u8], number: u32, offset: i64) -> c_int {
        let result = self.file.read(page, offset);
        if result != ffi::SQLITE_OK {
            return result;
        }
        // Our own setting on page 1 may have been written at that moment.
        if self.heals || self.passes(page, number) || self.is_free_page(number) {
            return ffi::SQLITE_OK;
        }
        let (kind, words) = self.describe(page, number);
        suspects::note(&self.path, number.into(), kind, &words);
        let path = &self.path;
        if self.ignores {
            log(
                ffi::SQLITE_WARNING,
                &format!("page {number} of {path} is damaged, ignored: {words}"),
            );
            return ffi::SQLITE_OK;
        }
        log(ffi::SQLITE_IOERR_DATA, &format!("page {number} of {path} is damaged: {words}"));
        log(ffi::SQLITE_IOERR_DATA, suspects::REMEDY);
        ffi::SQLITE_IOERR_DATA
    }

    /// SQLite neither logs nor reads what is on a leaf of the freelist, and a crash may tear it. In
    /// WAL mode this is asked only for a page that no frame of the log has: what it was when the log
    /// began, and the main file says that, it still is.
    fn is_free_page(&self, number: u32) -> bool {
        self.lock < ffi::SQLITE_LOCK_RESERVED
            && free_pages::contain(self.page_size, number, |number, page| {
                self.file.read(page, self.offset(number)) == ffi::SQLITE_OK
                    && self.passes(page, number)
            })
    }

    fn describe(&self, page: &[u8], number: u32) -> (&'static str, String) {
        if self.layout == Layout::Official {
            let (stored, computed) = (official::stored_sum(page), official::page_sum(page));
            let words =
                format!("its sum is {}, its content's {}", stored.to_hex(), computed.to_hex());
            return ("checksum", words);
        }
        match page_verify::fault(page, PageNo(number.into())) {
            None => ("misplaced", "it belongs to another database".to_owned()),
            Some(Fault::Zeroed) => ("zeroed", "it is all zero".to_owned()),
            Some(Fault::Misplaced(own)) => ("misplaced", format!("it is page {own}")),
            Some(Fault::FlippedBit { byte, bit }) => {
                ("bit_flip", format!("bit {bit} of byte {byte} is flipped"))
            }
            Some(Fault::Torn { parts, part_bytes }) => {
                ("torn", format!("of other age are the {part_bytes} bytes from {parts:?}"))
            }
            Some(Fault::NoMarker) => ("checksum", "it has no marker".to_owned()),
            Some(Fault::Mismatch) => {
                let stored = page_verify::stored_digest(page);
                let words = format!(
                    "its digest {stored:016x} is not that of its content, or it was written \
                     without this VFS"
                );
                ("checksum", words)
            }
        }
    }

    pub fn stamp(&self, page: &mut [u8], number: u32, layout: Layout) {
        match layout {
            Layout::Plain => {}
            Layout::Official => official::stamp(page),
            Layout::Marked { database, setting, room } => {
                let setting_there = (number == 1).then_some(setting);
                let marker = Marker { mode: setting, setting: setting_there, database, room };
                if let Some(balance) = page_verify::balance_of(page, room) {
                    balance.fill(0);
                }
                page_verify::stamp(page, PageNo(number.into()), marker);
            }
        }
    }

    /// Writes, and stamps whole pages in `buffer` itself, so that SQLite's cache holds what the
    /// file holds, but for the guard.
    pub fn write(&mut self, buffer: &mut [u8], offset: i64) -> c_int {
        let result = self.write_stamped(buffer, offset);
        if offset == 0 {
            let first = FirstPage::show(buffer, self.has_markers());
            if result == ffi::SQLITE_OK && self.checkpoint.is_none() {
                self.first = first.unwrap_or(self.first);
            }
        }
        result
    }

    fn write_stamped(&mut self, buffer: &mut [u8], offset: i64) -> c_int {
        if self.checkpoint == Some(Checkpoint::Rotten) {
            return ffi::SQLITE_IOERR_DATA;
        }
        self.begin_without_lock();
        if let Err(error) = self.see() {
            return error;
        }
        let is_playback = match self.is_playback(buffer, offset) {
            Ok(is_playback) => is_playback,
            Err(error) => return error,
        };
        if offset == 0 && !is_playback {
            let result = self.write_first(buffer);
            if result != ffi::SQLITE_OK {
                return result;
            }
        }
        if self.layout != Layout::Plain && !is_playback {
            let Some(number) = self.page_number(buffer.len(), offset) else {
                // Parts of a page come only where the page size is changed.
                log(ffi::SQLITE_IOERR_WRITE, &format!("{}: a write that is no page", self.path));
                return ffi::SQLITE_IOERR_WRITE;
            };
            if !(number == 1 && self.converts) {
                if number == 1 && self.has_markers() && self.guard() {
                    first::set_guard(buffer);
                }
                if !self.has_marker_of_the_log(buffer, number) {
                    self.stamp(buffer, number, self.layout);
                }
            }
            let result = self.fill_holes(offset);
            if result != ffi::SQLITE_OK {
                return result;
            }
        }
        let result = self.file.write(buffer, offset);
        if result == ffi::SQLITE_OK {
            self.end = self.end.max(offset.saturating_add(signed(buffer.len())));
        }
        result
    }

    /// True for a page that a checkpoint brings and that passed by its marker when the checkpoint began: all
    /// that is left to do is done. Page 1 has the setting, which may be another now.
    fn has_marker_of_the_log(&mut self, page: &mut [u8], number: u32) -> bool {
        let Layout::Marked { database, setting, room } = self.layout else { return false };
        let given =
            self.wal.as_mut().filter(|_| self.checkpoint.is_some()).and_then(Wal::take_given);
        let marker = Marker { mode: setting, setting: None, database, room };
        if number == 1 || given != Some(number) || Marker::read(page) != Some(marker) {
            return false;
        }
        if let Some(balance) = page_verify::balance_of(page, room) {
            balance.fill(0);
        }
        true
    }

    /// Page 1 is about to be written: does it make another kind of file of this one?
    fn write_first(&mut self, page: &[u8]) -> c_int {
        let Some(header) = DatabaseHeader::parse(page).filter(|header| header.has_magic) else {
            return ffi::SQLITE_OK;
        };
        let reserve = match self.layout {
            Layout::Plain => 0,
            Layout::Official => RESERVE_OFFICIAL,
            Layout::Marked { room, .. } => room.bytes(),
        };
        let is_known = |bytes: &u8| *bytes == RESERVE_OFFICIAL || Room::of_bytes(*bytes).is_some();
        let wanted = Some(header.reserved_bytes).filter(is_known).unwrap_or(0);
        if wanted != 0 && header.page_size() != Some(page.len()) {
            let words = "the page size of a protected database is changed by VACUUM INTO only";
            log(ffi::SQLITE_IOERR_WRITE, &format!("{}: {words}", self.path));
            return ffi::SQLITE_IOERR_WRITE;
        }
        if wanted == 0 && self.is_new_and_unprotected() {
            log(ffi::SQLITE_IOERR_WRITE, &format!("{}: {NO_ROOM}", self.path));
            log(ffi::SQLITE_IOERR_WRITE, NO_ROOM_HINT);
            if self.is_chosen {
                return ffi::SQLITE_IOERR_WRITE;
            }
        }
        if self.checkpoint.is_some() {
            // Page 1 comes first, and all pages that must change with it are in the log.
            if wanted != reserve {
                self.page_size = page.len();
                self.layout = self.new_layout(wanted);
            }
        } else if wanted == reserve {
            self.converts = false;
        } else if wanted > reserve {
            self.converts = true;
            self.page_size = page.len();
        } else {
            log(ffi::SQLITE_IOERR_WRITE, &format!("{}: {LESS_ROOM}", self.path));
            return ffi::SQLITE_IOERR_WRITE;
        }
        ffi::SQLITE_OK
    }

    fn is_new_and_unprotected(&self) -> bool {
        self.layout == Layout::Plain && self.end == 0 && self.checkpoint.is_none()
    }

    fn new_layout(&self, reserve: u8) -> Layout {
        match Room::of_bytes(reserve) {
            Some(room) => Layout::Marked { database: self.seed, setting: self.initial, room },
            None if reserve == RESERVE_OFFICIAL => Layout::Official,
            None => Layout::Plain,
        }
    }

    /// Pages between the end of the file and `offset` become empty pages that pass.
    fn fill_holes(&mut self, offset: i64) -> c_int {
        let (Layout::Marked { .. }, true) = (self.layout, offset > self.end) else {
            return ffi::SQLITE_OK;
        };
        let mut page = vec![0; self.page_size];
        let first = self.end.checked_div(signed(self.page_size)).unwrap_or(0);
        let Ok(first) = u32::try_from(first.saturating_add(1)) else { return ffi::SQLITE_OK };
        for number in first..=u32::MAX {
            let at = self.offset(number);
            if at >= offset {
                break;
            }
            if self.is_lock_page(number) {
                continue;
            }
            page.fill(0);
            self.stamp(&mut page, number, self.layout);
            let result = self.file.write(&page, at);
            if result != ffi::SQLITE_OK {
                return result;
            }
        }
        self.end = offset;
        ffi::SQLITE_OK
    }

    pub fn truncate(&mut self, bytes: i64) -> c_int {
        self.begin_without_lock();
        if let Err(error) = self.see() {
            return error;
        }
        let result = self.fill_holes(bytes);
        if result != ffi::SQLITE_OK {
            return result;
        }
        let result = self.file.truncate(bytes);
        if result == ffi::SQLITE_OK {
            self.end = bytes;
        }
        result
    }

    /// The journal was read: an image of page `number`.
    pub fn see_playback(&mut self, number: u32, image: &mut [u8]) {
        let first = if number == 1 { FirstPage::show(image, false) } else { None };
        let guard = first.is_some_and(|first| first.guard);
        self.playback = Some(Playback { number, crc: crc(image), guard });
    }

    /// What comes from the journal is written as it stands: it was stamped when it went there, or
    /// is from a time when the file had no room for a marker.
    fn is_playback(&mut self, buffer: &mut [u8], offset: i64) -> Result<bool, c_int> {
        let Some(Playback { number, crc: image, guard }) = self.playback else {
            return Ok(false);
        };
        let at = i64::from(number).saturating_sub(1).saturating_mul(signed(buffer.len()));
        if at != offset || crc(buffer) != image {
            return Ok(false);
        }
        self.playback = None;
        if number == 1 {
            if guard {
                first::set_guard(buffer);
            }
            // The file is again what it was; under an exclusive lock no other call says so.
            self.converts = false;
            self.see_first(buffer)?;
        }
        Ok(true)
    }

    /// An image of page `number` is about to go into the rollback journal.
    ///
    /// # Errors
    ///
    /// SQLite's code where it cannot be known what the file is.
    pub fn stamp_image(&mut self, number: u32, image: &mut [u8]) -> Result<(), c_int> {
        self.see()?;
        if image.len() == self.page_size && number != 0 {
            if number == 1 && self.has_markers() && self.first.guard {
                first::set_guard(image);
            }
            self.stamp(image, number, self.layout);
        }
        Ok(())
    }

    /// True once, for a database that has no page yet.
    pub fn is_reserve_due(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reserve_asked, true) && self.file.size() == Ok(0)
    }

    pub fn locked(&mut self, level: c_int) {
        let was = self.lock;
        self.lock = level;
        if level >= ffi::SQLITE_LOCK_RESERVED && was < ffi::SQLITE_LOCK_RESERVED {
            self.begin();
        }
    }

    /// With `nolock=1` SQLite takes no lock before it writes, and gives none back: from here on it is
    /// as if it had the file to itself.
    fn begin_without_lock(&mut self) {
        if self.lock < ffi::SQLITE_LOCK_RESERVED && self.checkpoint.is_none() {
            self.locked(ffi::SQLITE_LOCK_EXCLUSIVE);
        }
    }

    /// Another connection may have written since: what is this file, and where does it end?
    fn begin(&mut self) {
        self.converts = false;
        self.next_layout = None;
        self.is_unseen = true;
    }

    /// Finds out what the file is, and where it ends, if that is not known. It waits for the first
    /// call that needs it, for that call can tell SQLite that it cannot be had.
    ///
    /// # Errors
    ///
    /// SQLite's code for what could not be read.
    pub fn see(&mut self) -> Result<(), c_int> {
        if self.is_unseen {
            self.look()?;
            self.end = self.file.size()?;
            self.is_unseen = false;
        }
        Ok(())
    }

    pub fn unlocking(&mut self, level: c_int) {
        if level < ffi::SQLITE_LOCK_RESERVED && (self.converts || self.next_layout.is_some()) {
            self.converts = false;
            self.next_layout = None;
            self.is_unseen = true;
        }
        self.lock = level;
    }

    /// All pages are written and the journal is still there. A transaction that made another kind
    /// of file of this one is stamped now, as a whole.
    pub fn before_sync(&mut self) -> c_int {
        if !self.converts || self.lock < ffi::SQLITE_LOCK_RESERVED {
            return ffi::SQLITE_OK;
        }
        match self.convert() {
            Ok(layout) => {
                self.converts = false;
                self.next_layout = Some(layout);
                ffi::SQLITE_OK
            }
            Err(error) => error,
        }
    }

    fn convert(&self) -> Result<Layout, c_int> {
        let mut page = vec![0; self.page_size];
        check(self.file.read_or_zero(&mut page, 0))?;
        let Some(header) = DatabaseHeader::parse(&page) else { return Err(ffi::SQLITE_IOERR_READ) };
        let layout = self.new_layout(header.reserved_bytes);
        // Page 1 last: before it is written, the file is not protected.
        for number in (1..=header.page_count_field).rev() {
            if self.is_lock_page(number) {
                continue;
            }
            check(self.file.read_or_zero(&mut page, self.offset(number)))?;
            self.stamp(&mut page, number, layout);
            check(self.file.write(&page, self.offset(number)))?;
        }
        Ok(layout)
    }

    /// The guard that a page 1 is written with.
    pub fn guard(&self) -> bool {
        match self.checkpoint {
            Some(_) => self.checkpoint_guard,
            None => self.next_guard.unwrap_or(self.first.guard),
        }
    }

    pub fn committed(&mut self) {
        if let Some(layout) = self.next_layout.take() {
            self.layout = layout;
        }
    }

    pub fn checkpoint_starts(&mut self) {
        self.begin();
        let is_seen = self.see().is_ok();
        let main = self.has_shm.then_some(self.file);
        let is_sound = is_seen
            && (self.layout == Layout::Plain
                || self.wal.as_mut().is_none_or(|wal| wal.is_sound(main)));
        if !is_sound {
            let words = if !is_seen {
                "page 1 cannot be read: nothing of the write-ahead log is written to the database"
            } else {
                "the write-ahead log is damaged: nothing of it is written to the database"
            };
            log(ffi::SQLITE_IOERR_DATA, &format!("{}: {words}", self.path));
        }
        self.checkpoint = Some(if is_sound { Checkpoint::Sound } else { Checkpoint::Rotten });
    }

    pub fn checkpoint_ends(&mut self) {
        self.checkpoint = None;
        if let Some(wal) = self.wal.as_mut() {
            wal.let_go();
        }
    }

    /// Writes the setting into page 1's marker. The caller has made sure that no other
    /// connection writes.
    pub fn write_setting(&mut self, setting: Mode) -> c_int {
        if let Err(error) = self.look() {
            return error;
        }
        let Layout::Marked { database, room, .. } = self.layout else { return ffi::SQLITE_ERROR };
        let mut page = vec![0; self.page_size];
        let result = self.file.read(&mut page, 0);
        if result != ffi::SQLITE_OK {
            return result;
        }
        let Some(marker) = page_verify::verify(&page, PageNo(1)) else {
            return ffi::SQLITE_IOERR_DATA;
        };
        let marker = Marker { setting: Some(setting), database, ..marker };
        page_verify::stamp(&mut page, PageNo(1), marker);
        let begin = self.page_size.saturating_sub(page_verify::MARKER_BYTES);
        let result = self.file.write(page.get(begin..).unwrap_or(&[]), signed(begin));
        if result == ffi::SQLITE_OK {
            self.layout = Layout::Marked { database, setting, room };
            return self.file.sync(ffi::SQLITE_SYNC_NORMAL);
        }
        result
    }
}

/// Page 1 passes once its reserve is ours: that one byte is damaged.
fn reserve_is_damaged(page: &[u8], room: Room) -> bool {
    let mut page = page.to_vec();
    if let Some(reserve) = page.get_mut(20) {
        *reserve = room.bytes();
    }
    page_verify::verify(&page, PageNo(1)).is_some()
}
