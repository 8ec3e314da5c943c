//! `pagewarden protect` on real clusters: what it makes must be what the server and
//! its own tool take for right, and what it leaves half done must stop neither.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};
use rustix::process::Signal;
use serde_json::Value;

use crate::clusters::{any_installation, installations, page_files, sample};
use crate::damage::{Damage, Dice, page_mut};
use crate::runner::{Outcome, Started, pagewarden, run};

fn protect(path: &Path, arguments: &[&str]) -> Outcome {
    run(pagewarden().args(["protect", "--json"]).arg(path).args(arguments))
}

/// The result of a run that ended with this status.
fn result(outcome: &Outcome, status: i32) -> Value {
    assert_eq!(outcome.status, Some(status), "{outcome:?}");
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(json["pagewarden"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["command"], "protect");
    assert!(json["verdict"].is_string() && json["seconds"].is_number(), "{json}");
    json
}

/// The server's own tool agrees, where there is one that can be asked.
fn assert_tool_agrees(cluster: &Cluster) {
    if cluster.installation().major < 11 || !cluster.installation().has("pg_checksums") {
        return;
    }
    let tool = cluster.pg_checksums(&["--check"]).unwrap();
    assert!(tool.success(), "{tool:?}");
}

/// Reads every table and index of all databases through the server, which
/// verifies each page; then stops it.
fn assert_server_reads_all(cluster: &mut Cluster, setting: &str) {
    cluster.start().unwrap();
    if cluster.has_psql() {
        assert_eq!(cluster.psql("SHOW data_checksums").unwrap(), setting);
        for database in ["postgres", "other"] {
            let tables = cluster
                .psql_in(
                    database,
                    "SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 't', 'm')",
                )
                .unwrap();
            let counts: Vec<_> =
                tables.lines().map(|table| format!("SELECT count(*) FROM {table};")).collect();
            cluster.psql_in(database, &counts.concat()).unwrap();
        }
    }
    cluster.stop(StopMode::Fast).unwrap();
}

fn attributes(root: &Path) -> Vec<(PathBuf, u32, u32, u32)> {
    let files = page_files(root).into_keys().map(PathBuf::from);
    files
        .chain(["global/pg_control".into(), "global".into(), String::new().into()])
        .map(|name| {
            let data = fs::metadata(root.join(&name)).unwrap();
            (name, data.mode(), data.uid(), data.gid())
        })
        .collect()
}

fn names_in(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_enabled_is_right_to_the_server_and_its_tool() {
    for installation in installations() {
        let sample = sample(&installation, false);
        let mut cluster = sample.copy();
        let root = cluster.data_dir().to_owned();
        let before = (attributes(&root), names_in(&root));
        let files = page_files(&root);
        let pages = files.values().sum::<u64>() / 8192;

        let dry = result(&protect(&root, &["--mode", "checksum", "--dry-run"]), 0);
        assert_eq!((&dry["after"], &dry["bytes_written"]), (&"none".into(), &0.into()));
        let json = result(&protect(&root, &["--mode", "checksum"]), 0);
        assert_eq!(json["verdict"], "intact");
        assert_eq!(json["pages"]["total"], pages, "{}", installation.version);
        assert_eq!(json["files"], files.len(), "{}", installation.version);
        assert_eq!(json["pages"]["changed"], dry["pages"]["changed"]);
        assert_eq!((attributes(&root), names_in(&root)), before);
        assert_tool_agrees(&cluster);
        assert_server_reads_all(&mut cluster, "on");

        let again = result(&protect(&root, &["--mode", "checksum"]), 0);
        assert_eq!((&again["before"], &again["bytes_read"]), (&"checksum".into(), &0.into()));
        let json = result(&protect(&root, &["--mode", "none"]), 0);
        assert_eq!((&json["after"], &json["bytes_written"]), (&"none".into(), &0.into()));
        assert_server_reads_all(&mut cluster, "off");
        // What the server has not written since is right already.
        let json = result(&protect(&root, &["--mode", "checksum", "--no-sync"]), 0);
        assert!(json["pages"]["right"].as_u64().unwrap() > pages / 2, "{json}");
        assert_tool_agrees(&cluster);
    }
}

#[test]
fn copy_is_a_cluster_of_its_own() {
    for installation in installations() {
        let mut source = sample(&installation, false).copy();
        let outcome = protect(source.data_dir(), &["--mode", "checksum", "--copy-to", "/x/y"]);
        let json = result(&outcome, 2);
        assert!(json["error"].as_str().unwrap().contains("--tablespace-mapping"), "{json}");
        // A cluster whose data directory and tablespace are copies of another's.
        let mut cluster = source.duplicate().unwrap();
        let (from, to) = (source.data_dir().to_owned(), cluster.data_dir().to_owned());
        let [link] = &names_in(&from.join("pg_tblspc"))[..] else { panic!("one tablespace") };
        let link = Path::new("pg_tblspc").join(link);
        let [old, new] =
            [from.join(&link), to.join(&link)].map(|path| fs::read_link(path).unwrap());
        let before = crate::clusters::contents(&from);
        fs::remove_dir_all(&to).unwrap();
        fs::remove_dir_all(&new).unwrap();
        let to_text = to.to_str().unwrap();
        let mapping = format!("{}={}", old.display(), new.display());
        let arguments =
            ["--mode", "checksum", "--copy-to", to_text, "--tablespace-mapping", &mapping];
        let json = result(&protect(&from, &arguments), 0);
        assert_eq!(json["after"], "checksum");
        assert_eq!(json["files"], page_files(&from).len());
        assert_eq!(fs::read_link(to.join(&link)).unwrap(), new);
        assert_eq!(crate::clusters::contents(&from), before);
        assert_eq!(attributes(&from), attributes(&to));
        assert_eq!(names_in(&from), names_in(&to));
        assert_tool_agrees(&cluster);
        assert_server_reads_all(&mut cluster, "on");
        assert_server_reads_all(&mut source, "off");
    }
}

#[test]
fn running_and_crashed_servers_are_refused() {
    for installation in installations() {
        let mut cluster = sample(&installation, false).copy();
        let root = cluster.data_dir().to_owned();
        cluster.start().unwrap();
        for arguments in
            [&["--mode", "checksum"][..], &["--mode", "none"], &["--mode", "checksum", "--dry-run"]]
        {
            let json = result(&protect(&root, arguments), 2);
            assert!(json["error"].as_str().unwrap().contains("a server runs"), "{json}");
        }
        assert!(cluster.is_running());
        cluster.crash().unwrap();
        // Its lock file names no living process, and `protect` leaves it there.
        assert!(root.join("postmaster.pid").exists());
        let json = result(&protect(&root, &["--mode", "checksum"]), 2);
        assert!(json["error"].as_str().unwrap().contains("lock file"), "{json}");
        fs::remove_file(root.join("postmaster.pid")).unwrap();
        let json = result(&protect(&root, &["--mode", "checksum"]), 2);
        assert!(json["error"].as_str().unwrap().contains("not shut down"), "{json}");
        // What we left does not stop it from recovering.
        assert_server_reads_all(&mut cluster, "off");
        result(&protect(&root, &["--mode", "checksum"]), 0);
        assert_tool_agrees(&cluster);
    }
}

/// Starts a slow run and waits until it is at work on the pages.
fn slow_run(root: &Path, rate: &str) -> Started {
    let mut command = pagewarden();
    command.args(["protect", "--mode", "checksum", "--rate", rate]).arg(root);
    let mut started = Started::spawn(&mut command);
    let begin = Instant::now();
    while !root.join("pagewarden-protect.journal").exists() {
        assert!(started.is_running() && begin.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(2));
    }
    started
}

#[test]
fn no_server_starts_while_pages_are_changed_and_any_does_after_a_kill() {
    for installation in installations() {
        let mut cluster = sample(&installation, false).copy();
        let root = cluster.data_dir().to_owned();
        let mut at_work = slow_run(&root, "2MiB/s");
        // A second run of `protect`, and a server.
        let json = result(&protect(&root, &["--mode", "checksum"]), 2);
        assert!(json["error"].as_str().unwrap().contains("another run"), "{json}");
        let error = cluster.start().unwrap_err().to_string();
        assert!(error.contains("postmaster.pid"), "{error}");
        if installation.has("pg_ctl") {
            let stop =
                cluster.tool("pg_ctl").args(["stop", "-m", "fast", "-D"]).arg(&root).output();
            assert!(!stop.unwrap().status.success());
        }
        assert!(at_work.is_running());
        at_work.signal(Signal::KILL);
        at_work.wait();
        assert!(root.join("postmaster.pid").exists());
        assert_server_reads_all(&mut cluster, "off");
        // The server ran since: the journal is worth nothing, and is not used.
        let json = result(&protect(&root, &["--mode", "checksum"]), 0);
        assert_eq!(json["files_resumed"], 0);
        assert_tool_agrees(&cluster);
        assert_server_reads_all(&mut cluster, "on");
        assert!(names_in(&root).iter().all(|name| !name.contains("pagewarden")));
    }
}

#[test]
fn stopped_by_a_signal_it_says_so_and_goes_on_where_it_was() {
    let Some(installation) = any_installation() else { return };
    let cluster = sample(&installation, false).copy();
    let root = cluster.data_dir().to_owned();
    let at_work = slow_run(&root, "25MiB/s");
    thread::sleep(Duration::from_millis(1500));
    at_work.signal(Signal::TERM);
    let outcome = at_work.wait();
    assert_eq!(outcome.status, Some(3), "{outcome:?}");
    assert!(outcome.stdout.contains("run the same command to go on"), "{}", outcome.stdout);
    assert!(!root.join("postmaster.pid").exists());
    let json = result(&protect(&root, &["--mode", "checksum"]), 0);
    assert!(json["files_resumed"].as_u64().unwrap() > 0, "{json}");
    assert_tool_agrees(&cluster);
}

/// Kills runs at moments spread over their length. `PAGEWARDEN_KILLS` says how
/// often.
#[test]
fn killed_at_any_time_the_same_command_finishes() {
    let kills = std::env::var("PAGEWARDEN_KILLS").ok().and_then(|text| text.parse().ok());
    for installation in installations() {
        let sample = sample(&installation, false);
        kill_again_and_again(&sample.cluster, &installation, kills.unwrap_or(5));
    }
}

fn kill_again_and_again(sample: &Cluster, installation: &Installation, kills: usize) {
    let mut dice = Dice::seeded();
    let mut resumed = 0;
    let mut interrupted = 0;
    for round in 0..kills {
        let mut cluster = sample.duplicate().unwrap();
        let root = cluster.data_dir().to_owned();
        let mut command = pagewarden();
        command.args(["protect", "--mode", "checksum", "--rate", "60MiB/s"]).arg(&root);
        let at_work = Started::spawn(&mut command);
        thread::sleep(Duration::from_micros(dice.within(0..3_500_000) as u64));
        at_work.signal(Signal::KILL);
        interrupted += usize::from(at_work.wait().status.is_none());
        // Whatever it says now must be true.
        let claims = fs::read(root.join("global/pg_control")).unwrap();
        let claims =
            pagewarden::formats::postgres::files::control::Control::parse(&claims).unwrap();
        if claims.checksums == pagewarden::formats::postgres::page::Checksums::On {
            assert_tool_agrees(&cluster);
        }
        let json = result(&protect(&root, &["--mode", "checksum"]), 0);
        resumed += usize::from(json["files_resumed"].as_u64().unwrap() > 0);
        assert_tool_agrees(&cluster);
        if round % 5 == 0 {
            assert_server_reads_all(&mut cluster, "on");
        }
    }
    println!(
        "PostgreSQL {}: {kills} kills, {interrupted} in time, {resumed} resumed",
        installation.version
    );
}

#[test]
fn damaged_pages_are_named_and_nothing_is_claimed() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, false);
    let mut cluster = sample.copy();
    let root = cluster.data_dir().to_owned();
    let item = sample.file("item");
    let mut bytes = fs::read(root.join(item)).unwrap();
    let mut dice = Dice::seeded();
    Damage::UpperZero.inflict(&mut dice, page_mut(&mut bytes, 7), 7);
    Damage::ForeignFlags.inflict(&mut dice, page_mut(&mut bytes, 9), 9);
    fs::write(root.join(item), &bytes).unwrap();
    let json = result(&protect(&root, &["--mode", "checksum"]), 1);
    assert_eq!((&json["verdict"], &json["after"]), (&"damaged".into(), &"none".into()));
    let pages: Vec<_> = json["findings"].as_array().unwrap().iter().map(|f| &f["page"]).collect();
    assert_eq!(pages, [7, 9]);
    assert_server_reads_all_of_catalogue(&mut cluster, "off");
    let json = result(&protect(&root, &["--mode", "checksum", "--skip-damaged"]), 1);
    assert_eq!(json["after"], "checksum");
    cluster.start().unwrap();
    let error = cluster.psql("SELECT count(*) FROM item").unwrap_err().to_string();
    assert!(error.contains("invalid page in block 7"), "{error}");
    cluster.stop(StopMode::Fast).unwrap();
}

fn assert_server_reads_all_of_catalogue(cluster: &mut Cluster, setting: &str) {
    cluster.start().unwrap();
    assert_eq!(cluster.psql("SHOW data_checksums").unwrap(), setting);
    cluster.stop(StopMode::Fast).unwrap();
}

#[test]
fn old_cluster_is_fitted_to_the_new_one_that_demands_it() {
    for installation in installations() {
        let old = sample(&installation, false).copy();
        let new = Cluster::init(&installation, &Options::default());
        let new = new.unwrap();
        let (old_root, new_root) = (old.data_dir(), new.data_dir());
        let new_text = new_root.to_str().unwrap();
        let json = result(&protect(old_root, &["--for-upgrade", new_text]), 0);
        assert_eq!(json["after"], "checksum");
        assert_eq!(json["costs"][0]["pages"], json["pages"]["total"]);
        assert_eq!(
            (&json["costs"][1]["pages"], &json["costs"][1]["wanted"]),
            (&0.into(), &"none".into())
        );
        assert_tool_agrees(&old);
        result(&protect(old_root, &["--mode", "none"]), 0);
        // The other way: an empty cluster gives in to the old one.
        let old_text = old_root.to_str().unwrap();
        let json = result(&protect(new_root, &["--like", old_text]), 0);
        assert_eq!((&json["before"], &json["after"]), (&"checksum".into(), &"none".into()));
        let json = result(&protect(old_root, &["--like", new_text]), 2);
        assert!(json["error"].as_str().unwrap().contains("--for-upgrade"), "{json}");
    }
}

/// The real tool refuses two clusters of different settings and takes them once either
/// was fitted to the other; what comes out is whole.
#[test]
#[ignore = "slow: makes eight clusters and upgrades four of them"]
fn pg_upgrade_takes_clusters_that_were_fitted_either_way() {
    let installations = ["14", "18"].map(|version| Installation::for_test(version).unwrap());
    let [Some(from), Some(to)] = installations else { return };
    for (checksums, fitted) in
        [(false, "--for-upgrade"), (false, "--like"), (true, "--for-upgrade"), (true, "--like")]
    {
        let options = |checksums| Options { checksums, ..Options::default() };
        let mut old = Cluster::init(&from, &options(checksums)).unwrap();
        old.start().unwrap();
        old.psql("CREATE TABLE numbers AS SELECT generate_series(1, 50000) AS n").unwrap();
        old.stop(StopMode::Fast).unwrap();
        let mut new = Cluster::init(&to, &options(!checksums)).unwrap();
        let upgrade = |arguments: &[&str]| {
            let mut command = new.client("pg_upgrade").unwrap();
            command.arg("-b").arg(from.program("initdb").parent().unwrap());
            command.arg("-B").arg(to.program("initdb").parent().unwrap());
            command.arg("-d").arg(old.data_dir()).arg("-D").arg(new.data_dir());
            command.args(arguments).output().unwrap()
        };
        let refused = upgrade(&["--check"]);
        let words = String::from_utf8_lossy(&refused.stdout).into_owned();
        assert!(!refused.status.success() && words.contains("checksums"), "{refused:?}");
        let (changed, other) = if fitted == "--like" { (&new, &old) } else { (&old, &new) };
        let arguments = [fitted, other.data_dir().to_str().unwrap()];
        let json = result(&protect(changed.data_dir(), &arguments), 0);
        let is_on = json["after"] == "checksum";
        assert_eq!(is_on, checksums == (fitted == "--like"), "{json}");
        let upgraded = upgrade(&[]);
        assert!(upgraded.status.success(), "{upgraded:?}");
        if is_on {
            assert_tool_agrees(&new);
        }
        new.start().unwrap();
        assert_eq!(new.psql("SHOW data_checksums").unwrap(), if is_on { "on" } else { "off" });
        assert_eq!(new.psql("SELECT count(*), sum(n) FROM numbers").unwrap(), "50000|1250025000");
        new.stop(StopMode::Fast).unwrap();
    }
}

/// Each is refused in the words of who was asked.
#[test]
fn what_only_other_engines_know_is_refused() {
    let Some(installation) = any_installation() else { return };
    let cluster = sample(&installation, false).loan();
    let before = crate::clusters::contents(cluster.data_dir());
    let second = cluster.home().join("second");
    let refused = |path: &Path, arguments: &[&str], words: &str| {
        let json = result(&protect(path, &[&["--mode", "checksum"], arguments].concat()), 2);
        let error = json["error"].as_str().unwrap();
        assert!(error.contains(words) && error.contains("hint:"), "{error}");
    };
    refused(cluster.data_dir(), &[second.to_str().unwrap()], "one PATH is one database");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.ibd");
    fs::write(&file, [0; 16_384]).unwrap();
    let copy = folder.path().join("copy");
    let copy = ["--copy-to", copy.to_str().unwrap(), "--tablespace-mapping", "/a=/b"];
    refused(&file, &copy, "for the tablespaces of PostgreSQL");
    assert_eq!(crate::clusters::contents(cluster.data_dir()), before);
    // Where no copy is made, nothing has another place.
    let outcome = protect(cluster.data_dir(), &["--mode", "none", "--tablespace-mapping", "/a=/b"]);
    assert!(outcome.status == Some(2) && outcome.stderr.contains("--copy-to"), "{outcome:?}");
}

#[test]
fn what_is_no_database_is_refused_in_words_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let json = result(&protect(folder.path(), &["--mode", "checksum"]), 2);
    assert!(json["error"].as_str().unwrap().contains("hint:"), "{json}");
    let outcome = protect(folder.path(), &[]);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("--mode"), "{}", outcome.stderr);
}
