//! What can be brought back, in a sentence.

use std::time::{Duration, UNIX_EPOCH};

use crate::files::archived_log::reach::Need;
use pagewarden_core::database::repository::{Lsn, Restorable, spans};
use pagewarden_core::words::{time_of, utc_seconds};

/// From 1970 to 2000, where servers begin to count.
const SECONDS_BEFORE_2000: i64 = 946_684_800;
const MICROSECONDS: i64 = 1_000_000;

/// A server's time as text: `2026-11-23T09:10:11Z`.
pub(super) fn text_of(microseconds: i64) -> String {
    let seconds = microseconds.div_euclid(MICROSECONDS).saturating_add(SECONDS_BEFORE_2000);
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    utc_seconds(UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH))
}

/// The same, rounded up: a moment at which what happened at that time had happened.
pub(super) fn text_of_next(microseconds: i64) -> String {
    let up = i64::from(microseconds.rem_euclid(MICROSECONDS) > 0).saturating_mul(MICROSECONDS);
    text_of(microseconds.saturating_add(up))
}

/// A tool's time in UTC without parts of a second: times of one form can be compared as texts. `None`
/// for one that does not say its zone.
pub(super) fn to_seconds(time: &str) -> Option<String> {
    time_of(time).map(utc_seconds)
}

/// `any moment from 2026-11-02 04:10:11 to 2026-11-23 09:17:00 UTC can be restored, but not
/// 2026-11-09 11:02:00 to 2026-11-09 12:40:31`.
pub(super) fn moments(restorable: &[Restorable], needs: &[Need]) -> String {
    if needs.is_empty() {
        return "no set needs a log".to_owned();
    }
    let cannot = needs.iter().filter(|need| restorable.iter().all(|it| it.set != need.label));
    let cannot: Vec<&str> = cannot.map(|need| need.label.as_str()).collect();
    let lost = match cannot.as_slice() {
        [] => String::new(),
        labels => format!("; {} cannot be made consistent", labels.join(", ")),
    };
    if restorable.is_empty() {
        return "no set can be made consistent with the log that is here".to_owned();
    }
    let Some(spans) = spans(restorable) else {
        let last = restorable.iter().map(|it| it.to_lsn).max();
        let first = restorable.iter().map(|it| it.from_lsn).min();
        let text = |lsn: Option<Lsn>| lsn.map_or(String::new(), |lsn| lsn.to_string());
        return format!("restorable from LSN {} to {}{lost}", text(first), text(last));
    };
    let holes = spans.windows(2).filter_map(|pair| match pair {
        [before, after] => Some((before.1, after.0)),
        _ => None,
    });
    let from = spans.first().map_or("", |span| span.0);
    let to = spans.iter().map(|span| span.1).max().unwrap_or_default();
    let plain = |time: &str| time.trim_end_matches('Z').replace('T', " ");
    let holes: Vec<_> =
        holes.map(|(from, to)| format!("{} to {}", plain(from), plain(to))).collect();
    let but =
        if holes.is_empty() { String::new() } else { format!(", but not {}", holes.join(", ")) };
    let (from, to) = (plain(from), plain(to));
    match from == to {
        true => format!("only the moment {from} UTC can be restored{lost}"),
        false => format!("any moment from {from} to {to} UTC can be restored{but}{lost}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restorable(set: &str, from: Option<&str>, to: Option<&str>) -> Restorable {
        Restorable {
            set: set.to_owned(),
            timeline: 1,
            from_lsn: Lsn(0x100_0028),
            to_lsn: Lsn(0x300_0000),
            from_time: from.map(str::to_owned),
            to_time: to.map(str::to_owned),
        }
    }

    fn need(set: &str) -> Need {
        Need { label: set.to_owned(), timeline: 1, from: 0x100_0028, to: 0x100_0130 }
    }

    #[test]
    fn times_of_servers_are_told_in_utc() {
        assert_eq!(text_of(0), "2000-01-01T00:00:00Z");
        assert_eq!(text_of(848_740_211_999_999), "2026-11-23T09:10:11Z");
        assert_eq!(text_of_next(848_740_211_000_001), "2026-11-23T09:10:12Z");
        assert_eq!(text_of_next(848_740_211_000_000), "2026-11-23T09:10:11Z");
        let in_utc = |time| to_seconds(time).unwrap_or_default();
        assert_eq!(in_utc("2026-11-23T09:09:38.1Z"), "2026-11-23T09:09:38Z");
        assert_eq!(in_utc("2026-11-23T00:09:38+02:30"), "2026-11-22T21:39:38Z");
        assert_eq!(text_of(i64::MIN), "1970-01-01T00:00:00Z");
        assert!(!text_of(i64::MAX).is_empty());
    }

    #[test]
    fn sentence_names_the_range_and_its_holes() {
        let a = restorable("a", Some("2026-11-02T04:10:00Z"), Some("2026-11-09T11:02:00Z"));
        let b = Restorable {
            from_lsn: Lsn(0x500_0028),
            to_lsn: Lsn(0x900_0000),
            ..restorable("b", Some("2026-11-09T12:40:31Z"), Some("2026-11-23T09:17:00Z"))
        };
        let needs = [need("a"), need("b")];
        let told = moments(&[a.clone(), b.clone()], &needs);
        assert_eq!(
            told,
            "any moment from 2026-11-02 04:10:00 to 2026-11-23 09:17:00 UTC can be restored, but \
             not 2026-11-09 11:02:00 to 2026-11-09 12:40:31"
        );
        // It meets the next one, in which nothing was committed for a while.
        let longer = Restorable { to_lsn: Lsn(0x600_0000), ..a };
        let told = moments(&[b, longer.clone()], &needs);
        assert!(told.ends_with("09:17:00 UTC can be restored"), "{told}");
        let told = moments(&[longer], &needs);
        assert!(told.ends_with("restored; b cannot be made consistent"), "{told}");
        let without_time = restorable("a", None, None);
        let told = moments(&[without_time], &needs[..1]);
        assert_eq!(told, "restorable from LSN 0/1000028 to 0/3000000");
        assert!(moments(&[], &needs).starts_with("no set can be"));
        assert_eq!(moments(&[], &[]), "no set needs a log");
    }
}
