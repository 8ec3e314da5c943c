//! Definitions of tables, which MariaDB and MySQL up to 5.7 keep beside their files: a server that
//! cannot read one does not open its table. They have no sums, except those of partitions. All
//! integers are little-endian.
//!
//! ```text
//! offset  size  field of t.frm
//!      0     2  FE 01; a view's is text, and begins with TYPE=
//!      3     1  the engine: 9 MyISAM, 12 InnoDB, 42 Aria, 20 one with partitions
//!      4     2  bytes between this header, of 64 bytes, and where it says where the form is
//!      6     2  where the keys begin
//!     10     4  bytes of the file, from MariaDB 10.0 on
//!     14     2  bytes of the keys; FFFF: see 47
//!     16     2  bytes of the row of defaults behind the keys
//!     47     4  bytes of the keys
//!     51     4  the version of the server that wrote it
//!      -     2  at the beginning of the form: its bytes, of which the last is the file's
//!              field of t.par, of a table with partitions (not of MySQL 5.7)
//!      0     4  its length in words of four bytes
//!      4     4  makes the exclusive or of all its words 0
//!      8     4  partitions; for each a byte, filled up to a word, then the length of their names,
//!               and the names, each with a 0 behind it: `p0`, `p0#SP#s1`
//! ```
//!
//! | what | is |
//! | --- | --- |
//! | one that a server refuses | header, truncated or checksum |
//! | partitions of a table, none of which its `t.par` names | misplaced |
//! | a table of one engine by the dictionary in `ibdata1` or by its files, and of another by its definition | misplaced; suspect as below |
//! | a table with a file and a definition that the dictionary in `ibdata1` does not have | stale: the dictionary is older; suspect as below, and where files wait to be imported |
//! | a table of the dictionary in `ibdata1` or of Aria, or partitions, without one | missing; suspect where a crash may leave that: before MariaDB 10.6, and of Aria |
//!
//! Asked after a clean shutdown, where a directory has such files at all.
//!
//! Sources: `unireg.cc`, `table.cc` and `ha_partition.cc` of MariaDB 10.11 and MySQL 5.5; more than 900
//! files of MySQL 5.5 and MariaDB 10.1 to 11.8.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::files::directory::is_database;
use crate::files::names::{self, PARTITION, is_temporary};
use crate::files::state::read_small;
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{Finding, Kind, Severity, Unread};

const MAGIC: [u8; 2] = [0xFE, 1];
const TEXT: &[u8] = b"TYPE=";
const ENGINE: usize = 3;
const HEADER_BYTES: usize = 64;
const FORM_BYTES_MIN: u16 = 288;
const INNODB: u8 = 12;
const OF_PARTITIONS: u8 = 20;
/// Engines by the endings of their files.
const ENGINES: [(&str, u8); 4] = [("ibd", INNODB), ("isl", INNODB), ("MAI", 42), ("MYI", 9)];
/// From here on the numbers are those of plugins, which may keep their tables in InnoDB.
const FIRST_PLUGIN: u8 = 43;
/// A server's own limit is below it.
const BYTES_MAX: usize = 1 << 20;
const FIRST_WITH_LENGTH: u32 = 100_000;
/// MySQL 5.7 has partitions without a file that names them.
const WITHOUT_PARTITIONS: std::ops::Range<u32> = 50_700..FIRST_WITH_LENGTH;
const WORD: usize = 4;
/// Of the index of vectors.
const INNER: &str = "#i#";
const OF_ANOTHER_ENGINE: &str =
    "this is the definition of a table of another engine than the table of this name has";
const HINT: &str = "the server does not open this table without it: restore the file from a backup, or \
                    take it from another server on which the same CREATE TABLE was said";

const UNKNOWN: &str = "this table has its file and its definition here, and the data dictionary in ibdata1 does \
                       not have it";
const UNKNOWN_HINT: &str = "the server lists the table and cannot open it: ibdata1 is older than it, or files of another \
                            server were put here; put the ibdata1 of the last shutdown back, or import the file \
                            into a new table (ALTER TABLE ... IMPORT TABLESPACE)";

/// What a folder of tables has.
#[derive(Debug, Default)]
struct Tables {
    /// By the names of tables in lower case, for not every system distinguishes them.
    definitions: BTreeMap<String, Definition>,
    with_partitions: BTreeSet<String>,
    /// The partitions that have files, by their table.
    partitions: BTreeMap<String, BTreeSet<String>>,
    of_aria: BTreeSet<String>,
    /// Tables by their files, without those that have partitions.
    engines: BTreeMap<String, u8>,
}

/// What a definition says; zeroes of one that fails.
#[derive(Debug, Default, Clone, Copy)]
struct Definition {
    version: u32,
    engine: u8,
}

impl Definition {
    fn is_of_another_engine(self, than: u8) -> bool {
        (1..FIRST_PLUGIN).contains(&self.engine) && ![than, OF_PARTITIONS].contains(&self.engine)
    }
}

/// What is wrong with the definitions of a data directory. `named` are the tables of its dictionary, if
/// it can be read; `is_atomic`: its server leaves no table half made.
pub(super) fn steps(root: &Path, named: &[String], is_atomic: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut folders = BTreeMap::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_database(&name) && entry.path().is_dir() {
            let tables = look_into(&entry.path(), &name, &mut steps);
            folders.insert(name, tables);
        }
    }
    if folders.values().all(|tables| tables.definitions.is_empty()) {
        return steps;
    }
    let severity = if is_atomic { Severity::Damage } else { Severity::Suspect };
    let known: BTreeSet<String> = named.iter().map(|one| one.to_ascii_lowercase()).collect();
    let mut seen = BTreeSet::new();
    for one in named {
        let Some((folder, stem)) = one.split_once('/') else { continue };
        let Some(tables) = folders.get_mut(folder) else { continue };
        let table = table_of(stem);
        if let Some(partition) = partition_of(stem) {
            tables.partitions.entry(table.to_owned()).or_default().insert(partition);
        }
        if is_of_words(table) || !seen.insert((folder, table)) {
            continue;
        }
        let (severity, kind, detail) = match tables.definitions.get(&table.to_ascii_lowercase()) {
            None => (
                severity,
                Kind::Missing,
                "the data dictionary has this table, and its definition is not here",
            ),
            Some(found) if found.is_of_another_engine(INNODB) => {
                (severity, Kind::Misplaced, OF_ANOTHER_ENGINE)
            }
            Some(_) => continue,
        };
        steps.push(told(folder, &format!("{table}.frm"), severity, kind, detail));
    }
    for (folder, tables) in &folders {
        steps.extend(unknown(root, folder, tables, &known, severity));
        for (table, engine) in &tables.engines {
            let definition = tables.definitions.get(&table.to_ascii_lowercase());
            let is_wrong = definition.is_some_and(|it| it.is_of_another_engine(*engine));
            if is_wrong && !seen.contains(&(folder.as_str(), table.as_str())) {
                let file = format!("{table}.frm");
                steps.push(told(folder, &file, severity, Kind::Misplaced, OF_ANOTHER_ENGINE));
            }
        }
        for table in &tables.of_aria {
            if !tables.definitions.contains_key(&table.to_ascii_lowercase()) {
                let detail = "the files of this table are here, and its definition is not";
                let file = format!("{table}.frm");
                steps.push(told(folder, &file, Severity::Suspect, Kind::Missing, detail));
            }
        }
        for table in tables.partitions.keys() {
            let definition = tables.definitions.get(&table.to_ascii_lowercase());
            let is_asked = definition.is_some_and(|it| !WITHOUT_PARTITIONS.contains(&it.version));
            if is_asked && !tables.with_partitions.contains(table) {
                let detail = "this table has partitions, and what names them is not here";
                let file = format!("{table}.par");
                steps.push(told(folder, &file, severity, Kind::Missing, detail));
            }
        }
    }
    steps
}

/// Tables with their files that the dictionary does not know.
fn unknown(
    root: &Path,
    folder: &str,
    tables: &Tables,
    known: &BTreeSet<String>,
    severity: Severity,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for (table, engine) in tables.engines.iter().filter(|_| !known.is_empty()) {
        let definition = tables.definitions.get(&table.to_ascii_lowercase());
        let is_innodb = *engine == INNODB && definition.is_some_and(|it| it.engine == INNODB);
        if is_innodb && !known.contains(&format!("{folder}/{table}").to_ascii_lowercase()) {
            // What FLUSH TABLES ... FOR EXPORT makes for ALTER TABLE ... IMPORT TABLESPACE.
            let is_export = root.join(folder).join(format!("{table}.cfg")).exists();
            let severity = if is_export { Severity::Suspect } else { severity };
            let file = format!("{table}.ibd");
            steps.push(told_with(folder, &file, severity, Kind::Stale, UNKNOWN, UNKNOWN_HINT));
        }
    }
    steps
}

fn look_into(path: &Path, folder: &str, steps: &mut Vec<Step>) -> Tables {
    let mut tables = Tables::default();
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| !is_temporary(name)).collect();
    names.sort();
    for name in &names {
        let Some((stem, ending)) = name.rsplit_once('.') else { continue };
        let table = table_of(stem).to_owned();
        let partition = partition_of(stem);
        let engine = ENGINES.iter().find(|(its, _)| *its == ending && stem == table);
        match (ending, partition) {
            ("ibd" | "isl" | "MAD" | "MYD" | "CSV" | "ARZ", Some(partition)) => {
                tables.partitions.entry(table.clone()).or_default().insert(partition);
            }
            ("MAI", None) => drop(tables.of_aria.insert(table.clone())),
            _ => {}
        }
        if let Some((_, engine)) = engine {
            tables.engines.insert(table, *engine);
        }
    }
    for name in &names {
        let Some((stem, ending)) = name.rsplit_once('.') else { continue };
        if !matches!(ending, "frm" | "par") {
            continue;
        }
        let bytes = read_small(&path.join(name), BYTES_MAX);
        let flaw = match (&bytes, ending) {
            (None, _) => {
                let error = "this definition of a table cannot be read";
                steps.push(Step::Unread(Unread::of_file(format!("{folder}/{name}"), error)));
                None
            }
            (Some(bytes), "frm") => flaw_of_definition(bytes),
            (Some(bytes), _) => flaw_of_partitions(bytes, tables.partitions.get(stem)),
        };
        if let Some((kind, detail)) = flaw {
            steps.push(told(folder, name, Severity::Damage, kind, detail));
        }
        let sound = bytes.as_deref().filter(|bytes| flaw.is_none() && bytes.starts_with(&MAGIC));
        let definition = sound.map_or_else(Definition::default, |bytes| Definition {
            version: version_of(bytes),
            engine: bytes.get(ENGINE).copied().unwrap_or(0),
        });
        match ending {
            "frm" => drop(tables.definitions.insert(stem.to_ascii_lowercase(), definition)),
            _ => drop(tables.with_partitions.insert(stem.to_owned())),
        }
    }
    tables
}

fn told(folder: &str, file: &str, severity: Severity, kind: Kind, detail: &str) -> Step {
    told_with(folder, file, severity, kind, detail, HINT)
}

fn told_with(
    folder: &str,
    file: &str,
    severity: Severity,
    kind: Kind,
    detail: &str,
    hint: &'static str,
) -> Step {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let finding = Finding::of_file(&format!("{folder}/{file}"), severity, kind, detail.to_owned())
        .about(Some(&names::decoded(folder)), Some(&names::object(folder, stem)));
    Step::Finding(finding.with_hint(hint))
}

/// The table that a file is of: without partition and inner index.
fn table_of(stem: &str) -> &str {
    let table = names::parts(stem).table;
    // ASCII lower case keeps places.
    let end = table.to_ascii_lowercase().find(INNER);
    end.and_then(|end| table.get(..end)).unwrap_or(table)
}

/// The partition in the name of a file, in lower case; of one that is being changed none.
fn partition_of(stem: &str) -> Option<String> {
    let lower = stem.to_ascii_lowercase();
    let at = lower.find(PARTITION)?.checked_add(PARTITION.len())?;
    let partition = lower.get(at..)?;
    let is_passing = ["#tmp#", "#ren#"].iter().any(|mark| partition.ends_with(mark));
    (!is_passing).then(|| partition.split(INNER).next().unwrap_or_default().to_owned())
}

/// A table that InnoDB made by itself, for an index of words.
fn is_of_words(table: &str) -> bool {
    const DIGITS: usize = 16;
    let digits = table.strip_prefix("FTS_").and_then(|rest| rest.get(..DIGITS));
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn u16_of(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_le_bytes(*field))
}

fn u32_of(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|field| u32::from_le_bytes(*field))
}

fn version_of(bytes: &[u8]) -> u32 {
    const VERSION: usize = 51;
    u32_of(bytes, VERSION).unwrap_or(0)
}

fn flaw_of_definition(bytes: &[u8]) -> Option<(Kind, &'static str)> {
    if bytes.starts_with(TEXT) {
        let flaw = (Kind::Header, "the text of a view, with bytes in it that no text has");
        return bytes.contains(&0).then_some(flaw);
    }
    if !bytes.starts_with(&MAGIC) {
        return Some((Kind::Header, "not the definition of a table or of a view"));
    }
    let cut = Some((Kind::Truncated, "it ends before this definition of a table does"));
    let Some((form, needed)) = form_and_bytes(bytes) else { return cut };
    match u16_of(bytes, form) {
        Some(..FORM_BYTES_MIN) => {
            Some((Kind::Header, "where the form of the table should be there is none"))
        }
        Some(_) => cut.filter(|_| bytes.len() < needed),
        None => cut,
    }
}

/// Where a definition has its form, and the bytes that it has at least.
fn form_and_bytes(bytes: &[u8]) -> Option<(usize, usize)> {
    const KEYS_BYTES_LONG: u16 = u16::MAX;
    let number = |at| usize::try_from(u32_of(bytes, at)?).ok();
    let short = |at| u16_of(bytes, at).map(usize::from);
    let form = number(HEADER_BYTES.checked_add(short(4)?)?)?;
    let keys = match u16_of(bytes, 14)? {
        KEYS_BYTES_LONG => number(47)?,
        keys => usize::from(keys),
    };
    let row_end = short(6)?.checked_add(keys)?.checked_add(short(16)?)?;
    let form_end = form.checked_add(short(form)?)?;
    let length = if version_of(bytes) < FIRST_WITH_LENGTH { 0 } else { number(10)? };
    Some((form, row_end.max(form_end).max(length)))
}

fn flaw_of_partitions(
    bytes: &[u8],
    files: Option<&BTreeSet<String>>,
) -> Option<(Kind, &'static str)> {
    let words = usize::try_from(u32_of(bytes, 0).unwrap_or(0)).ok();
    let summed = words.and_then(|words| bytes.get(..words.checked_mul(WORD)?));
    let Some(summed) = summed else {
        return Some((Kind::Truncated, "it ends before these names of partitions do"));
    };
    let sum = summed.as_chunks::<WORD>().0.iter();
    if summed.is_empty() || sum.fold(0, |sum, word| sum ^ u32::from_le_bytes(*word)) != 0 {
        return Some((Kind::Checksum, "the sum of these names of partitions does not match"));
    }
    let named = partitions(bytes).unwrap_or_default();
    let is_of_another = files.is_some_and(|files| named.is_disjoint(files));
    is_of_another.then_some((
        Kind::Misplaced,
        "it names none of the partitions of this table: it is that of another one",
    ))
}

/// The partitions that a file names, in lower case.
fn partitions(bytes: &[u8]) -> Option<BTreeSet<String>> {
    const KINDS: usize = 12;
    let count = usize::try_from(u32_of(bytes, 8)?).ok()?;
    let at = KINDS.checked_add(count.checked_next_multiple_of(WORD)?)?;
    let begin = at.checked_add(WORD)?;
    let end = begin.checked_add(usize::try_from(u32_of(bytes, at)?).ok()?)?;
    let names = bytes.get(begin..end.min(bytes.len()))?.split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    Some(names.map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect())
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    /// As MariaDB 10.11 lays one out: keys at 4096, a row of 20 bytes, the form at 8192.
    fn definition(version: u32) -> Vec<u8> {
        let mut bytes = vec![0; 8192 + 354];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[4] = 3;
        bytes[6..8].copy_from_slice(&4096_u16.to_le_bytes());
        bytes[10..14].copy_from_slice(&(8192_u32 + 354).to_le_bytes());
        bytes[3] = INNODB;
        bytes[14] = 40;
        bytes[16] = 20;
        bytes[51..55].copy_from_slice(&version.to_le_bytes());
        bytes[67..71].copy_from_slice(&8192_u32.to_le_bytes());
        bytes[8192..8194].copy_from_slice(&354_u16.to_le_bytes());
        bytes
    }

    fn partition_file(names: &[&str]) -> Vec<u8> {
        let names: Vec<u8> =
            names.iter().flat_map(|name| [name.as_bytes(), &[0]].concat()).collect();
        let mut bytes = vec![0; 12];
        bytes[8] = 2;
        bytes.extend([12, 12, 0, 0]);
        bytes.extend(u32::try_from(names.len()).unwrap().to_le_bytes());
        bytes.extend(names);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes[0] = u8::try_from(bytes.len() / WORD).unwrap();
        let words = bytes.as_chunks::<WORD>().0.iter();
        let sum = words.fold(0, |sum, word| sum ^ u32::from_le_bytes(*word));
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn found(root: &Path, named: &[&str], is_atomic: bool) -> Vec<(String, Kind, Severity)> {
        let named: Vec<_> = named.iter().map(|name| format!("shop/{name}")).collect();
        let steps = steps(root, &named, is_atomic).into_iter();
        steps
            .map(|step| match step {
                Step::Finding(it) => (it.place.file, it.kind, it.severity),
                _ => panic!(),
            })
            .collect()
    }

    #[test]
    fn definitions_that_no_server_reads_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let shop = folder.path().join("shop");
        fs::create_dir(&shop).unwrap();
        let write = |bytes: &[u8]| fs::write(shop.join("t.frm"), bytes).unwrap();
        let kind = || found(folder.path(), &["t"], true).first().map(|it| it.1);
        let whole = definition(101_100);
        write(&whole);
        assert_eq!(kind(), None);
        for (bytes, expected) in [
            (vec![], Kind::Header),
            (vec![0; 9000], Kind::Header),
            (b"TYPE=VIEW\nquery=select 1\0\0\0".to_vec(), Kind::Header),
            (whole[..60].to_vec(), Kind::Truncated),
            (whole[..whole.len() - 1].to_vec(), Kind::Truncated),
            (definition(50_509)[..8192 + 353].to_vec(), Kind::Truncated),
            ([&whole[..2048], &[0; 8192 + 354 - 2048]].concat(), Kind::Header),
            ([&whole[..3], &[9], &whole[4..]].concat(), Kind::Misplaced),
        ] {
            write(&bytes);
            assert_eq!(kind(), Some(expected), "{} bytes", bytes.len());
        }
        // MySQL 5.5 has another length in its header.
        let old = definition(50_509);
        write(&[&old[..10], &[0xff; 4], &old[14..]].concat());
        assert_eq!(kind(), None);
        write(b"TYPE=VIEW\nquery=select 1\n");
        assert_eq!(kind(), None);
    }

    #[test]
    fn tables_without_their_definitions_are_missing_them() {
        let folder = tempfile::tempdir().unwrap();
        let shop = folder.path().join("shop");
        fs::create_dir(&shop).unwrap();
        let write = |name: &str| fs::write(shop.join(name), definition(101_100)).unwrap();
        // A directory that has none needs none.
        assert_eq!(found(folder.path(), &["gone"], true), []);
        write("Here.frm");
        let all = ["here", "gone#P#p0", "gone#P#p1", "here#i#01", "FTS_0000000000000123_CONFIG"];
        let missing = |name: &str, severity| (format!("shop/{name}"), Kind::Missing, severity);
        assert_eq!(found(folder.path(), &all, true), [missing("gone.frm", Severity::Damage)]);
        assert_eq!(found(folder.path(), &all, false), [missing("gone.frm", Severity::Suspect)]);
        // By its file, without a dictionary.
        fs::write(shop.join("here.MAI"), "").unwrap();
        write("here.frm");
        let misplaced = ("shop/here.frm".to_owned(), Kind::Misplaced, Severity::Damage);
        assert_eq!(found(folder.path(), &[], true), [misplaced]);
        fs::remove_file(shop.join("here.MAI")).unwrap();
        fs::write(shop.join("aria.MAI"), "").unwrap();
        fs::write(shop.join("#sql-1.MAI"), "").unwrap();
        assert_eq!(found(folder.path(), &[], true), [missing("aria.frm", Severity::Suspect)]);
    }

    #[test]
    fn names_of_partitions_have_a_sum_and_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let shop = folder.path().join("shop");
        fs::create_dir(&shop).unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(shop.join(name), bytes).unwrap();
        write("t.frm", &definition(101_100));
        write("t#P#p0#SP#s0.ibd", &[]);
        write("t#P#pMax.isl", &[]);
        let kinds =
            || -> Vec<_> { found(folder.path(), &[], true).iter().map(|it| it.1).collect() };
        assert_eq!(kinds(), [Kind::Missing]);
        let whole = partition_file(&["p0#SP#s0", "pMax"]);
        write("t.par", &whole);
        assert_eq!(kinds(), []);
        // Partitions of which some are in the system tablespace.
        write("t.par", &partition_file(&["inside", "pMax"]));
        assert_eq!(kinds(), []);
        write("t.par", &partition_file(&["p0", "p1"]));
        assert_eq!(kinds(), [Kind::Misplaced]);
        write("t.par", &whole[..whole.len() - 1]);
        assert_eq!(kinds(), [Kind::Truncated]);
        for bytes in [vec![0; whole.len()], [&whole[..9], &[1], &whole[10..]].concat()] {
            write("t.par", &bytes);
            assert_eq!(kinds(), [Kind::Checksum]);
        }
        // MySQL 5.7 keeps the names in the definition.
        fs::remove_file(shop.join("t.par")).unwrap();
        write("t.frm", &definition(50_744));
        assert_eq!(kinds(), []);
    }
}
