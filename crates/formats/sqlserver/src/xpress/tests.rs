//! Known blocks, round trips through an encoder made for this, and damage.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use proptest::prelude::*;

use super::*;

/// What a block is made of, before it is coded.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Literal(u8),
    Match { distance: usize, length: usize },
}

impl Item {
    fn symbol(&self) -> usize {
        match self {
            Self::Literal(byte) => usize::from(*byte),
            Self::Match { distance, length } => {
                256 + 16 * distance.ilog2() as usize + (length - LENGTH_MIN).min(15)
            }
        }
    }
}

/// The greedy matches of a simple hash of three bytes.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Item> {
    let mut last = std::collections::HashMap::new();
    let mut items = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let key = bytes.get(at..at + 3);
        let found = key.and_then(|key| last.insert(key, at));
        let length = found.map_or(0, |from: usize| {
            bytes[at..].iter().zip(&bytes[from..]).take_while(|(a, b)| a == b).count()
        });
        if length >= 3 {
            items.push(Item::Match { distance: at - found.unwrap(), length });
            at += length;
        } else {
            items.push(Item::Literal(bytes[at]));
            at += 1;
        }
    }
    items
}

/// Codes as long as the symbols are rare, by sharing out the code space: not the
/// best ones, but of all lengths.
fn code_lengths(items: &[Item]) -> [u32; SYMBOLS] {
    let mut counts = [0_u32; SYMBOLS];
    counts[usize::from(END)] = 1;
    for item in items {
        counts[item.symbol()] += 1;
    }
    if counts.iter().filter(|count| **count > 0).count() == 1 {
        counts[0] += 1;
    }
    let total: u32 = counts.iter().sum();
    let mut lengths = counts.map(|count| match count {
        0 => 0,
        count => (total.div_ceil(count)).next_power_of_two().ilog2().clamp(1, CODE_BITS_MAX),
    });
    let space = |lengths: &[u32; SYMBOLS]| -> i64 {
        lengths.iter().filter(|bits| **bits > 0).map(|bits| i64::from(CODE_SPACE >> bits)).sum()
    };
    // Too full: lengthen the longest that can be; too empty: shorten what fits.
    while space(&lengths) > i64::from(CODE_SPACE) {
        let longest = lengths.iter_mut().filter(|bits| (1..15).contains(*bits)).max();
        *longest.unwrap() += 1;
    }
    while space(&lengths) < i64::from(CODE_SPACE) {
        let free = i64::from(CODE_SPACE) - space(&lengths);
        let fits = |bits: &&mut u32| **bits > 1 && i64::from(CODE_SPACE >> **bits) <= free;
        *lengths.iter_mut().filter(fits).min().unwrap() -= 1;
    }
    lengths
}

/// Codes a block, as [MS-XCA] 2.1.4.3 lays it out: two words are always ahead.
pub(crate) fn encode(items: &[Item]) -> Vec<u8> {
    let lengths = code_lengths(items);
    let mut codes = [0_u32; SYMBOLS];
    let mut next = 0;
    for bits in 1..=CODE_BITS_MAX {
        for symbol in (0..SYMBOLS).filter(|symbol| lengths[*symbol] == bits) {
            codes[symbol] = next >> (CODE_BITS_MAX - bits);
            next += CODE_SPACE >> bits;
        }
    }
    assert_eq!(next, CODE_SPACE);
    let mut bytes: Vec<u8> =
        lengths.chunks(2).map(|pair| u8::try_from(pair[0] | pair[1] << 4).unwrap()).collect();
    let mut places = [bytes.len(), bytes.len() + 2];
    bytes.extend([0; 4]);
    let (mut register, mut free) = (0_u64, 16_u32);
    let mut put = |bytes: &mut Vec<u8>, value: u32, bits: u32| {
        register = register << bits | u64::from(value);
        if free >= bits {
            free -= bits;
            return;
        }
        let word = u16::try_from(register >> (bits - free) & 0xFFFF).unwrap();
        bytes[places[0]..places[0] + 2].copy_from_slice(&word.to_le_bytes());
        free += 16 - bits;
        places = [places[1], bytes.len()];
        bytes.extend([0; 2]);
    };
    for item in items {
        let symbol = item.symbol();
        put(&mut bytes, codes[symbol], lengths[symbol]);
        if let Item::Match { distance, length } = item {
            let rest = length - LENGTH_MIN;
            if rest >= 15 {
                match u8::try_from(rest - 15) {
                    Ok(byte) if byte < 255 => bytes.push(byte),
                    _ => {
                        bytes.push(255);
                        match u16::try_from(rest) {
                            Ok(word) => bytes.extend(word.to_le_bytes()),
                            Err(_) => {
                                bytes.extend([0; 2]);
                                bytes.extend(u32::try_from(rest).unwrap().to_le_bytes());
                            }
                        }
                    }
                }
            }
            let bits = distance.ilog2();
            put(&mut bytes, u32::try_from(distance - (1 << bits)).unwrap(), bits);
        }
    }
    put(&mut bytes, codes[usize::from(END)], lengths[usize::from(END)]);
    let word = u16::try_from(register << free & 0xFFFF).unwrap();
    bytes[places[0]..places[0] + 2].copy_from_slice(&word.to_le_bytes());
    bytes
}

fn decoded(block: &[u8], size: usize) -> Result<Vec<u8>, XpressError> {
    let mut output = vec![0xAA; size];
    Decoder::new().decode(block, &mut output)?;
    Ok(output)
}

fn size_found(block: &[u8], may_end: impl Fn(usize) -> bool) -> Result<usize, XpressError> {
    Decoder::new().decode_to_end(block, &mut [0xAA; OUTPUT_BYTES_MAX], may_end)
}

/// A block with codes of these symbols and the length 0 for all others.
fn block(codes: &[(usize, u8)], rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; TABLE_BYTES];
    for (symbol, bits) in codes {
        bytes[symbol / 2] |= bits << (4 * (symbol % 2));
    }
    bytes.extend(rest);
    bytes
}

/// [MS-XCA] 3.2, the first example: all literals.
fn alphabet() -> Vec<u8> {
    let mut codes: Vec<_> = (usize::from(b'a')..=usize::from(b'v')).map(|s| (s, 5)).collect();
    codes.extend((usize::from(b'w')..=usize::from(b'z')).chain([256]).map(|symbol| (symbol, 4)));
    let words = [
        0xD8, 0x52, 0x3E, 0xD7, 0x94, 0x11, 0x5B, 0xE9, 0x19, 0x5F, 0xF9, 0xD6, 0x7C, 0xDF, 0x8D,
        0x04, 0, 0, 0, 0,
    ];
    block(&codes, &words)
}

/// [MS-XCA] 3.2, the second example: a match that runs into itself, with a
/// length of two bytes.
fn abc() -> Vec<u8> {
    let codes = [(97, 3), (98, 3), (99, 2), (256, 2), (287, 2)];
    block(&codes, &[0xA8, 0xDC, 0x00, 0x00, 0xFF, 0x26, 0x01])
}

#[test]
fn examples_of_the_document_are_expanded() {
    assert_eq!(decoded(&alphabet(), 26).unwrap(), b"abcdefghijklmnopqrstuvwxyz");
    assert_eq!(decoded(&abc(), 300).unwrap(), b"abc".repeat(100));
}

#[test]
fn wrong_sizes_are_told() {
    assert!(decoded(&alphabet(), 27).is_err());
    assert_eq!(decoded(&alphabet(), 25), Err(XpressError::Long));
    assert_eq!(decoded(&abc(), 299), Err(XpressError::Length));
    assert_eq!(decoded(&abc(), 0), Err(XpressError::Long));
    assert_eq!(decoded(&abc(), OUTPUT_BYTES_MAX + 1), Err(XpressError::OutputSize));
    assert_eq!(decoded(&[], 0), Err(XpressError::CodeLengths));
    assert_eq!(decoded(&abc()[..255], 300), Err(XpressError::CodeLengths));
    assert_eq!(decoded(&abc()[..259], 300), Err(XpressError::Short));
    let mut longer = alphabet();
    longer.push(0);
    assert_eq!(decoded(&longer, 26), Err(XpressError::Long));
}

#[test]
fn the_size_is_found_from_the_end_mark() {
    assert_eq!(size_found(&alphabet(), |_| true), Ok(26));
    assert_eq!(size_found(&abc(), |_| true), Ok(300));
    assert!(size_found(&abc(), |size| size == 299).is_err());
    // The last match has the end mark's symbol, and the last word was read.
    let run = encode(&parse(&[7; 4]));
    assert_eq!(size_found(&run, |_| true), Ok(1));
    assert_eq!(size_found(&run, |size| size % 2 == 0), Ok(4));
}

#[test]
fn code_space_must_be_filled_and_not_more() {
    for codes in [&[(97_usize, 1_u8)][..], &[(97, 1), (98, 1), (99, 1)], &[(1, 1), (2, 2)], &[]] {
        assert_eq!(decoded(&block(codes, &[0; 8]), 1), Err(XpressError::CodeLengths), "{codes:?}");
    }
}

#[test]
fn impossible_matches_are_told() {
    // Symbol 0 has the code 0, 256 + 16 + 15 the code 1; a distance of 3.
    let match_at_once = block(&[(0, 1), (287, 1)], &[0, 0xC0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(decoded(&match_at_once, 100), Err(XpressError::Distance));
    // A length of 14 in the form that begins with 15, in two bytes and in four.
    for length in [&[255, 14, 0][..], &[255, 0, 0, 14, 0, 0, 0], &[255, 0, 0, 255, 255, 255, 255]] {
        let words = [&[0, 0x18, 0, 0], length, &[0; 8]].concat();
        let refused = decoded(&block(&[(0, 1), (287, 1)], &words), 100);
        assert_eq!(refused, Err(XpressError::Length), "{length:?}");
    }
}

fn round_trip(bytes: &[u8]) {
    let block = encode(&parse(bytes));
    assert!(decoded(&block, bytes.len()).unwrap() == bytes);
    assert_eq!(size_found(&block, |size| size == bytes.len()), Ok(bytes.len()));
    if bytes.len() < OUTPUT_BYTES_MAX {
        assert!(decoded(&block, bytes.len() + 1).is_err());
    }
}

#[test]
fn blocks_of_all_kinds_come_back() {
    round_trip(&[]);
    round_trip(b"x");
    round_trip(&[7; OUTPUT_BYTES_MAX]);
    round_trip(&(0..=255).cycle().take(OUTPUT_BYTES_MAX).collect::<Vec<u8>>());
    // Codes of all lengths up to the longest.
    let skewed: Vec<u8> =
        (0_u8..16).flat_map(|byte| vec![byte; 1 << (15 - byte)]).take(OUTPUT_BYTES_MAX).collect();
    let literals: Vec<_> = skewed.iter().map(|byte| Item::Literal(*byte)).collect();
    assert!(decoded(&encode(&literals), skewed.len()).unwrap() == skewed);
    assert_eq!(code_lengths(&literals).iter().max(), Some(&15));
}

#[test]
fn long_matches_have_a_length_of_four_bytes() {
    // Only a length of 2^16 and more needs four; two suffice to the end of a
    // block. The decoder takes both.
    let mut block = abc();
    block.splice(261.., [0, 0, 0x26, 1, 0, 0]);
    block.insert(260, 0xFF);
    block.remove(261);
    assert_eq!(decoded(&block, 300).unwrap(), b"abc".repeat(100));
}

proptest! {
    #[test]
    fn what_is_coded_comes_back(
        pieces in prop::collection::vec((any::<u8>(), 1_usize..600, any::<bool>()), 0..80),
    ) {
        let mut bytes = Vec::new();
        for (seed, count, is_run) in pieces {
            let step = if is_run { 0 } else { seed | 1 };
            bytes.extend((0..count).map(|index| seed.wrapping_add(step.wrapping_mul(index as u8))));
        }
        bytes.truncate(OUTPUT_BYTES_MAX);
        round_trip(&bytes);
    }

    #[test]
    fn damage_does_no_harm(at in 0_usize..2000, bit in 0_u8..8, cut in 0_usize..2000) {
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| (number * number / 977) as u8).collect();
        let mut block = encode(&parse(&bytes));
        let at = at % block.len();
        block[at] ^= 1 << bit;
        let _ = decoded(&block, bytes.len());
        block[at] ^= 1 << bit;
        let cut = cut % block.len();
        prop_assert!(decoded(&block[..cut], bytes.len()).is_err());
    }

    #[test]
    fn decoder_remembers_nothing_of_nonsense(bytes in prop::collection::vec(any::<u8>(), 0..2000), size in 0_usize..70_000) {
        let fresh = decoded(&bytes, size).ok();
        let mut decoder = Decoder::new();
        let mut output = vec![0xAA; size];
        let _ = decoder.decode(&[0x55; 300], &mut vec![0; 700]);
        let again = decoder.decode(&bytes, &mut output).ok().map(|()| output);
        prop_assert_eq!(again, fresh);
    }
}
