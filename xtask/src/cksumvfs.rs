//! `cargo xtask cksumvfs`: SQLite's own checksum VFS, for the laboratory to
//! measure beside ours.
//!
//! No package holds it ready to load. Debian's source package of SQLite holds
//! its source, and `apt-get source` fetches that without installing anything and
//! without touching the system's lists. It is Debian's newest one: an older VFS
//! lets reads of parts of pages pass that newer versions of SQLite make, and takes
//! them for pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use pagewarden_scratch::postgres::servers_dir;

use crate::servers::{execute, find_file, remove_dir, say};

const SOURCES: &str = "\
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";
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
    let source = fetch(work)?;
    let library = work.join("cksumvfs.so");
    let mut compile = Command::new("cc");
    // As SQLite itself is compiled into our programs.
    compile.args(["-O3", "-shared", "-fPIC", "-I"]).arg(headers()?);
    execute(compile.arg("-o").arg(&library).arg(source))?;
    Ok(library)
}

/// Fetches SQLite's source and takes the VFS out of it.
fn fetch(work: &Path) -> Result<PathBuf> {
    for folder in ["lists/partial", "cache/archives/partial", "source"] {
        fs::create_dir_all(work.join(folder))?;
    }
    let sources = work.join("debian.sources");
    fs::write(&sources, SOURCES)?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(["-q", "-o", "Dir::Etc::sourceparts=/dev/null", "-o"])
            .arg(format!("Dir::Etc::sourcelist={}", sources.display()))
            .arg("-o")
            .arg(format!("Dir::State::lists={}", work.join("lists").display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", work.join("cache").display()))
            .args(words)
            .current_dir(work.join("source"));
        execute(&mut command)
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", "sqlite3"])?;
    let archive = find_file(&work.join("source"), ".orig.tar.xz")?;
    let mut unpack = Command::new("tar");
    unpack.arg("--no-same-owner").arg("-xf").arg(&archive).arg("-C").arg(work.join("source"));
    execute(unpack.args(["--wildcards", &format!("*/{SOURCE}")]))?;
    find_file(&work.join("source"), SOURCE)
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
