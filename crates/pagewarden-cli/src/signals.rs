//! Ending early.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// A wish to end may come twice at once: `timeout` signals the program and then its
/// process group. A second wish that is meant comes later.
const ONE_WISH: Duration = Duration::from_millis(300);
/// As `exit::Exit::Stopped` has it.
const STATUS: i32 = 3;

/// A flag that the first signal sets; a later one ends the program at once.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let first = OnceLock::new();
    listen(move || {
        let first = *first.get_or_init(Instant::now);
        if flag.swap(true, Ordering::Relaxed) && first.elapsed() > ONE_WISH {
            end();
        }
    })?;
    Ok(stop)
}

#[cfg(unix)]
fn listen(mut wish: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    use signal_hook::consts::TERM_SIGNALS;
    use signal_hook::iterator::Signals;

    let mut signals = Signals::new(TERM_SIGNALS).context("cannot listen for signals")?;
    let listen = move || signals.forever().for_each(|_| wish());
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(listen).map(drop).context("cannot listen for signals")
}

#[cfg(unix)]
fn end() {
    signal_hook::low_level::exit(STATUS);
}

/// What the console has for signals: Ctrl-C and Ctrl-Break.
#[cfg(windows)]
fn listen(wish: impl Fn() + Send + Sync + 'static) -> anyhow::Result<()> {
    pagewarden::system::on_interrupt(Box::new(wish)).context("cannot listen for Ctrl-C")
}

#[cfg(windows)]
fn end() {
    std::process::exit(STATUS);
}
