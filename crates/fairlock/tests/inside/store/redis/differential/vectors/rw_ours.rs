//! Read-write locks: what only ours do.

use super::case::{Case, LEASE, SECOND, Stage, TOKEN};

const OWN_TOKEN: &str = "<now_us-9000000>";
/// Of a holder that came a second later.
const NEXT_TOKEN: &str = "<now_us-8000000>";
const LATER: &str = "<now+30000>";

const LEASES: &str = "fairlock_rw_leases:{a}";
const HOLDS: &str = "fairlock_rw_holds:{a}";
const STATE: &str = "fairlock_rw_state:{a}";
const OTHER_LINE: &str = "fairlock_sem_order:{a}";

fn case(name: &'static str, title: &'static str, before: fn(&mut Stage<'_>)) -> Case {
    Case::new("rw", name, title, before)
}

pub(super) fn cases() -> Vec<Case> {
    [
        acquiring(),
        handing_over(),
        changing(),
        leaving(),
        beating(),
        ending(),
        looking(),
        meeting(),
        mending(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The caller writes, and of those who wait a reader's client has an owner more than one.
fn a_line(s: &mut Stage<'_>) {
    s.at(-9000);
    s.holds("<me>", "w");
    s.at(-5000);
    s.waits("<ours1>", "r");
    s.waits(SECOND, "r");
    s.at(-1000);
    s.waits("<ours2>", "r");
    s.beats("<ours1>");
    s.waits("<ours3>", "w");
}

/// The caller reads, and a writer waits.
fn a_writer_waits(s: &mut Stage<'_>) {
    s.at(-9000);
    s.holds("<me>", "r");
    s.at(-1000);
    s.waits("<ours1>", "w");
}

fn writers_wait(s: &mut Stage<'_>) {
    s.at(-9000);
    s.holds("<me>", "w");
    s.at(-1000);
    s.waits("<ours1>", "w");
}

/// The writer has left so many milliseconds ago, while somebody of Redisson's listened.
fn left_to_java(s: &mut Stage<'_>, ago_ms: i64) {
    writers_wait(s);
    s.at(-ago_ms);
    s.does("share_release", &["<me>", OWN_TOKEN], " released");
}

fn acquiring() -> Vec<Case> {
    vec![
        case("read-joins-the-phase", "One of ours reads: the caller gets the same token.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "r");
        })
        .asks("W", "r"),
        case(
            "read-after-java-mints",
            "Only Java reads: its writers mint nothing, so the token is new.",
            |s| {
                s.redis(&["SET", TOKEN, OWN_TOKEN, "PX", "600000000"]);
                s.java_reads("<first>", 1, "20000", "20000");
            },
        )
        .asks("W", "r"),
        case(
            "read-behind-a-waiting-writer",
            "A writer waits before it, so a reader waits beside readers.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "r");
                s.at(-1000);
                s.waits("<ours2>", "w");
            },
        )
        .listening(&["ours2"])
        .asks("W", "r"),
        case(
            "write-behind-ours",
            "One of ours writes: the caller stands behind another waiter.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "w");
                s.at(-1000);
                s.waits("<ours2>", "r");
            },
        )
        .listening(&["ours2"])
        .asks("Ws", "w"),
        case("try-read-beside-a-line", "A try takes nothing while somebody waits.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "r");
            s.at(-1000);
            s.waits("<ours2>", "w");
        })
        .listening(&["ours2"])
        .asks("T", "r"),
        case(
            "try-read-past-the-dead",
            "The only waiter has no inbox and was not heard of for long: a try passes it.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "r");
                s.waits("<ours2>", "w");
            },
        )
        .asks("T", "r"),
        case(
            "read-copy",
            "The reply was lost, and the request comes again: what is left of the lease.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "r");
            },
        )
        .asks("W", "r"),
        case("write-by-a-shared-owner", "Another request of the same owner holds it.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
        })
        .ours("share_acquire", &["<me>", "<request1>", LEASE, LATER, "Wo", "w"]),
        case("acquire-late", "The request arrives after its time.", |_| {})
            .ours("share_acquire", &["<me>", "<request>", LEASE, "<now-1>", "W", "w"]),
        case("acquire-buried", "The request was given up.", |s| {
            s.redis(&["SET", "fairlock_buried:{a}:<request>", "1", "PX", "36000"]);
        })
        .asks("W", "r"),
        case(
            "acquire-returns",
            "A waiter that was removed returns to its place, before one that came later.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "w");
                s.at(-1000);
                s.waits("<ours2>", "r");
            },
        )
        .listening(&["ours2", "me"])
        .asks("Ws<now_us-2000000>", "w"),
        case(
            "acquire-returns-after-loss",
            "Nothing is known of any waiter: for a heartbeat nobody is served.",
            |_| {},
        )
        .asks("Ws<now_us-2000000>", "w"),
    ]
}

fn handing_over() -> Vec<Case> {
    vec![
        case("release-to-a-cohort", "The writer leaves: the readers at the head of the line get their shares in one \
            script, and each client one message. The writer behind them waits on.", a_line)
        .listening(&["ours1", "ours2", "ours3"])
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("release-to-a-writer", "The writer leaves, and a writer is next. Java is told nothing: nobody else may come in.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.at(-1000);
            s.waits("<ours1>", "w");
        })
        .listening(&["ours1"])
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("release-to-java", "The writer leaves, a writer is next, and somebody of Redisson's listens: the lock is left free \
            for 30 ms, and the next one's client looks then.", writers_wait)
        .listening(&["ours1", "redisson_rwlock:{a}"])
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("beat-while-left-to-java", "The lock is left to Redisson's waiters: nobody of ours is served for 30 ms.", |s| {
            left_to_java(s, 10);
        })
        .listening(&["ours1", "redisson_rwlock:{a}"])
        .ours("share_beat", &["<ours1.client>", "<ours1>"]),
        case("beat-after-it-was-left-to-java", "Nobody of Redisson's came: the head gets the lock.", |s| {
            left_to_java(s, 30);
        })
        .listening(&["ours1", "redisson_rwlock:{a}"])
        .ours("share_beat", &["<ours1.client>", "<ours1>"]),
        case("release-of-the-last-reader-to-a-writer", "The last reader leaves, and a writer is next.", a_writer_waits)
            .listening(&["ours1"])
            .ours("share_release", &["<me>", OWN_TOKEN]),
        case("release-one-of-many", "One of two readers leaves; the writer waits for the other.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
            s.at(-8000);
            s.holds("<ours2>", "r");
            s.at(-1000);
            s.waits("<ours1>", "w");
        })
        .listening(&["ours1"])
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("release-of-the-longest-reader", "The reader with the longest lease leaves: the lock ends with the other's.", |s| {
            s.at(-9000);
            s.holds_for("<me>", "r", "60000");
            s.holds("<ours2>", "r");
        })
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("release-past-the-dead", "The head of the line has no inbox: it is removed, and the next gets the lock.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.at(-1000);
            s.waits("<ours1>", "w");
            s.waits("<ours2>", "w");
        })
        .listening(&["ours2"])
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("release-to-a-short-lease", "The next one's lease is shorter than what its heartbeat vouches for.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.at(-1000);
            s.does("share_acquire", &["<ours1>", "<request1>", "3000", LATER, "W", "w"], " queued ");
        })
        .listening(&["ours1"])
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("nudge", "The lock is free, and a call before had not come so far: the head gets it.", |s| {
            a_writer_waits(s);
            s.redis(&["DEL", "a", "{a}:<me>:rwlock_timeout:1"]);
        })
        .listening(&["ours1"])
        .ours("share_nudge", &[]),
    ]
}

fn changing() -> Vec<Case> {
    vec![
        case("release-partial-late", "A late copy of an older change does nothing.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
            s.does("share_reenter", &["<me>", OWN_TOKEN, "3", "2"], " held 3");
        })
        .ours("share_release", &["<me>", OWN_TOKEN, "2", "1"]),
        case("release-partial-read", "One of two holds of a reader: the lease stays.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
            s.does("share_reenter", &["<me>", OWN_TOKEN, "2", "1"], " held 2");
        })
        .ours("share_release", &["<me>", OWN_TOKEN, "1", "2"]),
        case("release-of-another-token", "The hold is another than the one that is named.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
        })
        .ours("share_release", &["<me>", "<now_us-9000001>"]),
        case("reenter-late", "A late copy of an older change does nothing.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.does("share_reenter", &["<me>", OWN_TOKEN, "3", "2"], " held 3");
        })
        .ours("share_reenter", &["<me>", OWN_TOKEN, "2", "1"]),
        case("downgrade", "A writer reads from now on, under its token; the readers at the head of the line come in, and \
            Java is told.", a_line)
        .listening(&["ours1", "ours2", "ours3"])
        .ours("share_downgrade", &["<me>", OWN_TOKEN, "1"]),
        case("downgrade-late", "A late copy of an older change does nothing.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.does("share_reenter", &["<me>", OWN_TOKEN, "2", "2"], " held 2");
        })
        .ours("share_downgrade", &["<me>", OWN_TOKEN, "1"]),
        case("downgrade-again", "A second copy finds a reader, and changes nothing else.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.does("share_downgrade", &["<me>", OWN_TOKEN, "1"], " held 1");
        })
        .ours("share_downgrade", &["<me>", OWN_TOKEN, "1"]),
    ]
}

fn leaving() -> Vec<Case> {
    vec![
        case("leave", "A writer gives up, and is buried: the reader behind it comes in.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "r");
            s.at(-1000);
            s.waits("<me>", "w");
            s.waits("<ours2>", "r");
        })
        .listening(&["me", "ours2"])
        .ours("share_leave", &["<me>", "<request>", "36000", "0"]),
        case("leave-frees", "The lock came meanwhile: it is given back.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
            s.at(-1000);
            s.waits("<ours1>", "r");
        })
        .listening(&["ours1"])
        .ours("share_leave", &["<me>", "<request>", "36000", "0"]),
        case("leave-of-another-request", "The hold is of another request: it stays.", |s| {
            s.at(-9000);
            s.holds("<me>", "w");
        })
        .ours("share_leave", &["<me>", "<request1>", "0", "0"]),
    ]
}

fn beating() -> Vec<Case> {
    vec![
        case("beat-waits", "A writer waits for a reader of Java's.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
            s.at(-3000);
            s.waits("<me>", "w");
        })
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case(
            "beat-tells-of-grants",
            "The message of a hand-over was lost: the reply says the same.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "w");
                s.at(-3000);
                s.waits("<me>", "r");
                s.does("share_release", &["<ours1>", OWN_TOKEN], " released");
            },
        )
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>", "<me.client>:8"]),
        case(
            "beat-past-a-dead-writer",
            "A writer that does not fit is dead by age and inbox: the reader behind it comes in.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "r");
                s.waits("<ours2>", "w");
                s.at(-5500);
                s.waits("<me>", "r");
                s.at(-3000);
                s.beats("<me>");
            },
        )
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case(
            "beat-after-a-silence",
            "Nobody was heard for long: age says nothing for a while.",
            |s| {
                s.at(-20000);
                s.holds("<ours1>", "r");
                s.waits("<ours2>", "w");
                s.waits("<me>", "r");
            },
        )
        .listening(&["me", "ours2"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case("beat-after-removal", "The waiter is not known any more.", |_| {})
            .ours("share_beat", &["<me.client>", "<me>"]),
    ]
}

fn ending() -> Vec<Case> {
    vec![
        case("lease-ended", "A dead reader's lease is over: it stands in nobody's way when the last living one leaves.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
            s.holds_for("<ours2>", "r", "5000");
            s.at(-1000);
            s.waits("<ours1>", "w");
        })
        .listening(&["ours1"])
        .ours("share_release", &["<me>", OWN_TOKEN]),
        case("lease-ended-beside-java", "All leases of ours are over, and Java reads: our dead leave its lock.", |s| {
            s.at(-9000);
            s.holds_for("<ours1>", "r", "5000");
            s.java_reads("<first>", 1, "60000", "60000");
        })
        .asks("W", "r"),
        case("lease-ended-renewal", "A lease is over: its holder cannot renew it.", |s| {
            s.at(-9000);
            s.holds_for("<me>", "r", "5000");
            s.holds("<ours1>", "r");
        })
        .ours("share_renew", &["<me>", OWN_TOKEN, LEASE]),
        case("renew-reader", "A reader renews; another's lease ends earlier now.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
            s.at(-8000);
            s.holds("<ours1>", "r");
        })
        .ours("share_renew", &["<me>", OWN_TOKEN, LEASE]),
        case("renew-after-java-made-it-anew", "Java ended the lock, and made another: the hold is over.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
            s.redis(&["DEL", "a", "{a}:<me>:rwlock_timeout:1"]);
            s.java_reads("<first>", 1, "60000", "60000");
        })
        .ours("share_renew", &["<me>", OWN_TOKEN, LEASE]),
        case("force", "All lose their shares, each is told, and the next in line gets the lock.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "r");
            s.at(-8000);
            s.holds("<ours2>", "r");
            s.java_reads("<first>", 1, "60000", "60000");
            s.at(-1000);
            s.waits("<ours3>", "w");
        })
        .listening(&["ours1", "ours2", "ours3"])
        .ours("share_force", &[]),
    ]
}

fn looking() -> Vec<Case> {
    vec![
        case("place", "One stands before it.", |s| {
            a_writer_waits(s);
            s.waits("<ours2>", "r");
        })
        .listening(&["ours1"])
        .ours("share_place", &["<ours2>"]),
        case("place-of-nobody", "It does not wait.", a_writer_waits)
            .listening(&["ours1"])
            .ours("share_place", &["<ours2>"]),
        case("inspect", "Two read, and a writer waits.", |s| {
            s.at(-9000);
            s.holds("<me>", "r");
            s.at(-8000);
            s.holds("<ours2>", "r");
            s.at(-1000);
            s.waits("<ours1>", "w");
        })
        .ours("share_inspect", &["10"]),
        case("inspect-java", "A writer of Java's.", |s| s.java_writes("<first>", 2, "20000"))
            .ours("share_inspect", &["10"]),
    ]
}

fn meeting() -> Vec<Case> {
    vec![
        case(
            "kind-of-a-plain-lock",
            "A plain or a fair lock has the name: refused. (Java's would take it for free.)",
            |s| {
                s.redis(&["HSET", "a", "<first>", "1"]);
                s.redis(&["PEXPIRE", "a", "20000"]);
            },
        )
        .java("readLock.lock")
        .asks("W", "r")
        .because(&[
            ("a", "Ours refuses a lock of another kind, and changes nothing."),
            (
                "{a}:<me>:rwlock_timeout:1",
                "Ours refuses a lock of another kind, and changes nothing.",
            ),
        ]),
        case("kind-of-a-semaphore", "A semaphore has the name: refused.", |s| {
            s.redis(&["HSET", "a", "mode", "permits", "<ours1>", "1"]);
            s.redis(&["PEXPIRE", "a", "20000"]);
        })
        .asks("W", "w"),
        case("kind-of-others", "A hash whose mode nobody knows: refused.", |s| {
            s.redis(&["HSET", "a", "mode", "dark", "volume", "11"]);
        })
        .ours("share_force", &[]),
        case("kind-of-a-simple-lock", "A string has the name: refused.", |s| {
            s.redis(&["SET", "a", "anything"]);
        })
        .asks("T", "r"),
        case(
            "kind-asked-for-a-fair-lock",
            "A fair lock is asked for where somebody reads: refused.",
            |s| {
                s.java_reads("<first>", 1, "20000", "20000");
            },
        )
        .ours("acquire", &["<me>", "<request>", LEASE, LATER, "W"]),
        case(
            "kind-of-a-fair-queue",
            "Somebody waits for a fair lock of the name: whoever would have to wait is refused.",
            |s| {
                s.java_writes("<first>", 1, "20000");
                s.redis(&["RPUSH", "redisson_lock_queue:{a}", "<second>"]);
            },
        )
        .asks("W", "r"),
        case(
            "kind-of-a-semaphores-line",
            "Somebody waits for a semaphore of the name: whoever would have to wait is refused.",
            |s| {
                s.java_writes("<first>", 1, "20000");
                s.redis(&["ZADD", OTHER_LINE, OWN_TOKEN, "<ours1>"]);
            },
        )
        .asks("W", "r"),
    ]
}

fn mending() -> Vec<Case> {
    vec![
        case(
            "mend-a-lost-lease",
            "The leases were lost: those who hold by the lock get one.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "r");
                s.holds("<ours2>", "r");
                s.redis(&["DEL", LEASES]);
                s.at(-1000);
                s.waits("<me>", "w");
            },
        )
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case("mend-a-lost-field", "One holder's field was taken away: its lease goes.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "r");
            s.at(-8000);
            s.holds("<ours2>", "r");
            s.redis(&["HDEL", "a", "<ours1>"]);
            s.at(-1000);
            s.waits("<me>", "w");
        })
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case(
            "mend-a-lock-without-end",
            "Somebody made the lock of Java's readers endless: it ends with their keys.",
            |s| {
                s.java_reads("<first>", 2, "40000", "40000");
                s.at(-1000);
                s.waits("<me>", "w");
                s.redis(&["PERSIST", "a"]);
            },
        )
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case(
            "mend-a-lock-without-holders",
            "Only the mode is left of the lock: it may be another program's, so it is refused, and ends by itself.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "r");
                s.at(-1000);
                s.waits("<me>", "w");
                s.redis(&["HDEL", "a", "<ours1>"]);
            },
        )
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case(
            "mend-a-lost-record",
            "The records of the holders were lost: the field alone names the hold.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "r");
                s.redis(&["DEL", HOLDS]);
            },
        )
        .ours("share_renew", &["<me>", OWN_TOKEN, LEASE]),
        case(
            "mend-a-lost-lock",
            "The lock was deleted: what is known of its holders goes with it.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "r");
                s.redis(&["DEL", "a", "{a}:<ours1>:rwlock_timeout:1"]);
            },
        )
        .asks("W", "w"),
        case(
            "mend-a-lost-waiter",
            "The record of the head was lost: nobody is served for a heartbeat, in which it returns to its place.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "w");
                s.at(-2000);
                s.waits("<ours2>", "w");
                s.waits("<ours3>", "w");
                s.redis(&["HDEL", STATE, "<ours2>"]);
            },
        )
        .listening(&["ours2", "ours3"])
        .ours("share_release", &["<ours1>", OWN_TOKEN]),
        case("release-lost-token", "The token's key was lost: a release puts it back.", |s| {
            s.at(-8000);
            s.holds("<me>", "w");
            s.redis(&["DEL", TOKEN]);
        })
        .ours("share_release", &["<me>", NEXT_TOKEN]),
    ]
}
