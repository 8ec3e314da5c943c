//! What is refused, by name, before anything is written.

use std::fs;

use super::{FULL, LOG, PUBS, Place, data_file, request, run};
use crate::checksum::PAGE_BYTES;
use pagewarden_core::repair::{Request, Verdict};

fn wounded(sound: &[u8]) -> Vec<u8> {
    let mut file = sound.to_vec();
    file[80 * PAGE_BYTES + 200..][..30].fill(0xE7);
    file
}

#[test]
fn sources_of_another_database_are_refused_by_name() {
    let place = Place::new();
    let (Some(full), Some(pubs)) = (place.put_fixture(FULL), place.put_fixture(PUBS)) else {
        return;
    };
    let path = place.put("data/shop.mdf", &wounded(&data_file(&full)));
    let copy = place.put("other/pubs.mdf", &data_file(&pubs));
    let text = place.put("text/readme.txt", b"no backup");
    let cases = [
        (&pubs, "a copy of another database"),
        (&copy, "a copy of another database"),
        (&text, "neither a SQL Server backup nor a copy"),
        (&path, "this is a file that is to be repaired"),
    ];
    for (source, reason) in cases {
        let error = run(&request(&path, &[source])).unwrap_err().to_string();
        assert!(error.contains(reason), "{}: {error}", source.display());
        assert!(error.contains(source.file_name().unwrap().to_str().unwrap()), "{error}");
    }
    // In a folder, they are passed.
    let outcome = run(&request(&path, &[place.folder.path()])).unwrap();
    assert_eq!(outcome.verdict, Verdict::Planned, "{outcome:#?}");
    assert!(outcome.is_whole());
}

#[test]
fn database_is_not_changed_in_place() {
    let place = Place::new();
    let Some(full) = place.put_fixture(FULL) else { return };
    let before = wounded(&data_file(&full));
    let path = place.put("data/shop.mdf", &before);
    let error = run(&Request { write: true, ..request(&path, &[&full]) }).unwrap_err();
    assert!(error.to_string().contains("not changed in place"), "{error}");
    assert!(error.hint().unwrap().contains("--copy-to"));
    let here = Some(place.path("data"));
    let into_itself = Request { write: true, copy_to: here, ..request(&path, &[&full]) };
    assert!(run(&into_itself).unwrap_err().to_string().contains("not changed in place"));
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(fs::read_dir(place.path("data")).unwrap().count(), 1);
}

#[test]
fn logs_and_backups_are_no_databases() {
    let place = Place::new();
    let (Some(full), Some(log)) = (place.put_fixture(FULL), place.put_fixture(LOG)) else { return };
    for path in [&full, &log] {
        let error = run(&request(path, &[&full])).unwrap_err().to_string();
        assert!(error.contains("a backup, which is no database"), "{error}");
    }
}

#[test]
fn copy_overwrites_nothing() {
    let place = Place::new();
    let Some(full) = place.put_fixture(FULL) else { return };
    let path = place.put("data/shop.mdf", &wounded(&data_file(&full)));
    let other = place.put("copy/shop.mdf", b"something else");
    let request =
        Request { write: true, copy_to: Some(place.path("copy")), ..request(&path, &[&full]) };
    run(&request).unwrap_err();
    assert_eq!(fs::read(other).unwrap(), b"something else");
}
