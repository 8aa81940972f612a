//! The results as an SVG picture: three panels, written by hand, because a crate for plots is larger than
//! everything else in this program that draws.

use std::fmt::Write as _;

use super::plan::Step;
use super::report::{Results, human};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 300.0;

/// Room around what is drawn in a panel: left, right, top, bottom.
const ROOM: [f64; 4] = [64.0, 16.0, 56.0, 44.0];

const BLUE: &str = "#1f77b4";
const ORANGE: &str = "#ff7f0e";
const GREY: &str = "#888888";

/// Values by a number, in one colour. A grey one is a yardstick.
struct Line {
    name: &'static str,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

/// The picture; `title` says where it was measured.
pub(super) fn svg(results: &Results, title: &str) -> String {
    let mut svg = String::new();
    let total = WIDTH * 3.0;
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {HEIGHT}" width="{total}" height="{HEIGHT}" font-family="sans-serif" font-size="11">
<rect width="{total}" height="{HEIGHT}" fill="white"/>"#
    );
    text(&mut svg, (total / 2.0, 18.0), "middle", title);
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
    chart(&mut svg, WIDTH * 2.0, "turns a second, by waiters", &rate, |rate| format!("{rate:.0}"));
    svg.push_str("</svg>\n");
    svg
}

/// Pairs a second, beside what the server carries out.
fn bars(svg: &mut String, left: f64, results: &Results) {
    let [room_left, room_right, top, bottom] = ROOM;
    text(svg, (left + WIDTH / 2.0, top - 18.0), "middle", "acquired and released a second");
    let of = |series: &super::report::Series| match series.step {
        Step::Tasks(_) => Some((series.step.name(), BLUE, series.per_second()?)),
        Step::Raw => Some((series.step.name(), GREY, series.per_second()?)),
        _ => None,
    };
    let all: Vec<_> = results.series.iter().filter_map(of).collect();
    let most = all.iter().map(|(_, _, rate)| *rate).fold(1.0, f64::max);
    let step = (WIDTH - room_left - room_right) / all.len().max(1) as f64;
    for (at, (name, colour, rate)) in all.iter().enumerate() {
        let height = (HEIGHT - top - bottom) * rate / most;
        let (x, y) = (left + room_left + step * at as f64, HEIGHT - bottom - height);
        let width = step * 0.7;
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
        );
        text(svg, (x + width / 2.0, y - 4.0), "middle", &format!("{rate:.0}"));
        text(svg, (x + width / 2.0, HEIGHT - bottom + 16.0), "middle", name);
    }
}

/// Lines over a number of waiters; both axes are logarithmic.
fn chart(svg: &mut String, left: f64, title: &str, lines: &[Line], label: impl Fn(f64) -> String) {
    let [room_left, room_right, top, bottom] = ROOM;
    text(svg, (left + WIDTH / 2.0, top - 18.0), "middle", title);
    let points = || lines.iter().flat_map(|line| &line.points);
    let Some(xs) = Axis::over(points().map(|point| point.0)) else { return };
    let Some(ys) = Axis::over(points().map(|point| point.1)) else { return };
    let (width, height) = (WIDTH - room_left - room_right, HEIGHT - top - bottom);
    let place =
        |(x, y): (f64, f64)| (left + room_left + width * xs.at(x), top + height * (1.0 - ys.at(y)));
    for y in ys.decades() {
        let (_, at) = place((xs.low, y));
        let (from, to) = (left + room_left, left + room_left + width);
        let _ = writeln!(svg, r##"<path d="M{from:.1} {at:.1}H{to:.1}" stroke="#dddddd"/>"##);
        text(svg, (from - 6.0, at + 4.0), "end", &label(y));
    }
    let mut seen: Vec<f64> = points().map(|point| point.0).collect();
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    for x in seen {
        let (at, _) = place((x, ys.low));
        text(svg, (at, HEIGHT - bottom + 16.0), "middle", &format!("{x}"));
    }
    for (number, Line { name, colour, points }) in lines.iter().enumerate() {
        let path: Vec<_> = points.iter().map(|point| place(*point)).collect();
        let joined: Vec<_> = path.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let joined = joined.join(" ");
        let _ = writeln!(
            svg,
            r#"<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>"#
        );
        for ((x, y), (_, value)) in path.iter().zip(points) {
            let told = label(*value);
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"><title>{name}: {told}</title></circle>"#
            );
        }
        let x = left + room_left + 80.0 * number as f64;
        let y = HEIGHT - 10.0;
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{:.1}" width="10" height="3" fill="{colour}"/>"#,
            y - 5.0
        );
        text(svg, (x + 14.0, y), "start", name);
    }
}

/// Whole powers of ten around all values.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let positive = || values.clone().filter(|value| *value > 0.0);
        let low = positive().min_by(f64::total_cmp)?.log10().floor();
        let high = positive().max_by(f64::total_cmp)?.log10().ceil();
        Some(Self { low: 10_f64.powf(low), high: 10_f64.powf(high.max(low + 1.0)) })
    }

    /// From 0 to 1.
    fn at(&self, value: f64) -> f64 {
        let share = (value / self.low).log10() / (self.high / self.low).log10();
        share.clamp(0.0, 1.0)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        let count = (self.high / self.low).log10().round() as i32;
        let low = self.low;
        (0..=count).map(move |power| low * 10_f64.powi(power))
    }
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

    #[test]
    fn nothing_measured_is_an_empty_picture() {
        let svg = svg(&Results::default(), "");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn axes_are_whole_decades() {
        let axis = Axis::over([2.0, 150.0].into_iter()).unwrap();
        assert_eq!((axis.low, axis.high), (1.0, 1_000.0));
        assert_eq!(axis.decades().count(), 4);
        assert!((axis.at(1_000_f64.sqrt()) - 0.5).abs() < 1e-9);
        assert!(Axis::over(std::iter::empty::<f64>()).is_none());
    }
}
