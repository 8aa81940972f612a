//! Golden vectors, played by Redisson's own jars.
//!
//! A file of `testing/vectors` has the state and the call; here Java makes the call, and the
//! resulting state is recorded. The clocks of server and JVM are frozen and advance as the file
//! says.

use std::time::{Duration, Instant};

use fairlock_testkit::server::Generation;
use fairlock_testkit::vectors::{
    Bench, Cast, LOCK, NOW_US, Outcome, Vector, list, mismatch, model,
};
use serde_json::{Value, json};

use crate::java::{Call, Java, JavaOwner, Kind, SOON, Settings};
use crate::version::Version;

/// A state that is stable for this long will not be changed any more by the call.
const SETTLED: Duration = Duration::from_millis(100);
/// Where time passes, everything that is due has happened by then: timed calls of the vectors take
/// a second, and the watchdog runs each second.
const DONE_AFTER: Duration = Duration::from_millis(2500);
/// A call that has not returned by then is waiting.
const WAITS_AFTER: Duration = Duration::from_millis(1000);
const LOOK: Duration = Duration::from_millis(10);

/// A server and a JVM with a shared frozen clock.
#[derive(Debug)]
pub struct Recorder {
    bench: Bench,
    java: Java,
}

impl Recorder {
    /// Starts both. Returns `None`, with a message, where something is missing.
    ///
    /// # Panics
    ///
    /// If they do not start.
    pub fn start(version: Version, generation: Generation) -> Option<Self> {
        let bench = Bench::start(generation)?;
        let java = Java::with_clock(version)?;
        Some(Self { bench, java })
    }

    /// Whether this version has the object.
    pub fn plays(&self, vector: &Vector) -> bool {
        let version = self.java.version();
        vector.java().is_some()
            && match vector.object.as_str() {
                "fenced" => version.has_fenced(),
                "non-reentrant" | "non-reentrant-fair" => version.has_non_reentrant(),
                _ => true,
            }
    }

    /// Plays the vector in Java. Waits for an expected outcome; without one, until the state has
    /// settled.
    ///
    /// # Panics
    ///
    /// If Java does not do what the file requires.
    pub async fn play(&mut self, vector: &Vector, expected: Option<&Outcome>) -> Outcome {
        self.set_clocks(0);
        self.bench.clear();
        let part = vector.java().expect("a part of Java's");
        let mut settings = Settings::default();
        if let Some(ms) = part["settings"]["lockWatchdogTimeout"].as_u64() {
            settings.watchdog = Duration::from_millis(ms);
        }
        let client = self.java.client(self.bench.server().addr(), settings).await;
        let owner = client.owner("t").await;
        let call = |part: &Value| call(&owner, &vector.object, part);
        let cast = Cast::new(vector, &owner.id);

        let mut under_way = None;
        if !part["earlier"].is_null() {
            call(&part["earlier"]).value().await;
        }
        if !part["under_way"].is_null() {
            self.bench.set(&[&model::waiting(vector)], &cast);
            let scripts = self.bench.server().script_calls();
            under_way = Some(call(&part["under_way"]));
            // Who waits for a latch looks without a script.
            let asks = if vector.object == "latch" { 0 } else { 2 };
            self.until_it_waits(&cast, scripts + asks, &vector.name).await;
        }
        self.bench.set(&[vector.before()], &cast);
        self.bench.heard();

        let does = &part["does"];
        if let Some(ms) = does["advance_ms"].as_i64() {
            self.set_clocks(ms);
        } else if let Some([channel, payload]) = does["publish"].as_array().map(Vec::as_slice) {
            let text = |json: &Value| cast.fill(json.as_str().expect("a text"));
            self.bench.call(&["PUBLISH", &text(channel), &text(payload)]);
        } else if !does["call"].is_null() {
            under_way = Some(call(does));
        }
        let has_returned_after = match &under_way {
            Some(_) if !does["call"].is_null() => WAITS_AFTER,
            _ => DONE_AFTER,
        };
        let outcome = self.outcome(under_way, &cast, expected, has_returned_after).await;
        self.set_clocks(0);
        client.shutdown().value().await;
        outcome
    }

    async fn outcome(
        &mut self,
        mut call: Option<Call>,
        cast: &Cast,
        expected: Option<&Outcome>,
        has_returned_after: Duration,
    ) -> Outcome {
        let began = Instant::now();
        let mut published = Vec::new();
        let mut last: Option<(Instant, Outcome)> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            published.extend(self.bench.published(cast).as_array().expect("a list").clone());
            let outcome = Outcome {
                returns: match &mut call {
                    None => Value::Null,
                    Some(call) => returned(call, cast).await,
                },
                after: ranges(self.bench.keys(cast)),
                published: published.clone().into(),
                subscribed: self.bench.subscribed(cast),
            };
            let since = match last {
                Some((since, before)) if before == outcome => since,
                _ => Instant::now(),
            };
            let is_quiet = since.elapsed() >= SETTLED;
            let is_done = match expected {
                Some(expected) => {
                    is_quiet && mismatch(expected, &outcome).is_none() || began.elapsed() > SOON
                }
                // A call that has returned is done, apart from commands sent without waiting for a
                // reply.
                None => {
                    let has_returned = !outcome.returns.is_null() && outcome.returns != "waits";
                    is_quiet && (has_returned || began.elapsed() >= has_returned_after)
                }
            };
            if is_done {
                return outcome;
            }
            last = Some((since, outcome));
        }
    }

    /// Waits until the caller has asked, subscribed, and asked again: at least two scripts, since
    /// some waiters of old versions do not sleep at all.
    async fn until_it_waits(&mut self, cast: &Cast, scripts: u64, name: &str) {
        let began = Instant::now();
        let mut since = Instant::now();
        while since.elapsed() < SETTLED {
            tokio::time::sleep(LOOK).await;
            if self.bench.server().script_calls() < scripts
                || self.bench.subscribed(cast) == json!([])
            {
                since = Instant::now();
            }
            assert!(began.elapsed() < SOON, "{name}: the call does not wait");
        }
    }

    fn set_clocks(&self, later_ms: i64) {
        self.bench.advance_ms(later_ms);
        self.java.clock().freeze_at(NOW_US + later_ms * 1000);
    }
}

/// What a call has returned so far.
async fn returned(call: &mut Call, cast: &Cast) -> Value {
    if !call.is_over() {
        return json!("waits");
    }
    let answer = call.answer_within(SOON).await.expect("it is over");
    match answer.result {
        Ok(value) => json!(cast.blank(&value)),
        // Only the class name; the message contains ids.
        Err(exception) => {
            let class = exception.split(':').next().unwrap_or(&exception);
            json!({ "throws": class.rsplit('.').next().unwrap_or(class) })
        }
    }
}

/// The TTL of a latch is partly random: redisson-wire's 1.7, from 16 to 20 s.
fn ranges(mut keys: fairlock_testkit::vectors::Keys) -> fairlock_testkit::vectors::Keys {
    for (key, entry) in &mut keys {
        let is_latch = key.starts_with(fairlock_testkit::vectors::LATCH);
        if is_latch && (16_000..=20_000).contains(&entry["ttl_ms"].as_i64().unwrap_or_default()) {
            entry["ttl_ms"] = json!([16_000, 20_000]);
        }
    }
    keys
}

fn kind(object: &str) -> Kind {
    match object {
        "fair" => Kind::Fair,
        "plain" => Kind::Plain,
        "fenced" => Kind::Fenced,
        "spin" => Kind::Spin,
        "non-reentrant" => Kind::NonReentrant,
        "non-reentrant-fair" => Kind::NonReentrantFair,
        "latch" => Kind::Latch,
        other => panic!("Java has no {other}"),
    }
}

fn call(owner: &JavaOwner, object: &str, call: &Value) -> Call {
    let words = call["args"].as_array().into_iter().flatten().map(|word| match word {
        Value::String(text) => text.clone(),
        number => number.to_string(),
    });
    let name = call["call"].as_str().expect("a call has a name");
    let (kind, name) = match name.split_once('.') {
        Some(("readLock", name)) => (Kind::Read, name),
        Some(("writeLock", name)) => (Kind::Write, name),
        _ => (kind(object), name),
    };
    owner.lock(kind, LOCK).call_with(name, &words.collect::<Vec<_>>())
}

/// Adds what this version did to the Java part of the file, next to the results of other versions.
///
/// # Panics
///
/// If the file is not a vector.
pub fn merge(vector: &mut Vector, version: Version, outcome: &Outcome) {
    let outcomes = vector.json["java"]["outcomes"].as_array_mut().expect("a list of outcomes");
    let mut others = Vec::new();
    let mut is_in = false;
    for mut known in std::mem::take(outcomes) {
        let mut versions: Vec<_> =
            list(&known["versions"]).into_iter().map(str::to_owned).collect();
        versions.retain(|name| name != version.name());
        let same = ["returns", "published", "subscribed"]
            .iter()
            .zip([&outcome.returns, &outcome.published, &outcome.subscribed])
            .all(|(field, seen)| known[field] == *seen)
            && known["after"] == Value::from(outcome.after.clone());
        if same && !is_in {
            versions.push(version.name().to_owned());
            is_in = true;
        }
        // The newest first, as in the list of all.
        versions.sort_by_key(|name| Version::ALL.iter().position(|one| one.name() == name));
        if !versions.is_empty() {
            known["versions"] = versions.into();
            others.push(known);
        }
    }
    if !is_in {
        let mut new = json!({ "versions": [version.name()] });
        outcome.write_to(&mut new);
        others.push(new);
    }
    others.sort_by_key(|one| {
        Version::ALL.iter().position(|version| one["versions"][0] == version.name())
    });
    *outcomes = others;
}
