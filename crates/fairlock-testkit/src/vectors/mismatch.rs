//! Whether an outcome is what the file says, and whether the comparison would notice a change.

use serde_json::{Map, Value, json};

use super::Outcome;

/// The first difference: a path into the file, the file's value and the one seen.
pub fn mismatch(said: &Outcome, seen: &Outcome) -> Option<String> {
    let said_after = Value::from(said.after.clone());
    let seen_after = Value::from(seen.after.clone());
    differ("returns", &said.returns, &seen.returns)
        .or_else(|| differ("after", &said_after, &seen_after))
        .or_else(|| differ("published", &said.published, &seen.published))
        .or_else(|| differ("subscribed", &said.subscribed, &seen.subscribed))
}

fn differ(path: &str, said: &Value, seen: &Value) -> Option<String> {
    let told = || Some(format!("{path}: the file says {said}, seen is {seen}"));
    match (said, seen) {
        (Value::Object(one), Value::Object(two)) => {
            let names = one.keys().chain(two.keys().filter(|name| !one.contains_key(*name)));
            for name in names {
                let [one, two] = [one, two].map(|map: &Map<_, _>| map.get(name));
                let path = format!("{path} / {name}");
                let difference = match (one, two) {
                    (Some(one), Some(two)) => differ(&path, one, two),
                    (one, two) => {
                        let [one, two] = [one, two]
                            .map(|v| v.map_or_else(|| "nothing".to_owned(), Value::to_string));
                        Some(format!("{path}: the file says {one}, seen is {two}"))
                    }
                };
                if difference.is_some() {
                    return difference;
                }
            }
            None
        }
        (Value::Array(range), Value::Number(seen)) if path.ends_with("ttl_ms") => {
            let [from, to] = range.as_slice() else { return told() };
            let is_inside = from.as_i64() <= seen.as_i64() && seen.as_i64() <= to.as_i64();
            if is_inside { None } else { told() }
        }
        _ if said == seen => None,
        _ => told(),
    }
}

/// The same outcome with one value changed, once for each of its values. Ranges are left out.
pub fn mutants(outcome: &Outcome) -> Vec<(String, Outcome)> {
    let whole = json!({
        "returns": outcome.returns,
        "after": outcome.after,
        "published": outcome.published,
        "subscribed": outcome.subscribed,
    });
    let mut paths = Vec::new();
    collect(&whole, &mut String::new(), &mut paths);
    let of = |path: &str| {
        let mut changed = whole.clone();
        let value = changed.pointer_mut(path).expect("a path into it");
        *value = other(value);
        Outcome::parse(&changed)
    };
    paths.iter().map(|path| (path.clone(), of(path))).collect()
}

/// The paths of all values that contain no others.
fn collect(value: &Value, path: &mut String, paths: &mut Vec<String>) {
    let length = path.len();
    let is_range = path.ends_with("/ttl_ms") && value.is_array();
    match value {
        _ if is_range => {}
        Value::Object(map) if !map.is_empty() => {
            for (name, inner) in map {
                path.push('/');
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                collect(inner, path, paths);
                path.truncate(length);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (at, inner) in list.iter().enumerate() {
                path.push_str(&format!("/{at}"));
                collect(inner, path, paths);
                path.truncate(length);
            }
        }
        // Not stated: our part says nothing about subscribers.
        Value::Null if path == "/subscribed" => {}
        _ => paths.push(path.clone()),
    }
}

/// A value as close as possible: the smallest slip.
fn other(value: &Value) -> Value {
    match value {
        Value::Null => json!(1),
        Value::Bool(value) => json!(!value),
        Value::Number(number) => json!(number.as_i64().map_or(1, |number| number + 1)),
        Value::String(text) => match text.strip_suffix('>') {
            Some(name) if name.starts_with("<now") => json!(later(name)),
            _ => json!(format!("{text}1")),
        },
        Value::Array(_) => json!([["redisson_lock__channel:{a}", "0"]]),
        Value::Object(_) => json!({ "b": { "type": "string", "ttl_ms": null, "value": "1" } }),
    }
}

/// One unit later than `<now+5`.
fn later(name: &str) -> String {
    let at = name.find(['+', '-']).unwrap_or(name.len());
    let distance = name[at..].parse::<i64>().unwrap_or_default() + 1;
    if distance == 0 {
        format!("{}>", &name[..at])
    } else {
        format!("{}{distance:+}>", &name[..at])
    }
}
