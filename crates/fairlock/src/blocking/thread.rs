//! Threads as owners: one owner for each thread and client.

use crate::api::client::Client;
use crate::api::owner::Owner;
use crate::base::error::Error;
use crate::engine::context::Context;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    /// Dropped with the thread. Clients that have ended are removed at the next call.
    static OWNERS: RefCell<Vec<(Weak<Context>, Owner)>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread as an owner of `client`'s locks.
pub(super) fn current(client: &Client) -> Result<Owner, Error> {
    let owner = OWNERS.try_with(|owners| {
        let mut owners = owners.borrow_mut();
        owners.retain(|(context, _)| context.strong_count() > 0);
        let known = owners.iter().find(|(_, owner)| owner.id().client() == Some(client.id()));
        if let Some((_, owner)) = known {
            return owner.clone();
        }
        let owner = client.owner();
        owners.push((Arc::downgrade(client.context()), owner.clone()));
        owner
    });
    owner.map_err(|_| {
        Error::misuse(
            "the calling thread has ended but for the destructors of its thread-locals, so it can \
             own no lock; take it with an owner of its own (`owned_by`)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::Client;
    use std::time::{Duration, Instant};

    fn known() -> usize {
        OWNERS.with(|owners| owners.borrow().len())
    }

    #[test]
    fn one_for_each_thread_and_client() {
        std::thread::spawn(|| {
            let first = Client::connect("memory:").expect("memory");
            let own = current(first.as_async()).expect("alive");
            assert_eq!(current(first.clone().as_async()).expect("alive"), own);
            let other = first.clone();
            let others = std::thread::spawn(move || current(other.as_async()).expect("alive"));
            assert_ne!(others.join().expect("no panic"), own);
            for _ in 0..100 {
                let client = Client::connect("memory:").expect("memory");
                assert_ne!(current(client.as_async()).expect("alive"), own);
            }
            // They are removed at the next call, once their background threads have ended.
            let deadline = Instant::now() + Duration::from_secs(10);
            while known() > 1 {
                assert!(Instant::now() < deadline, "{} owners", known());
                assert_eq!(current(first.as_async()).expect("alive"), own);
                std::thread::sleep(Duration::from_millis(1));
            }
        })
        .join()
        .expect("no panic");
    }
}
