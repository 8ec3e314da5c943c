//! One process that scrubs what is due, and answers on the loopback interface how things stand.
//!
//! | path | what |
//! | --- | --- |
//! | `/` | a page, without scripts |
//! | `/targets/NAME` | the page of one database |
//! | `/metrics` | figures for Prometheus |
//! | `/healthz` | `ok`, while the schedule is alive |
//! | `/api/v1/status` | the object of `status --json` |
//! | `/api/v1/targets/NAME/findings` | findings with their lives |
//!
//! Every answer comes from the ledger; requests change nothing. A name in `Host` that is not known is
//! refused, so that a page of another site cannot be led here by its name server.

use std::io::Cursor;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use pagewarden::words::printable_json;
use serde_json::json;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::config::Subject;
use crate::ledger::Ledger;
use crate::ledger::findings::Kept;
use crate::moment;
use crate::serve::schedule::Schedule;
use crate::status::{self, Standing};

mod notify;
mod page;
pub mod schedule;

/// Threads that answer.
const ANSWERERS: usize = 4;
/// How often an idle thread looks whether to stop.
const NAP: Duration = Duration::from_millis(200);
/// The longest address that is looked at.
const ADDRESS_BYTES_MAX: usize = 2048;
/// The schedule is alive if it was seen within this.
const ALIVE_SECONDS: i64 = 120;
/// Closed findings that are shown.
const CLOSED_MAX: usize = 100;
/// Passes that are shown.
const PASSES_MAX: usize = 30;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// A proxy stands before it, and lets in only whom it knows.
    pub behind_proxy: bool,
    /// Names that it is reached by, beside those of the loopback interface.
    pub hosts: Vec<String>,
    /// Where the ledger is.
    pub state: PathBuf,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
}

/// What all threads share.
struct Shared {
    settings: Settings,
    subjects: std::sync::RwLock<Vec<Subject>>,
    /// When the schedule was seen alive.
    seen: AtomicI64,
}

impl Shared {
    fn subjects(&self) -> Vec<Subject> {
        self.subjects.read().map(|subjects| subjects.clone()).unwrap_or_default()
    }

    fn stops(&self) -> bool {
        self.settings.stop.load(Ordering::Relaxed)
    }
}

/// Serves and scrubs until it is asked to stop. `log` takes a line for people.
///
/// # Errors
/// The address cannot be listened on, or may not be.
pub fn serve(
    settings: Settings,
    subjects: Vec<Subject>,
    mut schedule: Schedule<'_>,
    log: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let Settings { listen, behind_proxy, .. } = settings;
    if !listen.ip().is_loopback() && !behind_proxy {
        bail!(
            "{listen} can be reached from other machines, and there is no password here\n\
             hint: listen on 127.0.0.1, or put a proxy that asks for one before it and say --behind-proxy"
        );
    }
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    let bound = listener.local_addr().with_context(|| format!("cannot listen on {listen}"))?;
    let server = Server::from_listener(listener, None)
        .map_err(|error| anyhow!("cannot listen on {listen}: {error}"))?;
    let shared = Shared {
        settings,
        subjects: std::sync::RwLock::new(subjects),
        seen: AtomicI64::new(moment::now()),
    };
    log(&format!("listening on http://{bound}/"));
    notify::ready();
    thread::scope(|scope| {
        for _ in 0..ANSWERERS {
            scope.spawn(|| {
                while !shared.stops() {
                    if let Ok(Some(request)) = server.recv_timeout(NAP) {
                        answer(&shared, request);
                    }
                }
            });
        }
        scope.spawn(|| {
            while !shared.stops() {
                notify::alive();
                thread::sleep(NAP);
            }
        });
        while !shared.stops() {
            schedule.step(&shared.subjects, log);
            shared.seen.store(moment::now(), Ordering::Relaxed);
            thread::park_timeout(NAP);
        }
        notify::stopping();
    });
    Ok(())
}

/// What an answer consists of.
struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn plain(status: u16, body: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{body}\n") }
    }

    fn json(value: &serde_json::Value) -> Self {
        Self { status: 200, kind: "application/json", body: printable_json(&format!("{value}\n")) }
    }

    fn html(body: String) -> Self {
        Self { status: 200, kind: "text/html; charset=utf-8", body }
    }
}

fn answer(shared: &Shared, request: Request) {
    let head = match request.method() {
        Method::Get => Some(false),
        Method::Head => Some(true),
        _ => None,
    };
    let answer = if head.is_none() {
        Answer::plain(405, "only GET is answered here")
    } else if let Err(reason) = admit(&shared.settings, request.headers()) {
        Answer::plain(403, reason)
    } else {
        route(shared, request.url()).unwrap_or_else(|error| {
            // What went wrong is said in the log of the schedule, not to who asks.
            let _ = error;
            Answer::plain(503, "the ledger cannot be read now")
        })
    };
    let length = answer.body.len();
    let body = if head == Some(true) { Vec::new() } else { answer.body.into_bytes() };
    let mut response = Response::new(
        tiny_http::StatusCode(answer.status),
        Vec::new(),
        Cursor::new(body),
        Some(length),
        None,
    );
    for (name, value) in [
        ("Content-Type", answer.kind),
        (
            "Content-Security-Policy",
            "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
        ),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    ] {
        if let Ok(header) = Header::from_bytes(name, value) {
            response.add_header(header);
        }
    }
    // Who asked may be gone.
    let _ = request.respond(response);
}

/// Whether a request may be answered: by the names that it was sent to and comes from.
fn admit(settings: &Settings, headers: &[Header]) -> Result<(), &'static str> {
    let values = |name: &'static str| {
        headers
            .iter()
            .filter(move |header| header.field.equiv(name))
            .map(|header| header.value.as_str())
    };
    let mut hosts = values("Host");
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("one Host is enough");
    }
    let is_known = |authority: &str| {
        let name = name_of(authority);
        matches!(name, "127.0.0.1" | "localhost" | "[::1]")
            || settings.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
            || (settings.behind_proxy && settings.hosts.is_empty())
    };
    match host {
        Some(host) if is_known(host) => {}
        Some(_) => return Err("this name is not known here (--host NAME makes it known)"),
        None => return Err("a request needs a Host"),
    }
    for origin in values("Origin") {
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        if !is_known(authority) {
            return Err("pages of other sites get no answer here");
        }
    }
    Ok(())
}

/// The name in `name:port`.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn route(shared: &Shared, address: &str) -> Result<Answer> {
    if address.len() > ADDRESS_BYTES_MAX {
        return Ok(Answer::plain(414, "the address is too long"));
    }
    let path = address.split(['?', '#']).next().unwrap_or_default();
    let now = moment::now();
    let standings = || -> Result<(Option<Ledger>, Vec<Standing>)> {
        let ledger = Ledger::read(&shared.settings.state)?;
        let all = status::standings(ledger.as_ref(), &shared.subjects(), &[], now)?;
        Ok((ledger, all))
    };
    Ok(match path {
        "/" => Answer::html(page::index(&standings()?.1, now)),
        "/style.css" => {
            Answer { status: 200, kind: "text/css; charset=utf-8", body: page::STYLE.to_owned() }
        }
        "/healthz" => {
            let age = now.saturating_sub(shared.seen.load(Ordering::Relaxed));
            // A run over a large database is no death: the ledger tells how far it is.
            let is_alive = age < ALIVE_SECONDS || schedule::is_running();
            if is_alive {
                Answer::plain(200, "ok")
            } else {
                Answer::plain(503, "the schedule stands")
            }
        }
        "/metrics" => Answer {
            status: 200,
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body: status::metrics(&standings()?.1),
        },
        "/api/v1/status" => {
            let (_, all) = standings()?;
            Answer::json(&json!({
                "pagewarden": pagewarden::VERSION,
                "command": "status",
                "verdict": status::worst(&all),
                "targets": all.iter().map(Standing::to_json).collect::<Vec<_>>(),
                "seconds": 0.0,
            }))
        }
        _ => {
            let (ledger, all) = standings()?;
            let of = |name: &str| {
                let name = decoded(name)?;
                let standing = all.iter().find(|one| one.name == name)?;
                Some((standing, ledger.as_ref()?, standing.target?))
            };
            let findings = path
                .strip_prefix("/api/v1/targets/")
                .and_then(|rest| rest.strip_suffix("/findings"))
                .and_then(of);
            if let Some((standing, ledger, target)) = findings {
                let open = ledger.open_findings(target)?;
                let closed = ledger.closed_findings(target, CLOSED_MAX)?;
                return Ok(Answer::json(&json!({
                    "pagewarden": pagewarden::VERSION,
                    "name": standing.name,
                    "findings": open.iter().map(Kept::to_json).collect::<Vec<_>>(),
                    "closed": closed.iter().map(Kept::to_json).collect::<Vec<_>>(),
                })));
            }
            if let Some((standing, ledger, target)) = path.strip_prefix("/targets/").and_then(of) {
                let open = ledger.open_findings(target)?;
                let closed = ledger.closed_findings(target, CLOSED_MAX)?;
                let passes = ledger.passes(target, PASSES_MAX)?;
                return Ok(Answer::html(page::target(standing, &open, &closed, &passes, now)));
            }
            Answer::plain(404, "there is no such page")
        }
    })
}

/// A name out of an address. `None` if it is no text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        // A sign would be taken for a digit.
        let digits = std::str::from_utf8(&digits).ok()?;
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(is_number.then(|| u8::from_str_radix(digits, 16).ok())??);
    }
    String::from_utf8(bytes).ok()
}

/// A name as a part of an address.
fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut address, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
            address.push(char::from(byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
        address
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(behind_proxy: bool, hosts: &[&str]) -> Settings {
        Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            behind_proxy,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            state: PathBuf::new(),
            stop: Arc::default(),
        }
    }

    fn admits(settings: &Settings, headers: &[(&str, &str)]) -> bool {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| Header::from_bytes(*name, *value).unwrap())
            .collect();
        admit(settings, &headers).is_ok()
    }

    #[test]
    fn only_known_names_are_answered() {
        let here = settings(false, &[]);
        for host in ["127.0.0.1:9750", "localhost", "[::1]:9750", "localhost:1"] {
            assert!(admits(&here, &[("Host", host)]), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.", "", "a:b:1", "127.0.0.2"]
        {
            assert!(!admits(&here, &[("Host", host)]), "{host}");
        }
        assert!(!admits(&here, &[]));
        assert!(!admits(&here, &[("Host", "localhost"), ("host", "localhost")]));
        assert!(!admits(&here, &[("Host", "localhost"), ("Origin", "https://evil.example")]));
        assert!(!admits(&here, &[("Host", "localhost"), ("Origin", "null")]));
        assert!(admits(&here, &[("Host", "localhost"), ("Origin", "http://localhost:9750")]));
        assert!(admits(&settings(false, &["db.example"]), &[("Host", "DB.example:80")]));
        assert!(admits(&settings(true, &[]), &[("Host", "anything.example")]));
        assert!(!admits(&settings(true, &["db.example"]), &[("Host", "anything.example")]));
    }

    #[test]
    fn names_in_addresses_come_back_as_they_were() {
        for name in ["main", "/var/lib/a b", "\u{e4}<>%&\"'", "../..", "a/b"] {
            assert_eq!(decoded(&encoded(name)).as_deref(), Some(name));
            assert!(!encoded(name).contains(['/', '<', '"', ' ']));
        }
        for broken in ["%", "%4", "%zz", "%ff", "%+1"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }
}
