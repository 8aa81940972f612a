//! Pages whose tables name the tests that show what they say.

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

/// The cells of the tables' rows, from the heading before them to the next one of its rank.
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

/// Where a name like `contract::plain::expiry` points to: the file, and what is left of the path.
fn resolve(name: &str) -> Option<(String, Vec<&str>)> {
    let path: Vec<_> = name.split("::").collect();
    let (root, path) = match path[0] {
        "exits" => {
            let main = crates().join("fairlock-exits/tests/main.rs");
            return Some((fs::read_to_string(main).unwrap(), path[1..].to_vec()));
        }
        "interop" => (crates().join("fairlock-interop/tests"), &path[1..]),
        "src" => (crates().join("fairlock/src"), &path[1..]),
        _ => (crates().join("fairlock/tests"), &path[..]),
    };
    (1..path.len()).rev().find_map(|length| {
        let file = root.join(path[..length].join("/")).with_extension("rs");
        Some((fs::read_to_string(file).ok()?, path[length..].to_vec()))
    })
}

/// Whether a test of this name is there, and run.
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
    if !name.starts_with("contract::") {
        let attributes = || function.attrs.iter().map(Attribute::path);
        let ends = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "test");
        return attributes().any(ends) && !attributes().any(|path| path.is_ident("ignore"));
    }
    // The cases of the contract are listed by the macro that makes tests of them.
    let cases = fs::read_to_string(crates().join("fairlock/tests/contract/mod.rs")).unwrap();
    let module = name.split("::").nth(1).unwrap();
    let Some((_, list)) = cases.split_once(&format!(" {module}: [")) else { return false };
    let list = list.split(']').next().unwrap();
    list.split(',').any(|listed| listed.trim() == *case)
}

/// The faults whose effect follows from the rules, and which no test plays.
const NOT_PLAYED: [&str; 2] =
    ["Java head hangs with its connection open", "our waiter or holder dies"];

/// Each row of the failure matrix says what happens to all promises, and which tests show it.
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
        let tests = names(tests).into_iter().filter(|name| name.contains("::"));
        let tests: Vec<_> = tests.collect();
        assert!(!tests.is_empty(), "{fault}: which test?");
        for name in tests {
            assert!(is_test(name), "{fault}: there is no test {name}");
        }
    }
    assert_eq!(not_played, NOT_PLAYED);
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
