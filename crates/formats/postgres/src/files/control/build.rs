//! Constants of the build in a control file: which ones exclude one another, and which
//! only few servers have.

use super::{Control, FLOAT_FORMAT, LAYOUTS, crc_matches, u32_at, u64_at};

/// Constants that were compiled into the server, of 9.6 to 18. It opens no cluster with others.
///
/// ```text
/// offset  size  field, counted from blcksz
///     -8     8  floatFormat
///     16     4  nameDataLen
///     20     4  indexMaxKeys
///     24     4  toast_max_chunk_size, by the page size
///     28     4  loblksize, by the page size
///     32     1  float8ByVal, from 13 on: what 64-bit machines do
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    float_format: u64,
    name_bytes: u32,
    index_keys: u32,
    toast_chunk_bytes: u32,
    large_object_bytes: u32,
    float8_by_value: Option<u8>,
}

impl Build {
    /// `None` for a file that cannot be believed, and for a version whose layout is not
    /// certain.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let version = u32_at(bytes, 8)?;
        let layout = LAYOUTS.iter().find(|layout| layout.version == version)?;
        let at = |offset: usize| layout.block_size.checked_add(offset);
        let build = Self {
            float_format: u64_at(bytes, layout.block_size.checked_sub(8)?)?,
            name_bytes: u32_at(bytes, at(16)?)?,
            index_keys: u32_at(bytes, at(20)?)?,
            toast_chunk_bytes: u32_at(bytes, at(24)?)?,
            large_object_bytes: u32_at(bytes, at(28)?)?,
            float8_by_value: bytes.get(at(32)?).copied().filter(|_| version >= 1300),
        };
        crc_matches(bytes, layout.crc).then_some(build)
    }

    /// What no build has: what follows from the page size and from the machine.
    pub fn impossible(&self, control: &Control) -> Vec<String> {
        // `EXTERN_TUPLE_MAX_SIZE` and `TOAST_MAX_CHUNK_SIZE` of `src/include/access/heaptoast.h`:
        // four rows a page, less the header of a row, two columns of 4 bytes and a length.
        let (page, align) = (control.page_size, usize::from(control.max_align).max(4));
        let head = (24 + 4 * 4_usize).next_multiple_of(align);
        let row = page.saturating_sub(head) / 4;
        let chunk = (row - row % align).saturating_sub(23_usize.next_multiple_of(align) + 12);
        let mut wrong = Vec::new();
        let mut is = |what: &str, found: u32, expected: usize| {
            if usize::try_from(found).ok() != Some(expected) {
                wrong
                    .push(format!("{what} is {found}, and follows from the page size: {expected}"));
            }
        };
        is("the length of parts of long values", self.toast_chunk_bytes, chunk);
        is("the length of parts of large objects", self.large_object_bytes, page / 4);
        if self.float_format != FLOAT_FORMAT.to_bits() {
            wrong.push("it was written on a machine with other floating-point numbers".to_owned());
        }
        if control.max_align == 4 && self.float8_by_value == Some(1) {
            wrong.push("it says both that the machine has 32 bits and that it has 64".to_owned());
        }
        wrong
    }

    /// What differs from the packages that are distributed for 64-bit machines.
    pub fn unusual(&self, control: &Control) -> Vec<String> {
        const SEGMENT_BYTES: u64 = 1 << 30;
        let segment = u64::from(control.segment_pages).saturating_mul(control.page_size as u64);
        let all = [
            (self.name_bytes != 64, format!("names of {} bytes", self.name_bytes)),
            (self.index_keys != 32, format!("indexes of {} columns", self.index_keys)),
            (segment != SEGMENT_BYTES, format!("segments of {segment} bytes")),
            (control.max_align != 8, format!("an alignment of {}", control.max_align)),
            (self.float8_by_value == Some(0), "values of 8 bytes by reference".to_owned()),
        ];
        all.into_iter().filter(|(is_unusual, _)| *is_unusual).map(|(_, text)| text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden_core::crc::crc32c;

    #[test]
    fn control_files_of_releases_are_usual_and_wrong_constants_are_impossible() {
        let golden = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../fixtures/postgres/15/control.on.shutdown"
        );
        let sound = std::fs::read(golden).unwrap();
        let judged = |bytes: &[u8]| {
            let (build, control) = (Build::read(bytes).unwrap(), Control::parse(bytes).unwrap());
            (build.impossible(&control).len(), build.unusual(&control).len())
        };
        assert_eq!(judged(&sound), (0, 0));
        // maxAlign, floatFormat, RELSEG_SIZE, nameDataLen, indexMaxKeys, the lengths of parts of
        // long values and of large objects, float8ByVal.
        let changes = [
            (204, 4, (2, 1)),
            (208, 9, (1, 0)),
            (222, 1, (0, 1)),
            (232, 32, (0, 1)),
            (236, 16, (0, 1)),
            (240, 9, (1, 0)),
            (244, 9, (1, 0)),
            (248, 0, (0, 1)),
        ];
        for (at, value, expected) in changes {
            let mut bytes = sound.clone();
            bytes[at] = value;
            let crc = crc32c(&bytes[..288]).to_le_bytes();
            bytes[288..292].copy_from_slice(&crc);
            assert_eq!(judged(&bytes), expected, "byte {at}");
        }
    }
}
