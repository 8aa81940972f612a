//! docs/redisson.md explains every method of Redisson's lock family, or says why it is not here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A method as the page writes it: with its parameters, or all of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    name: String,
    parameters: Option<usize>,
}

fn parameters(list: &str) -> usize {
    if list.trim().is_empty() { 0 } else { list.split(',').count() }
}

fn told(text: &str) -> Option<Told> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(char::is_alphanumeric);
    let (name, list) = match text.split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')')?)),
        None => (text, None),
    };
    is_name(name).then(|| Told { name: name.to_owned(), parameters: list.map(parameters) })
}

/// The methods in the first columns of the tables below each heading of the part "Methods".
fn page(text: &str) -> BTreeMap<String, Vec<Told>> {
    let (_, part) = text.split_once("\n## Methods\n").expect("the part");
    let part = part.split("\n## ").next().unwrap_or_default();
    let mut page = BTreeMap::new();
    for section in part.split("\n### `").skip(1) {
        let (of, tables) = section.split_once('`').expect("a heading in code");
        let rows = tables.lines().filter(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.split(" | ").next());
        let methods = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter_map(told);
        page.insert(of.to_owned(), methods.collect());
    }
    page
}

/// The heading under which a type's methods are explained.
fn heading(of: &str) -> &str {
    match of.strip_suffix("Async").unwrap_or(of) {
        "Lock" | "RObservable" => "RLock",
        "ReadWriteLock" => "RReadWriteLock",
        of => of,
    }
}

/// The methods of the list that the page does not explain. One with `Async` behind it is the method without.
fn missing(list: &str, page: &BTreeMap<String, Vec<Told>>) -> Vec<String> {
    let mut missing = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (method, rest) = line.split_once('(').expect("a method");
        let (of, name) = method.split_once('.').expect("of a type");
        let count = parameters(rest.trim_end_matches(')'));
        let (name, is_twin) = match name.strip_suffix("Async") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let fits = |it: &Told| match it.parameters {
            // Twins may also take a thread's id.
            Some(number) => it.name == name && (number == count || is_twin),
            None => it.name == name || is_twin && it.name.strip_suffix("Async") == Some(name),
        };
        if !page.get(heading(of)).is_some_and(|told| told.iter().any(fits)) {
            missing.push(line.to_owned());
        }
    }
    missing
}

#[test]
fn every_method_of_the_family_is_explained() {
    let (list, page) = (read("testing/redisson-methods.txt"), page(&read("docs/redisson.md")));
    assert!(list.lines().count() > 150, "{}", list.lines().count());
    let missing = missing(&list, &page);
    assert!(missing.is_empty(), "not in docs/redisson.md:\n{}", missing.join("\n"));
}

/// The page explains nothing that the jar does not have.
#[test]
fn every_method_that_is_explained_exists() {
    let (list, page) = (read("testing/redisson-methods.txt"), page(&read("docs/redisson.md")));
    let has = |of: &str, told: &Told| {
        list.lines().filter_map(|line| line.split_once('(')).any(|(method, rest)| {
            let (type_, name) = method.split_once('.').unwrap_or_default();
            let count = parameters(rest.trim_end_matches(')'));
            heading(type_) == of && name == told.name && told.parameters.is_none_or(|n| n == count)
        })
    };
    // What is explained beside them: of the client's life, and of `RObject`.
    const BESIDE: [&str; 4] = ["shutdown", "isShutdown", "getId", "delete"];
    let mut unknown = Vec::new();
    for (of, methods) in &page {
        let others = methods.iter().filter(|told| !BESIDE.contains(&told.name.as_str()));
        // The names of types in a row about all of their methods.
        let others = others.filter(|told| told.name.starts_with(char::is_lowercase));
        unknown.extend(others.filter(|told| !has(of, told)).map(|told| format!("{of}: {told:?}")));
    }
    assert!(unknown.is_empty(), "not in the jar:\n{}", unknown.join("\n"));
}

#[test]
fn a_method_that_is_not_explained_is_found() {
    let page = page(
        "\n## Methods\n\n### `RLock`\n\n| Redisson | here |\n|---|---|\n| `lock()`, `tryLock` | `x(a)` |\n\n## More\n",
    );
    let list = "# a comment\nRLock.lock()\nRLock.lock(long, TimeUnit)\nRLockAsync.lockAsync(long)\nLock.tryLock(long)\n\
                RLock.x(long)\nRSemaphore.lock()\n";
    assert_eq!(
        missing(list, &page),
        ["RLock.lock(long, TimeUnit)", "RLock.x(long)", "RSemaphore.lock()"]
    );
}
