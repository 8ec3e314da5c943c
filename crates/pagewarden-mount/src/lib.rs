//! Serves a pack as files, by FUSE, so that a server runs on it.
//!
//! ```text
//! system --> filesystem: requests --> tree: names, modes, owners
//!                            |
//!                            +------> contents of a file --> pages written: delta
//!                                                       \--> the rest: pack, by its reader
//! ```
//!
//! Files can be written: servers open everything for writing, and write a little even
//! when they are only asked to read. What is written goes to pages of the *delta*, and
//! vanishes with the mount, or lasts in a folder of its own. The pack is never written. A block of it that is damaged
//! is an error to who reads it (EIO), and never wrong bytes.

#![forbid(unsafe_code)]

mod cleanup;
mod contents;
mod delta;
mod filesystem;
mod journal;
mod mounted;
mod options;
mod record;
mod system;
mod tree;

pub use cleanup::{CleanupError, cleanup};
pub use delta::Written;
pub use filesystem::{Unread, Watcher};
pub use journal::DurableError;
pub use mounted::{MountError, Mounted, Unmounted};
pub use options::{Options, Owner};
