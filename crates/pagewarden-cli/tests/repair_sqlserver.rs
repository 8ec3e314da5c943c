//! `pagewarden repair` of SQL Server through the program: a plan with the server's own statements, and a copy
//! that is mended. The rules have their tests beside them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::runner::{Outcome, pagewarden, run};
use crate::sqlserver::{fixture, folder};

const PAGE: usize = 8192;
const BACKUP: &str = "products-full-2019.bak";

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
fn damaged(folder: &Path) -> (PathBuf, Vec<u8>, Vec<usize>) {
    let backup = self::folder().join(BACKUP);
    let unpacked = run(pagewarden().arg("unpack").arg(backup).arg(folder.join("out")).arg("-q"));
    assert_eq!(unpacked.status, Some(0), "{}", unpacked.stderr);
    let file = folder.join("out/ChallengeProducts.mdf");
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
    let (file, sound, pages) = damaged(folder.path());
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
