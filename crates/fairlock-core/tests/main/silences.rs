//! What dead waiters leave behind, met by a client that comes after a long silence, or only now and
//! then: a free lock belongs to the first that tries. h holds, w waits, t tries.

use crate::client::Flaw;
use crate::lab::{LEASE, T0, lab, wanted};
use crate::sim::Sim;
use crate::support::{client, ours};
use fairlock_core::{Acquire, Body, Kind, LockState, Mode, Op, OwnerId, Rules, TOKEN_LIMIT};
use std::rc::Rc;

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// A lock with these rules, and this many clients.
fn with_rules(clients: usize, rules: Rules) -> Sim {
    let mut sim = lab(clients, Flaw::None);
    sim.rules = Rc::new(rules);
    sim
}

fn h() -> OwnerId {
    ours(50, 1)
}

impl Sim {
    /// h takes the lock.
    fn h_locks(&mut self) {
        let op = Op::Acquire(wanted(&h(), 50, self.now));
        assert!(matches!(self.op(op).body, Body::Granted { .. }));
    }

    fn h_renews(&mut self) {
        let op = Op::Renew { kind: Kind::Fair, owner: h(), token: self.token(), ttl_ms: LEASE };
        assert_eq!(self.op(op).body, Body::Renewed);
    }

    /// Lets time pass while h renews.
    fn h_holds_on(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now = end.min(self.now + LEASE / 3);
            self.h_renews();
        }
    }

    fn h_releases(&mut self) {
        let token = self.token();
        let op = Op::Release { kind: Kind::Fair, owner: h(), token, keep: 0, change: 1 };
        assert_eq!(self.op(op).body, Body::Released);
    }

    /// t's only try. If it gets the lock, it releases it at once.
    fn t_gets_it(&mut self) -> bool {
        let t = ours(60, 1);
        let op = Op::Acquire(Acquire { mode: Mode::Try, ..wanted(&t, self.now, self.now) });
        let Body::Granted { token, .. } = self.op(op).body else { return false };
        let op = Op::Release { kind: Kind::Fair, owner: t, token, keep: 0, change: 1 };
        assert_eq!(self.op(op).body, Body::Released);
        true
    }

    /// Deletes `order`, `state` and `beats`, as an operator may.
    fn lose_the_registry(&mut self) {
        self.tamper(|k| {
            k.order.clear();
            k.waiters.clear();
            k.record = Default::default();
            k.beats.clear();
        });
    }

    fn without_ttl(&self) -> Vec<&'static str> {
        let k = self.keys();
        let keys = [
            ("lock", k.hold.is_empty(), k.hold_expires),
            ("queue", k.queue.is_empty(), k.queue_expires),
            ("scores", k.scores.is_empty(), k.scores_expires),
            ("token", k.token.is_none(), k.token_expires),
            ("order", k.order.is_empty(), k.order_expires),
            ("state", !k.has_state(), k.state_expires),
            ("beats", k.beats.is_empty(), k.beats_expires),
        ];
        let endless = keys.into_iter().filter(|(_, empty, expires)| !empty && expires.is_none());
        endless.map(|(name, ..)| name).collect()
    }
}

fn servers_rules() -> [Rules; 2] {
    [true, false].map(|presence| Rules { presence, ..Rules::default() })
}

/// w died while h held the lock, and our own keys had expired when h released it: all that was left
/// of w was its entry. Each try noted that it had met the entry, the note expired after a minute,
/// and the next try met it for the first time. Nobody held the lock, yet it stayed busy forever for
/// a client that tried less than once a minute.
#[test]
fn d08_a_leftover_of_the_dead_keeps_nobody_from_a_free_lock() {
    for rules in servers_rules() {
        for killed in [true, false] {
            for pause in [0, 9_000, 70_000, 10 * MINUTE, 23 * 60 * MINUTE] {
                let mut sim = with_rules(2, rules.clone());
                sim.h_locks();
                sim.start(0);
                sim.start(1);
                sim.pass_beating(4_000, &[0, 1]);
                sim.deafen(client(1), killed);
                sim.deafen(client(2), killed);
                sim.h_holds_on(70_000);
                sim.h_releases();
                sim.pass(pause);
                assert!(sim.t_gets_it(), "{rules:?}, killed: {killed}, after {pause} ms");
                assert_eq!(sim.keys().queue.len(), 0);
                assert_eq!(sim.without_ttl(), [""; 0]);
            }
        }
    }
}

/// The same in one second: an operator deletes our own keys, and h releases the lock.
#[test]
fn d08_without_its_record_a_dead_waiter_costs_its_deadline_once() {
    for rules in servers_rules() {
        let mut sim = with_rules(1, rules.clone());
        sim.h_locks();
        sim.start(0);
        sim.pass_beating(4_000, &[0]);
        sim.deafen(client(1), true);
        sim.lose_the_registry();
        sim.h_releases();
        // A server that counts subscribers knows at once, others go by the last heartbeat.
        assert_eq!(sim.t_gets_it(), rules.presence);
        if !rules.presence {
            sim.pass(5_999);
            assert!(!sim.t_gets_it(), "w may live for D");
            sim.lose_the_registry();
            sim.pass(2);
            assert!(sim.t_gets_it(), "no note was needed for that");
        }
    }
}

/// Beside Java the list has no TTL that would show when a waiter was last heard. The score of each
/// entry shows it.
#[test]
fn d08_where_the_list_has_no_ttl_scores_tell_who_is_dead() {
    let rules = Rules { presence: false, java_fleet: true, ..Rules::default() };
    let mut sim = with_rules(3, rules);
    sim.h_locks();
    for i in 0..3 {
        sim.start(i);
    }
    sim.pass_beating(4_000, &[0, 1, 2]);
    sim.h_holds_on(70_000);
    sim.h_releases();
    assert!(!sim.t_gets_it(), "those that were not first have the score of their entry");
    // Half a minute of a score says nothing about when a waiter was heard.
    sim.pass(300_000 - 30_000 - 70_000 + 6_000);
    assert!(!sim.t_gets_it());
    sim.pass(1);
    assert!(sim.t_gets_it());
}

/// Where deaths are proven and heartbeats do not count: a waiter about whom nothing can be proven.
#[test]
fn d08_on_one_host_a_leftover_without_proof_ends_after_ten_minutes() {
    let mut sim = with_rules(1, Rules { ages: false, ..Rules::default() });
    sim.h_locks();
    sim.start(0);
    sim.pass_beating(4_000, &[0]);
    sim.h_holds_on(11 * MINUTE);
    sim.h_releases();
    assert!(sim.t_gets_it());

    let mut sim = with_rules(1, Rules { ages: false, ..Rules::default() });
    sim.h_locks();
    sim.start(0);
    sim.lose_the_registry();
    sim.h_releases();
    sim.pass(5 * MINUTE);
    assert!(!sim.t_gets_it(), "it may live");
    sim.pass(6 * MINUTE);
    assert!(sim.t_gets_it());
}

/// w lives. Our own keys are deleted after it has waited for long: a try takes nothing from it, and
/// it returns and has its turn.
#[test]
fn d08_a_live_waiter_without_a_record_keeps_its_place() {
    for rules in servers_rules() {
        for waited in [0, 2_000, 10 * MINUTE] {
            let mut sim = with_rules(2, rules.clone());
            sim.h_locks();
            sim.start(0);
            sim.start(1);
            let end = sim.now + waited;
            while sim.now < end {
                sim.pass_beating(2_000, &[0, 1]);
                sim.h_renews();
            }
            sim.pass(1_900);
            sim.lose_the_registry();
            sim.h_releases();
            assert!(!sim.t_gets_it(), "{rules:?}, w has waited {waited} ms");
            // The second heartbeat may come first.
            sim.pass(100);
            for i in [1, 0, 1, 0] {
                sim.beat(i);
                sim.hear_all();
                sim.pass(1_050);
            }
            assert_eq!(sim.holding_client(), Some(client(1)), "{rules:?}, {waited} ms");
        }
    }
}

/// The server was away for longer than our own keys live. w had been first, so its score makes it
/// look dead; y, behind it, is heard first.
#[test]
fn d08_who_was_cut_off_with_the_others_returns_behind_them() {
    for rules in servers_rules() {
        let mut sim = with_rules(2, rules.clone());
        sim.h_locks();
        sim.start(0);
        sim.start(1);
        sim.pass_beating(4_000, &[0, 1]);
        sim.pass(61_000);
        sim.beat(1);
        sim.hear_all();
        assert_eq!(sim.holder(), None, "others may come back as well");
        sim.pass(1_000);
        sim.beat(0);
        sim.hear_all();
        sim.pass(1_001);
        sim.beat(1);
        sim.hear_all();
        assert_eq!(sim.holding_client(), Some(client(1)), "{rules:?}");
    }
}

/// The server's clock jumped by more than the lock's keys live: the hold is over, and the scores
/// and the TTL of the list say that no waiter has been heard for long. The next client that came
/// and waited judged by that, and overtook all waiters before it. Their inboxes exist, so they have
/// D to show that they live.
#[test]
fn d08_after_a_jump_of_the_clock_nobody_goes_before_who_has_an_inbox() {
    for jump in [61_000, 70_000, 10 * MINUTE] {
        let mut sim = lab(3, Flaw::None);
        sim.h_locks();
        sim.start(0);
        sim.start(1);
        sim.pass_beating(4_000, &[0, 1]);
        sim.pass(jump);
        assert!(matches!(sim.start(2), Body::Queued { .. }), "{jump} ms: overtaken");
        assert_eq!(sim.keys().queue.len(), 3, "{jump} ms: somebody was removed");
        for i in [2, 1, 0].into_iter().cycle().take(12) {
            if sim.holder().is_some() {
                break;
            }
            sim.beat(i);
            sim.hear_all();
            sim.pass(500);
        }
        assert_eq!(sim.holding_client(), Some(client(1)), "{jump} ms");
    }
}

/// What dead waiters had left counted as foreign, and from then on list, scores and token had no
/// TTL: on a lock that nobody used any more they stayed forever.
#[test]
fn d09_what_is_left_of_the_dead_ends_by_itself() {
    let mut sim = with_rules(1, Rules { presence: false, ..Rules::default() });
    sim.h_locks();
    sim.start(0);
    sim.h_renews();
    sim.lose_the_registry();
    // A newcomer enters behind w, sends a heartbeat, and dies.
    let newcomer = ours(70, 1);
    sim.op(Op::Acquire(wanted(&newcomer, 70, sim.now)));
    sim.op(Op::Beat { client: client(70), waiters: vec![newcomer] });
    assert_eq!(sim.keys().queue.len(), 2);
    assert_eq!(sim.without_ttl(), [""; 0]);
    sim.h_releases();
    assert_eq!(sim.without_ttl(), [""; 0], "the token");
    // A Java thread still keeps its place for as long as it wants.
    sim.java_acquires();
    sim.op(Op::Beat { client: client(7), waiters: vec![] });
    assert_eq!(sim.without_ttl(), ["queue", "scores"]);
}

/// Fourteen waiters hung, and no other client was heard. Their own silence counted as one of the
/// server's, each of them was granted the lock for 2 s, and short waits of others restarted the
/// amnesty: 60 s.
#[test]
fn d10_ghosts_cost_one_turn_and_short_waits_do_not_spare_them_again() {
    for lonely in [false, true] {
        let mut sim = lab(1, Flaw::None);
        sim.h_locks();
        for number in 100..114 {
            sim.op(Op::Acquire(wanted(&ours(number, 1), number, T0)));
        }
        sim.h_holds_on(20_000);
        if lonely {
            // They are silent, and other clients wait for a second now and then.
            for number in 200..205 {
                let visitor = ours(number, 1);
                sim.op(Op::Acquire(wanted(&visitor, number, sim.now)));
                sim.h_holds_on(1_000);
                let request = crate::support::request(number);
                let kind = Kind::Fair;
                let (bury, shared_owner) = (false, false);
                sim.op(Op::Leave { kind, owner: visitor, request, bury, shared_owner });
                sim.h_holds_on(4_500);
            }
        }
        sim.h_releases();
        let released = sim.now;
        sim.start(0);
        while sim.holding_client() != Some(client(1)) {
            sim.pass_beating(500, &[0]);
            assert!(sim.now <= released + 3_000, "lonely waits before: {lonely}");
        }
    }
}

/// A client that tries gets the lock after the deadline of the dead, even if no other client was
/// heard meanwhile.
#[test]
fn d10_a_try_spares_nobody_who_was_silent_for_too_long() {
    let mut sim = lab(2, Flaw::None);
    sim.h_locks();
    sim.start(0);
    sim.start(1);
    sim.pass_beating(2_000, &[0, 1]);
    sim.h_releases();
    assert_eq!(sim.holding_client(), Some(client(1)), "it hangs");
    sim.pass(6_001);
    assert!(sim.t_gets_it());
}

/// Heartbeats a minute apart, which are allowed, met keys that lived for a minute: live waiters
/// fell out of them and were overtaken.
#[test]
fn d12_who_beats_seldom_outlives_no_record() {
    let rules = Rules { beat_ms: MINUTE, dead_ms: 3 * MINUTE, ..Rules::default() };
    for late in [0, 500, 59_000] {
        let mut sim = with_rules(3, rules.clone());
        sim.start(0);
        sim.tamper(|k| k.hold_expires = Some(T0 + DAY));
        sim.start(1);
        sim.start(2);
        let line = sim.keys().queue.clone();
        let all_stand = |body| matches!(body, Body::Beaten { queued, .. } if queued == [true]);
        for _ in 0..10 {
            sim.pass(MINUTE + late / 10);
            assert!(all_stand(sim.beat(2)), "{late}");
            sim.pass(late);
            assert!(all_stand(sim.beat(1)), "{late}");
            assert_eq!(sim.keys().beats.len(), 2);
            assert_eq!(sim.keys().queue, line);
            let (now, head) = (i64::try_from(sim.now).unwrap(), &sim.keys().queue[0]);
            assert!(sim.keys().scores[head] >= now + 180_000, "no Java client drops it");
        }
        sim.release(0);
        assert_eq!(sim.holding_client(), Some(client(2)));
    }
}

/// Somebody wrote order numbers that no waiter can have been given. Newcomers got the next one,
/// which no reply can express.
#[test]
fn d13_odd_order_numbers_are_none() {
    for odd in [TOKEN_LIMIT, u64::MAX] {
        let mut sim = lab(3, Flaw::None);
        sim.h_locks();
        sim.start(0);
        sim.start(1);
        sim.tamper(|k| {
            k.order.insert(ours(1, 1), odd);
            k.record.given = Some(odd);
        });
        let Body::Queued { order, .. } = sim.start(2) else { panic!("it waits") };
        assert!(order < TOKEN_LIMIT, "{order}");
        assert!(!sim.keys().order.contains_key(&ours(1, 1)));
        // It is told that it is not queued, and returns with its own number.
        sim.beat(0);
        sim.hear_all();
        assert_eq!(sim.keys().queue, [ours(1, 1), ours(2, 1), ours(3, 1)]);
        sim.h_releases();
        assert_eq!(sim.holding_client(), Some(client(1)));
    }
}

/// Members that somebody pushed into the list without writing a score: each gets a score when it is
/// met, and is removed when that has passed.
#[test]
fn d13_garbage_in_the_list_goes() {
    let mut lock = LockState::default();
    let ears = crate::support::Ears::default();
    let rules = Rules::default();
    let mut keys = lock.snapshot().clone();
    for text in ["", "garbage", "garbage", "00000000-0000-8000-8000-000000000000:1"] {
        keys.queue.push_back(OwnerId::parse(text.as_bytes()));
    }
    lock = LockState::from_snapshot(keys);
    let mut got = 0;
    for minute in 0..30 {
        let now = T0 + minute * 10 * MINUTE;
        let t = ours(60, 1 + minute);
        let op = Op::Acquire(Acquire { mode: Mode::Try, ..wanted(&t, minute, now) });
        let (answer, _) = lock.apply(now * 1_000, &op, &rules, &ears).unwrap();
        got += u64::from(matches!(answer.body, Body::Granted { .. }));
    }
    assert!(lock.snapshot().queue.is_empty(), "{:?}", lock.snapshot().queue);
    assert!(got >= 25, "{got} of 30 tries got the lock");
}
