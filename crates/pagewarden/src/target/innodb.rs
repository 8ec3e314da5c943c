//! InnoDB tablespaces and data directories.

mod aria;
pub mod doublewrite;
mod fields;
pub mod names;
pub mod redo;
pub mod state;

/// A file of the shared fixtures; `None` where they are not at hand, said aloud.
#[cfg(test)]
fn fixture(name: &str) -> Option<Vec<u8>> {
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures").into(),
        std::path::PathBuf::from,
    );
    let path = root.join("innodb").join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) if std::env::var_os("CI").is_some() => panic!("{}: {error}", path.display()),
        Err(_) => {
            eprintln!("SKIPPED: {} is not there", path.display());
            None
        }
    }
}
