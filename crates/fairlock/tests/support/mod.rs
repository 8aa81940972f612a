//! What the integration tests share: stores to run on, and waiting for conditions.

mod clusters;
mod pauses;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::api::{Client, Guard, Lock};
#[cfg(feature = "tls")]
use crate::access::profiles;
use fairlock::{Check, Config, Error, Reaction};
use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;
#[cfg(feature = "tls")]
use fairlock_testkit::tls::Ca;
use fairlock_testkit::tls::Files;
use fairlock_testkit::topology::{MASTER_NAME, Replicated};
use fairlock_testkit::wait;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub(crate) use pauses::{Pauses, unless_it_pauses, unless_it_stands_still};

/// The bound for what takes milliseconds: the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The user on servers with TLS, with only the rules of docs/acl: the contract tests need no
/// others.
const LEAST: &str = "least";

/// After this a test hangs. A machine short of memory stops everything for seconds; and the lease of a dead holder, whose
/// end would hide a lost message, lasts for 20 s and more.
const HANGS: Duration = Duration::from_secs(19);

#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Memory,
    /// The host store, in a folder of the test's own.
    #[cfg(feature = "sqlite")]
    Host,
    Server(Generation),
    /// A Cluster that the tests of a generation use one after the other.
    Cluster(Generation),
    /// A server that accepts only TLS.
    #[cfg(feature = "tls")]
    Tls(Generation),
    /// A server behind a Sentinel, where a lock counts only when the replica has it. Nothing fails
    /// over.
    Sentinel(Generation),
}

/// A store of the test's own.
pub(crate) struct Store {
    server: Option<Server>,
    cluster: Option<clusters::Turn>,
    /// The server's replica, and the Sentinel that names it.
    beside: Option<(Server, Server)>,
    /// The folder of the host store.
    folder: Option<TempDir>,
    /// For a server with TLS: the file of its CA, and the folder of that file.
    trusted: Option<(Files, PathBuf)>,
    /// Two clients of `memory:` are two stores, so all clients are clones of the first.
    memory: OnceLock<Client>,
}

impl Store {
    /// `None`, with a message, if the server is not installed.
    pub(crate) fn open(at: At) -> Option<Self> {
        let mut store = Self::none();
        match at {
            At::Memory => {}
            #[cfg(feature = "sqlite")]
            At::Host => store.folder = Some(TempDir::new()),
            #[cfg(feature = "tls")]
            At::Tls(generation) => return Self::encrypted(generation),
            At::Sentinel(generation) => return Self::watched(generation),
            At::Server(generation) => store.server = Some(Server::start(generation)?),
            At::Cluster(generation) => store.cluster = Some(clusters::turn(generation)?),
        }
        Some(store)
    }

    #[cfg(feature = "tls")]
    fn encrypted(generation: Generation) -> Option<Self> {
        let (files, ca) = (Files::default(), Ca::new("ours"));
        let identity = files.identity("server", &ca.server(), &ca);
        let rules = profiles::for_all_names().join(" ");
        let user = format!("user {LEAST} reset resetchannels on >pw {rules}\n");
        let server = Server::builder(generation).tls(&identity).config(&user).start()?;
        Some(Self { server: Some(server), trusted: Some((files, identity.ca)), ..Self::none() })
    }

    fn none() -> Self {
        let memory = OnceLock::new();
        Self { server: None, cluster: None, beside: None, folder: None, trusted: None, memory }
    }

    fn watched(generation: Generation) -> Option<Self> {
        let (server, mut replicas) = Replicated::start(generation, 1)?.into_parts();
        let watch = format!(
            "sentinel monitor {MASTER_NAME} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {MASTER_NAME} 3600000\n",
            server.port()
        );
        let sentinel = Server::builder_of_sentinel(generation).config(&watch).start()?;
        let beside = Some((replicas.remove(0), sentinel));
        Some(Self { server: Some(server), beside, ..Self::none() })
    }

    pub(crate) fn url(&self) -> String {
        if let Some(cluster) = &self.cluster {
            return cluster.url();
        }
        if let Some((_, sentinel)) = &self.beside {
            // On a busy machine a replica may be slow.
            let strict = "replicas=1&replicas-timeout-ms=10000";
            return format!("redis+sentinel://{}/{MASTER_NAME}?{strict}", sentinel.addr());
        }
        if let (Some(server), Some((_, ca))) = (&self.server, &self.trusted) {
            let url = server.url().replace("://", &format!("://{LEAST}:pw@"));
            return format!("{url}?ca={}", ca.display());
        }
        match (&self.server, &self.folder) {
            (Some(server), _) => server.url(),
            (None, Some(folder)) => format!("sqlite:{}/locks", folder.path().display()),
            (None, None) => "memory:".to_owned(),
        }
    }

    /// Whether all its clients are one.
    pub(crate) fn is_memory(&self) -> bool {
        self.server.is_none() && self.folder.is_none() && self.cluster.is_none()
    }

    /// Whether names whose keys are in different slots are refused.
    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// A client; always a new one except for memory.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(|config| config).await
    }

    /// A client with settings; for memory those of the first call count.
    pub(crate) async fn client_with(&self, tune: impl FnOnce(Config) -> Config) -> Client {
        if let Some(client) = self.memory.get() {
            return client.clone();
        }
        let config = tune(Config::from_url(&self.url()).unwrap());
        let client = Client::with_config(config).await.unwrap();
        if self.is_memory() {
            return self.memory.get_or_init(|| client).clone();
        }
        client
    }

    /// The server, if it is a single one.
    pub(crate) fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// A connection to the server that bypasses the library, if it is a single server.
    pub(crate) fn raw(&self) -> Option<Raw> {
        self.server.as_ref().map(Server::client)
    }
}

/// No heartbeat occurs within a test: every grant comes from a reply or a message.
pub(crate) fn no_beats(config: Config) -> Config {
    config.heartbeat(Duration::from_secs(60)).watchdog_lease(Duration::from_secs(300))
}

/// Nor is a note of the lock's kind written in the background: what a test finds in the store stays as it is.
pub(crate) fn no_notes(config: Config) -> Config {
    no_beats(config).on_check(Check::Kind, Reaction::Ignore)
}

/// The future of a test. Boxed, so that runtimes and timeouts are compiled once, and not for each test.
type TestFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs the future of a test to its end.
pub(crate) fn block_on<'a>(runtime: &Runtime, test: impl Future<Output = ()> + 'a) {
    let test: TestFuture<'a> = Box::pin(test);
    runtime.block_on(test);
}

/// Runs one test on a store, with a time limit.
pub(crate) fn run<'a, F: Future<Output = ()> + 'a>(at: At, test: impl Fn(Store) -> F) {
    run_boxed(at, &|store| Box::pin(test(store)));
}

fn run_boxed<'a>(at: At, test: &dyn Fn(Store) -> TestFuture<'a>) {
    real_time(|runtime| {
        let Some(store) = Store::open(at) else { return };
        runtime.block_on(async {
            let limit = Duration::from_secs(300);
            tokio::time::timeout(limit, test(store)).await.expect("the test hangs");
        });
    });
}

/// Runs a test whose leases end in real time. A failure proves nothing if this process stood still for a tenth of the
/// shortest lease that must not end: then the test runs again.
pub(crate) fn real_time(test: impl Fn(&Runtime)) {
    unless_it_stands_still(Duration::from_millis(200), &Pauses::of_all, &runtime, &test);
}

/// The same for a test that has its servers itself.
pub(crate) fn in_real_time<F: Future<Output = ()>>(test: impl Fn() -> F) {
    real_time(|runtime| block_on(runtime, test()));
}

/// Runs one test in paused time.
#[cfg(feature = "test-util")]
pub(crate) fn run_paused(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(test);
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The result of a future that takes milliseconds, unless it hangs.
#[track_caller]
pub(crate) fn soon<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let location = std::panic::Location::caller();
    async move {
        let result = tokio::time::timeout(HANGS, future).await;
        result.unwrap_or_else(|_| panic!("{what}: not within {HANGS:?} ({location})"))
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn until(
    what: &str,
    condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = Duration> {
    wait::until_async(what, HANGS, condition)
}

/// The tag of a script's reply: the third word of its text, which owners may follow in an array.
pub(crate) fn tag(reply: &fairlock_testkit::resp::Value) -> &str {
    use fairlock_testkit::resp::Value;
    let text = if let Value::Array(all) = reply { &all[0] } else { reply };
    text.text().split(' ').nth(2).expect("server time, MORE, tag")
}

/// Polls a future once.
pub(crate) async fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut *future).poll(cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits until exactly `count` owners wait for the lock.
pub(crate) async fn queue_is(lock: &Lock, count: usize) {
    let deadline = Instant::now() + HANGS;
    loop {
        let status = lock.inspect().await.unwrap();
        if status.queue_len == count {
            return;
        }
        assert!(Instant::now() < deadline, "the queue is not {count} long: {status:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until nobody holds the lock.
pub(crate) async fn is_free(lock: &Lock) {
    until("the lock is free", async || !lock.is_locked().await.unwrap()).await;
}

/// Starts to wait for a fair lock in a task; returns once the task is queued at place `place`.
pub(crate) async fn wait_behind(lock: &Lock, place: usize) -> JoinHandle<Result<Guard, Error>> {
    let own = lock.clone();
    let task = tokio::spawn(async move { own.lock().await });
    queue_is(lock, place).await;
    task
}

/// The guard of a task of [`wait_behind`].
#[track_caller]
pub(crate) fn granted(task: JoinHandle<Result<Guard, Error>>) -> impl Future<Output = Guard> {
    let result = soon("the grant", task);
    async move { result.await.unwrap().unwrap() }
}
