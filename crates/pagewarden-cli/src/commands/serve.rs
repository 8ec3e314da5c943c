//! `pagewarden serve`: scrubs on a schedule, and shows how things stand.

use std::io::{self, Write as _};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, ensure};
use pagewarden::verify::Options;
use pagewarden::words::printable;
use pagewarden_guard::ledger::Ledger;
use pagewarden_guard::moment;
use pagewarden_guard::scrub::Scrub;
use pagewarden_guard::serve::schedule::Schedule;
use pagewarden_guard::serve::{Settings, serve};
use pagewarden_guard::state::Held;
use signal_hook::consts::SIGHUP;

use crate::args::serve::Serve;
use crate::commands::subjects::{configured, open_options, state_folder};
use crate::exit::Exit;
use crate::signals::stop_on_signals;

/// Runs the command.
pub fn run(arguments: &Serve) -> anyhow::Result<Exit> {
    let stop = stop_on_signals()?;
    let subjects = configured(&arguments.place)?;
    ensure!(
        !subjects.is_empty(),
        "there is no database to verify\nhint: name a configuration with --config FILE"
    );
    let paths: Vec<_> = subjects.iter().flat_map(|subject| subject.paths.clone()).collect();
    let state = state_folder(&arguments.place);
    let held = Held::lock(&state, "serve", &paths)?;
    let mut ledger = Ledger::open(&held)?;
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload))
        .context("cannot listen for signals")?;
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let scrub = Scrub {
        ledger: &mut ledger,
        open: open_options(arguments.keyring.as_ref(), arguments.cipher_pass_file.as_ref()),
        options: Options { jobs: arguments.jobs.unwrap_or(cores), ..Options::default() },
        stop: Arc::clone(&stop),
        deadline: None,
        clock: moment::now,
        seals: held.folder().join("seals"),
    };
    let schedule = Schedule::new(scrub, Box::new(|| configured(&arguments.place)), reload);
    let settings = Settings {
        listen: arguments.listen,
        behind_proxy: arguments.behind_proxy,
        hosts: arguments.host.clone(),
        state,
        stop,
    };
    let quiet = arguments.quiet;
    let log = move |line: &str| {
        if !quiet {
            let _ = writeln!(io::stderr(), "pagewarden: {}", printable(line));
        }
    };
    serve(settings, subjects, schedule, &log)?;
    Ok(Exit::Fine)
}
