//! Finding PostgreSQL's programs and running them as an ordinary user.
//!
//! Two layouts are known:
//!
//! | place | who puts it there |
//! |---|---|
//! | `target/servers/<version>/{bin,lib,share}` | `cargo xtask servers` |
//! | `/usr/lib/postgresql/<version>/bin` | Debian's packages |
//!
//! The first wins. `PAGEWARDEN_SERVERS` names another directory in its stead.
//!
//! PostgreSQL refuses to run as root. When we are root every program is started
//! as the user `postgres`, or as the kernel's overflow user (65534) where there is none.

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::account::{OrdinaryUser, is_searchable_by_all};
use crate::required;

/// The versions that Pagewarden knows, oldest first.
pub const VERSIONS: &[&str] = &["9.6", "10", "11", "12", "13", "14", "15", "16", "17", "18"];

/// The programs of one version of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The first number of the version: 18 for 18.x, 9 for 9.6.
    pub major: u32,
    /// The version as this project names it: "18" or "9.6".
    pub version: String,
    bin: PathBuf,
    /// Set where the programs do not find their own libraries.
    lib: Option<PathBuf>,
}

impl Installation {
    /// The installation of `version` ("9.6", "10" to "18"), if there is one.
    pub fn find(version: &str) -> Option<Self> {
        Self::in_servers_dir(version).or_else(|| Self::of_debian(version))
    }

    /// The installation that `cargo xtask servers` has made, if there is one.
    pub fn in_servers_dir(version: &str) -> Option<Self> {
        let root = servers_dir().join(version);
        Self::at(version, root.join("bin"), Some(root.join("lib")))
    }

    /// The installation of Debian's package, if there is one.
    pub fn of_debian(version: &str) -> Option<Self> {
        let bin = Path::new("/usr/lib/postgresql").join(version).join("bin");
        Self::at(version, bin, None)
    }

    fn at(version: &str, bin: PathBuf, lib: Option<PathBuf>) -> Option<Self> {
        let major = version.split('.').next()?.parse().ok()?;
        let complete = ["initdb", "postgres"].iter().all(|program| bin.join(program).is_file());
        complete.then(|| Self { major, version: version.to_owned(), bin, lib })
    }

    /// The installation of `version` for a test. When there is none this says so
    /// on standard error, past the capture of the test harness, and gives
    /// nothing: the test then returns. It fails instead if `PAGEWARDEN_REQUIRE`
    /// lists `postgres`.
    pub fn for_test(version: &str) -> Result<Option<Self>> {
        let found = Self::find(version);
        if found.is_none() {
            let hint = format!("cargo xtask servers {version}");
            if required("postgres") {
                bail!("PAGEWARDEN_REQUIRE asks for PostgreSQL {version}\nhint: {hint}");
            }
            writeln!(io::stderr(), "SKIPPED: PostgreSQL {version} is not installed here; {hint}")?;
        }
        Ok(found)
    }

    /// Every installation on this machine, oldest version first.
    pub fn all() -> Vec<Self> {
        VERSIONS.iter().filter_map(|version| Self::find(version)).collect()
    }

    /// The newest installation that has `program`. A newer client can speak to
    /// an older server, and the packages of 9.6 to 13 come without clients.
    pub fn newest_with(program: &str) -> Option<Self> {
        Self::all().into_iter().rev().find(|one| one.has(program))
    }

    /// True when `program` ("psql", "`pg_checksums`") is part of it.
    pub fn has(&self, program: &str) -> bool {
        self.program(program).is_file()
    }

    /// The path of a program, present or not.
    pub fn program(&self, program: &str) -> PathBuf {
        self.bin.join(program)
    }

    /// A command that runs `program` as the ordinary user, with `LC_ALL=C`,
    /// `TZ=UTC`, no inherited `PG*` variable, and `/` as current directory
    /// (ours may be closed to that user).
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.program(program));
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
        if let Some(lib) = &self.lib {
            command.env("LD_LIBRARY_PATH", lib);
        }
        if let Some(user) = OrdinaryUser::to_become() {
            // Setting the uid as root also clears the supplementary groups.
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// What the server calls itself, for example "15.20" or "9.6.24".
    /// Fails when the program cannot be run.
    pub fn server_version(&self) -> Result<String> {
        self.check_reachable()?;
        let output = self
            .command("postgres")
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {}", self.program("postgres").display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)"
        let version = text.split_whitespace().nth(2).unwrap_or_default();
        if !output.status.success() || version.is_empty() {
            bail!(
                "{} --version fails: {}",
                self.program("postgres").display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(version.to_owned())
    }

    /// True when the extension `name` ("pageinspect") can be created.
    pub fn has_extension(&self, name: &str) -> bool {
        let file = format!("extension/{name}.control");
        let Some(root) = self.bin.parent() else {
            return false;
        };
        // Both kinds of package in servers_dir() come with their share directory.
        let shares = match &self.lib {
            Some(_) => [root.join("share"), root.join("share/postgresql")],
            None => {
                let share = Path::new("/usr/share/postgresql").join(&self.version);
                [share.clone(), share]
            }
        };
        shares.iter().any(|share| share.join(&file).is_file())
    }

    /// Fails, saying which directory is closed, when the ordinary user cannot
    /// get at the programs. The kernel itself says only "permission denied".
    pub fn check_reachable(&self) -> Result<()> {
        if OrdinaryUser::to_become().is_none() {
            return Ok(());
        }
        for directory in self.bin.ancestors() {
            if !is_searchable_by_all(directory) {
                bail!(
                    "the server must not run as root, and {} is closed to other users\n\
                     hint: open it with chmod a+x, or set PAGEWARDEN_SERVERS to another directory",
                    directory.display()
                );
            }
        }
        Ok(())
    }
}

/// The directory that `cargo xtask servers` fills: `$PAGEWARDEN_SERVERS`, or
/// `target/servers` of this workspace, wherever cargo's own target is.
pub fn servers_dir() -> PathBuf {
    if let Some(directory) = env::var_os("PAGEWARDEN_SERVERS") {
        // The programs run with another current directory than ours.
        return path::absolute(&directory).unwrap_or_else(|_| PathBuf::from(directory));
    }
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = crate_dir.ancestors().nth(2).unwrap_or(crate_dir);
    workspace.join("target/servers")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with `PAGEWARDEN_REQUIRE=postgres` this checks the other half.
    #[test]
    fn missing_server_skips_a_test_unless_it_is_required() {
        let answer = Installation::for_test("8.4");
        assert_eq!(answer.is_err(), required("postgres"));
        assert_eq!(answer.unwrap_or_default(), None);
    }

    #[test]
    fn unknown_version_is_not_found() {
        assert_eq!(Installation::find("8.4"), None);
        assert_eq!(Installation::find(""), None);
        assert_eq!(Installation::find("../15"), None);
    }
}
