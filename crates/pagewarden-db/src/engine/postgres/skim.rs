//! All rows of a table at once, from its pages.
//!
//! To send rows, a server takes each apart and writes each value anew: ten times the work of
//! counting them. The extension `pageinspect` gives superusers whole pages, as they lie in the
//! server's memory, for hardly more than counting takes; we take them apart (`heap`). For the
//! rows of pages that leave a doubt the server is asked, by the places in which they are.
//!
//! All of it is read in one transaction, which has a snapshot and holds the weakest lock on the
//! table: so VACUUM removes no row that the snapshot sees, and no page is taken for one that all
//! snapshots see if ours does not; a row that is moved meanwhile is seen once. The size is asked
//! for after the snapshot was taken: what lies behind it is younger.

use pagewarden::formats::postgres::page::{MAX_ALIGN, PAGE_SIZES};

use super::heap::Rows;
use super::heap::tuple::{Attribute, Kind, Layout, Width};
use super::{Postgres, PostgresDialect};
use crate::engine::Query;
use crate::engine::statement::{Dialect as _, select};
use crate::error::{Error, Result};
use crate::table::Column;

/// Pages that are asked for at once: 32 MiB of the usual size.
const PIECE_BLOCKS: u64 = 4096;
/// Runs of blocks whose rows one statement asks for: an answer from far away takes as long as
/// many of them.
const RUNS_AT_ONCE: usize = 64;

/// How the pages of a table are asked for, and what is on them.
struct Pages {
    /// `get_raw_page`, with its schema.
    function: String,
    blocks: u64,
    page_bytes: usize,
    in_recovery: bool,
    /// True if most pages had no doubt when they were last counted.
    is_worth_it: bool,
    layout: Layout,
}

impl Postgres {
    /// The first and the last number of the key, if the table can be skimmed, and it is worth it.
    pub(super) fn skims_table(&mut self, query: &Query<'_>) -> Result<Option<[i64; 2]>> {
        let Some((key, _)) = key_of(query) else { return Ok(None) };
        if !self.pages(query)?.is_some_and(|pages| pages.is_worth_it) {
            return Ok(None);
        }
        let name = PostgresDialect.name(&key.name);
        let engine = &query.table.engine;
        let rows = self.ask(&format!("SELECT min({name}), max({name}) FROM {engine}"))?;
        let answer = |index: usize| rows.first()?.get(index)?.as_ref()?.parse().ok();
        Ok(answer(0).zip(answer(1)).map(|(first, last)| [first, last]))
    }

    /// Skims a table in a transaction of its own, or in the one of the frozen view.
    pub(super) fn skim_table(
        &mut self,
        query: &Query<'_>,
        see: &mut dyn FnMut(i64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let [begin, end, undo] = match self.frozen {
            true => ["SAVEPOINT skim", "RELEASE SAVEPOINT skim", "ROLLBACK TO SAVEPOINT skim"],
            false => ["BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", "COMMIT", "ROLLBACK"],
        };
        self.ask(begin)?;
        let result = self.skim_within(query, see);
        match &result {
            Ok(()) => self.ask(end).map(drop)?,
            Err(error) if error.is_fatal() || self.session.is_none() => {}
            Err(_) => self.ask(undo).map(drop)?,
        }
        result
    }

    fn skim_within(
        &mut self,
        query: &Query<'_>,
        see: &mut dyn FnMut(i64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        // Before the snapshot: what is truncated or rewritten is so before it is taken.
        self.ask(&format!("LOCK TABLE {} IN ACCESS SHARE MODE", query.table.engine))?;
        let changed = || Error::Unsupported("the table is no longer what it was".to_owned());
        let Some((_, key_bytes)) = key_of(query) else { return Err(changed()) };
        let Some(pages) = self.pages(query)? else { return Err(changed()) };
        let Pages { function, blocks, page_bytes, in_recovery, layout, .. } = pages;
        let relation = PostgresDialect.text(relation(query));
        let rows_of_table = select(&PostgresDialect, query);
        let mut rows = Rows::new(layout, in_recovery);
        let mut see = |row: &[u8]| match key(row, key_bytes) {
            Some(number) => see(number, row),
            None => Err(Error::Unsupported("a row has no number for a key".to_owned())),
        };
        let mut by_pages = true;
        let mut first = 0;
        while first < blocks {
            let end = blocks.min(first + PIECE_BLOCKS);
            let mut doubtful = Vec::new();
            if by_pages {
                let last = end - 1;
                let statement = format!(
                    "SELECT block, {function}({relation}::text, 'main'::text, block) \
                     FROM generate_series({first}::int8, {last}::int8) block"
                );
                self.copy_rows(&statement, 2, &mut |tuple| {
                    let Some((block, page)) = block(tuple, page_bytes) else {
                        return Err(Error::Unsupported("a page is not of one's size".to_owned()));
                    };
                    match rows.of(page) {
                        Some(mut rows) => rows.try_for_each(&mut see),
                        None => {
                            doubtful.push(block);
                            Ok(())
                        }
                    }
                })?;
                by_pages = doubtful.len() as u64 * 2 <= end - first;
            } else {
                doubtful.extend(first..end);
            }
            for runs in runs(&doubtful).chunks(RUNS_AT_ONCE) {
                let each = runs.iter().map(|[first, end]| {
                    format!("{rows_of_table} WHERE ctid >= '({first},0)' AND ctid < '({end},0)'")
                });
                let statement = each.collect::<Vec<_>>().join(" UNION ALL ");
                self.copy_rows(&statement, query.columns.len(), &mut see)?;
            }
            first = end;
        }
        Ok(())
    }

    /// None where the server gives no pages, or we cannot read rows from them.
    fn pages(&mut self, query: &Query<'_>) -> Result<Option<Pages>> {
        let relation = PostgresDialect.text(relation(query));
        // Its arguments tell apart the extension's function and others of that name.
        let rows = self.ask(&format!(
            "SELECT (SELECT quote_ident(nspname) || '.get_raw_page' FROM pg_extension e \
                 JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND refobjid = e.oid \
                   AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass \
                 JOIN pg_proc p ON p.oid = d.objid JOIN pg_namespace n ON n.oid = pronamespace \
                 WHERE extname = 'pageinspect' AND proname = 'get_raw_page' \
                   AND proargtypes::text = '25 25 20'), \
               pg_relation_size(c.oid), current_setting('block_size'), pg_is_in_recovery(), \
               relpages > 0 AND relallvisible >= relpages / 2 \
             FROM pg_class c JOIN pg_am a ON a.oid = relam \
             WHERE c.oid = {relation}::regclass AND amname = 'heap' AND relkind = 'r' \
               AND current_setting('is_superuser') = 'on' \
               AND current_setting('server_encoding') = 'UTF8' \
               AND (SELECT max_data_alignment FROM pg_control_init()) = {MAX_ALIGN} \
               AND coalesce(current_setting('old_snapshot_threshold', true), '-1') = '-1'"
        ))?;
        let answer = |index: usize| rows.first()?.get(index)?.as_deref();
        let (Some(function), Some(bytes), Some(page_bytes)) = (
            answer(0),
            answer(1).and_then(|bytes| bytes.parse::<u64>().ok()),
            answer(2).and_then(|bytes| bytes.parse::<usize>().ok()),
        ) else {
            return Ok(None);
        };
        if !PAGE_SIZES.contains(&page_bytes) {
            return Ok(None);
        }
        let Some(layout) = self.layout(query)? else { return Ok(None) };
        Ok(Some(Pages {
            function: function.to_owned(),
            blocks: bytes / page_bytes as u64,
            page_bytes,
            in_recovery: answer(3) == Some("t"),
            is_worth_it: answer(4) == Some("t"),
            layout,
        }))
    }

    /// How the table's rows lie; none if a column is not sent as it lies.
    fn layout(&mut self, query: &Query<'_>) -> Result<Option<Layout>> {
        let rows = self.ask(&format!(
            "SELECT attname, attlen, attalign, atthasmissing, \
               attisdropped OR to_jsonb(a) ->> 'attgenerated' = 'v' \
             FROM pg_attribute a WHERE attrelid = {}::regclass AND attnum > 0 ORDER BY attnum",
            PostgresDialect.text(relation(query))
        ))?;
        let mut names = Vec::new();
        let mut attributes = Vec::new();
        for row in &rows {
            let [Some(name), Some(length), Some(align), Some(has_missing), Some(is_gone)] =
                row.as_slice()
            else {
                return Ok(None);
            };
            let width = length.parse().ok().and_then(Width::of);
            let align = match align.as_str() {
                "c" => 1,
                "s" => 2,
                "i" => 4,
                "d" => 8,
                _ => return Ok(None),
            };
            let Some(width) = width else { return Ok(None) };
            names.push((is_gone == "f").then_some(name));
            attributes.push(Attribute { width, align, has_missing: has_missing == "t" });
        }
        let wanted = query.columns.iter().map(|(place, _)| {
            let column = query.table.columns.get(*place)?;
            let place = names.iter().position(|name| *name == Some(&column.name))?;
            Some((place, Kind::of(&column.wire)?))
        });
        let wanted: Option<Vec<_>> = wanted.collect();
        Ok(wanted.and_then(|wanted| Layout::new(attributes, wanted)))
    }
}

/// The name of the table, as a statement writes it.
fn relation<'a>(query: &Query<'a>) -> &'a str {
    let engine = &query.table.engine;
    engine.strip_prefix("ONLY ").unwrap_or(engine)
}

/// The first column, and the bytes of its values, if it is a whole number.
fn key_of<'a>(query: &Query<'a>) -> Option<(&'a Column, usize)> {
    let (place, _) = query.columns.first()?;
    let column = query.table.columns.get(*place)?;
    let bytes = match column.wire.as_str() {
        "int2" => 2,
        "int4" => 4,
        "int8" => 8,
        _ => return None,
    };
    Some((column, bytes))
}

/// The number in the first field of a tuple.
fn key(tuple: &[u8], bytes: usize) -> Option<i64> {
    let field = tuple.get(6..)?;
    match bytes {
        2 => Some(i16::from_be_bytes(*field.first_chunk()?).into()),
        4 => Some(i32::from_be_bytes(*field.first_chunk()?).into()),
        _ => Some(i64::from_be_bytes(*field.first_chunk()?)),
    }
}

/// The number of a block, and its page.
fn block(tuple: &[u8], page_bytes: usize) -> Option<(u64, &[u8])> {
    let number = key(tuple, 8)?;
    // The count of fields, a length and a number, a length.
    let page = tuple.get(2 + 4 + 8 + 4..)?;
    (page.len() == page_bytes).then_some((u64::try_from(number).ok()?, page))
}

/// Numbers that follow each other, as the first and the one behind the last.
fn runs(blocks: &[u64]) -> Vec<[u64; 2]> {
    let mut runs: Vec<[u64; 2]> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some([_, end]) if end == block => *end += 1,
            _ => runs.push([*block, block + 1]),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_follow_each_other_are_asked_for_at_once() {
        assert_eq!(runs(&[]), Vec::<[u64; 2]>::new());
        assert_eq!(runs(&[0, 1, 2, 7, 9, 10]), [[0, 3], [7, 8], [9, 11]]);
    }
}
