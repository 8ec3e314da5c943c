//! Aria, the storage engine of MariaDB's system tables. Its files are opened with the
//! directory that they lie in, by [`innodb`](crate::formats::innodb).

pub mod checksum;
pub mod page;
