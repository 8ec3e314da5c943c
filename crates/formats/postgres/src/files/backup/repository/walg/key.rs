//! The key of libsodium, and how a part is stored: WAL-G's names do not tell whether it is encrypted.

use std::path::{Path, PathBuf};
use std::{env, fmt, io};

use crate::files::backup::repository::tars::{Form, StoredTar, has_mark};
use pagewarden_core::source::decode::{Compression, is_open_pgp};
use pagewarden_core::source::file::read_small;
use pagewarden_core::source::secretstream::{FIRST_CHUNK_BYTES, KEY_BYTES, Key, opens};

/// The variables that WAL-G itself reads.
const KEY: &str = "WALG_LIBSODIUM_KEY";
const KEY_PATH: &str = "WALG_LIBSODIUM_KEY_PATH";
const TRANSFORM: &str = "WALG_LIBSODIUM_KEY_TRANSFORM";
/// Bytes of a key file; a key has 64 at most.
const KEY_FILE_BYTES: usize = 4096;
/// A key that is taken as it is has this number of bytes at least.
const PLAIN_BYTES_MIN: usize = 25;

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoKey {
    /// None was named.
    NotGiven,
    /// One was named, and is none.
    Unusable(String),
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGiven => f.write_str("no key was given"),
            Self::Unusable(why) => f.write_str(why),
        }
    }
}

/// The key out of a file that was named, or out of WAL-G's own variables.
///
/// # Errors
/// See [`NoKey`].
pub(super) fn find(file: Option<&Path>) -> Result<Key, NoKey> {
    let transform = env::var(TRANSFORM).unwrap_or_default();
    let path = match file {
        Some(path) => Some(path.to_owned()),
        None => match env::var(KEY) {
            Ok(text) => return parse(text.trim(), &transform),
            Err(_) => env::var_os(KEY_PATH).map(PathBuf::from),
        },
    };
    let path = path.ok_or(NoKey::NotGiven)?;
    let failed = |error: io::Error| {
        NoKey::Unusable(format!("the key file {} cannot be read: {error}", path.display()))
    };
    let bytes = read_small(&path, KEY_FILE_BYTES).map_err(failed)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| NoKey::Unusable(format!("the key file {} is no text", path.display())))?;
    let text = text.trim();
    // Of a file that was named here the form is seen.
    let is_hex = file.is_some() && transform.is_empty() && from_hex(text).is_some();
    parse(text, if is_hex { "hex" } else { &transform })
}

/// A key as WAL-G takes it.
fn parse(text: &str, transform: &str) -> Result<Key, NoKey> {
    let key = match transform {
        "hex" => from_hex(text),
        "base64" => from_base64(text),
        "" | "none" => as_it_is(text),
        _ => None,
    };
    key.map(Key).ok_or_else(|| {
        let form = if transform.is_empty() { "none" } else { transform };
        NoKey::Unusable(format!("the key is none by the transform {form:?} of {TRANSFORM}"))
    })
}

fn from_hex(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok()))
        .collect::<Option<_>>()?;
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(high << 4 | low),
        _ => None,
    });
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

fn from_base64(text: &str) -> Option<[u8; KEY_BYTES]> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count) = (0_u32, 0_u32);
    let mut bytes = Vec::new();
    for letter in text.trim_end_matches('=').bytes() {
        let value = LETTERS.iter().position(|known| *known == letter)?;
        bits = (bits << 6 | u32::try_from(value).ok()?) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xFF).ok()?);
        }
    }
    bytes.try_into().ok()
}

fn as_it_is(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0_u8; KEY_BYTES];
    for (place, byte) in key.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    (text.len() >= PLAIN_BYTES_MIN).then_some(key)
}

/// How a part is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// As its name says, or as its first bytes do.
    Plain(Option<Compression>),
    /// Encrypted, and the key opens it.
    Encrypted(Option<Compression>),
    /// By OpenPGP.
    OpenPgp,
    /// It begins like nothing that is known: encrypted, or its beginning is damaged.
    Unknown,
}

/// Looks at the beginning of a part.
pub(super) fn stored(tar: &StoredTar, key: Option<&Key>) -> io::Result<Stored> {
    let begin = tar.place.first_bytes(FIRST_CHUNK_BYTES)?;
    let is_brotli = tar.place.has_ending("br");
    let compression = is_brotli.then_some(Compression::Brotli);
    if !is_brotli && has_mark(&begin) {
        return Ok(Stored::Plain(None));
    }
    if key.is_some_and(|key| opens(&begin, key)) {
        return Ok(Stored::Encrypted(compression));
    }
    let plain = StoredTar { form: Form { compression, key: None }, ..tar.clone() };
    Ok(match begin.as_slice() {
        _ if is_brotli && plain.is_archive() => Stored::Plain(compression),
        begin if is_open_pgp(begin) => Stored::OpenPgp,
        _ => Stored::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; KEY_BYTES] = *b"0123456789abcdefghijklmnopqrst\xFF\x00";

    #[test]
    fn keys_are_taken_as_the_tool_takes_them() {
        let hex: String = BYTES.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(parse(&hex, "hex"), Ok(Key(BYTES)));
        assert!(parse(&hex[2..], "hex").is_err() && parse(&hex[1..], "hex").is_err());
        let base64 = "MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0/wA=";
        assert_eq!(parse(base64, "base64"), Ok(Key(BYTES)));
        assert!(parse("MDEy", "base64").is_err() && parse("?", "base64").is_err());
        let short = "a key of twenty-six letter";
        let mut expected = [0; KEY_BYTES];
        expected[..short.len()].copy_from_slice(short.as_bytes());
        assert_eq!(parse(short, "none"), Ok(Key(expected)));
        assert_eq!(parse(&format!("{short}s, and more than a key"), "").unwrap().0[26], b's');
        assert!(parse("short", "none").is_err());
        assert!(parse(&hex, "rot13").is_err());
    }

    #[test]
    fn key_is_shown_nowhere() {
        let wrong = parse("canary-canary", "hex").unwrap_err();
        assert!(
            !format!("{wrong} {wrong:?} {:?}", Key(*b"canary-canary-canary-canary-cana"))
                .contains("canary")
        );
    }
}
