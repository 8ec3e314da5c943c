//! Pauses for servers that have enough to do, and for replicas that are behind.
//!
//! Servers of their own: on those of all tests, others run statements.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::Outcome;
use pagewarden_db::compare::throttle::Limits;
use pagewarden_db::compare::{Course, Request, Watch, compare_on_course};
use pagewarden_scratch::mariadb::replication::{await_arrival, pair};
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres::{self, Cluster};

use crate::replicas::{self, standby};
use crate::servers::{Database, Kind, assert_equal, only, run};

/// How long servers are busy.
const BUSY: Duration = Duration::from_secs(3);

const TABLE: &str =
    "CREATE TABLE t (id int PRIMARY KEY, c varchar(20)); INSERT INTO t VALUES (1, 'a'), (2, 'b')";

/// What came of it, and what was said meanwhile.
fn throttled(request: &Request, limits: Limits) -> (Outcome, Vec<String>) {
    let notes = Mutex::new(Vec::new());
    let note = |text: &str| notes.lock().unwrap().push(text.to_owned());
    let course = Course { limits, note: Some(&note), ..Course::default() };
    let watch = Watch { tell: &|_, _| Ok(()), begin: &|_| {}, advance: &|_| {} };
    let outcome = compare_on_course(request, &course, &watch, &mut |_| {}).unwrap();
    (outcome, notes.into_inner().unwrap())
}

fn load(most: u64) -> Limits {
    Limits { load: Some(most), lag: None }
}

fn lag(most: Duration) -> Limits {
    Limits { load: None, lag: Some(most) }
}

/// With `sleep` running, a run that allows for one statement goes on, and one that allows for
/// none waits for its end.
fn busy_server_is_waited_for(url: &str, sleep: &(dyn Fn() + Sync), is_asleep: &dyn Fn() -> bool) {
    let ways = [(false, Mode::Stream), (true, Mode::Stream), (false, Mode::Pushdown)];
    for (frozen, mode) in ways {
        let mut request = replicas::request(url, url, Duration::from_secs(5));
        request.options.frozen = frozen;
        request.options.mode = mode;
        let (outcome, notes) = throttled(&request, load(0));
        assert_equal(&outcome);
        assert!(notes.is_empty(), "{notes:?}");
        thread::scope(|scope| {
            let begin = Instant::now();
            let sleeper = scope.spawn(sleep);
            while !is_asleep() {
                assert!(begin.elapsed() < Duration::from_secs(30), "no session sleeps");
                thread::sleep(Duration::from_millis(50));
            }
            let (outcome, notes) = throttled(&request, load(1));
            assert!(!sleeper.is_finished(), "too slow a machine: the test shows nothing");
            assert_equal(&outcome);
            assert!(notes.is_empty() && only(&outcome).paused_seconds == 0.0, "{mode:?} {notes:?}");
            let (outcome, notes) = throttled(&request, load(0));
            assert_equal(&outcome);
            assert!(only(&outcome).paused_seconds >= 1.0, "{outcome:?}");
            let first = "paused: 1 statements run on the source, 0 may (--max-load)";
            assert_eq!(notes[0], first);
            assert!(notes[1].starts_with("going on after a pause of "), "{notes:?}");
            sleeper.join().unwrap();
        });
    }
}

#[test]
fn busy_postgres_is_waited_for() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let mut cluster = Cluster::init(&installation, &postgres::Options::default()).unwrap();
    cluster.start().unwrap();
    cluster.psql(TABLE).unwrap();
    let url = cluster.url("postgres");
    let sleep = format!("SELECT pg_sleep({})", BUSY.as_secs());
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    busy_server_is_waited_for(&url, &|| drop(cluster.psql(&sleep).unwrap()), &|| {
        cluster.psql(asleep).unwrap() == "1"
    });
    // Who cannot see what others do cannot keep to it.
    cluster.psql("CREATE ROLE weak LOGIN; GRANT SELECT ON t TO weak").unwrap();
    let weak = url.replace("postgres@", "weak@");
    let request = replicas::request(&weak, &weak, Duration::from_secs(5));
    let error = only(&throttled(&request, load(5)).0).error.clone().unwrap();
    assert!(error.contains("pg_read_all_stats"), "{error}");
    cluster.psql("GRANT pg_read_all_stats TO weak").unwrap();
    assert_equal(&throttled(&request, load(5)).0);
    // This server follows no other.
    let error = only(&throttled(&request, lag(BUSY)).0).error.clone().unwrap();
    assert!(error.contains("follows no server"), "{error}");
}

#[test]
fn busy_mariadb_is_waited_for() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let mut server = Server::install(&installation, &[]).unwrap();
    server.start().unwrap();
    server.sql(&format!("CREATE DATABASE d; USE d; {TABLE}")).unwrap();
    let sleep = format!("SELECT sleep({})", BUSY.as_secs());
    let asleep = "SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep'";
    busy_server_is_waited_for(&server.url("d"), &|| drop(server.sql(&sleep).unwrap()), &|| {
        server.sql(asleep).unwrap() == "1"
    });
}

#[test]
fn files_have_no_load() {
    let Some(database) = Database::new(Kind::Sqlite) else { return };
    database.run(TABLE);
    let request = crate::servers::request(&database, &database);
    let error = only(&throttled(&request, load(5)).0).error.clone().unwrap();
    assert!(error.contains("neither side has a load"), "{error}");
}

/// A standby that applies late: nothing is read before it is near enough. One on whose
/// primary nothing happens has all there is, however long ago that was.
#[test]
fn late_standby_is_not_read() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let [primary, standby] = &standby(&installation);
    let (source, target) = (primary.url("postgres"), standby.url("postgres"));
    let request = replicas::request(&source, &target, Duration::from_secs(30));
    thread::sleep(Duration::from_secs(2));
    let (outcome, notes) = throttled(&request, lag(Duration::from_secs(1)));
    assert_equal(&outcome);
    assert!(notes.is_empty(), "{notes:?}");
    primary.psql("UPDATE t SET c = 'changed' WHERE id = 2").unwrap();
    let (outcome, notes) = throttled(&request, lag(Duration::from_secs(1)));
    assert_equal(&outcome);
    assert!(only(&outcome).paused_seconds >= 1.0, "{outcome:?}");
    assert!(notes[0].contains("behind, 1 s it may be (--max-lag)"), "{notes:?}");
}

#[test]
fn replica_that_has_stopped_is_waited_for() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let [primary, replica] = &pair(&installation, &[], 0).unwrap();
    primary.sql(&format!("CREATE DATABASE d; USE d; {TABLE}")).unwrap();
    await_arrival(primary, replica).unwrap();
    let (source, target) = (primary.url("d"), replica.url("d"));
    let request = replicas::request(&source, &target, Duration::from_secs(30));
    assert_equal(&throttled(&request, lag(Duration::from_secs(1))).0);
    assert_equal(&run(&request));
    replica.sql("STOP SLAVE SQL_THREAD").unwrap();
    primary.sql("UPDATE d.t SET c = 'changed' WHERE id = 2").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(BUSY);
            replica.sql("START SLAVE SQL_THREAD").unwrap();
        });
        let (outcome, notes) = throttled(&request, lag(Duration::from_secs(1)));
        assert_equal(&outcome);
        assert!(only(&outcome).paused_seconds >= 1.0, "{outcome:?}");
        assert_eq!(notes[0], "paused: the target's replication has stopped (--max-lag)");
    });
}
