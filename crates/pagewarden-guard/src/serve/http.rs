//! HTTP/1.1 for a page and a few figures: one request a connection, `GET` and `HEAD` only.
//!
//! What a client can take is bounded. A connection has a thread of its own, and there are at most
//! [`CONNECTIONS_MAX`]. One more takes the place of that which has waited longest for its request, so
//! that clients who send nothing keep no other client out. A request's head is at most
//! [`HEAD_BYTES_MAX`] long and comes within [`HEAD_TIME`], however slowly its bytes come; the answer is
//! taken within [`ANSWER_TIME`], or not at all. [`ANSWERS_MAX`] answers are made at a time.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden::system::event::{PollFd, PollFlags, Timespec, poll};
use pagewarden::words::printable_json;
use rustls::{ServerConfig, ServerConnection};

/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 128;
/// The longest head of a request.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
/// Lines in the head of a request.
const HEADERS_MAX: usize = 64;
/// A request comes within this.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// An answer is taken within this.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// What a client still sends when it has its answer is read this long, and this much of it: else it
/// would lose the answer.
const LINGER_TIME: Duration = Duration::from_millis(200);
const LINGER_BYTES: usize = 64 << 10;
/// Answers that are made at a time.
const ANSWERS_MAX: usize = 4;
/// How often is looked whether to stop.
const NAP: Duration = Duration::from_millis(100);
/// The stack of a connection's thread.
const STACK_BYTES: usize = 1 << 20;

/// What a client asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) is_head: bool,
    /// The path, with what follows it.
    pub(super) address: String,
    /// Names and values, as they came.
    pub(super) headers: Vec<(String, String)>,
}

impl Asked {
    /// The values of a header.
    pub(super) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let is_it = move |header: &&(String, String)| header.0.eq_ignore_ascii_case(name);
        self.headers.iter().filter(is_it).map(|(_, value)| value.as_str())
    }
}

/// What an answer consists of.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn plain(status: u16, body: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{body}\n") }
    }

    pub(super) fn json(value: &serde_json::Value) -> Self {
        Self { status: 200, kind: "application/json", body: printable_json(&format!("{value}\n")) }
    }

    pub(super) fn html(body: String) -> Self {
        Self { status: 200, kind: "text/html; charset=utf-8", body }
    }

    fn bytes(&self, is_head: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            414 => "URI Too Long",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let more = match self.status {
            401 => "WWW-Authenticate: Basic realm=\"pagewarden\", charset=\"UTF-8\"\r\n",
            405 => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut text = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n{more}\r\n",
            self.status,
            self.kind,
            self.body.len(),
        );
        if !is_head {
            text.push_str(&self.body);
        }
        text.into_bytes()
    }
}

/// A socket whose reads and writes end at a moment, however slowly the other side moves.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        (&mut &*self.stream).read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection, plain or within TLS.
enum Line<'a> {
    Plain(Timed<'a>),
    Tls(Box<ServerConnection>, Timed<'a>),
}

impl<'a> Line<'a> {
    fn new(stream: &'a TcpStream, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let timed = Timed { stream, until: later(HEAD_TIME) };
        Ok(match tls {
            None => Self::Plain(timed),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config));
                Self::Tls(Box::new(connection.map_err(io::Error::other)?), timed)
            }
        })
    }

    fn timed(&mut self) -> &mut Timed<'a> {
        match self {
            Self::Plain(timed) | Self::Tls(_, timed) => timed,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(timed) => timed.read(buffer),
            Self::Tls(connection, timed) => {
                rustls::Stream::new(connection.as_mut(), timed).read(buffer)
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.timed().until = later(ANSWER_TIME);
        match self {
            Self::Plain(timed) => timed.write_all(bytes),
            Self::Tls(connection, timed) => {
                let mut stream = rustls::Stream::new(connection.as_mut(), timed);
                stream.write_all(bytes)?;
                stream.conn.send_close_notify();
                stream.flush()
            }
        }
    }
}

fn later(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

/// What all connections share.
pub(super) struct Server<'a> {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) stop: &'a AtomicBool,
    /// Those that have not sent their request, the oldest first.
    waiting: Mutex<VecDeque<Arc<TcpStream>>>,
    threads: AtomicUsize,
    answering: Mutex<usize>,
    answered: Condvar,
}

impl<'a> Server<'a> {
    pub(super) fn new(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        stop: &'a AtomicBool,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            tls,
            stop,
            waiting: Mutex::default(),
            threads: AtomicUsize::new(0),
            answering: Mutex::new(0),
            answered: Condvar::new(),
        })
    }

    /// Takes connections until it is asked to stop.
    pub(super) fn run(&self, answer: &(dyn Fn(&Asked) -> Answer + Sync)) {
        thread::scope(|scope| {
            while !self.stop.load(Ordering::Relaxed) {
                let Some(stream) = self.accept() else { continue };
                let stream = Arc::new(stream);
                self.lock_waiting().push_back(Arc::clone(&stream));
                self.threads.fetch_add(1, Ordering::Relaxed);
                let work = move || {
                    self.talk(&stream, answer);
                    self.threads.fetch_sub(1, Ordering::Relaxed);
                };
                let builder = thread::Builder::new().name("http".to_owned());
                if builder.stack_size(STACK_BYTES).spawn_scoped(scope, work).is_err() {
                    self.threads.fetch_sub(1, Ordering::Relaxed);
                    thread::sleep(NAP);
                }
            }
            for stream in self.lock_waiting().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    fn lock_waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next connection; `None` if there is none now.
    fn accept(&self) -> Option<TcpStream> {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let nap = Timespec::try_from(NAP).ok()?;
        if poll(&mut fds, Some(&nap)).ok()? == 0 {
            return None;
        }
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Without descriptors nothing can be taken until a connection ends.
                if error.kind() != io::ErrorKind::WouldBlock {
                    thread::sleep(NAP);
                }
                return None;
            }
        };
        while self.threads.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let oldest = self.lock_waiting().pop_front();
            if let Some(oldest) = oldest {
                let _ = oldest.shutdown(Shutdown::Both);
            }
            // Its thread ends at once; where all are answering, one of them will.
            thread::sleep(Duration::from_micros(200));
        }
        stream.set_nonblocking(false).ok()?;
        Some(stream)
    }

    fn talk(&self, stream: &Arc<TcpStream>, answer: &(dyn Fn(&Asked) -> Answer + Sync)) {
        let line = Line::new(stream, self.tls.as_ref());
        let Ok(mut line) = line else { return self.forget(stream) };
        let asked = ask(&mut line);
        self.forget(stream);
        let (made, is_head) = match asked {
            Ok(asked) => {
                let mut count = self.answering.lock().unwrap_or_else(PoisonError::into_inner);
                while *count >= ANSWERS_MAX {
                    count = self.answered.wait(count).unwrap_or_else(PoisonError::into_inner);
                }
                *count += 1;
                drop(count);
                let made = answer(&asked);
                let mut count = self.answering.lock().unwrap_or_else(PoisonError::into_inner);
                *count = count.saturating_sub(1);
                drop(count);
                self.answered.notify_one();
                (made, asked.is_head)
            }
            Err(Some(refusal)) => (refusal, false),
            // It is gone.
            Err(None) => return,
        };
        if line.send(&made.bytes(is_head)).is_ok() {
            let _ = stream.shutdown(Shutdown::Write);
            linger(stream);
        }
    }

    fn forget(&self, stream: &Arc<TcpStream>) {
        self.lock_waiting().retain(|other| !Arc::ptr_eq(other, stream));
    }
}

fn linger(stream: &TcpStream) {
    let mut rest = Timed { stream, until: later(LINGER_TIME) };
    let mut buffer = [0; 4096];
    let mut read = 0;
    while read < LINGER_BYTES {
        match rest.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) => read += length,
        }
    }
}

/// Reads a request. An error is the answer to one that cannot be answered, if it gets one.
fn ask(line: &mut Line<'_>) -> Result<Asked, Option<Answer>> {
    let refused = |status, words| Err(Some(Answer::plain(status, words)));
    let mut head = Vec::new();
    let mut piece = [0; 2048];
    loop {
        match line.read(&mut piece) {
            Ok(0) => return Err(None),
            Ok(length) => head.extend_from_slice(piece.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let is_late =
                    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
                return if is_late && !head.is_empty() {
                    refused(408, "the request did not come in time")
                } else {
                    Err(None)
                };
            }
        }
        match parse(&head) {
            Ok(Some(asked)) => return Ok(asked),
            Ok(None) if head.len() <= HEAD_BYTES_MAX => {}
            Ok(None) => return refused(431, "the head of the request is too long"),
            Err(refusal) => return Err(Some(refusal)),
        }
    }
}

/// A request, if all of its head is there.
fn parse(head: &[u8]) -> Result<Option<Asked>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Answer::plain(431, "the head of the request has too many lines"));
        }
        Err(_) => return Err(Answer::plain(400, "this is no request of HTTP/1.1")),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Answer::plain(405, "only GET is answered here")),
    };
    let address = request.path.unwrap_or_default();
    if !address.starts_with('/') {
        return Err(Answer::plain(400, "an address begins with /"));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let asked = Asked {
        is_head,
        address: address.to_owned(),
        headers: request
            .headers
            .iter()
            .map(|header| (header.name.to_owned(), text(header.value)))
            .collect(),
    };
    let has_body = asked.values("Transfer-Encoding").next().is_some()
        || asked.values("Content-Length").any(|length| length.trim() != "0");
    if has_body {
        return Err(Answer::plain(400, "a request has no body here"));
    }
    Ok(Some(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &[u8]) -> u16 {
        parse(head)
            .map_or_else(|refusal| refusal.status, |asked| if asked.is_some() { 200 } else { 0 })
    }

    #[test]
    fn only_whole_requests_for_a_path_are_answered() {
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
        assert_eq!(status(b"HEAD /x?y HTTP/1.0\r\n\r\n"), 200);
        assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\n"), 0);
        assert_eq!(status(b""), 0);
        for (head, expected) in [
            (&b"POST / HTTP/1.1\r\n\r\n"[..], 405),
            (b"CONNECT a:1 HTTP/1.1\r\n\r\n", 405),
            (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
            (b"GET * HTTP/1.1\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
            (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            (b"GET / HTTP/2.0\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
            (b"GET / HTTP/1.1\r\nA b: c\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n a: folded\r\n\r\n", 400),
        ] {
            assert_eq!(status(head), expected, "{}", head.escape_ascii());
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(status(many.as_bytes()), 431);
    }
}
