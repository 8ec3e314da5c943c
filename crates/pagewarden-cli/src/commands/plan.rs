//! `pagewarden plan`: lists what a check would look at, for several processes to check.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

use pagewarden::words::seconds;
use pagewarden_plan::plan::{Plan, Wanted};

use crate::args::plan as args;
use crate::commands::storage::Storage;
use crate::exit::{self, Exit};
use crate::progress::listed_bytes;
use crate::replaced_file::{Content, ReplacedFile};
use crate::signals::stop_on_signals;

/// Runs the command.
pub fn run(arguments: args::Plan) -> anyhow::Result<Exit> {
    exit::or_json("plan", arguments.json, || plan(arguments))
}

fn plan(arguments: args::Plan) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let args::Plan { paths, output, unit, json, quiet, .. } = &arguments;
    let (output, unit, json, quiet) = (output.clone(), *unit, *json, *quiet);
    let place = ReplacedFile::prepare(&output, Content::Plan, paths)?;
    let paths = paths.clone();
    let settle_ms = arguments.settle.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    let wanted = Wanted {
        format: arguments.format,
        wal: arguments.wal,
        keyring: arguments.keyring,
        base: arguments.base,
        stanza: arguments.stanza,
        set: arguments.set,
        latest: arguments.latest,
        no_log: arguments.no_log,
        cipher_pass_file: arguments.cipher_pass_file,
        settle_ms,
        no_witness: arguments.no_witness,
        structure: arguments.structure,
        accept_unverifiable: arguments.accept_unverifiable,
    };
    let kind = wanted.kind();
    let stop = stop_on_signals()?;
    let storage = Storage::begin(&paths, &arguments.storage, None, &stop)?;
    let measure = |path: &Path| listed_bytes(path, kind);
    let plan = Plan::make(&paths, wanted, unit, &measure, &storage)?;
    let mut bytes = Vec::new();
    plan.write(&output, &mut bytes)?;
    place.replace(&bytes)?;
    if json {
        let object = serde_json::json!({
            "pagewarden": pagewarden::VERSION,
            "command": "plan",
            "verdict": "planned",
            "plan": plan.id,
            "units": plan.units.len(),
            "targets": plan.targets(),
            "bytes": plan.bytes(),
            "seconds": seconds(begin.elapsed()),
        });
        writeln!(io::stdout(), "{object}")?;
    } else if !quiet {
        writeln!(io::stdout(), "Planned {}", plan.summary())?;
    }
    Ok(Exit::Fine)
}
