//! Ending early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;

/// A wish to end may come twice at once: `timeout` signals the program and then its
/// process group. A second wish that is meant comes later.
const ONE_WISH: Duration = Duration::from_millis(300);
/// As `exit::Exit::Stopped` has it.
const STATUS: i32 = 3;

/// A flag that the first signal sets; a later one ends the program at once.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new(TERM_SIGNALS).context("cannot listen for signals")?;
    let flag = Arc::clone(&stop);
    let listen = move || {
        let mut first = None;
        for _ in signals.forever() {
            let first = *first.get_or_insert_with(Instant::now);
            if flag.swap(true, Ordering::Relaxed) && first.elapsed() > ONE_WISH {
                signal_hook::low_level::exit(STATUS);
            }
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(listen).context("cannot listen for signals")?;
    Ok(stop)
}
