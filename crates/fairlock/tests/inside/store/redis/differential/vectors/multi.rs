//! Several locks in one call: a fair lock `a`, and `b`, `c` and `d` as a reader, a writer, and for permits.

use super::case::{Case, LEASE, Stage};

const LATER: &str = "<now+30000>";
/// What is asked for of each.
const SHARES: [&str; 4] = ["-", "r", "w", "2/3"];

fn case(name: &'static str, title: &'static str, before: fn(&mut Stage<'_>)) -> Case {
    Case::new("multi", name, title, before)
}

/// The arguments of a call for all four. Each is asked for by an owner and a request of its own.
fn all(client: &str, not_after: &str) -> Vec<String> {
    let requests = match client {
        "<me.client>" => ["<request>", "<request1>", "<request2>", "<request3>"],
        _ => ["<request4>", "<request5>", "<request6>", "<request7>"],
    };
    let of = |(at, (share, request)): (usize, (&str, &str))| {
        let owner = format!("{client}:{}", at + 1);
        [&owner, request, LEASE, not_after, "T", share].map(str::to_owned)
    };
    SHARES.into_iter().zip(requests).enumerate().flat_map(of).collect()
}

fn takes_all(s: &mut Stage<'_>, client: &str) {
    let argv = all(client, LATER);
    let taken = s.takes(&argv.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(taken, "all are free");
}

pub(super) fn cases() -> Vec<Case> {
    let asks = |case: Case| {
        let argv = all("<me.client>", LATER);
        case.ours("multi_try", &argv.iter().map(String::as_str).collect::<Vec<_>>())
    };
    vec![
        asks(case("take-all", "All are free.", |_| {})),
        asks(case("take-all-after-others", "All are free; each had tokens before.", |s| {
            s.redis(&["SET", "redisson_lock_token:{a}", "<now_us-9000000>", "PX", "86400000"]);
            s.redis(&["SET", "redisson_lock_token:{b}", "<now_us+5>", "PX", "86400000"]);
            s.redis(&["SET", "redisson_lock_token:{d}", "7", "PX", "86400000"]);
        })),
        asks(case("take-beside-a-reader", "Java reads: the reader joins it.", |s| {
            s.redis(&["HSET", "b", "mode", "read", "<first>", "1"]);
            s.redis(&["SET", "{b}:<first>:rwlock_timeout:1", "1", "PX", "30000"]);
            s.redis(&["PEXPIRE", "b", "30000"]);
        })),
        asks(case("first-is-held", "Java holds the fair lock: nothing is changed.", |s| {
            s.redis(&["HSET", "a", "<first>", "1"]);
            s.redis(&["PEXPIRE", "a", "30000"]);
        })),
        asks(case("first-is-waited-for", "Somebody stands in the queue of the fair lock.", |s| {
            s.redis(&["RPUSH", "redisson_lock_queue:{a}", "<first>"]);
            s.redis(&["ZADD", "redisson_lock_timeout:{a}", "<now+300000>", "<first>"]);
        })),
        asks(case("second-is-written", "Java writes: there is no reader beside it.", |s| {
            s.redis(&["HSET", "b", "mode", "write", "<first>:write", "1"]);
            s.redis(&["PEXPIRE", "b", "30000"]);
        })),
        asks(case("third-is-read", "Java reads: there is no writer beside it.", |s| {
            s.redis(&["HSET", "c", "mode", "read", "<first>", "1"]);
            s.redis(&["SET", "{c}:<first>:rwlock_timeout:1", "1", "PX", "30000"]);
            s.redis(&["PEXPIRE", "c", "30000"]);
        })),
        asks(case("all-are-held", "Others of ours have all of them.", |s| {
            s.at(-9000);
            takes_all(s, "<ours1.client>");
        })),
        asks(case(
            "copy",
            "It has all of them already: that is left to the single requests.",
            |s| {
                s.at(-9000);
                takes_all(s, "<me.client>");
            },
        )),
        asks(case("last-is-buried", "One of the requests was given up.", |s| {
            s.redis(&["SET", "fairlock_buried:{d}:<request3>", "1", "PX", "36000"]);
        })),
        case("late", "The time until which it may be carried out is over.", |_| {}).ours(
            "multi_try",
            &all("<me.client>", "<now-1>").iter().map(String::as_str).collect::<Vec<_>>(),
        ),
        asks(case(
            "kind-of-a-text",
            "One of the keys is no lock: that is told of the lock alone.",
            |s| {
                s.redis(&["SET", "b", "some text"]);
            },
        )),
    ]
}
