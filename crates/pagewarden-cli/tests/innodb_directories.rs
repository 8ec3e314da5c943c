//! Data directories of MariaDB: shut down, crashed, and damaged on purpose.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use pagewarden_scratch::mariadb::Server;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::mariadb_samples::{
    CHANGES, Shape, UNREAD_FORMATS, copy, inside, installation, listing, server, tables,
};
use crate::packs::json;
use crate::runner::{Finding, Report, check, pagewarden, run};

/// A server with tables that was shut down, as a copy of its files.
fn stopped(shape: Shape) -> Option<(TempDir, TempDir)> {
    let installation = installation()?;
    let (mut server, keys) = server(&installation, shape);
    server.start().unwrap();
    server.sql(&tables(shape)).unwrap();
    server.stop().unwrap();
    Some((copy(server.data_dir()), keys))
}

fn kill(server: &mut Server) {
    let pid = Pid::from_raw(server.pid().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    while server.is_running() {}
}

fn without_findings(report: &Report, what: &str) {
    assert_eq!(report.findings(), [], "{what}: {:?}", report.details());
    assert!(report.unread().is_empty(), "{what}: {:?}", report.unread());
    assert!(report.pages("ok") > 500, "{what}: {}", report.json);
}

fn state(report: &Report) -> String {
    report.target()["state"].as_str().unwrap_or_default().to_owned()
}

/// A checkpoint writes into the header how long the files will be, before all of their pages are
/// written: of a table that a killed server left open the files may be shorter than it says.
#[test]
fn aria_table_that_a_killed_server_left_open_is_not_truncated() {
    let Some(installation) = installation() else { return };
    let options = ["aria-checkpoint-interval=1"];
    let mut server = Server::install(&installation, &options).unwrap();
    let root = server.data_dir().to_owned();
    server.start().unwrap();
    let make = "CREATE DATABASE shop; CREATE TABLE shop.basket (id int PRIMARY KEY, v varchar(500), \
                KEY (v)) ENGINE=Aria TRANSACTIONAL=1; INSERT INTO shop.basket VALUES (0, 'a')";
    server.sql(make).unwrap();
    let rows: String = (0..400)
        .map(|turn| {
            let first = turn * 3000;
            format!(
                "INSERT INTO shop.basket SELECT {first} + seq, REPEAT(CHAR(65 + seq % 26), 400) FROM \
                 shop.seq_1_to_3000; DELETE FROM shop.basket WHERE id < {first};\n"
            )
        })
        .collect();
    let mut client = server.client();
    client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut client = client.spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    // The server is killed in the middle of it.
    let writer = thread::spawn(move || input.write_all(rows.as_bytes()).is_ok());
    const INDEX: &str = "basket.MAI";
    const DATA: &str = "basket.MAD";
    let (index, data) = (root.join("shop").join(INDEX), root.join("shop").join(DATA));
    let is_short = || {
        let header = fs::read(&index).unwrap();
        let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        header[24..26] != [0, 0] && number(97) > fs::metadata(&data).unwrap().len()
    };
    let pid = Pid::from_raw(server.pid().unwrap().try_into().unwrap()).unwrap();
    loop {
        assert!(client.try_wait().unwrap().is_none(), "the header never was ahead of its file");
        if is_short() {
            kill_process(pid, Signal::STOP).unwrap();
            if is_short() {
                break;
            }
            kill_process(pid, Signal::CONT).unwrap();
        }
    }
    kill(&mut server);
    client.wait().unwrap();
    writer.join().unwrap();
    assert!(is_short(), "nothing wrote to it any more");
    let apart = copy(&root.join("shop"));
    let alone = [INDEX, DATA].map(|name| apart.path().join("data").join(name));
    // Each of its files is a target.
    let outcome = check([apart.path()]);
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(!outcome.stdout.contains("\"severity\""), "{outcome:?}");
    let paths = [&root, &root.join("shop"), &index, &data];
    for path in paths.into_iter().chain(&alone) {
        let report = check([path]).report();
        assert_eq!(report.serious(), [], "{}: {:?}", path.display(), report.details());
        assert!(report.unread().is_empty(), "{}", path.display());
    }
    let said = check([&alone[1]]).report().json.to_string();
    assert!(said.contains("the server ended while this table was open"), "{said}");
}

#[test]
fn healthy_directories_of_every_shape_have_no_findings() {
    let Some(installation) = installation() else { return };
    for shape in Shape::chosen() {
        let (mut server, _keys) = server(&installation, shape);
        let root = server.data_dir().to_owned();
        server.start().unwrap();
        server.sql(&tables(shape)).unwrap();
        let outcome = check([&root]);
        let report = outcome.report();
        without_findings(&report, &format!("{shape:?}, in use"));
        assert_eq!(report.target()["live"], true);
        server.stop().unwrap();

        let before = listing(&root);
        let outcome = check([&root]);
        let report = outcome.report();
        without_findings(&report, &format!("{shape:?}, shut down"));
        // Without the key some pages of compressed and encrypted tables cannot be tested.
        let is_tested = report.pages("unverifiable") == 0;
        let expected = if is_tested { (Some(0), "intact") } else { (Some(2), "incomplete") };
        assert_eq!((outcome.status, report.verdict()), expected, "{shape:?}");
        assert_eq!(state(&report), "shut down cleanly");
        assert!(report.target()["engine"].as_str().unwrap().starts_with("MariaDB 10."));
        assert_eq!(report.target()["page_size"], shape.page());
        assert_eq!(listing(&root), before, "nothing was written");

        server.start().unwrap();
        server.sql(CHANGES).unwrap();
        kill(&mut server);
        let report = check([&root]).report();
        without_findings(&report, &format!("{shape:?}, crashed"));
        assert!(state(&report).contains("recovery has yet to run"), "{}", state(&report));
        // A file by itself is judged by the directory that it lies in.
        for file in ["shop/late.ibd", "shop/squeezed.ibd", "ibdata1", "undo001"] {
            if root.join(file).is_file() {
                let report = check([root.join(file)]).report();
                assert_eq!(report.findings(), [], "{shape:?}, {file}: {:?}", report.details());
                assert!(state(&report).contains("recovery has yet"), "{}", state(&report));
            }
        }
        // It was healthy.
        server.start().unwrap();
        assert_eq!(
            server.sql("CHECK TABLE shop.dynamic").unwrap().split('\t').next_back(),
            Some("OK")
        );
        server.stop().unwrap();
        without_findings(&check([&root]).report(), &format!("{shape:?}, recovered"));
    }
}

/// Of MyISAM, CSV and the like nothing can be tested: with those of users, a directory is not
/// called intact unless that is accepted; those of the server itself make no difference.
#[test]
fn tables_of_engines_without_a_reader_make_a_directory_incomplete() {
    let Some(installation) = installation() else { return };
    let (mut server, _keys) = server(&installation, Shape::USUAL);
    let root = server.data_dir().to_owned();
    let outcome = check([&root]);
    assert_eq!((outcome.status, outcome.report().verdict()), (Some(0), "intact"));
    server.start().unwrap();
    server.sql(UNREAD_FORMATS).unwrap();
    server.stop().unwrap();
    let outcome = check([&root]);
    let report = outcome.report();
    assert_eq!((outcome.status, report.verdict()), (Some(2), "incomplete"), "{:#}", report.json);
    assert_eq!(report.findings(), []);
    let notes = report.target()["notes"].to_string();
    assert!(notes.contains("4 files of tables not tested"), "{notes}");
    assert!(notes.contains("--accept-unverifiable"), "{notes}");
    let folder = check([root.join("lone")]);
    assert_eq!((folder.status, folder.report().verdict()), (Some(2), "incomplete"));
    let accepted = check(["--accept-unverifiable".as_ref(), root.as_os_str()]);
    assert_eq!((accepted.status, accepted.report().verdict()), (Some(0), "intact"));
    let text = run(pagewarden().arg("check").arg(&root));
    assert!(
        text.stdout.contains("4 files could not be tested without a key or a reader"),
        "{}",
        text.stdout
    );
}

/// Zeroed pages that no other page leads to: of rows and of indexes of Aria, of long values, of tables
/// in a compressed tablespace.
#[test]
fn zeroed_pages_that_only_a_map_has_in_use_are_found() {
    let Some((copy, _keys)) = stopped(Shape::USUAL) else { return };
    let root = inside(&copy);
    let wounds = [
        ("shop/aria_sums.MAD", 8192, 2..20),
        ("shop/aria_sums.MAI", 8192, 2..6),
        ("shop/squeezed.ibd", 16_384, 6..30),
    ];
    for (file, page, pages) in wounds {
        let path = root.join(file);
        let before = fs::read(&path).unwrap();
        // But those that were given back, which the server erases in a compressed tablespace.
        let pages: Vec<_> = pages
            .filter(|number| read_page(&path, page, *number).iter().any(|byte| *byte != 0))
            .collect();
        assert!(pages.len() > 3, "{file}: {pages:?}");
        for number in &pages {
            write_page(&path, *number, &vec![0; page]);
        }
        let report = check([&root]).report();
        let found: Vec<_> = report.serious().into_iter().map(|it| (it.file, it.page)).collect();
        let expected: Vec<_> =
            pages.into_iter().map(|number| (file.to_owned(), Some(number))).collect();
        assert_eq!(found, expected, "{:#}", report.json);
        fs::write(&path, &before).unwrap();
    }
}

fn flip(path: &Path, at: u64, bits: u8) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ bits], at).unwrap();
}

fn read_page(path: &Path, page: usize, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; page];
    fs::File::open(path).unwrap().read_exact_at(&mut bytes, number * page as u64).unwrap();
    bytes
}

fn write_page(path: &Path, number: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, number * bytes.len() as u64).unwrap();
}

/// As the server sums a page of `full_crc32`.
pub fn stamp(page: &mut [u8]) {
    let end = page.len() - 4;
    let sum = pagewarden::formats::innodb::checksum::full_crc32(page);
    page[end..].copy_from_slice(&sum.to_be_bytes());
}

/// What is planted into a copy, and what must come out.
struct Plant<'a> {
    what: &'a str,
    damage: &'a dyn Fn(&Path),
    expected: Vec<Finding>,
}

#[test]
fn damage_planted_in_a_stopped_directory_is_found_and_named() {
    const PAGE: usize = 16_384;
    let Some((copied, _keys)) = stopped(Shape::USUAL) else { return };
    let table = |root: &Path| root.join("shop/dynamic.ibd");
    let page = |number: u64, kind: &str| {
        Finding::page_at("shop/dynamic.ibd", number, number * PAGE as u64, "damage", kind)
    };
    let length = fs::metadata(table(&inside(&copied))).unwrap().len();
    let plants = [
        Plant {
            what: "a flipped bit",
            damage: &|root| flip(&table(root), 4 * PAGE as u64 + 999, 4),
            expected: vec![page(4, "bit_flip")],
        },
        Plant {
            what: "a zeroed page",
            damage: &|root| write_page(&table(root), 5, &[0; PAGE]),
            expected: vec![page(5, "zeroed")],
        },
        Plant {
            what: "a page in another's place",
            damage: &|root| write_page(&table(root), 6, &read_page(&table(root), PAGE, 5)),
            expected: vec![page(6, "misplaced")],
        },
        Plant {
            what: "a page of another table",
            damage: &|root| {
                let other = read_page(&root.join("shop/compact.ibd"), PAGE, 5);
                write_page(&table(root), 5, &other);
            },
            expected: vec![page(5, "misplaced")],
        },
        Plant {
            what: "a page from the future",
            damage: &|root| {
                let mut bytes = read_page(&table(root), PAGE, 5);
                let lsn: u64 = 1 << 50 | 77;
                bytes[16..24].copy_from_slice(&lsn.to_be_bytes());
                bytes[PAGE - 8..PAGE - 4].copy_from_slice(&77_u32.to_be_bytes());
                stamp(&mut bytes);
                write_page(&table(root), 5, &bytes);
            },
            expected: vec![page(5, "future_lsn")],
        },
        Plant {
            what: "a file that was cut",
            damage: &|root| {
                let file = fs::OpenOptions::new().write(true).open(table(root)).unwrap();
                file.set_len(length - 2 * PAGE as u64).unwrap();
            },
            expected: vec![page(length / PAGE as u64 - 2, "truncated")],
        },
        Plant {
            what: "a flipped bit in an Aria table",
            damage: &|root| flip(&root.join("shop/aria_sums.MAD"), 3 * 8192 + 500, 1),
            expected: vec![Finding::page("shop/aria_sums.MAD", 3, "damage", "bit_flip")],
        },
        Plant {
            what: "a flipped bit in an Aria index",
            damage: &|root| flip(&root.join("shop/aria_sums.MAI"), 8192 + 40, 1),
            expected: vec![Finding::page("shop/aria_sums.MAI", 1, "damage", "bit_flip")],
        },
        Plant {
            what: "half of an Aria table",
            damage: &|root| fs::remove_file(root.join("shop/aria_sums.MAD")).unwrap(),
            expected: vec![Finding::file("shop/aria_sums.MAD", "damage", "missing")],
        },
        Plant {
            what: "the log's header",
            damage: &|root| flip(&root.join("ib_logfile0"), 12, 1),
            expected: vec![Finding {
                offset: Some(0),
                ..Finding::file("ib_logfile0", "damage", "checksum")
            }],
        },
    ];
    for Plant { what, damage, expected } in plants {
        let root = copy(&inside(&copied));
        damage(&inside(&root));
        let outcome = check([inside(&root)]);
        let report = outcome.report();
        assert_eq!(report.findings(), expected, "{what}: {:?}", report.details());
        let is_damaged = expected.iter().any(|one| one.severity == "damage");
        assert_eq!(outcome.status, Some(i32::from(is_damaged)), "{what}");
        let first = &report.target()["findings"][0];
        if first["file"].as_str().unwrap().starts_with("shop/") {
            assert_eq!(first["database"], "shop", "{what}");
            let object = first["object"].as_str().unwrap();
            assert!(["shop.dynamic", "shop.aria_sums"].contains(&object), "{what}: {object}");
        }
    }
}

#[test]
fn names_of_tables_are_decoded() {
    let Some((copied, _keys)) = stopped(Shape::USUAL) else { return };
    let root = inside(&copied);
    flip(&root.join("odd@002dname/a@0020table.ibd"), 4 * 16_384 + 999, 4);
    flip(&root.join("shop/parts#P#p1.ibd"), 4 * 16_384 + 999, 4);
    let report = check([&root]).report();
    let found = report.target()["findings"].as_array().unwrap();
    let named: Vec<_> = found
        .iter()
        .map(|one| (one["database"].as_str().unwrap(), one["object"].as_str().unwrap()))
        .collect();
    assert_eq!(named, [("odd-name", "odd-name.a table"), ("shop", "shop.parts partition p1")]);
    // A folder by itself is judged by the directory around it.
    let report = check([root.join("shop")]).report();
    assert_eq!(state(&report), "shut down cleanly");
    assert_eq!(report.findings()[0].file, "parts#P#p1.ibd");
}

/// The doublewrite area's own header is on page 5; what is planted goes where a
/// server would have put it.
fn plant_copy(root: &Path, page: &[u8]) {
    write_page(&root.join("ibdata1"), 64 + 3, page);
}

#[test]
fn sound_copy_of_a_damaged_page_is_named_and_mends_it_after_a_crash() {
    const PAGE: usize = 16_384;
    let Some(installation) = installation() else { return };
    let (mut server, _keys) = server(&installation, Shape::USUAL);
    server.start().unwrap();
    server.sql(&tables(Shape::USUAL)).unwrap();
    server.stop().unwrap();
    let at_rest = copy(server.data_dir());
    server.start().unwrap();
    server.sql(CHANGES).unwrap();
    kill(&mut server);
    let crashed = copy(server.data_dir());

    // At rest a copy mends nothing by itself, but a repair can use it.
    let root = copy(&inside(&at_rest));
    let table = inside(&root).join("shop/compact.ibd");
    let sound = read_page(&table, PAGE, 4);
    plant_copy(&inside(&root), &sound);
    flip(&table, 4 * PAGE as u64 + 7000, 0xFF);
    let report = check([inside(&root)]).report();
    let found = Finding::page_at("shop/compact.ibd", 4, 4 * PAGE as u64, "damage", "checksum");
    assert_eq!(report.findings(), [found]);
    let hint = report.target()["findings"][0]["hint"].as_str().unwrap();
    assert!(hint.contains("a sound copy of this page is in ibdata1 at offset 1097728"), "{hint}");

    // Crashed: what was written last is newer than the checkpoint.
    let tear = |lsn_is_new: bool, with_copy: bool| {
        let root = copy(&inside(&crashed));
        // It was not touched since it was read: recovery does not make it anew.
        let table = inside(&root).join("shop/source.ibd");
        let mut page = read_page(&table, PAGE, 4);
        if lsn_is_new {
            let log = fs::read(inside(&root).join("ib_logfile0")).unwrap();
            let checkpoints =
                [4096, 8192].map(|at| u64::from_be_bytes(log[at..at + 8].try_into().unwrap()));
            let lsn = checkpoints.iter().max().unwrap() + 5;
            page[16..24].copy_from_slice(&lsn.to_be_bytes());
            page[PAGE - 8..PAGE - 4].copy_from_slice(&lsn.to_be_bytes()[4..]);
            stamp(&mut page);
        }
        if with_copy {
            plant_copy(&inside(&root), &page);
        }
        page[PAGE / 2..].fill(0x5A);
        write_page(&table, 4, &page);
        let outcome = check([inside(&root)]);
        let report = outcome.report();
        let severities: Vec<_> = report.findings().into_iter().map(|one| one.severity).collect();
        (severities, report.verdict().to_owned(), report.details().join(";"))
    };
    let (severities, verdict, details) = tear(true, true);
    assert_eq!((severities, verdict.as_str()), (vec!["notice".to_owned()], "intact"), "{details}");
    assert!(details.contains("recovery will take the sound copy in ibdata1"), "{details}");
    let (severities, verdict, details) = tear(true, false);
    assert_eq!((severities, verdict.as_str()), (vec!["damage".to_owned()], "damaged"), "{details}");
    // The server passes over copies from before the checkpoint.
    let (severities, _, details) = tear(false, true);
    assert_eq!(severities, ["damage"], "{details}");
}

#[test]
fn further_files_of_the_system_tablespace_continue_the_first() {
    let Some(installation) = installation() else { return };
    let options = ["innodb_data_file_path=ibdata1:12M;ibdata2:2M:autoextend"];
    let mut server = Server::install(&installation, &options).unwrap();
    server.start().unwrap();
    server
        .sql(
            "SET GLOBAL innodb_file_per_table=0; CREATE DATABASE shop; USE shop;
             CREATE TABLE t (id INT PRIMARY KEY, body VARCHAR(900)) ENGINE=InnoDB;
             INSERT INTO t SELECT seq, REPEAT(MD5(seq), 25) FROM seq_1_to_8000;",
        )
        .unwrap();
    server.stop().unwrap();
    let root = server.data_dir();
    let report = check([root]).report();
    without_findings(&report, "two files");
    flip(&root.join("ibdata2"), 20 * 16_384 + 900, 0xFF);
    let report = check([root]).report();
    let page = 12 * 64 + 20;
    let found = Finding::page_at("ibdata2", page, 20 * 16_384, "damage", "checksum");
    assert_eq!(report.findings(), [found]);
    // Without its second file.
    fs::remove_file(root.join("ibdata2")).unwrap();
    let report = check([root]).report();
    assert_eq!(report.findings()[0].kind, "truncated", "{:?}", report.findings());
    assert_eq!(report.findings()[0].severity, "damage");
}

#[test]
fn database_behind_a_link_is_packed_with_the_rest() {
    let Some(installation) = installation() else { return };
    let mut server = Server::install(&installation, &[]).unwrap();
    server.start().unwrap();
    server
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1)")
        .unwrap();
    server.stop().unwrap();
    let root = server.data_dir();
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = server.home().path().join("elsewhere");
    fs::rename(root.join("d"), &elsewhere).unwrap();
    symlink(&elsewhere, root.join("d")).unwrap();
    let pack = folder.path().join("x.pwk");
    assert_eq!(json("pack", &[root, Path::new("-o"), &pack], 0)["verdict"], "intact");
    let (to, new) = (folder.path().join("to"), folder.path().join("new"));
    let mapping = format!("{}={}", elsewhere.display(), new.display());
    json("unpack", &[&pack, &to, Path::new("-T"), Path::new(&mapping)], 0);
    assert_eq!(fs::read_link(to.join("d")).unwrap(), new);
    assert_eq!(fs::read(to.join("d/t.ibd")).unwrap(), fs::read(elsewhere.join("t.ibd")).unwrap());
    fs::remove_file(to.join("d/t.ibd")).unwrap();
    let outcome = check([&to]);
    let missing = Finding::file("d/t.ibd", "damage", "missing");
    assert_eq!(outcome.report().findings(), [missing]);
}

/// What has no pages, and what lies elsewhere: a server that lacks either does not read a table.
#[test]
fn definitions_and_tables_that_lie_elsewhere_belong_to_a_directory() {
    let Some(installation) = installation() else { return };
    let mut server = Server::install(&installation, &[]).unwrap();
    let elsewhere = server.home().path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o777)).unwrap();
    server.start().unwrap();
    let sql = format!(
        "CREATE DATABASE d; USE d;
         CREATE TABLE plain (id INT PRIMARY KEY) ENGINE=InnoDB;
         CREATE TABLE parts (id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 2;
         CREATE TABLE aria (id INT PRIMARY KEY) ENGINE=Aria;
         CREATE TABLE counted (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO counted VALUES (1), (2);
         CREATE TABLE away (id INT PRIMARY KEY) ENGINE=InnoDB DATA DIRECTORY='{}';
         INSERT INTO away VALUES (1);",
        elsewhere.display()
    );
    server.sql(&sql).unwrap();
    server.stop().unwrap();
    let root = server.data_dir();
    let look = || {
        let outcome = check(["--accept-unverifiable".as_ref(), root.as_os_str()]);
        (outcome.report().serious(), outcome.report().verdict().to_owned())
    };
    assert_eq!(look(), (vec![], "intact".to_owned()));
    let away = elsewhere.join("d/away.ibd");
    let shown = "d/away.ibd".to_owned();
    let in_root = |name: &str| (root.join(name), name.to_owned());
    for ((path, shown), change, severity, kind) in [
        (in_root("d/plain.frm"), "zeroed", "damage", "header"),
        (in_root("d/aria.frm"), "cut", "damage", "truncated"),
        (in_root("d/plain.frm"), "removed", "damage", "missing"),
        (in_root("d/aria.frm"), "removed", "suspect", "missing"),
        (in_root("d/parts.par"), "changed", "damage", "checksum"),
        (in_root("d/parts.par"), "removed", "damage", "missing"),
        (in_root("d/counted.MYD"), "cut", "damage", "truncated"),
        (in_root("d/counted.MYI"), "removed", "suspect", "missing"),
        ((away.clone(), shown.clone()), "changed", "damage", "bit_flip"),
        ((away, shown), "removed", "damage", "missing"),
    ] {
        let before = fs::read(&path).unwrap();
        let middle = before.len() / 2;
        match change {
            "zeroed" => fs::write(&path, vec![0; before.len()]).unwrap(),
            "cut" => fs::write(&path, &before[..middle]).unwrap(),
            "removed" => fs::remove_file(&path).unwrap(),
            // Of a tablespace the root of its index: one bit.
            _ if shown.ends_with(".ibd") => flip(&path, 3 * 16_384 + 100, 1),
            _ => flip(&path, 8, 1),
        }
        let (found, _) = look();
        let found: Vec<_> = found.iter().map(|it| (&*it.file, &*it.severity, &*it.kind)).collect();
        assert_eq!(found, [(&*shown, severity, kind)], "{change}");
        fs::write(&path, &before).unwrap();
    }
    assert_eq!(look(), (vec![], "intact".to_owned()));
}

/// A copy of a table's file beside it is of no use, and does no harm where a server goes by names.
#[test]
fn copy_of_a_table_that_the_dictionary_does_not_name_is_a_note() {
    let Some((copy, _keys)) = stopped(Shape::USUAL) else { return };
    let root = inside(&copy);
    for (from, to) in [("shop/dynamic.ibd", "shop/before.ibd"), ("shop/dynamic.ibd", "shop/zz.ibd")]
    {
        fs::copy(root.join(from), root.join(to)).unwrap();
        let report = check([&root]).report();
        assert_eq!((report.serious(), report.verdict()), (vec![], "intact"), "{:#}", report.json);
        let notes = report.target()["notes"].to_string();
        assert!(notes.contains(to) && notes.contains("that was left behind"), "{notes}");
        fs::remove_file(root.join(to)).unwrap();
    }
    // In the place of another table it is.
    fs::copy(root.join("shop/dynamic.ibd"), root.join("shop/compact.ibd")).unwrap();
    let found = check([&root]).report().serious();
    assert!(found.iter().any(|it| it.kind == "misplaced" && it.severity == "damage"), "{found:?}");
}

/// A server finds the tables that it has made since by none of its files but the lost one.
#[test]
fn system_tablespace_of_an_earlier_shutdown_is_stale() {
    let Some(installation) = installation() else { return };
    let mut server = Server::install(&installation, &[]).unwrap();
    let root = server.data_dir().to_owned();
    let system = root.join("ibdata1");
    let mut run_sql = |sql: &str| {
        server.start().unwrap();
        server.sql(sql).unwrap();
        server.stop().unwrap();
    };
    run_sql("CREATE DATABASE shop; CREATE TABLE shop.early (id int PRIMARY KEY) ENGINE=InnoDB");
    let earlier = fs::read(&system).unwrap();
    run_sql("CREATE TABLE shop.late (id int PRIMARY KEY) ENGINE=InnoDB");
    assert_eq!(check([&root]).report().findings(), []);
    fs::write(&system, earlier).unwrap();
    let report = check([&root]).report();
    // Before 10.6 a crash could leave the two behind.
    let is_atomic = !installation.version().unwrap().starts_with("10.5");
    let severity = if is_atomic { "damage" } else { "suspect" };
    assert_eq!(report.serious(), [Finding::file("shop/late.ibd", severity, "stale")]);
    // Files that wait to be imported are no damage.
    fs::write(root.join("shop/late.cfg"), "").unwrap();
    let expected = Finding::file("shop/late.ibd", "suspect", "stale");
    assert_eq!(check([&root]).report().serious(), [expected]);
}
