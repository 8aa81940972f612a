//! The documents show only tested content: code blocks are part of a file of this crate, commands
//! are run, settings match the code.

use fairlock::{Client, Config, ErrorKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DOCUMENTS: &[&str] =
    &["README.md", "docs/configuration.md", "docs/faq.md", "docs/manual.md", "docs/redisson.md"];

/// What newcomers read first, with the maximum number of lines.
const SHORT: &[(&str, usize)] = &[("README.md", 150), ("ARCHITECTURE.md", 150)];

/// Commands that are not programs of this crate, the file that runs them, and how they are written
/// there.
const COMMANDS: &[(&str, &str, &str)] = &[
    // For a user without any set-up.
    (
        "cargo run --quiet -p fairlock-cli -- run nightly -- tar -czf target/docs.tar.gz docs",
        "crates/fairlock-cli/tests/environments.rs",
        "fn the_readmes_first_command()",
    ),
    ("scripts/test", ".ci/run", "\nscripts/test "),
    (
        "cargo install --locked --path crates/fairlock-cli",
        "scripts/package",
        "cargo install --quiet --locked --debug --path crates/fairlock-cli --root",
    ),
    (
        "cargo install --locked --git https://github.com/fairlock/fairlock fairlock-cli",
        "scripts/package",
        "cargo install --quiet --locked --debug --git \"file://$PWD\" fairlock-cli --root",
    ),
];

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files at or below `folder` with this ending.
pub(super) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// Trims indentation and drops empty lines, which differ between a document and a function's body.
pub(super) fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

struct Block {
    language: String,
    text: String,
    at: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let text = read(document);
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(""), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                let at = format!("{document}:{}", number + 1);
                open = Some(Block { language: language.into(), text: String::new(), at });
            }
            (_, Some(block)) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document}: a block has no end");
    blocks
}

fn all_blocks() -> Vec<Block> {
    DOCUMENTS.iter().flat_map(|document| blocks(document)).collect()
}

#[test]
fn code_blocks_stand_in_a_file_that_is_tested() {
    let here = root().join("crates/fairlock-examples");
    let mut sources = files(&here.join("src"), ".rs");
    sources.extend(files(&here.join("tests"), ".rs"));
    let sources: Vec<_> = sources.iter().map(read).collect();
    let sources: Vec<_> = sources.iter().map(|text| lines(text)).collect();
    let (mut seen, mut missing) = (0, String::new());
    for block in all_blocks() {
        match block.language.as_str() {
            "rust" | "sql" | "lua" => {
                let wanted = lines(&block.text);
                let stands =
                    |source: &Vec<&str>| source.windows(wanted.len()).any(|lines| lines == wanted);
                assert!(!wanted.is_empty(), "{}: empty", block.at);
                if !sources.iter().any(stands) {
                    missing.extend([&block.at, "\n", &block.text]);
                }
                seen += 1;
            }
            "toml" => features_exist(&block),
            "sh" | "text" => {}
            other => panic!("{}: nobody checks blocks of \"{other}\"", block.at),
        }
    }
    assert!(seen > 10);
    assert!(missing.is_empty(), "no file of the examples has\n{missing}");
}

/// The whole program, not only a part of it.
#[test]
fn the_readmes_program_is_the_one_that_is_run() {
    const LINES_MAX: usize = 20;
    let blocks = blocks("README.md");
    let shown: Vec<_> = blocks.iter().filter(|block| block.language == "rust").collect();
    let [shown] = shown[..] else { panic!("one program") };
    let run = read("crates/fairlock-examples/src/bin/readme.rs");
    let run = run.trim_start_matches(|c| c != '\n').trim_start();
    assert_eq!(shown.text, run);
    assert!(shown.text.lines().count() <= LINES_MAX, "{} lines", shown.text.lines().count());
}

/// The README's figures are those of the last measurement.
#[test]
fn the_readmes_number_is_measured() {
    let measured = read("docs/performance.md");
    let cells = |rival: &str| {
        let row = measured.lines().find(|line| line.starts_with(&format!("| {rival} | ")));
        row.expect(rival).split(" | ").map(str::to_owned).collect::<Vec<_>>()
    };
    // From the table "At a glance": hand-overs per second with 1 000 waiters, and fairlock's
    // factor.
    let (rate, times) = (&cells("fairlock")[5], &cells("redisson-fair")[6]);
    let readme = lines(&read("README.md")).join(" ");
    assert!(
        readme.contains(&format!("makes {rate} hand-overs a second, {times} times as many")),
        "{rate} and {times} are measured"
    );
}

#[test]
fn what_is_read_first_is_short() {
    for (document, most) in SHORT {
        let lines = read(document).lines().count();
        assert!(lines <= *most, "{document}: {lines} lines of at most {most}");
    }
}

/// The folders to which paths in the contributors' pages may be relative.
const BELOW: [&str; 7] = [
    "",
    "crates",
    "crates/fairlock",
    "crates/fairlock/src",
    "crates/fairlock/src/store/redis/lua",
    "crates/fairlock-cli/src",
    "crates/fairlock-cli/src/settings",
];

/// The file or folder that such a page means; modules may be named without extension.
fn place(path: &str) -> Option<PathBuf> {
    let mut places = BELOW.iter().flat_map(|below| {
        let below = root().join(below);
        [below.join(path), below.join(format!("{path}.rs"))]
    });
    places.find(|place| place.exists())
}

/// A path, possibly at the start of a command; not a URL, nor a path of the system or of a build.
fn path_in(quoted: &str) -> Option<&str> {
    let first = quoted.split(' ').next()?;
    let is_path = first.contains('/') || first.ends_with(".rs") || first.ends_with(".lua");
    let is_elsewhere =
        first.contains("://") || first.starts_with('/') || first.starts_with("target/");
    (is_path && !is_elsewhere).then_some(first)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The page's text outside of its blocks, split at backticks: every second part is quoted.
fn cut_at_backticks(page: &str) -> Vec<String> {
    let mut in_block = false;
    let mut text = String::new();
    for line in page.lines().map(str::trim) {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            text.extend([line, " "]);
        }
    }
    text.split('`').map(str::to_owned).collect()
}

/// Whether a source file, in Rust or Lua, defines the name, which may be qualified by its type.
fn defines(source: &str, name: &str) -> bool {
    const BEFORE: [&str; 11] = [
        "fn ",
        "struct ",
        "enum ",
        "trait ",
        "type ",
        "const ",
        "static ",
        "mod ",
        "macro_rules! ",
        "local ",
        "function ",
    ];
    let is_code = |line: &&str| !line.starts_with("//") && !line.starts_with("--");
    let code: Vec<_> = lines(source).into_iter().filter(is_code).collect();
    let stands = |before: &str, name: &str| {
        let wanted = format!("{before}{name}");
        code.iter().any(|line| {
            line.match_indices(&wanted).any(|(at, _)| {
                let (left, right) = (&line[..at], &line[at + wanted.len()..]);
                !left.ends_with(is_of_name) && !right.starts_with(is_of_name)
            })
        })
    };
    let is_item = |name: &str| BEFORE.iter().any(|before| stands(before, name));
    let Some((of, name)) = name.rsplit_once("::") else {
        return is_item(name.trim_end_matches('!'));
    };
    // A method, or a variant.
    let is_here =
        ["struct ", "enum ", "trait ", "impl ", "for "].iter().any(|word| stands(word, of));
    let is_variant =
        |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([',', '(', ' ']));
    is_here && (is_item(name) || (stands("enum ", of) && code.iter().any(is_variant)))
}

/// Whether a file at or below the place defines the name.
fn is_defined(name: &str, place: &Path) -> bool {
    let sources = if place.is_dir() { files(place, "") } else { vec![place.to_owned()] };
    sources.iter().any(|source| defines(&read(source), name))
}

#[test]
fn a_definition_is_more_than_a_word() {
    let source = "/// As fn told.\nfn tell(&self) {\n}\nenum Stop {\n    Gone,\n}\n-- local function old()\n";
    for name in ["tell", "Stop", "Stop::Gone"] {
        assert!(defines(source, name), "{name}");
    }
    for name in ["told", "tel", "self", "Gone", "Stop::Late", "Start::Gone", "old"] {
        assert!(!defines(source, name), "{name}");
    }
}

/// Paths named in the contributors' pages exist. Where such a page says "`name` in `path`", the
/// name is defined there.
#[test]
fn the_architecture_leads_to_what_is_there() {
    let mut pages = files(&root().join("docs/decisions"), ".md");
    let others = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/releasing.md"];
    pages.extend(others.map(|page| root().join(page)));
    let (mut paths, mut names, mut wrong) = (0, 0, Vec::new());
    for page in pages {
        let shown = page.file_name().unwrap().to_str().unwrap();
        let parts = cut_at_backticks(&read(&page));
        assert!(parts.len() % 2 == 1, "{shown}: a backtick is alone");
        for at in (1..parts.len()).step_by(2) {
            let Some(path) = path_in(&parts[at]) else { continue };
            paths += 1;
            let Some(place) = place(path) else {
                wrong.push(format!("{shown}: there is no {path}"));
                continue;
            };
            let mut before = at;
            let mut joined: &[&str] = &[" in "];
            while before >= 2 && joined.contains(&parts[before - 1].as_str()) {
                before -= 2;
                joined = &[", ", " and "];
                let name = parts[before].as_str();
                let is_name = name.chars().all(|c| is_of_name(c) || c == ':' || c == '!');
                if path_in(name).is_some() {
                    // The end of another list, unless this is a folder.
                    if !place.is_dir() {
                        break;
                    }
                    if !place.join(name).exists() {
                        wrong.push(format!("{shown}: {name} is not in {path}"));
                    }
                } else if is_name {
                    names += 1;
                    if !is_defined(name, &place) {
                        wrong.push(format!("{shown}: {path} does not define {name}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(paths > 120 && names > 40, "{paths} paths, {names} names");
}

/// The table of places names only existing modules, and for these places all of them.
#[test]
fn every_module_has_its_place() {
    const WHOLE: [&str; 6] =
        ["fairlock-core/src", "engine", "engine/acquire", "state", "store/redis", "store/host"];
    let page = read("ARCHITECTURE.md");
    let (_, table) = page.split_once("\n| place | what is there |\n").expect("a table of places");
    let is_module = |word: &&String| {
        let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/".contains(c);
        word.chars().all(is_lower)
    };
    // Some places have several rows.
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let parts = cut_at_backticks(row);
        let Some(at) = parts.get(1).filter(|_| row.starts_with("| `")) else { continue };
        let modules = parts.iter().skip(3).step_by(2).filter(is_module).cloned();
        places.entry(at.clone()).or_default().extend(modules);
    }
    let mut seen = 0;
    for (at, modules) in &places {
        let folder = place(at).unwrap_or_else(|| panic!("there is no {at}"));
        let there = files(&folder, "");
        for module in modules {
            let is_there = there.iter().any(|file| {
                let mut inside = file.strip_prefix(&folder).expect("it is below").iter();
                file.ends_with(format!("{module}.rs")) || inside.any(|part| part == module.as_str())
            });
            assert!(is_there, "{at} has no {module}");
            seen += 1;
        }
        let is_whole = WHOLE.contains(&at.as_str());
        for file in there.iter().filter(|file| is_whole && file.parent() == Some(&*folder)) {
            let module = file.file_stem().unwrap().to_str().unwrap();
            let is_rust = file.extension().is_some_and(|ending| ending == "rs");
            if is_rust && !["mod", "lib"].contains(&module) {
                assert!(modules.contains(module), "the table of places lacks {module} in {at}");
            }
        }
    }
    assert!(seen > 90 && WHOLE.iter().all(|at| places.contains_key(*at)), "{seen} modules");
}

/// Each function of the scripts is a function of the core, or is listed in their README.
#[test]
fn functions_of_the_scripts_are_those_of_the_core() {
    let folder = root().join("crates/fairlock/src/store/redis/lua");
    let page = read(folder.join("README.md"));
    let (_, list) = page.split_once("\n## Names\n").expect("a section of names");
    let cells = list.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let listed: BTreeSet<_> = cells.flat_map(|(cell, _)| cell.split("`, `")).collect();
    let core = files(&root().join("crates/fairlock-core/src"), ".rs");
    let core: Vec<_> = core.iter().map(read).collect();
    // ACL rights are not lock rules.
    let scripts = files(&folder, ".lua").into_iter().filter(|path| !path.ends_with("rights.lua"));
    let scripts: Vec<_> = scripts.map(read).collect();
    let functions = scripts.iter().flat_map(|script| script.split("local function ").skip(1));
    let functions: BTreeSet<_> = functions.filter_map(|text| text.split('(').next()).collect();
    for name in &functions {
        let is_there = listed.contains(name) || core.iter().any(|source| defines(source, name));
        assert!(is_there, "{name} has another name in the core, and is not in the list");
    }
    assert!(functions.len() > 40 && listed.is_subset(&functions), "{listed:?}");
}

#[test]
fn the_manual_shows_what_the_service_prints() {
    assert!(read("docs/manual.md").contains(&format!("```text\n{}```", crate::programs::SERVICE)));
}

fn features_exist(block: &Block) {
    let manifest = read("crates/fairlock/Cargo.toml");
    let (_, features) = manifest.split_once("[features]").unwrap();
    let ours = block.text.lines().filter(|line| line.starts_with("fairlock = "));
    let named = ours.filter_map(|line| line.split_once("features = ["));
    for name in named.flat_map(|(_, list)| list.split('"').skip(1).step_by(2)) {
        let defined = format!("\n{name} = [");
        assert!(features.contains(&defined), "{}: there is no feature {name}", block.at);
    }
}

/// Lines that begin with `fairlock` are run by the tests of the command.
#[test]
fn commands_are_run() {
    let mut seen = 0;
    for block in all_blocks().iter().filter(|block| block.language == "sh") {
        for line in lines(&block.text) {
            let program = line.strip_prefix("cargo run --quiet -p fairlock-examples --bin ");
            let program = program.and_then(|rest| rest.split(' ').next());
            let known = COMMANDS.iter().find(|(command, ..)| *command == line);
            match (program, known) {
                // Each program is run: `programs::every_program_is_run`.
                (Some(name), _) => {
                    let source = format!("crates/fairlock-examples/src/bin/{name}.rs");
                    assert!(root().join(source).exists(), "{}: {line}", block.at);
                }
                (None, Some((_, by, call))) => {
                    assert!(read(by).contains(call), "{by} does not run {line}");
                }
                (None, None) => assert!(line.starts_with("fairlock "), "{}: {line}", block.at),
            }
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// The first cells of a table of the manual, in the section `heading`, without backticks.
fn names_in(heading: &str) -> BTreeSet<String> {
    let manual = read("docs/manual.md");
    let (_, section) = manual.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    // The quoted parts.
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Every async function of the public API, and the values that act when dropped.
#[test]
fn cancellation_is_told_of_every_future() {
    let api = read("docs/api.txt");
    let functions = api.lines().filter(|line| line.contains(": async fn"));
    let functions = functions.filter_map(|line| line.strip_prefix("fairlock::")?.split_once(": "));
    let mut wanted: BTreeSet<_> = functions.map(|(name, _)| name.to_owned()).collect();
    assert!(wanted.len() > 20, "{wanted:?}");
    wanted.extend(["Guard".to_owned(), "Turn".to_owned()]);
    assert_eq!(names_in("Cancellation"), wanted);
}

#[test]
fn every_class_of_errors_has_a_row() {
    let api = read("docs/api.txt");
    let kinds = api.lines().filter_map(|line| line.strip_prefix("fairlock::ErrorKind::"));
    let kinds: BTreeSet<_> =
        kinds.filter_map(|line| line.strip_suffix(": variant")).map(str::to_owned).collect();
    assert!(kinds.len() > 5, "{kinds:?}");
    assert_eq!(names_in("Errors"), kinds);
}

/// A row of the table of settings.
struct Setting {
    name: String,
    default: String,
    bounds: String,
}

fn settings() -> Vec<Setting> {
    let page = read("docs/configuration.md");
    let (_, section) = page.split_once("\n## Settings\n").expect("a section of settings");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let mut cells = row.split(" | ").map(str::trim);
        let mut cell = || cells.next().unwrap_or_else(|| panic!("a cell is missing: {row}"));
        let name = cell().trim_end_matches('`').to_owned();
        Setting { name, default: cell().to_owned(), bounds: cell().to_owned() }
    });
    rows.collect()
}

/// The default reactions as the documents write them: those that only warn are named, in the order
/// of the code.
fn reactions() -> String {
    let source = read("crates/fairlock/src/settings/server_checks.rs");
    let (_, body) = source.split_once("fn default_reaction").unwrap();
    let (warned, _) = body.split_once("=> Reaction::Warn").unwrap();
    let mut names: Vec<_> =
        warned.split("Self::").skip(1).map(|name| name.trim_matches(['|', ' ', '\n'])).collect();
    let last = names.pop().unwrap();
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("refuse; {} and `{last}`: warn", names.join(", "))
}

#[test]
fn settings_are_those_of_the_code() {
    let source = read("crates/fairlock/src/settings/config.rs");
    let of_tls = read("crates/fairlock/src/settings/config/tls.rs");
    let setters =
        [&*source, &of_tls].into_iter().flat_map(|source| source.split("    pub fn ").skip(1));
    let setters = setters.filter(|text| {
        text.split_once('(')
            .is_some_and(|(_, arguments)| arguments.trim_start().starts_with("mut self"))
    });
    let setters: BTreeSet<_> = setters.filter_map(|text| text.split(['(', '<']).next()).collect();
    let settings = settings();
    let rows: BTreeSet<_> = settings.iter().map(|setting| setting.name.as_str()).collect();
    assert_eq!(rows.len(), settings.len(), "one row for each");
    assert_eq!(rows, setters);
    for Setting { name, default, .. } in &settings {
        let (_, fields) = source.split_once("fn for_address").unwrap();
        let value = fields.split_once(&format!(" {name}: ")).map(|(_, rest)| rest);
        let value = value.and_then(|rest| rest.lines().next()).unwrap_or_default();
        let value = value.trim_end_matches(',');
        let seconds = value.strip_prefix("Duration::from_secs(").and_then(|v| v.strip_suffix(')'));
        match (seconds, value) {
            (Some(seconds), _) => assert_eq!(*default, format!("{seconds} s"), "{name}"),
            (None, "Duration::ZERO") => assert_eq!(default, "0 s", "{name}"),
            (None, "true" | "false" | "0") => {
                // Unless the URL sets it.
                assert_eq!(default.rsplit(", else ").next(), Some(value), "{name}");
            }
            (None, "None" | "Password::None") => assert!(!default.is_empty(), "{name}"),
            (None, "Reactions::default()") => assert_eq!(*default, reactions()),
            // Its field has a shorter name.
            (None, "") if name == "on_check" => {
                assert!(fields.contains(" on: Reactions::default(),"), "{name}");
                assert_eq!(*default, reactions());
            }
            (None, choice) if choice.contains("::") => {
                let chosen = choice.rsplit("::").next().unwrap();
                assert!(default.contains(&format!("`{chosen}`")), "{name}");
            }
            // Alternative sources of the same password.
            (None, "") if name.contains("password_") => assert!(default.ends_with("none")),
            // Parts of `tls`, which is unset by default.
            (None, "") if name.starts_with("tls_") => assert!(default.contains(", else")),
            // Part of the address.
            (None, "") if name == "shared_with_group" => assert!(default.ends_with("false")),
            (None, other) => panic!("{name}: what is {other}?"),
        }
    }
}

/// The items that a page names by their path, like `Lock::lock`; each exists.
fn items_of(page: &str) -> BTreeSet<&str> {
    let api = read("docs/api.txt");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let spans = page.split('`').skip(1).step_by(2);
    let named = spans.filter(|text| text.chars().all(is_name) && text.contains("::"));
    let named: BTreeSet<_> = named.collect();
    let exists = |name: &str| {
        let item = format!("fairlock::{}: ", name.trim_start_matches("fairlock::"));
        api.lines().any(|line| line.starts_with(&item))
    };
    let missing: Vec<_> = named.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    named
}

/// Our methods that are named as counterparts of others'. Its commands are run by the program's tests.
#[test]
fn counterparts_exist() {
    let page = read("docs/coming-from.md").replace("`LockManager::new(servers)`", "");
    let seen = items_of(&page).len();
    assert!(seen > 30, "{seen}");
}

/// Our methods and settings that are listed next to Redisson's.
#[test]
fn what_redisson_has_beside_it_exists() {
    let page = read("docs/redisson.md");
    let seen = items_of(&page);
    assert!(seen.len() > 40, "{}", seen.len());
    let lock = ["Lock::lock", "Lock::try_lock_for", "Guard::release", "Config::fair_wait"];
    assert!(lock.iter().all(|name| seen.contains(name)));

    let settings = settings();
    let rows = page.lines().filter(|line| line.contains("| `Config::"));
    let mut compared = 0;
    for row in rows {
        let cells: Vec<_> = row.split(" | ").map(str::trim).collect();
        let name = cells[2].trim_matches('`').trim_start_matches("Config::");
        let Some(setting) = settings.iter().find(|setting| setting.name == name) else { continue };
        // A setting without its own default has an empty cell here.
        if !cells[3].is_empty() {
            assert_eq!(cells[3], setting.default, "{row}");
            compared += 1;
        }
    }
    assert!(compared > 8, "{compared}");
}

type Setter = fn(Config, Duration) -> Config;

const TIMES: &[(&str, Setter)] = &[
    ("connect_timeout", Config::connect_timeout),
    ("response_timeout", Config::response_timeout),
    ("store_timeout", Config::store_timeout),
    ("watchdog_lease", Config::watchdog_lease),
    ("heartbeat", Config::heartbeat),
    ("fair_wait", Config::fair_wait),
    ("ping_interval", Config::ping_interval),
    ("ping_timeout", Config::ping_timeout),
    ("replicas_timeout", Config::replicas_timeout),
];

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_once(' ')?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "h" => 3_600_000,
        "years" => 365 * 24 * 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.parse::<u64>().ok()? * unit))
}

/// The minimum and the maximum are accepted; a millisecond beyond them is refused.
#[tokio::test]
async fn bounds_are_as_written() {
    let usable =
        async |set: Setter, value| match Client::with_config(set(Config::memory(), value)).await {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::Misuse => false,
            Err(error) => panic!("{error}"),
        };
    let ms = Duration::from_millis(1);
    let mut seen = Vec::new();
    for Setting { name, bounds, .. } in settings() {
        let Some((least, most)) = bounds.split_once(" to ") else { continue };
        let (Some(least), Some(most)) = (duration(least), duration(most)) else { continue };
        let (_, set) = TIMES.iter().find(|(known, _)| *known == name).expect(&name);
        assert!(usable(*set, least).await && usable(*set, most).await, "{name}");
        assert!(!usable(*set, least - ms).await && !usable(*set, most + ms).await, "{name}");
        seen.push(name);
    }
    assert_eq!(seen.len(), TIMES.len(), "{seen:?}");
}
