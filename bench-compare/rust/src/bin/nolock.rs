//! `nolock URL`: no lock at all. A comparison that does not find it guilty is broken.

use bench_compare::{Rival, Share, obey};
use std::time::Duration;

#[derive(Clone)]
struct Nothing;

impl Rival for Nothing {
    type Lock = ();
    type Guard = ();

    fn lock(&self, _: &str, _: Share) {}

    async fn acquire((): &mut (), _: Option<Duration>) -> Result<Option<()>, String> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(Some(()))
    }

    async fn release((): &mut (), (): ()) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("nolock URL");
    obey(Nothing, &url, "\"version\":\"0\",\"runs_on\":\"tokio\",\"renews\":true").await;
}
