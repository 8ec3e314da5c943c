//! Results: the rows of the units that one process has checked.
//!
//! ```text
//! {"pagewarden_result":1,"pagewarden":"0.1.0","plan":"<hash>","part":"2/5"}
//! {"subject":0}                        rows of a unit
//! {"target":{...}}
//! {"finding":{...}}
//! {"done":{...}}
//! {"unit":{"unit":3,"rows":4,"verdict":"damaged",...},"hash":"<hash>"}
//! {"end":{"units":1},"hash":"<hash>"}
//! ```
//!
//! The hash of a unit covers the first line, the unit's rows and the line that ends it; the one of
//! the last line covers the first line and the hashes of all units. So each byte of a result is
//! covered.

use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pagewarden::database::Description;
use pagewarden::report::{Report, RunEnd, TargetEnd};
use pagewarden::verdict::{Finding, Note, PageCounts, SeverityCounts, Unread, Verdict};
use pagewarden::verify::Sink;
use serde::{Deserialize, Serialize};
use tempfile::SpooledTempFile;

use crate::error::Error;
use crate::line;
use crate::part::Part;
use crate::plan::Plan;
use crate::row::{DoneRow, FailedRow, Row, TIME_BEGIN, TargetRow, TimeRow, UnreadRow};

/// How a result begins.
pub const BEGIN: &str = "{\"pagewarden_result\":";
/// The version of the form. Another one is refused.
const VERSION: u32 = 1;
/// Rows of a unit are kept in memory up to this many bytes, and in an unnamed file beyond: they are
/// written when the unit is done.
const ROWS_IN_MEMORY: usize = 1 << 20;
/// What a user does with a result that cannot be used.
const HINT: &str = "check that part again: pagewarden check --plan PLAN --part I/N -o RESULT";

#[derive(Serialize, Deserialize)]
struct Header {
    pagewarden_result: u32,
    pagewarden: String,
    plan: String,
    part: String,
}

#[derive(Serialize, Deserialize)]
struct UnitLine {
    unit: EndOfUnit,
}

/// What ends the rows of a unit, and sums them up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndOfUnit {
    /// Which unit of the plan.
    pub unit: u64,
    /// How many lines it has before this one.
    pub rows: u64,
    /// The worst of its targets.
    pub verdict: Verdict,
    /// Pages by what they count as.
    pub pages: PageCounts,
    /// Bytes that were read.
    pub bytes: u64,
    /// Findings by severity.
    pub findings: SeverityCounts,
}

#[derive(Serialize, Deserialize)]
struct EndLine {
    end: EndOfResult,
}

#[derive(Serialize, Deserialize)]
struct EndOfResult {
    units: u64,
}

impl EndOfUnit {
    fn of(unit: u64) -> Self {
        Self {
            unit,
            rows: 0,
            // Worse is what is added.
            verdict: Verdict::Intact,
            pages: PageCounts::default(),
            bytes: 0,
            findings: SeverityCounts::default(),
        }
    }

    /// Counts a row.
    fn add(&mut self, row: &Row) -> io::Result<()> {
        self.rows += 1;
        match row {
            Row::Done(done) => {
                let verified = DoneRow::clone(done).verified(std::time::Duration::ZERO)?;
                self.verdict = self.verdict.min(verified.verdict());
                self.pages += verified.summary.pages;
                self.bytes = self.bytes.saturating_add(verified.summary.bytes);
            }
            Row::Finding(finding) => self.findings.add(finding.severity),
            Row::Failed(_) => self.verdict = self.verdict.min(Verdict::Incomplete),
            _ => {}
        }
        Ok(())
    }
}

/// Writes a result: a report like any other, between the beginning and the end of a unit.
#[derive(Debug)]
pub struct ResultWriter<W> {
    out: W,
    header: blake3::Hasher,
    hashes: Vec<String>,
    open: Option<OpenUnit>,
}

#[derive(Debug)]
struct OpenUnit {
    rows: SpooledTempFile,
    hasher: blake3::Hasher,
    end: EndOfUnit,
}

impl<W: Write> ResultWriter<W> {
    /// Begins the result of one part of a plan.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(mut out: W, plan: &Plan, part: Part) -> io::Result<Self> {
        let mut first = Vec::new();
        let header = Header {
            pagewarden_result: VERSION,
            pagewarden: pagewarden::VERSION.to_owned(),
            plan: plan.id.clone(),
            part: part.to_string(),
        };
        line::append(&mut first, &header)?;
        out.write_all(&first)?;
        let mut header = blake3::Hasher::new();
        header.update(&first);
        Ok(Self { out, header, hashes: Vec::new(), open: None })
    }

    /// Begins a unit. What an earlier one has left unfinished is dropped.
    pub fn begin_unit(&mut self, unit: u64) {
        self.open = Some(OpenUnit {
            rows: SpooledTempFile::new(ROWS_IN_MEMORY),
            hasher: self.header.clone(),
            end: EndOfUnit::of(unit),
        });
    }

    /// Begins a subject of the unit.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin_subject(&mut self, subject: u64) -> io::Result<()> {
        self.row(&Row::Subject(subject))
    }

    /// Ends the unit: it has a result now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end_unit(&mut self) -> io::Result<()> {
        let Some(mut unit) = self.open.take() else { return Ok(()) };
        unit.rows.seek(SeekFrom::Start(0))?;
        io::copy(&mut unit.rows, &mut self.out)?;
        let (line, hash) = line::sealed(&unit.hasher, &UnitLine { unit: unit.end })?;
        self.out.write_all(line.as_bytes())?;
        self.hashes.push(hash);
        Ok(())
    }

    /// Ends the result, with the units that have ended.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end_result(mut self) -> io::Result<W> {
        let before = with_hashes(&self.header, self.hashes.iter().map(String::as_str));
        let end = EndOfResult { units: self.hashes.len() as u64 };
        let (line, _) = line::sealed(&before, &EndLine { end })?;
        self.out.write_all(line.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn row(&mut self, row: &Row) -> io::Result<()> {
        let Some(unit) = &mut self.open else { return Ok(()) };
        let mut text = Vec::new();
        line::append(&mut text, row)?;
        unit.end.add(row)?;
        unit.hasher.update(&text);
        unit.rows.write_all(&text)
    }
}

fn with_hashes<'a>(
    header: &blake3::Hasher,
    hashes: impl Iterator<Item = &'a str>,
) -> blake3::Hasher {
    let mut hasher = header.clone();
    hashes.for_each(|hash| {
        hasher.update(hash.as_bytes());
    });
    hasher
}

impl<W: Write + Send> Sink for ResultWriter<W> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.row(&Row::Finding(Box::new(finding.clone())))
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.row(&Row::Unread(UnreadRow::of(unread)))
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.row(&Row::Note(note.clone()))
    }
}

impl<W: Write + Send> Report for ResultWriter<W> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.row(&Row::Target(Box::new(TargetRow::of(target))))
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        let TargetEnd { verified, listed_bytes, ended, overall: _ } = *target;
        self.row(&Row::Time(TimeRow::of(verified.summary.elapsed, ended)))?;
        self.row(&Row::Done(Box::new(DoneRow::of(verified, listed_bytes))))
    }

    fn failed_target(&mut self, path: &str, error: &str, ended: SystemTime) -> io::Result<()> {
        self.row(&Row::Failed(FailedRow::of(path, error, ended)))
    }

    /// The result goes on until [`ResultWriter::end_result`].
    fn end(&mut self, _: &RunEnd<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// A result that was read once, from its first byte to its last, and is as it was written.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    header: blake3::Hasher,
    /// Its units, in the order of the file.
    pub units: Vec<UnitResult>,
}

/// The result of a unit, and where its rows are.
#[derive(Debug, Clone)]
pub struct UnitResult {
    offset: u64,
    hash: String,
    /// The hash of all of its rows but those of times: of two results with the same the unit has
    /// one result.
    pub content: blake3::Hash,
    /// What sums it up.
    pub end: EndOfUnit,
}

impl ResultFile {
    /// Reads a result of `plan`.
    ///
    /// # Errors
    /// It cannot be read, is of another plan, or is not, byte for byte, what was written.
    pub fn read(path: &Path, plan: &Plan) -> Result<Self, Error> {
        let refused = |reason: &str| Error::refused(path, reason, HINT);
        let mut lines = Lines::open(path)?;
        let first = match lines.next() {
            Ok(Some(line)) if line.starts_with(BEGIN) => line,
            Err(error @ Error::Io { .. }) => return Err(error),
            _ => return Err(refused("it is no result of pagewarden")),
        };
        let damaged = |_| refused("its first line is damaged");
        let version: Versioned = serde_json::from_str(&first).map_err(damaged)?;
        if version.pagewarden_result != VERSION {
            let reason = format!(
                "it is a result of version {}, and this pagewarden reads version {VERSION}",
                version.pagewarden_result
            );
            return Err(refused(&reason));
        }
        let header: Header = serde_json::from_str(&first).map_err(damaged)?;
        if header.plan != plan.id {
            return Err(refused("it is the result of another plan"));
        }
        let mut file =
            Self { path: path.to_owned(), header: blake3::Hasher::new(), units: Vec::new() };
        file.header.update(first.as_bytes());
        file.header.update(b"\n");
        loop {
            let offset = lines.offset;
            let mut unit = Reading::new(&file.header);
            let end = loop {
                let Some(line) = lines.next()? else {
                    return Err(refused("it ends before its last line"));
                };
                if let Some(end) = unit.line(&line).map_err(|reason| refused(&reason))? {
                    break end;
                }
                if line.starts_with("{\"end\":") {
                    let units = file.units.iter().map(|unit| unit.hash.as_str());
                    let before = with_hashes(&file.header, units);
                    let is_end = unit.rows == 0 && file.is_end(&before, &line);
                    if !is_end || lines.next()?.is_some() {
                        return Err(refused(ALTERED));
                    }
                    return Ok(file);
                }
            };
            let (end, hash) = end;
            let content = unit.content.finalize();
            let planned = usize::try_from(end.unit).ok().and_then(|unit| plan.units.get(unit));
            if planned.is_none_or(|planned| planned.subjects.len() as u64 != unit.subjects) {
                return Err(refused("it has a unit that the plan does not have"));
            }
            file.units.push(UnitResult { offset, hash, content, end });
        }
    }

    fn is_end(&self, before: &blake3::Hasher, line: &str) -> bool {
        let object = line::unsealed(before, line).map(|(object, _)| object);
        let end = object.and_then(|object| serde_json::from_str::<EndLine>(&object).ok());
        end.is_some_and(|line| line.end.units == self.units.len() as u64)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands the rows of a unit on, in their order.
    ///
    /// # Errors
    /// They can no longer be read, or are other ones than before; or `each` has failed.
    pub fn rows(
        &self,
        unit: &UnitResult,
        each: &mut dyn FnMut(Row) -> io::Result<()>,
    ) -> Result<(), Error> {
        let mut lines = Lines::open(&self.path)?;
        lines.seek(unit.offset)?;
        let changed = || Error::refused(&self.path, "it changed while it was read", HINT);
        let mut reading = Reading::new(&self.header);
        loop {
            let line = lines.next()?.ok_or_else(changed)?;
            match reading.line(&line).map_err(|_| changed())? {
                None => {
                    let row = serde_json::from_str(&line).map_err(|_| changed())?;
                    each(row).map_err(|source| Error::io("report", &self.path, source))?;
                }
                Some((_, hash)) if hash == unit.hash => return Ok(()),
                Some(_) => return Err(changed()),
            }
        }
    }
}

/// What is said of any byte that is not as it was written.
const ALTERED: &str = "it was altered: its hash does not fit its lines";

/// A unit while its lines are read.
struct Reading {
    hasher: blake3::Hasher,
    content: blake3::Hasher,
    rows: u64,
    subjects: u64,
    /// What the rows sum up to.
    sums: EndOfUnit,
}

impl Reading {
    fn new(header: &blake3::Hasher) -> Self {
        let content = blake3::Hasher::new();
        Self { hasher: header.clone(), content, rows: 0, subjects: 0, sums: EndOfUnit::of(0) }
    }

    /// Takes a line; the one that ends the unit gives what it says, with its hash. The line that
    /// ends a result is left alone.
    fn line(&mut self, line: &str) -> Result<Option<(EndOfUnit, String)>, String> {
        if line.starts_with("{\"end\":") {
            return Ok(None);
        }
        if line.starts_with("{\"unit\":") {
            let (object, hash) = line::unsealed(&self.hasher, line).ok_or(ALTERED)?;
            let UnitLine { unit } = serde_json::from_str(&object).map_err(|_| ALTERED)?;
            self.sums.unit = unit.unit;
            return if unit == self.sums {
                Ok(Some((unit, hash)))
            } else {
                Err("the end of a unit does not fit its rows".to_owned())
            };
        }
        let row: Row = serde_json::from_str(line).map_err(|_| ALTERED)?;
        if let Row::Subject(number) = &row {
            if *number != self.subjects {
                return Err("a subject is missing in it".to_owned());
            }
            self.subjects += 1;
        }
        self.rows += 1;
        self.sums.add(&row).map_err(|error| error.to_string())?;
        for hasher in
            [Some(&mut self.hasher), (!line.starts_with(TIME_BEGIN)).then_some(&mut self.content)]
                .into_iter()
                .flatten()
        {
            hasher.update(line.as_bytes());
            hasher.update(b"\n");
        }
        Ok(None)
    }
}

#[derive(Deserialize)]
struct Versioned {
    pagewarden_result: u32,
}

/// The lines of a file.
struct Lines<'a> {
    path: &'a Path,
    input: BufReader<File>,
    bytes: Vec<u8>,
    /// Where the next one begins.
    offset: u64,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        Ok(Self { path, input: BufReader::new(file), bytes: Vec::new(), offset: 0 })
    }

    fn seek(&mut self, offset: u64) -> Result<(), Error> {
        let sought = self.input.seek(SeekFrom::Start(offset));
        sought.map(drop).map_err(|source| Error::io("read", self.path, source))
    }

    fn next(&mut self) -> Result<Option<String>, Error> {
        match line::next(&mut self.input, &mut self.bytes) {
            Ok(line) => {
                self.offset += line.as_ref().map_or(0, |line| line.len() as u64 + 1);
                Ok(line)
            }
            Err(source) if source.kind() == io::ErrorKind::InvalidData => {
                Err(Error::refused(self.path, source.to_string(), HINT))
            }
            Err(source) => Err(Error::io("read", self.path, source)),
        }
    }
}
