//! `pagewarden serve` over its socket, and `pagewarden evidence` with `ssh-keygen`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::runner::{pagewarden, run};
use crate::sqlite::{has_shell, shell};

/// A folder with a configuration of one database, of two pages.
pub fn place() -> Option<TempDir> {
    if !has_shell() {
        return None;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("shop.sqlite");
    shell(folder.path(), &format!("ATTACH '{}' AS d; CREATE TABLE d.t (a);", path.display()));
    let config = "[[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\nseal = true\n";
    fs::write(folder.path().join("pagewarden.toml"), config).unwrap();
    Some(folder)
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = pagewarden();
    command.args(words).arg("--state").arg(folder.join("state"));
    command
}

pub fn with_config(folder: &Path, words: &[&str]) -> Command {
    let mut command = command(folder, words);
    command.arg("--config").arg(folder.join("pagewarden.toml"));
    command
}

/// A server on a port of its own, ended with the test.
pub struct Serving {
    pub child: Child,
    lines: BufReader<std::process::ChildStderr>,
    pub address: String,
}

impl Serving {
    pub fn start(folder: &Path) -> Self {
        Self::of(with_config(folder, &["serve", "--listen", "127.0.0.1:0"]))
    }

    pub fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("pagewarden: listening on ");
        let address = address.and_then(|address| address.split("://").nth(1));
        let address = address.unwrap_or_else(|| panic!("{line}")).trim_end_matches('/').to_owned();
        Self { child, lines, address }
    }

    /// Waits until it says this.
    pub fn says(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it never said {words}");
        }
    }

    /// The status and what follows of an answer.
    pub fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // It may be answered before all of it is taken.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or(0), answer)
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        let host = &self.address;
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }

    pub fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_of_a_damaged_database_has_the_command_that_plans_its_repair() {
    let Some(folder) = place() else { return };
    let (path, copy) = (folder.path().join("shop.sqlite"), folder.path().join("copy.sqlite"));
    fs::copy(&path, &copy).unwrap();
    let half = fs::metadata(&path).unwrap().len() as usize / 2;
    let mut bytes = fs::read(&path).unwrap();
    bytes[half..half + 8].fill(0xEE);
    fs::write(&path, bytes).unwrap();
    let config = "[[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\n";
    let file = folder.path().join("pagewarden.toml");
    for (sources, shown) in [("", 0), ("repair_from = [\"copy.sqlite\"]\n", 1)] {
        fs::write(&file, format!("{config}{sources}")).unwrap();
        let _ = fs::remove_dir_all(folder.path().join("state"));
        let mut serving = Serving::start(folder.path());
        serving.says("shop: ");
        let (status, page) = serving.get("/targets/shop");
        assert_eq!(status, 200, "{page}");
        let command = format!("pagewarden repair {} --from {}", path.display(), copy.display());
        assert_eq!(page.matches(&command).count(), shown, "{page}");
        assert!(!page.contains("Open findings (0)"), "{page}");
    }
}

#[test]
fn a_server_scrubs_and_shows_how_things_stand() {
    let Some(folder) = place() else { return };
    let mut serving = Serving::start(folder.path());
    serving.says("shop: ");
    let (status, page) = serving.get("/");
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("<a href=\"/targets/shop\">shop</a>") && !page.contains("<script"));
    assert!(
        page.contains("Content-Security-Policy: default-src 'none'; style-src 'self'"),
        "{page}"
    );
    assert_eq!(serving.get("/targets/shop").0, 200);
    assert_eq!(serving.get("/style.css").0, 200);
    assert_eq!(serving.get("/healthz").0, 200);
    let (_, metrics) = serving.get("/metrics");
    assert!(
        metrics.contains("pagewarden_pass_coverage_ratio{target=\"shop\",engine=\"SQLite 3\"} 1"),
        "{metrics}"
    );
    let (_, api) = serving.get("/api/v1/status");
    let json: Value = serde_json::from_str(api.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(json["targets"][0]["coverage"]["pass_complete"], true, "{json}");
    let (status, api) = serving.get("/api/v1/targets/shop/findings");
    let json: Value = serde_json::from_str(api.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((status, &json["findings"]), (200, &Value::Array(vec![])));
    for path in
        ["/nothing", "/targets/none", "/targets/..%2f..%2fetc", "/api/v1/targets//findings", "/%00"]
    {
        assert_eq!(serving.get(path).0, 404, "{path}");
    }
    assert_eq!(serving.get(&format!("/{}", "a".repeat(5000))).0, 414);
    let evil = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(serving.ask(evil).0, 403);
    let host = serving.address.clone();
    let post = format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(serving.ask(&post).0, 405);
    // The state is its own.
    let scrub = run(&mut with_config(folder.path(), &["scrub"]));
    assert_eq!(scrub.status, Some(2));
    assert!(scrub.stderr.contains("is held by serve (process "), "{}", scrub.stderr);
    assert_eq!(serving.end(), Some(0));
    assert!(folder.path().join("state/seals/shop.seal").exists());
}

#[test]
fn addresses_that_others_reach_are_refused_without_a_proxy() {
    let Some(folder) = place() else { return };
    let outcome = run(&mut with_config(folder.path(), &["serve", "--listen", "0.0.0.0:0"]));
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("--behind-proxy"), "{}", outcome.stderr);
    assert!(!folder.path().join("state/seals").exists(), "nothing was read");
}

#[test]
fn evidence_is_proved_by_ssh_keygen_alone_and_every_change_is_named() {
    let Some(folder) = place() else { return };
    let key = folder.path().join("key");
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no ssh-keygen here");
        return;
    }
    for _ in 0..3 {
        let scrub = run(&mut with_config(folder.path(), &["scrub", "--every", "0s"]));
        assert_eq!(scrub.status, Some(0), "{scrub:?}");
    }
    let file = folder.path().join("evidence.jsonl");
    let mut export =
        command(folder.path(), &["evidence", "export", "--json", "--since", "2020-01-01"]);
    let export = run(export.arg("-o").arg(&file).arg("--sign").arg(&key));
    assert_eq!(export.status, Some(0), "{export:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    let receipt: Value = serde_json::from_str(text.lines().nth(2).unwrap()).unwrap();
    assert_eq!((&receipt["receipt"], &receipt["name"]), (&2.into(), &"shop".into()));
    assert!(receipt["seal"].as_str().unwrap().starts_with("sha256:"), "{receipt}");
    let public = fs::read_to_string(folder.path().join("key.pub")).unwrap();
    let signers = folder.path().join("signers");
    fs::write(&signers, format!("ops {public}")).unwrap();
    let proves = |file: &Path| {
        let mut ssh = Command::new("ssh-keygen");
        ssh.args(["-Y", "verify", "-I", "ops", "-n", "pagewarden", "-f"]).arg(&signers);
        ssh.arg("-s").arg(folder.path().join("evidence.jsonl.sig"));
        ssh.stdin(fs::File::open(file).unwrap()).output().unwrap().status.success()
    };
    assert!(proves(&file));
    let verify = |words: &[&str]| {
        run(pagewarden().args(["evidence", "verify", "--json"]).arg(&file).args(words))
    };
    let public = folder.path().join("key.pub");
    let public = public.to_str().unwrap();
    let proved = verify(&["--key", public]);
    assert_eq!(proved.status, Some(0), "{proved:?}");
    assert!(proved.stdout.contains("\"signed_by\":\"SHA256:"), "{}", proved.stdout);
    // One verdict, made better.
    fs::write(&file, text.replacen("\"damage\":0", "\"damage\":1", 1)).unwrap();
    assert!(!proves(&file));
    let altered = verify(&[]);
    assert_eq!(altered.status, Some(1));
    assert!(altered.stdout.contains("receipt 1 was altered"), "{}", altered.stdout);
    assert!(altered.stdout.contains("the signature is not of this text"), "{}", altered.stdout);
    let lines: Vec<_> = text.lines().collect();
    fs::write(&file, [lines[0], lines[1], lines[3], ""].join("\n")).unwrap();
    assert!(verify(&[]).stdout.contains("receipt 2 was removed"));
    // By another key.
    let other = folder.path().join("other");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&other)
        .status();
    assert!(made.unwrap().success());
    fs::write(&file, &text).unwrap();
    let wrong = verify(&["--key", folder.path().join("other.pub").to_str().unwrap()]);
    assert_eq!(wrong.status, Some(1));
    assert!(wrong.stdout.contains("signed by another key"), "{}", wrong.stdout);
}
