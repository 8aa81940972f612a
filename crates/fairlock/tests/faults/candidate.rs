//! The orders of a [`Worker`](super::worker::Worker) that are about elections, as its process carries
//! them out:
//!
//! ```text
//! stand NAME RESOURCE   -> leads TERM AT, with each term, and until that is over
//!                          says TERM REMAINING_MS READ_AT AT, of a term that is valid: AT is before the guard
//!                          was looked at, READ_AT after it
//!                          wrote TERM AT, or refused TERM AT if the resource refused it and it is valid still
//!                          late TERM taken AT, or late TERM refused AT: a write of its last term, after one of
//!                          this
//!                          resigns TERM AT, before it does
//! keep                  -> from now on no term is given back, and nothing else is announced
//! observe NAME          -> saw TERM VALUE AT, or saw - - AT
//! ```
//!
//! What it announces is `PID.NUMBER`; `?` stands for nothing. Errors are said as `failed KIND AT`, and what failed is tried
//! again.

use super::fixture::ms;
use super::worker::{say, say_at};
use fairlock::{Client, Election, GuardState, Term};
use fairlock_testkit::history::now_ns;
use fairlock_testkit::rng::Rng;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Between two looks at a term.
const ROUND: Duration = ms(4);

/// The longest time for which a term is kept.
const LASTS_MS: u64 = 1_200;

pub(super) struct Candidate {
    client: Client,
    keeps: Arc<AtomicBool>,
}

impl Candidate {
    pub(super) fn new(client: Client) -> Self {
        Self { client, keeps: Arc::default() }
    }

    pub(super) fn stands(&self, name: &str, resource: &str) {
        let stand = Stand {
            keeps: Arc::clone(&self.keeps),
            resource: resource.to_owned(),
            last: AtomicU64::new(0),
            said: AtomicU64::new(0),
        };
        tokio::spawn(stand.campaigns(self.client.election(name)));
    }

    pub(super) fn keeps(&self) {
        self.keeps.store(true, Ordering::Relaxed);
    }

    pub(super) fn observes(&self, name: &str) {
        tokio::spawn(observes(self.client.election(name)));
    }
}

struct Stand {
    keeps: Arc<AtomicBool>,
    resource: String,
    /// The term before.
    last: AtomicU64,
    /// The number of what is announced.
    said: AtomicU64,
}

impl Stand {
    async fn campaigns(self, election: Election) {
        // Each draws the same, but leads at other times.
        let mut rng = Rng::new(1);
        loop {
            let lasts = ms(rng.below(LASTS_MS));
            match election.run(self.value(), |term| self.leads(term, lasts)).await {
                Ok(()) => {}
                Err(error) => failed(&error).await,
            }
        }
    }

    fn value(&self) -> String {
        format!("{}.{}", process::id(), self.said.fetch_add(1, Ordering::Relaxed))
    }

    async fn leads(&self, term: Term, lasts: Duration) {
        let token = term.token().get();
        say(format_args!("leads {token}"));
        let until = Instant::now() + lasts;
        for round in 1_u32.. {
            let keeps = self.keeps.load(Ordering::Relaxed);
            if !keeps && Instant::now() >= until {
                break;
            }
            let at_ns = now_ns();
            let (state, left_ms) = (term.state(), term.remaining().as_millis());
            let read_ns = now_ns();
            if state == GuardState::Lost {
                break;
            }
            say_at(at_ns, format_args!("says {token} {left_ms} {read_ns}"));
            if self.writes(token).await {
                say(format_args!("wrote {token}"));
                let last = self.last.swap(token, Ordering::Relaxed);
                if ![0, token].contains(&last) {
                    let how = if self.writes(last).await { "taken" } else { "refused" };
                    say(format_args!("late {last} {how}"));
                }
            } else if term.state() != GuardState::Lost {
                say(format_args!("refused {token}"));
            }
            if round.is_multiple_of(16)
                && !keeps
                && let Err(error) = term.proclaim(self.value()).await
            {
                say(format_args!("failed {:?}", error.kind()));
            }
            tokio::time::sleep(ROUND).await;
        }
        say(format_args!("resigns {token}"));
        if let Err(error) = term.resign().await {
            say(format_args!("failed {:?}", error.kind()));
        }
    }

    /// Whether the resource takes a write of this term.
    async fn writes(&self, token: u64) -> bool {
        loop {
            if let Ok(taken) = self.writes_once(token).await {
                return taken;
            }
            // The resource does not wait for whoever is frozen in the middle of a write.
            tokio::time::sleep(ROUND).await;
        }
    }

    /// A connection for each: the future may be dropped between the write and the answer.
    async fn writes_once(&self, token: u64) -> std::io::Result<bool> {
        let mut resource = TcpStream::connect(&self.resource).await?;
        resource.write_u64(token).await?;
        Ok(resource.read_u8().await? == 1)
    }
}

async fn observes(election: Election) {
    let mut observer = loop {
        match election.observe().await {
            Ok(observer) => break observer,
            Err(error) => failed(&error).await,
        }
    };
    loop {
        match observer.changed().await {
            Ok(None) => say(format_args!("saw - -")),
            Ok(Some(leader)) => {
                let value = leader.value.unwrap_or_else(|| b"?".to_vec());
                let value = String::from_utf8_lossy(&value);
                say(format_args!("saw {} {value}", leader.term));
            }
            Err(error) => failed(&error).await,
        }
    }
}

async fn failed(error: &fairlock::Error) {
    say(format_args!("failed {:?}", error.kind()));
    tokio::time::sleep(ms(50)).await;
}
