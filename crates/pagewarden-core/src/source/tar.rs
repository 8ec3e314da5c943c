//! Tar archives as a stream, member by member, never unpacked.
//!
//! An archive is a row of members, each a header of 512 bytes and its data,
//! padded to a multiple of 512; two blocks of zeroes end it.
//!
//! ```text
//! offset  size  field
//!      0   100  name
//!    124    12  size: octal text, or binary with the high bit set (GNU)
//!    148     8  checksum: the sum of all header bytes, this field as spaces
//!    156     1  type: '0' file, '1' and '2' links, '3' to '6' devices, folders
//!               and pipes, 'x' and 'g' pax records, 'L' and 'K' GNU long names
//!    157   100  the target of a link
//!    257     8  "ustar\0" "00", or "ustar  \0" (GNU)
//!    345   155  the name's beginning, for "ustar\0" only
//! ```
//!
//! Source: POSIX.1-2017, `pax`, "ustar Interchange Format"; the GNU tar manual,
//! "Basic Tar Format".
//!
//! An archive comes from anywhere, so nothing in it is believed: headers must
//! sum up, sizes must be single-valued, records are bounded, and what would
//! need trust to go on (sparse files, several volumes) is refused. Names that
//! would lead out of a folder are passed on with an objection. Links are
//! listed and never followed.

use std::io::{self, Read};

use crate::source::decode::fill;

const BLOCK: usize = 512;
const NAME: std::ops::Range<usize> = 0..100;
const SIZE: std::ops::Range<usize> = 124..136;
const SUM: std::ops::Range<usize> = 148..156;
const TYPE: usize = 156;
const LINK: std::ops::Range<usize> = 157..257;
const MAGIC: std::ops::Range<usize> = 257..265;
const PREFIX: std::ops::Range<usize> = 345..500;
const _: () = assert!(SUM.end == TYPE && TYPE + 1 == LINK.start && LINK.end == MAGIC.start);

/// pax records and GNU long names past this are no names.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Records that may precede one member; writers use two or three.
const RECORDS_MAX: u32 = 16;
/// `PATH_MAX` of Linux.
const NAME_BYTES_MAX: usize = 4096;
/// The largest size that twelve octal digits can say; larger ones are in a
/// record or binary.
const OCTAL_SIZE_MAX: u64 = (1 << 33) - 1;
/// No file system holds larger files; a size beyond it is a trick.
const SIZE_MAX: u64 = 1 << 60;
/// Zeroes after the end of an archive: tapes are written in large records.
const TRAILING_ZEROES_MAX: u64 = 64 << 20;

/// The objection to a member without a name, such as that of the folder `/`.
pub const NAMELESS: &str = "it has no name";
/// The objection to a name that begins with a slash.
pub const ABSOLUTE: &str = "its name is absolute";

/// Why an archive cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The system or the decompressor refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The archive ends before its end mark.
    #[error("the archive is cut off: {0}")]
    CutOff(&'static str),
    /// Something that no honest writer makes, or that would need trust.
    #[error("the archive is refused: {0}")]
    Refused(String),
}

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// A regular file, with data.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    SymbolicLink,
    /// A second name of another member.
    HardLink,
    /// A device or a pipe.
    Special,
    /// Something else that may have data; the type's letter.
    Other(u8),
}

/// One member's header, with its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name, without a leading `./` or a final `/`; what is not UTF-8 in
    /// it is replaced.
    pub name: String,
    /// What it is.
    pub kind: MemberKind,
    /// Bytes of data.
    pub bytes: u64,
    /// Where a link leads.
    pub link: Option<String>,
    /// Why the name must not be used.
    pub objection: Option<&'static str>,
}

/// What came after the end mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trailing {
    /// Nothing, or zeroes.
    Nothing,
    /// Something that was not looked at.
    Data,
}

/// Reads an archive; see the module.
#[derive(Debug)]
pub struct Archive<R> {
    source: R,
    /// Data of the current member that was not read yet.
    data_left: u64,
    /// The padding after it.
    padding_left: u64,
    ended: bool,
}

/// True if `begin`, the beginning of a stream, is a member's header.
#[must_use]
pub fn looks_like_tar(begin: &[u8]) -> bool {
    begin.first_chunk::<BLOCK>().is_some_and(|header| {
        sum_fits(header) && header.get(MAGIC).is_some_and(|magic| magic.starts_with(b"ustar"))
    })
}

/// What the records before a member say about it.
#[derive(Debug, Default)]
struct Records {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> Archive<R> {
    /// An archive that begins where `source` stands.
    pub fn new(source: R) -> Self {
        Self { source, data_left: 0, padding_left: 0, ended: false }
    }

    /// The next member; `None` at the end mark. What was not read of the
    /// current one is passed over.
    ///
    /// # Errors
    /// The archive cannot be read on; every later call fails or ends too.
    pub fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        if self.ended {
            return Ok(None);
        }
        let next = self.next_header();
        self.ended = !matches!(next, Ok(Some(_)));
        next
    }

    /// Data of the current member that was not read yet.
    #[must_use]
    pub fn data_left(&self) -> u64 {
        self.data_left
    }

    /// Reads data of the current member until `bytes` is full or the member
    /// ends.
    ///
    /// # Errors
    /// The archive ends or cannot be read. What was read before is lost.
    pub fn read_data(&mut self, bytes: &mut [u8]) -> Result<usize, TarError> {
        fill(self, bytes).map_err(|error| self.failed(error, "in the middle of a member"))
    }

    /// Reads what follows the end mark, so that a decompressor comes to its
    /// own end and its own sums.
    ///
    /// # Errors
    /// The rest cannot be read.
    pub fn finish(&mut self) -> Result<Trailing, TarError> {
        let mut buffer = [0_u8; 16 << 10];
        let mut zeroes = 0_u64;
        loop {
            let count = match self.source.read(&mut buffer) {
                Ok(0) => return Ok(Trailing::Nothing),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(error, "after its last member")),
            };
            let read = buffer.get(..count).unwrap_or_default();
            zeroes += count as u64;
            if zeroes > TRAILING_ZEROES_MAX || read.iter().any(|byte| *byte != 0) {
                return Ok(Trailing::Data);
            }
        }
    }

    fn next_header(&mut self) -> Result<Option<Member>, TarError> {
        let mut records = Records::default();
        for _ in 0..=RECORDS_MAX {
            self.pass_over()?;
            let Some(header) = self.read_header()? else { return Ok(None) };
            let bytes = size_of_member(&header)?;
            let kind = header.get(TYPE).copied().unwrap_or_default();
            match kind {
                b'x' | b'g' => {
                    self.begin_data(bytes);
                    let text = self.read_record(bytes)?;
                    let found = read_pax(&text)?;
                    if kind == b'x' {
                        records.take(found);
                    } else if found.name.or(found.link).is_some() || found.size.is_some() {
                        return Err(refused("one name or size for all members"));
                    }
                }
                b'L' | b'K' => {
                    self.begin_data(bytes);
                    let text = self.read_record(bytes)?;
                    let field = until_zero(&text).to_vec();
                    let place = if kind == b'L' { &mut records.name } else { &mut records.link };
                    *place = Some(field);
                }
                b'S' => return Err(refused("a sparse file, whose holes cannot be checked")),
                b'M' => return Err(refused("a part of an archive of several volumes")),
                _ => return self.member(&header, kind, bytes, records).map(Some),
            }
        }
        Err(refused("too many records before one member"))
    }

    fn member(
        &mut self,
        header: &[u8; BLOCK],
        kind: u8,
        header_bytes: u64,
        records: Records,
    ) -> Result<Member, TarError> {
        let bytes = match records.size {
            None => header_bytes,
            Some(size) if size == header_bytes => size,
            // Writers leave out of the header what does not fit into it.
            Some(size) if header_bytes == 0 && size > OCTAL_SIZE_MAX => size,
            Some(size) => {
                return Err(refused(format!(
                    "a member has two sizes, {header_bytes} and {size} bytes"
                )));
            }
        };
        if bytes > SIZE_MAX {
            return Err(refused(format!("a member of {bytes} bytes")));
        }
        let raw_name = records.name.unwrap_or_else(|| name_in(header));
        let name = raw_name.strip_suffix(b"/").unwrap_or(&raw_name);
        let kind = match kind {
            // Before POSIX a folder was a file whose name ends with a slash.
            0 if raw_name.ends_with(b"/") => MemberKind::Folder,
            b'0' | 0 | b'7' => MemberKind::File,
            b'1' => MemberKind::HardLink,
            b'2' => MemberKind::SymbolicLink,
            b'3' | b'4' | b'6' => MemberKind::Special,
            b'5' => MemberKind::Folder,
            other => MemberKind::Other(other),
        };
        let link = matches!(kind, MemberKind::HardLink | MemberKind::SymbolicLink)
            .then(|| records.link.unwrap_or_else(|| field(header, LINK).to_vec()))
            .map(|link| String::from_utf8_lossy(&link).into_owned());
        // A link's size is that of the file it leads to, whose data it has not.
        let has_data = matches!(kind, MemberKind::File | MemberKind::Other(_));
        let bytes = if has_data { bytes } else { 0 };
        self.begin_data(bytes);
        let objection = objection_to(name);
        let name = String::from_utf8_lossy(name);
        // Of `.//etc`, what is left must not become absolute.
        let shown = name.strip_prefix("./").map(|rest| rest.trim_start_matches('/'));
        let shown = shown.unwrap_or(&name);
        Ok(Member { name: shown.to_owned(), kind, bytes, link, objection })
    }

    fn begin_data(&mut self, bytes: u64) {
        self.data_left = bytes;
        self.padding_left = bytes.next_multiple_of(BLOCK as u64) - bytes;
    }

    /// Passes over what is left of the current member.
    fn pass_over(&mut self) -> Result<(), TarError> {
        let mut buffer = [0_u8; 16 << 10];
        while self.data_left > 0 {
            self.read_data(&mut buffer)?;
        }
        let padding = usize::try_from(self.padding_left).unwrap_or(0);
        self.padding_left = 0;
        let padding = buffer.get_mut(..padding).unwrap_or_default();
        if self.fill(padding)? < padding.len() {
            return Err(TarError::CutOff("it ends in the padding after a member"));
        }
        Ok(())
    }

    /// `None`: the end mark.
    fn read_header(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut header = [0_u8; BLOCK];
        match self.fill(&mut header)? {
            BLOCK => {}
            0 => return Err(TarError::CutOff("it ends without an end mark")),
            _ => return Err(TarError::CutOff("it ends in the middle of a header")),
        }
        if header.iter().any(|byte| *byte != 0) {
            if !sum_fits(&header) {
                return Err(refused("a header's checksum does not fit"));
            }
            return Ok(Some(header));
        }
        // Some writers are content with one block of zeroes.
        let count = self.fill(&mut header)?;
        if header.get(..count).unwrap_or_default().iter().any(|byte| *byte != 0) {
            return Err(refused("half an end mark between its members"));
        }
        Ok(None)
    }

    fn read_record(&mut self, bytes: u64) -> Result<Vec<u8>, TarError> {
        if bytes > RECORD_BYTES_MAX {
            return Err(refused(format!("a name or record of {bytes} bytes")));
        }
        let mut record = vec![0_u8; usize::try_from(bytes).unwrap_or(0)];
        self.read_data(&mut record)?;
        Ok(record)
    }

    /// Reads until `bytes` is full or the source ends.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, TarError> {
        let filled = fill(&mut self.source, bytes);
        filled.map_err(|error| self.failed(error, "between two members"))
    }

    fn failed(&mut self, error: io::Error, place: &'static str) -> TarError {
        self.ended = true;
        if error.kind() == io::ErrorKind::UnexpectedEof {
            TarError::CutOff(match place {
                "in the middle of a member" => "it ends in the middle of a member",
                "after its last member" => "its compressed form ends too early",
                _ => "it ends between two members",
            })
        } else {
            TarError::Io(error)
        }
    }
}

/// The current member's data.
impl<R: Read> Read for Archive<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let limit = usize::try_from(self.data_left).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = bytes.get_mut(..limit).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = self.source.read(bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.data_left = self.data_left.saturating_sub(count as u64);
        Ok(count)
    }
}

impl Records {
    fn take(&mut self, found: Self) {
        self.name = found.name.or(self.name.take());
        self.link = found.link.or(self.link.take());
        self.size = found.size.or(self.size);
    }
}

fn refused(what: impl Into<String>) -> TarError {
    TarError::Refused(what.into())
}

fn field(header: &[u8; BLOCK], range: std::ops::Range<usize>) -> &[u8] {
    until_zero(header.get(range).unwrap_or_default())
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn name_in(header: &[u8; BLOCK]) -> Vec<u8> {
    let prefix = field(header, PREFIX);
    let has_prefix = header.get(MAGIC).is_some_and(|magic| magic.starts_with(b"ustar\0"));
    if has_prefix && !prefix.is_empty() {
        [prefix, b"/", field(header, NAME)].concat()
    } else {
        field(header, NAME).to_vec()
    }
}

/// Why a name must not be used; `None` for one that stays below the folder it
/// is looked at from.
fn objection_to(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        Some(NAMELESS)
    } else if name.len() > NAME_BYTES_MAX {
        Some("its name is too long")
    } else if name.contains(&0) {
        Some("its name holds a zero byte")
    } else if name.starts_with(b"/") {
        Some(ABSOLUTE)
    } else if name.split(|byte| *byte == b'/').any(|part| part == b"..") {
        Some("its name leads out of the archive by way of '..'")
    } else {
        None
    }
}

fn sum_fits(header: &[u8; BLOCK]) -> bool {
    let Some(stored) = octal(header.get(SUM).unwrap_or_default()) else { return false };
    let sum: u64 = header
        .iter()
        .enumerate()
        .map(|(at, byte)| if SUM.contains(&at) { u64::from(b' ') } else { u64::from(*byte) })
        .sum();
    stored == sum
}

/// Octal digits between spaces, ended by a space, a zero byte or the field.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(until_zero(field)).ok()?.trim_matches(' ');
    if text.is_empty() {
        return Some(0);
    }
    let all_octal = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    all_octal.then(|| u64::from_str_radix(text, 8).ok()).flatten()
}

fn size_of_member(header: &[u8; BLOCK]) -> Result<u64, TarError> {
    let field = header.get(SIZE).unwrap_or_default();
    let size = match field.split_first() {
        // 0x80 begins a positive binary number, 0xFF a negative one.
        Some((0x80, rest)) => rest
            .iter()
            .try_fold(0_u64, |size, byte| Some(size.checked_mul(256)? | u64::from(*byte))),
        Some((byte, _)) if *byte > 0x80 => None,
        _ => octal(field),
    };
    match size {
        Some(size) if size <= SIZE_MAX => Ok(size),
        _ => Err(refused("a member's size is no possible number")),
    }
}

/// Reads pax records: `LENGTH KEY=VALUE\n`, the length counting all of it.
fn read_pax(mut text: &[u8]) -> Result<Records, TarError> {
    let wrong = || refused("a pax record that cannot be read");
    let mut records = Records::default();
    while !text.is_empty() {
        let blank = text.iter().position(|byte| *byte == b' ').ok_or_else(wrong)?;
        let digits = text.get(..blank).unwrap_or_default();
        let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let length: usize = std::str::from_utf8(digits)
            .ok()
            .filter(|_| all_digits)
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(wrong)?;
        let (record, rest) = text.split_at_checked(length).ok_or_else(wrong)?;
        let body = record.get(blank + 1..).and_then(|body| body.strip_suffix(b"\n"));
        let body = body.ok_or_else(wrong)?;
        let equals = body.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        let (key, value) = body.split_at_checked(equals).ok_or_else(wrong)?;
        let value = value.get(1..).unwrap_or_default();
        match key {
            b"path" => records.name = Some(value.to_vec()),
            b"linkpath" => records.link = Some(value.to_vec()),
            b"size" => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                records.size = Some(number.ok_or_else(wrong)?);
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err(refused("a sparse file, whose holes cannot be checked"));
            }
            _ => {}
        }
        text = rest;
    }
    Ok(records)
}

#[cfg(test)]
mod tests;
