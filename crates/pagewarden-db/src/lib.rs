//! Live database servers: checksums of their tables, and tables compared across
//! servers and engines.
//!
//! A [`location::Location`] says where a database is; an [`engine::Engine`] opens a
//! connection that can only read; it streams rows, each in the canonical form of
//! [`row`], in which rows of different engines are equal if their values are.
//! `checksum` sums their hashes, `compare` holds them against each other; [`replicate`]
//! has servers sum for themselves what replication brings them.
//!
//! Nothing here prints, and nothing shows a password.

#![deny(unsafe_code)]

pub mod checksum;
pub mod compare;
pub mod engine;
pub mod error;
pub mod location;
pub mod replicate;
pub mod row;
pub mod secret;
pub mod table;
mod tls;
