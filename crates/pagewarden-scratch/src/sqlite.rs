//! What SQLite itself offers beside its library.

use std::env;
use std::path::PathBuf;

use crate::postgres::servers_dir;

/// The library of SQLite's checksum VFS: what `PAGEWARDEN_CKSUMVFS` names, or
/// what `cargo xtask cksumvfs` has made of SQLite's source.
pub fn checksum_vfs() -> Option<PathBuf> {
    let named = env::var_os("PAGEWARDEN_CKSUMVFS").map(PathBuf::from);
    let library = named.unwrap_or_else(|| servers_dir().join("cksumvfs/cksumvfs.so"));
    // It is loaded by programs that work elsewhere.
    std::path::absolute(library).ok().filter(|library| library.is_file())
}
