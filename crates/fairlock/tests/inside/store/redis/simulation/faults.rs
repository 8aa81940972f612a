//! Faults of the clients, the network and the server of a run.

use super::actors::LOCKS;
use super::world::{Peer, World};
use fairlock_core::{LockName, Model};
use fairlock_testkit::rng::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The kinds of faults; all are equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Nothing that a client sends reaches the server.
    Mute,
    /// Nothing that the server sends reaches a client.
    Deaf,
    /// Both.
    CutOff,
    /// A client's bytes take up to some seconds.
    Slow,
    /// A client's connections are reset.
    Reset,
    /// Only the connection of its inbox.
    ResetInbox,
    /// Calls are carried out, and the connection ends before the reply.
    LoseReplies,
    SwallowMessages,
    RepeatMessages,
    CrashClient,
    RestartServer,
    /// Another server takes over with the data of some time ago.
    FailOver,
    /// The server does nothing for a while.
    Stall,
    /// The server's clock is set.
    StepClock,
    ForgetScripts,
    /// An operator removes a hold by force.
    Force,
}

pub(super) const KINDS: [Kind; 16] = [
    Kind::Mute,
    Kind::Deaf,
    Kind::CutOff,
    Kind::Slow,
    Kind::Reset,
    Kind::ResetInbox,
    Kind::LoseReplies,
    Kind::SwallowMessages,
    Kind::RepeatMessages,
    Kind::CrashClient,
    Kind::RestartServer,
    Kind::FailOver,
    Kind::Stall,
    Kind::StepClock,
    Kind::ForgetScripts,
    Kind::Force,
];

/// How long a fault lasts: mostly briefly, sometimes longer than it takes until a silent client
/// counts as dead, or than a lease.
fn length(rng: &mut Rng) -> Duration {
    let ms = match rng.below(10) {
        0..6 => rng.between(50, 2_500),
        6..9 => rng.between(2_500, 9_000),
        _ => rng.between(9_000, 36_000),
    };
    Duration::from_millis(ms)
}

/// What the run has to do after a fault.
pub(super) enum Wish {
    Nothing,
    /// Forget this client, and perhaps start another one.
    Buried(usize),
}

/// One fault, from beginning to end.
pub(super) async fn strike(world: &Arc<World>, kind: Kind, rng: &mut Rng) -> Wish {
    let living = world.with(|state| {
        let living = state.peers.iter().enumerate().filter(|(_, peer)| !peer.dead);
        living.map(|(number, _)| number).collect::<Vec<_>>()
    });
    if living.is_empty() {
        return Wish::Nothing;
    }
    let peer = rng.pick(&living);
    let length = length(rng);
    world.with(|state| {
        state.oracle.counts.faults += 1;
        state.oracle.note(|| format!("{kind:?} at client {peer} for {length:?}"));
    });
    match kind {
        Kind::Mute | Kind::Deaf | Kind::CutOff => {
            partition(world, kind, peer, length, rng.chance(50)).await;
        }
        Kind::Slow => {
            world.with(|state| {
                state.oracle.disturb(Some(peer));
                state.peers[peer].slow_ms = 20 << rng.below(8);
            });
            sleep(length).await;
            world.with(|state| {
                state.peers[peer].slow_ms = 0;
                state.oracle.calm_down(Some(peer));
            });
        }
        Kind::Reset | Kind::ResetInbox => world.with(|state| {
            state.reset(Some(peer), kind == Kind::ResetInbox);
            state.oracle.disturb(Some(peer));
            state.oracle.calm_down(Some(peer));
        }),
        Kind::LoseReplies => {
            world.with(|state| {
                state.oracle.disturb(Some(peer));
                state.peers[peer].lose_replies = rng.between(1, 4) as u32;
            });
            sleep(length).await;
            world.with(|state| {
                state.peers[peer].lose_replies = 0;
                state.oracle.calm_down(Some(peer));
            });
        }
        Kind::SwallowMessages | Kind::RepeatMessages => {
            // Not reported as a disturbance: waiters must hardly notice.
            let set = |on: bool| {
                world.with(|state| match kind {
                    Kind::SwallowMessages => state.peers[peer].swallow_messages = on,
                    _ => state.peers[peer].repeat_messages = on,
                });
            };
            set(true);
            sleep(length).await;
            set(false);
        }
        Kind::CrashClient => {
            world.with(|state| state.kill(peer, rng.chance(50)));
            return Wish::Buried(peer);
        }
        Kind::RestartServer | Kind::FailOver => restart(world, kind, length, rng).await,
        Kind::Stall => {
            world.with(|state| {
                state.oracle.disturb(None);
                for conn in state.server.conns.values() {
                    conn.to_server.hold(true);
                }
            });
            sleep(length).await;
            world.with(|state| {
                for peer in 0..state.peers.len() {
                    state.apply(peer);
                }
                state.oracle.calm_down(None);
            });
        }
        Kind::StepClock => step_clock(world, rng),
        Kind::ForgetScripts => world.with(|state| state.server.forget_scripts()),
        Kind::Force => force(world, rng),
    }
    Wish::Nothing
}

async fn partition(world: &World, kind: Kind, peer: usize, length: Duration, resets: bool) {
    world.with(|state| {
        state.oracle.disturb(Some(peer));
        state.peers[peer].mute |= kind != Kind::Deaf;
        state.peers[peer].deaf |= kind != Kind::Mute;
        state.apply(peer);
    });
    sleep(length).await;
    world.with(|state| {
        if state.peers[peer].dead {
            return;
        }
        state.peers[peer].mute = false;
        state.peers[peer].deaf = false;
        if resets {
            state.reset(Some(peer), false);
        }
        state.apply(peer);
        state.oracle.calm_down(Some(peer));
    });
    world.reachable_again();
}

async fn restart(world: &World, kind: Kind, length: Duration, rng: &mut Rng) {
    let loses_all = rng.chance(40);
    let silent = rng.chance(30);
    let behind = Duration::from_millis(rng.below(1_500));
    if kind == Kind::FailOver {
        world.with(|state| state.server.replica = Some(state.server.model.clone()));
        sleep(behind).await;
    }
    world.with(|state| {
        state.oracle.disturb(None);
        if state.server.is_up {
            state.stop_server(silent);
        }
    });
    sleep(length / 4).await;
    world.with(|state| {
        let data = match (kind, state.server.replica.take()) {
            (Kind::FailOver, Some(replica)) => replica,
            _ if loses_all => Model::default(),
            _ => std::mem::take(&mut state.server.model),
        };
        if kind == Kind::FailOver || loses_all {
            state.oracle.state_lost();
        }
        state.start_server(data);
        state.oracle.calm_down(None);
    });
    world.reachable_again();
}

fn step_clock(world: &World, rng: &mut Rng) {
    /// By how much the leases of dead clients may be extended.
    const BACK_MAX_MS: u64 = 15_000;
    world.with(|state| {
        let step = if rng.chance(50) {
            rng.pick(&[200, 5_000, 40_000, 3_600_000])
        } else {
            -(rng.between(1, BACK_MAX_MS) as i64)
        };
        state.oracle.clock_stepped(step);
        state.clock_ms += step;
        state.oracle.note(|| format!("the server's clock goes by {step} ms"));
        state.oracle.disturb(None);
        state.oracle.calm_down(None);
    });
}

/// An operator would use a client of its own; here only the call is made.
fn force(world: &World, rng: &mut Rng) {
    let (name, kind, _) = rng.pick(&LOCKS);
    let name = LockName::new(name.as_bytes()).expect("a name");
    world.with(|state| state.force(&name, kind));
}

/// Ends all faults for good.
pub(super) fn heal(world: &World) {
    world.with(|state| {
        if !state.server.is_up {
            let data = std::mem::take(&mut state.server.model);
            state.start_server(data);
        }
        for peer in 0..state.peers.len() {
            let of = &mut state.peers[peer];
            if of.dead {
                continue;
            }
            *of = Peer { tasks: std::mem::take(&mut of.tasks), ..Peer::default() };
            state.apply(peer);
        }
        state.oracle.all_calm();
        state.oracle.note(|| "all is well".into());
    });
    world.reachable_again();
}
