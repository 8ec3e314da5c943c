//! A page format of one's own: pages of 4 KiB that end with a sum of their bytes.
//!
//! ```sh
//! cargo run --example own_format
//! ```
//!
//! The engine reads the file, keeps several reads in flight, counts and reports; a format says
//! only what a page must look like.

#![allow(clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use pagewarden::database::{Description, Evidence, PageFile, Step, Target};
use pagewarden::page::{PageFinding, PageFormat, PageRun, RunVerdict};
use pagewarden::report::colours::Colours;
use pagewarden::report::text::TextReport;
use pagewarden::report::{Report as _, RunEnd, TargetEnd};
use pagewarden::verdict::{Kind, Protection, Severity, Standing};
use pagewarden::verify::{Options, verify};

const PAGE_BYTES: usize = 4096;
const SUM_BYTES: usize = 4;

/// The sum of a page's bytes without its own, as its last four bytes have it (little-endian).
fn sum(content: &[u8]) -> u32 {
    content.iter().fold(0, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte))
}

/// Pages that end with their sum.
#[derive(Debug)]
struct Ledger;

impl PageFormat for Ledger {
    fn page_size(&self) -> usize {
        PAGE_BYTES
    }

    fn judge(&self, run: PageRun<'_>, verdict: &mut RunVerdict) {
        for (index, page) in (0..).zip(run.bytes.chunks_exact(PAGE_BYTES)) {
            let Some((content, stored)) = page.split_last_chunk::<SUM_BYTES>() else { continue };
            let (stored, computed) = (u32::from_le_bytes(*stored), sum(content));
            if page.iter().all(|byte| *byte == 0) {
                verdict.empty();
            } else if stored == computed {
                verdict.pass(Standing::Ok, Protection::Checksum);
            } else {
                let page = run.first.plus(index);
                let mut finding = PageFinding::failed(page, Severity::Damage, Kind::Checksum);
                finding.stored = Some(format!("{stored:08x}"));
                finding.computed = Some(format!("{computed:08x}"));
                verdict.fail(Protection::Checksum, finding);
            }
        }
    }
}

/// Says what the file is and what it consists of: one file of pages.
fn open(path: &Path) -> std::io::Result<Target> {
    let length = fs::metadata(path)?.len();
    let file = PageFile::of("ledger", path, length, Arc::new(Ledger));
    let description = Description {
        path: path.to_owned(),
        format: "ledger",
        engine: "Ledger 1".to_owned(),
        page_size: 4096,
        setting: Some(Protection::Checksum),
        state: "at rest".to_owned(),
        evidence: Evidence {
            tested_by: "a 32-bit sum of each page",
            unseen: "two pages that changed places",
        },
        live: false,
        epoch: None,
        part: None,
    };
    Ok(Target { description, steps: Box::new(std::iter::once(Step::File(file))), woken: None })
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("ledger-{}", std::process::id()));
    fs::write(&path, ledger())?;
    let mut report = TextReport::new(std::io::stdout(), Colours(false));
    let target = open(&path)?;
    report.begin_target(&target.description)?;
    let verified = verify(target, &Options::default(), &(), &mut report)?;
    let ended = std::time::SystemTime::now();
    report.end_target(&TargetEnd {
        verified: &verified,
        listed_bytes: None,
        ended,
        overall: None,
    })?;
    report.end(&RunEnd {
        verdict: verified.verdict(),
        total: &verified.summary,
        opened: 1,
        protection_missed: false,
        storage: None,
        drill: None,
        ended,
    })?;
    fs::remove_file(&path)?;
    assert_eq!(verified.summary.pages.damaged, 1, "page 7, and no other");
    Ok(())
}

/// Ten pages, of which the eighth was damaged after it was written.
fn ledger() -> Vec<u8> {
    let mut file = Vec::new();
    for number in 0_u8..10 {
        let mut content = vec![number; PAGE_BYTES - SUM_BYTES];
        let sum = sum(&content);
        if let Some(byte) = content.get_mut(100).filter(|_| number == 7) {
            *byte ^= 0x10;
        }
        file.extend(content);
        file.extend(sum.to_le_bytes());
    }
    file
}

#[test]
fn damaged_page_is_found() {
    main().unwrap();
}
