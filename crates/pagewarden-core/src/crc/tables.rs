//! Eight bytes at once, each through a table of its own: what every processor can.

use super::{Check, step};

const WORD_BYTES: usize = 8;

/// What each byte does to the state: table `n` when `n` bytes of zero follow it.
type Tables = [[u64; 256]; WORD_BYTES];

#[allow(clippy::indexing_slicing, reason = "made by the compiler, which looks")]
const fn tables<C: Check>() -> Tables {
    let mut tables = [[0; 256]; WORD_BYTES];
    let mut byte: usize = 0;
    while byte < 256 {
        let mut state = byte as u64;
        let mut zeros: usize = 0;
        while zeros < WORD_BYTES {
            let mut bit: u32 = 0;
            while bit < 8 {
                state = step::<C>(state);
                bit = bit.wrapping_add(1);
            }
            tables[zeros][byte] = state;
            zeros = zeros.wrapping_add(1);
        }
        byte = byte.wrapping_add(1);
    }
    tables
}

/// The state behind `bytes`.
pub(super) fn advance<C: Check>(state: u64, bytes: &[u8]) -> u64 {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = const { &tables::<C>() };
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let state = words.iter().fold(state, |state, word| {
        let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(*word) ^ state).to_le_bytes();
        of(t7, a)
            ^ of(t6, b)
            ^ of(t5, c)
            ^ of(t4, d)
            ^ of(t3, e)
            ^ of(t2, f)
            ^ of(t1, g)
            ^ of(t0, h)
    });
    rest.iter().fold(state, |state, byte| {
        let [lowest, ..] = state.to_le_bytes();
        (state >> 8) ^ of(t0, lowest ^ byte)
    })
}

fn of(table: &[u64; 256], byte: u8) -> u64 {
    #[allow(clippy::indexing_slicing, reason = "a byte is less than 256")]
    table[usize::from(byte)]
}
