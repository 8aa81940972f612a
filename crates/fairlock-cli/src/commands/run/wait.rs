//! Waits for the lock, and again if it was over before the command began.

use std::time::Duration;

use fairlock::{ClientId, ErrorKind, LockStatus};
use tokio::time;

use super::args::Run;
use super::once;
use super::progress;
use super::release::release;
use crate::base::clock;
use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::locks::handle::Handle;
use crate::locks::held::Held;
use crate::locks::text::{in_line, owner};
use crate::process::signal::Signals;

/// How often a lock under a fixed lease may be over before the command begins, until the lease counts as too short. A
/// renewed one is requested again as long as `--wait` allows.
const OVER_MAX: u32 = 3;

/// A run that does not wait gives up on a silent store after this time: the library repeats a call after as long.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Least rest of a wait: a run that has spent it on connecting still tries once.
const LEAST: Duration = Duration::from_millis(1);

/// How long the look for the holder may take, when it only serves the message.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// The outcome of one attempt.
enum Got {
    Lock(Held),
    /// The lock is held, and the time is over.
    Nothing,
    /// The lock was granted, and over before this process could use it.
    Over,
}

/// The wait of one run.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    lock: &'a Handle,
    client: ClientId,
    args: &'a Run,
    began: Duration,
    /// How often the lock was granted and over before the command began.
    over: u32,
}

impl<'a> Wait<'a> {
    /// The wait counts from `began`: connecting is part of it.
    pub(super) fn new(lock: &'a Handle, client: ClientId, args: &'a Run, began: Duration) -> Self {
        Self { lock, client, args, began, over: 0 }
    }

    /// Acquires the lock, or returns why not. A signal, like every other early end, drops the wait, which
    /// leaves the queue.
    pub(super) async fn acquire(&mut self, signals: &mut Signals) -> Result<Held, Failure> {
        loop {
            let got = tokio::select! {
                // Signals first: a lock that arrives together with one must not start the command.
                biased;
                signal = signals.ending() => return Err(Failure::signal(signal)),
                got = self.attempt() => got?,
                never = progress::show(self.lock, self.client, self.args) => match never {},
            };
            match got {
                Got::Lock(guard) => return Ok(guard),
                Got::Nothing => return Err(self.not_acquired().await),
                // The library cannot distinguish a short lease from a process or a store that stood still once;
                // another attempt can.
                Got::Over => self.count_over()?,
            }
        }
    }

    /// Gives back a lock that was over before the command began, so that it can be waited for again.
    pub(super) async fn again(&mut self, guard: Held) -> Result<(), Failure> {
        drop(release(guard).await);
        self.count_over()
    }

    fn count_over(&mut self) -> Result<(), Failure> {
        self.over += 1;
        match self.args.lease {
            Some(lease) if self.over >= OVER_MAX => Err(Failure::usage(format!(
                "{}: {OVER_MAX} times its --lease of {} was over before the command began; nothing ran; choose a \
                 longer one",
                message::printable(&self.args.name),
                duration::human(lease)
            ))),
            _ => Ok(()),
        }
    }

    async fn attempt(&self) -> Result<Got, Failure> {
        let got = match self.args.wait {
            None => self.lock.lock().await.map(Some),
            Some(Duration::ZERO) => match time::timeout(SILENCE_MAX, self.lock.try_lock()).await {
                Ok(got) => got,
                Err(_) => return Err(self.silent().await),
            },
            Some(wait) => {
                let left = (self.began + wait).saturating_sub(clock::now());
                self.lock.try_lock_for(left.max(LEAST)).await
            }
        };
        match got {
            Ok(Some(guard)) => Ok(Got::Lock(guard)),
            Ok(None) => Ok(Got::Nothing),
            Err(error) if error.kind() == ErrorKind::LeaseTooShort => Ok(Got::Over),
            Err(error) => Err(error.into()),
        }
    }

    /// The failure of a store that gave no answer. One that can be looked at refuses writes.
    async fn silent(&self) -> Failure {
        let name = message::printable(&self.args.name);
        let look = time::timeout(LOOK_TIMEOUT, self.lock.inspect_first(0)).await;
        let why = match look {
            Ok(Ok(_)) => {
                "the store answers, and does not take the lock: the server may refuse writes (its memory or disk is \
                 full, replicas are missing; see its log, and INFO errorstats)"
            }
            _ => "the store does not answer",
        };
        Failure::new(Code::UNAVAILABLE, format!("{name}: {why}; the command was not run"))
    }

    /// The failure of a run that did not acquire the lock. Without a queue the last attempt may be old, so the store is
    /// asked once more: if it does not answer, it is unknown whether the lock is held.
    async fn not_acquired(&self) -> Failure {
        let waited = self.args.wait.filter(|wait| !wait.is_zero());
        if waited.is_none() && self.is_quiet() {
            return self.conflict(None);
        }
        let look = time::timeout(LOOK_TIMEOUT, self.lock.inspect_busy(1)).await;
        let is_silent = match &look {
            Ok(Err(error)) => error.kind() == ErrorKind::Unavailable,
            looked => looked.is_err(),
        };
        match waited {
            Some(wait) if is_silent => {
                let (name, wait) = (message::printable(&self.args.name), duration::human(wait));
                let text = format!(
                    "{name}: not acquired within {wait}, and the store does not answer; check the server and the \
                     network; the command was not run"
                );
                Failure::new(Code::UNAVAILABLE, text)
            }
            _ => self.conflict(look.ok().and_then(Result::ok)),
        }
    }

    /// Whether a conflict is reported by the exit code alone.
    fn is_quiet(&self) -> bool {
        self.args.quiet || self.args.conflict_exit_code == Code::OK
    }

    fn conflict(&self, status: Option<(usize, LockStatus)>) -> Failure {
        let Run { name, wait, conflict_exit_code, .. } = self.args;
        if self.is_quiet() {
            return Failure::silent(*conflict_exit_code);
        }
        let (at, status) = status.unzip();
        // `None` if the lock is free by now and nobody waits, or the store is silent.
        let holder = status.and_then(|status| {
            let Some(holder) = in_line(Some(self.lock.kind()), &status) else {
                let first = status.queue.first()?;
                return Some(format!(
                    "free, but it is the turn of {}",
                    owner(&status, &first.owner)
                ));
            };
            // A share may fit beside the holders, and still not come before those who wait.
            let waiting = status.queue_len;
            let tells = waiting > 0 && self.lock.is_shared();
            Some(if tells { format!("{holder}, {waiting} waiting") } else { holder })
        });
        // Of several, which one it is.
        let which = at.and_then(|at| self.args.one_of_several(at));
        let holder = holder.map(|holder| format!("{}{holder}", which.unwrap_or_default()));
        if self.args.once_per.is_some() {
            return once::skipped(self.args, holder);
        }
        let name = message::printable(name);
        let mut text = match (wait, holder) {
            (None | Some(Duration::ZERO), Some(holder)) => format!("{name}: {holder}"),
            (None | Some(Duration::ZERO), None) => format!("{name}: held by another"),
            (Some(wait), holder) => {
                let wait = duration::human(*wait);
                let holder = holder.map_or_else(String::new, |holder| format!(": {holder}"));
                format!("{name}: not acquired within {wait}{holder}")
            }
        };
        if self.over > 0 {
            text.push_str("; it was granted, and over before the command began: nothing ran");
        }
        Failure::new(*conflict_exit_code, text)
    }
}
