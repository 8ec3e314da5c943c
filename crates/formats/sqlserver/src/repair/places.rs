//! Where sources are: files and folders that were named, stripes beside them, compressed files, packs.
//!
//! What a file is, its content says. In a folder, files that are neither backups nor data files are
//! passed; one that was named by itself is refused.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::files::backup;
use crate::files::{open_file, read_head};
use crate::repair::database::{DataFile, Database, data_file_at};
use pagewarden_core::error::Error;
use pagewarden_core::repair::copies::{Moment, Packs, Unpacked, moment_of_copy};
use pagewarden_core::source::decode::Compression;
use pagewarden_core::source::store::StorePath;
use pagewarden_core::system::identity;

/// Files of one folder that are looked at, in all folders below it.
const FILES_MAX: usize = 20_000;
/// Folders within folders.
const DEPTH_MAX: usize = 16;
const HINT: &str = "name backups (.bak, .dif, .trn) or copies of the data files (.mdf, .ndf) of this database, or a folder with them";

/// The files of one backup.
#[derive(Debug)]
pub(super) struct BackupFiles {
    pub(super) paths: Vec<PathBuf>,
    /// What it is called.
    pub(super) name: String,
    /// A server can restore from these files, as they are not unpacked by Pagewarden.
    pub(super) is_in_place: bool,
    set_id: Option<[u8; 16]>,
    families: u16,
    present: Vec<u16>,
}

/// Copies of data files in one folder, and when the originals were last written.
#[derive(Debug)]
pub(super) struct CopiedFiles {
    pub(super) name: String,
    pub(super) files: Vec<(DataFile, Option<Moment>)>,
    folder: PathBuf,
}

/// All that one `--from` names.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) backups: Vec<BackupFiles>,
    pub(super) copies: Vec<CopiedFiles>,
    kept: Vec<Kept>,
}

/// What lies in temporary folders goes with these.
#[derive(Debug)]
enum Kept {
    Unpacked(#[allow(dead_code, reason = "held until the sources were read")] Unpacked),
    Pack(#[allow(dead_code, reason = "held until the sources were read")] TempDir),
}

impl Places {
    /// Finds what there is at a path.
    ///
    /// # Errors
    /// There is nothing that pages can come from; it is the database itself; it cannot be read.
    pub(super) fn find(path: &Path, database: &Database, packs: Packs) -> Result<Self, Error> {
        let failed = |error| Error::io("read", path, error);
        let mut places = Self::default();
        let metadata = fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            for file in files_below(path)? {
                let name = file.display().to_string();
                if !is_ours(&file, database) {
                    places.add(&file, &name, true);
                }
            }
        } else if is_ours(path, database) {
            let reason = "this is a file that is to be repaired";
            return Err(Error::refused(path, reason, "name a backup or a copy of it"));
        } else if (packs.is_pack)(path) {
            places.add_pack(path, packs)?;
        } else {
            places.add_file(path)?;
        }
        if places.backups.is_empty() && places.copies.is_empty() {
            let reason = "neither a SQL Server backup nor a copy of a data file is here";
            return Err(Error::refused(path, reason, HINT));
        }
        places.add_stripes_beside();
        Ok(places)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), Error> {
        let failed = |error| Error::io("read", path, error);
        let name = path.display().to_string();
        let file = open_file(path).map_err(failed)?;
        let head = read_head(&file).map_err(failed)?;
        if Compression::of(&head) == Compression::None {
            self.add(path, &name, true);
            return Ok(());
        }
        let real = fs::canonicalize(path).map_err(failed)?;
        let metadata = fs::metadata(&real).map_err(failed)?;
        if let Some(unpacked) = Unpacked::of(&real, &metadata, Packs::NONE)? {
            self.add(&unpacked.path(), &name, false);
            for copies in &mut self.copies {
                for (_, written) in &mut copies.files {
                    *written = unpacked.written;
                }
            }
            self.kept.push(Kept::Unpacked(unpacked));
        }
        Ok(())
    }

    fn add_pack(&mut self, path: &Path, packs: Packs) -> Result<(), Error> {
        let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir();
        let folder = folder.map_err(|error| {
            Error::io("unpack into a temporary folder (TMPDIR says where)", path, error)
        })?;
        (packs.take_out)(path, &|name| !name.ends_with(".ldf"), folder.path())?;
        for file in files_below(folder.path())? {
            let within = file.strip_prefix(folder.path()).unwrap_or(&file);
            let name = format!("{} ({})", path.display(), within.display());
            self.add(&file, &name, false);
        }
        self.kept.push(Kept::Pack(folder));
        Ok(())
    }

    /// Adds a file, if pages can come from it.
    fn add(&mut self, path: &Path, name: &str, is_in_place: bool) {
        let Ok(file) = open_file(path) else { return };
        let Ok(head) = read_head(&file) else { return };
        let media = backup::media(&StorePath::local(path));
        if media.is_some() || backup::is_backup(&head) {
            let (set_id, families, family) = match media {
                Some(media) => (Some(media.set_id), media.families.max(1), media.family),
                None => (None, 1, 1),
            };
            let is_stripe_of = |one: &&mut BackupFiles| {
                families > 1
                    && one.set_id == set_id
                    && one.families == families
                    && !one.present.contains(&family)
            };
            match self.backups.iter_mut().find(is_stripe_of) {
                Some(one) => {
                    one.paths.push(path.to_owned());
                    one.present.push(family);
                }
                None => self.backups.push(BackupFiles {
                    paths: vec![path.to_owned()],
                    name: name.to_owned(),
                    is_in_place,
                    set_id,
                    families,
                    present: vec![family],
                }),
            }
            return;
        }
        let Some(file) = data_file_at(path) else { return };
        let written = fs::metadata(path).ok().and_then(|metadata| moment_of_copy(&metadata));
        let written = written.filter(|_| is_in_place);
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let is_beside = |one: &&mut CopiedFiles| {
            one.folder == folder && one.files.iter().all(|(other, _)| other.number != file.number)
        };
        match self.copies.iter_mut().find(is_beside) {
            Some(one) => one.files.push((file, written)),
            None => self.copies.push(CopiedFiles {
                name: name.to_owned(),
                files: vec![(file, written)],
                folder,
            }),
        }
    }

    /// The stripes of a backup that were not named and lie beside the one that was.
    fn add_stripes_beside(&mut self) {
        let lacking: Vec<PathBuf> = self
            .backups
            .iter()
            .filter(|one| one.is_in_place && usize::from(one.families) > one.paths.len())
            .filter_map(|one| Some(folder_of(one.paths.first()?)))
            .collect();
        for folder in lacking {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX);
            let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths.iter().filter(|path| path.is_file()) {
                let Some(media) = backup::media(&StorePath::local(path)) else { continue };
                let is_lacking = |one: &BackupFiles| {
                    one.set_id == Some(media.set_id)
                        && one.families == media.families
                        && media.families > 1
                        && !one.present.contains(&media.family)
                };
                if self.backups.iter().any(is_lacking) {
                    self.add(path, &path.display().to_string(), true);
                }
            }
        }
        for one in &mut self.backups {
            let mut both: Vec<_> = std::mem::take(&mut one.present)
                .into_iter()
                .zip(std::mem::take(&mut one.paths))
                .collect();
            both.sort();
            (one.present, one.paths) = both.into_iter().unzip();
        }
    }
}

fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// True for a file of the database itself.
fn is_ours(path: &Path, database: &Database) -> bool {
    let id = |path: &Path| identity(&fs::metadata(path).ok()?, path).ok();
    let this = id(path);
    this.is_some() && database.files.values().any(|file| id(&file.path) == this)
}

/// The regular files below a folder, in order. Links are not followed.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut waiting = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| Error::io("list", &folder, error))?;
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < DEPTH_MAX {
                waiting.push((entry.path(), depth.saturating_add(1)));
            } else if kind.is_file() {
                found.push(entry.path());
            }
            if found.len().saturating_add(waiting.len()) > FILES_MAX {
                let reason = format!("more than {FILES_MAX} files are below this folder");
                return Err(Error::refused(&folder, reason, HINT));
            }
        }
    }
    found.sort();
    Ok(found)
}
