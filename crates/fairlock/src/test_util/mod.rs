//! A store for the tests of programs that use fairlock (feature `test-util`).
//!
//! A [`Sandbox`] is a store inside the test that runs on tokio's time: with paused time, leases,
//! renewals, waits and heartbeats take no real time, and happen in the order of a clock that the
//! test controls. It can take locks away, put them in doubt, and cut clients off from the store.
//!
//! ```
//! use fairlock::{ErrorKind, Lock, test_util::Sandbox};
//! use std::time::Duration;
//!
//! /// The code under test: works as long as it holds the lock.
//! async fn nightly(lock: Lock) -> &'static str {
//!     match lock.try_lock_for(Duration::from_secs(60)).await {
//!         Ok(Some(guard)) => tokio::select! {
//!             () = guard.lost() => "stopped, the lock was lost",
//!             () = tokio::time::sleep(Duration::from_secs(3_600)) => "done",
//!         },
//!         Ok(None) => "somebody else is at it",
//!         Err(error) if error.kind() == ErrorKind::Unavailable => "no store",
//!         Err(error) => panic!("{error}"),
//!     }
//! }
//!
//! // In a test: #[tokio::test(start_paused = true)]
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(
//! async {
//!     let sandbox = Sandbox::new();
//!     let (one, two) = (sandbox.client(), sandbox.client());
//!
//!     // An hour of work and a minute of waiting are over in milliseconds.
//!     let job = tokio::spawn(nightly(one.fair_lock("nightly")));
//!     tokio::task::yield_now().await;
//!     assert_eq!(nightly(two.fair_lock("nightly")).await, "somebody else is at it");
//!     assert_eq!(job.await.unwrap(), "done");
//!
//!     // The lock is taken away: the job stops.
//!     let job = tokio::spawn(nightly(one.fair_lock("nightly")));
//!     tokio::time::sleep(Duration::from_secs(60)).await;
//!     assert!(sandbox.lose("nightly"));
//!     assert_eq!(job.await.unwrap(), "stopped, the lock was lost");
//!
//!     // The network is gone, and comes back.
//!     sandbox.cut_off(&one);
//!     assert_eq!(nightly(one.fair_lock("nightly")).await, "no store");
//!     sandbox.restore(&one);
//!     assert_eq!(nightly(one.fair_lock("nightly")).await, "done");
//! }
//! # );
//! ```
//!
//! The rules are those of `memory:`, which are those of a server: order, tokens, leases,
//! heartbeats, and when a client counts as dead. Faults that only a real network has (replies that
//! are lost after the call was executed, messages out of order) are not simulated here; the
//! library's own tests do that.

mod port;

use crate::api::client::Client;
use crate::base::clock;
use crate::base::error::ErrorKind;
use crate::base::random::random_bits;
use crate::engine::context::Context;
use crate::engine::release;
use crate::engine::start;
use crate::settings::config::{Address, Config};
use crate::state::hold::{Change, Hold};
use crate::store::{Event, Scope, Store};
use fairlock_core::client::Loss;
use fairlock_core::{ClientId, LockName};
use port::{Inside, Port};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A store inside a test. Its clients run in the test's runtime and on its time.
///
/// All clients share the store, as processes share a server. Nothing runs on other threads, so
/// everything happens in the test's own order; a test that blocks its thread also blocks the
/// clients.
#[must_use = "locks come from its clients"]
pub struct Sandbox {
    inside: Arc<Inside>,
    config: Config,
    /// Bound to its thread, which keeps the clock.
    _here: PhantomData<*const ()>,
}

impl Sandbox {
    /// Creates a sandbox with the default settings.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and in a multi-threaded one: only the `current_thread` runtime
    /// that `#[tokio::test]` creates can pause time.
    #[allow(clippy::new_without_default, reason = "it may panic, and belongs to its runtime")]
    pub fn new() -> Self {
        Self::with_config(Config::memory())
    }

    /// Creates a sandbox with these settings for all its clients. The address must be that of
    /// [`Config::memory`].
    ///
    /// # Panics
    /// Same as [`new`](Self::new), and for settings that cannot be used.
    pub fn with_config(config: Config) -> Self {
        let runtime = tokio::runtime::Handle::current();
        assert!(
            runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread,
            "a Sandbox needs a current_thread runtime, as #[tokio::test] makes it"
        );
        assert!(config.address == Address::Memory, "a Sandbox is a store of its own");
        if let Err(error) = config.check() {
            panic!("{error}");
        }
        clock::follow_tokio();
        let inside = Inside::new(config.rules());
        runtime.spawn(Arc::clone(inside.memory()).run_expiry());
        Self { inside, config, _here: PhantomData }
    }

    /// Creates a new client, like one in another process. It is connected until it is [cut
    /// off](Self::cut_off).
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    pub fn client(&self) -> Client {
        let id = random_bits().map(ClientId::from_random);
        let id = id.expect("the operating system has random numbers");
        let port = Port::new(Arc::clone(&self.inside));
        let store = Arc::clone(&port) as Arc<dyn Store>;
        let started = start::start_here(self.config.clone(), id, store);
        self.inside.memory().announce(&self.config, id);
        self.inside.add(id, &started.context, &port);
        Client::new(started)
    }

    /// Takes the lock `name` away from the client of this sandbox that holds it: its guard is lost
    /// at once, and the lock is handed to the next waiter. Returns whether anybody held it.
    pub fn lose(&self, name: impl AsRef<[u8]>) -> bool {
        self.with_holds(name.as_ref(), |context, hold| {
            // The guard first, so that there are never two valid ones.
            hold.lose(Loss::Forced);
            context.watchdog.forget(hold);
            let gone = Change { count: 0, number: u64::MAX };
            // Refused only if no further token can be minted.
            let _ = self.inside.memory().apply(&hold.name, &release::release_op(hold, gone));
        })
    }

    /// Puts the holder of the lock `name` in doubt, as an unanswered renewal does. The next
    /// confirmed renewal makes its guard [`Held`](crate::GuardState::Held) again; a lock with an
    /// explicit lease has no renewals. Returns whether anybody held it.
    pub fn suspect(&self, name: impl AsRef<[u8]>) -> bool {
        self.with_holds(name.as_ref(), |_, hold| hold.suspect())
    }

    /// Cuts a client off from the store: its calls fail and messages do not reach it. Its guards
    /// are [`Suspect`](crate::GuardState::Suspect) at once and [`Lost`](crate::GuardState::Lost)
    /// when their validity ends, and its locks go to others when their leases end.
    ///
    /// # Panics
    /// If the client belongs to another store.
    pub fn cut_off(&self, client: &Client) {
        let port = self.port(client);
        if port.set_up(false) {
            client.context().hear(Event::Down(Scope::All));
            client.context().hear(Event::InboxDown);
        }
    }

    /// Reconnects a client after [`cut_off`](Self::cut_off): it checks its guards, then its
    /// waiters.
    ///
    /// # Panics
    /// If the client belongs to another store.
    pub fn restore(&self, client: &Client) {
        let port = self.port(client);
        if port.set_up(true) {
            client.context().hear(Event::Up { scope: Scope::All, whole: true });
            client.context().hear(Event::InboxUp(Scope::All));
        }
    }

    /// Makes the client's next attempt to acquire a lock fail with an error of this kind.
    ///
    /// # Panics
    /// If the client belongs to another store.
    pub fn refuse_next(&self, client: &Client, kind: ErrorKind) {
        self.port(client).refuse_next(kind);
    }

    fn port(&self, client: &Client) -> Arc<Port> {
        self.inside.port(client.id()).expect("a client of this sandbox")
    }

    fn with_holds(&self, name: &[u8], act: impl Fn(&Arc<Context>, &Arc<Hold>)) -> bool {
        let Ok(name) = LockName::new(name) else { return false };
        let mut any = false;
        for context in self.inside.clients() {
            for hold in context.watchdog.holds_of(&name) {
                act(&context, &hold);
                any = true;
            }
        }
        any
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("config", &self.config).finish_non_exhaustive()
    }
}
