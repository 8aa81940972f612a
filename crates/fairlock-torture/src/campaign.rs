//! A run on one topology: load, one fault after the other, and what came of it.

use crate::bed::{Bed, Kind, Place};
use crate::fleet::{Fleet, WORKERS};
use crate::judge::{self, Judgement};
use crate::options::{Minimum, Options};
use crate::resource::Resource;
use crate::worker::{DEAD_AFTER, HEARTBEAT};
use fairlock_testkit::history::now_ns;
use fairlock_testkit::rng::Rng;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A fault after which nobody had a turn for so long is not recovered from.
const RECOVERED_WITHIN: Duration = Duration::from_secs(60);

/// How long after a recovery the order of places may still be disturbed: somebody who was not heard in it
/// counts as dead for so long, and returns to its place with the next heartbeat.
pub(crate) const UNTIL_ORDER: Duration = DEAD_AFTER.saturating_add(HEARTBEAT.saturating_mul(2));

/// Acquisitions without a fault before the next: their order is judged.
const QUIET: u64 = 300;

/// How long a worker is stopped: its waiters are taken for dead, its leases go on.
const STOPPED: Duration = Duration::from_secs(2);

/// A run that has not done enough in its time may take so many times as long.
const PATIENCE: u32 = 4;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// A fault that was played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played {
    pub(crate) kind: Kind,
    pub(crate) took_effect: bool,
    pub(crate) from: u64,
    /// When it was put right, too.
    pub(crate) until: u64,
    /// From the beginning of the fault until every client had a turn that it had asked for after it.
    pub(crate) recovery: Option<Duration>,
}

/// All that is known of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) place: Place,
    pub(crate) seed: u64,
    pub(crate) took: Duration,
    pub(crate) minimum: Minimum,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) faults: Vec<Played>,
    pub(crate) judgement: Judgement,
}

/// `None`, loudly, where a server is missing.
pub(crate) fn run(place: Place, options: &Options) -> Option<Outcome> {
    println!("\n{}: starting", place.name());
    let mut rng = Rng::new(options.seed);
    let resource = Resource::start()?;
    let mut bed = place.start()?;
    let mut fleet = Fleet::start(bed.url(), resource.addr(), rng.below(1 << 40));
    let began = Instant::now();
    assert!(until(|| fleet.all_had_a_turn(1)), "no turns without any fault");

    let own = bed.kinds();
    let mut kinds = vec![Kind::WorkerKilled, Kind::WorkerStopped];
    kinds.extend(&own);
    let mut faults = Vec::new();
    let mut round = Vec::new();
    let mut played_all = false;
    loop {
        if round.is_empty() {
            played_all = !faults.is_empty();
            round.clone_from(&kinds);
            // What only this topology has comes first in a run, however short it is.
            let from = if faults.is_empty() { kinds.len() - own.len() } else { 0 };
            rng.shuffle(&mut round[from..]);
        }
        let effective = faults.iter().filter(|played: &&Played| played.took_effect).count();
        let enough = effective >= options.minimum.faults
            && (played_all || !options.minimum.every_kind)
            && began.elapsed() >= options.seconds;
        if enough || began.elapsed() >= PATIENCE * options.seconds {
            break;
        }
        if options.sabotage {
            sabotage(&*bed);
        }
        let kind = round.pop().unwrap();
        let which = rng.below(WORKERS as u64) as usize;
        let played = play(kind, &mut *bed, &mut fleet, which);
        println!("{}: {}", place.name(), told(&played));
        let is_over = played.recovery.is_none();
        faults.push(played);
        if is_over {
            break;
        }
        quiet(&fleet, &played);
    }
    let took = began.elapsed();
    let stories = fleet.stop();
    let mut judgement = judge::judge(&stories, &faults);
    for lost in resource.lost_updates() {
        judgement.violations.push(format!("updates were lost: {lost}"));
    }
    let (seed, minimum) = (options.seed, options.minimum);
    Some(Outcome { place, seed, took, minimum, kinds, faults, judgement })
}

fn play(kind: Kind, bed: &mut dyn Bed, fleet: &mut Fleet, which: usize) -> Played {
    let (from, began) = (now_ns(), Instant::now());
    let took_effect = match kind {
        Kind::WorkerKilled => {
            fleet.kill(which);
            true
        }
        Kind::WorkerStopped => {
            fleet.signal(which, Signal::STOP);
            // The length of the fault itself.
            std::thread::sleep(STOPPED);
            fleet.signal(which, Signal::CONT);
            true
        }
        kind => bed.inject(kind),
    };
    let injected = now_ns();
    let recovered = until(|| fleet.all_had_a_turn(injected));
    let recovery = recovered.then(|| began.elapsed());
    bed.heal();
    Played { kind, took_effect, from, until: now_ns(), recovery }
}

/// Waits until order is promised again, and then for so many turns.
fn quiet(fleet: &Fleet, played: &Played) {
    let ordered = played.until + u64::try_from(UNTIL_ORDER.as_nanos()).unwrap();
    until(|| now_ns() > ordered);
    let before = fleet.acquisitions();
    until(|| fleet.acquisitions() >= before + QUIET);
}

/// Deletes every lock there is: until the holders' next answers others get them too.
fn sabotage(bed: &dyn Bed) {
    let mut raw = bed.raw();
    for name in ["fair-0", "fair-1", "fair-2", "kept-0", "kept-1"] {
        raw.call(&["DEL", name]);
    }
}

fn told(played: &Played) -> String {
    let effect = if played.took_effect { "" } else { " (without effect)" };
    let recovery = match played.recovery {
        Some(recovery) => format!("recovered after {:.2} s", recovery.as_secs_f64()),
        None => "NOT RECOVERED".to_owned(),
    };
    format!("{}{effect}: {recovery}", played.kind.name())
}

fn until(mut look: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !look() {
        if began.elapsed() > RECOVERED_WITHIN {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
