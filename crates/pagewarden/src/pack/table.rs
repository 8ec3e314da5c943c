//! What is in a pack: its files and folders, with what the system knows of them.
//!
//! ```text
//! offset  size  field of an entry
//!      0     1  0 a folder, 1 a file, 2 a file with holes
//!      1     2  length of its name
//!      3        its name: relative to the packed folder, parts divided by "/";
//!               "." for that folder itself, which is the first entry
//!            4  mode, the lowest twelve bits
//!            4  number of its owner
//!            4  of its group
//!            8  when it was last written, seconds since 1970, signed
//!            4  and nanoseconds
//!               of a file also:
//!            8  bytes in it; in the record of a file that came as a stream all
//!               bits are set
//!           32  BLAKE3 hash of them
//!               of a link also:
//!            2  length of the path that it leads to
//!               that path, an absolute one
//! ```
//!
//! Folders come before what is in them. A link's folder lies elsewhere, and what is
//! in it stands here as if it lay below the link. Names are bytes that mean what the system
//! they come from took them for.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use pagewarden_core::system::{OsStrExt as _, path_of_bytes};

use crate::pack::PackError;
use crate::pack::layout::Fields;
use crate::pack::tree::Hash;

/// The name of the packed folder itself.
pub(super) const ROOT: &str = ".";

/// What the system knows of a file or a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Who may do what: the lowest twelve bits of `st_mode`.
    pub mode: u32,
    /// The number of its owner.
    pub owner: u32,
    /// The number of its group.
    pub group: u32,
    /// When it was last written, in seconds since 1970.
    pub modified_seconds: i64,
    /// And nanoseconds.
    pub modified_nanoseconds: u32,
}

/// What stands in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A folder.
    Folder,
    /// A file.
    File {
        /// Its length.
        bytes: u64,
        /// It had holes, and is to have some again.
        has_holes: bool,
        /// The BLAKE3 hash of its bytes.
        hash: [u8; 32],
    },
}

/// A file or a folder of a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to what was packed; the name alone if that was a file.
    pub name: PathBuf,
    /// What the system knows of it.
    pub attributes: Attributes,
    /// What it is.
    pub what: What,
    /// The absolute path of the folder, if this is one that a link leads to.
    pub link: Option<PathBuf>,
}

/// The length in the record of a file that came as a stream.
pub(super) const UNKNOWN_BYTES: u64 = u64::MAX;

impl Entry {
    /// Bytes in it, if it is a file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self.what {
            What::Folder => 0,
            What::File { bytes, .. } => bytes,
        }
    }

    /// As it stands in the table; in a record without the hash.
    pub(super) fn to_bytes(&self, with_hash: bool) -> Vec<u8> {
        let name = self.name.as_os_str().as_bytes();
        let what: u8 = match self.what {
            What::Folder if self.link.is_some() => 3,
            What::Folder => 0,
            What::File { has_holes: false, .. } => 1,
            What::File { has_holes: true, .. } => 2,
        };
        let attributes = &self.attributes;
        let mut bytes = vec![what];
        // Longer names are refused before anything is packed.
        bytes.extend(u16::try_from(name.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(name);
        for number in [attributes.mode, attributes.owner, attributes.group] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(attributes.modified_seconds.to_le_bytes());
        bytes.extend(attributes.modified_nanoseconds.to_le_bytes());
        if let What::File { bytes: length, hash, .. } = self.what {
            bytes.extend(length.to_le_bytes());
            if with_hash {
                bytes.extend(hash);
            }
        }
        if let Some(link) = &self.link {
            let link = link.as_os_str().as_bytes();
            bytes.extend(u16::try_from(link.len()).unwrap_or(0).to_le_bytes());
            bytes.extend(link);
        }
        bytes
    }

    pub(super) fn parse(fields: &mut Fields<'_>, with_hash: bool) -> Option<Self> {
        let what = fields.u8()?;
        let name = path(fields)?;
        let attributes = Attributes {
            mode: fields.u32()?,
            owner: fields.u32()?,
            group: fields.u32()?,
            modified_seconds: fields.i64()?,
            modified_nanoseconds: fields.u32()?,
        };
        let mut link = None;
        let what = match what {
            0 => What::Folder,
            1 | 2 => {
                let bytes = fields.u64()?;
                let hash: Hash = if with_hash { fields.hash()? } else { [0; 32] };
                What::File { bytes, has_holes: what == 2, hash }
            }
            3 => {
                link = Some(path(fields)?);
                What::Folder
            }
            _ => return None,
        };
        Some(Self { name, attributes, what, link })
    }
}

/// A length of two bytes, and a path of that length.
fn path(fields: &mut Fields<'_>) -> Option<PathBuf> {
    let bytes = usize::from(fields.u16()?);
    path_of_bytes(fields.take(bytes)?)
}

/// The table as bytes, whose hash is the root.
pub(super) fn to_bytes(entries: &[Entry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_bytes(true)).collect()
}

/// Reads a table.
///
/// # Errors
/// It is none, or one whose names lead elsewhere, or stand for two things.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Entry>, PackError> {
    let mut fields = Fields(bytes);
    let mut entries = Vec::new();
    let mut names = Names::default();
    while !fields.0.is_empty() {
        let entry = Entry::parse(&mut fields, true);
        let entry = entry.ok_or(PackError::Hostile("its table of files cannot be read"))?;
        names.add(&entry)?;
        entries.push(entry);
    }
    Ok(entries)
}

/// The names that came before.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// And whether they are folders.
    seen: HashMap<PathBuf, bool>,
}

impl Names {
    /// # Errors
    /// The entry leads elsewhere, lies in no folder, or is there already.
    pub(super) fn add(&mut self, entry: &Entry) -> Result<(), PackError> {
        let is_root = self.seen.is_empty() && entry.name == Path::new(ROOT) && entry.link.is_none();
        if (!is_root && !is_plain(&entry.name)) || entry.attributes.mode > 0o7777 {
            return Err(PackError::Hostile("a name in its table leads elsewhere"));
        }
        // Absolute where it comes from, which may be another system.
        let is_odd = |link: &PathBuf| !link.has_root() || link.as_os_str().as_bytes().contains(&0);
        if entry.link.as_ref().is_some_and(is_odd) {
            return Err(PackError::Hostile("a link in its table leads nowhere"));
        }
        let parent = entry.name.parent().unwrap_or(Path::new(""));
        if parent != Path::new("") && self.seen.get(parent) != Some(&true) {
            return Err(PackError::Hostile("a file in its table lies in no folder of it"));
        }
        if self.seen.insert(entry.name.clone(), entry.what == What::Folder).is_some() {
            return Err(PackError::Hostile("two files in its table have one name"));
        }
        Ok(())
    }
}

/// True for a name that stays where it is put, however it is joined.
fn is_plain(name: &Path) -> bool {
    let bytes = name.as_os_str().as_bytes();
    let parts = bytes.split(|byte| *byte == b'/').count();
    let plain = name.components().filter(|part| matches!(part, Component::Normal(_))).count();
    // Parts that `components` passes over silently would be two ways to write one name.
    plain == parts && name.components().count() == parts && !bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Entry {
        let what = What::File { bytes: 70_000, has_holes: true, hash: [7; 32] };
        let attributes = Attributes { mode: 0o600, modified_seconds: -1, ..Attributes::default() };
        Entry { name: name.into(), attributes, what, link: None }
    }

    fn folder(name: &str) -> Entry {
        Entry { what: What::Folder, ..file(name) }
    }

    #[test]
    fn tables_come_back() {
        let entries = [
            folder("."),
            folder("base"),
            folder("base/5"),
            file("base/5/1259"),
            folder("pg_tblspc"),
            Entry { link: Some("/srv/space".into()), ..folder("pg_tblspc/16385") },
            file("pg_tblspc/16385/x"),
            file("PG_VERSION"),
        ];
        assert_eq!(parse(&to_bytes(&entries)).unwrap(), entries);
        assert_eq!(parse(&[]).unwrap(), []);
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for name in ["..", ".", "/etc/passwd", "a/../../b", "a//b", "a/./b", "a/", "", "a\0b"] {
            assert!(parse(&to_bytes(&[folder("a"), file(name)])).is_err(), "{name:?}");
        }
        for entries in [vec![file("a"), file("a")], vec![file("a"), file("a/b")], vec![file("x/b")]]
        {
            assert!(parse(&to_bytes(&entries)).is_err(), "{entries:?}");
        }
        for link in ["", "srv", "../srv", "/a\0b"] {
            let entry = Entry { link: Some(link.into()), ..folder("a") };
            assert!(parse(&to_bytes(&[entry])).is_err(), "{link:?}");
        }
        let bytes = to_bytes(&[file("base")]);
        for end in 1..bytes.len() {
            assert!(parse(&bytes[..end]).is_err(), "{end}");
        }
    }
}
