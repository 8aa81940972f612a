//! `fairlock bench`: how fast a store is from this machine, compared with the round trip and the raw script rate of
//! its own server in the same run.
//!
//! - `args`: the options;
//! - `plan`: what is measured, for how long, on which locks;
//! - `work`: the workloads;
//! - `times`: a histogram of durations;
//! - `report`: the table and the JSON form; `plot`: the picture.
//!
//! The JSON form is a contract (the help in `args`): fields are added, never renamed or removed.

pub(crate) mod args;
mod plan;
mod plot;
mod report;
mod times;
mod work;

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock::yardstick::Yardstick;
use fairlock::{Client, LockName};
use serde_json::{Value, json};
use tokio::time;

use crate::base::duration;
use crate::base::exit::{Code, Failure};
use crate::base::line::Line;
use crate::base::message;
use crate::base::output;
use crate::process::signal::Signals;
use crate::settings::store_selection::Reach;
use crate::store::{self, Store};
use args::Args;
use plan::{Plan, Step};
use report::Results;
use work::Tasks;

/// Numbers in a list: each is a separate step and takes its share of the time.
const LIST_MAX: usize = 6;

/// How long tasks that are waiting when a signal comes may take to have their turn and end.
const ENDING: Duration = Duration::from_secs(5);

/// How long the cleanup at the end may take.
const CLEANING: Duration = Duration::from_secs(10);

/// Width of the progress bar, in characters.
const BAR: usize = 24;

/// Measures and prints.
pub(crate) async fn bench(args: Args) -> Result<Code, Failure> {
    for (option, list) in [("--waiters", &args.waiters), ("--held", &args.held)] {
        if list.len() > LIST_MAX {
            return Err(Failure::usage(format!("{option}: at most {LIST_MAX} numbers")));
        }
    }
    let store = Store::resolve(&args.store)?;
    store.warn(args.quiet);
    let reach = store.selection().reach();
    let (shown, form) = (store.selection().explain(), store.selection().form());
    let mut signals = Signals::install()
        .map_err(|error| Failure::new(Code::INTERNAL, format!("signals: {error}")))?;
    // Opened before any load, so that a missing folder is found now.
    let plot = args.plot.as_deref().map(Picture::open).transpose()?;
    let mut tasks = Tasks::default();
    let mut run = None;
    let measured = tokio::select! {
        biased;
        signal = signals.recv() => Err(Failure::signal(signal)),
        measured = async {
            let run = run.insert(Run::open(&args, reach).await?);
            run.measure(&args, &shown, &mut tasks).await
        } => measured,
    };
    let plan = run.as_ref().map(|run| run.plan.clone());
    let clean = async {
        // Errors are already reported.
        let _ = tasks.end(ENDING).await;
        match run {
            Some(run) => run.close().await,
            None => Ok(()),
        }
    };
    let cleaned = tokio::select! {
        biased;
        // A second signal means that the user does not want to wait.
        signal = signals.recv() => {
            if let Some(plan) = &plan {
                message::report(&left_behind(plan, "interrupted"));
            }
            Err(Failure::signal(signal))
        }
        cleaned = clean => cleaned,
    };
    let results = measured.inspect_err(|_| {
        if let Err(failure) = &cleaned
            && !failure.to_string().is_empty()
        {
            message::report(&failure.to_string());
        }
    })?;
    let plan = plan.expect("who has results had a plan");
    let printed = match args.json {
        true => output::print(&format!("{}\n", json_form(&results, &plan, form))),
        false => output::print(&format!("{shown}\n\n{}", text(&results, &plan))),
    };
    if let Some(plot) = plot {
        plot.write(&plot::svg(&results, &shown))?;
    }
    cleaned?;
    printed
}

fn text(results: &Results, plan: &Plan) -> String {
    let mut text = results.table();
    if results.of(Step::Ping).is_none() {
        text.push_str(
            "\nThis store is no server: there is no PING and no raw script to compare with.\n",
        );
    }
    let lost: usize = results.renewals.iter().map(|(_, seen)| seen.lost).sum();
    if lost > 0 {
        let lease = duration::human(plan.held_lease());
        text.push_str(&format!(
            "\n{lost} locks were lost: the store or this machine stood still for their lease of {lease}; a \
             longer --time makes it longer.\n"
        ));
    }
    text
}

fn json_form(results: &Results, plan: &Plan, store: Value) -> Value {
    let mut form = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "store": store,
        "rounds": plan.rounds,
        "round_ms": plan.slot.as_secs_f64() * 1e3,
        "held_ms": plan.window.as_secs_f64() * 1e3,
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
    });
    if let (Value::Object(all), Value::Object(measured)) = (&mut form, results.form()) {
        all.extend(measured);
    }
    form
}

/// Clients and locks of a run.
struct Run {
    plan: Plan,
    /// Their tasks take turns: a hand-over usually goes to another process.
    clients: [Client; 2],
    /// Its locks have a short lease.
    holder: Client,
    /// Uses no lock, so that none of its requests is under way during the cleanup.
    janitor: Client,
    yardstick: Option<Yardstick>,
}

impl Run {
    async fn open(args: &Args, reach: Reach) -> Result<Self, Failure> {
        let store = || Ok::<_, Failure>(Store::resolve(&args.store)?.label("fairlock bench"));
        let janitor = store()?.silent().connect(args.quiet).await?;
        let random = janitor.id().to_bits() & u128::from(u32::MAX);
        let prefix = format!("{}{random:08x}", args.prefix);
        let plan = Plan::new(args, reach == Reach::Fleet, prefix);
        // Checked before anything is done: a name may be too long or reserved.
        let raw = name_all(plan.names(Step::Raw))?;
        name_all(plan.all_names())?;
        let one = store()?.connect(true).await?;
        let two = match reach {
            // A second client would have a store of its own.
            Reach::Process => one.clone(),
            _ => store()?.connect(true).await?,
        };
        let holder = store()?.watchdog_lease(plan.held_lease()).connect(true).await?;
        let yardstick = Yardstick::connect(&janitor, &raw).await?;
        Ok(Self { plan, clients: [one, two], holder, janitor, yardstick })
    }

    async fn measure(
        &self,
        args: &Args,
        shown: &str,
        tasks: &mut Tasks,
    ) -> Result<Results, Failure> {
        let Self { plan, clients, holder, yardstick, .. } = self;
        if !args.quiet {
            let takes = duration::human(plan.takes());
            let what = plan.describe();
            message::report(&format!("about {takes} on {shown}: {what}"));
        }
        let bar = (!args.quiet && io::stderr().is_terminal()).then(|| Line);
        // The server loads each script once; that is not part of the cost of a lock.
        if let Some(yardstick) = yardstick {
            yardstick.pairs(Duration::ZERO).await?;
        }
        let one = name_all(plan.names(Step::Tasks(1)))?;
        work::uncontended(&clients[0], &one, Duration::ZERO, tasks).await?;
        let mut results = Results::default();
        let all = plan.steps().count();
        for (done, (round, step)) in plan.steps().enumerate() {
            if let Some(bar) = &bar {
                bar.write(&progress(done, all, round, step));
            }
            let names = name_all(plan.names(step))?;
            let measured = match (step, yardstick) {
                (Step::Ping, Some(yardstick)) => work::ping(yardstick, plan.slot).await?,
                (Step::Raw, Some(yardstick)) => work::raw(yardstick, plan.slot).await?,
                (Step::Ping | Step::Raw, None) => continue,
                (Step::Tasks(_), _) => {
                    work::uncontended(&clients[0], &names, plan.slot, tasks).await?
                }
                (Step::Waiters(waiters), _) => {
                    work::contended(clients, &names[0], waiters, plan.slot, tasks).await?
                }
                (Step::Held(held), yardstick) => {
                    let yardstick = yardstick.as_ref();
                    let seen = work::held(holder, &names, yardstick, plan.window, tasks).await?;
                    results.renewals.push((held, seen));
                    continue;
                }
            };
            results.add(step, measured);
        }
        Ok(results)
    }

    /// Ends all requests, then removes everything.
    async fn close(self) -> Result<(), Failure> {
        let Self { plan, clients: [one, two], holder, janitor, yardstick } = self;
        drop(yardstick);
        tokio::join!(store::shutdown(one), store::shutdown(two), store::shutdown(holder));
        let names = name_all(plan.all_names())?;
        let erased = time::timeout(CLEANING, Yardstick::erase(&janitor, names)).await;
        store::shutdown(janitor).await;
        let why = match erased {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store does not answer".to_owned(),
        };
        Err(Failure::new(Code::UNAVAILABLE, left_behind(&plan, &why)))
    }
}

fn left_behind(plan: &Plan, why: &str) -> String {
    format!(
        "bench: what it has used was not removed ({why}): keys that contain `{}`; locks end within 30 s, \
         their tokens after a day",
        plan.prefix()
    )
}

fn name_all(names: Result<Vec<LockName>, fairlock::IdError>) -> Result<Vec<LockName>, Failure> {
    names.map_err(|error| Failure::usage(format!("--prefix: {error}")))
}

fn progress(done: usize, all: usize, round: Option<u32>, step: Step) -> String {
    let full = BAR * done / all.max(1);
    let round = round.map_or_else(String::new, |number| format!(", round {number}"));
    let bar: String = (0..BAR).map(|at| if at < full { '#' } else { '.' }).collect();
    format!("fairlock: [{bar}] {:>3} %  {}{round}", 100 * done / all.max(1), step.name())
}

/// The file of the picture, opened before it is drawn.
struct Picture {
    path: PathBuf,
    file: Option<File>,
}

impl Picture {
    fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| no_picture(path, &error))?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    fn write(mut self, svg: &str) -> Result<(), Failure> {
        let written = self.file.take().map(|mut file| file.write_all(svg.as_bytes()));
        written.transpose().map(drop).map_err(|error| no_picture(&self.path, &error))
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // An empty file is useless. It may be gone already.
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn no_picture(path: &Path, error: &io::Error) -> Failure {
    let path = message::printable(path.as_os_str());
    Failure::usage(format!("--plot {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_grows() {
        let at = |done| progress(done, 48, Some(2), Step::Waiters(10));
        assert_eq!(at(0), "fairlock: [........................]   0 %  10 waiters, round 2");
        assert_eq!(at(24), "fairlock: [############............]  50 %  10 waiters, round 2");
    }
}
