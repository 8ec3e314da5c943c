//! How much memory is available.

use std::fs;

/// Bytes that can be allocated without swapping; `None` where the system does not say.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_as_linux_says_it() {
        let said = "MemTotal:       24576000 kB\nMemAvailable:    1048576 kB\n";
        assert_eq!(parse(said), Some(1 << 30));
        assert_eq!(parse("MemAvailable: many kB\n"), None);
        assert_eq!(parse("MemTotal: 1 kB\n"), None);
    }
}
