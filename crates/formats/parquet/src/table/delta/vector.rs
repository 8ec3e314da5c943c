//! Deletion vectors as the log of a Delta table names them.
//!
//! A file of vectors begins with a byte, its version: 1. It has many of them. A small one is in the log
//! itself, in base 85, without a CRC.
//!
//! Source: "Deletion Vectors" in `PROTOCOL.md` of Delta Lake; tried on tables of its Spark connector
//! 4.0.0.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::table::deleted::{BYTES_MAX, Stored, Vector};
use crate::table::inside;
use pagewarden_core::source::store::StoredFile;

/// Of a file.
const VERSION: u8 = 1;
/// Z85, as the protocol has it.
const DIGITS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
/// A UUID of 16 bytes.
const NAME_DIGITS: usize = 20;

/// The vector that an action names. An error says what is wrong with the action.
pub(super) fn of(action: &Value, of: &str, rows: Option<u64>) -> Result<Vector, String> {
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
    Ok(Vector { stored, offset, bytes, deleted, of: of.to_owned(), rows })
}

/// What is wrong with the begin of a file of vectors, for people.
///
/// # Errors
/// It cannot be read.
pub(in crate::table) fn look_at(file: &StoredFile) -> io::Result<Option<String>> {
    let mut version = [0];
    let count = file.read_fully(&mut version, 0)?;
    // An empty one ends before its vectors.
    let is_other = count > 0 && version[0] != VERSION;
    Ok(is_other
        .then(|| format!("deletion vectors of version {}, which no program writes", version[0])))
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
    use crate::table::deleted::Fault;

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
        let vector = of(&action, "a", Some(2000)).unwrap();
        let Stored::Inline(data) = &vector.stored else { panic!("{vector:?}") };
        assert!(vector.judge(data).is_ok());
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
