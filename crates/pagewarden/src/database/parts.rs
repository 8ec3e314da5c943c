//! Files that are one target when they are named together: which of those that were named.

use std::path::{Path, PathBuf};

pub use pagewarden_core::database::parts::*;

use crate::database::{Format, OpenOptions, Target, open_with};
use crate::error::Error;
use crate::formats::FORMATS;

fn kinds(kind: Option<&Format>) -> impl Iterator<Item = &'static PartsKind> {
    FORMATS
        .iter()
        .filter(move |one| kind.is_none_or(|kind| kind.name == one.name))
        .filter_map(|one| one.parts.as_ref())
}

/// Puts paths together that are parts of one target, in the order in which they
/// are named. A part that is named twice is a target of its own.
#[must_use]
pub fn grouped(paths: &[PathBuf], kind: Option<&Format>) -> Vec<Vec<PathBuf>> {
    let mut groups: Vec<(Vec<PathBuf>, Vec<Part>)> = Vec::new();
    for path in paths {
        let part = (paths.len() > 1).then(|| kinds(kind).find_map(|kind| (kind.part)(path)));
        let part = part.flatten();
        let fits = |(_, parts): &&mut (Vec<PathBuf>, Vec<Part>)| {
            part.is_some_and(|part| {
                !parts.is_empty()
                    && parts
                        .iter()
                        .all(|other| other.whole == part.whole && other.number != part.number)
            })
        };
        match groups.iter_mut().find(fits) {
            Some((paths, parts)) => {
                paths.push(path.clone());
                parts.extend(part);
            }
            None => groups.push((vec![path.clone()], part.into_iter().collect())),
        }
    }
    groups.into_iter().map(|(paths, _)| paths).collect()
}

/// Opens paths that belong together, see [`grouped`].
///
/// # Errors
/// As [`open_with`].
pub fn open_together(
    paths: &[PathBuf],
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<Target, Error> {
    let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
    match kinds(kind).find(|kind| paths.len() > 1 && (kind.part)(first).is_some()) {
        Some(kind) => (kind.open)(paths),
        None => open_with(first, kind, options),
    }
}
