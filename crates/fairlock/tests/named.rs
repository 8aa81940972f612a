//! Pages with tables that name tests: the tests exist.

use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, Item};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A page of `docs`.
pub(crate) fn page(name: &str) -> String {
    fs::read_to_string(crates().join("../docs").join(name)).unwrap()
}

/// The cells of the tables' rows below a heading, up to the next heading of its rank.
pub(crate) fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(&format!("## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines: Vec<_> = section.lines().collect();
    // The line above the rule is the table's head.
    let heads = lines.windows(2).filter(|pair| pair[1].starts_with("|---")).map(|pair| pair[0]);
    let heads: Vec<_> = heads.collect();
    let rows = lines.iter().filter(|line| line.starts_with("| ") && !heads.contains(line));
    let cells =
        |row: &&str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// The names in backticks.
pub(crate) fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Resolves a name like `contract::plain::expiry`: the file, and the rest of the path.
fn resolve(name: &str) -> Option<(String, Vec<&str>)> {
    let path: Vec<_> = name.split("::").collect();
    // Tests of non-public code are modules of the library or the program, and their files have the
    // modules' paths.
    let inside = match path[0] {
        "src" => Some("fairlock/tests/inside"),
        "cli-src" => Some("fairlock-cli/tests/inside"),
        _ => None,
    };
    let (root, path) = match path[0] {
        "exits" | "torture" | "bench" => {
            let main = crates().join(format!("fairlock-{}/tests/main.rs", path[0]));
            return Some((fs::read_to_string(main).unwrap(), path[1..].to_vec()));
        }
        "interop" | "cli" | "examples" => {
            (crates().join(format!("fairlock-{}/tests", path[0])), &path[1..])
        }
        "core" => (crates().join("fairlock-core/tests/main"), &path[1..]),
        "core-src" => (crates().join("fairlock-core/src"), &path[1..]),
        "cli-src" => (crates().join("fairlock-cli/src"), &path[1..]),
        "testkit" => (crates().join("fairlock-testkit/src"), &path[1..]),
        "src" => (crates().join("fairlock/src"), &path[1..]),
        _ => (crates().join("fairlock/tests"), &path[..]),
    };
    (1..path.len()).rev().find_map(|length| {
        let file = Path::new(&path[..length].join("/")).with_extension("rs");
        let apart = inside.map(|folder| crates().join(folder).join(&file));
        let mut roots = apart.into_iter().chain([root.join(&file)]);
        let text = roots.find_map(|file| fs::read_to_string(file).ok())?;
        Some((text, path[length..].to_vec()))
    })
}

/// Whether a test of this name exists and is run.
pub(crate) fn is_test(name: &str) -> bool {
    let Some((source, inner)) = resolve(name) else { return false };
    let Some((case, modules)) = inner.split_last() else { return false };
    let mut items = syn::parse_file(&source).unwrap().items;
    for module in modules {
        let found = items.into_iter().find_map(|item| match item {
            Item::Mod(item) if item.ident == module => item.content,
            _ => None,
        });
        let Some((_, inner)) = found else { return false };
        items = inner;
    }
    let function = items.iter().find_map(|item| match item {
        Item::Fn(item) if item.sig.ident == case => Some(item),
        _ => None,
    });
    let Some(function) = function else { return false };
    let attributes = || function.attrs.iter().map(Attribute::path);
    let ends = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "test");
    for (beginning, file) in
        [("multi::each_store::", "multi/mod.rs"), ("election::mod::", "election/mod.rs")]
    {
        if name.starts_with(beginning) && !attributes().any(ends) {
            // A macro makes tests of these, too.
            let cases = fs::read_to_string(crates().join("fairlock/tests").join(file)).unwrap();
            let listed =
                |listed: &str| listed.trim().trim_start_matches("on_stores!(").trim() == *case;
            return cases.split([',', ')', '[', ']']).any(listed);
        }
    }
    if !name.starts_with("contract::") {
        return attributes().any(ends) && !attributes().any(|path| path.is_ident("ignore"));
    }
    // A macro lists the contract's cases and makes tests of them.
    let cases = fs::read_to_string(crates().join("fairlock/tests/contract/mod.rs")).unwrap();
    let module = name.split("::").nth(1).unwrap();
    let Some((_, lists)) = cases.split_once(&format!(" {module}: {{")) else { return false };
    let lists = lists.split('}').next().unwrap();
    lists.split([',', '[', ']']).any(|listed| listed.trim() == *case)
}

/// Faults whose effect follows from the rules, and which no test plays.
const NOT_PLAYED: [&str; 4] = [
    "holder left the lock held for a time (`detach_for`), and an earlier, unanswered renewal arrives late, from a lost \
     connection",
    "Java head hangs with its connection open",
    "a fair release of ours while a Java client waits for the same name as a plain or fenced lock",
    "our waiter or holder dies",
];

/// Each row of the failure matrix states what happens to all promises, and which tests show it.
#[test]
fn every_fault_in_the_guarantees_is_shown_by_a_test() {
    let page = page("guarantees.md");
    let rows = rows(&page, "What each fault costs");
    assert!(rows.len() > 50, "{} rows", rows.len());
    let mut not_played = Vec::new();
    for row in &rows {
        let [fault, kept, holder, waiters, tests] = &row[..] else { panic!("five cells: {row:?}") };
        assert!([fault, kept, holder, waiters].iter().all(|cell| !cell.is_empty()), "{row:?}");
        if tests == "none" {
            not_played.push(fault.as_str());
            continue;
        }
        shown(fault, tests);
    }
    assert_eq!(not_played, NOT_PLAYED);
}

#[test]
fn every_attack_on_shares_is_played() {
    let page = page("testing.md");
    let rows = rows(&page, "Attacks on shares");
    assert!(rows.len() >= 14, "{} rows", rows.len());
    for row in &rows {
        let [id, _, tests] = &row[..] else { panic!("three cells: {row:?}") };
        shown(id, tests);
    }
}

/// The tables of docs/testing.md: heading, letter of the ids, number of rows.
const CATALOGUES: [(&str, &str, usize); 5] = [
    ("Faults", "F", 93),
    ("Invariants", "I", 16),
    ("Liveness", "L", 10),
    ("Targets", "T", 30),
    ("Found from outside", "D", 68),
];

/// Each id has a row, in order, and each row names a test or the reason why there is none.
#[test]
fn every_fault_invariant_and_target_has_its_row() {
    let page = page("testing.md");
    for (heading, letter, count) in CATALOGUES {
        let rows = rows(&page, heading);
        // The sections of a catalogue have headings of another rank.
        let ids: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
        let digits = if count > 30 { 2 } else { 1 };
        let wanted: Vec<_> = (1..=count).map(|n| format!("{letter}{n:0digits$}")).collect();
        assert_eq!(ids, wanted, "{heading}");
        for row in rows {
            let [id, what, tests, figure] = &row[..] else { panic!("four cells: {row:?}") };
            assert!(!what.is_empty() && !figure.is_empty(), "{id}: what, and which figure?");
            let why = tests.strip_prefix("none yet: ");
            if why.is_none_or(|why| why.len() <= 10) {
                shown(id, tests);
            }
        }
    }
}

/// Each defect that was found has a command that finds it again, and a permanent test.
#[test]
fn every_bug_that_was_found_has_its_test() {
    let rows = rows(&page("testing.md"), "Bugs found");
    assert!(rows.len() > 50, "{} rows", rows.len());
    for row in rows {
        let [what, layer, replay, tests] = &row[..] else { panic!("four cells: {row:?}") };
        assert!(!layer.is_empty() && !replay.is_empty(), "{what}: by which layer, and how?");
        shown(what, tests);
    }
}

/// Tests are named, and they exist.
fn shown(what: &str, tests: &str) {
    let named: Vec<_> = names(tests).into_iter().filter(|name| name.contains("::")).collect();
    assert!(!named.is_empty(), "{what}: which test?");
    let missing: Vec<_> = named.into_iter().filter(|name| !is_test(name)).collect();
    assert!(missing.is_empty(), "{what}: there is no test {missing:?}");
}

#[test]
fn what_is_not_there_is_noticed() {
    assert!(is_test("named::what_is_not_there_is_noticed"));
    assert!(!is_test("named::what_was_never_there"));
    assert!(!is_test("named::is_test"), "no test");
    assert!(!is_test("nowhere::what_is_not_there_is_noticed"));
    assert!(!is_test("exits::what_was_never_there"));
    assert!(is_test("contract::plain::expiry"));
    assert!(!is_test("contract::redisson::both_kinds"), "no case");
    assert!(!is_test("contract::nowhere::both_kinds"));
    assert!(!is_test("redisson::dead::issue_1_nothing::ours_does_not"));
    let page = "## a\n| x | y |\n|---|---|\n| 1 | `b` |\n## c\n| 2 |\n";
    assert_eq!(rows(page, "a"), [["1", "`b`"]]);
    assert_eq!(names(&rows(page, "a")[0][1]), ["b"]);
}
