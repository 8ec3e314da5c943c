//! Why something could not be looked at, or not be done.
//!
//! An [`Error`] means that no verdict can be given about a database as a whole: it is not
//! there, not readable, or of no known format. What is wrong inside a database is never an
//! error but an `Unread` or a `Finding`.
//! Messages are lower case, name the object, and carry a hint on a line of their own where there
//! is something to do.

use std::io;
use std::path::{Path, PathBuf};
use std::{error, fmt};

use crate::words::printable;

/// What kind of trouble an [`Error`] is, for programs that act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file or folder.
    NotFound,
    /// The system, or the rules that keep a server away, do not allow it to this user.
    PermissionDenied,
    /// The system failed in another way; [`error::Error::source`] tells how.
    Io,
    /// No known format, or not the part of a database that was asked for.
    Unrecognised,
    /// A server, another program or another run of this one uses it, or has left it as one that
    /// is used.
    InUse,
    /// It changed while it was worked on.
    Changed,
    /// What the work relies on is damaged: a control file, a pack, a seal.
    Damaged,
    /// What was written does not read back as it was written.
    LostWrite,
    /// There is too little room on the disk.
    NoSpace,
    /// The request does not fit what is there.
    Refused,
}

/// Why a database could not be opened or worked on.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    path: PathBuf,
    trouble: Trouble,
}

#[derive(Debug)]
enum Trouble {
    /// The system refused.
    System { action: &'static str, source: io::Error },
    /// What we saw there.
    Seen { reason: String, hint: String },
}

/// A constructor for each kind that carries a reason and a hint.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident,)*) => {$(
        $(#[$doc])*
        pub fn $name(path: &Path, reason: impl Into<String>, hint: impl Into<String>) -> Self {
            Self::seen(ErrorKind::$kind, path, &reason.into(), &hint.into())
        }
    )*};
}

impl Error {
    /// Wraps a system error with what was tried (`open`, `read`, `list`) on which path.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Self { kind, path: path.to_owned(), trouble: Trouble::System { action, source } }
    }

    constructors! {
        /// Says why `path` is of no known format, and what to do.
        unrecognised => Unrecognised,
        /// Says who uses `path`, and what to do.
        in_use => InUse,
        /// Says how `path` changed meanwhile, and what to do.
        changed => Changed,
        /// Says why `path` cannot be relied on, and what to do.
        damaged => Damaged,
        /// Says what of `path` does not read back, and what to do.
        lost_write => LostWrite,
        /// Says how much room is missing at `path`, and what to do.
        no_space => NoSpace,
        /// Says why `path` belongs to another user, and what to do.
        not_permitted => PermissionDenied,
        /// Says why the request does not fit `path`, and what to do.
        refused => Refused,
    }

    fn seen(kind: ErrorKind, path: &Path, reason: &str, hint: &str) -> Self {
        // A hint may repeat the path.
        let (reason, hint) = (printable(reason), printable(hint));
        Self { kind, path: path.to_owned(), trouble: Trouble::Seen { reason, hint } }
    }

    /// What kind of trouble it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file or folder that it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why, without the path and the hint.
    #[must_use]
    pub fn reason(&self) -> String {
        match &self.trouble {
            Trouble::System { source, .. } => source.to_string(),
            Trouble::Seen { reason, .. } => reason.clone(),
        }
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match &self.trouble {
            Trouble::System { .. } => None,
            Trouble::Seen { hint, .. } => Some(hint),
        }
    }

    /// The same trouble, told of another path.
    #[must_use]
    pub fn about(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path in a message must not reach a terminal as escape sequences.
        let path = printable(&self.path.to_string_lossy());
        match &self.trouble {
            Trouble::System { action, .. } => write!(f, "cannot {action} {path}"),
            Trouble::Seen { reason, hint } => write!(f, "{path}: {reason}\nhint: {hint}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.trouble {
            Trouble::System { source, .. } => Some(source),
            Trouble::Seen { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn kinds_of_the_system_are_kinds_of_ours() {
        for (system, ours) in [
            (io::ErrorKind::NotFound, ErrorKind::NotFound),
            (io::ErrorKind::PermissionDenied, ErrorKind::PermissionDenied),
            (io::ErrorKind::StorageFull, ErrorKind::NoSpace),
            (io::ErrorKind::UnexpectedEof, ErrorKind::Io),
        ] {
            let error = Error::io("read", Path::new("a.db"), system.into());
            assert_eq!(error.kind(), ours);
            assert_eq!(error.to_string(), "cannot read a.db");
            assert!(error.source().is_some() && error.hint().is_none());
        }
    }

    #[test]
    fn message_names_the_path_the_reason_and_what_to_do() {
        let error = Error::in_use(Path::new("data"), "a server runs on it", "stop it");
        assert_eq!(error.to_string(), "data: a server runs on it\nhint: stop it");
        assert_eq!((error.kind(), error.hint()), (ErrorKind::InUse, Some("stop it")));
        assert_eq!(error.about(Path::new("other")).path(), Path::new("other"));
    }

    #[test]
    fn names_of_files_are_escaped() {
        let error = Error::refused(Path::new("a\x1b[2J"), "b\x1b[2J", "c\x1b[2J");
        assert!(!error.to_string().contains('\x1b'));
    }
}
