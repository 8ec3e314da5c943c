//! Reads the golden files and their tables; `fixtures/postgres/README.md` says
//! what the columns mean.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Every version that has golden files, oldest first.
pub const VERSIONS: [&str; 10] = ["9.6", "10", "11", "12", "13", "14", "15", "16", "17", "18"];

/// A line of a table, by column name.
#[derive(Debug)]
pub struct Row(HashMap<String, String>);

impl Row {
    /// The text in a column.
    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).unwrap_or_else(|| panic!("no column {column} in {self:?}"))
    }

    /// The number in a column; `None` for `-`, which is "not known".
    pub fn number(&self, column: &str) -> Option<u64> {
        let text = self.text(column);
        let parse = || text.parse().unwrap_or_else(|_| panic!("{column} is {text}"));
        (text != "-").then(parse)
    }

    /// The log position in a column, as PostgreSQL writes it.
    pub fn lsn(&self, column: &str) -> u64 {
        let (high, low) = self.text(column).split_once('/').unwrap();
        u64::from_str_radix(high, 16).unwrap() << 32 | u64::from_str_radix(low, 16).unwrap()
    }
}

/// Where a version's files lie.
pub fn folder(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/postgres").join(version)
}

/// The lines of a table.
pub fn table(version: &str, name: &str) -> Vec<Row> {
    let path = folder(version).join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut lines = text.lines();
    let columns: Vec<_> = lines.next().unwrap().split('\t').collect();
    let rows: Vec<_> = lines
        .map(|line| {
            let fields: Vec<_> = line.split('\t').collect();
            assert_eq!(fields.len(), columns.len(), "{path:?}: {line}");
            Row(columns.iter().zip(fields).map(|(c, f)| (c.to_string(), f.to_owned())).collect())
        })
        .collect();
    assert!(!rows.is_empty(), "{path:?} has no lines");
    rows
}

/// The bytes of a golden file.
pub fn bytes(version: &str, name: &str) -> Vec<u8> {
    let path = folder(version).join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}
