//! What the changed rows of a column have in common, where it is plain: shifted by the
//! same time, blanks at the end, case, rounding, a character set, NULL for nothing.

use crate::row::{Tag, Value, number, time};

use super::report::{Difference, Kind};

/// What the changed values of a column have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The column.
    pub column: String,
    /// In how many of the listed rows it differs.
    pub rows: u64,
    /// What all of them have in common, if anything.
    pub pattern: Option<String>,
}

/// Looks at the listed differences, column by column.
pub fn diagnose(columns: &[String], differences: &[Difference]) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let mut rows = 0;
        let mut pattern: Option<String> = None;
        for difference in differences.iter().filter(|one| one.kind == Kind::Changed) {
            let value = |values: &Option<Vec<Value>>| values.as_ref()?.get(place).cloned();
            let (Some(source), Some(target)) =
                (value(&difference.source), value(&difference.target))
            else {
                continue;
            };
            if source == target {
                continue;
            }
            let this = explain(&source, &target);
            pattern =
                if rows == 0 { this } else { pattern.filter(|known| this.as_ref() == Some(known)) };
            rows += 1;
        }
        if rows > 0 {
            found.push(Diagnosis { column: column.clone(), rows, pattern });
        }
    }
    found
}

fn explain(source: &Value, target: &Value) -> Option<String> {
    let text = |value: &Value| String::from_utf8(value.payload.clone()).ok();
    match (source.tag, target.tag) {
        (Tag::Null, _) if target.payload.is_empty() => Some("NULL became empty".to_owned()),
        (_, Tag::Null) if source.payload.is_empty() => Some("empty became NULL".to_owned()),
        (Tag::Null, _) => Some("NULL became a value".to_owned()),
        (_, Tag::Null) => Some("a value became NULL".to_owned()),
        (Tag::Time, Tag::Time) => shift(source, target),
        (Tag::Number, Tag::Number) => rounding(&source.payload, &target.payload),
        (Tag::Text, Tag::Text) => words(&text(source)?, &text(target)?),
        _ => None,
    }
}

fn shift(source: &Value, target: &Value) -> Option<String> {
    let micros = |value: &Value| {
        time::parse_moment(&value.payload).or_else(|| time::parse_time(&value.payload))
    };
    let (before, after) = (micros(source)?, micros(target)?);
    let by = after.checked_sub(before)?;
    if by.abs() < 1_000_000 {
        let digits = fraction_digits(&target.payload);
        return (digits < fraction_digits(&source.payload))
            .then(|| format!("rounded or cut to {digits} digits of a second"));
    }
    let mut span = Vec::new();
    time::write_time(&mut span, by.abs());
    let span = String::from_utf8(span).ok()?;
    Some(format!("shifted by {}{span}", if by < 0 { '-' } else { '+' }))
}

fn fraction_digits(payload: &[u8]) -> usize {
    let point = payload.iter().rposition(|byte| *byte == b'.');
    point.map_or(0, |point| payload.len() - point - 1)
}

fn rounding(source: &[u8], target: &[u8]) -> Option<String> {
    let (negative, digits, power) = number::parts(source)?;
    let (other_negative, other_digits, other_power) = number::parts(target)?;
    if digits == other_digits && power == other_power && negative != other_negative {
        return Some("the sign is the other".to_owned());
    }
    if digits == other_digits {
        return Some(format!("multiplied by 1e{}", other_power - power));
    }
    let places = usize::try_from(other_power.checked_sub(power)?).ok().filter(|places| *places > 0);
    let value = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    let (before, after) = (value(source)?, value(target)?);
    let unit = 10_f64.powi(i32::try_from(other_power).ok()?);
    let near = places.is_some() && (before - after).abs() < unit;
    near.then(|| "rounded or cut".to_owned())
}

fn words(source: &str, target: &str) -> Option<String> {
    if source.trim_end() == target.trim_end() {
        let end = if source.len() > target.len() { "lost" } else { "gained" };
        return Some(format!("{end} blanks at the end"));
    }
    if source.trim() == target.trim() {
        return Some("other blanks around".to_owned());
    }
    if source.to_lowercase() == target.to_lowercase() {
        return Some("other case".to_owned());
    }
    if source.replace("\r\n", "\n") == target.replace("\r\n", "\n") {
        return Some("other line ends".to_owned());
    }
    if !source.is_ascii() && questions(source) == *target {
        return Some("characters became '?' (character set)".to_owned());
    }
    if doubly(source).is_some_and(|text| text == target) {
        return Some("encoded twice (UTF-8 taken for Latin-1)".to_owned());
    }
    if !target.is_empty() && source.starts_with(target) {
        return Some("cut at the end".to_owned());
    }
    None
}

fn questions(text: &str) -> String {
    text.chars().map(|one| if one.is_ascii() { one } else { '?' }).collect()
}

/// The text if each of its bytes in UTF-8 were a character.
fn doubly(text: &str) -> Option<String> {
    (!text.is_ascii()).then(|| text.bytes().map(char::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: Tag, text: &str) -> Value {
        Value { tag, payload: text.as_bytes().to_vec() }
    }

    #[test]
    fn plain_patterns_are_named() {
        for (tag, source, target, expected) in [
            (Tag::Time, "2024-03-31 01:00:00", "2024-03-31 02:00:00", Some("shifted by +01:00:00")),
            (Tag::Time, "2024-03-31 01:00:00", "2024-03-31 00:50:00", Some("shifted by -00:10:00")),
            (
                Tag::Time,
                "2024-03-31 01:00:00.123456",
                "2024-03-31 01:00:00.123",
                Some("rounded or cut to 3 digits of a second"),
            ),
            (Tag::Number, "1234567e-4", "12346e-2", Some("rounded or cut")),
            (Tag::Number, "5", "-5", Some("the sign is the other")),
            (Tag::Number, "5", "5e2", Some("multiplied by 1e2")),
            (Tag::Number, "5", "7", None),
            (Tag::Text, "a  ", "a", Some("lost blanks at the end")),
            (Tag::Text, "Ab", "aB", Some("other case")),
            (Tag::Text, "caf\u{e9}", "caf?", Some("characters became '?' (character set)")),
            (
                Tag::Text,
                "caf\u{e9}",
                "caf\u{c3}\u{a9}",
                Some("encoded twice (UTF-8 taken for Latin-1)"),
            ),
            (Tag::Text, "abcdef", "abc", Some("cut at the end")),
            (Tag::Text, "abc", "xyz", None),
        ] {
            let found = explain(&value(tag, source), &value(tag, target));
            assert_eq!(found.as_deref(), expected, "{source} {target}");
        }
    }

    #[test]
    fn one_row_that_is_otherwise_ends_a_pattern() {
        let row = |source: &str, target: &str| Difference {
            kind: Kind::Changed,
            key: Vec::new(),
            columns: Vec::new(),
            source: Some(vec![value(Tag::Text, source)]),
            target: Some(vec![value(Tag::Text, target)]),
        };
        let columns = ["c".to_owned()];
        let found = diagnose(&columns, &[row("a ", "a"), row("b ", "b")]);
        assert_eq!(
            (found[0].rows, found[0].pattern.as_deref()),
            (2, Some("lost blanks at the end"))
        );
        let found = diagnose(&columns, &[row("a ", "a"), row("b", "x")]);
        assert_eq!((found[0].rows, found[0].pattern.as_deref()), (2, None));
    }
}
