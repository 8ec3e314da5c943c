//! Temporary MariaDB servers.
//!
//! ```no_run
//! use pagewarden_scratch::mariadb::{Installation, Server};
//! # fn main() -> anyhow::Result<()> {
//! let installation = Installation::find().ok_or_else(|| anyhow::anyhow!("no server"))?;
//! let mut server = Server::install(&installation, &["innodb_checksum_algorithm=crc32"])?;
//! server.start()?;
//! assert_eq!(server.sql("SELECT 1")?, "1");
//! server.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`installation`] finds the programs, [`server`] owns one data directory and
//! its server, [`replication`] makes a server follow another, [`sample`] makes tables.

pub mod installation;
pub mod replication;
pub mod sample;
pub mod server;

pub use installation::Installation;
pub use server::Server;
