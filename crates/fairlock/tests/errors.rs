//! Every error path of `connect` and of the first call, in each kind of runtime and without one: an
//! error, never a panic. A binary of its own that needs no feature and no server, so that
//! `scripts/features` can run it with each feature alone: what is missing from a build is an error
//! path, too.

#![allow(clippy::unwrap_used, reason = "in a test an error is a failure")]

use fairlock::{Client, Config, Error, ErrorKind};
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A reserved port on which nobody listens.
const NOBODY: &str = "127.0.0.1:1";

/// No error takes longer: the timeouts of these tests are below a second.
const SOON: Duration = Duration::from_secs(20);

/// Names the test that a process of this binary runs without being able to start threads.
const WITHOUT_THREADS: &str = "FAIRLOCK_ERRORS_WITHOUT_THREADS";

const REDIS: bool = cfg!(feature = "redis");
const TLS: bool = cfg!(feature = "tls");

/// The kind of the error if the feature is enabled; without it the call is a misuse.
fn with(feature: bool, kind: ErrorKind) -> ErrorKind {
    if feature { kind } else { ErrorKind::Misuse }
}

fn settings(url: &str) -> Config {
    let quick = Duration::from_millis(100);
    let config = Config::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    config.connect_timeout(quick).response_timeout(quick).store_timeout(quick)
}

/// What cannot be opened, with the kind of the error.
fn paths() -> Vec<(String, Config, ErrorKind)> {
    use ErrorKind::{Misuse, Unavailable};
    let mut paths = Vec::new();
    let mut add = |what: &str, config: Config, kind| paths.push((what.to_owned(), config, kind));
    let urls = [
        ("redis://", "", REDIS),
        ("valkey://", "/3", REDIS),
        ("rediss://", "", TLS),
        ("valkeys://", "", TLS),
        ("redis+sentinel://", "/master", REDIS),
        ("rediss+sentinel://", "/master", TLS),
        ("valkeys+sentinel://", "/master", TLS),
        ("redis+cluster://", "", REDIS),
        ("rediss+cluster://", "", TLS),
        ("valkeys+cluster://", "", TLS),
    ];
    for (scheme, path, feature) in urls {
        let url = format!("{scheme}{NOBODY}{path}");
        add(&url, settings(&url), with(feature, Unavailable));
    }
    add("unix:", settings("unix:/nonexistent/redis.sock"), with(REDIS, Unavailable));
    let plain = || settings(&format!("redis://{NOBODY}"));
    add("Config::tls", plain().tls(true), with(TLS, Unavailable));
    add("Config::unix", Config::unix("/nonexistent").tls(true), Misuse);
    add("a name that is none", settings("redis://nobody.invalid"), with(REDIS, Unavailable));
    add("settings out of bounds", settings("memory:").heartbeat(Duration::ZERO), Misuse);
    // A device is not a folder.
    add("sqlite:", settings("sqlite:/dev/null/locks"), Misuse);
    paths
}

/// Runs the future without a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

/// Runs `work` once in each kind of runtime, once in a task of each, and once without a runtime.
fn everywhere<F>(work: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    block_on(work());
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    current.block_on(work());
    current.block_on(async { tokio::spawn(work()).await }).unwrap();
    let multi = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let multi = multi.unwrap();
    multi.block_on(work());
    multi.block_on(async { tokio::spawn(work()).await }).unwrap();
    // A runtime without timers and sockets: the library has its own.
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    bare.block_on(work());
}

/// Runs `work` for all paths at the same time: most of the time is spent on timeouts.
fn at_once(work: impl Fn(&str, &Config, ErrorKind) + Sync) {
    std::thread::scope(|scope| {
        for (what, config, kind) in paths() {
            let work = &work;
            scope.spawn(move || work(&what, &config, kind));
        }
    });
}

fn check(what: &str, result: Result<(), Error>, kind: ErrorKind, began: Instant) {
    let error = result.err().unwrap_or_else(|| panic!("{what}: no error"));
    assert_eq!(error.kind(), kind, "{what}: {error}");
    assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
}

/// D19, found by an outside trial: without the feature `tls`, a `rediss` URL was a panic in every
/// task ("Cannot drop a runtime in a context where blocking is not allowed"), and so was each error
/// of opening a store: the runtime of the client's thread was dropped on the caller's thread.
#[test]
fn d19_no_error_of_connect_is_a_panic() {
    at_once(|what, config, kind| {
        everywhere(|| {
            let (what, config) = (what.to_owned(), config.clone());
            async move {
                let began = Instant::now();
                check(&what, Client::with_config(config).await.map(drop), kind, began);
            }
        });
    });
}

/// The message named the feature, but not the place where to add it.
#[test]
fn a_missing_feature_is_named_with_its_place() {
    let nobody = format!("redis://{NOBODY}");
    let encrypted = format!("rediss://{NOBODY}");
    for (url, feature, is_there) in [
        ("sqlite:/dev/null/locks", "sqlite", cfg!(feature = "sqlite")),
        (nobody.as_str(), "redis", REDIS),
        (encrypted.as_str(), if REDIS { "tls" } else { "redis" }, TLS),
    ] {
        if is_there {
            continue;
        }
        let error = block_on(Client::with_config(settings(url))).map(drop).unwrap_err();
        let advice = format!("add `{feature}` to the features of `fairlock` in Cargo.toml");
        assert!(error.to_string().contains(&advice), "{url}: {error}");
    }
}

/// The same with lazy connections: what can be known at once is reported at once, the rest by the
/// first call.
#[test]
fn d19_no_error_of_the_first_call_is_a_panic() {
    at_once(|what, config, kind| {
        let config = config.clone().lazy_connect(true);
        for call in 0..6 {
            everywhere(|| {
                let (what, config) = (format!("{what}, call {call}"), config.clone());
                async move {
                    let began = Instant::now();
                    check(&what, first_call(config, call).await, kind, began);
                }
            });
        }
    });
}

async fn first_call(config: Config, call: u32) -> Result<(), Error> {
    let client = Client::with_config(config).await?;
    let lock = client.fair_lock("job");
    match call {
        0 => client.ping().await,
        1 => lock.lock().await.map(drop),
        2 => lock.try_lock().await.map(drop),
        3 => client.plain_lock("job").try_lock_for(Duration::from_secs(1)).await.map(drop),
        4 => lock.inspect().await.map(drop),
        _ => lock.force_unlock().await.map(drop),
    }
}

#[cfg(feature = "blocking")]
#[test]
fn d19_no_error_of_the_blocking_api_is_a_panic() {
    use fairlock::blocking;
    for (what, config, kind) in paths() {
        let began = Instant::now();
        let result = blocking::Client::with_config(config.clone()).map(drop);
        check(&what, result, kind, began);
        // In a task the call is refused.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let result = blocking::Client::with_config(config).map(drop);
            check(&what, result, ErrorKind::Misuse, began);
        });
    }
}

/// D19: the system starts no thread. For root no limit on threads counts, so each thread is
/// requested with more stack than there are addresses.
#[test]
fn d19_no_thread_for_the_client_is_an_error() {
    let name = "d19_no_thread_for_the_client_is_an_error";
    if std::env::var(WITHOUT_THREADS).as_deref() != Ok(name) {
        let mut child = Command::new("/proc/self/exe");
        child.args([name, "--exact", "--nocapture"]).env(WITHOUT_THREADS, name);
        let output = child.env("RUST_MIN_STACK", (1_u64 << 50).to_string()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("1 passed"));
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "threads can still be made");
    let nobody = format!("redis://{NOBODY}");
    // A file is opened on a thread of its own; that fails before the build's features are checked.
    let urls = [("memory:", true), (&nobody, REDIS), ("sqlite:/tmp/nosuch/locks", true)];
    for (url, feature) in urls {
        let kind = with(feature, ErrorKind::Unavailable);
        let attempt = || async move {
            let began = Instant::now();
            check(url, Client::connect(url).await.map(drop), kind, began);
        };
        block_on(attempt());
        let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        current.block_on(attempt());
    }
}
