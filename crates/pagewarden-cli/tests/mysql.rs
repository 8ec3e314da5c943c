//! MySQL as it is packaged today, through all that a server goes through: never a false alarm,
//! and what is packed and compared is what is there.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use pagewarden_scratch::mysql::{Installation, Server};
use serde_json::Value;

use crate::runner::{Finding, check, pagewarden, run};

const TABLES: &str = "CREATE DATABASE shop; USE shop; \
    CREATE TABLE item (id int PRIMARY KEY, name varchar(60), price decimal(9,2), data blob, KEY (name)); \
    CREATE TABLE packed (id int PRIMARY KEY, note text) KEY_BLOCK_SIZE = 4; \
    SET SESSION cte_max_recursion_depth = 100000; \
    INSERT INTO item WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
    SELECT i, SHA2(i, 224), i / 7, REPEAT(CHAR(i % 250), i % 900) FROM n; \
    INSERT INTO packed SELECT id, CONCAT(name, name) FROM item WHERE id % 3 = 0;";

/// Writes and changes definitions until it is ended.
fn load(server: &Server) -> Child {
    let mut sql = "USE shop;\n".to_owned();
    for turn in 0..4000_u32 {
        let (id, far) = (turn % 5000 + 1, turn + 10_000);
        sql.push_str(&format!(
            "UPDATE item SET price = price + 1 WHERE id % 97 = {};\n\
             REPLACE INTO item VALUES ({far}, 'new', {id}, REPEAT('x', {}));\n",
            turn % 97,
            turn % 3000
        ));
        if turn % 10 == 0 {
            sql.push_str(
                "CREATE TABLE passing (id int PRIMARY KEY, v varchar(99));\n\
                 INSERT INTO passing SELECT id, name FROM item LIMIT 500;\n\
                 ALTER TABLE passing ADD KEY (v), ADD COLUMN w int DEFAULT 7;\n\
                 TRUNCATE passing;\nDROP TABLE passing;\n",
            );
        }
    }
    let mut client = server.client();
    // It says aloud that its server was killed.
    client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = client.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::spawn(move || {
        use std::io::Write as _;
        // The server is killed in the middle of it.
        let _ = input.write_all(sql.as_bytes());
    });
    child
}

fn assert_no_finding(data_dir: &Path, when: &str) {
    let outcome = check([data_dir]);
    let report = outcome.report();
    let serious = report.serious();
    assert!(serious.is_empty(), "{when}: {:#}", report.json);
    assert_eq!(outcome.status, Some(0), "{when}: {:#}", report.json);
}

fn json(arguments: &[&str], status: i32) -> Value {
    let outcome = run(pagewarden().args(arguments));
    assert_eq!(outcome.status, Some(status), "{arguments:?}: {outcome:?}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn mysql_is_sound_through_its_whole_life() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let mut server = Server::install(&installation).unwrap();
    let data_dir = server.data_dir().to_owned();
    assert_no_finding(&data_dir, "fresh");
    server.start().unwrap();
    server.sql(TABLES).unwrap();
    assert_no_finding(&data_dir, "running, idle");
    let mut client = load(&server);
    for turn in 0..5 {
        sleep(Duration::from_millis(400));
        assert!(client.try_wait().unwrap().is_none(), "the load goes on");
        assert_no_finding(&data_dir, &format!("under load, {turn}"));
    }
    server.kill();
    let _ = client.wait();
    assert_no_finding(&data_dir, "killed");
    server.start().unwrap();
    assert_no_finding(&data_dir, "recovered, running");
    // The server may have been killed while this table was there.
    server.sql("DROP TABLE IF EXISTS shop.passing").unwrap();

    // Without MD5() the statement that brings it back is named, and then it works.
    let url = server.url("shop");
    let refused = run(pagewarden().args(["checksum", &url, "--strategy", "accum"]));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let statement = "INSTALL COMPONENT 'file://component_classic_hashing'";
    assert!(refused.stdout.contains(statement), "{refused:?}");
    let pushed = run(pagewarden().args(["compare", "--mode", "pushdown", &url, &url]));
    assert_eq!(pushed.status, Some(0), "{pushed:?}");
    assert!(pushed.stdout.contains("no pushdown: ") && pushed.stdout.contains(statement));
    server.sql(statement).unwrap();
    server
        .sql(
            "CREATE TABLE shop.arrow (id int PRIMARY KEY, v vector(3)); \
                INSERT INTO shop.arrow VALUES (1, TO_VECTOR('[1,2,3]')), (2, NULL)",
        )
        .unwrap();
    let sums = json(&["checksum", "--json", "--strategy", "accum,bitxor,multiset", &url], 0);
    assert_eq!(sums["tables"].as_array().unwrap().len(), 9, "{sums}");
    let pushed = json(&["compare", "--json", "--mode", "pushdown", &url, &url], 0);
    assert_eq!((&pushed["verdict"], &pushed["mode"]), (&"equal".into(), &"pushdown".into()));
    compare_with_mariadb(&server);
    log_in_as_users_of_sha256_password(&server);

    server.stop().unwrap();
    assert_no_finding(&data_dir, "stopped");
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("x.pwk").to_string_lossy().into_owned();
    let packed = json(&["pack", "--json", &data_dir.to_string_lossy(), "-o", &pack], 0);
    assert_eq!(packed["verdict"], "intact", "{packed}");
    let checked = json(&["check", "--json", &pack], 0);
    assert_eq!(checked["verdict"], "intact", "{checked}");
}

/// Of a login that is not supported, the statement that mends it is named, and mends it.
fn log_in_as_users_of_sha256_password(server: &Server) {
    let made = "CREATE USER o'brien@'%' IDENTIFIED WITH sha256_password BY 'x'; \
                GRANT SELECT ON shop.* TO o'brien@'%'";
    server.sql(&made.replace("o'brien", "'o''brien'")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    fs::write(&password, "PASSWORD\n").unwrap();
    let ours_alone = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&password, ours_alone).unwrap();
    let url = server.url("shop").replace("root@", "o'brien@");
    let options =
        ["checksum", "--password-file", &password.to_string_lossy(), &url].map(str::to_owned);
    let refused = run(pagewarden().args(&options));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let said = format!("{}{}", refused.stdout, refused.stderr);
    let begin = said.find("ALTER USER 'o''brien'@'%'").unwrap_or_else(|| panic!("{said}"));
    let statement = said[begin..].split(';').next().unwrap();
    server.sql(statement).unwrap();
    let logged_in = run(pagewarden().args(&options));
    assert_eq!(logged_in.status, Some(0), "{logged_in:?}");
}

/// The same rows in another engine are equal, and one that differs is named.
fn compare_with_mariadb(server: &Server) {
    use pagewarden_scratch::mariadb;
    let Some(installation) = mariadb::Installation::for_test().unwrap() else { return };
    let mut other = mariadb::Server::install(&installation, &[]).unwrap();
    other.start().unwrap();
    let rows = "CREATE DATABASE both_have; USE both_have; \
         CREATE TABLE t (id int PRIMARY KEY, a varchar(40), b decimal(12,3), c datetime(3), d blob); \
         INSERT INTO t VALUES (1, 'one', 1.5, '2026-01-02 03:04:05.678', x'00ff'), \
         (2, 'zwei', -7, NULL, ''), (3, NULL, 0, '1999-12-31 23:59:59', NULL);";
    server.sql(rows).unwrap();
    other.sql(rows).unwrap();
    let (one, two) = (server.url("both_have"), other.url("both_have"));
    assert_eq!(json(&["compare", "--json", &one, &two], 0)["verdict"], "equal");
    other.sql("UPDATE both_have.t SET a = 'eins' WHERE id = 1").unwrap();
    let found = json(&["compare", "--json", &one, &two], 1);
    assert_eq!(found["tables"][0]["differences"][0]["key"]["id"], 1, "{found}");
}

/// The block with the checkpoint, in the file of the log that holds it.
fn checkpoint_block(data_dir: &Path) -> (std::path::PathBuf, u64) {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
    let files = fs::read_dir(data_dir.join("#innodb_redo")).unwrap();
    let paths = files.map(|entry| entry.unwrap().path());
    let active = paths.filter(|path| !path.to_str().unwrap().ends_with("_tmp"));
    let logs: Vec<_> = active.map(|path| (fs::read(&path).unwrap(), path)).collect();
    let places = logs.iter().flat_map(|(bytes, _)| [512, 1536].map(|at| number(&bytes[at + 8..])));
    let checkpoint = places.max().unwrap() & !511;
    let found = logs.iter().find_map(|(bytes, path)| {
        let at = checkpoint.checked_sub(number(&bytes[8..]))? + 2048;
        (at < bytes.len() as u64).then(|| (path.clone(), at))
    });
    found.unwrap()
}

/// The dictionary is read with its key: what it names is missing with and without encryption.
#[test]
fn file_that_an_encrypted_dictionary_names_is_missing() {
    use std::ffi::OsStr;

    let Some(installation) = Installation::for_test().unwrap() else { return };
    let mut server = Server::install_with_keyring(&installation, &[]).unwrap();
    let data_dir = server.data_dir().to_owned();
    let keyring = server.keyring().unwrap();
    let with_key = || check([OsStr::new("--keyring"), keyring.as_os_str(), data_dir.as_os_str()]);
    server.start().unwrap();
    server
        .sql(
            "ALTER TABLESPACE mysql ENCRYPTION = 'Y'; CREATE DATABASE shop;
             CREATE TABLE shop.t (id int PRIMARY KEY) ENCRYPTION = 'Y'; INSERT INTO shop.t VALUES (1)",
        )
        .unwrap();
    server.stop().unwrap();
    let outcome = with_key();
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(0), "intact"));
    fs::remove_file(data_dir.join("shop/t.ibd")).unwrap();
    let outcome = with_key();
    let found = outcome.report().serious();
    assert_eq!((outcome.status, found.len()), (Some(1), 1), "{found:?}");
    assert_eq!((found[0].file.as_str(), found[0].kind.as_str()), ("shop/t.ibd", "missing"));
}

#[test]
fn log_that_mysql_encrypts_is_tested_with_its_key_and_never_called_intact_without() {
    use std::ffi::OsStr;
    use std::os::unix::fs::FileExt as _;

    let Some(installation) = Installation::for_test().unwrap() else { return };
    let options = ["innodb-redo-log-encrypt=ON"];
    let mut server = Server::install_with_keyring(&installation, &options).unwrap();
    let data_dir = server.data_dir().to_owned();
    let keyring = server.keyring().unwrap();
    let with_key = || check([OsStr::new("--keyring"), keyring.as_os_str(), data_dir.as_os_str()]);
    server.start().unwrap();
    server.sql("CREATE DATABASE shop; CREATE TABLE shop.t (id int PRIMARY KEY, v text)").unwrap();
    server.sql("INSERT INTO shop.t VALUES (1, REPEAT('x', 9000))").unwrap();
    server.kill();
    let outcome = with_key();
    assert_eq!(outcome.report().serious(), [], "killed: {:#}", outcome.report().json);
    assert_eq!(outcome.status, Some(0), "killed: {:#}", outcome.report().json);
    server.start().unwrap();
    server.stop().unwrap();
    let outcome = with_key();
    assert_eq!(outcome.report().findings(), [], "{:#}", outcome.report().json);
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(0), "intact"));
    let outcome = check([&data_dir]);
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(2), "incomplete"));
    let text = outcome.report().json.to_string();
    assert!(text.contains("of the log that a server reads when it starts"), "{text}");
    let accepted = check([OsStr::new("--accept-unverifiable"), data_dir.as_os_str()]);
    assert_eq!(accepted.status, Some(0), "{accepted:?}");
    let verdict_of_scrub = |keyring: &str| {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("pagewarden.toml");
        let path = data_dir.display();
        fs::write(&config, format!("[[database]]\nname = \"shop\"\npath = \"{path}\"\n{keyring}"))
            .unwrap();
        let mut command = pagewarden();
        command.args(["scrub", "--json", "--state"]).arg(folder.path().join("state"));
        let outcome = run(command.arg("--config").arg(&config));
        outcome.report().verdict().to_owned()
    };
    assert_eq!(verdict_of_scrub(&format!("keyring = \"{}\"\n", keyring.display())), "intact");
    assert_eq!(verdict_of_scrub(""), "incomplete");
    let (path, at) = checkpoint_block(&data_dir);
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at + 40).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at + 40).unwrap();
    let outcome = with_key();
    assert_eq!(outcome.status, Some(1), "{:#}", outcome.report().json);
    assert_eq!(outcome.report().verdict(), "damaged");
}

/// The dictionary lies in another file than the last number of a tablespace.
#[test]
fn system_tablespace_of_an_earlier_shutdown_is_stale_by_the_numbers_it_has_given_out() {
    let Some(installation) = Installation::for_test().unwrap() else { return };
    let mut server = Server::install(&installation).unwrap();
    let system = server.data_dir().join("ibdata1");
    let earlier = fs::read(&system).unwrap();
    server.start().unwrap();
    server.sql("CREATE DATABASE shop; CREATE TABLE shop.late (id int PRIMARY KEY)").unwrap();
    server.stop().unwrap();
    assert_no_finding(server.data_dir(), "with a table");
    fs::write(&system, earlier).unwrap();
    let report = check([server.data_dir()]).report();
    let stale = Finding::file("ibdata1", "damage", "stale");
    assert!(report.serious().contains(&stale), "{:#}", report.json);
}
