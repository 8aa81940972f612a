//! Whether an outcome is what the file says.

use serde_json::{Map, Value};

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
