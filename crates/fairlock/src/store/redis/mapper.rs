//! Keeps the map of a Cluster up to date: asks its nodes, at a bounded rate, as long as the client
//! lives.

use super::classify::classify;
use super::cluster::{Cluster, Node, all_but_late};
use super::dial::{self, Connection};
use super::keys;
use super::link::made;
use super::slots::{Addr, SlotMap, slot};
use super::wire::{self, CallError, Cmd, PushKind, Settings, Value};
use crate::base::backoff::Backoff;
use crate::base::clock::Moment;
use crate::base::error::{Error, ErrorKind};
use crate::settings::config::ShardedPubSub;
use crate::store::StoreError;
use fairlock_core::ClientId;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often the map is asked for without complaints: a node that leaves the Cluster properly tells
/// nobody.
const PERIOD: Duration = Duration::from_secs(10);

/// Longest pause between two attempts while slots are without a connection: a promoted replica is
/// found within this time.
const LONGEST: Duration = Duration::from_millis(500);

/// How many nodes are asked at once.
const ASKED_AT_ONCE: usize = 3;

/// The next nodes are asked when these have not answered for this long.
const NEXT_AFTER: Duration = Duration::from_millis(300);

/// How much longer to wait for answers once there is one: nodes that do not know of a failover may
/// be faster than those that do.
const LATECOMERS: Duration = Duration::from_millis(50);

/// Asks for the map, forever. `told` gets the result of each attempt.
pub(super) async fn keep(cluster: Arc<Cluster>, told: impl Fn(Result<(), StoreError>)) {
    let mut backoff = Backoff::default();
    for turn in 0_usize.. {
        let began = Moment::now();
        let result = ask(&cluster, turn).await.map(|map| cluster.install(map));
        if matches!(result, Ok(true)) {
            backoff = Backoff::default();
        }
        told(result.map(drop));
        let pause = backoff.next().min(LONGEST);
        // A map that is wanted sooner waits as well: however many calls fail, the rate stays
        // bounded.
        tokio::time::sleep(pause).await;
        if cluster.is_whole() {
            let _ = tokio::time::timeout(PERIOD, cluster.map_wanted.notified()).await;
        }
        backoff.settle(Moment::now().since(began));
    }
}

/// A node's view of the Cluster.
struct View {
    map: SlotMap,
    /// The node takes part in the Cluster, with a majority of the masters.
    sound: bool,
    /// Rises with every failover and every move of a slot.
    epoch: u64,
}

impl View {
    /// The best view is the largest.
    fn rank(&self) -> (bool, u64, usize) {
        (self.sound, self.epoch, usize::MAX - self.map.missing())
    }
}

/// The best of the views of some nodes.
async fn ask(cluster: &Arc<Cluster>, turn: usize) -> Result<SlotMap, StoreError> {
    let patience = cluster.config.connect_timeout;
    let until = Moment::now().plus(patience);
    let mut sources = cluster.sources(turn).into_iter();
    let mut asked = JoinSet::new();
    let mut best: Option<View> = None;
    let mut failure: Option<StoreError> = None;
    let mut more = true;
    loop {
        if best.is_none() && more {
            for addr in sources.by_ref().take(ASKED_AT_ONCE) {
                asked.spawn(view_of(Arc::clone(cluster), addr));
            }
        }
        let wait = if best.is_some() { LATECOMERS } else { NEXT_AFTER.min(until.left()) };
        match tokio::time::timeout(wait, asked.join_next()).await {
            Ok(Some(Ok(Ok(view)))) => {
                if best.as_ref().is_none_or(|best| best.rank() < view.rank()) {
                    best = Some(view);
                }
                more = false;
            }
            Ok(Some(Ok(Err(silence)))) => {
                // A refusal tells more than a node that is down.
                if failure.as_ref().is_none_or(|known| known.passing) {
                    failure = Some(silence);
                }
                more = asked.is_empty();
            }
            // A task that panicked has no answer.
            Ok(Some(Err(_))) => more = asked.is_empty(),
            // All have answered, or the stragglers' time is up. Dropping the set ends what is under
            // way.
            _ if best.is_some() => break,
            Ok(None) if sources.len() == 0 => break,
            Err(_) if until.left().is_zero() => break,
            _ => more = true,
        }
    }
    match best {
        Some(view) => Ok(view.map),
        None => Err(failure.unwrap_or_else(|| {
            StoreError::unavailable("no node of the Cluster answers".into(), false)
        })),
    }
}

async fn view_of(cluster: Arc<Cluster>, addr: Addr) -> Result<View, StoreError> {
    let at =
        |failure: StoreError| StoreError { error: failure.error.at(addr.to_string()), ..failure };
    let patience = cluster.config.connect_timeout;
    let asked = async {
        let mut conn = match cluster.known(&addr).and_then(|node| node.link.connection()) {
            Some(conn) => conn,
            None => connect(&cluster, &addr).await?,
        };
        view(&mut conn, &addr).await
    };
    let late = || dial::late(cluster.is_encrypted());
    tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| Err(late())).map_err(at)
}

async fn connect(cluster: &Cluster, addr: &Addr) -> Result<Connection, StoreError> {
    let patience = cluster.config.connect_timeout;
    let config = Settings::default().response_timeout(patience);
    cluster.endpoint(addr).connect(config).await.map_err(|failure| cluster.login.judge(failure))
}

async fn view(conn: &mut Connection, addr: &Addr) -> Result<View, StoreError> {
    let mut both = wire::pipe();
    both.cmd("CLUSTER").arg("INFO");
    both.cmd("CLUSTER").arg("SLOTS");
    let replies = made(conn.call_all(&both).await)?;
    let mut read = Vec::new();
    for reply in replies {
        read.push(reply.extract_error().map_err(|error| no_node(&error))?);
    }
    let odd = || {
        let message =
            "its answer to CLUSTER SLOTS has another form; is it a Redis or Valkey server?";
        StoreError::refused(Error::new(ErrorKind::Protocol, message))
    };
    let [info, slots] = <[Value; 2]>::try_from(read).map_err(|_| odd())?;
    let info = text(info).ok_or_else(odd)?;
    let field = |name: &str| {
        let line = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
        info.lines().find_map(line)
    };
    let map = SlotMap::read(&slots, addr).ok_or_else(odd)?;
    if map.masters().is_empty() {
        let message = "it knows of no slot that is served; has it left the Cluster?";
        return Err(StoreError::unavailable(message.into(), false));
    }
    Ok(View {
        map,
        sound: field("cluster_state").as_deref() == Some("ok"),
        epoch: field("cluster_current_epoch").and_then(|n| n.parse().ok()).unwrap_or(0),
    })
}

fn no_node(error: &CallError) -> StoreError {
    if error.to_string().contains("cluster support disabled") {
        let message = "the server is no node of a Cluster; use `redis://` for a single server";
        return StoreError::refused(Error::misuse(message));
    }
    classify(error)
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::VerbatimString(text) => Some(text),
        _ => None,
    }
}

/// Whether messages go only to the nodes of their slot. Asks the masters once they are connected:
/// it must work on each of them.
pub(super) async fn is_sharded(cluster: &Cluster) -> Result<bool, StoreError> {
    match cluster.config.sharded_pubsub {
        ShardedPubSub::On => return Ok(true),
        ShardedPubSub::Off => return Ok(false),
        ShardedPubSub::Auto => {}
    }
    let mut asked = JoinSet::new();
    for node in cluster.nodes() {
        let Some(conn) = node.link.connection() else { continue };
        asked.spawn(async move {
            let ask = wire::cmd("PUBSUB").arg("SHARDNUMSUB").clone();
            let reply = conn.call(&ask).await.and_then(Value::extract_error);
            (node.addr.clone(), reply)
        });
    }
    let mut answers = 0;
    for (addr, reply) in all_but_late(asked, |(_, reply)| reply.is_ok()).await {
        match reply {
            Ok(_) => answers += 1,
            // Redis 6.2: "ERR Unknown subcommand or wrong number of arguments for 'SHARDNUMSUB'".
            Err(error) if error.to_string().to_lowercase().contains("unknown subcommand") => {
                return Ok(false);
            }
            Err(error) => {
                let failure = made::<()>(Err(error)).err();
                let failure = failure.filter(|failure| !failure.passing);
                if let Some(failure) = failure {
                    let error = failure.error.at(addr.to_string());
                    return Err(StoreError { error, ..failure });
                }
            }
        }
    }
    match answers {
        0 => Err(StoreError::unavailable("no master of the Cluster is connected".into(), false)),
        _ => Ok(true),
    }
}

/// Checks the permission for sharded messages: a user without it would find out only while waiting,
/// and depend on heartbeats. Uses a connection of its own, because a server may end a subscription
/// at any time.
pub(super) async fn try_to_listen(
    cluster: &Arc<Cluster>,
    client: ClientId,
) -> Result<(), StoreError> {
    let channel = keys::own_inbox(client);
    // Any connected node will do: a missing permission is reported before a redirection. The node
    // that serves the channel comes first, so that not all clients ask the same one.
    let own = cluster.node_of(slot(&channel)).ok().filter(|node| node.is_up());
    let own_addr = own.as_ref().map(|node| node.addr.clone());
    let others = cluster.nodes().into_iter().filter(|node| node.is_up());
    let others = others.filter(|node| Some(&node.addr) != own_addr.as_ref());
    let mut failed =
        Err(StoreError::unavailable("no master of the Cluster is connected".into(), false));
    for node in own.into_iter().chain(others) {
        failed = try_to_listen_at(cluster, &node, &channel).await;
        if !failed.as_ref().is_err_and(|failure| failure.passing) {
            break;
        }
    }
    failed
}

async fn try_to_listen_at(
    cluster: &Arc<Cluster>,
    node: &Node,
    channel: &[u8],
) -> Result<(), StoreError> {
    let at = |failure: StoreError| StoreError {
        error: failure.error.at(node.addr.to_string()),
        ..failure
    };
    let listen = async {
        let conn = connect(cluster, &node.addr).await?;
        let cmd = Cmd::subscription(PushKind::SSubscribe, channel);
        match conn.call(&cmd).await.and_then(Value::extract_error) {
            Ok(_) => Ok(()),
            // The channel is elsewhere. A missing permission would have been reported first.
            Err(error) if error.redirect_node().is_some() => Ok(()),
            Err(error) => made(Err(error)),
        }
    };
    let late = || StoreError::unavailable("no answer in time".into(), false);
    let patience = cluster.config.connect_timeout;
    tokio::time::timeout(patience, listen).await.unwrap_or_else(|_| Err(late())).map_err(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(sound: bool, epoch: u64, first: i64) -> View {
        let master = vec![Value::BulkString(b"h".to_vec()), Value::Int(1)];
        let range = vec![Value::Int(first), Value::Int(16_383), Value::Array(master)];
        let slots = Value::Array(vec![Value::Array(range)]);
        View { map: SlotMap::read(&slots, &Addr::new("h", 1)).unwrap(), sound, epoch }
    }

    #[test]
    fn the_soundest_and_then_the_latest_view_counts() {
        let ascending = [view(false, 9, 0), view(true, 1, 0), view(true, 2, 7), view(true, 2, 0)];
        for pair in ascending.windows(2) {
            assert!(pair[0].rank() < pair[1].rank());
        }
    }
}
