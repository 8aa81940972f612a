//! Adds up the output of several shards: `fairlock-torture merge FILE...`, as Markdown.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

/// The minimum of a nightly run.
const CONTENDED: u64 = 1_000_000;
const FAULTS: u64 = 1_000;
const KINDS: usize = 25;

/// The sums over one topology, or over all.
#[derive(Debug, Default)]
struct Sum {
    runs: u64,
    seconds: f64,
    numbers: BTreeMap<String, u64>,
    largest: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
struct Of {
    injected: u64,
    effective: u64,
    recoveries_ms: Vec<u64>,
}

const ADDED: [&str; 17] = [
    "acquisitions",
    "contended",
    "logged",
    "ordered",
    "faults_injected",
    "faults_effective",
    "failovers",
    "lost",
    "overlaps",
    "fenced_off",
    "violations",
    "pauses",
    "fenced",
    "fenced_lost",
    "bare",
    "bare_lost",
    "invalid",
];

const LARGEST: [&str; 4] =
    ["hand_over_max_ms", "hand_over_p99_us", "wait_max_ms", "wait_unexplained_max_ms"];

impl Sum {
    fn add(&mut self, line: &Value) {
        self.runs += 1;
        self.seconds += line["seconds"].as_f64().unwrap_or(0.0);
        for name in ADDED {
            *self.numbers.entry(name.to_owned()).or_default() += line[name].as_u64().unwrap_or(0);
        }
        if line["valid"] != Value::Bool(true) {
            *self.numbers.entry("invalid".to_owned()).or_default() += 1;
        }
        for name in LARGEST {
            let largest = self.largest.entry(name.to_owned()).or_default();
            *largest = (*largest).max(line[name].as_u64().unwrap_or(0));
        }
    }

    fn of(&self, name: &str) -> u64 {
        self.numbers.get(name).or_else(|| self.largest.get(name)).copied().unwrap_or(0)
    }
}

pub(crate) fn run(files: &[&str]) -> ExitCode {
    let mut lines = Vec::new();
    for file in files {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("fairlock-torture: {file}: {error}");
                return ExitCode::from(64);
            }
        };
        for line in text.lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(line) => lines.push(line),
                Err(error) => {
                    eprintln!("fairlock-torture: {file}: {error}");
                    return ExitCode::from(64);
                }
            }
        }
    }
    let (text, code) = report(&lines, files.len());
    print!("{text}");
    ExitCode::from(code)
}

/// Returns the report and the exit code: 0, 1 for violations, or 2 for too little.
fn report(lines: &[Value], files: usize) -> (String, u8) {
    let (mut all, mut kinds) = (Sum::default(), BTreeMap::<String, Of>::new());
    let mut topologies = BTreeMap::<String, Sum>::new();
    let mut seeds = Vec::new();
    for line in lines {
        all.add(line);
        let name = line["topology"].as_str().unwrap_or("nothing").to_owned();
        topologies.entry(name).or_default().add(line);
        seeds.extend(line["seed"].as_u64());
        for kind in line["kinds"].as_array().into_iter().flatten() {
            let of = kinds.entry(kind["kind"].as_str().unwrap_or("?").to_owned()).or_default();
            of.injected += kind["injected"].as_u64().unwrap_or(0);
            of.effective += kind["effective"].as_u64().unwrap_or(0);
            let times = kind["recoveries_ms"].as_array().into_iter().flatten();
            of.recoveries_ms.extend(times.filter_map(Value::as_u64));
        }
    }
    seeds.sort_unstable();
    seeds.dedup();
    let played = kinds.values().filter(|of| of.effective > 0).count();
    let violations = all.of("violations");
    let enough = all.of("contended") >= CONTENDED
        && all.of("faults_effective") >= FAULTS
        && played >= KINDS
        && all.of("invalid") == 0;
    let verdict = match (violations, enough) {
        (1.., _) => "VIOLATIONS",
        (0, false) => "INVALID: too little for the nightly profile",
        (0, true) => "no violation",
    };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "# Torture report\n\nWritten by `scripts/torture merge FILE...` from {files} shards of \
         `scripts/torture nightly`, {:.0} minutes of load\nand faults in all. CONTRIBUTING.md explains what is \
         tortured, how it is judged, and how to run it.\n\n**{verdict}**: {} contended acquisitions (at least \
         {CONTENDED}) under {} effective faults (at least\n{FAULTS}) of {played} kinds (at least {KINDS}), \
         {violations} violations, {} runs that did too little.\n\nSeeds: {}.\n",
        all.seconds / 60.0,
        all.of("contended"),
        all.of("faults_effective"),
        all.of("invalid"),
        seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    );
    text += "## By topology\n\n| | runs | minutes | acquisitions | contended | in the server's log | order judged \
             by clients | faults | failovers | lost locks | overlaps | writes refused | violations |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for (name, sum) in topologies.iter().filter(|(name, _)| *name != crate::lockset::NAME) {
        let _ = write!(text, "| {name} | {} | {:.0} |", sum.runs, sum.seconds / 60.0);
        for field in [
            "acquisitions",
            "contended",
            "logged",
            "ordered",
            "faults_effective",
            "failovers",
            "lost",
            "overlaps",
            "fenced_off",
            "violations",
        ] {
            let _ = write!(text, " {} |", sum.of(field));
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "\nLost locks and overlaps are those that docs/guarantees.md allows for the fault that caused them. \
         The worst\ntimes outside of disturbances were {} ms for a hand-over (p99 of the worst shard: {} us) and {} ms \
         of a wait\nbeyond what the queue explains; the longest wait of all was {} ms.\n",
        all.of("hand_over_max_ms"),
        all.of("hand_over_p99_us"),
        all.of("wait_unexplained_max_ms"),
        all.of("wait_max_ms"),
    );
    if let Some(sum) = topologies.get(crate::lockset::NAME) {
        let share = 100.0 * sum.of("bare_lost") as f64 / sum.of("bare").max(1) as f64;
        let _ = writeln!(
            text,
            "## The lock-set workload\n\nProcesses that update sets under a lock were stopped for longer than their \
             leases, {} times. Half of the\nsets refuse writes with an older token: {} updates were \
             acknowledged by sets that check tokens, {} of them lost;\n{} by sets that do not check them, {} \
             of them lost ({share:.1} %).\n",
            sum.of("pauses"),
            sum.of("fenced"),
            sum.of("fenced_lost"),
            sum.of("bare"),
            sum.of("bare_lost"),
        );
    }
    text += "## Faults\n\nRecovery: the time from the beginning of a fault until every client was granted a \
             request that it had sent\nafter the fault was injected.\n\n\
             | kind | injected | took effect | recovery p50 | max |\n|---|---|---|---|---|\n";
    for (name, of) in &mut kinds {
        of.recoveries_ms.sort_unstable();
        let middle = of.recoveries_ms.get(of.recoveries_ms.len().saturating_sub(1) / 2);
        let (middle, longest) = (middle.copied(), of.recoveries_ms.last().copied());
        let shown = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let (injected, effective) = (of.injected, of.effective);
        let (middle, longest) = (shown(middle), shown(longest));
        let _ = writeln!(text, "| {name} | {injected} | {effective} | {middle} | {longest} |");
    }
    let code = match (violations, enough) {
        (1.., _) => 1,
        (0, false) => 2,
        (0, true) => 0,
    };
    (text, code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(contended: u64, faults: u64, violations: u64, valid: bool) -> Value {
        let kinds = (0..KINDS as u64).map(|kind| {
            json!({ "kind": format!("kind {kind}"), "injected": faults, "effective": faults,
                    "recoveries_ms": [kind, 7] })
        });
        json!({ "topology": "single", "seed": 7, "seconds": 60.0, "acquisitions": contended,
                "contended": contended, "faults_effective": faults, "violations": violations,
                "valid": valid, "kinds": kinds.collect::<Vec<_>>(), "wait_max_ms": contended })
    }

    #[test]
    fn shards_are_added_up() {
        let enough = line(CONTENDED / 2, FAULTS / 2, 0, true);
        let (text, code) = report(&[enough.clone(), enough.clone()], 2);
        assert_eq!(code, 0, "{text}");
        for wanted in
            ["no violation", "1000000 contended", "1000 effective", "| kind 3 | 1000 | 1000 |"]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert_eq!(report(std::slice::from_ref(&enough), 1).1, 2, "half of it is too little");
        assert_eq!(report(&[enough.clone(), enough.clone(), line(1, 1, 1, true)], 3).1, 1);
        assert_eq!(
            report(&[enough.clone(), enough, line(1, 1, 0, false)], 3).1,
            2,
            "an INVALID run"
        );
    }
}
