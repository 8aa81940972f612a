//! Our part of the golden vectors (`testing/vectors`), carried out by the scripts on every server:
//! the same keys, messages and reply; and nothing differs from Java's without a reason.

mod case;
mod latch;
mod multi;
mod rw;
mod rw_ours;
mod semaphore;

use self::case::Case;
use super::super::keys::{self, Keys};
use super::super::script;
use fairlock_core::{
    Acquire, Kind, LatchOp, LatchRequest, LockName, Mode, Op, OwnerId, RequestId, Share,
};
use fairlock_testkit::resp::Value;
use fairlock_testkit::server::Generation;
use fairlock_testkit::vectors::{Bench, Cast, LOCK, Outcome, Vector, list, mismatch, mutants};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

/// A UUID of version 8, so one of ours.
const ME: &str = "0f0e0d0c-0b0a-8908-8706-050403020100:7";
/// What precedes a script's own arguments, after the flags.
const SETTINGS: &str = "PUBLISH 2000 6000 300000 fairlock_inbox:";

fn play(bench: &mut Bench, vector: &Vector, long_way: bool) -> Outcome {
    let ours = vector.ours().unwrap();
    let cast = Cast::new(vector, ME);
    bench.clear();
    // Wait until the inboxes of the previous vector are gone.
    bench.subscribed_soon(&cast, &json!([]));
    let mut listener = bench.server().client();
    for channel in ours.get("listening").map(list).unwrap_or_default() {
        listener.subscribe(&cast.fill(channel));
    }
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

/// The vectors of read-write locks, semaphores, latches, and several locks at once as code.
fn cases() -> Vec<Case> {
    let all = [rw::cases(), rw_ours::cases(), semaphore::cases(), latch::cases(), multi::cases()];
    all.into_iter().flatten().collect()
}

/// The files by name, as they are, of the folders that are made from code.
fn made() -> BTreeMap<String, Vector> {
    let mut vectors = Vector::all();
    let is_made = |folder: &str| ["rw", "semaphore", "latch", "multi"].contains(&folder);
    vectors.retain(|vector| is_made(&vector.object));
    vectors.into_iter().map(|vector| (vector.name.clone(), vector)).collect()
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
        let mut known = made();
        for case in cases() {
            let recorded = known.remove(&case.name());
            case.vector(&mut bench, recorded.as_ref()).write();
        }
        for vector in known.into_values() {
            std::fs::remove_file(vector.path()).unwrap();
        }
        for mut vector in Vector::all() {
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

/// The files that are made from code are those of the code, in every field, but for what Java did.
fn the_files_are_made_from_the_cases(generation: Generation) {
    let Some(mut bench) = Bench::start(generation) else { return };
    let mut known = made();
    for case in cases() {
        let file = known.remove(&case.name()).unwrap_or_else(|| panic!("no file {}", case.name()));
        let vector = case.vector(&mut bench, Some(&file));
        assert_eq!(vector.json, file.json, "{}", case.name());
    }
    assert!(known.is_empty(), "of no case: {:?}", known.keys());
}

#[test]
fn the_files_are_made_from_the_cases_on_redis62() {
    the_files_are_made_from_the_cases(Generation::Redis62);
}

#[test]
fn the_files_are_made_from_the_cases_on_redis70() {
    the_files_are_made_from_the_cases(Generation::Redis70);
}

#[test]
fn the_files_are_made_from_the_cases_on_valkey91() {
    the_files_are_made_from_the_cases(Generation::Valkey91);
}

/// A change by one in any value of ours, in any file, is noticed.
#[test]
fn a_file_with_one_changed_value_of_ours_is_refused() {
    let Some(mut bench) = Bench::start(Generation::Redis70) else { return };
    let mut changes = 0;
    for vector in of_ours() {
        let seen = play(&mut bench, &vector, false);
        for (path, changed) in mutants(&vector.our_outcome().unwrap()) {
            let noticed = mismatch(&changed, &seen).is_some();
            assert!(noticed, "{}: {path} may be anything", vector.name);
            changes += 1;
        }
    }
    assert!(changes > 1000, "only {changes} values");
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
