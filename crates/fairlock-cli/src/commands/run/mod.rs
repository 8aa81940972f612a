//! `fairlock run`: wait, run the command, release. Without a command: `hold.rs`.

pub(crate) mod args;
mod doubt;
pub(crate) mod elect;
mod flock;
mod hold;
mod kinds;
mod limit;
mod loss;
mod mistakes;
mod once;
mod plan;
mod progress;
mod release;
mod share;
mod wait;
mod whom;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use fairlock::{Client, ErrorKind, GuardState};
use rustix::process::Signal;
use tokio::time;

use crate::base::clock;
use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::message;
use crate::base::url;
use crate::locks::handle::Handle;
use crate::locks::held::Held;
use crate::locks::nested::Outer;
use crate::process::abandoned_holds::AbandonedHolds;
use crate::process::child::{Change, Child};
use crate::process::escaped::OWNERS_VAR;
use crate::process::signal::Signals;
use crate::process::terminal::Terminal;
use crate::settings::secrets;
use crate::settings::store_access::StoreAccess;
use crate::store::{self, Store};
use args::{OnLost, Run};
use doubt::Doubt;
use kinds::KindNotice;
use limit::Limit;
use plan::{Plan, Step};
use release::{Outcome, in_doubt, release};
use wait::Wait;

/// The name and the token of the lock, for the command; of several locks each, numbered from 1.
const NAME_VAR: &str = "FAIRLOCK_NAME";
const TOKEN_VAR: &str = "FAIRLOCK_TOKEN";

/// How many locks a run can take.
const MEMBERS_MAX: usize = 32;

/// A reader of stderr that is slow delays the command by this part of the lock's remaining time at most.
const FLUSH_PART: u32 = 10;

/// Between two looks whether the lock has its whole lease.
const WHOLE_LEASE_PAUSE: Duration = Duration::from_millis(10);

/// Runs the command under the lock; on success the code is the command's own.
pub(crate) async fn run(mut args: Run) -> Result<Code, Failure> {
    mistakes::refuse(&args)?;
    message::write_in_background();
    let (kind, share) = share::of(&args)?;
    let mut store = Store::resolve(&args.store)?.of_several_processes()?;
    if let Some(replicas) = args.replicas.or_else(|| store.selection().replicas) {
        store = store.replicas(replicas);
    }
    store = store.java_fleet(args.java_fleet)?;
    if let Some(ttl) = args.ttl.or_else(|| store.selection().ttl) {
        store = store.watchdog_lease(ttl);
    }
    once::settle(&mut args, share, store.selection().once_per)?;
    if let (Some(lease), Some(_)) = (args.lease, args.once_per) {
        // It lets others distinguish a run that is done; with a fixed lease it has no other use.
        store = store.watchdog_lease(lease.max(duration::SHORTEST_TTL));
    }
    let label = args.label.clone().or_else(|| store.selection().label.clone());
    if let Some(label) = label.or_else(|| default_label(&args.command)) {
        store = store.label(&label);
    }
    if !args.command.is_empty() {
        store = store.kept_by_children();
    }
    store = store.verbose(args.verbose);
    store.warn(args.quiet);
    let access = store.access();
    let mut signals = install(Signals::install())?;
    // Connecting is part of the wait.
    let began = clock::now();
    store = store.waited_for(args.wait);
    let client = tokio::select! {
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        client = store.connect(args.quiet) => client?,
    };
    let names: Vec<_> = args.names.iter().map(|name| name.as_bytes()).collect();
    let lock = match names[..] {
        [name] => Ok(Handle::new(&client, kind, share, name)),
        _ => Handle::several(&client, kind, share, &names),
    };
    let mut kinds = KindNotice::new(client.clone(), &args);
    let result = match lock {
        Ok(lock) => {
            run_with(&client, lock, &args, began, &access, (&mut signals, &mut kinds)).await
        }
        Err(error) => Err(error.into()),
    };
    // In any case a leave or a release that is still under way gets its time.
    store::shutdown_after(client, &result).await;
    // The store may have answered only now.
    kinds.look();
    result
}

async fn run_with(
    client: &Client,
    mut lock: Handle,
    args: &Run,
    began: Duration,
    access: &StoreAccess,
    (signals, kinds): (&mut Signals, &mut KindNotice),
) -> Result<Code, Failure> {
    if let Some(lease) = args.lease {
        lock = lock.lease(lease);
    }
    let lock = once::owned(lock, client, args);
    let outer = Outer::of_environment();
    tokio::select! {
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        refused = outer.refuse_each(&lock, &args.names, args.wait) => refused?,
    }
    let mut wait = Wait::new(&lock, client.id(), args, began);
    loop {
        let guard = wait.acquire(signals).await?;
        let granted = clock::now();
        if guard.state() == GuardState::Lost {
            wait.again(guard).await?;
            continue;
        }
        tell_acquired(args, &guard);
        if args.command.is_empty() {
            return Err(hold::hold(client, args, guard, (signals, kinds)).await);
        }
        let begun = tokio::select! {
            biased;
            signal = signals.ending() => return Err(Failure::signal(signal)),
            begun = elect::begin(client, args, guard) => begun,
        };
        let guard = match begun {
            Ok(guard) => guard,
            // Lost before it was announced: nothing ran.
            Err(error) if error.kind() == ErrorKind::Lost && elect::goes_on(args) => continue,
            Err(error) => return Err(error.into()),
        };
        let hands_off = args.on_lost == OnLost::Ignore;
        let mut plan = Plan::new(args.grace, guard.lease(), args.lease.map(|_| granted), hands_off);
        // Whatever takes long from here on is not what the lock was granted with.
        plan.look(granted, guard.remaining());
        while plan.is_early(clock::now(), guard.state(), guard.remaining()) {
            time::sleep(WHOLE_LEASE_PAUSE).await;
        }
        let mut child = match start(args, access, &outer, &guard).await {
            Ok(child) => child,
            Err(failure) => {
                // Nothing ran, and the user needs to know why.
                release(guard).await;
                return Err(failure);
            }
        };
        // In front of the command's own output, but the lock is for the command.
        message::flush_within(guard.remaining() / FLUSH_PART);
        // The grant may have been old when it was read, and this process slow. A command that would have to end at
        // once does not begin.
        let state = guard.state();
        let first = plan.step(clock::now(), state, guard.remaining());
        if state == GuardState::Lost || !matches!(first, Step::Wait(_)) {
            child.abandon();
            wait.again(guard).await?;
            continue;
        }
        if let Err(failure) = install(signals.add_job_control()) {
            child.abandon();
            release(guard).await;
            return Err(failure);
        }
        let mut limit = Limit::new(clock::now(), args.max_run, args.grace);
        let of_lock = (!hands_off).then(|| clock::now() + guard.remaining());
        child.begin([of_lock, limit.deadline()].into_iter().flatten().min());
        let plans = (&mut plan, &mut limit);
        let told = (&mut *signals, &mut *kinds);
        let ended = supervise(&mut child, args, &guard, plans, told).await;
        let plans = (&plan, &limit);
        match finish(client, args, (guard, granted), child, plans, ended).await {
            Err(loss) if elect::goes_on(args) => drop(loss.report()),
            result => return result,
        }
    }
}

/// How the command ended.
struct Ended {
    code: Code,
    /// Why it had to end, if it had to.
    why: Option<String>,
    /// It could not be ended and continued until it ended by itself.
    went_on: bool,
}

/// After the end of the command: deals with its remaining processes and with the lock. A failure is a loss.
async fn finish(
    client: &Client,
    args: &Run,
    (guard, began): (Held, Duration),
    mut child: Child,
    (plan, limit): (&Plan, &Limit),
    Ended { code, why, went_on }: Ended,
) -> Result<Code, Failure> {
    // If the lock was never in danger, processes that the command left running in its group continue:
    // that is up to the user, as with any shell. Otherwise they end with the command.
    if let (Some(kill_at), Some(why)) = (plan.kill_at(), why) {
        let all = child.end_rest(kill_at).await;
        let end = match went_on {
            true => format!("the command went on without it, and ended by itself with code {code}"),
            false => was_ended(all).to_owned(),
        };
        // Said before the release, which a silent store delays.
        let code = loss::failure(args, format!("{why}; {end}")).report();
        release(guard).await;
        return Err(Failure::silent(code));
    }
    if let (Some(kill_at), Some(max)) = (limit.kill_at(), args.max_run) {
        // What is left of it must not outlive the lock, either.
        let all = child.end_rest(kill_at.min(clock::now() + guard.remaining())).await;
        let end = match went_on {
            true => {
                format!("the command runs as another user, so it ended by itself with code {code}")
            }
            false => was_ended(all).to_owned(),
        };
        let why = format!("its --max-run of {} is over; {end}", duration::human(max));
        return Err(match release(guard).await {
            Outcome::Released => {
                let name = message::printable(&args.name);
                Failure::new(Code::TIMED_OUT, format!("{name}: {why}"))
            }
            Outcome::Lost => loss::failure(args, format!("{why}; by then the lock was lost")),
            Outcome::Unknown(reason) => {
                loss::failure(args, format!("{why}; {}", in_doubt(client, &reason)))
            }
        });
    }
    child.leave_rest_alone();
    let found_before = guard.lost_reason();
    let outcome = match once::keep(args, guard, code, began).await {
        Ok(kept) => kept,
        Err(guard) => release(guard).await,
    };
    match outcome {
        Outcome::Released => {
            child.reap();
            Ok(code)
        }
        Outcome::Lost => {
            if args.on_lost == OnLost::Ignore {
                child.reap();
            } else {
                child.terminate();
                child.end_rest(clock::now() + plan.grace()).await;
            }
            Err(loss::failure(args, loss::while_it_ran(found_before, args)))
        }
        Outcome::Unknown(reason) => {
            child.reap();
            let doubt = in_doubt(client, &reason);
            let what = format!("{doubt}; the command itself ended with code {code}");
            Ok(loss::failure(args, what).report())
        }
    }
}

/// The end of a command that was made to end, and of `all` that it has started.
fn was_ended(all: bool) -> &'static str {
    match all {
        true => "the command was ended",
        false => {
            "the command was ended, but not all that it has started: some of it runs as another user, or is stuck in \
             the kernel"
        }
    }
}

fn tell_acquired(args: &Run, guard: &Held) {
    if args.verbose {
        let name = message::printable(&args.name);
        let tokens: Vec<_> = guard.guards().iter().map(|guard| guard.token().to_string()).collect();
        let word = if tokens.len() == 1 { "token" } else { "tokens" };
        message::report(&format!("{name}: acquired, {word} {}", tokens.join(", ")));
    }
}

/// The command's name without its folder and without its arguments, which may be secret. Characters that cannot be
/// shown are replaced, and a long name is cut.
fn default_label(command: &[OsString]) -> Option<String> {
    /// Less than the 128 bytes of a label, and enough for any command's name.
    const CHARS_MAX: usize = 32;
    let name = Path::new(command.first()?).file_name()?.to_string_lossy();
    let shown = |c: char| c.is_alphanumeric() || c.is_ascii_graphic() || c == ' ';
    let label: String =
        name.chars().map(|c| if shown(c) { c } else { '?' }).take(CHARS_MAX).collect();
    (!label.is_empty()).then_some(label)
}

async fn start(
    args: &Run,
    access: &StoreAccess,
    outer: &Outer,
    guard: &Held,
) -> Result<Child, Failure> {
    let guards = guard.guards();
    // By it the command is found; all of them are listed.
    let owner = OsString::from(guards[0].owner().to_string());
    let owners = outer.with(guards.iter().map(|guard| guard.owner()));
    let tokens: Vec<_> =
        guards.iter().map(|guard| OsString::from(guard.token().to_string())).collect();
    let mut vars: Vec<(String, &OsStr)> = vec![(OWNERS_VAR.to_owned(), &owners)];
    let hidden = url::variables(&access.url);
    let mut hidden = secrets::child_environment(&hidden);
    match (&args.names[..], &tokens[..]) {
        ([name], [token]) => {
            vars.push((NAME_VAR.to_owned(), name));
            vars.push((TOKEN_VAR.to_owned(), token));
        }
        // No one of them is the lock's: a script for one lock must not take the first for it, nor those of a run around
        // this one.
        _ => hidden.extend([(NAME_VAR, None), (TOKEN_VAR, None)]),
    }
    // Nor does one with fewer locks show those of a run around it.
    let numbered = |var: &str, n: usize| format!("{var}_{n}");
    let inherited: Vec<_> = (1..=MEMBERS_MAX)
        .flat_map(|n| [NAME_VAR, TOKEN_VAR].map(|var| numbered(var, n)))
        .filter(|var| env::var_os(var).is_some())
        .collect();
    hidden.extend(inherited.iter().map(|var| (var.as_str(), None)));
    if args.names.len() > 1 {
        for (n, (name, token)) in args.names.iter().zip(&tokens).enumerate() {
            vars.push((numbered(NAME_VAR, n + 1), name));
            vars.push((numbered(TOKEN_VAR, n + 1), token));
        }
    }
    let vars: Vec<(&str, &OsStr)> =
        vars.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let holds = AbandonedHolds::of(access, &guards);
    Child::prepare(&args.command, &owner, &hidden, &vars, holds.as_ref()).await.map_err(|error| {
        let reason = format!("the command cannot be started: {error}");
        Failure::new(Code::NOT_EXECUTABLE, reason)
    })
}

/// Watches the command and the lock until the command has ended.
async fn supervise(
    child: &mut Child,
    args: &Run,
    guard: &Held,
    (plan, limit): (&mut Plan, &mut Limit),
    (signals, kinds): (&mut Signals, &mut KindNotice),
) -> Ended {
    let mut terminal = Terminal::open();
    let (mut why, mut went_on) = (None, false);
    let mut doubt = Doubt::new(args);
    let code = loop {
        // First, since a command that has ended needs no step: this process may have stood still since.
        if let Some(code) = child.ended() {
            break code;
        }
        let state: GuardState = guard.state();
        kinds.look();
        let step = next(plan, limit, state, guard.remaining());
        if let Some(deadline) = [plan.deadline(), limit.deadline()].into_iter().flatten().min() {
            child.allow_until(deadline);
        }
        if why.is_none() {
            let left = plan.left(guard.remaining());
            doubt.look(guard, state, left.map(|left| ("the command is ended", left)));
        }
        if plan.kill_at().is_some() {
            // The reason at that moment: anything later is a consequence.
            why.get_or_insert_with(|| loss::why(guard, args));
        }
        if step == Step::Kill && child.is_anothers() {
            went_on = true;
            let name = message::printable(&args.name);
            let how = if why.is_some() {
                "without the lock"
            } else {
                "beyond its --max-run, under the lock"
            };
            message::report(&format!(
                "{name}: the command runs as another user, so it cannot be ended: it goes on {how}"
            ));
        }
        let Some(wait) = obey(step, child) else { continue };
        tokio::select! {
            change = child.change() => match change {
                Change::Ended(code) => break code,
                Change::Stopped(signal) => terminal.child_stopped(child, signal),
            },
            signal = signals.recv() => forward(signal, child, &mut terminal, guard, plan),
            _ = guard.state_changed(state) => {}
            () = time::sleep(wait) => {}
        }
    };
    terminal.take_back();
    if why.is_none() && code == Code::signal(Signal::KILL.as_raw()) {
        // While this process stood still, the lock may have been lost, and the end of the command is seen first.
        plan.step(clock::now(), guard.state(), guard.remaining());
        why = plan.kill_at().map(|_| loss::why(guard, args));
        if why.is_none() && child.is_killed_by_guardian() {
            // The guardian keeps `--max-run` as well.
            limit.step(clock::now(), Duration::ZERO);
            if limit.kill_at().is_none() {
                plan.killed(clock::now());
                why = Some(loss::why_guardian(guard, args));
            }
        }
    }
    Ended { code, why, went_on }
}

/// The next step: the lock's, or that of a run which is over though its lock is in order.
fn next(plan: &mut Plan, limit: &mut Limit, state: GuardState, remaining: Duration) -> Step {
    let now = clock::now();
    match plan.step(now, state, remaining) {
        Step::Wait(wait) if plan.kill_at().is_none() => limit.step(now, wait),
        step => step,
    }
}

/// Carries out a step; returns how long to wait if there was nothing to do.
fn obey(step: Step, child: &Child) -> Option<Duration> {
    match step {
        Step::Wait(wait) => return Some(wait),
        Step::Terminate => child.terminate(),
        Step::Kill => child.kill(),
    }
    None
}

/// Passes a signal on to the command's group.
fn forward(signal: Signal, child: &Child, terminal: &mut Terminal, guard: &Held, plan: &mut Plan) {
    if signal != Signal::CONT {
        if signal == Signal::TSTP {
            terminal.asked_to_stop();
        }
        child.signal(signal);
        return;
    }
    // This process may have been stopped for long. If the lock is lost, the stopped command is killed
    // before it runs one more instruction.
    obey(plan.step(clock::now(), guard.state(), guard.remaining()), child);
    terminal.resumed(child);
}

fn install<T>(result: io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| Failure::new(Code::INTERNAL, format!("signals: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_label_is_the_commands_name() {
        let label = |command: &[u8]| {
            default_label(&[OsString::from(OsStr::from_bytes(command)), "--password=x".into()])
        };
        assert_eq!(label(b"/usr/local/bin/backup.sh").as_deref(), Some("backup.sh"));
        assert_eq!(label(b"./a\x1b[2J\xff").as_deref(), Some("a?[2J?"));
        assert_eq!(label("\u{202e}x".as_bytes()).as_deref(), Some("?x"));
        assert_eq!(label(&"é".repeat(500).into_bytes()).map(|label| label.len()), Some(64));
        assert_eq!(label(b"/"), None);
        assert_eq!(label(b""), None);
    }
}
