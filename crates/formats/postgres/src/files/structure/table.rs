//! One table with its btree indexes and its TOAST table, looked at as a whole.

use crate::files::catalogue::Catalogue;
use crate::files::catalogue::columns::{Column, IndexShape, Shapes};
use crate::files::catalogue::relations::Relation;
use crate::files::catalogue::transactions::{Moment, Transactions};
use crate::files::catalogue::tuple::Tuple;
use crate::files::catalogue::visibility::{Visibility, visibility};
use crate::files::structure::index::IndexReader;
use crate::files::structure::live::{KeyHash, LiveRows, Verdict, blocks_at_a_time};
use crate::files::structure::toast::LongValues;
use crate::files::structure::values::{Value, Values};
use crate::files::witness::heap::{LinePointer, line_pointers};
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

/// An index with its shape and the columns of its entries.
struct Known<'a> {
    relation: &'a Relation,
    shape: &'a IndexShape,
    columns: &'a [Column],
}

/// What is known of the table's rows before they are read.
struct Rows<'a> {
    columns: &'a [Column],
    indexes: &'a [Known<'a>],
    toast: Option<u32>,
}

/// Rows whose faults are reported.
const FAULTS_MAX: usize = 1000;

impl Table<'_> {
    /// Looks at it. `goes_on` takes the number of bytes read and says whether to.
    pub(super) fn look(
        &self,
        catalogue: &Catalogue,
        shapes: &Shapes,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Found {
        let mut found = Found::default();
        let known: Option<Vec<_>> = self.indexes.iter().map(|index| known(index, shapes)).collect();
        let Some((columns, indexes)) = shapes.columns(self.heap.oid).zip(known) else {
            found.why_not = Some("its columns are not known for sure".to_owned());
            return found;
        };
        let rows = Rows { columns, indexes: &indexes, toast: self.toast.map(|toast| toast.oid) };
        let mut transactions = catalogue.transactions(Moment::AtRest);
        let page_size = catalogue.page_size();
        let all = catalogue.block_count(self.heap, self.database);
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        let part = blocks_at_a_time(page_size, indexes.len()).min(all).max(1);
        let mut long = LongValues::default();
        let mut first = 0_u32;
        found.indexes = indexes.iter().map(|_| Default::default()).collect();
        loop {
            let mut live = LiveRows::new(first, part, page_size, indexes.len());
            let end = first.saturating_add(u32::try_from(part).unwrap_or(u32::MAX));
            let mut pages = 0_u64;
            let is_whole = catalogue.each_page(self.heap, self.database, |block, page| {
                pages = pages.saturating_add(1);
                if (first..end).contains(&block) {
                    rows.read(
                        block,
                        page,
                        &mut transactions,
                        &mut live,
                        &mut long,
                        &mut found.rows,
                    );
                }
            });
            let is_going_on = self.count(&mut found, pages, page_size, goes_on);
            if !is_whole {
                found.why_not = Some("a page of it is empty or fails its test".to_owned());
            }
            for (number, index) in indexes.iter().enumerate() {
                if is_going_on && is_whole {
                    self.index(catalogue, (number, index), &live, first > 0, &mut found, goes_on);
                }
            }
            if usize::try_from(end).is_ok_and(|end| end >= all) || !is_going_on || !is_whole {
                break;
            }
            first = end;
        }
        if let Some(toast) = self.toast.filter(|_| !long.is_empty()) {
            self.long_values(catalogue, shapes, toast, &mut transactions, &mut long, &mut found);
        }
        found
    }

    fn count(
        &self,
        found: &mut Found,
        pages: u64,
        page_size: usize,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> bool {
        let bytes = pages.saturating_mul(page_size as u64);
        found.bytes = found.bytes.saturating_add(bytes);
        goes_on(bytes)
    }

    fn index(
        &self,
        catalogue: &Catalogue,
        (number, index): (usize, &Known<'_>),
        live: &LiveRows,
        is_again: bool,
        found: &mut Found,
        goes_on: &dyn Fn(u64) -> bool,
    ) {
        let mut reader = IndexReader::new(index.shape, index.columns, is_again);
        if !reader.keys.is_whole && !is_again {
            found.unordered.push(number);
        }
        let mut entries = live.entries();
        let mut pages = 0_u64;
        let is_whole = catalogue.each_page(index.relation, self.database, |block, page| {
            pages = pages.saturating_add(1);
            reader.page(block, page, &mut entries, live);
        });
        reader.finish();
        self.count(found, pages, catalogue.page_size(), goes_on);
        if !is_again {
            let full = reader.is_in_part().then_some("more keys wait than are remembered");
            let unread = (!is_whole).then_some("a page is empty or fails its test");
            found.in_part.extend(full.into_iter().chain(unread).map(|why| (Some(number), why)));
        }
        let Some((faults, verdict)) = found.indexes.get_mut(number) else { return };
        // Entries on pages that cannot be read are no loss of the index's.
        let verdict_now = if is_whole && reader.faults.is_empty() {
            entries.verdict(number)
        } else {
            Verdict::default()
        };
        faults.append(&mut reader.faults);
        verdict.join(verdict_now);
    }

    fn long_values(
        &self,
        catalogue: &Catalogue,
        shapes: &Shapes,
        toast: &Relation,
        transactions: &mut Transactions,
        long: &mut LongValues,
        found: &mut Found,
    ) {
        let Some(columns) = shapes.columns(toast.oid) else {
            let why = "the columns of the TOAST table are not known for sure";
            return found.in_part.push((None, why));
        };
        let is_whole = catalogue.each_page(toast, self.database, |_, page| {
            for tuple in crate::files::catalogue::tuple::tuples(page) {
                if visibility(&tuple, transactions) == Visibility::Current {
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
        let mut values = Vec::with_capacity(self.columns.len());
        let mut hashes = Vec::with_capacity(self.indexes.len());
        for (number, pointer) in (1_u16..).zip(line_pointers(page)) {
            let LinePointer::Normal { offset, length } = pointer else { continue };
            let bytes =
                page.get(usize::from(offset)..).and_then(|rest| rest.get(..usize::from(length)));
            let Some(tuple) = bytes.and_then(Tuple::parse) else { continue };
            let root = roots.get(usize::from(number)).copied().unwrap_or(0);
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
                if faults.len() < FAULTS_MAX {
                    faults.push((block, format!("row {number}: {text}")));
                }
                continue;
            }
            if !is_current {
                continue;
            }
            for value in &values {
                if let Some(Value::External(external)) = value
                    && Some(external.table) == self.toast
                {
                    long.want(block, *external);
                }
            }
            let is_keyed = self.hash(&values, &mut hashes);
            live.add(Tid { block, number: root }, is_keyed.then_some(&hashes));
        }
    }

    /// The values of a row: `None` for one that stands in the catalogue.
    ///
    /// # Errors
    /// The number of the first column that does not fit.
    fn values<'t>(
        &self,
        tuple: &Tuple<'t>,
        values: &mut Vec<Option<Value<'t>>>,
    ) -> Result<(), i16> {
        values.clear();
        let mut reader = Values::new(tuple.data());
        for (index, column) in (0_u16..).zip(self.columns) {
            if index >= tuple.attributes() {
                values.push((!column.has_late_value).then_some(Value::Null));
            } else if tuple.is_null(index) {
                values.push(Some(Value::Null));
            } else {
                values.push(Some(reader.next(column).ok_or(column.number)?));
            }
        }
        Ok(())
    }

    /// The hash of the keys for each index; false if a key cannot be compared.
    fn hash(&self, values: &[Option<Value<'_>>], hashes: &mut Vec<u64>) -> bool {
        hashes.clear();
        let mut is_keyed = true;
        for index in self.indexes {
            let mut hash = KeyHash::new();
            let keys = index.shape.columns.iter().zip(index.columns).take(index.shape.key_count);
            for (number, column) in keys {
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
            hashes.push(hash.finish());
        }
        is_keyed
    }
}
