//! What is compared with what: tables by their names, columns by theirs, and the form
//! in which two columns meet.

use crate::table::{Column, Form, Table, TableName};

/// A column that cannot be compared, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCompared {
    /// Its name.
    pub column: String,
    /// Why.
    pub reason: String,
}

/// Two tables, and what of them is compared.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The names of the compared columns: those of the key first, then the others by name.
    pub columns: Vec<String>,
    /// How many of them are the key; none if there is no key on which both agree.
    pub key_count: usize,
    /// The source's columns, in that order.
    pub source: Vec<(usize, Form)>,
    /// The target's columns, in that order.
    pub target: Vec<(usize, Form)>,
    /// What is not compared.
    pub not_compared: Vec<NotCompared>,
    /// True if rows can be cut into ranges of the key: every engine orders it alike.
    pub has_ranges: bool,
}

/// The table of the target that a table of the source is compared with: of the same
/// name, or the only one that differs in case. Of several of the source (`own`) that differ only in case,
/// none is compared with one of another name.
pub fn counterpart<'a>(
    name: &TableName,
    own: &[TableName],
    tables: &'a [TableName],
) -> Option<&'a TableName> {
    tables.iter().find(|other| *other == name).or_else(|| {
        let text = name.to_string().to_lowercase();
        let is_alike = |other: &&TableName| other.to_string().to_lowercase() == text;
        if own.iter().filter(|other| *other != name).any(|other| is_alike(&other)) {
            return None;
        }
        let mut alike = tables.iter().filter(is_alike);
        alike.next().filter(|_| alike.next().is_none())
    })
}

/// The column of the target that a column of the source is compared with, by the same rules.
fn counterpart_of_column<'a>(
    column: &Column,
    own: &[Column],
    target: &'a Table,
) -> Option<(usize, &'a Column)> {
    let lower = column.name.to_lowercase();
    let found = column_of(target, &column.name)?;
    let is_alone = || own.iter().filter(|one| one.name.to_lowercase() == lower).count() == 1;
    (found.1.name == column.name || is_alone()).then_some(found)
}

/// The column of a name: that of the same name, or the only one that differs in case.
pub(super) fn column_of<'a>(table: &'a Table, name: &str) -> Option<(usize, &'a Column)> {
    let mut columns = table.columns.iter().enumerate();
    columns.clone().find(|(_, column)| column.name == name).or_else(|| {
        let lower = name.to_lowercase();
        let alike = |column: &Column| column.name.to_lowercase() == lower;
        let found = columns.find(|(_, column)| alike(column));
        found.filter(|_| !columns.any(|(_, column)| alike(column)))
    })
}

impl Plan {
    /// Holds two tables against each other. `excluded` tells which columns are to be left
    /// out; these are not listed.
    pub fn make(source: &Table, target: &Table, excluded: &dyn Fn(&str) -> bool) -> Self {
        let mut plan = Self {
            columns: Vec::new(),
            key_count: 0,
            source: Vec::new(),
            target: Vec::new(),
            not_compared: Vec::new(),
            has_ranges: false,
        };
        let mut order = source.key.clone();
        order.extend(source.ordered().into_iter().filter(|place| !source.key.contains(place)));
        let mut key: Vec<(&Column, &Column)> = Vec::new();
        let mut taken = Vec::new();
        for place in order {
            let Some(column) = source.columns.get(place) else { continue };
            // A file may have several of one name.
            let matched = counterpart_of_column(column, &source.columns, target)
                .filter(|(other_place, _)| !taken.contains(other_place));
            if let Some((other_place, _)) = matched {
                taken.push(other_place);
            }
            if excluded(&column.name) {
                continue;
            }
            let (other_place, other, form) = match matched {
                None => {
                    plan.leave_out(column, "the target has no such column".to_owned());
                    continue;
                }
                Some((other_place, other)) => match Form::common(&column.form, &other.form) {
                    Some(form) => (other_place, other, form),
                    None => {
                        let types = format!("{} and {}", column.declared, other.declared);
                        plan.leave_out(column, format!("{types} cannot be compared"));
                        continue;
                    }
                },
            };
            if source.key.contains(&place) {
                key.push((column, other));
            }
            plan.columns.push(column.name.clone());
            plan.source.push((place, form.clone()));
            plan.target.push((other_place, form));
        }
        for (place, column) in target.columns.iter().enumerate() {
            if !taken.contains(&place) && !excluded(&column.name) {
                plan.leave_out(column, "the source has no such column".to_owned());
            }
        }
        // A part of a key is no key.
        if key.len() == source.key.len() {
            plan.key_count = key.len();
            // Without an index on both sides each range would be a reading of the table.
            let of_target: Vec<usize> =
                plan.target.iter().take(plan.key_count).map(|(place, _)| *place).collect();
            plan.has_ranges = !key.is_empty()
                && target.key.starts_with(&of_target)
                && key.iter().all(|(one, other)| {
                    one.exact && other.exact && !one.nullable && !other.nullable
                });
        }
        plan
    }

    fn leave_out(&mut self, column: &Column, reason: String) {
        self.not_compared.push(NotCompared { column: column.name.clone(), reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[(&str, Form, bool)], key: &[usize]) -> Table {
        let column = |(name, form, exact): &(&str, Form, bool)| Column {
            name: (*name).to_owned(),
            declared: format!("{form:?}"),
            character_set: None,
            wire: String::new(),
            form: form.clone(),
            nullable: !exact,
            exact: *exact,
            filled: crate::table::Filled::Said,
        };
        Table {
            name: TableName { schema: None, name: "t".to_owned() },
            columns: columns.iter().map(column).collect(),
            key: key.to_vec(),
            engine: String::new(),
            bytes: None,
            rows_estimated: None,
        }
    }

    #[test]
    fn columns_meet_by_name_and_the_rest_is_listed() {
        let source = table(
            &[
                ("b", Form::Text, false),
                ("ID", Form::Number, true),
                ("gone", Form::Text, false),
                ("p", Form::Text, false),
            ],
            &[1],
        );
        let target = table(
            &[
                ("id", Form::Number, true),
                ("b", Form::Text, false),
                ("p", Form::Bytes, false),
                ("new", Form::Text, false),
                ("x", Form::Text, false),
            ],
            &[0],
        );
        let plan = Plan::make(&source, &target, &|name| name == "x");
        assert_eq!(plan.columns, ["ID", "b"]);
        assert_eq!((plan.key_count, plan.has_ranges), (1, true));
        assert_eq!(plan.source, [(1, Form::Number), (0, Form::Text)]);
        assert_eq!(plan.target, [(0, Form::Number), (1, Form::Text)]);
        let left: Vec<&str> = plan.not_compared.iter().map(|one| one.column.as_str()).collect();
        assert_eq!(left, ["gone", "p", "new"]);
    }

    #[test]
    fn part_of_a_key_is_no_key() {
        let source = table(&[("a", Form::Number, true), ("b", Form::Number, true)], &[0, 1]);
        let target = table(&[("a", Form::Number, true)], &[0]);
        let plan = Plan::make(&source, &target, &|_| false);
        assert_eq!((plan.key_count, plan.has_ranges), (0, false));
    }

    #[test]
    fn key_that_may_be_null_has_no_ranges() {
        let source = table(&[("a", Form::Number, true)], &[0]);
        let mut target = source.clone();
        assert!(Plan::make(&source, &target, &|_| false).has_ranges);
        target.key = Vec::new();
        assert!(!Plan::make(&source, &target, &|_| false).has_ranges, "the target has no index");
        target.key = vec![0];
        target.columns[0].nullable = true;
        let plan = Plan::make(&source, &target, &|_| false);
        assert_eq!((plan.key_count, plan.has_ranges), (1, false));
    }

    #[test]
    fn tables_meet_by_name() {
        let name = |name: &str| TableName { schema: None, name: name.to_owned() };
        let tables = [name("Orders"), name("items"), name("Items")];
        assert_eq!(counterpart(&name("orders"), &[name("orders")], &tables), Some(&tables[0]));
        assert_eq!(counterpart(&name("Items"), &[name("Items")], &tables), Some(&tables[2]));
        assert_eq!(counterpart(&name("ITEMS"), &[name("ITEMS")], &tables), None);
        let own = [name("orders"), name("ORDERS"), name("items")];
        assert_eq!(counterpart(&own[0], &own, &tables), None);
        assert_eq!(counterpart(&own[1], &own, &tables), None);
        assert_eq!(counterpart(&own[2], &own, &tables), Some(&tables[1]));
    }

    /// Each column of the target is compared with one of the source.
    #[test]
    fn columns_that_differ_in_case_only_are_not_compared_with_the_same_one() {
        let texts = |names: &[&'static str]| {
            let columns: Vec<_> = names.iter().map(|name| (*name, Form::Text, false)).collect();
            table(&columns, &[0])
        };
        let target = texts(&["id", "a"]);
        for names in [["id", "A", "a"], ["id", "a", "A"], ["id", "a", "a"]] {
            let plan = Plan::make(&texts(&names), &target, &|_| false);
            assert_eq!(plan.columns, ["id", "a"], "{names:?}");
            assert_eq!(plan.not_compared.len(), 1, "{names:?}: {:?}", plan.not_compared);
        }
        let plan = Plan::make(&texts(&["id", "A"]), &target, &|_| false);
        assert_eq!((plan.columns.len(), plan.not_compared.len()), (2, 0));
    }
}
