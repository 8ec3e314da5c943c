//! Seals from outside: when one is made, when not, and what it shows later.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::clusters::{any_installation, metadata, sample};
use crate::damage::{Damage, Dice, Wound};
use crate::runner::{Finding, Outcome, check, check_text};
use crate::sqlite::{has_shell, shell};

fn seal(place: &Path, database: &Path) -> Outcome {
    check(["--seal".as_ref(), place.as_os_str(), database.as_os_str()])
}

fn against(place: &Path, database: &Path) -> Outcome {
    check(["--against".as_ref(), place.as_os_str(), database.as_os_str()])
}

/// A SQLite database in rollback mode, whose pages carry no sums.
fn sqlite(folder: &Path) -> PathBuf {
    shell(
        folder,
        ".open shop.db\n\
         PRAGMA page_size = 4096; CREATE TABLE t (a TEXT);\n\
         WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900)\n\
         INSERT INTO t SELECT hex(randomblob(20)) FROM n;\n",
    );
    folder.join("shop.db")
}

#[test]
fn seal_is_made_of_a_healthy_database_only_and_replaces_only_a_seal() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.loan();
    let root = cluster.data_dir();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("main.seal");
    let before = metadata(root);
    let made = seal(&place, root);
    assert_eq!((made.status, made.report().verdict()), (Some(0), "intact"));
    assert_eq!(metadata(root), before, "nothing is written to what is sealed");
    let sound = fs::read(&place).unwrap();
    assert!(sound.starts_with(b"PWSEAL\r\n"));

    let item = sample.file("item");
    {
        let mut dice = Dice::seeded();
        let _wound = Wound::to(root.join(item)).inflict(Damage::BitInTuple, &mut dice, 9);
        let refused = seal(&place, root);
        assert_eq!((refused.status, refused.report().verdict()), (Some(1), "damaged"));
        assert!(refused.stderr.contains("no seal was made"), "{}", refused.stderr);
        assert_eq!(fs::read(&place).unwrap(), sound, "the old one stays");
        // One finding: the page's own.
        let report = against(&place, root).report();
        assert_eq!(report.findings(), [Finding::page(item, 9, "damage", "checksum")]);
    }
    assert_eq!(against(&place, root).report().findings(), []);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");

    let inside = check_text(["--seal".as_ref(), root.join("x.seal").as_os_str(), root.as_os_str()]);
    assert_eq!(inside.status, Some(2));
    assert!(inside.stderr.contains("which is only read"), "{}", inside.stderr);
    let other = folder.path().join("precious.txt");
    fs::write(&other, "mine").unwrap();
    assert_eq!(seal(&other, root).status, Some(2));
    assert_eq!(fs::read(&other).unwrap(), b"mine");
    let two = check([
        "--against".as_ref(),
        place.as_os_str(),
        root.as_os_str(),
        root.join("base").as_os_str(),
    ]);
    assert_eq!(two.status, Some(2));
}

#[test]
fn seal_that_is_damaged_or_of_another_database_is_refused() {
    let Some(installation) = any_installation() else { return };
    if !has_shell() {
        return;
    }
    let cluster = sample(&installation, true).loan();
    let folder = tempfile::tempdir().unwrap();
    let database = sqlite(folder.path());
    let place = folder.path().join("shop.seal");
    assert_eq!(seal(&place, &database).status, Some(0));
    let outcome = against(&place, cluster.data_dir());
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("another database"), "{}", outcome.stderr);

    let mut bytes = fs::read(&place).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&place, bytes).unwrap();
    let outcome = against(&place, &database);
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("root hash"), "{}", outcome.stderr);
    assert_eq!(against(&folder.path().join("none"), &database).status, Some(2));
}

/// Pages without sums: what no test of a page sees, the seal does.
#[test]
fn sqlite_database_that_nobody_wrote_to_is_as_it_was() {
    if !has_shell() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let database = sqlite(folder.path());
    let place = folder.path().join("shop.seal");
    let made = seal(&place, &database);
    assert_eq!(made.report().verdict(), "unprotected");
    assert_eq!(against(&place, &database).report().findings(), []);
    let file = fs::File::options().read(true).write(true).open(&database).unwrap();
    // The last bytes of a leaf are the text of its first row.
    let bytes = fs::read(&database).unwrap();
    let leaf = bytes.chunks_exact(4096).skip(1).position(|page| page[0] == 13).unwrap() + 2;
    let offset = leaf as u64 * 4096 - 1;
    file.write_all_at(&[bytes[leaf * 4096 - 1] ^ 1], offset).unwrap();
    assert_eq!(check([&database]).report().findings(), [], "unseen by itself");
    let report = against(&place, &database).report();
    let at = offset + 1 - 4096;
    assert_eq!(
        report.findings(),
        [Finding::page_at("shop.db", leaf as u64, at, "damage", "checksum")]
    );
    // With a transaction since, it may be what was written.
    let mut counter = [0; 4];
    file.read_exact_at(&mut counter, 24).unwrap();
    let next = (u32::from_be_bytes(counter) + 1).to_be_bytes();
    file.write_all_at(&next, 24).unwrap();
    file.write_all_at(&next, 92).unwrap();
    assert_eq!(against(&place, &database).report().findings(), []);
}
