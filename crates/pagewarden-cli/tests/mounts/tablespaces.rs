//! A packed tablespace under a cluster that goes on: vacuum that runs all the time,
//! transaction numbers that run out, backups, kills and restarts, and a new pack in the
//! end.

use super::*;

use pagewarden_scratch::postgres::{Cluster, Installation};

/// Numbers of a round: more than `autovacuum_freeze_max_age` may be at the least.
const BURNT: u32 = 110_000;
/// How long vacuum may take until it has come to a table.
const VACUUM_MAX: Duration = Duration::from_secs(60);

/// A day's work of vacuum in a minute.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "off"),
    ("autovacuum", "on"),
    ("autovacuum_naptime", "1s"),
    ("autovacuum_freeze_max_age", "100000"),
    ("autovacuum_vacuum_cost_delay", "0"),
    ("vacuum_freeze_min_age", "0"),
    ("vacuum_freeze_table_age", "50000"),
];

const ANSWERS: &str = "SELECT count(*), sum(hashtext(elsewhere::text)) FROM elsewhere;
     SELECT count(*), sum(hashtext(old_orders::text)) FROM old_orders;
     SET enable_seqscan = off; SELECT count(*) FROM elsewhere WHERE word < 'b';
     SELECT sum(hashtext(note)) FROM old_orders WHERE id BETWEEN 100 AND 900";

/// A cluster with a tablespace that is all frozen, shut down, and the folder behind it.
fn with_frozen_tablespace(installation: &Installation) -> (Cluster, PathBuf) {
    let mut cluster = sample(installation, true).copy();
    cluster.start().unwrap();
    cluster
        .psql(
            "CREATE TABLE old_orders (id int PRIMARY KEY USING INDEX TABLESPACE sample_space,
                                      note text, long text) TABLESPACE sample_space;
             INSERT INTO old_orders SELECT i, md5(i::text), CASE WHEN i % 50 = 0 THEN
                 (SELECT string_agg(md5((i * 200 + j)::text), '') FROM generate_series(1, 150) j)
               END FROM generate_series(1, 20000) i",
        )
        .unwrap();
    cluster.psql("VACUUM (FREEZE, ANALYZE) old_orders").unwrap();
    cluster.psql("VACUUM (FREEZE, ANALYZE) elsewhere").unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    // Not before: what looks at a table while it is frozen keeps rows from being so.
    cluster.append_settings(SETTINGS.iter().copied()).unwrap();
    let link = fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap().next().unwrap();
    let place = fs::read_link(link.unwrap().path()).unwrap();
    (cluster, place)
}

fn dump(cluster: &Cluster) -> String {
    let mut command = cluster.client("pg_dump").unwrap();
    let output = command.args(["-t", "elsewhere", "-t", "old_orders"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // Some versions guard a dump with a word of chance.
    let is_fixed =
        |line: &&str| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict");
    text.lines().filter(is_fixed).collect::<Vec<_>>().join("\n")
}

/// The oldest number that a table may hold, as vacuum has left it.
fn oldest(cluster: &Cluster) -> Vec<i64> {
    let sql = "SELECT relfrozenxid FROM pg_class WHERE relname IN ('elsewhere', 'old_orders')";
    cluster.psql(sql).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

/// Takes transaction numbers until vacuum must come, and waits until it did.
fn a_season(cluster: &Cluster, round: u32) {
    let before = oldest(cluster);
    cluster
        .psql(&format!(
            "INSERT INTO newcomer SELECT i, md5(i::text) FROM generate_series(1, 5000) i;
             UPDATE newcomer SET word = 'round {round}' WHERE id % 3 = 0;
             DELETE FROM newcomer WHERE id % 7 = {round};"
        ))
        .unwrap();
    cluster
        .psql(&format!(
            "DO $$ BEGIN FOR i IN 1..{BURNT} LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$"
        ))
        .unwrap();
    let begin = Instant::now();
    while !oldest(cluster).iter().zip(&before).all(|(now, before)| now > before) {
        assert!(begin.elapsed() < VACUUM_MAX, "{before:?}, {:?}", cluster.log());
        thread::sleep(Duration::from_millis(100));
    }
}

fn amcheck(cluster: &Cluster) {
    let found = cluster
        .psql(
            "CREATE EXTENSION IF NOT EXISTS amcheck;
             SELECT c.relname, v.* FROM pg_class c, LATERAL verify_heapam(c.oid) v
               WHERE c.relname IN ('elsewhere', 'old_orders', 'newcomer');
             SELECT bt_index_check(indexrelid, true) FROM pg_index
               WHERE indrelid IN ('elsewhere'::regclass, 'old_orders'::regclass)",
        )
        .unwrap();
    assert!(found.lines().all(str::is_empty), "{found}");
}

fn kill_and_restart(cluster: &mut Cluster, mount: Mount, pack: &Path, options: &[&str]) -> Mount {
    let place = mount.folder.clone();
    mount.signal(Signal::KILL);
    mount.wait();
    if cluster.is_running() {
        cluster.crash().unwrap();
    }
    let outcome = run(pagewarden().args(["mount", "--cleanup"]).arg(&place));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let mount = Mount::begin(pack, &place, options);
    cluster.start().unwrap();
    mount
}

/// Packs the tablespace and empties its folder. It is not mounted where writes vanish.
fn pack_tablespace(cluster: &Cluster, place: &Path, pack: &Path) {
    let made = run(pagewarden()
        .args(["pack", "--tablespace", "sample_space"])
        .arg(cluster.data_dir())
        .arg("-o")
        .arg(pack));
    assert_eq!(made.status, Some(0), "{made:?}");
    fs::remove_dir_all(place.read_dir().unwrap().next().unwrap().unwrap().path()).unwrap();
    for option in [None, Some("--read-only"), Some("--scratch=/tmp")] {
        let outcome = run(pagewarden().arg("mount").args(option).arg(pack).arg(place));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        let expected = "without --durable: it is the tablespace sample_space of a cluster";
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
        assert!(!is_mounted(place));
    }
}

/// Freezes the new table with nothing that might stand in the way.
fn freeze_newcomer(cluster: &mut Cluster, pack: &Path, options: &[&str], place: &Path) {
    cluster.append_settings([("autovacuum", "off")]).unwrap();
    let mount = Mount::begin(pack, place, options);
    cluster.start().unwrap();
    cluster.psql("VACUUM (FREEZE) newcomer").unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    assert_eq!(mount.end().0.status, Some(0));
}

fn goes_on(installation: &Installation, rounds: u32) {
    let (mut cluster, place) = with_frozen_tablespace(installation);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (pack, durable, new) = (at("space.pwk"), at("durable"), at("new.pwk"));
    pack_tablespace(&cluster, &place, &pack);
    let options = ["--durable", durable.to_str().unwrap()];
    let mut mount = Mount::begin(&pack, &place, &options);
    cluster.start().unwrap();
    // What is new in the tablespace is written to, vacuumed and frozen in the delta.
    cluster.psql("CREATE TABLE newcomer (id int, word text) TABLESPACE sample_space").unwrap();
    let (expected, dumped) = (cluster.psql(ANSWERS).unwrap(), dump(&cluster));
    for round in 0..rounds {
        a_season(&cluster, round);
        cluster.psql("CHECKPOINT").unwrap();
        assert_eq!(cluster.psql(ANSWERS).unwrap(), expected, "round {round}");
        assert!(dump(&cluster) == dumped, "round {round}");
        let sum = "SELECT count(*), sum(hashtext(newcomer::text)) FROM newcomer";
        let newcomer = cluster.psql(sum).unwrap();
        mount = kill_and_restart(&mut cluster, mount, &pack, &options);
        assert_eq!(cluster.psql(ANSWERS).unwrap(), expected, "round {round}");
        assert_eq!(cluster.psql(sum).unwrap(), newcomer, "round {round}");
    }
    if installation.has_extension("amcheck") {
        amcheck(&cluster);
    }
    // While the server has files open no unmount takes them away from under it.
    let held = File::open(place.read_dir().unwrap().next().unwrap().unwrap().path()).unwrap();
    mount.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(cluster.psql(ANSWERS).unwrap(), expected, "it stays mounted");
    cluster.stop(StopMode::Fast).unwrap();
    let checked = run(pagewarden().arg("check").arg(cluster.data_dir()));
    assert_eq!(checked.status, Some(0), "{checked:?}");
    drop(held);
    let outcome = mount.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("stays mounted"), "{}", outcome.stderr);
    let json: Value = outcome.stdout.parse().unwrap();
    assert_eq!(json["has_lasting_changes"], true, "{json}");
    println!("PostgreSQL {}: {json}", installation.version);

    let repack = |rest: &[&Path]| {
        let mut command = pagewarden();
        run(command.arg("mount").args(options).arg("--repack").arg(&new).args(rest))
    };
    let refused = repack(&[&pack]);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("without its cluster"), "{}", refused.stderr);
    // It is as strict as for the first pack.
    freeze_newcomer(&mut cluster, &pack, &options, &place);
    let repacked = repack(&[&pack, &place, Path::new("--cluster"), cluster.data_dir()]);
    assert_eq!(repacked.status, Some(0), "{repacked:?}");
    let refused = run(pagewarden().arg("mount").arg(&new).arg(&place));
    assert!(refused.stderr.contains("without --durable"), "it is a tablespace still: {refused:?}");
    let mount = Mount::begin(&new, &place, &options);
    cluster.start().unwrap();
    assert_eq!(cluster.psql(ANSWERS).unwrap(), expected);
    assert!(dump(&cluster) == dumped);
    if installation.has_extension("amcheck") {
        amcheck(&cluster);
    }
    cluster.stop(StopMode::Fast).unwrap();
    let checked = run(pagewarden().arg("check").arg(cluster.data_dir()));
    assert_eq!(checked.status, Some(0), "{checked:?}");
    assert_eq!(mount.end().0.status, Some(0));
}

#[test]
fn a_packed_tablespace_lasts_through_vacuum_kills_and_a_repack() {
    if !has_fuse() {
        return;
    }
    let Some(installation) = crate::clusters::any_installation() else { return };
    goes_on(&installation, 2);
}

#[test]
#[ignore = "slow: many rounds of vacuum on each version"]
fn a_packed_tablespace_lasts_through_many_seasons() {
    if !has_fuse() {
        return;
    }
    for installation in installations() {
        goes_on(&installation, 6);
    }
}
