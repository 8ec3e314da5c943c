//! Statements, and how engines differ in writing them.

use super::{Query, Range};
use crate::row::{Tag, Value, number};
use crate::table::{Column, Table};

/// How an engine writes statements.
pub trait Dialect: Sync + std::fmt::Debug {
    /// A name, quoted.
    fn name(&self, name: &str) -> String;

    /// Text, quoted.
    fn text(&self, text: &str) -> String;

    /// Bytes.
    fn bytes(&self, bytes: &[u8]) -> String;

    /// True if it looks keys of several columns up by `(a, b) > (1, 2)`.
    fn has_row_values(&self) -> bool;

    /// What is selected to read a column.
    fn selected(&self, column: &Column) -> String {
        self.name(&column.name)
    }

    /// The comparison that takes two NULLs for equal.
    fn same(&self, one: &str, other: &str) -> String;

    /// What must be said before statements with values of these columns, if anything.
    fn before(&self, _columns: &[Column]) -> Option<&'static str> {
        None
    }

    /// A value as the column takes it, where that is not [`literal`].
    fn written(&self, _column: &Column, _value: &Value) -> Option<String> {
        None
    }

    /// What is true if a column has the value that is written so, where that is not [`Self::same`]: the
    /// type has no comparison, or writes one value in several ways.
    fn holds(&self, _column: &Column, _value: &Value, _written: &str) -> Option<String> {
        None
    }

    /// What stands before the values of an INSERT that says values which the engine counts.
    fn insists(&self) -> &'static str {
        ""
    }
}

/// A statement that reads rows.
pub fn select(dialect: &dyn Dialect, query: &Query<'_>) -> String {
    let columns = query.columns.iter().filter_map(|(place, _)| query.table.columns.get(*place));
    let columns: Vec<String> = columns.map(|column| dialect.selected(column)).collect();
    let mut statement = format!("SELECT {} {}", columns.join(", "), from(dialect, query));
    if query.ordered {
        let key = names(dialect, query.table, &query.range.key);
        statement.push_str(&format!(" ORDER BY {}", key.join(", ")));
    }
    if let Some(limit) = query.limit {
        statement.push_str(&format!(" LIMIT {limit}"));
    }
    if query.offset > 0 {
        statement.push_str(&format!(" OFFSET {}", query.offset));
    }
    statement
}

/// The part of a statement that says which rows of which table.
pub fn from(dialect: &dyn Dialect, query: &Query<'_>) -> String {
    let conditions = conditions(dialect, query.table, query.range);
    let mut text = format!("FROM {}", query.table.engine);
    if !conditions.is_empty() {
        text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
    }
    text
}

/// The names of columns, quoted.
pub fn names(dialect: &dyn Dialect, table: &Table, places: &[usize]) -> Vec<String> {
    let columns = places.iter().filter_map(|place| table.columns.get(*place));
    columns.map(|column| dialect.name(&column.name)).collect()
}

/// What is true of the rows of a range, and of no other.
pub fn conditions(dialect: &dyn Dialect, table: &Table, range: &Range) -> Vec<String> {
    let key = names(dialect, table, &range.key);
    if let Some([first, last]) = whole_numbers(table, range) {
        return vec![format!("{} BETWEEN {first} AND {last}", key.concat())];
    }
    let mut conditions = Vec::new();
    for (bound, above) in [(&range.after, true), (&range.upto, false)] {
        let Some(bound) = bound else { continue };
        let values: Vec<String> = bound.iter().map(|value| literal(dialect, value)).collect();
        let key = key.get(..bound.len()).unwrap_or(&key);
        conditions.push(if dialect.has_row_values() || key.len() == 1 {
            let sign = if above { ">" } else { "<=" };
            format!("({}) {sign} ({})", key.join(", "), values.join(", "))
        } else {
            spelled_out(key, &values, above)
        });
    }
    conditions
}

/// The first and the last number of a range of whole numbers. MariaDB asks each row of a range
/// again whether it is within, and one question is cheaper than two.
fn whole_numbers(table: &Table, range: &Range) -> Option<[i128; 2]> {
    let ([place], [after], [upto]) =
        (range.key.as_slice(), range.after.as_deref()?, range.upto.as_deref()?)
    else {
        return None;
    };
    let is_whole = table.columns.get(*place)?.is_whole();
    let [after, upto] = [after, upto].map(|bound| number::whole(&bound.payload));
    is_whole.then_some([after?.checked_add(1)?, upto?])
}

/// `(a, b) > (1, 2)` for engines that find no index for it: `a >= 1 AND (a > 1 OR ...)`.
fn spelled_out(key: &[String], values: &[String], above: bool) -> String {
    let (strict, loose) = if above { (">", ">=") } else { ("<", "<=") };
    let mut text = String::new();
    for (index, (name, value)) in key.iter().zip(values).enumerate().rev() {
        let last = index + 1 == key.len();
        text = if last {
            format!("{name} {} {value}", if above { strict } else { loose })
        } else {
            format!("{name} {loose} {value} AND ({name} {strict} {value} OR ({text}))")
        };
    }
    format!("({text})")
}

/// A value as a statement writes it. What no statement can say is written as NULL,
/// which no range has and [`is_writable`] tells.
pub fn literal(dialect: &dyn Dialect, value: &Value) -> String {
    let text = || String::from_utf8_lossy(&value.payload);
    match value.tag {
        Tag::Number => number::plain(&value.payload).unwrap_or_else(|| dialect.text(&text())),
        // Canonical JSON is JSON.
        Tag::Text | Tag::Time | Tag::Opaque | Tag::Json => dialect.text(&text()),
        Tag::Bytes => dialect.bytes(&value.payload),
        Tag::Null => "NULL".to_owned(),
    }
}

/// True if a statement can say the value.
pub fn is_writable(value: &Value) -> bool {
    match value.tag {
        Tag::Number | Tag::Null | Tag::Bytes => true,
        // What a server sent in bytes of its own is no text.
        Tag::Text | Tag::Time | Tag::Json | Tag::Opaque => {
            std::str::from_utf8(&value.payload).is_ok_and(|text| !text.contains('\0'))
        }
    }
}

/// Doubles a quote in what stands between two of them.
pub fn quoted(text: &str, quote: char) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for character in text.chars() {
        if character == quote {
            quoted.push(quote);
        }
        quoted.push(character);
    }
    quoted.push(quote);
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_several_columns_are_spelled_out() {
        let key = ["a", "b", "c"].map(str::to_owned);
        let values = ["1", "2", "3"].map(str::to_owned);
        assert_eq!(
            spelled_out(&key, &values, true),
            "(a >= 1 AND (a > 1 OR (b >= 2 AND (b > 2 OR (c > 3)))))"
        );
        assert_eq!(
            spelled_out(&key, &values, false),
            "(a <= 1 AND (a < 1 OR (b <= 2 AND (b < 2 OR (c <= 3)))))"
        );
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(quoted("a\"b", '"'), "\"a\"\"b\"");
        assert_eq!(quoted("a`;\nb", '`'), "`a``;\nb`");
    }
}
