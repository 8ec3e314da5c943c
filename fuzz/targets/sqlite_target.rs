//! A SQLite database of arbitrary bytes, with arbitrary files beside it.

use std::fs;
use std::num::NonZero;

use arbitrary::{Arbitrary, Unstructured};
use pagewarden::database::kind_named;
use pagewarden::formats::sqlite::checksum::stamp;
use pagewarden_fuzz::{check, check_structure, empty_folder};

/// What stands beside the database; taken from the end of the input, so that
/// its beginning is the database.
#[derive(Debug, Default, Arbitrary)]
struct Beside {
    journal: Option<Vec<u8>>,
    log: Option<Log>,
    /// Each page gets the sum of its content.
    stamp: Option<u8>,
    /// The number of pages that the header claims.
    page_count: Option<u32>,
}

#[derive(Debug, Arbitrary)]
enum Log {
    Raw(Vec<u8>),
    Frames(Vec<u32>),
}

/// Of the input, what is for [`Beside`].
const BESIDE_BYTES: usize = 200;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let (database, beside) = input.split_at(input.len() - input.len().min(BESIDE_BYTES));
    let beside = Beside::arbitrary_take_rest(Unstructured::new(beside)).unwrap_or_default();
    let mut database = database.to_vec();
    let page_size = match database.get(16..18) {
        Some(&[0, 1]) => 65_536,
        Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
        _ => 0,
    };
    if let (Some(count), true) = (beside.page_count, database.len() >= 100) {
        database[28..32].copy_from_slice(&count.to_be_bytes());
        database.copy_within(24..28, 92);
    }
    if let (Some(kind), true) = (beside.stamp, page_size >= 512) {
        if kind & 1 != 0 && database.len() > 20 {
            database[20] = 8;
        }
        // Up to one page, to leave one damaged.
        let pages = database.chunks_exact_mut(page_size).skip(usize::from(kind >> 7));
        pages.for_each(stamp);
    }
    let folder = empty_folder();
    let path = folder.join("data.db");
    fs::write(&path, &database).expect("the folder is ours");
    if let Some(journal) = beside.journal {
        fs::write(folder.join("data.db-journal"), journal).expect("the folder is ours");
    }
    let log = beside.log.map(|log| match log {
        Log::Raw(bytes) => bytes,
        Log::Frames(numbers) => {
            let mut bytes = vec![0; 32];
            bytes[..4].copy_from_slice(&0x377f_0682_u32.to_be_bytes());
            let size = u32::try_from(page_size).unwrap_or(0);
            bytes[8..12].copy_from_slice(&size.to_be_bytes());
            for number in numbers {
                bytes.extend(number.to_be_bytes());
                bytes.resize(bytes.len() + 20 + page_size, 0);
            }
            bytes
        }
    });
    if let Some(log) = log {
        fs::write(folder.join("data.db-wal"), log).expect("the folder is ours");
    }
    check(&path, None, NonZero::<usize>::MIN);
    if let Some(report) = check(&path, kind_named("sqlite"), NonZero::<usize>::MIN) {
        assert!(report.summary.bytes <= database.len() as u64);
        assert!(report.unread.is_empty(), "{:?}", report.unread);
    }
    check_structure(&path, kind_named("sqlite"));
}
