//! Real replicas that are late by design, by longer than rows must stand still.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use pagewarden_db::compare::report::Verdict;
use pagewarden_db::compare::{Options, Request};
use pagewarden_db::location::Location;
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres::{self, Cluster};

use crate::servers::{assert_equal, only, run};

/// How late the replicas are.
const DELAY: Duration = Duration::from_secs(3);

fn request(source: &str, target: &str, patience: Duration) -> Request {
    Request {
        source: Location::parse(source).unwrap(),
        target: Location::parse(target).unwrap(),
        tables: Vec::new(),
        excluded_tables: Vec::new(),
        excluded_columns: Vec::new(),
        jobs: std::num::NonZero::<usize>::MIN,
        options: Options {
            frozen: false,
            settle: Duration::from_millis(200),
            patience,
            listed_max: 10,
            chunk_rows: None,
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

#[test]
fn late_standby_of_postgres_is_waited_for() {
    let Some(installation) = postgres::Installation::for_test("15").unwrap() else { return };
    let mut primary = Cluster::init(&installation, &postgres::Options::default()).unwrap();
    // Its settings come into its control file, which the standby's are held against.
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
    let url = |cluster: &Cluster| {
        let (port, socket) = (cluster.port(), cluster.socket_dir().display());
        format!("postgres://postgres@:{port}/postgres?socket={socket}")
    };
    let begin = Instant::now();
    while standby.psql("SELECT count(*) FROM t").ok().as_deref() != Some("2") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", standby.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    late_change_is_no_difference(&url(&primary), &url(&standby), &|| {
        primary.psql("UPDATE t SET c = 'changed' WHERE id = 2").unwrap();
    });
}

#[test]
fn late_replica_of_mariadb_is_waited_for_and_a_difference_on_it_is_found() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut servers: Vec<Server> = Vec::new();
    for (number, networking) in [("1", "skip-networking=0"), ("2", "skip-networking")] {
        let (id, port) = (format!("server-id={number}"), format!("port={port}"));
        let options = ["log-bin=log", "bind-address=127.0.0.1", networking, &id, &port];
        let mut server = Server::install(&installation, &options).unwrap();
        server.start().unwrap();
        servers.push(server);
    }
    let [primary, replica] = servers.as_slice() else { panic!("two servers") };
    primary.sql("RESET MASTER; CREATE USER copy IDENTIFIED BY 'copy'; GRANT REPLICATION SLAVE ON *.* TO copy").unwrap();
    replica
        .sql(&format!(
            "SET GLOBAL gtid_slave_pos = ''; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, \
             MASTER_USER = 'copy', MASTER_PASSWORD = 'copy', MASTER_USE_GTID = slave_pos, \
             MASTER_DELAY = {}; START SLAVE",
            DELAY.as_secs()
        ))
        .unwrap();
    primary.sql("CREATE DATABASE d; CREATE TABLE d.t (id int PRIMARY KEY, c varchar(20)); INSERT INTO d.t VALUES (1, 'a'), (2, 'b')").unwrap();
    let url = |server: &Server| {
        format!("mysql://root@/d?socket={}", server.home().path().join("socket").display())
    };
    let begin = Instant::now();
    while replica.sql("SELECT count(*) FROM d.t").ok().as_deref() != Some("2") {
        let status = || replica.sql("SHOW SLAVE STATUS").unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
    let (source, target) = (url(primary), url(replica));
    late_change_is_no_difference(&source, &target, &|| {
        primary.sql("UPDATE d.t SET c = 'changed' WHERE id = 2").unwrap();
    });
    replica.sql("SET sql_log_bin = 0; UPDATE d.t SET c = 'wrong' WHERE id = 1").unwrap();
    let outcome = run(&request(&source, &target, Duration::from_secs(30)));
    assert_eq!((only(&outcome).different(), only(&outcome).unresolved), (1, 0), "{outcome:#?}");
}
