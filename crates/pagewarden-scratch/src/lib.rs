//! Temporary real database servers for the laboratory, tests, benchmarks and the
//! demonstration.
//!
//! A server made here lives in a directory of its own under the system's
//! temporary directory or the one that was chosen, listens on a Unix socket only, and is stopped and
//! removed when its owner is dropped, panics, exits or is killed.
//!
//! No server here holds anything that is needed again: speed and realism come
//! before durability.

#![forbid(unsafe_code)]

mod account;
pub mod any_mysql;
pub mod home;
pub mod mariadb;
pub mod mysql;
pub mod postgres;
mod processes;
pub mod programs;
pub mod python;
pub mod sqlite;
mod watchman;

/// True when `PAGEWARDEN_REQUIRE` lists `engine`: tests that need it must then
/// fail where they would otherwise be skipped.
pub fn required(engine: &str) -> bool {
    std::env::var("PAGEWARDEN_REQUIRE")
        .is_ok_and(|list| list.split([',', ' ']).any(|one| one.trim() == engine))
}
