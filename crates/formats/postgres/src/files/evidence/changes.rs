//! Pages that are older than they must be: what summaries of the log (17 and
//! later) say was changed, compared with the pages' LSNs.
//!
//! A block that a summary from A to B lists was changed by a record that begins
//! at A or later, so its page has an LSN behind A. One that has not lost a write.
//! That holds for heaps and btrees with checksums on: elsewhere some records
//! name blocks whose LSN they leave. It is not known whether checksums were on when
//! the summary was made: they may have been switched on since. While they were
//! off, VACUUM marked pages all visible and left their LSN; the same record names
//! the page of the visibility map. So where a summary names that too, and the page
//! is marked, its age is suspect only. Pages that have no LSN of the log (built or
//! made ready without it) tell nothing.
//!
//! Summaries are read from the newest to the oldest, and for each block only the
//! newest counts. What was cut off since, and may have been added anew, is left
//! out. Memory: 32 bytes or so a block, for at most 1,048,576 blocks.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::files::evidence::Identity;
use crate::files::evidence::blocks::each_sound;
use crate::files::names::Fork;
use crate::files::wal::block::Locator;
use crate::files::witness::summary::{self, Change, SummaryName};
use crate::files::witness::visibility_map::BLOCKS_A_BYTE;
use crate::page::{FIRST_REAL_LSN, HEADER_BYTES, Header, PAGE_ALL_VISIBLE};
use pagewarden_core::database::Step;
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::source::file::open_regular;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo, Place, Severity, Standing};
use pagewarden_core::words::LsnText;

const BLOCKS_MAX: usize = 1 << 20;
/// Lost writes in one relation that are kept.
const STALE_MAX: usize = 1 << 16;

/// When a block was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::files) struct Changed {
    /// Where the newest summary that lists it begins.
    behind: u64,
    /// The same summary lists its page of the visibility map.
    with_map: bool,
}

type ChangedBlocks = HashMap<u32, Changed>;

/// What was changed, by relation and block.
#[derive(Debug, Default)]
pub(in crate::files) struct Changes {
    relations: HashMap<Locator, Arc<ChangedBlocks>>,
}

impl Changes {
    /// Reads the summaries of a cluster's timeline. One that cannot be believed
    /// is left out, and all that are older.
    pub(in crate::files) fn read(root: &Path, timeline: u32, page_size: usize) -> Self {
        let folder = root.join("pg_wal").join("summaries");
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = SummaryName::parse(entry.file_name().to_str()?)?;
                (name.timeline == timeline).then(|| (name.begin, entry.path()))
            })
            .collect();
        names.sort_unstable();
        let in_map = page_size.saturating_sub(HEADER_BYTES);
        let blocks_a_map_page = u32::try_from(in_map).unwrap_or(0).saturating_mul(BLOCKS_A_BYTE);
        let mut reading = Reading { blocks_a_map_page, ..Reading::default() };
        for (begin, path) in names.into_iter().rev() {
            if reading.add(begin, &path).is_none() {
                break;
            }
        }
        let relations =
            reading.blocks.into_iter().map(|(place, blocks)| (place, Arc::new(blocks))).collect();
        Self { relations }
    }

    /// What was changed of one relation, if anything.
    pub(in crate::files) fn of(&self, locator: Locator) -> Option<Arc<ChangedBlocks>> {
        self.relations.get(&locator).map(Arc::clone)
    }
}

#[derive(Debug, Default)]
struct Reading {
    blocks: HashMap<Locator, ChangedBlocks>,
    blocks_a_map_page: u32,
    /// What newer summaries say was cut, and to how many blocks at least.
    limits: HashMap<Locator, u32>,
    count: usize,
}

impl Reading {
    /// `None` if it cannot be believed, or there is no room for more.
    fn add(&mut self, begin: u64, path: &Path) -> Option<()> {
        let mut changed = Vec::new();
        let mut cut = Vec::new();
        let mut maps = HashSet::new();
        let room = BLOCKS_MAX.checked_sub(self.count)?;
        let file = open_regular(path).ok()?;
        summary::read(BufReader::new(file), |locator, fork, change| match (fork, change) {
            (Fork::Main, Change::Block(block)) if changed.len() <= room => {
                changed.push((locator, block));
            }
            (Fork::Main, Change::Limit(limit)) => cut.push((locator, limit)),
            // A page of a map stands for 32,672 blocks: there are few.
            (Fork::Visibility, Change::Block(block)) if maps.len() <= BLOCKS_MAX => {
                maps.insert((locator, block));
            }
            _ => {}
        })
        .ok()?;
        if changed.len() > room || maps.len() > BLOCKS_MAX {
            return None;
        }
        for (locator, block) in changed {
            if self.limits.get(&locator).is_some_and(|limit| block >= *limit) {
                continue;
            }
            let blocks = self.blocks.entry(locator).or_default();
            if let Entry::Vacant(place) = blocks.entry(block) {
                let map_block = block.checked_div(self.blocks_a_map_page).unwrap_or(0);
                let with_map = maps.contains(&(locator, map_block));
                place.insert(Changed { behind: begin, with_map });
                self.count = self.count.saturating_add(1);
            }
        }
        for (locator, limit) in cut {
            let known = self.limits.entry(locator).or_insert(limit);
            *known = (*known).min(limit);
        }
        Some(())
    }
}

/// Sees the pages of one file of a relation.
#[derive(Debug)]
pub(in crate::files) struct ChangedPages {
    pub(in crate::files) changes: Arc<ChangedBlocks>,
    pub(in crate::files) file: String,
    pub(in crate::files) is_heap: bool,
    pub(in crate::files) first_page: PageNo,
    pub(in crate::files) page_size: usize,
    pub(in crate::files) identity: Option<Identity>,
    pub(in crate::files) hint: Option<Arc<str>>,
    pub(in crate::files) stale: Mutex<Vec<Stale>>,
}

/// A page that is older than a summary says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::files) struct Stale {
    number: u64,
    lsn: u64,
    behind: u64,
    severity: Severity,
}

impl Witness for ChangedPages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        each_sound(run, standings, self.page_size, |number, page| {
            let changed = u32::try_from(number).ok().and_then(|block| self.changes.get(&block));
            let (Some(changed), Some(header)) = (changed, Header::read(page)) else { return };
            let Changed { behind, with_map } = *changed;
            if !(FIRST_REAL_LSN..=behind).contains(&header.lsn) {
                return;
            }
            let may_be_marked = self.is_heap && with_map && header.flags & PAGE_ALL_VISIBLE != 0;
            let severity = if may_be_marked { Severity::Suspect } else { Severity::Damage };
            let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
            if stale.len() < STALE_MAX {
                stale.push(Stale { number, lsn: header.lsn, behind, severity });
            }
        });
    }
}

impl ChangedPages {
    /// What comes of it, once every page was seen.
    pub(in crate::files) fn conclude(&self) -> Vec<Step> {
        let mut stale =
            std::mem::take(&mut *self.stale.lock().unwrap_or_else(PoisonError::into_inner));
        stale.sort_unstable();
        let step = |Stale { number, lsn, behind, severity }: Stale| {
            let detail = format!(
                "an older version: pd_lsn {}, and a summary of the log says that the page was changed behind {}",
                LsnText(lsn),
                LsnText(behind)
            );
            let mut finding = Finding::of_file("", severity, Kind::Stale, detail);
            let index = number.saturating_sub(self.first_page.0);
            finding.place = Place {
                file: self.file.clone(),
                page: Some(PageNo(number)),
                offset: Some(ByteOffset(index.saturating_mul(self.page_size as u64))),
            };
            if let Some(identity) = &self.identity {
                finding.database = identity.database.as_deref().map(str::to_owned);
                finding.object = Some(identity.object.as_ref().to_owned());
            }
            finding.hint = self.hint.as_deref().map(str::to_owned);
            Step::Overruled(finding, Standing::Ok)
        };
        stale.into_iter().map(step).collect()
    }
}
