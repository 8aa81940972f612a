//! The combined results of the matrix, as shown in `docs/interop-report.md`.
//!
//! Every run writes one line to a file, with words separated by one space:
//!
//! ```text
//! result KIND VERSION SERVER SEED ROUNDS CALLS VIOLATIONS SPOILED WAY WAY WAY WAY WAY
//! cases VERSION SERVER PASSED FAILED
//! ```
//!
//! KIND is rounds, clocks or deaths. WAY is `COUNT/LATE/WORST_US` for the hand-overs of Rust to
//! Java, Java to Rust, Rust to Rust, Java to Java, and those past a Java waiter that gave up. Other
//! lines are ignored.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use fairlock_testkit::server::Generation;

use crate::rounds::checker::WakeUps;
use crate::rounds::{Report, in_ms};
use crate::version::Version;

/// The line of a run.
pub fn line(
    kind: &str,
    version: Version,
    server: Generation,
    seed: u64,
    report: &Report,
) -> String {
    let Report { rounds, operations, hand_overs, violations, .. } = report;
    let (server, violations, spoiled) = (server.name(), violations.len(), report.spoiled.len());
    let mut line = format!(
        "result {kind} {version} {server} {seed} {rounds} {operations} {violations} {spoiled}"
    );
    let ways = [
        &hand_overs.rust_to_java,
        &hand_overs.java_to_rust,
        &hand_overs.rust_to_rust,
        &hand_overs.java_to_java,
        &hand_overs.past_a_leaver,
    ];
    for WakeUps { count, late, worst } in ways {
        line.push_str(&format!(" {count}/{late}/{}", worst.as_micros()));
    }
    line
}

/// The results of one version on one server.
#[derive(Debug, Default)]
struct Cell {
    cases: u64,
    failed: u64,
    rounds: u64,
    clocks: u64,
    deaths: u64,
    calls: u64,
    violations: u64,
    spoiled: u64,
    /// As in the line.
    ways: [WakeUps; 5],
    seeds: Vec<String>,
}

/// Combines all lines of the files in a folder into a report.
///
/// # Errors
///
/// If the folder or a file cannot be read.
pub fn of_folder(folder: &Path, commit: &str) -> io::Result<String> {
    let mut paths: Vec<_> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut text = String::new();
    for path in paths {
        text.push_str(&fs::read_to_string(path)?);
        text.push('\n');
    }
    Ok(markdown(&cells(&text), commit))
}

fn cells(text: &str) -> BTreeMap<(usize, usize), Cell> {
    let mut cells: BTreeMap<(usize, usize), Cell> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[..] {
            ["cases", version, server, _, _] => {
                let cell = cells.entry(position(version, server)).or_default();
                cell.cases += number(3);
                cell.failed += number(4);
            }
            ["result", kind, version, server, seed, _, _, _, _, ref ways @ ..]
                if ways.len() == 5 =>
            {
                let cell = cells.entry(position(version, server)).or_default();
                let rounds = number(5);
                match kind {
                    "clocks" => cell.clocks += rounds,
                    "deaths" => cell.deaths += rounds,
                    _ => cell.rounds += rounds,
                }
                cell.calls += number(6);
                cell.violations += number(7);
                cell.spoiled += number(8);
                cell.seeds.push(format!("{kind} {seed} ({rounds})"));
                for (way, text) in cell.ways.iter_mut().zip(ways) {
                    way.add(&parsed(text));
                }
            }
            _ => {}
        }
    }
    cells
}

/// The position of a cell: the newest version and the oldest server first.
fn position(version: &str, server: &str) -> (usize, usize) {
    let version = Version::ALL.iter().position(|other| other.name() == version);
    let server = Generation::ALL.iter().position(|other| other.name() == server);
    (version.expect("a version of ours"), server.expect("a server of ours"))
}

fn parsed(text: &str) -> WakeUps {
    let numbers: Vec<_> = text.split('/').map(|number| number.parse().expect("a number")).collect();
    let [count, late, worst_us] = numbers[..] else { panic!("three numbers, not {text}") };
    WakeUps { count, late, worst: Duration::from_micros(worst_us) }
}

fn markdown(cells: &BTreeMap<(usize, usize), Cell>, commit: &str) -> String {
    let mut text = String::new();
    let _ = write!(
        text,
        "# The matrix of interoperation\n\n\
         Made by `scripts/interop` at commit {commit}; not edited. *Cases* are the scripted tests of\n\
         `crates/fairlock-interop` that passed. *Rounds* are random scripts that Rust and Java play together, then\n\
         those with a Java client whose clock is ten minutes off, then those in which clients are killed. A\n\
         hand-over is counted where the next holder had been waiting, in the first kind of rounds; its wake-up is\n\
         from the server's time of the release to the return of the call that waited. *Late* is above 50 ms, *worst*\n\
         the slowest to or from ours.\n\n\
         | Redisson | server | cases | rounds | calls | Rust->Java | Java->Rust | Rust->Rust | late | worst | violations |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for (position, cell) in cells {
        let (version, server) = names(*position);
        let Cell { cases, failed, rounds, clocks, deaths, calls, violations, ways, .. } = cell;
        let cases =
            if *failed > 0 { format!("{cases}, {failed} FAILED") } else { cases.to_string() };
        let [to_java, to_rust, rust_only, ..] = ways.each_ref().map(|way| way.count);
        let ours = &ways[..3];
        let late: u64 = ours.iter().map(|way| way.late).sum();
        let worst = in_ms(ours.iter().map(|way| way.worst).max().unwrap_or_default());
        let _ = writeln!(
            text,
            "| {version} | {server} | {cases} | {rounds} + {clocks} + {deaths} | {calls} | {to_java} | {to_rust} | \
             {rust_only} | {late} | {worst} | {violations} |"
        );
    }
    text.push_str(
        "\nWhat is not ours to answer for: hand-overs from Java to Java; those late because the Java waiter that had been\n\
         told was giving up, which Java tells nobody (with one of ours behind it: at most half a second); and rounds that are not counted, because a\n\
         call of Java's failed by itself (see docs/protocol.md); others were played instead.\n\n\
         | Redisson | server | Java->Java | late | worst | past Java that gave up | worst | spoiled rounds |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (position, cell) in cells {
        let (version, server) = names(*position);
        let WakeUps { count, late, worst } = &cell.ways[3];
        let (leavers, after) = (cell.ways[4].count, in_ms(cell.ways[4].worst));
        let _ = writeln!(
            text,
            "| {version} | {server} | {count} | {late} | {} | {leavers} | {after} | {} |",
            in_ms(*worst),
            cell.spoiled
        );
    }
    text.push_str("\nSeeds, and how many rounds follow from each:\n\n");
    for (position, cell) in cells {
        let (version, server) = names(*position);
        let _ = writeln!(text, "- {version}, {server}: {}", cell.seeds.join(", "));
    }
    text
}

fn names((version, server): (usize, usize)) -> (&'static str, &'static str) {
    (Version::ALL[version].name(), Generation::ALL[server].name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::checker::HandOvers;

    #[test]
    fn results_of_a_cell_are_added_up() {
        let way =
            |count, late, worst_ms| WakeUps { count, late, worst: Duration::from_millis(worst_ms) };
        let hand_overs = HandOvers {
            rust_to_java: way(10, 1, 60),
            java_to_rust: way(20, 0, 9),
            rust_to_rust: way(30, 0, 8),
            java_to_java: way(40, 5, 900),
            past_a_leaver: way(2, 2, 480),
        };
        let violations = vec!["one".to_owned()];
        let report =
            Report { rounds: 250, operations: 5000, hand_overs, violations, ..Report::default() };
        let line = line("rounds", Version::V3_52, Generation::Redis62, 7, &report);
        let text = format!(
            "{line}\ncases 3.52.0 redis62 60 0\nnoise\n{line}\n\
             result deaths 3.52.0 redis62 9 16 100 0 3 0/0/0 0/0/0 0/0/0 0/0/0 0/0/0\n\
             cases 4.7.0 valkey91 59 1\n"
        );
        let text = markdown(&cells(&text), "abc");
        let row =
            "| 3.52.0 | redis62 | 60 | 500 + 0 + 16 | 10100 | 20 | 40 | 60 | 2 | 60.0 ms | 2 |";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("| 3.52.0 | redis62 | 80 | 10 | 900.0 ms | 4 | 480.0 ms | 3 |"),
            "{text}"
        );
        assert!(text.contains("| 4.7.0 | valkey91 | 59, 1 FAILED | 0 + 0 + 0 |"), "{text}");
        assert!(
            text.contains("- 3.52.0, redis62: rounds 7 (250), rounds 7 (250), deaths 9 (16)"),
            "{text}"
        );
        assert!(text.contains("commit abc"));
    }
}
