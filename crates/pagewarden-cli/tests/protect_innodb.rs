//! `pagewarden protect` on data directories of a real MariaDB, whose pages get the sums of older
//! servers first: what it makes must be what the server and its own tool take for right, and what
//! it leaves half done must stop neither.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::formats::innodb::checksum::fold::{new_fold, old_fold};
use pagewarden::formats::innodb::checksum::{NO_CHECKSUM_MAGIC, crc32, zip_adler32, zip_crc32};
use pagewarden_scratch::mariadb::Server;
use rustix::process::Signal;
use serde_json::Value;

use crate::damage::Dice;
use crate::mariadb_samples::{Shape, installation, listing, server, server_with, tables};
use crate::runner::{Outcome, Started, check, pagewarden, run};

const SHAPE: Shape = Shape { page_kib: 16, algorithm: "crc32", encrypted: true };
const ZIP: usize = 2048;
/// Where MariaDB has its doublewrite area, with pages of 16K.
const COPIES: std::ops::Range<u64> = 64..192;

fn protect(path: &Path, arguments: &[&str]) -> Outcome {
    run(pagewarden().args(["protect", "--mode", "checksum", "--json"]).arg(path).args(arguments))
}

/// The result of a run that ended with this status.
fn result(outcome: &Outcome, status: i32) -> Value {
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(
        (&json["pagewarden"], &json["command"]),
        (&env!("CARGO_PKG_VERSION").into(), &"protect".into())
    );
    json
}

/// The files that can be changed.
fn tablespaces(root: &Path) -> Vec<PathBuf> {
    let files = listing(root).into_iter().map(|(path, ..)| path);
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo")
    };
    files.filter(is_one).collect()
}

/// Gives pages with the sum `crc32` an older one, or none, by chance: what this server no longer
/// writes, and still reads. How many.
fn make_old(root: &Path, page_bytes: usize, dice: &mut Dice) -> u64 {
    let mut changed = 0;
    for path in tablespaces(root) {
        let is_zip = path.ends_with("zipped.ibd");
        let size = if is_zip { ZIP } else { page_bytes };
        let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut page = vec![0; size];
        let mut offset = 0;
        while file.read_exact_at(&mut page, offset).is_ok() {
            // Copies of other pages, which stay as they are.
            if path.ends_with("ibdata1") && (COPIES.contains(&(offset / size as u64))) {
                offset += size as u64;
                continue;
            }
            let field = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap());
            let end = size - 8;
            let sums = match dice.within(0..3) {
                _ if is_zip && field(0) != zip_crc32(&page) => None,
                _ if !is_zip && (field(0), field(end)) != (crc32(&page), crc32(&page)) => None,
                0 => None,
                1 => Some([NO_CHECKSUM_MAGIC, NO_CHECKSUM_MAGIC]),
                _ if is_zip => Some([zip_adler32(&page), 0]),
                _ => {
                    let sum = new_fold(&page);
                    page[..4].copy_from_slice(&sum.to_be_bytes());
                    Some([sum, old_fold(&page)])
                }
            };
            if let Some([first, second]) = sums {
                changed += 1;
                file.write_all_at(&first.to_be_bytes(), offset).unwrap();
                if !is_zip {
                    file.write_all_at(&second.to_be_bytes(), offset + end as u64).unwrap();
                }
            }
            offset += size as u64;
        }
    }
    changed
}

/// A stopped server with tables of every kind and older sums, and how many.
fn sample(dice: &mut Dice) -> Option<(Server, tempfile::TempDir, u64)> {
    let installation = installation()?;
    let (mut server, keys) = server(&installation, SHAPE);
    server.start().unwrap();
    server.sql(&tables(SHAPE)).unwrap();
    server.stop().unwrap();
    let changed = make_old(server.data_dir(), SHAPE.page(), dice);
    assert!(changed > 200, "{changed}");
    Some((server, keys, changed))
}

/// Reads every page of every table through the server; its word on all rows. The server is
/// stopped then.
fn rows(server: &mut Server) -> String {
    server.start().unwrap();
    let names = server
        .sql("SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables
              WHERE engine = 'InnoDB' AND table_schema IN ('shop', 'odd-name', 'bulk') ORDER BY 1")
        .unwrap();
    let mut rows = String::new();
    for name in names.lines() {
        let found = server.sql(&format!("CHECK TABLE {name} EXTENDED")).unwrap();
        assert!(found.ends_with("status\tOK"), "{found}\n{}", server.log());
        rows.push_str(&server.sql(&format!("CHECKSUM TABLE {name} EXTENDED")).unwrap());
        rows.push('\n');
    }
    server.stop().unwrap();
    rows
}

/// No page is worse than `crc32`, by our word and by that of the server's own tool.
fn assert_all_crc32(root: &Path) {
    // Some tables are encrypted.
    let report = check(["--accept-unverifiable".as_ref(), root.as_os_str()]).report();
    assert_eq!(report.findings(), [], "{:?}", report.details());
    assert_eq!(report.verdict(), "intact");
    for path in tablespaces(root) {
        // Copies in the doublewrite area stay as they are.
        let is_system = path.ends_with("ibdata1");
        let report = check([&path]).report();
        assert!(is_system || report.pages("unprotected") == 0, "{}", report.json);
    }
    let Ok(help) = Command::new("innochecksum").arg("--help").output() else { return };
    assert!(help.status.success());
    for path in tablespaces(root) {
        // It takes pages in the doublewrite area for damaged, and cannot unpack.
        if path.ends_with("ibdata1") {
            continue;
        }
        let output = Command::new("innochecksum").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", path.display());
    }
}

#[test]
fn server_reads_what_was_changed_and_so_does_its_tool() {
    let mut dice = Dice::seeded();
    let Some((mut server, _keys, changed)) = sample(&mut dice) else { return };
    let root = server.data_dir().to_owned();
    let before = listing(&root);
    let foreseen = result(&protect(&root, &["--dry-run"]), 0);
    assert_eq!(listing(&root), before);
    assert_eq!(foreseen["pages"]["changed"], changed);
    let owners = |root: &Path| -> Vec<_> {
        let files = listing(root).into_iter().map(|(path, ..)| path);
        files
            .map(|path| (fs::metadata(&path).unwrap(), path))
            .map(|(data, path)| (path, data.mode(), data.uid(), data.gid()))
            .collect()
    };
    let kept = owners(&root);
    let json = result(&protect(&root, &[]), 0);
    assert_eq!(json["pages"], foreseen["pages"]);
    assert_eq!(
        (&json["before"], &json["after"], &json["verdict"]),
        (&"none".into(), &"checksum".into(), &"intact".into())
    );
    assert!(json["engine"].as_str().unwrap().starts_with("MariaDB 10."), "{json}");
    assert!(json["bytes_verified"].as_u64() >= json["bytes_written"].as_u64());
    assert_eq!(owners(&root), kept);
    assert_all_crc32(&root);
    let after = rows(&mut server);
    // A second run finds nothing to do.
    let json = result(&protect(&root, &[]), 0);
    assert_eq!((&json["pages"]["changed"], &json["bytes_written"]), (&0.into(), &0.into()));
    // The same rows as with the older sums.
    make_old(&root, SHAPE.page(), &mut dice);
    assert_eq!(rows(&mut server), after);
}

#[test]
fn copy_is_a_database_of_its_own() {
    let mut dice = Dice::seeded();
    let Some((mut server, _keys, changed)) = sample(&mut dice) else { return };
    let root = server.data_dir().to_owned();
    let before = listing(&root);
    let copy = root.with_file_name("copy");
    let json = result(&protect(&root, &["--copy-to", copy.to_str().unwrap()]), 0);
    assert_eq!((&json["pages"]["changed"], &json["after"]), (&changed.into(), &"checksum".into()));
    assert_eq!(listing(&root), before);
    assert_all_crc32(&copy);
    let expected = rows(&mut server);
    fs::rename(&root, root.with_file_name("former")).unwrap();
    fs::rename(&copy, &root).unwrap();
    assert_eq!(rows(&mut server), expected);
}

#[test]
fn running_and_crashed_servers_are_refused() {
    let mut dice = Dice::seeded();
    let Some((mut server, _keys, _)) = sample(&mut dice) else { return };
    let root = server.data_dir().to_owned();
    server.start().unwrap();
    for arguments in [&[][..], &["--dry-run"]] {
        let json = result(&protect(&root, arguments), 2);
        assert!(json["error"].as_str().unwrap().contains("a server runs on it"), "{json}");
        let json = result(&protect(&root.join("shop/dynamic.ibd"), arguments), 2);
        assert!(json["error"].as_str().unwrap().contains("a server runs on it"), "{json}");
    }
    server.sql("UPDATE shop.dynamic SET word = 'x'").unwrap();
    let pid = rustix::process::Pid::from_raw(server.pid().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    while server.is_running() {
        thread::sleep(Duration::from_millis(5));
    }
    let json = result(&protect(&root, &[]), 2);
    assert!(json["error"].as_str().unwrap().contains("not shut down cleanly"), "{json}");
    rows(&mut server);
    result(&protect(&root, &[]), 0);
    assert_all_crc32(&root);
}

#[test]
fn other_modes_are_refused_in_words() {
    let mut dice = Dice::seeded();
    let Some((server, _keys, _)) = sample(&mut dice) else { return };
    for (mode, words) in [("none", "not taken away"), ("torn", "no marks for torn writes")] {
        let outcome = run(pagewarden().args(["protect", "--mode", mode]).arg(server.data_dir()));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
}

/// A server that waits for the lock on the file that is replaced must not get it: it would write
/// to a file that has lost its name. MySQL tries once a second.
#[test]
fn whoever_waits_for_the_lock_does_not_get_the_former_file() {
    let mut dice = Dice::seeded();
    let Some((server, _keys, _)) = sample(&mut dice) else { return };
    let root = server.data_dir().to_owned();
    let script = "import fcntl, os, sys, time\n\
                  f = open(sys.argv[1], 'r+b')\n\
                  print('open', flush=True)\n\
                  while not os.path.exists(sys.argv[2]): time.sleep(0.001)\n\
                  left = 20\n\
                  while left > 0:\n    \
                      try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); sys.exit('locked')\n    \
                      except OSError: time.sleep(0.02)\n    \
                      if os.fstat(f.fileno()).st_nlink == 0: left -= 1\n\
                  print('gone', flush=True)";
    let mut waiting = Command::new("python3");
    waiting.args(["-c", script]).arg(root.join("ibdata1"));
    waiting.arg(root.join("pagewarden-protect.journal"));
    let Ok(mut waiting) = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        eprintln!("SKIPPED: there is no python3 to wait for the lock");
        return;
    };
    let mut open = [0; 5];
    waiting.stdout.as_mut().unwrap().read_exact(&mut open).unwrap();
    let begin = Instant::now();
    let json = result(&protect(&root, &[]), 0);
    // It waited until the other had given up.
    assert!(begin.elapsed() > Duration::from_millis(400), "{json}");
    let said = waiting.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "gone\n", "{said:?}");
}

/// True if a file of `protect` is there.
fn has_ours(root: &Path) -> bool {
    let is_ours =
        |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().contains("pagewarden");
    listing(root).iter().any(|(path, ..)| is_ours(path))
}

/// Kills runs at moments spread over their length, on a directory of some 100 MB.
/// `PAGEWARDEN_KILLS` says how often.
#[test]
fn killed_at_any_time_the_same_command_finishes() {
    let kills = std::env::var("PAGEWARDEN_KILLS").ok().and_then(|text| text.parse().ok());
    let kills = kills.unwrap_or(3_usize);
    let Some(installation) = installation() else { return };
    let shape = Shape { encrypted: false, ..SHAPE };
    let (mut server, _keys) = server_with(&installation, shape, &["innodb_log_file_size=4M"]);
    server.start().unwrap();
    server.sql(&tables(shape)).unwrap();
    server
        .sql(
            "CREATE DATABASE bulk; USE bulk;
             CREATE TABLE a (id INT PRIMARY KEY, body VARCHAR(2000)) ENGINE=InnoDB;
             INSERT INTO a SELECT seq, REPEAT(MD5(seq), 40) FROM seq_1_to_20000;
             CREATE TABLE b ENGINE=InnoDB AS SELECT * FROM a WHERE id < 10000;",
        )
        .unwrap();
    server.stop().unwrap();
    let expected = rows(&mut server);
    let mut dice = Dice::seeded();
    let root = server.data_dir().to_owned();
    let changed = make_old(&root, shape.page(), &mut dice);
    let sample = crate::mariadb_samples::copy(&root);
    let (mut interrupted, mut resumed, mut left) = (0, 0, 0);
    for round in 0..kills {
        fs::remove_dir_all(&root).unwrap();
        let copied =
            Command::new("cp").arg("-a").arg(sample.path().join("data")).arg(&root).status();
        assert!(copied.unwrap().success());
        let mut command = pagewarden();
        command.args(["protect", "--mode", "checksum", "--rate", "200MiB/s"]).arg(&root);
        let at_work = Started::spawn(&mut command);
        thread::sleep(Duration::from_micros(dice.within(0..2_500_000) as u64));
        at_work.signal(Signal::KILL);
        interrupted += usize::from(at_work.wait().status.is_none());
        left += usize::from(has_ours(&root));
        // Every file is one that a server reads.
        let report = check([&root]).report();
        assert_eq!(report.findings(), [], "{:?}", report.details());
        if round % 5 == 0 {
            assert_eq!(rows(&mut server), expected, "round {round}");
        }
        let json = result(&protect(&root, &[]), 0);
        resumed += usize::from(json["files_resumed"].as_u64().unwrap() > 0);
        assert!(json["pages"]["changed"].as_u64().unwrap() <= changed, "{json}");
        assert!(!has_ours(&root));
        let again = result(&protect(&root, &["--dry-run"]), 0);
        assert_eq!(again["pages"]["changed"], 0);
        if round % 5 == 0 {
            assert_all_crc32(&root);
            assert_eq!(rows(&mut server), expected, "round {round}");
        }
    }
    println!("{kills} kills, {interrupted} in time, {left} left something, {resumed} resumed");
}
