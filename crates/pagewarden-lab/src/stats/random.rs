//! Chance that comes out the same for the same seed, everywhere and for ever:
//! a schedule and an interval can be repeated from the seed in the samples.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, 2014): small, and good enough for orders and resamples.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Begins with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end`, without `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The high half of the product: Lemire's method. Its bias is below
        // 2^-32 for every length here.
        let end = u128::try_from(end).unwrap_or(0);
        usize::try_from((u128::from(self.bits()) * end) >> 64).unwrap_or(0)
    }

    /// A number from 0 to 1, without either.
    pub fn uniform(&mut self) -> f64 {
        // The 53 bits that a double holds, moved off zero.
        ((self.bits() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
    }

    /// A standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Puts `elements` into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, elements: &mut [T]) {
        for end in (2..=elements.len()).rev() {
            let chosen = self.below(end);
            elements.swap(end - 1, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's published first outputs for the seed 1234567.
    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn every_order_comes_up_about_equally_often() {
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            *seen.entry(order).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|count| (880..1120).contains(count)), "{seen:?}");
    }
}
