//! Files that a directory's dictionary or its server ask for and that are gone, exchanged or empty.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use pagewarden::verdict::{Kind, Severity, Verdict};
use pagewarden_scratch::mariadb::{Installation, Server};

use crate::innodb_wild::{Report, check};

/// Every kind of place that a table's file can have, or have not.
const TABLES: &str = "CREATE DATABASE t; USE t; SET GLOBAL innodb_file_per_table = 1;
    CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(400));
    INSERT INTO a SELECT seq, REPEAT(MD5(seq), 5) FROM seq_1_to_500;
    CREATE TABLE old (id INT PRIMARY KEY) ROW_FORMAT=REDUNDANT;
    CREATE TABLE zip (id INT PRIMARY KEY) ROW_FORMAT=COMPRESSED;
    CREATE TABLE pc (id INT PRIMARY KEY) PAGE_COMPRESSED=1;
    CREATE TABLE `a-b c` (id INT PRIMARY KEY, f TEXT, FULLTEXT(f));
    INSERT INTO `a-b c` VALUES (1, 'hello');
    CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id)
        (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100));
    INSERT INTO p VALUES (1), (50);
    CREATE TABLE disc (id INT PRIMARY KEY); ALTER TABLE disc DISCARD TABLESPACE;
    CREATE TEMPORARY TABLE tmp (id INT PRIMARY KEY);
    CREATE TABLE dropped (id INT PRIMARY KEY); DROP TABLE dropped;
    CREATE TABLE ren (id INT PRIMARY KEY); RENAME TABLE ren TO renamed;
    CREATE TABLE tr (id INT PRIMARY KEY); TRUNCATE TABLE tr;
    SET GLOBAL innodb_file_per_table = 0; CREATE TABLE insys (id INT PRIMARY KEY);
    SET GLOBAL innodb_file_per_table = 1;
    CREATE SEQUENCE sq ENGINE=InnoDB;
    CREATE DATABASE gone; CREATE TABLE gone.x (id INT PRIMARY KEY); DROP DATABASE gone;
    CREATE DATABASE ar; CREATE TABLE ar.r (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=Aria;
    INSERT INTO ar.r SELECT seq, MD5(seq) FROM seq_1_to_2000;
    CREATE TABLE ar.void (id INT PRIMARY KEY) ENGINE=Aria;";

/// A stopped server's directory.
fn directory(elsewhere: Option<&Path>) -> Option<Server> {
    let installation = Installation::for_test().unwrap()?;
    let mut server = Server::install(&installation, &[]).unwrap();
    server.start().unwrap();
    server.sql(TABLES).unwrap();
    if let Some(place) = elsewhere {
        let place = place.display();
        server
            .sql(&format!("CREATE TABLE t.away (id INT PRIMARY KEY) DATA DIRECTORY='{place}'"))
            .unwrap();
    }
    let live = check(server.data_dir(), None);
    assert_eq!((live.findings.len(), live.unread.len()), (0, 0), "{:?}", live.findings);
    server.stop().unwrap();
    Some(server)
}

/// Severity, kind, file and object of each finding.
fn found(report: &Report) -> Vec<(Severity, Kind, &str, Option<&str>)> {
    let found = report.findings.iter();
    found.map(|it| (it.severity, it.kind, &*it.place.file, it.object.as_deref())).collect()
}

fn unread(report: &Report) -> Vec<&str> {
    report.unread.iter().map(|unread| unread.file.as_str()).collect()
}

fn assert_intact(path: &Path, when: &str) -> Report {
    let report = check(path, None);
    assert_eq!((found(&report), unread(&report)), (vec![], vec![]), "{when}");
    assert_eq!(report.verdict(), Verdict::Intact, "{when}: {}", report.notes());
    report
}

fn shared_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

#[test]
fn table_file_that_is_gone_is_missed_and_nothing_of_a_whole_directory_is() {
    let elsewhere = shared_folder();
    let Some(server) = directory(Some(elsewhere.path())) else { return };
    let path = server.data_dir();
    assert_intact(path, "whole");
    let aside = tempfile::tempdir().unwrap();
    let kept = aside.path().join("kept");
    let move_away = |from: &Path, to: &Path| {
        assert!(Command::new("mv").arg(from).arg(to).status().unwrap().success());
    };
    let auxiliary = fs::read_dir(path.join("t")).unwrap().flatten();
    let auxiliary = auxiliary.map(|entry| entry.file_name().into_string().unwrap());
    let auxiliary = auxiliary.filter(|name| name.ends_with("_CONFIG.ibd")).max().unwrap();
    let auxiliary = format!("t/{auxiliary}");
    for (file, object) in [
        ("t/a.ibd", "t.a"),
        ("t/old.ibd", "t.old"),
        ("t/pc.ibd", "t.pc"),
        ("t/p#P#p1.ibd", "t.p partition p1"),
        ("t/a@002db@0020c.ibd", "t.a-b c"),
        ("t/renamed.ibd", "t.renamed"),
        ("t/sq.ibd", "t.sq"),
        (&auxiliary, auxiliary.trim_end_matches(".ibd").replace('/', ".").as_str()),
        ("mysql/innodb_table_stats.ibd", "mysql.innodb_table_stats"),
    ] {
        move_away(&path.join(file), &kept);
        let report = check(path, None);
        let expected = (Severity::Damage, Kind::Missing, file, Some(object));
        assert_eq!(found(&report), [expected], "{file}");
        assert_eq!(report.verdict(), Verdict::Damaged, "{file}");
        move_away(&kept, &path.join(file));
    }
    let away = elsewhere.path().join("t/away.ibd");
    move_away(&away, &kept);
    let missing = (Severity::Damage, Kind::Missing, "t/away.ibd", Some("t.away"));
    assert_eq!(found(&check(path, None)), [missing]);
    fs::remove_dir(elsewhere.path().join("t")).unwrap();
    assert_eq!(unread(&check(path, None)), ["t/away.ibd"], "not mounted, it may be");
    fs::create_dir(elsewhere.path().join("t")).unwrap();
    move_away(&kept, &away);
    assert_intact(path, "all put back");
    move_away(&path.join("t"), &kept);
    let report = check(path, None);
    let missing: Vec<_> = found(&report).into_iter().map(|it| (it.1, it.2)).collect();
    assert!(missing.iter().all(|it| it.0 == Kind::Missing), "{missing:?}");
    for file in ["t/a.ibd", "t/p#P#p0.ibd", "t/zip.ibd"] {
        assert!(missing.contains(&(Kind::Missing, file)), "{missing:?}");
    }
    assert!(!missing.iter().any(|it| it.1.contains("disc")), "{missing:?}");
}

#[test]
fn table_files_that_were_exchanged_are_misplaced() {
    let Some(server) = directory(None) else { return };
    let path = server.data_dir().join("t");
    for (one, other) in [("p#P#p0.ibd", "p#P#p1.ibd"), ("a.ibd", "tr.ibd")] {
        let exchange = || {
            fs::rename(path.join(one), path.join("aside")).unwrap();
            fs::rename(path.join(other), path.join(one)).unwrap();
            fs::rename(path.join("aside"), path.join(other)).unwrap();
        };
        exchange();
        let report = check(server.data_dir(), None);
        let mut files: Vec<_> = found(&report).into_iter().map(|it| (it.0, it.1, it.2)).collect();
        files.sort();
        let files: Vec<_> = files.iter().map(|it| (it.0, it.1, it.2.to_owned())).collect();
        let expected = [one, other];
        let expected = expected.map(|it| (Severity::Damage, Kind::Misplaced, format!("t/{it}")));
        assert_eq!(files, expected);
        exchange();
    }
    fs::copy(path.join("tr.ibd"), path.join("a.ibd")).unwrap();
    let report = check(server.data_dir(), None);
    let damage = (Severity::Damage, Kind::Misplaced, "t/a.ibd", Some("t.a"));
    assert!(found(&report).contains(&damage), "{:?}", found(&report));
}

#[test]
fn dictionary_that_fails_concludes_nothing_of_tables() {
    let Some(server) = directory(None) else { return };
    let path = server.data_dir();
    fs::remove_file(path.join("t/a.ibd")).unwrap();
    crate::innodb_wild::write_at(&path.join("ibdata1"), 8 * 16_384 + 400, &[0x5a; 40]);
    let report = check(path, None);
    assert_eq!(unread(&report), ["ibdata1"]);
    assert!(found(&report).iter().all(|it| it.1 != Kind::Missing), "{:?}", found(&report));
    assert_eq!(report.verdict(), Verdict::Damaged);
}

#[test]
fn database_and_table_behind_links_are_checked_as_if_they_lay_here() {
    let elsewhere = shared_folder();
    let Some(server) = directory(None) else { return };
    let path = server.data_dir();
    let whole = assert_intact(path, "as made");
    let place = elsewhere.path().join("t");
    assert!(Command::new("mv").arg(path.join("t")).arg(&place).status().unwrap().success());
    symlink(&place, path.join("t")).unwrap();
    let table = elsewhere.path().join("a.ibd");
    assert!(Command::new("mv").arg(place.join("a.ibd")).arg(&table).status().unwrap().success());
    symlink(&table, place.join("a.ibd")).unwrap();
    let linked = assert_intact(path, "linked");
    assert_eq!(linked.summary.pages.total(), whole.summary.pages.total());
    crate::innodb_wild::write_at(&table, 3 * 16_384 + 500, &[0x5a; 40]);
    let report = check(path, None);
    let damage = (Severity::Damage, Kind::Checksum, "t/a.ibd", Some("t.a"));
    assert_eq!(found(&report), [damage]);
    fs::remove_file(&table).unwrap();
    let report = check(path, None);
    assert_eq!((found(&report), unread(&report)), (vec![], vec!["t/a.ibd"]));
    fs::remove_file(place.join("a.ibd")).unwrap();
    let missing = (Severity::Damage, Kind::Missing, "t/a.ibd", Some("t.a"));
    assert_eq!(found(&check(path, None)), [missing]);
    // What leads back would be seen twice, or for ever.
    for target in [path, path.parent().unwrap(), &path.join("ar")] {
        symlink(target, path.join("round")).unwrap();
        let report = check(path, None);
        assert_eq!((found(&report), unread(&report)), (vec![missing], vec!["round"]));
        fs::remove_file(path.join("round")).unwrap();
    }
}

#[test]
fn files_of_aria_and_the_servers_own_folder_are_asked_for() {
    let Some(server) = directory(None) else { return };
    let path = server.data_dir();
    assert_intact(path, "whole");
    let judged = |when: &str| {
        let report = check(path, None);
        assert_eq!(report.verdict(), Verdict::Damaged, "{when}");
        let found = report.findings.iter();
        found.map(|it| (it.severity, it.kind, it.place.file.clone())).collect::<Vec<_>>()
    };
    let expect = |file: &str, change: &dyn Fn(&mut Vec<u8>), kind: Kind| {
        let before = fs::read(path.join(file)).unwrap();
        let mut bytes = before.clone();
        change(&mut bytes);
        fs::write(path.join(file), &bytes).unwrap();
        assert_eq!(judged(file), [(Severity::Damage, kind, file.to_owned())]);
        fs::write(path.join(file), before).unwrap();
    };
    expect("aria_log_control", &|bytes| bytes[0] = 0, Kind::Header);
    expect("aria_log_control", &|bytes| bytes[38] ^= 4, Kind::Checksum);
    expect("aria_log_control", &|bytes| bytes.truncate(40), Kind::Truncated);
    expect("aria_log_control", &Vec::clear, Kind::Header);
    expect("ar/r.MAI", &Vec::clear, Kind::Truncated);
    expect("ar/void.MAI", &Vec::clear, Kind::Truncated);
    expect("ar/r.MAD", &|bytes| bytes[..8192].fill(0), Kind::Zeroed);
    for file in ["aria_log_control", "ar/r.MAD", "ar/r.MAI", "ar/void.MAD", "mysql/db.MAI"] {
        let kept = fs::read(path.join(file)).unwrap();
        fs::remove_file(path.join(file)).unwrap();
        assert_eq!(judged(file), [(Severity::Damage, Kind::Missing, file.to_owned())]);
        fs::write(path.join(file), kept).unwrap();
    }
    assert_intact(path, "all put back");
    // Of a table that is unknown to the server, one file proves nothing.
    fs::copy(path.join("ar/void.MAD"), path.join("ar/left.MAD")).unwrap();
    let report = check(path, None);
    let suspect = (Severity::Suspect, Kind::Missing, "ar/left.MAI", Some("ar.left"));
    assert_eq!(found(&report), [suspect]);
    fs::remove_file(path.join("ar/left.MAD")).unwrap();
    fs::remove_dir_all(path.join("mysql")).unwrap();
    let missing = judged("mysql");
    assert!(missing.contains(&(Severity::Damage, Kind::Missing, "mysql".into())), "{missing:?}");
}
