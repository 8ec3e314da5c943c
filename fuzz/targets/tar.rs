//! Tar archives: arbitrary bytes, and headers whose sums fit.
//!
//! The first byte of the input says how many headers are made to fit.

use pagewarden::source::tar::{Archive, looks_like_tar};

const BLOCK: usize = 512;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    for header in bytes.chunks_exact_mut(BLOCK).take(usize::from(mode % 16)) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    let _ = looks_like_tar(&bytes);
    let mut archive = Archive::new(bytes.as_slice());
    let mut data = vec![0; 3000];
    let mut read = 0;
    while let Ok(Some(member)) = archive.next_member() {
        assert!(!member.name.contains('\0') || member.objection.is_some());
        let leads_out =
            member.name.starts_with('/') || member.name.split('/').any(|part| part == "..");
        assert!(!leads_out || member.objection.is_some(), "{member:?}");
        assert!(archive.data_left() == member.bytes);
        match archive.read_data(&mut data) {
            Ok(count) => {
                assert!(count as u64 <= member.bytes);
                read += count;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(read <= bytes.len());
    assert!(archive.next_member().is_ok_and(|next| next.is_none()));
}
