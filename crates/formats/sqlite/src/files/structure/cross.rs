//! Tables against their indexes.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::sync::Arc;

use super::definition::{IndexDefinition, IndexedRows, TableDefinition};
use super::rows::{Entries, Rows, Sum};
use super::schema::{Object, Schema};
use super::tree::{Headers, Tell, Tree, TreeWalk};
use super::walker::{Scratch, Walker};
use pagewarden_core::verdict::Kind;
use pagewarden_core::words::grouped;

/// What is known of the tables and indexes of a schema.
#[derive(Debug)]
pub struct Cross<'a> {
    schema: &'a Schema,
    is_utf8: bool,
    /// Rows are compared with indexes; else only what each row must be.
    compares: bool,
    /// Before schema format 4 `DESC` is not heeded.
    heeds_descending: bool,
    tables: HashMap<String, TableDefinition>,
    /// By root page.
    indexes: HashMap<u32, IndexDefinition>,
    /// Root pages of the indexes of a table.
    of_table: HashMap<String, Vec<u32>>,
    foreseen: HashMap<u32, Sum>,
    found: HashMap<u32, Sum>,
    /// Indexes whose entries could not be compared.
    pub not_compared: Vec<Arc<str>>,
    /// Indexes that have an entry of each row, the values of which are computed in part.
    pub computed: Vec<Arc<str>>,
}

impl<'a> Cross<'a> {
    /// Reads the statements of a schema, in a database of this schema format and encoding.
    #[must_use]
    pub fn new(schema: &'a Schema, schema_format: u32, encoding: u32, compares: bool) -> Self {
        let mut cross = Self {
            schema,
            is_utf8: encoding <= 1,
            compares,
            heeds_descending: schema_format >= 4,
            tables: HashMap::new(),
            indexes: HashMap::new(),
            of_table: HashMap::new(),
            foreseen: HashMap::new(),
            found: HashMap::new(),
            not_compared: Vec::new(),
            computed: Vec::new(),
        };
        for object in schema.objects.iter().filter(|object| object.is_table) {
            if let Some(mut table) = object.sql.as_deref().and_then(TableDefinition::parse) {
                for part in table.key.iter_mut().flatten() {
                    part.is_descending &= cross.heeds_descending;
                }
                cross.tables.insert(object.name.to_ascii_lowercase(), table);
            }
        }
        if compares {
            cross.read_indexes();
        }
        cross
    }

    fn read_indexes(&mut self) {
        for object in self.schema.objects.iter().filter(|object| !object.is_table) {
            let table = self.tables.get(&object.table.to_ascii_lowercase());
            let index = table.and_then(|table| match object.sql.as_deref() {
                Some(sql) if !sql.is_empty() => table.parse_index(sql, self.is_utf8),
                _ => table.automatic_index(&object.name),
            });
            match index {
                Some(mut index) => {
                    for part in &mut index.parts {
                        part.is_descending &= self.heeds_descending;
                    }
                    if index.rows == IndexedRows::Unknown {
                        self.not_compared.push(Arc::clone(&object.name));
                    } else {
                        let table = object.table.to_ascii_lowercase();
                        self.of_table.entry(table).or_default().push(object.root);
                    }
                    self.indexes.insert(object.root, index);
                }
                None => self.not_compared.push(Arc::clone(&object.name)),
            }
        }
    }

    /// Walks along the tree of one of the schema's objects.
    pub fn walk(
        &mut self,
        walker: &Walker,
        object: &Object,
        scratch: &mut Scratch,
        tell: &dyn Tell,
    ) {
        let tree = Tree::new(Arc::clone(&object.name), object.root, object.page, object.kind());
        if object.is_table {
            let name = object.name.to_ascii_lowercase();
            let table = self.tables.get(&name);
            let roots = self.of_table.get(&name).map(Vec::as_slice).unwrap_or_default();
            let indexes = roots.iter().filter_map(|root| self.indexes.get(root)).collect();
            let mut rows = Rows::new(table, indexes, self.is_utf8);
            TreeWalk::run(walker, &tree, scratch, &mut rows, tell);
            if tree.is_sound() {
                let sums = rows.indexes.into_iter().map(|(_, sum)| sum);
                self.foreseen.extend(roots.iter().copied().zip(sums));
            }
        } else if let Some(index) = self.indexes.get(&object.root) {
            let mut entries = Entries::new(index, self.is_utf8);
            TreeWalk::run(walker, &tree, scratch, &mut entries, tell);
            if tree.is_sound() {
                self.found.insert(object.root, entries.sum);
            }
        } else {
            TreeWalk::run(walker, &tree, scratch, &mut Headers, tell);
        }
    }

    /// Compares what was foreseen with what was found.
    pub fn compare(&mut self, walker: &Walker) {
        if !self.compares {
            return;
        }
        for object in &self.schema.objects {
            let sums = self.foreseen.get(&object.root).zip(self.found.get(&object.root));
            let Some((rows, entries)) = sums.filter(|_| !object.is_table) else { continue };
            let is_unsure = rows.is_unsure || rows.is_count_unsure || entries.is_unsure;
            let index = self.indexes.get(&object.root);
            let is_partial = index.is_some_and(IndexDefinition::is_partial);
            let which = if is_partial { " that fulfil its condition" } else { "" };
            let detail = if !rows.is_count_unsure && rows.count != entries.count {
                format!(
                    "the index has {} entries for {} rows of {}{which}",
                    grouped(entries.count),
                    grouped(rows.count),
                    object.table
                )
            } else if !is_unsure && rows.hashes != entries.hashes {
                format!(
                    "the index has as many entries as {} has rows{which}, {}, but not of the same \
                     values",
                    object.table,
                    grouped(rows.count)
                )
            } else {
                if is_unsure {
                    self.not_compared.push(Arc::clone(&object.name));
                } else if index.is_some_and(IndexDefinition::is_computed) {
                    self.computed.push(Arc::clone(&object.name));
                }
                continue;
            };
            let detail = format!("{detail}; REINDEX makes it anew from the rows");
            walker.fault(object.root, Kind::Structure, detail, Some(&object.name));
        }
    }
}
