//! The engine on real files with faults: what it reads, judges and leaves
//! behind when devices, file systems and other programs misbehave.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::database::{Description, Evidence, PageFile, Step, Target};
use crate::page::standings::Standings;
use crate::page::{PageFinding, PageFormat, PageRun, RunVerdict, Witness};
use crate::source::buffer::AlignedBuffer;
use crate::source::file::{open_regular, read_at};
use crate::source::queue::{ReadQueue, Slot};
use crate::source::rate::Rate;
use crate::source::residency::{Residency, absent, forget, residency};
use crate::testing::fault::{Fault, heal, inject};
use crate::verdict::{
    ByteOffset, Finding, Kind, Note, PageNo, Protection, Severity, Standing, Unread, Verdict,
};
use crate::verify::worker::Shared;
use crate::verify::{Caching, Method, Options, Progress, RUN_BYTES, Sink, Summary, verify};

/// Pages that hold their own number and nothing else.
#[derive(Debug)]
struct NumberedPages {
    page_size: usize,
}

impl PageFormat for NumberedPages {
    fn page_size(&self) -> usize {
        self.page_size
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        for (index, bytes) in run.bytes.chunks_exact(self.page_size).enumerate() {
            let page = run.first.plus(index as u64);
            if bytes.first_chunk() == Some(&page.0.to_le_bytes()) {
                verdict.pass(Standing::Ok, Protection::Checksum);
            } else {
                let finding = PageFinding::failed(page, Severity::Damage, Kind::Checksum);
                verdict.fail(Protection::Checksum, finding);
            }
        }
    }
}

/// A folder of files of numbered pages.
struct Files {
    folder: tempfile::TempDir,
    page_size: usize,
    pages: Vec<(String, u64)>,
}

impl Files {
    fn new(page_size: usize) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), page_size, pages: Vec::new() }
    }

    fn with(mut self, name: &str, pages: u64) -> Self {
        let mut bytes = vec![0; self.page_size * usize::try_from(pages).unwrap()];
        for (number, page) in (0_u64..).zip(bytes.chunks_exact_mut(self.page_size)) {
            page[..8].copy_from_slice(&number.to_le_bytes());
        }
        let mut file = File::create(self.path(name)).unwrap();
        file.write_all(&bytes).unwrap();
        // Direct reads and leaving the cache need it clean.
        file.sync_all().unwrap();
        heal(&self.path(name));
        self.pages.push((name.to_owned(), pages));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn leave_the_cache(&self, name: &str) {
        forget(&open_regular(&self.path(name)).unwrap(), &(0..u64::MAX >> 1));
    }

    fn target(&self, live: bool) -> Target {
        let format: Arc<dyn PageFormat> = Arc::new(NumberedPages { page_size: self.page_size });
        let steps: Vec<_> = self
            .pages
            .iter()
            .map(|(name, pages)| {
                let bytes = pages * self.page_size as u64;
                Step::File(PageFile::of(name, self.path(name), bytes, Arc::clone(&format)))
            })
            .collect();
        Target {
            description: Description {
                path: self.folder.path().to_owned(),
                format: "numbered",
                engine: String::new(),
                page_size: u32::try_from(self.page_size).unwrap(),
                setting: Some(Protection::Checksum),
                state: String::new(),
                evidence: Evidence { tested_by: "", unseen: "" },
                live,
                epoch: None,
                part: None,
            },
            steps: Box::new(steps.into_iter()),
            woken: None,
        }
    }

    fn damage(&self, name: &str, page: u64) {
        use std::os::unix::fs::FileExt as _;
        let file = OpenOptions::new().write(true).open(self.path(name)).unwrap();
        file.write_all_at(&[0xFF; 8], page * self.page_size as u64).unwrap();
        file.sync_all().unwrap();
    }
}

/// What came out, in order.
#[derive(Debug, Default)]
struct Seen {
    findings: Vec<(String, u64)>,
    offsets: Vec<u64>,
    unread: Vec<Unread>,
    notes: Vec<String>,
}

impl Sink for Seen {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push((finding.place.file.clone(), finding.place.page.unwrap().0));
        self.offsets.push(finding.place.offset.unwrap().0);
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unread.push(unread.clone());
        Ok(())
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.notes.push(note.text.clone());
        Ok(())
    }
}

/// Does something once, when the first bytes were judged.
struct AtFirst<F: Fn() + Sync>(AtomicBool, F);

impl<F: Fn() + Sync> Progress for AtFirst<F> {
    fn advance(&self, _bytes: u64) {
        if !self.0.swap(true, Ordering::Relaxed) {
            (self.1)();
        }
    }
}

/// Every way of reading there is.
fn ways() -> Vec<Options> {
    let way = |jobs, caching, method| Options {
        jobs: NonZero::new(jobs).unwrap(),
        caching,
        method,
        ..Options::default()
    };
    vec![
        way(1, Caching::Auto, Method::Auto),
        way(3, Caching::Direct, Method::Auto),
        way(2, Caching::Direct, Method::Threads),
        way(1, Caching::Cached, Method::Auto),
        way(4, Caching::Cached, Method::Threads),
    ]
}

fn run(target: Target, options: &Options) -> (Summary, Seen) {
    run_with(target, options, &())
}

fn run_with(target: Target, options: &Options, progress: &dyn Progress) -> (Summary, Seen) {
    let mut seen = Seen::default();
    let summary = verify(target, options, progress, &mut seen).unwrap().summary;
    (summary, seen)
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[test]
fn one_bad_sector_costs_one_page() {
    for options in ways() {
        let files = Files::new(8192).with("a", 1000);
        files.damage("a", 777);
        inject(&files.path("a"), Fault::BadByte(500 * 8192 + 4000));
        inject(&files.path("a"), Fault::BadByte(999 * 8192));
        for name in ["a", "a"] {
            files.leave_the_cache(name);
        }
        let (summary, seen) = run(files.target(false), &options);
        assert_eq!(summary.pages.ok, 997, "{options:?}");
        assert_eq!(seen.findings, [("a".to_owned(), 777)]);
        let places: Vec<_> = seen.unread.iter().map(|u| (u.offset, u.length)).collect();
        let expected = [(ByteOffset(500 * 8192), 8192), (ByteOffset(999 * 8192), 8192)];
        assert_eq!(places, expected, "{options:?}");
        assert!(seen.unread[0].error.contains("error"), "{}", seen.unread[0].error);
    }
}

#[test]
fn short_and_interrupted_reads_and_refused_direct_ones_lose_nothing() {
    for options in ways() {
        for page_size in [512, 4096, 8192, 65536] {
            let pages = 3 * MIB / page_size as u64;
            let files = Files::new(page_size).with("a", pages).with("b", pages).with("c", pages);
            inject(&files.path("a"), Fault::ShortReads(20480));
            inject(&files.path("a"), Fault::Interrupts(AtomicU64::new(0)));
            inject(&files.path("b"), Fault::NoDirectReads);
            // Refused only in the second attempt, since the first is interrupted.
            inject(&files.path("c"), Fault::Interrupts(AtomicU64::new(0)));
            inject(&files.path("c"), Fault::NoDirectReads);
            for name in ["a", "b", "c"] {
                files.leave_the_cache(name);
            }
            let (summary, seen) = run(files.target(false), &options);
            assert_eq!(summary.pages.ok, 3 * pages, "{page_size} {options:?} {seen:?}");
            assert_eq!(summary.bytes, 9 * MIB);
            assert_eq!((seen.findings.len(), seen.unread.len()), (0, 0));
        }
    }
}

/// Nothing of a file at rest may be missing without being named; a server at
/// work truncates as it likes.
#[test]
fn a_file_that_shrinks_is_unread_at_rest_and_nothing_when_live() {
    for options in ways() {
        for live in [false, true] {
            // Not at a multiple of anything that is read at once.
            let left = 10 * MIB + 5 * KIB;
            let files = Files::new(8192).with("a", 40 * MIB / 8192);
            files.leave_the_cache("a");
            let shrink = AtFirst(AtomicBool::new(false), || {
                let file = OpenOptions::new().write(true).open(files.path("a")).unwrap();
                file.set_len(left).unwrap();
            });
            let (summary, seen) = run_with(files.target(live), &options, &shrink);
            let read = summary.pages.ok * 8192;
            assert!(read >= left - 8192 && read < 40 * MIB, "{read} {options:?}");
            assert_eq!(seen.findings.len(), 0, "{seen:?}");
            let unread: u64 = seen.unread.iter().map(|unread| unread.length).sum();
            assert_eq!(unread, if live { 0 } else { 40 * MIB - read }, "{options:?}");
        }
    }
}

#[test]
fn a_file_that_grows_is_unread_at_rest_and_nothing_when_live() {
    for live in [false, true] {
        let files = Files::new(8192).with("a", 40 * MIB / 8192);
        let grow = AtFirst(AtomicBool::new(false), || {
            let mut file = OpenOptions::new().append(true).open(files.path("a")).unwrap();
            file.write_all(&[0; 24576]).unwrap();
        });
        let options = Options { jobs: NonZero::<usize>::MIN, ..Options::default() };
        let (summary, seen) = run_with(files.target(live), &options, &grow);
        assert_eq!(summary.pages.ok * 8192, 40 * MIB);
        let lengths: Vec<_> = seen.unread.iter().map(|unread| unread.length).collect();
        assert_eq!(lengths, if live { vec![] } else { vec![24576] });
    }
}

/// Headers of 12 KiB, pages of 64 KiB, and an end inside a page: the way DuckDB lays files out.
#[test]
fn pages_behind_a_header_have_their_own_numbers_and_offsets() {
    use std::os::unix::fs::FileExt as _;
    for options in ways() {
        let files = Files::new(65536).with("a", 50);
        let pages = fs::read(files.path("a")).unwrap();
        let content = [&[7; 12288], pages.as_slice(), &[1; 1000]].concat();
        fs::write(files.path("a"), content).unwrap();
        let file = OpenOptions::new().write(true).open(files.path("a")).unwrap();
        file.write_all_at(b"damage", 12288 + 33 * 65536).unwrap();
        file.sync_all().unwrap();
        files.leave_the_cache("a");
        let mut target = files.target(false);
        target.steps = Box::new(target.steps.map(|step| match step {
            Step::File(file) => Step::File(PageFile { first_offset: ByteOffset(12288), ..file }),
            other => other,
        }));
        let (summary, seen) = run(target, &options);
        assert_eq!((summary.pages.ok, summary.pages.damaged), (49, 2), "{options:?} {seen:?}");
        assert_eq!(seen.findings, [("a".to_owned(), 33), ("a".to_owned(), 50)]);
        assert_eq!(seen.offsets, [12288 + 33 * 65536, 12288 + 50 * 65536]);
        assert_eq!(summary.bytes, 50 * 65536);
    }
}

#[test]
fn a_file_that_vanishes_is_unread_at_rest_and_nothing_when_live() {
    for live in [false, true] {
        let files = Files::new(8192).with("a", 3).with("b", 3);
        fs::remove_file(files.path("a")).unwrap();
        let (summary, seen) = run(files.target(live), &Options::default());
        assert_eq!((summary.files, summary.pages.ok), (1, 3));
        assert_eq!(seen.unread.len(), usize::from(!live));
    }
}

/// Numbered pages, of which one that is all zero is empty, and the first reading of a bad one makes
/// the server at work write it anew.
#[derive(Debug)]
struct RewrittenPages {
    path: PathBuf,
    becomes: Vec<u8>,
    is_rewritten: AtomicBool,
}

impl PageFormat for RewrittenPages {
    fn page_size(&self) -> usize {
        8192
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        for (index, bytes) in run.bytes.chunks_exact(8192).enumerate() {
            let page = run.first.plus(index as u64);
            if page.0 > 0 && bytes.iter().all(|byte| *byte == 0) {
                verdict.empty();
                continue;
            }
            NumberedPages { page_size: 8192 }.judge(PageRun { first: page, bytes }, verdict);
            let is_bad = bytes.starts_with(&[0xFF; 8]);
            if is_bad && !self.is_rewritten.swap(true, Ordering::Relaxed) {
                use std::os::unix::fs::FileExt as _;
                let file = OpenOptions::new().write(true).open(&self.path).unwrap();
                file.write_all_at(&self.becomes, page.0 * 8192).unwrap();
            }
        }
    }
}

#[test]
fn page_that_is_empty_or_sound_when_it_is_read_again_is_counted_once() {
    let sound = [7_u64.to_le_bytes().to_vec(), vec![0; 8184]].concat();
    for (becomes, ok, empty) in [(vec![0; 8192], 9, 1), (sound, 10, 0)] {
        let files = Files::new(8192).with("a", 10);
        files.damage("a", 7);
        let path = files.path("a");
        let format = RewrittenPages { path, becomes, is_rewritten: AtomicBool::new(false) };
        let format: Arc<dyn PageFormat> = Arc::new(format);
        let mut target = files.target(true);
        let file = PageFile::of("a", files.path("a"), 10 * 8192, format);
        target.steps = Box::new(std::iter::once(Step::File(file)));
        let options = Options { caching: Caching::Cached, ..Options::default() };
        let (summary, seen) = run(target, &options);
        assert_eq!(seen.findings, []);
        let pages = summary.pages;
        assert_eq!((pages.ok, pages.empty, pages.total()), (ok, empty, 10), "{pages:?}");
        // Pages in use by protection are those that are not empty.
        assert_eq!(summary.by_mode.checksum, pages.used(), "{pages:?}");
    }
}

#[test]
fn results_come_out_in_the_order_of_the_files() {
    for options in ways() {
        let mut files = Files::new(4096);
        let mut expected = Vec::new();
        for file in 0..40 {
            let name = format!("file-{file:02}");
            // Small ones and ones of several runs, so that workers overtake.
            let pages = if file % 3 == 0 { 3 * MIB / 4096 } else { 2 };
            files = files.with(&name, pages);
            for page in [1, pages / 2 + 1, pages - 1] {
                if page < pages && expected.last() != Some(&(name.clone(), page)) {
                    files.damage(&name, page);
                    expected.push((name.clone(), page));
                }
            }
            if file % 2 == 0 {
                files.leave_the_cache(&name);
            }
        }
        let (summary, seen) = run(files.target(false), &options);
        assert_eq!(seen.findings, expected, "{options:?}");
        assert_eq!(summary.pages.damaged, expected.len() as u64);
    }
}

/// The rate is one for all threads, and holds from the beginning to any
/// moment: also a run that has just begun was paid for.
#[test]
fn the_rate_is_never_exceeded() {
    struct Clock {
        begin: Instant,
        bytes: AtomicU64,
        exceeded: AtomicBool,
    }
    const RATE: u64 = 2 * MIB;
    impl Progress for Clock {
        fn advance(&self, bytes: u64) {
            let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            let allowed = self.begin.elapsed().as_secs_f64() * RATE as f64;
            self.exceeded.fetch_or(bytes as f64 > allowed, Ordering::Relaxed);
        }
    }
    for mut options in ways() {
        options.rate = Rate::AtMost(NonZero::new(RATE).unwrap());
        let files = Files::new(8192).with("a", 100).with("b", 1).with("c", 27);
        let clock = Clock {
            begin: Instant::now(),
            bytes: AtomicU64::new(0),
            exceeded: AtomicBool::new(false),
        };
        let (summary, _) = run_with(files.target(false), &options, &clock);
        assert_eq!(summary.pages.ok, 128);
        assert!(!clock.exceeded.into_inner(), "{options:?}");
        assert!(summary.elapsed >= Duration::from_millis(500), "{:?}", summary.elapsed);
    }
}

#[test]
fn a_stop_is_heeded_at_once_and_keeps_what_was_done() {
    for mut options in ways() {
        // Slow enough that the stop comes in the middle of a wait.
        options.rate = Rate::AtMost(NonZero::new(64 * KIB).unwrap());
        options.stop = Arc::default();
        let files = Files::new(8192).with("a", 1000);
        let stop = Arc::clone(&options.stop);
        let stopped = Mutex::new(None);
        let stopping = AtFirst(AtomicBool::new(false), || {
            *stopped.lock().unwrap() = Some(Instant::now());
            stop.store(true, Ordering::Relaxed);
        });
        let (summary, seen) = run_with(files.target(false), &options, &stopping);
        let late = stopped.lock().unwrap().unwrap().elapsed();
        // 50 ms by design; all of it would take two minutes.
        assert!(late < Duration::from_secs(20), "{late:?} {options:?}");
        assert!(summary.stopped);
        assert_eq!(summary.pages.ok, 1, "{options:?}");
        assert!(seen.unread.is_empty());
    }
}

/// What was in the page cache before is there afterwards, and nothing else.
#[test]
#[cfg(target_os = "linux")]
fn the_page_cache_is_left_as_it_was() {
    // The system may take a page out on its own account at any moment; it does
    // not do so every time.
    const TRIES: usize = 5;
    for options in ways() {
        for direct_refused in [false, true] {
            let mut differences = Vec::new();
            while differences.len() < TRIES {
                match cache_difference(&options, direct_refused) {
                    Some(difference) => differences.push(difference),
                    None => break,
                }
            }
            assert!(differences.len() < TRIES, "{direct_refused} {options:?}: {differences:?}");
        }
    }
}

/// Checks files of which some pages are in the page cache; says what is
/// different in there afterwards.
#[cfg(target_os = "linux")]
fn cache_difference(options: &Options, direct_refused: bool) -> Option<String> {
    let files = Files::new(8192).with("a", 20 * MIB / 8192).with("b", 5).with("c", 3);
    let file = open_regular(&files.path("a")).unwrap();
    if direct_refused {
        inject(&files.path("a"), Fault::NoDirectReads);
    }
    for name in ["a", "b", "c"] {
        files.leave_the_cache(name);
    }
    if residency(&file, 0..20 * MIB) != Residency::Nothing {
        eprintln!("skipped, this file system keeps its files in memory");
        return None;
    }
    crate::source::residency::expect_random_reads(&file);
    for (offset, length) in [(0, 8192), (5 * MIB, 3 * MIB), (9 * MIB + 8192, 4096)] {
        use std::os::unix::fs::FileExt as _;
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        file.read_exact_at(&mut bytes, offset).unwrap();
    }
    fs::read(files.path("b")).unwrap();
    let before = absent(&file, 20 * MIB).unwrap();
    let (summary, _) = run(files.target(false), options);
    assert_eq!(summary.pages.ok, 20 * MIB / 8192 + 8);
    let after = absent(&file, 20 * MIB).unwrap();
    let state = |name| residency(&open_regular(&files.path(name)).unwrap(), 0..3 * 8192);
    let others = (state("b"), state("c"));
    let same =
        before.len() > 2 && after == before && others == (Residency::Whole, Residency::Nothing);
    (!same).then(|| format!("absent before {before:?}, after {after:?}, others {others:?}"))
}

/// A queue that fails as a whole, as a ring can.
struct FailingQueue {
    good_reads: usize,
    pending: Vec<(Arc<File>, u64, usize)>,
    buffer: AlignedBuffer,
}

impl ReadQueue for FailingQueue {
    fn depth(&self) -> usize {
        4
    }

    fn in_flight(&self) -> usize {
        self.pending.len()
    }

    fn submit(&mut self, file: &Arc<File>, offset: u64, length: usize) -> io::Result<Slot> {
        if self.good_reads == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Only the last one begun is ever completed, so its place is free.
        self.pending.push((Arc::clone(file), offset, length));
        Ok(Slot(self.pending.len() - 1))
    }

    fn wait(&mut self) -> io::Result<(Slot, io::Result<usize>)> {
        self.good_reads -= 1;
        if self.good_reads == 0 {
            self.pending.clear();
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (file, offset, length) = self.pending.pop().unwrap();
        let bytes = &mut self.buffer.bytes_mut()[..length];
        Ok((Slot(self.pending.len()), read_at(&file, bytes, offset)))
    }

    fn bytes(&self, _slot: Slot) -> &[u8] {
        self.buffer.bytes()
    }
}

#[test]
fn a_queue_that_fails_loses_no_page() {
    for good_reads in [1, 2, 7] {
        let files = Files::new(8192).with("a", 20 * MIB / 8192);
        files.leave_the_cache("a");
        let mut seen = Seen::default();
        let shared = Shared::new(files.target(false), &Options::default(), &(), &mut seen, 1);
        let buffer = AlignedBuffer::new(RUN_BYTES);
        shared.work(&mut FailingQueue { good_reads, pending: Vec::new(), buffer });
        let (summary, _) = shared.finish().unwrap();
        assert_eq!(summary.pages.ok * 8192, 20 * MIB, "{good_reads}");
        assert!(seen.unread.is_empty());
    }
}

#[test]
fn one_page_that_needs_a_key_makes_a_verdict_incomplete() {
    let mut summary = Summary::default();
    summary.pages.ok = 1000;
    summary.by_mode.checksum = 1001;
    assert_eq!(summary.verdict(None), Verdict::Intact);
    summary.pages.unverifiable = 1;
    assert_eq!(summary.verdict(None), Verdict::Incomplete);
    summary.accepts_unverifiable = true;
    assert_eq!(summary.verdict(None), Verdict::Intact);
    // That a key is missing may be accepted, that something could not be read never.
    summary.unread = 1;
    assert_eq!(summary.verdict(None), Verdict::Incomplete);
}

#[test]
fn a_sink_that_refuses_ends_the_run() {
    struct Full;
    impl Sink for Full {
        fn finding(&mut self, _: &Finding) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn unread(&mut self, _: &Unread) -> io::Result<()> {
            Ok(())
        }
        fn note(&mut self, _: &Note) -> io::Result<()> {
            Ok(())
        }
    }
    let files = Files::new(8192).with("a", 1000);
    files.damage("a", 0);
    let error = verify(files.target(false), &Options::default(), &(), &mut Full).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

/// Remembers how often each page was seen, and as what.
#[derive(Debug, Default)]
struct Watch(Mutex<BTreeMap<u64, Vec<Standing>>>);

impl Witness for Watch {
    fn see(&self, run: PageRun<'_>, standings: &Standings) {
        let mut seen = self.0.lock().unwrap();
        let mut page = run.first;
        for (standing, pages) in standings.iter() {
            for _ in 0..pages {
                seen.entry(page.0).or_default().extend(standing);
                page = page.plus(1);
            }
        }
        assert_eq!(run.bytes.len() as u64 / 8192, page.0 - run.first.0);
    }
}

/// Behind a barrier all is known, and what was counted can be overruled.
#[test]
fn behind_a_barrier_every_page_was_seen_once() {
    for options in ways() {
        let pages = 30 * MIB / 8192;
        let files = Files::new(8192).with("a", pages);
        files.leave_the_cache("a");
        files.damage("a", 1234);
        let watch = Arc::new(Watch::default());
        let mut target = files.target(false);
        let witness: Arc<dyn Witness> = Arc::clone(&watch) as Arc<dyn Witness>;
        let steps = target.steps.map(move |step| match step {
            Step::File(file) => Step::File(PageFile { witnesses: vec![witness.clone()], ..file }),
            other => other,
        });
        let afterwards = std::iter::from_fn({
            let watch = Arc::clone(&watch);
            let mut said = false;
            move || {
                if std::mem::replace(&mut said, true) {
                    return None;
                }
                let seen = watch.0.lock().unwrap();
                assert_eq!(seen.len() as u64, pages);
                for (page, standings) in seen.iter() {
                    let expected = if *page == 1234 { Standing::Damaged } else { Standing::Ok };
                    assert_eq!(*standings, [expected], "{page}");
                }
                let mut finding =
                    Finding::of_file("a", Severity::Damage, Kind::Zeroed, String::new());
                finding.place.page = Some(PageNo(9));
                finding.place.offset = Some(ByteOffset(9 * 8192));
                Some(Step::Overruled(finding, Standing::Ok))
            }
        });
        target.steps = Box::new(steps.chain([Step::Barrier]).chain(afterwards));
        let (summary, seen) = run(target, &options);
        assert_eq!((summary.pages.ok, summary.pages.damaged), (pages - 2, 2), "{options:?}");
        assert_eq!(summary.pages.total(), pages);
        assert_eq!(seen.findings, [("a".to_owned(), 1234), ("a".to_owned(), 9)]);
    }
}
