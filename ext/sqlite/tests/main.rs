//! The extension, from outside: in the `sqlite3` shell, which loads it as a user would, beside the
//! same statements without it, and beside `pagewarden check` on the files that come out.
//!
//! Without the shell the tests say `SKIPPED`; `PAGEWARDEN_REQUIRE=sqlite` makes that a failure.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on must stop"
)]

mod beside;
mod crashes;
mod damage;
mod default;
mod expanded;
mod heal;
mod layers;
mod life;
mod packing;
mod packs;
mod programs;
mod shell;
