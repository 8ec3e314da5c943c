//! Tables of known shapes, filled by the server itself.

/// Tables stay in memory (up to a gibibyte in each storage engine), and statements are logged.
pub const IN_MEMORY: &[&str] = &[
    "innodb_buffer_pool_size=1G",
    "aria_pagecache_buffer_size=1G",
    "log_bin=binlog",
    "server_id=1",
    "sync_binlog=0",
    "innodb_flush_log_at_trx_commit=2",
];

/// What the rows of a table are. All have a key `id` from 1 on, and a number `quantity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    columns: &'static str,
    /// Made from `seq`.
    values: &'static str,
}

/// Two numbers.
pub const NARROW: Shape = Shape { columns: "id INT PRIMARY KEY, quantity INT", values: "seq, seq" };

/// Eight columns of different types, about 190 bytes.
pub const MEDIUM: Shape = Shape {
    columns: "id BIGINT PRIMARY KEY, quantity INT, price DECIMAL(12, 2), rate DOUBLE, \
        placed DATETIME(6), name VARCHAR(60), note TEXT, code BINARY(16)",
    values: "seq, seq, seq / 100, seq / 7, TIMESTAMPADD(SECOND, seq, '2024-01-01'), \
        CONCAT('name of row ', seq), IF(seq % 5 = 0, NULL, REPEAT(MD5(seq), 3)), UNHEX(MD5(seq))",
};

/// Two numbers and 2,000 characters.
pub const WIDE: Shape = Shape {
    columns: "id INT PRIMARY KEY, quantity INT, body TEXT",
    values: "seq, seq, REPEAT(SHA1(seq), 50)",
};

/// Statements that make a table of `rows` rows, in the current database.
pub fn table(name: &str, engine: &str, shape: Shape, rows: u32) -> String {
    let Shape { columns, values } = shape;
    format!(
        "CREATE TABLE {name} ({columns}) ENGINE={engine};
        INSERT INTO {name} SELECT {values} FROM seq_1_to_{rows};
        ANALYZE TABLE {name};"
    )
}
