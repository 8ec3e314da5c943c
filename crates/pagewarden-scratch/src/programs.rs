//! Running a program to its end.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

/// What a program answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Its exit status; nothing if a signal ended it.
    pub status: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl ToolOutput {
    /// True when the program ended with status 0.
    pub fn success(&self) -> bool {
        self.status == Some(0)
    }
}

/// Runs a command, `input` being its standard input.
/// Fails only if it cannot be run at all.
pub(crate) fn run(command: &mut Command, input: Option<&str>) -> Result<ToolOutput> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command
        .stdin(match input {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.with_context(|| format!("cannot run {name}"))?;
    let pipe = child.stdin.take();
    let output = thread::scope(|scope| {
        // Written from a thread of its own: the program may fill its output
        // before it has read everything.
        scope.spawn(move || {
            if let (Some(mut pipe), Some(input)) = (pipe, input) {
                // A program that ends early says why itself.
                let _ = pipe.write_all(input.as_bytes());
            }
        });
        child.wait_with_output()
    });
    let output = output.with_context(|| format!("cannot wait for {name}"))?;
    Ok(ToolOutput {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// As [`run`], but any exit status other than 0 is an error.
pub(crate) fn expect_success(command: &mut Command, input: Option<&str>) -> Result<ToolOutput> {
    let output = run(command, input)?;
    if !output.success() {
        let program = Path::new(command.get_program());
        bail!(
            "{} {}: {}",
            program.file_name().unwrap_or_default().to_string_lossy(),
            match output.status {
                Some(status) => format!("fails with status {status}"),
                None => "was killed".to_owned(),
            },
            output.stderr.trim()
        );
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_read_its_input_is_no_deadlock() {
        let input = "x".repeat(1 << 20);
        let output = run(&mut Command::new("true"), Some(&input)).unwrap();
        assert!(output.success());
    }

    #[test]
    fn failure_names_the_program_and_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no luck >&2; exit 3"]);
        let error = expect_success(&mut command, None).unwrap_err().to_string();
        assert_eq!(error, "sh fails with status 3: no luck");
    }
}
