//! Wounds after which the page's sum is made right again, as a fault of memory or of a server
//! would leave it: what pages say of themselves and of one another must tell. Beside us the
//! server's own tool, `pg_amcheck`, looks at the same wounds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pagewarden::formats::postgres::page::Header;
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::clusters::{installations, sample};
use crate::damage::{Dice, PAGE, Wound, page_mut, stamp};
use crate::runner::{Finding, check};

/// Each table of the campaign has one wound at a time.
const TABLES: usize = 24;

/// Where the tuple of a line pointer begins, and its length.
fn tuple(page: &[u8], number: usize) -> (usize, usize) {
    let bits = u32::from_le_bytes(page[20 + number * 4..][..4].try_into().unwrap());
    ((bits & 0x7FFF) as usize, (bits >> 17) as usize)
}

/// Line pointers that lead to tuples.
fn tuples(page: &[u8]) -> Vec<usize> {
    let count = (usize::from(Header::read(page).unwrap().lower) - 24) / 4;
    let is_normal =
        |number: &usize| page[21 + number * 4] >> 7 == 1 && page[22 + number * 4] & 1 == 0;
    (1..=count).filter(is_normal).collect()
}

/// A change of one page that its own sum does not show.
type Change = fn(&mut [u8]);

fn change_word(page: &mut [u8], at: usize, change: impl Fn(u32) -> u32) {
    let word = u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    page[at..at + 4].copy_from_slice(&change(word).to_le_bytes());
}

#[test]
fn page_with_a_right_sum_that_no_server_writes_is_damage() {
    let changes: [(&str, u32, Change, &str); 11] = [
        ("item", 1, |page| page[tuple(page, 3).0 + 22] += 8, "row 3: its attributes begin at"),
        ("item", 1, |page| page[tuple(page, 3).0 + 3] |= 0x40, "row 3: its xmin is"),
        ("item", 1, |page| page[tuple(page, 3).0 + 18] += 16, "row 3: it has"),
        ("item", 1, |page| page[tuple(page, 3).0 + 19] |= 8, "row 3: t_infomask2 is"),
        (
            "item",
            1,
            |page| change_word(page, 32, |bits| bits & !0x7FFF | 64),
            "line pointer 3 leads to bytes 64",
        ),
        ("item_btree", 1, |page| page[32] ^= 8, "its line pointer 3 leads to"),
        ("item_btree", 1, |page| change_word(page, 8184, |_| 1), "it is a leaf of level 1"),
        ("item_btree", 1, |page| change_word(page, 8180, |next| next + 1), "its right neighbour"),
        ("item_btree", 2, |page| change_word(page, 8176, |_| 4), "its left neighbour is 4"),
        ("item_btree", 0, |page| change_word(page, 36, |level| level + 1), "by the metapage"),
        ("item_btree", 0, |page| change_word(page, 24, |magic| magic + 1), "magic number"),
    ];
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        for (name, block, change, words) in changes {
            let file = sample.file(name);
            let _wound = Wound::to(root.join(file)).change(|bytes| {
                change(page_mut(bytes, block));
                stamp(page_mut(bytes, block), block);
            });
            let report = check([root]).report();
            let found = report.serious();
            let what = format!("{}: {name} {words}", installation.version);
            assert!(
                report.details().iter().any(|one| one.contains(words)),
                "{what}: {:?}",
                report.details()
            );
            let is_structure = |one: &Finding| {
                one.file == file && one.kind == "structure" && one.severity == "damage"
            };
            assert!(found.iter().all(is_structure), "{what}: {found:?}");
            assert_eq!(report.verdict(), "damaged", "{what}");
        }
        assert_eq!(check([root]).report().verdict(), "intact", "{}", installation.version);
    }
}

/// The first block of a file that has a tuple for which `find` says yes, and its place there.
fn find_tuple(bytes: &[u8], find: impl Fn(&[u8]) -> bool) -> (u32, usize) {
    for (block, page) in (0_u32..).zip(bytes.chunks_exact(PAGE)) {
        let places = tuples(page).into_iter().map(|number| tuple(page, number));
        for (begin, length) in places {
            if find(&page[begin..begin + length]) {
                return (block, begin);
            }
        }
    }
    panic!("no such tuple");
}

/// Each is sound for itself; only the other files, or the order, tell.
#[test]
fn structure_tells_what_tables_and_indexes_say_of_each_other() {
    for installation in installations() {
        let version = &installation.version;
        let mut cluster =
            Cluster::init(&installation, &Options::default().with("autovacuum", "off")).unwrap();
        cluster.start().unwrap();
        cluster
            .psql(
                "CREATE TABLE goods (id int, name text COLLATE \"C\", doc text);
                 CREATE UNIQUE INDEX goods_id ON goods (id);
                 CREATE INDEX goods_name ON goods (name DESC);
                 CREATE INDEX goods_lower ON goods (lower(name));
                 CREATE INDEX goods_half ON goods (id) WHERE id % 2 = 0;
                 ALTER TABLE goods ALTER doc SET STORAGE EXTERNAL;
                 INSERT INTO goods SELECT i, 'name ' || i, CASE WHEN i = 7 THEN repeat('x', 9000) END
                     FROM generate_series(1, 3000) i;",
            )
            .unwrap();
        let path = |cluster: &mut Cluster, name: &str| {
            let path = cluster.relation_path("postgres", name).unwrap();
            path.strip_prefix(cluster.data_dir()).unwrap_or(&path).to_str().unwrap().to_owned()
        };
        let [heap, unique, name, lower, half] =
            ["goods", "goods_id", "goods_name", "goods_lower", "goods_half"]
                .map(|relation| path(&mut cluster, relation));
        let toast = cluster
            .psql(
                "SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 'goods'",
            )
            .unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir().to_owned();
        let older = [&name, &lower].map(|index| fs::read(root.join(index)).unwrap());
        cluster.start().unwrap();
        cluster.psql("INSERT INTO goods VALUES (0, 'aa'), (-1, 'bb')").unwrap();
        cluster.stop(StopMode::Fast).unwrap();

        let told = |options: &[&str]| {
            let arguments = options.iter().map(AsRef::as_ref).chain([root.as_os_str()]);
            check(arguments).report()
        };
        let report = told(&["--structure"]);
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");

        let key = |id: i32| move |entry: &[u8]| entry.get(8..12) == Some(&id.to_le_bytes()[..]);
        type Find = Box<dyn Fn(&[u8]) -> bool>;
        type Put = fn(&mut [u8]);
        let wounds: [(&str, Find, Put, &str, &str); 6] = [
            (
                &half,
                Box::new(key(1500)),
                |entry| entry[8..12].fill(1),
                "a smaller key than the one before it",
                &half,
            ),
            (
                &unique,
                Box::new(key(1500)),
                |entry| entry[8..12].fill(1),
                "a smaller key than the one before it",
                &unique,
            ),
            (
                &unique,
                Box::new(key(1500)),
                |entry| entry[8..12].copy_from_slice(&1499_i32.to_le_bytes()),
                "a unique index with one key for two rows",
                &unique,
            ),
            (
                &heap,
                Box::new(|row| row.ends_with(b"name 1500")),
                |row| row[24..28].fill(3),
                "its entries have other keys than the rows of 1 blocks of public.goods",
                &unique,
            ),
            (
                &toast,
                Box::new(|row| row.get(28..32) == Some(&[2, 0, 0, 0][..])),
                |row| row[28] = 9,
                "chunks are there, and the last is number 9",
                &heap,
            ),
            (
                &heap,
                Box::new(|row| row.ends_with(b"name 1500")),
                |row| row[28] = 0xFF,
                "column 2 does not fit into it",
                &heap,
            ),
        ];
        for (file, find, put, words, blamed) in &wounds {
            let _wound = Wound::to(root.join(file)).change(|bytes| {
                let (block, begin) = find_tuple(bytes, find);
                put(&mut page_mut(bytes, block)[begin..]);
                stamp(page_mut(bytes, block), block);
            });
            let report = told(&["--structure"]);
            let is_told = report.raw_findings().iter().any(|finding| {
                let detail = finding["detail"].as_str().unwrap();
                detail.contains(words)
                    && finding["file"] == **blamed
                    && finding["kind"] == "structure"
            });
            assert!(is_told, "{version}: {words}: {:?}", report.raw_findings());
            assert_eq!(report.verdict(), "damaged", "{version}: {words}");
        }
        // An older index, sound in itself, of columns and of an expression.
        for ((index, name), older) in
            [(&name, "goods_name"), (&lower, "goods_lower")].iter().zip(older)
        {
            let _wound = Wound::to(root.join(index)).write(&older);
            let report = told(&["--structure"]);
            let expected = Finding::file(index, "damage", "structure");
            assert_eq!(report.serious(), [expected], "{version}");
            let finding = &report.raw_findings()[0];
            let detail = finding["detail"].as_str().unwrap();
            assert!(detail.starts_with("it has no entry for 2 rows of public.goods"), "{detail}");
            assert_eq!(finding["object"], format!("public.{name}"), "{version}");
            let hint = finding["hint"].as_str().unwrap();
            assert!(hint.ends_with(&format!("REINDEX INDEX public.{name}")), "{hint}");
            let notes = report.target()["notes"].to_string();
            assert!(notes.contains("the computed keys of 1 index of expressions"), "{notes}");
            assert!(notes.contains("1 index of a part of the rows, but for the order"), "{notes}");
        }
    }
}

/// Columns that a table got with a default: what rows have that are older than them.
const LATER: [(&str, &str); 24] = [
    ("smallint", "-3"),
    ("int", "42"),
    ("bigint", "'-5'"),
    ("boolean", "true"),
    ("\"char\"", "'x'"),
    ("real", "0.1"),
    ("float8", "0.1"),
    ("numeric", "12345.6700"),
    ("text COLLATE \"C\"", "'new'"),
    ("text", "repeat('long ', 90)"),
    ("text", "repeat(md5('x'), 60)"),
    ("char(12)", "'padded'"),
    ("name", "'a_name'"),
    ("bytea", "'\\x00ff'"),
    ("date", "'2026-11-30'"),
    ("timestamptz", "'2026-11-30 09:00+01'"),
    ("timetz", "'09:00+01'"),
    ("interval", "'1 month -2 days'"),
    ("uuid", "'00112233-4455-6677-8899-aabbccddeeff'"),
    ("inet", "'10.1.2.3/8'"),
    ("int[]", "'{1,NULL,3}'"),
    ("jsonb", "'{\"a\": [1, 2.50]}'"),
    ("int4range", "'[1,5)'"),
    ("bit varying", "B'10110'"),
];

#[test]
fn keys_that_older_rows_have_by_a_columns_default_are_compared() {
    for installation in installations() {
        let version = &installation.version;
        let options = Options::default().with("autovacuum", "off");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        let mut sql = "CREATE TABLE older (id int); CREATE TABLE both_ages (id int);
             INSERT INTO older SELECT generate_series(1, 200);
             INSERT INTO both_ages SELECT generate_series(1, 200);"
            .to_owned();
        for (table, (number, (of_type, default))) in ["older", "both_ages"]
            .into_iter()
            .flat_map(|table| (1..).zip(LATER).map(move |one| (table, one)))
        {
            sql += &format!(
                "ALTER TABLE {table} ADD COLUMN c{number} {of_type} DEFAULT {default};
                 CREATE INDEX {table}_{number} ON {table} (c{number});
                 CREATE INDEX ON {table} (id, c{number});"
            );
        }
        // What else stands in the rows of pg_attribute, before the value.
        sql += "GRANT SELECT (c2, c3, c9) ON older TO public;
            ALTER TABLE older ALTER c2 SET (n_distinct = 5), ALTER c4 SET STATISTICS 7;
            INSERT INTO both_ages SELECT generate_series(201, 400);
            UPDATE both_ages SET c2 = id WHERE id % 3 = 0; CHECKPOINT;";
        cluster.psql(&sql).unwrap();
        let indexes: Vec<_> = (1..=LATER.len())
            .map(|number| cluster.relation_path("postgres", &format!("older_{number}")).unwrap())
            .collect();
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir().to_owned();
        let told = || check(["--structure".as_ref(), root.as_os_str()]).report();
        let report = told();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
        let mut compared = 0;
        for (path, (of_type, _)) in indexes.iter().zip(LATER) {
            // The same bit of every key: their order stays, and each of them is another one.
            let _wound = Wound::to(root.join(path)).change(|bytes| {
                let page = page_mut(bytes, 1);
                for number in tuples(page) {
                    let (begin, _) = tuple(page, number);
                    page[begin + 9] ^= 2;
                }
                stamp(page, 1);
            });
            let report = told();
            let details = report.details();
            compared += usize::from(details.iter().any(|one| one.contains("keys")));
            // Of long ones only the lengths are.
            let is_long = *path == indexes[9] || *path == indexes[10];
            assert!(is_long || report.verdict() == "damaged", "{version}: {of_type}");
        }
        assert!(compared >= LATER.len() - 6, "{version}: {compared}");
    }
}

/// Rows that a scan of the table does not find, and one of an index alone does.
#[test]
fn rows_that_only_an_index_or_the_visibility_map_knows_are_told() {
    for installation in installations() {
        let version = &installation.version;
        let options = Options::default().with("autovacuum", "off");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        // Rows that are gone, some of them with their line pointers, and dead ones that indexes still know.
        cluster
            .psql(
                "CREATE TABLE goods (id int PRIMARY KEY, word text);
                 CREATE INDEX goods_word ON goods (word);
                 CREATE INDEX goods_hash ON goods USING hash (word);
                 CREATE INDEX goods_brin ON goods USING brin (id);
                 CREATE INDEX goods_spgist ON goods USING spgist (word);
                 INSERT INTO goods SELECT i, 'word ' || i FROM generate_series(1, 3000) i;
                 DELETE FROM goods WHERE id BETWEEN 2000 AND 2400; VACUUM FREEZE goods;
                 DELETE FROM goods WHERE id BETWEEN 2500 AND 2900;
                 INSERT INTO goods VALUES (4001, 'kept');
                 BEGIN; INSERT INTO goods VALUES (4002, 'taken back'); ROLLBACK;",
            )
            .unwrap();
        cluster.psql("SELECT count(*) FROM goods WHERE word > ''; CHECKPOINT").unwrap();
        let path = cluster.relation_path("postgres", "goods").unwrap();
        let others = ["goods_hash", "goods_brin", "goods_spgist"]
            .map(|index| cluster.relation_path("postgres", index).unwrap());
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir().to_owned();
        let heap = path.strip_prefix(&root).unwrap_or(&path).to_str().unwrap().to_owned();
        let told = |options: &[&str]| {
            let arguments = options.iter().map(AsRef::as_ref).chain([root.as_os_str()]);
            check(arguments).report()
        };
        for options in [&[][..], &["--structure"]] {
            let report = told(options);
            assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
        }
        for index in &others {
            let _wound = Wound::to(root.join(index)).change(|bytes| {
                // The header of the page and what is at its end stay.
                page_mut(bytes, 0)[24..200].fill(0);
                stamp(page_mut(bytes, 0), 0);
            });
            let report = told(&[]);
            let details = report.details();
            let is_told = details.iter().any(|one| one.contains("the magic number 0x00000000"));
            assert!(is_told && report.verdict() == "damaged", "{version}: {details:?}");
        }
        let put = |page: &mut [u8], at: usize, word: u16| {
            page[at..at + 2].copy_from_slice(&word.to_le_bytes());
        };
        let empty = move |page: &mut [u8]| {
            put(page, 12, 24);
            put(page, 14, u16::try_from(PAGE).unwrap());
        };
        type Put = Box<dyn Fn(&mut [u8])>;
        let sound = fs::read(root.join(&heap)).unwrap();
        let hint = |word: &'static [u8], hint: u8| -> (u32, Put) {
            let (block, begin) = find_tuple(&sound, |row| row.ends_with(word));
            let change = move |page: &mut [u8]| page[begin + 21] = page[begin + 21] & !3 | hint;
            (block, Box::new(change))
        };
        let [kept, taken_back] = [hint(b"kept", 2), hint(b"taken back", 1)];
        // Severity and kind, and words.
        type Told = &'static [(&'static str, &'static str)];
        let wounds: [(u32, Put, Told); 6] = [
            (kept.0, kept.1, &[("damage structure", "did not commit, pg_xact that it committed")]),
            (
                taken_back.0,
                taken_back.1,
                &[("damage structure", "committed, pg_xact that it aborted")],
            ),
            (
                1,
                Box::new(empty),
                &[
                    ("suspect stale", "and it has 0"),
                    ("damage structure", "entries for rows that public.goods does not have"),
                ],
            ),
            (
                1,
                Box::new(|page| change_word(page, 24 + 4 * 4, |_| 0)),
                &[(
                    "damage structure",
                    "an entry for rows that public.goods does not have: the first is (1, 5)",
                )],
            ),
            (
                1,
                Box::new(|page| change_word(page, 24 + 4 * 4, |_| 3 << 15)),
                &[("damage structure", "row 5: it is dead, and the page says")],
            ),
            (
                1,
                Box::new(|page| page[10] &= !4),
                &[("suspect stale", "its bit in the visibility map is set")],
            ),
        ];
        for (block, wound, expected) in wounds {
            let _wound = Wound::to(root.join(&heap)).change(|bytes| {
                wound(page_mut(bytes, block));
                stamp(page_mut(bytes, block), block);
            });
            let report = told(&["--structure"]);
            for (kind, words) in expected {
                let is_told = report.raw_findings().iter().any(|finding| {
                    let found =
                        [&finding["severity"], &finding["kind"]].map(|it| it.as_str().unwrap());
                    found.join(" ") == *kind && finding["detail"].as_str().unwrap().contains(words)
                });
                assert!(is_told, "{version}: {words}: {:?}", report.raw_findings());
            }
            // What is suspect without the flag, too.
            let is_suspect = expected.iter().any(|(kind, _)| kind.starts_with("suspect"));
            let expected = if is_suspect { "suspect" } else { "intact" };
            assert_eq!(told(&[]).verdict(), expected, "{version}");
        }
    }
}

/// What a wound of the campaign changes: one bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    HeapLinePointer,
    RowHeader,
    RowData,
    IndexLinePointer,
    EntryHeader,
    EntryKey,
    IndexSpecial,
    ToastRowHeader,
    ToastChunk,
}

impl Place {
    const ALL: [Self; 9] = [
        Self::HeapLinePointer,
        Self::RowHeader,
        Self::RowData,
        Self::IndexLinePointer,
        Self::EntryHeader,
        Self::EntryKey,
        Self::IndexSpecial,
        Self::ToastRowHeader,
        Self::ToastChunk,
    ];

    /// Which relation of a table it is in.
    fn relation(self) -> &'static str {
        match self {
            Self::HeapLinePointer | Self::RowHeader | Self::RowData => "heap",
            Self::ToastRowHeader | Self::ToastChunk => "toast",
            _ => "index",
        }
    }

    /// Changes one bit of a page, and says which; `None` if there is none of this kind on it.
    fn inflict(self, dice: &mut Dice, page: &mut [u8]) -> Option<String> {
        let numbers = tuples(page);
        if numbers.is_empty() {
            return None;
        }
        let number = numbers[dice.within(0..numbers.len())];
        let (begin, length) = tuple(page, number);
        let bytes = match self {
            Self::HeapLinePointer | Self::IndexLinePointer => 20 + number * 4..24 + number * 4,
            Self::RowHeader | Self::ToastRowHeader => begin..begin + 23,
            Self::RowData => begin + usize::from(page[begin + 22])..begin + length,
            Self::EntryHeader => begin..begin + 8,
            Self::EntryKey => begin + 8..begin + length,
            Self::IndexSpecial => PAGE - 16..PAGE,
            Self::ToastChunk => begin + 24..begin + 32,
        };
        if bytes.is_empty() {
            return None;
        }
        let (begin, at, bit) = (bytes.start, dice.within(bytes), dice.within(0..8));
        page[at] ^= 1 << bit;
        Some(format!("bit {bit} of byte {} of item {number}", at - begin))
    }
}

/// The cluster of the campaign, with `pg_amcheck`'s extension, cleanly shut down; and the
/// files of each table: heap, indexes, TOAST.
fn campaign_cluster(installation: &Installation) -> (Cluster, Vec<BTreeMap<String, Vec<String>>>) {
    let options = Options::default().with("autovacuum", "off");
    let mut cluster = Cluster::init(installation, &options).unwrap();
    cluster.start().unwrap();
    cluster.psql("CREATE EXTENSION amcheck").unwrap();
    for table in 0..TABLES {
        let sql = format!(
            "CREATE TABLE w{table:02} (id int PRIMARY KEY, name text COLLATE \"C\", big bigint, doc text);
             ALTER TABLE w{table:02} ALTER doc SET STORAGE EXTERNAL;
             INSERT INTO w{table:02} SELECT i, md5((i * 7)::text), i * 77777777777,
                 CASE WHEN i % 100 = 0 THEN repeat(md5(i::text), 200) END FROM generate_series(1, 3000) i;
             CREATE INDEX w{table:02}_name ON w{table:02} (name DESC, big);
             CREATE INDEX w{table:02}_big ON w{table:02} (big);
             UPDATE w{table:02} SET doc = doc WHERE id % 5 = 0;
             DELETE FROM w{table:02} WHERE id % 17 = 0;
             VACUUM w{table:02}; UPDATE w{table:02} SET doc = 'x' WHERE id % 14 = 0;"
        );
        cluster.psql(&sql).unwrap();
    }
    let mut files = Vec::new();
    for table in 0..TABLES {
        let sql = format!(
            "SELECT 'heap', pg_relation_filepath(oid) FROM pg_class WHERE relname = 'w{table:02}' UNION ALL
             SELECT 'toast', pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 'w{table:02}' UNION ALL
             SELECT 'toast name', reltoastrelid::regclass::text FROM pg_class WHERE relname = 'w{table:02}' UNION ALL
             SELECT 'index', pg_relation_filepath(indexrelid) FROM pg_index WHERE indrelid = 'w{table:02}'::regclass"
        );
        let rows = cluster.execute("postgres", &[&sql]).unwrap();
        let mut of_table: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in rows.lines() {
            let (kind, file) = row.split_once('|').unwrap();
            of_table.entry(kind.to_owned()).or_default().push(file.to_owned());
        }
        files.push(of_table);
    }
    cluster.stop(StopMode::Fast).unwrap();
    (cluster, files)
}

/// The tables that have a finding.
fn named(root: &Path, options: &[&str]) -> Vec<bool> {
    let arguments = options.iter().map(AsRef::as_ref).chain([root.as_os_str()]);
    let report = check(arguments).report();
    let objects: Vec<String> = report
        .raw_findings()
        .iter()
        .filter(|finding| finding["severity"] != "notice")
        .map(|finding| finding["object"].to_string())
        .collect();
    let is_named = |table: usize| {
        let (dot, quote) = (format!(".w{table:02}"), format!("w{table:02}_"));
        objects.iter().any(|one| one.contains(&dot) || one.contains(&quote))
    };
    (0..TABLES).map(is_named).collect()
}

/// The tables of which `pg_amcheck` says anything.
fn named_by_server(cluster: &mut Cluster, files: &[BTreeMap<String, Vec<String>>]) -> Vec<bool> {
    cluster.start().unwrap();
    let mut command = cluster.client("pg_amcheck").unwrap();
    command.args(["-j", "2", "--heapallindexed", "--parent-check", "-t", "w*", "postgres"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    cluster.stop(StopMode::Immediate).unwrap();
    let is_named = |(table, of_table): (usize, &BTreeMap<String, Vec<String>>)| {
        let toast = of_table["toast name"][0].trim_start_matches("pg_toast.").to_owned();
        [format!(".w{table:02}"), toast].iter().any(|name| {
            let ends = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_digit());
            text.split(name.as_str()).skip(1).any(ends)
        })
    };
    files.iter().enumerate().map(is_named).collect()
}

/// `PAGEWARDEN_WOUNDS` a version (480). Prints how many of each place were found by us, by
/// `--structure`, and by `pg_amcheck --heapallindexed --parent-check`.
#[test]
#[ignore = "takes minutes"]
fn wounds_with_right_sums_are_found_beside_pg_amcheck() {
    let wanted = std::env::var("PAGEWARDEN_WOUNDS").ok().and_then(|text| text.parse().ok());
    for installation in installations() {
        campaign(&installation, wanted.unwrap_or(480));
    }
}

/// The same with one wound in each table.
#[test]
fn structure_finds_no_less_than_pg_amcheck() {
    for installation in installations() {
        campaign(&installation, TABLES);
    }
}

fn campaign(installation: &Installation, wanted: usize) {
    if !installation.has("pg_amcheck") {
        eprintln!("skipped: {} has no pg_amcheck", installation.version);
        return;
    }
    let mut dice = Dice::seeded();
    let (sound, files) = campaign_cluster(installation);
    assert_eq!(named(sound.data_dir(), &["--structure"]), vec![false; TABLES]);
    let mut counts: BTreeMap<Place, [usize; 4]> = BTreeMap::new();
    for round in 0..wanted.div_ceil(TABLES) {
        let mut cluster = sound.duplicate().unwrap();
        let root = cluster.data_dir().to_owned();
        let mut places = Vec::new();
        for (table, of_table) in files.iter().enumerate() {
            let place = Place::ALL[(round * TABLES + table) % Place::ALL.len()];
            let candidates = &of_table[place.relation()];
            let file = &candidates[dice.within(0..candidates.len())];
            let path = root.join(file);
            let mut bytes = fs::read(&path).unwrap();
            let first = usize::from(place.relation() == "index");
            let what = loop {
                let block = u32::try_from(dice.within(first..bytes.len() / PAGE)).unwrap();
                let page = page_mut(&mut bytes, block);
                let is_empty = page[14..16] == [0, 0];
                if let Some(what) = place.inflict(&mut dice, page).filter(|_| !is_empty) {
                    stamp(page, block);
                    break format!("{what}, block {block} of {file}");
                }
            };
            fs::write(&path, bytes).unwrap();
            places.push((place, what));
        }
        let by_default = named(&root, &[]);
        let by_structure = named(&root, &["--structure"]);
        let by_server = named_by_server(&mut cluster, &files);
        for (table, (place, what)) in places.iter().enumerate() {
            let count = counts.entry(*place).or_default();
            let found = [true, by_default[table], by_structure[table], by_server[table]];
            if by_server[table] && !by_structure[table] {
                println!("found by pg_amcheck alone: {place:?}, {what}");
            }
            count.iter_mut().zip(found).for_each(|(count, found)| *count += usize::from(found));
        }
    }
    let mut all = [0; 4];
    println!("{}: place, wounds, by default, --structure, pg_amcheck", installation.version);
    for (place, count) in &counts {
        println!("{place:?} {count:?}");
        all.iter_mut().zip(count).for_each(|(all, count)| *all += count);
    }
    println!("all {all:?}");
    assert!(all[2] >= all[3], "{}: {all:?}", installation.version);
}
