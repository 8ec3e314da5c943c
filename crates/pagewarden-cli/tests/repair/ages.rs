//! Copies that are older than the damage by 0, 1 and 100 checkpoints, with changes between; and what the
//! server's own tools say of a cluster that was repaired by them.

use std::path::PathBuf;
use std::process::Command;

use pagewarden::repair::{Request, Verdict};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use super::history::base_backup;
use super::{AT_ONCE, Tally, attack, contents_of, places, run, wound};
use crate::clusters::installations_for_campaigns;
use crate::damage::{Dice, PAGE};

const TABLES: &[&str] = &[
    "CREATE TABLE item (id int PRIMARY KEY, word text)",
    "INSERT INTO item SELECT i, md5(i::text) FROM generate_series(1, 12000) i",
    "CREATE INDEX item_word ON item (word)",
    "CREATE TABLE still AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 6000) i",
    "CREATE INDEX still_word ON still USING hash (word)",
    "CREATE TABLE wide (id int PRIMARY KEY, document text)",
    "ALTER TABLE wide ALTER document SET STORAGE EXTERNAL",
    "INSERT INTO wide SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 60) i",
    "VACUUM ANALYZE",
];

struct Aged {
    cluster: Cluster,
    /// By checkpoints that the cluster made since, each after changes.
    copies: Vec<(u32, PathBuf)>,
}

fn change(cluster: &mut Cluster, round: u32) {
    // In its own place and in another, near the beginning and at the end.
    let statements = [
        format!(
            "UPDATE item SET word = 'in {round} ' || id WHERE id BETWEEN {round} AND {round} + 20"
        ),
        format!("DELETE FROM item WHERE id = 11000 + {round}"),
        format!(
            "INSERT INTO item SELECT 20000 + {round} * 50 + i, md5(i::text) FROM generate_series(1, 40) i"
        ),
        format!("UPDATE wide SET document = document || '{round}' WHERE id = {round} % 60"),
        "CHECKPOINT".to_owned(),
    ];
    let statements: Vec<_> = statements.iter().map(String::as_str).collect();
    cluster.execute("postgres", &statements).unwrap();
}

fn aged(installation: &Installation) -> Option<Aged> {
    let options = Options { wal_segment_mib: Some(1), ..Options::default() }
        .with("autovacuum", "off")
        .with("wal_keep_size", "'1GB'");
    let mut cluster = Cluster::init(installation, &options).unwrap();
    cluster.start().unwrap();
    if !cluster.has_psql() || cluster.client("pg_basebackup").is_err() {
        return None;
    }
    cluster.execute("postgres", TABLES).unwrap();
    let hundred = base_backup(&cluster, "hundred", &["-X", "none"]);
    (1..100).for_each(|round| change(&mut cluster, round));
    let one = base_backup(&cluster, "one", &["-X", "none"]);
    change(&mut cluster, 100);
    cluster.stop(StopMode::Fast).unwrap();
    let none = cluster.home().join("none");
    cluster.copy_data_dir(&none).unwrap();
    Some(Aged { cluster, copies: vec![(0, none), (1, one), (100, hundred)] })
}

/// What another program says, which must be content.
fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}{stderr}",
        String::from_utf8_lossy(&output.stdout)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    // Drawn anew for each dump.
    text.lines().filter(|line| !line.contains("restrict ")).collect::<Vec<_>>().join("\n")
}

fn dump(cluster: &Cluster) -> String {
    let mut command = cluster.client("pg_dump").unwrap();
    command.arg("postgres");
    said(command)
}

#[test]
fn copies_older_by_up_to_a_hundred_checkpoints_are_exact_only_for_what_did_not_change() {
    let seeds = std::env::var("PAGEWARDEN_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut dice = Dice::seeded();
    for installation in installations_for_campaigns() {
        let version = &installation.version;
        let Some(Aged { mut cluster, copies }) = aged(&installation) else {
            println!("SKIPPED: PostgreSQL {version} has no psql, or no pg_basebackup");
            continue;
        };
        for (age, copy) in &copies {
            let mut sum = Tally::default();
            for _ in 0..seeds.unwrap_or(1) {
                let root = cluster.data_dir().to_owned();
                let tally = attack(&root, std::slice::from_ref(copy), &mut dice, |_| true, AT_ONCE);
                sum.exact += tally.exact;
                sum.rebuilt += tally.rebuilt;
                sum.left += tally.left;
            }
            println!("PostgreSQL {version}, older by {age} checkpoints: {sum:?}");
            assert!(sum.exact > 0 && (*age == 0 || sum.left > 0), "{age}: {sum:?}");
        }
        if installation.has("pg_amcheck") && installation.has_extension("amcheck") {
            the_servers_tools_find_nothing(&mut cluster, &copies, &mut dice);
        } else {
            println!("SKIPPED: PostgreSQL {version} has no pg_amcheck");
        }
    }
}

/// Wounds the cluster and repairs it by all copies: indexes and a dump are what they were.
fn the_servers_tools_find_nothing(
    cluster: &mut Cluster,
    copies: &[(u32, PathBuf)],
    dice: &mut Dice,
) {
    cluster.start().unwrap();
    cluster.psql("CREATE EXTENSION amcheck").unwrap();
    let expected = dump(cluster);
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir().to_owned();
    let last = cluster.home().join("last");
    cluster.copy_data_dir(&last).unwrap();
    let sound = contents_of(&root);
    // A file of one page or two leaves nothing that shows whose it is, if they are damaged.
    let is_wanted = |file: &str| file.starts_with("base/") && sound[file].len() >= 8 * PAGE;
    let wounds = wound(&root, &sound, dice, is_wanted, AT_ONCE);
    let mut sources = places(std::slice::from_ref(&last));
    sources.extend(copies.iter().skip(1).map(|(_, copy)| copy.as_path().into()));
    let outcome = run(&Request { sources, write: true, ..Request::new(&root) });
    assert_eq!(outcome.verdict, Verdict::Repaired, "{outcome:?}");
    assert!(outcome.pages.len() > wounds.len() / 2, "{outcome:?}");
    cluster.start().unwrap();
    let mut amcheck = cluster.client("pg_amcheck").unwrap();
    amcheck.args(["--heapallindexed", "-d", "postgres"]);
    said(amcheck);
    assert!(dump(cluster) == expected, "the dump has changed");
    cluster.stop(StopMode::Fast).unwrap();
}
