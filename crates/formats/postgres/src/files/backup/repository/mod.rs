//! Repositories of backup tools: sets read where they lie, nothing restored.
//!
//! To add a tool: a folder here, and its line in [`REPOSITORIES`]. A tool brings how its folders are
//! recognised, by content; which sets there are; and for each set a
//! [`Members`](super::members::Members), which gives the files of the database out of the stored ones,
//! with the [`SetTerms`](super::members::SetTerms), which say what a failing page proves. The rest,
//! from the control file to the pages, is the [`ArchiveWalk`](super::stream::ArchiveWalk) of all backups.

use pagewarden_core::database::repository::RepositoryKind;

mod barman;
mod pgbackrest;
mod tars;
mod walg;
mod whole;

/// The tools that are known.
pub(crate) const REPOSITORIES: &[RepositoryKind] =
    &[pgbackrest::REPOSITORY, barman::REPOSITORY, walg::REPOSITORY];
