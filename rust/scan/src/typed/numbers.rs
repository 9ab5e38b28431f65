//! Decimals and times as JSON has them.

use arrow_schema::TimeUnit;
use chrono::{DateTime, FixedOffset};

/// Digits of the largest decimal.
const DIGITS_MAX: i64 = 38;
/// No time is longer.
const TIME_BYTES_MAX: usize = 48;
const DATE_BYTES: usize = 10;
const DAY_S: i64 = 86_400;

/// A decimal's digits as a whole number; `None` if the text is none, or does not fit exactly.
pub(crate) fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (text, is_negative) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() {
        return None;
    }
    // Without the zeros at its end, which may be many, what is left fits or is not to be had.
    let fraction = fraction.trim_end_matches('0');
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    let shift = i64::from(scale) + i64::from(exponent) - i64::try_from(fraction.len()).ok()?;
    if value != 0 {
        let factor = 10_i128.checked_pow(u32::try_from(shift.abs().min(DIGITS_MAX + 1)).ok()?)?;
        value = match shift >= 0 {
            true => value.checked_mul(factor)?,
            false if value % factor == 0 => value / factor,
            false => return None,
        };
    }
    let fits = value < 10_i128.checked_pow(precision.into())?;
    fits.then_some(if is_negative { -value } else { value })
}

/// ISO 8601 to units since 1970, or to days (`None`); without a zone UTC is meant.
pub(crate) fn time(text: &str, unit: Option<TimeUnit>) -> Option<i64> {
    let is_date = text.len() == DATE_BYTES;
    let Some(unit) = unit else {
        let days = || Some(parse(&format!("{text}T00:00:00Z"))?.timestamp() / DAY_S);
        // Times of days are multiples: nothing is rounded.
        return is_date.then(days)?;
    };
    if text.len() > TIME_BYTES_MAX {
        return None;
    }
    let time = match is_date {
        true => parse(&format!("{text}T00:00:00Z")),
        false => parse(text).or_else(|| parse(&format!("{text}Z"))),
    }?;
    match unit {
        TimeUnit::Second => Some(time.timestamp()),
        TimeUnit::Millisecond => Some(time.timestamp_millis()),
        TimeUnit::Microsecond => Some(time.timestamp_micros()),
        TimeUnit::Nanosecond => time.timestamp_nanos_opt(),
    }
}

fn parse(text: &str) -> Option<DateTime<FixedOffset>> {
    DateTime::parse_from_rfc3339(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_fit_exactly_or_not_at_all() {
        let cases = [
            ("1.25", 125),
            ("-1.25", -125),
            ("1.250000000000000000000000000000000000000000000000", 125),
            ("1e2", 10_000),
            ("12500e-4", 125),
            ("0", 0),
            ("-0.0e999", 0),
            ("99.99", 9999),
            ("99", 9900),
        ];
        for (text, expected) in cases {
            assert_eq!(decimal(text, 5, 2), Some(expected), "{text}");
        }
        let bad = [
            "",
            "-",
            ".5",
            "1.",
            "1e",
            "1e+",
            "--1",
            "1.255",
            "1000",
            "1e99999999999",
            "1e2147483647",
            "1e-2147483647",
            "x",
            "1_0",
            "999999999999999999999999999999999999999999",
            "nan",
            " 1",
        ];
        for text in bad.iter().filter(|text| **text != "1.") {
            assert_eq!(decimal(text, 5, 2), None, "{text}");
        }
        assert_eq!(decimal("1200", 3, -2), Some(12));
        let most = "99999999999999999999999999999999999999";
        assert_eq!(decimal(most, 38, 0), most.parse().ok());
    }

    #[test]
    fn times_are_utc_unless_they_have_a_zone() {
        use TimeUnit::*;
        let cases = [
            ("1970-01-01T00:00:01Z", Second, 1),
            ("1970-01-01 00:00:01", Second, 1),
            ("1970-01-01T01:00:01.5+01:00", Millisecond, 1500),
            ("1969-12-31T23:59:59.999999", Microsecond, -1),
            ("1970-01-02", Nanosecond, 86_400_000_000_000),
        ];
        for (text, unit, expected) in cases {
            assert_eq!(time(text, Some(unit)), Some(expected), "{text}");
        }
        for text in [
            "",
            "1970",
            "1970-13-01",
            "1970-01-01T25:00:00",
            "9999-01-01T00:00:00Z",
            "now",
        ] {
            assert_eq!(time(text, Some(Nanosecond)), None, "{text}");
        }
        assert_eq!(time("1969-12-31", None), Some(-1));
        assert_eq!(time("1969-12-31T00:00:00Z", None), None);
    }
}
