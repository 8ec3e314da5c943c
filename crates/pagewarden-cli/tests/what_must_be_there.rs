//! What no page speaks of and a server needs: taken away piece by piece. Whatever is
//! still called intact then, the real server must open and read in full.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;

use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::clusters::{Sample, any_installation, installations, sample};
use crate::runner::{Finding, check};

/// Reads all rows of all tables of a database.
const READ_ALL: &str = "DO $$ DECLARE t regclass; BEGIN \
     FOR t IN SELECT oid FROM pg_class WHERE relkind IN ('r', 'm') LOOP \
     EXECUTE format('SELECT count(t::text) FROM %s t', t); END LOOP; END $$";

/// A way to lose a file or a folder.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    Removed,
    Emptied,
    Zeroed,
    HalfCut,
    Noise,
}

const LOSSES: [Loss; 5] = [Loss::Removed, Loss::Emptied, Loss::Zeroed, Loss::HalfCut, Loss::Noise];

/// Puts back what was lost when it goes.
struct Lost {
    path: PathBuf,
    aside: PathBuf,
    content: Option<Vec<u8>>,
}

impl Lost {
    /// `None` if the file is none to be lost so.
    fn to(path: PathBuf, loss: Loss) -> Option<Self> {
        let aside = path.parent()?.parent()?.with_extension("aside");
        if path.is_dir() {
            if loss != Loss::Removed {
                return None;
            }
            fs::rename(&path, &aside).unwrap();
            return Some(Self { path, aside, content: None });
        }
        let sound = fs::read(&path).unwrap();
        let lost = match loss {
            // With its owner, for when it comes back.
            Loss::Removed => {
                fs::rename(&path, &aside).unwrap();
                return Some(Self { path, aside, content: None });
            }
            Loss::Emptied => Vec::new(),
            Loss::Zeroed => vec![0; sound.len()],
            // At a page boundary, where it has pages.
            Loss::HalfCut => sound[..sound.len() / 2 / 8192 * 8192].to_vec(),
            Loss::Noise => sound.iter().map(|byte| byte.wrapping_mul(197) ^ 0x5A).collect(),
        };
        fs::write(&path, lost).unwrap();
        Some(Self { path, aside, content: Some(sound) })
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        match &self.content {
            Some(sound) => fs::write(&self.path, sound).unwrap(),
            None => fs::rename(&self.aside, &self.path).unwrap(),
        }
    }
}

/// What a server may need, relative to the data directory.
fn things(root: &Path, file: impl Fn(&str) -> String) -> Vec<String> {
    let mut things: Vec<String> = [
        "PG_VERSION",
        "base",
        "global",
        "pg_xact",
        "pg_xact/0000",
        "pg_multixact",
        "pg_multixact/offsets",
        "pg_multixact/offsets/0000",
        "pg_multixact/members",
        "pg_multixact/members/0000",
        "pg_wal",
        "pg_twophase",
        "pg_notify",
        "pg_replslot",
        "pg_commit_ts",
        "pg_subtrans",
        "pg_serial",
        "pg_snapshots",
        "pg_dynshmem",
        "pg_stat",
        "pg_stat_tmp",
        "pg_logical",
        "pg_tblspc",
        "global/pg_control",
        "global/pg_filenode.map",
    ]
    .map(str::to_owned)
    .to_vec();
    for relation in ["pg_class", "other.pg_class", "pg_attribute", "pg_database"] {
        let path = file(relation);
        let folder = path.rsplit_once('/').unwrap().0.to_owned();
        things.push(path);
        things.push(format!("{folder}/PG_VERSION"));
        things.push(format!("{folder}/pg_filenode.map"));
    }
    let segments = fs::read_dir(root.join("pg_wal")).unwrap().flatten();
    let segments = segments.filter(|entry| entry.path().is_file());
    things.extend(segments.map(|entry| format!("pg_wal/{}", entry.file_name().display())));
    things.retain(|thing| root.join(thing).exists());
    things.sort();
    things.dedup();
    things
}

/// Starts a server on a copy and reads every row; says what failed.
fn open_and_read(data_dir: &Path, like: &Cluster) -> Result<(), String> {
    let mut copy = like.duplicate().unwrap();
    // The copy gets what the damaged folder holds, and only that.
    let own = copy.data_dir().to_owned();
    let socket_and_port = fs::read(own.join("postgresql.conf"));
    let links = fs::read_dir(own.join("pg_tblspc")).into_iter().flatten().flatten();
    let links: Vec<_> = links.map(|it| (it.file_name(), fs::read_link(it.path()))).collect();
    fs::remove_dir_all(&own).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(data_dir).arg(&own).status();
    assert!(copied.unwrap().success());
    if let Ok(settings) = socket_and_port {
        fs::write(own.join("postgresql.conf"), settings).unwrap();
    }
    // It writes to its own tablespaces.
    for (name, place) in links {
        let link = own.join("pg_tblspc").join(name);
        if link.is_symlink() {
            fs::remove_file(&link).unwrap();
            symlink(place.unwrap(), &link).unwrap();
        }
    }
    copy.start().map_err(|error| format!("{error:#}"))?;
    for database in ["postgres", "other", "template1"] {
        copy.execute(database, &[READ_ALL]).map_err(|error| format!("{database}: {error:#}"))?;
    }
    copy.stop(StopMode::Fast).map_err(|error| format!("{error:#}"))
}

/// Servers are started some hundred times, so those of all versions at the same time.
#[test]
fn whatever_is_called_intact_a_server_opens_and_reads() {
    thread::scope(|scope| {
        for installation in installations() {
            scope.spawn(move || lose_one_after_the_other(&installation));
        }
    });
}

fn lose_one_after_the_other(installation: &Installation) {
    let version = &installation.version;
    let sample = sample(installation, true);
    let cluster = sample.copy();
    let root = cluster.data_dir();
    assert_eq!(check([root]).report().verdict(), "intact", "{version}");
    let (mut found, mut passed, mut wrong) = (0, 0, Vec::new());
    for thing in things(root, |relation| sample.file(relation).to_owned()) {
        for loss in LOSSES {
            let what = format!("{version}: {thing} {loss:?}");
            let Some(lost) = Lost::to(root.join(&thing), loss) else { continue };
            let outcome = check([root]);
            let is_intact = outcome.stdout.contains("\"verdict\":\"intact\"");
            match is_intact {
                true => {
                    passed += 1;
                    if let Err(error) = open_and_read(root, &cluster) {
                        wrong.push(format!("{what}: {error}"));
                    }
                }
                false => found += 1,
            }
            drop(lost);
        }
    }
    assert_eq!(check([root]).report().verdict(), "intact", "{version}");
    assert!(wrong.is_empty(), "called intact: {wrong:#?}");
    println!("{version}: {found} losses found, {passed} that a server lives with");
    assert!(found > 60, "{version}: {found}");
}

/// A cluster that has yet to recover.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Before {
    Crashed,
    /// Without its manifest, which would tell everything.
    Backup,
}

/// A cluster in that state, and where its data directory is. `None` without the tools for it.
fn before_recovery(sample: &Sample, state: Before) -> Option<(Cluster, PathBuf)> {
    let mut cluster = sample.cluster.duplicate().unwrap();
    cluster.start().unwrap();
    let written = ["CREATE TABLE late AS SELECT generate_series(1, 999) AS id"];
    cluster.execute("postgres", &written).unwrap();
    cluster.execute("postgres", &["CHECKPOINT", "INSERT INTO late VALUES (1)"]).unwrap();
    let mut data_dir = cluster.data_dir().to_owned();
    if state == Before::Backup {
        if !cluster.installation().has("pg_basebackup") {
            eprintln!("SKIPPED: {} has no pg_basebackup", cluster.installation().version);
            return None;
        }
        data_dir = cluster.home().join("backup");
        let mut command = cluster.client("pg_basebackup").unwrap();
        command.args(["-c", "fast", "--no-sync", "-X", "stream", "-D"]).arg(&data_dir);
        for entry in fs::read_dir(cluster.data_dir().join("pg_tblspc")).unwrap().flatten() {
            let place = fs::read_link(entry.path()).unwrap();
            let copy = cluster.home().join(format!("space{}", entry.file_name().display()));
            command.arg("-T").arg(format!("{}={}", place.display(), copy.display()));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        fs::remove_file(data_dir.join("backup_manifest")).unwrap();
    }
    cluster.stop(StopMode::Immediate).unwrap();
    Some((cluster, data_dir))
}

/// Takes things away from a cluster that has yet to recover; what its report does not name as
/// a blind spot must be a finding, or the server must live with it.
fn lose_before_recovery(installation: &Installation, state: Before, losses: &[Loss]) {
    let version = &installation.version;
    let sample = sample(installation, true);
    let Some((cluster, root)) = before_recovery(sample, state) else { return };
    let sound = check([&root]);
    assert_eq!(sound.report().verdict(), "intact", "{version} {state:?}: {sound:?}");
    let (mut told, mut passed, mut wrong) = (0, 0, Vec::new());
    for thing in things(&root, |relation| sample.file(relation).to_owned()) {
        let name = thing.rsplit('/').next().unwrap();
        let is_relation = !thing.contains("pg_") && name.parse::<u32>().is_ok();
        let is_status = thing.starts_with("pg_xact") || thing.starts_with("pg_multixact");
        for loss in losses {
            // Zeroed pages, ends between two pages and the content of these logs are not seen.
            let is_blind =
                (is_relation || is_status) && !matches!(loss, Loss::Removed | Loss::Emptied);
            let lost = if is_blind { None } else { Lost::to(root.join(&thing), *loss) };
            let Some(lost) = lost else { continue };
            let report = check([&root]).report();
            let is_noticed = report.findings().iter().any(|one| {
                one.kind == "missing" && one.file.starts_with(&thing) && state == Before::Backup
            });
            if report.verdict() != "intact" || is_noticed {
                told += 1;
            } else {
                passed += 1;
                if let Err(error) = open_and_read(&root, &cluster) {
                    wrong.push(format!("{thing} {loss:?}: {error}"));
                }
            }
            drop(lost);
        }
    }
    let sound = check([&root]);
    assert_eq!(sound.report().verdict(), "intact", "{version} {state:?}: {sound:?}");
    assert!(wrong.is_empty(), "{version} {state:?}, called intact: {wrong:#?}");
    println!("{version} {state:?}: {told} losses told, {passed} that a server lives with");
    assert!(told > 20, "{version} {state:?}: {told}");
}

#[test]
fn what_is_lost_before_recovery_is_told_if_no_server_opens_the_rest() {
    let Some(installation) = any_installation() else { return };
    lose_before_recovery(&installation, Before::Crashed, &[Loss::Removed]);
    lose_before_recovery(&installation, Before::Backup, &[Loss::Removed]);
}

#[test]
#[ignore = "slow: hundreds of checks, and servers"]
fn slow_all_losses_before_recovery_are_told_if_no_server_opens_the_rest() {
    for installation in installations() {
        for state in [Before::Crashed, Before::Backup] {
            lose_before_recovery(&installation, state, &LOSSES);
        }
    }
}

/// What replay of the log makes or drops is no lack.
#[test]
fn databases_and_maps_that_changed_before_a_crash_are_no_lack() {
    for installation in installations() {
        let version = &installation.version;
        let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
        cluster.start().unwrap();
        if !cluster.has_psql() {
            continue;
        }
        cluster.add_tablespace("faraway").unwrap();
        for sql in
            ["CREATE DATABASE old", "CREATE DATABASE distant TABLESPACE faraway", "CHECKPOINT"]
        {
            cluster.psql(sql).unwrap();
        }
        let changes = [
            "DROP DATABASE old",
            "CREATE DATABASE young",
            "VACUUM FULL pg_class",
            "VACUUM FULL pg_database",
            "REINDEX TABLE pg_type",
            "DROP DATABASE distant",
            "DROP TABLESPACE faraway",
        ];
        for sql in changes {
            cluster.psql(sql).unwrap();
            cluster.stop(StopMode::Immediate).unwrap();
            let outcome = check([cluster.data_dir()]);
            assert_eq!(outcome.report().verdict(), "intact", "{version}, {sql}: {outcome:?}");
            cluster.start().unwrap();
        }
    }
}

/// A crash in the middle of CREATE DATABASE leaves a folder that no server removes, or opens.
#[test]
fn folder_of_a_database_that_was_never_finished_is_no_alarm() {
    let Some(installation) = any_installation() else { return };
    let cluster = sample(&installation, true).copy();
    let root = cluster.data_dir();
    fs::create_dir(root.join("base/99999")).unwrap();
    fs::copy(root.join("base/1/1259"), root.join("base/99999/1259")).unwrap();
    let outcome = check([root]);
    assert_eq!(outcome.report().verdict(), "intact", "{outcome:?}");
    assert!(outcome.stdout.contains("base/99999"), "a note: {outcome:?}");
    fs::remove_dir_all(root.join("base/99999")).unwrap();
}

/// A server follows the link; what we do not follow is unread.
#[test]
fn relation_behind_a_symbolic_link_is_unread_and_not_missing() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let (path, aside) = (cluster.data_dir().join(sample.file("item")), cluster.home().join("item"));
    fs::rename(&path, &aside).unwrap();
    symlink(&aside, &path).unwrap();
    let report = check([cluster.data_dir()]).report();
    assert_eq!((report.verdict(), report.serious()), ("incomplete", vec![]));
    assert!(report.unread().contains_key(sample.file("item")));
    fs::rename(&aside, &path).unwrap();
}

/// With a sum that fits, a control file may still be none that a server wrote.
#[test]
fn control_file_that_no_server_writes_is_told_though_its_sum_fits() {
    for installation in installations() {
        let version = &installation.version;
        let cluster = sample(&installation, true).copy();
        let root = cluster.data_dir();
        let path = root.join("global/pg_control");
        let sound = fs::read(&path).unwrap();
        let crc_at = if installation.major >= 18 { 292 } else { 288 };
        let number = |at: usize| u64::from_le_bytes(sound[at..at + 8].try_into().unwrap());
        // The record before the checkpoint's, which names it 8 bytes behind its begin.
        let checkpoint = number(32);
        let segment_bytes = u64::from(u32::from_le_bytes(sound[228..232].try_into().unwrap()));
        let segment = format!(
            "{:08X}{:08X}{:08X}",
            1,
            checkpoint >> 32,
            (checkpoint & 0xFFFF_FFFF) / segment_bytes
        );
        let log = fs::read(root.join("pg_wal").join(segment)).unwrap();
        let at = usize::try_from(checkpoint % segment_bytes).unwrap() + 8;
        let before = u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
        // state, checkPoint, minRecoveryPoint, its timeline, the redo position and the next
        // transaction of the checkpoint, floatFormat, TOAST_MAX_CHUNK_SIZE.
        let changes = [
            (16, 0, 4),
            (16, 9, 4),
            (32, before, 8),
            (136, 1 << 40, 8),
            (144, 9, 4),
            (40, number(40) + 64, 8),
            (64, number(64) - 1, 8),
            (208, 0, 8),
            (240, 1000, 4),
        ];
        for (at, value, bytes) in changes {
            let mut changed = sound.clone();
            changed[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            let crc = pagewarden::crc::crc32c(&changed[..crc_at]).to_le_bytes();
            changed[crc_at..crc_at + 4].copy_from_slice(&crc);
            fs::write(&path, changed).unwrap();
            let outcome = check([root]);
            assert_ne!(outcome.report().verdict(), "intact", "{version}: {value} at {at}");
        }
        fs::write(&path, &sound).unwrap();
        assert_eq!(check([root]).report().verdict(), "intact", "{version}");
    }
}

#[test]
fn tablespace_that_cannot_be_reached_is_unread_and_one_without_a_link_is_missing() {
    let Some(installation) = any_installation() else { return };
    let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
    cluster.start().unwrap();
    let place = cluster.add_tablespace("faraway").unwrap();
    cluster
        .execute(
            "postgres",
            &["CREATE TABLE t TABLESPACE faraway AS SELECT generate_series(1, 999)"],
        )
        .unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir();
    assert_eq!(check([root]).report().verdict(), "intact");
    let links = fs::read_dir(root.join("pg_tblspc")).unwrap().flatten();
    let link = links.map(|entry| entry.path()).next().unwrap();
    let shown = format!("pg_tblspc/{}", link.file_name().unwrap().display());
    let leads_to = fs::read_link(&link).unwrap();

    // The file system behind it is not mounted: an empty folder, or none.
    let aside = place.with_extension("aside");
    fs::rename(&place, &aside).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            fs::create_dir(&place).unwrap();
        }
        let outcome = check([root]);
        let report = outcome.report();
        assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"), "{outcome:?}");
        assert!(report.unread().contains_key(shown.as_str()), "{outcome:?}");
    }
    fs::remove_dir(&place).unwrap();
    fs::rename(&aside, &place).unwrap();

    fs::remove_file(&link).unwrap();
    let outcome = check([root]);
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(1), "damaged"), "{outcome:?}");
    assert_eq!(report.serious(), [Finding::file(&shown, "damage", "missing")], "{outcome:?}");
    symlink(&leads_to, &link).unwrap();
    assert_eq!(check([root]).report().verdict(), "intact");
}

/// A prepared transaction, a replication slot, a multixact, a database's folder in a
/// tablespace: sound they are no alarm, destroyed they are never intact.
#[test]
fn small_files_and_folders_that_a_server_reads_at_its_start_are_tested() {
    for installation in installations() {
        let version = &installation.version;
        let options = Options::default().with("max_prepared_transactions", "5");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        if !cluster.has_psql() {
            continue;
        }
        let place = cluster.add_tablespace("faraway").unwrap();
        cluster
            .psql(
                "CREATE TABLE t TABLESPACE faraway AS SELECT generate_series(1, 999) AS id;
                 CREATE TABLE m (id int PRIMARY KEY, word text);
                 INSERT INTO m SELECT i, 'a' FROM generate_series(1, 99) i;
                 BEGIN; SELECT count(*) FROM (SELECT * FROM m FOR KEY SHARE) x;
                 SAVEPOINT s; UPDATE m SET word = 'b' WHERE id < 50; COMMIT;
                 SELECT pg_create_physical_replication_slot('slot', true);
                 BEGIN; INSERT INTO m VALUES (1000, 'p'); PREPARE TRANSACTION 'aa';",
            )
            .unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir();
        let outcome = check([root]);
        assert_eq!(outcome.report().verdict(), "intact", "{version}: {outcome:?}");
        let prepared = fs::read_dir(root.join("pg_twophase")).unwrap().flatten().next().unwrap();
        for path in [prepared.path(), root.join("pg_replslot/slot/state")] {
            let flipped = fs::read(&path).unwrap();
            for loss in LOSSES {
                if loss == Loss::Removed && path == prepared.path() {
                    continue;
                }
                let Some(lost) = Lost::to(path.clone(), loss) else { continue };
                let report = check([root]).report();
                assert_eq!(report.verdict(), "damaged", "{version}: {} {loss:?}", path.display());
                drop(lost);
            }
            let mut bytes = flipped.clone();
            bytes[20] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(check([root]).report().verdict(), "damaged", "{}", path.display());
            fs::write(&path, &flipped).unwrap();
        }
        for log in ["pg_multixact/offsets/0000", "pg_multixact/members/0000"] {
            let lost = Lost::to(root.join(log), Loss::Zeroed).unwrap();
            assert_eq!(check([root]).report().verdict(), "suspect", "{version}: {log}");
            drop(lost);
        }
        let settings = Lost::to(root.join("postgresql.auto.conf"), Loss::Zeroed).unwrap();
        assert_eq!(check([root]).report().verdict(), "damaged", "{version}");
        drop(settings);
        assert_eq!(check([root]).report().verdict(), "intact", "{version}");
        let versions = fs::read_dir(&place).unwrap().flatten().next().unwrap().path();
        let folder = fs::read_dir(&versions).unwrap().flatten().next().unwrap().path();
        fs::remove_dir_all(&folder).unwrap();
        let report = check([root]).report();
        assert_eq!(report.verdict(), "damaged", "{version}: the folder in the tablespace");
        assert!(report.serious().iter().any(|one| one.kind == "missing"), "{version}");
    }
}

/// Barman's rsync method keeps tablespaces beside the data directory, without links.
#[test]
fn tablespaces_of_a_barman_backup_are_read_beside_its_data_directory() {
    let name = "backups/barman-3.4-local-rsync/demo.tar.zst";
    let Some(archive) = fixture(name) else { return };
    let folder = tempfile::tempdir().unwrap();
    let unpacked = std::process::Command::new("tar")
        .args(["--zstd", "-xf"])
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(unpacked.unwrap().success(), "tar cannot unpack {name}");
    let sets = fs::read_dir(folder.path().join("demo/base")).unwrap().flatten();
    let mut data: Vec<_> = sets.map(|set| set.path().join("data")).collect();
    data.retain(|data| data.is_dir());
    data.sort();
    assert!(!data.is_empty());
    for data in &data {
        // The log lies elsewhere in the repository.
        let outcome = check(["--no-log".as_ref(), data.as_os_str()]);
        let report = outcome.report();
        assert_eq!((report.serious(), report.unread().len()), (vec![], 0), "{outcome:?}");
    }
    // A page of the table in the tablespace.
    let last = data.last().unwrap();
    let shown = "pg_tblspc/16770/PG_15_202209061/1/16776";
    let file = last.parent().unwrap().join(shown.strip_prefix("pg_tblspc/").unwrap());
    let mut bytes = fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    fs::remove_file(&file).unwrap();
    fs::write(&file, &bytes).unwrap();
    let found = check([last]).report().serious();
    assert!(found.iter().any(|one| one.file == shown && one.page == Some(0)), "{found:?}");
    // The tablespace was left out of the copy.
    fs::remove_dir_all(last.parent().unwrap().join("16770")).unwrap();
    let report = check([last]).report();
    assert_eq!(report.verdict(), "incomplete");
    assert!(report.unread().contains_key("pg_tblspc/16770"));
}

/// A file of other people's, that the project does not contain.
fn fixture(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures"),
        PathBuf::from,
    );
    let path = root.join(name);
    if !path.exists() {
        eprintln!("SKIPPED: no {name} below {}", root.display());
        return None;
    }
    Some(path)
}
