//! The checksums of the Maatkit documents (`mk-table-checksum`), as statements.
//!
//! A row's hash is F(CONCAT_WS('#', columns, flags of NULL)); long columns go through F
//! first. `ACCUM` hashes each row's hash together with all before it, in the order of
//! the key; `BIT_XOR` joins them by exclusive or, MD5 in two halves.
//!
//! A row that is longer than `max_allowed_packet` has no hash, and falls out of both:
//! the rows that have one are counted.

use super::MysqlDialect;
use crate::engine::ServerSum;
use crate::engine::statement::{Dialect as _, names};
use crate::table::Table;

/// Types whose values may be longer than a packet.
pub const LONG: &[&str] = &[
    "tinytext",
    "text",
    "mediumtext",
    "longtext",
    "tinyblob",
    "blob",
    "mediumblob",
    "longblob",
    "json",
];

/// A statement that gives the count of rows, the count of those with a hash, and the
/// parts of the sum.
pub fn statement(dialect: &MysqlDialect, table: &Table, sum: ServerSum) -> String {
    let function = if sum.md5 { "MD5" } else { "CRC32" };
    let mut parts = Vec::new();
    let mut flags = Vec::new();
    for column in &table.columns {
        let name = dialect.name(&column.name);
        let is_text = matches!(column.form, crate::table::Form::Text);
        parts.push(if LONG.contains(&column.wire.as_str()) {
            format!("{function}({name})")
        } else if column.wire == "vector" {
            // MySQL joins it to no text.
            format!("HEX({name})")
        } else if is_text {
            format!("CONVERT({name} USING utf8mb4)")
        } else {
            name.clone()
        });
        if column.nullable {
            flags.push(format!("ISNULL({name})"));
        }
    }
    if !flags.is_empty() {
        parts.push(format!("CONCAT({})", flags.join(", ")));
    }
    let row = format!("{function}(CONCAT_WS('#', {}))", parts.join(", "));
    let hashed = format!("COUNT(*), COUNT({row})");
    let from = &table.engine;
    if sum.accumulated {
        let key = names(dialect, table, &table.key);
        let order =
            if key.is_empty() { String::new() } else { format!(" ORDER BY {}", key.join(", ")) };
        // The count goes before the hash, so that the largest value is the last.
        let (next, width) = if sum.md5 {
            (format!("MD5(CONCAT(@crc, {row}))"), 32)
        } else {
            (format!("LPAD(HEX(CRC32(CONCAT(@crc, {row}))), 8, '0')"), 8)
        };
        // The limit keeps the order of the inner rows, which the server may else drop.
        return format!(
            "SELECT COUNT(*), COUNT(h), COALESCE(RIGHT(MAX(CONCAT(LPAD(n, 20, '0'), h)), {width}), REPEAT('0', {width})) \
             FROM (SELECT @cnt := @cnt + 1 AS n, @crc := {next} AS h FROM {from}{order} \
             LIMIT 18446744073709551615) AS rows_in_order"
        );
    }
    if sum.md5 {
        let half = |begin: u8| {
            format!(
                "LPAD(CONV(BIT_XOR(CAST(CONV(SUBSTRING({row}, {begin}, 16), 16, 10) AS UNSIGNED)), \
                 10, 16), 16, '0')"
            )
        };
        format!("SELECT {hashed}, {}, {} FROM {from}", half(1), half(17))
    } else {
        format!("SELECT {hashed}, LPAD(HEX(BIT_XOR({row})), 8, '0') FROM {from}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Filled, Form, TableName};

    /// `CONCAT_WS` of MySQL 9 refuses a vector itself.
    #[test]
    fn vectors_are_summed_as_hexadecimal_text() {
        let vector = Column {
            name: "v".to_owned(),
            declared: "vector(3)".to_owned(),
            wire: "vector".to_owned(),
            character_set: None,
            nullable: true,
            exact: false,
            filled: Filled::Said,
            form: Form::Opaque("mysql vector".to_owned()),
        };
        let table = Table {
            name: TableName { schema: None, name: "t".to_owned() },
            columns: vec![vector],
            key: Vec::new(),
            engine: "`d`.`t`".to_owned(),
            bytes: None,
            rows_estimated: None,
        };
        for (accumulated, md5) in [(true, true), (true, false), (false, true), (false, false)] {
            let sql = statement(&MysqlDialect, &table, ServerSum { accumulated, md5 });
            assert!(sql.contains("CONCAT_WS('#', HEX(`v`), CONCAT(ISNULL(`v`)))"), "{sql}");
        }
    }
}
