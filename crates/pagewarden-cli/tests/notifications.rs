//! Notifications of `scrub` and `serve`, with a real receiver and a real program.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::runner::{Started, pagewarden, run};
use crate::sqlite::{has_shell, shell};

/// A request that a receiver got.
struct Got {
    head: String,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (left, right) = line.split_once(':')?;
            left.eq_ignore_ascii_case(name).then_some(right.trim())
        })
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A receiver that answers with these statuses in turn, and then with 200. Returns its address.
fn receiver(statuses: &'static [u16]) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, got) = channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.iter();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|n| n > 0) {}
            let got = Got { head, body: String::new() };
            let length = got.header("Content-Length").and_then(|length| length.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let status = statuses.next().copied().unwrap_or(200);
            let _ = reader.get_mut().write_all(
                format!(
                    "HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\
                     Connection: close\r\n\r\n"
                )
                .as_bytes(),
            );
            let body = String::from_utf8(body).unwrap();
            if sender.send(Got { body, ..got }).is_err() {
                return;
            }
        }
    });
    (address, got)
}

/// A folder with a database whose pages carry sums, and a configuration of it with these lines more.
fn place(more: &str) -> Option<TempDir> {
    if !has_shell() {
        return None;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("shop.sqlite");
    shell(
        folder.path(),
        &format!(
            "ATTACH '{}' AS d; CREATE TABLE d.t (a); INSERT INTO d.t VALUES (randomblob(200000));",
            path.display()
        ),
    );
    let protect = run(pagewarden().args(["protect", "--mode", "checksum"]).arg(&path));
    assert_eq!(protect.status, Some(0), "{protect:?}");
    write_config(folder.path(), more);
    Some(folder)
}

fn write_config(folder: &Path, more: &str) {
    let config = format!("[[database]]\nname = \"shop\"\npath = \"shop.sqlite\"\n{more}");
    fs::write(folder.join("pagewarden.toml"), config).unwrap();
}

fn flip(folder: &Path) {
    let file = fs::File::options().read(true).write(true).open(folder.join("shop.sqlite")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 20 * 4096 + 9).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 20 * 4096 + 9).unwrap();
}

fn command(folder: &Path, word: &str) -> Command {
    let mut command = pagewarden();
    command.arg(word).arg("--state").arg(folder.join("state"));
    command.arg("--config").arg(folder.join("pagewarden.toml"));
    command
}

fn scrub(folder: &Path) -> (Option<i32>, String) {
    // What was written within a tick of the clock is not known to be old yet.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let outcome = run(&mut command(folder, "scrub"));
    (outcome.status, outcome.stderr)
}

fn what(message: &Value) -> String {
    message["events"][0]["what"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn webhook_gets_a_signed_message_for_each_change_and_for_nothing_else() {
    // The second message is refused once, and led elsewhere once.
    let (address, got) = receiver(&[200, 503, 302]);
    let way =
        format!("[[notify]]\nname = \"ops\"\nwebhook = \"{address}\"\nsecret_file = \"key\"\n");
    let Some(folder) = place("") else { return };
    let key = folder.path().join("key");
    fs::write(&key, "0123456789abcdef0123\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    write_config(folder.path(), &way);
    assert_eq!(scrub(folder.path()).0, Some(0));
    assert!(got.try_recv().is_err(), "nothing has changed");
    flip(folder.path());
    assert_eq!(scrub(folder.path()).0, Some(1));
    let message = got.recv().unwrap();
    let json = message.json();
    assert_eq!((what(&json).as_str(), &json["events"][0]["name"]), ("finding", &"shop".into()));
    assert_eq!(json["events"][0]["samples"][0]["page"], 21);
    // The signature is what another program makes of the body.
    let body = folder.path().join("body");
    fs::write(&body, &message.body).unwrap();
    let openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-hmac", "0123456789abcdef0123", "-r"])
        .arg(&body)
        .output();
    match openssl {
        Ok(output) => {
            let digest = String::from_utf8(output.stdout).unwrap();
            let expected = format!("sha256={}", digest.split(' ').next().unwrap());
            assert_eq!(message.header("Pagewarden-Signature"), Some(expected.as_str()));
        }
        Err(_) => eprintln!("SKIPPED: no openssl here to check the signature with"),
    }
    assert_eq!(scrub(folder.path()).0, Some(1));
    assert!(got.try_recv().is_err(), "it is open still, and was reported");
    flip(folder.path());
    let (status, stderr) = scrub(folder.path());
    assert_eq!(status, Some(0));
    assert!(stderr.contains("notify ops: the receiver answered 503"), "{stderr}");
    let gone = got.recv().unwrap();
    assert_eq!(what(&gone.json()), "gone");
    // Not at once: it is asked again after a while, and no redirect is followed.
    assert_eq!(scrub(folder.path()).0, Some(0));
    assert!(got.try_recv().is_err());
    for expected in ["302", "sent at attempt 3"] {
        shell(
            folder.path(),
            &format!(
                "ATTACH '{}' AS l; UPDATE l.message SET next_at = 0;",
                folder.path().join("state/ledger.sqlite").display()
            ),
        );
        let (_, stderr) = scrub(folder.path());
        let again = got.recv().unwrap();
        assert_eq!(again.header("Pagewarden-Id"), gone.header("Pagewarden-Id"));
        assert!(again.head.starts_with("POST /hook "), "{}", again.head);
        assert_eq!(again.body, gone.body);
        // Only the first failure is said.
        assert_eq!(stderr.contains(expected), expected != "302", "{stderr}");
    }
    // A file that is gone cannot be read.
    fs::rename(folder.path().join("shop.sqlite"), folder.path().join("away")).unwrap();
    assert_eq!(scrub(folder.path()).0, Some(2));
    let json = got.recv().unwrap().json();
    assert_eq!(what(&json), "unreadable");
    assert!(json["text"].as_str().unwrap().contains("cannot open"), "{json}");
    fs::rename(folder.path().join("away"), folder.path().join("shop.sqlite")).unwrap();
    assert_eq!(scrub(folder.path()).0, Some(0));
    assert_eq!(what(&got.recv().unwrap().json()), "readable");
}

#[test]
fn server_that_is_killed_at_any_moment_sends_each_alarm_once() {
    let log = "cat >> messages; echo >> messages";
    let way = format!(
        "[[notify]]\nname = \"log\"\ncommand = [\"/bin/sh\", \"-c\", \"{log}\"]\nwait = \"1s\"\n"
    );
    let Some(folder) = place(&way) else { return };
    assert_eq!(scrub(folder.path()).0, Some(0));
    flip(folder.path());
    let messages = || fs::read_to_string(folder.path().join("messages")).unwrap_or_default();
    for round in 0..4 {
        let mut serve = command(folder.path(), "serve");
        serve.args(["--listen", "127.0.0.1:0"]).current_dir(folder.path());
        let mut started = Started::spawn(&mut serve);
        match round {
            // In the middle of things.
            0 => std::thread::sleep(std::time::Duration::from_millis(300)),
            1 => while started.is_running() && messages().is_empty() {},
            // It has had the time to send it again, and has not.
            _ => std::thread::sleep(std::time::Duration::from_millis(1500)),
        }
        assert!(started.is_running());
        // After the message was handed over, and after that was written down.
        if round == 1 {
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        started.signal(Signal::KILL);
        started.wait();
    }
    let text = messages();
    let sent: Vec<Value> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(sent.len(), 1, "{text}");
    assert_eq!(what(&sent[0]), "finding");
}
