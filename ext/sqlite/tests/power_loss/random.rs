//! Numbers that come out the same every time.

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(u64::try_from(end).expect("small"))).expect("small")
    }
}
