//! Aria, the storage engine of MariaDB's system tables. Its files are opened with the
//! directory that they lie in, by the format `innodb`.

pub mod checksum;
pub mod page;

#[cfg(test)]
pagewarden_core::conformance!(page::specimens());
