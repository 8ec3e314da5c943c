//! A report that no one reads: what is found is in the ledger.

use std::io;
use std::time::SystemTime;

use pagewarden::database::Description;
use pagewarden::report::{Report, RunEnd, TargetEnd};
use pagewarden::verdict::{Finding, Note, Unread};
use pagewarden::verify::Sink;

/// See the module.
#[derive(Debug)]
pub(crate) struct NoReport;

impl Sink for NoReport {
    fn finding(&mut self, _: &Finding) -> io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }
}

impl Report for NoReport {
    fn begin_target(&mut self, _: &Description) -> io::Result<()> {
        Ok(())
    }

    fn end_target(&mut self, _: &TargetEnd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn failed_target(&mut self, _: &str, _: &str, _: SystemTime) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &RunEnd<'_>) -> io::Result<()> {
        Ok(())
    }
}
