//! What a file has beside its content: owner, mode, extended attributes (access
//! control lists among them). Not its times: it is another file than before, and
//! a program that copies by time must see that.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::Path;

use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::Written;
use pagewarden_core::system::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use pagewarden_core::system::{MetadataExt as _, set_mode};

/// The longest list of names, and the longest value, that Linux has.
const BYTES_MAX: usize = 65_536;

/// Gives `copy` what `source` has. What cannot be given is a warning, unless it is
/// the mode.
pub(super) fn give(
    copy: &Written,
    source: &File,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<(), Error> {
    let like = source.metadata().map_err(|error| Error::io("look at", path, error))?;
    for name in names(source) {
        if give_one(copy, source, &name).is_err() {
            let name = name.to_string_lossy();
            warnings.push(format!("the extended attribute {name} could not be kept"));
        }
    }
    let failed = |error| Error::io("set the mode of", &copy.path, error);
    set_mode(&copy.file, like.mode() & 0o7777).map_err(failed)?;
    let own = copy.file.metadata().map_err(failed)?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        let (user, group) = (like.uid(), like.gid());
        warnings.push(format!("it belonged to {user}:{group}, which only root can give it"));
    }
    Ok(())
}

fn names(source: &File) -> Vec<CString> {
    let mut list = vec![0; BYTES_MAX];
    // File systems without attributes say so.
    let Ok(bytes) = flistxattr(source, &mut list) else { return Vec::new() };
    let list = list.get(..bytes).unwrap_or_default();
    list.split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
        .collect()
}

fn give_one(copy: &Written, source: &File, name: &CString) -> io::Result<()> {
    let mut value = vec![0; BYTES_MAX];
    let bytes = fgetxattr(source, name, &mut value)?;
    let value = value.get(..bytes).unwrap_or_default();
    let mut own = vec![0; BYTES_MAX];
    let has = fgetxattr(&copy.file, name, &mut own).ok().and_then(|bytes| own.get(..bytes));
    if has == Some(value) {
        return Ok(());
    }
    Ok(fsetxattr(&copy.file, name, value, XattrFlags::empty())?)
}
