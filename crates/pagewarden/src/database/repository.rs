//! Repositories of backup tools: which tool's a folder is.

pub use pagewarden_core::database::repository::*;

use crate::database::{Format, Probe};
use crate::formats::FORMATS;
use crate::source::store::StorePath;

/// The tool whose repository `place` is, or is a part of.
#[must_use]
pub fn kind_of(place: &StorePath, format: Option<&Format>) -> Option<&'static RepositoryKind> {
    if !place.is_folder() {
        return None;
    }
    // One answer of a store says more than one for each name that a repository might have.
    if place.local_path().is_none() {
        let _ = place.list();
    }
    FORMATS
        .iter()
        .filter(|one| format.is_none_or(|format| format.name == one.name))
        .flat_map(|one| one.repositories)
        .map(|kind| ((kind.probe)(place), kind))
        .filter(|(probe, _)| *probe == Probe::Yes)
        .map(|(_, kind)| kind)
        .next()
}
