//! `pagewarden repair`: brings damaged pages back from copies.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use pagewarden::Error;
use pagewarden::database::repository::RepositoryOptions;
use pagewarden::repair::{
    Options, Outcome, Page, Proof, Request, SealedPages, Verdict, path_of_undo_file, repair,
};
use pagewarden::seal::Proof as Seal;
use pagewarden::source::store::{StorePath, Stores as _};
use pagewarden::source::trusted_path::End;
use pagewarden::words::{counted, printable};
use pagewarden_db::engine::postgres::files::data_directory;
use pagewarden_db::location::Given;
use serde_json::{Value, json};

use crate::args::repair::Repair;
use crate::commands::reading::locate;
use crate::commands::storage::Storage;
use crate::exit::{self, Exit};
use crate::owner_rights;
use crate::progress::Show;
use crate::replaced_file::{Content, ReplacedFile};
use crate::signals::stop_on_signals;

mod page;
mod replay;

/// What the address of a server begins with.
const SERVERS: [&str; 3] = ["postgres:", "postgresql:", "mysql:"];

/// Runs the command.
pub fn run(arguments: &Repair) -> anyhow::Result<Exit> {
    exit::or_json("repair", arguments.json, || {
        let path = match (&arguments.path, &arguments.undo) {
            (Some(path), _) => path.clone(),
            (None, Some(undo)) => path_of_undo_file(undo)?,
            (None, None) => anyhow::bail!("no PATH\nhint: name the database"),
        };
        let read = std::iter::once(&path).chain(&arguments.from).chain(&arguments.keyring);
        let read: Vec<_> = read.cloned().collect();
        let html = arguments.html.as_deref();
        let html =
            html.map(|file| ReplacedFile::prepare(file, Content::Html, &read)).transpose()?;
        let options = Options { jobs: arguments.jobs, stop: stop_on_signals()? };
        let files = arguments.from.iter().filter(|source| server(source).is_none());
        let named = files.chain(&arguments.log);
        let storage = Storage::begin(named, &arguments.storage, None, &options.stop)?;
        let sources: anyhow::Result<_> =
            arguments.from.iter().map(|source| place(source, arguments, &storage)).collect();
        let log: Result<_, _> = arguments.log.iter().map(|path| storage.at(path)).collect();
        let seals: Result<_, _> = arguments.seal.iter().map(|path| sealed(path)).collect();
        let request = Request {
            sources: sources?,
            log: log?,
            seals: seals?,
            repository: RepositoryOptions {
                stanza: arguments.stanza.clone(),
                sets: arguments.set.iter().cloned().collect(),
                cipher_pass_file: arguments.cipher_pass_file.clone(),
                ..RepositoryOptions::default()
            },
            keyring: arguments.keyring.clone(),
            write: arguments.yes || arguments.undo.is_some(),
            copy_to: arguments.copy_to.clone(),
            accept_older: arguments.accept_older,
            pages_max: arguments.max_pages,
            undo: arguments.undo.clone(),
            undo_file: arguments.undo_file.clone(),
            ..Request::new(&path)
        };
        let show = Show::choose(arguments.quiet, arguments.progress);
        let acting = match &request.copy_to {
            Some(copy) if request.write => owner_rights::take(&[(copy, End::Inside)])?,
            _ => None,
        };
        let outcome = repaired(request, arguments.replay, &options, &show);
        show.end();
        let outcome = outcome.map_err(|error| owner_rights::explain(error, acting.as_ref()))?;
        let mut out = io::stdout().lock();
        if arguments.json {
            let mut object = object(arguments, &path, &outcome);
            if let (Some(traffic), Some(object)) = (storage.traffic(), object.as_object_mut()) {
                object.insert("storage".to_owned(), json!(traffic));
            }
            writeln!(out, "{object}")?;
        } else {
            for warning in &outcome.warnings {
                writeln!(io::stderr(), "warning: {}", printable(warning))?;
            }
            if let Some(traffic) = storage.traffic() {
                writeln!(out, "Object storage: {traffic}")?;
            }
            write!(out, "{}", text(&path, &outcome))?;
        }
        out.flush()?;
        if let Some(file) = html {
            let given: Vec<_> = std::env::args_os().skip(1).collect();
            file.replace(page::page(&path, &outcome, &given).as_bytes())?;
        }
        Ok(exit_of(&outcome))
    })
}

fn sealed(path: &Path) -> Result<Arc<dyn SealedPages>, Error> {
    Ok(Arc::new(Seal::open(path)?))
}

/// Plans first where redo may be needed: it takes a restore.
fn repaired(
    request: Request,
    wants_replay: bool,
    options: &Options,
    show: &Show,
) -> anyhow::Result<Outcome> {
    if !wants_replay || request.undo.is_some() {
        return Ok(repair(&request, options, show)?);
    }
    let plan = repair(&Request { write: false, ..request.clone() }, options, show)?;
    if !replay::is_wanted(&plan) || plan.stopped {
        return Ok(if request.write { repair(&request, options, show)? } else { plan });
    }
    let replayed = replay::replay(&request, &options.stop)?;
    let request = Request { replayed: replayed.copies(), ..request };
    let mut outcome = repair(&request, options, show)?;
    outcome.warnings.extend(replayed.warnings.iter().cloned());
    Ok(outcome)
}

/// The address of a server, if a source is one.
pub fn server(source: &Path) -> Option<&str> {
    source.to_str().filter(|text| SERVERS.iter().any(|it| text.starts_with(it)))
}

/// What a source stands for: a server, an address in object storage or a path.
fn place(source: &Path, arguments: &Repair, storage: &Storage) -> anyhow::Result<StorePath> {
    let Some(url) = server(source) else { return Ok(storage.at(source)?) };
    let given = Given { password_file: arguments.password_file.clone() };
    Ok(data_directory(&locate(url, &given, arguments.quiet)?)?)
}

fn exit_of(outcome: &Outcome) -> Exit {
    match outcome.is_whole() {
        _ if outcome.stopped => Exit::Stopped,
        true => Exit::Fine,
        false => Exit::Wrong,
    }
}

fn object(arguments: &Repair, path: &Path, outcome: &Outcome) -> Value {
    json!({
        "pagewarden": pagewarden::VERSION,
        "command": "repair",
        "verdict": outcome.verdict,
        "path": path.to_string_lossy(),
        "copy": arguments.copy_to.as_ref().map(|path| path.to_string_lossy()),
        "engine": outcome.engine,
        "written": arguments.yes || arguments.undo.is_some(),
        "pages": outcome.pages,
        "undo_file": outcome.undo_file.as_ref().map(|path| path.to_string_lossy()),
        "warnings": outcome.warnings,
        "stopped": outcome.stopped,
        "seconds": (outcome.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
    })
}

/// What a person reads; the last line is the result.
fn text(path: &Path, outcome: &Outcome) -> String {
    let path = printable(&path.to_string_lossy());
    let mut text = format!("{path}: {}\n", printable(&outcome.engine));
    for page in &outcome.pages {
        text.push_str(&lines(page));
    }
    if let Some(undo) = &outcome.undo_file {
        let undo = printable(&undo.to_string_lossy());
        text.push_str(&format!("The bytes from before are in {undo}\n"));
    }
    text.push_str(&last_line(outcome));
    text.push('\n');
    text
}

fn lines(page: &Page) -> String {
    let what = what_becomes(page);
    let place = place_of(page);
    let object = page.object.as_ref().map_or(String::new(), |object| format!(" ({object})"));
    let mut text =
        format!("  {what:<9} {}{}: {}\n", printable(&place), printable(&object), page.kind.name());
    if let Some(source) = &page.source {
        text.push_str(&format!("            from {}\n", printable(source)));
    }
    text.push_str(&format!("            {}\n", printable(&page.reason)));
    if let Some(hint) = &page.hint {
        text.push_str(&format!("            hint: {}\n", printable(hint)));
    }
    text
}

/// What becomes of a page, in two words at most.
fn what_becomes(page: &Page) -> &'static str {
    match (page.proof, page.after.is_some()) {
        (Some(Proof::Exact), true) => "exact",
        (Some(Proof::Replayed), true) => "replayed",
        (Some(Proof::Rebuilt), true) => "rebuilt",
        (Some(Proof::Older), true) => "older",
        (None, true) => "undone",
        (Some(_), false) => "not taken",
        (None, false) => "no copy",
    }
}

fn place_of(page: &Page) -> String {
    match page.page {
        Some(number) => format!("{} page {number}", page.file),
        None => page.file.clone(),
    }
}

fn last_line(outcome: &Outcome) -> String {
    let all = outcome.pages.len() as u64;
    let can = outcome.pages.iter().filter(|page| page.after.is_some()).count() as u64;
    let written = outcome.pages.iter().filter(|page| page.written).count() as u64;
    if outcome.stopped {
        return match written {
            0 => "Stopped: nothing was written; run the same command again".to_owned(),
            _ => "Stopped: pages were written and not checked again; run check".to_owned(),
        };
    }
    match outcome.verdict {
        Verdict::NothingToRepair if outcome.warnings.is_empty() => {
            "Nothing to repair: no page fails its own test; what check --structure finds is not looked for"
                .to_owned()
        }
        Verdict::NothingToRepair => {
            "Nothing to repair was found; the warnings say what was not looked at".to_owned()
        }
        Verdict::Repaired => format!("Repaired {}, and checked again", counted(all, "page")),
        Verdict::Partly => {
            format!("Repaired {} of {}", counted(written, "page"), counted(all, "damaged page"))
        }
        Verdict::Impossible => {
            format!("None of {} can be repaired by these sources", counted(all, "damaged page"))
        }
        Verdict::Undone => format!("Undone: {} as before the repair", counted(all, "page")),
        Verdict::Planned => format!(
            "{can} of {} would be repaired: nothing was written, --yes does it",
            counted(all, "page")
        ),
    }
}
