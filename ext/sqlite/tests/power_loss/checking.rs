//! `pagewarden check` of files in memory, in this process.

use std::collections::BTreeMap;
use std::io;

use pagewarden::database;
use pagewarden::verdict::{Finding, Note, Severity, Unread};
use pagewarden::verify::{Options, Sink, verify};

/// What came out of a check.
#[derive(Debug, Default)]
pub struct Checked {
    pub findings: Vec<Finding>,
    /// Those of the findings that prove damage.
    pub damage: Vec<Finding>,
}

/// Checks the database `name`, with the files that lie beside it.
pub fn check(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Checked {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name.trim_start_matches('/'));
    for (name, bytes) in files {
        std::fs::write(path(name), bytes).expect("a file");
    }
    let mut checked = Checked::default();
    let target = database::open(&path(name), None).expect("a database");
    verify(target, &Options::default(), &(), &mut checked).expect("a verdict");
    checked
}

impl Sink for Checked {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        if finding.severity == Severity::Damage {
            self.damage.push(finding.clone());
        }
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        panic!("{unread:?}")
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}
