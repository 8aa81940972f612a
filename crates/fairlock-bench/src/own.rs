//! fairlock alone on a server, compared with the server's PING and with the rate of its scripts
//! without the client. Prints one JSON object, for `scripts/bench-compare --parts own`.
//!
//! Figures are medians of the rounds. A ratio is the median of the rounds' own ratios: a machine
//! that is slow for a while is slow on both sides. The locks' last tokens stay on the server for a
//! day.

use crate::raw::Raw;
use crate::stats::{median, percentile};
use crate::{contended, uncontended};
use fairlock::Client;
use std::time::Duration;

const ROUNDS: usize = 5;

/// Tasks with a lock each.
const TASKS: u32 = 64;

/// One measurement in each round.
#[derive(Default)]
struct Series {
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    per_second: Vec<f64>,
}

impl Series {
    fn add(&mut self, [p50, p99]: [Duration; 2], per_second: f64) {
        self.p50_us.push(p50.as_secs_f64() * 1e6);
        self.p99_us.push(p99.as_secs_f64() * 1e6);
        self.per_second.push(per_second);
    }

    fn add_samples(&mut self, (mut samples, per_second): (Vec<Duration>, f64)) {
        self.add([50, 99].map(|percent| percentile(&mut samples, percent)), per_second);
    }

    /// The fields of the JSON form; the rate under this name.
    fn form(&self, rate: &str) -> String {
        let [p50, p99, per_second] = [&self.p50_us, &self.p99_us, &self.per_second]
            .map(|values| median(values.iter().copied()));
        format!(r#""p50_us":{p50:.3},"p99_us":{p99:.3},"{rate}":{per_second:.3}"#)
    }
}

/// The median of the rounds' ratios.
fn beside(mine: &[f64], other: &[f64]) -> f64 {
    median(mine.iter().zip(other).map(|(mine, other)| mine / other))
}

/// Measures each step for `span` in each round.
pub(crate) async fn report(url: &str, span: Duration, waiters: &[usize]) {
    let client = Client::connect(url).await.unwrap();
    let mut scripts = Raw::open(url, &client).await;
    let (mut ping, mut one, mut many) = (Series::default(), Series::default(), Series::default());
    let mut raw = Vec::new();
    let mut queues: Vec<_> = waiters.iter().map(|n| (*n, Series::default())).collect();
    for _ in 0..ROUNDS {
        let pings = uncontended::pings_of_redis_rs(url, span).await;
        let rate = pings.len() as f64 / span.as_secs_f64();
        ping.add_samples((pings, rate));
        raw.push(scripts.pairs(span).await);
        one.add_samples(uncontended::many(&client, 1, span).await);
        many.add_samples(uncontended::many(&client, TASKS, span).await);
        for (waiters, series) in &mut queues {
            let run = contended::measure(url, *waiters, span, || 0).await;
            series.add([run.p50, run.p99], run.rate);
        }
    }
    client.shutdown().await;
    let queues: Vec<_> = queues
        .iter()
        .map(|(waiters, series)| {
            let of_ping = beside(&series.p50_us, &ping.p50_us);
            let form = series.form("turns_per_second");
            format!(r#"{{"waiters":{waiters},{form},"of_ping":{of_ping:.3}}}"#)
        })
        .collect();
    println!(
        concat!(
            r#"{{"ping":{{{}}},"raw_scripts":{{"pairs_per_second":{:.3}}},"#,
            r#""uncontended":[{{"tasks":1,{},"of_two_pings":{:.3}}},"#,
            r#"{{"tasks":{},{},"of_raw_scripts":{:.3}}}],"contended":[{}]}}"#
        ),
        ping.form("per_second"),
        median(raw.iter().copied()),
        one.form("pairs_per_second"),
        beside(&one.p50_us, &ping.p50_us) / 2.0,
        TASKS,
        many.form("pairs_per_second"),
        beside(&many.per_second, &raw),
        queues.join(","),
    );
}
