//! What the documents show is what is tested: code blocks are part of a file of this crate, commands are
//! run, settings are those of the code, links lead somewhere.

use fairlock::{Client, Config, ErrorKind};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const DOCUMENTS: &[&str] =
    &["README.md", "docs/configuration.md", "docs/manual.md", "docs/redisson.md"];

/// What a newcomer reads first, and the most lines that it may have.
const SHORT: &[(&str, usize)] = &[("README.md", 150), ("ARCHITECTURE.md", 150)];

/// Commands that are no program of this crate, where they are run, and how they stand there.
const COMMANDS: &[(&str, &str, &str)] = &[
    // As a user who has set up nothing.
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files at or below `folder` with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
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

/// Without indentation and empty lines, which differ between a document and a function's body.
fn lines(text: &str) -> Vec<&str> {
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

/// All of it, not only a part that is found somewhere.
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
    // Of the table "At a glance": hand-overs a second at 1 000 waiters, and how many times as many fairlock has.
    let (rate, times) = (&cells("fairlock")[5], &cells("redisson-fair")[6]);
    let readme = lines(&read("README.md")).join(" ");
    assert!(
        readme
            .contains(&format!("hands a lock over {rate} times a second: {times} times as often")),
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

/// Files that "Where to change what" names exist, and a name that it finds in one of them is found there.
#[test]
fn the_architecture_leads_to_what_is_there() {
    const BELOW: [&str; 6] = [
        "",
        "crates",
        "crates/fairlock/src",
        "crates/fairlock/src/store/redis/lua",
        "crates/fairlock-cli/src",
        "crates/fairlock-cli/src/settings",
    ];
    let page = read("ARCHITECTURE.md");
    let (_, section) = page.split_once("\n## Where to change what\n").expect("a section");
    let section = section.split("\n## ").next().unwrap();
    let is_path =
        |text: &str| text.contains('/') || text.ends_with(".rs") || text.ends_with(".lua");
    let place = |path: &str| {
        let mut places = BELOW.iter().map(|below| root().join(below).join(path));
        places.find(|place| place.exists())
    };
    let (mut files, mut names) = (0, 0);
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let parts: Vec<_> = row.split('`').collect();
        for path in parts.iter().skip(1).step_by(2).filter(|text| is_path(text)) {
            assert!(place(path).is_some(), "{path} is named in {row}");
            files += 1;
        }
        for found in parts.windows(3).skip(1).step_by(2) {
            let [name, " in ", path] = found else { continue };
            let place = place(path).expect("looked for above");
            let text = if place.is_file() { read(place) } else { continue };
            let name = name.rsplit("::").next().unwrap().trim_end_matches('!');
            assert!(text.contains(name), "{name} is not in {path}: {row}");
            names += 1;
        }
    }
    assert!(files > 30 && names > 8, "{files} files, {names} names");
}

#[test]
fn every_decision_is_in_the_index() {
    let folder = root().join("docs/decisions");
    let index = read("docs/decisions/README.md");
    let mut seen = 0;
    for page in files(&folder, ".md").iter().filter(|page| !page.ends_with("README.md")) {
        let name = page.file_name().unwrap().to_str().unwrap();
        let text = read(page);
        let title = text.lines().next().unwrap().trim_start_matches("# ");
        assert!(index.contains(&format!("]({name}): {title}\n")), "{name}: {title}");
        for part in ["**Decision.**", "**Consequence.**"] {
            assert!(text.contains(&format!("\n\n{part} ")), "{name}: {part}");
        }
        seen += 1;
    }
    assert!(seen >= 20, "{seen}");
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
                // Each of them is run: `programs::every_program_is_run`.
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

#[test]
fn links_lead_somewhere() {
    let mut documents = files(&root().join("docs"), ".md");
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    documents.extend(names.map(|name| root().join(name)));
    documents.push(root().join("crates/fairlock-cli/README.md"));
    let mut seen = 0;
    for document in documents {
        let text = read(&document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = document.parent().unwrap().join(path);
            let target = if path.is_empty() { document.clone() } else { target };
            assert!(target.exists(), "{}: {link}", document.display());
            if !heading.is_empty() {
                let headings = read(&target);
                let mut headings = headings.lines().filter_map(|line| line.strip_prefix('#'));
                assert!(
                    headings.any(|line| anchor(line) == heading),
                    "{}: {link}",
                    document.display()
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 10);
}

/// The anchor that a heading gets on the web.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The first cells of a table of the manual, in the section `heading`, without backticks.
fn names_in(heading: &str) -> BTreeSet<String> {
    let manual = read("docs/manual.md");
    let (_, section) = manual.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    // What stands between backticks.
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Every async function of the public API, and the values that do something when dropped.
#[test]
fn cancellation_is_told_of_every_future() {
    let api = read("docs/api.txt");
    let functions = api.lines().filter(|line| line.contains(": async fn"));
    let functions = functions.filter_map(|line| line.strip_prefix("fairlock::")?.split_once(": "));
    // For benches, not for applications: each of its functions says it itself.
    let functions = functions.filter(|(name, _)| !name.starts_with("yardstick::"));
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

/// What happens by default, as the documents say it: those that only warn are named, as the code orders them.
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
                // Where the URL does not say otherwise.
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
            // Other ways to the same password.
            (None, "") if name.contains("password_") => assert!(default.ends_with("none")),
            // Parts of `tls`, which is none by default.
            (None, "") if name.starts_with("tls_") => assert!(default.contains(", else")),
            // A part of the address.
            (None, "") if name == "shared_with_group" => assert!(default.ends_with("false")),
            (None, other) => panic!("{name}: what is {other}?"),
        }
    }
}

/// Methods and settings of ours that stand beside Redisson's.
#[test]
fn what_redisson_has_beside_it_exists() {
    let page = read("docs/redisson.md");
    let api = read("docs/api.txt");
    let (mut seen, mut missing) = (BTreeSet::new(), Vec::new());
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for name in page.split('`').skip(1).step_by(2).filter(|text| text.chars().all(is_name)) {
        let Some((of, _)) = name.split_once("::") else { continue };
        let item = if of == "fairlock" { name.to_owned() } else { format!("fairlock::{name}") };
        if !api.lines().any(|line| line.starts_with(&format!("{item}: "))) {
            missing.push(name);
        }
        seen.insert(name);
    }
    assert!(missing.is_empty(), "{missing:?}");
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
        // What has no default of its own has none here.
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

/// The least and the most are accepted; a millisecond beyond them is refused.
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
