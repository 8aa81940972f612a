//! One campaign on one topology: load, one fault after another, and the outcome.

use crate::checker::{Checker, Findings, rest};
use crate::deployment::{Deployment, Topology};
use crate::fleet::{Fleet, Setting};
use crate::log::Input;
use crate::nemesis::{Kind, clocks, process};
use crate::notes::{Notes, Scribe};
use crate::options::{Minimum, Options, Pace};
use crate::pace::UNTIL_ORDER;
use crate::resource::Resource;
use crate::stalls;
use crate::worker::Load;
use fairlock_testkit::history::now_ns;
use fairlock_testkit::rng::Rng;
use fairlock_testkit::wait;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Every client must have a turn within this time after a fault; otherwise it is not recovered from.
const RECOVERED_WITHIN: Duration = Duration::from_secs(60);

/// Acquisitions without a fault before the next one, so that their order can be checked.
const QUIET: u64 = 300;

/// In a hard run, a calm phase follows every this many faults.
const CALM_EVERY: usize = 6;

/// Percentage of faults that are played together with a second one.
const AT_ONCE: u64 = 25;

/// A run that has not reached its minimum may take this many times its span.
const PATIENCE: u32 = 4;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(5);

/// A fault that was played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played {
    pub(crate) kind: Kind,
    pub(crate) took_effect: bool,
    /// From the start of the fault until every client was granted a request that it made after it.
    pub(crate) recovery: Option<Duration>,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) topology: Topology,
    pub(crate) seed: u64,
    pub(crate) took: Duration,
    pub(crate) minimum: Minimum,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) faults: Vec<Played>,
    pub(crate) findings: Findings,
    /// How often the turns of a calm phase took more than a minute although no fault was active: a
    /// busy machine, or worse.
    pub(crate) restless: u64,
    /// The folder with the notes on the run, if something was wrong.
    pub(crate) notes: Option<PathBuf>,
}

/// The state of a run in progress.
struct Run {
    deployment: Box<dyn Deployment>,
    fleet: Fleet,
    rng: Rng,
    checker: Sender<Input>,
    faults: Vec<Played>,
    /// Until then, losing tokens may be excused only together with a clock that was set back.
    keep_tokens: Instant,
    /// See [`Outcome::restless`].
    restless: u64,
}

/// Returns `None`, with a message, when a server is missing.
pub(crate) fn run(topology: Topology, seconds: u64, options: &Options) -> Option<Outcome> {
    println!("{}: starting", topology.name());
    let minimum = options.minimum(topology, seconds);
    let mut rng = Rng::new(options.seed);
    let resource = Resource::start()?;
    let mut deployment = topology.start()?;
    let (checker, heard) = channel();
    let notes =
        Notes::begin(&options.notes, options.seed, topology.name()).expect("a folder for notes");
    let scribe = notes.scribe().expect("a file for notes");
    let checking = Checker::new(topology.lease(), deployment.attach(checker.clone()));
    let checking = std::thread::spawn(move || check_all(checking, &heard, scribe));
    let watch = stalls::watch(checker.clone());
    let setting = Setting {
        load: topology.load(),
        url: deployment.url(),
        resource: resource.addr(),
        lease: topology.lease(),
    };
    let fleet = Fleet::start(setting, rng.below(1 << 40), checker.clone());
    let began = Instant::now();
    assert!(until(|| fleet.all_had_a_turn(1)), "no turns without any fault");

    let hard = options.pace == Pace::Hard;
    let (mut kinds, own) = match (topology.load(), hard) {
        (Load::Several, _) => (process::OF_SEVERAL.to_vec(), Vec::new()),
        (Load::OneByOne, true) => (process::KINDS.to_vec(), deployment.kinds()),
        (Load::OneByOne, false) => (process::KINDS[..2].to_vec(), deployment.own_kinds()),
    };
    kinds.extend(&own);
    if let Some(wanted) = &options.faults {
        kinds.retain(|kind| kind.name().contains(wanted));
        assert!(
            !kinds.is_empty(),
            "{} plays no fault whose name contains {wanted}",
            topology.name()
        );
    }
    let keep_tokens = Instant::now();
    let mut run =
        Run { deployment, fleet, rng, checker, faults: Vec::new(), keep_tokens, restless: 0 };
    let (span, mut round, mut played_all) = (Duration::from_secs(seconds), Vec::new(), false);
    loop {
        if round.is_empty() {
            played_all = !run.faults.is_empty();
            round.clone_from(&kinds);
            // The faults specific to this topology come first, so that even a short run plays them.
            let from = if run.faults.is_empty() && !hard {
                kinds.len().saturating_sub(own.len())
            } else {
                0
            };
            run.rng.shuffle(&mut round[from..]);
        }
        let effective = run.faults.iter().filter(|played: &&Played| played.took_effect).count();
        let enough = effective >= minimum.faults
            && (played_all || !minimum.every_kind)
            && began.elapsed() >= span;
        if enough || began.elapsed() >= PATIENCE * span {
            break;
        }
        if options.sabotage {
            run.deployment.sabotage();
        }
        let kind = run.next(&mut round);
        if !run.play(kind, hard, topology) {
            break;
        }
        run.rest(hard);
    }
    let took = began.elapsed();
    let Run { mut deployment, fleet, checker, faults, restless, .. } = run;
    fleet.stop();
    deployment.detach();
    let lost_registry = faults.iter().any(|played| played.kind.loses_a_registry());
    let left = rest::check(&deployment.left(lost_registry), lost_registry);
    watch.stop();
    drop(checker);
    let mut findings = checking.join().expect("the checker knows what it reads");
    for lost in resource.lost_updates() {
        findings.violations.push(format!("updates were lost: {lost}"));
    }
    findings.violations.extend(left);
    for played in faults.iter().filter(|played| played.recovery.is_none()) {
        findings.violations.push(format!("no recovery from: {}", played.kind.name()));
    }
    let notes = if findings.violations.is_empty() && restless == 0 {
        notes.remove().expect("our own folder");
        None
    } else {
        Some(notes.leave(&findings.violations, &deployment.folders()).expect("our own folder"))
    };
    Some(Outcome {
        topology,
        seed: options.seed,
        took,
        minimum,
        kinds,
        faults,
        findings,
        restless,
        notes,
    })
}

/// Feeds every input to the checker until all senders are gone.
fn check_all(mut checker: Checker, heard: &Receiver<Input>, mut scribe: Scribe) -> Findings {
    while let Ok(first) = heard.recv() {
        for input in std::iter::once(first).chain(heard.try_iter()) {
            scribe.write(&input);
            checker.hear(input);
        }
        // Nothing waits for the checker, and inputs that gather meanwhile need no wake-up each.
        std::thread::sleep(LOOK);
    }
    checker.finish()
}

impl Run {
    /// The next kind of this round. Faults that delete tokens wait while tokens are ahead of the
    /// clock: after a clock that was set back, rising tokens are not promised if they are lost.
    fn next(&self, round: &mut Vec<Kind>) -> Kind {
        let may = |kind: &Kind| !kind.loses_tokens() || Instant::now() > self.keep_tokens;
        loop {
            if let Some(at) = round.iter().rposition(may) {
                return round.remove(at);
            }
            // Only kinds that lose tokens are left in this round; wait for a few seconds.
            std::thread::sleep(LOOK);
        }
    }

    /// Plays a fault, alone or with a second one. Returns false if the clients did not recover.
    fn play(&mut self, kind: Kind, hard: bool, topology: Topology) -> bool {
        let mut kinds = vec![kind];
        if hard && !process::is_of_a_worker(kind) && self.rng.chance(AT_ONCE) {
            kinds.push(self.rng.pick(&process::KINDS[..2]));
        }
        let first = self.faults.len();
        for (id, kind) in kinds.iter().enumerate() {
            let _ = self.checker.send(Input::Fault { id: first + id, kind: *kind, from: now_ns() });
        }
        let (mut second, began) = (self.rng.clone(), Instant::now());
        let took_effect: Vec<bool> = std::thread::scope(|scope| {
            let Self { deployment, fleet, rng, .. } = self;
            let Some(other) = kinds.get(1).copied() else {
                let of_a_process = process::play(kind, fleet, rng);
                return vec![of_a_process.unwrap_or_else(|| deployment.inject(kind, rng))];
            };
            let other = scope.spawn(move || process::play(other, fleet, &mut second));
            let one = deployment.inject(kind, rng);
            let other = other.join().expect("a fault that can be played");
            vec![one, other.unwrap_or(false)]
        });
        let injected = now_ns();
        let recovered = until(|| self.fleet.all_had_a_turn(injected));
        let recovery = recovered.then(|| began.elapsed());
        if recovered {
            let _ = self.checker.send(Input::Recovered { kind, healed: injected, at: now_ns() });
        }
        self.deployment.heal();
        if kind == Kind::ClockForward {
            let ahead = Duration::from_micros(clocks::FORWARD_US.unsigned_abs());
            self.keep_tokens = Instant::now() + ahead + Duration::from_secs(1);
        }
        for (id, (kind, took_effect)) in kinds.into_iter().zip(took_effect).enumerate() {
            let _ = self.checker.send(Input::Over { id: first + id, until: now_ns() });
            let played = Played { kind, took_effect, recovery };
            println!("{}, {}: {}", topology.name(), now_ns(), told(&played));
            self.faults.push(played);
        }
        recovered
    }

    /// The pause between one fault and the next.
    fn rest(&mut self, hard: bool) {
        if hard && !self.faults.len().is_multiple_of(CALM_EVERY) {
            // Faults must not synchronize with anything periodic.
            std::thread::sleep(Duration::from_millis(self.rng.between(50, 500)));
            return;
        }
        // Wait until order is promised again, then for `QUIET` acquisitions.
        let ordered = now_ns() + u64::try_from(UNTIL_ORDER.as_nanos()).unwrap();
        until(|| now_ns() > ordered);
        let before = self.fleet.acquisitions();
        if !until(|| self.fleet.acquisitions() >= before + QUIET) {
            self.restless += 1;
        }
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

fn until(mut condition: impl FnMut() -> bool) -> bool {
    wait::look(RECOVERED_WITHIN, LOOK, || condition().then_some(())).is_some()
}
