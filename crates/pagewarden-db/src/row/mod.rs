//! A row in the form in which every engine's rows are equal if their values are.
//!
//! | part of a field | bytes |
//! |---|---|
//! | length of what follows | 4, little-endian |
//! | [`Tag`] | 1 |
//! | payload | the rest |
//!
//! Lengths come first, so that no two different rows have the same bytes: neither
//! `('x0', 'y')` and `('x', '0y')`, nor NULL, the empty string and `'~'`. The form
//! has a [`FORM_VERSION`], which goes into every hash.

pub mod column;
pub mod json;
pub mod number;
pub mod portable;
pub mod record;
pub mod time;

use std::fmt;

/// The version of the form of rows. Sums of different versions are not comparable.
pub const FORM_VERSION: u8 = 1;

/// Bytes of a field before its payload.
const HEAD_BYTES: usize = 5;

/// What a field's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tag {
    /// NULL; no payload.
    Null,
    /// A number: see [`number`].
    Number,
    /// Text, as UTF-8 unless the database itself holds something else.
    Text,
    /// Bytes.
    Bytes,
    /// A date, a time or a moment: see [`time`].
    Time,
    /// JSON: see [`json`].
    Json,
    /// What only one engine understands, as it sends it.
    Opaque,
}

impl Tag {
    const ALL: [(Self, u8); 7] = [
        (Self::Null, b'~'),
        (Self::Number, b'n'),
        (Self::Text, b't'),
        (Self::Bytes, b'b'),
        (Self::Time, b's'),
        (Self::Json, b'j'),
        (Self::Opaque, b'o'),
    ];

    /// Its letter.
    pub fn byte(self) -> u8 {
        Self::ALL.iter().find(|(tag, _)| *tag == self).map_or(b'~', |(_, byte)| *byte)
    }

    /// The tag of a letter.
    pub fn of(byte: u8) -> Self {
        Self::ALL.iter().find(|(_, known)| *known == byte).map_or(Self::Opaque, |(tag, _)| *tag)
    }
}

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field<'a> {
    /// What it is.
    pub tag: Tag,
    /// The value.
    pub payload: &'a [u8],
}

/// A value of its own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    /// What it is.
    pub tag: Tag,
    /// The value.
    pub payload: Vec<u8>,
}

impl Value {
    /// The value as a field.
    pub fn field(&self) -> Field<'_> {
        Field { tag: self.tag, payload: &self.payload }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {:?}", self.tag, String::from_utf8_lossy(&self.payload))
    }
}

/// A row that is being read. Engines write their values into it, one after the
/// other, in the order of the columns that were asked for.
#[derive(Debug, Default)]
pub struct Row {
    bytes: Vec<u8>,
    begins: Vec<usize>,
}

impl Row {
    /// An empty row.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the values; the memory is kept for the next row.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.begins.clear();
    }

    /// The number of values.
    pub fn count(&self) -> usize {
        self.begins.len()
    }

    /// All fields, as they are hashed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The first `count` fields, as they are hashed: the key, if it comes first.
    pub fn leading(&self, count: usize) -> &[u8] {
        let end = self.begins.get(count).copied().unwrap_or(self.bytes.len());
        self.bytes.get(..end).unwrap_or_default()
    }

    /// One value.
    pub fn field(&self, index: usize) -> Option<Field<'_>> {
        let begin = *self.begins.get(index)?;
        let end = self.begins.get(index + 1).copied().unwrap_or(self.bytes.len());
        let (head, payload) = self.bytes.get(begin..end)?.split_at_checked(HEAD_BYTES)?;
        Some(Field { tag: Tag::of(*head.last()?), payload })
    }

    /// Takes the `count` values that such [bytes](Self::bytes) begin with, and gives what is behind
    /// them; nothing if they end before.
    pub fn take<'a>(&mut self, bytes: &'a [u8], count: usize) -> Option<&'a [u8]> {
        self.clear();
        let mut end = 0;
        for _ in 0..count {
            self.begins.push(end);
            let length = bytes.get(end..)?.first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            // The tag is a part of it.
            end = end.checked_add(4)?.checked_add((length > 0).then_some(length)?)?;
        }
        let (row, rest) = bytes.split_at_checked(end)?;
        self.bytes.extend_from_slice(row);
        (count > 0).then_some(rest)
    }

    /// The values, taken out.
    pub fn values(&self) -> Vec<Value> {
        let field = |index| self.field(index);
        let fields = (0..self.count()).filter_map(field);
        fields.map(|field| Value { tag: field.tag, payload: field.payload.to_vec() }).collect()
    }

    /// Appends NULL.
    pub fn null(&mut self) {
        self.put(Tag::Null, &[]);
    }

    /// Appends a value whose payload is in its form already.
    pub fn put(&mut self, tag: Tag, payload: &[u8]) {
        self.write(tag, |bytes| bytes.extend_from_slice(payload));
    }

    /// Appends a value; `fill` appends its payload and nothing else.
    pub fn write(&mut self, tag: Tag, fill: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.bytes.len();
        self.begins.push(begin);
        self.bytes.extend_from_slice(&[0, 0, 0, 0, tag.byte()]);
        fill(&mut self.bytes);
        // No engine has values of 4 GiB.
        let length = u32::try_from(self.bytes.len() - begin - 4).unwrap_or(u32::MAX);
        if let Some(head) = self.bytes.get_mut(begin..begin + 4) {
            head.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Appends a whole number.
    pub fn integer(&mut self, value: i64) {
        self.write(Tag::Number, |bytes| {
            number::write_integer(bytes, value < 0, value.unsigned_abs());
        });
    }

    /// Appends a whole number.
    pub fn unsigned(&mut self, value: u64) {
        self.write(Tag::Number, |bytes| number::write_integer(bytes, false, value));
    }

    /// Appends a binary floating-point number.
    pub fn float(&mut self, value: f64) {
        self.write(Tag::Number, |bytes| number::write_float(bytes, value));
    }

    /// Appends a number that is written out; what is none is kept as text.
    pub fn decimal(&mut self, text: &[u8]) {
        match number::Decimal::parse(text) {
            Some(decimal) => self.write(Tag::Number, |bytes| decimal.write(bytes)),
            None => self.put(Tag::Text, text),
        }
    }

    /// Appends text.
    pub fn text(&mut self, text: &[u8]) {
        self.put(Tag::Text, text);
    }

    /// Appends a UUID: sixteen bytes, or one that is written out. It counts as text,
    /// in lower case, with hyphens; what is none is kept as it is.
    pub fn uuid(&mut self, tag: Tag, value: &[u8]) {
        match uuid_digits(tag, value) {
            Some(digits) => self.write(Tag::Text, |bytes| write_uuid(bytes, &digits)),
            None => self.put(tag, value),
        }
    }

    /// Appends JSON; what is none is kept as text.
    pub fn json(&mut self, text: &[u8]) {
        match json::canonical(text) {
            Some(canonical) => self.put(Tag::Json, &canonical),
            None => self.put(Tag::Text, text),
        }
    }
}

/// The hexadecimal digits of a UUID, in lower case.
fn uuid_digits(tag: Tag, value: &[u8]) -> Option<[u8; 32]> {
    let mut digits = [0; 32];
    if tag == Tag::Bytes {
        if value.len() != 16 {
            return None;
        }
        for (pair, byte) in digits.chunks_exact_mut(2).zip(value) {
            pair.copy_from_slice(&hex(*byte));
        }
        return Some(digits);
    }
    let mut found = 0;
    for byte in value.iter().filter(|byte| !matches!(byte, b'-' | b'{' | b'}')) {
        *digits.get_mut(found)? = byte.is_ascii_hexdigit().then(|| byte.to_ascii_lowercase())?;
        found += 1;
    }
    (found == digits.len()).then_some(digits)
}

fn write_uuid(bytes: &mut Vec<u8>, digits: &[u8; 32]) {
    for (index, digit) in digits.iter().enumerate() {
        if matches!(index, 8 | 12 | 16 | 20) {
            bytes.push(b'-');
        }
        bytes.push(*digit);
    }
}

/// A byte as two hexadecimal digits.
pub fn hex(byte: u8) -> [u8; 2] {
    let digit = |four: u8| if four < 10 { b'0' + four } else { b'a' + (four - 10) };
    [digit(byte >> 4), digit(byte & 15)]
}

/// Bytes as hexadecimal digits.
pub fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| hex(*byte)).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fill: impl FnOnce(&mut Row)) -> Row {
        let mut row = Row::new();
        fill(&mut row);
        row
    }

    #[test]
    fn separators_and_nulls_cannot_be_mistaken() {
        let rows = [
            row(|row| {
                row.text(b"x0");
                row.text(b"y");
            }),
            row(|row| {
                row.text(b"x");
                row.text(b"0y");
            }),
            row(|row| {
                row.null();
                row.text(b"");
            }),
            row(|row| {
                row.text(b"");
                row.null();
            }),
            row(|row| {
                row.text(b"~");
                row.text(b"");
            }),
            row(|row| {
                row.put(Tag::Bytes, b"~");
                row.text(b"");
            }),
        ];
        for (index, one) in rows.iter().enumerate() {
            for other in rows.get(index + 1..).unwrap() {
                assert_ne!(one.bytes(), other.bytes());
            }
        }
    }

    #[test]
    fn fields_are_found_again() {
        let row = row(|row| {
            row.integer(-5);
            row.null();
            row.text(b"abc");
        });
        assert_eq!(row.count(), 3);
        assert_eq!(row.field(0), Some(Field { tag: Tag::Number, payload: b"-5" }));
        assert_eq!(row.field(1), Some(Field { tag: Tag::Null, payload: b"" }));
        assert_eq!(row.field(2), Some(Field { tag: Tag::Text, payload: b"abc" }));
        assert_eq!(row.field(3), None);
        assert_eq!(row.leading(1), b"\x03\0\0\0n-5");
        assert_eq!(row.leading(3), row.bytes());
    }

    #[test]
    fn one_uuid_in_all_its_forms() {
        let expected = b"00112233-4455-6677-8899-aabbccddeeff";
        let bytes: Vec<u8> = (0..16).map(|n| n * 0x11).collect();
        for (tag, value) in [
            (Tag::Bytes, bytes.as_slice()),
            (Tag::Text, b"00112233-4455-6677-8899-AABBCCDDEEFF"),
            (Tag::Text, b"{00112233445566778899aabbccddeeff}"),
        ] {
            let row = row(|row| row.uuid(tag, value));
            assert_eq!(row.field(0), Some(Field { tag: Tag::Text, payload: expected }));
        }
        let other = row(|row| row.uuid(Tag::Text, b"not one"));
        assert_eq!(other.field(0), Some(Field { tag: Tag::Text, payload: b"not one" }));
    }
}
