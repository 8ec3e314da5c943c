//! Finding MariaDB's programs and running them as an ordinary user.
//!
//! They are those of the system's package (Debian: `mariadb-server`), found in
//! `PATH` or in the folders where packages put servers.

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::account::OrdinaryUser;
use crate::required;

/// Folders that an ordinary user's `PATH` may lack.
const SERVER_FOLDERS: &[&str] = &["/usr/sbin", "/usr/local/sbin", "/usr/local/mysql/bin"];

/// How to come by one.
const INSTALL: &str = "apt-get install mariadb-server";

/// The programs of one MariaDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    server: PathBuf,
    install: PathBuf,
    client: PathBuf,
}

impl Installation {
    /// The system's MariaDB, if there is one with all that is needed.
    pub fn find() -> Option<Self> {
        Some(Self {
            server: program("mariadbd")?,
            install: program("mariadb-install-db")?,
            client: program("mariadb")?,
        })
    }

    /// Why there is none, if there is none, and what to do.
    pub fn missing() -> Option<String> {
        Self::find().is_none().then(|| format!("MariaDB is not installed here\nhint: {INSTALL}"))
    }

    /// The installation for a test. When there is none this says so on standard
    /// error and gives nothing: the test then returns. It fails instead if
    /// `PAGEWARDEN_REQUIRE` lists `mariadb`.
    ///
    /// # Errors
    /// It is required and not there.
    pub fn for_test() -> Result<Option<Self>> {
        let found = Self::find();
        if found.is_none() {
            if required("mariadb") {
                bail!("PAGEWARDEN_REQUIRE asks for MariaDB\nhint: {INSTALL}");
            }
            writeln!(io::stderr(), "SKIPPED: MariaDB is not installed here; {INSTALL}")?;
        }
        Ok(found)
    }

    /// What the server calls itself, for example "10.11.14".
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn version(&self) -> Result<String> {
        let output = self.server().args(["--no-defaults", "--version"]).output();
        let output = output.with_context(|| format!("cannot run {}", self.server.display()))?;
        // "mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu on ..."
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().skip_while(|word| *word != "Ver").nth(1);
        let version = version.and_then(|word| word.split('-').next());
        version.map(str::to_owned).with_context(|| format!("{}: {text}", self.server.display()))
    }

    pub(super) fn server(&self) -> Command {
        as_ordinary_user(Command::new(&self.server))
    }

    pub(super) fn install(&self) -> Command {
        as_ordinary_user(Command::new(&self.install))
    }

    pub(crate) fn client(&self) -> Command {
        as_ordinary_user(Command::new(&self.client))
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SERVER_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn as_ordinary_user(mut command: Command) -> Command {
    command.env("LC_ALL", "C").env("TZ", "UTC").env_remove("MYSQL_HOME").current_dir("/");
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("MYSQL_") {
            command.env_remove(name);
        }
    }
    if let Some(user) = OrdinaryUser::to_become() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}
