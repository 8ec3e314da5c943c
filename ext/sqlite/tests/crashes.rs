//! Processes that end in the middle: what was committed is all there, and no page fails.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::shell::{self, Folder, Random};

/// Stops a writer at moments of chance, takes copies of its files as a crash would leave them, and
/// opens these.
#[test]
fn crash_at_any_moment_loses_nothing_and_raises_no_alarm() {
    const MOMENTS: u64 = 12;
    if !shell::is_there() {
        return;
    }
    let modes = ["DELETE", "TRUNCATE", "PERSIST", "WAL"];
    let mut random = Random(0xc0ffee);
    for (mode, first) in
        modes.iter().flat_map(|mode| [(mode, "CHECKSUM"), (mode, "TORN_PAGE_DETECTION")])
    {
        let folder = Folder::new();
        let mut script = format!(
            "PRAGMA page_size=1024; PRAGMA page_verify={first}; PRAGMA journal_mode={mode}; \
             PRAGMA cache_size=8; PRAGMA wal_autocheckpoint=20; PRAGMA synchronous=OFF;\n\
             CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX i ON t(b);\n"
        );
        for number in 1..=4000 {
            script.push_str(&format!(
                "BEGIN; INSERT INTO t VALUES({number}, hex(randomblob(300))); \
                 UPDATE t SET b=hex(randomblob(200)) WHERE a%9={}; COMMIT; \
                 SELECT printf('done %d %900s', {number}, '');\n",
                number % 9
            ));
            if number % 40 == 0 {
                script.push_str("VACUUM;\n");
            }
        }
        fs::write(folder.path("script.sql"), script).unwrap();
        let mut writer = folder
            .command("x.db")
            .stdin(Stdio::from(fs::File::open(folder.path("script.sql")).unwrap()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let id = writer.id().to_string();
        let signal = |name: &str| {
            let _ = Command::new("kill").args([name, &id]).stderr(Stdio::null()).status();
        };
        let done = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let reader = {
            let (done, output) = (done.clone(), writer.stdout.take().unwrap());
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Some(number) = line.strip_prefix("done ") {
                        let number = number.split(' ').next().unwrap().parse().unwrap();
                        done.store(number, std::sync::atomic::Ordering::SeqCst);
                    }
                }
            })
        };
        for moment in 0..MOMENTS {
            thread::sleep(Duration::from_micros(random.below(20_000)));
            let committed = done.load(std::sync::atomic::Ordering::SeqCst);
            signal("-STOP");
            let copy = Folder::new();
            for suffix in ["", "-journal", "-wal"] {
                let name = format!("x.db{suffix}");
                let _ = fs::copy(folder.path(&name), copy.path(&name));
            }
            signal("-CONT");
            let what = format!("{mode} {first} moment {moment}, {committed} committed");
            if committed == 0 {
                continue;
            }
            assert_eq!(copy.check("x.db").damage(), Vec::<&_>::new(), "{what}");
            let rows = copy.rows(
                "x.db",
                "SELECT max(a), count(*) FROM t; PRAGMA integrity_check; \
                 SELECT count(*) FROM pagewarden_suspect_pages;",
            );
            let (counts, rest) = rows.split_once('\n').unwrap();
            assert_eq!(rest, "ok\n0\n", "{what}");
            let (last, count) = counts.split_once('|').unwrap();
            assert_eq!(last, count, "{what}");
            assert!(last.parse::<u64>().unwrap() >= committed, "{what}: {last} are left");
            assert_eq!(copy.check("x.db").damage(), Vec::<&_>::new(), "{what}");
        }
        signal("-KILL");
        writer.wait().unwrap();
        reader.join().unwrap();
        std::io::stderr().flush().unwrap();
    }
}

/// A crash in the VACUUM that gives a database its markers must not put markers on pages whose
/// whole length is content.
#[test]
fn crash_while_markers_are_added_leaves_the_old_content() {
    if !shell::is_there() {
        return;
    }
    for mode in ["DELETE", "WAL"] {
        let folder = Folder::new();
        let fill = format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE t(a INTEGER PRIMARY KEY, b);
            WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<20000)
            INSERT INTO t SELECT v, hex(v*7919)||hex(zeroblob(v%90)) FROM n; SELECT * FROM t;"
        );
        let sound = folder.run_plain("plain.db", &fill).rows;
        let sound = sound.split_once('\n').unwrap().1;
        for delay in [30, 60, 80, 100, 120, 150, 200, 300] {
            let copy = Folder::new();
            copy.write("x.db", &folder.read("plain.db"));
            let script = "PRAGMA page_verify=CHECKSUM; PRAGMA cache_size=5; VACUUM; \
                          PRAGMA wal_checkpoint;";
            fs::write(copy.path("script.sql"), script).unwrap();
            let mut writer = copy
                .command("x.db")
                .stdin(Stdio::from(fs::File::open(copy.path("script.sql")).unwrap()))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_millis(delay));
            writer.kill().unwrap();
            writer.wait().unwrap();
            let lock = if delay % 20 == 0 { "EXCLUSIVE" } else { "NORMAL" };
            let rows = copy.rows("x.db", &format!("PRAGMA locking_mode={lock}; SELECT * FROM t;"));
            let (_, rows) = rows.split_once('\n').unwrap();
            assert!(rows == sound, "{mode} {delay} ms");
            assert_eq!(copy.rows("x.db", "PRAGMA integrity_check;"), "ok\n", "{mode} {delay}");
            assert_eq!(copy.check("x.db").damage(), Vec::<&_>::new(), "{mode} {delay}");
        }
    }
}
