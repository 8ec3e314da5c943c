//! E1: a scan of a table that is only read, plain and compressed.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::cost::decision::{COLD_DATA, Decides};
use crate::cost::experiment::{
    Arm, Better, Description, Experiment, Form, Kind, Lab, Metric, Prepared, Reading, SeedFigure,
};
use crate::cost::samples::Sample;
use crate::cost::sqlite::{CPU_SECONDS, SECONDS};
use crate::cost::stores::{Databases, Memory, Store, Way};

mod advice;

/// See [`DESCRIPTION`].
#[derive(Debug)]
pub struct PackedScan;

/// Databases that there are, and scans at once at the most.
const PARTS: usize = 4;
/// Less than any table here.
const SMALL: Memory = Memory { pool_kib: 1 << 10, pack_cache_kib: 4 << 10 };
/// A pool that holds more than any table here, and the cache of packs as it is by default.
const LARGE: Memory = Memory { pool_kib: 2 << 20, pack_cache_kib: 64 << 10 };

const WAYS: &[(&str, Way)] = &[
    ("plain", Way::Plain),
    ("pack", Way::Packed { folder: "pack", arguments: &[] }),
    ("pack-scan", Way::Packed { folder: "pack-scan", arguments: &["--profile", "scan"] }),
    ("pack-lz4", Way::Packed { folder: "pack-lz4", arguments: &["--codec", "lz4"] }),
    ("mounted", Way::Mounted),
    ("btrfs", Way::Btrfs),
    ("squashfs", Way::Squashfs),
];

/// One condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition {
    name: &'static str,
    files: usize,
    memory: Memory,
    warm: bool,
}

const fn condition(name: &'static str, files: usize, memory: Memory, warm: bool) -> Condition {
    Condition { name, files, memory, warm }
}

const SMALL_COLD: &str = "1 file, small pool, cold";
const SMALL_WARM: &str = "1 file, small pool, warm";
const LARGE_COLD: &str = "1 file, large pool, cold";
const LARGE_WARM: &str = "1 file, large pool, warm";

const CONDITIONS: &[Condition] = &[
    condition(SMALL_COLD, 1, SMALL, false),
    condition(SMALL_WARM, 1, SMALL, true),
    condition(LARGE_COLD, 1, LARGE, false),
    condition(LARGE_WARM, 1, LARGE, true),
    condition("2 files, small pool, cold", 2, SMALL, false),
    condition("4 files, small pool, cold", 4, SMALL, false),
];

static DESCRIPTION: Description = Description {
    name: "e1",
    title: "a scan of a read-only table, plain and compressed",
    question: "How long does a scan of a table take that is only read, if its files are packed or compressed, and where is memory best spent: in the engine's pool or in the page cache?",
    seed: "a read-only database on a compressed file system: 22 s plain; compressed 445 s with a pool of 14 GB, 12 s with one of 6 GB, 464 s after a reboot",
    by_hand: "\
1. SQLite: CREATE TABLE stock (id INTEGER PRIMARY KEY, quantity INTEGER, body TEXT), 4 million rows of 9 words; four such
   files.
2. pagewarden pack FILE.db -o FILE.pwk; with --profile scan; with --codec lz4. The files on btrfs mounted with
   compress-force=zstd:3, and in squashfs (mksquashfs -comp zstd -b 131072), on loop devices with --direct-io=on.
3. SELECT count(*), sum(quantity), sum(length(body)) FROM stock on the file (file:FILE.db?immutable=1), on the pack
   (file:FILE.pwk?vfs=pagewarden&pack_cache_mib=4 or 64), and on the file that pagewarden mount FILE.pwk DIR serves; with PRAGMA cache_size = -1024
   and -2097152.
4. Cold: mounted anew, and the files taken out of the page cache. Warm: the second scan of one connection.
5. Two and four files at once, a thread for each. By turns, 8 times.
6. Neither the disk nor the processors busy for half of the time: the scan waits for one read after the other.",
    arms: &[
        Arm { name: "plain", what: "the files as they are" },
        Arm { name: "pack", what: "packs, read by SQLite through our VFS" },
        Arm { name: "pack-scan", what: "packs made with --profile scan, through our VFS" },
        Arm { name: "pack-lz4", what: "packs made with --codec lz4, through our VFS" },
        Arm { name: "mounted", what: "packs served as files by pagewarden mount, whose processor time counts too" },
        Arm { name: "btrfs", what: "btrfs, zstd:3, on a loop device; what the kernel's threads use is in processors_busy only" },
        Arm { name: "squashfs", what: "squashfs, zstd, 128 KiB, on a loop device" },
    ],
    metrics: &[
        SECONDS,
        CPU_SECONDS,
        Metric { name: "mib_per_second", unit: "MiB/s", kind: Kind::Timed, better: Better::Higher },
        Metric { name: "stored_bytes", unit: "bytes", kind: Kind::Exact, better: Better::Lower },
    ],
    is_price: false,
    decides: Some(Decides { decision: &COLD_DATA, arms: &["pack", "mounted"], metrics: &["mib_per_second", "stored_bytes"] }),
    seed_figures: &[SeedFigure {
        condition: LARGE_COLD,
        arm: "btrfs",
        metric: "seconds",
        ratio: 464.0 / 22.0,
        said: "22 s plain, 464 s compressed after a reboot, on NTFS",
    }],
    // Verdicts on this number of arms need 8; a first look need not have them.
    blocks: (2, 8),
};

impl Experiment for PackedScan {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn prepare(&self, lab: &Lab) -> Result<Box<dyn Prepared>> {
        let rows = match lab.form {
            Form::Short => 150_000,
            Form::Whole => 4_000_000,
        };
        let databases = Databases::make(PARTS, rows, lab.program, &lab.stop)?;
        let mut stores = BTreeMap::new();
        for (name, way) in WAYS {
            let kept = databases.keep(*way).with_context(|| format!("cannot make {name}"))?;
            stores.insert(*name, kept);
        }
        Ok(Box::new(Scans { databases, stores }))
    }
}

struct Scans {
    databases: Databases,
    stores: BTreeMap<&'static str, Result<Store, String>>,
}

impl Prepared for Scans {
    fn conditions(&self) -> Vec<String> {
        CONDITIONS.iter().map(|one| one.name.to_owned()).collect()
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let bytes = self.databases.part_bytes().unwrap_or(0);
        let pool = |memory: Memory| {
            let Memory { pool_kib, pack_cache_kib } = memory;
            format!(
                "{pool_kib} KiB for a file, and {pack_cache_kib} KiB of expanded blocks for each pack"
            )
        };
        BTreeMap::from([
            ("SQLite".to_owned(), rusqlite::version().to_owned()),
            ("rows of a file".to_owned(), self.databases.rows.to_string()),
            ("bytes of a file".to_owned(), bytes.to_string()),
            ("small pool".to_owned(), pool(SMALL)),
            ("large pool".to_owned(), pool(LARGE)),
            ("read ahead".to_owned(), "as the system has it, everywhere".to_owned()),
        ])
    }

    fn measure(&mut self, condition: &str, arm: &Arm, _block: u32) -> Result<Reading> {
        let store = self.stores.get(arm.name).with_context(|| format!("no arm {}", arm.name))?;
        let store = match store {
            Ok(store) => store,
            Err(reason) => return Ok(Reading::unavailable(reason)),
        };
        let condition = CONDITIONS.iter().find(|one| one.name == condition);
        let Condition { files, memory, warm, .. } =
            *condition.context("there is no such condition")?;
        if !warm && let Err(reason) = self.databases.cool_down()? {
            return Ok(Reading::unavailable(reason));
        }
        let reading = self.databases.scan(store, files, memory, warm)?;
        let seconds = reading.values.get("seconds").copied().context("no time was measured")?;
        let mebibytes = self.databases.part_bytes()? as f64 / f64::from(1 << 20);
        let reading = reading.with_value("stored_bytes", store.stored_bytes as f64);
        let reading = match u32::try_from(files) {
            Ok(files) if seconds > 0.0 => {
                reading.with_value("mib_per_second", f64::from(files) * mebibytes / seconds)
            }
            _ => reading,
        };
        let bound = advice::bound(&reading.values);
        Ok(reading.with_word("bound", bound))
    }

    fn conclusion(&self, samples: &[&Sample]) -> Option<String> {
        advice::advice(samples, SMALL_WARM, LARGE_WARM)
    }
}
