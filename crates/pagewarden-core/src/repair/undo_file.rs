//! The undo file: what a repair overwrites, and what it writes in its place.
//!
//! ```text
//! pagewarden repair undo 1            a line
//! {"path": ..., "pages": [...]}       a line of JSON: which database, which pages, with their proof
//! old bytes, new bytes                of each page, in that order
//! BLAKE3                              32 bytes, of all before
//! ```
//!
//! Version 2 is the same for pages that a file lacked: there the old bytes are fewer than the new ones,
//! or none, and the entry says how many (`old_length`) and whether there was no file at all (`is_new`).
//! What needs none of that is written as version 1.
//!
//! It is made under another name, synced, and renamed: a file of this name is whole, or was damaged
//! later. A version that is neither 1 nor 2 is refused, never guessed.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::repair::{Page, Patient, Planned, Proof};
use crate::source::file::open_regular;
use crate::verdict::Kind;

/// Behind it stands the version.
const MAGIC: &str = "pagewarden repair undo ";
const VERSION: &str = "1";
/// The version that knows of files that were shorter, or not there.
const VERSION_OF_GROWTH: &str = "2";
/// A hundred thousand pages of 32 KiB, twice.
const BYTES_MAX: u64 = 8 << 30;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoFile {
    /// The database's own path when it was repaired.
    pub path: String,
    /// [`Patient::identity`].
    pub identity: String,
    /// [`Patient::state`] before the first page was written.
    pub state: String,
    /// What is overwritten.
    pub pages: Vec<Saved>,
}

/// A page that is overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Which page it is.
    pub entry: Entry,
    /// Its bytes before.
    pub old: Vec<u8>,
    /// Its bytes after.
    pub new: Vec<u8>,
}

/// What the file says of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the database.
    pub file: String,
    /// Its number.
    pub page: Option<u64>,
    /// Where it begins in the file.
    pub offset: u64,
    length: usize,
    kind: Kind,
    object: Option<String>,
    source: Option<String>,
    proof: Proof,
    reason: String,
    /// The number of bytes of this page with which the file ended; `None`: not inside or before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old_length: Option<usize>,
    /// There was no such file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_new: bool,
}

#[derive(Serialize, Deserialize)]
struct Head {
    path: String,
    identity: String,
    state: String,
    pages: Vec<Entry>,
}

impl UndoFile {
    /// What a plan is about to write.
    pub fn of(root: &Path, patient: &dyn Patient, state: &str, planned: &[Planned]) -> Self {
        let path = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let saved = planned.iter().filter_map(|one| {
            let new = one.new.clone()?;
            let page = &one.page;
            let entry = Entry {
                file: page.file.clone(),
                page: page.page,
                offset: page.offset?,
                length: new.len(),
                kind: page.kind,
                object: page.object.clone(),
                source: page.source.clone(),
                proof: page.proof?,
                reason: page.reason.clone(),
                old_length: (one.old.len() < new.len()).then_some(one.old.len()),
                is_new: one.is_new_file,
            };
            Some(Saved { entry, old: one.old.clone(), new })
        });
        Self {
            path: path.to_string_lossy().into_owned(),
            identity: patient.identity(),
            state: state.to_owned(),
            pages: saved.collect(),
        }
    }

    /// As it is written.
    pub fn bytes(&self) -> Vec<u8> {
        let head = Head {
            path: self.path.clone(),
            identity: self.identity.clone(),
            state: self.state.clone(),
            pages: self.pages.iter().map(|saved| saved.entry.clone()).collect(),
        };
        let version = match self.pages.iter().any(Saved::grows) {
            true => VERSION_OF_GROWTH,
            false => VERSION,
        };
        let mut bytes = format!("{MAGIC}{version}\n").into_bytes();
        // Strings and numbers only: there is nothing that could fail.
        bytes.extend(serde_json::to_vec(&head).unwrap_or_default());
        bytes.push(b'\n');
        for saved in &self.pages {
            bytes.extend_from_slice(&saved.old);
            bytes.extend_from_slice(&saved.new);
        }
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = open_regular(path).map_err(|error| Error::io("open", path, error))?;
        let bytes = all_of(&file).map_err(|error| Error::io("read", path, error))?;
        Self::parse(&bytes).map_err(|reason| {
            Error::damaged(path, reason, "name the undo file that a repair has reported")
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let rest = bytes.strip_prefix(MAGIC.as_bytes()).ok_or("no undo file of a repair")?;
        let mut parts = rest.splitn(2, |byte| *byte == b'\n');
        let version = parts.next().unwrap_or_default();
        if ![VERSION, VERSION_OF_GROWTH].iter().any(|known| version == known.as_bytes()) {
            let shown = String::from_utf8_lossy(version.get(..8).unwrap_or(version)).into_owned();
            return Err(format!("an undo file of version {shown}, which is not known here"));
        }
        let damaged = || "the undo file is damaged: its own sum does not match".to_owned();
        let end = bytes.len().checked_sub(blake3::OUT_LEN).ok_or_else(damaged)?;
        let (content, sum) = bytes.split_at_checked(end).ok_or_else(damaged)?;
        if blake3::hash(content).as_bytes() != sum {
            return Err(damaged());
        }
        let rest = parts.next().unwrap_or_default();
        let rest = rest.get(..rest.len().saturating_sub(blake3::OUT_LEN)).unwrap_or_default();
        let line = rest.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let (head, mut content) = rest.split_at_checked(line).ok_or_else(damaged)?;
        content = content.get(1..).unwrap_or_default();
        let head: Head = serde_json::from_slice(head).map_err(|error| error.to_string())?;
        let mut pages = Vec::new();
        for entry in head.pages {
            let old_length = entry.old_length.unwrap_or(entry.length);
            if old_length > entry.length || entry.is_new && old_length > 0 {
                return Err(damaged());
            }
            let old = content.get(..old_length).ok_or_else(damaged)?;
            content = content.get(old_length..).unwrap_or_default();
            let new = content.get(..entry.length).ok_or_else(damaged)?;
            content = content.get(entry.length..).unwrap_or_default();
            if !is_below(&entry.file) {
                return Err(format!("the undo file names {}, which is outside", entry.file));
            }
            pages.push(Saved { entry, old: old.to_vec(), new: new.to_vec() });
        }
        Ok(Self { path: head.path, identity: head.identity, state: head.state, pages })
    }
}

impl Saved {
    /// True for a page that the file lacked, or ended in.
    pub fn grows(&self) -> bool {
        self.old.len() < self.new.len()
    }

    /// For a report.
    pub fn as_page(&self) -> Page {
        let hash = |bytes: &[u8]| Some(blake3::hash(bytes).to_hex().to_string());
        let entry = &self.entry;
        Page {
            file: entry.file.clone(),
            page: entry.page,
            offset: Some(entry.offset),
            kind: entry.kind,
            object: entry.object.clone(),
            source: entry.source.clone(),
            proof: Some(entry.proof),
            reason: entry.reason.clone(),
            hint: None,
            written: false,
            before: hash(&self.old).filter(|_| !self.old.is_empty()),
            after: hash(&self.new),
        }
    }

    /// For a report that the old bytes are back.
    pub fn as_undone(&self) -> Page {
        let page = self.as_page();
        let reason = "the bytes from before the repair are back".to_owned();
        let (before, after) = (page.after, page.before);
        Page { before, after, reason, proof: None, source: None, ..page }
    }
}

/// True for a path that leads nowhere but below the data directory.
fn is_below(file: &str) -> bool {
    let path = Path::new(file);
    !file.is_empty()
        && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

fn all_of(file: &File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> UndoFile {
        let saved = |file: &str, old: u8, new: u8| Saved {
            entry: Entry {
                file: file.to_owned(),
                page: Some(7),
                offset: 7 * 8192,
                length: 64,
                kind: Kind::Checksum,
                object: None,
                source: Some("/backup\n/base/5/1".to_owned()),
                proof: Proof::Exact,
                reason: "as".to_owned(),
                old_length: None,
                is_new: false,
            },
            old: vec![old; 64],
            new: vec![new; 64],
        };
        UndoFile {
            path: "/data".to_owned(),
            identity: "17".to_owned(),
            state: "ab".to_owned(),
            pages: vec![saved("base/5/1", 10, 2), saved("base/5/2", b'\n', 3)],
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let undo = sample();
        assert_eq!(UndoFile::parse(&undo.bytes()), Ok(undo));
        let none = UndoFile { pages: Vec::new(), ..sample() };
        assert_eq!(UndoFile::parse(&none.bytes()), Ok(none));
    }

    /// A page that the file ended in, and one of a file that was not there.
    fn of_growth() -> UndoFile {
        let mut undo = sample();
        undo.pages[0].old.truncate(10);
        undo.pages[0].entry.old_length = Some(10);
        undo.pages[1].old.clear();
        undo.pages[1].entry.old_length = Some(0);
        undo.pages[1].entry.is_new = true;
        undo
    }

    #[test]
    fn what_a_file_lacked_is_version_2_and_all_else_is_version_1_as_before() {
        let bytes = of_growth().bytes();
        assert!(bytes.starts_with(b"pagewarden repair undo 2\n"));
        assert_eq!(UndoFile::parse(&bytes), Ok(of_growth()));
        let plain = sample().bytes();
        assert!(plain.starts_with(b"pagewarden repair undo 1\n"));
        assert!(!plain.windows(10).any(|bytes| bytes == b"old_length"));
        let mut hostile = of_growth();
        hostile.pages[0].entry.old_length = Some(65);
        assert!(UndoFile::parse(&hostile.bytes()).is_err());
        hostile.pages[0].entry.old_length = Some(10);
        hostile.pages[0].entry.is_new = true;
        assert!(UndoFile::parse(&hostile.bytes()).is_err());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let bytes = sample().bytes();
        for at in 0..bytes.len() {
            assert!(UndoFile::parse(&bytes[..at]).is_err(), "{at} bytes");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(UndoFile::parse(&flipped).is_err(), "bit {bit} of {at}");
            }
        }
    }

    #[test]
    fn undo_file_that_leads_outside_is_refused() {
        for file in ["/etc/passwd", "../x", "base/../../x", ""] {
            let mut undo = sample();
            undo.pages[0].entry.file = file.to_owned();
            assert!(UndoFile::parse(&undo.bytes()).is_err(), "{file}");
        }
    }
}
