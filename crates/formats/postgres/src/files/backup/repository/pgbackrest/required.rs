//! Files that a cluster needs, and that a manifest does not list: one that was edited, or a set that was
//! made of an incomplete cluster. Whether listed files are there is asked when they are read.

use crate::files::backup::repository::pgbackrest::manifest::Manifest;
use pagewarden_core::verdict::{Finding, Kind, Severity};

/// Findings past which the others are not said one by one.
const FINDINGS_MAX: usize = 100;

/// Folders in which at least one file lies in every cluster, before and after 10.
const NEVER_EMPTY: [[&str; 2]; 2] =
    [["pg_xact", "pg_clog"], ["pg_multixact/offsets", "pg_multixact/offsets"]];

/// What a cluster lacks by the names in the manifest.
pub(super) fn lacks(manifest: &Manifest) -> Vec<Finding> {
    let names = &manifest.names;
    let mut missing: Vec<String> = Vec::new();
    let label = manifest.is_online.then_some("backup_label");
    // Of a data directory without a control file it is said where its files end.
    let is_root = names.small.contains("PG_VERSION") || names.small.contains("backup_label");
    let control = (!is_root).then_some("global/pg_control");
    let all = ["PG_VERSION", "global/pg_filenode.map"].into_iter().chain(control).chain(label);
    for name in all {
        if !names.small.contains(name) {
            missing.push(name.to_owned());
        }
    }
    for folder in &names.databases {
        for name in ["PG_VERSION", "pg_filenode.map"] {
            let name = format!("{folder}/{name}");
            if !names.small.contains(&name) {
                missing.push(name);
            }
        }
    }
    for folders in NEVER_EMPTY {
        if !folders.iter().any(|folder| names.folders.contains(*folder)) {
            missing.push(folders.first().copied().unwrap_or_default().to_owned());
        }
    }
    missing
        .into_iter()
        .take(FINDINGS_MAX)
        .map(|name| {
            let detail = "the manifest does not list it, and no server starts without it";
            Finding::of_file(&name, Severity::Damage, Kind::Missing, detail.to_owned())
                .with_hint("restore from another set, and take a new full backup")
        })
        .collect()
}
