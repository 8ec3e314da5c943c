//! The least that `protect` can take: each file read, and written back in place, and nothing
//! looked at. Through the page cache that is the system's own work, and past it what the disk
//! gives. What comes past it may take longer once it is looked at, for it lies where the device
//! put it, which need not be near.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context as _, ensure};
use pagewarden::source::buffer::AlignedBuffer;

/// What to write back.
#[derive(Debug, Default, clap::Args)]
pub struct Arguments {
    /// Wait until the device holds it
    #[arg(long)]
    sync: bool,
    /// Past the page cache
    #[arg(long)]
    past: bool,
    /// How many do it at a time
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Write nothing
    #[arg(long)]
    only_read: bool,
    /// Add up what was read: every byte of it comes to the processor
    #[arg(long)]
    look: bool,
    /// Files
    files: Vec<PathBuf>,
}

/// As `pagewarden protect` has them.
const RUN_BYTES: usize = 512 << 10;
const RUN_BYTES_PAST: usize = 2 << 20;

/// Reads the files and writes them back.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runs = Mutex::new(Runs::new(arguments)?);
    let work = || -> anyhow::Result<()> {
        let mut memory = AlignedBuffer::new(RUN_BYTES_PAST);
        let mut last: Option<(PathBuf, File)> = None;
        while let Some((path, offset, length)) = next(&runs) {
            let named = || path.display().to_string();
            let file = match last {
                Some((opened, file)) if opened == path => file,
                _ => open(&path, arguments.past).with_context(named)?,
            };
            let bytes = memory.bytes_mut().get_mut(..length).context("a run is too long")?;
            file.read_exact_at(bytes, offset).with_context(named)?;
            if arguments.look {
                black_box(sum(bytes));
            }
            if !arguments.only_read {
                file.write_all_at(bytes, offset).with_context(named)?;
            }
            last = Some((path, file));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    if arguments.sync {
        for path in &arguments.files {
            let named = || path.display().to_string();
            open(path, false).and_then(|file| file.sync_all()).with_context(named)?;
        }
    }
    Ok(())
}

fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let rest = rest.iter().map(|byte| u64::from(*byte));
    words.iter().map(|word| u64::from_le_bytes(*word)).chain(rest).fold(0, u64::wrapping_add)
}

/// What is left to do, from the last of them on.
struct Runs {
    files: Vec<(PathBuf, u64)>,
    offset: u64,
    bytes: usize,
}

impl Runs {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        ensure!(arguments.threads > 0, "no thread reads nothing");
        let length = |path: &PathBuf| -> anyhow::Result<_> {
            let metadata = path.metadata().with_context(|| path.display().to_string())?;
            Ok((path.clone(), metadata.len()))
        };
        let files = arguments.files.iter().rev().map(length).collect::<Result<_, _>>()?;
        Ok(Self {
            files,
            offset: 0,
            bytes: if arguments.past { RUN_BYTES_PAST } else { RUN_BYTES },
        })
    }
}

/// Path, offset and length of the next run.
fn next(runs: &Mutex<Runs>) -> Option<(PathBuf, u64, usize)> {
    let mut runs = runs.lock().ok()?;
    loop {
        let offset = runs.offset;
        let (path, length) = runs.files.last()?;
        let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = left.min(runs.bytes);
        if bytes > 0 {
            let path = path.clone();
            runs.offset = offset + bytes as u64;
            return Some((path, offset, bytes));
        }
        runs.files.pop();
        runs.offset = 0;
    }
}

fn open(path: &Path, past: bool) -> std::io::Result<File> {
    let flags = if past { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_the_sum() {
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 3]), 6);
    }

    #[test]
    fn a_file_stays_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..2 * RUN_BYTES_PAST + 8192).map(|at| at.to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, []).unwrap();
        let refused = open(&path, true).is_err();
        for (past, threads) in [(false, 1), (false, 2), (true, 3)] {
            if past && refused {
                eprintln!("skipped, this file system has no way past the page cache");
                continue;
            }
            for only_read in [false, true] {
                let files = vec![empty.clone(), path.clone()];
                let arguments =
                    Arguments { sync: true, past, threads, only_read, look: only_read, files };
                run(&arguments).unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), bytes);
            }
        }
        let missing = vec![folder.path().join("none")];
        assert!(run(&Arguments { threads: 1, files: missing, ..Arguments::default() }).is_err());
        let files = vec![path];
        assert!(run(&Arguments { threads: 0, files, ..Arguments::default() }).is_err());
    }
}
