//! Why something could not be looked at. What was looked at and is different is no error.

use crate::table::TableName;

/// Why something could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address that means nothing.
    #[error("{0}")]
    Address(String),
    /// A password that could not be had.
    #[error("{0}")]
    Secret(String),
    /// No server answers, or it does not let us in.
    #[error("cannot connect to {place}: {reason}")]
    Connect {
        /// The server, without its password.
        place: String,
        /// What the server or the system said.
        reason: String,
    },
    /// The connection broke.
    #[error("{place}: the connection broke: {reason}")]
    Gone {
        /// The server, without its password.
        place: String,
        /// What the server or the system said.
        reason: String,
    },
    /// The server refused.
    #[error("{place}: {reason}")]
    Refused {
        /// The server, without its password.
        place: String,
        /// What the server said.
        reason: String,
    },
    /// There is no such table, or none that we may see.
    #[error("{place}: there is no table {table}")]
    NoTable {
        /// The server, without its password.
        place: String,
        /// The table.
        table: TableName,
    },
    /// It could be done, but not by us or not here.
    #[error("{0}")]
    Unsupported(String),
    /// The file of a comparison's state cannot be used.
    #[error("{0}")]
    State(String),
    /// The caller asked us to end.
    #[error("stopped early")]
    Stopped,
}

impl Error {
    /// What kind of error it is, in a word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Secret(_) => "secret",
            Self::Connect { .. } => "connect",
            Self::Gone { .. } => "gone",
            Self::Refused { .. } => "refused",
            Self::NoTable { .. } => "not_found",
            Self::Unsupported(_) => "unsupported",
            Self::State(_) => "state",
            Self::Stopped => "stopped",
        }
    }

    /// True if the connection can be used no more.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Connect { .. })
    }
}

/// The result of looking at something.
pub type Result<T> = std::result::Result<T, Error>;
