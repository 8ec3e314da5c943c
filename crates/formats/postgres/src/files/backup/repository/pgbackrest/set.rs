//! One backup set as a target.
//!
//! The tool reads files itself, while the server writes. A page that fails is read again there; if it
//! has changed meanwhile, the torn copy is kept and counts as good, since replay of the log mends it. Its
//! header may be of the old version, so that an LSN from before the backup proves nothing here.
//!
//! | stored sums | a failing page | proves |
//! | --- | --- | --- |
//! | do not fit | any | damage of the repository |
//! | fit | is in `checksum-page-error` | damage: it failed twice when the backup was taken |
//! | fit | is not, and the server ran | nothing certain: suspect, unless the log overwrites it |
//! | fit | the server did not run | damage |

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::FORMAT;
use crate::files::archived_log::LogArchive;
use crate::files::backup::ground::Ground;
use crate::files::backup::members::{SetJudge, SetTerms};
use crate::files::backup::repository::pgbackrest::expiry::EXPIRED;
use crate::files::backup::repository::pgbackrest::info::{self, InfoFault, Opened};
use crate::files::backup::repository::pgbackrest::manifest::{Manifest, PageRanges};
use crate::files::backup::repository::pgbackrest::members::SetMembers;
use crate::files::backup::repository::pgbackrest::memory::Memory;
use crate::files::backup::repository::pgbackrest::place::{Damaged, Geometry, SetPlace};
use crate::files::backup::repository::pgbackrest::required;
use crate::files::backup::repository::pgbackrest::stanza::Stanza;
use crate::files::backup::repository::pgbackrest::stored::Coding;
use crate::files::backup::stream::ArchiveWalk;
use crate::files::backup::taking::Opening;
use crate::files::evidence_of;
use crate::page::Checksums;
use pagewarden_core::database::repository::{Backup, RepositoryPart};
use pagewarden_core::database::{Description, Step, Target};
use pagewarden_core::verdict::{Finding, Kind, Severity, StoredPlace, Unread};

/// The name of a set's manifest.
pub(super) const MANIFEST: &str = "backup.manifest";
/// What to do about a passphrase.
pub(super) const KEY_HINT: &str =
    "set PGBACKREST_REPO1_CIPHER_PASS, or name a file with the passphrase with --cipher-pass-file";

/// Opens a set. What is wrong with it is in the target.
pub(super) fn open(
    stanza: &Stanza,
    label: &str,
    log: Option<Arc<dyn LogArchive>>,
    memory: &Arc<Mutex<Memory>>,
    options: &Opening,
) -> Target {
    memory.lock().unwrap_or_else(PoisonError::into_inner).begin_set();
    let path = stanza.target_path(label);
    let folder = stanza.folder.join(label);
    let shown = |name: &str| format!("{}/{label}/{name}", stanza.shown);
    let opened = info::open(&folder, MANIFEST, stanza.manifest_pass.as_ref());
    let mut steps = Vec::new();
    if let Some(unread) = deleted_or_unfinished(stanza, label, &opened) {
        return without_manifest(stanza, label, path, vec![Step::Unread(unread)]);
    }
    if let Some((name, fault)) = &opened.other {
        steps.extend(match opened.lacks(MANIFEST) {
            true => Some(only_the_copy(&shown(MANIFEST))),
            false => info_step(&shown(name), fault, "the other one was used"),
        });
    }
    let manifest =
        match stanza.locked.clone().map_or(opened.file, Err).and_then(|file| Manifest::read(&file))
        {
            Ok(manifest) => manifest,
            Err(fault) => {
                steps.extend(info_step(&shown(MANIFEST), &fault, "nothing of the set can be read"));
                return without_manifest(stanza, label, path, steps);
            }
        };
    if manifest.label != label {
        let detail = format!("the manifest is that of the set {:?}", manifest.label);
        let finding = Finding::of_file(&shown(MANIFEST), Severity::Damage, Kind::Misplaced, detail);
        steps.push(Step::Finding(finding.stored_at(stored(&shown(MANIFEST)))));
    }
    steps.extend(required::lacks(&manifest).into_iter().map(Step::Finding));
    let entries = match manifest.entries() {
        Ok(entries) => entries,
        Err(fault) => {
            steps.extend(info_step(&shown(MANIFEST), &fault, "nothing of the set can be read"));
            return without_manifest(stanza, label, path, steps);
        }
    };
    let damaged = Damaged::default();
    let place = SetPlace {
        folder: stanza.folder.clone(),
        shown: stanza.shown.clone(),
        label: label.to_owned(),
        expiry: Arc::clone(&stanza.expiry),
        references: manifest.references,
        coding: Coding {
            codec: manifest.codec,
            raw: manifest.is_raw,
            passphrase: manifest.passphrase.clone(),
        },
        is_raw: manifest.is_raw,
        memory: Arc::clone(memory),
        damaged: Arc::clone(&damaged),
        geometry: Geometry::default(),
    };
    let mut backup = manifest.backup;
    backup.repository_bytes = stanza.repository_bytes(label);
    let terms = SetTerms {
        what: in_words(&backup, &place.coding, stanza),
        backup: Arc::new(backup),
        ground: if manifest.is_online { Ground::Copied } else { Ground::AtRest },
        // The names in the manifest were asked before.
        is_whole: false,
        log,
        judge: judge(manifest.page_errors, damaged, Arc::clone(memory)),
    };
    let members = SetMembers::new(place, manifest.first, entries, steps);
    ArchiveWalk::new(path, options).into_set(terms, Box::new(members))
}

/// What is said of a set without its manifest that the tool deletes, or has not finished.
fn deleted_or_unfinished(stanza: &Stanza, label: &str, opened: &Opened) -> Option<Unread> {
    let text = match stanza.has(label) {
        _ if !opened.lacks(MANIFEST) => return None,
        // The tool writes the copy first, and the manifest at the end.
        false => "the backup was not finished, is being taken, or is being expired",
        true if stanza.expiry.expires(label) => EXPIRED,
        true => return None,
    };
    Some(Unread::of_file(format!("{}/{label}", stanza.shown), text))
}

/// A manifest of which only the copy is left.
fn only_the_copy(shown: &str) -> Step {
    let detail = "it is not there, and its copy was used: the tool restores from it, but its next expire \
                  deletes this set and all that were built on it";
    let finding = Finding::of_file(shown, Severity::Damage, Kind::Missing, detail.to_owned());
    let hint = "copy backup.manifest.copy to it before the next expire";
    Step::Finding(finding.with_hint(hint).stored_at(stored(shown)))
}

fn in_words(backup: &Backup, coding: &Coding, stanza: &Stanza) -> String {
    let mut words = format!("{} backup of {} by pgBackRest", backup.kind.name(), stanza.name);
    match coding.codec.name() {
        "none" => {}
        codec => words.push_str(&format!(", {codec}")),
    }
    if coding.passphrase.is_some() {
        words.push_str(", encrypted");
    }
    if let Some(stopped) = &backup.stopped {
        words.push_str(&format!(", done {stopped}"));
    }
    words
}

/// See the table of the module.
fn judge(
    page_errors: HashMap<String, PageRanges>,
    damaged: Damaged,
    memory: Arc<Mutex<Memory>>,
) -> SetJudge {
    Arc::new(move |finding, page| {
        let name = finding.place.file.clone();
        memory.lock().unwrap_or_else(PoisonError::into_inner).taint(&name);
        let number = finding.place.page.map_or(u64::MAX, |page| page.0);
        let errors = page_errors.get(&name);
        let is_known = errors.is_some_and(|ranges| {
            ranges.iter().any(|(first, last)| (*first..=*last).contains(&number))
        });
        if is_known {
            finding.severity = page.at_most;
            finding.add_detail(
                "pgBackRest noted this page as failing twice when the backup was taken: it was \
                 damaged in the database",
            );
            finding.hint =
                Some("restore this relation from a set taken before, if one is sound".to_owned());
        }
        let damaged = damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = damaged.get(&name) {
            finding.severity = Severity::Damage;
            finding.origin = Some(Box::new(origin.clone()));
            finding.add_detail("its stored bytes are damaged");
        }
    })
}

/// A set of which nothing can be read.
fn without_manifest(stanza: &Stanza, label: &str, path: PathBuf, steps: Vec<Step>) -> Target {
    let mut backup = stanza.listed(label).cloned().unwrap_or_default();
    backup.tool = "pgBackRest";
    label.clone_into(&mut backup.label);
    let engine = match &backup.database_version {
        Some(version) => format!("PostgreSQL {version}"),
        None => "PostgreSQL".to_owned(),
    };
    let state = format!("{} backup of {} by pgBackRest", backup.kind.name(), stanza.name);
    target(path, engine, state, RepositoryPart::Set(Arc::new(backup)), steps)
}

/// A target without pages.
pub(super) fn target(
    path: PathBuf,
    engine: String,
    state: String,
    part: RepositoryPart,
    steps: Vec<Step>,
) -> Target {
    Target {
        description: Description {
            path,
            format: FORMAT.name,
            engine,
            page_size: 8192,
            setting: None,
            state,
            evidence: evidence_of(Checksums::On),
            live: false,
            epoch: None,
            part: Some(part),
        },
        steps: Box::new(steps.into_iter()),
        woken: None,
    }
}

/// A stored file as a whole.
pub(super) fn stored(shown: &str) -> StoredPlace {
    StoredPlace { stored_file: shown.to_owned(), stored_offset: None }
}

/// What follows from an info file or manifest that says nothing; `otherwise` is what was done.
pub(super) fn info_step(shown: &str, fault: &InfoFault, otherwise: &str) -> Option<Step> {
    let damage = |kind, detail: String| {
        let detail = format!("{detail}; {otherwise}");
        let finding = Finding::of_file(shown, Severity::Damage, kind, detail)
            .with_hint("copy the sound one over it, or take a new full backup")
            .stored_at(stored(shown));
        Step::Finding(finding)
    };
    let unread = |text: String| Step::Unread(Unread::of_file(shown, text));
    Some(match fault {
        // A set that is being made or expired has only one; so has one whose second was removed.
        InfoFault::Missing if otherwise.starts_with("the other") => return None,
        InfoFault::Missing => damage(Kind::Missing, "it is not there".to_owned()),
        InfoFault::Damaged(detail) => damage(Kind::Checksum, detail.clone()),
        // The other one was decrypted: so it is no matter of the passphrase.
        InfoFault::WrongKey if otherwise.starts_with("the other") => {
            damage(Kind::Checksum, "it does not decrypt".to_owned())
        }
        InfoFault::WrongKey => unread(format!(
            "it does not decrypt: the passphrase is another one, or the file is damaged; {KEY_HINT}"
        )),
        InfoFault::Locked => unread(format!("it is encrypted; {KEY_HINT}")),
        InfoFault::Unreadable(error) => unread(error.clone()),
    })
}

/// The beginning of a target's path.
pub(super) fn path_of_set(repository: &Path, label: &str) -> PathBuf {
    let mut path = repository.as_os_str().to_owned();
    path.push("#");
    path.push(label);
    path.into()
}
