//! The words of a result: what is said of a page, of a target and of a run.
//!
//! Damage is data. A [`Finding`] says what is wrong with one page or file, an
//! [`Unread`] says what could not be looked at, and neither is ever an error.
//! The names of the variants are those of the JSON output and never change.

use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize, Serializer};

/// A page's number as its engine counts it: within the relation (PostgreSQL),
/// the tablespace (InnoDB) or the file (SQL Server, SQLite).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageNo(pub u64);

impl PageNo {
    /// The number `count` pages further on, saturating: page numbers from
    /// hostile metadata must not wrap around to sound ones.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position in a file, in bytes from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteOffset(pub u64);

/// How much a finding proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing, harmless.
    Notice,
    /// Recovery or a rare healthy history could explain it.
    Suspect,
    /// No healthy history explains it.
    Damage,
}

impl Severity {
    /// The word used in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Suspect => "suspect",
            Self::Damage => "damage",
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The stored value does not match the content, and nothing more precise
    /// can be said.
    Checksum,
    /// One flipped bit explains the mismatch and chance is excluded.
    BitFlip,
    /// Old and new sectors are mixed.
    Torn,
    /// Sound, but for another address.
    Misplaced,
    /// All zero where something shows that the page was in use.
    Zeroed,
    /// An older version of the page: a lost write.
    Stale,
    /// A header that no engine writes.
    Header,
    /// Newer than the end of the log, where that end is known for sure.
    FutureLsn,
    /// The file ends inside a page, or before where it must end.
    Truncated,
    /// A file or segment that must be there and is not.
    Missing,
    /// Pages or files that each pass their own test and contradict one another.
    Structure,
}

impl Kind {
    /// The word used in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::BitFlip => "bit_flip",
            Self::Torn => "torn",
            Self::Misplaced => "misplaced",
            Self::Zeroed => "zeroed",
            Self::Stale => "stale",
            Self::Header => "header",
            Self::FutureLsn => "future_lsn",
            Self::Truncated => "truncated",
            Self::Missing => "missing",
            Self::Structure => "structure",
        }
    }
}

/// How a page, or a database by its setting, is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// A checksum over the page's content.
    Checksum,
    /// Marks in each sector that show a torn write and nothing else.
    Torn,
    /// Nothing to verify the page by.
    None,
}

impl Protection {
    /// The word used in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Torn => "torn",
            Self::None => "none",
        }
    }
}

/// What a page counts as. Every page that was read counts as exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Its own protection was tested and nothing damaging is known about it.
    Ok,
    /// Never written: all zero where that is legal.
    Empty,
    /// Carries nothing to verify it by.
    Unprotected,
    /// Protected in a way that needs a key that was not given.
    Unverifiable,
    /// Kept changing under a live server to the end.
    Undecided,
    /// Failed its test, but crash recovery may yet mend it, or throw it away.
    Suspect,
    /// Has a finding of severity `damage`.
    Damaged,
}

impl Standing {
    /// What a page counts as that failed its test with this severity: damaged;
    /// or suspect where recovery may mend it, will mend it, or throws its
    /// content away (the last two are only worth a notice).
    #[must_use]
    pub fn of_failed(severity: Severity) -> Self {
        match severity {
            Severity::Damage => Self::Damaged,
            Severity::Suspect | Severity::Notice => Self::Suspect,
        }
    }
}

/// Pages by [`Standing`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct PageCounts {
    /// See [`Standing::Ok`].
    pub ok: u64,
    /// See [`Standing::Empty`].
    pub empty: u64,
    /// See [`Standing::Unprotected`].
    pub unprotected: u64,
    /// See [`Standing::Unverifiable`].
    pub unverifiable: u64,
    /// See [`Standing::Undecided`].
    pub undecided: u64,
    /// See [`Standing::Suspect`].
    pub suspect: u64,
    /// See [`Standing::Damaged`].
    pub damaged: u64,
}

impl PageCounts {
    /// Counts one page.
    pub fn add(&mut self, standing: Standing) {
        *self.of(standing) += 1;
    }

    fn of(&mut self, standing: Standing) -> &mut u64 {
        match standing {
            Standing::Ok => &mut self.ok,
            Standing::Empty => &mut self.empty,
            Standing::Unprotected => &mut self.unprotected,
            Standing::Unverifiable => &mut self.unverifiable,
            Standing::Undecided => &mut self.undecided,
            Standing::Suspect => &mut self.suspect,
            Standing::Damaged => &mut self.damaged,
        }
    }

    /// Takes one page back that was counted as `standing`.
    pub fn remove(&mut self, standing: Standing) {
        let count = self.of(standing);
        *count = count.saturating_sub(1);
    }

    /// All pages that were read: the sum of the other counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ok
            + self.empty
            + self.unprotected
            + self.unverifiable
            + self.undecided
            + self.suspect
            + self.damaged
    }

    /// Pages that hold something: all but the empty ones.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.total() - self.empty
    }
}

impl AddAssign for PageCounts {
    fn add_assign(&mut self, other: Self) {
        self.ok += other.ok;
        self.empty += other.empty;
        self.unprotected += other.unprotected;
        self.unverifiable += other.unverifiable;
        self.undecided += other.undecided;
        self.suspect += other.suspect;
        self.damaged += other.damaged;
    }
}

impl Serialize for PageCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("PageCounts", 8)?;
        fields.serialize_field("total", &self.total())?;
        fields.serialize_field("ok", &self.ok)?;
        fields.serialize_field("empty", &self.empty)?;
        fields.serialize_field("unprotected", &self.unprotected)?;
        fields.serialize_field("unverifiable", &self.unverifiable)?;
        fields.serialize_field("undecided", &self.undecided)?;
        fields.serialize_field("suspect", &self.suspect)?;
        fields.serialize_field("damaged", &self.damaged)?;
        fields.end()
    }
}

/// Pages in use by the protection each of them carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeCounts {
    /// Pages that carry a checksum.
    pub checksum: u64,
    /// Pages that carry torn-page marks.
    pub torn: u64,
    /// Pages that carry nothing.
    pub none: u64,
}

impl ModeCounts {
    /// Counts one page.
    pub fn add(&mut self, protection: Protection) {
        match protection {
            Protection::Checksum => self.checksum += 1,
            Protection::Torn => self.torn += 1,
            Protection::None => self.none += 1,
        }
    }

    /// Takes pages back that were counted.
    pub fn remove(&mut self, other: Self) {
        self.checksum = self.checksum.saturating_sub(other.checksum);
        self.torn = self.torn.saturating_sub(other.torn);
        self.none = self.none.saturating_sub(other.none);
    }

    /// One word for all pages; `mixed` where they differ, and `None` where no
    /// page is in use.
    #[must_use]
    pub fn protection(&self) -> Option<&'static str> {
        match (self.checksum > 0, self.torn > 0, self.none > 0) {
            (false, false, false) => None,
            (true, false, false) => Some("checksum"),
            (false, true, false) => Some("torn"),
            (false, false, true) => Some("none"),
            _ => Some("mixed"),
        }
    }
}

impl AddAssign for ModeCounts {
    fn add_assign(&mut self, other: Self) {
        self.checksum += other.checksum;
        self.torn += other.torn;
        self.none += other.none;
    }
}

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The file, relative to the target's path.
    pub file: String,
    /// The engine's own page number, where one page is meant.
    pub page: Option<PageNo>,
    /// The byte offset in `file`, where one place in it is meant.
    pub offset: Option<ByteOffset>,
}

/// Where the bytes lie that something was read from, if that is no file of the database: a
/// compressed or encrypted file of a backup repository, or a range of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredPlace {
    /// The stored file, relative to the repository.
    pub stored_file: String,
    /// Where the stored range begins in it.
    pub stored_offset: Option<ByteOffset>,
}

/// What is wrong with one page or file, and the evidence for it.
///
/// It is made by [`Finding::of_file`], and the methods that follow say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
    /// How much is proven.
    pub severity: Severity,
    /// What is wrong.
    pub kind: Kind,
    /// The database, by name, where it is known.
    pub database: Option<String>,
    /// The relation, by name, where it is known.
    pub object: Option<String>,
    /// The checksum on the page, hexadecimal.
    pub stored: Option<String>,
    /// The checksum of its content, hexadecimal.
    pub computed: Option<String>,
    /// The evidence in words.
    pub detail: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    /// Where the bytes lie, in a backup repository.
    #[serde(flatten)]
    pub origin: Option<Box<StoredPlace>>,
}

/// Evidence and more of it.
pub fn joined(detail: Option<String>, words: &str) -> String {
    match detail {
        None => words.to_owned(),
        Some(detail) => format!("{detail}; {words}"),
    }
}

impl Finding {
    /// Adds to the evidence, behind what is there.
    pub fn add_detail(&mut self, words: &str) {
        self.detail = Some(joined(self.detail.take(), words));
    }

    /// A finding about a whole file.
    #[must_use]
    pub fn of_file(file: &str, severity: Severity, kind: Kind, detail: String) -> Self {
        Self {
            place: Place { file: file.to_owned(), page: None, offset: None },
            severity,
            kind,
            database: None,
            object: None,
            stored: None,
            computed: None,
            detail: Some(detail),
            hint: None,
            origin: None,
        }
    }

    /// The same finding at a page, at a byte, or both.
    #[must_use]
    pub fn at(mut self, page: Option<PageNo>, offset: Option<ByteOffset>) -> Self {
        self.place.page = page;
        self.place.offset = offset;
        self
    }

    /// The same finding about this database and relation, as far as they are known.
    #[must_use]
    pub fn about(mut self, database: Option<&str>, object: Option<&str>) -> Self {
        self.database = database.map(str::to_owned);
        self.object = object.map(str::to_owned);
        self
    }

    /// The same finding with the checksum that is stored and that of the content, hexadecimal.
    #[must_use]
    pub fn with_sums(mut self, stored: Option<String>, computed: Option<String>) -> Self {
        self.stored = stored;
        self.computed = computed;
        self
    }

    /// The same finding, as grave as this.
    #[must_use]
    pub fn as_grave_as(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same finding with the place of the stored bytes.
    #[must_use]
    pub fn stored_at(mut self, origin: StoredPlace) -> Self {
        self.origin = Some(Box::new(origin));
        self
    }

    /// The same finding with advice on what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A run of consecutive pages with the same standing, for the page map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch<'a> {
    /// The file, relative to the target's path.
    pub file: &'a str,
    /// The number of the first page; `None` where it is not known.
    pub first: Option<PageNo>,
    /// Where the first page begins.
    pub offset: ByteOffset,
    /// How many they are; 0 where that is unknown.
    pub pages: u64,
    /// The length of all pages in bytes; 0 where it is unknown.
    pub length: u64,
    /// What they count as; `None` where they could not be read.
    pub standing: Option<Standing>,
}

/// A correction to counts that were already reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recount {
    /// The first page that still counts as suspect counts as this.
    Suspect(Standing),
    /// All pages that passed count as unprotected: they carry no sums.
    NoSums,
    /// One page that was counted before.
    Page {
        /// Where it is.
        place: Place,
        /// What it counted as.
        from: Standing,
        /// What it counts as.
        to: Standing,
    },
}

/// What could not be looked at: bytes of a file, or all of it. It is in no page
/// count, and makes a verdict incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// The file, relative to the target's path.
    pub file: String,
    /// Where the unread stretch begins.
    pub offset: ByteOffset,
    /// Its length in bytes; 0 where even the length is unknown.
    pub length: u64,
    /// Why, in the words of the system.
    pub error: String,
}

impl Unread {
    /// A whole file, folder or other object that could not be looked at, because of `error`.
    #[must_use]
    pub fn of_file(file: impl Into<String>, error: impl Into<String>) -> Self {
        Self { file: file.into(), offset: ByteOffset(0), length: 0, error: error.into() }
    }

    /// A part of a file that could not be read, because of `error`. A `length` of 0 is one that is
    /// not known.
    #[must_use]
    pub fn stretch(
        file: impl Into<String>,
        offset: ByteOffset,
        length: u64,
        error: impl Into<String>,
    ) -> Self {
        Self { file: file.into(), offset, length, error: error.into() }
    }

    /// True if no stretch of the file is meant but the file as a whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.offset.0 == 0 && self.length == 0
    }
}

/// Where a whole file is meant, it has no offset and no length.
impl Serialize for Unread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let stretch = (!self.is_whole()).then_some((self.offset, self.length));
        let mut fields = serializer.serialize_struct("Unread", 4)?;
        fields.serialize_field("file", &self.file)?;
        fields.serialize_field("offset", &stretch.map(|(offset, _)| offset))?;
        fields.serialize_field("length", &stretch.map(|(_, length)| length))?;
        fields.serialize_field("error", &self.error)?;
        fields.end()
    }
}

/// A circumstance worth knowing that is neither damage nor a gap in the check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What it is about, relative to the target's path; empty for the target.
    pub file: String,
    /// A sentence.
    pub text: String,
}

/// The result of a target or of a run, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Something is damaged.
    Damaged,
    /// Not everything could be looked at.
    Incomplete,
    /// Something is odd that recovery or a rare history could explain.
    Suspect,
    /// Nothing wrong was seen, but nothing protects the pages either.
    Unprotected,
    /// All that was named was tested and is sound.
    Intact,
}

impl Verdict {
    /// The word used in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Incomplete => "incomplete",
            Self::Suspect => "suspect",
            Self::Unprotected => "unprotected",
            Self::Intact => "intact",
        }
    }
}

/// How many findings there are of each severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeverityCounts {
    /// Findings of severity `damage`, of pages and files.
    pub damage: u64,
    /// Findings of severity `suspect`.
    pub suspect: u64,
    /// Findings of severity `notice`.
    pub notice: u64,
}

impl SeverityCounts {
    /// Counts one finding.
    pub fn add(&mut self, severity: Severity) {
        match severity {
            Severity::Damage => self.damage += 1,
            Severity::Suspect => self.suspect += 1,
            Severity::Notice => self.notice += 1,
        }
    }
}

impl AddAssign for SeverityCounts {
    fn add_assign(&mut self, other: Self) {
        self.damage += other.damage;
        self.suspect += other.suspect;
        self.notice += other.notice;
    }
}
