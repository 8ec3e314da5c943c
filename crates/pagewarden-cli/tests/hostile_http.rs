//! `pagewarden serve` against clients that mean harm: nothing but 4xx, memory bounded, and others are
//! answered meanwhile. And what other addresses than the loopback interface's need.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::runner::run;
use crate::serve::{Serving, place, with_config};

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn hostile_clients_get_4xx_and_keep_no_one_out() {
    let Some(folder) = place() else { return };
    let mut serving = Serving::start(folder.path());
    serving.says("shop: ");
    let before = resident_kib(serving.child.id());
    let host = serving.address.clone();
    let head = format!("Host: {host}\r\nConnection: close\r\n\r\n");
    for request in [
        "GET\r\n\r\n".to_owned(),
        "\u{0}\u{1}\u{2}\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\r\n\r\n".to_owned(),
        format!("GET / HTTP/9.9\r\n{head}"),
        format!("DELETE / HTTP/1.1\r\n{head}"),
        format!("GET http://{host}/ HTTP/1.1\r\n{head}"),
        format!("GET //{host}/ HTTP/1.1\r\n{head}"),
        format!("GET /../../etc/passwd HTTP/1.1\r\n{head}"),
        format!("GET /targets/../../../etc/passwd HTTP/1.1\r\n{head}"),
        format!("GET /targets/%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.1\r\n{head}"),
        format!("GET /targets/shop%00 HTTP/1.1\r\n{head}"),
        format!("GET /targets/shop/ HTTP/1.1\r\n{head}"),
        format!("GET /style.css/../targets HTTP/1.1\r\n{head}"),
        format!("GET /{} HTTP/1.1\r\n{head}", "a".repeat(4000)),
        format!("GET / HTTP/1.1\r\nX: {}\r\n{head}", "a".repeat(100_000)),
        format!("GET / HTTP/1.1\r\n{}{head}", "X: y\r\n".repeat(1000)),
        format!("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{head}"),
        format!("GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n{head}"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nOrigin: http://evil.example\r\n{head}"),
        format!("GET / HTTP/1.1\r\nHost: {host}@evil.example\r\n\r\n"),
    ] {
        let (status, answer) = serving.ask(&request);
        let shown = request.chars().take(100).collect::<String>().escape_debug().to_string();
        assert!((400..500).contains(&status), "{shown}: {answer}");
    }
    // Connections that send nothing, or a little, and stay: more than it keeps.
    let mut idle = Vec::new();
    for number in 0..1000 {
        let Ok(mut stream) = TcpStream::connect(&serving.address) else { continue };
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET / HT");
        }
        idle.push(stream);
        if number % 100 == 99 {
            assert_eq!(serving.get("/healthz").0, 200, "after {number} idle connections");
        }
    }
    // Clients that ask and do not take the answer.
    for _ in 0..200 {
        if let Ok(mut stream) = TcpStream::connect(&serving.address) {
            let _ = stream.write_all(format!("GET / HTTP/1.1\r\n{head}").as_bytes());
        }
    }
    assert_eq!(serving.get("/").0, 200);
    // Some of the idle ones were put out, and read that as an end.
    let first = idle.first_mut().unwrap();
    first.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let end = first.read_to_end(&mut Vec::new());
    let kind = end.map_err(|error| error.kind());
    assert!(matches!(kind, Ok(_) | Err(ErrorKind::ConnectionReset)), "{kind:?}");
    let after = resident_kib(serving.child.id());
    assert!(after < before + (32 << 10), "{before} KiB before, {after} KiB at most");
    drop(idle);
    assert_eq!(serving.end(), Some(0));
}

#[test]
fn configuration_is_read_again_and_a_wrong_one_is_said_and_left() {
    let Some(folder) = place() else { return };
    let mut serving = Serving::start(folder.path());
    serving.says("shop: ");
    let config = folder.path().join("pagewarden.toml");
    let good = fs::read_to_string(&config).unwrap();
    let pid = Pid::from_child(&serving.child);
    fs::write(&config, format!("{good}evry = \"1d\"\n")).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    serving.says("the configuration stays as it was");
    assert!(serving.get("/").1.contains(">shop</a>"));
    fs::write(&config, good.replace("\"shop\"", "\"store\"")).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    serving.says("the configuration was read again: 1 databases");
    serving.says("store: ");
    assert!(serving.get("/").1.contains(">store</a>"));
    assert_eq!(serving.get("/targets/store?map=age").0, 200);
    assert_eq!(serving.end(), Some(0));
}

#[test]
fn other_addresses_need_token_and_tls_and_get_them() {
    let Some(folder) = place() else { return };
    let path = |name: &str| folder.path().join(name);
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ed25519",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .arg("-keyout")
        .arg(path("key.pem"))
        .arg("-out")
        .arg(path("cert.pem"))
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("SKIPPED: no openssl here to make a certificate");
        return;
    }
    let close = |name: &str| {
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    close("key.pem");
    fs::write(path("token"), "0123456789abcdef0123\n").unwrap();
    let words = |folder: &Path, files: &[&str]| {
        let mut command = with_config(folder, &["serve", "--listen", "0.0.0.0:0"]);
        for flag in files {
            let file = flag.trim_start_matches("--").replace("tls-", "").replace("-file", "");
            let file = if file == "token" { file } else { format!("{file}.pem") };
            command.arg(flag).arg(folder.join(file));
        }
        command
    };
    let all = ["--token-file", "--tls-cert", "--tls-key"];
    for some in [&all[..1], &all[1..], &[]] {
        close("token");
        let outcome = run(&mut words(folder.path(), some));
        assert_eq!(outcome.status, Some(2), "{some:?}");
        assert!(outcome.stderr.contains("can be reached from other machines"), "{outcome:?}");
    }
    fs::set_permissions(path("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let outcome = run(&mut words(folder.path(), &all));
    assert!(outcome.stderr.contains("others can read"), "{outcome:?}");
    close("token");
    let serving = Serving::of(words(folder.path(), &all));
    let port = serving.address.rsplit(':').next().unwrap().to_owned();
    let curl = |words: &[&str], name: &str| {
        let output = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60", "--cacert"])
            .arg(path("cert.pem"))
            .args(words)
            .arg(format!("https://{name}:{port}/api/v1/status"))
            .output();
        output.map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let Ok(status) = curl(&[], "localhost") else {
        eprintln!("SKIPPED: no curl here to ask by TLS");
        return;
    };
    assert_eq!(status, "401");
    let bearer = ["-H", "Authorization: Bearer 0123456789abcdef0123"];
    assert_eq!(curl(&bearer, "localhost").unwrap(), "200");
    assert_eq!(curl(&["-u", "any:0123456789abcdef0123"], "localhost").unwrap(), "200");
    assert_eq!(curl(&["-u", "any:0123456789abcdef0124"], "localhost").unwrap(), "401");
    // Without TLS there is no answer.
    let (status, _) = serving.get("/");
    assert_ne!(status, 200);
    assert_eq!(serving.end(), Some(0));
}
