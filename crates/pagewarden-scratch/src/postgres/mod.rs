//! Temporary PostgreSQL servers, 9.6 to 18.
//!
//! ```no_run
//! use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode};
//! # fn main() -> anyhow::Result<()> {
//! let installation = Installation::find("15").ok_or_else(|| anyhow::anyhow!("no server"))?;
//! let mut cluster = Cluster::init(&installation, &Options::default())?;
//! cluster.start()?;
//! assert_eq!(cluster.psql("SELECT 1")?, "1");
//! cluster.stop(StopMode::Fast)?;
//! println!("{}", cluster.data_dir().display());
//! # Ok(())
//! # }
//! ```
//!
//! [`installation`] finds the programs, [`cluster`] owns one data directory and
//! its server, [`sample`] fills it with every kind of file, a watchman cleans up
//! after an owner that was killed.

pub mod cluster;
pub mod installation;
pub mod sample;

pub use cluster::{Cluster, Options, StopMode};
pub use installation::{Installation, VERSIONS, servers_dir};

pub use crate::programs::ToolOutput;
pub use crate::required;
