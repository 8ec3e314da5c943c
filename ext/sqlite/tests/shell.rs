//! The `sqlite3` shell with the extension, and `pagewarden check` in this process.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use pagewarden::database;
use pagewarden::verdict::{Finding, Note, Severity, Unread};
use pagewarden::verify::{Options, Sink, Summary, verify};

/// False, said aloud, where there is no `sqlite3` shell.
pub fn is_there() -> bool {
    let found = Command::new("sqlite3").arg("--version").output().is_ok();
    if !found {
        let required = std::env::var("PAGEWARDEN_REQUIRE").unwrap_or_default();
        assert!(!required.contains("sqlite"), "PAGEWARDEN_REQUIRE names sqlite: no sqlite3 shell");
        eprintln!("SKIPPED: no sqlite3 shell here");
    }
    found
}

/// The extension that was built with these tests.
pub fn extension() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("libpagewarden_sqlite")
}

/// What the shell wrote.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    pub rows: String,
    pub errors: String,
}

/// A folder with databases in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// The shell with the extension, about to open `name`, which may end in further parameters.
    pub fn command(&self, name: &str) -> Command {
        let separator = if name.contains('?') { '&' } else { '?' };
        let mut command = self.shell();
        command
            .args(["-cmd", &format!(".load {}", extension().display()), "-cmd", ".log stderr"])
            .args(["-cmd", &format!(".open file:{name}{separator}vfs=pagewarden")]);
        command
    }

    /// Runs `script` on the plain path `name` with the extension's VFS as the default.
    pub fn run_default(&self, name: &str, script: &str) -> Output {
        let mut command = self.shell();
        let load = format!(".load {} sqlite3_pagewarden_default_init", extension().display());
        command.args(["-cmd", &load, "-cmd", ".log stderr", "-cmd", &format!(".open {name}")]);
        self.finish(command, script)
    }

    fn shell(&self) -> Command {
        let mut command = Command::new("sqlite3");
        command.current_dir(self.0.path()).args(["-init", "/dev/null", ":memory:"]);
        command
    }

    /// Runs `script` on `name` with the extension.
    pub fn run(&self, name: &str, script: &str) -> Output {
        self.finish(self.command(name), script)
    }

    /// Runs `script` on `name` without it.
    pub fn run_plain(&self, name: &str, script: &str) -> Output {
        let mut command = self.shell();
        command.args(["-cmd", &format!(".open {name}")]);
        self.finish(command, script)
    }

    /// Runs `script`, which must do without an error, with the extension.
    pub fn rows(&self, name: &str, script: &str) -> String {
        let output = self.run(name, script);
        let errors: Vec<_> =
            output.errors.lines().filter(|line| !line.contains("recovered ")).collect();
        assert!(errors.is_empty(), "{output:?}");
        output.rows
    }

    pub fn finish(&self, mut command: Command, script: &str) -> Output {
        let input = tempfile::NamedTempFile::new_in(self.0.path()).unwrap();
        fs::write(input.path(), script).unwrap();
        let output =
            command.stdin(Stdio::from(fs::File::open(input.path()).unwrap())).output().unwrap();
        Output {
            rows: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What `pagewarden check` says of `name`.
    pub fn check(&self, name: &str) -> Checked {
        let target = database::open(&self.path(name), None).unwrap();
        let setting = target.description.setting.map(|setting| setting.name());
        let mut findings = Findings::default();
        let summary = verify(target, &Options::default(), &(), &mut findings).unwrap().summary;
        Checked { setting, summary, findings: findings.0 }
    }
}

/// What came out of a check.
#[derive(Debug)]
pub struct Checked {
    pub setting: Option<&'static str>,
    pub summary: Summary,
    pub findings: Vec<Finding>,
}

impl Checked {
    pub fn damage(&self) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Damage).collect()
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Sink for Findings {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.0.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        panic!("{unread:?}")
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

/// Numbers that come out the same every time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(u64::try_from(end).unwrap())).unwrap()
    }
}
