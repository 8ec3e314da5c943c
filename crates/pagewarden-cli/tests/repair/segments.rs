//! A relation of more than one file: the second one missing, cut or wounded, and a first one that ends too
//! early although there is a second. What comes back is what was there, or it is left and says why.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use pagewarden::repair::{Options as RepairOptions, Outcome, Proof, Request, Verdict, repair};
use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use super::run;
use crate::clusters::any_installation;
use crate::damage::PAGE;

/// Of a server as it is usually built.
const SEGMENT_PAGES: u64 = 1 << 17;
const MORE_PAGES: u64 = 40;

fn cut(path: &Path, pages: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(pages * PAGE as u64).unwrap();
}

fn is_repaired_exactly(outcome: &Outcome, pages: usize) {
    assert_eq!(outcome.verdict, Verdict::Repaired, "{outcome:?}");
    assert_eq!(outcome.pages.len(), pages, "{outcome:?}");
    assert!(outcome.pages.iter().all(|page| page.proof == Some(Proof::Exact)), "{outcome:?}");
}

#[test]
#[ignore = "a table of more than 1 GiB, and a copy of it"]
fn further_files_of_a_relation_come_back() {
    let Some(installation) = any_installation() else { return };
    let options = Options::default().with("autovacuum", "off").with("max_wal_size", "'4GB'");
    let mut cluster = Cluster::init(&installation, &options).unwrap();
    cluster.start().unwrap();
    // One row a page.
    let rows = SEGMENT_PAGES + MORE_PAGES;
    let fill =
        format!("INSERT INTO big SELECT i, repeat('x', 8000) FROM generate_series(1, {rows}) i");
    let statements = [
        "CREATE TABLE big (id int, filler text)",
        "ALTER TABLE big ALTER filler SET STORAGE PLAIN",
        &*fill,
        "CHECKPOINT",
    ];
    cluster.execute("postgres", &statements).unwrap();
    let first = cluster.psql("SELECT pg_relation_filepath('big')").unwrap();
    cluster.stop(StopMode::Fast).unwrap();
    let root = cluster.data_dir().to_owned();
    let copy = cluster.home().join("copy");
    cluster.copy_data_dir(&copy).unwrap();
    let second = format!("{first}.1");
    let path = root.join(&second);
    let sound = fs::read(&path).unwrap();
    assert_eq!(sound.len() as u64, MORE_PAGES * PAGE as u64);
    let request =
        Request { sources: vec![copy.as_path().into()], write: true, ..Request::new(&root) };
    let without = Request { sources: Vec::new(), ..request.clone() };

    // Wounded: the sum of a page has its number in the whole relation.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xE7; 60], 5 * PAGE as u64 + 900).unwrap();
    let outcome = run(&request);
    is_repaired_exactly(&outcome, 1);
    assert_eq!(outcome.pages[0].page, Some(SEGMENT_PAGES + 5), "{outcome:?}");
    assert!(fs::read(&path).unwrap() == sound);

    // Cut inside a page.
    file.set_len(30 * PAGE as u64 + 100).unwrap();
    is_repaired_exactly(&run(&request), 10);
    assert!(fs::read(&path).unwrap() == sound);

    // The first one cut, the second one there.
    let middle = root.join(&first);
    cut(&middle, SEGMENT_PAGES - 3);
    let outcome = run(&without);
    assert_eq!(outcome.verdict, Verdict::Impossible, "{outcome:?}");
    is_repaired_exactly(&run(&request), 3);
    let compared = Command::new("cmp").arg(&middle).arg(copy.join(&first)).output().unwrap();
    assert!(compared.status.success(), "{compared:?}");

    // Missing. Without anything that leads there it is not seen; nothing is called repaired then.
    fs::remove_file(&path).unwrap();
    let outcome = run(&request);
    println!("the second file is missing: {:?}, {} pages", outcome.verdict, outcome.pages.len());
    if outcome.verdict != Verdict::NothingToRepair {
        is_repaired_exactly(&outcome, MORE_PAGES as usize);
        assert!(fs::read(&path).unwrap() == sound);
    }
    fs::write(&path, &sound).unwrap();

    // Both: more pages than a repair of single pages is for, and by name.
    fs::remove_file(&middle).unwrap();
    let error = repair(&request, &RepairOptions::default(), &()).unwrap_err();
    assert!(error.to_string().contains("--max-pages"), "{error}");
}
