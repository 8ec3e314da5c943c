//! `cargo xtask release VERSION`: one version in all manifests, and a dated heading in the changelog.
//!
//! Changes files and commits nothing: the change is looked at, committed and tagged by a person.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::tidy::root;

/// The manifests that name the version: of the workspace with its crates, of the extension, and of
/// the Python module.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "ext/sqlite/Cargo.toml", "python/Cargo.toml"];
/// Their lock files, which cargo brings up to date.
const WORKSPACES: [&str; 4] =
    ["Cargo.toml", "ext/sqlite/Cargo.toml", "fuzz/Cargo.toml", "python/Cargo.toml"];

/// What is released.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The new version, such as 0.2.0
    version: String,
    /// The day of the release, such as 2026-12-01
    #[arg(long)]
    date: String,
}

/// Changes the files.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { version, date } = arguments;
    ensure!(is_version(version), "{version} is no version\nhint: three numbers, such as 0.2.0");
    ensure!(is_date(date), "{date} is no day\nhint: such as 2026-12-01");
    let root = root();
    let manifest = read(&root.join("Cargo.toml"))?;
    let old = version_of(&manifest).context("Cargo.toml names no version of the workspace")?;
    let changelog = read(&root.join("CHANGELOG.md"))?;
    let changelog = dated(&changelog, version, date)
        .context("CHANGELOG.md has no heading that ends with (unreleased)")?;
    for path in MANIFESTS {
        let path = root.join(path);
        let text = with_version(&read(&path)?, &old, version);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    fs::write(root.join("CHANGELOG.md"), changelog).context("cannot write CHANGELOG.md")?;
    for path in WORKSPACES {
        let status = Command::new("cargo")
            .args(["update", "--quiet", "--workspace", "--manifest-path"])
            .arg(root.join(path))
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "cargo cannot bring the lock file of {path} up to date");
    }
    eprintln!("{old} -> {version}; look at `git diff`, commit, and tag it v{version}");
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn is_version(text: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    text.split('.').count() == 3 && text.split('.').all(is_number)
}

fn is_date(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    lengths == [4, 2, 2] && text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

/// The first `version = "..."` at the beginning of a line.
fn version_of(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""))?;
    line.strip_suffix('"').map(str::to_owned)
}

/// With the new version of our own packages: their own line, and where they depend on each other
/// by a path.
fn with_version(manifest: &str, old: &str, new: &str) -> String {
    let is_ours = |line: &str| {
        line == format!("version = \"{old}\"")
            || (line.starts_with("pagewarden") && line.contains("path = "))
    };
    let (old_words, new_words) = (format!("version = \"{old}\""), format!("version = \"{new}\""));
    let line = |line: &str| match is_ours(line) {
        true => line.replacen(&old_words, &new_words, 1),
        false => line.to_owned(),
    };
    manifest.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

/// The heading of what was not released yet becomes that of this version.
fn dated(changelog: &str, version: &str, date: &str) -> Option<String> {
    let heading =
        changelog.lines().find(|line| line.starts_with("## ") && line.ends_with("(unreleased)"))?;
    Some(changelog.replacen(heading, &format!("## {version} ({date})"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_packages_get_the_new_version() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\n\
            pagewarden = { path = \"crates/pagewarden\", version = \"0.1.0\" }\n\
            snap = \"0.1.0\"\nother = { version = \"0.1.0\" }\n";
        assert_eq!(version_of(manifest).as_deref(), Some("0.1.0"));
        assert_eq!(
            with_version(manifest, "0.1.0", "0.2.0"),
            "[workspace.package]\nversion = \"0.2.0\"\n\
             pagewarden = { path = \"crates/pagewarden\", version = \"0.2.0\" }\n\
             snap = \"0.1.0\"\nother = { version = \"0.1.0\" }\n"
        );
    }

    #[test]
    fn the_changelog_gets_a_day() {
        let changelog = "# Changelog\n\n## 0.1.0 (unreleased)\n\n- a\n";
        assert_eq!(
            dated(changelog, "0.2.0", "2026-12-01").as_deref(),
            Some("# Changelog\n\n## 0.2.0 (2026-12-01)\n\n- a\n")
        );
        assert_eq!(dated("# Changelog\n", "0.2.0", "2026-12-01"), None);
        assert!(is_version("0.2.0") && !is_version("0.2") && !is_version("v0.2.0"));
        assert!(is_date("2026-12-01") && !is_date("1.12.2026"));
    }
}
