//! What pages of an index know of one another, and what a page shows of the relation that
//! it was made for: zeroed and cut indexes, and pages in the file of another relation.

use std::fs;

use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};

use crate::clusters::{installations, sample};
use crate::damage::{Dice, PAGE, Wound, page, page_mut};
use crate::runner::{Finding, check};

const INDEXES: [&str; 7] =
    ["item_btree", "item_pkey", "item_hash", "item_gin", "item_gist", "item_spgist", "item_brin"];

/// Those whose pages are in the log; of the others none is a witness. Hash indexes are from 10 on.
fn logged_indexes(installation: &Installation) -> impl Iterator<Item = &'static str> {
    let is_old = installation.version == "9.6";
    INDEXES.into_iter().filter(move |index| !is_old || *index != "item_hash")
}

/// Block 1 of each is a root, a bucket, or a page that the root leads to.
#[test]
fn page_of_an_index_that_another_leads_to_is_missed_when_zeroed_or_cut_off() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        type Change = fn(&mut Vec<u8>);
        let changes: [(&str, Change); 2] = [
            ("zeroed", |bytes| page_mut(bytes, 1).fill(0)),
            ("truncated", |bytes| bytes.truncate(PAGE)),
        ];
        for (kind, change) in changes {
            for index in logged_indexes(&installation) {
                let file = sample.file(index);
                let _wound = Wound::to(root.join(file)).change(change);
                let found = check([root]).report().serious();
                let expected = Finding::page(file, 1, "damage", kind);
                let what = format!("{}: {index} {kind}", installation.version);
                assert!(found.contains(&expected), "{what}: {found:?}");
                // An index of which all is cut off knows nothing of its table.
                assert!(found.iter().all(|one| one.file == file), "{what}: {found:?}");
            }
        }
        assert_eq!(check([root]).report().verdict(), "intact", "{}", installation.version);
    }
}

/// The sum fits wherever the block's number is the same.
#[test]
fn page_of_another_kind_of_relation_is_no_page_of_this_one() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let read = |name: &str| fs::read(root.join(sample.file(name))).unwrap();
        let (heap, btree) = (read("item"), read("item_btree"));
        let mut wounds = Vec::new();
        let mut expected = Vec::new();
        for (name, foreign) in logged_indexes(&installation).map(|index| (index, &heap)).chain([
            ("loaded", &btree),
            ("serial", &heap),
            ("wide_toast", &btree),
        ]) {
            let file = sample.file(name);
            let block = if name == "serial" { 0 } else { 1 };
            wounds.push(Wound::to(root.join(file)).change(|bytes| {
                page_mut(bytes, block).copy_from_slice(page(foreign, block));
            }));
            expected.push(Finding::page(file, block.into(), "damage", "structure"));
        }
        if logged_indexes(&installation).any(|index| index == "item_hash") {
            // A leaf without a cycle of VACUUM has no marker where hash indexes have one.
            let file = sample.file("item_hash");
            wounds.push(Wound::to(root.join(file)).change(|bytes| {
                page_mut(bytes, 2).copy_from_slice(page(&btree, 2));
            }));
            expected.push(Finding::page(file, 2, "damage", "structure"));
        }
        let map = format!("{}_fsm", sample.file("item"));
        wounds.push(Wound::to(root.join(&map)).change(|bytes| {
            page_mut(bytes, 1).copy_from_slice(page(&btree, 1));
        }));
        expected.push(Finding::page(&map, 1, "damage", "structure"));
        let found = check([root]).report().serious();
        for one in &expected {
            assert!(found.contains(one), "{}: {one:?}: {found:?}", installation.version);
        }
        // Two are in one file: the last is mended first.
        while wounds.pop().is_some() {}
    }
}

/// After a clean stop its pages are as good as any other's.
#[test]
fn unlogged_table_that_was_emptied_and_its_zeroed_init_fork_are_found() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let (table, index) = (sample.file("fleeting"), sample.file("fleeting_pkey"));
        {
            let _wound = Wound::to(root.join(table)).change(Vec::clear);
            let found = check([root]).report().serious();
            let expected = Finding::page(table, 0, "damage", "truncated");
            assert_eq!(found, [expected], "{}", installation.version);
        }
        for file in [index.to_owned(), format!("{index}_init")] {
            let _wound = Wound::to(root.join(&file)).change(|bytes| page_mut(bytes, 0).fill(0));
            let found = check([root]).report().serious();
            assert_eq!(found, [Finding::page(&file, 0, "damage", "zeroed")]);
        }
    }
}

/// Their blocks follow from the metapage by arithmetic, which changes with their number.
#[test]
fn every_bucket_of_a_large_hash_index_must_be_there() {
    const BUCKET: u8 = 2;
    for installation in installations().into_iter().filter(|one| one.major >= 10) {
        let mut cluster = Cluster::init(&installation, &Options::default()).unwrap();
        let load = [
            "CREATE TABLE t AS SELECT generate_series(1, 90000) AS id",
            "CREATE INDEX t_hash ON t USING hash (id) WITH (fillfactor = 10)",
            // Buckets are split.
            "INSERT INTO t SELECT generate_series(90001, 110000)",
        ];
        cluster.start().unwrap();
        cluster.execute("postgres", &load).unwrap();
        let file = cluster.relation_path("postgres", "t_hash").unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir();
        assert_eq!(check([root]).report().verdict(), "intact", "{}", installation.version);
        let sound = fs::read(root.join(&file)).unwrap();
        let pages = sound.chunks_exact(PAGE).enumerate();
        let buckets: Vec<_> = pages
            .filter(|(_, page)| page[PAGE - 4] & 0xF == BUCKET && page[PAGE - 2..] == [0x80, 0xFF])
            .map(|(block, _)| block as u64)
            .collect();
        assert!(buckets.len() > 2048, "{}", buckets.len());
        let mut dice = Dice::seeded();
        let mut lost: Vec<u64> = (0..40).map(|_| buckets[dice.within(0..buckets.len())]).collect();
        lost.push(*buckets.last().unwrap());
        lost.sort_unstable();
        lost.dedup();
        let _wound = Wound::to(root.join(&file)).change(|bytes| {
            lost.iter().for_each(|block| page_mut(bytes, *block as u32).fill(0));
        });
        let name = file.to_str().unwrap();
        let expected: Vec<_> =
            lost.iter().map(|block| Finding::page(name, *block, "damage", "zeroed")).collect();
        assert_eq!(check([root]).report().serious(), expected, "{}", installation.version);
    }
}
