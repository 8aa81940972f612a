//! Guards that end with their threads and runtimes.

use crate::{CLIENT, connect, runtime, say, start, take};
use fairlock::{Client, Guard};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// A release takes one round trip; this is slack for a busy machine.
const SOON: Duration = Duration::from_secs(10);

thread_local! {
    static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

fn is_free(client: &Client) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    !runtime.block_on(client.fair_lock("job").is_locked()).unwrap()
}

fn wait_until_free(client: &Client, began: Instant) {
    while !is_free(client) {
        assert!(began.elapsed() < SOON, "the lock is not released");
    }
}

/// Drops in the destructor of a thread-local, while the program continues.
pub(crate) fn in_a_thread(url: &str) {
    let (_runtime, client) = start(url);
    for _ in 0..100 {
        let own = client.clone();
        let thread = std::thread::spawn(move || GUARD.set(Some(take(&own))));
        thread.join().unwrap();
        wait_until_free(&client, Instant::now());
    }
}

/// Which thread-local the main thread uses first: the destructors run in the opposite order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    ClientFirst,
    GuardFirst,
}

/// Drops in the destructor of a thread-local of the main thread, after `main` has returned.
pub(crate) fn in_main(url: &str, order: Order) {
    let runtime = runtime();
    if order == Order::GuardFirst {
        GUARD.set(None);
    }
    let client = CLIENT.get_or_init(|| connect(&runtime, url));
    GUARD.set(Some(take(client)));
}

/// A task panics while it holds the lock; others continue.
pub(crate) fn panic_in_a_task(url: &str) {
    let (runtime, client) = start(url);
    let own = client.clone();
    let began = Instant::now();
    let task = runtime.spawn(async move {
        let _guard = own.fair_lock("job").lock().await.unwrap();
        say("held");
        panic!("in the critical section");
    });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    wait_until_free(&client, began);
    drop(take(&client));
}

/// A runtime is shut down under a holder and ten waiters, while the program continues. No thread
/// may panic.
pub(crate) fn runtime_shut_down(url: &str) {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let (_runtime, client) = start(url);
    for round in 0..10 {
        let doomed = runtime();
        let (held, is_held) = std::sync::mpsc::channel();
        let own = client.clone();
        doomed.spawn(async move {
            let _guard = own.fair_lock("job").lock().await.unwrap();
            held.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        is_held.recv().unwrap();
        for _ in 0..10 {
            let own = client.clone();
            doomed.spawn(async move { own.fair_lock("job").lock().await });
        }
        while queue_len(&client) < 10 {}
        let began = Instant::now();
        match round % 3 {
            0 => doomed.shutdown_background(),
            1 => doomed.shutdown_timeout(Duration::ZERO),
            _ => drop(doomed),
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "the shutdown took {took:?}");
        wait_until_free(&client, began);
        while queue_len(&client) > 0 {
            assert!(began.elapsed() < SOON, "waiters are left in the queue");
        }
        say(&format!("shut down in {took:?}, clean after {:?}", began.elapsed()));
    }
    drop(take(&client));
}

fn queue_len(client: &Client) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(client.fair_lock("job").inspect()).unwrap().queue_len
}
