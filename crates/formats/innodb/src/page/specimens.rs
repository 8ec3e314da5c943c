//! What the conformance suite tries the format on: every layout, every sum.

use std::io::Write as _;
use std::ops::Range;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::InnodbPages;
use super::compression::{Unpacked, unpack_mariadb, unpack_mysql};
use super::fields::{
    CHECKSUM, ENCRYPTED_SUM, KEY_VERSION, LSN, MARIADB_ALGORITHM, MARIADB_PAYLOAD,
    MARIADB_PAYLOAD_BYTES, MYSQL_ALGORITHM, MYSQL_ORIGINAL_BYTES, MYSQL_ORIGINAL_TYPE,
    MYSQL_STORED_BYTES, MYSQL_VERSION, PAGE_NUMBER, PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED,
    TYPE_COMPRESSED_MARK, TYPE_PAGE_COMPRESSED, read_u16, read_u32,
};
use super::layout::{Form, Layout};
use crate::checksum::fold::{new_fold, old_fold};
use crate::checksum::{BODY_BEGIN, NO_CHECKSUM_MAGIC, crc32, full_crc32, zip_adler32, zip_crc32};
use crate::page::index::TYPE_INDEX;
use pagewarden_core::crc::crc32c;
use pagewarden_core::page::Specimen;
use pagewarden_core::verdict::{PageNo, Standing};

const SIZE: usize = 4096;
const ZIP_SIZE: usize = 1024;
const NUMBER: u32 = 5;
const SPACE: u32 = 42;
/// Bytes that a page_compressed page of `full_crc32` keeps.
const STORED: usize = 3840;
/// Two bits, so that no flip makes it 0, which is "not encrypted".
const KEY: u32 = 3;

/// See the module.
pub fn specimens() -> Vec<Specimen> {
    let uncovered: Vec<_> = std::iter::once(KEY_VERSION..SPACE_ID).collect();
    let body = SIZE - 8;
    vec![
        specimen("innodb page, crc32", Form::Old, stamp_crc32, uncovered.clone()),
        specimen("innodb page, innodb", Form::Old, stamp_fold, uncovered),
        Specimen {
            standing: Standing::Unprotected,
            stamp: None,
            // Number, LSN pair, space id and the marks themselves are all that is tested.
            blind_bytes: vec![8..LSN + 4, PAGE_TYPE..SPACE_ID, BODY_BEGIN..body],
            ..specimen("innodb page, none", Form::Old, stamp_none, Vec::new())
        },
        specimen("innodb page, full_crc32", Form::FullCrc32, stamp_full_crc32, Vec::new()),
        specimen(
            "innodb page, full_crc32, page_compressed",
            Form::FullCrc32,
            stamp_full_crc32_compressed,
            std::iter::once(STORED..SIZE).collect(),
        ),
        specimen(
            "innodb page, encrypted by MariaDB",
            Form::Old,
            stamp_encrypted,
            vec![CHECKSUM..PAGE_NUMBER, KEY_VERSION..ENCRYPTED_SUM, body..SIZE - 4],
        ),
        page_compressed(),
        compressed_by_mysql(),
        specimen(
            "innodb zip page, crc32",
            Form::Zip,
            stamp_zip_crc32,
            vec![LSN..PAGE_TYPE, KEY_VERSION..SPACE_ID],
        ),
        specimen(
            "innodb zip page, innodb",
            Form::Zip,
            stamp_zip_adler,
            vec![LSN..PAGE_TYPE, KEY_VERSION..SPACE_ID],
        ),
    ]
}

type Stamp = fn(&mut [u8], PageNo);

fn specimen(
    name: &'static str,
    form: Form,
    stamp: Stamp,
    blind_bytes: Vec<Range<usize>>,
) -> Specimen {
    let size = if form == Form::Zip { ZIP_SIZE } else { SIZE };
    let mut format = InnodbPages::new(Layout::guessed(form, size));
    format.space_id = Some(SPACE);
    let page = PageNo(u64::from(NUMBER));
    let mut good = content(size);
    stamp(&mut good, page);
    Specimen {
        name,
        format: Box::new(format),
        page,
        good,
        standing: Standing::Ok,
        stamp: Some(stamp),
        blind_bytes,
        blind_bits: Vec::new(),
        zero: Standing::Empty,
    }
}

/// A page in use, without a number and a sum.
fn content(size: usize) -> Vec<u8> {
    let mut page: Vec<u8> =
        (0..size).map(|at| u8::try_from(at.wrapping_mul(at / 7) % 251).unwrap_or(0)).collect();
    put(&mut page, 8, &[0xff; 8]);
    put(&mut page, LSN, &0x0001_2345_6789_u64.to_be_bytes());
    put(&mut page, PAGE_TYPE, &TYPE_INDEX.to_be_bytes());
    put(&mut page, KEY_VERSION, &[0; 8]);
    put(&mut page, SPACE_ID, &SPACE.to_be_bytes());
    page
}

fn put(page: &mut [u8], offset: usize, bytes: &[u8]) {
    let place = page.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len()));
    if let Some(place) = place {
        place.copy_from_slice(bytes);
    }
}

/// Writes number and space id; numbers are 32 bits wide.
fn address(page: &mut [u8], number: PageNo) {
    let number = u32::try_from(number.0 & u64::from(u32::MAX)).unwrap_or(0);
    put(page, PAGE_NUMBER, &number.to_be_bytes());
    put(page, SPACE_ID, &SPACE.to_be_bytes());
}

/// The low half of the LSN, `behind` bytes before the end.
fn close(page: &mut [u8], behind: usize) {
    let low = read_u32(page, LSN + 4);
    let at = page.len().saturating_sub(behind);
    put(page, at, &low.to_be_bytes());
}

fn put_both(page: &mut [u8], first: u32, second: u32) {
    put(page, CHECKSUM, &first.to_be_bytes());
    let at = page.len().saturating_sub(8);
    put(page, at, &second.to_be_bytes());
}

fn stamp_crc32(page: &mut [u8], number: PageNo) {
    address(page, number);
    close(page, 4);
    let sum = crc32(page);
    put_both(page, sum, sum);
}

fn stamp_fold(page: &mut [u8], number: PageNo) {
    address(page, number);
    close(page, 4);
    let sum = new_fold(page);
    put(page, CHECKSUM, &sum.to_be_bytes());
    let second = old_fold(page);
    put_both(page, sum, second);
}

fn stamp_none(page: &mut [u8], number: PageNo) {
    address(page, number);
    close(page, 4);
    put_both(page, NO_CHECKSUM_MAGIC, NO_CHECKSUM_MAGIC);
}

fn stamp_full_crc32(page: &mut [u8], number: PageNo) {
    put(page, CHECKSUM, &[0; 4]);
    address(page, number);
    // A page of 4K may not call itself compressed by chance.
    close(page, 8);
    let sum = full_crc32(page);
    let at = page.len().saturating_sub(4);
    put(page, at, &sum.to_be_bytes());
}

fn stamp_full_crc32_compressed(page: &mut [u8], number: PageNo) {
    let page_type = TYPE_COMPRESSED_MARK | u16::try_from(STORED / 256).unwrap_or(0);
    put(page, PAGE_TYPE, &page_type.to_be_bytes());
    let space = read_u32(page, SPACE_ID);
    address(page, number);
    put(page, SPACE_ID, &space.to_be_bytes());
    let sum = full_crc32(page.get(..STORED).unwrap_or_default());
    put(page, STORED - 4, &sum.to_be_bytes());
}

fn stamp_encrypted(page: &mut [u8], number: PageNo) {
    address(page, number);
    close(page, 4);
    put(page, KEY_VERSION, &KEY.to_be_bytes());
    let sum = crc32(page);
    put(page, ENCRYPTED_SUM, &sum.to_be_bytes());
}

fn stamp_zip_crc32(page: &mut [u8], number: PageNo) {
    address(page, number);
    let sum = zip_crc32(page);
    put(page, CHECKSUM, &sum.to_be_bytes());
}

fn stamp_zip_adler(page: &mut [u8], number: PageNo) {
    address(page, number);
    let sum = zip_adler32(page);
    put(page, CHECKSUM, &sum.to_be_bytes());
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// A page that compresses to nearly its size, so that every sector of the result matters; it
/// differs with `seed`.
fn compressible(seed: u32) -> Vec<u8> {
    let mut page = content(SIZE);
    let mut state = u64::from(seed);
    for byte in page.iter_mut().skip(BODY_BEGIN) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        // Seven bits of entropy in eight.
        *byte = state.to_be_bytes().first().copied().unwrap_or(0) & 0x7f;
    }
    page
}

/// The page inside, or another one if there is none: so a stamp changes no page that is as it
/// should be, and makes a new one of any other.
fn inside(page: &[u8], unpacked: Unpacked, number: PageNo) -> Vec<u8> {
    let mut inner = match unpacked {
        Unpacked::Page(inner) => inner,
        Unpacked::Unsupported | Unpacked::Broken(_) => compressible(crc32c(page)),
    };
    stamp_crc32(&mut inner, number);
    inner
}

fn page_compressed() -> Specimen {
    let stamp: Stamp = |page, number| {
        let inner = inside(page, unpack_mariadb(page), number);
        page.fill(0);
        put(page, 0, inner.get(..BODY_BEGIN).unwrap_or_default());
        put(page, CHECKSUM, &NO_CHECKSUM_MAGIC.to_be_bytes());
        put(page, PAGE_TYPE, &TYPE_PAGE_COMPRESSED.to_be_bytes());
        put(page, MARIADB_ALGORITHM, &1_u64.to_be_bytes());
        let payload = deflated(&inner);
        let length = u16::try_from(payload.len()).unwrap_or(0);
        put(page, MARIADB_PAYLOAD_BYTES, &length.to_be_bytes());
        put(page, MARIADB_PAYLOAD, &payload);
    };
    let mut specimen = specimen("innodb page, page_compressed", Form::Old, stamp, Vec::new());
    let length = usize::from(read_u16(&specimen.good, MARIADB_PAYLOAD_BYTES));
    specimen.blind_bytes = std::iter::once(MARIADB_PAYLOAD.saturating_add(length)..SIZE).collect();
    specimen.blind_bits = unused_bits(MARIADB_PAYLOAD, length, 1);
    specimen
}

fn compressed_by_mysql() -> Specimen {
    let stamp: Stamp = |page, number| {
        let inner = inside(page, unpack_mysql(page), number);
        page.fill(0);
        put(page, 0, inner.get(..BODY_BEGIN).unwrap_or_default());
        put(page, PAGE_TYPE, &TYPE_COMPRESSED.to_be_bytes());
        put(page, MYSQL_VERSION, &[2]);
        put(page, MYSQL_ALGORITHM, &[1]);
        put(page, MYSQL_ORIGINAL_TYPE, &TYPE_INDEX.to_be_bytes());
        let original = u16::try_from(SIZE.saturating_sub(BODY_BEGIN)).unwrap_or(0);
        put(page, MYSQL_ORIGINAL_BYTES, &original.to_be_bytes());
        let payload = deflated(inner.get(BODY_BEGIN..).unwrap_or_default());
        let length = u16::try_from(payload.len()).unwrap_or(0);
        put(page, MYSQL_STORED_BYTES, &length.to_be_bytes());
        put(page, BODY_BEGIN, &payload);
    };
    // Without the flag of encryption type 14 cannot hide as type 15.
    let layout = Layout { may_be_encrypted: false, ..Layout::guessed(Form::Old, SIZE) };
    let mut format = InnodbPages::new(layout);
    format.space_id = Some(SPACE);
    let mut specimen = specimen("innodb page, compressed by MySQL", Form::Old, stamp, Vec::new());
    specimen.format = Box::new(format);
    let length = usize::from(read_u16(&specimen.good, MYSQL_STORED_BYTES));
    // The version is not used, and nothing covers it.
    specimen.blind_bytes =
        vec![MYSQL_VERSION..MYSQL_ALGORITHM, BODY_BEGIN.saturating_add(length)..SIZE];
    specimen.blind_bits = unused_bits(BODY_BEGIN, length, 6);
    specimen
}

/// The bits of a deflate stream's last byte, before the Adler-32, that mean nothing.
fn unused_bits(begin: usize, length: usize, first: u8) -> Vec<(usize, u8)> {
    const ADLER_BYTES: usize = 4;
    let last = begin.saturating_add(length).saturating_sub(ADLER_BYTES).saturating_sub(1);
    (first..8).map(|bit| (last, bit)).collect()
}
