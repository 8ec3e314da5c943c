//! Object stores as the library sees them, by a server of our own that fails on request.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod server;

use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pagewarden::source::store::{Seen, StorePath, Stores as _, Trouble, is_not_read};
use pagewarden_cloud::{Clouds, Settings};
use server::{Fault, Server};

/// More than one piece, and not a whole number of them.
const BYTES: usize = (9 << 20) + 77;

fn content() -> Vec<u8> {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    let new = || (0..BYTES).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    CONTENT.get_or_init(new).clone()
}

fn settings(server: &Server) -> Settings {
    let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Settings {
        endpoint: Some(server.endpoint.clone()),
        options: vec![
            option("skip_signature", "true"),
            option("retries", "3"),
            option("retry_wait_ms", "1"),
        ],
        ..Settings::default()
    }
}

/// The stores, and a place in them.
fn place(server: &Server, key: &str) -> (Clouds, StorePath) {
    let clouds = Clouds::new(settings(server)).unwrap();
    let place = clouds.place(Path::new(&format!("s3://bucket/{key}"))).unwrap();
    (clouds, place)
}

fn read(place: &StorePath) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    place.open()?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn folders_of_many_pages_are_listed_and_files_are_read_at_any_place() {
    let server = Server::start();
    for number in 0..20 {
        server.put(&format!("a/b/file {number}+%20"), vec![1_u8; number]);
    }
    server.put("a/b/c/deep", "deep");
    server.put("a/bc", "beside");
    let (clouds, folder) = place(&server, "a/b/");
    let listed = folder.list().unwrap();
    assert_eq!(listed.len(), 21);
    let seen = |name: &str| listed.iter().find(|it| it.name == name).map(|it| it.seen);
    assert_eq!(seen("c"), Some(Seen::Folder));
    assert_eq!(seen("file 7+%20"), Some(Seen::File(7)));
    assert_eq!(read(&folder.join("file 7+%20")).unwrap(), [1; 7]);
    assert_eq!(read(&folder.join("file 0+%20")).unwrap(), [0_u8; 0]);
    assert_eq!(read(&folder.join("c/deep")).unwrap(), b"deep");
    assert!(folder.is_folder() && folder.join("c").is_folder() && !folder.join("d").is_there());
    let parent = folder.parent().unwrap();
    assert_eq!(parent.join("bc").look().unwrap(), Seen::File(6));
    assert_eq!(parent.parent().unwrap().path(), Path::new("s3://bucket"));
    assert!(parent.join("nothing").list().is_err_and(|it| it.kind() == io::ErrorKind::NotFound));
    let traffic = clouds.traffic();
    assert_eq!(traffic.requests, server.seen().len() as u64);
    assert_eq!(traffic.retries, 0);
}

#[test]
fn file_is_fetched_in_pieces_each_once_and_under_the_condition_that_it_is_the_same() {
    let server = Server::start();
    server.put("big", content());
    let (clouds, file) = place(&server, "big");
    assert!(read(&file).unwrap() == content());
    // Again, from memory: the pieces are still there.
    assert!(read(&file).unwrap() == content());
    let opened = file.open().unwrap();
    let mut bytes = [0; 100];
    let count = opened.read_at(&mut bytes, BYTES as u64 - 10).unwrap();
    assert_eq!(&bytes[..count], &content()[BYTES - 10..]);
    assert_eq!(opened.read_at(&mut bytes, BYTES as u64).unwrap(), 0);
    let seen = server.seen();
    let gets: Vec<_> = seen.iter().filter(|it| it.head.starts_with("GET")).collect();
    assert_eq!(gets.len(), 3, "{gets:?}");
    // The first one saw it first.
    assert!(gets.iter().skip(1).all(|it| it.head.to_ascii_lowercase().contains("if-match: \"")));
    assert_eq!(clouds.traffic().bytes, BYTES as u64);
}

#[test]
fn beginnings_and_lists_that_are_expected_are_asked_for_once() {
    let server = Server::start();
    for folder in ["a/one", "a/two"] {
        server.put(&format!("{folder}/big"), content());
    }
    let (clouds, folder) = place(&server, "a");
    folder.list().unwrap();
    let below = ["one", "two"].map(|name| folder.join(name));
    below.iter().for_each(StorePath::expect_list);
    below.iter().for_each(StorePath::expect_list);
    // What is in a folder is known once it is listed, and nothing is fetched of what is not.
    below[0].join("big").expect_begin(80_000);
    assert!(below.iter().all(|folder| folder.list().unwrap().len() == 1));
    below.iter().for_each(StorePath::expect_list);
    assert_eq!(clouds.traffic().requests, 3);
    let files = below.map(|folder| folder.join("big"));
    files.iter().for_each(|file| file.expect_begin(80_000));
    assert_eq!(files[0].first_bytes(80_000).unwrap(), &content()[..80_000]);
    // Less than was expected, and more.
    assert_eq!(files[1].first_bytes(70_000).unwrap(), &content()[..70_000]);
    assert_eq!(clouds.traffic().requests, 5);
    files[0].expect_begin(70_000);
    assert_eq!(files[0].first_bytes(90_000).unwrap(), &content()[..90_000]);
    assert_eq!(clouds.traffic().requests, 7);
    // Of what was kept nothing is asked again.
    files.iter().for_each(|file| file.expect_begin(65_536));
    assert_eq!(files[1].first_bytes(65_536).unwrap(), &content()[..65_536]);
    assert_eq!(clouds.traffic().requests, 7);
}

#[test]
fn first_bytes_are_asked_for_once_and_are_all_of_a_small_file() {
    let server = Server::start();
    server.put("a/small", &content()[..5000]);
    server.put("a/big", content());
    let (clouds, folder) = place(&server, "a");
    folder.list().unwrap();
    let requests = || clouds.traffic().requests;
    let (small, big) = (folder.join("small"), folder.join("big"));
    assert_eq!(small.first_bytes(1 << 20).unwrap(), &content()[..5000]);
    assert_eq!(requests(), 2);
    assert_eq!(small.first_bytes(512).unwrap(), &content()[..512]);
    assert!(read(&small).unwrap() == content()[..5000]);
    assert_eq!(requests(), 2);
    // Of a large one, no more than was asked for, and no part that is read later.
    for (bytes, so_far) in [(8, 3), (8, 3), (65_536, 4), (512, 4), (80_000, 5), (80_000, 6)] {
        assert_eq!(big.first_bytes(bytes).unwrap(), &content()[..bytes], "{bytes}");
        assert_eq!(requests(), so_far, "{bytes}");
    }
    assert!(read(&big).unwrap() == content());
    assert_eq!(requests(), 9);
    // What was kept is of the object that was seen: another one is not put together with it.
    server.put("a/big", vec![1; BYTES]);
    let (_clouds, folder) = place(&server, "a");
    folder.list().unwrap();
    let big = folder.join("big");
    assert_eq!(big.first_bytes(512).unwrap(), [1; 512]);
    server.put("a/big", content());
    assert_eq!(big.first_bytes(512).unwrap(), [1; 512]);
    let why = read(&big).unwrap_err();
    assert!(is_not_read(&why) && why.to_string().contains("replaced"), "{why}");
}

#[test]
fn only_what_the_server_asks_time_for_is_asked_again() {
    for (status, times, is_read) in
        [(500, 2, true), (503, 3, true), (429, 1, true), (500, 4, false), (403, 1, false)]
    {
        let server = Server::start();
        server.put("big", content());
        server.fail("GET /bucket/big", times, Fault::Status(status));
        let (clouds, file) = place(&server, "big");
        let read = read(&file);
        assert_eq!(read.is_ok(), is_read, "{status} {times} times: {:?}", read.err());
        let expected = match status {
            403 => 0,
            _ => times.min(3) as u64,
        };
        assert_eq!(clouds.traffic().retries, expected, "{status}");
    }
}

#[test]
fn connection_that_breaks_is_made_again_once_the_server_has_answered() {
    for fault in [Fault::CutBody, Fault::Hangup] {
        for (part, times, is_read) in [
            ("GET /bucket/a/big", 3, true),
            ("GET /bucket/a/big", 4, false),
            ("prefix=a%2F", 3, true),
            ("continuation-token", 2, true),
            ("prefix=a%2F", 4, false),
        ] {
            let server = Server::start();
            for number in 0..10 {
                server.put(&format!("a/{number}"), "x");
            }
            server.put("a/big", content());
            let (clouds, folder) = place(&server, "a");
            assert!(folder.join("0").open().is_ok());
            server.fail(part, times, fault);
            let read = folder.list().and_then(|listed| {
                assert_eq!(listed.len(), 11, "{fault:?} {part}");
                read(&folder.join("big"))
            });
            let what = format!("{fault:?} {part} {times} times: {:?}", read.as_ref().err());
            assert_eq!(read.is_ok(), is_read, "{what}");
            assert!(read.is_ok_and(|bytes| bytes == content()) == is_read, "{what}");
            assert_eq!(clouds.traffic().retries, times.min(3) as u64, "{what}");
        }
    }
}

#[test]
fn server_that_never_answered_is_not_asked_again() {
    let server = Server::start();
    server.fail("GET /bucket/big", usize::MAX, Fault::Hangup);
    let (clouds, file) = place(&server, "big");
    let error = read(&file).unwrap_err();
    assert!(is_not_read(&error), "{error:?}");
    assert_eq!(clouds.traffic().retries, 0);
    let none = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", none.local_addr().unwrap());
    drop(none);
    let clouds = Clouds::new(Settings { endpoint: Some(endpoint), ..settings(&server) }).unwrap();
    let error = read(&clouds.place(Path::new("s3://bucket/big")).unwrap()).unwrap_err();
    assert!(is_not_read(&error) && clouds.traffic().retries == 0, "{error:?}");
}

#[test]
fn nothing_that_failed_is_taken_for_bytes_or_for_an_end() {
    for (fault, says) in [
        (Fault::Status(500), "SlowDown"),
        (Fault::Status(404), "removed while"),
        (Fault::Status(403), "403 Forbidden: AccessDenied: no): check that the credentials"),
        (Fault::CutBody, "the request failed"),
        (Fault::WrongRange, "another part"),
        (Fault::Replaced, "replaced or changed"),
        (Fault::ReplacedUnsaid, "replaced or changed"),
    ] {
        let server = Server::start();
        server.put("folder/big", content());
        let (clouds, folder) = place(&server, "folder");
        assert_eq!(folder.list().unwrap().len(), 1);
        server.fail("GET /bucket/folder/big", usize::MAX, fault);
        let error = read(&folder.join("big")).unwrap_err();
        let last = error.to_string();
        assert_eq!(clouds.trouble(), Some(Trouble { times: 1, last }));
        assert!(is_not_read(&error), "{fault:?}: {error:?}");
        assert!(error.to_string().contains(says), "{fault:?}: {error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

#[test]
fn server_that_says_nothing_is_given_up() {
    let server = Server::start();
    server.put("big", content());
    server.fail("GET /bucket/big", usize::MAX, Fault::Silence);
    let mut settings = settings(&server);
    settings.options.push(("read_timeout".to_owned(), "100ms".to_owned()));
    let clouds = Clouds::new(settings).unwrap();
    let error = read(&clouds.place(Path::new("s3://bucket/big")).unwrap()).unwrap_err();
    assert!(is_not_read(&error) && error.to_string().contains("timed out"), "{error:?}");
}

#[test]
fn list_that_fails_on_its_second_page_is_no_list() {
    let server = Server::start();
    for number in 0..20 {
        server.put(&format!("a/{number}"), "x");
    }
    server.fail("continuation-token", usize::MAX, Fault::Status(503));
    let (_clouds, folder) = place(&server, "a");
    let error = folder.list().unwrap_err();
    assert!(is_not_read(&error), "{error:?}");
    assert!(folder.join("0").open().is_ok(), "what is asked for by itself is there");
}

#[test]
fn object_is_the_one_that_was_seen_first() {
    let server = Server::start();
    server.put("a/x", "first");
    let (_clouds, folder) = place(&server, "a");
    folder.list().unwrap();
    server.put("a/x", "other");
    server.put("a/y", "new");
    let error = read(&folder.join("x")).unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
    let absent = folder.join("y").open().unwrap_err();
    assert_eq!(absent.kind(), io::ErrorKind::NotFound);
}

#[test]
fn file_by_plain_http_is_read_where_that_is_allowed() {
    let server = Server::start();
    server.put("x.tar", "by http");
    let mut settings = settings(&server);
    settings.options.retain(|(key, _)| key != "skip_signature");
    settings.options.push(("allow_http".to_owned(), "true".to_owned()));
    let clouds = Clouds::new(settings).unwrap();
    let address = PathBuf::from(format!("{}/bucket/x.tar", server.endpoint));
    let place = clouds.place(&address).unwrap();
    assert_eq!(place.look().unwrap(), Seen::File(7));
    assert_eq!(read(&place).unwrap(), b"by http");
}

#[test]
fn settings_that_cannot_be_used_are_refused_and_not_repeated() {
    let with = |key: &str, value: &str| Settings {
        options: vec![(key.to_owned(), value.to_owned())],
        ..Settings::default()
    };
    let secret = Clouds::new(with("secret_access_key", "canary-canary")).unwrap_err().to_string();
    assert!(secret.contains("AWS_SECRET_ACCESS_KEY") && !secret.contains("canary"), "{secret}");
    assert!(Clouds::new(with("retries", "x")).is_err());
    let clouds = Clouds::new(with("colour", "blue")).unwrap();
    let error = clouds.place(Path::new("s3://bucket/x")).unwrap_err().to_string();
    assert!(error.contains("colour"), "{error}");
}

#[test]
fn run_that_was_stopped_waits_for_nothing() {
    let server = Server::start();
    server.put("a/big", content());
    server.fail("GET /bucket/a/big", usize::MAX, Fault::Silence);
    let settings = settings(&server);
    let stop = std::sync::Arc::clone(&settings.stop);
    let clouds = Clouds::new(settings).unwrap();
    let folder = clouds.place(Path::new("s3://bucket/a")).unwrap();
    assert_eq!(folder.list().unwrap().len(), 1);
    let opened = folder.join("big").open().unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(opened.read_at(&mut [0; 10], 0).is_err());
}

/// Writes an object in small pieces, as a pack is.
fn written(server: &Server, bytes: &[u8]) -> (Clouds, io::Result<()>) {
    let clouds = Clouds::new(settings(server)).unwrap();
    let upload = clouds.upload(Path::new("s3://bucket/a/new"), None);
    let result = upload.map_err(io::Error::other).and_then(|mut upload| {
        bytes.chunks(1 << 20).try_for_each(|piece| upload.write_all(piece))?;
        upload.finish()
    });
    (clouds, result)
}

fn large() -> Vec<u8> {
    content().repeat(3)
}

#[test]
fn object_is_written_in_parts_or_at_once_and_never_over_another() {
    for bytes in [Vec::new(), b"small".to_vec(), large()] {
        let server = Server::start();
        let (clouds, result) = written(&server, &bytes);
        result.unwrap();
        assert!(server.get("a/new").unwrap() == bytes);
        assert_eq!(server.unfinished(), 0);
        let traffic = clouds.traffic();
        assert_eq!(traffic.sent_bytes, bytes.len() as u64);
        assert_eq!(traffic.requests, server.seen().len() as u64);
        let (_clouds, again) = written(&server, b"other");
        let error = again.unwrap_err().to_string();
        assert!(error.contains("not overwritten"), "{error}");
        assert!(server.get("a/new").unwrap() == bytes);
    }
}

#[test]
fn object_that_came_meanwhile_is_not_overwritten() {
    for bytes in [b"small".to_vec(), large()] {
        let server = Server::start();
        let clouds = Clouds::new(settings(&server)).unwrap();
        let mut upload = clouds.upload(Path::new("s3://bucket/a/new"), Some(1 << 20)).unwrap();
        upload.write_all(&bytes).unwrap();
        server.put("a/new", "of another");
        let error = upload.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(server.get("a/new").unwrap(), b"of another");
        assert_eq!((server.unfinished(), clouds.left_behind()), (0, None));
    }
}

#[test]
fn what_is_not_written_to_its_end_leaves_nothing() {
    for (part, times, fault, is_written) in [
        ("uploads", 2, Fault::Status(503), true),
        ("uploads", usize::MAX, Fault::Status(403), false),
        ("partNumber=2", 2, Fault::Status(500), true),
        ("partNumber=2", usize::MAX, Fault::Status(500), false),
        ("partNumber=3", usize::MAX, Fault::Status(403), false),
        ("partNumber=1&", usize::MAX, Fault::CutBody, false),
        // The part was taken, and the answer was lost; or the connection broke before.
        ("partNumber=1&", 2, Fault::CutBody, true),
        ("partNumber=2", 2, Fault::Hangup, true),
        ("POST /bucket/a/new?uploadId", usize::MAX, Fault::Status(400), false),
        // The object was made, and the answer was lost.
        ("POST /bucket/a/new?uploadId", usize::MAX, Fault::CutBody, true),
    ] {
        let server = Server::start();
        server.fail(part, times, fault);
        let (clouds, result) = written(&server, &large());
        let case = format!("{part} {fault:?}: {result:?}");
        assert_eq!(result.is_ok(), is_written, "{case}");
        assert_eq!(server.get("a/new").is_some(), is_written, "{case}");
        assert!(!is_written || server.get("a/new").unwrap() == large(), "{case}");
        assert_eq!((server.unfinished(), clouds.left_behind()), (0, None), "{case}");
        assert!(!case.contains("canary"), "{case}");
    }
}

/// Asked again, the store says that there is such an object: the very one that was sent.
#[test]
fn object_in_one_request_is_written_also_where_the_connection_breaks() {
    const PUT: &str = "PUT /bucket/a/new";
    for (times, fault, is_written) in [
        (1, Fault::CutBody, true),
        (2, Fault::Hangup, true),
        (usize::MAX, Fault::Hangup, false),
        (usize::MAX, Fault::Status(403), false),
    ] {
        let server = Server::start();
        server.fail(PUT, times, fault);
        let clouds = Clouds::new(settings(&server)).unwrap();
        let mut upload = clouds.upload(Path::new("s3://bucket/a/new"), Some(5)).unwrap();
        upload.refuse_existing().unwrap();
        upload.write_all(b"small").unwrap();
        let result = upload.finish();
        assert_eq!(result.is_ok(), is_written, "{times} {fault:?}: {result:?}");
        let there = server.get("a/new");
        assert_eq!(there.as_deref(), is_written.then_some(&b"small"[..]), "{times} {fault:?}");
    }
}

#[test]
fn upload_that_is_dropped_is_removed_and_what_cannot_be_is_told() {
    let server = Server::start();
    let begin = |settings| {
        let clouds = Clouds::new(settings).unwrap();
        let mut upload = clouds.upload(Path::new("s3://bucket/a/new"), None).unwrap();
        upload.write_all(&large()).unwrap();
        assert_eq!(server.unfinished(), 1);
        drop(upload);
        clouds
    };
    let clouds = begin(settings(&server));
    assert_eq!((server.unfinished(), clouds.left_behind()), (0, None));
    server.fail("DELETE", usize::MAX, Fault::Status(403));
    let words = begin(settings(&server)).left_behind().unwrap();
    assert!(
        words.contains("could not be removed") && words.contains("s3://bucket/a/new"),
        "{words}"
    );
    assert_eq!(server.unfinished(), 1);
}

#[test]
fn upload_ends_when_the_run_is_stopped() {
    let server = Server::start();
    let settings = settings(&server);
    let stop = std::sync::Arc::clone(&settings.stop);
    let clouds = Clouds::new(settings).unwrap();
    let mut upload = clouds.upload(Path::new("s3://bucket/a/new"), None).unwrap();
    upload.write_all(&content()).unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(upload.finish().is_err());
    assert_eq!((server.get("a/new"), server.unfinished()), (None, 0));
}

#[test]
fn only_objects_of_clouds_are_written() {
    let server = Server::start();
    let clouds = Clouds::new(settings(&server)).unwrap();
    for address in ["https://host/x", "s3://bucket", "s3://bucket/"] {
        assert!(clouds.upload(Path::new(address), None).is_err(), "{address}");
    }
}
