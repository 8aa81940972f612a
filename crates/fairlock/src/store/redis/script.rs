//! Turns operations into script calls.

use super::keys::{Keys, Publishing};
use fairlock_core::{LockName, Mode, Op, RequestId, Rules, has_queue};
use redis::Cmd;
use std::sync::LazyLock;

/// A script: the files in `lua/` that make it up, byte for byte as on disk.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    sha: LazyLock<String>,
    /// The text without its common cases.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    long_way: &'static str,
}

macro_rules! script {
    // Fair and plain locks.
    ($operation:literal) => {
        script!(["lua/head.lua", "lua/hash.lua", "lua/rules.lua", $operation])
    };
    ($operation:literal, common case $($first:literal),+) => {
        script!(
            ["lua/head.lua", "lua/hash.lua", $($first),+, "lua/rules.lua", $operation],
            ["lua/head.lua", "lua/hash.lua", "lua/rules.lua", $operation]
        )
    };
    (simple $operation:literal) => {
        script!(["lua/head.lua", "lua/simple.lua", $operation])
    };
    ([$($file:literal),+]) => {
        script!([$($file),+], [$($file),+])
    };
    ([$($file:literal),+], [$($long_way:literal),+]) => {{
        const TEXT: &str = concat!($(include_str!($file)),+);
        Script {
            text: TEXT,
            sha: LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned()),
            #[cfg(feature = "_testkit")]
            #[cfg(test)]
            long_way: concat!($(include_str!($long_way)),+),
        }
    }};
}

static ACQUIRE: Script =
    script!("lua/acquire.lua", common case "lua/short_acquire.lua", "lua/short_enter.lua");
static BEAT: Script = script!("lua/beat.lua");
static FORCE: Script = script!("lua/force.lua");
static INSPECT: Script = script!("lua/inspect.lua");
static LEAVE: Script = script!("lua/leave.lua");
static NUDGE: Script = script!("lua/nudge.lua");
static PLACE: Script = script!("lua/place.lua");
static PLAIN_ACQUIRE: Script =
    script!("lua/plain_acquire.lua", common case "lua/short_acquire.lua");
static PLAIN_LEAVE: Script = script!("lua/plain_leave.lua");
static PLAIN_RELEASE: Script =
    script!("lua/plain_release.lua", common case "lua/short_plain_release.lua");
static REENTER: Script = script!("lua/reenter.lua");
static RELEASE: Script = script!("lua/release.lua", common case "lua/short_release.lua");
static RENEW: Script = script!("lua/renew.lua");

static SIMPLE_ACQUIRE: Script = script!(simple "lua/simple_acquire.lua");
static SIMPLE_FORCE: Script = script!(simple "lua/simple_force.lua");
static SIMPLE_INSPECT: Script = script!(simple "lua/simple_inspect.lua");
static SIMPLE_LEAVE: Script = script!(simple "lua/simple_leave.lua");
static SIMPLE_RELEASE: Script = script!(simple "lua/simple_release.lua");
static SIMPLE_RENEW: Script = script!(simple "lua/simple_renew.lua");

/// How a call names its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// By its hash: short, works once the server has seen the text.
    Hash,
    /// By its text.
    Text,
    /// By its text without the common cases: the rest must do the same in these cases.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    LongWay,
}

/// The script of an operation.
fn script(op: &Op) -> &'static Script {
    if op.is_simple() {
        return simple_script(op);
    }
    match op {
        Op::Acquire(a) if has_queue(a.kind) => &ACQUIRE,
        Op::Acquire(_) => &PLAIN_ACQUIRE,
        Op::Release { kind, .. } if has_queue(*kind) => &RELEASE,
        Op::Release { .. } => &PLAIN_RELEASE,
        Op::Leave { kind, .. } if has_queue(*kind) => &LEAVE,
        Op::Leave { .. } => &PLAIN_LEAVE,
        Op::Reenter { .. } => &REENTER,
        Op::Renew { .. } => &RENEW,
        Op::Beat { .. } => &BEAT,
        Op::Nudge => &NUDGE,
        Op::Force { .. } => &FORCE,
        Op::Place { .. } => &PLACE,
        Op::Inspect { .. } => &INSPECT,
        _ => unreachable!("every operation of this version has a script"),
    }
}

/// The script of an operation on a simple lock.
fn simple_script(op: &Op) -> &'static Script {
    match op {
        Op::Acquire(_) => &SIMPLE_ACQUIRE,
        Op::Release { .. } => &SIMPLE_RELEASE,
        Op::Renew { .. } => &SIMPLE_RENEW,
        Op::Leave { .. } => &SIMPLE_LEAVE,
        Op::Force { .. } => &SIMPLE_FORCE,
        Op::Inspect { .. } => &SIMPLE_INSPECT,
        _ => unreachable!("no other operation is for a simple lock"),
    }
}

/// The text of the script with this name in docs/protocol.md.
#[cfg(feature = "_testkit")]
#[cfg(test)]
pub(crate) fn named(name: &str, long_way: bool) -> &'static str {
    let script = match name {
        "acquire" => &ACQUIRE,
        "beat" => &BEAT,
        "force" => &FORCE,
        "inspect" => &INSPECT,
        "leave" => &LEAVE,
        "nudge" => &NUDGE,
        "place" => &PLACE,
        "plain_acquire" => &PLAIN_ACQUIRE,
        "plain_leave" => &PLAIN_LEAVE,
        "plain_release" => &PLAIN_RELEASE,
        "reenter" => &REENTER,
        "release" => &RELEASE,
        "renew" => &RENEW,
        "simple_acquire" => &SIMPLE_ACQUIRE,
        "simple_force" => &SIMPLE_FORCE,
        "simple_inspect" => &SIMPLE_INSPECT,
        "simple_leave" => &SIMPLE_LEAVE,
        "simple_release" => &SIMPLE_RELEASE,
        "simple_renew" => &SIMPLE_RENEW,
        other => panic!("no script {other}"),
    };
    if long_way { script.long_way } else { script.text }
}

/// Arguments of a call, except for a heartbeat of many waiters.
const ARGUMENTS: usize = 26;

/// Their bytes, without script and names: about 230 around eight keys, 100 of ids, 60 of numbers.
const OTHER_BYTES: usize = 512;

/// The call that carries out `op` on the lock `name`.
pub(crate) fn call(by: By, rules: &Rules, publishing: Publishing, name: &LockName, op: &Op) -> Cmd {
    let script = script(op);
    let base = Keys::new(name).base();
    let keys = keys(name, op);
    let (command, script) = match by {
        By::Hash => ("EVALSHA", script.sha.as_str()),
        By::Text => ("EVAL", script.text),
        #[cfg(feature = "_testkit")]
        #[cfg(test)]
        By::LongWay => ("EVAL", script.long_way),
    };
    // In one piece: growing with each argument costs as much as all the rest of this.
    let names = (keys.len() + 1) * name.as_bytes().len();
    let mut cmd = Cmd::with_capacity(ARGUMENTS, OTHER_BYTES + script.len() + names);
    cmd.arg(command).arg(script).arg(keys.len());
    for key in &keys {
        cmd.arg(key);
    }
    let flags = match (rules.java_fleet, rules.presence) {
        (true, true) => "jp",
        (true, false) => "j",
        (false, true) => "p",
        (false, false) => "",
    };
    cmd.arg(publishing.command()).arg(base).arg(publishing.inbox_prefix(name));
    cmd.arg(rules.beat_ms).arg(rules.dead_ms).arg(rules.fair_wait_ms).arg(flags);
    own_arguments(&mut cmd, rules, op);
    cmd
}

/// The keys that the call names.
pub(crate) fn keys(name: &LockName, op: &Op) -> Vec<Vec<u8>> {
    let keys = Keys::new(name);
    let mut all = Vec::from(keys.all());
    all.extend(named_request(op).map(|request| keys.buried(request)));
    all
}

fn named_request(op: &Op) -> Option<RequestId> {
    match op {
        Op::Acquire(a) => Some(a.request),
        Op::Leave { request, .. } => Some(*request),
        _ => None,
    }
}

fn own_arguments(cmd: &mut Cmd, rules: &Rules, op: &Op) {
    match op {
        Op::Acquire(a) => {
            cmd.arg(a.owner.to_bytes())
                .arg(a.request.to_string())
                .arg(a.lease_ms)
                .arg(if a.mode == Mode::Try { "T" } else { "W" })
                .arg(a.order.unwrap_or(0))
                .arg(a.not_after_ms)
                .arg(u8::from(a.sure))
                .arg(u8::from(a.shared_owner));
        }
        Op::Reenter { owner, token, count, change } => {
            cmd.arg(owner.to_bytes()).arg(token.get()).arg(*count).arg(*change);
        }
        Op::Release { owner, token, keep, change, .. } => {
            cmd.arg(owner.to_bytes()).arg(token.get()).arg(*keep).arg(*change);
        }
        Op::Renew { owner, token, ttl_ms, .. } => {
            cmd.arg(owner.to_bytes()).arg(token.get()).arg(*ttl_ms);
        }
        Op::Leave { owner, request, bury, shared_owner, .. } => {
            cmd.arg(owner.to_bytes())
                .arg(request.to_string())
                .arg(if *bury { rules.bury_ms } else { 0 })
                .arg(u8::from(*shared_owner));
        }
        Op::Beat { client, waiters } => {
            cmd.arg(client.to_string());
            for waiter in waiters {
                cmd.arg(waiter.to_bytes());
            }
        }
        Op::Place { owner } => {
            cmd.arg(owner.to_bytes());
        }
        Op::Inspect { limit, .. } => {
            cmd.arg(*limit);
        }
        _ => {}
    }
}
