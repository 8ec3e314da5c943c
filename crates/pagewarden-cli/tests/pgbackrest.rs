//! `pagewarden check` of pgBackRest repositories, as a user's scripts see it.

use std::path::PathBuf;

use serde_json::Value;

use crate::runner::{pagewarden, run};

/// A repository of the collection, with its passphrase. `None`, said aloud, where there are no fixtures.
pub fn repository(name: &str) -> Option<(PathBuf, String)> {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures").into();
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from);
    let folder = root.join("backups").join(name);
    let Ok(manifest) = std::fs::read(folder.join("manifest.json")) else {
        assert!(std::env::var_os("CI").is_none(), "{} is not there", folder.display());
        eprintln!("SKIPPED: {} is not there", folder.display());
        return None;
    };
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    Some((folder.join("repo"), manifest["cipher_pass"].as_str().unwrap_or_default().to_owned()))
}

#[test]
fn sets_of_a_repository_are_targets_with_what_the_tool_says_of_them() {
    let Some((repository, _)) = repository("pgbackrest-2.60-block-zst-pageerror") else { return };
    let outcome = run(pagewarden().args(["check", "--json"]).arg(&repository));
    assert_eq!(outcome.status, Some(1), "{}", outcome.stdout);
    let json = outcome.report().json;
    let targets = json["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 4);
    let incremental = &targets[2];
    let label = "20261123-091212F_20261123-091233I";
    assert_eq!(incremental["path"], format!("{}#{label}", repository.display()));
    assert_eq!(
        incremental["backup"],
        serde_json::json!({
            "tool": "pgBackRest", "label": label, "type": "incremental",
            "prior": "20261123-091212F_20261123-091231D",
            "started": "2026-11-23T09:12:33Z", "stopped": "2026-11-23T09:12:34Z",
            "from_lsn": "0/4B00028", "to_lsn": "0/4B00100", "timeline": 1,
            "database_version": "15", "system_identifier": 7_711_291_475_856_572_826_u64,
            "files": incremental["backup"]["files"],
            "repository_bytes": incremental["backup"]["repository_bytes"],
        })
    );
    assert!(incremental["backup"]["files"].as_u64().unwrap() > 300);
    assert!(incremental["backup"]["repository_bytes"].as_u64().unwrap() > 1000);
    assert_eq!(incremental["findings"][0]["file"], "base/1/16782");
    assert_eq!(incremental["findings"][0]["page"], 3);
    assert_eq!(targets[3]["path"], repository.display().to_string());
    assert!(targets[3].get("backup").is_none());
}

#[test]
fn passphrase_is_taken_from_the_tools_variable_and_never_shown() {
    let Some((repository, pass)) = repository("pgbackrest-2.60-bundle-gz-cipher") else { return };
    let variable = "PGBACKREST_REPO1_CIPHER_PASS";
    let outcome = run(pagewarden().args(["check", "--json"]).arg(&repository).env(variable, &pass));
    assert_eq!(outcome.status, Some(0), "{}", outcome.stdout);
    assert!(!format!("{}{}", outcome.stdout, outcome.stderr).contains(&pass));
    let outcome = run(pagewarden().args(["check", "--json"]).arg(&repository).env_remove(variable));
    assert_eq!(outcome.status, Some(2), "{}", outcome.stdout);
    assert_eq!(outcome.report().json["targets"].as_array().unwrap().len(), 4);
}
