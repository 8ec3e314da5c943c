//! What is to be done: the setting that is wanted, and what each way costs.

use std::path::{Path, PathBuf};

use crate::verdict::Protection;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The database.
    pub path: PathBuf,
    /// Further files of the same database, of an engine that has [`Feature::SeveralFiles`].
    pub further: Vec<PathBuf>,
    /// How its pages are to be protected.
    pub wish: Wish,
    /// Where a changed copy goes; without it the database itself is changed.
    pub copy_to: Option<PathBuf>,
    /// Where parts of the database that lie elsewhere go in a copy, of an engine that has
    /// [`Feature::Tablespaces`].
    pub tablespaces: Vec<TablespaceMapping>,
    /// Only say what would change.
    pub dry_run: bool,
    /// Go on where pages are damaged, and leave those as they are.
    pub skip_damaged: bool,
    /// Stamp pages again that a program without the engine's own protection wrote, where all else
    /// is sound, of an engine that has [`Feature::Heal`].
    pub heal: bool,
    /// Let programs without the engine's own protection read the database only, of an engine that
    /// has [`Feature::Guard`].
    pub guard: bool,
}

impl Request {
    /// To change the database itself, and nothing else said.
    #[must_use]
    pub fn new(path: &Path, wish: Wish) -> Self {
        Self {
            path: path.to_owned(),
            further: Vec::new(),
            wish,
            copy_to: None,
            tablespaces: Vec::new(),
            dry_run: false,
            skip_damaged: false,
            heal: false,
            guard: false,
        }
    }
}

/// What only some engines understand in a [`Request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// A database can be named by its files.
    SeveralFiles,
    /// Parts of a database lie elsewhere, and can be copied to places of their own.
    Tablespaces,
    /// Programs can write to a database without keeping its protection, and leave no damage by it.
    Heal,
    /// Such programs can be kept from writing.
    Guard,
}

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

/// A tablespace that lies elsewhere, and where it goes in a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablespaceMapping {
    /// Where it lies.
    pub old: PathBuf,
    /// A folder that does not exist or is empty.
    pub new: PathBuf,
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
