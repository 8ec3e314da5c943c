//! Names that break statements which are put together carelessly.

use pagewarden_db::compare::repair;
use pagewarden_db::compare::report::Verdict;
use pagewarden_db::engine;

use crate::servers::{Database, KINDS, Kind, assert_equal, only, request, run};

/// As long as PostgreSQL takes it: 63 bytes.
fn long() -> String {
    format!("{}x", "\u{E9}".repeat(31))
}

fn quoted(kind: Kind, name: &str) -> String {
    let quote = if kind == Kind::Mariadb { '`' } else { '"' };
    format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")))
}

#[test]
fn strange_names_are_names() {
    let names = [
        "a\"b`c;d'e",
        "x; DROP TABLE y; --",
        "new\nline\\n",
        "select",
        "%s {} ?1 $1 :a @b",
        &long(),
    ];
    for name in names {
        let equal: Vec<(Kind, Database)> =
            KINDS.iter().filter_map(|kind| Some((*kind, make(*kind, name, 2)?))).collect();
        for (_, source) in &equal {
            for (_, target) in &equal {
                assert_equal(&run(&request(source, target)));
            }
        }
        for (place, (kind, _)) in equal.iter().enumerate() {
            // Another kind than its own where there is one.
            let source = &equal[(place + 1) % equal.len()].1;
            let Some(other) = make(*kind, name, 3) else { continue };
            let outcome = run(&request(source, &other));
            let report = only(&outcome);
            assert_eq!((report.verdict(), report.changed), (Verdict::Different, 1), "{report:#?}");
            assert_eq!(report.table, name);
            assert_eq!(report.differences[0].columns, [name]);
            let dialect = engine::named(outcome.target_scheme).unwrap().dialect;
            other.run(&repair::statements(dialect, report).join("\n"));
            assert_equal(&run(&request(source, &other)));
        }
    }
}

/// A table that is called so, with a column that is called so.
fn make(kind: Kind, name: &str, value: i32) -> Option<Database> {
    let database = Database::new(kind)?;
    let (table, column) = (quoted(kind, name), quoted(kind, name));
    // Not longer in bytes than the name itself.
    let rest: String = name.chars().skip(1).collect();
    let key = quoted(kind, &format!("k{rest}"));
    database.run(&format!(
        "CREATE TABLE {table} ({key} integer NOT NULL PRIMARY KEY, {column} int); \
         INSERT INTO {table} VALUES (1, 1), (2, {value})"
    ));
    Some(database)
}
