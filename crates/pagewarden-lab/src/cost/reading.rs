//! Files read from end to end with large plain reads: what any program that reads
//! a whole database is measured against.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::cost::experiment::Reading;
use crate::cost::sqlite::Meter;

/// As backups read.
const READ_BYTES: usize = 1 << 20;

/// What a process of its own is to read, one file after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Below the process's folder.
    pub files: Vec<PathBuf>,
}

impl Task {
    /// Reads them: `seconds`, `cpu_seconds` and `bytes`.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn run(&self) -> Result<Reading> {
        let mut buffer = vec![0; READ_BYTES];
        let mut bytes = 0_usize;
        let meter = Meter::start();
        for path in &self.files {
            let cannot = || format!("cannot read {}", path.display());
            let mut file = File::open(path).with_context(cannot)?;
            loop {
                let count = file.read(&mut buffer).with_context(cannot)?;
                if count == 0 {
                    break;
                }
                bytes = bytes.saturating_add(count);
            }
        }
        Ok(meter.stop().with_value("bytes", bytes as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_and_a_missing_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; READ_BYTES + 5]).unwrap();
        let reading = Task { files: vec![path.clone(), path.clone()] }.run().unwrap();
        let expected = (2 * (READ_BYTES + 5)) as f64;
        assert!((reading.values["bytes"] - expected).abs() < 0.5, "{reading:?}");
        let error = Task { files: vec![path.with_extension("not")] }.run().unwrap_err();
        assert!(error.to_string().contains("file.not"), "{error}");
    }
}
