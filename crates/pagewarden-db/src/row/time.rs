//! Dates, times and moments: text as ISO 8601 writes it, with a space in the middle.
//!
//! `2024-02-29`, `23:59:59`, `2024-02-29 23:59:59.5`: fractions of a second have no
//! zeros at their end. Moments with a time zone are those of UTC. Years before 1 are
//! zero or negative, as astronomers count; years past 9999 have a plus. What is no
//! moment (`infinity`, MySQL's dates with a zero in them) is text of its own and
//! equal to itself only.

use std::io::Write as _;

/// Microseconds of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL begins to count.
pub const DAYS_TO_2000: i64 = 10_957;

/// Appends a date, counted in days from 1970-01-01 on.
pub fn write_date(bytes: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil(days);
    write_civil(bytes, year, month, day);
}

/// Appends a year, a month and a day as they stand, also where there is no such day.
pub fn write_civil(bytes: &mut Vec<u8>, year: i64, month: u8, day: u8) {
    match u16::try_from(year) {
        Ok(year @ 0..10_000) => {
            push_two(bytes, u64::from(year / 100));
            push_two(bytes, u64::from(year % 100));
        }
        _ => {
            // Writing into memory does not fail.
            let _ = write!(bytes, "{}{:04}", if year < 0 { '-' } else { '+' }, year.unsigned_abs());
        }
    }
    bytes.push(b'-');
    push_two(bytes, u64::from(month));
    bytes.push(b'-');
    push_two(bytes, u64::from(day));
}

/// Appends a moment, counted in microseconds from 1970-01-01 on.
pub fn write_moment(bytes: &mut Vec<u8>, micros: i64) {
    write_date(bytes, micros.div_euclid(DAY_MICROS));
    bytes.push(b' ');
    write_time(bytes, micros.rem_euclid(DAY_MICROS));
}

/// Appends a time of day or a span, in microseconds; it may be negative or longer than a day.
pub fn write_time(bytes: &mut Vec<u8>, micros: i64) {
    if micros < 0 {
        bytes.push(b'-');
    }
    let micros = micros.unsigned_abs();
    let seconds = micros / 1_000_000;
    push_two(bytes, seconds / 3600);
    bytes.push(b':');
    push_two(bytes, seconds / 60 % 60);
    bytes.push(b':');
    push_two(bytes, seconds % 60);
    let fraction = micros % 1_000_000;
    if fraction > 0 {
        bytes.push(b'.');
        for place in [10_000, 100, 1] {
            push_two(bytes, fraction / place % 100);
        }
        while bytes.last() == Some(&b'0') {
            bytes.pop();
        }
    }
}

/// Appends the nanoseconds of a time that was just [written](write_time), beyond its microseconds.
pub fn write_nanos(bytes: &mut Vec<u8>, micros: i64, nanos: u16) {
    if nanos == 0 {
        return;
    }
    // Zeros at the end of the microseconds were not written.
    let mut zeros = 0;
    let mut fraction = micros.unsigned_abs() % 1_000_000;
    if fraction == 0 {
        bytes.push(b'.');
        zeros = 6;
    }
    while fraction > 0 && fraction.is_multiple_of(10) {
        fraction /= 10;
        zeros += 1;
    }
    bytes.extend(std::iter::repeat_n(b'0', zeros));
    let digits = [nanos / 100 % 10, nanos / 10 % 10, nanos % 10];
    bytes.extend(digits.iter().map(|digit| b'0' + u8::try_from(*digit).unwrap_or(0)));
    while bytes.last() == Some(&b'0') {
        bytes.pop();
    }
}

/// Appends a number with two digits at least.
fn push_two(bytes: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        Ok(number @ 0..100) => bytes.extend_from_slice(&[b'0' + number / 10, b'0' + number % 10]),
        _ => {
            // Hours of a long span; writing into memory does not fail.
            let _ = write!(bytes, "{number}");
        }
    }
}

/// The date of a day: Howard Hinnant's algorithm, by eras of 400 years that begin in March.
pub fn civil(days: i64) -> (i64, u8, u8) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, u8::try_from(month).unwrap_or(0), u8::try_from(day).unwrap_or(0))
}

/// The day of a date, counted from 1970-01-01 on: the reverse of [`civil`].
pub fn days(year: i64, month: u8, day: u8) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = (i64::from(month) + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

/// A moment that is written out (`2024-02-29T23:59:59.5Z`, `2024-02-29 23:59`, a date
/// alone), in microseconds from 1970-01-01 on. None if it is none, or has a zero date.
pub fn parse_moment(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (date, time) = match text.find([' ', 'T']) {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?.trim()),
        None => (text, ""),
    };
    let day = parse_date(date)?;
    let (time, offset) = split_offset(time)?;
    let micros = if time.is_empty() { 0 } else { parse_time(time.as_bytes())? };
    if !(0..=DAY_MICROS).contains(&micros) {
        return None;
    }
    day.checked_mul(DAY_MICROS)?.checked_add(micros)?.checked_sub(offset)
}

/// Cuts a time zone off, and gives it in microseconds.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let (clock, zone) = (time.get(..at)?, time.get(at + 1..)?);
    let (hours, minutes) = zone.split_once(':').unwrap_or((zone, "0"));
    let digits = |text: &str| text.parse::<i64>().ok().filter(|number| (0..100).contains(number));
    let offset = (digits(hours)? * 60 + digits(minutes)?) * 60_000_000;
    Some((clock.trim_end(), if time.get(at..)?.starts_with('-') { -offset } else { offset }))
}

/// A date that is written out, in days from 1970-01-01 on; none unless there is such a day.
pub fn parse_date(text: &str) -> Option<i64> {
    let (sign, text) = match text.strip_prefix(['-', '+']) {
        Some(rest) if text.starts_with('-') => (-1, rest),
        Some(rest) => (1, rest),
        None => (1, text),
    };
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let plain = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.next().is_some()
        || year.len() < 4
        || !plain(year, 7)
        || !plain(month, 2)
        || !plain(day, 2)
    {
        return None;
    }
    let (year, month, day) =
        (sign * year.parse::<i64>().ok()?, month.parse().ok()?, day.parse().ok()?);
    let number = days(year, month, day);
    (civil(number) == (year, month, day)).then_some(number)
}

/// A time or a span that is written out (`23:59`, `-838:59:59.5`), in microseconds.
pub fn parse_time(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.split(':');
    let (hours, minutes) = (parts.next()?, parts.next()?);
    let seconds = parts.next().unwrap_or("0");
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let number = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<i64>().ok()).flatten()
    };
    let (minutes, seconds) = (number(minutes)?, number(seconds)?);
    if parts.next().is_some() || minutes > 59 || seconds > 60 || fraction.len() > 9 {
        return None;
    }
    // Nanoseconds that are not zero would be lost.
    let places = format!("{fraction:0<9}");
    let (micros, rest) = places.split_at_checked(6)?;
    if rest.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let whole = number(hours)?.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?;
    let micros = whole.checked_mul(1_000_000)?.checked_add(number(micros)?)?;
    Some(if negative { -micros } else { micros })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(micros: i64) -> String {
        let mut bytes = Vec::new();
        write_moment(&mut bytes, micros);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn days_and_dates_are_each_other() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(DAYS_TO_2000), (2000, 1, 1));
        assert_eq!(civil(days(2024, 2, 29)), (2024, 2, 29));
        for day in (-1_000_000..4_000_000).step_by(97) {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }

    #[test]
    fn moments_are_written_and_read() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(-1), "1969-12-31 23:59:59.999999");
        assert_eq!(moment(1_500_000), "1970-01-01 00:00:01.5");
        assert_eq!(moment(days(-43, 3, 15) * DAY_MICROS), "-0043-03-15 00:00:00");
        assert_eq!(moment(days(12_345, 1, 2) * DAY_MICROS), "+12345-01-02 00:00:00");
        for text in ["2024-02-29 23:59:59.25", "1999-12-31 00:00:00", "-0043-03-15 01:02:03"] {
            assert_eq!(moment(parse_moment(text.as_bytes()).unwrap()), text);
        }
        for (text, expected) in [
            ("2024-02-29T12:00:00Z", "2024-02-29 12:00:00"),
            ("2024-02-29 12:00:00.500000", "2024-02-29 12:00:00.5"),
            ("2024-02-29 12:00:00+02:00", "2024-02-29 10:00:00"),
            ("2024-02-29 12:00", "2024-02-29 12:00:00"),
            ("2024-02-29", "2024-02-29 00:00:00"),
        ] {
            assert_eq!(moment(parse_moment(text.as_bytes()).unwrap()), expected);
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "infinity",
            "0000-00-00 00:00:00",
            "2023-02-29",
            "2024-13-01",
            "24-01-01",
            "2024-01-01 12",
            "2024-01-01 12:00:00.0000001",
            "2024-01-01 25:00:00",
        ] {
            assert_eq!(parse_moment(text.as_bytes()), None, "{text}");
        }
    }
}
