//! The source of the facts: an endless walk through the store, and a look at each tracked lock every
//! interval. One thing at a time, so that a slow store gets fewer requests and not more.

use std::sync::Arc;
use std::time::Duration;

use fairlock::{Client, ConnectionState, Error, LockEntry};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{self, MissedTickBehavior};

use super::app::{Force, Looked};
use super::facts::Facts;
use super::tracked::Tracked;
use crate::base::clock;
use crate::base::message;
use crate::locks::look::{self, Name, Target};
use crate::locks::take_away::{self, Taken};

/// Waiters of the selected lock that are listed.
const QUEUE_MAX: usize = 50;

/// Shortest rest between two walks. After a walk that took longer the rest is as long as the walk, so that a
/// store is searched at most half of the time.
const REST_MIN: Duration = Duration::from_secs(2);

/// Capacity for news that are not taken in yet.
const QUEUED_MAX: usize = 8;

/// News for the view.
#[derive(Debug)]
pub(super) enum News {
    Looked(Looked),
    /// The store did not answer, or denied the request.
    Trouble(String),
    /// The outcome of a command.
    Said(String),
}

/// The view's end of the feed.
pub(super) struct Feed {
    pub(super) news: mpsc::Receiver<News>,
    /// The lock whose queue is shown.
    pub(super) selected: watch::Sender<Option<Name>>,
    client: Client,
    sender: mpsc::Sender<News>,
    again: Arc<Notify>,
}

struct Looker {
    client: Client,
    tracked: Tracked,
    selected: watch::Receiver<Option<Name>>,
    news: mpsc::Sender<News>,
    /// Why the walk makes no progress.
    walk_trouble: Option<String>,
}

/// A step of the walk; `None` at its end.
type Found = Result<Option<Vec<LockEntry>>, Error>;

impl Feed {
    /// Starts the looks. `rate` is that of the walk; `None` if the locks were named.
    pub(super) fn start(
        client: &Client,
        tracked: Tracked,
        rate: Option<u32>,
        interval: Duration,
    ) -> Self {
        let (sender, news) = mpsc::channel(QUEUED_MAX);
        let (selected, wanted) = watch::channel(None);
        let again = Arc::new(Notify::new());
        let (steps, found) = mpsc::channel(1);
        if let Some(rate) = rate {
            tokio::spawn(walk(client.clone(), rate, steps));
        }
        let looker = Looker {
            client: client.clone(),
            tracked,
            selected: wanted,
            news: sender.clone(),
            walk_trouble: None,
        };
        tokio::spawn(looker.run(found, interval, Arc::clone(&again)));
        Self { news, selected, client: client.clone(), sender, again }
    }

    /// Takes a lock away and sends the outcome.
    pub(super) fn force(&self, force: Force) {
        let (client, news, again) =
            (self.client.clone(), self.sender.clone(), Arc::clone(&self.again));
        tokio::spawn(async move {
            let name = force.name.printable();
            let text = match take_away(&client, &force).await {
                Ok(text) => format!("{name}: {text}"),
                Err(error) => message::redact(&error.to_string()),
            };
            // The view may be gone.
            let _ = news.send(News::Said(text)).await;
            again.notify_one();
        });
    }
}

/// Takes the lock only from those that the question named.
async fn take_away(client: &Client, force: &Force) -> Result<String, Error> {
    let target = Target { name: force.name.clone(), kind: force.named.kind };
    let seen = look::look(client, target, 0).await?;
    Ok(match force.named.take_away(client, &seen).await? {
        Taken::From(0) => "was free already".to_owned(),
        Taken::From(1) => "taken away".to_owned(),
        Taken::From(holders) => format!("taken away from {holders} holders"),
        Taken::Changed => take_away::CHANGED.to_owned(),
    })
}

/// Walks through the store again and again.
async fn walk(client: Client, rate: u32, steps: mpsc::Sender<Found>) {
    loop {
        let began = clock::now();
        let mut locks = client.locks().keys_per_second(rate);
        loop {
            let step = locks.next_page().await;
            let is_last = !matches!(step, Ok(Some(_)));
            if steps.send(step).await.is_err() {
                return;
            }
            if is_last {
                break;
            }
        }
        let took = clock::now().saturating_sub(began);
        time::sleep(took.max(REST_MIN)).await;
    }
}

impl Looker {
    async fn run(
        mut self,
        mut found: mpsc::Receiver<Found>,
        interval: Duration,
        again: Arc<Notify>,
    ) {
        let mut ticks = time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut walks = true;
        loop {
            let goes_on = tokio::select! {
                biased;
                changed = self.selected.changed() => match changed {
                    Ok(()) => self.look_at_selected().await,
                    Err(_) => false,
                },
                step = found.recv(), if walks => match step {
                    Some(step) => self.take(step).await,
                    None => {
                        walks = false;
                        true
                    }
                },
                () = again.notified() => self.look_at_all().await,
                _ = ticks.tick() => self.look_at_all().await,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Takes in a step of the walk. At the end of the first walk, the next look does not wait for the tick.
    async fn take(&mut self, step: Found) -> bool {
        self.walk_trouble = step.as_ref().err().map(|error| message::redact(&error.to_string()));
        match step {
            Ok(Some(page)) => {
                let now = clock::now();
                for entry in &page {
                    self.tracked.found(Target::from(entry), entry.held, entry.waiting, now);
                }
                true
            }
            Ok(None) => {
                let is_first = !self.tracked.searched();
                self.tracked.walked();
                !is_first || self.look_at_all().await
            }
            Err(_) => true,
        }
    }

    /// Looks at each tracked lock.
    async fn look_at_all(&mut self) -> bool {
        // Without a connection, every look would wait for one.
        if !self.is_connected() {
            return self.tell(News::Trouble("no connection; trying again".to_owned())).await;
        }
        let selected = self.selected.borrow_and_update().clone();
        let mut targets = self.tracked.targets();
        if targets.is_empty() {
            // Nothing to look at: only checks whether the store answers.
            if let Err(error) = self.client.ping().await {
                return self.trouble(&error).await;
            }
        }
        targets.retain(|target| Some(&target.name) != selected.as_ref());
        let mut results = look::look_all(&self.client, &targets, 0).await;
        if let Some(target) = selected.and_then(|name| self.tracked.target(&name)) {
            results.push(look::look(&self.client, target.clone(), QUEUE_MAX).await);
            targets.push(target);
        }
        let now = clock::now();
        let mut facts = Vec::with_capacity(targets.len());
        for (target, result) in targets.iter().zip(results) {
            match result {
                Ok(seen) => {
                    let fact = Facts::new(seen);
                    let (kind, in_use, waiting) = (fact.kind, fact.is_in_use(), fact.waiting);
                    self.tracked.looked(&fact.name, kind, in_use, waiting, now);
                    facts.push(fact);
                }
                Err(error) if concerns_the_store(&error) => return self.trouble(&error).await,
                Err(error) => facts.push(Facts::failed(target, &error)),
            }
        }
        self.looked(facts, true).await
    }

    /// Another lock was selected, so its queue is looked at immediately. If that fails, the next tick says why.
    async fn look_at_selected(&mut self) -> bool {
        let selected = self.selected.borrow_and_update().clone();
        let target = selected.and_then(|name| self.tracked.target(&name));
        let Some(target) = target.filter(|_| self.is_connected()) else { return true };
        match look::look(&self.client, target, QUEUE_MAX).await {
            Ok(seen) => self.looked(vec![Facts::new(seen)], false).await,
            Err(_) => true,
        }
    }

    fn is_connected(&self) -> bool {
        *self.client.connection().borrow() == ConnectionState::Connected
    }

    async fn looked(&self, facts: Vec<Facts>, all: bool) -> bool {
        let (hidden, searched) = (self.tracked.hidden(), self.tracked.searched());
        let walk_trouble = self.walk_trouble.clone();
        self.tell(News::Looked(Looked { facts, all, hidden, searched, walk_trouble })).await
    }

    async fn trouble(&self, error: &Error) -> bool {
        self.tell(News::Trouble(message::redact(&error.to_string()))).await
    }

    /// Sends news; `false` if nobody listens any more.
    async fn tell(&self, news: News) -> bool {
        self.news.send(news).await.is_ok()
    }
}

/// Whether the next look would fail with the same error.
fn concerns_the_store(error: &Error) -> bool {
    use fairlock::ErrorKind::{Misuse, Protocol, WrongType};
    !matches!(error.kind(), Misuse | Protocol | WrongType)
}
