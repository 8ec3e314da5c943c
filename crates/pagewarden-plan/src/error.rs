//! Why a plan or a result cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// Why a plan or a result cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no plan or no result, or not the one that was written.
    #[error("{}: {reason}\nhint: {hint}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// What is to be planned cannot be listed.
    #[error(transparent)]
    Subject(#[from] pagewarden::Error),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn refused(path: &Path, reason: impl Into<String>, hint: &'static str) -> Self {
        Self::Refused { path: path.to_owned(), reason: reason.into(), hint }
    }
}
