//! A real MariaDB as the judge: which pages it takes, that it is kept away, and that it reads
//! everything in whatever an interrupted run leaves.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use pagewarden_scratch::mariadb::{Installation, Server};

use super::{Sum, image, put, request, run, run_on, server_accepts, stamp};
use crate::checksum::fold::{new_fold, old_fold};
use crate::checksum::{NO_CHECKSUM_MAGIC, crc32, zip_adler32, zip_crc32};
use crate::page::fields::read_u32;
use crate::protect::lock::Locks;
use pagewarden_core::testing::recorder::{
    Change, Dice, Hasty, Image, Recorder, Remains, in_memory, let_journal_name_these_files,
    one_thread,
};
use pagewarden_core::verdict::Protection;

const PAGE: usize = 16_384;
const ZIP: usize = 8192;
const OPTIONS: &[&str] = &["innodb_checksum_algorithm=crc32", "innodb_log_file_size=4M"];

/// Tables of every form that can be changed, and one of `full_crc32`.
const TABLES: &str = "CREATE DATABASE shop; USE shop;
    CREATE TABLE plain (id INT PRIMARY KEY, word VARCHAR(60), body VARCHAR(300), KEY (word)) ENGINE=InnoDB;
    INSERT INTO plain SELECT seq, MD5(seq), REPEAT(MD5(seq * 7), 9) FROM seq_1_to_4000;
    CREATE TABLE zip ENGINE=InnoDB ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8 AS SELECT * FROM plain;
    CREATE TABLE old ENGINE=InnoDB ROW_FORMAT=REDUNDANT AS SELECT * FROM plain WHERE id < 900;
    CREATE TABLE squeezed ENGINE=InnoDB PAGE_COMPRESSED=1 AS SELECT * FROM plain WHERE id < 900;
    SET GLOBAL innodb_checksum_algorithm=full_crc32;
    CREATE TABLE full ENGINE=InnoDB AS SELECT * FROM plain WHERE id < 900;
    SET GLOBAL innodb_checksum_algorithm=crc32;
    DELETE FROM plain WHERE id % 5 = 0;";
const NAMES: [&str; 5] = ["plain", "zip", "old", "squeezed", "full"];

/// A stopped server with these tables.
fn stopped() -> Option<Server> {
    let installation = Installation::for_test().unwrap()?;
    let mut server = Server::install(&installation, OPTIONS).unwrap();
    server.start().unwrap();
    server.sql(TABLES).unwrap();
    server.stop().unwrap();
    Some(server)
}

/// What the server says of all rows, when it has read every page of every table.
fn read_all(server: &mut Server) -> String {
    let before = server.log().len();
    server.start().unwrap();
    let mut sums = String::new();
    for name in NAMES {
        let found = server.sql(&format!("CHECK TABLE shop.{name} EXTENDED")).unwrap();
        assert!(found.ends_with("status\tOK"), "{found}\n{}", server.log());
        sums.push_str(&server.sql(&format!("CHECKSUM TABLE shop.{name} EXTENDED")).unwrap());
    }
    server.stop().unwrap();
    let log = server.log();
    let said = log.get(before..).unwrap_or_default().to_lowercase();
    assert!(!said.contains("corrupt") && !said.contains("checksum mismatch"), "{said}");
    sums
}

/// Gives pages with the sum `crc32` an older one, or none, by chance: what this server no longer
/// writes, and still reads.
fn make_old(root: &Path, dice: &mut Dice) -> u32 {
    let mut changed = 0;
    for (name, bytes) in image(root) {
        let name = name.to_str().unwrap().to_owned();
        let (Some(mut bytes), true) = (
            bytes,
            name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo"),
        ) else {
            continue;
        };
        let is_zip = name.ends_with("zip.ibd");
        for page in bytes.chunks_exact_mut(if is_zip { ZIP } else { PAGE }) {
            let sum = [Sum::Fold, Sum::None, Sum::Crc32][dice.below(3)];
            let is_sure = if is_zip {
                read_u32(page, 0) == zip_crc32(page)
            } else {
                let crc = crc32(page);
                (read_u32(page, 0), read_u32(page, PAGE - 8)) == (crc, crc)
            };
            if !is_sure || sum == Sum::Crc32 {
                continue;
            }
            changed += 1;
            match (is_zip, sum) {
                (true, Sum::Fold) => {
                    let sum = zip_adler32(page);
                    put(page, 0, &sum.to_be_bytes());
                }
                (true, _) => put(page, 0, &NO_CHECKSUM_MAGIC.to_be_bytes()),
                (false, sum) => stamp(page, sum),
            }
        }
        fs::write(root.join(name), bytes).unwrap();
    }
    changed
}

/// The server may run as another user.
fn give(folder: &Path, like: &fs::Metadata) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        std::os::unix::fs::chown(&folder, Some(like.uid()), Some(like.gid())).unwrap();
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                std::os::unix::fs::chown(entry.path(), Some(like.uid()), Some(like.gid())).unwrap();
            }
        }
    }
}

/// Puts other files in the place of the server's.
fn lay_out(server: &Server, remains: &Remains) {
    let root = server.data_dir();
    let like = fs::metadata(root).unwrap();
    fs::remove_dir_all(root).unwrap();
    fs::create_dir(root).unwrap();
    remains.lay_out(root);
    give(root, &like);
}

fn innochecksum_agrees(root: &Path) {
    let Ok(help) = Command::new("innochecksum").arg("--help").output() else { return };
    assert!(help.status.success());
    for name in NAMES {
        let path = root.join(format!("shop/{name}.ibd"));
        let output = Command::new("innochecksum").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", path.display());
    }
}

/// The table in the documentation of the engine, each row.
#[test]
fn server_takes_no_page_of_which_one_field_alone_is_crc32() {
    let Some(mut server) = stopped() else { return };
    let path = server.data_dir().join("shop/old.ibd");
    let good = fs::read(&path).unwrap();
    let none = |_: &[u8]| NO_CHECKSUM_MAGIC;
    type Field = fn(&[u8]) -> u32;
    let combinations: [(Field, Field, bool); 9] = [
        (crc32, crc32, true),
        (new_fold, old_fold, true),
        (none, none, true),
        (new_fold, none, true),
        (none, old_fold, true),
        (crc32, old_fold, false),
        (crc32, none, false),
        (new_fold, crc32, false),
        (none, crc32, false),
    ];
    for (first, second, is_sound) in combinations {
        let mut bytes = good.clone();
        for page in
            bytes.chunks_exact_mut(PAGE).skip(3).filter(|page| page.iter().any(|it| *it != 0))
        {
            let sum = first(page);
            put(page, 0, &sum.to_be_bytes());
            let sum = second(page);
            put(page, PAGE - 8, &sum.to_be_bytes());
            assert_eq!(server_accepts(page, false), is_sound);
        }
        fs::write(&path, &bytes).unwrap();
        server.start().unwrap();
        let found = server.sql("CHECK TABLE shop.old EXTENDED").unwrap_or_default();
        assert_eq!(found.ends_with("status\tOK"), is_sound, "{found}");
        // What it found it may have noted in the file.
        server.stop().unwrap();
        fs::write(&path, &good).unwrap();
    }
}

#[test]
fn no_server_starts_while_files_are_replaced() {
    let Some(mut server) = stopped() else { return };
    let locks = Locks::of_directory(server.data_dir()).unwrap();
    let error = server.start().unwrap_err().to_string();
    assert!(error.contains("Unable to lock ./ibdata1"), "{error}");
    assert_eq!(locks.release(), None);
    server.start().unwrap();
    assert!(Locks::of_directory(server.data_dir()).is_err());
    let error = run(&request(server.data_dir())).unwrap_err().to_string();
    assert!(error.contains("a server runs on it"), "{error}");
    server.stop().unwrap();
}

/// `PAGEWARDEN_KILLS` says at how many moments.
#[test]
fn server_reads_everything_after_a_kill_or_power_failure_at_any_change() {
    let Some(mut server) = stopped() else { return };
    let root = server.data_dir().to_owned();
    let rows = read_all(&mut server);
    let mut dice = Dice(17);
    assert!(make_old(&root, &mut dice) > 100);
    let before: Image = image(&root);
    assert_eq!(read_all(&mut server), rows, "the server reads the older sums");
    // It has changed what a server changes when it starts.
    lay_out(&server, &Remains::of(&before, &[], &mut dice));
    let recorder = Recorder::new(&root, usize::MAX, 0);
    let outcome = run_on(&recorder, &request(&root), &one_thread()).unwrap();
    assert!(outcome.pages.changed > 100, "{:?}", outcome.pages);
    let changes: Vec<Change> = recorder.changes.into_inner().unwrap().0;
    assert!(changes.len() >= 200, "{} moments", changes.len());
    assert_eq!(read_all(&mut server), rows);
    let moments = std::env::var("PAGEWARDEN_KILLS").ok().and_then(|text| text.parse().ok());
    for _ in 0..moments.unwrap_or(3_usize) {
        let end = dice.below(changes.len() + 1);
        let remains = Remains::of(&before, &changes[..end], &mut dice);
        lay_out(&server, &remains);
        assert_eq!(read_all(&mut server), rows, "after {end} of {}", changes.len());
        // The same state, where no server was started: the same command finishes.
        lay_out(&server, &remains);
        let_journal_name_these_files(&root);
        let outcome = run_on(&Hasty, &request(&root), &one_thread()).unwrap();
        assert_eq!((outcome.after, outcome.pages.damaged), (Protection::Checksum, 0));
        innochecksum_agrees(&root);
        assert_eq!(read_all(&mut server), rows, "finished after {end}");
    }
}

/// Every moment, judged by the server's rule: no page is anything that it refuses.
#[test]
fn server_would_accept_every_page_at_every_moment() {
    let Some(server) = stopped() else { return };
    let root = server.data_dir().to_owned();
    let mut dice = Dice(23);
    make_old(&root, &mut dice);
    let before: Image = image(&root);
    let recorder = Recorder::new(&root, usize::MAX, 0);
    run_on(&recorder, &request(&root), &one_thread()).unwrap();
    let changes: Vec<Change> = recorder.changes.into_inner().unwrap().0;
    let after = image(&root);
    let moments = std::env::var("PAGEWARDEN_KILLS").ok().and_then(|text| text.parse().ok());
    let moments = moments.map_or(20, |kills: usize| (kills * 10).max(20));
    for at in 0..moments {
        let end = at * changes.len() / moments;
        let folder = in_memory();
        Remains::of(&before, &changes[..end], &mut dice).lay_out(folder.path());
        for (name, now) in image(folder.path()) {
            let (Some(now), Some(old)) = (&now, before.get(&name)) else { continue };
            let is_whole = old.as_ref() == Some(now) || after[&name].as_ref() == Some(now);
            assert!(is_whole, "{} after {end}", name.display());
        }
    }
    // And both of these are what a server accepts.
    for image in [&before, &after] {
        for name in ["shop/plain.ibd", "shop/old.ibd", "shop/zip.ibd"] {
            let is_zip = name.ends_with("zip.ibd");
            let bytes = image[Path::new(name)].as_ref().unwrap();
            let mut pages = bytes.chunks_exact(if is_zip { ZIP } else { PAGE });
            assert!(pages.all(|page| server_accepts(page, is_zip)), "{name}");
        }
    }
}
