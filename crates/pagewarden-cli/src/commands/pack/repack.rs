//! One pack of a pack and what was written over it since, from a mount of the two.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};
use pagewarden::database;
use pagewarden::formats::postgres::files::frozen::Tablespace;
use pagewarden::pack::{Content, Pack, What};
use pagewarden::report::several::Several;
use pagewarden::verdict::Verdict;
use pagewarden::verify::verify;

use super::{Packed, Place, Whole, make, open, options, profile_of, tablespace};
use crate::args::pack::Pack as Arguments;
use crate::args::storage::StorageOptions;
use crate::commands::storage::Storage;
use crate::progress::Show;

/// Packs what is mounted on `folder`, as `old` was packed, into `output`; a tablespace
/// as that of its cluster. What was made is read back as a whole before it counts.
///
/// # Errors
/// A server has not ended properly, something cannot be read or written, or the new
/// pack is not what was written.
pub fn repack(
    folder: &Path,
    old: &Pack,
    output: &Path,
    is_json: bool,
    cluster: Option<&Path>,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Packed> {
    let (arguments, mut packed) = match (cluster, old.tablespace()?) {
        (Some(cluster), Some(tablespace)) => {
            let name = &tablespace.name;
            let found = Tablespace::find(cluster, name)?;
            ensure!(
                found.folder == folder,
                "cannot repack tablespace {name}: it is in {}, and not in {}\n\
                 hint: name the folder that the link in pg_tblspc leads to",
                found.folder.display(),
                folder.display()
            );
            let arguments = arguments(cluster, old, is_json);
            let storage = Storage::begin([], &arguments.storage, None, stop)?;
            let packed = tablespace::make(&arguments, name, output, &storage, stop, show)?;
            (arguments, packed)
        }
        _ => {
            let source = source(folder, old)?;
            let arguments = arguments(&source, old, is_json);
            let packed = repack_all(&arguments, folder, old, output, stop, show)?;
            (arguments, packed)
        }
    };
    if packed.made.is_some() {
        read_back(&arguments, output, stop, show, &mut packed)?;
    }
    Ok(packed)
}

fn repack_all(
    arguments: &Arguments,
    folder: &Path,
    old: &Pack,
    output: &Path,
    stop: &Arc<AtomicBool>,
    show: &Show,
) -> Result<Packed> {
    let source = arguments.source.as_path();
    let place = Place::prepare(output, [folder])?;
    let target = open(source, None)?;
    ensure!(
        !target.description.live,
        "cannot pack what was written: the server on it has not ended properly\n\
         hint: mount it, start the server, and shut it down"
    );
    let whole = Whole { source, target, tablespace: None, mounted: Some(old) };
    make(arguments, whole, place, stop, show)
}

/// Nothing is thrown away for a pack that was not read back.
fn read_back(
    arguments: &Arguments,
    output: &Path,
    stop: &Arc<AtomicBool>,
    show: &Show,
    packed: &mut Packed,
) -> Result<()> {
    let options = options(arguments, stop);
    let mut unheard = Several::default();
    let read = verify(database::open(output, None)?, &options, show, &mut unheard)?.summary;
    let verdict = read.verdict(None);
    packed.summary.stopped |= read.stopped;
    ensure!(
        read.stopped || read.unread == 0 && verdict != Verdict::Damaged,
        "cannot trust {}: read back, it is not what was written\n\
         hint: remove it, and look after the device",
        output.display()
    );
    Ok(())
}

/// The file in the mount, if a single file was packed; else all of it.
fn source(folder: &Path, old: &Pack) -> Result<PathBuf> {
    let single = match old.entries() {
        [only] if only.what != What::Folder => only,
        _ => return Ok(folder.to_owned()),
    };
    for entry in folder.read_dir()? {
        let name = entry?.file_name();
        ensure!(
            Path::new(&name) == single.name,
            "cannot pack what was written: {} was packed alone, and {} is beside it now\n\
             hint: mount it, and remove that file or have the database remove it",
            single.name.display(),
            Path::new(&name).display()
        );
    }
    Ok(folder.join(&single.name))
}

/// As who asks for nothing in particular, with the profile that the blocks tell of.
fn arguments(source: &Path, old: &Pack, is_json: bool) -> Arguments {
    let profile = u32::try_from(old.block_bytes()).ok().and_then(profile_of);
    Arguments {
        storage: StorageOptions::default(),
        source: source.to_owned(),
        output: None,
        to: None,
        format: None,
        estimate: false,
        base: None,
        tablespace: None,
        profile,
        codec: None,
        level: None,
        keep_damaged: false,
        accept_unverifiable: true,
        stats: None,
        json: is_json,
        jobs: None,
        rate: None,
        quiet: true,
        progress: false,
    }
}

/// What is a folder in a mount of this pack, and was a link when it was packed, is to be
/// one again.
pub(super) fn restore_links(content: &mut Content, mounted: &Pack) {
    let links: HashMap<&Path, &PathBuf> = mounted
        .entries()
        .iter()
        .filter_map(|entry| Some((entry.name.as_path(), entry.link.as_ref()?)))
        .collect();
    for entry in content.entries.iter_mut().filter(|entry| entry.what == What::Folder) {
        entry.link = links.get(entry.name.as_path()).map(|link| (*link).clone());
    }
}
