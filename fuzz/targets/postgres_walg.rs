//! Storages of WAL-G: three sets that build on one another as the input says, with whatever in their
//! parts and lists. Nothing panics, and the books balance.

use std::fs;

use pagewarden::database::{OpenOptions, repository};
use pagewarden::source::store::StorePath;
use pagewarden::verify::{Options, verify};
use pagewarden_fuzz::Report;

const BLOCK: usize = 512;
const LABELS: [&str; 3] = ["base_1", "base_2", "base_3"];
const NAMES: [&str; 8] = [
    "/base/5/1259",
    "/base/5/1259.1",
    "/global/pg_control",
    "backup_label",
    "/PG_VERSION",
    "/pg_tblspc/7/PG_15_1/5/1260",
    "/",
    "/../base/5/1261",
];

/// Members of the lengths that the input's bytes say, over and over.
fn tar(input: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut rest = input;
    while let Some((mode, more)) = rest.split_first() {
        let length = (usize::from(mode >> 3) * 1024).min(more.len());
        let (data, more) = more.split_at(length);
        rest = more;
        // A file of changed pages, with as many as fit.
        let pages = data.len().saturating_sub(16) / 8196;
        let mut data = data.to_vec();
        if mode & 8 != 0 && pages > 0 {
            data.truncate(16 + pages * 8196);
            data[..4].copy_from_slice(b"wi1\x55");
            data[4..12].copy_from_slice(&(8 * 8192_u64).to_le_bytes());
            data[12..16].copy_from_slice(&u32::try_from(pages).expect("few").to_le_bytes());
        }
        let mut header = [0_u8; BLOCK];
        let name = NAMES[usize::from(mode & 7)];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o} ", data.len()).as_bytes());
        header[156] = if name == "/" { b'5' } else { b'0' };
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend(header);
        archive.extend(data);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.extend([0; 2 * BLOCK]);
    archive
}

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((modes, rest)) = input.split_first_chunk::<9>() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let backups = folder.path().join("basebackups_005");
    let third = rest.len() / 3;
    for (index, label) in LABELS.iter().enumerate() {
        let [base, files, kind] = [modes[index], modes[3 + index], modes[6 + index]];
        let parts = backups.join(label).join("tar_partitions");
        fs::create_dir_all(&parts).expect("folders");
        let from = match LABELS.get(usize::from(base & 3)) {
            Some(from) => format!("\"{from}\""),
            None => "null".to_owned(),
        };
        let sentinel = format!("{{\"LSN\":{base},\"PgVersion\":150000,\"DeltaFrom\":{from}}}");
        let path = backups.join(format!("{label}_backup_stop_sentinel.json"));
        fs::write(path, sentinel).expect("a sentinel");
        let entries: Vec<_> = NAMES
            .iter()
            .enumerate()
            .filter(|(bit, _)| files >> bit & 1 == 1)
            .map(|(bit, name)| {
                let (skipped, changed) = (kind >> bit & 1 == 1, kind >> (7 - bit) & 1 == 1);
                format!("\"{name}\":{{\"IsSkipped\":{skipped},\"IsIncremented\":{changed}}}")
            })
            .collect();
        let list = format!("{{\"Files\":{{{}}}}}", entries.join(","));
        fs::write(backups.join(label).join("files_metadata.json"), list).expect("a list");
        let own = &rest[index * third..(index + 1) * third];
        fs::write(parts.join("part_001.tar."), tar(own)).expect("a part");
    }
    let kind = repository::kind_of(&StorePath::local(folder.path()), None).expect("a storage");
    let sets = (kind.open)(&StorePath::local(folder.path()), &OpenOptions::default()).expect("it can be listed");
    for target in sets.targets {
        let mut report = Report::default();
        let verified =
            verify(target, &Options::default(), &(), &mut report).expect("this sink takes all");
        let summary = &verified.summary;
        assert_eq!(report.unread.len() as u64, summary.unread);
        let failing = report.findings.iter().filter(|finding| finding.place.page.is_some()).count();
        assert!(summary.pages.damaged + summary.pages.suspect <= failing as u64);
    }
}
