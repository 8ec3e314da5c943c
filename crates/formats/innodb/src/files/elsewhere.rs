//! Tables whose files lie outside of their data directory (`DATA DIRECTORY`, general tablespaces
//! elsewhere): a server opens them with it.
//!
//! | named by | |
//! | --- | --- |
//! | `t.isl` in the place of `t.ibd` | MariaDB, MySQL up to 5.7: the whole path |
//! | the dictionary in `mysql.ibd` | MySQL 8.0 and later: the whole path |
//!
//! A backup has the files inside, and its names lead to those of the server that it was made of. So
//! what has a file of that name in the directory is not looked for elsewhere, nor is what another
//! server has open.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::dictionary;
use crate::files::open_files::any_is_open;
use crate::files::state::read_small;
use crate::files::tables::Keys;
use crate::files::tablespaces::OpeningKind;

const PATH_BYTES_MAX: usize = 4096;

/// Where the file is that a link file stands for.
pub(super) fn of_link(link: &Path) -> Option<PathBuf> {
    let text = String::from_utf8(read_small(link, PATH_BYTES_MAX)?).ok()?;
    let place = link.parent()?.join(text.trim());
    (place.is_file() && !link.with_extension("ibd").exists()).then_some(place)
}

/// The files of tables and of undo logs that the dictionary of MySQL has outside of this directory.
pub(super) fn of_dictionary(root: &Path, keys: Keys<'_>) -> Vec<(PathBuf, OpeningKind)> {
    let root = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let tables = dictionary::named(&root, keys).unwrap_or_default().into_iter().map(|one| one.file);
    let tables = tables.map(|file| (file, OpeningKind::Tablespace));
    let undo = dictionary::undo_files(&root, keys).unwrap_or_default().into_iter();
    let paths = tables.chain(undo.map(|file| (file, OpeningKind::Undo)));
    let paths = paths.map(|(file, kind)| (PathBuf::from(file), kind));
    paths.filter(|(path, _)| path.is_absolute() && is_outside(&root, path)).collect()
}

fn is_outside(root: &Path, path: &Path) -> bool {
    let is_inside = fs::canonicalize(path).is_ok_and(|path| path.starts_with(root));
    path.is_file() && !is_inside && !has_copy(root, path)
}

/// True if the directory has a file of that table's name, or of that tablespace's.
fn has_copy(root: &Path, path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let folder = path.parent().and_then(Path::file_name);
    root.join(name).exists() || folder.is_some_and(|folder| root.join(folder).join(name).exists())
}

/// True if a server has it open, which is not that of a directory at rest.
pub(super) fn is_of_another_server(path: &Path, is_live: bool) -> bool {
    !is_live && any_is_open([path])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_leads_to_a_file_unless_there_is_one_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("t.isl");
        let place = folder.path().join("elsewhere.ibd");
        fs::write(&link, format!("{}\n", place.display())).unwrap();
        assert_eq!(of_link(&link), None);
        fs::write(&place, "").unwrap();
        assert_eq!(of_link(&link), Some(place));
        fs::write(folder.path().join("t.ibd"), "").unwrap();
        assert_eq!(of_link(&link), None);
    }

    #[test]
    fn files_inside_a_backup_stand_for_those_outside() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("shop")).unwrap();
        fs::write(folder.path().join("shop/t.ibd"), "").unwrap();
        assert!(has_copy(folder.path(), Path::new("/far/away/shop/t.ibd")));
        assert!(!has_copy(folder.path(), Path::new("/far/away/other/t.ibd")));
        fs::write(folder.path().join("common.ibd"), "").unwrap();
        assert!(has_copy(folder.path(), Path::new("/far/away/common.ibd")));
    }
}
