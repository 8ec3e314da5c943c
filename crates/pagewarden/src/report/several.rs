//! Several reports of one run at once.

use std::fmt;
use std::io;
use std::time::SystemTime;

use crate::database::Description;
use crate::report::{Report, RunEnd, TargetEnd};
use crate::verdict::{Finding, Note, Recount, Stretch, Unread};
use crate::verify::Sink;

/// Hands everything on to each of its reports, in their order. The first that
/// fails ends it.
#[derive(Default)]
pub struct Several<'a> {
    reports: Vec<Box<dyn Report + 'a>>,
}

impl<'a> Several<'a> {
    /// Adds a report behind the others.
    pub fn add(&mut self, report: impl Report + 'a) {
        self.reports.push(Box::new(report));
    }

    fn each(
        &mut self,
        mut action: impl FnMut(&mut dyn Report) -> io::Result<()>,
    ) -> io::Result<()> {
        self.reports.iter_mut().try_for_each(|report| action(report.as_mut()))
    }
}

impl fmt::Debug for Several<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Several").field("reports", &self.reports.len()).finish()
    }
}

impl Sink for Several<'_> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.each(|report| report.finding(finding))
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.each(|report| report.unread(unread))
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.each(|report| report.note(note))
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        self.each(|report| report.pages(stretch))
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        self.each(|report| report.recount(recount))
    }
}

impl Report for Several<'_> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.each(|report| report.begin_target(target))
    }

    fn advise(&mut self, command: &str, page: Option<&str>) -> io::Result<()> {
        self.each(|report| report.advise(command, page))
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        self.each(|report| report.end_target(target))
    }

    fn failed_target(&mut self, path: &str, error: &str, ended: SystemTime) -> io::Result<()> {
        self.each(|report| report.failed_target(path, error, ended))
    }

    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()> {
        self.each(|report| report.end(run))
    }
}
