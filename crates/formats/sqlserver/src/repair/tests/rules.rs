//! Single cases: what proves a page, what the plan says, and the statements in it.

use std::fs;

use super::{
    DIFFERENTIAL, FULL, FileHeader, LATER, LOG, Lsn, PUBS, Place, TWO_FILES, brought_on, change,
    data_file, data_files, page, put_page, request, restored_and_brought_on, run, shut_down,
};
use crate::checksum::PAGE_BYTES;
use crate::files::backup::contents;
use crate::page::system::{BOOT_PAGE, BootPage};
use pagewarden_core::repair::{Proof, Request, Verdict};

/// A page of rows in an extent that did not change between the backups, and one in an extent that did.
const UNCHANGED: u64 = 80;
const CHANGED: u64 = 126;

/// Where a page begins in its file.
fn at(number: u64) -> usize {
    usize::try_from(number).unwrap() * PAGE_BYTES
}

#[test]
fn file_header_and_boot_page_name_the_backup_and_the_family() {
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    let sets = contents::read(std::slice::from_ref(&full), |_| {}).unwrap();
    let file = brought_on(&full, &differential);
    let base = FileHeader::parse(&page(&file, 0)).unwrap().base.unwrap();
    assert_eq!(base.set_id, sets[0].id().0);
    let lsn = sets[0].configuration().checkpoint_lsn;
    assert_eq!(base.checkpoint, Lsn { log_file: lsn.file, block: lsn.block, slot: lsn.slot });
    let boot = BootPage::parse(&page(&file, BOOT_PAGE)).unwrap();
    assert_eq!(boot.family, Some(sets[0].configuration().family.0));
    for name in
        [LATER, PUBS, TWO_FILES, "library-compressed-2014.bak", "das-verifynone-2sets-2008r2.bak"]
    {
        let backup = place.put_fixture(name).unwrap();
        let sets = contents::read(std::slice::from_ref(&backup), |_| {}).unwrap();
        let boot = BootPage::parse(&page(&data_file(&backup), BOOT_PAGE)).unwrap();
        assert_eq!(boot.family, Some(sets[0].configuration().family.0), "{name}");
    }
}

#[test]
fn page_of_an_unchanged_extent_is_exact_and_one_of_a_changed_extent_is_older() {
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    let mut file = brought_on(&full, &differential);
    for number in [UNCHANGED, CHANGED] {
        put_page(&mut file, u32::try_from(number).unwrap(), &[0; PAGE_BYTES]);
    }
    let path = place.put("shop.mdf", &file);
    let outcome = run(&request(&path, &[&full])).unwrap();
    assert_eq!(outcome.verdict, Verdict::Planned);
    assert!(!outcome.is_whole(), "older counts as cannot");
    let proofs: Vec<_> = outcome.pages.iter().map(|one| (one.page, one.proof)).collect();
    let expected = [(Some(UNCHANGED), Some(Proof::Exact)), (Some(CHANGED), Some(Proof::Older))];
    assert_eq!(proofs, expected, "{outcome:#?}");
    assert!(outcome.pages[0].reason.contains("differential base"), "{outcome:#?}");
    assert!(outcome.pages[1].reason.contains("its extent changed since"), "{outcome:#?}");
    // The differential backup has a newer version, which is taken before that of the full one.
    let accepts = Request { accept_older: true, ..request(&path, &[&full, &differential]) };
    let outcome = run(&accepts).unwrap();
    assert!(outcome.is_whole());
    assert!(outcome.pages[1].source.as_ref().unwrap().contains("differential"), "{outcome:#?}");
}

/// Nothing that depends on the map or the file header is exact once these are damaged.
#[test]
fn damaged_map_or_file_header_proves_nothing() {
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    for damaged in [0, 6, 9] {
        let mut file = brought_on(&full, &differential);
        file[at(UNCHANGED) + 300..][..38].fill(0xE7);
        file[damaged * PAGE_BYTES + 300..][..38].fill(0xE7);
        let path = place.put("shop.mdf", &file);
        let outcome = run(&request(&path, &[&full])).unwrap();
        assert_eq!(outcome.pages.len(), 2, "{outcome:#?}");
        assert!(outcome.pages.iter().all(|one| one.proof != Some(Proof::Exact)), "{outcome:#?}");
    }
}

/// A page that changed, and whose bit is not set: the map is of another moment.
#[test]
fn map_that_another_page_contradicts_proves_nothing() {
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    for is_stamped in [false, true] {
        let mut file = brought_on(&full, &differential);
        change(&mut file, UNCHANGED + 1, |page| {
            page[5000] ^= 1;
            if is_stamped {
                page[44..48].copy_from_slice(&8200_u32.to_le_bytes());
            }
        });
        put_page(&mut file, u32::try_from(UNCHANGED).unwrap(), &[0; PAGE_BYTES]);
        let path = place.put("shop.mdf", &file);
        let outcome = run(&request(&path, &[&full])).unwrap();
        assert_eq!(outcome.pages[0].proof, Some(Proof::Older), "{outcome:#?}");
        assert!(outcome.pages[0].reason.contains("is contradicted by page 1:81"), "{outcome:#?}");
    }
}

/// What the log in the backup changed when it was restored has no bit, as far as is known.
#[test]
fn database_that_was_restored_from_the_backup_is_not_proved_by_its_map() {
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    let mut file = restored_and_brought_on(&full, &differential);
    put_page(&mut file, u32::try_from(UNCHANGED).unwrap(), &[0; PAGE_BYTES]);
    let path = place.put("shop.mdf", &file);
    let outcome = run(&request(&path, &[&full])).unwrap();
    assert_eq!(outcome.pages[0].proof, Some(Proof::Older), "{outcome:#?}");
    assert!(outcome.pages[0].reason.contains("restored from this very backup"), "{outcome:#?}");
}

/// A page of after the last checkpoint shows that the boot page is of another moment.
#[test]
fn files_of_two_moments_prove_nothing_by_the_map() {
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    let mut file = brought_on(&full, &differential);
    change(&mut file, CHANGED, |page| page[44..48].copy_from_slice(&9000_u32.to_le_bytes()));
    put_page(&mut file, u32::try_from(UNCHANGED).unwrap(), &[0; PAGE_BYTES]);
    let path = place.put("shop.mdf", &file);
    let outcome = run(&request(&path, &[&full])).unwrap();
    assert!(outcome.pages[0].reason.contains("not of one moment"), "{outcome:#?}");
}

#[test]
fn flipped_bit_that_a_second_rule_names_is_turned_back_without_any_source() {
    let place = Place::new();
    let Some(full) = place.put_fixture(FULL) else { return };
    let sound = data_file(&full);
    // A reserved byte, the page's own number, the second flag.
    for (byte, bit) in [(70, 3), (33, 0), (5, 0)] {
        let mut file = sound.clone();
        file[at(UNCHANGED) + byte] ^= 1 << bit;
        let path = place.put("shop.mdf", &file);
        let copy_to = Some(place.path(&format!("copy{byte}")));
        let outcome = run(&Request { write: true, copy_to, ..request(&path, &[]) }).unwrap();
        assert_eq!(outcome.verdict, Verdict::Repaired, "byte {byte}: {outcome:#?}");
        assert_eq!(outcome.pages[0].source.as_deref(), Some("the page itself"));
        assert!(fs::read(place.path(&format!("copy{byte}/shop.mdf"))).unwrap() == sound);
    }
    // One bit among rows has 2,048 explanations.
    let mut file = sound;
    file[at(UNCHANGED) + 3000] ^= 1;
    let path = place.put("shop.mdf", &file);
    let outcome = run(&request(&path, &[])).unwrap();
    assert_eq!(outcome.verdict, Verdict::Impossible, "{outcome:#?}");
}

#[test]
fn two_data_files_in_a_folder_are_repaired_together() {
    let place = Place::new();
    let Some(backup) = place.put_fixture(TWO_FILES) else { return };
    let sound = data_files(&backup, 1);
    for (number, file) in &sound {
        let mut file = file.clone();
        let damaged = if *number == 1 { UNCHANGED } else { 8 };
        file[at(damaged) + 200..][..30].fill(0xE7);
        place.put(&format!("data/file{number}.dat"), &file);
    }
    let (path, copy) = (place.path("data"), place.path("copy"));
    let plan = Request { write: true, copy_to: Some(copy.clone()), ..request(&path, &[&backup]) };
    let outcome = run(&plan).unwrap();
    assert_eq!(outcome.verdict, Verdict::Repaired, "{outcome:#?}");
    assert_eq!(outcome.pages.len(), 2);
    for (number, file) in &sound {
        assert!(fs::read(copy.join(format!("file{number}.dat"))).unwrap() == *file, "{number}");
    }
}

#[test]
fn plan_has_the_statements_that_a_server_restores_pages_by() {
    let place = Place::new();
    let (Some(full), Some(differential)) =
        (place.put_fixture(FULL), place.put_fixture(DIFFERENTIAL))
    else {
        return;
    };
    let _ = (place.put_fixture(LATER), place.put_fixture(LOG));
    let mut file = brought_on(&full, &differential);
    for number in [1, UNCHANGED, CHANGED] {
        file[at(number) + 300..][..38].fill(0xE7);
    }
    let path = place.put("data/it's [x].mdf", &file);
    let outcome = run(&request(&path, &[&full, &differential])).unwrap();
    let all = outcome.warnings.join("\n");
    let folder = place.folder.path().display();
    let expected = format!(
        "RESTORE DATABASE [BLM4522] PAGE = '1:80, 1:126' FROM DISK = N'{folder}/oguzz_full_backup.bak' \
         WITH FILE = 1, NORECOVERY; RESTORE DATABASE [BLM4522] FROM DISK = \
         N'{folder}/oguzz_diff_backup.bak' WITH FILE = 1, NORECOVERY; BACKUP LOG [BLM4522] TO DISK = \
         N'BLM4522_tail.trn'; RESTORE LOG [BLM4522] FROM DISK = N'BLM4522_tail.trn' WITH RECOVERY;"
    );
    assert!(all.contains(&expected), "{all}");
    assert!(all.contains("what is wrong with 1:1 needs a restore of the database"), "{all}");
    // A folder: its contents say what each file is.
    let whole = run(&request(&path, &[place.folder.path()])).unwrap();
    assert!(whole.warnings[0].contains("oguzz_full_backup_recoveryfull.bak"), "{whole:#?}");
}

/// The newest full backup holds the damage already.
#[test]
fn statements_leave_out_a_backup_in_which_the_page_is_damaged_too() {
    let place = Place::new();
    let (Some(full), Some(later)) = (place.put_fixture(FULL), place.put_fixture(LATER)) else {
        return;
    };
    let mut file = data_file(&later);
    let wanted = page(&file, UNCHANGED);
    let mut bytes = fs::read(&later).unwrap();
    let there = (0..bytes.len()).step_by(512).find(|at| bytes[*at..].starts_with(&wanted)).unwrap();
    bytes[there + 3000] ^= 1;
    let damaged = place.put("damaged.bak", &bytes);
    file[at(UNCHANGED) + 3000] ^= 1;
    let path = place.put("data/shop.mdf", &file);
    let outcome = run(&request(&path, &[&full, &damaged])).unwrap();
    let all = outcome.warnings.join(" ");
    assert!(all.contains("oguzz_full_backup.bak") && !all.contains("damaged.bak"), "{all}");
    let outcome = run(&request(&path, &[&full, &later])).unwrap();
    assert!(outcome.warnings[0].contains("oguzz_full_backup_recoveryfull.bak"), "{outcome:#?}");
}

/// Pages of a backup whose end was cut off can be taken, and are not proved.
#[test]
fn backup_that_was_cut_gives_pages_that_are_older() {
    let place = Place::new();
    let Some(full) = place.put_fixture(FULL) else { return };
    let mut file = data_file(&full);
    put_page(&mut file, u32::try_from(UNCHANGED).unwrap(), &[0; PAGE_BYTES]);
    let mut bytes = fs::read(&full).unwrap();
    bytes.truncate(bytes.len() / 2);
    let cut = place.put("cut.bak", &bytes);
    let path = place.put("data/shop.mdf", &file);
    let outcome = run(&request(&path, &[&cut])).unwrap();
    assert_eq!(outcome.pages[0].proof, Some(Proof::Older), "{outcome:#?}");
    assert!(outcome.warnings.is_empty(), "no statement restores from it: {outcome:#?}");
}

#[test]
fn healthy_database_has_nothing_to_repair() {
    let place = Place::new();
    let Some(full) = place.put_fixture(FULL) else { return };
    let mut file = data_file(&full);
    for _ in 0..2 {
        let path = place.put("shop.mdf", &file);
        let outcome = run(&request(&path, &[&full])).unwrap();
        assert_eq!(outcome.verdict, Verdict::NothingToRepair);
        assert!(outcome.is_whole());
        shut_down(&mut file);
    }
}
