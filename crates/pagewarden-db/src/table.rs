//! What a table is, for every engine: its columns, what they hold, its key.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::row::{Row, Tag, time};

/// The name of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    /// Its schema, unless it is the one that the connection is about.
    pub schema: Option<String>,
    /// The name itself.
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(out, "{schema}.{}", self.name),
            None => out.write_str(&self.name),
        }
    }
}

/// What the values of a column are, whatever the engine calls it. Columns of one
/// form can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Numbers of all kinds, and truth values as 0 and 1.
    Number,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A date.
    Date,
    /// A time of day, or a span that is written like one.
    Time,
    /// A date and a time, with a time zone that of UTC.
    Moment,
    /// A UUID.
    Uuid,
    /// JSON.
    Json,
    /// Whatever it is: SQLite's columns without a type.
    Any,
    /// What only engines of one kind understand, and then only of one type.
    Opaque(String),
}

impl Form {
    /// The form in which two columns can be compared, if there is one.
    pub fn common(one: &Self, other: &Self) -> Option<Self> {
        use Form::{Any, Bytes, Json, Opaque, Text, Uuid};
        if one == other {
            return Some(one.clone());
        }
        match (one, other) {
            (Any, Opaque(_)) | (Opaque(_), Any) => None,
            (Any, form) | (form, Any) => Some(form.clone()),
            (Json, Text) | (Text, Json) => Some(Json),
            (Uuid, Text | Bytes) | (Text | Bytes, Uuid) => Some(Uuid),
            _ => None,
        }
    }

    /// Appends a value that an engine gives as text or bytes, in this form. What does
    /// not have it is kept as it is, and so equals itself only.
    pub fn append(&self, row: &mut Row, tag: Tag, value: &[u8]) {
        match self {
            Self::Number if tag == Tag::Text => row.decimal(value),
            Self::Uuid => row.uuid(tag, value),
            Self::Json => row.json(value),
            Self::Date if tag == Tag::Text => {
                match std::str::from_utf8(value).ok().and_then(time::parse_date) {
                    Some(days) => row.write(Tag::Time, |bytes| time::write_date(bytes, days)),
                    None => row.put(tag, value),
                }
            }
            Self::Moment if tag == Tag::Text => match time::parse_moment(value) {
                Some(micros) => row.write(Tag::Time, |bytes| time::write_moment(bytes, micros)),
                None => row.put(tag, value),
            },
            Self::Time if tag == Tag::Text => match time::parse_time(value) {
                Some(micros) => row.write(Tag::Time, |bytes| time::write_time(bytes, micros)),
                None => row.put(tag, value),
            },
            Self::Opaque(_) => row.put(Tag::Opaque, value),
            _ => row.put(tag, value),
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the engine says it.
    pub declared: String,
    /// What its values are.
    pub form: Form,
    /// What its engine calls the type when it reads it.
    pub wire: String,
    /// The character set of its text, in engines that have one for each column.
    pub character_set: Option<String>,
    /// True if it may hold NULL.
    pub nullable: bool,
    /// True if its values are whole or decimal numbers, so that every engine orders
    /// them alike and finds them again.
    pub exact: bool,
    /// Where its values come from.
    pub filled: Filled,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Filled {
    /// Statements say them.
    #[default]
    Said,
    /// The engine counts them, unless a statement insists.
    Counted,
    /// The engine makes them of other columns; statements may not.
    Made,
}

impl Column {
    /// True if its values are whole numbers for certain.
    pub fn is_whole(&self) -> bool {
        // SQLite's columns, which are of no type when they are read, may hold others.
        WHOLE.contains(&self.wire.as_str())
    }
}

/// Types of whole numbers, as the engines call them.
const WHOLE: &[&str] =
    &["int2", "int4", "int8", "tinyint", "smallint", "mediumint", "int", "bigint"];

/// A table and what it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: TableName,
    /// Its columns, in the engine's order.
    pub columns: Vec<Column>,
    /// The places of its primary key's columns, in the key's order; empty without one.
    pub key: Vec<usize>,
    /// What only its engine needs to know of it.
    pub engine: String,
    /// The bytes that it takes, as the engine has it, where it does.
    pub bytes: Option<u64>,
    /// How many rows it has by the engine's statistics, where it keeps any.
    pub rows_estimated: Option<u64>,
}

impl Table {
    /// The columns in the order in which every engine has them: by their names, without
    /// regard to case.
    pub fn ordered(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.columns.len()).collect();
        places.sort_by_key(|place| {
            self.columns.get(*place).map(|column| (column.name.to_lowercase(), column.name.clone()))
        });
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_meet_only_where_values_can_be_equal() {
        use Form::{Any, Bytes, Date, Json, Moment, Number, Opaque, Text, Uuid};
        let point = Opaque("postgres point".to_owned());
        for (one, other, common) in [
            (Number, Number, Some(Number)),
            (Json, Text, Some(Json)),
            (Uuid, Bytes, Some(Uuid)),
            (Any, Moment, Some(Moment)),
            (Text, Bytes, None),
            (Date, Moment, None),
            (Number, Text, None),
            (point.clone(), Any, None),
            (point.clone(), Opaque("postgres box".to_owned()), None),
            (point.clone(), point.clone(), Some(point)),
        ] {
            assert_eq!(Form::common(&one, &other), common);
            assert_eq!(Form::common(&other, &one), common);
        }
    }
}
