//! What is asked of a database, and what answers took.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;

/// What to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// All rows, in the order of the table.
    Scan,
    /// Rows by their keys.
    Lookups {
        /// How many.
        count: u32,
        /// Which: the same for the same number.
        seed: u64,
    },
}

/// What it took, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// The whole of it.
    pub seconds: f64,
    /// One lookup of two took less.
    pub p50: f64,
    /// One of a hundred took more.
    pub p99: f64,
    /// The rows and their sum, by which stores are compared.
    pub rows: (i64, i64),
}

impl Answer {
    /// From the seconds of each lookup.
    pub fn new(whole: Duration, mut lookups: Vec<f64>, rows: (i64, i64)) -> Self {
        lookups.sort_by(f64::total_cmp);
        let at = |hundredths: usize| {
            lookups.get(lookups.len() * hundredths / 100).copied().unwrap_or(0.0)
        };
        Self { seconds: whole.as_secs_f64(), p50: at(50), p99: at(99), rows }
    }

    /// What one process printed for another.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [seconds, p50, p99, rows, sum] = words.as_slice() else {
            anyhow::bail!("an answer of another form: {text}");
        };
        let number = |word: &str| word.parse::<f64>().with_context(|| text.to_owned());
        Ok(Self {
            seconds: number(seconds)?,
            p50: number(p50)?,
            p99: number(p99)?,
            rows: (rows.parse()?, sum.parse()?),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, p50, p99, rows: (rows, sum) } = self;
        write!(f, "{seconds} {p50} {p99} {rows} {sum}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_through_a_pipe() {
        let times = (0..200).rev().map(f64::from).collect();
        let answer = Answer::new(Duration::from_millis(1500), times, (7, -3));
        assert_eq!((answer.p50, answer.p99, answer.rows), (100.0, 198.0, (7, -3)));
        assert_eq!(Answer::parse(&answer.to_string()).unwrap(), answer);
        assert!(Answer::parse("1 2 3 4").is_err());
    }
}
