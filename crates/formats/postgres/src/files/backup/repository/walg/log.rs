//! The log that WAL-G keeps in `wal_005`, each segment compressed and perhaps encrypted like the parts
//! of a backup.

use std::io::{self, Read};

use super::super::tars::{Form, StoredTar};
use super::Storage;
use super::key::NoKey;
use crate::files::archived_log::{LogFolder, begins_as_log};
use crate::files::wal::segment::LONG_HEADER_BYTES;
use pagewarden_core::source::decode::Compression;
use pagewarden_core::source::secretstream::{FIRST_CHUNK_BYTES, Key, opens};
use pagewarden_core::source::store::{StorePath, says_nothing_of_the_bytes};

/// The folder of the log, beside that of the backups.
const LOG: &str = "wal_005";

/// The log of a storage; `None` where it keeps none.
///
/// # Errors
/// Its folder cannot be listed.
pub(super) fn list(storage: &Storage, key: &Result<Key, NoKey>) -> io::Result<Option<LogFolder>> {
    let folder = storage.root.join(LOG);
    let (key, why) = match key {
        Ok(key) => (Some(key.clone()), "the key that was given does not open it".to_owned()),
        Err(no_key) => (None, no_key.to_string()),
    };
    let open = move |place: &StorePath| reader(place, key.as_ref(), &why);
    match LogFolder::list(&storage.root, &folder, Box::new(open)) {
        Ok(log) => Ok(Some(log)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The plain bytes of a stored file. One that begins like nothing that is known is `Unsupported`: it
/// is encrypted, or its beginning is damaged.
fn reader(place: &StorePath, key: Option<&Key>, why: &str) -> io::Result<Box<dyn Read + Send>> {
    let begin = place.first_bytes(FIRST_CHUNK_BYTES)?;
    let compression = place.has_ending("br").then_some(Compression::Brotli);
    let has_mark = Compression::of(&begin) != Compression::None;
    let key = key.filter(|key| (compression.is_some() || !has_mark) && opens(&begin, key)).cloned();
    let is_known = has_mark || key.is_some() || begins_as_log(&begin);
    let stored = StoredTar {
        place: place.clone(),
        shown: String::new(),
        prefix: String::new(),
        form: Form { compression, key },
    };
    let mut stored = stored.reader().map_err(|error| refused_if(!is_known, why, error))?;
    if compression.is_some() && !is_known {
        // Brotli has no mark: what it gives says whether it is.
        let mut begin = vec![0; LONG_HEADER_BYTES];
        stored.read_exact(&mut begin).map_err(|error| refused_if(true, why, error))?;
        let is_history = begin.iter().all(u8::is_ascii);
        if !begins_as_log(&begin) && !is_history {
            return Err(refused(why));
        }
        return Ok(Box::new(io::Cursor::new(begin).chain(stored)));
    }
    let is_text = begin.iter().all(u8::is_ascii);
    if is_known || is_text { Ok(stored) } else { Err(refused(why)) }
}

fn refused_if(is_unknown: bool, why: &str, error: io::Error) -> io::Error {
    match is_unknown && !says_nothing_of_the_bytes(&error) {
        true => refused(why),
        false => error,
    }
}

fn refused(why: &str) -> io::Error {
    let error = format!(
        "it begins like no segment of the log: it is encrypted, and {why} (--cipher-pass-file FILE, or \
         WALG_LIBSODIUM_KEY and WALG_LIBSODIUM_KEY_TRANSFORM)"
    );
    io::Error::new(io::ErrorKind::Unsupported, error)
}
