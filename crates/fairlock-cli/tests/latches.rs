//! `fairlock latch`.

use std::fs::File;
use std::thread;

use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{Outcome, alone, fairlock, finish};

fn latch(url: &str, args: &[&str]) -> Outcome {
    finish(fairlock([&["latch", "--url", url, "import"][..], args].concat()))
}

#[test]
fn it_is_set_counted_down_and_waited_for() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}/locks", dir.path().display());
    let said = |args: &[&str], code: i32| {
        let outcome = latch(&url, args);
        outcome.expect(code, "");
        outcome.stdout
    };
    assert_eq!(said(&["--wait"], 1), "import: gone: deleted, lost, set again, or never set\n");
    assert_eq!(said(&["--set", "2"], 0), "import: set to 2\n");
    assert_eq!(said(&["--set", "9"], 1), "import: is set already, 2 left\n");
    assert_eq!(said(&["--wait", "--wait-for", "0"], 75), "import: not open in time\n");
    assert_eq!(said(&["--down"], 0), "import: 1 left\n");
    let waiting = thread::spawn({
        let url = url.clone();
        move || latch(&url, &["--wait", "--wait-for", "60s"])
    });
    // Whether it has looked before or looks after this, it was counted down.
    assert_eq!(said(&["--down"], 0), "import: open\n");
    let waited = waiting.join().unwrap();
    waited.expect(0, "");
    assert_eq!(waited.stdout, "import: counted down\n");
    assert_eq!(said(&["--wait", "--quiet"], 0), "");
}

#[test]
fn its_json_is_one_object() {
    let dir = TempDir::new();
    let url = format!("sqlite:{}/locks", dir.path().display());
    for (args, code, state, count) in [
        (&["--set", "2"][..], 0, "set", "2"),
        (&["--set", "2"], 1, "closed", "2"),
        (&["--wait", "--wait-for", "10ms"], 75, "closed", "null"),
        (&["--down"], 0, "closed", "1"),
        (&["--down"], 0, "open", "0"),
        (&["--wait"], 0, "counted_down", "null"),
        (&["--show"], 1, "open", "0"),
        (&["--delete"], 1, "open", "0"),
        (&["--set", "2"], 0, "set", "2"),
        (&["--show"], 0, "closed", "2"),
        (&["--delete"], 0, "deleted", "0"),
        (&["--wait"], 1, "gone", "null"),
    ] {
        let outcome = latch(&url, &[args, &["--json"]].concat());
        outcome.expect(code, "");
        let expected = format!(
            r#"{{"count":{count},"name":"import","name_hex":null,"schema":1,"state":"{state}"}}"#
        );
        assert_eq!(outcome.stdout, format!("{expected}\n"));
    }
}

#[test]
fn wrong_usage_is_refused() {
    for (args, says) in [
        (&[][..], "--set <N>|--down|--wait|--delete|--show"),
        (&["--set", "0"], "0 is not in 1..9007199254740992"),
        (&["--set", "-1"], "--set"),
        (&["--set", "9007199254740992"], "is not in"),
        (&["--set", "1", "--down"], "cannot be used with"),
        (&["--down", "--wait-for", "1s"], "--wait"),
        (&["--wait", "--wait-for", "soon"], "a duration"),
    ] {
        latch("memory:", args).expect(64, says);
    }
}

/// Who is told 70 and counts down once more counts twice.
#[test]
fn an_answer_that_cannot_be_written_says_that_it_was_done() {
    let url = alone();
    latch(&url, &["--set", "2"]).expect(0, "");
    let mut down = fairlock(["latch", "--url", &url, "import", "--down"]);
    down.stdout(File::options().write(true).open("/dev/full").expect("Linux"));
    finish(down).expect(70, "it was done all the same: 1 left");
    assert_eq!(latch(&url, &["--show"]).stdout, "import: 1 left\n");
}
