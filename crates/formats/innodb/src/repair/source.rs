//! A copy of the data directory that pages may come from: another directory that was shut down, a cold
//! copy, or a prepared backup in a folder.
//!
//! What is refused by name, so that no page of it is ever looked at: another directory by its UUID,
//! a running or crashed server, a backup that is not prepared, pages of another size, and a copy whose
//! log went its own way.
//!
//! Two directories are in the same state if their logs are the same files, byte for byte, with one
//! checkpoint at their end: what was changed last is in the log, so that two copies that were each
//! changed by as much differ there. All pages of a file that are sound in both must be the same,
//! too, before a page of that file is exact by this.

use std::collections::HashSet;
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::redo::{Histories, histories, names_of_files};
use crate::files::state::{Circumstances, State, is_root};
use crate::files::system::member_beside;
use crate::files::tablespace::{Context, Tablespace, open_file};
use crate::page::encryption::Keyring;
use crate::page::{InnodbPages, Look};
use crate::repair::identity::Identity;
use crate::repair::{Directory, check_log_has_key, number_of_system_file};
use pagewarden_core::error::Error;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::system::identity;
use pagewarden_core::words::counted;

const COMPARED_BYTES: usize = 1 << 20;
/// Of a log that was made anew by both, nearly all is blank.
const LOG_SECTORS_MIN: u64 = 16;
const SECTOR: usize = 512;

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) root: PathBuf,
    /// What it is, in words.
    pub(super) what: String,
    /// Its files are those of the directory's last shutdown; else why not.
    pub(super) is_same_state: Result<(), String>,
    /// The positions over which both logs are the same.
    pub(super) shared: Range<u64>,
    /// Where the copy's log ends, if the directory's is the same up to there.
    pub(super) end: Option<u64>,
}

impl Source {
    /// Opens a copy of the directory.
    pub(super) fn open(root: &Path, ours: &Directory) -> Result<Self, Error> {
        let refuse = |reason: String, hint: &str| Err(Error::refused(root, reason, hint));
        let metadata = fs::metadata(root).map_err(|error| Error::io("open", root, error))?;
        if !metadata.is_dir() || !is_root(root) {
            return refuse(
                "no data directory of MySQL or MariaDB, and no backup of one in a folder"
                    .to_owned(),
                "name the folder with ibdata1 in it; unpack archives and streams first",
            );
        }
        let theirs = identity(&metadata, root).map_err(|error| Error::io("open", root, error))?;
        let own = fs::metadata(&ours.root).and_then(|own| identity(&own, &ours.root));
        if theirs == own.map_err(|error| Error::io("open", &ours.root, error))? {
            return refuse(
                "this is the directory that is to be repaired".to_owned(),
                "name a copy of it; its own doublewrite area is asked in any case",
            );
        }
        if let Some(difference) = ours.identity.difference(&Identity::of(root)) {
            return refuse(
                format!("a copy of another data directory: {difference}"),
                "name a copy of the directory that is to be repaired",
            );
        }
        let state = State::find(root, ours.keys.as_deref());
        check_log_has_key(root, &state, ours.keyring.as_deref())?;
        let hint = match state.circumstances {
            Circumstances::AtRest | Circumstances::Prepared => "",
            Circumstances::Running => "stop its server",
            Circumstances::Backup => {
                "prepare the backup first (--prepare of the program that made it)"
            }
            Circumstances::Crashed | Circumstances::Unknown => {
                "name a copy that was shut down, or start its server once and stop it"
            }
        };
        if !state.circumstances.is_settled() {
            let reason = format!("this source is {}", state.circumstances.in_words());
            return refuse(reason, hint);
        }
        check_page_size(root, ours)?;
        let shared = match histories(&ours.root, root) {
            Histories::Shared(range) => range,
            Histories::Unknown => 0..0,
            Histories::Apart => {
                return refuse(
                    "a copy with a history of its own: its log and that of the directory differ"
                        .to_owned(),
                    "name a copy that no server was started on",
                );
            }
        };
        let checkpoint = state.log.as_ref().map(|log| log.checkpoint);
        let what = match checkpoint {
            Some(lsn) => format!("{}, at LSN {lsn}", state.circumstances.in_words()),
            None => state.circumstances.in_words().to_owned(),
        };
        let is_same_state = match (ours.checkpoint, checkpoint) {
            (Some(one), Some(two)) if one == two => same_logs(&ours.root, root),
            _ => Err("it is of another moment".to_owned()),
        };
        let end = checkpoint.filter(|lsn| !shared.is_empty() && *lsn == shared.end);
        Ok(Self { root: root.to_owned(), what, is_same_state, shared, end })
    }
}

fn check_page_size(root: &Path, ours: &Directory) -> Result<(), Error> {
    let Some(page_size) = ours.page_size else { return Ok(()) };
    let Ok(system) = tablespace(root, "ibdata1", None) else { return Ok(()) };
    if system.geometry.layout.page_size == page_size {
        return Ok(());
    }
    let reason = format!(
        "a copy of another data directory: its pages have {} bytes, here they have {page_size}",
        system.geometry.layout.page_size
    );
    Err(Error::refused(root, reason, "name a copy of the directory that is to be repaired"))
}

/// Opens a tablespace file by its name below a data directory.
pub(super) fn tablespace(
    root: &Path,
    name: &str,
    keys: Option<&Arc<Keyring>>,
) -> Result<Tablespace, Error> {
    let path = root.join(name);
    let mut context = Context::alone(name.to_owned());
    context.was_shut_down = true;
    context.keyring = keys.map(Arc::clone);
    if let Some(number) = number_of_system_file(name).filter(|number| *number > 1) {
        context.is_further = true;
        context.member = member_beside(&path, number);
    }
    open_file(&path, context)
}

/// True if both have the same log, byte for byte, and there is enough in it to tell two histories.
fn same_logs(ours: &Path, theirs: &Path) -> Result<(), String> {
    let (one, two) = (names_of_files(ours), names_of_files(theirs));
    let names = |files: &[(String, PathBuf)]| {
        files.iter().map(|(_, path)| path.file_name().map(ToOwned::to_owned)).collect::<Vec<_>>()
    };
    if names(&one) != names(&two) {
        return Err("it has other files of the log".to_owned());
    }
    let mut written = 0_u64;
    for ((_, one), (_, two)) in one.iter().zip(&two) {
        let open = |path: &Path| {
            open_regular(path)
                .map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let (one, two) = (open(one)?, open(two)?);
        let is_same = each_pair(&one, &two, COMPARED_BYTES, |_, one, two| {
            let sectors = one.chunks(SECTOR).filter(|it| it.iter().any(|byte| *byte != 0));
            written = written.saturating_add(sectors.count() as u64);
            one == two
        });
        if !is_same.map_err(|error| format!("its log cannot be read: {error}"))? {
            return Err("its log holds other changes".to_owned());
        }
    }
    match written >= LOG_SECTORS_MIN {
        true => Ok(()),
        false => Err("the log was made anew, and shows no history".to_owned()),
    }
}

/// Goes through two files side by side while `each` says so; false if it does not, or one is longer.
fn each_pair(
    one: &File,
    two: &File,
    bytes: usize,
    mut each: impl FnMut(u64, &[u8], &[u8]) -> bool,
) -> std::io::Result<bool> {
    let (mut a, mut b) = (vec![0; bytes], vec![0; bytes]);
    let mut offset = 0_u64;
    loop {
        let counts = (read_fully(one, &mut a, offset)?, read_fully(two, &mut b, offset)?);
        if counts.0 != counts.1 {
            return Ok(false);
        }
        if counts.0 == 0 {
            return Ok(true);
        }
        let pair = (a.get(..counts.0), b.get(..counts.1));
        if let (Some(a), Some(b)) = pair
            && !each(offset, a, b)
        {
            return Ok(false);
        }
        offset = offset.saturating_add(counts.0 as u64);
    }
}

/// Compares all pages of a file but those at `wounded` offsets; how many are the same.
///
/// # Errors
/// A page that is sound in both differs, or the files cannot be compared: in words.
pub(super) fn same_pages(
    ours: (&Path, &Tablespace),
    theirs: (&Path, &Tablespace),
    wounded: &HashSet<u64>,
) -> Result<u64, String> {
    let page_size = ours.1.geometry.layout.page_size.max(1);
    let open = |path: &Path| {
        open_regular(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
    };
    let (one, two) = (open(ours.0)?, open(theirs.0)?);
    let mut same = 0_u64;
    let mut other = None;
    let first = ours.1.geometry.first_page;
    let bytes = COMPARED_BYTES.max(page_size);
    let compared = each_pair(&one, &two, bytes, |begin, a, b| {
        for ((a, b), index) in a.chunks(page_size).zip(b.chunks(page_size)).zip(0_u64..) {
            let offset = begin.saturating_add(index.saturating_mul(page_size as u64));
            if wounded.contains(&offset) {
                continue;
            }
            let number = first.saturating_add(offset / page_size as u64);
            if ours.1.pages.counted(a) == theirs.1.pages.counted(b) {
                same = same.saturating_add(1);
            } else if is_sound(&ours.1.pages, number, a) && is_sound(&theirs.1.pages, number, b) {
                other = Some(number);
                return false;
            }
        }
        true
    });
    match (compared.map_err(|error| format!("the file cannot be compared: {error}"))?, other) {
        (_, Some(page)) => {
            Err(format!("page {page}, which is sound in both, differs from the copy's"))
        }
        (false, None) => Err("the file has another length in the copy".to_owned()),
        (true, None) if same == 0 => Err("no other page of the file is the same".to_owned()),
        (true, None) => Ok(same),
    }
}

/// A blank page may differ from one that is in use.
fn is_sound(pages: &InnodbPages, number: u64, page: &[u8]) -> bool {
    !matches!(pages.look(number, page, None), Look::Faulty(_))
}

/// The words of rule one.
pub(super) fn same_state_words(same: u64) -> String {
    format!(
        "both directories are of the same shutdown: their logs are the same, byte for byte, and so are {} of this file",
        counted(same, "other page")
    )
}
