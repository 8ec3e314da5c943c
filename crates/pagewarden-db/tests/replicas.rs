//! Real replicas that are late by design, by longer than rows must stand still.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::Verdict;
use pagewarden_db::compare::{Options, Request};
use pagewarden_db::location::Location;
use pagewarden_db::replicate;
use pagewarden_db::table::TableName;
use pagewarden_scratch::mariadb::replication::{await_arrival, pair};
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres::{self, Cluster};

use crate::servers::{assert_equal, only, run};

/// How late the replicas are.
const DELAY: Duration = Duration::from_secs(3);

pub fn request(source: &str, target: &str, patience: Duration) -> Request {
    Request {
        source: Location::parse(source).unwrap(),
        target: Location::parse(target).unwrap(),
        tables: Vec::new(),
        excluded_tables: Vec::new(),
        excluded_columns: Vec::new(),
        key: Vec::new(),
        jobs: std::num::NonZero::<usize>::MIN,
        options: Options {
            frozen: false,
            settle: Duration::from_millis(200),
            patience,
            listed_max: 10,
            chunk_rows: None,
            mode: Mode::Stream,
        },
    }
}

/// A change that is on its way is unresolved when patience ends, and equal once it has come.
fn late_change_is_no_difference(source: &str, target: &str, change: &dyn Fn()) {
    let begin = Instant::now();
    change();
    let report = run(&request(source, target, Duration::from_secs(1)));
    assert!(begin.elapsed() < DELAY, "too slow a machine: the change has come");
    let report = only(&report);
    assert_eq!(
        (report.verdict(), report.unresolved, report.different()),
        (Verdict::Incomplete, 1, 0),
        "{report:#?}"
    );
    assert_equal(&run(&request(source, target, Duration::from_secs(30))));
    assert!(begin.elapsed() >= DELAY, "the replica is not late: the test shows nothing");
}

/// A primary with a table `t` of two rows, and a standby that is late, and has them.
pub fn standby(installation: &postgres::Installation) -> [Cluster; 2] {
    let mut primary = Cluster::init(installation, &postgres::Options::default()).unwrap();
    // Its settings come into its control file, with which the standby's are compared.
    primary.start().unwrap();
    primary.stop(postgres::StopMode::Fast).unwrap();
    let mut standby = primary.duplicate().unwrap();
    primary.start().unwrap();
    let settings = [
        ("primary_conninfo", format!("'{}'", primary.connection_string("postgres"))),
        ("recovery_min_apply_delay", format!("'{} s'", DELAY.as_secs())),
        ("max_standby_streaming_delay", "'-1'".to_owned()),
    ];
    let settings = settings.iter().map(|(name, value)| (*name, value.as_str()));
    standby.append_settings(settings).unwrap();
    std::fs::copy(standby.data_dir().join("PG_VERSION"), standby.data_dir().join("standby.signal"))
        .unwrap();
    standby.start().unwrap();
    primary
        .psql(
            "CREATE TABLE t (id int PRIMARY KEY, c text); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        )
        .unwrap();
    let begin = Instant::now();
    while standby.psql("SELECT count(*) FROM t").ok().as_deref() != Some("2") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", standby.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    [primary, standby]
}

#[test]
fn late_standby_of_postgres_is_waited_for() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let [primary, standby] = &standby(&installation);
    late_change_is_no_difference(&primary.url("postgres"), &standby.url("postgres"), &|| {
        primary.psql("UPDATE t SET c = 'changed' WHERE id = 2").unwrap();
    });
}

/// A publisher, and a subscriber to all tables that `tables` makes on both.
pub fn subscribed(installation: &postgres::Installation, tables: &str, rows: &str) -> [Cluster; 2] {
    let [publisher, subscriber] = [(); 2].map(|()| {
        let options = postgres::Options::default().with("wal_level", "logical");
        let mut cluster = Cluster::init(installation, &options).unwrap();
        cluster.start().unwrap();
        cluster.psql(tables).unwrap();
        cluster
    });
    publisher.psql(&format!("{rows}; CREATE PUBLICATION p FOR ALL TABLES")).unwrap();
    let place = publisher.connection_string("postgres");
    subscriber.psql(&format!("CREATE SUBSCRIPTION s CONNECTION '{place}' PUBLICATION p")).unwrap();
    let begin = Instant::now();
    let copying = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'";
    while subscriber.psql(copying).unwrap() != "0" {
        assert!(begin.elapsed() < Duration::from_secs(120), "{}", subscriber.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    [publisher, subscriber]
}

/// Keeps what is replicated out of a table of the subscriber for a while, and lets readers in.
pub fn hold_up(subscriber: &Cluster, table: &str, time: Duration) {
    let seconds = time.as_secs_f64();
    let sql =
        format!("BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE; SELECT pg_sleep({seconds}); COMMIT");
    subscriber.psql(&sql).unwrap();
}

#[test]
fn late_subscriber_of_postgres_is_waited_for_and_a_difference_on_it_is_found() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let [publisher, subscriber] = &subscribed(
        &installation,
        "CREATE TABLE t (id int PRIMARY KEY, c text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    );
    let (source, target) = (publisher.url("postgres"), subscriber.url("postgres"));
    std::thread::scope(|scope| {
        late_change_is_no_difference(&source, &target, &|| {
            scope.spawn(|| hold_up(subscriber, "t", DELAY));
            let held = "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' \
                 AND relation = 't'::regclass AND granted";
            while subscriber.psql(held).unwrap() != "1" {
                std::thread::sleep(Duration::from_millis(20));
            }
            publisher.psql("UPDATE t SET c = 'changed' WHERE id = 2").unwrap();
        });
    });
    subscriber.psql("UPDATE t SET c = 'wrong' WHERE id = 1").unwrap();
    let outcome = run(&request(&source, &target, Duration::from_secs(30)));
    assert_eq!((only(&outcome).different(), only(&outcome).unresolved), (1, 0), "{outcome:#?}");
    // One that does not follow at the moment has not come so far, either.
    subscriber.psql("ALTER SUBSCRIPTION s DISABLE").unwrap();
    publisher.psql("UPDATE t SET c = 'again' WHERE id = 2").unwrap();
    let outcome = run(&request(&source, &target, Duration::from_secs(1)));
    assert_eq!((only(&outcome).different(), only(&outcome).unresolved), (0, 2), "{outcome:#?}");
}

/// A position covers changes that are seen before they are written, and ends where a record
/// does, which a server that follows comes to: behind a full page, not behind the head of the next.
#[test]
fn position_of_postgres_is_the_end_of_the_last_record() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let options = postgres::Options::default().with("wal_writer_delay", "'10s'");
    let mut cluster = Cluster::init(&installation, &options).unwrap();
    cluster.start().unwrap();
    let location = Location::parse(&cluster.url("postgres")).unwrap();
    let mut connection =
        (pagewarden_db::engine::of(&location).unwrap().connect)(&location).unwrap();
    let mut position = || {
        let position = connection.position().unwrap().unwrap();
        position.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let end = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn";
    let changed = cluster
        .psql(&format!(
            "CREATE TABLE t (id int); SET synchronous_commit = off; INSERT INTO t VALUES (1); {end}"
        ))
        .unwrap();
    assert!(position() >= changed.parse().unwrap());
    // Messages of all lengths, until one fills a page.
    let filled = cluster
        .psql(&format!(
            "DO $$ BEGIN FOR n IN 1..100000 LOOP \
             PERFORM pg_logical_emit_message(false, '', repeat('x', n % 97)); \
             EXIT WHEN mod(pg_current_wal_insert_lsn() - '0/0'::pg_lsn, 8192) = 24; \
             END LOOP; END $$; {end}"
        ))
        .unwrap();
    let filled: u64 = filled.parse().unwrap();
    assert_eq!(filled % 8192, 24, "no message filled a page");
    assert_eq!(position(), filled - 24);
}

#[test]
fn late_replica_of_mariadb_is_waited_for_and_a_difference_on_it_is_found() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    // Its delay counts from the second in which a change began.
    let [primary, replica] = &pair(&installation, &[], DELAY.as_secs() + 1).unwrap();
    primary.sql("CREATE DATABASE d; CREATE TABLE d.t (id int PRIMARY KEY, c varchar(20)); INSERT INTO d.t VALUES (1, 'a'), (2, 'b')").unwrap();
    await_arrival(primary, replica).unwrap();
    let (source, target) = (primary.url("d"), replica.url("d"));
    late_change_is_no_difference(&source, &target, &|| {
        primary.sql("UPDATE d.t SET c = 'changed' WHERE id = 2").unwrap();
    });
    replica.sql("SET sql_log_bin = 0; UPDATE d.t SET c = 'wrong' WHERE id = 1").unwrap();
    let outcome = run(&request(&source, &target, Duration::from_secs(30)));
    assert_eq!((only(&outcome).different(), only(&outcome).unresolved), (1, 0), "{outcome:#?}");
}

/// Tables of all kinds of keys and values; what is planted on the replica, and what that
/// makes different. Statements run on a replica whose log does not take them.
const REPLICATED: &[(&str, &str, usize)] = &[
    (
        "CREATE TABLE numbers (id int PRIMARY KEY, c varchar(20), f float) SELECT seq id, concat('c', seq) c, seq / 7 f FROM seq_1_to_100",
        "",
        0,
    ),
    (
        "CREATE TABLE bit (id int PRIMARY KEY, f float) SELECT seq id, 1 + seq / 1000 f FROM seq_1_to_100",
        // The next float: as text, six digits of both are the same.
        "UPDATE bit SET f = f + 1.2e-7 WHERE id = 50",
        1,
    ),
    (
        "CREATE TABLE lost (id int PRIMARY KEY, c text) SELECT seq id, 'x' c FROM seq_1_to_100",
        "DELETE FROM lost WHERE id IN (3, 100)",
        2,
    ),
    (
        "CREATE TABLE more (id int PRIMARY KEY, c text) SELECT seq id, NULL c FROM seq_1_to_100",
        "INSERT INTO more VALUES (1000, 'new')",
        1,
    ),
    (
        "CREATE TABLE words (w varchar(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci, n int, PRIMARY KEY (w, n)) SELECT concat('o', char(39, 92, 32 USING latin1), seq DIV 9) w, seq n FROM seq_1_to_50",
        "",
        0,
    ),
    (
        "CREATE TABLE moved (id int PRIMARY KEY, a varchar(20), b varchar(20)) SELECT seq id, 'a#' a, 'b' b FROM seq_1_to_20",
        "UPDATE moved SET a = 'a', b = '#b' WHERE id = 20",
        1,
    ),
    // Without a key: rows that stand twice do not cancel.
    (
        "CREATE TABLE twice (c int); INSERT INTO twice VALUES (1), (1), (3)",
        "UPDATE twice SET c = 2 WHERE c = 1",
        1,
    ),
    ("CREATE TABLE nothing (id int PRIMARY KEY)", "", 0),
    (
        "CREATE TABLE `odd``;\nname` (`k\"` int PRIMARY KEY, `v``` timestamp NULL) SELECT seq `k\"` FROM seq_1_to_9",
        "UPDATE `odd``;\nname` SET `v``` = '2024-01-01' WHERE `k\"` = 1",
        1,
    ),
];

/// A primary and a replica: statements that the replica runs again over its own rows find
/// what was planted there, and only that.
#[test]
fn replica_computes_its_own_checksums() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let [primary, replica] = &pair(&installation, &[], 0).unwrap();
    let tables: Vec<&str> = REPLICATED.iter().map(|(table, _, _)| *table).collect();
    primary.sql(&format!("CREATE DATABASE d; USE d; {}", tables.join("; "))).unwrap();
    await_arrival(primary, replica).unwrap();
    let planted = REPLICATED.iter().map(|(_, planted, _)| *planted).filter(|sql| !sql.is_empty());
    let planted = planted.collect::<Vec<_>>().join("; ");
    replica.sql(&format!("USE d; SET sql_log_bin = 0; {planted}")).unwrap();
    let location = |server: &Server| Location::parse(&server.url("d")).unwrap();
    let open = |server: &Server| {
        let location = location(server);
        (pagewarden_db::engine::of(&location).unwrap().connect)(&location).unwrap()
    };
    let mut wanted: Vec<(String, usize)> = Vec::new();
    let mut connection = open(primary);
    for name in connection.tables().unwrap() {
        let options = replicate::Options { chunk_rows: Some(7) };
        let made = replicate::write(&location(primary), &name, options, &|_, _| Ok(())).unwrap();
        let table = connection.describe(&name).unwrap();
        assert_eq!(made.rows, connection.count(&table).unwrap(), "{name}");
        let quoted = name.name.replace('`', "``");
        let index = REPLICATED.iter().position(|(sql, _, _)| {
            sql.starts_with(&format!("CREATE TABLE {quoted} ("))
                || sql.starts_with(&format!("CREATE TABLE `{quoted}` ("))
        });
        wanted.push((name.to_string(), REPLICATED[index.unwrap()].2));
    }
    assert_eq!(wanted.len(), REPLICATED.len());
    let request = |tables: &[&str]| replicate::Request {
        primary: location(primary),
        replica: location(replica),
        tables: tables.iter().map(|name| (*name).to_owned()).collect(),
        excluded_tables: Vec::new(),
        patience: Duration::from_secs(20),
    };
    let compare = |request| replicate::compare(&request, &|_, _| Ok(()), &mut |_| {}).unwrap();
    let outcome = compare(request(&[]));
    let found: Vec<(String, usize)> = outcome
        .tables
        .iter()
        .map(|table| {
            assert_eq!(table.error, None, "{table:#?}");
            (table.table.clone(), table.parts_different.len())
        })
        .collect();
    wanted.sort();
    assert_eq!(found, wanted, "{outcome:#?}");
    let numbers = outcome.tables.iter().find(|table| table.table == "numbers").unwrap();
    assert_eq!((numbers.chunks, numbers.rows_source, numbers.verdict()), (15, 100, Verdict::Equal));
    let lost = outcome.tables.iter().find(|table| table.table == "lost").unwrap();
    let counts: Vec<_> = lost
        .parts_different
        .iter()
        .map(|part| (part.part, part.rows_source, part.rows_target))
        .collect();
    assert_eq!(counts, [(0, 7, 6), (14, 2, 1)]);
    assert_eq!(lost.parts_different[0].rows_of, "(`id`) <= (7)");
    // What the replica did not compute is not equal, whatever it says.
    replica.sql("SET sql_log_bin = 0; UPDATE d.pagewarden_checksums SET server = 1 WHERE table_name = 'numbers'").unwrap();
    let copied = compare(request(&["numbers", "never summed"]));
    assert!(
        copied.tables.iter().all(|table| table.verdict() == Verdict::Incomplete),
        "{copied:#?}"
    );
    // Rows that another session holds end the run; what is left of it is not equal.
    let mut client = primary.client();
    let mut holder = client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut statements = holder.stdin.take().unwrap();
    statements.write_all(b"BEGIN; UPDATE d.numbers SET c = 'y' WHERE id = 53;\n").unwrap();
    let begin = Instant::now();
    // In the middle of the eighth part: the end of a part locks the row after it, too.
    let locking = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_rows_modified > 0";
    while primary.sql(locking).unwrap() != "1" {
        assert!(begin.elapsed() < Duration::from_secs(60), "no session holds the row");
        // innodb_trx shows a cached state for as long as it is read more often than each 0.1 s
        // (can_cache_be_updated in the server's trx0i_s.cc).
        std::thread::sleep(Duration::from_millis(250));
    }
    let numbers = TableName { schema: None, name: "numbers".to_owned() };
    let options = replicate::Options { chunk_rows: Some(7) };
    let locked = replicate::write(&location(primary), &numbers, options, &|_, _| Ok(()));
    assert!(locked.unwrap_err().to_string().contains("Lock wait timeout"));
    drop(statements);
    holder.wait().unwrap();
    let cut = compare(request(&["numbers"]));
    assert_eq!((cut.tables[0].verdict(), cut.tables[0].chunks), (Verdict::Incomplete, 7));
    // The checksums are no table of the user's, and a replica is no primary.
    assert!(open(primary).tables().unwrap().iter().all(|name| name.name != replicate::TABLE));
    replica.sql("SET GLOBAL read_only = 1").unwrap();
    let refused = replicate::write(
        &location(replica),
        &connection.tables().unwrap()[0],
        replicate::Options::default(),
        &|_, _| Ok(()),
    );
    assert!(refused.unwrap_err().to_string().contains("read-only"));
    // To a user who may not change the log's format the error says so.
    primary.sql("CREATE USER ann; GRANT ALL ON d.* TO ann").unwrap();
    let ann = Location { user: Some("ann".to_owned()), ..location(primary) };
    let refused = replicate::write(
        &ann,
        &connection.tables().unwrap()[0],
        replicate::Options::default(),
        &|_, _| Ok(()),
    );
    assert!(refused.unwrap_err().to_string().contains("BINLOG ADMIN"));
}
