//! docs/alerts.yml and docs/dashboard.json ask for metrics, labels and values that exist.

use std::collections::BTreeSet;

use serde_json::Value;

use super::table::{Row, rows};

/// Labels that Prometheus adds, and that of buckets.
const ADDED: [&str; 3] = ["job", "instance", "le"];

fn read(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every string below a value.
fn strings<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(fields) => fields.values().for_each(|item| strings(item, found)),
        _ => {}
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The metrics that a text asks for, each with its selector, which may be empty.
fn asked_for(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fairlock_") {
        let rest = &text[at..];
        let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        found.push((name, selector.unwrap_or("")));
    }
    found
}

/// What is wrong with a query for one metric.
fn wrong(name: &str, selector: &str) -> Option<String> {
    let rows = rows();
    let series = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    let metric = series.unwrap_or(name);
    let Some(row) = rows.get(metric) else { return Some(format!("there is no {metric}")) };
    if (row.shape == "histogram") != series.is_some() {
        return Some(format!("{name} is a {}", row.shape));
    }
    selector.split(", ").filter(|part| !part.is_empty()).find_map(|part| of_label(row, part))
}

/// What is wrong with `label="a|b"`.
fn of_label(row: &Row, matcher: &str) -> Option<String> {
    let (label, value) = matcher.split_once(['=', '!']).expect(matcher);
    let values = value.trim_start_matches(['=', '~']).trim_matches('"');
    if ADDED.contains(&label) {
        return None;
    }
    if !row.labels.contains(label) {
        return Some(format!("no label {label}"));
    }
    // The table has those of one label; the kinds are listed elsewhere.
    let known = |value: &&str| label == "kind" || row.values.contains(*value);
    values.split('|').find(|value| !known(value)).map(|value| format!("{label} is never {value}"))
}

/// The labels by which queries group, or that texts show.
fn labels(text: &str) -> BTreeSet<&str> {
    let groups = text.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let groups = groups.flat_map(|list| list.split(", "));
    let shown = text.split("$labels.").skip(1).filter_map(|rest| rest.split(' ').next());
    groups.chain(shown).collect()
}

#[test]
fn they_name_what_is_there() {
    let alerts = read("alerts.yml");
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut texts = vec![&*alerts];
    strings(&dashboard, &mut texts);
    let rows = rows();
    let known: BTreeSet<_> =
        rows.values().flat_map(|row| row.labels.iter().map(String::as_str)).chain(ADDED).collect();
    for text in &texts {
        for (name, selector) in asked_for(text) {
            assert_eq!(wrong(name, selector), None, "{name}{{{selector}}}");
        }
        assert!(labels(text).is_subset(&known), "{:?}", labels(text));
    }
    // The dashboard shows all of them.
    let shown: BTreeSet<_> =
        texts[1..].iter().flat_map(|text| asked_for(text)).map(|(name, _)| name).collect();
    let is_shown = |name: &String| shown.iter().any(|shown| shown.starts_with(name.as_str()));
    let missing: Vec<_> = rows.keys().filter(|name| !is_shown(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(alerts.matches("- alert: ").count() >= 10);
}

#[test]
fn what_is_not_there_is_noticed() {
    assert_eq!(wrong("fairlock_lost_total", r#"job=~"$job", cause="expired|taken""#), None);
    assert_eq!(wrong("fairlock_wait_seconds_bucket", ""), None);
    for (name, selector) in [
        ("fairlock_losses_total", ""),
        ("fairlock_wait_seconds", ""),
        ("fairlock_lost_total_bucket", ""),
        ("fairlock_lost_total", r#"reason="taken""#),
        ("fairlock_lost_total", r#"cause=~"taken|stolen""#),
        ("fairlock_grants_total", r#"by!="mail""#),
    ] {
        assert!(wrong(name, selector).is_some(), "{name}{{{selector}}}");
    }
}
