//! `fairlock latch`.

use std::thread;
use std::time::Duration;

use fairlock_testkit::tempdir::TempDir;

use crate::fixture::{Outcome, fairlock, finish};

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
    assert_eq!(said(&["--wait"], 1), "import: gone: deleted, lost, or never set\n");
    assert_eq!(said(&["--set", "2"], 0), "import: set to 2\n");
    assert_eq!(said(&["--set", "9"], 1), "import: is set already, 2 left\n");
    assert_eq!(said(&["--wait", "--wait-for", "0"], 75), "import: not open in time\n");
    assert_eq!(said(&["--down"], 0), "import: 1 left\n");
    let waiting = thread::spawn({
        let url = url.clone();
        move || latch(&url, &["--wait", "--wait-for", "60s"])
    });
    thread::sleep(Duration::from_millis(200));
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
    ] {
        let outcome = latch(&url, &[args, &["--json"]].concat());
        outcome.expect(code, "");
        let expected =
            format!(r#"{{"count":{count},"name":"import","schema":1,"state":"{state}"}}"#);
        assert_eq!(outcome.stdout, format!("{expected}\n"));
    }
}

#[test]
fn wrong_usage_is_refused() {
    for (args, says) in [
        (&[][..], "--set <N>|--down|--wait"),
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
