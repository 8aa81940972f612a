//! F81: a blocking call on a thread that runs tasks is an error, not a deadlock; others are
//! allowed.

use std::sync::mpsc;
use std::time::Duration;

use fairlock::blocking::Client;
use fairlock::{ErrorKind, Release};
use tokio::runtime::{Builder, Runtime};

fn client() -> Client {
    Client::connect("memory:").unwrap()
}

fn workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Every call that may wait, while somebody else holds the lock: none waits, none leaves a trace.
fn is_refused(client: &Client) {
    let lock = client.fair_lock("job");
    let refused = [
        lock.lock().unwrap_err(),
        lock.try_lock().unwrap_err(),
        lock.try_lock_for(Duration::from_secs(60)).unwrap_err(),
        lock.with(|_| ()).unwrap_err(),
        lock.enqueue().unwrap_err(),
        lock.inspect().unwrap_err(),
        lock.is_locked().unwrap_err(),
        lock.holder().unwrap_err(),
        lock.remaining_ttl().unwrap_err(),
        lock.force_unlock().unwrap_err(),
        client.ping().unwrap_err(),
        client.clone().shutdown().unwrap_err(),
        Client::connect("memory:").unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
        assert!(error.to_string().contains("spawn_blocking"), "{error}");
    }
    // Repeatedly: the check does not use up the task's budget.
    for _ in 0..300 {
        assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::Misuse);
    }
    assert!(tokio::task::coop::has_budget_remaining());
}

fn works(client: &Client) {
    let lock = client.plain_lock("mine");
    let guard = lock.lock().unwrap();
    assert_eq!(lock.lock().unwrap().release().unwrap(), Release::StillHeld(1));
    assert_eq!(guard.release().unwrap(), Release::Released);
}

/// Runs `test`, with a bound on its time, while another thread holds the lock `job`.
fn while_held(test: impl FnOnce(Client) + Send + 'static) {
    let client = client();
    let guard = client.fair_lock("job").lock().unwrap();
    let (done, result) = mpsc::channel();
    let own = client.clone();
    let thread = std::thread::spawn(move || {
        test(own);
        let _ = done.send(());
    });
    let late = result.recv_timeout(Duration::from_secs(20));
    assert!(late != Err(mpsc::RecvTimeoutError::Timeout), "it waits");
    thread.join().unwrap();
    assert_eq!(client.fair_lock("job").inspect().unwrap().queue_len, 0);
    assert_eq!(guard.release().unwrap(), Release::Released);
}

#[test]
fn on_a_worker() {
    while_held(|client| {
        let runtime = workers();
        let task = runtime.spawn(async move { is_refused(&client) });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn in_a_task_of_a_single_thread() {
    while_held(|client| {
        let runtime = one_thread();
        let task = runtime.spawn(async move { is_refused(&client) });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn at_the_root_of_block_on() {
    while_held(|client| {
        workers().block_on(async { is_refused(&client) });
        one_thread().block_on(async { is_refused(&client) });
        workers().handle().block_on(async { is_refused(&client) });
    });
}

#[test]
fn in_a_local_set() {
    while_held(|client| {
        let local = tokio::task::LocalSet::new();
        let own = client.clone();
        let task = local.spawn_local(async move { is_refused(&own) });
        local.block_on(&one_thread(), async {
            is_refused(&client);
            task.await.unwrap();
        });
    });
}

/// After an `await`, behind other tasks, and with hardly any of its budget left.
#[test]
fn late_in_a_task() {
    while_held(|client| {
        one_thread().block_on(async {
            for _ in 0..127 {
                tokio::task::coop::consume_budget().await;
            }
            assert_eq!(client.ping().unwrap_err().kind(), ErrorKind::Misuse);
            tokio::time::sleep(Duration::from_millis(1)).await;
            is_refused(&client);
        });
    });
}

struct InDrop(Client);

impl Drop for InDrop {
    fn drop(&mut self) {
        is_refused(&self.0);
    }
}

#[test]
fn in_a_drop_while_polled() {
    while_held(|client| {
        let runtime = workers();
        let own = InDrop(client.clone());
        let task = runtime.spawn(async move { drop(own) });
        runtime.block_on(task).unwrap();
        // Aborted: a worker drops it.
        let own = InDrop(client);
        let task = runtime.spawn(async move {
            let _own = own;
            std::future::pending::<()>().await;
        });
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    });
}

#[test]
fn where_blocking_is_meant_it_works() {
    while_held(|client| {
        works(&client);
        let runtime = workers();
        let own = client.clone();
        runtime.block_on(runtime.spawn_blocking(move || works(&own))).unwrap();
        let own = client.clone();
        let task = runtime.spawn(async move {
            is_refused(&own);
            tokio::task::block_in_place(|| works(&own));
            is_refused(&own);
        });
        runtime.block_on(task).unwrap();
        runtime.block_on(async { tokio::task::block_in_place(|| works(&client)) });
        let single = one_thread();
        let own = client.clone();
        single.block_on(single.spawn_blocking(move || works(&own))).unwrap();
        // To have entered a runtime is not to be inside a task.
        let entered = runtime.enter();
        works(&client);
        drop(entered);
        works(&client);
    });
}

/// Guards never wait when they are dropped, so they may be dropped anywhere; a release that is
/// refused happens in the background.
#[test]
fn guards_end_inside_of_tasks() {
    let client = client();
    let lock = client.fair_lock("job");
    let guards = [lock.lock().unwrap(), lock.lock().unwrap(), lock.lock().unwrap()];
    one_thread().block_on(async {
        let [dropped, released, reentered] = guards;
        drop(dropped);
        assert_eq!(released.release().unwrap_err().kind(), ErrorKind::Misuse);
        assert_eq!(reentered.reenter().unwrap_err().kind(), ErrorKind::Misuse);
    });
    assert!(!lock.is_locked().unwrap());
}
