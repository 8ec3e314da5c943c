//! Big-endian fields: InnoDB and Aria write the high byte first, everywhere.

/// The two bytes at `offset`; `None` past the end.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}

/// The four bytes at `offset`; `None` past the end.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|field| u32::from_be_bytes(*field))
}

/// The eight bytes at `offset`; `None` past the end.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|field| u64::from_be_bytes(*field))
}
