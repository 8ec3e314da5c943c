//! `pagewarden compare`: tables of live databases compared with each other.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::ensure;
use pagewarden::report::nagios::State;
use pagewarden::source::rate::Rate;
use pagewarden::words::{counted, printable};
use pagewarden_db::compare::json;
use pagewarden_db::compare::mode::Mode;
use pagewarden_db::compare::report::{Outcome, TableReport, Verdict, verdict};
use pagewarden_db::compare::sample::Sample;
use pagewarden_db::compare::state::{Asked, State as RunState, place};
use pagewarden_db::compare::throttle::Limits;
use pagewarden_db::compare::{Course, Options, Request, Watch, compare_on_course};
use pagewarden_db::engine;
use pagewarden_db::location::{Given, Location};
use pagewarden_db::replicate;
use serde_json::{Value, json};

use super::reading::Reading;
use crate::args::compare::Compare;
use crate::exit::{self, Exit};
use crate::replaced_file::{Content, ReplacedFile};
use crate::terminal::{self, print};

mod metrics;
mod page;
mod shown;

const NO_TABLE_HINT: &str =
    "hint: see that the URLs name the right databases, and what --table and --exclude-table leave";

/// Runs the command.
pub fn run(arguments: &Compare) -> anyhow::Result<Exit> {
    exit::or_json("compare", arguments.json, || {
        let prepare = |path: &Option<PathBuf>, content| {
            path.as_deref().map(|path| ReplacedFile::prepare(path, content, &[])).transpose()
        };
        let metrics = prepare(&arguments.metrics, Content::Metrics)?;
        let page = match arguments.show_values {
            true => Content::HtmlWithValues,
            false => Content::Html,
        };
        let html = prepare(&arguments.html, page)?;
        let begin = Instant::now();
        let mut found = Found::default();
        let mut exit = compare_all(arguments, &mut found)?;
        let now = SystemTime::now();
        let written = [
            metrics.map(|file| {
                let text = metrics::text(&found.runs, &file.previous, now);
                file.replace(text.as_bytes())
            }),
            html.map(|file| {
                let shown = page::Shown {
                    outcomes: &found.outcomes,
                    error: found.error.as_deref(),
                    replicated: arguments.from_replicate,
                    values: arguments.show_values,
                    elapsed: begin.elapsed(),
                    ended: now,
                };
                file.replace(page::page(&shown).as_bytes())
            }),
        ];
        for error in written.into_iter().flatten().filter_map(Result::err) {
            let unable = exit::report(&error);
            // What was found is not made less by what could not be written.
            exit = if exit == Exit::Fine { unable } else { exit };
        }
        Ok(exit)
    })
}

/// What came of a run.
#[derive(Default)]
struct Found {
    outcomes: Vec<Outcome>,
    runs: Vec<metrics::Run>,
    /// Why a target, or all of it, could not be compared.
    error: Option<String>,
}

fn compare_all(arguments: &Compare, found: &mut Found) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let quiet = arguments.pace.quiet || arguments.json || arguments.nagios;
    let reading = Reading::begin(
        quiet,
        arguments.pace.progress,
        arguments.pace.rate.and_then(Rate::ceiling),
    )?;
    let result = all(arguments, &reading, &mut found.outcomes, &mut found.runs);
    reading.end();
    let outcomes = &found.outcomes;
    let tables = || outcomes.iter().flat_map(|outcome: &Outcome| &outcome.tables);
    let verdict = verdict(tables());
    let result = result.and_then(|()| {
        // Every table may have been left out, or be somewhere else.
        ensure!(tables().next().is_some(), "there is no table to compare\n{NO_TABLE_HINT}");
        Ok(())
    });
    found.error = result.as_ref().err().map(|error| format!("{error:#}"));
    if let Err(error) = result
        && (outcomes.iter().all(|outcome| outcome.tables.is_empty()) || arguments.targets.len() > 1)
    {
        return failed(arguments, &error, outcomes, begin.elapsed());
    }
    let stopped = outcomes.iter().any(Outcome::is_stopped);
    if stopped && arguments.state.is_some() && !quiet {
        aside("stopped early\nhint: the same command goes on where this one was");
    }
    if arguments.nagios {
        return monitored(outcomes, verdict);
    }
    if arguments.json {
        let object = object(arguments, outcomes, begin.elapsed());
        print(&format!("{object}\n"))?;
    } else if arguments.sql {
        print(&script(outcomes, verdict))?;
    } else {
        print(&shown::beside(outcomes))?;
        print(&last_line(outcomes, begin.elapsed()))?;
    }
    Ok(match verdict {
        _ if stopped => Exit::Stopped,
        Verdict::Equal => Exit::Fine,
        Verdict::Different => Exit::Wrong,
        Verdict::Incomplete => Exit::Unable,
    })
}

/// Says on standard error what is no result.
fn aside(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn all(
    arguments: &Compare,
    reading: &Reading,
    outcomes: &mut Vec<Outcome>,
    runs: &mut Vec<metrics::Run>,
) -> anyhow::Result<()> {
    let given = |file: &Option<PathBuf>| Given { password_file: file.clone() };
    let quiet = arguments.pace.quiet;
    let locate = |url: &str, given: &Given| reading.locate(url, given, quiet, &arguments.storage);
    let source = locate(&arguments.source, &given(&arguments.password_file))?;
    let given = given(&arguments.target_password_file);
    let targets = arguments.targets.iter().map(|url| locate(url, &given));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    for target in &targets {
        ensure!(
            !arguments.sql || !engine::of(target)?.is_one_table,
            "{target} is not changed by statements\nhint: leave --sql out, and write the files anew"
        );
    }
    let state = state(arguments, &source, &targets)?;
    let is_silent = quiet || arguments.json || arguments.nagios;
    let note = |text: &str| {
        if !is_silent {
            reading.aside(|| text.lines().for_each(|line| aside(&printable(line))));
        }
    };
    if let Some(warning) = state.as_ref().and_then(|state| state.warning.as_ref()) {
        note(warning);
    }
    let course = Course {
        state: state.as_ref(),
        limits: Limits { load: arguments.max_load, lag: arguments.max_lag },
        sample: arguments.sample.map(|share| Sample { share, seed: seed(arguments) }),
        watch: arguments.watch,
        note: Some(&note),
    };
    for target in targets {
        let request = Request {
            source: source.clone(),
            target,
            tables: arguments.table.clone(),
            excluded_tables: arguments.exclude_table.clone(),
            excluded_columns: arguments.exclude_column.clone(),
            key: arguments.key.clone(),
            jobs: arguments.jobs.unwrap_or_else(cores),
            options: Options {
                frozen: arguments.snapshot,
                settle: arguments.settle,
                patience: arguments.patience,
                listed_max: arguments.differences,
                chunk_rows: arguments.chunk_rows,
                mode: wanted(arguments),
            },
        };
        let is_text = !arguments.json && !arguments.nagios && !arguments.sql;
        if is_text && arguments.targets.len() > 1 {
            let line = format!("{}\n", printable(&request.target.to_string()));
            reading.aside(|| print(&line))?;
        }
        let begin = Instant::now();
        let compared = compare_one(arguments, reading, &course, &request, is_text);
        runs.push(metrics::Run::of(&request, compared.as_ref().ok(), begin.elapsed()));
        let outcome = compared?;
        let stopped = outcome.is_stopped();
        outcomes.push(outcome);
        if stopped {
            break;
        }
    }
    if let Some(path) = arguments.state.as_ref().filter(|_| were_known(outcomes)) {
        note(&format!(
            "the run of {} was finished before\nhint: remove the file to compare anew",
            path.display()
        ));
    }
    Ok(())
}

/// True if nothing had to be compared any more.
fn were_known(outcomes: &[Outcome]) -> bool {
    let mut tables = outcomes.iter().flat_map(|outcome| &outcome.tables).peekable();
    tables.peek().is_some() && tables.all(|table| table.is_known)
}

/// Compares the source with one target.
fn compare_one(
    arguments: &Compare,
    reading: &Reading,
    course: &Course<'_>,
    request: &Request,
    is_text: bool,
) -> pagewarden_db::error::Result<Outcome> {
    let colours = terminal::colours();
    let watch = Watch {
        tell: &|rows, bytes| reading.tell(rows, bytes),
        begin: &|name| reading.table(name),
        advance: &|advance| reading.advance(advance),
    };
    let mut seen = |report: &TableReport| {
        reading.table_ends(&report.table);
        if is_text {
            let text = shown::text(report, wanted(arguments), arguments.show_values, colours);
            // Where the reader has gone, writing the last line fails, which is reported.
            let _ = reading.aside(|| print(&text));
        }
    };
    if arguments.from_replicate {
        let request = replicate::Request {
            primary: request.source.clone(),
            replica: request.target.clone(),
            tables: request.tables.clone(),
            excluded_tables: request.excluded_tables.clone(),
            patience: arguments.patience,
        };
        replicate::compare(&request, watch.tell, &mut seen)
    } else {
        compare_on_course(request, course, &watch, &mut seen)
    }
}

/// The file in which it is written how far the run has come.
fn state(
    arguments: &Compare,
    source: &Location,
    targets: &[Location],
) -> anyhow::Result<Option<RunState>> {
    let Some(path) = &arguments.state else { return Ok(None) };
    let asked = Asked {
        source: place(source),
        targets: targets.iter().map(place).collect(),
        tables: arguments.table.clone(),
        excluded_tables: arguments.exclude_table.clone(),
        excluded_columns: arguments.exclude_column.clone(),
        differences: arguments.differences,
        mode: wanted(arguments),
    };
    Ok(Some(RunState::open(path, &asked)?))
}

fn wanted(arguments: &Compare) -> Mode {
    Mode::named(&arguments.mode).unwrap_or_default()
}

/// What a sample is chosen by: another one each time, unless it was given.
fn seed(arguments: &Compare) -> u64 {
    // The standard library's only source of chance. Not longer than JSON's numbers are safe.
    arguments.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 11)
}

fn cores() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// A server could not be reached at all.
fn failed(
    arguments: &Compare,
    error: &anyhow::Error,
    outcomes: &[Outcome],
    elapsed: Duration,
) -> anyhow::Result<Exit> {
    if arguments.nagios {
        return Ok(exit::report_to_monitoring(&format!("{error:#}")));
    }
    if arguments.json {
        let mut object = object(arguments, outcomes, elapsed);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("verdict".to_owned(), json!(Verdict::Incomplete.name()));
            fields.insert("error".to_owned(), json!(format!("{error:#}")));
        }
        print(&format!("{object}\n"))?;
    }
    Ok(exit::report(error))
}

fn object(arguments: &Compare, outcomes: &[Outcome], elapsed: Duration) -> Value {
    let asked = json::Asked {
        mode: &arguments.mode,
        snapshot: arguments.snapshot,
        from_replicate: arguments.from_replicate,
        show_values: arguments.show_values,
        sql: arguments.sql,
    };
    json::object(&asked, outcomes, elapsed)
}

/// A statement that a unique key refuses must not leave those before it behind.
const ALL_OR_NOTHING: &str = "-- all or nothing: end at the first error (psql -v ON_ERROR_STOP=1, mysql without \
                              --force, sqlite3 -bail)\nBEGIN;\n";

/// Statements, and what else there is to say as comments.
fn script(outcomes: &[Outcome], verdict: Verdict) -> String {
    let mut script = String::new();
    for outcome in outcomes {
        script.push_str(&format!("-- {}\n", printable(&outcome.target)));
        let mut lines = String::new();
        let mut has_statements = false;
        for table in &outcome.tables {
            let what = table.error.as_deref().unwrap_or(table.verdict().name());
            let line = format!("{}: {what}", table.table);
            lines.push_str(&format!("-- {}\n", printable(&line.replace('\n', " "))));
            for statement in json::statements(outcome, table) {
                has_statements |= !statement.starts_with("--");
                lines.push_str(&statement);
                lines.push('\n');
            }
        }
        match has_statements {
            true => script.push_str(&format!("{ALL_OR_NOTHING}{lines}COMMIT;\n")),
            false => script.push_str(&lines),
        }
    }
    script.push_str(&format!("-- {}\n", verdict.name()));
    script
}

fn last_line(outcomes: &[Outcome], elapsed: Duration) -> String {
    let tables: Vec<&TableReport> = outcomes.iter().flat_map(|outcome| &outcome.tables).collect();
    let count = |wanted: Verdict| tables.iter().filter(|table| table.verdict() == wanted).count();
    let rows: u64 = tables.iter().map(|table| table.rows_source).sum();
    format!(
        "Compared {} ({}) in {:.2} s: {} equal, {} different, {} incomplete\n",
        counted(tables.len() as u64, "table"),
        counted(rows, "row"),
        elapsed.as_secs_f64(),
        count(Verdict::Equal),
        count(Verdict::Different),
        count(Verdict::Incomplete),
    )
}

fn monitored(outcomes: &[Outcome], verdict: Verdict) -> anyhow::Result<Exit> {
    let tables: Vec<&TableReport> = outcomes.iter().flat_map(|outcome| &outcome.tables).collect();
    let sum = |value: fn(&TableReport) -> u64| tables.iter().map(|table| value(table)).sum::<u64>();
    let (word, state) = match verdict {
        Verdict::Equal => ("OK", State::Ok),
        Verdict::Different => ("CRITICAL", State::Critical),
        Verdict::Incomplete => ("UNKNOWN", State::Unknown),
    };
    let different = sum(TableReport::different);
    let parts = sum(|table| table.parts_different.len() as u64);
    let of_parts =
        if parts > 0 { format!(", {} differ", counted(parts, "part")) } else { String::new() };
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "PAGEWARDEN {word} - {}: {} differ, {} unresolved{of_parts} | tables={} different={different} \
         unresolved={} rows={}",
        counted(tables.len() as u64, "table"),
        counted(different, "row"),
        sum(|table| table.unresolved),
        tables.len(),
        sum(|table| table.unresolved),
        sum(|table| table.rows_source),
    )?;
    Ok(Exit::Monitored(state))
}
