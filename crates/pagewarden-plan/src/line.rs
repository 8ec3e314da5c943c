//! Lines of JSON, some of which end with a hash over what stands before them.
//!
//! The hash is the last member of its line's object, and is compared as text: of a line that
//! passes, each byte is the one that was written.

use std::io::{self, BufRead, Read as _};

use serde::Serialize;

/// No line that this crate writes is longer; one that is must not fill the memory.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// What stands between the object and its hash, and behind the hash.
const BEFORE_HASH: &str = ",\"hash\":\"";
const BEHIND_HASH: &str = "\"}";
/// Hexadecimal digits of a hash.
const HASH_CHARS: usize = 64;

/// Puts a value's line, with its end, behind what is there.
pub fn append(to: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.push(b'\n');
    Ok(())
}

/// The line of an object with the hash of `before` and of the object. Also gives the hash.
pub fn sealed(before: &blake3::Hasher, value: &impl Serialize) -> io::Result<(String, String)> {
    let text = serde_json::to_string(value)?;
    let open = text.strip_suffix('}').unwrap_or(&text);
    let hash = hash_of(before, open);
    Ok((format!("{open}{BEFORE_HASH}{hash}{BEHIND_HASH}\n"), hash))
}

/// The object in a line that ends with the right hash, as JSON, and that hash; `None` if anything
/// is not as it was written.
pub fn unsealed(before: &blake3::Hasher, line: &str) -> Option<(String, String)> {
    let rest = line.strip_suffix(BEHIND_HASH)?;
    let (rest, hash) = rest.split_at_checked(rest.len().checked_sub(HASH_CHARS)?)?;
    let open = rest.strip_suffix(BEFORE_HASH)?;
    (hash_of(before, open) == hash).then(|| (format!("{open}}}"), hash.to_owned()))
}

fn hash_of(before: &blake3::Hasher, open: &str) -> String {
    let mut hasher = before.clone();
    hasher.update(open.as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// The next line without its end; `None` at the end of the file.
///
/// # Errors
/// It cannot be read, is no text, is too long, or the file ends inside it.
pub fn next(input: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<Option<String>> {
    bytes.clear();
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    if input.take(LINE_BYTES_MAX).read_until(b'\n', bytes)? == 0 {
        return Ok(None);
    }
    if bytes.pop() != Some(b'\n') {
        return Err(invalid("its last line is cut off"));
    }
    match std::str::from_utf8(bytes) {
        Ok(line) => Ok(Some(line.to_owned())),
        Err(_) => Err(invalid("a line of it is no text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_line_with_any_bit_flipped_is_refused() {
        let mut before = blake3::Hasher::new();
        before.update(b"what came before\n");
        let (line, hash) = sealed(&before, &serde_json::json!({"end": {"unit": 7}})).unwrap();
        let line = line.strip_suffix('\n').unwrap();
        let (object, same) = unsealed(&before, line).unwrap();
        assert_eq!((object.as_str(), same), ("{\"end\":{\"unit\":7}}", hash));
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bytes = line.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                let Ok(text) = String::from_utf8(bytes) else { continue };
                assert_eq!(unsealed(&before, &text), None, "{text}");
            }
        }
        assert_eq!(unsealed(&blake3::Hasher::new(), line), None, "behind other lines");
        for text in ["", "\"}", "{}", "{\"hash\":\"\"}"] {
            assert_eq!(unsealed(&before, text), None, "{text}");
        }
    }

    #[test]
    fn a_line_without_its_end_is_no_line() {
        let mut bytes = Vec::new();
        let mut input = &b"{}\n{\"a\""[..];
        assert_eq!(next(&mut input, &mut bytes).unwrap().as_deref(), Some("{}"));
        assert!(next(&mut input, &mut bytes).is_err());
        assert_eq!(next(&mut &b""[..], &mut bytes).unwrap(), None);
        assert!(next(&mut &b"\xff\n"[..], &mut bytes).is_err());
    }
}
