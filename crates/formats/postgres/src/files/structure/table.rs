//! One table with its btree indexes and its TOAST table, looked at as a whole.

use crate::files::catalogue::Catalogue;
use crate::files::catalogue::columns::{Column, IndexShape, Shapes};
use crate::files::catalogue::relations::Relation;
use crate::files::catalogue::transactions::{Moment, Transactions};
use crate::files::catalogue::tuple::Tuple;
use crate::files::catalogue::visibility::{Visibility, visibility, wrong_hint};
use crate::files::structure::THREADS;
use crate::files::structure::index::IndexReader;
use crate::files::structure::late;
use crate::files::structure::live::{Entries, KeyHash, LiveRows, Verdict, blocks_at_a_time};
use crate::files::structure::side_by_side::side_by_side;
use crate::files::structure::toast::LongValues;
use crate::files::structure::values::{Value, Values};
use crate::files::witness::heap::{self, LinePointer, line_pointers};
use crate::files::witness::rows::XMIN_COMMITTED;
use crate::files::witness::{Tid, chains};

/// A table, with all that is compared with it.
#[derive(Debug, Clone)]
pub(super) struct Table<'a> {
    pub(super) heap: &'a Relation,
    /// Complete btree indexes of columns, of all rows.
    pub(super) indexes: Vec<&'a Relation>,
    pub(super) toast: Option<&'a Relation>,
    /// The oid of the database.
    pub(super) database: u32,
}

/// What was found. Blocks are those of the relation that is at fault.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Of the table.
    pub(super) rows: Vec<(u32, String)>,
    /// Of each index: its pages, and what its entries say of the rows.
    pub(super) indexes: Vec<(Vec<(u32, String)>, Verdict)>,
    /// Indexes whose order was not compared, by number.
    pub(super) unordered: Vec<usize>,
    /// The table and its indexes were not compared: a page fails, or columns are not known.
    pub(super) why_not: Option<String>,
    /// What was compared in part only, and why: an index by its number, or the long values.
    pub(super) in_part: Vec<(Option<usize>, &'static str)>,
    /// Bytes that were read.
    pub(super) bytes: u64,
}

/// What one index says of a part of its table.
struct FoundInIndex {
    number: usize,
    bytes: u64,
    /// As in [`Found`], and not said before.
    is_unordered: bool,
    is_full: bool,
    is_unread: bool,
    faults: Vec<(u32, String)>,
    verdict: Verdict,
}

/// The rows of a part of a table.
struct Read {
    live: LiveRows,
    long: LongValues,
    faults: Vec<(u32, String)>,
    pages: u64,
    /// No page fails its test.
    is_whole: bool,
}

impl Read {
    /// With those of the blocks that come next.
    fn join(&mut self, next: Self) {
        self.live.join(next.live);
        self.long.join(next.long);
        self.faults.extend(next.faults);
        self.faults.truncate(FAULTS_MAX);
        self.pages = self.pages.saturating_add(next.pages);
        self.is_whole &= next.is_whole;
    }
}

/// Takes the number of bytes read, and says whether to go on.
pub(super) type GoesOn<'a> = dyn Fn(u64) -> bool + Sync + 'a;

impl Found {
    fn add(&mut self, one: FoundInIndex) {
        let number = one.number;
        self.bytes = self.bytes.saturating_add(one.bytes);
        if one.is_unordered {
            self.unordered.push(number);
        }
        let full = one.is_full.then_some("more keys wait than are remembered");
        let unread = one.is_unread.then_some("a page is empty or fails its test");
        self.in_part.extend(full.into_iter().chain(unread).map(|why| (Some(number), why)));
        if let Some((faults, verdict)) = self.indexes.get_mut(number) {
            faults.extend(one.faults);
            verdict.join(one.verdict);
        }
    }
}

/// An index with its shape and the columns of its entries.
struct Known<'a> {
    relation: &'a Relation,
    shape: &'a IndexShape,
    columns: &'a [Column],
}

/// What is known of the table's rows before they are read.
struct Rows<'a> {
    columns: &'a [Column],
    /// For each column the value that older rows have; `None` where that is not known.
    late: Vec<Option<Vec<u8>>>,
    indexes: &'a [Known<'a>],
    toast: Option<u32>,
}

/// The indexes of a table with this number of blocks are read side by side, and so are its halves.
const SIDE_BY_SIDE_BLOCKS_MIN: usize = 256;
/// Rows whose faults are reported.
const FAULTS_MAX: usize = 1000;

impl Table<'_> {
    /// Looks at it. `goes_on` takes the number of bytes read and says whether to.
    pub(super) fn look(
        &self,
        catalogue: &Catalogue,
        shapes: &Shapes,
        goes_on: &GoesOn<'_>,
    ) -> Found {
        let mut found = Found::default();
        let known: Option<Vec<_>> = self.indexes.iter().map(|index| known(index, shapes)).collect();
        let Some((columns, indexes)) = shapes.columns(self.heap.oid).zip(known) else {
            found.why_not = Some("its columns are not known for sure".to_owned());
            return found;
        };
        let late = columns.iter().map(|column| late::value(shapes.late(column)?, column));
        let toast = self.toast.map(|toast| toast.oid);
        let rows = Rows { columns, late: late.collect(), indexes: &indexes, toast };
        let page_size = catalogue.page_size();
        let all = catalogue.block_count(self.heap, self.database);
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        let part = blocks_at_a_time(page_size, indexes.len()).min(all).max(1);
        let mut long = LongValues::default();
        let mut first = 0_u32;
        found.indexes = indexes.iter().map(|_| Default::default()).collect();
        loop {
            let read = self.rows(catalogue, &rows, first, part);
            let end = first.saturating_add(u32::try_from(part).unwrap_or(u32::MAX));
            let bytes = read.pages.saturating_mul(page_size as u64);
            found.bytes = found.bytes.saturating_add(bytes);
            found.rows.extend(read.faults);
            found.rows.truncate(FAULTS_MAX);
            long.join(read.long);
            let is_going_on = goes_on(bytes);
            if !read.is_whole {
                found.why_not = Some("a page of it is empty or fails its test".to_owned());
            }
            if is_going_on && read.is_whole {
                let all = self.indexes(catalogue, &indexes, &read.live, first > 0, goes_on);
                all.into_iter().for_each(|one| found.add(one));
            }
            if usize::try_from(end).is_ok_and(|end| end >= all) || !is_going_on || !read.is_whole {
                break;
            }
            first = end;
        }
        if let Some(toast) = self.toast.filter(|_| !long.is_empty()) {
            self.long_values(catalogue, shapes, toast, &mut long, &mut found);
        }
        found
    }

    /// The rows of a part of the table, a large one by several threads.
    fn rows(&self, catalogue: &Catalogue, rows: &Rows<'_>, first: u32, blocks: usize) -> Read {
        let slices = if blocks >= SIDE_BY_SIDE_BLOCKS_MIN { THREADS } else { 1 };
        let slice = blocks.div_ceil(slices).max(1);
        let read = |number: usize| {
            let begin = number.saturating_mul(slice);
            let count = slice.min(blocks.saturating_sub(begin));
            let begin = first.saturating_add(u32::try_from(begin).unwrap_or(u32::MAX));
            (number < slices).then(|| self.slice(catalogue, rows, begin, count))
        };
        let all = side_by_side(slices, read).into_iter().reduce(|mut all, next| {
            all.join(next);
            all
        });
        all.unwrap_or_else(|| self.slice(catalogue, rows, first, 0))
    }

    fn slice(&self, catalogue: &Catalogue, rows: &Rows<'_>, first: u32, blocks: usize) -> Read {
        let mut transactions = catalogue.transactions(Moment::AtRest);
        let mut read = Read {
            live: LiveRows::new(first, blocks, catalogue.page_size(), &rows.is_late()),
            long: LongValues::default(),
            faults: Vec::new(),
            pages: 0,
            is_whole: false,
        };
        let end = first.saturating_add(u32::try_from(blocks).unwrap_or(u32::MAX));
        read.is_whole =
            catalogue.each_page_of(self.heap, self.database, first..end, |block, page| {
                read.pages = read.pages.saturating_add(1);
                rows.read(
                    block,
                    page,
                    &mut transactions,
                    &mut read.live,
                    &mut read.long,
                    &mut read.faults,
                );
            });
        read
    }

    /// Every index beside a part of the table, several of a large one at a time.
    fn indexes(
        &self,
        catalogue: &Catalogue,
        indexes: &[Known<'_>],
        live: &LiveRows,
        is_again: bool,
        goes_on: &GoesOn<'_>,
    ) -> Vec<FoundInIndex> {
        let is_large = live.blocks() >= SIDE_BY_SIDE_BLOCKS_MIN;
        side_by_side(if is_large { THREADS } else { 1 }, |number| {
            let index = indexes.get(number)?;
            Some(self.index(catalogue, (number, index), live, is_again, goes_on))
        })
    }

    fn index(
        &self,
        catalogue: &Catalogue,
        (number, index): (usize, &Known<'_>),
        live: &LiveRows,
        is_again: bool,
        goes_on: &GoesOn<'_>,
    ) -> FoundInIndex {
        let mut reader = IndexReader::new(index.shape, index.columns, is_again);
        let mut entries = live.quick(number);
        let (is_whole, pages) = self.read_index(catalogue, index, &mut reader, &mut entries, live);
        let mut bytes = pages.saturating_mul(catalogue.page_size() as u64);
        reader.finish();
        // Entries on pages that cannot be read are no loss of the index's.
        let is_asked = is_whole && reader.faults.is_empty() && !index.shape.is_partial;
        // VACUUM frees a line pointer only after it has cleared the indexes of it.
        let lost = entries.lost.filter(|_| is_whole);
        let mut verdict = Verdict::default();
        if is_asked && goes_on(bytes) && !entries.fit() {
            let mut again = IndexReader::new(index.shape, index.columns, true);
            let mut entries = live.entries(number);
            let (_, pages) = self.read_index(catalogue, index, &mut again, &mut entries, live);
            bytes = bytes.saturating_add(pages.saturating_mul(catalogue.page_size() as u64));
            verdict = entries.verdict();
        } else if !is_asked {
            goes_on(bytes);
        }
        verdict.lost = lost;
        FoundInIndex {
            number,
            bytes,
            is_unordered: !reader.keys.is_whole && !is_again,
            is_full: reader.is_in_part() && !is_again,
            is_unread: !is_whole && !is_again,
            faults: reader.faults,
            verdict,
        }
    }

    /// Whether all pages of an index were sound, and how many there were.
    fn read_index(
        &self,
        catalogue: &Catalogue,
        index: &Known<'_>,
        reader: &mut IndexReader<'_>,
        entries: &mut Entries<'_>,
        live: &LiveRows,
    ) -> (bool, u64) {
        let mut pages = 0_u64;
        let is_whole = catalogue.each_page(index.relation, self.database, |block, page| {
            pages = pages.saturating_add(1);
            reader.page(block, page, entries, live);
        });
        (is_whole, pages)
    }

    fn long_values(
        &self,
        catalogue: &Catalogue,
        shapes: &Shapes,
        toast: &Relation,
        long: &mut LongValues,
        found: &mut Found,
    ) {
        let mut transactions = catalogue.transactions(Moment::AtRest);
        let Some(columns) = shapes.columns(toast.oid) else {
            let why = "the columns of the TOAST table are not known for sure";
            return found.in_part.push((None, why));
        };
        let is_whole = catalogue.each_page(toast, self.database, |_, page| {
            for tuple in crate::files::catalogue::tuple::tuples(page) {
                if visibility(&tuple, &mut transactions) == Visibility::Current {
                    long.chunk(&tuple, columns);
                }
            }
        });
        match is_whole {
            true => found.rows.extend(long.faults()),
            false => found.in_part.push((None, "a page is empty or fails its test")),
        }
        if long.is_full {
            found.in_part.push((None, "there are more than are remembered"));
        }
    }
}

fn known<'a>(index: &'a Relation, shapes: &'a Shapes) -> Option<Known<'a>> {
    let shape = shapes.index(index.oid)?;
    Some(Known { relation: index, shape, columns: shapes.columns(index.oid)? })
}

impl Rows<'_> {
    /// Every row of a page that counts.
    fn read(
        &self,
        block: u32,
        page: &[u8],
        transactions: &mut Transactions,
        live: &mut LiveRows,
        long: &mut LongValues,
        faults: &mut Vec<(u32, String)>,
    ) {
        let roots = chains::roots(page, block);
        let is_all_visible = heap::is_all_visible(page);
        let mut tell = |number: u16, text: String| {
            if faults.len() < FAULTS_MAX {
                faults.push((block, format!("row {number}: {text}")));
            }
        };
        live.free_from(block, heap::count(page).saturating_add(1));
        let mut values = Vec::with_capacity(self.columns.len());
        let mut hashes = Vec::with_capacity(self.indexes.len());
        for (number, pointer) in (1_u16..).zip(line_pointers(page)) {
            let LinePointer::Normal { offset, length } = pointer else {
                if pointer == LinePointer::Unused {
                    live.free(Tid { block, number });
                }
                if pointer == LinePointer::Dead && is_all_visible {
                    let text =
                        "it is dead, and the page says that all of its rows are visible to all";
                    tell(number, String::from(text));
                }
                continue;
            };
            let bytes =
                page.get(usize::from(offset)..).and_then(|rest| rest.get(..usize::from(length)));
            let Some(tuple) = bytes.and_then(Tuple::parse) else { continue };
            let root = roots.get(usize::from(number)).copied().unwrap_or(0);
            if let Some(text) = wrong_hint(&tuple, transactions) {
                tell(number, text);
            }
            let is_current = visibility(&tuple, transactions) == Visibility::Current;
            // Columns that an ALTER TABLE took back are in rows that aborted.
            if !is_current && tuple.flags & XMIN_COMMITTED == 0 {
                continue;
            }
            let wrong = match self.values(&tuple, &mut values) {
                Err(column) => Some(format!("column {column} does not fit into it")),
                Ok(()) if is_current && root == 0 => {
                    Some("it is in no index, and nothing on the page leads to it".to_owned())
                }
                Ok(()) => None,
            };
            if let Some(text) = wrong {
                tell(number, text);
                continue;
            }
            if !is_current {
                continue;
            }
            for value in values.iter().filter(|_| self.toast.is_some()) {
                if let Some(Value::External(external)) = value
                    && Some(external.table) == self.toast
                {
                    long.want(block, *external);
                }
            }
            self.hash(&values, &mut hashes);
            live.add(Tid { block, number: root }, &hashes);
        }
    }

    /// The values of a row: `None` for one that stands in the catalogue and is not known.
    ///
    /// # Errors
    /// The number of the first column that does not fit.
    fn values<'t>(
        &'t self,
        tuple: &Tuple<'t>,
        values: &mut Vec<Option<Value<'t>>>,
    ) -> Result<(), i16> {
        values.clear();
        let mut reader = Values::new(tuple.data());
        for (index, column) in (0_u16..).zip(self.columns) {
            if index >= tuple.attributes() {
                values.push(match column.has_late_value {
                    true => self.late_value(index).map(Value::Plain),
                    false => Some(Value::Null),
                });
            } else if tuple.is_null(index) {
                values.push(Some(Value::Null));
            } else {
                values.push(Some(reader.next(column).ok_or(column.number)?));
            }
        }
        Ok(())
    }

    fn late_value(&self, index: u16) -> Option<&[u8]> {
        self.late.get(usize::from(index))?.as_deref()
    }

    /// For each index, whether a key of it is a column of which older rows have a value that is not known.
    fn is_late(&self) -> Vec<bool> {
        let is_late = |number: &i16| {
            (0_u16..).zip(self.columns).any(|(index, column)| {
                let is_known = !column.has_late_value || self.late_value(index).is_some();
                column.number == *number && !is_known
            })
        };
        let of = |shape: &IndexShape| shape.columns.iter().take(shape.key_count).any(is_late);
        self.indexes.iter().map(|index| of(index.shape)).collect()
    }

    /// The hash of the keys for each index; `None` if a key cannot be compared.
    fn hash(&self, values: &[Option<Value<'_>>], hashes: &mut Vec<Option<u64>>) {
        hashes.clear();
        for index in self.indexes {
            let mut hash = KeyHash::new();
            let mut is_keyed = true;
            let keys = index.shape.columns.iter().zip(index.columns).take(index.shape.key_count);
            // Of a partial one it is not known which rows have an entry; see [`Table::index`].
            for (number, column) in
                keys.filter(|(number, _)| !index.shape.is_partial && **number != 0)
            {
                let at = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
                let value = at.and_then(|at| values.get(at)).copied().flatten();
                // An index keeps names up to their zero.
                let value = match value {
                    Some(Value::Plain(name)) if column.bytes == -2 => {
                        name.split(|byte| *byte == 0).next().map(Value::Plain)
                    }
                    other => other,
                };
                is_keyed &= value.is_some_and(|value| hash.add(value));
            }
            hashes.push(is_keyed.then(|| hash.finish()));
        }
    }
}
