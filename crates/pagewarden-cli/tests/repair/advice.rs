//! Where a source is known, findings name the command that plans the repair, and a shell takes it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::clusters::{any_installation, sample};
use crate::runner::{Outcome, check, check_text, pagewarden, run};

/// Runs a command as it was pasted.
fn paste(command: &str) -> Outcome {
    let program = pagewarden().get_program().to_owned();
    let folder = Path::new(&program).parent().unwrap().to_owned();
    let mut paths = folder.into_os_string();
    paths.push(":/usr/bin:/bin");
    run(Command::new("sh").args(["-c", command]).env("PATH", paths))
}

/// The command behind the hints of a result, and how many findings have it.
fn advised(outcome: &Outcome) -> (String, usize) {
    let json: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    assert!(json["targets"][0]["findings"].is_array(), "{outcome:?}");
    let findings = json["targets"][0]["findings"].as_array().unwrap();
    let hints = findings.iter().filter_map(|finding| finding["hint"].as_str());
    let commands: Vec<_> = hints.filter_map(|hint| hint.split_once("plan a repair: ")).collect();
    (commands.first().map_or(String::new(), |(_, command)| (*command).to_owned()), commands.len())
}

#[test]
fn each_damaged_page_names_the_command_that_plans_its_repair() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let mut cluster = sample.copy();
    let root = cluster.data_dir().to_owned();
    let source = cluster.home().join("it's a copy");
    std::os::unix::fs::symlink(sample.cluster.data_dir(), &source).unwrap();
    let options = [root.as_os_str(), "--repair-from".as_ref(), source.as_os_str()];
    assert_eq!(advised(&check(options)).1, 0, "advice on a sound cluster");
    for block in [3, 7] {
        super::manners::ruin(&root, sample.file("item"), block);
    }
    assert_eq!(advised(&check([&root])).1, 0, "advice without a source");

    let (command, count) = advised(&check(options));
    assert_eq!(count, 2);
    let plan = paste(&format!("{command} --json"));
    assert_eq!(plan.status, Some(0), "{command}: {plan:?}");
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!((&plan["verdict"], &plan["written"]), (&"planned".into(), &false.into()));
    assert_eq!(plan["pages"].as_array().unwrap().len(), 2, "{plan}");

    let text = check_text(options);
    assert!(text.stdout.contains(&command), "{}", text.stdout);
    let page = cluster.home().join("page.html");
    check(options.into_iter().chain(["--html".as_ref(), page.as_os_str()]));
    let report = fs::read_to_string(&page).unwrap();
    let plan_page = page.with_extension("plan.html");
    let with_page = format!("{command} --html {}", plan_page.display());
    let shown = with_page.replace('\'', "&#39;");
    assert!(report.contains("<h3>Repair</h3>") && report.contains(&shown), "{shown}: {report}");
    assert!(report.contains("<a href=\"./page.plan.html\">"), "{report}");
    assert_eq!(paste(&with_page).status, Some(0));
    let planned = fs::read_to_string(&plan_page).unwrap();
    for page in plan["pages"].as_array().unwrap() {
        let place = format!("{} page {}", page["file"].as_str().unwrap(), page["page"]);
        let sums = [&page["before"], &page["after"]].map(|sum| &sum.as_str().unwrap()[..16]);
        assert!(planned.contains(&place), "{place}: {planned}");
        assert!(sums.iter().all(|sum| planned.contains(sum)), "{planned}");
        let source = page["source"].as_str().unwrap().replace('\'', "&#39;");
        assert!(planned.contains(&source), "{source}: {planned}");
    }
    assert!(planned.contains(" --yes</pre>"), "{planned}");

    // The configuration says it of the database, also for a file in it, and for scrub.
    let config = cluster.home().join("it.toml");
    let lines =
        format!("[[database]]\nname = \"main\"\npath = {root:?}\nrepair_from = [{source:?}]\n");
    fs::write(&config, lines).unwrap();
    let relation = root.join(sample.file("item"));
    for path in [&root, &relation] {
        let outcome = check([path.as_os_str(), "--config".as_ref(), config.as_os_str()]);
        assert_eq!(advised(&outcome), (command.clone(), 2), "{outcome:?}");
    }
    let mut scrub = pagewarden();
    scrub.args(["scrub", "--json", "-q", "--config"]).arg(&config);
    let state = tempfile::tempdir().unwrap();
    let scrubbed = run(scrub.arg("--state").arg(state.path()));
    assert_eq!(advised(&scrubbed), (command.clone(), 2), "{scrubbed:?}");
    cluster.start().unwrap();
    let running = check(options);
    assert!(running.stdout.contains("stop the server, then plan a repair: "), "{running:?}");
}

/// What repair does not bring back has other advice, and no report sends anyone to a plan without entries.
#[test]
fn damage_that_repair_cannot_treat_is_not_sent_there() {
    let Some(installation) = any_installation() else { return };
    let sample = sample(&installation, true);
    let cluster = sample.copy();
    let root = cluster.data_dir().to_owned();
    let version = root.join("PG_VERSION");
    fs::remove_file(&version).unwrap();
    fs::write(root.join("global/pg_control"), [0_u8; 8192]).unwrap();
    fs::write(&version, format!("{}\n", installation.version)).unwrap();
    fs::write(root.join("pg_xact/0000"), [7_u8; 8192]).unwrap();
    let page = cluster.home().join("page.html");
    let from = sample.cluster.data_dir();
    let outcome = check([
        root.as_os_str(),
        "--repair-from".as_ref(),
        from.as_os_str(),
        "--html".as_ref(),
        page.as_os_str(),
    ]);
    let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let findings = json["targets"][0]["findings"].as_array().unwrap();
    let damage: Vec<_> = findings.iter().filter(|one| one["severity"] == "damage").collect();
    assert!(!damage.is_empty(), "{outcome:?}");
    let treated = advised(&outcome).1;
    for one in &damage {
        let file = one["file"].as_str().unwrap();
        let hint = one["hint"].as_str().unwrap();
        let is_relation = file.starts_with("base/") || file == "global/1262";
        assert_eq!(hint.contains("plan a repair"), is_relation, "{one}");
        assert!(is_relation || hint.contains("does not bring this back"), "{one}");
    }
    let report = fs::read_to_string(page).unwrap();
    assert_eq!(report.contains("<h3>Repair</h3>"), treated > 0, "{report}");
}
