//! `unpack FILE.pwk DIR`: the very files again.
//!
//! Everything is written below a folder with a temporary name beside DIR, which
//! gets DIR's name when all of it is tested and on the device.

use std::fs::{self, File};
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::pack::{BEGIN, Entry, Pack, Restored, restore};
use pagewarden::report::words::{bytes, counted, duration, rate};
use pagewarden::verify::mib_per_second;
use serde_json::json;

use crate::args::Unpack;
use crate::exit::Exit;
use crate::progress::Show;
use crate::signals::stop_on_signals;

/// True if this is a pack, by its first bytes.
pub(super) fn is_pack(path: &Path) -> bool {
    use std::io::Read as _;
    let mut begin = [0; BEGIN.len()];
    let read = pagewarden::source::file::open_regular(path)
        .and_then(|mut file: File| file.read_exact(&mut begin));
    read.is_ok() && begin == *BEGIN.as_bytes()
}

pub(super) fn run(arguments: &Unpack, path: &Path) -> Result<Exit> {
    let begin = Instant::now();
    ensure!(arguments.files.len() == 1, "name one pack at a time");
    ensure!(
        arguments.set == 1 && !arguments.restore_bits && !arguments.full_size,
        "--set, --restore-bits and --full-size are for backups of SQL Server; {} is a pack",
        path.display()
    );
    ensure!(arguments.rate.is_none(), "--rate is not for packs yet");
    let pack = Pack::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let wanted = |entry: &Entry| is_wanted(entry, &arguments.only);
    for name in &arguments.only {
        let found = pack.entries().iter().any(|entry| entry.name.starts_with(name));
        ensure!(found, "{} holds no {}", path.display(), name.display());
    }
    let place = Place::prepare(&arguments.folder)?;
    let needed: u64 = pack.entries().iter().filter(|entry| wanted(entry)).map(Entry::bytes).sum();
    let free = rustix::fs::statvfs(&place.parent)
        .map(|status| status.f_bavail.saturating_mul(status.f_frsize));
    ensure!(
        !free.is_ok_and(|free| free < needed),
        "cannot unpack {}: {} are needed, and {} are free in {}",
        path.display(),
        bytes(needed),
        bytes(free.unwrap_or(0)),
        place.parent.display()
    );
    let stop = stop_on_signals()?;
    let show = Show::choose(arguments.quiet, arguments.progress);
    show.expect(needed);
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let jobs = arguments.jobs.unwrap_or(cores).get();
    let restored = restore(&pack, place.temporary.path(), &wanted, jobs, &stop, &show);
    show.end();
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Stopped);
    }
    let restored = restored?;
    place.keep()?;
    report(arguments, &pack, restored, begin, &show)?;
    Ok(Exit::Fine)
}

/// What was asked for, what lies below it, and the folders that lead to it.
fn is_wanted(entry: &Entry, only: &[PathBuf]) -> bool {
    let leads = |name: &PathBuf| {
        entry.name.starts_with(name)
            || name.starts_with(&entry.name)
            || entry.name == Path::new(".")
    };
    only.is_empty() || only.iter().any(leads)
}

fn report(
    arguments: &Unpack,
    pack: &Pack,
    restored: Restored,
    begin: Instant,
    show: &Show,
) -> Result<()> {
    let elapsed = begin.elapsed();
    let mut out = show.output();
    if arguments.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "unpack",
            "verdict": "intact",
            "root": pack.root().to_string(),
            "files": restored.files,
            "bytes": restored.bytes,
            "seconds": elapsed.as_secs_f64(),
        });
        writeln!(out, "{object}")?;
    } else {
        writeln!(
            out,
            "Unpacked {} ({}) in {} ({} MiB/s)",
            counted(restored.files, "file"),
            bytes(restored.bytes),
            duration(elapsed),
            rate(mib_per_second(restored.bytes, elapsed)),
        )?;
    }
    out.flush()?;
    Ok(())
}

/// Where the files will be, and the folder that becomes it.
struct Place {
    folder: PathBuf,
    parent: PathBuf,
    temporary: tempfile::TempDir,
}

impl Place {
    fn prepare(folder: &Path) -> Result<Self> {
        let shown = folder.display();
        match fs::read_dir(folder) {
            Ok(mut entries) => ensure!(
                entries.next().is_none(),
                "cannot write {shown}: it is not empty\nhint: name a folder that does not exist"
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => bail!("cannot write {shown}: {error}"),
        }
        let parent = match folder.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let parent = fs::canonicalize(parent).with_context(|| {
            format!("cannot write {shown}: the folder it lies in is not to be had")
        })?;
        let temporary = tempfile::Builder::new()
            .prefix(".pagewarden-")
            .suffix(".tmp")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot write {shown}"))?;
        Ok(Self { folder: folder.to_owned(), parent, temporary })
    }

    /// Gives the folder its name. An empty one that has it makes room.
    fn keep(self) -> Result<()> {
        let Self { folder, parent, temporary } = self;
        let keep = || {
            File::open(temporary.path())?.sync_all()?;
            fs::rename(temporary.path(), &folder)?;
            // Nothing is left to remove.
            let _ = temporary.keep();
            File::open(&parent)?.sync_all()
        };
        keep().with_context(|| format!("cannot write {}", folder.display()))
    }
}
