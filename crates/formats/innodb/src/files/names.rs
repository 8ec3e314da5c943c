//! Tables and databases from the names of files and folders.
//!
//! A name keeps letters, digits and `_`; any other character of the basic plane
//! is `@` and four hexadecimal digits. (Letters of some alphabets are `@` and two
//! characters; those stay as they are.) Behind the table's name may stand
//! `#P#` partition `#SP#` subpartition, in either case.
//!
//! Source: the MySQL manual, "Mapping of Identifiers to File Names".

/// Stands before the name of a partition, in either case.
pub const PARTITION: &str = "#p#";
const SUBPARTITION: &str = "#sp#";

/// A name as people write it.
#[must_use]
pub fn decoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('@') {
        let (before, behind) = rest.split_at(at);
        text.push_str(before);
        let digits = behind.get(1..5).filter(|digits| {
            digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        });
        let character = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let character =
            character.and_then(char::from_u32).filter(|character| !character.is_control());
        match character {
            Some(character) => {
                text.push(character);
                rest = behind.get(5..).unwrap_or_default();
            }
            None => {
                text.push('@');
                rest = behind.get(1..).unwrap_or_default();
            }
        }
    }
    text.push_str(rest);
    text
}

/// The parts of a file's name without the ending, as they are written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The table.
    pub table: &'a str,
    /// Its partition, if it has some.
    pub partition: Option<&'a str>,
    /// The partition inside that one.
    pub sub: Option<&'a str>,
}

/// Takes a name without the ending apart.
#[must_use]
pub fn parts(stem: &str) -> Parts<'_> {
    // ASCII lower case keeps places.
    let split = |text: &str, mark: &str| {
        let at = text.to_ascii_lowercase().find(mark)?;
        Some((at, at.saturating_add(mark.len())))
    };
    let Some((end, begin)) = split(stem, PARTITION) else {
        return Parts { table: stem, partition: None, sub: None };
    };
    let (table, rest) = (stem.get(..end).unwrap_or(stem), stem.get(begin..).unwrap_or_default());
    match split(rest, SUBPARTITION) {
        Some((end, begin)) => Parts { table, partition: rest.get(..end), sub: rest.get(begin..) },
        None => Parts { table, partition: Some(rest), sub: None },
    }
}

/// What a table's file is of, by its folder and its name without the ending:
/// `shop.orders`, `shop.orders partition p0`.
#[must_use]
pub fn object(folder: &str, stem: &str) -> String {
    let Parts { table, partition, sub } = parts(stem);
    let table = format!("{}.{}", decoded(folder), decoded(table));
    let Some(partition) = partition else { return table };
    match sub {
        Some(sub) => {
            format!("{table} partition {} subpartition {}", decoded(partition), decoded(sub))
        }
        None => format!("{table} partition {}", decoded(partition)),
    }
}

/// True for a table that a server makes on its way to another and forgets: what a
/// crash leaves of it is removed.
#[must_use]
pub fn is_temporary(stem: &str) -> bool {
    stem.starts_with("#sql")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded() {
        for (name, expected) in [
            ("orders", "orders"),
            ("my@002dtable", "my-table"),
            ("@20ac@0020x", "\u{20ac} x"),
            ("a@", "a@"),
            ("a@00", "a@00"),
            ("a@d800b", "a@d800b"),
            ("a@0007b", "a@0007b"),
            ("@0gmlaut", "@0gmlaut"),
        ] {
            assert_eq!(decoded(name), expected, "{name}");
        }
    }

    #[test]
    fn table_and_partition_are_told_apart() {
        for (stem, expected) in [
            ("orders", "shop.orders"),
            ("orders#P#p0", "shop.orders partition p0"),
            ("orders#p#p@002d0", "shop.orders partition p-0"),
            ("orders#P#p0#SP#s1", "shop.orders partition p0 subpartition s1"),
        ] {
            assert_eq!(object("shop", stem), expected);
        }
        assert!(is_temporary("#sql-ib71-12") && !is_temporary("sql"));
    }
}
