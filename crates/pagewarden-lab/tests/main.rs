//! The laboratory on real engines.
//!
//! `PAGEWARDEN_REQUIRE=postgres,mariadb` forbids skipping, `PAGEWARDEN_KILLS`
//! says how often a run is killed, `PAGEWARDEN_SEED` when.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod experiments;
mod iotest;
mod kills;
