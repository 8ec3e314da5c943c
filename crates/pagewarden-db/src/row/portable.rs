//! A row as text that every engine can make by a statement of its own, and the hash of it.
//!
//! | part | text |
//! |---|---|
//! | version | `1;` |
//! | number, date, time, moment, UUID | the value, and `;`, which none of them holds |
//! | bytes | hexadecimal digits in lower case, and `;` |
//! | text, and what one engine alone understands | its length in bytes, `:`, the value |
//! | NULL | `~`, and `;` where a value has one |
//!
//! Which of these a field is follows from its column, so that no two different rows have
//! the same text. Numbers are written plainly, without zeros at the end of a fraction;
//! times have no zeros at the end of a second's fraction.
//!
//! A value is special if engines write it in different words, or it is not of its column's
//! type: floats outside of 1e-4 to 1e15, years outside of 1 to 9999, infinity, NaN. A row
//! that holds one must be looked at itself.
//!
//! The hash is the first 14 bytes of MD5, in two lanes of 7 (56 bits), which every engine
//! can add up exactly. Two parts that differ by accident have equal sums once in 2^112;
//! a user who may choose rows can make them equal.

use md5::{Digest as _, Md5};

use super::{Field, Row, Tag, hex, number};
use crate::table::Form;

/// What every row's text begins with: its version. Sums of different ones are not comparable.
pub const BEGIN: &str = "1;";

/// Bytes of a lane.
const LANE_BYTES: usize = 7;

/// The lanes of a row's hash; none if it holds a special value. `text` is memory that is used
/// again.
pub fn hash(columns: &[(usize, Form)], row: &Row, text: &mut Vec<u8>) -> Option<[u64; 2]> {
    text.clear();
    text.extend_from_slice(BEGIN.as_bytes());
    for (index, (_, form)) in columns.iter().enumerate() {
        append(text, form, row.field(index)?)?;
    }
    let digest = Md5::digest(&text);
    let lane = |begin: usize| {
        let bytes = digest.get(begin..begin + LANE_BYTES).unwrap_or_default();
        bytes.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    Some([lane(0), lane(LANE_BYTES)])
}

/// True if fields of this form have their length before them; else `;` follows.
pub fn has_length(form: &Form) -> bool {
    matches!(form, Form::Text | Form::Json | Form::Opaque(_) | Form::Any)
}

fn append(text: &mut Vec<u8>, form: &Form, field: Field<'_>) -> Option<()> {
    let payload = field.payload;
    match (form, field.tag) {
        (_, Tag::Null) => text.push(b'~'),
        (Form::Number, Tag::Number) => text.extend_from_slice(number::plain(payload)?.as_bytes()),
        (Form::Bytes, Tag::Bytes) => text.extend(payload.iter().flat_map(|byte| hex(*byte))),
        (Form::Date | Form::Moment, Tag::Time) => {
            // Years of four digits only, and no word.
            let year = payload.get(..4).filter(|year| year.iter().all(u8::is_ascii_digit))?;
            text.extend_from_slice((year != b"0000").then_some(payload)?);
        }
        (Form::Time, Tag::Time) => text.extend_from_slice(payload),
        (Form::Uuid, Tag::Text) => text.extend_from_slice(is_uuid(payload).then_some(payload)?),
        (Form::Text, Tag::Text) | (Form::Json, Tag::Json) | (Form::Opaque(_), Tag::Opaque) => {
            text.extend_from_slice(payload.len().to_string().as_bytes());
            text.push(b':');
            text.extend_from_slice(payload);
        }
        _ => return None,
    }
    if !has_length(form) {
        text.push(b';');
    }
    Some(())
}

/// True of a UUID as [`Row::uuid`] writes it.
fn is_uuid(text: &[u8]) -> bool {
    let is_right = |(place, byte): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.iter().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(forms: &[Form], fill: impl FnOnce(&mut Row)) -> Option<String> {
        let mut row = Row::new();
        fill(&mut row);
        let columns: Vec<(usize, Form)> = forms.iter().cloned().enumerate().collect();
        let mut text = Vec::new();
        hash(&columns, &row, &mut text)?;
        Some(String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_row_is_written_as_servers_write_it() {
        let forms = [
            Form::Number,
            Form::Number,
            Form::Text,
            Form::Text,
            Form::Bytes,
            Form::Moment,
            Form::Uuid,
            Form::Date,
        ];
        let made = text(&forms, |row| {
            row.decimal(b"-12.50");
            row.float(1e3);
            row.text("a;\u{E9}".as_bytes());
            row.null();
            row.put(Tag::Bytes, &[0, 255]);
            Form::Moment.append(row, Tag::Text, b"2024-02-29 12:00:00.500");
            row.uuid(Tag::Bytes, &[0xAB; 16]);
            row.null();
        });
        let expected = "1;-12.5;1000;4:a;\u{E9}~00ff;2024-02-29 12:00:00.5;\
                        abababab-abab-abab-abab-abababababab;~;";
        assert_eq!(made.as_deref(), Some(expected));
    }

    #[test]
    fn neither_separators_nor_nulls_can_be_mistaken() {
        let both = |one: Option<&str>, other: Option<&str>| {
            text(&[Form::Text, Form::Text], |row| {
                for part in [one, other] {
                    match part {
                        Some(part) => row.text(part.as_bytes()),
                        None => row.null(),
                    }
                }
            })
        };
        let rows = [
            both(Some("x0"), Some("y")),
            both(Some("x"), Some("0y")),
            both(None, Some("")),
            both(Some(""), None),
            both(Some("~"), Some("")),
            both(Some("1:~"), None),
        ];
        for (index, one) in rows.iter().enumerate() {
            assert!(rows.iter().skip(index + 1).all(|other| one != other), "{one:?}");
        }
    }

    #[test]
    fn what_engines_write_in_different_words_is_special() {
        assert_eq!(text(&[Form::Number], |row| row.float(f64::NAN)), None);
        assert_eq!(text(&[Form::Number], |row| row.text(b"12a")), None);
        assert_eq!(text(&[Form::Moment], |row| row.put(Tag::Time, b"infinity")), None);
        assert_eq!(text(&[Form::Date], |row| row.put(Tag::Time, b"-0043-03-15")), None);
        assert_eq!(text(&[Form::Date], |row| row.put(Tag::Time, b"+12345-01-01")), None);
        assert_eq!(text(&[Form::Uuid], |row| row.text(b"no uuid")), None);
    }
}
