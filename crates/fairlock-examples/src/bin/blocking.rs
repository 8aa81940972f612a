//! Locks for threads, without async.
//! `cargo run -p fairlock-examples --bin blocking [-- redis://127.0.0.1/]`

use fairlock::blocking::{Client, Interrupt};
use fairlock::{Error, ErrorKind, Release};
use std::thread;
use std::time::Duration;

fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(&url)?;
    let lock = client.fair_lock("invoice:42");

    let outer = lock.lock()?; // the thread owns it
    let inner = lock.lock()?; // and enters it once more
    println!("held {} times by this thread", inner.hold_count());
    drop(inner);

    // Another thread waits until it is interrupted.
    let interrupt = Interrupt::new();
    let waits = thread::spawn({
        let lock = lock.clone().interruptible(&interrupt);
        move || lock.lock().map(drop)
    });
    while lock.inspect()?.queue_len == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    interrupt.interrupt();
    match waits.join().expect("the thread does not panic") {
        Err(error) if error.kind() == ErrorKind::Interrupted => println!("interrupted"),
        other => println!("not interrupted: {other:?}"),
    }

    assert_eq!(outer.release()?, Release::Released);
    Ok(())
}
