//! Avro's container files, as far as Iceberg's books need them: records, without their bytes.
//!
//! | | bytes |
//! |---|---|
//! | `Obj`, 1 | 4 |
//! | a map of names to bytes: `avro.schema` (JSON), `avro.codec` | |
//! | a mark | 16 |
//! | blocks: the count of records, their length, the records, the mark again | |
//!
//! Values are as the schema says, without names or types. They become JSON, and bytes become null. A
//! value takes a byte or nothing: their number is bounded by that of the bytes, and [`NOTHINGS_MAX`].
//!
//! Source: the specification of Apache Avro 1.12.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::io::Read;

use serde_json::{Map, Value};

const MAGIC: &[u8] = b"Obj\x01";
const MARK_BYTES: usize = 16;
/// What a block may expand to.
const BLOCK_BYTES_MAX: u64 = 1 << 28;
/// Values that take no byte.
const NOTHINGS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;

/// The records of a file.
///
/// # Errors
/// Why they cannot be read.
pub(super) fn records(file: &[u8]) -> Result<Vec<Value>, &'static str> {
    let mut rest = file.strip_prefix(MAGIC).ok_or("it does not begin as Avro")?;
    let (mut schema, mut codec) = (None, Vec::new());
    let source = &mut rest;
    while let Some(count) = block_count(source)? {
        for _ in 0..count {
            let name = take_bytes(source)?;
            let content = take_bytes(source)?;
            match name {
                b"avro.schema" => schema = serde_json::from_slice::<Value>(content).ok(),
                b"avro.codec" => codec = content.to_vec(),
                _ => {}
            }
        }
    }
    let schema = schema.ok_or("it has no schema that can be read")?;
    let mark = take(source, MARK_BYTES)?;
    let mut types = HashMap::new();
    name_types(&schema, 0, &mut types);
    let mut records = Vec::new();
    while !source.is_empty() {
        let count = number(source)?;
        let length = usize::try_from(number(source)?).map_err(|_| "a block of no length")?;
        let stored = take(source, length)?;
        if take(source, MARK_BYTES)? != mark {
            return Err("a block does not end with the mark of the file");
        }
        let block = expanded(&codec, stored)?;
        let left = block.len().saturating_add(NOTHINGS_MAX);
        let mut decoder = Decoder { rest: &block, types: &types, left };
        for _ in 0..count {
            records.push(decoder.value(&schema, 0)?);
        }
        if !decoder.rest.is_empty() {
            return Err("a block has more bytes than its records");
        }
    }
    Ok(records)
}

fn expanded(codec: &[u8], stored: &[u8]) -> Result<Vec<u8>, &'static str> {
    let all = |reader: &mut dyn Read| {
        let mut bytes = Vec::new();
        match reader.take(BLOCK_BYTES_MAX).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(_) => Err("a block does not expand"),
        }
    };
    match codec {
        b"" | b"null" => Ok(stored.to_vec()),
        b"deflate" => all(&mut flate2::read::DeflateDecoder::new(stored)),
        b"zstandard" => match zstd::stream::read::Decoder::with_buffer(stored) {
            Ok(mut decoder) => all(&mut decoder),
            Err(_) => Err("a block does not expand"),
        },
        // Behind it is a CRC of what comes out.
        b"snappy" => {
            let (stored, sum) = stored.split_last_chunk::<4>().ok_or("a block without its sum")?;
            let length =
                snap::raw::decompress_len(stored).map_err(|_| "a block does not expand")?;
            if u64::try_from(length).unwrap_or(u64::MAX) > BLOCK_BYTES_MAX {
                return Err("a block of a length that no writer makes");
            }
            let bytes = snap::raw::Decoder::new().decompress_vec(stored);
            let bytes = bytes.map_err(|_| "a block does not expand")?;
            match crate::checksum::page_sum(&bytes) == u32::from_be_bytes(*sum) {
                true => Ok(bytes),
                false => Err("the sum of a block does not fit"),
            }
        }
        _ => Err("a codec that is not known here"),
    }
}

/// Types that have a name may be used by it later.
fn name_types<'a>(schema: &'a Value, depth: usize, types: &mut HashMap<&'a str, &'a Value>) {
    if depth > DEPTH_MAX {
        return;
    }
    let deeper = depth.saturating_add(1);
    match schema {
        Value::Array(branches) => branches.iter().for_each(|it| name_types(it, deeper, types)),
        Value::Object(parts) => {
            if let Some(name) = parts.get("name").and_then(Value::as_str)
                && parts.contains_key("type")
            {
                types.insert(name, schema);
            }
            for part in ["type", "items", "values"] {
                if let Some(part) = parts.get(part) {
                    name_types(part, deeper, types);
                }
            }
            let fields = parts.get("fields").and_then(Value::as_array);
            for field in fields.into_iter().flatten() {
                if let Some(kind) = field.get("type") {
                    name_types(kind, deeper, types);
                }
            }
        }
        _ => {}
    }
}

struct Decoder<'a> {
    rest: &'a [u8],
    types: &'a HashMap<&'a str, &'a Value>,
    /// Values that may still come.
    left: usize,
}

impl Decoder<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Result<Value, &'static str> {
        self.left = self.left.checked_sub(1).ok_or("more values than bytes")?;
        if depth > DEPTH_MAX {
            return Err("types too deep inside each other");
        }
        let deeper = depth.saturating_add(1);
        match schema {
            Value::String(name) => self.named(name, schema, deeper),
            Value::Array(branches) => {
                let index = usize::try_from(number(&mut self.rest)?).ok();
                let branch = index.and_then(|index| branches.get(index));
                self.value(branch.ok_or("a branch that does not exist")?, deeper)
            }
            Value::Object(parts) => match parts.get("type") {
                Some(Value::String(name)) => self.named(name, schema, deeper),
                Some(inner) => self.value(inner, deeper),
                None => Err("a type without a name"),
            },
            _ => Err("a type that is none"),
        }
    }

    fn named(&mut self, name: &str, schema: &Value, depth: usize) -> Result<Value, &'static str> {
        let rest = &mut self.rest;
        Ok(match name {
            "null" => Value::Null,
            "boolean" => Value::Bool(take(rest, 1)?.first() == Some(&1)),
            "int" | "long" => number(rest)?.into(),
            "float" => take(rest, 4).map(|_| Value::Null)?,
            "double" => take(rest, 8).map(|_| Value::Null)?,
            "bytes" => take_bytes(rest).map(|_| Value::Null)?,
            "string" => String::from_utf8_lossy(take_bytes(rest)?).into_owned().into(),
            "enum" => number(rest)?.into(),
            "fixed" => {
                let size = schema.get("size").and_then(Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                take(rest, size.ok_or("a type of no size")?).map(|_| Value::Null)?
            }
            "record" => {
                let fields = schema.get("fields").and_then(Value::as_array);
                let mut record = Map::new();
                for field in fields.ok_or("a record without fields")? {
                    let name = field.get("name").and_then(Value::as_str);
                    let kind = field.get("type").ok_or("a field without a type")?;
                    record.insert(name.unwrap_or_default().to_owned(), self.value(kind, depth)?);
                }
                record.into()
            }
            "array" | "map" => {
                let inner = schema.get(if name == "array" { "items" } else { "values" });
                let inner = inner.ok_or("a list of nothing")?;
                while let Some(count) = block_count(&mut self.rest)? {
                    for _ in 0..count {
                        if name == "map" {
                            take_bytes(&mut self.rest)?;
                        }
                        self.value(inner, depth)?;
                    }
                }
                Value::Null
            }
            other => {
                let known = self.types.get(other).copied();
                self.value(known.ok_or("a type that is not known")?, depth)?
            }
        })
    }
}

/// How many values follow; a negative count has their length behind it. `None` ends them.
fn block_count(rest: &mut &[u8]) -> Result<Option<u64>, &'static str> {
    let count = number(rest)?;
    if count < 0 {
        number(rest)?;
    }
    Ok(Some(count.unsigned_abs()).filter(|count| *count > 0))
}

/// A number as Avro writes it: zigzag, 7 bits a byte.
fn number(rest: &mut &[u8]) -> Result<i64, &'static str> {
    let mut zigzag = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte] = take(rest, 1)? else { break };
        zigzag |= u64::from(byte & 0x7F).unbounded_shl(shift);
        if byte & 0x80 == 0 {
            let half = (zigzag >> 1).cast_signed();
            return Ok(if zigzag & 1 == 0 { half } else { !half });
        }
    }
    Err("a number that does not end")
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let length = usize::try_from(number(rest)?).map_err(|_| "a length less than nothing")?;
    take(rest, length)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], &'static str> {
    let (taken, more) = rest.split_at_checked(length).ok_or("it ends too early")?;
    *rest = more;
    Ok(taken)
}
