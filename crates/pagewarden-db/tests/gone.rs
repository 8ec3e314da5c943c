//! Tables and servers that go away in the middle: what is lost is said, the rest is compared.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pagewarden_db::compare::report::{Outcome, TableReport, Verdict, verdict};
use pagewarden_db::compare::state::State;
use pagewarden_db::compare::{Course, Request, Watch, compare_on_course};
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres::{self, Cluster, StopMode};

use crate::replicas;
use crate::servers::{Database, KINDS, Kind, asked, request};

/// Three tables of 700 rows, each a hundred parts.
fn statements() -> String {
    let table = |name: &str| {
        let rows: Vec<String> = (0..700).map(|id| format!("({id}, 'c{id}')")).collect();
        format!(
            "CREATE TABLE {name} (id int NOT NULL PRIMARY KEY, c varchar(20)); INSERT INTO {name} VALUES {};",
            rows.join(", ")
        )
    };
    ["first", "middle", "zlast"].map(table).concat()
}

/// Compares, and does something once the middle table was read in part.
fn run_until_middle(
    request: &Request,
    state: Option<&State>,
    happen: &(dyn Fn() + Sync),
) -> Outcome {
    let (in_middle, happened) = (AtomicBool::new(false), AtomicBool::new(false));
    let rows = Mutex::new(0);
    let tell = |more, _| {
        // Between statements: what a part was read by has ended.
        let mut rows = rows.lock().unwrap();
        *rows += if in_middle.load(Ordering::Relaxed) { more } else { 0 };
        if *rows > 500 && !happened.swap(true, Ordering::Relaxed) {
            happen();
        }
        Ok(())
    };
    let watch = Watch {
        tell: &tell,
        begin: &|table| in_middle.store(table == "middle", Ordering::Relaxed),
        advance: &|_| {},
    };
    let course = Course { state, ..Course::default() };
    compare_on_course(request, &course, &watch, &mut |_| {}).unwrap()
}

fn assert_verdicts(outcome: &Outcome, verdicts: [Verdict; 3]) -> &str {
    let found: Vec<Verdict> = outcome.tables.iter().map(TableReport::verdict).collect();
    assert_eq!(found, verdicts, "{outcome:#?}");
    assert_eq!(verdict(outcome.tables.iter()), Verdict::Incomplete);
    outcome.tables[1].error.as_deref().unwrap()
}

const ONE_LOST: [Verdict; 3] = [Verdict::Equal, Verdict::Incomplete, Verdict::Equal];

#[test]
fn table_dropped_in_the_middle_is_said_and_the_others_are_compared() {
    for kind in KINDS {
        let (Some(source), Some(target)) = (Database::new(kind), Database::new(kind)) else {
            continue;
        };
        for database in [&source, &target] {
            database.run(&statements());
        }
        let request = request(&source, &target);
        let outcome = run_until_middle(&request, None, &|| target.run("DROP TABLE middle"));
        let error = assert_verdicts(&outcome, ONE_LOST);
        let words = match kind {
            Kind::Postgres => "relation \"public.middle\" does not exist",
            Kind::Mariadb => ".middle' doesn't exist",
            Kind::Sqlite => "no such table: main.middle",
        };
        assert!(error.contains(words), "{error}");
        assert!(outcome.tables[1].chunks > 30, "not in the middle");
    }
}

/// A server that crashes in the middle of the second table. If it comes back at once, that
/// table alone is lost; if it stays away, all that were not compared yet are, each by name,
/// and the next run with the same state goes on where this one was.
fn crash(url: &str, end: &(dyn Fn() + Sync), start: &(dyn Fn() + Sync)) {
    let mut request = replicas::request(url, url, Duration::from_secs(5));
    request.options.chunk_rows = Some(7);
    let outcome = run_until_middle(&request, None, &|| {
        end();
        start();
    });
    let error = assert_verdicts(&outcome, ONE_LOST);
    assert!(error.contains("the connection broke"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    {
        let state = State::open(&path, &asked(&request)).unwrap();
        let outcome = run_until_middle(&request, Some(&state), end);
        assert_verdicts(&outcome, [Verdict::Equal, Verdict::Incomplete, Verdict::Incomplete]);
        let error = outcome.tables[2].error.as_deref().unwrap();
        assert!(error.contains("cannot connect to"), "{error}");
    }
    start();
    let state = State::open(&path, &asked(&request)).unwrap();
    let course = Course { state: Some(&state), ..Course::default() };
    let watch = Watch { tell: &|_, _| Ok(()), begin: &|_| {}, advance: &|_| {} };
    let outcome = compare_on_course(&request, &course, &watch, &mut |_| {}).unwrap();
    let found = outcome.tables.iter().map(|one| (one.verdict(), one.rows_source, one.rows_target));
    assert!(found.into_iter().all(|one| one == (Verdict::Equal, 700, 700)), "{outcome:#?}");
    let resumed: Vec<u64> = outcome.tables.iter().map(|table| table.chunks_resumed).collect();
    assert!(resumed[0] == 102 && resumed[1] > 30 && resumed[2] == 0, "{resumed:?}");
}

#[test]
fn postgres_that_crashes_in_the_middle_costs_one_table() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let mut cluster = Cluster::init(&installation, &postgres::Options::default()).unwrap();
    cluster.start().unwrap();
    cluster.psql(&statements()).unwrap();
    let url = cluster.url("postgres");
    let cluster = Mutex::new(cluster);
    crash(&url, &|| cluster.lock().unwrap().stop(StopMode::Immediate).unwrap(), &|| {
        cluster.lock().unwrap().start().unwrap();
    });
}

#[test]
fn mariadb_that_goes_in_the_middle_costs_one_table() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let mut server = Server::install(&installation, &[]).unwrap();
    server.start().unwrap();
    server.sql(&format!("CREATE DATABASE d; USE d; {}", statements())).unwrap();
    let url = server.url("d");
    let server = Mutex::new(server);
    crash(&url, &|| server.lock().unwrap().stop().unwrap(), &|| {
        server.lock().unwrap().start().unwrap();
    });
}
