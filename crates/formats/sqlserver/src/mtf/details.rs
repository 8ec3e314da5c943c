//! What blocks and streams say besides their headers.
//!
//! Every place below was compared with all sets of the fixtures: names and paths
//! are readable, builds are ones that were released, database versions are those
//! of the boot pages, pages of files add up to those in the data streams.
//!
//! ```text
//! TAPE                                    source
//!     52     4  media family id           MTF 1.00a
//!     64     2  soft filemark size / 512  MTF
//!     84     2  logical block size        MTF
//!     88     5  date                      MTF
//! SSET, ESET
//!     52     4  attributes: 0x4 normal,   MTF; measured: 0x4 full and log, 0x8
//!               0x8 differential            differential; in ESET the same as in SSET
//! SSET
//!     62     2  number of the set         MTF
//!     80     8  where it begins           MTF; measured: the byte of the file
//!  64,66  2, 2  size, offset of its name  MTF
//!  76,78  2, 2  of the user's name        MTF
//!     88     5  date                      MTF
//!  93,94  1, 1  version of the software   MTF; 10 and 50: SQL Server 2008 R2
//!     95     1  time zone, quarter hours  MTF; 127 is unknown
//!    100    16  the set's own id          measured: that which a differential backup
//!                                           names at 272, and a later one at 200
//! ESET
//!     60     8  of the second of a set:    measured
//!               where the first begins
//!     78     2  number of the set         MTF
//! SFMB
//!     56     4  filemarks before it       MTF; measured: counted from 0 on
//!     72     8  where the one before      measured
//!               begins
//! MSTL, what is in MQTL                   measured: in all 20 sets that have one,
//!     60     8  begin in the log file       the first block stands there, and the
//!     68     8  end in the log file         last one ends there
//!     76     4  number of the log file
//!     92     4  sequence number of the
//!               virtual log file
//!  96,104 8, 8  its size and offset
//! RAID
//!      0    16  media set id              measured
//!     20     2  count of media families   measured: 2 in stripes
//!     22     2  count of mirrors          measured: 1
//!     24     2  number of this family     measured
//! MQCI: records, each a name, u32 length of the whole, contents
//! "SCIN", the database
//!     24     2  build of the server       measured
//!  26,27  1, 1  its minor, major version  measured
//!     32    10  first LSN                 measured: not after the last one
//!     42    10  last LSN                  measured
//!     52    10  checkpoint LSN            measured: in the second set of a file
//!     62    10  that of the full backup     62 is 52 of the first
//!               before; zero if none
//!     72     5  creation of the database  measured: a date before 77
//!     77     5  begin of the backup       measured: as in SSET
//!     82     5  its end                   measured: zero in MSCI, set in MSLS
//!     87     1  its kind, a letter         measured: D full, I differential, L log
//!     91     1  compatibility level       measured
//!     94     2  database version          measured: as in the boot page
//!    156    16  recovery fork             measured: another one after a restore
//!    172    10  where it left the other   measured: the last LSN of the full backup
//!                                           that was restored; zero if there was none
//!    184    16  the fork that it left     measured: that at 156 of that backup
//!    200    16  set id of the full        measured: see SSET; zero if none
//!               backup before
//!    224    16  family                    measured: the first fork of all, kept over
//!                                           restores on other servers
//!    260    10  checkpoint LSN of the     measured: 62 of all 8 differential sets
//!               differential base
//!    272    16  its set id                measured: see SSET; zero in other backups
//! 104,106 2, 2  size, offset of its name  measured
//! 108,110 2, 2  of the server's name      measured
//! "SFIN", a file
//!     16     4  page size                 measured: 8192
//!     20     4  file id                   measured
//!     24     4  pages that follow         measured: in MSCI those of the first
//!                                           MSDA of all families, in MSLS of the
//!                                           second or the same; log: no pages
//!     28     4  1 data, 2 log             measured
//!     32     4  sector size               measured: 512 or 4096
//!     40     8  size of the file          measured
//!  48,50  2, 2  size, offset of its name  measured
//!  52,54  2, 2  of its path               measured
//! an LSN: u32 file of the log, u32 block, u16 slot
//! a date: 14 bits year, 4 month, 5 day, 5 hour, 6 minute, 6 second; the server's
//! ```
//!
//! Sizes are in bytes, of UTF-16. Offsets count from the beginning of the block
//! or record.

use std::fmt;
use std::ops::Range;

use super::Type;

/// Names longer than this are none: Windows takes 32,767 characters.
const NAME_BYTES_MAX: usize = 1 << 16;

/// What a block says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Details {
    /// TAPE.
    Tape {
        /// The media family's id.
        family_id: u32,
        /// The size of a soft filemark.
        filemark_bytes: u32,
        /// The size that logical addresses count in.
        logical_block_bytes: u16,
        /// When the medium was written first.
        date: Option<Date>,
    },
    /// SSET.
    SetBegin {
        /// 0x4: a full backup, as far as was seen.
        attributes: u32,
        /// From 1 on.
        number: u16,
        /// The byte of the file at which it begins.
        place: u64,
        /// What the backup is called.
        name: String,
        /// Who made it.
        user: String,
        /// When it began.
        date: Option<Date>,
        /// The version of SQL Server, 10 and 50 for 2008 R2.
        version: (u8, u8),
        /// Minutes from UTC.
        time_zone_minutes: Option<i16>,
        /// The set's own id.
        id: Guid,
    },
    /// ESET.
    SetEnd {
        /// The same as in SSET.
        attributes: u32,
        /// From 1 on.
        number: u16,
        /// The byte of the file at which the other block of the set's end begins; 0 in that one.
        place: u64,
    },
    /// SFMB.
    Filemark {
        /// From 0 on.
        number: u32,
        /// The byte of the file at which the one before begins.
        previous: u64,
    },
    /// MSTL.
    Log(LogRange),
}

/// A part of the log, as it lay in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// Where it begins in the log file.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
    /// The sequence number of its virtual log file.
    pub sequence: u32,
    /// Where that lies in the log file.
    pub vlf_begin: u64,
    /// Its size.
    pub vlf_bytes: u64,
}

impl Details {
    /// What the block says whose bytes, up to its first stream, are these.
    pub(super) fn read(kind: Type, block: &[u8]) -> Option<Self> {
        let fields = Fields(block);
        match &kind.0 {
            b"TAPE" => Some(Self::Tape {
                family_id: fields.u32(52)?,
                filemark_bytes: u32::from(fields.u16(64)?).saturating_mul(512),
                logical_block_bytes: fields.u16(84)?,
                date: fields.date(88),
            }),
            b"SSET" => Some(Self::SetBegin {
                attributes: fields.u32(52)?,
                number: fields.u16(62)?,
                place: fields.u64(80)?,
                name: fields.text(64)?,
                user: fields.text(76)?,
                date: fields.date(88),
                version: (fields.u8(93)?, fields.u8(94)?),
                time_zone_minutes: match i8::from_le_bytes([fields.u8(95)?]) {
                    127 => None,
                    quarters => Some(i16::from(quarters).saturating_mul(15)),
                },
                id: fields.guid(100),
            }),
            b"ESET" => Some(Self::SetEnd {
                attributes: fields.u32(52)?,
                number: fields.u16(78)?,
                place: fields.u64(60)?,
            }),
            b"SFMB" => Some(Self::Filemark { number: fields.u32(56)?, previous: fields.u64(72)? }),
            b"MSTL" => Some(Self::Log(LogRange {
                begin: fields.u64(60)?,
                end: fields.u64(68)?,
                sequence: fields.u32(92)?,
                vlf_begin: fields.u64(104)?,
                vlf_bytes: fields.u64(96)?,
            })),
            _ => None,
        }
    }
}

/// The medium a file is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Media {
    /// The same for all families of a set.
    pub set_id: [u8; 16],
    /// How many files the backup is striped over.
    pub families: u16,
    /// How many copies of each were made.
    pub mirrors: u16,
    /// Which of them this is, from 1 on.
    pub family: u16,
}

impl Media {
    pub(super) fn read(contents: &[u8]) -> Option<Self> {
        let fields = Fields(contents);
        Some(Self {
            set_id: fields.bytes(0)?,
            families: fields.u16(20)?,
            mirrors: fields.u16(22)?,
            family: fields.u16(24)?,
        })
    }
}

/// The database that was backed up, and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The database's name.
    pub database: String,
    /// The server's, with its instance.
    pub server: String,
    /// Major version, minor version and build of the server.
    pub server_version: (u8, u8, u16),
    /// The version of the database's files, as in the boot page.
    pub database_version: u16,
    /// The compatibility level, 150 for SQL Server 2019.
    pub compatibility: u8,
    /// From here on the log is in the backup.
    pub first_lsn: Lsn,
    /// Up to here.
    pub last_lsn: Lsn,
    /// Of the checkpoint the backup began with.
    pub checkpoint_lsn: Lsn,
    /// That of the full backup before; zero if there was none.
    pub previous_full_lsn: Lsn,
    /// When the database was made.
    pub created: Option<Date>,
    /// When the backup began.
    pub begun: Option<Date>,
    /// When it ended: only in MSLS.
    pub ended: Option<Date>,
    /// A letter for the kind of backup, as in `msdb`: D, I, L.
    pub kind: u8,
    /// The history that the database is of, which a restore begins anew.
    pub fork: Fork,
    /// The same for all copies of a database, over restores.
    pub family: Guid,
    /// Of a differential backup, the set id of its base.
    pub base_id: Guid,
    /// The database's files, of the log too.
    pub files: Vec<DatabaseFile>,
    /// All that the records say, these fields among it.
    pub contents: Vec<u8>,
}

/// A file of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFile {
    /// Its id, which is in its pages.
    pub id: u32,
    /// Its pages in the backup: in MSCI those of the first data block, over all
    /// families; in MSLS those of the second, where there is one.
    pub pages: u32,
    /// Whether it is of the log.
    pub is_log: bool,
    /// The size of the file that was backed up.
    pub bytes: u64,
    /// Its page size.
    pub page_bytes: u32,
    /// The sector size of what it lay on.
    pub sector_bytes: u32,
    /// Its logical name.
    pub name: String,
    /// Where it lay.
    pub path: String,
}

impl Configuration {
    pub(super) fn read(contents: &[u8]) -> Option<Self> {
        let mut records = Records(contents);
        let (b"SCIN", scin) = records.next()? else { return None };
        let mut files = Vec::new();
        for (name, record) in records {
            if name == b"SFIN" {
                files.push(DatabaseFile::read(record)?);
            }
        }
        Some(Self {
            database: scin.text(104)?,
            server: scin.text(108)?,
            server_version: (scin.u8(27)?, scin.u8(26)?, scin.u16(24)?),
            database_version: scin.u16(94)?,
            compatibility: scin.u8(91)?,
            first_lsn: scin.lsn(32)?,
            last_lsn: scin.lsn(42)?,
            checkpoint_lsn: scin.lsn(52)?,
            previous_full_lsn: scin.lsn(62)?,
            created: scin.date(72),
            begun: scin.date(77),
            ended: scin.date(82),
            kind: scin.u8(87)?,
            fork: Fork {
                id: scin.guid(156),
                point: scin.lsn(172).unwrap_or_default(),
                left: scin.guid(184),
            },
            family: scin.guid(224),
            base_id: scin.guid(272),
            files,
            contents: contents.to_vec(),
        })
    }

    /// In what this one, of the beginning of a backup set, and the one at its end contradict each
    /// other; `None` where all is as the server writes it.
    ///
    /// The two have the same records of the same sizes in all backup sets seen. What differs are
    /// log positions, the date of the end, counts of pages and what hangs on them, in places that are
    /// known; a few bytes elsewhere may have a meaning that was not seen yet.
    #[must_use]
    pub fn contradiction(&self, end: &Self) -> Option<&'static str> {
        const DIFFERENT_BYTES_MAX: usize = 8;
        let later = |begin: Lsn, end: Lsn| begin <= end;
        if self.database != end.database || self.created != end.created {
            return Some("the database");
        }
        if (&self.server, self.server_version) != (&end.server, end.server_version) {
            return Some("the server");
        }
        if (self.database_version, self.compatibility) != (end.database_version, end.compatibility)
        {
            return Some("the version of the database");
        }
        if self.begun != end.begun {
            return Some("the date of the backup");
        }
        let is_same = |(one, other): (&DatabaseFile, &DatabaseFile)| {
            (one.id, one.is_log, one.page_bytes, &one.name, &one.path)
                == (other.id, other.is_log, other.page_bytes, &other.name, &other.path)
        };
        if self.files.len() != end.files.len() || !self.files.iter().zip(&end.files).all(is_same) {
            return Some("the files of the database");
        }
        let are_in_order = later(self.first_lsn, end.first_lsn)
            && later(self.last_lsn, end.last_lsn)
            && later(self.checkpoint_lsn, end.checkpoint_lsn)
            && later(self.first_lsn, self.last_lsn)
            && later(end.first_lsn, end.last_lsn)
            && self.previous_full_lsn == end.previous_full_lsn;
        if !are_in_order {
            return Some("the positions in the log");
        }
        let records = |contents| Records(contents).map(|(name, record)| (name, record.0));
        let (mut ones, mut others) = (records(&self.contents), records(&end.contents));
        loop {
            let (one, other) = match (ones.next(), others.next()) {
                (None, None) => return None,
                (Some(one), Some(other)) => (one, other),
                _ => return Some("their records"),
            };
            let places = changing(one.0);
            let different = one.1.iter().zip(other.1).zip(0..).filter(|((one, other), at)| {
                one != other && !places.iter().any(|place| place.contains(at))
            });
            let different = different.count();
            if one.0 != other.0 || one.1.len() != other.1.len() || different > DIFFERENT_BYTES_MAX {
                return Some("their records");
            }
        }
    }
}

/// Where a record at the end of a backup may differ from that at its beginning: all places in which
/// those of 20 backup sets do, 2008 R2 to 2019, and the rest of the fields that these belong to.
fn changing(name: &[u8; 4]) -> &'static [Range<usize>] {
    match name {
        b"SCIN" => &[32..72, 82..88, 96..100, 148..152, 252..262, 336..348],
        b"SFGI" => &[52..88, 100..136],
        b"SFIN" => &[24..28, 156..188, 204..214, 220..226, 236..246, 250..272],
        _ => &[],
    }
}

impl DatabaseFile {
    fn read(record: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: record.u32(20)?,
            pages: record.u32(24)?,
            is_log: record.u32(28)? == 2,
            bytes: record.u64(40)?,
            page_bytes: record.u32(16)?,
            sector_bytes: record.u32(32)?,
            name: record.text(48)?,
            path: record.text(52)?,
        })
    }
}

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Lsn {
    /// The virtual log file.
    pub file: u32,
    /// The block in it.
    pub block: u32,
    /// The slot in that.
    pub slot: u16,
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As the server's own commands write it.
        write!(f, "{}:{}:{}", self.file, self.block, self.slot)
    }
}

impl Lsn {
    /// As one number, which is how `msdb` and RESTORE HEADERONLY write it: 42000000814400001.
    #[must_use]
    pub fn decimal(self) -> String {
        let text = format!("{}{:010}{:05}", self.file, self.block, self.slot);
        let digits = text.trim_start_matches('0');
        if digits.is_empty() { "0".to_owned() } else { digits.to_owned() }
    }
}

/// An id that is the same nowhere else; zero where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// True unless it is zero.
    #[must_use]
    pub fn is_set(self) -> bool {
        self != Self::default()
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As Windows writes it: the first three parts are numbers, lowest byte first.
        let [a, b, c, d, e, g, h, i, rest @ ..] = self.0;
        let first = u32::from_le_bytes([a, b, c, d]);
        let (second, third) = (u16::from_le_bytes([e, g]), u16::from_le_bytes([h, i]));
        let [j, k, node @ ..] = rest;
        write!(f, "{first:08X}-{second:04X}-{third:04X}-{j:02X}{k:02X}-")?;
        node.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// A history of a database: a restore that ends in recovery begins a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fork {
    /// Its id.
    pub id: Guid,
    /// Where it left the one before; zero if there was none.
    pub point: Lsn,
    /// The one before.
    pub left: Guid,
}

/// A time of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// In full, 2026.
    pub year: u16,
    /// From 1 on.
    pub month: u8,
    /// From 1 on.
    pub day: u8,
    /// To 23.
    pub hour: u8,
    /// To 59.
    pub minute: u8,
    /// To 60.
    pub second: u8,
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// Fields by their offsets; `None` past the end.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const COUNT: usize>(self, offset: usize) -> Option<[u8; COUNT]> {
        self.0.get(offset..)?.first_chunk().copied()
    }

    fn u8(self, offset: usize) -> Option<u8> {
        self.bytes(offset).map(u8::from_le_bytes)
    }

    fn u16(self, offset: usize) -> Option<u16> {
        self.bytes(offset).map(u16::from_le_bytes)
    }

    fn u32(self, offset: usize) -> Option<u32> {
        self.bytes(offset).map(u32::from_le_bytes)
    }

    fn u64(self, offset: usize) -> Option<u64> {
        self.bytes(offset).map(u64::from_le_bytes)
    }

    /// Zero past the end: older versions have shorter records.
    fn guid(self, offset: usize) -> Guid {
        self.bytes(offset).map(Guid).unwrap_or_default()
    }

    fn lsn(self, offset: usize) -> Option<Lsn> {
        let [a, b, c, d, e, f, g, h, i, j] = self.bytes(offset)?;
        Some(Lsn {
            file: u32::from_le_bytes([a, b, c, d]),
            block: u32::from_le_bytes([e, f, g, h]),
            slot: u16::from_le_bytes([i, j]),
        })
    }

    /// `None` also for a date that is not set, or that no calendar has.
    fn date(self, offset: usize) -> Option<Date> {
        let [a, b, c, d, e] = self.bytes(offset)?;
        let bits = u64::from_be_bytes([0, 0, 0, a, b, c, d, e]);
        let field = |low: u32, mask: u64| u8::try_from(bits >> low & mask).ok();
        let date = Date {
            year: u16::try_from(bits >> 26).ok()?,
            month: field(22, 0xF)?,
            day: field(17, 0x1F)?,
            hour: field(12, 0x1F)?,
            minute: field(6, 0x3F)?,
            second: field(0, 0x3F)?,
        };
        let is_possible = (1..=12).contains(&date.month)
            && date.day >= 1
            && date.hour < 24
            && date.minute < 60
            && date.second <= 60;
        is_possible.then_some(date)
    }

    /// A text, whose size and offset stand here.
    fn text(self, offset: usize) -> Option<String> {
        let [size, begin] = [self.bytes(offset)?, self.bytes(offset.checked_add(2)?)?]
            .map(|bytes| usize::from(u16::from_le_bytes(bytes)));
        if size == 0 {
            return Some(String::new());
        }
        let bytes = self.0.get(begin..begin.checked_add(size.min(NAME_BYTES_MAX))?)?;
        let units = bytes.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
        let text =
            char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        Some(text.collect())
    }
}

/// The records of MQCI.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = (&'a [u8; 4], Fields<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.0.first_chunk::<4>()?;
        let length = usize::try_from(Fields(self.0).u32(4)?).ok()?;
        // Its name and length are in it.
        let (record, rest) = self.0.split_at_checked(length).filter(|_| length >= 8)?;
        self.0 = rest;
        Some((name, Fields(record)))
    }
}
