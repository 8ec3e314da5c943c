//! Real backups, kept beside the project: `../shared/fixtures` from its root, or
//! where `PAGEWARDEN_FIXTURES` says.

use std::path::PathBuf;

fn root() -> PathBuf {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures").into();
    std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from)
}

fn folder() -> PathBuf {
    root().join("sqlserver")
}

/// A folder of backups of all engines. `None`, said aloud, where there are no fixtures.
pub fn backups(name: &str) -> Option<PathBuf> {
    let path = root().join("backups").join(name);
    if path.is_dir() {
        return Some(path);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is not there", path.display());
    eprintln!("SKIPPED: {} is not there", path.display());
    None
}

/// A file's bytes. `None`, said aloud, where there are no fixtures.
pub fn bytes(name: &str) -> Option<Vec<u8>> {
    let path = folder().join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {}: {error}", path.display());
            None
        }
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// What another reader counted in them.
pub fn expected() -> Option<serde_json::Value> {
    Some(serde_json::from_slice(&bytes("expected.json")?).unwrap())
}
