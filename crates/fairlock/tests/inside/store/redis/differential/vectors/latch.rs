//! Latches. The count and the channel are Redisson's; the note and the markers of requests are ours.

use super::case::{Case, Stage};
use serde_json::json;

const NOTE: &str = "fairlock_latch:{a}";
const MARKER: &str = "fairlock_counted:{a}:<request>";
const DAY: &str = "86400000";
const MARKED: &str = "36000";
const NOT_AFTER: &str = "<now+30000>";

fn case(name: &'static str, title: &'static str, before: fn(&mut Stage<'_>)) -> Case {
    Case::new("latch", name, title, before)
}

/// One of ours set it.
fn is_set(s: &mut Stage<'_>, count: &str) {
    s.at(-9000);
    s.does("latch_set", &["<request1>", MARKED, NOT_AFTER, count], " latch 1 ");
    s.at(-1000);
}

pub(super) fn cases() -> Vec<Case> {
    let all = [setting(), counting(), deleting(), looking(), telling(), others()];
    all.into_iter().flatten().collect()
}

fn setting() -> Vec<Case> {
    let set = |case: Case| case.ours("latch_set", &["<request>", MARKED, NOT_AFTER, "3"]);
    vec![
        set(case("set", "A latch that was never set.", |_| {}).java_with("trySetCount", json!([3]))),
        set(case("set-again", "It is set, and stays as it is.", |s| is_set(s, "2"))
            .java_with("trySetCount", json!([3]))),
        set(case("set-after-the-end", "It was counted down, and another begins.", |s| {
            is_set(s, "1");
            s.does("latch_count_down", &["<request2>", MARKED, NOT_AFTER], " latch 1 0 ");
        })
        .java_with("trySetCount", json!([3]))),
        set(case(
            "set-after-the-clock-went-back",
            "Another begins after one that is ahead of the clock.",
            |s| {
                s.redis(&[
                    "HSET",
                    NOTE,
                    "generation",
                    "<now_us+500000>",
                    "opened",
                    "<now_us+500000>",
                ]);
                s.redis(&["PEXPIRE", NOTE, DAY]);
            },
        )),
        set(case("set-copy", "The reply was lost, and the request comes again.", |s| {
            s.at(-9000);
            s.does("latch_set", &["<request>", MARKED, NOT_AFTER, "3"], " latch 1 ");
        })),
        set(case(
            "set-copy-of-a-refused-one",
            "It was refused, its reply was lost, and it comes again after the end of the latch.",
            |s| {
                is_set(s, "1");
                s.does("latch_set", &["<request>", MARKED, NOT_AFTER, "3"], " latch 0 ");
                s.does("latch_count_down", &["<request2>", MARKED, NOT_AFTER], " latch 1 0 ");
            },
        )),
    ]
}

fn counting() -> Vec<Case> {
    let down = |case: Case| case.ours("latch_count_down", &["<request>", MARKED, NOT_AFTER]);
    vec![
        down(case("count-down", "Two are left.", |s| is_set(s, "3")).java("countDown")),
        down(
            case("count-down-to-zero", "The last one: it is open, and all are told.", |s| {
                is_set(s, "1");
            })
            .java("countDown"),
        ),
        down(case("count-down-copy", "The reply was lost, and the request comes again.", |s| {
            is_set(s, "3");
            s.does("latch_count_down", &["<request>", MARKED, NOT_AFTER], " latch 1 2 ");
        })),
        down(case("count-down-copy-of-the-last", "The same of the one that opened it.", |s| {
            is_set(s, "1");
            s.does("latch_count_down", &["<request>", MARKED, NOT_AFTER], " latch 1 0 ");
        })),
        down(case("count-down-open", "It is open, and stays open.", |_| {}).java("countDown")),
        down(
            case("count-down-javas-to-zero", "Java has set it: a note is made of its end.", |s| {
                s.redis(&["SET", "a", "1"]);
            })
            .java("countDown"),
        ),
        down(case("count-down-of-a-number-with-a-ttl", "It may be another program's lock.", |s| {
            s.redis(&["SET", "a", "3", "PX", "5000"]);
        })),
        down(case("count-down-after-its-note-is-lost", "Its end gets a note of its own.", |s| {
            is_set(s, "1");
            s.redis(&["DEL", NOTE]);
        })),
    ]
}

fn deleting() -> Vec<Case> {
    let delete = |case: Case| case.ours("latch_delete", &["<request>", MARKED, NOT_AFTER]);
    vec![
        delete(case("delete", "It is gone, and all are told.", |s| is_set(s, "3")).java("delete")),
        delete(case("delete-open", "There is none.", |_| {}).java("delete")),
        delete(case("delete-copy", "The request comes again, after another was set.", |s| {
            is_set(s, "3");
            s.does("latch_delete", &["<request>", MARKED, NOT_AFTER], " latch 1 ");
            s.does("latch_set", &["<request2>", MARKED, NOT_AFTER, "7"], " latch 1 ");
        })),
    ]
}

fn looking() -> Vec<Case> {
    let look = |case: Case| case.ours("latch_look", &[]);
    let first = |case: Case| case.ours("latch_look", &["0"]);
    let knows = |case: Case| case.ours("latch_look", &["<now_us-9000000>"]);
    vec![
        look(
            case("look", "Somebody looks, and does not wait.", |s| is_set(s, "3")).java("getCount"),
        ),
        look(case("look-at-javas", "The same where Java has set it: nothing is changed.", |s| {
            s.redis(&["SET", "a", "3"]);
        })),
        look(
            case("look-open", "It was counted down.", |s| {
                is_set(s, "1");
                s.does("latch_count_down", &["<request2>", MARKED, NOT_AFTER], " latch 1 0 ");
            })
            .java("getCount"),
        ),
        first(case("wait", "Somebody begins to wait.", |s| is_set(s, "3")).java("await")),
        first(case("wait-for-javas", "The same where Java has set it: it gets a note.", |s| {
            s.redis(&["SET", "a", "3"]);
        })),
        first(case("wait-for-nothing", "There is none: nothing is noted.", |_| {}).java("await")),
        knows(case("wait-goes-on", "Somebody waits for this one.", |s| is_set(s, "3"))),
        knows(case("wait-mends-the-note", "The note is lost: those who wait know it.", |s| {
            is_set(s, "3");
            s.redis(&["DEL", NOTE]);
        })),
        knows(case("wait-keeps-the-note", "Half of its time is over.", |s| {
            is_set(s, "3");
            s.redis(&["PEXPIRE", NOTE, "43000000"]);
        })),
        knows(case("wait-for-the-former", "Another was set meanwhile.", |s| {
            is_set(s, "3");
            s.does("latch_delete", &["<request2>", MARKED, NOT_AFTER], " latch 1 ");
            s.does("latch_set", &["<request3>", MARKED, NOT_AFTER, "7"], " latch 1 ");
        })),
    ]
}

/// What a waiter of Java's is told; ours look instead.
fn telling() -> Vec<Case> {
    let told = |message: &str| {
        json!({
            "under_way": { "call": "await" },
            "does": { "publish": ["redisson_countdownlatch__channel__{a}", message] },
        })
    };
    vec![
        case("told", "It is told that the latch is open, and listens no more.", |_| {})
            .java_part(told("0")),
        case("told-too-late", "The same, and another was set meanwhile: it waits on.", |s| {
            s.redis(&["SET", "a", "2"]);
        })
        .java_part(told("0")),
        case("told-of-another", "It is told that one was set, and waits on.", |s| {
            s.redis(&["SET", "a", "2"]);
        })
        .java_part(told("1")),
        case("gives-up", "A timed wait is over: it listens no more.", |s| {
            s.redis(&["SET", "a", "1"]);
        })
        .java_part(json!({
            "under_way": { "call": "await", "args": [1000] },
            "does": { "advance_ms": 1000 },
        })),
    ]
}

fn others() -> Vec<Case> {
    let down = |case: Case| case.ours("latch_count_down", &["<request>", MARKED, NOT_AFTER]);
    vec![
        down(case("kind-of-a-lock", "Somebody holds a lock of that name.", |s| {
            s.redis(&["HSET", "a", "<first>", "1"]);
            s.redis(&["PEXPIRE", "a", "30000"]);
        })),
        down(case("kind-of-a-text", "A string that is no count.", |s| {
            s.redis(&["SET", "a", "some text"]);
        })),
        down(case("kind-of-too-much", "A number above 2^53 - 1.", |s| {
            s.redis(&["SET", "a", "9007199254740992"]);
        })),
        down(case("marker-of-another-request", "Another request has counted before.", |s| {
            is_set(s, "3");
            s.does("latch_count_down", &["<request2>", MARKED, NOT_AFTER], " latch 1 2 ");
            s.redis(&["DEL", MARKER]);
        })),
    ]
}
