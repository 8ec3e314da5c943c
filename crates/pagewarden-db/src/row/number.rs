//! Numbers: whole, decimal and binary ones in one form.
//!
//! The payload is text: an optional minus, the digits without zeros at either end,
//! and, unless it is zero, `e` and a power of ten: `0`, `-5`, `12e3`, `12345e-2`.
//! `NaN`, `inf` and `-inf` are as they are called.
//!
//! A binary number is the shortest decimal that is read back as itself, so that
//! different ones stay different, and one that was meant as `1.1` equals the decimal
//! 1.1. Negative zero is zero, as it is in SQL.

use std::cmp::Ordering;

/// A number that was written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal<'a> {
    negative: bool,
    /// Digits, in which there may be a point.
    digits: &'a [u8],
    /// The power of ten of the last digit.
    exponent: i64,
}

impl<'a> Decimal<'a> {
    /// Takes a number apart: `-12.50`, `1e-7`, `.5`. None if it is no such number.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let (negative, rest) = match text.split_first()? {
            (b'-', rest) => (true, rest),
            (b'+', rest) => (false, rest),
            _ => (false, text),
        };
        let mantissa = rest.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (digits, power) = match mantissa {
            Some(at) => (rest.get(..at)?, parse_power(rest.get(at + 1..)?)?),
            None => (rest, 0),
        };
        let mut fraction: Option<i64> = None;
        let mut any = false;
        for byte in digits {
            match (byte, &mut fraction) {
                (b'0'..=b'9', places) => {
                    any = true;
                    if let Some(places) = places {
                        *places += 1;
                    }
                }
                (b'.', None) => fraction = Some(0),
                _ => return None,
            }
        }
        any.then_some(Self { negative, digits, exponent: power - fraction.unwrap_or(0) })
    }

    /// The number of some digits and the power of ten of the last of them.
    pub fn of_digits(negative: bool, digits: &'a [u8], exponent: i64) -> Self {
        Self { negative, digits, exponent }
    }

    /// Appends the canonical form.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let begin = bytes.len();
        if self.negative {
            bytes.push(b'-');
        }
        let first = bytes.len();
        for digit in self.digits.iter().filter(|byte| **byte != b'.') {
            if *digit != b'0' || bytes.len() > first {
                bytes.push(*digit);
            }
        }
        let mut exponent = self.exponent;
        while bytes.len() > first && bytes.last() == Some(&b'0') {
            bytes.pop();
            exponent += 1;
        }
        if bytes.len() == first {
            bytes.truncate(begin);
            bytes.push(b'0');
        } else if exponent != 0 {
            bytes.push(b'e');
            write_digits(bytes, exponent < 0, exponent.unsigned_abs());
        }
    }
}

fn parse_power(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse::<i32>().ok().map(i64::from)
}

/// Appends a whole number.
pub fn write_integer(bytes: &mut Vec<u8>, negative: bool, magnitude: u64) {
    if magnitude == 0 {
        bytes.push(b'0');
        return;
    }
    let mut rest = magnitude;
    let mut zeros = 0_u8;
    while rest.is_multiple_of(10) {
        rest /= 10;
        zeros += 1;
    }
    write_digits(bytes, negative, rest);
    if zeros > 0 {
        bytes.push(b'e');
        if zeros >= 10 {
            bytes.push(b'1');
        }
        bytes.push(b'0' + zeros % 10);
    }
}

/// Appends a whole number divided by a power of ten.
pub fn write_scaled(bytes: &mut Vec<u8>, negative: bool, magnitude: u64, scale: u32) {
    let mut rest = magnitude;
    let mut exponent = -i64::from(scale);
    if rest == 0 {
        bytes.push(b'0');
        return;
    }
    while rest.is_multiple_of(10) {
        rest /= 10;
        exponent += 1;
    }
    write_digits(bytes, negative, rest);
    if exponent != 0 {
        bytes.push(b'e');
        write_digits(bytes, exponent < 0, exponent.unsigned_abs());
    }
}

/// Appends the digits of a whole number that is not zero, as they are.
pub fn write_digits(bytes: &mut Vec<u8>, negative: bool, magnitude: u64) {
    // 2^64 has twenty digits.
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = magnitude;
    while rest > 0 {
        first -= 1;
        if let Some(place) = digits.get_mut(first) {
            *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        }
        rest /= 10;
    }
    if negative {
        bytes.push(b'-');
    }
    bytes.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Appends a binary floating-point number.
pub fn write_float(bytes: &mut Vec<u8>, value: f64) {
    /// Up to here doubles count every whole number.
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    if value.is_nan() {
        bytes.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        bytes.extend_from_slice(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value.abs() < WHOLE && value.trunc() == value {
        #[allow(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        let whole = value as i64;
        write_integer(bytes, whole < 0, whole.unsigned_abs());
    } else {
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(value);
        if let Some(decimal) = Decimal::parse(text.as_bytes()) {
            decimal.write(bytes);
        }
    }
}

/// The sign, digits and power of ten of a canonical number; none of one that is not finite.
pub fn parts(payload: &[u8]) -> Option<(bool, &[u8], i64)> {
    let (negative, rest) = match payload.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, payload),
    };
    let (digits, exponent) = match rest.iter().position(|byte| *byte == b'e') {
        Some(at) => (rest.get(..at)?, parse_power(rest.get(at + 1..)?)?),
        None => (rest, 0),
    };
    digits.iter().all(u8::is_ascii_digit).then_some((negative, digits, exponent))
}

/// A canonical number as people and SQL write it: `12000`, `-0.05`, `1e400`. None of
/// one that is not finite.
pub fn plain(payload: &[u8]) -> Option<String> {
    /// Longer ones keep their power of ten.
    const PLAIN_MAX: i64 = 1000;
    let (negative, digits, exponent) = parts(payload)?;
    let digits = std::str::from_utf8(digits).ok()?;
    let sign = if negative { "-" } else { "" };
    let count = i64::try_from(digits.len()).ok()?;
    if exponent.abs() > PLAIN_MAX {
        return Some(format!("{sign}{digits}e{exponent}"));
    }
    if exponent >= 0 {
        let zeros = "0".repeat(usize::try_from(exponent).ok()?);
        return Some(format!("{sign}{digits}{zeros}"));
    }
    let point = count + exponent;
    if point > 0 {
        let (whole, fraction) = digits.split_at_checked(usize::try_from(point).ok()?)?;
        return Some(format!("{sign}{whole}.{fraction}"));
    }
    let zeros = "0".repeat(usize::try_from(-point).ok()?);
    Some(format!("{sign}0.{zeros}{digits}"))
}

/// A canonical number, if it is whole and not too large.
pub fn whole(payload: &[u8]) -> Option<i128> {
    plain(payload)?.parse().ok()
}

/// The order of two canonical numbers; none if one is not finite.
pub fn compare(one: &[u8], other: &[u8]) -> Option<Ordering> {
    let (one_negative, one_digits, one_power) = parts(one)?;
    let (other_negative, other_digits, other_power) = parts(other)?;
    let one_sign = sign(one_negative, one_digits);
    let other_sign = sign(other_negative, other_digits);
    if one_sign != other_sign || one_sign == 0 {
        return Some(one_sign.cmp(&other_sign));
    }
    // The place of the first digit decides, then the digits, which end in no zero.
    let place = |digits: &[u8], power: i64| i64::try_from(digits.len()).map(|count| count + power);
    let magnitude = place(one_digits, one_power)
        .ok()?
        .cmp(&place(other_digits, other_power).ok()?)
        .then_with(|| one_digits.cmp(other_digits));
    Some(if one_negative { magnitude.reverse() } else { magnitude })
}

fn sign(negative: bool, digits: &[u8]) -> i8 {
    match (digits, negative) {
        (b"0", _) => 0,
        (_, true) => -1,
        (_, false) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> String {
        let mut bytes = Vec::new();
        Decimal::parse(text.as_bytes()).unwrap().write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    fn float(value: f64) -> String {
        let mut bytes = Vec::new();
        write_float(&mut bytes, value);
        String::from_utf8(bytes).unwrap()
    }

    fn integer(value: i64) -> String {
        let mut bytes = Vec::new();
        write_integer(&mut bytes, value < 0, value.unsigned_abs());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn one_number_has_one_form() {
        for (expected, texts) in [
            ("0", ["0", "-0.00", "0e7", ".0"]),
            ("5", ["5", "+5.", "5.000", "0.5e1"]),
            ("-12e3", ["-12000", "-12e3", "-012000.00", "-1.2E4"]),
            ("12345e-2", ["123.45", "123.4500", "12345e-2", "0.12345e3"]),
        ] {
            for text in texts {
                assert_eq!(decimal(text), expected, "{text}");
            }
        }
        assert_eq!(integer(12000), "12e3");
        assert_eq!(integer(-7), "-7");
        assert_eq!(integer(0), "0");
        assert_eq!(integer(i64::MIN), "-9223372036854775808");
        assert_eq!(integer(1_000_000_000_000_000_000), "1e18");
        assert_eq!(integer(10_000_000_000), "1e10");
    }

    #[test]
    fn doubles_stay_apart_and_meet_decimals() {
        assert_eq!(float(1.1), decimal("1.1"));
        assert_eq!(float(-0.0), "0");
        assert_eq!(float(1e15), "1e15");
        assert_eq!(float(1e-5), decimal("0.00001"));
        assert_eq!(float(1e300), "1e300");
        assert_eq!(float(0.1 + 0.2), decimal("0.30000000000000004"));
        assert_ne!(float(0.3), float(0.1 + 0.2));
        assert_eq!(float(f64::from(0.1_f32)), decimal("0.10000000149011612"));
        assert_eq!(float(5e-324), "5e-324");
        assert_eq!(float(f64::NAN), "NaN");
        assert_eq!(float(f64::NEG_INFINITY), "-inf");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".", "e5", "1.2.3", "12a", "0x10", "NaN", "1e", "1 "] {
            assert_eq!(Decimal::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn canonical_numbers_are_written_plainly() {
        for text in ["0", "5", "-12000", "123.45", "0.00001", "-0.5", "99999999999999999999.25"] {
            assert_eq!(plain(decimal(text).as_bytes()).as_deref(), Some(text));
        }
        assert_eq!(plain(b"1e4000").as_deref(), Some("1e4000"));
        assert_eq!(plain(b"NaN"), None);
    }

    #[test]
    fn canonical_numbers_have_the_order_of_numbers() {
        let ordered =
            ["-100", "-12.5", "-12", "-0.1", "0", "0.09", "0.1", "1", "2", "10", "11", "100"];
        for (i, one) in ordered.iter().enumerate() {
            for (j, other) in ordered.iter().enumerate() {
                let order = compare(decimal(one).as_bytes(), decimal(other).as_bytes());
                assert_eq!(order, Some(i.cmp(&j)), "{one} {other}");
            }
        }
        assert_eq!(compare(b"NaN", b"1"), None);
    }
}
