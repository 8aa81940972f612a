//! Names in angle brackets for what differs from run to run, and back.

use std::collections::BTreeMap;

use super::{LATCH, NOW_MS, NOW_US, Vector};

/// Numbers this close to now are written as a distance from it: a day.
const NEAR_MS: i64 = 24 * 3600 * 1000;

/// The owners and requests in one run of a vector.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Name -> its value.
    names: BTreeMap<String, String>,
}

impl Cast {
    /// A cast with the id of the owner that runs the operation. All other ids are made up: Java's,
    /// unless the name begins with `our`.
    pub fn new(vector: &Vector, me: &str) -> Self {
        let text = vector.json.to_string();
        let mut names = BTreeMap::new();
        // The caller may appear in keys that do not name it before.
        let text = format!("{text}<me>");
        for name in text.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
            let role = name.strip_suffix(".client").unwrap_or(name);
            if role.starts_with("now") || role == "hex" {
                continue;
            }
            let id = match role {
                "me" => me.to_owned(),
                _ if role.starts_with("request") => made_up(role),
                _ => owner(role),
            };
            if !role.starts_with("request") {
                let (client, _) = id.rsplit_once(':').expect("a client and a number");
                names.insert(format!("{role}.client"), client.to_owned());
            }
            names.insert(role.to_owned(), id);
        }
        Self { names }
    }

    /// The text with its names replaced by ids and times.
    ///
    /// # Panics
    ///
    /// If a name is unknown.
    pub fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('<') {
            let (name, after) = after.split_once('>').expect("a closing bracket");
            filled.push_str(before);
            filled.push_str(&self.value(name));
            rest = after;
        }
        filled + rest
    }

    fn value(&self, name: &str) -> String {
        let distance = |text: &str| {
            if text.is_empty() { 0 } else { text.parse::<i64>().expect("a distance to now") }
        };
        if let Some(text) = name.strip_prefix("now_us") {
            return (NOW_US + distance(text)).to_string();
        }
        if let Some(text) = name.strip_prefix("now") {
            return (NOW_MS + distance(text)).to_string();
        }
        self.names.get(name).unwrap_or_else(|| panic!("nobody is called {name}")).clone()
    }

    /// The text with its ids and times replaced by names.
    pub fn blank(&self, text: &str) -> String {
        let mut blank = text.to_owned();
        // Owners before clients, whose ids are prefixes of theirs.
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by_key(|(_, id)| std::cmp::Reverse(id.len()));
        for (name, id) in names {
            blank = blank.replace(id.as_str(), &format!("<{name}>"));
        }
        if let Some(lock) = blank.strip_prefix(LATCH) {
            let lock = lock.rsplit_once(':').map_or("", |(lock, _)| lock);
            return format!("{LATCH}{lock}:<hex>");
        }
        blank_times(&blank)
    }
}

/// Times are words of their own: digits with neither a letter nor a bracket beside them.
fn blank_times(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let Ok(number) = word.parse::<i64>() else { return word.to_owned() };
        let near = |now: i64, limit: i64| (number - now).abs() <= limit;
        let (name, distance) = if near(NOW_MS, NEAR_MS) {
            ("now", number - NOW_MS)
        } else if near(NOW_US, NEAR_MS * 1000) {
            ("now_us", number - NOW_US)
        } else {
            return word.to_owned();
        };
        if distance == 0 { format!("<{name}>") } else { format!("<{name}{distance:+}>") }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// An id of Java (a UUID of version 4), or of ours (8).
fn owner(role: &str) -> String {
    let version = if role.starts_with("our") { '8' } else { '4' };
    let hex = made_up(role);
    format!(
        "{}-{}-{version}{}-8{}-{}:1",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..]
    )
}

/// 32 hexadecimal digits for a name, the same in every run (FNV-1a, twice).
fn made_up(name: &str) -> String {
    let hash = |seed: u64| {
        name.bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x9e37_79b9_7f4a_7c15))
}
