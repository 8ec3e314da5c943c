//! One object, read in pieces.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use pagewarden::source::store::{NotRead, StoredBytes};

use crate::fault::{REPLACED, Secrets};
use crate::io_thread::IoThread;
use crate::pieces::{Fetched, Held, PIECE_BYTES, Pieces};

/// Pieces that are fetched ahead at most.
const AHEAD_MAX: u64 = 6;
/// No piece was read yet.
const NONE: u64 = u64::MAX;

/// How an object was when it was seen first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) length: u64,
    /// `None`: the server gives none. Then only the length tells one version from another.
    pub(crate) etag: Option<String>,
}

impl From<&ObjectMeta> for Version {
    fn from(meta: &ObjectMeta) -> Self {
        Self { length: meta.size, etag: meta.e_tag.as_deref().and_then(quoted) }
    }
}

impl Version {
    /// True if nothing tells this one from the other.
    fn may_be(&self, other: &Self) -> bool {
        let is_other = self.etag.is_some() && other.etag.is_some() && self.etag != other.etag;
        self.length == other.length && !is_other
    }
}

/// An ETag as HTTP writes it: Azure's lists have it without quotes, its answers with them. A gateway to
/// a folder has none of files that others put there: its lists have an empty one, its answers none.
fn quoted(etag: &str) -> Option<String> {
    if etag.trim_matches('"').is_empty() {
        return None;
    }
    let is_quoted = etag.trim_start_matches("W/").starts_with('"');
    Some(if is_quoted { etag.to_owned() } else { format!("\"{etag}\"") })
}

/// What an object needs of its bucket.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) io: Arc<IoThread>,
    pub(crate) pieces: Arc<Pieces>,
    pub(crate) secrets: Arc<Secrets>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Object {
    access: Access,
    key: Key,
    number: u64,
    version: Version,
    /// It will be read from its beginning to its end.
    is_read_through: AtomicBool,
}

impl Object {
    /// Its bytes.
    pub(crate) fn length(&self) -> u64 {
        self.version.length
    }

    /// By which its pieces are kept.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn new(access: Access, key: Key, version: Version) -> Self {
        let number = access.pieces.new_object();
        Self { access, key, number, version, is_read_through: AtomicBool::new(false) }
    }

    /// Begins to fetch it if it is as small as that.
    pub(crate) fn expect(&self, bytes_max: u64) {
        if (1..=bytes_max).contains(&self.version.length) {
            self.begin(0);
        }
    }

    /// It will be read from its beginning to its end, after what is being read now.
    pub(crate) fn expect_whole(self: &Arc<Self>, end_first: bool) {
        self.is_read_through.store(true, Ordering::Relaxed);
        // It may have been forgotten by then.
        let next = Arc::downgrade(self);
        let mut begun = 0;
        self.access.pieces.call_next(Box::new(move || {
            let Some(object) = next.upgrade() else { return };
            let count = object.pieces();
            if begun < count.min(AHEAD_MAX) {
                if end_first && begun == 0 {
                    object.begin(count.saturating_sub(1));
                }
                object.begin(begun);
                begun = begun.saturating_add(1);
            }
        }));
    }

    /// How many pieces it has.
    fn pieces(&self) -> u64 {
        self.version.length.div_ceil(PIECE_BYTES)
    }

    /// Puts the first piece there, if that is what came when it was seen first.
    pub(crate) fn keep_first(&self, bytes: Vec<u8>, version: &Version) {
        let is_whole = bytes.len() as u64 == self.version.length.min(PIECE_BYTES);
        if is_whole && *version == self.version {
            let (length, fetched) = (bytes.len() as u64, Ok(Arc::from(bytes)));
            self.access.pieces.slot((self.number, 0), length, |slot| slot.fill(fetched));
        }
    }

    /// True if its first piece is here, or on its way.
    pub(crate) fn has_first(&self) -> bool {
        self.access.pieces.is_kept((self.number, 0))
    }

    /// Its first bytes, if as many are kept.
    pub(crate) fn kept_begin(&self, bytes: u64) -> Option<Vec<u8>> {
        let kept = self.access.pieces.begin(self.number)?;
        Some(kept.get(..usize::try_from(bytes).ok()?)?.to_vec())
    }

    /// Bytes of its beginning, if they are kept and its first piece is not here.
    fn begin_at(&self, begin: u64, end: u64) -> Option<Vec<u8>> {
        if end > PIECE_BYTES || self.has_first() {
            return None;
        }
        let mut kept = self.kept_begin(end)?;
        Some(kept.split_off(usize::try_from(begin).ok()?))
    }

    /// Its first bytes, of which the very first are kept for all who ask what it is.
    ///
    /// # Errors
    /// The request failed, or it is another object by now.
    pub(crate) async fn fetch_begin(&self, bytes: u64) -> io::Result<Vec<u8>> {
        let Access { store, secrets, pieces, .. } = &self.access;
        let begin = fetch(&**store, &self.key, &self.version, 0..bytes, secrets).await?;
        pieces.keep_begin(self.number, &begin);
        Ok(begin)
    }

    fn piece(&self, index: u64) -> Fetched {
        let which = (self.number, index);
        let slot = self.begin(index);
        self.access.pieces.wait(which, &slot)
    }

    /// Begins to fetch a piece if it is not here.
    fn begin(&self, index: u64) -> Arc<crate::pieces::Slot> {
        let begin = index.saturating_mul(PIECE_BYTES);
        let end = begin.saturating_add(PIECE_BYTES).min(self.version.length);
        let length = end.saturating_sub(begin);
        self.access.pieces.slot((self.number, index), length, |slot| {
            // A small object has come whole when it was asked what it is.
            if begin == 0
                && let Some(all) = self.kept_begin(self.version.length)
            {
                return slot.fill(Ok(Arc::from(all)));
            }
            self.access.pieces.pay(length);
            let Access { store, secrets, .. } = self.access.clone();
            let (key, version) = (self.key.clone(), self.version.clone());
            self.access.io.spawn(async move {
                let fetched = fetch(&*store, &key, &version, begin..end, &secrets).await;
                slot.fill(fetched.map(Arc::from).map_err(Arc::new));
            });
        })
    }
}

/// A piece of an object that is still as it was.
async fn fetch(
    store: &dyn ObjectStore,
    key: &Key,
    version: &Version,
    range: Range<u64>,
    secrets: &Secrets,
) -> io::Result<Vec<u8>> {
    let etag = version.etag.clone();
    let (now, bytes) = get(store, key, etag, range, secrets).await.map_err(|error| {
        match error.kind() {
            // It was there.
            io::ErrorKind::NotFound => secrets.not_read("it was removed while the run read it"),
            _ => error,
        }
    })?;
    // Not every server looks at the condition.
    match now.may_be(version) {
        true => Ok(bytes),
        false => Err(secrets.not_read(REPLACED)),
    }
}

/// A part of an object, as much of it as there is, and what the object is now.
///
/// # Errors
/// The request failed, or not all of the part came.
pub(crate) async fn get(
    store: &dyn ObjectStore,
    key: &Key,
    if_match: Option<String>,
    range: Range<u64>,
    secrets: &Secrets,
) -> io::Result<(Version, Vec<u8>)> {
    let range = Some(GetRange::Bounded(range));
    let options = GetOptions { range, if_match, ..GetOptions::default() };
    let result = store.get_opts(key, options).await.map_err(|error| secrets.hide(&error))?;
    let version = Version::from(&result.meta);
    let length = result.range.end.saturating_sub(result.range.start);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let mut stream = result.into_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| secrets.hide(&error))?;
        // It has come as a whole, most often: see `http`.
        match bytes.is_empty() {
            true => bytes = Vec::from(chunk),
            false => bytes.extend_from_slice(&chunk),
        }
    }
    if bytes.len() != length {
        let words = format!("the server sent {} of {length} bytes", bytes.len());
        return Err(secrets.not_read(&words));
    }
    Ok((version, bytes))
}

/// An object that is being read by one reader: pieces are fetched ahead while it reads in order, fewer
/// where there are other readers.
#[derive(Debug)]
pub(crate) struct Reading {
    object: Arc<Object>,
    last: AtomicU64,
    /// How far ahead; held while pieces are begun, so that they are begun in order.
    ahead: Mutex<u64>,
    /// The piece that is being read, which others may have pushed out of those that are kept.
    current: Mutex<Option<(u64, Held)>>,
    /// It is one of the readers that share the room for pieces.
    is_counted: AtomicBool,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.count(false);
    }
}

impl Reading {
    pub(crate) fn new(object: Arc<Object>) -> Self {
        let (last, ahead) = (AtomicU64::new(NONE), Mutex::new(0));
        let is_counted = AtomicBool::new(false);
        Self { object, last, ahead, current: Mutex::default(), is_counted }
    }

    /// Counts this as one of the readers that fetch ahead, or no longer as one.
    fn count(&self, is_reader: bool) {
        let pieces = &self.object.access.pieces;
        match (self.is_counted.swap(is_reader, Ordering::Relaxed), is_reader) {
            (false, true) => pieces.begin_reader(),
            (true, false) => pieces.end_reader(),
            _ => {}
        }
    }

    /// A piece, and those behind it on their way.
    fn piece(&self, index: u64) -> Fetched {
        let current = || self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, held)) = current().as_ref().filter(|(kept, _)| *kept == index) {
            return Ok(Arc::clone(&held.piece));
        }
        self.look_ahead(index);
        let piece = self.object.piece(index)?;
        // The room is that of the one before.
        let mut current = current();
        *current = None;
        *current = self.object.access.pieces.hold(&piece).map(|held| (index, held));
        Ok(piece)
    }

    /// The piece was read to its end.
    fn release(&self, index: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|(kept, _)| *kept == index);
        self.object.access.pieces.give_up_first((self.object.number, index));
    }

    fn look_ahead(&self, index: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.last.load(Ordering::Relaxed);
        // Of several threads that read it in order, one may be a piece behind.
        let is_behind = last != NONE && last.checked_sub(1) == Some(index);
        if last == index || is_behind {
            return;
        }
        self.last.store(index, Ordering::Relaxed);
        let begins = index == 0 && self.object.is_read_through.load(Ordering::Relaxed);
        let is_next = begins || (last != NONE && last.checked_add(1) == Some(index));
        let pieces = self.object.pieces();
        // At the last one nothing is left to fetch ahead.
        self.count(is_next && index.saturating_add(1) < pieces);
        let most = self.object.access.pieces.share().saturating_sub(1).min(AHEAD_MAX);
        *ahead = if is_next { ahead.saturating_mul(2).max(2).min(most) } else { 0 };
        let end = index.saturating_add(*ahead).saturating_add(1).min(pieces);
        for index in index..end {
            self.object.begin(index);
        }
        if is_next && end == pieces {
            self.object.access.pieces.all_is_begun();
        }
    }
}

impl StoredBytes for Reading {
    fn length(&self) -> io::Result<u64> {
        Ok(self.object.version.length)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.object.version.length || bytes.is_empty() {
            return Ok(0);
        }
        let end = offset.saturating_add(bytes.len() as u64);
        // What begins a file tells where to go on in it, and is here since it was asked what it is.
        if let Some(there) = self.object.begin_at(offset, end) {
            bytes.copy_from_slice(&there);
            return Ok(there.len());
        }
        let index = offset / PIECE_BYTES;
        let piece = self.piece(index).map_err(|error| same(&error))?;
        let begin = usize::try_from(offset % PIECE_BYTES).unwrap_or(usize::MAX);
        let there = piece.get(begin..).unwrap_or_default();
        let count = there.len().min(bytes.len());
        if let (Some(room), Some(there)) = (bytes.get_mut(..count), there.get(..count)) {
            room.copy_from_slice(there);
        }
        if count == there.len() {
            self.release(index);
        }
        Ok(count)
    }
}

/// The same error once more: several may wait for one piece.
pub(crate) fn same(error: &io::Error) -> io::Error {
    NotRead(error.to_string()).into()
}
