//! Pages made by hand, judged one by one. Those of real servers are in `tests/innodb.rs`.

#![allow(clippy::arithmetic_side_effects, reason = "small numbers of a test")]

use super::*;
use crate::page::compression::set_type;
use crate::page::fields::{
    BODY, MARIADB_PAYLOAD, MYSQL_ALGORITHM, MYSQL_ORIGINAL_BYTES, MYSQL_ORIGINAL_TYPE,
    MYSQL_STORED_BYTES,
};

const SIZE: usize = 4096;

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Page 3 with the marks of the algorithm `none`, and this low half of the LSN at its end.
fn without_sum(trailer: u32) -> Vec<u8> {
    let mut page = vec![7; SIZE];
    put(&mut page, CHECKSUM, &NO_CHECKSUM_MAGIC.to_be_bytes());
    put(&mut page, PAGE_NUMBER, &3_u32.to_be_bytes());
    put(&mut page, LSN, &0x18_b86f_u64.to_be_bytes());
    set_type(&mut page, 17_855);
    put(&mut page, KEY_VERSION, &[0; 12]);
    put(&mut page, SIZE - 8, &NO_CHECKSUM_MAGIC.to_be_bytes());
    put(&mut page, SIZE - 4, &trailer.to_be_bytes());
    page
}

/// The same as MySQL compresses it: what follows the payload is zero.
fn compressed_by_mysql(inner: &[u8]) -> Vec<u8> {
    let payload = lz4_flex::block::compress(&inner[BODY..]);
    let mut page = inner[..BODY].to_vec();
    page.resize(SIZE, 0);
    set_type(&mut page, TYPE_COMPRESSED);
    page[MYSQL_ALGORITHM] = 2;
    put(&mut page, MYSQL_ORIGINAL_TYPE, &17_855_u16.to_be_bytes());
    put(&mut page, MYSQL_ORIGINAL_BYTES, &u16::try_from(SIZE - BODY).unwrap().to_be_bytes());
    put(&mut page, MYSQL_STORED_BYTES, &u16::try_from(payload.len()).unwrap().to_be_bytes());
    put(&mut page, BODY, &payload);
    page
}

fn compressed_by_mariadb(inner: &[u8]) -> Vec<u8> {
    let payload = lz4_flex::block::compress(inner);
    let mut page = inner[..BODY].to_vec();
    page.resize(SIZE, 0);
    set_type(&mut page, TYPE_PAGE_COMPRESSED);
    put(&mut page, KEY_VERSION, &2_u64.to_be_bytes());
    put(&mut page, MARIADB_PAYLOAD_BYTES, &u16::try_from(payload.len()).unwrap().to_be_bytes());
    put(&mut page, MARIADB_PAYLOAD, &payload);
    page
}

/// What a longer page left behind the payload is no part of the page.
#[test]
fn bytes_behind_a_payload_do_not_count() {
    let inner = without_sum(0x18_b86f);
    for stored in [compressed_by_mysql(&inner), compressed_by_mariadb(&inner)] {
        let mut with_rest = stored.clone();
        let last = with_rest.last_mut().unwrap();
        *last = 0xE7;
        assert!(matches!(pages().look(3, &with_rest, None), Look::Sound(..)), "a server reads it");
        assert_eq!(pages().counted(&with_rest), pages().counted(&stored));
        let mut other = stored.clone();
        other[BODY + 9] ^= 1;
        assert_ne!(pages().counted(&other), pages().counted(&stored));
    }
    assert_eq!(pages().counted(&inner).len(), SIZE);
}

fn pages() -> InnodbPages {
    InnodbPages::new(Layout::guessed(Form::Old, SIZE))
}

/// The padding at the end of a compressed page is no LSN; that of the page inside is.
#[test]
fn page_without_a_sum_that_was_compressed_is_judged_by_the_page_inside() {
    for pack in [compressed_by_mysql, compressed_by_mariadb] {
        let look = |trailer| pages().look(3, &pack(&without_sum(trailer)), None);
        assert_eq!(look(0x18_b86f), Look::Sound(Standing::Unprotected, Protection::None));
        assert!(matches!(look(5), Look::Faulty(fault) if fault.kind == Kind::Torn));
    }
    let look = |trailer| pages().look(3, &without_sum(trailer), None);
    assert_eq!(look(0x18_b86f), Look::Sound(Standing::Unprotected, Protection::None));
    assert!(matches!(look(5), Look::Faulty(fault) if fault.kind == Kind::Torn));
}

#[test]
fn copy_without_a_sum_in_the_doublewrite_area_is_no_failing_one() {
    let mut format = pages();
    format.doublewrite = std::iter::once(0..10).collect();
    let page = without_sum(0x18_b86f);
    for copy in [page.clone(), compressed_by_mysql(&page), compressed_by_mariadb(&page)] {
        let sound = Look::Sound(Standing::Unprotected, Protection::None);
        assert_eq!(format.look(8, &copy, None), sound);
    }
    // One of a smaller page of ROW_FORMAT=COMPRESSED, with older bytes behind it.
    let zip = [&page[..1024], &[9; SIZE - 1024]].concat();
    assert_eq!(format.look(8, &zip, None), Look::Sound(Standing::Unprotected, Protection::None));
}

#[test]
fn place_for_copies_that_was_never_used_is_empty_and_a_failing_copy_is_a_notice() {
    let mut format = pages();
    format.doublewrite = std::iter::once(0..u64::MAX).collect();
    let mut bytes = vec![0; 2 * SIZE];
    bytes.extend([3; SIZE]);
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first: PageNo(0), bytes: &bytes }, &mut verdict);
    assert_eq!(verdict.counts.empty, 2);
    let found: Vec<_> = verdict.findings.iter().map(|it| (it.page.0, it.severity)).collect();
    assert_eq!(found, [(2, Severity::Notice)]);
    // The first page of a tablespace is another matter.
    format.doublewrite.clear();
    let mut verdict = RunVerdict::default();
    format.judge(PageRun { first: PageNo(0), bytes: &bytes[..SIZE] }, &mut verdict);
    assert_eq!(verdict.findings[0].kind, Kind::Zeroed);
}

/// Its type was overwritten: the first page of a tablespace is never encrypted.
#[test]
fn first_page_that_calls_itself_encrypted_is_tested_all_the_same() {
    for page_type in [TYPE_ENCRYPTED, TYPE_PAGE_COMPRESSED_ENCRYPTED] {
        let mut page = without_sum(0x18_b86f);
        put(&mut page, CHECKSUM, &[1, 2, 3, 4]);
        set_type(&mut page, page_type);
        assert!(matches!(pages().look(3, &page, None), Look::Sound(Standing::Unverifiable, _)));
        put(&mut page, PAGE_NUMBER, &[0; 4]);
        assert!(matches!(pages().look(0, &page, None), Look::Faulty(_)));
    }
}

/// Page 0 is written last when a tablespace is encrypted in its place: until then it says nothing of
/// a key.
#[test]
fn page_encrypted_since_page_zero_was_written_needs_a_key_and_is_no_damage() {
    let mut page = without_sum(0x18_b86f);
    put(&mut page, CHECKSUM, &77_u32.to_be_bytes());
    put(&mut page, SPACE_ID, &5_u32.to_be_bytes());
    set_type(&mut page, TYPE_ENCRYPTED);
    let layout = Layout { may_be_encrypted: false, ..Layout::guessed(Form::Old, SIZE) };
    let mut pages = InnodbPages::new(layout);
    pages.space_id = Some(5);
    assert!(matches!(pages.look(3, &page, None), Look::Faulty(_)));
    pages.may_be_encrypted_since = true;
    let locked = Look::Sound(Standing::Unverifiable, Protection::Checksum);
    assert_eq!(pages.look(3, &page, None), locked);
    assert!(matches!(pages.look(4, &page, None), Look::Faulty(_)), "its place is in the clear");
}
