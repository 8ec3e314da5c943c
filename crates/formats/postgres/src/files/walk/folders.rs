//! Which folders of a cluster hold relations: `global`, those of the databases, and those
//! behind the links of tablespaces.

use std::fs;
use std::path::{Path, PathBuf};

use pagewarden_core::system::identity;

use super::{A_MOMENT, DEFAULT_TABLESPACE, Folder, Walk, absolute};
use crate::files::catalogue::relations::Certainty;
use crate::files::state::Circumstances;
use crate::files::{backup, catalogue};

impl Walk {
    /// All folders with relations, without their files.
    pub(super) fn find_folders(&mut self) {
        let root = self.cluster.root.clone();
        self.add_folder(root.join("global"), catalogue::GLOBAL_TABLESPACE, None);
        self.add_databases(&root.join("base"), DEFAULT_TABLESPACE);
        let links = root.join("pg_tblspc");
        // A server without tablespaces of its own starts without the folder.
        let has_links = fs::symlink_metadata(&links).is_ok();
        for (name, path) in if has_links { self.list_sorted(&links) } else { Vec::new() } {
            let Some(oid) = oid(&name) else {
                self.note(&path, "not a tablespace's name, left alone");
                continue;
            };
            if backup::beside::tablespace(&root, &name).is_some() && self.add_tablespace_beside(oid)
            {
                continue;
            }
            match self.place_of_tablespace(&path) {
                Ok(Some(folder)) => self.add_databases(&folder, oid),
                Err(error) if self.has_vanished(&path, &error) => {}
                // DROP TABLESPACE leaves a link behind if it cannot remove it.
                Ok(None) | Err(_) if self.evidence.is_no_tablespace(oid) => {
                    self.note(&path, "a link of a tablespace that pg_tablespace does not list");
                }
                Ok(None) => {
                    let error = "the tablespace has no folder of this server version and was \
                                 not read: is the right file system mounted there?";
                    self.unread(&path, 0, &error);
                }
                Err(_) if self.add_tablespace_beside(oid) => {}
                Err(error) => {
                    let error =
                        format!("the tablespace cannot be reached and was not read: {error}");
                    self.unread(&path, 0, &error);
                }
            }
        }
        self.find_tablespaces_beside();
    }

    /// Tablespaces of a backup that its links do not lead to: Barman's rsync method keeps
    /// them beside the data directory, by their oids.
    fn find_tablespaces_beside(&mut self) {
        if self.cluster.circumstances != Circumstances::Backup {
            return;
        }
        let root = self.cluster.root.clone();
        let Some(catalogue) = self.evidence.books().catalogue() else {
            return self.add_all_beside(&root);
        };
        let (mut listed, _) = catalogue.tablespaces(self.evidence.books().moment());
        listed.retain(|one| {
            let is_own =
                matches!(one.oid, catalogue::DEFAULT_TABLESPACE | catalogue::GLOBAL_TABLESPACE);
            !is_own && one.certainty != Certainty::InDoubt
        });
        listed.sort_unstable();
        listed.dedup_by_key(|one| one.oid);
        for tablespace in listed {
            let link = root.join("pg_tblspc").join(tablespace.oid.to_string());
            if fs::symlink_metadata(&link).is_ok() {
                continue;
            }
            if !self.add_tablespace_beside(tablespace.oid) {
                let error = format!(
                    "pg_tablespace lists the tablespace {:?}, and it is neither linked here nor beside the data directory: it was not read",
                    tablespace.name
                );
                self.unread(&link, 0, &error);
            }
        }
    }

    /// Adds what looks like a tablespace beside the data directory, where no catalogue says which there
    /// are.
    fn add_all_beside(&mut self, root: &Path) {
        let Some(above) = absolute(root).parent().map(Path::to_owned) else { return };
        let entries = fs::read_dir(above).into_iter().flatten().flatten();
        let mut oids: Vec<u32> =
            entries.filter_map(|entry| oid(entry.file_name().to_str()?)).collect();
        oids.sort_unstable();
        for oid in oids {
            let link = root.join("pg_tblspc").join(oid.to_string());
            if fs::symlink_metadata(&link).is_err() {
                self.add_tablespace_beside(oid);
            }
        }
    }

    /// Adds a tablespace of a backup that lies beside the data directory; false if there
    /// is none.
    fn add_tablespace_beside(&mut self, oid: u32) -> bool {
        if self.cluster.circumstances != Circumstances::Backup {
            return false;
        }
        let root = absolute(&self.cluster.root);
        let Some(place) = root.parent().map(|above| above.join(oid.to_string())) else {
            return false;
        };
        let Ok(Some(folder)) = self.version_folder(&place) else { return false };
        let link = self.cluster.root.join("pg_tblspc").join(oid.to_string());
        self.beside.push((place, link));
        self.add_databases(&folder, oid);
        true
    }

    /// The folder of this server version behind a tablespace's link. A running
    /// server that drops a tablespace removes first the one, then the other.
    fn place_of_tablespace(&self, link: &Path) -> std::io::Result<Option<PathBuf>> {
        const TRIES: u32 = 10;
        let mut tries = if self.cluster.circumstances.may_change() { TRIES } else { 1 };
        loop {
            fs::metadata(link)?;
            tries = tries.saturating_sub(1);
            match self.version_folder(link)? {
                None if tries > 0 => std::thread::sleep(A_MOMENT),
                found => return Ok(found),
            }
        }
    }

    /// `PG_15_202209061`: by the control file's catalogue version if it can be
    /// believed, since folders of other clusters may lie beside it.
    fn version_folder(&self, tablespace: &Path) -> std::io::Result<Option<PathBuf>> {
        let major = &self.cluster.major;
        if let Ok(control) = &self.cluster.control {
            let folder = tablespace.join(format!("PG_{major}_{}", control.catalog_version));
            return match fs::metadata(&folder) {
                Ok(metadata) => Ok(metadata.is_dir().then_some(folder)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            };
        }
        let prefix = format!("PG_{major}_");
        let mut found = fs::read_dir(tablespace)?.flatten().filter(|entry| {
            entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix))
        });
        Ok(found.next().map(|entry| entry.path()))
    }

    fn add_databases(&mut self, folder: &Path, tablespace: u32) {
        for (name, path) in self.list_sorted(folder) {
            if name.starts_with("pgsql_tmp") {
                continue;
            }
            match oid(&name) {
                Some(database) if path.is_dir() && !path.is_symlink() => {
                    self.add_folder(path, tablespace, Some(database));
                }
                Some(_) if path.is_symlink() => {
                    self.unread(&path, 0, &"a symbolic link, not followed");
                }
                _ if self.cluster.circumstances.may_change() && !path.exists() => {}
                _ => self.note(&path, "not a database's folder, left alone"),
            }
        }
    }

    fn add_folder(&mut self, path: PathBuf, tablespace: u32, database: Option<u32>) {
        // Two tablespace links to one place would count its pages twice, and
        // a link back into the cluster would never end.
        match fs::metadata(&path).and_then(|metadata| identity(&metadata, &path)) {
            Ok(identity) if self.seen_folders.insert(identity) => {
                self.folders.push_back(Folder { path, tablespace, database });
            }
            Ok(_) => self.note(&path, "the same folder as one named before, not read twice"),
            Err(error) if self.may_have_vanished(&error) => {}
            Err(error) => self.unread(&path, 0, &error),
        }
    }

    pub(super) fn list_sorted(&mut self, folder: &Path) -> Vec<(String, PathBuf)> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                if !self.has_vanished(folder, &error) {
                    self.unread(folder, 0, &error);
                }
                return Vec::new();
            }
        };
        let mut names: Vec<_> = entries
            .flatten()
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
            .collect();
        names.sort_by(|a, b| (a.0.len(), &a.0).cmp(&(b.0.len(), &b.0)));
        names
    }
}

/// The number that a folder is named by.
fn oid(name: &str) -> Option<u32> {
    let canonical = !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
    if canonical { name.parse().ok() } else { None }
}
