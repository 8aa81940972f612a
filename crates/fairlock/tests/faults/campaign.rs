//! An election of several processes, of which some stand and some observe, and the verdict on what all of them have
//! said: never two valid terms at one instant, terms rise for the resource and for every observer, and the last state is
//! shown by all in time.

use super::fixture::{SLACK, ms};
use super::worker::{Line, Worker};
use fairlock::{Client, Leader};
use fairlock_testkit::history::now_ns;
use fairlock_testkit::proxy::Proxy;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The election's name. Braces, so that a Cluster knows one slot for it and for anything else.
pub(crate) const NAME: &str = "scheduler";

/// An observer that nothing tells looks so often.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_secs(5);

/// Takes writes with terms that do not fall.
struct Resource {
    addr: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Resource {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        std::thread::spawn(move || {
            let mut largest = 0;
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                // One that is frozen in the middle of its write must not stop the others.
                let _ = stream.set_read_timeout(Some(ms(100)));
                let mut term = [0; 8];
                if stream.read_exact(&mut term).is_ok() {
                    let term = u64::from_be_bytes(term);
                    largest = term.max(largest);
                    let _ = stream.write_all(&[u8::from(term == largest)]);
                }
            }
        });
        Self { addr, over }
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(self.addr);
    }
}

/// A process, and all that it has said.
pub(crate) struct Member {
    pub(crate) worker: Worker,
    pub(crate) proxy: Option<Proxy>,
    heard: Vec<Line>,
}

impl Member {
    fn start(place: &Place) -> Self {
        let proxy = match place.at {
            At::Behind(server) => Some(Proxy::start(server)),
            At::Url(_) => None,
        };
        let url = match (&proxy, &place.at) {
            (Some(proxy), _) => proxy.url(),
            (None, At::Url(url)) => url.clone(),
            (None, At::Behind(_)) => unreachable!("it has a proxy"),
        };
        let worker = Worker::with(&url, place.heartbeat, place.lease, []);
        Self { worker, proxy, heard: Vec::new() }
    }

    fn hears(&mut self) {
        self.heard.extend(self.worker.said());
    }

    /// What it has seen last, and when.
    fn last_seen(&self) -> Option<&Line> {
        self.heard.iter().rfind(|line| line.words[0] == "saw")
    }
}

#[derive(Clone)]
enum At {
    /// Each process has a proxy of its own before the server.
    Behind(SocketAddr),
    Url(String),
}

/// Where the processes connect to, and with which times.
#[derive(Clone)]
pub(crate) struct Place {
    at: At,
    heartbeat: Duration,
    lease: Duration,
}

impl Place {
    pub(crate) fn behind(server: SocketAddr, heartbeat: Duration, lease: Duration) -> Self {
        Self { at: At::Behind(server), heartbeat, lease }
    }

    pub(crate) fn url(url: &str, heartbeat: Duration, lease: Duration) -> Self {
        Self { at: At::Url(url.to_owned()), heartbeat, lease }
    }
}

pub(crate) struct Campaign {
    place: Place,
    resource: Resource,
    pub(crate) candidates: Vec<Member>,
    pub(crate) observers: Vec<Member>,
    /// What the killed have said.
    of_the_dead: Vec<Vec<Line>>,
}

impl Campaign {
    pub(crate) fn start(place: &Place, candidates: usize, observers: usize) -> Self {
        let mut campaign = Self {
            place: place.clone(),
            resource: Resource::start(),
            candidates: Vec::new(),
            observers: Vec::new(),
            of_the_dead: Vec::new(),
        };
        for _ in 0..observers {
            let mut member = Member::start(place);
            member.worker.order(&format!("observe {NAME}"));
            campaign.observers.push(member);
        }
        for _ in 0..candidates {
            campaign.joins();
        }
        campaign
    }

    /// One more process stands.
    pub(crate) fn joins(&mut self) {
        let mut member = Member::start(&self.place);
        member.worker.order(&format!("stand {NAME} {}", self.resource.addr));
        self.candidates.push(member);
    }

    pub(crate) fn hears(&mut self) {
        self.candidates.iter_mut().chain(&mut self.observers).for_each(Member::hears);
    }

    /// The place of the candidate who said last that it leads.
    pub(crate) fn leader(&mut self) -> Option<usize> {
        self.hears();
        let says = |member: &Member| {
            member.heard.iter().rfind(|line| line.words[0] == "says").map(|line| line.at_ns)
        };
        let all = self.candidates.iter().enumerate();
        let last = all.filter_map(|(place, member)| Some((says(member)?, place))).max();
        last.map(|(_, place)| place)
    }

    /// Waits until somebody says that it leads, from now on.
    pub(crate) async fn somebody_leads(&mut self, limit: Duration) -> usize {
        let (began, now) = (Instant::now(), now_ns());
        loop {
            if let Some(leader) = self.leader() {
                let last = self.candidates[leader].heard.iter().rfind(|it| it.words[0] == "says");
                if last.is_some_and(|line| line.at_ns > now) {
                    return leader;
                }
            }
            assert!(began.elapsed() < limit, "nobody leads within {limit:?}");
            tokio::time::sleep(ms(5)).await;
        }
    }

    /// The term that a candidate began last.
    pub(crate) fn term_of(&self, candidate: usize) -> u64 {
        let leads = self.candidates[candidate].heard.iter().rfind(|it| it.words[0] == "leads");
        number(leads.expect("it has led"), 1)
    }

    pub(crate) fn kill(&mut self, candidate: usize) {
        let mut member = self.candidates.remove(candidate);
        member.worker.kill9();
        member.hears();
        self.of_the_dead.push(member.heard);
    }

    /// No term is given back from now on.
    pub(crate) fn keeps(&mut self) {
        for member in &mut self.candidates {
            member.worker.order("keep");
        }
    }

    /// After the last fault: all observers show the last state, each within [`LOOKS_EVERY`] after it came about.
    pub(crate) async fn all_see_the_last_state(&mut self, look: &Client, limit: Duration) {
        self.keeps();
        let (began, mut settled_ns, mut last) = (Instant::now(), now_ns(), None);
        loop {
            let seen = look.election(NAME).leader().await.ok().flatten();
            if seen != last {
                (settled_ns, last) = (now_ns(), seen);
            }
            self.hears();
            let wanted = last.as_ref().and_then(shown);
            let all = self.observers.iter().all(|observer| {
                observer
                    .last_seen()
                    .is_some_and(|line| Some(&line.words[1..]) == wanted.as_ref().map(|it| &it[..]))
            });
            let since = Duration::from_nanos(now_ns() - settled_ns);
            if all && since > ms(1_500) {
                break;
            }
            let late = wanted.is_some() && since > LOOKS_EVERY + 2 * SLACK;
            assert!(!late && began.elapsed() < limit, "{}", self.story(last.as_ref()));
            tokio::time::sleep(ms(10)).await;
        }
        for observer in &self.observers {
            let at_ns = observer.last_seen().expect("just compared").at_ns;
            let took = Duration::from_nanos(at_ns.saturating_sub(settled_ns));
            assert!(took <= LOOKS_EVERY + SLACK, "{took:?}: {}", self.story(last.as_ref()));
        }
    }

    fn story(&self, last: Option<&Leader>) -> String {
        let seen: Vec<_> = self.observers.iter().map(Member::last_seen).collect();
        format!("{last:?} leads, and the observers have seen {seen:?}")
    }

    /// Judges all that was said. Returns how many terms there were, and how many late writes were refused.
    pub(crate) fn judge(mut self) -> (usize, usize) {
        self.hears();
        let led: Vec<&[Line]> = self
            .candidates
            .iter()
            .map(|member| &member.heard[..])
            .chain(self.of_the_dead.iter().map(|heard| &heard[..]))
            .collect();
        let mut violations = two_at_once(&led);
        violations.extend(led.iter().flat_map(|heard| refused(heard)));
        violations.extend(self.observers.iter().flat_map(|member| goes_back(&member.heard)));
        assert!(violations.is_empty(), "{violations:#?}");
        let count = |what: &str| {
            let all = led.iter().flat_map(|heard| heard.iter());
            all.filter(|line| line.words.join(" ").starts_with(what)).count()
        };
        let late = led.iter().flat_map(|heard| heard.iter());
        let late = late.filter(|line| line.words[0] == "late" && line.words[2] == "refused");
        (count("leads "), late.count())
    }
}

fn shown(leader: &Leader) -> Option<[String; 2]> {
    let value = leader.value.as_deref().map(String::from_utf8_lossy)?;
    Some([leader.term.to_string(), value.into_owned()])
}

#[track_caller]
fn number(line: &Line, word: usize) -> u64 {
    line.words[word].parse().unwrap_or_else(|_| panic!("a number: {line:?}"))
}

/// For each term, from when until when it was valid, or would have been for whoever had asked: a guard that says how long
/// it is valid holds to that, whatever happens to its process, unless it is given back.
fn claims(heard: &[&[Line]]) -> BTreeMap<u64, (u64, u64)> {
    let mut claims: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for line in heard.iter().flat_map(|heard| heard.iter()) {
        match &line.words[0][..] {
            "says" => {
                let (from, to) = (number(line, 3), line.at_ns + number(line, 2) * 1_000_000);
                // Frozen between the look and the clock: nothing is known of when it was true.
                if from <= to {
                    let claim = claims.entry(number(line, 1)).or_insert((from, to));
                    *claim = (claim.0.min(from), claim.1.max(to));
                }
            }
            "resigns" => {
                if let Some(claim) = claims.get_mut(&number(line, 1)) {
                    claim.1 = claim.1.min(line.at_ns);
                }
            }
            _ => {}
        }
    }
    claims
}

/// Terms that are valid at one instant, or in another order than that of their numbers.
fn two_at_once(heard: &[&[Line]]) -> Vec<String> {
    let (mut violations, mut until) = (Vec::new(), (0, 0));
    for (term, (from, to)) in claims(heard) {
        if from < until.0 {
            violations
                .push(format!("{term} is valid at {from}, and {} until {}", until.1, until.0));
        }
        until = until.max((to, term));
    }
    violations
}

/// Writes of a valid term that the resource refused, and late ones that it took after those of a later term.
fn refused(heard: &[Line]) -> Vec<String> {
    let wrong = |line: &&Line| {
        line.words[0] == "refused" || (line.words[0] == "late" && line.words[2] == "taken")
    };
    heard.iter().filter(wrong).map(|line| format!("{line:?}")).collect()
}

/// What an observer has shown after something later, or twice.
fn goes_back(heard: &[Line]) -> Vec<String> {
    let (mut violations, mut before, mut highest) = (Vec::new(), None, 0);
    for line in heard.iter().filter(|line| line.words[0] == "saw") {
        let (term, value) = (line.words[1].parse::<u64>().ok(), &line.words[2]);
        let wrong = match (term, &before) {
            (Some(term), Some((Some(last), shown))) if term == *last => {
                value == shown || value == "?"
            }
            (Some(term), _) => term <= highest,
            (None, before) => matches!(before, Some((None, _))),
        };
        if wrong {
            violations.push(format!("{line:?} after {before:?} and term {highest}"));
        }
        highest = term.unwrap_or(0).max(highest);
        before = Some((term, value.clone()));
    }
    violations
}

/// What each verdict is about, once as it may be and once as it may not.
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        text.lines().map(|line| Line::parse(&format!("> {}", line.trim())).unwrap()).collect()
    }

    #[test]
    fn two_valid_terms_are_found() {
        let one =
            lines("leads 7 5\n says 7 10 1000 900\n says 7 10 3000000 2999999\n resigns 7 4000000");
        let next = lines("says 8 10 4000001 4000001");
        assert_eq!(two_at_once(&[&next, &one]), [""; 0]);
        let early = lines("says 8 10 3999999 3999999");
        assert_eq!(two_at_once(&[&one, &early]).len(), 1);
        let smaller = lines("says 6 10 4000001 4000001");
        assert_eq!(two_at_once(&[&one, &smaller]).len(), 1, "terms rise");
        // Frozen after its look, it is valid until its time is up.
        let frozen = lines("says 7 10 1000 1000");
        assert_eq!(two_at_once(&[&frozen, &lines("says 8 10 9999999 9999999")]).len(), 1);
        assert_eq!(two_at_once(&[&frozen, &lines("says 8 10 10001001 10001001")]), [""; 0]);
    }

    #[test]
    fn writes_out_of_order_are_found() {
        assert_eq!(refused(&lines("wrote 7 1\n late 6 refused 2")), [""; 0]);
        assert_eq!(refused(&lines("refused 7 1\n late 6 taken 2")).len(), 2);
    }

    #[test]
    fn an_observer_that_goes_back_is_found() {
        let fine =
            "saw - - 1\n saw 7 ? 2\n saw 7 a 3\n saw 7 b 4\n saw - - 5\n saw 8 c 6\n saw 9 d 7";
        assert_eq!(goes_back(&lines(fine)), [""; 0]);
        for wrong in [
            "saw 7 a 1\n saw 7 a 2",
            "saw 7 a 1\n saw 7 ? 2",
            "saw 7 a 1\n saw - - 2\n saw 7 a 3",
            "saw 8 a 1\n saw 7 a 2",
            "saw - - 1\n saw - - 2",
        ] {
            assert_eq!(goes_back(&lines(wrong)).len(), 1, "{wrong}");
        }
    }
}
