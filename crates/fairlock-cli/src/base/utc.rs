//! Times of day, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As RFC 3339 writes it, to the second: `2026-11-26T15:49:59Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let secs = time.duration_since(UNIX_EPOCH).map_or(0, |since: Duration| since.as_secs());
    let (days, second) = (secs / 86_400, secs % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day since 1970. Counted from 1 March, so that the day of a leap year is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// From 1 March of the year 0 to 1970.
    const DAYS_BEFORE: u64 = 719_468;
    let days = days + DAYS_BEFORE;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on have 31, 30, 31, 30, 31 days, and again.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `date --utc --date=@N`.
    #[test]
    fn as_date_writes_them() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_708_199, "2026-11-26T15:49:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(secs)), text);
        }
    }
}
