//! Turns operations into script calls.

use super::keys::{Keys, Publishing};
use super::wire::{Cmd, Decimal};
use fairlock_core::{
    Acquire, LatchOp, LockName, Mode, Op, OwnerId, RequestId, Rules, Share, Token, client_text,
    has_queue,
};
use std::sync::LazyLock;

/// A script.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    sha: LazyLock<String>,
    /// The text without its common cases.
    #[cfg(feature = "_testkit")]
    #[cfg(test)]
    long_way: &'static str,
}

/// The text of a script: slices of `lua/`, byte for byte as on disk. A slice that stands where it is needed costs the
/// server nothing more; it becomes a function only if other functions need it, or if it is rarely needed.
macro_rules! slices {
    (@$way:ident) => { "" };
    // Code that only rare cases need, in a function of its own: each variable that a function uses from the outermost
    // level costs the server a search through all of them.
    (@$way:ident rare { $($body:tt)* }) => {
        concat!("return (function()\n", slices!(@$way $($body)*), "end)()\n")
    };
    // Code that a hand-over needs, the rare cases included.
    (@$way:ident RULES $($rest:tt)*) => {
        slices!(@$way owner shown hold fn write_token(minted) { write_token } fn grant() { mint grant } rules $($rest)*)
    };
    (@$way:ident TAKE $($rest:tt)*) => { slices!(@$way mint write_token take granted $($rest)*) };
    // A common case: the rest does the same without it.
    (@short common $slice:ident $($rest:tt)*) => { slices!(@short $slice $($rest)*) };
    (@long common $slice:ident $($rest:tt)*) => { slices!(@long $($rest)*) };
    (@$way:ident if $name:ident { $($body:tt)* } $($rest:tt)*) => {
        concat!("if ", stringify!($name), " then\n", slices!(@$way $($body)*), "end\n", slices!(@$way $($rest)*))
    };
    // One of several locks: code that finds out whether it is free, and code that takes it. The second part is
    // returned as a function, only if the lock is free, so that none is taken before all were found free. The
    // arguments shadow those of the script.
    (@$way:ident member $name:ident { $($free:ident)* } { $($take:tt)* } $($rest:tt)*) => {
        concat!(
            "local function ", stringify!($name), "(KEYS, ARGV)\n", slices!(@$way $($free)*),
            "if not taking then return end\nreturn function()\n", slices!(@$way $($take)*), "end\nend\n",
            slices!(@$way $($rest)*)
        )
    };
    (@$way:ident fn $name:ident($($argument:ident)?) { $($body:tt)* } $($rest:tt)*) => {
        concat!(
            "local function ", stringify!($name), "(", $(stringify!($argument),)? ")\n",
            slices!(@$way $($body)*), "end\n", slices!(@$way $($rest)*)
        )
    };
    (@$way:ident $slice:ident $($rest:tt)*) => {
        concat!(include_str!(concat!("lua/", stringify!($slice), ".lua")), slices!(@$way $($rest)*))
    };
}

macro_rules! script {
    (@ $text:expr, $long_way:expr) => {{
        const TEXT: &str = $text;
        Script {
            text: TEXT,
            sha: LazyLock::new(|| sha1_smol::Sha1::from(TEXT).digest().to_string()),
            #[cfg(feature = "_testkit")]
            #[cfg(test)]
            long_way: $long_way,
        }
    }};
    // A script that is not an operation on one lock, and so does not have the prelude's keys.
    (alone $($slices:tt)*) => {
        script!(@ slices!(@short $($slices)*), slices!(@long $($slices)*))
    };
    ($($slices:tt)*) => {
        script!(@ slices!(@short head token $($slices)*), slices!(@long head token $($slices)*))
    };
}

static ACQUIRE: Script = script!(
    hash ask acquire_free if taking { TAKE } settings enter common enter_plain if entering { enter_last }
    owner entered heir rare { shown hold fn write_token(minted) { write_token } fn take_now() { TAKE }
    fn grant() { mint grant } fn enter_last() { enter_last } rules acquire }
);
static ANNOUNCE: Script = script!(hash settings rare { shown hold change announce });
static BEAT: Script = script!(hash settings heir rare { RULES beat });
static FORCE: Script = script!(hash settings heir rare { RULES change force });
static INSPECT: Script = script!(hash owner shown inspect);
static LEADER: Script = script!(hash rare { shown hold leader });
static LEAVE: Script = script!(hash settings heir rare { RULES leave });
static NUDGE: Script = script!(hash settings heir rare { RULES nudge });
static PLACE: Script = script!(hash place);
static PLAIN_ACQUIRE: Script = script!(
    hash ask plain_acquire_free if taking { TAKE } settings rare {
        owner shown hold fn write_token(minted) { write_token } fn take_now() { TAKE } plain_acquire
    }
);
static PLAIN_LEAVE: Script = script!(hash settings rare { owner shown hold plain_leave });
static PLAIN_RELEASE: Script = script!(
    hash plain_release_alone settings rare {
        owner shown hold change fn write_token(minted) { write_token } plain_release
    }
);
static REENTER: Script = script!(hash settings rare { owner shown hold change reenter });
static RELEASE: Script = script!(
    hash release_alone settings heir common heir_plain if heir { mint grant } release_on
    rare { RULES change release }
);
static RENEW: Script = script!(hash settings renew_held heir rare { RULES change renew });

static MULTI_TRY: Script = script!(
    alone member fair { head token hash ask acquire_free } { TAKE }
    member shared { head token settings share_keys share_kept ask share_ask share_free }
    { mint if minting { write_token } share_take }
    multi_try
);

static SIMPLE_ACQUIRE: Script = script!(
    simple_free if taking { mint write_token simple_take granted } simple shown ask simple_acquire
);
static SIMPLE_FORCE: Script = script!(simple simple_force);
static SIMPLE_INSPECT: Script = script!(simple shown simple_inspect);
static SIMPLE_LEAVE: Script = script!(simple simple_leave);
static SIMPLE_RELEASE: Script = script!(
    simple_own simple_release if lost { write_token } simple_released simple simple_other
);
static SIMPLE_RENEW: Script = script!(simple_own simple_renew simple simple_other);

/// A script of the kinds that several may hold at once: the common part, the operation, and, if it
/// serves the line, the part after that.
macro_rules! share_script {
    ($($slices:ident)*) => {
        script!(settings share_keys share_kept rare {
            share_facts share_waits fn write_token(minted) { write_token } shown share_holds share_line $($slices)*
        })
    };
    ($($before:ident)* ; $($after:ident)*) => { share_script!(@share_waits $($before)* ; $($after)*) };
    (@$waits:ident $($before:ident)* ; $($after:ident)*) => {
        script!(settings share_keys share_kept rare {
            share_wide share_many share_facts $waits fn write_token(minted) { write_token } shown share_holds share_line
            $($before)*
            if serving { share_over if crowded { share_serve } } share_write share_tidy $($after)* share_end
        })
    };
}

static SHARE_ACQUIRE: Script = script!(
    settings share_keys share_kept ask share_ask common share_free
    if taking { mint if minting { write_token } share_take } share_wide common share_enter rare {
        share_many share_facts share_waits fn write_token(minted) { write_token } shown share_holds share_line share_heard
        share_retry owner share_mend share_acquire if serving { share_over if crowded { share_serve } } share_acquired share_write share_answer share_end
    }
);
static SHARE_BEAT: Script = share_script!(
    owner share_heard share_retry share_mend share_beat ; share_fates
);
static SHARE_DOWNGRADE: Script = share_script!(share_hold_of share_downgrade ; share_reply);
static SHARE_FORCE: Script =
    share_script!(@share_ends owner share_holders share_force ; share_reply);
static SHARE_INSPECT: Script = share_script!(share_inspect);
static SHARE_LEAVE: Script = share_script!(share_leave ; share_reply);
static SHARE_NUDGE: Script = share_script!(share_nudge ; share_reply);
static SHARE_PLACE: Script =
    script!(settings share_keys rare { share_facts share_waits share_place });
static SHARE_REENTER: Script =
    share_script!(share_hold_of share_count share_reenter share_reply share_end);
static SHARE_RELEASE: Script = script!(
    settings share_keys share_kept share_heirs common share_release_alone common share_heir
    if heir { mint write_token share_grant share_handed }
    if reads { fn cohort() { share_wide share_many share_cohort mint write_token share_readers } share_to_readers } rare {
        share_wide share_many share_facts share_ends fn write_token(minted) { write_token } shown share_holds share_line
        share_hold_of share_count share_release if serving { share_over if crowded { share_serve } } share_write share_tidy share_reply
        share_end
    }
);
static SHARE_RENEW: Script = share_script!(
    share_hold_of share_renew ; share_renewed share_reply
);

static LATCH_COUNT_DOWN: Script = script!(alone latch latch_request latch_count_down);
static LATCH_DELETE: Script = script!(alone latch latch_request latch_delete);
static LATCH_LOOK: Script = script!(alone latch latch_look);
static LATCH_SET: Script = script!(alone latch latch_request latch_set);

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
    if op.is_shared() {
        return share_script(op.bare());
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
        Op::Announce(_) => &ANNOUNCE,
        Op::Leader => &LEADER,
        Op::Latch(LatchOp::Set { .. }) => &LATCH_SET,
        Op::Latch(LatchOp::CountDown { .. }) => &LATCH_COUNT_DOWN,
        Op::Latch(LatchOp::Delete { .. }) => &LATCH_DELETE,
        Op::Latch(LatchOp::Look { .. }) => &LATCH_LOOK,
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

/// The script of an operation on a lock that several may hold at once.
fn share_script(op: &Op) -> &'static Script {
    match op {
        Op::AcquireShare(_) => &SHARE_ACQUIRE,
        Op::Release { .. } => &SHARE_RELEASE,
        Op::Downgrade { .. } => &SHARE_DOWNGRADE,
        Op::Reenter { .. } => &SHARE_REENTER,
        Op::Renew { .. } => &SHARE_RENEW,
        Op::Leave { .. } => &SHARE_LEAVE,
        Op::Beat { .. } => &SHARE_BEAT,
        Op::Nudge => &SHARE_NUDGE,
        Op::Force { .. } => &SHARE_FORCE,
        Op::Place { .. } => &SHARE_PLACE,
        Op::Inspect { .. } => &SHARE_INSPECT,
        _ => unreachable!("no other operation is for a share"),
    }
}

/// The text of the script with this name in docs/protocol.md.
#[cfg(feature = "_testkit")]
#[cfg(test)]
pub(crate) fn named(name: &str, long_way: bool) -> &'static str {
    let script = match name {
        "acquire" => &ACQUIRE,
        "announce" => &ANNOUNCE,
        "beat" => &BEAT,
        "force" => &FORCE,
        "inspect" => &INSPECT,
        "latch_count_down" => &LATCH_COUNT_DOWN,
        "latch_delete" => &LATCH_DELETE,
        "latch_look" => &LATCH_LOOK,
        "latch_set" => &LATCH_SET,
        "leader" => &LEADER,
        "leave" => &LEAVE,
        "multi_try" => &MULTI_TRY,
        "nudge" => &NUDGE,
        "place" => &PLACE,
        "plain_acquire" => &PLAIN_ACQUIRE,
        "plain_leave" => &PLAIN_LEAVE,
        "plain_release" => &PLAIN_RELEASE,
        "reenter" => &REENTER,
        "release" => &RELEASE,
        "renew" => &RENEW,
        "share_acquire" => &SHARE_ACQUIRE,
        "share_beat" => &SHARE_BEAT,
        "share_downgrade" => &SHARE_DOWNGRADE,
        "share_force" => &SHARE_FORCE,
        "share_inspect" => &SHARE_INSPECT,
        "share_leave" => &SHARE_LEAVE,
        "share_nudge" => &SHARE_NUDGE,
        "share_place" => &SHARE_PLACE,
        "share_reenter" => &SHARE_REENTER,
        "share_release" => &SHARE_RELEASE,
        "share_renew" => &SHARE_RENEW,
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

/// The bytes of a call without its script and names: about 230 around eight keys, 100 of ids, 100
/// of numbers.
const OTHER_BYTES: usize = 512;

/// The call that carries out `op` on the lock `name`.
pub(crate) fn call(by: By, rules: &Rules, publishing: Publishing, name: &LockName, op: &Op) -> Cmd {
    let script = script(op);
    let keys = Keys::new(name);
    let (named, request) = (named_keys(op), named_request(op).map(RequestId::to_text));
    let of_others = keys.others_parts(op);
    let (command, script) = match by {
        By::Hash => ("EVALSHA", script.sha.as_str()),
        By::Text => ("EVAL", script.text),
        #[cfg(feature = "_testkit")]
        #[cfg(test)]
        By::LongWay => ("EVAL", script.long_way),
    };
    let number = named.len() + usize::from(request.is_some()) + of_others.len();
    // In one allocation: growing with each argument costs as much as the rest of this function.
    let names = (number + 1) * name.as_bytes().len();
    let mut cmd = Cmd::with_capacity(OTHER_BYTES + script.len() + names);
    cmd.arg(command).arg(script).arg(number);
    let all = keys.parts_of(op);
    for key in named {
        cmd.arg_of(&all[*key]);
    }
    if let Some(request) = &request {
        cmd.arg_of(&keys.request_parts(op, request));
    }
    for key in &of_others {
        cmd.arg_of(key);
    }
    add_settings(&mut cmd, rules, publishing, name);
    own_arguments(&mut cmd, rules, op);
    cmd
}

/// The call that takes all of these locks, which are in one slot, or none.
pub(crate) fn call_together(
    by: By,
    rules: &Rules,
    publishing: Publishing,
    asks: &[(LockName, Op)],
) -> Cmd {
    let (command, script) = match by {
        By::Hash => ("EVALSHA", MULTI_TRY.sha.as_str()),
        _ => ("EVAL", MULTI_TRY.text),
    };
    let names: usize = asks.iter().map(|(name, _)| (8 + 1) * name.as_bytes().len()).sum();
    let mut cmd = Cmd::with_capacity(OTHER_BYTES * asks.len() + script.len() + names);
    cmd.arg(command).arg(script).arg(8 * asks.len());
    for (name, op) in asks {
        keys(name, op).into_iter().take(8).for_each(|key| _ = cmd.arg(&key[..]));
    }
    if let Some((name, _)) = asks.first() {
        add_settings(&mut cmd, rules, publishing, name);
    }
    for (_, op) in asks {
        own_arguments(&mut cmd, rules, op);
        if matches!(op, Op::Acquire(_)) {
            cmd.arg("-");
        }
    }
    cmd
}

/// The constants of a client. In one argument, because the server pays for each, and needs these only in rare cases.
fn add_settings(cmd: &mut Cmd, rules: &Rules, publishing: Publishing, name: &LockName) {
    let flags = match (rules.java_fleet, rules.presence) {
        (true, true) => "jp",
        (true, false) => "j",
        (false, true) => "p",
        (false, false) => "",
    };
    let [beat, dead, fair_wait] =
        [rules.beat_ms, rules.dead_ms, rules.fair_wait_ms].map(Decimal::of);
    let [prefix, open, tag, end] = publishing.inbox_prefix_parts(name);
    cmd.arg_of(&[
        flags.as_bytes(),
        b" ",
        publishing.command().as_bytes(),
        b" ",
        beat.digits(),
        b" ",
        dead.digits(),
        b" ",
        fair_wait.digits(),
        b" ",
        prefix,
        open,
        tag,
        end,
    ]);
}

/// The keys that the call names.
pub(crate) fn keys(name: &LockName, op: &Op) -> Vec<Vec<u8>> {
    let keys = Keys::new(name);
    let all = keys.parts_of(op);
    let named = named_keys(op).iter().map(|key| all[*key].concat());
    let of_request = |request: RequestId| keys.request_parts(op, &request.to_text()).concat();
    let buried = named_request(op).map(of_request);
    let of_others = keys.others_parts(op);
    named.chain(buried).chain(of_others.iter().map(|parts| parts.concat())).collect()
}

/// Which of the keys of a lock these are.
fn named_keys(op: &Op) -> &'static [usize] {
    const LOCK: usize = 0;
    const TOKEN: usize = 3;
    const NOTE: usize = 1;
    if matches!(op, Op::Latch(_)) {
        return &[LOCK, NOTE];
    }
    if op.is_simple() { &[LOCK, TOKEN] } else { &[LOCK, 1, 2, TOKEN, 4, 5, 6] }
}

fn named_request(op: &Op) -> Option<RequestId> {
    match op {
        Op::Acquire(a) => Some(a.request),
        Op::AcquireShare(ask) => Some(ask.acquire.request),
        Op::Leave { request, .. } => Some(*request),
        Op::Latch(latch) => latch.request().map(|request| request.id),
        _ => None,
    }
}

fn own_arguments(cmd: &mut Cmd, rules: &Rules, op: &Op) {
    match op.bare() {
        Op::Acquire(a) => add_acquire(cmd, a),
        Op::AcquireShare(ask) => {
            add_acquire(cmd, &ask.acquire);
            add_share(cmd, ask.share);
        }
        Op::Announce(a) => {
            add_owner(cmd, &a.owner)
                .arg(a.token.get())
                .arg(a.change)
                .arg(a.ttl_ms)
                .arg(&a.value[..]);
        }
        Op::Downgrade { owner, token } => add_hold(cmd, owner, *token, op),
        Op::Reenter { owner, token, count, change } => {
            add_hold(cmd, owner, *token, op);
            cmd.arg(*count).arg(*change);
            add_not_after(cmd, op);
        }
        Op::Release { owner, token, keep, change, .. } => {
            add_hold(cmd, owner, *token, op);
            if *keep > 0 {
                cmd.arg(*keep).arg(*change);
            }
        }
        Op::Renew { owner, token, ttl_ms, .. } => {
            add_hold(cmd, owner, *token, op);
            cmd.arg(*ttl_ms);
            add_not_after(cmd, op);
        }
        Op::Leave { owner, request, bury, shared_owner, .. } => {
            add_owner(cmd, owner)
                .arg(&request.to_text()[..])
                .arg(if *bury { rules.bury_ms } else { 0 })
                .arg(u8::from(*shared_owner));
        }
        Op::Beat { client, waiters } => {
            cmd.arg(&client_text(*client)[..]);
            for waiter in waiters {
                add_owner(cmd, waiter);
            }
        }
        Op::Place { owner } => {
            add_owner(cmd, owner);
        }
        Op::Inspect { limit, .. } => {
            cmd.arg(*limit);
        }
        Op::Latch(latch) => add_latch(cmd, rules, latch),
        _ => {}
    }
}

/// Owner and token of the hold that `op` is about, and the request of a share's. An operation on shares without a
/// request names no hold.
fn add_hold(cmd: &mut Cmd, owner: &OwnerId, token: Token, op: &Op) {
    add_owner(cmd, owner).arg(token.get());
    match op.hold() {
        Some(hold) => _ = cmd.arg(&hold.request.to_text()[..]),
        None if op.is_shared() => _ = cmd.arg("-"),
        None => {}
    }
}

fn add_not_after(cmd: &mut Cmd, op: &Op) {
    if op.is_shared() {
        cmd.arg(op.hold().map_or(0, |hold| hold.not_after_ms));
    }
}

fn add_acquire(cmd: &mut Cmd, a: &Acquire) {
    add_owner(cmd, &a.owner);
    cmd.arg(&a.request.to_text()[..]).arg(a.lease_ms).arg(a.not_after_ms);
    let order = a.order.map(Decimal::of);
    cmd.arg_of(&[
        if a.mode == Mode::Try { b"T" } else { b"W" },
        if a.sure { b"s" } else { b"" },
        if a.shared_owner { b"o" } else { b"" },
        order.as_ref().map_or(b"", Decimal::digits),
    ]);
}

fn add_latch(cmd: &mut Cmd, rules: &Rules, op: &LatchOp) {
    if let Some(request) = op.request() {
        cmd.arg(&request.id.to_text()[..]).arg(rules.bury_ms).arg(request.not_after_ms);
    }
    match op {
        LatchOp::Set { count, .. } => {
            cmd.arg(*count);
        }
        LatchOp::Look { waiting: Some(known) } => {
            cmd.arg(*known);
        }
        _ => {}
    }
}

fn add_share(cmd: &mut Cmd, share: Share) {
    match share {
        Share::Read => cmd.arg("r"),
        Share::Permits { n, limit } => {
            cmd.arg_of(&[Decimal::of(n.into()).digits(), b"/", Decimal::of(limit.into()).digits()])
        }
        _ => cmd.arg("w"),
    };
}

fn add_owner<'a>(cmd: &'a mut Cmd, owner: &OwnerId) -> &'a mut Cmd {
    match owner.parts() {
        Some((client, number)) => {
            cmd.arg_of(&[&client_text(client), b":", Decimal::of(number).digits()])
        }
        None => cmd.arg(owner.to_bytes()),
    }
}
