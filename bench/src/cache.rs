//! Bringing files into the page cache and out of it, and proof of either.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pagewarden::source::file::open_regular;
use pagewarden::source::residency::{Residency, forget, residency};

/// How long a file may take to leave the page cache.
const PATIENCE: Duration = Duration::from_secs(10);

/// Files of a database.
#[derive(Debug)]
pub struct FileSet {
    /// Path and length of each that is not empty.
    pub files: Vec<(PathBuf, u64)>,
}

impl FileSet {
    /// The length of all together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, length)| length).sum()
    }

    /// Reads whatever is not in the page cache. Other programs, or the kernel
    /// itself, may have taken something out of it since the last round.
    pub fn warm_up(&self) -> anyhow::Result<()> {
        const ATTEMPTS: u32 = 5;
        for _ in 0..ATTEMPTS {
            let mut absent = false;
            for (path, length) in &self.files {
                let file = open(path)?;
                if residency(&file, 0..*length) != Residency::Whole {
                    absent = true;
                    std::io::copy(&mut &file, &mut std::io::sink())?;
                }
            }
            if !absent {
                return Ok(());
            }
        }
        bail!("the files do not stay in the page cache\nhint: is there memory for them?")
    }

    /// Takes all of it out of the page cache.
    pub fn cool_down(&self) -> anyhow::Result<()> {
        for (path, length) in &self.files {
            let file = open(path)?;
            let deadline = Instant::now() + PATIENCE;
            loop {
                forget(&file, &(0..*length));
                let state = residency(&file, 0..*length);
                if state == Residency::Nothing {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("{} stays in the page cache: {state:?}", path.display());
                }
                // Dirty, or held for a moment by another processor.
                file.sync_all()?;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    open_regular(path).with_context(|| path.display().to_string())
}
