//! The extents of a backup in the order of their files, out of all its families.
//!
//! A striped backup has every second extent (or third, and so on) in another file. Families are
//! merged by the places of their extents, so that a page of free space comes before the pages that it
//! tells of. An extent that names no place waits for one that does, so that it is known how many lie
//! between two.

use std::collections::{BTreeMap, VecDeque};

use crate::files::backup::family::{Family, Item, SetBegin};
use crate::files::backup::log::SetLog;
use crate::files::backup::place::{
    Address, EXTENT_PAGES, ExtentMap, Seen, between, claimed, is_filler,
};
use crate::mtf::details::Configuration;
use crate::mtf::{EXTENT_BYTES, Extent};
use pagewarden_core::database::Step;

/// Extents that wait for their place: 4 MiB.
const WAITING_MAX: usize = 64;

/// An extent and where it belongs.
#[derive(Debug)]
pub struct Placed {
    /// Which of the families it comes from.
    pub family: usize,
    /// Where it lies there.
    pub extent: Extent,
    /// Its bytes.
    pub bytes: Box<[u8; EXTENT_BYTES]>,
    /// The file that it is of; 0 where no file is known.
    pub file: u16,
    /// The extent of the file.
    pub index: u64,
    /// Its place is known for sure.
    pub is_certain: bool,
    /// Some of the set's data came before, and comes again.
    pub is_again: bool,
    /// Its pages say that it is this extent, which came already, so that it was placed by its
    /// neighbours.
    pub double_of: Option<u64>,
}

/// What comes along in a backup.
#[derive(Debug)]
pub enum Event {
    /// A backup set begins.
    Set(Box<SetEvent>),
    /// What is in the set.
    Configuration(Box<Configuration>),
    /// A piece of data.
    Extent(Box<Placed>),
    /// The set is over.
    SetEnd(Box<SetClose>),
    /// To be reported to the caller.
    Say(Box<Step>),
}

/// A backup set that begins.
#[derive(Debug)]
pub struct SetEvent {
    /// Counted from 1 on.
    pub set: u32,
    /// It is no full backup: it holds a part of the database's pages.
    pub is_partial: bool,
    pub(super) begin: SetBegin,
}

/// What is known of a backup set once all of it came.
#[derive(Debug, Default)]
pub struct SetClose {
    /// What is in the set, as it was when the backup ended.
    pub(super) configuration: Option<Box<Configuration>>,
    pub(super) log: SetLog,
    /// Families in which the set came to its end.
    pub(super) families: usize,
    /// An extent of a differential set that its own map of what changed does not name.
    pub(super) unlisted: Option<Address>,
}

/// See the module.
pub struct Extents {
    pub(super) families: Vec<Family>,
    heads: Vec<Head>,
    ready: VecDeque<Event>,
    set: u32,
    is_in_set: bool,
    maps: BTreeMap<u16, ExtentMap>,
    /// Places that extents named, of this data block.
    seen: BTreeMap<u16, Seen>,
    /// The last extent that was placed, of this data block.
    last: Option<Address>,
    waiting: Vec<Placed>,
    /// All families of the set are here.
    is_complete: bool,
    data_block: u32,
    /// The ends of sets that families have come to, by their numbers.
    closes: BTreeMap<u32, SetClose>,
    /// This set holds a part of the database's pages.
    is_partial: bool,
    /// That part is what changed since a full backup.
    is_differential: bool,
    /// An extent of this set that its own map of what changed does not name.
    unlisted: Option<Address>,
    /// Extents that this set says it has, of the first data block.
    promised: Option<u64>,
    /// Extents of the first data block that came.
    came: u64,
}

impl std::fmt::Debug for Extents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extents").field("set", &self.set).finish_non_exhaustive()
    }
}

/// How far a family is.
#[derive(Default)]
struct Head {
    set: u32,
    begin: SetBegin,
    configuration: Option<Box<Configuration>>,
    has_configuration: bool,
    data_block: u32,
    /// The last place that it named.
    last: Option<Address>,
    extent: Option<(Extent, Box<[u8; EXTENT_BYTES]>, Option<Address>)>,
    /// The set behind one without any extent; the empty one is reported first.
    behind: Option<SetBegin>,
    has_ended: bool,
}

impl Head {
    fn enter(&mut self, begin: SetBegin) {
        self.set = self.set.saturating_add(1);
        (self.data_block, self.last) = (0, None);
        (self.begin, self.configuration) = (begin, None);
        self.has_configuration = false;
    }
}

impl Extents {
    pub(super) fn new(families: Vec<Family>) -> Self {
        let named = families.first().and_then(|family| family.media);
        let is_complete = named.is_none_or(|media| usize::from(media.families) <= families.len());
        Self {
            heads: families.iter().map(|_| Head::default()).collect(),
            families,
            ready: VecDeque::new(),
            set: 0,
            is_in_set: false,
            maps: BTreeMap::new(),
            seen: BTreeMap::new(),
            last: None,
            waiting: Vec::new(),
            is_complete,
            data_block: 0,
            closes: BTreeMap::new(),
            is_partial: false,
            is_differential: false,
            unlisted: None,
            promised: None,
            came: 0,
        }
    }

    /// True if all files of the backup were named.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What the files are called, in the order of [`Placed::family`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.families.iter().map(|family| family.name.as_str())
    }

    /// Reads every family up to its next extent, or to the end of a set that has none and was not
    /// told yet.
    fn fill(&mut self) {
        for ((family, head), index) in self.families.iter_mut().zip(&mut self.heads).zip(0..) {
            if let Some(begin) = head.behind.take_if(|_| head.set <= self.set) {
                head.enter(begin);
            }
            while head.extent.is_none() && head.behind.is_none() && !head.has_ended {
                match family.next() {
                    None => head.has_ended = true,
                    Some(Item::Say(step)) => self.ready.push_back(Event::Say(Box::new(step))),
                    Some(Item::Set(begin)) if head.set > self.set => head.behind = Some(begin),
                    Some(Item::Set(begin)) => head.enter(begin),
                    // Another comes at the end of a set.
                    Some(Item::Configuration(configuration)) => {
                        if std::mem::replace(&mut head.has_configuration, true) {
                            let close = self.closes.entry(head.set).or_default();
                            close.configuration.get_or_insert(configuration);
                        } else {
                            head.configuration = Some(configuration);
                        }
                    }
                    Some(Item::Data) => {
                        head.data_block = head.data_block.saturating_add(1);
                        head.last = None;
                    }
                    Some(Item::SetEnd(log)) => {
                        let close = self.closes.entry(head.set).or_default();
                        close.log.append(*log, index);
                        close.families = close.families.saturating_add(1);
                    }
                    // What fills up the last transfer is no part of any file.
                    Some(Item::Extent(_, bytes)) if is_filler(&bytes) => {}
                    Some(Item::Extent(extent, bytes)) => {
                        let place = claimed(&bytes);
                        head.extent = Some((extent, bytes, place));
                    }
                }
            }
        }
    }

    /// The family whose extent is next.
    fn next_family(&self) -> Option<usize> {
        let families = self.families.len() as u64;
        let mut best: Option<((u32, u32, Address), usize)> = None;
        for (head, index) in self.heads.iter().zip(0..) {
            let Some((_, _, place)) = &head.extent else { continue };
            let after =
                |last: Address| Address { extent: last.extent.saturating_add(families), ..last };
            let start = Address { file: 0, extent: index as u64 };
            let place = place.unwrap_or_else(|| head.last.map_or(start, after));
            let key = (head.set, head.data_block, place);
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, index));
            }
        }
        best.map(|(_, index)| index)
    }

    /// A family that came to the end of a set without extents, if that is the next one.
    fn next_without_extents(&self) -> Option<usize> {
        let heads = self.heads.iter().zip(0..);
        let without = heads.filter(|(head, _)| head.behind.is_some() && head.set > self.set);
        let (head, index) = without.min_by_key(|(head, _)| head.set)?;
        let mut with = self.heads.iter().filter(|other| other.extent.is_some());
        with.all(|other| head.set < other.set).then_some(index)
    }

    /// Takes the next extent out of its family.
    fn advance(&mut self) -> bool {
        self.fill();
        if let Some(index) = self.next_without_extents() {
            self.begin_set_of(index);
            return true;
        }
        let Some(index) = self.next_family() else { return false };
        self.begin_set_of(index);
        let Some(head) = self.heads.get_mut(index) else { return false };
        let Some((extent, bytes, place)) = head.extent.take() else { return false };
        let data_block = head.data_block;
        if data_block != self.data_block {
            self.settle(None);
            self.last = None;
            self.find_unlisted();
            self.data_block = data_block;
        }
        // What is behind all that there must be fills up the last transfer.
        if data_block == 1 && self.is_complete {
            let is_all = self.promised.is_some_and(|promised| self.came >= promised);
            if is_all && place.is_none() {
                return true;
            }
            self.came = self.came.saturating_add(1);
        }
        // What came already is no place: one of the two does not belong where it lies.
        let claim = place;
        let place =
            claim.filter(|claim| self.seen.entry(claim.file).or_default().add(claim.extent));
        if let (Some(place), Some(head)) = (place, self.heads.get_mut(index)) {
            head.last = Some(place);
        }
        let mut placed = Placed {
            family: index,
            is_again: data_block > 1,
            double_of: claim.filter(|_| place.is_none()).map(|claim| claim.extent),
            extent,
            bytes,
            file: 0,
            index: 0,
            is_certain: false,
        };
        let Some(place) = place else {
            self.waiting.push(placed);
            if self.waiting.len() >= WAITING_MAX {
                self.settle(None);
            }
            return true;
        };
        self.settle(Some(place));
        (placed.file, placed.index, placed.is_certain) = (place.file, place.extent, true);
        let is_partial = self.is_partial;
        let map = self.maps.entry(place.file).or_insert_with(|| ExtentMap::new(is_partial));
        map.learn(place, &placed.bytes);
        self.last = Some(place);
        self.ready.push_back(Event::Extent(Box::new(placed)));
        true
    }

    /// Begins the set that this family has come to, if it is a new one.
    fn begin_set_of(&mut self, index: usize) {
        let Some(head) = self.heads.get_mut(index).filter(|head| head.set > self.set) else {
            return;
        };
        let set = head.set;
        let begin = std::mem::take(&mut head.begin);
        let configuration = head.configuration.take();
        self.settle(None);
        self.end_set();
        self.is_in_set = true;
        (self.is_partial, self.is_differential) = (begin.is_partial, begin.is_differential);
        self.came = 0;
        self.promised = configuration.as_ref().map(|configuration| {
            let files = configuration.files.iter().filter(|file| !file.is_log);
            files.fold(0, |sum: u64, file| {
                sum.saturating_add(u64::from(file.pages).div_ceil(EXTENT_PAGES))
            })
        });
        let is_partial = begin.is_partial;
        self.ready.push_back(Event::Set(Box::new(SetEvent { set, is_partial, begin })));
        self.ready.extend(configuration.map(Event::Configuration));
        self.maps.clear();
        self.seen.clear();
        self.unlisted = None;
        (self.set, self.last, self.data_block) = (set, None, 0);
    }

    /// A data block is over: in a differential set, which of its extents does not belong there?
    fn find_unlisted(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        if !self.is_differential || self.unlisted.is_some() {
            return;
        }
        self.unlisted = seen.iter().find_map(|(file, seen)| {
            let map = self.maps.get(file)?;
            let extent = seen.extents().find(|extent| map.leaves_out(*extent))?;
            Some(Address { file: *file, extent })
        });
    }

    /// Says that the set is over, if there was one.
    fn end_set(&mut self) {
        if std::mem::take(&mut self.is_in_set) {
            self.find_unlisted();
            let mut close = self.closes.remove(&self.set).unwrap_or_default();
            close.unlisted = self.unlisted.take();
            self.ready.push_back(Event::SetEnd(Box::new(close)));
        }
    }

    /// Places what waits, before an extent of this place.
    fn settle(&mut self, after: Option<Address>) {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return;
        }
        let (file, before) = match (self.last, after) {
            (Some(last), _) => (last.file, Some(last.extent)),
            (None, Some(after)) => (after.file, None),
            (None, None) => (0, None),
        };
        // The first extents of another file follow the last ones of this.
        let end = after.filter(|after| after.file == file).map(|after| after.extent);
        let (places, is_certain) = between(self.maps.get(&file), before, end, waiting.len());
        for (mut placed, index) in waiting.into_iter().zip(places) {
            (placed.file, placed.index) = (file, index);
            placed.is_certain = is_certain && self.is_complete && file != 0;
            self.last = Some(Address { file, extent: index }).filter(|_| file != 0);
            self.ready.push_back(Event::Extent(Box::new(placed)));
        }
    }
}

impl Iterator for Extents {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.advance() {
                continue;
            }
            self.settle(None);
            // A set without data, as of a backup of the log alone.
            for index in 0..self.heads.len() {
                self.begin_set_of(index);
            }
            if self.ready.is_empty() {
                self.end_set();
                return self.ready.pop_front();
            }
        }
    }
}
