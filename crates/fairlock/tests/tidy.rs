//! Rules about the source that no lint knows: which module may use what.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file, in lines: beyond it a file has more than one purpose.
const LINES_MAX: usize = 700;

struct Source {
    /// Below the folder `crates`.
    path: String,
    text: String,
}

impl Source {
    /// Its lines with their numbers, without comments and without the unit tests at its end.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let comment = if self.path.ends_with(".lua") { "--" } else { "//" };
        let tests = |line: &&str| line.trim() == "#[cfg(test)]";
        // A module of its own may be declared for tests in the middle of a file.
        let lines: Vec<_> = self.text.lines().collect();
        let inline = lines.iter().enumerate().position(|(at, line)| {
            tests(line) && lines.get(at + 1).is_some_and(|next| next.ends_with('{'))
        });
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

/// The files at or below `folder` (below `crates`) whose names end in `ending`.
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

/// Whether `word` stands in `line` and is not only a part of a longer name.
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

/// Is it a file of tests as a whole?
fn is_test(source: &Source) -> bool {
    let path = &source.path;
    path.ends_with("tests.rs")
        || path.contains("/tests/")
        || path.contains("/differential/")
        || path.contains("/simulation/")
}

#[test]
fn the_core_has_no_clock_and_no_io() {
    let core = sources("fairlock-core/src", ".rs");
    let words =
        ["Instant", "SystemTime", "tokio", "redis", "async", "std::net", "std::fs", "std::thread"];
    none("the core is pure", uses(&core, &words));
}

/// The Lua is checked against the core, so the store that runs it must not lean on it.
#[test]
fn the_redis_store_does_not_use_the_state_machine() {
    let mut store = sources("fairlock/src/store/redis", ".rs");
    store.retain(|source| !is_test(source));
    none("the check would not be independent", uses(&store, &["Model", "LockState"]));
}

#[test]
fn only_the_redis_store_uses_the_redis_crate() {
    let mut library = sources("fairlock/src", ".rs");
    library.retain(|source| !source.path.starts_with("fairlock/src/store/redis"));
    let mut found = uses(&library, &["redis::"]);
    // Where the store is made, and the seam: both name the store, not the crate.
    let ours = ["fairlock/src/background.rs", "fairlock/src/store/mod.rs"];
    found.retain(|line| !ours.iter().any(|path| line.starts_with(&format!("{path}:"))));
    none("Redis is known in store/redis only", found);
    for source in library.iter().filter(|source| ours.contains(&&source.path[..])) {
        let lines = source.code().filter(|(_, line)| contains_word(line, "redis::"));
        assert!(lines.into_iter().all(|(_, line)| line.contains("crate::store::redis::")));
    }
    none(
        "the command uses the public API",
        uses(&sources("fairlock-cli/src", ".rs"), &["redis::"]),
    );
}

/// What is trusted, and when something is sent, is decided in one place.
#[test]
fn only_the_tls_of_the_redis_store_uses_rustls() {
    let (known, others): (Vec<_>, Vec<_>) = sources("fairlock/src", ".rs")
        .into_iter()
        .partition(|source| source.path.starts_with("fairlock/src/store/redis/tls/"));
    none("rustls is known in store/redis/tls only", uses(&others, &["rustls", "tokio_rustls"]));
    assert!(!uses(&known, &["rustls"]).is_empty(), "the rule sees nothing");
    // What asks for the process's provider panics beside a second one.
    none("a provider is named", uses(&known, &["ClientConfig::builder()", "get_default"]));
}

#[test]
fn only_the_host_store_uses_sqlite() {
    let (known, others): (Vec<_>, Vec<_>) = sources("fairlock/src", ".rs")
        .into_iter()
        .partition(|source| source.path.starts_with("fairlock/src/store/host/"));
    none("SQLite is known in store/host only", uses(&others, &["rusqlite"]));
    assert!(!uses(&known, &["rusqlite"]).is_empty(), "the rule sees nothing");
    none(
        "the command uses the public API",
        uses(&sources("fairlock-cli/src", ".rs"), &["rusqlite"]),
    );
}

/// What the library does must not depend on who listens.
#[test]
fn only_observe_knows_metrics_and_tracing() {
    let (known, others): (Vec<_>, Vec<_>) = sources("fairlock/src", ".rs")
        .into_iter()
        .partition(|source| source.path.starts_with("fairlock/src/observe/"));
    let words = ["tracing::", "metrics::", "\"tracing\"", "\"metrics\""];
    none("metrics and tracing are known in observe only", uses(&others, &words));
    assert!(!uses(&known, &words).is_empty(), "the rule sees nothing");
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
    // Time comes from the server's clock at the head of each, randomness from nowhere.
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

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    let folders = [
        "fairlock",
        "fairlock-core",
        "fairlock-cli",
        "fairlock-examples",
        "fairlock-guard",
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
