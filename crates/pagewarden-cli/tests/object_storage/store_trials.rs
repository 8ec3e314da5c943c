//! What tells one store from another, tried on the real ones of [`stores`](super::stores): lists of more
//! than one answer, names, and objects that change while they are read.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use super::comparable;
use super::sqlserver::assert_same_at;
use super::stores::{KINDS, Kind, Store, silent};
use crate::runner::{pagewarden, run};
use crate::sqlserver::chains::{CHAIN, folder_of};

/// Stores list a thousand keys at once.
const KEYS: usize = 1005;
/// Names that an address must have in another form, or that sort differently there.
const NAMES: [&str; 6] =
    ["sp ace", "plus+", "per%20cent", "question?&=", "\u{e4}\u{4e2d}\u{1f600}", "#'()"];

fn sqlite(path: &Path, rows: usize) {
    let make = format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
        INSERT INTO t SELECT i, randomblob(3000) FROM n;"
    );
    silent(Command::new("sqlite3").arg(path).arg(make));
}

/// Puts a folder into each store, and compares what is found there with what is found here.
fn assert_found_as_on_a_disk(kinds: impl Iterator<Item = Kind>, folder: &Path, count: usize) {
    let here = run(pagewarden().args(["check", "--json"]).arg(folder));
    assert_eq!(here.status, Some(0), "{}", here.stderr);
    let here = here.report().json;
    assert_eq!(here["targets"].as_array().unwrap().len(), count);
    for kind in kinds {
        let Some(store) = Store::start(kind) else { continue };
        store.put_folder("a b+c/all", folder);
        let address = store.address("a b+c/all");
        let there = run(&mut store.command("check", &["--json", &address]));
        assert_eq!(there.status, Some(0), "{kind:?}: {}", there.stderr);
        let mut there = there.report().json;
        // There each of them is copied to be read, and says so.
        for target in there["targets"].as_array_mut().unwrap() {
            let notes = target["notes"].as_array_mut().unwrap();
            notes.retain(|note| !note["text"].as_str().unwrap().starts_with("it was copied"));
        }
        let (there, here) =
            (comparable(&there, &address), comparable(&here, folder.to_str().unwrap()));
        assert!(there == here, "{kind:?}: {there:.3000}\n{here:.3000}");
    }
}

#[test]
fn databases_under_any_name_and_in_lists_of_more_than_one_answer_are_all_found() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.sqlite");
    sqlite(&first, 1);
    for name in NAMES {
        let below = folder.path().join(name);
        fs::create_dir(&below).unwrap();
        fs::copy(&first, below.join(format!("{name}.sqlite"))).unwrap();
    }
    for number in NAMES.len() + 1..KEYS {
        fs::copy(&first, folder.path().join(format!("{number}.sqlite"))).unwrap();
    }
    assert_found_as_on_a_disk(KINDS.into_iter(), folder.path(), KEYS);
}

#[test]
fn folders_in_lists_of_more_than_one_answer_are_all_found() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.sqlite");
    sqlite(&first, 1);
    for number in 1..KEYS {
        let below = folder.path().join(format!("customer {number}"));
        fs::create_dir(&below).unwrap();
        fs::copy(&first, below.join("shop.sqlite")).unwrap();
    }
    let kinds = KINDS.into_iter().filter(|kind| kind.is_s3());
    assert_found_as_on_a_disk(kinds, folder.path(), KEYS);
}

#[test]
fn backups_of_sql_server_in_real_stores_are_put_together_as_on_a_disk() {
    let Some(folder) = folder_of(&CHAIN) else { return };
    let here = run(pagewarden().args(["check", "--json"]).arg(folder.path()));
    for kind in KINDS {
        let Some(store) = Store::start(kind) else { continue };
        store.put_folder("sql", folder.path());
        let address = store.address("sql");
        let there = run(&mut store.command("check", &["--json", &address]));
        assert_eq!(there.status, here.status, "{kind:?}: {}", there.stderr);
        let (there, here) = (there.report().json, here.report().json);
        assert_same_at(&address, there, here, folder.path());
    }
}

/// Lets everything through to a port, and once, when this number of bytes came back from there, does something
/// before the next ones come.
fn way_to(port: u16, bytes: u64, then: impl FnOnce() + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let way = listener.local_addr().unwrap().port();
    let state = Arc::new(Mutex::new((bytes, Some(then))));
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from_near, mut to_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut from_near, &mut to_far);
                let _ = to_far.shutdown(Shutdown::Write);
            });
            let state = Arc::clone(&state);
            thread::spawn(move || back(far, near, &state));
        }
    });
    way
}

fn back<T: FnOnce()>(mut far: TcpStream, mut near: TcpStream, state: &Mutex<(u64, Option<T>)>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = far.read(&mut bytes) {
        let mut state = state.lock().unwrap();
        state.0 = state.0.saturating_sub(count as u64);
        if state.0 == 0
            && let Some(then) = state.1.take()
        {
            then();
        }
        drop(state);
        if near.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = near.shutdown(Shutdown::Both);
}

#[test]
fn object_that_changes_while_it_is_read_is_not_read_on_from_real_stores() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    // Of the same length, longer than all that is fetched ahead.
    sqlite(&old, 12_000);
    sqlite(&new, 12_000);
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    assert_eq!(length(&old), length(&new));
    // fake-gcs-server answers at no other port than its own.
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Google) {
        let Some(store) = Store::start(kind) else { continue };
        let store = Arc::new(store);
        let key = "a b+c/shop.sqlite".to_owned();
        store.put(&[(key.clone(), old.clone())]);
        let address = store.address(&key);
        let check = ["--json", address.as_str()];
        let sound = way_to(store.port, u64::MAX, || ());
        let sound = run(&mut store.command_by_port(sound, "check", &check));
        assert_eq!(sound.status, Some(0), "{kind:?}: {}{}", sound.stdout, sound.stderr);
        let (changing, new) = (Arc::clone(&store), new.clone());
        let way = way_to(store.port, 1 << 20, move || changing.put(&[(key, new)]));
        let changed = run(&mut store.command_by_port(way, "check", &check));
        let case = format!("{kind:?}: {}{}", changed.stdout, changed.stderr);
        assert_eq!(changed.status, Some(2), "{case}");
        assert!(case.contains("replaced or changed while the run read it"), "{case}");
    }
}
