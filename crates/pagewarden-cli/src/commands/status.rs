//! `pagewarden status`: how things stand, by the ledger.

use std::io::{self, Write as _};
use std::time::Instant;

use anyhow::{bail, ensure};
use pagewarden::report::nagios::State;
use pagewarden_guard::ledger::Ledger;
use pagewarden_guard::{moment, notify, status};
use serde_json::json;

use crate::args::status::Status;
use crate::commands::subjects::{configured, state_folder};
use crate::exit::{self, Exit};
use crate::replaced_file::{Content, ReplacedFile};

/// Runs the command.
pub fn run(arguments: &Status) -> anyhow::Result<Exit> {
    exit::or_json("status", arguments.json, || show(arguments))
}

fn show(arguments: &Status) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let now = moment::now();
    let folder = state_folder(&arguments.place);
    let configured = configured(&arguments.place)?.databases;
    let ledger = Ledger::read(&folder)?;
    ensure!(
        ledger.is_some() || !configured.is_empty(),
        "there is no ledger in {}, and no configuration\nhint: run pagewarden scrub, or name its folder with --state",
        folder.display()
    );
    let standings = status::standings(ledger.as_ref(), &configured, &arguments.names, now)?;
    let unknown =
        |name: &&String| !standings.iter().any(|one| one.name == **name || one.path == **name);
    if let Some(unknown) = arguments.names.iter().find(unknown) {
        bail!("there is no database of the name {unknown}\nhint: pagewarden status names all");
    }
    if let Some(path) = &arguments.metrics {
        let file = ReplacedFile::prepare(path, Content::Metrics, &[])?;
        let notifications = ledger.as_ref().map(notify::standing).transpose()?.flatten();
        file.replace(status::metrics(&standings, notifications).as_bytes())?;
    }
    let mut out = io::stdout().lock();
    if arguments.nagios {
        let (line, state) = status::nagios(&standings);
        writeln!(out, "{line}")?;
        return Ok(Exit::Monitored(match state {
            0 => State::Ok,
            1 => State::Warning,
            2 => State::Critical,
            _ => State::Unknown,
        }));
    }
    let verdict = status::worst(&standings);
    if arguments.json {
        let object = json!({
            "pagewarden": pagewarden::VERSION,
            "command": "status",
            "verdict": verdict,
            "targets": standings.iter().map(status::Standing::to_json).collect::<Vec<_>>(),
            "seconds": begin.elapsed().as_secs_f64(),
        });
        writeln!(out, "{}", pagewarden::words::printable_json(&object.to_string()))?;
    } else if arguments.metrics.is_none() || !arguments.quiet {
        write!(out, "{}", status::text(&standings, now))?;
    }
    Ok(Exit::from(verdict))
}
