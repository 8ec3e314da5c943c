//! Deltas and what they build on: a chain that ends with a whole pack.
//!
//! A delta knows its base by its root. A pack of another root is never taken for
//! it, whatever it is called and wherever it lies. What is found to be the base is
//! tested block by block as it is read.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::pack::PackError;
use crate::pack::read::{Pack, Root, claimed_root};

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
    let pack = Pack::open(path).map_err(|error| unreadable(path, error))?;
    complete(path, pack, named, search)
}

/// Gives an open pack all that it builds on.
fn complete(path: &Path, pack: Pack, named: &[PathBuf], search: Search) -> Result<Pack, Error> {
    match pack.base_root() {
        Some(root) => {
            let base = base_of(path, root, named, search)?;
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
    path: &Path,
    root: Root,
    named: &[PathBuf],
    search: Search,
) -> Result<Pack, Error> {
    let mut seen = HashSet::from([identity(path)?]);
    let mut chain: Vec<(PathBuf, Pack)> = Vec::new();
    let mut bases = Bases::open(named)?;
    let mut next = Some((path.to_owned(), root));
    while let Some((path, root)) = next {
        if chain.len() >= CHAIN_MAX {
            let reason = format!("it builds on a chain of more than {CHAIN_MAX} packs");
            return Err(Error::refused(&path, reason, "make a whole pack"));
        }
        let found = match (bases.take(root), search) {
            (Some(found), _) => Some(found),
            (None, Search::Beside) => beside(&path, root, &seen)?,
            (None, Search::Named) => None,
        };
        let Some(found) = found else { return Err(missing(&path, root, &bases)) };
        if !seen.insert(identity(&found.0)?) {
            let hint = "it cannot be read: make a whole pack";
            return Err(Error::damaged(&found.0, "the chain of packs comes back to it", hint));
        }
        next = found.1.base_root().map(|root| (found.0.clone(), root));
        chain.push(found);
    }
    let mut lower: Option<Pack> = None;
    for (path, pack) in chain.into_iter().rev() {
        lower = Some(match lower {
            Some(base) => pack.with_base(base).map_err(|error| unreadable(&path, error))?,
            None => pack,
        });
    }
    lower.ok_or_else(|| Error::damaged(path, "it builds on nothing", ANOTHER_COPY))
}

/// Packs that were named as bases.
struct Bases {
    /// Those that were not used yet, with their roots.
    left: Vec<(PathBuf, Pack)>,
    /// The first that was named, for messages.
    first: Option<(PathBuf, Root)>,
}

impl Bases {
    fn open(named: &[PathBuf]) -> Result<Self, Error> {
        let mut left = Vec::new();
        for path in named {
            let pack = Pack::open(path).map_err(|error| unreadable(path, error))?;
            left.push((path.clone(), pack));
        }
        let first = left.first().map(|(path, pack)| (path.clone(), pack.root()));
        Ok(Self { left, first })
    }

    fn take(&mut self, root: Root) -> Option<(PathBuf, Pack)> {
        let index = self.left.iter().position(|(_, pack)| pack.root() == root)?;
        Some(self.left.swap_remove(index))
    }
}

/// The pack of this root in the folder of a delta; a whole one before a delta.
fn beside(
    path: &Path,
    root: Root,
    seen: &HashSet<(u64, u64)>,
) -> Result<Option<(PathBuf, Pack)>, Error> {
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let entries = fs::read_dir(folder).map_err(|error| Error::io("list", folder, error))?;
    let mut names: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new(ENDING)))
        .take(BESIDE_MAX)
        .collect();
    names.sort_unstable();
    let mut best: Option<(PathBuf, Pack)> = None;
    let mut failed = None;
    for name in names {
        let is_new = identity(&name).is_ok_and(|identity| !seen.contains(&identity));
        if !is_new || !claimed_root(&name).is_ok_and(|claimed| claimed == root) {
            continue;
        }
        match Pack::open(&name) {
            Ok(pack) if pack.base_root().is_none() => return Ok(Some((name, pack))),
            Ok(pack) => best = best.or(Some((name, pack))),
            Err(error) => failed = Some(unreadable(&name, error)),
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
    let reason = format!("it is a delta to the pack with root {root}, which is not at hand");
    Error::refused(path, reason, "name that pack with --base")
}

/// Two names of one file are one file.
fn identity(path: &Path) -> Result<(u64, u64), Error> {
    let metadata = fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
    Ok((metadata.dev(), metadata.ino()))
}

pub(super) fn unreadable(path: &Path, error: PackError) -> Error {
    match error {
        PackError::Io(error) => Error::io("read", path, error),
        other => Error::damaged(path, other.to_string(), ANOTHER_COPY),
    }
}
