//! The results as an SVG picture with three panels, written by hand: a crate for plots is larger than
//! everything else in this program that draws.

use std::fmt::Write as _;

use super::plan::Step;
use super::report::{Results, human};

const WIDTH: f64 = 370.0;
const HEIGHT: f64 = 320.0;

/// Margins of a panel: left, right, top, bottom. The right one holds half of the last number below the axis.
const ROOM: [f64; 4] = [70.0, 32.0, 68.0, 56.0];

/// The share of its panel that the highest bar takes; its number goes above it.
const HIGHEST: f64 = 0.94;

/// Where an axis may begin and end, and where it has marks, in each decade.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// With more decades, only whole ones are marked.
const DECADES_WITH_STEPS: f64 = 3.0;

const BLUE: &str = "#1f77b4";
const ORANGE: &str = "#ff7f0e";
const GREY: &str = "#888888";

/// Values over a number, in one colour. A grey line is a yardstick.
struct Line {
    name: &'static str,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

/// Draws the picture; `title` says where it was measured.
pub(super) fn svg(results: &Results, title: &str) -> String {
    let mut svg = String::new();
    let total = WIDTH * 3.0;
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT}" width="{total}" height="{HEIGHT}" font-family="sans-serif" font-size="11">
<rect width="{total}" height="{HEIGHT}" fill="white"/>"#
    );
    text(&mut svg, (ROOM[0], 20.0), "start", title);
    bars(&mut svg, 0.0, results);
    let waiters = |value: &dyn Fn(&super::report::Series) -> Option<f64>| {
        let of = |series: &super::report::Series| match series.step {
            Step::Waiters(waiters) => Some((f64::from(waiters), value(series)?)),
            _ => None,
        };
        results.series.iter().filter_map(of).collect::<Vec<_>>()
    };
    let times = waiters(&|series| series.seconds(50));
    let mut lines = Vec::new();
    if let Some(ping) = results.of(Step::Ping).and_then(|series| series.seconds(50)) {
        let points = times.iter().map(|(waiters, _)| (*waiters, ping)).collect();
        lines.push(Line { name: "PING p50", colour: GREY, points });
    }
    lines.push(Line { name: "p50", colour: BLUE, points: times });
    let p99 = waiters(&|series| series.seconds(99));
    lines.push(Line { name: "p99", colour: ORANGE, points: p99 });
    chart(&mut svg, WIDTH, "from release to the next, by waiters", &lines, human);
    let points = waiters(&|series| series.per_second());
    let rate = [Line { name: "turns a second", colour: BLUE, points }];
    chart(&mut svg, WIDTH * 2.0, "turns a second, by waiters", &rate, grouped);
    svg.push_str("</svg>\n");
    svg
}

/// Pairs per second, compared with the server's raw rate.
fn bars(svg: &mut String, left: f64, results: &Results) {
    let [room_left, room_right, top, bottom] = ROOM;
    heading(svg, left, "acquired and released a second");
    let of = |series: &super::report::Series| match series.step {
        Step::Tasks(_) => Some((series.step.name(), BLUE, series.per_second()?)),
        Step::Raw => Some((series.step.name(), GREY, series.per_second()?)),
        _ => None,
    };
    let all: Vec<_> = results.series.iter().filter_map(of).collect();
    let most = all.iter().map(|(_, _, rate)| *rate).fold(1.0, f64::max);
    let step = (WIDTH - room_left - room_right) / all.len().max(1) as f64;
    for (at, (name, colour, rate)) in all.iter().enumerate() {
        let height = (HEIGHT - top - bottom) * HIGHEST * rate / most;
        let (x, y) = (left + room_left + step * at as f64, HEIGHT - bottom - height);
        let width = step * 0.7;
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
        );
        text(svg, (x + width / 2.0, y - 4.0), "middle", &grouped(*rate));
        text(svg, (x + width / 2.0, HEIGHT - bottom + 16.0), "middle", name);
    }
}

/// Lines over a number of waiters; both axes are logarithmic.
fn chart(svg: &mut String, left: f64, title: &str, lines: &[Line], label: impl Fn(f64) -> String) {
    let [room_left, room_right, top, bottom] = ROOM;
    heading(svg, left, title);
    let points = || lines.iter().flat_map(|line| &line.points);
    let Some(xs) = Axis::over(points().map(|point| point.0)) else { return };
    let Some(ys) = Axis::over(points().map(|point| point.1)) else { return };
    let (width, height) = (WIDTH - room_left - room_right, HEIGHT - top - bottom);
    let mut seen: Vec<f64> = points().map(|point| point.0).collect();
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    // A single number of waiters is in the middle, away from the axis.
    let across = |x| if seen.len() == 1 { 0.5 } else { xs.at(x) };
    let position = |(x, y): (f64, f64)| {
        (left + room_left + width * across(x), top + height * (1.0 - ys.at(y)))
    };
    for y in ys.marks() {
        let (_, at) = position((xs.low, y));
        let (from, to) = (left + room_left, left + room_left + width);
        let _ = writeln!(svg, r##"<path d="M{from:.1} {at:.1}H{to:.1}" stroke="#dddddd"/>"##);
        text(svg, (from - 6.0, at + 4.0), "end", &label(y));
    }
    for &x in &seen {
        let (at, _) = position((x, ys.low));
        text(svg, (at, HEIGHT - bottom + 16.0), "middle", &grouped(x));
    }
    for (number, Line { name, colour, points }) in lines.iter().enumerate() {
        let path: Vec<_> = points.iter().map(|point| position(*point)).collect();
        if let [(x, y)] = path[..] {
            // A single point is not a line, and the number beside it says more than an axis.
            text(svg, (x + 8.0, y + 4.0), "start", &label(points[0].1));
        } else {
            let joined: Vec<_> = path.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let joined = joined.join(" ");
            let _ = writeln!(
                svg,
                r#"<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>"#
            );
        }
        for ((x, y), (_, value)) in path.iter().zip(points) {
            let told = label(*value);
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"><title>{name}: {told}</title></circle>"#
            );
        }
        let x = left + room_left + 80.0 * number as f64;
        let y = HEIGHT - 14.0;
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{:.1}" width="10" height="3" fill="{colour}"/>"#,
            y - 5.0
        );
        text(svg, (x + 14.0, y), "start", name);
    }
}

/// From the last step below all values to the first step above: whole decades would waste half of the picture.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let positive = || values.clone().filter(|value| *value > 0.0);
        let (least, most) =
            (positive().min_by(f64::total_cmp)?, positive().max_by(f64::total_cmp)?);
        let low = steps(least).filter(|step| *step <= least).last()?;
        let high = steps(most).find(|step| *step >= most && *step > low)?;
        Some(Self { low, high })
    }

    /// The position of a value, from 0 to 1.
    fn at(&self, value: f64) -> f64 {
        let share = (value / self.low).log10() / (self.high / self.low).log10();
        share.clamp(0.0, 1.0)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        let Self { low, high } = *self;
        let all = (high / low).log10() <= DECADES_WITH_STEPS;
        let whole = |value: f64| value.log10().fract().abs() < 1e-9;
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let near = move |value: &f64| *value >= low * 0.999 && *value <= high * 1.001;
        let every = (first..=last).flat_map(|power| STEPS.map(|step| step * 10_f64.powi(power)));
        every.filter(near).filter(move |value| all || whole(*value))
    }
}

/// The steps of a value's decade and of its neighbours.
fn steps(value: f64) -> impl Iterator<Item = f64> {
    let decade = value.log10().floor() as i32;
    (decade - 1..=decade + 2).flat_map(|power| STEPS.map(|step| step * 10_f64.powi(power)))
}

/// Digits in groups of three.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn heading(svg: &mut String, left: f64, words: &str) {
    text(svg, (left + ROOM[0], ROOM[2] - 16.0), "start", words);
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::work::Measured;
    use super::*;

    fn results() -> Results {
        let mut results = Results::default();
        for (step, micros) in [
            (Step::Ping, 50_u32),
            (Step::Tasks(1), 100),
            (Step::Waiters(2), 80),
            (Step::Waiters(1_000), 900),
        ] {
            let mut measured =
                Measured { per_second: 1e6 / f64::from(micros), ..Default::default() };
            measured.times.add(Duration::from_micros(micros.into()));
            results.add(step, measured);
        }
        results
    }

    #[test]
    fn every_element_is_closed_and_names_are_escaped() {
        let svg = svg(&results(), "redis://<a&b>");
        assert!(svg.contains("redis://&lt;a&amp;b&gt;"), "{svg}");
        for element in ["svg", "text", "title", "circle"] {
            let opened = svg.matches(&format!("<{element} ")).count()
                + svg.matches(&format!("<{element}>")).count();
            assert_eq!(opened, svg.matches(&format!("</{element}>")).count(), "{element}: {svg}");
        }
        // PING, p50, p99 and the rate, at two numbers of waiters.
        assert_eq!(svg.matches("<circle").count(), 8, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    /// It used to be an invisible line of one point, at the left edge.
    #[test]
    fn d29_one_number_of_waiters_is_told_as_a_number() {
        let mut results = results();
        results.series.retain(|series| series.step != Step::Waiters(1_000));
        let svg = svg(&results, "");
        assert!(!svg.contains("<polyline"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        assert_eq!(
            svg.matches("cx=\"574.0\"").count(),
            3,
            "PING, p50 and p99 in the middle: {svg}"
        );
        // p50 and p99 of the two waiters, and their rate.
        assert!(svg.contains(">80.0 us</text>") && svg.contains(">12 500</text>"), "{svg}");
    }

    #[test]
    fn nothing_measured_is_an_empty_picture() {
        let svg = svg(&Results::default(), "");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn axes_end_at_steps_around_all_values() {
        for (values, ends, marks) in [
            (vec![2.0, 150.0], (2.0, 200.0), 7),
            (vec![3.0], (2.0, 5.0), 2),
            (vec![100.0, 100.0], (100.0, 200.0), 2),
            (vec![1.0, 99_999.0], (1.0, 100_000.0), 6),
            (vec![0.000_13, 0.008], (0.000_1, 0.01), 7),
        ] {
            let axis = Axis::over(values.iter().copied()).unwrap();
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
            assert!(near(axis.low, ends.0) && near(axis.high, ends.1), "{values:?}");
            assert_eq!(axis.marks().count(), marks, "{values:?}");
        }
        let axis = Axis { low: 1.0, high: 100.0 };
        assert!((axis.at(10.0) - 0.5).abs() < 1e-9);
        assert!(Axis::over(std::iter::empty::<f64>()).is_none());
    }

    #[test]
    fn digits_are_grouped() {
        for (number, text) in
            [(0.4, "0"), (999.0, "999"), (1_000.0, "1 000"), (12_345_678.0, "12 345 678")]
        {
            assert_eq!(grouped(number), text);
        }
    }
}
