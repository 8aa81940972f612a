//! Metrics (feature `metrics`), and spans and events (feature `tracing`). The rest of the library
//! calls functions named after what happened, and uses neither crate. Without the features, all of
//! this is empty.
//!
//! Rules: labels have few values, and never a lock's name. Events at `info` and above name a lock
//! only if [`Config::log_names`](crate::Config::log_names) is set, and show the kind of an error
//! instead of its text, which may name a lock. Nothing here is called while a mutex of the library
//! is held: recorders and subscribers are application code.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables, unused_macros, dead_code, reason = "what a feature alone would use")
)]

#[cfg(feature = "metrics")]
mod meter;

use crate::base::error::{Error, ErrorKind};
use crate::base::lost_reason::LostReason;
use crate::settings::config::Address;
use crate::settings::connection_state::ConnectionState;
use crate::settings::server_checks::Warning;
use fairlock_core::client::Way;
use fairlock_core::{Answer, ClientId, Kind, LockName, OwnerId, Share, Token, kind_label};
use std::future::Future;
use std::time::Duration;

#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::base::clock::{Moment, lock};
#[cfg(any(feature = "metrics", feature = "tracing"))]
use std::sync::{Mutex, OnceLock};
#[cfg(feature = "tracing")]
use tracing::field::{DisplayValue, Empty, display};

macro_rules! count {
    ($metric:ident $(, $key:ident = $value:expr)*; $by:expr) => {{
        #[cfg(feature = "metrics")]
        metrics::counter!(meter::$metric.name $(, stringify!($key) => $value)*).increment($by);
    }};
    ($metric:ident $(, $key:ident = $value:expr)*) => {
        count!($metric $(, $key = $value)*; 1)
    };
}

macro_rules! gauge {
    ($metric:ident, $key:ident = $value:expr; $by:expr) => {{
        #[cfg(feature = "metrics")]
        metrics::gauge!(meter::$metric.name, stringify!($key) => $value).increment($by);
    }};
}

macro_rules! record {
    ($metric:ident $(, $key:ident = $label:expr)*; $value:expr) => {{
        #[cfg(feature = "metrics")]
        metrics::histogram!(meter::$metric.name $(, stringify!($key) => $label)*).record($value);
    }};
}

macro_rules! event {
    ($level:ident, in $span:expr, $($rest:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(target: "fairlock", parent: $span, tracing::Level::$level, $($rest)*);
    }};
    ($level:ident, $($rest:tt)*) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(target: "fairlock", tracing::Level::$level, $($rest)*);
    }};
}

/// A warning about a hold. Its owner and its token are fields of its span, and of the event only if a
/// filter has left the span out.
macro_rules! warn_of {
    ($hold:expr $(, $field:ident)*; $message:literal) => {{
        #[cfg(feature = "tracing")]
        {
            let span = $hold.story.span();
            event!(
                WARN, in &span, $($field,)*
                owner = Story::unless_in(&span, display($hold.owner)),
                token = Story::unless_in(&span, $hold.token.get()),
                lock = $hold.story.name_unless_in(&span, $hold.name),
                $message
            );
        }
    }};
}

/// The thing that is requested or held: a kind of lock, and which share of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What(pub(crate) Kind, pub(crate) Share);

impl What {
    /// `kind` in metrics and spans: readers and writers of a read-write lock differ.
    fn label(self) -> &'static str {
        match self {
            Self(Kind::ReadWrite, Share::Read) => "read",
            Self(Kind::ReadWrite, _) => "write",
            Self(kind, _) => kind_label(kind),
        }
    }
}

/// The facts about a request for a lock that are reported.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: What,
    /// It does not wait in the queue.
    pub(crate) try_once: bool,
    pub(crate) asked: &'a Asked,
}

/// The facts about a hold that are reported.
#[derive(Clone, Copy)]
pub(crate) struct Hold<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: What,
    pub(crate) owner: &'a OwnerId,
    pub(crate) token: Token,
    pub(crate) story: &'a Story,
}

/// When a lock was asked for, and the span of the acquisition.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    since: Since,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl Asked {
    /// Called by the task that asks, so that its span is the parent. `names` says whether names of
    /// locks may be shown.
    pub(crate) fn now(names: bool, name: &LockName, kind: What) -> Self {
        Self {
            since: Since::now(),
            #[cfg(feature = "tracing")]
            span: tracing::info_span!(
                target: "fairlock",
                "acquire",
                kind = kind.label(),
                lock = named(names, name),
                owner = Empty,
                outcome = Empty,
            ),
        }
    }
}

/// A request that is under way.
pub(crate) struct Waiting<'a> {
    asked: &'a Asked,
    kind: What,
}

/// A driver has begun to acquire the lock.
pub(crate) fn waiting(asked: &Asked, kind: What) -> Waiting<'_> {
    gauge!(WAITERS, kind = kind.label(); 1.0);
    Waiting { asked, kind }
}

impl Waiting<'_> {
    /// Runs `work` inside the span of the acquisition.
    pub(crate) fn within<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        #[cfg(feature = "tracing")]
        let work = tracing::Instrument::instrument(work, self.asked.span.clone());
        work
    }

    /// The driver has the result. `cancelled`: nobody waits for it any more.
    pub(crate) fn ended<T>(
        &self,
        request: &Request<'_>,
        result: &Result<Option<T>, Error>,
        cancelled: bool,
    ) {
        let outcome = match result {
            _ if cancelled => "cancelled",
            Ok(Some(_)) => "granted",
            Ok(None) if request.try_once => "busy",
            Ok(None) => "timed_out",
            Err(error) => error_label(error.kind()),
        };
        acquired(request, outcome, result.as_ref().err());
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        gauge!(WAITERS, kind = self.kind.label(); -1.0);
    }
}

fn acquired(request: &Request<'_>, outcome: &'static str, error: Option<&Error>) {
    let kind = request.kind.label();
    let waited = request.asked.since.elapsed();
    let class = match (outcome, error) {
        ("granted", _) => "granted",
        (_, None) => "gave_up",
        _ => "failed",
    };
    count!(ACQUISITIONS, kind = kind, outcome = outcome);
    record!(WAIT, kind = kind, outcome = class; waited.as_secs_f64());
    #[cfg(feature = "tracing")]
    {
        let span = &request.asked.span;
        span.record("outcome", outcome);
        event!(
            DEBUG, in span, kind, outcome, lock = %request.name, waited_ms = waited.as_millis() as u64,
            error = error.map(display), "asked for a lock"
        );
    }
}

/// A request is sent for this owner.
pub(crate) fn asked_as(asked: &Asked, owner: &OwnerId) {
    #[cfg(feature = "tracing")]
    asked.span.record("owner", display(owner));
}

/// A store that answers at once granted the lock.
pub(crate) fn acquired_at_once(request: &Request<'_>, owner: &OwnerId) {
    asked_as(request.asked, owner);
    granted(request.kind, Way::Request);
    acquired(request, "granted", None);
}

/// A grant reached this client.
pub(crate) fn granted(kind: What, way: Way) {
    let by = match way {
        Way::Request => "request",
        Way::Message => "message",
        Way::Heartbeat => "heartbeat",
    };
    count!(GRANTS, kind = kind.label(), by = by);
}

/// A waiter is in the queue: for the first time, or again in its place.
pub(crate) fn queued(name: &LockName, owner: &OwnerId, returning: bool, length: u64) {
    if returning {
        return returned_to_place(name, owner);
    }
    record!(QUEUE_LENGTH; length as f64);
    event!(DEBUG, lock = %name, owner = %owner, length, "stands in the queue");
}

/// A live waiter had been dropped from its queue, and is back in its place.
pub(crate) fn returned_to_place(name: &LockName, owner: &OwnerId) {
    count!(RETURNED);
    event!(INFO, owner = %owner, "a waiter was dropped from its queue, and returned to its place");
    event!(DEBUG, lock = %name, owner = %owner, "returned to its place");
}

/// The record of one hold, from the grant to the release or the loss.
#[derive(Default)]
pub(crate) struct Story(
    #[cfg(any(feature = "metrics", feature = "tracing"))] OnceLock<Mutex<Chapter>>,
);

#[cfg(any(feature = "metrics", feature = "tracing"))]
struct Chapter {
    kind: What,
    since: Since,
    over: bool,
    names: bool,
    /// The last renewal was not confirmed.
    silent: bool,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl Story {
    #[cfg(feature = "tracing")]
    fn span(&self) -> tracing::Span {
        self.0.get().map_or_else(tracing::Span::none, |chapter| lock(chapter).span.clone())
    }

    /// What an event must name because its span does not: a filter left that out.
    #[cfg(feature = "tracing")]
    fn unless_in<T>(span: &tracing::Span, value: T) -> Option<T> {
        span.is_disabled().then_some(value)
    }

    /// As [`unless_in`](Self::unless_in), for the name of the lock, which may not be shown.
    #[cfg(feature = "tracing")]
    fn name_unless_in<'a>(
        &self,
        span: &tracing::Span,
        name: &'a LockName,
    ) -> Option<DisplayValue<&'a LockName>> {
        let names = self.0.get().is_some_and(|chapter| lock(chapter).names);
        named(names && span.is_disabled(), name)
    }

    /// Notes whether the store confirms the renewals. Returns whether that has changed.
    #[cfg(feature = "tracing")]
    fn falls_silent(&self, silent: bool) -> bool {
        let Some(chapter) = self.0.get() else { return silent };
        std::mem::replace(&mut lock(chapter).silent, silent) != silent
    }

    /// Records how long the hold lasted, unless it has ended before.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    fn end(&self) {
        let Some(chapter) = self.0.get() else { return };
        let ended = {
            let mut chapter = lock(chapter);
            (!std::mem::replace(&mut chapter.over, true)).then_some((chapter.kind, chapter.since))
        };
        if let Some((kind, since)) = ended {
            gauge!(HOLDS, kind = kind.label(); -1.0);
            record!(HOLD, kind = kind.label(); since.elapsed().as_secs_f64());
        }
    }
}

#[cfg(not(any(feature = "metrics", feature = "tracing")))]
impl Story {
    fn end(&self) {}
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl Drop for Story {
    fn drop(&mut self) {
        self.end();
    }
}

/// A database refused a take or a fence with this token.
pub(crate) fn fence_refused(reason: &'static str, token: Token, lost: bool) {
    count!(FENCE_REFUSALS, reason = reason);
    if lost {
        event!(WARN, token = token.get(), "a database refused a write under a lock that was lost");
    }
}

/// A hold is about to be delivered to its caller.
pub(crate) fn held(hold: &Hold<'_>, names: bool, asked: &Asked) {
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    {
        #[cfg(feature = "tracing")]
        let span = tracing::info_span!(
            target: "fairlock",
            parent: None,
            "hold",
            kind = hold.kind.label(),
            lock = named(names, hold.name),
            owner = %hold.owner,
            token = hold.token.get(),
        );
        #[cfg(feature = "tracing")]
        span.follows_from(&asked.span);
        let chapter = Chapter {
            kind: hold.kind,
            since: Since::now(),
            over: false,
            names,
            silent: false,
            #[cfg(feature = "tracing")]
            span,
        };
        if hold.story.0.set(Mutex::new(chapter)).is_ok() {
            gauge!(HOLDS, kind = hold.kind.label(); 1.0);
        }
        event!(DEBUG, in &hold.story.span(), lock = %hold.name, "granted");
    }
}

/// The last guard of a hold is gone.
pub(crate) fn let_go(story: &Story) {
    story.end();
}

/// A release was answered, or was not. `good`: the lock was given back, or that other guards have
/// it.
pub(crate) fn released(hold: &Hold<'_>, outcome: &'static str, good: bool) {
    count!(RELEASES, kind = hold.kind.label(), outcome = outcome);
    #[cfg(feature = "tracing")]
    if good {
        event!(DEBUG, in &hold.story.span(), outcome, lock = %hold.name, "released");
    } else {
        warn_of!(hold, outcome; "a release did not end well");
    }
}

/// The store confirmed a renewal when `left` of the validity remained.
pub(crate) fn renewed(hold: &Hold<'_>, left: Duration) {
    count!(RENEWALS);
    record!(MARGIN; left.as_secs_f64());
    #[cfg(feature = "tracing")]
    hold.story.falls_silent(false);
    event!(
        TRACE, in &hold.story.span(), lock = %hold.name, left_ms = left.as_millis() as u64,
        "renewed"
    );
}

/// A renewal was not confirmed and is retried; `left` of the validity remains. An outage has many of
/// them for each lock, so only the first one is a warning.
pub(crate) fn renewal_missed(hold: &Hold<'_>, error: &Error, left: Duration) {
    count!(RENEWALS_MISSED);
    #[cfg(feature = "tracing")]
    {
        let left_ms = left.as_millis() as u64;
        if hold.story.falls_silent(true) {
            let error = error_label(error.kind());
            warn_of!(hold, error, left_ms; "a renewal was not confirmed, and is tried again");
        }
        event!(DEBUG, in &hold.story.span(), lock = %hold.name, %error, left_ms, "renewal not confirmed");
    }
}

/// A hold has become Suspect.
pub(crate) fn suspect(hold: &Hold<'_>) {
    count!(SUSPECT, kind = hold.kind.label());
    warn_of!(hold; "a lock is in doubt");
}

/// A hold is lost.
pub(crate) fn lost(hold: &Hold<'_>, reason: LostReason) {
    let cause = if reason.is_by_time() { "expired" } else { "taken" };
    count!(LOST, kind = hold.kind.label(), cause = cause);
    let reason = reason.label();
    warn_of!(hold, cause, reason; "a lock is lost");
    let_go(hold.story);
}

/// A store has answered.
pub(crate) fn answered(name: &LockName, answer: &Answer) {
    if answer.removed > 0 {
        count!(REMOVED; u64::from(answer.removed));
        event!(DEBUG, lock = %name, removed = answer.removed, "dead waiters were removed");
    }
    if answer.other_limit {
        count!(OTHER_LIMITS);
        event!(DEBUG, lock = %name, "permits are asked for under another limit than some are held");
    }
}

/// A message was dropped.
pub(crate) fn message_dropped() {
    count!(ODD);
    event!(DEBUG, "a message was dropped: forged, late, or for a request that is over");
}

/// A check found a problem with a server that is used nevertheless.
pub(crate) fn warned(warning: &Warning) {
    count!(WARNINGS, check = warning.check().name());
    event!(WARN, check = warning.check().name(), "{warning}");
}

/// A lock was granted as this kind, and before as that one.
pub(crate) fn kinds_differ(names: bool, name: &LockName, kind: Kind, before: Kind) {
    count!(WARNINGS, check = "kind");
    event!(
        WARN,
        check = "kind",
        lock = named(names, name),
        kind = kind_label(kind),
        before = kind_label(before),
        "a lock was last used as another kind"
    );
}

/// The first attempt to connect since the last connection has failed, for this reason. Its text names
/// the server, and no lock.
pub(crate) fn unreached(error: &Error) {
    event!(WARN, %error, "no connection");
}

/// What one client reported about its connection.
pub(crate) struct Connection {
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    last: Mutex<(ConnectionState, bool)>,
}

impl Connection {
    /// Reports a client that is not connected yet.
    pub(crate) fn new() -> Self {
        #[cfg(feature = "metrics")]
        meter::describe();
        gauge!(CONNECTIONS, state = "reconnecting"; 1.0);
        Self {
            #[cfg(any(feature = "metrics", feature = "tracing"))]
            last: Mutex::new((ConnectionState::Reconnecting, false)),
        }
    }

    /// The connection has changed its state.
    pub(crate) fn becomes(&self, client: ClientId, server: &Address, state: ConnectionState) {
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        {
            let (before, again) = {
                let mut last = lock(&self.last);
                let (before, ever) = *last;
                if before == ConnectionState::Closed || before == state {
                    return;
                }
                *last = (state, ever || state == ConnectionState::Connected);
                (before, ever)
            };
            for (of, by) in [(before, -1.0), (state, 1.0)] {
                let label = match of {
                    ConnectionState::Connected => "connected",
                    ConnectionState::Reconnecting => "reconnecting",
                    ConnectionState::Closed => continue,
                };
                gauge!(CONNECTIONS, state = label; by);
            }
            match state {
                ConnectionState::Connected if again => {
                    count!(RECONNECTS);
                    event!(INFO, client = %client, server = %server, "connected again");
                }
                ConnectionState::Connected => {
                    event!(DEBUG, client = %client, server = %server, "connected");
                }
                ConnectionState::Reconnecting => {
                    event!(WARN, client = %client, server = %server, "the connection is lost");
                }
                ConnectionState::Closed => event!(DEBUG, client = %client, "closed"),
            }
        }
    }
}

/// When something began; empty without the features.
#[derive(Clone, Copy, Debug)]
struct Since(#[cfg(any(feature = "metrics", feature = "tracing"))] Moment);

impl Since {
    fn now() -> Self {
        Self(
            #[cfg(any(feature = "metrics", feature = "tracing"))]
            Moment::now(),
        )
    }

    #[cfg(any(feature = "metrics", feature = "tracing"))]
    fn elapsed(self) -> Duration {
        Moment::now().since(self.0)
    }

    #[cfg(not(any(feature = "metrics", feature = "tracing")))]
    fn elapsed(self) -> Duration {
        Duration::ZERO
    }
}

/// The name of a lock, if it may be shown.
#[cfg(feature = "tracing")]
fn named(shown: bool, name: &LockName) -> Option<DisplayValue<&LockName>> {
    shown.then(|| display(name))
}

fn error_label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Misuse => "misuse",
        ErrorKind::Denied => "denied",
        ErrorKind::Tls => "tls",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Unknown => "unknown",
        ErrorKind::Lost => "lost",
        ErrorKind::LeaseTooShort => "lease_too_short",
        ErrorKind::AlreadyHeld => "already_held",
        ErrorKind::WrongType => "wrong_type",
        ErrorKind::Protocol => "protocol",
        ErrorKind::Closed => "closed",
        ErrorKind::Interrupted => "interrupted",
        ErrorKind::NotReplicated => "not_replicated",
    }
}
