//! What the command says of Java's clients, which are played by keys of their form.

use fairlock_testkit::raw::Raw;
use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::terminal::Terminal;
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{PROGRAM, Running, eventually, fairlock, finish, neutral, run_script, status};

const HOLDER: &str = "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51";

const WAITER: &str = "6a3c1a52-0f4e-4a1b-9c3d-1234567890ab:7";

fn holds(raw: &mut Raw, name: &str) {
    raw.call(&["HSET", name, HOLDER, "1"]);
    raw.call(&["PEXPIRE", name, "60000"]);
}

fn waits(raw: &mut Raw, name: &str) {
    raw.call(&["RPUSH", &format!("redisson_lock_queue:{{{name}}}"), WAITER]);
    raw.call(&["ZADD", &format!("redisson_lock_timeout:{{{name}}}"), "9000000000000", WAITER]);
}

fn queue(url: &str, name: &str) -> Vec<Value> {
    status(url, name)["queue"].as_array().expect("a list").clone()
}

/// A Java holder learns nothing of it, so whoever takes the lock away must.
#[test]
fn taking_a_lock_away_from_java_says_that_it_works_on() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    holds(&mut raw, "x");
    let unlocked = finish(fairlock(["unlock", "--force", "--url", &url, "x"]));
    unlocked.expect(0, "");
    let says = "the holder is a Java client: it is not told and works on; stop that thread";
    assert!(unlocked.stdout.ends_with(&format!("; {says}\n")), "{unlocked:?}");

    holds(&mut raw, "x");
    let args = ["unlock", "--force", "--url", &url, "x"];
    let Some(mut terminal) = Terminal::start((24, 200), PROGRAM, &args, neutral) else { return };
    let text = terminal.see("Take the lock away from it? [y/N]");
    assert!(text.contains(&format!("{says} first")), "{text}");
    terminal.keys("n\r");
    terminal.see("x: left alone");

    // Of others nothing is known.
    raw.call(&["DEL", "x"]);
    raw.call(&["HSET", "x", "somebody", "1"]);
    let unlocked = finish(fairlock(args)).stdout;
    let says = "the holder is another program: it is not told and works on; stop it";
    assert_eq!(
        unlocked,
        format!("x: unlocked; it was held by another program (somebody); {says}\n")
    );

    for (held, says) in [(HOLDER, "held by a Java client ("), ("no", "held by another program (")] {
        raw.call(&["DEL", "x"]);
        raw.call(&["HSET", "x", held, "1"]);
        finish(run_script(&url, &["--wait", "0"], "x", "true"))
            .expect(75, &format!("{says}{held})"));
    }
}

/// A token of ours stood beside a holder that has none.
#[test]
fn the_token_beside_a_java_holder_is_the_last_one() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    finish(run_script(&url, &[], "x", "true")).expect(0, "");
    holds(&mut raw, "x");
    let shown = || finish(fairlock(["status", "--url", &url, "x"])).stdout;
    assert!(shown().contains("\n  last token 1"), "{}", shown());
    let row = || {
        let table = finish(fairlock(["list", "--url", &url])).stdout;
        let row = table.lines().find(|line| line.starts_with("x ")).expect("a row");
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row()[5], "-", "{:?}", row());
    raw.call(&["DEL", "x"]);
    let mut ours = Running::start(run_script(&url, &[], "x", "echo holding; exec sleep 60"));
    assert_eq!(ours.line(), "holding");
    assert!(shown().contains("\n  token 1"), "{}", shown());
    assert!(row()[5].starts_with('1'), "{:?}", row());
}

/// Java waits for a dead waiter of ours until its score has passed. Any try removes it, and so does `unlock --force`, which
/// said nothing of it.
#[test]
fn a_dead_head_that_java_waits_for_is_removed() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let (url, mut raw) = (server.url(), server.client());
    for (args, code, stdout) in [
        (
            &["unlock", "--force"][..],
            1,
            "x: was not locked; silent waiters removed from its queue: 1\n",
        ),
        (&["run", "--wait", "0"], 75, ""),
    ] {
        raw.call(&["FLUSHALL"]);
        holds(&mut raw, "x");
        let dead = Running::start(run_script(&url, &[], "x", "true"));
        eventually("it waits", || queue(&url, "x").len() == 1);
        waits(&mut raw, "x");
        dead.signal(Signal::KILL);
        dead.wait();
        raw.call(&["DEL", "x"]);
        eventually("it is silent", || queue(&url, "x")[0]["alive"] == false);
        let mut command = fairlock(args);
        command.args(["--url", &url, "x"]);
        if args[0] == "run" {
            command.args(["--", "true"]);
        }
        let outcome = finish(command);
        assert_eq!((outcome.code(), outcome.stdout.as_str()), (code, stdout), "{outcome:?}");
        if args[0] == "run" {
            let says = format!("x: free, but it is the turn of a Java client ({WAITER})");
            assert!(outcome.stderr.contains(&says), "{outcome:?}");
        }
        let left = queue(&url, "x");
        assert_eq!((left.len(), &left[0]["owner"]), (1, &WAITER.into()), "{left:?}");
    }
    // A head of Java's is left.
    let again = finish(fairlock(["unlock", "--force", "--url", &url, "x"]));
    assert_eq!((again.code(), again.stdout.as_str()), (1, "x: was not locked\n"));
    assert_eq!(queue(&url, "x").len(), 1);
}
