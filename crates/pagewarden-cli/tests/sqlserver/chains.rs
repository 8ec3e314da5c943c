//! Folders of backups: a real chain of SQL Server 2019 with a real gap (full, differential, full again,
//! and a log backup that does not follow), each of its links taken away and damaged in turn; stripes of
//! which one is missing, and differential backups whose base is elsewhere.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::wild::wild;
use crate::runner::{check, check_text, pagewarden, run};

const FULL: &str = "oguzz_full_backup.bak";
const DIFFERENTIAL: &str = "oguzz_diff_backup.bak";
const SECOND: &str = "oguzz_full_backup_recoveryfull.bak";
const LOG: &str = "oguzz_transaction_log.trn";
pub const CHAIN: [&str; 4] = [FULL, DIFFERENTIAL, SECOND, LOG];
/// When they were made.
const TIMES: [&str; 3] = ["2026-04-18T19:55:52", "2026-04-18T20:32:39", "2026-04-18T20:41:27"];

/// A folder with these files, under names that say nothing.
pub fn folder_of(names: &[&str]) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        fs::write(folder.path().join(hidden(name)), wild(name)?).unwrap();
    }
    Some(folder)
}

fn hidden(name: &str) -> String {
    let number = CHAIN.iter().position(|one| *one == name).unwrap_or(9);
    format!("file{number}.data")
}

/// The status, and the entry of the folder itself.
fn checked(folder: &TempDir) -> (Option<i32>, Value) {
    let outcome = check([folder.path()]);
    let json = outcome.report().json;
    let whole = json["targets"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(whole["path"], folder.path().display().to_string(), "{}", outcome.stdout);
    (outcome.status, whole)
}

fn times(database: &Value) -> Vec<Value> {
    let ranges = database["restorable"].as_array().unwrap().iter();
    ranges.map(|range| range["to_time"].clone()).collect()
}

/// The files in the order of their restoring, and the last word of each statement.
fn statements(database: &Value) -> Vec<String> {
    let all = database["restore"].as_array().unwrap().iter();
    all.map(|statement| statement.as_str().unwrap().to_owned()).collect()
}

#[test]
fn folder_in_a_plan_is_one_unit_and_says_the_same() {
    let Some(folder) = folder_of(&CHAIN) else { return };
    let work = tempfile::tempdir().unwrap();
    let (plan, result) = (work.path().join("plan"), work.path().join("result"));
    let planned = run(pagewarden().arg("plan").arg(folder.path()).arg("-o").arg(&plan));
    assert_eq!(planned.status, Some(0), "{planned:?}");
    let mut part = pagewarden();
    part.args(["check", "--part", "1/1", "--plan"]).arg(&plan).arg("-o").arg(&result);
    assert_eq!(run(&mut part).status, Some(0));
    let merged = run(pagewarden().args(["merge", "--json"]).arg(&plan).arg(&result));
    let expected = check([folder.path()]);
    assert_eq!(merged.status, expected.status);
    assert_eq!(merged.report().timeless(), expected.report().timeless());
}

#[test]
fn chain_with_a_gap_says_what_can_be_restored_and_how() {
    let Some(folder) = folder_of(&CHAIN) else { return };
    let (status, whole) = checked(&folder);
    assert_eq!((status, &whole["verdict"]), (Some(0), &json!("suspect")), "{whole}");
    let databases = whole["databases"].as_array().unwrap();
    assert_eq!(databases.len(), 1, "{whole}");
    let database = &databases[0];
    let kinds: Vec<_> = database["sets"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
    assert_eq!(kinds, ["full", "differential", "full", "log"]);
    assert_eq!(times(database), TIMES, "{whole}");
    assert_eq!(database["gaps"][0]["from_lsn"], "42000000853600001");
    assert_eq!(database["gaps"][0]["to_lsn"], "42000000856000001");
    assert_eq!(database["gaps"][0]["from_time"], TIMES[2]);
    let path = folder.path().join(hidden(SECOND)).display().to_string();
    let name = database["database"].as_str().unwrap();
    assert_eq!(
        statements(database),
        [
            format!("RESTORE DATABASE [{name}] FROM DISK = N'{path}' WITH FILE = 1, NORECOVERY;"),
            format!("RESTORE DATABASE [{name}] WITH RECOVERY;"),
        ]
    );
    let finding = &whole["findings"][0];
    assert_eq!((&finding["file"], &finding["kind"]), (&json!(hidden(LOG)), &json!("missing")));
    let detail = finding["detail"].as_str().unwrap();
    assert!(detail.contains("from 42:8536:1 to 42:8560:1"), "{detail}");

    let first = &database["sets"][0];
    assert_eq!(first["first_lsn"], "42000000812000001");
    assert_eq!(first["last_lsn"], "42000000814400001");
    assert_eq!(first["database_backup_lsn"], "42000000800000001");
    assert_eq!(database["sets"][1]["differential_base"], first["id"]);
    // The full backup was restored before the differential one was made.
    assert_eq!(database["sets"][1]["first_recovery_fork"], first["recovery_fork"]);
    assert_eq!(database["sets"][1]["fork_point_lsn"], first["last_lsn"]);
    assert_eq!((&first["compressed"], &first["stripes"]), (&json!(false), &json!(1)));
    let files = first["database_files"].as_array().unwrap();
    assert_eq!((files.len(), &files[1]["is_log"]), (2, &json!(true)), "{files:?}");

    let text = check_text([folder.path()]).stdout;
    let sentence = format!(
        "4 of 4 backup files sound; {name}: the state of 2026-04-18 19:55:52, the state of 2026-04-18 \
         20:32:39 and the state of 2026-04-18 20:41:27 can be restored"
    );
    assert!(text.contains(&sentence), "{text}");
    assert!(text.contains("WITH RECOVERY;"), "{text}");
}

#[test]
fn each_link_that_is_missing_or_damaged_costs_what_hangs_on_it() {
    type Case<'a> = (&'a str, &'a [&'a str], i32, &'a [&'a str], usize);
    // What can be restored, the status, the way to the newest state, and the number of gaps.
    let cases: [Case<'_>; 4] = [
        // The differential one cannot be restored; its base may be kept elsewhere.
        (FULL, &TIMES[2..], 2, &[SECOND], 1),
        (DIFFERENTIAL, &[TIMES[0], TIMES[2]], 0, &[SECOND], 1),
        (SECOND, &TIMES[..2], 0, &[FULL, DIFFERENTIAL], 1),
        (LOG, &TIMES, 0, &[SECOND], 0),
    ];
    for (missing, expected, status, way, gaps) in cases {
        let Some(folder) = folder_of(&CHAIN) else { return };
        let path = folder.path().join(hidden(missing));
        let mut bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (found, whole) = checked(&folder);
        assert_eq!(found, Some(status), "{missing}: {whole}");
        let database = &whole["databases"][0];
        assert_eq!(times(database), expected, "{missing}: {whole}");
        assert_eq!(database["gaps"].as_array().unwrap().len(), gaps, "{missing}: {whole}");
        let mut restored = statements(database);
        assert!(restored.pop().unwrap().ends_with("WITH RECOVERY;"), "{missing}");
        let names = restored.iter().zip(way).filter(|(text, name)| text.contains(&hidden(name)));
        assert_eq!(
            (names.count(), restored.len()),
            (way.len(), way.len()),
            "{missing}: {restored:?}"
        );

        // A backup that is damaged is not promised either.
        let middle = bytes.len() / 2;
        match missing {
            // There is filler in its middle.
            LOG => bytes.truncate(middle),
            _ => bytes[middle..middle + 9000].fill(0x55),
        }
        fs::write(&path, bytes).unwrap();
        let (_, whole) = checked(&folder);
        let database = &whole["databases"][0];
        assert_eq!(times(database), expected, "{missing}, damaged: {whole}");
        let unusable = database["sets"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|set| set["unusable"].as_str().is_some_and(|why| !why.is_empty()));
        let unusable: Vec<_> = unusable.map(|set| set["files"][0].clone()).collect();
        assert_eq!(unusable, [json!(path.display().to_string())], "{missing}");
    }
}

#[test]
fn backups_that_need_what_is_not_here_are_not_promised() {
    let Some(folder) = folder_of(&["MarcinPepke_xyz_1of2.bak"]) else { return };
    let (status, whole) = checked(&folder);
    assert_eq!(status, Some(2), "one of two stripes: {whole}");
    assert_eq!(whole["databases"][0]["restorable"], json!([]));
    let why = whole["databases"][0]["sets"][0]["unusable"].as_str().unwrap();
    assert_eq!(why, "1 of the 2 files that it is striped over are not here");

    let Some(folder) = folder_of(&["ThanhTam_diff_6sets.bak"]) else { return };
    let (status, whole) = checked(&folder);
    assert_eq!(status, Some(2), "{whole}");
    let databases = whole["databases"].as_array().unwrap();
    let sets: usize = databases.iter().map(|it| it["sets"].as_array().unwrap().len()).sum();
    assert_eq!((sets, whole["unread"].as_array().unwrap().len()), (6, 6), "{whole}");
    assert!(databases.iter().all(|it| it["restore"] == json!([])), "{whole}");
}
