//! Real replicas under writes, compared round after round: what is late is never different,
//! and what was planted meanwhile is found and named, all of it and nothing else.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable as _;
use mysql::{Conn, OptsBuilder};
use pagewarden_db::compare::report::{Difference, Kind, Outcome, TableReport, Verdict, verdict};
use pagewarden_db::row::number;
use pagewarden_scratch::mariadb::replication::{await_arrival, pair};
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres;

use crate::replicas::{hold_up, request, subscribed};
use crate::servers::run;

/// How long: seven seconds, or a third of what `PAGEWARDEN_SOAK_SECONDS` says, for there
/// are three of these.
fn load() -> Duration {
    let asked = std::env::var("PAGEWARDEN_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(7, |seconds| seconds.parse::<u64>().unwrap() / 3))
}

/// How long both sides of a row must stand still.
const SETTLE: Duration = Duration::from_millis(300);
/// How long the replica is held up at a time: longer than that.
const HELD_UP: Duration = Duration::from_secs(2);
const ROWS: u32 = 20_000;
/// New rows are removed again by the time the new ones are so much further.
const LIVES: u32 = 5_000;
const EVENTS: u32 = 2_000;
/// Of the events those up to here are shifted.
const SHIFTED: u32 = 1_000;

/// Writers let rows alone whose number ends with 7: there it is planted.
const ONE_BIT: u32 = 1007;
const MISSING: u32 = 2007;
const SWAPPED: [u32; 2] = [4007, 5007];
const EXTRA: &str = "-7";

/// The tables, in words of both engines but for the type of moments.
fn tables(moment: &str) -> String {
    format!(
        "CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL, a varchar(30), b varchar(30), \
           at {moment}, d decimal(12, 2), f double precision); \
         CREATE TABLE events (id int PRIMARY KEY, at {moment} NOT NULL, n int); \
         CREATE TABLE words (word varchar(20) PRIMARY KEY, n int NOT NULL); \
         CREATE TABLE history (id int, note varchar(40))"
    )
}

/// How the engines differ in words.
struct Words {
    moment: &'static str,
    /// A list of whole numbers `n` up to another.
    numbers: fn(u32) -> String,
    /// A moment some seconds after the first; the text gives their number.
    later: fn(&str) -> String,
}

const MARIADB: Words = Words {
    moment: "datetime(6)",
    numbers: |to| format!("(SELECT seq AS n FROM seq_1_to_{to}) AS numbers"),
    later: |seconds| format!("(timestamp('2024-01-01') + INTERVAL {seconds} SECOND)"),
};

const POSTGRES: Words = Words {
    moment: "timestamp",
    numbers: |to| format!("generate_series(1, {to}) AS n"),
    later: |seconds| format!("(timestamp '2024-01-01' + {seconds} * interval '1 second')"),
};

impl Words {
    /// The rows of `t` as they begin, of some numbers.
    fn rows(&self, condition: &str) -> String {
        format!(
            "INSERT INTO t SELECT n, n * 2, concat('a', n), concat('b', n), {}, n / 100.0, n / 7.0 \
             FROM {} WHERE {condition}",
            (self.later)("n"),
            (self.numbers)(ROWS)
        )
    }

    fn fill(&self) -> String {
        format!(
            "{}; INSERT INTO events SELECT n, {}, 0 FROM {}; \
             INSERT INTO words SELECT concat('word ', n), 0 FROM {}",
            self.rows("n > 0"),
            (self.later)("n"),
            (self.numbers)(EVENTS),
            (self.numbers)(ROWS),
        )
    }

    /// One bit of one column of a row, a row that is missing, one too many, the values of
    /// two columns swapped between two rows, a column shifted by ten minutes.
    fn plant(&self) -> String {
        let [one, other] = SWAPPED;
        let of_other = format!("{} - id", one + other);
        format!(
            "UPDATE t SET n = id * 2 + 1 WHERE id = {ONE_BIT}; \
             DELETE FROM t WHERE id = {MISSING}; \
             INSERT INTO t (id, n) VALUES ({EXTRA}, 0); \
             UPDATE t SET a = concat('a', {of_other}), b = concat('b', {of_other}) \
               WHERE id IN ({one}, {other}); \
             UPDATE events SET at = {} WHERE id <= {SHIFTED}",
            (self.later)("(id + 600)")
        )
    }

    fn heal(&self) -> String {
        let [one, other] = SWAPPED;
        let planted = format!("({ONE_BIT}, {MISSING}, {one}, {other}, {EXTRA})");
        format!(
            "DELETE FROM t WHERE id IN {planted}; {}; \
             UPDATE events SET at = {} WHERE id <= {SHIFTED}",
            self.rows(&format!("n IN {planted}")),
            (self.later)("id")
        )
    }
}

/// A replica that follows, and what is done to it.
struct Soak<'a> {
    name: &'a str,
    source: String,
    target: String,
    words: &'a Words,
    /// Runs statements on the replica alone.
    on_target: &'a (dyn Fn(&str) + Sync),
    /// Writes to the source, until the flag tells it to end.
    write: &'a (dyn Fn(&AtomicBool) + Sync),
    /// Makes the replica late by [`HELD_UP`].
    hold_up: &'a (dyn Fn() + Sync),
    /// True if rows are to be taken from pages.
    by_pages: bool,
}

impl Soak<'_> {
    fn compare(&self) -> (Outcome, Duration) {
        let mut request = request(&self.source, &self.target, Duration::from_secs(60));
        request.options.settle = SETTLE;
        request.options.listed_max = 2 * SHIFTED as usize;
        let begin = Instant::now();
        let outcome = run(&request);
        assert_eq!(outcome.tables.len(), 4, "{outcome:#?}");
        (outcome, begin.elapsed())
    }

    /// Compares until the time is over, with and without what is planted.
    fn run(&self) {
        let (begin, ended) = (Instant::now(), AtomicBool::new(false));
        let (mut rounds, mut looked_again, mut unresolved) = (0_u32, 0_u32, 0_u64);
        let mut by_pages = 0_u32;
        thread::scope(|scope| {
            let _end = End(&ended);
            scope.spawn(|| (self.write)(&ended));
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    (self.hold_up)();
                    thread::sleep(HELD_UP);
                }
            });
            while rounds < 2 || begin.elapsed() < load() {
                let (outcome, time) = self.compare();
                for table in &outcome.tables {
                    assert_eq!((table.different(), &table.error), (0, &None), "{table:#?}");
                }
                looked_again += u32::from(time > SETTLE);
                let is_by_pages = |table: &TableReport| table.mode_because.contains("pageinspect");
                by_pages += u32::from(outcome.tables.iter().any(is_by_pages));
                unresolved += outcome.tables.iter().map(|table| table.unresolved).sum::<u64>();
                (self.on_target)(&self.words.plant());
                assert_planted(&self.compare().0);
                (self.on_target)(&self.words.heal());
                rounds += 1;
            }
        });
        eprintln!(
            "{}: {rounds} rounds in {:.0} s without a false difference, all that was planted found in \
             each; {looked_again} looked again, {unresolved} rows unresolved, {by_pages} by pages",
            self.name,
            begin.elapsed().as_secs_f64()
        );
        assert_eq!(by_pages > 0, self.by_pages);
        assert!(looked_again > 0, "nothing was on its way: the test shows nothing");
        let (outcome, _) = self.compare();
        assert_eq!(verdict(outcome.tables.iter()), Verdict::Equal, "{outcome:#?}");
        let table = |name: &str| outcome.tables.iter().find(|table| table.table == name).unwrap();
        assert!(table("history").rows_target > 0, "nothing was replicated");
    }
}

/// Ends the others, also where an assertion fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn keys(table: &TableReport, kind: Kind) -> Vec<(String, &[String])> {
    let of_kind = |one: &&Difference| one.kind == kind;
    let key = |one: &Difference| number::plain(&one.key[0].1.payload).unwrap();
    let found = table.differences.iter().filter(of_kind);
    found.map(|one| (key(one), one.columns.as_slice())).collect()
}

fn assert_planted(outcome: &Outcome) {
    for table in &outcome.tables {
        let counts = (table.changed, table.only_source, table.only_target);
        match table.table.as_str() {
            "t" => {
                assert_eq!(counts, (3, 1, 1), "{table:#?}");
                let (bit, swapped) = (["n".to_owned()], ["a".to_owned(), "b".to_owned()]);
                let [one, other] = SWAPPED.map(|id| (id.to_string(), &swapped[..]));
                let changed = [(ONE_BIT.to_string(), &bit[..]), one, other];
                assert_eq!(keys(table, Kind::Changed), changed, "{table:#?}");
                assert_eq!(keys(table, Kind::OnlySource), [(MISSING.to_string(), &[][..])]);
                assert_eq!(keys(table, Kind::OnlyTarget), [(EXTRA.to_owned(), &[][..])]);
            }
            "events" => {
                assert_eq!(counts, (u64::from(SHIFTED), 0, 0), "{:#?}", table.diagnosis);
                let found: Vec<_> = table.diagnosis.iter().collect();
                assert_eq!(found.len(), 1, "{found:#?}");
                assert_eq!(found[0].column, "at");
                assert_eq!(found[0].pattern.as_deref(), Some("shifted by +00:10:00"));
            }
            _ => assert_eq!(counts, (0, 0, 0), "{table:#?}"),
        }
        assert_eq!(table.error, None);
    }
}

/// A replica of MariaDB whose primary logs statements or rows, while two clients write.
fn mariadb_soak(format: &str) {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let options = [format, "innodb_flush_log_at_trx_commit=0", "innodb_buffer_pool_size=64M"];
    let [primary, replica] = &pair(&installation, &options, 0).unwrap();
    let tables = tables(MARIADB.moment);
    primary.sql(&format!("CREATE DATABASE d; USE d; {tables}; {}", MARIADB.fill())).unwrap();
    await_arrival(primary, replica).unwrap();
    let id = AtomicU32::new(0);
    Soak {
        name: format,
        source: primary.url("d"),
        target: replica.url("d"),
        words: &MARIADB,
        on_target: &|sql| {
            replica.sql(&format!("SET sql_log_bin = 0; USE d; {sql}")).unwrap();
        },
        write: &|ended| {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| write_to_mariadb(primary, &id, ended));
                }
            });
        },
        hold_up: &|| {
            let seconds = HELD_UP.as_secs();
            replica
                .sql(&format!(
                    "STOP SLAVE SQL_THREAD; SELECT sleep({seconds}); START SLAVE SQL_THREAD"
                ))
                .unwrap();
        },
        by_pages: false,
    }
    .run();
}

fn write_to_mariadb(primary: &Server, id: &AtomicU32, ended: &AtomicBool) {
    /// Waiting for a lock took too long; two waited for each other.
    const LOCKED: [u16; 2] = [1205, 1213];
    let socket = primary.socket().to_string_lossy().into_owned();
    let options = OptsBuilder::new().user(Some("root")).socket(Some(socket)).db_name(Some("d"));
    let mut connection = Conn::new(options).unwrap();
    while !ended.load(Ordering::Relaxed) {
        let next = id.fetch_add(1, Ordering::Relaxed);
        // All over the table, and never what ends with 7.
        let row = (next.wrapping_mul(7919) % (ROWS / 10)) * 10 + next % 7;
        let (new, event) = (ROWS + 10 + next * 10, EVENTS + 1 + next);
        let later = (MARIADB.later)(&next.to_string());
        let transaction = [
            "BEGIN".to_owned(),
            format!("UPDATE t SET n = n + 1, a = concat(b, n), at = {later} WHERE id = {row}"),
            format!("UPDATE t SET d = d + 1 WHERE id BETWEEN {} AND {row}", row - row % 10),
            format!("INSERT INTO t (id, n, f) VALUES ({new}, 1, 1 / {new})"),
            format!("DELETE FROM t WHERE id = {new} - {LIVES} AND id > {ROWS}"),
            format!("UPDATE words SET n = n + 1 WHERE word = 'word {row}'"),
            format!("INSERT INTO events VALUES ({event}, {later}, {row})"),
            format!("UPDATE events SET n = n + 1 WHERE id = {}", event - 1 + u32::from(next == 0)),
            format!("INSERT INTO history VALUES ({row}, 'note of {row}')"),
            "COMMIT".to_owned(),
        ];
        for statement in transaction {
            match connection.query_drop(&statement) {
                Err(mysql::Error::MySqlError(error)) if LOCKED.contains(&error.code) => {
                    connection.query_drop("ROLLBACK").unwrap();
                    break;
                }
                result => result.unwrap(),
            }
        }
        // No more than a replica keeps up with that is held up half of the time.
        thread::sleep(Duration::from_millis(15));
    }
}

#[test]
fn replica_by_statements_is_never_different_under_writes_but_where_it_is() {
    mariadb_soak("binlog-format=STATEMENT");
}

#[test]
fn replica_by_rows_is_never_different_under_writes_but_where_it_is() {
    mariadb_soak("binlog-format=ROW");
}

/// What pgbench runs, two clients at a time.
const SCRIPT: &str = "\\set row random(0, 1999) * 10 + random(0, 6)
BEGIN;
UPDATE t SET n = n + 1, a = concat(b, n), at = localtimestamp WHERE id = :row;
SELECT nextval('ids') AS new \\gset
INSERT INTO t (id, n, f) VALUES (20000 + :new * 10, 1, 1.0 / :new);
DELETE FROM t WHERE id = 20000 + :new * 10 - 5000 AND id > 20000;
UPDATE words SET n = n + 1 WHERE word = concat('word ', :row);
INSERT INTO events VALUES (2000 + :new, localtimestamp, :row);
UPDATE events SET n = n + 1 WHERE id = 2000 + :new - 1 AND id > 2000;
INSERT INTO history VALUES (:row, concat('note of ', :row));
COMMIT;
";

#[test]
fn subscriber_is_never_different_under_writes_but_where_it_is() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let fill = format!("{}; CREATE SEQUENCE ids", POSTGRES.fill());
    let [publisher, subscriber] = &subscribed(&installation, &tables(POSTGRES.moment), &fill);
    for cluster in [publisher, subscriber] {
        cluster.psql("CREATE EXTENSION pageinspect; VACUUM ANALYZE t").unwrap();
    }
    let script = publisher.home().join("script");
    std::fs::write(&script, SCRIPT).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&script, open).unwrap();
    Soak {
        name: "logical replication",
        source: publisher.url("postgres"),
        target: subscriber.url("postgres"),
        words: &POSTGRES,
        on_target: &|sql| {
            subscriber.psql(sql).unwrap();
        },
        write: &|ended| {
            let mut pgbench = publisher.client("pgbench").unwrap();
            pgbench.args(["-n", "-c", "2", "-R", "100", "-T", "86400", "-f"]).arg(&script);
            let quiet = pgbench.stdout(Stdio::null()).stderr(Stdio::null());
            let mut running = quiet.spawn().unwrap();
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50));
                assert_eq!(running.try_wait().unwrap(), None, "pgbench has ended");
            }
            running.kill().unwrap();
            running.wait().unwrap();
        },
        hold_up: &|| {
            hold_up(subscriber, "t", HELD_UP);
            for cluster in [publisher, subscriber] {
                cluster.psql("VACUUM t").unwrap();
            }
        },
        by_pages: true,
    }
    .run();
}
