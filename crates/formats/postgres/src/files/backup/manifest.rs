//! `backup_manifest` (13 and later): what a base backup consists of, written by
//! the server that took it.
//!
//! ```text
//! { "PostgreSQL-Backup-Manifest-Version": 2,
//! "System-Identifier": 7710740595373940785,                      (2 only)
//! "Files": [
//! { "Path": "base/5/1259", "Size": 106496, "Last-Modified": "...",
//!   "Checksum-Algorithm": "CRC32C", "Checksum": "50be8011" }, ...
//! ],
//! "WAL-Ranges": [
//! { "Timeline": 1, "Start-LSN": "0/A000050", "End-LSN": "0/A21A1A8" }
//! ],
//! "Manifest-Checksum": "56b5..."}        SHA-256 of all lines before this one
//! ```
//!
//! A name that is not UTF-8 stands as `Encoded-Path`, hexadecimal. Source: the
//! PostgreSQL documentation, "Backup Manifest Format".
//!
//! A manifest of a million files has 150 MB: it is read as a stream, an entry
//! at a time, and nothing of it is kept here. No line of it is long, which
//! bounds what a hostile one can make of memory.

use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sha2::{Digest as _, Sha256};

use crate::files::backup::hash::Algorithm;

/// The name of the file.
pub const NAME: &str = "backup_manifest";

/// Longer than any line that a server writes: a path has 4 KiB, or twice that
/// in hexadecimal.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Timelines that a backup can span; more are none.
const RANGES_MAX: usize = 10_000;

/// A file that the backup consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the data directory. What is not UTF-8 in it is replaced.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its hash; `None` if the backup was taken without.
    pub hash: Option<(Algorithm, Vec<u8>)>,
}

/// The log that is needed to make the backup consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalRange {
    /// The timeline.
    pub timeline: u32,
    /// Where it begins: a redo position.
    pub start_lsn: u64,
    /// Where it ends.
    pub end_lsn: u64,
}

/// What a manifest says beside its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// 1, or 2 since 17.
    pub version: u64,
    /// The cluster that the backup was taken of; not in version 1.
    pub system_identifier: Option<u64>,
    /// How many files it lists.
    pub files: u64,
    /// The log that belongs to it.
    pub wal_ranges: Vec<WalRange>,
}

/// Why a manifest cannot be believed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(pub String);

/// Reads a manifest and hands its entries to `take`, in their order. What was
/// handed out before an error is not to be believed either.
///
/// # Errors
/// It cannot be read or parsed, or its own checksum does not match.
pub fn read(source: impl Read, take: &mut dyn FnMut(Entry)) -> Result<Manifest, ManifestError> {
    let mut lines = HashedLines::new(source);
    let mut reader = serde_json::Deserializer::from_reader(io::BufReader::new(&mut lines));
    let parsed = reader.deserialize_map(TopLevel { take });
    let ended = parsed.and_then(|parsed| reader.end().map(|()| parsed));
    let (manifest, stated) = ended.map_err(|error| ManifestError(error.to_string()))?;
    let Some(stated) = stated else {
        return Err(ManifestError("it has no checksum of its own at its end".to_owned()));
    };
    if lines.finish() != stated {
        return Err(ManifestError("its own checksum does not match".to_owned()));
    }
    Ok(manifest)
}

/// Passes a text through and hashes all lines but the last.
struct HashedLines<R> {
    source: R,
    hash: Sha256,
    /// The line that may be the last.
    line: Vec<u8>,
}

impl<R> HashedLines<R> {
    fn new(source: R) -> Self {
        Self { source, hash: Sha256::new(), line: Vec::new() }
    }

    fn finish(self) -> Vec<u8> {
        self.hash.finalize().to_vec()
    }
}

impl<R: Read> Read for HashedLines<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(bytes)?;
        for piece in bytes.get(..count).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            // Only when something follows it is a line not the last.
            if self.line.ends_with(b"\n") {
                self.hash.update(&self.line);
                self.line.clear();
            }
            if self.line.len().saturating_add(piece.len()) > LINE_BYTES_MAX {
                let text = "it has a line that no server writes";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            self.line.extend_from_slice(piece);
        }
        Ok(count)
    }
}

struct TopLevel<'a> {
    take: &'a mut dyn FnMut(Entry),
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = (Manifest, Option<Vec<u8>>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a backup manifest")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        use serde::de::Error as _;
        let mut manifest = Manifest::default();
        let mut checksum = None;
        while let Some(key) = map.next_key::<String>()? {
            if checksum.is_some() {
                return Err(A::Error::custom("something stands behind its checksum"));
            }
            match key.as_str() {
                "PostgreSQL-Backup-Manifest-Version" => {
                    manifest.version = map.next_value()?;
                    if !matches!(manifest.version, 1 | 2) {
                        let version = manifest.version;
                        return Err(A::Error::custom(format!("version {version} is unknown")));
                    }
                }
                "System-Identifier" => manifest.system_identifier = Some(map.next_value()?),
                "Files" => manifest.files += map.next_value_seed(Files { take: self.take })?,
                "WAL-Ranges" => manifest.wal_ranges = map.next_value_seed(WalRanges)?,
                "Manifest-Checksum" => {
                    let digits: String = map.next_value()?;
                    let hash = from_hexadecimal(&digits);
                    checksum = Some(hash.ok_or_else(|| A::Error::custom("no hexadecimal digits"))?);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if manifest.version == 0 {
            return Err(A::Error::custom("it has no version"));
        }
        Ok((manifest, checksum))
    }
}

struct Files<'a> {
    take: &'a mut dyn FnMut(Entry),
}

impl<'de> DeserializeSeed<'de> for Files<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Files<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        let mut count = 0_u64;
        while let Some(file) = list.next_element::<RawFile>()? {
            let entry = file.into_entry().map_err(serde::de::Error::custom)?;
            count = count.saturating_add(1);
            (self.take)(entry);
        }
        Ok(count)
    }
}

#[derive(Deserialize)]
struct RawFile {
    #[serde(rename = "Path")]
    path: Option<String>,
    #[serde(rename = "Encoded-Path")]
    encoded_path: Option<String>,
    #[serde(rename = "Size")]
    bytes: u64,
    #[serde(rename = "Checksum-Algorithm")]
    algorithm: Option<String>,
    #[serde(rename = "Checksum")]
    checksum: Option<String>,
}

impl RawFile {
    fn into_entry(self) -> Result<Entry, String> {
        let path = match (self.path, self.encoded_path) {
            (Some(path), None) => path,
            (None, Some(digits)) => {
                let bytes = from_hexadecimal(&digits).ok_or("no hexadecimal digits")?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            _ => return Err("a file with no path or with two".to_owned()),
        };
        let hash = match (self.algorithm.as_deref(), self.checksum) {
            (None | Some("NONE"), None) => None,
            (Some(name), Some(digits)) => {
                let algorithm = Algorithm::named(name)
                    .ok_or_else(|| format!("checksum algorithm {name} is unknown"))?;
                let hash = from_hexadecimal(&digits)
                    .filter(|hash| hash.len() == algorithm.bytes())
                    .ok_or("a checksum of the wrong form")?;
                Some((algorithm, hash))
            }
            _ => return Err("a checksum without its algorithm, or the reverse".to_owned()),
        };
        Ok(Entry { path, bytes: self.bytes, hash })
    }
}

struct WalRanges;

impl<'de> DeserializeSeed<'de> for WalRanges {
    type Value = Vec<WalRange>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for WalRanges {
    type Value = Vec<WalRange>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of ranges of the log")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        use serde::de::Error as _;
        let mut ranges = Vec::new();
        while let Some(range) = list.next_element::<RawRange>()? {
            if ranges.len() >= RANGES_MAX {
                return Err(A::Error::custom("it has too many ranges of the log"));
            }
            let lsn = |text: &str| {
                lsn_from_text(text).ok_or_else(|| A::Error::custom("no position in the log"))
            };
            ranges.push(WalRange {
                timeline: range.timeline,
                start_lsn: lsn(&range.start)?,
                end_lsn: lsn(&range.end)?,
            });
        }
        Ok(ranges)
    }
}

#[derive(Deserialize)]
struct RawRange {
    #[serde(rename = "Timeline")]
    timeline: u32,
    #[serde(rename = "Start-LSN")]
    start: String,
    #[serde(rename = "End-LSN")]
    end: String,
}

/// A position in PostgreSQL's own notation: `0/A000050`.
#[must_use]
pub fn lsn_from_text(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let word = |digits: &str| {
        let fits = (1..=8).contains(&digits.len()) && !digits.starts_with('+');
        if fits { u32::from_str_radix(digits, 16).ok() } else { None }
    };
    Some(u64::from(word(high)?) << 32 | u64::from(word(low)?))
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    digits
        .chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => Some(nibble(*high)? << 4 | nibble(*low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest as a server of 18 writes it, with `files` for its files.
    fn manifest(files: &str) -> String {
        let text = format!(
            "{{ \"PostgreSQL-Backup-Manifest-Version\": 2,\n\
             \"System-Identifier\": 7710740595373940785,\n\"Files\": [\n{files}\n],\n\
             \"WAL-Ranges\": [\n{{ \"Timeline\": 1, \"Start-LSN\": \"0/A000050\", \
             \"End-LSN\": \"1/A21A1A8\" }}\n],\n"
        );
        let sum: String =
            Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{text}\"Manifest-Checksum\": \"{sum}\"}}\n")
    }

    const FILE: &str = r#"{ "Path": "base/5/1259", "Size": 8192, "Last-Modified": "2026-11-21 21:31:37 GMT", "Checksum-Algorithm": "CRC32C", "Checksum": "50be8011" }"#;

    fn entries(text: &str) -> Result<(Manifest, Vec<Entry>), String> {
        let mut entries = Vec::new();
        let manifest = read(text.as_bytes(), &mut |entry| entries.push(entry));
        manifest.map(|manifest| (manifest, entries)).map_err(|error| error.to_string())
    }

    #[test]
    fn manifest_is_read_and_its_checksum_tested() {
        let text = manifest(&format!(
            "{FILE},\n{{ \"Encoded-Path\": \"62ff\", \"Size\": 0, \"Last-Modified\": \"x\" }}"
        ));
        let (manifest, entries) = entries(&text).unwrap();
        assert_eq!((manifest.version, manifest.files), (2, 2));
        assert_eq!(manifest.system_identifier, Some(7_710_740_595_373_940_785));
        let range = WalRange { timeline: 1, start_lsn: 0xA00_0050, end_lsn: 0x1_0A21_A1A8 };
        assert_eq!(manifest.wal_ranges, [range]);
        assert_eq!(entries[0].path, "base/5/1259");
        assert_eq!(entries[0].bytes, 8192);
        let hash = (Algorithm::Crc32c, vec![0x50, 0xBE, 0x80, 0x11]);
        assert_eq!(entries[0].hash, Some(hash));
        assert_eq!((entries[1].path.as_str(), &entries[1].hash), ("b\u{FFFD}", &None));
    }

    #[test]
    fn any_change_of_a_character_is_seen() {
        let sound = manifest(FILE);
        assert!(entries(&sound).is_ok());
        for at in 0..sound.len() - 1 {
            let mut bytes = sound.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(text) = String::from_utf8(bytes) {
                // Upper and lower case of the last line's digits are one.
                let same = sound.to_lowercase() == text.to_lowercase();
                assert!(entries(&text).is_err() || same, "character {at}: {text}");
            }
        }
        for length in 0..sound.len() - 1 {
            assert!(entries(&sound[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn hostile_manifests_are_refused() {
        let long = format!("{{ \"Path\": \"{}\", \"Size\": 0 }}", "x".repeat(LINE_BYTES_MAX));
        for files in [
            long.as_str(),
            "{ \"Path\": \"a\", \"Encoded-Path\": \"61\", \"Size\": 0 }",
            "{ \"Size\": 0 }",
            "{ \"Path\": \"a\", \"Size\": -1 }",
            "{ \"Path\": \"a\", \"Size\": 1e99 }",
            "{ \"Path\": \"a\", \"Size\": 0, \"Checksum-Algorithm\": \"MD5\", \"Checksum\": \"\" }",
            "{ \"Path\": \"a\", \"Size\": 0, \"Checksum-Algorithm\": \"CRC32C\" }",
            "{ \"Path\": \"a\", \"Size\": 0, \"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"00\" }",
        ] {
            assert!(entries(&manifest(files)).is_err(), "{files:.80}");
        }
        let nested = "[".repeat(10_000);
        assert!(entries(&format!("{{\"x\":{nested}")).is_err());
        assert!(entries("").is_err());
        assert!(entries("{}").is_err());
    }

    #[test]
    fn positions_in_the_log_are_read_as_the_server_writes_them() {
        assert_eq!(lsn_from_text("0/A000050"), Some(0xA00_0050));
        assert_eq!(lsn_from_text("FFFFFFFF/FFFFFFFF"), Some(u64::MAX));
        for text in ["", "/", "1", "1/", "/1", "100000000/0", "+1/1", "x/1", "1/1/1"] {
            assert_eq!(lsn_from_text(text), None, "{text}");
        }
    }
}
