//! Taking files out of the page cache, and proof that they are out of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use pagewarden::source::residency::{Residency, forget, residency};
use pagewarden_scratch::home::Home;

/// Another processor may hold a page for a moment.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// Takes all files below a home out of the page cache; `Err` inside says why that
/// does not work here.
///
/// # Errors
/// A file cannot be opened or written out.
pub fn cool_down(home: &Home) -> Result<std::result::Result<(), String>> {
    home.drop_page_cache()?;
    for path in files_below(home.path())? {
        let cannot = || format!("cannot open {}", path.display());
        let file = File::open(&path).with_context(cannot)?;
        let length = file.metadata()?.len();
        let mut attempts = 0;
        while length > 0 && residency(&file, 0..length) != Residency::Nothing {
            if attempts == ATTEMPTS {
                return Ok(Err(format!(
                    "{} does not leave the page cache, or the system does not say so\n\
                     hint: --scratch DIR, on a disk",
                    path.display()
                )));
            }
            attempts += 1;
            thread::sleep(PAUSE);
            file.sync_all()?;
            forget(&file, &(0..length));
        }
    }
    Ok(Ok(()))
}

/// All regular files below a folder, in an order of their names.
///
/// # Errors
/// A folder cannot be listed.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot = || format!("cannot list {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}
