//! The value that rows have that are older than a column: `ALTER TABLE ... ADD COLUMN ... DEFAULT` writes it
//! into `pg_attribute.attmissingval` and leaves the rows as they are.
//!
//! ```text
//! ArrayType, without the length before it (src/include/utils/array.h)
//!  0  4  ndim, 1
//!  4  4  dataoffset, 0: no element is null
//!  8  4  elemtype, the oid of the column's type
//! 12  4  dims[0], 1
//! 16  4  lbound[0]
//! 20     the element, aligned as in rows: the array begins at a multiple of 8, and so does byte 20, behind
//!        its length
//! ```

use crate::files::catalogue::columns::{Column, LateColumn};
use crate::files::control::u32_at;
use crate::files::structure::values::{Value, Values};

/// Types of this oid and above were made by users. What they hold may have been written another time by
/// `pg_upgrade`, from text.
const FIRST_NORMAL_OBJECT: u32 = 16384;
/// Where the element begins.
const ELEMENT: usize = 20;

/// The bytes of the value, without length; `None` if it is not known.
pub(super) fn value(late: &LateColumn, column: &Column) -> Option<Vec<u8>> {
    if column.type_oid >= FIRST_NORMAL_OBJECT {
        return None;
    }
    let mut values = Values::from(&late.data, late.begin);
    let mut last = None;
    for (bytes, align) in &late.present {
        last = Some(values.next(&Column { bytes: *bytes, align: *align, ..*column })?);
    }
    let Some(Value::Plain(array)) = last else { return None };
    let heads = [(0, 1), (4, 0), (8, column.type_oid), (12, 1)];
    if !heads.iter().all(|(at, head)| u32_at(array, *at) == Some(*head)) {
        return None;
    }
    match Values::new(array.get(ELEMENT..)?).next(column)? {
        Value::Plain(value) => Some(value.to_vec()),
        Value::Null | Value::Compressed(_) | Value::External(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(type_oid: u32, bytes: i16, align: u8) -> Column {
        Column {
            relation: 20000,
            type_oid,
            collation: 0,
            bytes,
            number: 2,
            align,
            has_late_value: true,
        }
    }

    /// Fixed attributes, `attstattarget`, and an array with a short length.
    fn row(element: u32, value: &[u8]) -> LateColumn {
        let mut data = vec![7; 100];
        data.extend(100_i16.to_le_bytes());
        data.push(u8::try_from((ELEMENT + value.len() + 1) << 1 | 1).unwrap());
        for word in [1, 0, element, 1, 1] {
            data.extend(word.to_le_bytes());
        }
        data.extend(value);
        LateColumn { data: data.into(), begin: 100, present: vec![(2, b's'), (-1, b'd')] }
    }

    #[test]
    fn element_of_the_array_is_the_value() {
        let long = row(20, &(-5_i64).to_le_bytes());
        assert_eq!(value(&long, &column(20, 8, b'd')).unwrap(), (-5_i64).to_le_bytes());
        // A length of four bytes before it: 4 + 3, shifted by two bits.
        let text = row(25, b"\x1c\0\0\0new");
        assert_eq!(value(&text, &column(25, -1, b'i')).unwrap(), b"new");
    }

    #[test]
    fn what_is_not_as_it_must_be_is_not_known() {
        let long = row(20, &(-5_i64).to_le_bytes());
        assert_eq!(value(&long, &column(23, 4, b'i')), None);
        assert_eq!(value(&long, &column(16384, 8, b'd')), None);
        let short = row(20, &[1, 2, 3]);
        assert_eq!(value(&short, &column(20, 8, b'd')), None);
        let none = LateColumn { present: Vec::new(), ..long };
        assert_eq!(value(&none, &column(20, 8, b'd')), None);
    }
}
