//! One data directory and its server, removed together.
//!
//! Everything lies in one private directory, so that removing it leaves nothing:
//!
//! | path | what |
//! |---|---|
//! | `<temp>/pagewarden-XXXXXX/` | mode 0700, owned by the server's user |
//! | `.../data/` | the data directory |
//! | `.../tablespace_<name>/` | where a tablespace's link leads |
//! | `.../.s.PGSQL.5432` | the socket; the path must stay below 107 bytes |
//! | `.../server.log` | what the server said, all starts |
//!
//! `trust` authentication is safe because no other user can reach the socket.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::installation::Installation;
use crate::account::OrdinaryUser;
use crate::home::{Home, copy_tree, own, own_tree};
use crate::processes;
use crate::programs::{ToolOutput, expect_success, run};

/// The only port there is, in a socket directory of our own.
const PORT: u16 = 5432;
/// The superuser of every scratch cluster, whatever the account is called.
const SUPERUSER: &str = "postgres";
/// A busy machine may take long over crash recovery.
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);

/// Speed before durability, little memory, nothing outside our directory.
/// Shared memory for parallel queries is kept in files of the data directory:
/// in `/dev/shm` a crash would leave it behind. Commits stay synchronous, which
/// is cheap without fsync: what a crash must keep is then known.
const BASE_SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "''"),
    ("unix_socket_permissions", "0700"),
    ("fsync", "off"),
    ("shared_buffers", "16MB"),
    ("max_connections", "30"),
    ("dynamic_shared_memory_type", "mmap"),
    ("timezone", "'UTC'"),
    ("log_timezone", "'UTC'"),
    ("lc_messages", "'C'"),
];

/// What a cluster is made with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Data checksums; on unless said otherwise.
    pub checksums: bool,
    /// Size of a WAL segment in MiB (11 and later only); the server's own
    /// default of 16 when absent.
    pub wal_segment_mib: Option<u32>,
    /// Lines of `postgresql.conf`, as (name, value); a value that needs quotes
    /// brings them. The last one of a name wins, so these win over our own.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { checksums: true, wal_segment_mib: None, settings: Vec::new() }
    }
}

impl Options {
    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// How a server is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Waits until every client has gone, then writes a checkpoint.
    Smart,
    /// Ends the clients' sessions, then writes a checkpoint.
    Fast,
    /// Stops without a checkpoint; the next start recovers.
    Immediate,
}

/// A cluster of our own. Dropping it stops the server and removes every file.
#[derive(Debug)]
pub struct Cluster {
    installation: Installation,
    server: Option<Child>,
    preloaded: Option<PathBuf>,
    data_dir: PathBuf,
    home: Home,
}

impl Cluster {
    /// Makes a cluster with `initdb`. The server is not started.
    /// On failure nothing is left behind.
    pub fn init(installation: &Installation, options: &Options) -> Result<Self> {
        let cluster = Self::empty(installation)?;
        let mut command = installation.command("initdb");
        command
            .current_dir(cluster.home.path())
            .arg("-D")
            .arg(&cluster.data_dir)
            .args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "-N"])
            .arg("--locale=C");
        match (options.checksums, installation.major) {
            (true, _) => command.arg("--data-checksums"),
            (false, 18..) => command.arg("--no-data-checksums"),
            (false, _) => &mut command,
        };
        if let Some(size) = options.wal_segment_mib {
            ensure!(
                installation.major >= 11,
                "PostgreSQL {} has a fixed WAL segment size",
                installation.version
            );
            command.arg(format!("--wal-segsize={size}"));
        }
        expect_success(&mut command, None)?;

        let base = BASE_SETTINGS.iter().copied();
        let own = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        cluster.append_settings(base.chain(own))?;
        Ok(cluster)
    }

    /// A copy with a server of its own, for experiments on a prepared cluster.
    /// Fails when this one is running. The copy is not started.
    pub fn duplicate(&self) -> Result<Self> {
        let copy = Self::empty(&self.installation)?;
        self.copy_files(&copy.data_dir, |name| {
            Ok(copy.home.path().join(format!("tablespace_{name}")))
        })?;
        // Left by a crash; the number in it may belong to someone by now.
        remove_if_present(&copy.data_dir.join("postmaster.pid"))?;
        Ok(copy)
    }

    /// A cluster whose data directory `fill` writes into an empty folder, with all that belongs to it
    /// beside that: a backup that was brought back. Its settings are ours. The server is not started.
    ///
    /// # Errors
    /// What `fill` gives, or there is no room.
    pub fn filled<T>(
        settings: &[(&str, &str)],
        fill: impl FnOnce(&Path) -> Result<(Installation, T)>,
    ) -> Result<(Self, T)> {
        let home = Home::new()?;
        // Until all is there no other user gets in: the server's user must not lead these writes elsewhere.
        home.keep()?;
        let data_dir = home.path().join("data");
        fs::create_dir(&data_dir)?;
        fs::set_permissions(&data_dir, Permissions::from_mode(0o700))?;
        let (installation, filled) = fill(&data_dir)?;
        installation.check_reachable()?;
        let cluster = Self { installation, server: None, preloaded: None, data_dir, home };
        fs::write(cluster.data_dir.join("postgresql.conf"), "")?;
        fs::write(cluster.data_dir.join("pg_ident.conf"), "")?;
        fs::write(cluster.data_dir.join("pg_hba.conf"), "local all all trust\n")?;
        cluster.append_settings(BASE_SETTINGS.iter().chain(settings).copied())?;
        own_tree(cluster.home.path())?;
        Ok((cluster, filled))
    }

    /// A home without a data directory.
    fn empty(installation: &Installation) -> Result<Self> {
        installation.check_reachable()?;
        let home = Home::new()?;
        Ok(Self {
            installation: installation.clone(),
            server: None,
            preloaded: None,
            data_dir: home.path().join("data"),
            home,
        })
    }

    /// The programs this cluster is run with.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The directory with everything in it, also a place for a test's own files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The directory of the Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.home.path()
    }

    /// The port, which on a Unix socket is only a part of its name.
    pub fn port(&self) -> u16 {
        PORT
    }

    /// Where a client connects to, as a libpq keyword string.
    pub fn connection_string(&self, database: &str) -> String {
        format!(
            "host={} port={PORT} user={SUPERUSER} dbname={database}",
            self.socket_dir().display()
        )
    }

    /// Where `pagewarden` connects to.
    pub fn url(&self, database: &str) -> String {
        let socket = self.socket_dir().display();
        format!("postgres://{SUPERUSER}@:{PORT}/{database}?socket={socket}")
    }

    /// Everything the server has said since `init`.
    pub fn log(&self) -> String {
        fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Adds lines to `postgresql.conf`; they count from the next start.
    pub fn append_settings<'a>(
        &self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<()> {
        let path = self.data_dir.join("postgresql.conf");
        let lines: String =
            settings.into_iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(lines.as_bytes()))
            .with_context(|| format!("cannot add settings to {}", path.display()))
    }

    /// Has the server load a library before all others, from its next start on.
    pub fn preload(&mut self, library: PathBuf) {
        self.preloaded = Some(library);
    }

    /// The server's process number while it runs.
    pub fn postmaster_pid(&mut self) -> Option<u32> {
        let child = self.server.as_mut()?;
        match child.try_wait() {
            Ok(None) => Some(child.id()),
            _ => {
                self.server = None;
                None
            }
        }
    }

    /// True while the server runs.
    pub fn is_running(&mut self) -> bool {
        self.postmaster_pid().is_some()
    }

    /// Starts the server and waits until it takes connections. Does nothing if
    /// it runs already. On failure the server is stopped and the error holds
    /// the end of its log.
    pub fn start(&mut self) -> Result<()> {
        self.start_within(START_LIMIT, &|| false)
    }

    /// The same, with this much time for it, as a recovery may take long, or until `is_over`.
    pub fn start_within(&mut self, limit: Duration, is_over: &dyn Fn() -> bool) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let log_begin = self.log().len();
        let pid = self.spawn()?;
        let begin = Instant::now();
        while !self.is_ready(pid, log_begin) {
            let timed_out = begin.elapsed() > limit || is_over();
            if timed_out || !self.is_running() {
                self.kill_all();
                let log = self.log();
                bail!(
                    "PostgreSQL {} {}:\n{}",
                    self.installation.version,
                    if timed_out { "does not become ready" } else { "ends at its start" },
                    log.get(log_begin..).unwrap_or(&log).trim()
                );
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Starts the server, which is to end by itself: one that replays log to a target at which it shuts
    /// down. Gives what it said.
    ///
    /// # Errors
    /// It cannot be started, or has not ended in this time or when it `is_over`.
    pub fn run_to_its_end(
        &mut self,
        limit: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<String> {
        let log_begin = self.log().len();
        self.spawn()?;
        let begin = Instant::now();
        while self.is_running() {
            if begin.elapsed() > limit || is_over() {
                self.kill_all();
                bail!("PostgreSQL {} was ended before it was done", self.installation.version);
            }
            thread::sleep(POLL);
        }
        let log = self.log();
        Ok(log.get(log_begin..).unwrap_or(&log).to_owned())
    }

    /// Starts the server; its process.
    fn spawn(&mut self) -> Result<u32> {
        let log = self.open_log()?;
        let mut command = self.installation.command("postgres");
        command
            .arg("-D")
            .arg(&self.data_dir)
            .arg("-k")
            .arg(self.socket_dir())
            .args(["-p", &PORT.to_string()]);
        if let Some(library) = &self.preloaded {
            command.env("LD_PRELOAD", library);
        }
        let child = self
            .home
            .start(&mut command, &log)
            .with_context(|| format!("cannot start PostgreSQL {}", self.installation.version))?;
        let pid = child.id();
        self.server = Some(child);
        Ok(pid)
    }

    /// Stops the server and waits until it is gone. Does nothing if it does not
    /// run. Fails, with the server still there, if it takes too long.
    pub fn stop(&mut self, mode: StopMode) -> Result<()> {
        let Some(pid) = self.postmaster_pid() else {
            return Ok(());
        };
        // The signals of pg_ctl, which not every package has.
        let signal = match mode {
            StopMode::Smart => Signal::TERM,
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        };
        processes::signal(pid, signal);
        let begin = Instant::now();
        while self.is_running() {
            if begin.elapsed() > STOP_LIMIT {
                bail!("the server does not stop ({mode:?}):\n{}", self.log());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Kills the server with all its children at once, as a power failure
    /// would, except that the system's cache survives. Data files and
    /// `postmaster.pid` stay as they are at that moment.
    pub fn crash(&mut self) -> Result<()> {
        ensure!(self.is_running(), "there is no running server to crash");
        self.kill_all();
        Ok(())
    }

    /// Runs SQL in the database `postgres` and returns the rows, a line each,
    /// columns separated by `|`. Every statement is a transaction of its own;
    /// the first error ends the run and is returned.
    ///
    /// Where the installation has no psql the newest one on this machine is
    /// used. Fails when there is none: then see [`Cluster::single_user`].
    pub fn psql(&self, sql: &str) -> Result<String> {
        self.psql_in("postgres", sql)
    }

    /// As [`Cluster::psql`], in another database.
    pub fn psql_in(&self, database: &str, sql: &str) -> Result<String> {
        let mut command = self.client("psql")?;
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-f", "-"])
            .args(["-d", database]);
        let output = expect_success(&mut command, Some(sql))?;
        Ok(output.stdout.trim_end_matches('\n').to_owned())
    }

    /// Runs statements in the stopped cluster through `postgres --single`,
    /// which every package has. Rows come as from [`Cluster::psql`], except
    /// that null columns are left out. The first error ends the run.
    ///
    /// The cluster is cleanly shut down again afterwards.
    pub fn single_user(&mut self, database: &str, statements: &[&str]) -> Result<String> {
        ensure!(!self.is_running(), "single-user mode needs the server stopped");
        // With -j a statement ends at a semicolon and an empty line; without
        // exit_on_error the program would report an error and end with 0.
        let mut script = String::new();
        for statement in statements {
            script.push_str(statement.trim().trim_end_matches(';'));
            script.push_str(";\n\n");
        }
        let mut command = self.installation.command("postgres");
        command.args(["--single", "-j", "-D"]).arg(&self.data_dir).args([
            "-c",
            "exit_on_error=true",
            database,
        ]);
        let output = expect_success(&mut command, Some(&script))?;
        Ok(single_user_rows(&output.stdout))
    }

    /// Runs statements in whatever way is open: psql while the server runs,
    /// single-user mode while it does not.
    pub fn execute(&mut self, database: &str, statements: &[&str]) -> Result<String> {
        if self.is_running() {
            self.psql_in(database, &format!("{};", statements.join(";\n")))
        } else {
            self.single_user(database, statements)
        }
    }

    /// True when [`Cluster::psql`] can work.
    pub fn has_psql(&self) -> bool {
        self.client("psql").is_ok()
    }

    /// Runs pgbench with the given arguments against the database `postgres`.
    pub fn pgbench(&self, arguments: &[&str]) -> Result<ToolOutput> {
        expect_success(self.client("pgbench")?.args(arguments), None)
    }

    /// Runs the server's own checksum tool on the data directory:
    /// `pg_checksums`, or `pg_verify_checksums` of 11. Damage is no error here
    /// but an exit status. Fails when the installation has no such tool.
    pub fn pg_checksums(&self, arguments: &[&str]) -> Result<ToolOutput> {
        let program = ["pg_checksums", "pg_verify_checksums"]
            .into_iter()
            .find(|program| self.installation.has(program))
            .with_context(|| {
                format!("PostgreSQL {} comes without pg_checksums here", self.installation.version)
            })?;
        run(self.tool(program).args(arguments).arg("-D").arg(&self.data_dir), None)
    }

    /// A command that runs a client program (psql, `pg_basebackup`, pgbench)
    /// with the environment set to reach this cluster. A program that the
    /// installation lacks is taken from the newest installation that has it.
    pub fn client(&self, program: &str) -> Result<Command> {
        let mut command = if self.installation.has(program) {
            self.installation.command(program)
        } else {
            Installation::newest_with(program)
                .with_context(|| {
                    format!(
                        "no installation has {program}\n\
                         hint: cargo xtask servers 15"
                    )
                })?
                .command(program)
        };
        command
            .current_dir(self.home.path())
            .env("PGHOST", self.socket_dir())
            .env("PGPORT", PORT.to_string())
            .env("PGUSER", SUPERUSER)
            .env("PGDATABASE", "postgres");
        Ok(command)
    }

    /// A command that runs a program of this installation on the data directory.
    /// It works in the cluster's home, so that it ends with it.
    pub fn tool(&self, program: &str) -> Command {
        let mut command = self.installation.command(program);
        command.current_dir(self.home.path());
        command
    }

    /// The home, to limit its memory or to look at its cache.
    pub fn home_of_server(&self) -> &Home {
        &self.home
    }

    /// Makes a directory in [`Cluster::home`] that the server may write to.
    pub fn add_dir(&self, name: &str) -> Result<PathBuf> {
        let directory = self.home.path().join(name);
        fs::create_dir(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        own(&directory)?;
        Ok(directory)
    }

    /// Makes a tablespace and returns the directory behind it.
    pub fn add_tablespace(&mut self, name: &str) -> Result<PathBuf> {
        ensure!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "the name of a tablespace must be of a-z and _: {name}"
        );
        let directory = self.add_dir(&format!("tablespace_{name}"))?;
        let sql = format!("CREATE TABLESPACE {name} LOCATION '{}'", directory.display());
        self.execute("postgres", &[&sql])?;
        Ok(directory)
    }

    /// The file of a relation's first segment, relative to the data directory.
    pub fn relation_path(&mut self, database: &str, relation: &str) -> Result<PathBuf> {
        let sql = format!("SELECT pg_relation_filepath('{relation}'::regclass)");
        let path = self.execute(database, &[&sql])?;
        ensure!(!path.is_empty(), "{relation} has no file");
        Ok(PathBuf::from(path))
    }

    /// Copies the stopped cluster to `target`, which must not exist, and its
    /// tablespaces to `<target>-tablespaces/`; the copy's links lead there.
    /// Owner, mode and times are kept. Fails when the server runs.
    pub fn copy_data_dir(&self, target: &Path) -> Result<()> {
        self.copy_files(target, |name| {
            let mut directory = target.as_os_str().to_owned();
            directory.push("-tablespaces");
            let directory = PathBuf::from(directory);
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
            own(&directory)?;
            Ok(directory.join(name))
        })
    }

    fn copy_files(
        &self,
        target: &Path,
        place_of_tablespace: impl Fn(&str) -> Result<PathBuf>,
    ) -> Result<()> {
        // A crashed server leaves this file too, but then no process answers.
        ensure!(
            self.server
                .as_ref()
                .is_none_or(|child| processes::wait_for_end(&[child.id()], Duration::ZERO)),
            "the server must be stopped before its files are copied"
        );
        ensure!(!target.exists(), "{} exists", target.display());
        copy_tree(&self.data_dir, target)?;
        let links = target.join("pg_tblspc");
        for entry in fs::read_dir(&links)? {
            let entry = entry?;
            if !entry.file_type()?.is_symlink() {
                continue;
            }
            let link = entry.path();
            let place = place_of_tablespace(&entry.file_name().to_string_lossy())?;
            copy_tree(&fs::read_link(&link)?, &place)?;
            fs::remove_file(&link)?;
            std::os::unix::fs::symlink(&place, &link)?;
            if let Some(user) = OrdinaryUser::to_become() {
                std::os::unix::fs::lchown(&link, Some(user.uid), Some(user.gid))?;
            }
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("server.log")
    }

    fn open_log(&self) -> Result<File> {
        let path = self.log_path();
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))
    }

    /// Since 10 the server says in line 8 of its pid file that it is ready. A
    /// crash leaves that file, so line 1 must be our process.
    fn is_ready(&self, pid: u32, log_begin: usize) -> bool {
        if self.installation.major < 10 {
            let log = self.log();
            return log.get(log_begin..).is_some_and(|log| log.contains("ready to accept"));
        }
        let text = fs::read_to_string(self.data_dir.join("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        lines.next() == Some(&pid.to_string()) && lines.nth(6) == Some("ready")
    }

    /// Ends postmaster and children without a word and waits for all of them.
    fn kill_all(&mut self) {
        let Some(mut child) = self.server.take() else {
            return;
        };
        let pid = child.id();
        // Stopped first: it must not start another child while we count them.
        processes::signal(pid, Signal::STOP);
        processes::wait_for_stop(pid, Duration::from_secs(1));
        let children = processes::children(pid);
        for process in &children {
            processes::signal(*process, Signal::KILL);
        }
        processes::signal(pid, Signal::KILL);
        let _ = child.wait();
        processes::wait_for_end(&children, Duration::from_secs(10));
    }

    /// Gives back the System V segment that a killed server leaves: its number
    /// is the second one in line 7 of the pid file, which a clean stop removes.
    fn remove_shared_memory(&self) {
        let path = self.data_dir.join("postmaster.pid");
        let text = fs::read_to_string(path).unwrap_or_default();
        if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm")
                .args(["-m", id])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // No process reads these files again, but the polite way gives back the
        // shared memory too.
        if let Some(pid) = self.postmaster_pid() {
            processes::signal(pid, Signal::QUIT);
            let begin = Instant::now();
            while self.is_running() && begin.elapsed() < Duration::from_secs(10) {
                thread::sleep(POLL);
            }
            self.kill_all();
        }
        self.remove_shared_memory();
    }
}

fn remove_if_present(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The rows in what `postgres --single` prints. A value comes as
/// `<tab> 1: name = "value"<tab>(typeid = ...)`, a row ends with `<tab>----`,
/// and the prompt stands before the first line of an answer.
fn single_user_rows(text: &str) -> String {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    for line in text.lines() {
        let line = line.trim_start_matches("backend> ");
        if line == "\t----" {
            if !row.is_empty() {
                rows.push(row.join("|"));
                row.clear();
            }
        } else if let Some((head, _)) = line.rsplit_once("\"\t(typeid = ")
            && let Some((_, value)) = head.split_once(" = \"")
        {
            row.push(value);
        }
    }
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_from_the_single_user_dialogue() {
        let text = "\nPostgreSQL stand-alone backend 15.20\n\
            backend> \t 1: a\t(typeid = 23, len = 4, typmod = -1, byval = t)\n\
            \t 2: b\t(typeid = 25, len = -1, typmod = -1, byval = f)\n\
            \t----\n\
            \t 1: a = \"7\"\t(typeid = 23, len = 4, typmod = -1, byval = t)\n\
            \t 2: b = \"x = \"y\"\"\t(typeid = 25, len = -1, typmod = -1, byval = f)\n\
            \t----\n\
            \t 1: a = \"8\"\t(typeid = 23, len = 4, typmod = -1, byval = t)\n\
            \t----\nbackend> ";
        assert_eq!(single_user_rows(text), "7|x = \"y\"\n8");
    }
}
