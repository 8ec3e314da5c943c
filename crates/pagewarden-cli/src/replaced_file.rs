//! A report that goes to a file: the file is replaced in one step when all is
//! known, so that a reader finds the old one or the new one, whole.
//!
//! A file named by mistake must not be lost, least of all a database: what is
//! replaced must look like an earlier report of the same kind, and nothing is
//! ever written below a path that is being checked.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use pagewarden::system::fs::OFlags;
use pagewarden::system::{OpenOptionsExt as _, set_mode, with_mode};

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::source::held_folder::HeldFolder;

/// More is no report that Pagewarden wrote.
const PREVIOUS_BYTES_MAX: u64 = 1 << 20;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A page for people.
    Html,
    /// A page with values of rows in it: readable by its owner only.
    HtmlWithValues,
    /// A map of the pages.
    Picture,
    /// Figures for a monitoring system, which must be able to read them.
    Metrics,
    /// A seal.
    Seal,
    /// A plan.
    Plan,
    /// The result of a part of a plan.
    Part,
    /// Receipts of passes.
    Evidence,
    /// A signature over those.
    Signature,
}

impl Content {
    /// True if `text` may be an earlier report.
    fn knows(self, text: &str) -> bool {
        let begin = match self {
            Self::Html | Self::HtmlWithValues => pagewarden::report::html::BEGIN,
            Self::Picture => pagewarden::report::picture::BEGIN,
            Self::Metrics => pagewarden::report::metrics::BEGIN,
            Self::Seal => pagewarden::seal::BEGIN,
            Self::Plan => pagewarden_plan::plan::BEGIN,
            Self::Part => pagewarden_plan::result::BEGIN,
            Self::Evidence => pagewarden_guard::evidence::chain::BEGIN,
            Self::Signature => "-----BEGIN SSH SIGNATURE-----",
        };
        text.is_empty() || text.starts_with(begin)
    }

    /// The mode of the file; for a page the user's mask has its say.
    fn create_mode(self) -> u32 {
        match self {
            Self::Html | Self::Picture | Self::Seal | Self::Plan | Self::Part => 0o666,
            Self::Evidence | Self::Signature => 0o666,
            Self::HtmlWithValues => 0o600,
            Self::Metrics => 0o644,
        }
    }
}

/// A file that will be replaced.
#[derive(Debug)]
pub struct ReplacedFile {
    path: PathBuf,
    folder: HeldFolder,
    content: Content,
    /// What it held before.
    pub previous: String,
}

impl ReplacedFile {
    /// Makes sure that `path` can and may be replaced, before hours are spent
    /// on what is to be in it.
    ///
    /// # Errors
    /// It cannot, or may not. Nothing is left behind.
    pub fn prepare(path: &Path, content: Content, checked: &[PathBuf]) -> Result<Self> {
        let shown = path.display();
        ensure!(path.file_name().is_some(), "cannot write {shown}: it names no file");
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let real = fs::canonicalize(folder).with_context(|| {
            format!("cannot write {shown}: its parent directory is not accessible")
        })?;
        for target in checked {
            let Ok(target) = fs::canonicalize(target) else { continue };
            ensure!(
                !real.starts_with(&target),
                "cannot write {shown}: it lies inside {}, which is only read\n\
                 hint: name a file somewhere else",
                target.display()
            );
        }
        let held = HeldFolder::of(path).with_context(|| format!("cannot write {shown}"))?;
        let held = held.kept_open();
        let previous = previous(&held.place_of(path), path)?;
        ensure!(
            content.knows(&previous),
            "cannot write {shown}: it exists and is no report of pagewarden\n\
             hint: name another file, or remove this one"
        );
        let file = Self { path: path.to_owned(), folder: held, content, previous };
        file.temporary().map(drop)?;
        Ok(file)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file beside it, to be written and then put in its place; removed if it
    /// is dropped before.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn temporary(&self) -> Result<tempfile::NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        with_mode(builder.prefix(".pagewarden-").suffix(".tmp"), self.content.create_mode())
            .tempfile_in(self.folder.path())
            // Its own words name the temporary file.
            .map_err(|error| std::io::Error::from(error.kind()))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// It could not be written; the old one is still there.
    pub fn replace(self, bytes: &[u8]) -> Result<()> {
        let mut file = self.temporary()?;
        file.write_all(bytes).with_context(|| format!("cannot write {}", self.path.display()))?;
        self.put(file)
    }

    /// Puts what was written in its place.
    ///
    /// # Errors
    /// It could not be; the old one is still there.
    pub fn put(self, file: tempfile::NamedTempFile) -> Result<()> {
        let write = || {
            if self.content == Content::Metrics {
                set_mode(file.as_file(), self.content.create_mode())?;
            }
            file.as_file().sync_all()?;
            file.persist(self.folder.place_of(&self.path))?;
            self.folder.sync()
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// What is there now, as far as it can be a report.
fn previous(place: &Path, path: &Path) -> Result<String> {
    let metadata = match fs::symlink_metadata(place) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error).context(format!("cannot write {}", path.display())),
    };
    if !metadata.is_file() {
        bail!("cannot write {}: it exists and is not a regular file", path.display());
    }
    let mut bytes = Vec::new();
    // It may have become a link, or a pipe without a writer.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(place)
        .and_then(|file| file.take(PREVIOUS_BYTES_MAX).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}, which is to be replaced", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn prepare(path: &Path, checked: &[PathBuf]) -> Result<ReplacedFile> {
        ReplacedFile::prepare(path, Content::Metrics, checked)
    }

    #[test]
    fn a_report_is_replaced_whole_and_readable_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pagewarden.prom");
        for text in ["# HELP pagewarden_build_info a\n", "# HELP pagewarden_build_info b\n"] {
            prepare(&path, &[]).unwrap().replace(text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_page_with_values_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        // Also in the place of one that others can read.
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let file = ReplacedFile::prepare(&path, Content::HtmlWithValues, &[]).unwrap();
        file.replace(b"secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn nothing_but_a_report_is_ever_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.sqlite");
        fs::write(&path, b"SQLite format 3\0").unwrap();
        assert!(prepare(&path, &[]).is_err());
        assert!(prepare(folder.path(), &[]).is_err());
        let link = folder.path().join("link");
        pagewarden::system::symlink("/dev/null", &link).unwrap();
        assert!(prepare(&link, &[]).is_err());
        assert!(prepare(&folder.path().join("none/x"), &[]).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"SQLite format 3\0");
    }

    #[test]
    fn nothing_is_written_below_what_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("base");
        fs::create_dir(&below).unwrap();
        let checked = [folder.path().to_owned()];
        assert!(prepare(&below.join("x.prom"), &checked).is_err());
        assert!(prepare(&folder.path().join("base/../x.prom"), &checked).is_err());
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0);
    }
}
