//! What a run shows beside its text and its JSON: a line for a monitoring system, figures for
//! Prometheus, a map, a web page. Files that are written must be whole, must not be lost by
//! mistake, and must not let an alert fall silent.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::runner::{Outcome, pagewarden, run};

/// A folder with a sound database and a damaged one, both with checksums on every page.
struct Shop {
    folder: TempDir,
}

impl Shop {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/sqlite/3.40.1/cksumvfs-512.db");
        let mut bytes = fs::read(golden).unwrap();
        fs::write(folder.path().join("sound.db"), &bytes).unwrap();
        // Anywhere in the middle of the second page.
        bytes[512 + 200] ^= 0x40;
        fs::write(folder.path().join("damaged.db"), &bytes).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn check(&self, arguments: &[&str]) -> Outcome {
        run(pagewarden().arg("check").args(arguments).current_dir(self.folder.path()))
    }
}

/// The state in the only line, which must be one, with one part for figures.
fn nagios(outcome: &Outcome) -> (i32, String) {
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
    assert_eq!(outcome.stderr, "", "{outcome:?}");
    let rest = outcome.stdout.strip_prefix("PAGEWARDEN ").unwrap();
    let state = rest.split(' ').next().unwrap().to_owned();
    (outcome.status.unwrap(), state)
}

#[test]
fn a_monitoring_system_gets_one_line_and_the_status_that_goes_with_it() {
    let shop = Shop::new();
    for (arguments, status, state) in [
        (&["--nagios", "sound.db"][..], 0, "OK"),
        (&["--nagios", "damaged.db"], 2, "CRITICAL"),
        (&["--nagios", "sound.db", "damaged.db"], 2, "CRITICAL"),
        (&["--nagios", "gone.db", "damaged.db"], 2, "CRITICAL"),
        (&["--nagios", "gone.db", "sound.db"], 3, "UNKNOWN"),
        (&["--nagios", "gone.db"], 3, "UNKNOWN"),
        (&["--nagios"], 3, "UNKNOWN"),
        (&["--nagios", "--json", "sound.db"], 3, "UNKNOWN"),
        (&["--nagios", "--no-such-flag", "sound.db"], 3, "UNKNOWN"),
        (&["--nagios", "--metrics", "none/x.prom", "sound.db"], 3, "UNKNOWN"),
    ] {
        let outcome = shop.check(arguments);
        assert_eq!(nagios(&outcome), (status, state.to_owned()), "{arguments:?}: {outcome:?}");
    }
    let line = shop.check(&["--nagios", "damaged.db"]).stdout;
    assert!(line.contains("damaged.db page 2 ("), "{line}");
    assert!(line.contains(" | damaged=1;;0;0 "), "{line}");
}

#[test]
fn a_level_of_protection_that_is_missed_is_a_warning() {
    let shop = Shop::new();
    let made = Command::new("sqlite3")
        .arg(shop.path("plain.db"))
        .arg("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
        .status();
    if !made.is_ok_and(|status| status.success()) {
        assert_ne!(std::env::var("PAGEWARDEN_REQUIRE").unwrap_or_default(), "sqlite");
        eprintln!("skipped: no sqlite3 shell");
        return;
    }
    for (arguments, status, state) in [
        (&["--nagios", "plain.db"][..], 0, "OK"),
        (&["--nagios", "--require-protection", "plain.db"], 1, "WARNING"),
        (&["--nagios", "--min-protected", "50%", "plain.db"], 1, "WARNING"),
        (&["--nagios", "--min-protected", "50%", "plain.db", "damaged.db"], 2, "CRITICAL"),
    ] {
        let outcome = shop.check(arguments);
        assert_eq!(nagios(&outcome), (status, state.to_owned()), "{arguments:?}: {outcome:?}");
    }
}

fn sample<'a>(metrics: &'a str, name: &str, label: &str) -> Option<&'a str> {
    let line = metrics
        .lines()
        .find(|line| line.split('{').next() == Some(name) && line.contains(label))?;
    line.rsplit(' ').next()
}

#[test]
fn figures_are_replaced_whole_and_a_failing_run_takes_no_alarm_back() {
    let shop = Shop::new();
    let file = shop.path("pagewarden.prom");
    let outcome = shop.check(&["--metrics", "pagewarden.prom", "damaged.db", "sound.db"]);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    let first = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    let success = "pagewarden_pass_last_success_timestamp_seconds";
    assert_eq!(sample(&first, "pagewarden_target_up", "damaged.db"), Some("1"));
    assert_eq!(sample(&first, "pagewarden_pass_coverage_ratio", "sound.db"), Some("1"));
    let damage = "damaged.db\",engine=\"sqlite\",severity=\"damage\"";
    assert_eq!(sample(&first, "pagewarden_open_findings", damage), Some("1"));
    let when = sample(&first, success, "damaged.db").unwrap();

    fs::remove_file(shop.path("damaged.db")).unwrap();
    let outcome = shop.check(&["--metrics", "pagewarden.prom", "damaged.db", "sound.db"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let second = fs::read_to_string(&file).unwrap();
    assert_eq!(sample(&second, "pagewarden_target_up", "damaged.db"), Some("0"));
    assert_eq!(sample(&second, "pagewarden_open_findings", damage), Some("1"));
    assert_eq!(sample(&second, success, "damaged.db"), Some(when));
    assert_eq!(sample(&second, "pagewarden_pages_scanned", "damaged.db"), None);
    // Nothing else is left behind.
    let names: Vec<_> = fs::read_dir(shop.folder.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn no_file_is_lost_by_a_mistake_on_the_command_line() {
    let shop = Shop::new();
    fs::create_dir(shop.path("cluster")).unwrap();
    fs::write(shop.path("cluster/PG_VERSION"), "15\n").unwrap();
    let before = fs::read(shop.path("sound.db")).unwrap();
    for (flag, file, checked) in [
        ("--html", "sound.db", "damaged.db"),
        ("--metrics", "sound.db", "damaged.db"),
        ("--html", "sound.db", "sound.db"),
        ("--metrics", "cluster/x.prom", "cluster"),
        ("--html", "cluster", "damaged.db"),
        ("--picture", "sound.db", "damaged.db"),
        ("--html", "/dev/null", "damaged.db"),
    ] {
        let outcome = shop.check(&[flag, file, checked]);
        assert_eq!(outcome.status, Some(2), "{flag} {file} {checked}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "refused before anything is read");
        assert!(outcome.stderr.contains("cannot write"), "{outcome:?}");
    }
    assert_eq!(fs::read(shop.path("sound.db")).unwrap(), before);
    assert_eq!(fs::read_dir(shop.path("cluster")).unwrap().count(), 1);
}

#[test]
fn the_page_holds_the_whole_run_and_asks_for_nothing() {
    let shop = Shop::new();
    fs::copy(shop.path("damaged.db"), shop.path("<img src=x>.db")).unwrap();
    for _ in 0..2 {
        let outcome =
            shop.check(&["--html", "report.html", "sound.db", "<img src=x>.db", "gone.db"]);
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
    }
    let page = fs::read_to_string(shop.path("report.html")).unwrap();
    assert!(page.len() < 300_000);
    for text in [
        "<h1>1 of 74 pages is damaged. 1 of 3 targets could not be checked.</h1>",
        "&lt;img src=x&gt;.db",
        "Not checked.",
        "Every page in use was tested and is sound.",
        "title=\"&lt;img src=x&gt;.db page 2: 1 damaged\"",
    ] {
        assert!(page.contains(text), "no {text} in\n{page}");
    }
    for text in ["<img", "<script", "http://", "https://", "url("] {
        assert!(!page.contains(text), "{text}");
    }
    // Beside JSON too, which stays one object.
    let outcome = shop.check(&["--json", "--html", "report.html", "sound.db"]);
    assert_eq!(outcome.report().verdict(), "intact");
}

#[test]
fn the_picture_shows_the_damaged_page_and_replaces_an_earlier_picture() {
    let shop = Shop::new();
    for _ in 0..2 {
        let outcome = shop.check(&["--picture", "map.svg", "sound.db", "damaged.db"]);
        assert_eq!(outcome.status, Some(1), "{outcome:?}");
    }
    let picture = fs::read_to_string(shop.path("map.svg")).unwrap();
    for text in
        ["<svg ", "<title>damaged.db page 2: 1 damaged</title>", "verdict: intact", "</svg>"]
    {
        assert!(picture.contains(text), "no {text} in\n{picture}");
    }
}

#[test]
fn a_page_is_written_also_when_nothing_could_be_checked() {
    let shop = Shop::new();
    let outcome = shop.check(&["--html", "report.html", "gone.db"]);
    assert_eq!(outcome.status, Some(2), "{outcome:?}");
    let page = fs::read_to_string(shop.path("report.html")).unwrap();
    assert!(page.contains("Nothing could be checked."), "{page}");
}

#[test]
fn the_map_in_a_pipe_is_plain_and_fits_eighty_columns() {
    let shop = Shop::new();
    let outcome = shop.check(&["--map", "damaged.db"]);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    let heading = lines.iter().position(|line| line.starts_with("  map: one tile is")).unwrap();
    let map = &lines[heading..lines.len() - 1];
    assert!(map.len() <= 20 && map.iter().all(|line| line.len() <= 80), "{map:#?}");
    assert!(map[1].trim_start().starts_with("damaged.db           .X"), "{map:#?}");
    assert!(outcome.stdout.is_ascii() && !outcome.stdout.contains('\x1b'));
    assert!(lines.last().unwrap().starts_with("Checked "), "{lines:#?}");
}
