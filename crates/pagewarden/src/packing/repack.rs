//! One pack of a pack and what was written over it since, from a mount of the two.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{
    Failure, Packed, Place, Request, Result, Watch, Whole, make, open, profile_of, tablespace,
};
use crate::database;
use crate::error::ErrorKind;
use crate::formats::postgres::files::frozen::Tablespace;
use crate::pack::{Content, Pack, What};
use crate::report::several::Several;
use crate::source::store::ThisMachine;
use crate::verdict::Verdict;
use crate::verify::verify;

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
    cluster: Option<&Path>,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
) -> Result<Packed> {
    let unreadable = |error| Failure::io("read", folder)(std::io::Error::other(error));
    let (request, mut packed) = match (cluster, old.tablespace().map_err(unreadable)?) {
        (Some(cluster), Some(tablespace)) => {
            let name = &tablespace.name;
            let found = Tablespace::find(cluster, name)?;
            if found.folder != folder {
                let text = format!(
                    "cannot repack tablespace {name}: it is in {}, and not in {}\n\
                     hint: name the folder that the link in pg_tblspc leads to",
                    found.folder.display(),
                    folder.display()
                );
                return Err(Failure::refused(folder, text));
            }
            let request = request(cluster, old);
            let packed = tablespace::make(&request, name, output, &ThisMachine, stop, watch)?;
            (request, packed)
        }
        _ => {
            let source = source(folder, old)?;
            let request = request(&source, old);
            let packed = repack_all(&request, folder, old, output, stop, watch)?;
            (request, packed)
        }
    };
    if packed.made.is_some() {
        read_back(&request, output, stop, watch, &mut packed)?;
    }
    Ok(packed)
}

fn repack_all(
    request: &Request,
    folder: &Path,
    old: &Pack,
    output: &Path,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
) -> Result<Packed> {
    let source = request.source.as_path();
    let place = Place::prepare_in(&ThisMachine, output, [folder])?;
    let target = open(source, None)?;
    if target.description.live {
        let text = "cannot pack what was written: the server on it has not ended properly\n\
                    hint: mount it, start the server, and shut it down";
        return Err(Failure::new(ErrorKind::InUse, source, text));
    }
    let whole = Whole { source, target, tablespace: None, mounted: Some(old) };
    make(request, whole, place, stop, watch)
}

/// Nothing is thrown away for a pack that was not read back.
fn read_back(
    request: &Request,
    output: &Path,
    stop: &Arc<AtomicBool>,
    watch: &dyn Watch,
    packed: &mut Packed,
) -> Result<()> {
    let options = request.options(stop);
    let mut unheard = Several::default();
    let read = verify(database::open(output, None)?, &options, watch, &mut unheard)?.summary;
    let verdict = read.verdict(None);
    packed.summary.stopped |= read.stopped;
    if read.stopped || read.unread == 0 && verdict != Verdict::Damaged {
        return Ok(());
    }
    let text = format!(
        "cannot trust {}: read back, it is not what was written\n\
         hint: remove it, and look after the device",
        output.display()
    );
    Err(Failure::new(ErrorKind::LostWrite, output, text))
}

/// The file in the mount, if a single file was packed; else all of it.
fn source(folder: &Path, old: &Pack) -> Result<PathBuf> {
    let single = match old.entries() {
        [only] if only.what != What::Folder => only,
        _ => return Ok(folder.to_owned()),
    };
    let unreadable = || Failure::io("read", folder);
    for entry in folder.read_dir().map_err(unreadable())? {
        let name = entry.map_err(unreadable())?.file_name();
        if Path::new(&name) != single.name {
            let text = format!(
                "cannot pack what was written: {} was packed alone, and {} is beside it now\n\
                 hint: mount it, and remove that file or have the database remove it",
                single.name.display(),
                Path::new(&name).display()
            );
            return Err(Failure::refused(folder, text));
        }
    }
    Ok(folder.join(&single.name))
}

/// As who asks for nothing in particular, with the profile that the blocks tell of.
fn request(source: &Path, old: &Pack) -> Request {
    let profile = u32::try_from(old.block_bytes()).ok().and_then(profile_of);
    Request { profile, accepts_unverifiable: true, ..Request::of(source) }
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
