//! Every kind of damage to a page is named with its file, block and kind; what
//! cannot be seen is written down as such.

use std::collections::BTreeSet;
use std::fs;

use pagewarden_scratch::postgres::Cluster;

use crate::clusters::{Sample, any_installation, installations, sample};
use crate::damage::{Damage, Dice, PAGE, Wound, computed, page, page_mut, stamp, stored};
use crate::healthy::tool_count;
use crate::runner::{Finding, Report, check};

/// Blocks of `item` that are damaged: the first, the last, and between.
fn blocks(file: &[u8]) -> [u32; 3] {
    let count = u32::try_from(file.len() / PAGE).unwrap();
    [0, count / 2, count - 1]
}

/// Checks, and compares all that is promised about damaged pages.
fn assert_damaged(cluster: &Cluster, before: &Report, expected: &[Finding], what: &str) -> Report {
    let outcome = check([cluster.data_dir()]);
    let report = outcome.report();
    assert_eq!(report.findings(), expected, "{what}");
    assert_eq!((outcome.status, report.verdict()), (Some(1), "damaged"), "{what}");
    assert_eq!(report.pages("damaged"), expected.len() as u64, "{what}");
    for same in ["total", "empty"] {
        assert_eq!(report.pages(same), before.pages(same), "{what}: {same}");
    }
    assert_eq!(report.pages("ok") + expected.len() as u64, before.pages("ok"), "{what}");
    report
}

/// The pages that `pg_checksums` complains of, as (file, block, computed,
/// stored).
fn bad_by_tool(cluster: &Cluster) -> BTreeSet<(String, u64, String, String)> {
    let tool = cluster.pg_checksums(&["--check"]).unwrap();
    let root = format!("{}/", cluster.data_dir().display());
    let found: BTreeSet<_> = tool
        .stderr
        .lines()
        .filter_map(|line| {
            // error: checksum verification failed in file "F", block 5:
            // calculated checksum A1B2 but block contains C3D4
            let rest = line.split_once("verification failed in file \"")?.1;
            let (file, rest) = rest.split_once("\", block ")?;
            let (block, rest) = rest.split_once(": calculated checksum ")?;
            let (calculated, contained) = rest.split_once(" but block contains ")?;
            let sum = |text: &str| format!("{:0>4}", text.trim().to_lowercase());
            Some((
                file.strip_prefix(&root).unwrap_or(file).to_owned(),
                block.parse().unwrap(),
                sum(calculated),
                sum(contained),
            ))
        })
        .collect();
    assert_eq!(found.len() as u64, tool_count(&tool.stdout, "Bad checksums"), "{tool:?}");
    found
}

/// Our findings in the same form.
fn bad_by_us(report: &Report) -> BTreeSet<(String, u64, String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let found = report.raw_findings().iter();
    found
        .map(|one| {
            let page = one["page"].as_u64().unwrap();
            (text(&one["file"]), page, text(&one["computed"]), text(&one["stored"]))
        })
        .collect()
}

#[test]
fn every_kind_of_damage_to_a_page_is_named() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let before = check([cluster.data_dir()]).report();
        let item = sample.file("item");
        let path = cluster.data_dir().join(item);
        let blocks = blocks(&fs::read(&path).unwrap());
        let mut dice = Dice::seeded();
        for damage in Damage::ALL {
            for block in blocks {
                let what = format!("{version}: {damage:?} in block {block}");
                let wound = Wound::to(&path).inflict(damage, &mut dice, block);
                let expected = Finding::page(item, block.into(), "damage", damage.kind());
                let report = assert_damaged(&cluster, &before, &[expected], &what);

                let finding = &report.raw_findings()[0];
                let detail = finding["detail"].as_str().unwrap();
                assert!(detail.contains(damage.says()), "{what}: {detail}");
                let name = [&finding["object"], &finding["database"]];
                assert_eq!(name, ["public.item", "postgres"], "{what}");
                let bytes = fs::read(&path).unwrap();
                let sums = [stored(page(&bytes, block)), computed(page(&bytes, block), block)];
                if damage.kind() != "future_lsn" {
                    let shown = [&finding["stored"], &finding["computed"]];
                    assert_eq!(shown, sums.map(|sum| format!("{sum:04x}")).each_ref(), "{what}");
                }
                // The stock tool skips pages with pd_upper = 0 and looks at
                // nothing but the sum.
                if installation.has("pg_checksums") && block == blocks[1] {
                    let seen = !matches!(damage, Damage::HeaderUpperZero | Damage::UpperZero)
                        && sums[0] != sums[1];
                    let expected = if seen { bad_by_us(&report) } else { BTreeSet::new() };
                    assert_eq!(bad_by_tool(&cluster), expected, "{what}");
                }
                drop(wound);
            }
        }
        assert_eq!(check([cluster.data_dir()]).report().findings(), [], "{version}");
    }
}

/// Many damaged pages in many files at once, each with the same sums in
/// `pg_checksums`' report and in ours.
#[test]
fn pg_checksums_agrees_page_by_page() {
    for installation in installations() {
        if !installation.has("pg_checksums") {
            continue;
        }
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let mut dice = Dice::seeded();
        let mut wounds = Vec::new();
        let kinds = [
            Damage::BitInTuple,
            Damage::BitInHighLsn,
            Damage::ChecksumZero,
            Damage::Noise,
            Damage::HeaderHugeLsn,
        ];
        for file in sample.files.values().collect::<BTreeSet<_>>() {
            let wound = Wound::to(cluster.data_dir().join(file));
            let used: Vec<u32> = (0_u32..)
                .zip(wound.sound().chunks_exact(PAGE))
                .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
                .map(|(block, _)| block)
                .collect();
            if used.is_empty() {
                continue;
            }
            let block = used[dice.within(0..used.len())];
            let kind = kinds[dice.within(0..kinds.len())];
            wounds.push(wound.inflict(kind, &mut dice, block));
        }
        assert!(wounds.len() > 100, "{}", wounds.len());
        let report = check([cluster.data_dir()]).report();
        assert_eq!(report.findings().len(), wounds.len(), "{}", installation.version);
        assert_eq!(report.pages("damaged"), wounds.len() as u64);
        assert_eq!(bad_by_us(&report), bad_by_tool(&cluster), "{}", installation.version);
    }
}

/// Indexes of every kind, TOAST, sequences, catalogues, tablespaces, free space
/// and visibility maps: one bit in one page of each.
#[test]
fn damage_is_found_in_files_of_every_kind() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let before = check([cluster.data_dir()]).report();
        let mut files: Vec<String> = [
            "item_btree",
            "item_hash",
            "item_gin",
            "item_gist",
            "item_spgist",
            "item_brin",
            "item_pkey",
            "wide",
            "wide_toast",
            "summary",
            "serial",
            "elsewhere",
            "elsewhere_btree",
            "part_low",
            "loaded",
            "sparse",
            "refilled",
            "pg_class",
            "pg_database",
            "pg_largeobject",
            "other.item",
            "other.pg_proc",
        ]
        .map(|name| sample.file(name).to_owned())
        .to_vec();
        for optional in ["item_bloom", "pgbench_accounts"] {
            files.extend(sample.files.get(optional).cloned());
        }
        for fork in ["_fsm", "_vm"] {
            files.push(format!("{}{fork}", sample.file("item")));
        }
        let mut dice = Dice::seeded();
        let (mut wounds, mut expected) = (Vec::new(), Vec::new());
        for file in files {
            let wound = Wound::to(cluster.data_dir().join(&file));
            let used = (0_u32..).zip(wound.sound().chunks_exact(PAGE));
            let (block, _) = used
                .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
                .last()
                .unwrap_or_else(|| panic!("{version}: no page of {file} is in use"));
            wounds.push(wound.inflict(Damage::BitInTuple, &mut dice, block));
            expected.push(Finding::page(&file, block.into(), "damage", "checksum"));
        }
        let report = check([cluster.data_dir()]).report();
        let mut findings = report.findings();
        findings.sort();
        expected.sort();
        assert_eq!(findings, expected, "{version}");
        assert_eq!(report.pages("total"), before.pages("total"));
    }
}

/// A write that stopped half way: new sectors before old ones.
#[test]
fn torn_page_is_found() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let before = check([cluster.data_dir()]).report();
        let item = sample.file("item");
        let path = cluster.data_dir().join(item);
        let now = fs::read(&path).unwrap();
        let differs = |block: &u32, torn_at: usize| {
            let (new, old) = (page(&now, *block), page(&sample.item_before, *block));
            new[..torn_at] != old[..torn_at] && new[torn_at..] != old[torn_at..]
        };
        for torn_at in [512, 4096, 7680] {
            let count = u32::try_from(sample.item_before.len() / PAGE).unwrap();
            let block = (5..count).find(|block| differs(block, torn_at)).unwrap();
            let tear = |bytes: &mut Vec<u8>| {
                let old = page(&sample.item_before, block);
                page_mut(bytes, block)[torn_at..].copy_from_slice(&old[torn_at..]);
            };
            let _wound = Wound::to(&path).change(tear);
            let expected = Finding::page(item, block.into(), "damage", "checksum");
            let what = format!("{}: torn at {torn_at}", installation.version);
            assert_damaged(&cluster, &before, &[expected], &what);
        }
    }
}

#[test]
fn page_of_another_block_is_misplaced_and_its_home_is_named() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let before = check([cluster.data_dir()]).report();
        let item = sample.file("item");
        let path = cluster.data_dir().join(item);
        let (home, away) = (7, 60);
        {
            let _wound = Wound::to(&path).change(|bytes| {
                let copied = page(bytes, home).to_vec();
                page_mut(bytes, away).copy_from_slice(&copied);
            });
            let expected = Finding::page(item, away.into(), "damage", "misplaced");
            let report = assert_damaged(&cluster, &before, &[expected], version);
            let detail = report.details()[0];
            assert!(detail.contains("block 7") && detail.contains("same bytes"), "{detail}");
        }
        {
            let _wound = Wound::to(&path).change(|bytes| {
                let (first, second) = (page(bytes, home).to_vec(), page(bytes, away).to_vec());
                page_mut(bytes, away).copy_from_slice(&first);
                page_mut(bytes, home).copy_from_slice(&second);
            });
            let expected =
                [home, away].map(|page| Finding::page(item, page.into(), "damage", "misplaced"));
            let report = assert_damaged(&cluster, &before, &expected, version);
            let details = report.details();
            assert!(details[0].contains("block 60"), "{}", details[0]);
            assert!(details[1].contains("block 7"), "{}", details[1]);
        }
        // Shifted by one page: every page from there on is another's.
        let _wound = Wound::to(&path).change(|bytes| {
            let moved = bytes[10 * PAGE..20 * PAGE].to_vec();
            bytes[11 * PAGE..21 * PAGE].copy_from_slice(&moved);
        });
        let expected: Vec<_> = (11..21)
            .map(|page| {
                // Only the first one still lies at its home as well; no other
                // evidence confirms the rest than that their sums fit there.
                let kind = if page == 11 { "misplaced" } else { "checksum" };
                Finding::page(item, page, "damage", kind)
            })
            .collect();
        assert_damaged(&cluster, &before, &expected, version);
    }
}

#[test]
fn random_region_of_eight_pages_is_eight_findings() {
    for installation in installations() {
        let sample = sample(&installation, true);
        let cluster = sample.loan();
        let before = check([cluster.data_dir()]).report();
        let item = sample.file("item");
        let mut dice = Dice::seeded();
        let _wound = Wound::to(cluster.data_dir().join(item)).change(|bytes| {
            for block in 16..24 {
                Damage::Noise.inflict(&mut dice, page_mut(bytes, block), block);
            }
        });
        let expected: Vec<_> =
            (16..24).map(|block| Finding::page(item, block, "damage", "header")).collect();
        assert_damaged(&cluster, &before, &expected, &installation.version);
    }
}

/// Without checksums only the header can speak.
#[test]
fn header_rules_hold_without_checksums() {
    for installation in installations() {
        let version = &installation.version;
        let sample = sample(&installation, false);
        let cluster = sample.loan();
        let item = sample.file("item");
        let path = cluster.data_dir().join(item);
        let mut dice = Dice::seeded();
        // There is no sum to be zeroed.
        for damage in Damage::ALL.into_iter().filter(|one| *one != Damage::ChecksumZero) {
            let _wound = Wound::to(&path).inflict(damage, &mut dice, 9);
            let outcome = check([cluster.data_dir()]);
            let report = outcome.report();
            let expected = match damage {
                // Known blindness: nothing contradicts the content.
                Damage::BitInTuple => None,
                // The page is newer than the log, checksum or not.
                Damage::BitInHighLsn => Some("future_lsn"),
                other => Some(other.kind()),
            };
            let expected: Vec<_> =
                expected.map(|kind| Finding::page(item, 9, "damage", kind)).into_iter().collect();
            assert_eq!(report.findings(), expected, "{version}: {damage:?}");
            let status = i32::from(!expected.is_empty());
            assert_eq!(outcome.status, Some(status), "{version}: {damage:?}");
        }
    }
}

/// A lost write: the sum of the old page is right, but an index knows rows that it
/// does not have.
#[test]
fn older_version_of_a_page_is_suspect_where_an_index_knows_more() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let item = sample.file("item");
    let cluster = sample.loan();
    let now = fs::read(cluster.data_dir().join(item)).unwrap();
    // The update put new versions of rows where there was room.
    let pointers = |page: &[u8]| u16::from_le_bytes([page[12], page[13]]);
    let older =
        |block: &u32| pointers(page(&now, *block)) > pointers(page(&sample.item_before, *block));
    let last = u32::try_from(sample.item_before.len() / PAGE).unwrap();
    let block = (10..last).find(older).expect("a page that the update added to");
    let _wound = Wound::to(cluster.data_dir().join(item)).change(|bytes| {
        page_mut(bytes, block).copy_from_slice(page(&sample.item_before, block));
    });
    let outcome = check([cluster.data_dir()]);
    let report = outcome.report();
    let stale = Finding::page(item, block.into(), "suspect", "stale");
    assert_eq!(report.findings(), [stale], "{:?}", report.details());
    assert_eq!((outcome.status, report.verdict()), (Some(0), "suspect"));
    assert_eq!(report.pages("suspect"), 0, "what is merely suspect changes no count");
}

/// What a sound page in a wrong place looks like: healthy.
/// These tests fail when we learn to see it, and are then to be turned round.
mod blindness {
    use super::*;

    fn assert_unseen(
        sample: &'static Sample,
        file: &str,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Report {
        let cluster = sample.loan();
        let _wound = Wound::to(cluster.data_dir().join(file)).change(change);
        let outcome = check([cluster.data_dir()]);
        let report = outcome.report();
        assert_eq!(report.serious(), []);
        assert_eq!((outcome.status, report.verdict()), (Some(0), "intact"));
        report
    }

    /// The sum includes the block's number, not the relation's.
    #[test]
    fn page_of_another_relation_at_its_own_block_is_not_seen() {
        let Some(installation) = any_installation() else { return };
        let sample = sample(&installation, true);
        let foreign = fs::read(sample.cluster.data_dir().join(sample.file("loaded"))).unwrap();
        assert_unseen(sample, sample.file("item"), |bytes| {
            page_mut(bytes, 12).copy_from_slice(page(&foreign, 12));
        });
    }

    /// 16 bits: a page stamped again after it was damaged is as good as sound.
    #[test]
    fn damage_below_a_right_sum_is_not_seen() {
        let Some(installation) = any_installation() else { return };
        let sample = sample(&installation, true);
        assert_unseen(sample, sample.file("item"), |bytes| {
            page_mut(bytes, 12)[8000] ^= 0xFF;
            stamp(page_mut(bytes, 12), 12);
        });
    }
}
