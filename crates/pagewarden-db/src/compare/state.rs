//! How far a comparison has come, in a file, so that one that was killed goes on where it was.
//!
//! The file is lines, each appended and synced once what it says is done:
//!
//! | part of a line | what |
//! |---|---|
//! | CRC | CRC-32 of the CRC before (0 at first) and of the JSON, 8 hexadecimal digits |
//! | one blank | |
//! | JSON | an object of one field, its kind |
//!
//! | kind | says |
//! |---|---|
//! | `begin` | the version, what was asked for, when the run began; the first line, and no other |
//! | `table` | a table begins, anew if it was known: its number, the target, its name, its fingerprint |
//! | `mode` | looking at rows has shown in which way the table is to be compared, and why |
//! | `chunk` | rows between two keys were summed on both sides: bounds, counts, sums, by whom, and which parts of it are not equal: all of it, or what smaller sums have left |
//! | `buckets` | a table without ranges was read: counts, and the buckets that differ, in groups |
//! | `settled` | what came of a part of a chunk, or of a group, that was not equal at once |
//!
//! Since each CRC goes on from the one before, no line is altered, moved or missing
//! unnoticed. The first that does not fit ends the file: what it said is done again. So is
//! what was not equal and has no `settled`, but for its sums.
//!
//! Rows that differ are in the file with their values: only its owner may read it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::look::{BUCKETS, Scope};
use super::map::PartMap;
use super::mode::{Look, Mode};
use super::plan::Plan;
use super::report::Found;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::row::{FORM_VERSION, Tag, Value, hex_text};
use crate::table::{Table, TableName};

/// The version of the file's form. Files of others are refused.
pub const VERSION: u32 = 1;
/// Nothing that a comparison writes is so long.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// What was asked for: a state is good for the same only.
///
/// How long rows may keep changing, how fast is read and how much at a time may be
/// another the next time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The source, without its password.
    pub source: String,
    /// The targets, without their passwords.
    pub targets: Vec<String>,
    /// The tables by their names.
    pub tables: Vec<String>,
    /// Tables that are left out.
    pub excluded_tables: Vec<String>,
    /// Columns that are left out.
    pub excluded_columns: Vec<String>,
    /// How many rows that differ are listed of a table.
    pub differences: usize,
    /// How parts are held against each other.
    pub mode: Mode,
}

impl Asked {
    /// What is not the same, in the words of the command line.
    fn differs(&self, other: &Self) -> Vec<&'static str> {
        let parts = [
            ("source", self.source == other.source),
            ("targets", self.targets == other.targets),
            ("--table", self.tables == other.tables),
            ("--exclude-table", self.excluded_tables == other.excluded_tables),
            ("--exclude-column", self.excluded_columns == other.excluded_columns),
            ("--differences", self.differences == other.differences),
            ("--mode", self.mode == other.mode),
        ];
        parts.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect()
    }
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Begin {
    pagewarden_compare_state: u32,
    form_version: u8,
    begun: u64,
    asked: Asked,
}

/// The number of a chunk or of a group of buckets, and of what of it is not equal.
pub(super) type PartNumber = (u64, u64);

/// A key, or none at the begin or the end of the table.
pub(super) type Bound = Option<Vec<Value>>;

/// A range of keys that was summed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    /// Its number, from 0 on.
    pub number: u64,
    /// The key before it: where the chunk before ends.
    pub after: Bound,
    /// Its last key.
    pub upto: Bound,
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// The sum of the source's.
    pub sum_source: String,
    /// The sum of the target's.
    pub sum_target: String,
    /// By whom it was summed.
    pub mode: Mode,
    /// The bytes of both that were read.
    pub bytes: u64,
    /// The parts of it that are not equal, by their bounds. A `settled` follows for each.
    pub unequal: Vec<(Bound, Bound)>,
}

impl Chunk {
    /// A chunk, by what was seen of it.
    pub fn new(number: u64, bounds: (Bound, Bound), look: &Look, unequal: &[Scope]) -> Self {
        let [sum_source, sum_target] = look.sums.clone();
        let ranges = unequal.iter().filter_map(|scope| match scope {
            Scope::Range { after, upto } => Some((after.clone(), upto.clone())),
            Scope::Buckets(_) => None,
        });
        Self {
            number,
            after: bounds.0,
            upto: bounds.1,
            rows_source: look.rows_source,
            rows_target: look.rows_target,
            sum_source,
            sum_target,
            mode: look.mode,
            bytes: look.bytes,
            unequal: ranges.collect(),
        }
    }
}

/// All buckets of a table without ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Buckets {
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// The rows of the map's tiles, on the side that has more.
    pub rows_of_tiles: Vec<u64>,
    /// Those that differ and are looked at together. A `settled` follows for each group.
    pub groups: Vec<Vec<usize>>,
    /// True if more differ.
    pub at_least: bool,
}

/// Parts of a table are named by its number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Begin(Begin),
    Table { number: u64, target: String, schema: Option<String>, name: String, fingerprint: String },
    Mode(u64, Mode, String),
    Chunk(u64, Chunk),
    Buckets(u64, Buckets),
    Settled(u64, PartNumber, Found),
}

/// Up to where a table was summed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Reached {
    /// Nothing was.
    #[default]
    Begin,
    /// Up to a key.
    Key(Vec<Value>),
    /// All of it was.
    End,
}

/// What an earlier run has found out about a table.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    number: u64,
    fingerprint: String,
    /// The chunks.
    pub chunks: u64,
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// Up to where it came.
    pub reached: Reached,
    /// In which way it is compared, and why, where rows have shown it.
    pub choice: Option<(Mode, String)>,
    /// Its parts.
    pub map: PartMap,
    /// What was not equal and is not settled.
    pub open: BTreeMap<PartNumber, Scope>,
    /// What came of the rest, in the order in which it was settled.
    pub settled: Vec<Found>,
    /// True if more differs than was looked at.
    pub at_least: bool,
}

impl Known {
    /// True if nothing of the table is left to be read.
    pub fn is_finished(&self) -> bool {
        self.reached == Reached::End && self.open.is_empty()
    }

    /// What is said of the table.
    pub fn note(&self, is_anew: bool) -> Option<String> {
        if is_anew {
            let note = "its definition has changed since an earlier run: all of it is read again";
            return Some(note.to_owned());
        }
        if self.is_finished() {
            return Some("an earlier run has finished it: nothing is read again".to_owned());
        }
        let chunks = self.chunks;
        (chunks > 0).then(|| format!("goes on after {chunks} parts of an earlier run"))
    }

    /// Takes a chunk in; false if it is not the next one.
    fn chunk(&mut self, chunk: Chunk) -> bool {
        let begin = match &self.reached {
            Reached::Begin => None,
            Reached::Key(key) => Some(key),
            Reached::End => return false,
        };
        if chunk.number != self.chunks || chunk.after.as_ref() != begin {
            return false;
        }
        self.count(chunk.rows_source, chunk.rows_target, chunk.bytes);
        self.map.add(chunk.rows_source.max(chunk.rows_target));
        self.chunks += 1;
        self.reached = chunk.upto.map_or(Reached::End, Reached::Key);
        for (piece, (after, upto)) in (0..).zip(chunk.unequal) {
            self.open.insert((chunk.number, piece), Scope::Range { after, upto });
        }
        true
    }

    fn buckets(&mut self, buckets: Buckets) -> bool {
        let map = PartMap::of_tiles(BUCKETS as u64, &buckets.rows_of_tiles);
        let (Reached::Begin, Some(map)) = (&self.reached, map) else { return false };
        self.map = map;
        self.count(buckets.rows_source, buckets.rows_target, buckets.bytes);
        self.chunks = BUCKETS as u64;
        self.reached = Reached::End;
        self.at_least = buckets.at_least;
        let groups = buckets.groups.into_iter().map(|group| group.into_iter().collect());
        let numbered = (0..).map(|group| (group, 0)).zip(groups.map(Scope::Buckets));
        self.open = numbered.collect();
        true
    }

    fn count(&mut self, rows_source: u64, rows_target: u64, bytes: u64) {
        self.rows_source = self.rows_source.saturating_add(rows_source);
        self.rows_target = self.rows_target.saturating_add(rows_target);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A table of a target.
type TableKey = (String, TableName);

/// What the file said when it was opened.
#[derive(Debug, Default)]
struct Said {
    tables: HashMap<TableKey, Known>,
    keys: Vec<TableKey>,
}

impl Said {
    /// Takes a line in; false if it does not follow from those before.
    fn take(&mut self, line: Line) -> bool {
        match line {
            Line::Begin(_) => false,
            Line::Table { number, target, schema, name, fingerprint } => {
                let is_next = usize::try_from(number).is_ok_and(|number| number == self.keys.len());
                let key = (target, TableName { schema, name });
                self.keys.push(key.clone());
                self.tables.insert(key, Known { number, fingerprint, ..Known::default() });
                is_next
            }
            Line::Mode(number, mode, because) => self.table(number).is_some_and(|table| {
                table.choice = Some((mode, because));
                true
            }),
            Line::Chunk(number, chunk) => {
                self.table(number).is_some_and(|table| table.chunk(chunk))
            }
            Line::Buckets(number, buckets) => {
                self.table(number).is_some_and(|table| table.buckets(buckets))
            }
            Line::Settled(number, part, found) => self.table(number).is_some_and(|table| {
                table.settled.push(found);
                table.open.remove(&part).is_some()
            }),
        }
    }

    fn table(&mut self, number: u64) -> Option<&mut Known> {
        let key = self.keys.get(usize::try_from(number).ok()?)?;
        self.tables.get_mut(key).filter(|table| table.number == number)
    }
}

/// The file of a run.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    /// When the first of its runs began, in seconds of Unix time.
    pub begun: u64,
    /// True if an earlier run had begun it.
    pub is_resumed: bool,
    /// What is odd about the file.
    pub warning: Option<String>,
    writer: Mutex<Writer>,
    tables: Mutex<HashMap<TableKey, Known>>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    crc: u32,
    tables: u64,
}

impl State {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// It is no state, or one of something else that was asked for, or another run has it
    /// open; the file is left as it was.
    pub fn open(path: &Path, asked: &Asked) -> Result<Self> {
        let fail = |reason: &str| Error::State(format!("{}: {reason}", path.display()));
        let cannot = |error: std::io::Error| fail(&error.to_string());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(cannot)?;
        let is_file = file.metadata().map_err(cannot)?.is_file();
        match file.try_lock() {
            _ if !is_file => return Err(fail("it is no file")),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(fail("another run has it open")),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
        let mut bytes = Vec::new();
        (&file).take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(cannot)?;
        let mut state = Self {
            path: path.to_owned(),
            begun: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            is_resumed: !bytes.is_empty(),
            warning: None,
            writer: Mutex::new(Writer {
                file: file.try_clone().map_err(cannot)?,
                crc: 0,
                tables: 0,
            }),
            tables: Mutex::default(),
        };
        if bytes.is_empty() {
            let begin = Begin {
                pagewarden_compare_state: VERSION,
                form_version: FORM_VERSION,
                begun: state.begun,
                asked: asked.clone(),
            };
            state.append(&Line::Begin(begin))?;
            // The name must last as the line does.
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(cannot)?;
            folder.sync_all().map_err(cannot)?;
            return Ok(state);
        }
        let mut lines = Lines { rest: &bytes, crc: 0, good_bytes: 0 };
        let begin = match lines.next() {
            Some(Line::Begin(begin)) => begin,
            _ => return Err(fail("it is not the state of a comparison\nhint: name a new file")),
        };
        if begin.pagewarden_compare_state != VERSION || begin.form_version != FORM_VERSION {
            let reason = "another version of the program made it\nhint: remove it to begin anew";
            return Err(fail(reason));
        }
        let differs = begin.asked.differs(asked);
        if !differs.is_empty() {
            return Err(fail(&format!(
                "it is the state of another comparison: not the same are {}\n\
                 hint: name another file, or remove it to begin anew",
                differs.join(", ")
            )));
        }
        state.begun = begin.begun;
        let mut said = Said::default();
        let (mut good, mut crc) = (lines.good_bytes, lines.crc);
        while let Some(line) = lines.next() {
            if !said.take(line) {
                break;
            }
            (good, crc) = (lines.good_bytes, lines.crc);
        }
        let cut = (bytes.len() as u64).saturating_sub(good);
        if cut > 0 {
            state.warning = Some(format!(
                "{}: its last {cut} bytes are cut or altered; what they said is done again",
                path.display()
            ));
            file.set_len(good).and_then(|()| file.sync_all()).map_err(cannot)?;
        }
        file.seek(SeekFrom::Start(good)).map_err(cannot)?;
        let tables = said.keys.len() as u64;
        state.writer = Mutex::new(Writer { file, crc, tables });
        state.tables = Mutex::new(said.tables);
        Ok(state)
    }

    /// What is known of a table, and where more is written of it. A table whose definition
    /// is not what it was begins anew.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn table(
        &self,
        target: &str,
        name: &TableName,
        fingerprint: String,
    ) -> Result<(TableState<'_>, Known, bool)> {
        let key = (target.to_owned(), name.clone());
        let known = self.tables.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let was_known = known.is_some();
        if let Some(known) = known.filter(|known| known.fingerprint == fingerprint) {
            return Ok((TableState { state: self, number: known.number }, known, false));
        }
        let number = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let number = writer.tables;
            writer.tables += 1;
            let (schema, name) = (name.schema.clone(), name.name.clone());
            let target = target.to_owned();
            self.append_to(
                &mut writer,
                &Line::Table { number, target, schema, name, fingerprint },
            )?;
            number
        };
        Ok((TableState { state: self, number }, Known::default(), was_known))
    }

    fn append(&self, line: &Line) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        self.append_to(&mut writer, line)
    }

    fn append_to(&self, writer: &mut Writer, line: &Line) -> Result<()> {
        let fail = |error: &dyn std::fmt::Display| {
            Error::State(format!("cannot write {}: {error}", self.path.display()))
        };
        let json = serde_json::to_string(line).map_err(|error| fail(&error))?;
        let crc = chained(writer.crc, json.as_bytes());
        writer
            .file
            .write_all(format!("{crc:08x} {json}\n").as_bytes())
            .and_then(|()| writer.file.sync_data())
            .map_err(|error| fail(&error))?;
        writer.crc = crc;
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // A child that is being started may hold a copy of the descriptor, and by it the lock.
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.file.unlock();
    }
}

/// Where it is written what comes of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableState<'a> {
    state: &'a State,
    number: u64,
}

impl TableState<'_> {
    /// The table is compared in this way from here on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn mode(&self, mode: Mode, because: &str) -> Result<()> {
        self.state.append(&Line::Mode(self.number, mode, because.to_owned()))
    }

    /// A chunk was summed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn chunk(&self, chunk: Chunk) -> Result<()> {
        self.state.append(&Line::Chunk(self.number, chunk))
    }

    /// All buckets were summed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn buckets(&self, buckets: Buckets) -> Result<()> {
        self.state.append(&Line::Buckets(self.number, buckets))
    }

    /// All is known of a part that was not equal.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn settled(&self, part: PartNumber, found: &Found) -> Result<()> {
        self.state.append(&Line::Settled(self.number, part, found.clone()))
    }
}

/// A database in the words of a state.
pub fn place(location: &Location) -> String {
    let schema = location.schema.as_ref().map(|schema| format!(" schema={schema}"));
    format!("{location}{}", schema.unwrap_or_default())
}

/// A word for how two tables are made and what of them is compared: what was summed under
/// another cannot be gone on with.
pub(super) fn fingerprint(source: &Table, target: &Table, plan: &Plan) -> String {
    let table = |table: &Table| format!("{:?} {:?} {:?}", table.engine, table.columns, table.key);
    let text = format!(
        "{FORM_VERSION} {} {} {:?} {:?} {:?} {} {}",
        table(source),
        table(target),
        plan.columns,
        plan.source,
        plan.target,
        plan.key_count,
        plan.has_ranges
    );
    blake3::hash(text.as_bytes()).to_hex().chars().take(32).collect()
}

fn chained(before: u32, json: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    digest.update(&before.to_le_bytes());
    digest.update(json);
    // The upper half is empty.
    u32::try_from(digest.finalize()).unwrap_or(0)
}

/// The lines of a file, up to the first that does not fit.
struct Lines<'a> {
    rest: &'a [u8],
    crc: u32,
    good_bytes: u64,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = (self.rest.get(..end)?, self.rest.get(end + 1..)?);
        let (crc, json) = line.split_at_checked(9)?;
        let expected = chained(self.crc, json);
        if crc != format!("{expected:08x} ").as_bytes() {
            return None;
        }
        let line = serde_json::from_slice(json).ok()?;
        self.crc = expected;
        self.good_bytes += end as u64 + 1;
        self.rest = rest;
        Some(line)
    }
}

/// A value is its tag's letter, then `:` and its text or, where it is none, `#` and
/// hexadecimal digits.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let letter = char::from(self.tag.byte());
        let text = match std::str::from_utf8(&self.payload) {
            Ok(text) => format!("{letter}:{text}"),
            Err(_) => format!("{letter}#{}", hex_text(&self.payload)),
        };
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = || {
            let (letter, rest) = text.split_at_checked(1)?;
            let tag = letter.bytes().next().map(Tag::of)?;
            let payload = match rest.strip_prefix(':') {
                Some(text) => text.as_bytes().to_vec(),
                None => bytes_of_hex(rest.strip_prefix('#')?)?,
            };
            Some(Self { tag, payload })
        };
        value().ok_or_else(|| de::Error::custom("no value of a row"))
    }
}

fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect()
}

#[cfg(test)]
mod tests;
