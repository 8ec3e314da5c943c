//! Redo logs of MySQL and MariaDB: arbitrary bytes, with sums made to fit.
//!
//! The first byte of the input says how it is laid out, the second which sums are
//! made to fit.

use std::fs;

use pagewarden::crc::crc32c;
use pagewarden::formats::innodb::files::redo::{NoLog, RedoLog};
use pagewarden::formats::innodb::files::state::State;
use pagewarden_fuzz::empty_folder;

const BLOCK: usize = 512;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [layout, sums, bytes @ ..] = input else { return };
    let mut bytes = bytes.to_vec();
    let is_ring = layout % 3 == 0;
    if is_ring && bytes.len() >= BLOCK {
        // Blank up to where the ring begins, but for header and checkpoints.
        let rest = bytes.split_off(BLOCK);
        let (checkpoint, rest) = rest.split_at(rest.len().min(64));
        bytes.resize(4096, 0);
        bytes.extend(checkpoint);
        bytes.resize(12_288, 0);
        bytes.extend(rest);
        bytes[..4].copy_from_slice(b"Phys");
        stamp(&mut bytes, 4096, 60);
    }
    if sums & 1 != 0 {
        stamp(&mut bytes, 0, 508);
    }
    if sums & 2 != 0 && !is_ring {
        for begin in (BLOCK..bytes.len()).step_by(BLOCK) {
            stamp(&mut bytes, begin, 508);
        }
    }
    let folder = empty_folder();
    let name = match layout % 3 {
        1 => "#innodb_redo/#ib_redo3",
        _ => "ib_logfile0",
    };
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("it has one")).expect("the folder is ours");
    fs::write(&path, &bytes).expect("the folder is ours");
    match RedoLog::read(folder, None) {
        Ok(log) => {
            assert!(log.end.is_none_or(|end| end >= log.checkpoint), "{log:?}");
            assert!(log.faults.iter().all(|fault| fault.offset <= bytes.len() as u64), "{log:?}");
        }
        Err(NoLog::Missing) => assert!(bytes.is_empty()),
        Err(NoLog::Faulty(faults)) => assert!(!faults.is_empty()),
        Err(NoLog::Unreadable(..)) => {}
    }
    assert!(!State::find(folder, None).circumstances.may_change());
}

/// Makes the sum at `begin + length` fit what stands before it.
fn stamp(bytes: &mut [u8], begin: usize, length: usize) {
    let end = begin + length;
    if bytes.len() >= end + 4 {
        let sum = crc32c(&bytes[begin..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_be_bytes());
    }
}
