//! Semaphores. Redisson's have other keys, and no owners; so only ours are here.

use super::case::{Case, LEASE, SECOND, Stage, TOKEN};

const OWN_TOKEN: &str = "<now_us-9000000>";
const LATER: &str = "<now+30000>";

const LEASES: &str = "fairlock_sem_leases:{a}";
const HOLDS: &str = "fairlock_sem_holds:{a}";
const OTHER_LINE: &str = "fairlock_rw_order:{a}";

fn case(name: &'static str, title: &'static str, before: fn(&mut Stage<'_>)) -> Case {
    Case::new("semaphore", name, title, before)
}

pub(super) fn cases() -> Vec<Case> {
    [acquiring(), releasing(), waiting(), others()].into_iter().flatten().collect()
}

/// The caller has two of two permits, and others wait for one each.
fn all_are_taken(s: &mut Stage<'_>) {
    s.at(-9000);
    s.holds("<me>", "2/2");
    s.at(-5000);
    s.waits("<ours1>", "1/2");
    s.waits(SECOND, "1/2");
    s.at(-1000);
    s.waits("<ours2>", "1/2");
    s.beats("<ours1>");
}

fn acquiring() -> Vec<Case> {
    vec![
        case("acquire-free", "Nobody has a permit.", |_| {}).asks("W", "1/3"),
        case(
            "acquire-many",
            "Two permits beside one that somebody has: all three are in use then.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "1/3");
            },
        )
        .asks("W", "2/3"),
        case(
            "acquire-beside-another-limit",
            "Others hold under another limit: the reply says so.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "1/3");
            },
        )
        .asks("W", "1/2"),
        case("acquire-waits", "Too few are left: the caller waits.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "2/3");
        })
        .asks("W", "2/3"),
        case(
            "acquire-above-the-limit",
            "One permit of a limit that is in use by others: the caller waits.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "3/3");
            },
        )
        .asks("W", "1/2"),
        case(
            "acquire-behind-a-wide-one",
            "One permit is left, but the head of the line wants two.",
            |s| {
                s.at(-9000);
                s.holds("<ours1>", "2/3");
                s.at(-1000);
                s.waits("<ours2>", "2/3");
            },
        )
        .listening(&["ours2"])
        .asks("W", "1/3"),
        case("try-busy", "A try gets nothing while others wait.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "2/3");
            s.at(-1000);
            s.waits("<ours2>", "2/3");
        })
        .listening(&["ours2"])
        .asks("T", "1/3"),
        case("acquire-copy", "The reply was lost, and the request comes again.", |s| {
            s.at(-9000);
            s.holds("<me>", "2/3");
        })
        .asks("W", "2/3"),
        case("acquire-buried", "The request was given up.", |s| {
            s.redis(&["SET", "fairlock_buried:{a}:<request>", "1", "PX", "36000"]);
        })
        .asks("W", "1/3"),
    ]
}

fn releasing() -> Vec<Case> {
    vec![
        case("release", "The last permit comes back. Nobody is told.", |s| {
            s.at(-9000);
            s.holds("<me>", "1/3");
        })
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case(
            "release-one-of-many",
            "One of two holders leaves; the lock ends with the lease of the other.",
            |s| {
                s.at(-9000);
                s.holds_for("<me>", "1/3", "60000");
                s.at(-8000);
                s.holds("<ours1>", "2/3");
            },
        )
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case(
            "release-hands-over",
            "The head of the line gets the permit, and is told in its inbox.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "1/1");
                s.at(-1000);
                s.waits("<ours1>", "1/1");
                s.waits("<ours2>", "1/1");
            },
        )
        .listening(&["ours1", "ours2"])
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case(
            "release-hands-over-beside-others",
            "The same while somebody else holds a permit.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "1/2");
                s.at(-8000);
                s.holds("<ours3>", "1/2");
                s.at(-1000);
                s.waits("<ours1>", "1/2");
                s.waits("<ours2>", "1/2");
            },
        )
        .listening(&["ours1", "ours2"])
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case(
            "release-to-several",
            "Two permits come back: two waiters of one client get one each, by one message.",
            all_are_taken,
        )
        .listening(&["ours1", "ours2"])
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case(
            "release-not-enough",
            "One permit comes back, and the head of the line wants two.",
            |s| {
                s.at(-9000);
                s.holds("<me>", "1/2");
                s.at(-8000);
                s.holds("<ours2>", "1/2");
                s.at(-1000);
                s.waits("<ours1>", "2/2");
            },
        )
        .listening(&["ours1"])
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case("release-partial", "One of two holds of the same permit: it is kept.", |s| {
            s.at(-9000);
            s.holds("<me>", "2/3");
            s.does(
                "share_reenter",
                &["<me>", OWN_TOKEN, "<request>", "2", "1", "<now+30000>"],
                " held 2",
            );
        })
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>", "1", "2"]),
        case("release-of-another-token", "The hold is another than the one that is named.", |s| {
            s.at(-9000);
            s.holds("<me>", "1/3");
        })
        .ours("share_release", &["<me>", "<now_us-9000001>", "<request>"]),
        case("re-enter", "One hold more of the same permits.", |s| {
            s.at(-9000);
            s.holds("<me>", "2/3");
        })
        .ours("share_reenter", &["<me>", OWN_TOKEN, "<request>", "2", "1", "<now+30000>"]),
        case("renew", "A holder renews.", |s| {
            s.at(-9000);
            s.holds("<me>", "1/3");
            s.at(-8000);
            s.holds("<ours1>", "1/3");
        })
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", LEASE, "<now+30000>"]),
    ]
}

fn waiting() -> Vec<Case> {
    vec![
        case("leave", "One that wants two gives up, and is buried: the one behind it gets the permit that is left.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "2/3");
            s.at(-1000);
            s.waits("<me>", "2/3");
            s.waits("<ours2>", "1/3");
        })
        .listening(&["me", "ours2"])
        .ours("share_leave", &["<me>", "<request>", "36000", "0"]),
        case("leave-frees", "The permit came meanwhile: it is given back.", |s| {
            s.at(-9000);
            s.holds("<me>", "1/3");
        })
        .ours("share_leave", &["<me>", "<request>", "36000", "0"]),
        case("beat-waits", "The waiter stands in the line.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "1/1");
            s.at(-3000);
            s.waits("<me>", "1/1");
        })
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case("beat-tells-of-grants", "The message of a hand-over was lost: the reply says the same.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "1/1");
            s.at(-3000);
            s.waits("<me>", "1/1");
            s.does("share_release", &["<ours1>", OWN_TOKEN, "<request1>"], " released");
        })
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case("lease-ended", "A dead holder's lease is over: its permit goes to the head of the line.", |s| {
            s.at(-9000);
            s.holds_for("<ours1>", "1/2", "7000");
            s.holds("<ours2>", "1/2");
            s.at(-3500);
            s.waits("<me>", "1/2");
        })
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case("nudge-past-the-dead", "A head that does not fit is dead: the one behind it gets the permit.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "2/3");
            s.waits("<ours2>", "2/3");
            s.at(-5500);
            s.waits("<ours3>", "1/3");
            s.at(-3000);
            s.beats("<ours3>");
        })
        .listening(&["ours3"])
        .ours("share_nudge", &[]),
    ]
}

fn others() -> Vec<Case> {
    vec![
        case("force", "All lose their permits, and each is told.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "1/2");
            s.at(-8000);
            s.holds("<ours2>", "1/2");
        })
        .listening(&["ours1", "ours2"])
        .ours("share_force", &[]),
        case("inspect", "Two hold permits under two limits, and one waits.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "2/4");
            s.at(-8000);
            s.holds("<ours2>", "1/3");
            s.at(-1000);
            s.waits("<ours3>", "2/4");
        })
        .listening(&["ours3"])
        .ours("share_inspect", &["10"]),
        case("place", "One stands before it.", all_are_taken)
            .listening(&["ours1", "ours2"])
            .ours("share_place", &[SECOND]),
        case("kind-of-a-read-write-lock", "A read-write lock has the name: refused.", |s| {
            s.java_reads("<first>", 1, "20000", "20000");
        })
        .asks("W", "1/3"),
        case("kind-of-a-plain-lock", "A plain or a fair lock has the name: refused.", |s| {
            s.redis(&["HSET", "a", "<first>", "1"]);
            s.redis(&["PEXPIRE", "a", "20000"]);
        })
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
        case("kind-of-redissons-semaphore", "A semaphore of Redisson's has the name: refused.", |s| {
            s.redis(&["SET", "a", "3"]);
        })
        .asks("W", "1/3"),
        case("kind-of-a-read-write-locks-line", "Somebody waits for a read-write lock of the name: whoever would have to wait is refused.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "1/1");
            s.redis(&["ZADD", OTHER_LINE, OWN_TOKEN, "<ours2>"]);
        })
        .asks("W", "1/1"),
        case("kind-asked-for-a-plain-lock", "A plain lock is asked for where somebody has a permit: refused.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "1/1");
        })
        .ours("plain_acquire", &["<me>", "<request>", LEASE, LATER, "T"]),
        case("mend-a-lost-lease", "The leases were lost: those who hold by the lock get one.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "1/2");
            s.holds("<ours2>", "1/2");
            s.at(-1000);
            s.waits("<me>", "1/2");
            s.redis(&["DEL", LEASES]);
        })
        .listening(&["me"])
        .ours("share_beat", &["<me.client>", "<me>"]),
        case("mend-a-lost-record", "The records of the holders were lost: the field alone names the hold.", |s| {
            s.at(-9000);
            s.holds("<me>", "2/3");
            s.redis(&["DEL", HOLDS]);
        })
        .ours("share_renew", &["<me>", OWN_TOKEN, "<request>", LEASE, "<now+30000>"]),
        case("mend-a-lost-lock", "The lock was deleted: what is known of its holders goes with it.", |s| {
            s.at(-9000);
            s.holds("<ours1>", "3/3");
            s.redis(&["DEL", "a"]);
        })
        .asks("W", "1/3"),
        case("release-lost-token", "The token's key was lost: a release puts it back.", |s| {
            s.at(-9000);
            s.holds("<me>", "1/3");
            s.redis(&["DEL", TOKEN]);
        })
        .ours("share_release", &["<me>", OWN_TOKEN, "<request>"]),
    ]
}
