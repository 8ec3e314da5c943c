//! The page inside a compressed page.
//!
//! | who | page | algorithms |
//! |---|---|---|
//! | MariaDB, old layout, type 34354 | the payload is a whole page with its own header and sum | 1 zlib, 2 lz4, 3 lzo, 4 lzma, 5 bzip2, 6 snappy |
//! | MySQL, type 14 | the payload is all from byte 38 on; the header stayed | 1 zlib, 2 lz4 |
//!
//! A payload is unpacked into memory of one page, never more; what asks for more, ends early or
//! does not use up its bytes is damaged. No well-kept library unpacks lzo.
//!
//! Sources: MariaDB `fil0pagecompress.cc`; MySQL `file.cc`.

use flate2::{Decompress, FlushDecompress, Status};

use super::fields::{
    BODY, MARIADB_ALGORITHM, MARIADB_PAYLOAD, MARIADB_PAYLOAD_BYTES, MYSQL_ALGORITHM,
    MYSQL_ORIGINAL_BYTES, MYSQL_ORIGINAL_TYPE, MYSQL_STORED_BYTES, PAGE_TYPE, read_u16, read_u64,
};

/// How a payload was compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// zlib.
    Zlib,
    /// LZ4, one block.
    Lz4,
    /// LZO1X, which cannot be unpacked here.
    Lzo,
    /// LZMA, one .xz stream.
    Lzma,
    /// bzip2.
    Bzip2,
    /// Snappy, one block.
    Snappy,
}

/// MariaDB numbers them from 1 to this.
const ALGORITHMS: u64 = 6;

impl Algorithm {
    /// MariaDB's number for it.
    #[must_use]
    pub fn of_mariadb(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Zlib,
            2 => Self::Lz4,
            3 => Self::Lzo,
            4 => Self::Lzma,
            5 => Self::Bzip2,
            6 => Self::Snappy,
            _ => return None,
        })
    }

    fn of_mysql(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Zlib),
            2 => Some(Self::Lz4),
            _ => None,
        }
    }
}

/// What came out of a compressed page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unpacked {
    /// The page.
    Page(Vec<u8>),
    /// Nothing, because this library does not know how.
    Unsupported,
    /// Nothing: it cannot be a compressed page. In words, why.
    Broken(&'static str),
}

const BAD_PAYLOAD: Unpacked = Unpacked::Broken("its payload cannot be unpacked");
const BAD_LENGTH: Unpacked = Unpacked::Broken("its payload has an impossible length");
const BAD_ALGORITHM: Unpacked = Unpacked::Broken("it names no known algorithm");

/// Unpacks a page of type 34354 of MariaDB's old layout.
#[must_use]
pub fn unpack_mariadb(page: &[u8]) -> Unpacked {
    let Some(algorithm) = Algorithm::of_mariadb(read_u64(page, MARIADB_ALGORITHM)) else {
        return BAD_ALGORITHM;
    };
    let length = usize::from(read_u16(page, MARIADB_PAYLOAD_BYTES));
    let rest = page.get(MARIADB_PAYLOAD..).unwrap_or_default();
    match rest.get(..length) {
        Some(payload) if length > 0 => unpack(algorithm, payload, page.len()),
        _ => BAD_LENGTH,
    }
}

/// What the payload of such a page may hold, if it is not packed by the algorithm that is named,
/// but by one of those that can be unpacked here.
pub fn unpack_mariadb_otherwise(page: &[u8]) -> impl Iterator<Item = Unpacked> {
    let length = usize::from(read_u16(page, MARIADB_PAYLOAD_BYTES));
    let payload = page.get(MARIADB_PAYLOAD..).and_then(|rest| rest.get(..length));
    (1..=ALGORITHMS).filter_map(Algorithm::of_mariadb).filter_map(move |algorithm| {
        let unpacked = unpack(algorithm, payload?, page.len());
        matches!(unpacked, Unpacked::Page(_)).then_some(unpacked)
    })
}

/// Unpacks a payload that holds a page of `page_size` bytes.
#[must_use]
pub fn unpack(algorithm: Algorithm, payload: &[u8], page_size: usize) -> Unpacked {
    if algorithm == Algorithm::Lzo {
        return Unpacked::Unsupported;
    }
    let mut page = vec![0; page_size];
    if unpack_into(algorithm, payload, &mut page).is_some() {
        Unpacked::Page(page)
    } else {
        BAD_PAYLOAD
    }
}

/// Unpacks a page of MySQL's type 14.
#[must_use]
pub fn unpack_mysql(page: &[u8]) -> Unpacked {
    let number = page.get(MYSQL_ALGORITHM).copied().unwrap_or(0);
    let Some(algorithm) = Algorithm::of_mysql(number) else { return BAD_ALGORITHM };
    let original = usize::from(read_u16(page, MYSQL_ORIGINAL_BYTES));
    let stored = usize::from(read_u16(page, MYSQL_STORED_BYTES));
    let body = page.get(BODY..).unwrap_or_default();
    let mut unpacked = page.to_vec();
    let place = unpacked.get_mut(BODY..).unwrap_or_default();
    if original != place.len() || stored == 0 {
        return BAD_LENGTH;
    }
    let Some(payload) = body.get(..stored) else { return BAD_LENGTH };
    if unpack_into(algorithm, payload, place).is_none() {
        return BAD_PAYLOAD;
    }
    restore_type(&mut unpacked);
    Unpacked::Page(unpacked)
}

/// Puts back the type that a page had before MySQL compressed or encrypted it.
pub fn restore_type(page: &mut [u8]) {
    let original = read_u16(page, MYSQL_ORIGINAL_TYPE);
    set_type(page, original);
}

/// Writes the type.
pub fn set_type(page: &mut [u8], page_type: u16) {
    if let Some(field) = page.get_mut(PAGE_TYPE..).and_then(<[u8]>::first_chunk_mut) {
        *field = page_type.to_be_bytes();
    }
}

/// Fills `page`, to its last byte and with the last byte of `payload`.
fn unpack_into(algorithm: Algorithm, payload: &[u8], page: &mut [u8]) -> Option<()> {
    match algorithm {
        Algorithm::Zlib => {
            let mut stream = Decompress::new(true);
            let status = stream.decompress(payload, page, FlushDecompress::Finish).ok()?;
            let is_whole =
                stream.total_in() == to_u64(payload) && stream.total_out() == to_u64(page);
            (status == Status::StreamEnd && is_whole).then_some(())
        }
        Algorithm::Lz4 => {
            let length = page.len();
            let count = lz4_flex::block::decompress_into(payload, page).ok()?;
            (count == length).then_some(())
        }
        Algorithm::Lzo => None,
        Algorithm::Lzma => unpack_xz(payload, page),
        Algorithm::Bzip2 => {
            let mut stream = bzip2::Decompress::new(false);
            let status = stream.decompress(payload, page).ok()?;
            let is_whole =
                stream.total_in() == to_u64(payload) && stream.total_out() == to_u64(page);
            (status == bzip2::Status::StreamEnd && is_whole).then_some(())
        }
        Algorithm::Snappy => {
            if snap::raw::decompress_len(payload).ok()? != page.len() {
                return None;
            }
            let count = snap::raw::Decoder::new().decompress(payload, page).ok()?;
            (count == page.len()).then_some(())
        }
    }
}

/// Memory for the dictionary that a stream may ask for, in KiB. The highest level takes
/// 64 MiB.
const XZ_MEMORY_KIB: u32 = 80 << 10;

fn unpack_xz(payload: &[u8], page: &mut [u8]) -> Option<()> {
    use std::io::Read as _;
    let mut rest = payload;
    let mut stream = lzma_rust2::XzReader::new_mem_limit(&mut rest, false, XZ_MEMORY_KIB);
    stream.read_exact(page).ok()?;
    // The end of the stream has sums of its own, which are tested when it is reached.
    let mut more = [0];
    (stream.read(&mut more).ok()? == 0).then_some(())?;
    drop(stream);
    rest.is_empty().then_some(())
}

fn to_u64(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const SIZE: usize = 1024;

    /// What liblzma makes of [`page`] at level 6 without a check, as MariaDB does.
    const XZ: &str = "fd377a585a000000ff12d9410200210116000000742fe5a3e003ff01255d0000020f570268c678ced80f90e6\
         ebb6dd1f7062b0212714f9b1958a5860217a2cace77798df4586daac6934690d386455e2b71816aa442064d1\
         4d868c5e7f3ce1cd1f5db13895a2376e69d867ddfe180f3c9be3bb8ab676e41017518426fe1e0fa80df05b0e\
         b18280cfaeaa407640bdef7629beafafa4ba9d186947ae3f447c2e9f1acf090da453bb55f0deb5cbc208b757\
         2fdc763818da59034a0271cfe2c5de6b0077d1e7f4382d8bfacd759414e8cf5da80f45503d1ce5abf6cb121c\
         aa1dcce790954becec5299af0a83e0b4ab3ff386c26f4093276845fc018e7b4bd82ed07c5a5e104b87260f62\
         2f96f0fde417fac30f604e12ef6333d592ba9cade1a55364f614152e59b532ba6655d0388cfdfda35a17a31f\
         bcb829532f121c33cb9df05b62d6c400000000000001b9028008000083221a67a8000afc020000000000595a";

    fn page() -> Vec<u8> {
        (0..SIZE)
            .map(|at| u8::try_from(at.wrapping_mul(7).wrapping_add(at / 50) % 256).unwrap())
            .collect()
    }

    fn payloads() -> Vec<(Algorithm, Vec<u8>)> {
        let page = page();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(&page).unwrap();
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
        bzip2.write_all(&page).unwrap();
        let byte =
            |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let xz = XZ.as_bytes().as_chunks().0.iter().map(byte);
        vec![
            (Algorithm::Zlib, zlib.finish().unwrap()),
            (Algorithm::Lz4, lz4_flex::block::compress(&page)),
            (Algorithm::Lzma, xz.collect()),
            (Algorithm::Bzip2, bzip2.finish().unwrap()),
            (Algorithm::Snappy, snap::raw::Encoder::new().compress_vec(&page).unwrap()),
        ]
    }

    #[test]
    fn pages_of_every_algorithm_are_unpacked() {
        for (algorithm, payload) in payloads() {
            assert_eq!(unpack(algorithm, &payload, SIZE), Unpacked::Page(page()), "{algorithm:?}");
        }
        assert_eq!(unpack(Algorithm::Lzo, b"any", SIZE), Unpacked::Unsupported);
    }

    /// Too long, too short, cut, or with more behind: none of them is a page.
    #[test]
    fn payloads_that_are_not_exactly_a_page_are_broken() {
        for (algorithm, payload) in payloads() {
            for size in [SIZE - 1, SIZE + 1, SIZE / 2, 0] {
                assert_eq!(unpack(algorithm, &payload, size), BAD_PAYLOAD, "{algorithm:?} {size}");
            }
            let cut = &payload[..payload.len() - 1];
            assert_eq!(unpack(algorithm, cut, SIZE), BAD_PAYLOAD, "{algorithm:?} cut");
            let more = [&payload[..], &[0x55; 9]].concat();
            assert_eq!(unpack(algorithm, &more, SIZE), BAD_PAYLOAD, "{algorithm:?} with more");
            assert_eq!(unpack(algorithm, &[], SIZE), BAD_PAYLOAD, "{algorithm:?} of nothing");
        }
    }

    /// A dictionary of 4 GiB is not even begun.
    #[test]
    fn lzma_streams_that_ask_for_much_memory_are_refused() {
        let (_, mut payload) = payloads().swap_remove(2);
        // Block header: size, flags, filter 0x21, one byte of properties: the dictionary's size.
        let at = 12 + 4;
        assert_eq!(payload[at - 2..at], [0x21, 1]);
        payload[at] = 40;
        // The header's own CRC-32 has to fit for the size to be believed.
        let mut crc = u32::MAX;
        for byte in &payload[12..20] {
            crc = (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 }
            });
        }
        payload[20..24].copy_from_slice(&(!crc).to_le_bytes());
        assert_eq!(unpack(Algorithm::Lzma, &payload, SIZE), BAD_PAYLOAD);
    }
}
