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

use serde_json::{Map, Number, Value};

const MAGIC: &[u8] = b"Obj\x01";
const MARK_BYTES: usize = 16;
/// What a block may expand to.
const BLOCK_BYTES_MAX: u64 = 1 << 28;
/// Values that take no byte.
const NOTHINGS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;
/// Of longer lists of numbers none is kept: those that are looked at name columns.
const NUMBERS_MAX: usize = 4096;
/// Digits that a decimal has at most.
const DIGITS_MAX: usize = 38;

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
        let mut decoder = Decoder { rest: &block, types: &types, left, passes: false };
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
    /// What is decoded is not kept.
    passes: bool,
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
            "float" => float(f64::from(f32::from_le_bytes(array(rest)?))),
            "double" => float(f64::from_le_bytes(array(rest)?)),
            "bytes" => {
                let bytes = take_bytes(rest)?;
                self.bytes(bytes, schema)
            }
            "string" => String::from_utf8_lossy(take_bytes(rest)?).into_owned().into(),
            "enum" => number(rest)?.into(),
            "fixed" => {
                let size = schema.get("size").and_then(Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let bytes = take(rest, size.ok_or("a type of no size")?)?;
                self.bytes(bytes, schema)
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
                let of_numbers = name == "array" && ["int", "long"].iter().any(|it| inner == it);
                let mut kept = Vec::new();
                let passes = std::mem::replace(&mut self.passes, true);
                while let Some(count) = block_count(&mut self.rest)? {
                    for _ in 0..count {
                        if name == "map" {
                            take_bytes(&mut self.rest)?;
                        }
                        let value = self.value(inner, depth)?;
                        kept.extend(Some(value).filter(|_| of_numbers && kept.len() < NUMBERS_MAX));
                    }
                }
                self.passes = passes;
                if of_numbers && kept.len() < NUMBERS_MAX { kept.into() } else { Value::Null }
            }
            other => {
                let known = self.types.get(other).copied();
                self.value(known.ok_or("a type that is not known")?, depth)?
            }
        })
    }
}

impl Decoder<'_> {
    /// A decimal as it is written, other bytes by their digits.
    fn bytes(&self, bytes: &[u8], schema: &Value) -> Value {
        if self.passes {
            return Value::Null;
        }
        let of = |name: &str| schema.get(name);
        let is_decimal = of("logicalType").is_some_and(|it| it == "decimal");
        let scale = of("scale").and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok());
        let text = is_decimal.then(|| decimal(bytes, scale.unwrap_or(0))).flatten();
        text.unwrap_or_else(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect()).into()
    }
}

/// A number of which JSON has no text if it is infinite or none.
fn float(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

/// The text of a decimal with this number of digits behind the point; `None` if it has more bytes than any has.
fn decimal(bytes: &[u8], scale: usize) -> Option<String> {
    let mut wide =
        if bytes.first().is_some_and(|byte| byte >> 7 == 1) { [0xff; 16] } else { [0; 16] };
    let begin = wide.len().checked_sub(bytes.len()).filter(|_| scale <= DIGITS_MAX)?;
    wide.get_mut(begin..)?.copy_from_slice(bytes);
    let value = i128::from_be_bytes(wide);
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale.saturating_add(1));
    let (whole, fraction) = digits.split_at_checked(digits.len().checked_sub(scale)?)?;
    let sign = if value < 0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{fraction}"))
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

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], &'static str> {
    take(rest, N)?.try_into().map_err(|_| "it ends in a value")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_with_their_scale() {
        for (bytes, scale, text) in [
            (&[0, 225][..], 2, Some("2.25")),
            (&[225], 2, Some("-0.31")),
            (&[0xff], 0, Some("-1")),
            (&[5], 3, Some("0.005")),
            (&[0; 16], 38, Some("0.00000000000000000000000000000000000000")),
            (&[], 1, Some("0.0")),
            (&[1; 17], 2, None),
            (&[1], 39, None),
            (&[1], usize::MAX, None),
        ] {
            assert_eq!(decimal(bytes, scale).as_deref(), text, "{bytes:?} {scale}");
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_are_text() {
        for (value, text) in [(1.5, "1.5"), (f64::NAN, "\"NaN\""), (f64::INFINITY, "\"inf\"")] {
            assert_eq!(float(value).to_string(), text);
        }
    }
}
