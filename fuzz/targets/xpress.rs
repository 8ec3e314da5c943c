//! Blocks of LZ77 with Huffman codes: arbitrary bytes, and code lengths made to
//! fill their space.
//!
//! The first byte of the input says whether they are made to, the next two how
//! much output is wanted.

use pagewarden::formats::sqlserver::xpress::{
    Decoder, OUTPUT_BYTES_MAX, TABLE_BYTES, XpressError, begins_with_code_lengths,
};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some(([mode, low, high], rest)) = input.split_first_chunk::<3>() else { return };
    let mut bytes = rest.to_vec();
    if mode & 1 != 0 && bytes.len() >= TABLE_BYTES {
        fill(&mut bytes[..TABLE_BYTES]);
        assert!(begins_with_code_lengths(&bytes));
    }
    let size = usize::from(u16::from_le_bytes([*low, *high])) + usize::from(mode >> 7);
    let mut decoder = Decoder::new();
    let mut output = vec![0; size];
    let decoded = decoder.decode(&bytes, &mut output);
    assert!(decoded != Err(XpressError::CodeLengths) || !begins_with_code_lengths(&bytes));
    if decoded.is_ok() && size < OUTPUT_BYTES_MAX {
        // Its tables are made anew each time, and its end is its end.
        let mut again = vec![0xFF; size];
        assert!(decoder.decode(&bytes, &mut again).is_ok());
        assert!(output == again);
        let mut longer = vec![0; size + 1];
        assert_eq!(decoder.decode_to_end(&bytes, &mut longer, |at| at == size), Ok(size));
        bytes.push(0);
        assert!(decoder.decode(&bytes, &mut output).is_err());
    }
}

/// Shortens and lengthens codes until they fill the space.
fn fill(lengths: &mut [u8]) {
    let mut bits: Vec<u8> = lengths.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect();
    let space = |bits: &u8| if *bits == 0 { 0 } else { 1_u32 << (15 - bits) };
    let mut left = 1_u32 << 15;
    for bits in &mut bits {
        if space(bits) > left {
            *bits = 0;
        }
        left -= space(bits);
    }
    // What is left is shared out among those that have no code, largest first.
    let mut free = bits.iter_mut().rev().filter(|bits| **bits == 0);
    while left > 0 {
        let length = 15 - left.ilog2();
        match free.next() {
            Some(bits) if length > 0 => {
                *bits = u8::try_from(length).expect("at most 15");
                left -= 1 << (15 - length);
            }
            // A whole space for one code is none: halve it.
            Some(bits) => {
                *bits = 1;
                left -= 1 << 14;
            }
            None => break,
        }
    }
    if left == 0 {
        for (byte, pair) in lengths.iter_mut().zip(bits.chunks(2)) {
            *byte = pair[0] | pair[1] << 4;
        }
    } else {
        lengths.fill(0x99);
    }
}
