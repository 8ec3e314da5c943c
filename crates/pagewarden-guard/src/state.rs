//! The folder where the ledger is, and the lock on it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use pagewarden::source::trusted_path::{End, foreign_to_root, user};
use pagewarden::system::Errno;
use pagewarden::system::fs::{FlockOperation, OFlags, flock};
use pagewarden::system::{DirBuilderExt as _, OpenOptionsExt as _};
use pagewarden::words::printable;

use crate::moment;

const LOCK: &str = "lock";
/// What the holder of a lock writes is shorter.
const HOLDER_BYTES_MAX: u64 = 512;

/// Where the state is if no folder is named: that of the service, the system's for root, the
/// user's.
#[must_use]
pub fn default_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("STATE_DIRECTORY").filter(|name| !name.is_empty()) {
        return PathBuf::from(folder);
    }
    if pagewarden::system::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/pagewarden");
    }
    let home = || {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        home.join(".local/state")
    };
    std::env::var_os("XDG_STATE_HOME").map_or_else(home, PathBuf::from).join("pagewarden")
}

/// The folder, locked: no other run uses it to write until this is dropped.
#[derive(Debug)]
pub struct Held {
    folder: PathBuf,
    _lock: File,
}

impl Held {
    /// Makes the folder if there is none, and locks it for a run of `command`.
    ///
    /// # Errors
    /// It cannot be written, it lies in a database, or another run holds it: the message says
    /// which.
    pub fn lock(folder: &Path, command: &str, databases: &[PathBuf]) -> Result<Self> {
        let shown = folder.display();
        for database in databases {
            refuse_inside(folder, database)?;
        }
        refuse_foreign(folder)?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make the state folder {shown}"))?;
        refuse_foreign(folder)?;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(folder.join(LOCK))
            .with_context(|| format!("cannot write to the state folder {shown}"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // Who holds it is a courtesy; that it is held is known.
                let _ = (&mut file).take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
                let holder = printable(holder.trim());
                let holder = if holder.is_empty() { "another run".to_owned() } else { holder };
                bail!(
                    "the state folder {shown} is held by {holder}\n\
                     hint: wait for its end, or name another folder with --state"
                );
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock the state folder {shown}"));
            }
        }
        let holder = format!(
            "{command} (process {}, since {})\n",
            std::process::id(),
            moment::shown(moment::now())
        );
        let write = |file: &mut File| {
            file.rewind()?;
            file.set_len(0)?;
            file.write_all(holder.as_bytes())
        };
        write(&mut file).with_context(|| format!("cannot write to the state folder {shown}"))?;
        Ok(Self { folder: folder.to_owned(), _lock: file })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// SQLite finds the ledger and the files beside it by their names, so root works only where no other
/// user can put something else in their place.
fn refuse_foreign(folder: &Path) -> Result<()> {
    let shown = folder.display();
    let foreign = foreign_to_root(folder, End::Inside)
        .with_context(|| format!("cannot look at the state folder {shown}"))?;
    let Some(foreign) = foreign.first() else { return Ok(()) };
    let hint = match foreign.is_open {
        true => "name a folder that only root can change with --state".to_owned(),
        false => format!(
            "run it as that user: sudo -u {}, or name a folder that only root can change with --state",
            user(foreign.owner)
        ),
    };
    bail!("the state folder {shown} is not used by root: {foreign}\nhint: {hint}")
}

/// Nothing is ever written below what is verified.
fn refuse_inside(folder: &Path, database: &Path) -> Result<()> {
    let Ok(database) = fs::canonicalize(database) else { return Ok(()) };
    // The folder may not exist yet; the first of those above it that does says where it is.
    let folder = std::path::absolute(folder)?;
    let real = folder.ancestors().find_map(|above| fs::canonicalize(above).ok());
    if database.is_dir() && real.is_some_and(|real| real.starts_with(&database)) {
        bail!(
            "the state folder {} lies inside {}, which is only read\n\
             hint: name another folder with --state",
            folder.display(),
            database.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_run_is_refused_and_learns_who_holds_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("deep/state");
        let held = Held::lock(&state, "scrub", &[]).unwrap();
        let error = Held::lock(&state, "serve", &[]).unwrap_err().to_string();
        let expected = format!("is held by scrub (process {}, since ", std::process::id());
        assert!(error.contains(&expected), "{error}");
        drop(held);
        Held::lock(&state, "serve", &[]).unwrap();
    }

    #[test]
    fn state_never_lies_inside_a_database() {
        let folder = tempfile::tempdir().unwrap();
        let databases = [folder.path().to_owned()];
        for state in [folder.path().join("state"), folder.path().to_owned()] {
            let error = Held::lock(&state, "scrub", &databases).unwrap_err().to_string();
            assert!(error.contains("lies inside"), "{error}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
