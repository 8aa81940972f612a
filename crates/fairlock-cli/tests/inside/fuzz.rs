//! Any command line and any file leads to a result or an error, and neither shows a password.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use clap::FromArgMatches as _;
use fairlock_testkit::fuzz::{cases, corpus, input, texts};

use crate::args::Cli;
use crate::base::url::{self, ChildUrl};
use crate::base::{duration, message};
use crate::help;
use crate::settings::configuration::Settings;

/// Arguments are separated by a byte that no argument can contain.
#[test]
fn arguments() {
    let corpus = corpus(&[
        "run\0job\0--\0sleep\x001",
        "run\0--lease\x0030s\0--wait\x005m\0--kind\0plain\0job\0--\0true",
        "run\0--url\0redis://ann:CANARY@h:1/0\0--grace\x0010s\0--on-lost\0ignore\0job\0--\0make",
        "run\0--replicas\0all\0--label\0web 1\0job",
        "status\0--json\0--exit-code\0job",
        "list\0--url\0redis+sentinel://:CANARY@a,b/m\0--json",
        "unlock\0--force\0--yes\0--kind\0simple\0job",
        "top\0--config\0/etc/fairlock.toml",
        "run\0--permits\x003\0--take\x002\0job\0--\0true",
        "run\0--shared\0--kind\0rw\0job",
        "completions\0bash",
        "man\0--help\0-V\0-q",
    ]);
    cases("arguments", 500, |rng| {
        let bytes = input(rng, &corpus);
        let mut words = vec![OsString::from("fairlock")];
        words.extend(bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())));
        let matches = help::command().try_get_matches_from(words);
        if let Err(error) = matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
            let told = message::redact(&error.to_string());
            let whole = |word: &[u8]| word.starts_with(b"redis://ann:CANARY@");
            let secret = bytes.split(|byte| *byte == 0).any(whole);
            let elsewhere = bytes.windows(6).filter(|word| word == b"CANARY").count() > 1;
            assert!(!secret || elsewhere || !told.contains("CANARY"), "{told}");
        }
    });
}

#[test]
fn files() {
    let files = [
        "# ours\nurl = \"redis://ann:CANARY@h\"\npassword-file = '/p'\nscope = \"fleet\"\n",
        "label = \"a b\"\nreplicas = \"all\"\njava-fleet = true\n",
        "[store]\nurl = '''x'''\n",
        "url = \"\\u00e4\"\nscope = 1979-05-27T07:32:00Z\nreplicas = { a = [1, 2.5, true] }\n",
    ];
    texts("configuration files", 10_000, &files, |text| {
        if let Err(failure) = Settings::parse(Path::new("/c.toml"), text) {
            let told = failure.to_string();
            assert!(told.starts_with("/c.toml") && told.len() < 1_000, "{told}");
            let as_value = text.contains("url = \"redis://ann:CANARY@h\"\n");
            assert!(
                !as_value || text.matches("CANARY").count() > 1 || !told.contains("CANARY"),
                "{told}"
            );
        }
    });
}

#[test]
fn durations() {
    let durations = ["500ms", "10s", "5m", "1h", "0", "18446744073709551615h", "1.5s", "-1s"];
    texts("durations", 20_000, &durations, |text| {
        if let Ok(duration) = duration::parse(text) {
            assert!(!duration::human(duration).is_empty());
        }
        let _ = duration::parse_positive(text);
    });
}

/// The URL that a command sees contains no password.
#[test]
fn urls_for_commands() {
    let urls = [
        "redis://ann:CANARY@h:1/0?replicas=2",
        "redis+sentinel://:CANARY@a:1,b:2/m?sentinel-password=CANARY",
        "unix:/run/r.sock?user=ann&password=CANARY",
    ];
    texts("urls for commands", 20_000, &urls, |text| {
        let _ = (message::redact(text), url::variables(text));
        if let ChildUrl::Stripped(clean) = url::child_url(text.as_ref()) {
            assert!(clean.len() < text.len(), "{text}: {clean}");
            // Applied again, it changes nothing.
            assert_eq!(url::child_url(clean.as_ref()), ChildUrl::Unchanged, "{text}: {clean}");
        }
    });
}
