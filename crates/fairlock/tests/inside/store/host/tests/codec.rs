use super::super::codec::{decode, encode};
use super::fixture::{client, name, owner, request};
use fairlock_core::{
    ClientId, LockName, OwnerId, SimpleValue, Snapshot, SnapshotRecord, SnapshotWaiter, Token,
    Watch,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

fn bytes(name: &LockName, snapshot: &Snapshot) -> Vec<u8> {
    let mut out = vec![1, 2, 3];
    encode(name, snapshot, None, &mut out);
    out
}

fn any_owner() -> impl Strategy<Value = OwnerId> {
    prop_oneof![
        (any::<u128>(), 1..=fairlock_core::MAX_OWNER_NUMBER).prop_map(|(bits, number)| {
            // Few clients, so that several owners share one.
            OwnerId::ours(ClientId::from_random((bits % 5) << 96), number).unwrap()
        }),
        (0..3_u64).prop_map(owner),
        vec(any::<u8>(), 0..60).prop_map(|bytes| OwnerId::parse(&bytes)),
    ]
}

fn any_value() -> impl Strategy<Value = SimpleValue> {
    let ours = (any_owner(), any::<u128>(), 1..(1_u64 << 53)).prop_filter_map(
        "ours only",
        |(owner, bits, token)| {
            let request = fairlock_core::RequestId::from_random(bits);
            let token = Token::new(token)?;
            owner.is_ours().then_some(SimpleValue::Ours { owner, request, token })
        },
    );
    prop_oneof![ours, vec(any::<u8>(), 0..300).prop_map(|bytes| SimpleValue::parse(&bytes))]
}

fn any_request() -> impl Strategy<Value = fairlock_core::RequestId> {
    any::<u128>().prop_map(fairlock_core::RequestId::from_random)
}

fn any_record() -> impl Strategy<Value = SnapshotRecord> {
    let watch = (any_owner(), any::<i64>(), any::<u64>(), any::<u64>())
        .prop_map(|(id, score, since, pinged)| Watch { id, score, since, pinged });
    let numbers = vec(option::of(any::<u64>()), 5);
    (
        option::of((any::<u64>(), any_request())),
        option::of(any::<(u64, u64)>()),
        option::of(watch),
        numbers,
    )
        .prop_map(|(grant, change, watch, n)| SnapshotRecord {
            grant,
            change,
            amnesty: n[0],
            silence: n[1],
            watch,
            gather: n[2],
            guest: None,
            removed: n[3],
            given: n[4],
        })
}

fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let waiter = (any_request(), any::<u64>(), any::<bool>())
        .prop_map(|(request, lease_ms, sure)| SnapshotWaiter { request, lease_ms, sure });
    let beats = btree_map((0..9_u64).prop_map(client), any::<u64>(), 0..5);
    let maps = (
        btree_map(any_owner(), any::<i64>(), 0..3),
        vec(any_owner(), 0..8),
        btree_map(any_owner(), any::<i64>(), 0..8),
        btree_map(any_owner(), any::<u64>(), 0..8),
        btree_map(any_owner(), waiter, 0..8),
        beats,
        btree_map(any_request(), any::<u64>(), 0..3),
    );
    (maps, vec(option::of(any::<u64>()), 9), option::of(any_value()), any_record()).prop_map(
        |((hold, queue, scores, order, waiters, beats, buried), n, value, record)| Snapshot {
            hold,
            hold_expires: n[0],
            value,
            value_expires: n[1],
            token: n[2],
            token_expires: n[3],
            queue: queue.into(),
            queue_expires: n[4],
            scores,
            scores_expires: n[5],
            order,
            order_expires: n[6],
            waiters,
            record,
            state_expires: n[7],
            beats,
            beats_expires: n[8],
            buried,
        },
    )
}

proptest! {
    /// Consistent or not, ours or foreign: every state is read as it was written.
    #[test]
    fn every_state_is_read_as_it_was_written(snapshot in any_snapshot()) {
        let job = name("job");
        let written = bytes(&job, &snapshot);
        prop_assert_eq!(decode(&job, &written), Ok(snapshot.clone()));
        prop_assert_eq!(bytes(&job, &decode(&job, &written).unwrap()), written);
    }

    /// A flipped bit, a missing or extra byte and another lock's row are all noticed, and nothing
    /// panics.
    #[test]
    fn damage_is_noticed(snapshot in any_snapshot(), at in any::<prop::sample::Index>(), bit in 0..8) {
        let job = name("job");
        let written = bytes(&job, &snapshot);
        let mut flipped = written.clone();
        flipped[at.index(written.len())] ^= 1_u8 << bit;
        prop_assert!(decode(&job, &flipped).is_err());
        prop_assert!(decode(&job, &written[..at.index(written.len())]).is_err());
        prop_assert!(decode(&job, &[&written[..], &[0]].concat()).is_err());
        prop_assert!(decode(&name("jobs"), &written).is_err());
    }

    /// A body with a correct checksum that is not a state: what a bug could write.
    #[test]
    fn a_body_that_is_none_is_refused_or_is_the_one_form_of_a_state(
        body in vec(prop_oneof![any::<u8>(), 0..4_u8], 0..80),
    ) {
        let job = name("job");
        let mut forged = vec![1, 0, 0, 0, 0];
        forged.extend(&body);
        let sum = super::super::codec::checksum(&job, &body);
        forged[1..5].copy_from_slice(&sum.to_le_bytes());
        if let Ok(snapshot) = decode(&job, &forged) {
            prop_assert_eq!(decode(&job, &bytes(&job, &snapshot)), Ok(snapshot));
        }
    }
}

/// The length of an empty value was read, and then read again as its content.
#[test]
fn an_empty_foreign_value_is_read_as_it_was_written() {
    let value = Some(SimpleValue::parse(b""));
    let snapshot = Snapshot { value, ..Snapshot::default() };
    assert_eq!(decode(&name("job"), &bytes(&name("job"), &snapshot)), Ok(snapshot));
}

/// The rows determine the file's size; the size of a waiter limits how many fit.
#[test]
fn rows_are_small() {
    let job = name("job");
    let mut s = Snapshot {
        token: Some(1_760_000_000_000_000),
        token_expires: Some(1_760_600_000_000),
        ..Snapshot::default()
    };
    let idle = bytes(&job, &s).len();
    s.hold.insert(owner(1), 1);
    s.hold_expires = Some(1_760_000_030_000);
    let held = bytes(&job, &s).len();
    for waiter in 1_000..2_000 {
        s.queue.push_back(owner(waiter));
        s.scores.insert(owner(waiter), 1_760_000_300_000);
        s.order.insert(owner(waiter), 1_760_000_000_000_000 + waiter);
        let entry = SnapshotWaiter { request: request(waiter), lease_ms: 30_000, sure: false };
        s.waiters.insert(owner(waiter), entry);
        s.beats.insert(client(waiter), 1_760_000_000_000);
    }
    let waiter = (bytes(&job, &s).len() - held) / 1_000;
    println!("measured: idle {idle} bytes, held {held}, each waiter {waiter}");
    assert!(idle <= 30 && held <= 70 && waiter <= 90, "{idle}, {held}, {waiter}");
}
