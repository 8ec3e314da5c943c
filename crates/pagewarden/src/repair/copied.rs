//! A copy that is repaired in the database's stead.

use std::path::Path;

use crate::error::Error;
use crate::repair::{Engine, Options};

/// Makes the copy, unless an earlier run has made it of the same state.
pub(super) fn make(
    engine: Engine,
    source: &Path,
    target: &Path,
    options: &Options,
) -> Result<(), Error> {
    if (engine.probe)(target) {
        let disk = crate::protect::disk::System;
        let [ours, theirs] = [source, target].map(|path| {
            let patient = (engine.open)(path, &disk)?;
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
