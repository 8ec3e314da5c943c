//! Ending early.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use signal_hook::consts::TERM_SIGNALS;

/// A flag that the first signal sets; a second one ends the program at once.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        let register = || {
            signal_hook::flag::register_conditional_shutdown(*signal, 3, Arc::clone(&stop))?;
            signal_hook::flag::register(*signal, Arc::clone(&stop))
        };
        register().context("cannot listen for signals")?;
    }
    Ok(stop)
}
