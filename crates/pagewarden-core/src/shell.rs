//! Words of a command as a shell takes them, for hints that are pasted.
//!
//! A name may come from a file, a server or another user. In a hint it must be one word,
//! whatever is in it, and must not reach a terminal as escape sequences.

use std::ffi::OsStr;

use crate::system::OsStrExt as _;
use crate::words::printable;

/// A word as a shell takes it: as it is where nothing in it has a meaning, in single quotes
/// else, and with every unusual byte written in hexadecimal where it could not be shown.
#[must_use]
pub fn quoted(word: &OsStr) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    let bytes = word.as_bytes();
    match word.to_str() {
        Some(text) if !bytes.is_empty() && bytes.iter().copied().all(is_plain) => text.to_owned(),
        Some(text) if printable(text) == text => format!("'{}'", text.replace('\'', "'\\''")),
        _ => escaped(bytes),
    }
}

/// As bash, zsh, ksh and POSIX of 2024 take bytes that cannot be typed.
fn escaped(bytes: &[u8]) -> String {
    let mut text = "$'".to_owned();
    for byte in bytes {
        match *byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            // Three octal digits: a digit behind them is never taken for one of theirs.
            byte => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_takes_them() {
        for (word, text) in [
            ("/var/lib/x", "/var/lib/x"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$(x)", "'$(x)'"),
            ("#102", "'#102'"),
            ("/x; curl h|sh #", "'/x; curl h|sh #'"),
            ("a\nb'\\1", "$'a\\012b\\'\\\\1'"),
            ("\u{202e}x", "$'\\342\\200\\256x'"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), text);
        }
        assert_eq!(quoted(OsStr::from_bytes(b"a\xff")), "$'a\\377'");
    }

    #[test]
    fn a_shell_gives_back_what_was_quoted() {
        let words: [&[u8]; 5] =
            [b"a b", b"it's \\n", b"a\nb\x1b]0;x\x07", b"\xff\xfe1", b"$(id)`id`"];
        for word in words {
            let script = format!("printf %s {}", quoted(OsStr::from_bytes(word)));
            let Ok(output) = std::process::Command::new("bash").args(["-c", &script]).output()
            else {
                eprintln!("SKIPPED: there is no bash here");
                return;
            };
            assert_eq!(output.stdout, word, "{script}");
        }
    }
}
