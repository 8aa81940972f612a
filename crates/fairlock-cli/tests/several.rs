//! Several locks at once: `fairlock run A B -- cmd`.

use std::process::Command;
use std::thread;

use fairlock_testkit::server::{Generation, Server};
use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{Running, alone, eventually, fairlock, finish, hold_until, run_script};

/// Plays a test on the host store and on a server.
fn on_each(test: fn(&str)) {
    test(&alone());
    if let Some(server) = Server::start(Generation::Valkey91) {
        test(&server.url());
    }
}

fn run(url: &str, options: &[&str], names: &[&str], script: &str) -> Command {
    let of_all = [&["run", "--url", url], options, names, &["--", "sh", "-c", script]].concat();
    fairlock(of_all)
}

#[test]
fn both_are_held_and_the_command_has_their_tokens() {
    on_each(|url| {
        let script = "echo $FAIRLOCK_NAME_1=$FAIRLOCK_TOKEN_1 $FAIRLOCK_NAME_2=$FAIRLOCK_TOKEN_2 \
                      ${FAIRLOCK_NAME-none} ${FAIRLOCK_TOKEN-none} ${FAIRLOCK_NAME_3-none} \
                      ${FAIRLOCK_TOKEN_3-none} $FAIRLOCK_OWNERS";
        let mut command = run(url, &[], &["b", "a"], script);
        command.env("FAIRLOCK_TOKEN", "17").env("FAIRLOCK_NAME", "outer");
        command.env("FAIRLOCK_NAME_3", "outer").env("FAIRLOCK_TOKEN_3", "17");
        let outcome = finish(command);
        outcome.expect(0, "");
        let words: Vec<_> = outcome.stdout.split_whitespace().collect();
        let token = |word: &str, name: &str| {
            word.strip_prefix(name).and_then(|token| token.parse::<u64>().ok()).unwrap()
        };
        assert!(token(words[0], "b=") > 0 && token(words[1], "a=") > 0, "{words:?}");
        // Those of a run around it would be taken for this one's.
        assert_eq!(words[2..6], ["none"; 4]);
        assert_eq!(words.len(), 8, "two owners: {words:?}");

        let mut single =
            run(url, &[], &["a"], "echo ${FAIRLOCK_NAME_2-none} ${FAIRLOCK_TOKEN_2-none}");
        single.env("FAIRLOCK_NAME_2", "outer").env("FAIRLOCK_TOKEN_2", "17");
        assert_eq!(finish(single).stdout, "none none\n");
    });
}

/// On the host store the error named the first of the locks, which was free.
#[test]
fn an_error_names_the_lock_that_is_in_use_otherwise() {
    on_each(|url| {
        finish(fairlock(["latch", "--url", url, "parts", "--set", "3"])).expect(0, "");
        let outcome = finish(run(url, &[], &["free", "parts"], "true"));
        outcome.expect(64, "lock `parts`");
    });
}

#[test]
fn others_wait_for_each_of_them() {
    on_each(|url| {
        let dir = TempDir::new();
        let done = dir.path().join("done");
        let mut holds = Running::start(run(url, &[], &["a", "b"], &hold_until(&done)));
        assert_eq!(holds.line(), "holding");
        for name in ["a", "b"] {
            let taken = finish(run_script(url, &["--wait", "0"], name, "echo ran"));
            taken.expect(75, "held by");
            assert_eq!(taken.stdout, "");
        }
        // None of them is left held by a run that does not get all.
        finish(run(url, &["--wait", "0"], &["c", "b"], "echo ran"))
            .expect(75, "c, b: b is held by");
        finish(run(url, &["--wait", "100ms"], &["c", "b"], "echo ran"))
            .expect(75, "not acquired within 100ms: b is held by");
        finish(run_script(url, &["--wait", "0"], "c", "true")).expect(0, "");
        std::fs::write(&done, "").unwrap();
        assert_eq!(holds.wait().code(), 0);
        finish(run(url, &["--wait", "0"], &["c", "b", "a"], "true")).expect(0, "");
    });
}

#[test]
fn opposite_orders_get_on() {
    on_each(|url| {
        thread::scope(|scope| {
            for names in [["a", "b"], ["b", "a"]] {
                scope.spawn(move || {
                    for _ in 0..10 {
                        finish(run(url, &["--wait", "60s"], &names, "true")).expect(0, "");
                    }
                });
            }
        });
    });
}

#[test]
fn the_share_is_that_of_all() {
    on_each(|url| {
        let dir = TempDir::new();
        let done = dir.path().join("done");
        let mut reads = Running::start(run(url, &["--shared"], &["a", "b"], &hold_until(&done)));
        assert_eq!(reads.line(), "holding");
        finish(run(url, &["--shared", "--wait", "0"], &["b", "a"], "true")).expect(0, "");
        let writes = ["--kind", "rw", "--wait", "0"];
        finish(run(url, &writes, &["b", "c"], "true")).expect(75, "held");
        std::fs::write(&done, "").unwrap();
        assert_eq!(reads.wait().code(), 0);
        finish(run(url, &writes, &["b", "c"], "true")).expect(0, "");
    });
}

#[test]
fn the_loss_of_one_ends_the_command() {
    on_each(|url| {
        let mut holds = Running::start(run(url, &[], &["a", "b"], "echo holding; exec sleep 60"));
        assert_eq!(holds.line(), "holding");
        let force = finish(fairlock(["unlock", "--force", "--url", url, "b"]));
        assert_eq!(force.code(), 0, "{force:?}");
        let lost = holds.wait();
        lost.expect(76, "a, b: the lock was lost: it was taken away by force");
        eventually("both are free", || {
            finish(run(url, &["--wait", "0"], &["a", "b"], "true")).code() == 0
        });
    });
}

#[test]
fn what_several_names_cannot_have() {
    let url = &alone();
    finish(run(url, &[], &["a", "a"], "true")).expect(64, "the same lock is named twice");
    finish(run(url, &[], &["x", "{x}"], "true")).expect(64, "shares the queue");
    finish(run(url, &["--kind", "simple"], &["a", "b"], "true")).expect(64, "with a queue");
    finish(run(url, &["--once-per", "1h"], &["a", "b"], "true")).expect(64, "a second name");
    finish(fairlock(["run", "--url", url, "a", "b"])).expect(64, "several locks need a command");
    let many: Vec<_> = (0..33).map(|n| n.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    finish(run(url, &[], &many, "true")).expect(64, "at most 32");
}
