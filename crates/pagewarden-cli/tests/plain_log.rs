//! Base backups beside a plain archive of the log (`check BACKUP... --log DIR`), all made by real servers:
//! what `archive_command` copies, and what `pg_receivewal` receives, whole, with a gap, damaged, and after
//! a promotion. What is promised is tried: a server restores the backups and replays to both ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pagewarden_scratch::postgres::{Cluster, Installation, Options};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::clusters::installations;
use crate::runner::{Outcome, pagewarden, run};

const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster with an early backup (a folder), a late one (archives), and its log in two forms.
struct History {
    primary: Cluster,
    archive: PathBuf,
    received: PathBuf,
    early: PathBuf,
    late: PathBuf,
}

impl History {
    fn of(installation: &Installation) -> Self {
        let options = Options { wal_segment_mib: Some(1), ..Options::default() };
        let mut primary = Cluster::init(installation, &options).unwrap();
        let archive = primary.add_dir("archive").unwrap();
        let received = primary.add_dir("received").unwrap();
        let command = format!("'test ! -f {0}/%f && cp %p {0}/%f'", archive.display());
        // A receiver that is slow still finds the segment that it asks for.
        let settings =
            [("archive_mode", "on"), ("archive_command", &*command), ("wal_keep_size", "'256MB'")];
        primary.append_settings(settings).unwrap();
        primary.start().unwrap();
        let mut receiver = primary.client("pg_receivewal").unwrap();
        // It tells at once what it has.
        receiver.arg("--synchronous").arg("-D").arg(&received).stderr(Stdio::null());
        if installation.major >= 18 {
            receiver.arg("--compress=gzip");
        }
        let receiver = receiver.spawn().unwrap();
        wait_for("a first segment", || fs::read_dir(&received).unwrap().count() > 0);
        let home = primary.home().to_owned();
        let history =
            Self { primary, archive, received, early: home.join("early"), late: home.join("late") };
        history
            .primary
            .psql("CREATE TABLE t (n int, at timestamptz DEFAULT clock_timestamp())")
            .unwrap();
        history.add_rows(3);
        history.take(&history.early, &["-Fp", "-X", "none"]);
        history.add_rows(4);
        history.take(&history.late, &["-Ft", "-z", "-X", "none"]);
        history.add_rows(3);
        history.stop_receiving(receiver);
        history
    }

    /// Rows, a transaction and a segment each.
    fn add_rows(&self, count: u32) {
        for _ in 0..count {
            self.primary
                .psql(
                    "INSERT INTO t SELECT coalesce(max(n), 0) + 1 FROM t; \
                     SELECT pg_logical_emit_message(false, 'filler', repeat('x', 200000)); \
                     SELECT pg_switch_wal();",
                )
                .unwrap();
        }
        self.wait_for_archive();
    }

    fn wait_for_archive(&self) {
        let done = "SELECT last_archived_wal >= pg_walfile_name(pg_switch_wal() - 1) FROM pg_stat_archiver";
        wait_for("the archiver", || self.primary.psql(done).is_ok_and(|text| text == "t"));
    }

    fn take(&self, folder: &Path, arguments: &[&str]) {
        let mut command = self.primary.client("pg_basebackup").unwrap();
        command.args(["-c", "fast", "-D"]).arg(folder).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The receiver is stopped in the middle of a segment with a row in it.
    fn stop_receiving(&self, mut receiver: Child) {
        self.primary.psql("INSERT INTO t SELECT max(n) + 1 FROM t").unwrap();
        let sent = "SELECT coalesce(bool_and(flush_lsn >= pg_current_wal_flush_lsn()), false) \
                    FROM pg_stat_replication";
        wait_for("the receiver", || self.primary.psql(sent).is_ok_and(|text| text == "t"));
        kill_process(Pid::from_child(&receiver), Signal::INT).unwrap();
        receiver.wait().unwrap();
    }

    fn check(&self, log: &Path) -> (Outcome, Value) {
        let mut command = pagewarden();
        command.args(["check", "--json"]).arg(&self.early).arg(&self.late).arg("--log").arg(log);
        let outcome = run(&mut command);
        let json = outcome.report().json;
        let whole = json["targets"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(whole["path"], log.display().to_string(), "{}", outcome.stdout);
        (outcome, whole)
    }

    /// A copy of the archive, to be changed.
    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        let status =
            Command::new("cp").arg("-a").arg(self.archive.join(".")).arg(copy.path()).status();
        assert!(status.unwrap().success());
        copy
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn histories() -> impl Iterator<Item = History> {
    let able = |one: &Installation| one.major >= 15 && one.has("pg_receivewal");
    installations().into_iter().filter(able).map(|one| History::of(&one))
}

fn number(lsn: &Value) -> u64 {
    let (high, low) = lsn.as_str().unwrap().split_once('/').unwrap();
    u64::from_str_radix(high, 16).unwrap() << 32 | u64::from_str_radix(low, 16).unwrap()
}

/// The name of the segment of 1 MiB that a position is in.
fn segment_of(lsn: &Value) -> String {
    let lsn = number(lsn);
    format!("00000001{:08X}{:08X}", lsn >> 32, (lsn & 0xFFFF_FFFF) >> 20)
}

/// The ways of a set, by the ending of its path.
fn ways<'a>(whole: &'a Value, set: &str) -> Vec<&'a Value> {
    let all = whole["log"]["restorable"].as_array().unwrap();
    all.iter().filter(|way| way["set"].as_str().unwrap().ends_with(set)).collect()
}

fn findings(whole: &Value) -> Vec<(&str, &str, &str)> {
    let all = whole["findings"].as_array().unwrap().iter();
    all.map(|it| {
        let text = |name: &str| it[name].as_str().unwrap();
        (text("file"), text("severity"), text("kind"))
    })
    .collect()
}

#[test]
fn plain_archive_says_which_moments_can_be_restored_and_what_a_lost_segment_costs() {
    for history in histories() {
        let (outcome, whole) = history.check(&history.archive);
        assert_eq!(outcome.status, Some(0), "{}", outcome.stdout);
        assert_eq!((findings(&whole), &whole["unread"]), (vec![], &json!([])), "{whole}");
        assert_eq!((&whole["verdict"], &whole["log"]["gaps"]), (&json!("intact"), &json!([])));
        let [early] = ways(&whole, "early")[..] else { panic!("{whole}") };
        let [late] = ways(&whole, "late")[..] else { panic!("{whole}") };
        assert!(number(&early["from_lsn"]) < number(&late["from_lsn"]));
        assert_eq!(early["to_lsn"], late["to_lsn"]);
        let sets = &outcome.report().json["targets"];
        assert_eq!(sets[0]["backup"]["type"], "full");
        assert_eq!(sets[1]["backup"]["to_lsn"], late["from_lsn"], "from the manifest in archives");

        let mut command = pagewarden();
        command.arg("check").arg(&history.early).arg(&history.late);
        let text = run(command.arg("--log").arg(&history.archive)).stdout;
        assert!(text.contains("2 of 2 sets sound; any moment from 20"), "{text}");

        // The receiver has one more row, in a segment that is not whole yet.
        let (_, received) = history.check(&history.received);
        assert_eq!(findings(&received), [], "{received}");
        let [longer] = ways(&received, "early")[..] else { panic!("{received}") };
        assert!(number(&longer["to_lsn"]) > number(&early["to_lsn"]), "{received}");
        assert!(received["notes"].to_string().contains("still being received"), "{received}");

        // A segment between the two backups is lost: the early one ends before it.
        let copy = history.copy();
        let mut names: Vec<String> = fs::read_dir(&history.archive)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.len() == 24)
            .collect();
        names.sort();
        let (begin, end) = (segment_of(&early["from_lsn"]), segment_of(&late["from_lsn"]));
        let between = names.iter().position(|name| *name > begin).unwrap() + 1;
        let lost = &names[between];
        assert!(*lost < end, "{names:?}");
        let path = copy.path().join(lost);
        let sound = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (outcome, gap) = history.check(copy.path());
        assert_eq!(gap["log"]["gaps"], json!([{ "timeline": 1, "first": lost, "last": lost }]));
        assert_eq!(findings(&gap), [(&**lost, "suspect", "missing")]);
        assert_eq!(outcome.status, Some(0));
        let [shorter] = ways(&gap, "early")[..] else { panic!("{gap}") };
        assert!(segment_of(&shorter["to_lsn"]) <= *lost, "{gap}");
        assert_eq!(ways(&gap, "late"), [late]);
        assert!(gap["state"].as_str().unwrap().contains(", but not 20"), "{gap}");

        // One bit of a record in it.
        let mut bytes = sound;
        bytes[100_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (_, damaged) = history.check(copy.path());
        assert_eq!(findings(&damaged), [(&**lost, "suspect", "checksum")], "{damaged}");
    }
}

/// Segment by segment: a set cannot be made consistent without what it needs, and needs no other.
#[test]
#[ignore = "slow: checks two backups and their log once for each segment"]
fn each_segment_that_is_lost_costs_the_sets_that_need_it() {
    for history in histories() {
        let (outcome, whole) = history.check(&history.archive);
        let sets = outcome.report().json["targets"].clone();
        let names = fs::read_dir(&history.archive).unwrap().map(|entry| entry.unwrap().file_name());
        for name in names.filter_map(|name| name.into_string().ok()).filter(|it| it.len() == 24) {
            let copy = history.copy();
            fs::remove_file(copy.path().join(&name)).unwrap();
            let (_, without) = history.check(copy.path());
            for set in ["early", "late"] {
                let [way] = ways(&whole, set)[..] else { panic!("{whole}") };
                // Where a backup ends may be the very beginning of the next segment.
                let last = json!(format!("0/{:X}", number(&way["from_lsn"]) - 1));
                let needed = segment_of(&sets_of(&sets, set)["from_lsn"])..=segment_of(&last);
                let is_lost = ways(&without, set).is_empty();
                assert_eq!(is_lost, needed.contains(&name), "{name} of {set}: {without}");
                assert!(!is_lost || without["verdict"] != "intact", "{name} of {set}: {without}");
            }
        }
    }
}

fn sets_of<'a>(targets: &'a Value, set: &str) -> &'a Value {
    let mut all = targets.as_array().unwrap().iter();
    let found = all.find(|target| target["path"].as_str().unwrap().ends_with(set));
    &found.unwrap()["backup"]
}

/// A server on a copy of a backup, once it takes commands that write; its log if it gave up.
struct Restored {
    server: Child,
    sockets: PathBuf,
}

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.server), Signal::INT);
        let _ = self.server.wait();
    }
}

impl Restored {
    fn of(history: &History, name: &str, log: &Path, settings: &[(&str, &str)]) -> Self {
        let home = history.primary.home();
        let data = home.join(name);
        let copied = Command::new("cp").arg("-a").arg(&history.early).arg(&data).status().unwrap();
        assert!(copied.success());
        fs::write(data.join("recovery.signal"), "").unwrap();
        let sockets = history.primary.add_dir(&format!("{name}-sockets")).unwrap();
        let mut text = format!(
            "restore_command = 'cp {0}/%f %p 2>/dev/null || cp {0}/%f.partial %p'\n\
             recovery_target_action = 'promote'\nport = 5433\nunix_socket_directories = '{1}'\n\
             archive_command = 'false'\n",
            log.display(),
            sockets.display()
        );
        for (name, value) in settings {
            text.push_str(&format!("{name} = '{value}'\n"));
        }
        let configuration = data.join("postgresql.conf");
        let before = fs::read_to_string(&configuration).unwrap();
        fs::write(&configuration, before + &text).unwrap();
        let mut command = history.primary.tool("postgres");
        let server = command.arg("-D").arg(&data).stdout(Stdio::null()).stderr(Stdio::null());
        let server = server.spawn().unwrap();
        let mut restored = Self { server, sockets };
        wait_for("the restored server", || {
            let state = restored.server.try_wait().unwrap();
            assert!(state.is_none(), "{name}: the server gave up: {settings:?}");
            restored.ask(history, "SELECT NOT pg_is_in_recovery()") == "t"
        });
        restored
    }

    fn ask(&self, history: &History, sql: &str) -> String {
        let mut command = history.primary.client("psql").unwrap();
        command.args(["-XAtq", "-p", "5433", "-h"]).arg(&self.sockets);
        let output = command.args(["-d", "postgres", "-c", sql]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

fn as_setting(time: &Value) -> String {
    time.as_str().unwrap().replace('T', " ").replace('Z', "+00")
}

/// Both ends of what is promised, the ends at a gap, and another timeline after a promotion.
#[test]
#[ignore = "slow: restores a backup several times"]
fn server_restores_the_moments_that_are_promised() {
    for mut history in histories() {
        let version = history.primary.installation().version.clone();
        // So that the moments are seconds apart.
        let sleep = || std::thread::sleep(Duration::from_millis(1500));
        sleep();
        history.add_rows(1);
        sleep();
        history.add_rows(1);
        let (_, whole) = history.check(&history.archive);
        let [way] = ways(&whole, "early")[..] else { panic!("{whole}") };
        let all = history.primary.psql("SELECT count(*) FROM t").unwrap();

        let from = as_setting(&way["from_time"]);
        let first =
            Restored::of(&history, "first", &history.archive, &[("recovery_target_time", &from)]);
        let late = format!("SELECT count(*) FROM t WHERE at > '{from}'");
        assert_eq!(first.ask(&history, &late), "0", "{version}: {from}");
        let rows = first.ask(&history, "SELECT count(*) FROM t");
        assert!(rows.parse::<u32>().unwrap() >= 3, "{version}: {rows}");
        drop(first);

        let to = as_setting(&way["to_time"]);
        let last =
            Restored::of(&history, "last", &history.archive, &[("recovery_target_time", &to)]);
        let count = format!("SELECT count(*) FROM t WHERE at <= '{to}'");
        let expected = history.primary.psql(&count).unwrap();
        assert_eq!(last.ask(&history, "SELECT count(*) FROM t"), expected, "{version}: {to}");
        drop(last);

        let end = Restored::of(&history, "end", &history.archive, &[]);
        assert_eq!(end.ask(&history, "SELECT count(*) FROM t"), all, "{version}: the end");
        drop(end);

        // Up to a gap, and by position.
        let copy = history.copy();
        let lost = segment_of(&json!(format!("0/{:X}", number(&way["from_lsn"]) + (2 << 20))));
        fs::remove_file(copy.path().join(&lost)).unwrap();
        crate::runner::open_to_all(copy.path());
        let (_, gap) = history.check(copy.path());
        let [shorter] = ways(&gap, "early")[..] else { panic!("{gap}") };
        let to_lsn = shorter["to_lsn"].as_str().unwrap();
        let before = Restored::of(&history, "gap", copy.path(), &[]);
        let redone = "SELECT pg_wal_lsn_diff(redo_lsn, '0/0') >= 0 FROM pg_control_checkpoint()";
        assert_eq!(before.ask(&history, redone), "t");
        let lost_rows = format!(
            "SELECT count(*) FROM t WHERE at > '{}'",
            as_setting(&shorter["to_time"]).replace("+00", ".999999+00")
        );
        assert_eq!(before.ask(&history, &lost_rows), "0", "{version}: {to_lsn}");
        drop(before);

        // A promotion, whose server archives to the same place.
        let archive = format!("test ! -f {0}/%f && cp %p {0}/%f", history.archive.display());
        let promoted = Restored::of(
            &history,
            "promoted",
            &history.archive,
            &[("recovery_target_time", &from), ("archive_command", &archive)],
        );
        promoted.ask(&history, "INSERT INTO t VALUES (1000); SELECT pg_switch_wal()");
        promoted.ask(&history, "INSERT INTO t VALUES (1001); SELECT pg_switch_wal()");
        let second = "0000000200000000";
        wait_for("the new timeline", || {
            let names = fs::read_dir(&history.archive).unwrap().flatten();
            let names: Vec<_> = names.filter_map(|it| it.file_name().into_string().ok()).collect();
            names.iter().filter(|name| name.starts_with(second) && name.len() == 24).count() > 1
        });
        drop(promoted);
        let (_, whole) = history.check(&history.archive);
        let timelines: Vec<_> =
            ways(&whole, "early").iter().map(|way| way["timeline"].clone()).collect();
        assert_eq!(timelines, [json!(1), json!(2)], "{version}: {whole}");
        assert!(!findings(&whole).iter().any(|it| it.1 == "damage"), "{version}: {whole}");
        let newest = Restored::of(&history, "newest", &history.archive, &[]);
        let found = newest.ask(&history, "SELECT count(*) FROM t WHERE n >= 1000");
        assert_eq!(found, "2", "{version}: the new timeline to its end");
        drop(newest);

        // The segment that is still being received, under the name that a server asks for.
        if history.primary.installation().major < 18 {
            let end = Restored::of(&history, "received-end", &history.received, &[]);
            let rows = end.ask(&history, "SELECT count(*) FROM t");
            assert!(rows.parse::<u32>().unwrap() >= 11, "{version}: {rows}");
        }
        history.primary.stop(pagewarden_scratch::postgres::StopMode::Fast).unwrap();
    }
}
