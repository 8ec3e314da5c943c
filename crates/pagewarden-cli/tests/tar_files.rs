//! Tar archives to be damaged: found without the product's own reader.

use std::io::{Read as _, Write as _};
use std::path::Path;

pub const BLOCK: usize = 512;

/// Where a member lies in an archive.
#[derive(Debug, Clone)]
pub struct Member {
    pub name: String,
    /// Where its header begins.
    pub header: usize,
    /// Where its data begins.
    pub data: usize,
    pub bytes: usize,
}

impl Member {
    /// One past its padding.
    pub fn end(&self) -> usize {
        self.data + self.bytes.next_multiple_of(BLOCK)
    }
}

/// The members of an archive that a server wrote: short names, octal sizes.
pub fn members(archive: &[u8]) -> Vec<Member> {
    let mut members = Vec::new();
    let mut header = 0;
    while archive[header..header + BLOCK].iter().any(|byte| *byte != 0) {
        let field = |begin: usize, end: usize| {
            let text = archive[header + begin..header + end].split(|byte| *byte == 0).next();
            String::from_utf8(text.unwrap().to_vec()).unwrap()
        };
        let bytes = usize::from_str_radix(field(124, 136).trim(), 8).unwrap();
        let member = Member { name: field(0, 100), header, data: header + BLOCK, bytes };
        header = member.end();
        members.push(member);
    }
    members
}

/// The member of that name.
pub fn member(archive: &[u8], name: &str) -> Member {
    let found = members(archive).into_iter().find(|member| member.name == name);
    found.unwrap_or_else(|| panic!("no {name} in the archive"))
}

/// A header with its checksum.
pub fn header(name: &str, kind: u8, bytes: u64) -> Vec<u8> {
    let mut header = vec![0_u8; BLOCK];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000600 ");
    header[124..136].copy_from_slice(format!("{bytes:011o} ").as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut header);
    header
}

/// Makes a header's checksum right.
pub fn seal(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header[..BLOCK].iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A file with its header and padding.
pub fn file(name: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, b'0', data.len() as u64);
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// A file's content, decompressed by its ending.
pub fn read(path: &Path) -> Vec<u8> {
    let file = std::fs::File::open(path).unwrap();
    let mut bytes = Vec::new();
    match ending(path) {
        "gz" => flate2::read::MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap(),
        "lz4" => lz4_flex::frame::FrameDecoder::new(file).read_to_end(&mut bytes).unwrap(),
        "zst" => zstd::Decoder::new(file).unwrap().read_to_end(&mut bytes).unwrap(),
        _ => (&file).read_to_end(&mut bytes).unwrap(),
    };
    bytes
}

/// Writes a file, compressed by its ending.
pub fn write(path: &Path, bytes: &[u8]) {
    let compressed = match ending(path) {
        "gz" => {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "zst" => zstd::encode_all(bytes, 1).unwrap(),
        _ => bytes.to_vec(),
    };
    std::fs::write(path, compressed).unwrap();
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}
