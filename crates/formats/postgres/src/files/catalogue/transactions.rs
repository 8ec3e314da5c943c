//! How transactions ended, from the logs that a server keeps of it.
//!
//! ```text
//! pg_xact (pg_clog in 9.6)  two bits a transaction, four in a byte, from the low bits:
//!                           0 in progress, 1 committed, 2 aborted,
//!                           3 committed if its parent is
//! pg_multixact/offsets      4 bytes a multixact: the number of its first member
//! pg_multixact/members      groups of 20 bytes: four bytes with a status each, then
//!                           four transactions of 4 bytes; 409 groups in 8 KiB
//!                           status 0 to 3 locks, 4 and 5 update or delete
//! pg_twophase               a file for each prepared transaction, named by its
//!                           number in 8 hexadecimal digits, from 17 on in 16
//! ```
//!
//! All logs have pages of the block size without header or checksum, 32 in a
//! file; files are named by their number in four hexadecimal digits or more.
//! Sources: `src/backend/access/transam/{clog,multixact,twophase,slru}.c`, 9.6 to
//! 18. In 19 the numbers of members have 8 bytes: that version is not read here.
//!
//! A list of members ends where the next multixact's begins. That of the newest
//! one has no next: members are written to pages that were zeroed, and a
//! transaction 0 ends the list. Number 0 as a begin means that the multixact was
//! never recorded.
//!
//! What a missing entry means depends on the moment: after a clean shutdown
//! a transaction without an end has none and never will (it was in progress when
//! the server crashed), unless it is prepared, or belongs to one that is. The
//! transactions below a prepared one are younger than it, so that everything from
//! the oldest prepared one on stays in doubt, and nothing before it. In a crashed
//! or running cluster the log on disk lags behind: an entry is final, its absence
//! means nothing.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::control::u32_at;
use pagewarden_core::source::file::open_regular;
use pagewarden_core::source::file::read_fully;

/// The first transaction that is no constant: those below have committed.
pub(super) const FIRST_TRANSACTION: u32 = 3;
const PAGES_A_FILE: u64 = 32;
const TRANSACTIONS_A_BYTE: u32 = 4;
const GROUP_MEMBERS: u64 = 4;
const GROUP_BYTES: u64 = GROUP_MEMBERS + 4 * GROUP_MEMBERS;
/// `MultiXactStatusNoKeyUpdate`, the lowest that changes a row.
const STATUS_UPDATES: u8 = 4;
/// `MultiXactStatusUpdate`, the highest.
const STATUS_MAX: u8 = 5;
/// A list of more members is nonsense: more sessions than any server allows.
const MEMBERS_MAX: u32 = 1 << 18;
/// Pages of logs that are kept in memory: half a mebibyte.
const PAGES_KEPT: usize = 64;

/// What a cluster's files can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Shut down cleanly: the files are all there is.
    AtRest,
    /// Crashed, a backup, or a standby: the log knows more than the files.
    Unrecovered,
    /// A server is at work: the files change under our eyes, and lag behind.
    Running,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It committed.
    Committed,
    /// It aborted, or died.
    Aborted,
    /// It may be in progress, is prepared, or cannot be found.
    Unknown,
}

/// Who of a multixact has changed the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updater {
    /// All only lock.
    NoTransaction,
    /// This transaction.
    Transaction(u32),
    /// It cannot be read.
    Unknown,
}

/// The logs of one cluster. Reads pages when they are asked for, and keeps few.
#[derive(Debug)]
pub struct Transactions {
    status: PathBuf,
    offsets: PathBuf,
    members: PathBuf,
    page_bytes: u64,
    moment: Moment,
    /// The oldest transaction that is prepared.
    prepared: Prepared,
    kept: HashMap<(Log, u64), Option<Box<[u8]>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prepared {
    None,
    Since(u32),
    /// The folder cannot be read.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Log {
    Status,
    Offsets,
    Members,
}

impl Transactions {
    /// The logs of the cluster at `root`. Reads the names of prepared
    /// transactions and nothing else yet.
    #[must_use]
    pub fn new(root: &Path, major: u32, page_size: usize, moment: Moment) -> Self {
        Self {
            status: root.join(if major < 10 { "pg_clog" } else { "pg_xact" }),
            offsets: root.join("pg_multixact/offsets"),
            members: root.join("pg_multixact/members"),
            page_bytes: u64::try_from(page_size).unwrap_or(0),
            moment,
            prepared: Prepared::find(&root.join("pg_twophase")),
            kept: HashMap::new(),
        }
    }

    /// What the files can be asked.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.moment
    }

    /// How a transaction ended.
    pub fn outcome(&mut self, transaction: u32) -> Outcome {
        match transaction {
            // No transaction has this number.
            0 => return Outcome::Unknown,
            1..FIRST_TRANSACTION => return Outcome::Committed,
            _ => {}
        }
        match self.status(transaction) {
            Some(1) => Outcome::Committed,
            Some(2) => Outcome::Aborted,
            Some(0) if self.moment == Moment::AtRest && self.prepared.is_before(transaction) => {
                Outcome::Aborted
            }
            _ => Outcome::Unknown,
        }
    }

    /// How a transaction ended, if its end was written.
    pub fn written(&mut self, transaction: u32) -> Option<Outcome> {
        match self.status(transaction)? {
            1 => Some(Outcome::Committed),
            2 => Some(Outcome::Aborted),
            _ => None,
        }
    }

    /// True if the files have a place for its end, and none is written there.
    pub fn has_no_end(&mut self, transaction: u32) -> bool {
        self.status(transaction) == Some(0)
    }

    fn status(&mut self, transaction: u32) -> Option<u8> {
        let byte = self.byte_at(Log::Status, u64::from(transaction / TRANSACTIONS_A_BYTE))?;
        Some(byte >> (transaction % TRANSACTIONS_A_BYTE * 2) & 3)
    }

    /// Who of a multixact has changed the row.
    pub fn updater(&mut self, multixact: u32) -> Updater {
        self.find_updater(multixact).unwrap_or(Updater::Unknown)
    }

    fn find_updater(&mut self, multixact: u32) -> Option<Updater> {
        let begin = self.u32_at(Log::Offsets, u64::from(multixact).checked_mul(4)?)?;
        if begin == 0 {
            return None;
        }
        // After the last number comes 1, and 0 is no multixact.
        let next = multixact.checked_add(1).unwrap_or(1);
        let end = self.u32_at(Log::Offsets, u64::from(next).checked_mul(4)?).filter(|end| *end > 0);
        let count = end.map_or(MEMBERS_MAX, |end| end.wrapping_sub(begin));
        if count > MEMBERS_MAX {
            return None;
        }
        for index in 0..count {
            let member = begin.wrapping_add(index);
            // The list jumps over number 0 where the numbers begin anew.
            if member == 0 {
                continue;
            }
            let (status, transaction) = self.member(member)?;
            if transaction == 0 {
                return end.is_none().then_some(Updater::NoTransaction);
            }
            match status {
                0..STATUS_UPDATES => {}
                STATUS_UPDATES..=STATUS_MAX => return Some(Updater::Transaction(transaction)),
                _ => return None,
            }
        }
        Some(Updater::NoTransaction)
    }

    fn member(&mut self, member: u32) -> Option<(u8, u32)> {
        let (group, index) = (u64::from(member) / GROUP_MEMBERS, u64::from(member) % GROUP_MEMBERS);
        let groups_a_page = self.page_bytes / GROUP_BYTES;
        let page = group.checked_div(groups_a_page)?;
        let in_page = group.checked_rem(groups_a_page)?.checked_mul(GROUP_BYTES)?;
        let at = page.checked_mul(self.page_bytes)?.checked_add(in_page)?;
        let status = self.byte_at(Log::Members, at.checked_add(index)?)?;
        let transactions = at.checked_add(GROUP_MEMBERS)?;
        let transaction = self.u32_at(Log::Members, transactions.checked_add(index * 4)?)?;
        Some((status, transaction))
    }

    fn byte_at(&mut self, log: Log, at: u64) -> Option<u8> {
        let in_page = usize::try_from(at.checked_rem(self.page_bytes)?).ok()?;
        self.page(log, at.checked_div(self.page_bytes)?)?.get(in_page).copied()
    }

    fn u32_at(&mut self, log: Log, at: u64) -> Option<u32> {
        let in_page = usize::try_from(at.checked_rem(self.page_bytes)?).ok()?;
        u32_at(self.page(log, at.checked_div(self.page_bytes)?)?, in_page)
    }

    fn page(&mut self, log: Log, number: u64) -> Option<&[u8]> {
        if self.kept.len() >= PAGES_KEPT && !self.kept.contains_key(&(log, number)) {
            self.kept.clear();
        }
        let folder = match log {
            Log::Status => &self.status,
            Log::Offsets => &self.offsets,
            Log::Members => &self.members,
        };
        let page_bytes = self.page_bytes;
        let kept = self.kept.entry((log, number));
        kept.or_insert_with(|| read_page(folder, number, page_bytes)).as_deref()
    }
}

fn read_page(folder: &Path, number: u64, page_bytes: u64) -> Option<Box<[u8]>> {
    let file = open_regular(&folder.join(format!("{:04X}", number / PAGES_A_FILE))).ok()?;
    let mut page = vec![0_u8; usize::try_from(page_bytes).ok()?];
    let offset = (number % PAGES_A_FILE).checked_mul(page_bytes)?;
    let filled = read_fully(&file, &mut page, offset).ok()?;
    (filled == page.len()).then(|| page.into_boxed_slice())
}

impl Prepared {
    fn find(folder: &Path) -> Self {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::None,
            Err(_) => return Self::Unknown,
        };
        let mut oldest: Option<u32> = None;
        for entry in entries {
            let Ok(entry) = entry else { return Self::Unknown };
            let name = entry.file_name();
            let Some(transaction) = name.to_str().and_then(transaction_of) else { continue };
            oldest = match oldest {
                Some(known) if !precedes(transaction, known) => Some(known),
                _ => Some(transaction),
            };
        }
        oldest.map_or(Self::None, Self::Since)
    }

    /// True if the transaction is older than all that are prepared.
    fn is_before(self, transaction: u32) -> bool {
        match self {
            Self::None => true,
            Self::Since(oldest) => precedes(transaction, oldest),
            Self::Unknown => false,
        }
    }
}

/// The transactions that are prepared, by the names in `pg_twophase`.
///
/// # Errors
/// The folder cannot be read.
pub fn prepared(folder: &Path) -> std::io::Result<HashSet<u32>> {
    let mut found = HashSet::new();
    for entry in fs::read_dir(folder)? {
        found.extend(entry?.file_name().to_str().and_then(transaction_of));
    }
    Ok(found)
}

/// The transaction that a file in `pg_twophase` is named by. Of 16 digits the low
/// half counts: the high one is the epoch.
fn transaction_of(name: &str) -> Option<u32> {
    if !matches!(name.len(), 8 | 16) || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(name, 16).ok()?;
    u32::try_from(number & 0xFFFF_FFFF).ok()
}

/// True if `one` is older than `other`: numbers begin anew after the last one,
/// and half of them are always in the past.
fn precedes(one: u32, other: u32) -> bool {
    one != other && other.wrapping_sub(one) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(status: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["pg_xact", "pg_multixact/offsets", "pg_multixact/members", "pg_twophase"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let mut page = status.to_vec();
        page.resize(8192, 0);
        fs::write(root.path().join("pg_xact/0000"), page).unwrap();
        root
    }

    fn outcomes(root: &Path, moment: Moment, transactions: &[u32]) -> Vec<Outcome> {
        let mut logs = Transactions::new(root, 18, 8192, moment);
        transactions.iter().map(|transaction| logs.outcome(*transaction)).collect()
    }

    #[test]
    fn transaction_without_an_end_has_aborted_only_at_rest_and_before_all_prepared() {
        use Outcome::{Aborted, Committed, Unknown};
        // 4 committed, 5 aborted, 6 in progress, 7 committed with its parent.
        let root = cluster(&[0, 0b1100_1001]);
        let all = [0, 1, 2, 4, 5, 6, 7, 40_000];
        let found = outcomes(root.path(), Moment::Unrecovered, &all);
        let known = [Unknown, Committed, Committed, Committed, Aborted, Unknown, Unknown, Unknown];
        assert_eq!(found, known);
        let found = outcomes(root.path(), Moment::AtRest, &all);
        assert_eq!(found[5..], [Aborted, Unknown, Unknown]);
        for (name, expected) in
            [("00000006", Unknown), ("0000000700000005", Unknown), ("00000009", Aborted)]
        {
            fs::write(root.path().join("pg_twophase").join(name), "").unwrap();
            assert_eq!(outcomes(root.path(), Moment::AtRest, &[6]), [expected], "{name}");
            fs::remove_file(root.path().join("pg_twophase").join(name)).unwrap();
        }
    }

    #[test]
    fn multixact_is_changed_by_the_member_that_updates() {
        let root = cluster(&[]);
        let mut offsets = vec![0_u8; 8192];
        // 1: members 1 and 2; 2: members 3 to 5; 3, the newest: 6 and what follows.
        for (multixact, first) in [(1_usize, 1_u8), (2, 3), (3, 6)] {
            offsets[multixact * 4] = first;
        }
        let mut members = vec![0_u8; 8192];
        let statuses = [0, 1, 0, 0, 4, 3, 0, 5];
        let transactions = [0, 700_u32, 701, 702, 703, 704, 705, 706];
        for (member, (status, transaction)) in statuses.iter().zip(transactions).enumerate() {
            let group = member / 4 * 20;
            members[group + member % 4] = *status;
            let at = group + 4 + member % 4 * 4;
            members[at..at + 4].copy_from_slice(&transaction.to_le_bytes());
        }
        let folder = root.path().join("pg_multixact");
        fs::write(folder.join("offsets/0000"), offsets).unwrap();
        fs::write(folder.join("members/0000"), members).unwrap();
        let mut logs = Transactions::new(root.path(), 18, 8192, Moment::AtRest);
        let found: Vec<_> = (0..5).map(|multixact| logs.updater(multixact)).collect();
        let expected = [
            Updater::Unknown,
            Updater::NoTransaction,
            Updater::Transaction(703),
            Updater::Transaction(706),
            Updater::Unknown,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_are_compared_around_the_end() {
        assert!(precedes(5, 6) && !precedes(6, 5) && !precedes(6, 6));
        assert!(precedes(u32::MAX, 3) && !precedes(3, u32::MAX));
    }
}
