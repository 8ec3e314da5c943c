//! `pagewarden serve`: scrubs on a schedule, reports changes, and shows how things stand.

use std::io::{self, Write as _};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use pagewarden::verify::Options;
use pagewarden::words::printable;
use pagewarden_guard::config::Configuration;
use pagewarden_guard::serve::admit::Token;
use pagewarden_guard::serve::schedule::Runs;
use pagewarden_guard::serve::{Settings, serve, tls};
use pagewarden_guard::state::Held;
use signal_hook::consts::SIGHUP;

use crate::args::serve::Serve;
use crate::commands::notifications::post;
use crate::commands::subjects::{configured, open_options, state_folder};
use crate::exit::Exit;
use crate::signals::stop_on_signals;

/// It ends within five seconds, whatever a disk does meanwhile.
const END_TIME: Duration = Duration::from_millis(4500);

/// Runs the command.
pub fn run(arguments: &Serve) -> anyhow::Result<Exit> {
    let stop = stop_on_signals()?;
    let read = || some_configured(arguments);
    let configuration = read()?;
    let databases = &configuration.databases;
    let paths: Vec<_> = databases.iter().flat_map(|subject| subject.paths.clone()).collect();
    let token = arguments.token_file.as_deref().map(Token::read).transpose()?;
    let files = arguments.tls_cert.as_deref().zip(arguments.tls_key.as_deref());
    let tls = files.map(|(certificate, key)| tls(certificate, key)).transpose()?;
    let state = state_folder(&arguments.place);
    let held = Held::lock(&state, "serve", &paths)?;
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload))
        .context("cannot listen for signals")?;
    let cores = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let jobs = arguments.jobs.unwrap_or(cores);
    let runs = Runs {
        held: &held,
        open: open_options(arguments.keyring.as_ref(), arguments.cipher_pass_file.as_ref(), jobs),
        options: Options { jobs, ..Options::default() },
        stop: Arc::clone(&stop),
        read: Box::new(read),
        reload,
    };
    let settings = Settings {
        listen: arguments.listen,
        behind_proxy: arguments.behind_proxy,
        hosts: arguments.host.clone(),
        token,
        tls,
        state,
        stop: Arc::clone(&stop),
    };
    let quiet = arguments.quiet;
    let log = move |line: &str| {
        if !quiet {
            let _ = writeln!(io::stderr(), "pagewarden: {}", printable(line));
        }
    };
    thread::Builder::new()
        .name("end".to_owned())
        .spawn(move || end_in_time(&stop))
        .context("cannot start a thread")?;
    serve(settings, configuration, &runs, &post, &log)?;
    Ok(Exit::Fine)
}

/// A server without a database would be silent for ever.
fn some_configured(arguments: &Serve) -> anyhow::Result<Configuration> {
    let configuration = configured(&arguments.place)?;
    ensure!(
        !configuration.databases.is_empty(),
        "there is no database to verify\nhint: name a configuration with --config FILE"
    );
    Ok(configuration)
}

/// Ends the program if a disk that does not answer keeps a thread. The ledger is as after a kill: what
/// was committed is there.
fn end_in_time(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(END_TIME);
    signal_hook::low_level::exit(0);
}
