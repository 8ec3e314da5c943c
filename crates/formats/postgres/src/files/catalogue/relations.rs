//! The relations of one database: which files they have, and what they are called.
//!
//! | what | rows of |
//! | --- | --- |
//! | name, kind, file number, tablespace | `pg_class`, and `pg_filenode.map` for those whose number stands there |
//! | schema | `pg_namespace` |
//! | table of an index, and whether the index is complete | `pg_index` |
//! | table of a TOAST table | `pg_class` of the table, `reltoastrelid` |
//!
//! Only relations with files are kept: tables, indexes, sequences, TOAST tables and
//! materialised views. One takes 52 bytes, 4 more to be found by its oid, and its
//! name; a database of 200,000 relations some 15 MiB. Beyond 4,194,304 the rest is
//! a gap.
//!
//! Versions of rows that may or may not count are kept too, marked as in doubt: the
//! files of either may be there. Where two rows that both seem current claim one
//! relation for different files, a page of the catalogue is older than another, and
//! both are in doubt.
//!
//! Sources: `src/include/catalog/pg_class.h`, `pg_am.dat`, `pg_namespace.dat`;
//! `src/backend/utils/adt/ruleutils.c` (`quote_identifier`) for how a name is
//! written.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::files::catalogue::GLOBAL_TABLESPACE;
use crate::files::catalogue::pages::Gaps;
use crate::files::catalogue::rows::{ClassRow, IndexRow};
use crate::files::names::Fork;

/// Relations of one database that are kept.
const RELATIONS_MAX: usize = 1 << 22;
/// The schema of the system's own relations.
const PG_CATALOG: u32 = 11;
/// The schema of TOAST tables.
const PG_TOAST: u32 = 99;
/// The access method of tables, which has a number since 12.
const HEAP: u32 = 2;

/// How sure it is that a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// It is current, in a cluster that was shut down cleanly.
    Certain,
    /// It is current as far as the files tell; the log may know better.
    Visible,
    /// Its maker or remover may be in progress or prepared, its log cannot be
    /// read, or another row contradicts it.
    InDoubt,
}

/// What a relation is, of those that have files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RelationKind {
    /// A table, or a leaf partition.
    Table,
    /// An index.
    Index,
    /// A sequence.
    Sequence,
    /// Where a table keeps its long values.
    Toast,
    /// A materialised view.
    MaterialisedView,
}

impl RelationKind {
    /// `relkind`; `None` for what has no file (views, partitioned tables and
    /// indexes, foreign tables, composite types).
    #[must_use]
    pub fn parse(letter: u8) -> Option<Self> {
        Some(match letter {
            b'r' => Self::Table,
            b'i' => Self::Index,
            b'S' => Self::Sequence,
            b't' => Self::Toast,
            b'm' => Self::MaterialisedView,
            _ => return None,
        })
    }
}

/// What becomes of a relation at a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// It is recovered from the log.
    Permanent,
    /// It is emptied: its init fork takes the place of the others.
    Unlogged,
    /// It goes with its session; its files may be gone already.
    Temporary,
}

impl Persistence {
    /// `relpersistence`.
    #[must_use]
    pub fn parse(letter: u8) -> Option<Self> {
        Some(match letter {
            b'p' => Self::Permanent,
            b'u' => Self::Unlogged,
            b't' => Self::Temporary,
            _ => return None,
        })
    }
}

/// A relation that has files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// Its oid.
    pub oid: u32,
    /// The oid of its tablespace, never 0: 1663 is `base`, 1664 is `global`.
    pub tablespace: u32,
    /// Its file number, never 0.
    pub number: u32,
    /// The oid of its access method: 403 btree, 405 hash, 783 gist, 2742 gin,
    /// 4000 spgist, 3580 brin, 2 heap; 0 for sequences, and tables up to 11.
    pub method: u32,
    /// The oid of the table that an index or a TOAST table belongs to; 0 if none
    /// is known.
    pub owner: u32,
    /// The block of `pg_class` that its row stands on.
    pub row_block: u32,
    /// The oldest transaction and the oldest multixact in rows that are not frozen; 0 for
    /// what has no rows.
    pub frozen: (u32, u32),
    /// Columns, those that were dropped among them.
    pub columns: u16,
    /// What it is.
    pub kind: RelationKind,
    /// What becomes of it at a crash.
    pub persistence: Persistence,
    /// How sure all this is.
    pub certainty: Certainty,
    /// An index that holds an entry for every row of its table: valid, ready,
    /// live, and all that without doubt. What others hold proves nothing.
    pub is_complete_index: bool,
    namespace: u32,
    name: Name,
}

const _: () = assert!(size_of::<Relation>() == 52);

/// Where a name stands among all names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    begin: u32,
    bytes: u8,
}

/// A file that must be there.
#[derive(Debug, Clone, Copy)]
pub struct Required<'a> {
    /// Whose file it is.
    pub relation: &'a Relation,
    /// Main, or init of an unlogged relation.
    pub fork: Fork,
    /// A main fork that is made anew at the end of recovery: it is missing in
    /// backups and standbys.
    pub may_be_reset: bool,
    /// How sure it is.
    pub certainty: Certainty,
}

/// The relations of one database, or those of the whole cluster.
#[derive(Debug, Default)]
pub struct Relations {
    /// What could not be read of the catalogues: if there is anything, a file
    /// without a row proves nothing.
    pub gaps: Gaps,
    /// By tablespace and file number.
    relations: Vec<Relation>,
    /// Indexes of `relations`, by oid.
    by_oid: Vec<u32>,
    namespaces: HashMap<u32, Name>,
    names: Vec<u8>,
}

impl Relations {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.relations.len()
    }

    /// All of them, by tablespace and file number.
    pub fn iter(&self) -> impl Iterator<Item = &Relation> {
        self.relations.iter()
    }

    /// The relation whose files have this number.
    #[must_use]
    pub fn by_file(&self, tablespace: u32, number: u32) -> Option<&Relation> {
        let key = (tablespace, number);
        let found = self.relations.binary_search_by_key(&key, |one| (one.tablespace, one.number));
        self.relations.get(found.ok()?)
    }

    /// The relation of this oid; of several versions that which is surest.
    #[must_use]
    pub fn by_oid(&self, oid: u32) -> Option<&Relation> {
        self.versions(oid).min_by_key(|relation| relation.certainty)
    }

    fn versions(&self, oid: u32) -> impl Iterator<Item = &Relation> {
        let oid_of =
            |index: &u32| self.relations.get(*index as usize).map_or(0, |relation| relation.oid);
        let begin = self.by_oid.partition_point(|index| oid_of(index) < oid);
        let rest = self.by_oid.get(begin..).unwrap_or_default();
        rest.iter()
            .filter_map(|index| self.relations.get(*index as usize))
            .take_while(move |relation| relation.oid == oid)
    }

    /// The name of a relation as SQL would have it: `public.accounts`. A TOAST
    /// table goes by the name of its table, `public.accounts (TOAST)`, and its
    /// index likewise, `public.accounts (TOAST index)`.
    #[must_use]
    pub fn name(&self, relation: &Relation) -> String {
        let owner = self.by_oid(relation.owner).filter(|_| relation.owner != 0);
        match (relation.kind, owner) {
            (RelationKind::Toast, Some(table)) => format!("{} (TOAST)", self.own_name(table)),
            (RelationKind::Index, Some(toast)) if toast.kind == RelationKind::Toast => {
                match self.by_oid(toast.owner).filter(|_| toast.owner != 0) {
                    Some(table) => format!("{} (TOAST index)", self.own_name(table)),
                    None => self.own_name(relation),
                }
            }
            _ => self.own_name(relation),
        }
    }

    fn own_name(&self, relation: &Relation) -> String {
        let mut name = String::new();
        match (self.namespaces.get(&relation.namespace), relation.namespace) {
            (Some(namespace), _) => quote(self.text(*namespace), &mut name),
            (None, PG_CATALOG) => name.push_str("pg_catalog"),
            (None, PG_TOAST) => name.push_str("pg_toast"),
            // The schema of temporary relations of a session that has gone, or a
            // row that could not be read.
            (None, oid) => {
                let _ = write!(name, "(schema {oid})");
            }
        }
        name.push('.');
        quote(self.text(relation.name), &mut name);
        name
    }

    fn text(&self, name: Name) -> &[u8] {
        let rest = self.names.get(name.begin as usize..).unwrap_or_default();
        rest.get(..usize::from(name.bytes)).unwrap_or_default()
    }

    /// The heap that the entries of an index lead into, if every row of the heap
    /// must be in the index and every entry of the index must lead to a place
    /// that is in use. Only relations of the built-in methods count that outlive their session.
    /// Those of an unlogged table are emptied together after a crash.
    #[must_use]
    pub fn heap_of(&self, index: &Relation) -> Option<&Relation> {
        let heap = self.by_oid(index.owner).filter(|_| index.owner != 0)?;
        let trusted = |relation: &Relation| {
            relation.persistence != Persistence::Temporary
                && relation.certainty != Certainty::InDoubt
        };
        let fits = index.kind == RelationKind::Index
            && index.is_complete_index
            && heap.is_heap()
            && trusted(index)
            && trusted(heap);
        fits.then_some(heap)
    }

    /// The files that must be there, each by its first segment: the main forks of
    /// what is not temporary, and the init forks of what is unlogged.
    pub fn required(&self) -> impl Iterator<Item = Required<'_>> {
        self.relations.iter().flat_map(|relation| {
            // A table of a foreign access method may keep its rows elsewhere.
            let is_ours = relation.is_heap()
                || matches!(relation.kind, RelationKind::Index | RelationKind::Sequence);
            let certainty = if is_ours { relation.certainty } else { Certainty::InDoubt };
            let required =
                move |fork, may_be_reset| Required { relation, fork, may_be_reset, certainty };
            let (main, init) = match relation.persistence {
                Persistence::Permanent => (Some(required(Fork::Main, false)), None),
                Persistence::Unlogged => {
                    (Some(required(Fork::Main, true)), Some(required(Fork::Init, false)))
                }
                Persistence::Temporary => (None, None),
            };
            main.into_iter().chain(init)
        })
    }
}

impl Relation {
    /// True for what the built-in heap keeps.
    #[must_use]
    pub fn is_heap(&self) -> bool {
        let kinds = [RelationKind::Table, RelationKind::Toast, RelationKind::MaterialisedView];
        kinds.contains(&self.kind) && matches!(self.method, 0 | HEAP)
    }
}

/// Gathers rows, in any order.
#[derive(Debug, Default)]
pub(super) struct Builder {
    all: Relations,
    /// TOAST tables with their tables.
    toast: Vec<(u32, u32)>,
    is_full: bool,
}

impl Builder {
    /// A row of `pg_class` that counts, with its file as the maps have it.
    pub(super) fn add(
        &mut self,
        row: &ClassRow<'_>,
        row_block: u32,
        number: u32,
        tablespace: u32,
        certainty: Certainty,
    ) {
        let kind = RelationKind::parse(row.kind);
        let persistence = Persistence::parse(row.persistence);
        if row.toast != 0 {
            self.toast.push((row.toast, row.oid));
        }
        let (Some(kind), Some(persistence)) = (kind, persistence) else { return };
        if number == 0 {
            return;
        }
        if self.all.relations.len() >= RELATIONS_MAX {
            self.is_full = true;
            return;
        }
        let name = self.keep(row.name);
        self.all.relations.push(Relation {
            oid: row.oid,
            tablespace,
            number,
            method: row.method,
            owner: 0,
            row_block,
            frozen: row.frozen,
            columns: row.columns,
            kind,
            persistence,
            certainty,
            is_complete_index: false,
            namespace: row.namespace,
            name,
        });
    }

    /// True if there were more rows than are kept.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Sorts the rows, so that others can find them.
    pub(super) fn sort(&mut self) {
        let all = &mut self.all;
        all.relations.sort_unstable_by_key(|one| {
            (one.tablespace, one.number, one.certainty, one.oid, one.row_block)
        });
        all.relations.dedup_by(|next, kept| {
            let same = (next.tablespace, next.number) == (kept.tablespace, kept.number);
            if same && next.certainty != Certainty::InDoubt && next.oid != kept.oid {
                kept.certainty = Certainty::InDoubt;
            }
            same
        });
        let count = u32::try_from(all.relations.len()).unwrap_or(0);
        let relations = &mut all.relations;
        all.by_oid = (0..count).collect();
        let oid_of = |relations: &[Relation], index: u32| {
            relations.get(index as usize).map_or(0, |relation| relation.oid)
        };
        all.by_oid.sort_unstable_by_key(|index| oid_of(relations, *index));
        let mut contradicted = Vec::new();
        let is_same = |one: &u32, next: &u32| oid_of(relations, *one) == oid_of(relations, *next);
        for versions in all.by_oid.chunk_by(is_same) {
            let is_sure = |index: &&u32| {
                let relation = relations.get(**index as usize);
                relation.is_some_and(|relation| relation.certainty != Certainty::InDoubt)
            };
            if versions.iter().filter(is_sure).count() > 1 {
                contradicted.extend_from_slice(versions);
            }
        }
        for index in contradicted {
            if let Some(relation) = relations.get_mut(index as usize) {
                relation.certainty = Certainty::InDoubt;
            }
        }
        for (toast, table) in std::mem::take(&mut self.toast) {
            self.change(toast, |relation| relation.owner = table);
        }
    }

    /// A row of `pg_index`, once the relations are sorted.
    pub(super) fn add_index(&mut self, row: &IndexRow, certainty: Certainty) {
        let is_complete = row.is_valid && row.is_ready && row.is_live;
        self.change(row.index, |relation| {
            // Two rows that contradict one another make it incomplete.
            let is_first = relation.owner == 0;
            let is_sure = certainty != Certainty::InDoubt;
            relation.is_complete_index =
                is_complete && is_sure && (is_first || relation.is_complete_index);
            relation.owner = row.table;
        });
    }

    fn change(&mut self, oid: u32, mut change: impl FnMut(&mut Relation)) {
        let all = &mut self.all;
        let relations = &mut all.relations;
        let begin = all.by_oid.partition_point(|index| {
            relations.get(*index as usize).is_some_and(|relation| relation.oid < oid)
        });
        for index in all.by_oid.get(begin..).unwrap_or_default() {
            match relations.get_mut(*index as usize) {
                Some(relation) if relation.oid == oid => change(relation),
                _ => return,
            }
        }
    }

    /// A row of `pg_namespace`.
    pub(super) fn add_namespace(&mut self, oid: u32, name: &[u8]) {
        if self.all.namespaces.len() < RELATIONS_MAX {
            let name = self.keep(name);
            self.all.namespaces.insert(oid, name);
        }
    }

    /// False if no schema was found: there always are some.
    pub(super) fn has_namespaces(&self) -> bool {
        !self.all.namespaces.is_empty()
    }

    fn keep(&mut self, name: &[u8]) -> Name {
        let names = &mut self.all.names;
        let (Ok(begin), Ok(bytes)) = (u32::try_from(names.len()), u8::try_from(name.len())) else {
            return Name { begin: 0, bytes: 0 };
        };
        names.extend_from_slice(name);
        Name { begin, bytes }
    }

    /// All that was gathered, and what was not.
    pub(super) fn finish(mut self, gaps: Gaps) -> Relations {
        self.all.gaps = gaps;
        self.all
    }
}

/// Where the row of a relation says its files are.
pub(super) fn place_of(row: &ClassRow<'_>, home: u32) -> u32 {
    match row.tablespace {
        _ if row.is_shared => GLOBAL_TABLESPACE,
        0 => home,
        tablespace => tablespace,
    }
}

/// Appends a name as SQL needs it: in quotation marks unless it is of small
/// letters, digits and underscores. Bytes that are no text are shown as such.
pub(super) fn quote(name: &[u8], text: &mut String) {
    let plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'_' | b'0'..=b'9');
    let is_plain = name.iter().all(plain) && name.first().is_some_and(|b| !b.is_ascii_digit());
    let shown = String::from_utf8_lossy(name);
    if is_plain {
        text.push_str(&shown);
        return;
    }
    text.push('"');
    for letter in shown.chars() {
        match letter {
            '"' => text.push_str("\"\""),
            control if control.is_control() => text.extend(control.escape_default()),
            other => text.push(other),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(oid: u32, name: &[u8], kind: u8) -> ClassRow<'_> {
        ClassRow {
            oid,
            name,
            namespace: 2200,
            method: if kind == b'i' { 403 } else { HEAP },
            number: oid,
            tablespace: 0,
            pages: 0,
            toast: 0,
            is_shared: false,
            persistence: b'p',
            kind,
            columns: 1,
            frozen: (0, 0),
        }
    }

    fn quoted(name: &str) -> String {
        let mut text = String::new();
        quote(name.as_bytes(), &mut text);
        text
    }

    #[test]
    fn names_are_written_as_sql_needs_them() {
        for (name, expected) in [
            ("accounts", "accounts"),
            ("_a1", "_a1"),
            ("1a", "\"1a\""),
            ("Accounts", "\"Accounts\""),
            ("a\"b", "\"a\"\"b\""),
            ("a\nb", "\"a\\nb\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }

    #[test]
    fn toast_tables_and_their_indexes_go_by_the_name_of_the_table() {
        let mut builder = Builder::default();
        let table = ClassRow { toast: 101, ..row(100, b"accounts", b'r') };
        builder.add(&table, 0, 100, 1663, Certainty::Certain);
        builder.add(&row(101, b"pg_toast_100", b't'), 0, 101, 1663, Certainty::Certain);
        builder.add(&row(102, b"pg_toast_100_index", b'i'), 0, 102, 1663, Certainty::Certain);
        builder.add(&row(103, b"Accounts by name", b'i'), 0, 103, 1663, Certainty::Certain);
        builder.add(&row(104, b"view", b'v'), 0, 104, 1663, Certainty::Certain);
        builder.sort();
        let index =
            |index, table| IndexRow { index, table, is_valid: true, is_ready: true, is_live: true };
        builder.add_index(&index(102, 101), Certainty::Certain);
        builder.add_index(&index(103, 100), Certainty::Certain);
        builder.add_namespace(2200, b"public");
        let all = builder.finish(Gaps::default());
        let name = |number| all.by_file(1663, number).map(|relation| all.name(relation));
        assert_eq!(name(100).unwrap(), "public.accounts");
        assert_eq!(name(101).unwrap(), "public.accounts (TOAST)");
        assert_eq!(name(102).unwrap(), "public.accounts (TOAST index)");
        assert_eq!(name(103).unwrap(), "public.\"Accounts by name\"");
        assert_eq!(name(104), None);
        let heap = all.heap_of(all.by_oid(103).unwrap()).unwrap();
        assert_eq!(heap.oid, 100);
        assert_eq!(all.required().count(), 4);
    }

    #[test]
    fn two_current_rows_for_one_relation_are_both_in_doubt() {
        let mut builder = Builder::default();
        for number in [200, 201] {
            builder.add(&row(100, b"twice", b'r'), 0, number, 1663, Certainty::Certain);
        }
        // A version in doubt does not make the current one so.
        builder.add(&row(300, b"moving", b'r'), 0, 300, 1663, Certainty::Certain);
        builder.add(&row(300, b"moving", b'r'), 0, 301, 1663, Certainty::InDoubt);
        builder.sort();
        let all = builder.finish(Gaps::default());
        let found: Vec<_> =
            all.required().map(|one| (one.relation.number, one.certainty)).collect();
        let expected = [
            (200, Certainty::InDoubt),
            (201, Certainty::InDoubt),
            (300, Certainty::Certain),
            (301, Certainty::InDoubt),
        ];
        assert_eq!(found, expected);
    }
}
