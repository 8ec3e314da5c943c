//! What pages say of other pages is what the server says in SQL, and true: every
//! row is in every index, and every entry of an index leads to a place in use.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::formats::postgres::files::names::Fork;
use pagewarden::formats::postgres::files::witness::heap::{self, LinePointer};
use pagewarden::formats::postgres::files::witness::summary::{self, Change, SummaryName};
use pagewarden::formats::postgres::files::witness::{Method, Tid, visibility_map};
use pagewarden::formats::postgres::page::Header;
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::servers::{installations, rows};

const PAGE_BYTES: usize = 8192;
/// `HEAP_ONLY_TUPLE`, at offset 18 of a tuple: no index knows it.
const HEAP_ONLY: u16 = 0x8000;

const INDEXES: &[(&str, Method, &str)] = &[
    ("by_word", Method::Btree, "btree (word)"),
    ("by_class", Method::Btree, "btree ((id % 10))"),
    ("by_many", Method::Btree, "btree (word, id, (id % 3))"),
    ("by_hash", Method::Hash, "hash (id)"),
    ("by_class_hash", Method::Hash, "hash ((id % 100))"),
    ("by_tags", Method::Gin, "gin (tags)"),
    ("by_tags_late", Method::Gin, "gin (tags) WITH (fastupdate = off)"),
    ("by_place", Method::Gist, "gist (place)"),
    ("by_point", Method::SpGist, "spgist (place)"),
    ("by_text", Method::SpGist, "spgist (word)"),
];

const ROWS: &str = "INSERT INTO item SELECT i, md5((i % 7000)::text), ARRAY[i % 50, i % 7, i],
    CASE WHEN i % 11 > 0 THEN point(i % 211, i % 307) END FROM generate_series";

fn make(installation: &Installation) -> Cluster {
    let mut options = Options::default().with("autovacuum", "off");
    if installation.major >= 17 {
        options = options.with("summarize_wal", "on");
    }
    let mut cluster = Cluster::init(installation, &options).unwrap();
    cluster.start().unwrap();
    let run = |sql: &str| drop(cluster.psql(&format!("{sql};")).unwrap());
    for extension in ["pageinspect", "pg_visibility"] {
        run(&format!("CREATE EXTENSION {extension}"));
    }
    run("CREATE TABLE item (id int, word text, tags int[], place point)");
    run(&format!("{ROWS}(1, 12000) i"));
    for (name, _, definition) in INDEXES {
        run(&format!("CREATE INDEX {name} ON item USING {definition}"));
    }
    run("CREATE INDEX by_range ON item USING brin (id)");
    // Splits, lists, pending entries.
    run(&format!("{ROWS}(12001, 20000) i"));
    run(&format!("BEGIN; {ROWS}(30001, 31000) i; ROLLBACK"));
    // Pages of indexes become empty and are deleted; blocks are used again.
    run("DELETE FROM item WHERE id BETWEEN 4000 AND 9000 OR word < '2'");
    run("VACUUM item");
    run(&format!("{ROWS}(40001, 42000) i"));
    run("UPDATE item SET tags = tags WHERE id % 9 = 0");
    run("DELETE FROM item WHERE id > 41000");
    run("VACUUM item");
    // Entries that are known to be dead, chains of versions, and pending entries.
    run("UPDATE item SET word = word || '+' WHERE id % 13 = 0");
    run("DELETE FROM item WHERE id % 17 = 0");
    run("SET enable_seqscan = off; SELECT count(*) FROM item WHERE word > 'a'");
    run(&format!("{ROWS}(50001, 50300) i"));
    run("CHECKPOINT");
    cluster
}

fn tids(cluster: &Cluster, sql: &str) -> BTreeSet<Tid> {
    rows(cluster, "postgres", sql)
        .into_iter()
        .map(|row| {
            let (block, number) = row[0].trim_matches(['(', ')']).split_once(',').unwrap();
            Tid { block: block.parse().unwrap(), number: number.parse().unwrap() }
        })
        .collect()
}

/// What pageinspect finds on the leaf pages of a btree.
fn inspected(cluster: &Cluster, index: &str) -> BTreeSet<Tid> {
    let major = cluster.installation().major;
    let rows = if major >= 13 { "unnest(coalesce(tids, ARRAY[htid]))" } else { "i.ctid" };
    let level = if major >= 14 { "btpo_level" } else { "btpo" };
    let sql = format!(
        "SELECT {rows} FROM generate_series(1, pg_relation_size('{index}') / 8192 - 1) b,
           LATERAL bt_page_stats('{index}', b::int) s, LATERAL bt_page_items('{index}', b::int) i
         WHERE s.type IN ('l', 'r') AND s.{level} = 0 AND (itemoffset > 1 OR btpo_next = 0)"
    );
    tids(cluster, &sql)
}

fn file(cluster: &Cluster, relation: &str, fork: Fork) -> PathBuf {
    let sql = format!("SELECT pg_relation_filepath('{relation}');");
    let path = format!("{}{}", cluster.psql(&sql).unwrap(), fork.suffix());
    cluster.data_dir().join(path)
}

fn visited(method: Method, bytes: &[u8]) -> BTreeSet<Tid> {
    let mut found = BTreeSet::new();
    for page in bytes.chunks(PAGE_BYTES) {
        method.visit(page, |tid| {
            found.insert(tid);
        });
    }
    found
}

fn is_heap_only(page: &[u8], number: u16) -> bool {
    match heap::line_pointer(page, number).unwrap() {
        LinePointer::Normal { offset, .. } => {
            let at = usize::from(offset) + 18;
            u16::from_le_bytes([page[at], page[at + 1]]) & HEAP_ONLY != 0
        }
        other => panic!("a row at {other:?}"),
    }
}

#[test]
fn entries_of_indexes_are_the_rows_of_the_heap() {
    for installation in installations() {
        let version = installation.version.clone();
        let mut cluster = make(&installation);
        let live = tids(&cluster, "SELECT ctid FROM item");
        assert!(live.len() > 5000, "{version}");
        let heap_file = file(&cluster, "item", Fork::Main);
        let indexes: Vec<_> = INDEXES
            .iter()
            .map(|(name, method, _)| {
                let expected = (*method == Method::Btree).then(|| inspected(&cluster, name));
                (*name, *method, file(&cluster, name, Fork::Main), expected)
            })
            .collect();
        let others = [("by_range", Method::Brin)]
            .map(|(name, method)| (method, file(&cluster, name, Fork::Main)));
        cluster.stop(StopMode::Fast).unwrap();

        let heap = fs::read(heap_file).unwrap();
        let block = |number: u32| {
            let begin = number as usize * PAGE_BYTES;
            heap.get(begin..begin + PAGE_BYTES).unwrap_or_else(|| panic!("{version}: {number}"))
        };
        for (name, method, path, expected) in indexes {
            let what = format!("{version}, {name}");
            let bytes = fs::read(path).unwrap();
            let found = visited(method, &bytes);
            for row in &live {
                let known = found.contains(row) || is_heap_only(block(row.block), row.number);
                assert!(known, "{what}: {row:?} is not in the index");
            }
            for entry in &found {
                let is_sound = heap::may_hold(block(entry.block), entry.number);
                assert!(is_sound, "{what}: {entry:?} leads nowhere");
            }
            if let Some(expected) = expected {
                assert!(found == expected, "{what}: {} {}", found.len(), expected.len());
            }
            let first = Header::read(&bytes[..PAGE_BYTES]).unwrap();
            assert!(!method.has_metapage() || !first.is_blank(), "{what}");
        }
        for (method, path) in others {
            assert!(method.has_metapage());
            let bytes = fs::read(path).unwrap();
            assert!(!Header::read(&bytes[..PAGE_BYTES]).unwrap().is_blank(), "{version}");
        }
    }
}

#[test]
fn bits_of_the_visibility_map_are_those_that_the_server_shows() {
    for installation in installations() {
        let version = installation.version.clone();
        let mut cluster = make(&installation);
        cluster.psql("VACUUM (FREEZE) item;").unwrap();
        cluster.psql("DELETE FROM item WHERE id = 100 OR id = 15000;").unwrap();
        let sql = "SELECT blkno, all_frozen FROM pg_visibility_map('item') WHERE all_visible";
        let expected: Vec<(u32, bool)> = rows(&cluster, "postgres", sql)
            .into_iter()
            .map(|row| (row[0].parse().unwrap(), row[1] == "t"))
            .collect();
        assert!(expected.len() > 50, "{version}");
        let path = file(&cluster, "item", Fork::Visibility);
        cluster.stop(StopMode::Fast).unwrap();
        let mut found = Vec::new();
        for (number, page) in (0..).zip(fs::read(path).unwrap().chunks(PAGE_BYTES)) {
            visibility_map::visit(page, number, |block, frozen| found.push((block, frozen)));
        }
        assert_eq!(found, expected, "{version}");
    }
}

/// Tablespace, database, file number, fork, block, and whether it is a limit.
type Summed = (u32, u32, u32, u32, u32, bool);

#[test]
fn summaries_say_what_the_server_reads_from_them() {
    for installation in installations().into_iter().filter(|one| one.major >= 17) {
        let version = installation.version.clone();
        let cluster = make(&installation);
        // A bitmap takes more than 4,095 blocks of one fork.
        let sql =
            "CREATE TABLE long AS SELECT i, repeat('x', 2000) FROM generate_series(1, 20000) i;
                   TRUNCATE item; CHECKPOINT; SELECT pg_switch_wal(); CHECKPOINT;";
        cluster.psql(sql).unwrap();
        let last: String = cluster.psql("SELECT redo_lsn FROM pg_control_checkpoint();").unwrap();
        let sql = format!("SELECT max(end_lsn) >= '{last}' FROM pg_available_wal_summaries();");
        let begin = Instant::now();
        while cluster.psql(&sql).unwrap() != "t" {
            assert!(begin.elapsed() < Duration::from_secs(60), "{version}: {}", cluster.log());
            thread::sleep(Duration::from_millis(50));
        }
        let (mut bitmaps, mut count) = (0, 0);
        for entry in fs::read_dir(cluster.data_dir().join("pg_wal/summaries")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let Some(SummaryName { timeline, begin, end }) = SummaryName::parse(&name) else {
                panic!("{version}: {name}");
            };
            let lsn = |lsn: u64| format!("{:X}/{:X}", lsn >> 32, lsn & 0xFFFF_FFFF);
            let sql = format!(
                "SELECT reltablespace, reldatabase, relfilenode, relforknumber, relblocknumber,
                   is_limit_block
                 FROM pg_wal_summary_contents({timeline}, '{}', '{}')",
                lsn(begin),
                lsn(end)
            );
            let expected: BTreeSet<Summed> = rows(&cluster, "postgres", &sql)
                .into_iter()
                .map(|row| {
                    let number = |at: usize| row[at].parse().unwrap();
                    (number(0), number(1), number(2), number(3), number(4), row[5] == "t")
                })
                .collect();
            let mut found = BTreeSet::new();
            let file = BufReader::new(File::open(entry.path()).unwrap());
            summary::read(file, |locator, fork, change| {
                let fork = match fork {
                    Fork::Main => 0,
                    Fork::FreeSpace => 1,
                    Fork::Visibility => 2,
                    Fork::Init => 3,
                };
                let (block, is_limit) = match change {
                    Change::Limit(block) => (block, true),
                    Change::Block(block) => (block, false),
                };
                let place = (locator.tablespace, locator.database, locator.number);
                found.insert((place.0, place.1, place.2, fork, block, is_limit));
            })
            .unwrap();
            assert!(found == expected, "{version}, {name}: {} {}", found.len(), expected.len());
            count += found.len();
            let blocks = found.iter().filter(|one| !one.5 && one.3 == 0).map(|one| one.2);
            bitmaps +=
                usize::from(
                    blocks.fold([0; 2], |[last, run], number| {
                        if last == number { [number, run + 1] } else { [number, 1] }
                    })[1]
                        > 4096,
                );
        }
        assert!(count > 5000, "{version}: {count} changes, {bitmaps} bitmaps");
    }
}
