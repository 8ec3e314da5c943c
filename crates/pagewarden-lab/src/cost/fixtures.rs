//! Real files of other people, which tests read where they lie.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file of the collection: `$PAGEWARDEN_FIXTURES`, or `../shared/fixtures`
/// beside the workspace. Says aloud when there is none.
pub(crate) fn read(name: &str) -> Option<Vec<u8>> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let folder = env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    let bytes = fs::read(&path).ok();
    if bytes.is_none() {
        let _ = writeln!(io::stderr(), "SKIPPED: {} is not here", path.display());
    }
    bytes
}
