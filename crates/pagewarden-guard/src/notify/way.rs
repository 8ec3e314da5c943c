//! Where changes are reported: a `[[notify]]` table of the configuration.
//!
//! | key | what |
//! | --- | --- |
//! | `name` | what it is called: letters, digits, `.`, `_`, `-` |
//! | `webhook` | an address that messages are posted to, as JSON |
//! | `secret_file` | of a webhook: the key of the signature; a file that only its owner can read |
//! | `allow_http` | of a webhook: without TLS, also to other machines |
//! | `allow_link_local` | of a webhook: also to link-local addresses, where clouds keep their machines' keys |
//! | `command` | a program and its arguments, which gets a message as JSON on standard input |
//! | `email` | addresses that mail is sent to, by `sendmail` |
//! | `from`, `sendmail` | of mail: its sender, the program |
//! | `on` | `finding`, `gone`, `overdue`, `unreadable`: what is reported; all by default |
//! | `wait` | how long changes are collected before a message, `1m` by default |
//! | `per_hour` | messages an hour at most, 12 by default; more changes wait for the next message |

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagewarden::system::MetadataExt as _;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::Deserialize;

/// How long changes are collected.
const WAIT: Duration = Duration::from_secs(60);
/// Messages an hour.
const PER_HOUR: u32 = 12;
const SENDMAIL: &str = "/usr/sbin/sendmail";
/// The shortest key of a signature, in bytes: 128 bits as hexadecimal digits are longer.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: u64 = 4096;

/// A way to report changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// What it is called.
    pub name: String,
    /// How messages go.
    pub by: By,
    /// What is reported.
    pub on: Vec<Topic>,
    /// How long changes are collected before a message.
    pub wait: Duration,
    /// Messages an hour at most.
    pub per_hour: u32,
}

/// How messages go.
#[derive(Clone, PartialEq, Eq)]
pub enum By {
    /// Posted to an address.
    Webhook {
        /// The address.
        url: String,
        /// The file with the key of the signature.
        secret_file: Option<PathBuf>,
        /// It may be a link-local address.
        link_local: bool,
    },
    /// A program and its arguments.
    Command(Vec<String>),
    /// By mail.
    Email {
        /// To whom.
        to: Vec<String>,
        /// From whom; the system's default without.
        from: Option<String>,
        /// The program that sends it.
        sendmail: PathBuf,
    },
}

impl fmt::Debug for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The address of a webhook is often its password.
            Self::Webhook { .. } => f.write_str("Webhook"),
            Self::Command(words) => f.debug_tuple("Command").field(&words.first()).finish(),
            Self::Email { to, .. } => f.debug_tuple("Email").field(to).finish(),
        }
    }
}

/// What can be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// A finding of damage, or a suspect one.
    Finding,
    /// One of those is closed.
    Gone,
    /// A page was not verified in time, and that it is in time again.
    Overdue,
    /// A database could not be opened, or parts of it not be read, and that they can be again.
    Unreadable,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Finding, Self::Gone, Self::Overdue, Self::Unreadable];
}

/// A table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    name: String,
    webhook: Option<String>,
    secret_file: Option<PathBuf>,
    #[serde(default)]
    allow_http: bool,
    #[serde(default)]
    allow_link_local: bool,
    command: Option<Vec<String>>,
    email: Option<Vec<String>>,
    from: Option<String>,
    sendmail: Option<PathBuf>,
    on: Option<Vec<Topic>>,
    wait: Option<String>,
    per_hour: Option<u32>,
}

/// Reads a table. Files are relative to `folder`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn from_entry(
    entry: Entry,
    folder: &Path,
    time: fn(&str) -> Result<Duration, String>,
) -> Result<Way> {
    let is_web = entry.webhook.is_some();
    ensure!(
        is_web || (entry.secret_file.is_none() && !entry.allow_http && !entry.allow_link_local),
        "secret_file, allow_http and allow_link_local belong to a webhook"
    );
    let is_mail = entry.email.is_some();
    ensure!(
        is_mail || (entry.from.is_none() && entry.sendmail.is_none()),
        "from and sendmail belong to email"
    );
    let by = match (entry.webhook, entry.command, entry.email) {
        (Some(url), None, None) => {
            check_address(&url, entry.allow_http)?;
            let secret_file = entry.secret_file.map(|file| folder.join(file));
            if let Some(file) = &secret_file {
                secret(file)?;
            }
            By::Webhook { url, secret_file, link_local: entry.allow_link_local }
        }
        (None, Some(words), None) => {
            ensure!(words.first().is_some_and(|word| !word.is_empty()), "command names no program");
            By::Command(words)
        }
        (None, None, Some(to)) => {
            ensure!(!to.is_empty(), "email names no address");
            for address in to.iter().chain(&entry.from) {
                check_mailbox(address)?;
            }
            let sendmail = entry.sendmail.unwrap_or_else(|| PathBuf::from(SENDMAIL));
            By::Email { to, from: entry.from, sendmail }
        }
        _ => bail!("a [[notify]] has one of webhook, command or email"),
    };
    let wait = entry.wait.map(|text| time(&text)).transpose().map_err(|what| anyhow!(what))?;
    let per_hour = entry.per_hour.unwrap_or(PER_HOUR);
    ensure!(per_hour > 0, "per_hour is at least 1");
    Ok(Way {
        name: entry.name,
        by,
        on: entry.on.unwrap_or_else(|| Topic::ALL.to_vec()),
        wait: wait.unwrap_or(WAIT),
        per_hour,
    })
}

/// Messages name files and tables: they go over TLS, but to this machine.
fn check_address(url: &str, allow_http: bool) -> Result<()> {
    ensure!(url.bytes().all(|byte| byte.is_ascii_graphic()), "webhook is no address");
    if url.starts_with("https://") {
        return Ok(());
    }
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("webhook is an address that begins with https:// or http://");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let is_here = ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| {
        host.strip_prefix(name).is_some_and(|port| port.is_empty() || port.starts_with(':'))
    });
    ensure!(
        is_here || allow_http,
        "webhook goes to another machine without TLS: use https://, or allow_http = true"
    );
    Ok(())
}

/// An address becomes a line of a mail's head: it must be no more than that.
fn check_mailbox(address: &str) -> Result<()> {
    let is_fine = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b',' | b'<' | b'>' | b'"');
    let has_form = address.bytes().all(is_fine) && !address.starts_with('-');
    ensure!(has_form && !address.is_empty(), "'{}' is no mail address", address.escape_default());
    Ok(())
}

/// A secret out of a file that only its owner can read, without white space around it.
///
/// # Errors
/// It cannot be read, others can read it, or it is too short.
pub fn secret(file: &Path) -> Result<String> {
    let shown = file.display();
    let metadata = fs::metadata(file).with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        metadata.mode() & 0o077 == 0,
        "others can read {shown}\nhint: chmod 600 {}",
        pagewarden::shell::quoted(file.as_os_str())
    );
    ensure!(metadata.is_file() && metadata.len() <= SECRET_BYTES_MAX, "{shown} is no secret");
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let text = text.trim();
    ensure!(
        text.len() >= SECRET_BYTES_MIN,
        "the secret in {shown} is shorter than {SECRET_BYTES_MIN} bytes\n\
         hint: make one with openssl rand -hex 32"
    );
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use pagewarden::system::PermissionsExt as _;

    use super::*;

    fn read(text: &str) -> Result<Way> {
        let entry: Entry = toml::from_str(&format!("name = \"ops\"\n{text}"))?;
        from_entry(entry, Path::new("/etc/pagewarden"), |_| Ok(Duration::from_secs(5)))
    }

    #[test]
    fn each_way_has_its_settings() {
        let way =
            read("command = [\"/bin/logger\", \"-s\"]\non = [\"finding\"]\nwait = \"5s\"").unwrap();
        assert_eq!(way.by, By::Command(vec!["/bin/logger".to_owned(), "-s".to_owned()]));
        assert_eq!((way.on, way.wait), (vec![Topic::Finding], Duration::from_secs(5)));
        let mail = read("email = [\"dba@example.org\"]\nfrom = \"pw@example.org\"").unwrap();
        assert_eq!((mail.on.len(), mail.wait, mail.per_hour), (4, WAIT, PER_HOUR));
        for url in ["https://example.org/x", "http://localhost:1/x", "http://[::1]/"] {
            read(&format!("webhook = \"{url}\"")).unwrap();
        }
        read("webhook = \"http://example.org/x\"\nallow_http = true").unwrap();
    }

    #[test]
    fn what_could_not_work_or_would_leak_is_refused() {
        for (text, what) in [
            ("", "one of"),
            ("command = [\"a\"]\nemail = [\"b\"]", "one of"),
            ("command = []", "no program"),
            ("email = []", "no address"),
            ("email = [\"a@b\\nBcc: c\"]", "no mail address"),
            ("email = [\"-oQ/tmp\"]", "no mail address"),
            ("webhook = \"ftp://x\"", "begins with"),
            ("webhook = \"http://example.org\"", "without TLS"),
            ("webhook = \"http://localhost.example.org\"", "without TLS"),
            ("webhook = \"http://localhost:1@example.org\"", "without TLS"),
            ("webhook = \"https://x\"\nsecret_file = \"/no/such\"", "cannot read"),
            ("command = [\"a\"]\nallow_http = true", "belong to a webhook"),
            ("command = [\"a\"]\nallow_link_local = true", "belong to a webhook"),
            ("command = [\"a\"]\nfrom = \"x\"", "belong to email"),
            ("command = [\"a\"]\nper_hour = 0", "at least 1"),
            ("command = [\"a\"]\non = [\"all\"]", "unknown variant"),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn secrets_are_long_and_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, " 0123456789abcdef\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(secret(&file).unwrap_err().to_string().contains("others can read"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret(&file).unwrap(), "0123456789abcdef");
        fs::write(&file, "short").unwrap();
        assert!(secret(&file).unwrap_err().to_string().contains("shorter than"));
    }

    #[test]
    fn address_of_a_webhook_is_in_no_message() {
        let way = read("webhook = \"https://example.org/canary\"").unwrap();
        assert!(!format!("{way:?}").contains("canary"));
    }
}
