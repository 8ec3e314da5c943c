//! Files of a table that are not in its folder: those of a shallow clone, or of a table whose data has a
//! place of its own. They are read where they are in the same store as the folder.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use super::{Named, inside};
use crate::files::content::Obstacle;
use pagewarden_core::source::store::StorePath;

/// The name that a place has here: programs have more than one for the same store.
pub(super) fn usual(url: &str) -> Cow<'_, str> {
    if let Some(path) = url.strip_prefix("file:") {
        return path.strip_prefix("//").filter(|it| it.starts_with('/')).unwrap_or(path).into();
    }
    let rest = ["s3a://", "s3n://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    rest.map_or(Cow::Borrowed(url), |rest| format!("s3://{rest}").into())
}

/// Where a file is that is named by a URL, or by a path that leads out of the folder of the table.
///
/// # Errors
/// It is in another store.
pub(super) fn find(folder: &StorePath, url: &str) -> Result<StorePath, Obstacle> {
    let found = if folder.local_path().is_some() { on_disk(folder, url) } else { at(folder, url) };
    found.ok_or_else(|| {
        Obstacle::Unsupported(format!("{url} is in another store than the folder of the table"))
    })
}

fn on_disk(folder: &StorePath, url: &str) -> Option<StorePath> {
    let path = usual(url);
    (!path.contains("://")).then(|| folder.join(&*path))
}

fn at(folder: &StorePath, url: &str) -> Option<StorePath> {
    let (url, own) = (usual(url), usual(folder.path().to_str()?));
    let ((scheme, path), (own_scheme, own_path)) = (url.split_once("://")?, own.split_once("://")?);
    let is_same = scheme == own_scheme && path.split('/').next() == own_path.split('/').next();
    (is_same && inside(path).is_some()).then(|| folder.at(url.as_ref()))
}

/// The place below the folder, if that is where a name in full leads to.
pub(super) fn below(folder: &StorePath, url: &str) -> Option<PathBuf> {
    let file = find(folder, url).ok()?.absolute().ok()?;
    let folder = folder.absolute().ok()?;
    let below = plain(file.path()).strip_prefix(plain(folder.path())).ok()?.to_owned();
    inside(below.to_str()?)
}

/// Without `..`, as a path that has no links on the way.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

impl Named {
    /// Where it is.
    ///
    /// # Errors
    /// It is in another store than the folder of the table.
    pub(super) fn find(&self, folder: &StorePath) -> Result<StorePath, Obstacle> {
        find_named(folder, &self.place)
    }

    /// As the books call it: below the folder of the table, or in full.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Ok(place) => place.to_string_lossy().into_owned(),
            Err(url) => url.clone(),
        }
    }
}

/// As [`Named::find`].
pub(super) fn find_named(
    folder: &StorePath,
    place: &Result<PathBuf, String>,
) -> Result<StorePath, Obstacle> {
    match place {
        Ok(below) => Ok(folder.join(below)),
        Err(url) => find(folder, url),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_the_folder_are_found_in_the_same_store_only() {
        let folder = StorePath::local("/lake/t");
        for (url, place, inside) in [
            ("file:/lake/other/a.parquet", Some("/lake/other/a.parquet"), None),
            ("file:///lake/other/a.parquet", Some("/lake/other/a.parquet"), None),
            ("/lake/t/x/a.parquet", Some("/lake/t/x/a.parquet"), Some("x/a.parquet")),
            ("../t/a.parquet", Some("/lake/t/../t/a.parquet"), Some("a.parquet")),
            ("../u/a.parquet", Some("/lake/t/../u/a.parquet"), None),
            ("s3://bucket/a.parquet", None, None),
        ] {
            let found = find(&folder, url).ok();
            assert_eq!(found.as_ref().map(StorePath::path), place.map(Path::new), "{url}");
            assert_eq!(below(&folder, url), inside.map(PathBuf::from), "{url}");
        }
    }
}
