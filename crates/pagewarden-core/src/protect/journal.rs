//! Which files an interrupted run had finished.
//!
//! Lines of text, appended as files become durable:
//!
//! ```text
//! pagewarden protect journal 1 TITLE CRC
//! done INODE LENGTH CHANGED FILE CRC
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `TITLE` | what was being done to which state of which database, without blanks |
//! | `INODE`, `LENGTH`, `CHANGED` | the file as it was when it was done: its number, its bytes, the nanosecond of its last change of any kind |
//! | `CRC` | CRC-32C, eight hexadecimal digits, of the CRC before and the line up to here |
//!
//! A journal says only what was durable when its line was written, so its own
//! lines need not be: one that is lost costs a file that is looked at once more.
//! Each CRC covers the one before, so that whatever a power failure leaves of the
//! file is read up to the first line that is not where it belongs.

#![deny(clippy::arithmetic_side_effects)]

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::crc::Crc32c;
use crate::error::Error;
use crate::protect::Options;
use crate::protect::disk::{Disk, Written, remove, sync_folder};
use crate::system::{MetadataExt as _, inode};

/// In the data directory itself, where servers and `pg_checksums` ignore it.
pub const NAME: &str = "pagewarden-protect.journal";
const MAGIC: &str = "pagewarden protect journal 1";
/// A line for every file of a million relations is less than this.
const BYTES_MAX: u64 = 512 << 20;
/// How much work a power failure may cost: that of so long.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A file as it was when it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    length: u64,
    changed: i128,
}

impl Stamp {
    /// Of a file with this metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let seconds = i128::from(metadata.ctime()).saturating_mul(1_000_000_000);
        Self {
            inode: inode(metadata).unwrap_or(0),
            length: metadata.len(),
            changed: seconds.saturating_add(i128::from(metadata.ctime_nsec())),
        }
    }
}

/// What earlier runs had finished, by the names of the files.
pub type Done = HashMap<String, Stamp>;

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal<'a> {
    disk: &'a dyn Disk,
    file: Written,
    length: u64,
    chain: u32,
    synced: Instant,
}

impl<'a> Journal<'a> {
    /// Goes on with the journal at `path` if it is of the same `title`, and
    /// begins one otherwise. Also gives what it already says; `None` if it was
    /// begun.
    pub fn open(
        disk: &'a dyn Disk,
        path: &Path,
        title: &str,
        like: &Metadata,
    ) -> io::Result<(Self, Option<Done>)> {
        match Written::open(path) {
            Ok(file) => {
                let text = read(&file.file)?;
                if let Some((length, chain, done)) = parse(&text, title) {
                    // What a torn end left must not stand behind the next line.
                    disk.set_length(&file, length)?;
                    let journal = Self { disk, file, length, chain, synced: Instant::now() };
                    return Ok((journal, Some(done)));
                }
                disk.remove(path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let file = disk.create(path, like)?;
        let mut journal = Self { disk, file, length: 0, chain: 0, synced: Instant::now() };
        journal.append(&format!("{MAGIC} {title}"))?;
        Ok((journal, None))
    }

    /// The journal of a run that gives pages their checksums, and what it already says, as
    /// [`Journal::open`]. `state` is what the database was when the run began. None where nothing
    /// is waited for: a journal could not tell then what the device holds, so one that is there
    /// goes.
    pub fn of_run(
        disk: &'a dyn Disk,
        options: &Options,
        path: &Path,
        (engine, state): (&str, &dyn Display),
        like: &Metadata,
    ) -> Result<(Option<Self>, Option<Done>), Error> {
        if !options.sync {
            Self::discard(disk, options, path)?;
            return Ok((None, None));
        }
        let verified = if options.verify { "verified" } else { "unverified" };
        let title = format!("{engine}/checksum/{verified}/{state}");
        let (journal, done) = Self::open(disk, path, &title, like)
            .map_err(|error| Error::io("write", path, error))?;
        Ok((Some(journal), done))
    }

    /// Takes away what is at `path`.
    pub fn discard(disk: &dyn Disk, options: &Options, path: &Path) -> Result<(), Error> {
        if remove(disk, path)?
            && let Some(folder) = path.parent()
        {
            sync_folder(disk, options, folder)?;
        }
        Ok(())
    }

    /// Says that the device holds all of a file.
    pub fn record(&mut self, name: &str, stamp: Stamp) -> io::Result<()> {
        let Stamp { inode, length, changed } = stamp;
        self.append(&format!("done {inode} {length} {changed} {name}"))?;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Makes sure that it outlives a power failure.
    pub fn sync(&mut self) -> io::Result<()> {
        self.synced = Instant::now();
        self.disk.sync(&self.file)
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        let chain = chained(self.chain, text);
        let line = format!("{text} {chain:08x}\n");
        self.disk.write_at(&self.file, line.as_bytes(), self.length)?;
        self.length = self.length.saturating_add(line.len() as u64);
        self.chain = chain;
        Ok(())
    }
}

fn chained(before: u32, text: &str) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&before.to_le_bytes());
    crc.update(text.as_bytes());
    crc.finish()
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The length of the part that can be believed, its last CRC, and what it says;
/// `None` if it is no journal of this title.
fn parse(bytes: &[u8], title: &str) -> Option<(u64, u32, Done)> {
    let mut chain = 0;
    let mut length = 0_u64;
    let mut done: Option<Done> = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some((text, crc)) = whole_line(line, chain) else { break };
        match &mut done {
            None => {
                if text.strip_prefix(MAGIC)?.strip_prefix(' ')? != title {
                    return None;
                }
                done = Some(Done::new());
            }
            Some(done) => {
                let Some((name, stamp)) = record(text) else { break };
                done.insert(name, stamp);
            }
        }
        chain = crc;
        length = length.saturating_add(line.len() as u64);
    }
    Some((length, chain, done?))
}

/// A line that ends as it must, without its CRC.
fn whole_line(line: &[u8], chain: u32) -> Option<(&str, u32)> {
    let (text, crc) = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.rsplit_once(' ')?;
    let stored = u32::from_str_radix(crc, 16).ok().filter(|_| crc.len() == 8)?;
    (stored == chained(chain, text)).then_some((text, stored))
}

fn record(text: &str) -> Option<(String, Stamp)> {
    let mut fields = text.strip_prefix("done ")?.splitn(4, ' ');
    let stamp = Stamp {
        inode: fields.next()?.parse().ok()?,
        length: fields.next()?.parse().ok()?,
        changed: fields.next()?.parse().ok()?,
    };
    Some((fields.next()?.to_owned(), stamp))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protect::disk::System;

    fn stamp(number: u64) -> Stamp {
        Stamp { inode: number, length: number * 8192, changed: -i128::from(number) }
    }

    fn written(names: &[&str]) -> (tempfile::TempDir, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let like = folder.path().metadata().unwrap();
        let (mut journal, done) = Journal::open(&System, &path, "of-this", &like).unwrap();
        assert_eq!(done, None);
        for (number, name) in (1..).zip(names) {
            journal.record(name, stamp(number)).unwrap();
        }
        (folder, std::fs::read(path).unwrap())
    }

    #[test]
    fn what_was_recorded_is_read_back_and_gone_on_with() {
        let (folder, _) = written(&["base/5/1259", "global/1262_fsm.1", "with blanks in it"]);
        let path = folder.path().join("journal");
        let like = folder.path().metadata().unwrap();
        let (mut journal, done) = Journal::open(&System, &path, "of-this", &like).unwrap();
        let done = done.unwrap();
        assert_eq!(done.len(), 3);
        assert_eq!(done["global/1262_fsm.1"], stamp(2));
        assert_eq!(done["with blanks in it"], stamp(3));
        journal.record("one more", stamp(9)).unwrap();
        let (_, done) = Journal::open(&System, &path, "of-this", &like).unwrap();
        assert_eq!(done.unwrap().len(), 4);
    }

    #[test]
    fn journal_of_another_state_is_begun_anew() {
        let (folder, _) = written(&["base/5/1259"]);
        let path = folder.path().join("journal");
        let like = folder.path().metadata().unwrap();
        let (_, done) = Journal::open(&System, &path, "of-that", &like).unwrap();
        assert_eq!(done, None);
        let (_, done) = Journal::open(&System, &path, "of-that", &like).unwrap();
        assert_eq!(done, Some(Done::new()));
    }

    #[test]
    fn every_flipped_bit_ends_it_before_its_line() {
        let (_folder, bytes) = written(&["base/5/1259", "base/5/1260", "base/5/1261"]);
        let line_of = |at: usize| bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let believed = parse(&flipped, "of-this").map(|(_, _, done)| done.len());
                // Hexadecimal digits are read in either case, and mean the same.
                if flipped[at].eq_ignore_ascii_case(&bytes[at]) && believed == Some(3) {
                    continue;
                }
                assert_eq!(believed, line_of(at).checked_sub(1), "bit {bit} of {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_fault(bytes: Vec<u8>, cut in 0..200_usize) {
            let _ = parse(&bytes, "of-this");
            let (_folder, mut whole) = written(&["a", "b"]);
            whole.truncate(cut);
            whole.extend(bytes);
            if let Some((length, _, done)) = parse(&whole, "of-this") {
                prop_assert!(length <= whole.len() as u64 && done.len() <= 2);
            }
        }
    }
}
