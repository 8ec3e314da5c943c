//! `pagewarden repair` on data directories of real servers of MariaDB and MySQL: wounded by the
//! hundred, repaired by copies of every history, and compared with what they were. Never may a page be
//! called exact that is not. What was repaired must start, and pass CHECK TABLE.
//!
//! `PAGEWARDEN_SEEDS` says how many rounds a history, `PAGEWARDEN_SEED` which wounds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagewarden::repair::{Options, Outcome, Proof, Request, Verdict, repair};
use pagewarden_scratch::{mariadb, mysql};
use serde_json::Value;
use tempfile::TempDir;

use crate::damage::Dice;
use crate::mariadb_samples::{Shape, copy, inside, installation, listing, server_with, tables};
use crate::runner::{check, pagewarden, run};

/// A server of either kind.
enum Server {
    /// With the folder of its keys.
    MariaDb(mariadb::Server, TempDir),
    MySql(mysql::Server),
}

impl Server {
    fn data_dir(&self) -> &Path {
        match self {
            Self::MariaDb(server, _) => server.data_dir(),
            Self::MySql(server) => server.data_dir(),
        }
    }

    /// The file of its keys, if it has one.
    fn keyring(&self) -> Option<PathBuf> {
        match self {
            Self::MariaDb(_, keys) => Some(keys.path().join("keys")),
            Self::MySql(server) => server.keyring(),
        }
    }

    fn start(&mut self) {
        match self {
            Self::MariaDb(server, _) => server.start().unwrap(),
            Self::MySql(server) => server.start().unwrap(),
        }
    }

    fn stop(&mut self) {
        match self {
            Self::MariaDb(server, _) => server.stop().unwrap(),
            Self::MySql(server) => server.stop().unwrap(),
        }
    }

    fn sql(&self, sql: &str) -> String {
        match self {
            Self::MariaDb(server, _) => server.sql(sql).unwrap(),
            Self::MySql(server) => server.sql(sql).unwrap(),
        }
    }

    fn run(&mut self, sql: &str) {
        self.start();
        self.sql(sql);
        self.stop();
    }

    /// Puts another data directory in the place of its own.
    fn lay(&self, folder: &Path) {
        fs::remove_dir_all(self.data_dir()).unwrap();
        let copied = Command::new("cp").arg("-a").arg(folder).arg(self.data_dir()).status();
        assert!(copied.unwrap().success());
    }

    /// Starts it on this directory; every table must be sound by its own word. The rows, and its sums of them.
    fn rows(&mut self, folder: &Path) -> String {
        self.lay(folder);
        self.start();
        let names = self.sql(
            "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables
             WHERE engine = 'InnoDB' AND table_schema IN ('shop', 'odd-name') ORDER BY 1",
        );
        let mut rows = String::new();
        for name in names.lines() {
            let found = self.sql(&format!("CHECK TABLE {name} EXTENDED"));
            assert!(found.ends_with("status\tOK"), "{name}: {found}");
            for sql in [format!("CHECKSUM TABLE {name} EXTENDED"), format!("SELECT * FROM {name}")]
            {
                rows.push_str(&self.sql(&sql));
                rows.push('\n');
            }
        }
        self.stop();
        rows
    }
}

/// Tables of MySQL.
const TABLES_OF_MYSQL: &str = "CREATE DATABASE shop; USE shop; \
    CREATE TABLE source (id int PRIMARY KEY, word varchar(60), body varchar(300)); \
    SET SESSION cte_max_recursion_depth = 100000; \
    INSERT INTO source WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) \
    SELECT i, SHA2(i, 224), REPEAT(SHA2(i * 7, 224), 5) FROM n; \
    CREATE TABLE dynamic (id int PRIMARY KEY, word varchar(60), body varchar(300), KEY (word)); \
    INSERT INTO dynamic SELECT * FROM source; DELETE FROM dynamic WHERE id % 5 = 0; \
    CREATE TABLE compact LIKE dynamic; INSERT INTO compact SELECT * FROM dynamic; \
    CREATE TABLE zipped (id int PRIMARY KEY, body varchar(300)) KEY_BLOCK_SIZE = 2; \
    INSERT INTO zipped SELECT id, body FROM source;";

/// Changes of which two with another word differ in it alone.
fn changes(word: &str) -> String {
    format!(
        "USE shop; UPDATE dynamic SET body = CONCAT('{word}', body) WHERE id % 9 = 1 AND id < 1200;
         UPDATE dynamic SET word = CONCAT('{word}', id) WHERE id % 50 = 2;
         INSERT INTO compact SELECT id + 5000, '{word}', body FROM source WHERE id < 400;
         UPDATE zipped SET body = '{word}' WHERE id % 70 = 3;
         DELETE FROM source WHERE id BETWEEN 700 AND 760;"
    )
}

/// A server that was shut down, with copies of earlier and other states of it.
struct Sample {
    server: Server,
    early: TempDir,
    last: TempDir,
    /// From the early state by as many changes, to other values.
    other: TempDir,
    /// A backup from before the early state, prepared.
    prepared: Option<TempDir>,
    zip_bytes: usize,
    page_bytes: usize,
}

impl Sample {
    fn of(mut server: Server, tables: &str, page_bytes: usize, has_backup: bool) -> Self {
        server.run(tables);
        server.start();
        let prepared = if has_backup { prepared(&server) } else { None };
        server.stop();
        let early = copy(server.data_dir());
        server.run(&changes("aaaa"));
        let last = copy(server.data_dir());
        server.lay(&inside(&early));
        server.run(&changes("bbbb"));
        let other = copy(server.data_dir());
        Self { server, early, last, other, prepared, zip_bytes: 2048, page_bytes }
    }

    fn page_bytes(&self, path: &Path) -> usize {
        if path.ends_with("zipped.ibd") { self.zip_bytes } else { self.page_bytes }
    }

    fn source(&self, history: History) -> Option<PathBuf> {
        match history {
            History::Same => Some(inside(&self.last)),
            History::Older => Some(inside(&self.early)),
            History::Diverged => Some(inside(&self.other)),
            History::DivergedWithoutLog => {
                let root = inside(&self.other);
                let label = root.join("xtrabackup_checkpoints");
                fs::write(label, "backup_type = full-prepared\n").unwrap();
                let _ = fs::remove_file(root.join("ib_logfile0"));
                let _ = fs::remove_dir_all(root.join("#innodb_redo"));
                Some(root)
            }
            History::Prepared => self.prepared.as_ref().map(|folder| folder.path().join("full")),
            History::Own => None,
        }
    }

    /// Pages of the last state of which the other one has a version with the same LSN, and other bytes.
    fn same_lsns(&self) -> usize {
        let (last, other) = (inside(&self.last), inside(&self.other));
        let mut count = 0;
        for name in tablespaces(&last) {
            let (one, two) = (fs::read(last.join(&name)), fs::read(other.join(&name)));
            let (Ok(one), Ok(two)) = (one, two) else { continue };
            let size = self.page_bytes(&name);
            let pairs = one.chunks_exact(size).zip(two.chunks_exact(size));
            count += pairs.filter(|(one, two)| one != two && one[16..24] == two[16..24]).count();
        }
        count
    }
}

/// A backup of a running MariaDB server, where there is a program for it.
fn prepared(server: &Server) -> Option<TempDir> {
    let Server::MariaDb(server, _) = server else { return None };
    Command::new("mariabackup").arg("--version").output().ok()?;
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    let target = format!("--target-dir={}", folder.path().join("full").display());
    let socket = format!("--socket={}", server.socket().display());
    let root = format!("--datadir={}", server.data_dir().display());
    for arguments in [&["--backup", "--user=root", &socket, &root][..], &["--prepare"]] {
        let mut command = Command::new("mariabackup");
        let output = command.arg("--no-defaults").args(arguments).arg(&target).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Some(folder)
}

fn of_mariadb(algorithm: &'static str, page_kib: u32, encrypted: bool) -> Option<Sample> {
    let shape = Shape { page_kib, algorithm, encrypted };
    let (server, keys) = server_with(&installation()?, shape, &[]);
    Some(Sample::of(
        Server::MariaDb(server, keys),
        &tables(shape),
        shape.page(),
        !encrypted && page_kib == 16,
    ))
}

fn of_mysql() -> Option<Sample> {
    let installation = mysql::Installation::for_test().unwrap()?;
    let server = mysql::Server::install(&installation).unwrap();
    Some(Sample::of(Server::MySql(server), TABLES_OF_MYSQL, 16_384, false))
}

/// The same with encrypted tables, and an encrypted log.
fn of_mysql_with_keys() -> Option<Sample> {
    let installation = mysql::Installation::for_test().unwrap()?;
    let options = ["innodb-redo-log-encrypt=ON"];
    let server = mysql::Server::install_with_keyring(&installation, &options).unwrap();
    let sql = format!("SET SESSION default_table_encryption = ON; {TABLES_OF_MYSQL}");
    Some(Sample::of(Server::MySql(server), &sql, 16_384, false))
}

/// What pages are taken from, beside the directory's own doublewrite area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum History {
    Same,
    Older,
    Diverged,
    /// Nothing but the pages shows that it went its own way.
    DivergedWithoutLog,
    Prepared,
    Own,
}

const HISTORIES: [History; 6] = [
    History::Same,
    History::Older,
    History::Diverged,
    History::DivergedWithoutLog,
    History::Prepared,
    History::Own,
];

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    wounded: usize,
    found: usize,
    exact: usize,
    wrong: usize,
    older: usize,
    left: usize,
    refused: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.wounded += other.wounded;
        self.found += other.found;
        self.exact += other.exact;
        self.wrong += other.wrong;
        self.older += other.older;
        self.left += other.left;
        self.refused += other.refused;
    }
}

/// A page of the last state: its file below the directory, and where it is.
type Place = (PathBuf, u64);

fn tablespaces(root: &Path) -> Vec<PathBuf> {
    let files = listing(root).into_iter().map(|(path, ..)| path);
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo")
    };
    let found = files.filter(|path| is_one(path) && path.is_file());
    found.map(|path| path.strip_prefix(root).unwrap().to_owned()).collect()
}

/// The pages that are not zero, and those of them that were another version in the early state.
fn places(sample: &Sample) -> (Vec<Place>, Vec<Place>) {
    let (mut all, mut changed) = (Vec::new(), Vec::new());
    for name in tablespaces(&inside(&sample.last)) {
        let size = sample.page_bytes(&name);
        let bytes = fs::read(inside(&sample.last).join(&name)).unwrap();
        let before = fs::read(inside(&sample.early).join(&name)).unwrap_or_default();
        for (page, number) in bytes.chunks_exact(size).zip(0_u64..) {
            let place = (name.clone(), number * size as u64);
            let at = place.1 as usize;
            if page.iter().any(|byte| *byte != 0) {
                let old = before.get(at..at + size).filter(|old| *old != page);
                if old.is_some_and(|old| old.iter().any(|byte| *byte != 0)) {
                    changed.push(place.clone());
                }
                all.push(place);
            }
        }
    }
    (all, changed)
}

fn read(root: &Path, (name, offset): &Place, size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    let file = fs::File::open(root.join(name)).unwrap();
    file.read_exact_at(&mut page, *offset).unwrap();
    page
}

fn write(root: &Path, (name, offset): &Place, page: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(root.join(name)).unwrap();
    file.write_all_at(page, *offset).unwrap();
}

/// What a page becomes.
fn wound(sample: &Sample, all: &[Place], place: &Place, dice: &mut Dice) -> Vec<u8> {
    let size = sample.page_bytes(&place.0);
    let mut page = read(&inside(&sample.last), place, size);
    let early = inside(&sample.early);
    let length = fs::metadata(early.join(&place.0)).map_or(0, |metadata| metadata.len());
    let old = (place.1 + size as u64 <= length).then(|| read(&early, place, size));
    let cut = dice.within(1..size / 512) * 512;
    match (dice.within(0..9), old) {
        (0 | 1, _) => {
            for _ in 0..dice.within(1..5) {
                page[dice.within(0..size)] ^= 1 << dice.within(0..8);
            }
        }
        (2, _) => page.fill(0),
        (3, _) => {
            let at = dice.within(0..size - 300);
            dice.fill(&mut page[at..at + 300]);
        }
        (4, _) => {
            let others: Vec<_> = all.iter().filter(|other| other.0 == place.0).collect();
            let other = others[dice.within(0..others.len())];
            page = read(&inside(&sample.last), other, size);
        }
        (5 | 6, Some(old)) => page[cut..].copy_from_slice(&old[cut..]),
        (7, Some(old)) => page[..cut].copy_from_slice(&old[..cut]),
        (8, Some(old)) => page = old,
        _ => dice.fill(&mut page[cut..]),
    }
    page
}

fn repaired(request: &Request) -> Result<Outcome, pagewarden::Error> {
    repair(request, &Options::default(), &())
}

/// Wounds, repairs, compares, undoes, compares, and puts all back.
fn round(
    sample: &Sample,
    work: &Path,
    history: History,
    (all, changed): &(Vec<Place>, Vec<Place>),
    dice: &mut Dice,
) -> Tally {
    let mut tally = Tally::default();
    let mut wounds: BTreeMap<Place, Vec<u8>> = BTreeMap::new();
    for _ in 0..dice.within(1..30) {
        let from = if dice.within(0..2) == 0 && !changed.is_empty() { changed } else { all };
        let place = from[dice.within(0..from.len())].clone();
        let page = wound(sample, all, &place, dice);
        wounds.insert(place, page);
    }
    let last = inside(&sample.last);
    for (place, page) in &wounds {
        tally.wounded += usize::from(*page != read(&last, place, page.len()));
        write(work, place, page);
    }
    let request = Request {
        sources: sample.source(history).iter().map(|path| path.as_path().into()).collect(),
        keyring: sample.server.keyring(),
        write: true,
        accept_older: dice.within(0..2) == 0,
        ..Request::new(work)
    };
    match repaired(&request) {
        Ok(outcome) => {
            for page in &outcome.pages {
                tally.found += 1;
                let (Some(offset), true) = (page.offset, page.page.is_some()) else { continue };
                let place = (PathBuf::from(&page.file), offset);
                let size = sample.page_bytes(&place.0);
                let Some(wounded) = wounds.get(&place) else { continue };
                let (now, sound) = (read(work, &place, size), read(&last, &place, size));
                match (page.proof, page.after.is_some()) {
                    (Some(Proof::Exact), true) => {
                        tally.exact += 1;
                        if now != sound {
                            println!("called exact, and not: {page:?}");
                            tally.wrong += 1;
                        }
                    }
                    (Some(Proof::Older), true) => tally.older += 1,
                    _ => {
                        assert!(now == *wounded, "written: {page:?}");
                        tally.left += 1;
                    }
                }
            }
            if let Some(undo) = outcome.undo_file {
                let keyring = sample.server.keyring();
                let undo = Request { undo: Some(undo), keyring, write: true, ..Request::new(work) };
                assert_eq!(repaired(&undo).unwrap().verdict, Verdict::Undone);
            }
        }
        // What it has in common with the directory is less than what is not.
        Err(error) => {
            assert_eq!(history, History::Diverged, "{error}");
            assert!(error.to_string().contains("history of its own"), "{error}");
            tally.refused += 1;
        }
    }
    for (place, page) in &wounds {
        assert!(read(work, place, page.len()) == *page, "not every byte is back: {place:?}");
        write(work, place, &read(&last, place, page.len()));
    }
    tally
}

fn campaign(sample: &Sample, name: &str, rounds: usize) -> Tally {
    let mut dice = Dice::seeded();
    let mut sum = Tally::default();
    let places = places(sample);
    assert!(places.0.len() > 300 && places.1.len() > 20, "{}, {}", places.0.len(), places.1.len());
    println!("{name}: {} pages with one LSN and two versions", sample.same_lsns());
    for history in HISTORIES {
        if history == History::Prepared && sample.prepared.is_none() {
            continue;
        }
        let work = copy(&inside(&sample.last));
        let mut tally = Tally::default();
        for _ in 0..rounds {
            tally.add(round(sample, &inside(&work), history, &places, &mut dice));
        }
        println!("{name}, {history:?}: {tally:?}");
        sum.add(tally);
        assert!(same_files(&inside(&work), &inside(&sample.last)), "not every byte is back");
    }
    println!("{name}, in all: {sum:?}");
    assert_eq!(sum.wrong, 0, "{sum:?}");
    sum
}

fn same_files(one: &Path, two: &Path) -> bool {
    tablespaces(one)
        .iter()
        .all(|name| fs::read(one.join(name)).unwrap() == fs::read(two.join(name)).unwrap())
}

fn seeds(default: usize) -> usize {
    let seeds = std::env::var("PAGEWARDEN_SEEDS").ok().and_then(|text| text.parse().ok());
    seeds.unwrap_or(default)
}

#[test]
fn wounded_pages_of_innodb_are_never_called_exact_that_are_not() {
    let Some(sample) = of_mariadb("full_crc32", 16, false) else { return };
    let sum = campaign(&sample, "full_crc32", seeds(2));
    assert!(sum.exact > 0 && sum.left > 0, "{sum:?}");
}

#[test]
#[ignore = "a campaign of minutes: thousands of wounded pages"]
fn thousands_of_wounded_pages_of_mariadb() {
    for (algorithm, page_kib, encrypted) in [
        ("full_crc32", 16, false),
        ("full_crc32", 16, true),
        ("crc32", 16, true),
        ("crc32", 4, false),
    ] {
        let Some(sample) = of_mariadb(algorithm, page_kib, encrypted) else { return };
        campaign(&sample, &format!("{algorithm} {page_kib}K {encrypted}"), seeds(20));
    }
}

#[test]
#[ignore = "a campaign of minutes: thousands of wounded pages"]
fn thousands_of_wounded_pages_of_mysql() {
    let Some(sample) = of_mysql() else { return };
    campaign(&sample, "mysql", seeds(20));
}

#[test]
fn encrypted_pages_of_mysql_are_never_called_exact_that_are_not() {
    let Some(sample) = of_mysql_with_keys() else { return };
    let sum = campaign(&sample, "mysql with keys", seeds(2));
    assert!(sum.exact > 0 && sum.left > 0, "{sum:?}");
}

#[test]
#[ignore = "a campaign of minutes: thousands of wounded pages"]
fn thousands_of_encrypted_pages_of_mysql() {
    let Some(sample) = of_mysql_with_keys() else { return };
    campaign(&sample, "mysql with keys", seeds(20));
}

fn command(path: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let outcome = run(pagewarden().args(["repair", "--json"]).arg(path).args(arguments));
    let json = serde_json::from_str(&outcome.stdout);
    (outcome.status, json.unwrap_or_else(|_| panic!("{outcome:?}")))
}

/// Damages pages of the tables, their maps and the system tablespace.
fn ruin(sample: &Sample, work: &Path, count: usize) {
    let mut dice = Dice::seeded();
    let (all, _) = places(sample);
    let tables: Vec<_> = all.into_iter().filter(|(name, _)| name.starts_with("shop")).collect();
    for _ in 0..count {
        let place = &tables[dice.within(0..tables.len())];
        let size = sample.page_bytes(&place.0);
        let mut page = read(work, place, size);
        dice.fill(&mut page[50..450]);
        write(work, place, &page);
    }
    let mut page = read(work, &("ibdata1".into(), 0), sample.page_bytes);
    page[200] ^= 1;
    write(work, &("ibdata1".into(), 0), &page);
}

fn planned_repaired_undone_and_started(mut sample: Sample) {
    let last = inside(&sample.last);
    let expected = sample.server.rows(&last);
    let work = copy(&last);
    let root = inside(&work);
    ruin(&sample, &root, 12);
    let wounded = copy(&root);
    let keyring = sample.server.keyring().map(|path| path.to_str().unwrap().to_owned());
    let keys: Vec<_> = keyring.iter().flat_map(|path| ["--keyring", path.as_str()]).collect();
    let from = [&["--from", last.to_str().unwrap()][..], &keys].concat();
    let (status, plan) = command(&root, &from);
    assert_eq!((status, &plan["verdict"]), (Some(0), &"planned".into()), "{plan}");
    assert!(same_files(&root, &inside(&wounded)), "a plan wrote");
    let place = work.path().join("new");
    let elsewhere = ["--copy-to", place.to_str().unwrap(), "--yes"];
    let (status, json) = command(&root, &[&from[..], &elsewhere].concat());
    assert_eq!((status, &json["verdict"]), (Some(0), &"repaired".into()), "{json}");
    assert!(same_files(&place, &last), "the copy is not what was there before");
    assert!(same_files(&root, &inside(&wounded)), "the directory itself was written");
    let (status, json) = command(&root, &[&from[..], &["--yes"]].concat());
    assert_eq!((status, &json["verdict"]), (Some(0), &"repaired".into()), "{json}");
    assert!(same_files(&root, &last), "it is not what was there before");
    assert_eq!(sample.server.rows(&root), expected);
    assert_eq!(sample.server.rows(&place), expected);
    let undo = root.join("pagewarden-repair.undo");
    let (status, json) = command(&root, &[&["--undo", undo.to_str().unwrap()][..], &keys].concat());
    assert_eq!((status, &json["verdict"]), (Some(0), &"undone".into()), "{json}");
    assert!(same_files(&root, &inside(&wounded)), "not every byte is back");
}

#[test]
fn innodb_pages_are_planned_repaired_and_undone_and_the_server_starts() {
    let Some(sample) = of_mariadb("full_crc32", 16, true) else { return };
    planned_repaired_undone_and_started(sample);
}

#[test]
fn pages_of_mysql_are_planned_repaired_and_undone_and_the_server_starts() {
    let Some(sample) = of_mysql() else { return };
    planned_repaired_undone_and_started(sample);
}

#[test]
fn encrypted_pages_of_mysql_are_planned_repaired_and_undone_with_their_keys() {
    let Some(sample) = of_mysql_with_keys() else { return };
    planned_repaired_undone_and_started(sample);
}

/// A page with a flipped bit that only the key shows.
fn wounded_secret(sample: &Sample, table: &str, page_type: u16) -> TempDir {
    let work = copy(&inside(&sample.last));
    let root = inside(&work);
    let name = PathBuf::from(table);
    let size = sample.page_bytes(&name);
    let bytes = fs::read(root.join(&name)).unwrap();
    let is_one = |page: &[u8]| page[24..26] == page_type.to_be_bytes();
    let number = bytes.chunks_exact(size).skip(3).position(is_one).unwrap() + 3;
    let place = (name, (number * size) as u64);
    let mut page = read(&root, &place, size);
    page[200] ^= 1;
    write(&root, &place, &page);
    work
}

fn is_refused_with_other_keys_and_repaired_with_its_own(
    sample: &Sample,
    work: &TempDir,
    other: &str,
) {
    let root = inside(work);
    let last = inside(&sample.last);
    let keyring = sample.server.keyring().unwrap();
    let from = ["--from", last.to_str().unwrap(), "--yes", "--keyring"];
    let with = |keys: &Path| command(&root, &[&from[..], &[keys.to_str().unwrap()]].concat());
    let strange = work.path().join("other-keys");
    fs::write(&strange, other).unwrap();
    let (status, json) = with(&strange);
    assert_eq!(status, Some(2), "{json}");
    let error = json["error"].as_str().unwrap();
    assert!(error.contains("other-keys") && error.contains("key"), "{error}");
    assert!(error.contains("hint: "), "{error}");
    fs::write(&strange, "no keys").unwrap();
    assert_eq!(with(&strange).0, Some(2));
    assert_eq!(with(&work.path().join("none")).0, Some(2));
    assert!(!same_files(&root, &last), "written with other keys");
    let (status, json) = with(&keyring);
    assert_eq!((status, &json["verdict"]), (Some(0), &"repaired".into()), "{json}");
    assert_eq!(json["pages"][0]["proof"], "exact", "{json}");
    assert!(same_files(&root, &last), "it is not what was there before");
}

#[test]
fn other_keys_than_those_of_mysql_are_refused_in_words() {
    let Some(sample) = of_mysql_with_keys() else { return };
    let work = wounded_secret(&sample, "shop/dynamic.ibd", 15);
    let keys = fs::read_to_string(sample.server.keyring().unwrap()).unwrap();
    let (begin, rest) = keys.split_once("\"data\":\"").unwrap();
    let hex: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
    let other = format!("{begin}\"data\":\"{}{}", "0".repeat(hex.len()), &rest[hex.len()..]);
    is_refused_with_other_keys_and_repaired_with_its_own(&sample, &work, &other);
}

#[test]
fn other_keys_than_those_of_mariadb_are_refused_in_words() {
    let Some(sample) = of_mariadb("crc32", 16, true) else { return };
    let work = wounded_secret(&sample, "shop/secret_squeezed.ibd", 37_401);
    let root = inside(&work);
    let (_, json) = command(&root, &["--from", inside(&sample.last).to_str().unwrap()]);
    assert!(json["warnings"].to_string().contains("--keyring"), "{json}");
    let other = "1;ffffffffffffffffffffffffffffffff\n";
    is_refused_with_other_keys_and_repaired_with_its_own(&sample, &work, other);
}

/// The sums are those of what is stored, and fit without any key; a server with other keys opens nothing.
#[test]
fn keys_that_do_not_open_tables_of_mariadb_are_told_though_sums_fit() {
    for algorithm in ["full_crc32", "crc32"] {
        let Some(sample) = of_mariadb(algorithm, 16, true) else { return };
        let (folder, root) = (tempfile::tempdir().unwrap(), inside(&sample.last));
        let verdict = |keyring: &Path| {
            let report = check(["--keyring".as_ref(), keyring.as_os_str(), root.as_os_str()]);
            report.report().verdict().to_owned()
        };
        assert_eq!(verdict(&sample.server.keyring().unwrap()), "intact");
        for keys in ["1;ffffffffffffffffffffffffffffffff\n", "9;ffffffffffffffffffffffffffffffff\n"]
        {
            let other = folder.path().join("keys");
            fs::write(&other, keys).unwrap();
            assert_eq!(verdict(&other), "incomplete", "{algorithm} {keys}");
        }
    }
}

/// A device that kept the old ends of pages, and wrote the new middle: nothing on such a page says
/// that it is not the old version with a damaged middle. The log does.
#[test]
fn pages_with_a_newer_middle_are_never_exact_where_the_log_reaches_back() {
    let Some(sample) = of_mariadb("full_crc32", 16, false) else { return };
    let (last, early) = (inside(&sample.last), inside(&sample.early));
    let work = copy(&last);
    let root = inside(&work);
    let (_, changed) = places(&sample);
    let mut wounded = 0;
    for place in changed.iter().filter(|(name, _)| name.starts_with("shop")) {
        let size = sample.page_bytes(&place.0);
        let (new, old) = (read(&last, place, size), read(&early, place, size));
        let differ: Vec<_> = (40..size - 8).filter(|at| new[*at] != old[*at]).collect();
        let middle = [&old[..40], &new[40..size - 8], &old[size - 8..]].concat();
        if !differ.is_empty() && new[16..24] != old[16..24] {
            write(&root, place, &middle);
            wounded += 1;
        }
    }
    assert!(wounded > 10, "{wounded}");
    let request =
        Request { sources: vec![early.as_path().into()], write: true, ..Request::new(&root) };
    let outcome = repaired(&request).unwrap();
    assert!(outcome.pages.len() > 10, "{outcome:?}");
    for page in &outcome.pages {
        let place = (PathBuf::from(&page.file), page.offset.unwrap());
        let size = sample.page_bytes(&place.0);
        // The doublewrite area may have the last version.
        let is_right = read(&root, &place, size) == read(&last, &place, size);
        assert!(is_right || page.proof != Some(Proof::Exact), "{page:?}");
        let words = "the directory's log has changed this page up to LSN";
        assert!(is_right || page.reason.contains(words), "{page:?}");
    }
}

#[test]
fn running_directories_and_strange_sources_of_innodb_are_refused() {
    let Some(mut sample) = of_mariadb("full_crc32", 16, false) else { return };
    let work = copy(&inside(&sample.last));
    let root = inside(&work);
    ruin(&sample, &root, 2);
    let refusal = |source: &Path, words: &str| {
        let (status, json) = command(&root, &["--from", source.to_str().unwrap()]);
        let error = json["error"].as_str().unwrap_or_default();
        assert_eq!(status, Some(2), "{json}");
        assert!(error.contains(words) && error.contains("hint: "), "{error}");
    };
    refusal(&root, "this is the directory");
    refusal(&inside(&sample.other), "a history of its own");
    refusal(work.path(), "no data directory");
    let Some(strange) = of_mariadb("full_crc32", 16, false) else { return };
    refusal(&inside(&strange.last), "another data directory: the UUID in aria_log_control");
    sample.server.start();
    refusal(sample.server.data_dir(), "in use by a server");
    let (status, json) = command(sample.server.data_dir(), &[]);
    assert_eq!(status, Some(2), "{json}");
    sample.server.sql("UPDATE shop.dynamic SET word = 'x'");
    if let Server::MariaDb(server, _) = &mut sample.server {
        let pid = i32::try_from(server.pid().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        while server.is_running() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    refusal(sample.server.data_dir(), "not shut down cleanly");
    let (status, json) = command(sample.server.data_dir(), &[]);
    assert_eq!(status, Some(2), "{json}");
    assert!(json["error"].as_str().unwrap().contains("not shut down cleanly"), "{json}");
}
