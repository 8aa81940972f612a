//! A client with one acquisition, and a shell that does what a story says.

use super::*;

/// The world around a story.
pub(super) struct Around {
    pub(super) at: At,
    /// The next request.
    pub(super) drawn: u128,
    pub(super) randomness: bool,
}

impl Surroundings<Error> for Around {
    fn now_ns(&self) -> u64 {
        self.at.ns
    }

    fn is_connected(&self, _: &LockName) -> bool {
        self.at.connected
    }

    fn is_deaf(&self) -> bool {
        false
    }

    fn not_after_ms(&self, _: &LockName) -> u64 {
        9
    }

    fn late_ms(&self, _: &LockName) -> u64 {
        9
    }

    fn beat_every(&self, _: &LockName) -> Duration {
        Duration::from_secs(2)
    }

    fn draw(&mut self) -> Result<RequestId, Error> {
        self.drawn += 1;
        if self.randomness { Ok(request(self.drawn)) } else { Err("no randomness") }
    }
}

pub(super) type Machine = Client<(), Error>;

/// A client with one acquisition.
#[derive(Clone)]
pub(super) struct Play {
    pub(super) client: Machine,
    pub(super) id: AttemptId,
    pub(super) drawn: u128,
    pub(super) randomness: bool,
    pub(super) number: u32,
    pub(super) deadline_ns: Option<u64>,
    pub(super) last: Step<Error>,
    /// What the last input led to.
    pub(super) effects: Vec<Effect>,
}

pub(super) fn job() -> LockName {
    LockName::new(b"job").expect("a name")
}

impl Play {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self::behind(wanted, Client::default())
    }

    pub(super) fn behind(wanted: Wanted, client: Machine) -> Self {
        let owner = OwnerId::ours(ClientId::from_random(7), 1).expect("a small number");
        let mut play = Self {
            client,
            id: AttemptId(0),
            drawn: 1,
            randomness: true,
            number: 0,
            deadline_ns: None,
            last: Step::Wait,
            effects: Vec::new(),
        };
        let mut id = play.id;
        play.give(at(0), |it, here, _| {
            id = it.ask(here, (job(), wanted), (owner, request(1)), ());
        });
        play.id = id;
        play.take();
        play
    }

    /// Has sent its first copy.
    pub(super) fn asks(wanted: Wanted) -> Self {
        let play = Self::new(wanted);
        play.sends();
        play
    }

    /// Stands in the queue.
    pub(super) fn waits(wanted: Wanted) -> Self {
        let mut play = Self::asks(wanted);
        play.answer(0, queued(7));
        assert_eq!(play.last, Step::Wait);
        play
    }

    pub(super) fn give(
        &mut self,
        at: At,
        input: impl FnOnce(&mut Machine, &mut Around, AttemptId),
    ) -> &mut Self {
        let mut around = Around { at, drawn: self.drawn, randomness: self.randomness };
        input(&mut self.client, &mut around, self.id);
        self.drawn = around.drawn;
        self.effects = self.client.outputs().into_iter().map(|((), effect)| effect).collect();
        self.take();
        self
    }

    pub(super) fn take(&mut self) {
        (self.last, self.deadline_ns) = self.client.take(self.id);
        if let Step::Begin(number, _) = self.last {
            self.number = number;
        }
    }

    /// A try is told that the lock is taken, and that dead waiters remain.
    pub(super) fn answer_behind_dead(&mut self, ms: u64) -> &mut Self {
        let busy = (Body::Busy { ttl_ms: None }, true);
        let number = self.number;
        self.give(at(ms), |it, here, id| it.answered(here, (id, number), busy, ns(ms)))
    }

    pub(super) fn answer(&mut self, ms: u64, body: Body) -> &mut Self {
        self.answer_at(at(ms), body, ns(ms))
    }

    pub(super) fn answer_at(&mut self, at: At, body: Body, sent_ns: u64) -> &mut Self {
        let number = self.number;
        self.give(at, |it, here, id| it.answered(here, (id, number), (body, false), sent_ns))
    }

    pub(super) fn confirm(
        &mut self,
        ms: u64,
        answer: Result<Renewed, Mismatch>,
        missing: Option<Error>,
        sent_ms: u64,
    ) -> &mut Self {
        let work = (self.id, self.number);
        self.give(at(ms), |it, here, _| it.confirmed(here, work, answer, missing, ns(sent_ms)))
    }

    pub(super) fn fail(&mut self, ms: u64, failure: Failure<Error>) -> &mut Self {
        let number = self.number;
        self.give(at(ms), |it, here, id| it.failed(here, (id, number), failure))
    }

    pub(super) fn rest(&mut self, ms: u64) -> &mut Self {
        let number = self.number;
        self.give(at(ms), |it, here, id| it.rested(here, (id, number)))
    }

    pub(super) fn listen(&mut self, ms: u64) -> &mut Self {
        let number = self.number;
        self.give(at(ms), |it, here, id| it.subscribed(here, (id, number)))
    }

    pub(super) fn wake(&mut self, ms: u64) -> &mut Self {
        self.give(at(ms), |it, here, _| it.wake(here, &job()))
    }

    pub(super) fn time(&mut self, ms: u64) -> &mut Self {
        assert_eq!(self.deadline_ns, Some(ns(ms)), "after {:?}", self.last);
        self.time_at(at(ms))
    }

    pub(super) fn time_at(&mut self, at: At) -> &mut Self {
        self.give(at, |it, here, id| it.time(here, id))
    }

    pub(super) fn gone(&mut self, ms: u64) -> &mut Self {
        self.give(at(ms), |it, here, id| it.gone(here, id))
    }

    pub(super) fn closed(&mut self, ms: u64) -> &mut Self {
        self.give(at(ms), |it, here, id| it.closed(here, id))
    }

    /// Grants the lock in the reply to a heartbeat, which may come after the grant has expired.
    pub(super) fn granted(&mut self, ms: u64, grant: Grant, base_ms: u64) -> &mut Self {
        let (held, queued) = (Some(grant), vec![false]);
        let body = Body::Beaten { held, queued, retry_ms: None, foreign: false };
        self.give(at(ms), |it, here, _| {
            it.beaten(here, &job(), body, ns(base_ms)).expect("a reply to a heartbeat");
        })
    }

    pub(super) fn wait_fails(&mut self, ms: u64, error: Error) -> &mut Self {
        let period = Duration::from_secs(2);
        self.give(at(ms), |it, here, _| {
            it.beat_failed(here, (&job(), ns(ms)), None, period, |_| error);
        })
    }

    pub(super) fn given_back(&mut self, ms: u64) -> &mut Self {
        self.give(at(ms), |it, here, id| it.given_back(here, id))
    }

    pub(super) fn taken_back(&mut self, ms: u64, answered: bool) -> &mut Self {
        self.give(at(ms), |it, here, id| it.taken_back(here, id, answered))
    }

    pub(super) fn work(&self) -> Work {
        let Step::Begin(_, work) = &self.last else { panic!("{:?}", self.last) };
        work.clone()
    }

    /// The copy that it sends.
    #[track_caller]
    pub(super) fn sends(&self) -> Acquire {
        match self.work() {
            Work::Send(Op::Acquire(acquire)) => acquire,
            Work::Send(Op::AcquireShare(ask)) => ask.acquire,
            work => panic!("{work:?}"),
        }
    }

    /// It renews its grant for this time.
    #[track_caller]
    pub(super) fn confirms(&self, ms: u64) {
        let Work::Confirm(op) = self.work() else { panic!("{:?}", self.last) };
        let Op::Renew { ttl_ms, token: of, .. } = op.bare() else { panic!("{op:?}") };
        assert_eq!((*ttl_ms, *of), (ms, token()));
    }

    #[track_caller]
    pub(super) fn pauses(&self, ms: u64) {
        let pause = Duration::from_millis(ms);
        assert_eq!(self.work(), Work::Pause { least: pause, most: pause });
    }

    #[track_caller]
    pub(super) fn rests(&self, least: u64, most: u64) {
        let [least, most] = [least, most].map(Duration::from_millis);
        assert_eq!(self.work(), Work::Rest { least, most });
    }

    /// The requests that are taken back, each with whether it is buried, and whether the acquisition waits for the
    /// answer. If it does, this answers.
    #[track_caller]
    pub(super) fn takes_back(&mut self) -> (Vec<(RequestId, bool)>, bool) {
        let one = |effect: &Effect| match effect {
            Effect::TakeBack { op, then, .. } => match &**op {
                Op::Leave { request, bury, .. } => Some(((*request, *bury), then.is_some())),
                op => panic!("{op:?} takes nothing back"),
            },
            _ => None,
        };
        let taken: Vec<_> = self.effects.iter().filter_map(one).collect();
        assert!(!taken.is_empty(), "{:?}", self.effects);
        let waits = taken.iter().any(|(_, waits)| *waits);
        if waits {
            self.taken_back(0, true);
        }
        (taken.into_iter().map(|(taken, _)| taken).collect(), waits)
    }

    #[track_caller]
    pub(super) fn gives_back(&self) {
        let gives_back = |effect: &Effect| matches!(effect, Effect::GiveBack { .. });
        assert!(self.effects.iter().any(gives_back), "{:?}", self.effects);
    }

    #[track_caller]
    pub(super) fn held(&self) -> Held {
        let Step::Done(Outcome::Held(held)) = &self.last else { panic!("{:?}", self.last) };
        held.clone()
    }

    #[track_caller]
    pub(super) fn ends(&self, outcome: Outcome<Error>) {
        assert_eq!(self.last, Step::Done(outcome));
        assert_eq!(self.client.deadline_ns(self.id), None);
    }

    #[track_caller]
    pub(super) fn fails(&self, reason: Reason<Error>) {
        self.ends(Outcome::Failed(reason));
    }
}
