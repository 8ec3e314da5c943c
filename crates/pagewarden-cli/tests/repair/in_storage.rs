//! Copies and log in object storage: they prove what they prove on a disk, and what a store does not
//! give is never taken for proof.

use std::path::Path;

use serde_json::Value;

use super::history::base_backup;
use super::stored::{archive_to_folder, archiving, go_on_and_stop};
use super::{contents_of, wound};
use crate::clusters::installations;
use crate::damage::Dice;
use crate::object_storage::command;
use crate::object_storage::server::{Fault, Server};
use crate::runner::{Outcome, pagewarden, run};

const WOUNDS: usize = 60;

/// What would be done for each page, with the sources under one name.
fn pages(outcome: &Outcome, names: &[(&str, &str)]) -> Vec<String> {
    assert!(matches!(outcome.status, Some(0 | 1)), "{} {}", outcome.stdout, outcome.stderr);
    let object: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let pages = object["pages"].as_array().unwrap();
    let named = |page: &Value| {
        let text = page.to_string();
        names.iter().fold(text, |text, (from, to)| text.replace(from, to))
    };
    pages.iter().map(named).collect()
}

#[test]
fn copies_and_log_in_a_bucket_prove_what_they_prove_on_a_disk() {
    let Some(installation) = installations().into_iter().next() else { return };
    let Some(mut cluster) = archiving(&installation) else { return };
    let log = archive_to_folder(&mut cluster);
    cluster.pgbench(&["-i", "-s", "1", "-q"]).unwrap();
    let archives = base_backup(&cluster, "archives", &["-Ft", "-z", "-X", "none"]);
    go_on_and_stop(&mut cluster);
    let root = cluster.data_dir();
    let base = archives.join("base.tar.gz");
    let bucket = || {
        let server = Server::start();
        server.put("it/base.tar.gz", std::fs::read(&base).unwrap());
        server.put_folder("it/log", &log);
        server
    };
    let sound = contents_of(root);
    let is_wanted = |file: &str| file.starts_with("base/5/");
    wound(root, &sound, &mut Dice::seeded(), is_wanted, WOUNDS);
    let wounded = contents_of(root);

    let of_the_disk = |path: &Path| path.to_str().unwrap().to_owned();
    let mut here = pagewarden();
    here.args(["repair", "--json"]).arg(root).arg("--from").arg(&base).arg("--log").arg(&log);
    let here =
        pages(&run(&mut here), &[(&of_the_disk(&base), "BASE"), (&of_the_disk(&log), "LOG")]);
    let there = |server: &Server, arguments: &[&str]| {
        let mut there = command(server, "repair", &[root.to_str().unwrap(), "--json"]);
        there.args(["--from", "s3://bucket/it/base.tar.gz", "--log", "s3://bucket/it/log"]);
        run(there.args(arguments))
    };
    let server = bucket();
    let plan = there(&server, &[]);
    let names = [("s3://bucket/it/base.tar.gz", "BASE"), ("s3://bucket/it/log", "LOG")];
    assert_eq!(pages(&plan, &names), here);
    assert!(here.iter().filter(|page| page.contains(r#""proof":"exact""#)).count() > WOUNDS / 2);
    let object: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(object["storage"]["requests"].as_u64().unwrap(), server.seen().len() as u64);

    // What the store does not give: refused, or fewer pages are proved; never others.
    for (part, fault) in [
        ("base.tar.gz", Fault::Status(500)),
        ("base.tar.gz", Fault::CutBody),
        ("prefix=it%2Flog", Fault::Status(503)),
    ] {
        let failing = bucket();
        failing.fail(part, usize::MAX, fault);
        let refused = there(&failing, &["--yes"]);
        assert_eq!(refused.status, Some(2), "{part}: {} {}", refused.stdout, refused.stderr);
        assert!(contents_of(root) == wounded, "{part}: something was written");
    }
    let written = there(&server, &["--yes"]);
    assert!(matches!(written.status, Some(0 | 1)), "{} {}", written.stdout, written.stderr);
    assert_eq!(here.len(), pages(&written, &names).len());
    assert!(contents_of(root) != wounded);
}
