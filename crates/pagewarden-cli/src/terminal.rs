//! Standard output, and what it is shown on.

use std::io::{self, IsTerminal as _, Write as _};

use pagewarden::report::colours::Colours;
use pagewarden::system::terminal_columns;

/// Writes a result. A reader that has seen enough ends the program quietly.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Colours on a terminal, and never with `NO_COLOR`.
pub fn colours() -> Colours {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Colours(wanted && io::stdout().is_terminal())
}

/// The width of the terminal, or that of a page where there is none.
pub fn width() -> usize {
    const PAGE: usize = 80;
    const WIDEST: usize = 200;
    terminal_columns().unwrap_or(PAGE).min(WIDEST)
}
