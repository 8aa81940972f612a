//! Read-write locks: what Redisson's `RReadWriteLock` does, and ours in the same state.

use super::case::{Case, LEASE, TOKEN};
use serde_json::json;

const MINTED: (&str, &str) = (
    TOKEN,
    "Every hold of ours has a token, whatever its kind; Redisson's read-write locks mint none.",
);
const HELD: (&str, &str) = (TOKEN, "The token of the hold, minted when it was taken.");

const OWN_TOKEN: &str = "<now_us-9000000>";

fn case(name: &'static str, title: &'static str, before: fn(&mut super::case::Stage<'_>)) -> Case {
    Case::new("rw", name, title, before)
}

pub(super) fn cases() -> Vec<Case> {
    [acquiring(), re_entering(), reading_ends(), writing_ends(), renewing(), looking(), waiting()]
        .into_iter()
        .flatten()
        .collect()
}

fn acquiring() -> Vec<Case> {
    vec![
        case(
            "read-free",
            "Nobody holds it: the caller reads. A key of its own says how long.",
            |_| {},
        )
        .java("readLock.lock")
        .asks("W", "r")
        .because(&[MINTED]),
        case("read-free-with-lease", "The same with a lease of its own.", |_| {})
            .java_with("readLock.lock", json!([5000]))
            .ours("share_acquire", &["<me>", "<request>", "5000", "<now+30000>", "W", "r"])
            .because(&[MINTED]),
        case("write-free", "Nobody holds it: the caller writes.", |_| {})
            .java("writeLock.lock")
            .asks("W", "w")
            .because(&[MINTED]),
        case("write-free-with-lease", "The same with a lease of its own.", |_| {})
            .java_with("writeLock.lock", json!([5000]))
            .ours("share_acquire", &["<me>", "<request>", "5000", "<now+30000>", "W", "w"])
            .because(&[MINTED]),
        case("try-read-free", "A try takes the free lock.", |_| {})
            .java("readLock.tryLock")
            .asks("T", "r")
            .because(&[MINTED]),
        case("try-write-free", "A try takes the free lock.", |_| {})
            .java("writeLock.tryLock")
            .asks("T", "w")
            .because(&[MINTED]),
        case(
            "read-beside-a-reader",
            "Somebody else reads: the caller reads too, and the lock lives longer.",
            |s| {
                s.java_reads("<first>", 1, "20000", "20000");
            },
        )
        .java("readLock.lock")
        .asks("W", "r")
        .because(&[MINTED]),
        case(
            "read-beside-a-longer-reader",
            "Somebody else reads for longer: the life of the lock is not shortened.",
            |s| s.java_reads("<first>", 1, "60000", "60000"),
        )
        .java("readLock.lock")
        .asks("W", "r")
        .because(&[MINTED]),
        case(
            "read-behind-a-writer",
            "Somebody else writes: the caller listens to the one channel and waits.",
            |s| {
                s.java_writes("<first>", 1, "20000");
            },
        )
        .java("readLock.lock")
        .asks("W", "r"),
        case("write-behind-a-reader", "Somebody else reads: the caller waits.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
        })
        .java("writeLock.lock")
        .asks("W", "w"),
        case("write-behind-a-writer", "Somebody else writes: the caller waits.", |s| {
            s.java_writes("<first>", 2, "20000");
        })
        .java("writeLock.lock")
        .asks("W", "w"),
        case(
            "try-read-busy",
            "Somebody else writes: a try gets nothing, and waits for nothing.",
            |s| {
                s.java_writes("<first>", 1, "20000");
            },
        )
        .java("readLock.tryLock")
        .asks("T", "r"),
        case("try-write-busy", "Somebody else reads: a try gets nothing.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
        })
        .java("writeLock.tryLock")
        .asks("T", "w"),
    ]
}

fn re_entering() -> Vec<Case> {
    vec![
        case(
            "re-enter-read",
            "The caller reads already: one hold more, with a key of its own.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "r");
            },
        )
        .java("readLock.lock")
        .ours("share_reenter", &["<me>", OWN_TOKEN, "<request>", "2", "1", "<now+30000>"])
        .because(&[
            ("a", "A re-entry of ours does not change the lease."),
            ("{a}:<me>:rwlock_timeout:2", "The key of the first hold stands for all of them."),
            HELD,
        ]),
        case(
            "re-enter-write",
            "The caller writes already: one hold more, and Java adds the lease to what is left.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "w");
            },
        )
        .java("writeLock.lock")
        .ours("share_reenter", &["<me>", OWN_TOKEN, "<request>", "2", "1", "<now+30000>"])
        .because(&[("a", "A re-entry of ours does not change the lease."), HELD]),
        case("read-inside-write", "The caller writes: it may read as well.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
        })
        .java("readLock.lock")
        .ours("share_reenter", &["<me>", OWN_TOKEN, "<request>", "2", "1", "<now+30000>"])
        .because(&[
            ("a", "Ours counts it as one more hold of the writer, and does not change the lease."),
            ("{a}:<me>:rwlock_timeout:1", "The hold of ours is the writer's."),
            HELD,
        ]),
        case(
            "write-inside-read",
            "The caller reads, and wants to write: it waits for itself.",
            |s| {
                s.java_reads("<me>", 1, "20000", "20000");
            },
        )
        .java("writeLock.lock"),
        case("try-write-inside-read", "The same with a try, which gets nothing.", |s| {
            s.java_reads("<me>", 1, "20000", "20000");
        })
        .java("writeLock.tryLock"),
    ]
}

fn reading_ends() -> Vec<Case> {
    vec![
        case("read-unlock", "The last reader leaves: the lock is gone, and one waiter of each client is told.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
        })
        .java("readLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"])
        .because(&[HELD]),
        case(
            "read-unlock-one-of-many",
            "One of two readers leaves: the lock lives for as long as the key of the other, which may be shorter.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "r");
                s.at(0);
                s.java_reads("<first>", 1, "10000", "21000");
            },
        )
        .java("readLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"])
        .because(&[HELD]),
        case(
            "read-unlock-beside-one-without-key",
            "The other reader has no key any more: to Java it is dead, and the lock goes.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "r");
                s.at(0);
                s.java_reads("<first>", 1, "10000", "21000");
                s.redis(&["DEL", "{a}:<first>:rwlock_timeout:1"]);
            },
        )
        .java("readLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"])
        .because(&[
            ("a", "A reader of Java's is never removed by ours; its hold ends with the lock."),
            ("published", "The lock is not free for ours."),
            HELD,
        ]),
        case("read-unlock-partial", "One of two holds: the key of the second goes, that of the first says how long.", |s| {
            s.java_reads("<me>", 2, "20000", "25000");
        })
        .java("readLock.unlock"),
        case(
            "read-unlock-without-keys",
            "One of two holds, and the keys are over: the lock goes with the caller's other hold.",
            |s| {
                s.java_reads("<me>", 2, "20000", "20000");
                s.redis(&["DEL", "{a}:<me>:rwlock_timeout:1", "{a}:<me>:rwlock_timeout:2"]);
            },
        )
        .java("readLock.unlock"),
        case("read-unlock-not-owner", "Somebody else reads: an exception, nothing changes.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
        })
        .java("readLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case("read-unlock-of-a-writer", "Somebody else writes: an exception, nothing changes.", |s| {
            s.java_writes("<first>", 1, "20000");
        })
        .java("readLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case("read-unlock-free", "Nobody holds it: an exception, but waiters are told.", |_| {})
            .java("readLock.unlock")
            .ours("share_release", &["<me>", OWN_TOKEN, "<request>"])
            .because(&[("published", "Ours tells of what it has ended alone.")]),
        case("read-unlock-inside-write", "The caller writes and reads: it goes on writing.", |s| {
            s.java_reads("<me>", 1, "20000", "25000");
            s.java_writes("<me>", 1, "25000");
        })
        .java("readLock.unlock"),
        case("read-force-unlock", "All readers lose the lock; their keys stay to their end.", |s| {
            s.java_reads("<first>", 2, "20000", "20000");
        })
        .java("readLock.forceUnlock")
        .ours("share_force", &[]),
        case("read-force-unlock-free", "Nobody holds it.", |_| {})
            .java("readLock.forceUnlock")
            .ours("share_force", &[]),
        case("read-force-unlock-of-a-writer", "Somebody writes: the reading half does not end that.", |s| {
            s.java_writes("<first>", 1, "20000");
        })
        .java("readLock.forceUnlock")
        .ours("share_force", &[])
        .because(&[
            ("a", "Ours knows one force, for both halves."),
            ("published", "The writer's hold has ended."),
        ]),
    ]
}

fn writing_ends() -> Vec<Case> {
    vec![
        case("write-unlock", "The writer leaves: the lock is gone, and all waiters are told.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
        })
        .java("writeLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"])
        .because(&[HELD]),
        case("write-unlock-partial", "One of two holds: the lease begins anew.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.does("share_reenter", &["<me>", OWN_TOKEN, "<request>", "2", "1", "<now+30000>"], " held 2");
        })
        .java("writeLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>", "1", "2"])
        .because(&[("a", "A partial release of ours does not change the lease."), HELD]),
        case("write-unlock-not-owner", "Somebody else writes: an exception, nothing changes.", |s| {
            s.java_writes("<first>", 1, "20000");
        })
        .java("writeLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case("write-unlock-of-readers", "Somebody else reads: an exception, nothing changes.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
        })
        .java("writeLock.unlock")
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case("write-unlock-free", "Nobody holds it: an exception, but waiters are told.", |_| {})
            .java("writeLock.unlock")
            .ours("share_release", &["<me>", OWN_TOKEN, "<request>"])
            .because(&[("published", "Ours tells of what it has ended alone.")]),
        case(
            "write-unlock-still-reads",
            "The caller writes and reads, and ends the writing first: it goes on reading, and nobody is told that others may.",
            |s| {
                s.java_reads("<me>", 1, "20000", "25000");
                s.java_writes("<me>", 1, "25000");
            },
        )
        .java("writeLock.unlock"),
        case("read-unlock-after-write", "The caller has ended its writing, and now its reading.", |s| {
            s.java_reads("<me>", 1, "20000", "25000");
        })
        .java("readLock.unlock"),
        case("write-force-unlock", "The writer loses the lock: all waiters are told.", |s| {
            s.java_writes("<first>", 2, "20000");
        })
        .java("writeLock.forceUnlock")
        .ours("share_force", &[]),
        case("write-force-unlock-free", "Nobody holds it.", |_| {})
            .java("writeLock.forceUnlock")
            .ours("share_force", &[]),
        case("write-force-unlock-of-readers", "Somebody reads: the writing half does not end that.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
        })
        .java("writeLock.forceUnlock")
        .ours("share_force", &[])
        .because(&[
            ("a", "Ours knows one force, for both halves."),
            ("published", "The last reader's hold has ended."),
        ]),
    ]
}

/// Java renews each second.
fn renews(half: &str) -> serde_json::Value {
    json!({
        "settings": { "lockWatchdogTimeout": 3000 },
        "earlier": { "call": format!("{half}.lock") },
        "does": { "renewal": true },
    })
}

fn renewing() -> Vec<Case> {
    vec![
        case("read-renewal", "The watchdog renews a reader: its key, and the lock.", |s| {
            s.at(-9000);
            s.holds_for("<me>", "r", "10234");
        })
        .java_part(renews("readLock"))
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", "3000", "<now+30000>"])
        .because(&[HELD]),
        case(
            "read-renewal-beside-a-longer-reader",
            "Another reader has a longer lease: Java's renewal cuts the life of the lock down to its own.",
            |s| {
                s.at(-9000);
                s.holds_for("<me>", "r", "10234");
                s.at(0);
                s.java_reads("<first>", 1, "60000", "60000");
            },
        )
        .java_part(renews("readLock"))
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", "3000", "<now+30000>"])
        .because(&[("a", "Ours only ever raises it beside Java."), HELD]),
        case(
            "read-renewal-beside-a-dying-reader",
            "Another client's reader is about to end. Before 4.4.0 whoever renews prolongs it too.",
            |s| {
                s.at(-9000);
                s.holds_for("<me>", "r", "10234");
                s.at(0);
                s.java_reads("<first>", 1, "500", "1234");
            },
        )
        .java_part(renews("readLock"))
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", "3000", "<now+30000>"])
        .because(&[HELD]),
        case(
            "read-renewal-beside-two-holds",
            "Another client's reader has two holds. In 3.52.0 the script fails there, and does not come to the caller.",
            |s| {
                s.at(-9000);
                s.holds_for("<me>", "r", "10234");
                s.at(0);
                s.java_reads("<first>", 2, "20000", "20000");
            },
        )
        .java_part(renews("readLock"))
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", "3000", "<now+30000>"])
        .because(&[("a", "Ours only ever raises it beside Java."), HELD]),
        case("read-renewal-of-two-holds", "The caller has two holds: both keys are renewed.", |s| {
            s.java_reads("<me>", 2, "1234", "1234");
        })
        .java_part(renews("readLock")),
        case("read-renewal-lost", "The lock is gone: nothing is renewed.", |s| {
            s.redis(&["SET", "{a}:<me>:rwlock_timeout:1", "1", "PX", "1234"]);
        })
        .java_part(renews("readLock"))
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", "3000", "<now+30000>"]),
        case("write-renewal", "The watchdog renews a writer.", |s| {
            s.at(-9000);
            s.holds_for("<me>", "w", "10234");
        })
        .java_part(renews("writeLock"))
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", "3000", "<now+30000>"])
        .because(&[HELD]),
        case("write-renewal-lost", "Somebody else writes meanwhile: nothing is renewed.", |s| {
            s.java_writes("<first>", 1, "20000");
        })
        .java_part(renews("writeLock"))
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", "3000", "<now+30000>"]),
    ]
}

fn looking() -> Vec<Case> {
    vec![
        case("read-is-locked", "Somebody reads.", |s| s.java_reads("<first>", 1, "20000", "20000"))
            .java("readLock.isLocked"),
        case("read-is-locked-free", "Nobody holds it.", |_| {}).java("readLock.isLocked"),
        case("read-is-locked-written", "Somebody writes, and does not read.", |s| {
            s.java_writes("<first>", 1, "20000");
        })
        .java("readLock.isLocked"),
        case("read-is-locked-inside-write", "A writer reads as well.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
            s.java_writes("<first>", 1, "20000");
        })
        .java("readLock.isLocked"),
        case("write-is-locked", "Somebody writes.", |s| s.java_writes("<first>", 1, "20000"))
            .java("writeLock.isLocked"),
        case("write-is-locked-read", "Somebody reads.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
        })
        .java("writeLock.isLocked"),
        case("read-is-held-by-me", "The caller reads.", |s| {
            s.java_reads("<me>", 1, "20000", "20000");
        })
        .java("readLock.isHeldByCurrentThread"),
        case("write-is-held-by-me", "The caller writes.", |s| s.java_writes("<me>", 1, "20000"))
            .java("writeLock.isHeldByCurrentThread"),
        case("read-hold-count", "The caller reads twice.", |s| {
            s.java_reads("<me>", 2, "20000", "20000");
        })
        .java("readLock.holdCount"),
        case("write-hold-count", "The caller writes twice.", |s| s.java_writes("<me>", 2, "20000"))
            .java("writeLock.holdCount"),
        case("remaining", "How long the lock lives, whoever holds it.", |s| {
            s.java_writes("<first>", 1, "20000");
        })
        .java("readLock.remainTimeToLive"),
    ]
}

fn waiting() -> Vec<Case> {
    let told = |call: &str, message: &str| {
        json!({
            "under_way": { "call": call },
            "does": { "publish": ["redisson_rwlock:{a}", message] },
        })
    };
    vec![
        case(
            "read-told",
            "A waiting reader is told that a writer has left: it reads, and listens no more.",
            |_| {},
        )
        .java_part(told("readLock.lock", "1")),
        case(
            "write-told",
            "A waiting writer is told that the last reader has left: it writes.",
            |_| {},
        )
        .java_part(told("writeLock.lock", "0")),
        case(
            "read-told-too-late",
            "A waiting reader is told, and another writer was faster: it waits on.",
            |s| {
                s.java_writes("<first>", 1, "20000");
            },
        )
        .java_part(told("readLock.lock", "1")),
        case(
            "write-told-too-late",
            "A waiting writer is told, and readers were faster: it waits on.",
            |s| {
                s.java_reads("<first>", 1, "20000", "20000");
            },
        )
        .java_part(told("writeLock.lock", "1")),
        case(
            "expiry",
            "The leases of readers end: the lock goes with their keys, nobody is told.",
            |s| {
                s.java_reads("<first>", 1, "5000", "5000");
            },
        )
        .java_part(json!({ "does": { "advance_ms": 5001 } })),
        case("gives-up", "A timed wait is over: nothing of it is left.", |s| {
            s.java_writes("<first>", 1, LEASE);
        })
        .java_part(json!({
            "under_way": { "call": "readLock.tryLock", "args": [1000, 5000] },
            "does": { "advance_ms": 1000 },
        })),
    ]
}
