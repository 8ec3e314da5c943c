//! The maps of files of a folder with mapped relations: `pg_filenode.map`.

use std::path::Path;

use super::{A_MOMENT, DEFAULT_TABLESPACE, Folder, Walk};
use crate::files::maps;
use pagewarden_core::source::file::read_small;
use pagewarden_core::verdict::{Kind, Severity};

impl Walk {
    pub(super) fn check_map(&mut self, folder: &Folder, has_relations: bool) {
        // Only a database's home folder has one, not its part of a tablespace.
        if folder.tablespace != DEFAULT_TABLESPACE && folder.database.is_some() {
            return;
        }
        let path = folder.path.join("pg_filenode.map");
        let fault = match self.read_map(&path) {
            Ok(fault) => fault,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // A database that is being created or dropped has none, and a
                // crash in between leaves its folder behind.
                let is_told = self.told.contains(&path) || self.cluster.part.is_some();
                if folder.database.is_some_and(|oid| self.evidence.is_no_database(oid)) {
                    let text = "a folder of no database, as pg_database does not list it: a crash \
                                leaves it behind where a database was being created or dropped";
                    if !self.evidence.is_asked() {
                        self.note(&folder.path, text);
                    }
                } else if has_relations && !is_told && !self.cluster.circumstances.may_change() {
                    // That of the whole cluster was made with it, and is never removed.
                    let is_global = folder.database.is_none();
                    let is_proved = is_global && self.cluster.circumstances.is_settled();
                    self.finding(
                        &path,
                        if is_proved { Severity::Damage } else { Severity::Suspect },
                        Kind::Missing,
                        "the relation map is not there".to_owned(),
                        "harmless if this database was being created or dropped; otherwise restore it from a backup",
                    );
                }
                return;
            }
            Err(error) => return self.unread(&path, 0, &error),
        };
        if let Some((kind, detail)) = fault {
            self.finding(
                &path,
                self.cluster.failure(),
                kind,
                format!("the relation map cannot be believed: {detail}"),
                "restore this file from a backup of the same cluster",
            );
        }
    }

    /// What is wrong with a map. A running server may be writing it just now,
    /// so that one that looks wrong is read again.
    fn read_map(&self, path: &Path) -> std::io::Result<Option<(Kind, String)>> {
        const TRIES: u32 = 5;
        let mut tries = if self.cluster.circumstances.may_change() { TRIES } else { 1 };
        loop {
            let checked = maps::check(&read_small(path, maps::MAP_BYTES_MAX)?);
            tries = tries.saturating_sub(1);
            match checked {
                Ok(()) => return Ok(None),
                Err(fault) if tries == 0 => return Ok(Some(fault)),
                Err(_) => std::thread::sleep(A_MOMENT),
            }
        }
    }
}
