//! A pack, verified: every block against its sum, every file against its hash.
//!
//! Its pages are blocks of the pack, numbered in each file. The pages of the
//! database were verified when it was packed; what was found then is reported again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::Metadata;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde::Deserialize;

use crate::database::thread::FAILED;
use crate::database::{
    Description, Evidence, Format, LinkMaker, OpenOptions, PageFile, Probe, Step, StoredKind,
    StreamedPages, Target, TurnedOn,
};
use crate::error::Error;
use crate::pack::{
    BEGIN, Pack, PackError, SPAN_BYTES, Search, What, block_sum, file_hash, is_pack, open_chain_in,
    span_hash,
};
use crate::page::{PageFinding, PageFormat, PageRun, RunVerdict};
use crate::source::store::StorePath;
use crate::verdict::{
    ByteOffset, Finding, Kind, Note, PageNo, Protection, Severity, Standing, Unread,
};
use crate::words::{bytes, counted};

/// What it can do.
pub const FORMAT: Format = Format {
    name: "pack",
    title: "pack",
    summary: "a pack that `pagewarden pack` made",
    endings: &["pwk"],
    folder_mark: |_, _| None,
    probe,
    open,
    stream: None,
    in_store: Some(StoredKind {
        probe: probe_stored,
        reads_folder: |_| false,
        end_first: true,
        open: open_in,
    }),
    parts: None,
    repositories: &[],
    in_folder: None,
    with_log: None,
    turned_on: TurnedOn::Never,
    experiments: &[],
    sidecars: &[],
    link_maker: |_| LinkMaker::Unknown,
    specimens: None,
    protect: None,
    repair: None,
};

const HINT: &str = "take another copy of the pack, or pack the database again";

fn probe(path: &Path, metadata: &Metadata) -> Probe {
    if !metadata.is_file() {
        return Probe::No;
    }
    if is_pack(path) { Probe::Yes } else { Probe::No }
}

/// By its first bytes, which were read.
#[allow(clippy::unnecessary_wraps, reason = "other formats ask the store")]
fn probe_stored(_: &StorePath, begin: &[u8]) -> io::Result<Probe> {
    Ok(if begin.starts_with(BEGIN.as_bytes()) { Probe::Yes } else { Probe::No })
}

fn open(path: &Path, _: &Metadata, options: &OpenOptions) -> Result<Target, Error> {
    open_in(&path.into(), options)
}

fn open_in(place: &StorePath, options: &OpenOptions) -> Result<Target, Error> {
    let path = place.path();
    let mut pack = Pack::open_in(place).map_err(|error| match error {
        PackError::Io(error) => Error::io("read", path, error),
        other => Error::damaged(path, other.to_string(), HINT),
    })?;
    // What was named may be for another of several packs.
    if pack.base_root().is_some() && !options.bases.is_empty() {
        let bases: Vec<_> = options.bases.iter().map(|base| place.named(base)).collect();
        pack = open_chain_in(place, &bases, Search::Named)?;
    }
    let pack = Arc::new(pack);
    let report = pack.report();
    let report_is_sound = report.is_ok();
    let report: Option<Report> = report.ok().and_then(|json| serde_json::from_slice(&json).ok());
    let description = description(path, &pack, report.as_ref());
    let mut ready = VecDeque::new();
    ready.extend(report.and_then(|report| report.doubt()).map(Step::Finding));
    if let Some(root) = pack.base_root().filter(|_| pack.lacks_base()) {
        let text = format!(
            "what has not changed lies in its base, the pack with root {root}, and was not looked at: name that one with --base"
        );
        ready.push_back(Step::Note(Note { file: String::new(), text }));
    }
    let parts = [
        (report_is_sound, "the report of the check that was made while packing is damaged"),
        (
            pack.has_sound_file_records().unwrap_or(false),
            "its records of files are damaged; its table of them is sound",
        ),
    ];
    for (_, detail) in parts.into_iter().filter(|(is_sound, _)| !is_sound) {
        let finding = Finding::of_file("", Severity::Damage, Kind::Header, detail.to_owned());
        ready.push_back(Step::Finding(finding.with_hint(HINT)));
    }
    let steps = Steps::new(Files::new(pack, place), ready, options.jobs);
    Ok(Target { description, steps: Box::new(steps), woken: None })
}

/// As much of the report of `check` as is reported again.
#[derive(Debug, Deserialize)]
struct Report {
    verdict: String,
    #[serde(default)]
    targets: Vec<ReportedTarget>,
}

#[derive(Debug, Deserialize)]
struct ReportedTarget {
    engine: String,
    #[serde(default)]
    findings: Vec<ReportedFinding>,
}

#[derive(Debug, Deserialize)]
struct ReportedFinding {
    severity: Severity,
    kind: Kind,
}

impl Report {
    /// What is said of a pack whose database was not sound when it was packed: the pack may be as it
    /// was made, and what is in it is no better than it was.
    fn doubt(&self) -> Option<Finding> {
        // That nothing protected its pages is no matter of what became of them.
        if ["intact", "unprotected"].contains(&self.verdict.as_str()) {
            return None;
        }
        let findings = self.targets.iter().flat_map(|target| &target.findings);
        let gravest = findings.max_by_key(|finding| finding.severity);
        let detail = format!("the check that was made while packing said: {}", self.verdict);
        let kind = gravest.map_or(Kind::Missing, |finding| finding.kind);
        Some(Finding::of_file("", Severity::Suspect, kind, detail).with_hint(
            "pack a sound copy of the database; pagewarden unpack gives this one back as it was",
        ))
    }
}

fn description(path: &Path, pack: &Pack, report: Option<&Report>) -> Description {
    let files = pack.entries().iter().filter(|entry| entry.what != What::Folder).count() as u64;
    let content = pack.entries().iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes()));
    let engine = report.and_then(|report| report.targets.first());
    Description {
        part: None,
        path: path.to_owned(),
        format: FORMAT.name,
        engine: engine.map_or("pack".to_owned(), |target| format!("pack of {}", target.engine)),
        page_size: u32::try_from(pack.block_bytes()).unwrap_or(u32::MAX),
        setting: Some(Protection::Checksum),
        state: format!(
            "{}, {} in {}, root {}{}",
            counted(files, "file"),
            bytes(content),
            bytes(pack.stored_bytes()),
            pack.root(),
            match pack.base_root() {
                Some(root) => format!(", a delta to root {root}"),
                None => String::new(),
            }
        ),
        evidence: Evidence {
            tested_by: "CRC-64 of every block, BLAKE3 of every file",
            unseen: match pack.lacks_base() {
                true => "what lies in the base; a pack that was made anew has another root",
                false => "nothing of what was packed; a pack that was made anew has another root",
            },
        },
        live: false,
        epoch: None,
    }
}

/// Blocks of one file of a pack.
struct Blocks {
    pack: Arc<Pack>,
    file: usize,
    file_bytes: u64,
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocks").field("file", &self.file).finish_non_exhaustive()
    }
}

impl PageFormat for Blocks {
    fn page_size(&self) -> usize {
        self.pack.block_bytes()
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        let block_bytes = self.pack.block_bytes();
        for (number, block) in (run.first.0..).zip(run.bytes.chunks(block_bytes)) {
            if self.pack.lacks_base() && self.pack.lies_in_base(self.file, number) {
                verdict.skip();
                continue;
            }
            let begin = number.saturating_mul(block_bytes as u64);
            let rest = usize::try_from(self.file_bytes.saturating_sub(begin));
            // The last one was filled up with zeroes.
            let block = block.get(..rest.unwrap_or(usize::MAX).min(block_bytes)).unwrap_or(block);
            let stored = self.pack.block_sum(self.file, number);
            let computed = block_sum(block);
            if stored == Some(computed) {
                match computed {
                    None => verdict.empty(),
                    Some(_) => verdict.pass(Standing::Ok, Protection::Checksum),
                }
                continue;
            }
            let shown = |sum: Option<u64>| sum.map(|sum| format!("{sum:016x}"));
            let mut finding = PageFinding::failed(PageNo(number), Severity::Damage, Kind::Checksum)
                .with_detail("the block does not expand to what was packed");
            finding.stored = stored.and_then(shown);
            finding.hint = Some(HINT.to_owned());
            verdict.fail(Protection::Checksum, finding);
        }
    }
}

/// The files of a pack, without folders.
#[derive(Debug, Clone)]
struct Files {
    pack: Arc<Pack>,
    files: Vec<PackedFile>,
    /// Their spans in the order in which they lie in the pack: a file by its place in the list, and the span.
    /// `None`: they are read in the order of files, which costs nothing on a device.
    order: Option<Arc<[(usize, u64)]>>,
}

#[derive(Debug, Clone)]
struct PackedFile {
    /// Its place in the pack's table.
    number: usize,
    spans: u64,
    hash: [u8; 32],
    page_file: Arc<PageFile>,
}

impl Files {
    fn new(pack: Arc<Pack>, place: &StorePath) -> Self {
        let path = place.path();
        let mut files = Vec::new();
        for (number, entry) in pack.entries().iter().enumerate() {
            let What::File { bytes, hash, .. } = entry.what else { continue };
            let format = Blocks { pack: Arc::clone(&pack), file: number, file_bytes: bytes };
            let page_file =
                PageFile::of(entry.name.to_string_lossy(), path, bytes, Arc::new(format));
            let spans = bytes.div_ceil(SPAN_BYTES as u64);
            files.push(PackedFile { number, spans, hash, page_file: Arc::new(page_file) });
        }
        let mut files = Self { pack, files, order: None };
        // In a store, each piece is fetched once only if all of it is read at once.
        if place.local_path().is_none() {
            let mut spans: Vec<_> = files.spans().collect();
            spans.sort_by_cached_key(|(file, span)| {
                let number = files.files.get(*file).map(|file| file.number);
                number.and_then(|number| files.pack.span_begin(number, *span))
            });
            files.order = Some(spans.into());
        }
        files
    }

    /// All spans, file by file.
    fn spans(&self) -> impl Iterator<Item = (usize, u64)> {
        let of =
            |(index, file): (usize, &PackedFile)| (0..file.spans).map(move |span| (index, span));
        self.files.iter().enumerate().flat_map(of)
    }

    /// All spans, in the order in which they are read.
    fn in_order(&self) -> Box<dyn Iterator<Item = (usize, u64)> + '_> {
        match &self.order {
            Some(order) => Box::new(order.iter().copied()),
            None => Box::new(self.spans()),
        }
    }
}

/// A span as it came out of the pack.
struct Expanded {
    /// Its place among all spans.
    sequence: u64,
    /// Its file, by its place in [`Files`].
    file: usize,
    span: u64,
    bytes: Result<Vec<u8>, PackError>,
    /// Some of its blocks lie in a base that is not available.
    is_part: bool,
    hash: [u8; 32],
}

/// A thread that expands spans; it ends when there are no more, or the receiver is gone.
fn expand(files: &Files, next: &AtomicU64, sender: &SyncSender<Expanded>) {
    let mut contents = files.pack.contents();
    let mut sequence = next.fetch_add(1, Ordering::Relaxed);
    for (place, (index, span)) in (0_u64..).zip(files.in_order()) {
        let Some(file) = files.files.get(index).filter(|_| place == sequence) else { continue };
        let mut bytes = Vec::new();
        let read = contents.held_span(file.number, span, &mut bytes);
        let hash = span_hash(span, file.spans, &bytes);
        let is_part = read.as_ref().is_ok_and(|(_, elsewhere)| *elsewhere > 0);
        let bytes = read.map(|_| bytes);
        let expanded = Expanded { sequence, file: index, span, bytes, is_part, hash };
        if sender.send(expanded).is_err() {
            return;
        }
        sequence = next.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a pack consists of, in the order of its files, expanded by several threads.
struct Steps {
    files: Files,
    ready: VecDeque<Step>,
    results: Option<Receiver<Expanded>>,
    /// Those that came before their turn.
    early: BTreeMap<u64, Expanded>,
    next: u64,
    /// What came of files that have not come whole, by their places in the list.
    begun: HashMap<usize, Begun>,
    is_over: bool,
    /// How many threads there are.
    jobs: usize,
}

/// What came of a file.
#[derive(Default)]
struct Begun {
    /// Of its spans, those that came.
    hashes: BTreeMap<u64, [u8; 32]>,
    is_damaged: bool,
    /// Not all of it is in this pack.
    is_part: bool,
}

impl Steps {
    fn new(files: Files, ready: VecDeque<Step>, jobs: Option<NonZero<usize>>) -> Self {
        let jobs =
            jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
        let (early, begun) = (BTreeMap::new(), HashMap::new());
        Self { files, ready, results: None, early, next: 0, begun, is_over: false, jobs }
    }

    fn begin(&self) -> Receiver<Expanded> {
        let (sender, results) = sync_channel(self.jobs);
        let next = Arc::new(AtomicU64::new(0));
        for _ in 0..self.jobs {
            let (files, sender, next) = (self.files.clone(), sender.clone(), Arc::clone(&next));
            std::thread::spawn(move || expand(&files, &next, &sender));
        }
        results
    }

    /// The next span in order; `None` when there are no more.
    fn expanded(&mut self) -> Option<Expanded> {
        if self.results.is_none() {
            self.results = Some(self.begin());
        }
        loop {
            if let Some(expanded) = self.early.remove(&self.next) {
                self.next = self.next.saturating_add(1);
                return Some(expanded);
            }
            let expanded = self.results.as_ref()?.recv().ok()?;
            self.early.insert(expanded.sequence, expanded);
        }
    }

    /// Spans that did not come were not looked at.
    fn end(&mut self) -> Option<Step> {
        let all = self.files.files.iter().fold(0, |all: u64, file| all.saturating_add(file.spans));
        let is_short = !std::mem::replace(&mut self.is_over, true) && self.next < all;
        let place = usize::try_from(self.next).unwrap_or(usize::MAX);
        let at = self.files.in_order().nth(place).and_then(|(file, _)| self.files.files.get(file));
        let name = at.map_or("", |file| &file.page_file.name);
        is_short.then(|| Step::Unread(Unread::of_file(name, FAILED)))
    }

    fn take(&mut self, expanded: Expanded) {
        let Some(file) = self.files.files.get(expanded.file) else { return };
        let offset = ByteOffset(expanded.span.saturating_mul(SPAN_BYTES as u64));
        let name = &file.page_file.name;
        let begun = self.begun.entry(expanded.file).or_default();
        match expanded.bytes {
            Ok(mut bytes) => {
                let block_bytes = self.files.pack.block_bytes();
                let length = bytes.len();
                bytes.resize(length.next_multiple_of(block_bytes), 0);
                let filler_bytes = (bytes.len() - length) as u64;
                let file = Arc::clone(&file.page_file);
                let pages = StreamedPages { file, offset, bytes, filler_bytes };
                self.ready.push_back(Step::Pages(pages));
            }
            Err(PackError::Io(error)) => {
                let length = SPAN_BYTES as u64;
                let unread = Unread::stretch(name.clone(), offset, length, error.to_string());
                self.ready.push_back(Step::Unread(unread));
                begun.is_damaged = true;
            }
            Err(error) => {
                let mut finding =
                    Finding::of_file(name, Severity::Damage, Kind::Header, error.to_string());
                finding.place.offset = Some(offset);
                finding.hint = Some(HINT.to_owned());
                self.ready.push_back(Step::Finding(finding));
                begun.is_damaged = true;
            }
        }
        begun.hashes.insert(expanded.span, expanded.hash);
        begun.is_part |= expanded.is_part;
        if begun.hashes.len() as u64 == file.spans {
            let hashes: Vec<_> = std::mem::take(&mut begun.hashes).into_values().collect();
            let hash = file_hash(&hashes);
            // Of what could not be read, and of blocks that failed, enough was said.
            let is_told = begun.is_damaged || begun.is_part;
            self.begun.remove(&expanded.file);
            if hash != file.hash && !is_told {
                let detail = "its BLAKE3 hash is not that of the file that was packed".to_owned();
                let mut finding = Finding::of_file(name, Severity::Damage, Kind::Checksum, detail);
                finding.hint = Some(HINT.to_owned());
                self.ready.push_back(Step::Finding(finding));
            }
        }
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            match self.expanded() {
                Some(expanded) => self.take(expanded),
                None => return self.end(),
            }
        }
    }
}
