//! Is my data still what was written? This library verifies the pages of database files,
//! clusters, backups and packs (PostgreSQL, `InnoDB`, SQL Server, `SQLite`), without needing the
//! server, and never writes to what it looks at.
//!
//! ```
//! use pagewarden::Verdict;
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pack/1/shop.pwk");
//! let checked = pagewarden::check(path)?;
//! for finding in &checked.findings {
//!     println!("{:?} is {}", finding.place, finding.kind.name());
//! }
//! assert_ne!(checked.verdict(), Verdict::Damaged);
//! # Ok::<(), pagewarden::Error>(())
//! ```
//!
//! Damage is data: what is wrong with a page or a file is a [`Finding`], what could not be read is
//! an [`Unread`], and neither is an error. An [`Error`] means that there is no verdict at all; its
//! [`ErrorKind`] says why.
//!
//! [`check()`] is enough for most programs; [`Check`] has options, and hands findings to a
//! [`Sink`] as they come. Underneath, data flows one way:
//!
//! ```text
//! database --> source --> page format --> verdict --> report
//! what is      bytes in   is this page    ok, empty,  text,
//! this path    runs of    what its        or a        JSON
//!              pages      engine wrote?   Finding
//! ```
//!
//! A format of one's own is a [`PageFormat`](page::PageFormat) and a
//! [`Target`](database::Target) for [`verify::verify`]; `examples/own_format.rs` is one.
//!
//! The names at the top of this page are for other programs. The modules are what the program
//! `pagewarden` is built from, and change with it.

mod check;
pub mod database;
pub mod formats;
pub mod pack;
pub mod packing;
pub mod protect;
pub mod repair;
pub mod report;
pub mod seal;

pub use pagewarden_core::{crc, error, page, shell, source, system, verdict, verify, words};

pub use check::{Check, Checked, check};
pub use database::{Description, Evidence};
pub use error::{Error, ErrorKind};
pub use verdict::{
    ByteOffset, Finding, Kind, ModeCounts, Note, PageCounts, PageNo, Place, Protection, Severity,
    SeverityCounts, Unread, Verdict,
};
pub use verify::{KEPT_MAX, Progress, Sink, Summary, Verified};

/// The version in `--version` and in every JSON object.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
