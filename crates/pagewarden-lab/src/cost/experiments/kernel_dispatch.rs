//! E2d: what the processor's instructions do for the checksum itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use pagewarden::formats::postgres::checksum::{Kernel, hash_pages_with};
use rustix::time::{ClockId, clock_gettime};

use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::program;
use crate::stats::random::Random;

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct KernelDispatch;

const PAGE_BYTES: usize = 8192;
/// Fits into the second cache of every server processor, and into none.
const CONDITIONS: &[(&str, usize)] =
    &[("in cache, 1 MiB", 1 << 20), ("from memory, 256 MiB", 256 << 20)];
const IN_CACHE: &str = "in cache, 1 MiB";

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
const ARMS: &[Arm] = &[
    Arm { name: "portable", what: "whatever the compiler makes for any processor of this kind" },
    Arm { name: "sse4.1", what: "16-byte vectors with a 32-bit multiplication" },
    Arm { name: "avx2", what: "32-byte vectors, pages side by side" },
    Arm { name: "avx512", what: "64-byte vectors, pages side by side" },
];
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
const ARMS: &[Arm] = &[
    Arm { name: "portable", what: "whatever the compiler makes for any processor of this kind" },
    Arm { name: "neon", what: "16-byte vectors, pages side by side" },
];

static DESCRIPTION: Description = Description {
    name: "e2d",
    title: "kernels of the checksum",
    question: "How much faster does the checksum become with wider instructions?",
    seed: "enabling data checksums by default: Ants' builds (344 ms without checksums, 384 ms with, 369 ms with a native build)",
    by_hand: "\
1. The page checksum of PostgreSQL over pages of random bytes, one thread, by each kernel of this library that the
   processor has: over 1 MiB again and again, and over 256 MiB.
2. Processor time of the thread (CLOCK_THREAD_CPUTIME_ID) divided by the number of pages.
3. The seed compares builds of a server: its 12 % of a scan without vectors fell to 7 % with a native build. Its
   figures are ratios of whole scans, ours of the checksum alone: compare the sign, not the size.",
    arms: ARMS,
    metrics: &[
        Metric { name: "ns_per_page", unit: "ns", kind: Kind::Timed, better: Better::Lower },
        Metric { name: "mib_per_second", unit: "MiB/s", kind: Kind::Timed, better: Better::Higher },
    ],
    is_price: false,
    decides: None,
    seed_figures: &[SeedFigure {
        condition: IN_CACHE,
        arm: "sse4.1",
        metric: "ns_per_page",
        // What checksums add to the scan: 40 ms, and 25 ms with a native build.
        ratio: (369.0 - 344.0) / (384.0 - 344.0),
        said: "checksums add 40 ms to a scan of 344 ms, and 25 ms with a native build",
    }],
    blocks: (10, 30),
};

impl Experiment for KernelDispatch {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let budget = match lab.form {
            Form::Short => Duration::from_millis(100),
            Form::Whole => Duration::from_secs(1),
        };
        let mut random = Random::new(lab.seed);
        let most = CONDITIONS.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default();
        let mut pages = vec![0; most];
        for word in pages.as_chunks_mut::<8>().0 {
            *word = random.bits().to_le_bytes();
        }
        Ok(Box::new(Kernels { budget, pages, stop: Arc::clone(&lab.stop) }))
    }
}

struct Kernels {
    /// Processor time of one measurement, at least.
    budget: Duration,
    pages: Vec<u8>,
    stop: Arc<AtomicBool>,
}

impl Prepared for Kernels {
    fn conditions(&self) -> Vec<String> {
        CONDITIONS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let available = Kernel::all().iter().filter(|kernel| kernel.available());
        let names: Vec<_> = available.map(|kernel| kernel.name()).collect();
        BTreeMap::from([
            ("kernels of this processor".to_owned(), names.join(", ")),
            ("kernel that is used".to_owned(), Kernel::best().name().to_owned()),
        ])
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let kernel = Kernel::all().iter().copied().find(|kernel| kernel.name() == arm.name);
        let kernel = kernel.with_context(|| format!("no kernel {}", arm.name))?;
        if !kernel.available() {
            return Ok(Reading::unavailable("this processor does not have it"));
        }
        let bytes = CONDITIONS.iter().find(|(name, _)| *name == condition);
        let (_, bytes) = bytes.with_context(|| format!("{condition} is not measured"))?;
        let pages = self.pages.get(..*bytes).context("too few pages")?;
        let mut hashes = vec![0; bytes / PAGE_BYTES];
        let begin = thread_time();
        let mut rounds = 0.0;
        let mut used = Duration::ZERO;
        while used < self.budget {
            program::go_on(&self.stop)?;
            hash_pages_with(kernel, pages, PAGE_BYTES, &mut hashes);
            // Looked at, so that the work cannot be left out.
            std::hint::black_box(&hashes);
            rounds += 1.0;
            used = thread_time().saturating_sub(begin);
        }
        let page_count = rounds * hashes.len() as f64;
        let mebibytes = page_count * PAGE_BYTES as f64 / f64::from(1 << 20);
        Ok(Reading::of([
            ("ns_per_page", used.as_secs_f64() * 1e9 / page_count),
            ("mib_per_second", mebibytes / used.as_secs_f64()),
        ]))
    }
}

/// Processor time of this thread. The wall clock would count what others do.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
