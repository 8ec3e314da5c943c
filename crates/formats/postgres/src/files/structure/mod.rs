//! What `--structure` adds: tables compared with their indexes, keys with their order, rows
//! with their TOAST values. Only in a cluster that was shut down cleanly.
//!
//! | file | subject |
//! | --- | --- |
//! | `table` | a table as a whole, with all that is compared with it |
//! | `live` | the rows that count, and whether entries lead to each, with its keys |
//! | `index` | the entries of a btree index, in order |
//! | `downlinks` | keys of inner pages against those of their children |
//! | `order` | types whose order is known without a server |
//! | `values` | the values of rows and entries |
//! | `toast` | chunks of long values |
//! | `side_by_side` | work that is shared between threads |
//!
//! Every table is read again, then each of its indexes, by [`THREADS`] threads; those of a large
//! table side by side. Not compared, and counted in a note: the keys of indexes of expressions (each row
//! must have its entry), the rows of those of a part of the rows (their order is looked at), other
//! methods than btree, the order of types and collations that only a server knows.
//!
//! Memory: up to 192 MiB a thread for bits and sums, 64 MiB for keys that wait, and the long
//! values of one table.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use crate::files::catalogue::columns::{IndexShape, Shapes};
use crate::files::catalogue::relations::{
    Certainty, Persistence, Relation, RelationKind, Relations,
};
use crate::files::catalogue::transactions::Moment;
use crate::files::catalogue::{Catalogue, Database};
use crate::files::structure::side_by_side::side_by_side;
use crate::files::structure::table::{Found, Table};
use pagewarden_core::database::Step;
use pagewarden_core::database::thread::steps_of;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Severity, Standing};

mod downlinks;
mod index;
mod late;
mod live;
mod order;
mod side_by_side;
mod table;
mod toast;
mod values;

/// Tables that are looked at side by side.
const THREADS: usize = 2;
/// Steps that wait to be taken.
const STEPS_AHEAD: usize = 1024;
/// Names of indexes in a note.
const NAMES_MAX: usize = 3;
/// The access method of btree indexes, in `pg_class.relam`.
const BTREE: u32 = 403;

/// What is looked at, and how its findings are placed.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) catalogue: Catalogue,
    /// Findings name files relative to this.
    pub(super) root: std::path::PathBuf,
    pub(super) page_size: usize,
    pub(super) segment_pages: u64,
    /// What sound pages were counted as.
    pub(super) counted: Standing,
}

/// The steps of all databases. They begin when the first is asked for, and end when no more
/// are taken.
pub(super) fn steps(subject: Subject) -> impl Iterator<Item = Step> + Send {
    steps_of("the structure of the cluster".to_owned(), STEPS_AHEAD, move |steps| {
        subject.look(steps);
    })
}

fn note(text: String) -> Step {
    Step::Note(Note { file: String::new(), text })
}

/// One database, as far as it is known, or the relations of the whole cluster as it lists them.
struct Known<'a> {
    database: &'a Database,
    is_shared: bool,
    relations: &'a Relations,
    shapes: &'a Shapes,
}

/// Indexes that were not compared, or not in full.
#[derive(Debug, Default)]
struct Left {
    unordered: Vec<String>,
    /// Of expressions: each row has its entry.
    computed: u64,
    /// Of rows that fulfil a condition.
    partial: u64,
    others: u64,
}

impl Subject {
    fn look(&self, steps: &SyncSender<Step>) {
        let databases = self.catalogue.databases(Moment::AtRest);
        // Every database lists them, and their columns.
        let shared = self.catalogue.shared(&databases, Moment::AtRest);
        if let Some(gap) = shared.gaps.listed.first() {
            let text = format!(
                "the tables of the whole cluster were not compared with their indexes: {gap}"
            );
            if steps.send(note(text)).is_err() {
                return;
            }
        }
        let mut waits = shared.gaps.is_empty();
        for database in &databases.listed {
            if database.certainty != Certainty::Certain || database.is_half_dropped {
                continue;
            }
            let relations = self.catalogue.relations(database, Moment::AtRest);
            let shapes = match relations.gaps.listed.first() {
                Some(gap) => Err(gap.to_string()),
                None => self.catalogue.shapes(database, &relations, Moment::AtRest),
            };
            let is_taken = match shapes {
                Err(why) => {
                    let text = format!(
                        "the tables of database {} were not compared with their indexes: {why}",
                        database.name
                    );
                    steps.send(note(text)).is_ok()
                }
                Ok(shapes) => {
                    let known = |relations, is_shared| Known {
                        database,
                        is_shared,
                        relations,
                        shapes: &shapes,
                    };
                    let is_first = std::mem::take(&mut waits);
                    (!is_first || self.database(&known(&shared, true), steps))
                        && self.database(&known(&relations, false), steps)
                }
            };
            if !is_taken {
                return;
            }
        }
    }

    /// All tables of a database; false if no more steps are taken.
    fn database(&self, known: &Known<'_>, steps: &SyncSender<Step>) -> bool {
        let (tables, mut left) = tables(known);
        // The largest first: a large one at the end would keep one thread alone.
        let blocks = |table: &Table<'_>| self.catalogue.block_count(table.heap, table.database);
        let mut order: Vec<(u64, usize)> = tables.iter().map(blocks).zip(0..).collect();
        order.sort_by_key(|(blocks, number)| (std::cmp::Reverse(*blocks), *number));
        let is_over = AtomicBool::new(false);
        let goes_on = |bytes: u64| {
            let is_taken = steps.send(Step::Passed(bytes)).is_ok();
            is_over.fetch_or(!is_taken, Ordering::Relaxed);
            is_taken
        };
        let found = side_by_side(THREADS, |place| {
            let (_, number) = order.get(place).filter(|_| !is_over.load(Ordering::Relaxed))?;
            let table = tables.get(*number)?;
            Some((*number, table.look(&self.catalogue, known.shapes, &goes_on)))
        });
        let found: BTreeMap<usize, Found> = found.into_iter().collect();
        if is_over.load(Ordering::Relaxed) {
            return false;
        }
        for (number, found) in found {
            let Some(table) = tables.get(number) else { continue };
            let names = |index: &usize| {
                let index = table.indexes.get(*index)?;
                Some(known.relations.name(index))
            };
            left.unordered.extend(found.unordered.iter().filter_map(names));
            if self.tell(known, table, found).into_iter().any(|step| steps.send(step).is_err()) {
                return false;
            }
        }
        left.tell(known).into_iter().all(|step| steps.send(step).is_ok())
    }

    /// The findings of one table.
    fn tell(&self, known: &Known<'_>, table: &Table<'_>, found: Found) -> Vec<Step> {
        let mut steps = Vec::new();
        let name = known.relations.name(table.heap);
        if let Some(why) = found.why_not {
            steps.push(note(format!("{name} was not compared with its indexes: {why}")));
        }
        for (index, why) in found.in_part {
            let index = index.and_then(|index| table.indexes.get(index));
            let what = match index {
                Some(index) => format!("index {}", known.relations.name(index)),
                None => format!("the long values of {name}"),
            };
            steps.push(note(format!("{what}: compared in part only: {why}")));
        }
        for (block, text) in found.rows {
            steps.push(self.page(known, table.heap, block, text));
        }
        for (index, (faults, verdict)) in table.indexes.iter().zip(found.indexes) {
            for (block, text) in faults {
                steps.push(self.page(known, index, block, text));
            }
            if let Some((count, first)) = verdict.missing {
                let rows = if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
                let text = format!(
                    "it has no entry for {rows} of {name}: the first is ({}, {})",
                    first.block, first.number
                );
                steps.push(Step::Finding(self.file(known, index, text)));
            }
            if let Some((count, first)) = verdict.lost {
                let entries =
                    if count == 1 { "an entry".to_owned() } else { format!("{count} entries") };
                let text = format!(
                    "it has {entries} for rows that {name} does not have: the first is ({}, {})",
                    first.block, first.number
                );
                let hint = "the table has lost rows, or the index is an older version: see which by a \
                            copy or a backup before the index is built anew";
                steps.push(Step::Finding(self.file(known, index, text).with_hint(hint)));
            }
            if let Some((count, first)) = verdict.other_keys {
                let text = format!(
                    "its entries have other keys than the rows of {count} blocks of {name}: the first is {first}"
                );
                steps.push(Step::Finding(self.file(known, index, text)));
            }
        }
        steps
    }

    /// A finding about a relation as a whole.
    fn file(&self, known: &Known<'_>, relation: &Relation, text: String) -> Finding {
        let path = self.catalogue.file_of(relation, known.database.oid);
        let file = path.strip_prefix(&self.root).unwrap_or(&path).to_string_lossy();
        let mut finding = Finding::of_file(&file, Severity::Damage, Kind::Structure, text);
        let name = known.relations.name(relation);
        finding.database = (!known.is_shared).then(|| known.database.name.clone());
        if relation.kind == RelationKind::Index && !name.ends_with("(TOAST index)") {
            let hint = format!("an index can be built anew from its table: REINDEX INDEX {name}");
            finding = finding.with_hint(hint);
        }
        finding.object = Some(name);
        finding
    }

    /// A finding about one of its pages.
    fn page(&self, known: &Known<'_>, relation: &Relation, block: u32, text: String) -> Step {
        let mut finding = self.file(known, relation, text);
        let block = u64::from(block);
        let segment = block.checked_div(self.segment_pages).unwrap_or(0);
        let in_segment = block.checked_rem(self.segment_pages).unwrap_or(block);
        if segment > 0 {
            finding.place.file = format!("{}.{segment}", finding.place.file);
        }
        let offset = in_segment.saturating_mul(self.page_size as u64);
        let finding = finding.at(Some(PageNo(block)), Some(ByteOffset(offset)));
        Step::Overruled(finding, self.counted)
    }
}

/// The tables of a database with their indexes, and what is left out.
fn tables<'a>(known: &Known<'a>) -> (Vec<Table<'a>>, Left) {
    let is_kept = |relation: &&Relation| {
        relation.certainty == Certainty::Certain && relation.persistence != Persistence::Temporary
    };
    let mut left = Left::default();
    let mut indexes: HashMap<u32, Vec<&Relation>> = HashMap::new();
    let mut toast: HashMap<u32, &Relation> = HashMap::new();
    for relation in known.relations.iter().filter(is_kept) {
        match relation.kind {
            RelationKind::Index if relation.method != BTREE => left.others += 1,
            RelationKind::Index if relation.is_complete_index => {
                let shape = known.shapes.index(relation.oid);
                left.partial += u64::from(shape.is_some_and(|shape| shape.is_partial));
                let is_computed = |shape: &IndexShape| shape.is_expression && !shape.is_partial;
                left.computed += u64::from(shape.is_some_and(is_computed));
                indexes.entry(relation.owner).or_default().push(relation);
            }
            RelationKind::Toast => drop(toast.insert(relation.owner, relation)),
            _ => {}
        }
    }
    let heaps = known.relations.iter().filter(is_kept).filter(|relation| relation.is_heap());
    let table = |heap: &'a Relation| Table {
        heap,
        indexes: indexes.get(&heap.oid).cloned().unwrap_or_default(),
        toast: toast.get(&heap.oid).copied(),
        database: known.database.oid,
    };
    (heaps.map(table).collect(), left)
}

impl Left {
    fn tell(&self, known: &Known<'_>) -> Option<Step> {
        let mut parts = Vec::new();
        if !self.unordered.is_empty() {
            let names: Vec<_> = self.unordered.iter().take(NAMES_MAX).map(String::as_str).collect();
            let more = match self.unordered.len().saturating_sub(names.len()) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            parts.push(format!(
                "the whole order of keys in {}{more}, which only a server knows",
                names.join(", ")
            ));
        }
        if self.computed > 0 {
            parts.push(format!("the computed keys of {} of expressions", indexes(self.computed)));
        }
        if self.partial > 0 {
            let indexes = indexes(self.partial);
            parts.push(format!("{indexes} of a part of the rows, but for the order of keys"));
        }
        if self.others > 0 {
            parts.push(format!("{} of other methods than btree", indexes(self.others)));
        }
        let place = match known.is_shared {
            true => "among the relations of the whole cluster".to_owned(),
            false => format!("in database {}", known.database.name),
        };
        let text = format!("not compared {place}: {}", parts.join("; "));
        (!parts.is_empty()).then(|| note(text))
    }
}

fn indexes(count: u64) -> String {
    match count {
        1 => "1 index".to_owned(),
        count => format!("{count} indexes"),
    }
}

/// What is said where tables cannot be compared with their indexes.
pub(super) fn not_done() -> Step {
    let text =
        "the structure was not compared: that takes a whole cluster that was shut down cleanly";
    note(text.to_owned())
}
