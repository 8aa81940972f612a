//! What clients leave in the folder and in the file.

use super::{Bed, enter, take};
use crate::support::{runtime, until};

#[test]
fn a_client_that_ends_leaves_nothing() {
    let bed = Bed::new();
    runtime().block_on(async {
        let client = bed.client().await;
        let guard = client.fair_lock("job").lock().await.unwrap();
        assert_eq!((bed.files(".alive").len(), bed.files(".bell").len()), (1, 1));
        guard.release().await.unwrap();
        client.shutdown().await;
        assert_eq!(bed.files(""), [""; 0]);
    });
}

/// Killed clients leave their files; whoever connects removes them. The proof of their death is kept.
#[test]
fn what_the_killed_leave_is_removed() {
    let bed = Bed::new();
    runtime().block_on(async {
        let client = bed.client().await;
        let lock = client.fair_lock("job");
        let mut workers: Vec<_> = (0..3).map(|_| bed.worker()).collect();
        take(&mut workers[0], &lock).await;
        enter(&mut workers[1], &lock, 1).await;
        for worker in &mut workers {
            worker.kill9();
        }
        let later = bed.client().await;
        until("the files of the dead are removed", async || {
            bed.files(".alive").len() == 2 && bed.files(".bell").len() == 2
        })
        .await;
        assert_eq!(bed.files(".dead").len(), 3);
        assert_eq!(bed.files(".new"), [""; 0]);
        assert!(!later.fair_lock("job").is_locked().await.unwrap());
    });
}
