//! Beside `innochecksum`, the program that comes with the server.
//!
//! It passes over the pages that the extent map calls free (`is_page_free` in
//! `extra/innochecksum.cc` of MariaDB), whatever is on them; we test them as all others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::mariadb_samples::{Shape, copy, inside, installation, server, tables};
use crate::runner::check;

/// Where a page's map of extents begins; the length of one entry of it, and where in that
/// two bits a page begin, of which the lower means that it is free.
const MAP: usize = 150;
const ENTRY: usize = 40;
const BITS: usize = 24;
/// Pages of an extent, where pages of tables without compressed rows have 16 KiB.
const EXTENT: usize = 64;
/// A byte that a sum covers in every layout, and that is in no map.
const SPOILT: usize = 100;

fn innochecksum(path: &Path) -> Output {
    Command::new("innochecksum").arg("--allow-mismatches=1000000").arg(path).output().unwrap()
}

/// The pages that it calls invalid.
fn named(output: &Output) -> BTreeSet<usize> {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter_map(|line| line.strip_prefix("Fail: page::"));
    lines.map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect()
}

/// The pages of a file that it does not look at. The map of the first pages is on page 0, that
/// of the next ones on the page whose number is a page's bytes, and so on.
fn free(file: &[u8], page_size: usize) -> BTreeSet<usize> {
    let is_free = |page: &usize| {
        let map = page - page % page_size;
        let entry = map * page_size + MAP + page % page_size / EXTENT * ENTRY;
        let bit = page % EXTENT * 2;
        file[entry + BITS + bit / 8] >> (bit % 8) & 1 == 1
    };
    (0..file.len() / page_size).filter(is_free).collect()
}

#[test]
fn innochecksum_finds_what_we_find_but_in_free_pages() {
    let Some(installation) = installation() else { return };
    let Ok(help) = Command::new("innochecksum").arg("--help").output() else { return };
    assert!(help.status.success());
    let (mut server, _keys) = server(&installation, Shape::USUAL);
    server.start().unwrap();
    server.sql(&tables(Shape::USUAL)).unwrap();
    // Pages that were written and then set free.
    let drop_index = |name: &str| {
        format!(
            "FLUSH TABLES shop.{name} FOR EXPORT; UNLOCK TABLES;
             ALTER TABLE shop.{name} DROP INDEX word, ALGORITHM=INPLACE;"
        )
    };
    server.sql(&(drop_index("zipped") + &drop_index("dynamic"))).unwrap();
    server.stop().unwrap();
    let copied = copy(server.data_dir());

    let (mut files, mut seen, mut unseen) = (0, 0, BTreeSet::new());
    for entry in fs::read_dir(inside(&copied).join("shop")).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|ending| ending != "ibd") {
            continue;
        }
        let output = innochecksum(&path);
        assert!(output.status.success() && named(&output).is_empty(), "{path:?}: {output:?}");
        let report = check([&path]).report();
        assert_eq!(report.findings(), [], "{path:?}");

        let page_size = usize::try_from(report.target()["page_size"].as_u64().unwrap()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let mut spoilt = BTreeSet::new();
        // It ends at a page 0 that fails.
        for (at, page) in bytes.chunks_exact_mut(page_size).enumerate().skip(1) {
            if page.iter().any(|byte| *byte != 0) {
                page[SPOILT] ^= 0x10;
                spoilt.insert(at);
            }
        }
        fs::write(&path, &bytes).unwrap();
        let ours = check([&path]).report().findings();
        let ours: BTreeSet<_> =
            ours.iter().map(|finding| usize::try_from(finding.page.unwrap()).unwrap()).collect();
        assert_eq!(ours, spoilt, "{path:?}");
        let free = free(&bytes, page_size);
        let expected: BTreeSet<_> = spoilt.difference(&free).copied().collect();
        assert_eq!(named(&innochecksum(&path)), expected, "{path:?}: {free:?}");
        files += 1;
        seen += expected.len();
        if spoilt.intersection(&free).next().is_some() {
            unseen.insert(path.file_stem().unwrap().to_string_lossy().into_owned());
        }
    }
    assert!(files >= 6 && seen > 500, "{files} files, {seen} pages");
    assert!(unseen.contains("zipped") && unseen.contains("dynamic"), "{unseen:?}");
}
