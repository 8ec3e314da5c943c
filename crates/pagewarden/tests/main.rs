//! The library against what real servers wrote: the golden pages, control
//! files and maps under `fixtures`, and what can be made from them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod backup_sets;
mod catalogue;
mod failing_store;
mod fixtures;
mod golden_controls;
mod golden_maps;
mod golden_pages;
mod innodb;
mod innodb_absent;
mod innodb_books;
mod innodb_damage;
mod innodb_servers;
mod innodb_wild;
mod pgbackrest;
mod servers;
mod witness;
