//! Rules about the source that no lint checks: which module may use what.

use std::fs;
use std::path::{Path, PathBuf};

/// The maximum length of a source file, in lines: a longer one has more than one purpose.
const LINES_MAX: usize = 700;

#[derive(Clone)]
struct Source {
    /// Relative to the folder `crates`.
    path: String,
    text: String,
}

impl Source {
    /// The lines with their numbers, without comments and without the unit tests at the end.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let comment = if self.path.ends_with(".lua") { "--" } else { "//" };
        let tests = |line: &&str| line.trim() == "#[cfg(test)]";
        // Test items in the middle of a file are functions, or modules with their body elsewhere.
        let is_module = |line: &&str| line.contains("mod ") && line.ends_with('{');
        let lines: Vec<_> = self.text.lines().collect();
        let inline = lines
            .iter()
            .enumerate()
            .position(|(at, line)| tests(line) && lines.get(at + 1).is_some_and(is_module));
        let end = inline.unwrap_or(lines.len());
        let mut code = Vec::new();
        for (at, line) in lines[..end].iter().enumerate() {
            let declares_tests = at > 0 && tests(&lines[at - 1]);
            if !declares_tests {
                code.push((at + 1, line.split(comment).next().unwrap_or("")));
            }
        }
        code.into_iter()
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files in `folder` (relative to `crates`) and below whose names end in `ending`.
fn sources(folder: &str, ending: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![crates().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().unwrap().ends_with(ending) {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(crates()).unwrap().to_str().unwrap().to_owned();
                found.push(Source { path, text });
            }
        }
    }
    assert!(!found.is_empty(), "no {ending} below {folder}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Every line of code that contains one of `words`.
fn uses(sources: &[Source], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in source.code() {
            if let Some(word) = words.iter().find(|word| contains_word(line, word)) {
                found.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    found
}

/// Whether `line` contains `word`, not just as a part of a longer name.
fn contains_word(line: &str, word: &str) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let goes_on_before = word.starts_with(of_name) && before.is_some_and(of_name);
        let goes_on_after = word.ends_with(of_name) && after.is_some_and(of_name);
        !goes_on_before && !goes_on_after
    })
}

#[track_caller]
fn none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Whether the whole file consists of tests.
fn is_test(source: &Source) -> bool {
    source.path.ends_with("/tests.rs")
}

#[test]
fn the_core_has_no_clock_and_no_io() {
    let core = sources("fairlock-core/src", ".rs");
    let words =
        ["Instant", "SystemTime", "tokio", "redis", "async", "std::net", "std::fs", "std::thread"];
    none("the core is pure", uses(&core, &words));
}

/// The Lua is checked against the core, so the store that runs it must not depend on the core's
/// state machine.
#[test]
fn the_redis_store_does_not_use_the_state_machine() {
    let mut store = sources("fairlock/src/store/redis", ".rs");
    store.retain(|source| !is_test(source));
    none("the check would not be independent", uses(&store, &["Model", "LockState"]));
}

/// The floors of each house, the highest first. Imports lead downwards, or stay on their floor.
const FLOORS: [(&str, &[&str]); 3] = [
    (
        "fairlock/src",
        &[
            "test_util",
            "blocking",
            "api",
            "engine",
            "state",
            "store",
            "fence",
            "observe",
            "settings",
            "base",
        ],
    ),
    (
        "fairlock-cli/src",
        &["help", "args", "commands", "locks", "store", "process", "settings", "base"],
    ),
    // The rules, which are methods of the state; then the state; then what is asked and answered.
    (
        "fairlock-core/src",
        &[
            "model",
            "every_op",
            "serialized",
            "invariant",
            "announce",
            "apply_latch",
            "client",
            "foreign",
            "lock",
            "quiet",
            "shares",
            "simple",
            "next",
            "slot",
            "liveness",
            "queue",
            "state",
            "holds",
            "leader",
            "snapshot",
            "of_hold",
            "op",
            "value",
            "latch",
            "not_a_lock",
            "share",
            "rules",
            "id",
        ],
    ),
];

/// The imports of `source`, on floor `at`, that lead upwards: to a higher floor, or, below the API,
/// to the crate's root, which re-exports the API.
fn upwards(source: &Source, at: usize, floors: &[&str]) -> Vec<String> {
    let root = floors.iter().position(|floor| *floor == "api").unwrap_or(0);
    let mut found = Vec::new();
    for (number, line) in source.code() {
        for (from, _) in line.match_indices("crate::") {
            let to = &line[from + "crate::".len()..];
            let name = to.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            let floor = floors.iter().position(|floor| *floor == name);
            if floor.map_or(at >= root, |floor| floor < at) {
                found.push(format!("{}:{number}: crate::{to}", source.path));
            }
        }
    }
    found
}

#[test]
fn imports_lead_downwards() {
    for (house, floors) in FLOORS {
        let mut seen = vec![0; floors.len()];
        for source in sources(house, ".rs").iter().filter(|source| !is_test(source)) {
            let place = source.path[house.len() + 1..].trim_end_matches(".rs");
            let floor = place.split('/').next().unwrap();
            if ["lib", "main"].contains(&floor) {
                continue;
            }
            let Some(at) = floors.iter().position(|known| *known == floor) else {
                panic!("{} is on no floor", source.path);
            };
            seen[at] += 1;
            none("imports lead downwards", upwards(source, at, floors));
        }
        assert!(seen.iter().all(|files| *files > 0), "{house}: {seen:?}");
    }
}

/// External crates, and the one place that uses each.
const OUTSIDERS: [(&str, &str); 6] = [
    ("sha1_smol", "fairlock/src/store/redis/"),
    ("rustls", "fairlock/src/store/redis/tls/"),
    ("tokio_rustls", "fairlock/src/store/redis/tls/"),
    ("rusqlite", "fairlock/src/store/host/"),
    ("tracing", "fairlock/src/observe/"),
    ("metrics", "fairlock/src/observe/"),
];

#[test]
fn each_crate_of_others_is_known_in_one_place() {
    let all = [sources("fairlock/src", ".rs"), sources("fairlock-cli/src", ".rs")].concat();
    for (name, place) in OUTSIDERS {
        // Not a module of ours with the same name, which follows another path segment.
        let names = |line: &str| {
            line.match_indices(&format!("{name}::")).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
            })
        };
        let (mut known, mut others) = (0, Vec::new());
        for source in &all {
            for (number, _) in source.code().filter(|(_, line)| names(line)) {
                match source.path.starts_with(place) {
                    true => known += 1,
                    false => others.push(format!("{}:{number}: {name}", source.path)),
                }
            }
        }
        none("one place knows it", others);
        assert!(known > 0, "{name}: the rule sees nothing");
    }
    // Code that asks for the process's default provider panics if two are compiled in.
    let tls = sources("fairlock/src/store/redis/tls", ".rs");
    none("a provider is named", uses(&tls, &["ClientConfig::builder()", "get_default"]));
}

/// A task that ends by a panic ends without a word, and whoever waits for it waits for ever.
#[test]
fn tasks_of_the_engine_close_the_client_when_they_panic() {
    let mut engine = sources("fairlock/src/engine", ".rs");
    let begun = uses(&engine, &["context.spawn(", ".clone().spawn(", "self.spawn("]).len();
    assert!(begun > 8, "{begun}: the rule sees nothing");
    // One begins the client itself, the other is how its tasks begin.
    engine.retain(|source| !["start.rs", "panics.rs"].iter().any(|one| source.path.ends_with(one)));
    none("`Context::spawn` begins it", uses(&engine, &["runtime.spawn", "tokio::spawn"]));
}

#[test]
fn every_script_says_what_it_takes_and_gives() {
    let scripts = sources("fairlock/src/store/redis/lua", ".lua");
    assert!(scripts.len() > 10);
    for script in &scripts {
        let header: Vec<_> =
            script.text.lines().take_while(|line| line.starts_with("--")).collect();
        for field in ["KEYS ", "ARGV ", "Reply "] {
            let starts = format!("-- {field}");
            assert!(
                header.iter().any(|line| line.starts_with(&starts)),
                "{}: {field}",
                script.path
            );
        }
        assert!(header[0].len() > 10, "{}: the first line says what it does", script.path);
    }
    // Time comes from the server's clock, read at the beginning of each script; no script uses
    // random numbers.
    let words = ["math.random", "os.time", "os.clock", "loadstring"];
    none("scripts are deterministic", uses(&scripts, &words));
}

#[test]
fn no_loose_ends() {
    for folder in ["fairlock/src", "fairlock-core/src", "fairlock-cli/src"] {
        let mut all = sources(folder, ".rs");
        all.retain(|source| !is_test(source));
        none("loose ends", uses(&all, &["todo!", "unimplemented!", "dbg!", ".unwrap()", "FIXME"]));
    }
}

/// Whether a module declares the file `path` below `tests/inside` of the crate `of`: a module
/// there, or one in its sources.
fn is_attached(of: &str, path: &str, all: &[Source]) -> bool {
    let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let (parent, name) = module.rsplit_once('/').unwrap_or(("main", module));
    let (declares, names) = (format!("mod {name};"), format!("/tests/inside/{path}\"]"));
    all.iter().any(|source| {
        let within = source.path.strip_prefix(of).and_then(|path| path.strip_prefix('/'));
        let within = within.map(|path| path.trim_end_matches(".rs").trim_end_matches("/mod"));
        let is = |folder: &str| {
            within.and_then(|path| path.strip_prefix(folder)).is_some_and(|path| path == parent)
        };
        let beside = is("tests/inside/");
        (beside || is("src/") && source.text.contains(&names)) && source.text.contains(&declares)
    })
}

/// A file that no module declares is not compiled, and its tests do not run.
#[test]
fn tests_of_what_is_not_public_are_compiled() {
    for of in ["fairlock", "fairlock-cli"] {
        let folder = format!("{of}/tests/inside");
        let tests = sources(&folder, ".rs");
        let all = [sources(&format!("{of}/src"), ".rs"), tests.clone()].concat();
        let paths = tests.iter().map(|source| &source.path[folder.len() + 1..]);
        let apart = paths.filter(|path| !is_attached(of, path, &all));
        none("no module declares it", apart.map(str::to_owned).collect());
        assert!(!is_attached(of, "nowhere.rs", &all));
    }
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    let folders = [
        "fairlock",
        "fairlock-core",
        "fairlock-cli",
        "fairlock-examples",
        "fairlock-hot-paths",
        "fairlock-interop",
        "fairlock-testkit",
        "fairlock-torture",
    ];
    for source in folders.iter().flat_map(|folder| sources(folder, ".rs")) {
        let lines = source.text.lines().count();
        if lines >= LINES_MAX {
            long.push(format!("{}: {lines} lines", source.path));
        }
    }
    none("one purpose a file", long);
}

#[test]
fn the_rules_see_what_they_look_for() {
    let text = "use redis::Cmd; // dbg!\nlet model_of = 1;\n#[cfg(test)]\nmod t {\n.unwrap()\n}\n";
    let source = [Source { path: "x.rs".into(), text: text.into() }];
    assert_eq!(uses(&source, &["redis::", "dbg!", "model", ".unwrap()"]), ["x.rs:1: redis::"]);
    let source =
        [Source { path: "x.rs".into(), text: "#[cfg(test)]\nmod Model;\nx.unwrap()".into() }];
    assert_eq!(uses(&source, &["Model", ".unwrap()"]), ["x.rs:3: .unwrap()"]);
}
