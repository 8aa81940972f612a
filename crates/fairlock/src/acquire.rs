//! The driver of one acquisition. It runs on the client's own runtime, so that neither a
//! cancelled future nor a blocked one leaves anything half done: when nobody waits for the
//! result any more, the driver takes the request back.

use crate::backoff::{Poll, jitter};
use crate::caller::{self, Copies};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::hold::{Hold, Lease, valid_until};
use crate::hub::{Entry, Outcome, Waiter};
use crate::observe::{self, Way};
use crate::owner::{self, Seat};
use crate::reaper::{self, Abandoned, Ticket};
use crate::shared::{ConnectionState, Shared, new_request};
use crate::store::{Reply, Topic};
use crate::turn::Link;
use fairlock_core::{Acquire, Body, Grant, Kind, LockName, Mode, Op, OwnerId, RequestId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// A request that is given up while its reply is under way gets this long to be answered: then
/// it can be taken back without a doubt. A caller that hears "not in time" waits as long for that.
const ANSWER_GRACE: Duration = Duration::from_millis(50);

/// A wait whose time is up before the store has said anything at all gets this long for an answer: a
/// store that is slow then still tells whether the lock is taken.
const SILENCE_GRACE: Duration = Duration::from_millis(500);

/// How often a grant that was over before it could be used is tried again with an explicit
/// lease, before the lease is called too short.
const OVER_MAX: u32 = 2;

/// How often a request is sent again because the server's clock is elsewhere than expected.
const LATE_MAX: u32 = 3;

/// A plain waiter that was woken this often in a row and found the lock taken asks more slowly:
/// others are faster, or the messages are forged.
const RACES: u32 = 8;

/// Time from one attempt of such a waiter to the next, at least.
const PACE: Duration = Duration::from_millis(50);

/// First and longest pause before an owner whose former hold is still being given up is asked for
/// again.
const GIVEN_UP_PAUSE: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(250));

/// What is wanted.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) name: LockName,
    pub(crate) kind: Kind,
    /// The explicit lease, if any.
    pub(crate) lease: Option<Duration>,
    /// The longest hold, if any.
    pub(crate) max_hold: Option<Duration>,
    /// When to give up; `None`: never.
    pub(crate) until: Option<Moment>,
    /// Do not stand in the queue.
    pub(crate) try_once: bool,
    /// To the turn that waits for it, if it is one.
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) asked: observe::Asked,
    /// Set for an explicit owner, which other requests may use as well.
    pub(crate) seat: Option<Arc<Seat>>,
}

impl Wanted {
    pub(crate) fn lease_ms(&self, shared: &Shared) -> u64 {
        let lease = self.lease.unwrap_or(shared.config.watchdog_lease);
        self.max_hold.map_or(lease, |most| most.min(lease)).as_millis() as u64
    }

    /// Whether the hold lasts for longer than one lease.
    fn is_renewed(&self, shared: &Shared) -> bool {
        self.lease.is_none() && self.max_hold.is_none_or(|most| most > shared.config.watchdog_lease)
    }

    /// The operation that asks for the lock.
    pub(crate) fn op(&self, shared: &Shared, owner: &OwnerId, request: RequestId) -> Acquire {
        Acquire {
            kind: self.kind,
            owner: owner.clone(),
            request,
            lease_ms: self.lease_ms(shared),
            mode: if self.try_once { Mode::Try } else { Mode::Wait },
            order: None,
            not_after_ms: u64::MAX,
            sure: !shared.store.inbox_up(),
            shared_owner: self.seat.is_some(),
        }
    }

    /// The hold of a grant whose TTL counts from `base`.
    pub(crate) fn hold(
        &self,
        shared: &Shared,
        owner: OwnerId,
        grant: &Grant,
        base: Moment,
        doubtful: Vec<RequestId>,
    ) -> Hold {
        let ms = self.lease_ms(shared);
        let renewed = self.is_renewed(shared);
        let end = if renewed { self.max_hold } else { Some(Duration::from_millis(ms)) };
        let lease = Lease { ms, renewed, end: end.map(|end| base.plus(end)) };
        let until = valid_until(base, grant.ttl_ms);
        let mut hold =
            Hold::new(self.name.clone(), self.kind, owner, grant.token, lease, until, doubtful);
        hold.seat = self.seat.clone();
        // A store inside the process is copied with it.
        if shared.is_embedded { hold } else { hold.at_home(shared.home) }
    }
}

pub(crate) type Caller = oneshot::Sender<Result<Option<Delivery>, Error>>;

/// Where the driver's result comes. Who drops this gives the request up.
pub(crate) type Requested = oneshot::Receiver<Result<Option<Delivery>, Error>>;

/// A hold on its way from the driver to the caller. It may lie in the channel when the caller's
/// future is dropped: then nobody ever sees it, and it is released here.
pub(crate) struct Delivery {
    hold: Option<Arc<Hold>>,
    shared: Arc<Shared>,
    link: Option<Arc<Link>>,
}

impl Delivery {
    pub(crate) fn new(hold: Arc<Hold>, shared: &Arc<Shared>) -> Self {
        Self { hold: Some(hold), shared: Arc::clone(shared), link: None }
    }

    /// The caller has it, and makes a guard of it.
    pub(crate) fn accept(mut self) -> Option<Arc<Hold>> {
        self.hold.take()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        if self.shared.is_left() {
            // It is the parent's.
            std::mem::forget((hold, Arc::clone(&self.shared)));
            return;
        }
        let change = hold.leave();
        if hold.is_unattended() {
            self.shared.watchdog.forget(&hold);
        }
        reaper::release_later(&self.shared, hold, change, self.link.take());
    }
}

/// Gets the lock for `caller`, or finds that it cannot be had; leaves nothing behind when the
/// caller goes away.
pub(crate) async fn run(ticket: Ticket, shared: Arc<Shared>, wanted: Wanted, mut caller: Caller) {
    let waiting = observe::waiting(&wanted);
    let mut result = waiting.within(drive(&shared, &wanted, &mut caller)).await;
    if shared.is_closed() && matches!(result, Ok(None)) {
        result = Err(Error::closed());
    }
    waiting.ended(&result, caller.is_closed());
    let mut result = result.map_err(|error| error.on(&wanted.name));
    if let Ok(Some(delivery)) = &mut result {
        delivery.link = wanted.link.clone();
    }
    // What a caller that went away does not take releases itself.
    let _ = caller.send(result);
    drop(ticket);
}

async fn drive(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    caller: &mut Caller,
) -> Result<Option<Delivery>, Error> {
    if let Some(seat) = &wanted.seat {
        return owner::drive(shared, wanted, seat, caller).await;
    }
    let hold = ask(shared, wanted, shared.new_owner()?, caller).await?;
    Ok(hold.map(|hold| Delivery::new(hold, shared)))
}

/// Asks the store for the lock in the name of `owner`.
pub(crate) async fn ask(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    owner: OwnerId,
    caller: &mut Caller,
) -> Result<Option<Arc<Hold>>, Error> {
    observe::asked_as(wanted, &owner);
    match wanted.kind {
        Kind::Plain | Kind::Simple => plain(shared, wanted, owner, caller).await,
        _ => fair(shared, wanted, owner, caller).await,
    }
}

/// Why a wait ends without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nobody waits for the result any more.
    Gone,
    /// Time is up.
    Late,
    /// The client was shut down.
    Closed,
}

impl Stop {
    /// How long a reply that is under way is waited for. An explicit owner may have had one, and ask
    /// again while a hold of its own ends.
    fn grace(self, wanted: &Wanted) -> Duration {
        match self {
            Self::Late if wanted.seat.is_none() => SILENCE_GRACE,
            _ => ANSWER_GRACE,
        }
    }
}

/// Resolves when the wait ends without the lock.
pub(crate) async fn stop(shared: &Shared, caller: &mut Caller, until: Option<Moment>) -> Stop {
    let deadline = async {
        match until {
            Some(until) => tokio::time::sleep(until.left()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = caller.closed() => Stop::Gone,
        () = deadline => Stop::Late,
        () = shared.closed() => Stop::Closed,
    }
}

async fn fair(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    owner: OwnerId,
    caller: &mut Caller,
) -> Result<Option<Arc<Hold>>, Error> {
    let mut order = None;
    let mut over = 0;
    let mut doubtful = Vec::new();
    loop {
        let request = new_request()?;
        let lease_ms = wanted.lease_ms(shared);
        let waiter = Waiter {
            name: wanted.name.clone(),
            owner: owner.clone(),
            lease_ms,
            shared_owner: wanted.seat.is_some(),
        };
        let (entry, mut outcome) = shared.hub.enter(waiter, request, order);
        let mut op = wanted.op(shared, &owner, request);
        op.order = order;
        let got = wait_fair(shared, wanted, op, &entry, &mut outcome, caller).await;
        shared.hub.remove(&entry);
        let remains = entry.remains();
        doubtful.extend(remains.doubtful);
        let outcome = match got {
            Ok(Some(outcome)) => outcome,
            // A grant that came in the very moment of giving up is a grant, unless cancelled.
            Ok(None) if caller.is_closed() => {
                give_up(shared, wanted, &owner, remains.request, remains.doubt, &doubtful);
                return Ok(None);
            }
            Ok(None) => match outcome.try_recv() {
                Ok(late @ Outcome::Granted { .. }) => late,
                _ => {
                    let taken_back =
                        give_up(shared, wanted, &owner, remains.request, remains.doubt, &doubtful);
                    // Whoever tries next, here or elsewhere, must not find the place of one that
                    // was told "no". A server that does not answer is not waited for.
                    if let Some(taken_back) = taken_back.filter(|_| !remains.doubt) {
                        let _ = tokio::time::timeout(ANSWER_GRACE, taken_back).await;
                    }
                    return Ok(None);
                }
            },
            Err(error) => {
                give_up(shared, wanted, &owner, remains.request, remains.doubt, &doubtful);
                return Err(error.by(&owner));
            }
        };
        let (grant, base) = match outcome {
            Outcome::Granted { grant, base } => (grant, base),
            Outcome::Failed(error) => {
                give_up(shared, wanted, &owner, remains.request, remains.doubt, &doubtful);
                return Err(error);
            }
        };
        if remains.doubt {
            doubtful.push(remains.request);
        }
        if let Some(hold) = confirm(shared, wanted, &owner, &grant, base, &doubtful).await {
            return Ok(Some(hold));
        }
        over += 1;
        if !wanted.is_renewed(shared) && over >= OVER_MAX {
            give_up(shared, wanted, &owner, remains.request, remains.doubt, &doubtful);
            let message = "the lease was over before the lock could be used, twice; choose a \
                           longer lease";
            return Err(Error::new(ErrorKind::LeaseTooShort, message).on(&wanted.name).by(&owner));
        }
        order = entry.order();
    }
}

/// Sends the request and waits for its turn. `None`: time is up or nobody waits any more.
async fn wait_fair(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    op: Acquire,
    entry: &Arc<Entry>,
    outcome: &mut oneshot::Receiver<Outcome>,
    caller: &mut Caller,
) -> Result<Option<Outcome>, Error> {
    let (request, returning) = (op.request, op.order.is_some());
    let until = wanted.until.filter(|_| !wanted.try_once);
    let stop = stop(shared, caller, until);
    tokio::pin!(stop);
    let mut copies = Copies::default();
    let mut stopped = false;
    let mut overtaken = None;
    let reply = {
        let call = answered_to_owner(shared, wanted, op, &mut copies);
        tokio::pin!(call);
        tokio::select! {
            biased;
            reply = &mut call => Some(reply),
            why = &mut stop => {
                stopped = true;
                tokio::time::timeout(why.grace(wanted), &mut call).await.ok()
            }
            granted = &mut *outcome => {
                // The grant came before the reply, which then tells nothing more.
                overtaken = granted.ok();
                tokio::time::timeout(ANSWER_GRACE, &mut call).await.ok()
            }
        }
    };
    entry.set_doubt(copies.in_doubt());
    if overtaken.is_some() {
        return Ok(overtaken);
    }
    let Some(reply) = reply else { return unanswered(shared, wanted, copies) };
    let reply = reply?;
    match reply.answer.body {
        Body::Granted { token, ttl_ms } => {
            let grant = Grant { request, token, ttl_ms };
            observe::granted(wanted.kind, Way::Request);
            return Ok(Some(Outcome::Granted { grant, base: reply.sent }));
        }
        Body::Busy { .. } => return Ok(None),
        Body::HeldBySelf { .. } if wanted.seat.is_some() => return Ok(None),
        Body::Queued { order, retry_ms, foreign, length } => {
            observe::queued(&wanted.name, &entry.owner, returning, length);
            shared.hub.queued(shared, entry, order);
            if let Some(link) = &wanted.link {
                link.queued(&entry.owner);
            }
            // The first heartbeat is early where something is expected before the regular one,
            // and where it has to find out on which channel Java will wake us.
            let soon = shared.config.heartbeat;
            if foreign || retry_ms.is_some_and(|ms| Duration::from_millis(ms) < soon) {
                shared.hub.wake(&Topic::Waiter(wanted.name.clone(), entry.owner.clone()));
            }
        }
        body => return Err(unexpected(wanted, &body)),
    }
    if stopped {
        return Ok(None);
    }
    tokio::select! {
        biased;
        granted = outcome => Ok(granted.ok()),
        _ = &mut stop => Ok(None),
    }
}

/// The wait is over. A store that never answered has not said that the lock is taken: nobody may take
/// its silence for that.
fn unanswered<T>(shared: &Shared, wanted: &Wanted, copies: Copies) -> Result<Option<T>, Error> {
    let silent = !copies.answered_once()
        && (copies.in_doubt() || *shared.connection.borrow() != ConnectionState::Connected);
    if shared.is_closed() || !silent {
        return Ok(None);
    }
    let kind = if copies.in_doubt() { ErrorKind::Unknown } else { ErrorKind::Unavailable };
    let message = "the store did not answer while this waited, so nobody knows whether the lock is \
                   free; check the server and the network, or wait for longer";
    Err(Error::new(kind, message).on(&wanted.name))
}

/// As [`answered`], and again while the owner still holds the lock by a request that was given up,
/// or a hold that was lost: that one is not taken over. It is about to be released, or ends with
/// its lease.
async fn answered_to_owner(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    acquire: Acquire,
    copies: &mut Copies,
) -> Result<Reply, Error> {
    let (mut pause, longest) = GIVEN_UP_PAUSE;
    loop {
        let reply = answered(shared, &wanted.name, acquire.clone(), copies).await?;
        let given_up = matches!(reply.answer.body, Body::HeldBySelf { .. });
        if !given_up || wanted.seat.is_none() || wanted.try_once {
            return Ok(reply);
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(longest);
    }
}

/// Sends a request until it is answered; once more when the server's clock was misjudged.
async fn answered(
    shared: &Arc<Shared>,
    name: &LockName,
    acquire: Acquire,
    copies: &mut Copies,
) -> Result<Reply, Error> {
    let until = shared.store_deadline();
    let op = Op::Acquire(acquire);
    for _ in 0..LATE_MAX {
        let reply = caller::until_answered(shared, name, &op, until, copies).await?;
        if reply.answer.body != Body::TooLate {
            return Ok(reply);
        }
    }
    let message = "the server's clock jumps, or calls arrive later than the store timeout";
    Err(Error::new(ErrorKind::Unavailable, message).on(name))
}

fn unexpected(wanted: &Wanted, body: &Body) -> Error {
    let message = match body {
        Body::HeldBySelf { .. } => {
            "this owner holds the lock already through another request: was the key written by hand?"
        }
        Body::Buried => "the request was given up before it was answered",
        _ => return Error::mismatch().on(&wanted.name),
    };
    Error::new(ErrorKind::Protocol, message).on(&wanted.name)
}

/// Makes the guard's hold out of a grant: asks once more where little of its time is left.
/// `None` when it is over.
async fn confirm(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    owner: &OwnerId,
    grant: &Grant,
    base: Moment,
    doubtful: &[RequestId],
) -> Option<Arc<Hold>> {
    let lease_ms = wanted.lease_ms(shared);
    let hold = wanted.hold(shared, owner.clone(), grant, base, doubtful.to_vec());
    let left_ms = hold.valid_until().left().as_millis() as u64;
    if left_ms == 0 {
        return None;
    }
    let hold = Arc::new(hold);
    let mut full = grant.ttl_ms >= lease_ms;
    if left_ms < grant.ttl_ms / 3 {
        let ttl_ms = hold.lease().wanted_ms();
        let op = hold.renewal(ttl_ms);
        let reply = caller::once(shared, &wanted.name, &op, &mut Copies::default()).await.ok()?;
        if reply.answer.body != Body::Renewed {
            return None;
        }
        hold.renewed(reply.sent, ttl_ms);
        full = true;
    }
    observe::held(shared, wanted, &hold);
    if *shared.connection.borrow() != ConnectionState::Connected {
        // It came with the last words of a connection that is gone: as any other hold.
        hold.suspect();
        full = false;
    }
    shared.watchdog.watch(&hold, full);
    Some(hold)
}

/// Takes back, in the background, what was asked for. The result is the end of that for `request`
/// itself, if there is anything to take back.
fn give_up(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    owner: &OwnerId,
    request: RequestId,
    doubt: bool,
    doubtful: &[RequestId],
) -> Option<JoinHandle<()>> {
    let gone = |request, doubt| Abandoned {
        name: wanted.name.clone(),
        kind: wanted.kind,
        owner: owner.clone(),
        request,
        doubt,
        shared_owner: wanted.seat.is_some(),
        link: wanted.link.clone(),
    };
    for request in doubtful {
        reaper::abandon(shared, gone(*request, true));
    }
    (!wanted.try_once || doubt).then(|| reaper::abandon(shared, gone(request, doubt)))
}

/// A plain or simple lock has no queue: whoever of this client is first here asks, and asks again on
/// a message, at the end of the holder's TTL, and once every heartbeat; more often while a foreign
/// client holds a simple lock, which tells nobody when it lets go.
async fn plain(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    owner: OwnerId,
    caller: &mut Caller,
) -> Result<Option<Arc<Hold>>, Error> {
    let request = new_request()?;
    let mut copies = Copies::default();
    let queue = shared.hub.enter_plain(&wanted.name);
    let until = wanted.until.filter(|_| !wanted.try_once);
    let result = {
        let first = FirstReply::default();
        let attempts = plain_attempts(shared, wanted, &owner, request, &queue, &mut copies, &first);
        tokio::pin!(attempts);
        tokio::select! {
            biased;
            result = &mut attempts => Some(result),
            why = stop(shared, caller, until) => tokio::select! {
                biased;
                result = &mut attempts => Some(result),
                () = first.or_not_asked() => None,
                () = tokio::time::sleep(why.grace(wanted)) => None,
            },
        }
    };
    let result = match result {
        Some(result) => result,
        None => unanswered(shared, wanted, copies),
    };
    shared.hub.leave_plain(&wanted.name);
    let doubtful = if copies.in_doubt() { vec![request] } else { Vec::new() };
    match result {
        Ok(Some((grant, base))) => {
            let hold = confirm(shared, wanted, &owner, &grant, base, &doubtful).await;
            if hold.is_none() {
                give_up(shared, wanted, &owner, request, true, &[]);
                let message = "the lease was over before the lock could be used; choose a \
                               longer lease";
                let error = Error::new(ErrorKind::LeaseTooShort, message);
                return Err(error.on(&wanted.name).by(&owner));
            }
            Ok(hold)
        }
        Ok(None) => {
            give_up(shared, wanted, &owner, request, copies.in_doubt(), &[]);
            Ok(None)
        }
        Err(error) => {
            give_up(shared, wanted, &owner, request, copies.in_doubt(), &[]);
            Err(error.by(&owner))
        }
    }
}

/// The first reply to a plain waiter.
#[derive(Default)]
struct FirstReply {
    asked: AtomicBool,
    replied: Notify,
}

impl FirstReply {
    /// Ready when it has come, or nothing was asked yet: another waiter of this client does.
    async fn or_not_asked(&self) {
        if self.asked.load(Ordering::Relaxed) {
            self.replied.notified().await;
        }
    }
}

async fn plain_attempts(
    shared: &Arc<Shared>,
    wanted: &Wanted,
    owner: &OwnerId,
    request: RequestId,
    queue: &crate::hub::PlainQueue,
    copies: &mut Copies,
    first: &FirstReply,
) -> Result<Option<(Grant, Moment)>, Error> {
    let topic = Topic::Base(wanted.name.clone());
    let period = shared.config.heartbeat;
    // One waiter of this client asks at a time; the others are woken by its success.
    let _turn = if wanted.try_once { None } else { Some(queue.turn.lock().await) };
    let mut listening: Option<Listening<'_>> = None;
    let mut in_vain: u32 = 0;
    let mut poll = Poll::default();
    loop {
        let op = wanted.op(shared, owner, request);
        let asked = Moment::now();
        first.asked.store(true, Ordering::Relaxed);
        let reply = answered(shared, &wanted.name, op, copies).await?;
        first.replied.notify_one();
        let (ttl_ms, longest) = match reply.answer.body {
            Body::Granted { token, ttl_ms } => {
                observe::granted(wanted.kind, Way::Request);
                return Ok(Some((Grant { request, token, ttl_ms }, reply.sent)));
            }
            Body::Busy { .. } | Body::Taken { .. } if wanted.try_once => return Ok(None),
            Body::Busy { ttl_ms } | Body::Taken { ttl_ms, foreign: false } => (ttl_ms, period),
            Body::Taken { ttl_ms, foreign: true } => (ttl_ms, poll.next()),
            // A hold of this owner that was given up, or is lost: it is not taken over.
            Body::HeldBySelf { .. } if wanted.seat.is_some() => {
                if wanted.try_once {
                    return Ok(None);
                }
                (None, GIVEN_UP_PAUSE.1)
            }
            body => return Err(unexpected(wanted, &body)),
        };
        if listening.is_none() {
            // Subscribed before it is asked again: no release can fall between.
            let subscribed = shared.store.listen(topic.clone());
            listening = Some(Listening { shared, topic: topic.clone() });
            subscribed.await;
            continue;
        }
        let ttl = ttl_ms.map_or(longest, |ms| Duration::from_millis(ms + 1));
        let wait = ttl.min(longest) + jitter(Duration::from_millis(20));
        let woken = tokio::time::timeout(wait, queue.wake.notified()).await.is_ok();
        in_vain = if woken { in_vain + 1 } else { 0 };
        if in_vain > RACES {
            tokio::time::sleep(asked.plus(PACE).left()).await;
        }
    }
}

struct Listening<'a> {
    shared: &'a Arc<Shared>,
    topic: Topic,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.shared.store.unlisten(self.topic.clone());
    }
}
