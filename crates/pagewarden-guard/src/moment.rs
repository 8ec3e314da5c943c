//! Times: seconds since 1970 in the ledger, words and windows for people.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};

/// Seconds since 1970 by the system's clock, which may be set back.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// `2026-11-25T22:01:02Z`.
#[must_use]
pub fn shown(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "?".to_owned(), |moment| moment.to_string())
}

/// `Wed, 25 Nov 2026 22:01:02 +0000`, as mails have it.
#[must_use]
pub fn mail_date(seconds: i64) -> String {
    let moment = Timestamp::from_second(seconds).unwrap_or_default();
    moment.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

/// A moment as people write it: `2026-11-25T22:01:02Z`, with another offset, or `2026-11-25`, which is
/// the beginning of that day in UTC.
///
/// # Errors
/// It is none, in words.
pub fn parse(text: &str) -> Result<i64, String> {
    let text = text.trim();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.as_second());
    }
    let day = text.parse::<jiff::civil::Date>().ok();
    let begin = day.and_then(|day| day.to_zoned_datetime(TimeZone::UTC).ok());
    begin
        .map(|begin| begin.timestamp().as_second())
        .ok_or_else(|| format!("'{text}' is no time (try 2026-11-25 or 2026-11-25T22:00:00Z)"))
}

/// A span of each day, in local time: `01:00-05:00`. One that ends before it begins goes over
/// midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    begin: Time,
    end: Time,
}

impl Window {
    /// Reads one as people write it.
    ///
    /// # Errors
    /// It is none, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let time = |text: &str| {
            let text = text.trim();
            let (hour, minute) = text.split_once(':')?;
            let is_number =
                |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            let is_time = is_number(hour) && is_number(minute);
            let numbers = is_time.then(|| Some((hour.parse().ok()?, minute.parse().ok()?)));
            let (hour, minute) = numbers.flatten()?;
            Time::new(hour, minute, 0, 0).ok()
        };
        let ends = text.split_once('-').and_then(|(begin, end)| Some((time(begin)?, time(end)?)));
        match ends {
            Some((begin, end)) if begin != end => Ok(Self { begin, end }),
            _ => Err(format!("'{text}' is no window (try 01:00-05:00)")),
        }
    }

    /// How long it is, in seconds.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        (second(self.end) - second(self.begin)).rem_euclid(24 * 3600).unsigned_abs()
    }

    /// Seconds from its beginning to this moment; `None` outside.
    #[must_use]
    pub fn seconds_since(&self, seconds: i64) -> Option<u64> {
        self.seconds_left(seconds).map(|left| self.seconds().saturating_sub(left))
    }

    /// True if this moment of local time is in it.
    #[must_use]
    pub fn holds(&self, seconds: i64) -> bool {
        self.holds_time(local_time(seconds))
    }

    /// Seconds from this moment to its end; `None` outside.
    #[must_use]
    pub fn seconds_left(&self, seconds: i64) -> Option<u64> {
        let time = local_time(seconds);
        self.holds_time(time).then(|| {
            let left = (second(self.end) - second(time)).rem_euclid(24 * 3600);
            left.unsigned_abs()
        })
    }

    fn holds_time(&self, time: Time) -> bool {
        if self.begin < self.end {
            self.begin <= time && time < self.end
        } else {
            self.begin <= time || time < self.end
        }
    }
}

/// The second of the day.
fn second(time: Time) -> i64 {
    i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second())
}

/// A number from 0 to `most` that is the same at each call on this machine, and differs between
/// machines and names: so that not all begin at the same time.
#[must_use]
pub fn lot(name: &str, most: u64) -> u64 {
    let mut hash = Sha256::new();
    hash.update(pagewarden::system::host_name());
    hash.update([0]);
    hash.update(name);
    let digest = hash.finalize();
    let (first, _) = digest.split_at(8);
    let number = first.iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    number % most.saturating_add(1)
}

fn local_time(seconds: i64) -> Time {
    let moment = Timestamp::from_second(seconds).unwrap_or_default();
    moment.to_zoned_datetime(TimeZone::system()).time()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_shown() {
        assert_eq!(shown(0), "1970-01-01T00:00:00Z");
        assert_eq!(parse(&shown(1_795_644_062)), Ok(1_795_644_062));
        assert_eq!(parse("1970-01-02"), Ok(86_400));
        assert_eq!(parse("1970-01-01T02:00:00+02:00"), Ok(0));
        for text in ["", "yesterday", "2026-13-01", "12:00"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(shown(i64::MAX), "?");
    }

    #[test]
    fn lots_differ_by_name_and_stay_the_same() {
        let lots: std::collections::HashSet<_> =
            (0..100).map(|number| lot(&format!("db{number}"), 900)).collect();
        assert!(lots.len() > 60 && lots.iter().all(|lot| *lot <= 900));
        assert_eq!(lot("db", 900), lot("db", 900));
        assert_eq!(lot("db", 0), 0);
        let window = Window::parse("22:30-04:00").unwrap();
        assert_eq!(window.seconds(), 5 * 3600 + 1800);
        let now = now();
        let since = window.seconds_since(now);
        assert_eq!(since.is_some(), window.holds(now));
    }

    #[test]
    fn window_may_go_over_midnight() {
        let at = |hour, minute| Time::new(hour, minute, 0, 0).unwrap();
        let day = Window::parse("01:00-05:00").unwrap();
        assert!(day.holds_time(at(1, 0)) && day.holds_time(at(4, 59)));
        assert!(!day.holds_time(at(5, 0)) && !day.holds_time(at(0, 59)));
        let night = Window::parse("22:30 - 04:00").unwrap();
        assert!(night.holds_time(at(23, 0)) && night.holds_time(at(3, 59)));
        assert!(!night.holds_time(at(4, 0)) && !night.holds_time(at(22, 29)));
        for text in ["", "01:00", "1-5", "25:00-03:00", "01:00-01:00", "01:00-05:60", "+1:00-02:00"]
        {
            assert!(Window::parse(text).is_err(), "{text}");
        }
    }
}
