//! Durations as typed on the command line: `500ms`, `10s`, `1.5h`, `1m30s`, `1d`, `0`.
//!
//! Numbers, each with its unit, the larger units first. A bare number is refused, because seconds and milliseconds are
//! both plausible; only `0` needs no unit. Nothing is rounded: a fraction must come to whole milliseconds.

use std::time::Duration;

/// Longest duration accepted. Far beyond any sensible wait or lease, and small enough that adding
/// it to a clock can never overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Shortest lease that is renewed: it has room for three renewals, each with time for an answer.
pub(crate) const SHORTEST_TTL: Duration = Duration::from_millis(300);

/// Units with their milliseconds, the largest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 24 * 60 * 60 * 1_000),
    ("h", 60 * 60 * 1_000),
    ("m", 60 * 1_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses one duration; the error is a phrase that clap appends to the offending value.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut millis = Some(0_u64);
    while !rest.is_empty() || rest.len() == text.len() {
        let (number, behind) = split(rest, |byte| byte.is_ascii_digit());
        let (fraction, behind) = match behind.strip_prefix('.') {
            Some(behind) => split(behind, |byte| byte.is_ascii_digit()),
            None => ("", behind),
        };
        let (unit, behind) = split(behind, |byte| !byte.is_ascii_digit());
        if number.is_empty() {
            return Err(format!("a duration starts with a number, {EXAMPLES}"));
        }
        if unit.is_empty() {
            return Err(format!("the unit is missing (`{text}s`?), {EXAMPLES}"));
        }
        let known = UNITS.iter().any(|(name, _)| *name == unit);
        let Some((_, in_millis)) = units.find(|(name, _)| *name == unit) else {
            return Err(match known {
                true => format!("larger units come first, each once, {EXAMPLES}"),
                false => format!("the unit must be ms, s, m, h or d, {EXAMPLES}"),
            });
        };
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*in_millis));
        let fraction = millis_of(fraction, *in_millis).ok_or("finer than a millisecond")?;
        millis =
            millis.zip(part).and_then(|(sum, part)| sum.checked_add(part)?.checked_add(fraction));
        rest = behind;
    }
    match millis.map(Duration::from_millis) {
        Some(duration) if duration <= LONGEST => Ok(duration),
        _ => Err("longer than a year".to_owned()),
    }
}

/// The milliseconds of a fraction of a unit, given as its digits; `None` if they are not whole.
fn millis_of(fraction: &str, in_millis: u64) -> Option<u64> {
    let digits = fraction.trim_end_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    // No fraction of a day that comes to whole milliseconds has more digits.
    let scale =
        10_u64.checked_pow(u32::try_from(digits.len()).ok()?).filter(|_| digits.len() <= 10)?;
    let scaled = digits.parse::<u64>().ok()?.checked_mul(in_millis)?;
    (scaled % scale == 0).then_some(scaled / scale)
}

/// Parses a number of seconds, as flock(1) has it, or a duration with its units.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    parse(&if is_bare { format!("{text}s") } else { text.to_owned() })
}

/// Splits `text` after the leading bytes that satisfy `belongs`.
fn split(text: &str, belongs: impl Fn(u8) -> bool) -> (&str, &str) {
    // A byte that is not a digit may be part of a longer character; a digit never is.
    text.split_at(text.bytes().take_while(|byte| belongs(*byte)).count())
}

/// Parses a duration that must not be zero, such as a lease.
pub(crate) fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("must be longer than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses the length of a renewed lease. The library has the same bounds under another name.
pub(crate) fn parse_ttl(text: &str) -> Result<Duration, String> {
    match parse_positive(text)? {
        duration if duration < SHORTEST_TTL => Err("must be 300ms or longer".to_owned()),
        duration => Ok(duration),
    }
}

/// Writes a duration for people, in the largest unit that loses nothing worth reading.
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

const EXAMPLES: &str = "as in 500ms, 10s, 1m30s, 1.5h, 1d or 0";

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
            ("1m30s", 90_000),
            ("1s500ms", 1_500),
            ("1d", 24 * 3_600_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("365d", 365 * 24 * 3_600_000),
            ("1.5s", 1_500),
            ("0.001s", 1),
            ("1.000000s", 1_000),
            ("1.s", 1_000),
            ("0.5d", 12 * 3_600_000),
            ("1.5h0.5m", 90 * 60_000 + 30_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn refused_with_the_reason() {
        for (text, reason) in [
            ("", "starts with a number"),
            ("s", "starts with a number"),
            ("-1s", "starts with a number"),
            ("+1s", "starts with a number"),
            (" 1s", "starts with a number"),
            ("\u{0661}s", "starts with a number"),
            ("10", "unit is missing (`10s`?)"),
            ("00", "unit is missing"),
            ("1m30", "unit is missing (`1m30s`?)"),
            ("1.5", "unit is missing (`1.5s`?)"),
            ("0.5ms", "finer than a millisecond"),
            ("1.0005s", "finer than a millisecond"),
            ("0.000000001d", "finer than a millisecond"),
            ("1.5.5s", "unit must be"),
            ("1,5s", "unit must be"),
            (".5s", "starts with a number"),
            ("1..5s", "unit must be"),
            ("1 s", "unit must be"),
            ("1S", "unit must be"),
            ("1w", "unit must be"),
            ("1s ", "unit must be"),
            ("1m 30s", "unit must be"),
            ("30s1m", "larger units come first"),
            ("1s1s", "larger units come first"),
            ("1s\u{0}", "unit must be"),
            ("1\u{0661}s", "unit must be"),
            ("364d24h1ms", "longer than a year"),
            ("366d", "longer than a year"),
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
    fn seconds_without_a_unit() {
        for (text, millis) in [("5", 5_000), ("0", 0), ("0.25", 250), ("2m", 120_000)] {
            assert_eq!(parse_seconds(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", ".", ".5", "x", "-1", "0.0001"] {
            assert!(parse_seconds(text).is_err(), "{text}");
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
