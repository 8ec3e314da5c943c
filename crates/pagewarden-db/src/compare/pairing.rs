//! Which table is compared with which: those of the same name, but for locations that are of one
//! table, or say which one is meant.

use super::Request;
use super::plan::counterpart;
use crate::engine;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::table::{Table, TableName};

/// What a name may be of that is there and no table to us.
pub(super) const NOT_TABLES: &str = "views and foreign tables are not compared";

/// The tables that are compared.
#[derive(Debug)]
pub(super) struct Pairing {
    /// Those of the source.
    pub names: Vec<TableName>,
    /// All that the source has.
    pub of_source: Vec<TableName>,
    /// Those of the target among which the counterparts are.
    pub of_target: Vec<TableName>,
    /// One with one, whatever they are called.
    pub is_pair: bool,
}

/// Pairs the tables of two databases.
///
/// # Errors
/// A location is of one table, and it is not clear with which one it is compared.
pub(super) fn pairing(
    request: &Request,
    of_source: &[TableName],
    of_target: Vec<TableName>,
) -> Result<Pairing> {
    let is_file =
        |location: &Location| engine::of(location).is_ok_and(|engine| engine.is_one_table);
    let is_one = |location: &Location| location.table.is_some() || is_file(location);
    let (one_source, one_target) = (is_one(&request.source), is_one(&request.target));
    if !one_source && !one_target {
        let names = wanted(request, of_source);
        let of_source = of_source.to_vec();
        return Ok(Pairing { names, of_source, of_target, is_pair: false });
    }
    let asked = match request.tables.as_slice() {
        [] => None,
        [table] => Some(table.as_str()),
        _ => {
            let reason = "one table cannot be compared with several\nhint: name one with --table";
            return Err(Error::Address(reason.to_owned()));
        }
    };
    let own = |location: &Location, tables: &[TableName], other: Option<&TableName>| {
        if let (true, [table]) = (is_file(location), tables) {
            return Ok(table.clone());
        }
        let named = location.table.as_deref().or(asked);
        let named = named.map(|name| TableName { schema: None, name: name.to_owned() });
        let Some(name) = named.or_else(|| other.cloned()) else {
            let reason = format!("{location}: which table is meant?\nhint: --table");
            return Err(Error::Address(reason));
        };
        let text = name.to_string();
        let found = tables.iter().find(|table| table.to_string() == text);
        let found = found.or_else(|| counterpart(&name, &[], tables));
        found.cloned().ok_or_else(|| {
            Error::Address(format!(
                "{location} has no table {name}; {NOT_TABLES}\nhint: name the table to compare with --table"
            ))
        })
    };
    // The side that is of one table gives the other its name.
    let (source, target) = if one_source {
        let source = own(&request.source, of_source, None)?;
        let target = own(&request.target, &of_target, Some(&source))?;
        (source, target)
    } else {
        let target = own(&request.target, &of_target, None)?;
        (own(&request.source, of_source, Some(&target))?, target)
    };
    let (of_source, of_target) = (vec![source.clone()], vec![target]);
    Ok(Pairing { names: vec![source], of_source, of_target, is_pair: true })
}

/// The tables that were asked for, in order; those that are not there too.
fn wanted(request: &Request, tables: &[TableName]) -> Vec<TableName> {
    let excluded = |name: &TableName| request.excluded_tables.contains(&name.to_string());
    if request.tables.is_empty() {
        return tables.iter().filter(|name| !excluded(name)).cloned().collect();
    }
    let mut names: Vec<TableName> = Vec::new();
    for wanted in &request.tables {
        let as_is = TableName { schema: None, name: wanted.clone() };
        let name = tables.iter().find(|name| name.to_string() == *wanted);
        let name = name.or_else(|| counterpart(&as_is, &[], tables)).cloned().unwrap_or(as_is);
        if !names.contains(&name) && !excluded(&name) {
            names.push(name);
        }
    }
    names
}

/// The columns that identify a row, by their places in both tables: those that were
/// named, else the source's key, else the target's.
///
/// # Errors
/// A column that was named is not there.
pub(super) fn key(
    request: &Request,
    source: &Table,
    target: &Table,
) -> Result<Option<(Vec<usize>, Vec<usize>)>> {
    let names_of = |table: &Table| -> Vec<String> {
        let columns = table.key.iter().filter_map(|place| table.columns.get(*place));
        columns.map(|column| column.name.clone()).collect()
    };
    let find = |table: &Table, name: &String| super::plan::column_of(table, name).map(|it| it.0);
    if !request.key.is_empty() {
        let mut places = (Vec::new(), Vec::new());
        for name in &request.key {
            for (table, places) in [(source, &mut places.0), (target, &mut places.1)] {
                let place = find(table, name).ok_or_else(|| {
                    let table = &table.name;
                    Error::Address(format!("--key: the table {table} has no column {name}"))
                })?;
                places.push(place);
            }
        }
        return Ok(Some(places));
    }
    for table in [source, target] {
        let names = names_of(table);
        let of_source: Option<Vec<usize>> = names.iter().map(|name| find(source, name)).collect();
        let of_target: Option<Vec<usize>> = names.iter().map(|name| find(target, name)).collect();
        if let (false, Some(of_source), Some(of_target)) = (names.is_empty(), of_source, of_target)
        {
            return Ok(Some((of_source, of_target)));
        }
        // A key that only one side has is found to be none when the columns are.
        if !names.is_empty() {
            return Ok(None);
        }
    }
    Ok(None)
}
