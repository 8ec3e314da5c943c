//! Binary logs: arbitrary bytes behind a sound description, and sound events of arbitrary bodies.
//!
//! The first byte of the input says how the file is made. Of a file that is sound but for one bit, which the
//! next bytes choose, something is always said.

use std::fs;
use std::path::Path;

use pagewarden::crc::crc32;
use pagewarden::database;
use pagewarden::verify::{Options, verify};
use pagewarden_fuzz::{Report, empty_folder};

const HEADER: usize = 19;
const SUM: usize = 4;
const DESCRIPTION: u8 = 15;
const BEGIN_ENCRYPTION: u8 = 164;
/// Where the flags of the first event are: the lowest says that the file is in use, which is no damage.
const FIRST_FLAGS: usize = 4 + 17;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((make, mut rest)) = input.split_first() else { return };
    let flip = rest;
    let mut bytes = b"\xfebin".to_vec();
    push(&mut bytes, DESCRIPTION, &description());
    let is_flipped = make & 1 != 0;
    if make & 2 != 0 && !is_flipped {
        bytes.extend(rest);
        rest = &[];
    }
    while let [kind, length, more @ ..] = rest {
        let (body, more) = more.split_at(usize::from(*length).min(more.len()));
        rest = more;
        // What is encrypted is not read, and a description changes what is said of sums.
        if !is_flipped || !matches!(*kind, DESCRIPTION | BEGIN_ENCRYPTION) {
            push(&mut bytes, *kind, body);
        }
    }
    if let ([low, high, bit, ..], true) = (flip, is_flipped) {
        let at = (usize::from(*low) | usize::from(*high) << 8) % bytes.len();
        if at != FIRST_FLAGS || bit & 7 != 0 {
            bytes[at] ^= 1 << (bit & 7);
        } else {
            return;
        }
    } else if is_flipped {
        return;
    }
    let folder = empty_folder();
    fs::write(folder.join("log.000001"), &bytes).expect("the folder is ours");
    if make & 4 != 0 {
        fs::write(folder.join("log.000002"), &bytes).expect("the folder is ours");
        fs::write(folder.join("log.index"), "./log.000001\n./log.000003\n")
            .expect("the folder is ours");
    }
    // A first event that is none makes it a file of another format, or of none.
    assert!(faults(&folder.join("log.000001")) != Some(0) || !is_flipped);
    faults(folder);
}

/// How much is wrong with a file or folder; `None` if it cannot be opened. There are no pages to count.
fn faults(path: &Path) -> Option<usize> {
    let target = database::open(path, None).ok()?;
    let mut report = Report::default();
    let verified = verify(target, &Options::default(), &(), &mut report).expect("it takes all");
    assert_eq!(report.unread.len() as u64, verified.summary.unread);
    Some(report.findings.len() + report.unread.len())
}

/// What an event of MySQL 8.0 says of the file, without its sum.
fn description() -> Vec<u8> {
    let mut body = vec![4, 0];
    let mut server = b"8.0.36".to_vec();
    server.resize(50, 0);
    body.extend(server);
    body.extend([0, 0, 0, 0, 19]);
    body.extend([13; 41]);
    body.push(1);
    body
}

/// Adds an event with its sum.
fn push(bytes: &mut Vec<u8>, kind: u8, body: &[u8]) {
    let length = u32::try_from(HEADER + body.len() + SUM).expect("it is short");
    let end = u32::try_from(bytes.len()).expect("it is short") + length;
    let mut event = vec![1, 0, 0, 0, kind, 1, 0, 0, 0];
    event.extend(length.to_le_bytes());
    event.extend(end.to_le_bytes());
    event.extend([0, 0]);
    event.extend(body);
    let sum = crc32(&event);
    event.extend(sum.to_le_bytes());
    bytes.extend(event);
}
