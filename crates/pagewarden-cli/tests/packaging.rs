//! What the package brings, tried with the programs that read it: systemd, Prometheus.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::runner::{Started, run};
use crate::serve::{Serving, place};

/// Prometheus takes the figures within this.
const SCRAPE_LIMIT: Duration = Duration::from_secs(60);

fn packaging() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// False, said aloud, where a program is not here.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: no {program} here");
    }
    found
}

#[test]
fn units_are_verified_by_systemd() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(packaging().join("systemd")).unwrap() {
        let path = entry.unwrap().path();
        // The program need not be installed to see whether the rest is right.
        let unit = fs::read_to_string(&path).unwrap();
        let unit = unit.replace("/usr/bin/pagewarden", env!("CARGO_BIN_EXE_pagewarden"));
        fs::write(folder.path().join(path.file_name().unwrap()), unit).unwrap();
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).current_dir(folder.path());
    let units = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let outcome = run(verify.args(units));
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let ours = outcome.stderr.lines().find(|line| line.contains("pagewarden"));
    assert_eq!(ours, None, "{}", outcome.stderr);
    // It sees what is wrong.
    let wrong = folder.path().join("pagewarden-serve.service");
    let unit = fs::read_to_string(&wrong).unwrap().replace("ProtectClock", "ProtectClok");
    fs::write(&wrong, unit).unwrap();
    let outcome = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&wrong));
    assert!(outcome.stderr.contains("ProtectClok"), "{outcome:?}");
}

#[test]
fn rules_are_tested_by_promtool() {
    if !has("promtool") {
        return;
    }
    for words in
        [["check", "rules", "pagewarden.rules.yml"], ["test", "rules", "pagewarden.rules.test.yml"]]
    {
        let mut promtool = Command::new("promtool");
        let outcome = run(promtool.args(words).current_dir(packaging().join("prometheus")));
        assert_eq!(outcome.status, Some(0), "{outcome:?}");
    }
}

#[test]
fn prometheus_takes_the_figures_of_a_server() {
    if !has("prometheus") {
        return;
    }
    let Some(folder) = place() else { return };
    let mut serving = Serving::start(folder.path());
    serving.says("shop: ");
    let config = folder.path().join("prometheus.yml");
    let text = format!(
        "scrape_configs:\n- job_name: pagewarden\n  scrape_interval: 1s\n  static_configs:\n  \
         - targets: ['{}']\n",
        serving.address
    );
    fs::write(&config, text).unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("samples").display()))
        .arg(format!("--web.listen-address={address}"));
    let started = Started::spawn(&mut prometheus);
    let ask = |query: &str| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET /api/v1/query?query={query} HTTP/1.0\r\nHost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let begin = Instant::now();
    let wait = |query: &str, value: &str| loop {
        let answer = ask(query).unwrap_or_default();
        if answer.contains(&format!(",\"{value}\"]")) {
            break answer;
        }
        assert!(begin.elapsed() < SCRAPE_LIMIT, "{query}: {answer}");
        thread::sleep(Duration::from_millis(100));
    };
    wait("up", "1");
    let coverage = wait("pagewarden_pass_coverage_ratio", "1");
    assert!(coverage.contains("\"target\":\"shop\""), "{coverage}");
    wait("pagewarden_pass_overdue", "0");
    started.signal(rustix::process::Signal::KILL);
    started.wait();
}
