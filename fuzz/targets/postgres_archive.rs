//! Archives as targets, from a stream: whatever is in them, the books balance.

use std::io::Cursor;
use std::path::Path;

use pagewarden::database::{OpenOptions, open_stream};
use pagewarden::verify::{Options, verify};
use pagewarden_fuzz::Report;

const BLOCK: usize = 512;
const NAMES: [&str; 8] = [
    "base/5/1259",
    "base/5/INCREMENTAL.1259",
    "global/pg_control",
    "backup_label",
    "backup_manifest",
    "PG_VERSION",
    "PG_15_1/5/1259.1",
    "base/5/pg_filenode.map",
];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    // Members of the lengths that the input's bytes say, over and over.
    let mut archive = Vec::new();
    let mut rest = input;
    while let Some((mode, more)) = rest.split_first() {
        let length = (usize::from(mode >> 3) * 1024).min(more.len());
        let (data, more) = more.split_at(length);
        rest = more;
        let mut header = [0_u8; BLOCK];
        let name = NAMES[usize::from(mode & 7)];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{length:011o} ").as_bytes());
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend(header);
        archive.extend(data);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    if input.len() % 2 == 0 {
        archive.extend([0; 2 * BLOCK]);
    }
    let source = Box::new(Cursor::new(archive));
    let Ok(target) = open_stream(Path::new("-"), source, None, &OpenOptions::default()) else {
        return;
    };
    let mut report = Report::default();
    let verified =
        verify(target, &Options::default(), &(), &mut report).expect("this sink takes all");
    let summary = &verified.summary;
    assert_eq!(report.unread.len() as u64, summary.unread);
    let failing = report.findings.iter().filter(|finding| finding.place.page.is_some()).count();
    assert!(summary.pages.damaged + summary.pages.suspect <= failing as u64);
}
