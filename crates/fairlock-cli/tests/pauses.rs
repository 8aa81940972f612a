//! Pauses of `fairlock`, of its guardian, of its command and of all three, that end in the last sixth of the lease.
//!
//! Each sample judges events, not times: either the command lived on under the same token, or a loss was reported, with
//! 76, or with a new term for `elect`. A few samples always run; `FAIRLOCK_PAUSES=1` runs all of them, in some 8 minutes.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testkit::server::{Generation, Server};
use rustix::process::{Signal, kill_process};

use crate::fixture::{
    Running, alone, children, eventually, fairlock, guardian, is_alive, pid, status,
};

/// Works until it is asked to end.
const WORK: &str = r#"exec 2>/dev/null
trap 'exit 3' TERM; echo "$FAIRLOCK_TOKEN"
while :; do sleep 0.02; done"#;

/// Samples at the same time. They mostly sleep.
const AT_ONCE: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Fairlock,
    Guardian,
    Command,
    All,
}

const EVERYBODY: [Whom; 4] = [Whom::Fairlock, Whom::Guardian, Whom::Command, Whom::All];

#[derive(Clone, Copy, Debug)]
struct Sample<'a> {
    /// Without one, a file of its own: a process that stands still within a transaction keeps all others out.
    server: Option<&'a str>,
    subcommand: &'a str,
    whom: Whom,
    lease_ms: u64,
    /// In which twelfth of the last sixth the pause ends, from 0.
    twelfth: u32,
}

impl Sample<'_> {
    /// Checks the outcome. Returns false if the machine was slow, so that a pause that ended early was a loss all the same.
    fn play(self, name: &str) -> bool {
        let url = &*self.server.map_or_else(alone, ToOwned::to_owned);
        let lease = Duration::from_millis(self.lease_ms);
        let before = Instant::now();
        let ttl = format!("{}ms", self.lease_ms);
        let mut command: Command = fairlock([self.subcommand, "--url", url, "--ttl", &ttl]);
        command.args([name, "--", "sh", "-c", WORK]);
        let mut running = Running::start(command);
        let token: u64 = running.line().parse().expect("a token");
        let guardian = guardian(running.pid());
        let work = children(running.pid()).into_iter().find(|child| *child != guardian);
        let work = work.expect("the command runs");
        let paused = match self.whom {
            Whom::Fairlock => vec![running.pid()],
            Whom::Guardian => vec![guardian],
            Whom::Command => vec![work],
            Whom::All => vec![running.pid(), guardian, work],
        };
        let began = Instant::now();
        let signal = |signal| {
            for process in &paused {
                kill_process(pid(*process), signal).expect("it is there");
            }
        };
        signal(Signal::STOP);
        let end = lease * (60 + self.twelfth) / 72;
        thread::sleep(end.saturating_sub(began.elapsed()));
        // The lease was renewed after `before`.
        let is_early = before.elapsed() + lease / 12 < lease;
        signal(Signal::CONT);
        // By then the deadline has passed that the guardian knew before the pause.
        thread::sleep(lease);
        let must_live = matches!(self.whom, Whom::Guardian | Whom::Command);
        let held = || {
            let status = status(url, name);
            status["token"].as_u64().filter(|_| status["held"] == true)
        };
        if self.subcommand == "elect" {
            let mut now = None;
            eventually("it leads", || {
                now = held();
                now.is_some()
            });
            let lived = now == Some(token);
            if !lived {
                // The command of the new term knows TERM by now.
                assert_eq!(running.line().parse().ok(), now, "{self:?}");
            }
            running.signal(Signal::TERM);
            let outcome = running.wait();
            assert_eq!(outcome.code(), 3, "{self:?}: {outcome:?}");
            assert_eq!(outcome.stderr.is_empty(), lived, "{self:?}: {outcome:?}");
            assert!(lived || outcome.stderr.contains("the command was ended"), "{outcome:?}");
            assert!(lived || !must_live, "{self:?}: {outcome:?}");
            return lived || !is_early;
        }
        if is_alive(work) {
            assert_eq!(held(), Some(token), "{self:?}: the command lives without the lock");
            running.signal(Signal::TERM);
            running.wait().expect(3, "");
            return true;
        }
        running.wait().expect(76, "the command was ended");
        assert!(!must_live, "{self:?}: a loss, although fairlock ran");
        !is_early
    }
}

/// Plays samples side by side.
fn play(samples: &[Sample<'_>]) {
    let numbered: Vec<_> = samples.iter().enumerate().collect();
    for some in numbered.chunks(AT_ONCE) {
        thread::scope(|scope| {
            for (at, sample) in some {
                scope.spawn(move || {
                    let on_time = (0..3).any(|again| sample.play(&format!("x{at}.{again}")));
                    assert!(on_time, "{sample:?}: a lock that was renewed in time was given up");
                });
            }
        });
    }
}

/// Without a message, and with 137, a command was killed whose lock had been renewed; `elect` then ended for good.
#[test]
fn d49_pause_that_ends_before_the_lease_is_survived_or_reported() {
    let Some(server) = Server::start(Generation::Redis70) else { return };
    let remote = server.url();
    let all = std::env::var_os("FAIRLOCK_PAUSES").is_some();
    let mut samples = Vec::new();
    for server in [Some(&*remote), None] {
        for subcommand in ["run", "elect"] {
            for whom in EVERYBODY {
                let sample =
                    |lease_ms, twelfth| Sample { server, subcommand, whom, lease_ms, twelfth };
                if all {
                    samples.extend((0..12).flat_map(|at| [sample(3_000, at), sample(6_000, at)]));
                    samples.push(sample(30_000, 6));
                } else if whom == Whom::Fairlock || subcommand == "run" {
                    samples.push(sample(3_000, 4));
                }
            }
        }
    }
    play(&samples);
}
