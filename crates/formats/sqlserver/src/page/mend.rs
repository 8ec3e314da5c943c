//! Mending a page by the one flipped bit that explains what is wrong with it.
//!
//! The checksum is linear: a mismatch that one bit explains has 2,048 explanations. So a bit is turned
//! back only where a finding is called `bit_flip`: another rule of the format is broken by that very
//! bit, or the page's own identity names it.

use crate::checksum::{Page, checksum, flipped_column, stored};
use crate::page::header::{Header, Tested, tested};
use crate::page::system::has_its_record;
use crate::page::{SqlServerPages, TORN_FLAG, flip};
use pagewarden_core::verdict::{PageNo, Protection};

/// A page whose flipped bit was turned back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// The page, whose checksum fits.
    pub page: Page,
    /// The byte of the page that the bit is in.
    pub byte: usize,
    /// The bit, from 0 to 7.
    pub bit: u32,
}

impl SqlServerPages {
    /// The page with the one bit turned back that explains what is wrong with it; `None` where no single
    /// bit is known to. What comes back is the page of this place, and its 32-bit checksum fits.
    #[must_use]
    pub fn mended(&self, number: PageNo, page: &Page) -> Option<Mended> {
        let header = Header::parse(page);
        let (byte, bit) = if !header.is_of(self.file, number.0) {
            self.flipped_identity(number, page)?
        } else {
            match header.protection() {
                Some(Protection::Checksum) => {
                    let column = flipped_column(stored(page), checksum(page))?;
                    let (byte, bit, _) = self.second_witness(number, page, column)?;
                    (byte, bit)
                }
                None => TORN_FLAG,
                _ => return None,
            }
        };
        let mut mended = *page;
        flip(&mut mended, (byte, bit));
        let header = Header::parse(&mended);
        let is_sound = header.is_of(self.file, number.0)
            && header.protection() == Some(Protection::Checksum)
            && tested(&mended, &header) == Tested::Sound
            && has_its_record(&mended, &header);
        is_sound.then_some(Mended { page: mended, byte, bit })
    }
}
