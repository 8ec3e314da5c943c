//! The laboratory: what page protection costs, and what it is worth, measured
//! on real engines, with statistics that can be believed.
//!
//! ```text
//! experiment --> design --> run --> samples --> analysis --> report
//! arms, what     order of   does    every       ratios,      terminal,
//! is measured    the runs   them    raw figure  verdicts     HTML, JSON
//! ```
//!
//! [`iotest`] measures a disk by the patterns of database work.

// One file calls into C: `cost/sqlite/official.rs`.
#![deny(unsafe_code)]

pub mod cost;
pub mod iotest;
pub mod stats;
