//! The output: lines for people, and one of JSON for each topology, which [`crate::merge`] adds up.

use crate::campaign::{Outcome, Played};
use crate::nemesis::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// How many violations of a run are shown; their total is always printed.
const SHOWN: usize = 60;

/// The verdict on a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Sound,
    Violations,
    /// Too little happened.
    Invalid,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sound => "no violation",
            Self::Violations => "VIOLATIONS",
            Self::Invalid => "INVALID",
        })
    }
}

/// Violations are the worst verdict: they were observed, however little was done.
pub(crate) fn exit_code(verdicts: impl IntoIterator<Item = Verdict> + Clone) -> ExitCode {
    let any = |wanted| verdicts.clone().into_iter().any(|verdict| verdict == wanted);
    if any(Verdict::Violations) {
        ExitCode::from(1)
    } else if any(Verdict::Invalid) || verdicts.clone().into_iter().next().is_none() {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    }
}

/// Prints the outcome and returns the verdict.
pub(crate) fn tell(outcome: &Outcome) -> (Verdict, Value) {
    let Outcome { topology, seed, took, faults, findings, .. } = outcome;
    let effective: Vec<_> = faults.iter().filter(|played| played.took_effect).collect();
    let failovers = effective.iter().filter(|played| played.kind.is_failover()).count();
    let missing = missing(outcome);
    let verdict = if !findings.violations.is_empty() {
        Verdict::Violations
    } else if !missing.is_empty() {
        Verdict::Invalid
    } else {
        Verdict::Sound
    };

    println!("{}, {:.0} s, seed {seed}:", topology.name(), took.as_secs_f64());
    let rate = findings.acquisitions as f64 / took.as_secs_f64();
    println!(
        "  acquisitions    {} ({rate:.0} a second) by {} clients; {} given up, {} not in time",
        findings.acquisitions, findings.clients, findings.gave_up, findings.missed
    );
    println!(
        "  contended       {} of them; {} grants in the server's log",
        findings.contended, findings.logged
    );
    println!("  order judged    {} grants of fair locks outside of disturbances", findings.ordered);
    let times = &findings.times;
    println!(
        "  hand-over       p50 {}, p99 {}, max {}; max {} in disturbances",
        short(times.hand_over.below(500)),
        short(times.hand_over.below(990)),
        short(times.hand_over.longest()),
        short(times.hand_over_disturbed.longest())
    );
    println!(
        "  longest wait    {}; {} more than the queue explains, outside of disturbances",
        short(times.wait.longest()),
        short(times.wait_unexplained.longest())
    );
    println!(
        "  in time         {} grants after a hold's end, {} renewals, {} samples of calls: at most {} a second",
        findings.followed, findings.renewed, findings.calls_checked, findings.calls_a_second
    );
    println!("  faults          {} injected, {} took effect", faults.len(), effective.len());
    println!("  failovers       {failovers}");
    println!(
        "  lost locks      {} (as the documents say); {} holds overlapped after a loss of state, {} \
         writes refused for their tokens",
        findings.lost, findings.overlaps, findings.fenced_off
    );
    println!("  errors          {}", listed(&findings.errors));
    println!("  violations      {}", findings.violations.len());
    for violation in findings.violations.iter().take(SHOWN) {
        println!("    {violation}");
    }
    if outcome.restless > 0 {
        println!("  restless        {} times a minute with hardly a turn", outcome.restless);
    }
    if let Some(notes) = &outcome.notes {
        println!("  notes           {}", notes.display());
    }
    println!("  recovery        {}", spread(faults.iter().filter(|played| played.took_effect)));
    let mut kinds = Vec::new();
    for kind in &outcome.kinds {
        let of_it: Vec<_> = effective.iter().filter(|played| played.kind == *kind).collect();
        println!(
            "    {:<46} {:>3}  {}",
            kind.name(),
            of_it.len(),
            spread(of_it.iter().map(|played| **played))
        );
        let (p50, max) = recovery(of_it.iter().map(|played| **played));
        let injected = faults.iter().filter(|played| played.kind == *kind).count();
        let all = of_it.iter().filter_map(|played| played.recovery);
        let all: Vec<_> = all.map(|recovery| recovery.as_millis() as u64).collect();
        kinds.push(json!({
            "kind": kind.name(), "injected": injected, "effective": of_it.len(), "recoveries_ms": all,
            "recovery_p50_ms": p50.as_millis() as u64, "recovery_max_ms": max.as_millis() as u64,
        }));
    }
    for missing in &missing {
        println!("  INVALID: {missing}");
    }
    let (p50, max) = recovery(effective.iter().copied());
    let line = json!({
        "topology": topology.name(),
        "seed": seed,
        "seconds": took.as_secs_f64(),
        "acquisitions": findings.acquisitions,
        "contended": findings.contended,
        "logged": findings.logged,
        "hand_over_p99_us": times.hand_over.below(990).as_micros() as u64,
        "hand_over_max_ms": times.hand_over.longest().as_millis() as u64,
        "wait_max_ms": times.wait.longest().as_millis() as u64,
        "wait_unexplained_max_ms": times.wait_unexplained.longest().as_millis() as u64,
        "ordered": findings.ordered,
        "followed": findings.followed,
        "renewed": findings.renewed,
        "calls_checked": findings.calls_checked,
        "calls_a_second": findings.calls_a_second,
        "faults_injected": faults.len(),
        "faults_effective": effective.len(),
        "failovers": failovers,
        "lost": findings.lost,
        "overlaps": findings.overlaps,
        "fenced_off": findings.fenced_off,
        "errors": findings.errors,
        "violations": findings.violations.len(),
        "recovery_p50_ms": p50.as_millis() as u64,
        "recovery_max_ms": max.as_millis() as u64,
        "kinds": kinds,
        "valid": missing.is_empty(),
    });
    println!("json {line}");
    (verdict, line)
}

/// The sums of all topologies, on one line.
pub(crate) fn in_all(lines: &[Value]) -> String {
    let sum = |field: &str| lines.iter().filter_map(|line| line[field].as_u64()).sum::<u64>();
    let kinds = lines.iter().flat_map(|line| line["kinds"].as_array().into_iter().flatten());
    let played = kinds.filter(|kind| kind["effective"].as_u64() > Some(0));
    let played: BTreeSet<_> = played.filter_map(|kind| kind["kind"].as_str()).collect();
    format!(
        "in all: {} acquisitions, {} of them contended, {} effective faults of {} kinds, {} violations",
        sum("acquisitions"),
        sum("contended"),
        sum("faults_effective"),
        played.len(),
        sum("violations")
    )
}

fn short(time: Duration) -> String {
    if time < Duration::from_millis(10) {
        format!("{} us", time.as_micros())
    } else {
        format!("{} ms", time.as_millis())
    }
}

/// What a run failed to reach.
fn missing(outcome: &Outcome) -> Vec<String> {
    let Outcome { minimum, faults, findings, .. } = outcome;
    let mut missing = Vec::new();
    let wanted = minimum.acquisitions_a_second * outcome.took.as_secs();
    if findings.acquisitions < wanted {
        missing.push(format!("{} acquisitions of {wanted}", findings.acquisitions));
    }
    if findings.ordered < minimum.checked_order {
        let (found, wanted) = (findings.ordered, minimum.checked_order);
        missing.push(format!("the order of {found} grants was judged, not of {wanted}"));
    }
    let effective = |kind: Kind| faults.iter().any(|p| p.took_effect && p.kind == kind);
    let count = faults.iter().filter(|played| played.took_effect).count();
    if count < minimum.faults {
        missing.push(format!("{count} faults that took effect, of {}", minimum.faults));
    }
    if minimum.every_kind {
        let never = outcome.kinds.iter().filter(|kind| !effective(**kind));
        missing.extend(never.map(|kind| format!("never with effect: {}", kind.name())));
    }
    missing
}

fn spread<'a>(faults: impl Iterator<Item = &'a Played> + Clone) -> String {
    if faults.clone().next().is_none() {
        return "-".to_owned();
    }
    let (p50, max) = recovery(faults);
    format!("p50 {:.2} s, max {:.2} s", p50.as_secs_f64(), max.as_secs_f64())
}

/// The median and the maximum.
fn recovery<'a>(faults: impl Iterator<Item = &'a Played>) -> (Duration, Duration) {
    let mut all: Vec<_> = faults.filter_map(|played| played.recovery).collect();
    all.sort_unstable();
    let at = |index: usize| all.get(index).copied().unwrap_or_default();
    (at(all.len().saturating_sub(1) / 2), at(all.len().saturating_sub(1)))
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let each: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    each.join(", ")
}
