//! What a disk can do for a database: the patterns of its I/O, measured.
//!
//! ```text
//! workplace --> pattern --> drive --> measured --> diagnosis --> report
//! a file of     blocks,     own       MiB/s,       what limits   terminal,
//! its own       depth       engine    latencies    what          JSON
//!                           or fio
//! ```
//!
//! Nothing that exists can be overwritten: reads go through descriptors that
//! cannot write, writes into a file that was made here a moment ago, whose
//! name no other program has (`workplace`).

pub mod device;
pub mod diagnosis;
pub mod drive;
pub mod fio;
pub mod judge;
pub mod log;
pub mod measured;
pub mod messages;
pub mod patterns;
pub mod payload;
pub mod report;
pub mod session;
pub mod sweep;
pub mod workplace;
