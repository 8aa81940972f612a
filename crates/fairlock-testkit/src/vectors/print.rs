//! The readable form of the files: fields in the order of events, short values on one line.

use serde_json::{Map, Value};

/// Fields in this order; others, which are names of keys, members and settings, follow by name.
const ORDER: [&str; 25] = [
    "title",
    "made",
    "type",
    "ttl_ms",
    "before",
    "settings",
    "earlier",
    "under_way",
    "listening",
    "script",
    "flags",
    "argv",
    "does",
    "call",
    "args",
    "advance_ms",
    "publish",
    "outcomes",
    "versions",
    "note",
    "returns",
    "after",
    "published",
    "subscribed",
    "because",
];
/// The line width of the code.
const WIDTH: usize = 100;

/// The text of a file.
pub fn print(file: &Value) -> String {
    let mut text = String::new();
    write(file, 0, 0, &mut text);
    text.push('\n');
    text
}

/// `used`: the width of what precedes it on its line.
fn write(value: &Value, depth: usize, used: usize, text: &mut String) {
    let line = inline(value);
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(map) => {
            fields(map).map(|(name, inner)| (format!("{name}: "), inner)).collect()
        }
        Value::Array(list) => list.iter().map(|inner| (String::new(), inner)).collect(),
        _ => Vec::new(),
    };
    let is_file = depth == 0;
    if parts.is_empty() || (!is_file && used + line.len() < WIDTH) {
        text.push_str(&line);
        return;
    }
    let brackets = if value.is_array() { ['[', ']'] } else { ['{', '}'] };
    text.push(brackets[0]);
    for (at, (name, inner)) in parts.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let indent = "  ".repeat(depth + 1);
        text.push_str(&format!("{comma}\n{indent}{name}"));
        write(inner, depth + 1, indent.len() + name.len(), text);
    }
    text.push_str(&format!("\n{}{}", "  ".repeat(depth), brackets[1]));
}

fn inline(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields = fields(map).map(|(name, inner)| format!("{name}: {}", inline(inner)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Names in quotes, in order, and their values.
fn fields(map: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    let mut names: Vec<_> = map.keys().collect();
    let position = |name: &str| ORDER.iter().position(|known| *known == name);
    names.sort_by_key(|name| (position(name).unwrap_or(ORDER.len()), (*name).clone()));
    names.into_iter().map(|name| (Value::from(name.as_str()).to_string(), &map[name]))
}
