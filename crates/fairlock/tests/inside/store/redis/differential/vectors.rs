//! Our part of the golden vectors (`testing/vectors`), carried out by the scripts on every server:
//! the same keys, messages and reply; and nothing differs from Java's without a reason.

use super::super::keys::{self, Keys};
use super::super::script;
use fairlock_core::{
    Acquire, Kind, LatchOp, LatchRequest, LockName, Mode, Op, OwnerId, RequestId, Share,
};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;
use fairlock_testkit::vectors::{Bench, Cast, Keys as VectorKeys, LOCK, Outcome, Vector};
use fairlock_testkit::vectors::{list, mismatch};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;

/// A UUID of version 8, so one of ours.
const ME: &str = "0f0e0d0c-0b0a-8908-8706-050403020100:7";
/// What precedes a script's own arguments, after the flags.
const SETTINGS: &str = "PUBLISH 2000 6000 300000 fairlock_inbox:";

fn play(bench: &mut Bench, vector: &Vector, long_way: bool) -> Outcome {
    let ours = vector.ours().unwrap();
    let cast = Cast::new(vector, ME);
    bench.clear();
    let _listener = listen(bench, vector, &cast);
    let none = Map::new();
    let own = ours["before"].as_object().unwrap_or(&none);
    bench.set(&[vector.before(), own], &cast);
    bench.advance_ms(ours["advance_ms"].as_i64().unwrap_or_default());

    let name = ours["script"].as_str().unwrap();
    let argv: Vec<_> = list(&ours["argv"]).iter().map(|word| cast.fill(word)).collect();
    let flags = ours["flags"].as_str().unwrap();
    let reply = eval(bench, &vector.object, name, flags, &argv, long_way);
    Outcome {
        returns: replied(&reply, &cast),
        after: bench.keys(&cast),
        published: bench.published(&cast),
        subscribed: Json::Null,
    }
}

/// Calls a script for the lock, of the kind that the folder is for, or for several.
fn eval(
    bench: &mut Bench,
    folder: &str,
    name: &str,
    flags: &str,
    argv: &[String],
    long_way: bool,
) -> Value {
    let text = script::named(name, long_way);
    let keys_of = match folder {
        "latch" => keys_of_latch(argv),
        "multi" => keys_of_several(argv),
        _ => keys_of_lock(folder, name, argv),
    };
    let mut command = vec![b"EVAL".to_vec(), text.into(), keys_of.len().to_string().into()];
    command.extend(keys_of);
    command.push(format!("{flags} {SETTINGS}").into_bytes());
    command.extend(argv.iter().map(|word| word.clone().into_bytes()));
    bench.call(&command)
}

fn request(text: &str) -> RequestId {
    RequestId::parse(text.as_bytes()).expect("a request")
}

/// Of a latch; its first argument is the request, if there is one.
fn keys_of_latch(argv: &[String]) -> Vec<Vec<u8>> {
    let lock = LockName::new(LOCK.as_bytes()).unwrap();
    let op = match argv.first().filter(|first| first.len() == 32) {
        Some(first) => {
            LatchOp::Delete { request: LatchRequest { id: request(first), not_after_ms: 0 } }
        }
        None => LatchOp::Look { waiting: None },
    };
    script::keys(&lock, &Op::Latch(op))
}

/// Of the locks `a`, `b`, ... in one call: six arguments of each, the last of which tells the kind.
fn keys_of_several(argv: &[String]) -> Vec<Vec<u8>> {
    let of_one = |(name, own): (u8, &[String])| {
        let (kind, share) = match own[5].as_str() {
            "-" => (Kind::Fair, Share::Whole),
            "r" => (Kind::ReadWrite, Share::Read),
            "w" => (Kind::ReadWrite, Share::Whole),
            _ => (Kind::Semaphore, Share::Permits { n: 1, limit: 1 }),
        };
        let acquire = Acquire {
            kind,
            owner: OwnerId::parse(own[0].as_bytes()),
            request: request(&own[1]),
            lease_ms: 0,
            mode: Mode::Try,
            order: None,
            not_after_ms: 0,
            sure: false,
            shared_owner: false,
        };
        let keys = script::keys(&LockName::new(&[name]).unwrap(), &Op::asks(acquire, share));
        keys.into_iter().take(8).collect::<Vec<_>>()
    };
    (b'a'..).zip(argv.chunks(6)).flat_map(of_one).collect()
}

fn keys_of_lock(folder: &str, name: &str, argv: &[String]) -> Vec<Vec<u8>> {
    let lock = LockName::new(LOCK.as_bytes()).unwrap();
    let keys = Keys::new(&lock);
    let mut keys_of = keys.all().to_vec();
    let (kind, other) = match folder {
        "semaphore" => (Kind::Semaphore, Kind::ReadWrite),
        _ => (Kind::ReadWrite, Kind::Semaphore),
    };
    let queue = keys_of[1].clone();
    if name.starts_with("simple_") {
        keys_of = vec![keys_of.remove(0), keys_of.remove(2)];
    }
    if name.starts_with("share_") {
        let parts = keys.parts_of(&Op::Nudge.on(kind));
        keys_of = parts.iter().map(|parts| parts.concat()).collect();
    }
    if name.ends_with("acquire") || name.ends_with("leave") {
        keys_of.push(keys.buried(request(&argv[1])));
    }
    if matches!(name, "announce" | "leader") {
        keys_of.push(keys.leader());
    }
    if name == "share_acquire" {
        keys_of.extend([queue, keys::line(&lock, other)]);
    }
    keys_of
}

fn replied(reply: &Value, cast: &Cast) -> Json {
    match reply {
        Value::Nil => Json::Null,
        Value::Int(number) => {
            let text = cast.blank(&number.to_string());
            if text.starts_with('<') { text.into() } else { (*number).into() }
        }
        Value::Array(elements) => elements.iter().map(|element| replied(element, cast)).collect(),
        // Before Redis 7 the error of a command stands within one of the script.
        Value::Error(error) if error.contains("WRONGTYPE") => json!({ "error": "WRONGTYPE" }),
        Value::Error(error) => json!({ "error": error.split(' ').next() }),
        text => cast.blank(text.text()).into(),
    }
}

/// The keys that the calls in `made` leave behind: those of everybody, and ours.
fn made(bench: &mut Bench, vector: &Vector) -> Option<(VectorKeys, VectorKeys)> {
    let steps = vector.json["made"].as_array()?;
    let cast = Cast::new(vector, ME);
    bench.clear();
    let _listener = listen(bench, vector, &cast);
    for step in steps {
        let at_ms = step[0].as_i64().expect("when, in ms from the operation");
        let words = &step.as_array().expect("a call")[1..];
        let words = words.iter().map(|word| cast.fill(word.as_str().expect("a text")));
        let words: Vec<_> = words.collect();
        bench.advance_ms(at_ms);
        let reply = match words[0].as_bytes()[0] {
            b'A'..=b'Z' => bench.call(&words),
            _ => eval(bench, &vector.object, &words[0], "p", &words[1..], false),
        };
        assert!(!matches!(reply, Value::Error(_)), "{}: {step}: {reply:?}", vector.name);
    }
    bench.advance_ms(0);
    let is_shared = |key: &str| key == LOCK || key.starts_with("{a}:");
    Some(bench.keys(&cast).into_iter().partition(|(key, _)| is_shared(key)))
}

/// The subscribers of the file, once those of the previous one are gone.
fn listen(bench: &mut Bench, vector: &Vector, cast: &Cast) -> Raw {
    bench.subscribed_soon(cast, &json!([]));
    let mut listener = bench.server().client();
    let channels = vector.ours().and_then(|ours| ours.get("listening"));
    for channel in channels.map(list).unwrap_or_default() {
        listener.subscribe(&cast.fill(channel));
    }
    listener
}

fn of_ours() -> Vec<Vector> {
    let mut vectors = Vector::all();
    vectors.retain(|vector| vector.ours().is_some());
    assert!(vectors.len() > 60, "only {}", vectors.len());
    vectors
}

fn the_scripts_do_what_the_files_say(generation: Generation) {
    let Some(mut bench) = Bench::start(generation) else { return };
    let mut wrong = Vec::new();
    for vector in of_ours() {
        let said = vector.our_outcome().unwrap();
        for long_way in [false, true] {
            let seen = play(&mut bench, &vector, long_way);
            if let Some(difference) = mismatch(&said, &seen) {
                wrong.push(format!("{}, long way {long_way}: {difference}", vector.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_scripts_do_what_the_files_say_on_redis62() {
    the_scripts_do_what_the_files_say(Generation::Redis62);
}

/// Writes the vectors first if `FAIRLOCK_UPDATE_VECTORS` is set.
#[test]
fn the_scripts_do_what_the_files_say_on_redis70() {
    if std::env::var_os("FAIRLOCK_UPDATE_VECTORS").is_some() {
        assert!(std::env::var_os("CI").is_none(), "CI compares, and writes nothing");
        let mut bench = Bench::start(Generation::Redis70).expect("a server to record from");
        for mut vector in Vector::all() {
            if let Some((shared, own)) = made(&mut bench, &vector) {
                vector.json["before"] = shared.into();
                if let Some(ours) = vector.json.get_mut("ours") {
                    ours["before"] = own.into();
                }
            }
            if vector.ours().is_some() {
                let seen = play(&mut bench, &vector, false);
                seen.write_to(&mut vector.json["ours"]);
            }
            vector.write();
        }
    }
    the_scripts_do_what_the_files_say(Generation::Redis70);
}

#[test]
fn the_scripts_do_what_the_files_say_on_valkey91() {
    the_scripts_do_what_the_files_say(Generation::Valkey91);
}

/// The state before is what the calls in the file leave behind.
fn the_states_are_what_the_calls_leave(generation: Generation) {
    let Some(mut bench) = Bench::start(generation) else { return };
    let mut played = 0;
    for vector in Vector::all() {
        let Some((shared, own)) = made(&mut bench, &vector) else { continue };
        assert_eq!(&shared, vector.before(), "{}", vector.name);
        if let Some(ours) = vector.ours() {
            assert_eq!(Json::from(own), ours["before"], "{}", vector.name);
        }
        played += 1;
    }
    assert!(played > 100, "only {played}");
}

#[test]
fn the_states_are_what_the_calls_leave_on_redis62() {
    the_states_are_what_the_calls_leave(Generation::Redis62);
}

#[test]
fn the_states_are_what_the_calls_leave_on_redis70() {
    the_states_are_what_the_calls_leave(Generation::Redis70);
}

#[test]
fn the_states_are_what_the_calls_leave_on_valkey91() {
    the_states_are_what_the_calls_leave(Generation::Valkey91);
}

/// Every difference in a shared key or in a message has a reason in the file; what does not differ
/// has none.
#[test]
fn what_differs_from_java_has_a_reason() {
    let mut wrong = Vec::new();
    for vector in of_ours() {
        let Some(java) = vector.java() else { continue };
        let newest = java["outcomes"][0]["versions"][0].as_str().unwrap();
        let (theirs, ours) = (vector.java_outcome(newest).unwrap(), vector.our_outcome().unwrap());
        let mut differ = BTreeSet::new();
        let mut keys: BTreeSet<_> = theirs.after.keys().chain(ours.after.keys()).collect();
        keys.retain(|key| !key.starts_with("fairlock_"));
        for key in keys {
            if theirs.after.get(key) != ours.after.get(key) {
                differ.insert(key.as_str());
            }
        }
        if theirs.published != ours.published {
            differ.insert("published");
        }
        let because = vector.ours().unwrap()["because"].as_object();
        let said: BTreeSet<_> =
            because.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        if said != differ {
            wrong.push(format!("{}: reasons for {said:?}, differing {differ:?}", vector.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
