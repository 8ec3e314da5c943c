//! How far a comparison has come, in a file, so that a run can resume one that was killed.
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

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use pagewarden::system::Errno;
use pagewarden::system::fs::{Mode as FileMode, OFlags, fchmod};
use pagewarden::system::process::geteuid;
use pagewarden::system::{MetadataExt as _, OpenOptionsExt as _};

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use super::plan::Plan;
use super::report::Found;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::row::FORM_VERSION;
use crate::table::{Table, TableName};

mod known;
mod lines;

pub(super) use known::{Known, Reached};
use known::{Said, TableKey};
use lines::{Begin, Line, Lines, chained};
pub(super) use lines::{Bound, Buckets, Chunk, PartNumber};

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
    /// How parts are compared.
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

/// Opens the file, or makes it: a regular one of this user, which others can neither read nor
/// write from then on. Another user may have made it first, or a link in its place.
fn open_own(path: &Path) -> std::result::Result<File, String> {
    let said = |error: std::io::Error| error.to_string();
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = match options.open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err("it is a link\nhint: name the file itself".to_owned());
        }
        opened => opened.map_err(said)?,
    };
    let found = file.metadata().map_err(said)?;
    if !found.is_file() {
        return Err("it is no file".to_owned());
    }
    if found.uid() != geteuid().as_raw() {
        return Err("it belongs to another user, who could read the rows that differ\n\
                    hint: name a file in a folder of your own"
            .to_owned());
    }
    if found.mode() & 0o077 != 0 {
        fchmod(&file, FileMode::RUSR | FileMode::WUSR).map_err(|error| said(error.into()))?;
    }
    Ok(file)
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

/// Makes a new file's name last as its content does.
fn sync_folder_of(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
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
        let mut file = open_own(path).map_err(|reason| fail(&reason))?;
        match file.try_lock() {
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
            state.begin(asked)?;
            sync_folder_of(path).map_err(cannot)?;
            return Ok(state);
        }
        let mut lines = Lines::of(&bytes);
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

    /// Writes what is compared, as the first line.
    fn begin(&self, asked: &Asked) -> Result<()> {
        self.append(&Line::Begin(Begin {
            pagewarden_compare_state: VERSION,
            form_version: FORM_VERSION,
            begun: self.begun,
            asked: asked.clone(),
        }))
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

/// A word for how two tables are made and what of them is compared: a run does not resume what
/// was summed under another.
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

#[cfg(test)]
mod tests;
