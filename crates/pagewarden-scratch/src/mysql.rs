//! MySQL, with a data directory of its own, removed together.
//!
//! Its programs are those that `cargo xtask servers mysql` unpacks into `target/servers/mysql/`
//! (`PAGEWARDEN_SERVERS` names another directory in its stead), with every library that they need:
//! they run by the loader beside them, whatever this machine has.
//!
//! | path | what |
//! |---|---|
//! | `<temp>/pagewarden-XXXXXX/` | mode 0700, owned by the server's user |
//! | `.../data/` | the data directory |
//! | `.../socket` | the only way in; no network |
//! | `.../server.log` | what the server said, all starts |
//! | `.../sbin/`, `.../plugin/` | links to the programs, where the server keeps keys: what names the keyring must lie beside them |
//! | `.../keyring` | the keys of `component_keyring_file` |

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use crate::account::OrdinaryUser;
use crate::home::Home;
use crate::postgres::servers_dir;
use crate::programs::expect_success;
use crate::{processes, required};

const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);
/// How to come by one.
const INSTALL: &str = "cargo xtask servers mysql";
/// Where the packages keep libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The programs of one MySQL.
#[derive(Debug, Clone)]
pub struct Installation {
    root: PathBuf,
}

impl Installation {
    /// The one beside the other servers, if it is there.
    pub fn find() -> Option<Self> {
        let root = servers_dir().join("mysql");
        let complete =
            ["usr/sbin/mysqld", "usr/bin/mysql"].iter().all(|one| root.join(one).is_file());
        complete.then_some(Self { root })
    }

    /// The installation for a test. When there is none this says so on standard error and gives
    /// nothing: the test then returns. It fails instead if `PAGEWARDEN_REQUIRE` lists `mysql`.
    ///
    /// # Errors
    /// It is required and not there.
    pub fn for_test() -> Result<Option<Self>> {
        let found = Self::find();
        if found.is_none() {
            if required("mysql") {
                bail!("PAGEWARDEN_REQUIRE asks for MySQL\nhint: {INSTALL}");
            }
            writeln!(io::stderr(), "SKIPPED: MySQL is not installed here; {INSTALL}")?;
        }
        Ok(found)
    }

    /// The client program.
    pub(crate) fn client(&self) -> Command {
        self.command("usr/bin/mysql")
    }

    /// Runs a program of it by its own loader, as an ordinary user.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let libraries = self.root.join(LIBRARIES);
        let private = self.root.join("usr/lib/mysql/private");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(format!("{}:{}", libraries.display(), private.display()))
            .arg(self.root.join(program))
            .arg("--no-defaults")
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env_remove("MYSQL_HOME")
            .current_dir("/");
        if let Some(user) = OrdinaryUser::to_become() {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }
}

/// A server of our own. Dropping it stops it and removes every file.
#[derive(Debug)]
pub struct Server {
    installation: Installation,
    options: Vec<String>,
    has_keyring: bool,
    server: Option<Child>,
    data_dir: PathBuf,
    home: Home,
}

impl Server {
    /// Makes a data directory. The server is not started.
    ///
    /// # Errors
    /// It could not be made; nothing is left behind.
    pub fn install(installation: &Installation) -> Result<Self> {
        Self::empty(installation, &[], false)?.initialized()
    }

    /// The same with options of the server's command line, without dashes, and with a keyring, so
    /// that tables can be encrypted.
    ///
    /// # Errors
    /// It could not be made; nothing is left behind.
    pub fn install_with_keyring(installation: &Installation, options: &[&str]) -> Result<Self> {
        Self::empty(installation, options, true)?.initialized()
    }

    fn empty(installation: &Installation, options: &[&str], has_keyring: bool) -> Result<Self> {
        let home = Home::new()?;
        let made = Self {
            installation: installation.clone(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            has_keyring,
            server: None,
            data_dir: home.path().join("data"),
            home,
        };
        if has_keyring {
            made.lay_out_keyring()?;
        }
        Ok(made)
    }

    fn initialized(self) -> Result<Self> {
        let mut command = self.program();
        command.current_dir(self.home.path()).arg("--initialize-insecure");
        expect_success(&mut command, None)?;
        Ok(self)
    }

    /// The server looks for `mysqld.my` beside the name that it was started by, and for the
    /// component's settings beside the component.
    fn lay_out_keyring(&self) -> Result<()> {
        let root = &self.installation.root;
        let (sbin, plugin) = (self.home.path().join("sbin"), self.home.path().join("plugin"));
        fs::create_dir(&sbin)?;
        fs::create_dir(&plugin)?;
        symlink(root.join("usr/sbin/mysqld"), sbin.join("mysqld"))?;
        for entry in fs::read_dir(root.join("usr/lib/mysql/plugin"))? {
            let entry = entry?;
            symlink(entry.path(), plugin.join(entry.file_name()))?;
        }
        let component = r#"{ "components": "file://component_keyring_file" }"#;
        fs::write(sbin.join("mysqld.my"), component)?;
        let keyring = self.home.path().join("keyring");
        let settings = format!(r#"{{ "path": "{}", "read_only": false }}"#, keyring.display());
        Ok(fs::write(plugin.join("component_keyring_file.cnf"), settings)?)
    }

    /// The file with the keys of its tables, if it was made with one.
    pub fn keyring(&self) -> Option<PathBuf> {
        self.has_keyring.then(|| self.home.path().join("keyring"))
    }

    /// The server's program.
    fn program(&self) -> Command {
        let root = &self.installation.root;
        let beside_keys = self.home.path().join("sbin/mysqld");
        let program = if self.has_keyring { &*beside_keys } else { Path::new("usr/sbin/mysqld") };
        let mut command = self.installation.command(program);
        command
            .arg(format!("--datadir={}", self.data_dir.display()))
            .arg(format!("--basedir={}", root.join("usr").display()))
            .arg(format!("--lc-messages-dir={}", root.join("usr/share/mysql").display()))
            .arg("--secure-file-priv=NULL");
        if self.has_keyring {
            command.arg(format!("--plugin-dir={}", self.home.path().join("plugin").display()));
        }
        for option in &self.options {
            command.arg(format!("--{option}"));
        }
        command
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Where `pagewarden` connects to.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@/{database}?socket={}", self.socket().display())
    }

    /// True while the server runs.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Everything the server has said.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("server.log")
    }

    /// Starts the server and waits until it answers. Does nothing if it runs.
    ///
    /// # Errors
    /// It does not come up; it is then stopped, and the error holds its log.
    pub fn start(&mut self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = self.program();
        command
            .current_dir(self.home.path())
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.home.path().join("pid").display()))
            .arg(format!("--tmpdir={}", self.data_dir.display()))
            .args(["--skip-networking", "--skip-log-bin", "--mysqlx=0"])
            .args(["--innodb-buffer-pool-size=16M", "--performance-schema=OFF"]);
        self.server = Some(self.home.start(&mut command, &log).context("cannot start MySQL")?);
        let begin = Instant::now();
        while self.sql("SELECT 1").is_err() {
            if begin.elapsed() > LIMIT || !self.is_running() {
                self.kill();
                bail!("MySQL does not start:\n{}", self.log().trim());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Stops the server and waits until it is gone. Does nothing if it does not run.
    ///
    /// # Errors
    /// It takes too long; it is still there then.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(child) = self.server.as_ref() {
            processes::signal(child.id(), Signal::TERM);
        }
        let begin = Instant::now();
        while self.is_running() {
            ensure!(begin.elapsed() < LIMIT, "MySQL does not stop");
            thread::sleep(POLL);
        }
        self.server = None;
        Ok(())
    }

    /// Ends the server as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Runs SQL and returns the rows, a line each, columns separated by tabs.
    ///
    /// # Errors
    /// What the server said about it.
    pub fn sql(&self, sql: &str) -> Result<String> {
        let output = expect_success(&mut self.client(), Some(sql))?;
        Ok(output.stdout.trim_end_matches('\n').to_owned())
    }

    /// The client program, set up to reach this server; statements come from its standard input.
    pub fn client(&self) -> Command {
        let mut command = self.installation.client();
        command
            .args(["--user=root", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket().display()));
        command
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join("socket")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // No process reads these files again.
        self.kill();
    }
}
