//! A bucket as a store of files: folders are what keys have in common up to a slash.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use object_store::path::Path as Key;
use object_store::{GetOptions, ListResult, ObjectStore};
use pagewarden::source::store::{AGAIN_BYTES_MAX, Listed, NotRead, Seen, Store, StoredBytes};

use crate::expected::{BEGIN_BYTES_MAX, EXPECTED_BYTES_MAX, Expected};
use crate::fault::{NO_OBJECT, Secrets};
use crate::io_thread::{Begun, IoThread};
use crate::object::{Access, Object, Reading, Version, get};
use crate::pieces::{PIECE_BYTES, Pieces};
use crate::upload::Upload;

/// See the module. What was seen once is what counts for the run: a folder is listed once, and an
/// object is the one that it was then.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The bucket's address.
    root: String,
    access: Access,
    folders: Mutex<HashMap<Key, Arc<Vec<Listed>>>>,
    objects: Mutex<HashMap<Key, Arc<Object>>>,
    expected: Expected<(Version, Vec<u8>)>,
    begins: Expected<Vec<u8>>,
    lists: Expected<ListResult>,
    absent: Mutex<Absent>,
}

/// What the store said it has not.
#[derive(Debug, Default)]
struct Absent {
    objects: HashSet<Key>,
    folders: HashSet<Key>,
}

impl Bucket {
    pub(crate) fn new(
        root: String,
        store: Arc<dyn ObjectStore>,
        io: Arc<IoThread>,
        pieces: Arc<Pieces>,
        secrets: Arc<Secrets>,
    ) -> Self {
        let access = Access { store, io, pieces, secrets };
        let (folders, objects, absent) = Default::default();
        let (expected, begins, lists) = Default::default();
        Self { root, access, folders, objects, expected, begins, lists, absent }
    }

    fn key(&self, path: &Path) -> io::Result<Key> {
        let text = path.to_str().and_then(|path| path.strip_prefix(&self.root));
        let text = text.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        // The way up leads out of the bucket.
        let text = text.ok_or(io::ErrorKind::NotFound)?;
        Key::parse(text.trim_matches('/'))
            .map_err(|error| NotRead(format!("a name that is no key of an object: {error}")).into())
    }

    /// An object that is to be written.
    pub(crate) fn upload(
        &self,
        path: &Path,
        expected: Option<u64>,
        left_behind: Arc<Mutex<Option<String>>>,
    ) -> io::Result<Upload> {
        let key = self.key(path)?;
        Ok(Upload::new(self.access.clone(), key, path.to_owned(), expected, left_behind))
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let stop = self.access.pieces.stop();
        self.access.io.wait(stop, work).unwrap_or_else(|| Err(stopped()))
    }

    /// Waits for what was begun before its turn; what was not is done now.
    fn come<T: Send + 'static>(
        &self,
        begun: Option<Begun<io::Result<T>>>,
        work: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let Some(begun) = begun else { return self.wait(work) };
        begun.wait(self.access.pieces.stop()).unwrap_or_else(|| Err(stopped()))
    }

    /// What an object is, with its first bytes.
    fn beginning(
        &self,
        key: &Key,
        bytes_max: u64,
    ) -> impl Future<Output = io::Result<(Version, Vec<u8>)>> + Send + 'static {
        let Access { store, secrets, .. } = self.access.clone();
        let key = key.clone();
        async move { get(&*store, &key, None, 0..bytes_max, &secrets).await }
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<Key, Arc<Object>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folders(&self) -> MutexGuard<'_, HashMap<Key, Arc<Vec<Listed>>>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn absent(&self) -> MutexGuard<'_, Absent> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, key: &Key, version: Version) -> Arc<Object> {
        let mut objects = self.objects();
        let new = || Arc::new(Object::new(self.access.clone(), key.clone(), version));
        Arc::clone(objects.entry(key.clone()).or_insert_with(new))
    }

    /// What is known of an object without asking.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]: it is known that there is none.
    fn known(&self, key: &Key) -> io::Result<Option<Arc<Object>>> {
        if let Some(object) = self.objects().get(key) {
            return Ok(Some(Arc::clone(object)));
        }
        let is_absent = self.absent().objects.contains(key) || self.is_absent(key, false);
        match key.as_ref().is_empty() || is_absent {
            true => Err(no_object()),
            false => Ok(None),
        }
    }

    /// True if a folder on the way to a key was listed, and the next one is not in it; or not the folder
    /// of that name itself, if it is to be one. A folder that was listed has no others.
    fn is_absent(&self, key: &Key, is_to_be_folder: bool) -> bool {
        let folders = self.folders();
        let mut below = key.clone();
        while let Some(above) = below.parent() {
            if let Some(listed) = folders.get(&above) {
                let name = below.filename().unwrap_or_default();
                let is_way = |it: &Listed| it.name == name && it.seen == Seen::Folder;
                // A file would be among the objects.
                let is_last = below == *key && !is_to_be_folder;
                return is_last || !listed.iter().any(is_way);
            }
            below = above;
        }
        false
    }

    /// Asks for what an object is.
    fn head(&self, key: &Key) -> io::Result<Arc<Object>> {
        if let Some(object) = self.known(key)? {
            return Ok(object);
        }
        let Access { store, secrets, .. } = self.access.clone();
        let asked = key.clone();
        let version = self.wait(async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            let result = store.get_opts(&asked, options).await;
            result.map(|it| Version::from(&it.meta)).map_err(|error| secrets.hide(&error))
        });
        if version.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            self.absent().objects.insert(key.clone());
        }
        Ok(self.learn(key, version?))
    }

    /// The same, with its first piece: one request does for a small file.
    fn begin(&self, key: &Key) -> io::Result<Arc<Object>> {
        if let Some(object) = self.known(key)? {
            return Ok(object);
        }
        let pieces = &self.access.pieces;
        match self.come(self.expected.take(key), self.beginning(key, PIECE_BYTES)) {
            Ok((version, bytes)) => {
                pieces.pay(bytes.len() as u64);
                let object = self.learn(key, version.clone());
                object.keep_first(bytes, &version);
                Ok(object)
            }
            // An empty object has no part.
            Err(error) if error.to_string().contains("416 ") => self.head(key),
            Err(error) => Err(error),
        }
    }

    fn list_key(&self, key: &Key) -> io::Result<Arc<Vec<Listed>>> {
        if let Some(listed) = self.folders().get(key) {
            return Ok(Arc::clone(listed));
        }
        if self.absent().folders.contains(key) || self.is_absent(key, true) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let listed = self.come(self.lists.take(key), self.listing(key));
        let listed = listed.and_then(|result| self.learn_list(key, &result));
        if listed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            self.absent().folders.insert(key.clone());
        }
        let listed = Arc::new(listed?);
        self.folders().insert(key.clone(), Arc::clone(&listed));
        Ok(listed)
    }

    fn listing(&self, key: &Key) -> impl Future<Output = io::Result<ListResult>> + Send + 'static {
        let Access { store, secrets, .. } = self.access.clone();
        let asked = key.clone();
        async move {
            let prefix = Some(&asked).filter(|key| !key.as_ref().is_empty());
            store.list_with_delimiter(prefix).await.map_err(|error| secrets.hide(&error))
        }
    }

    fn ask_for_list(&self, key: &Key) -> io::Result<Vec<Listed>> {
        let result = self.wait(self.listing(key))?;
        self.learn_list(key, &result)
    }

    fn learn_list(&self, key: &Key, result: &ListResult) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for folder in &result.common_prefixes {
            let name = folder.filename().unwrap_or_default().to_owned();
            listed.push(Listed { name, seen: Seen::Folder });
        }
        for meta in &result.objects {
            let name = meta.location.filename().unwrap_or_default().to_owned();
            self.learn(&meta.location, Version::from(meta));
            listed.push(Listed { name, seen: Seen::File(meta.size) });
        }
        if listed.is_empty() && !key.as_ref().is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(listed)
    }

    /// True if there is an object below.
    fn is_folder(&self, key: &Key) -> io::Result<bool> {
        if self.folders().contains_key(key) {
            return Ok(true);
        }
        // In a folder that was listed, no question is needed.
        let is_listed = key.parent().is_some_and(|parent| self.folders().contains_key(&parent));
        if is_listed {
            return Ok(!self.is_absent(key, true));
        }
        match self.list_key(key) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn stopped() -> io::Error {
    NotRead("the run was stopped".to_owned()).into()
}

fn no_object() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, NO_OBJECT)
}

impl Store for Bucket {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let key = self.key(folder)?;
        self.list_key(&key).map(|listed| listed.to_vec())
    }

    fn list_again(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        self.ask_for_list(&self.key(folder)?)
    }

    fn read_again(&self, file: &Path) -> io::Result<Vec<u8>> {
        let key = self.key(file)?;
        let (_, bytes) = self.wait(self.beginning(&key, AGAIN_BYTES_MAX.saturating_add(1)))?;
        self.access.pieces.pay(bytes.len() as u64);
        match bytes.len() as u64 > AGAIN_BYTES_MAX {
            true => Err(NotRead("it is too long to be read again".to_owned()).into()),
            false => Ok(bytes),
        }
    }

    fn look(&self, path: &Path) -> io::Result<Seen> {
        let key = self.key(path)?;
        match self.head(&key) {
            Ok(object) => Ok(Seen::File(object.length())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Err(error) => match self.is_folder(&key)? {
                true => Ok(Seen::Folder),
                false => Err(error),
            },
        }
    }

    fn first_bytes(&self, file: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        let key = self.key(file)?;
        let object = self.head(&key)?;
        let wanted = object.length().min(bytes_max as u64);
        if let Some(begin) = object.kept_begin(wanted) {
            return Ok(begin);
        }
        // What is read on has come already, or will.
        if wanted == 0 || object.has_first() {
            let mut begin = vec![0; usize::try_from(wanted).unwrap_or(usize::MAX)];
            let read = Reading::new(object).read_at(&mut begin, 0)?;
            begin.truncate(read);
            return Ok(begin);
        }
        self.access.pieces.pay(wanted);
        let asked = Arc::clone(&object);
        let work = async move { asked.fetch_begin(wanted).await };
        let mut begin = self.come(self.begins.take(&key), work)?;
        // Less may have been expected.
        if (begin.len() as u64) < wanted {
            begin = self.wait(async move { object.fetch_begin(wanted).await })?;
        }
        begin.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        Ok(begin)
    }

    fn expect_begin(&self, file: &Path, bytes_max: usize) {
        let Ok(key) = self.key(file) else { return };
        // Of what was listed.
        let Ok(Some(object)) = self.known(&key) else { return };
        let wanted = object.length().min(bytes_max.min(BEGIN_BYTES_MAX) as u64);
        if wanted == 0 || object.has_first() || object.kept_begin(wanted).is_some() {
            return;
        }
        let work = async move { object.fetch_begin(wanted).await };
        self.begins.add(&key, || self.access.io.begin_work(work));
    }

    fn expect_list(&self, folder: &Path) {
        let Ok(key) = self.key(folder) else { return };
        if self.folders().contains_key(&key) || self.absent().folders.contains(&key) {
            return;
        }
        self.lists.add(&key, || self.access.io.begin_work(self.listing(&key)));
    }

    fn expect(&self, file: &Path, bytes: Option<u64>) {
        let Ok(key) = self.key(file) else { return };
        let bytes = bytes.filter(|bytes| (1..=EXPECTED_BYTES_MAX).contains(bytes));
        match (self.known(&key), bytes) {
            (Ok(Some(object)), _) => object.expect(EXPECTED_BYTES_MAX),
            (Ok(None), Some(bytes)) => {
                self.expected.add(&key, || self.access.io.begin_work(self.beginning(&key, bytes)));
            }
            _ => {}
        }
    }

    fn expect_whole(&self, file: &Path, end_first: bool) {
        // Of what was listed.
        let known = self.key(file).and_then(|key| self.known(&key));
        if let Ok(Some(object)) = known {
            object.expect_whole(end_first);
        }
    }

    fn open(&self, file: &Path) -> io::Result<Arc<dyn StoredBytes>> {
        let object = self.begin(&self.key(file)?)?;
        Ok(Arc::new(Reading::new(object)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::num::NonZero;

    use object_store::memory::InMemory;
    use object_store::{ObjectStoreExt as _, PutPayload};
    use pagewarden::source::rate::RateLimiter;
    use pagewarden::source::store::StorePath;

    use super::*;

    fn bucket(store: &Arc<InMemory>) -> Arc<Bucket> {
        let pieces = Pieces::new(RateLimiter::new(None::<NonZero<u64>>), Arc::default());
        let store: Arc<dyn ObjectStore> = Arc::<InMemory>::clone(store);
        let io = Arc::new(IoThread::begin().unwrap());
        Arc::new(Bucket::new("s3://it".into(), store, io, Arc::new(pieces), Arc::default()))
    }

    fn read(path: &StorePath) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        path.open()?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn expected_object_is_fetched_before_it_is_opened() {
        let store = Arc::new(InMemory::new());
        let bucket = bucket(&store);
        let path = StorePath::new(bucket.clone(), "s3://it/file");
        let (puts, payload) = (Arc::clone(&store), PutPayload::from("first"));
        bucket.wait(async move { Ok(puts.put(&"file".into(), payload).await.unwrap()) }).unwrap();
        path.expect(Some(5));
        // The thread does one thing after the other.
        let deleted = bucket.wait(async move { Ok(store.delete(&"file".into()).await) });
        deleted.unwrap().unwrap();
        assert_eq!(read(&path).unwrap(), b"first");
    }

    /// What is read next is fetched while the last pieces of what is being read come; the third piece of
    /// three is its end.
    #[test]
    fn whole_file_is_fetched_once_the_one_before_it_is_on_its_way() {
        let store = Arc::new(InMemory::new());
        let bucket = bucket(&store);
        let bytes: Vec<u8> = (0..=250_u8).cycle().take((9 << 20) + 7).collect();
        for name in ["one", "next"] {
            let (puts, payload) = (Arc::clone(&store), PutPayload::from(bytes.clone()));
            let put = async move { Ok(puts.put(&name.into(), payload).await.unwrap()) };
            bucket.wait(put).unwrap();
        }
        bucket.list(Path::new("s3://it")).unwrap();
        let at = |name: &str| StorePath::new(bucket.clone(), format!("s3://it/{name}"));
        at("next").expect_whole(true);
        let next = bucket.known(&"next".into()).unwrap().unwrap();
        let which = |piece| (next.number(), piece);
        let is_kept = |piece| bucket.access.pieces.is_kept(which(piece));
        assert!(!(0..3).any(is_kept));
        let mut one = at("one").open().unwrap();
        one.read_exact(&mut vec![0; 4 << 20]).unwrap();
        assert!(!(0..3).any(is_kept), "more of the first file is to be fetched");
        one.read_exact(&mut vec![0; 4 << 20]).unwrap();
        assert!(is_kept(0) && !is_kept(1) && is_kept(2));
        one.read_to_end(&mut Vec::new()).unwrap();
        assert!((0..3).all(is_kept));
        // The thread does one thing after the other: these came before.
        bucket.wait(async move { Ok(store.delete(&"next".into()).await) }).unwrap().unwrap();
        assert_eq!(read(&at("next")).unwrap(), bytes);
    }

    #[test]
    fn object_that_is_not_as_expected_is_read_as_it_is() {
        let store = Arc::new(InMemory::new());
        let bytes: Vec<u8> = (0..=255_u8).cycle().take(10_000).collect();
        for expected in [1, 9_999, 10_000, 200_000] {
            let bucket = bucket(&store);
            let (puts, payload) = (Arc::clone(&store), PutPayload::from(bytes.clone()));
            let put = async move { Ok(puts.put(&"long".into(), payload).await.unwrap()) };
            bucket.wait(put).unwrap();
            let at = |name: &str| StorePath::new(bucket.clone(), format!("s3://it/{name}"));
            at("long").expect(Some(expected));
            at("absent").expect(Some(expected));
            assert_eq!(read(&at("long")).unwrap(), bytes, "{expected} were expected");
            assert_eq!(read(&at("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }
}
