//! Which files must be there, and which belong to nobody.

use std::path::Path;

use crate::target::postgres::catalogue::relations::{Certainty, Relation, RelationKind, Relations};
use crate::target::postgres::catalogue::{Database, Databases};
use crate::target::postgres::evidence::names::oid_of;
use crate::target::postgres::names::{Fork, RelationFile};
use crate::target::postgres::witness::Method;
use crate::verdict::{Finding, Kind, Severity};

/// Relations that a catalogue lists and that have no file in this folder, as
/// findings without a place. `files` are those of the folder, in order.
pub(in crate::target::postgres) fn missing(
    relations: &Relations,
    tablespace: u32,
    database: Option<u32>,
    files: &[(RelationFile, u64)],
    logs_hash_indexes: bool,
) -> Vec<(RelationFile, Finding)> {
    let place = oid_of(tablespace, database);
    let mut missing = Vec::new();
    for required in relations.required() {
        if required.relation.tablespace != place || required.certainty != Certainty::Certain {
            continue;
        }
        let file = RelationFile {
            number: required.relation.number,
            session: None,
            fork: required.fork,
            segment: 0,
            is_incremental: false,
        };
        let found = files.binary_search_by_key(&file, |(file, _)| *file);
        let (kind, detail) = match found.ok().and_then(|index| files.get(index)) {
            None => (Kind::Missing, "pg_class lists it, and the file is not there".to_owned()),
            Some((_, 0))
                if has_first_page(required.relation, logs_hash_indexes)
                    && !required.may_be_reset =>
            {
                (Kind::Truncated, "the file is empty, and must hold a first page".to_owned())
            }
            Some(_) => continue,
        };
        // Made anew at the end of every recovery.
        let severity = if required.may_be_reset { Severity::Suspect } else { Severity::Damage };
        let mut finding = Finding::of_file("", severity, kind, detail);
        finding.object = Some(relations.name(required.relation));
        missing.push((file, finding));
    }
    missing
}

/// True if the first page was written when the relation was made, and is never
/// emptied. Not of an index whose build failed, which is listed with an empty
/// file; nor of one of a foreign method, which may keep its entries elsewhere. A
/// hash index that is not in the log may have lost any page in a crash.
pub(in crate::target::postgres) fn has_first_page(
    relation: &Relation,
    logs_hash_indexes: bool,
) -> bool {
    match (relation.kind, Method::by_oid(relation.method)) {
        (RelationKind::Sequence, _) => true,
        (RelationKind::Index, Some(method)) => {
            relation.is_complete_index && (method != Method::Hash || logs_hash_indexes)
        }
        _ => false,
    }
}

/// Files of a folder that no catalogue lists: how many, their bytes, and one of
/// them. A crash leaves such files behind.
pub(in crate::target::postgres) fn orphans(
    relations: &Relations,
    tablespace: u32,
    database: Option<u32>,
    files: &[(RelationFile, u64)],
) -> Option<(u64, u64, RelationFile)> {
    if !relations.gaps.is_empty() {
        return None;
    }
    let place = oid_of(tablespace, database);
    let mut found: Option<(u64, u64, RelationFile)> = None;
    for (file, length) in files {
        if file.session.is_some() || relations.by_file(place, file.number).is_some() {
            continue;
        }
        let (count, bytes, _) = found.get_or_insert((0, 0, *file));
        *count = count.saturating_add(1);
        *bytes = bytes.saturating_add(*length);
    }
    found
}

/// Databases whose folder is not there, by their names: `base/16384`.
pub(in crate::target::postgres) fn missing_folders(
    databases: &Databases,
    folder_of: impl Fn(&Database) -> std::path::PathBuf,
) -> Vec<(std::path::PathBuf, Finding)> {
    let certain = |database: &&Database| {
        database.certainty == Certainty::Certain && !database.is_half_dropped
    };
    let gone = |path: &Path| {
        let above = path.parent().is_some_and(Path::is_dir);
        above && std::fs::symlink_metadata(path).is_err()
    };
    databases
        .listed
        .iter()
        .filter(certain)
        .map(|database| (folder_of(database), database))
        .filter(|(path, _)| gone(path))
        .map(|(path, database)| {
            let detail = "pg_database lists this database, and its folder is not there".to_owned();
            let mut finding = Finding::of_file("", Severity::Damage, Kind::Missing, detail);
            finding.database = Some(database.name.clone());
            (path, finding)
        })
        .collect()
}

/// True if a catalogue without gaps does not list this file, or as that of an
/// index whose build was broken off: a crash may have left either half written.
pub(in crate::target::postgres) fn is_orphan(
    relations: &Relations,
    tablespace: u32,
    database: Option<u32>,
    file: RelationFile,
) -> bool {
    let relation = relations.by_file(oid_of(tablespace, database), file.number);
    let is_unfinished =
        relation.is_none_or(|one| one.kind == RelationKind::Index && !one.is_complete_index);
    relations.gaps.is_empty() && is_unfinished
}

/// The forks that may vouch for one another.
pub(in crate::target::postgres) fn is_main(file: RelationFile) -> bool {
    file.fork == Fork::Main && file.session.is_none() && !file.is_incremental
}
