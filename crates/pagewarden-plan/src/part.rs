//! Which units of a plan one process checks: part I of N.

use std::cmp::Reverse;
use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

/// Part `number`, counted from 1, of `of` parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    number: u32,
    of: NonZero<u32>,
}

impl Part {
    /// The only part.
    pub const WHOLE: Self = Self { number: 1, of: NonZero::<u32>::MIN };

    /// The units of this part, ascending, of units of these sizes in bytes. The largest are given
    /// away first, each to the part with the least bytes, so that parts end together. Every unit is
    /// in exactly one of the parts.
    #[must_use]
    pub fn units(self, bytes: &[u64]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..bytes.len()).collect();
        let bytes_of = |unit: usize| bytes.get(unit).copied().unwrap_or(0);
        order.sort_by_key(|unit| (Reverse(bytes_of(*unit)), *unit));
        // The load of a part, the number of its units, the part.
        let mut parts: std::collections::BTreeSet<(u128, u64, u32)> =
            (1..=self.of.get()).map(|part| (0, 0, part)).collect();
        let mut mine = Vec::new();
        for unit in order {
            let Some((load, count, part)) = parts.pop_first() else { break };
            if part == self.number {
                mine.push(unit);
            }
            parts.insert((load + u128::from(bytes_of(unit)), count + 1, part));
        }
        mine.sort_unstable();
        mine
    }
}

/// More parts than this are a mistake.
const PARTS_MAX: u32 = 1_000_000;

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no part (try 1/4, the first of four)");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let number: u32 = number.trim().parse().map_err(|_| wrong())?;
        let of: NonZero<u32> = of.trim().parse().map_err(|_| wrong())?;
        if !(1..=of.get()).contains(&number) || of.get() > PARTS_MAX {
            return Err(format!("'{text}': parts are counted from 1/N to N/N"));
        }
        Ok(Self { number, of })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_in_exactly_one_part() {
        let bytes: Vec<u64> = (0..97).map(|unit| unit * unit % 31).collect();
        for of in 1..=110 {
            let mut seen = vec![0; bytes.len()];
            for number in 1..=of {
                let part: Part = format!("{number}/{of}").parse().unwrap();
                part.units(&bytes).into_iter().for_each(|unit| seen[unit] += 1);
            }
            assert!(seen.iter().all(|times| *times == 1), "{of}: {seen:?}");
        }
    }

    #[test]
    fn parts_have_about_the_same_bytes() {
        let bytes = [100, 1, 1, 1, 50, 50, 1];
        let part = |text: &str| text.parse::<Part>().unwrap().units(&bytes);
        assert_eq!(part("1/2"), [0, 1, 3]);
        assert_eq!(part("2/2"), [2, 4, 5, 6]);
        // Units without bytes are work, too.
        assert_eq!("2/2".parse::<Part>().unwrap().units(&[0, 0, 0, 0]), [1, 3]);
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in ["", "1", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3", "1/99999999"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
        assert_eq!("2/3".parse::<Part>().unwrap().to_string(), "2/3");
    }
}
