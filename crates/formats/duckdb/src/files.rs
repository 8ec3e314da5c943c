//! What a DuckDB file is, what must be in it, and what the files beside it mean.
//!
//! | | |
//! |---|---|
//! | a header whose sum does not fit | damage: DuckDB does not open the file |
//! | the file ends before its last block in use | damage; free blocks at its end may be cut off |
//! | bytes behind the last block that the header counts | no part of the database |
//! | `.wal` and other logs beside it | named, not judged |
//! | encrypted | only the main header can be tested without the key |
//!
//! DuckDB locks the file with `fcntl` while it is open. A checkpoint writes blocks that are free,
//! then the database header that is older: what the newer header says is in use never changes
//! before the other header takes its place.

#![deny(clippy::arithmetic_side_effects)]

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::FORMAT;
use crate::checksum::{computed_sum, fits, stored_sum};
use crate::page::{DuckDbPages, InUse, InUseNow, flip_in_words};
use pagewarden_core::database::{
    Description, Epoch, Evidence, OpenOptions, PageFile, Probe, Step, Target,
};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_anything, read_fully};
use pagewarden_core::source::hold;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Note, PageNo, Protection, Severity};
use pagewarden_core::words::{bytes, counted};

pub mod header;
#[cfg(test)]
mod tests;

use header::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, HEADER_BYTES, HEADERS_BYTES, Headers};

const HINT: &str = "restore the file from a backup, with the .wal file that belongs to it";
/// A checkpoint may change the headers while they are read, but not each time.
const LOOKS_MAX: usize = 5;

pub(super) fn probe(path: &Path, metadata: &Metadata) -> Probe {
    if !metadata.is_file() {
        return Probe::No;
    }
    match open_anything(path).and_then(|file| Headers::read(&file)) {
        Ok(headers) if headers.has_magic() => Probe::Yes,
        Ok(headers) if headers.has_lost_its_magic() => Probe::Maybe,
        _ => Probe::No,
    }
}

pub(super) fn open(path: &Path, metadata: &Metadata, _: &OpenOptions) -> Result<Target, Error> {
    if !metadata.is_file() {
        return Err(Error::unrecognised(
            path,
            "not a file",
            "a DuckDB database is one file: name it",
        ));
    }
    let file = open_anything(path).map_err(|source| Error::io("open", path, source))?;
    let state = State::of(&file).map_err(|source| Error::io("read", path, source))?;
    if !state.headers.has_magic() && !state.headers.has_lost_its_magic() {
        return Err(Error::unrecognised(
            path,
            "its headers are not those of a DuckDB database",
            "if it was one, its headers are destroyed: restore the file from a backup",
        ));
    }
    Ok(Database::new(path, file, state).into_target())
}

/// The headers of a file with what they say of its blocks, read when none of it changed.
#[derive(Debug)]
struct State {
    headers: Headers,
    in_use: InUse,
    bytes: u64,
}

impl State {
    fn of(file: &File) -> io::Result<Self> {
        let mut headers = Headers::read(file)?;
        for _ in 0..LOOKS_MAX {
            let state =
                Self { in_use: headers.in_use(file), bytes: file.metadata()?.len(), headers };
            headers = Headers::read(file)?;
            if headers == state.headers {
                return Ok(state);
            }
        }
        let in_use = InUse { free: None, broken_list: None, ..headers.in_use(file) };
        Ok(Self { in_use, bytes: file.metadata()?.len(), headers })
    }

    fn block_size(&self, file: &File) -> usize {
        self.headers.block_size().unwrap_or_else(|| self.guessed_block_size(file))
    }

    /// The block size where no header says it: that of the first block whose sum fits, or one of
    /// which the file has whole blocks.
    fn guessed_block_size(&self, file: &File) -> usize {
        let sizes = || {
            let half = |size: &usize| Some(*size / 2).filter(|half| *half >= BLOCK_SIZE_MIN);
            std::iter::successors(Some(BLOCK_SIZE_MAX), half)
        };
        let mut block = vec![0; BLOCK_SIZE_MAX];
        let count = read_fully(file, &mut block, to_u64(HEADERS_BYTES)).unwrap_or(0);
        let first = block.get(..count).unwrap_or_default();
        let blocks = self.bytes.saturating_sub(to_u64(HEADERS_BYTES));
        sizes()
            .find(|size| first.get(..*size).is_some_and(fits))
            .or_else(|| sizes().find(|size| blocks.is_multiple_of(to_u64(*size))))
            .unwrap_or(BLOCK_SIZE_MAX)
    }
}

/// Asks the headers again for each block that fails while a program has the file open.
#[derive(Debug)]
struct Live {
    file: File,
    last: Mutex<Option<(Headers, InUse)>>,
}

impl InUseNow for Live {
    fn has(&self, block: u64) -> Option<bool> {
        let headers = Headers::read(&self.file).ok()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(known, _)| *known != headers) {
            let state = State::of(&self.file).ok()?;
            *last = Some((state.headers, state.in_use));
        }
        last.as_ref().and_then(|(_, in_use)| in_use.has(block))
    }
}

struct Database {
    path: PathBuf,
    name: String,
    file: File,
    state: State,
    block_size: usize,
    is_live: bool,
    /// Files beside it with changes that are not in it yet.
    logs: Vec<(String, &'static str)>,
}

impl Database {
    fn new(path: &Path, file: File, state: State) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let real_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Self {
            block_size: state.block_size(&file),
            is_live: hold::is_locked(&file),
            logs: logs_beside(&real_path),
            path: path.to_owned(),
            name,
            file,
            state,
        }
    }

    fn into_target(self) -> Target {
        let description = self.description();
        let mut steps = self.notes();
        steps.extend(self.header_findings());
        steps.extend(self.missing_blocks().map(Step::Finding));
        let now = self.is_live.then(|| self.file.try_clone().ok()).flatten();
        let now = now.map(|file| Arc::new(Live { file, last: Mutex::default() }) as _);
        let State { in_use, bytes, headers } = self.state;
        let unknown = InUse::default();
        let partial = if headers.is_encrypted() { unknown } else { in_use.clone() };
        let format = DuckDbPages {
            block_size: self.block_size,
            is_encrypted: headers.is_encrypted(),
            in_use,
            has_log: !self.logs.is_empty(),
            now,
        };
        let mut pages = PageFile::of(self.name, self.path, bytes, Arc::new(format));
        pages.first_offset = ByteOffset(to_u64(HEADERS_BYTES));
        pages.hint = Some(HINT.into());
        pages.partial_page = partial_block(&pages, &partial, self.is_live);
        steps.push(Step::File(pages));
        let file = self.file;
        let modified = file.metadata().ok().and_then(|metadata| metadata.modified().ok());
        let woken = Box::new(move || {
            hold::is_locked(&file)
                || file
                    .metadata()
                    .map_or(true, |now| now.len() != bytes || now.modified().ok() != modified)
        });
        Target { description, steps: Box::new(steps.into_iter()), woken: Some(woken) }
    }

    fn description(&self) -> Description {
        let headers = &self.state.headers;
        let mut state = Vec::new();
        if let Some(library) = headers.library() {
            state.push(format!("made by {library}"));
        }
        if let Some(version) = headers.version() {
            state.push(format!("storage version {version}"));
        }
        if headers.is_encrypted() {
            state.push("encrypted".to_owned());
        } else if let Some(free) = &self.state.in_use.free {
            let count = counted(self.state.in_use.block_count, "block");
            state.push(format!("{count}, {} of them free", free.len()));
        }
        if self.is_live {
            state.push("open in another process".to_owned());
        }
        Description {
            part: None,
            path: self.path.clone(),
            format: FORMAT.name,
            engine: "DuckDB".to_owned(),
            page_size: u32::try_from(self.block_size).unwrap_or(u32::MAX),
            setting: Some(Protection::Checksum),
            state: state.join(", "),
            evidence: match headers.is_encrypted() {
                true => Evidence {
                    tested_by: "the 64-bit sum of the main header",
                    unseen: "all damage behind the first 4 KiB of the file",
                },
                false => Evidence {
                    tested_by: "64-bit sums of the headers and of every block in use",
                    unseen: "sound blocks in the wrong place; older versions of a block; 8-byte \
                             words that change places inside a block",
                },
            },
            live: self.is_live,
            epoch: headers.iteration().map(|position| Epoch {
                database: FORMAT.name.to_owned(),
                position,
                is_at_rest: !self.is_live && self.logs.is_empty(),
            }),
        }
    }

    fn notes(&self) -> Vec<Step> {
        let note = |file: &str, text: String| Step::Note(Note { file: file.to_owned(), text });
        let mut notes = Vec::new();
        if self.state.headers.is_encrypted() {
            let text = "encrypted: without the key only the main header can be tested";
            notes.push(note(&self.name, text.to_owned()));
        }
        for (name, what) in &self.logs {
            let text = format!(
                "a {what} is there: committed changes may be in it alone. Neither it nor the blocks \
                 that only it uses are judged; keep it together with the database"
            );
            notes.push(note(name, text));
        }
        notes
    }

    /// The headers that DuckDB would refuse.
    fn header_findings(&self) -> Vec<Step> {
        let headers = &self.state.headers;
        // All but the main header need the key.
        let count = if headers.is_encrypted() { 1 } else { HEADERS_BYTES / HEADER_BYTES };
        let names = ["main header", "first database header", "second database header"];
        let broken = names.iter().enumerate().take(count).filter(|(at, _)| !headers.is_sound(*at));
        broken
            .map(|(index, name)| {
                let area = headers.area(index);
                let (kind, detail) = match area {
                    [] => (Kind::Truncated, format!("the file ends before the {name}")),
                    _ if area.len() < HEADER_BYTES => {
                        (Kind::Truncated, format!("the file ends inside the {name}"))
                    }
                    _ if area.iter().all(|byte| *byte == 0) => {
                        (Kind::Zeroed, format!("the {name} is all zero"))
                    }
                    _ => match flip_in_words(area) {
                        Some(flip) => (Kind::BitFlip, format!("in the {name}: {flip}")),
                        None => (Kind::Checksum, format!("the sum of the {name} does not fit")),
                    },
                };
                let is_whole = area.len() == HEADER_BYTES;
                let offset = ByteOffset(to_u64(index.saturating_mul(HEADER_BYTES)));
                let stored = stored_sum(area).filter(|_| is_whole);
                let computed = is_whole.then(|| computed_sum(area));
                let hex = |sum: u64| format!("{sum:016x}");
                let finding = Finding::of_file(&self.name, Severity::Damage, kind, detail)
                    .at(None, Some(offset))
                    .with_sums(stored.map(hex), computed.map(hex))
                    .with_hint(HINT);
                Step::Finding(finding)
            })
            .collect()
    }

    /// The blocks in use that the file does not have. One that is cut in the middle is reported
    /// with the blocks.
    fn missing_blocks(&self) -> Option<Finding> {
        let size = to_u64(self.block_size);
        let there = self.state.bytes.saturating_sub(to_u64(HEADERS_BYTES)).div_ceil(size.max(1));
        let end = self.state.in_use.end();
        let missing = end.checked_sub(there).filter(|missing| *missing > 0)?;
        let detail = format!(
            "the database uses blocks up to number {}, the file ends with {}: {} missing",
            end.saturating_sub(1),
            bytes(self.state.bytes),
            counted(missing, "block")
        );
        let offset = there.checked_mul(size)?.checked_add(to_u64(HEADERS_BYTES))?;
        let finding = Finding::of_file(&self.name, Severity::Damage, Kind::Truncated, detail)
            .at(Some(PageNo(there)), Some(ByteOffset(offset)))
            .with_hint(HINT);
        Some(finding)
    }
}

/// What it proves that the file ends inside a block.
fn partial_block(pages: &PageFile, in_use: &InUse, is_live: bool) -> Severity {
    match in_use.has(pages.page_count(pages.listed_bytes)) {
        Some(true) if !is_live => Severity::Damage,
        Some(true) | None => Severity::Suspect,
        Some(false) => Severity::Notice,
    }
}

/// Logs with content beside a database: their names, and what they are.
fn logs_beside(database: &Path) -> Vec<(String, &'static str)> {
    let beside = |(ending, what): &(&str, &'static str)| {
        let mut path = database.as_os_str().to_owned();
        path.push(ending);
        let path = PathBuf::from(path);
        let metadata = std::fs::symlink_metadata(&path).ok()?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        (metadata.len() > 0).then_some((name, *what))
    };
    FORMAT.sidecars.iter().filter_map(beside).collect()
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
