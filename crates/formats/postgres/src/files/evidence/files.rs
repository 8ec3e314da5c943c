//! Which files must be there, and which belong to no relation.

use std::path::Path;

use crate::files::catalogue::pages::GapReason;
use crate::files::catalogue::relations::{Certainty, Relation, RelationKind, Relations};
use crate::files::catalogue::{Database, Databases};
use crate::files::evidence::names::oid_of;
use crate::files::names::{Fork, RelationFile};
use crate::files::witness::Method;
use pagewarden_core::verdict::{Finding, Kind, Severity};

/// Relations that a catalogue lists and that have no file in this folder, as
/// findings without a place. `files` are those of the folder, in order.
pub(in crate::files) fn missing(
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
            Some((_, 0)) if has_first_page(required.relation, logs_hash_indexes) => {
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

/// Why the catalogues of a database, or of the whole cluster, could not be asked which
/// files must be there; `None` if they could. Pages that fail, that are all zero or that
/// are cut are judged with all other pages, as long as the catalogue lists itself.
pub(in crate::files) fn silence(relations: &Relations, is_shared: bool) -> Option<String> {
    const PG_CLASS: u32 = 1259;
    const PG_DATABASE: u32 = 1262;
    let own = if is_shared { PG_DATABASE } else { PG_CLASS };
    let grave =
        relations.gaps.listed.iter().find(|gap| {
            !matches!(gap.reason, GapReason::Failing | GapReason::Empty | GapReason::Cut)
        });
    let why = match grave {
        Some(gap) => gap.to_string(),
        None if relations.by_oid(own).is_none() => {
            format!("no row of pg_class that can be read lists the relation with oid {own}")
        }
        None => return None,
    };
    Some(format!(
        "the catalogues cannot be read as a whole, so that missing files and lost pages could not be found: {why}"
    ))
}

/// True if the first page was written when the relation was made, and is never
/// emptied. Not of an index whose build failed, which is listed with an empty
/// file; nor of one of a foreign method, which may keep its entries elsewhere. A
/// hash index that is not in the log may have lost any page in a crash.
pub(in crate::files) fn has_first_page(relation: &Relation, logs_hash_indexes: bool) -> bool {
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
pub(in crate::files) fn orphans(
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
pub(in crate::files) fn missing_folders(
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

/// Folders of a database in tablespaces other than its own, which its relations say must be
/// there, and are not. `folder_of` names that of a tablespace.
pub(in crate::files) fn missing_in_tablespaces(
    database: &Database,
    relations: &Relations,
    folder_of: impl Fn(u32) -> std::path::PathBuf,
) -> Vec<(std::path::PathBuf, Finding)> {
    let required = relations.required().filter(|one| one.certainty == Certainty::Certain);
    let mut used: Vec<u32> = required.map(|one| one.relation.tablespace).collect();
    used.sort_unstable();
    used.dedup();
    let others = used.into_iter().filter(|tablespace| *tablespace != database.tablespace);
    let gone = |path: &Path| {
        // A tablespace that cannot be reached is unread as a whole.
        let above = path.parent().is_some_and(Path::is_dir);
        above && std::fs::symlink_metadata(path).is_err()
    };
    let missing = others.map(folder_of).filter(|path| gone(path));
    missing
        .map(|path| {
            let detail = "pg_class lists relations of this database in this tablespace, and their folder is not there";
            let mut finding =
                Finding::of_file("", Severity::Damage, Kind::Missing, detail.to_owned());
            finding.database = Some(database.name.clone());
            (path, finding)
        })
        .collect()
}

/// True if a catalogue without gaps does not list this file, or as that of an
/// index whose build was broken off: a crash may have left either half written.
pub(in crate::files) fn is_orphan(
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
pub(in crate::files) fn is_main(file: RelationFile) -> bool {
    file.fork == Fork::Main && file.session.is_none() && !file.is_incremental
}
