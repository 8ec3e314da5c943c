//! `cargo xtask cksumvfs`: SQLite's own checksum VFS, for the laboratory to
//! measure beside ours.
//!
//! No package holds it ready to load; Debian's source package of SQLite holds its
//! source. It is the newest one: an older VFS lets reads of parts of pages pass that
//! newer versions of SQLite make, and takes them for pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use pagewarden_scratch::postgres::servers_dir;

use crate::servers::{execute, remove_dir, say};
use crate::sqlite_source;

const SOURCE: &str = "ext/misc/cksumvfs.c";

/// Puts `cksumvfs/cksumvfs.so` beside the servers.
pub(crate) fn run() -> Result<()> {
    let target = servers_dir().join("cksumvfs");
    fs::create_dir_all(servers_dir())?;
    let work = servers_dir().join(".cksumvfs.tmp");
    remove_dir(&work)?;
    fs::create_dir_all(&work)?;
    let made = make(&work).and_then(|library| {
        fs::create_dir_all(&target)?;
        Ok(fs::rename(library, target.join("cksumvfs.so"))?)
    });
    remove_dir(&work)?;
    made?;
    say(&format!("SQLite's checksum VFS is in {}", target.display()))
}

fn make(work: &Path) -> Result<PathBuf> {
    let source = sqlite_source::fetch(work)?.join(SOURCE);
    let library = work.join("cksumvfs.so");
    let mut compile = Command::new("cc");
    // As SQLite itself is compiled into our programs.
    compile.args(["-O3", "-shared", "-fPIC", "-I"]).arg(headers()?);
    execute(compile.arg("-o").arg(&library).arg(source))?;
    Ok(library)
}

/// The headers of the SQLite that our programs link.
fn headers() -> Result<PathBuf> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version", "1", "--locked"]);
    let output = metadata.output().context("cannot run cargo metadata")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let manifest = text
        .split('"')
        .find(|word| word.contains("/libsqlite3-sys-") && word.ends_with("/Cargo.toml"))
        .context("cargo metadata does not name libsqlite3-sys")?;
    Ok(Path::new(manifest).with_file_name("sqlite3"))
}
