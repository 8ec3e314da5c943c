//! What a backup tool's set must have, whatever else is in it: without these files no server starts, or
//! it starts from the wrong place. A set whose files are all seen is asked for them at its end.

use std::collections::{BTreeSet, HashSet};

use crate::files::backup::label::LABEL;
use pagewarden_core::verdict::{Finding, Kind, Severity};

const ALWAYS: [&str; 2] = ["PG_VERSION", "global/pg_filenode.map"];
/// In the folder of each database.
const IN_DATABASE: [&str; 2] = ["PG_VERSION", "pg_filenode.map"];
/// Folders in which at least one file lies in every cluster, before and after 10.
const NEVER_EMPTY: [[&str; 2]; 2] =
    [["pg_xact/", "pg_clog/"], ["pg_multixact/offsets/", "pg_multixact/offsets/"]];
/// Databases past which no more are remembered.
const DATABASES_MAX: usize = 100_000;
const HINT: &str = "restore from another set, and take a new full backup";

/// The names that were seen.
#[derive(Debug, Default)]
pub(super) struct Needed {
    seen: HashSet<String>,
    databases: BTreeSet<String>,
    folders: [bool; NEVER_EMPTY.len()],
}

impl Needed {
    /// A file of the set, by its path below the data directory.
    pub(super) fn see(&mut self, name: &str, bytes: u64) {
        let name = name.trim_start_matches("./").trim_start_matches('/');
        if bytes == 0 {
            return;
        }
        for (seen, names) in self.folders.iter_mut().zip(NEVER_EMPTY) {
            *seen |= names.iter().any(|folder| name.starts_with(folder));
        }
        let database = name.strip_prefix("base/").and_then(|rest| rest.split_once('/'));
        let Some((oid, file)) = database else {
            if ALWAYS.contains(&name) || name == LABEL {
                self.seen.insert(name.to_owned());
            }
            return;
        };
        let is_database = oid.bytes().all(|digit| digit.is_ascii_digit());
        if is_database && self.databases.len() < DATABASES_MAX {
            self.databases.insert(oid.to_owned());
            if IN_DATABASE.contains(&file) {
                self.seen.insert(name.to_owned());
            }
        }
    }

    /// What was not among them.
    pub(super) fn lacks(&self) -> Vec<Finding> {
        let always = ALWAYS.iter().chain([&LABEL]).map(|name| (*name).to_owned());
        let in_databases = self
            .databases
            .iter()
            .flat_map(|oid| IN_DATABASE.iter().map(move |name| format!("base/{oid}/{name}")));
        let no_database = self.databases.is_empty().then(|| "base".to_owned());
        let folders = self.folders.iter().zip(NEVER_EMPTY).filter(|(seen, _)| !**seen);
        let folders = folders.map(|(_, [name, _])| name.trim_end_matches('/').to_owned());
        let missing = always.chain(in_databases).filter(|name| !self.seen.contains(name));
        let missing = missing.chain(no_database).chain(folders).map(|name| {
            let detail = match name.as_str() {
                LABEL => {
                    "the set has none: a server would not replay the log from where the backup began"
                }
                _ => "the set has none, or an empty one: no server starts without it",
            };
            Finding::of_file(&name, Severity::Damage, Kind::Missing, detail.to_owned())
                .with_hint(HINT)
        });
        missing.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: [&str; 8] = [
        "./PG_VERSION",
        "/global/pg_filenode.map",
        "backup_label",
        "base/1/PG_VERSION",
        "base/1/pg_filenode.map",
        "base/1/1259",
        "pg_clog/0000",
        "pg_multixact/offsets/0000",
    ];

    #[test]
    fn each_file_that_a_server_needs_is_missed() {
        let without = |left_out: Option<usize>| {
            let mut needed = Needed::default();
            for (at, name) in WHOLE.into_iter().enumerate() {
                needed.see(name, u64::from(Some(at) != left_out));
            }
            let lacks = needed.lacks();
            lacks.into_iter().map(|finding| finding.place.file).collect::<Vec<_>>()
        };
        assert!(without(None).is_empty());
        let expected = [
            "PG_VERSION",
            "global/pg_filenode.map",
            "backup_label",
            "base/1/PG_VERSION",
            "base/1/pg_filenode.map",
            "",
            "pg_xact",
            "pg_multixact/offsets",
        ];
        for (at, name) in expected.into_iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            assert_eq!(without(Some(at)), [name]);
        }
        assert_eq!(Needed::default().lacks().len(), 6);
    }
}
