//! A copy that is repaired in the database's stead.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::repair::{Engine, Options};

/// Where the copy is: of a database that is one file, a file of its name where a folder is named.
pub(super) fn place(source: &Path, target: &Path) -> PathBuf {
    match source.file_name() {
        Some(name) if source.is_file() => target.join(name),
        _ => target.to_owned(),
    }
}

/// Makes the copy, unless an earlier run has made it of the same state.
pub(super) fn make(
    engine: Engine,
    source: &Path,
    target: &Path,
    keyring: Option<&Path>,
    options: &Options,
) -> Result<(), Error> {
    if (engine.probe)(target) {
        let disk = crate::protect::disk::System;
        let [ours, theirs] = [source, target].map(|path| {
            let patient = (engine.open)(path, keyring, &disk)?;
            Ok::<_, Error>((patient.identity(), patient.state()?))
        });
        if ours? == theirs? {
            return Ok(());
        }
        return Err(Error::refused(
            target,
            "a database is here already, and it is no copy of this one as it is now",
            "name a folder that does not exist or is empty",
        ));
    }
    (engine.copy)(source, target, options)
}
