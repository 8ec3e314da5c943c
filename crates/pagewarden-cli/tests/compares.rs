//! `compare` from outside: exit statuses, JSON, passwords, signals, and what is refused.
//! Real servers are `pagewarden-db`'s own tests; here SQLite stands for them, and one
//! PostgreSQL shows that a server is reached.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use pagewarden_scratch::postgres::{Cluster, Installation, Options};
use serde_json::Value;
use tempfile::TempDir;

use crate::runner::{Outcome, Started, pagewarden, run};
use crate::sqlite::has_shell;

/// SQLite databases in a folder of their own.
pub struct Databases {
    pub folder: TempDir,
}

const TABLES: &str = "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, at TIMESTAMP);
    INSERT INTO orders VALUES (1, 'one', '2024-01-01 10:00:00'), (2, 'two', NULL), (3, 'three ', NULL);
    CREATE TABLE words (word TEXT);
    INSERT INTO words VALUES ('a'), ('a'), ('b');";

impl Databases {
    fn new() -> Option<Self> {
        Self::of(&[("a", TABLES), ("b", TABLES)])
    }

    /// Databases by their names and the statements that make them.
    pub fn of(databases: &[(&str, &str)]) -> Option<Self> {
        let made = has_shell().then(|| Self { folder: tempfile::tempdir().unwrap() })?;
        databases.iter().for_each(|(name, sql)| made.run(name, sql));
        Some(made)
    }

    pub fn run(&self, name: &str, sql: &str) {
        // A comment at its begin is no option.
        let sql = format!(" {sql}");
        let output = Command::new("sqlite3").arg(self.path(name)).arg(sql).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn compare(&self, words: &[&str]) -> Outcome {
        let (one, other) =
            (format!("sqlite:{}", self.path("a")), format!("sqlite:{}", self.path("b")));
        let settle: &[&str] =
            if words.contains(&"--snapshot") { &[] } else { &["--settle", "50ms"] };
        run(plain().args(["compare", &one, &other]).args(settle).args(words))
    }
}

/// The program, with nothing around that holds passwords.
pub fn plain() -> Command {
    let mut command = pagewarden();
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("PG") || name.starts_with("MYSQL") {
            command.env_remove(name);
        }
    }
    command.env("HOME", "/nonexistent");
    command
}

pub fn json(outcome: &Outcome) -> Value {
    let json: Value = serde_json::from_str(&outcome.stdout).expect(&outcome.stdout);
    assert_eq!(json["pagewarden"], env!("CARGO_PKG_VERSION"));
    assert!(json["seconds"].is_number());
    json
}

#[test]
fn equal_databases_are_equal_in_every_way_of_saying_it() {
    let Some(databases) = Databases::new() else { return };
    let outcome = databases.compare(&["--json"]);
    let report = json(&outcome);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert_eq!((&report["verdict"], &report["command"]), (&"equal".into(), &"compare".into()));
    let tables = report["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 2);
    for (table, rows) in tables.iter().zip([3, 3]) {
        assert_eq!(table["verdict"], "equal");
        assert_eq!((&table["rows_source"], &table["rows_target"]), (&rows.into(), &rows.into()));
        for none in ["only_source", "only_target", "changed", "unresolved"] {
            assert_eq!(table[none], 0, "{none}");
        }
        for empty in ["not_compared", "differences"] {
            assert_eq!(table[empty], Value::Array(Vec::new()), "{empty}");
        }
        assert!(table["chunks"].as_u64().unwrap() > 0 && table["bytes"].as_u64().unwrap() > 0);
        assert!(table["seconds"].is_number());
    }
    let outcome = databases.compare(&[]);
    assert_eq!(outcome.status, Some(0));
    let last = outcome.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("Compared 2 tables (6 rows) in ")
            && last.ends_with(": 2 equal, 0 different, 0 incomplete")
    );
    let outcome = databases.compare(&["--nagios"]);
    assert_eq!(outcome.status, Some(0));
    assert!(outcome.stdout.starts_with("PAGEWARDEN OK - 2 tables: 0 rows differ"), "{outcome:?}");
    let outcome = databases.compare(&["--sql"]);
    assert!(outcome.stdout.lines().all(|line| line.starts_with("--")), "{}", outcome.stdout);
}

#[test]
fn differences_are_named_and_statements_end_them() {
    let Some(databases) = Databases::new() else { return };
    databases.run(
        "b",
        "UPDATE orders SET name = 'three' WHERE id = 3; DELETE FROM orders WHERE id = 1;
        INSERT INTO orders VALUES (9, 'nine', NULL)",
    );
    let outcome = databases.compare(&["--json", "--show-values"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    let report = json(&outcome);
    assert_eq!(report["verdict"], "different");
    let table = &report["tables"][0];
    assert_eq!(
        (&table["only_source"], &table["only_target"], &table["changed"]),
        (&1.into(), &1.into(), &1.into())
    );
    let expected = serde_json::json!([
        { "key": {"id": 1}, "kind": "only_source", "columns": [],
          "source": {"id": 1, "at": "2024-01-01 10:00:00", "name": "one"}, "target": null },
        { "key": {"id": 3}, "kind": "changed", "columns": ["name"],
          "source": {"name": "three "}, "target": {"name": "three"} },
        { "key": {"id": 9}, "kind": "only_target", "columns": [],
          "source": null, "target": {"id": 9, "at": null, "name": "nine"} },
    ]);
    assert_eq!(table["differences"], expected);
    assert_eq!(table["diagnosis"][0]["pattern"], "lost blanks at the end");
    let outcome = databases.compare(&[]);
    assert!(outcome.stdout.contains("1 row only in the source"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("nine"), "values are shown only where they are asked for");
    let outcome = databases.compare(&["--show-values"]);
    assert!(
        outcome.stdout.contains("id = 3: name; name: 'three ' -> 'three'"),
        "{}",
        outcome.stdout
    );
    assert_eq!(databases.compare(&["--nagios"]).status, Some(2));
    let script = databases.compare(&["--sql"]);
    assert_eq!(script.status, Some(1));
    databases.run("b", &script.stdout);
    assert_eq!(databases.compare(&["--json"]).status, Some(0));
}

/// A row that is too many may have the value of a unique key that another is to have; numbers that have no
/// end are written as such.
#[test]
fn statements_remove_before_they_add() {
    let table = "CREATE TABLE u (id INTEGER PRIMARY KEY, email TEXT UNIQUE, r REAL)";
    let source = format!("{table}; INSERT INTO u VALUES (1, 'a@x', 9e999), (4, 'd@x', -9e999);");
    let target = format!("{table}; INSERT INTO u VALUES (2, 'a@x', 1), (4, 'c@x', 1);");
    let Some(databases) = Databases::of(&[("a", &source), ("b", &target)]) else { return };
    let script = databases.compare(&["--sql"]);
    assert_eq!(script.status, Some(1), "{script:?}");
    databases.run("b", &script.stdout);
    let equal = databases.compare(&[]);
    assert_eq!(equal.status, Some(0), "{script:?} {equal:?}");
}

#[test]
fn what_is_not_compared_makes_it_incomplete() {
    let Some(databases) = Databases::new() else { return };
    databases.run(
        "a",
        "ALTER TABLE orders ADD COLUMN more TEXT; CREATE TABLE extra (id INTEGER PRIMARY KEY)",
    );
    let outcome = databases.compare(&["--json"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let report = json(&outcome);
    assert_eq!(report["verdict"], "incomplete");
    assert_eq!(report["tables"][1]["not_compared"], serde_json::json!(["more"]));
    assert!(report["tables"][0]["error"].as_str().unwrap().contains("target has no such table"));
    assert_eq!(databases.compare(&["--nagios"]).status, Some(3));
    let excluded = ["--exclude-table", "extra", "--exclude-column", "orders.more"];
    assert_eq!(databases.compare(&excluded).status, Some(0));
    assert_eq!(databases.compare(&["--table", "words"]).status, Some(0));
    assert_eq!(databases.compare(&["--table", "nothing"]).status, Some(2));
}

#[test]
fn several_targets_are_compared_one_after_the_other() {
    let Some(databases) = Databases::new() else { return };
    databases.run("c", TABLES);
    databases.run("c", "DELETE FROM words WHERE word = 'b'");
    let third = format!("sqlite:{}", databases.path("c"));
    let outcome = databases.compare(&[&third, "--json"]);
    let report = json(&outcome);
    assert_eq!(outcome.status, Some(1));
    assert_eq!(report["tables"].as_array().unwrap().len(), 4);
    assert_eq!(report["targets"].as_array().unwrap().len(), 2);
    assert_eq!(report["tables"][3]["only_source"], 1);
    assert_eq!(report["tables"][3]["differences"][0]["key"], serde_json::json!({"word": "b"}));
}

/// A run that is ended says what it has, and calls nothing equal that was not seen to be.
#[test]
fn signal_ends_it_with_what_was_found() {
    let Some(databases) = Databases::new() else { return };
    databases.run("b", "UPDATE words SET word = 'c' WHERE word = 'b'");
    let (one, other) =
        (format!("sqlite:{}", databases.path("a")), format!("sqlite:{}", databases.path("b")));
    // A difference is believed after an hour: until then the program waits.
    let words = ["compare", &one, &other, "--settle", "1h", "--jobs", "1", "--json"];
    let started = Started::spawn(plain().args(words));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    started.signal(rustix::process::Signal::TERM);
    let outcome = started.wait();
    assert_eq!(outcome.status, Some(3), "{outcome:?}");
    let report = json(&outcome);
    assert_eq!((&report["verdict"], &report["stopped"]), (&"incomplete".into(), &true.into()));
    assert_eq!(report["tables"][0]["verdict"], "equal");
    assert_eq!(report["tables"][1]["verdict"], "incomplete");
}

#[test]
fn no_password_is_ever_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "hunter2").unwrap();
    for open in [true, false] {
        let mode = if open { 0o644 } else { 0o600 };
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        for url in [
            "postgres://ann:hunter2@127.0.0.1:1/shop",
            "mysql://ann:hunter2@127.0.0.1:1/shop",
            "oracle://ann:hunter2@x",
        ] {
            for words in [
                &["checksum", url][..],
                &["checksum", url, "--json"],
                &["compare", url, url],
                &["compare", url, url, "--json"],
                &["compare", url, url, "--nagios"],
                &["compare", url],
            ] {
                let mut command = plain();
                command.args(words).arg("--password-file").arg(&file);
                let outcome = run(&mut command);
                assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
                assert!(matches!(outcome.status, Some(2 | 3)), "{outcome:?}");
                if words.contains(&"--json") {
                    assert!(json(&outcome)["error"].is_string());
                }
            }
        }
    }
    let url = "postgres://ann:hunter2@127.0.0.1:1/shop";
    let outcome = run(plain().args(["checksum", url]));
    assert!(outcome.stderr.contains("sees the password in the URL"), "{outcome:?}");
    assert!(outcome.stderr.contains("127.0.0.1"), "{outcome:?}");
}

#[test]
fn figures_for_prometheus_take_no_alarm_back() {
    let Some(databases) = Databases::new() else { return };
    let file = databases.path("figures.prom");
    let labels = format!(
        "{{source=\"sqlite:{}\",target=\"sqlite:{}\"}}",
        databases.path("a"),
        databases.path("b")
    );
    let value = |name: &str| {
        let name = format!("pagewarden_compare_{name}{labels} ");
        let text = fs::read_to_string(&file).unwrap();
        let line = text.lines().find_map(|line| Some(line.strip_prefix(&name)?.to_owned()));
        line.map(|value| value.parse::<f64>().unwrap())
    };
    databases.run("b", "UPDATE orders SET name = 'zwei' WHERE id = 2");
    let outcome = databases.compare(&["--metrics", &file]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert_eq!((value("up"), value("different_rows")), (Some(1.0), Some(1.0)));
    assert_eq!((value("source_rows"), value("target_rows")), (Some(6.0), Some(6.0)));
    let seen = value("last_success_timestamp_seconds");
    assert!(seen.is_some_and(|seen| seen > 1e9));
    let away = databases.path("away");
    fs::rename(databases.path("b"), &away).unwrap();
    let outcome = databases.compare(&["--metrics", &file, "--nagios"]);
    assert_eq!(outcome.status, Some(3), "{outcome:?}");
    assert_eq!((value("up"), value("different_rows")), (Some(0.0), Some(1.0)));
    assert_eq!(value("last_success_timestamp_seconds"), seen);
    fs::copy(databases.path("a"), databases.path("b")).unwrap();
    let outcome = databases.compare(&["--metrics", &file, "--json"]);
    assert_eq!((outcome.status, value("different_rows")), (Some(0), Some(0.0)), "{outcome:?}");
    // Whatever is no such file is not replaced, least of all a database.
    let before = fs::read(databases.path("a")).unwrap();
    let outcome = databases.compare(&["--metrics", &databases.path("a")]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    assert_eq!(fs::read(databases.path("a")).unwrap(), before);
}

/// A ceiling on what is read a second, of both sides together.
#[test]
fn rate_is_a_ceiling_of_reading() {
    let Some(databases) = Databases::new() else { return };
    let more = "INSERT INTO words SELECT hex(randomblob(500)) FROM generate_series(1, 2500)";
    databases.run("a", more);
    let outcome = databases.compare(&["--table", "words", "--json", "--snapshot"]);
    let bytes = json(&outcome)["tables"][0]["bytes"].as_u64().unwrap();
    let begin = std::time::Instant::now();
    let url = format!("sqlite:{}", databases.path("a"));
    let rate = format!("{}B/s", bytes / 2);
    let outcome = run(plain().args(["checksum", &url, "--table", "words", "--rate", &rate]));
    assert_eq!(outcome.status, Some(0));
    assert!(begin.elapsed().as_secs_f64() > 1.9, "{:?}", begin.elapsed());
}

#[test]
fn way_that_was_asked_for_and_not_taken_is_named_with_the_reason() {
    let Some(databases) = Databases::new() else { return };
    let outcome = databases.compare(&["--mode", "native", "--table", "words"]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("\n    no native: "), "{outcome:?}");
    let outcome = databases.compare(&["--table", "words"]);
    assert!(!outcome.stdout.contains("no native"), "{outcome:?}");
}

/// Nothing is written without leave, nor where no replica would run it again.
#[test]
fn replicate_is_refused_without_leave_and_without_replicas() {
    let Some(databases) = Databases::new() else { return };
    let url = format!("sqlite:{}", databases.path("a"));
    let before = fs::read(databases.path("a")).unwrap();
    let checksum = |words: &[&str]| {
        run(plain().args(["checksum", &url, "--strategy", "replicate"]).args(words))
    };
    let outcome = checksum(&[]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("needs --yes"), "{outcome:?}");
    let outcome = checksum(&["--yes", "--snapshot"]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("not with --snapshot"), "{outcome:?}");
    let outcome = checksum(&["--yes", "--function", "crc32"]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("hint: leave --function crc32 out"), "{outcome:?}");
    let outcome = checksum(&["--yes", "--json"]);
    assert_eq!(outcome.status, Some(2));
    assert!(json(&outcome)["tables"][0]["error"].as_str().unwrap().contains("no replicas"));
    let outcome = databases.compare(&["--from-replicate"]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("MySQL and MariaDB only"), "{outcome:?}");
    assert_eq!(fs::read(databases.path("a")).unwrap(), before);
}

/// A server that asks for a password gets it from each place that holds one.
#[test]
fn passwords_are_found_where_the_engines_own_programs_find_them() {
    let Some(installation) = Installation::for_test("15").unwrap() else { return };
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    cluster.start().unwrap();
    cluster.psql("ALTER SYSTEM SET password_encryption = 'scram-sha-256'").unwrap();
    cluster.psql("CREATE ROLE ann LOGIN PASSWORD 'hunter2'; CREATE TABLE t AS SELECT 1 AS id; GRANT SELECT ON t TO ann").unwrap();
    fs::write(
        cluster.data_dir().join("pg_hba.conf"),
        "local all postgres trust\nlocal all all scram-sha-256\n",
    )
    .unwrap();
    cluster.psql("SELECT pg_reload_conf()").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_string_lossy().into_owned()
    };
    let socket = cluster.socket_dir().display().to_string();
    let url = format!("postgres://ann@:{}/postgres?host={socket}", cluster.port());
    let pass_file = write("pass", "*:*:*:ann:hunter2\n");
    let service = format!(
        "[shop]\nhost={socket}\nport={}\nuser=ann\ndbname=postgres\npassword=hunter2\n",
        cluster.port()
    );
    let service_file = write("service", &service);
    let plain_file = write("plain", "hunter2\n");
    let good = |words: &[&str], variables: &[(&str, &str)]| {
        let outcome =
            run(plain().arg("checksum").args(words).arg("--json").envs(variables.iter().copied()));
        assert_eq!(outcome.status, Some(0), "{words:?} {outcome:?}");
        assert_eq!(json(&outcome)["tables"][0]["rows"], 1);
        assert!(!format!("{outcome:?}").contains("hunter2"));
    };
    good(&[&url, "--password-file", &plain_file], &[]);
    good(&[&url], &[("PGPASSWORD", "hunter2")]);
    good(&[&url], &[("PGPASSFILE", &pass_file)]);
    good(&["postgres:///?service=shop"], &[("PGSERVICEFILE", &service_file)]);
    let port = cluster.port().to_string();
    good(
        &["postgres://"],
        &[
            ("PGHOST", &socket),
            ("PGPORT", &port),
            ("PGUSER", "ann"),
            ("PGDATABASE", "postgres"),
            ("PGPASSWORD", "hunter2"),
        ],
    );
    let outcome = run(plain().args(["checksum", &url, "--json"]));
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    fs::set_permissions(Path::new(&pass_file), fs::Permissions::from_mode(0o644)).unwrap();
    let outcome = run(plain().args(["checksum", &url]).env("PGPASSFILE", &pass_file));
    assert_eq!(outcome.status, Some(2), "a file that others may read is not read: {outcome:?}");
}

/// Each way has the same verdict; which one was taken, and why another was not, is said.
#[test]
fn ways_to_compare_are_named_and_said() {
    let Some(databases) = Databases::new() else { return };
    for (mode, taken) in
        [("auto", "stream"), ("stream", "stream"), ("native", "stream"), ("pushdown", "pushdown")]
    {
        let outcome = databases.compare(&["--json", "--mode", mode]);
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
        let report = json(&outcome);
        assert_eq!(report["mode"], taken, "{mode}");
        let because = report["tables"][0]["mode_because"].as_str().unwrap();
        assert_eq!(because.contains("no native: SQLite has no"), taken != mode && mode == "native");
    }
    databases.run("b", "UPDATE orders SET name = 'three' WHERE id = 3");
    let outcome = databases.compare(&["--mode", "pushdown"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("changed      id = 3: name"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains(" s, pushdown\n"), "{}", outcome.stdout);
    let outcome = databases.compare(&["--mode", "guess"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
}

/// The page is whole, needs nothing else, and holds values only where they are asked for.
#[test]
fn a_page_is_written_and_nothing_else_is_replaced_by_it() {
    let Some(databases) = Databases::new() else { return };
    databases.run("b", "UPDATE orders SET name = 'secret' WHERE id = 3");
    let path = databases.path("page.html");
    for values in [true, false] {
        let mut words = vec!["--quiet", "--html", &path];
        words.extend(values.then_some("--show-values"));
        let outcome = databases.compare(&words);
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.contains("<h1>1 of 2 tables differ.</h1>") && page.ends_with("</html>\n"));
        assert!(page.contains("id = 3"), "{page}");
        assert_eq!(page.contains("secret"), values);
    }
    let before = fs::read(databases.path("a")).unwrap();
    let a = databases.path("a");
    assert_eq!(databases.compare(&["--html", &a]).status, Some(2));
    assert_eq!(fs::read(&a).unwrap(), before);
}

/// Cutovers die of sequences that were not compared.
#[test]
fn what_postgres_holds_beside_tables_is_listed_as_not_compared() {
    let Some(installation) = Installation::for_test("15").unwrap() else { return };
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    cluster.start().unwrap();
    cluster
        .psql(
            "CREATE TABLE t (id serial PRIMARY KEY); CREATE SCHEMA s; CREATE SEQUENCE s.apart; \
             CREATE MATERIALIZED VIEW seen AS SELECT 1 AS one; SELECT lo_create(4711); \
             CREATE FOREIGN DATA WRAPPER none; CREATE SERVER away FOREIGN DATA WRAPPER none; \
             CREATE FOREIGN TABLE far (id int) SERVER away",
        )
        .unwrap();
    let url = cluster.url("postgres");
    let outcome = run(plain().args(["compare", &url, &url]));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    for line in [
        "not compared: 2 sequences of the source: t_id_seq, s.apart\n",
        "not compared: 1 materialized view of the target: seen\n",
        "not compared: 1 foreign table of the target: far\n",
        "not compared: 1 large object of the source\n",
    ] {
        assert!(outcome.stdout.contains(line), "{line}: {outcome:?}");
    }
    let found = json(&run(plain().args(["compare", "--json", &url, &url])));
    assert_eq!(found["verdict"], "equal");
    let listed = found["not_compared"].as_array().unwrap();
    assert_eq!(listed.len(), 8, "{found}");
    assert_eq!(listed[0]["kind"], "sequence");
    assert_eq!(listed[0]["names"].as_array().unwrap().len(), 2);
    let found = json(&run(plain().args(["compare", "--json", "--table", "t", &url, &url])));
    assert_eq!(found["not_compared"], serde_json::json!([]));
}
