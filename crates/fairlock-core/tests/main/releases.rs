//! Releases that the next server may have to be told of.

use fairlock_core::client::RecentReleases;
use fairlock_core::{LockName, Op};
use std::time::Duration;

const OLD: Duration = RecentReleases::KEPT.saturating_add(Duration::from_millis(1));

fn name(name: impl ToString) -> LockName {
    LockName::new(name.to_string().as_bytes()).expect("a name")
}

fn all(_: &LockName) -> bool {
    true
}

#[test]
fn they_are_bounded() {
    let mut recent = RecentReleases::default();
    for n in 0..RecentReleases::KEPT_MAX + 5 {
        let now = if n < 12 { Duration::ZERO } else { OLD };
        recent.note(now, &name(n), &Op::Nudge, true);
        if n == 11 {
            // Kept for the next connection, so that only their number drops them.
            recent.connection_lost(now, all);
        }
    }
    let told = recent.connected(all);
    assert_eq!((told.len(), &told[0].0), (RecentReleases::KEPT_MAX, &name(5)));
    recent.connection_lost(OLD, all);
    assert_eq!(recent.connected(all)[0].0, name(12), "the others were told, and are old");
}

/// However long there is no server to tell.
#[test]
fn what_ends_without_a_connection_waits_for_the_next() {
    let mut recent = RecentReleases::default();
    recent.connection_lost(Duration::ZERO, all);
    recent.note(OLD, &name("one"), &Op::Nudge, false);
    recent.note(2 * OLD, &name("two"), &Op::Nudge, false);
    assert_eq!(recent.connected(all).len(), 2);
    recent.note(4 * OLD, &name("three"), &Op::Nudge, true);
    assert_eq!(recent.connected(all).len(), 1, "the others were told, and are old");
}

/// D14: two nodes of a Cluster are lost, and one comes back. What was noted for the other one
/// was forgotten at the next release, and the other one was never told.
#[test]
fn d14_the_return_of_one_node_forgets_nothing_of_another() {
    let mut recent = RecentReleases::default();
    let of = |node: char| move |name: &LockName| name.as_bytes().starts_with(&[node as u8]);
    let mut now = Duration::ZERO;
    recent.note(now, &name("a1"), &Op::Nudge, true);
    recent.note(now, &name("b1"), &Op::Nudge, true);
    recent.connection_lost(now, of('a'));
    recent.connection_lost(now, of('b'));
    recent.note(now, &name("b2"), &Op::Nudge, false);
    now += OLD;
    assert_eq!(recent.connected(of('a')).len(), 1);
    recent.note(now, &name("a2"), &Op::Nudge, true);
    recent.note(now, &name("a3"), &Op::Nudge, true);
    // It is lost again, according to another look at the slot map.
    recent.connection_lost(now, of('b'));
    let told: Vec<_> = recent.connected(of('b')).into_iter().map(|(name, _)| name).collect();
    assert_eq!(told, [name("b1"), name("b2")]);
    now += OLD;
    recent.note(now, &name("b3"), &Op::Nudge, true);
    assert_eq!(recent.connected(all).len(), 1, "all others were told, and are old");
}
