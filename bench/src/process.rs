//! One whole process, measured from its start to its end.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// What one process took.
#[derive(Debug, Clone)]
pub struct Measured {
    /// From before the start to after the end.
    pub wall: Duration,
    /// User and system time of all its threads.
    pub cpu: Duration,
    /// The most memory it held at a time.
    pub memory_bytes: u64,
    /// What it wrote to standard output, if that was wanted.
    pub output: Vec<u8>,
}

/// Runs `command` to its end. Fails if it does.
pub fn measure(command: &mut Command, keep_output: bool) -> anyhow::Result<Measured> {
    let name = command.get_program().to_string_lossy().into_owned();
    let stdout = if keep_output { Stdio::piped() } else { Stdio::null() };
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    let mut output = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        io::Read::read_to_end(&mut pipe, &mut output)?;
    }
    let (status, usage) = wait(child.id())?;
    let wall = begin.elapsed();
    anyhow::ensure!(status.success(), "{name} failed: {status}");
    let seconds = |time: libc::timeval| {
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
    };
    Ok(Measured {
        wall,
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        // Linux counts in kibibytes.
        memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        output,
    })
}

/// Waits for a child and asks what it used. The standard library waits without
/// asking, and what is asked of all children together mixes their memory.
fn wait(id: u32) -> io::Result<(ExitStatus, libc::rusage)> {
    use std::os::unix::process::ExitStatusExt as _;

    let id = libc::pid_t::try_from(id).map_err(io::Error::other)?;
    let mut status = 0;
    loop {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to variables that live through the call.
        // The child is ours and was not waited for, so its number is not
        // another's.
        let waited = unsafe { libc::wait4(id, &raw mut status, 0, &raw mut usage) };
        if waited == id {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_memory_and_output_of_a_child_are_seen() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done"]);
        let measured = measure(&mut shell, true).unwrap();
        assert_eq!(measured.output, b"done\n");
        assert!(measured.cpu > Duration::from_millis(5), "{measured:?}");
        assert!(measured.wall >= measured.cpu, "{measured:?}");
        assert!(measured.memory_bytes > 100 << 10, "{measured:?}");
        assert!(measure(&mut Command::new("false"), false).is_err());
    }
}
