//! The results, as a table for people and as JSON for programs.
//!
//! For rates and percentiles this is the median of the rounds. A ratio is the median of the rounds' own ratios, so
//! that a machine that is slow for a while is slow on both sides.

use std::time::Duration;

use serde_json::{Value, json};

use super::plan::Step;
use super::times::median;
use super::work::{Measured, Renewals};

/// With fewer renewals, the cost of one to this process is lost in the noise.
const RENEWALS_MIN: f64 = 50.0;

/// A step and its results in each round.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) step: Step,
    pub(super) rounds: Vec<Measured>,
}

impl Series {
    /// The median of the rounds, in seconds.
    pub(super) fn seconds(&self, percent: u64) -> Option<f64> {
        median(self.each(percent).into_iter().flatten())
    }

    fn each(&self, percent: u64) -> Vec<Option<f64>> {
        let of = |round: &Measured| round.times.percentile(percent).map(|time| time.as_secs_f64());
        self.rounds.iter().map(of).collect()
    }

    fn max(&self) -> Option<f64> {
        self.rounds.iter().filter_map(|round| round.times.max()).max().map(|max| max.as_secs_f64())
    }

    pub(super) fn per_second(&self) -> Option<f64> {
        median(self.rounds.iter().map(|round| round.per_second))
    }

    /// The p50 as a multiple of the other step's.
    fn of_p50(&self, other: &Self) -> Option<f64> {
        let pairs = self.each(50).into_iter().zip(other.each(50));
        median(pairs.filter_map(|(mine, theirs)| Some(mine? / theirs?)))
    }

    /// The rate as a part of the other step's.
    fn of_rate(&self, other: &Self) -> Option<f64> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        median(pairs.map(|(mine, theirs)| mine.per_second / theirs.per_second))
    }
}

/// All results.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) series: Vec<Series>,
    /// The first one is without locks.
    pub(super) renewals: Vec<(u32, Renewals)>,
}

impl Results {
    pub(super) fn add(&mut self, step: Step, measured: Measured) {
        match self.series.iter_mut().find(|series| series.step == step) {
            Some(series) => series.rounds.push(measured),
            None => self.series.push(Series { step, rounds: vec![measured] }),
        }
    }

    pub(super) fn of(&self, step: Step) -> Option<&Series> {
        self.series.iter().find(|series| series.step == step)
    }

    /// The time of a step in multiples of two round trips, or of one; or the part of the raw rate that it reaches.
    fn beside(&self, series: &Series) -> Option<(f64, &'static str)> {
        let ping = self.of(Step::Ping)?;
        match series.step {
            Step::Tasks(1) => Some((series.of_p50(ping)? / 2.0, "x two PINGs")),
            Step::Tasks(_) => Some((series.of_rate(self.of(Step::Raw)?)?, "of the raw scripts")),
            Step::Waiters(_) => Some((series.of_p50(ping)?, "x PING")),
            _ => None,
        }
    }

    /// Processor time of this process for each renewal, in microseconds.
    fn cpu_us(&self, of: &Renewals) -> Option<f64> {
        let (_, idle) = self.renewals.first()?;
        let used = of.cpu - idle.cpu;
        let seen = of.renewals_per_second >= RENEWALS_MIN && used > 0.0;
        seen.then(|| used / of.renewals_per_second * 1e6)
    }

    /// The results as two tables.
    pub(super) fn table(&self) -> String {
        let mut rows = vec![["", "p50", "p99", "max", "a second", "beside"].map(str::to_owned)];
        for series in &self.series {
            let time = |seconds: Option<f64>| seconds.map_or_else(none, human);
            let beside = self.beside(series).map(|(ratio, of)| format!("{ratio:.2} {of}"));
            rows.push([
                series.step.name(),
                time(series.seconds(50)),
                time(series.seconds(99)),
                time(series.max()),
                series.per_second().map_or_else(none, |rate| format!("{rate:.0}")),
                beside.unwrap_or_default(),
            ]);
        }
        let mut text = aligned(&rows, true);
        let heads = ["held locks", "renewals/s", "own CPU each", "PING p50", "p99", "max"];
        let mut rows = vec![heads.map(str::to_owned)];
        for (held, seen) in &self.renewals {
            let time = |time: Option<Duration>| time.map_or_else(none, |t| human(t.as_secs_f64()));
            rows.push([
                held.to_string(),
                match seen.renewals_per_second {
                    rate if rate < 10.0 => format!("{rate:.1}"),
                    rate => format!("{rate:.0}"),
                },
                self.cpu_us(seen).map_or_else(none, |us| human(us / 1e6)),
                time(seen.pings.percentile(50)),
                time(seen.pings.percentile(99)),
                time(seen.pings.max()),
            ]);
        }
        text.push('\n');
        text.push_str(&aligned(&rows, false));
        text
    }

    /// The measured fields of `--json`.
    pub(super) fn form(&self) -> Value {
        let rates = |series: &Series, what: &str| {
            let mut form = json!({
                "p50_us": us(series.seconds(50)),
                "p99_us": us(series.seconds(99)),
                "max_us": us(series.max()),
            });
            form[what] = number(series.per_second());
            form
        };
        let ratio = |series: &Series| number(self.beside(series).map(|(ratio, _)| ratio));
        let (mut uncontended, mut contended) = (Vec::new(), Vec::new());
        for series in &self.series {
            match series.step {
                Step::Tasks(tasks) => {
                    let mut form = rates(series, "pairs_per_second");
                    form["tasks"] = tasks.into();
                    let what = if tasks == 1 { "of_two_pings" } else { "of_raw_scripts" };
                    form[what] = ratio(series);
                    uncontended.push(form);
                }
                Step::Waiters(waiters) => {
                    let mut form = rates(series, "turns_per_second");
                    form["waiters"] = waiters.into();
                    form["of_ping"] = ratio(series);
                    contended.push(form);
                }
                Step::Ping | Step::Raw | Step::Held(_) => {}
            }
        }
        let time = |time: Option<Duration>| us(time.map(|time| time.as_secs_f64()));
        let renewals: Vec<_> = self
            .renewals
            .iter()
            .map(|(held, seen)| {
                json!({
                    "held": held,
                    "renewals_per_second": number(Some(seen.renewals_per_second)),
                    "own_cpu_us": number(self.cpu_us(seen)),
                    "ping_p50_us": time(seen.pings.percentile(50)),
                    "ping_p99_us": time(seen.pings.percentile(99)),
                    "ping_max_us": time(seen.pings.max()),
                    "lost": seen.lost,
                })
            })
            .collect();
        let raw = self.of(Step::Raw).and_then(Series::per_second);
        json!({
            "ping": self.of(Step::Ping).map(|series| rates(series, "per_second")),
            "raw_scripts": raw.map(|rate| json!({ "pairs_per_second": number(Some(rate)) })),
            "uncontended": uncontended,
            "contended": contended,
            "renewals": renewals,
        })
    }
}

/// Three digits and the fitting unit.
pub(super) fn human(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "us"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {unit}")
}

fn none() -> String {
    "-".to_owned()
}

fn us(seconds: Option<f64>) -> Value {
    number(seconds.map(|seconds| seconds * 1e6))
}

/// Rounded to thousandths, the precision of the measurement.
fn number(value: Option<f64>) -> Value {
    value.map(|value| (value * 1e3).round() / 1e3).into()
}

/// Numbers are aligned right; the first column, and the last one if it is text, left.
fn aligned<const N: usize>(rows: &[[String; N]], ends_with_text: bool) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            line += &match at {
                0 => format!("{cell:<width$}"),
                _ if ends_with_text && at == N - 1 => format!("  {cell}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(micros: u64, per_second: f64) -> Measured {
        let mut measured = Measured { per_second, ..Measured::default() };
        measured.times.add(Duration::from_micros(micros));
        measured
    }

    fn results() -> Results {
        let mut results = Results::default();
        // During the second round the machine was slow.
        for slower in [1, 10, 1] {
            let rate = 1_000.0 / slower as f64;
            results.add(Step::Ping, measured(50 * slower, rate));
            results.add(Step::Raw, measured(0, rate * 20.0));
            results.add(Step::Tasks(1), measured(110 * slower, rate * 9.0));
            results.add(Step::Tasks(64), measured(900 * slower, rate * 18.0));
            results.add(Step::Waiters(10), measured(70 * slower, rate * 12.0));
        }
        let seen =
            |renewals_per_second, cpu| Renewals { renewals_per_second, cpu, ..Default::default() };
        results.renewals =
            vec![(0, seen(0.0, 0.1)), (1, seen(1.0, 0.1)), (1_000, seen(1_000.0, 0.2))];
        results
    }

    #[test]
    fn ratios_are_those_of_the_rounds() {
        let form = results().form();
        let near =
            |value: &Value, wanted: f64| (value.as_f64().unwrap() / wanted - 1.0).abs() < 0.01;
        assert!(near(&form["uncontended"][0]["of_two_pings"], 1.1), "{form}");
        assert!(near(&form["uncontended"][1]["of_raw_scripts"], 0.9), "{form}");
        assert!(near(&form["contended"][0]["of_ping"], 1.4), "{form}");
        assert!(near(&form["ping"]["p50_us"], 50.0), "{form}");
        assert!(near(&form["ping"]["max_us"], 500.0), "{form}");
        assert!(near(&form["renewals"][2]["own_cpu_us"], 100.0), "{form}");
        assert!(form["renewals"][1]["own_cpu_us"].is_null(), "{form}");
    }

    #[test]
    fn what_was_not_measured_is_not_made_up() {
        let mut results = results();
        results.series.retain(|series| !matches!(series.step, Step::Ping | Step::Raw));
        let form = results.form();
        assert!(form["ping"].is_null() && form["raw_scripts"].is_null(), "{form}");
        assert!(form["uncontended"][0]["of_two_pings"].is_null(), "{form}");
        assert!(!results.table().contains("x PING"), "{}", results.table());
    }

    #[test]
    fn a_table_has_aligned_columns() {
        let table = results().table();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].trim_start().starts_with("p50"), "{table}");
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("10 waiters") && line.ends_with("1.40 x PING")),
            "{table}"
        );
        let end = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
        assert_eq!(
            end(lines[0], "p50"),
            end(lines[1], "50.0 us").or_else(|| end(lines[1], "49.9 us")),
            "{table}"
        );
    }

    #[test]
    fn times_for_people() {
        for (seconds, text) in
            [(71.23e-6, "71.2 us"), (999e-6, "999 us"), (1.234e-3, "1.23 ms"), (2.0, "2.00 s")]
        {
            assert_eq!(human(seconds), text);
        }
    }
}
