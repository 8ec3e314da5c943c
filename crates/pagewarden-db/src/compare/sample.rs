//! A part of a table, chosen at random, and what it says about all of it.
//!
//! The values of the key's first column, from the smallest to the largest of both sides, are
//! cut into blocks of the same width; the first and the last have no end, so that every row
//! falls into one. Of N blocks n are chosen, each choice as likely as any other, and these are
//! compared wholly. If k of them are not equal, how many of all may be so? The largest
//! number K of which no more than k would be chosen with a probability of 5 % at least
//! (hypergeometric distribution): more than K only a chance of less than 5 % would have
//! hidden. Nothing is assumed about rows; a block may have many or none.

use super::look::{Scope, Side, both};
use super::report::TableReport;
use super::table::{Comparison, FIRST_ROWS};
use crate::error::{Error, Result};
use crate::row::{Row, Value, number};

/// Blocks of a table, unless its keys have fewer values.
const BLOCKS: u64 = 10_000;
/// How sure the statement about all of the table is.
pub const CONFIDENCE: f64 = 0.95;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// How much of the blocks, from 0 to 1.
    pub share: f64,
    /// Another seed chooses other blocks.
    pub seed: u64,
}

/// What was compared of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// All blocks.
    pub blocks: u64,
    /// Those that were compared.
    pub compared: u64,
    /// Those of them that are not equal, or of which it is not known.
    pub not_equal: u64,
    /// With [`CONFIDENCE`], no more of all blocks are not equal.
    pub at_most: u64,
    /// What the blocks were chosen by.
    pub seed: u64,
}

impl Sampled {
    /// What the compared blocks say of all of them.
    pub fn of(blocks: u64, compared: u64, not_equal: u64, seed: u64) -> Self {
        let at_most = at_most(blocks, compared, not_equal);
        Self { blocks, compared, not_equal, at_most, seed }
    }

    /// True if nothing was left out.
    pub fn is_whole(&self) -> bool {
        self.compared == self.blocks
    }
}

/// Compares blocks of a table. One that is small is compared wholly, and is no sample.
pub(super) fn compare(
    comparison: &mut Comparison<'_, '_>,
    sample: Sample,
    report: &mut TableReport,
) -> Result<()> {
    let all = Scope::Range { after: None, upto: None };
    let (source, target) = (&mut comparison.source, &mut comparison.target);
    let more = both(source, target, |side| side.bound(&all, FIRST_ROWS))?;
    if more == (None, None) {
        return comparison.span(None, &None, report);
    }
    let (of_source, of_target) = both(source, target, extent)?;
    let (low, high) = match (of_source, of_target) {
        (Some(one), Some(other)) => (one.0.min(other.0), one.1.max(other.1)),
        (one, other) => one.or(other).unwrap_or((0, 0)),
    };
    let blocks = Blocks::of(low, high).ok_or_else(too_large)?;
    let wanted = share_of(blocks.count, sample.share);
    // What it says is known at the end.
    let mut sampled =
        Sampled { blocks: blocks.count, compared: 0, not_equal: 0, at_most: 0, seed: sample.seed };
    report.sample = Some(sampled);
    for (compared, block) in (1..).zip(chosen(blocks.count, wanted, sample.seed)) {
        comparison.block = block;
        let (after, upto) = blocks.bounds(block);
        comparison.span(after, &upto, report)?;
        sampled.compared = compared;
        report.sample = Some(sampled);
    }
    Ok(())
}

fn too_large() -> Error {
    Error::Unsupported(
        "its keys are too large to be cut into blocks: no sample\nhint: leave --sample out"
            .to_owned(),
    )
}

/// How many blocks are a share of all: at least one.
fn share_of(blocks: u64, share: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "10,000 at most")]
    let wanted = (blocks as f64 * share).ceil() as u64;
    wanted.clamp(1, blocks)
}

/// Blocks in the order of the hashes of their numbers: the first few, however many, are a
/// choice at random.
fn chosen(blocks: u64, wanted: u64, seed: u64) -> Vec<u64> {
    let hash = |block: u64| {
        let bytes = [seed.to_le_bytes(), block.to_le_bytes()].concat();
        *blake3::hash(&bytes).as_bytes()
    };
    let mut all: Vec<([u8; 32], u64)> = (0..blocks).map(|block| (hash(block), block)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, block)| block).take(usize::try_from(wanted).unwrap_or(0)).collect()
}

/// Stretches of the key's first column.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    low: i128,
    width: i128,
    count: u64,
}

impl Blocks {
    fn of(low: i128, high: i128) -> Option<Self> {
        let width = high.checked_sub(low)?.checked_add(1)?;
        // Cuts are made by a multiplication.
        width.checked_mul(i128::from(BLOCKS))?;
        let count = u64::try_from(width).unwrap_or(BLOCKS).min(BLOCKS);
        Some(Self { low, width, count })
    }

    /// The last value before a block.
    fn cut(&self, block: u64) -> i128 {
        self.low + self.width * i128::from(block) / i128::from(self.count) - 1
    }

    /// What lies before a block, and its end; nothing at either end of all.
    fn bounds(&self, block: u64) -> (Option<Vec<Value>>, Option<Vec<Value>>) {
        let inner = |block: u64| (0 < block && block < self.count).then(|| bound(self.cut(block)));
        (inner(block), inner(block + 1))
    }
}

/// A value of the key's first column alone.
fn bound(value: i128) -> Vec<Value> {
    let mut row = Row::new();
    row.decimal(value.to_string().as_bytes());
    row.values()
}

/// The smallest and the largest whole number between which the values of the key's first
/// column lie; none without rows.
fn extent(side: &mut Side<'_>) -> Result<Option<(i128, i128)>> {
    let mut first_above = |value: Option<i128>| -> Result<Option<(i128, i128)>> {
        let scope = Scope::Range { after: value.map(bound), upto: None };
        let Some(key) = side.bound(&scope, 1)? else { return Ok(None) };
        key.first().and_then(around).map(Some).ok_or_else(too_large)
    };
    let Some((low, mut reached)) = first_above(None)? else { return Ok(None) };
    // Further and further, until nothing is above; then half of what is left, again and again.
    let (mut step, mut none_above) = (1_i128, None);
    loop {
        let probe = match none_above {
            None => reached.checked_add(step).ok_or_else(too_large)?,
            Some(end) if reached < end => reached + (end - reached) / 2,
            Some(_) => return Ok(Some((low, reached))),
        };
        match first_above(Some(probe))? {
            None => none_above = Some(probe),
            Some((_, found)) => {
                reached = found;
                step = step.checked_mul(2).ok_or_else(too_large)?;
            }
        }
    }
}

/// The whole numbers around a value.
fn around(value: &Value) -> Option<(i128, i128)> {
    let plain = number::plain(&value.payload)?;
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let whole: i128 = whole.parse().ok()?;
    let is_whole = fraction.bytes().all(|digit| digit == b'0');
    match (is_whole, plain.starts_with('-')) {
        (true, _) => Some((whole, whole)),
        (false, false) => Some((whole, whole.checked_add(1)?)),
        (false, true) => Some((whole.checked_sub(1)?, whole)),
    }
}

/// The largest number of blocks that may be unequal, if of `compared` out of `blocks` no more
/// than `not_equal` were found to be.
fn at_most(blocks: u64, compared: u64, not_equal: u64) -> u64 {
    let left = blocks.saturating_sub(compared);
    let (mut sure, mut unlikely) = (not_equal, left + not_equal + 1);
    // The probability falls with their number.
    while unlikely - sure > 1 {
        let middle = sure + (unlikely - sure) / 2;
        if at_most_chosen(blocks, compared, middle, not_equal) >= 1.0 - CONFIDENCE {
            sure = middle;
        } else {
            unlikely = middle;
        }
    }
    sure
}

/// The probability that of `unequal` blocks no more than `seen` are among the chosen.
fn at_most_chosen(blocks: u64, compared: u64, unequal: u64, seen: u64) -> f64 {
    let logs = logs_of_factorials(blocks);
    let factorial = |n: u64| usize::try_from(n).ok().and_then(|n| logs.get(n)).copied();
    let choose =
        |n: u64, k: u64| Some(factorial(n)? - factorial(k)? - factorial(n.checked_sub(k)?)?);
    let term = |k: u64| {
        let others = choose(blocks.checked_sub(unequal)?, compared.checked_sub(k)?)?;
        Some((choose(unequal, k)? + others - choose(blocks, compared)?).exp())
    };
    (0..=seen.min(unequal)).filter_map(term).sum()
}

fn logs_of_factorials(upto: u64) -> Vec<f64> {
    let mut sum = 0.0;
    let rest = (1..=upto).map(|n| {
        sum += (n as f64).ln();
        sum
    });
    std::iter::once(0.0).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The same by whole numbers: choices that hide, of all choices.
    fn hidden(blocks: u64, compared: u64, unequal: u64) -> f64 {
        let chances = (0..compared)
            .map(|n| blocks.saturating_sub(unequal).saturating_sub(n) as f64 / (blocks - n) as f64);
        chances.product()
    }

    #[test]
    fn nothing_found_says_how_much_may_be_hidden() {
        for (blocks, compared) in
            [(10_000, 500), (10_000, 59), (100, 50), (100, 1), (7, 3), (40, 39)]
        {
            let most = at_most(blocks, compared, 0);
            assert!(hidden(blocks, compared, most) >= 0.05 - 1e-9, "{blocks} {compared} {most}");
            assert!(hidden(blocks, compared, most + 1) < 0.05 + 1e-9, "{blocks} {compared} {most}");
        }
        // One block of 10,000 in twenty: about 3 / 500 of all, a little less without repetition.
        assert_eq!(at_most(10_000, 500, 0), 58);
        assert_eq!(at_most(100, 100, 0), 0);
        assert_eq!(at_most(100, 100, 3), 3);
        assert_eq!(at_most(100, 0, 0), 100);
        assert_eq!(at_most(1, 1, 1), 1);
    }

    /// Against sums over the distribution, by whole numbers.
    #[test]
    fn what_was_found_raises_the_bound() {
        let choose =
            |n: u128, k: u128| (0..k).fold(1_u128, |product, i| product * (n - i) / (i + 1));
        for (blocks, compared, seen) in [(60_u64, 20_u64, 1_u64), (60, 20, 4), (30, 10, 2)] {
            let probability = |unequal: u64| {
                let of = |k: u64| {
                    let rest = choose(u128::from(blocks - unequal), u128::from(compared - k));
                    choose(u128::from(unequal), u128::from(k)) as f64 * rest as f64
                };
                let all = choose(u128::from(blocks), u128::from(compared)) as f64;
                (0..=seen).map(of).sum::<f64>() / all
            };
            let most = at_most(blocks, compared, seen);
            assert!(most > seen);
            assert!(probability(most) >= 0.05 && probability(most + 1) < 0.05, "{blocks} {most}");
        }
    }

    #[test]
    fn every_value_is_in_one_block() {
        for (low, high) in [(1, 3_000_000), (-5, 5), (0, 0), (-1_i128 << 63, (1_i128 << 64) - 1)] {
            let blocks = Blocks::of(low, high).unwrap();
            assert_eq!(i128::from(blocks.count), (high - low + 1).min(i128::from(BLOCKS)));
            assert_eq!(blocks.bounds(0).0, None);
            assert_eq!(blocks.bounds(blocks.count - 1).1, None);
            for block in 1..blocks.count {
                assert_eq!(blocks.bounds(block - 1).1, blocks.bounds(block).0);
                assert!(blocks.cut(block) > blocks.cut(block - 1));
            }
        }
        assert!(Blocks::of(i128::MIN, i128::MAX).is_none());
    }

    #[test]
    fn choices_are_even_and_the_same_for_a_seed() {
        assert_eq!(chosen(1000, 50, 7), chosen(1000, 50, 7));
        assert_ne!(chosen(1000, 50, 7), chosen(1000, 50, 8));
        assert_eq!(chosen(1000, 50, 7)[..20], chosen(1000, 20, 7));
        assert_eq!(chosen(10, 10, 1).into_iter().collect::<HashSet<_>>().len(), 10);
        let mut times = [0_u32; 20];
        for seed in 0..4000 {
            for block in chosen(20, 5, seed) {
                times[usize::try_from(block).unwrap()] += 1;
            }
        }
        // 1000 each, give or take five times the deviation of 27.
        assert!(times.iter().all(|times| (865..1135).contains(times)), "{times:?}");
        assert_eq!((share_of(10_000, 0.05), share_of(3, 0.001), share_of(3, 1.0)), (500, 1, 3));
    }

    /// Ten of sixty blocks are unequal; thirty are looked at. The bound is too low no more often
    /// than it says.
    #[test]
    fn bound_is_true_as_often_as_it_says() {
        let is_too_low = |seed: &u64| {
            let found = chosen(60, 30, *seed).iter().filter(|block| **block < 10).count() as u64;
            at_most(60, 30, found) < 10
        };
        let too_low = (0..4000).filter(is_too_low).count();
        // 5 % are 200; five times the deviation is 69.
        assert!((1..269).contains(&too_low), "{too_low}");
    }

    #[test]
    fn whole_numbers_around_a_value() {
        for (text, low, high) in
            [("12.5", 12, 13), ("-12.5", -13, -12), ("-0.5", -1, 0), ("7", 7, 7), ("5e2", 500, 500)]
        {
            let mut row = Row::new();
            row.decimal(text.as_bytes());
            assert_eq!(around(&row.values()[0]), Some((low, high)), "{text}");
        }
    }
}
