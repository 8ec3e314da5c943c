//! The structure of SQLite databases: what `PRAGMA quick_check` sees of damage, `check` sees, and
//! what `PRAGMA integrity_check` sees, `check --structure` sees; and nothing is ever wrong with what
//! SQLite itself wrote.
//!
//! `PAGEWARDEN_WOUNDS` says how many wounds of each kind a database gets, `PAGEWARDEN_SEED` which.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sqlite::{check_with as check, has_shell, shell};

/// Tables of all kinds, and what leaves the most behind.
const CONTENT: &str = "
CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT NOT NULL, c BLOB, d REAL, e NUMERIC DEFAULT 7);
CREATE INDEX t_b ON t (b);
CREATE INDEX t_de ON t (d DESC, e);
CREATE INDEX t_partial ON t (d) WHERE d > 50;
CREATE INDEX t_expression ON t (lower(b));
CREATE TABLE u (x TEXT COLLATE NOCASE UNIQUE, y, UNIQUE (y, x), CHECK (x <> 'no'));
CREATE TABLE w (k TEXT, n INT, v, PRIMARY KEY (k, n)) WITHOUT ROWID;
CREATE INDEX w_v ON w (v, k);
CREATE TABLE g (a, s AS (a + 1), p AS (a * 2) STORED, z);
CREATE INDEX g_sp ON g (s, p); CREATE INDEX g_pz ON g (p, z);
CREATE TABLE q (id INTEGER PRIMARY KEY AUTOINCREMENT, v VARCHAR(10) COLLATE RTRIM);
CREATE INDEX q_v ON q (v);
CREATE VIEW vw AS SELECT a, b FROM t;
CREATE TRIGGER tr AFTER INSERT ON q BEGIN SELECT 1; END;
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900)
INSERT INTO t SELECT x * 3 % 901, hex(randomblob(20)), randomblob(x % 500), iif(x % 5, x / 8.0, x), x % 90 FROM n;
INSERT INTO t VALUES (-7, 'long', zeroblob(90000), 1e300, NULL), (1 << 40, char(233), randomblob(70000), NULL, 2.5);
INSERT INTO u SELECT b, a % 40 FROM t;
INSERT INTO w SELECT b, a % 7, c FROM t WHERE a % 2;
INSERT INTO g (a, z) SELECT a, d FROM t;
INSERT INTO q (v) SELECT substr(b, 1, 3) || '  ' FROM t;
ALTER TABLE t ADD COLUMN f TEXT DEFAULT 'old'; ALTER TABLE t ADD COLUMN h; CREATE INDEX t_h ON t (h, f);
ALTER TABLE g DROP COLUMN z2;
INSERT INTO t SELECT a + 100000, b, c, d, e, 'new', a FROM t WHERE a % 9 = 0;
DELETE FROM t WHERE a % 3 = 0;
DELETE FROM q WHERE id % 4 = 0;
UPDATE w SET v = randomblob(600) WHERE n = 3;
ANALYZE;
";

fn make(folder: &Path, name: &str, pragmas: &str) {
    let content = CONTENT.replace("ALTER TABLE g DROP COLUMN z2;\n", "");
    shell(folder, &format!(".open {name}\n.output /dev/null\n{pragmas}\n{content}"));
}

/// What SQLite says of a database; `ok` if nothing is wrong.
fn sqlite_says(path: &Path, pragma: &str) -> String {
    let output = Command::new("sqlite3")
        .arg(format!("file:{}?immutable=1", path.display()))
        .arg(format!("PRAGMA {pragma};"))
        .output()
        .expect("sqlite3 runs");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !said.is_empty() {
        return said;
    }
    format!("{said}{}", String::from_utf8_lossy(&output.stderr))
}

/// Numbers by a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end.max(1)
    }

    fn noise(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = u8::try_from(self.below(256)).expect("a byte");
        }
    }
}

const WOUNDS: [&str; 12] = [
    "bit",
    "leaf header",
    "inner bit",
    "noise 512",
    "zero 512",
    "zeroed page",
    "noise page",
    "swap",
    "over",
    "header",
    "pointer",
    "cut",
];

fn wound(kind: &str, bytes: &mut Vec<u8>, page_size: usize, chance: &mut Chance) {
    let pages = bytes.len() / page_size;
    let flip = |bytes: &mut [u8], at: usize, chance: &mut Chance| bytes[at] ^= 1 << chance.below(8);
    let of_kind = |bytes: &[u8], kinds: &[u8], chance: &mut Chance| {
        let is = |page: &usize| kinds.contains(&bytes[page * page_size]);
        let found: Vec<usize> = (1..pages).filter(is).collect();
        found[chance.below(found.len())] * page_size
    };
    let page = (1 + chance.below(pages - 1)) * page_size;
    let other = (1 + chance.below(pages - 1)) * page_size;
    match kind {
        "bit" => {
            let at = page_size + chance.below(bytes.len() - page_size);
            flip(bytes, at, chance);
        }
        "leaf header" => {
            let at = of_kind(bytes, &[10, 13], chance) + chance.below(8);
            flip(bytes, at, chance);
        }
        "inner bit" => {
            let at = of_kind(bytes, &[2, 5], chance) + chance.below(page_size);
            flip(bytes, at, chance);
        }
        "pointer" => {
            let at = of_kind(bytes, &[2, 5, 10, 13], chance) + 8 + chance.below(8);
            flip(bytes, at, chance);
        }
        "noise 512" | "zero 512" => {
            let at = page_size + 512 * chance.below((bytes.len() - page_size) / 512);
            bytes[at..at + 512].fill(0);
            if kind == "noise 512" {
                chance.noise(&mut bytes[at..at + 512]);
            }
        }
        "zeroed page" => bytes[page..page + page_size].fill(0),
        "noise page" => chance.noise(&mut bytes[page..page + page_size]),
        "over" => bytes.copy_within(other..other + page_size, page),
        "swap" => {
            let one = bytes[page..page + page_size].to_vec();
            bytes.copy_within(other..other + page_size, page);
            bytes[other..other + page_size].copy_from_slice(&one);
        }
        "header" => {
            let at = chance.below(100);
            flip(bytes, at, chance);
        }
        _ => bytes.truncate((2 + chance.below(pages - 2)) * page_size),
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// SQLite looks at these, and they need its functions: an index on an expression has entries that only
/// SQLite can foresee, and so has a CHECK; it converts values.
fn needs_sqlite(said: &str) -> bool {
    ["t_expression", "g_sp", "CHECK constraint", "NUMERIC value", "TEXT value"]
        .iter()
        .any(|words| said.contains(words))
}

#[test]
fn damage_that_sqlite_sees_is_seen() {
    if !has_shell() {
        return;
    }
    let (wounds, seed) = (number("PAGEWARDEN_WOUNDS", 1), number("PAGEWARDEN_SEED", 1));
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("wounded.db");
    let mut missed = Vec::new();
    // Of each kind: how many, and seen by SQLite and by us, quickly and thoroughly.
    let mut counts: BTreeMap<&str, [u32; 5]> = BTreeMap::new();
    for (round, (page_size, pragmas)) in [
        (4096, ""),
        (512, "PRAGMA auto_vacuum = FULL;"),
        (1024, "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA encoding = 'UTF-16le';"),
        (65_536, "PRAGMA secure_delete = ON;"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("base{round}.db");
        make(folder.path(), &name, &format!("PRAGMA page_size = {page_size}; {pragmas}"));
        let base = fs::read(folder.path().join(name)).expect("database");
        for kind in WOUNDS {
            for number in 0..wounds {
                let mut chance =
                    Chance(seed ^ (number << 20) ^ (round as u64) << 40 ^ kind.len() as u64);
                chance.below(1);
                let mut bytes = base.clone();
                wound(kind, &mut bytes, page_size, &mut chance);
                if bytes == base {
                    continue;
                }
                fs::write(&path, &bytes).expect("write");
                let count = counts.entry(kind).or_default();
                count[0] += 1;
                for (at, pragma, flags) in
                    [(1, "quick_check", &[][..]), (3, "integrity_check", &["--structure"][..])]
                {
                    let said = sqlite_says(&path, pragma);
                    let ours = check(&path, flags);
                    let is_seen = ours.verdict() == "damaged" || ours.status == 2;
                    count[at] += u32::from(said != "ok");
                    count[at + 1] += u32::from(is_seen);
                    if said != "ok" && !is_seen && !needs_sqlite(&said) {
                        missed.push(format!("{kind} {number} of {page_size}: {said}"));
                    }
                }
            }
        }
    }
    println!("{:12} {:>5} quick_check check integrity_check --structure", "damage", "n");
    for (kind, [tries, quick, check, integrity, structure]) in counts {
        println!("{kind:12} {tries:5} {quick:11} {check:5} {integrity:15} {structure:11}");
    }
    assert!(missed.is_empty(), "seed {seed}: {missed:#?}");
}

#[test]
fn healthy_schemas_of_every_kind_are_sound() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let virtual_tables = "
        CREATE VIRTUAL TABLE f5 USING fts5(a, b); CREATE VIRTUAL TABLE f4 USING fts4(a, b);
        CREATE VIRTUAL TABLE r USING rtree(id, x0, x1, y0, y1);
        INSERT INTO f5 SELECT b, b FROM t; INSERT INTO f4 SELECT b, b FROM t;
        INSERT INTO r SELECT a, a, a + 1, a, a + 2 FROM t WHERE a < 100000;
        DELETE FROM f5 WHERE rowid % 3 = 0;";
    for (number, pragmas) in [
        "",
        "PRAGMA legacy_file_format = ON;",
        "PRAGMA encoding = 'UTF-16be'; PRAGMA page_size = 512;",
        "PRAGMA auto_vacuum = FULL; PRAGMA page_size = 65536;",
        "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA page_size = 1024; PRAGMA journal_mode = WAL;",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("healthy{number}.db");
        let path = folder.path().join(&name);
        make(folder.path(), &name, pragmas);
        shell(folder.path(), &format!(".open {name}\n.output /dev/null\n{virtual_tables}"));
        assert_eq!(sqlite_says(&path, "integrity_check"), "ok");
        for last in ["PRAGMA incremental_vacuum(3);", "REINDEX;", "VACUUM;"] {
            for flags in [&[][..], &["--structure"][..]] {
                let checked = check(&path, flags);
                assert_eq!(
                    (checked.status, checked.verdict()),
                    (0, "unprotected"),
                    "{}",
                    checked.report
                );
                assert!(checked.findings().is_empty(), "{}", checked.report);
                let text = checked.report.to_string();
                assert!(text.contains("structure sound"), "{text}");
                // The others are compared: nothing is passed over without a word.
                if !flags.is_empty() {
                    assert!(text.contains("and 1 more of values that are computed"), "{text}");
                    let others = text.contains("not compared with the rows: the index t_h;");
                    assert!(others || !text.contains("not compared with"), "{text}");
                }
            }
            shell(folder.path(), &format!(".open {name}\n.output /dev/null\n{last}"));
        }
    }
}

#[test]
fn zeroed_page_is_named_with_its_table() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    make(folder.path(), "z.db", "PRAGMA page_size = 4096;");
    let path = folder.path().join("z.db");
    let roots = shell(
        folder.path(),
        ".open z.db\nSELECT rootpage FROM sqlite_schema WHERE name = 'w_v';\n",
    );
    let root: u64 = roots.trim().parse().expect("a page");
    let mut bytes = fs::read(&path).expect("database");
    let begin = usize::try_from(root - 1).expect("small") * 4096;
    bytes[begin..begin + 4096].fill(0);
    fs::write(&path, bytes).expect("write");
    let checked = check(&path, &[]);
    assert_eq!((checked.status, checked.verdict()), (1, "damaged"), "{}", checked.report);
    let finding = &checked.findings()[0];
    assert_eq!(checked.findings().len(), 1, "{}", checked.report);
    assert_eq!(
        (&finding["kind"], &finding["object"], &finding["page"], &finding["offset"]),
        (&"zeroed".into(), &"w_v".into(), &root.into(), &((root - 1) * 4096).into())
    );
    assert_eq!(checked.report["targets"][0]["pages"]["damaged"], 1);
    assert!(checked.report.to_string().contains("out of reach"), "{}", checked.report);
}

/// Has the schema of a database say this of the index `i`, whose entries stay as they are.
fn said_of_the_index(name: &str, sql: &str) -> String {
    format!(
        ".open {name}\n.dbconfig defensive off\n.output /dev/null\nPRAGMA writable_schema = ON;\n\
         UPDATE sqlite_schema SET sql = '{sql}' WHERE name = 'i';\n"
    )
}

/// The schema says meanwhile that the index need not have all rows.
#[test]
fn index_that_lacks_a_row_is_found_by_structure_only() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let set = |sql: &str| said_of_the_index("i.db", sql);
    shell(
        folder.path(),
        ".open i.db\nCREATE TABLE t (a, b);\nCREATE INDEX i ON t (a);\nINSERT INTO t VALUES (1, 2), (3, 4);\n",
    );
    let path = folder.path().join("i.db");
    shell(folder.path(), &set("CREATE INDEX i ON t (a) WHERE b > 0"));
    shell(folder.path(), ".open i.db\nINSERT INTO t VALUES (5, 0);\n");
    shell(folder.path(), &set("CREATE INDEX i ON t (a)"));
    assert_eq!(sqlite_says(&path, "quick_check"), "ok");
    assert_ne!(sqlite_says(&path, "integrity_check"), "ok");
    assert_eq!(check(&path, &[]).verdict(), "unprotected");
    let checked = check(&path, &["--structure"]);
    assert_eq!((checked.status, checked.verdict()), (1, "damaged"), "{}", checked.report);
    assert_eq!(checked.findings()[0]["object"], "i");
    // As many entries as rows, with other values.
    shell(folder.path(), &set("CREATE INDEX i ON t (a) WHERE b > 0"));
    shell(
        folder.path(),
        ".open i.db\nUPDATE t SET a = 9, b = 0 WHERE a = 1; INSERT INTO t VALUES (6, 6);\n",
    );
    shell(folder.path(), ".open i.db\nDELETE FROM t WHERE a = 5;\n");
    shell(folder.path(), &set("CREATE INDEX i ON t (b)"));
    assert_eq!(check(&path, &["--structure"]).verdict(), "damaged");
}

/// Rows of all kinds of values, an index with a condition each, and then the schema says that it is the
/// contrary, or that the index has all rows.
#[test]
fn entries_of_partial_indexes_are_those_that_sqlite_makes() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let conditions = [
        "n IS NOT NULL",
        "s ISNULL",
        "n",
        "NOT n",
        "n = 0",
        "n <> 0",
        "n < 2 AND x >= 1",
        "n IN (1, 2) OR s = 'Open'",
        "s IN ('open', 'closed')",
        "s NOT IN ('open', '7')",
        "s = 7",
        "s > 6",
        "b = 'x'",
        "b < 3",
        "b > 'a' AND b <> 'x'",
        "r <= 2",
        "r > -1 AND r = 1",
        "NOT (n = 1 OR s = 'open') AND x NOT NULL",
        "x = 'three' OR x != 3",
        "n = TRUE AND (s IS NULL OR c = 'A')",
        "id > 300",
        "c = 'a  '",
        "lower(s) = 'open'",
        "s LIKE 'o%'",
    ];
    let values =
        ["NULL", "0", "1", "2", "-1", "1.5", "'open'", "'OPEN'", "'closed'", "'7'", "x'78'", "''"];
    let columns =
        "id INTEGER PRIMARY KEY, n INT, s TEXT, b, r REAL, x NUMERIC, c TEXT COLLATE NOCASE";
    for (encoding, first) in [("UTF-8", 0), ("UTF-16le", 1)] {
        let name = format!("p{first}.db");
        let mut script =
            format!(".open {name}\nPRAGMA encoding = '{encoding}'; CREATE TABLE t ({columns});\n");
        let mut chance = Chance(number("PAGEWARDEN_SEED", 1));
        let rows = (0..600).map(|_| {
            let row: Vec<_> = (0..6).map(|_| values[chance.below(values.len())]).collect();
            format!("INSERT INTO t (n, s, b, r, x, c) VALUES ({});\n", row.join(", "))
        });
        script.extend(rows);
        script.push_str("CREATE INDEX e ON t (upper(s), n); CREATE INDEX i ON t (n, s);\n");
        shell(folder.path(), &script);
        let path = folder.path().join(&name);
        let quoted = |text: &str| text.replace('\'', "''");
        let mut understood = 0;
        for condition in conditions {
            let make = format!("DROP INDEX i; CREATE INDEX i ON t (b, s) WHERE {condition};");
            shell(folder.path(), &format!(".open {name}\n{make}\n"));
            let checked = check(&path, &["--structure"]);
            let text = checked.report.to_string();
            assert_eq!(checked.verdict(), "unprotected", "{condition}: {text}");
            let is_understood = !text.contains("not compared with the rows");
            understood += usize::from(is_understood);
            for other in [format!(" WHERE NOT ({condition})"), String::new()] {
                let sql = quoted(&format!("CREATE INDEX i ON t (b, s){other}"));
                let wrong = said_of_the_index(&name, &sql);
                shell(folder.path(), &wrong);
                assert_ne!(sqlite_says(&path, "integrity_check"), "ok", "{condition}{other}");
                let checked = check(&path, &["--structure"]);
                let is_seen = checked.verdict() == "damaged";
                let all = other.is_empty();
                assert_eq!(is_seen, is_understood || all, "{condition}: {}", checked.report);
            }
        }
        // Not the last two, nor whether a text in the column `n` is true; of UTF-16 nothing that looks
        // into texts.
        assert_eq!(understood, if first == 0 { conditions.len() - 4 } else { 9 }, "{encoding}");
    }
}

#[test]
fn index_on_an_expression_has_an_entry_of_each_row() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let set = |sql: &str| said_of_the_index("e.db", sql);
    let sound = "CREATE INDEX i ON t (lower(a), b)";
    let rows = "INSERT INTO t VALUES ('A', 1), ('b', 2), ('C', 3);";
    shell(folder.path(), &format!(".open e.db\nCREATE TABLE t (a, b);\n{sound};\n{rows}\n"));
    let path = folder.path().join("e.db");
    let checked = check(&path, &["--structure"]);
    assert_eq!(checked.verdict(), "unprotected", "{}", checked.report);
    assert!(checked.report.to_string().contains("the index i of values that are computed"));
    shell(folder.path(), &set(&format!("{sound} WHERE b < 9")));
    shell(folder.path(), ".open e.db\nINSERT INTO t VALUES ('d', 9);\n");
    shell(folder.path(), &set(sound));
    assert_ne!(sqlite_says(&path, "integrity_check"), "ok");
    assert_eq!(check(&path, &["--structure"]).verdict(), "damaged");
    // As many as there are rows, and one of them of no row.
    shell(folder.path(), &set(&format!("{sound} WHERE b > 1")));
    shell(folder.path(), ".open e.db\nDELETE FROM t WHERE b = 1;\n");
    shell(folder.path(), &set(sound));
    let checked = check(&path, &["--structure"]);
    assert_eq!(checked.verdict(), "damaged", "{}", checked.report);
    assert!(checked.report.to_string().contains("not of the same values"), "{}", checked.report);
}

#[test]
fn writers_at_work_are_no_damage() {
    if !has_shell() {
        return;
    }
    for mode in ["WAL", "DELETE", "TRUNCATE", "PERSIST"] {
        let folder = tempfile::tempdir().expect("temporary folder");
        make(
            folder.path(),
            "live.db",
            &format!("PRAGMA auto_vacuum = FULL; PRAGMA journal_mode = {mode};"),
        );
        let mut script =
            String::from(".open live.db\n.output /dev/null\nPRAGMA wal_autocheckpoint = 50;\n");
        for round in 0..3000 {
            script.push_str(&format!(
                "BEGIN; INSERT INTO q (v) VALUES ({round}), (randomblob({})); DELETE FROM q WHERE id % 50 = \
                 {round} % 50; UPDATE t SET d = {round} WHERE a % 60 = {round} % 60; COMMIT;\n",
                round * 7 % 3000
            ));
        }
        let input = folder.path().join("writer.sql");
        fs::write(&input, script).expect("write");
        let mut writer = Command::new("sqlite3")
            .current_dir(folder.path())
            .arg(":memory:")
            .stdin(Stdio::from(fs::File::open(&input).expect("script")))
            .stdout(Stdio::null())
            .spawn()
            .expect("sqlite3 runs");
        let mut checks = 0;
        let path = folder.path().join("live.db");
        while writer.try_wait().expect("a writer").is_none() && checks < 12 {
            checks += 1;
            let flags = if checks % 2 == 0 { &["--structure"][..] } else { &[][..] };
            let checked = check(&path, flags);
            let findings = checked.findings();
            let is_damage = |finding: &Value| finding["severity"] == "damage";
            assert!(!findings.iter().any(is_damage), "{mode}: {}", checked.report);
        }
        println!("{mode}: {checks} checks of a database that was written");
        let _ = writer.kill();
        let _ = writer.wait();
    }
}

/// In a folder, by what its other pages are, whatever it is called; a large file of zeroes is none.
#[test]
fn database_that_lost_its_first_page_is_found_in_a_folder() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    make(folder.path(), "app.db", "");
    let mut bytes = fs::read(folder.path().join("app.db")).expect("a database");
    bytes[..4096].fill(0);
    fs::write(folder.path().join("app"), &bytes).expect("write");
    bytes[..4096].fill(b'x');
    fs::write(folder.path().join("app.db"), &bytes).expect("write");
    fs::write(folder.path().join("nothing.db"), vec![0; 1 << 20]).expect("write");
    fs::write(folder.path().join("text.db"), "nothing of the kind ".repeat(9000)).expect("write");
    let checked = check(folder.path(), &[]);
    let targets = checked.report["targets"].as_array().expect("targets");
    let verdicts: Vec<_> =
        targets.iter().map(|target| (&target["path"], &target["verdict"])).collect();
    assert_eq!(verdicts.len(), 2, "{}", checked.report);
    assert!(verdicts.iter().all(|(_, verdict)| *verdict == "damaged"), "{verdicts:?}");
}

/// It may write other pages before page 1.
#[test]
fn first_transaction_of_a_database_is_no_damage() {
    if !has_shell() {
        return;
    }
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut writer = Command::new("sqlite3")
            .current_dir(folder.path())
            .arg("first.db")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sqlite3 runs");
        let mut script = writer.stdin.take().expect("its input");
        write!(
            script,
            "PRAGMA journal_mode={mode}; PRAGMA cache_size=5; BEGIN; CREATE TABLE t(a, b);\n\
             WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5000)\n\
             INSERT INTO t SELECT x, randomblob(700) FROM n;\nSELECT 'written';\n"
        )
        .expect("a script");
        let said = BufReader::new(writer.stdout.take().expect("its output"));
        assert!(said.lines().any(|line| line.expect("a line") == "written"));
        let path = folder.path().join("first.db");
        let begin = fs::read(&path).expect("a database");
        assert!(begin.len() > 1 << 20 && begin.iter().take(4096).all(|byte| *byte == 0), "{mode}");
        for path in [&path, folder.path()] {
            let checked = check(path, &[]);
            assert_eq!(
                (checked.verdict(), checked.status),
                ("suspect", 0),
                "{mode}: {}",
                checked.report
            );
        }
        drop(script);
        writer.wait().expect("sqlite3 ends");
    }
}
