//! Root writes below another user's folder with that user's rights alone.

use std::io;
use std::path::Path;

use anyhow::{Context as _, Error, Result, anyhow};
use pagewarden::source::acting::Acting;
use pagewarden::source::trusted_path::{End, user};

/// Takes the rights of the user that can change where these paths lead, if there is one and we are
/// root. To be called before threads are started that write.
pub fn take(paths: &[(&Path, End)]) -> Result<Option<Acting>> {
    let shown = paths.first().map_or(Path::new(""), |(path, _)| path);
    Acting::for_paths(paths).with_context(|| format!("cannot write {} as root", shown.display()))
}

/// Says of an error why root met it: with that user's rights not everything can be done.
pub fn explain(error: Error, acting: Option<&Acting>) -> Error {
    let is_denied = |cause: &(dyn std::error::Error + 'static)| {
        let denied = io::ErrorKind::PermissionDenied;
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == denied)
    };
    let Some(acting) = acting.filter(|_| error.chain().any(is_denied)) else { return error };
    let (found, user) = (&acting.found, user(acting.found.owner));
    anyhow!(
        "{error:#}\nhint: {found}, so root writes there with the rights of {user}: let {user} read \
         what is read and write what is written, or name a folder that only root can write to"
    )
}
