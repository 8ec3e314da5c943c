//! A cluster with copies of several ages, and all kinds of changes between them.

use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

pub struct History {
    /// Shut down.
    pub cluster: Cluster,
    /// File copy of an earlier shutdown.
    pub older: PathBuf,
    /// Base backup of about the same time, with its own log.
    pub early: PathBuf,
    /// Base backup before the last changes, without log.
    pub late: PathBuf,
    /// File copy of the last shutdown.
    pub same: PathBuf,
}

const BEFORE: &[&str] = &[
    "CREATE TABLE item (id int PRIMARY KEY, word text, tags int[], place point)",
    "INSERT INTO item SELECT i, md5(i::text), ARRAY[i % 50, i % 7, i], point(i % 211, i % 307)
       FROM generate_series(1, 4000) i",
    "CREATE INDEX item_btree ON item (word)",
    "CREATE INDEX item_hash ON item USING hash (id)",
    "CREATE INDEX item_gin ON item USING gin (tags)",
    "CREATE INDEX item_gist ON item USING gist (place)",
    "CREATE INDEX item_spgist ON item USING spgist (place)",
    "CREATE INDEX item_brin ON item USING brin (id)",
    "CREATE TABLE still AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 6000) i",
    "CREATE INDEX still_id ON still (id)",
    "CREATE TABLE wide (id int PRIMARY KEY, document text)",
    "ALTER TABLE wide ALTER document SET STORAGE EXTERNAL",
    "INSERT INTO wide SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 60) i",
    "CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY, word text)",
    "INSERT INTO fleeting SELECT i, md5(i::text) FROM generate_series(1, 1500) i",
    "CREATE SEQUENCE serial",
    "SELECT count(nextval('serial')) FROM generate_series(1, 100)",
    "CREATE TABLE shrunk AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 5000) i",
    "CREATE TABLE elsewhere (id int, word text) TABLESPACE faraway",
    "INSERT INTO elsewhere SELECT i, md5(i::text) FROM generate_series(1, 2000) i",
    "VACUUM ANALYZE",
    "CREATE DATABASE other",
];

const BETWEEN: &[&str] = &[
    "UPDATE item SET word = 'new ' || word WHERE id % 300 = 0",
    "DELETE FROM shrunk WHERE id > 1000",
    "VACUUM shrunk",
    "SELECT count(*) FROM still",
    "SELECT count(nextval('serial')) FROM generate_series(1, 5)",
    "INSERT INTO elsewhere SELECT i, md5(i::text) FROM generate_series(2001, 2500) i",
    "CHECKPOINT",
];

const AFTER: &[&str] = &[
    "INSERT INTO shrunk SELECT i, 'again ' || md5(i::text) FROM generate_series(1001, 3000) i",
    "UPDATE item SET word = 'newer ' || word WHERE id % 500 = 0",
    "DELETE FROM item WHERE id BETWEEN 1000 AND 1100",
    "VACUUM item",
    "SELECT count(nextval('serial')) FROM generate_series(1, 3)",
    "UPDATE wide SET document = document || 'x' WHERE id % 20 = 0",
    "UPDATE fleeting SET word = 'new' WHERE id % 2 = 0",
    "CREATE TABLE late AS SELECT i AS id, md5(i::text) AS word FROM generate_series(1, 500) i",
    "TRUNCATE late",
    "INSERT INTO late SELECT i, 'late' FROM generate_series(1, 3000) i",
];

impl History {
    /// `None` where there is no psql, or no `pg_basebackup`.
    pub fn new(installation: &Installation) -> Option<Self> {
        let options = Options { wal_segment_mib: Some(1), ..Options::default() }
            .with("autovacuum", "off")
            .with("min_wal_size", "'64MB'")
            .with("max_wal_size", "'128MB'")
            .with("wal_keep_size", "'256MB'");
        let mut cluster = Cluster::init(installation, &options).unwrap();
        cluster.start().unwrap();
        if !cluster.has_psql() || cluster.client("pg_basebackup").is_err() {
            return None;
        }
        cluster.add_tablespace("faraway").unwrap();
        cluster.execute("postgres", BEFORE).unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let older = cluster.home().join("older");
        cluster.copy_data_dir(&older).unwrap();
        cluster.start().unwrap();
        let early = base_backup(&cluster, "early", &["-X", "stream"]);
        cluster.execute("postgres", BETWEEN).unwrap();
        let late = base_backup(&cluster, "late", &["-X", "none"]);
        cluster.execute("postgres", AFTER).unwrap();
        cluster
            .execute("other", &["CREATE TABLE t AS SELECT generate_series(1, 3000) AS i"])
            .unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let same = cluster.home().join("same");
        cluster.copy_data_dir(&same).unwrap();
        Some(Self { cluster, older, early, late, same })
    }

    /// What pages are brought back from.
    pub fn sources(&self) -> Vec<(&'static str, Vec<PathBuf>)> {
        let of = |path: &Path| vec![path.to_owned()];
        vec![
            ("same state", of(&self.same)),
            ("late backup", of(&self.late)),
            ("early backup", of(&self.early)),
            ("older copy", of(&self.older)),
            ("own log", Vec::new()),
            ("all but the same", vec![self.older.clone(), self.late.clone(), self.early.clone()]),
        ]
    }

    /// The server starts, and reads every row and index.
    pub fn check_server(mut self) {
        self.cluster.start().unwrap();
        self.cluster
            .psql(
                "SELECT count(*), count(word) FROM item; SET enable_seqscan = off; \
                 SELECT count(*) FROM item WHERE word >= ''; SELECT count(*) FROM elsewhere; \
                 SELECT sum(length(document)) FROM wide; SELECT nextval('serial'); VACUUM;",
            )
            .unwrap();
        self.cluster.stop(StopMode::Fast).unwrap();
    }
}

/// A base backup in a folder, with its tablespaces beside it.
pub fn base_backup(cluster: &Cluster, name: &str, arguments: &[&str]) -> PathBuf {
    let target = cluster.home().join(name);
    let mut command: Command = cluster.client("pg_basebackup").unwrap();
    command.args(["-c", "fast", "-D"]).arg(&target).args(arguments);
    for entry in std::fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap().flatten() {
        let place = std::fs::read_link(entry.path()).unwrap();
        let copy =
            cluster.home().join(format!("{name}-tablespace-{}", entry.file_name().display()));
        command.arg("-T").arg(format!("{}={}", place.display(), copy.display()));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    target
}
