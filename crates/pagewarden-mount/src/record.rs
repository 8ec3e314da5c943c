//! What has become of a name or a page, to and from bytes. See `journal` for where it
//! stands.
//!
//! Nodes and contents are called by their numbers: those of a pack follow from its
//! table, so that they are the same at each mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use crate::delta::Slot;
use crate::options::Owner;

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    Folder,
    /// The number of its contents.
    File(u64),
    /// Where it leads.
    Link(OsString),
    Pipe,
    Socket,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) parent: u64,
    pub(crate) name: OsString,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Make {
        node: u64,
        at: Named,
        made: Made,
        mode: u32,
        owner: Owner,
        time: SystemTime,
    },
    Link {
        node: u64,
        at: Named,
    },
    /// A name is gone, of a file or of an empty folder.
    Remove {
        at: Named,
    },
    Rename {
        from: Named,
        to: Named,
    },
    /// Mode, owner and time of a node are these.
    Facts {
        node: u64,
        mode: u32,
        owner: Owner,
        modified: SystemTime,
    },
    /// Pages of a file that follow each other are in these slots, and its length is
    /// this at least.
    Pages {
        contents: u64,
        first: u64,
        slots: Vec<Slot>,
        bytes: u64,
    },
    /// The length of a file, and how many of the packed bytes count.
    Length {
        contents: u64,
        bytes: u64,
        packed_bytes: u64,
    },
    /// A sync begins here, counted from the begin of the log.
    Mark {
        begin: u64,
    },
}

impl Record {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out(Vec::new());
        match self {
            Self::Make { node, at, made, mode, owner, time } => {
                out.numbers(0, &[*node]);
                out.named(at);
                match made {
                    Made::Folder => out.numbers(0, &[]),
                    Made::File(contents) => out.numbers(1, &[*contents]),
                    Made::Link(target) => {
                        out.numbers(2, &[]);
                        out.name(target);
                    }
                    Made::Pipe => out.numbers(3, &[]),
                    Made::Socket => out.numbers(4, &[]),
                }
                out.facts(*mode, *owner, *time);
            }
            Self::Link { node, at } => {
                out.numbers(1, &[*node]);
                out.named(at);
            }
            Self::Remove { at } => {
                out.numbers(2, &[]);
                out.named(at);
            }
            Self::Rename { from, to } => {
                out.numbers(3, &[]);
                out.named(from);
                out.named(to);
            }
            Self::Facts { node, mode, owner, modified } => {
                out.numbers(4, &[*node]);
                out.facts(*mode, *owner, *modified);
            }
            Self::Pages { contents, first, slots, bytes } => {
                out.numbers(5, &[*contents, *first, *bytes]);
                for slot in slots {
                    out.0.extend(slot.number().to_le_bytes());
                }
            }
            Self::Length { contents, bytes, packed_bytes } => {
                out.numbers(6, &[*contents, *bytes, *packed_bytes]);
            }
            Self::Mark { begin } => out.numbers(7, &[*begin]),
        }
        out.0
    }

    /// `None` for what is no record.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = In(bytes);
        let record = match fields.kind()? {
            0 => {
                let (node, at) = (fields.number()?, fields.named()?);
                let made = match fields.kind()? {
                    0 => Made::Folder,
                    1 => Made::File(fields.number()?),
                    2 => Made::Link(fields.name()?),
                    3 => Made::Pipe,
                    4 => Made::Socket,
                    _ => return None,
                };
                let (mode, owner, time) = fields.facts()?;
                Self::Make { node, at, made, mode, owner, time }
            }
            1 => Self::Link { node: fields.number()?, at: fields.named()? },
            2 => Self::Remove { at: fields.named()? },
            3 => Self::Rename { from: fields.named()?, to: fields.named()? },
            4 => {
                let node = fields.number()?;
                let (mode, owner, modified) = fields.facts()?;
                Self::Facts { node, mode, owner, modified }
            }
            5 => {
                let (contents, first, bytes) =
                    (fields.number()?, fields.number()?, fields.number()?);
                let mut slots = Vec::new();
                while !fields.0.is_empty() {
                    slots.push(Slot::of(fields.number()?));
                }
                Self::Pages { contents, first, slots, bytes }
            }
            6 => Self::Length {
                contents: fields.number()?,
                bytes: fields.number()?,
                packed_bytes: fields.number()?,
            },
            7 => Self::Mark { begin: fields.number()? },
            _ => return None,
        };
        fields.0.is_empty().then_some(record)
    }
}

struct Out(Vec<u8>);

impl Out {
    fn numbers(&mut self, kind: u8, numbers: &[u64]) {
        self.0.push(kind);
        self.0.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }

    fn name(&mut self, name: &OsStr) {
        self.0.extend(u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.0.extend(name.as_bytes());
    }

    fn named(&mut self, named: &Named) {
        self.0.extend(named.parent.to_le_bytes());
        self.name(&named.name);
    }

    fn facts(&mut self, mode: u32, owner: Owner, time: SystemTime) {
        for number in [mode, owner.user, owner.group] {
            self.0.extend(number.to_le_bytes());
        }
        // Before 1970 nothing was written here; times set so become 1970.
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.0.extend(since.as_secs().to_le_bytes());
        self.0.extend(since.subsec_nanos().to_le_bytes());
    }
}

struct In<'a>(&'a [u8]);

impl In<'_> {
    fn kind(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn small(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn name(&mut self) -> Option<OsString> {
        let length = usize::try_from(self.small()?).ok()?;
        let (name, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(OsStr::from_bytes(name).to_owned())
    }

    fn named(&mut self) -> Option<Named> {
        Some(Named { parent: self.number()?, name: self.name()? })
    }

    fn facts(&mut self) -> Option<(u32, Owner, SystemTime)> {
        let mode = self.small()?;
        let owner = Owner { user: self.small()?, group: self.small()? };
        let since = Duration::new(self.number()?, self.small()?.min(999_999_999));
        Some((mode, owner, SystemTime::UNIX_EPOCH.checked_add(since)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_cut_ones_are_none() {
        let at = |name: &str| Named { parent: 7, name: name.into() };
        let owner = Owner { user: 101, group: 104 };
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 5);
        let make = |made| Record::Make { node: 9, at: at("a"), made, mode: 0o600, owner, time };
        let records = [
            make(Made::Folder),
            make(Made::File(1 << 40)),
            make(Made::Link("../x".into())),
            make(Made::Pipe),
            make(Made::Socket),
            Record::Link { node: 9, at: at("b") },
            Record::Remove { at: at("b") },
            Record::Rename { from: at("b"), to: at("") },
            Record::Facts { node: 3, mode: 0o640, owner, modified: time },
            Record::Pages {
                contents: 4,
                first: 12,
                slots: vec![Slot::of(5), Slot::of(9)],
                bytes: 77,
            },
            Record::Length { contents: 4, bytes: 90, packed_bytes: 80 },
            Record::Mark { begin: 5 },
        ];
        for record in records {
            let bytes = record.to_bytes();
            assert_eq!(Record::parse(&bytes).as_ref(), Some(&record));
            for end in 0..bytes.len() {
                let cut = Record::parse(&bytes[..end]);
                // Fewer slots are a record, which the sum around it tells from this one.
                assert!(cut.is_none() || matches!(cut, Some(Record::Pages { .. })), "{record:?}");
            }
        }
        assert_eq!(Record::parse(&[99]), None);
    }
}
