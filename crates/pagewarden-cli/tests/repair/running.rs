//! Running servers as sources: the primary of a standby that was shut down, the standby of a primary, and
//! those that went their own way.

use std::fs;
use std::time::{Duration, Instant};

use pagewarden::repair::{Options as RepairOptions, Request, repair};
use pagewarden_db::engine::postgres::files::data_directory;
use pagewarden_db::location::{Given, Location};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use super::{Tally, attack_on, contents_of, wound};
use crate::clusters::installations;
use crate::damage::Dice;
use crate::runner::{pagewarden, run};

const PATIENCE: Duration = Duration::from_secs(60);
const WOUNDS: usize = 150;

fn primary(installation: &Installation) -> Option<Cluster> {
    let options = Options { wal_segment_mib: Some(1), ..Options::default() }
        .with("autovacuum", "off")
        .with("wal_keep_size", "'64MB'");
    let mut cluster = Cluster::init(installation, &options).unwrap();
    cluster.start().unwrap();
    if !cluster.has_psql() || !installation.has("pgbench") {
        return None;
    }
    cluster.pgbench(&["-i", "-s", "1", "-q"]).unwrap();
    cluster
        .psql("CREATE TABLE still AS SELECT i, md5(i::text) FROM generate_series(1, 9000) i")
        .unwrap();
    cluster.psql("CREATE INDEX ON still (i)").unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    Some(cluster)
}

fn change(cluster: &Cluster) {
    cluster.pgbench(&["-n", "-c", "1", "-t", "100"]).unwrap();
    cluster.psql("CHECKPOINT").unwrap();
}

/// A request for pages of one that is shut down, from one that runs.
fn asked(patient: &Cluster, running: &Cluster) -> Request {
    let location = Location::find(&running.url("postgres"), &Given::default()).unwrap();
    let sources = vec![data_directory(&location).unwrap()];
    Request { sources, ..Request::new(patient.data_dir()) }
}

fn assault(request: &Request) -> Tally {
    attack_on(request, &mut Dice::seeded(), |file| file.starts_with("base/5/"), WOUNDS)
}

/// Until the standby has replayed all that the primary has written, and has it on disk.
fn catch_up(primary: &Cluster, standby: &Cluster) {
    let end = primary.psql("SELECT pg_current_wal_lsn()").unwrap();
    replay_to(standby, &format!("'{end}'"));
    standby.psql("CHECKPOINT").unwrap();
}

/// Until the standby has replayed the log up to there.
fn replay_to(standby: &Cluster, end: &str) {
    let is_there = format!("SELECT pg_last_wal_replay_lsn() >= {end}");
    let begin = Instant::now();
    while standby.psql(&is_there).unwrap() != "t" {
        assert!(begin.elapsed() < PATIENCE, "the standby does not follow: {}", standby.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn pages_of_a_running_server_are_exact_where_its_history_is_the_same() {
    for installation in installations() {
        let Some(mut first) = primary(&installation) else { continue };
        let mut second = first.duplicate().unwrap();
        fs::write(second.data_dir().join("standby.signal"), "").unwrap();
        let from = format!("'{}'", first.connection_string("postgres"));
        second.append_settings([("primary_conninfo", &*from)]).unwrap();
        first.start().unwrap();
        first.psql("CREATE ROLE weak LOGIN").unwrap();
        second.start().unwrap();
        change(&first);
        catch_up(&first, &second);

        // The standby is the patient, stopped after the primary so that it has its last checkpoint, and
        // the primary goes on.
        first.stop(StopMode::Fast).unwrap();
        // A primary does not stop before its standby has all of its log; that is not replayed yet.
        replay_to(&second, "pg_last_wal_receive_lsn()");
        second.stop(StopMode::Fast).unwrap();
        first.start().unwrap();
        let soon = assault(&asked(&second, &first));
        first.psql("UPDATE pgbench_tellers SET tbalance = tbalance + 1").unwrap();
        first.psql("CHECKPOINT").unwrap();
        let later = assault(&asked(&second, &first));
        let alone = assault(&Request::new(second.data_dir()));

        // The primary is the patient, and the standby runs.
        second.start().unwrap();
        catch_up(&first, &second);
        first.stop(StopMode::Fast).unwrap();
        let other = assault(&asked(&first, &second));
        println!(
            "PostgreSQL {}: {soon:?}, later {later:?}, alone {alone:?}; from the standby {other:?}",
            installation.version
        );
        for (tally, least) in
            [(soon, WOUNDS * 4 / 5), (later, WOUNDS * 3 / 5), (other, WOUNDS * 3 / 5)]
        {
            assert!(tally.exact >= least, "{tally:?}");
        }
        assert!(alone.exact < later.exact);

        // By the program, and by a role that may not read files.
        let sound = contents_of(first.data_dir());
        wound(first.data_dir(), &sound, &mut Dice::seeded(), |file| file.starts_with("base/5/"), 5);
        let url = second.url("postgres");
        let said = run(pagewarden().arg("repair").arg(first.data_dir()).args(["--from", &url]));
        assert!(said.stdout.contains("running standby, as of"), "{} {}", said.stdout, said.stderr);
        let weak = url.replace("postgres://postgres@", "postgres://weak@");
        let weak = run(pagewarden().arg("repair").arg(first.data_dir()).args(["--from", &weak]));
        assert_eq!(weak.status, Some(2), "{}", weak.stdout);
        assert!(weak.stderr.contains("grant EXECUTE"), "{}", weak.stderr);
    }
}

#[test]
fn server_that_went_its_own_way_is_refused() {
    for installation in installations() {
        let Some(mut first) = primary(&installation) else { continue };
        let mut clone = first.duplicate().unwrap();
        for cluster in [&mut first, &mut clone] {
            cluster.start().unwrap();
            change(cluster);
        }
        first.stop(StopMode::Fast).unwrap();
        let sound = contents_of(first.data_dir());
        for changes in [0, 2000] {
            if changes > 0 {
                clone.pgbench(&["-n", "-c", "1", "-t", "2000"]).unwrap();
                clone.psql("CHECKPOINT").unwrap();
            }
            let wounds = wound(first.data_dir(), &sound, &mut Dice::seeded(), |_| true, WOUNDS);
            assert!(!wounds.is_empty());
            let outcome = repair(&asked(&first, &clone), &RepairOptions::default(), &());
            let error = outcome.expect_err("its history is another").to_string();
            assert!(error.contains("history of its own"), "{error}");
            for (file, bytes) in &sound {
                fs::write(first.data_dir().join(file), bytes).unwrap();
            }
        }
        // Another cluster altogether.
        let mut stranger = primary(&installation).unwrap();
        stranger.start().unwrap();
        wound(first.data_dir(), &sound, &mut Dice::seeded(), |_| true, 3);
        let error = repair(&asked(&first, &stranger), &RepairOptions::default(), &()).unwrap_err();
        assert!(error.to_string().contains("another cluster"), "{error}");
    }
}
