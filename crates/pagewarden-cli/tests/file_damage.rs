//! Damage to whole files of a database at rest: cut, missing, and the small
//! files without which the others mean nothing.

use std::fs::{self, File};
use std::path::Path;
use std::slice;

use pagewarden_scratch::postgres::{Cluster, Options, StopMode};

use crate::clusters::{any_installation, installations, sample};
use crate::damage::{Damage, Dice, PAGE, Wound, page, page_mut, stamp};
use crate::runner::{Finding, Outcome, Report, check};

/// Pages in a segment of 1 GiB.
const SEGMENT_PAGES: u64 = 131_072;

fn assert_damaged(outcome: &Outcome, expected: &[Finding], what: &str) -> Report {
    let report = outcome.report();
    assert_eq!(report.findings(), expected, "{what}");
    assert_eq!((outcome.status, report.verdict()), (Some(1), "damaged"), "{what}");
    report
}

/// Here `pg_checksums` gives up; the rest of the cluster deserves better.
#[test]
fn file_cut_inside_a_page_is_truncated_and_the_rest_is_checked() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let before = check([cluster.data_dir()]).report();
        let item = sample.file("item");
        for (kept, rest) in [(20, 1), (20, 4096), (20, 8191), (0, 24), (0, 7)] {
            let what = format!("{version}: {rest} bytes of page {kept}");
            let wound = Wound::to(cluster.data_dir().join(item));
            let pages = wound.sound().len() / PAGE;
            let _wound = wound.change(|bytes| bytes.truncate(kept * PAGE + rest));
            let expected = Finding::page(item, kept as u64, "damage", "truncated");
            let report = assert_damaged(&check([cluster.data_dir()]), &[expected], &what);
            assert!(report.details()[0].contains(&format!("{rest} of 8192 bytes")), "{what}");
            // What is left of the page counts as one damaged page.
            assert_eq!(report.pages("damaged"), 1, "{what}");
            let lost = (pages - kept - 1) as u64;
            assert_eq!(report.pages("total"), before.pages("total") - lost, "{what}");
            assert_eq!(report.target()["files"], before.target()["files"]);
        }
    }
}

/// Writes a segment of a relation made by hand: pages of a real one, stamped
/// for where they lie.
pub fn write_segment(path: &Path, pages: &[u8], segment: u64, length: Option<u64>) {
    let mut bytes = pages.to_vec();
    for (index, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        stamp(page, u32::try_from(segment * SEGMENT_PAGES + index as u64).unwrap());
    }
    fs::write(path, bytes).unwrap();
    if let Some(length) = length {
        File::options().write(true).open(path).unwrap().set_len(length).unwrap();
    }
}

#[test]
fn segments_of_a_large_relation_are_pages_of_their_own_numbers() {
    let Some(installation) = any_installation() else { return };
    // No catalogue lists this relation: its pages are to speak for themselves.
    let by_pages =
        |cluster: &Cluster| check(["--no-witness".as_ref(), cluster.data_dir().as_os_str()]);
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let before = by_pages(&cluster).report();
    let item = sample.file("item");
    let folder = item.rsplit_once('/').unwrap().0;
    let file = |name: &str| cluster.data_dir().join(folder).join(name);
    let sound = fs::read(cluster.data_dir().join(item)).unwrap();
    let pages = &sound[..16 * PAGE];
    // Holes read as zeroes: legal pages that cost no space.
    write_segment(&file("99990"), pages, 0, Some(1 << 30));
    write_segment(&file("99990.1"), pages, 1, Some(1 << 30));
    write_segment(&file("99990.2"), pages, 2, None);
    let report = by_pages(&cluster).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"));
    assert_eq!(report.pages("total"), before.pages("total") + 2 * SEGMENT_PAGES + 16);
    assert_eq!(report.pages("ok"), before.pages("ok") + 48);

    // Damage in a later segment has the relation's block number and the
    // file's offset.
    let mut dice = Dice::seeded();
    {
        let _wound = Wound::to(file("99990.2")).change(|bytes| {
            let block = u32::try_from(2 * SEGMENT_PAGES + 5).unwrap();
            Damage::BitInTuple.inflict(&mut dice, page_mut(bytes, 5), block);
        });
        let name = format!("{folder}/99990.2");
        let expected =
            Finding::page_at(&name, 2 * SEGMENT_PAGES + 5, 5 * PAGE as u64, "damage", "checksum");
        assert_damaged(&by_pages(&cluster), slice::from_ref(&expected), "in the cluster");
        // The file alone, inside its cluster.
        let alone = Finding { file: "99990.2".to_owned(), ..expected };
        assert_damaged(&check([file("99990.2")]), &[alone], "one file");
    }
    // A page of segment 2 in segment 1: misplaced across files.
    {
        let last = fs::read(file("99990.2")).unwrap();
        let second = File::options().write(true).open(file("99990.1")).unwrap();
        let at = 40 * PAGE as u64;
        std::os::unix::fs::FileExt::write_all_at(&second, page(&last, 3), at).unwrap();
        let expected = Finding::page_at(
            &format!("{folder}/99990.1"),
            SEGMENT_PAGES + 40,
            at,
            "damage",
            "misplaced",
        );
        let outcome = by_pages(&cluster);
        let report = assert_damaged(&outcome, &[expected], "moved between segments");
        assert!(report.details()[0].contains("262147"), "{:?}", report.details());
        let zeroes = vec![0; PAGE];
        std::os::unix::fs::FileExt::write_all_at(&second, &zeroes, at).unwrap();
    }
    // The middle one is gone.
    fs::rename(file("99990.1"), file("kept")).unwrap();
    let expected = Finding::file(&format!("{folder}/99990.1"), "damage", "missing");
    assert_damaged(&by_pages(&cluster), &[expected], "missing segment");
    fs::rename(file("kept"), file("99990.1")).unwrap();
    // It ends early although another follows.
    File::options().write(true).open(file("99990.1")).unwrap().set_len(32 * PAGE as u64).unwrap();
    let expected = Finding::page_at(
        &format!("{folder}/99990.1"),
        SEGMENT_PAGES + 32,
        32 * PAGE as u64,
        "damage",
        "truncated",
    );
    let report = assert_damaged(&by_pages(&cluster), &[expected], "short segment");
    assert_eq!(report.pages("damaged"), 0, "no page is there to be damaged");
    // Healthy after a large DELETE and VACUUM: nothing follows a short one.
    fs::write(file("99990.2"), b"").unwrap();
    let report = by_pages(&cluster).report();
    assert_eq!((report.findings(), report.verdict()), (vec![], "intact"));
}

/// Dropping a relation, interrupted, can leave later segments behind: no proof.
#[test]
fn later_segment_without_the_first_is_suspect() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let item = sample.file("item");
    let folder = item.rsplit_once('/').unwrap().0;
    let sound = fs::read(cluster.data_dir().join(item)).unwrap();
    write_segment(&cluster.data_dir().join(folder).join("99990.1"), &sound[..PAGE], 1, None);
    let outcome = check([cluster.data_dir()]);
    let report = outcome.report();
    assert_eq!(
        report.findings(),
        [Finding::file(&format!("{folder}/99990"), "suspect", "missing")]
    );
    assert_eq!((outcome.status, report.verdict()), (Some(0), "suspect"));
    let strict = check(["--strict".as_ref(), cluster.data_dir().as_os_str()]);
    assert_eq!((strict.status, strict.report().verdict()), (Some(1), "suspect"));
}

/// Pages are then judged by what they show themselves.
#[test]
fn damaged_control_file_is_named_and_pages_are_checked_all_the_same() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let before = check([root]).report();
        let control = "global/pg_control";
        let item = sample.file("item");
        let mut dice = Dice::seeded();
        type Change = fn(&mut Vec<u8>);
        let changes: [(&str, &str, Change); 6] = [
            ("zeroed", "header", |bytes| bytes.fill(0)),
            ("empty", "header", Vec::clear),
            ("cut", "truncated", |bytes| bytes.truncate(200)),
            ("one bit of the state", "checksum", |bytes| bytes[16] ^= 4),
            ("one bit of the checkpoint", "checksum", |bytes| bytes[33] ^= 0x10),
            ("another version, unsealed", "header", |bytes| bytes[8..10].fill(7)),
        ];
        for (name, kind, change) in changes {
            let what = format!("{version}: pg_control {name}");
            let _wound = Wound::to(root.join(control)).change(change);
            let expected = Finding::file(control, "damage", kind);
            let report = assert_damaged(&check([root]), slice::from_ref(&expected), &what);
            assert_eq!(report.pages("total"), before.pages("total"), "{what}");
            assert_eq!(report.pages("ok"), before.pages("ok"), "{what}");

            let _second = Wound::to(root.join(item)).inflict(Damage::BitInTuple, &mut dice, 3);
            let page = Finding::page(item, 3, "damage", "checksum");
            assert_damaged(&check([root]), &[expected, page], &what);
        }
        let _wound = Wound::to(root.join(control)).remove();
        let expected = Finding::file(control, "damage", "missing");
        let report = assert_damaged(&check([root]), &[expected], version);
        assert_eq!(report.pages("ok"), before.pages("ok"), "{version}");
    }
}

/// Where sums are off, pages that carry none must not become damage when the
/// control file cannot say so.
#[test]
fn control_file_lost_without_checksums_does_not_condemn_the_pages() {
    for installation in installations() {
        let sample = sample(&installation, false);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let _wound = Wound::to(root.join("global/pg_control")).change(|bytes| bytes.fill(0));
        let expected = Finding::file("global/pg_control", "damage", "header");
        let report = assert_damaged(&check([root]), &[expected], &installation.version);
        assert_eq!(report.pages("damaged"), 0);
    }
}

#[test]
fn damaged_relation_map_is_named() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let folder = sample.file("item").rsplit_once('/').unwrap().0.to_owned();
        for map in ["global/pg_filenode.map".to_owned(), format!("{folder}/pg_filenode.map")] {
            type Change = fn(&mut Vec<u8>);
            let changes: [(&str, Change); 5] = [
                ("checksum", |bytes| bytes[20] ^= 1),
                ("header", |bytes| bytes[0] ^= 1),
                ("header", |bytes| bytes.fill(0)),
                ("truncated", |bytes| bytes.truncate(100)),
                ("header", Vec::clear),
            ];
            for (kind, change) in changes {
                let what = format!("{version}: {map} {kind}");
                let _wound = Wound::to(root.join(&map)).change(change);
                let expected = Finding::file(&map, "damage", kind);
                let report = assert_damaged(&check([root]), &[expected], &what);
                assert_eq!(report.pages("damaged"), 0, "{what}");
            }
            let _wound = Wound::to(root.join(&map)).remove();
            let report = check([root]).report();
            assert_eq!(report.findings(), [Finding::file(&map, "damage", "missing")], "{version}");
            assert_eq!(report.verdict(), "damaged");
        }
    }
}

#[test]
fn transaction_log_of_an_odd_length_is_truncated() {
    for installation in installations() {
        let version = &installation.version;
        let cluster = sample(&installation, true).loan();
        let root = cluster.data_dir();
        let xact = if installation.major < 10 { "pg_clog" } else { "pg_xact" };
        for log in [xact, "pg_multixact/offsets", "pg_multixact/members"] {
            let file = format!("{log}/0000");
            type Change = fn(&mut Vec<u8>);
            let changes: [Change; 3] = [
                |bytes| bytes.truncate(bytes.len() - 1),
                |bytes| bytes.extend([0; 100]),
                |bytes| bytes.resize(33 * PAGE, 0),
            ];
            for change in changes {
                let _wound = Wound::to(root.join(&file)).change(change);
                let expected = Finding::file(&file, "damage", "truncated");
                assert_damaged(&check([root]), &[expected], &format!("{version}: {file}"));
            }
        }
    }
}

/// After a clean stop an unlogged relation is kept, so its damage is real. Its
/// LSNs are not the log's, and prove nothing.
#[test]
fn unlogged_relation_is_judged_like_any_other_after_a_clean_stop() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let mut dice = Dice::seeded();
        for file in ["fleeting", "fleeting_pkey"].map(|name| sample.file(name)) {
            {
                let _wound = Wound::to(root.join(file)).inflict(Damage::BitInTuple, &mut dice, 1);
                let expected = Finding::page(file, 1, "damage", "checksum");
                assert_damaged(&check([root]), &[expected], &installation.version);
            }
            let _wound = Wound::to(root.join(file)).inflict(Damage::FutureLsn, &mut dice, 1);
            assert_eq!(check([root]).report().findings(), [], "{}", installation.version);
        }
        let init = format!("{}_init", sample.file("fleeting_pkey"));
        let _wound = Wound::to(root.join(&init)).inflict(Damage::BitInTuple, &mut dice, 0);
        let expected = Finding::page(&init, 0, "damage", "checksum");
        assert_damaged(&check([root]), &[expected], &installation.version);
    }
}

/// What a crashed session left: the server removes it at its next start.
#[test]
fn damaged_temporary_relation_is_at_most_a_notice() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let root = cluster.data_dir();
        let (folder, _) = sample.file("item").rsplit_once('/').unwrap();
        let sound = fs::read(root.join(sample.file("item"))).unwrap();
        let name = format!("{folder}/t3_99999");
        let mut dice = Dice::seeded();
        let _wound = Wound::to(root.join(&name)).change(|bytes| {
            *bytes = sound[..5 * PAGE + 100].to_vec();
            Damage::Noise.inflict(&mut dice, page_mut(bytes, 2), 2);
        });
        let outcome = check([root]);
        let report = outcome.report();
        assert_eq!(
            report.findings(),
            [
                Finding::page(&name, 2, "notice", "header"),
                Finding::page(&name, 5, "notice", "truncated"),
            ]
        );
        assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"));
    }
}

/// A commit is in the log before it is in `pg_xact`, and a prepared transaction before it has a file.
#[test]
fn ends_of_transactions_that_only_the_log_has_are_damage() {
    for installation in installations() {
        let version = &installation.version;
        let options = Options::default().with("max_prepared_transactions", "5");
        let mut cluster = Cluster::init(&installation, &options).unwrap();
        cluster.start().unwrap();
        for sql in [
            "CREATE TABLE goods (id int)",
            "BEGIN; INSERT INTO goods VALUES (1); SAVEPOINT s; INSERT INTO goods VALUES (2);
             ROLLBACK TO s; INSERT INTO goods VALUES (3); COMMIT",
            "BEGIN; INSERT INTO goods VALUES (4); ROLLBACK",
            "BEGIN; INSERT INTO goods VALUES (5); PREPARE TRANSACTION 'committed'",
            "BEGIN; INSERT INTO goods VALUES (6); PREPARE TRANSACTION 'aborted'",
            "COMMIT PREPARED 'committed'",
            "ROLLBACK PREPARED 'aborted'",
        ] {
            cluster.psql(sql).unwrap();
        }
        cluster.stop(StopMode::Fast).unwrap();
        let root = cluster.data_dir().to_owned();
        let older = fs::read(root.join("pg_xact/0000")).unwrap();
        cluster.start().unwrap();
        for sql in [
            "BEGIN; INSERT INTO goods VALUES (7); PREPARE TRANSACTION 'kept'",
            "INSERT INTO goods VALUES (8)",
        ] {
            cluster.psql(sql).unwrap();
        }
        // Its begin is beyond the last checkpoints, and so are the commits before it.
        cluster.stop(StopMode::Immediate).unwrap();
        cluster.start().unwrap();
        cluster.stop(StopMode::Fast).unwrap();
        let kept = fs::read_dir(root.join("pg_twophase")).unwrap().next().unwrap().unwrap();
        let told = || check([&root]).report();
        let report = told();
        assert_eq!((report.findings(), report.verdict()), (vec![], "intact"), "{version}");
        {
            let _wound = Wound::to(root.join("pg_xact/0000")).write(&older);
            let report = told();
            let expected = Finding::file("pg_xact/0000", "damage", "stale");
            assert_eq!(report.serious(), [expected], "{version}");
            assert!(report.details()[0].contains("the ends of 1 transaction"), "{version}");
        }
        let _wound = Wound::to(kept.path()).remove();
        let report = told();
        let expected = Finding::file("pg_twophase", "damage", "missing");
        assert_eq!(report.serious(), [expected], "{version}");
        assert!(report.details()[0].contains("prepared transaction"), "{version}");
    }
}
