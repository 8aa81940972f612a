//! `HostStore`, the implementation of `Store` for one client: an operation on the file, then, after
//! its commit, the messages that wake other clients. It also decides whose death the client watches for
//! (`look_around`, `follow`).
//!
//! A call is first tried on the caller's thread: a transaction takes some 30 us, less than a hop to
//! another thread and back. If somebody else has the file, the call continues on a thread that may
//! block, one call of a client at a time.

use super::around::{Stand, acquire_of, beats_apart, behind_leaver, behind_of};
use super::cleanup;
use super::deadlines::Deadlines;
use super::early::Before;
use super::fault;
use super::file::{HostFile, OpenOptions};
use super::folder::{self, Folder};
use super::graves;
use super::hand::Hand;
use super::heads::{self, LineBefore};
use super::liveness::{self, Kernel, Liveness};
use super::wake_up::{self, Message, WakeUp};
use super::watch::Watches;
use crate::base::clock::{Moment, lock, rounded};
use crate::base::error::{Error, ErrorKind};
use crate::observe;
use crate::settings::client_info::ClientInfo;
use crate::settings::config::{Address, Config};
use crate::store::entry::LockEntry;
use crate::store::{Boxed, Cursor, Event, Events, Page, Reply, Store, StoreError, Taken, Topic};
use fairlock_core::{
    Answer, Body, Channel, ClientId, Effect, Kind, LatchOp, LockName, LockState, Mode, Op, OwnerId,
    Payload, REGISTRY_TTL_MS, RequestId, Rules, Token, has_queue,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// How long a call waits for the file on the caller's own thread: about ten transactions of others.
const AT_ONCE: Duration = Duration::from_micros(300);

/// How often an operation that could not look at the whole queue continues, at 64 dead waiters each
/// time. If that is not enough, the client's engine continues.
const MORE_MAX: u32 = 1_000;

/// How many holds that were left to the store are checked each time another one is left, so that
/// those that are over never outnumber the others for long.
const KEPT_LOOKS: usize = 2;

/// A heartbeat that finds nothing to do is not written while the registry has at least this many
/// milliseconds left, so that it outlives two missed heartbeats after this one.
const KEPT_MS: u64 = REGISTRY_TTL_MS;

/// The store of one client.
pub(crate) struct HostStore(Arc<Inner>);

pub(super) struct Inner {
    pub(super) client: ClientId,
    /// The owner in topics of fair locks: the waiters of a client are woken together.
    me: OwnerId,
    pub(super) rules: Rules,
    /// How the file was opened.
    options: OpenOptions,
    /// Longest wait for the file in one copy of a call.
    patience: Duration,
    pub(super) folder: Arc<Folder>,
    file: Mutex<HostFile>,
    /// Runs the calls that wait for the file.
    hand: Hand,
    /// Longest wait for such a call.
    limit: Duration,
    pub(super) watches: Arc<Watches>,
    deadlines: Deadlines,
    /// Locks with a line that this client waits for, each with what the last look showed.
    pub(super) waits: Mutex<HashMap<LockName, Stand>>,
    /// Locks without a queue that it waits for, or whose holder it observes, and latches; each with the number of its
    /// listeners.
    pub(super) listened: Mutex<HashMap<LockName, usize>>,
    /// The holds that this client has left to the store, as far as their files may exist.
    left: Mutex<VecDeque<(LockName, Token)>>,
    /// A release, or the end of a wait, could not be written.
    unfinished: AtomicBool,
    hears: AtomicBool,
    /// The task that reads the bell; `None` after the client's end.
    wake_ups: Mutex<Option<AbortHandle>>,
    /// For that task.
    this: Weak<Self>,
    events: Events,
    runtime: Handle,
    _life: Liveness,
}

impl HostStore {
    /// Opens the file; the client is alive from then on. Also returns a moment and the host time
    /// then, in milliseconds. Blocks; must be called inside the client's runtime.
    pub(crate) fn start(
        config: &Config,
        client: ClientId,
        events: Events,
    ) -> Result<(Arc<Self>, (Moment, u64)), Error> {
        let Address::Sqlite { path, shared } = &config.address else {
            return Err(Error::misuse("this is no host store"));
        };
        let options = OpenOptions {
            shared_with_group: *shared,
            busy: config.connect_timeout.max(config.connect_retry),
            create: config.create,
        };
        let mut file = HostFile::open(path, &options)?;
        let folder = Arc::clone(file.folder());
        let at = file.path().to_owned();
        let bell = WakeUp::hang(&folder, client).map_err(|error| fault::no_fifo(&at, &error))?;
        let begun = Liveness::begin(&folder, client, config.children_keep_alive);
        let life = begun.map_err(|error| fault::no_fifo(&at, &error))?;
        if config.announce {
            // By the clock that dates its holds.
            let since = UNIX_EPOCH + Duration::from_millis(file.now_us() / 1_000);
            let info = ClientInfo::here(config, since);
            file.announce(client, &info).map_err(|failure| failure.error)?;
        }
        let runtime = Handle::current();
        let deadlines = Deadlines::set_up(&runtime).map_err(|error| fault::no_timer(&error))?;
        let me = OwnerId::ours(client, 1)?;
        let inner = Arc::new_cyclic(|this| Inner {
            client,
            me,
            rules: Rules { ages: false, ..config.rules() },
            options,
            patience: config.response_timeout,
            watches: Watches::new(Arc::clone(&folder), Arc::clone(&events), runtime.clone()),
            deadlines,
            folder,
            file: Mutex::new(file),
            hand: Hand::default(),
            limit: config.store_timeout,
            waits: Mutex::default(),
            listened: Mutex::default(),
            left: Mutex::default(),
            unfinished: AtomicBool::new(false),
            hears: AtomicBool::new(true),
            wake_ups: Mutex::default(),
            this: Weak::clone(this),
            events,
            runtime: runtime.clone(),
            _life: life,
        });
        let (now, now_ms) = (Moment::now(), lock(&inner.file).now_us() / 1_000);
        inner.listen_to(bell);
        let swept = Arc::clone(&inner);
        // If there is no thread, the next client cleans up.
        let _ = inner.hand.run(move || {
            cleanup::sweep(&swept.folder, &swept.file, |name| swept.end_gone(name));
        });
        Ok((Arc::new(Self(inner)), (now, now_ms)))
    }

    /// Runs `work` where it may wait for the file. Once begun, it continues even if the future is
    /// dropped.
    fn patiently<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Boxed<'static, Result<T, StoreError>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let (done, result) = oneshot::channel();
            let (doing, runtime) = (Arc::clone(&inner), inner.runtime.clone());
            let job = move || {
                if done.is_closed() {
                    return;
                }
                let _entered = runtime.enter();
                let did = work(&doing);
                // Before the answer, so that the caller has the last reference to this client's
                // store.
                drop(doing);
                let _ = done.send(did);
            };
            inner.hand.run(job).map_err(|error| no_thread(&error))?;
            match tokio::time::timeout(inner.limit, result).await {
                Ok(Ok(did)) => did,
                Ok(Err(_)) => {
                    let message = "a call has panicked, which is a defect of fairlock".into();
                    Err(StoreError::unavailable(message, true))
                }
                Err(_) => {
                    let message =
                        format!("the file has not answered for {:?}", rounded(inner.limit));
                    Err(StoreError::unavailable(message, true))
                }
            }
        })
    }
}

impl Inner {
    fn listen_to(&self, bell: WakeUp) {
        // Weak: the client's end must not wait for the bell.
        let hear = Weak::clone(&self.this);
        let task = self.runtime.spawn(async move {
            let told = hear.clone();
            let ended = bell.hear(move |message, arrived| {
                if let Some(inner) = hear.upgrade() {
                    inner.hear(message, arrived);
                }
            });
            // The bell cannot be read any more. From now on the heartbeats must suffice.
            let _: std::io::Error = ended.await;
            if let Some(inner) = told.upgrade() {
                inner.hears.store(false, Ordering::Relaxed);
            }
        });
        *lock(&self.wake_ups) = Some(task.abort_handle());
    }

    /// Creates another bell if somebody has removed this client's, and looks for what was sent
    /// meanwhile. `alive` is not created again: a command that inherited the former one would not
    /// keep the new one locked, and would be taken for dead.
    fn keep_bell(&self) {
        if self.folder.has(&folder::name(self.client, folder::BELL)) {
            return;
        }
        let Some(former) = lock(&self.wake_ups).take() else { return };
        let _entered = self.runtime.enter();
        match WakeUp::hang(&self.folder, self.client) {
            Ok(bell) => self.listen_to(bell),
            // Tried again with the next heartbeat.
            Err(_) => return *lock(&self.wake_ups) = Some(former),
        }
        former.abort();
        let mut topics: Vec<_> = lock(&self.waits).keys().map(|name| self.topic(name)).collect();
        for name in lock(&self.listened).keys() {
            cleanup::listen(&self.folder, name, self.client);
            topics.extend([Topic::Base, Topic::Latch, Topic::Leader].map(|of| of(name.clone())));
        }
        let events = Arc::clone(&self.events);
        // Not here: the receivers take locks of their own.
        self.runtime.spawn(async move {
            for topic in topics {
                events(Event::Wake(topic));
            }
        });
    }

    /// The file, set to wait for others that use it.
    pub(super) fn file(&self) -> Result<MutexGuard<'_, HostFile>, StoreError> {
        let mut file = lock(&self.file);
        if file.is_closed() {
            // A guard has outlived the shutdown of its client, and is released now.
            file.open_again(&self.options).map_err(StoreError::refused)?;
        }
        file.wait_at_most(self.patience);
        Ok(file)
    }

    /// Carries out `op` now, unless somebody else has the file.
    fn at_once(&self, name: &LockName, op: &Op) -> Option<Result<Reply, StoreError>> {
        let sent = Moment::now();
        let mut file: MutexGuard<'_, HostFile> = match self.file.try_lock() {
            Ok(file) => file,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if file.is_closed() {
            return None;
        }
        file.wait_at_most(AT_ONCE);
        let done = self.carry_out(&mut file, name, op);
        drop(file);
        match done {
            Err(failure) if failure.passing && !failure.doubt => None,
            done => Some(done.map(|done| self.deliver(name, sent, done))),
        }
    }

    /// Carries out one operation on the file, and checks what follows from it.
    fn carry_out(&self, file: &mut HostFile, name: &LockName, op: &Op) -> Result<Done, StoreError> {
        let world = Kernel::new(&self.folder, self.client, name);
        if matches!(op, Op::Latch(_)) {
            let (answer, effects) = file.apply_latch(name, op, &self.rules, &world)?;
            if matches!(op, Op::Latch(LatchOp::Look { waiting: Some(_) })) {
                self.keep_bell();
            }
            return Ok(Done { answer, effects, moved: Vec::new() });
        }
        let (mut behind, mut earlier, mut line) = (None, None, LineBefore::default());
        let quiet = match op {
            Op::Beat { client, waiters } => {
                file.beat_quietly(name, (*client, waiters), &self.rules, &world, KEPT_MS)?
            }
            _ => None,
        };
        let see = |before: &LockState| {
            behind = behind_leaver(before, op);
            earlier = Some(Before::of(before, op));
            line = LineBefore::of(before);
        };
        let (mut answer, mut effects) = match quiet {
            Some(answer) => (answer, Vec::new()),
            None => file.apply_seeing(name, op, &self.rules, &world, see)?,
        };
        self.go_on(file, name, op, &world, &mut answer, &mut effects);
        self.bury(world);
        let moved = match (op, &answer.body) {
            (Op::Leave { .. }, Body::Left) => behind,
            (_, Body::Queued { .. }) => {
                let returns = acquire_of(op).filter(|acquire| acquire.order.is_some());
                returns.and_then(|it| behind_of(file.known(name)?, &it.owner))
            }
            _ => None,
        };
        let is_other = |client: &ClientId| *client != self.client;
        let mut moved = moved.filter(is_other);
        self.look_around(file, name, op, &answer, &mut effects);
        let mut untold = Vec::new();
        if let Some(now) = file.known(name)
            && let Some(before) = earlier
        {
            moved = line.to_tell(now).filter(is_other).or(moved);
            if before.ends_early(now) {
                // Nobody else would look when it ends.
                moved = now.line().next().and_then(OwnerId::client).or(moved);
                if matches!(op.bare(), Op::Renew { kind, .. } if !has_queue(*kind)) {
                    effects.push(Effect { channel: Channel::Base, payload: Payload::Zero });
                }
            }
            if heads::finds_grant(&answer.body) {
                untold = heads::untold(now, self.client);
            }
        }
        untold.extend(moved);
        self.space_out(name, &mut answer.body);
        if matches!(op, Op::Beat { .. })
            || matches!(answer.body, Body::Queued { .. } | Body::Busy { .. } | Body::Taken { .. })
        {
            self.keep_bell();
        }
        Ok(Done { answer, effects, moved: untold })
    }

    /// After an operation that left dead waiters for the next call: removes them, too, so that
    /// nobody waits behind them for a heartbeat.
    fn go_on(
        &self,
        file: &mut HostFile,
        name: &LockName,
        op: &Op,
        world: &Kernel<'_>,
        answer: &mut Answer,
        effects: &mut Vec<Effect>,
    ) {
        // A try has taken nothing yet, and may find the lock free behind the dead.
        let is_try = acquire_of(op).is_some_and(|acquire| acquire.mode == Mode::Try);
        let again = if is_try { op } else { &Op::Nudge };
        for _ in 0..MORE_MAX {
            if !answer.more {
                return;
            }
            // `op` is done. The answer still says that there is more to do.
            let Ok((next, more)) = file.apply(name, again, &self.rules, world) else { return };
            effects.extend(more);
            answer.more = next.more;
            answer.removed += next.removed;
            if is_try {
                answer.body = next.body;
            }
        }
    }

    /// Ends what dead clients hold of the lock, and returns the clients that it still names; `None`
    /// if that is unknown.
    fn end_gone(&self, name: &LockName) -> Option<Vec<ClientId>> {
        let mut file = lock(&self.file);
        let sent = Moment::now();
        let done = self.carry_out(&mut file, name, &Op::Nudge).ok()?;
        let named = file.known(name).map(|now| graves::all_clients(now).collect());
        drop(file);
        self.deliver(name, sent, done);
        Some(named.unwrap_or_default())
    }

    pub(super) fn bury(&self, world: Kernel<'_>) {
        for client in world.dead() {
            liveness::bury(&self.folder, client);
        }
    }

    pub(super) fn topic(&self, name: &LockName) -> Topic {
        Topic::Waiter(name.clone(), self.me.clone())
    }

    /// Delivers the messages and returns the reply. Called outside the file's mutex: the receivers
    /// take locks of their own.
    pub(super) fn deliver(&self, name: &LockName, sent: Moment, done: Done) -> Reply {
        observe::answered(name, &done.answer);
        for client in done.moved {
            if client == self.client {
                (self.events)(Event::Wake(self.topic(name)));
            } else {
                wake_up::ring(&self.folder, client, &Message::Moved(folder::hash(name)));
            }
        }
        // The first in line is notified last: see `heads`.
        for effect in done.effects.into_iter().rev() {
            match (effect.channel, effect.payload) {
                (Channel::Inbox(to), Payload::Grant { grant, at_ms }) if to == self.client => {
                    (self.events)(Event::Granted {
                        grant,
                        at_ms,
                        arrived: Moment::now(),
                        clock: None,
                    });
                }
                (Channel::Inbox(to), Payload::Grant { grant, at_ms }) => {
                    // A client that cannot be notified finds its turn at its heartbeat, if it is
                    // alive.
                    wake_up::ring(&self.folder, to, &Message::Granted { grant, at_ms });
                }
                (Channel::Inbox(to), Payload::Forced { number, token }) => {
                    let Ok(owner) = OwnerId::ours(to, number) else { continue };
                    if to == self.client {
                        (self.events)(Event::Forced { owner, token });
                    } else {
                        // A client that cannot be notified finds out when it renews the hold.
                        wake_up::ring(&self.folder, to, &Message::Forced { owner, token });
                    }
                }
                (Channel::Base | Channel::Leader, _) => {
                    if lock(&self.listened).contains_key(name) {
                        self.wake(name);
                    }
                    cleanup::tell(&self.folder, name, self.client);
                }
                // Only fairlock uses the file.
                (Channel::Latch, payload) => {
                    if lock(&self.listened).contains_key(name) {
                        (self.events)(match payload {
                            Payload::Zero => Event::CountedDown(name.clone()),
                            _ => Event::Wake(Topic::Latch(name.clone())),
                        });
                    }
                    cleanup::tell(&self.folder, name, self.client);
                }
                (Channel::Waiter(_), _) | (Channel::Inbox(_), _) => {}
            }
        }
        Reply { sent, answer: done.answer, clock: None }
    }

    /// Wakes the listeners: somebody released the lock, its holder announced something, or a latch of this name
    /// changed.
    fn wake(&self, name: &LockName) {
        for topic in [Topic::Base, Topic::Latch, Topic::Leader] {
            (self.events)(Event::Wake(topic(name.clone())));
        }
    }

    /// The locks of [`waits`](Self::waits) for which this is true.
    fn names(&self, is_meant: impl Fn(&LockName, &Stand) -> bool) -> Vec<LockName> {
        let waits = lock(&self.waits);
        waits.iter().filter(|(name, stand)| is_meant(name, stand)).map(|it| it.0.clone()).collect()
    }

    fn look_at(&self, names: Vec<LockName>) {
        for name in names {
            (self.events)(Event::Wake(self.topic(&name)));
        }
    }

    fn hear(&self, message: Result<Message, Event>, arrived: Moment) {
        let of = |hash: u64| move |name: &&LockName| folder::hash(name) == hash;
        match message {
            Ok(Message::Granted { grant, at_ms }) => {
                let request = grant.request;
                (self.events)(Event::Granted { grant, at_ms, arrived, clock: None });
                // The watch for this waiter is over. Another waiter of this client stands elsewhere in the line, and
                // the waiters before it may wait longer than this hold lasts.
                let names = self.names(|_, stand| stand.of_shares == Some(request));
                for name in &names {
                    lock(&self.waits).remove(name);
                    self.watches.set(&self.topic(name), &[]);
                }
                self.look_at(names);
            }
            Ok(Message::Forced { owner, token }) => (self.events)(Event::Forced { owner, token }),
            // Ignored for a lock that nobody here waits for any more.
            Ok(Message::Free(hash)) => {
                let names: Vec<_> = lock(&self.listened).keys().filter(of(hash)).cloned().collect();
                names.iter().for_each(|name| self.wake(name));
            }
            Ok(Message::Moved(hash)) => {
                self.look_at(self.names(|name, _| folder::hash(name) == hash));
            }
            Err(event) => (self.events)(event),
        }
    }

    /// From now on this hold lasts as long as its lease, even if this client ends. Forgets earlier ones that are over.
    fn leave(&self, name: &LockName, token: Token, request: Option<RequestId>) {
        liveness::leave(&self.folder, self.client, name, token, request);
        // If the file is busy, they are checked another time.
        let mut left = lock(&self.left);
        if let Ok(file) = self.file.try_lock() {
            for _ in 0..KEPT_LOOKS.min(left.len()) {
                let Some((name, token)) = left.pop_front() else { break };
                if matches!(file.is_held_under(&name, token), Ok(false)) {
                    liveness::forget_left(&self.folder, self.client, &name, token);
                } else {
                    left.push_back((name, token));
                }
            }
        }
        left.push_back((name.clone(), token));
    }

    fn list(&self, file: &mut HostFile, at: &Cursor, keys: u32) -> Result<Page, StoreError> {
        let after = match at {
            Cursor::After(name) => Some(name),
            _ => None,
        };
        let names = file.names(after, keys)?;
        let next = names.next.map(Cursor::After);
        let mut page = Page { next, looked_at: keys, ..Page::default() };
        for name in names.names {
            for kind in [Kind::Fair, Kind::Simple, Kind::ReadWrite, Kind::Semaphore] {
                let world = Kernel::new(&self.folder, self.client, &name);
                let op = Op::Inspect { kind, limit: 0 };
                match file.apply(&name, &op, &self.rules, &world) {
                    // Only a latch keeps what is not ours.
                    Ok((Answer { body: Body::Inspected(seen), .. }, _))
                        if kind == Kind::Simple
                            && seen.holder.as_ref().is_some_and(|held| !held.owner.is_ours()) =>
                    {
                        break;
                    }
                    Ok((Answer { body: Body::Inspected(seen), .. }, _)) => {
                        let entry = LockEntry::seen(name.clone(), kind, &seen);
                        page.entries.push(entry);
                        break;
                    }
                    Err(failure) if failure.error.kind() == ErrorKind::WrongType => {}
                    Err(failure) => return Err(failure),
                    Ok(_) => return Err(StoreError::refused(Error::mismatch())),
                }
            }
        }
        Ok(page)
    }
}

/// The outcome of an operation, to be delivered once the file is free again.
pub(super) struct Done {
    pub(super) answer: Answer,
    pub(super) effects: Vec<Effect>,
    /// The clients whose predecessor in the line has changed, or which must look for another reason.
    pub(super) moved: Vec<ClientId>,
}

fn no_thread(error: &std::io::Error) -> StoreError {
    let message =
        format!("no thread can be started to wait for the file ({error}); is a limit reached?");
    StoreError::unavailable(message, false)
}

impl Store for HostStore {
    fn call<'a>(&'a self, name: &'a LockName, op: &'a Op) -> Boxed<'a, Result<Reply, StoreError>> {
        let op = op.without_kind();
        if let Some(done) = self.0.at_once(name, op) {
            return Box::pin(async move { done });
        }
        let (name, op, sent) = (name.clone(), op.clone(), Moment::now());
        self.patiently(move |inner| {
            let done = inner.file().and_then(|mut file| inner.carry_out(&mut file, &name, &op));
            if done.is_err() && matches!(op.bare(), Op::Release { .. } | Op::Leave { .. }) {
                inner.unfinished.store(true, Ordering::Relaxed);
            }
            Ok(inner.deliver(&name, sent, done?))
        })
    }

    fn call_now(&self, name: &LockName, op: &Op) -> Option<Result<Reply, StoreError>> {
        self.0.at_once(name, op.without_kind())
    }

    fn call_together<'a>(
        &'a self,
        asks: &'a [(LockName, Op)],
    ) -> Boxed<'a, Result<Taken, StoreError>> {
        let asks = asks.to_vec();
        self.patiently(move |inner| inner.take_together(&asks))
    }

    fn is_synchronous(&self) -> bool {
        true
    }

    fn beat_every(&self, name: &LockName, heartbeat: Duration) -> Duration {
        beats_apart(lock(&self.0.waits).get(name).map(|stand| stand.place), heartbeat)
    }

    fn sleep(&self, pause: Duration) -> Boxed<'_, ()> {
        self.0.deadlines.sleep(pause)
    }

    fn listen(&self, topic: Topic) -> Boxed<'_, Result<(), StoreError>> {
        if let Topic::Base(name) | Topic::Latch(name) | Topic::Leader(name) = topic {
            let mut listened = lock(&self.0.listened);
            let users = listened.entry(name.clone()).or_default();
            *users += 1;
            if *users == 1 {
                cleanup::listen(&self.0.folder, &name, self.0.client);
            }
        }
        Box::pin(async { Ok(()) })
    }

    fn unlisten(&self, topic: Topic) {
        let (Topic::Base(name) | Topic::Latch(name) | Topic::Leader(name)) = &topic else { return };
        let mut listened = lock(&self.0.listened);
        let Some(users) = listened.get_mut(name) else { return };
        *users -= 1;
        if *users == 0 {
            listened.remove(name);
            cleanup::unlisten(&self.0.folder, name, self.0.client);
            drop(listened);
            self.0.watches.set(&topic, &[]);
        }
    }

    fn ready<'a>(&'a self, _: Option<&'a LockName>) -> Boxed<'a, ()> {
        Box::pin(async {})
    }

    fn inbox_up(&self) -> bool {
        self.0.hears.load(Ordering::Relaxed)
    }

    fn ping(&self) -> Boxed<'_, Result<(), StoreError>> {
        self.patiently(|inner| inner.file()?.ping())
    }

    fn clients<'a>(&'a self, ids: &'a [ClientId]) -> Boxed<'a, BTreeMap<ClientId, ClientInfo>> {
        let ids = ids.to_vec();
        let known = self.patiently(move |inner| inner.file()?.clients(&ids));
        Box::pin(async move { known.await.unwrap_or_default() })
    }

    fn page(&self, at: Cursor, keys: u32) -> Boxed<'_, Result<Page, StoreError>> {
        self.patiently(move |inner| inner.list(&mut *inner.file()?, &at, keys))
    }

    fn lease_differs(&self, client: ClientId) {
        // If it fails, others may call a renewal overdue that nobody owes.
        let inner = Arc::clone(&self.0);
        let _ = self.0.hand.run(move || _ = lock(&inner.file).drop_lease(client));
    }

    fn note_kind<'a>(
        &'a self,
        name: &'a LockName,
        kind: Kind,
    ) -> Boxed<'a, Result<Option<Kind>, StoreError>> {
        let name = name.clone();
        self.patiently(move |inner| inner.file()?.note_kind(&name, kind))
    }

    fn left_behind(&self, name: &LockName, token: Token, request: Option<RequestId>) {
        self.0.leave(name, token, request);
    }

    fn farewell(&self) -> Boxed<'_, ()> {
        let done = self.patiently(|inner| {
            let _ = lock(&inner.wake_ups).take();
            // Holds end with their leases, as on a server. What could not be given back ends with the process.
            let is_provable = inner.unfinished.load(Ordering::Relaxed);
            liveness::farewell(&inner.folder, inner.client, is_provable);
            if !is_provable {
                for (name, token) in lock(&inner.left).drain(..) {
                    liveness::forget_left(&inner.folder, inner.client, &name, token);
                }
            }
            let mut file = lock(&inner.file);
            let done = file.farewell(inner.client);
            // Closed here: the program may end before this store is dropped, and would leave the log behind.
            file.close();
            done
        });
        // If it fails, a later client cleans up.
        Box::pin(async move { drop(done.await) })
    }
}
