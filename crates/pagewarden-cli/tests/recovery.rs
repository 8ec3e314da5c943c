//! Crashed clusters and base backups with their log available: what recovery
//! mends is a notice, what it does not mend is damage, and the server itself
//! says which is which.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::formats::postgres::files::control::Control;
use pagewarden::formats::postgres::files::wal::block::Locator;
use pagewarden::formats::postgres::files::wal::replay::Replay;
use pagewarden::formats::postgres::files::wal::segment::Segments;
use pagewarden::formats::postgres::files::wal::span::{Span, Until};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::clusters::{any_installation, installations, page_files};
use crate::damage::{Damage, Dice, PAGE, Wound, computed, page_mut, stored};
use crate::runner::{Finding, Report, Started, check, pagewarden};

/// Tables that are changed, and tables that are not, with every kind of index.
const SCHEMA: &[&str] = &[
    "CREATE TABLE busy (id int, word text, tags int[], place point)",
    "INSERT INTO busy SELECT i, md5(i::text), ARRAY[i % 50, i % 7, i],
       point(i % 211, i % 307) FROM generate_series(1, 20000) i",
    "CREATE TABLE still AS SELECT * FROM busy WHERE id % 4 = 0",
    "CREATE SEQUENCE counter",
];
const INDEXES: &[&str] =
    &["btree (word)", "hash (id)", "gin (tags)", "gist (place)", "spgist (place)", "brin (id)"];

/// What changes pages of every kind, logged as records of every kind.
const CHANGES: &str = "UPDATE busy SET word = 'new ' || word WHERE id % 3 = 0;
    DELETE FROM busy WHERE id % 11 = 0;
    VACUUM busy;
    INSERT INTO busy SELECT i, md5(i::text), ARRAY[i % 50, i % 7, i],
      point(i % 211, i % 307) FROM generate_series(20001, 25000) i;
    SELECT count(*) FROM busy WHERE id % 2 = 0;
    SELECT count(nextval('counter')) FROM generate_series(1, 100);
    UPDATE busy SET place = point(id, id) WHERE id % 5 = 0;";

/// Pages are written to files at once, and no checkpoint comes between.
const SETTINGS: [(&str, &str); 9] = [
    ("shared_buffers", "'1MB'"),
    ("wal_level", "replica"),
    ("max_wal_senders", "4"),
    ("checkpoint_timeout", "'1h'"),
    ("max_wal_size", "'4GB'"),
    ("bgwriter_delay", "'10ms'"),
    ("autovacuum", "off"),
    ("max_prepared_transactions", "2"),
    ("full_page_writes", "on"),
];

fn load(installation: &Installation, settings: &[(&str, &str)]) -> Cluster {
    let options = SETTINGS.iter().chain(settings);
    let options =
        options.fold(Options::default(), |options, (name, value)| options.with(name, value));
    let mut cluster = Cluster::init(installation, &options).unwrap();
    let hba = cluster.data_dir().join("pg_hba.conf");
    let rules = fs::read_to_string(&hba).unwrap();
    fs::write(&hba, format!("{rules}\nlocal replication all trust\n")).unwrap();
    cluster.start().unwrap();
    let mut statements: Vec<_> = SCHEMA.iter().map(|one| (*one).to_owned()).collect();
    for table in ["busy", "still"] {
        statements
            .extend(INDEXES.iter().map(|index| format!("CREATE INDEX ON {table} USING {index}")));
    }
    statements.push("VACUUM busy".to_owned());
    statements.push("VACUUM still".to_owned());
    let statements: Vec<_> = statements.iter().map(String::as_str).collect();
    cluster.execute("postgres", &statements).unwrap();
    cluster
}

/// The files of relations, with their content.
fn snapshot(root: &Path) -> BTreeMap<String, Vec<u8>> {
    page_files(root)
        .into_keys()
        .map(|file| (fs::read(root.join(&file)), file))
        .map(|(bytes, file)| (file, bytes.unwrap()))
        .collect()
}

fn file_of(cluster: &mut Cluster, relation: &str) -> String {
    cluster.relation_path("postgres", relation).unwrap().into_os_string().into_string().unwrap()
}

/// The files of the table and all its indexes.
fn files_of(cluster: &mut Cluster, table: &str) -> Vec<String> {
    let sql = format!(
        "SELECT pg_relation_filepath('{table}'::regclass) UNION ALL
         SELECT pg_relation_filepath(indexrelid) FROM pg_index WHERE indrelid = '{table}'::regclass"
    );
    cluster.execute("postgres", &[&sql]).unwrap().lines().map(str::to_owned).collect()
}

fn severities(findings: &[Finding]) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for finding in findings {
        *count.entry(finding.severity.clone()).or_insert(0) += 1;
    }
    count
}

fn is_map(file: &str) -> bool {
    file.contains("_fsm") || file.contains("_vm")
}

/// Tears every page that was written since `before` at a sector boundary, as a
/// power failure would; the pages that then fail.
fn tear(root: &Path, before: &BTreeMap<String, Vec<u8>>) -> Vec<(String, u64)> {
    let mut dice = Dice::seeded();
    let mut torn = Vec::new();
    for (file, mut now) in snapshot(root) {
        if is_map(&file) {
            continue;
        }
        let old = before.get(&file).cloned().unwrap_or_default();
        for block in 0..u32::try_from(now.len() / PAGE).unwrap() {
            let begin = block as usize * PAGE;
            // What was added to a file was zero before.
            let zeroes = [0; PAGE];
            let old = old.get(begin..begin + PAGE).unwrap_or(&zeroes);
            let now = page_mut(&mut now, block);
            if old == now {
                continue;
            }
            let cut = dice.within(1..PAGE / 512) * 512;
            if dice.next().is_multiple_of(2) {
                now[..cut].copy_from_slice(&old[..cut]);
            } else {
                now[cut..].copy_from_slice(&old[cut..]);
            }
            let is_zero = now.iter().all(|byte| *byte == 0);
            if !is_zero && stored(now) != computed(now, block) {
                torn.push((file.clone(), u64::from(block)));
            }
        }
        fs::write(root.join(&file), &now).unwrap();
    }
    torn
}

/// The whole story: pages torn by a power failure are notices, and recovery
/// then proves it.
#[test]
fn torn_pages_of_a_crashed_cluster_are_mended_by_its_log() {
    for installation in installations() {
        let version = &installation.version;
        let mut cluster = load(&installation, &[]);
        if !cluster.has_psql() {
            continue;
        }
        cluster.psql("CHECKPOINT").unwrap();
        let root = cluster.data_dir().to_owned();
        let before = snapshot(&root);
        let hash = file_of(&mut cluster, "busy_id_idx");
        cluster.psql(CHANGES).unwrap();
        cluster.psql("CREATE TABLE young AS SELECT * FROM busy; CREATE INDEX ON young (id); UPDATE young SET id = -id").unwrap();
        cluster.crash().unwrap();
        let report = check([&root]).report();
        assert_eq!(report.findings(), [], "{version}");

        let torn = tear(&root, &before);
        assert!(torn.len() > 100, "{version}: {}", torn.len());
        let outcome = check([&root]);
        let report = outcome.report();
        let expected: Vec<_> = torn.clone();
        let found: Vec<_> =
            report.findings().into_iter().map(|one| (one.file, one.page.unwrap())).collect();
        let mut sorted = (expected, found);
        sorted.0.sort();
        sorted.1.sort();
        assert_eq!(sorted.0, sorted.1, "{version}");
        // A hash index of 9.6 is not logged: what is torn of it remains so.
        let notices = severities(&report.findings());
        let suspects = notices.get("suspect").copied().unwrap_or(0);
        let of_hash = torn.iter().filter(|(file, _)| *file == hash).count();
        assert_eq!(suspects, if version == "9.6" { of_hash } else { 0 }, "{version}");
        assert!(!notices.contains_key("damage"), "{version}: {:?}", report.serious());
        assert_eq!(outcome.status, Some(0), "{version}");
        assert_eq!(report.pages("suspect"), torn.len() as u64, "{version}");
        assert!(outcome.memory_kib < 64 << 10, "{version}: {} KiB", outcome.memory_kib);
        eprintln!("PostgreSQL {version}: {} torn pages: {notices:?}", torn.len());

        if suspects > 0 {
            continue;
        }
        assert_eq!(report.verdict(), "intact", "{version}");
        cluster.start().unwrap();
        cluster.psql("SELECT count(*) FROM busy").unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        assert_eq!(check([&root]).report().findings(), [], "{version}");
        if installation.has("pg_checksums") {
            assert!(cluster.pg_checksums(&["--check"]).unwrap().success(), "{version}");
        }
    }
}

/// A flipped bit where the log has nothing to mend it is damage, on every kind
/// of page; where the log is away, that is not known.
/// A hot standby mends the pages that a crash tore in its memory, and writes them at its
/// first restartpoint only; one that is promoted, at its first checkpoint.
#[test]
fn hot_standby_after_a_crash_is_never_called_damaged() {
    let Some(installation) = any_installation() else { return };
    let mut cluster = load(&installation, &[("hot_standby", "on"), ("bgwriter_lru_maxpages", "0")]);
    cluster.psql("CHECKPOINT").unwrap();
    let root = cluster.data_dir().to_owned();
    let still = file_of(&mut cluster, "still");
    let before = snapshot(&root);
    cluster.psql(CHANGES).unwrap();
    cluster.crash().unwrap();
    assert!(tear(&root, &before).len() > 100);
    fs::write(root.join("standby.signal"), "").unwrap();
    // Nothing is written before there is need.
    cluster.append_settings([("shared_buffers", "'128MB'")]).unwrap();
    cluster.start().unwrap();
    let is_standby = cluster.psql("SELECT pg_is_in_recovery()").unwrap();
    assert_eq!(is_standby.trim(), "t");
    let damage = |report: &Report| {
        let found = report.findings();
        found.into_iter().filter(|one| one.severity == "damage").collect::<Vec<_>>()
    };
    let outcome = check([&root]);
    let report = outcome.report();
    assert_eq!((damage(&report), outcome.status), (vec![], Some(0)), "{outcome:?}");
    assert!(!report.findings().is_empty(), "pages are torn still");
    assert_eq!(cluster.psql("SELECT count(*) > 0 FROM busy").unwrap().trim(), "t");

    // What replay did not touch is found all the same.
    let wound = Wound::to(root.join(&still)).inflict(Damage::ALL[0], &mut Dice::seeded(), 3);
    let found = check([&root]).report().serious();
    assert!(found.iter().any(|one| one.file == still && one.page == Some(3)), "{found:?}");
    drop(wound);

    cluster.psql("SELECT pg_promote()").unwrap();
    for _ in 0..5 {
        assert_eq!(damage(&check([&root]).report()), [], "promoted");
    }
    cluster.psql("CHECKPOINT").unwrap();
    assert_eq!(check([&root]).report().verdict(), "intact");
}

/// Nothing that a server wrote since the check began is compared with what was known then.
#[test]
fn server_that_is_started_during_a_check_at_rest_is_no_damage() {
    let Some(installation) = any_installation() else { return };
    let mut cluster = load(&installation, &[]);
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir().to_owned();
    let mut command = pagewarden();
    command.args(["check", "--json", "--rate", "2MiB/s"]).arg(&root);
    let mut slow = Started::spawn(&mut command);
    thread::sleep(Duration::from_secs(2));
    cluster.start().unwrap();
    cluster.psql(CHANGES).unwrap();
    cluster.psql("CREATE TABLE young AS SELECT * FROM busy; DROP TABLE still; CHECKPOINT").unwrap();
    assert!(slow.is_running(), "it is to be started during the check");
    let outcome = slow.wait();
    let report = outcome.report();
    assert_eq!(report.serious(), [], "{outcome:?}");
}

#[test]
fn page_that_the_log_does_not_mend_is_damage() {
    for installation in installations() {
        let version = &installation.version;
        let mut cluster = load(&installation, &[]);
        if !cluster.has_psql() {
            continue;
        }
        let root = cluster.data_dir().to_owned();
        let still = files_of(&mut cluster, "still");
        let hash = file_of(&mut cluster, "still_id_idx");
        let catalogue = file_of(&mut cluster, "pg_operator");
        let shared = file_of(&mut cluster, "pg_authid");
        let mapped = file_of(&mut cluster, "pg_proc");
        let busy = file_of(&mut cluster, "busy");
        let heap = file_of(&mut cluster, "still");
        cluster.psql("SELECT count(*) FROM pg_class; CHECKPOINT").unwrap();
        cluster.psql(CHANGES).unwrap();
        cluster.crash().unwrap();
        assert_eq!(check([&root]).report().findings(), [], "{version}");

        let logged = |file: &&String| version != "9.6" || **file != hash;
        let quiet: Vec<_> =
            still.iter().filter(logged).chain([&catalogue, &shared, &mapped]).cloned().collect();
        let mut dice = Dice::seeded();
        let places = quiet.iter().map(|file| (file, 0)).chain([(&busy, 1)]);
        let wounds: Vec<_> = places
            .map(|(file, block)| {
                Wound::to(root.join(file)).inflict(Damage::BitInTuple, &mut dice, block)
            })
            .collect();
        let expected = |of_quiet: &str, of_busy: &str| {
            let mut all: Vec<_> =
                quiet.iter().map(|file| Finding::page(file, 0, of_quiet, "checksum")).collect();
            all.push(Finding::page(&busy, 1, of_busy, "checksum"));
            all.sort();
            all
        };
        let own = if installation.major < 10 { "pg_xlog" } else { "pg_wal" };
        // Of pages: a log that is away is a finding besides.
        let found = |arguments: &[&Path]| {
            let outcome = check(arguments);
            let mut findings = outcome.report().findings();
            findings.retain(|one| !one.file.starts_with(own));
            findings.sort();
            (findings, outcome.status)
        };
        assert_eq!(found(&[&root]), (expected("damage", "notice"), Some(1)), "{version}");

        let away = cluster.home().join("log away");
        fs::rename(root.join(own), &away).unwrap();
        assert_eq!(found(&[&root]), (expected("suspect", "suspect"), Some(1)), "{version}");
        let report = check([&root]).report();
        assert!(report.findings().iter().any(|one| one.file.starts_with(own)), "{version}");
        assert!(
            report
                .raw_findings()
                .iter()
                .filter(|one| !one["file"].as_str().unwrap().starts_with(own))
                .all(|one| one["detail"].as_str().unwrap().contains("is missing")),
            "{version}"
        );
        let with_log = found(&["--wal".as_ref(), &away, &root]);
        assert_eq!(with_log, (expected("damage", "notice"), Some(1)), "{version}");
        fs::rename(&away, root.join(own)).unwrap();
        drop(wounds);

        // Maps are changed without the log, and rebuilt.
        for fork in ["_fsm", "_vm"] {
            let map = format!("{heap}{fork}");
            let _wound = Wound::to(root.join(&map)).change(|bytes| bytes[100] ^= 1);
            assert_eq!(
                found(&[&root]),
                (vec![Finding::page(&map, 0, "suspect", "checksum")], Some(0)),
                "{version}"
            );
        }
        // A log that breaks off early mends less, and it is not known what.
        let redo = control(&root).redo_lsn;
        let segment = newest_record_file(&root, own);
        let _wound = Wound::to(root.join(&busy)).inflict(Damage::BitInTuple, &mut dice, 1);
        let _log = Wound::to(&segment).change(|bytes| bytes.truncate(bytes.len() / 2 - 17));
        let (findings, status) = found(&[&root]);
        assert_eq!(status, Some(0), "{version}: redo {redo:x}");
        assert!(findings.iter().all(|one| one.severity != "damage"), "{version}: {findings:?}");
    }
}

fn control(root: &Path) -> Control {
    Control::parse(&fs::read(root.join("global/pg_control")).unwrap()).unwrap()
}

fn newest_record_file(root: &Path, own: &str) -> PathBuf {
    let segments = segments(root, own);
    root.join(own).join(segments.name_of(control(root).checkpoint_lsn))
}

fn segments(root: &Path, own: &str) -> Segments {
    let control = control(root);
    Segments::of(&control, control.timeline, vec![root.join(own)]).unwrap()
}

/// What is not committed may be torn for ever: its pages are synced before the
/// commit, not by a checkpoint.
#[test]
fn unfinished_relation_is_never_called_damaged() {
    for installation in installations() {
        let version = &installation.version;
        for wal_level in ["minimal", "replica"] {
            let settings = [
                ("wal_level", wal_level),
                ("max_wal_senders", if wal_level == "minimal" { "0" } else { "4" }),
            ];
            let mut cluster = load(&installation, &settings);
            if !cluster.has_psql() {
                continue;
            }
            let root = cluster.data_dir().to_owned();
            // Prepared, then not yet committed when the checkpoint passes.
            let files = cluster
                .psql(
                    "BEGIN;
                     CREATE TABLE half AS SELECT * FROM busy;
                     CREATE INDEX half_index ON half (id);
                     CLUSTER still USING still_word_idx;
                     SELECT pg_relation_filepath('half');
                     SELECT pg_relation_filepath('half_index');
                     SELECT pg_relation_filepath('still');
                     SELECT pg_relation_filepath('still_word_idx');
                     PREPARE TRANSACTION 'half';
                     CHECKPOINT",
                )
                .unwrap();
            cluster.crash().unwrap();
            let mut dice = Dice::seeded();
            for file in files.lines() {
                let _wound = Wound::to(root.join(file)).inflict(Damage::BitInTuple, &mut dice, 1);
                let report = check([&root]).report();
                let what = format!("{version}, {wal_level}: {:?}", report.details());
                assert_eq!(
                    report.findings(),
                    [Finding::page(file, 1, "suspect", "checksum")],
                    "{what}"
                );
            }
        }
    }
}

/// CREATE INDEX CONCURRENTLY commits its row in `pg_class` before it builds.
#[test]
fn index_that_is_being_built_concurrently_is_never_called_damaged() {
    for installation in installations() {
        let version = &installation.version;
        let mut cluster = load(&installation, &[]);
        if !cluster.has_psql() {
            continue;
        }
        cluster
            .psql("BEGIN; UPDATE busy SET id = -id WHERE id = 1; PREPARE TRANSACTION 'holds it up'")
            .unwrap();
        let mut command = cluster.client("psql").unwrap();
        let command = command.args(["-c", "CREATE INDEX CONCURRENTLY slow ON busy (word)"]);
        let builder = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let listed = "SELECT relpages FROM pg_class WHERE relname = 'slow'";
        let begin = Instant::now();
        while cluster.psql(listed).unwrap().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(30), "{version}");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(cluster.psql(listed).unwrap(), "0", "{version}");
        let file = file_of(&mut cluster, "slow");
        let built = file_of(&mut cluster, "busy_word_idx");
        cluster.psql("CHECKPOINT").unwrap();
        cluster.crash().unwrap();
        drop(builder);
        let root = cluster.data_dir();
        // As far as it may have come, and torn.
        let mut bytes = fs::read(root.join(built)).unwrap();
        Damage::BitInTuple.inflict(&mut Dice::seeded(), page_mut(&mut bytes, 1), 1);
        fs::write(root.join(&file), bytes).unwrap();
        let report = check([root]).report();
        let expected = [Finding::page(&file, 1, "suspect", "checksum")];
        assert_eq!(report.findings(), expected, "{version}: {:?}", report.details());
    }
}

/// Kills and waits for a process that makes load.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn busy_script(cluster: &Cluster) -> Option<Running> {
    let script = cluster.home().join("load.sql");
    fs::write(
        &script,
        "\\set id random(1, 20000)\n\
         UPDATE busy SET word = md5(word) WHERE id BETWEEN :id AND :id + 40;\n\
         UPDATE busy SET place = point(:id, 1) WHERE id = :id;\n\
         INSERT INTO busy SELECT :id, 'more', ARRAY[:id], point(1, :id);\n",
    )
    .unwrap();
    let mut command = cluster.client("pgbench").ok()?;
    let command = command.args(["-n", "-c", "2", "-T", "300", "-f"]).arg(&script);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    Some(Running(child))
}

fn base_backup(cluster: &Cluster, name: &str, log: &str) -> Option<PathBuf> {
    let target = cluster.home().join(name);
    let mut command = cluster.client("pg_basebackup").ok()?;
    let output =
        command.args(["--checkpoint=fast", "-N", "-X", log, "-D"]).arg(&target).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(target)
}

/// Copies the files as they are, torn or not, as tools do that know nothing of
/// pages: between the functions that begin and end a backup.
fn copy_files(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for entry in fs::read_dir(source).unwrap().flatten() {
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_files(&from, &to),
            Ok(kind) if kind.is_file() => {
                // A server removes files at any time.
                let _ = fs::copy(from, to);
            }
            _ => {}
        }
    }
}

#[test]
fn base_backup_under_load_is_intact_and_damage_in_it_is_found() {
    for installation in installations() {
        let version = &installation.version;
        // The source keeps its log for the backup that comes without.
        let keep = match installation.major {
            ..13 => ("wal_keep_segments", "64"),
            _ => ("wal_keep_size", "'1GB'"),
        };
        let mut cluster = load(&installation, &[("max_wal_size", "'64MB'"), keep]);
        let still = file_of(&mut cluster, "still");
        let Some(load) = busy_script(&cluster) else { continue };
        thread::sleep(Duration::from_secs(1));
        let mut dice = Dice::seeded();
        for (run, log) in ["stream", "none", "fetch", "stream"].iter().enumerate() {
            let what = format!("{version}, {log}");
            let Some(backup) = base_backup(&cluster, &format!("backup {run}"), log) else { break };
            let outcome = check([&backup]);
            let report = outcome.report();
            assert!(
                !severities(&report.findings()).contains_key("damage"),
                "{what}: {:?}",
                report.raw_findings()
            );
            // Without the log that makes it consistent, a server would not open it.
            let expected = if *log == "none" { 2 } else { 0 };
            assert_eq!(outcome.status, Some(expected), "{what}");
            let _wound = Wound::to(backup.join(&still)).inflict(Damage::BitInTuple, &mut dice, 7);
            let finding = |severity| Finding::page(&still, 7, severity, "checksum");
            let severity = if *log == "none" { "suspect" } else { "damage" };
            let report = check([&backup]).report();
            assert!(
                report.findings().contains(&finding(severity)),
                "{what}: {:?}",
                report.raw_findings()
            );
            if *log == "none" {
                // The source has the log still.
                let own = if installation.major < 10 { "pg_xlog" } else { "pg_wal" };
                let own = cluster.data_dir().join(own);
                let report =
                    check(["--wal".as_ref(), own.as_os_str(), backup.as_os_str()]).report();
                assert!(
                    report.findings().contains(&finding("damage")),
                    "{what}: {:?}",
                    report.raw_findings()
                );
            }
        }
        drop(load);
    }
}

/// Plain copies hold torn pages now and then; each of them is mended.
#[test]
fn torn_pages_of_a_plain_copy_are_mended_by_its_log() {
    for installation in installations() {
        let version = &installation.version;
        // Non-exclusive backups need one session from begin to end, with
        // functions whose names changed.
        if installation.major < 15 {
            continue;
        }
        // No segment is recycled while it is copied.
        let settings = [("max_wal_size", "'64MB'"), ("wal_keep_size", "'1GB'")];
        let mut cluster = load(&installation, &settings);
        let still = file_of(&mut cluster, "still");
        let Some(load) = busy_script(&cluster) else { continue };
        thread::sleep(Duration::from_millis(500));
        let target = cluster.home().join("copy");
        let source = cluster.data_dir().to_owned();
        let label = cluster
            .psql(&format!(
                "SELECT pg_backup_start('copy', true) IS NOT NULL;
                 \\! mkdir {target} && cp -r {source}/. {target}
                 SELECT labelfile FROM pg_backup_stop(false)",
                target = target.display(),
                source = source.display()
            ))
            .unwrap();
        let label = label.lines().skip(1).collect::<Vec<_>>().join("\n");
        assert!(label.starts_with("START WAL LOCATION"), "{version}: {label}");
        fs::write(target.join("backup_label"), format!("{label}\n")).unwrap();
        let _ = fs::remove_file(target.join("postmaster.pid"));
        // The log goes on after the copy was made.
        drop(load);
        copy_files(&source.join("pg_wal"), &target.join("pg_wal"));
        let outcome = check([&target]);
        let report = outcome.report();
        let found = severities(&report.findings());
        eprintln!("PostgreSQL {version}: findings in a plain copy: {found:?}");
        assert!(!found.contains_key("damage"), "{version}: {:?}", report.raw_findings());
        assert!(
            report.serious().iter().all(|one| is_map(&one.file)),
            "{version}: {:?}",
            report.raw_findings()
        );
        let _wound =
            Wound::to(target.join(&still)).inflict(Damage::BitInTuple, &mut Dice::seeded(), 7);
        let report = check([&target]).report();
        let expected = Finding::page(&still, 7, "damage", "checksum");
        assert!(report.findings().contains(&expected), "{version}: {:?}", report.raw_findings());
    }
}

/// Every image that `pg_waldump` shows is known, and the log ends where it says.
#[test]
fn images_are_those_that_pg_waldump_shows() {
    for installation in installations() {
        let version = &installation.version;
        if !installation.has("pg_waldump") {
            continue;
        }
        for compression in ["off", "on"] {
            let mut cluster = load(&installation, &[("wal_compression", compression)]);
            cluster.psql("CHECKPOINT").unwrap();
            cluster.psql(CHANGES).unwrap();
            cluster.psql(&format!("SELECT pg_switch_wal(); {CHANGES}; SELECT pg_logical_emit_message(false, 'x', repeat('long', 300000)); {CHANGES}")).unwrap();
            cluster.crash().unwrap();
            let root = cluster.data_dir();
            let control = control(root);
            let span = Span {
                timeline: control.timeline,
                begin: control.redo_lsn,
                checkpoint: control.checkpoint_lsn,
                until: Until::EndOfLog(0),
            };
            let replay = Replay::new(Ok((segments(root, "pg_wal"), span)), None, true);
            let scanned = replay.scanned();
            assert_eq!(scanned.gap(), None, "{version}");

            let dump = installation
                .command("pg_waldump")
                .arg("-b")
                .arg("-p")
                .arg(root.join("pg_wal"))
                .args(["-t", &control.timeline.to_string(), "-s"])
                .arg(format!("{:X}/{:X}", span.begin >> 32, span.begin & 0xFFFF_FFFF))
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&dump.stdout);
            let mut expected = BTreeMap::new();
            for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("blkref #")) {
                let words: Vec<_> = line.split_whitespace().collect();
                let numbers: Vec<u32> =
                    words[2].split('/').map(|number| number.parse().unwrap()).collect();
                let locator =
                    Locator { tablespace: numbers[0], database: numbers[1], number: numbers[2] };
                let at = words.iter().position(|word| *word == "blk").unwrap();
                let (fork, block) = (words[at - 1], words[at + 1].parse::<u32>().unwrap());
                if fork == "main" {
                    expected.entry((locator, 0_u8, block)).or_insert(line.contains("(FPW)"));
                }
            }
            let images: Vec<_> =
                expected.iter().filter(|(_, image)| **image).map(|(block, _)| *block).collect();
            let known: std::collections::BTreeSet<_> = scanned.overwritten().collect();
            assert!(images.len() > 100, "{version}: {}", text.len());
            let missed: Vec<_> = images.iter().filter(|block| !known.contains(block)).collect();
            assert!(missed.is_empty(), "{version}: {} missed", missed.len());
            assert!(known.iter().all(|block| expected.contains_key(block)), "{version}");
            let last = text.lines().rfind(|line| line.starts_with("rmgr:")).unwrap();
            let last = last.split("lsn: ").nth(1).unwrap().split(',').next().unwrap();
            let (high, low) = last.split_once('/').unwrap();
            let last = u64::from_str_radix(high, 16).unwrap() << 32
                | u64::from_str_radix(low, 16).unwrap();
            assert!(scanned.end() > last && scanned.end() - last < 64 << 10, "{version}: {last:x}");
            eprintln!(
                "PostgreSQL {version}: {} images, {} blocks overwritten",
                images.len(),
                known.len()
            );
        }
    }
}
