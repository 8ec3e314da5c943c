//! Temporary real database servers for tests, benchmarks and the demonstration.
//!
//! A server made here lives in a directory of its own under the system's
//! temporary directory, listens on a Unix socket only, and is stopped and
//! removed when its owner is dropped, panics, exits or is killed.
//!
//! Nothing here ships to a user: speed and realism come before durability.

#![forbid(unsafe_code)]

pub mod postgres;
