//! URLs of databases, which hold passwords that nothing may show, and the files that hold
//! settings and passwords: arbitrary text, and text around a password.
//!
//! The first byte of the input says which.

use pagewarden_db::location::Location;
use pagewarden_db::secret;

/// As long as each other.
const PASSWORDS: [&str; 2] = ["hunter2", "mulsey3"];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match mode % 4 {
        0 => {
            if let Ok(location) = Location::parse(&text) {
                assert!(!location.to_string().is_empty());
            }
        }
        1 | 2 => {
            // User and beginning of the password, its end, what follows the host.
            let mut parts = text.splitn(3, '\0');
            let mut part = || parts.next().unwrap_or_default();
            let (before, after, rest) = (part(), part(), part());
            let scheme = if mode % 4 == 1 { "postgres" } else { "mysql" };
            // What is shown tells nothing of the password if it is the same for another.
            let [one, other] = PASSWORDS.map(|password| {
                let url = format!("{scheme}://{before}:x{password}{after}@{rest}");
                match Location::parse(&url) {
                    Ok(location) => format!("{location} {location:?}"),
                    Err(error) => format!("{error} {error:?}"),
                }
            });
            assert_eq!(one, other);
        }
        _ => {
            let fields = secret::pgpass_fields(&text);
            assert!(fields.iter().map(String::len).sum::<usize>() <= text.len());
            for (name, value) in secret::section(&text, &["client", "a"]) {
                assert!(name.len() + value.len() < text.len());
            }
        }
    }
}
