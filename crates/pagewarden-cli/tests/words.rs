//! What a person sees of real clusters, where words matter.

use crate::clusters::{any_installation, sample};
use crate::damage::{Damage, Dice, Wound, page_mut};
use crate::runner::check_text;

/// `Checked 12,345 pages (96.4 MiB) of 312 files in 0.64 s (150 MiB/s): 0
/// damaged, 12 empty, 0 unprotected` with N for every number.
fn numberless(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[begin..];
        let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let number = &number[..number.find(|c| !is_part(c)).unwrap_or(number.len())];
        let number = number.trim_end_matches(['.', ',']);
        out.push_str(&rest[..begin]);
        out.push('N');
        rest = &rest[begin + number.len()..];
    }
    out + rest
}

#[test]
fn last_line_is_that_of_a_backup_summary() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let root = sample.cluster.data_dir();
    let outcome = check_text([root]);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    let first = lines[0].strip_prefix(root.to_str().unwrap()).unwrap();
    assert_eq!(first, ": PostgreSQL 15, 8 KiB pages, checksums on, shut down cleanly");
    assert_eq!(lines[1], "  verdict: intact (every page that is in use was tested)");
    let last = lines.last().unwrap();
    assert_eq!(
        numberless(last),
        "Checked N pages (N MiB) of N files in N s (N MiB/s): N damaged, N empty, N unprotected"
    );
    assert!(last.contains(": 0 damaged, ") && last.ends_with(", 0 unprotected"), "{last}");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn damaged_pages_are_a_line_each_and_neighbours_share_one() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.loan();
    let root = cluster.data_dir();
    let item = sample.file("item");
    let mut dice = Dice::seeded();
    let _wound = Wound::to(root.join(item)).change(|bytes| {
        for block in 16..24 {
            Damage::UpperZero.inflict(&mut dice, page_mut(bytes, block), block);
        }
        Damage::ForeignFlags.inflict(&mut dice, page_mut(bytes, 40), 40);
        let copied = page_mut(bytes, 3).to_vec();
        page_mut(bytes, 5).copy_from_slice(&copied);
    });
    let outcome = check_text([root]);
    assert_eq!(outcome.status, Some(1));
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(
        lines[1],
        format!(
            "  damage   misplaced  {item} (public.item in postgres) page 5 at byte 40960: {}; \
             this is the page of block 3, which holds the same bytes",
            sums(lines[1])
        )
    );
    assert_eq!(
        lines[2],
        format!(
            "  damage   header     {item} (public.item in postgres) pages 16 to 23 (8 pages) \
             at byte 131072: pd_upper is 0 but the page is not empty{}",
            lines[2].split_once("not empty").unwrap().1
        )
    );
    let third =
        format!("  damage   header     {item} (public.item in postgres) page 40 at byte 327680: ");
    assert!(lines[3].starts_with(&third), "{lines:?}");
    assert!(lines[3].contains("of which only 0x0007 can be set"), "{}", lines[3]);
    assert!(lines[4].starts_with("  verdict: damaged (10 of "), "{}", lines[4]);
    let last = lines.last().unwrap();
    assert!(last.contains(": 10 damaged, "), "{last}");
    assert_eq!(lines.iter().filter(|line| line.contains("damage  ")).count(), 3, "{lines:?}");
}

/// The part of a line that says `stored 1a2b, computed 3c4d`.
fn sums(line: &str) -> &str {
    let begin = line.find("stored ").unwrap();
    &line[begin..begin + "stored 1a2b, computed 3c4d".len()]
}

#[test]
fn cluster_without_checksums_is_told_what_that_means() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, false);
    let root = sample.cluster.data_dir();
    let outcome = check_text([root]);
    let text = outcome.stdout.replace(root.to_str().unwrap(), "DIR");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "DIR: PostgreSQL 15, 8 KiB pages, checksums off, shut down cleanly");
    assert_eq!(
        lines[1],
        "  verdict: unprotected (nothing wrong seen, but the pages carry no checksums)"
    );
    let verbose = check_text(["--verbose".as_ref(), root.as_os_str()]).stdout;
    assert!(
        verbose.contains("these tests cannot detect: damage to the content of a page"),
        "{verbose}"
    );
    assert!(!text.contains("these tests cannot detect"), "{text}");
    assert!(lines.last().unwrap().contains(": 0 damaged, "), "{text}");
}
