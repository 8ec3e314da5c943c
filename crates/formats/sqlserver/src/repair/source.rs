//! What pages may come from: the sets of a backup, and copies of the data files.
//!
//! Each source is read once, from its beginning to its end. The pages that are wanted are kept; all others
//! are compared with those of the database on the way, which is what proves most (see `proof`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;

use crate::checksum::{PAGE_BYTES, Page};
use crate::files::backup::SetKind;
use crate::files::backup::contents::{self, BackupSet};
use crate::mtf::details::Guid;
use crate::page::diff_map::is_beyond_the_map;
use crate::page::header::{Header, Lsn, Tested, tested};
use crate::page::system::{BOOT_PAGE, BootPage, FileHeader};
use crate::repair::database::{DataFile, Database, PageId, Scan};
use crate::repair::places::{BackupFiles, CopiedFiles};
use pagewarden_core::error::Error;
use pagewarden_core::repair::copies::Moment;
use pagewarden_core::system::MetadataExt as _;

/// Pages that differ and are remembered by their numbers.
const OTHERS_MAX: usize = 1024;
/// Of pages that can be compared, at least one in this number must be the same, where nothing else shows whose copy it is.
const KIN_SHARE: u64 = 4;
const PAGE: u64 = PAGE_BYTES as u64;

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A full backup.
    Full {
        /// The id of its set.
        id: [u8; 16],
        /// The checkpoint that it began with.
        checkpoint: Lsn,
        /// All of it came, and what is around its pages is sound.
        is_whole: bool,
    },
    /// A backup of a part of the pages.
    Part,
    /// Copies of data files.
    File,
}

/// What was seen of one file's pages in a source.
#[derive(Debug, Default)]
pub(super) struct Seen {
    seen: u64,
    others: BTreeSet<u64>,
    others_more: u64,
    /// Pages of extents that did not change, by the database's own map, and are the same.
    pub(super) unchanged: u64,
    /// One that differs all the same.
    pub(super) unmarked: Option<u64>,
    /// The copy was last written when the database's file was.
    pub(super) is_same_moment: bool,
}

impl Seen {
    /// Pages that are the same in both.
    pub(super) fn same(&self) -> u64 {
        self.seen.saturating_sub(self.others.len() as u64).saturating_sub(self.others_more)
    }

    /// One that is not.
    pub(super) fn other(&self) -> Option<u64> {
        self.others.first().copied()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    /// What it is, in words.
    pub(super) what: String,
    pub(super) kind: Kind,
    /// The id of the backup set that it is.
    set_id: Option<Guid>,
    files: BTreeMap<u16, Seen>,
    pages: BTreeMap<PageId, Box<Page>>,
}

/// The database that all sources are compared with.
pub(super) struct Against<'a> {
    pub(super) database: &'a Database,
    pub(super) scans: &'a BTreeMap<u16, Scan>,
    pub(super) wounded: &'a HashSet<PageId>,
}

impl Source {
    fn new(name: String, kind: Kind) -> Self {
        Self {
            name,
            what: String::new(),
            kind,
            set_id: None,
            files: BTreeMap::new(),
            pages: BTreeMap::new(),
        }
    }

    /// A page that was wanted.
    pub(super) fn page(&self, id: PageId) -> Option<&Page> {
        self.pages.get(&id).map(|page| &**page)
    }

    /// True if it has this page, which was wanted, and the page's own protection does not fit.
    pub(super) fn is_damaged(&self, id: PageId) -> bool {
        self.page(id).is_some_and(|page| tested(page, &Header::parse(page)) == Tested::Failed)
    }

    pub(super) fn seen(&self, file: u16) -> Option<&Seen> {
        self.files.get(&file)
    }

    /// True if it is this backup set.
    pub(super) fn is_set(&self, set: &BackupSet) -> bool {
        self.set_id == Some(set.id())
    }

    /// The boot page, if it is sound.
    pub(super) fn boot(&self) -> Option<&Page> {
        self.page((1, BOOT_PAGE)).filter(|page| BootPage::parse(page).is_some())
    }

    fn header(&self) -> Option<FileHeader> {
        self.files.keys().find_map(|file| FileHeader::parse(self.page((*file, 0))?))
    }

    /// Looks at a page that has a page's header.
    fn see(&mut self, against: &Against<'_>, page: &Page, is_again: bool) {
        let header = Header::parse(page);
        let id = (header.file, u64::from(header.page));
        let Some(file) = against.database.files.get(&id.0) else { return };
        let is_wounded = against.wounded.contains(&id);
        if is_wounded || id.1 == 0 || id == (1, BOOT_PAGE) {
            self.pages.insert(id, Box::new(*page));
        }
        let seen = self.files.entry(id.0).or_default();
        if is_wounded {
            return;
        }
        seen.seen = seen.seen.saturating_add(u64::from(!is_again));
        let is_same = file.page(id.1).is_some_and(|ours| ours == *page);
        if is_same {
            seen.others.remove(&id.1);
        } else if seen.others.len() < OTHERS_MAX {
            seen.others.insert(id.1);
        } else {
            seen.others_more = seen.others_more.saturating_add(1);
        }
        let scan = against.scans.get(&id.0);
        let is_unchanged = scan.and_then(|scan| scan.is_unchanged(id.1)) == Some(true)
            && !is_beyond_the_map(id.0, id.1);
        match (is_unchanged, is_same) {
            (true, true) if !is_again => seen.unchanged = seen.unchanged.saturating_add(1),
            (true, false) => seen.unmarked = seen.unmarked.or(Some(id.1)),
            _ => {}
        }
    }

    /// Why it is of another database, if it is.
    fn stranger(&self, database: &Database, family: Option<[u8; 16]>) -> Option<String> {
        let header = self.header();
        let bindings = header.as_ref().and_then(|header| header.binding).zip(database.binding());
        let boot = self.boot().and_then(BootPage::parse);
        let families = family.or(boot.and_then(|boot| boot.family)).zip(database.family());
        if families.is_some_and(|(one, two)| one != two) {
            return Some("a copy of another database: the ids of their families differ".to_owned());
        }
        if bindings.is_some_and(|(one, two)| one != two) {
            return Some(
                "a copy of another database: their file headers name different ones".to_owned(),
            );
        }
        if bindings.is_some() || families.is_some() {
            return None;
        }
        let (mut same, mut all) = (0_u64, 0_u64);
        for seen in self.files.values() {
            same = same.saturating_add(seen.same());
            all = all.saturating_add(seen.seen);
        }
        let is_kin = same > 0 && same.saturating_mul(KIN_SHARE) >= all;
        (!is_kin).then(|| {
            format!("nothing shows that it is a copy of this database: {same} of {all} pages are the same")
        })
    }
}

/// What came of one backup or copy: sources, and why others in it are none.
#[derive(Default)]
pub(super) struct Read {
    pub(super) sources: Vec<Source>,
    pub(super) sets: Vec<BackupSet>,
    pub(super) strangers: Vec<String>,
}

/// Reads the sets of a backup.
pub(super) fn read_backup(files: &BackupFiles, against: &Against<'_>) -> Result<Read, Error> {
    let mut by_set: BTreeMap<u32, Source> = BTreeMap::new();
    let sets = contents::read(&files.paths, |backed_up| {
        let source = by_set
            .entry(backed_up.set)
            .or_insert_with(|| Source::new(files.name.clone(), Kind::Part));
        source.see(against, backed_up.page, backed_up.is_again);
    })?;
    let mut read = Read::default();
    for set in sets {
        let configuration = set.configuration();
        let family = Some(configuration.family.0).filter(|id| *id != [0; 16]);
        let mut source = by_set
            .remove(&set.number())
            .unwrap_or_else(|| Source::new(files.name.clone(), Kind::Part));
        let is_log = set.kind() == SetKind::Log;
        let stranger = match is_log {
            true => family
                .zip(against.database.family())
                .filter(|(one, two)| one != two)
                .map(|_| "log of another database: the ids of their families differ".to_owned()),
            false => source.stranger(against.database, family),
        };
        if let Some(stranger) = stranger {
            read.strangers.push(stranger);
            continue;
        }
        let lsn = configuration.checkpoint_lsn;
        if set.kind() == SetKind::Full && set.id().is_set() {
            source.kind = Kind::Full {
                id: set.id().0,
                checkpoint: Lsn { log_file: lsn.file, block: lsn.block, slot: lsn.slot },
                is_whole: set.is_whole(),
            };
        }
        source.what = words_of(&set);
        source.set_id = set.id().is_set().then(|| set.id());
        if !is_log {
            read.sources.push(source);
        }
        if files.is_in_place {
            read.sets.push(set);
        }
    }
    // Of these the description is lost, and pages came.
    for (number, mut source) in by_set {
        match source.stranger(against.database, None) {
            Some(stranger) => read.strangers.push(stranger),
            None => {
                source.what = format!("set {number}, which cannot be read to its end");
                read.sources.push(source);
            }
        }
    }
    Ok(read)
}

/// `set 2, a full backup of database shop, ended 2026-04-18 19:55:52`
fn words_of(set: &BackupSet) -> String {
    let configuration = set.configuration();
    let mut text = format!(
        "set {}, a {}backup of database {}",
        set.number(),
        set.kind().adjective(),
        configuration.database
    );
    if let Some(ended) = configuration.ended {
        let _ = write!(text, ", ended {ended}");
    }
    text
}

/// Reads copies of data files, which lie in one folder.
pub(super) fn read_copies(copies: &CopiedFiles, against: &Against<'_>) -> Read {
    let mut read = Read::default();
    let mut source = Source::new(copies.name.clone(), Kind::File);
    source.what = "a copy of the data files".to_owned();
    for (file, written) in &copies.files {
        let mut one = Source::new(copies.name.clone(), Kind::File);
        read_copy(&mut one, file, against);
        if !against.database.files.contains_key(&file.number) {
            read.strangers
                .push(format!("file {} of a database, which is not among those here", file.number));
            continue;
        }
        if let Some(stranger) = one.stranger(against.database, None) {
            read.strangers.push(stranger);
            continue;
        }
        let ours = against.database.files.get(&file.number);
        let moment = ours.and_then(moment_of);
        if let Some(seen) = one.files.get_mut(&file.number) {
            seen.is_same_moment = written.is_some() && *written == moment;
        }
        source.files.append(&mut one.files);
        source.pages.append(&mut one.pages);
    }
    if !source.files.is_empty() {
        read.sources.push(source);
    }
    read
}

fn read_copy(source: &mut Source, file: &DataFile, against: &Against<'_>) {
    for number in 0..file.bytes / PAGE {
        let Some(page) = file.page(number) else { continue };
        if Header::parse(&page).is_of(file.number, number) {
            source.see(against, &page, false);
        }
    }
}

fn moment_of(file: &DataFile) -> Option<Moment> {
    let metadata = fs::metadata(&file.path).ok()?;
    Some((metadata.mtime(), metadata.mtime_nsec()))
}
