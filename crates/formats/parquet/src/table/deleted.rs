//! Which rows of a file are deleted: vectors of Delta and Iceberg tables, and lists of positions.
//!
//! | byte of a vector | | |
//! |---|---|---|
//! | 0 | 4 bytes, the highest first | length of its data |
//! | 4 | that many | data |
//! | behind it | 4 bytes, the highest first | CRC-32 of the data |
//!
//! | byte of the data | | |
//! |---|---|---|
//! | 0 | 4 bytes, the lowest first | 1681511377 |
//! | 4 | | a bitmap of 64-bit numbers in the portable form of Roaring |
//!
//! Source: "Deletion Vector Format" in `PROTOCOL.md` of Delta Lake, and the blob `deletion-vector-v1` in
//! "Puffin spec" of Iceberg; tried on tables of Delta's Spark connector 4.0.0 and Iceberg's 1.10.0.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use roaring::RoaringTreemap;

use super::{HINT, elsewhere};
use crate::checksum::page_sum;
use crate::files::content::Obstacle;
use crate::files::open_file;
use pagewarden_core::source::store::{StorePath, StoredFile};
use pagewarden_core::verdict::{ByteOffset, Finding, Kind, Severity};

const MAGIC: u32 = 1_681_511_377;
/// The length before the data, and the CRC behind it.
pub(super) const WORD_BYTES: usize = 4;
/// Two thousand million rows, each with bits of its own.
pub(super) const BYTES_MAX: usize = 1 << 30;

/// The numbers of rows that are deleted, in a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeletedRows(RoaringTreemap);

impl DeletedRows {
    /// True if the row is deleted.
    #[must_use]
    pub fn contains(&self, row: u64) -> bool {
        self.0.contains(row)
    }

    /// How many of some rows are deleted.
    #[must_use]
    pub fn count(&self, rows: Range<u64>) -> u64 {
        self.0.range_cardinality(rows)
    }

    /// Deletes a row, once or again.
    pub(super) fn insert(&mut self, row: u64) {
        self.0.insert(row);
    }

    fn last(&self) -> Option<u64> {
        self.0.max()
    }
}

impl FromIterator<u64> for DeletedRows {
    fn from_iter<T: IntoIterator<Item = u64>>(rows: T) -> Self {
        Self(rows.into_iter().collect())
    }
}

/// Which rows of a file of a snapshot are deleted.
#[derive(Debug, Clone)]
pub struct Deletions(Source);

#[derive(Debug, Clone)]
enum Source {
    /// A vector, below the folder of a table.
    Vector(Box<Vector>, StorePath),
    Rows(Arc<DeletedRows>),
}

impl Deletions {
    pub(super) fn of_vector(vector: Vector, folder: &StorePath) -> Self {
        Self(Source::Vector(Box::new(vector), folder.clone()))
    }

    /// Those of a file of positions.
    #[must_use]
    pub fn of_rows(rows: DeletedRows) -> Self {
        Self(Source::Rows(Arc::new(rows)))
    }

    /// How many rows are deleted, of a file with that number of rows: an error if it has not all of them.
    ///
    /// # Errors
    /// [`Obstacle::Damaged`].
    pub fn count(&self, rows: u64) -> Result<u64, Obstacle> {
        let (deleted, last) = match &self.0 {
            Source::Vector(vector, _) => (vector.deleted, None),
            Source::Rows(deleted) => (deleted.0.len(), deleted.last()),
        };
        if deleted > rows || last.is_some_and(|last| last >= rows) {
            let why = format!("it has {rows} rows, the table deletes others of it");
            return Err(Obstacle::Damaged(why));
        }
        Ok(deleted)
    }

    /// Which rows: as many as it [counts](Self::count), of a file with that number of rows.
    ///
    /// # Errors
    /// They cannot be read, or are not what the table says.
    pub fn read(&self, rows: u64) -> Result<Arc<DeletedRows>, Obstacle> {
        match &self.0 {
            Source::Rows(deleted) => Ok(Arc::clone(deleted)),
            Source::Vector(vector, folder) => {
                let vector = Vector { rows: Some(rows), ..(**vector).clone() };
                let read = match &vector.stored {
                    Stored::Inline(data) => vector.judge(data),
                    Stored::File(place) => vector.test(&open_file(&folder.join(place))?)?,
                    Stored::Elsewhere(url) => {
                        vector.test(&open_file(&elsewhere::find(folder, url)?)?)?
                    }
                };
                read.map(Arc::new).map_err(|fault| {
                    let finding = vector.finding("", fault);
                    Obstacle::Damaged(finding.detail.unwrap_or_default())
                })
            }
        }
    }
}

/// Where a vector is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// In the log.
    Inline(Vec<u8>),
    /// In a file below the folder of the table.
    File(PathBuf),
    /// In a file that is elsewhere.
    Elsewhere(String),
}

/// A deletion vector, as the log names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vector {
    pub stored: Stored,
    /// Where it begins in its file.
    pub offset: u64,
    /// The length of its data.
    pub bytes: usize,
    /// The rows that are deleted.
    pub deleted: u64,
    /// The file they are deleted from.
    pub of: String,
    /// The rows of that file, where the log says it.
    pub rows: Option<u64>,
}

/// What is wrong with a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The file ends in it.
    Ends,
    /// Its CRC does not fit: stored, and of its data.
    Sum(u32, u32),
    /// It is none, or not the one that the log means.
    Structure(String),
}

impl Vector {
    /// Reads it from its file, and tests it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn test(&self, file: &StoredFile) -> io::Result<Result<DeletedRows, Fault>> {
        let mut content = vec![0; self.bytes.saturating_add(2 * WORD_BYTES)];
        let count = file.read_fully(&mut content, self.offset)?;
        content.truncate(count);
        Ok(self.unwrap(&content).and_then(|data| self.judge(data)))
    }

    /// The data out of what surrounds it in a file.
    fn unwrap<'a>(&self, content: &'a [u8]) -> Result<&'a [u8], Fault> {
        let (length, rest) = content.split_first_chunk::<WORD_BYTES>().ok_or(Fault::Ends)?;
        let length = u32::from_be_bytes(*length);
        if usize::try_from(length) != Ok(self.bytes) {
            let why = format!("it has {length} bytes, the table says {}", self.bytes);
            return Err(Fault::Structure(why));
        }
        let (data, rest) = rest.split_at_checked(self.bytes).ok_or(Fault::Ends)?;
        let sum = u32::from_be_bytes(*rest.first_chunk::<WORD_BYTES>().ok_or(Fault::Ends)?);
        let computed = page_sum(data);
        if sum == computed { Ok(data) } else { Err(Fault::Sum(sum, computed)) }
    }

    /// What is wrong with it, for people.
    pub fn finding(&self, name: &str, fault: Fault) -> Finding {
        let of = format!("the deletion vector of {}", self.of);
        let say = |kind, why: &str| {
            let finding = Finding::of_file(name, Severity::Damage, kind, format!("{of}: {why}"));
            let offset = matches!(self.stored, Stored::File(_)).then_some(ByteOffset(self.offset));
            finding.at(None, offset).with_hint(HINT)
        };
        match fault {
            Fault::Ends => say(Kind::Truncated, "it ends before its length"),
            Fault::Structure(why) => say(Kind::Structure, &why),
            Fault::Sum(stored, computed) => {
                let [stored, computed] = [stored, computed].map(|sum| Some(format!("{sum:08x}")));
                say(Kind::Checksum, "its CRC does not fit").with_sums(stored, computed)
            }
        }
    }

    /// Tests the data: a bitmap of as many rows as the log says, all of them in the file.
    pub fn judge(&self, data: &[u8]) -> Result<DeletedRows, Fault> {
        let (magic, bitmap) = data.split_first_chunk::<WORD_BYTES>().ok_or(Fault::Ends)?;
        if u32::from_le_bytes(*magic) != MAGIC {
            return Err(Fault::Structure("it does not begin as a deletion vector".to_owned()));
        }
        let mut rest = bitmap;
        let rows = RoaringTreemap::deserialize_from(&mut rest)
            .map_err(|why| Fault::Structure(format!("its bitmap cannot be read: {why}")))?;
        if !rest.is_empty() {
            return Err(Fault::Structure("there are bytes behind its bitmap".to_owned()));
        }
        if rows.len() != self.deleted {
            let why = format!("it has {} rows, the table says {}", rows.len(), self.deleted);
            return Err(Fault::Structure(why));
        }
        match (rows.max(), self.rows) {
            (Some(last), Some(rows)) if last >= rows => {
                let why = format!("it deletes row {last} of {}, which has {rows}", self.of);
                Err(Fault::Structure(why))
            }
            _ => Ok(DeletedRows(rows)),
        }
    }
}
