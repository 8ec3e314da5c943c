//! `pagewarden repair` of SQL Server through the program: a plan with the server's own statements, and a copy
//! that is mended. The rules have their tests beside them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::runner::{Outcome, pagewarden, run};
use crate::sqlserver::backups::striped;
use crate::sqlserver::{fixture, folder};

const PAGE: usize = 8192;
const BACKUP: &str = "products-full-2019.bak";
/// One that can be dealt out to two stripes, and where its first page lies.
const PUBS: (&str, usize) = ("pubs-full-2012.bak", 16_384);

fn repair(file: &Path, arguments: &[&str]) -> Outcome {
    let mut command = pagewarden();
    command.arg("repair").arg(file).args(["--json", "--quiet"]);
    run(command.args(arguments))
}

fn object(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", outcome.stdout, outcome.stderr))
}

/// The data file of the backup, with three pages that are damaged; and as it was.
fn damaged(folder: &Path, backup: &str, file: &str) -> (PathBuf, Vec<u8>, Vec<usize>) {
    let backup = self::folder().join(backup);
    let unpacked = run(pagewarden().arg("unpack").arg(backup).arg(folder.join("out")).arg("-q"));
    assert_eq!(unpacked.status, Some(0), "{}", unpacked.stderr);
    let file = folder.join("out").join(file);
    let sound = fs::read(&file).unwrap();
    let is_data = |page: &[u8]| page[..2] == [1, 1];
    let pages: Vec<_> = sound
        .chunks_exact(PAGE)
        .enumerate()
        .filter(|(number, page)| is_data(page) && *number > 9)
        .map(|(number, _)| number)
        .step_by(20)
        .take(3)
        .collect();
    let mut bytes = sound.clone();
    bytes[pages[0] * PAGE + 200..][..500].fill(0x77);
    bytes[pages[1] * PAGE..][..PAGE].fill(0);
    bytes[pages[2] * PAGE + 4096..][..512].fill(0);
    fs::write(&file, bytes).unwrap();
    (file, sound, pages)
}

#[test]
fn pages_are_planned_from_a_backup_and_mended_in_a_copy_only() {
    if fixture(BACKUP).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, sound, pages) = damaged(folder.path(), BACKUP, "ChallengeProducts.mdf");
    let wounded = fs::read(&file).unwrap();
    let backup = self::folder().join(BACKUP).to_str().unwrap().to_owned();

    let plan = repair(&file, &["--from", &backup]);
    assert_eq!(plan.status, Some(0), "{} {}", plan.stdout, plan.stderr);
    let planned = object(&plan);
    assert_eq!(planned["verdict"], "planned");
    let numbers: Vec<_> = planned["pages"].as_array().unwrap().iter().collect();
    assert_eq!(numbers.len(), pages.len());
    for (page, number) in numbers.iter().zip(&pages) {
        assert_eq!(page["page"], *number, "{page}");
        assert_eq!(page["proof"], "exact", "{page}");
        assert_eq!(page["written"], false);
    }
    let listed: Vec<_> = pages.iter().map(|page| format!("1:{page}")).collect();
    let statement = format!(
        "RESTORE DATABASE [ChallengeProducts] PAGE = '{}' FROM DISK = N'{backup}'",
        listed.join(", ")
    );
    let warnings = planned["warnings"].to_string();
    assert!(warnings.contains(&statement), "{warnings}");

    let refused = repair(&file, &["--from", &backup, "--yes"]);
    assert_eq!(refused.status, Some(2), "{}", refused.stdout);
    assert!(fs::read(&file).unwrap() == wounded, "a file of SQL Server was changed in place");

    let copy = folder.path().join("mended");
    let mended = repair(&file, &["--from", &backup, "--copy-to", copy.to_str().unwrap(), "--yes"]);
    assert_eq!(mended.status, Some(0), "{} {}", mended.stdout, mended.stderr);
    assert_eq!(object(&mended)["verdict"], "repaired");
    assert!(fs::read(copy.join("ChallengeProducts.mdf")).unwrap() == sound);
    assert!(fs::read(&file).unwrap() == wounded);

    // A backup of another database is refused by name.
    let other = self::folder().join("pubs-full-2012.bak");
    let other = repair(&file, &["--from", other.to_str().unwrap()]);
    assert_eq!(other.status, Some(2));
    assert!(other.stdout.contains("another database"), "{}", other.stdout);
}

/// What a plan says of each page, by a source.
fn planned(file: &Path, source: &Path) -> Vec<(Value, Value, Value)> {
    let plan = object(&repair(file, &["--accept-older", "--from", source.to_str().unwrap()]));
    let pages = plan["pages"].as_array().unwrap_or_else(|| panic!("{plan}"));
    let of = |page: &Value| (page["page"].clone(), page["proof"].clone(), page["after"].clone());
    pages.iter().map(of).collect()
}

#[test]
fn packs_and_stripes_beside_a_named_one_give_what_the_backup_gives() {
    let Some(bytes) = fixture(PUBS.0) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, sound, _) = damaged(folder.path(), PUBS.0, "pubs.mdf");
    let wounded = fs::read(&file).unwrap();
    let whole = planned(&file, &self::folder().join(PUBS.0));
    // Not each of the three wounds shows in this file, and the backup is not proved to be of its last
    // state.
    assert!(whole.len() >= 2 && whole.iter().all(|(.., after)| after.is_string()), "{whole:?}");

    let [stripes, one] = ["stripes", "one"].map(|name| folder.path().join(name));
    fs::create_dir(&stripes).unwrap();
    fs::create_dir(&one).unwrap();
    let [first, second] = striped(&bytes, PUBS.1);
    fs::write(stripes.join("1.bak"), &first).unwrap();
    fs::write(stripes.join("2.bak"), second).unwrap();
    fs::write(one.join("1.bak"), first).unwrap();
    fs::copy(self::folder().join(BACKUP), stripes.join("other.bak")).unwrap();
    let pack = |what: &Path, name: &str| {
        let pack = folder.path().join(name);
        let packed = run(pagewarden().arg("pack").arg(what).arg("-o").arg(&pack).arg("-q"));
        assert_eq!(packed.status, Some(0), "{} {}", packed.stdout, packed.stderr);
        pack
    };
    fs::create_dir(folder.path().join("both")).unwrap();
    for name in ["1.bak", "2.bak"] {
        fs::copy(stripes.join(name), folder.path().join("both").join(name)).unwrap();
    }
    for source in [
        stripes.join("2.bak"),
        folder.path().join("both"),
        pack(&self::folder().join(PUBS.0), "whole.pwk"),
    ] {
        assert_eq!(planned(&file, &source), whole, "{}", source.display());
        let copy = folder.path().join(source.file_name().unwrap()).with_extension("mended");
        let arguments =
            ["--accept-older", "--from", source.to_str().unwrap(), "--yes", "--copy-to"];
        let mended = repair(&file, &[&arguments[..], &[copy.to_str().unwrap()]].concat());
        assert_eq!(mended.status, Some(0), "{} {}", mended.stdout, mended.stderr);
        let now = fs::read(copy.join("pubs.mdf")).unwrap();
        for number in whole.iter().filter_map(|(page, ..)| page.as_u64()) {
            let page = number as usize * PAGE..(number as usize + 1) * PAGE;
            assert!(now[page.clone()] == sound[page], "{} page {number}", source.display());
        }
    }
    assert!(fs::read(&file).unwrap() == wounded);
    // A stripe without the other is never more than the pages that are in it.
    let alone = repair(&file, &["--accept-older", "--from", one.join("1.bak").to_str().unwrap()]);
    assert_ne!(alone.status, Some(0), "{} {}", alone.stdout, alone.stderr);
}
