//! Ways in which pages go bad, for simulations.

use super::protection::Protection;
use crate::stats::random::Random;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This number of flipped bits of one page, anywhere on it.
    Bits(u32),
    /// An aligned stretch of random bytes; several pages where it is longer than
    /// one.
    Noise(usize),
    /// The first sectors of a new version, the rest of the one before.
    Torn,
    /// Another sound page in this one's place.
    Misplaced,
    /// Zeroes.
    Zeroed,
    /// The version before, sound, in the place of the new one.
    LostWrite,
    /// A flipped bit of a page, and then all that protects it, made for just these bytes: a fault
    /// of memory or of a program before the page was written.
    Stamped,
}

/// What can be written atomically at worst: where pages tear.
pub const SECTOR_BYTES: usize = 512;
/// Tries at a fault that changes something; then it is given up.
pub const TRIES_MAX: u32 = 100;

/// Sound pages, without a protection on them yet.
#[derive(Debug)]
pub struct Stock {
    pages: Vec<Vec<u8>>,
}

/// What came of one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The sum, or the marks, of a page did not fit.
    pub by_sum: bool,
    /// The engine would have noticed, by whatever it looks at.
    pub noticed: bool,
}

impl Stock {
    /// Cuts bytes into pages; those without content are left out. `None` if
    /// fewer than two remain.
    #[must_use]
    pub fn new(bytes: &[u8], page_bytes: usize) -> Option<Self> {
        let has_content = |page: &&[u8]| page.iter().any(|byte| *byte != 0);
        let pages: Vec<Vec<u8>> =
            bytes.chunks_exact(page_bytes).filter(has_content).map(<[u8]>::to_vec).collect();
        (pages.len() >= 2).then_some(Self { pages })
    }

    /// How many pages there are.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    fn any(&self, random: &mut Random) -> (&[u8], u32) {
        let index = random.below(self.pages.len());
        let page = self.pages.get(index).map(Vec::as_slice).unwrap_or_default();
        (page, u32::try_from(index).unwrap_or_default())
    }

    fn written(
        &self,
        protection: &Protection,
        generation: u32,
        random: &mut Random,
    ) -> (Vec<u8>, u32) {
        let (page, number) = self.any(random);
        let mut page = page.to_vec();
        (protection.write)(&mut page, number, generation);
        (page, number)
    }

    /// A page before and after a change: a few stretches take the bytes that
    /// another page has in that place.
    fn changed(&self, protection: &Protection, random: &mut Random) -> (Vec<u8>, Vec<u8>, u32) {
        let (plain, number) = self.any(random);
        let mut old = plain.to_vec();
        let mut new = plain.to_vec();
        for _ in 0..=random.below(3) {
            let (other, _) = self.any(random);
            let length = 32 + random.below(168);
            let begin = random.below(protection.page_bytes.saturating_sub(length));
            let stretch = begin..begin + length;
            if let (Some(place), Some(bytes)) = (new.get_mut(stretch.clone()), other.get(stretch)) {
                place.copy_from_slice(bytes);
            }
        }
        let generation = u32::try_from(random.below(1 << 20)).unwrap_or_default();
        (protection.write)(&mut old, number, generation);
        (protection.write)(&mut new, number, generation + 1);
        (old, new, number)
    }
}

impl Fault {
    /// Lets the fault happen to a page of the stock under a protection. `None`
    /// if it would have changed nothing, which is then no fault.
    #[must_use]
    pub fn happen(
        self,
        stock: &Stock,
        protection: &Protection,
        random: &mut Random,
    ) -> Option<Outcome> {
        (0..TRIES_MAX).find_map(|_| self.try_once(stock, protection, random))
    }

    fn try_once(
        self,
        stock: &Stock,
        protection: &Protection,
        random: &mut Random,
    ) -> Option<Outcome> {
        match self {
            Self::Bits(count) => {
                let (sound, number) = stock.written(protection, 1, random);
                let mut page = sound.clone();
                for _ in 0..count {
                    let bit = random.below(page.len() * 8);
                    if let Some(byte) = page.get_mut(bit / 8) {
                        *byte ^= 1 << (bit % 8);
                    }
                }
                // Two flips of one bit are none.
                (page != sound).then(|| look(protection, &page, number))
            }
            Self::Noise(bytes) => noise(bytes, stock, protection, random),
            Self::Torn => {
                let (old, new, number) = stock.changed(protection, random);
                let sectors = protection.page_bytes / SECTOR_BYTES;
                let kept = (1 + random.below(sectors.saturating_sub(1))) * SECTOR_BYTES;
                let mut page = old.clone();
                if let (Some(place), Some(bytes)) = (page.get_mut(..kept), new.get(..kept)) {
                    place.copy_from_slice(bytes);
                }
                (page != old && page != new).then(|| look(protection, &page, number))
            }
            Self::Misplaced => {
                let (page, number) = stock.written(protection, 1, random);
                let (_, elsewhere) = stock.any(random);
                (elsewhere != number).then(|| look(protection, &page, elsewhere))
            }
            Self::Zeroed => {
                let (_, number) = stock.any(random);
                Some(look(protection, &vec![0; protection.page_bytes], number))
            }
            Self::Stamped => {
                let (plain, number) = stock.any(random);
                let mut page = plain.to_vec();
                let bit = random.below(page.len() * 8);
                *page.get_mut(bit / 8)? ^= 1 << (bit % 8);
                let mut sound = plain.to_vec();
                (protection.write)(&mut sound, number, 1);
                (protection.write)(&mut page, number, 1);
                // A bit that is a part of the protection was made right again.
                (page != sound).then(|| look(protection, &page, number))
            }
            Self::LostWrite => {
                let (old, new, number) = stock.changed(protection, random);
                (old != new).then(|| look(protection, &old, number))
            }
        }
    }
}

/// Noise over a part of one page, or over as many pages as it covers.
fn noise(
    bytes: usize,
    stock: &Stock,
    protection: &Protection,
    random: &mut Random,
) -> Option<Outcome> {
    let pages = bytes.div_ceil(protection.page_bytes);
    let length = bytes.min(protection.page_bytes);
    let mut outcome = Outcome { by_sum: false, noticed: false };
    for _ in 0..pages {
        let (mut page, number) = stock.written(protection, 1, random);
        let begin = random.below(protection.page_bytes / length) * length;
        for word in page.get_mut(begin..begin + length)?.as_chunks_mut::<8>().0 {
            *word = random.bits().to_le_bytes();
        }
        let one = look(protection, &page, number);
        outcome.by_sum |= one.by_sum;
        outcome.noticed |= one.noticed;
    }
    Some(outcome)
}

fn look(protection: &Protection, page: &[u8], number: u32) -> Outcome {
    Outcome {
        by_sum: !(protection.sum_fits)(page, number),
        noticed: !(protection.is_taken)(page, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::protection::PROTECTIONS;

    /// Pages of noise: theory says what is noticed on these.
    fn share(name: &str, fault: Fault, tries: u32) -> (f64, f64) {
        let protection = PROTECTIONS.iter().find(|one| one.name == name).unwrap();
        let mut random = Random::new(42);
        let mut bytes = vec![0; 20 * protection.page_bytes];
        bytes.fill_with(|| random.bits().to_le_bytes()[0]);
        let stock = Stock::new(&bytes, protection.page_bytes).unwrap();
        let mut seen = (0.0, 0.0);
        for _ in 0..tries {
            let outcome = fault.happen(&stock, protection, &mut random).unwrap();
            seen.0 += f64::from(u8::from(outcome.by_sum)) / f64::from(tries);
            seen.1 += f64::from(u8::from(outcome.noticed)) / f64::from(tries);
        }
        seen
    }

    #[test]
    fn shares_are_those_of_theory() {
        // A sector of noise keeps the two bits of its last byte in a quarter of
        // cases; the first sector has none, but the pattern itself.
        let (by_sum, _) = share("torn", Fault::Noise(512), 4000);
        assert!((0.70..0.80).contains(&by_sum), "{by_sum}");
        // Two bits of one column, whose places after rotation agree, cancel out:
        // one in 32, except that the field itself is not among them.
        let (by_sum, _) = share("checksum", Fault::Bits(2), 4000);
        assert!((0.955..0.98).contains(&by_sum), "{by_sum}");
        for (fault, expected) in [
            (Fault::Bits(1), 1.0),
            (Fault::Noise(4096), 1.0),
            (Fault::Torn, 1.0),
            (Fault::LostWrite, 0.0),
            (Fault::Stamped, 0.0),
        ] {
            let (by_sum, _) = share("full_crc32", fault, 300);
            assert!((by_sum - expected).abs() < 1e-9, "{fault:?}: {by_sum}");
        }
    }

    #[test]
    fn page_number_is_what_finds_a_misplaced_page() {
        assert_eq!(share("cksumvfs", Fault::Misplaced, 100), (0.0, 0.0));
        assert!(share("checksum", Fault::Misplaced, 100).0.abs() < 1e-9);
        assert!((share("checksum", Fault::Misplaced, 100).1 - 1.0).abs() < 1e-9);
        assert!((share("postgres", Fault::Misplaced, 100).0 - 1.0).abs() < 1e-9);
    }
}
