//! `backup_label` and `tablespace_map`: what a base backup says of itself.
//!
//! ```text
//! START WAL LOCATION: 0/A000050 (file 00000001000000000000000A)
//! CHECKPOINT LOCATION: 0/A075548
//! BACKUP METHOD: streamed
//! INCREMENTAL FROM LSN: 0/2200A580          (of an incremental backup only)
//! ```
//!
//! Source: `build_backup_content` in `src/backend/access/transam/xlogbackup.c`.
//! The map has a line for each tablespace, its oid and its place.

use crate::files::backup::manifest::lsn_from_text;

/// The name of the label.
pub const LABEL: &str = "backup_label";
/// The name of the map.
pub const TABLESPACE_MAP: &str = "tablespace_map";

/// What a backup's label says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Label {
    /// The redo position that replay begins at.
    pub start_lsn: Option<u64>,
    /// It holds changed blocks only.
    pub is_incremental: bool,
    /// Where the backup began that it builds on, if it is incremental.
    pub prior_lsn: Option<u64>,
}

impl Label {
    /// Reads what can be read; a label that says nothing still is one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut label = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("START WAL LOCATION: ") {
                label.start_lsn = rest.split(' ').next().and_then(lsn_from_text);
            }
            if let Some(rest) = line.strip_prefix("INCREMENTAL FROM LSN: ") {
                label.is_incremental = true;
                label.prior_lsn = lsn_from_text(rest.trim_end());
            }
        }
        label
    }
}

/// The oids in a map of tablespaces.
pub fn tablespaces(bytes: &[u8]) -> Vec<String> {
    // A place may hold newlines, behind a backslash; lines that begin without
    // an oid are none.
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(oid, _)| oid)
        .filter(|oid| !oid.is_empty() && oid.bytes().all(|byte| byte.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_gives_its_start_and_kind() {
        let text = b"START WAL LOCATION: 1/290000E0 (file 000000010000000100000029)\n\
            BACKUP METHOD: streamed\n";
        let label =
            Label { start_lsn: Some(0x1_2900_00E0), is_incremental: false, prior_lsn: None };
        assert_eq!(Label::parse(text), label);
        let more = [text, b"INCREMENTAL FROM LSN: 0/1\n".as_slice()].concat();
        assert_eq!(
            Label::parse(&more),
            Label { is_incremental: true, prior_lsn: Some(1), ..label }
        );
        assert_eq!(Label::parse(b"\xFF\nSTART WAL LOCATION: x"), Label::default());
    }

    #[test]
    fn map_gives_its_oids() {
        assert_eq!(tablespaces(b"16384 /a b\n16385 /c\\\n/x y\n"), ["16384", "16385"]);
        assert!(tablespaces(b"").is_empty());
    }
}
