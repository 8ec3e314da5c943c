//! Pages that are older than they must be: what summaries of the log (17 and
//! later) say was changed, held against the pages' LSNs.
//!
//! A block that a summary from A to B lists was changed by a record that begins
//! at A or later, so its page has an LSN behind A. One that has not lost a write.
//! That holds for heaps and btrees with checksums on: elsewhere some records
//! name blocks whose LSN they leave.
//!
//! Summaries are read from the newest to the oldest, and for each block only the
//! newest counts. What was cut off since, and may have been added anew, is left
//! out. Memory: 24 bytes or so a block, for at most 1,048,576 blocks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::page::postgres::{Header, LsnText};
use crate::page::standings::Standings;
use crate::page::{PageRun, Witness};
use crate::source::file::open_regular;
use crate::target::Step;
use crate::target::postgres::evidence::Identity;
use crate::target::postgres::evidence::blocks::each_sound;
use crate::target::postgres::names::Fork;
use crate::target::postgres::wal::block::Locator;
use crate::target::postgres::witness::summary::{self, Change, SummaryName};
use crate::verdict::{ByteOffset, Finding, Kind, PageNo, Place, Severity, Standing};

const BLOCKS_MAX: usize = 1 << 20;
/// Lost writes in one relation that are kept.
const STALE_MAX: usize = 1 << 16;

/// What was changed, by relation: for each block, where the newest summary that
/// lists it begins.
#[derive(Debug, Default)]
pub(in crate::target::postgres) struct Changes {
    relations: HashMap<Locator, Arc<HashMap<u32, u64>>>,
}

impl Changes {
    /// Reads the summaries of a cluster's timeline. One that cannot be believed
    /// is left out, and all that are older.
    pub(in crate::target::postgres) fn read(root: &Path, timeline: u32) -> Self {
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
        let mut reading = Reading::default();
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
    pub(in crate::target::postgres) fn of(
        &self,
        locator: Locator,
    ) -> Option<Arc<HashMap<u32, u64>>> {
        self.relations.get(&locator).map(Arc::clone)
    }
}

#[derive(Debug, Default)]
struct Reading {
    blocks: HashMap<Locator, HashMap<u32, u64>>,
    /// What newer summaries say was cut, and to how many blocks at least.
    limits: HashMap<Locator, u32>,
    count: usize,
}

impl Reading {
    /// `None` if it cannot be believed, or there is no room for more.
    fn add(&mut self, begin: u64, path: &Path) -> Option<()> {
        let mut changed = Vec::new();
        let mut cut = Vec::new();
        let room = BLOCKS_MAX.checked_sub(self.count)?;
        let file = open_regular(path).ok()?;
        summary::read(BufReader::new(file), |locator, fork, change| match (fork, change) {
            (Fork::Main, Change::Block(block)) if changed.len() <= room => {
                changed.push((locator, block));
            }
            (Fork::Main, Change::Limit(limit)) => cut.push((locator, limit)),
            _ => {}
        })
        .ok()?;
        if changed.len() > room {
            return None;
        }
        for (locator, block) in changed {
            if self.limits.get(&locator).is_some_and(|limit| block >= *limit) {
                continue;
            }
            let blocks = self.blocks.entry(locator).or_default();
            if let Entry::Vacant(place) = blocks.entry(block) {
                place.insert(begin);
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
pub(in crate::target::postgres) struct ChangedPages {
    pub(in crate::target::postgres) changes: Arc<HashMap<u32, u64>>,
    pub(in crate::target::postgres) file: String,
    pub(in crate::target::postgres) first_page: PageNo,
    pub(in crate::target::postgres) page_size: usize,
    pub(in crate::target::postgres) identity: Option<Identity>,
    pub(in crate::target::postgres) hint: Option<Arc<str>>,
    /// Page, its LSN, and where the summary begins.
    pub(in crate::target::postgres) stale: Mutex<Vec<(u64, u64, u64)>>,
}

impl Witness for ChangedPages {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        each_sound(run, standings, self.page_size, |number, page| {
            let begin = u32::try_from(number).ok().and_then(|block| self.changes.get(&block));
            let (Some(begin), Some(header)) = (begin, Header::read(page)) else { return };
            if header.lsn <= *begin {
                let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
                if stale.len() < STALE_MAX {
                    stale.push((number, header.lsn, *begin));
                }
            }
        });
    }
}

impl ChangedPages {
    /// What comes of it, once every page was seen.
    pub(in crate::target::postgres) fn conclude(&self) -> Vec<Step> {
        let mut stale =
            std::mem::take(&mut *self.stale.lock().unwrap_or_else(PoisonError::into_inner));
        stale.sort_unstable();
        let step = |(number, lsn, begin): (u64, u64, u64)| {
            let detail = format!(
                "an older version: pd_lsn {}, and a summary of the log says that the page was changed behind {}",
                LsnText(lsn),
                LsnText(begin)
            );
            let mut finding = Finding::of_file("", Severity::Damage, Kind::Stale, detail);
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
