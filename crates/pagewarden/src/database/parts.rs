//! Files that are one target when they are named together: which of those that were named.

use std::path::{Path, PathBuf};

pub use pagewarden_core::database::parts::*;

use crate::database::{Format, OpenOptions, Target, open_with};
use crate::error::Error;
use crate::formats::FORMATS;
use crate::source::store::{StorePath, expecting};

/// The first bytes of a file by which it mostly says whether it is a part of something.
const PART_BEGIN_BYTES: usize = 64 << 10;

fn kinds(kind: Option<&Format>) -> impl Iterator<Item = &'static PartsKind> {
    FORMATS
        .iter()
        .filter(move |one| kind.is_none_or(|kind| kind.name == one.name))
        .filter_map(|one| one.parts.as_ref())
}

/// Puts files together that are parts of one target, in the order in which they are named. A part that is
/// named twice is a target of its own.
#[must_use]
pub fn grouped(places: &[StorePath], kind: Option<&Format>) -> Vec<Vec<StorePath>> {
    let mut groups: Vec<(Vec<StorePath>, Vec<Part>)> = Vec::new();
    let expect = |place: &&StorePath| {
        if places.len() > 1 {
            place.expect_begin(PART_BEGIN_BYTES);
        }
    };
    for place in expecting(places, expect) {
        let part = (places.len() > 1).then(|| kinds(kind).find_map(|kind| (kind.part)(place)));
        let part = part.flatten();
        let fits = |(_, parts): &&mut (Vec<StorePath>, Vec<Part>)| {
            part.is_some_and(|part| {
                !parts.is_empty()
                    && parts
                        .iter()
                        .all(|other| other.whole == part.whole && other.number != part.number)
            })
        };
        match groups.iter_mut().find(fits) {
            Some((places, parts)) => {
                places.push(place.clone());
                parts.extend(part);
            }
            None => groups.push((vec![place.clone()], part.into_iter().collect())),
        }
    }
    groups.into_iter().map(|(places, _)| places).collect()
}

/// Opens files of this machine that belong together, see [`grouped`].
///
/// # Errors
/// As [`open_with`].
pub fn open_together(
    paths: &[PathBuf],
    kind: Option<&Format>,
    options: &OpenOptions,
) -> Result<Target, Error> {
    let places: Vec<_> = paths.iter().map(StorePath::local).collect();
    if let Some(target) = open_parts(&places, kind) {
        return target;
    }
    open_with(paths.first().map_or(Path::new(""), PathBuf::as_path), kind, options)
}

/// Opens the parts of one target; `None` of a single file, and of what is no part of any.
///
/// # Errors
/// As [`open_with`].
#[must_use]
pub fn open_parts(places: &[StorePath], kind: Option<&Format>) -> Option<Result<Target, Error>> {
    let (first, [_, ..]) = places.split_first()? else { return None };
    let kind = kinds(kind).find(|kind| (kind.part)(first).is_some())?;
    Some((kind.open)(places))
}
