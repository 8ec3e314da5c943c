//! `pagewarden check --plan`: checks the units of one part of a plan, and writes its result.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use anyhow::Context as _;
use pagewarden::database::Description;
use pagewarden::report::several::Several;
use pagewarden::report::{Report, RunEnd, TargetEnd};
use pagewarden::verdict::{Finding, Note, Unread, Verdict};
use pagewarden::verify::{Options, Sink};
use pagewarden_plan::part::Part;
use pagewarden_plan::plan::Plan;
use pagewarden_plan::result::ResultWriter;

use super::advisor::{Advisor, PlanPages};
use super::{Ran, Run, add_result, exit_of, options};
use crate::args::Check;
use crate::commands::storage::Storage;
use crate::exit::Exit;
use crate::progress::Show;
use crate::replaced_file::{Content, ReplacedFile};

/// Runs it.
pub fn check(arguments: &Check, plan: &Path) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let plan = Plan::read(plan)?;
    let place = arguments.output.as_deref().context("no result file\nhint: -o RESULT")?;
    let place = ReplacedFile::prepare(place, Content::Part, &plan.read_paths())?;
    let part = arguments.part.unwrap_or(Part::WHOLE);
    let sizes: Vec<_> = plan.units.iter().map(|unit| unit.bytes).collect();
    let units = part.units(&sizes);

    let is_empty = units.is_empty();
    let file = place.temporary()?;
    let writing = || format!("cannot write {}", place.path().display());
    let out = BufWriter::new(file.as_file().try_clone().with_context(writing)?);
    let writer = ResultWriter::begin(out, &plan, part).with_context(writing)?;
    let recorder = Recorder { writer: Mutex::new(writer), path: place.path().to_owned() };
    let show = Show::choose(arguments.pace.quiet, arguments.pace.progress);
    let mut reports = Several::default();
    add_result(&mut reports, arguments, targets_in(&plan, &units), &show)?;
    reports.add(&recorder);
    let accepts_unverifiable = plan.wanted.accept_unverifiable;
    let mut run = Run {
        kind: plan.wanted.kind(),
        open_options: plan.wanted.open_options(arguments.jobs),
        options: Options { accepts_unverifiable, ..options(arguments)? },
        show: &show,
        wants_total: true,
        errors_are_results: arguments.nagios,
        server: None,
        against: None,
        notes: Vec::new(),
        advice: Advisor::default(),
        plan_pages: PlanPages::default(),
    };
    let planned: Vec<PathBuf> = plan.subjects().map(|one| one.name().to_owned()).collect();
    let rate = arguments.pace.rate;
    let storage = Storage::begin(&planned, &arguments.storage, rate, &run.options.stop)?;
    let all = check_units(&mut run, &plan, &units, &storage, (&recorder, &mut reports), arguments)?;
    // Of more parts than there are units, some have nothing to do, and nothing is wrong with that.
    let verdict = if is_empty { Verdict::Intact } else { all.verdict() };
    let Ran { mut total, opened, missed, .. } = all;
    show.end();
    total.elapsed = begin.elapsed();
    reports.end(&RunEnd {
        verdict,
        total: &total,
        opened,
        protection_missed: missed,
        storage: storage.traffic(),
        drill: None,
        ended: SystemTime::now(),
    })?;
    drop(reports);
    let writer = recorder.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
    writer.end_result().and_then(|mut out| out.flush()).with_context(writing)?;
    place.put(file)?;
    Ok(exit_of(arguments.nagios, &arguments.demands, verdict, &total, missed))
}

/// Checks these units, one after the other.
fn check_units<W: Write>(
    run: &mut Run<'_>,
    plan: &Plan,
    units: &[usize],
    storage: &Storage,
    (recorder, reports): (&Recorder<W>, &mut Several<'_>),
    arguments: &Check,
) -> anyhow::Result<Ran> {
    let writing = || format!("cannot write {}", recorder.path.display());
    let mut all = Ran::default();
    let numbered = units.iter().filter_map(|number| Some((*number, plan.units.get(*number)?)));
    // Each is known while the one before it is read, so that a store may fetch it.
    let options = plan.wanted.open_options(arguments.jobs);
    let planned = numbered.clone().flat_map(|(_, unit)| &unit.subjects);
    let mut subjects = planned.map(|one| one.subject(plan.wanted.kind(), &options, storage));
    let mut next = subjects.next();
    next.as_ref().inspect(|next| next.expect(run.kind));
    for (number, unit) in numbered {
        recorder.writer().begin_unit(number as u64);
        for (index, planned) in (0..).zip(&unit.subjects) {
            let Some(subject) = next.take() else { break };
            next = subjects.next();
            next.as_ref().inspect(|next| next.expect(run.kind));
            recorder.writer().begin_subject(index).with_context(writing)?;
            let notes = planned.notes(storage).into_iter();
            run.notes = notes.map(|note| (planned.name().to_owned(), note)).collect();
            run.check_subject(subject, &mut None, &arguments.demands, reports, &mut all)?;
        }
        if run.is_stopped() {
            // What was seen of this unit is shown, and is no result.
            all.total.stopped = true;
            break;
        }
        recorder.writer().end_unit().with_context(writing)?;
    }
    Ok(all)
}

/// Databases in these units of the plan.
fn targets_in(plan: &Plan, units: &[usize]) -> usize {
    let units = units.iter().filter_map(|unit| plan.units.get(*unit));
    let targets: u64 = units.flat_map(|unit| &unit.subjects).map(|one| one.targets).sum();
    usize::try_from(targets).unwrap_or(usize::MAX)
}

/// The result as one of the reports of the run.
struct Recorder<W> {
    writer: Mutex<ResultWriter<W>>,
    /// Where it is written.
    path: PathBuf,
}

impl<W> Recorder<W> {
    fn writer(&self) -> MutexGuard<'_, ResultWriter<W>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write + Send> Sink for &Recorder<W> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.writer().finding(finding)
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.writer().unread(unread)
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.writer().note(note)
    }
}

impl<W: Write + Send> Report for &Recorder<W> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.writer().begin_target(target)
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        self.writer().end_target(target)
    }

    fn failed_target(&mut self, path: &str, error: &str, ended: SystemTime) -> io::Result<()> {
        self.writer().failed_target(path, error, ended)
    }

    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()> {
        self.writer().end(run)
    }
}
