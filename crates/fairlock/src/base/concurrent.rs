//! Several futures at once, in one task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// A future among others.
pub(crate) type Polled<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs all the futures at once, and returns all outcomes when the last one is there.
pub(crate) async fn all<'a, T>(
    futures: impl Iterator<Item = impl Future<Output = T> + Send + 'a>,
) -> Vec<T> {
    all_of(futures.map(|future| Box::pin(future) as Polled<'a, T>).collect()).await
}

/// Like [`all`], for futures of several types.
pub(crate) async fn all_of<T>(futures: Vec<Polled<'_, T>>) -> Vec<T> {
    let mut under_way: Vec<Result<T, Polled<'_, T>>> = futures.into_iter().map(Err).collect();
    poll_fn(|context| {
        let mut ready = true;
        for it in &mut under_way {
            if let Err(future) = it {
                match future.as_mut().poll(context) {
                    Poll::Ready(outcome) => *it = Ok(outcome),
                    Poll::Pending => ready = false,
                }
            }
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    under_way.into_iter().filter_map(Result::ok).collect()
}

/// Returns the first outcome; never resolves if there are no futures.
pub(crate) async fn first<'a, T>(
    futures: impl Iterator<Item = impl Future<Output = T> + Send + 'a>,
) -> T {
    let mut under_way: Vec<Polled<'a, T>> =
        futures.map(|future| Box::pin(future) as Polled<'a, T>).collect();
    poll_fn(|context| {
        for future in &mut under_way {
            if let Poll::Ready(outcome) = future.as_mut().poll(context) {
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    })
    .await
}
