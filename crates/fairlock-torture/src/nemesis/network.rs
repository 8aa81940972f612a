//! Network faults, played by the proxy between clients and server.

use super::{Kind, last};
use fairlock_testkit::proxy::{Counts, Proxy};
use fairlock_testkit::rng::Rng;
use fairlock_testkit::wait;
use std::time::Duration;

/// How long to wait until an armed fault affects something.
const MET_WITHIN: Duration = Duration::from_secs(3);

/// Slow enough to matter, and fast enough for heartbeats to arrive.
const BYTE_PAUSE: Duration = Duration::from_micros(20);

/// Plays the fault; `None` for a kind of another family.
pub(crate) fn play(kind: Kind, proxy: &Proxy, rng: &mut Rng) -> Option<bool> {
    let before = proxy.counts();
    let short = rng.between(200, 900);
    let more = |counted: fn(&Counts) -> u64| counted(&proxy.counts()) > counted(&before);
    let met = |counted: fn(&Counts) -> u64| until(|| counted(&proxy.counts()) > counted(&before));
    Some(match kind {
        Kind::RepliesDelayed => {
            proxy.delay_to_client(Duration::from_millis(rng.between(20, 150)));
            last(short);
            proxy.delay_to_client(Duration::ZERO);
            more(|counts| counts.replies_delayed)
        }
        Kind::RequestCut => {
            proxy.cut_request_at(rng.below(400) as usize);
            met(|counts| counts.requests_cut)
        }
        Kind::AllCut => {
            proxy.cut_all();
            met(|counts| counts.connections_cut)
        }
        Kind::ToServerLost => {
            proxy.black_hole_to_server(true);
            last(short);
            proxy.black_hole_to_server(false);
            more(|counts| counts.requests_black_holed)
        }
        Kind::ToClientLost => {
            proxy.black_hole_to_client(true);
            last(short);
            proxy.black_hole_to_client(false);
            more(|counts| counts.replies_black_holed)
        }
        Kind::PushesSwallowed => {
            proxy.swallow_pushes(true);
            last(short);
            proxy.swallow_pushes(false);
            more(|counts| counts.pushes_swallowed)
        }
        Kind::PushesDuplicated => {
            proxy.duplicate_pushes(3);
            last(short);
            proxy.duplicate_pushes(0);
            more(|counts| counts.pushes_duplicated)
        }
        Kind::PushesDelayed => {
            proxy.delay_pushes(Duration::from_millis(rng.between(20, 400)));
            last(short);
            proxy.delay_pushes(Duration::ZERO);
            more(|counts| counts.pushes_delayed)
        }
        Kind::ReplyLost => {
            proxy.cut_after_reply_lost(true);
            proxy.drop_replies(rng.between(1, 6) as u32);
            met(|counts| counts.replies_dropped)
        }
        Kind::ReplyLostInSilence => {
            proxy.cut_after_reply_lost(false);
            proxy.drop_replies(1);
            met(|counts| counts.replies_dropped)
        }
        Kind::ByteByByte => {
            proxy.byte_by_byte(Some(BYTE_PAUSE));
            last(short);
            proxy.byte_by_byte(None);
            more(|counts| counts.single_bytes)
        }
        Kind::Refused => {
            proxy.refuse(true);
            proxy.cut_all();
            last(short);
            proxy.refuse(false);
            more(|counts| counts.connections_refused)
        }
        Kind::Silenced => {
            let connections = proxy.counts().connections;
            proxy.silence_open();
            // A ping finds the dead connections; only then are there new ones.
            until(|| proxy.counts().connections > connections)
        }
        Kind::InboxesSilenced => {
            proxy.silence_inboxes();
            last(short);
            more(|counts| counts.replies_black_holed)
        }
        Kind::RequestsLate => {
            proxy.hold_requests(true);
            last(short);
            proxy.cut_clients();
            last(rng.between(50, 1_000));
            proxy.hold_requests(false);
            more(|counts| counts.requests_held)
        }
        Kind::RequestsReplayed => {
            let count = rng.between(1, 40);
            proxy.counts().scripts > count && {
                proxy.replay(count as usize);
                more(|counts| counts.requests_replayed)
            }
        }
        _ => return None,
    })
}

fn until(condition: impl FnMut() -> bool) -> bool {
    wait::holds(MET_WITHIN, condition)
}
