//! What to read next: walks the target and cuts its files into runs.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::source::buffer::ALIGNMENT;
use crate::source::file::open_regular;
use crate::target::{PageFile, Step, Target};
use crate::verdict::{ByteOffset, Finding, Kind, PageNo, Place, Severity, Unread};
use crate::verify::{Caching, Options, RUN_BYTES};

/// A file of pages while it is read.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) page_file: PageFile,
    pub(super) page_size: u64,
    /// For reads through the page cache.
    pub(super) cached: Arc<File>,
    /// For reads past it; `None` where the file system refuses them.
    pub(super) direct: Option<Arc<File>>,
    /// Set when a direct read was refused after all.
    pub(super) direct_refused: AtomicBool,
    /// The length when it was opened.
    pub(super) length: u64,
}

/// A stretch of whole pages to read and judge.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) sequence: u64,
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) direct: bool,
}

impl Run {
    /// What to read from when it is done step by step. A run that goes past
    /// the page cache stays past it, or a sector that has gone bad would hide
    /// behind its cached copy; only pages smaller than the alignment of direct
    /// reads must be read the other way.
    pub(super) fn readable(&self) -> &File {
        match &self.file.direct {
            Some(direct)
                if self.direct
                    && self.file.page_size.is_multiple_of(ALIGNMENT as u64)
                    && !self.file.direct_refused.load(Ordering::Relaxed) =>
            {
                direct
            }
            _ => &self.file.cached,
        }
    }
}

impl OpenFile {
    /// The number of the page at `offset`.
    pub(super) fn page_at(&self, offset: u64) -> PageNo {
        self.page_file.first_page.plus(offset / self.page_size)
    }

    pub(super) fn unread(&self, offset: u64, length: u64, error: impl Into<String>) -> Unread {
        Unread {
            file: self.page_file.name.clone(),
            offset: ByteOffset(offset),
            length,
            error: error.into(),
        }
    }
}

/// What the plan has for a worker.
#[derive(Debug)]
pub(super) enum Next {
    /// Read and judge this.
    Run(Run),
    /// Something that needs no reading, for the collector.
    Event(u64, Event),
    /// Nothing just now: the rate is used up for so long.
    Wait(Duration),
    /// Nothing more.
    End,
}

/// A result that needs no reading.
#[derive(Debug)]
pub(super) enum Event {
    Step(Box<Step>),
    /// A file was opened; it counts.
    Opened,
    /// A finding of the plan itself, and whether it stands for a page.
    PartialPage(Finding),
}

pub(super) struct Plan {
    steps: Box<dyn Iterator<Item = Step> + Send>,
    current: Option<(Arc<OpenFile>, u64)>,
    next_sequence: u64,
    caching: Caching,
    live: bool,
    pace: Option<Pace>,
    run_bytes: u64,
}

/// A ceiling on the rate: no run begins before the ones before it were paid
/// for, so that no pause is ever made up for by a burst.
struct Pace {
    bytes_per_second: u64,
    free_at: Instant,
}

impl Plan {
    pub(super) fn new(target: Target, options: &Options) -> Self {
        let pace =
            options.rate.map(|rate| Pace { bytes_per_second: rate.get(), free_at: Instant::now() });
        // At a low rate a whole run would be a burst: an eighth of a second's
        // worth at a time, at least a page.
        let run_bytes = pace.as_ref().map_or(RUN_BYTES as u64, |pace| {
            (pace.bytes_per_second / 8).clamp(1, RUN_BYTES as u64)
        });
        Self {
            steps: target.steps,
            current: None,
            next_sequence: 0,
            caching: options.caching,
            live: target.description.live,
            pace,
            run_bytes,
        }
    }

    /// The next thing to do.
    pub(super) fn next(&mut self) -> Next {
        loop {
            if let Some((file, offset)) = self.current.take() {
                if let Some(next) = self.next_of_file(file, offset) {
                    return next;
                }
                continue;
            }
            let Some(step) = self.steps.next() else { return Next::End };
            match step {
                Step::File(page_file) => match self.open(page_file) {
                    Ok(Some(file)) => {
                        self.current = Some((Arc::new(file), 0));
                        return self.event(Event::Opened);
                    }
                    Ok(None) => {}
                    Err(unread) => return self.event(Event::Step(Box::new(Step::Unread(unread)))),
                },
                other => return self.event(Event::Step(Box::new(other))),
            }
        }
    }

    fn event(&mut self, event: Event) -> Next {
        Next::Event(self.sequence(), event)
    }

    fn sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    /// How far the plan is ahead of `collected` results.
    pub(super) fn ahead_of(&self, collected: u64) -> u64 {
        self.next_sequence.saturating_sub(collected)
    }

    fn next_of_file(&mut self, file: Arc<OpenFile>, offset: u64) -> Option<Next> {
        let whole_pages = file.length - file.length % file.page_size;
        if offset >= whole_pages {
            return self.end_of_file(&file).map(|event| self.event(event));
        }
        let longest = (self.run_bytes - self.run_bytes % file.page_size).max(file.page_size);
        let length = longest.min(whole_pages - offset);
        if let Some(pace) = &mut self.pace {
            let now = Instant::now();
            if let Some(wait) =
                pace.free_at.checked_duration_since(now).filter(|wait| !wait.is_zero())
            {
                self.current = Some((file, offset));
                return Some(Next::Wait(wait));
            }
            pace.free_at =
                now + Duration::from_secs_f64(length as f64 / pace.bytes_per_second as f64);
        }
        let direct = self.goes_direct(&file, offset, length);
        let sequence = self.sequence();
        self.current = Some((Arc::clone(&file), offset + length));
        // A run is at most a mebibyte, or one page.
        let length = usize::try_from(length).ok()?;
        Some(Next::Run(Run { sequence, file, offset, length, direct }))
    }

    fn goes_direct(&self, file: &OpenFile, offset: u64, _length: u64) -> bool {
        file.direct.is_some()
            && offset.is_multiple_of(ALIGNMENT as u64)
            && !file.direct_refused.load(Ordering::Relaxed)
            && self.caching != Caching::Cached
    }

    /// What is left to say when all whole pages were given out.
    fn end_of_file(&self, file: &OpenFile) -> Option<Event> {
        let grown = |file: &OpenFile| {
            let length = file.cached.metadata().map_or(file.length, |metadata| metadata.len());
            length.checked_sub(file.length).filter(|more| *more > 0)
        };
        let rest = file.length % file.page_size;
        if self.live {
            // A server extends files by whole pages, but not in one stroke.
            if rest == 0 || still_partial(file).is_none() {
                return None;
            }
        } else if let Some(more) = grown(file) {
            let unread = file.unread(file.length, more, "the file grew while it was read");
            return Some(Event::Step(Box::new(Step::Unread(unread))));
        }
        if rest == 0 {
            return None;
        }
        let offset = file.length - rest;
        let finding = Finding {
            place: Place {
                file: file.page_file.name.clone(),
                page: Some(file.page_at(offset)),
                offset: Some(ByteOffset(offset)),
            },
            hint: file.page_file.hint.as_deref().map(str::to_owned),
            ..Finding::of_file(
                "",
                file.page_file.partial_page,
                Kind::Truncated,
                format!("the file ends after {rest} of {} bytes of this page", file.page_size),
            )
        };
        Some(Event::PartialPage(finding))
    }

    /// Opens a file; `None` if a live server took it away meanwhile.
    fn open(&self, page_file: PageFile) -> Result<Option<OpenFile>, Unread> {
        let unread = |error: io::Error| Unread {
            file: page_file.name.clone(),
            offset: ByteOffset(0),
            length: page_file.listed_bytes,
            error: error.to_string(),
        };
        let opened = open_regular(&page_file.path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(error) if self.live && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        let direct = match self.caching {
            Caching::Cached => None,
            Caching::Auto | Caching::Direct => open_direct_twin(&page_file, &metadata),
        };
        Ok(Some(OpenFile {
            page_size: page_file.format.page_size() as u64,
            page_file,
            cached: Arc::new(file),
            direct: direct.map(Arc::new),
            direct_refused: AtomicBool::new(false),
            length: metadata.len(),
        }))
    }
}

/// The same file again, for direct reads; `None` where they are refused or
/// the name has passed to another file.
#[cfg(target_os = "linux")]
fn open_direct_twin(page_file: &PageFile, metadata: &std::fs::Metadata) -> Option<File> {
    let file = crate::source::file::open_direct(&page_file.path).ok()?;
    let twin = file.metadata().ok()?;
    ((twin.dev(), twin.ino()) == (metadata.dev(), metadata.ino())).then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn open_direct_twin(_: &PageFile, _: &std::fs::Metadata) -> Option<File> {
    None
}

/// The length of a file that still ends inside a page after a moment.
fn still_partial(file: &OpenFile) -> Option<u64> {
    std::thread::sleep(Duration::from_millis(20));
    let length = file.cached.metadata().ok()?.len();
    (length == file.length).then_some(length)
}

/// A finding of severity damage about a partial page counts as a page.
pub(super) fn counts_as_page(finding: &Finding) -> bool {
    finding.severity == Severity::Damage
}
