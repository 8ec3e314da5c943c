//! What is to be done: the setting that is wanted, and what each way costs.

use std::path::PathBuf;

use crate::verdict::Protection;

/// How pages are to be protected: said outright, or as those of another database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// This way.
    Mode(Protection),
    /// As the database that this one is to be upgraded into.
    ForUpgrade(PathBuf),
    /// As the database that is to be upgraded into this one, which is empty yet.
    Like(PathBuf),
}

/// What it costs to give one of two databases the other's setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// The database that would be changed.
    pub path: PathBuf,
    /// The setting it would get.
    pub wanted: Protection,
    /// Pages to rewrite, at most.
    pub pages: u64,
    /// The same in bytes.
    pub bytes: u64,
}
