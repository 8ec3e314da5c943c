//! Databases that come compressed, in a tar archive, or from standard input.
//!
//! What a page of a SQLite database proves depends on others that lie anywhere in the file, and on
//! the log and the journal beside it. So what comes is first written to a temporary folder (that of
//! `TMPDIR`), which other users cannot open, and is checked there as every database is. The folder
//! is removed when the check ends.
//!
//! | in an archive | |
//! |---|---|
//! | a file that begins as a database, or is called like one | checked, with its `-wal` and `-journal` |
//! | other files | counted in a note |
//!
//! Names in an archive are not used as names of files.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::page::header::MAGIC;
use pagewarden_core::database::{Description, OpenOptions, STREAM_BEGIN_BYTES, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::source::decode::{BEGIN_BYTES, Compression, Decoded, decode};
use pagewarden_core::source::file::open_anything;
use pagewarden_core::source::tar::{Archive, MemberKind, looks_like_tar};
use pagewarden_core::verdict::{ByteOffset, Note, Unread};
use pagewarden_core::words::counted;

/// So much of a file tells whether it is an archive.
pub(super) const HEAD_BYTES: usize = BEGIN_BYTES;
/// Copied at a time.
const COPY_BYTES: usize = 256 << 10;
/// Databases of one archive.
const DATABASES_MAX: usize = 1 << 16;
const LOGS: [&str; 2] = ["-wal", "-journal"];
const ENDINGS: [&str; 4] = [".sqlite", ".sqlite3", ".db3", ".db"];
const COMPRESSED_ENDINGS: [&str; 4] = [".gz", ".lz4", ".zst", ".zstd"];

/// True for the beginning of a stream that is a database, or an archive with one in it.
#[must_use]
pub fn is_known(begin: &[u8]) -> bool {
    begin.starts_with(MAGIC) || is_archive(begin)
}

/// True for the beginning of an archive in which a database begins.
#[must_use]
fn is_archive(begin: &[u8]) -> bool {
    if !looks_like_tar(begin) {
        return false;
    }
    let mut archive = Archive::new(begin);
    let mut has_database = false;
    while let Ok(Some(member)) = archive.next_member() {
        let mut content = vec![0; MAGIC.len()];
        let is_whole = archive.read_data(&mut content).is_ok_and(|count| count == content.len());
        has_database |= member.kind == MemberKind::File && is_whole && content == MAGIC;
    }
    has_database
}

/// True for a file that is compressed or an archive, and holds databases.
pub(super) fn is_packed(path: &Path, head: &[u8]) -> bool {
    Compression::of(head) != Compression::None && decoded(path).is_ok_and(|it| is_known(&it.begin))
        || looks_like_tar(head) && decoded(path).is_ok_and(|it| is_archive(&it.begin))
}

fn decoded(path: &Path) -> io::Result<Decoded> {
    Ok(decode(Box::new(open_anything(path)?))?.look_ahead(STREAM_BEGIN_BYTES))
}

/// Opens a file that [`is_packed`].
///
/// # Errors
/// It cannot be read, or there is no room for what is in it.
pub(super) fn open_file(path: &Path, options: &OpenOptions) -> Result<Target, Error> {
    let stream = decoded(path).map_err(|source| Error::io("read", path, source))?;
    open(path, stream, options)
}

/// Opens a stream.
///
/// # Errors
/// As [`open_file`].
pub(crate) fn open(path: &Path, stream: Decoded, options: &OpenOptions) -> Result<Target, Error> {
    let failed =
        |source| Error::io("unpack into a temporary folder (TMPDIR says where)", path, source);
    let mut unpacked = Unpacked::new().map_err(failed)?;
    if looks_like_tar(&stream.begin) {
        unpacked.take_archive(path, stream.reader).map_err(failed)?;
    } else {
        unpacked.take_one(path, stream.reader).map_err(failed)?;
    }
    unpacked.into_target(path, options)
}

/// What came, in files of our own.
struct Unpacked {
    folder: TempDir,
    /// What the files are called where they come from; the place in the list is the name here.
    names: Vec<String>,
    /// Those of them that came, and whether the stream broke off in it.
    came: BTreeMap<usize, bool>,
    /// What is to be said of the stream itself.
    said: Vec<Step>,
    /// Files that are no databases.
    others: u64,
    is_archive: bool,
}

impl Unpacked {
    fn new() -> io::Result<Self> {
        Ok(Self {
            folder: tempfile::Builder::new().prefix("pagewarden-").tempdir()?,
            names: Vec::new(),
            came: BTreeMap::new(),
            said: Vec::new(),
            others: 0,
            is_archive: false,
        })
    }

    /// Takes a stream that is one database.
    fn take_one(&mut self, path: &Path, mut stream: impl Read) -> io::Result<()> {
        let shown = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = COMPRESSED_ENDINGS.iter().find_map(|ending| shown.strip_suffix(ending));
        let name = name.unwrap_or(&shown).to_owned();
        self.names.push(name.clone());
        let (bytes, error) = copy(&mut stream, &self.path(0, ""))?;
        self.came.insert(0, error.is_some());
        if let Some(error) = error {
            self.break_off(name, bytes, &error);
        }
        Ok(())
    }

    /// Takes all databases of an archive.
    fn take_archive(&mut self, path: &Path, stream: impl Read) -> io::Result<()> {
        self.is_archive = true;
        let mut archive = Archive::new(stream);
        let shown = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        loop {
            let member = match archive.next_member() {
                Ok(Some(member)) => member,
                Ok(None) => break,
                Err(error) => {
                    self.break_off(shown, 0, &io::Error::other(error.to_string()));
                    return Ok(());
                }
            };
            if member.kind != MemberKind::File || member.bytes == 0 {
                continue;
            }
            let log = LOGS.iter().find(|log| member.name.ends_with(**log)).copied();
            let name = log.and_then(|log| member.name.strip_suffix(log)).unwrap_or(&member.name);
            let mut content = MemberData { archive: &mut archive };
            let mut begin = vec![0; MAGIC.len()];
            let count = content.read(&mut begin).unwrap_or(0);
            begin.truncate(count);
            let is_named = ENDINGS.iter().any(|ending| name.ends_with(ending));
            if log.is_none() && !is_named && begin != *MAGIC {
                self.others = self.others.saturating_add(1);
                continue;
            }
            let place = self.place_of(name)?;
            let to = self.path(place, log.unwrap_or(""));
            let (bytes, error) = copy(&mut begin.as_slice().chain(content), &to)?;
            if log.is_none() {
                self.came.insert(place, error.is_some());
            }
            if let Some(error) = error {
                self.break_off(member.name, bytes, &error);
                return Ok(());
            }
        }
        if let Err(error) = archive.finish() {
            self.break_off(shown, 0, &io::Error::other(error.to_string()));
        }
        Ok(())
    }

    /// The place of a database of this name in the list.
    fn place_of(&mut self, name: &str) -> io::Result<usize> {
        if let Some(place) = self.names.iter().position(|known| known == name) {
            return Ok(place);
        }
        if self.names.len() >= DATABASES_MAX {
            return Err(io::Error::other("the archive holds more databases than are taken"));
        }
        self.names.push(name.to_owned());
        Ok(self.names.len().saturating_sub(1))
    }

    fn path(&self, place: usize, ending: &str) -> PathBuf {
        self.folder.path().join(format!("{place}{ending}"))
    }

    fn break_off(&mut self, file: String, offset: u64, error: &io::Error) {
        let error = format!("the stream breaks off here: {error}");
        self.said.push(Step::Unread(Unread::stretch(file, ByteOffset(offset), 0, error)));
    }

    fn into_target(mut self, path: &Path, options: &OpenOptions) -> Result<Target, Error> {
        let mut descriptions: Vec<Description> = Vec::new();
        let mut steps = Vec::new();
        let mut said = std::mem::take(&mut self.said);
        for (place, is_cut) in &self.came {
            let name = self.names.get(*place).map_or("", String::as_str);
            match super::open_copy(&self.path(*place, ""), *is_cut, options) {
                Ok(target) => {
                    let (own, name) = (place.to_string(), name.to_owned());
                    let is_archive = self.is_archive;
                    let of_one = move |step| match step {
                        // It is about one of several databases.
                        Step::Settled(_) if is_archive => None,
                        other => Some(renamed(other, &own, &name)),
                    };
                    // Later steps are made when they are asked for.
                    steps.push(target.steps.filter_map(of_one));
                    descriptions.push(target.description);
                }
                // That the rest of it did not come was said.
                Err(_) if self.is_archive && *is_cut => {}
                Err(error) if self.is_archive => {
                    said.push(Step::Unread(Unread::of_file(name, error.reason())));
                }
                Err(error) => return Err(error.about(path)),
            }
        }
        let Some(first) = descriptions.first() else {
            let hint = "unpack it, and name the databases in it";
            return Err(Error::unrecognised(path, "no SQLite database was found in it", hint));
        };
        if self.others > 0 {
            let text = format!(
                "{} in the archive were not looked at: they are no SQLite databases",
                counted(self.others, "other file")
            );
            let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            said.push(Step::Note(Note { file, text }));
        }
        let setting = first.setting.filter(|_| {
            descriptions.iter().all(|description| description.setting == first.setting)
        });
        let mut description = Description { path: path.to_owned(), setting, ..first.clone() };
        if self.is_archive {
            let databases = counted(descriptions.len() as u64, "database");
            description.state = format!("an archive with {databases}");
            description.epoch = None;
        }
        let steps = said.into_iter().chain(steps.into_iter().flatten());
        let steps = Steps { steps, _folder: self.folder };
        Ok(Target { description, steps: Box::new(steps), woken: None })
    }
}

/// The steps of a check, and the folder that they need.
struct Steps<S> {
    steps: S,
    _folder: TempDir,
}

impl<S: Iterator<Item = Step>> Iterator for Steps<S> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.steps.next()
    }
}

/// Data of an archive's member, up to its end.
struct MemberData<'a, R> {
    archive: &'a mut Archive<R>,
}

impl<R: Read> Read for MemberData<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.archive.read_data(bytes).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Writes all that comes to a new file: how many bytes came, and why no more did.
fn copy(from: &mut impl Read, to: &Path) -> io::Result<(u64, Option<io::Error>)> {
    let mut file = File::create(to)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut copied = 0_u64;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok((copied, None)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok((copied, Some(error))),
        };
        file.write_all(buffer.get(..count).unwrap_or_default())?;
        copied = copied.saturating_add(count as u64);
    }
}

/// What is said of our own file, said of the one that came.
fn renamed(step: Step, own: &str, name: &str) -> Step {
    let rename = |file: &mut String| {
        if let Some(ending) = file.strip_prefix(own) {
            *file = format!("{name}{ending}");
        }
    };
    match step {
        Step::File(mut file) => {
            rename(&mut file.name);
            Step::File(file)
        }
        Step::Finding(mut finding) => {
            rename(&mut finding.place.file);
            Step::Finding(finding)
        }
        Step::Overruled(mut finding, standing) => {
            rename(&mut finding.place.file);
            Step::Overruled(finding, standing)
        }
        Step::Untested(mut note, files) => {
            rename(&mut note.file);
            Step::Untested(note, files)
        }
        Step::Unread(mut unread) => {
            rename(&mut unread.file);
            Step::Unread(unread)
        }
        Step::Note(mut note) => {
            rename(&mut note.file);
            Step::Note(note)
        }
        other => other,
    }
}
