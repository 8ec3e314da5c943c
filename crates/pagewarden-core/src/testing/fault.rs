//! Faults for tests: what devices and file systems do to reads.
//!
//! Faults belong to a file, by device and inode, so tests do not meet each
//! other's. They strike a read after it was done, whichever way it was done.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Something that goes wrong.
#[derive(Debug)]
pub enum Fault {
    /// A read that touches this byte fails with `EIO`.
    BadByte(u64),
    /// A read brings at most this number of bytes.
    ShortReads(usize),
    /// Every other read is interrupted by a signal; counts the reads.
    Interrupts(AtomicU64),
    /// Direct reads are refused, as by some file systems only when it comes to
    /// reading.
    NoDirectReads,
}

/// True once there is a fault: programs that are tested have none, and must not wait here.
static ANY: AtomicBool = AtomicBool::new(false);

type Faults = HashMap<(u64, u64), Vec<Fault>>;

fn faults() -> &'static Mutex<Faults> {
    static FAULTS: OnceLock<Mutex<Faults>> = OnceLock::new();
    FAULTS.get_or_init(Mutex::default)
}

/// Gives the file at `path` a fault, until it is healed.
pub fn inject(path: &std::path::Path, fault: Fault) {
    let metadata = std::fs::metadata(path).unwrap();
    let mut faults = faults().lock().unwrap_or_else(PoisonError::into_inner);
    faults.entry((metadata.dev(), metadata.ino())).or_default().push(fault);
    ANY.store(true, Ordering::SeqCst);
}

/// Takes all faults from a new file, which may have the inode of a removed one.
pub fn heal(path: &std::path::Path) {
    let metadata = std::fs::metadata(path).unwrap();
    let mut faults = faults().lock().unwrap_or_else(PoisonError::into_inner);
    faults.remove(&(metadata.dev(), metadata.ino()));
}

/// What becomes of a read of `file` at `offset`.
pub fn disturb(file: &File, offset: u64, read: io::Result<usize>) -> io::Result<usize> {
    if !ANY.load(Ordering::SeqCst) {
        return read;
    }
    let Ok(metadata) = file.metadata() else { return read };
    let faults = faults().lock().unwrap_or_else(PoisonError::into_inner);
    let Some(faults) = faults.get(&(metadata.dev(), metadata.ino())) else { return read };
    let mut count = read?;
    for fault in faults {
        match fault {
            Fault::BadByte(at) if (offset..offset + count as u64).contains(at) => {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Fault::BadByte(_) => {}
            Fault::ShortReads(longest) => count = count.min(*longest),
            Fault::Interrupts(seen) => {
                if seen.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
            Fault::NoDirectReads => {
                if is_direct(file) {
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
            }
        }
    }
    Ok(count)
}

#[cfg(target_os = "linux")]
fn is_direct(file: &File) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::DIRECT))
}

#[cfg(not(target_os = "linux"))]
fn is_direct(_: &File) -> bool {
    false
}
