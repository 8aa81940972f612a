//! Java's part of a vector, run by our rewrite of Redisson's rules ([`crate::redisson`]).

use serde_json::{Value as Json, json};

use super::{Bench, Cast, LOCK, NOW_MS, Outcome, Vector};
use crate::redisson::{Call, JavaClient, State, StoppedClock, Subscription, Thread, Version};
use crate::redisson::{WATCHDOG_LEASE_MS, queue_key, timeout_key};
use crate::resp::Value;

/// The id of its client's only thread.
const ID: i64 = 1;

/// Plays it with the rules of a version of Redisson. Of `expected` only the subscribers are used: a
/// server notices a moment later that one is gone.
///
/// # Panics
///
/// If the file requires something that the rules do not have.
pub fn play(bench: &mut Bench, vector: &Vector, rules: Version, expected: &Outcome) -> Outcome {
    let java = vector.java().expect("a part of Java's");
    let clock = StoppedClock::at_ms(NOW_MS);
    let mut client = JavaClient::new(bench.server(), 0).version(rules);
    client.set_clock(&clock, 0);
    let cast = Cast::new(vector, &client.owner(ID));
    bench.clear();

    let waits = &java["under_way"];
    let took = if !waits.is_null() && is_void(waits) { "-" } else { "true" };
    let calls = ["under_way", "earlier", "does"].into_iter().map(|part| &java[part]["call"]);
    // Of a read-write lock all calls of a vector are of one half.
    let half = calls.filter_map(Json::as_str).find_map(|call| call.split_once("Lock."));
    let kind = half.map_or(vector.object.as_str(), |(half, _)| half).to_owned();
    let mut caller = Caller { kind, took, java: Java::Free(client) };
    if !java["under_way"].is_null() {
        bench.set(&[&waiting(vector)], &cast);
        caller.begins(&java["under_way"]);
    }
    bench.set(&[vector.before()], &cast);
    bench.heard();

    let does = &java["does"];
    let mut returns = Json::Null;
    if let Some(advance_ms) = does["advance_ms"].as_i64() {
        bench.advance_ms(advance_ms);
        clock.set_ms(NOW_MS + advance_ms);
        returns = caller.goes_on(!java["under_way"].is_null(), true);
    } else if let Some([channel, payload]) = does["publish"].as_array().map(Vec::as_slice) {
        let text = |json: &Json| cast.fill(json.as_str().expect("a text"));
        bench.call(&["PUBLISH", &text(channel), &text(payload)]);
        returns = caller.goes_on(true, false);
    } else if does["renewal"] == true {
        let timeout = java["settings"]["lockWatchdogTimeout"].as_i64();
        caller.renews(timeout.unwrap_or(WATCHDOG_LEASE_MS));
    } else {
        returns = caller.calls(does);
    }
    Outcome {
        returns,
        after: bench.keys(&cast),
        published: bench.published(&cast),
        subscribed: bench.subscribed_soon(&cast, &expected.subscribed),
    }
}

/// The state before, except that somebody else holds the lock: a call that begins now waits.
///
/// # Panics
///
/// If the file is not a vector.
pub fn waiting(vector: &Vector) -> super::Keys {
    let mut keys = vector.before().clone();
    if vector.object == "latch" {
        let closed = json!({ "type": "string", "ttl_ms": null, "value": "1" });
        keys.insert(LOCK.to_owned(), closed);
        return keys;
    }
    let holds = match vector.object.as_str() {
        // Without a mode it would be free for a read-write lock.
        "rw" => json!({ "mode": "write", "somebody:write": "1" }),
        _ => json!({ "somebody": "1" }),
    };
    let held = json!({ "type": "hash", "ttl_ms": 30_000, "value": holds });
    keys.insert(LOCK.to_owned(), held);
    keys
}

/// The client that runs the operation.
struct Caller {
    /// The folder of the vector.
    kind: String,
    /// What the call under way returns once it has the lock.
    took: &'static str,
    java: Java,
}

#[derive(Debug)]
enum Java {
    Free(JavaClient),
    /// In `lock()` or `tryLock()` of a fair lock.
    Fair(Thread),
    /// In a call of another lock, asleep.
    Waits(JavaClient, Subscription),
    Gone,
}

impl Caller {
    fn client(&mut self) -> &mut JavaClient {
        match &mut self.java {
            Java::Free(client) | Java::Waits(client, _) => client,
            _ => panic!("a call is under way"),
        }
    }

    fn is_fair(&self) -> bool {
        self.kind.ends_with("fair")
    }

    /// Begins a call that waits.
    fn begins(&mut self, call: &Json) {
        let Java::Free(mut client) = std::mem::replace(&mut self.java, Java::Gone) else {
            panic!("one call at a time")
        };
        self.java = if self.is_fair() {
            Java::Fair(Thread::start(client, LOCK, fair_call(call)))
        } else {
            assert!(attempt(&mut client, &self.kind, WATCHDOG_LEASE_MS).is_some(), "it waits");
            let subscription = subscribe(&client, &self.kind);
            Java::Waits(client, subscription)
        };
    }

    /// One round of the watchdog.
    fn renews(&mut self, lease_ms: i64) {
        let kind = self.kind.clone();
        let client = self.client();
        match kind.as_str() {
            "read" => client.read_renew_for(LOCK, ID, lease_ms),
            "write" => client.write_renew_for(LOCK, ID, lease_ms),
            _ => client.renew_for(LOCK, ID, lease_ms),
        };
    }

    /// Continues a call under way because it was notified, or because its time is over. Returns its
    /// result.
    fn goes_on(&mut self, is_under_way: bool, is_over: bool) -> Json {
        if !is_under_way {
            return Json::Null;
        }
        match std::mem::replace(&mut self.java, Java::Gone) {
            Java::Fair(mut thread) => {
                let state = thread.step();
                if let State::Sleeps { .. } = state {
                    self.java = Java::Fair(thread);
                    return json!("waits");
                }
                self.java = Java::Free(thread.into_client());
                json!(if state == State::Holds { self.took } else { "false" })
            }
            Java::Waits(mut client, mut subscription) => {
                let is_told = subscription.told();
                if !is_told && is_over {
                    // That needs no script.
                    self.java = Java::Free(client);
                    return json!("false");
                }
                if !is_told || attempt(&mut client, &self.kind, WATCHDOG_LEASE_MS).is_some() {
                    self.java = Java::Waits(client, subscription);
                    return json!("waits");
                }
                self.java = Java::Free(client);
                json!(self.took)
            }
            _ => panic!("no call is under way"),
        }
    }

    /// Makes a call; returns its result so far.
    fn calls(&mut self, call: &Json) -> Json {
        let name = name(call);
        let thrown = |exception: &str| json!({ "throws": exception });
        let kind = self.kind.clone();
        match name {
            "lock" | "lockAsync" | "tryLock" | "tryLockAsync" | "tryLockUnit"
            | "lockAndGetToken" | "tryLockAndGetToken" => self.acquires(name, call),
            "unlock" | "unlockAsync" => {
                let is_fair = self.is_fair();
                let client = self.client();
                let reply = match kind.as_str() {
                    "spin" => client.spin_unlock(LOCK, ID),
                    "read" => client.read_unlock(LOCK, ID),
                    "write" => client.write_unlock(LOCK, ID),
                    _ if is_fair => client.unlock(LOCK, ID),
                    _ => client.plain_unlock(LOCK, ID),
                };
                if reply.is_some() { json!("-") } else { thrown("IllegalMonitorStateException") }
            }
            "forceUnlock" => {
                let is_fair = self.is_fair();
                let client = self.client();
                let freed = match kind.as_str() {
                    "spin" => client.spin_force_unlock(LOCK),
                    "read" => client.read_force_unlock(LOCK),
                    "write" => client.write_force_unlock(LOCK),
                    _ if is_fair => client.force_unlock(LOCK),
                    _ => client.plain_force_unlock(LOCK),
                };
                json!(freed.to_string())
            }
            "isLocked" => {
                let is_locked = match kind.as_str() {
                    "read" => self.client().is_read(LOCK),
                    "write" => self.look(&["HGET", LOCK, "mode"]) == "write",
                    _ => self.look(&["EXISTS", LOCK]) == "1",
                };
                json!(is_locked.to_string())
            }
            "isHeldByCurrentThread" => {
                let field = self.field();
                json!((self.look(&["HEXISTS", LOCK, &field]) == "1").to_string())
            }
            "holdCount" => {
                let field = self.field();
                json!(self.look(&["HGET", LOCK, &field]))
            }
            "remainTimeToLive" => json!(self.look(&["PTTL", LOCK])),
            "token" => json!(self.client().token(LOCK).to_string()),
            "trySetCount" => {
                let count = number(call, 0).expect("a count");
                json!(self.client().latch_set(LOCK, count).to_string())
            }
            "countDown" => {
                self.client().latch_count_down(LOCK);
                json!("-")
            }
            "getCount" => json!(self.client().latch_count(LOCK).to_string()),
            "await" if self.client().latch_count(LOCK) == 0 => {
                json!(if is_void(call) { "-" } else { "true" })
            }
            "await" => {
                self.sleeps();
                json!("waits")
            }
            "delete" if kind == "latch" => json!(self.client().latch_delete(LOCK).to_string()),
            "delete" => {
                self.look(&["DEL", LOCK, &queue_key(LOCK), &timeout_key(LOCK)]);
                json!("true")
            }
            other => panic!("the rules have no {other}"),
        }
    }

    /// The caller's field in the lock.
    fn field(&mut self) -> String {
        let owner = self.client().owner(ID);
        if self.kind == "write" { format!("{owner}:write") } else { owner }
    }

    /// A command that Java sends without a script.
    fn look(&mut self, command: &[&str]) -> String {
        match self.client().command(command) {
            Value::Int(number) => number.to_string(),
            Value::Nil => "0".to_owned(),
            other => other.text().to_owned(),
        }
    }

    fn acquires(&mut self, name: &str, call: &Json) -> Json {
        let waits = name.starts_with("lock") || number(call, 0).is_some();
        let lease_ms = match name {
            "lock" | "lockAsync" | "lockAndGetToken" => number(call, 0),
            _ => number(call, 1),
        };
        let lease_ms = lease_ms.filter(|ms| *ms > 0).unwrap_or(WATCHDOG_LEASE_MS);
        if self.kind.starts_with("non-reentrant") {
            let owner = self.client().owner(ID);
            if self.look(&["HEXISTS", LOCK, &owner]) == "1" {
                return json!({ "throws": "IllegalMonitorStateException" });
            }
        }
        let took = if self.is_fair() && waits {
            let Java::Free(client) = std::mem::replace(&mut self.java, Java::Gone) else {
                panic!("one call at a time")
            };
            let thread = Thread::start(client, LOCK, fair_call(call));
            let took = thread.holds();
            self.java = if took { Java::Free(thread.into_client()) } else { Java::Fair(thread) };
            took
        } else if self.is_fair() {
            self.client().try_acquire(LOCK, ID, lease_ms)
        } else {
            let kind = self.kind.clone();
            let client = self.client();
            attempt(client, &kind, lease_ms).is_none()
        };
        let is_void = name.starts_with("lock");
        match (took, waits) {
            (true, _) if name.ends_with("AndGetToken") => {
                json!(self.client().token(LOCK).to_string())
            }
            (true, _) => json!(if is_void { "-" } else { "true" }),
            (false, false) => json!("false"),
            (false, true) => {
                self.sleeps();
                json!("waits")
            }
        }
    }

    /// Sleeps until notified; a waiter of a spin lock polls instead.
    fn sleeps(&mut self) {
        if self.kind == "spin" || self.is_fair() {
            return;
        }
        let Java::Free(mut client) = std::mem::replace(&mut self.java, Java::Gone) else {
            panic!("one call at a time")
        };
        let subscription = subscribe(&client, &self.kind);
        assert!(attempt(&mut client, &self.kind, WATCHDOG_LEASE_MS).is_some(), "it is still held");
        self.java = Java::Waits(client, subscription);
    }
}

/// One attempt of a call on a lock without a queue: `None` if it has the lock.
fn attempt(client: &mut JavaClient, kind: &str, lease_ms: i64) -> Option<i64> {
    match kind {
        "fenced" => client.fenced_acquire(LOCK, ID, lease_ms),
        "read" => client.read_acquire(LOCK, ID, lease_ms),
        "write" => client.write_acquire(LOCK, ID, lease_ms),
        "latch" => Some(client.latch_count(LOCK)).filter(|count| *count > 0),
        _ => client.plain_acquire(LOCK, ID, lease_ms),
    }
}

/// To the one channel of its waiters.
fn subscribe(client: &JavaClient, kind: &str) -> Subscription {
    match kind {
        "read" | "write" => client.read_write_subscribe(LOCK),
        "latch" => client.latch_subscribe(LOCK),
        _ => client.plain_subscribe(LOCK),
    }
}

/// The name of the method, whichever half of a read-write lock has it.
fn name(call: &Json) -> &str {
    let name = call["call"].as_str().expect("a call has a name");
    name.split_once('.').map_or(name, |(_, name)| name)
}

/// Whether a call that waits returns nothing.
fn is_void(call: &Json) -> bool {
    name(call).starts_with("lock") || name(call) == "await" && number(call, 0).is_none()
}

fn number(call: &Json, at: usize) -> Option<i64> {
    call["args"].get(at)?.as_i64()
}

/// The call of a thread that may wait.
fn fair_call(call: &Json) -> Call {
    let name = call["call"].as_str().expect("a call has a name");
    let lease_ms = |at| number(call, at).filter(|ms| *ms > 0);
    match (name, number(call, 0)) {
        ("lock" | "lockAsync", None) => Call::Lock,
        ("lock" | "lockAsync", Some(lease_ms)) => Call::LockFor { lease_ms },
        ("tryLockUnit", Some(wait)) => {
            assert_eq!(call["args"][1], "SECONDS", "the unit of the vectors");
            Call::TryLockRenewed { wait, unit_ms: 1000 }
        }
        ("tryLock", Some(wait_ms)) => match lease_ms(1) {
            Some(lease_ms) => Call::TryLock { wait_ms, lease_ms },
            None => Call::TryLockRenewed { wait: wait_ms, unit_ms: 1 },
        },
        ("tryLockAsync", Some(wait_ms)) => {
            Call::TryLockAsync { wait_ms, lease_ms: lease_ms(1).unwrap_or(WATCHDOG_LEASE_MS) }
        }
        other => panic!("no call that waits: {other:?}"),
    }
}
