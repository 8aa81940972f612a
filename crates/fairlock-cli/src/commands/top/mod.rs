//! `fairlock top`: locks, holders and queues, live.
//!
//! Data flows one way: `feed` (looks at the store) -> `app` (the state, and what keys do; pure) ->
//! `view` (draws it; pure) -> `screen` (the terminal).

mod app;
mod facts;
mod feed;
mod keys;
mod screen;
mod tracked;
mod view;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time;

use crate::base::clock;
use crate::base::exit::{Code, Failure};
use crate::locks::look::Name;
use crate::process::signal::Signals;
use crate::settings::options;
use crate::store::{self, Store};
use app::{Act, App, Sort};
use feed::{Feed, News};
use screen::Screen;
use tracked::Tracked;
use view::Look;

/// Default for the keys searched per second: the search goes on for as long as somebody watches.
const RATE: u32 = 10_000;

/// After this time a store that does not answer is shown as an error; the next look tries again.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the end may take: a server drops everything by itself.
const END_MAX: Duration = Duration::from_millis(500);

/// How often the times on the screen are updated while there are no news.
const REDRAW: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  fairlock top                       the locks in use
  fairlock top nightly orders        these locks
  fairlock top --interval 5s --sort changes
";

const HELP: &str = "\
Keys:
  up, down, PgUp, PgDn, Home, End   select a lock; its queue is shown below
  s, r       sort by the next column, reverse the order
  /          show only locks with this text in their name or holder; Esc shows all
  u          take the selected lock away from its holder, after a question
  q, Ctrl-C  quit; Ctrl-Z stops, fg continues

Columns:
  HOLDER     the first holder, and its share of the lock; all holders are shown below
  FOR        how long the holder has held the lock, if its token tells
  LEFT       time until the lease expires unless it is renewed
  WAITING    waiters in the queue; waiters of plain and simple locks are not known
  CHANGES/S  how many times per second the holder changed, in the last 30 polls. There may have been
             more changes between two polls
  kind       below: - for a fair or a plain lock without waiters, which look the same

Cost:
  Every --interval one call for each lock on the screen, and one for each of its clients. New locks
  are found as in `fairlock list`, again and again, at --rate.

NO_COLOR in the environment turns colours off.

Exit codes:
  0 after q; 64, 69, 70 and 77 as of `fairlock status`; 128 + n if signal n ended it";

#[derive(clap::Args, Debug)]
#[command(before_help = EXAMPLES, after_long_help = HELP)]
pub(crate) struct Args {
    /// Show these locks, free or not. Default: all in use.
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,

    /// Time between two polls, 200ms to 1h.
    #[arg(long, value_name = "DURATION", value_parser = options::interval, default_value = "1s")]
    interval: Duration,

    /// Sort by waiting, name, for, left or changes. Default: waiting.
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Sort::Waiting, hide_default_value = true, hide_possible_values = true)]
    sort: Sort,

    /// Show only locks with this text in their name or holder.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// Show at most N locks, up to 1000.
    ///
    /// Locks with most waiters come first.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = max())]
    max: u32,

    /// Scan at most N keys of a server per second.
    ///
    /// Up to 1000000.
    #[arg(long, value_name = "N", default_value_t = RATE, value_parser = options::rate())]
    rate: u32,

    #[command(flatten)]
    store: options::Store,
}

fn max() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000)
}

/// Shows locks until the user leaves.
pub(crate) async fn top(args: Args) -> Result<Code, Failure> {
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !io::stdout().is_terminal() || is_dumb {
        return Err(Failure::usage(
            "top draws on a terminal, and stdout is none that it can use; `fairlock list` prints once",
        ));
    }
    if args.names.len() > args.max as usize {
        return Err(Failure::usage(format!("more than {} names; see --max", args.max)));
    }
    let store = Store::resolve(&args.store)?.watched().patience(PATIENCE);
    let mut signals = Signals::install().map_err(|error| trouble(&error))?;
    store.warn(false);
    let shown_url = store.selection().shown_url();
    let client = tokio::select! {
        biased;
        signal = signals.recv() => return Err(Failure::signal(signal)),
        client = store.connect(false) => client?,
    };
    let done = watch(&client, args, shown_url, &mut signals).await;
    // After leaving, the terminal does not wait for a server.
    let _ = time::timeout(END_MAX, store::shutdown(client)).await;
    done
}

async fn watch(
    client: &fairlock::Client,
    args: Args,
    shown_url: String,
    signals: &mut Signals,
) -> Result<Code, Failure> {
    let look = Look {
        shown_url,
        interval: args.interval,
        color: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let names: Vec<_> = args.names.iter().map(|name| Name::new(name.as_bytes())).collect();
    let rate = names.is_empty().then_some(args.rate);
    let tracked = Tracked::new(names, args.max as usize);
    let mut feed = Feed::start(client, tracked, rate, args.interval);
    let mut app = App::new(args.sort, &args.filter, clock::now());
    let listen =
        |kind: Signal| signal(SignalKind::from_raw(kind.as_raw())).map_err(|error| trouble(&error));
    let (mut goes_on, mut resized) = (listen(Signal::CONT)?, listen(Signal::WINCH)?);
    let mut redraw = time::interval(REDRAW);
    let mut screen = Screen::enter().map_err(|error| trouble(&error))?;
    let mut keys = keys::read().map_err(|error| trouble(&error))?;
    loop {
        let now = clock::now();
        screen
            .draw(|frame| view::draw(frame, &app, &look, now))
            .map_err(|error| trouble(&error))?;
        let mut act = None;
        tokio::select! {
            biased;
            signal = signals.recv() => return Err(Failure::signal(signal)),
            _ = goes_on.recv() => screen.resume().map_err(|error| trouble(&error))?,
            // Drawing reads the size.
            _ = resized.recv() => {}
            key = keys.recv() => match key {
                Some(Ok(key)) => act = app.press(key),
                Some(Err(error)) => return Err(trouble(&error)),
                None => return Err(Failure::new(Code::INTERNAL, "the terminal: no more keys")),
            },
            Some(news) = feed.news.recv() => match news {
                News::Looked(looked) => app.take(clock::now(), looked),
                News::Trouble(text) => app.trouble(text),
                News::Said(text) => app.message = Some(text),
            },
            _ = redraw.tick() => {}
        }
        match act {
            None => {}
            Some(Act::Quit) => return Ok(Code::OK),
            Some(Act::Suspend) => screen.suspend().map_err(|error| trouble(&error))?,
            Some(Act::Force(force)) => {
                app.message = Some(format!("{}: taking it away ...", force.name.printable()));
                feed.force(force);
            }
        }
        let selected = app.selected_name().cloned();
        feed.selected.send_if_modified(|known| {
            let is_other = *known != selected;
            *known = selected;
            is_other
        });
    }
}

fn trouble(error: &io::Error) -> Failure {
    Failure::new(Code::INTERNAL, format!("the terminal: {error}"))
}
