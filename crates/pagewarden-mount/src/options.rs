//! How a pack is mounted.

use std::path::PathBuf;

use pagewarden::pack::ReaderSettings;

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub user: u32,
    /// The group's.
    pub group: u32,
}

impl Owner {
    /// We ourselves.
    #[must_use]
    pub fn ourselves() -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    }
}

/// How a pack is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whose all files are; `None` for who had them when they were packed.
    pub owner: Option<Owner>,
    /// Let other users in, as far as modes allow.
    pub allow_other: bool,
    /// Take no writes at all.
    pub is_read_only: bool,
    /// What may be written, in bytes kept.
    pub delta_bytes_max: u64,
    /// The folder for what is written; `None` for memory.
    pub scratch: Option<PathBuf>,
    /// The folder in which what is written lasts; `None` if it is to vanish.
    pub durable: Option<PathBuf>,
    /// Threads that answer the system. More than there are cores, since some wait for
    /// the device.
    pub threads: usize,
    /// How blocks are read.
    pub reader: ReaderSettings,
}

impl Options {
    /// What is right for us: root lets others in and keeps owners; who is not root is
    /// the only one who comes in, and owns everything.
    #[must_use]
    pub fn for_ourselves() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let reader = ReaderSettings { keeps_lookups: false, ..ReaderSettings::default() };
        Self {
            owner: (!is_root).then(Owner::ourselves),
            allow_other: is_root,
            is_read_only: false,
            delta_bytes_max: 1 << 30,
            scratch: None,
            durable: None,
            threads: reader.threads.saturating_mul(4).clamp(4, 32),
            reader,
        }
    }
}
