//! Where stored files are: folders of this machine, or the buckets of an object store.
//!
//! What reads backups asks a [`StorePath`] what is there, and never learns which of them it is. A
//! [`Store`] is the seam: list a folder, open a file for reads at a position. The one of this
//! machine is here; those that need a network are crates of their own, so that the library stays
//! without them.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::source::file::{open_regular, read_at};

/// A place of files that are only read.
pub trait Store: fmt::Debug + Send + Sync {
    /// What is in a folder, in any order.
    ///
    /// # Errors
    /// It cannot be listed, or not to its end. [`io::ErrorKind::NotFound`]: there is no such folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>>;

    /// What is in a folder by now: a store may remember what it listed before.
    ///
    /// # Errors
    /// As [`Store::list`].
    fn list_again(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        self.list(folder)
    }

    /// A small file as it is by now: a store may keep what it was before.
    ///
    /// # Errors
    /// As [`Store::open`], or it is longer than [`AGAIN_BYTES_MAX`].
    fn read_again(&self, file: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let limit = AGAIN_BYTES_MAX.saturating_add(1);
        StoredFile::new(self.open(file)?).take(limit).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > AGAIN_BYTES_MAX {
            return Err(io::Error::other("it is too long to be read again"));
        }
        Ok(bytes)
    }

    /// What is at a path, behind a link too.
    ///
    /// # Errors
    /// As [`Store::list`].
    fn look(&self, path: &Path) -> io::Result<Seen>;

    /// Opens a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]: there is none. What the store could not or would not do is a
    /// [`NotRead`].
    fn open(&self, file: &Path) -> io::Result<Arc<dyn StoredBytes>>;

    /// The first bytes of a file, `bytes_max` at most, of which more may never be wanted.
    ///
    /// # Errors
    /// As [`Store::open`].
    fn first_bytes(&self, file: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut begin = Vec::new();
        let file = StoredFile::new(self.open(file)?);
        file.take(bytes_max as u64).read_to_end(&mut begin)?;
        Ok(begin)
    }

    /// A file of about this number of bytes (`None`: as its folder was listed) will be opened soon, as
    /// far as is known. A store that takes long to answer may fetch it meanwhile.
    fn expect(&self, _file: &Path, _bytes: Option<u64>) {}

    /// The same of its [first bytes](Self::first_bytes).
    fn expect_begin(&self, _file: &Path, _bytes_max: usize) {}

    /// The whole file will be read once the one that is being read is over: its end before all else if
    /// `end_first`. One file is expected so at a time.
    fn expect_whole(&self, _file: &Path, _end_first: bool) {}

    /// As [`Store::expect`], of a folder that will be listed.
    fn expect_list(&self, _folder: &Path) {}

    /// True for the folders of this machine, whose paths other code may open.
    fn is_local(&self) -> bool {
        false
    }

    /// True for the data directory of a running server, each of whose files is read as it is at that
    /// moment.
    fn is_running(&self) -> bool {
        false
    }
}

/// The longest file that is read again: a list of ten thousand backups is shorter.
pub const AGAIN_BYTES_MAX: u64 = 32 << 20;

/// Files that are [expected](Store::expect) at a time.
pub const EXPECTED_FILES: usize = 32;

/// The same items, for each of which `expect` says before its turn which files will be opened.
pub fn expecting<T>(
    items: impl IntoIterator<Item = T>,
    mut expect: impl FnMut(&T),
) -> impl Iterator<Item = T> {
    let (mut items, mut next) = (items.into_iter(), VecDeque::new());
    std::iter::from_fn(move || {
        while next.len() < EXPECTED_FILES
            && let Some(item) = items.next()
        {
            expect(&item);
            next.push_back(item);
        }
        next.pop_front()
    })
}

/// A file of a [`Store`], as it was when it was opened: a store in which files are replaced as a
/// whole fails to read on, rather than mixing two of them.
pub trait StoredBytes: fmt::Debug + Send + Sync {
    /// How many there are.
    ///
    /// # Errors
    /// What the system says.
    fn length(&self) -> io::Result<u64>;

    /// Reads what is there at `offset`; less than asked for is no error, 0 bytes is the end.
    ///
    /// # Errors
    /// As [`Store::open`].
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// When it was last written to, where a file may be written to while it is read.
    fn modified(&self) -> Option<SystemTime> {
        None
    }
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A file of this number of bytes.
    File(u64),
    /// A folder.
    Folder,
    /// Something else.
    Other,
}

impl Seen {
    /// The bytes of a file.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::File(bytes) => Some(bytes),
            Self::Folder | Self::Other => None,
        }
    }
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it is; a link is [`Seen::Other`].
    pub seen: Seen,
}

/// The store could not give what it has: nothing is known of the bytes. Whatever passes an
/// [`io::Error`] on must not take this for damage; see [`says_nothing_of_the_bytes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRead(pub String);

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NotRead {}

impl From<NotRead> for io::Error {
    fn from(why: NotRead) -> Self {
        // Never a kind that a decoder has for broken data.
        Self::other(why)
    }
}

/// True for an error of the system or of a store, in contrast to one of a decoder, which has seen
/// bytes that are not right.
#[must_use]
pub fn says_nothing_of_the_bytes(error: &io::Error) -> bool {
    if error.raw_os_error().is_some() || is_not_read(error) {
        return true;
    }
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
    inner.is_some_and(says_nothing_of_the_bytes)
}

/// True for a [`NotRead`], also where it is the cause of another error.
#[must_use]
pub fn is_not_read(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>();
        if error.is::<NotRead>() || inner.is_some_and(is_not_read) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A path in a store. What belongs to a repository is found from its place, so that it stays in
/// the same store.
#[derive(Debug, Clone)]
pub struct StorePath {
    store: Arc<dyn Store>,
    path: PathBuf,
}

impl StorePath {
    /// A path of a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, path: impl Into<PathBuf>) -> Self {
        Self { store, path: path.into() }
    }

    /// A path of this machine.
    #[must_use]
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self::new(Arc::new(Folders), path)
    }

    /// The path, also as it is shown: of another store, its address.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path, if it is one of this machine.
    #[must_use]
    pub fn local_path(&self) -> Option<&Path> {
        self.store.is_local().then_some(&self.path)
    }

    /// See [`Store::is_running`].
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.store.is_running()
    }

    /// A path as it was named beside this one: an address is one of the same store, anything else of this
    /// machine.
    #[must_use]
    pub fn named(&self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let is_address = path.to_str().is_some_and(|path| path.contains("://"));
        if is_address { self.at(path) } else { Self::local(path) }
    }

    /// A path below or beside this one, in the same store.
    #[must_use]
    pub fn at(&self, path: impl Into<PathBuf>) -> Self {
        Self { store: Arc::clone(&self.store), path: path.into() }
    }

    /// A path below it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        self.at(self.path.join(name))
    }

    /// The folder that it is in.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.path.parent().map(|parent| self.at(parent))
    }

    /// Its own name, if that is text.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.path.file_name().and_then(|name| name.to_str())
    }

    /// True if it ends as `.gz` does, without the dot.
    #[must_use]
    pub fn has_ending(&self, ending: &str) -> bool {
        self.path.extension().is_some_and(|it| it == ending)
    }

    /// Its path below another one; its whole path if it is not below it.
    #[must_use]
    pub fn below(&self, root: &Self) -> String {
        let path = self.path.strip_prefix(&root.path).unwrap_or(&self.path);
        path.to_string_lossy().into_owned()
    }

    /// The same, from the root on.
    ///
    /// # Errors
    /// What the system says.
    pub fn absolute(&self) -> io::Result<Self> {
        match self.store.is_local() {
            true => std::path::absolute(&self.path).map(|path| self.at(path)),
            false => Ok(self.clone()),
        }
    }

    /// The same without links.
    ///
    /// # Errors
    /// What the system says.
    pub fn canonical(&self) -> io::Result<Self> {
        match self.store.is_local() {
            true => fs::canonicalize(&self.path).map(|path| self.at(path)),
            false => Ok(self.clone()),
        }
    }

    /// What is in it.
    ///
    /// # Errors
    /// See [`Store::list`].
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        self.store.list(&self.path)
    }

    /// What is in it by now.
    ///
    /// # Errors
    /// See [`Store::list_again`].
    pub fn list_again(&self) -> io::Result<Vec<Listed>> {
        self.store.list_again(&self.path)
    }

    /// What is in the file by now.
    ///
    /// # Errors
    /// See [`Store::read_again`].
    pub fn read_again(&self) -> io::Result<Vec<u8>> {
        self.store.read_again(&self.path)
    }

    /// What is there.
    ///
    /// # Errors
    /// See [`Store::look`].
    pub fn look(&self) -> io::Result<Seen> {
        self.store.look(&self.path)
    }

    /// True if a folder is seen there.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        matches!(self.look(), Ok(Seen::Folder))
    }

    /// True if a file is seen there.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(self.look(), Ok(Seen::File(_)))
    }

    /// True if there is something, a link that leads nowhere included, and where the store did not
    /// say: opening it does.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match self.store.is_local() {
            true => fs::symlink_metadata(&self.path).is_ok(),
            false => !self.look().is_err_and(|error| error.kind() == io::ErrorKind::NotFound),
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn open(&self) -> io::Result<StoredFile> {
        Ok(StoredFile::new(self.store.open(&self.path)?))
    }

    /// See [`Store::expect`].
    pub fn expect(&self, bytes: Option<u64>) {
        self.store.expect(&self.path, bytes);
    }

    /// See [`Store::expect_begin`].
    pub fn expect_begin(&self, bytes_max: usize) {
        self.store.expect_begin(&self.path, bytes_max);
    }

    /// See [`Store::expect_whole`].
    pub fn expect_whole(&self, end_first: bool) {
        self.store.expect_whole(&self.path, end_first);
    }

    /// See [`Store::expect_list`].
    pub fn expect_list(&self) {
        self.store.expect_list(&self.path);
    }

    /// Its first bytes, `bytes_max` at most.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn first_bytes(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.store.first_bytes(&self.path, bytes_max)
    }

    /// An open file of this machine with all its bytes: the file itself, or a copy that has no name.
    ///
    /// # Errors
    /// See [`Store::open`]; or there is no room for a copy.
    pub fn as_file(&self) -> io::Result<File> {
        if let Some(path) = self.local_path() {
            return open_regular(path);
        }
        let mut copy = tempfile::tempfile()?;
        io::copy(&mut self.open()?, &mut copy)?;
        copy.rewind()?;
        Ok(copy)
    }
}

/// What is written to a store, from its beginning to its end. Dropping it leaves nothing there.
pub trait Stored: Write + Send {
    /// Ends it. Only then is it there.
    ///
    /// # Errors
    /// The store did not take all of it; nothing is there.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// A file of a store that is written; `None` for paths of this machine.
pub type Created = Option<Result<Box<dyn Stored>, crate::error::Error>>;

/// Where paths lead that are no paths of this machine.
pub trait Stores {
    /// What a path stands for if it is the address of something in a store.
    fn place(&self, path: &Path) -> Option<Result<StorePath, crate::error::Error>>;

    /// What the stores did not give so far.
    fn trouble(&self) -> Option<Trouble>;

    /// Begins a file of a store, of `expected` bytes at most if that is known, if the path is the
    /// address of one. Nothing is sent yet.
    fn create(&self, path: &Path, expected: Option<u64>) -> Created {
        let _ = (path, expected);
        None
    }

    /// What a path stands for, of whatever store.
    ///
    /// # Errors
    /// It is an address that leads nowhere.
    fn at(&self, path: &Path) -> Result<StorePath, crate::error::Error> {
        self.place(path).unwrap_or_else(|| Ok(StorePath::local(path)))
    }

    /// The single file that an address stands for; `None` for paths of this machine.
    fn file(&self, path: &Path) -> Option<Result<StorePath, crate::error::Error>> {
        let file = |place: StorePath| match place.look() {
            Ok(Seen::File(_)) => Ok(place),
            Ok(Seen::Folder | Seen::Other) => {
                let hint = "name a single file of it; `check` and `survey` take repositories of backups, and \
                     tables of Delta Lake and Iceberg";
                Err(crate::error::Error::refused(path, "a folder in object storage", hint))
            }
            Err(source) => Err(crate::error::Error::io("open", path, source)),
        };
        self.place(path).map(|place| place.and_then(file))
    }
}

/// What stores did not give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// How often.
    pub times: u64,
    /// Why, the last time.
    pub last: String,
}

/// No stores: all paths are of this machine.
#[derive(Debug)]
pub struct ThisMachine;

impl Stores for ThisMachine {
    fn place(&self, _: &Path) -> Option<Result<StorePath, crate::error::Error>> {
        None
    }

    fn trouble(&self) -> Option<Trouble> {
        None
    }
}

impl From<&Path> for StorePath {
    fn from(path: &Path) -> Self {
        Self::local(path)
    }
}

/// An open file of a store, read from its beginning on, or at a position.
#[derive(Debug, Clone)]
pub struct StoredFile {
    bytes: Arc<dyn StoredBytes>,
    position: u64,
}

impl StoredFile {
    /// One that was opened, from its beginning on.
    #[must_use]
    pub fn new(bytes: Arc<dyn StoredBytes>) -> Self {
        Self { bytes, position: 0 }
    }

    /// How many bytes it has.
    ///
    /// # Errors
    /// What the system says.
    pub fn length(&self) -> io::Result<u64> {
        self.bytes.length()
    }

    /// See [`StoredBytes::read_at`].
    ///
    /// # Errors
    /// As there.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes.read_at(bytes, offset)
    }

    /// Fills `bytes` from `offset` on; how much there was.
    ///
    /// # Errors
    /// See [`StoredBytes::read_at`].
    pub fn read_fully(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0_usize;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(count) => filled = filled.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// See [`StoredBytes::modified`].
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.bytes.modified()
    }
}

impl From<File> for StoredFile {
    fn from(file: File) -> Self {
        Self::new(Arc::new(file))
    }
}

impl Read for StoredFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read_at(bytes, self.position)?;
        self.position = self.position.saturating_add(count as u64);
        Ok(count)
    }
}

/// The folders of this machine.
#[derive(Debug, Clone, Copy)]
struct Folders;

impl Store for Folders {
    fn list(&self, folder: &Path) -> io::Result<Vec<Listed>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // A name that is no text is none that a tool gives.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let seen = match entry.file_type()? {
                kind if kind.is_dir() => Seen::Folder,
                kind if kind.is_file() => {
                    Seen::File(entry.metadata().map_or(0, |metadata| metadata.len()))
                }
                _ => Seen::Other,
            };
            found.push(Listed { name, seen });
        }
        Ok(found)
    }

    fn look(&self, path: &Path) -> io::Result<Seen> {
        let metadata = fs::metadata(path)?;
        Ok(match metadata.file_type() {
            kind if kind.is_dir() => Seen::Folder,
            kind if kind.is_file() => Seen::File(metadata.len()),
            _ => Seen::Other,
        })
    }

    fn open(&self, file: &Path) -> io::Result<Arc<dyn StoredBytes>> {
        let file = open_regular(file)?;
        // A hint; without it the file is read all the same.
        let _ = crate::system::fs::fadvise(&file, 0, None, crate::system::fs::Advice::Sequential);
        Ok(Arc::new(file))
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl StoredBytes for File {
    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        read_at(self, bytes, offset)
    }

    fn modified(&self) -> Option<SystemTime> {
        self.metadata().and_then(|metadata| metadata.modified()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_of_this_machine_is_listed_and_its_files_are_read_at_any_place() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), b"0123456789").unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        crate::system::symlink("nowhere", folder.path().join("c")).unwrap();
        let place = StorePath::local(folder.path());
        let mut listed = place.list().unwrap();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        let seen: Vec<_> = listed.iter().map(|it| (it.name.as_str(), it.seen)).collect();
        assert_eq!(seen, [("a", Seen::File(10)), ("b", Seen::Folder), ("c", Seen::Other)]);
        assert!(place.is_folder() && place.join("a").is_file());
        assert!(place.join("c").is_there() && !place.join("d").is_there());
        let mut file = place.join("a").open().unwrap();
        let mut bytes = [0; 4];
        assert_eq!(file.read_at(&mut bytes, 8).unwrap(), 2);
        assert_eq!((file.read(&mut bytes).unwrap(), &bytes), (4, b"0123"));
        assert_eq!((file.read(&mut bytes).unwrap(), &bytes), (4, b"4567"));
        assert_eq!(place.join("a").first_bytes(3).unwrap(), b"012");
        assert_eq!(place.join("x/y").below(&place), "x/y");
    }

    #[test]
    fn all_items_come_in_order_and_each_is_expected_before() {
        let mut expected = Vec::new();
        let items: Vec<_> = expecting(0..100, |item| expected.push(*item)).collect();
        assert!(items.iter().copied().eq(0..100) && items == expected);
        let count = std::cell::Cell::new(0);
        let mut items = expecting(0..100, |_| count.set(count.get() + 1));
        assert_eq!((items.next(), count.get()), (Some(0), EXPECTED_FILES));
        assert_eq!((items.next(), count.get()), (Some(1), EXPECTED_FILES + 1));
    }

    #[test]
    fn what_was_not_read_is_told_from_what_is_wrong_however_deep_it_is_wrapped() {
        let not_read: io::Error = NotRead("503".to_owned()).into();
        assert!(says_nothing_of_the_bytes(&io::Error::other(io::Error::other(not_read))));
        assert!(says_nothing_of_the_bytes(&io::Error::from_raw_os_error(libc::EIO)));
        for kind in [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof] {
            assert!(!says_nothing_of_the_bytes(&kind.into()));
            assert!(!says_nothing_of_the_bytes(&io::Error::new(kind, "not so")));
        }
    }
}
