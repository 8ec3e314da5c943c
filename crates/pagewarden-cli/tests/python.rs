//! A process of Python that has some package, and answers one line for each line it is given.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Such a process. It ends when its input does.
pub struct Python {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Python {
    /// Runs `script`, which says the version of `package` first. The variable `PAGEWARDEN_` and `name`
    /// in capitals names the program. `None`, said aloud, where there is no such package.
    pub fn with(name: &str, package: &str, script: &str) -> Option<Self> {
        let program = std::env::var(format!("PAGEWARDEN_{}", name.to_uppercase()))
            .unwrap_or_else(|_| "python3".to_owned());
        let mut process = Command::new(&program)
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut python = Self { process, answers };
        let version = python.answer();
        if version.is_empty() {
            let required = std::env::var("PAGEWARDEN_REQUIRE").unwrap_or_default();
            assert!(
                !required.contains(name),
                "PAGEWARDEN_REQUIRE names {name}: {program} has no {package}"
            );
            eprintln!("SKIPPED: {program} has no package {package}");
            return None;
        }
        eprintln!("{package} {version}");
        Some(python)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The answer to a command about a file.
    pub fn ask(&mut self, command: &str, path: &Path, number: usize) -> String {
        let mut input = self.process.stdin.as_ref().unwrap();
        writeln!(input, "{command}\t{}\t{number}", path.display()).unwrap();
        self.answer()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
