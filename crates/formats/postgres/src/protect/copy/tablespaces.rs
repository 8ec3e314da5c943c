//! Tablespaces that lie elsewhere, and where they go in a copy (`--tablespace-mapping OLD=NEW`, as
//! `pg_basebackup` has it).
//!
//! | in the source | in the copy |
//! | --- | --- |
//! | `pg_tblspc/OID`, a link to OLD | a link to NEW |
//! | `OLD/PG_MAJOR_CATALOGUE`, this cluster's part | `NEW/PG_MAJOR_CATALOGUE` |
//! | other folders in OLD, which belong to clusters of other versions | nothing |
//!
//! NEW must be an absolute path, for a server takes it as it stands in the link, and does not exist
//! or is empty. While the copy is made it has a marker of its own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::protect::Cluster;
use pagewarden_core::error::Error;
use pagewarden_core::protect::copy;
use pagewarden_core::protect::plan::TablespaceMapping;

const FOLDER: &str = "pg_tblspc";

/// See the module.
pub(super) struct Tablespaces {
    moved: Vec<Moved>,
}

struct Moved {
    /// `pg_tblspc/OID`.
    name: PathBuf,
    old: PathBuf,
    new: PathBuf,
}

impl Tablespaces {
    /// Finds the tablespaces that are to be moved.
    pub(super) fn of(cluster: &Cluster, mappings: &[TablespaceMapping]) -> Result<Self, Error> {
        let mut moved: Vec<Moved> = Vec::new();
        for TablespaceMapping { old, new } in mappings {
            if !new.is_absolute() {
                return Err(Error::refused(
                    new,
                    "where a tablespace goes must be an absolute path, for a server finds it by that",
                    "begin it with a slash",
                ));
            }
            let Some(name) = link_to(cluster, old)? else {
                return Err(Error::refused(
                    &cluster.root,
                    format!("no tablespace of this cluster lies in {}", old.display()),
                    "name the place as in pg_tablespace_location(), or see: ls -l PATH/pg_tblspc",
                ));
            };
            if let Some(other) = moved.iter().find(|other| other.name == name || other.new == *new)
            {
                return Err(Error::refused(
                    new,
                    format!(
                        "one tablespace and one folder to each: {} too is moved so",
                        other.old.display()
                    ),
                    "give each tablespace one folder of its own",
                ));
            }
            moved.push(Moved { name, old: old.clone(), new: new.clone() });
        }
        Ok(Self { moved })
    }

    /// Where `name`, a link, goes, if it is to be moved.
    pub(super) fn place_of(&self, name: &Path) -> Option<&Path> {
        self.moved.iter().find(|moved| moved.name == name).map(|moved| moved.new.as_path())
    }

    /// The folders that tablespaces go to.
    pub(super) fn places(&self) -> impl Iterator<Item = &Path> {
        self.moved.iter().map(|moved| moved.new.as_path())
    }

    /// True for what lies in a tablespace that is moved, and is no part of this cluster.
    pub(super) fn is_of_another_version(&self, cluster: &Cluster, name: &Path) -> bool {
        let folder = name.parent().filter(|folder| self.place_of(folder).is_some());
        folder.is_some_and(|folder| name != folder.join(cluster.tablespace_folder()))
    }

    /// What a copy is of: the state of the cluster, and what goes where.
    pub(super) fn state(&self, cluster: &Cluster) -> String {
        let mut state = blake3::Hasher::new();
        state.update(&cluster.bytes);
        for moved in &self.moved {
            state.update(format!("{:?} {:?}\n", moved.name, moved.new).as_bytes());
        }
        state.finalize().to_string()
    }

    /// Refuses a place inside of another one.
    pub(super) fn check_apart(
        &self,
        source: &Path,
        target: &Path,
        place: &Path,
    ) -> Result<(), Error> {
        copy::check_apart(source, place)?;
        copy::check_apart(target, place)?;
        for moved in &self.moved {
            copy::check_apart(&moved.old, place)?;
            if moved.new != place {
                copy::check_apart(&moved.new, place)?;
            }
        }
        Ok(())
    }
}

/// True for the name of a tablespace.
pub(super) fn is_name(name: &Path) -> bool {
    name.parent() == Some(Path::new(FOLDER))
}

/// The link that leads to `place`.
fn link_to(cluster: &Cluster, place: &Path) -> Result<Option<PathBuf>, Error> {
    let folder = cluster.root.join(FOLDER);
    let listed = |error| Error::io("list", &folder, error);
    let real_place = fs::canonicalize(place).ok();
    for entry in fs::read_dir(&folder).map_err(listed)? {
        let path = entry.map_err(listed)?.path();
        let leads_there = fs::read_link(&path).is_ok_and(|content| {
            content == place || (real_place.is_some() && fs::canonicalize(&path).ok() == real_place)
        });
        if let Some(name) = path.file_name().filter(|_| leads_there) {
            return Ok(Some(Path::new(FOLDER).join(name)));
        }
    }
    Ok(None)
}
