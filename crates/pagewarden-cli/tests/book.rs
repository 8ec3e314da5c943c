//! The tutorials of the book, run as a reader would type them.
//!
//! A page with `<!-- run: ENGINE -->` is run: the lines of its `console` blocks that begin with `$`, one
//! after the other in one shell and one empty folder. What stands below a command is what it must print;
//! `...` stands for any lines, and numbers may differ.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pagewarden_scratch::mariadb;
use serde_json::Value;
use tempfile::TempDir;

use crate::clusters;
use crate::runner::{OrdinaryUser, pagewarden, run};

/// What the shell prints behind each command, with its number and status.
const MARK: char = '\u{1}';

/// A command with what it must print.
#[derive(Debug, Default, PartialEq)]
struct Step {
    line: usize,
    command: String,
    output: Vec<String>,
}

/// The commands of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut is_console, mut is_code) = (false, false);
    for (line, text) in (1..).zip(page.lines()) {
        if text.starts_with("```") {
            is_code = !is_code;
            is_console = is_code && text == "```console";
        } else if let Some(command) = text.strip_prefix("$ ").filter(|_| is_console) {
            steps.push(Step { line, command: command.to_owned(), output: Vec::new() });
        } else if is_console {
            steps.last_mut().unwrap().output.push(text.to_owned());
        }
    }
    steps
}

/// A line without what another run, machine or version may have otherwise: numbers, units of sizes,
/// sums and positions.
fn essence(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_named = |last: &String| matches!(last.as_str(), "stored" | "computed" | "pd_lsn");
        if words.last().is_some_and(is_named) {
            words.push("#".to_owned());
            continue;
        }
        let mut essence = String::new();
        for letter in word.chars() {
            let is_number =
                letter.is_ascii_digit() || (",./".contains(letter) && essence.ends_with('#'));
            if !is_number {
                essence.push(letter);
            } else if !essence.ends_with('#') {
                essence.push('#');
            }
        }
        words.push(essence.replace("KiB", "B").replace("MiB", "B").replace("GiB", "B"));
    }
    words.join(" ")
}

/// True if lines are what was expected, in which `...` stands for any.
fn fits(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, lines)| essence(first) == essence(line) && fits(rest, lines)),
    }
}

/// What was not as the page says, in its words.
fn faults(steps: &[Step], printed: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut parts = printed.split(MARK);
    for (at, step) in steps.iter().enumerate() {
        let before = parts.next().unwrap_or_default();
        let status = parts.next().unwrap_or("none");
        let lines: Vec<_> = before.lines().collect();
        let tells = steps.get(at + 1).is_some_and(|next| next.command == "echo $?");
        if !fits(&step.output, &lines) || (step.output.is_empty() && status != "0" && !tells) {
            faults.push(format!(
                "line {}: {}\n--- the page has\n{}\n--- printed, with status {status}\n{before}",
                step.line,
                step.command,
                step.output.join("\n"),
            ));
        }
    }
    faults
}

/// Runs a page in an empty folder; `programs` are folders in front of the search path.
fn follow(name: &str, engine: &str, folder: &Path, programs: &[PathBuf], shell: &mut Command) {
    let page = fs::read_to_string(book().join(name)).unwrap();
    assert!(page.contains(&format!("<!-- run: {engine} -->")), "{name}");
    let steps = steps(&page);
    assert!(steps.len() >= 10, "{name}: only {} commands", steps.len());
    // Whatever becomes of the commands: no server outlives them.
    let mut script = "exec 2>&1\n\
        trap 'test -f trial/postmaster.pid && kill -QUIT $(head -n 1 trial/postmaster.pid); \
        kill -KILL $(jobs -p) 2> /dev/null' EXIT\n"
        .to_owned();
    for step in &steps {
        script.push_str(&step.command);
        script.push_str("\nstatus=$?; printf '\\001%s\\001' $status; (exit $status)\n");
    }
    let file = folder.join("..script");
    fs::write(&file, script).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut paths: Vec<OsString> = programs.iter().map(|path| path.clone().into()).collect();
    paths.extend(std::env::split_paths(&path).map(Into::into));
    paths.push("/usr/sbin".into());
    shell.arg(&file).current_dir(folder).env("HOME", folder).env("LC_ALL", "C").env("TZ", "UTC");
    shell.env("PATH", std::env::join_paths(paths).unwrap()).stdin(Stdio::null());
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGDATA", "NO_COLOR"] {
        shell.env_remove(variable);
    }
    let faults = faults(&steps, &run(shell).stdout);
    assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
}

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// A folder that the ordinary user owns, with a short name: sockets lie in it.
fn folder(user: &OrdinaryUser) -> TempDir {
    let folder = tempfile::Builder::new().prefix("book-").tempdir_in("/tmp").unwrap();
    user.own(folder.path());
    folder
}

#[test]
fn the_tutorial_of_sqlite_does_what_it_says() {
    if !crate::sqlite::has_shell() {
        return;
    }
    let user = OrdinaryUser::new();
    let folder = folder(&user);
    let programs = [user.programs()];
    follow("first-hour-sqlite.md", "sqlite", folder.path(), &programs, &mut user.shell());
}

#[test]
fn the_tutorial_of_postgres_does_what_it_says() {
    for installation in clusters::installations() {
        installation.check_reachable().unwrap();
        let user = OrdinaryUser::new();
        let folder = folder(&user);
        let initdb = installation.program("initdb");
        let programs = [user.programs(), initdb.parent().unwrap().to_owned()];
        let mut shell = user.shell();
        // Servers of a package that was unpacked find their libraries by a variable.
        for (name, value) in installation.command("initdb").get_envs() {
            if let Some(value) = value.filter(|_| name == "LD_LIBRARY_PATH") {
                shell.env(name, value);
            }
        }
        eprintln!("PostgreSQL {}", installation.version);
        follow("first-hour-postgres.md", "postgres", folder.path(), &programs, &mut shell);
    }
}

#[test]
fn the_tutorial_of_mariadb_does_what_it_says() {
    if mariadb::Installation::for_test().unwrap().is_none() {
        return;
    }
    let user = OrdinaryUser::new();
    let folder = folder(&user);
    let programs = [user.programs()];
    follow("first-hour-mysql.md", "mariadb", folder.path(), &programs, &mut user.shell());
}

#[test]
fn the_tutorial_of_sql_server_does_what_it_says() {
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures"),
        PathBuf::from,
    );
    let backup = root.join("sqlserver/pubs-full-2012.bak");
    let Ok(bytes) = fs::read(&backup) else {
        eprintln!("SKIPPED: no {}", backup.display());
        return;
    };
    let user = OrdinaryUser::new();
    let folder = folder(&user);
    fs::write(folder.path().join("pubs.bak"), bytes).unwrap();
    let programs = [user.programs()];
    follow("first-hour-sqlserver.md", "sqlserver", folder.path(), &programs, &mut user.shell());
}

/// The names of all fields in a JSON value.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                names.insert(name.clone());
                fields(inner, names);
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| fields(inner, names)),
        _ => {}
    }
}

#[test]
fn every_field_and_every_figure_of_a_check_is_in_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let (broken, figures) = (folder.path().join("broken.db"), folder.path().join("a.prom"));
    let sound = book().join("../fixtures/sqlite/3.40.1/cksumvfs-4096.db");
    let mut bytes = fs::read(&sound).unwrap();
    *bytes.get_mut(5000).unwrap() ^= 1;
    fs::write(&broken, bytes).unwrap();
    let mut command = pagewarden();
    command.args(["check", "--json", "--metrics"]).args([&figures, &broken, &sound]);
    command.arg(folder.path().join("nothing here"));
    let outcome = run(&mut command);
    let reference = fs::read_to_string(book().join("json.md")).unwrap();
    let mut names = BTreeSet::new();
    fields(&serde_json::from_str(&outcome.stdout).unwrap(), &mut names);
    assert!(names.contains("stored") && names.contains("failed"), "{names:?}");
    for name in names {
        assert!(reference.contains(&format!("\"{name}\"")), "json.md lacks {name}");
    }
    let reference = fs::read_to_string(book().join("metrics.md")).unwrap();
    let figures = fs::read_to_string(figures).unwrap();
    let figures: Vec<_> = figures.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(figures.len() >= 8, "{figures:?}");
    for line in figures {
        let name = line.split(' ').next().unwrap();
        let is_listed = [format!("`{name}`"), format!("`{name}{{")];
        assert!(is_listed.iter().any(|text| reference.contains(text)), "metrics.md lacks {name}");
    }
}

#[test]
fn every_field_of_the_other_commands_is_in_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let sound = book().join("../fixtures/sqlite/3.40.1/cksumvfs-4096.db");
    let (pack, copy) = (folder.path().join("a.pwk"), folder.path().join("copy"));
    let url = format!("sqlite:{}", sound.display());
    let (sound, pack, copy) =
        (sound.to_str().unwrap(), pack.to_str().unwrap(), copy.to_str().unwrap());
    for (pages, arguments) in [
        (&["survey.md"] as &[&str], &["survey", sound] as &[&str]),
        (&["packs-json.md", "json.md"], &["pack", sound, "-o", pack]),
        (&["packs-json.md"], &["pack", "--estimate", sound]),
        (&["packs-json.md"], &["pack", "--to", "null:", sound]),
        (&["packs-json.md"], &["unpack", pack, copy]),
        (&["protect.md"], &["protect", "--mode", "checksum", "--dry-run", sound]),
        (&["compare-output.md"], &["compare", &url, &url]),
        (&["compare-output.md"], &["checksum", &url]),
    ] {
        let outcome = run(pagewarden().args(arguments).arg("--json"));
        assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
        let mut names = BTreeSet::new();
        fields(&serde_json::from_str(&outcome.stdout).unwrap(), &mut names);
        assert!(names.len() >= 5, "{names:?}");
        let text = |page: &&str| fs::read_to_string(book().join(page)).unwrap();
        let reference: String = pages.iter().map(text).collect();
        // What every command has.
        for name in ["pagewarden", "command", "verdict", "seconds"] {
            assert!(names.remove(name), "{arguments:?}: no {name}");
        }
        for name in names {
            let is_listed = [format!("\"{name}\""), format!("`{name}`")];
            let is_listed = is_listed.iter().any(|text| reference.contains(text));
            assert!(is_listed, "{arguments:?}: {pages:?} lack {name}");
        }
    }
}

#[test]
fn every_kind_and_severity_of_finding_is_in_the_reference() {
    let source =
        fs::read_to_string(book().join("../crates/pagewarden-core/src/verdict.rs")).unwrap();
    let reference = fs::read_to_string(book().join("findings.md")).unwrap();
    let mut count = 0;
    for name in ["Kind", "Severity"] {
        let (_, rest) = source.split_once(&format!("impl {name} {{")).unwrap();
        let (words, _) = rest.split_once("\n}").unwrap();
        for word in words.lines().filter_map(|line| line.split_once("=> \"")) {
            let word = word.1.trim_end_matches("\",");
            assert!(reference.contains(&format!("| `{word}` |")), "findings.md lacks {word}");
            count += 1;
        }
    }
    assert_eq!(count, 14);
}

#[test]
fn every_page_that_is_to_be_run_is_run_by_one_of_these_tests() {
    let mut pages = Vec::new();
    for entry in fs::read_dir(book()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "md")
            && fs::read_to_string(&path).unwrap().contains("\n<!-- run: ")
        {
            pages.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    pages.sort();
    let ours = include_str!("book.rs");
    assert_eq!(pages.len(), 4);
    for page in pages {
        assert!(ours.contains(&format!("follow(\"{page}\"")), "{page}");
    }
}

#[test]
fn output_that_is_not_as_the_page_says_is_a_fault() {
    let page = "# A\n```console\n$ one\nin 0.13 s (388 MiB/s): 0 damaged\n...\nend\n$ two\n$ echo $?\n1\n```\n";
    let steps = steps(page);
    assert_eq!(steps.len(), 3);
    let good = "in 12 s (1,388 KiB/s): 12 damaged\nx\nend\n\u{1}0\u{1}\u{1}1\u{1}7\n\u{1}0\u{1}";
    assert_eq!(faults(&steps, good), Vec::<String>::new());
    for bad in [
        good.replace("damaged", "broken"),
        good.replace("end", "ende"),
        good.replace("x\nend", "x"),
        good.replace("\u{1}0\u{1}\u{1}1", "\u{1}0\u{1}more\n\u{1}1"),
        good.split_once("7").unwrap().0.to_owned(),
        String::new(),
    ] {
        assert!(!faults(&steps, &bad).is_empty(), "{bad:?}");
    }
    assert_eq!(
        essence("stored 82c7, computed 19e3; pd_lsn 0/18AC6C0"),
        "stored # computed # pd_lsn #"
    );
    assert!(!faults(&steps[1..2], "\u{1}1\u{1}").is_empty(), "a failure that no line tells");
}
