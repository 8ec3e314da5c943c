//! Damaged pages brought back from copies: the engines of [`FORMATS`](crate::formats::FORMATS), and
//! copies in packs. What is common to engines is in the core.

use std::fs::File;
use std::path::Path;

use pagewarden_core::system::{FileExt as _, MetadataExt as _};

pub use pagewarden_core::repair::*;

use crate::error::Error;
use crate::formats;
use crate::pack::{Pack, Search, What, is_pack, open_chain};
use crate::protect::disk::System;
use crate::verify::Progress;
use copies::{Moment, Packs};

pub mod advice;

const BLOCK_BYTES: usize = 1 << 20;

/// Plans a repair, or does it.
///
/// # Errors
/// It cannot be done, or not safely: the database runs or is none that can be repaired, a source is
/// of another database, a file cannot be read or written. Every page is then as it was, or as the
/// undo file that the message names has it.
pub fn repair(
    request: &Request,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let engines: Vec<_> = formats::repairing().collect();
    let packs = Packs { is_pack, unpack, take_out };
    let means = Means { disk: &System, engines: &engines, packs };
    repair_with(means, request, options, progress)
}

/// Writes the one database of a pack to `target`; when it was last written before it was packed.
fn unpack(path: &Path, target: &Path) -> Result<Option<Moment>, Error> {
    let pack = open_chain(path, &[], Search::Beside)?;
    let is_file = |what: &What| matches!(what, What::File { .. });
    let mut files = pack.entries().iter().enumerate().filter(|(_, entry)| is_file(&entry.what));
    let (Some((number, entry)), None) = (files.next(), files.next()) else {
        let reason = "a pack of more than one file";
        return Err(Error::refused(path, reason, "unpack it, and name the copy in it"));
    };
    write_file(&pack, path, number, target)?;
    let attributes = &entry.attributes;
    let packed = std::fs::metadata(path).map_err(|error| failed(path, error))?.mtime();
    let is_later = packed > attributes.modified_seconds.saturating_add(1);
    let written = (attributes.modified_seconds, i64::from(attributes.modified_nanoseconds));
    Ok((written.1 != 0 && is_later).then_some(written))
}

/// Writes files of a pack below `folder`.
fn take_out(path: &Path, wanted: &dyn Fn(&str) -> bool, folder: &Path) -> Result<(), Error> {
    let pack = open_chain(path, &[], Search::Beside)?;
    for (number, entry) in pack.entries().iter().enumerate() {
        let Some(name) = entry.name.to_str().filter(|name| wanted(name)) else { continue };
        if matches!(entry.what, What::File { .. }) {
            let target = folder.join(name);
            let above = target.parent().unwrap_or(folder);
            std::fs::create_dir_all(above).map_err(|error| failed(path, error))?;
            write_file(&pack, path, number, &target)?;
        }
    }
    Ok(())
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::io("unpack into a temporary folder (TMPDIR says where)", path, error)
}

/// Writes one file of the pack at `path`.
fn write_file(pack: &Pack, path: &Path, number: usize, target: &Path) -> Result<(), Error> {
    let file = File::create(target).map_err(|error| failed(path, error))?;
    let mut contents = pack.contents();
    let mut block = vec![0; BLOCK_BYTES];
    let mut offset = 0_u64;
    loop {
        let count = contents
            .read_at(number, offset, &mut block)
            .map_err(|error| Error::damaged(path, error.to_string(), "name another copy"))?;
        if count == 0 {
            return Ok(());
        }
        let bytes = block.get(..count).unwrap_or_default();
        file.write_all_at(bytes, offset).map_err(|error| failed(path, error))?;
        offset = offset.saturating_add(count as u64);
    }
}
