//! Why something could not be looked at.
//!
//! An [`Error`] means that no verdict can be given about a target as a whole:
//! it is not there, not readable, or nothing we know. What goes wrong inside a
//! target is never an error but an `Unread` or a `Finding`.
//! Messages are lower case, name the object, and carry a hint on a line of
//! their own where there is something to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::words::printable;

/// Why a target could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("cannot {action} {}", shown(path))]
    Io {
        /// What was tried: `open`, `read`, `list`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Nothing we know how to check.
    #[error("{}: {reason}\nhint: {hint}", shown(path))]
    Unknown {
        /// What was named.
        path: PathBuf,
        /// Why it is taken for nothing we know.
        reason: String,
        /// What to do.
        hint: String,
    },
}

impl Error {
    /// Wraps a system error with what was tried on which path.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// Says why `path` is nothing we know, and what to do.
    pub fn unknown(path: &Path, reason: impl Into<String>, hint: impl Into<String>) -> Self {
        // A hint may repeat the path.
        let (reason, hint) = (printable(&reason.into()), printable(&hint.into()));
        Self::Unknown { path: path.to_owned(), reason, hint }
    }
}

/// A path in a message must not reach a terminal as escape sequences.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}
