//! What the pages of a tablespace say of themselves and of one another, under sums that fit.
//!
//! | looked at | when | by |
//! |---|---|---|
//! | headers of index pages; level and index of pages beside each other; extents, segments and their lists | always, of files at rest | [`space`], [`tree`] |
//! | lists of records, directory, heap; fields and order of keys | `--structure`; of a page alone, so of a running server too | [`crate::page::index`], [`record`], [`zip`] |
//! | upper levels against the pages below, key against key | `--structure`, at rest | [`tree`] |
//! | rows and entries of secondary indexes: how many, and a sum of all of their bytes | `--structure`, at rest | [`tree`] |
//! | values that lie outside of their records | `--structure`, at rest | [`long`] |
//!
//! Pages are seen once, in any order; what is remembered of each is in a [`Fact`]. Nothing is followed
//! from page to page but lists of long values, in which no page is gone to twice. Only pages in use that
//! passed their own test have a say, and where one in use did not, or needs a key, the rest is
//! compared with nothing that it could be the reason of.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::page::allocation::AllocationMap;
use crate::page::compression::{Unpacked, unpack_mariadb, unpack_mysql};
use crate::page::fields::{
    FSP_SIZE, KEY_VERSION, KEY_VERSION_FULL_CRC32, PAGE_TYPE, TYPE_COMPRESSED,
    TYPE_COMPRESSED_MARK, TYPE_FSP_HDR, TYPE_PAGE_COMPRESSED, read_u16, read_u32,
};
use crate::page::index::{DELETED, FIRST, IndexPage, SEGMENTS, STATUS_INSTANT, TYPE_INSTANT};
use crate::page::is_stored_otherwise;
use crate::page::layout::{Form, Layout, Writer};
use pagewarden_core::database::{PageFile, Step};
use pagewarden_core::page::standings::Standings;
use pagewarden_core::page::{PageRun, Witness};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity, Standing};

mod definition;
mod dictionary;
mod long;
mod record;
mod sdi;
mod space;
#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests;
mod transactions;
mod tree;
mod zip;
mod zip_parts;

use definition::{Index, Indexes};
use record::{Begin, Key, Part};
pub(super) use sdi::Definitions;

const HINT: &str = "CHECK TABLE ... EXTENDED in the server names the index; copy the file before anything \
                    else, and restore the table from a backup";

/// Larger files are not gone through: 16 GiB of pages of 16 KiB, of which 110 MiB are remembered.
const PAGES_MAX: u64 = 1 << 20;
/// Of a file in which more is wrong the first are reported.
const FAULTS_MAX: usize = 1000;
/// Values outside of records that are remembered of a file.
const LONG_MAX: usize = 1 << 20;

const TYPE_INODE: u16 = 3;
const TYPE_BITMAP: u16 = 5;
const TYPE_XDES: u16 = 9;
const TYPE_BLOB: u16 = 10;

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum What {
    /// It is in use, and was not seen, or did not pass.
    #[default]
    Unknown,
    /// It is in no extent that is in use.
    Free,
    /// In use, of that type.
    Type(u16),
}

/// What is remembered of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Fact {
    what: What,
    level: u16,
    /// Of an index its number; of a long value its bytes, and the next page.
    index: u64,
    before: Option<u32>,
    next: Option<u32>,
    first: Begin,
    last: Begin,
}

impl Fact {
    fn is_of_index(&self) -> bool {
        matches!(self.what, What::Type(kind) if is_index(kind))
    }
}

fn is_index(kind: u16) -> bool {
    use crate::page::index::{TYPE_INDEX, TYPE_SDI};
    matches!(kind, TYPE_INDEX | TYPE_SDI | TYPE_INSTANT)
}

/// A record that leads to the page below.
#[derive(Debug, Clone, Copy)]
struct Child {
    parent: u32,
    /// Its place among the records of its page.
    rank: u16,
    page: u32,
    /// The first one has no key.
    key: Option<Begin>,
}

/// A value that goes on outside of its record.
#[derive(Debug, Clone, Copy)]
struct Long {
    of: u32,
    page: u32,
    /// The version, or the offset of the first part on its page.
    version: u32,
    bytes: u32,
}

/// How many rows, and a sum of what is in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Total {
    rows: u64,
    sum: u64,
    /// Of some rows it could not be taken.
    is_open: bool,
}

impl Total {
    fn add(&mut self, sum: Option<u64>) {
        self.rows = self.rows.saturating_add(1);
        self.is_open |= sum.is_none();
        self.sum = self.sum.wrapping_add(sum.unwrap_or(0));
    }

    fn merge(&mut self, other: &Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.sum = self.sum.wrapping_add(other.sum);
        self.is_open |= other.is_open;
    }
}

/// What was seen of a file, or of a part of it.
#[derive(Debug, Default)]
struct Found {
    facts: Vec<(u32, Fact)>,
    faults: Vec<(u32, String)>,
    children: Vec<Child>,
    long: Vec<Long>,
    /// Entries of each index; of rows by the index whose entries they should have.
    entries: HashMap<u64, Total>,
    rows: HashMap<u64, Total>,
    /// Pages of extents, of segments, and bitmaps of the change buffer.
    kept: Vec<(u32, Vec<u8>)>,
    /// Where the segments of roots are.
    segments: Vec<(u32, [(u32, usize); 2])>,
    /// A page of each index with records that have instant columns.
    instant: BTreeMap<u64, u32>,
    /// Pages with transactions that are still to come.
    late: Vec<(u32, String)>,
    /// Pages whose records do not fit the columns of their index, by the index; and how many do.
    misfits: Vec<(u64, u32, String)>,
    fitting: HashMap<u64, u32>,
}

/// All that was seen of a file.
#[derive(Debug, Default)]
struct Gathered {
    facts: Vec<Fact>,
    faults: BTreeMap<u32, String>,
    found: Found,
}

impl Gathered {
    fn add(&mut self, mut other: Found) {
        for (page, fact) in other.facts.drain(..) {
            let place = usize::try_from(page).ok().and_then(|at| self.facts.get_mut(at));
            if let Some(place) = place {
                *place = fact;
            }
        }
        self.faults.extend(other.faults.drain(..));
        while self.faults.len() > FAULTS_MAX {
            self.faults.pop_last();
        }
        let own = &mut self.found;
        own.misfits.append(&mut other.misfits);
        own.misfits.truncate(FAULTS_MAX);
        for (index, pages) in other.fitting {
            let fitting = own.fitting.entry(index).or_default();
            *fitting = fitting.saturating_add(pages);
        }
        own.late.append(&mut other.late);
        own.late.truncate(FAULTS_MAX);
        own.children.append(&mut other.children);
        own.long.append(&mut other.long);
        own.long.truncate(LONG_MAX);
        own.kept.append(&mut other.kept);
        own.segments.append(&mut other.segments);
        for (index, page) in other.instant {
            own.instant.entry(index).or_insert(page);
        }
        for (to, from) in [(&mut own.entries, other.entries), (&mut own.rows, other.rows)] {
            from.iter().for_each(|(index, total)| to.entry(*index).or_default().merge(total));
        }
    }

    fn fact(&self, page: u32) -> Fact {
        let slot = usize::try_from(page).ok().and_then(|at| self.facts.get(at));
        // Behind the end of the file there is no page.
        slot.copied().unwrap_or(Fact { what: What::Free, ..Fact::default() })
    }

    fn pages(&self) -> impl Iterator<Item = (u32, &Fact)> {
        (0_u32..).zip(&self.facts)
    }

    /// True if each page in use was seen and passed.
    fn is_whole(&self) -> bool {
        self.facts.iter().all(|fact| fact.what != What::Unknown)
    }
}

/// How a file is gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Depth {
    /// Records are looked at.
    pub(super) has_records: bool,
    /// What a page in itself proves.
    pub(super) alone: Severity,
    /// What pages prove that contradict each other; `None` where they may do so.
    pub(super) together: Option<Severity>,
}

impl Depth {
    fn is_asked(&self) -> bool {
        self.has_records || self.together.is_some()
    }
}

fn pages_of(file: &PageFile, layout: Layout) -> u64 {
    let page_bytes = u64::try_from(layout.page_size).unwrap_or(u64::MAX).max(1);
    file.listed_bytes.checked_div(page_bytes).unwrap_or(0)
}

/// Said of a file that is too large to be gone through.
pub(super) fn is_left_out(file: &PageFile, layout: Layout, depth: Depth) -> Option<Note> {
    let is_left_out = depth.is_asked() && pages_of(file, layout) > PAGES_MAX;
    is_left_out.then(|| Note {
        file: file.name.clone(),
        text: format!("more than {PAGES_MAX} pages: what they say of one another was not compared"),
    })
}

/// See [`Structure::others`].
type Others = HashMap<u64, Vec<(u64, Option<Vec<usize>>)>>;

/// One file of pages.
pub(super) struct Structure {
    file: String,
    path: PathBuf,
    database: Option<Arc<str>>,
    object: Option<Arc<str>>,
    layout: Layout,
    depth: Depth,
    allocated: Arc<AllocationMap>,
    indexes: Indexes,
    /// No transaction has a larger number.
    last_transaction: Option<u64>,
    /// Of each clustered index the others of its table, and which of its fields they have; `None`
    /// where those cannot be compared.
    others: Others,
    gathered: Mutex<Gathered>,
}

impl fmt::Debug for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Structure").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Witness for Structure {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let mut found = Found::default();
        for (PageNo(number), page, standing) in run.judged(self.layout.page_size, standings) {
            if let Ok(number) = u32::try_from(number) {
                let fact = self.look(standing, number, page, &mut found);
                found.facts.push((number, fact));
            }
        }
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).add(found);
    }
}

impl Structure {
    /// Looks at the pages of a file, if it is one that can be gone through.
    pub(super) fn watch(
        file: &mut PageFile,
        layout: Layout,
        allocated: &Arc<AllocationMap>,
        depth: Depth,
        definitions: &Definitions,
    ) -> Option<Arc<Self>> {
        let pages = pages_of(file, layout);
        if !depth.is_asked()
            || file.first_page.0 != 0
            || pages > PAGES_MAX
            || allocated.count() == 0
        {
            return None;
        }
        let has_columns = depth.has_records && depth.together.is_some();
        let indexes = match has_columns {
            true => definitions.of_file(&file.path, layout),
            false => Indexes::new(),
        };
        let mut gathered = Gathered::default();
        let state = |page| match allocated.contains(page) {
            true => Fact::default(),
            false => Fact { what: What::Free, ..Fact::default() },
        };
        gathered.facts = (0..pages).map(state).collect();
        let others = others_of(&indexes);
        let this = Arc::new(Self {
            file: file.name.clone(),
            path: file.path.clone(),
            database: file.database.clone(),
            object: file.object.clone(),
            layout,
            depth,
            allocated: Arc::clone(allocated),
            indexes,
            others,
            last_transaction: has_columns.then(|| definitions.last_transaction()).flatten(),
            gathered: Mutex::new(gathered),
        });
        file.witnesses.push(Arc::clone(&this) as _);
        Some(this)
    }

    /// Memory that it takes until it is concluded.
    pub(super) fn pages(&self) -> u64 {
        let gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        u64::try_from(gathered.facts.len()).unwrap_or(u64::MAX)
    }

    fn look(
        &self,
        standing: Option<Standing>,
        number: u32,
        page: &[u8],
        found: &mut Found,
    ) -> Fact {
        let of = |what| Fact { what, ..Fact::default() };
        if !self.allocated.contains(u64::from(number)) {
            return of(What::Free);
        }
        match standing {
            Some(Standing::Ok) => {}
            // In use, and not written since.
            Some(Standing::Empty) => return of(What::Type(0)),
            _ => return of(What::Unknown),
        }
        let unpacked;
        let page = match self.clear(page) {
            Ok(Some(Clear::AsItIs)) => page,
            Ok(Some(Clear::Unpacked(clear))) => {
                unpacked = clear;
                &unpacked
            }
            Ok(None) => return of(What::Unknown),
            Err(words) => {
                found.faults.push((number, words));
                return of(What::Unknown);
            }
        };
        let kind = read_u16(page, PAGE_TYPE);
        if matches!(kind, TYPE_FSP_HDR | TYPE_INODE | TYPE_BITMAP | TYPE_XDES) {
            found.kept.push((number, page.to_vec()));
        }
        if kind == TYPE_BLOB || self.is_long_definition(kind) {
            let (bytes, next) = (read_u32(page, 38), read_u32(page, 42));
            let next = Some(next).filter(|next| *next != u32::MAX);
            return Fact { index: u64::from(bytes), next, ..of(What::Type(TYPE_BLOB)) };
        }
        if self.layout.form == Form::Zip && long::TYPES_STREAM.contains(&kind) {
            let next = Some(read_u32(page, 12)).filter(|next| *next != u32::MAX);
            return Fact { next, ..of(What::Type(kind)) };
        }
        match IndexPage::new(page) {
            Some(index) => self.look_at_index(number, &index, found),
            None => of(What::Type(kind)),
        }
    }

    /// True of MySQL's long values of definitions, whose type is that of roots with instant columns in MariaDB.
    fn is_long_definition(&self, kind: u16) -> bool {
        self.layout.writer == Some(Writer::MySql8) && kind == TYPE_INSTANT
    }

    /// The page as its server sees it; `None` where that needs a key.
    ///
    /// # Errors
    /// Of a compressed table: it is none that a server writes; in words.
    fn clear(&self, page: &[u8]) -> Result<Option<Clear>, String> {
        let kind = read_u16(page, PAGE_TYPE);
        let is_locked = match self.layout.form {
            Form::FullCrc32 => {
                read_u32(page, KEY_VERSION_FULL_CRC32) != 0 || kind & TYPE_COMPRESSED_MARK != 0
            }
            Form::Old | Form::Zip => is_index(kind) && read_u32(page, KEY_VERSION) != 0,
        };
        if is_locked {
            return Ok(None);
        }
        let has_records = self.layout.form == Form::Zip && self.depth.has_records;
        let is_index = !self.is_long_definition(kind);
        if let Some(index) = IndexPage::new(page).filter(|_| has_records && is_index) {
            let page = zip::unpack(&index, self.layout.logical_page_size)?;
            return Ok(Some(Clear::Unpacked(page)));
        }
        let unpacked = match kind {
            TYPE_COMPRESSED => unpack_mysql(page),
            TYPE_PAGE_COMPRESSED => unpack_mariadb(page),
            _ if is_stored_otherwise(kind) => return Ok(None),
            _ => return Ok(Some(Clear::AsItIs)),
        };
        Ok(match unpacked {
            Unpacked::Page(page) => Some(Clear::Unpacked(page)),
            Unpacked::Unsupported | Unpacked::Broken(_) => None,
        })
    }

    fn look_at_index(&self, number: u32, page: &IndexPage<'_>, found: &mut Found) -> Fact {
        let kind = read_u16(page.bytes(), PAGE_TYPE);
        let [before, next] = page.beside();
        let mut fact = Fact {
            what: What::Type(kind),
            level: page.level(),
            index: page.index(),
            before,
            next,
            ..Fact::default()
        };
        let tested = match (self.layout.form, self.depth.has_records) {
            (_, true) => page.test().inspect(|()| {
                let fits = self.look_at_records(number, page, &mut fact, found);
                let fitting = found.fitting.entry(page.index()).or_default();
                match fits {
                    Ok(()) => *fitting = fitting.saturating_add(1),
                    Err(words) => found.misfits.push((page.index(), number, words)),
                }
            }),
            (Form::Zip, false) => Ok(()),
            (_, false) => page.test_header(),
        };
        if let Err(words) = tested {
            found.faults.push((number, words));
            return Fact::default();
        }
        if found.misfits.last().is_some_and(|(_, page, _)| *page == number) {
            return Fact::default();
        }
        let is_secondary =
            self.indexes.get(&page.index()).is_some_and(|it| !it.is_clustered(page.index()));
        if is_secondary && page.level() == 0 && page.record_count() > 0 {
            let fault = self.fault_of_transaction(page.transaction());
            found.late.extend(fault.map(|fault| (number, fault)));
        }
        if before.is_none() && next.is_none() {
            let place = |at: usize| {
                let segment = page.bytes().get(at..).unwrap_or_default();
                (read_u32(segment, 4), read_u16(segment, 8).into())
            };
            found.segments.push((number, SEGMENTS.map(place)));
        }
        fact
    }

    fn look_at_records(
        &self,
        number: u32,
        page: &IndexPage<'_>,
        fact: &mut Fact,
        found: &mut Found,
    ) -> Result<(), String> {
        let is_mysql = self.layout.writer == Some(Writer::MySql8);
        let Some(index) = self.indexes.get(&page.index()) else { return Ok(()) };
        let (mut parts, mut extents) = (Vec::new(), Vec::new());
        let mut before: Option<Key> = None;
        for (place, rank) in page.records().zip(0_u16..) {
            let at = place.origin;
            if place.status == STATUS_INSTANT {
                if is_mysql {
                    return Err(format!("the record at byte {at} has a status of MariaDB's"));
                }
                found.instant.entry(page.index()).or_insert(number);
            }
            let is_first = place.info & FIRST != 0;
            if is_first && page.level() == 0 {
                // What instant columns are, where the first row would be.
                continue;
            }
            let is_known = !record::is_of_another_version(index, &place);
            if is_known {
                let extent = record::parts(index, page, &place, &mut parts)
                    .map_err(|why| format!("the record at byte {at}: {why}"))?;
                extents.push(extent);
            } else {
                if page.level() == 0 && place.info & DELETED == 0 {
                    found.entries.entry(page.index()).or_default().add(None);
                    self.add_rows(page, None, found);
                }
                if record::key_parts(index, &place, &mut parts).is_none() {
                    before = None;
                    continue;
                }
            }
            let key = Key::of(index, page.bytes(), &parts);
            if !is_first {
                use std::cmp::Ordering::{Equal, Greater};
                let order = before.and_then(|before| before.compare(&key));
                if let Some(Greater | Equal) = order {
                    return Err(format!(
                        "the record at byte {at} has no larger key than the one before it in {}",
                        index.name
                    ));
                }
                if rank == 0 {
                    fact.first = key.begin();
                }
                fact.last = key.begin();
            }
            before = (!is_first).then_some(key);
            if page.level() > 0 {
                let below = record::child(page.bytes(), &parts)
                    .ok_or_else(|| format!("the record at byte {at} leads to no page"))?;
                let key = (!is_first).then(|| key.begin());
                found.children.push(Child { parent: number, rank, page: below, key });
            } else if is_known {
                self.add_row(number, page, index, &parts, place.info & DELETED != 0, found);
            }
        }
        test_extents(page, extents)
    }

    fn add_row(
        &self,
        number: u32,
        page: &IndexPage<'_>,
        index: &Index,
        parts: &[Part],
        is_deleted: bool,
        found: &mut Found,
    ) {
        for part in parts.iter().filter(|part| part.is_outside) {
            found.long.extend(long::reference(number, part.of(page.bytes())));
        }
        if index.is_clustered(page.index())
            && let Some(part) = parts.get(index.key_count)
            && let Some(fault) =
                self.fault_of_transaction(transactions::number(part.of(page.bytes())))
        {
            found.late.push((number, fault));
        }
        if is_deleted {
            return;
        }
        let all = (0..parts.len()).filter_map(|at| parts.get(at));
        let sum = match index.is_clustered(page.index()) {
            true => None,
            false => sum_of(page.bytes(), all),
        };
        found.entries.entry(page.index()).or_default().add(sum);
        if index.is_clustered(page.index()) {
            self.add_rows(page, Some(parts), found);
        }
    }

    /// Adds a row to what each of the other indexes must have.
    fn add_rows(&self, page: &IndexPage<'_>, parts: Option<&[Part]>, found: &mut Found) {
        for (other, fields) in self.others.get(&page.index()).into_iter().flatten() {
            let sum = fields.as_ref().zip(parts).and_then(|(fields, parts)| {
                let those = fields.iter().filter_map(|at| parts.get(*at));
                sum_of(page.bytes(), those)
            });
            found.rows.entry(*other).or_default().add(sum);
        }
    }

    /// What is wrong, once all pages were seen.
    pub(super) fn conclude(&self) -> Vec<Step> {
        let mut gathered =
            std::mem::take(&mut *self.gathered.lock().unwrap_or_else(PoisonError::into_inner));
        let mut steps = Vec::new();
        let alone = std::mem::take(&mut gathered.faults);
        for (page, words) in &alone {
            steps.push(self.page_fault(*page, words, self.depth.alone));
        }
        for (index, page, words) in std::mem::take(&mut gathered.found.misfits) {
            // Where not one page fits, the columns may be other ones than was read.
            let fits = gathered.found.fitting.get(&index).is_some_and(|pages| *pages > 0);
            let severity = if fits { self.depth.alone } else { Severity::Suspect };
            steps.push(self.page_fault(page, &words, severity.min(self.depth.alone)));
        }
        let Some(together) = self.depth.together.filter(|_| !self.is_shorter(&gathered)) else {
            return steps;
        };
        let mut faults = BTreeMap::new();
        self.compare_space(&gathered, &mut faults);
        self.compare_tree(&mut gathered, &mut faults);
        faults.extend(std::mem::take(&mut gathered.found.late));
        if self.depth.has_records {
            self.compare_long(&gathered, &mut faults);
        }
        for (page, words) in faults.iter().filter(|(page, _)| !alone.contains_key(page)) {
            steps.push(self.page_fault(*page, words, together));
        }
        if self.depth.has_records && gathered.is_whole() {
            let detail = self.compare_totals(&gathered);
            steps.extend(
                detail
                    .into_iter()
                    .take(FAULTS_MAX)
                    .map(|detail| Step::Finding(self.finding(Kind::Structure, detail, together))),
            );
        }
        steps.truncate(FAULTS_MAX);
        steps
    }

    /// True if the file ends before page 0 says, which is reported: its pages say much of those that are
    /// gone. Servers round files down to blocks of 4096 bytes.
    fn is_shorter(&self, gathered: &Gathered) -> bool {
        let pages = u64::try_from(gathered.facts.len()).unwrap_or(u64::MAX);
        let first = gathered.found.kept.iter().find(|(number, _)| *number == 0);
        let counted = first.map_or(0, |(_, page)| read_u32(page, FSP_SIZE));
        let missing = u64::from(counted).saturating_sub(pages);
        missing.saturating_mul(u64::try_from(self.layout.page_size).unwrap_or(u64::MAX)) >= 4096
    }

    fn finding(&self, kind: Kind, detail: String, severity: Severity) -> Finding {
        Finding::of_file(&self.file, severity, kind, detail)
            .about(self.database.as_deref(), self.object.as_deref())
            .with_hint(HINT)
    }

    fn page_fault(&self, page: u32, words: &str, severity: Severity) -> Step {
        let page_bytes = u64::try_from(self.layout.page_size).unwrap_or(u64::MAX);
        let offset = u64::from(page).checked_mul(page_bytes).map(ByteOffset);
        let finding = self.finding(Kind::Structure, words.to_owned(), severity);
        Step::Overruled(finding.at(Some(PageNo(u64::from(page))), offset), Standing::Ok)
    }

    fn fault_of_transaction(&self, number: u64) -> Option<String> {
        // Of rows that the server writes for itself, in `mysql.innodb_dynamic_metadata`.
        const NO_TRANSACTION: u64 = (1 << 48) - 1;
        let last = self.last_transaction?;
        (number > last && number != NO_TRANSACTION)
            .then(|| format!("transaction {number} changed it, and none had a number above {last}"))
    }

    /// What was not compared, for people.
    pub(super) fn note(&self) -> Option<Note> {
        let is_unknown = self.depth.has_records && self.indexes.is_empty();
        is_unknown.then(|| Note {
            file: self.file.clone(),
            text: "the columns of its indexes are not known: keys, rows and long values were not \
                   compared"
                .to_owned(),
        })
    }
}

/// A page in the clear.
enum Clear {
    AsItIs,
    Unpacked(Vec<u8>),
}

/// No record lies in another, or outside of the heap; and all of them and the removed ones fill it.
fn test_extents(page: &IndexPage<'_>, mut extents: Vec<(usize, usize)>) -> Result<(), String> {
    let sizes = extents.iter().map(|(begin, end)| end.saturating_sub(*begin));
    let bytes = sizes.fold(0, usize::saturating_add);
    let by_header = page.bytes_of_records();
    if extents.len() == usize::from(page.record_count()) && bytes != by_header {
        return Err(format!("its records have {bytes} bytes, and {by_header} by its header"));
    }
    extents.sort_unstable();
    let mut before = 0;
    for (begin, end) in extents {
        if begin < before {
            return Err(format!("two of its records have byte {begin}"));
        }
        before = end;
    }
    match before <= page.heap_top() {
        true => Ok(()),
        false => Err(format!("a record ends at byte {before}, behind its heap")),
    }
}

/// A number for the values of a record; `None` if a part of one lies elsewhere.
fn sum_of<'a>(page: &[u8], parts: impl Iterator<Item = &'a Part>) -> Option<u64> {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut sum = FACTOR;
    for part in parts {
        if part.is_outside || part.is_missing {
            return None;
        }
        if part.is_null {
            sum = mix(sum, u64::MAX);
            continue;
        }
        let (words, rest) = part.of(page).as_chunks::<8>();
        sum = words.iter().fold(sum, |sum, word| mix(sum, u64::from_be_bytes(*word)));
        let last = rest.iter().fold(1, |word: u64, byte| word << 8 | u64::from(*byte));
        sum = mix(sum, last);
    }
    Some(mix(sum, sum >> 32))
}

/// The other indexes of each table, by its clustered one.
fn others_of(indexes: &Indexes) -> Others {
    let mut others = Others::new();
    for (number, index) in indexes {
        let Some(clustered) = indexes.get(&index.clustered) else { continue };
        if index.is_clustered(*number) || !index.is_of_rows {
            continue;
        }
        let is_part = index.fields.iter().any(|field| field.is_prefix);
        let place =
            |column| clustered.fields.iter().position(|it| it.column == column && !it.is_prefix);
        let places: Option<Vec<_>> = index.fields.iter().map(|it| place(it.column)).collect();
        let places = places.filter(|_| index.is_stored && !is_part);
        others.entry(index.clustered).or_default().push((*number, places));
    }
    others
}
