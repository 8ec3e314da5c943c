//! Pages that lead anywhere: each walk ends, and what it says is bounded.

use std::io::Write as _;

use super::*;
use crate::files::fixture;
use crate::files::tablespace::{Context, open_file};
use pagewarden_core::page::{PageFormat as _, RunVerdict};

const DEPTH: Depth =
    Depth { has_records: true, alone: Severity::Damage, together: Some(Severity::Damage) };

/// What is said of a file whose pages are all taken for sound, as if each had a right sum.
fn told(bytes: &[u8]) -> Option<Vec<Step>> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let opened = open_file(file.path(), Context::alone("t.ibd".to_owned())).ok()?;
    let mut pages = opened.file;
    let layout = opened.geometry.layout;
    let definitions = Definitions::default();
    let structure = Structure::watch(&mut pages, layout, &opened.allocated, DEPTH, &definitions)?;
    let count = bytes.len() / layout.page_size;
    let run = PageRun { first: PageNo(0), bytes: &bytes[..count * layout.page_size] };
    let mut standings = Standings::default();
    (0..count).for_each(|_| standings.push(Some(Standing::Ok)));
    structure.see(run, &standings);
    Some(structure.conclude())
}

fn real(name: &str) -> Option<Vec<u8>> {
    let bytes = fixture(name)?;
    let mut verdict = RunVerdict::default();
    let format = crate::page::InnodbPages::new(Layout::of_flags(0x21).unwrap());
    let whole = bytes.len() / 16_384 * 16_384;
    format.judge(PageRun { first: PageNo(0), bytes: &bytes[..whole] }, &mut verdict);
    assert_eq!(verdict.findings, [], "{name}");
    Some(bytes)
}

/// Real files with numbers in them that lead far away, or back.
#[test]
fn walks_over_pages_with_any_numbers_in_them_end() {
    let mut state = 7_u64;
    let mut random = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % end
    };
    let mut found = 0;
    for name in ["mysql-9.7/crc32-16k/dyn.ibd", "mysql-9.7/crc32-16k/red.ibd"] {
        let Some(sound) = real(name) else { return };
        assert_eq!(told(&sound).unwrap().len(), 0, "{name}");
        let pages = sound.len() / 16_384;
        for _ in 0..400 {
            let mut bytes = sound.clone();
            for _ in 0..=random(6) {
                // In half of them where headers and books are.
                let place = if random(2) == 0 { random(200) } else { random(16_380) };
                let at = random(pages) * 16_384 + place;
                let number = [0, 1, 2, u32::MAX, u32::MAX - 1, 1 << 31][random(6)];
                let number =
                    if random(2) == 0 { number } else { u32::try_from(random(pages)).unwrap() };
                bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            found += usize::from(told(&bytes).is_some_and(|steps| {
                assert!(steps.len() <= FAULTS_MAX);
                !steps.is_empty()
            }));
        }
    }
    assert!(found > 100, "{found}");
}

/// A value whose pages lead back to its first one, and two values with one page.
#[test]
fn long_value_that_leads_back_to_itself_ends() {
    let Some(sound) = real("mysql-9.7/crc32-16k/dyn.ibd") else { return };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&sound).unwrap();
    let opened = open_file(file.path(), Context::alone("t.ibd".to_owned())).unwrap();
    let mut pages = opened.file;
    let layout = opened.geometry.layout;
    let definitions = Definitions::default();
    let structure =
        Structure::watch(&mut pages, layout, &opened.allocated, DEPTH, &definitions).unwrap();
    let blob =
        |next, bytes| Fact { what: What::Type(TYPE_BLOB), next, index: bytes, ..Fact::default() };
    let long = |page, bytes| Long { of: 4, page, version: 38, bytes };
    let faults = |facts: Vec<Fact>, long: Vec<Long>| {
        let found = Found { long, ..Found::default() };
        let gathered = Gathered { facts, found, ..Gathered::default() };
        let mut faults = BTreeMap::new();
        structure.compare_long(&gathered, &mut faults);
        faults.into_keys().collect::<Vec<_>>()
    };
    let chain = || vec![blob(Some(1), 10), blob(Some(2), 10), blob(None, 5)];
    assert_eq!(faults(chain(), vec![long(0, 25)]), [0_u32; 0]);
    assert_eq!(faults(chain(), vec![long(0, 26)]), [0]);
    assert_eq!(faults(chain(), vec![long(0, 25), long(1, 15)]), [1]);
    assert_eq!(faults(chain(), vec![long(77, 5)]), [4]);
    let circle = vec![blob(Some(1), 10), blob(Some(0), 10)];
    assert_eq!(faults(circle, vec![long(0, 20)]), [0]);
    assert_eq!(faults(vec![blob(Some(9), 10)], vec![long(0, 20)]), [0]);
}

#[test]
fn compressed_page_with_any_bytes_ends() {
    for byte in 0..=255_u8 {
        let mut bytes = vec![byte; 8192];
        bytes[24..26].copy_from_slice(&crate::page::index::TYPE_INDEX.to_be_bytes());
        let page = IndexPage::new(&bytes).unwrap();
        assert!(zip::unpack(&page, 16_384).is_err(), "{byte}");
    }
}

/// Compressed pages of real servers: each unpacks to one whose list and directory are sound; and any
/// bit of what is outside of the stream is either found or makes another page, never a panic.
#[test]
fn compressed_pages_of_real_servers_unpack() {
    let files = [
        ("mysql-9.7/crc32-16k/zip8.ibd", 8192, 16_384),
        ("mysql-9.7/crc32-16k/zip4.ibd", 4096, 16_384),
        ("mysql-9.7/innodb-4k/zip4.ibd", 4096, 4096),
        ("mariadb-10.11/crc32-16k/zip1.ibd", 1024, 16_384),
        ("mariadb-10.11/crc32-16k/zip4.ibd", 4096, 16_384),
        ("mariadb-10.11/crc32-16k/zip8.ibd", 8192, 16_384),
        ("mariadb-10.11/full_crc32-16k/zip1.ibd", 1024, 16_384),
        ("mariadb-10.11/full_crc32-16k/zip8.ibd", 8192, 16_384),
    ];
    for (name, stored, clear) in files {
        let Some(bytes) = fixture(name) else { return };
        let (mut pages, mut wounds, mut found) = (0, 0, 0);
        for page in bytes.chunks_exact(stored) {
            let Some(index) = IndexPage::new(page) else { continue };
            let unpacked =
                zip::unpack(&index, clear).unwrap_or_else(|words| panic!("{name}: {words}"));
            assert_eq!(IndexPage::new(&unpacked).unwrap().test(), Ok(()), "{name}");
            pages += 1;
            for at in (38..94).chain((94..stored).step_by(97)) {
                let mut page = page.to_vec();
                page[at] ^= 1 << (at % 8);
                let again = zip::unpack(&IndexPage::new(&page).unwrap(), clear);
                wounds += 1;
                found += usize::from(again.is_err_and(|words| !words.is_empty()));
            }
        }
        assert!(pages > 1 && found > wounds / 10, "{name}: {pages} pages, {found} of {wounds}");
    }
}
