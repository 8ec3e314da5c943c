//! Checksum kernels: pure functions over slices.
pub mod aria;
pub mod innodb;
pub mod page_verify;
pub mod postgres;
pub mod sqlite;
pub mod sqlserver;
