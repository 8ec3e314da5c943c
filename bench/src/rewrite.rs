//! The least that changing every page through the page cache can take: each file read
//! and written back in place, and nothing looked at.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use anyhow::Context as _;

/// What to write back.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Wait until the device holds it
    #[arg(long)]
    sync: bool,
    /// Files
    files: Vec<PathBuf>,
}

/// As `pagewarden protect` has them.
const RUN_BYTES: usize = 512 << 10;

/// Reads the files and writes them back.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut buffer = vec![0; RUN_BYTES];
    for path in &arguments.files {
        let named = || path.display().to_string();
        let file = OpenOptions::new().read(true).write(true).open(path).with_context(named)?;
        let mut offset = 0;
        loop {
            let count = file.read_at(&mut buffer, offset).with_context(named)?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
            file.write_all_at(bytes, offset).with_context(named)?;
            offset += count as u64;
        }
        if arguments.sync {
            file.sync_all().with_context(named)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..RUN_BYTES + 100).map(|at| at.to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).unwrap();
        run(&Arguments { sync: true, files: vec![path.clone()] }).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!(run(&Arguments { sync: false, files: vec![folder.path().join("none")] }).is_err());
    }
}
