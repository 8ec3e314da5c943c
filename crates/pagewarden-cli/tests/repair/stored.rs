//! Copies as they lie: archives, packs and repositories prove what the same backup in a folder proves,
//! and archived log proves more than the server's own.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pagewarden::database::repository::RepositoryOptions;
use pagewarden::repair::{Options as RepairOptions, Request, Verdict, repair};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use super::history::base_backup;
use super::{Tally, attack_on, lengths, places};
use crate::clusters::{installations, installations_for_campaigns};
use crate::damage::Dice;
use crate::runner::pagewarden;

const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster that keeps little log, and is to archive it.
pub(super) fn archiving(installation: &Installation) -> Option<Cluster> {
    let options = Options { wal_segment_mib: Some(1), ..Options::default() }
        .with("autovacuum", "off")
        .with("archive_mode", "on")
        .with("wal_keep_size", "0")
        .with("min_wal_size", "'2MB'")
        .with("max_wal_size", "'2MB'");
    let mut cluster = Cluster::init(installation, &options).unwrap();
    cluster.start().unwrap();
    (cluster.has_psql() && cluster.client("pg_basebackup").is_ok()).then_some(cluster)
}

/// Archives by this command from now on: one that fails at first is tried again after a minute only.
fn archive_by(cluster: &mut Cluster, command: &str) {
    cluster.append_settings([("archive_command", &*format!("'{command}'"))]).unwrap();
    cluster.psql("SELECT pg_reload_conf()").unwrap();
}

/// Archives to a folder.
pub(super) fn archive_to_folder(cluster: &mut Cluster) -> PathBuf {
    let log = cluster.add_dir("log").unwrap();
    archive_by(cluster, &format!("cp %p {}/%f", log.display()));
    log
}

/// Changes some pages, recycles the server's own log, and stops it with all log archived.
pub(super) fn go_on_and_stop(cluster: &mut Cluster) {
    cluster.pgbench(&["-n", "-c", "1", "-t", "100"]).unwrap();
    for _ in 0..6 {
        cluster.psql("SELECT txid_current()").unwrap();
        cluster.psql("SELECT pg_switch_wal()").unwrap();
        cluster.psql("CHECKPOINT").unwrap();
    }
    let last = cluster.psql("SELECT pg_walfile_name(pg_switch_wal() - 1)").unwrap();
    let done = format!("SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver");
    let begin = Instant::now();
    while cluster.psql(&done).unwrap() != "t" {
        assert!(begin.elapsed() < PATIENCE, "the archiver is not done");
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.stop(StopMode::Fast).unwrap();
}

fn asked(cluster: &Cluster, source: &Path, log: &[PathBuf]) -> Request {
    Request { sources: vec![source.into()], log: places(log), ..Request::new(cluster.data_dir()) }
}

/// The same wounds each time.
fn assault(request: &Request) -> Tally {
    attack_on(request, &mut Dice::seeded(), |file| file.starts_with("base/5/"), 150)
}

/// The same files are missing or cut each time.
fn cut_files(request: &Request) -> lengths::Tally {
    lengths::attack(request, &mut Dice::seeded())
}

fn compressed(folder: &Path) -> PathBuf {
    let target = folder.with_extension("gz");
    fs::create_dir(&target).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{}.gz", entry.file_name().to_str().unwrap());
        let output = Command::new("gzip").arg("-c").arg(entry.path()).output().unwrap();
        assert!(output.status.success());
        fs::write(target.join(name), output.stdout).unwrap();
    }
    target
}

#[test]
fn archives_and_packs_prove_what_a_folder_proves_and_archived_log_proves_more() {
    for installation in installations_for_campaigns() {
        if !installation.has("pgbench") {
            continue;
        }
        let Some(mut cluster) = archiving(&installation) else { continue };
        let log = archive_to_folder(&mut cluster);
        cluster.pgbench(&["-i", "-s", "1", "-q"]).unwrap();
        let archives = base_backup(&cluster, "archives", &["-Ft", "-z", "-X", "none"]);
        go_on_and_stop(&mut cluster);
        let folder = cluster.add_dir("folder").unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(archives.join("base.tar.gz")).arg("-C").arg(&folder);
        assert!(tar.status().unwrap().success());
        let pack = cluster.home().join("folder.pwk");
        let mut packing = pagewarden();
        // It lacks the log that it needs, which is in the archive.
        packing.arg("pack").arg(&folder).arg("-o").arg(&pack).args(["--quiet", "--keep-damaged"]);
        packing.output().unwrap();

        let logs = [log.clone()];
        let with = assault(&asked(&cluster, &folder, &logs));
        let without = assault(&asked(&cluster, &folder, &[]));
        println!("PostgreSQL {}: {with:?}, own log {without:?}", installation.version);
        assert!(with.exact > without.exact && with.left < without.left, "{with:?} {without:?}");
        let cut = cut_files(&asked(&cluster, &folder, &logs));
        println!("PostgreSQL {}, cut files: {cut:?}", installation.version);
        assert!(cut.exact > 0, "{cut:?}");
        for (source, log) in [
            (&archives, &log),
            (&archives.join("base.tar.gz"), &log),
            (&archives, &compressed(&log)),
            (&pack, &log),
        ] {
            let logs = [log.clone()];
            let request = asked(&cluster, source, &logs);
            assert_eq!(assault(&request), with, "{}", source.display());
            assert_eq!(cut_files(&request), cut, "{}", source.display());
        }
        // A hole in the log ends what can be proved, and is no reason to believe what is before it.
        let mut names: Vec<_> = fs::read_dir(&log).unwrap().map(|it| it.unwrap().path()).collect();
        names.retain(|path| path.extension().is_none());
        names.sort();
        fs::remove_file(&names[names.len() - 3]).unwrap();
        let broken = assault(&asked(&cluster, &folder, &logs));
        assert!(broken.exact < with.exact, "{broken:?} {with:?}");
    }
}

/// Runs the tool on a repository in the cluster's folder.
fn pgbackrest(cluster: &Cluster, command: &[&str]) {
    let settings = cluster.home().join("pgbackrest.conf");
    let owner = fs::metadata(cluster.data_dir()).unwrap();
    let mut tool = Command::new("pgbackrest");
    tool.uid(owner.uid()).gid(owner.gid());
    tool.arg("--config").arg(settings).args(["--stanza=one", "--log-level-console=warn"]);
    let output = tool.args(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn repository_brings_pages_and_the_log_that_proves_them() {
    if Command::new("pgbackrest").arg("version").output().is_err() {
        println!("SKIPPED: there is no pgbackrest");
        return;
    }
    for installation in installations().into_iter().filter(|one| one.major <= 15) {
        let Some(mut cluster) = archiving(&installation) else { continue };
        let home = cluster.home().to_owned();
        let text = format!(
            "[global]\nrepo1-path={0}/repo\nlog-path={0}\nlock-path={0}/lock\nspool-path={0}\n\
             compress-type=zst\nstart-fast=y\n\
             repo1-cipher-type=aes-256-cbc\nrepo1-cipher-pass=deep\n\
             [one]\npg1-path={1}\npg1-socket-path={2}\npg1-port={3}\npg1-user=postgres\n",
            home.display(),
            cluster.data_dir().display(),
            cluster.socket_dir().display(),
            cluster.port(),
        );
        fs::write(home.join("pgbackrest.conf"), text).unwrap();
        pgbackrest(&cluster, &["stanza-create"]);
        let settings = home.join("pgbackrest.conf");
        let push =
            format!("pgbackrest --config {} --stanza=one archive-push %p", settings.display());
        archive_by(&mut cluster, &push);
        cluster.pgbench(&["-i", "-s", "1", "-q"]).unwrap();
        pgbackrest(&cluster, &["backup", "--type=full"]);
        cluster.pgbench(&["-n", "-c", "1", "-t", "50"]).unwrap();
        pgbackrest(&cluster, &["backup", "--type=incr"]);
        go_on_and_stop(&mut cluster);
        let pass = home.join("pass");
        fs::write(&pass, "deep\n").unwrap();
        let repository =
            RepositoryOptions { cipher_pass_file: Some(pass), ..RepositoryOptions::default() };
        let request = Request { repository, ..asked(&cluster, &home.join("repo"), &[]) };
        let with = assault(&request);
        let alone = assault(&Request { sources: Vec::new(), ..request.clone() });
        println!("PostgreSQL {}, pgBackRest: {with:?}, alone {alone:?}", installation.version);
        assert!(with.exact > alone.exact, "{with:?} {alone:?}");
        let cut = cut_files(&request);
        println!("PostgreSQL {}, pgBackRest, cut files: {cut:?}", installation.version);
        assert!(cut.exact > 0, "{cut:?}");
    }
}

#[test]
fn nothing_is_taken_from_archives_that_end_early() {
    let Some(installation) = installations().into_iter().next() else { return };
    let Some(mut cluster) = archiving(&installation) else { return };
    let log = archive_to_folder(&mut cluster);
    let archives = base_backup(&cluster, "archives", &["-Ft", "-z", "-X", "none"]);
    cluster.stop(StopMode::Fast).unwrap();
    let base = archives.join("base.tar.gz");
    let bytes = fs::read(&base).unwrap();
    fs::write(&base, &bytes[..bytes.len() / 2]).unwrap();
    let catalogue = cluster.data_dir().join("base/5/1249");
    let mut pages = fs::read(&catalogue).unwrap();
    pages[8192 + 6000..8192 + 8000].fill(0x77);
    fs::write(catalogue, pages).unwrap();
    let request = asked(&cluster, &archives, &[log]);
    let error = repair(&request, &RepairOptions::default(), &()).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
    let request = Request { sources: Vec::new(), ..request };
    let outcome = repair(&request, &RepairOptions::default(), &()).unwrap();
    assert!(outcome.verdict != Verdict::NothingToRepair, "{outcome:?}");
}
