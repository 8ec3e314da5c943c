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

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::database::Step;
use crate::database::repository::{Backup, Lsn};
use crate::formats::postgres::files::backup::repository::pgbackrest::cipher::Passphrase;
use crate::formats::postgres::files::backup::repository::pgbackrest::info::{self, InfoFault};
use crate::formats::postgres::files::backup::repository::pgbackrest::manifest::{
    is_label, kind_named,
};
use crate::formats::postgres::files::backup::repository::pgbackrest::set::{
    info_step, path_of_set,
};
use crate::verdict::{Note, Unread};

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
    pub(super) folder: PathBuf,
    /// That folder's name in the repository: `backup/main`.
    pub(super) shown: String,
    /// The repository.
    repository: PathBuf,
    /// Opens manifests.
    pub(super) manifest_pass: Option<Passphrase>,
    /// Why no manifest can be opened, where the list of sets cannot be read.
    pub(super) locked: Option<InfoFault>,
    /// The sets by label, with what the list says of them.
    sets: BTreeMap<String, (Backup, Option<u64>)>,
    /// What is said of the list.
    steps: Vec<Step>,
}

impl Stanza {
    /// Reads a stanza's list of sets. What is wrong with it is kept for the report.
    pub(super) fn open(repository: &Path, folder: &Path, passphrase: Option<&Passphrase>) -> Self {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut stanza = Self {
            shown: format!("backup/{name}"),
            name,
            folder: folder.to_owned(),
            repository: repository.to_owned(),
            manifest_pass: None,
            locked: None,
            sets: BTreeMap::new(),
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
            if matches!(fault, InfoFault::Locked | InfoFault::WrongKey) {
                stanza.locked = Some(fault);
            }
            for label in stanza.folders(&mut steps) {
                stanza.sets.insert(label, (Backup::default(), None));
            }
        } else {
            stanza.note_unlisted(&mut steps);
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
        self.sets.get(label).map(|(backup, _)| backup)
    }

    /// Bytes that a set itself takes in the repository.
    pub(super) fn repository_bytes(&self, label: &str) -> Option<u64> {
        self.sets.get(label).and_then(|(_, bytes)| *bytes)
    }

    /// The path of a set's target.
    pub(super) fn target_path(&self, label: &str) -> PathBuf {
        path_of_set(&self.repository, label)
    }

    /// What is to be said of the list of sets.
    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Folders that are named as sets.
    fn folders(&self, steps: &mut Vec<Step>) -> Vec<String> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                steps.push(Step::Unread(Unread::of_file(&self.shown, error.to_string())));
                return Vec::new();
            }
        };
        let names = entries.flatten().filter(|entry| entry.path().is_dir());
        let mut names: Vec<_> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_label(name))
            .take(SETS_MAX)
            .collect();
        names.sort();
        names
    }

    fn note_unlisted(&self, steps: &mut Vec<Step>) {
        for label in self.folders(steps) {
            if !self.sets.contains_key(&label) {
                let text = "a backup that was not finished, or is being expired: not judged";
                let file = format!("{}/{label}", self.shown);
                steps.push(Step::Note(Note { file, text: text.to_owned() }));
            }
        }
    }
}

/// What the list says of a set.
fn listed(label: &str, value: &str) -> (Backup, Option<u64>) {
    let value: Value = serde_json::from_str(value).unwrap_or_default();
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let backup = Backup {
        tool: "pgBackRest",
        label: label.to_owned(),
        kind: kind_named(text("backup-type").unwrap_or_default()),
        prior: text("backup-prior").map(str::to_owned),
        from_lsn: text("backup-lsn-start").and_then(Lsn::parse),
        to_lsn: text("backup-lsn-stop").and_then(Lsn::parse),
        ..Backup::default()
    };
    (backup, value.get("backup-info-repo-size-delta").and_then(Value::as_u64))
}
