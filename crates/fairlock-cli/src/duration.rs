//! Durations as they are written on the command line: `500ms`, `10s`, `5m`, `1h`, `0`.
//!
//! One whole number and one unit. A bare number is refused, because seconds and milliseconds are
//! both plausible; only `0` needs no unit. No fractions: `1500ms` says it without rounding.

use std::time::Duration;

/// Longest duration accepted. Far beyond any sensible wait or lease, and small enough that adding
/// it to a clock can never overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Parses one duration; the error is a phrase that clap puts behind the offending value.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("a duration starts with a whole number, {EXAMPLES}"));
    }
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60 * 1_000,
        "h" => 60 * 60 * 1_000,
        "" => return Err(format!("the unit is missing, {EXAMPLES}")),
        _ => return Err(format!("the unit must be ms, s, m or h, {EXAMPLES}")),
    };
    let millis = number.parse::<u64>().ok().and_then(|n| n.checked_mul(millis_per_unit));
    match millis.map(Duration::from_millis) {
        Some(duration) if duration <= LONGEST => Ok(duration),
        _ => Err("longer than a year".to_owned()),
    }
}

/// Parses a duration that must not be zero, as a lease.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be longer than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// Writes a duration for people: the largest unit that loses nothing worth reading.
pub(crate) fn human(duration: Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0 => format!("{}ms", duration.as_millis()),
        1..=59 if duration.subsec_millis() >= 100 => {
            format!("{secs}.{}s", duration.subsec_millis() / 100)
        }
        1..=59 => format!("{secs}s"),
        60..=3599 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format!("{}h{:02}m", secs / 3600, secs / 60 % 60),
    }
}

const EXAMPLES: &str = "as in 500ms, 10s, 5m, 1h or 0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("1ms", 1),
            ("500ms", 500),
            ("10s", 10_000),
            ("007s", 7_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("8760h", 365 * 24 * 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refused_with_the_reason() {
        for (text, reason) in [
            ("", "starts with a whole number"),
            ("s", "starts with a whole number"),
            ("-1s", "starts with a whole number"),
            ("+1s", "starts with a whole number"),
            (" 1s", "starts with a whole number"),
            ("\u{0661}s", "starts with a whole number"),
            ("10", "unit is missing"),
            ("00", "unit is missing"),
            ("1.5s", "unit must be"),
            ("1 s", "unit must be"),
            ("1S", "unit must be"),
            ("1d", "unit must be"),
            ("1s ", "unit must be"),
            ("1m30s", "unit must be"),
            ("1s\u{0}", "unit must be"),
            ("8761h", "longer than a year"),
            ("18446744073709551615h", "longer than a year"),
            ("18446744073709551616ms", "longer than a year"),
            ("99999999999999999999999999999999999999s", "longer than a year"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_lease_of_nothing_is_refused() {
        for text in ["0", "0ms", "0h"] {
            assert!(parse_positive(text).is_err(), "{text}");
        }
        assert_eq!(parse_positive("1ms"), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn for_people() {
        for (millis, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_250, "1.2s"),
            (59_999, "59.9s"),
            (60_000, "1m00s"),
            (3_599_000, "59m59s"),
            (3_660_000, "1h01m"),
        ] {
            assert_eq!(human(Duration::from_millis(millis)), text);
        }
    }
}
