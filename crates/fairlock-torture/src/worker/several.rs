//! Turns at several locks at once: some of eight, of all kinds, named in any order.

use super::{EXPLICIT, LOOK, Player, tell};
use crate::log::note::{End, Note};
use crate::wanted::Wanted;
use fairlock::{Error, Guard, MultiGuard, Release, Share};
use fairlock_testkit::history::now_ns;
use std::time::{Duration, Instant};

/// The locks. Nobody takes one of them alone.
pub(crate) const NAMES: [&str; 8] = [
    "many-fair-0",
    "many-fair-1",
    "many-fair-2",
    "many-fair-3",
    "many-rw-0",
    "many-rw-1",
    "many-sem-0",
    "many-sem-1",
];

/// Tasks of each client.
pub(super) const TASKS: usize = 2;

/// The locks of a turn, in the order in which they are named, and what is asked for of each.
type Wanteds = Vec<(&'static str, Wanted)>;

impl Player {
    /// One acquisition of some of the locks, or an attempt. Returns the name of the first of them.
    pub(super) async fn turn_at_several(&mut self) -> (String, Result<(), Error>) {
        let mut names = NAMES;
        self.rng.shuffle(&mut names);
        let count = self.rng.between(2, 4) as usize;
        let mut wanted = |name| (name, Wanted::new(&self.client, name, &mut self.rng));
        let wanted: Wanteds = names.into_iter().take(count).map(&mut wanted).collect();
        (names[0].to_owned(), self.take(&wanted).await)
    }

    async fn take(&mut self, wanted: &Wanteds) -> Result<(), Error> {
        let asked = now_ns();
        let lock = self.client.multi_lock(wanted.iter().map(|(_, wanted)| wanted.member()))?;
        let lock = if self.rng.chance(10) { lock.lease(EXPLICIT) } else { lock };
        let patience = Duration::from_millis(self.rng.between(20, 800));
        let guard = match self.rng.below(20) {
            0 => lock.try_lock().await?,
            1 => lock.try_lock_for(patience).await?,
            // The caller goes while it waits.
            2 => tokio::time::timeout(patience, lock.lock()).await.ok().transpose()?,
            _ => Some(lock.lock().await?),
        };
        match guard {
            Some(guard) => self.hold_several(guard, wanted, asked).await,
            None => {
                tell(&Note::Missed { at: now_ns() });
                Ok(())
            }
        }
    }

    /// Holds the locks for a while, changes what they protect, and gives them back.
    async fn hold_several(
        &mut self,
        guard: MultiGuard,
        wanted: &Wanteds,
        asked: u64,
    ) -> Result<(), Error> {
        let at = now_ns();
        let members = || {
            let all = guard.guards().zip(wanted);
            all.map(|(of, (name, wanted))| (of, (*name).to_owned(), wanted.share()))
        };
        for (of, lock, share) in members() {
            let valid_until = at + u64::try_from(of.remaining().as_nanos()).unwrap();
            let (owner, token) = (of.owner().to_string(), of.token().get());
            tell(&Note::Granted { at, asked, lock, owner, token, valid_until, share });
        }
        let fences = |share| !matches!(share, Share::Permits { .. });
        let read: Vec<_> = members()
            .map(|(of, lock, share)| {
                fences(share).then(|| self.access.read(&lock, of.token().get())).flatten()
            })
            .collect();
        // Sometimes long enough that a fault finds them held.
        let millis = if self.rng.chance(5) { 200 } else { 5 };
        let until = Instant::now() + Duration::from_millis(self.rng.below(millis));
        // The last time at which all of them were certainly valid.
        let mut valid_at = at;
        while Instant::now() < until {
            let now = now_ns();
            if guard.ensure_valid().is_err() {
                break;
            }
            valid_at = now;
            tokio::time::sleep(LOOK).await;
        }
        // Writes even with a lost guard, like a program that does not check it.
        let accepted: Vec<_> = members()
            .zip(read)
            .map(|((of, lock, share), read)| {
                let token = of.token().get();
                let writes = share == Share::Whole;
                read.is_some_and(|count| !writes || self.access.write(&lock, token, count + 1))
            })
            .collect();
        let now = now_ns();
        let valid: Vec<_> = guard.guards().map(|of| of.ensure_valid().is_ok()).collect();
        let all_valid = !valid.contains(&false);
        if all_valid {
            valid_at = now;
        }
        for (((of, lock, share), accepted), valid) in members().zip(accepted).zip(valid) {
            let (owner, token) = (of.owner().to_string(), of.token().get());
            let end = if valid { End::Released } else { End::Lost };
            let ended = Note::Ended { at: valid_at, lock: lock.clone(), owner: owner.clone(), end };
            tell(&ended);
            if share == Share::Whole || (fences(share) && !accepted) {
                tell(&Note::Wrote { at: now, lock, owner, token, accepted, valid });
            }
        }
        let first = guard.guards().next().map(Guard::owner).expect("two at least").to_string();
        if self.rng.chance(20) {
            drop(guard);
            return Ok(());
        }
        let released = guard.release().await?;
        if all_valid && released != Release::Released {
            // Of one of them, and nobody says which.
            let (lock, outcome) = (wanted[0].0.to_owned(), format!("{released:?}"));
            tell(&Note::Said { at: now_ns(), lock, owner: first, outcome });
        }
        Ok(())
    }
}
