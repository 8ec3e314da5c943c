//! Repositories of backup tools: sets read where they lie, nothing restored.
//!
//! To add a tool: a folder here, and its lines in [`REPOSITORIES`] and [`TOOLS`]. A tool brings how its folders are
//! recognised, by content; which sets there are; and for each set a
//! [`Members`](super::members::Members), which gives the files of the database out of the stored ones,
//! with the [`SetTerms`](super::members::SetTerms), which say what a failing page proves. The rest,
//! from the control file to the pages, is the [`ArchiveWalk`](super::stream::ArchiveWalk) of all backups.

use super::taking::Opening;
use pagewarden_core::database::repository::{RepositoryKind, Sets};
use pagewarden_core::error::Error;
use pagewarden_core::source::store::StorePath;

mod barman;
mod pgbackrest;
mod tars;
mod walg;
mod whole;

/// The tools that are known, for a check.
pub(crate) const REPOSITORIES: &[RepositoryKind] =
    &[pgbackrest::REPOSITORY, barman::REPOSITORY, walg::REPOSITORY];

/// The same, opened for what is wanted of their sets.
pub(super) const TOOLS: &[Tool] = &[
    Tool { kind: pgbackrest::REPOSITORY, open: pgbackrest::open_for },
    Tool { kind: barman::REPOSITORY, open: barman::open_for },
    Tool { kind: walg::REPOSITORY, open: walg::open_for },
];

/// A backup tool.
pub(super) struct Tool {
    pub(super) kind: RepositoryKind,
    /// As [`RepositoryKind::open`].
    pub(super) open: fn(&StorePath, &Opening) -> Result<Sets, Error>,
}
