//! What Redisson's own tests demand of its plain and fair locks, in our words. The table in
//! docs/redisson-tests.md maps our tests to Redisson's.

use std::time::{Duration, Instant};

use super::super::api::{Client, Lock};
use super::super::support::{
    Store, granted, no_beats, poll_once, queue_is, soon, unless_it_pauses, until, wait_behind,
};
use fairlock::{Config, Error, GuardState, Kind, Release};

fn both_kinds(client: &Client) -> [Lock; 2] {
    [client.fair_lock("fair"), client.plain_lock("plain")]
}

/// A timed wait ends in time: never early, and hardly late.
pub(super) async fn a_timed_wait_is_exact(store: Store) {
    const WAIT: Duration = Duration::from_millis(300);
    const LATE: Duration = Duration::from_millis(350);
    let client = store.client().await;
    let other = store.client().await;
    for (lock, other) in both_kinds(&client).into_iter().zip(both_kinds(&other)) {
        let guard = lock.lock().await.unwrap();
        unless_it_pauses(LATE / 10, async || {
            let began = Instant::now();
            assert!(soon("the end of the wait", other.try_lock_for(WAIT)).await.unwrap().is_none());
            let took = began.elapsed();
            assert!(took >= WAIT, "{took:?}");
            if took < WAIT + LATE { Ok(()) } else { Err(took) }
        })
        .await;
        let _ = guard.release().await.unwrap();
    }
}

/// The time to live: an hour, none after the release, the watchdog's lease, and the rest of an
/// explicit lease however often it was entered.
pub(super) async fn time_to_live(store: Store) {
    let client = store.client_with(no_beats).await;
    let second = Duration::from_secs(1);
    for lock in both_kinds(&client) {
        let ttl = async || lock.remaining_ttl().await.unwrap();
        let guard = lock.clone().lease(3_600 * second).lock().await.unwrap();
        let left = ttl().await.unwrap();
        assert!(left > 3_590 * second && left <= 3_600 * second, "{left:?}");
        let _ = guard.release().await.unwrap();
        assert_eq!(ttl().await, None);

        let guard = lock.lock().await.unwrap();
        let left = ttl().await.unwrap();
        assert!(left > 290 * second && left <= 300 * second, "{left:?}");
        let _ = guard.release().await.unwrap();

        let first = lock.clone().lease(100 * second).lock().await.unwrap();
        let second_guard = first.reenter().await.unwrap();
        let third = second_guard.reenter().await.unwrap();
        assert_eq!(third.release().await.unwrap(), Release::StillHeld(2));
        assert_eq!(second_guard.release().await.unwrap(), Release::StillHeld(1));
        let left = ttl().await.unwrap();
        assert!(left > 80 * second && left <= 100 * second, "{left:?}");
        assert_eq!(first.release().await.unwrap(), Release::Released);
        assert_eq!(ttl().await, None);
    }
}

/// In Java an interrupt does not end `lock()`. Here a wait that repeatedly loses a `select!`
/// continues, keeps its place, and does not return without the lock.
pub(super) async fn a_wait_that_is_looked_away_from_goes_on(store: Store) {
    let client = store.client_with(no_beats).await;
    let other = store.client_with(no_beats).await;
    for (lock, other) in both_kinds(&client).into_iter().zip(both_kinds(&other)) {
        let guard = lock.lock().await.unwrap();
        let mut waiting = Box::pin(other.lock());
        assert!(poll_once(&mut waiting).await.is_none());
        let mut behind = None;
        if lock.kind() == Kind::Fair {
            queue_is(&lock, 1).await;
            behind = Some(wait_behind(&lock, 2).await);
        }
        for _ in 0..30 {
            tokio::select! {
                biased;
                result = &mut waiting => panic!("came back with {result:?}"),
                () = tokio::time::sleep(Duration::from_millis(2)) => {}
            }
        }
        let token = guard.token();
        let _ = guard.release().await.unwrap();
        let guard = soon("its turn", waiting).await.unwrap();
        assert!(guard.token() > token && guard.state() == GuardState::Held);
        if let Some(behind) = behind {
            assert!(!behind.is_finished(), "it was first");
            let _ = guard.release().await.unwrap();
            let _ = granted(behind).await.release().await.unwrap();
        }
    }
}

/// Hundreds of tasks share a few names, and each client's single connection for messages: no task
/// fails, and no channel is left over.
pub(super) async fn many_tasks_on_few_names(store: Store) {
    const TASKS: usize = 400;
    const NAMES: usize = 5;
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let (client, name) = (&clients[number % 2], format!("job{}", number % NAMES));
        let lock = match number % 3 {
            0 => client.plain_lock(format!("plain{name}")),
            _ => client.fair_lock(name),
        };
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await?;
            tokio::task::yield_now().await;
            guard.release().await
        }));
    }
    for task in tasks {
        assert_eq!(soon("its turn", task).await.unwrap().unwrap(), Release::Released);
    }
    let Some(mut raw) = store.raw() else { return };
    let mut inboxes: Vec<_> =
        clients.iter().map(|client| format!("fairlock_inbox:{}", client.id())).collect();
    inboxes.sort();
    until("only the inboxes are left", async || {
        let reply = raw.call(&["PUBSUB", "CHANNELS", "*"]);
        let mut channels: Vec<_> =
            reply.array().iter().map(|channel| channel.text().to_owned()).collect();
        // Sentinels use this channel on the servers that they watch.
        channels.retain(|channel| channel != "__sentinel__:hello");
        channels.sort();
        channels == inboxes
    })
    .await;
}

fn short_lease(config: Config) -> Config {
    config.watchdog_lease(Duration::from_millis(600))
}

/// A hold is renewed whatever happened to the lock before: taken and released by many tasks at
/// once, entered twice and left twice. It is held for more than two leases.
pub(super) async fn a_hold_is_renewed_after_whatever_came_before(store: Store) {
    let clients = [store.client_with(short_lease).await, store.client_with(short_lease).await];
    let fair = is_renewed(clients.each_ref().map(|client| client.fair_lock("fair")));
    let plain = is_renewed(clients.each_ref().map(|client| client.plain_lock("plain")));
    tokio::join!(fair, plain);
}

async fn is_renewed(locks: [Lock; 2]) {
    const HELD: Duration = Duration::from_millis(1_500);
    unless_it_pauses(Duration::from_millis(150), async || {
        let mut tasks = Vec::new();
        for number in 0..8 {
            let lock = locks[number % 2].clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..50 {
                    if let Some(guard) = lock.try_lock().await.unwrap() {
                        let _ = guard.release().await.unwrap();
                    }
                }
            }));
        }
        for task in tasks {
            soon("its end", task).await.unwrap();
        }
        let outer = soon("a free lock", locks[0].lock()).await.unwrap();
        let inner = outer.reenter().await.unwrap();
        let _ = inner.release().await.unwrap();
        let _ = outer.release().await.unwrap();

        let guard = soon("a free lock", locks[1].lock()).await.unwrap();
        let _ = tokio::time::timeout(HELD, guard.lost()).await;
        guard.ensure_valid()?;
        let holder = locks[0].holder().await.unwrap().map(|holder| holder.owner);
        assert_eq!(holder.as_ref(), Some(guard.owner()));
        Ok::<_, Error>(())
    })
    .await;
}

/// Nobody ever releases: each lease expires, and the next waiter gets the lock. So a waiter looks
/// early, but not twice within a quarter of `Config::heartbeat`.
pub(super) async fn leases_that_nobody_ends(store: Store) {
    let beats = |config: Config| config.heartbeat(Duration::from_millis(800));
    let clients = [store.client_with(beats).await, store.client_with(beats).await];
    let mut number = 0;
    // After a pause a lease may end before the next waiter stands in line, or before its caller has it.
    unless_it_pauses(Duration::from_millis(150), async || {
        number += 1;
        expire_in_turn(clients.each_ref().map(|client| client.fair_lock(format!("job{number}"))))
            .await
    })
    .await;
}

async fn expire_in_turn(locks: [Lock; 2]) -> Result<(), String> {
    const WAITERS: u32 = 5;
    let lease = Duration::from_millis(300);
    let began = Instant::now();
    let first = locks[0].clone().lease(lease).lock().await;
    let mut guards = vec![first.map_err(|error| error.to_string())?];
    let (mut waiters, mut in_order) = (Vec::new(), true);
    for number in 1..=WAITERS {
        let lock = locks[number as usize % 2].clone().lease(lease);
        let wait = Duration::from_secs(60);
        waiters.push(tokio::spawn(async move { lock.try_lock_for(wait).await }));
        until("it stands in line", async || {
            in_order &= began.elapsed() < lease;
            !in_order || locks[0].inspect().await.unwrap().queue_len == number as usize
        })
        .await;
    }
    for waiter in waiters {
        let granted = soon("its turn", waiter).await.unwrap();
        guards.push(granted.map_err(|error| error.to_string())?.expect("its turn"));
    }
    let took = began.elapsed();
    let at_least = WAITERS * (lease - Duration::from_millis(1));
    assert!(took >= at_least, "{took:?}: each has the lock for its whole lease");
    let tokens: Vec<_> = guards.iter().map(|guard| guard.token().get()).collect();
    if !in_order {
        return Err("the first lease ended before all stood in line".to_owned());
    }
    if !tokens.is_sorted() {
        return Err(format!("not in the order in which they came: {tokens:?}"));
    }
    for guard in guards.drain(..guards.len() - 1) {
        assert_eq!(guard.state(), GuardState::Lost);
        assert_eq!(guard.release().await.unwrap(), Release::Lost);
    }
    match took < 2 * at_least {
        true => Ok(()),
        false => Err(format!("{took:?}: the end of a lease is not noticed")),
    }
}

/// Attempts without a wait take no place in the queue, take nothing from anybody, and succeed as
/// soon as the holder's lease has ended.
pub(super) async fn attempts_leave_no_trace(store: Store) {
    let lease = Duration::from_secs(1);
    let clients = [store.client_with(no_beats).await, store.client_with(no_beats).await];
    for kind in 0..2 {
        let lock = |number: usize| both_kinds(&clients[number % 2])[kind].clone();
        let began = Instant::now();
        let guard = lock(0).lease(lease).lock().await.unwrap();
        let mut next = None;
        let mut refused = 0;
        while next.is_none() {
            next = lock(refused).try_lock().await.unwrap();
            refused += usize::from(next.is_none());
            assert!(began.elapsed() < Duration::from_secs(10), "refused {refused} times");
        }
        assert!(began.elapsed() >= lease - Duration::from_millis(1) && refused > 0);
        assert_eq!(lock(0).inspect().await.unwrap().queue_len, 0);
        assert!(next.unwrap().token() > guard.token());
        assert_eq!(guard.release().await.unwrap(), Release::Lost);
    }
}

/// One client holds the lock, another waits briefly and gives up. After the release a third gets
/// the lock at its first attempt: the second's place is not in the way.
pub(super) async fn trying_is_not_delayed(store: Store) {
    let clients = [
        store.client_with(no_beats).await,
        store.client_with(no_beats).await,
        store.client_with(no_beats).await,
    ];
    for kind in 0..2 {
        let [one, two, three] = clients.each_ref().map(|client| both_kinds(client)[kind].clone());
        for round in 0..20 {
            let guard = one.try_lock().await.unwrap().expect("a free lock");
            let wait = Duration::from_millis(10 + round % 3);
            let refused = two.try_lock_for(wait).await;
            // The store may not answer in so short a time on a busy machine.
            assert!(matches!(&refused, Ok(None)) || refused.unwrap_err().kind().is_retryable());
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            let guard = three.try_lock().await.unwrap();
            let _ = guard
                .unwrap_or_else(|| panic!("delayed in round {round}"))
                .release()
                .await
                .unwrap();
        }
    }
}
