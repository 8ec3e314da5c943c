//! What is measured: our program, and a cluster made by a server for it to work on.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use pagewarden::database::{self, Step};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::cache::FileSet;

/// The program that was named, or else the one that was built beside this one.
pub fn pagewarden(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("pagewarden"),
    };
    ensure!(path.is_file(), "{} is not there\nhint: cargo build --release", path.display());
    Ok(path)
}

/// A PostgreSQL of this version.
pub fn postgres(version: &str) -> anyhow::Result<Installation> {
    Installation::find(version)
        .with_context(|| format!("no PostgreSQL {version}\nhint: cargo xtask servers {version}"))
}

/// A stopped cluster with pgbench's tables of this scale.
pub fn make_cluster(installation: &Installation, scale: u32) -> anyhow::Result<Cluster> {
    println!("making a cluster of scale {scale}");
    let mut cluster = Cluster::init(installation, &Options::default())?;
    cluster.start()?;
    cluster.pgbench(&["--initialize", "--quiet", "--scale", &scale.to_string()])?;
    cluster.stop(StopMode::Fast)?;
    Ok(cluster)
}

/// The files that hold pages, as `pagewarden check` reads them.
pub fn page_files(dir: &Path) -> anyhow::Result<FileSet> {
    let target = database::open(dir, None)?;
    let files = target.steps.filter_map(|step| match step {
        Step::File(file) if file.listed_bytes > 0 => Some((file.path, file.listed_bytes)),
        _ => None,
    });
    Ok(FileSet { files: files.collect() })
}

/// The load averages: more than the contenders' own threads means noise.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
