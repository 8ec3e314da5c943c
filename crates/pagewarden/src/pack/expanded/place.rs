//! Where a store lies: in a tmpfs, under a name that says whose it is, made whole before it has that
//! name, and looked at before it is believed.

use std::fs::File;
use std::path::Path;

use pagewarden_core::system::Errno;
use pagewarden_core::system::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use pagewarden_core::system::{AsFd, AsRawFd as _, OwnedFd};
use pagewarden_core::system::{FileExt as _, MetadataExt as _};

use super::{ExpandedError, HEAD_USED_BYTES, Wanted};
use crate::source::file::read_fully;

/// What `statfs` says of a tmpfs, by its manual page.
const TMPFS: u64 = 0x0102_1994;
const MODE: u32 = 0o600;

/// Opens the store that is wanted, or makes it.
pub(super) fn open(folder: &Path, wanted: &Wanted) -> Result<File, ExpandedError> {
    let shown = folder.display();
    let no_place = |error: Errno| ExpandedError::NoPlace(format!("{shown}: {error}"));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = openat(CWD, folder, flags, Mode::empty()).map_err(no_place)?;
    if !is_in_memory(&inside).map_err(no_place)? {
        return Err(ExpandedError::NoPlace(format!(
            "{shown} does not lie in memory: expanded pages are kept in a tmpfs only, such as \
             /dev/shm, since they are not tested again"
        )));
    }
    let not_now = |words: String| {
        let name = &wanted.name;
        ExpandedError::NotNow(format!("{shown}/{name} cannot be used: {words}"))
    };
    let found = match existing(&inside, wanted) {
        Err(Errno::NOENT) => make(&inside, wanted).and_then(|()| existing(&inside, wanted)),
        other => other,
    };
    let store = File::from(found.map_err(|error| not_now(error.to_string()))?);
    match refusal(&store, wanted) {
        Ok(None) => Ok(store),
        Ok(Some(why)) => Err(not_now(format!("{why}; remove it"))),
        Err(error) => Err(not_now(error.to_string())),
    }
}

fn is_in_memory(file: impl AsFd) -> Result<bool, Errno> {
    let kind = pagewarden_core::system::fs::fstatfs(file)?.f_type;
    Ok(u64::try_from(kind).is_ok_and(|kind| kind == TMPFS))
}

fn existing(folder: &OwnedFd, wanted: &Wanted) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(folder, &wanted.name, flags, Mode::empty())
}

/// Makes it whole before it gets its name; if another one has it by then, that one is as good.
fn make(folder: &OwnedFd, wanted: &Wanted) -> Result<(), Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(openat(folder, ".", flags, Mode::from_raw_mode(MODE))?);
    file.set_len(wanted.bytes).map_err(failed)?;
    file.write_all_at(&wanted.head, 0).map_err(failed)?;
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, itself, folder, &wanted.name, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Why what was found is not the store that is wanted, if it is not.
fn refusal(store: &File, wanted: &Wanted) -> std::io::Result<Option<&'static str>> {
    let status = store.metadata()?;
    let mut head = [0; HEAD_USED_BYTES];
    Ok(if !status.is_file() || !is_in_memory(store)? {
        Some("it is no regular file in memory")
    } else if status.uid() != pagewarden_core::system::process::geteuid().as_raw() {
        Some("it belongs to another user")
    } else if status.mode() & 0o7777 != MODE || status.nlink() > 1 {
        Some("others may have written to it, by its mode or its names")
    } else if status.len() != wanted.bytes
        || read_fully(store, &mut head, 0)? < head.len()
        || head != *wanted.head
    {
        Some("it is not what this program made, or was cut")
    } else {
        None
    })
}
