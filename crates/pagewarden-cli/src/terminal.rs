//! What standard output is shown on.

use std::io::{self, IsTerminal as _};

use pagewarden::report::colours::Colours;

/// Colours on a terminal, and never with `NO_COLOR`.
pub fn colours() -> Colours {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Colours(wanted && io::stdout().is_terminal())
}

/// The width of the terminal, or that of a page where there is none.
pub fn width() -> usize {
    const PAGE: usize = 80;
    const WIDEST: usize = 200;
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    columns.unwrap_or(PAGE).min(WIDEST)
}
