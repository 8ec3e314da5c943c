//! Rows that others hold, here three workers of this process, beside a table of SQLite.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pagewarden_db::checksum::{Function, Strategy, checksum};
use pagewarden_db::compare::Request;
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::Kind as Difference;
use pagewarden_db::engine::elsewhere::{self, Elsewhere, Executors, Span, Task, Worker};
use pagewarden_db::error::Result;
use pagewarden_db::location::Location;
use pagewarden_db::row::Row;
use pagewarden_db::table::{Column, Filled, Form};

use crate::servers::{Database, Kind, assert_equal, only, request, run};

/// What is asked for, and how much of it was sent.
#[derive(Debug, Default)]
struct Held {
    rows: Vec<(i64, String)>,
    /// The key may be in ranges.
    has_span: bool,
    summed: AtomicU64,
    sent: AtomicU64,
    tasks: Mutex<Vec<Task>>,
}

impl Held {
    fn row(&self, task: &Task, (id, word): &(i64, String), out: &mut Row) {
        out.clear();
        for (place, form) in &task.columns {
            match place {
                0 => out.integer(*id),
                _ => form.append(out, pagewarden_db::row::Tag::Text, word.as_bytes()),
            }
        }
    }
}

impl Executors for Held {
    fn title(&self) -> String {
        "Workers 1".to_owned()
    }

    fn name(&self) -> String {
        "held".to_owned()
    }

    fn columns(&self) -> Vec<Column> {
        let column = |name: &str, form, exact, wire: &str| Column {
            name: name.to_owned(),
            declared: wire.to_owned(),
            form,
            wire: wire.to_owned(),
            character_set: None,
            nullable: true,
            exact,
            filled: Filled::Said,
        };
        vec![column("ID", Form::Number, true, "bigint"), column("word", Form::Text, false, "text")]
    }

    fn span(&self, column: usize) -> Result<Option<Span>> {
        assert_eq!(column, 0);
        let ids = || self.rows.iter().map(|(id, _)| *id);
        let span = ids().min().zip(ids().max());
        let rows = self.rows.len() as u64;
        let span = span.map(|(first, last)| Span { first, last, rows, nulls: 0 });
        Ok(span.filter(|_| self.has_span))
    }

    fn sums(&self, task: &Task, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.summed.fetch_add(1, Ordering::Relaxed);
        let mut row = Row::new();
        for part in self.rows.chunks(self.rows.len() / 3 + 1) {
            let mut worker = Worker::new(task.clone());
            for one in part {
                self.row(task, one, &mut row);
                worker.add(&row);
            }
            see(&worker.sums())?;
        }
        Ok(())
    }

    fn rows(&self, task: &Task, see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.tasks.lock().unwrap().push(task.clone());
        let worker = Worker::new(task.clone());
        let mut row = Row::new();
        for one in &self.rows {
            self.row(task, one, &mut row);
            if worker.is_wanted(&row) {
                self.sent.fetch_add(1, Ordering::Relaxed);
                see(row.bytes())?;
            }
        }
        Ok(())
    }
}

const ROWS: i64 = 30_000;

fn rows() -> Vec<(i64, String)> {
    (0..ROWS).map(|at| (at * 2 - 10_000, format!("word {at}"))).collect()
}

fn database() -> Database {
    let sqlite = Database::new(Kind::Sqlite).unwrap();
    sqlite.run(&format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT);
         WITH RECURSIVE n(at) AS (SELECT 0 UNION ALL SELECT at + 1 FROM n WHERE at < {ROWS} - 1)
         INSERT INTO t SELECT at * 2 - 10000, 'word ' || at FROM n;"
    ));
    sqlite
}

fn asked(sqlite: &Database, held: &Arc<Held>, is_reverse: bool) -> Request {
    let mut request = request(sqlite, sqlite);
    let executors: Arc<dyn Executors> = Arc::<Held>::clone(held);
    request.target = Location::elsewhere("held", Elsewhere(executors));
    request.tables = vec!["t".to_owned()];
    request.options.mode = Mode::Stream;
    if is_reverse {
        std::mem::swap(&mut request.source, &mut request.target);
    }
    request
}

#[test]
fn equal_rows_are_summed_and_not_sent() {
    let sqlite = database();
    for (has_span, is_reverse) in [(true, false), (false, false), (true, true)] {
        let held = Arc::new(Held { rows: rows(), has_span, ..Held::default() });
        let outcome = run(&asked(&sqlite, &held, is_reverse));
        assert_equal(&outcome);
        assert_eq!(only(&outcome).rows_target, rows().len() as u64);
        assert_eq!(held.summed.load(Ordering::Relaxed), 1);
        assert_eq!(held.sent.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn rows_that_differ_are_named_and_few_others_sent() {
    names_what_differs(&database(), false);
    let Some(postgres) = Database::new(Kind::Postgres) else { return };
    postgres.run(&format!(
        "CREATE TABLE t (id bigint PRIMARY KEY, word text);
         INSERT INTO t SELECT n * 2 - 10000, 'word ' || n FROM generate_series(0, {ROWS} - 1) n;"
    ));
    names_what_differs(&postgres, true);
}

/// SQLite's keys may be anything, so that they have no ranges.
fn names_what_differs(database: &Database, has_ranges: bool) {
    for has_span in [true, false] {
        let mut changed = rows();
        changed[7].1 = "changed".to_owned();
        changed.remove(20_000);
        changed.push((1_000_001, "more".to_owned()));
        // The same key once more.
        changed.push((2, "word 5001".to_owned()));
        changed.reverse();
        let held = Arc::new(Held { rows: changed, has_span, ..Held::default() });
        let outcome = run(&asked(database, &held, false));
        let report = only(&outcome);
        assert_eq!((report.changed, report.only_source, report.only_target), (1, 1, 2));
        let kinds: Vec<_> = report.differences.iter().map(|one| one.kind).collect();
        let expected = [
            Difference::Changed,
            Difference::OnlyTarget,
            Difference::OnlySource,
            Difference::OnlyTarget,
        ];
        assert_eq!(kinds, expected);
        // What was sent is kept for the looks that follow.
        let tasks = held.tasks.lock().unwrap();
        assert_eq!(tasks.len(), 1, "{has_span}");
        let sent = held.sent.load(Ordering::Relaxed);
        assert!((3..=8_000).contains(&sent), "{sent} rows, {has_span}");
        let spans = tasks[0].split.spans(tasks[0].wanted.as_ref().unwrap());
        assert_eq!(spans.is_some(), has_span && has_ranges);
    }
}

#[test]
fn a_table_that_is_empty_on_one_side() {
    let sqlite = database();
    let held = Arc::new(Held { has_span: true, ..Held::default() });
    let outcome = run(&asked(&sqlite, &held, false));
    assert_eq!(only(&outcome).only_source, rows().len() as u64);
}

#[test]
fn the_sum_is_that_of_the_database() {
    let sqlite = database();
    let mut connection = sqlite.connect();
    let name = connection.tables().unwrap().remove(0);
    let table = connection.describe(&name).unwrap();
    let tell = |_, _| Ok(());
    let expected =
        checksum(connection.as_mut(), &table, Strategy::Multiset, Function::Md5, &tell).unwrap();
    let held = Held { rows: rows(), ..Held::default() };
    let columns = pagewarden_db::table::Table { columns: held.columns(), ..table };
    let task = elsewhere::whole(&columns).unwrap();
    let mut joined = Worker::new(task.clone());
    held.sums(&task, &mut |sums| joined.join(sums)).unwrap();
    assert_eq!(Some(joined.total().text()), expected.value);
    assert_eq!(joined.total().rows, expected.rows);
}
