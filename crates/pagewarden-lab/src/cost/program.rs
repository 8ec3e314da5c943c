//! Running a program that may take long, and ending it early when the run is to
//! end.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How often a program that is expected to end is looked at.
const POLL: Duration = Duration::from_millis(5);

/// What a program answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Its exit status; nothing if a signal ended it.
    pub status: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// From its start to its end.
    pub seconds: f64,
}

impl Output {
    /// What it said, both ways.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}\n{}", self.stdout.trim(), self.stderr.trim())
    }
}

/// Fails when the run is to end: between the steps of a measurement.
///
/// # Errors
/// The run is to end.
pub fn go_on(stop: &AtomicBool) -> Result<()> {
    ensure!(!stop.load(Ordering::Relaxed), "stopped early");
    Ok(())
}

/// Runs a command to its end, `input` being its standard input, or kills it
/// when `stop` is set. Any exit status is an answer.
///
/// # Errors
/// It cannot be run, or was stopped.
pub fn run(command: &mut Command, input: &str, stop: &AtomicBool) -> Result<Output> {
    go_on(stop)?;
    let name = command.get_program().to_string_lossy().into_owned();
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        // From threads of their own: the program may fill one while we are at
        // another.
        if let Some(mut pipe) = pipes.0 {
            scope.spawn(move || {
                // A program that ends early says why itself.
                let _ = pipe.write_all(input.as_bytes());
            });
        }
        let stdout = scope.spawn(|| read_all(pipes.1));
        let stderr = scope.spawn(|| read_all(pipes.2));
        let ended = wait(&mut child, stop).with_context(|| format!("cannot wait for {name}"))?;
        let seconds = begin.elapsed().as_secs_f64();
        let stdout = stdout.join().unwrap_or_default();
        let stderr = stderr.join().unwrap_or_default();
        let Some(status) = ended else { bail!("stopped early") };
        Ok(Output { status: status.code(), stdout, stderr, seconds })
    })
}

/// As [`run`], but any exit status other than 0 is an error.
///
/// # Errors
/// As [`run`], or the program failed.
pub fn expect(command: &mut Command, input: &str, stop: &AtomicBool) -> Result<Output> {
    let output = run(command, input, stop)?;
    let name = command.get_program().to_string_lossy();
    ensure!(output.status == Some(0), "{name} fails: {}", output.stderr.trim());
    Ok(output)
}

fn wait(child: &mut Child, stop: &AtomicBool) -> std::io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was said before the failure is worth having.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn answers_come_back_with_the_exit_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; echo no luck >&2; exit 3"]);
        let output = run(&mut command, "hello", &AtomicBool::new(false)).unwrap();
        assert_eq!((output.status, output.stdout.as_str()), (Some(3), "hello"));
        let error = expect(&mut command, "", &AtomicBool::new(false)).unwrap_err().to_string();
        assert_eq!(error, "sh fails: no luck");
    }

    #[test]
    fn stop_ends_a_program_that_would_go_on() {
        let stop = Arc::new(AtomicBool::new(false));
        let setter = Arc::clone(&stop);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            setter.store(true, Ordering::Relaxed);
        });
        let begin = Instant::now();
        let error = run(Command::new("sleep").arg("60"), "", &stop).unwrap_err().to_string();
        assert_eq!(error, "stopped early");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
