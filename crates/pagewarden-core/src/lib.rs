//! What all formats share: where bytes come from, what a page format and a database are, the engine that
//! verifies one with the other, and what all writers to databases have in common.
//!
//! ```text
//! database --> source --> page --> verdict          verify drives it
//! ```
//!
//! This crate knows no format. Each is a crate of its own that builds on this one; `pagewarden` has the
//! registry, and is the library for other programs.

pub mod crc;
pub mod database;
pub mod error;
pub mod page;
pub mod protect;
pub mod repair;
pub mod shell;
pub mod source;
pub mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod verdict;
pub mod verify;
pub mod words;
