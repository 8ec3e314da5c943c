//! `mount --durable DIR --repack NEW.pwk`: one pack of a pack and of what was written
//! over it. No other program writes to it meanwhile: the mount is read-only, open to this user
//! alone, and in a folder with a random name; but for tablespaces, which are where their cluster
//! has them.
//!
//! One process serves the mount and another reads it. A process that reads its own mount
//! cannot be killed: the system waits for an answer that only that process could give.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::pack::{Entry, Pack, Search, What, open_chain};
use pagewarden::packing::repack;
use pagewarden::verdict::Verdict;
use pagewarden::words::bytes;
use pagewarden_mount::Mounted;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde_json::{Value, json};

use super::{LOOK_EVERY, options, tell};
use crate::args::mount::Mount;
use crate::commands::pack::{Told, told};
use crate::exit::{self, Exit};
use crate::progress::Show;
use crate::signals::stop_on_signals;

/// How long an unmount may take where no program has a file open.
const UNMOUNT_MAX: Duration = Duration::from_secs(60);

pub(super) fn run(arguments: &Mount, old: &Path, new: &Path, durable: &Path) -> Result<Exit> {
    let begin = Instant::now();
    ensure!(
        durable.join("log").exists(),
        "cannot repack: nothing was written in {}\nhint: name the folder that the mount was given",
        durable.display()
    );
    let mut options = options(arguments)?;
    options.is_read_only = true;
    options.allow_other = false;
    let pack = Arc::new(open_chain(old, &arguments.base, Search::Beside)?);
    let stop = stop_on_signals()?;
    let ours = tempfile::Builder::new().prefix("pagewarden-repack-").tempdir()?;
    let folder = match (pack.tablespace()?, &arguments.folder, &arguments.cluster) {
        (None, None, None) => ours.path(),
        (Some(_), Some(folder), Some(_)) => folder.as_path(),
        (None, ..) => bail!("no tablespace was packed\nhint: leave --cluster and the folder out"),
        (Some(tablespace), ..) => bail!(
            "cannot repack tablespace {} without its cluster\n\
             hint: shut it down, and name it and the folder that the link in pg_tblspc leads to: \
             --cluster DATADIR {} FOLDER",
            tablespace.name,
            old.display(),
        ),
    };
    let teller = old.to_owned();
    let watcher = Box::new(move |unread: &_| tell(&teller, unread));
    let name = old.to_string_lossy();
    let mut mounted = Mounted::begin(Arc::clone(&pack), &name, folder, &options, watcher)?;
    ensure!(
        mounted.has_lasting_changes(),
        "nothing to repack: {} holds no changes\nhint: {} is all there is",
        durable.display(),
        old.display()
    );
    let reader = read_elsewhere(arguments, old, new, durable, mounted.folder(), &stop);
    mounted.unmount().context("cannot unmount")?;
    let ended = mounted.wait(UNMOUNT_MAX);
    let exit = reader?;
    if exit != Exit::Fine {
        // It has said why.
        return Ok(exit);
    }
    ended.context("cannot unmount: it takes too long")??;
    ensure!(mounted.unread_blocks() == 0, "cannot trust {}: a block was unread", new.display());
    let made = Pack::open(new)?;
    mounted.restart_delta(made.root()).with_context(|| {
        format!("{} is whole, but cannot empty {}", new.display(), durable.display())
    })?;
    say(arguments, (old, new, durable), &made, begin.elapsed())?;
    Ok(Exit::Fine)
}

/// Says what was repacked.
fn say(
    arguments: &Mount,
    (old, new, durable): (&Path, &Path, &Path),
    made: &Pack,
    elapsed: Duration,
) -> Result<()> {
    if arguments.json {
        let check: Value = serde_json::from_slice(&made.report()?)?;
        let files = made.entries().iter().filter(|entry| entry.what != What::Folder).count();
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "mount",
            "verdict": check.get("verdict"),
            "repacked": new,
            "root": made.root().to_string(),
            "files": files,
            "bytes": made.entries().iter().map(Entry::bytes).fold(0_u64, u64::saturating_add),
            "stored_bytes": made.stored_bytes(),
            "durable": durable,
            "seconds": elapsed.as_secs_f64(),
        });
        writeln!(io::stdout(), "{object}")?;
    } else if !arguments.quiet {
        exit::say(format_args!(
            "{} holds {} and all that was written since ({}, read back); {} is empty \
             again, and belongs to it\nhint: mount {} from now on, with --durable {} as before",
            new.display(),
            old.display(),
            bytes(made.stored_bytes()),
            durable.display(),
            new.display(),
            durable.display(),
        ));
    }
    Ok(())
}

/// Has a process of its own read what is mounted, and waits for it.
fn read_elsewhere(
    arguments: &Mount,
    old: &Path,
    new: &Path,
    durable: &Path,
    mounted: &Path,
    stop: &AtomicBool,
) -> Result<Exit> {
    let cannot = "cannot read what is mounted in a process of its own";
    let mut command = Command::new(std::env::current_exe().context(cannot)?);
    command.arg("mount").arg("--durable").arg(durable).arg("--repack").arg(new);
    command.arg("--mounted").arg(mounted);
    for base in &arguments.base {
        command.arg("--base").arg(base);
    }
    if let Some(cluster) = &arguments.cluster {
        command.arg("--cluster").arg(cluster);
    }
    command.args(arguments.json.then_some("--json"));
    command.args(arguments.quiet.then_some("--quiet"));
    command.arg("--").arg(old).arg(mounted);
    let mut reader = command.spawn().context(cannot)?;
    let status = wait(&mut reader, stop).context(cannot)?;
    [Exit::Fine, Exit::Wrong, Exit::Unable, Exit::Stopped]
        .into_iter()
        .find(|exit| status.code() == Some(exit.status().into()))
        .with_context(|| format!("cannot repack: the process that reads ended with {status}"))
}

/// Waits for a process, and hands on that it is to end.
fn wait(reader: &mut Child, stop: &AtomicBool) -> io::Result<std::process::ExitStatus> {
    let mut is_told = false;
    loop {
        if let Some(status) = reader.try_wait()? {
            return Ok(status);
        }
        if stop.load(Ordering::Relaxed) && !is_told {
            is_told = true;
            // From a terminal it has heard already, and takes this for an echo.
            kill_process(Pid::from_child(reader), Signal::TERM)?;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The process that reads: packs what another of us has mounted.
pub(super) fn read(arguments: &Mount, old: &Path, new: &Path, mounted: &Path) -> Result<Exit> {
    // Without the process that serves it there is nothing to read, and no process that takes
    // the result: then the system ends this one.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let pack = open_chain(old, &arguments.base, Search::Beside)?;
    let stop = stop_on_signals()?;
    let show = Show::choose(arguments.quiet, false);
    let cluster = arguments.cluster.as_deref();
    let watch = Told::new(&show, arguments.json, true);
    let packed = repack(mounted, &pack, new, cluster, &stop, &watch);
    show.end();
    let packed = packed.map_err(told)?;
    Ok(match packed.verdict {
        _ if packed.made.is_some() && !packed.was_stopped() => Exit::Fine,
        Verdict::Damaged => Exit::Wrong,
        _ if packed.was_stopped() => Exit::Stopped,
        _ => Exit::Unable,
    })
}
