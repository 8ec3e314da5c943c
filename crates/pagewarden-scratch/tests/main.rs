//! Scratch servers start, answer, crash, are copied, and leave nothing behind.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use pagewarden_scratch::home::memory_limit_unavailable;
use pagewarden_scratch::mariadb;
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

/// The version most tests run with; the others come by `every_version_...`.
const VERSION: &str = "15";
/// Says to the test that is killed that it was started for that.
const VICTIM: &str = "PAGEWARDEN_SCRATCH_VICTIM";

#[test]
fn cluster_answers_and_leaves_nothing_behind() {
    let Some(installation) = Installation::for_test(VERSION).unwrap() else {
        return;
    };
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    cluster.start().unwrap();
    assert!(cluster.is_running());
    assert_eq!(cluster.psql("SELECT 6 * 7").unwrap(), "42");
    assert_eq!(cluster.psql("SHOW data_checksums").unwrap(), "on");
    let error = cluster.psql("SELECT 1/0").unwrap_err().to_string();
    assert!(error.contains("division by zero"), "{error}");

    cluster.stop(StopMode::Fast).unwrap();
    assert!(!cluster.is_running());
    let home = cluster.home().to_owned();
    assert!(home.exists());
    drop(cluster);
    assert!(!home.exists());
}

#[test]
fn running_cluster_is_stopped_and_removed_after_a_panic() {
    let Some(installation) = Installation::for_test(VERSION).unwrap() else {
        return;
    };
    let thread = thread::spawn(move || {
        let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
        cluster.start().unwrap();
        let seen = (cluster.home().to_owned(), cluster.postmaster_pid().unwrap());
        std::panic::panic_any(seen);
    });
    let panic = thread.join().unwrap_err();
    let (home, pid) = panic.downcast_ref::<(std::path::PathBuf, u32)>().unwrap();
    assert!(!home.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// `Drop` cannot run here; the watchman must do it.
#[test]
fn cluster_of_a_killed_owner_is_stopped_and_removed() {
    if Installation::for_test(VERSION).unwrap().is_none() {
        return;
    }
    let mut owner = Command::new(env::current_exe().unwrap())
        .args(["--include-ignored", "--exact", "victim_waits_to_be_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let found = lines.map(Result::unwrap).find_map(|line| {
        let (_, rest) = line.split_once("victim: ")?;
        let (pid, home) = rest.split_once(' ')?;
        Some((pid.to_owned(), home.to_owned()))
    });
    let (pid, home) = found.expect("the victim tells where its cluster is");
    assert!(Path::new(&home).exists());
    owner.kill().unwrap();
    owner.wait().unwrap();

    let begin = Instant::now();
    while Path::new(&home).exists() || is_alive(&pid) {
        assert!(begin.elapsed() < Duration::from_secs(30), "{home} {pid}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "no test but a process of one"]
fn victim_waits_to_be_killed() {
    if env::var_os(VICTIM).is_none() {
        return;
    }
    let installation = Installation::find(VERSION).unwrap();
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    cluster.start().unwrap();
    let pid = cluster.postmaster_pid().unwrap();
    println!("victim: {pid} {}", cluster.home().display());
    thread::sleep(Duration::from_secs(60));
}

/// The whole workload, a crash in the middle of a transaction, a copy with its
/// tablespace, and what the server's own tool says about it, on every version
/// that is installed.
#[test]
fn every_version_takes_the_sample_a_crash_and_a_copy() {
    let Some(_) = Installation::for_test(VERSION).unwrap() else {
        return;
    };
    for installation in Installation::all() {
        let version = installation.version.clone();
        let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
        cluster.load_sample(1).unwrap();
        cluster.psql("CREATE TABLE late AS SELECT generate_series(1, 1000) AS id").unwrap();
        cluster.crash().unwrap();
        assert!(!cluster.is_running(), "{version}");
        assert!(cluster.data_dir().join("postmaster.pid").exists());

        let mut copy = cluster.duplicate().unwrap();
        cluster.start().unwrap();
        copy.start().unwrap();
        for each in [&mut cluster, &mut copy] {
            assert_eq!(each.psql("SELECT count(*) FROM late").unwrap(), "1000");
            assert_eq!(each.psql("SELECT count(*) FROM elsewhere").unwrap(), "5000");
            assert_eq!(each.psql("SELECT count(*) FROM loaded").unwrap(), "40000");
            // A crash empties what is unlogged.
            assert_eq!(each.psql("SELECT count(*) FROM fleeting").unwrap(), "0");
            each.stop(StopMode::Fast).unwrap();
        }
        let space = fs::read_dir(copy.data_dir().join("pg_tblspc"))
            .unwrap()
            .map(|entry| fs::read_link(entry.unwrap().path()).unwrap())
            .collect::<Vec<_>>();
        assert_eq!(space.len(), 1, "{version}");
        assert!(space[0].starts_with(copy.home()), "{space:?}");

        let count = copy.single_user("other", &["SELECT count(*), 'x;y' FROM item"]).unwrap();
        assert_eq!(count, "5000|x;y", "{version}");
        if installation.major >= 14 {
            let output = copy.pg_checksums(&["--check"]).unwrap();
            assert!(output.success(), "{version}: {output:?}");
        }
    }
}

/// The packages of 9.6 to 13 have no psql, and a machine may have no other.
#[test]
fn sample_is_loaded_without_a_client() {
    for version in ["9.6", "13", VERSION] {
        let Some(installation) = Installation::find(version) else {
            continue;
        };
        let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
        cluster.load_sample_offline(1).unwrap();
        let count = "SELECT count(*) FROM loaded";
        assert_eq!(cluster.single_user("postgres", &[count]).unwrap(), "40000");
    }
}

#[test]
fn single_user_mode_makes_a_tablespace_and_answers() {
    let Some(installation) = Installation::for_test(VERSION).unwrap() else {
        return;
    };
    let options = Options { checksums: false, ..Options::default() };
    let mut cluster = Cluster::init(&installation, &options).unwrap();
    let space = cluster.add_tablespace("by_hand").unwrap();
    assert!(space.read_dir().unwrap().next().is_some());
    let rows = cluster.single_user(
        "postgres",
        &[
            "CREATE TABLE t (id int) TABLESPACE by_hand;",
            "INSERT INTO t VALUES (1), (2)",
            "SELECT id, id * 10 AS ten FROM t ORDER BY id",
        ],
    );
    assert_eq!(rows.unwrap(), "1|10\n2|20");
    assert!(cluster.single_user("postgres", &["SELECT nothing"]).is_err());
    let path = cluster.relation_path("postgres", "t").unwrap();
    assert!(cluster.data_dir().join(path).exists());
}

/// A dead process that no parent collects is still listed, as a zombie.
fn is_alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Two servers from one data directory, under two checksum algorithms; nothing
/// is left of either.
#[test]
fn mariadb_answers_is_copied_and_leaves_nothing_behind() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else {
        return;
    };
    assert!(installation.version().unwrap().starts_with(|c: char| c.is_ascii_digit()));
    let mut server = mariadb::Server::install(&installation, &[]).unwrap();
    let mut copy = server.duplicate(&["innodb_checksum_algorithm=crc32"]).unwrap();
    for (server, algorithm) in [(&mut server, "full_crc32"), (&mut copy, "crc32")] {
        server.start().unwrap();
        assert_eq!(server.sql("SELECT @@innodb_checksum_algorithm").unwrap(), algorithm);
        let error = server.sql("SELECT nothing").unwrap_err().to_string();
        assert!(error.contains("nothing"), "{error}");
    }
    server.stop().unwrap();
    assert!(!server.is_running());
    let homes = [server.home().path().to_owned(), copy.home().path().to_owned()];
    let pid = copy.pid().unwrap();
    drop((server, copy));
    assert!(homes.iter().all(|home| !home.exists()));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// The page cache that the server fills counts too, and the group goes with it.
#[test]
fn memory_limit_holds_the_whole_server_and_goes_with_it() {
    let Some(installation) = Installation::for_test(VERSION).unwrap() else {
        return;
    };
    if let Some(reason) = memory_limit_unavailable() {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    let limit = 100 << 20;
    cluster.home_of_server().limit_memory(limit).unwrap();
    assert!(cluster.home_of_server().limit_memory(limit).is_err(), "to be called once");
    cluster.start().unwrap();
    let name = cluster.home().file_name().unwrap().to_owned();
    let group = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .iter()
        .map(|root| Path::new(root).join(&name))
        .find(|group| group.is_dir())
        .unwrap();
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap();
    let postmaster = cluster.postmaster_pid().unwrap().to_string();
    assert!(processes.lines().any(|pid| pid == postmaster), "{processes}");
    assert!(processes.lines().count() > 3, "its children follow: {processes}");
    // Twice what it may have.
    cluster
        .psql("CREATE TABLE t AS SELECT repeat(md5(i::text), 30) FROM generate_series(1, 200000) i")
        .unwrap();
    assert_eq!(cluster.psql("SELECT count(*) FROM t").unwrap(), "200000");
    let used = ["memory.max_usage_in_bytes", "memory.peak"]
        .iter()
        .find_map(|file| fs::read_to_string(group.join(file)).ok());
    if let Some(used) = used {
        let used: u64 = used.trim().parse().unwrap();
        // The kernel lets charges that must not fail pass the limit for a moment (by a page or a
        // few for each processor); without the limit the table alone would need twice as much.
        let moment = limit / 16;
        assert!(used > limit / 2 && used <= limit + moment, "{used} of {limit}");
    }
    drop(cluster);
    assert!(!group.exists());
}
