//! Which holds a Java client renews, and when it learns of them.

use std::collections::{BTreeMap, VecDeque};

use super::JavaClient;

/// The renewals of one client.
///
/// In a JVM, entries are made by the callback of the acquire's reply and removed by the thread that
/// unlocks. Nothing orders the two, so the test does.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// Lock -> the threads that hold it, as far as this client knows.
    entries: BTreeMap<String, VecDeque<i64>>,
}

impl Watchdog {
    /// The reply to an acquire has arrived: from here on the thread's hold is renewed.
    pub fn schedule(&mut self, lock: &str, thread_id: i64) {
        self.entries.entry(lock.to_owned()).or_default().push_back(thread_id);
    }

    /// A thread unlocks: removes one of its holds. Does nothing if none is known.
    pub fn cancel(&mut self, lock: &str, thread_id: i64) {
        let Some(threads) = self.entries.get_mut(lock) else { return };
        if let Some(at) = threads.iter().position(|thread| *thread == thread_id) {
            threads.remove(at);
        }
        if threads.is_empty() {
            self.entries.remove(lock);
        }
    }

    /// One round; Redisson runs one every ten seconds. A hold that no longer exists is silently
    /// forgotten.
    #[track_caller]
    pub fn round(&mut self, java: &mut JavaClient) {
        self.entries.retain(|lock, threads| {
            // Each round renews only the first thread of a name.
            let is_held = threads.front().is_some_and(|thread| java.renew(lock, *thread));
            if !is_held {
                threads.pop_front();
            }
            !threads.is_empty()
        });
    }

    /// Whether anything is renewed under this name.
    pub fn renews(&self, lock: &str) -> bool {
        self.entries.contains_key(lock)
    }
}
