//! What a folder lies on, as far as figures depend on it.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::cost::machine;

/// The disk below a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// `ext4`, `tmpfs` ...
    pub file_system: Option<String>,
    /// What the system says of the disk.
    pub disk: Option<String>,
    /// True if it says that it keeps nothing in a cache that a power failure
    /// empties, so that a flush has nothing to do.
    pub is_write_through: Option<bool>,
    /// Bytes of memory in this machine.
    pub memory_bytes: Option<u64>,
}

impl Device {
    /// Finds out what is below `folder`.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory_bytes = memory(&read("/proc/meminfo"));
        let real = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let Some(mount) = machine::mount_of(&read("/proc/self/mountinfo"), &real) else {
            return Self { memory_bytes, ..Self::default() };
        };
        Self {
            disk: machine::disk(&mount.device),
            is_write_through: write_cache(&mount.device).as_deref().map(is_write_through),
            file_system: Some(mount.file_system),
            memory_bytes,
        }
    }
}

/// `MemTotal:       24684096 kB`
fn memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// `write back` or `write through`; of a partition the disk is asked.
fn write_cache(device: &str) -> Option<String> {
    let here = fs::canonicalize(Path::new("/sys/dev/block").join(device)).ok()?;
    let place = if here.join("queue").exists() { here.as_path() } else { here.parent()? };
    fs::read_to_string(place.join("queue/write_cache")).ok()
}

fn is_write_through(text: &str) -> bool {
    text.trim() == "write through"
}

/// Runs that wait for a processor, in the mean of the last minute.
#[must_use]
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_lines_of_the_system() {
        assert_eq!(memory("MemTotal:       24684096 kB\nMemFree: 1 kB\n"), Some(25_276_514_304));
        assert_eq!(memory("nothing"), None);
        assert!(is_write_through("write through\n"));
        assert!(!is_write_through("write back\n"));
    }

    #[test]
    fn a_folder_of_this_machine_lies_on_something() {
        let device = Device::below(Path::new("/"));
        assert!(device.file_system.is_some(), "{device:?}");
        assert!(device.memory_bytes.is_some_and(|bytes| bytes > 1 << 20), "{device:?}");
    }
}
