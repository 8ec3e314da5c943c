//! What a data directory needs beside the files that are in it: a server that lacks one of these
//! does not start, or loses something, and no page tells.
//!
//! | what | told by | if it is not here |
//! | --- | --- | --- |
//! | the system tablespace | there are tablespaces, or a log | unread: it may lie where only the server's options say |
//! | the log | there is a system tablespace, and no label of a backup | unread, likewise |
//! | all files of the log | their sizes and LSNs | missing, or truncated: see `redo::gaps` |
//! | `mysql.ibd` | MySQL 8.0 or later | missing: it is never elsewhere |
//! | `aria_log_control` | there are logs of Aria | missing: see `aria_control` |
//! | `mysql` | other files of a server, before MySQL 8.0 | missing |
//! | tables' files | `SYS_TABLES` in `ibdata1`, or the dictionary: see `absent` | missing |
//! | definitions of tables, before MySQL 8.0 | see `frm` | missing |
//! | both files of a MyISAM table | each other: see `myisam` | missing |
//! | undo tablespaces | page 5 of `ibdata1` (MariaDB, MySQL up to 5.7), the dictionary (later) | missing where the others are here; else unread |
//!
//! These, and undo tablespaces, are asked for after a clean shutdown only, files of the log after a crash
//! too. Those that MySQL makes anew when
//! they are lost, with what was in them, are missing all the same.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::absent::{self, Present};
use crate::files::doublewrite::TRANSACTION_PAGE;
use crate::files::places::Places;
use crate::files::redo::{self, MYSQL_FOLDER, NoLog, creator, gaps, newest_checkpoint};
use crate::files::state::{Circumstances, State, is_in_use};
use crate::files::tables::Keys;
use crate::files::tablespace::{Context, open_file};
use crate::files::{aria_control, dictionary, frm, myisam, tables};
use crate::page::Look;
use crate::page::encryption::Keyring;
use crate::page::fields::{BODY, read_u32};
use crate::page::layout::Writer;
use pagewarden_core::database::Step;
use pagewarden_core::source::file::{open_regular, read_fully};
use pagewarden_core::verdict::{Finding, Kind, Note, Severity, Unread};

const HINT: &str = "the server does not start without it, or loses what was in it: look for the file \
                    before anything else, or restore the directory from a backup";
/// Where page 5 names the rollback segments: tablespace and page of each.
const SEGMENTS: usize = BODY + 18;
const SEGMENT_BYTES: usize = 8;
const SEGMENTS_COUNT: usize = 128;
/// Segments before this one may be those of temporary tables.
const TEMPORARY_END: usize = 33;
const NONE: u32 = u32::MAX;
/// From here on MariaDB leaves no table half made when it is killed.
const FIRST_ATOMIC: (u32, u32) = (10, 6);

/// What a walk saw on its way.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// A file of the system tablespace, in any form.
    pub(super) has_system: bool,
    /// A tablespace in the folder of a database.
    pub(super) has_tables: bool,
    /// A tablespace that is none of the system's.
    pub(super) has_tablespaces: bool,
    /// A table of Aria.
    pub(super) has_aria: bool,
    /// Undo tablespaces by their files' names, with their numbers.
    pub(super) undo: Vec<(String, Option<u32>)>,
    /// The numbers of tablespaces by their files' names.
    pub(super) numbers: HashMap<Box<str>, u32>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Books {
    root: PathBuf,
    /// What an options file says.
    pub(super) places: Places,
    pub(super) seen: Seen,
    circumstances: Circumstances,
    has_no_log: bool,
    is_backup: bool,
    checkpoint: Option<u64>,
    /// The size of the pages of the system tablespace.
    page_bytes: u64,
    /// The keys that were given.
    keyring: Option<Arc<Keyring>>,
}

impl Books {
    /// Of a data directory that is about to be walked through.
    pub(super) fn new(
        root: &Path,
        state: &State,
        page_bytes: u64,
        keyring: Option<Arc<Keyring>>,
    ) -> Self {
        Self {
            root: root.to_owned(),
            places: Places::of(root),
            seen: Seen::default(),
            circumstances: state.circumstances,
            has_no_log: matches!(state.no_log, Some(NoLog::Missing)),
            is_backup: state.label.is_some(),
            checkpoint: state.log.as_ref().map(|log| log.checkpoint),
            page_bytes,
            keyring,
        }
    }

    fn keys(&self) -> Keys<'_> {
        self.keyring.as_ref()
    }

    /// True where two files with one number keep the server from starting: MySQL from 8.0 on looks for
    /// that before anything else.
    pub(super) fn needs_numbers_once(&self) -> bool {
        self.circumstances.is_settled() && is_of_mysql8(&self.root)
    }

    /// Of two files with this number the one that is no table's, where the dictionary says so and the
    /// server goes by it: MariaDB from 10.2 on, which opens tables by their names.
    pub(super) fn stray<'a>(&self, space: u32, files: [&'a str; 2]) -> Option<&'a str> {
        const FIRST_BY_NAME: (u32, u32) = (10, 2);
        let creator = creator(&self.root).unwrap_or_default();
        if !self.circumstances.is_settled() || mariadb_version(&creator) < Some(FIRST_BY_NAME) {
            return None;
        }
        let named =
            tables::named(self.places.system.as_deref().unwrap_or(&self.root), self.keys()).ok()?;
        let number_of = |file: &str| named.iter().find(|one| one.file == file).map(|one| one.space);
        let [one, other] = files;
        match [number_of(one), number_of(other)] {
            [Some(Some(number)), None] if number == space => Some(other),
            [None, Some(Some(number))] if number == space => Some(one),
            _ => None,
        }
    }

    /// What is not here. `spaces` are the numbers of the tablespaces that are.
    pub(super) fn steps(&self, spaces: &HashMap<u32, Box<str>>) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.is_data_directory() {
            let text = "a part of a data directory: what belongs to it lies elsewhere, and was not \
                        looked at";
            steps.push(Step::Note(Note { file: String::new(), text: text.to_owned() }));
            return steps;
        }
        let has_innodb = self.seen.has_tablespaces || redo::is_here(&self.root);
        if !self.seen.has_system && has_innodb {
            let error = "the system tablespace is not here, and no options file in or beside this \
                         directory says where it is (innodb_data_home_dir): it was not checked";
            steps.push(Step::Unread(Unread::of_file("ibdata1", error)));
        }
        let is_mysql8 = is_of_mysql8(&self.root);
        if self.has_no_log && self.seen.has_system && !self.is_backup {
            let file = if is_mysql8 { MYSQL_FOLDER } else { "ib_logfile0" };
            let error = "the redo log is not here, and no options file in or beside this directory \
                         says where it is (innodb_log_group_home_dir): without it nothing tells \
                         whether the server was shut down, and most versions do not start";
            steps.push(Step::Unread(Unread::of_file(file, error)));
        }
        steps.extend(self.dictionary().filter(|_| is_mysql8));
        if self.circumstances.is_settled() {
            match is_mysql8 {
                true => self.undo_by_dictionary(&mut steps),
                false => self.undo_by_system(spaces, &mut steps),
            }
            steps.extend(self.after_shutdown(spaces, is_mysql8));
        } else if self.circumstances == Circumstances::Crashed && !self.is_backup {
            // A log that lacks a file looks like one that has not been applied.
            steps.extend(self.gap_in_log());
        }
        steps
    }

    fn gap_in_log(&self) -> Option<Step> {
        let gap = gaps::find(&self.root, self.page_bytes)?;
        let severity = match self.circumstances.is_settled() || !gap.may_be_healthy {
            true => Severity::Damage,
            false => Severity::Suspect,
        };
        let finding = Finding::of_file(&gap.name, severity, gap.kind, gap.detail);
        Some(Step::Finding(finding.with_hint(HINT)))
    }

    /// What a server that was shut down left. Nothing of a directory that one came to life on
    /// meanwhile.
    fn after_shutdown(&self, spaces: &HashMap<u32, Box<str>>, is_mysql8: bool) -> Vec<Step> {
        let mut steps = self.tables(spaces, is_mysql8);
        // A copy may lack what the next server makes anew.
        if !self.is_backup {
            steps.extend(aria_control::step(&self.root, self.seen.has_aria));
            steps.extend(self.gap_in_log());
            steps.extend(self.server_folder().filter(|_| !is_mysql8));
        }
        let now = newest_checkpoint(&self.root);
        let is_as_it_was = now.is_none() || self.checkpoint.is_none() || now == self.checkpoint;
        match is_as_it_was && !is_in_use(&self.root) {
            true => steps,
            false => Vec::new(),
        }
    }

    /// The folder of a server's own tables, where others of its files show that it had one.
    fn server_folder(&self) -> Option<Step> {
        const NAME: &str = "mysql";
        const FILES: [&str; 3] = ["aria_log_control", "mysql_upgrade_info", "mariadb_upgrade_info"];
        let path = self.root.join(NAME);
        // A link that leads nowhere was told already.
        let is_here = path.try_exists().unwrap_or(true) || path.is_symlink();
        let had_server = self.root.join("performance_schema").is_dir()
            || FILES.iter().any(|name| self.root.join(name).is_file());
        let detail = "the folder of the server's own tables (accounts, privileges) is not here";
        (self.seen.has_system && had_server && !is_here)
            .then(|| missing(NAME, Severity::Damage, detail.to_owned()))
    }

    /// The files of tables.
    fn tables(&self, spaces: &HashMap<u32, Box<str>>, is_mysql8: bool) -> Vec<Step> {
        let system = self.places.system.as_deref().unwrap_or(&self.root);
        let (dictionary, folder) = match is_mysql8 {
            true => ("mysql.ibd", self.root.as_path()),
            false => ("ibdata1", system),
        };
        // Without its file it was told already.
        if !folder.join(dictionary).is_file() {
            return Vec::new();
        }
        let named = match is_mysql8 {
            true => dictionary::named(folder, self.keys()),
            false => tables::named(folder, self.keys()),
        };
        let definitions = if is_mysql8 || absent::is_partial(&self.root) {
            Vec::new()
        } else {
            let creator = creator(&self.root).unwrap_or_default();
            let is_atomic = mariadb_version(&creator) >= Some(FIRST_ATOMIC);
            frm::steps(
                &self.root,
                &tables::names(folder, self.keys()).unwrap_or_default(),
                is_atomic,
            )
        };
        let present = Present { root: &self.root, numbers: &self.seen.numbers, spaces };
        let newest = if is_mysql8 { tables::newest_space(system, self.keys()).ok() } else { None };
        let older = newest.zip(named.as_ref().ok());
        let older = older.and_then(|(newest, named)| absent::older_system(&present, named, newest));
        let mut steps = absent::steps(&present, dictionary, named);
        steps.extend(older);
        steps.extend(definitions);
        steps.extend(myisam::steps(&self.root));
        steps
    }

    /// Not just a folder with the log, or with the system or undo tablespaces, that lies apart.
    fn is_data_directory(&self) -> bool {
        const FOLDERS: [&str; 3] = ["mysql", "performance_schema", "sys"];
        const FILES: [&str; 5] = [
            "auto.cnf",
            "mysql.ibd",
            "mysql_upgrade_info",
            "mariadb_upgrade_info",
            "aria_log_control",
        ];
        self.seen.has_tables
            || self.is_backup
            || FOLDERS.iter().any(|name| self.root.join(name).is_dir())
            || FILES.iter().any(|name| self.root.join(name).is_file())
    }

    fn dictionary(&self) -> Option<Step> {
        let mut names = std::fs::read_dir(&self.root).ok()?.flatten();
        // Packed, or its changed pages, in a backup.
        let is_here =
            names.any(|entry| entry.file_name().to_string_lossy().starts_with("mysql.ibd"));
        let severity = match self.circumstances {
            Circumstances::Backup => Severity::Suspect,
            _ => Severity::Damage,
        };
        let is_complete = self.root.join("performance_schema").is_dir() || self.seen.has_tables;
        let detail = "the data dictionary, which MySQL 8.0 and later keep here, is not here";
        (!is_here && is_complete).then(|| missing("mysql.ibd", severity, detail.to_owned()))
    }

    fn undo_by_dictionary(&self, steps: &mut Vec<Step>) {
        for name in dictionary::undo_files(&self.root, self.keys()).unwrap_or_default() {
            let own = self.root.join(name.trim_start_matches("./"));
            let last = name.rsplit('/').next().unwrap_or(&name);
            let other = self.places.undo.as_ref().map(|place| place.join(last));
            // Of a copy, the dictionary still names the original's place.
            if self.root.join(last).exists() {
                continue;
            }
            let shown = name.trim_start_matches("./");
            let is_there = own.exists();
            if is_there || other.is_some_and(|other| other.exists()) {
                continue;
            }
            let is_reachable = own.parent().is_some_and(Path::is_dir);
            if is_reachable {
                let detail = "an undo tablespace that the data dictionary names is not here";
                steps.push(missing(shown, Severity::Damage, detail.to_owned()));
            } else {
                let error = "an undo tablespace that the data dictionary names: its folder cannot be \
                             reached";
                steps.push(Step::Unread(Unread::of_file(shown, error)));
            }
        }
    }

    fn undo_by_system(&self, spaces: &HashMap<u32, Box<str>>, steps: &mut Vec<Step>) {
        let undo = &self.seen.undo;
        steps.extend(out_of_row(undo));
        // One whose number is not known may be any of them.
        if undo.iter().any(|(_, space)| space.is_none()) {
            return;
        }
        let place = self.places.system.as_deref().unwrap_or(&self.root);
        let creator = creator(&self.root).unwrap_or_default();
        let named = spaces_of_segments(&place.join("ibdata1"), &creator).unwrap_or_default();
        for space in named.into_iter().filter(|space| !spaces.contains_key(space)) {
            let detail = format!(
                "page {TRANSACTION_PAGE} of ibdata1 names rollback segments in tablespace {space}, \
                 which is not here"
            );
            match name_by_number(undo, space) {
                Some(name) => steps.push(missing(&name, Severity::Damage, detail)),
                None => {
                    let error = format!("{detail}: innodb_undo_directory says where it is");
                    steps.push(Step::Unread(Unread::of_file(format!("undo{space:03}"), error)));
                }
            }
        }
    }
}

fn missing(file: &str, severity: Severity, detail: String) -> Step {
    Step::Finding(Finding::of_file(file, severity, Kind::Missing, detail).with_hint(HINT))
}

/// True of the directory of a MySQL with a dictionary in a tablespace.
fn is_of_mysql8(root: &Path) -> bool {
    const FIRST: u32 = 8;
    let creator = creator(root).unwrap_or_default();
    let version = creator.strip_prefix("MySQL ").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    root.join(MYSQL_FOLDER).is_dir()
        || version.starts_with("Clone")
        || major.is_some_and(|major| major >= FIRST)
        || root.join("mysql.ibd").is_file()
}

/// True where segments of temporary tables may be named on page 5: by MySQL 5.7, and by MariaDB before
/// it kept them out of there.
fn may_name_temporary(creator: &str) -> bool {
    const FIRST_WITHOUT: (u32, u32) = (10, 5);
    mariadb_version(creator).is_none_or(|version| version < FIRST_WITHOUT)
}

/// The version of MariaDB that wrote a log, or of its program for backups.
fn mariadb_version(creator: &str) -> Option<(u32, u32)> {
    let version = creator.strip_prefix("MariaDB ").or_else(|| creator.strip_prefix("Backup "));
    let mut parts = version?.split('.').map(|part| part.parse::<u32>().ok());
    parts.next().flatten().zip(parts.next().flatten())
}

/// The tablespaces of the rollback segments, but the system's own.
fn spaces_of_segments(path: &Path, creator: &str) -> Option<BTreeSet<u32>> {
    let opened = open_file(path, Context::alone("ibdata1".to_owned())).ok()?;
    let layout = opened.geometry.layout;
    if layout.writer == Some(Writer::MySql8) {
        return None;
    }
    let mut page = vec![0; layout.page_size];
    let offset = TRANSACTION_PAGE.checked_mul(u64::try_from(page.len()).ok()?)?;
    let count = read_fully(&open_regular(path).ok()?, &mut page, offset).ok()?;
    let look = opened.pages.look(TRANSACTION_PAGE, &page, None);
    if count < page.len() || !matches!(look, Look::Sound(..)) {
        return None;
    }
    let slots = page.get(SEGMENTS..)?.chunks_exact(SEGMENT_BYTES).take(SEGMENTS_COUNT);
    let skipped = if may_name_temporary(creator) { TEMPORARY_END } else { 0 };
    let slots = slots.skip(skipped);
    let used = slots.map(|slot| (read_u32(slot, 0), read_u32(slot, 4)));
    Some(
        used.filter(|slot| slot.0 != 0 && slot.0 != NONE && slot.1 != NONE)
            .map(|it| it.0)
            .collect(),
    )
}

/// Undo tablespaces that were exchanged: a server numbers them in a row, and does not start on others.
fn out_of_row(undo: &[(String, Option<u32>)]) -> Vec<Step> {
    let mut row: Vec<(u32, u32, &str)> = undo
        .iter()
        .filter_map(|(name, space)| {
            Some((name.strip_prefix("undo")?.parse().ok()?, (*space)?, &**name))
        })
        .collect();
    row.sort_unstable();
    let pairs = row.windows(2).filter_map(|pair| match pair {
        [before, after] => Some((*before, *after)),
        _ => None,
    });
    let wrong = pairs.filter(|(before, after)| {
        before.0.checked_add(1) == Some(after.0) && before.1.checked_add(1) != Some(after.1)
    });
    let told = wrong.map(|((_, space_before, name_before), (_, space, name))| {
        let detail = format!(
            "its tablespace number is {space}, and that of {name_before} is {space_before}: a server \
             numbers them in a row, so files were exchanged"
        );
        Step::Finding(Finding::of_file(name, Severity::Damage, Kind::Misplaced, detail).with_hint(HINT))
    });
    told.collect()
}

/// The name of the file beside these that has this number: they are numbered in a row.
fn name_by_number(undo: &[(String, Option<u32>)], space: u32) -> Option<String> {
    undo.iter().find_map(|(name, known)| {
        let number: u32 = name.strip_prefix("undo")?.parse().ok()?;
        let ahead = (*known)?.checked_sub(number)?;
        Some(format!("undo{:03}", space.checked_sub(ahead)?))
    })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]
mod tests {
    use super::*;

    #[test]
    fn segments_of_temporary_tables_are_named_by_older_servers_only() {
        for (creator, expected) in [
            ("MariaDB 10.11.19", false),
            ("MariaDB 10.5.2", false),
            ("Backup 11.8.3-MariaDB", false),
            ("MariaDB 12.0.1", false),
            ("MariaDB 10.2.11", true),
            ("MySQL 5.7.44", true),
            ("", true),
        ] {
            assert_eq!(may_name_temporary(creator), expected, "{creator}");
        }
    }

    #[test]
    fn undo_tablespaces_that_were_exchanged_are_misplaced() {
        let found = |row: &[(&str, u32)]| -> Vec<String> {
            let undo: Vec<_> =
                row.iter().map(|(name, it)| ((*name).to_owned(), Some(*it))).collect();
            let steps = out_of_row(&undo).into_iter();
            steps
                .map(|step| match step {
                    Step::Finding(it) => it.place.file,
                    _ => panic!(),
                })
                .collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(found(&[("undo002", 6), ("undo001", 5), ("undo003", 7)]), none);
        assert_eq!(found(&[("undo001", 5), ("undo003", 9), ("undo_004", 1)]), none);
        assert_eq!(
            found(&[("undo001", 7), ("undo002", 6), ("undo003", 5)]),
            ["undo002", "undo003"]
        );
    }

    #[test]
    fn undo_tablespaces_are_named_by_those_that_are_here() {
        let here = [("undo003".to_owned(), Some(7))];
        assert_eq!(name_by_number(&here, 5).as_deref(), Some("undo001"));
        assert_eq!(name_by_number(&here, 3), None);
        assert_eq!(name_by_number(&[], 5), None);
    }
}
