//! The repository itself as a target: what belongs to none of its sets, and the log.

use std::path::{Path, PathBuf};

use crate::FORMAT;
use crate::files::archived_log::{ArchivedLog, ArchivedLogs, outline};
use crate::files::evidence_of;
use crate::page::Checksums;
use pagewarden_core::database::repository::{Outcomes, Outline, RepositoryOptions, RepositoryPart};
use pagewarden_core::database::{Description, Step, Target};
use pagewarden_core::error::Error;
use pagewarden_core::verdict::{Note, Protection, Unread};

/// What is known of a repository beside its sets.
pub(super) struct Whole {
    pub(super) root: PathBuf,
    pub(super) tool: &'static str,
    /// How many sets it has.
    pub(super) sets: usize,
    /// What belongs to none of the sets.
    pub(super) steps: Vec<Step>,
    pub(super) log: WholeLog,
    /// What came of its sets.
    pub(super) outcomes: Outcomes,
}

/// What is done about the log of a repository.
pub(super) enum WholeLog {
    /// These are read.
    Read(Vec<ArchivedLog>),
    /// It was not to be read.
    LeftOut,
    /// It is not here, or cannot be listed.
    Unread(String),
}

impl WholeLog {
    /// What the names of its segments tell, when that is asked.
    pub(super) fn outline(&self) -> Option<Outline> {
        match self {
            Self::Read(logs) => Some(outline::of(logs)),
            Self::LeftOut | Self::Unread(_) => None,
        }
    }
}

/// Refuses a choice that only pgBackRest's repositories have.
///
/// # Errors
/// It was made.
pub(super) fn refuse_stanza(path: &Path, wanted: &RepositoryOptions) -> Result<(), Error> {
    match &wanted.stanza {
        None => Ok(()),
        Some(_) => {
            let hint = "name the folder of the server or storage";
            Err(Error::refused(path, "only repositories of pgBackRest have stanzas", hint))
        }
    }
}

/// The repository as a target.
pub(super) fn target(whole: Whole) -> Target {
    let Whole { root, tool, sets, mut steps, log, outcomes } = whole;
    match log {
        WholeLog::Read(logs) => {
            let what = format!("the log in a repository of {tool}");
            let mut target = ArchivedLogs { path: root, what, logs, outcomes }.into_target();
            target.steps = Box::new(steps.into_iter().chain(target.steps));
            return target;
        }
        WholeLog::LeftOut => {
            let text = "the archived log was not read (--no-log): how far the sets can be brought \
                        is not known";
            steps.push(Step::Note(Note { file: String::new(), text: text.to_owned() }));
        }
        WholeLog::Unread(error) => {
            let error = format!("the log was not read: {error} (--no-log leaves it out)");
            steps.push(Step::Unread(Unread::of_file(root.display().to_string(), error)));
        }
    }
    let description = Description {
        path: root,
        format: FORMAT.name,
        engine: FORMAT.title.to_owned(),
        page_size: 0,
        setting: Some(Protection::Checksum),
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
