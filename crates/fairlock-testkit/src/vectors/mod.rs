//! Golden vectors: what one operation does to the keys of a lock, as data.
//!
//! The files are in `testing/vectors`; its README describes them. This module reads them
//! ([`Vector`]), turns names into ids and back ([`Cast`]), brings a server to the state before an
//! operation and inspects it afterwards ([`Bench`]), and compares the two ([`Outcome`]). It does
//! not care who runs the operation: the real jars in `fairlock-interop`, the rewritten rules in
//! [`model`], our scripts in the library's own tests.
//!
//! The clocks of server and clients are frozen at one time, so that every TTL and score is exact.

mod bench;
mod cast;
mod mismatch;
pub mod model;
mod print;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub use self::bench::{Bench, LOCK, NOW_MS, NOW_US};
pub use self::cast::Cast;
pub use self::mismatch::mismatch;
pub use self::print::print;
use crate::server::workspace_root;

/// Keys of a lock in the form of the files: key -> `{"type", "ttl_ms", "value"}`.
pub type Keys = Map<String, Value>;

/// The prefix of keys that belong to a single unlock in Java; nobody else reads them.
pub const LATCH: &str = "redisson_unlock_latch:";

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// Its path below `testing/vectors`, without the extension: `fair/unlock`.
    pub name: String,
    /// The object: the folder's name.
    pub object: String,
    /// The contents of the file.
    pub json: Value,
}

/// The outcome of an operation, as seen or as the file states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What the caller got.
    pub returns: Value,
    /// All keys after it.
    pub after: Keys,
    /// Messages in order, each a pair of channel and payload.
    pub published: Value,
    /// Channels with subscribers after it, sorted.
    pub subscribed: Value,
}

impl Vector {
    /// All vectors, by name.
    ///
    /// # Panics
    ///
    /// If one cannot be read, or has a form that the README does not describe.
    pub fn all() -> Vec<Self> {
        let root = folder();
        let mut vectors = Vec::new();
        for object in entries(&root).into_iter().filter(|path| path.is_dir()) {
            for file in entries(&object) {
                vectors.push(Self::read(&root, &file));
            }
        }
        vectors
    }

    fn read(root: &Path, path: &Path) -> Self {
        let below = path.strip_prefix(root).expect("a file of the folder").with_extension("");
        let name = below.to_str().expect("names of vectors are text").to_owned();
        let (object, _) = name.split_once('/').expect("a folder and a file");
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let vector = Self { object: object.to_owned(), name, json };
        vector.check_form();
        vector
    }

    /// The path of its file.
    pub fn path(&self) -> PathBuf {
        folder().join(&self.name).with_extension("json")
    }

    /// Writes it to its file.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn write(&self) {
        let folder = folder().join(&self.object);
        fs::create_dir_all(folder).expect("the source tree is ours");
        fs::write(self.path(), print(&self.json)).expect("the source tree is ours");
    }

    /// The keys before the operation that everybody shares.
    pub fn before(&self) -> &Keys {
        keys(&self.json["before"])
    }

    /// Java's part.
    pub fn java(&self) -> Option<&Value> {
        self.json.get("java")
    }

    /// Our part.
    pub fn ours(&self) -> Option<&Value> {
        self.json.get("ours")
    }

    /// What Java does in this version, if the file states it.
    pub fn java_outcome(&self, version: &str) -> Option<Outcome> {
        let outcomes = self.java()?["outcomes"].as_array().expect("a list of outcomes");
        let is_it = |outcome: &&Value| list(&outcome["versions"]).contains(&version);
        outcomes.iter().find(is_it).map(Outcome::parse)
    }

    /// What our script does.
    pub fn our_outcome(&self) -> Option<Outcome> {
        self.ours().map(Outcome::parse)
    }

    /// Rejects fields that the README does not describe: a misspelt one would be a check that never
    /// runs.
    fn check_form(&self) {
        let fields = |what: &str, value: &Value, allowed: &[&str]| {
            let map = value.as_object().unwrap_or_else(|| panic!("{}: {what}", self.name));
            for field in map.keys() {
                assert!(allowed.contains(&field.as_str()), "{}: {what} has {field}", self.name);
            }
        };
        fields("the file", &self.json, &["title", "made", "before", "java", "ours"]);
        assert!(self.json["title"].is_string(), "{}: no title", self.name);
        let entry = |value: &Value| fields("a key", value, &["type", "ttl_ms", "value"]);
        self.before().values().for_each(entry);
        if let Some(java) = self.java() {
            fields("java", java, &["settings", "earlier", "under_way", "does", "outcomes"]);
            for outcome in java["outcomes"].as_array().expect("a list of outcomes") {
                fields(
                    "an outcome",
                    outcome,
                    &["versions", "returns", "after", "published", "subscribed", "note"],
                );
                keys(&outcome["after"]).values().for_each(entry);
            }
        }
        if let Some(ours) = self.ours() {
            fields(
                "ours",
                ours,
                &[
                    "before",
                    "listening",
                    "advance_ms",
                    "script",
                    "flags",
                    "argv",
                    "returns",
                    "after",
                    "published",
                    "because",
                ],
            );
            keys(&ours["after"]).values().for_each(entry);
        }
    }
}

impl Outcome {
    fn parse(json: &Value) -> Self {
        Self {
            returns: json["returns"].clone(),
            after: keys(&json["after"]).clone(),
            published: json["published"].clone(),
            subscribed: json["subscribed"].clone(),
        }
    }

    /// Writes it into a part of a file.
    ///
    /// # Panics
    ///
    /// If that is not a JSON object.
    pub fn write_to(&self, json: &mut Value) {
        let map = json.as_object_mut().expect("an object");
        map.insert("returns".to_owned(), self.returns.clone());
        map.insert("after".to_owned(), self.after.clone().into());
        map.insert("published".to_owned(), self.published.clone());
        if !self.subscribed.is_null() {
            map.insert("subscribed".to_owned(), self.subscribed.clone());
        }
    }

    /// Without the keys of unlock latches, which only some versions of Java leave behind.
    #[must_use]
    pub fn without_latches(mut self) -> Self {
        self.after.retain(|key, _| !key.starts_with(LATCH));
        self
    }
}

/// The folder of the files.
pub fn folder() -> PathBuf {
    workspace_root().join("testing/vectors")
}

/// The strings of a list of strings.
///
/// # Panics
///
/// If it is something else.
pub fn list(value: &Value) -> Vec<&str> {
    let texts = value.as_array().expect("a list").iter();
    texts.map(|text| text.as_str().expect("a text")).collect()
}

fn keys(value: &Value) -> &Keys {
    value.as_object().expect("keys with their contents")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests;
