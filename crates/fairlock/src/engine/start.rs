//! The background thread of a client, with a small runtime of its own.
//!
//! Why a thread: renewals must continue while the application's tasks block their runtime, a guard
//! may be dropped outside any runtime, and a future may be dropped on any thread. Why one per
//! client: it ends with the client.

use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::base::process;
use crate::base::random::random_bits;
use crate::engine::context::Context;
use crate::engine::renew;
use crate::settings::config::{Address, Config};
use crate::settings::connection_state::ConnectionState;
use crate::state::in_flight::LAST_WORDS;
use crate::store::memory::MemoryStore;
use crate::store::shared_memory::SharedMemory;
use crate::store::{Event, Events};
use fairlock_core::ClientId;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// How long the thread of a client that has ended waits for its last command.
const FAREWELL: Duration = Duration::from_millis(250);

/// The runtime of a client's thread. Dropping a runtime waits for its threads, and tokio panics if
/// a task does that. Clients usually connect in a task, so this runtime is always shut down in the
/// background.
struct Engine(Option<Runtime>);

impl Engine {
    fn new() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| Self(Some(runtime))).map_err(|error| no_thread(&error))
    }
}

impl std::ops::Deref for Engine {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is taken out when this is dropped, and never before")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A client that was started, and the way to stop it.
pub(crate) struct Started {
    pub(crate) context: Arc<Context>,
    pub(crate) stop: oneshot::Sender<()>,
}

pub(crate) type FirstContact = oneshot::Receiver<Result<(), Error>>;

/// Starts the thread and the store's tasks on it. The receiver gets the result of the first attempt
/// to connect.
pub(crate) fn start(config: Config) -> Result<(Started, FirstContact), Error> {
    let client_id = ClientId::from_random(random_bits()?);
    let runtime = Engine::new()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (told, first_contact) = oneshot::channel();

    let slot: Arc<OnceLock<Weak<Context>>> = Arc::default();
    let hear = Arc::clone(&slot);
    let events: Events = Arc::new(move |event: Event| {
        if let Some(context) = hear.get().and_then(Weak::upgrade) {
            context.hear(event);
        }
    });
    let entered = runtime.enter();
    let context = open_store(config, client_id, events, &runtime, told)?;
    drop(entered);
    // Set before the runtime runs: no event can come earlier.
    let _ = slot.set(Arc::downgrade(&context));
    context.spawn(renew::run(Arc::clone(&context)));
    let work = Arc::clone(&context);
    std::thread::Builder::new()
        .name("fairlock".into())
        .spawn(move || {
            process::enter_background();
            runtime.block_on(async {
                // An error means that the last handle is gone, which is the same thing.
                let _ = stopped.await;
                // Dropping the last handle does not wait for this: guards that were dropped before
                // it are still released.
                work.in_flight.settled(Moment::now().plus(LAST_WORDS)).await;
                // Nor for this: on a server that does not answer, the client's record expires.
                let _ = tokio::time::timeout(FAREWELL, work.store.farewell()).await;
            });
        })
        .map_err(|error| no_thread(&error))?;
    Ok((Started { context, stop }, first_contact))
}

/// As [`start`], on a thread of its own that may block.
pub(crate) async fn start_elsewhere(config: Config) -> Result<(Started, FirstContact), Error> {
    let (started, result) = oneshot::channel();
    std::thread::Builder::new()
        .name("fairlock-open".into())
        .spawn(move || {
            // If nobody waits any more, what was opened is closed.
            let _ = started.send(start(config));
        })
        .map_err(|error| no_thread(&error))?;
    result.await.map_err(|_| Error::closed())?
}

/// As [`start`], in the caller's runtime and with an existing store.
#[cfg(feature = "test-util")]
pub(crate) fn start_here(
    config: Config,
    client_id: ClientId,
    store: Arc<dyn crate::store::Store>,
) -> Started {
    let runtime = tokio::runtime::Handle::current();
    let context = Context::new(config, client_id, store, runtime.clone(), true);
    context.set_connection(ConnectionState::Connected);
    let (stop, stopped) = oneshot::channel::<()>();
    let work = context.spawn(renew::run(Arc::clone(&context)));
    runtime.spawn(async move {
        // An error means that the last handle is gone, which is the same thing.
        let _ = stopped.await;
        work.abort();
    });
    Started { context, stop }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the background thread cannot start: {error}"))
}

fn open_store(
    config: Config,
    client_id: ClientId,
    events: Events,
    runtime: &Runtime,
    told: oneshot::Sender<Result<(), Error>>,
) -> Result<Arc<Context>, Error> {
    let handle = runtime.handle().clone();
    match &config.address {
        Address::Memory => {
            let sink = Box::new(move |_, event| events(event));
            let store = MemoryStore::new(config.rules(), sink);
            store.announce(&config, client_id);
            runtime.spawn(Arc::clone(&store).run_expiry());
            let context = Context::new(config, client_id, store, handle, true);
            context.set_connection(ConnectionState::Connected);
            let _ = told.send(Ok(()));
            Ok(context)
        }
        Address::SharedMemory(name) => {
            let store = Arc::new(SharedMemory::join(name, &config, client_id, events));
            runtime.spawn(Arc::clone(store.memory()).run_expiry());
            let context = Context::new(config, client_id, store, handle, true);
            context.set_connection(ConnectionState::Connected);
            let _ = told.send(Ok(()));
            Ok(context)
        }
        #[cfg(all(feature = "sqlite", unix))]
        Address::Sqlite { .. } => {
            let (store, (now, now_ms)) =
                crate::store::host::HostStore::start(&config, client_id, events)?;
            let context = Context::new(config, client_id, store, handle, false);
            context.clock.note(now, now_ms);
            context.set_connection(ConnectionState::Connected);
            let _ = told.send(Ok(()));
            Ok(context)
        }
        #[cfg(not(all(feature = "sqlite", unix)))]
        Address::Sqlite { .. } => Err(Error::misuse(if cfg!(feature = "sqlite") {
            "the host store is for Linux; use a server on this system"
        } else {
            "this build of fairlock is without the `sqlite` feature, so that it has no host store; add `sqlite` \
             to the features of `fairlock` in Cargo.toml"
        })),
        #[cfg(feature = "redis")]
        _ => {
            let store = crate::store::redis::RedisStore::start(&config, client_id, events)?;
            let until = Moment::now().plus(config.connect_retry);
            let context = Context::new(config, client_id, Arc::clone(&store) as _, handle, false);
            runtime.spawn(async move {
                // A lazy client does not wait for the result.
                let _ = told.send(store.contact(until).await);
            });
            Ok(context)
        }
        #[cfg(not(feature = "redis"))]
        _ => {
            let _ = (client_id, events, told, handle);
            Err(Error::misuse(
                "this build of fairlock is without the `redis` feature, so that it cannot use a server; add `redis` \
                 to the features of `fairlock` in Cargo.toml",
            ))
        }
    }
}
