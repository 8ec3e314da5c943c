//! Why no pack was made.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};

/// Why no pack was made. No file is left behind, and nothing in a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The source, a base or a store cannot be opened.
    #[error(transparent)]
    Of(#[from] Error),
    /// It was not begun.
    #[error("{text}")]
    Refused {
        /// What kind of trouble it is.
        kind: ErrorKind,
        /// What it is about.
        path: PathBuf,
        /// Why, and what to do.
        text: String,
    },
    /// Something could not be read or written.
    #[error("{text}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What could not be done.
        text: String,
        /// Why.
        source: io::Error,
    },
    /// A report could not be written: its reader is gone, or its device is full.
    #[error(transparent)]
    Report(#[from] io::Error),
}

impl Failure {
    /// A request that does not fit what is there.
    pub(super) fn refused(path: &Path, text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, path, text)
    }

    pub(super) fn new(kind: ErrorKind, path: &Path, text: impl Into<String>) -> Self {
        Self::Refused { kind, path: path.to_owned(), text: text.into() }
    }

    /// `action` of `path` failed: `cannot write x`.
    pub(super) fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let text = format!("cannot {action} {}", path.display());
        let path = path.to_owned();
        move |source| Self::Io { path, text, source }
    }

    /// What kind of trouble it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Of(error) => error.kind(),
            Self::Refused { kind, .. } => *kind,
            Self::Io { source, .. } => Error::io("write", Path::new(""), copy(source)).kind(),
            Self::Report(_) => ErrorKind::Io,
        }
    }

    /// The file or folder that it is about, if it is about one.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Of(error) => error.path(),
            Self::Refused { path, .. } | Self::Io { path, .. } => path,
            Self::Report(_) => Path::new(""),
        }
    }
}

/// An error of the same kind.
fn copy(error: &io::Error) -> io::Error {
    error.kind().into()
}
