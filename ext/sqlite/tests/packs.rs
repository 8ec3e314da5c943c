//! Databases read out of packs: the same answers as from the plain file, no writes, and damage that
//! names its page.

use std::fs;

use pagewarden::pack::{Content, Strays};
use pagewarden::pack::{Method, train};

use crate::packing::{pack, pack_delta, pack_with_others, settings};
use crate::shell::{self, Folder, Random};

const PAGE: usize = 4096;

/// A table with rows of all lengths, indexes, blobs over many pages, and free pages.
fn fill(folder: &Folder, name: &str, page_bytes: usize, first: &str, plain: bool) {
    let script = format!(
        "PRAGMA page_size={page_bytes}; {first}
        CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB, d REAL);
        WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<3000)
        INSERT INTO t SELECT v, hex(v*v*7919)||v%7, zeroblob(v%90*v%50)||hex(v), v/3.0 FROM n;
        CREATE INDEX tb ON t(b); CREATE INDEX td ON t(d, a);
        CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
        INSERT INTO w SELECT 'key '||a, b FROM t WHERE a%3=0;
        INSERT INTO t VALUES(100000, 'long', zeroblob(300000), NULL);
        CREATE VIEW x AS SELECT * FROM t JOIN w ON w.v=t.b;
        DELETE FROM t WHERE a BETWEEN 1200 AND 1500;"
    );
    let output = if plain { folder.run_plain(name, &script) } else { folder.run(name, &script) };
    assert_eq!(output.errors, "", "{first}");
}

/// Whatever a reader may ask: scans, lookups, indexes, sorting, joins, and what SQLite thinks of it.
const QUERIES: &str = "SELECT * FROM t; SELECT count(*), sum(length(c)), avg(d) FROM t;
    SELECT a, d FROM t INDEXED BY td WHERE d BETWEEN 100 AND 130 ORDER BY d DESC;
    SELECT count(*) FROM x; SELECT * FROM w WHERE k > 'key 27' LIMIT 9;
    SELECT b FROM t WHERE b LIKE '%99%' ORDER BY b; SELECT hex(c) FROM t WHERE a=777;
    SELECT group_concat(a) FROM (SELECT a FROM t ORDER BY c, a LIMIT 300);
    SELECT length(c), substr(c, 250000, 5) IS NULL FROM t WHERE a=100000;
    PRAGMA integrity_check; PRAGMA page_count; PRAGMA page_size; PRAGMA freelist_count;
    SELECT name, sql FROM sqlite_master;";

fn lookups(random: &mut Random) -> String {
    let one = |random: &mut Random| {
        let key = random.below(3100);
        format!("SELECT * FROM t WHERE a={key}; SELECT v FROM w WHERE k='key {key}';\n")
    };
    (0..60).map(|_| one(random)).collect()
}

#[test]
fn every_query_answers_the_same_from_a_pack_and_a_plain_file() {
    if !shell::is_there() {
        return;
    }
    let mut random = Random(0x9ac4);
    let firsts =
        ["", "PRAGMA auto_vacuum=FULL;", "PRAGMA journal_mode=WAL;", "PRAGMA encoding='UTF-16le';"];
    let methods = [Method::Zstd(3), Method::Lz4, Method::Raw];
    for (turn, page_bytes) in [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536]
        .into_iter()
        .cycle()
        .take(16)
        .enumerate()
    {
        let (first, method) = (firsts[turn % 4], methods[turn % 3]);
        let block_bytes = 4096 << (2 * ((turn + turn / 8) % 5));
        let plain = turn % 2 == 0;
        let what = format!("{page_bytes} {first} {method:?} {block_bytes} plain {plain}");
        let folder = Folder::new();
        fill(&folder, "x.db", page_bytes, first, plain);
        let mut settings = settings(block_bytes, method);
        if block_bytes < 65_536 {
            let content = Content::list(&folder.path("x.db"), Strays::Refused).unwrap();
            settings.dictionary = train(&content, block_bytes).unwrap();
        }
        pack(&folder.path("x.db"), &folder.path("x.pwk"), settings);
        let queries = format!("{QUERIES}{}", lookups(&mut random));
        let expected = folder.run_plain("file:x.db?immutable=1", &queries);
        assert!(expected.rows.contains("\nok\n") && expected.errors.is_empty(), "{what}");
        let others = [
            "?mode=ro&pack_cache_mib=0",
            "?cache=shared&pack_cache_mib=200",
            "?file=x.db",
            "?immutable=1&nolock=1",
        ];
        for suffix in ["", others[turn / 2 % 4]] {
            let rows = folder.rows(&format!("x.pwk{suffix}"), &queries);
            assert!(rows == expected.rows, "{what} {suffix}");
        }
        let setting = folder.rows("x.pwk", "PRAGMA page_verify;");
        assert_eq!(setting, if plain { "NONE\n" } else { "CHECKSUM\n" }, "{what}");
    }
}

#[test]
fn nothing_is_written_to_a_pack_nor_beside_it() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    fill(&folder, "x.db", PAGE, "", false);
    pack(&folder.path("x.db"), &folder.path("x.pwk"), settings(16_384, Method::Zstd(1)));
    fs::remove_file(folder.path("x.db")).unwrap();
    let before = folder.read("x.pwk");
    for statement in [
        "INSERT INTO t(b) VALUES(1)",
        "UPDATE t SET b=2 WHERE a=5",
        "DELETE FROM w",
        "CREATE TABLE y(a)",
        "VACUUM",
        "PRAGMA user_version=5",
        "PRAGMA page_verify=NONE",
        "REINDEX",
    ] {
        let output = folder.run("x.pwk?mode=rw", &format!("{statement};"));
        let errors = output.errors.to_lowercase();
        assert!(
            errors.contains("readonly") || errors.contains("read-only"),
            "{statement} {output:?}"
        );
    }
    let script = "PRAGMA journal_mode=WAL; PRAGMA locking_mode=EXCLUSIVE; BEGIN; \
        SELECT count(*) FROM t; COMMIT; PRAGMA wal_checkpoint; CREATE TEMP TABLE m AS SELECT * FROM \
        w; SELECT count(*) FROM m; VACUUM INTO 'copy.db';";
    let rows = folder.rows("x.pwk", script);
    assert!(rows.contains("2700\n") && rows.ends_with("1000\n"), "{rows}");
    assert_eq!(folder.run_plain("copy.db", "SELECT count(*) FROM t;").rows, "2700\n");
    assert_eq!(folder.read("x.pwk"), before);
    let mut names: Vec<_> = fs::read_dir(folder.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["copy.db", "x.pwk"]);
}

#[test]
fn packs_are_attached_beside_a_database_that_is_written() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    for (year, marked) in [(2021, false), (2022, true), (2023, false)] {
        let name = format!("{year}.db");
        let script = format!(
            "CREATE TABLE sales(id INTEGER PRIMARY KEY, amount);
            WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v+1 FROM n WHERE v<5000)
            INSERT INTO sales SELECT v, v%100+{year} FROM n;"
        );
        let output =
            if marked { folder.run(&name, &script) } else { folder.run_plain(&name, &script) };
        assert_eq!(output.errors, "");
        let to = folder.path(&format!("{year}.pwk"));
        pack(&folder.path(&name), &to, settings(65_536, Method::Zstd(3)));
        fs::remove_file(folder.path(&name)).unwrap();
    }
    for journal in ["DELETE", "WAL"] {
        let script = format!(
            "PRAGMA journal_mode={journal}; CREATE TABLE {journal}_sales(year, id, amount);
            ATTACH 'file:2021.pwk?vfs=pagewarden' AS a; ATTACH 'file:2022.pwk?vfs=pagewarden' AS b;
            ATTACH 'file:2023.pwk?vfs=pagewarden' AS c;
            BEGIN; INSERT INTO {journal}_sales SELECT 2021, * FROM a.sales UNION ALL
            SELECT 2022, * FROM b.sales UNION ALL SELECT 2023, * FROM c.sales; COMMIT;
            SELECT count(*), sum(amount) FROM {journal}_sales;
            SELECT count(*) FROM {journal}_sales s JOIN b.sales o ON s.id=o.id AND s.amount=o.amount;
            PRAGMA b.page_verify; PRAGMA integrity_check;"
        );
        let rows = folder.rows("live.db", &script);
        let sum: u64 = [2021, 2022, 2023].map(|year| 5000 * year + 50 * 4950).iter().sum();
        let expected = format!("15000|{sum}\n5000\nCHECKSUM\nok\n");
        assert!(rows.ends_with(&expected), "{rows}");
        let output = folder.run(
            "live.db",
            "ATTACH 'file:2021.pwk?vfs=pagewarden' AS a;\nDELETE FROM a.sales;\n\
             CREATE TABLE IF NOT EXISTS y(a); INSERT INTO y VALUES(7); SELECT a FROM y LIMIT 1;",
        );
        assert!(output.errors.contains("readonly") && output.rows == "7\n", "{output:?}");
    }
    assert_eq!(folder.check("live.db").findings, []);
}

#[test]
fn one_of_several_databases_is_chosen_by_name() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    fs::create_dir_all(folder.path("all/old")).unwrap();
    folder.run_plain("all/a.db", "CREATE TABLE t AS SELECT 'of a' AS words;");
    folder.run_plain("all/old/b.db", "CREATE TABLE t AS SELECT 'of b' AS words;");
    folder.write("all/notes.txt", b"SQLite format: see elsewhere");
    let make = || {
        let settings = settings(16_384, Method::Lz4);
        let all = folder.path("all");
        pack_with_others(&folder.path("all/a.db"), &all, &folder.path("x.pwk"), settings);
    };
    make();
    const WORDS: &str = "SELECT words FROM t;";
    assert_eq!(folder.rows("x.pwk?file=a.db", WORDS), "of a\n");
    assert_eq!(folder.rows("x.pwk?file=old/b.db", WORDS), "of b\n");
    let refused = |name: &str| {
        let output = folder.run(name, WORDS);
        assert_eq!(output.rows, "", "{output:?}");
        assert!(output.errors.contains("unable to open database"), "{output:?}");
        output.errors
    };
    let errors = refused("x.pwk");
    assert!(errors.contains("several databases in it: a.db old/b.db; say which"), "{errors}");
    let errors = refused("x.pwk?file=c.db");
    assert!(errors.contains("there is no file c.db in it"), "{errors}");
    let errors = refused("x.pwk?file=a.db&pack_cache_mib=1G");
    assert!(errors.contains("pack_cache_mib is a number of mebibytes, not 1G"), "{errors}");
    let output = folder.run("x.pwk?file=notes.txt", WORDS);
    assert!(output.errors.contains("not a database"), "{output:?}");

    fs::remove_file(folder.path("all/old/b.db")).unwrap();
    make();
    assert_eq!(folder.rows("x.pwk", WORDS), "of a\n");
    std::os::unix::fs::symlink(folder.path("x.pwk"), folder.path("all.db")).unwrap();
    assert_eq!(folder.rows("all.db", WORDS), "of a\n", "a link, and another ending");

    // What SQLite would have to look at, too.
    folder.write("all/a.db-journal", &[0; 600]);
    folder.write("all/a.db-wal", &[0; 32]);
    make();
    assert_eq!(
        folder.rows("x.pwk", WORDS),
        "of a\n",
        "a journal that is over, a log without frames"
    );
    folder.write("all/a.db-journal", b"\xd9\xd5\x05\xf9 hot");
    make();
    let errors = refused("x.pwk");
    assert!(errors.contains("its rollback journal a.db-journal may have"), "{errors}");
    fs::remove_file(folder.path("all/a.db-journal")).unwrap();
    folder.write("all/a.db-wal", &[0; 5000]);
    make();
    assert!(refused("x.pwk").contains("its log a.db-wal may hold"));

    // Nothing that could be one.
    fs::remove_dir_all(folder.path("all")).unwrap();
    fs::create_dir(folder.path("all")).unwrap();
    folder.write("all/notes.txt", b"nothing");
    folder.write("all/more.txt", b"nothing either");
    folder.run_plain("elsewhere.db", "CREATE TABLE t(a);");
    let (elsewhere, all) = (folder.path("elsewhere.db"), folder.path("all"));
    pack_with_others(&elsewhere, &all, &folder.path("x.pwk"), settings(16_384, Method::Lz4));
    assert!(refused("x.pwk").contains("there is no SQLite database in it"));
}

/// A pack of what has changed since is read with the one that it builds on.
#[test]
fn delta_is_read_with_its_base_and_not_without() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    fill(&folder, "x.db", PAGE, "", true);
    let settings = settings(16_384, Method::Zstd(1));
    let (database, whole) = (folder.path("x.db"), folder.path("whole.pwk"));
    pack(&database, &whole, settings.clone());
    folder.run_plain("x.db", "UPDATE t SET b='new' WHERE a BETWEEN 700 AND 720;");
    pack_delta(&database, &whole, &folder.path("delta.pwk"), settings);
    assert!(folder.read("delta.pwk").len() * 3 < folder.read("whole.pwk").len());
    let expected = folder.run_plain("x.db", QUERIES);
    assert!(expected.rows.contains("|new|") && expected.rows.contains("\nok\n"));
    assert!(folder.rows("delta.pwk", QUERIES) == expected.rows);
    assert!(folder.rows("whole.pwk", QUERIES) != expected.rows);
    fs::remove_file(whole).unwrap();
    let output = folder.run("delta.pwk", "SELECT count(*) FROM t;");
    assert_eq!(output.rows, "", "{output:?}");
    assert!(output.errors.contains("which is not available; "), "{output:?}");
}

#[test]
fn pack_that_is_cut_or_no_pack_cannot_be_opened() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    fill(&folder, "x.db", PAGE, "", true);
    pack(&folder.path("x.db"), &folder.path("x.pwk"), settings(65_536, Method::Zstd(3)));
    let whole = folder.read("x.pwk");
    for length in [8, 100, whole.len() / 2, whole.len() - 1] {
        folder.write("x.pwk", &whole[..length]);
        let output = folder.run("x.pwk", "SELECT count(*) FROM t;");
        assert_eq!(output.rows, "", "{length}");
        assert!(output.errors.contains("it has no end"), "{length} {output:?}");
    }
    folder.write("x.pwk", &whole[..7]);
    let output = folder.run("x.pwk", "SELECT count(*) FROM t;");
    assert!(output.errors.contains("not a database"), "{output:?}");
}

/// With blocks stored as they are, the place of each page in the pack is known.
#[test]
fn damaged_block_is_an_error_that_names_the_page_and_lists_it() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    fill(&folder, "x.db", PAGE, "", true);
    pack(&folder.path("x.db"), &folder.path("x.pwk"), settings(4096, Method::Raw));
    let (plain, whole) = (folder.read("x.db"), folder.read("x.pwk"));
    const READ: &str = "SELECT a, b, hex(c) FROM t;";
    let sound = folder.rows("x.pwk", READ);
    let mut random = Random(0xdada);
    let mut seen = 0;
    for _ in 0..25 {
        let number = random.index(plain.len() / PAGE);
        let page = &plain[number * PAGE..][..PAGE];
        let Some(at) = whole.windows(PAGE).position(|bytes| bytes == page) else {
            assert!(page.iter().all(|byte| *byte == 0), "only pages of zeroes are not stored");
            continue;
        };
        let mut bytes = whole.clone();
        bytes[at + random.index(PAGE)] ^= 1 << random.below(8);
        folder.write("x.pwk", &bytes);
        let list = "SELECT file LIKE '%/x.pwk/x.db', page_id, event_type, kind, error_count > 0 FROM \
                    pagewarden_suspect_pages;";
        const NEXT: &str = "\nSELECT '--';\n";
        let script = format!("{READ}{NEXT}PRAGMA integrity_check;{NEXT}{list}");
        let output = folder.run("x.pwk", &script);
        let page = number + 1;
        if number == 0 {
            assert!(output.errors.contains("page 1 of "), "{output:?}");
            continue;
        }
        let parts: Vec<_> = output.rows.split("--\n").collect();
        let [rows, integrity, listed] = parts[..] else { panic!("page {page}: {output:?}") };
        assert!(sound.starts_with(rows), "page {page}: a row that was never written");
        if integrity == "ok\n" {
            // SQLite does not read free pages.
            assert_eq!((rows, listed), (sound.as_str(), ""), "page {page}");
            continue;
        }
        seen += 1;
        assert_eq!(listed, format!("1|{page}|2|checksum|1\n"));
        let words = format!("page {page} of ");
        assert!(
            output.errors.contains(&words) && output.errors.contains("x.pwk/x.db"),
            "{output:?}"
        );
        assert!(output.errors.contains("disk I/O error"), "{output:?}");
        let direct = folder.run("x.pwk", "PRAGMA page_verify_ignore=1; PRAGMA integrity_check;");
        assert!(!direct.rows.ends_with("ok\n"), "what fails its sum is never handed out");
    }
    assert!(seen >= 10, "{seen}");
}

/// Anywhere at all: sound rows, fewer rows and an error, or no database.
#[test]
fn flipped_byte_anywhere_gives_no_wrong_row() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    fill(&folder, "x.db", 1024, "", true);
    pack(&folder.path("x.db"), &folder.path("x.pwk"), settings(16_384, Method::Zstd(3)));
    let whole = folder.read("x.pwk");
    const READ: &str = "SELECT a, b, hex(c) FROM t; SELECT * FROM w; PRAGMA integrity_check;";
    let sound = folder.rows("x.pwk", READ);
    let mut random = Random(0xf1f1);
    let count = std::env::var("PAGEWARDEN_STATEMENTS").ok().and_then(|count| count.parse().ok());
    let mut errors = 0;
    for _ in 0..count.unwrap_or(80_usize).min(1000) {
        let at = random.index(whole.len());
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random.below(8);
        folder.write("x.pwk", &bytes);
        let output = folder.run("x.pwk", READ);
        // integrity_check tells of an error in a row of its own.
        let rows = output.rows.split("*** in database main").next().unwrap();
        let rows = rows.strip_suffix("Error: disk I/O error\n").unwrap_or(rows);
        assert!(sound.starts_with(rows), "byte {at}: {rows:.200}");
        assert!(rows == sound || !output.errors.is_empty(), "byte {at}: {output:?}");
        errors += usize::from(!output.errors.is_empty());
    }
    assert!(errors > 20, "{errors}");
}

/// A pack may hold damage that was there before it was made.
#[test]
fn markers_in_a_pack_are_verified_as_in_a_file() {
    if !shell::is_there() {
        return;
    }
    let folder = Folder::new();
    fill(&folder, "x.db", PAGE, "", false);
    let clean = folder.read("x.db");
    let last = clean.len() / PAGE;
    let mut bytes = clean.clone();
    // A blob's page, which SQLite would hand out as it is.
    let page =
        (2..last).rev().find(|page| bytes[page * PAGE + 4..][..4000].iter().all(|b| *b == 0));
    let page = page.unwrap();
    bytes[page * PAGE + 1000] ^= 0x10;
    folder.write("x.db", &bytes);
    pack(&folder.path("x.db"), &folder.path("x.pwk"), settings(65_536, Method::Zstd(3)));
    const READ: &str = "SELECT sum(length(hex(c))) FROM t;";
    let output = folder.run("x.pwk", READ);
    let number = page + 1;
    assert!(output.errors.contains(&format!("page {number} of ")), "{output:?}");
    assert!(output.errors.contains("bit 4 of byte 1000 is flipped"), "{output:?}");
    let script = format!(
        "PRAGMA page_verify_ignore=1; {READ}\n\
         SELECT page_id, kind FROM pagewarden_suspect_pages;"
    );
    let output = folder.run("x.pwk", &script);
    assert!(output.errors.contains("damaged, ignored"), "{output:?}");
    assert!(output.rows.ends_with(&format!("{number}|bit_flip\n")), "{output:?}");
}
