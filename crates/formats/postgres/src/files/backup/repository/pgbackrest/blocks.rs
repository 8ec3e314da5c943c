//! A file that is stored by its changed blocks: super blocks of several sets, put together by the
//! [block map](super::block_map).
//!
//! ```text
//! the stored range of one version: super block | super block | ... | block map (`bim` bytes)
//! ```

use std::io::{self, Read};
use std::sync::{Arc, PoisonError};

use sha1::{Digest as _, Sha1};
use twox_hash::XxHash3_128;

use crate::files::backup::members::{Broken, Piece};
use crate::files::backup::repository::pgbackrest::block_map::{BlockMap, Shape, SuperBlock};
use crate::files::backup::repository::pgbackrest::cipher::Decrypted;
use crate::files::backup::repository::pgbackrest::expiry::EXPIRED;
use crate::files::backup::repository::pgbackrest::info::hex;
use crate::files::backup::repository::pgbackrest::manifest::Entry;
use crate::files::backup::repository::pgbackrest::place::{SetPlace, lost};
use crate::files::backup::repository::pgbackrest::stored::{Coding, Range};
use crate::files::backup::repository::pgbackrest::whole::{fault_of_content, not_opened};
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{Kind, StoredPlace};

/// The map of a file of a tebibyte has 200 MiB; files of a server have a gibibyte.
const MAP_BYTES_MAX: u64 = 32 << 20;
/// What is kept of restored super blocks, of which neighbouring blocks may lie in several.
const CACHE_BYTES_MAX: usize = 24 << 20;
/// The checksums of blocks in a map, where the manifest does not say it.
const CHECKSUM_BYTES: usize = 6;

/// See the module.
pub(super) struct BlockFile {
    entry: Entry,
    shape: Shape,
    map: BlockMap,
    /// The stored range with the map, read on as far as super blocks were.
    range: Range,
    /// What is known of each super block.
    states: Vec<State>,
    cache: Vec<(usize, Arc<Vec<u8>>)>,
    /// `None` once something did not come.
    hash: Option<Sha1>,
    given: u64,
    /// Something wrong was said of its blocks.
    has_fault: bool,
    /// The last block that was found not to fit.
    lost_block: Option<usize>,
    /// Why the last block that was lost does not come.
    lost_by: String,
    /// What is wrong with its own stored range, once that was asked.
    own_fault: Option<Option<(Kind, String)>>,
}

/// What is known of a super block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be read.
    Wanted,
    /// This run has verified the blocks of it that the file has.
    Verified,
    /// It cannot be restored; said.
    Lost,
}

impl BlockFile {
    /// Opens it by its map.
    ///
    /// # Errors
    /// The step that says why not.
    pub(super) fn open(place: &SetPlace, entry: Entry) -> Result<Self, Box<Step>> {
        let shape = Shape {
            block_bytes: entry.block_bytes(),
            checksum_bytes: entry.fields.checksum_bytes.unwrap_or(CHECKSUM_BYTES),
            blocks: entry.bytes().div_ceil(entry.block_bytes().max(1)),
        };
        let path = place.folder.join(place.stored_file(&entry));
        let open = |offset, bytes| Range::open(&path, offset, bytes);
        let map_bytes = entry.fields.map_bytes.unwrap_or(0);
        if map_bytes > MAP_BYTES_MAX {
            let text = format!("its block map of {map_bytes} bytes is too large to be read");
            return Err(Box::new(place.unread(&entry, 0, entry.bytes(), &text)));
        }
        let begin = entry.fields.bundle_offset;
        let at = begin.saturating_add(entry.stored_bytes()).saturating_sub(map_bytes);
        let opened =
            open(begin, entry.stored_bytes()).and_then(|range| Ok((range, open(at, map_bytes)?)));
        let (range, tail) = match opened {
            Ok(opened) => opened,
            Err(error) => return Err(Box::new(not_opened(place, &entry, &error))),
        };
        match read_map(place, tail, shape) {
            Ok(map) => {
                let states = vec![State::Wanted; map.super_blocks.len()];
                let mut file = Self {
                    entry,
                    shape,
                    map,
                    range,
                    states,
                    cache: Vec::new(),
                    hash: Some(Sha1::new()),
                    given: 0,
                    has_fault: false,
                    lost_block: None,
                    lost_by: String::new(),
                    own_fault: None,
                };
                file.recall(place);
                Ok(file)
            }
            Err(error) => {
                let summed = range.sum_up();
                if let Some(trouble) = &summed.trouble {
                    return Err(Box::new(place.unread(&entry, 0, entry.bytes(), trouble)));
                }
                let fault = place.fault_of(&entry, &summed);
                let (kind, mut detail) = fault.unwrap_or((Kind::Structure, String::new()));
                let dash = if detail.is_empty() { "" } else { "; " };
                detail.push_str(&format!("{dash}its block map cannot be used: {error}"));
                let origin = place.origin(&entry);
                Err(Box::new(place.damage(&entry, None, origin, (kind, detail))))
            }
        }
    }

    /// See [`Members::data_left`](crate::files::backup::members::Members).
    pub(super) fn data_left(&self) -> u64 {
        self.entry.bytes().saturating_sub(self.given)
    }

    /// True if some of its blocks were verified in another set.
    pub(super) fn is_shared(&self) -> bool {
        self.states.contains(&State::Verified)
    }

    /// Reads on; at the end the steps say what is wrong.
    pub(super) fn read(
        &mut self,
        place: &SetPlace,
        bytes: &mut [u8],
        steps: &mut Vec<Step>,
    ) -> Result<Piece, Broken> {
        let (mut filled, mut hole, mut is_lost) = (0_usize, 0_u64, false);
        while self.data_left() > 0 {
            let room = bytes.get_mut(filled..).unwrap_or_default();
            if room.is_empty() {
                break;
            }
            match self.next_bytes(place, steps) {
                Some((block, begin)) if hole == 0 => {
                    let rest = block.get(begin..).unwrap_or_default();
                    let count = rest.len().min(room.len());
                    let taken = rest.get(..count).unwrap_or_default();
                    room.get_mut(..count).unwrap_or_default().copy_from_slice(taken);
                    if let Some(hash) = &mut self.hash {
                        hash.update(taken);
                    }
                    filled = filled.saturating_add(count);
                    self.given = self.given.saturating_add(count as u64);
                }
                // The hole ends here.
                Some(_) => break,
                // A hole begins here: it comes next.
                None if filled > 0 => break,
                // One of another kind begins.
                None if hole > 0 && is_lost == self.is_verified_here() => break,
                None => {
                    is_lost = !self.is_verified_here();
                    let length = self.block_length();
                    hole = hole.saturating_add(length);
                    self.hash = None;
                    self.given = self.given.saturating_add(length);
                }
            }
        }
        if hole > 0 && is_lost {
            let begin = self.given.saturating_sub(hole);
            steps.push(lost(&self.entry, begin, hole, self.lost_by.as_str()));
        }
        if self.data_left() == 0 {
            self.end(place, steps);
        }
        Ok(if hole > 0 { Piece::Hole(hole) } else { Piece::Data(filled) })
    }

    /// True if the block where it stands was verified in another set.
    fn is_verified_here(&self) -> bool {
        let index = usize::try_from(self.given / self.shape.block_bytes.max(1)).ok();
        let block = index.and_then(|index| self.map.blocks.get(index));
        let at = block.and_then(|block| usize::try_from(block.super_block).ok());
        at.and_then(|at| self.states.get(at)) == Some(&State::Verified)
    }

    /// Bytes from where it stands to the end of the block.
    fn block_length(&self) -> u64 {
        let block = self.shape.block_bytes.max(1);
        let within = self.given % block;
        block.saturating_sub(within).min(self.data_left())
    }

    /// The restored bytes of the block where it stands, and where in them it stands; `None`: they do not
    /// come.
    fn next_bytes(
        &mut self,
        place: &SetPlace,
        steps: &mut Vec<Step>,
    ) -> Option<(Arc<[u8]>, usize)> {
        let block_bytes = self.shape.block_bytes.max(1);
        let index = usize::try_from(self.given / block_bytes).ok()?;
        let within = usize::try_from(self.given % block_bytes).ok()?;
        let block = *self.map.blocks.get(index)?;
        let at = usize::try_from(block.super_block).ok()?;
        if *self.states.get(at)? != State::Wanted {
            return None;
        }
        let restored = match self.restore(place, at) {
            Ok(restored) => restored,
            Err(fault) => {
                self.lose(place, at, fault, steps);
                return None;
            }
        };
        let length = usize::try_from(self.block_length()).ok()?.saturating_add(within);
        let begin = usize::try_from(u64::from(block.number).checked_mul(block_bytes)?).ok()?;
        let stored_end = begin.saturating_add(usize::try_from(block_bytes).ok()?);
        let whole = restored.get(begin..stored_end.min(restored.len())).unwrap_or_default();
        let sum = XxHash3_128::oneshot(whole).to_be_bytes();
        let expected = self.map.checksum(index, self.shape);
        if whole.len() < length || !sum.starts_with(expected) {
            self.lose_block(place, (index, at), steps);
            return None;
        }
        Some((whole.get(..length)?.into(), within))
    }

    /// The restored super block.
    fn restore(&mut self, place: &SetPlace, at: usize) -> Result<Arc<Vec<u8>>, Fault> {
        if let Some((_, restored)) = self.cache.iter().find(|(number, _)| *number == at) {
            return Ok(Arc::clone(restored));
        }
        let Some(&super_block) = self.map.super_blocks.get(at) else {
            return Err(Fault::Wrong(Kind::Structure, "no such super block".to_owned()));
        };
        let stored_file = self.stored_file(place, &super_block)?;
        let position = super_block.offset;
        let is_next = stored_file == place.stored_file(&self.entry)
            && self.range.position() == position
            && super_block.stored_bytes <= self.range.left();
        // What comes next in the file's own range is read there: it goes into the range's sum.
        let mut range = if is_next {
            self.range.clone()
        } else {
            Range::open(&place.folder.join(&stored_file), position, super_block.stored_bytes)
                .map_err(|error| Fault::of(place, &error))?
        };
        let mut stored = vec![0; usize::try_from(super_block.stored_bytes).unwrap_or(0)];
        let count = pagewarden_core::source::decode::fill(&mut range, &mut stored)
            .map_err(|error| Fault::Unread(error.to_string()))?;
        if count < stored.len() {
            let text = "the stored file ends in the middle of a super block".to_owned();
            return Err(Fault::Wrong(Kind::Truncated, text));
        }
        let restored = decode(place, stored, super_block.bytes)
            .map_err(|text| Fault::Wrong(Kind::Checksum, text))?;
        let restored = Arc::new(restored);
        self.keep(at, &restored);
        Ok(restored)
    }

    fn keep(&mut self, at: usize, restored: &Arc<Vec<u8>>) {
        let total = |cache: &[(usize, Arc<Vec<u8>>)]| {
            cache.iter().map(|(_, bytes)| bytes.len()).fold(0, usize::saturating_add)
        };
        while !self.cache.is_empty()
            && total(&self.cache).saturating_add(restored.len()) > CACHE_BYTES_MAX
        {
            self.cache.remove(0);
        }
        self.cache.push((at, Arc::clone(restored)));
    }

    /// A super block cannot be used.
    fn lose(&mut self, place: &SetPlace, at: usize, fault: Fault, steps: &mut Vec<Step>) {
        if let Some(state) = self.states.get_mut(at) {
            *state = State::Lost;
        }
        self.has_fault = true;
        let given = self.given - self.given % self.shape.block_bytes.max(1);
        let blocks = self.map.blocks.iter().filter(|it| usize::try_from(it.super_block) == Ok(at));
        let length = (blocks.count() as u64).saturating_mul(self.shape.block_bytes);
        let length = length.min(self.entry.bytes());
        match fault {
            Fault::Unread(error) => {
                let stored = self.origin_of(place, at).stored_file;
                self.lost_by = format!("{error} ({stored})");
            }
            Fault::Wrong(kind, detail) => {
                let origin = self.origin_of(place, at);
                let detail = format!("{detail}; {length} bytes of the file are stored with it");
                steps.push(place.damage(&self.entry, Some(given), origin, (kind, detail)));
                "it cannot be restored from the stored bytes".clone_into(&mut self.lost_by);
            }
        }
    }

    /// One block, of this number in the file and in this super block, does not fit the map.
    fn lose_block(&mut self, place: &SetPlace, (index, at): (usize, usize), steps: &mut Vec<Step>) {
        self.has_fault = true;
        if self.lost_block.replace(index) == Some(index) {
            // Said when the hole was met that begins here.
            return;
        }
        let given = self.given - self.given % self.shape.block_bytes.max(1);
        let what = "a stored block does not fit its checksum in the block map";
        // The block or the map: where the range with the map is damaged, and the block is elsewhere, it is
        // the map.
        let mut origin = self.origin_of(place, at);
        let mut fault = (Kind::Checksum, what.to_owned());
        let own = place.origin(&self.entry);
        if origin.stored_file != own.stored_file
            && let Some((kind, detail)) = self.own_fault(place)
        {
            fault = (kind, format!("{what}; {detail}"));
            origin = own;
        }
        steps.push(place.damage(&self.entry, Some(given), origin, fault));
        "its stored bytes are damaged".clone_into(&mut self.lost_by);
    }

    /// What is wrong with the stored range that holds the map; asked once.
    fn own_fault(&mut self, place: &SetPlace) -> Option<(Kind, String)> {
        if self.own_fault.is_none() {
            let path = place.folder.join(place.stored_file(&self.entry));
            let begin = self.entry.fields.bundle_offset;
            let summed = Range::open(&path, begin, self.entry.stored_bytes()).map(Range::sum_up);
            self.own_fault = Some(summed.ok().and_then(|it| place.fault_of(&self.entry, &it)));
        }
        self.own_fault.clone().flatten()
    }

    fn origin_of(&self, place: &SetPlace, at: usize) -> StoredPlace {
        let super_block = self.map.super_blocks.get(at);
        let found = super_block.and_then(|it| Some((self.stored_file(place, it).ok()?, it.offset)));
        match found {
            Some((file, offset)) => place.origin_of(&file, offset),
            None => place.origin(&self.entry),
        }
    }

    /// The stored file of a super block, below the stanza's folder.
    fn stored_file(&self, place: &SetPlace, it: &SuperBlock) -> Result<String, Fault> {
        let label = usize::try_from(it.reference).ok().and_then(|at| place.references.get(at));
        let Some(label) = label else {
            let text = "the block map refers to a set that the manifest does not list".to_owned();
            return Err(Fault::Wrong(Kind::Structure, text));
        };
        Ok(match it.bundle {
            0 => format!("{label}/{}.pgbi", self.entry.stored_name),
            bundle => format!("{label}/bundle/{bundle}"),
        })
    }

    /// All of it was given out: its sums.
    fn end(&mut self, place: &SetPlace, steps: &mut Vec<Step>) {
        let summed = self.range.clone().sum_up();
        let entry = &self.entry;
        if let Some(trouble) = &summed.trouble {
            return steps.push(place.unread(entry, 0, entry.bytes(), trouble));
        }
        let fault = place
            .fault_of(entry, &summed)
            .or_else(|| fault_of_content(entry, &hex(&self.hash.clone()?.finalize())));
        match fault {
            // Said more precisely.
            _ if self.has_fault => {}
            Some(fault) => steps.push(place.damage(entry, None, place.origin(entry), fault)),
            None => {
                place.remember(entry);
                self.remember(place);
            }
        }
    }

    /// Blocks of a super block that the file has, each with what it is.
    fn uses(&self, place: &SetPlace) -> Vec<(Key, Vec<(u32, u32)>)> {
        let memory = place.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut uses: Vec<(Key, Vec<(u32, u32)>)> = self
            .map
            .super_blocks
            .iter()
            .map(|it| {
                let file = self.stored_file(place, it).unwrap_or_default();
                ((file, it.offset, it.stored_bytes, it.bytes), Vec::new())
            })
            .collect();
        for (index, block) in self.map.blocks.iter().enumerate() {
            let at = usize::try_from(block.super_block).unwrap_or(usize::MAX);
            let checksum = self.map.checksum(index, self.shape);
            let mark = memory.mark(&(&self.entry.name, index, self.shape.block_bytes, checksum));
            if let Some((_, marks)) = uses.get_mut(at) {
                marks.push((block.number, mark));
            }
        }
        uses
    }

    /// Marks super blocks that this run has verified.
    fn recall(&mut self, place: &SetPlace) {
        let uses = self.uses(place);
        let memory = place.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.is_tainted(&self.entry.name) || !place.holds_whole_pages(&self.entry) {
            return;
        }
        for (state, (key, marks)) in self.states.iter_mut().zip(&uses) {
            if memory.has_blocks(key, marks) {
                *state = State::Verified;
            }
        }
    }

    fn remember(&self, place: &SetPlace) {
        if !place.holds_whole_pages(&self.entry) {
            return;
        }
        let uses = self.uses(place);
        let mut memory = place.memory.lock().unwrap_or_else(PoisonError::into_inner);
        for (state, (key, marks)) in self.states.iter().zip(&uses) {
            if *state == State::Wanted {
                memory.add_blocks(key, marks);
            }
        }
    }
}

/// What a super block is remembered by: stored file, offset, stored bytes, bytes.
type Key = (String, u64, u64, u64);

/// Why a super block cannot be used.
enum Fault {
    Wrong(Kind, String),
    Unread(String),
}

impl Fault {
    fn of(place: &SetPlace, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound if place.has_expired() => Self::Unread(EXPIRED.to_owned()),
            io::ErrorKind::NotFound => Self::Wrong(
                Kind::Missing,
                "the stored file with this super block is not there".to_owned(),
            ),
            _ => Self::Unread(error.to_string()),
        }
    }
}

fn read_map(place: &SetPlace, mut tail: Range, shape: Shape) -> Result<BlockMap, String> {
    let mut bytes = Vec::new();
    let read = match &place.coding.passphrase {
        Some(passphrase) => Decrypted::new(&mut tail, passphrase, true)
            .and_then(|mut source| source.read_to_end(&mut bytes)),
        None => tail.read_to_end(&mut bytes),
    };
    read.map_err(|error| error.to_string())?;
    BlockMap::parse(&bytes, shape).map_err(str::to_owned)
}

/// Decrypts and decompresses a super block, which must have `bytes` bytes.
fn decode(place: &SetPlace, stored: Vec<u8>, bytes: u64) -> Result<Vec<u8>, String> {
    let coding = Coding { raw: true, ..place.coding.clone() };
    let mut restored = Vec::new();
    coding
        .decode(Box::new(io::Cursor::new(stored)))
        .and_then(|source| source.take(bytes.saturating_add(1)).read_to_end(&mut restored))
        .map_err(|error| format!("a super block cannot be restored: {error}"))?;
    if restored.len() as u64 != bytes {
        return Err(format!(
            "a super block has {} bytes when it is restored, and {bytes} in the block map",
            restored.len()
        ));
    }
    Ok(restored)
}
