//! The reports of long runs in `docs`: complete, and without violations. Other pages and tables
//! rely on them.

use crate::named::page;
use fairlock_testkit::server::Generation;

/// The numbers in a cell such as `1000 + 32 + 16` or `1119`.
fn numbers(cell: &str) -> Vec<u64> {
    cell.split(" + ").map(|number| number.trim().parse().expect(cell)).collect()
}

/// Three versions of Redisson beside three servers, each with all cases passed and at least 250
/// rounds.
#[test]
fn the_matrix_of_interoperation_is_whole_and_sound() {
    let page = page("interop-report.md");
    let matrix: Vec<Vec<&str>> = page
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells.len() == 11 && cells[0].starts_with(char::is_numeric))
        .collect();
    let places: Vec<_> = matrix.iter().map(|cells| (cells[0], cells[1])).collect();
    let versions = ["4.7.0", "3.52.0", "3.16.8"];
    let servers = ["redis62", "redis70", "valkey91"];
    let all = versions.iter().flat_map(|version| servers.map(|server| (*version, server)));
    assert_eq!(places, all.collect::<Vec<_>>());
    for cells in &matrix {
        let [_, _, cases, rounds, _, to_java, to_rust, of_ours, _, _, violations] = cells[..]
        else {
            panic!("eleven cells: {cells:?}")
        };
        // A cell with a failed case says so in words.
        assert!(numbers(cases)[0] > 0, "{cells:?}");
        assert!(numbers(rounds)[0] >= 250, "{cells:?}");
        assert!([to_java, to_rust, of_ours].iter().all(|way| numbers(way)[0] > 0), "{cells:?}");
        assert_eq!(violations, "0", "{cells:?}");
    }
    for kind in ["fair", "plain", "read-write", "latch"] {
        assert!(!page.contains(&format!("\n| {kind} | 0 + ")), "no rounds about {kind}");
    }
}

/// Every generation that the test kit has, in its order, with the version that a server of it reported, and tests of
/// each column passed.
#[test]
fn the_table_of_servers_names_every_generation() {
    let page = page("servers.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.map(|row| row.split(" | ").collect::<Vec<_>>()).skip(1);
    let mut seen = Vec::new();
    for cells in rows {
        let [name, reported, cells @ ..] = &cells[..] else { panic!("a row: {cells:?}") };
        let is_it = |generation: &Generation| generation.name() == *name;
        let generation = Generation::ALL.into_iter().find(is_it);
        let (product, version) = generation.expect(name).product();
        assert!(reported.starts_with(&format!("{product} {version}")), "{name}: {reported}");
        assert!(cells.len() > 5, "{name}: {cells:?}");
        // Only what needs TLS may be skipped as a whole.
        let passed =
            cells.iter().filter(|cell| cell.starts_with(|first| matches!(first, '1'..='9')));
        assert!(passed.count() >= cells.len() - 1, "{name}: {cells:?}");
        assert!(cells.iter().all(|cell| !cell.contains("FAILED")), "{name}: {cells:?}");
        seen.push(generation.expect(name));
    }
    assert_eq!(seen, Generation::ALL, "scripts/servers-report, then scripts/servers-report table");
}

/// `fairlock-torture merge` judges what it writes: a night that did too little is INVALID.
#[test]
fn the_nights_of_torture_did_enough_and_found_nothing() {
    let page = page("torture-report.md");
    assert!(page.contains("\n**no violation**: "), "{}", page.lines().nth(5).unwrap_or_default());
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("acknowledged by sets that check tokens, 0 of them lost"));
}

#[test]
fn every_table_of_the_comparison_is_filled_in() {
    let page = page("performance.md");
    assert!(page.matches("<!-- measured: ").count() > 5);
    assert!(!page.contains("Not measured yet."), "scripts/bench-compare --render --publish");
}
