//! Several locks at once, for threads.

use fairlock::blocking::{Client, Interrupt};
use fairlock::{ErrorKind, GuardState, Release};
use std::thread;
use std::time::Duration;

#[test]
fn threads_take_several_in_any_order() {
    let client = Client::connect("memory:").unwrap();
    thread::scope(|scope| {
        for names in [["a", "b"], ["b", "a"]] {
            let lock = client.multi_lock(names).unwrap();
            scope.spawn(move || {
                for _ in 0..50 {
                    assert_eq!(lock.lock().unwrap().release().unwrap(), Release::Released);
                }
            });
        }
    });
    let members = [
        client.fair_lock("a").into(),
        client.rw_lock("b").to_read(),
        client.rw_lock("c").to_write(),
        client.semaphore("d", 2).many(2),
    ];
    let lock = client.multi_lock(members).unwrap().lease(Duration::from_secs(60));
    assert_eq!(lock.names().count(), 4);
    let done = lock.with(|held| held.token("c")).unwrap();
    assert!(done.value.is_some() && done.release == Release::Released);
    let guard = lock.try_lock().unwrap().unwrap();
    assert_eq!(guard.state(), GuardState::Held);
    assert!(guard.token("d").is_some() && guard.lost_reason().is_none());
    assert!(guard.remaining() > Duration::from_secs(50));
    guard.ensure_valid().unwrap();
    assert_eq!(guard.state_changed(GuardState::Suspect).unwrap(), GuardState::Held);
    // The thread has none of them in its own name.
    let moment = Duration::from_millis(20);
    assert!(lock.try_lock_for(moment).unwrap().is_none());
    let owned = client.fair_lock("a").owned_by(&client.owner());
    assert_eq!(client.multi_lock([owned]).unwrap_err().kind(), ErrorKind::Misuse);
    drop(guard);
    let _ = lock.lock().unwrap().release().unwrap();
}

#[test]
fn a_wait_can_be_interrupted() {
    let client = Client::connect("memory:").unwrap();
    let held = client.fair_lock("b").lock().unwrap();
    let interrupt = Interrupt::new();
    let lock = client.multi_lock(["a", "b"]).unwrap().interruptible(&interrupt);
    let waits = thread::spawn(move || lock.lock().map(drop));
    while client.fair_lock("b").inspect().unwrap().queue_len == 0 {
        thread::yield_now();
    }
    interrupt.interrupt();
    assert_eq!(waits.join().unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
    drop(held);
    let _ = client.multi_lock(["b", "a"]).unwrap().lock().unwrap().release().unwrap();
}
