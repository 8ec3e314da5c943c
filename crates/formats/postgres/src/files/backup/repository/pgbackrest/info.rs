//! Info files and manifests: lines in sections, with a sum of their own.
//!
//! ```text
//! [section]
//! key=JSON
//! pg_data/base/1/1259={"checksum":"...","size":8192}
//! ...
//! [backrest]
//! backrest-checksum="SHA-1"
//! ```
//!
//! The sum is the SHA-1 over `{"section":{"key":value,...},...}`, built from sections and keys in their
//! order, values byte for byte, without the sum itself and without sections that are then empty.
//! A file is read once for its sum and only then believed: see [`InfoFile::read`]. Each lies twice in its
//! folder, the second time with the ending `.copy`.
//!
//! Source: `info/info.c` and `common/ini.c` of pgBackRest; repositories of 2.45 and 2.60.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use sha1::{Digest as _, Sha1};

use crate::files::backup::repository::pgbackrest::cipher::{Decrypted, Passphrase, is_encrypted};
use pagewarden_core::source::decode::fill;
use pagewarden_core::source::store::{StorePath, is_not_read, says_nothing_of_the_bytes};

/// The longest line: a file with a hundred thousand bad pages has one of a mebibyte.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// The ending of the second file.
const COPY: &str = ".copy";
/// What all these files begin with.
const BEGIN: &[u8] = b"[backrest]\n";

/// A section and a key that each file of a name has, and no other kind of file.
const MARKS: &[(&str, (&str, &str))] = &[("backup.info", ("db", "db-catalog-version"))];

/// Why an info file says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InfoFault {
    /// There is none.
    Missing,
    /// The system refused.
    Unreadable(String),
    /// It is encrypted, and no passphrase was given.
    Locked,
    /// It is encrypted, and does not decrypt to an info file.
    WrongKey,
    /// It cannot be believed.
    Damaged(String),
}

impl From<io::Error> for InfoFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Self::Damaged(format!("it cannot be read to its end: {error}"))
            }
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

/// A file that was read in full and whose sum fits.
#[derive(Debug, Clone)]
pub(super) struct InfoFile {
    place: StorePath,
    passphrase: Option<Passphrase>,
    /// Its bytes, where they were read already.
    content: Option<Arc<[u8]>>,
}

/// What reading one of the two files came to.
#[derive(Debug)]
pub(super) struct Opened {
    /// The file to go by: the first one, or its copy; or why neither can be.
    pub(super) file: Result<InfoFile, InfoFault>,
    /// The file that is wrong where the other is right: its name and why.
    pub(super) other: Option<(String, InfoFault)>,
    /// The copy, where both are right.
    pub(super) copy: Option<InfoFile>,
}

impl Opened {
    /// True if the first file, of this name, is not there; its copy may be.
    pub(super) fn lacks(&self, name: &str) -> bool {
        match &self.other {
            Some((other, fault)) => other == name && *fault == InfoFault::Missing,
            None => matches!(self.file, Err(InfoFault::Missing)),
        }
    }
}

/// Takes a section, a key and the value's JSON text.
type Line<'a> = dyn FnMut(&str, &str, &str) + 'a;

/// Reads `folder/name`, and its copy.
pub(super) fn open(folder: &StorePath, name: &str, passphrase: Option<&Passphrase>) -> Opened {
    let read = |file_name: &str| {
        let place = folder.join(file_name);
        let file = InfoFile { place, passphrase: passphrase.cloned(), content: None };
        file.read_as(name).map(|()| file)
    };
    let copy_name = format!("{name}{COPY}");
    let (first, copy) = (read(name), read(&copy_name));
    match (first, copy) {
        (Ok(file), Ok(copy)) => Opened { file: Ok(file), other: None, copy: Some(copy) },
        (Ok(file), Err(fault)) => {
            Opened { file: Ok(file), other: Some((copy_name, fault)), copy: None }
        }
        (Err(fault), Ok(file)) => {
            Opened { file: Ok(file), other: Some((name.to_owned(), fault)), copy: None }
        }
        (Err(InfoFault::Missing), Err(fault)) | (Err(fault), Err(_)) => {
            Opened { file: Err(fault), other: None, copy: None }
        }
    }
}

/// Hands on the lines of `folder/name`, or of its copy, as it is by now.
///
/// # Errors
/// See [`InfoFault`]; what was handed on before is then not to be believed.
pub(super) fn read_again(
    folder: &StorePath,
    name: &str,
    passphrase: Option<&Passphrase>,
    line: &mut Line<'_>,
) -> Result<(), InfoFault> {
    let mut read = |name: &str| {
        let place = folder.join(name);
        let content = Some(Arc::from(place.read_again()?));
        let file = InfoFile { place, passphrase: passphrase.cloned(), content };
        file.read_as(name.strip_suffix(COPY).unwrap_or(name))?;
        file.read(line)
    };
    read(name).or_else(|_| read(&format!("{name}{COPY}")))
}

/// True if `folder/name` or its copy begins as such a file does.
pub(super) fn is_there(folder: &StorePath, name: &str) -> bool {
    [name.to_owned(), format!("{name}{COPY}")].iter().any(|name| {
        let mut begin = [0; BEGIN.len()];
        let count = folder.join(name).open().and_then(|mut it| fill(&mut it, &mut begin));
        // What a store did not give is said when it is read.
        if count.as_ref().is_err_and(is_not_read) {
            return true;
        }
        let begin = count.ok().and_then(|count| begin.get(..count)).unwrap_or_default();
        begin == BEGIN || is_encrypted(begin)
    })
}

impl InfoFile {
    /// Hands its lines on, in their order, and tests the sum.
    ///
    /// # Errors
    /// See [`InfoFault`]; what was handed on before is then not to be believed.
    pub(super) fn read(&self, line: &mut Line<'_>) -> Result<(), InfoFault> {
        let (source, is_locked) = self.source()?;
        let mut begin = [0; BEGIN.len()];
        let mut source = BufReader::with_capacity(256 << 10, source);
        let read = match fill(&mut source, &mut begin) {
            Err(error) if says_nothing_of_the_bytes(&error) => return Err(error.into()),
            read => read,
        };
        let is_info = matches!(read, Ok(count) if begin.get(..count) == Some(BEGIN));
        if is_locked && !is_info {
            return Err(InfoFault::WrongKey);
        }
        read?;
        let mut sum = Sum::new();
        let mut source = io::Cursor::new(begin).chain(source);
        let mut section = String::new();
        while let Some(text) = next_line(&mut source)? {
            if let Some(name) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                sum.section(name);
                name.clone_into(&mut section);
            } else if !text.is_empty() {
                let (key, value) = split(&text).ok_or_else(|| damaged("a line has no key"))?;
                sum.line(key, value);
                line(&section, key, value);
            }
        }
        sum.judge()
    }

    /// Tests its sum, and that it is a file of this name: the sum of another one fits as well.
    fn read_as(&self, name: &str) -> Result<(), InfoFault> {
        let Some((_, mark)) = MARKS.iter().find(|(marked, _)| *marked == name) else {
            return self.read(&mut |_, _, _| {});
        };
        let mut is_marked = false;
        self.read(&mut |section, key, _| is_marked |= (section, key) == *mark)?;
        if is_marked {
            return Ok(());
        }
        let (section, key) = mark;
        Err(damaged(&format!("it is another file: its section {section} has no {key}")))
    }

    /// The lines of a file that was read before, without the sum's test; used by what cannot keep all
    /// lines in memory.
    pub(super) fn lines(&self) -> Result<Lines, InfoFault> {
        let (source, _) = self.source()?;
        Ok(Lines { source: BufReader::with_capacity(64 << 10, source), section: String::new() })
    }

    /// The name of the file.
    #[cfg(test)]
    fn name(&self) -> String {
        self.place.name().unwrap_or_default().to_owned()
    }

    fn bytes(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match &self.content {
            Some(content) => Box::new(io::Cursor::new(Arc::clone(content))),
            None => Box::new(self.place.open()?),
        })
    }

    fn source(&self) -> Result<(Box<dyn Read + Send>, bool), InfoFault> {
        let mut file = self.bytes()?;
        let mut begin = [0; 8];
        let count = fill(&mut file, &mut begin)?;
        let file = self.bytes()?;
        match (&self.passphrase, is_encrypted(begin.get(..count).unwrap_or_default())) {
            (_, false) => Ok((file, false)),
            (None, true) => Err(InfoFault::Locked),
            (Some(passphrase), true) => {
                Ok((Box::new(Decrypted::new(file, passphrase, false)?), true))
            }
        }
    }
}

/// See [`InfoFile::lines`].
pub(super) struct Lines {
    source: BufReader<Box<dyn Read + Send>>,
    section: String,
}

impl Lines {
    /// The next key and value of this section; `None` after the section or the file.
    ///
    /// # Errors
    /// The file cannot be read any more, or has changed since.
    pub(super) fn next_of(&mut self, section: &str) -> Result<Option<(String, String)>, InfoFault> {
        while let Some(text) = next_line(&mut self.source)? {
            if let Some(name) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                if self.section == section {
                    self.section.clear();
                    return Ok(None);
                }
                name.clone_into(&mut self.section);
            } else if !text.is_empty() && self.section == section {
                let (key, value) = split(&text).ok_or_else(|| damaged("a line has no key"))?;
                return Ok(Some((key.to_owned(), value.to_owned())));
            }
        }
        Ok(None)
    }
}

fn next_line(source: &mut impl BufRead) -> Result<Option<String>, InfoFault> {
    let mut bytes = Vec::new();
    let count = source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if count == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    } else if count as u64 == LINE_BYTES_MAX {
        return Err(damaged("a line is too long"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| damaged("it is no text"))
}

/// A file's name may hold an equals sign; its value is always an object.
fn split(line: &str) -> Option<(&str, &str)> {
    let at = line.find("={").or_else(|| line.find('='))?;
    Some((line.get(..at)?, line.get(at.checked_add(1)?..)?))
}

fn damaged(text: &str) -> InfoFault {
    InfoFault::Damaged(text.to_owned())
}

/// The file's own sum, as it is computed and as it is stored.
struct Sum {
    hash: Sha1,
    /// The section that was begun and has no line yet.
    pending: Option<String>,
    has_section: bool,
    has_line: bool,
    stored: Option<String>,
}

impl Sum {
    fn new() -> Self {
        Self { hash: Sha1::new(), pending: None, has_section: false, has_line: false, stored: None }
    }

    fn section(&mut self, name: &str) {
        self.pending = Some(name.to_owned());
    }

    fn line(&mut self, key: &str, value: &str) {
        if key == "backrest-checksum" {
            self.stored = Some(value.trim_matches('"').to_owned());
            return;
        }
        if let Some(name) = self.pending.take() {
            let before = if self.has_section { "}," } else { "{" };
            self.hash.update(format!("{before}{}:{{", quoted(&name)));
            self.has_section = true;
            self.has_line = false;
        }
        let comma = if self.has_line { "," } else { "" };
        self.has_line = true;
        self.hash.update(format!("{comma}{}:", quoted(key)));
        self.hash.update(value);
    }

    fn judge(mut self) -> Result<(), InfoFault> {
        self.hash.update(if self.has_section { "}}" } else { "{}" });
        let computed = hex(&self.hash.finalize());
        match self.stored {
            None => Err(damaged("it ends before its own checksum")),
            Some(stored) if stored == computed => Ok(()),
            Some(_) => Err(damaged("its own checksum does not fit its content")),
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &[u8]) -> Option<InfoFault> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("it"), text).unwrap();
        open(&folder.path().into(), "it", None).file.err()
    }

    fn with_sum(body: &str) -> String {
        let mut hash = Sha1::new();
        hash.update(r#"{"backrest":{"backrest-format":5},"target:file":{"a=b":{"size":1}}}"#);
        format!("{body}\n[backrest]\nbackrest-checksum=\"{}\"\n", hex(&hash.finalize()))
    }

    const BODY: &str =
        "[backrest]\nbackrest-format=5\n\n[empty]\n\n[target:file]\na=b={\"size\":1}\n";

    #[test]
    fn sum_is_over_sections_and_keys_in_their_order() {
        let text = with_sum(BODY);
        assert_eq!(faults(text.as_bytes()), None);
        // Names of sections without lines are in no sum, nor are the quotes around the sum.
        let last = text.rfind("[backrest]").unwrap();
        let header = last..last + "[backrest]".len();
        let empty = text.find("[empty]").unwrap();
        let empty = empty..empty + "[empty]".len();
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            let before = bytes[at];
            bytes[at] ^= 1;
            let is_free = before == b'\n'
                || bytes[at] == b'\n'
                || header.contains(&at)
                || empty.contains(&at)
                || (before == b'"' && at > last);
            assert!(faults(&bytes).is_some() || is_free, "{at}");
        }
        for length in 0..text.len() - 2 {
            assert!(faults(&text.as_bytes()[..length]).is_some(), "{length}");
        }
    }

    #[test]
    fn copy_stands_in_for_a_damaged_file_which_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = with_sum(BODY);
        std::fs::write(folder.path().join("it"), text.replace("size\":1", "size\":2")).unwrap();
        std::fs::write(folder.path().join("it.copy"), &text).unwrap();
        let opened = open(&folder.path().into(), "it", None);
        assert_eq!(opened.file.unwrap().name(), "it.copy");
        let (name, fault) = opened.other.unwrap();
        assert!(name == "it" && matches!(fault, InfoFault::Damaged(_)));
    }
}
