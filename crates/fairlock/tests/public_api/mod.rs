//! The public API as text: `docs/api.txt`. Every change to it is visible in the diff, to its author
//! and to reviewers.

mod print;
mod source;

use print::Api;
use source::Source;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const HEAD: &str = "\
# The public API of fairlock, one item a line. Written by a test, compared by the same test:
#   FAIRLOCK_UPDATE_API=1 cargo test -p fairlock --test main public_api::
# Read the difference as a user: what is gone or changed breaks their programs.
# [feature x]: only with this feature. `impl`: also by `derive`; auto traits are in tests/send_sync.rs.
";

/// Types of other crates that the API exposes: each new major version of those crates requires one
/// of ours.
const FOREIGN: [&str; 3] =
    ["serde::Deserialize", "serde::Serialize", "tokio::sync::watch::Receiver"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source() -> Source {
    let mut source = Source::default();
    for (name, folder) in [("fairlock", "fairlock"), ("fairlock_core", "fairlock-core")] {
        source.read_crate(name, &root().join("crates").join(folder).join("src"));
    }
    source
}

/// `default = ["redis"]` of the section `[features]`, except for private features, whose names
/// begin with `_`.
fn features() -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("crates/fairlock/Cargo.toml")).unwrap();
    let section = manifest.split("[features]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let lines = section.lines().filter(|line| !line.starts_with(['#', '_']) && !line.is_empty());
    lines.map(|line| format!("feature {}", line.split(" = ").next().unwrap())).collect()
}

fn text() -> String {
    format!("{HEAD}{}\n", lines().join("\n"))
}

/// The lines of the snapshot, also for other tests that must know every item.
pub(crate) fn lines() -> Vec<String> {
    let source = source();
    let mut lines = Api::of(&source, "fairlock").lines;
    lines.extend(features());
    lines.into_iter().collect()
}

/// Lines that only one of the texts has.
fn difference(old: &str, new: &str) -> String {
    let (had, has): (BTreeSet<_>, BTreeSet<_>) = (old.lines().collect(), new.lines().collect());
    let gone = had.difference(&has).map(|line| format!("- {line}"));
    let come = has.difference(&had).map(|line| format!("+ {line}"));
    let mut lines: Vec<_> = gone.chain(come).collect();
    lines.sort_by(|a, b| a[2..].cmp(&b[2..]));
    lines.join("\n")
}

#[test]
fn the_api_is_the_one_that_was_agreed_on() {
    let (path, new) = (root().join("docs/api.txt"), text());
    if std::env::var_os("FAIRLOCK_UPDATE_API").is_some() {
        assert!(std::env::var_os("CI").is_none(), "in CI the snapshot is compared, not written");
        fs::write(&path, new).unwrap();
        return;
    }
    let old = fs::read_to_string(&path).unwrap();
    assert!(
        old == new,
        "the public API differs from docs/api.txt:\n{}\nIf that is meant: read its first lines, say it \
         in CHANGELOG.md",
        difference(&old, &new)
    );
}

/// Users can name the type of everything that they receive or have to pass.
#[test]
fn every_type_in_a_signature_has_a_public_name() {
    let source = source();
    let api = Api::of(&source, "fairlock");
    let public = api.places();
    let mut hidden = Vec::new();
    let mut foreign = BTreeSet::new();
    for (place, user) in &api.named {
        let of_variant = place[..place.len() - 1].to_vec();
        match place[0].as_str() {
            "fairlock" | "fairlock_core"
                if public.contains(place) || public.contains(&of_variant) => {}
            "fairlock" | "fairlock_core" => hidden.push(format!("{}: in {user}", place.join("::"))),
            "std" => {}
            // Parameters, and names of the language itself.
            _ if place.len() == 1 => {}
            _ => {
                foreign.insert(place.join("::"));
            }
        }
    }
    assert!(hidden.is_empty(), "cannot be named by users:\n{}", hidden.join("\n"));
    assert_eq!(foreign.into_iter().collect::<Vec<_>>(), FOREIGN);
}

/// Every function documents what may go wrong, and every async one what dropping its future loses.
#[test]
fn every_function_says_its_errors_and_its_cancel_safety() {
    let source = source();
    let unsaid = Api::of(&source, "fairlock").unsaid;
    assert!(unsaid.is_empty(), "not documented:\n{}", unsaid.join("\n"));
}

/// The front page describes each type and each feature.
#[test]
fn the_front_page_has_every_type_and_feature() {
    let library = fs::read_to_string(root().join("crates/fairlock/src/lib.rs")).unwrap();
    let page: String = library.lines().filter(|line| line.starts_with("//!")).collect();
    let mut missing = Vec::new();
    for line in lines().iter().filter(|line| !line.contains("[feature")) {
        let Some((name, what)) = line.split_once(": ") else { continue };
        let name = name.trim_start_matches("fairlock::");
        let is_type = what.starts_with("struct") || what.starts_with("enum");
        // Hidden: it is for the command alone.
        let is_hidden = name == "ReleaseTicket";
        if is_type && !is_hidden && !page.contains(&format!("[`{name}`]")) {
            missing.push(format!("{name} on the front page"));
        }
    }
    for feature in features() {
        let name = feature.trim_start_matches("feature ");
        if name != "default" && !page.contains(&format!("- `{name}`")) {
            missing.push(format!("{feature} on the front page"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// A snapshot that sees nothing would find no difference.
#[test]
fn the_snapshot_sees_every_kind_of_item() {
    let lines = lines();
    for expected in [
        "fairlock::Client::connect: async fn(url: &str) -> Result<Self, Error>",
        "fairlock::Client: impl Clone",
        "fairlock::Config::tcp: fn(host: impl Into<String>, port: u16) -> Self",
        "fairlock::FencingToken::get: fn(self) -> u64",
        "fairlock::FencingToken: impl Ord",
        "fairlock::FencingToken: impl Display",
        "fairlock::LockStatus::queue: field Vec<QueuedWaiter>",
        "fairlock::LockStatus: struct #[non_exhaustive]",
        "fairlock::LockStatus: impl Serialize [feature serde]",
        "fairlock::FencingToken: impl Serialize [feature serde]",
        "fairlock::Release::StillHeld: variant(u32)",
        "fairlock::test_util: mod [feature test-util]",
        "fairlock::test_util::Sandbox::lose: fn(&self, name: impl AsRef<[u8]>) -> bool [feature test-util]",
        "feature default",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}");
    }
    assert_eq!(difference("a\nb\n", "a\nc\n"), "- b\n+ c");
}
