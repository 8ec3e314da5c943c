//! `check --server`: a running MySQL or MariaDB is asked which files it has. What is missing, cut or
//! zeroed is found, and nothing is while tables are made, renamed, emptied and removed.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pagewarden_scratch::{mariadb, mysql};

use crate::runner::{Outcome, check};

/// How long tables come and go.
const LOAD: Duration = Duration::from_secs(4);
const CHECKS_MIN: usize = 3;

/// One of the two kinds.
struct Subject<'a> {
    root: PathBuf,
    url: String,
    is_mariadb: bool,
    sql: &'a dyn Fn(&str) -> String,
    client: &'a dyn Fn() -> Command,
}

fn asking(url: &str, root: &Path) -> Outcome {
    check([OsStr::new("--server"), OsStr::new(url), root.as_os_str()])
}

/// What is changed all the while, by two clients with tables of their own.
fn churn(number: u32) -> String {
    let turn = |turn: u32| {
        format!(
            "CREATE TABLE c{number} (id int PRIMARY KEY, v varchar(99)) ENGINE=InnoDB;
             INSERT INTO c{number} VALUES ({turn}, 'x');
             RENAME TABLE c{number} TO d{number};
             TRUNCATE TABLE d{number};
             ALTER TABLE d{number} ADD KEY (v), FORCE;
             RENAME TABLE d{number} TO c{number};
             DROP TABLE c{number};\n"
        )
    };
    std::iter::once("USE shop;\n".to_owned()).chain((0..5000).map(turn)).collect()
}

fn tried(subject: &Subject<'_>) {
    let Subject { root, url, is_mariadb, sql, client } = subject;
    sql("CREATE DATABASE shop; USE shop; \
         CREATE TABLE gone (id int PRIMARY KEY, v text) ENGINE=InnoDB; \
         CREATE TABLE cut (id int PRIMARY KEY, v text) ENGINE=InnoDB; \
         CREATE TABLE blank (id int PRIMARY KEY, v text) ENGINE=InnoDB; \
         CREATE TABLE whole (id int) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 2; \
         CREATE TABLE `strange name` (id int, t text, FULLTEXT (t)) ENGINE=InnoDB; \
         INSERT INTO gone VALUES (1, 'a'); INSERT INTO cut VALUES (1, 'b'); \
         INSERT INTO blank VALUES (1, 'c'); \
         FLUSH TABLES gone, cut, blank FOR EXPORT; UNLOCK TABLES");
    let outcome = asking(url, root);
    let report = outcome.report();
    assert_eq!((report.findings(), report.unread().len()), (vec![], 0), "{:#}", report.json);
    assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"), "{:#}", report.json);
    let said = report.json.to_string();
    assert!(said.contains("were looked for") && said.contains("the server's own list"), "{said}");

    let mut clients: Vec<_> = (0..2)
        .map(|number| {
            let mut command = client();
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            std::thread::spawn(move || input.write_all(churn(number).as_bytes()).is_ok());
            child
        })
        .collect();
    let begin = Instant::now();
    let mut checks = 0;
    while begin.elapsed() < LOAD || checks < CHECKS_MIN {
        let report = asking(url, root).report();
        assert_eq!(report.serious(), [], "check {checks}: {:#}", report.json);
        assert!(report.unread().is_empty(), "check {checks}: {:#}", report.json);
        checks += 1;
    }
    for child in &mut clients {
        assert!(child.try_wait().unwrap().is_none(), "tables came and went to the end");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fs::remove_file(root.join("shop/gone.ibd")).unwrap();
    let cut = fs::File::options().write(true).open(root.join("shop/cut.ibd")).unwrap();
    cut.set_len(3 * 16_384).unwrap();
    let mut expected = vec![("truncated", "shop/cut.ibd"), ("missing", "shop/gone.ibd")];
    if !is_mariadb {
        let blank = fs::File::options().write(true).open(root.join("shop/blank.ibd")).unwrap();
        blank.write_all_at(&[0; 16_384], 0).unwrap();
        expected.push(("zeroed", "shop/blank.ibd"));
    }
    let without = check([root]).report();
    assert!(!without.json.to_string().contains("gone.ibd"), "{:#}", without.json);
    let outcome = asking(url, root);
    let report = outcome.report();
    let findings = report.serious();
    let found: Vec<_> = findings.iter().map(|it| (it.kind.as_str(), it.file.as_str())).collect();
    for one in &expected {
        assert!(found.contains(one), "{one:?}: {found:?}");
    }
    assert!(found.iter().all(|(_, file)| expected.iter().any(|it| it.1 == *file)), "{found:?}");
    assert_eq!((outcome.status, report.verdict()), (Some(1), "damaged"));

    // A server that is another's, and one that does not answer such questions to this user.
    let elsewhere = tempfile::tempdir().unwrap();
    let outcome = asking(url, elsewhere.path());
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    sql("CREATE USER plain@localhost");
    let outcome = asking(&url.replace("root@", "plain@"), root);
    let unread = outcome.report().unread().len();
    assert_eq!((unread, outcome.report().verdict()), (1, "incomplete"), "{outcome:?}");
}

#[test]
fn files_that_a_running_mysql_misses_are_found_and_none_while_tables_come_and_go() {
    let Some(installation) = mysql::Installation::for_test().unwrap() else { return };
    let mut server = mysql::Server::install(&installation).unwrap();
    server.start().unwrap();
    tried(&Subject {
        root: server.data_dir().to_owned(),
        url: server.url(""),
        is_mariadb: false,
        sql: &|sql| server.sql(sql).unwrap(),
        client: &|| server.client(),
    });
}

#[test]
fn files_that_a_running_mariadb_misses_are_found_and_none_while_tables_come_and_go() {
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let mut server = mariadb::Server::install(&installation, &[]).unwrap();
    server.start().unwrap();
    tried(&Subject {
        root: server.data_dir().to_owned(),
        url: server.url(""),
        is_mariadb: true,
        sql: &|sql| server.sql(sql).unwrap(),
        client: &|| server.client(),
    });
}
