//! A process that outlives its owner by a moment, to clean up.
//!
//! `Drop` does not run when a process is killed or calls `exit`. The watchman
//! is a small shell script that waits on a pipe whose other end only we hold.
//! When we end without the word "done", in whatever way, the kernel closes our
//! end, and the watchman stops the server and removes its directory.
//!
//! The parent-death signal of Linux would not do: it fires at the death of the
//! *thread* that started the child, and test threads are short-lived.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// `$1` is the directory to remove.
///
/// Every process of a server works in its data directory, also before it has
/// written its pid file, every program that we run beside it works in `$1`, and
/// no other process does: numbers in files may belong to another process by now. SIGQUIT
/// is an immediate stop for PostgreSQL, which gives back the shared memory too,
/// and a polite one for MariaDB. Removal is repeated for files that a process
/// still starting up (initdb) has put in meanwhile. A control group that bears
/// the directory's name goes too.
const SCRIPT: &str = r#"
trap '' HUP INT TERM QUIT
read -r word && [ "$word" = done ] && exit 0
directory=$1
ours() {
    for link in /proc/[0-9]*/cwd; do
        case $(readlink "$link") in
            "$directory" | "$directory/"* | "$directory ("*)
                pid=${link#/proc/}
                echo "${pid%/cwd}"
                ;;
        esac
    done
}
pids=$(ours)
[ -n "$pids" ] && kill -QUIT $pids
tries=0
while pids=$(ours) && [ -n "$pids" ] && [ "$tries" -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
[ -n "$pids" ] && kill -KILL $pids
rm -rf -- "$directory"
sleep 1
pids=$(ours)
[ -n "$pids" ] && kill -KILL $pids
rm -rf -- "$directory"
name=${directory##*/}
rmdir "/sys/fs/cgroup/memory/$name" "/sys/fs/cgroup/$name" 2>/dev/null
"#;

/// The watchman of one directory. Dropping it tells it to go home.
#[derive(Debug)]
pub(crate) struct Watchman {
    shell: Child,
}

impl Watchman {
    /// Sets a watchman over `directory`, which must be canonical.
    pub(crate) fn over(directory: &Path) -> Result<Self> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "pagewarden-watchman"])
            .arg(directory)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in the terminal must not reach it.
            .process_group(0)
            .spawn()
            .context("cannot start /bin/sh to watch over a scratch server")?;
        Ok(Self { shell })
    }
}

impl Drop for Watchman {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // If it is gone already no process takes this.
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
