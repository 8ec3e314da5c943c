//! The repository itself as a target: what belongs to none of its sets, and the log.

use std::path::Path;

use crate::database::repository::{RepositoryOptions, RepositoryPart};
use crate::database::{Description, Step, Target};
use crate::formats::postgres::FORMAT;
use crate::formats::postgres::files::evidence_of;
use crate::formats::postgres::page::Checksums;
use crate::verdict::Note;

/// The repository at `root`, of which that many sets are checked.
pub(super) fn target(
    root: &Path,
    tool: &'static str,
    sets: usize,
    mut steps: Vec<Step>,
    wanted: &RepositoryOptions,
) -> Target {
    if !wanted.no_log {
        let text =
            "the archived log was not read: up to which moment a set can be brought is not known";
        steps.push(Step::Note(Note { file: String::new(), text: text.to_owned() }));
    }
    let description = Description {
        path: root.to_owned(),
        format: FORMAT.name,
        engine: FORMAT.title.to_owned(),
        page_size: 8192,
        setting: None,
        state: match sets {
            1 => format!("{tool} repository, 1 set"),
            _ => format!("{tool} repository, {sets} sets"),
        },
        evidence: evidence_of(Checksums::On),
        live: false,
        epoch: None,
        part: Some(RepositoryPart::Whole(None)),
    };
    Target { description, steps: Box::new(steps.into_iter()), woken: None }
}
