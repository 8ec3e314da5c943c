//! Hands a message over: to a webhook, a command, or `sendmail`.
//!
//! A webhook gets `Pagewarden-Signature: sha256=HEX`, which is the HMAC-SHA256 of the body by the key
//! in `secret_file`, and `Pagewarden-Id`, which is the same for each attempt. A message is taken if the
//! answer is 2xx, or the program exits with 0.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::system::CommandExt as _;
use pagewarden::system::process::{Pid, Signal, kill_process_group};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use super::way::{By, secret};
use crate::listing::hex;
use crate::moment;

/// A program that takes a message may need this long.
const PROGRAM_TIME: Duration = Duration::from_secs(30);
/// How often is looked whether it has ended.
const NAP: Duration = Duration::from_millis(20);

/// What is posted to a webhook.
#[derive(Debug)]
pub struct Request<'a> {
    /// Where to.
    pub url: &'a str,
    /// It may be a link-local address.
    pub link_local: bool,
    /// Lines of the head.
    pub headers: Vec<(&'static str, String)>,
    /// What.
    pub body: &'a str,
}

/// Posts; an error says why the message was not taken, without the address, which may be a password.
pub type Post = dyn Fn(&Request<'_>, &AtomicBool) -> Result<(), String> + Send + Sync;

/// A message on its way.
pub(super) struct Delivery<'a> {
    pub(super) id: &'a str,
    pub(super) body: &'a str,
    pub(super) post: &'a Post,
    pub(super) stop: &'a AtomicBool,
}

impl Delivery<'_> {
    /// Hands it over; an error says why it was not taken.
    pub(super) fn by(&self, by: &By) -> Result<(), String> {
        match by {
            By::Webhook { url, secret_file, link_local } => {
                let mut headers = vec![
                    ("Content-Type", "application/json".to_owned()),
                    ("User-Agent", format!("pagewarden/{}", pagewarden::VERSION)),
                    ("Pagewarden-Id", self.id.to_owned()),
                ];
                if let Some(file) = secret_file {
                    let key = secret(file).map_err(|error| format!("{error:#}"))?;
                    headers.push(("Pagewarden-Signature", signature(key.as_bytes(), self.body)));
                }
                let link_local = *link_local;
                (self.post)(&Request { url, link_local, headers, body: self.body }, self.stop)
            }
            By::Command(words) => {
                let (program, arguments) = words.split_first().ok_or("there is no program")?;
                let mut command = Command::new(program);
                command.args(arguments).env("PAGEWARDEN_ID", self.id);
                self.run(command, self.body)
            }
            By::Email { to, from, sendmail } => {
                let mut command = Command::new(sendmail);
                command.args(["-i", "-t"]);
                self.run(command, &self.mail(to, from.as_deref()))
            }
        }
    }

    /// The message as a mail. Its `Message-ID` is the same for each attempt.
    fn mail(&self, to: &[String], from: Option<&str>) -> String {
        let body: Value = serde_json::from_str(self.body).unwrap_or_default();
        let of = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default();
        let from = from.map(|from| format!("From: {from}\n")).unwrap_or_default();
        // Lines of the head are ASCII, and short of the limit of 998 bytes.
        let subject: String = of("subject")
            .chars()
            .map(|letter| if letter.is_ascii_graphic() || letter == ' ' { letter } else { '?' })
            .take(200)
            .collect();
        let date = moment::parse(of("written")).map(moment::mail_date).unwrap_or_default();
        format!(
            "{from}To: {to}\nSubject: pagewarden: {subject}\nDate: {date}\n\
             Message-ID: <{id}@pagewarden.invalid>\nAuto-Submitted: auto-generated\n\
             MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\
             Content-Transfer-Encoding: 8bit\n\n{text}",
            to = to.join(", "),
            id = self.id,
            text = of("text"),
        )
    }

    /// Runs a program with this on its standard input, to its end or for its time.
    fn run(&self, mut command: Command, input: &str) -> Result<(), String> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let stdin = child.stdin.take();
        let begin = Instant::now();
        thread::scope(|scope| {
            // A program that never reads must not keep this one waiting: it is ended with its pipe.
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
            loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => return Ok(()),
                    Ok(Some(status)) => return Err(format!("{name}: {status}")),
                    Ok(None) => {}
                    Err(error) => return Err(format!("{name}: {error}")),
                }
                let is_stopped = self.stop.load(Ordering::Relaxed);
                if is_stopped || begin.elapsed() >= PROGRAM_TIME {
                    end(&mut child);
                    let seconds = PROGRAM_TIME.as_secs();
                    return Err(format!("{name} did not end within {seconds} s"));
                }
                thread::sleep(NAP);
            }
        })
    }
}

/// Ends a program with all that it has started.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The signature of a body, as the head of a request has it.
fn signature(key: &[u8], body: &str) -> String {
    // Every length is a key.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
    mac.update(body.as_bytes());
    format!("sha256={}", hex(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(by: &By, body: &str, stop: bool) -> Result<(), String> {
        let stop = AtomicBool::new(stop);
        let post = |_: &Request<'_>, _: &AtomicBool| Err("no network here".to_owned());
        Delivery { id: "ab-1", body, post: &post, stop: &stop }.by(by)
    }

    #[test]
    fn signature_is_that_of_the_standard() {
        // RFC 4231, test case 2.
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature(b"Jefe", "what do ya want for nothing?"), expected);
    }

    #[test]
    fn program_gets_the_message_and_its_end_is_the_answer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("got");
        let shell =
            |script: &str| By::Command(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
        let script = format!("cat > '{}'; echo $PAGEWARDEN_ID >> '{0}'", file.display());
        delivered(&shell(&script), "{}\n", false).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{}\nab-1\n");
        assert!(delivered(&shell("exit 3"), "{}", false).unwrap_err().contains("exit status: 3"));
        let none = By::Command(vec!["/no/such/program".to_owned()]);
        assert!(delivered(&none, "{}", false).unwrap_err().contains("cannot start"));
        // Larger than a pipe, and not read.
        let long = "x".repeat(1 << 20);
        assert!(delivered(&shell("sleep 600 & sleep 600"), &long, true).is_err());
    }

    #[test]
    fn mail_has_one_line_for_each_field() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mail");
        let script = folder.path().join("sendmail");
        std::fs::write(
            &script,
            format!("#!/bin/sh\necho \"$@\" > '{}'; cat >> '{0}'", file.display()),
        )
        .unwrap();
        let mut shell = Command::new("chmod");
        assert!(shell.arg("755").arg(&script).status().unwrap().success());
        let by = By::Email {
            to: vec!["a@example.org".to_owned(), "b@example.org".to_owned()],
            from: None,
            sendmail: script,
        };
        let body = serde_json::json!({
            "subject": "h\u{f6}st: 1 finding\r\nBcc: evil@example.org",
            "written": "2026-11-25T22:01:02Z",
            "text": "line\n",
        });
        // A program that was just written may be open for writing in a child of another test.
        let body = body.to_string();
        while delivered(&by, &body, false).is_err_and(|error| error.contains("busy")) {}
        let mail = std::fs::read_to_string(&file).unwrap();
        let (head, text) = mail.split_once("\n\n").unwrap();
        assert_eq!(text, "line\n");
        assert!(head.starts_with("-i -t\nTo: a@example.org, b@example.org\n"), "{head}");
        assert!(head.contains("\nSubject: pagewarden: h?st: 1 finding??Bcc: evil@example.org\n"));
        assert!(head.contains("\nDate: Wed, 25 Nov 2026 22:01:02 +0000\n"), "{head}");
        assert!(head.contains("\nMessage-ID: <ab-1@pagewarden.invalid>\n"), "{head}");
    }
}
