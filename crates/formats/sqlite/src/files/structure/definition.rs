//! What a table and its indexes hold, as far as their statements say so for sure.
//!
//! | what | where it stands |
//! |---|---|
//! | a column of a table with rowids | in the order of the columns, without generated ones that are not stored |
//! | the column that is the rowid | NULL in the record: `INTEGER PRIMARY KEY` |
//! | a table without rowids | the columns of its key first, then the others |
//! | an index | its columns, then the rowid, or the columns of the key that are not among them |
//! | `sqlite_autoindex_T_n` | the n-th key of the statement that is no rowid and unlike those before |
//!
//! Anything that is not understood makes the whole definition `None`. Facts from SQLite's public
//! documentation (`fileformat2.html`, `lang_createtable.html`, `withoutrowid.html`).

#![deny(clippy::arithmetic_side_effects)]

use super::condition::Condition;
use super::sql::{Token, tokens};

/// How text is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collation {
    /// By its bytes.
    Binary,
    /// Without the case of ASCII letters.
    NoCase,
    /// Without spaces at the end.
    RightTrim,
    /// By a function of the application.
    Other,
}

impl Collation {
    fn named(name: &str) -> Self {
        match name.to_ascii_uppercase().as_str() {
            "BINARY" => Self::Binary,
            "NOCASE" => Self::NoCase,
            "RTRIM" => Self::RightTrim,
            _ => Self::Other,
        }
    }
}

/// What a column turns values into, if it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// Text.
    Text,
    /// Numbers, whole or not.
    Number,
    /// Nothing else.
    None,
}

impl Affinity {
    /// Of a declared type, by the rules of `datatype3.html` in their order. In a STRICT table `ANY` turns
    /// values into nothing, in others into numbers.
    fn of(declared: &str) -> Option<Self> {
        let declared = declared.to_ascii_uppercase();
        let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
        Some(match declared.as_str() {
            "ANY" => return None,
            _ if has(&["INT"]) => Self::Number,
            _ if has(&["CHAR", "CLOB", "TEXT"]) => Self::Text,
            _ if has(&["BLOB"]) || declared.is_empty() => Self::None,
            _ => Self::Number,
        })
    }
}

/// Where the values of a key come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The number of the row.
    Rowid,
    /// A column of the table.
    Column(usize),
    /// They are computed: an expression, or a column that is not stored. What of is not evaluated here.
    Computed,
}

/// A column in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Where its values come from.
    pub source: Source,
    /// How its text is ordered.
    pub collation: Collation,
    /// Greater values come first.
    pub is_descending: bool,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// It is never NULL.
    pub not_null: bool,
    /// Rows from before it was added have another value than NULL.
    pub has_default: bool,
    /// Its place in the record of a row; `None` if it is computed.
    pub place: Option<usize>,
    /// How its text is ordered.
    pub collation: Collation,
    /// What values are taken for that are compared with it; `None` if that is not known.
    pub affinity: Option<Affinity>,
    is_integer: bool,
    is_virtual: bool,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableDefinition {
    /// In the order of the statement.
    pub columns: Vec<Column>,
    /// The column that is the rowid.
    pub alias: Option<usize>,
    /// The key of a table without rowids.
    pub key: Option<Vec<Part>>,
    /// Keys with an index of their own, by the number in its name.
    automatic: Vec<Vec<Part>>,
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    /// All columns of an entry.
    pub parts: Vec<Part>,
    /// The number of them that are the key that is asked for.
    pub key_parts: usize,
    /// No two entries have the same key.
    pub is_unique: bool,
    /// Which rows have an entry.
    pub rows: IndexedRows,
}

impl IndexDefinition {
    /// True if only rows that fulfil a condition have an entry.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.rows != IndexedRows::All
    }

    /// True if some of its values are computed.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        self.parts.iter().any(|part| part.source == Source::Computed)
    }
}

/// The rows that have an entry in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexedRows {
    /// All.
    All,
    /// Those that fulfil a condition.
    Fulfilling(Condition),
    /// Those that fulfil one that is not understood.
    Unknown,
}

/// Goes through tokens.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [Token],
}

impl<'a> Reader<'a> {
    pub(super) fn next(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(super) fn is(&self, keyword: &str) -> bool {
        self.rest.first().is_some_and(|token| token.is(keyword))
    }

    pub(super) fn take(&mut self, keyword: &str) -> bool {
        let is = self.is(keyword);
        if is {
            self.next();
        }
        is
    }

    pub(super) fn expect(&mut self, keyword: &str) -> Option<()> {
        self.take(keyword).then_some(())
    }

    /// What stands between a bracket, which is next, and the one that closes it.
    pub(super) fn brackets(&mut self) -> Option<&'a [Token]> {
        let mut depth = 0_usize;
        for (index, token) in self.rest.iter().enumerate() {
            if token.is_sign('(') {
                depth = depth.saturating_add(1);
            } else if token.is_sign(')') {
                depth = depth.checked_sub(1)?;
            }
            if depth == 0 {
                let inner = self.rest.get(1..index);
                self.rest = self.rest.get(index.saturating_add(1)..)?;
                return inner;
            }
        }
        None
    }

    pub(super) fn is_bracket(&self) -> bool {
        self.rest.first().is_some_and(|token| token.is_sign('('))
    }

    fn conflict_clause(&mut self) -> Option<()> {
        if self.take("ON") {
            self.expect("CONFLICT")?;
            self.next()?;
        }
        Some(())
    }
}

/// Cuts at commas that are in no brackets.
pub(super) fn items(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0_i64;
    let is_comma = |token: &Token| {
        if token.is_sign('(') {
            depth = depth.saturating_add(1);
        } else if token.is_sign(')') {
            depth = depth.saturating_sub(1);
        }
        depth == 0 && token.is_sign(',')
    };
    tokens.split(is_comma).collect()
}

const CONSTRAINTS: [&str; 5] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"];
/// Keywords behind which a column has no type any more.
const AFTER_TYPE: [&str; 11] = [
    "CONSTRAINT",
    "PRIMARY",
    "NOT",
    "NULL",
    "UNIQUE",
    "CHECK",
    "DEFAULT",
    "COLLATE",
    "REFERENCES",
    "GENERATED",
    "AS",
];

/// A key of the statement, before all columns are known.
struct Key<'a> {
    is_primary: bool,
    /// Of one column, said with the column, and not descending.
    may_be_rowid: bool,
    items: Vec<&'a [Token]>,
    of_column: Option<usize>,
}

impl TableDefinition {
    /// Reads a `CREATE TABLE`.
    #[must_use]
    pub fn parse(sql: &str) -> Option<Self> {
        let tokens = tokens(sql)?;
        let mut reader = Reader { rest: &tokens };
        reader.expect("CREATE")?;
        reader.expect("TABLE")?;
        reader.next()?.name()?;
        if !reader.is_bracket() {
            return None;
        }
        let body = reader.brackets()?;
        let has_rowids = !reader.rest.iter().any(|token| token.is("WITHOUT"));
        let is_option = |token: &Token| {
            ["WITHOUT", "ROWID", "STRICT"].iter().any(|word| token.is(word)) || token.is_sign(',')
        };
        if !reader.rest.iter().all(is_option) {
            return None;
        }
        let mut columns = Vec::new();
        let mut keys: Vec<Key<'_>> = Vec::new();
        let mut are_columns = true;
        for item in items(body) {
            let first = item.first()?;
            are_columns &= !CONSTRAINTS.iter().any(|word| first.is(word));
            if are_columns {
                let column = read_column(&mut Reader { rest: item }, columns.len(), &mut keys)?;
                columns.push(column);
            } else {
                read_constraints(&mut Reader { rest: item }, &mut keys)?;
            }
        }
        Self::of(columns, &keys, has_rowids)
    }

    fn of(columns: Vec<Column>, keys: &[Key<'_>], has_rowids: bool) -> Option<Self> {
        let mut table = Self { columns, alias: None, key: None, automatic: Vec::new() };
        let mut primary: Option<Vec<Part>> = None;
        for key in keys {
            let parts = match key.of_column {
                Some(column) => {
                    let collation = table.columns.get(column)?.collation;
                    vec![Part {
                        source: Source::Column(column),
                        collation,
                        is_descending: !key.may_be_rowid,
                    }]
                }
                None => table.parts(&key.items, false)?,
            };
            if key.is_primary {
                let single = match parts.as_slice() {
                    [Part { source: Source::Column(column), .. }] => Some(*column),
                    _ => None,
                };
                let alias = single.filter(|_| has_rowids && key.may_be_rowid);
                let alias =
                    alias.filter(|at| table.columns.get(*at).is_some_and(|it| it.is_integer));
                if alias.is_some() {
                    table.alias = alias;
                    continue;
                }
                primary = Some(parts.clone());
            }
            let columns = |parts: &[Part]| -> Vec<_> {
                parts.iter().map(|part| (part.source, part.collation)).collect()
            };
            if !table.automatic.iter().any(|known| columns(known) == columns(&parts)) {
                table.automatic.push(parts);
            }
        }
        if !has_rowids {
            let mut key: Vec<Part> = Vec::new();
            for part in primary? {
                if !key
                    .iter()
                    .any(|known| known.source == part.source && known.collation == part.collation)
                {
                    key.push(part);
                }
            }
            table.key = Some(key);
        }
        table.place_columns()?;
        Some(table)
    }

    /// Says where in a record each column is.
    fn place_columns(&mut self) -> Option<()> {
        let mut next = 0_usize;
        for part in self.key.iter().flatten() {
            let Source::Column(column) = part.source else { return None };
            let column = self.columns.get_mut(column)?;
            // A column twice, with two collations: too rare to be right about it.
            if column.place.is_some() || column.is_virtual {
                return None;
            }
            column.place = Some(next);
            column.not_null = true;
            next = next.saturating_add(1);
        }
        for column in &mut self.columns {
            if column.place.is_none() && !column.is_virtual {
                column.place = Some(next);
                next = next.saturating_add(1);
            }
        }
        Some(())
    }

    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }

    fn parts(&self, items: &[&[Token]], may_be_computed: bool) -> Option<Vec<Part>> {
        let part = |item: &&[Token]| {
            self.part_of_column(item)
                .or_else(|| self.computed_part(item).filter(|_| may_be_computed))
        };
        items.iter().map(part).collect()
    }

    fn part_of_column(&self, item: &[Token]) -> Option<Part> {
        let mut reader = Reader { rest: item };
        let at = self.column(reader.next()?.name()?)?;
        let column = self.columns.get(at)?;
        let mut collation = column.collation;
        if reader.take("COLLATE") {
            collation = Collation::named(reader.next()?.name()?);
        }
        let is_descending = reader.take("DESC");
        reader.take("ASC");
        let source = if column.is_virtual { Source::Computed } else { Source::Column(at) };
        reader.rest.is_empty().then_some(Part { source, collation, is_descending })
    }

    /// An expression. Its text is ordered by its bytes, if nothing in it is ordered in another way.
    fn computed_part(&self, item: &[Token]) -> Option<Part> {
        let is_other = |token: &Token| {
            let column = token.name().and_then(|name| self.columns.get(self.column(name)?));
            token.is("COLLATE") || column.is_some_and(|it| it.collation != Collation::Binary)
        };
        let collation =
            if item.iter().any(is_other) { Collation::Other } else { Collation::Binary };
        let is_descending = item.last()?.is("DESC");
        // A single word is no expression: a name that is not known.
        let is_one = item.len() > 1 && !item.iter().any(|token| token.is("NULLS"));
        is_one.then_some(Part { source: Source::Computed, collation, is_descending })
    }

    /// The index of a constraint, by its name.
    #[must_use]
    pub fn automatic_index(&self, name: &str) -> Option<IndexDefinition> {
        let number: usize = name.rsplit_once('_')?.1.parse().ok()?;
        let key = self.automatic.get(number.checked_sub(1)?)?;
        let mut index = self.index(key.clone(), true, IndexedRows::All);
        // SQLite makes these indexes before it knows that the table has no rowids, and appends the rest
        // of the key ascending ("bAscKeyBug" in its `build.c`).
        for part in index.parts.iter_mut().skip(index.key_parts) {
            part.is_descending = false;
        }
        Some(index)
    }

    /// Reads a `CREATE INDEX` on this table.
    #[must_use]
    pub fn parse_index(&self, sql: &str, is_utf8: bool) -> Option<IndexDefinition> {
        let tokens = tokens(sql)?;
        let mut reader = Reader { rest: &tokens };
        reader.expect("CREATE")?;
        let is_unique = reader.take("UNIQUE");
        reader.expect("INDEX")?;
        reader.next()?.name()?;
        reader.expect("ON")?;
        reader.next()?.name()?;
        if !reader.is_bracket() {
            return None;
        }
        let parts = self.parts(&items(reader.brackets()?), true)?;
        let rows = if reader.take("WHERE") {
            let condition = Condition::parse(reader.rest, self, is_utf8);
            condition.map_or(IndexedRows::Unknown, IndexedRows::Fulfilling)
        } else {
            IndexedRows::All
        };
        let is_understood = rows != IndexedRows::All || reader.rest.is_empty();
        is_understood.then(|| self.index(parts, is_unique, rows))
    }

    fn index(&self, mut parts: Vec<Part>, is_unique: bool, rows: IndexedRows) -> IndexDefinition {
        let key_parts = parts.len();
        match &self.key {
            None => parts.push(Part {
                source: Source::Rowid,
                collation: Collation::Binary,
                is_descending: false,
            }),
            Some(key) => {
                for part in key {
                    let is_same = |known: &Part| {
                        known.source == part.source && known.collation == part.collation
                    };
                    if !parts.iter().take(key_parts).any(is_same) {
                        parts.push(*part);
                    }
                }
            }
        }
        IndexDefinition { parts, key_parts, is_unique, rows }
    }
}

fn read_column<'a>(
    reader: &mut Reader<'a>,
    number: usize,
    keys: &mut Vec<Key<'a>>,
) -> Option<Column> {
    let mut column = Column {
        name: reader.next()?.name()?.to_owned(),
        not_null: false,
        has_default: false,
        place: None,
        collation: Collation::Binary,
        affinity: None,
        is_integer: false,
        is_virtual: false,
    };
    let mut kind = Vec::new();
    while let Some(token) = reader.rest.first()
        && !AFTER_TYPE.iter().any(|word| token.is(word))
    {
        if token.is_sign('(') {
            reader.brackets()?;
            kind.push("()");
        } else {
            kind.push(reader.next()?.name()?);
        }
    }
    column.affinity = Affinity::of(&kind.join(" "));
    column.is_integer = matches!(kind.as_slice(), [word] if word.eq_ignore_ascii_case("INTEGER"));
    while !reader.rest.is_empty() {
        read_column_constraint(reader, number, keys, &mut column)?;
    }
    Some(column)
}

fn read_column_constraint<'a>(
    reader: &mut Reader<'a>,
    number: usize,
    keys: &mut Vec<Key<'a>>,
    column: &mut Column,
) -> Option<()> {
    let key = |is_primary, may_be_rowid| Key {
        is_primary,
        may_be_rowid,
        items: Vec::new(),
        of_column: Some(number),
    };
    if reader.take("CONSTRAINT") {
        reader.next()?;
    } else if reader.take("PRIMARY") {
        reader.expect("KEY")?;
        let is_descending = reader.take("DESC");
        reader.take("ASC");
        keys.push(key(true, !is_descending));
        reader.conflict_clause()?;
        reader.take("AUTOINCREMENT");
    } else if reader.take("UNIQUE") {
        keys.push(key(false, true));
        reader.conflict_clause()?;
    } else if reader.take("NOT") {
        if reader.take("NULL") {
            column.not_null = true;
            reader.conflict_clause()?;
        } else {
            reader.expect("DEFERRABLE")?;
        }
    } else if reader.take("NULL") {
        reader.conflict_clause()?;
    } else if reader.take("CHECK") {
        reader.brackets()?;
        reader.conflict_clause()?;
    } else if reader.take("DEFAULT") {
        column.has_default = !reader.is("NULL");
        if reader.is_bracket() {
            reader.brackets()?;
        } else {
            // A sign, a number with a point, a blob: all up to the next constraint.
            reader.next()?;
            while let Some(token) = reader.rest.first()
                && !AFTER_TYPE.iter().any(|word| token.is(word))
            {
                reader.next()?;
            }
        }
    } else if reader.take("COLLATE") {
        column.collation = Collation::named(reader.next()?.name()?);
    } else if reader.take("REFERENCES") {
        reader.next()?;
        if reader.is_bracket() {
            reader.brackets()?;
        }
        read_reference(reader)?;
    } else if reader.is("GENERATED") || reader.is("AS") {
        if reader.take("GENERATED") {
            reader.expect("ALWAYS")?;
        }
        reader.expect("AS")?;
        reader.brackets()?;
        column.is_virtual = !reader.take("STORED");
        reader.take("VIRTUAL");
    } else {
        return None;
    }
    Some(())
}

fn read_reference(reader: &mut Reader<'_>) -> Option<()> {
    loop {
        let is_not = reader.rest.get(1).is_some_and(|next| next.is("DEFERRABLE"));
        let words = if reader.take("ON") {
            reader.next()?;
            if reader.is("SET") || reader.is("NO") { 2 } else { 1 }
        } else if reader.is("MATCH") || reader.is("INITIALLY") {
            2
        } else if reader.is("DEFERRABLE") || reader.is("NOT") && is_not {
            1
        } else {
            return Some(());
        };
        for _ in 0..words {
            reader.next()?;
        }
    }
}

fn read_constraints<'a>(reader: &mut Reader<'a>, keys: &mut Vec<Key<'a>>) -> Option<()> {
    while !reader.rest.is_empty() {
        if reader.take("CONSTRAINT") {
            reader.next()?;
        } else if reader.is("PRIMARY") || reader.is("UNIQUE") {
            let is_primary = reader.take("PRIMARY");
            reader.next()?;
            if !reader.is_bracket() {
                return None;
            }
            let mut inner = reader.brackets()?;
            if let Some((last, rest)) = inner.split_last()
                && last.is("AUTOINCREMENT")
            {
                inner = rest;
            }
            keys.push(Key { is_primary, may_be_rowid: true, items: items(inner), of_column: None });
            reader.conflict_clause()?;
        } else if reader.take("CHECK") {
            reader.brackets()?;
            reader.conflict_clause()?;
        } else if reader.take("FOREIGN") {
            reader.expect("KEY")?;
            reader.brackets()?;
            reader.expect("REFERENCES")?;
            reader.next()?;
            if reader.is_bracket() {
                reader.brackets()?;
            }
            read_reference(reader)?;
        } else {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(sql: &str) -> Vec<Option<usize>> {
        TableDefinition::parse(sql).unwrap().columns.iter().map(|column| column.place).collect()
    }

    fn columns(index: &IndexDefinition) -> Vec<Option<usize>> {
        let column = |part: &Part| match part.source {
            Source::Column(column) => Some(column),
            Source::Rowid | Source::Computed => None,
        };
        index.parts.iter().map(column).collect()
    }

    #[test]
    fn columns_are_where_a_record_has_them() {
        let sql = "CREATE TABLE t(a, b AS (a+1), c TEXT NOT NULL DEFAULT 'x,)' REFERENCES o(i) ON DELETE \
                   SET NULL NOT DEFERRABLE, d GENERATED ALWAYS AS (a) STORED, CHECK(a<c), FOREIGN KEY(a) \
                   REFERENCES o(i) MATCH FULL)";
        assert_eq!(places(sql), [Some(0), None, Some(1), Some(2)]);
        let table = TableDefinition::parse(sql).unwrap();
        assert!(table.columns[2].not_null && table.columns[2].has_default);
        let sql = "CREATE TABLE t(a, b, c, d, PRIMARY KEY(d, b)) WITHOUT ROWID";
        assert_eq!(places(sql), [Some(2), Some(1), Some(3), Some(0)]);
    }

    #[test]
    fn rowid_has_the_names_that_sqlite_gives_it() {
        let alias = |sql| TableDefinition::parse(sql).unwrap().alias;
        assert_eq!(alias("CREATE TABLE t(a INTEGER PRIMARY KEY AUTOINCREMENT)"), Some(0));
        assert_eq!(alias("CREATE TABLE t(x, a integer, PRIMARY KEY(a DESC))"), Some(1));
        assert_eq!(alias("CREATE TABLE t(a INTEGER PRIMARY KEY DESC)"), None);
        assert_eq!(alias("CREATE TABLE t(a INT PRIMARY KEY)"), None);
        assert_eq!(alias("CREATE TABLE t(a INTEGER PRIMARY KEY) WITHOUT ROWID"), None);
    }

    #[test]
    fn keys_of_the_statement_have_indexes_by_number() {
        let sql = "CREATE TABLE t(a UNIQUE, b COLLATE NOCASE, c, UNIQUE(a), CONSTRAINT k UNIQUE(b, c), \
                   PRIMARY KEY(c))";
        let table = TableDefinition::parse(sql).unwrap();
        let key = |n| table.automatic_index(&format!("sqlite_autoindex_t_{n}"));
        assert_eq!(columns(&key(1).unwrap()), [Some(0), None]);
        let second = key(2).unwrap();
        assert_eq!(columns(&second), [Some(1), Some(2), None]);
        assert_eq!((second.parts[0].collation, second.key_parts), (Collation::NoCase, 2));
        assert_eq!(columns(&key(3).unwrap()), [Some(2), None]);
        assert_eq!(key(4), None);
    }

    #[test]
    fn index_without_rowids_ends_with_the_rest_of_the_key() {
        let table =
            TableDefinition::parse("CREATE TABLE t(a, b, c, PRIMARY KEY(a,b)) WITHOUT ROWID");
        let index =
            table.unwrap().parse_index("CREATE UNIQUE INDEX i ON t(b, c DESC)", true).unwrap();
        assert_eq!(columns(&index), [Some(1), Some(2), Some(0)]);
        assert!(index.parts[1].is_descending && index.is_unique && !index.is_partial());
    }

    /// `PRAGMA index_xinfo` of SQLite 3.46 says so.
    #[test]
    fn rest_of_a_descending_key_is_ascending_in_indexes_of_constraints_only() {
        let table = "CREATE TABLE t(a, b UNIQUE, PRIMARY KEY(a DESC)) WITHOUT ROWID";
        let table = TableDefinition::parse(table).unwrap();
        let descending = |index: &IndexDefinition| -> Vec<bool> {
            index.parts.iter().map(|part| part.is_descending).collect()
        };
        let automatic = table.automatic_index("sqlite_autoindex_t_1").unwrap();
        assert_eq!(columns(&automatic), [Some(1), Some(0)]);
        assert_eq!(descending(&automatic), [false, false]);
        let made = table.parse_index("CREATE INDEX i ON t(b)", true).unwrap();
        assert_eq!(descending(&made), [false, true]);
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        let table = TableDefinition::parse("CREATE TABLE t(a, b)").unwrap();
        for (expression, collation, is_descending) in [
            ("lower(a)", Collation::Binary, false),
            ("a+b DESC", Collation::Binary, true),
            ("a COLLATE NOCASE || b", Collation::Other, false),
            ("(a)", Collation::Binary, false),
        ] {
            let index = table.parse_index(&format!("CREATE INDEX i ON t({expression}, b)"), true);
            let parts = index.unwrap().parts;
            let first = Part { source: Source::Computed, collation, is_descending };
            assert_eq!((parts[0], parts.len()), (first, 3));
        }
        assert_eq!(table.parse_index("CREATE INDEX i ON t(\"x\")", true), None);
        assert!(
            table.parse_index("CREATE INDEX i ON t(a) WHERE b > 1", true).unwrap().is_partial()
        );
        assert_eq!(TableDefinition::parse("CREATE TABLE t(a, b WHAT IS THIS() ))"), None);
        assert_eq!(TableDefinition::parse("CREATE TABLE t AS SELECT 1"), None);
    }
}
