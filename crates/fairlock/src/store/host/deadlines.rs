//! When the heartbeats of waiters are due: one kernel timer for all waiters of a client.
//!
//! The runtime's own timers wake the thread up to three times for a deadline that is seconds away,
//! and once more to set it. Wake-ups are most of an idle waiter's cost. Like leases, this timer
//! also counts the time during which the machine is suspended.

pub(super) use platform::Deadlines;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod platform {
    use crate::base::clock::{Moment, lock};
    use crate::store::Boxed;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::collections::BTreeMap;
    use std::future::Future;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio::runtime::Handle;
    use tokio::task::AbortHandle;

    /// The timer, and the tasks that sleep until a deadline.
    pub(in super::super) struct Deadlines {
        clock: Arc<Clock>,
        rings: AbortHandle,
    }

    struct Clock {
        fd: AsyncFd<OwnedFd>,
        sleepers: Mutex<Sleepers>,
    }

    #[derive(Default)]
    struct Sleepers {
        /// The wakers by deadline, each with a unique number.
        due: BTreeMap<(Moment, u64), Waker>,
        last: u64,
        /// When the timer fires.
        set: Option<Moment>,
    }

    impl Deadlines {
        /// Must be called inside the runtime whose tasks it wakes.
        pub(in super::super) fn set_up(runtime: &Handle) -> io::Result<Self> {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
            #[allow(
                deprecated,
                reason = "unsound with types that change their descriptor, which OwnedFd does not; what \
                          takes its place is `unsafe`"
            )]
            let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
            let clock = Arc::new(Clock { fd, sleepers: Mutex::default() });
            let rings = runtime.spawn(Arc::clone(&clock).ring()).abort_handle();
            Ok(Self { clock, rings })
        }

        /// Resolves after `pause`.
        pub(in super::super) fn sleep(&self, pause: Duration) -> Boxed<'static, ()> {
            let until = Moment::now().plus(pause);
            Box::pin(Sleep { clock: Arc::clone(&self.clock), until, number: None })
        }
    }

    impl Drop for Deadlines {
        fn drop(&mut self) {
            self.rings.abort();
        }
    }

    impl Clock {
        /// Wakes the tasks that are due, forever.
        async fn ring(self: Arc<Self>) {
            while let Ok(mut rung) = self.fd.readable().await {
                // The timer is not read: setting it again is enough to be notified again.
                rung.clear_ready();
                let due: Vec<Waker> = {
                    let mut sleepers = lock(&self.sleepers);
                    sleepers.set = None;
                    let later = sleepers.due.split_off(&(Moment::now(), u64::MAX));
                    let due = std::mem::replace(&mut sleepers.due, later);
                    self.set(&mut sleepers);
                    due.into_values().collect()
                };
                due.into_iter().for_each(Waker::wake);
            }
        }

        /// Sets the timer to the earliest deadline.
        fn set(&self, sleepers: &mut Sleepers) {
            let first = sleepers.due.keys().next().map(|(until, _)| *until);
            if first == sleepers.set {
                return;
            }
            let Some(until) = first else { return };
            // Zero would disarm it.
            let left = until.left().max(Duration::from_nanos(1));
            let spec = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                },
            };
            let set = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &spec);
            debug_assert!(set.is_ok(), "the timer is open and the time legal: {set:?}");
            sleepers.set = Some(until);
        }
    }

    struct Sleep {
        clock: Arc<Clock>,
        until: Moment,
        /// Set once it sleeps.
        number: Option<u64>,
    }

    impl Future for Sleep {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if self.until.left().is_zero() {
                return Poll::Ready(());
            }
            let clock = Arc::clone(&self.clock);
            let mut sleepers = lock(&clock.sleepers);
            let number = *self.number.get_or_insert_with(|| {
                sleepers.last += 1;
                sleepers.last
            });
            sleepers.due.insert((self.until, number), cx.waker().clone());
            clock.set(&mut sleepers);
            Poll::Pending
        }
    }

    impl Drop for Sleep {
        fn drop(&mut self) {
            if let Some(number) = self.number {
                // The timer may fire for nothing; usually another sleep sets it again first.
                lock(&self.clock.sleepers).due.remove(&(self.until, number));
            }
        }
    }
}

/// Host stores can only be opened on Linux.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod platform {
    use crate::store::Boxed;
    use std::io;
    use std::time::Duration;
    use tokio::runtime::Handle;

    pub(in super::super) struct Deadlines;

    impl Deadlines {
        pub(in super::super) fn set_up(_: &Handle) -> io::Result<Self> {
            Ok(Self)
        }

        pub(in super::super) fn sleep(&self, pause: Duration) -> Boxed<'static, ()> {
            Box::pin(tokio::time::sleep(pause))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Deadlines;
    use crate::base::clock::Moment;
    use std::time::Duration;
    use tokio::runtime::Handle;

    const SHORT: Duration = Duration::from_millis(20);
    const FAR: Duration = Duration::from_secs(3_600);

    /// Bound for what must happen; a lost timer never fires.
    const SOON: Duration = Duration::from_secs(30);

    /// Each sleep ends, and not before its time, regardless of earlier, concurrent and dropped
    /// ones.
    #[tokio::test]
    async fn sleepers_wake_up_each_at_its_time() {
        let deadlines = Deadlines::set_up(&Handle::current()).unwrap();
        let far = deadlines.sleep(FAR);
        let mut far = std::pin::pin!(far);
        for round in 0..3 {
            let began = Moment::now();
            let all = async {
                tokio::select! {
                    biased;
                    () = deadlines.sleep(SHORT) => {}
                    () = deadlines.sleep(SHORT * 2) => panic!("the shorter one comes first"),
                    () = &mut far => panic!("an hour has not passed"),
                }
                // The dropped sleep left the timer set to its deadline.
                tokio::join!(
                    deadlines.sleep(SHORT),
                    deadlines.sleep(SHORT * 3),
                    deadlines.sleep(Duration::ZERO)
                );
            };
            tokio::time::timeout(SOON, all).await.expect("woken");
            let took = Moment::now().since(began);
            assert!(took >= SHORT * 4, "round {round}: {took:?}");
        }
    }
}
