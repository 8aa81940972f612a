//! Releases, and clean-up that outlives its caller: dropped guards are released, and abandoned
//! requests taken back.
//!
//! A release is repeated until the store answers, the lease is over, or `store_timeout` has passed;
//! without an answer it is repeated once more on the next connection. Taking back a request is
//! repeated for as long as a copy of the request could still have an effect. A refused operation is
//! a debt, and tried again when the store answers about the lock.

use crate::base::backoff::Backoff;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::engine::context::Context;
use crate::engine::send::{self, Copies};
use crate::engine::{confirm, downgrade};
use crate::observe;
use crate::settings::server_checks::{Check, Reaction, Warning};
use crate::state::hold::{Change, GuardEnd, Hold};
use crate::state::in_flight::{self, InFlightCleanup, LAST_WORDS};
use crate::state::outcome::Release;
use crate::state::signals::{TurnReporter, unconfirmed};
use crate::state::standing::GuardState;
use fairlock_core::client::{Counted, Debts, Mismatch, Released};
use fairlock_core::{Kind, LockName, Op, has_queue};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The outcome of a release that need not be sent: for a simple lock the store only knows whether
/// there is a hold.
pub(crate) fn release_here(hold: &Hold, change: Change) -> Option<Release> {
    if change.count == 0 || !hold.is_counted_here() {
        return None;
    }
    let lost = hold.state() == GuardState::Lost;
    let outcome = if lost { Release::Lost } else { Release::StillHeld(change.count) };
    Some(told(hold, outcome))
}

fn told(hold: &Hold, outcome: Release) -> Release {
    observe::released(&hold.told(), outcome.label(), outcome.is_good());
    outcome
}

/// The operation that reports `change` to the store.
pub(crate) fn release_op(hold: &Hold, change: Change) -> Op {
    let op = Op::Release {
        kind: hold.kind(),
        owner: hold.owner().clone(),
        token: hold.token,
        keep: change.count,
        change: change.number,
    };
    hold.op(op, 0)
}

/// Releases at once if the store answers at once, or nothing need be sent.
pub(crate) fn release_now(context: &Context, hold: &Hold, end: GuardEnd) -> Option<Release> {
    let change = end.change;
    if let Some(outcome) = release_here(hold, change) {
        return Some(outcome);
    }
    let reply = context.store.call_now(&hold.name, &release_op(hold, change))?;
    let said = reply.ok().and_then(|reply| Counted::of(reply.answer.body).ok());
    if end.reads_on {
        // If the store is busy by now, both are sent in the background.
        context.store.call_now(&hold.name, &downgrade::downgrade_op(hold))?.ok()?;
    }
    // One copy, answered at once: the reply shows what became of the hold.
    let sent = Released { change, was_lost: false, resent: false, valid_until_ns: 0 };
    Some(told(hold, hold.released(sent, said)))
}

/// Releases in the background, from any thread, inside a runtime or not; a failure goes to
/// `reporter`.
pub(crate) fn release_later(
    context: &Arc<Context>,
    hold: Arc<Hold>,
    end: GuardEnd,
    reporter: Option<Arc<TurnReporter>>,
) {
    let (in_flight, owned) = (InFlightCleanup::new(&context.in_flight), Arc::clone(context));
    context.spawn(async move {
        let outcome = release(&owned, &hold, end).await;
        if let (Release::Unknown, Some(reporter)) = (outcome, reporter) {
            reporter.failed(unconfirmed());
        }
        drop(in_flight);
    });
    in_flight::wait_at_end(&context.in_flight);
}

/// Sends a release until it is answered, at most until the hold is over by itself or the store
/// timeout has passed.
pub(crate) async fn release(context: &Arc<Context>, hold: &Arc<Hold>, end: GuardEnd) -> Release {
    let change = end.change;
    if let Some(outcome) = release_here(hold, change) {
        return outcome;
    }
    let op = release_op(hold, change);
    let was_lost = hold.state() == GuardState::Lost;
    let valid_until = hold.valid_until();
    let until = valid_until.min(context.store_deadline());
    let mut copies = Copies::default();
    let result = send::until_answered(context, &hold.name, &op, until, &mut copies).await;
    if let Err(error) = &result {
        note_denial(context, error);
    }
    if has_queue(hold.kind()) && context.machine.is_wanted(&hold.name) {
        // The grant to the next waiter, possibly one of this client, arrived with the reply, on the
        // other connection. One pass of the runtime reads it first: that waiter's release must not
        // queue behind this caller's next request, which often is for the same lock.
        tokio::task::yield_now().await;
    }
    let answer = result.ok().map(|reply| Counted::of(reply.answer.body));
    let is_mismatch = answer == Some(Err(Mismatch));
    let said = answer.and_then(Result::ok);
    if change.count == 0 {
        settle(context, hold, &op, said.as_ref());
        if is_mismatch || (said.is_none() && hold.is_being_left()) {
            // A reply to something else says nothing about the hold; and an unanswered renewal may
            // have extended the hold beyond what is known here.
            take_back(context, &hold.name, hold.acquisition.leave(true), None, true);
        } else if said.is_none() && has_queue(hold.kind()) {
            // Nobody renews it, but those who wait need not wait for the end of its lease.
            context.debts().owe(hold.name.clone(), hold.acquisition.leave(false));
        }
        bury_doubtful(context, hold);
    }
    let (resent, valid_until_ns) = (copies.resent(), valid_until.nanos());
    let sent = Released { change, was_lost, resent, valid_until_ns };
    let outcome = match hold.released(sent, said) {
        Release::Released if !replicas_know(context, hold, &op).await => Release::Unknown,
        outcome => outcome,
    };
    let outcome = match (outcome, end.reads_on) {
        // Boxed, because it is rare and large.
        (Release::StillHeld(_), true) => {
            match Box::pin(downgrade::downgrade(context, hold)).await {
                Ok(()) => outcome,
                Err(error) if error.kind() == ErrorKind::Lost => Release::Lost,
                Err(_) => read_on(context, hold),
            }
        }
        (Release::Unknown, true) => read_on(context, hold),
        (outcome, _) => outcome,
    };
    told(hold, outcome)
}

/// Repeats in the background, for as long as the hold lasts, that its last guard that writes has
/// ended: until the store knows it, the hold excludes other readers.
#[cold]
fn read_on(context: &Arc<Context>, hold: &Arc<Hold>) -> Release {
    let (owned, hold) = (Arc::clone(context), Arc::clone(hold));
    context.spawn(async move {
        let mut backoff = Backoff::default();
        while !hold.has_ended() && hold.state() != GuardState::Lost {
            tokio::time::sleep(backoff.next()).await;
            if downgrade::downgrade(&owned, &hold).await.is_ok() {
                break;
            }
        }
    });
    Release::Unknown
}

/// A denied release is `Unknown`, which has no reason, so the reason becomes a warning. What a
/// release needs beyond an acquisition, the channel named after the lock, cannot be checked when a
/// connection is made.
#[cold]
fn note_denial(context: &Context, error: &Error) {
    if error.kind() == ErrorKind::Denied && context.config.on.to(Check::Rights) != Reaction::Ignore
    {
        let message = format!("a release was denied, so that nobody may have been woken: {error}");
        context.note_found(Check::Rights, Some(Warning::new(Check::Rights, message)));
    }
}

/// Whether the required replicas have a release, so that the hold does not come back when one of
/// them becomes the primary.
async fn replicas_know(context: &Arc<Context>, hold: &Hold, op: &Op) -> bool {
    if !context.store.is_replicated() {
        return true;
    }
    let until = Moment::now().plus(context.config.replicas_timeout);
    // Boxed, because it is rare and large.
    let confirmed = Box::pin(confirm::confirmed(context, &hold.name, op, until)).await;
    confirmed.is_ok_and(|confirmed| confirmed.missing.is_none())
}

/// Releases the hold of a process that is dead: `op` was made for it.
///
/// # Errors
/// [`ErrorKind::Lost`] if there is no such hold, or the store's errors.
pub(crate) async fn release_by(
    context: &Arc<Context>,
    name: &LockName,
    op: &Op,
) -> Result<(), Error> {
    let mut copies = Copies::default();
    let until = context.store_deadline();
    let reply = send::until_answered(context, name, op, until, &mut copies).await?;
    match Counted::of(reply.answer.body) {
        Ok(Counted::Released) => Ok(()),
        // An earlier copy may have released it, with its reply lost.
        Ok(_) if copies.resent() => Ok(()),
        _ => Err(Error::new(ErrorKind::Lost, "the hold was gone before it was released").on(name)),
    }
}

/// Gives back, in the background, a hold that no caller has seen, with all requests that led to it.
pub(crate) fn give_back(context: &Arc<Context>, hold: &Arc<Hold>) -> JoinHandle<()> {
    let (in_flight, hold) = (InFlightCleanup::new(&context.in_flight), Arc::clone(hold));
    let owned = Arc::clone(context);
    context.spawn(async move {
        let context = &owned;
        let op = release_op(&hold, hold.leave(false).change);
        let until = hold.valid_until().min(context.store_deadline());
        // If the server cannot be reached in time, the TTL ends the hold.
        let mut copies = Copies::default();
        let result = send::until_answered(context, &hold.name, &op, until, &mut copies).await;
        let said = result.ok().and_then(|reply| Counted::of(reply.answer.body).ok());
        settle(context, &hold, &op, said.as_ref());
        if said.is_none() {
            // An unanswered confirmation may have extended the hold beyond what is known here.
            take_back(context, &hold.name, hold.acquisition.leave(true), None, true);
        }
        bury_doubtful(context, &hold);
        drop(in_flight);
    })
}

/// Ensures that nothing is left of a hold that was given back by `op`; `said` is the store's
/// answer.
///
/// A server that took over without the last writes may have a fair hold only as its request: the
/// request still waits there, or was granted once more, under a token unknown here. So the request
/// is taken back on the next server, and on this one if it has answered that the hold is gone.
fn settle(context: &Arc<Context>, hold: &Hold, op: &Op, said: Option<&Counted>) {
    let released = matches!(said, Some(Counted::Released));
    match (has_queue(hold.kind()), said) {
        (true, Some(_)) if !released => leave_request(context, hold),
        (true, _) => context.gave_back(&hold.name, &hold.acquisition.leave(false)),
        (false, Some(_)) if !released => {}
        // Without an answer, the server that is connected next may need the release as well.
        (false, _) => context.gave_back(&hold.name, op),
    }
}

/// Takes back the request of a hold that is gone according to the server. The server may still have
/// the request: see [`settle`].
pub(crate) fn leave_request(context: &Arc<Context>, hold: &Hold) {
    if has_queue(hold.kind()) && context.store.may_fail_over() {
        take_back(context, &hold.name, hold.acquisition.leave(false), None, true);
    }
}

/// Takes back those requests of an ended hold that may still be carried out.
fn bury_doubtful(context: &Arc<Context>, hold: &Hold) {
    for op in hold.acquisition.doubtful() {
        take_back(context, &hold.name, op, None, true);
    }
}

/// For a hold that nobody gives back: takes back its requests that have an unanswered copy once it
/// has ended by itself. Earlier, that would free the lock.
pub(crate) fn bury_when_over(context: &Arc<Context>, hold: &Arc<Hold>) {
    if !hold.acquisition.is_doubtful() {
        return;
    }
    // A renewal may be under way, and its TTL counts from its arrival.
    let over = hold.lease().whole() + context.config.response_timeout;
    let (context, hold) = (Arc::clone(context), Arc::clone(hold));
    context.clone().spawn(async move {
        tokio::time::sleep(over).await;
        bury_doubtful(&context, &hold);
    });
}

/// Takes a request back in the background, repeating that until it is answered. Dropping the result
/// does not stop it; it is whether the store has answered. If the store refuses, the request is `owed`: see
/// [`pay_debts`].
pub(crate) fn take_back(
    context: &Arc<Context>,
    name: &LockName,
    leave: Op,
    reporter: Option<Arc<TurnReporter>>,
    owed: bool,
) -> JoinHandle<bool> {
    // After `longest`, every copy is refused by its own not-after, and any hold that one obtained
    // has expired. Doubled, to allow for clocks and queues on the way.
    let longest = context.config.store_timeout + context.config.watchdog_lease;
    take_back_until(context, name, leave, reporter, owed, Moment::now().plus(2 * longest))
}

fn take_back_until(
    context: &Arc<Context>,
    name: &LockName,
    leave: Op,
    reporter: Option<Arc<TurnReporter>>,
    owed: bool,
    until: Moment,
) -> JoinHandle<bool> {
    let (in_flight, context) = (InFlightCleanup::new(&context.in_flight), Arc::clone(context));
    let name = name.clone();
    context.clone().spawn(async move {
        let mut copies = Copies::default();
        let result = send::until_answered(&context, &name, &leave, until, &mut copies).await;
        let answered = match result {
            Ok(_) => {
                // It names the request, so an owner that is back with another request by now keeps
                // that one.
                context.gave_back(&name, &leave);
                pay_debts(&context, &name, Debts::AFTER_ONE);
                true
            }
            Err(error) => {
                let refused = !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
                if owed && has_queue(leave.kind().unwrap_or(Kind::Plain)) {
                    context.debts().owe(name, leave);
                }
                if let Some(reporter) = reporter {
                    reporter.failed(error);
                }
                refused
            }
        };
        drop(in_flight);
        answered
    })
}

/// Takes back some of the requests of a lock that the store has refused to take back, now that it
/// has just answered about that lock. A new connection needs no call of its own, because the
/// heartbeats that follow it come here.
pub(crate) fn pay_debts(context: &Arc<Context>, name: &LockName, count: usize) {
    let owed = context.debts().take(name, count);
    for leave in owed {
        take_back(context, name, leave, None, true);
    }
}

/// Tries to pay all debts once more, for a moment, because the client ends. A store that has been
/// silent until the leases were over, or has refused them until now, must not hold up a program.
pub(crate) fn pay_all_debts(context: &Arc<Context>) {
    let until = Moment::now().plus(LAST_WORDS);
    let owed = context.debts().take_all();
    for (name, leave) in owed {
        take_back_until(context, &name, leave, None, true, until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    #[cfg(all(feature = "redis", feature = "_testkit"))]
    use fairlock_testkit::server::{Generation, Server};

    /// A hand-over waited until the background thread of the one that released had woken up.
    #[cfg(all(feature = "redis", feature = "_testkit"))]
    #[tokio::test]
    async fn a_release_leaves_without_the_background_thread() {
        use std::sync::mpsc;
        use std::task::Poll;
        use std::time::{Duration, Instant};
        let Some(server) = Server::start(Generation::Redis70) else { return };
        let client = Client::connect(&server.url()).await.expect("a server");
        let take = async |name| client.fair_lock(name).lock().await.expect("free");
        // The server knows the script from now on.
        let _ = take("job").await.release().await.expect("answered");
        let guard = take("job").await;
        let (began, is_busy) = mpsc::channel();
        let (frees, until) = mpsc::channel::<()>();
        client.context().runtime.spawn(async move {
            began.send(()).expect("a test");
            let _ = until.recv();
        });
        is_busy.recv().expect("begun");
        let mut release = Box::pin(guard.release());
        assert!(
            std::future::poll_fn(|cx| Poll::Ready(release.as_mut().poll(cx))).await.is_pending()
        );
        let mut raw = server.client();
        let since = Instant::now();
        while raw.call(&["EXISTS", "job"]).int() != 0 {
            assert!(since.elapsed() < Duration::from_secs(20), "it waits for the thread");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(frees);
        assert_eq!(release.await.expect("not forked"), Release::Released);
    }

    /// A renewal that reached the server after the release found nothing there, and was counted and
    /// reported as the loss of a lock that nobody held any more.
    #[tokio::test]
    async fn a_renewal_after_the_release_is_no_loss() {
        let client = Client::connect("memory:").await.expect("memory");
        let guard = client.fair_lock("job").lock().await.expect("free");
        let hold = guard.hold();
        assert_eq!(guard.release().await.expect("memory answers"), Release::Released);
        hold.lose_to(None);
        assert_eq!(hold.state(), GuardState::Held);
    }

    /// The release that arrived second, with the older change, was taken for a loss, which the
    /// third guard then reported.
    #[tokio::test]
    async fn releases_that_arrive_in_the_wrong_order_lose_nothing() {
        let client = Client::connect("memory:").await.expect("memory");
        let owner = client.owner();
        let lock = client.fair_lock("job").owned_by(&owner);
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(lock.lock().await.expect("its own"));
        }
        let context = client.context();
        let hold = context.owners.hold(guards[0].name(), guards[0].owner()).expect("held");
        let [first, second] = [hold.leave(false), hold.leave(false)];
        assert_eq!(release_now(context, &hold, second), Some(Release::StillHeld(1)));
        assert_eq!(release_now(context, &hold, first), Some(Release::StillHeld(2)));
        assert_eq!(hold.state(), GuardState::Held);
        let last = guards.pop().expect("the third");
        // Their releases were sent above.
        std::mem::forget(guards);
        assert_eq!(last.release().await.expect("memory answers"), Release::Released);
    }
}
