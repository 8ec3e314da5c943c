//! `pagewarden check`: verifies targets one after the other and reports.

use std::io::{self, IsTerminal as _};
use std::mem;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use pagewarden::Error;
use pagewarden::database::repository::RepositoryOptions;
use pagewarden::database::{self, Format, OpenOptions, Step, Target, parts, stored};
use pagewarden::repair::advice::Advised;
use pagewarden::report::drill::{Drill, DrillVerdict};
use pagewarden::report::html::HtmlReport;
use pagewarden::report::json::JsonReport;
use pagewarden::report::map::Layout;
use pagewarden::report::metrics::MetricsReport;
use pagewarden::report::nagios::{NagiosReport, State};
use pagewarden::report::picture::PictureReport;
use pagewarden::report::several::Several;
use pagewarden::report::text::TextReport;
use pagewarden::report::{Report as _, RunEnd, TargetEnd};
use pagewarden::source::pipe::StandardInput;
use pagewarden::source::store::{StorePath, Stores as _};
use pagewarden::verdict::{Note, Protection, Verdict};
use pagewarden::verify::{Caching, Method, Options, Summary, Verified, verify};

use pagewarden_db::location::{Given, Location};
use pagewarden_plan::subject::{Subject, groups, is_standard_input, subjects};

use crate::args::{Check, Demands};
use crate::commands::live_files::with_server;
use crate::commands::reading::locate;
use crate::commands::sealing::{SealFile, hold_against};
use crate::commands::storage::Storage;
use crate::exit::{self, Exit};
use crate::progress::{Show, listed_bytes};
use crate::replaced_file::{Content, ReplacedFile};
use crate::signals::stop_on_signals;
use crate::terminal::{colours, width};

mod advisor;
#[cfg_attr(not(unix), path = "check/no_drill.rs")]
mod drill;
mod part;

use advisor::{Advisor, PlanPages};
use drill::Wanted;

/// What is the same for all targets of a run.
struct Run<'a> {
    kind: Option<&'static Format>,
    open_options: OpenOptions,
    options: Options,
    show: &'a Show,
    /// Progress, a map or a page shows how much there is to read.
    wants_total: bool,
    /// An error has a place in the result itself.
    errors_are_results: bool,
    /// A server that is asked about its files.
    server: Option<Location>,
    against: Option<StorePath>,
    /// What is to be said of paths besides: files that were named beside those of another
    /// database, files that changed since they were planned.
    notes: Vec<(PathBuf, Note)>,
    advice: Advisor,
    plan_pages: PlanPages,
}

/// Runs the command.
pub fn run(arguments: &Check) -> anyhow::Result<Exit> {
    exit::or_json("check", arguments.json, || match &arguments.plan {
        Some(plan) => part::check(arguments, plan),
        None => check(arguments),
    })
}

fn check(arguments: &Check) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let files = ReportFiles::prepare(arguments)?;
    let seal_file = prepare(arguments, arguments.seal.as_deref(), Content::Seal)?;
    let kind = arguments.format.as_deref().and_then(database::kind_named);
    let open_options = open_options(arguments);
    let options = options(arguments)?;
    let named = arguments.paths.iter().chain(&arguments.against);
    let storage = Storage::begin(named, &arguments.storage, arguments.pace.rate, &options.stop)?;
    let subjects = subjects_of(arguments, &storage, kind, &open_options)?;
    if seal_file.is_some() || arguments.against.is_some() {
        refuse_seal_of_several(arguments, &subjects)?;
    }
    let count = subjects.iter().map(Subject::count).sum();
    let (mut html, mut picture, mut metrics) = (Vec::new(), Vec::new(), Vec::new());
    let show = Show::choose(arguments.pace.quiet, arguments.pace.progress);
    let mut reports = Several::default();
    add_result(&mut reports, arguments, count, &show)?;
    if files.html.is_some() {
        reports.add(HtmlReport::new(&mut html, count));
    }
    if files.picture.is_some() {
        reports.add(PictureReport::new(&mut picture, count));
    }
    if let Some(file) = &files.metrics {
        reports.add(MetricsReport::new(&mut metrics, &file.previous));
    }
    let run = Run {
        kind,
        open_options,
        options,
        show: &show,
        wants_total: show.wants_total() || arguments.map || files.are_wanted(),
        errors_are_results: arguments.nagios,
        against: arguments.against.as_ref().map(|seal| storage.at(seal)).transpose()?,
        server: server(arguments)?,
        notes: pagewarden::formats::sqlserver::files::strangers(&arguments.paths),
        advice: Advisor::new(arguments)?,
        plan_pages: PlanPages::beside(arguments.html.as_deref()),
    };
    let wanted = arguments.restore_drill.as_ref();
    let wanted = wanted.map(|set| Wanted::of(arguments, set, &storage)).transpose()?;
    let mut all = Ran::default();
    run.check_all(subjects, seal_file, &arguments.demands, &mut reports, &mut all)?;
    let drill = wanted.as_ref().map(|wanted| drill_of(wanted, &storage, &run.options.stop));
    let verdict =
        drill.as_ref().map_or(all.verdict(), |it| verdict_with(it.verdict, all.verdict()));
    let Ran { mut total, opened, missed, sealed, .. } = all;
    show.end();
    total.elapsed = begin.elapsed();
    total.stopped |= drill.is_some() && run.options.stop.load(Ordering::Relaxed);
    reports.end(&RunEnd {
        verdict,
        total: &total,
        opened,
        protection_missed: missed,
        storage: storage.traffic(),
        drill: drill.as_ref(),
        ended: SystemTime::now(),
    })?;
    drop(reports);
    let written = files.replace(&html, &picture, &metrics).and(sealed);
    let exit = exit_of(arguments.nagios, &arguments.demands, verdict, &total, missed);
    Ok(match written {
        Ok(()) => exit,
        Err(error) => {
            let unable = exit::report(&error);
            // What was found is not made less by what could not be written.
            if exit == Exit::Fine { unable } else { exit }
        }
    })
}

/// Files in which the reports are put once all is read.
struct ReportFiles {
    html: Option<ReplacedFile>,
    picture: Option<ReplacedFile>,
    metrics: Option<ReplacedFile>,
}

impl ReportFiles {
    /// Says in time what could not be written.
    fn prepare(arguments: &Check) -> anyhow::Result<Self> {
        Ok(Self {
            html: prepare(arguments, arguments.html.as_deref(), Content::Html)?,
            picture: prepare(arguments, arguments.picture.as_deref(), Content::Picture)?,
            metrics: prepare(arguments, arguments.metrics.as_deref(), Content::Metrics)?,
        })
    }

    fn are_wanted(&self) -> bool {
        self.html.is_some() || self.picture.is_some() || self.metrics.is_some()
    }

    fn replace(self, html: &[u8], picture: &[u8], metrics: &[u8]) -> anyhow::Result<()> {
        for (file, bytes) in [(self.html, html), (self.picture, picture), (self.metrics, metrics)] {
            if let Some(file) = file {
                file.replace(bytes)?;
            }
        }
        Ok(())
    }
}

/// Restores a backup to see whether that works. What was not read of a store is not the backup's fault.
fn drill_of(wanted: &Wanted, storage: &Storage, stop: &AtomicBool) -> Drill {
    let mut drill = drill::run(wanted, stop);
    if let Some(trouble) = storage.trouble() {
        drill.was_kept_from_the_backup(&trouble.last);
    }
    drill
}

fn refuse_seal_of_several(arguments: &Check, subjects: &[Subject]) -> anyhow::Result<()> {
    anyhow::ensure!(
        arguments.paths.len() <= 1,
        "a seal is of one database\nhint: name one PATH with --seal and --against"
    );
    anyhow::ensure!(
        !subjects.iter().any(|subject| matches!(subject, Subject::Repository(..))),
        "a seal is of one database, and a backup repository holds several sets\n\
         hint: seal the database itself"
    );
    Ok(())
}

/// The verdict of a backup that was restored to see whether that works.
fn verdict_with(drill: DrillVerdict, verdict: Verdict) -> Verdict {
    match drill {
        DrillVerdict::Failed => Verdict::Damaged,
        DrillVerdict::Impossible => verdict.min(Verdict::Incomplete),
        DrillVerdict::Passed => verdict,
    }
}

/// What is checked, one after the other.
fn subjects_of(
    arguments: &Check,
    storage: &Storage,
    kind: Option<&'static Format>,
    options: &OpenOptions,
) -> anyhow::Result<Vec<Subject>> {
    if let Some(log) = &arguments.log {
        let backups: Vec<_> = groups(&arguments.paths, kind)?.into_iter().flatten().collect();
        let sets = database::open_with_log(&backups, log, kind, options);
        return Ok(vec![Subject::Repository(log.clone(), sets)]);
    }
    Ok(subjects(&arguments.paths, kind, options, storage)?)
}

/// The server that is asked about its files.
fn server(arguments: &Check) -> anyhow::Result<Option<Location>> {
    let Some(url) = &arguments.server else { return Ok(None) };
    anyhow::ensure!(
        arguments.paths.len() == 1,
        "--server is of one data directory\nhint: name one PATH with it"
    );
    let given = Given { password_file: arguments.password_file.clone() };
    Ok(Some(locate(url, &given, arguments.pace.quiet)?))
}

fn open_options(arguments: &Check) -> OpenOptions {
    OpenOptions {
        wal: arguments.wal.clone(),
        settle: arguments.settle,
        no_witness: arguments.no_witness,
        structure: arguments.structure,
        keyring: arguments.keyring.clone(),
        bases: arguments.base.clone(),
        repository: RepositoryOptions {
            stanza: arguments.stanza.clone(),
            sets: arguments.set.clone(),
            latest: arguments.latest,
            no_log: arguments.no_log,
            cipher_pass_file: arguments.cipher_pass_file.clone(),
        },
        jobs: arguments.jobs,
    }
}

/// Makes sure that a file that was asked for can be written.
fn prepare(
    arguments: &Check,
    path: Option<&Path>,
    content: Content,
) -> anyhow::Result<Option<ReplacedFile>> {
    let checked = arguments
        .paths
        .iter()
        .chain(&arguments.wal)
        .chain(&arguments.log)
        .chain(&arguments.keyring)
        .chain(&arguments.base)
        .chain(&arguments.cipher_pass_file);
    let checked: Vec<_> = checked.cloned().collect();
    path.map(|path| ReplacedFile::prepare(path, content, &checked)).transpose()
}

/// The report on standard output.
fn add_result<'a>(
    reports: &mut Several<'a>,
    arguments: &Check,
    targets: usize,
    show: &'a Show,
) -> anyhow::Result<()> {
    if arguments.json {
        reports.add(JsonReport::begin(show.output(), "check")?);
    } else if arguments.nagios {
        reports.add(NagiosReport::new(show.output(), targets));
    } else {
        let mut report = TextReport::new(show.output(), colours());
        if arguments.verbose {
            report = report.with_explanations();
        }
        reports.add(if arguments.map { report.with_map(Layout::new(width())) } else { report });
    }
    Ok(())
}

/// A target that was verified.
pub(super) struct Checked {
    verified: Verified,
    /// Whether a seal that was wanted was made.
    sealed: anyhow::Result<()>,
}

/// All targets of a run.
pub(super) struct Ran {
    pub(super) total: Summary,
    /// The worst of all that were checked.
    worst: Option<Verdict>,
    pub(super) opened: u64,
    /// Whether a level of protection that was asked for was missed.
    pub(super) missed: bool,
    /// Whether a seal that was wanted was made.
    sealed: anyhow::Result<()>,
}

impl Default for Ran {
    fn default() -> Self {
        let total = Summary::default();
        Self { total, worst: None, opened: 0, missed: false, sealed: Ok(()) }
    }
}

impl Ran {
    /// Counts one target; `None` if it could not be opened.
    fn add(&mut self, checked: Option<Checked>, demands: &Demands) {
        match checked {
            Some(Checked { verified, sealed }) => {
                if self.sealed.is_ok() {
                    self.sealed = sealed;
                }
                self.add_verified(Some(&verified), demands);
            }
            None => self.add_verified(None, demands),
        }
    }

    /// Counts one target, as [`Ran::add`].
    pub(super) fn add_verified(&mut self, verified: Option<&Verified>, demands: &Demands) {
        let verdict = match verified {
            Some(verified) => {
                self.opened += 1;
                self.total += &verified.summary;
                self.missed |= misses_protection(demands, verified);
                verified.verdict()
            }
            None => Verdict::Incomplete,
        };
        self.worst = Some(self.worst.map_or(verdict, |worst| worst.min(verdict)));
    }

    /// The worst of all.
    pub(super) fn verdict(&self) -> Verdict {
        let verdict = self.worst.unwrap_or(Verdict::Incomplete);
        if self.total.stopped { verdict.min(Verdict::Incomplete) } else { verdict }
    }
}

impl Run<'_> {
    /// Checks one target after the other, until the run is stopped.
    fn check_all(
        &self,
        subjects: Vec<Subject>,
        mut seal_file: Option<ReplacedFile>,
        demands: &Demands,
        reports: &mut Several<'_>,
        ran: &mut Ran,
    ) -> anyhow::Result<()> {
        subjects.first().inspect(|first| first.expect(self.kind));
        let mut subjects = subjects.into_iter();
        while let Some(subject) = subjects.next() {
            if self.is_stopped() {
                ran.total.stopped = true;
                break;
            }
            subjects.as_slice().first().inspect(|next| next.expect(self.kind));
            self.check_subject(subject, &mut seal_file, demands, reports, ran)?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// The first database of it that is read gets the seal.
    fn check_subject(
        &self,
        subject: Subject,
        seal_file: &mut Option<ReplacedFile>,
        demands: &Demands,
        reports: &mut Several<'_>,
        ran: &mut Ran,
    ) -> anyhow::Result<()> {
        match subject {
            Subject::Target(paths) => {
                let checked = self.check(&paths, seal_file.take(), reports)?;
                // A stream may have been waited for.
                ran.total.stopped |= checked.is_none() && self.is_stopped();
                ran.add(checked, demands);
            }
            Subject::Stored(places) => {
                let path = places.first().map_or(Path::new(""), StorePath::path);
                let opened = stored::open_together(&places, self.kind, &self.open_options);
                let opened = opened
                    .and_then(|(target, folder)| self.held(target).map(|target| (target, folder)));
                match opened {
                    Ok((mut target, _folder)) => {
                        let notes = self.notes_of(path).into_iter();
                        target.steps = Box::new(notes.chain(target.steps));
                        let seal_file = seal_file.take();
                        let checked = self.check_target(target, None, seal_file, reports)?;
                        ran.add(Some(checked), demands);
                    }
                    Err(error) => {
                        self.failed(path, error, reports)?;
                        ran.add(None, demands);
                    }
                }
            }
            Subject::Repository(path, Err(error)) => {
                self.failed(&path, error, reports)?;
                ran.add(None, demands);
            }
            Subject::Repository(path, Ok(sets)) => {
                let mut notes = self.notes_of(&path);
                for mut target in sets.targets {
                    if self.is_stopped() {
                        ran.total.stopped = true;
                        break;
                    }
                    // What is said of the repository is said with its first set.
                    target.steps = Box::new(mem::take(&mut notes).into_iter().chain(target.steps));
                    let path = target.description.path.clone();
                    let checked = self.check_target(target, None, None, reports)?;
                    sets.outcomes.tell(&path, checked.verified.verdict());
                    ran.add(Some(checked), demands);
                }
            }
        }
        Ok(())
    }

    /// What is to be said of a path besides.
    fn notes_of(&self, path: &Path) -> Vec<Step> {
        let notes = self.notes.iter().filter(|(of, _)| of == path);
        notes.map(|(_, note)| Step::Note(note.clone())).collect()
    }

    /// A target, compared with a seal if one was named.
    fn held(&self, target: Target) -> Result<Target, Error> {
        match &self.against {
            Some(seal) => hold_against(target, seal),
            None => Ok(target),
        }
    }

    /// Says that a target could not be opened.
    fn failed(&self, path: &Path, error: Error, reports: &mut Several<'_>) -> anyhow::Result<()> {
        let error = anyhow::Error::from(error);
        // With its cause: `{:#}` is the whole chain.
        reports.failed_target(&path.to_string_lossy(), &format!("{error:#}"), SystemTime::now())?;
        if !self.errors_are_results {
            exit::report(&error);
        }
        Ok(())
    }

    /// Checks one target, which may lie in several files; `None` if it could not
    /// be opened.
    fn check(
        &self,
        paths: &[PathBuf],
        seal_file: Option<ReplacedFile>,
        reports: &mut Several<'_>,
    ) -> anyhow::Result<Option<Checked>> {
        let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
        let opened = self.open(paths).and_then(|target| self.held(target));
        let mut target = match opened {
            Ok(target) => target,
            Err(error) => {
                self.failed(path, error, reports)?;
                return Ok(None);
            }
        };
        if let Some(server) = &self.server {
            target = with_server(target, server)?;
        }
        target.steps = Box::new(self.notes_of(path).into_iter().chain(target.steps));
        let path = (!is_standard_input(path)).then_some(path);
        self.check_target(target, path, seal_file, reports).map(Some)
    }

    /// Checks a target that is open. How much there is to read is counted by `path`.
    fn check_target(
        &self,
        mut target: Target,
        path: Option<&Path>,
        seal_file: Option<ReplacedFile>,
        reports: &mut Several<'_>,
    ) -> anyhow::Result<Checked> {
        let mut sealing = None;
        if let Some(place) = seal_file {
            let (sealed, begun) = SealFile::begin(target, &place)?;
            target = sealed;
            sealing = Some((begun, place));
        }
        reports.begin_target(&target.description)?;
        let advice = path.and_then(|path| self.advice.of(path));
        let is_live = target.description.live;
        let (verified, treated, listed_bytes) = std::thread::scope(|scope| {
            let listed = path.filter(|_| self.wants_total);
            let listed = listed.map(|path| scope.spawn(|| self.measure(path)));
            let mut advised = Advised::new(&mut *reports, advice.as_ref(), is_live);
            let verified = verify(target, &self.options, self.show, &mut advised);
            let treated = advised.treated();
            // A thread that panicked has counted nothing.
            (verified, treated, listed.and_then(|thread| thread.join().ok()).flatten())
        });
        let verified = verified?;
        if let Some(advice) = advice.filter(|_| treated > 0) {
            let page = self.plan_pages.next();
            let name = page.as_ref().and_then(|page| page.file_name()?.to_str());
            let command = match &page {
                Some(page) => advice.command_with_page(page),
                None => advice.command(),
            };
            reports.advise(&command, name)?;
        }
        reports.end_target(&TargetEnd {
            verified: &verified,
            listed_bytes,
            ended: SystemTime::now(),
            overall: None,
        })?;
        let sealed = sealing.map_or(Ok(()), |(sealing, place)| {
            sealing.end(place, verified.verdict(), verified.summary.stopped)
        });
        Ok(Checked { verified, sealed })
    }

    fn open(&self, paths: &[PathBuf]) -> Result<Target, Error> {
        let path = match paths {
            [path] if is_standard_input(path) => path,
            _ => return parts::open_together(paths, self.kind, &self.open_options),
        };
        if io::stdin().is_terminal() {
            let hint = "pipe a tar archive into it, or name a file";
            return Err(Error::refused(path, "standard input is a terminal", hint));
        }
        let input = StandardInput::new(Arc::clone(&self.options.stop));
        database::open_stream(path, Box::new(input), self.kind, &self.open_options)
    }

    fn measure(&self, path: &Path) -> Option<u64> {
        let bytes = listed_bytes(path, self.kind)?;
        self.show.expect(bytes);
        Some(bytes)
    }
}

fn options(arguments: &Check) -> anyhow::Result<Options> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    Ok(Options {
        jobs: arguments.jobs.unwrap_or(cores),
        rate: arguments.pace.rate.unwrap_or_default(),
        caching: match (arguments.direct, arguments.cached) {
            (true, _) => Caching::Direct,
            (_, true) => Caching::Cached,
            _ => Caching::Auto,
        },
        method: match arguments.io.as_str() {
            "uring" => Method::Uring,
            "threads" => Method::Threads,
            _ => Method::Auto,
        },
        accepts_unverifiable: arguments.accept_unverifiable,
        stop: stop_on_signals()?,
    })
}

fn misses_protection(demands: &Demands, verified: &Verified) -> bool {
    let setting = verified.description.setting;
    let by_mode = verified.summary.by_mode;
    let protected = by_mode.checksum + by_mode.torn;
    let used = protected + by_mode.none;
    let off = setting == Some(Protection::None) || (used > 0 && protected == 0);
    let below = demands
        .min_protected
        .is_some_and(|floor| used > 0 && (protected as f64) * 100.0 < floor * used as f64);
    (demands.require_protection && off) || below
}

pub(super) fn exit_of(
    nagios: bool,
    demands: &Demands,
    verdict: Verdict,
    total: &Summary,
    missed: bool,
) -> Exit {
    if nagios {
        return Exit::Monitored(State::of(verdict, missed));
    }
    if total.stopped {
        return Exit::Stopped;
    }
    let exit = Exit::from(verdict);
    let wrong = missed || (demands.strict && verdict == Verdict::Suspect);
    if exit == Exit::Fine && wrong { Exit::Wrong } else { exit }
}
