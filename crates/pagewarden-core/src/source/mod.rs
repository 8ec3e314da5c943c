//! Where bytes come from. A source never sees a page format.

pub mod acting;
pub mod buffer;
pub mod decode;
pub mod device;
pub mod file;
pub mod held_folder;
pub mod hold;
pub mod memory;
pub mod pipe;
pub mod presence;
pub mod priority;
pub mod queue;
pub mod rate;
pub mod read_ahead;
pub mod residency;
pub mod secretstream;
pub mod store;
pub mod tar;
pub mod transfer;
pub mod trusted_path;
#[cfg(target_os = "linux")]
pub mod uring;
pub mod write_back;
pub mod yielding;
