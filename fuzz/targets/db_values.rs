//! Values that databases write out: JSON, numbers, moments, UUIDs, as every form of a column
//! takes them; and positions in the logs of others.
//!
//! What has a canonical form keeps it when it is read again: else two sides that hold the
//! same would differ.

use pagewarden_db::engine::mysql::gtid;
use pagewarden_db::engine::{ENGINES, statement};
use pagewarden_db::row::{Row, Tag, number};
use pagewarden_db::table::Form;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, text)) = input.split_first() else { return };
    let forms = [
        Form::Number,
        Form::Text,
        Form::Date,
        Form::Time,
        Form::Moment,
        Form::Uuid,
        Form::Json,
        Form::Any,
    ];
    let form = &forms[usize::from(mode % 8)];
    let tag = if mode & 8 == 0 { Tag::Text } else { Tag::Bytes };
    let mut row = Row::new();
    form.append(&mut row, tag, text);
    let value = row.values().remove(0);
    assert_eq!((row.count(), row.field(0)), (1, Some(value.field())));
    for engine in ENGINES {
        assert!(!statement::literal(engine.dialect, &value).is_empty());
    }
    if value.tag != tag || form == &Form::Uuid {
        let mut again = Row::new();
        form.append(&mut again, Tag::Text, &value.payload);
        let again = again.values().remove(0);
        // Powers of ten and years have a limit, which the canonical form may pass.
        assert!(again == value || again.tag == Tag::Text, "{value:?} became {again:?}");
    }
    if value.tag == Tag::Number && number::parts(&value.payload).is_some() {
        assert!(number::plain(&value.payload).is_some());
        assert!(number::compare(&value.payload, &value.payload).is_some_and(|order| order.is_eq()));
    }
    if let Ok(text) = std::str::from_utf8(text) {
        assert_ne!(gtid::has_reached(text, text), Some(false));
    }
}
