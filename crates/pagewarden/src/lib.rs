//! Is my data still what was written? This library verifies the pages of
//! database files, without needing the server.
//!
//! Data flows one way:
//!
//! ```text
//! target --> source --> page format --> verdict --> report
//! what is    bytes in   is this page    ok, empty,  text,
//! this path  runs of    what its        or a        JSON
//!            pages      engine wrote?   Finding
//! ```
//!
//! [`database::open`] finds out what a path is, [`verify::verify`] drives every
//! page of it through its [`page::PageFormat`], and a [`report`] writes down
//! what comes out. The library does not print, parse flags or open sockets,
//! and never writes to what it looks at. The one exception is [`protect`], whose
//! work is to write.

pub mod crc32c;
pub mod database;
pub mod error;
pub mod formats;
pub mod pack;
pub mod page;
pub mod protect;
pub mod report;
pub mod seal;
pub mod shell;
pub mod source;
pub mod verdict;
pub mod verify;
pub mod words;

pub use error::Error;

/// The version in `--version` and in every JSON object.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
