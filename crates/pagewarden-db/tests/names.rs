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
        for source_kind in KINDS {
            for target_kind in KINDS {
                let make = |kind: Kind, value: i32| {
                    let database = Database::new(kind)?;
                    let (table, value_column) = (quoted(kind, name), quoted(kind, name));
                    // Not longer in bytes than the name itself.
                    let rest: String = name.chars().skip(1).collect();
                    let other = quoted(kind, &format!("k{rest}"));
                    let key = if kind == Kind::Mariadb { "int" } else { "integer" };
                    database.run(&format!(
                        "CREATE TABLE {table} ({other} {key} NOT NULL PRIMARY KEY, {value_column} int); \
                         INSERT INTO {table} VALUES (1, 1), (2, {value})"
                    ));
                    Some(database)
                };
                if !name.is_ascii() && source_kind == target_kind {
                    continue;
                }
                let (Some(source), Some(same), Some(other)) =
                    (make(source_kind, 2), make(target_kind, 2), make(target_kind, 3))
                else {
                    continue;
                };
                assert_equal(&run(&request(&source, &same)));
                let outcome = run(&request(&source, &other));
                let report = only(&outcome);
                assert_eq!(
                    (report.verdict(), report.changed),
                    (Verdict::Different, 1),
                    "{report:#?}"
                );
                assert_eq!(report.table, name);
                assert_eq!(report.differences[0].columns, [name]);
                let dialect = engine::named(outcome.target_scheme).unwrap().dialect;
                other.run(&repair::statements(dialect, report).join("\n"));
                assert_equal(&run(&request(&source, &other)));
            }
        }
    }
}
