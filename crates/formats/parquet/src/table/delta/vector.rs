//! Deletion vectors of Delta tables: which rows of a file are deleted.
//!
//! | byte of the file | | |
//! |---|---|---|
//! | 0 | 1 byte | version: 1 |
//! | its offset | 4 bytes, the highest first | length of its data |
//! | behind it | that many | data |
//! | behind it | 4 bytes, the highest first | CRC-32 of the data |
//!
//! | byte of the data | | |
//! |---|---|---|
//! | 0 | 4 bytes, the lowest first | 1681511377 |
//! | 4 | | a bitmap of 64-bit numbers in the portable form of Roaring |
//!
//! A file has many of them. A small one is in the log itself, in base 85, without a CRC.
//!
//! Source: "Deletion Vector Format" in `PROTOCOL.md` of Delta Lake; tried on tables of its Spark
//! connector 4.0.0.

use std::io;
use std::path::{Path, PathBuf};

use roaring::RoaringTreemap;
use serde_json::Value;

use crate::checksum::page_sum;
use crate::table::{HINT, inside};
use pagewarden_core::source::store::StoredFile;
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Severity};

/// Of a file.
pub(in crate::table) const VERSION: u8 = 1;
const MAGIC: u32 = 1_681_511_377;
/// The length before the data, and the CRC behind it.
const WORD_BYTES: usize = 4;
/// Z85, as the protocol has it.
const DIGITS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
/// A UUID of 16 bytes.
const NAME_DIGITS: usize = 20;
/// Two thousand million rows, each with bits of its own.
const BYTES_MAX: usize = 1 << 30;

/// Where a vector is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::table) enum Stored {
    /// In the log.
    Inline(Vec<u8>),
    /// In a file below the folder of the table.
    File(PathBuf),
    /// In a file that is elsewhere.
    Elsewhere(String),
}

/// A deletion vector, as the log names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::table) struct Vector {
    pub stored: Stored,
    /// Where it begins in its file.
    pub offset: u64,
    /// The length of its data.
    bytes: usize,
    /// The rows that are deleted.
    pub deleted: u64,
    /// The file they are deleted from.
    pub of: String,
    /// The rows of that file, where the log says it.
    pub rows: Option<u64>,
}

/// What is wrong with a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::table) enum Fault {
    /// The file ends in it.
    Ends,
    /// Its CRC does not fit: stored, and of its data.
    Sum(u32, u32),
    /// It is none, or not the one that the log means.
    Structure(String),
}

impl Vector {
    /// The vector that an action names. An error says what is wrong with the action.
    pub fn of(action: &Value, of: &str, rows: Option<u64>) -> Result<Self, String> {
        let text = |name: &str| action.get(name).and_then(Value::as_str);
        let number = |name: &str| action.get(name).and_then(Value::as_u64);
        let place = text("pathOrInlineDv").ok_or("no place")?;
        let bytes = number("sizeInBytes").and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX).ok_or("no length")?;
        let deleted = number("cardinality").ok_or("no number of rows")?;
        let stored = match text("storageType") {
            Some("u") => Stored::File(file_of(place).ok_or("no name of a file")?),
            // An absolute one, of a table of which this one is a clone.
            Some("p") => Stored::Elsewhere(place.to_owned()),
            Some("i") => {
                let mut data = from_digits(place.as_bytes()).ok_or("no digits of base 85")?;
                if data.len() < bytes {
                    return Err("fewer bytes than it says".to_owned());
                }
                data.truncate(bytes);
                Stored::Inline(data)
            }
            _ => return Err("no kind of place that is known".to_owned()),
        };
        let offset = number("offset").unwrap_or(0);
        Ok(Self { stored, offset, bytes, deleted, of: of.to_owned(), rows })
    }

    /// Reads it from its file, and tests it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn test(&self, file: &StoredFile) -> io::Result<Result<(), Fault>> {
        let mut content = vec![0; self.bytes.saturating_add(2 * WORD_BYTES)];
        let count = file.read_fully(&mut content, self.offset)?;
        content.truncate(count);
        Ok(self.unwrap(&content).and_then(|data| self.judge(data)))
    }

    /// The data out of what surrounds it in a file.
    fn unwrap<'a>(&self, content: &'a [u8]) -> Result<&'a [u8], Fault> {
        let (length, rest) = content.split_first_chunk::<WORD_BYTES>().ok_or(Fault::Ends)?;
        let length = u32::from_be_bytes(*length);
        if usize::try_from(length) != Ok(self.bytes) {
            let why = format!("it has {length} bytes, the table says {}", self.bytes);
            return Err(Fault::Structure(why));
        }
        let (data, rest) = rest.split_at_checked(self.bytes).ok_or(Fault::Ends)?;
        let sum = u32::from_be_bytes(*rest.first_chunk::<WORD_BYTES>().ok_or(Fault::Ends)?);
        let computed = page_sum(data);
        if sum == computed { Ok(data) } else { Err(Fault::Sum(sum, computed)) }
    }

    /// What is wrong with it, for people.
    pub fn finding(&self, name: &str, fault: Fault) -> Finding {
        let of = format!("the deletion vector of {}", self.of);
        let say = |kind, why: &str| {
            let finding = Finding::of_file(name, Severity::Damage, kind, format!("{of}: {why}"));
            let offset = matches!(self.stored, Stored::File(_)).then_some(ByteOffset(self.offset));
            finding.at(None, offset).with_hint(HINT)
        };
        match fault {
            Fault::Ends => say(Kind::Truncated, "it ends before its length"),
            Fault::Structure(why) => say(Kind::Structure, &why),
            Fault::Sum(stored, computed) => {
                let [stored, computed] = [stored, computed].map(|sum| Some(format!("{sum:08x}")));
                say(Kind::Checksum, "its CRC does not fit").with_sums(stored, computed)
            }
        }
    }

    /// Tests the data: a bitmap of as many rows as the log says, all of them in the file.
    pub fn judge(&self, data: &[u8]) -> Result<(), Fault> {
        let (magic, bitmap) = data.split_first_chunk::<WORD_BYTES>().ok_or(Fault::Ends)?;
        if u32::from_le_bytes(*magic) != MAGIC {
            return Err(Fault::Structure("it does not begin as a deletion vector".to_owned()));
        }
        let mut rest = bitmap;
        let rows = RoaringTreemap::deserialize_from(&mut rest)
            .map_err(|why| Fault::Structure(format!("its bitmap cannot be read: {why}")))?;
        if !rest.is_empty() {
            return Err(Fault::Structure("there are bytes behind its bitmap".to_owned()));
        }
        if rows.len() != self.deleted {
            let why = format!("it has {} rows, the table says {}", rows.len(), self.deleted);
            return Err(Fault::Structure(why));
        }
        match (rows.max(), self.rows) {
            (Some(last), Some(rows)) if last >= rows => {
                let why = format!("it deletes row {last} of {}, which has {rows}", self.of);
                Err(Fault::Structure(why))
            }
            _ => Ok(()),
        }
    }
}

/// The version of a file of vectors; `None` if it is empty.
///
/// # Errors
/// It cannot be read.
pub(in crate::table) fn version_of(file: &StoredFile) -> io::Result<Option<u8>> {
    let mut version = [0];
    let count = file.read_fully(&mut version, 0)?;
    Ok((count > 0).then_some(version[0]))
}

/// What tells one vector from another, as the protocol has it.
pub(super) fn key_of(action: &Value) -> Option<String> {
    let text = |name: &str| action.get(name).and_then(Value::as_str).unwrap_or_default();
    let offset = action.get("offset").and_then(Value::as_u64);
    let offset = offset.map_or_else(String::new, |offset| format!("@{offset}"));
    let key = || format!("{}{}{offset}", text("storageType"), text("pathOrInlineDv"));
    action.is_object().then(key)
}

/// `ab^-aqEH.-t@S}K{vb[*k^` is `ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin`.
fn file_of(place: &str) -> Option<PathBuf> {
    let (folder, name) = place.split_at_checked(place.len().checked_sub(NAME_DIGITS)?)?;
    let name = from_digits(name.as_bytes())?;
    let mut text = String::new();
    for (at, byte) in name.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    let name = format!("deletion_vector_{text}.bin");
    match folder {
        "" => Some(PathBuf::from(name)),
        folder => Some(Path::new(&inside(folder)?).join(name)),
    }
}

/// Five digits are four bytes, the highest first.
fn from_digits(text: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_chunks::<5>();
    let mut bytes = Vec::new();
    for group in groups {
        let mut number = 0_u32;
        for digit in group {
            let digit = DIGITS.iter().position(|it| it == digit)?;
            number = number.checked_mul(85)?.checked_add(u32::try_from(digit).ok()?)?;
        }
        bytes.extend(number.to_be_bytes());
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_the_protocol_is_the_file_it_says() {
        let place = file_of("ab^-aqEH.-t@S}K{vb[*k^").unwrap();
        let expected = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
        assert_eq!(place, Path::new(expected));
        assert_eq!(file_of("../^-aqEH.-t@S}K{vb[*k^"), None);
        assert_eq!(file_of("ab^-aqEH.-t@S}K{vb[*k~"), None);
        assert_eq!(file_of("k"), None);
    }

    #[test]
    fn vector_in_the_log_is_the_rows_that_the_protocol_says() {
        let action = serde_json::json!({
            "storageType": "i",
            "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
            "sizeInBytes": 44,
            "cardinality": 6,
        });
        let vector = Vector::of(&action, "a", Some(2000)).unwrap();
        let Stored::Inline(data) = &vector.stored else { panic!("{vector:?}") };
        assert_eq!(vector.judge(data), Ok(()));
        for (length, at) in (0..data.len()).zip(0..) {
            assert!(vector.judge(&data[..length]).is_err(), "{length}");
            let mut other: Vec<u8> = data.clone();
            other[at] ^= 1;
            // The rows themselves may be others.
            assert!(vector.judge(&other).is_err() || at >= 20, "{at}");
        }
        let short = Vector { rows: Some(7), ..vector.clone() };
        assert!(matches!(short.judge(data), Err(Fault::Structure(_))));
        let other = Vector { deleted: 5, ..vector.clone() };
        assert!(matches!(other.judge(data), Err(Fault::Structure(_))));
    }
}
