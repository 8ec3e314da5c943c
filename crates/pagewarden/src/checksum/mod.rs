//! Checksum kernels: pure functions over slices.
pub mod postgres;
pub mod sqlite;
