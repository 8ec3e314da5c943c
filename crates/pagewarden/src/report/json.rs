//! One JSON object for a run, written as it comes in: memory stays flat
//! however many findings there are. The fields are those of
//! `docs/json.md`.

use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::json;
use tempfile::SpooledTempFile;

use crate::database::Description;
use crate::database::repository::RepositoryPart;
use crate::report::{Report, RunEnd, TargetEnd};
use crate::verdict::{Finding, Note, Protection, Unread};
use crate::verify::{Sink, Verified};
use crate::words::{printable_json, seconds};

/// Unread stretches are kept in memory up to this many bytes and in an
/// unnamed temporary file beyond: they come after the findings, which are
/// written at once.
const UNREAD_IN_MEMORY: usize = 256 << 10;

/// Writes the object; see the module.
#[derive(Debug)]
pub struct JsonReport<W> {
    out: W,
    targets: u64,
    failed: Vec<serde_json::Value>,
    findings: u64,
    unread: SpooledTempFile,
    unread_count: u64,
    notes: Vec<Note>,
}

impl<W: Write> JsonReport<W> {
    /// Begins the object of a run of `command`.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn begin(mut out: W, command: &str) -> io::Result<Self> {
        write!(
            out,
            "{{\"pagewarden\":{},\"command\":{},\"targets\":[",
            json!(crate::VERSION),
            json!(command)
        )?;
        Ok(Self {
            out,
            targets: 0,
            failed: Vec::new(),
            findings: 0,
            unread: SpooledTempFile::new(UNREAD_IN_MEMORY),
            unread_count: 0,
            notes: Vec::new(),
        })
    }
}

impl<W: Write + Send> Sink for JsonReport<W> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        append(&mut self.out, &mut self.findings, finding)
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        append(&mut self.unread, &mut self.unread_count, unread)
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        // Targets bound how many notes they give.
        self.notes.push(note.clone());
        Ok(())
    }
}

impl<W: Write + Send> Report for JsonReport<W> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        if self.targets > 0 {
            self.out.write_all(b",")?;
        }
        self.targets += 1;
        self.findings = 0;
        self.unread = SpooledTempFile::new(UNREAD_IN_MEMORY);
        self.unread_count = 0;
        self.notes.clear();
        let head = json!({
            "path": target.path.to_string_lossy(),
            "format": target.format,
        });
        // The object stays open for what follows.
        let head = printable_json(&head.to_string());
        self.out.write_all(head.strip_suffix('}').unwrap_or(&head).as_bytes())?;
        self.out.write_all(b",\"findings\":[")
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        let Verified { description, summary, .. } = target.verified;
        self.out.write_all(b"],\"unread\":[")?;
        self.unread.seek(SeekFrom::Start(0))?;
        let mut unread = Vec::new();
        // Copied in pieces: it may be larger than memory should be.
        loop {
            unread.clear();
            if (&mut self.unread).take(64 << 10).read_to_end(&mut unread)? == 0 {
                break;
            }
            self.out.write_all(&unread)?;
        }
        let verdict = target.verdict();
        let mut tail = json!({
            // Of a stream, these are only known at its end.
            "engine": description.engine,
            "page_size": description.page_size,
            "setting": description.setting,
            "state": description.state,
            "tested_by": description.evidence.tested_by,
            "unseen": description.evidence.unseen,
            "live": description.live,
            "notes": self.notes,
            "verdict": verdict,
            // Where no page is in use, what the next one would carry.
            "protection": summary
                .by_mode
                .protection()
                .unwrap_or(description.setting.unwrap_or(Protection::None).name()),
            "by_mode": summary.by_mode,
            "files": summary.files,
            "pages": summary.pages,
            "bytes": summary.bytes,
            "seconds": seconds(summary.elapsed),
            "mib_per_second": rounded(summary.mib_per_second()),
        });
        let part = match &description.part {
            Some(RepositoryPart::Set(backup)) => Some(("backup", serde_json::to_value(&**backup)?)),
            Some(RepositoryPart::Whole(Some(log))) => Some(("log", serde_json::to_value(&**log)?)),
            Some(RepositoryPart::Binlogs(Some(log))) => {
                Some(("binlogs", serde_json::to_value(&**log)?))
            }
            Some(RepositoryPart::Chains(Some(chains))) => {
                Some(("databases", serde_json::to_value(&chains.databases)?))
            }
            Some(
                RepositoryPart::Whole(None)
                | RepositoryPart::Chains(None)
                | RepositoryPart::Binlogs(None)
                | RepositoryPart::Media,
            )
            | None => None,
        };
        if let (Some(tail), Some((name, part))) = (tail.as_object_mut(), part) {
            tail.insert(name.to_owned(), part);
        }
        if let (Some(tail), Some(overall)) = (tail.as_object_mut(), target.overall) {
            tail.extend(overall.fields.clone());
        }
        let tail = printable_json(&tail.to_string());
        self.out.write_all(b"],")?;
        self.out.write_all(tail.strip_prefix('{').unwrap_or(&tail).as_bytes())
    }

    fn failed_target(&mut self, path: &str, error: &str, _: SystemTime) -> io::Result<()> {
        self.failed.push(json!({ "path": path, "error": error }));
        Ok(())
    }

    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()> {
        let mut tail = json!({
            "verdict": run.verdict,
            "bytes": run.total.bytes,
            "seconds": seconds(run.total.elapsed),
            "mib_per_second": rounded(run.total.mib_per_second()),
        });
        if let (Some(tail), Some(traffic)) = (tail.as_object_mut(), &run.storage) {
            tail.insert("storage".to_owned(), json!(traffic));
        }
        if let (Some(tail), Some(drill)) = (tail.as_object_mut(), run.drill) {
            tail.insert("restore_drill".to_owned(), json!(drill));
        }
        if let (Some(tail), Some(first)) = (tail.as_object_mut(), self.failed.first().cloned()) {
            if self.targets == 0 {
                tail.insert("error".to_owned(), first.get("error").cloned().unwrap_or_default());
            }
            tail.insert("failed".to_owned(), self.failed.clone().into());
        }
        let tail = printable_json(&tail.to_string());
        self.out.write_all(b"],")?;
        self.out.write_all(tail.strip_prefix('{').unwrap_or(&tail).as_bytes())?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

/// Writes one element of an array, with the comma before it.
fn append(out: &mut impl Write, count: &mut u64, element: &impl Serialize) -> io::Result<()> {
    if *count > 0 {
        out.write_all(b",")?;
    }
    *count += 1;
    out.write_all(printable_json(&serde_json::to_string(element)?).as_bytes())
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
