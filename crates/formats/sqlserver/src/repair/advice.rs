//! What a server does itself: the statements that restore the damaged pages from the backups that
//! were given, to be pasted.
//!
//! A server restores no single page of these kinds: file headers, the boot page, and allocation pages.
//! Source: "Restore Pages" in the documentation of SQL Server.

use crate::files::backup::SetKind;
use crate::files::backup::contents::{BackupSet, restore_pages};
use crate::page::diff_map::is_beyond_the_map;
use crate::repair::database::Database;
use crate::repair::source::Source;
use pagewarden_core::repair::Planned;

/// One warning for all pages that can be restored singly, and one for those that cannot.
pub(super) fn of(
    database: &Database,
    planned: &[Planned],
    sets: &[BackupSet],
    sources: &[Source],
) -> Vec<String> {
    let (mut pages, mut others, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for one in planned {
        let file = database.named(&one.page.file).map(|file| file.number);
        let (Some(file), Some(number), false) = (file, one.page.page, one.old.is_empty()) else {
            continue;
        };
        let name = format!("{file}:{number}");
        if is_beyond_the_map(file, number) {
            others.push(name);
        } else {
            pages.push(name);
            ids.push((file, number));
        }
    }
    // A backup that was made when the page was damaged already would bring the damage back.
    let is_usable = |set: &&BackupSet| {
        let mut own = sources.iter().filter(|source| source.is_set(set));
        own.all(|source| {
            let has_all = || ids.iter().all(|id| source.page(*id).is_some());
            let is_there = set.kind() != SetKind::Full || has_all();
            is_there && !ids.iter().any(|id| source.is_damaged(*id))
        })
    };
    let sets: Vec<BackupSet> = sets.iter().filter(is_usable).cloned().collect();
    let of_a_backup = || sets.first().map(|set| set.configuration().database.clone());
    let name = database.name().map(str::to_owned).or_else(of_a_backup);
    let statements = name.map(|name| restore_pages(&sets, &name, &pages)).unwrap_or_default();
    let mut advice = Vec::new();
    if !statements.is_empty() {
        advice.push(format!(
            "under the full or bulk-logged recovery model, a server restores these pages itself and loses no \
             change: {}",
            statements.join(" ")
        ));
    }
    if !others.is_empty() {
        advice.push(format!(
            "a server restores no file header, boot page, free space or allocation map singly: what is wrong \
             with {} needs a restore of the database",
            others.join(", ")
        ));
    }
    advice
}
