//! The 100 bytes at the beginning of a SQLite database, and the b-tree page they stand on.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 16 | `SQLite format 3` and a zero byte |
//! | 16 | 2 | page size; 1 stands for 65536 |
//! | 18, 19 | 1 + 1 | write and read version: 1 rollback journal, 2 write-ahead log |
//! | 20 | 1 | reserved bytes at the end of every page |
//! | 21..24 | 3 | payload fractions: 64, 32, 32 and nothing else |
//! | 24 | 4 | change counter |
//! | 28 | 4 | database size in pages; valid if not 0 and offset 92 equals the change counter |
//! | 32, 36 | 4 + 4 | first freelist trunk page, free pages in all |
//! | 44 | 4 | schema format, up to 4 |
//! | 52 | 4 | largest root page; not 0 only with auto-vacuum |
//! | 56 | 4 | text encoding, up to 3 |
//! | 64 | 4 | incremental vacuum; 0 without auto-vacuum |
//! | 72 | 20 | kept for expansion: zero |
//! | 92, 96 | 4 + 4 | change counter and library version when the size was written |
//!
//! All numbers are big-endian. Facts from SQLite's public documentation (`fileformat2.html`).

#![deny(clippy::arithmetic_side_effects)]

/// The bytes every SQLite database begins with.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Length of the database header.
pub const HEADER_BYTES: usize = 100;
/// The smallest page.
pub const PAGE_SIZE_MIN: usize = 512;
/// The largest page.
pub const PAGE_SIZE_MAX: usize = 65_536;
/// What must be left of a page after its reserved bytes.
pub const USABLE_BYTES_MIN: usize = 480;

const PAYLOAD_FRACTIONS: [u8; 3] = [64, 32, 32];
const SCHEMA_FORMAT_MAX: u32 = 4;
const TEXT_ENCODING_MAX: u32 = 3;
/// The read and write versions that are known: rollback journal and write-ahead log.
const VERSION_WAL: u8 = 2;
/// A version to write with that no SQLite knows: it opens such a file read-only. The VFS of this project
/// shows its own SQLite the version to read with in its place.
pub const VERSION_GUARDED: u8 = 3;

/// The kinds of b-tree pages, by their first byte.
pub(super) const INTERIOR_INDEX: u8 = 2;
pub(super) const INTERIOR_TABLE: u8 = 5;
pub(super) const LEAF_INDEX: u8 = 10;
pub(super) const LEAF_TABLE: u8 = 13;
/// No cell is shorter.
pub(super) const CELL_BYTES_MIN: usize = 4;
const CELL_POINTER_BYTES: usize = 2;

/// The fields of the database header that say something of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// The magic bytes are right.
    pub has_magic: bool,
    /// The page size as it is written, 1 for 65536.
    pub page_size_field: u16,
    /// The version needed to write: 1 or 2.
    pub write_version: u8,
    /// The version needed to read: 1 or 2.
    pub read_version: u8,
    /// Bytes at the end of each page that SQLite leaves alone.
    pub reserved_bytes: u8,
    /// Fixed numbers.
    pub payload_fractions: [u8; 3],
    /// Counts transactions, but not those of a write-ahead log.
    pub change_counter: u32,
    /// Pages in the database, see [`DatabaseHeader::page_count`].
    pub page_count_field: u32,
    /// The first trunk page of the freelist.
    pub first_trunk: u32,
    /// Free pages, trunk pages among them.
    pub free_page_count: u32,
    /// The format of the schema.
    pub schema_format: u32,
    /// The largest root page, or 0 without auto-vacuum.
    pub largest_root: u32,
    /// The text encoding.
    pub text_encoding: u32,
    /// Incremental vacuum.
    pub incremental_vacuum: u32,
    /// The bytes kept for expansion are all zero.
    pub expansion_is_zero: bool,
    /// The change counter for which the page count was written.
    pub version_valid_for: u32,
    /// The library that wrote last, as 3040001.
    pub library_version: u32,
}

impl DatabaseHeader {
    /// Reads the header; `None` if there are fewer than 100 bytes.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        let word = |offset: usize| -> Option<u32> {
            Some(u32::from_be_bytes(*page.get(offset..)?.first_chunk()?))
        };
        Some(Self {
            has_magic: page.starts_with(MAGIC),
            page_size_field: u16::from_be_bytes(*page.get(16..)?.first_chunk()?),
            write_version: *page.get(18)?,
            read_version: *page.get(19)?,
            reserved_bytes: *page.get(20)?,
            payload_fractions: *page.get(21..)?.first_chunk()?,
            change_counter: word(24)?,
            page_count_field: word(28)?,
            first_trunk: word(32)?,
            free_page_count: word(36)?,
            schema_format: word(44)?,
            largest_root: word(52)?,
            text_encoding: word(56)?,
            incremental_vacuum: word(64)?,
            expansion_is_zero: page.get(72..92)?.iter().all(|byte| *byte == 0),
            version_valid_for: word(92)?,
            library_version: word(96)?,
        })
    }

    /// The page size, if it is a possible one.
    #[must_use]
    pub fn page_size(&self) -> Option<usize> {
        match usize::from(self.page_size_field) {
            1 => Some(PAGE_SIZE_MAX),
            size if is_page_size(size) && size < PAGE_SIZE_MAX => Some(size),
            _ => None,
        }
    }

    /// The number of pages in the database, where the counters say that the field is valid:
    /// libraries before 3.7.0 left an old number behind.
    #[must_use]
    pub fn page_count(&self) -> Option<u64> {
        let valid = self.page_count_field != 0 && self.change_counter == self.version_valid_for;
        valid.then_some(u64::from(self.page_count_field))
    }

    /// True if the database is in the write-ahead log mode.
    #[must_use]
    pub fn is_wal(&self) -> bool {
        self.read_version == VERSION_WAL
    }

    /// True if programs without the VFS of this project can read the database only.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.write_version == VERSION_GUARDED
    }

    /// True if the versions are those of a file format that is known.
    #[must_use]
    pub fn versions_are_known(&self) -> bool {
        let known = |version| (1..=VERSION_WAL).contains(&version);
        (known(self.write_version) || self.is_guarded()) && known(self.read_version)
    }

    /// The payload fractions are right, which no version ever changed.
    #[must_use]
    pub fn fractions_are_right(&self) -> bool {
        self.payload_fractions == PAYLOAD_FRACTIONS
    }

    /// What no SQLite ever writes into the fields of the first 32 bytes, which also an encryption
    /// that leaves them readable keeps true.
    #[must_use]
    pub fn geometry_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.has_magic {
            faults.push("the first 16 bytes are not those of a SQLite database".to_owned());
        }
        match self.page_size() {
            None => faults.push(format!("the page size {} is impossible", self.page_size_field)),
            Some(size) if size < USABLE_BYTES_MIN + usize::from(self.reserved_bytes) => {
                faults.push(format!(
                    "{} reserved bytes are too many for pages of {size} bytes",
                    self.reserved_bytes
                ));
            }
            Some(_) => {}
        }
        if !self.fractions_are_right() {
            let [max, min, leaf] = self.payload_fractions;
            faults.push(format!("the payload fractions are {max}, {min}, {leaf}, not 64, 32, 32"));
        }
        faults
    }

    /// What no SQLite ever writes into the other fields.
    #[must_use]
    pub fn field_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        // A newer one to write with makes the file read-only (the guard does so); one to read with
        // makes every SQLite say that it is no database.
        if self.read_version > VERSION_WAL {
            faults.push(format!("the version to read with is {}, not 1 or 2", self.read_version));
        }
        if self.schema_format > SCHEMA_FORMAT_MAX {
            faults.push(format!("the schema format is {}, not 1 to 4", self.schema_format));
        }
        if self.text_encoding > TEXT_ENCODING_MAX {
            faults.push(format!("the text encoding is {}, not 1 to 3", self.text_encoding));
        }
        if self.incremental_vacuum != 0 && self.largest_root == 0 {
            faults.push("incremental vacuum is on without auto-vacuum".to_owned());
        }
        if (self.first_trunk == 0) != (self.free_page_count == 0) || self.first_trunk == 1 {
            faults.push(format!(
                "the freelist begins at page {} and has {} pages",
                self.first_trunk, self.free_page_count
            ));
        }
        if let Some(pages) = self.page_count() {
            for (what, number) in [
                ("first free page", self.first_trunk),
                ("number of free pages", self.free_page_count),
                ("largest root page", self.largest_root),
            ] {
                if u64::from(number) > pages {
                    faults.push(format!("the {what} is {number} in a database of {pages} pages"));
                }
            }
        }
        faults
    }

    /// What SQLite does not write today, but what would do no harm if something else did.
    #[must_use]
    pub fn oddities(&self) -> Vec<String> {
        let mut oddities = Vec::new();
        if !self.expansion_is_zero {
            oddities.push("the bytes 72 to 91, kept for expansion, are not zero".to_owned());
        }
        oddities
    }

    /// The library that wrote last, as `3.40.1`, if it says so.
    #[must_use]
    pub fn library(&self) -> Option<String> {
        let version = self.library_version;
        let (major, minor, patch) = (version / 1_000_000, version / 1_000 % 1_000, version % 1_000);
        (major == 3).then(|| format!("{major}.{minor}.{patch}"))
    }
}

/// True for the sizes a SQLite page may have.
#[must_use]
pub fn is_page_size(size: usize) -> bool {
    size.is_power_of_two() && (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&size)
}

/// What is wrong with the frame of a b-tree page: its flag, its cell pointers, its free blocks.
///
/// Only what SQLite itself takes for corruption, so that no healthy b-tree page fails. Page 1 has
/// its b-tree header at byte 100, every other page at 0. The other kinds of page (overflow,
/// freelist, pointer map) have no header of this kind at all.
#[must_use]
pub fn btree_fault(page: &[u8], header_offset: usize, usable_bytes: usize) -> Option<&'static str> {
    const CUT: &str = "the page is cut";
    let Some(header) = page.get(header_offset..).and_then(|rest| rest.first_chunk::<12>()) else {
        return Some(CUT);
    };
    let [flag, free_a, free_b, cells_a, cells_b, content_a, content_b, _fragments, right @ ..] =
        *header;
    let is_leaf = match flag {
        INTERIOR_INDEX | INTERIOR_TABLE => false,
        LEAF_INDEX | LEAF_TABLE => true,
        _ => return Some("its first byte names no b-tree page"),
    };
    if !is_leaf && u32::from_be_bytes(right) < 2 {
        return Some("an interior page without a right child");
    }
    let cell_count = usize::from(u16::from_be_bytes([cells_a, cells_b]));
    let content = match usize::from(u16::from_be_bytes([content_a, content_b])) {
        0 => PAGE_SIZE_MAX,
        start => start,
    };
    let array_begin = header_offset.saturating_add(if is_leaf { 8 } else { 12 });
    let array_end = array_begin.saturating_add(cell_count.saturating_mul(CELL_POINTER_BYTES));
    if content < array_end || content > usable_bytes {
        return Some("its cell content lies outside of the page or over the cell pointers");
    }
    let cell_end_max = usable_bytes.saturating_sub(CELL_BYTES_MIN);
    let Some(pointers) = page.get(array_begin..array_end) else { return Some(CUT) };
    let (pointers, _) = pointers.as_chunks::<CELL_POINTER_BYTES>();
    for pointer in pointers {
        let cell = usize::from(u16::from_be_bytes(*pointer));
        if cell < content || cell > cell_end_max {
            return Some("a cell pointer leads out of the cell content");
        }
    }
    free_block_fault(page, usize::from(u16::from_be_bytes([free_a, free_b])), content, usable_bytes)
}

/// Follows the chain of free blocks: ascending, apart from each other, within the content.
fn free_block_fault(
    page: &[u8],
    first: usize,
    content: usize,
    usable_bytes: usize,
) -> Option<&'static str> {
    const FAULT: &str = "its chain of free blocks is broken";
    let mut block = first;
    let mut end_before = content;
    while block != 0 {
        let head = page.get(block..).and_then(|rest| rest.first_chunk::<4>());
        let Some([next_a, next_b, size_a, size_b]) = head.copied() else { return Some(FAULT) };
        let end = block.saturating_add(usize::from(u16::from_be_bytes([size_a, size_b])));
        if block < end_before || end < block.saturating_add(4) || end > usable_bytes {
            return Some(FAULT);
        }
        end_before = end;
        block = usize::from(u16::from_be_bytes([next_a, next_b]));
    }
    None
}

/// What is wrong with the cells of a sound table page: together with the free space they must fill
/// the page to the byte, as `PRAGMA integrity_check` has it.
///
/// Call only where [`btree_fault`] finds nothing.
#[must_use]
pub fn table_cells_fault(
    page: &[u8],
    header_offset: usize,
    usable_bytes: usize,
) -> Option<&'static str> {
    let filled = table_bytes_in_use(page, header_offset, usable_bytes);
    (filled != Some(usable_bytes)).then_some("its cells and free blocks do not fill it")
}

fn table_bytes_in_use(page: &[u8], header_offset: usize, usable_bytes: usize) -> Option<usize> {
    let header: &[u8; 8] = page.get(header_offset..)?.first_chunk()?;
    let [flag, free_a, free_b, cells_a, cells_b, content_a, content_b, fragments] = *header;
    let is_leaf = flag == LEAF_TABLE;
    let cell_count = usize::from(u16::from_be_bytes([cells_a, cells_b]));
    let content = match usize::from(u16::from_be_bytes([content_a, content_b])) {
        0 => PAGE_SIZE_MAX,
        start => start,
    };
    let array_begin = header_offset.checked_add(if is_leaf { 8 } else { 12 })?;
    let array_end = array_begin.checked_add(cell_count.checked_mul(CELL_POINTER_BYTES)?)?;
    // All in front of the cell content is either header or the gap that new cells grow into.
    let mut filled = content.checked_add(usize::from(fragments))?;
    let (pointers, _) = page.get(array_begin..array_end)?.as_chunks::<CELL_POINTER_BYTES>();
    for pointer in pointers {
        let cell = page.get(usize::from(u16::from_be_bytes(*pointer))..usable_bytes)?;
        let bytes = if is_leaf {
            leaf_cell_bytes(cell, usable_bytes)?
        } else {
            let (_key, key_bytes) = varint(cell.get(4..)?)?;
            key_bytes.checked_add(4)?
        };
        filled = filled.checked_add(bytes.max(CELL_BYTES_MIN))?;
    }
    let mut block = usize::from(u16::from_be_bytes([free_a, free_b]));
    while block != 0 {
        let [next_a, next_b, size_a, size_b] = *page.get(block..)?.first_chunk::<4>()?;
        filled = filled.checked_add(usize::from(u16::from_be_bytes([size_a, size_b])))?;
        let next = usize::from(u16::from_be_bytes([next_a, next_b]));
        if next != 0 && next <= block {
            return None;
        }
        block = next;
    }
    Some(filled)
}

/// The bytes of a table leaf's cell on its page; what does not fit there goes to overflow pages.
fn leaf_cell_bytes(cell: &[u8], usable_bytes: usize) -> Option<usize> {
    let (payload, payload_bytes) = varint(cell)?;
    let (_row, row_bytes) = varint(cell.get(payload_bytes..)?)?;
    let payload = usize::try_from(payload).ok()?;
    let local_max = usable_bytes.checked_sub(35)?;
    let local = if payload <= local_max {
        payload
    } else {
        let local_min =
            usable_bytes.checked_sub(12)?.checked_mul(32)?.checked_div(255)?.checked_sub(23)?;
        let rest = payload.checked_sub(local_min)?.checked_rem(usable_bytes.checked_sub(4)?)?;
        let local = local_min.checked_add(rest)?;
        // Four bytes name the first overflow page.
        (if local <= local_max { local } else { local_min }).checked_add(4)?
    };
    let bytes = local.checked_add(payload_bytes)?.checked_add(row_bytes)?;
    (bytes <= cell.len()).then_some(bytes)
}

/// A number of one to nine bytes, seven bits in each but the ninth, and how many bytes it has.
#[must_use]
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (byte, length) in bytes.iter().take(9).zip(1_usize..) {
        if length == 9 {
            return Some((value << 8 | u64::from(*byte), length));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, length));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_are_read_as_documented() {
        assert_eq!(varint(&[0x7f]), Some((0x7f, 1)));
        assert_eq!(varint(&[0x81, 0x00]), Some((0x80, 2)));
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0x80]), None);
    }

    #[test]
    fn page_sizes_are_powers_of_two_with_1_for_the_largest() {
        let sizes: Vec<usize> = (0..=70_000).filter(|size| is_page_size(*size)).collect();
        assert_eq!(sizes, [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536]);
        let mut head = [0; HEADER_BYTES];
        for (field, size) in [(1_u16, Some(65_536)), (512, Some(512)), (0, None), (513, None)] {
            head[16..18].copy_from_slice(&field.to_be_bytes());
            assert_eq!(DatabaseHeader::parse(&head).unwrap().page_size(), size);
        }
    }

    /// The count is only valid if the library that wrote last knew the field.
    #[test]
    fn page_count_of_an_old_library_is_not_believed() {
        let mut head = [0; HEADER_BYTES];
        head[31] = 9;
        assert_eq!(DatabaseHeader::parse(&head).unwrap().page_count(), Some(9));
        head[27] = 1;
        assert_eq!(DatabaseHeader::parse(&head).unwrap().page_count(), None);
    }

    /// Every page of a real database that is a b-tree page is taken for one, and its cells fill it.
    #[test]
    fn real_pages_have_sound_frames() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/sqlite/3.40.1");
        for page_size in [512, 4096] {
            let file = std::fs::read(format!("{root}/cksumvfs-{page_size}.db")).unwrap();
            let usable = page_size - 8;
            let mut tables = 0;
            for (index, page) in file.chunks(page_size).enumerate() {
                let offset = if index == 0 { HEADER_BYTES } else { 0 };
                if matches!(page[offset], 5 | 13) {
                    assert_eq!(btree_fault(page, offset, usable), None, "page {}", index + 1);
                    assert_eq!(table_cells_fault(page, offset, usable), None, "page {}", index + 1);
                    tables += 1;
                }
            }
            assert!(tables > 3);
        }
    }

    #[test]
    fn hostile_pages_are_faults_and_nothing_worse() {
        let mut state = 1_u32;
        for round in 0..20_000_usize {
            let mut page = [0_u8; 512];
            for byte in &mut page {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = if state >> 30 == 0 { state.to_be_bytes()[1] } else { 0 };
            }
            page[0] = [2, 5, 10, 13][round % 4];
            let _ = btree_fault(&page, 0, 504);
            let _ = table_cells_fault(&page[..round % 513], 0, 504);
        }
    }
}
