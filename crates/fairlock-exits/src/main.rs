//! `fairlock-exits WAY URL`: takes the lock `job` on the server at URL and ends in the way WAY.
//!
//! The tests start it and check what is left on the server. It prints `held` once it has the lock.
//! Its watchdog lease is one second.

mod forked;
mod threads;

use fairlock::{Client, Config, Guard};
use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The watchdog lease: how long an unreleased lock blocks the others.
const LEASE: Duration = Duration::from_secs(4);

/// A client that is never dropped.
static CLIENT: OnceLock<Client> = OnceLock::new();

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(way), Some(url)) = (args.next(), args.next()) else {
        eprintln!("usage: fairlock-exits WAY URL");
        std::process::exit(64);
    };
    end(&way, &url);
}

fn end(way: &str, url: &str) {
    match way {
        // `main` returns right after the drop.
        "drop" => {
            let (_runtime, client) = start(url);
            drop(take(&client));
        }
        "drop-static" => {
            let runtime = runtime();
            let client = CLIENT.get_or_init(|| connect(&runtime, url));
            drop(take(client));
        }
        "drop-after-the-runtime" => {
            let (runtime, client) = start(url);
            let guard = take(&client);
            drop(runtime);
            drop(guard);
        }
        "drop-when-told" => {
            let (_runtime, client) = start(url);
            let guard = take(&client);
            // Returns when the test writes a line or is gone.
            let _ = std::io::stdin().read_line(&mut String::new());
            drop(guard);
        }
        "shutdown" => {
            let (runtime, client) = start(url);
            drop(take(&client));
            runtime.block_on(client.shutdown());
        }
        "leak" => {
            let runtime = runtime();
            std::mem::forget(take(CLIENT.get_or_init(|| connect(&runtime, url))));
        }
        "exit" => {
            let (_runtime, client) = start(url);
            drop(take(&client));
            std::process::exit(0);
        }
        "exit-held" => {
            let (_runtime, client) = start(url);
            let _guard = take(&client);
            std::process::exit(0);
        }
        "exit-in-a-thread" => {
            let (_runtime, client) = start(url);
            let guard = take(&client);
            let thread = std::thread::spawn(move || {
                drop(guard);
                std::process::exit(0);
            });
            // The process exits first.
            let _ = thread.join();
        }
        "panic" => {
            let (_runtime, client) = start(url);
            let _guard = take(&client);
            panic!("in the critical section");
        }
        "panic-static" => {
            let runtime = runtime();
            let _guard = take(CLIENT.get_or_init(|| connect(&runtime, url)));
            panic!("in the critical section");
        }
        "panic-in-a-task" => threads::panic_in_a_task(url),
        // Like `panic = "abort"`: the hook runs, nothing is unwound.
        "panic-abort" => {
            std::panic::set_hook(Box::new(|_| std::process::abort()));
            let (_runtime, client) = start(url);
            let _guard = take(&client);
            panic!("in the critical section");
        }
        "abort" => {
            let (_runtime, client) = start(url);
            let _guard = take(&client);
            std::process::abort();
        }
        "thread-local" => threads::in_a_thread(url),
        "thread-local-main" => threads::in_main(url, threads::Order::ClientFirst),
        "thread-local-main-early" => threads::in_main(url, threads::Order::GuardFirst),
        "runtime-shut-down" => threads::runtime_shut_down(url),
        "fork" => forked::once(url),
        "fork-on-a-file" => forked::on_a_file(url),
        "fork-under-load" => forked::under_load(url),
        _ => panic!("no such way: {way}"),
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn connect(runtime: &Runtime, url: &str) -> Client {
    let config = Config::from_url(url).unwrap().watchdog_lease(LEASE);
    let config = config.heartbeat(Duration::from_millis(200));
    runtime.block_on(Client::with_config(config)).unwrap()
}

/// A client owned by `main`, dropped with it.
fn start(url: &str) -> (Runtime, Client) {
    let runtime = runtime();
    let client = connect(&runtime, url);
    (runtime, client)
}

/// Takes the lock on a runtime that is dropped afterwards, and prints `held`.
fn take(client: &Client) -> Guard {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let guard = runtime.block_on(client.fair_lock("job").lock()).unwrap();
    say("held");
    guard
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
