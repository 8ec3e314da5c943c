//! The private directory of one server, and what belongs to it.
//!
//! Whatever a server or a program beside it makes lies below this directory, so
//! that removing it leaves nothing. A watchman removes it when we cannot.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

use crate::account::{OrdinaryUser, is_searchable_by_all};
use crate::programs::expect_success;
use crate::watchman::Watchman;

/// Room for `/pagewarden-XXXXXX/.s.PGSQL.5432` in the 107 bytes of a socket path.
const TEMP_DIR_BYTES_MAX: usize = 70;
/// Where the memory controller may be: version 1, then version 2. The watchman
/// knows both too.
const CONTROL_GROUPS: &[(&str, &str)] =
    &[("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A directory that goes with its owner, however that ends.
#[derive(Debug)]
pub struct Home {
    memory: OnceLock<ControlGroup>,
    // Removed before the watchman learns that all is done: fields are dropped
    // in the order of their declaration.
    directory: TempDir,
    _watchman: Watchman,
}

impl Home {
    /// Makes one.
    ///
    /// # Errors
    /// There is no place for it, or no watchman can be started.
    pub fn new() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("pagewarden-")
            .tempdir_in(temp_dir()?)
            .context("cannot make a directory for a scratch server")?;
        own(directory.path())?;
        let watchman = Watchman::over(directory.path())?;
        Ok(Self { memory: OnceLock::new(), directory, _watchman: watchman })
    }

    /// Takes it back from the ordinary user, before there is anything in it.
    pub(crate) fn keep(&self) -> Result<()> {
        if OrdinaryUser::to_become().is_some() {
            let ourselves = rustix::process::geteuid().as_raw();
            chown(self.path(), Some(ourselves), None)?;
        }
        ensure!(
            fs::read_dir(self.path())?.next().is_none(),
            "another process wrote to {} first",
            self.path().display()
        );
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Lets the server, from its next start, have only `bytes` of memory, the
    /// page cache that it fills included. To be called once.
    ///
    /// # Errors
    /// There is no memory controller here, or no right to use it.
    pub fn limit_memory(&self, bytes: u64) -> Result<()> {
        let name = self.path().file_name().unwrap_or_default();
        let group = ControlGroup::with_limit(Path::new(name), bytes)?;
        ensure!(self.memory.set(group).is_ok(), "the memory has a limit already");
        Ok(())
    }

    /// Starts a server that writes to `log`, as the ordinary user, under the
    /// limit if there is one. Ctrl-C is for its owner, whose end takes it along.
    pub(crate) fn start(&self, command: &mut Command, log: &File) -> Result<Child> {
        let into_the_log = |command: &mut Command, input: Stdio| -> Result<Child> {
            command.stdin(input).stdout(log.try_clone()?).stderr(log.try_clone()?);
            Ok(command.process_group(0).spawn()?)
        };
        let Some(group) = self.memory.get() else {
            return into_the_log(command, Stdio::null());
        };
        let mut child = into_the_log(&mut behind_a_gate(command), Stdio::piped())?;
        let opened = group.take_in(child.id()).and_then(|()| {
            let mut gate = child.stdin.take().context("the gate has no handle")?;
            Ok(gate.write_all(b"open\n")?)
        });
        if opened.is_err() {
            child.kill()?;
            child.wait()?;
        }
        opened.map(|()| child)
    }

    /// Writes everything below the home to the disk, so that the system does not
    /// do it later, in the middle of a measurement.
    ///
    /// # Errors
    /// A file could not be written out.
    pub fn write_out(&self) -> Result<()> {
        each_file(self.path(), &|file| Ok(file.sync_all()?))
    }

    /// As [`Home::write_out`], and asks the system to forget its copy in memory.
    ///
    /// # Errors
    /// A file could not be written out.
    pub fn drop_page_cache(&self) -> Result<()> {
        each_file(self.path(), &|file| {
            // Only what is on the disk can be forgotten.
            file.sync_all()?;
            Ok(fadvise(file, 0, None, Advice::DontNeed)?)
        })
    }
}

/// Why memory cannot be limited here, if it cannot.
pub fn memory_limit_unavailable() -> Option<String> {
    let name = format!("pagewarden-probe-{}", std::process::id());
    ControlGroup::with_limit(Path::new(&name), 64 << 20).err().map(|error| format!("{error:#}"))
}

/// A control group of the kernel. Removed when it is dropped; the processes in
/// it must have ended.
#[derive(Debug)]
struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    fn with_limit(name: &Path, bytes: u64) -> Result<Self> {
        let found = CONTROL_GROUPS.iter().find_map(|(root, limit)| {
            let path = Path::new(root).join(name);
            // Where the controller is not delegated a group comes without the file.
            fs::create_dir(&path).ok()?;
            let group = Self { path };
            group.path.join(limit).exists().then_some((group, limit))
        });
        let (group, limit) = found.context(
            "the kernel's memory controller cannot be used\n\
             hint: run as root, outside of a container that withholds it",
        )?;
        let file = group.path.join(limit);
        fs::write(&file, bytes.to_string())
            .with_context(|| format!("cannot set {}", file.display()))?;
        Ok(group)
    }

    fn take_in(&self, pid: u32) -> Result<()> {
        let file = self.path.join("cgroup.procs");
        fs::write(&file, pid.to_string()).with_context(|| format!("cannot set {}", file.display()))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel may still be taking leave of the last process.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// `command`, waiting for a line on its input before it begins: a server that
/// was taken into a group a moment late has children outside of it. The end of
/// the input, which is our own end, is no line.
fn behind_a_gate(command: &Command) -> Command {
    let mut gated = Command::new("sh");
    gated.args(["-c", "read -r gate && exec \"$@\" </dev/null", "sh"]);
    gated.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => gated.env(name, value),
            None => gated.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        gated.current_dir(directory);
    }
    if let Some(user) = OrdinaryUser::to_become() {
        gated.uid(user.uid).gid(user.gid);
    }
    gated
}

fn each_file(directory: &Path, act: &dyn Fn(&File) -> Result<()>) -> Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            each_file(&entry.path(), act)?;
        } else if kind.is_file() {
            act(&File::open(entry.path())?)?;
        }
    }
    Ok(())
}

/// Where homes are made, if a caller has chosen.
static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Makes all homes in `directory` from now on. To be called once, before the
/// first server.
///
/// # Errors
/// It does not exist, its path is too long for a socket, or the server's user
/// cannot get there.
pub fn choose_directory(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let directory = fs::canonicalize(directory).with_context(|| format!("cannot use {shown}"))?;
    ensure!(directory.is_dir(), "{shown} is no directory");
    ensure!(
        directory.as_os_str().len() <= TEMP_DIR_BYTES_MAX,
        "{shown} has too long a path\n\
         hint: a server's socket has room for {TEMP_DIR_BYTES_MAX} bytes before its own name"
    );
    ensure!(
        is_open_to_server(&directory),
        "{shown} cannot be reached by the ordinary user that servers run as\n\
         hint: every directory on the way needs mode o+x"
    );
    ensure!(CHOSEN.set(directory).is_ok(), "the directory for servers is settled already");
    Ok(())
}

fn is_open_to_server(directory: &Path) -> bool {
    OrdinaryUser::to_become().is_none() || directory.ancestors().all(is_searchable_by_all)
}

/// What was chosen, or the system's temporary directory if the server's user can get there and a
/// socket's path fits, else `/tmp`. Links are resolved, because the watchman
/// compares paths with what the kernel says.
///
/// # Errors
/// There is none.
pub fn temp_dir() -> Result<PathBuf> {
    let fits = |directory: &PathBuf| {
        directory.as_os_str().len() <= TEMP_DIR_BYTES_MAX && is_open_to_server(directory)
    };
    if let Some(directory) = CHOSEN.get() {
        return Ok(directory.clone());
    }
    [env::temp_dir(), PathBuf::from("/tmp")]
        .iter()
        .filter_map(|directory| fs::canonicalize(directory).ok())
        .find(fits)
        .context("no temporary directory has a short path open to every user")
}

/// Gives `directory` to the server's user, closed to others.
pub(crate) fn own(directory: &Path) -> Result<()> {
    let give = || {
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
        match OrdinaryUser::to_become() {
            Some(user) => chown(directory, Some(user.uid), Some(user.gid)),
            None => Ok(()),
        }
    };
    give().with_context(|| format!("cannot give away {}", directory.display()))
}

/// Gives a folder that only we can enter, and all that is in it, to the ordinary user: what is inside first, so
/// that no other user gets in before the end. Links are not followed.
pub(crate) fn own_tree(root: &Path) -> Result<()> {
    let Some(user) = OrdinaryUser::to_become() else { return Ok(()) };
    let (mut paths, mut next) = (vec![root.to_owned()], 0);
    while let Some(path) = paths.get(next).cloned() {
        if fs::symlink_metadata(&path)?.is_dir() {
            for entry in fs::read_dir(&path)? {
                paths.push(entry?.path());
            }
        }
        next += 1;
    }
    for path in paths.iter().rev() {
        lchown(path, Some(user.uid), Some(user.gid))
            .with_context(|| format!("cannot give away {}", path.display()))?;
    }
    Ok(())
}

pub(crate) fn copy_tree(source: &Path, target: &Path) -> Result<()> {
    let (source, target) = (path::absolute(source)?, path::absolute(target)?);
    let mut command = Command::new("cp");
    // At work in the home of the copy, it ends with it.
    if let Some(home) = target.parent() {
        command.current_dir(home);
    }
    command.args(["-a", "--"]).arg(&source).arg(&target);
    expect_success(&mut command, None)?;
    Ok(())
}
