//! What a single witness vouches for is found when it is gone: each index method
//! by itself, the visibility map, the catalogue, summaries of the log.

use std::fs;
use std::path::Path;
use std::slice;

use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use crate::clusters::{any_installation, give_to_owner_of_folder, installations};
use crate::damage::{PAGE, Wound, page, page_mut};
use crate::runner::{Finding, Report, check};

/// Tables with one witness each, and what else can be gone.
const CONTENT: [&str; 15] = [
    "CREATE TABLE by_btree AS SELECT i, md5(i::text) AS word FROM generate_series(1, 9000) i",
    "CREATE INDEX ON by_btree (i)",
    "CREATE TABLE by_hash AS SELECT * FROM by_btree",
    "CREATE INDEX ON by_hash USING hash (word)",
    "CREATE TABLE by_gist AS SELECT i, point(i, i) AS place, word FROM by_btree",
    "CREATE INDEX ON by_gist USING gist (place)",
    "CREATE TABLE by_spgist AS SELECT * FROM by_gist",
    "CREATE INDEX ON by_spgist USING spgist (place)",
    "CREATE TABLE by_gin AS SELECT i, ARRAY[i, i % 10] AS numbers, word FROM by_btree",
    "CREATE INDEX ON by_gin USING gin (numbers)",
    "CREATE TABLE by_map AS SELECT * FROM by_btree",
    "VACUUM by_map",
    "CREATE TABLE alone AS SELECT * FROM by_btree",
    "CREATE SEQUENCE numbers",
    "CREATE TABLE long (t text); INSERT INTO long VALUES ('x'); CREATE UNLOGGED TABLE light (i int)",
];

fn cluster() -> Option<Cluster> {
    let installation = any_installation()?;
    let options = Options { checksums: true, ..Options::default() }.with("autovacuum", "off");
    let mut cluster = Cluster::init(&installation, &options).unwrap();
    cluster.start().unwrap();
    cluster.execute("postgres", &CONTENT).unwrap();
    cluster.execute("postgres", &["CREATE DATABASE spare"]).unwrap();
    Some(cluster)
}

fn file(cluster: &mut Cluster, relation: &str) -> String {
    cluster.relation_path("postgres", relation).unwrap().to_str().unwrap().to_owned()
}

fn only(report: &Report, expected: &Finding, object: &str, words: &str) {
    assert_eq!(report.findings(), slice::from_ref(expected), "{object}: {:?}", report.details());
    let finding = &report.raw_findings()[0];
    assert_eq!(finding["object"], object);
    assert_eq!(finding["database"], "postgres");
    assert!(report.details()[0].contains(words), "{object}: {:?}", report.details());
    assert_eq!(report.verdict(), "damaged");
}

#[test]
fn each_witness_alone_vouches_for_a_page_and_for_the_end() {
    let Some(mut cluster) = cluster() else { return };
    let witnessed = [
        ("by_btree", "by_btree_i_idx lead to"),
        ("by_hash", "by_hash_word_idx lead to"),
        ("by_gist", "by_gist_place_idx lead to"),
        ("by_spgist", "by_spgist_place_idx lead to"),
        ("by_gin", "by_gin_numbers_idx lead to"),
        ("by_map", "visibility map"),
    ];
    let files: Vec<_> =
        witnessed.map(|(table, words)| (table, file(&mut cluster, table), words)).into();
    let alone = file(&mut cluster, "alone");
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir().to_owned();
    let before = check([&root]).report();
    assert_eq!((before.findings(), before.verdict()), (vec![], "intact"));
    for (table, file, words) in &files {
        let object = format!("public.{table}");
        let wound = Wound::to(root.join(file)).change(|bytes| page_mut(bytes, 20).fill(0));
        let report = check([&root]).report();
        only(&report, &Finding::page(file, 20, "damage", "zeroed"), &object, words);
        // The page was counted as empty, and counts as damaged.
        assert_eq!(report.pages("damaged"), 1);
        assert_eq!(report.pages("empty"), before.pages("empty"));
        assert_eq!(report.pages("total"), before.pages("total"));
        // By itself it is an empty page.
        let unasked = check(["--no-witness".as_ref(), root.as_os_str()]).report();
        assert_eq!((unasked.findings(), unasked.verdict()), (vec![], "intact"));
        drop(wound);
        let mut end = 0;
        let wound = Wound::to(root.join(file)).change(|bytes| {
            let used = |page: &[u8]| page.iter().any(|byte| *byte != 0);
            end = bytes.chunks_exact(PAGE).rposition(used).unwrap() as u64 - 4;
            bytes.truncate(end as usize * PAGE);
        });
        let report = check([&root]).report();
        only(
            &report,
            &Finding::page(file, end, "damage", "truncated"),
            &object,
            "the relation ends",
        );
        drop(wound);
    }
    // No witness speaks for this one.
    let _wound = Wound::to(root.join(&alone)).change(|bytes| page_mut(bytes, 20).fill(0));
    assert_eq!(check([&root]).report().findings(), []);
}

#[test]
fn what_the_catalogue_lists_must_be_there_and_begin() {
    let Some(mut cluster) = cluster() else { return };
    let toast = "SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'long'";
    let toast = cluster.execute("postgres", &[toast]).unwrap();
    let light = file(&mut cluster, "light");
    let mut gone = vec![
        (file(&mut cluster, "alone"), "public.alone"),
        (file(&mut cluster, "numbers"), "public.numbers"),
        (file(&mut cluster, "by_hash_word_idx"), "public.by_hash_word_idx"),
        (file(&mut cluster, toast.trim()), "public.long (TOAST)"),
        (format!("{light}_init"), "public.light"),
    ];
    let spare = "SELECT oid FROM pg_database WHERE datname = 'spare'";
    let spare = cluster.execute("postgres", &[spare]).unwrap().trim().to_owned();
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir().to_owned();
    for (file, object) in &gone {
        let _wound = Wound::to(root.join(file)).remove();
        let report = check([&root]).report();
        only(&report, &Finding::file(file, "damage", "missing"), object, "pg_class lists it");
    }
    gone.truncate(3);
    for (file, object) in &gone[1..] {
        let wound = Wound::to(root.join(file)).change(|bytes| page_mut(bytes, 0).fill(0));
        let report = check([&root]).report();
        only(&report, &Finding::page(file, 0, "damage", "zeroed"), object, "never empty");
        drop(wound);
    }
    let folder = root.join("base").join(&spare);
    let kept = root.join("kept");
    fs::rename(&folder, &kept).unwrap();
    let report = check([&root]).report();
    assert_eq!(report.findings(), [Finding::file(&format!("base/{spare}"), "damage", "missing")]);
    assert_eq!(report.raw_findings()[0]["database"], "spare");
    fs::rename(&kept, &folder).unwrap();
    // What no catalogue lists is no finding.
    let orphan = root.join("base").join(&spare).join("99990");
    fs::write(&orphan, b"").unwrap();
    give_to_owner_of_folder(&orphan);
    let report = check([&root]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"));
    assert!(report.target()["notes"].to_string().contains("belong to no relation"));
}

/// 17 and later: the log's summaries remember that a page was changed.
#[test]
fn lost_write_is_found_by_summaries_of_the_log() {
    for installation in installations().into_iter().filter(|one| one.major >= 17) {
        let options = Options { checksums: true, ..Options::default() }
            .with("summarize_wal", "on")
            .with("autovacuum", "off");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        cluster.execute("postgres", &[CONTENT[0], "CHECKPOINT"]).unwrap();
        let file = file(&mut cluster, "by_btree");
        let path = cluster.data_dir().join(&file);
        let before = fs::read(&path).unwrap();
        cluster
            .execute("postgres", &["DELETE FROM by_btree WHERE i % 3 = 0", "CHECKPOINT"])
            .unwrap();
        // A page of its own log later, and until it is summarised.
        cluster.execute("postgres", &["CREATE TABLE later (i int)", "CHECKPOINT"]).unwrap();
        wait_for_summaries(&mut cluster);
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir().to_owned();
        assert_eq!(check([&root]).report().findings(), [], "{}", installation.version);
        let _wound = Wound::to(path).change(|bytes| {
            page_mut(bytes, 30).copy_from_slice(page(&before, 30));
        });
        let report = check([&root]).report();
        let stale = Finding::page(&file, 30, "damage", "stale");
        only(&report, &stale, "public.by_btree", "a summary of the log");
    }
}

fn wait_for_summaries(cluster: &mut Cluster) {
    let done = "SELECT summarized_lsn >= redo_lsn FROM pg_get_wal_summarizer_state(), pg_control_checkpoint()";
    for _ in 0..300 {
        if cluster.execute("postgres", &[done]).unwrap().trim() == "t" {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!(
        "no summary within 30 s: {:?}",
        fs::read_dir(folder_of(cluster.data_dir())).unwrap().count()
    );
}

fn folder_of(root: &Path) -> std::path::PathBuf {
    root.join("pg_wal/summaries")
}
