//! SQLite's source, from Debian's newest source package.
//!
//! `apt-get source` fetches it without installing anything and without touching the
//! system's lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::servers::{execute, find_file};

const SOURCES: &str = "\
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";

/// Fetches and unpacks it below `work`; gives its folder.
pub(crate) fn fetch(work: &Path) -> Result<PathBuf> {
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
    execute(&mut unpack)?;
    let version = find_file(&work.join("source"), "/VERSION")?;
    Ok(version.parent().context("a file lies in a folder")?.to_owned())
}
