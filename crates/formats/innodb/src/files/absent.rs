//! Tables that the dictionary names and whose files are gone, or are those of others.
//!
//! | by the dictionary | in the directory | it is |
//! | --- | --- | --- |
//! | a file under its name | none of that name | missing |
//! | the same, of a server before MySQL 5.6 | none | suspect: a discarded table looks like that |
//! | a file elsewhere | its link file leads to none | missing, if the folder is there; else unread |
//! | a number | another one in the file of that name | misplaced: files were exchanged |
//! | a number greater than any that `ibdata1` has given out (MySQL 8 and later) | the file | `ibdata1` is stale |
//!
//! Asked after a clean shutdown only: the dictionary may be ahead of its page otherwise, or behind it.
//! Of a backup of some tables only it is not asked at all.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::names;
use crate::files::state::read_small;
use crate::files::tables::{Named, Placement, Unasked};
use pagewarden_core::database::Step;
use pagewarden_core::verdict::{Finding, Kind, Note, Severity, Unread};
use pagewarden_core::words::counted;

const MISSING_HINT: &str = "the server cannot open this table without it: look for the file before \
                            anything else, or restore the table from a backup";
const MISPLACED_HINT: &str = "the server does not open this table: files of tables were exchanged or \
                              copied over one another; put each back under its own name, or restore \
                              the table from a backup";

const STALE_HINT: &str = "the server does not find the newest tables by it, and may give their numbers out again: \
                          put the file of the last shutdown back, or restore all files from one backup";
/// From here on a server numbers tablespaces of its own, from the other end.
const SERVERS_OWN: u32 = 0xF000_0000;

/// What is in a data directory.
pub(super) struct Present<'a> {
    pub(super) root: &'a Path,
    /// Numbers by the names of files, from the data directory.
    pub(super) numbers: &'a HashMap<Box<str>, u32>,
    /// Where each number was seen.
    pub(super) spaces: &'a HashMap<u32, Box<str>>,
}

/// What follows from what a dictionary names. `dictionary` is its file.
pub(super) fn steps(
    present: &Present<'_>,
    dictionary: &str,
    named: Result<Vec<Named>, Unasked>,
) -> Vec<Step> {
    let note = |text: &str| vec![Step::Note(Note { file: dictionary.into(), text: text.into() })];
    let named = match named {
        Ok(named) => named,
        Err(Unasked::Locked) => {
            return note(
                "the data dictionary is encrypted: whether a table's file is missing was not asked",
            );
        }
        Err(Unasked::Broken(why)) => {
            let error = format!(
                "the data dictionary cannot be read, so that it is unknown whether a table's file \
                 is missing: {why}"
            );
            return vec![Step::Unread(Unread::of_file(dictionary, error))];
        }
    };
    if is_partial(present.root) {
        return note("a backup of some tables only: the others' files were not asked for");
    }
    let lower: HashSet<String> =
        present.numbers.keys().map(|name| name.to_ascii_lowercase()).collect();
    named.iter().filter_map(|one| present.step(one, &lower)).collect()
}

/// That `ibdata1` is older than tables of a dictionary elsewhere: a server numbers tablespaces one after the
/// other, and has the last number there. `newest` is that number.
pub(super) fn older_system(present: &Present<'_>, named: &[Named], newest: u32) -> Option<Step> {
    let newer = named.iter().filter_map(|one| {
        let space = one.space.filter(|space| *space > newest && *space < SERVERS_OWN)?;
        let is_here = present.numbers.get(one.file.as_str()) == Some(&space);
        is_here.then_some((space, one.file.as_str()))
    });
    let newer: Vec<_> = newer.collect();
    let (space, file) = newer.iter().min()?;
    let detail = format!(
        "it has given out numbers of tablespaces up to {newest}, and the data dictionary has {} with \
         greater ones, the first {file} with {space}: it is older than they are",
        counted(newer.len() as u64, "table")
    );
    let finding = Finding::of_file("ibdata1", Severity::Damage, Kind::Stale, detail);
    Some(Step::Finding(finding.with_hint(STALE_HINT)))
}

impl Present<'_> {
    fn step(&self, named: &Named, lower: &HashSet<String>) -> Option<Step> {
        let file = named.file.as_str();
        if named.place == Placement::Shared {
            return self.shared(named);
        }
        if let (Some(wanted), Some(found)) = (named.space, self.numbers.get(file).copied()) {
            return (wanted != found).then(|| self.misplaced(file, wanted, found));
        }
        let path = self.root.join(file);
        // What cannot be looked at was told already.
        if path.try_exists().unwrap_or(true) || self.is_unreachable(file) {
            return None;
        }
        let link = path.with_extension("");
        let link = with_ending(link, "isl");
        if link.exists() {
            return self.linked(file, &link);
        }
        // Not every file system distinguishes cases in names; a backup may still have packed files.
        if lower.contains(&file.to_ascii_lowercase()) || is_packed(&path) {
            return None;
        }
        if named.place == Placement::Linked {
            let error = "the data dictionary names this table; its file lies elsewhere (DATA \
                         DIRECTORY), and no link file says where";
            return Some(Step::Unread(Unread::of_file(file, error)));
        }
        if Path::new(file).is_absolute() && !path.parent().is_some_and(Path::is_dir) {
            return Some(unreachable(file));
        }
        Some(missing(
            file,
            named.place,
            "the data dictionary names this table; its file is not here",
        ))
    }

    /// A table in a tablespace with others, of which only the number is known.
    fn shared(&self, named: &Named) -> Option<Step> {
        let space = named.space.filter(|space| !self.spaces.contains_key(space))?;
        let error = format!(
            "the data dictionary names this table in tablespace {space}, which is in no file here"
        );
        Some(Step::Unread(Unread::of_file(named.file.as_str(), error)))
    }

    /// Below a link that leads nowhere.
    fn is_unreachable(&self, file: &str) -> bool {
        let Some((folder, _)) = file.split_once('/') else { return false };
        let folder = self.root.join(folder);
        [folder, self.root.join(file)].iter().any(|path| {
            fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_symlink()) && !path.exists()
        })
    }

    /// A table whose link file is here.
    fn linked(&self, file: &str, link: &Path) -> Option<Step> {
        const PATH_BYTES_MAX: usize = 4096;
        let text = String::from_utf8(read_small(link, PATH_BYTES_MAX)?).ok()?;
        let place = self.root.join(text.trim());
        if place.try_exists().unwrap_or(true) {
            return None;
        }
        if !place.parent().is_some_and(Path::is_dir) {
            return Some(unreachable(file));
        }
        let detail = "the data dictionary names this table; the file that its link file leads to is \
                      not there";
        Some(missing(file, Placement::Here, detail))
    }

    fn misplaced(&self, file: &str, wanted: u32, found: u32) -> Step {
        let detail = format!(
            "the data dictionary has this table in tablespace {wanted}, and this is the file of \
             tablespace {found}"
        );
        let detail = match self.spaces.get(&wanted) {
            Some(other) if **other != *file => {
                format!("{detail}; {wanted} is that of {other}")
            }
            _ => detail,
        };
        let finding = Finding::of_file(file, Severity::Damage, Kind::Misplaced, detail);
        Step::Finding(of_table(file, finding.with_hint(MISPLACED_HINT)))
    }
}

fn unreachable(file: &str) -> Step {
    let error = "the data dictionary names this table; its file lies elsewhere, in a folder that \
                 cannot be reached";
    Step::Unread(Unread::of_file(file, error))
}

fn missing(file: &str, place: Placement, detail: &str) -> Step {
    let (severity, detail) = match place {
        Placement::HereOrDiscarded => {
            (Severity::Suspect, format!("{detail}; or its tablespace was discarded"))
        }
        Placement::Here | Placement::Linked | Placement::Shared => {
            (Severity::Damage, detail.to_owned())
        }
    };
    let finding = Finding::of_file(file, severity, Kind::Missing, detail);
    Step::Finding(of_table(file, finding.with_hint(MISSING_HINT)))
}

fn of_table(file: &str, finding: Finding) -> Finding {
    let stem = file.strip_suffix(".ibd").unwrap_or(file);
    let Some((folder, table)) = stem.rsplit_once('/') else { return finding };
    let folder = folder.rsplit('/').next().unwrap_or(folder);
    finding.about(Some(&names::decoded(folder)), Some(&names::object(folder, table)))
}

fn with_ending(path: PathBuf, ending: &str) -> PathBuf {
    let mut path = path.into_os_string();
    path.push(".");
    path.push(ending);
    path.into()
}

fn is_packed(path: &Path) -> bool {
    ["zst", "lz4", "qp", "xbcrypt", "delta", "zst.xbcrypt", "lz4.xbcrypt", "qp.xbcrypt"]
        .iter()
        .any(|ending| with_ending(path.to_owned(), ending).exists())
}

/// True of a backup that its program was told to make of some tables only, and of what became of it.
pub(super) fn is_partial(root: &Path) -> bool {
    const NAMES: [&str; 3] = ["xtrabackup_info", "mariadb_backup_info", "mariabackup_info"];
    const BYTES_MAX: usize = 1 << 16;
    let texts = NAMES.iter().filter_map(|name| read_small(&root.join(name), BYTES_MAX));
    texts.into_iter().any(|text| {
        String::from_utf8_lossy(&text).lines().any(|line| {
            line.split_once('=').is_some_and(|(name, value)| {
                name.trim() == "partial" && value.trim().eq_ignore_ascii_case("y")
            })
        })
    })
}
