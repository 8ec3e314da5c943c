//! The cluster that is wounded: small, with every kind of file, and its files as they
//! were some time before.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

/// What a file is, as far as it matters for what can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Heap,
    Btree,
    Hash,
    Gist,
    Gin,
    SpGist,
    Brin,
    Sequence,
    Init,
    FreeSpace,
    VisibilityMap,
    TransactionStatus,
    Log,
    /// Small files that a server reads when it starts.
    Small,
    Folder,
    TablespaceLink,
}

/// A file or folder of the cluster, relative to the data directory.
#[derive(Debug, Clone)]
pub struct Thing {
    pub path: String,
    pub class: Class,
}

pub struct Subject {
    pub cluster: Cluster,
    pub things: Vec<Thing>,
    /// Files of relations and of transaction status as they were.
    pub older: BTreeMap<String, Vec<u8>>,
}

const DATABASES: [&str; 2] = ["postgres", "other"];

const BEFORE: &[&str] = &[
    "CREATE TABLE item (id int PRIMARY KEY, word text, tags int[], place point)",
    "INSERT INTO item SELECT i, md5(i::text), ARRAY[i % 50, i % 7, i], point(i % 211, i % 307)
       FROM generate_series(1, 6000) i",
    "CREATE INDEX item_btree ON item (word)",
    "CREATE INDEX item_hash ON item USING hash (id)",
    "CREATE INDEX item_gin ON item USING gin (tags)",
    "CREATE INDEX item_gist ON item USING gist (place)",
    "CREATE INDEX item_spgist ON item USING spgist (place)",
    "CREATE INDEX item_brin ON item USING brin (id)",
    "CREATE TABLE plain AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 3000) i",
    "CREATE TABLE wide (id int PRIMARY KEY, document text)",
    "ALTER TABLE wide ALTER document SET STORAGE EXTERNAL",
    "INSERT INTO wide SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 60) i",
    "CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY, word text)",
    "INSERT INTO fleeting SELECT i, md5(i::text) FROM generate_series(1, 1500) i",
    "CREATE UNLOGGED TABLE fleeting_bare AS SELECT * FROM plain",
    "CREATE MATERIALIZED VIEW summary AS SELECT id % 10 AS class, count(*) AS n FROM item GROUP BY 1",
    "CREATE SEQUENCE serial",
    "SELECT count(nextval('serial')) FROM generate_series(1, 100)",
    "CREATE TABLE elsewhere (id int, word text) TABLESPACE faraway",
    "INSERT INTO elsewhere SELECT i, md5(i::text) FROM generate_series(1, 2000) i",
    "CREATE INDEX elsewhere_btree ON elsewhere (word) TABLESPACE faraway",
    "CREATE TABLE part (id int, word text) PARTITION BY RANGE (id)",
    "CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (1000)",
    "CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (1000) TO (1000000)",
    "INSERT INTO part SELECT i, md5(i::text) FROM generate_series(1, 3000) i",
    "CREATE TABLE nothing (id int)",
    "SELECT lo_from_bytea(4711, repeat('a', 9000)::bytea)",
    "CREATE DATABASE other",
    "VACUUM ANALYZE",
];

const AFTER: &[&str] = &[
    "UPDATE item SET word = 'new ' || word WHERE id % 3 = 0",
    "DELETE FROM item WHERE id % 5 = 0",
    "VACUUM item",
    "UPDATE plain SET word = 'new ' || word WHERE id % 4 = 0",
    "UPDATE wide SET document = document || 'x' WHERE id % 3 = 0",
    "UPDATE fleeting SET word = 'new' WHERE id % 2 = 0",
    "INSERT INTO elsewhere SELECT i, md5(i::text) FROM generate_series(2001, 2500) i",
    "DELETE FROM part WHERE id % 7 = 0",
    "SELECT count(nextval('serial')) FROM generate_series(1, 50)",
    "CREATE TABLE late AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 500) i",
    "CREATE INDEX late_word ON late (word)",
    "SELECT pg_create_physical_replication_slot('slot', true)",
];

/// Many transactions, so that their status takes more than a few bytes; a multixact.
const TRANSACTIONS: &str = "
    CREATE TABLE m (id int PRIMARY KEY, word text);
    INSERT INTO m SELECT i, 'a' FROM generate_series(1, 99) i;
    DO $$ BEGIN FOR i IN 1..3000 LOOP
      BEGIN INSERT INTO m VALUES (1000 + i, 'b'); EXCEPTION WHEN others THEN NULL; END;
    END LOOP; END $$;
    BEGIN; SELECT count(*) FROM (SELECT * FROM m FOR KEY SHARE) x;
    SAVEPOINT s; UPDATE m SET word = 'b' WHERE id < 50; COMMIT;";

impl Subject {
    /// `None` where there is no psql.
    pub fn new(installation: &Installation) -> Option<Self> {
        let options = Options { wal_segment_mib: Some(1), ..Options::default() }
            .with("autovacuum", "off")
            .with("max_prepared_transactions", "5")
            .with("min_wal_size", "'2MB'")
            .with("max_wal_size", "'4MB'");
        let mut cluster = Cluster::init(installation, &options).unwrap();
        cluster.start().unwrap();
        if !cluster.has_psql() {
            return None;
        }
        cluster.add_tablespace("faraway").unwrap();
        cluster.execute("postgres", BEFORE).unwrap();
        let other = [BEFORE[0], BEFORE[1], BEFORE[2], "VACUUM ANALYZE"];
        cluster.execute("other", &other).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let older = contents(cluster.data_dir());
        cluster.start().unwrap();
        cluster.psql(TRANSACTIONS).unwrap();
        cluster.execute("postgres", AFTER).unwrap();
        let other = ["UPDATE item SET word = 'new ' || word WHERE id % 3 = 0"];
        cluster.execute("other", &other).unwrap();
        cluster.psql("BEGIN; INSERT INTO m VALUES (9000, 'p'); PREPARE TRANSACTION 'aa';").unwrap();
        let relations = relations(&mut cluster);
        cluster.stop(StopMode::Fast).unwrap();
        let mut things = things(cluster.data_dir(), &relations);
        things.sort_by(|a, b| a.path.cmp(&b.path));
        Some(Self { cluster, things, older })
    }

    pub fn read(&self, thing: &Thing) -> Vec<u8> {
        fs::read(self.cluster.data_dir().join(&thing.path)).unwrap()
    }
}

/// The classes of main forks, by the path of their first segment.
fn relations(cluster: &mut Cluster) -> BTreeMap<String, Class> {
    const LISTED: &str = "SELECT pg_relation_filepath(c.oid), relkind, amname
        FROM pg_class c LEFT JOIN pg_am a ON a.oid = relam
        WHERE pg_relation_filepath(c.oid) IS NOT NULL";
    let mut relations = BTreeMap::new();
    for database in DATABASES {
        for row in cluster.execute(database, &[LISTED]).unwrap().lines() {
            let fields: Vec<_> = row.split('|').collect();
            let class = match (fields[1], fields[2]) {
                ("S", _) => Class::Sequence,
                ("i", "btree") => Class::Btree,
                ("i", "hash") => Class::Hash,
                ("i", "gist") => Class::Gist,
                ("i", "gin") => Class::Gin,
                ("i", "spgist") => Class::SpGist,
                ("i", "brin") => Class::Brin,
                _ => Class::Heap,
            };
            relations.insert(fields[0].to_owned(), class);
        }
    }
    relations
}

/// Everything in the cluster that can be wounded.
fn things(root: &Path, relations: &BTreeMap<String, Class>) -> Vec<Thing> {
    let mut things = Vec::new();
    each_below(root, "", &mut |path, is_folder| {
        let class = if is_folder { Some(Class::Folder) } else { class_of(path, relations) };
        things.extend(class.map(|class| Thing { path: path.to_owned(), class }));
    });
    for entry in fs::read_dir(root.join("pg_tblspc")).unwrap().flatten() {
        let path = format!("pg_tblspc/{}", entry.file_name().display());
        things.retain(|thing| thing.path != path);
        things.push(Thing { path, class: Class::TablespaceLink });
    }
    things
}

fn class_of(path: &str, relations: &BTreeMap<String, Class>) -> Option<Class> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if folder.starts_with("pg_xact") || folder.starts_with("pg_multixact") {
        return Some(Class::TransactionStatus);
    }
    if folder == "pg_wal" {
        return Some(Class::Log);
    }
    if ["PG_VERSION", "pg_control", "pg_filenode.map", "state"].contains(&name)
        || folder == "pg_twophase"
        || name.ends_with(".conf")
    {
        return Some(Class::Small);
    }
    let (number, fork) = name.split_once('_').map_or((name, ""), |(number, fork)| (number, fork));
    let number: u32 = number.parse().ok()?;
    match fork {
        "fsm" => return Some(Class::FreeSpace),
        "vm" => return Some(Class::VisibilityMap),
        "init" => return Some(Class::Init),
        _ => {}
    }
    let known = relations.get(path).copied();
    // Databases that were not asked have their catalogues under the same numbers.
    known.or_else(|| {
        let twin = |(other, _): &(&String, &Class)| {
            other.starts_with("base/") && other.ends_with(&format!("/{number}"))
        };
        relations.iter().find(twin).map(|(_, class)| *class)
    })
}

/// Calls `each` for every file and folder below, links followed, with its path and whether it
/// is a folder.
fn each_below(root: &Path, below: &str, each: &mut impl FnMut(&str, bool)) {
    let mut names: Vec<_> = fs::read_dir(root.join(below))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in names {
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let is_folder = root.join(&path).is_dir();
        each(&path, is_folder);
        if is_folder {
            each_below(root, &path, each);
        }
    }
}

fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    each_below(root, "", &mut |path, is_folder| {
        let parts = ["base/", "global/", "pg_tblspc/", "pg_xact/", "pg_multixact/"];
        if !is_folder && parts.iter().any(|part| path.starts_with(part)) {
            contents.insert(path.to_owned(), fs::read(root.join(path)).unwrap());
        }
    });
    contents
}
