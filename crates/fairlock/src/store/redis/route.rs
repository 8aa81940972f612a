//! Which address of a server's name is used: the same one by all connections of a client.
//!
//! A name may resolve to a master and its replicas (a headless service), or to two unrelated
//! servers (`localhost`, with one behind `::1` and one behind `127.0.0.1`). An inbox on another
//! server than the commands makes every waiter look dead, and clients that choose at random hold
//! one lock twice. So the addresses are tried one after the other, in the same order by all
//! clients; the command connection chooses, and the others follow.

use super::aside::Aside;
use super::classify::classify;
use crate::base::clock::lock;
use crate::store::StoreError;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// How many addresses of a name are tried at most: no server has more, and time is short.
const TRIED_MAX: usize = 16;

/// The way to one name.
pub(crate) struct Route {
    /// Looks up names.
    looks: Arc<Aside>,
    /// The time for all addresses of the name together.
    pub(super) patience: Duration,
    /// The address that the command connection uses, or used last.
    chosen: watch::Sender<Option<SocketAddr>>,
    /// How often it went to another address.
    moves: watch::Sender<u64>,
    /// The name had several addresses when it was looked up last.
    several: Mutex<bool>,
}

/// The threads on which one client looks up names.
pub(super) fn looks() -> Arc<Aside> {
    // Enough for the Sentinels of a set, or some nodes of a Cluster: a name that hangs does not
    // delay the others.
    Aside::new("fairlock-names", 4)
}

impl Route {
    pub(super) fn new(looks: Arc<Aside>, patience: Duration) -> Arc<Self> {
        let (chosen, moves) = (watch::Sender::new(None), watch::Sender::new(0));
        Arc::new(Self { looks, patience, chosen, moves, several: Mutex::default() })
    }

    /// The addresses of the host, in the order in which they are tried.
    ///
    /// # Errors
    /// It has none, or cannot be looked up; that may pass.
    pub(super) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, StoreError> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let name = host.to_owned();
        let looked_up = self.looks.run(move || {
            let found = (name.as_str(), port).to_socket_addrs()?;
            Ok::<Vec<_>, std::io::Error>(found.collect())
        });
        let found = looked_up.await.map_err(|failed| {
            StoreError::unavailable(format!("the name was not looked up: {failed}"), false)
        })?;
        let found =
            found.map_err(|error| StoreError { doubt: false, ..classify(&error.into()) })?;
        let addresses = in_order(found, *self.chosen.borrow());
        *lock(&self.several) = addresses.len() > 1;
        if addresses.is_empty() {
            return Err(StoreError::unavailable("the host has no address".into(), false));
        }
        Ok(addresses)
    }

    /// The address that the command connection uses; waits for the first one. The caller bounds the
    /// time.
    pub(super) async fn chosen(&self) -> SocketAddr {
        let mut chosen = self.chosen.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        if let Ok(chosen) = chosen.wait_for(Option::is_some).await
            && let Some(addr) = *chosen
        {
            return addr;
        }
        std::future::pending().await
    }

    /// The command connection uses `addr` now; the others follow.
    pub(super) fn choose(&self, addr: SocketAddr) {
        let before = self.chosen.send_replace(Some(addr));
        if before.is_some_and(|before| before != addr) {
            self.moves.send_modify(|count| *count += 1);
        }
    }

    /// Notifies the connections that follow that they must go to another address.
    pub(super) fn moves(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }

    /// Whether there is another address to go to.
    pub(super) fn has_several(&self) -> bool {
        *lock(&self.several)
    }
}

/// The order in which the addresses of a name are tried: the one that the client used last, then
/// those of the family that the resolver prefers, then the others. Within a family they ascend:
/// name servers rotate them, and clients that took the first one would go to different servers.
fn in_order(mut found: Vec<SocketAddr>, last: Option<SocketAddr>) -> Vec<SocketAddr> {
    let Some(preferred) = found.first().map(SocketAddr::is_ipv6) else { return found };
    found.sort_by_key(|addr| (Some(*addr) != last, addr.is_ipv6() != preferred, *addr));
    found.dedup();
    found.truncate(TRIED_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addrs(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 6379)).collect()
    }

    #[test]
    fn d05_everybody_tries_the_addresses_in_the_same_order() {
        let expected = addrs(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"]);
        for found in [
            ["10.0.0.3", "10.0.0.1", "fd00::1", "10.0.0.2"],
            ["10.0.0.2", "10.0.0.3", "10.0.0.1", "fd00::1"],
        ] {
            assert_eq!(in_order(addrs(&found), None), expected, "{found:?}");
        }
        assert_eq!(in_order(addrs(&["::1", "127.0.0.1"]), None), addrs(&["::1", "127.0.0.1"]));
        assert_eq!(in_order(addrs(&["127.0.0.1", "127.0.0.1"]), None), addrs(&["127.0.0.1"]));
        let many: Vec<_> = (0..=255).map(|n| format!("10.0.1.{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(in_order(addrs(&many), None).len(), TRIED_MAX);
        assert_eq!(in_order(Vec::new(), None), []);
    }

    #[test]
    fn d05_who_is_somewhere_stays_there_while_the_name_leads_there() {
        let last = addrs(&["10.0.0.2"])[0];
        let found = || addrs(&["10.0.0.3", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(in_order(found(), Some(last)), addrs(&["10.0.0.2", "10.0.0.1", "10.0.0.3"]));
        let gone = addrs(&["10.0.0.9"])[0];
        assert_eq!(in_order(found(), Some(gone)), addrs(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    }

    #[tokio::test]
    async fn d05_only_another_address_is_a_move() {
        let route = Route::new(looks(), Duration::from_secs(1));
        let mut moves = route.moves();
        let [one, two] = [addrs(&["10.0.0.1"])[0], addrs(&["10.0.0.2"])[0]];
        route.choose(one);
        route.choose(one);
        assert!(!moves.has_changed().unwrap());
        assert_eq!(route.chosen().await, one);
        route.choose(two);
        assert!(moves.has_changed().unwrap());
        moves.mark_unchanged();
        assert_eq!(route.chosen().await, two);
    }
}
