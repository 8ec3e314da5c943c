//! A server that speaks as much of S3 as a reader and a writer of packs need, and fails on request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// Keys in an answer to a list, so that lists have several pages.
const KEYS_MAX: usize = 7;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The answer is this status.
    Status(u16),
    /// The connection ends in the middle of the body.
    CutBody,
    /// Other bytes come than those that were asked for, and the answer says so.
    WrongRange,
    /// The object is another one since it was seen first.
    Replaced,
    /// The same, and the server does not look at the condition.
    ReplacedUnsaid,
    /// No answer comes.
    Silence,
    /// The connection ends before an answer.
    Hangup,
}

/// Requests that fail.
#[derive(Debug, Clone)]
pub struct Failing {
    /// What is in the request's path and query.
    pub part: &'static str,
    /// How often it does not yet.
    pub spared: usize,
    /// How often it fails; `usize::MAX`: each time.
    pub times: usize,
    /// What goes wrong.
    pub fault: Fault,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// All of it, the first line first.
    pub head: String,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// Parts of uploads that were neither ended nor removed, by upload and number.
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    begun: usize,
    failing: Vec<Failing>,
    seen: Vec<Seen>,
    /// Objects have no ETags: lists have empty ones, answers none.
    is_without_tags: bool,
}

/// What is in the bucket. Its ETag is made once: many requests are for parts of it.
#[derive(Debug, Clone)]
struct Object {
    bytes: Arc<[u8]>,
    etag: String,
}

impl Object {
    fn new(bytes: Vec<u8>) -> Self {
        let etag = etag(&bytes);
        Self { bytes: bytes.into(), etag }
    }
}

/// See the module. It ends with the process.
#[derive(Debug, Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    /// The address of the service.
    pub endpoint: String,
}

/// The name of its bucket.
pub const BUCKET: &str = "bucket";

impl Server {
    /// A server with nothing in its bucket.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { state: Arc::default(), endpoint };
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(&stream));
            }
        });
        server
    }

    /// Puts an object there.
    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        self.state.lock().unwrap().objects.insert(key.to_owned(), Object::new(bytes.into()));
    }

    /// Puts all files of a folder there.
    #[allow(dead_code, reason = "one of the two test programs needs it")]
    pub fn put_folder(&self, prefix: &str, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let key = format!("{prefix}/{}", entry.file_name().to_str().unwrap());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                self.put_folder(&key, &entry.path());
            } else if kind.is_file() {
                self.put(&key, fs::read(entry.path()).unwrap());
            }
        }
    }

    /// From now on objects have no ETags.
    #[allow(dead_code, reason = "one of the two test programs needs it")]
    pub fn forget_tags(&self) {
        self.state.lock().unwrap().is_without_tags = true;
    }

    /// Lets requests fail from now on.
    pub fn fail(&self, part: &'static str, times: usize, fault: Fault) {
        self.state.lock().unwrap().failing.push(Failing { part, spared: 0, times, fault });
    }

    /// The same after the first of these requests.
    #[allow(dead_code, reason = "one of the two test programs needs it")]
    pub fn fail_after(&self, part: &'static str, spared: usize, fault: Fault) {
        self.state.lock().unwrap().failing.push(Failing { part, spared, times: usize::MAX, fault });
    }

    /// An object as it is now.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.state.lock().unwrap().objects.get(key).map(|object| object.bytes.to_vec())
    }

    /// Uploads that were begun and neither ended nor removed.
    pub fn unfinished(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
    }

    /// What was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.lock().unwrap().seen.clone()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if !matches!(reader.read_line(&mut head), Ok(1..)) {
                    return;
                }
            }
            let line = head.lines().next().unwrap_or_default().to_owned();
            let mut body =
                vec![0; header(&head, "content-length").map_or(0, |it| it.parse().unwrap())];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            self.state.lock().unwrap().seen.push(Seen { head: head.clone() });
            let fault = self.fault_of(&line);
            if fault == Some(Fault::Hangup) {
                return;
            }
            if fault == Some(Fault::Silence) {
                // Until the other side gives up.
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            }
            let goes_on = self.answer(stream, &line, &head, body, fault);
            if !matches!(goes_on, Ok(true)) {
                return;
            }
        }
    }

    fn fault_of(&self, line: &str) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        let is_it = |it: &&mut Failing| it.times > 0 && line.contains(it.part);
        let failing = state.failing.iter_mut().find(is_it)?;
        if failing.spared > 0 {
            failing.spared -= 1;
            return None;
        }
        if failing.times < usize::MAX {
            failing.times -= 1;
        }
        Some(failing.fault)
    }

    /// False: the connection is over.
    fn answer(
        &self,
        mut stream: &TcpStream,
        line: &str,
        head: &str,
        sent: Vec<u8>,
        fault: Option<Fault>,
    ) -> std::io::Result<bool> {
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let header = |name: &str| header(head, name);
        if let Some(Fault::Status(status)) = fault {
            let body = match (method, status) {
                ("HEAD", _) => String::new(),
                (_, 404) => "<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>".into(),
                (_, 403) => "<Error><Code>AccessDenied</Code><Message>no</Message>\
                             <AWSAccessKeyId>canary-key-id</AWSAccessKeyId></Error>"
                    .into(),
                _ => "<Error><Code>SlowDown</Code><Message>slower</Message></Error>".into(),
            };
            return respond(stream, status, "", body.as_bytes(), body.len()).map(|()| true);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = decoded(path);
        let key = path.trim_start_matches('/').strip_prefix(BUCKET).unwrap_or_default();
        let key = key.trim_start_matches('/');
        if key.is_empty() {
            let body = self.list(query);
            let is_cut = fault == Some(Fault::CutBody);
            let sent = if is_cut { body.len() / 2 } else { body.len() };
            respond(stream, 200, "", &body.as_bytes()[..sent], body.len())?;
            return Ok(!is_cut);
        }
        if matches!(method, "PUT" | "POST" | "DELETE") {
            let must_be_new = header("if-none-match").is_some();
            let (status, headers, body) = self.write(method, key, query, sent, must_be_new);
            if fault == Some(Fault::CutBody) {
                // Done, and the answer is lost.
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return Ok(false);
            }
            return respond(stream, status, &headers, body.as_bytes(), body.len()).map(|()| true);
        }
        let object = self.state.lock().unwrap().objects.get(key).cloned();
        let Some(Object { bytes, etag }) = object else {
            let body: &[u8] = match method {
                "HEAD" => b"",
                _ => b"<Error><Code>NoSuchKey</Code><Message>gone</Message></Error>",
            };
            return respond(stream, 404, "", body, body.len()).map(|()| true);
        };
        let is_replaced = matches!(fault, Some(Fault::Replaced | Fault::ReplacedUnsaid));
        let is_without_tags = self.state.lock().unwrap().is_without_tags;
        let etag = if is_replaced { "\"another\"".to_owned() } else { etag };
        let etag = if is_without_tags { String::new() } else { etag };
        let is_wrong = header("if-match").is_some_and(|wanted| wanted != etag);
        if is_wrong && fault != Some(Fault::ReplacedUnsaid) {
            return respond(stream, 412, "", b"", 0).map(|()| true);
        }
        let tag = if is_without_tags { String::new() } else { format!("ETag: {etag}\r\n") };
        let headers = format!(
            "{tag}Last-Modified: Mon, 02 Nov 2026 04:10:00 GMT\r\nAccept-Ranges: bytes\r\n"
        );
        if method == "HEAD" {
            return respond(stream, 200, &headers, b"", bytes.len()).map(|()| true);
        }
        let range = header("range").and_then(|range| {
            let (begin, end) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((begin.parse::<usize>().ok()?, end.parse::<usize>().ok()?))
        });
        let (begin, end) = range.unwrap_or((0, bytes.len().saturating_sub(1)));
        let shift = usize::from(fault == Some(Fault::WrongRange));
        let (begin, end) = (begin + shift, (end + shift + 1).min(bytes.len()));
        let body = bytes.get(begin..end).unwrap_or_default();
        let last = end.saturating_sub(1);
        let headers = format!("{headers}Content-Range: bytes {begin}-{last}/{}\r\n", bytes.len());
        if fault == Some(Fault::CutBody) {
            respond(
                stream,
                206,
                &headers,
                body.get(..body.len() / 2).unwrap_or_default(),
                body.len(),
            )?;
            stream.flush()?;
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return Ok(false);
        }
        respond(stream, 206, &headers, body, body.len()).map(|()| true)
    }

    /// Objects, and uploads in parts: status, headers and body of the answer.
    fn write(
        &self,
        method: &str,
        key: &str,
        query: &str,
        sent: Vec<u8>,
        must_be_new: bool,
    ) -> (u16, String, String) {
        let value = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let mut state = self.state.lock().unwrap();
        let said = |status: u16, body: &str| (status, String::new(), body.to_owned());
        match (method, value("uploadId"), value("partNumber")) {
            ("PUT", None, _) if must_be_new && state.objects.contains_key(key) => said(412, ""),
            ("PUT", None, _) => {
                let object = Object::new(sent);
                let headers = format!("ETag: {}\r\n", object.etag);
                state.objects.insert(key.to_owned(), object);
                (200, headers, String::new())
            }
            ("POST", None, _) => {
                state.begun += 1;
                let upload = format!("upload{}", state.begun);
                state.uploads.insert(upload.clone(), BTreeMap::new());
                let body = format!(
                    "<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>\
                     </InitiateMultipartUploadResult>"
                );
                said(200, &body)
            }
            ("PUT", Some(upload), Some(number)) => match state.uploads.get_mut(upload) {
                Some(parts) => {
                    let headers = format!("ETag: {}\r\n", etag(&sent));
                    parts.insert(number.parse().unwrap(), sent);
                    (200, headers, String::new())
                }
                None => said(404, "<Error><Code>NoSuchUpload</Code></Error>"),
            },
            ("POST", Some(upload), _) => match state.uploads.remove(upload) {
                Some(parts) => {
                    let whole = parts.into_values().flatten().collect();
                    state.objects.insert(key.to_owned(), Object::new(whole));
                    said(
                        200,
                        "<CompleteMultipartUploadResult><ETag>\"x\"</ETag>\
                         </CompleteMultipartUploadResult>",
                    )
                }
                None => said(404, "<Error><Code>NoSuchUpload</Code></Error>"),
            },
            ("DELETE", Some(upload), _) => {
                state.uploads.remove(upload);
                said(204, "")
            }
            _ => said(405, ""),
        }
    }

    /// The second version of ListObjects, page by page.
    fn list(&self, query: &str) -> String {
        let value = |name: &str| {
            let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            pair.map(decoded).unwrap_or_default()
        };
        let (prefix, delimiter) = (value("prefix"), value("delimiter"));
        let after = value("continuation-token");
        let state = self.state.lock().unwrap();
        // A folder, or an object with its length and ETag.
        let mut entries: BTreeMap<String, Option<(usize, String)>> = BTreeMap::new();
        for (key, object) in &state.objects {
            let Some(rest) = key.strip_prefix(&prefix) else { continue };
            match rest.split_once('/').filter(|_| !delimiter.is_empty()) {
                Some((folder, _)) => entries.insert(format!("{prefix}{folder}/"), None),
                None => {
                    let tag =
                        if state.is_without_tags { String::new() } else { object.etag.clone() };
                    entries.insert(key.clone(), Some((object.bytes.len(), tag)))
                }
            };
        }
        let rest: Vec<_> = entries.into_iter().filter(|(name, _)| *name > after).collect();
        let is_truncated = rest.len() > KEYS_MAX;
        let mut body = format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>");
        for (name, object) in rest.iter().take(KEYS_MAX) {
            let _ = match object {
                None => write!(body, "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
                Some((length, etag)) => write!(
                    body,
                    "<Contents><Key>{name}</Key><Size>{length}</Size><ETag>{etag}</ETag>\
                     <LastModified>2026-11-02T04:10:00.000Z</LastModified></Contents>"
                ),
            };
        }
        if let (true, Some((last, _))) = (is_truncated, rest.get(KEYS_MAX - 1)) {
            let _ = write!(body, "<NextContinuationToken>{last}</NextContinuationToken>");
        }
        body + "</ListBucketResult>"
    }
}

fn respond(
    mut stream: &TcpStream,
    status: u16,
    headers: &str,
    body: &[u8],
    length: usize,
) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status} Answer\r\n{headers}Content-Length: {length}\r\n\r\n");
    let mut answer = head.into_bytes();
    answer.extend_from_slice(body);
    stream.write_all(&answer)
}

fn header(head: &str, name: &str) -> Option<String> {
    let line = head
        .lines()
        .find(|line| line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name)));
    line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
}

fn etag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match (first, code) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = behind;
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}
