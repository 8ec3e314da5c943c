//! The configuration: a TOML file with a `[[database]]` table for each database.
//!
//! | key | what |
//! | --- | --- |
//! | `name` | what it is called: letters, digits, `.`, `_`, `-` |
//! | `path` | anything that `check` takes; relative to the configuration's folder |
//! | `every` | each page is to be verified at least so often, `7d` |
//! | `window` | when to read, in local time, `01:00-05:00` |
//! | `budget` | how long to read at a time, `2h` |
//! | `rate` | how fast, as `--rate` |
//! | `seal` | make a seal of each pass that read all in one run and found nothing wrong |
//! | `keyring` | the file with the keys of its encrypted pages, as `--keyring` |
//! | `cipher_pass_file` | the file with the passphrase of its repository, as `--cipher-pass-file` |
//! | `repair_from` | where sound copies of its pages may be, as `repair --from`: a list |
//! | `repair_log` | folders with its archived log, as `repair --log`: a list |
//!
//! With `repair_from`, each damaged page has the command that plans its repair in its hint.
//!
//! A `[[notify]]` table says where changes are reported: [`crate::notify::way`] has its keys.
//!
//! A key that is not known is an error with its line: a setting that is misspelled must not be
//! taken for the default.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use pagewarden::database::OpenOptions;
use pagewarden::repair::advice::{Advice, Sources};
use pagewarden::source::rate::Rate;
use serde::Deserialize;
use toml::Spanned;

use crate::moment::Window;
use crate::notify::way::{self, Way};

/// How often each page is to be verified where nothing else is said.
pub const EVERY: Duration = Duration::from_secs(7 * 24 * 3600);

/// The longest name; it is a label of metrics and a part of addresses.
const NAME_CHARS_MAX: usize = 64;
/// A configuration of thousands of databases is shorter.
const BYTES_MAX: u64 = 16 << 20;

/// A database that is to be verified again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What it is called.
    pub name: String,
    /// Where it is: one path, or the files of a backup in several.
    pub paths: Vec<PathBuf>,
    /// Each page is to be verified at least so often.
    pub every: Duration,
    /// When to read.
    pub window: Option<Window>,
    /// How long to read at a time.
    pub budget: Option<Duration>,
    /// How fast to read.
    pub rate: Rate,
    /// Whether to make a seal of each pass that read all in one run.
    pub seal: bool,
    /// The file with the keys of its encrypted pages.
    pub keyring: Option<PathBuf>,
    /// The file with the passphrase of its repository.
    pub cipher_pass_file: Option<PathBuf>,
    /// What a repair may take pages from.
    pub repair: Sources,
}

impl Subject {
    /// A database by its path alone.
    #[must_use]
    pub fn of_path(path: &Path) -> Self {
        Self::of_parts(vec![path.to_owned()])
    }

    /// A database in these files. It is called by where the first of them is.
    #[must_use]
    pub fn of_parts(paths: Vec<PathBuf>) -> Self {
        let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
        let place = fs::canonicalize(first).or_else(|_| std::path::absolute(first));
        let name = place.unwrap_or_else(|_| first.to_owned()).to_string_lossy().into_owned();
        Self {
            name,
            paths,
            every: EVERY,
            window: None,
            budget: None,
            rate: Rate::default(),
            seal: false,
            keyring: None,
            cipher_pass_file: None,
            repair: Sources::default(),
        }
    }

    /// How it is opened: with what is its own, else as all are.
    #[must_use]
    pub fn open_options(&self, all: &OpenOptions) -> OpenOptions {
        let mut open = all.clone();
        if self.keyring.is_some() {
            open.keyring.clone_from(&self.keyring);
        }
        if self.cipher_pass_file.is_some() {
            open.repository.cipher_pass_file.clone_from(&self.cipher_pass_file);
        }
        open
    }

    /// How a repair of it is planned, if a source is known.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        Advice::of(self.path(), &self.repair)
    }

    /// The path that it is reported by.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }
}

/// All that a configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The databases.
    pub databases: Vec<Subject>,
    /// Where changes are reported.
    pub ways: Vec<Way>,
}

/// How the values of settings are read: as those of the command line's flags.
#[derive(Debug, Clone, Copy)]
pub struct Readers {
    /// A time, `2h`.
    pub time: fn(&str) -> Result<Duration, String>,
    /// A rate, `200MiB/s`.
    pub rate: fn(&str) -> Result<Rate, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    database: Vec<Entry>,
    #[serde(default)]
    notify: Vec<Spanned<way::Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    path: PathBuf,
    every: Option<Spanned<String>>,
    window: Option<Spanned<String>>,
    budget: Option<Spanned<String>>,
    rate: Option<Spanned<String>>,
    #[serde(default)]
    seal: bool,
    #[serde(default)]
    repair_from: Vec<PathBuf>,
    keyring: Option<PathBuf>,
    cipher_pass_file: Option<PathBuf>,
    #[serde(default)]
    repair_log: Vec<PathBuf>,
}

/// Where the configuration is if no other is named: the system's, then the user's.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    let users = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")));
    let users = users.map(|folder| folder.join("pagewarden/pagewarden.toml"));
    let systems = PathBuf::from("/etc/pagewarden/pagewarden.toml");
    std::iter::once(systems).chain(users).find(|path| path.exists())
}

/// Reads a configuration.
///
/// # Errors
/// It cannot be read, or something in it is wrong; the message has its line.
pub fn read(path: &Path, readers: Readers) -> Result<Configuration> {
    let shown = path.display();
    let length = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    ensure!(length <= BYTES_MAX, "{shown}: longer than any configuration\nhint: name another file");
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(&text, folder, readers).map_err(|(line, what)| match line {
        Some(line) => anyhow!("{shown}:{line}: {what}"),
        None => anyhow!("{shown}: {what}"),
    })
}

/// What is wrong, and in which line.
type Fault = (Option<usize>, String);

fn parse(text: &str, folder: &Path, readers: Readers) -> Result<Configuration, Fault> {
    let line_of =
        |span: Range<usize>| text.get(..span.start).map(|before| before.matches('\n').count() + 1);
    let file: File = toml::from_str(text)
        .map_err(|error| (error.span().and_then(line_of), error.message().to_owned()))?;
    let mut ways: Vec<Way> = Vec::new();
    for entry in file.notify {
        let line = line_of(entry.span());
        let way = way::from_entry(entry.into_inner(), folder, readers.time)
            .and_then(|way| check_name(&way.name).map(|()| way))
            .map_err(|error| (line, format!("{error:#}")))?;
        if ways.iter().any(|other| other.name == way.name) {
            return Err((line, format!("two [[notify]] have the name {}", way.name)));
        }
        ways.push(way);
    }
    Ok(Configuration { databases: databases(file.database, folder, readers, line_of)?, ways })
}

fn databases(
    entries: Vec<Entry>,
    folder: &Path,
    readers: Readers,
    line_of: impl Fn(Range<usize>) -> Option<usize>,
) -> Result<Vec<Subject>, Fault> {
    let mut subjects: Vec<Subject> = Vec::new();
    for entry in entries {
        let at = |spanned: &Spanned<String>, what: String| (line_of(spanned.span()), what);
        let name = entry.name.get_ref();
        check_name(name).map_err(|error| at(&entry.name, error.to_string()))?;
        if subjects.iter().any(|other| other.name == *name) {
            return Err(at(&entry.name, format!("there are two databases of the name {name}")));
        }
        let time = |value: &Option<Spanned<String>>| {
            let time = value
                .as_ref()
                .map(|value| (readers.time)(value.get_ref()).map_err(|what| at(value, what)));
            time.transpose()
        };
        let rate = entry
            .rate
            .as_ref()
            .map(|value| (readers.rate)(value.get_ref()).map_err(|what| at(value, what)));
        let window = entry
            .window
            .as_ref()
            .map(|value| Window::parse(value.get_ref()).map_err(|what| at(value, what)));
        let keyring = entry.keyring.as_ref().map(|file| folder.join(file));
        subjects.push(Subject {
            name: name.clone(),
            paths: vec![folder.join(&entry.path)],
            every: time(&entry.every)?.unwrap_or(EVERY),
            window: window.transpose()?,
            budget: time(&entry.budget)?,
            rate: rate.transpose()?.unwrap_or_default(),
            seal: entry.seal,
            repair: Sources {
                from: entry.repair_from.iter().map(|from| place(folder, from)).collect(),
                log: entry.repair_log.iter().map(|log| place(folder, log)).collect(),
                keyring: keyring.clone(),
            },
            keyring,
            cipher_pass_file: entry.cipher_pass_file.as_ref().map(|file| folder.join(file)),
        });
    }
    Ok(subjects)
}

/// A path of the configuration. An address is none.
fn place(folder: &Path, path: &Path) -> PathBuf {
    let is_address = path.to_str().is_some_and(|text| text.contains("://"));
    if is_address { path.to_owned() } else { folder.join(path) }
}

fn check_name(name: &str) -> Result<()> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.bytes().all(is_fine) {
        bail!("a name has 1 to {NAME_CHARS_MAX} letters, digits, '.', '_' and '-'");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const READERS: Readers = Readers {
        time: |text| match text.strip_suffix('h').and_then(|hours| hours.parse::<u64>().ok()) {
            Some(hours) => Ok(Duration::from_secs(hours * 3600)),
            None => Err(format!("'{text}' is not a time")),
        },
        rate: |_| Ok(Rate::Unlimited),
    };

    fn parsed(text: &str) -> Result<Vec<Subject>, Fault> {
        parse(text, Path::new("/etc/pagewarden"), READERS).map(|read| read.databases)
    }

    #[test]
    fn every_setting_is_read() {
        let text = "[[database]]\nname = \"main\"\npath = \"/data\"\nevery = \"24h\"\n\
                    window = \"01:00-05:00\"\nbudget = \"2h\"\nrate = \"none\"\nseal = true\n\
                    keyring = \"keys\"\ncipher_pass_file = \"/pass\"\n\
                    [[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\n\
                    repair_from = [\"old.sqlite\", \"s3://b/k\"]\nrepair_log = [\"/log\"]\n";
        let subjects = parsed(text).unwrap();
        assert_eq!(subjects.len(), 2);
        assert_eq!(subjects[0].every, Duration::from_secs(24 * 3600));
        assert_eq!(subjects[0].budget, Some(Duration::from_secs(7200)));
        assert_eq!(subjects[0].window, Window::parse("01:00-05:00").ok());
        assert!(subjects[0].seal && subjects[0].rate == Rate::Unlimited);
        assert_eq!(subjects[1].paths, [Path::new("/etc/pagewarden/shop.sqlite")]);
        let from = ["/etc/pagewarden/old.sqlite", "s3://b/k"].map(PathBuf::from);
        assert_eq!(subjects[1].repair.from, from);
        assert_eq!(subjects[1].repair.log, [Path::new("/log")]);
        let keyring = Some(PathBuf::from("/etc/pagewarden/keys"));
        let all = OpenOptions { no_witness: true, ..OpenOptions::default() };
        let open = subjects[0].open_options(&all);
        assert_eq!((&open.keyring, open.no_witness), (&keyring, true));
        assert_eq!(open.repository.cipher_pass_file, Some(PathBuf::from("/pass")));
        assert_eq!(subjects[0].repair, Sources { keyring, ..Sources::default() });
        let all = OpenOptions { keyring: Some("other".into()), ..all };
        assert_eq!(subjects[1].open_options(&all), all);
        assert_eq!((subjects[1].every, subjects[1].seal), (EVERY, false));
        assert_eq!(parsed("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let head = "[[database]]\nname = \"main\"\npath = \"/data\"\n";
        for (text, line, what) in [
            (format!("{head}evry = \"7d\"\n"), 4, "evry"),
            ("[server]\n".to_owned(), 1, "server"),
            (format!("{head}every = \"often\"\n"), 4, "not a time"),
            (format!("{head}window = \"night\"\n"), 4, "no window"),
            (format!("{head}{head}"), 5, "two databases"),
            ("[[database]]\nname = \"a b\"\npath = \"/x\"\n".to_owned(), 2, "a name has"),
            ("[[database]]\nname = \"a\"\n".to_owned(), 1, "path"),
            (format!("{head}seal = 1\n"), 4, "bool"),
            (format!("{head}= 3\n"), 4, ""),
            (format!("{head}[[notify]]\nname = \"ops\"\n"), 4, "webhook, command or email"),
            ("[[notify]]\nname = \"a\"\nmail = \"b\"\n".to_owned(), 3, "mail"),
        ] {
            let (at, message) = parsed(&text).unwrap_err();
            assert_eq!(at, Some(line), "{text}: {message}");
            assert!(message.contains(what), "{text}: {message}");
        }
    }
}
