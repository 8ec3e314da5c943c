//! The questions and their answers, in words: what the screen and the page show.

use pagewarden::database;
use pagewarden::report::why::why;
use pagewarden::verdict::{Finding, Protection};
use pagewarden::words::{
    bytes, counted, duration, grouped, percent, printable, rate, relation_name, shortened,
};

use super::{Surveyed, advice::advice};

/// Longer names are shortened in the middle.
const NAME_CHARS_MAX: usize = 60;

/// A question and what is said of it, line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// A word or two.
    pub(super) title: &'static str,
    /// The answer.
    pub(super) lines: Vec<String>,
    /// True for the one to look at: its first line is a command.
    pub(super) is_command: bool,
}

/// All answers, in the order of the questions.
pub(super) fn answers(surveyed: &Surveyed) -> Vec<Answer> {
    let plain = |title, lines| Answer { title, lines, is_command: false };
    let advice = advice(surveyed);
    vec![
        plain("What it is", vec![what(surveyed)]),
        plain("Protection", protection(surveyed)),
        plain("Strength", strength(surveyed)),
        plain("Is it sound", sound(surveyed)),
        plain("Reading", reading(surveyed)),
        plain("More costs", price(surveyed)),
        Answer { title: "Next", lines: vec![advice.command, advice.why], is_command: true },
    ]
}

fn what(surveyed: &Surveyed) -> String {
    let (description, summary) = (&surveyed.description, &surveyed.summary);
    let state = if description.state.is_empty() {
        String::new()
    } else {
        format!("; {}", printable(&description.state))
    };
    let size = match description.page_size {
        0 => String::new(),
        size => format!(" of {}", bytes(u64::from(size))),
    };
    format!(
        "{}: {}{size} in {} ({}){state}",
        printable(&description.engine),
        counted(summary.pages.total(), "page"),
        counted(summary.files, "file"),
        bytes(summary.bytes),
    )
}

/// The setting, and what the pages themselves carry.
fn protection(surveyed: &Surveyed) -> Vec<String> {
    let by_mode = surveyed.summary.by_mode;
    let used = by_mode.checksum + by_mode.torn + by_mode.none;
    let setting = match surveyed.description.setting {
        Some(Protection::Checksum) => "set to checksums",
        Some(Protection::Torn) => "set to torn page detection",
        Some(Protection::None) => "off",
        None => "no setting in these files",
    };
    if used == 0 {
        return vec![format!("{setting}; no page that is in use was tested")];
    }
    let mut shares = Vec::new();
    for (count, what) in [
        (by_mode.checksum, "carry a checksum"),
        (by_mode.torn, "carry torn page marks"),
        (by_mode.none, "carry nothing"),
    ] {
        if count > 0 {
            shares.push(format!("{} {what}", percent(count, used)));
        }
    }
    vec![format!("{setting}; of the pages in use {}", shares.join(", "))]
}

fn strength(surveyed: &Surveyed) -> Vec<String> {
    let evidence = surveyed.description.evidence;
    vec![format!("tested by {}", evidence.tested_by), format!("cannot detect: {}", evidence.unseen)]
}

fn sound(surveyed: &Surveyed) -> Vec<String> {
    let summary = &surveyed.summary;
    let mut lines =
        vec![format!("{}: {}", surveyed.verdict.name(), why(surveyed.verdict, summary))];
    lines.extend(surveyed.findings.iter().map(finding));
    let severities = summary.severities;
    let serious = severities.damage + severities.suspect;
    let told = surveyed.findings.len() as u64;
    if serious > told {
        lines.push(format!("and {} more", grouped(serious - told)));
    }
    for unread in &surveyed.unread {
        let name = shortened(&printable(&unread.file), NAME_CHARS_MAX);
        lines.push(format!("unread: {name}: {}", printable(&unread.error)));
    }
    lines
}

fn finding(finding: &Finding) -> String {
    let file = shortened(&printable(&finding.place.file), NAME_CHARS_MAX);
    let page = finding.place.page.map_or(String::new(), |page| format!(" page {page}"));
    let name = relation_name(finding).map_or(String::new(), |name| {
        format!(" ({})", shortened(&printable(&name), NAME_CHARS_MAX))
    });
    format!("{}: {file}{page}{name}: {}", finding.severity.name(), finding.kind.name())
}

/// How fast all of it was read to nowhere.
fn reading(surveyed: &Surveyed) -> Vec<String> {
    let summary = &surveyed.summary;
    let from = match surveyed.device_bytes {
        // Beside pages, small files are read.
        Some(device) if device >= summary.bytes => "; all of it from the device".to_owned(),
        Some(0) => "; all of it from memory, so it says nothing of the disk".to_owned(),
        Some(device) => format!(
            "; {} of it from the device, the rest from memory",
            percent(device, summary.bytes.max(1))
        ),
        None => String::new(),
    };
    let mut lines = vec![format!(
        "{} to nowhere in {}: {} MiB/s{from}",
        bytes(summary.bytes),
        duration(summary.elapsed),
        rate(summary.mib_per_second()),
    )];
    lines.extend(surveyed.storage.map(|traffic| format!("object storage: {traffic}")));
    lines
}

/// What more protection costs here.
fn price(surveyed: &Surveyed) -> Vec<String> {
    let by_mode = surveyed.summary.by_mode;
    let is_whole = by_mode.checksum > 0 && by_mode.torn == 0 && by_mode.none == 0;
    let mut lines = Vec::new();
    if is_whole {
        lines.push("nothing more to turn on: every page in use carries a checksum".to_owned());
    }
    if !surveyed.price.known.is_empty() {
        let lead = if is_whole { "what that costs here, measured" } else { "measured here" };
        lines.extend(surveyed.price.known.iter().map(|said| format!("{lead}: {said}")));
        return lines;
    }
    if is_whole {
        return lines;
    }
    lines.push(match &surveyed.price.command {
        Some(command) => format!("unknown on this machine: {command} measures it"),
        None => format!(
            "unknown: no experiment measures it for {}",
            database::kind_named(surveyed.description.format).map_or("this kind", |it| it.title)
        ),
    });
    lines
}
