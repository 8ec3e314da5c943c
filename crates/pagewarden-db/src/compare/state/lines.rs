//! The lines of a state, and what is in them.

use pagewarden::crc::Crc32;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Asked;
use crate::compare::look::Scope;
use crate::compare::mode::{Look, Mode};
use crate::compare::report::Found;
use crate::row::{Tag, Value, hex_text};

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    pub pagewarden_compare_state: u32,
    pub form_version: u8,
    pub begun: u64,
    pub asked: Asked,
}

/// The number of a chunk or of a group of buckets, and of what of it is not equal.
pub type PartNumber = (u64, u64);

/// A key, or none at the begin or the end of the table.
pub type Bound = Option<Vec<Value>>;

/// A range of keys that was summed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Its number, from 0 on.
    pub number: u64,
    /// The key before it: where the chunk before ends.
    pub after: Bound,
    /// Its last key.
    pub upto: Bound,
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// The sum of the source's.
    pub sum_source: String,
    /// The sum of the target's.
    pub sum_target: String,
    /// By whom it was summed.
    pub mode: Mode,
    /// The bytes of both that were read.
    pub bytes: u64,
    /// The parts of it that are not equal, by their bounds. A `settled` follows for each.
    pub unequal: Vec<(Bound, Bound)>,
}

impl Chunk {
    /// A chunk, by what was seen of it.
    pub fn new(number: u64, bounds: (Bound, Bound), look: &Look, unequal: &[Scope]) -> Self {
        let [sum_source, sum_target] = look.sums.clone();
        let ranges = unequal.iter().filter_map(|scope| match scope {
            Scope::Range { after, upto } => Some((after.clone(), upto.clone())),
            Scope::Parts(..) => None,
        });
        Self {
            number,
            after: bounds.0,
            upto: bounds.1,
            rows_source: look.rows_source,
            rows_target: look.rows_target,
            sum_source,
            sum_target,
            mode: look.mode,
            bytes: look.bytes,
            unequal: ranges.collect(),
        }
    }
}

/// All buckets of a table without ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets {
    /// The source's rows.
    pub rows_source: u64,
    /// The target's rows.
    pub rows_target: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// The rows of the map's tiles, on the side that has more.
    pub rows_of_tiles: Vec<u64>,
    /// Those that differ and are looked at together. A `settled` follows for each group.
    pub groups: Vec<Vec<usize>>,
    /// True if more differ.
    pub at_least: bool,
}

/// Parts of a table are named by its number.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Begin(Begin),
    Table { number: u64, target: String, schema: Option<String>, name: String, fingerprint: String },
    Mode(u64, Mode, String),
    Chunk(u64, Chunk),
    Buckets(u64, Buckets),
    Settled(u64, PartNumber, Found),
}

/// The CRC of a line, by that of the line before.
pub fn chained(before: u32, json: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(&before.to_le_bytes());
    crc.update(json);
    crc.finish()
}

/// The lines of a file, up to the first that does not fit.
pub struct Lines<'a> {
    rest: &'a [u8],
    /// The CRC of the last good line.
    pub crc: u32,
    /// Where it ends.
    pub good_bytes: u64,
}

impl<'a> Lines<'a> {
    /// Those of a file.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, crc: 0, good_bytes: 0 }
    }
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = (self.rest.get(..end)?, self.rest.get(end + 1..)?);
        let (crc, json) = line.split_at_checked(9)?;
        let expected = chained(self.crc, json);
        if crc != format!("{expected:08x} ").as_bytes() {
            return None;
        }
        let line = serde_json::from_slice(json).ok()?;
        self.crc = expected;
        self.good_bytes += end as u64 + 1;
        self.rest = rest;
        Some(line)
    }
}

/// A value is its tag's letter, then `:` and its text or, where it is none, `#` and
/// hexadecimal digits.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let letter = char::from(self.tag.byte());
        let text = match std::str::from_utf8(&self.payload) {
            Ok(text) => format!("{letter}:{text}"),
            Err(_) => format!("{letter}#{}", hex_text(&self.payload)),
        };
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = || {
            let (letter, rest) = text.split_at_checked(1)?;
            let tag = letter.bytes().next().map(Tag::of)?;
            let payload = match rest.strip_prefix(':') {
                Some(text) => text.as_bytes().to_vec(),
                None => bytes_of_hex(rest.strip_prefix('#')?)?,
            };
            Some(Self { tag, payload })
        };
        value().ok_or_else(|| de::Error::custom("no value of a row"))
    }
}

fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(|pair| byte(pair).filter(|_| pair.len() == 2)).collect()
}
