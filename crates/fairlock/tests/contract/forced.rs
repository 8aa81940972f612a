//! A lock that is taken away by force, and how its holder learns of it.

use std::time::{Duration, Instant};

use super::super::support::{Store, soon};
use fairlock::{Config, ErrorKind, GuardState, LostReason, Release, ShardedPubSub};

/// Shorter than the time to the first renewal, which comes after 10 s with the default lease.
const BEFORE_A_RENEWAL: Duration = Duration::from_secs(7);

/// With sharded messages a holder does not listen on its lock's channel.
fn told(config: Config) -> Config {
    config.sharded_pubsub(ShardedPubSub::Off)
}

/// D15: the holder learned of the loss only 9 s later, at its next renewal, and with an explicit
/// lease never, while the next holder had the lock.
pub(super) async fn d15_the_holder_is_told(store: Store) {
    let client = store.client_with(told).await;
    let operator = store.client_with(told).await;
    let kinds = [
        (client.fair_lock("fair"), operator.fair_lock("fair")),
        (client.plain_lock("plain"), operator.plain_lock("plain")),
        (client.simple_lock("simple"), operator.simple_lock("simple")),
    ];
    for (lock, of_operator) in kinds {
        for lock in [lock.clone(), lock.lease(Duration::from_secs(60))] {
            let guard = soon("a free lock", lock.lock()).await.unwrap();
            assert_eq!(guard.lost_reason(), None);
            let began = Instant::now();
            assert!(of_operator.force_unlock().await.unwrap());
            let state = soon("the loss", guard.state_changed(GuardState::Held)).await;
            assert!(began.elapsed() < BEFORE_A_RENEWAL, "told after {:?}", began.elapsed());
            assert_eq!((state, guard.lost_reason()), (GuardState::Lost, Some(LostReason::Forced)));
            let error = guard.ensure_valid().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost);
            assert_eq!(error.lost_reason(), Some(LostReason::Forced), "{error}");
            assert_eq!(guard.release().await.unwrap(), Release::Lost);
        }
    }
}
