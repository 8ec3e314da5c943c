//! The file in which a comparison writes how far it has come: its lines, whole, cut and
//! altered. What was opened once is opened again as the same, with nothing to warn of, and
//! what is refused is left as it was.
//!
//! The first byte of the input says whether a true first line stands before it, whether its
//! lines get the CRCs that fit, and whether the end is cut off; the rest is lines.

use std::fs;

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::state::{Asked, State};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((how, lines)) = input.split_first() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let asked = Asked {
        source: "s".to_owned(),
        targets: vec!["t".to_owned()],
        tables: Vec::new(),
        excluded_tables: Vec::new(),
        excluded_columns: Vec::new(),
        differences: 1,
        mode: Mode::Auto,
    };
    let mut bytes = Vec::new();
    if how & 1 == 0 {
        drop(State::open(&path, &asked).expect("a new file"));
        bytes = fs::read(&path).expect("what was written");
    }
    if how & 2 == 0 {
        let text = std::str::from_utf8(bytes.get(..8).unwrap_or_default()).unwrap_or_default();
        let mut crc = u32::from_str_radix(text, 16).unwrap_or(0);
        for line in lines.split(|byte| *byte == b'\n') {
            crc = chained(crc, line);
            bytes.extend_from_slice(format!("{crc:08x} ").as_bytes());
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
        }
    } else {
        bytes.extend_from_slice(lines);
    }
    if how & 4 == 4 {
        bytes.truncate(bytes.len().saturating_sub(usize::from(how >> 3)));
    }
    fs::write(&path, &bytes).expect("a file");
    let Ok(state) = State::open(&path, &asked) else {
        assert_eq!(fs::read(&path).expect("the file"), bytes);
        return;
    };
    let (begun, cut) = (state.begun, state.warning.is_some());
    drop(state);
    let kept = fs::read(&path).expect("the file");
    if !bytes.is_empty() {
        assert!(bytes.starts_with(&kept));
        assert_eq!(cut, kept.len() < bytes.len());
    }
    let again = State::open(&path, &asked).expect("what was opened before");
    assert!(again.is_resumed && again.warning.is_none() && again.begun == begun);
    drop(again);
    assert_eq!(fs::read(&path).expect("the file"), kept);
}

/// The CRC of a line, by that of the line before.
fn chained(before: u32, json: &[u8]) -> u32 {
    let mut digest = pagewarden::crc::Crc32::new();
    digest.update(&before.to_le_bytes());
    digest.update(json);
    digest.finish()
}
