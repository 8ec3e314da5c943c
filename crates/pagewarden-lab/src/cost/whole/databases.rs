//! Databases at rest of three engines, each with tables, indexes and long values; some rows were
//! changed since the older state of its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use pagewarden::formats::innodb::checksum::{crc32, full_crc32};
use pagewarden::formats::postgres::checksum::{checksum, hash_pages};
use pagewarden::formats::sqlite::checksum::page_verify::{self, Marker};
use pagewarden::verdict::PageNo;
use pagewarden_scratch::home::Home;
use pagewarden_scratch::mariadb::{Installation, Server};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};
use rusqlite::{Connection, OpenFlags};

use crate::cost::whole::{Database, page_file};
use crate::cost::{postgres, program};

/// Rows of the table that has most of them.
const ROWS: u32 = 20_000;

/// A cluster after a clean stop: an ordered table with three indexes, and one with long values.
///
/// # Errors
/// It could not be made, or is not sound.
pub fn postgres(stop: &AtomicBool) -> Result<Database> {
    let installation = postgres::required_newest()?;
    let options = Options::default().with("autovacuum", "off");
    let mut cluster = Cluster::init(&installation, &options)?;
    cluster.start()?;
    let sql = format!(
        "CREATE TABLE item (id int PRIMARY KEY, word text COLLATE \"C\", body text);
         CREATE INDEX item_word ON item (word);
         CREATE TABLE long (id int PRIMARY KEY, body text);
         ALTER TABLE long ALTER body SET STORAGE EXTERNAL;
         INSERT INTO item SELECT i, md5(i::text), repeat(md5(i::text), 1 + i % 5)
             FROM generate_series(1, {ROWS}) i;
         INSERT INTO long SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, {ROWS} / 100) i;
         VACUUM ANALYZE; CHECKPOINT;"
    );
    program::expect(&mut psql(&cluster)?, &sql, stop)?;
    let mut names = Vec::new();
    for relation in ["item", "item_pkey", "item_word", "long", "long_pkey"] {
        names.push(cluster.relation_path("postgres", relation)?);
    }
    let toast =
        cluster.psql("SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'long'")?;
    names.push(cluster.relation_path("postgres", toast.trim())?);
    cluster.stop(StopMode::Fast)?;
    let root = cluster.data_dir().to_owned();
    let before = read_all(&root, &names)?;
    cluster.start()?;
    let sql = "UPDATE item SET word = reverse(word) WHERE id % 200 = 0;
        UPDATE long SET body = reverse(body) WHERE id % 10 = 0;
        DELETE FROM item WHERE id % 211 = 0; VACUUM; CHECKPOINT;";
    program::expect(&mut psql(&cluster)?, sql, stop)?;
    cluster.stop(StopMode::Fast)?;
    const PAGE_BYTES: usize = 8192;
    let files = names.iter().zip(before);
    let files = files.map(|(name, before)| page_file(&root, name, before, PAGE_BYTES));
    let stamp = |page: &mut [u8], index: usize, _: &[u8]| {
        let mut hash = [0];
        hash_pages(page, PAGE_BYTES, &mut hash);
        let [hash] = hash;
        let sum = checksum(hash, u32::try_from(index).unwrap_or(u32::MAX));
        put(page, 8, &sum.to_le_bytes());
    };
    let files: Vec<_> = files.collect::<Result<_>>()?;
    Database::new(root, files, stamp, Box::new(cluster))
}

fn psql(cluster: &Cluster) -> Result<std::process::Command> {
    let mut command = cluster.client("psql")?;
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
    Ok(command)
}

/// A data directory of MariaDB at rest, with the same tables.
///
/// # Errors
/// It could not be made, or is not sound.
pub fn mariadb(installation: &Installation, stop: &AtomicBool) -> Result<Database> {
    let options = ["innodb_log_file_size=8M", "innodb_stats_auto_recalc=OFF"];
    let mut server = Server::install(installation, &options)?;
    server.start()?;
    let sql = format!(
        "CREATE DATABASE cost; USE cost;
         CREATE TABLE item (id INT PRIMARY KEY, word VARBINARY(40), body TEXT CHARACTER SET latin1,
             KEY (word)) ENGINE=InnoDB;
         CREATE TABLE `long` (id INT PRIMARY KEY, body LONGTEXT CHARACTER SET latin1) ENGINE=InnoDB;
         INSERT INTO item SELECT seq, MD5(seq), REPEAT(MD5(seq), 1 + seq % 5) FROM seq_1_to_{ROWS};
         INSERT INTO `long` SELECT seq, REPEAT(MD5(seq), 600) FROM seq_1_to_{ROWS} WHERE seq % 200 = 0;"
    );
    program::expect(&mut server.client(), &sql, stop)?;
    server.stop()?;
    let root = server.data_dir().to_owned();
    let names = ["cost/item.ibd", "cost/long.ibd"].map(PathBuf::from);
    let before = read_all(&root, &names)?;
    server.start()?;
    let sql = "USE cost; UPDATE item SET word = REVERSE(word) WHERE id % 200 = 0;
        UPDATE `long` SET body = REVERSE(body) WHERE id % 2000 = 0;
        DELETE FROM item WHERE id % 211 = 0;";
    program::expect(&mut server.client(), sql, stop)?;
    server.stop()?;
    const PAGE_BYTES: usize = 16_384;
    let files = names.iter().zip(before);
    let files = files.map(|(name, before)| page_file(&root, name, before, PAGE_BYTES));
    let files: Vec<_> = files.collect::<Result<_>>()?;
    let flags = files.first().and_then(|file| file.page(0).get(54..58)?.first_chunk().copied());
    let is_full = u32::from_be_bytes(flags.context("an empty tablespace")?) & FULL_CRC32 != 0;
    let stamp = if is_full { stamp_full_crc32 } else { stamp_crc32 };
    Database::new(root, files, stamp, Box::new(server))
}

/// Of the flags of a tablespace.
const FULL_CRC32: u32 = 1 << 4;

/// The number of the page, and the low half of its LSN at the end.
fn stamp_full_crc32(page: &mut [u8], index: usize, sound: &[u8]) {
    put(page, 4, &u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes());
    put(page, 34, sound.get(34..38).unwrap_or_default());
    let end = page.len();
    let lsn: Vec<u8> = page.get(20..24).unwrap_or_default().to_vec();
    put(page, end - 8, &lsn);
    let sum = full_crc32(page);
    put(page, end - 4, &sum.to_be_bytes());
}

fn stamp_crc32(page: &mut [u8], index: usize, sound: &[u8]) {
    put(page, 4, &u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes());
    put(page, 34, sound.get(34..38).unwrap_or_default());
    let end = page.len();
    let lsn: Vec<u8> = page.get(20..24).unwrap_or_default().to_vec();
    put(page, end - 4, &lsn);
    let sum = crc32(page).to_be_bytes();
    put(page, 0, &sum);
    put(page, end - 8, &sum);
}

/// A file of SQLite that our VFS wrote under CHECKSUM.
///
/// # Errors
/// It could not be made, or is not sound.
pub fn sqlite() -> Result<Database> {
    pagewarden_sqlite::register()?;
    let home = Home::new()?;
    let name = PathBuf::from("whole.db");
    let path = home.path().join(&name);
    run(
        &path,
        &format!(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, word TEXT, body TEXT);
             CREATE INDEX item_word ON item (word);
             CREATE TABLE long (id INTEGER PRIMARY KEY, body TEXT);
             BEGIN;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
                 INSERT INTO item SELECT i, printf('%016x', i * 2654435761 % 4294967291),
                     printf('%0*d', 40 + i % 160, i) FROM n;
             INSERT INTO long SELECT id, printf('%0*d', 6400, id) FROM item WHERE id % 100 = 0;
             COMMIT;"
        ),
    )?;
    let before = fs::read(&path).context("cannot read the database")?;
    run(
        &path,
        "BEGIN; UPDATE item SET word = 'x' || word WHERE id % 200 = 0;
         UPDATE long SET body = printf('%0*d', 6400, id + 1) WHERE id % 1000 = 0;
         DELETE FROM item WHERE id % 211 = 0; COMMIT;",
    )?;
    const PAGE_BYTES: usize = 4096;
    let file = page_file(home.path(), &name, before, PAGE_BYTES)?;
    let stamp = |page: &mut [u8], index: usize, sound: &[u8]| {
        if let Some(marker) = Marker::read(sound) {
            page_verify::stamp(page, PageNo(index as u64 + 1), marker);
        }
    };
    Database::new(path, vec![file], stamp, Box::new(home))
}

fn run(path: &Path, sql: &str) -> Result<()> {
    let uri = format!("file:{}?vfs=pagewarden&page_verify=CHECKSUM", path.display());
    let connection = Connection::open_with_flags(uri, OpenFlags::default())?;
    connection.execute_batch("PRAGMA synchronous = OFF")?;
    connection.execute_batch(sql)?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(())
}

fn read_all(root: &Path, names: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let read = |name: &PathBuf| {
        let path = root.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    names.iter().map(read).collect()
}

fn put(page: &mut [u8], offset: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len())) {
        place.copy_from_slice(bytes);
    }
}
