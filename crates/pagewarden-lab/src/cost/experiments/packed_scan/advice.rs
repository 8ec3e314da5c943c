//! What the scans say in words: what held them, and where memory is best spent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::cost::samples::{CONTROL, Sample, median};

/// Less than this is not busy.
const BUSY: f64 = 0.5;
/// A pool that saves less than this part of a scan is not worth memory that all
/// programs could share.
const WORTH: f64 = 0.2;
/// The word for a scan that waits for one read after the other.
const SERIAL: &str = "serial latency";
const SECONDS: &str = "seconds";

/// What held a scan, as far as the system says: each read waited for the one
/// before if neither the disk nor the processors had something to do for half of
/// the time.
#[must_use]
pub fn bound(values: &BTreeMap<String, f64>) -> &'static str {
    match (values.get("disk_busy_share"), values.get("processors_busy")) {
        (Some(disk), Some(processors)) if *disk < BUSY && *processors < BUSY => SERIAL,
        (Some(disk), Some(processors)) if disk > processors => "disk",
        (Some(_), Some(_)) => "processor",
        _ => "not known",
    }
}

/// Advice by the warm scans of one file: `small` is the condition with a pool that
/// holds little, where it comes out of the page cache, `large` with one that holds
/// all.
#[must_use]
pub fn advice(samples: &[&Sample], small: &str, large: &str) -> Option<String> {
    let mut arms: Vec<&str> = Vec::new();
    for sample in samples {
        let arm = sample.arm.as_str();
        if !arms.contains(&arm) && !arm.ends_with(CONTROL) {
            arms.push(arm);
        }
    }
    arms.sort_unstable();
    let mut pool = Vec::new();
    let mut cache = Vec::new();
    for arm in arms {
        let (Some(from_cache), Some(from_pool)) =
            (median(samples, small, arm, SECONDS), median(samples, large, arm, SECONDS))
        else {
            continue;
        };
        let ratio = from_pool / from_cache;
        let told = format!("{arm} (x{ratio:.2})");
        if ratio < 1.0 - WORTH { pool.push(told) } else { cache.push(told) }
    }
    if pool.is_empty() && cache.is_empty() {
        return None;
    }
    let mut text = String::from("memory (a warm scan out of the pool against the page cache): ");
    if !pool.is_empty() {
        let _ = write!(text, "give it to the engine's pool for {}", pool.join(", "));
    }
    if !cache.is_empty() {
        let and = if pool.is_empty() { "" } else { "; " };
        let _ = write!(text, "{and}leave it to the page cache for {}", cache.join(", "));
    }
    text.push('.');
    let waiting: BTreeSet<String> = samples
        .iter()
        .filter(|sample| sample.words.get("bound").is_some_and(|word| word == SERIAL))
        .map(|sample| format!("{} ({})", sample.arm, sample.condition))
        .collect();
    if !waiting.is_empty() {
        let waiting: Vec<String> = waiting.into_iter().collect();
        let _ = write!(
            text,
            " Serial latency bound, neither disk nor processor busy half of the time: {}.",
            waiting.join("; ")
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(arm: &str, condition: &str, seconds: f64, bound: &str) -> Sample {
        Sample {
            experiment: "e1".to_owned(),
            condition: condition.to_owned(),
            arm: arm.to_owned(),
            block: 0,
            order: 0,
            warm_up: false,
            values: BTreeMap::from([("seconds".to_owned(), seconds)]),
            words: BTreeMap::from([("bound".to_owned(), bound.to_owned())]),
            noise: BTreeMap::new(),
        }
    }

    #[test]
    fn scan_that_leaves_disk_and_processors_idle_waits_for_single_reads() {
        let shares = |disk: f64, processors: f64| {
            let values = [("disk_busy_share", disk), ("processors_busy", processors)];
            bound(&values.map(|(name, value)| (name.to_owned(), value)).into())
        };
        assert_eq!(shares(0.2, 0.3), "serial latency");
        assert_eq!(shares(0.9, 0.3), "disk");
        assert_eq!(shares(0.1, 1.2), "processor");
        assert_eq!(bound(&BTreeMap::new()), "not known");
    }

    #[test]
    fn memory_goes_where_a_warm_scan_gains_by_it() {
        let samples = [
            sample("plain", "small", 1.0, "processor"),
            sample("plain", "large", 0.9, "processor"),
            sample("pack", "small", 2.0, "processor"),
            sample("pack", "large", 0.9, "processor"),
            sample("btrfs", "cold", 9.0, "serial latency"),
            sample("plain (again)", "small", 1.0, "processor"),
        ];
        let text = advice(&samples.iter().collect::<Vec<_>>(), "small", "large").unwrap();
        for part in [
            "engine's pool for pack (x0.45); leave it to the page cache for plain (x0.90).",
            "Serial latency bound, neither disk nor processor busy half of the time: btrfs (cold).",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("(again)"), "{text}");
        assert_eq!(advice(&[], "small", "large"), None);
    }
}
