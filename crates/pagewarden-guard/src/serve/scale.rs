//! How large a ledger may be: a trial that prints time and memory.

use std::path::Path;
use std::time::Instant;

use super::page;
use crate::config::Subject;
use crate::ledger::Ledger;
use crate::ledger::claims::{Identity, Listed, claim};
use crate::moment;
use crate::state::Held;
use crate::status;

/// Kibibytes that this process had in memory at most.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "a trial that prints figures"]
fn thousand_databases_of_ten_files_and_one_of_ten_thousand() {
    let folder = tempfile::tempdir().unwrap();
    let held = Held::lock(folder.path(), "test", &[]).unwrap();
    let mut ledger = Ledger::open(&held).unwrap();
    let now = moment::now();
    let mut subjects = Vec::new();
    for number in 0..1001_i64 {
        let name = format!("db{number:04}");
        let subject = Subject { name, ..Subject::of_path(Path::new("/no/such")) };
        let target = ledger.enter(&subject, now).unwrap();
        let count = if number == 1000 { 10_000 } else { 10 };
        let files = (0..count).map(|file| Listed {
            name: format!("base/5/{file}"),
            identity: Identity { inode: file, born: 1, changed: 1, size: 8 << 20 },
            page_size: 8192,
            first: 0,
            end: 8 << 20,
        });
        ledger.list(target, crate::ledger::claims::Look::default(), files, now).unwrap();
        let pass = ledger.begin_pass(target, now).unwrap();
        let ids: Vec<i64> = ledger
            .db
            .prepare("SELECT id FROM file WHERE target = ?1")
            .unwrap()
            .query_map([target], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        ledger.db.execute_batch("BEGIN").unwrap();
        for id in ids {
            claim(&ledger.db, id, 0, 8 << 20, pass, now).unwrap();
        }
        ledger.db.execute_batch("COMMIT").unwrap();
        subjects.push(subject);
    }
    let size = std::fs::metadata(folder.path().join("ledger.sqlite")).unwrap().len();
    for _ in 0..3 {
        let begin = Instant::now();
        let reader = Ledger::read(folder.path()).unwrap().unwrap();
        let all = status::standings(Some(&reader), &subjects, &[], now).unwrap();
        let page = page::index::page(&all, None, true, now);
        eprintln!("the page of 1,001 databases: {:?}, {} bytes", begin.elapsed(), page.len());
        let begin = Instant::now();
        let figures = status::metrics(&all, None);
        eprintln!("their figures: {:?} more, {} bytes", begin.elapsed(), figures.len());
        let begin = Instant::now();
        let target = reader.target("db1000").unwrap().unwrap();
        let tiles = reader.tiles(target).unwrap();
        let shown = page::target::Shown { tiles, ..page::target::Shown::of(all.last().unwrap()) };
        let page = page::target::page(&shown, true, true, now);
        eprintln!("the page of 10,000 files: {:?} more, {} bytes", begin.elapsed(), page.len());
    }
    eprintln!("at most {} KiB in memory; the ledger has {size} bytes", peak_kib());
}
