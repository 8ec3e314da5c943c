//! Results for people: a line for what a target is, a line for each finding
//! (neighbouring pages with the same fault share one), and one line at the end.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::SystemTime;

use crate::database::Description;
use crate::database::repository::RepositoryPart;
use crate::report::colours::Colours;
use crate::report::fold::Folded;
use crate::report::map::{Layout, PageMap};
use crate::report::sets::SetsSeen;
use crate::report::why::why;
use crate::report::{Report, RunEnd, TargetEnd};
use crate::verdict::{Finding, Note, PageCounts, Recount, Stretch, Unread, Verdict};
use crate::verify::{Sink, Summary, Verified, mib_per_second};
use crate::words::{bytes, counted, duration, grouped, printable, rate, relation_name};

/// Writes the lines; see the module.
#[derive(Debug)]
pub struct TextReport<W> {
    out: W,
    colours: Colours,
    folded: Option<Folded>,
    last_hint: Option<String>,
    /// The circumstances as they were said at the target's beginning.
    state: String,
    /// Whether what pages are tested by, and what these tests cannot detect, is said.
    explains: bool,
    /// How maps are laid out, if they are wanted, and that of this target.
    layout: Option<Layout>,
    map: Option<PageMap>,
    /// Of the repository whose targets come.
    sets: SetsSeen,
}

impl<W: Write> TextReport<W> {
    /// A report to `out`.
    pub fn new(out: W, colours: Colours) -> Self {
        Self {
            out,
            colours,
            folded: None,
            last_hint: None,
            state: String::new(),
            sets: SetsSeen::default(),
            explains: false,
            layout: None,
            map: None,
        }
    }

    /// The same, which says of each target what its pages are tested by and what
    /// these tests cannot detect.
    #[must_use]
    pub fn with_explanations(mut self) -> Self {
        self.explains = true;
        self
    }

    /// The same, with a map after each target.
    #[must_use]
    pub fn with_map(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// `3 of 3 sets sound; any moment from ...`
    fn say_sets(&mut self, one: &str, moments: Option<&String>) -> io::Result<()> {
        let SetsSeen { seen, sound, .. } = std::mem::take(&mut self.sets);
        write!(self.out, "  {} of {} sound", grouped(sound), counted(seen, one))?;
        match moments.filter(|moments| !moments.is_empty()) {
            Some(moments) => writeln!(self.out, "; {}", printable(moments)),
            None => writeln!(self.out),
        }
    }

    fn unfold(&mut self) -> io::Result<()> {
        let Some(folded) = self.folded.take() else { return Ok(()) };
        let Finding { place, severity, kind, .. } = &folded.finding;
        // What is of no single file is of all of them.
        let file = if place.file.is_empty() { "the database" } else { &place.file };
        let mut line = format!(
            "  {} {:<10} {}",
            self.colours.severity(*severity),
            kind.name(),
            printable(file)
        );
        if let Some(name) = relation_name(&folded.finding) {
            let _ = write!(line, " ({})", printable(&name));
        }
        if let (Some(page), Some(last)) = (place.page, folded.last()) {
            if folded.pages > 1 {
                let _ = write!(line, " pages {page} to {last} ({} pages)", grouped(folded.pages));
            } else {
                let _ = write!(line, " page {page}");
            }
        }
        if let Some(offset) = place.offset {
            let _ = write!(line, " at byte {}", offset.0);
        }
        let sums = folded.sums().map(|(stored, computed)| {
            let (stored, computed) = (printable(stored), printable(computed));
            format!("stored {stored}, computed {computed}")
        });
        // The detail is the first page's; of many, it stands as an example.
        let detail = folded.finding.detail.as_deref().map(printable);
        let stored = folded.finding.origin.as_ref().map(|origin| {
            let file = printable(&origin.stored_file);
            match origin.stored_offset {
                Some(offset) => format!("stored in {file} from byte {} on", offset.0),
                None => format!("stored in {file}"),
            }
        });
        let evidence: Vec<_> = sums.into_iter().chain(detail).chain(stored).collect();
        if !evidence.is_empty() {
            let _ = write!(line, ": {}", evidence.join("; "));
        }
        writeln!(self.out, "{line}")?;
        if let Some(hint) = &folded.finding.hint
            && self.last_hint.as_ref() != Some(hint)
        {
            writeln!(self.out, "           hint: {}", printable(hint))?;
            self.last_hint = Some(hint.clone());
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for TextReport<W> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        match &mut self.folded {
            Some(folded) if folded.takes(finding) => folded.pages += 1,
            _ => {
                self.unfold()?;
                self.folded = Some(Folded::one(finding));
            }
        }
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unfold()?;
        let word = self.colours.paint(&format!("{:<8}", "unread"), "33");
        write!(self.out, "  {word} {}", printable(&unread.file))?;
        if unread.length > 0 {
            write!(self.out, " at byte {}, {}", unread.offset.0, bytes(unread.length))?;
        }
        writeln!(self.out, ": {}", printable(&unread.error))
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.unfold()?;
        let word = self.colours.paint(&format!("{:<8}", "note"), "36");
        let about = if note.file.is_empty() {
            String::new()
        } else {
            format!("{}: ", printable(&note.file))
        };
        writeln!(self.out, "  {word} {about}{}", printable(&note.text))
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        if let Some(map) = &mut self.map {
            map.add(stretch);
        }
        Ok(())
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        if let Some(map) = &mut self.map {
            map.recount(recount);
        }
        Ok(())
    }
}

impl<W: Write + Send> Report for TextReport<W> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.last_hint = None;
        self.state.clone_from(&target.state);
        self.map = self.layout.map(|layout| PageMap::new(layout.room(), target.page_size));
        let pages = match target.page_size {
            // The log of a repository has none that are counted.
            0 => String::new(),
            size => format!("{} pages, ", bytes(u64::from(size))),
        };
        let path = printable(&target.path.to_string_lossy());
        // The log says who wrote it, and a control file what state it is in.
        let (engine, state) = (printable(&target.engine), printable(&target.state));
        writeln!(self.out, "{path}: {engine}, {pages}{state}")
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        self.unfold()?;
        let Verified { description, summary, .. } = target.verified;
        let verdict = target.verdict();
        let reason = match &description.part {
            _ if target.overall.is_some() => {
                target.overall.map(|overall| overall.reason.clone()).unwrap_or_default()
            }
            Some(RepositoryPart::Whole(Some(_))) if verdict == Verdict::Intact => {
                "every record of the log that is here was read".to_owned()
            }
            Some(RepositoryPart::Chains(Some(_))) if verdict == Verdict::Intact => {
                "no backup that is here lacks another one".to_owned()
            }
            Some(RepositoryPart::Chains(Some(_))) if verdict == Verdict::Suspect => {
                "backups between others are missing".to_owned()
            }
            _ => why(verdict, summary),
        };
        match &description.part {
            Some(RepositoryPart::Whole(log)) => {
                self.say_sets("set", log.is_some().then_some(&description.state))?;
            }
            Some(RepositoryPart::Chains(chains)) => {
                self.say_sets("backup file", chains.is_some().then_some(&description.state))?;
            }
            _ if description.state != self.state => {
                let engine = printable(&description.engine);
                writeln!(self.out, "  {engine}, {}", printable(&description.state))?;
            }
            _ => {}
        }
        self.sets.add(description, verdict);
        writeln!(self.out, "  verdict: {} ({})", self.colours.verdict(verdict), reason)?;
        if self.explains {
            writeln!(self.out, "  tested by: {}", description.evidence.tested_by)?;
            writeln!(self.out, "  these tests cannot detect: {}", description.evidence.unseen)?;
        }
        if let (Some(mut map), Some(layout)) = (self.map.take(), self.layout) {
            map.end(target);
            for line in map.lines(layout, self.colours) {
                writeln!(self.out, "{line}")?;
            }
        }
        Ok(())
    }

    /// Says nothing: an error is no result, and belongs elsewhere.
    fn failed_target(&mut self, _: &str, _: &str, _: SystemTime) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()> {
        if let Some(traffic) = run.storage {
            writeln!(self.out, "Object storage: {traffic}")?;
        }
        if let Some(drill) = run.drill {
            writeln!(self.out, "{drill}")?;
        }
        // Where nothing could be opened, the errors have said all there is.
        if run.opened > 0 {
            writeln!(self.out, "{}", last_line(run.total))?;
        }
        self.out.flush()
    }
}

/// `Checked 417,032 pages (3.18 GiB) of 312 files in 0.64 s (4,970 MiB/s): 3
/// damaged, 12 empty, 0 unprotected`.
#[must_use]
pub fn last_line(total: &Summary) -> String {
    let PageCounts { empty, unprotected, unverifiable, undecided, suspect, damaged, .. } =
        total.pages;
    let mut line = format!(
        "Checked {} ({}) of {} in {} ({} MiB/s): {} damaged, {} empty, {} unprotected",
        counted(total.pages.total(), "page"),
        bytes(total.bytes),
        counted(total.files, "file"),
        duration(total.elapsed),
        rate(mib_per_second(total.bytes, total.elapsed)),
        grouped(damaged),
        grouped(empty),
        grouped(unprotected)
    );
    for (count, word) in [
        (unverifiable, "unverifiable"),
        (undecided, "undecided"),
        (suspect, "suspect"),
        (total.unread, "unread"),
    ] {
        if count > 0 {
            let _ = write!(line, ", {} {word}", grouped(count));
        }
    }
    if total.stopped {
        line.push_str(", stopped early");
    }
    line
}
