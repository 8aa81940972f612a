//! The files against our rewrite of the rules, on every server.

use super::*;
use serde_json::json;

use crate::redisson::Version;
use crate::server::Generation;

/// The rules of a Redisson version that the vectors name.
fn rules(version: &str) -> Version {
    match version {
        "4.7.0" => Version::V4,
        "3.52.0" => Version::V3_52,
        "3.16.8" => Version::V3_31,
        other => panic!("whose rules are those of {other}?"),
    }
}

/// The scripts of old versions fail in these cases, on a waiter without a score, and change
/// nothing. Our rules do not fail; only the jars show it.
const FAILS: [(&str, &str); 2] = [
    ("fair/enter-behind-one-without-score", "3.16.8"),
    ("fair/unlock-head-without-score", "3.16.8"),
];

/// The cases to check: a vector, a version, and what the vector states for it.
fn of_java() -> Vec<(Vector, String, Outcome)> {
    let mut all = Vec::new();
    for vector in Vector::all() {
        let Some(java) = vector.java() else { continue };
        let outcomes = java["outcomes"].as_array().unwrap();
        assert!(!outcomes.is_empty(), "{}: recorded from nothing", vector.name);
        for outcome in outcomes {
            for version in list(&outcome["versions"]) {
                let said = vector.java_outcome(version).unwrap().without_latches();
                if FAILS.contains(&(vector.name.as_str(), version)) {
                    assert_eq!(said.returns, serde_json::json!({ "throws": "RedisException" }));
                    assert_eq!(&said.after, vector.before());
                    continue;
                }
                all.push((vector.clone(), version.to_owned(), said));
            }
        }
    }
    assert!(all.len() > 200, "only {}", all.len());
    all
}

fn the_rules_do_what_the_jars_did(generation: Generation) {
    let Some(mut bench) = Bench::start(generation) else { return };
    let mut wrong = Vec::new();
    for (vector, version, said) in of_java() {
        let seen = model::play(&mut bench, &vector, rules(&version), &said);
        if let Some(difference) = mismatch(&said, &seen) {
            wrong.push(format!("{}, {version}: {difference}", vector.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rules_do_what_the_jars_did_on_redis62() {
    the_rules_do_what_the_jars_did(Generation::Redis62);
}

#[test]
fn the_rules_do_what_the_jars_did_on_redis70() {
    the_rules_do_what_the_jars_did(Generation::Redis70);
}

#[test]
fn the_rules_do_what_the_jars_did_on_valkey91() {
    the_rules_do_what_the_jars_did(Generation::Valkey91);
}

#[test]
fn a_mismatch_is_found_in_every_part_of_an_outcome() {
    let outcome =
        |returns: &str, ttl_ms: Value, value: &str, payload: &str, channel: &str| Outcome {
            returns: json!(returns),
            after: keys(
                &json!({ "a": { "type": "hash", "ttl_ms": ttl_ms, "value": { "x": value } } }),
            )
            .clone(),
            published: json!([["c", payload]]),
            subscribed: json!([channel]),
        };
    let said = outcome("-", json!(30_000), "1", "0", "c");
    assert_eq!(mismatch(&said, &said), None);
    for (path, seen) in [
        ("returns", outcome("true", json!(30_000), "1", "0", "c")),
        ("after / a / ttl_ms", outcome("-", json!(30_001), "1", "0", "c")),
        ("after / a / ttl_ms", outcome("-", Value::Null, "1", "0", "c")),
        ("after / a / value / x", outcome("-", json!(30_000), "2", "0", "c")),
        ("published", outcome("-", json!(30_000), "1", "1", "c")),
        ("subscribed", outcome("-", json!(30_000), "1", "0", "d")),
        ("after / a", Outcome { after: Keys::new(), ..said.clone() }),
    ] {
        for (said, seen) in [(&said, &seen), (&seen, &said)] {
            let found = mismatch(said, seen).unwrap_or_else(|| panic!("{path} may be anything"));
            assert!(found.starts_with(&format!("{path}:")), "{found}, not {path}");
        }
    }
    let range = outcome("-", json!([16_000, 20_000]), "1", "0", "c");
    for (ttl_ms, is_fine) in [(15_999, false), (16_000, true), (20_000, true), (20_001, false)] {
        let seen = outcome("-", json!(ttl_ms), "1", "0", "c");
        assert_eq!(mismatch(&range, &seen).is_none(), is_fine, "{ttl_ms}");
    }
}

/// Files have the printed form, so recording them again shows only what Java does differently.
#[test]
fn files_look_as_they_are_printed() {
    for vector in Vector::all() {
        let text = fs::read_to_string(vector.path()).unwrap();
        let printed = print(&vector.json);
        assert!(text == printed, "{} is not printed as it would be", vector.name);
    }
}

#[test]
fn names_become_ids_and_ids_names() {
    let json = serde_json::json!({ "title": "<me> <first.client> <ours1> <request1>" });
    let vector = Vector { name: "x/y".to_owned(), object: "x".to_owned(), json };
    let cast = Cast::new(&vector, "68abb9b1-b536-4682-91df-ddd2a0666c9d:32");
    let id = cast.fill("<first>");
    assert_eq!(
        (id.len(), id.as_bytes()[14], cast.fill("<ours1>").as_bytes()[14]),
        (38, b'4', b'8')
    );
    assert_eq!(cast.fill("x:<me>"), "x:68abb9b1-b536-4682-91df-ddd2a0666c9d:32");
    assert_eq!(cast.fill("<now>"), "2000000000123");
    assert_eq!(cast.fill("<now-124> <now_us+1>"), "1999999999999 2000000000123457");
    for text in ["<me.client>:7", "<first>", "<request1> 30000 0", "<now+1> <now_us-1>", "a {a} 12"]
    {
        assert_eq!(cast.blank(&cast.fill(text)), text);
    }
    let latch = "redisson_unlock_latch:{a}:00112233445566778899aabbccddeeff";
    assert_eq!(cast.blank(latch), "redisson_unlock_latch:{a}:<hex>");
}
