//! A vector as code: how the state before the operation came about, and the operation. The file is made from it, so
//! that a change of our own keys is one command and no work by hand.

use super::{eval, play};
use fairlock_testkit::resp::Value;
use fairlock_testkit::vectors::{Bench, Cast, Keys, LOCK, Vector};
use serde_json::{Map, Value as Json, json};

/// The token key of the lock.
pub(super) const TOKEN: &str = "redisson_lock_token:{a}";
/// Everybody in the cases. A request belongs to the owner with the same number.
const NAMES: &str = "<me> <ours1> <ours2> <ours3> <ours4> <first> <second> \
    <request> <request1> <request2> <request3> <request4> <request5> <request6> <request7>";

/// The lease of holds and waiters, unless the case says another.
pub(super) const LEASE: &str = "30000";

/// What the file is made from.
pub(super) struct Case {
    folder: &'static str,
    name: &'static str,
    title: &'static str,
    before: fn(&mut Stage<'_>),
    listening: &'static [&'static str],
    java: Option<Json>,
    ours: Option<(&'static str, Vec<String>)>,
    because: &'static [(&'static str, &'static str)],
}

fn channel_of(who: &str) -> String {
    if who.contains(':') { who.to_owned() } else { format!("fairlock_inbox:<{who}.client>") }
}

impl Case {
    pub(super) fn new(
        folder: &'static str,
        name: &'static str,
        title: &'static str,
        before: fn(&mut Stage<'_>),
    ) -> Self {
        let (listening, because): (&[_], &[_]) = (&[], &[]);
        Self { folder, name, title, before, listening, java: None, ours: None, because }
    }

    /// Java makes this call, without arguments.
    pub(super) fn java(self, call: &str) -> Self {
        self.java_part(json!({ "does": { "call": call } }))
    }

    /// The same with arguments.
    pub(super) fn java_with(self, call: &str, args: Json) -> Self {
        self.java_part(json!({ "does": { "call": call, "args": args } }))
    }

    /// Java's part but for the outcomes.
    pub(super) fn java_part(self, part: Json) -> Self {
        Self { java: Some(part), ..self }
    }

    /// Ours runs this script.
    pub(super) fn ours(self, script: &'static str, argv: &[&str]) -> Self {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        Self { ours: Some((script, argv)), ..self }
    }

    /// Ours asks for a share.
    pub(super) fn asks(self, how: &str, share: &str) -> Self {
        self.ours(
            "share_acquire",
            &asking("<me>", LEASE, how, share).each_ref().map(String::as_str),
        )
    }

    /// These clients have inboxes; and these channels subscribers.
    pub(super) fn listening(self, listening: &'static [&'static str]) -> Self {
        Self { listening, ..self }
    }

    /// What differs from Java.
    pub(super) fn because(self, because: &'static [(&'static str, &'static str)]) -> Self {
        Self { because, ..self }
    }

    /// The vector, without a word about what Java did unless `recorded` has it.
    pub(super) fn vector(&self, bench: &mut Bench, recorded: Option<&Vector>) -> Vector {
        let all =
            Vector { name: String::new(), object: self.folder.to_owned(), json: NAMES.into() };
        let cast = Cast::new(&all, super::ME);
        bench.clear();
        bench.subscribed_soon(&cast, &json!([]));
        let mut listener = bench.server().client();
        let inboxes: Vec<_> = self.listening.iter().map(|who| channel_of(who)).collect();
        for inbox in &inboxes {
            listener.subscribe(&cast.fill(inbox));
        }
        let mut stage = Stage { bench, cast: &cast, folder: self.folder };
        (self.before)(&mut stage);
        stage.at(0);
        drop(listener);
        let (shared, own): (Keys, Keys) = bench
            .keys(&cast)
            .into_iter()
            .partition(|(key, _)| key == LOCK || key.starts_with("{a}:"));

        let mut json = json!({ "title": self.title, "before": shared });
        if let Some(java) = &self.java {
            json["java"] = java.clone();
            let known = recorded.and_then(Vector::java);
            json["java"]["outcomes"] = known.map_or(json!([]), |java| java["outcomes"].clone());
        }
        if let Some((script, argv)) = &self.ours {
            json["ours"] = json!({ "script": script, "flags": "p", "argv": argv, "after": {} });
            let ours = &mut json["ours"];
            if !own.is_empty() {
                ours["before"] = own.into();
            }
            if !inboxes.is_empty() {
                ours["listening"] = inboxes.into();
            }
            if !self.because.is_empty() {
                let because = self.because.iter().map(|(key, why)| ((*key).to_owned(), json!(why)));
                ours["because"] = because.collect::<Map<_, _>>().into();
            }
        }
        let mut vector = Vector { name: self.name(), object: self.folder.to_owned(), json };
        if vector.ours().is_some() {
            let outcome = play(bench, &vector, false);
            outcome.write_to(&mut vector.json["ours"]);
        }
        vector
    }

    /// The name of its vector.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }
}

/// The request of an owner: `<request1>` of `<ours1>`, `<request>` of `<me>`. The second owner of the client of
/// `<ours1>` has `<request5>`.
pub(super) fn request_of(owner: &str) -> String {
    match owner {
        SECOND => "<request5>".to_owned(),
        _ => owner.replace("me", "request").replace("ours", "request"),
    }
}

/// Another owner of the client of `<ours1>`.
pub(super) const SECOND: &str = "<ours1.client>:2";

/// The arguments of an acquisition.
fn asking(owner: &str, lease_ms: &str, how: &str, share: &str) -> [String; 6] {
    let request = request_of(owner);
    [owner, &request, lease_ms, "<now+30000>", how, share].map(str::to_owned)
}

/// Where the state before comes about.
pub(super) struct Stage<'a> {
    bench: &'a mut Bench,
    cast: &'a Cast,
    folder: &'static str,
}

impl Stage<'_> {
    /// Time passes until then, in ms from the operation.
    pub(super) fn at(&mut self, ms: i64) {
        self.bench.advance_ms(ms);
    }

    /// A call of ours.
    #[track_caller]
    fn call(&mut self, script: &str, argv: &[&str]) -> String {
        let argv: Vec<_> = argv.iter().map(|word| self.cast.fill(word)).collect();
        let reply = eval(self.bench, self.folder, script, "p", &argv, false);
        reply.text().to_owned()
    }

    /// One of ours gets a share.
    #[track_caller]
    pub(super) fn holds(&mut self, owner: &str, share: &str) {
        self.holds_for(owner, share, LEASE);
    }

    /// The same with a lease.
    #[track_caller]
    pub(super) fn holds_for(&mut self, owner: &str, share: &str, lease_ms: &str) {
        let argv = asking(owner, lease_ms, "T", share);
        let reply = self.call("share_acquire", &argv.each_ref().map(String::as_str));
        assert!(reply.contains(" granted "), "{owner}: {reply}");
    }

    /// One of ours enters the line.
    #[track_caller]
    pub(super) fn waits(&mut self, owner: &str, share: &str) {
        let argv = asking(owner, LEASE, "W", share);
        let reply = self.call("share_acquire", &argv.each_ref().map(String::as_str));
        assert!(reply.contains(" queued "), "{owner}: {reply}");
    }

    /// A call of ours for several locks. Returns whether it got all of them.
    #[track_caller]
    pub(super) fn takes(&mut self, argv: &[&str]) -> bool {
        let argv: Vec<_> = argv.iter().map(|word| self.cast.fill(word)).collect();
        matches!(eval(self.bench, self.folder, "multi_try", "p", &argv, false), Value::Array(_))
    }

    /// One of ours does what is expected.
    #[track_caller]
    pub(super) fn does(&mut self, script: &str, argv: &[&str], expected: &str) {
        let reply = self.call(script, argv);
        assert!(reply.contains(expected), "{script}: {reply}");
    }

    /// The client of a waiter is heard.
    #[track_caller]
    pub(super) fn beats(&mut self, owner: &str) {
        let client = owner.replace('>', ".client>");
        self.does("share_beat", &[&client, owner], " fates ");
    }

    /// What no script of ours does.
    #[track_caller]
    pub(super) fn redis(&mut self, command: &[&str]) {
        let command: Vec<_> = command.iter().map(|word| self.cast.fill(word)).collect();
        let reply = self.bench.call(&command);
        assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
    }

    /// Java reads so often, beside ours or not; the lock lives that long.
    #[track_caller]
    pub(super) fn java_reads(&mut self, owner: &str, count: u32, lease_ms: &str, lock_ms: &str) {
        self.redis(&["HSET", LOCK, "mode", "read", owner, &count.to_string()]);
        for hold in 1..=count {
            let key = format!("{{a}}:{owner}:rwlock_timeout:{hold}");
            self.redis(&["SET", &key, "1", "PX", lease_ms]);
        }
        self.redis(&["PEXPIRE", LOCK, lock_ms]);
    }

    /// Java writes so often.
    #[track_caller]
    pub(super) fn java_writes(&mut self, owner: &str, count: u32, lock_ms: &str) {
        let field = format!("{owner}:write");
        self.redis(&["HSET", LOCK, "mode", "write", &field, &count.to_string()]);
        self.redis(&["PEXPIRE", LOCK, lock_ms]);
    }
}
