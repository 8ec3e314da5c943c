//! What the fuzz targets share: a folder to build targets in, and the books
//! that must balance whatever was in it.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::Path;

use pagewarden::database::{self, Format, OpenOptions};
use pagewarden::page::{PageFormat, PageRun, RunVerdict};
use pagewarden::verdict::{Finding, Note, PageNo, SeverityCounts, Unread};
use pagewarden::verify::{Caching, Options, Sink, Summary, verify};
use tempfile::TempDir;

/// Judges a run and checks that each whole page is counted once.
pub fn judge(format: &dyn PageFormat, first: PageNo, bytes: &[u8]) -> RunVerdict {
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first, bytes }, &mut verdict);
    let page_size = format.page_size();
    let pages = (bytes.len() / page_size) as u64;
    let failing = verdict.findings.iter().filter(|finding| finding.standing.is_some()).count();
    let counted = verdict.counts.total() + failing as u64;
    let listed = verdict.standings.iter().map(|(_, run)| run).sum::<u64>();
    let skipped = verdict.standings.iter().filter(|entry| entry.0.is_none()).map(|(_, run)| run);
    let skipped = skipped.sum::<u64>();
    assert_eq!(listed, pages, "from {first}: {verdict:?}");
    assert_eq!(counted + skipped, pages, "from {first}: {verdict:?}");
    // SQLite never writes one page; nothing else may be left out.
    assert!(skipped <= 1, "from {first}: {verdict:?}");
    let modes = verdict.by_mode;
    assert_eq!(modes.checksum + modes.torn + modes.none, verdict.counts.used() + failing as u64);
    verdict
}

/// What a target's check said.
#[derive(Debug, Default)]
pub struct Report {
    /// The findings, in order.
    pub findings: Vec<Finding>,
    /// What could not be read, in order.
    pub unread: Vec<Unread>,
    notes: u64,
    /// The figures.
    pub summary: Summary,
}

impl Sink for Report {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        self.findings.push(finding.clone());
        Ok(())
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.unread.push(unread.clone());
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        self.notes += 1;
        Ok(())
    }
}

/// Opens and verifies a target and checks that the figures are those of what
/// was reported. `None`: it could not be opened, which is never wrong here.
pub fn check(path: &Path, kind: Option<&Format>, jobs: NonZero<usize>) -> Option<Report> {
    check_with(path, kind, jobs, &OpenOptions::default())
}

/// The same with the walkers of `--structure`.
pub fn check_structure(path: &Path, kind: Option<&Format>) -> Option<Report> {
    let options = OpenOptions { structure: true, ..OpenOptions::default() };
    check_with(path, kind, NonZero::<usize>::MIN, &options)
}

fn check_with(
    path: &Path,
    kind: Option<&Format>,
    jobs: NonZero<usize>,
    open: &OpenOptions,
) -> Option<Report> {
    let target = match database::open_with(path, kind, open) {
        Ok(target) => target,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let setting = target.description.setting;
    let page_size = u64::from(target.description.page_size);
    // 0: they are of all lengths.
    let is_size = page_size == 0 || page_size.is_power_of_two() && page_size >= 512;
    assert!(is_size, "{:?}", target.description);
    let mut report = Report::default();
    let options = Options { jobs, caching: Caching::Cached, ..Options::default() };
    let summary = verify(target, &options, &(), &mut report).expect("this sink takes all").summary;
    let mut severities = SeverityCounts::default();
    for finding in &report.findings {
        severities.add(finding.severity);
    }
    assert_eq!(severities, summary.severities);
    assert_eq!(report.unread.len() as u64, summary.unread);
    assert!(page_size == 0 || summary.bytes.is_multiple_of(page_size));
    // A page cut off at the end of a file may count although it was not judged; what is no page, such as a
    // free block of DuckDB, is judged and in no count.
    let judged = summary.bytes / page_size.max(1);
    assert!(summary.pages.total() <= judged + summary.files, "{summary:?}");
    assert!(summary.pages.damaged <= severities.damage, "{summary:?}");
    let _ = summary.verdict(setting);
    report.summary = summary;
    Some(report)
}

/// A folder in memory, one for the process, empty at each call. `fuzz/run.sh`
/// chooses where and takes it away afterwards: a fuzzer does not end so that
/// destructors run.
pub fn empty_folder() -> &'static Path {
    static FOLDER: std::sync::OnceLock<TempDir> = std::sync::OnceLock::new();
    let folder =
        FOLDER.get_or_init(|| tempfile::Builder::new().prefix("pw").tempdir().expect("a folder"));
    for entry in fs::read_dir(folder.path()).expect("the folder is ours").flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.expect("all in it is ours");
    }
    folder.path()
}
