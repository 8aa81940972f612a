//! Tasks that last as long as their client: after a panic, in our code or a library's, they are
//! restarted. Otherwise the connection that such a task keeps would never come back, and those who
//! wait for it would wait forever.

use crate::base::backoff::Backoff;
use crate::base::clock::Moment;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Runs the task of `owner`, and restarts it whenever it panics. The task ends with this future.
pub(super) async fn kept<O, W>(owner: Arc<O>, begin: impl Fn(Arc<O>) -> W)
where
    W: Future<Output = ()> + Send + 'static,
{
    let mut backoff = Backoff::default();
    loop {
        let began = Moment::now();
        // Dropping the set ends what runs in it.
        let mut task = JoinSet::new();
        task.spawn(begin(Arc::clone(&owner)));
        match task.join_next().await {
            Some(Err(ended)) if ended.is_panic() => {}
            _ => return,
        }
        backoff.settle(Moment::now().since(began));
        tokio::time::sleep(backoff.next()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn d41_a_task_that_panics_begins_anew_until_it_ends_by_itself() {
        let begun = Arc::new(AtomicU32::new(0));
        let task = async |begun: Arc<AtomicU32>| {
            assert_eq!(begun.fetch_add(1, Ordering::Relaxed), 2, "on purpose");
        };
        kept(Arc::clone(&begun), task).await;
        assert_eq!(begun.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn d41_it_ends_with_who_runs_it() {
        let owner = Arc::new(());
        let runs = tokio::spawn(kept(Arc::clone(&owner), |owner| async move {
            std::future::pending::<()>().await;
            drop(owner);
        }));
        tokio::task::yield_now().await;
        runs.abort();
        let _ = runs.await;
        let ended = async {
            while Arc::strong_count(&owner) > 1 {
                tokio::task::yield_now().await;
            }
        };
        // Far more than a task takes to end. A task that continues is a failure, not an endless
        // wait.
        let ended = tokio::time::timeout(std::time::Duration::from_secs(10), ended).await;
        assert!(ended.is_ok(), "the task goes on");
    }
}
