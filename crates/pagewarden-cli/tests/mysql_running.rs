//! A running MySQL: tables are written, made, moved, altered and dropped, and encrypted and
//! decrypted, while its directory is checked over and over, and nothing of that is damage.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::mysql::{Installation, Server};

use crate::runner::{Finding, check, check_at_full_speed};

/// How long: ten seconds, or what `PAGEWARDEN_SOAK_SECONDS` says.
fn load() -> Duration {
    let asked = std::env::var("PAGEWARDEN_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(10, |seconds| seconds.parse().unwrap()))
}

const TABLES: &str = "CREATE DATABASE shop; USE shop;
    SET SESSION cte_max_recursion_depth = 100000;
    CREATE TABLE source (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300));
    INSERT INTO source WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
      SELECT i, SHA2(i, 224), REPEAT(SHA2(i, 224), 1 + i % 5) FROM n;
    CREATE TABLE item (id INT PRIMARY KEY AUTO_INCREMENT, word VARCHAR(60), body VARCHAR(300),
      data LONGBLOB, KEY (word));
    INSERT INTO item SELECT id, word, body, REPEAT(body, 40) FROM source;
    CREATE TABLE zipped (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300), KEY (word))
      ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4;
    INSERT INTO zipped SELECT * FROM source;
    CREATE TABLE squeezed (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300))
      COMPRESSION='zlib';
    INSERT INTO squeezed SELECT * FROM source;
    CREATE TABLE secret (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300), KEY (word))
      ENCRYPTION='Y';
    INSERT INTO secret SELECT * FROM source;
    CREATE TABLE parts (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300))
      PARTITION BY HASH (id) PARTITIONS 3;
    INSERT INTO parts SELECT * FROM source;
    CREATE TABLESPACE common ADD DATAFILE 'common.ibd';
    CREATE TABLE shared (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300), KEY (word))
      TABLESPACE common;
    INSERT INTO shared SELECT * FROM source;";

/// Statements that are said again and again, each list by a client of its own: writes, and
/// everything that makes, moves and removes files, or gives their pages another form.
const CHURN: [&str; 6] = [
    "USE shop; SET @r = FLOOR(RAND() * 41);
     UPDATE item SET word = SHA2(CONCAT(word, @r), 224) WHERE id % 41 = @r;
     INSERT INTO item (word, body, data) SELECT word, body, REPEAT(body, @r) FROM source
       WHERE id % 41 = @r;
     DELETE FROM item WHERE id > 2000 AND id % 7 = @r % 7;
     UPDATE zipped SET word = SHA2(word, 224) WHERE id % 41 = @r;
     UPDATE squeezed SET word = SHA2(word, 224) WHERE id % 41 = @r;
     UPDATE secret SET word = SHA2(word, 224) WHERE id % 41 = @r;
     UPDATE shared SET word = SHA2(word, 224) WHERE id % 41 = @r; DO SLEEP(0.1);",
    "USE shop;
     DROP TABLE IF EXISTS passing; DROP TABLE IF EXISTS passed;
     CREATE TABLE passing (id INT PRIMARY KEY, v VARCHAR(99), b VARCHAR(300));
     INSERT INTO passing SELECT * FROM source;
     ALTER TABLE passing ADD KEY (v);
     ALTER TABLE passing ADD COLUMN w INT DEFAULT 7 FIRST, ALGORITHM=INSTANT;
     UPDATE passing SET w = id WHERE id % 3 = 0;
     ALTER TABLE passing DROP COLUMN w, ALGORITHM=INSTANT;
     TRUNCATE passing; INSERT INTO passing SELECT * FROM source; DO SLEEP(0.2);
     ALTER TABLE passing ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8;
     ALTER TABLE passing ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=0;
     OPTIMIZE TABLE passing;
     CREATE TABLE pressed (id INT PRIMARY KEY, b VARCHAR(300)) COMPRESSION='lz4';
     INSERT INTO pressed SELECT id, body FROM source; DROP TABLE pressed;
     RENAME TABLE passing TO passed; ALTER TABLE passed TABLESPACE common;
     ALTER TABLE passed TABLESPACE innodb_system; DROP TABLE passed; DO SLEEP(0.3);",
    "USE shop;
     ALTER TABLE parts TRUNCATE PARTITION p0;
     INSERT IGNORE INTO parts SELECT * FROM source;
     ALTER TABLE parts ADD PARTITION PARTITIONS 2; DO SLEEP(0.2);
     ALTER TABLE parts COALESCE PARTITION 2;
     CREATE TABLE swap (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300));
     ALTER TABLE parts EXCHANGE PARTITION p1 WITH TABLE swap;
     DROP TABLE swap; ALTER TABLE parts REBUILD PARTITION p2; DO SLEEP(0.3);",
    // By a copy of the table, and page by page in its place.
    "USE shop;
     ALTER TABLE secret ENCRYPTION='N'; DO SLEEP(0.3);
     ALTER TABLESPACE common ENCRYPTION='Y'; SET GLOBAL innodb_undo_log_encrypt=ON;
     ALTER TABLE secret ENCRYPTION='Y'; OPTIMIZE TABLE secret; DO SLEEP(0.3);
     ALTER TABLESPACE mysql ENCRYPTION='Y'; SET GLOBAL innodb_redo_log_encrypt=ON; DO SLEEP(0.3);
     ALTER TABLESPACE common ENCRYPTION='N'; SET GLOBAL innodb_undo_log_encrypt=OFF;
     ALTER TABLE zipped ENCRYPTION='Y'; ALTER TABLE zipped ENCRYPTION='N'; DO SLEEP(0.3);
     ALTER TABLESPACE mysql ENCRYPTION='N'; SET GLOBAL innodb_redo_log_encrypt=OFF;
     DO SLEEP(0.3);",
    "USE shop; DROP TABLE IF EXISTS words;
     CREATE TABLE words (id INT PRIMARY KEY, word VARCHAR(60), spot POINT NOT NULL SRID 0,
       FULLTEXT (word), SPATIAL INDEX (spot));
     INSERT INTO words SELECT id, CONCAT('word', id, ' in common'), POINT(id % 50, id) FROM source;
     DELETE FROM words WHERE id % 4 = 0; OPTIMIZE TABLE words;
     CREATE TEMPORARY TABLE passing AS SELECT * FROM source;
     UPDATE passing SET word = REVERSE(word); DO SLEEP(0.5);",
    "CREATE UNDO TABLESPACE more ADD DATAFILE 'more.ibu'; DO SLEEP(1);
     ALTER UNDO TABLESPACE more SET INACTIVE; DO SLEEP(2); DROP UNDO TABLESPACE more;
     ALTER UNDO TABLESPACE innodb_undo_001 SET INACTIVE; DO SLEEP(2);
     ALTER UNDO TABLESPACE innodb_undo_001 SET ACTIVE; DO SLEEP(1);",
];

/// Runs `work` while others write.
fn under_load(server: &Server, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for sql in CHURN {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    say_anyway(server, sql);
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        result
    });
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Says all of the statements. A conflict with those of the other clients does not matter here.
fn say_anyway(server: &Server, sql: &str) {
    let mut client = server.client();
    client.arg("--force").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = client.spawn().unwrap();
    let said = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(sql.as_bytes()));
    let ended = child.wait();
    // Without its server a client goes, and the check says what became of that.
    let _ = (said, ended);
}

/// What was seen of the server under load.
#[derive(Debug, Default)]
struct Seen {
    checks: usize,
    pages: u64,
    undecided: u64,
    unverifiable: u64,
    notices: usize,
    /// How often the server ended by itself, as it was seen to do while tables are encrypted.
    deaths: usize,
    /// The most that the server counted of each of `COUNTED`: it begins anew when it starts.
    did: [u64; COUNTED.len()],
}

/// What the load must have done.
const COUNTED: [&str; 4] =
    ["Com_alter_table", "Com_truncate", "Com_alter_tablespace", "Innodb_pages_written"];

impl Seen {
    /// One more check, which may have found nothing but what is changing. False once the server is
    /// gone.
    fn look(&mut self, server: &Server, path: &Path, option: Option<&str>) -> bool {
        let keyring = server.keyring().unwrap();
        let mut arguments = vec![OsStr::new("--keyring"), keyring.as_os_str()];
        arguments.extend(option.map(OsStr::new));
        arguments.push(path.as_os_str());
        // One in four stands back, as users' do.
        let stands_back = self.checks % 4 == 3;
        let outcome = if stands_back { check(arguments) } else { check_at_full_speed(arguments) };
        if server.sql("SELECT 1").is_err() {
            return false;
        }
        let report = outcome.report();
        let what = format!("check {}, {option:?} {}", self.checks, path.display());
        assert_eq!(report.serious(), [], "{what}: {:#}", report.json);
        assert!(report.unread().is_empty(), "{what}: {:?}", report.unread());
        assert_eq!(report.target()["live"], true, "{what}");
        // Pages that kept changing, and keys that came after the keyring was read.
        let is_open = report.pages("undecided") + report.pages("unverifiable") > 0;
        let allowed: &[_] =
            if is_open { &[(0, "intact"), (2, "incomplete")] } else { &[(0, "intact")] };
        let ended = (outcome.status.unwrap(), report.verdict());
        assert!(allowed.contains(&ended), "{what}: {ended:?} {:#}", report.json);
        self.checks += 1;
        self.pages += report.pages("total");
        self.undecided += report.pages("undecided");
        self.unverifiable += report.pages("unverifiable");
        self.notices += report.findings().len();
        for (most, name) in self.did.iter_mut().zip(COUNTED) {
            *most = (*most).max(status(server, name).unwrap_or(0));
        }
        true
    }
}

/// A server that ended by itself has crashed, and starts again; it was seen to end while it starts,
/// too.
fn come_back(server: &mut Server, seen: &mut Seen) {
    const DEATHS_MAX: usize = 20;
    loop {
        let log = server.log();
        let why = log.lines().rfind(|line| line.contains("[ERROR]")).unwrap_or("not known");
        eprintln!("MySQL ended by itself after {} checks: {why}", seen.checks);
        seen.deaths += 1;
        assert!(seen.deaths < DEATHS_MAX, "MySQL ends again and again:\n{log}");
        let report = check([server.data_dir()]).report();
        assert_eq!(report.serious(), [], "killed by itself: {:#}", report.json);
        if server.start().is_ok() {
            return;
        }
    }
}

/// A count that the server keeps; `None` if it is gone.
fn status(server: &Server, name: &str) -> Option<u64> {
    let row = server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).ok()?;
    Some(row.split('\t').next_back().unwrap().parse().unwrap())
}

#[test]
fn running_mysql_under_load_has_no_findings() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let options = ["innodb-redo-log-capacity=16M", "innodb-max-undo-log-size=10M"];
    let mut server = Server::install_with_keyring(&installation, &options).unwrap();
    let root = server.data_dir().to_owned();
    server.start().unwrap();
    server.sql(TABLES).unwrap();
    let mut seen = Seen::default();
    let paths = [root.clone(), root.clone(), root.join("shop"), root.join("shop/item.ibd")];
    let options = [Some("--structure"), Some("--cached"), Some("--structure"), Some("--jobs=1")];
    let begin = Instant::now();
    while begin.elapsed() < load() || seen.checks < 4 {
        under_load(&server, || {
            while begin.elapsed() < load() || seen.checks < 4 {
                // Each path with each option, in 16 checks.
                let path = &paths[(seen.checks + seen.checks / 4) % 4];
                if !seen.look(&server, path, options[seen.checks % 4]) {
                    break;
                }
                if seen.checks.is_multiple_of(100) {
                    eprintln!("MySQL under load after {:?}: {seen:?}", begin.elapsed());
                }
            }
        });
        if !server.is_running() {
            come_back(&mut server, &mut seen);
        }
    }
    eprintln!("MySQL under load: {seen:?} in {:?}; {COUNTED:?}", load());
    assert!(seen.did.iter().all(|count| *count > 0), "{COUNTED:?} {:?}", seen.did);
    server.stop().unwrap();
    let keyring = server.keyring().unwrap();
    let report = check(["--keyring".as_ref(), keyring.as_os_str(), root.as_os_str()]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{:?}", report.details());
    assert_eq!(report.pages("unverifiable"), 0, "{:#}", report.json);
}

/// One page of an index, not its root, becomes zeroes under a server that knows nothing of it.
#[test]
fn page_that_is_zeroed_under_a_running_mysql_is_named() {
    const PAGE: usize = 16_384;
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let mut server = Server::install(&installation).unwrap();
    server.start().unwrap();
    server.sql(TABLES_IN_THE_CLEAR).unwrap();
    // Behind this all of it is older than the checkpoint.
    server.stop().unwrap();
    let path = server.data_dir().join("shop/plain.ibd");
    let bytes = fs::read(&path).unwrap();
    let leaves: Vec<u64> = (0_u64..)
        .zip(bytes.chunks_exact(PAGE))
        .filter(|(_, page)| page[24..26] == [0x45, 0xbf] && page[8..16] != [0xff; 8])
        .map(|(number, _)| number)
        .collect();
    assert!(leaves.len() > 10, "{leaves:?}");
    server.start().unwrap();
    let whole = check_at_full_speed([server.data_dir()]);
    assert_eq!((whole.status, whole.report().verdict()), (Some(0), "intact"));
    let zeroed = leaves[leaves.len() / 2];
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; PAGE], zeroed * PAGE as u64).unwrap();
    let root = server.data_dir().to_owned();
    let is_named = |severity: &str, status: i32| {
        let outcome = check_at_full_speed([&root]);
        let report = outcome.report();
        let offset = zeroed * PAGE as u64;
        let named = Finding::page_at("shop/plain.ibd", zeroed, offset, severity, "zeroed");
        assert_eq!(report.findings(), [named]);
        assert_eq!(outcome.status, Some(status), "{:#}", report.json);
    };
    is_named("damage", 1);
    server.kill();
    // Recovery might make it anew.
    is_named("suspect", 0);
    server.start().unwrap();
    is_named("damage", 1);
}

const TABLES_IN_THE_CLEAR: &str = "CREATE DATABASE shop; USE shop;
    SET SESSION cte_max_recursion_depth = 100000;
    CREATE TABLE plain (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300), KEY (word));
    INSERT INTO plain WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
      SELECT i, SHA2(i, 224), REPEAT(SHA2(i, 224), 1 + i % 5) FROM n;";
