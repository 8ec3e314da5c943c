//! Pages that a program without the VFS wrote: told from damage, so that they can be stamped again.
//!
//! Such a page is whole and has an old marker, or none. A damaged page may look the same, so this is
//! what must be true of the database before any page of it is stamped:
//!
//! | | why |
//! | --- | --- |
//! | no page says by its marker what happened to it: a flipped bit, stale parts, another database | a writer leaves none of these |
//! | a page with the marker of another one was moved: see [`moves`] | a writer moves pages, with their markers |
//! | a page of zeroes belongs to no table and no index | a writer leaves them where nothing is |
//! | in rollback mode page 1 fails, too | every writer writes it |
//! | the whole structure is sound, rows against indexes included | what a writer leaves is |
//!
//! Nothing is stamped if one page fails these tests. What is left to chance is damage that changes a
//! value and nothing else, on a page that a program without the VFS may have written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use crate::files::owners::{Owner, Owners};
use crate::files::{geometry, open_without_markers};
use crate::page::header::{DatabaseHeader, HEADER_BYTES};
use crate::protect::check::{Soundness, all_findings, look_at_copy};
use pagewarden_core::error::Error;
use pagewarden_core::protect::Options;
use pagewarden_core::system::FileExt as _;
use pagewarden_core::verdict::{Finding, Kind, PageNo};
use pagewarden_core::words::counted;

/// Pages of a table that are named one by one.
const PAGES_NAMED: usize = 8;
/// Findings that the answer has where nothing is healed.
const FINDINGS_TOLD: usize = 3;

/// What may be done about the pages of a database that fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Healing {
    /// They may be stamped again; none where no page fails.
    Pages {
        /// Their numbers, in order, free pages that need not pass among them.
        pages: Vec<PageNo>,
        /// A line for each table or index of which pages fail.
        lines: Vec<String>,
    },
    /// None may be: why not, and what was found.
    Not(String),
}

/// Looks at a copy of a database, which `copy` writes into a file that it is given, and says which pages
/// may be stamped again. The copy is made because a program that has the database open loses its locks
/// when it opens and closes the file once more. It lies in the folder for temporary files, where only
/// this user can read it, and is removed at the end.
///
/// # Errors
/// The copy cannot be made, or no verdict can be given.
pub fn examine(
    name: &str,
    copy: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<Healing, Error> {
    let in_temporary = |error| Error::io("write a copy to", &std::env::temp_dir(), error);
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir().map_err(in_temporary)?;
    let path = folder.path().join(name);
    let mut file = File::create_new(&path).map_err(in_temporary)?;
    copy(&mut file).map_err(in_temporary)?;
    let file = File::open(&path).map_err(in_temporary)?;
    // It shares the machine with the program that asks.
    let options = Options { jobs: NonZero::<usize>::MIN, ..Options::default() };
    let mut sound = look_at_copy(&path, &options)?;
    let mut head = [0; HEADER_BYTES];
    file.read_exact_at(&mut head, 0).map_err(|error| Error::io("read", &path, error))?;
    let lines = match DatabaseHeader::parse(&head) {
        Some(header) => judge(&path, (&file, &header), &options, &mut sound)?,
        None => Vec::new(),
    };
    if !sound.is_damaged() {
        return Ok(Healing::Pages { pages: sound.excused, lines });
    }
    let found = sound.findings.iter().take(FINDINGS_TOLD).map(|finding| {
        let what = finding.detail.as_deref().unwrap_or(finding.kind.name());
        finding.place.page.map_or(what.to_owned(), |page| format!("page {}: {what}", page.0))
    });
    Ok(Healing::Not(lines.into_iter().chain(found).collect::<Vec<_>>().join("\n")))
}

/// Excuses the pages that may be stamped again, and says in words which; or leaves in `sound` why none
/// may be.
pub(super) fn judge(
    path: &Path,
    (file, header): (&File, &DatabaseHeader),
    options: &Options,
    sound: &mut Soundness,
) -> Result<Vec<String>, Error> {
    if !sound.is_damaged() {
        return Ok(Vec::new());
    }
    let moved = moves(file, header, &sound.findings);
    let written_elsewhere = |finding: &Finding| match (finding.kind, finding.place.page) {
        (Kind::Checksum | Kind::Zeroed, Some(_)) => true,
        (Kind::Misplaced, Some(page)) => moved.contains_key(&page.0),
        _ => false,
    };
    let pages: Vec<_> = sound.findings.iter().filter_map(|finding| finding.place.page).collect();
    if !sound.findings.iter().all(written_elsewhere) {
        sound.findings.retain(|finding| !written_elsewhere(finding));
        return Ok(not_healed(sound, "no program without the VFS leaves this"));
    }
    if !header.is_wal() && !pages.contains(&PageNo(1)) {
        return Ok(not_healed(
            sound,
            "page 1 is as the VFS wrote it, and a program without the VFS writes it each time",
        ));
    }
    let owners = Owners::of(pages.iter().chain(moved.values()).copied());
    let structure = all_findings(open_without_markers(path, owners.clone())?, path, options)?;
    let owners = owners.answers();
    let owner = |page: u64| owners.get(&page).cloned().unwrap_or_default();
    let is_lost_zero = |finding: &Finding| {
        let page = finding.place.page.map_or(0, |page| page.0);
        owner(page).object.is_some() && is_zero(file, header, page)
    };
    let is_copied = |finding: &Finding| {
        let page = finding.place.page.map_or(0, |page| page.0);
        moved.get(&page).is_some_and(|from| !is_move(&owner(page), &owner(from.0)))
    };
    if structure.stopped {
        sound.stopped = true;
        return Ok(Vec::new());
    }
    if structure.is_damaged() {
        sound.findings = structure.findings;
        sound.damaged = structure.damaged;
        return Ok(not_healed(sound, "its structure is not sound"));
    }
    if sound.findings.iter().any(is_lost_zero) {
        sound.findings.retain(is_lost_zero);
        return Ok(not_healed(sound, "a table or index has a page of zeroes"));
    }
    if sound.findings.iter().any(is_copied) {
        sound.findings.retain(is_copied);
        return Ok(not_healed(sound, "a page may lie in the place of another one"));
    }
    let whose: BTreeMap<_, _> = pages.iter().map(|page| (page.0, owner(page.0).object)).collect();
    sound.excused.extend(pages);
    sound.excused.sort_unstable();
    sound.excused.dedup();
    sound.findings.clear();
    sound.damaged = 0;
    Ok(stamped(&whose))
}

/// The pages that pass as another one, by their own number, and as which.
///
/// SQLite gives a page of its cache another number, and leaves its reserved bytes as they are, where it
/// shares rows out among neighbours (`balance_nonroot` and `sqlite3PagerRekey` in `btree.c`: the pages of
/// a tree are put in the order of the file), and where it makes a file shorter
/// (`sqlite3PagerMovepage`, under `auto_vacuum`).
fn moves(file: &File, header: &DatabaseHeader, findings: &[Finding]) -> BTreeMap<u64, PageNo> {
    let mut head = [0; HEADER_BYTES];
    let markers = file
        .read_exact_at(&mut head, 0)
        .ok()
        .and_then(|()| geometry::find(file, file.metadata().ok()?.len(), &head)?.markers);
    let Some(markers) = markers else { return BTreeMap::new() };
    let misplaced = findings.iter().filter(|finding| finding.kind == Kind::Misplaced);
    misplaced
        .filter_map(|finding| {
            let page = finding.place.page?;
            let bytes = read_page(file, header, page.0)?;
            Some((page.0, markers.moved_from(&bytes, page)?))
        })
        .collect()
}

/// True if a page may have been moved here from the place of `from`, in a database whose structure is
/// sound: that one holds no rows any more, or other ones of the same tree. Where a write went astray, the
/// same rows would be in the tree twice, or it would be from the place of another tree.
fn is_move(page: &Owner, from: &Owner) -> bool {
    from.object.is_none() || (page.is_in_tree && page.object == from.object)
}

/// A page that cannot be read is none of zeroes: that is found, and said, elsewhere.
fn is_zero(file: &File, header: &DatabaseHeader, page: u64) -> bool {
    read_page(file, header, page).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

fn read_page(file: &File, header: &DatabaseHeader, page: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; header.page_size()?];
    let offset = page.saturating_sub(1).saturating_mul(bytes.len() as u64);
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

fn not_healed(sound: &mut Soundness, why: &str) -> Vec<String> {
    sound.damaged = sound.damaged.min(sound.findings.len() as u64).max(1);
    vec![format!("no page is stamped again: {why}")]
}

/// A line for each table or index.
fn stamped(owners: &BTreeMap<u64, Option<Arc<str>>>) -> Vec<String> {
    let mut by_owner: BTreeMap<Option<&str>, Vec<u64>> = BTreeMap::new();
    for (page, owner) in owners {
        by_owner.entry(owner.as_deref()).or_default().push(*page);
    }
    by_owner
        .into_iter()
        .map(|(owner, pages)| {
            let whose = owner.map_or("that hold no rows".to_owned(), |name| format!("of {name}"));
            let named: Vec<_> = pages.iter().take(PAGES_NAMED).map(u64::to_string).collect();
            let more = pages.len().saturating_sub(named.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "{} {whose}, written without the VFS and found sound in structure: {}{more}",
                counted(pages.len() as u64, "page"),
                named.join(", ")
            )
        })
        .collect()
}
