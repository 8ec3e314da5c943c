//! A stanza: the backups of one cluster.
//!
//! ```text
//! backup/STANZA/backup.info, backup.info.copy     which sets there are
//! backup/STANZA/LABEL/backup.manifest[.copy]      which files a set has
//! backup/STANZA/LABEL/bundle/N                    bundled files
//! backup/STANZA/LABEL/pg_data/..., pg_tblspc/...  files of their own
//! archive/STANZA/...                              the log
//! ```
//!
//! The sets that count are the keys of `[backup:current]` in `backup.info`; a folder that is not
//! listed there is of a backup that was not finished, or is being expired.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use crate::files::backup::repository::pgbackrest::cipher::Passphrase;
use crate::files::backup::repository::pgbackrest::expiry::Expiry;
use crate::files::backup::repository::pgbackrest::info::{self, InfoFault, InfoFile};
use crate::files::backup::repository::pgbackrest::manifest::{is_label, kind_named};
use crate::files::backup::repository::pgbackrest::set::{MANIFEST, info_step, path_of_set, stored};
use pagewarden_core::database::Step;
use pagewarden_core::database::repository::{Backup, Lsn};
use pagewarden_core::source::store::{Seen, StorePath};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity, Unread};
use pagewarden_core::words::utc_seconds;

/// The name of the file that lists the sets.
pub(super) const INFO: &str = "backup.info";
/// Sets past which the rest of a list is not taken: one an hour for a year has 8,766.
const SETS_MAX: usize = 100_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Stanza {
    /// Its name.
    pub(super) name: String,
    /// The folder of its backups.
    pub(super) folder: StorePath,
    /// That folder's name in the repository: `backup/main`.
    pub(super) shown: String,
    /// The repository.
    repository: StorePath,
    /// Opens manifests.
    pub(super) manifest_pass: Option<Passphrase>,
    /// Why no manifest can be opened, where the list of sets cannot be read.
    pub(super) locked: Option<InfoFault>,
    /// Which sets are listed by now.
    pub(super) expiry: Arc<Expiry>,
    /// The sets by label, with what the list says of them.
    sets: BTreeMap<String, Listed>,
    /// The system identifiers of its clusters, by their numbers in the stanza's history.
    pub(super) systems: BTreeMap<u64, u64>,
    /// What is said of the list.
    steps: Vec<Step>,
}

/// What the list says of a set.
#[derive(Debug, Default)]
struct Listed {
    backup: Backup,
    repository_bytes: Option<u64>,
    /// The number of the cluster in the stanza's history, which is in the name of its log's folder.
    cluster: Option<u64>,
    /// The tool waited for the set's log.
    waited_for_log: bool,
}

/// The sets of a stanza that need one log.
#[derive(Debug, Default)]
pub(super) struct SetsOfLog {
    /// Oldest first.
    pub(super) sets: Vec<Arc<Backup>>,
    /// Each of them was called done when its log had been archived.
    pub(super) waited_for_log: bool,
}

impl Stanza {
    /// Reads a stanza's list of sets. What is wrong with it is kept for the report.
    pub(super) fn open(
        repository: &StorePath,
        folder: &StorePath,
        passphrase: Option<&Passphrase>,
    ) -> Self {
        let name = folder.name().unwrap_or_default().to_owned();
        let mut stanza = Self {
            shown: format!("backup/{name}"),
            name,
            folder: folder.clone(),
            repository: repository.clone(),
            manifest_pass: None,
            locked: None,
            expiry: Arc::new(Expiry::new(folder, passphrase)),
            sets: BTreeMap::new(),
            systems: BTreeMap::new(),
            steps: Vec::new(),
        };
        let opened = info::open(folder, INFO, passphrase);
        let shown = |name: &str| format!("{}/{name}", stanza.shown);
        let mut steps = Vec::new();
        if let Some((name, fault)) = &opened.other {
            steps.extend(info_step(&shown(name), fault, "the other one was used"));
        }
        let read = opened.file.and_then(|file| {
            file.read(&mut |section, key, value| match (section, key) {
                ("backup:current", label) if is_label(label) && stanza.sets.len() < SETS_MAX => {
                    stanza.sets.insert(label.to_owned(), listed(label, value));
                }
                ("backup:current", label) => {
                    let text = "a set with a name that no set has: it was not read";
                    steps.push(Step::Unread(Unread::of_file(label, text)));
                }
                ("db:history", number) => {
                    stanza.systems.extend(system_of(number, value, "db-system-id"));
                }
                ("cipher", "cipher-pass") => {
                    let pass = serde_json::from_str::<String>(value).ok();
                    stanza.manifest_pass = pass.map(Passphrase::new);
                }
                _ => {}
            })
        });
        if let Err(fault) = read {
            let text = "which sets there are is taken from their folders";
            steps.extend(info_step(&format!("{}/{INFO}", stanza.shown), &fault, text));
            stanza.sets.clear();
            stanza.expiry = Arc::new(Expiry::silent(folder));
            if matches!(fault, InfoFault::Locked | InfoFault::WrongKey) {
                stanza.locked = Some(fault);
            }
            for label in stanza.folders(&mut steps) {
                stanza.sets.insert(label, Listed::default());
            }
        } else {
            stanza.say_unlisted(opened.copy.as_ref(), passphrase, &mut steps);
        }
        stanza.steps = steps;
        stanza
    }

    /// Labels of sets, oldest first.
    pub(super) fn labels(&self) -> impl Iterator<Item = &str> {
        self.sets.keys().map(String::as_str)
    }

    /// True if it has a set of this label.
    pub(super) fn has(&self, label: &str) -> bool {
        self.sets.contains_key(label)
    }

    /// What the list says of a set.
    pub(super) fn listed(&self, label: &str) -> Option<&Backup> {
        self.sets.get(label).map(|listed| &listed.backup)
    }

    /// Bytes that a set itself takes in the repository.
    pub(super) fn repository_bytes(&self, label: &str) -> Option<u64> {
        self.sets.get(label).and_then(|listed| listed.repository_bytes)
    }

    /// The numbers of the clusters of which there are sets.
    pub(super) fn clusters(&self) -> BTreeSet<u64> {
        self.sets.values().filter_map(|listed| listed.cluster).collect()
    }

    /// The sets of the cluster with this number in the stanza's history.
    pub(super) fn sets_of_log(&self, cluster: u64) -> SetsOfLog {
        let of_cluster = self.sets.values().filter(|listed| listed.cluster == Some(cluster));
        SetsOfLog {
            waited_for_log: of_cluster.clone().all(|listed| listed.waited_for_log),
            sets: of_cluster.map(|listed| Arc::new(listed.backup.clone())).collect(),
        }
    }

    /// The path of a set's target.
    pub(super) fn target_path(&self, label: &str) -> PathBuf {
        path_of_set(self.repository.path(), label)
    }

    /// What is to be said of the list of sets.
    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Folders that are named as sets.
    fn folders(&self, steps: &mut Vec<Step>) -> Vec<String> {
        let entries = match self.folder.list() {
            Ok(entries) => entries,
            Err(error) => {
                steps.push(Step::Unread(Unread::of_file(&self.shown, error.to_string())));
                return Vec::new();
            }
        };
        let is_folder = |name: &str, seen| match seen {
            Seen::Other => self.folder.join(name).is_folder(),
            seen => seen == Seen::Folder,
        };
        let mut names: Vec<_> = entries
            .into_iter()
            .filter(|entry| is_label(&entry.name) && is_folder(&entry.name, entry.seen))
            .map(|entry| entry.name)
            .take(SETS_MAX)
            .collect();
        names.sort();
        names
    }

    /// Names the folders of sets that are not listed. A set has its manifest, not only the copy of it,
    /// once it is complete, and is listed at once then.
    fn say_unlisted(
        &self,
        copy: Option<&InfoFile>,
        passphrase: Option<&Passphrase>,
        steps: &mut Vec<Step>,
    ) {
        let mut unlisted = self.folders(steps);
        unlisted.retain(|label| !self.sets.contains_key(label));
        let is_complete = |label: &String| self.folder.join(label).join(MANIFEST).is_file();
        let complete: Vec<_> = unlisted.iter().filter(|label| is_complete(label)).collect();
        let (mut by_now, mut by_copy) = (BTreeSet::new(), BTreeSet::new());
        if !complete.is_empty() {
            // It may have been listed since the list was read. Where that fails, nothing is known.
            let read = info::read_again(&self.folder, INFO, passphrase, &mut add_to(&mut by_now));
            if read.is_err() {
                by_now.extend(unlisted.iter().cloned());
            }
            // Its sum was tested.
            let _ = copy.map(|copy| copy.read(&mut add_to(&mut by_copy)));
        }
        for label in &unlisted {
            let file = format!("{}/{label}", self.shown);
            if !complete.contains(&label) || by_now.contains(label) {
                let text =
                    "a backup that was not finished, or is being expired: not judged".to_owned();
                steps.push(Step::Note(Note { file, text }));
                continue;
            }
            let copy = if by_copy.contains(label) { ", but its copy does" } else { "" };
            let detail = format!(
                "a backup with a manifest, which it gets when it is complete, that {INFO} does not list{copy}: \
                 it was not judged. {INFO} is older than the set, or the tool was ended between the two, or is \
                 at work on it"
            );
            let finding = Finding::of_file(&file, Severity::Suspect, Kind::Missing, detail)
                .with_hint("check again; if it is still so, compare backup.info with its copy, or take a new full backup")
                .stored_at(stored(&format!("{}/{INFO}", self.shown)));
            steps.push(Step::Finding(finding));
        }
    }
}

/// Takes the sets that a list has.
fn add_to(labels: &mut BTreeSet<String>) -> impl FnMut(&str, &str, &str) + '_ {
    move |section, label, _| {
        if section == "backup:current" && is_label(label) && labels.len() < SETS_MAX {
            labels.insert(label.to_owned());
        }
    }
}

/// A cluster's number in a stanza's history, and its system identifier.
pub(super) fn system_of(number: &str, value: &str, key: &str) -> Option<(u64, u64)> {
    let cluster: Value = serde_json::from_str(value).ok()?;
    Some((number.parse().ok()?, cluster.get(key)?.as_u64()?))
}

fn listed(label: &str, value: &str) -> Listed {
    let value: Value = serde_json::from_str(value).unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    // The name of a segment begins with its timeline.
    let timeline = text("backup-archive-start").and_then(|segment| segment.get(..8));
    let time = |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).map(utc_seconds);
    let backup = Backup {
        tool: "pgBackRest",
        label: label.to_owned(),
        kind: kind_named(text("backup-type").unwrap_or_default()),
        prior: text("backup-prior").map(str::to_owned),
        stopped: number("backup-timestamp-stop").and_then(time),
        from_lsn: text("backup-lsn-start").and_then(Lsn::parse),
        to_lsn: text("backup-lsn-stop").and_then(Lsn::parse),
        timeline: timeline.and_then(|digits| u32::from_str_radix(digits, 16).ok()),
        ..Backup::default()
    };
    Listed {
        backup,
        repository_bytes: number("backup-info-repo-size-delta"),
        cluster: number("db-id"),
        waited_for_log: value.get("option-archive-check").and_then(Value::as_bool) != Some(false),
    }
}
