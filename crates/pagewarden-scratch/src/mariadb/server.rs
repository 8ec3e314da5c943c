//! One data directory and its server, removed together.
//!
//! | path | what |
//! |---|---|
//! | `<temp>/pagewarden-XXXXXX/` | mode 0700, owned by the server's user |
//! | `.../data/` | the data directory |
//! | `.../socket` | the only way in; no network |
//! | `.../server.log` | what the server said, all starts |
//!
//! The server's own root has no password, which is safe because no other user can
//! reach the socket.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::installation::Installation;
use crate::home::{Home, copy_tree};
use crate::processes;
use crate::programs::expect_success;

const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// Little memory, nothing outside our directory; options that come later win.
const BASE_OPTIONS: &[&str] = &[
    "skip-networking",
    "skip-name-resolve",
    "innodb_buffer_pool_size=16M",
    "innodb_log_file_size=64M",
    "performance_schema=OFF",
    "default_time_zone=+00:00",
];

/// A server of our own. Dropping it stops it and removes every file.
#[derive(Debug)]
pub struct Server {
    installation: Installation,
    options: Vec<String>,
    server: Option<Child>,
    data_dir: PathBuf,
    home: Home,
}

impl Server {
    /// Makes a data directory. `options` are those of the server's command line,
    /// without dashes. The server is not started.
    ///
    /// # Errors
    /// It could not be made; nothing is left behind.
    pub fn install(installation: &Installation, options: &[&str]) -> Result<Self> {
        let server = Self::empty(installation, options)?;
        let mut command = installation.install();
        command
            .current_dir(server.home.path())
            // Each server clears the temporary tables in its folder away when it starts, those of
            // others too.
            .env("TMPDIR", server.home.path())
            .args(["--no-defaults", "--auth-root-authentication-method=normal"])
            .args(["--skip-test-db", "--skip-name-resolve"])
            .arg(format!("--datadir={}", server.data_dir.display()));
        for option in options {
            // Page size and checksum algorithm shape the first files already.
            command.arg(format!("--{option}"));
        }
        expect_success(&mut command, None)?;
        Ok(server)
    }

    /// A copy of the stopped server's files with a server of its own, which is
    /// not started, under other options.
    ///
    /// # Errors
    /// This server runs, or the files could not be copied.
    pub fn duplicate(&mut self, options: &[&str]) -> Result<Self> {
        ensure!(!self.is_running(), "the server must be stopped before its files are copied");
        let copy = Self::empty(&self.installation, options)?;
        copy_tree(&self.data_dir, &copy.data_dir)?;
        Ok(copy)
    }

    fn empty(installation: &Installation, options: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        Ok(Self {
            installation: installation.clone(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            server: None,
            data_dir: home.path().join("data"),
            home,
        })
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The directory with everything in it.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Where `pagewarden` connects to.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@/{database}?socket={}", self.socket().display())
    }

    /// The server's process number while it runs.
    pub fn pid(&mut self) -> Option<u32> {
        let child = self.server.as_mut()?;
        if let Ok(None) = child.try_wait() {
            return Some(child.id());
        }
        self.server = None;
        None
    }

    /// True while the server runs.
    pub fn is_running(&mut self) -> bool {
        self.pid().is_some()
    }

    /// Everything the server has said.
    pub fn log(&self) -> String {
        fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
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
        let mut command = self.installation.server();
        command
            .current_dir(self.home.path())
            .arg("--no-defaults")
            .arg(format!("--datadir={}", self.data_dir.display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.home.path().join("pid").display()))
            .arg(format!("--tmpdir={}", self.data_dir.display()));
        for option in BASE_OPTIONS.iter().copied().chain(self.options.iter().map(String::as_str)) {
            command.arg(format!("--{option}"));
        }
        self.server = Some(self.home.start(&mut command, &log).context("cannot start MariaDB")?);
        let begin = Instant::now();
        while !self.answers() {
            if begin.elapsed() > START_LIMIT || !self.is_running() {
                self.kill();
                bail!("MariaDB does not start:\n{}", self.log().trim());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Stops the server and waits until it is gone. Does nothing if it does not
    /// run.
    ///
    /// # Errors
    /// It takes too long; it is still there then.
    pub fn stop(&mut self) -> Result<()> {
        let Some(pid) = self.pid() else {
            return Ok(());
        };
        processes::signal(pid, Signal::TERM);
        let begin = Instant::now();
        while self.is_running() {
            ensure!(begin.elapsed() < STOP_LIMIT, "MariaDB does not stop:\n{}", self.log());
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Runs SQL and returns the rows, a line each, columns separated by tabs.
    /// The first error ends the run and is returned.
    ///
    /// # Errors
    /// What the server said about it.
    pub fn sql(&self, sql: &str) -> Result<String> {
        let output = expect_success(&mut self.client(), Some(sql))?;
        Ok(output.stdout.trim_end_matches('\n').to_owned())
    }

    /// The client program, set up to reach this server; statements come from
    /// its standard input.
    pub fn client(&self) -> Command {
        let mut command = self.installation.client();
        command
            .current_dir(self.home.path())
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket().display()));
        command
    }

    /// The only way in.
    pub fn socket(&self) -> PathBuf {
        self.home.path().join("socket")
    }

    fn answers(&self) -> bool {
        self.socket().exists() && self.sql("SELECT 1").is_ok()
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("server.log")
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // No process reads these files again.
        self.kill();
    }
}
