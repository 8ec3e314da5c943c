//! Numbers, sizes, times and names as people read them.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::verdict::Finding;

/// `417,032`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `312 files`.
#[must_use]
pub fn counted(number: u64, word: &str) -> String {
    format!("{} {word}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `3.18 GiB`, `8 KiB`, `17 bytes`.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, size) in UNITS {
        if count >= size {
            if count.is_multiple_of(size) {
                return format!("{} {unit}", grouped(count / size));
            }
            return format!("{:.2} {unit}", count as f64 / size as f64);
        }
    }
    counted(count, "byte")
}

/// Mebibytes a second, without the unit: `4,970`, `3.25`.
#[must_use]
pub fn rate(mib_per_second: f64) -> String {
    if mib_per_second >= 10.0 {
        let whole = format!("{mib_per_second:.0}");
        return whole.parse().map_or(whole, grouped);
    }
    format!("{mib_per_second:.2}")
}

/// `0.64 s`, `12 min 5 s`.
#[must_use]
pub fn duration(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds {
        0..60 => format!("{:.2} s", elapsed.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A share as people read it: `0 %` and `100 %` only where they are exact.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        _ if part >= whole => "100 %".to_owned(),
        percent if percent < 0.01 => "< 0.01 %".to_owned(),
        percent if percent > 99.99 => "> 99.99 %".to_owned(),
        percent if (1.0..99.0).contains(&percent) => format!("{percent:.1} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// A measured share, as a whole number: `81 %`.
#[must_use]
pub fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

const SECONDS_PER_DAY: u64 = 86_400;
/// Days after which the calendar repeats: 400 years.
const DAYS_PER_ERA: u64 = 146_097;
/// From 1 March of the year 0, where the count below begins, to 1970.
const DAYS_BEFORE_1970: u64 = 719_468;

/// `2026-01-31 17:05 UTC`.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    let (seconds, (year, month, day)) = civil(time);
    let minute = seconds / 60;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
}

/// `2026-01-31T17:05:09Z`.
#[must_use]
pub fn utc_seconds(time: SystemTime) -> String {
    let (seconds, (year, month, day)) = civil(time);
    let (hour, minute) = (seconds / 3600, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", seconds % 60)
}

/// Reads `2026-01-31T17:05:09.25+02:00`, with a space in place of the `T` too, and `Z` for no offset;
/// `None` for anything else, and for times before 1970.
#[must_use]
pub fn time_of(text: &str) -> Option<SystemTime> {
    let (date_and_time, zone) = text.split_at_checked(19)?;
    let number = |range: std::ops::Range<usize>| {
        let digits = date_and_time.get(range)?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse::<u64>().ok())?
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let is_date = (1970..).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // The inverse of `civil`.
    let (from_march, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let era = year / 400;
    let of_era = year % 400;
    let day_of_era =
        of_era * 365 + of_era / 4 - of_era / 100 + (153 * from_march + 2) / 5 + day - 1;
    let days = (era * DAYS_PER_ERA + day_of_era).checked_sub(DAYS_BEFORE_1970)?;
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    let zone = zone.trim_start_matches(|letter: char| letter == '.' || letter.is_ascii_digit());
    let offset = match zone.as_bytes() {
        b"Z" => 0,
        [b'+' | b'-', rest @ ..] => {
            let digits: Vec<u8> = rest.iter().copied().filter(|it| *it != b':').collect();
            let digits = std::str::from_utf8(&digits).ok().filter(|digits| digits.len() == 4)?;
            digits.get(..2)?.parse::<u64>().ok()? * 3600
                + digits.get(2..)?.parse::<u64>().ok()? * 60
        }
        _ => return None,
    };
    let seconds = match zone.starts_with('-') {
        true => seconds.checked_add(offset)?,
        false => seconds.checked_sub(offset)?,
    };
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// The second of the day; year, month and day. Years that begin in March make the leap day the last
/// of its year and the lengths of the months regular (the arithmetic is Howard Hinnant's
/// `civil_from_days`).
fn civil(time: SystemTime) -> (u64, (u64, u64, u64)) {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = seconds / SECONDS_PER_DAY + DAYS_BEFORE_1970;
    let day_of_era = days % DAYS_PER_ERA;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + days / DAYS_PER_ERA * 400 + u64::from(month <= 2);
    (seconds % SECONDS_PER_DAY, (year, month, day))
}

/// Which relation a finding is about: `public.accounts in shop`.
#[must_use]
pub fn relation_name(finding: &Finding) -> Option<String> {
    match (&finding.object, &finding.database) {
        (Some(object), Some(database)) => Some(format!("{object} in {database}")),
        (Some(object), None) => Some(object.clone()),
        (None, Some(database)) => Some(format!("database {database}")),
        (None, None) => None,
    }
}

/// Text as it stands in a web page, in an attribute too.
#[must_use]
pub fn escaped_for_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A file's name may hold escape sequences, or characters that turn the text
/// around them or cannot be seen; it must not mislead a reader.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || misleads(c) {
            printed.extend(c.escape_default());
        } else {
            printed.push(c);
        }
    }
    printed
}

/// JSON in which no character misleads who reads it in a terminal: the same object, for outside of its
/// strings there is none.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut printed = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() && c != '\n' || misleads(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(printed, "\\u{unit:04x}");
            }
        } else {
            printed.push(c);
        }
    }
    printed
}

/// Marks of direction, separators of lines, characters that cannot be seen.
fn misleads(c: char) -> bool {
    matches!(
        c,
        '\u{00ad}'
            | '\u{034f}'
            | '\u{061c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// At most `chars_max` characters of `text`: where there are more, its
/// beginning and its end, for the end of a path says most.
#[must_use]
pub fn shortened(text: &str, chars_max: usize) -> String {
    const GAP: &str = "...";
    let count = text.chars().count();
    if count <= chars_max {
        return text.to_owned();
    }
    let kept = chars_max.saturating_sub(GAP.len());
    let head: String = text.chars().take(kept / 3).collect();
    let tail: String = text.chars().skip(count - (kept - kept / 3)).collect();
    format!("{head}{GAP}{tail}")
}

/// An LSN in PostgreSQL's own notation.
#[derive(Debug, Clone, Copy)]
pub struct LsnText(pub u64);

impl std::fmt::Display for LsnText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// Seconds to the microsecond, as JSON has them.
#[must_use]
pub fn seconds(elapsed: Duration) -> f64 {
    (elapsed.as_secs_f64() * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_misleads_nobody_and_says_the_same() {
        let name = "a\u{9b}31m\u{7f}\u{202e}\u{e0041}\u{e4}\n\u{1b}\"";
        let plain = serde_json::to_string(name).unwrap();
        let printed = printable_json(&plain);
        assert_eq!(printed, printable(&printed));
        assert!(printed.contains('\u{e4}'));
        assert_eq!(serde_json::from_str::<String>(&printed).unwrap(), name);
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (417_032, "417,032"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(bytes(8192), "8 KiB");
        assert_eq!(bytes(3_416_326_144), "3.18 GiB");
        assert_eq!(bytes(17), "17 bytes");
    }

    #[test]
    fn shares_are_never_rounded_to_all_or_nothing() {
        for (part, whole, text) in [
            (0, 10, "0 %"),
            (1, 1_000_000, "< 0.01 %"),
            (999_999, 1_000_000, "> 99.99 %"),
            (1, 3, "33.3 %"),
            (995, 1000, "99.50 %"),
            (10, 10, "100 %"),
            (0, 0, "0 %"),
        ] {
            assert_eq!(percent(part, whole), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn control_and_invisible_characters_are_shown_as_what_they_are() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("gr\u{fc}n"), "gr\u{fc}n");
        assert_eq!(printable("a\u{202e}b\u{2028}c\u{200b}"), "a\\u{202e}b\\u{2028}c\\u{200b}");
        assert_eq!(
            printable("\u{ad}\u{206a}\u{3164}\u{e0041}"),
            "\\u{ad}\\u{206a}\\u{3164}\\u{e0041}"
        );
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("base/5/16397", 12), "base/5/16397");
        assert_eq!(shortened("pg_tblspc/16400/PG_15/5/16397.12", 16), "pg_t.../16397.12");
        assert_eq!(shortened("abcdef", 2).chars().count(), 3);
    }
}
