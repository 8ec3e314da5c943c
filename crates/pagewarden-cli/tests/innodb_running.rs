//! A running MariaDB: pages change while they are read, tables come and go, and
//! nothing of that is damage.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::mariadb::Server;

use crate::mariadb_samples::{Shape, installation, server, server_with, tables};
use crate::runner::{Finding, check, check_at_full_speed};
use crate::sysbench::{Running, Sysbench};

/// How long: ten seconds, or a sixth of what `PAGEWARDEN_SOAK_SECONDS` says: others
/// are under load at the same time.
fn load() -> Duration {
    let asked = std::env::var("PAGEWARDEN_SOAK_SECONDS").ok();
    Duration::from_secs(asked.map_or(10, |seconds| seconds.parse::<u64>().unwrap() / 6))
}

/// How often a server is killed under load: twice, or `PAGEWARDEN_KILLS`.
fn kills() -> usize {
    std::env::var("PAGEWARDEN_KILLS").map_or(2, |kills| kills.parse().unwrap())
}

/// Statements that are said again and again, each list by a client of its own: writes, and
/// everything that makes, moves and removes files.
const CHURN: [&str; 7] = [
    "USE shop;
     UPDATE dynamic SET body = REVERSE(body);
     UPDATE squeezed SET word = MD5(word) WHERE id % 3 = 0;
     UPDATE zipped SET word = MD5(word) WHERE id % 7 = 0;
     UPDATE secret SET word = MD5(word) WHERE id % 7 = 0;
     UPDATE secret_squeezed SET word = MD5(word) WHERE id % 7 = 0;
     SET GLOBAL innodb_log_checkpoint_now=1;",
    "USE shop;
     DROP TABLE IF EXISTS churn;
     CREATE TABLE churn ENGINE=InnoDB AS SELECT * FROM source;
     ALTER TABLE churn ADD KEY (word);
     TRUNCATE TABLE churn;
     INSERT INTO churn SELECT * FROM source;
     ALTER TABLE churn ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4;
     ALTER TABLE churn ROW_FORMAT=DYNAMIC PAGE_COMPRESSED=1;
     ALTER TABLE churn PAGE_COMPRESSED=0 ENCRYPTED=YES;
     DELETE FROM churn WHERE id > 100;
     OPTIMIZE TABLE churn;
     RENAME TABLE churn TO churned;
     DROP TABLE churned;",
    "USE shop;
     TRUNCATE TABLE compact;
     INSERT INTO compact SELECT * FROM source;
     OPTIMIZE TABLE redundant;
     ALTER TABLE parts FORCE;
     ALTER TABLE parts TRUNCATE PARTITION p0;
     INSERT IGNORE INTO parts SELECT * FROM source;",
    "USE shop;
     UPDATE aria_sums SET word = MD5(word);
     TRUNCATE TABLE aria_session;
     INSERT INTO aria_session SELECT * FROM source;
     ALTER TABLE aria_plain ADD KEY late (word, body), ADD KEY later (body);
     ALTER TABLE aria_plain DROP KEY late, DROP KEY later;
     OPTIMIZE TABLE aria_sums;",
    // Every page of every table that does not say otherwise, one after the other.
    "SET GLOBAL innodb_encrypt_tables=ON; DO SLEEP(3);
     SET GLOBAL innodb_encrypt_tables=OFF; DO SLEEP(3);",
    "USE shop;
     CREATE OR REPLACE TABLE words (id INT PRIMARY KEY, word VARCHAR(60), spot POINT NOT NULL,
       FULLTEXT (word), SPATIAL INDEX (spot)) ENGINE=InnoDB;
     INSERT INTO words SELECT id, CONCAT('word', id, ' in common'), POINT(id % 50, id) FROM source;
     DELETE FROM words WHERE id % 4 = 0;
     OPTIMIZE TABLE words;
     CREATE TEMPORARY TABLE passing ENGINE=InnoDB AS SELECT * FROM source;
     UPDATE passing SET word = REVERSE(word);
     CREATE OR REPLACE SEQUENCE numbers;
     DO NEXTVAL(numbers);",
    "ALTER TABLE sbtest.sbtest1 FORCE; DO SLEEP(1);
     OPTIMIZE TABLE sbtest.sbtest2; DO SLEEP(1);
     ALTER TABLE sbtest.sbtest3 FORCE, ALGORITHM=COPY; DO SLEEP(1);
     ALTER TABLE sbtest.sbtest4 FORCE; DO SLEEP(1);",
];

/// Runs `work` while others write.
fn under_load<T>(server: &Server, sysbench: Option<&Sysbench>, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        for sql in CHURN {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // A conflict between these, or a table that is not there, does not matter here.
                    let _ = say_anyway(server, sql);
                }
            });
        }
        let mut running = sysbench.map(Sysbench::start);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let answers = server.sql("SELECT 1").is_ok();
        let goes_on = running.as_mut().is_none_or(Running::is_running);
        assert!(goes_on || !answers || result.is_err(), "sysbench ended before its time");
        result
    });
    match result {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Says all of the statements, whatever becomes of each.
fn say_anyway(server: &Server, sql: &str) -> std::io::Result<()> {
    let mut client = server.client();
    client.arg("--force").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = client.spawn()?;
    let said = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(sql.as_bytes()));
    child.wait()?;
    said
}

/// What goes on in the background of a server: undo logs are cut, pages encrypted and
/// decrypted.
const BUSY: [&str; 5] = [
    "innodb_undo_tablespaces=3",
    "innodb_undo_log_truncate=ON",
    "innodb_max_undo_log_size=10M",
    "innodb_encryption_threads=2",
    "innodb_encryption_rotation_iops=2000",
];

/// What was seen of a server under load.
#[derive(Debug, Default)]
struct Seen {
    checks: usize,
    pages: u64,
    undecided: u64,
    unread: usize,
    findings: usize,
}

/// Checks the directory, one database and one table of it, again and again.
fn check_under_load(shape: Shape) {
    let Some(installation) = installation() else { return };
    let (mut server, _keys) = server_with(&installation, shape, &BUSY);
    let root = server.data_dir().to_owned();
    server.start().unwrap();
    server.sql(&tables(shape)).unwrap();
    let sysbench = Sysbench::prepare(&server);
    let mut seen = Seen::default();
    under_load(&server, sysbench.as_ref(), || {
        let paths = [root.clone(), root.clone(), root.join("shop"), root.join("shop/dynamic.ibd")];
        let begin = Instant::now();
        while begin.elapsed() < load() || seen.checks < 4 {
            let option = [None, Some("--cached"), Some("--direct"), Some("--jobs=1")];
            // Each path with each option, in 16 checks.
            let path = &paths[(seen.checks + seen.checks / 4) % 4];
            let option = option[seen.checks % 4];
            let mut arguments: Vec<_> = option.iter().map(std::ffi::OsStr::new).collect();
            arguments.push(path.as_os_str());
            // One in four stands back, as users' do.
            let outcome =
                if option.is_none() { check(arguments) } else { check_at_full_speed(arguments) };
            let report = outcome.report();
            let state = format!("{shape:?}, check {}, {option:?} {}", seen.checks, path.display());
            assert_eq!(report.findings(), [], "{state}: {:?}", report.details());
            assert!(report.unread().is_empty(), "{state}: {:?}", report.unread());
            assert_eq!(report.target()["live"], true, "{state}");
            assert!(*path != root || report.pages("ok") > 1000, "{state}");
            seen.undecided += report.pages("undecided");
            seen.pages += report.pages("total");
            seen.unread += report.unread().len();
            seen.findings += report.findings().len();
            seen.checks += 1;
        }
    });
    let did = [
        "Com_alter_table",
        "Com_truncate",
        "Innodb_pages_written",
        "Innodb_undo_truncations",
        "Innodb_num_pages_page_compressed",
        "Innodb_num_pages_encrypted",
    ]
    .map(|name| (name, status(&server, name)));
    eprintln!("MariaDB under load, {shape:?}: {seen:?} in {:?}; {did:?}", load());
    assert!(did.iter().all(|(name, count)| *count > 0 || name.contains("undo")), "{did:?}");
    server.stop().unwrap();
    // Some tables are encrypted.
    let report = check(["--accept-unverifiable".as_ref(), root.as_os_str()]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{:?}", report.details());
}

/// A count that the server keeps.
fn status(server: &Server, name: &str) -> u64 {
    let sql = format!(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name='{name}'"
    );
    server.sql(&sql).unwrap().parse().unwrap()
}

#[test]
fn running_server_under_load_has_no_findings() {
    check_under_load(Shape { encrypted: true, ..Shape::USUAL });
}

#[test]
fn running_server_of_the_old_layout_under_load_has_no_findings() {
    check_under_load(Shape { page_kib: 4, algorithm: "crc32", encrypted: true });
}

/// What is half done when a server is killed, recovery finishes: none of it is
/// damage. Pages that are given back are erased, undo logs are cut off, the log goes
/// round many times, and is encrypted or not.
#[test]
fn killed_server_leaves_no_findings() {
    let Some(installation) = installation() else { return };
    let erasing = [
        "innodb_undo_tablespaces=3",
        "innodb_undo_log_truncate=ON",
        "innodb_max_undo_log_size=10M",
        "innodb_immediate_scrub_data_uncompressed=ON",
        "innodb_log_file_size=4M",
    ];
    let secretive = [
        "innodb_encrypt_log=ON",
        "innodb_log_file_size=6M",
        "innodb_encryption_threads=2",
        "innodb_encryption_rotation_iops=2000",
    ];
    let (mut killed, mut mended, mut notices) = (0, 0, 0);
    for (round, more) in [&erasing[..], &secretive[..]].into_iter().enumerate() {
        let shape = Shape { encrypted: true, ..Shape::USUAL };
        let (mut server, _keys) = server_with(&installation, shape, more);
        let root = server.data_dir().to_owned();
        server.start().unwrap();
        server.sql(&tables(shape)).unwrap();
        let sysbench = Sysbench::prepare(&server);
        let pid = |server: &mut Server| {
            rustix::process::Pid::from_raw(server.pid().unwrap().try_into().unwrap()).unwrap()
        };
        for kill in 0..kills().div_ceil(2) {
            let victim = pid(&mut server);
            let wait = Duration::from_millis(1500 + 700 * (kill as u64 % 7));
            under_load(&server, sysbench.as_ref(), || {
                thread::sleep(wait);
                rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
            });
            while server.is_running() {}
            let report = check([&root]).report();
            let state = report.target()["state"].as_str().unwrap();
            assert!(
                state.contains("recovery has yet to run"),
                "{round} {kill} {state} {:?}",
                report.details()
            );
            assert_eq!(report.serious(), [], "round {round}, kill {kill}: {:?}", report.details());
            assert!(report.unread().is_empty(), "{:?}", report.unread());
            notices += report.findings().len();
            killed += 1;
            // Killed often enough, a server may not come back: that does not matter here.
            if let Err(error) = server.start() {
                assert!(kill > 2, "{error}");
                eprintln!("MariaDB did not come back from kill {kill}");
                break;
            }
            server.stop().unwrap();
            let report = check([&root]).report();
            let what = format!("recovered from round {round}, kill {kill}");
            let (of_aria, others): (Vec<Finding>, Vec<Finding>) =
                report.serious().into_iter().partition(|one| aria_table(&one.file).is_some());
            let log_before = server.log().len();
            server.start().unwrap();
            // Seen once in a thousand kills: a table that was being truncated was lost by the server.
            let is_lost = |one: &Finding| one.kind == "missing" && !can_read(&server, &one.file);
            let invented: Vec<_> = others.iter().filter(|one| !is_lost(one)).collect();
            assert_eq!(invented, Vec::<&Finding>::new(), "{what}: {:?}", report.details());
            if !others.is_empty() {
                eprintln!("MariaDB lost tables, {what}: {others:?}");
                break;
            }
            mended += 1;
            let broken: BTreeSet<_> =
                of_aria.iter().filter_map(|one| aria_table(&one.file)).collect();
            for table in broken {
                make_aria_table_again(&server, table, log_before, &format!("{what}: {of_aria:?}"));
            }
        }
    }
    eprintln!("MariaDB: killed {killed} times, {notices} notices then; recovered {mended} times");
}

/// True if the server reads all rows of the table of a file such as `shop/compact.ibd`.
fn can_read(server: &Server, file: &str) -> bool {
    let table = file.trim_end_matches(".ibd").replace('/', ".");
    server.sql(&format!("SELECT COUNT(*) FROM {table}")).is_ok()
}

/// The name of the Aria table that a file belongs to. A kill can leave one that the server cannot
/// read: TRUNCATE, OPTIMIZE and ALTER make its files anew, one after the other. Seen: one file of
/// the two missing, an index file of no byte, a data file cut off. Of some the server says at its
/// next start that the table is crashed, and mends it when it is opened.
fn aria_table(file: &str) -> Option<&str> {
    let (table, _) = file.strip_prefix("shop/")?.split_once('.')?;
    table.starts_with("aria_").then_some(table)
}

/// A finding in such a table is right only if the server cannot read it either, or finds it
/// corrupt or crashed itself, behind `log_before` bytes of its log. It gets a new one.
fn make_aria_table_again(server: &Server, table: &str, log_before: usize, what: &str) {
    let read =
        server.sql(&format!("CHECK TABLE shop.{table} EXTENDED; SELECT * FROM shop.{table}"));
    let log = server.log();
    let is_crashed = log
        .get(log_before..)
        .unwrap_or(&log)
        .lines()
        .any(|line| line.contains(&format!("./shop/{table}'")) && line.contains("crashed"));
    let is_sound = read.as_ref().is_ok_and(|said| said.lines().next().unwrap().ends_with("OK"));
    eprintln!("{what}, and the server says that it is crashed: {is_crashed}, sound: {is_sound}");
    assert!(is_crashed || !is_sound, "{what}, and the server reads it: {log}");
    // The first one fails and takes the files away, the second one takes the definition.
    for _ in 0..2 {
        let _ = server.sql(&format!("DROP TABLE IF EXISTS shop.{table}"));
    }
    let options = match table {
        "aria_session" => "TRANSACTIONAL=0 PAGE_CHECKSUM=1",
        "aria_plain" => "PAGE_CHECKSUM=0",
        _ => "PAGE_CHECKSUM=1",
    };
    let make = format!(
        "CREATE TABLE shop.{table} (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300), \
         KEY (word)) ENGINE=Aria {options}; INSERT INTO shop.{table} SELECT * FROM shop.source"
    );
    server.sql(&make).unwrap();
}

/// A table that comes from a server with a longer history keeps pages of that time
/// where it has free ones.
#[test]
fn imported_table_is_not_newer_than_the_log() {
    let Some(installation) = installation() else { return };
    let (mut older, _keys) = server(&installation, Shape::USUAL);
    older.start().unwrap();
    older.sql(&tables(Shape::USUAL)).unwrap();
    older
        .sql(
            "USE shop; INSERT INTO dynamic SELECT id + 10000, word, body FROM source;
             DELETE FROM dynamic WHERE id > 200; SET GLOBAL innodb_max_dirty_pages_pct=0;",
        )
        .unwrap();
    older.stop().unwrap();
    older.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let from = older.data_dir().join("shop");
    let mut client = older.client();
    let script = format!(
        "USE shop; FLUSH TABLES dynamic FOR EXPORT;\n\
         system cp {0}/dynamic.ibd {0}/dynamic.cfg {1}/\nUNLOCK TABLES;",
        from.display(),
        folder.path().display()
    );
    crate::runner::open_to_all(folder.path());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut child = client.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    older.stop().unwrap();

    let (mut younger, _keys) = server(&installation, Shape::USUAL);
    younger.start().unwrap();
    younger
        .sql(
            "CREATE DATABASE shop; USE shop;
             CREATE TABLE dynamic (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300),
               KEY (word)) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;
             ALTER TABLE dynamic DISCARD TABLESPACE;",
        )
        .unwrap();
    for name in ["dynamic.ibd", "dynamic.cfg"] {
        let place = younger.data_dir().join("shop").join(name);
        assert!(
            Command::new("cp")
                .arg("-p")
                .arg(folder.path().join(name))
                .arg(place)
                .status()
                .unwrap()
                .success()
        );
    }
    younger.sql("USE shop; ALTER TABLE dynamic IMPORT TABLESPACE").unwrap();
    younger.stop().unwrap();
    let report = check([younger.data_dir()]).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{:?}", report.details());
}

/// IMPORT TABLESPACE gives the pages of a file another number, one after the other: for a large
/// table that takes minutes, and a server may be killed meanwhile.
#[test]
fn table_that_is_being_imported_is_not_damaged() {
    const PAGE: usize = 16_384;
    let Some(installation) = installation() else { return };
    let (mut server, _keys) = server(&installation, Shape::USUAL);
    let root = server.data_dir().to_owned();
    server.start().unwrap();
    server.sql(&tables(Shape::USUAL)).unwrap();
    server.sql("CREATE TABLE shop.moved LIKE shop.source").unwrap();
    let own = fs::read(root.join("shop/moved.ibd")).unwrap()[34..38].to_vec();
    server.sql("ALTER TABLE shop.moved DISCARD TABLESPACE").unwrap();
    server.sql("FLUSH TABLES shop.source FOR EXPORT").unwrap();
    server.sql("SET GLOBAL innodb_log_checkpoint_now=1").unwrap();
    let exported = fs::read(root.join("shop/source.ibd")).unwrap();
    // Behind them the file is empty.
    let is_used = |page: &[u8]| page.iter().any(|byte| *byte != 0);
    let pages = exported.chunks_exact(PAGE).rposition(is_used).unwrap() + 1;
    let give = |page: &mut [u8], space: &[u8]| {
        if !is_used(page) {
            return;
        }
        page[34..38].copy_from_slice(space);
        if page[4..8] == [0; 4] {
            page[38..42].copy_from_slice(space);
        }
        crate::innodb_directories::stamp(page);
    };
    let at_page = |done: usize| {
        let mut bytes = exported.clone();
        bytes.chunks_exact_mut(PAGE).take(done).for_each(|page| give(page, &own));
        bytes
    };
    let moved = root.join("shop/moved.ibd");
    for done in [0, 2, 9, pages / 2, pages] {
        fs::write(&moved, at_page(done)).unwrap();
        let report = check_at_full_speed([&root]).report();
        assert_eq!(report.findings(), [], "{done} of {pages}: {:?}", report.details());
        let notes = report.target()["notes"].to_string();
        let is_told = notes.contains("an import that is not done");
        assert_eq!(is_told, (2..pages).contains(&done), "{done} of {pages}: {notes}");
    }
    // A page of a third tablespace is as wrong as ever.
    let mut bytes = at_page(9);
    give(&mut bytes[12 * PAGE..13 * PAGE], &[0, 0, 7, 7]);
    fs::write(&moved, &bytes).unwrap();
    let wrong = Finding::page_at("shop/moved.ibd", 12, 12 * PAGE as u64, "damage", "misplaced");
    assert_eq!(check_at_full_speed([&root]).report().findings(), [wrong]);
    // And one page of another table is none that is on its way.
    let mut bytes = at_page(pages);
    give(&mut bytes[12 * PAGE..13 * PAGE], &exported[34..38]);
    fs::write(&moved, &bytes).unwrap();
    assert_eq!(check_at_full_speed([&root]).report().findings().len(), 1);

    fs::write(&moved, at_page(pages / 2)).unwrap();
    let pid = rustix::process::Pid::from_raw(server.pid().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while server.is_running() {}
    let report = check_at_full_speed([&root]).report();
    assert_eq!(report.serious(), [], "killed: {:?}", report.details());
}

/// It has no data directory above it, and the server locks none but its own first file.
#[test]
fn table_in_a_folder_of_its_own_is_in_use_while_its_server_has_it_open() {
    let Some(installation) = installation() else { return };
    let shape = Shape { page_kib: 4, ..Shape::USUAL };
    // So that pages stay in memory for long.
    let (mut server, _keys) = server_with(&installation, shape, &["innodb_buffer_pool_size=64M"]);
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    server.start().unwrap();
    server
        .sql(&format!(
            "CREATE DATABASE shop; USE shop;
             CREATE TABLE apart (id INT PRIMARY KEY AUTO_INCREMENT, body VARCHAR(900))
               ENGINE=InnoDB DATA DIRECTORY='{}';",
            folder.path().display()
        ))
        .unwrap();
    let file = folder.path().join("shop/apart.ibd");
    for rows in [0, 300, 3000] {
        let insert = format!(
            "USE shop; INSERT INTO apart (body) SELECT REPEAT(MD5(seq), 20) FROM seq_1_to_{rows};"
        );
        server.sql(if rows > 0 { &insert } else { "DO 0" }).unwrap();
        for path in [file.clone(), folder.path().join("shop")] {
            let report = check([&path]).report();
            let what = format!("{rows} rows, {}", path.display());
            assert_eq!(report.findings(), [], "{what}: {:?}", report.details());
            assert_eq!(report.target()["live"], true, "{what}");
        }
    }
    server.sql("SET GLOBAL innodb_log_checkpoint_now=1").unwrap();
    let report = check([&file]).report();
    assert_eq!(report.target()["page_size"], 4096);
    assert!(report.pages("ok") > 500, "{}", report.json);
    let root = server.data_dir().to_owned();
    server.stop().unwrap();
    let notes = check([&root]).report().target()["notes"].to_string();
    assert!(notes.contains(&*file.to_string_lossy()), "{notes}");
    for path in [&file, &folder.path().join("shop")] {
        let report = check([path]).report();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"));
        assert_eq!(report.target()["live"], false);
    }
    let mut bytes = fs::read(&file).unwrap();
    bytes[40 * 4096..41 * 4096].fill(0);
    fs::write(&file, bytes).unwrap();
    let zeroed = Finding::page_at("apart.ibd", 40, 40 * 4096, "damage", "zeroed");
    assert_eq!(check([&file]).report().findings(), [zeroed]);
}
