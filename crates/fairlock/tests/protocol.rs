//! What can be counted in `docs/protocol.md` agrees with the code: numbers, keys, channels, scripts
//! with their arguments and tags, commands, fields. And the tests that it names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::named::{names, page};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    let path = crates().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

const LUA: &str = "fairlock/src/store/redis/lua";

/// The scripts by name, without the file extension.
fn scripts() -> BTreeMap<String, String> {
    let all = fs::read_dir(crates().join(LUA)).unwrap().map(|entry| entry.unwrap().path());
    all.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".lua")?.to_owned();
        Some((name, fs::read_to_string(&path).unwrap()))
    })
    .collect()
}

/// Scripts that concern no lock and have no prelude.
const ALONE: [&str; 4] = ["client", "record", "replicated", "rights"];

/// Slices of several scripts, and the common cases of one.
const SLICES: [&str; 72] = [
    "head",
    "token",
    "hash",
    "settings",
    "owner",
    "shown",
    "hold",
    "change",
    "rules",
    "mint",
    "write_token",
    "ask",
    "take",
    "granted",
    "heir",
    "heir_plain",
    "grant",
    "enter",
    "enter_plain",
    "enter_last",
    "entered",
    "acquire_free",
    "plain_acquire_free",
    "release_alone",
    "release_on",
    "plain_release_alone",
    "renew_held",
    "simple",
    "simple_free",
    "simple_take",
    "simple_own",
    "simple_released",
    "simple_other",
    "latch",
    "latch_request",
    "share_keys",
    "share_kept",
    "share_ask",
    "share_free",
    "share_take",
    "share_enter",
    "share_heirs",
    "share_release_alone",
    "share_heir",
    "share_wide",
    "share_many",
    "share_cohort",
    "share_readers",
    "share_grant",
    "share_handed",
    "share_to_readers",
    "share_facts",
    "share_waits",
    "share_ends",
    "share_holds",
    "share_line",
    "share_hold_of",
    "share_over",
    "share_serve",
    "share_write",
    "share_tidy",
    "share_reply",
    "share_end",
    "share_heard",
    "share_retry",
    "share_acquired",
    "share_answer",
    "share_fates",
    "share_renewed",
    "share_count",
    "share_mend",
    "share_holders",
];

/// Whether the script is an operation: not a slice, and not one of [`ALONE`].
fn is_operation(name: &str) -> bool {
    !SLICES.contains(&name) && !ALONE.contains(&name)
}

/// The text below a heading of any rank, up to the next heading of any rank.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let is_it =
        |line: &str| line.starts_with('#') && line.trim_start_matches('#').trim() == heading;
    let mut at = 0;
    for line in page.split_inclusive('\n') {
        at += line.len();
        if is_it(line.trim_end()) {
            let rest = &page[at..];
            return rest.split("\n#").next().unwrap();
        }
    }
    panic!("no heading {heading}")
}

/// The tables of a text as rows, including their heads.
fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut all = vec![Vec::new()];
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            // The rule below a head is not a row, and does not end the table.
            if !line.starts_with("|---") && !all.last().unwrap().is_empty() {
                all.push(Vec::new());
            }
            continue;
        };
        let row = row.strip_suffix('|').expect(line);
        all.last_mut().unwrap().push(row.split('|').map(|cell| cell.trim().to_owned()).collect());
    }
    all.retain(|table| !table.is_empty());
    all
}

/// The rows of the table whose head has this first cell.
fn table(text: &str, head: &str) -> Vec<Vec<String>> {
    let found = tables(text).into_iter().find(|table| table[0][0] == head);
    found.unwrap_or_else(|| panic!("no table of {head}")).split_off(1)
}

fn quoted(text: &str, quote: char) -> impl Iterator<Item = &str> {
    text.split(quote).skip(1).step_by(2)
}

/// The value of a constant, local or default in a file: `core/rules.rs:LOOKED_AT_MAX`. Times in ms.
fn constant(place: &str) -> Vec<u64> {
    let (file, name) = place.split_once(':').expect(place);
    let (root, file) = file.split_once('/').expect(place);
    let root = match root {
        "core" => "fairlock-core/src",
        "src" => "fairlock/src",
        "lua" => LUA,
        other => panic!("{place}: what is {other}?"),
    };
    let text = read(&format!("{root}/{file}"));
    if place.starts_with("lua") {
        let (_, rest) = text.split_once(&format!("local {name} = ")).expect(place);
        let value = rest.split_whitespace().next().unwrap();
        return vec![value.trim_matches('\'').parse().expect(place)];
    }
    let declared = text.split_once(&format!("const {name}: "));
    let value =
        declared.map(|(_, rest)| rest.split_once('=').unwrap().1.split(';').next().unwrap());
    // Otherwise the default of a field.
    let value = value.or_else(|| {
        let uses = format!(" {name}: ");
        let mut uses = text.split(&uses).skip(1).filter_map(|rest| rest.split(",\n").next());
        uses.find(|value| {
            value.starts_with(|c: char| c.is_ascii_digit()) || value.starts_with("Duration::")
        })
    });
    let value = value.expect(place);
    value.split("), ").map(|part| number(part.trim(), place)).collect()
}

fn number(value: &str, place: &str) -> u64 {
    let value = value.trim_matches(['(', ')', ' ']).replace('_', "");
    let factor =
        |text: &str| text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{place}: {text}"));
    if let Some(ms) = value.strip_prefix("Duration::frommillis(") {
        return factor(ms);
    }
    if let Some(seconds) = value.strip_prefix("Duration::fromsecs(") {
        return 1_000 * factor(seconds);
    }
    match value.as_str() {
        "1 << 53" => 1 << 53,
        "i32::MAX as u32" => i32::MAX as u64,
        product => product.split('*').map(factor).product(),
    }
}

/// A number as the page writes it: `36 s`, `2^53`, `10 ms, 250 ms`. Times in ms.
fn written(value: &str) -> Vec<u64> {
    let one = |text: &str| match text {
        "2^53" => 1 << 53,
        "2^31 - 1" => (1 << 31) - 1,
        text => {
            let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
            let unit = match unit {
                "" | "ms" => 1,
                "s" => 1_000,
                "d" => 24 * 3_600_000,
                other => panic!("{text}: what is {other}?"),
            };
            unit * number.parse::<u64>().expect(text)
        }
    };
    value.split(", ").map(one).collect()
}

#[test]
fn numbers_are_those_of_the_code() {
    let rows = table(section(&page("protocol.md"), "Numbers"), "number");
    let mut named = BTreeSet::new();
    for row in &rows {
        let [what, value, places] = &row[..] else { panic!("three cells: {row:?}") };
        assert!(!names(places).is_empty(), "{what}");
        for place in names(places) {
            assert_eq!(constant(place), written(value), "{what}: {place}");
            named.insert(place.to_owned());
        }
    }
    // The page must list every number that a script or the core names.
    for (name, text) in scripts() {
        for line in text.lines().filter_map(|line| line.strip_prefix("local ")) {
            let Some((constant, value)) = line.split_once(" = ") else { continue };
            let is_number = value.starts_with(|c: char| c.is_ascii_digit());
            // Not the largest integer that a double represents exactly, which is for a reply.
            if is_number && constant != "MAX" {
                assert!(
                    named.contains(&format!("lua/{name}.lua:{constant}")),
                    "{name}: {constant}"
                );
            }
        }
    }
    for constant in read("fairlock-core/src/rules.rs").split("\npub const ").skip(1) {
        let constant = constant.split(':').next().unwrap();
        assert!(named.contains(&format!("core/rules.rs:{constant}")), "{constant}");
    }
}

#[test]
fn keys_and_channels_are_those_of_the_code() {
    let page = page("protocol.md");
    let section = section(&page, "Keys and channels");
    let source = read("fairlock/src/store/redis/keys.rs");
    let (source, _) = source.split_once("#[cfg(test)]").unwrap();
    let ours = |text: &&str| {
        // A search pattern is not a key.
        (text.starts_with("redisson_") || text.starts_with("fairlock_")) && !text.ends_with('*')
    };
    let prefix = |text: &str| text.split([':', '{']).next().unwrap().to_owned();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let in_code: BTreeSet<_> =
        code.flat_map(|line| quoted(line, '"')).filter(ours).map(prefix).collect();
    let rows = [table(section, "key"), table(section, "channel")].concat();
    let first = rows.iter().flat_map(|row| names(&row[0])).filter(ours).map(prefix);
    assert_eq!(first.collect::<BTreeSet<_>>(), in_code);

    for row in table(section, "name") {
        let cells: Vec<_> = row.iter().map(|cell| names(cell)[0]).collect();
        let name = cells[0];
        let (tagged, colon) =
            if name.contains('{') { (name.to_owned(), ":") } else { (format!("{{{name}}}"), "") };
        let wanted = [
            format!("redisson_lock_queue:{tagged}"),
            format!("fairlock_order:{colon}{tagged}"),
            format!("redisson_lock__channel:{tagged}"),
        ];
        assert_eq!(cells[1..], wanted);
    }

    let core = read("fairlock-core/src/id.rs");
    let (_, reserved) = core.split_once("RESERVED_PREFIXES: [&str; 6] = [").unwrap();
    let reserved: Vec<_> = quoted(reserved.split(']').next().unwrap(), '"').collect();
    let ids = table(self::section(&page, "Ids"), "id");
    let row = ids.iter().find(|row| row[0] == "lock name").unwrap();
    assert_eq!(names(&row[1]), reserved);
}

/// The whole numbers of a text, including ranges such as `1..7` and `1-7`.
fn whole_numbers(text: &str) -> BTreeSet<u32> {
    let text = text.replace("..", "-");
    let parts = text.split(|c: char| !c.is_ascii_digit() && c != '-');
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse().ok()?..=to.parse().ok()?)
    };
    parts.filter_map(range).flatten().collect()
}

/// The numbers of an operation's own arguments; the first is the client's.
fn own_arguments(text: &str) -> BTreeSet<u32> {
    whole_numbers(text).into_iter().filter(|n| (2..=7).contains(n)).collect()
}

/// A part of the comment at the head of a script: `KEYS`, `ARGV` or `Reply`.
fn header(script: &str, part: &str) -> String {
    let parts = ["KEYS", "ARGV", "Reply"];
    let comment = script.lines().take_while(|line| line.starts_with("--"));
    let lines = comment.map(|line| line.trim_start_matches("--").trim());
    let begins =
        |line: &str, part: &str| line.strip_prefix(part).is_some_and(|r| r.starts_with(' '));
    let from = lines.skip_while(|line| !begins(line, part));
    let own = from
        .enumerate()
        .take_while(|(at, line)| *at == 0 || !parts.iter().any(|other| begins(line, other)));
    own.map(|(_, line)| line.to_owned()).collect::<Vec<_>>().join("   ")
}

#[test]
fn scripts_take_what_the_page_says() {
    let scripts = scripts();
    let page = page("protocol.md");
    let section = section(&page, "Scripts");
    let rows = table(section, "script");
    let listed: BTreeSet<_> = rows.iter().map(|row| names(&row[0])[0].to_owned()).collect();
    let operations = scripts.keys().filter(|name| is_operation(name)).cloned();
    assert_eq!(listed, operations.collect());
    for name in scripts.keys().filter(|name| !is_operation(name)) {
        assert!(section.contains(&format!("`{name}.lua`")), "{name}.lua is not named");
    }
    let by_page: BTreeMap<_, _> = rows.iter().map(|row| (names(&row[0])[0], row)).collect();
    for (name, row) in &by_page {
        let script = &scripts[*name];
        let keys = header(script, "KEYS");
        let keys = keys.split('(').next().unwrap();
        assert_eq!(whole_numbers(&row[1]), whole_numbers(keys), "{name}: KEYS");

        let mut said = own_arguments(&row[2]);
        if said.is_empty() && row[2].starts_with("as ") {
            said = own_arguments(&by_page[names(&row[2])[0]][2]);
        }
        let argv = header(script, "ARGV");
        let mut taken = own_arguments(&argv);
        if let Some(other) = argv.split("as in ").nth(1).filter(|_| taken.is_empty()) {
            let other = other.split(".lua").next().unwrap();
            taken = own_arguments(&header(&scripts[other], "ARGV"));
        }
        assert_eq!(said, taken, "{name}: ARGV");
        // Nor does the script read any argument that the page does not list.
        let read = script.split("ARGV[").skip(1).filter_map(|r| r.split(']').next()?.parse().ok());
        let read: BTreeSet<u32> = read.filter(|n| *n >= 2).collect();
        assert!(read.is_subset(&taken), "{name} reads {read:?}");
    }
}

/// The tags of the replies in a script's code: the first word after the time.
fn tags(script: &str) -> BTreeSet<String> {
    let is_tag = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase()) && !word.is_empty();
    let mut found = BTreeSet::new();
    for line in script.lines().filter(|line| !line.starts_with("--")) {
        for reply in line.split("now_ms .. '").skip(1) {
            let reply = format!("'{reply}");
            let words: Vec<_> = quoted(&reply, '\'').collect();
            let tag = words.iter().flat_map(|text| text.split(' ')).find(is_tag);
            assert!(tag.is_some() || reply.contains(".. body"), "{line}");
            found.extend(tag.map(str::to_owned));
        }
        if let Some((_, value)) = line.split_once("body = ") {
            found.extend(quoted(value, '\'').map(str::to_owned));
        }
    }
    found
}

#[test]
fn replies_have_the_tags_that_the_page_says() {
    let scripts = scripts();
    let page = page("protocol.md");
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for row in table(section(&page, "Scripts"), "tag") {
        let tag = names(&row[0])[0].to_owned();
        for script in names(&row[2]) {
            said.entry(script.to_owned()).or_default().insert(tag.clone());
        }
        known.insert(tag);
    }
    let slices: BTreeMap<_, &[_]> = BTreeMap::from([
        ("acquire", &["ask", "acquire_free", "granted", "entered"][..]),
        ("plain_acquire", &["ask", "plain_acquire_free", "granted"]),
        ("simple_acquire", &["ask", "granted"]),
        ("release", &["release_alone", "release_on"]),
        ("plain_release", &["plain_release_alone"]),
        ("simple_release", &["simple_released", "simple_other"]),
        ("renew", &["renew_held"]),
        ("simple_renew", &["simple_other"]),
        ("multi_try", &["granted"]),
        ("share_acquire", &["ask", "share_take", "share_enter", "share_answer"]),
        ("share_release", &["share_count", "share_release_alone", "share_handed"]),
        ("share_reenter", &["share_count"]),
        ("share_beat", &["share_fates"]),
        ("latch_set", &["latch", "latch_request"]),
        ("latch_count_down", &["latch", "latch_request"]),
        ("latch_delete", &["latch", "latch_request"]),
        ("latch_look", &["latch"]),
    ]);
    for (name, text) in scripts.iter().filter(|(name, _)| is_operation(name)) {
        let mut all = tags(text);
        for slice in slices.get(name.as_str()).into_iter().copied().flatten() {
            all.extend(tags(&scripts[*slice]));
        }
        assert_eq!(said[name], all, "{name}");
    }
    let reader = read("fairlock/src/store/redis/reply.rs");
    let arms =
        reader.lines().filter_map(|line| line.trim().strip_prefix("b\"")?.split_once("\" =>"));
    // The others are words: none, no, yes.
    let arms = arms.filter(|(tag, _)| tag.starts_with(|first: char| first.is_ascii_lowercase()));
    assert_eq!(arms.map(|(tag, _)| tag.to_owned()).collect::<BTreeSet<_>>(), known);
}

#[test]
fn commands_and_fields_are_those_of_the_scripts() {
    let mut scripts = scripts();
    scripts.retain(|name, _| !ALONE.contains(&name.as_str()));
    let code = || scripts.values().flat_map(|text| text.lines());
    let code = || code().map(|line| line.split("--").next().unwrap());

    let called = code().flat_map(|line| line.split("call('").skip(1));
    let mut called: BTreeSet<_> =
        called.map(|rest| rest.split('\'').next().unwrap().to_owned()).collect();
    called.insert("PUBLISH".into());
    let page = page("protocol.md");
    let allowed = section(&page, "What a server must allow");
    let (_, allowed) = allowed.split_once("in the scripts `").unwrap();
    let allowed = allowed.split('`').next().unwrap().split_whitespace().map(str::to_owned);
    assert_eq!(allowed.collect::<BTreeSet<_>>(), called);

    let of_state = code().filter(|line| line.contains(", state, "));
    let is_field = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
    let used: BTreeSet<_> =
        of_state.flat_map(|line| quoted(line, '\'').filter(is_field).collect::<Vec<_>>()).collect();
    let records = table(section(&page, "Records"), "field");
    let told: BTreeSet<_> = records.iter().flat_map(|row| names(&row[0])).collect();
    assert_eq!(told, used);
}

/// Every test of the workspace, and every module of tests.
fn all_tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![crates()];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            // A macro makes tests of the contract's cases.
            let contract = path.to_str().unwrap().contains("tests/contract/")
                || path.ends_with("multi/each_store.rs");
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            for (at, line) in lines.iter().enumerate() {
                let marked = lines[at.saturating_sub(4)..at]
                    .iter()
                    .any(|above| above.starts_with("#[") && above.contains("test"));
                let name = |keyword| {
                    let (_, rest) = line.split_once(keyword)?;
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
                    Some(rest[..end].to_owned())
                };
                found.extend(name("fn ").filter(|_| marked || contract));
                let of_tests = path.to_str().unwrap().contains("/tests/");
                found.extend(name("mod ").filter(|_| of_tests));
            }
        }
    }
    found
}

#[test]
fn the_tests_that_are_named_exist() {
    let tests = all_tests();
    let exists = |name: &str| match name.strip_suffix('*') {
        Some(begins) => tests.iter().any(|test| test.starts_with(begins)),
        None => tests.contains(name),
    };
    let mut seen = BTreeSet::new();
    for file in ["protocol.md", "protocol-reasons.md"] {
        for table in tables(&page(file)) {
            let column = table[0].iter().position(|head| head == "shown by" || head == "test");
            let Some(column) = column else { continue };
            for row in &table[1..] {
                assert_eq!(row.len(), table[0].len(), "{file}: {row:?}");
                for name in names(&row[column]) {
                    assert!(exists(name), "{file}: there is no test {name}");
                    seen.insert(name.to_owned());
                }
            }
        }
    }
    assert!(seen.len() > 80, "{}", seen.len());
    assert!(!exists("protocol_test_that_was_never_there") && !exists("section"));
}

/// Rules are referred to by number, so no number is used twice or left out.
#[test]
fn rules_are_numbered() {
    let page = page("protocol.md");
    for (heading, letter) in [("Rules of part A", 'S'), ("Rules", 'O')] {
        let rules = table(section(&page, heading), "");
        let numbers: Vec<_> = rules.iter().map(|row| row[0].clone()).collect();
        let wanted: Vec<_> = (1..=numbers.len()).map(|n| format!("{letter}{n}")).collect();
        assert_eq!(numbers, wanted);
        let words = ["MUST ", "MUST NOT ", "SHOULD ", "MAY ", "a guest MUST NOT "];
        for rule in &rules {
            assert!(words.iter().any(|word| rule[1].starts_with(word)), "{rule:?}");
        }
    }
}
