//! A file that is stored as a whole: in a bundle or as a file of its own.

use std::io::{self, Read};

use sha1::{Digest as _, Sha1};

use crate::files::backup::members::{Broken, Piece};
use crate::files::backup::repository::pgbackrest::expiry::EXPIRED;
use crate::files::backup::repository::pgbackrest::info::hex;
use crate::files::backup::repository::pgbackrest::manifest::Entry;
use crate::files::backup::repository::pgbackrest::place::{SetPlace, lost};
use crate::files::backup::repository::pgbackrest::stored::{Coding, Range};
use pagewarden_core::database::Step;
use pagewarden_core::source::read_ahead::{ReadAhead, Seat};
use pagewarden_core::verdict::Kind;

/// Up to here any ratio of output to input is taken; a server's files have a gibibyte.
const RATIO_FREE_BYTES: u64 = 4 << 30;
/// Output to input, past that: no database compresses a thousandfold.
const RATIO_MAX: u64 = 1000;

/// See the module.
pub(super) struct WholeFile {
    entry: Entry,
    range: Range,
    reader: Box<dyn Read + Send>,
    /// Of the bytes that were given out; `None` where they are the stored ones, which are summed anyway.
    hash: Option<Sha1>,
    /// Bytes of the file that were given out.
    given: u64,
    /// Why the rest cannot be restored.
    broken: Option<io::Error>,
}

impl WholeFile {
    /// Opens it.
    ///
    /// # Errors
    /// The steps that say why not.
    pub(super) fn open(place: &SetPlace, entry: Entry) -> Result<Self, Box<Step>> {
        let path = place.folder.join(place.stored_file(&entry));
        let range = Range::open(&path, entry.fields.bundle_offset, entry.stored_bytes())
            .map_err(|error| Box::new(not_opened(place, &entry, &error)))?;
        let coding =
            Coding { raw: place.is_raw && entry.fields.bundle.is_some(), ..place.coding.clone() };
        let is_as_stored = coding.changes_nothing() && entry.stored_bytes() == entry.bytes();
        let hash = (!is_as_stored).then(Sha1::new);
        let (reader, broken): (Box<dyn Read + Send>, _) =
            match coding.decode(Box::new(range.clone())) {
                Ok(reader) => (reader, None),
                Err(error) => (Box::new(io::empty()), Some(error)),
            };
        Ok(Self { entry, range, reader, hash, given: 0, broken })
    }

    /// Opens it for a thread of its own to read ahead, if the system gives one.
    ///
    /// # Errors
    /// As [`WholeFile::open`].
    pub(super) fn open_to_read_ahead(
        place: &SetPlace,
        entry: Entry,
        seat: Seat,
    ) -> Result<Self, Box<Step>> {
        let mut file = Self::open(place, entry.clone())?;
        let reader = std::mem::replace(&mut file.reader, Box::new(io::empty()));
        match ReadAhead::new(reader, seat) {
            Ok(reader) => {
                file.reader = Box::new(reader);
                Ok(file)
            }
            // What it would have read is lost with it.
            Err(_) => Self::open(place, entry),
        }
    }

    /// See [`Members::data_left`](crate::files::backup::members::Members).
    pub(super) fn data_left(&self) -> u64 {
        self.entry.bytes().saturating_sub(self.given)
    }

    /// Reads on; at the end, or where it cannot go on, the steps say what is wrong.
    pub(super) fn read(
        &mut self,
        place: &SetPlace,
        bytes: &mut [u8],
        steps: &mut Vec<Step>,
    ) -> Result<Piece, Broken> {
        let length = usize::try_from(self.data_left()).unwrap_or(usize::MAX).min(bytes.len());
        let room = bytes.get_mut(..length).unwrap_or_default();
        let mut filled = 0;
        let taken = self.range.position().saturating_sub(self.entry.fields.bundle_offset);
        if self.given > RATIO_FREE_BYTES && self.given / RATIO_MAX > taken {
            let text = "more than a thousand times what is stored: a decompression bomb";
            self.broken = Some(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        while self.broken.is_none()
            && let Some(rest) = room.get_mut(filled..).filter(|rest| !rest.is_empty())
        {
            match self.reader.read(rest) {
                Ok(0) => self.broken = Some(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.broken = Some(error),
            }
        }
        if self.broken.is_some() {
            // Whole pages only: what follows them is lost.
            let page_size = usize::try_from(place.geometry.page_size).unwrap_or(8192).max(1);
            filled -= filled % page_size;
            if filled == 0 {
                self.say_broken(place, steps);
                return Err(Broken::Member);
            }
        }
        if let Some(hash) = &mut self.hash {
            hash.update(room.get(..filled).unwrap_or_default());
        }
        self.given = self.given.saturating_add(filled as u64);
        if self.data_left() == 0 {
            self.end(place, steps);
        }
        Ok(Piece::Data(filled))
    }

    /// The rest cannot be restored.
    fn say_broken(&mut self, place: &SetPlace, steps: &mut Vec<Step>) {
        let error = self.broken.take();
        let (at, left) = (self.given, self.data_left());
        // A thread that reads has ended.
        self.reader = Box::new(io::empty());
        let summed = self.range.clone().sum_up();
        if let Some(trouble) = &summed.trouble {
            return steps.push(place.unread(&self.entry, at, left, trouble));
        }
        let total = self.entry.bytes();
        let (kind, mut detail) = place.fault_of(&self.entry, &summed).unwrap_or_else(|| {
            (
                Kind::Checksum,
                "the stored bytes cannot be restored, though their sum fits".to_owned(),
            )
        });
        detail.push_str(&format!("; only {at} of {total} bytes can be restored"));
        if let Some(error) = error.filter(|error| error.kind() != io::ErrorKind::UnexpectedEof) {
            detail.push_str(&format!(" ({error})"));
        }
        let origin = place.origin(&self.entry);
        steps.push(place.damage(&self.entry, Some(at), origin, (kind, detail)));
        let text = "it cannot be restored from the stored bytes";
        steps.push(lost(&self.entry, at, left, text));
    }

    /// All of it was given out: its sums.
    fn end(&mut self, place: &SetPlace, steps: &mut Vec<Step>) {
        let more = self.reader.read(&mut [0]);
        // A thread that reads has ended.
        self.reader = Box::new(io::empty());
        let summed = self.range.clone().sum_up();
        let entry = &self.entry;
        if let Some(trouble) = &summed.trouble {
            return steps.push(place.unread(entry, 0, entry.bytes(), trouble));
        }
        let fault = place
            .fault_of(entry, &summed)
            .or_else(|| self.fault_of_length())
            .or_else(|| match more {
                Ok(0) => None,
                Ok(_) => Some((
                    Kind::Checksum,
                    format!("more is stored than the {} bytes of the file", entry.bytes()),
                )),
                Err(error) => {
                    Some((Kind::Checksum, format!("the stored bytes do not end well: {error}")))
                }
            })
            .or_else(|| match self.hash.take() {
                Some(hash) => fault_of_content(entry, &hex(&hash.finalize())),
                None => fault_of_content(entry, &summed.hash),
            });
        match fault {
            Some(fault) => steps.push(place.damage(entry, None, place.origin(entry), fault)),
            None => place.remember(entry),
        }
    }

    /// A file that is not bundled has the length that the manifest lists.
    fn fault_of_length(&self) -> Option<(Kind, String)> {
        let (listed, bytes) = (self.entry.stored_bytes(), self.range.file_bytes().ok()?);
        (self.entry.fields.bundle.is_none() && bytes != listed).then(|| {
            let detail = format!("the stored file has {bytes} bytes, in the manifest {listed}");
            (Kind::Checksum, detail)
        })
    }
}

/// The restored file must have the SHA-1 that the manifest lists.
pub(super) fn fault_of_content(entry: &Entry, computed: &str) -> Option<(Kind, String)> {
    let listed = entry.fields.checksum.as_ref()?;
    (*listed != computed).then(|| {
        let detail = format!(
            "the restored file is not the one that was backed up: its SHA-1 is {computed}, in the manifest {listed}"
        );
        (Kind::Checksum, detail)
    })
}

/// Why a stored file cannot be opened.
pub(super) fn not_opened(place: &SetPlace, entry: &Entry, error: &io::Error) -> Step {
    if error.kind() != io::ErrorKind::NotFound {
        return place.unread(entry, 0, entry.bytes(), &error.to_string());
    }
    if place.has_expired() {
        return place.unread(entry, 0, entry.bytes(), EXPIRED);
    }
    let detail = match &entry.fields.reference {
        Some(label) => format!("its stored file, which is part of the set {label}, is not there"),
        None => "its stored file is not there".to_owned(),
    };
    place.damage(entry, None, place.origin(entry), (Kind::Missing, detail))
}

impl SetPlace {
    /// What makes two entries the same stored bytes with the same meaning.
    fn key<'a>(&self, entry: &'a Entry) -> impl std::hash::Hash + use<'a> {
        let fields = &entry.fields;
        (
            self.stored_file(entry),
            (fields.bundle_offset, entry.stored_bytes(), entry.bytes()),
            (&entry.name, &fields.rck, &fields.checksum, fields.map_bytes),
        )
    }

    /// True if this run has verified these stored bytes as this file, and all its pages passed.
    pub(super) fn is_verified(&self, entry: &Entry) -> bool {
        let memory = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        !memory.is_tainted(&entry.name) && memory.has_file(&self.key(entry))
    }

    /// True but for a file that ends inside a page.
    pub(super) fn holds_whole_pages(&self, entry: &Entry) -> bool {
        entry.bytes().is_multiple_of(self.geometry.page_size.max(1))
    }

    /// The stored bytes of this entry are sound. A file that ends inside a page is looked at again:
    /// that is said where a set ends.
    pub(super) fn remember(&self, entry: &Entry) {
        if self.holds_whole_pages(entry) {
            let mut memory = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            memory.add_file(&self.key(entry));
        }
    }
}
