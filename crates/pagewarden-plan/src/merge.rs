//! What all results of a plan say together.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pagewarden::report::{Report, TargetEnd};
use pagewarden::verify::Verified;

use crate::error::Error;
use crate::plan::{Plan, Unit};
use crate::result::{ResultFile, UnitResult};
use crate::row::{Row, TimeRow};

/// Results of a plan, with the one that counts for each unit.
#[derive(Debug)]
pub struct Merge {
    plan: Plan,
    files: Vec<ResultFile>,
    /// Results that cannot be used, and why.
    refused: Vec<(PathBuf, Error)>,
    /// For each unit its result.
    chosen: Vec<Option<Chosen>>,
}

/// The result that counts.
#[derive(Debug)]
struct Chosen {
    file: usize,
    result: UnitResult,
    /// Files with a result of the same unit that says something else.
    contradicted_by: Vec<usize>,
}

/// How one target came out.
#[derive(Debug, Clone, Copy)]
pub enum Outcome<'a> {
    /// It was verified.
    Verified(&'a Verified),
    /// It was not, or a result is missing or cannot be used. Nothing good may be said of it.
    Failed {
        /// The target or the result.
        path: &'a str,
        /// Why.
        error: &'a str,
    },
}

impl Merge {
    /// Reads the results of a plan. One that cannot be used is no error: it makes what is merged
    /// incomplete.
    #[must_use]
    pub fn of(plan: Plan, results: &[PathBuf]) -> Self {
        let (mut files, mut refused) = (Vec::new(), Vec::new());
        for path in results {
            match ResultFile::read(path, &plan) {
                Ok(file) => files.push(file),
                Err(error) => refused.push((path.clone(), error)),
            }
        }
        let mut chosen: Vec<Option<Chosen>> = plan.units.iter().map(|_| None).collect();
        for (file, read) in files.iter().enumerate() {
            for result in &read.units {
                let unit = usize::try_from(result.end.unit).ok();
                if let Some(place) = unit.and_then(|unit| chosen.get_mut(unit)) {
                    let new = Chosen { file, result: result.clone(), contradicted_by: Vec::new() };
                    *place = Some(match place.take() {
                        None => new,
                        Some(old) => old.or(new),
                    });
                }
            }
        }
        Self { plan, files, refused, chosen }
    }

    /// How many targets a report gets.
    #[must_use]
    pub fn targets(&self) -> usize {
        usize::try_from(self.plan.targets()).unwrap_or(usize::MAX)
    }

    /// Tells a report all targets in the order of the plan, and `outcome` how each came out.
    ///
    /// # Errors
    /// A result can no longer be read, or the report cannot be written.
    pub fn report(
        &self,
        report: &mut dyn Report,
        outcome: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<(), Error> {
        let now = SystemTime::now();
        for (unit, chosen) in self.plan.units.iter().zip(&self.chosen) {
            match chosen {
                Some(chosen) => self.tell(unit, chosen, report, outcome)?,
                None => {
                    for subject in &unit.subjects {
                        let path = subject.name().to_string_lossy();
                        let error = format!(
                            "cannot judge {path}: no result of its unit was given\n\
                             hint: check every part, and name all results"
                        );
                        failed(report, outcome, &path, &error, now)?;
                    }
                }
            }
        }
        for (path, error) in &self.refused {
            let mut text = error.to_string();
            if let Error::Io { source, .. } = error {
                text = format!("{text}: {source}");
            }
            failed(report, outcome, &path.to_string_lossy(), &text, now)?;
        }
        Ok(())
    }

    fn tell(
        &self,
        unit: &Unit,
        chosen: &Chosen,
        report: &mut dyn Report,
        outcome: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<(), Error> {
        let Some(file) = self.files.get(chosen.file) else { return Ok(()) };
        let mut time = TimeRow::of(Duration::ZERO, SystemTime::UNIX_EPOCH);
        file.rows(&chosen.result, &mut |row| {
            match row {
                Row::Subject(_) => {}
                Row::Target(target) => report.begin_target(&target.description()?)?,
                Row::Finding(finding) => report.finding(&finding)?,
                Row::Unread(unread) => report.unread(&unread.unread())?,
                Row::Note(note) => report.note(&note)?,
                Row::Time(row) => time = row,
                Row::Done(done) => {
                    let listed_bytes = done.listed_bytes();
                    let verified = done.verified(time.elapsed())?;
                    let ended = time.ended();
                    report.end_target(&TargetEnd {
                        verified: &verified,
                        overall: None,
                        listed_bytes,
                        ended,
                    })?;
                    outcome(Outcome::Verified(&verified));
                }
                Row::Failed(row) => {
                    report.failed_target(&row.path, &row.error, row.ended())?;
                    outcome(Outcome::Failed { path: &row.path, error: &row.error });
                }
            }
            Ok(())
        })?;
        if !chosen.contradicted_by.is_empty() {
            let name = |file: &usize| {
                self.files.get(*file).map_or(Path::new(""), ResultFile::path).display().to_string()
            };
            let others: Vec<_> = chosen.contradicted_by.iter().map(name).collect();
            let error = format!(
                "{}: {} and {} contradict each other about it; the gravest is reported\n\
                 hint: check its unit again, and merge that result instead of these",
                unit.name(),
                file.path().display(),
                others.join(", ")
            );
            failed(report, outcome, &unit.name(), &error, SystemTime::now())?;
        }
        Ok(())
    }
}

fn failed(
    report: &mut dyn Report,
    outcome: &mut dyn FnMut(Outcome<'_>),
    path: &str,
    error: &str,
    now: SystemTime,
) -> Result<(), Error> {
    let told = |result: io::Result<()>| {
        result.map_err(|source| Error::io("report", Path::new(path), source))
    };
    told(report.failed_target(path, error, now))?;
    outcome(Outcome::Failed { path, error });
    Ok(())
}

impl Chosen {
    /// The graver of two results of one unit. The same content counts once.
    fn or(self, other: Self) -> Self {
        if self.result.content == other.result.content {
            return self;
        }
        let (mut graver, lighter) =
            if other.gravity() < self.gravity() { (other, self) } else { (self, other) };
        graver.contradicted_by.push(lighter.file);
        graver.contradicted_by.extend(lighter.contradicted_by);
        graver
    }

    /// Less is graver.
    fn gravity(&self) -> impl Ord + use<> {
        let end = &self.result.end;
        let counts = end.findings;
        (end.verdict, std::cmp::Reverse((counts.damage, end.pages.damaged, counts.suspect)))
    }
}

#[cfg(test)]
mod tests;
