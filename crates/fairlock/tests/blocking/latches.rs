//! Latches, on threads.

use fairlock::blocking::{Client, Interrupt};
use fairlock::{ErrorKind, Opened};
use std::thread;
use std::time::Duration;

#[test]
fn threads_wait_for_a_latch() {
    let client = Client::connect("memory:").unwrap();
    let latch = client.latch("import");
    assert!(latch.try_set(2).unwrap());
    assert_eq!(latch.wait_for(Duration::from_millis(20)).unwrap(), None);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let latch = latch.clone();
            thread::spawn(move || latch.wait().unwrap())
        })
        .collect();
    assert_eq!(latch.count_down().unwrap(), 1);
    assert_eq!(latch.count().unwrap(), 1);
    assert_eq!(latch.count_down().unwrap(), 0);
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), Opened::CountedDown);
    }
    assert!(latch.try_set(1).unwrap());
    assert!(latch.delete().unwrap());
    assert_eq!(latch.wait().unwrap(), Opened::Gone);
}

#[test]
fn a_wait_for_a_latch_is_interrupted_and_refused_in_a_task() {
    let client = Client::connect("memory:").unwrap();
    let latch = client.latch("import");
    latch.try_set(1).unwrap();
    let interrupt = Interrupt::new();
    let waiting = latch.clone().interruptible(&interrupt);
    let waiter = thread::spawn(move || waiting.wait().unwrap_err().kind());
    interrupt.interrupt();
    assert_eq!(waiter.join().unwrap(), ErrorKind::Interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let refused = runtime.block_on(async { latch.count_down().unwrap_err() });
    assert_eq!(refused.kind(), ErrorKind::Misuse);
    assert_eq!(latch.count().unwrap(), 1);
}
