//! `pagewarden mount`.

#![allow(clippy::print_stderr)]

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use pagewarden::pack::{Entry, Pack, PackError, Search, What, open_chain};
use pagewarden::words::{bytes, counted};
use pagewarden_mount::{Mounted, Options, Unmounted, Unread, cleanup};
use serde_json::json;

use crate::args::mount::Mount;
use crate::exit::{self, Exit, say};
use crate::signals::stop_on_signals;

mod account;
mod repack;

/// How often we look whether we are to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the command.
pub fn run(arguments: &Mount) -> Result<Exit> {
    exit::or_json("mount", arguments.json, || match &arguments.cleanup {
        Some(folder) => clean(arguments, folder),
        None => mount(arguments),
    })
}

fn mount(arguments: &Mount) -> Result<Exit> {
    // The command line asks for a pack, and for a folder unless it is repacked.
    let Some(pack) = &arguments.pack else { return Ok(Exit::Unable) };
    match (&arguments.repack, &arguments.durable, &arguments.mounted, &arguments.folder) {
        (Some(new), _, Some(mounted), _) => repack::read(arguments, pack, new, mounted),
        (Some(new), Some(durable), ..) => repack::run(arguments, pack, new, durable),
        (.., Some(folder)) => serve(arguments, pack, folder),
        _ => Ok(Exit::Unable),
    }
}

fn clean(arguments: &Mount, folder: &Path) -> Result<Exit> {
    let begin = Instant::now();
    let count = cleanup(folder)?;
    if arguments.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "mount",
            "verdict": "intact",
            "cleaned": count,
            "seconds": begin.elapsed().as_secs_f64(),
        });
        writeln!(io::stdout(), "{object}")?;
    } else if !arguments.quiet && count > 0 {
        say(format_args!("{} is free again: its dead mount is gone", folder.display()));
    } else if !arguments.quiet {
        say(format_args!("nothing to clean up: {} is no mount", folder.display()));
    }
    Ok(Exit::Fine)
}

fn options(arguments: &Mount) -> Result<Options> {
    let mut options = Options::for_ourselves();
    if let Some(name) = &arguments.owner {
        options.owner = Some(account::owner(name)?);
    }
    options.is_read_only = arguments.read_only;
    options.delta_bytes_max = arguments.delta_max;
    options.scratch.clone_from(&arguments.scratch);
    options.durable.clone_from(&arguments.durable);
    options.reader.cache_bytes = usize::try_from(arguments.cache).unwrap_or(usize::MAX);
    if let Some(jobs) = arguments.jobs {
        options.reader.threads = jobs.get();
    }
    Ok(options)
}

/// A folder to mount on. One that was not there is gone when the mount is.
struct Place<'a> {
    folder: &'a Path,
    is_new: bool,
}

impl<'a> Place<'a> {
    fn new(folder: &'a Path) -> Self {
        let found = fs::symlink_metadata(folder);
        Self { folder, is_new: found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // While it is mounted, or if anything is in it, the system refuses.
            let _ = fs::remove_dir(self.folder);
        }
    }
}

fn serve(arguments: &Mount, path: &Path, folder: &Path) -> Result<Exit> {
    let begin = Instant::now();
    let options = options(arguments)?;
    let pack = Arc::new(open_chain(path, &arguments.base, Search::Beside)?);
    if arguments.durable.is_none() {
        refuse_tablespace(&pack, path, folder)?;
    }
    let stop = stop_on_signals()?;
    // A terminal that goes must not leave a mount behind.
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&stop))
        .context("cannot listen for signals")?;
    let source = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // Let go after the mount.
    let _place = Place::new(folder);
    let teller = source.clone();
    let mut mounted = Mounted::begin(
        Arc::clone(&pack),
        &source.to_string_lossy(),
        folder,
        &options,
        Box::new(move |unread| tell(&teller, unread)),
    )?;
    if !arguments.quiet {
        say_ready(&pack, path, &mounted);
    }
    let is_whole = wait(arguments, &mut mounted, &stop)?;
    report(arguments, &pack, &mounted, begin)?;
    Ok(match mounted.unread_blocks() {
        0 if is_whole => Exit::Fine,
        0 => Exit::Unable,
        _ => Exit::Wrong,
    })
}

/// A server under which what it wrote vanishes moves on, and reads rows without the
/// transaction logs that they need. It opens all files for writing, so that read-only
/// does not help it either.
fn refuse_tablespace(pack: &Pack, path: &Path, folder: &Path) -> Result<()> {
    let (path, folder) = (path.display(), folder.display());
    let tablespace = pack.tablespace().with_context(|| {
        format!("cannot mount {path} without --durable: its report tells no longer what was packed")
    })?;
    ensure!(
        tablespace.is_none(),
        "cannot mount {path} without --durable: it is the tablespace {} of a cluster that goes on, \
         and what the server writes in it must last\n\
         hint: pagewarden mount --durable {path}.delta {path} {folder}; to look into it: \
         pagewarden unpack",
        tablespace.map(|tablespace| tablespace.name).unwrap_or_default(),
    );
    Ok(())
}

fn say_ready(pack: &Pack, path: &Path, mounted: &Mounted) {
    let files = pack.entries().iter().filter(|entry| entry.what != What::Folder).count();
    let sum = pack.entries().iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes()));
    let folder = mounted.folder().display();
    say(format_args!(
        "{} is mounted on {folder} ({}, {}); to unmount: Ctrl-C, or umount {folder}",
        path.display(),
        counted(files as u64, "file"),
        bytes(sum),
    ));
}

/// Waits until it is unmounted, and unmounts it when a signal asks this program to end. False
/// if the system has ended it.
fn wait(arguments: &Mount, mounted: &mut Mounted, stop: &AtomicBool) -> Result<bool> {
    let (mut is_told, mut is_refused) = (false, false);
    loop {
        if let Some(ended) = mounted.wait(LOOK_EVERY) {
            if let Err(error) = &ended {
                say(format_args!("{}: {error}", mounted.folder().display()));
            }
            return Ok(ended.is_ok());
        }
        if is_told && !is_refused || !stop.load(Ordering::Relaxed) {
            continue;
        }
        let folder = mounted.folder().to_owned();
        let unmounted = if mounted.has_lasting_changes() {
            mounted.unmount_unused()
        } else {
            mounted.unmount()
        };
        let unmounted =
            unmounted.with_context(|| format!("cannot unmount {}", folder.display()))?;
        if unmounted == Unmounted::Refused && !is_told {
            say(format_args!(
                "{} stays mounted: programs have files of it open, and what they write \
                 must last\n\
                 hint: shut the server down; it is unmounted when no program has a file \
                 open, and a second signal ends it at once",
                folder.display()
            ));
        }
        is_told = true;
        is_refused = unmounted == Unmounted::Refused;
        if unmounted == Unmounted::InUse && !arguments.quiet {
            say(format_args!(
                "{} is unmounted, but programs still have files of it open: they are \
                 served until they close them; a second signal ends it at once",
                folder.display()
            ));
        }
    }
}

/// Names a block that cannot be read, by its file.
fn tell(pack: &Path, unread: &Unread) {
    let file = Named(&unread.file);
    let (pack, offset) = (pack.display(), unread.offset);
    match &unread.error {
        PackError::Damaged { part, offset: at } => say(format_args!(
            "{file}: cannot read from byte {offset} on: its {part} at byte {at} of \
             {pack} is damaged\nhint: pagewarden check {pack}, and mount another copy of it"
        )),
        error => {
            say(format_args!("{file}: cannot read from byte {offset} on: {pack}: {error}"));
        }
    }
}

/// A name out of a pack, made fit for a terminal.
struct Named<'a>(&'a Path);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.as_os_str().as_bytes().escape_ascii().to_string())
    }
}

fn report(arguments: &Mount, pack: &Pack, mounted: &Mounted, begin: Instant) -> Result<()> {
    let written = mounted.written();
    let unread_blocks = mounted.unread_blocks();
    if arguments.json {
        let files = pack.entries().iter().filter(|entry| entry.what != What::Folder).count();
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "mount",
            "verdict": if unread_blocks == 0 { "intact" } else { "damaged" },
            "root": pack.root().to_string(),
            "files": files,
            "bytes": pack.entries().iter().map(Entry::bytes).fold(0_u64, u64::saturating_add),
            "written_bytes": written.bytes,
            "delta_bytes": written.held_bytes,
            "delta_bytes_max": written.held_bytes_max,
            "durable": arguments.durable,
            "has_lasting_changes": mounted.has_lasting_changes(),
            "unread_blocks": unread_blocks,
            "seconds": begin.elapsed().as_secs_f64(),
        });
        writeln!(io::stdout(), "{object}")?;
    } else if !arguments.quiet {
        let damage = match unread_blocks {
            0 => String::new(),
            count => format!("; {} could not be read", counted(count, "block")),
        };
        let folder = mounted.folder().display();
        let (sum, held) = (bytes(written.bytes), written.held_bytes_max);
        match &arguments.durable {
            None => say(format_args!(
                "{folder} is unmounted: {sum} were written and are gone, {} of room \
                 at most{damage}",
                bytes(held),
            )),
            Some(durable) if mounted.has_lasting_changes() => say(format_args!(
                "{folder} is unmounted: {} of what was written are kept in {}{damage}\n\
                 hint: the pack is not all without it: mount it with --durable {} to go on, or make \
                 one pack of the two with --repack",
                bytes(written.held_bytes),
                durable.display(),
                durable.display(),
            )),
            Some(durable) => say(format_args!(
                "{folder} is unmounted: nothing was changed, {} is empty{damage}",
                durable.display(),
            )),
        }
    }
    Ok(())
}
