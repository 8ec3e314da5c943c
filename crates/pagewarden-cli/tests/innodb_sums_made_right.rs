//! Wounds to InnoDB's pages after which the sum is made right again, as a fault of memory or of a
//! server would leave them. Beside us the server looks at the same wounds: `CHECK TABLE ... EXTENDED`
//! on a copy. A server that ends while it looks has seen something, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::formats::innodb::checksum::{crc32, full_crc32, zip_crc32};
use pagewarden_scratch::any_mysql::{Installation, Server};

use crate::damage::Dice;
use crate::runner::check;

/// Each has one wound at a time.
const TABLES: usize = 20;
const ROWS: usize = 3000;
const VERSIONS: [&str; 3] = ["mysql", "mariadb", "mariadb-11.8"];
const PAGE: usize = 16_384;
const ZIP_PAGE: usize = 8192;
const INDEX: u16 = 17_855;

/// The form of a table's rows.
fn form(table: usize) -> &'static str {
    ["DYNAMIC", "COMPACT", "REDUNDANT", "COMPRESSED KEY_BLOCK_SIZE=8", "DYNAMIC"][table % 5]
}

fn is_zip(table: usize) -> bool {
    table % 5 == 3
}

/// Most of its rows are in the second of two partitions, and the wounds too.
fn has_partitions(table: usize) -> bool {
    table % 10 == 9
}

/// The file that gets the wounds, below the data directory.
fn file(root: &Path, table: usize) -> String {
    let endings: &[&str] = if has_partitions(table) { &["#p#p1", "#P#p1"] } else { &[""] };
    let names = endings.iter().map(|ending| format!("w/t{table:02}{ending}.ibd"));
    names.into_iter().find(|name| root.join(name).exists()).unwrap()
}

fn page_bytes(table: usize) -> usize {
    if is_zip(table) { ZIP_PAGE } else { PAGE }
}

/// What a wound changes: one bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Links,
    PageHeader,
    Directory,
    RecordHeader,
    RecordKey,
    RecordBody,
    NodePointer,
    Extents,
    Segments,
    LongValue,
}

impl Place {
    const ALL: [Self; 10] = [
        Self::Links,
        Self::PageHeader,
        Self::Directory,
        Self::RecordHeader,
        Self::RecordKey,
        Self::RecordBody,
        Self::NodePointer,
        Self::Extents,
        Self::Segments,
        Self::LongValue,
    ];

    fn is_on(self, number: usize, page: &[u8]) -> bool {
        let of_index = u16_at(page, 24) == INDEX && u16_at(page, 54) > 1;
        let level = u16_at(page, 64);
        match self {
            Self::Extents => number == 0,
            Self::Segments => number == 2,
            Self::LongValue => matches!(u16_at(page, 24), 10..=12 | 22..=29),
            Self::NodePointer => of_index && level > 0,
            Self::RecordKey | Self::RecordBody => of_index && level == 0,
            _ => of_index,
        }
    }

    /// Changes one bit of such a page.
    fn inflict(self, dice: &mut Dice, page: &mut [u8]) -> String {
        let records = records(page);
        let record = *records.get(dice.within(0..records.len().max(1))).unwrap_or(&200);
        let slots = usize::from(u16_at(page, 38)).clamp(2, 400);
        let heap_top = usize::from(u16_at(page, 40)).clamp(200, page.len() - 16);
        let is_zip = page.len() == ZIP_PAGE;
        let bytes = match self {
            Self::Links => 8..16,
            Self::PageHeader => 38..74,
            Self::Directory if is_zip => page.len() - 400..page.len(),
            Self::Directory => page.len() - 8 - 2 * slots..page.len() - 8,
            Self::RecordHeader | Self::RecordKey | Self::RecordBody if is_zip => 94..page.len(),
            Self::RecordHeader => record - 5..record,
            Self::RecordKey => record..record + 8,
            Self::RecordBody => 120..heap_top,
            Self::NodePointer if is_zip => page.len() - 60..page.len(),
            Self::NodePointer => record..record + 8,
            Self::Extents => 38..150 + 3 * 40,
            Self::Segments => 38..50 + 4 * 192,
            Self::LongValue if u16_at(page, 24) == 10 => 38..46,
            Self::LongValue if u16_at(page, 24) == 23 => 38..49,
            Self::LongValue if matches!(u16_at(page, 24), 11 | 12 | 26) => 38..page.len() - 8,
            Self::LongValue if u16_at(page, 24) > 24 => 38..136 + 2 * 66,
            Self::LongValue => 38..96 + 60,
        };
        let (at, bit) = (dice.within(bytes), dice.within(0..8));
        page[at] ^= 1 << bit;
        format!("bit {bit} of byte {at}, type {}", u16_at(page, 24))
    }
}

fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(page[at..at + 2].try_into().unwrap())
}

/// Where the records of a page begin, in their order, as far as the page is no compressed one.
fn records(page: &[u8]) -> Vec<usize> {
    if u16_at(page, 24) != INDEX || page.len() == ZIP_PAGE {
        return Vec::new();
    }
    let is_compact = u16_at(page, 42) >> 15 == 1;
    let mut at = if is_compact { 99 } else { 101 };
    let mut found = Vec::new();
    while found.len() < 2000 {
        let next = u16_at(page, at - 2);
        at = if is_compact { (at + usize::from(next)) & 0xFFFF } else { usize::from(next) };
        if at < 120 || at + 8 > page.len() {
            break;
        }
        found.push(at);
    }
    found
}

/// As a server would have written it.
fn make_right(page: &mut [u8], flags: u32) {
    let length = page.len();
    if length == ZIP_PAGE {
        let sum = zip_crc32(page);
        page[..4].copy_from_slice(&sum.to_be_bytes());
    } else if flags & 1 << 4 != 0 {
        let sum = full_crc32(page);
        page[length - 4..].copy_from_slice(&sum.to_be_bytes());
    } else {
        let sum = crc32(page).to_be_bytes();
        page[..4].copy_from_slice(&sum);
        page[length - 8..length - 4].copy_from_slice(&sum);
    }
}

/// One wound to a table's file.
fn wound(dice: &mut Dice, path: &Path, table: usize, place: Place) -> Option<String> {
    let mut bytes = fs::read(path).unwrap();
    let size = page_bytes(table);
    let flags = u32::from_be_bytes(bytes[54..58].try_into().unwrap());
    let pages = bytes.chunks_exact(size).enumerate();
    let those: Vec<_> = pages
        .filter(|(number, page)| place.is_on(*number, page))
        .map(|(number, _)| number)
        .collect();
    if those.is_empty() {
        return None;
    }
    let number = those[dice.within(0..those.len())];
    let page = &mut bytes[number * size..][..size];
    let what = place.inflict(dice, page);
    make_right(page, flags);
    fs::write(path, bytes).unwrap();
    Some(format!("page {number}, {what}"))
}

/// The tables, stopped cleanly.
fn server_with_tables(installation: &Installation) -> Server {
    let mut server = Server::install(installation, &[]).unwrap();
    server.start().unwrap();
    let mut sql = String::from(
        "CREATE DATABASE w; USE w; SET group_concat_max_len = 1000000;
         CREATE TABLE one (id INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO one VALUES (0);\n",
    );
    for step in (0..12).map(|power| 1 << power) {
        sql.push_str(&format!("INSERT INTO one SELECT id + {step} FROM one;\n"));
    }
    for table in 0..TABLES {
        let form = form(table);
        let (unique, partitions) = match has_partitions(table) {
            true => (
                "big, id",
                "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (200), \
                 PARTITION p1 VALUES LESS THAN MAXVALUE)",
            ),
            false => ("big", ""),
        };
        sql.push_str(&format!(
            "CREATE TABLE t{table:02} (id INT PRIMARY KEY, word VARBINARY(60), name VARCHAR(40),
               big BIGINT NOT NULL, doc LONGBLOB, KEY (word), KEY (name), UNIQUE KEY ({unique}))
               ENGINE=InnoDB ROW_FORMAT={form} STATS_AUTO_RECALC=0 {partitions};
             INSERT INTO t{table:02} SELECT id, CONCAT(HEX(CRC32(id * 7)), HEX(CRC32(id)), REPEAT('y', id % 17)), CONCAT('name ', id), id * 77777777777,
               IF(id % 200 = 0, REPEAT(HEX(CRC32(id)), 6000), NULL) FROM one WHERE id < {ROWS};
             DELETE FROM t{table:02} WHERE id % 17 = 0;
             UPDATE t{table:02} SET word = REVERSE(word) WHERE id % 5 = 0;\n"
        ));
        // What does not get small, so that its parts have pages.
        if is_zip(table) {
            sql.push_str(&format!(
                "UPDATE t{table:02} t SET doc = (SELECT GROUP_CONCAT(SHA2(CONCAT(t.id, '-', one.id), 512) SEPARATOR '')
                   FROM one WHERE one.id < 2500) WHERE id % 500 = 0;\n"
            ));
        }
        if table % 5 == 4 {
            sql.push_str(&format!(
                "ALTER TABLE t{table:02} ADD COLUMN extra INT DEFAULT 7, ALGORITHM=INSTANT;
                 UPDATE t{table:02} SET extra = id WHERE id % 3 = 0;\n"
            ));
        }
    }
    server.sql(&sql).unwrap();
    server.stop().unwrap();
    server
}

/// The tables that have a finding.
fn named(root: &Path, options: &[&str]) -> Vec<bool> {
    let arguments = options.iter().map(AsRef::as_ref).chain([root.as_os_str()]);
    let found = check(arguments).report().serious();
    let is_named = |table: usize| {
        let file = file(root, table);
        found.iter().any(|finding| finding.file == file)
    };
    (0..TABLES).map(is_named).collect()
}

/// True if each line of the answer ends with OK; `None` if there is none.
fn says_ok(server: &Server, sql: &str) -> Option<bool> {
    let mut client = server.client().ok()?;
    client.arg("--execute").arg(sql).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = client.spawn().unwrap();
    let begin = Instant::now();
    // A list that leads back to itself is walked for ever.
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(output.status.success() && text.lines().all(|line| line.ends_with("\tOK")))
}

/// The tables of which the server says anything, or on which it ends.
fn named_by_server(server: &mut Server) -> Vec<bool> {
    let mut named = Vec::new();
    for table in 0..TABLES {
        if !server.is_running() {
            server.kill();
            // It loads pages when it starts, and ends on some.
            if server.start().is_err() {
                named.push(true);
                continue;
            }
        }
        let is_sound = says_ok(server, &format!("CHECK TABLE w.t{table:02} EXTENDED"));
        if is_sound.is_none() {
            server.kill();
        }
        named.push(is_sound != Some(true));
    }
    server.kill();
    named
}

/// `PAGEWARDEN_WOUNDS` an engine (1,000). Prints how many of each place were found by us, by
/// `--structure`, and by `CHECK TABLE ... EXTENDED`.
#[test]
#[ignore = "takes minutes"]
fn wounds_with_right_sums_are_found_beside_check_table() {
    let wanted = std::env::var("PAGEWARDEN_WOUNDS").ok().and_then(|text| text.parse().ok());
    for version in VERSIONS {
        campaign(version, wanted.unwrap_or(1000));
    }
}

/// The same with one wound in each table.
#[test]
fn innodb_structure_finds_no_less_than_check_table() {
    for version in VERSIONS {
        campaign(version, TABLES);
    }
}

fn campaign(version: &'static str, wanted: usize) {
    let chosen = std::env::var("PAGEWARDEN_MATRIX").unwrap_or_default();
    if !chosen.is_empty() && !chosen.split_whitespace().any(|one| one == version) {
        return;
    }
    let Some(installation) = Installation::find(version) else {
        eprintln!("SKIPPED: no {version}: cargo xtask servers {version}");
        return;
    };
    let mut dice = Dice::seeded();
    let mut sound = server_with_tables(&installation);
    let arguments = ["--structure".into(), sound.data_dir().into_os_string()];
    let report = check(arguments).report();
    assert_eq!(report.verdict(), "intact", "{:#?}", report.raw_findings());
    let details = report.details();
    assert!(!details.iter().any(|one| one.contains("columns")), "{details:?}");
    assert_eq!(named_by_server(&mut sound.duplicate().unwrap()), vec![false; TABLES]);
    let mut counts: BTreeMap<Place, [usize; 5]> = BTreeMap::new();
    for _ in 0..wanted.div_ceil(TABLES) {
        let mut copy = sound.duplicate().unwrap();
        let root = copy.data_dir();
        let mut places = Vec::new();
        for table in 0..TABLES {
            let path = root.join(file(&root, table));
            let (place, what) = loop {
                let place = Place::ALL[dice.within(0..Place::ALL.len())];
                if let Some(what) = wound(&mut dice, &path, table, place) {
                    break (place, what);
                }
            };
            places.push((place, format!("table {table} ({}), {what}", form(table))));
        }
        let by_default = named(&root, &[]);
        let by_structure = named(&root, &["--structure"]);
        let by_server = named_by_server(&mut copy);
        for (table, (place, what)) in places.iter().enumerate() {
            let count = counts.entry(*place).or_default();
            let is_missed = by_server[table] && !by_structure[table];
            let found = [true, by_default[table], by_structure[table], by_server[table], is_missed];
            if is_missed {
                println!("found by the server alone: {place:?}, {what}");
            }
            count.iter_mut().zip(found).for_each(|(count, found)| *count += usize::from(found));
        }
    }
    let mut all = [0; 5];
    println!("{version}: place, wounds, by default, --structure, CHECK TABLE, by it alone");
    for (place, count) in &counts {
        println!("{place:?} {count:?}");
        all.iter_mut().zip(count).for_each(|(all, count)| *all += count);
    }
    println!("all {all:?}");
    assert!(all[2] >= all[3], "{version}: {all:?}");
}
