//! `mount --durable DIR --repack NEW.pwk`: one pack of a pack and of what was written
//! over it. Nobody else comes in meanwhile: the mount is read-only, ours alone, and in a
//! folder that nobody knows; but for tablespaces, which are where their cluster has them.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use pagewarden::pack::{Search, open_chain};
use pagewarden::report::words::bytes;
use pagewarden::verdict::Verdict;
use pagewarden_mount::Mounted;
use serde_json::json;

use super::{options, tell};
use crate::args::mount::Mount;
use crate::commands::pack;
use crate::exit::Exit;
use crate::progress::Show;
use crate::signals::stop_on_signals;

/// How long an unmount may take that nobody stands in the way of.
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
    let (folder, cluster) = match (pack.tablespace()?, &arguments.folder, &arguments.cluster) {
        (None, None, None) => (ours.path(), None),
        (Some(_), Some(folder), Some(cluster)) => (folder.as_path(), Some(cluster.as_path())),
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
    let show = Show::choose(arguments.quiet, false);
    let packed = pack::repack(mounted.folder(), &pack, new, arguments.json, cluster, &stop, &show);
    show.end();
    mounted.unmount().context("cannot unmount")?;
    let ended = mounted.wait(UNMOUNT_MAX);
    let packed = packed?;
    let Some((root, totals)) = packed.made.filter(|_| !packed.was_stopped()) else {
        return Ok(match packed.verdict {
            Verdict::Damaged => Exit::Wrong,
            _ if packed.was_stopped() => Exit::Stopped,
            _ => Exit::Unable,
        });
    };
    ended.context("cannot unmount: it takes too long")??;
    ensure!(mounted.unread_blocks() == 0, "cannot trust {}: a block was unread", new.display());
    mounted.restart_delta(root).with_context(|| {
        format!("{} is whole, but cannot empty {}", new.display(), durable.display())
    })?;
    if arguments.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "mount",
            "verdict": packed.verdict.name(),
            "repacked": new,
            "root": root.to_string(),
            "files": totals.files,
            "bytes": totals.bytes,
            "stored_bytes": totals.stored_bytes,
            "durable": durable,
            "seconds": begin.elapsed().as_secs_f64(),
        });
        writeln!(io::stdout(), "{object}")?;
    } else if !arguments.quiet {
        eprintln!(
            "pagewarden: {} holds {} and all that was written since ({}, read back); {} is empty \
             again, and belongs to it\nhint: mount {} from now on, with --durable {} as before",
            new.display(),
            old.display(),
            bytes(totals.stored_bytes),
            durable.display(),
            new.display(),
            durable.display(),
        );
    }
    Ok(Exit::Fine)
}
