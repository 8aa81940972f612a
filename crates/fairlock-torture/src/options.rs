//! What a run is asked for.

use crate::bed::Place;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

pub(crate) const USAGE: &str = "usage: fairlock-torture topologies [--seconds N] [--seed N] \
     [--only single,sentinel,cluster] [--short] [--sabotage]

  --seconds N   how long faults are injected on each topology (60)
  --seed N      repeats the choices of a run
  --only NAMES  these topologies
  --short       the profile for CI: 8 seconds, and not every kind of fault has to be played
  --sabotage    delete locks and say nothing: the judge must find it";

/// What a run must have done to say anything, by its profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Minimum {
    /// For each second of the span.
    pub(crate) acquisitions_a_second: u64,
    /// Faults that took effect.
    pub(crate) faults: usize,
    /// Whether each kind has to be among them.
    pub(crate) every_kind: bool,
    /// Grants outside of all disturbances, whose order was judged.
    pub(crate) judged_order: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seconds: Duration,
    pub(crate) seed: u64,
    pub(crate) places: Vec<Place>,
    pub(crate) minimum: Minimum,
    pub(crate) sabotage: bool,
}

impl Options {
    pub(crate) fn parse(args: &[&str]) -> Result<Self, String> {
        let mut seconds = None;
        let mut seed = None;
        let mut places = Place::ALL.to_vec();
        let (mut short, mut sabotage) = (false, false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().copied().ok_or_else(|| format!("{arg} needs a value"));
            match *arg {
                "--seconds" => seconds = Some(number(value()?)?),
                "--seed" => seed = Some(number(value()?)?),
                "--only" => {
                    let named = value()?.split(',').map(|name| {
                        let place = Place::ALL.into_iter().find(|place| place.name() == name);
                        place.ok_or_else(|| format!("no topology is named {name}"))
                    });
                    places = named.collect::<Result<_, _>>()?;
                }
                "--short" => short = true,
                "--sabotage" => sabotage = true,
                other => return Err(format!("what is {other}?")),
            }
        }
        let seconds = seconds.unwrap_or(if short { 8 } else { 60 });
        let faults = if short { 2 } else { (seconds / 15) as usize };
        let minimum = Minimum {
            acquisitions_a_second: 20,
            faults: faults.max(1),
            every_kind: !short && seconds >= 60,
            judged_order: if short { 50 } else { 5 * seconds },
        };
        // Somebody else's choice, so that no two runs are alike.
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0) % 1_000_000_000);
        Ok(Self { seconds: Duration::from_secs(seconds), seed, places, minimum, sabotage })
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
