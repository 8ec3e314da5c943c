//! Real servers: PostgreSQL, MariaDB and SQLite, with hostile defaults.
//!
//! `PAGEWARDEN_REQUIRE=postgres,mariadb` forbids skipping, `PAGEWARDEN_TEST_POSTGRES` chooses
//! another version than 15.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod servers;

mod answers;
mod differences;
mod elsewhere;
mod failures;
mod gone;
mod interrupted;
mod live;
mod logins;
mod modes;
mod names;
mod parquets;
mod properties;
mod replicas;
mod resume;
mod samples;
mod skims;
mod soak;
mod streams;
mod throttle;
mod tls;
mod watched;
