//! What is refused, and what damage does.

use std::fs;
use std::path::Path;

use super::{PAGE, assert_protected, cluster, heap_page, request, run, setting, sum_of};
use crate::files::control::with_checksums;
use crate::page::Header;
use pagewarden_core::crc::crc32c;
use pagewarden_core::protect::{Request, Wish};
use pagewarden_core::testing::recorder::{Dice, Image, image};
use pagewarden_core::verdict::{Kind, Protection};

/// Changes fields of the control file of a 15, and mends its CRC.
fn change_control(root: &Path, fields: &[(usize, u32)]) {
    const CRC: usize = 288;
    let path = root.join("global/pg_control");
    let mut bytes = fs::read(&path).unwrap();
    for (at, value) in fields {
        bytes[*at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let crc = crc32c(&bytes[..CRC]).to_le_bytes();
    bytes[CRC..CRC + 4].copy_from_slice(&crc);
    fs::write(path, bytes).unwrap();
}

const STATE: usize = 16;
const BACKUP_START: usize = 40 + 88 + 24;
const SETTING: usize = 252;

/// Runs it, and fails unless it refuses and leaves everything as it was.
fn refusal(request: &Request) -> String {
    let before = image(&request.path);
    let error = run(request).expect_err("it must be refused");
    assert_eq!(image(&request.path), before, "{error}");
    error.to_string()
}

#[test]
fn clusters_that_are_not_at_rest_are_refused() {
    for state in [0, 3, 4, 5, 6, 77] {
        let (_folder, root) = cluster();
        change_control(&root, &[(STATE, state)]);
        for mode in [Protection::Checksum, Protection::None] {
            let text = refusal(&request(&root, mode));
            assert!(text.contains("not shut down cleanly"), "{state}: {text}");
        }
    }
    let (_folder, root) = cluster();
    change_control(&root, &[(STATE, 2), (BACKUP_START, 0x28)]);
    assert!(refusal(&request(&root, Protection::Checksum)).contains("standby"));
    let (_folder, root) = cluster();
    fs::write(root.join("backup_label"), "START").unwrap();
    assert!(refusal(&request(&root, Protection::Checksum)).contains("backup"));
}

#[test]
fn standby_at_rest_is_changed_with_a_warning() {
    let (_folder, root) = cluster();
    change_control(&root, &[(STATE, 2)]);
    let before = image(&root);
    let outcome = run(&request(&root, Protection::Checksum)).unwrap();
    assert!(outcome.warnings[0].contains("standby"), "{:?}", outcome.warnings);
    assert_protected(&before, &root);
}

#[test]
fn lock_files_of_others_are_refused() {
    for text in [format!("{}\n/data\n", std::process::id()), "999999999\n".into(), String::new()] {
        let (_folder, root) = cluster();
        fs::write(root.join("postmaster.pid"), text).unwrap();
        refusal(&request(&root, Protection::Checksum));
    }
}

#[test]
fn control_files_that_are_damaged_or_unknown_are_refused() {
    let (_folder, root) = cluster();
    let path = root.join("global/pg_control");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(refusal(&request(&root, Protection::Checksum)).contains("cannot be believed"));
    // States between on and off, which came with 19.
    for setting in [2, 3] {
        let (_folder, root) = cluster();
        change_control(&root, &[(SETTING, setting)]);
        assert!(refusal(&request(&root, Protection::Checksum)).contains("being switched"));
    }
    // A version that we know, with the layout of another.
    let (_folder, root) = cluster();
    fs::write(root.join("PG_VERSION"), "17\n").unwrap();
    assert!(refusal(&request(&root, Protection::Checksum)).contains("pair"));
    let (_folder, root) = cluster();
    change_control(&root, &[(8, 1999)]);
    assert!(refusal(&request(&root, Protection::Checksum)).contains("pg_enable_data_checksums"));
}

#[test]
fn what_a_server_could_read_and_we_would_not_is_refused() {
    let (_folder, root) = cluster();
    std::os::unix::fs::symlink("16384", root.join("base/5/99999")).unwrap();
    refusal(&request(&root, Protection::Checksum));
    let (_folder, root) = cluster();
    std::os::unix::fs::symlink("5", root.join("base/6")).unwrap();
    refusal(&request(&root, Protection::Checksum));
    let (_folder, root) = cluster();
    std::os::unix::fs::symlink("/nowhere/at/all", root.join("pg_tblspc/17000")).unwrap();
    let error = run(&request(&root, Protection::Checksum)).unwrap_err();
    assert!(error.to_string().contains("tablespace"), "{error}");
    let (_folder, root) = cluster();
    fs::write(root.join("base/5/INCREMENTAL.16384"), "").unwrap();
    assert!(refusal(&request(&root, Protection::Checksum)).contains("incremental"));
}

#[test]
fn torn_marks_are_refused_and_named() {
    let (_folder, root) = cluster();
    let text = refusal(&request(&root, Protection::Torn));
    assert!(text.contains("'torn'") && text.contains("--mode checksum"), "{text}");
}

/// Pages that `pg_checksums` would pass, or set a sum on, and that a server
/// refuses to read.
fn damage(root: &Path) -> [(&'static str, u64); 3] {
    let mut dice = Dice(23);
    let mut broken_bounds = heap_page(&mut dice);
    broken_bounds[14..16].copy_from_slice(&9000_u16.to_le_bytes());
    let mut new_but_not_empty = heap_page(&mut dice);
    new_but_not_empty[14..16].fill(0);
    let good = heap_page(&mut dice);
    fs::write(root.join("base/5/20000"), [&good[..], &broken_bounds[..], &good[..]].concat())
        .unwrap();
    fs::write(root.join("base/5/20001"), [&good[..], &good[..], &new_but_not_empty[..]].concat())
        .unwrap();
    fs::write(root.join("base/5/20002"), [&good[..], &good[..77]].concat()).unwrap();
    [("base/5/20000", 1), ("base/5/20001", 2), ("base/5/20002", 1)]
}

#[test]
fn damaged_pages_are_all_named_and_nothing_is_claimed() {
    let (_folder, root) = cluster();
    let damaged = damage(&root);
    for dry_run in [true, false] {
        let request = Request { dry_run, ..request(&root, Protection::Checksum) };
        let outcome = run(&request).unwrap();
        let found: Vec<_> = outcome
            .findings
            .iter()
            .map(|finding| (&*finding.place.file, finding.place.page.unwrap().0))
            .collect();
        assert_eq!(found, damaged);
        assert_eq!(outcome.findings[2].kind, Kind::Truncated);
        assert_eq!(outcome.pages.damaged, 3);
        assert_eq!(outcome.after, Protection::None);
        let after = image(&root);
        assert_eq!(setting(&after), Some(Protection::None));
        let of_ours = |name: &&std::path::PathBuf| {
            name.to_str().unwrap().contains("pagewarden") || name.ends_with("postmaster.pid")
        };
        assert_eq!(after.keys().find(of_ours), None);
    }
}

#[test]
fn skipped_damaged_pages_stay_for_the_server_to_report() {
    let (_folder, root) = cluster();
    damage(&root);
    let before = image(&root);
    let request = Request { skip_damaged: true, ..request(&root, Protection::Checksum) };
    let outcome = run(&request).unwrap();
    assert_eq!((outcome.after, outcome.pages.damaged), (Protection::Checksum, 3));
    assert_eq!(outcome.findings.len(), 3);
    let after = image(&root);
    assert_eq!(setting(&after), Some(Protection::Checksum));
    let page = |image: &Image, name: &str, block: usize| {
        image[Path::new(name)].as_ref().unwrap()[block * PAGE..][..PAGE].to_vec()
    };
    assert_eq!(page(&after, "base/5/20000", 1), page(&before, "base/5/20000", 1));
    assert_eq!(page(&after, "base/5/20001", 2), page(&before, "base/5/20001", 2));
    for (name, block) in [("base/5/20000", 0), ("base/5/20000", 2), ("base/5/20001", 1)] {
        let page = page(&after, name, block);
        let stored = Header::read(&page).unwrap().checksum;
        assert_eq!(stored, sum_of(&page, u32::try_from(block).unwrap()), "{name} {block}");
    }
}

#[test]
fn copy_that_would_share_data_with_its_source_is_refused() {
    let (folder, root) = cluster();
    let elsewhere = folder.path().join("space");
    fs::create_dir_all(elsewhere.join("PG_15_202209061/5")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, root.join("pg_tblspc/17000")).unwrap();
    let copy = folder.path().join("copy");
    let request = Request { copy_to: Some(copy.clone()), ..request(&root, Protection::Checksum) };
    let error = run(&request).unwrap_err().to_string();
    assert!(error.contains("tablespace"), "{error}");
    assert!(!copy.exists());
}

#[test]
fn copy_into_a_folder_with_anything_in_it_is_refused() {
    let (folder, root) = cluster();
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("precious"), "words").unwrap();
    let into = |copy: &Path| Request {
        copy_to: Some(copy.to_owned()),
        ..request(&root, Protection::Checksum)
    };
    assert!(run(&into(&copy)).unwrap_err().to_string().contains("not empty"));
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 1);
    for inside in [root.join("copy"), folder.path().to_owned()] {
        assert!(run(&into(&inside)).unwrap_err().to_string().contains("inside"));
    }
}

#[test]
fn copy_keeps_links_holes_modes_and_times_and_has_its_own_log() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    let (folder, root) = cluster();
    let log = folder.path().join("log");
    fs::rename(root.join("pg_wal"), &log).unwrap();
    std::os::unix::fs::symlink(&log, root.join("pg_wal")).unwrap();
    let configuration = folder.path().join("postgresql.conf");
    fs::rename(root.join("postgresql.conf"), &configuration).unwrap();
    std::os::unix::fs::symlink(&configuration, root.join("postgresql.conf")).unwrap();
    let sparse = fs::File::create(root.join("base/5/30000")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    drop(sparse);
    fs::set_permissions(root.join("base/5/16384"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("pg_stat"), fs::Permissions::from_mode(0o750)).unwrap();
    let before = image(&root);
    let copy = folder.path().join("copy");
    let request = Request { copy_to: Some(copy.clone()), ..request(&root, Protection::Checksum) };
    let outcome = run(&request).unwrap();
    assert_eq!(outcome.after, Protection::Checksum);
    assert_eq!(image(&root), before);
    assert_protected(&before, &copy);
    assert!(!copy.join("pg_wal").is_symlink());
    assert_eq!(fs::read_link(copy.join("postgresql.conf")).unwrap(), configuration);
    assert!(fs::metadata(copy.join("base/5/30000")).unwrap().blocks() < 64);
    for name in before.keys().filter(|name| !name.starts_with("pg_wal")) {
        let [ours, theirs] = [&root, &copy]
            .map(|root| fs::symlink_metadata(root.join(name)).unwrap())
            .map(|data| (data.mode(), data.uid(), data.gid(), data.mtime(), data.mtime_nsec()));
        if !root.join(name).is_symlink() {
            assert_eq!(ours, theirs, "{}", name.display());
        }
    }
}

#[test]
fn copy_can_have_checksums_turned_off() {
    let (folder, root) = cluster();
    run(&request(&root, Protection::Checksum)).unwrap();
    let before = image(&root);
    let copy = folder.path().join("copy");
    run(&Request { copy_to: Some(copy.clone()), ..request(&root, Protection::None) }).unwrap();
    assert_eq!(image(&root), before);
    let after = image(&copy);
    assert_eq!(setting(&after), Some(Protection::None));
    let control = Path::new("global/pg_control");
    assert!(before.iter().all(|(name, bytes)| name == control || after[name] == *bytes));
}

#[test]
fn old_cluster_is_fitted_to_the_new_one_and_the_other_way_is_priced() {
    let (_old_folder, old) = cluster();
    let (_new_folder, new) = cluster();
    let control = new.join("global/pg_control");
    let mut bytes = fs::read(&control).unwrap();
    let sector = with_checksums(&bytes, true).unwrap();
    bytes[..sector.len()].copy_from_slice(&sector);
    fs::write(&control, bytes).unwrap();
    let fit = Request { wish: Wish::ForUpgrade(new.clone()), ..request(&old, Protection::None) };
    let before = image(&old);
    let outcome = run(&fit).unwrap();
    assert_protected(&before, &old);
    let [chosen, other] = outcome.costs.unwrap();
    assert_eq!((chosen.path, chosen.wanted), (old.clone(), Protection::Checksum));
    assert_eq!((chosen.pages, chosen.bytes), (outcome.pages.total(), outcome.bytes_read));
    assert_eq!((other.path, other.wanted, other.pages), (new, Protection::None, 0));
    // What holds users' data is not the empty one.
    let like = Request { wish: Wish::Like(old.clone()), ..request(&old, Protection::None) };
    assert!(run(&like).unwrap_err().to_string().contains("--for-upgrade"));
}
