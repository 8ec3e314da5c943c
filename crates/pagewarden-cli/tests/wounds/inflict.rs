//! Ways to wound a file or a folder, drawn at random, and how they are undone.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::subject::{Class, Subject, Thing};
use crate::clusters::give_to_owner_of_folder;
use crate::damage::{Damage, Dice, PAGE, computed, stored};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    // To some pages of a file.
    OneBit,
    Noise,
    HeaderOnly,
    Torn512,
    Torn4096,
    Zeroed,
    ZeroedRange,
    Swapped,
    OfAnotherBlock,
    OfAnotherRelation,
    OlderPage,
    // To a file's end.
    CutBetweenPages,
    CutInsideAPage,
    GrownByNoise,
    GrownByZeroPages,
    // To all of a file.
    OlderFile,
    Removed,
    Emptied,
    HalfCut,
    AllZeroed,
    Dangling,
}

impl Kind {
    pub const OF_PAGES: [Self; 16] = [
        Self::OneBit,
        Self::Noise,
        Self::HeaderOnly,
        Self::Torn512,
        Self::Torn4096,
        Self::Zeroed,
        Self::ZeroedRange,
        Self::Swapped,
        Self::OfAnotherBlock,
        Self::OfAnotherRelation,
        Self::OlderPage,
        Self::CutBetweenPages,
        Self::CutInsideAPage,
        Self::GrownByNoise,
        Self::GrownByZeroPages,
        Self::OlderFile,
    ];
    /// The ways in which a thing as a whole is lost.
    pub const LOSSES: [Self; 5] =
        [Self::Removed, Self::Emptied, Self::HalfCut, Self::AllZeroed, Self::Dangling];

    pub fn is_loss(self) -> bool {
        Self::LOSSES.contains(&self)
    }
}

/// What was done, enough to do it again elsewhere.
#[derive(Debug, Clone)]
pub struct Wound {
    pub kind: Kind,
    pub thing: Thing,
    /// The blocks that are not as they were; none if it is the file as a whole.
    pub blocks: Vec<u64>,
    change: Change,
    /// Where a page of another relation is from.
    origin: Option<Class>,
    /// True if 16 bits of checksum happen to be right all the same.
    pub is_right_by_chance: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Content(Vec<u8>),
    Gone,
    Dangling,
}

/// A wound that was inflicted: heals when it goes.
pub struct Inflicted {
    path: PathBuf,
    before: Before,
}

enum Before {
    Content(Vec<u8>),
    Aside(PathBuf),
}

impl Wound {
    /// A wound to what stands there now; `None` if it cannot be of this kind, or would
    /// change nothing.
    pub fn draw(subject: &Subject, thing: &Thing, kind: Kind, dice: &mut Dice) -> Option<Self> {
        let whole = |change| Self {
            kind,
            thing: thing.clone(),
            blocks: Vec::new(),
            change,
            origin: None,
            is_right_by_chance: false,
        };
        let is_file = !matches!(thing.class, Class::Folder | Class::TablespaceLink);
        match kind {
            Kind::Removed => return Some(whole(Change::Gone)),
            Kind::Dangling => return Some(whole(Change::Dangling)),
            _ if !is_file => return None,
            _ => {}
        }
        let sound = subject.read(thing);
        let mut bytes = sound.clone();
        let origin = alter(subject, thing, kind, dice, &mut bytes)?;
        if bytes == sound {
            return None;
        }
        let count = sound.len().max(bytes.len()).div_ceil(PAGE);
        let differs = |block: &usize| {
            let page = |bytes: &[u8]| {
                bytes.chunks(PAGE).nth(*block).map(<[u8]>::to_vec).unwrap_or_default()
            };
            page(&sound) != page(&bytes)
        };
        let changed: Vec<usize> = (0..count).filter(differs).collect();
        let is_right_by_chance = changed.iter().all(|block| {
            let page = bytes.chunks_exact(PAGE).nth(*block);
            page.is_some_and(|page| stored(page) == computed(page, *block as u32))
        });
        let blocks = changed.into_iter().map(|block| block as u64).collect();
        let blocks = if kind.is_loss() || kind == Kind::OlderFile { Vec::new() } else { blocks };
        Some(Self { blocks, origin, is_right_by_chance, ..whole(Change::Content(bytes)) })
    }

    pub fn inflict(&self, root: &Path) -> Inflicted {
        let path = root.join(&self.thing.path);
        let before = match &self.change {
            Change::Content(bytes) => {
                let sound = fs::read(&path).unwrap();
                fs::write(&path, bytes).unwrap();
                Before::Content(sound)
            }
            Change::Gone | Change::Dangling => {
                let name = self.thing.path.replace('/', "+");
                let aside = root.parent().unwrap().join(format!("aside-{name}"));
                fs::rename(&path, &aside).unwrap();
                if matches!(self.change, Change::Dangling) {
                    symlink("/nowhere/at/all", &path).unwrap();
                    give_to_owner_of_folder(&path);
                }
                Before::Aside(aside)
            }
        };
        Inflicted { path, before }
    }

    /// True for a page of a relation of the same kind: tables and maps look the same.
    pub fn is_of_same_kind(&self) -> bool {
        let like = |class| match class {
            Class::FreeSpace | Class::VisibilityMap => Class::Heap,
            // That of an index.
            Class::Init => Class::Btree,
            other => other,
        };
        self.origin.is_some_and(|origin| like(origin) == like(self.thing.class))
    }

    pub fn describe(&self) -> String {
        let Thing { path, class } = &self.thing;
        format!("{:?} {class:?} {path} {:?}", self.kind, self.blocks)
    }
}

impl Drop for Inflicted {
    fn drop(&mut self) {
        match &self.before {
            Before::Content(sound) => fs::write(&self.path, sound).unwrap(),
            Before::Aside(aside) => {
                let _ = fs::remove_file(&self.path);
                fs::rename(aside, &self.path).unwrap();
            }
        }
    }
}

fn is_used(page: &[u8]) -> bool {
    page.iter().any(|byte| *byte != 0)
}

/// A block in use, or any page of what has no page headers.
fn used_block(bytes: &[u8], dice: &mut Dice) -> Option<usize> {
    let pages = bytes.chunks_exact(PAGE).enumerate();
    let used: Vec<_> = pages.filter(|(_, page)| is_used(page)).map(|(block, _)| block).collect();
    (!used.is_empty()).then(|| used[dice.within(0..used.len())])
}

fn place(block: usize) -> std::ops::Range<usize> {
    block * PAGE..(block + 1) * PAGE
}

fn alter(
    subject: &Subject,
    thing: &Thing,
    kind: Kind,
    dice: &mut Dice,
    bytes: &mut Vec<u8>,
) -> Option<Option<Class>> {
    let older = subject.older.get(&thing.path);
    let old_page = |block: usize| older.and_then(|old| old.get(place(block))).map(<[u8]>::to_vec);
    let has_headers = !matches!(thing.class, Class::TransactionStatus | Class::Log | Class::Small);
    match kind {
        Kind::OneBit if bytes.is_empty() => return None,
        Kind::OneBit => {
            // In a page that is used, where there are pages.
            let begin = used_block(bytes, dice).map_or(0, |block| block * PAGE);
            let end = bytes.len().min(begin + PAGE);
            bytes[dice.within(begin..end)] ^= 1 << dice.within(0..8);
        }
        Kind::Noise => {
            let block = used_block(bytes, dice)?;
            Damage::Noise.inflict(dice, &mut bytes[place(block)], block as u32);
        }
        Kind::HeaderOnly => {
            let kinds = [
                Damage::HeaderSmallLsn,
                Damage::HeaderHugeLsn,
                Damage::HeaderUpperZero,
                Damage::UpperZero,
                Damage::ChecksumZero,
            ];
            let block = used_block(bytes, dice).filter(|_| has_headers)?;
            let kind = kinds[dice.within(0..kinds.len())];
            kind.inflict(dice, &mut bytes[place(block)], block as u32);
        }
        Kind::Torn512 | Kind::Torn4096 => {
            let at = if kind == Kind::Torn512 { 512 * dice.within(1..16) } else { 4096 };
            let block = used_block(bytes, dice)?;
            let old = old_page(block).filter(|old| old[at..] != bytes[place(block)][at..])?;
            bytes[place(block)][at..].copy_from_slice(&old[at..]);
            // Only the tail had changed, or only the head: then it is the older page, whole.
            if bytes[place(block)] == old[..] {
                return None;
            }
        }
        Kind::Zeroed => {
            let block = used_block(bytes, dice)?;
            bytes[place(block)].fill(0);
        }
        Kind::ZeroedRange => {
            let block = used_block(bytes, dice)?;
            let end = bytes.len().min((block + dice.within(2..9)) * PAGE);
            bytes[block * PAGE..end].fill(0);
        }
        Kind::Swapped | Kind::OfAnotherBlock => {
            let (one, other) = (used_block(bytes, dice)?, used_block(bytes, dice)?);
            let (first, second) = (bytes[place(one)].to_vec(), bytes[place(other)].to_vec());
            bytes[place(one)].copy_from_slice(&second);
            if kind == Kind::Swapped {
                bytes[place(other)].copy_from_slice(&first);
            }
        }
        Kind::OfAnotherRelation => {
            let block = used_block(bytes, dice).filter(|_| has_headers)?;
            let other = &subject.things[dice.within(0..subject.things.len())];
            let is_relation = !matches!(
                other.class,
                Class::TransactionStatus
                    | Class::Log
                    | Class::Small
                    | Class::Folder
                    | Class::TablespaceLink
            );
            let content = is_relation.then(|| subject.read(other))?;
            let page = content.get(place(block)).filter(|page| is_used(page))?;
            bytes[place(block)].copy_from_slice(page);
            return Some(Some(other.class));
        }
        Kind::OlderPage => {
            let block = used_block(bytes, dice)?;
            let old = old_page(block).filter(|old| is_used(old))?;
            bytes[place(block)].copy_from_slice(&old);
        }
        _ => alter_length(kind, older, dice, bytes)?,
    }
    Some(None)
}

fn alter_length(
    kind: Kind,
    older: Option<&Vec<u8>>,
    dice: &mut Dice,
    bytes: &mut Vec<u8>,
) -> Option<()> {
    let pages = bytes.len() / PAGE;
    match kind {
        Kind::CutBetweenPages if pages < 2 => return None,
        Kind::CutBetweenPages => bytes.truncate(dice.within(1..pages) * PAGE),
        Kind::CutInsideAPage if bytes.len() < 2 => return None,
        Kind::CutInsideAPage => {
            let cut = dice.within(1..bytes.len());
            bytes.truncate(if cut.is_multiple_of(PAGE) { cut + 1 } else { cut });
        }
        Kind::GrownByNoise => {
            let mut noise = vec![0; dice.within(1..2 * PAGE)];
            dice.fill(&mut noise);
            noise[0] |= 1;
            bytes.extend(noise);
        }
        Kind::GrownByZeroPages => bytes.resize((pages + dice.within(1..4)) * PAGE, 0),
        Kind::OlderFile => bytes.clone_from(older?),
        Kind::Emptied => bytes.clear(),
        // At a page boundary, where it has pages.
        Kind::HalfCut if pages > 1 => bytes.truncate(pages / 2 * PAGE),
        Kind::HalfCut => bytes.truncate(bytes.len() / 2),
        Kind::AllZeroed => bytes.fill(0),
        other => unreachable!("{other:?}"),
    }
    Some(())
}
