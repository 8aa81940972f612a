//! Every test that docs/redisson-tests.md names exists.

use std::fs;
use std::path::{Path, PathBuf};

/// Failures that the page must have, and how many of Redisson's tests.
const FAILURES: usize = 18;
const TESTS: usize = 31;

/// Redisson's tests of what we do not have: Cluster, and read/write locks.
const WITHOUT: [usize; 2] = [16, 19];

fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The cells of a Markdown table's rows, from the heading before it to the next.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(&format!("## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells =
        |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// The names in backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Where a name like `contract::plain::expiry` points to: the file, and what is left of the path.
fn resolve(name: &str) -> Option<(String, Vec<&str>)> {
    let path: Vec<_> = name.split("::").collect();
    (1..path.len()).rev().find_map(|length| {
        let file = tests_folder().join(path[..length].join("/")).with_extension("rs");
        Some((fs::read_to_string(file).ok()?, path[length..].to_vec()))
    })
}

/// Whether a test of this name is there, and run.
fn is_test(name: &str) -> bool {
    let Some((source, inner)) = resolve(name) else { return false };
    let Some((case, modules)) = inner.split_last() else { return false };
    let is_declared = modules.iter().all(|module| source.contains(&format!("\nmod {module} {{")));
    let function = format!("fn {case}(");
    let Some(at) = source.find(&function) else { return false };
    let is_run = if name.starts_with("contract::") {
        let cases = fs::read_to_string(tests_folder().join("contract/mod.rs")).unwrap();
        let module = name.split("::").nth(1).unwrap();
        let (_, list) = cases.split_once(&format!(" {module}: [")).unwrap();
        let list = list.split(']').next().unwrap();
        list.split(',').any(|listed| listed.trim() == *case)
    } else {
        let before = source[..at].trim_end();
        before.ends_with("#[test]") || before.ends_with("async") || name.starts_with("faults::")
    };
    is_declared && is_run
}

#[test]
fn every_test_that_is_named_exists() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/redisson-tests.md");
    let page = fs::read_to_string(page).unwrap();
    let failures = rows(&page, "Failures");
    assert_eq!(failures.len(), FAILURES);
    for row in &failures {
        let [module] = names(&row[2])[..] else { panic!("one module: {row:?}") };
        for half in ["redisson_fails", "ours_does_not"] {
            assert!(is_test(&format!("{module}::{half}")), "{module}::{half}");
        }
    }
    let tests = rows(&page, "Tests");
    for (number, row) in (1..).zip(&tests) {
        assert_eq!(row[0], number.to_string(), "{row:?}");
        let ours = names(&row[2]);
        assert_eq!(ours.is_empty(), WITHOUT.contains(&number), "{row:?}");
        for name in ours {
            assert!(is_test(name), "{number}: there is no test {name}");
        }
    }
    assert_eq!(tests.len(), TESTS);
}

#[test]
fn what_is_not_there_is_noticed() {
    assert!(is_test("redisson::table::what_is_not_there_is_noticed"));
    assert!(!is_test("redisson::table::what_was_never_there"));
    assert!(!is_test("redisson::table::is_test"), "no test");
    assert!(!is_test("redisson::nowhere::what_is_not_there_is_noticed"));
    assert!(!is_test("contract::redisson::both_kinds"), "no case");
    assert!(!is_test("redisson::dead::issue_1_nothing::ours_does_not"));
}
