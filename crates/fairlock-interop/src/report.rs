//! The combined results of the matrix, as shown in `docs/interop-report.md`.
//!
//! Every run writes a line for each kind of lock to a file, with words separated by one space:
//!
//! ```text
//! result KIND GAME VERSION SERVER SEED ROUNDS CALLS VIOLATIONS SPOILED WAY WAY WAY WAY WAY
//! cases VERSION SERVER PASSED FAILED
//! ```
//!
//! KIND is rounds, clocks or deaths, GAME fair, plain, read-write or latch. WAY is `COUNT/LATE/WORST_US` for the hand-overs of Rust to
//! Java, Java to Rust, Rust to Rust, Java to Java, and those past a Java waiter that gave up. Other
//! lines are ignored.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use fairlock_testkit::server::Generation;

use crate::rounds::checker::WakeUps;
use crate::rounds::script::Game;
use crate::rounds::{Report, Tally, in_ms};
use crate::version::Version;

/// The lines of a run.
pub fn lines(
    kind: &str,
    version: Version,
    server: Generation,
    seed: u64,
    report: &Report,
) -> String {
    let mut lines = String::new();
    for (game, tally) in &report.of {
        let Tally { rounds, operations, hand_overs, violations, spoiled } = tally;
        let (game, server) = (game.name(), server.name());
        let _ = write!(
            lines,
            "result {kind} {game} {version} {server} {seed} {rounds} {operations} {violations} {spoiled}"
        );
        let ways = [
            &hand_overs.rust_to_java,
            &hand_overs.java_to_rust,
            &hand_overs.rust_to_rust,
            &hand_overs.java_to_java,
            &hand_overs.past_a_leaver,
        ];
        for WakeUps { count, late, worst } in ways {
            let _ = write!(lines, " {count}/{late}/{}", worst.as_micros());
        }
        lines.push('\n');
    }
    lines
}

/// The results of one version on one server.
#[derive(Debug, Default)]
struct Cell {
    cases: u64,
    failed: u64,
    played: Sum,
    /// Of each kind of lock.
    of: [Sum; Game::ALL.len()],
    /// What was played from which seed, and how many rounds of that.
    seeds: Vec<(String, u64)>,
}

/// Rounds added up.
#[derive(Clone, Debug, Default)]
struct Sum {
    rounds: u64,
    clocks: u64,
    deaths: u64,
    calls: u64,
    violations: u64,
    spoiled: u64,
    /// As in the line.
    ways: [WakeUps; 5],
}

impl Sum {
    fn add(&mut self, other: &Self) {
        let Self { rounds, clocks, deaths, calls, violations, spoiled, ways } = other;
        self.rounds += rounds;
        self.clocks += clocks;
        self.deaths += deaths;
        self.calls += calls;
        self.violations += violations;
        self.spoiled += spoiled;
        self.ways.iter_mut().zip(ways).for_each(|(way, other)| way.add(other));
    }

    fn all_rounds(&self) -> String {
        let Self { rounds, clocks, deaths, .. } = self;
        format!("{rounds} + {clocks} + {deaths}")
    }

    /// The cells of a table: hand-overs in which ours took part, how many were late, the slowest.
    fn with_ours(&self) -> String {
        let [to_java, to_rust, rust_only, ..] = self.ways.each_ref().map(|way| way.count);
        let ours = &self.ways[..3];
        let late: u64 = ours.iter().map(|way| way.late).sum();
        let worst = in_ms(ours.iter().map(|way| way.worst).max().unwrap_or_default());
        format!("{to_java} | {to_rust} | {rust_only} | {late} | {worst}")
    }
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
            ["result", kind, game, version, server, seed, _, _, _, _, ref ways @ ..]
                if ways.len() == 5 =>
            {
                let cell = cells.entry(position(version, server)).or_default();
                let rounds = number(6);
                let mut sum = Sum {
                    calls: number(7),
                    violations: number(8),
                    spoiled: number(9),
                    ..Sum::default()
                };
                match kind {
                    "clocks" => sum.clocks = rounds,
                    "deaths" => sum.deaths = rounds,
                    _ => sum.rounds = rounds,
                }
                for (way, text) in sum.ways.iter_mut().zip(ways) {
                    *way = parsed(text);
                }
                cell.played.add(&sum);
                let game = Game::ALL.iter().position(|other| other.name() == game);
                cell.of[game.expect("a kind of ours")].add(&sum);
                let from = format!("{kind} {seed}");
                match cell.seeds.last_mut() {
                    Some((last, all)) if *last == from => *all += rounds,
                    _ => cell.seeds.push((from, rounds)),
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
         those with a Java client whose clock is ten minutes off, then those in which clients are killed. Hand-overs\n\
         are counted in the first kind of rounds, where the next holder had been waiting. Their wake-up is measured\n\
         from the release, by the server's clock, to the return of the call that waited; for a latch, from the last\n\
         count-down to the return of each call that waited. *Late* counts wake-ups above 50 ms; *worst* is the\n\
         slowest to or from ours.\n\n\
         | Redisson | server | cases | rounds | calls | Rust->Java | Java->Rust | Rust->Rust | late | worst | violations |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for (position, Cell { cases, failed, played, .. }) in cells {
        let (version, server) = names(*position);
        let cases =
            if *failed > 0 { format!("{cases}, {failed} FAILED") } else { cases.to_string() };
        let (rounds, with_ours) = (played.all_rounds(), played.with_ours());
        let Sum { calls, violations, .. } = played;
        let _ = writeln!(
            text,
            "| {version} | {server} | {cases} | {rounds} | {calls} | {with_ours} | {violations} |"
        );
    }
    text.push_str(&by_kind(cells));
    text.push_str(
        "\nThe next table shows what fairlock does not answer for: hand-overs from Java to Java; those that were late because the\n\
         notified Java waiter was giving up, which Java tells nobody (at most half a second late if one of ours is behind it);\n\
         and rounds that are not counted because a Java call failed by itself (see docs/protocol.md); others were played instead.\n\n\
         | Redisson | server | Java->Java | late | worst | past Java that gave up | worst | spoiled rounds |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (position, cell) in cells {
        let (version, server) = names(*position);
        let Sum { ways, spoiled, .. } = &cell.played;
        let WakeUps { count, late, worst } = &ways[3];
        let (leavers, after) = (ways[4].count, in_ms(ways[4].worst));
        let worst = in_ms(*worst);
        let _ = writeln!(
            text,
            "| {version} | {server} | {count} | {late} | {worst} | {leavers} | {after} | {spoiled} |"
        );
    }
    text.push_str("\nSeeds, and how many rounds follow from each:\n\n");
    for (position, cell) in cells {
        let (version, server) = names(*position);
        let seeds: Vec<_> =
            cell.seeds.iter().map(|(from, rounds)| format!("{from} ({rounds})")).collect();
        let _ = writeln!(text, "- {version}, {server}: {}", seeds.join(", "));
    }
    text
}

/// Each kind in all cells, and how many rounds of it each cell has.
fn by_kind(cells: &BTreeMap<(usize, usize), Cell>) -> String {
    let mut text = String::from(
        "\nTotals for each kind of lock:\n\n\
         | kind | rounds | calls | Rust->Java | Java->Rust | Rust->Rust | late | worst | violations |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (at, game) in Game::ALL.iter().enumerate() {
        let mut sum = Sum::default();
        cells.values().for_each(|cell| sum.add(&cell.of[at]));
        let (rounds, with_ours) = (sum.all_rounds(), sum.with_ours());
        let (name, Sum { calls, violations, .. }) = (game.name(), &sum);
        let _ = writeln!(text, "| {name} | {rounds} | {calls} | {with_ours} | {violations} |");
    }
    text.push_str("\nRounds of each kind:\n\n| Redisson | server |");
    Game::ALL.iter().for_each(|game| text.push_str(&format!(" {} |", game.name())));
    text.push_str("\n|---|---|---|---|---|---|\n");
    for (position, cell) in cells {
        let (version, server) = names(*position);
        let rounds: Vec<_> = cell.of.iter().map(Sum::all_rounds).collect();
        let _ = writeln!(text, "| {version} | {server} | {} |", rounds.join(" | "));
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
        let fair = Tally { rounds: 200, operations: 5000, hand_overs, violations: 1, spoiled: 0 };
        let latch = Tally { rounds: 50, ..Tally::default() };
        let of = BTreeMap::from([(Game::Fair, fair), (Game::Latch, latch)]);
        let report = Report { of, ..Report::default() };
        let of_seed = |seed| lines("rounds", Version::V3_52, Generation::Redis62, seed, &report);
        let (line, next) = (of_seed(7), of_seed(8));
        let text = format!(
            "{line}cases 3.52.0 redis62 60 0\nnoise\n{next}\
             result deaths read-write 3.52.0 redis62 9 16 100 0 3 0/0/0 0/0/0 0/0/0 0/0/0 0/0/0\n\
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
            text.contains("- 3.52.0, redis62: rounds 7 (250), rounds 8 (250), deaths 9 (16)"),
            "{text}"
        );
        let row = "| fair | 400 + 0 + 0 | 10000 | 20 | 40 | 60 | 2 | 60.0 ms | 2 |";
        assert!(text.contains(row), "{text}");
        let row = "| 3.52.0 | redis62 | 400 + 0 + 0 | 0 + 0 + 0 | 0 + 0 + 16 | 100 + 0 + 0 |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("commit abc"));
    }
}
