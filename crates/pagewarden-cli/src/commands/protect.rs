//! `pagewarden protect`: switches how the pages of a database are protected.

use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pagewarden::formats::protecting;
use pagewarden::protect::{Cost, Engine, Options, Outcome, Request, Wish, protect_among};
use pagewarden::source::trusted_path::End;
use pagewarden::verdict::{Finding, Protection};
use pagewarden::verify::mib_per_second;
use pagewarden::words::{bytes, counted, duration, grouped, printable, rate};
use serde_json::{Value, json};

use crate::args::protect::{Mode, Protect};
use crate::exit::{self, Exit};
use crate::owner_rights;
use crate::progress::{Show, listed_bytes};
use crate::signals::stop_on_signals;

/// Runs the command.
pub fn run(arguments: &Protect) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let result = run_request(arguments);
    let mut out = io::stdout().lock();
    match result {
        Ok(outcome) => {
            if arguments.json {
                writeln!(out, "{}", object(arguments, &outcome))?;
            } else {
                for warning in &outcome.warnings {
                    writeln!(io::stderr(), "warning: {}", printable(warning))?;
                }
                write!(out, "{}", text(arguments, &outcome))?;
            }
            out.flush()?;
            Ok(exit_of(&outcome))
        }
        Err(error) => {
            if arguments.json {
                let object = json!({
                    "pagewarden": pagewarden::VERSION,
                    "command": "protect",
                    "verdict": "incomplete",
                    "seconds": seconds(begin.elapsed()),
                    "error": exit::shown(&error),
                });
                writeln!(out, "{object}")?;
            }
            Ok(exit::report(&error))
        }
    }
}

fn run_request(arguments: &Protect) -> anyhow::Result<Outcome> {
    let wish = match (arguments.mode, &arguments.for_upgrade, &arguments.like) {
        (_, Some(other), _) => Wish::ForUpgrade(other.clone()),
        (_, _, Some(other)) => Wish::Like(other.clone()),
        (Some(Mode::Torn), ..) => Wish::Mode(Protection::Torn),
        (Some(Mode::Checksum), ..) => Wish::Mode(Protection::Checksum),
        (Some(Mode::None) | None, ..) => Wish::Mode(Protection::None),
    };
    let (path, further) = first_and_rest(arguments)?;
    let request = Request {
        further: further.to_vec(),
        tablespaces: arguments.tablespace_mapping.clone(),
        copy_to: arguments.copy_to.clone(),
        dry_run: arguments.dry_run,
        skip_damaged: arguments.skip_damaged,
        heal: arguments.heal,
        guard: arguments.guard,
        ..Request::new(path, wish)
    };
    let options = options(arguments, stop_on_signals()?);
    let show = Show::choose(arguments.quiet, arguments.progress);
    if show.wants_total() && (pagewarden::formats::sqlserver::protect::ENGINE.probe)(&request.path)
    {
        // Here every mode is a matter of every page.
        show.expect(
            arguments
                .paths
                .iter()
                .map(|path| pagewarden::formats::sqlserver::protect::listed_bytes(path))
                .sum(),
        );
    } else if show.wants_total() && request.wish != Wish::Mode(Protection::None) {
        show.expect(listed_bytes(&request.path, None).unwrap_or(0));
    }
    let acting = match &request.copy_to {
        Some(copy) if !request.dry_run => owner_rights::take(&places(copy, &request))?,
        _ => None,
    };
    let outcome = protect_among(&engines(), &request, &options, &show);
    show.end();
    outcome.map_err(|error| owner_rights::explain(error.into(), acting.as_ref()))
}

/// Where a copy will be, with its tablespaces.
fn places<'a>(copy: &'a Path, request: &'a Request) -> Vec<(&'a Path, End)> {
    let new = request.tablespaces.iter().map(|mapping| mapping.new.as_path());
    std::iter::once(copy).chain(new).map(|path| (path, End::Inside)).collect()
}

/// The command line demands one PATH at least.
fn first_and_rest(arguments: &Protect) -> anyhow::Result<(&PathBuf, &[PathBuf])> {
    arguments.paths.split_first().context("no PATH\nhint: name the database")
}

/// Those of the library, and the one that brings SQLite along.
fn engines() -> Vec<Engine> {
    protecting().chain([pagewarden_sqlite::protect::ENGINE]).collect()
}

fn options(arguments: &Protect, stop: Arc<AtomicBool>) -> Options {
    let cores = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    Options {
        jobs: arguments.jobs.unwrap_or(cores),
        rate: arguments.rate.ceiling(),
        verify: !arguments.no_verify,
        sync: !arguments.no_sync,
        stop,
    }
}

fn exit_of(outcome: &Outcome) -> Exit {
    if outcome.stopped {
        Exit::Stopped
    } else if outcome.pages.damaged > 0 {
        Exit::Wrong
    } else {
        Exit::Fine
    }
}

/// The words of `check`, for what was looked at.
fn verdict(outcome: &Outcome) -> &'static str {
    if outcome.pages.damaged > 0 {
        "damaged"
    } else if outcome.stopped {
        "incomplete"
    } else if outcome.after == Protection::None {
        "unprotected"
    } else {
        "intact"
    }
}

fn object(arguments: &Protect, outcome: &Outcome) -> Value {
    let pages = &outcome.pages;
    json!({
        "pagewarden": pagewarden::VERSION,
        "command": "protect",
        "verdict": verdict(outcome),
        "path": arguments.paths.first().map(|path| path.to_string_lossy()),
        "paths": arguments.paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
        "copy": arguments.copy_to.as_ref().map(|path| path.to_string_lossy()),
        "engine": outcome.engine,
        "before": outcome.before.name(),
        "wanted": outcome.wanted.name(),
        "after": outcome.after.name(),
        "dry_run": arguments.dry_run,
        "stopped": outcome.stopped,
        "files": outcome.files,
        "files_resumed": outcome.files_resumed,
        "pages": {
            "total": pages.total(),
            "changed": pages.changed,
            "right": pages.right,
            "empty": pages.empty,
            "damaged": pages.damaged,
            "left": pages.left,
        },
        "bytes_read": outcome.bytes_read,
        "bytes_written": outcome.bytes_written,
        "bytes_verified": outcome.bytes_verified,
        "findings": outcome.findings,
        "warnings": outcome.warnings,
        "costs": outcome.costs.as_ref().map(|costs| costs.each_ref().map(cost_object)),
        "seconds": seconds(outcome.elapsed),
        "mib_per_second": mib_per_second(outcome.bytes_read, outcome.elapsed),
    })
}

fn cost_object(cost: &Cost) -> Value {
    json!({
        "path": cost.path.to_string_lossy(),
        "wanted": cost.wanted.name(),
        "pages": cost.pages,
        "bytes": cost.bytes,
    })
}

fn seconds(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 1000.0).round() / 1000.0
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

fn shown_paths(arguments: &Protect) -> String {
    let paths: Vec<_> = arguments.paths.iter().map(|path| shown(path)).collect();
    paths.join(", ")
}

/// What a person reads; the last line is the result.
fn text(arguments: &Protect, outcome: &Outcome) -> String {
    let path = shown_paths(arguments);
    let first = arguments.paths.first();
    let engine = first.and_then(|path| protecting().find(|engine| (engine.probe)(path)));
    let has_setting = engine.is_none_or(|engine| engine.has_setting);
    let before = match (has_setting, outcome.before) {
        (false, Protection::Checksum) => "all pages with crc32 or better",
        (false, _) => "pages with older sums or none",
        (true, before) => setting(before),
    };
    let mut text = format!("{path}: {}, {before}\n", printable(&outcome.engine));
    for finding in &outcome.findings {
        text.push_str(&finding_line(finding));
    }
    if let Some([chosen, otherwise]) = &outcome.costs {
        text.push_str(&format!("  this way:  {}\n", cost_line(chosen)));
        text.push_str(&format!("  the other: {}\n", cost_line(otherwise)));
    }
    let pages = &outcome.pages;
    if pages.total() > 0 {
        let would = if arguments.dry_run { "to change" } else { "changed" };
        let left = match pages.left {
            0 => String::new(),
            left => format!(", {} left as they are", grouped(left)),
        };
        text.push_str(&format!(
            "{} pages ({}) of {} in {} ({} MiB/s): {} {would}, {} right already, {} empty, {} damaged{left}\n",
            grouped(pages.total()),
            bytes(outcome.bytes_read),
            counted(outcome.files - outcome.files_resumed, "file"),
            duration(outcome.elapsed),
            rate(mib_per_second(outcome.bytes_read, outcome.elapsed)),
            grouped(pages.changed),
            grouped(pages.right),
            grouped(pages.empty),
            grouped(pages.damaged),
        ));
    }
    if outcome.files_resumed > 0 {
        let files = counted(outcome.files_resumed, "file");
        text.push_str(&format!("{files} had been finished by an earlier run\n"));
    }
    text.push_str(&match has_setting {
        true => last_line(arguments, outcome),
        false => last_line_without_setting(arguments, outcome),
    });
    text.push('\n');
    text
}

fn last_line(arguments: &Protect, outcome: &Outcome) -> String {
    let (before, wanted, after) = (outcome.before, outcome.wanted, outcome.after);
    let what = match &arguments.copy_to {
        Some(copy) => format!("of the copy in {}", shown(copy)),
        None => format!("of {}", shown_paths(arguments)),
    };
    if outcome.stopped {
        return match &arguments.copy_to {
            Some(_) => {
                "Stopped: the copy is no database yet; run the same command again".to_owned()
            }
            None => {
                format!("Stopped: {} as before; run the same command to go on", setting(before))
            }
        };
    }
    if arguments.dry_run {
        let (subject, _, state) = words(wanted);
        return if before == wanted && outcome.pages.changed == 0 {
            format!("{subject} {what} would stay {state}: nothing was written")
        } else {
            format!("{subject} {what} would be turned {state}: nothing was written")
        };
    }
    let damaged = outcome.pages.damaged;
    if damaged > 0 && outcome.after != outcome.wanted {
        let what = match &arguments.copy_to {
            Some(_) => "The copy is not made".to_owned(),
            None => format!("Nothing is changed ({})", setting(before)),
        };
        let or_left = match outcome.engine.starts_with("SQLite") {
            true => "",
            false => ", or left for the server to report (--skip-damaged)",
        };
        return format!(
            "{what}: {} must be mended first (from a backup){or_left}",
            counted(damaged, "damaged page")
        );
    }
    let left = match damaged {
        0 => String::new(),
        _ => format!("; {} left, which a server will report", counted(damaged, "damaged page")),
    };
    let (subject, is, state) = words(after);
    if before == after && outcome.pages.changed == 0 && arguments.copy_to.is_none() {
        return format!("{subject} {what} {is} {state} already: nothing was changed");
    }
    format!("{subject} {what} {is} {state}{left}")
}

/// There is no setting: what counts is what every page says of itself.
fn last_line_without_setting(arguments: &Protect, outcome: &Outcome) -> String {
    let path = arguments.copy_to.as_deref().map_or_else(|| shown_paths(arguments), shown);
    let is_copy = arguments.copy_to.is_some();
    let pages = &outcome.pages;
    if outcome.stopped && is_copy {
        return "Stopped: the copy is no database yet; run the same command again".to_owned();
    }
    if outcome.stopped {
        return "Stopped: every file is as it was, or done; run the same command to go on"
            .to_owned();
    }
    if arguments.dry_run {
        let changed = counted(pages.changed, "page");
        return format!("{changed} would get crc32: nothing was written");
    }
    if pages.damaged > 0 && !arguments.skip_damaged {
        let what =
            if is_copy { "The copy is not made" } else { "Files with damage stay as they are" };
        return format!(
            "{what}: {} must be mended first (from a backup), or left for the server to report (--skip-damaged)",
            counted(pages.damaged, "damaged page")
        );
    }
    let left = match pages.damaged {
        0 => String::new(),
        _ => {
            format!("; {} left, which a server will report", counted(pages.damaged, "damaged page"))
        }
    };
    if outcome.files_resumed > 0 {
        return format!("The pages of {path} have crc32 now{left}");
    }
    match pages.changed {
        0 if is_copy => return format!("The copy in {path} is made; no page was to change{left}"),
        0 => return format!("No page of {path} was to change: nothing was written{left}"),
        _ => {}
    }
    format!("{} of {path} have crc32 now{left}", counted(pages.changed, "page"))
}

/// A protection as a sentence says it: what, is or are, on or off.
fn words(protection: Protection) -> (&'static str, &'static str, &'static str) {
    match protection {
        Protection::Checksum => ("Checksums", "are", "on"),
        Protection::Torn => ("Torn page detection", "is", "on"),
        Protection::None => ("Checksums", "are", "off"),
    }
}

/// A protection in a few words.
fn setting(protection: Protection) -> &'static str {
    match protection {
        Protection::Checksum => "checksums on",
        Protection::Torn => "torn page detection on",
        Protection::None => "checksums off",
    }
}

fn finding_line(finding: &Finding) -> String {
    format!(
        "  {:<8} {} page {} at byte {}: {}\n",
        finding.severity.name(),
        printable(&finding.place.file),
        finding.place.page.map_or(0, |page| page.0),
        finding.place.offset.map_or(0, |offset| offset.0),
        printable(finding.detail.as_deref().unwrap_or_default())
    )
}

fn cost_line(cost: &Cost) -> String {
    let to_write = match cost.pages {
        0 => "no page to rewrite".to_owned(),
        pages => format!("up to {} pages ({}) to rewrite", grouped(pages), bytes(cost.bytes)),
    };
    format!("{}, {}: {to_write}", shown(&cost.path), setting(cost.wanted))
}
