//! Pages that the files of a relation lack: a file that is missing, or ends inside a page or too early.
//!
//! They are candidates and proved like any other page. Besides it must be known how many there were
//! ([`length`](super::length)): by a copy, and what the log says of the relation since, or by a log that
//! goes back to its creation. Either all that lacks is brought back, or nothing: a hole of zero pages would be
//! taken for pages that were never used.
//!
//! | what | why it is so |
//! | --- | --- |
//! | a relation that was dropped is not brought back | its files are remnants, and its number may be given away |
//! | what was cut off is not brought back | rows that VACUUM has found to be dead would be there again |
//! | up to 64 zero pages at the end of a copy's file are pages of it | a server extends by up to 64 at once (`MAX_BUFFERS_TO_EXTEND_BY` in `hio.c`), and uses them later |
//! | zero pages elsewhere are not | they may as well be what the copy has lost |
//!
//! Only main forks: the server makes the maps of free space and visibility anew where they lack.

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use crate::files::backup::place::{Role, locate};
use crate::files::backup::taking::REST;
use crate::files::catalogue;
use crate::files::names::{Fork, RelationFile};
use crate::files::wal::block::Locator;
use crate::page::PostgresPages;
use crate::protect::Cluster;
use crate::repair::kin::Kin;
use crate::repair::length::{Length, Steps};
use crate::repair::log::Block;
use crate::repair::proof::Copy;
use crate::repair::source::Source;
use crate::repair::{Plan, TO_RESTORE, Wound, not_taken, read_page};
use pagewarden_core::error::Error;
use pagewarden_core::repair::{Page, Planned, Proof, too_many};
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, PageNo};
use pagewarden_core::words::counted;

/// Segments of a relation behind the first that lacks something, that are looked for in a copy: with
/// the usual size of a segment these are more pages than a repair of single pages is for.
const SEGMENTS: u32 = 8;
/// `MAX_BUFFERS_TO_EXTEND_BY`.
const UNUSED_PAGES: u64 = 64;
/// Files of catalogues that every database has, and few change: of the functions, classes, columns and
/// dependencies; those of the whole cluster, of databases, roles and tablespaces.
const BESIDE: [u32; 4] = [1255, 1259, 1249, 2608];
const BESIDE_SHARED: [u32; 3] = [1262, 1260, 1213];

/// A relation whose main fork lacks pages.
pub(super) struct Gap<'a> {
    finding: &'a Finding,
    pub(super) locator: Locator,
    folder: &'a str,
    file: RelationFile,
    /// The first page that is not there as a whole.
    first: u32,
    pages_max: u32,
}

/// A page that is not there as a whole.
struct Absent {
    finding: Finding,
    path: PathBuf,
    file: RelationFile,
    block: u32,
    offset: u64,
    is_new_file: bool,
}

/// How long a relation was.
enum Known {
    /// The number of pages; how that is known, or why it is not proved.
    Pages(u32, Result<String, String>),
    /// Why there is nothing to bring back.
    Nothing(String),
}

/// What a finding of this kind is about: the folder, the file, and the relation.
fn subject(finding: &Finding) -> Option<(&str, RelationFile, Locator)> {
    if !matches!(finding.kind, Kind::Missing | Kind::Truncated) {
        return None;
    }
    let Some(("", Role::Relation(place))) = locate(&finding.place.file) else { return None };
    let file = place.file;
    if file.session.is_some() || file.fork != Fork::Main || file.is_incremental {
        return None;
    }
    let tablespace = match place.tablespace? {
        0 => catalogue::DEFAULT_TABLESPACE,
        tablespace => tablespace,
    };
    let database = place.database.unwrap_or(0);
    let (folder, _) = finding.place.file.rsplit_once('/')?;
    Some((folder, file, Locator { tablespace, database, number: file.number }))
}

/// What of a copy is needed for such a finding: the segments from there on, and files that show that it is
/// a copy of this database.
pub(super) fn wanted_files(finding: &Finding) -> Vec<String> {
    let Some((folder, file, locator)) = subject(finding) else { return Vec::new() };
    let last = file.segment.saturating_add(SEGMENTS);
    let segments = (file.segment..=last).map(|segment| RelationFile { segment, ..file }.name());
    let mut names: Vec<_> = segments.map(|name| format!("{folder}/{name}")).collect();
    names.extend(beside(folder, locator));
    names
}

fn beside(folder: &str, locator: Locator) -> Vec<String> {
    if locator.database == 0 {
        return BESIDE_SHARED.iter().map(|number| format!("{folder}/{number}")).collect();
    }
    let base = format!("base/{}", locator.database);
    let folders = if folder == base { vec![base] } else { vec![folder.to_owned(), base] };
    folders
        .iter()
        .flat_map(|folder| BESIDE.iter().map(move |number| format!("{folder}/{number}")))
        .collect()
}

/// Whether a copy is one of this database, where the file itself has no page that could show it.
pub(super) fn kin_beside(
    source: &Source,
    copy: &Copy,
    wound: &Wound<'_>,
    cluster: &Cluster,
    layout: &PostgresPages,
    wounded: &HashSet<(String, u64)>,
) -> Kin {
    let file = &wound.finding.place.file;
    let (folder, _) = file.rsplit_once('/').unwrap_or_default();
    for name in beside(folder, wound.block.locator).iter().filter(|name| *name != file) {
        let kin = Kin::of(source, copy, name, &cluster.root.join(name), layout, 0, wounded);
        if !kin.is_silent() {
            return kin;
        }
    }
    Kin::default()
}

/// True for one of the few zero pages that a copy's relation ends with.
pub(super) fn is_unused_end(
    source: &Source,
    wound: &Wound<'_>,
    page: &[u8],
    page_size: usize,
) -> bool {
    if page.iter().any(|byte| *byte != 0) {
        return false;
    }
    let Ok(file) = open_regular(&source.path(&wound.finding.place.file)) else { return false };
    let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return false };
    let rest = length.saturating_sub(wound.offset);
    if rest > UNUSED_PAGES.saturating_mul(page_size as u64) {
        return false;
    }
    let mut bytes = vec![0; usize::try_from(rest).unwrap_or(0)];
    let count = read_fully(&file, &mut bytes, wound.offset).unwrap_or(0);
    let next = RelationFile { segment: wound.file.segment.saturating_add(1), ..wound.file };
    let (folder, _) = wound.finding.place.file.rsplit_once('/').unwrap_or_default();
    count == bytes.len()
        && bytes.iter().all(|byte| *byte == 0)
        && !source.path(&format!("{folder}/{}", next.name())).exists()
}

impl<'a> Gap<'a> {
    /// The gap that a finding is about, if it is one that can be looked at.
    pub(super) fn of(cluster: &Cluster, finding: &'a Finding, pages_max: usize) -> Option<Self> {
        let (folder, file, locator) = subject(finding)?;
        let pages_max = u32::try_from(pages_max).unwrap_or(u32::MAX);
        let mut gap = Self { finding, locator, folder, file, first: 0, pages_max };
        let a_segment = cluster.control.segment_pages.max(1);
        for segment in 0..=u32::MAX.checked_div(a_segment)? {
            let (_, pages) = gap.length(cluster, segment)?;
            gap.first = segment.checked_mul(a_segment)?.checked_add(pages)?;
            if pages < a_segment {
                return Some(gap);
            }
        }
        None
    }

    /// The blocks that may lack.
    pub(super) fn range(&self) -> Range<u32> {
        self.first..self.first.saturating_add(self.pages_max).saturating_add(1)
    }

    fn name(&self, segment: u32) -> String {
        format!("{}/{}", self.folder, RelationFile { segment, ..self.file }.name())
    }

    /// Whether a segment is there, and its whole pages; `None` where it cannot be known.
    fn length(&self, cluster: &Cluster, segment: u32) -> Option<(bool, u32)> {
        let path = cluster.root.join(self.name(segment));
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some((false, 0)),
            Err(_) => None,
            Ok(metadata) if !metadata.is_file() => None,
            Ok(metadata) => {
                let pages = metadata.len().checked_div(cluster.control.page_size as u64)?;
                let pages = u32::try_from(pages).unwrap_or(u32::MAX);
                Some((true, pages.min(cluster.control.segment_pages)))
            }
        }
    }

    /// How many pages a copy of the relation has; `None` where that cannot be known.
    fn length_in(&self, source: &Source, cluster: &Cluster) -> Option<u32> {
        let a_segment = cluster.control.segment_pages.max(1);
        let page_size = cluster.control.page_size as u64;
        let first = self.first.checked_div(a_segment)?;
        let mut pages = None;
        for segment in first..=first.saturating_add(SEGMENTS) {
            let path = source.path(&self.name(segment));
            let Ok(file) = open_regular(&path) else { return pages };
            let length = file.metadata().ok()?.len();
            let whole = u32::try_from(length.checked_div(page_size)?).ok()?;
            if length.checked_rem(page_size)? != 0 || whole > a_segment {
                return None;
            }
            pages = Some(segment.checked_mul(a_segment)?.checked_add(whole)?);
            if whole < a_segment {
                return pages;
            }
        }
        None
    }

    /// The pages that lack, if the relation had this number of pages; `None`: more than may be.
    fn absent(&self, cluster: &Cluster, pages: u32) -> Option<Vec<Absent>> {
        let a_segment = cluster.control.segment_pages.max(1);
        let page_size = cluster.control.page_size as u64;
        let mut absent = Vec::new();
        let mut block = self.first;
        while block < pages {
            let segment = block.checked_div(a_segment)?;
            let begin = segment.checked_mul(a_segment)?;
            let end = begin.saturating_add(a_segment).min(pages);
            let (is_there, present) = self.length(cluster, segment)?;
            for number in begin.saturating_add(present)..end {
                if !self.range().contains(&number) || absent.len() >= self.pages_max as usize {
                    return None;
                }
                let name = self.name(segment);
                let within = number.checked_sub(begin)?;
                let offset = u64::from(within).checked_mul(page_size)?;
                let mut finding = self.finding.clone();
                finding.place.file.clone_from(&name);
                finding.place.page = Some(PageNo(u64::from(number)));
                finding.place.offset = Some(ByteOffset(offset));
                absent.push(Absent {
                    finding,
                    path: cluster.root.join(&name),
                    file: RelationFile { segment, ..self.file },
                    block: number,
                    offset,
                    is_new_file: !is_there,
                });
            }
            block = end;
        }
        Some(absent)
    }
}

impl Plan<'_> {
    /// All that a relation lacks, or why it is not brought back.
    pub(super) fn gap(&mut self, gap: &Gap<'_>) -> Result<Vec<Planned>, Error> {
        let nothing = |reason: String| Ok(vec![not_taken(gap.finding, reason, TO_RESTORE)]);
        let (pages, known) = match self.length_of(gap) {
            Known::Nothing(why) => return nothing(why),
            Known::Pages(pages, known) => (pages, known),
        };
        let Some(absent) = gap.absent(self.cluster, pages) else {
            let count = pages.saturating_sub(gap.first) as usize;
            return Err(too_many(&self.cluster.root, count, self.request.pages_max));
        };
        if absent.is_empty() {
            let known = known.unwrap_or_else(|why| why);
            return nothing(format!(
                "the relation had {}, which are all here: {known}",
                counted(u64::from(pages), "page")
            ));
        }
        let doubt = known.as_ref().err().map(String::as_str);
        let mut planned = Vec::new();
        for one in &absent {
            let mut page = self.absent_page(gap, one, doubt)?;
            if let (Ok(how), Some(Proof::Exact)) = (&known, page.page.proof) {
                let pages = counted(u64::from(pages), "page");
                page.page.reason = format!("{}; the relation had {pages}, {how}", page.page.reason);
            }
            planned.push(page);
        }
        let lacking = planned.iter().filter(|one| one.new.is_none()).count();
        if lacking > 0 {
            for one in planned.iter_mut().filter(|one| one.new.is_some()) {
                one.new = None;
                one.page.after = None;
                one.page.reason = format!(
                    "{}; not written, since {} of this relation cannot be",
                    one.page.reason,
                    counted(lacking as u64, "other page")
                );
                one.page.hint =
                    Some("all pages that a file lacks are brought back, or none".to_owned());
            }
        }
        Ok(planned)
    }

    fn absent_page(
        &mut self,
        gap: &Gap<'_>,
        one: &Absent,
        doubt: Option<&str>,
    ) -> Result<Planned, Error> {
        let page_size = self.cluster.control.page_size;
        let old = match one.is_new_file {
            true => Vec::new(),
            false => read_page(&one.path, one.offset, page_size)?,
        };
        let wound = Wound {
            finding: &one.finding,
            file: one.file,
            block: Block { locator: gap.locator, fork: 0, number: one.block },
            path: one.path.clone(),
            offset: one.offset,
            is_absent: true,
        };
        let page = Page::of(&one.finding, "");
        let mut planned = Planned { page, old, is_new_file: one.is_new_file, new: None };
        self.take_best(&wound, &mut planned, doubt);
        Ok(planned)
    }

    /// How long the relation was.
    fn length_of(&self, gap: &Gap<'_>) -> Known {
        let log = match &self.log {
            Ok(log) => Ok(log),
            Err(why) => Err(format!("how long the file was is not proved: {why}")),
        };
        let steps = log.as_ref().ok().and_then(|log| log.lengths(gap.locator));
        let gone = || Known::Nothing("the log says that this relation was dropped".to_owned());
        let mut proved: Option<(u32, String)> = None;
        let mut likely: Option<(u64, u32, String)> = None;
        if let (Ok(log), Some((length, begin))) = (&log, steps.and_then(Steps::of_log)) {
            match length {
                Length::Gone => return gone(),
                Length::Pages(pages) if log.wide_event(gap.locator, begin).is_none() => {
                    proved = Some((pages, "by the log, from its creation on".to_owned()));
                }
                Length::Pages(_) => {}
            }
        }
        for (source, copy, losses) in &self.sources {
            let is_cut = losses.contains_key(REST)
                || losses.keys().any(|name| *name == gap.finding.place.file);
            let Some(copied) = gap.length_in(source, self.cluster).filter(|_| !is_cut) else {
                continue;
            };
            let pages = match steps.map(|steps| steps.of_copy(copied, copy.since)) {
                Some(Length::Gone) => return gone(),
                Some(Length::Pages(pages)) => pages,
                None => copied,
            };
            match self.length_doubt(gap, copy, log.as_ref().map(|log| *log)) {
                None => match &proved {
                    Some((other, how)) if *other != pages => {
                        return Known::Nothing(format!(
                            "it had {other} pages {how}, and {pages} by {}: neither is believed",
                            source.what
                        ));
                    }
                    Some(_) => {}
                    None => {
                        proved = Some((pages, format!("by the {} and the log since", source.what)));
                    }
                },
                Some(doubt) => {
                    if likely.as_ref().is_none_or(|(since, ..)| *since < copy.since) {
                        likely = Some((copy.since, pages, doubt));
                    }
                }
            }
        }
        match (proved, likely) {
            (Some((pages, how)), _) => Known::Pages(pages, Ok(how)),
            (None, Some((_, pages, doubt))) => Known::Pages(pages, Err(doubt)),
            (None, None) => Known::Nothing(
                "how long the file was is not known: no copy has it, and the log does not have its creation"
                    .to_owned(),
            ),
        }
    }

    /// Why a length that comes from a copy is not proved.
    fn length_doubt(
        &self,
        gap: &Gap<'_>,
        copy: &Copy,
        log: Result<&crate::repair::log::Log, &String>,
    ) -> Option<String> {
        let log = match log {
            Ok(log) => log,
            Err(why) => return Some(why.clone()),
        };
        if let Some(doubt) = &copy.doubt {
            return Some(doubt.clone());
        }
        if !copy.is_same_state && copy.since < log.begin {
            return Some(
                "how long the file was is not proved: the log does not reach back to the copy"
                    .to_owned(),
            );
        }
        let event = log.wide_event(gap.locator, copy.since)?;
        Some(format!("how long the file was is not proved: {}", event.what))
    }
}
