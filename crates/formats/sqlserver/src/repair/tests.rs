//! Real databases out of real backups: wounded by the hundred, repaired by backups and copies of every
//! history, and compared with what they were. Never may a page be called exact that is not.
//!
//! `PAGEWARDEN_SEEDS` says how many rounds a history, `PAGEWARDEN_SEED` which wounds.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::checksum::{PAGE_BYTES, Page, stamp_checksum};
use crate::files::backup::contents;
use crate::page::header::{Header, Lsn};
use crate::page::system::{BOOT_PAGE, BootPage, FileHeader};
use crate::repair::ENGINE;
use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::System;
use pagewarden_core::repair::{Outcome, Request};
use pagewarden_core::source::decode::decode;
use pagewarden_core::testing::fixtures;
use pagewarden_core::testing::interrupted_repair;

mod campaign;
mod crashes;
mod refusals;
mod rules;

const FULL: &str = "wild/oguzz_full_backup.bak.xz";
const DIFFERENTIAL: &str = "wild/oguzz_diff_backup.bak";
const LATER: &str = "wild/oguzz_full_backup_recoveryfull.bak.xz";
const LOG: &str = "wild/oguzz_transaction_log.trn";
const PUBS: &str = "pubs-full-2012.bak";
const TWO_FILES: &str = "test-2datafiles-2016.bak";
const COMPRESSED: &str = "library-compressed-2014.bak";
const TORN: &str = "wild/salihdemirog_Northwind.bak.xz";
const CLEAN: u32 = 0x4000_0000;

/// A file of the collection, unpacked; `None`, said aloud, where it is not here.
fn fixture(name: &str) -> Option<Vec<u8>> {
    let bytes = fixtures::bytes(name)?;
    if !name.ends_with(".xz") {
        return Some(bytes);
    }
    let mut unpacked = Vec::new();
    let mut decoded = decode(Box::new(std::io::Cursor::new(bytes))).unwrap();
    decoded.reader.read_to_end(&mut unpacked).unwrap();
    Some(unpacked)
}

/// A place for sources and databases, in memory.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, and says where it is.
    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The same of a fixture.
    fn put_fixture(&self, name: &str) -> Option<PathBuf> {
        let plain = Path::new(name.trim_end_matches(".xz")).file_name().unwrap();
        Some(self.put(plain.to_str().unwrap(), &fixture(name)?))
    }
}

/// The data files in a set of a backup, as RESTORE puts them, by their numbers.
fn data_files(backup: &Path, set: u32) -> BTreeMap<u16, Vec<u8>> {
    let mut files: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let sets = contents::read(&[backup.to_owned()], |backed_up| {
        if backed_up.set == set {
            let header = Header::parse(backed_up.page);
            put_page(files.entry(header.file).or_default(), header.page, backed_up.page);
        }
    });
    for file in &sets.unwrap()[set as usize - 1].configuration().files {
        if let Some(bytes) = files.get_mut(&u16::try_from(file.id).unwrap()) {
            bytes.resize(usize::try_from(file.bytes).unwrap(), 0);
        }
    }
    files
}

fn data_file(backup: &Path) -> Vec<u8> {
    data_files(backup, 1).remove(&1).unwrap()
}

fn put_page(file: &mut Vec<u8>, number: u32, page: &Page) {
    let at = number as usize * PAGE_BYTES;
    if file.len() < at + PAGE_BYTES {
        file.resize(at + PAGE_BYTES, 0);
    }
    file[at..at + PAGE_BYTES].copy_from_slice(page);
}

fn page(file: &[u8], number: u64) -> Page {
    *file[usize::try_from(number).unwrap() * PAGE_BYTES..].first_chunk().unwrap()
}

/// Changes a page, and makes its sum right.
fn change(file: &mut Vec<u8>, number: u64, how: impl FnOnce(&mut Page)) {
    let mut changed = page(file, number);
    how(&mut changed);
    stamp_checksum(&mut changed);
    put_page(file, u32::try_from(number).unwrap(), &changed);
}

/// As if a server had shut it down.
fn shut_down(file: &mut Vec<u8>) {
    change(file, BOOT_PAGE, |boot| {
        let at = usize::from(u16::from_le_bytes([boot[8190], boot[8191]])) + 36;
        let status = u32::from_le_bytes(*boot[at..].first_chunk().unwrap()) | CLEAN;
        boot[at..at + 4].copy_from_slice(&status.to_le_bytes());
    });
    assert!(BootPage::parse(&page(file, BOOT_PAGE)).unwrap().is_at_rest());
}

/// The database as it was when the differential backup ended, shut down cleanly: its file header names the
/// full backup, and its map what changed since. In truth it was restored from that backup before; here it was
/// not.
fn brought_on(full: &Path, differential: &Path) -> Vec<u8> {
    let mut file = restored_and_brought_on(full, differential);
    let restored_from = FileHeader::parse(&page(&file, 0)).unwrap().restored_from.unwrap();
    change(&mut file, 0, |header| {
        let record = usize::from(u16::from_le_bytes([header[8190], header[8191]]));
        let places = (record..PAGE_BYTES).filter(|at| header[*at..].starts_with(&restored_from));
        // The first is that of the differential base.
        for at in places.skip(1).collect::<Vec<_>>() {
            header[at..at + restored_from.len()].fill(0);
        }
    });
    let header = FileHeader::parse(&page(&file, 0)).unwrap();
    assert!(header.restored_from.is_none() && header.base.unwrap().set_id == restored_from);
    file
}

/// The same as it was in truth.
fn restored_and_brought_on(full: &Path, differential: &Path) -> Vec<u8> {
    let mut file = data_file(full);
    contents::read(&[differential.to_owned()], |backed_up| {
        put_page(&mut file, Header::parse(backed_up.page).page, backed_up.page);
    })
    .unwrap();
    shut_down(&mut file);
    file
}

/// Pages with the header of their place.
fn formatted(file: &[u8], number: u16) -> Vec<u64> {
    let pages = file.as_chunks::<PAGE_BYTES>().0.iter().zip(0_u64..);
    let is_of = |(page, at): &(&Page, u64)| Header::parse(page).is_of(number, *at);
    pages.filter(is_of).map(|(_, at)| at).collect()
}

fn run(request: &Request) -> Result<Outcome, Error> {
    interrupted_repair::run(ENGINE, &System, request)
}

fn request(path: &Path, sources: &[&Path]) -> Request {
    Request { sources: sources.iter().map(|path| (*path).into()).collect(), ..Request::new(path) }
}
