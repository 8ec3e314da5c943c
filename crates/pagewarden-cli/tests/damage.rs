//! Ways to damage a page, drawn at random from a seed that a failing test
//! prints. Damage that 16 bits of checksum cannot see is drawn again: chance
//! passes one page in 65,535, and is tested elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::{env, thread};

use pagewarden::formats::postgres::checksum::{checksum, hash_pages};
use pagewarden::formats::postgres::page::{Header, MAX_ALIGN};

pub const PAGE: usize = 8192;

/// Random numbers from a seed: `PAGEWARDEN_SEED`, or always the same.
pub struct Dice {
    seed: u64,
    state: u64,
}

impl Dice {
    pub fn seeded() -> Self {
        let seed = env::var("PAGEWARDEN_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(0x5EED);
        Self { seed, state: seed }
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// From `begin` to just before `end`.
    pub fn within(&mut self, range: std::ops::Range<usize>) -> usize {
        let width = (range.end - range.start) as u64;
        range.start + usize::try_from(self.next() % width).unwrap()
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.next().to_le_bytes()[0];
        }
    }
}

impl Drop for Dice {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("to repeat this: PAGEWARDEN_SEED={}", self.seed);
        }
    }
}

/// Kinds of damage to one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// One bit between the line pointers and the end of the page.
    BitInTuple,
    /// One bit of the high word of pd_lsn: a page from the far future.
    BitInHighLsn,
    /// 24 random bytes, the LSN kept small.
    HeaderSmallLsn,
    /// 24 random bytes, the LSN huge.
    HeaderHugeLsn,
    /// 24 random bytes with pd_upper = 0, which `pg_checksums` takes for a new
    /// page.
    HeaderUpperZero,
    /// pd_upper = 0 and nothing else.
    UpperZero,
    /// 8,192 random bytes.
    Noise,
    /// pd_checksum = 0.
    ChecksumZero,
    /// A sound page with an LSN no log has reached.
    FutureLsn,
    /// A sound page whose flags no server sets.
    ForeignFlags,
}

impl Damage {
    pub const ALL: [Self; 10] = [
        Self::BitInTuple,
        Self::BitInHighLsn,
        Self::HeaderSmallLsn,
        Self::HeaderHugeLsn,
        Self::HeaderUpperZero,
        Self::UpperZero,
        Self::Noise,
        Self::ChecksumZero,
        Self::FutureLsn,
        Self::ForeignFlags,
    ];

    /// What it must be called.
    pub fn kind(self) -> &'static str {
        match self {
            Self::BitInTuple | Self::BitInHighLsn | Self::ChecksumZero => "checksum",
            Self::HeaderSmallLsn
            | Self::HeaderHugeLsn
            | Self::HeaderUpperZero
            | Self::UpperZero
            | Self::Noise
            | Self::ForeignFlags => "header",
            Self::FutureLsn => "future_lsn",
        }
    }

    /// Words that its evidence must contain.
    pub fn says(self) -> &'static str {
        match self {
            Self::BitInTuple | Self::BitInHighLsn => "pd_lsn",
            Self::ChecksumZero => "the stored checksum is 0",
            Self::HeaderUpperZero | Self::UpperZero => "pd_upper is 0 but the page is not empty",
            Self::FutureLsn => "beyond the end of the log",
            Self::ForeignFlags => "pd_flags",
            Self::HeaderSmallLsn | Self::HeaderHugeLsn | Self::Noise => "pd_",
        }
    }

    /// Damages the page of that block.
    pub fn inflict(self, dice: &mut Dice, page: &mut [u8], block: u32) {
        let sound = page.to_vec();
        for _ in 0..100 {
            page.copy_from_slice(&sound);
            self.once(dice, page, block);
            let sound_after_all = match self {
                // Found by the header, whatever the sum says.
                Self::FutureLsn | Self::ForeignFlags => false,
                Self::HeaderUpperZero | Self::UpperZero => false,
                _ => stored(page) == computed(page, block),
            };
            let header_after_all = self.kind() == "header"
                && !matches!(self, Self::HeaderUpperZero | Self::UpperZero)
                && Header::read(page).unwrap().fault(PAGE, MAX_ALIGN).is_none();
            if !sound_after_all && !header_after_all && page != sound {
                return;
            }
        }
        panic!("{self:?} changes nothing on this page of block {block}");
    }

    fn once(self, dice: &mut Dice, page: &mut [u8], block: u32) {
        match self {
            Self::BitInTuple => {
                let upper = usize::from(Header::read(page).unwrap().upper).min(PAGE - 1);
                page[dice.within(upper..PAGE)] ^= 1 << dice.within(0..8);
            }
            Self::BitInHighLsn => page[dice.within(0..4)] ^= 1 << dice.within(0..8),
            Self::HeaderSmallLsn => {
                dice.fill(&mut page[4..24]);
                page[..4].fill(0);
                page[7] = 0;
                page[14] |= 1;
            }
            Self::HeaderHugeLsn => {
                dice.fill(&mut page[..24]);
                page[..4].copy_from_slice(&0x7FFF_FFFF_u32.to_le_bytes());
                page[14] |= 1;
            }
            Self::HeaderUpperZero => {
                dice.fill(&mut page[..24]);
                page[14..16].fill(0);
            }
            Self::UpperZero => page[14..16].fill(0),
            Self::Noise => {
                dice.fill(page);
                page[14] |= 1;
            }
            Self::ChecksumZero => page[8..10].fill(0),
            Self::FutureLsn => {
                page[..4].copy_from_slice(&0x7FFF_u32.to_le_bytes());
                stamp(page, block);
            }
            Self::ForeignFlags => {
                page[11] |= 1 << dice.within(0..8);
                stamp(page, block);
            }
        }
    }
}

/// pd_checksum as it stands.
pub fn stored(page: &[u8]) -> u16 {
    Header::read(page).unwrap().checksum
}

/// pd_checksum as it ought to be.
pub fn computed(page: &[u8], block: u32) -> u16 {
    let mut hash = [0];
    hash_pages(page, PAGE, &mut hash);
    checksum(hash[0], block)
}

/// Makes the sum right, as a server does when it writes the page.
pub fn stamp(page: &mut [u8], block: u32) {
    let sum = computed(page, block);
    page[8..10].copy_from_slice(&sum.to_le_bytes());
}

/// One page of a file's bytes.
pub fn page(bytes: &[u8], block: u32) -> &[u8] {
    let begin = block as usize * PAGE;
    &bytes[begin..begin + PAGE]
}

/// One page of a file's bytes, to be changed.
pub fn page_mut(bytes: &mut [u8], block: u32) -> &mut [u8] {
    let begin = block as usize * PAGE;
    &mut bytes[begin..begin + PAGE]
}

/// A file that is changed for a while and put back when this is dropped.
pub struct Wound {
    path: PathBuf,
    sound: Option<Vec<u8>>,
}

impl Wound {
    /// Remembers the file, or that there is none.
    pub fn to(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        let sound = fs::read(&path).ok();
        Self { path, sound }
    }

    /// The bytes before.
    pub fn sound(&self) -> &[u8] {
        self.sound.as_deref().expect("there was a file")
    }

    /// Changes the file's bytes.
    pub fn change(self, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = self.sound.clone().unwrap_or_default();
        change(&mut bytes);
        self.write(&bytes)
    }

    /// Gives the file other bytes.
    pub fn write(self, bytes: &[u8]) -> Self {
        fs::write(&self.path, bytes).unwrap();
        self
    }

    /// Damages one page.
    pub fn inflict(self, damage: Damage, dice: &mut Dice, block: u32) -> Self {
        self.change(|bytes| damage.inflict(dice, page_mut(bytes, block), block))
    }

    /// Removes the file.
    pub fn remove(self) -> Self {
        fs::remove_file(&self.path).unwrap();
        self
    }
}

impl Drop for Wound {
    fn drop(&mut self) {
        let restored = match &self.sound {
            Some(sound) => fs::write(&self.path, sound),
            None => fs::remove_file(&self.path),
        };
        if let Err(error) = restored {
            eprintln!("cannot restore {}: {error}", self.path.display());
        }
    }
}
