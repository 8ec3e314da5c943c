//! The redo log: which changes recovery has yet to make, and where the log ends.
//!
//! | written by | files | how |
//! | --- | --- | --- |
//! | MySQL 8.0.30 and later | `#innodb_redo/#ib_redoN` | blocks, a row of files |
//! | older MySQL, MariaDB up to 10.4 | `ib_logfile0`, `ib_logfile1` ... | blocks, a ring over all files |
//! | MariaDB 10.5 to 10.7 | `ib_logfile0` | blocks, a ring |
//! | MariaDB 10.8 and later | `ib_logfile0` | a ring of mini-transactions |
//!
//! The first block of each file, 512 bytes, all integers big-endian:
//!
//! ```text
//! offset  size  field
//!      0     4  format: 0 before MySQL 5.7.9; 1 to 6 MySQL; 1, 103, 104 MariaDB;
//!               "PHYS" MariaDB 10.5; "Phys" MariaDB 10.8. Where MariaDB encrypts
//!               its log the high bit is set, or from 10.8 on it is F0 9F 97 9D
//!      8     8  the LSN at the beginning of the file
//!     16    32  who wrote it, as text
//!     48     4  MySQL 8: flags, 1 and 2 where redo logging is off or was at a crash
//!    508     4  CRC-32C of the 508 bytes before
//! ```
//!
//! Checkpoints of the block formats are the blocks at 512 and 1536:
//!
//! ```text
//!      0     8  number (not in MySQL 8)
//!      8     8  LSN
//!     16     8  where that LSN is, from the beginning of the ring (not in MySQL 8;
//!               before 5.7 only its low 4 bytes, the high ones at 300)
//!    508     4  CRC-32C of the 508 bytes before (from 5.7)
//! ```
//!
//! Those of "Phys" are at 4096 and 8192:
//!
//! ```text
//!      0     8  LSN
//!      8     8  the LSN of the record that confirms it
//!     60     4  CRC-32C of the 60 bytes before
//! ```
//!
//! Sources: `storage/innobase/include/log0log.h` and `log0recv.cc` of MariaDB
//! 10.11, `log0constants.h` of MySQL 8; the files of MariaDB 10.11 and MySQL 9.7
//! were read with this.
//!
//! What lies before the checkpoint was needed once and is not any more; what lies
//! behind the end is older, or blank. Neither is looked at.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pagewarden_core::crc::crc32c;

use crate::files::fields::{u32_at, u64_at};
use crate::files::places::Places;
use crate::page::encryption::Keyring;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::Kind;

mod blocks;
pub(super) mod gaps;
mod keys;
mod records;

/// The first block of a file.
pub(crate) const HEADER_BYTES: usize = 512;
const FORMAT: usize = 0;
const START_LSN: usize = 8;
const CREATOR: Range<usize> = 16..48;
const FLAGS: usize = 48;
const HEADER_SUM: usize = 508;

const FORMAT_BEFORE_57: u32 = 0;
/// MySQL 8.0.1; MySQL 5.7.9 has 1, and so has MariaDB 10.2.
const FORMAT_MYSQL_80: u32 = 2;
const FORMAT_MYSQL_8030: u32 = 6;
/// From here on MariaDB's, later ones of MySQL being far away.
const FORMATS_OF_MARIADB: u32 = 100;
const FORMAT_MARIADB_105: u32 = 0x5048_5953;
const FORMAT_MARIADB_108: u32 = 0x5068_7973;
const FORMAT_MARIADB_108_ENCRYPTED: u32 = 0xF09F_979D;
const FORMAT_IS_ENCRYPTED: u32 = 1 << 31;
/// MySQL: changes are not logged, or were not when the server crashed.
const FLAGS_WITHOUT_LOG: u32 = 1 << 1 | 1 << 2;

/// MySQL's folder for the log.
pub const MYSQL_FOLDER: &str = "#innodb_redo";
const FIRST_OLD_FILE: &str = "ib_logfile0";
/// What Percona's program copies of the log.
const BACKUP_FILE: &str = "xtrabackup_logfile";
/// The largest number of files that any server allows.
const OLD_FILES_MAX: usize = 100;
/// MySQL 8 keeps 32 and seldom a few more.
const MYSQL_FILES_MAX: usize = 4096;
/// More log than this is not read to find its end: a minute of a disk's time.
const READ_BYTES_MAX: u64 = 4 << 30;
/// More pages than this are not remembered one by one.
const PAGES_MAX: usize = 1 << 20;

/// A page by the number of its tablespace and its own.
pub type PageId = (u32, u32);

/// How a log is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Blocks of 512 bytes, each with its number and sum.
    Blocks,
    /// One ring of mini-transactions, each with a sum of its own.
    MiniTransactions,
}

/// A redo log as far as it was read.
#[derive(Debug)]
pub struct RedoLog {
    /// How it is laid out.
    pub layout: Layout,
    /// Who wrote it: `MariaDB 10.11.19`.
    pub creator: String,
    /// Where recovery begins.
    pub checkpoint: u64,
    /// Where the log ends, if that is certain.
    pub end: Option<u64>,
    /// What recovery has yet to do, as far as it is known.
    pub pending: Pending,
    /// What is wrong with it.
    pub faults: Vec<LogFault>,
    /// Blocks whose sums could not be tested.
    pub untested: Option<UntestedBlocks>,
}

/// Blocks that MySQL encrypted, and of which no key is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntestedBlocks {
    /// The file of the first.
    pub file: String,
    /// How many.
    pub blocks: u64,
    /// Why.
    pub reason: String,
}

impl UntestedBlocks {
    /// For people, with what helps.
    #[must_use]
    pub fn in_words(&self) -> String {
        let blocks = if self.blocks == 1 { "block is" } else { "blocks are" };
        format!(
            "{} encrypted {blocks} not tested of the log that a server reads when it starts: {} (name \
             the file with the keys with --keyring; --accept-unverifiable accepts them)",
            self.blocks, self.reason
        )
    }
}

/// What the log holds behind its checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub enum Pending {
    /// Nothing: all pages are as they must be.
    Nothing,
    /// Changes to pages of which these are known. A page may be in neither.
    Pages(PageChanges),
    /// Changes, to pages that are not known.
    Unknown,
}

/// Pages whose old content recovery does not need.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PageChanges {
    /// Pages that recovery makes anew, whatever they hold now.
    pub rebuilt: HashSet<PageId>,
    /// Pages that were given back and are free.
    pub freed: HashSet<PageId>,
}

impl PageChanges {
    fn free(&mut self, page: PageId) {
        self.rebuilt.remove(&page);
        self.freed.insert(page);
    }

    fn rebuild(&mut self, page: PageId) {
        self.freed.remove(&page);
        self.rebuilt.insert(page);
    }

    fn is_too_large(&self) -> bool {
        self.rebuilt.len().saturating_add(self.freed.len()) > PAGES_MAX
    }
}

/// Something wrong with a file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFault {
    /// The file, relative to the data directory.
    pub file: String,
    /// Where.
    pub offset: u64,
    /// What is wrong.
    pub kind: Kind,
    /// True if a crash can leave it like this.
    pub may_be_healthy: bool,
    /// The stored and the computed sum, where there are such.
    pub sums: Option<(u32, u32)>,
    /// The evidence in words.
    pub detail: String,
}

/// One file of the log.
#[derive(Debug)]
struct LogFile {
    name: String,
    file: File,
    bytes: u64,
    header: Header,
}

/// What the first block says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Header {
    format: u32,
    is_encrypted: bool,
    start_lsn: u64,
    creator: String,
    flags: u32,
}

impl Header {
    /// `Err` with the stored and the computed sum.
    fn parse(block: &[u8; HEADER_BYTES]) -> Result<Self, (u32, u32)> {
        let format = u32_at(block, FORMAT).unwrap_or(0);
        // The oldest logs have no sum, and a number of a group in this place.
        if format != FORMAT_BEFORE_57 {
            let sums = sums_of(block, HEADER_SUM);
            if sums.0 != sums.1 {
                return Err(sums);
            }
        }
        let creator = block.get(CREATOR).unwrap_or_default();
        let creator = creator.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_encrypted = format & FORMAT_IS_ENCRYPTED != 0;
        let format = match format {
            FORMAT_MARIADB_108_ENCRYPTED => FORMAT_MARIADB_108,
            other => other & !FORMAT_IS_ENCRYPTED,
        };
        let is_mariadb_new = format >= FORMATS_OF_MARIADB;
        Ok(Self {
            format,
            is_encrypted,
            start_lsn: u64_at(block, START_LSN).unwrap_or(0),
            creator: String::from_utf8_lossy(creator).trim().to_owned(),
            flags: u32_at(block, FLAGS).filter(|_| !is_mariadb_new).unwrap_or(0),
        })
    }
}

/// The stored and the computed CRC-32C of what stands before `sum`.
fn sums_of(bytes: &[u8], sum: usize) -> (u32, u32) {
    let stored = u32_at(bytes, sum).unwrap_or(0);
    (stored, crc32c(bytes.get(..sum).unwrap_or_default()))
}

/// A log that can be said nothing about, or why.
#[derive(Debug)]
pub enum NoLog {
    /// There is none.
    Missing,
    /// It is there and cannot be believed.
    Faulty(Vec<LogFault>),
    /// It is there and not to be read.
    Unreadable(String, std::io::Error),
}

impl RedoLog {
    /// Reads the log of a data directory from its last checkpoint to its end; what is encrypted, with
    /// the keys that are given.
    ///
    /// # Errors
    /// There is none, or none that can be believed.
    pub fn read(root: &Path, keyring: Option<&Keyring>) -> Result<Self, NoLog> {
        let mut faults = Vec::new();
        let files = open_files(root, &mut faults)?;
        let Some(first) = files.first() else {
            return Err(if faults.is_empty() { NoLog::Missing } else { NoLog::Faulty(faults) });
        };
        if first.header.format == FORMAT_MARIADB_108 {
            return records::read(first, faults);
        }
        blocks::read(&files, faults, gaps::largest_spare(root), keyring)
    }
}

/// Who wrote the log of a data directory, without reading more than its header.
#[must_use]
pub fn creator(root: &Path) -> Option<String> {
    let files = open_files(root, &mut Vec::new()).ok()?;
    files.into_iter().map(|file| file.header.creator).find(|creator| !creator.is_empty())
}

/// Where recovery would begin now, without reading the log behind it.
#[must_use]
pub fn newest_checkpoint(root: &Path) -> Option<u64> {
    let files = open_files(root, &mut Vec::new()).ok()?;
    match files.first()?.header.format {
        FORMAT_MARIADB_108 => records::newest_checkpoint(files.first()?),
        _ => blocks::newest_checkpoint(&files),
    }
}

/// The checkpoint of MySQL 8.0 and later: what was changed before it is on disk. `None` for other servers, and
/// where changes are not logged.
pub(super) fn written_before(root: &Path) -> Option<u64> {
    let files = open_files(root, &mut Vec::new()).ok()?;
    let is_mysql = |file: &LogFile| {
        (FORMAT_MYSQL_80..FORMATS_OF_MARIADB).contains(&file.header.format)
            && file.header.flags & FLAGS_WITHOUT_LOG == 0
    };
    let is_asked = !files.is_empty() && files.iter().all(is_mysql);
    is_asked.then(|| blocks::newest_checkpoint(&files))?.filter(|lsn| *lsn > 0)
}

/// The log's files in their order, those with headers that can be believed.
fn open_files(root: &Path, faults: &mut Vec<LogFault>) -> Result<Vec<LogFile>, NoLog> {
    let mut files = Vec::new();
    for (name, path) in names_of_files(root) {
        let failed = |error| NoLog::Unreadable(name.clone(), error);
        let file = match open_regular(&path) {
            // Removed meanwhile, by a server that runs.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        let bytes = file.metadata().map_err(failed)?.len();
        // A prepared backup may have an empty one: the server makes it anew.
        if bytes == 0 {
            continue;
        }
        let mut block = [0_u8; HEADER_BYTES];
        let count = read_fully(&file, &mut block, 0).map_err(failed)?;
        let fault = |kind, detail: String| LogFault {
            file: name.clone(),
            offset: 0,
            kind,
            may_be_healthy: false,
            sums: None,
            detail,
        };
        if count < HEADER_BYTES {
            let detail = format!("a log file of {count} bytes: its header has {HEADER_BYTES}");
            faults.push(fault(Kind::Truncated, detail));
            continue;
        }
        match Header::parse(&block) {
            Ok(header) => files.push(LogFile { name, file, bytes, header }),
            Err(sums) => {
                let detail = "the sum of the log file's header does not fit".to_owned();
                faults.push(LogFault { sums: Some(sums), ..fault(Kind::Checksum, detail) });
            }
        }
    }
    let mysql = FORMAT_MYSQL_8030..FORMATS_OF_MARIADB;
    if files.first().is_some_and(|first| mysql.contains(&first.header.format)) {
        files.sort_by_key(|file| file.header.start_lsn);
    }
    Ok(files)
}

/// True if a data directory has files of a log, sound or not.
pub(super) fn is_here(root: &Path) -> bool {
    !names_of_files(root).is_empty()
}

/// What the logs of two directories that were shut down say of their histories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Histories {
    /// The logs are the same over these positions, up to the end of the shorter one. There are enough
    /// of them that two histories with the same positions would differ.
    Shared(Range<u64>),
    /// The same positions of the same log hold other changes.
    Apart,
    /// They have no positions in common, or it is not known where a position lies.
    Unknown,
}

/// Compares the logs of two directories that were shut down, where both have them.
pub(crate) fn histories(ours: &Path, theirs: &Path) -> Histories {
    let [ours, theirs] = [ours, theirs].map(|root| open_files(root, &mut Vec::new()));
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return Histories::Unknown };
    match (ours.as_slice(), theirs.as_slice()) {
        ([one], [two]) if [one, two].iter().all(|it| it.header.format == FORMAT_MARIADB_108) => {
            records::histories(one, two)
        }
        _ => Histories::Unknown,
    }
}

/// What a log changed behind some position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Where it was read from.
    pub(crate) since: u64,
    /// The last position that changed each page.
    pages: HashMap<PageId, u64>,
    /// Where tablespaces were last made, renamed or removed.
    spaces: HashMap<u32, u64>,
}

impl Changed {
    /// The LSN that the last change gave this page; `None` if there was none.
    pub(crate) fn last(&self, page: PageId) -> Option<u64> {
        self.pages.get(&page).copied()
    }

    /// True if the file of this tablespace may have become another one after this position.
    pub(crate) fn has_space_after(&self, space: u32, lsn: u64) -> bool {
        self.spaces.get(&space).is_some_and(|last| *last > lsn)
    }
}

/// What the log of a directory that was shut down changed from its beginning on, if that is still
/// there, or from one of these positions on, which are those of earlier shutdowns; `None` where the log does not reach back so far, or is of another server than
/// MariaDB from 10.8 on, which names each page that it changes.
pub(crate) fn changed_since(root: &Path, shutdowns: &[u64]) -> Option<Changed> {
    let files = open_files(root, &mut Vec::new()).ok()?;
    match files.as_slice() {
        [one] if one.header.format == FORMAT_MARIADB_108 => records::changed_since(one, shutdowns),
        _ => None,
    }
}

/// Names relative to the data directory, and paths; of files that an options file names, where they
/// are.
pub(crate) fn names_of_files(root: &Path) -> Vec<(String, PathBuf)> {
    let own = names_of_files_in(root);
    if !own.is_empty() {
        return own;
    }
    let elsewhere = Places::of(root).log.map(|place| names_of_files_in(&place));
    let named = elsewhere.into_iter().flatten();
    named.map(|(_, path)| (path.display().to_string(), path)).collect()
}

fn names_of_files_in(root: &Path) -> Vec<(String, PathBuf)> {
    if let Ok(entries) = fs::read_dir(root.join(MYSQL_FOLDER)) {
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut numbers: Vec<u64> = names
            .filter_map(|name| name.strip_prefix("#ib_redo")?.parse().ok())
            .take(MYSQL_FILES_MAX)
            .collect();
        numbers.sort_unstable();
        let named = numbers.into_iter().map(|number| {
            let name = format!("{MYSQL_FOLDER}/#ib_redo{number}");
            let path = root.join(&name);
            (name, path)
        });
        let named: Vec<_> = named.collect();
        if !named.is_empty() {
            return named;
        }
    }
    let first = root.join(FIRST_OLD_FILE);
    if !first.is_file() {
        // A backup of Percona's program before it is prepared.
        let name = BACKUP_FILE.to_owned();
        let path = root.join(&name);
        return if path.is_file() { vec![(name, path)] } else { Vec::new() };
    }
    (0..OLD_FILES_MAX)
        .map(|number| format!("ib_logfile{number}"))
        .map(|name| (name.clone(), root.join(name)))
        // The log of MariaDB 10.8 leaves no later one behind that counts.
        .take_while(|(_, path)| path.is_file())
        .collect()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    /// The one file of a real MySQL 9.7 that was shut down.
    pub(super) fn mysql_fixture() -> Option<Vec<u8>> {
        let path = "mysql-9.7/crc32-16k/redo_active";
        crate::files::fixture(path)
    }

    pub(super) fn folder_with(name: &str, bytes: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        folder
    }

    #[test]
    fn log_of_a_stopped_mysql_ends_at_its_checkpoint() {
        let Some(bytes) = mysql_fixture() else { return };
        let folder = folder_with("#innodb_redo/#ib_redo7", &bytes);
        let log = RedoLog::read(folder.path(), None).unwrap();
        assert_eq!(log.creator, "MySQL 9.7.4");
        assert_eq!((log.checkpoint, log.end), (0x145_a1e1, Some(0x145_a1e1)));
        assert_eq!(log.pending, Pending::Nothing);
        assert_eq!(log.faults, []);
    }

    #[test]
    fn damage_before_the_checkpoint_is_nobodys_matter() {
        let Some(mut bytes) = mysql_fixture() else { return };
        bytes[2048 + 5 * 512 + 99] ^= 1;
        let folder = folder_with("#innodb_redo/#ib_redo7", &bytes);
        let log = RedoLog::read(folder.path(), None).unwrap();
        assert_eq!((log.pending, log.faults), (Pending::Nothing, vec![]));
    }

    #[test]
    fn damage_to_the_header_or_to_the_block_of_the_checkpoint_is_seen() {
        let Some(bytes) = mysql_fixture() else { return };
        let changed = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            RedoLog::read(folder_with("#innodb_redo/#ib_redo7", &bytes).path(), None)
        };
        for at in [0, 10, 20, 508] {
            let Err(NoLog::Faulty(faults)) = changed(at) else { panic!("{at}") };
            assert_eq!((faults[0].kind, faults[0].offset), (Kind::Checksum, 0), "{at}");
        }
        // The only checkpoint.
        let Err(NoLog::Faulty(faults)) = changed(1536 + 15) else { panic!() };
        assert_eq!((faults[0].kind, faults[0].offset), (Kind::Checksum, 1536));
        let log = changed(2048 + 864 * 512 + 40).unwrap();
        assert_eq!((log.end, log.pending), (None, Pending::Unknown));
        assert_eq!((log.faults[0].kind, log.faults[0].offset), (Kind::Checksum, 2048 + 864 * 512));
    }

    /// As a crash would leave it: the checkpoint is further back.
    #[test]
    fn log_behind_an_earlier_checkpoint_has_changes_and_an_end() {
        let Some(mut bytes) = mysql_fixture() else { return };
        let earlier = 0x13e_e000_u64 + 100 * 512 + 20;
        bytes[1536 + 8..1536 + 16].copy_from_slice(&earlier.to_be_bytes());
        let sum = crc32c(&bytes[1536..1536 + 508]);
        bytes[1536 + 508..2048].copy_from_slice(&sum.to_be_bytes());
        let folder = folder_with("#innodb_redo/#ib_redo7", &bytes);
        let log = RedoLog::read(folder.path(), None).unwrap();
        assert_eq!((log.checkpoint, log.end), (earlier, Some(0x145_a1e1)));
        assert_eq!((log.pending, log.faults), (Pending::Unknown, vec![]));
        // A block in the middle: the log cannot be replayed past it, although it
        // goes on.
        bytes[2048 + 300 * 512 + 99] ^= 1;
        let folder = folder_with("#innodb_redo/#ib_redo7", &bytes);
        let log = RedoLog::read(folder.path(), None).unwrap();
        assert_eq!(log.end, None);
        assert_eq!(log.faults[0].offset, 2048 + 300 * 512);
        assert!(log.faults[0].may_be_healthy);
    }

    /// The checkpoint is further back, and the file is cut before the log's end.
    #[test]
    fn log_that_runs_to_the_end_of_a_file_that_is_smaller_than_its_spare_ones_is_suspect() {
        let Some(mut bytes) = mysql_fixture() else { return };
        let earlier = 0x13e_e000_u64 + 100 * 512 + 20;
        bytes[1536 + 8..1536 + 16].copy_from_slice(&earlier.to_be_bytes());
        let sum = crc32c(&bytes[1536..1536 + 508]);
        bytes[1536 + 508..2048].copy_from_slice(&sum.to_be_bytes());
        let whole = bytes.len() as u64;
        bytes.truncate(2048 + 512 * 512);
        let folder = folder_with("#innodb_redo/#ib_redo7", &bytes);
        let faults = || RedoLog::read(folder.path(), None).unwrap().faults;
        assert_eq!(faults(), [], "a server that waits for a spare file");
        let spare = File::create(folder.path().join("#innodb_redo/#ib_redo8_tmp")).unwrap();
        spare.set_len(bytes.len() as u64).unwrap();
        assert_eq!(faults(), [], "of one size");
        spare.set_len(whole).unwrap();
        let [fault] = &*faults() else { panic!("{:?}", faults()) };
        assert_eq!((fault.kind, fault.offset, fault.may_be_healthy), {
            (Kind::Truncated, bytes.len() as u64, true)
        });
        // Cut before its checkpoint.
        fs::write(folder.path().join("#innodb_redo/#ib_redo7"), &bytes[..2048 + 90 * 512]).unwrap();
        let [fault] = &*faults() else { panic!("{:?}", faults()) };
        assert_eq!((fault.kind, fault.may_be_healthy), (Kind::Missing, false));
    }

    /// The block says that it was not written as far as the checkpoint.
    #[test]
    fn checkpoint_behind_the_end_of_its_block_is_a_fault() {
        let Some(mut bytes) = mysql_fixture() else { return };
        let block = 2048 + 864 * 512;
        bytes[block + 4..block + 6].copy_from_slice(&100_u16.to_be_bytes());
        let sum = crc32c(&bytes[block..block + 508]);
        bytes[block + 508..block + 512].copy_from_slice(&sum.to_be_bytes());
        let log =
            RedoLog::read(folder_with("#innodb_redo/#ib_redo7", &bytes).path(), None).unwrap();
        assert_eq!((log.end, log.pending), (None, Pending::Unknown));
        assert_eq!((log.faults[0].kind, log.faults[0].offset), (Kind::Header, block as u64));
    }

    /// Encrypts the last block of a log as far as the checker can see that: all behind its header is
    /// other bytes, and its length has the mark.
    fn with_encrypted_last_block(mut bytes: Vec<u8>) -> Vec<u8> {
        let block = &mut bytes[2048 + 864 * 512..][..512];
        block[4] |= 0x80;
        block[12..].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(7) ^ 0x5a);
        bytes
    }

    #[test]
    fn encrypted_block_of_mysql_ends_the_log_where_its_header_says() {
        let Some(bytes) = mysql_fixture() else { return };
        let bytes = with_encrypted_last_block(bytes);
        let log =
            RedoLog::read(folder_with("#innodb_redo/#ib_redo7", &bytes).path(), None).unwrap();
        assert_eq!((log.end, log.pending), (Some(0x145_a1e1), Pending::Nothing));
        assert_eq!(log.faults, []);
        let untested = log.untested.unwrap();
        assert_eq!((&*untested.file, untested.blocks), ("#innodb_redo/#ib_redo7", 1));
        assert_eq!(untested.reason, "no file of the log says with which key");
    }

    /// The mark of encryption alone, without anything encrypted, hides no damage.
    #[test]
    fn flipped_mark_of_encryption_is_damage_of_the_block() {
        let Some(mut bytes) = mysql_fixture() else { return };
        bytes[2048 + 864 * 512 + 4] ^= 0x80;
        let log =
            RedoLog::read(folder_with("#innodb_redo/#ib_redo7", &bytes).path(), None).unwrap();
        assert_eq!((log.end, log.pending), (None, Pending::Unknown));
        assert_eq!((log.faults[0].kind, log.faults[0].offset), (Kind::Checksum, 2048 + 864 * 512));
    }

    /// A log of MySQL 5.5 or older with nothing behind its checkpoint, made by hand: `high` stands
    /// where later servers have the high half of the checkpoint's place.
    pub(super) fn log_of_55(high: u32) -> Vec<u8> {
        let lsn = 1_598_948_u64;
        let place = 2048 + (lsn & !511) - 8192;
        let mut bytes = vec![0; 5 << 20];
        for at in [512, 1536] {
            bytes[at..at + 8].copy_from_slice(&7_u64.to_be_bytes());
            bytes[at + 8..at + 16].copy_from_slice(&lsn.to_be_bytes());
            let low = u32::try_from(place + (lsn & 511)).unwrap();
            bytes[at + 16..at + 20].copy_from_slice(&low.to_be_bytes());
            bytes[at + 300..at + 304].copy_from_slice(&high.to_be_bytes());
        }
        let block = &mut bytes[usize::try_from(place).unwrap()..][..512];
        let number = u32::try_from(lsn / 512 + 1).unwrap();
        block[..4].copy_from_slice(&number.to_be_bytes());
        block[4..6].copy_from_slice(&u16::try_from(lsn & 511).unwrap().to_be_bytes());
        let sum = sums_of(block, HEADER_SUM).1;
        block[HEADER_SUM..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn mark_in_checkpoints_of_mysql_55_is_no_high_half_of_their_place() {
        for (high, end) in [(0, Some(1_598_948)), (0x55E7_718B, Some(1_598_948)), (1, None)] {
            let log =
                RedoLog::read(folder_with("ib_logfile0", &log_of_55(high)).path(), None).unwrap();
            assert_eq!((log.checkpoint, log.end), (1_598_948, end), "{high:x}");
            assert_eq!(log.pending == Pending::Nothing, end.is_some(), "{high:x}");
        }
    }

    #[test]
    fn no_log_is_told_from_a_faulty_one() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(RedoLog::read(folder.path(), None), Err(NoLog::Missing)));
        fs::write(folder.path().join("ib_logfile0"), b"").unwrap();
        assert!(matches!(RedoLog::read(folder.path(), None), Err(NoLog::Missing)));
        fs::write(folder.path().join("ib_logfile0"), [1; 300]).unwrap();
        assert!(matches!(RedoLog::read(folder.path(), None), Err(NoLog::Faulty(_))));
    }
}
