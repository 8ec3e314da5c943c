//! One file that is no tablespace but has pages: of an Aria table, or of MySQL's
//! doublewrite area.

use std::path::Path;
use std::sync::Arc;

use crate::FORMAT;
use crate::files::aria::{AriaTable, DATA_ENDING, INDEX_ENDING, Surroundings};
use crate::files::doublewrite::{has_numbers_only, slot_bytes_of};
use crate::files::state::{Circumstances, State, directory_above, is_in_use, read_small};
use crate::files::tablespaces::doublewrite_file;
use crate::files::untested::{Lock, Telling, Untested};
use pagewarden_core::database::{Description, Evidence, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::verdict::{Note, Protection};
use pagewarden_format_aria::page::header::{AriaHeader, HEADER_BYTES};

/// True for a file that is opened here.
pub(super) fn is_known(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    slot_bytes_of(name).is_some() || has_numbers_only(name) || aria_header(path).is_some()
}

/// What the index file of a table says, whichever of its files is named.
fn aria_header(path: &Path) -> Option<AriaHeader> {
    let ending = path.extension()?.to_str()?;
    if ending != INDEX_ENDING && ending != DATA_ENDING {
        return None;
    }
    AriaHeader::parse(&read_small(&path.with_extension(INDEX_ENDING), HEADER_BYTES)?)
}

/// What there is to do for one of the files of a table.
fn steps_of_file(
    table: &AriaTable<'_>,
    name: String,
    root: Option<&Path>,
    is_live: bool,
) -> Vec<Step> {
    // By itself it counts as closed in order, as a tablespace does.
    let found = root.map_or(Circumstances::AtRest, |root| State::find(root, None).circumstances);
    let mut steps = table.steps(Surroundings {
        failure: found.failure(),
        is_live,
        is_settled: false,
        cut: found.cross_file().filter(|_| found != Circumstances::Crashed),
    });
    steps.retain(|step| match step {
        Step::File(file) => file.name == name,
        Step::Finding(finding) => finding.place.file == name,
        Step::Note(note) => note.file == name,
        _ => true,
    });
    if steps.is_empty() {
        let text = "rows of a format without pages: nothing to verify them by".to_owned();
        steps.push(Step::Note(Note { file: name, text }));
    }
    steps
}

/// Opens it.
///
/// # Errors
/// It cannot be read.
pub(super) fn open(path: &Path) -> Result<Target, Error> {
    let metadata = path.metadata().map_err(|source| Error::io("open", path, source))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if has_numbers_only(&name) {
        let what =
            "a file of innodb_doublewrite=DETECT_ONLY: it holds numbers of pages, and no page";
        return Err(Error::unrecognised(path, what, "name the data directory that it belongs to"));
    }
    let root = directory_above(path);
    let is_live = root.as_deref().is_some_and(is_in_use);
    let is_encrypted = aria_header(path).is_some_and(|header| header.is_encrypted);
    let (mut steps, page_size, engine, state) = match (slot_bytes_of(&name), aria_header(path)) {
        (Some(bytes), _) => {
            let file = doublewrite_file(name, path.to_owned(), bytes, metadata.len());
            (vec![Step::File(file)], bytes, "InnoDB (MySQL 8.0 or later)", "copies of pages")
        }
        (None, Some(header)) => {
            let stem = path.with_extension("");
            let shown = stem.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let table = AriaTable { stem: &stem, shown: &shown, database: None, object: None };
            let steps = steps_of_file(&table, name, root.as_deref(), is_live);
            let state = if header.has_sums { "page checksums" } else { "no page checksums" };
            (steps, header.page_size, "Aria (MariaDB)", state)
        }
        (None, None) => {
            return Err(Error::unrecognised(
                path,
                "neither a file of an Aria table nor one of a doublewrite area",
                "name the data directory",
            ));
        }
    };
    let untested = Arc::<Untested>::default();
    if is_encrypted {
        for step in &mut steps {
            if let Step::File(file) = step {
                untested.watch(file, Lock::Aria);
            }
        }
    }
    let description = Description {
        part: None,
        path: path.to_owned(),
        format: FORMAT.name,
        engine: engine.to_owned(),
        page_size: u32::try_from(page_size).unwrap_or(0),
        setting: (state != "no page checksums").then_some(Protection::Checksum),
        state: state.to_owned(),
        evidence: Evidence {
            tested_by: "32-bit checksums",
            unseen: "older versions of a page; zeroed pages",
        },
        live: is_live,
        epoch: None,
    };
    let woken = Box::new(move || root.as_deref().is_some_and(is_in_use));
    let steps = Telling::new(steps.into_iter(), untested);
    Ok(Target { description, steps: Box::new(steps), woken: Some(woken) })
}
