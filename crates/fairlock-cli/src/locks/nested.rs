//! Commands inside runs: the environment says under whose locks a command works.
//!
//! `FAIRLOCK_OWNER` names only the owner of the innermost lock; `FAIRLOCK_OWNERS` names all of them. So
//! everything that a command has started is found when an outer lock is lost (`process/escaped.rs`), and
//! no command waits for a lock that is only released after its own end.

use std::env;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use fairlock::{Client, Holder, Kind, LockStatus, OwnerId};
use tokio::time;

use super::handle::Handle;
use super::look::{self, Name, Target};
use crate::base::exit::Failure;
use crate::base::message;
use crate::process::escaped::{OWNER_VAR, OWNERS_VAR};
use crate::store;

/// Longest time for the check whether a run would wait for itself. If the store does not answer by then, the
/// wait itself deals with it, within its own bound.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// The owners of the runs around this one.
#[derive(Debug)]
pub(crate) struct Outer(Vec<OwnerId>);

impl Outer {
    pub(crate) fn of_environment() -> Self {
        Self::parse(env::var_os(OWNERS_VAR).as_deref(), env::var_os(OWNER_VAR).as_deref())
    }

    /// `innermost`: versions without the list only set this one.
    fn parse(all: Option<&OsStr>, innermost: Option<&OsStr>) -> Self {
        let mut owners = Vec::new();
        for text in [all, innermost].into_iter().flatten() {
            for word in text.as_encoded_bytes().split(|byte| *byte == b' ') {
                let owner = OwnerId::parse(word);
                // Other programs may have written anything there.
                if owner.is_ours() && !owners.contains(&owner) {
                    owners.push(owner);
                }
            }
        }
        Self(owners)
    }

    /// The value for a command of ours, whose innermost owners are `owners`.
    pub(crate) fn with<'a>(&'a self, owners: impl IntoIterator<Item = &'a OwnerId>) -> OsString {
        let all = self.0.iter().chain(owners).map(ToString::to_string);
        all.collect::<Vec<_>>().join(" ").into()
    }

    /// As [`refuse`](Self::refuse), for each of the locks.
    pub(crate) async fn refuse_each(
        &self,
        lock: &Handle,
        names: &[OsString],
        wait: Option<Duration>,
    ) -> Result<(), Failure> {
        for (lock, name) in lock.each().iter().zip(names) {
            self.refuse(lock, name, wait).await?;
        }
        Ok(())
    }

    /// Refuses to wait for the end of these, whatever kind of lock each of them is, if a holder waits for this very
    /// process. A command that does not wait is not refused.
    pub(crate) async fn refuse_waiting(
        &self,
        client: &Client,
        names: &[Name],
        kinds: &[Kind],
        wait: Option<Duration>,
    ) -> Result<(), Failure> {
        if self.0.is_empty() || wait == Some(Duration::ZERO) {
            return Ok(());
        }
        for name in names {
            let target = Target { name: name.clone(), kind: kinds.first().copied() };
            let look = look::look_as(client, target, kinds, usize::MAX);
            if let Ok(Ok(seen)) = time::timeout(patience(wait), look).await {
                self.refuse_held(name.as_os_str(), &seen.status, "would")?;
            }
        }
        Ok(())
    }

    /// Refuses to wait for a lock whose holder waits for this very process. This asks the store instead of comparing
    /// names: one store has many addresses, and the outer run may have ended and left this one behind.
    ///
    /// A share may fit beside the outer one. But a writer, or a wide request, that comes in between waits for the outer run,
    /// and the inner one waits behind it. Beyond 1 000 holders the outer run may not be among those that a look lists.
    async fn refuse(
        &self,
        lock: &Handle,
        name: &OsStr,
        wait: Option<Duration>,
    ) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        // If something is wrong with the store or the name, the request itself will report it.
        // Of a lock that several may hold, any holder may be it.
        let listed = if lock.is_shared() { usize::MAX } else { 0 };
        let Ok(Ok(status)) = time::timeout(patience(wait), lock.inspect_first(listed)).await else {
            return Ok(());
        };
        self.refuse_held(name, &status, if lock.is_shared() { "may" } else { "would" })
    }

    fn refuse_held(&self, name: &OsStr, status: &LockStatus, may: &str) -> Result<(), Failure> {
        // The hold of a run with --once-per outlives it; a client that has ended is not known any more.
        let is_over = |holder: &Holder| {
            status.is_done() || (holder.owner.is_once() && status.client(&holder.owner).is_none())
        };
        let mut around = status.holders.iter().filter(|holder| self.0.contains(&holder.owner));
        match around.find(|holder| !is_over(holder)) {
            None => Ok(()),
            Some(holder) => Err(Failure::usage(format!(
                "{}: held by the `fairlock run` or `fairlock elect` that this was started under (owner {}), so it {may} \
                 wait for itself for ever; leave the inner one out, or name another lock",
                message::printable(name),
                holder.owner,
            ))),
        }
    }
}

/// How long the check may take: at least long enough for a healthy store.
fn patience(wait: Option<Duration>) -> Duration {
    wait.map_or(LOOK_TIMEOUT, |wait| wait.clamp(store::ANSWER_MIN, LOOK_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "5f3c1a52-0f4e-8a1b-9c3d-1234567890ab:1";
    const TWO: &str = "6f3c1a52-0f4e-8a1b-9c3d-1234567890ab:2";

    #[test]
    fn the_list_has_each_owner_once() {
        let parse = |all: &str, innermost: &str| {
            Outer::parse(Some(OsStr::new(all)), Some(OsStr::new(innermost)))
        };
        let three = OwnerId::parse(b"7f3c1a52-0f4e-8a1b-9c3d-1234567890ab:3");
        let both = format!("{ONE} {TWO}");
        for (all, innermost, before) in [
            ("", "", String::new()),
            ("", ONE, ONE.to_owned() + " "),
            (ONE, TWO, both.clone() + " "),
            (&both, TWO, both.clone() + " "),
            ("\u{1b}[2J x:y  ", ONE, ONE.to_owned() + " "),
        ] {
            let value = parse(all, innermost).with([&three]);
            assert_eq!(value.to_str(), Some(format!("{before}{three}").as_str()), "{all:?}");
        }
        assert!(Outer::parse(None, None).0.is_empty());
    }
}
