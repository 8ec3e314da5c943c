//! Deltas and what they build on: a chain that ends with a whole pack.
//!
//! A delta knows its base by its root. A pack of another root is never taken for
//! it, whatever it is called and wherever it lies. What is found to be the base is
//! tested block by block as it is read.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use pagewarden_core::system;

use crate::error::Error;
use crate::pack::PackError;
use crate::pack::read::{Pack, Root, claimed_root};
use crate::source::store::StorePath;

/// Longer chains are refused: each block may have to be looked for in all of them.
const CHAIN_MAX: usize = 64;
/// Files in a folder that are asked for their roots.
const BESIDE_MAX: usize = 10_000;
const ENDING: &str = "pwk";
const ANOTHER_COPY: &str = "check it, and take another copy of it";

/// Where bases are looked for that were not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Nowhere.
    Named,
    /// Among the packs (`*.pwk`) that lie beside the delta.
    Beside,
}

/// Opens a pack with all that it builds on: by the packs that are named, in any
/// order, and those that `search` adds.
///
/// # Errors
/// A pack of the chain cannot be read, is damaged, or is not to be found.
pub fn open_chain(path: &Path, named: &[PathBuf], search: Search) -> Result<Pack, Error> {
    let named: Vec<_> = named.iter().map(StorePath::local).collect();
    open_chain_in(&path.into(), &named, search)
}

/// The same of packs in stores.
///
/// # Errors
/// As [`open_chain`].
pub fn open_chain_in(
    place: &StorePath,
    named: &[StorePath],
    search: Search,
) -> Result<Pack, Error> {
    let path = place.path();
    let pack = Pack::open_in(place).map_err(|error| unreadable(path, error))?;
    match pack.base_root() {
        Some(root) => {
            let base = base_of(place, root, named, search)?;
            pack.with_base(base).map_err(|error| unreadable(path, error))
        }
        None if named.is_empty() => Ok(pack),
        None => {
            let reason = "it is a whole pack, and builds on no other";
            Err(Error::refused(path, reason, "leave --base out"))
        }
    }
}

/// Opens what a pack builds on, with all that this builds on in turn.
///
/// # Errors
/// As [`open_chain`].
pub(super) fn base_of(
    place: &StorePath,
    root: Root,
    named: &[StorePath],
    search: Search,
) -> Result<Pack, Error> {
    let mut seen = HashSet::from([identity(place)?]);
    let mut chain: Vec<(StorePath, Pack)> = Vec::new();
    let mut bases = Bases::open(named)?;
    let mut next = Some((place.clone(), root));
    while let Some((place, root)) = next {
        if chain.len() >= CHAIN_MAX {
            let reason = format!("it builds on a chain of more than {CHAIN_MAX} packs");
            return Err(Error::refused(place.path(), reason, "make a whole pack"));
        }
        let found = match (bases.take(root), search) {
            (Some(found), _) => Some(found),
            (None, Search::Beside) => beside(&place, root, &seen)?,
            (None, Search::Named) => None,
        };
        let Some(found) = found else { return Err(missing(place.path(), root, &bases)) };
        if !seen.insert(identity(&found.0)?) {
            let hint = "it cannot be read: make a whole pack";
            return Err(Error::damaged(
                found.0.path(),
                "the chain of packs comes back to it",
                hint,
            ));
        }
        next = found.1.base_root().map(|root| (found.0.clone(), root));
        chain.push(found);
    }
    let mut lower: Option<Pack> = None;
    for (place, pack) in chain.into_iter().rev() {
        lower = Some(match lower {
            Some(base) => pack.with_base(base).map_err(|error| unreadable(place.path(), error))?,
            None => pack,
        });
    }
    lower.ok_or_else(|| Error::damaged(place.path(), "it builds on nothing", ANOTHER_COPY))
}

/// Packs that were named as bases.
struct Bases {
    /// Those that were not used yet, with their roots.
    left: Vec<(StorePath, Pack)>,
    /// The first that was named, for messages.
    first: Option<(PathBuf, Root)>,
}

impl Bases {
    fn open(named: &[StorePath]) -> Result<Self, Error> {
        let mut left = Vec::new();
        for place in named {
            let pack = Pack::open_in(place).map_err(|error| unreadable(place.path(), error))?;
            left.push((place.clone(), pack));
        }
        let first = left.first().map(|(place, pack)| (place.path().to_owned(), pack.root()));
        Ok(Self { left, first })
    }

    fn take(&mut self, root: Root) -> Option<(StorePath, Pack)> {
        let index = self.left.iter().position(|(_, pack)| pack.root() == root)?;
        Some(self.left.swap_remove(index))
    }
}

/// The pack of this root in the folder of a delta; a whole one before a delta.
fn beside(
    place: &StorePath,
    root: Root,
    seen: &HashSet<Identity>,
) -> Result<Option<(StorePath, Pack)>, Error> {
    let folder = match place.parent() {
        Some(parent) if parent.path() != Path::new("") => parent,
        _ => place.at("."),
    };
    let entries = folder.list().map_err(|error| Error::io("list", folder.path(), error))?;
    let is_packed = |name: &String| Path::new(name).extension() == Some(OsStr::new(ENDING));
    let names = entries.into_iter().map(|entry| entry.name).filter(is_packed);
    let mut names: Vec<String> = names.take(BESIDE_MAX).collect();
    names.sort_unstable();
    let mut best: Option<(StorePath, Pack)> = None;
    let mut failed = None;
    for name in names.into_iter().map(|name| folder.join(name)) {
        let is_new = identity(&name).is_ok_and(|identity| !seen.contains(&identity));
        if !is_new || !claimed_root(&name).is_ok_and(|claimed| claimed == root) {
            continue;
        }
        match Pack::open_in(&name) {
            Ok(pack) if pack.base_root().is_none() => return Ok(Some((name, pack))),
            Ok(pack) => best = best.or(Some((name, pack))),
            Err(error) => failed = Some(unreadable(name.path(), error)),
        }
    }
    match (best, failed) {
        (None, Some(error)) => Err(error),
        (best, _) => Ok(best),
    }
}

fn missing(path: &Path, root: Root, bases: &Bases) -> Error {
    if let Some((named, other)) = &bases.first {
        let reason = format!(
            "it is no base of {}: its root is {other}, and that one was made from root {root}",
            path.display()
        );
        let hint = format!("name the pack with root {root}");
        return Error::refused(named, reason, hint);
    }
    let reason = format!("it is a delta to the pack with root {root}, which is not available");
    Error::refused(path, reason, "name that pack with --base")
}

/// What a file is, whatever it is called. An object has one name.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Identity {
    Here(system::Identity),
    Stored(PathBuf),
}

/// Two names of one file are one file.
fn identity(place: &StorePath) -> Result<Identity, Error> {
    let Some(path) = place.local_path() else {
        return Ok(Identity::Stored(place.path().to_owned()));
    };
    let metadata = fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
    let known =
        system::identity(&metadata, path).map_err(|error| Error::io("open", path, error))?;
    Ok(Identity::Here(known))
}

pub(super) fn unreadable(path: &Path, error: PackError) -> Error {
    match error {
        PackError::Io(error) => Error::io("read", path, error),
        other => Error::damaged(path, other.to_string(), ANOTHER_COPY),
    }
}
