//! The condition of a partial index: which rows have an entry in it.
//!
//! What most applications write is understood: columns that are NULL or not, that are true, or that are
//! compared with numbers and texts, joined by AND, OR and NOT. Everything else is no condition here, and
//! nothing is concluded from it; the same holds for a row of which it is not known for sure whether it
//! fulfils one. Facts from SQLite's public documentation (`partialindex.html`, `lang_expr.html`, and
//! `datatype3.html` for affinity).

#![deny(clippy::arithmetic_side_effects)]

use std::cmp::Ordering;

use super::definition::{Affinity, Collation, Reader, TableDefinition, items};
use super::keys::compare;
use super::rows::column_of_row;
use super::sql::Token;
use crate::page::record::Value;

/// Conditions in conditions: what people write has a few.
const DEPTH_MAX: usize = 32;

/// A condition on the columns of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The column is NULL.
    IsNull(usize),
    /// The column is a number other than zero.
    IsTrue(usize),
    /// The column stands so to the value.
    Compared {
        /// The column.
        column: usize,
        /// How its text is ordered.
        collation: Collation,
        /// Is true for the orders that fulfil it.
        operator: Operator,
        /// What it is compared with.
        value: Literal,
    },
    /// It is not fulfilled.
    Not(Box<Self>),
    /// All are fulfilled.
    All(Vec<Self>),
    /// One at least is fulfilled.
    Any(Vec<Self>),
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `>`
    Greater,
}

/// A value in a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// A whole number.
    Integer(i64),
    /// A text.
    Text(String),
}

/// A row, of which some columns may not be known.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its table.
    pub table: &'a TableDefinition,
    /// Its number.
    pub rowid: i64,
    /// What its record begins with.
    pub values: &'a [Value<'a>],
    /// How many values there are in the whole record.
    pub in_record: usize,
}

/// True, false or NULL.
type Truth = Option<bool>;

impl Condition {
    /// Reads what stands behind WHERE; `None` if it is not understood for sure.
    #[must_use]
    pub(super) fn parse(tokens: &[Token], table: &TableDefinition, is_utf8: bool) -> Option<Self> {
        let mut parser = Parser { reader: Reader { rest: tokens }, table, is_utf8 };
        let condition = parser.any(0)?;
        parser.reader.rest.is_empty().then_some(condition)
    }

    /// Whether a row fulfils it; `None` if that is not known.
    #[must_use]
    pub fn holds(&self, row: &Row<'_>, is_utf8: bool) -> Option<bool> {
        self.truth(row, is_utf8).map(|truth| truth == Some(true))
    }

    fn truth(&self, row: &Row<'_>, is_utf8: bool) -> Option<Truth> {
        match self {
            Self::IsNull(column) => Some(Some(column_of_row(row, *column)? == Value::Null)),
            Self::IsTrue(column) => match column_of_row(row, *column)? {
                Value::Null => Some(None),
                Value::Integer(number) => Some(Some(number != 0)),
                Value::Real(number) => Some(Some(number != 0.0)),
                // The number that it begins with.
                Value::Text(_) | Value::Blob(_) => None,
            },
            Self::Compared { column, collation, operator, value } => {
                let found = column_of_row(row, *column)?;
                if found == Value::Null {
                    return Some(None);
                }
                let value = match value {
                    Literal::Integer(number) => Value::Integer(*number),
                    Literal::Text(text) => Value::Text(text.as_bytes()),
                };
                let order = compare(&found, &value, *collation, is_utf8)?;
                Some(Some(match operator {
                    Operator::Equal => order == Ordering::Equal,
                    Operator::Less => order == Ordering::Less,
                    Operator::Greater => order == Ordering::Greater,
                }))
            }
            Self::Not(inner) => Some(inner.truth(row, is_utf8)?.map(|truth| !truth)),
            Self::All(inner) => joined(inner, false, row, is_utf8),
            Self::Any(inner) => joined(inner, true, row, is_utf8),
        }
    }
}

/// What several conditions are together, of which one of this truth decides.
fn joined(inner: &[Condition], decides: bool, row: &Row<'_>, is_utf8: bool) -> Option<Truth> {
    let mut all = Some(!decides);
    let mut is_known = true;
    for one in inner {
        match one.truth(row, is_utf8) {
            Some(Some(truth)) if truth == decides => return Some(Some(decides)),
            Some(Some(_)) => {}
            Some(None) => all = None,
            None => is_known = false,
        }
    }
    is_known.then_some(all)
}

struct Parser<'a> {
    reader: Reader<'a>,
    table: &'a TableDefinition,
    is_utf8: bool,
}

impl Parser<'_> {
    fn any(&mut self, depth: usize) -> Option<Condition> {
        let mut all = vec![self.all(depth)?];
        while self.reader.take("OR") {
            all.push(self.all(depth)?);
        }
        Some(if let [_] = all.as_slice() { all.pop()? } else { Condition::Any(all) })
    }

    fn all(&mut self, depth: usize) -> Option<Condition> {
        let mut all = vec![self.one(depth)?];
        while self.reader.take("AND") {
            all.push(self.one(depth)?);
        }
        Some(if let [_] = all.as_slice() { all.pop()? } else { Condition::All(all) })
    }

    fn one(&mut self, depth: usize) -> Option<Condition> {
        let depth = depth.checked_add(1).filter(|depth| *depth <= DEPTH_MAX)?;
        if self.reader.take("NOT") {
            return Some(Condition::Not(Box::new(self.one(depth)?)));
        }
        if self.reader.is_bracket() {
            let inner = self.reader.brackets()?;
            let reader = Reader { rest: inner };
            let mut parser = Parser { reader, table: self.table, is_utf8: self.is_utf8 };
            let condition = parser.any(depth)?;
            let is_whole = parser.reader.rest.is_empty();
            // `(a) = 1` goes on with an operator.
            return (is_whole && self.is_at_end_of_one()).then_some(condition);
        }
        // A word in single quotes is a text here, and none in double quotes where there is no such column.
        let name = match self.reader.next()? {
            Token::Word(name) | Token::Name(name) => name,
            Token::Text(_) | Token::Sign(_) => return None,
        };
        let column = self.table.column(name)?;
        let is_stored =
            self.table.alias == Some(column) || self.table.columns.get(column)?.place.is_some();
        if !is_stored {
            return None;
        }
        let condition = self.of_column(column)?;
        self.is_at_end_of_one().then_some(condition)
    }

    fn is_at_end_of_one(&self) -> bool {
        self.reader.rest.is_empty() || self.reader.is("AND") || self.reader.is("OR")
    }

    /// What is said of a column, whose name was read.
    fn of_column(&mut self, column: usize) -> Option<Condition> {
        let is_null = Condition::IsNull(column);
        if self.is_at_end_of_one() {
            return Some(Condition::IsTrue(column));
        }
        if self.reader.take("ISNULL") {
            return Some(is_null);
        }
        if self.reader.take("NOTNULL") {
            return Some(not(is_null));
        }
        if self.reader.take("IS") {
            let is_not = self.reader.take("NOT");
            self.reader.expect("NULL")?;
            return Some(if is_not { not(is_null) } else { is_null });
        }
        if self.reader.take("NOT") {
            if self.reader.take("NULL") {
                return Some(not(is_null));
            }
            self.reader.expect("IN")?;
            return self.list(column).map(not);
        }
        if self.reader.take("IN") {
            return self.list(column);
        }
        let (operator, is_denied) = self.operator()?;
        let condition = self.compared(column, operator)?;
        Some(if is_denied { not(condition) } else { condition })
    }

    /// An operator, or what denies one: `<=` is not `>`.
    fn operator(&mut self) -> Option<(Operator, bool)> {
        let mut signs = String::new();
        while let Some(Token::Sign(sign @ ('=' | '<' | '>' | '!'))) = self.reader.rest.first() {
            signs.push(*sign);
            self.reader.next();
        }
        Some(match signs.as_str() {
            "=" | "==" => (Operator::Equal, false),
            "!=" | "<>" => (Operator::Equal, true),
            "<" => (Operator::Less, false),
            ">=" => (Operator::Less, true),
            ">" => (Operator::Greater, false),
            "<=" => (Operator::Greater, true),
            _ => return None,
        })
    }

    /// The values in a bracket, one of which the column equals.
    fn list(&mut self, column: usize) -> Option<Condition> {
        if !self.reader.is_bracket() {
            return None;
        }
        let inner = self.reader.brackets()?;
        let equal = |item: &[Token]| {
            let reader = Reader { rest: item };
            let mut parser = Parser { reader, table: self.table, is_utf8: self.is_utf8 };
            let condition = parser.compared(column, Operator::Equal)?;
            parser.reader.rest.is_empty().then_some(condition)
        };
        Some(Condition::Any(items(inner).into_iter().map(equal).collect::<Option<_>>()?))
    }

    fn compared(&mut self, column: usize, operator: Operator) -> Option<Condition> {
        let definition = self.table.columns.get(column)?;
        let is_negative = self.reader.rest.first().is_some_and(|token| token.is_sign('-'));
        if is_negative {
            self.reader.next();
        }
        let literal = match self.reader.next()? {
            Token::Text(text) if !is_negative => Literal::Text(text.clone()),
            Token::Word(word) if word.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number: i64 = word.parse().ok()?;
                Literal::Integer(if is_negative { number.checked_neg()? } else { number })
            }
            Token::Word(word) if !is_negative => match word.to_ascii_uppercase().as_str() {
                "TRUE" => Literal::Integer(1),
                "FALSE" => Literal::Integer(0),
                _ => return None,
            },
            Token::Text(_) | Token::Word(_) | Token::Name(_) | Token::Sign(_) => return None,
        };
        let value = match (definition.affinity?, literal) {
            (Affinity::Text, Literal::Integer(number)) => Literal::Text(number.to_string()),
            // It is taken for a number if it looks like one.
            (Affinity::Number, Literal::Text(text))
                if !text.starts_with(|first: char| first.is_ascii_alphabetic()) =>
            {
                return None;
            }
            (_, literal) => literal,
        };
        if matches!(value, Literal::Text(_)) && !self.is_utf8 {
            return None;
        }
        Some(Condition::Compared { column, collation: definition.collation, operator, value })
    }
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

#[cfg(test)]
mod tests {
    use super::super::sql::tokens;
    use super::*;

    const TABLE: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INT, s TEXT COLLATE NOCASE, b, \
                         d NUMERIC DEFAULT 7, v AS (n + 1), odd ANY)";

    fn parsed(condition: &str) -> Option<Condition> {
        let table = TableDefinition::parse(TABLE).unwrap();
        Condition::parse(&tokens(condition).unwrap(), &table, true)
    }

    fn holds(condition: &str, values: &[Value<'_>]) -> Option<bool> {
        let table = TableDefinition::parse(TABLE).unwrap();
        let row = Row { table: &table, rowid: 5, values, in_record: values.len() };
        parsed(condition).unwrap_or_else(|| panic!("{condition}")).holds(&row, true)
    }

    #[test]
    fn conditions_hold_as_in_sqlite() {
        let row =
            [Value::Null, Value::Integer(3), Value::Text(b"Open"), Value::Blob(b"x"), Value::Null];
        for (condition, expected) in [
            ("n IS NOT NULL", true),
            ("n NOTNULL AND n NOT NULL", true),
            ("d ISNULL OR n = 4", true),
            ("id = 5", true),
            ("id > 5", false),
            ("n", true),
            ("NOT n", false),
            ("NOT n = 4 AND n <= 3", true),
            ("n IN (1, 2, 3)", true),
            ("n NOT IN (1, 2)", true),
            ("n <> 3", false),
            ("n > -1", true),
            ("s = 'OPEN'", true),
            ("[s] == 'open'", true),
            ("s IN ('a', 'b')", false),
            ("n = 'three'", false),
            ("n < 'three'", true),
            // NULL is neither true nor false.
            ("d = 1", false),
            ("NOT d = 1", false),
            ("d = 1 OR n = 3", true),
            ("NOT (d = 1 AND n = 4)", true),
            ("NOT (d = 1 AND n = 3)", false),
            // Numbers, text, blobs.
            ("b > 'z' AND b > 9", true),
            ("(n = 3 OR n = 4) AND (s = 'open')", true),
            ("n = TRUE", false),
        ] {
            assert_eq!(holds(condition, &row), Some(expected), "{condition}");
        }
    }

    #[test]
    fn what_is_not_known_of_a_row_is_not_concluded() {
        let early = [Value::Null, Value::Integer(3), Value::Text(b"7"), Value::Null];
        // A column with a default that was added later.
        assert_eq!(holds("d = 7", &early), None);
        assert_eq!(holds("n = 3 AND d = 7", &early), None);
        assert_eq!(holds("n = 4 AND d = 7", &early), Some(false));
        assert_eq!(holds("n = 3 OR d = 7", &early), Some(true));
        // The number that a text begins with.
        assert_eq!(holds("s", &early), None);
    }

    #[test]
    fn what_is_not_understood_is_no_condition() {
        for condition in [
            "",
            "n =",
            "n = 1.5",
            "n = 1e3",
            "n = 0x10",
            "n = NULL",
            "n IS 1",
            "n = m",
            "length(s) > 1",
            "s LIKE 'a%'",
            "n BETWEEN 1 AND 2",
            "s = \"open\"",
            "\"open\" = s",
            "'n' = 1",
            "1 = n",
            "n = 1 COLLATE BINARY",
            "(n) = 1",
            "n + 1 = 2",
            "v = 1",
            "odd = 1",
            "n = '3'",
            "n = ''",
            "n IN (1, NULL)",
            "n IN (SELECT 1)",
            "n = 9223372036854775808",
            "n = X'01'",
            "t.n = 1",
            "n = 1 AND",
            "n = 1 n",
            "rowid = 1",
            "n IS NOT DISTINCT FROM 1",
            "n =! 1",
            "n > = 1 = 1",
        ] {
            assert_eq!(parsed(condition), None, "{condition}");
        }
        let deep = format!("{}n{}", "(".repeat(1000), ")".repeat(1000));
        assert_eq!(parsed(&deep), None);
        assert_eq!(parsed(&format!("{} n", "NOT ".repeat(1000))), None);
        // Of text in UTF-16 only whether it is there.
        let table = TableDefinition::parse(TABLE).unwrap();
        let utf16 = |text| Condition::parse(&tokens(text).unwrap(), &table, false);
        assert_eq!(utf16("s = 'a'"), None);
        assert!(utf16("s IS NULL AND n = 1").is_some());
    }
}
