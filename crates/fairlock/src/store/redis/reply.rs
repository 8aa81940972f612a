//! Strict decoding: a reply or message that fits no form is an error, never a default.

use super::wire::Value;
use crate::base::clock::{Moment, ServerClock};
use crate::store::{Event, Events};
use fairlock_core::{
    Announced, Answer, Body, Fate, Grant, HeldBy, Inspection, LOOKED_AT_MAX, LatchSeen, Leadership,
    OwnerId, RequestId, Share, ShareHolder, SharesView, Token, WaiterView,
};
use std::sync::Arc;

/// Decodes the reply of a script.
pub(crate) fn answer(value: Value) -> Result<Answer, String> {
    decode(value).ok_or_else(|| {
        "the server's reply does not fit the protocol; a proxy may rewrite replies, or another \
         program answers at this address"
            .to_owned()
    })
}

fn decode(value: Value) -> Option<Answer> {
    let (text, rest) = match value {
        Value::BulkString(text) => (text, Vec::new()),
        Value::Array(items) => {
            let mut items = items.into_iter();
            let Value::BulkString(text) = items.next()? else { return None };
            (text, items.collect())
        }
        _ => return None,
    };
    let mut r = Reader { words: text.split(|byte| *byte == b' '), rest: rest.into_iter() };
    let now_ms = r.count()?;
    let (more, removed, other_limit) = r.more()?;
    let body = match r.words.next()? {
        b"granted" => {
            let (token, ttl_ms) = (r.token()?, r.count()?);
            match r.words.next() {
                None => Body::Granted { token, ttl_ms },
                Some(request) => {
                    let request = RequestId::parse(request).ok()?;
                    Body::GrantedBefore(Grant { request, token, ttl_ms })
                }
            }
        }
        b"queued" => {
            let (order, retry_ms, foreign) = (r.count()?, r.maybe_count()?, r.flag()?);
            Body::Queued { order, retry_ms, foreign, length: r.count()? }
        }
        b"busy" => Body::Busy { ttl_ms: r.maybe_count()? },
        b"taken" => Body::Taken { ttl_ms: r.maybe_count()?, foreign: r.flag()? },
        b"self" => Body::HeldBySelf { count: u32::try_from(r.count()?).ok()? },
        b"late" => Body::TooLate,
        b"buried" => Body::Buried,
        b"released" => Body::Released,
        b"held" => Body::StillHeld { count: u32::try_from(r.count()?).ok()? },
        b"stale" => Body::Stale,
        b"nothold" => Body::NotHeld { holder: r.maybe_owner()? },
        b"renewed" => Body::Renewed,
        b"left" => Body::Left,
        b"freed" => Body::Freed,
        b"nothing" => Body::Nothing,
        b"nudged" => Body::Nudged,
        b"forced" => Body::Forced { holder: r.maybe_owner()?, others: 0 },
        b"beat" => {
            let (retry_ms, foreign) = (r.maybe_count()?, r.flag()?);
            let held = match (r.words.next()?, r.words.next()?, r.words.next()?) {
                (b"-", b"-", b"-") => None,
                (request, token, ttl) => Some(Grant {
                    request: RequestId::parse(request).ok()?,
                    token: token_of(token)?,
                    ttl_ms: decimal(ttl)?,
                }),
            };
            let queued = r.words.by_ref().map(flag).collect::<Option<_>>()?;
            Body::Beaten { held, queued, retry_ms, foreign }
        }
        b"fates" => {
            let (retry_ms, foreign, mut fates) = (r.maybe_count()?, r.flag()?, Vec::new());
            while let Some(word) = r.words.next() {
                fates.push(match word {
                    b"0" => Fate::Unknown,
                    b"1" => Fate::Queued,
                    request => Fate::Granted(Grant {
                        request: RequestId::parse(request).ok()?,
                        token: r.token()?,
                        ttl_ms: r.count()?,
                    }),
                });
            }
            Body::Fates { fates, retry_ms, foreign }
        }
        b"ended" => {
            let others = u32::try_from(r.count()?).ok()?;
            Body::Forced { holder: r.maybe_owner()?, others }
        }
        b"announced" => Body::Announced,
        b"leader" => Body::Leader(Box::new(leadership(&mut r)?)),
        b"place" => Body::Place { ahead: r.maybe_count()? },
        b"inspected" => Body::Inspected(Box::new(inspection(&mut r)?)),
        b"latch" => Body::Latch(LatchSeen {
            done: r.flag()?,
            count: r.count()?,
            generation: r.maybe_count()?,
            opened: r.maybe_count()?,
        }),
        b"shares" => Body::Inspected(Box::new(shares(&mut r)?)),
        _ => return None,
    };
    r.is_read().then_some(Answer { now_ms, more, removed, other_limit, body })
}

fn inspection<'a>(r: &mut Reader<'a, impl Iterator<Item = &'a [u8]>>) -> Option<Inspection> {
    let (count, ttl_ms) = (r.maybe_count()?, r.maybe_count()?);
    // An operator may have written 0, which is not a token.
    let token = r.maybe_count()?.and_then(Token::new);
    let queue_len = r.count()?;
    let holder = match count {
        Some(count) => Some(HeldBy { owner: r.maybe_owner()??, count }),
        None => None,
    };
    let mut queue = Vec::new();
    while let Some(owner) = r.maybe_owner()? {
        if queue.len() as u64 == queue_len {
            return None;
        }
        queue.push(WaiterView { owner, beat_age_ms: r.maybe_count()?, order: r.maybe_count()? });
    }
    Some(Inspection { holder, ttl_ms, token, queue_len, queue, shares: None })
}

/// The leader and its announcement.
fn leadership<'a>(r: &mut Reader<'a, impl Iterator<Item = &'a [u8]>>) -> Option<Leadership> {
    let (ttl_ms, token) = (r.maybe_count()?, r.maybe_count()?.and_then(Token::new));
    let (change, since_ms) = (r.maybe_count()?, r.maybe_count()?);
    let holder = r.maybe_owner()?;
    let announced = match (change, since_ms) {
        (Some(change), Some(since_ms)) => Some(Announced { change, since_ms, value: r.bytes()? }),
        (None, None) => None,
        _ => return None,
    };
    (holder.is_some() || (announced.is_none() && token.is_none() && ttl_ms.is_none()))
        .then_some(Leadership { holder, token, ttl_ms, announced })
}

/// A lock that several may hold at once.
fn shares<'a>(r: &mut Reader<'a, impl Iterator<Item = &'a [u8]>>) -> Option<Inspection> {
    let token = r.maybe_count()?.and_then(Token::new);
    let (holding, used) = (r.count()?, r.count()?);
    let limits = match (r.maybe_count()?, r.maybe_count()?) {
        (Some(least), Some(most)) => Some((u32::try_from(least).ok()?, u32::try_from(most).ok()?)),
        (None, None) => None,
        _ => return None,
    };
    let (queue_len, listed) = (r.count()?, r.count()?);
    let (strange_count, strange_ttl_ms) = (r.maybe_count()?, r.maybe_count()?);
    if listed > holding {
        return None;
    }
    let mut seen = SharesView { holding, used, limits, ..SharesView::default() };
    for _ in 0..listed {
        seen.holders.push(ShareHolder {
            owner: r.maybe_owner()??,
            count: u32::try_from(r.count()?).ok()?,
            share: share_of(r.words.next()?)?,
            token: r.token()?,
            ttl_ms: r.count()?,
        });
    }
    let mut queue = Vec::new();
    while let Some(age) = r.words.next() {
        if queue.len() as u64 == queue_len {
            return None;
        }
        let beat_age_ms = if age == b"-" { None } else { Some(decimal(age)?) };
        let order = r.maybe_count()?;
        seen.wants.push(share_of(r.words.next()?)?);
        queue.push(WaiterView { owner: r.maybe_owner()??, beat_age_ms, order });
    }
    let (holder, ttl_ms) = match (seen.holders.first(), strange_count) {
        (Some(first), None) => {
            let holder = HeldBy { owner: first.owner.clone(), count: first.count.into() };
            (Some(holder), Some(first.ttl_ms))
        }
        (None, Some(count)) => {
            let field = r.maybe_owner()??.to_bytes();
            let writer = field.strip_suffix(b":write");
            seen.stranger_reads = writer.is_none();
            let owner = OwnerId::parse(writer.unwrap_or(&field));
            (Some(HeldBy { owner, count }), strange_ttl_ms)
        }
        (None, None) => (None, None),
        _ => return None,
    };
    Some(Inspection { holder, ttl_ms, token, queue_len, queue, shares: Some(Box::new(seen)) })
}

fn share_of(word: &[u8]) -> Option<Share> {
    if word == b"r" {
        return Some(Share::Read);
    }
    if word == b"w" {
        return Some(Share::Whole);
    }
    let mut parts = word.split(|byte| *byte == b'/');
    let mut part = || u32::try_from(decimal(parts.next()?)?).ok();
    let share = Share::Permits { n: part()?, limit: part()? };
    parts.next().is_none().then_some(share)
}

/// A reply: words, and values of any bytes.
struct Reader<'a, W: Iterator<Item = &'a [u8]>> {
    words: W,
    rest: std::vec::IntoIter<Value>,
}

impl<'a, W: Iterator<Item = &'a [u8]>> Reader<'a, W> {
    fn count(&mut self) -> Option<u64> {
        decimal(self.words.next()?)
    }

    fn maybe_count(&mut self) -> Option<Option<u64>> {
        match self.words.next()? {
            b"-" => Some(None),
            word => decimal(word).map(Some),
        }
    }

    fn flag(&mut self) -> Option<bool> {
        flag(self.words.next()?)
    }

    /// Whether there are more, how many dead waiters were removed, and whether permits are held under another limit.
    fn more(&mut self) -> Option<(bool, u32, bool)> {
        const OTHER_LIMIT: u32 = 256;
        let number = u32::try_from(self.count()?).ok()?;
        let (number, other_limit) = (number % OTHER_LIMIT, number / OTHER_LIMIT);
        let (more, removed) = (number % 2 == 1, number / 2);
        (removed <= LOOKED_AT_MAX && other_limit <= 1).then_some((more, removed, other_limit == 1))
    }

    fn token(&mut self) -> Option<Token> {
        token_of(self.words.next()?)
    }

    fn maybe_owner(&mut self) -> Option<Option<OwnerId>> {
        match self.rest.next() {
            None => Some(None),
            Some(Value::BulkString(bytes)) => Some(Some(OwnerId::parse(&bytes))),
            Some(_) => None,
        }
    }

    /// A value that somebody has announced.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        match self.rest.next() {
            Some(Value::BulkString(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Whether nothing is left.
    fn is_read(&mut self) -> bool {
        self.words.next().is_none() && self.rest.next().is_none()
    }
}

fn flag(word: &[u8]) -> Option<bool> {
    match word {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

/// A whole number in plain digits, at most 16 of them.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0_u64, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
    })
}

fn token_of(text: &[u8]) -> Option<Token> {
    Token::new(decimal(text)?)
}

/// Decodes an inbox message: `g1 <request> <token> <server ms> <ttl ms>`.
pub(crate) fn grant_message(payload: &[u8]) -> Option<(Grant, u64)> {
    /// The longest message of this form.
    const MAX_BYTES: usize = 3 + 33 + 17 + 17 + 16;
    if payload.len() > MAX_BYTES {
        return None;
    }
    let mut parts = payload.split(|b| *b == b' ');
    if parts.next()? != b"g1" {
        return None;
    }
    let request = RequestId::parse(parts.next()?).ok()?;
    let token = token_of(parts.next()?)?;
    let at_ms = decimal(parts.next()?)?;
    let ttl_ms = decimal(parts.next()?)?;
    if parts.next().is_some() {
        return None;
    }
    Some((Grant { request, token, ttl_ms }, at_ms))
}

/// Decodes the inbox message of a cohort: `g2 <server ms> <request> <token> <ttl ms>...`.
pub(crate) fn cohort_message(payload: &[u8]) -> Option<(Vec<Grant>, u64)> {
    /// The most grants of one message: all of a script.
    const GRANTS_MAX: usize = 128;
    /// The longest message of this form.
    const MAX_BYTES: usize = 2 + 17 + GRANTS_MAX * (33 + 17 + 17);
    if payload.len() > MAX_BYTES {
        return None;
    }
    let mut parts = payload.split(|b| *b == b' ');
    if parts.next()? != b"g2" {
        return None;
    }
    let at_ms = decimal(parts.next()?)?;
    let mut grants = Vec::new();
    while let Some(request) = parts.next() {
        let request = RequestId::parse(request).ok()?;
        let token = token_of(parts.next()?)?;
        grants.push(Grant { request, token, ttl_ms: decimal(parts.next()?)? });
    }
    (2..=GRANTS_MAX).contains(&grants.len()).then_some((grants, at_ms))
}

/// Decodes the inbox message `f1 <owner> <token>`: somebody took this hold away by force.
pub(crate) fn forced_message(payload: &[u8]) -> Option<(OwnerId, Token)> {
    /// The longest message of this form.
    const MAX_BYTES: usize = 3 + 53 + 16;
    if payload.len() > MAX_BYTES {
        return None;
    }
    let mut parts = payload.split(|b| *b == b' ');
    if parts.next()? != b"f1" {
        return None;
    }
    let owner = OwnerId::parse(parts.next()?);
    let token = token_of(parts.next()?)?;
    if owner.client().is_none() || parts.next().is_some() {
        return None;
    }
    Some((owner, token))
}

/// Decodes the inbox message `w1 <request>`: the lock is left to foreign waiters for a moment.
pub(crate) fn guests_message(payload: &[u8]) -> Option<RequestId> {
    RequestId::parse(payload.strip_prefix(b"w1 ")?).ok()
}

/// Whether this is a message that somebody leads: `l1 <token> <server ms> <owner>`. It is only a reason to look.
pub(crate) fn is_leader_message(payload: &[u8]) -> bool {
    /// The longest message of this form.
    const MAX_BYTES: usize = 3 + 17 + 17 + 52;
    let mut parts = payload.split(|b| *b == b' ');
    payload.len() <= MAX_BYTES
        && parts.next() == Some(b"l1")
        && parts.next().and_then(token_of).is_some()
        && parts.next().and_then(decimal).is_some()
        && parts.next().is_some_and(|owner| OwnerId::parse(owner).is_ours())
        && parts.next().is_none()
}

/// Decodes a message in the inbox. `clock` is that of the server it came from, if there are
/// several.
pub(crate) fn inbox_message(
    payload: &[u8],
    arrived: Moment,
    clock: impl FnOnce() -> Option<Arc<ServerClock>>,
    events: &Events,
) {
    match InboxMessage::parse(payload) {
        Some(InboxMessage::Grant(grant, at_ms)) => {
            events(Event::Granted { grant, at_ms, arrived, clock: clock() });
        }
        Some(InboxMessage::Cohort(grants, at_ms)) => {
            let clock = clock();
            for grant in grants {
                events(Event::Granted { grant, at_ms, arrived, clock: clock.clone() });
            }
        }
        Some(InboxMessage::Guests(request)) => events(Event::LeftToGuests { request }),
        Some(InboxMessage::Forced(owner, token)) => events(Event::Forced { owner, token }),
        None => events(Event::Invalid),
    }
}

/// A message in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InboxMessage {
    /// See [`grant_message`].
    Grant(Grant, u64),
    /// See [`cohort_message`].
    Cohort(Vec<Grant>, u64),
    /// See [`guests_message`].
    Guests(RequestId),
    /// See [`forced_message`].
    Forced(OwnerId, Token),
}

impl InboxMessage {
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        if let Some((grant, at_ms)) = grant_message(payload) {
            return Some(Self::Grant(grant, at_ms));
        }
        if let Some((grants, at_ms)) = cohort_message(payload) {
            return Some(Self::Cohort(grants, at_ms));
        }
        if let Some(request) = guests_message(payload) {
            return Some(Self::Guests(request));
        }
        forced_message(payload).map(|(owner, token)| Self::Forced(owner, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_grant_is_read_and_odd_replies_are_not() {
        let good = ["5", "0", "granted", "7", "30"];
        let text = |words: &[&str]| bulk(&words.join(" "));
        let read = answer(text(&good)).unwrap();
        assert_eq!(read.now_ms, 5);
        assert_eq!(read.body, Body::Granted { token: Token::new(7).unwrap(), ttl_ms: 30 });
        let read = answer(bulk("5 129 granted 7 30")).unwrap();
        assert!(read.more && read.removed == 64);
        let mut odd = vec![Value::Nil, Value::Int(1), bulk("5 130 granted 7 30"), bulk("")];
        for at in 0..good.len() {
            for wrong in ["-", "-1", "x", "", "99007199254740992"] {
                let mut words = good;
                words[at] = wrong;
                odd.push(text(&words));
            }
            odd.push(text(&good[..at]));
        }
        odd.push(text(&[&good[..], &["0"]].concat()));
        odd.push(Value::Array(vec![]));
        odd.push(Value::Array(vec![text(&good), bulk("x")]));
        odd.push(Value::Array(good.map(bulk).to_vec()));
        for value in odd {
            assert!(answer(value.clone()).is_err(), "{value:?}");
        }
    }

    #[test]
    fn what_may_be_any_bytes_follows_the_words() {
        let holder = |items: &[&str]| {
            let items = items.iter().map(|item| bulk(item)).collect();
            answer(Value::Array(items)).map(|answer| answer.body)
        };
        let other = OwnerId::parse(b"- 1 -");
        assert_eq!(
            holder(&["5 0 nothold", "- 1 -"]),
            Ok(Body::NotHeld { holder: Some(other.clone()) })
        );
        assert_eq!(holder(&["5 0 nothold"]), Ok(Body::NotHeld { holder: None }));
        assert!(holder(&["5 0 nothold", "a", "b"]).is_err());
        let Ok(Body::Inspected(seen)) = holder(&["5 0 inspected - - 0 2 7 -", "- 1 -"]) else {
            panic!("it fits")
        };
        assert_eq!((seen.holder, seen.token, seen.queue_len), (None, None, 2));
        let waiter = WaiterView { owner: other, beat_age_ms: Some(7), order: None };
        assert_eq!(seen.queue, [waiter]);
        for odd in ["1 - 0 0", "- - 0 0 7 -", "- - 0 1 7", "1 - 0 1", "- - 0 0"] {
            let text = format!("5 0 inspected {odd}");
            let all = [&[text.as_str()][..], &["a"; 2]].concat();
            let few = if odd == "1 - 0 0" { &all[..1] } else { &all[..] };
            assert!(holder(few).is_err(), "{odd}");
        }
    }

    #[test]
    fn replies_about_shares() {
        let request = "0123456789abcdef0123456789abcdef";
        let read = answer(bulk(&format!("5 256 fates 7 1 1 {request} 9 30 0"))).unwrap();
        assert!(read.other_limit && !read.more && read.removed == 0);
        let Body::Fates { fates, retry_ms, foreign } = read.body else { panic!("fates") };
        assert!(fates[0] == Fate::Queued && fates[2] == Fate::Unknown && foreign);
        assert!(
            matches!(&fates[1], Fate::Granted(grant) if grant.ttl_ms == 30) && retry_ms == Some(7)
        );
        for odd in ["fates 7", "fates 7 0 2", "fates - 0 1 x", "ended", "ended -", "ended 1 1"] {
            assert!(answer(bulk(&format!("5 0 {odd}"))).is_err(), "{odd}");
        }
        for more in ["512", "386", "130"] {
            assert!(answer(bulk(&format!("5 {more} nudged"))).is_err(), "{more}");
        }
        let looks = |items: &[&str]| {
            let items = items.iter().map(|item| bulk(item)).collect();
            answer(Value::Array(items)).map(|answer| answer.body)
        };
        let text = "5 0 shares 9 2 3 5 8 1 1 - - 1 2/5 9 30 7 - 1/8";
        let Ok(Body::Inspected(seen)) = looks(&[text, "a", "b"]) else { panic!("it fits") };
        let shares = seen.shares.unwrap();
        assert_eq!((shares.holding, shares.used, shares.limits), (2, 3, Some((5, 8))));
        assert_eq!(shares.holders[0].share, Share::Permits { n: 2, limit: 5 });
        assert_eq!((shares.wants.len(), seen.queue_len, seen.ttl_ms), (1, 1, Some(30)));
        let Ok(Body::Inspected(seen)) = looks(&["5 0 shares - 1 0 - - 0 0 4 -", "j"]) else {
            panic!("it fits")
        };
        assert_eq!(seen.holder.map(|it| it.count), Some(4));
        for odd in [
            &[text, "a"][..],
            &[text, "a", "b", "c"],
            &["5 0 shares 9 0 3 - - 0 1 - - 1 r 9 30", "a"],
        ] {
            assert!(looks(odd).is_err(), "{odd:?}");
        }
        for odd in ["2/", "/2", "2/5/8", "x", "-1/5"] {
            let text = format!("5 0 shares 9 1 3 - - 0 1 - - 1 {odd} 9 30");
            assert!(looks(&[&text, "a"]).is_err(), "{odd}");
        }
    }

    #[test]
    fn forged_messages_of_a_cohort_are_nothing() {
        let grant = " 0123456789abcdef0123456789abcdef 5 6000";
        let (grants, at_ms) =
            cohort_message(format!("g2 1000{}", grant.repeat(128)).as_bytes()).unwrap();
        assert_eq!((grants.len(), at_ms), (128, 1_000));
        for text in [
            format!("g2 1000{grant}"),
            format!("g2 1000{}", grant.repeat(129)),
            format!("g2 1000{grant}{grant} 1"),
            format!("g2 1000{grant}{}", grant.replace(" 5 ", " 0 ")),
            format!("g2 1000{grant}{}", grant.to_uppercase()),
            format!("g2{grant}{grant}"),
            format!("g1 1000{grant}{grant}"),
            "g2 1000".into(),
            "g2 ".repeat(10_000),
        ] {
            assert_eq!(cohort_message(text.as_bytes()), None, "{text:.60}");
        }
    }

    #[test]
    fn each_of_a_cohort_is_told() {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let events: Events = Arc::new(move |event| match event {
            Event::Granted { grant, at_ms, .. } => seen.lock().unwrap().push((grant.ttl_ms, at_ms)),
            _ => panic!("a grant"),
        });
        let id = "0123456789abcdef0123456789abcdef";
        let text = format!("g2 1000 {id} 5 6000 {id} 5 7000 {id} 5 8000");
        inbox_message(text.as_bytes(), Moment::now(), || None, &events);
        assert_eq!(*told.lock().unwrap(), [(6_000, 1_000), (7_000, 1_000), (8_000, 1_000)]);
    }

    #[test]
    fn forged_messages_of_force_are_nothing() {
        let owner = "01234567-89ab-8def-8123-456789abcdef:7";
        let said = forced_message(format!("f1 {owner} 5").as_bytes());
        assert_eq!(said, Some((OwnerId::parse(owner.as_bytes()), Token::new(5).unwrap())));
        for text in [
            format!("f1 {owner} 0"),
            format!("f1 {owner} 5 1"),
            format!("f1 {owner}"),
            format!("f2 {owner} 5"),
            format!("f1 {} 5", owner.to_uppercase()),
            "f1 somebody 5".into(),
            format!("f1 {owner} 9007199254740992"),
            "f1 ".repeat(10_000),
        ] {
            assert_eq!(forced_message(text.as_bytes()), None, "{text:.60}");
        }
    }

    #[test]
    fn forged_messages_about_guests_are_nothing() {
        let id = "0123456789abcdef0123456789abcdef";
        let said = guests_message(format!("w1 {id}").as_bytes());
        assert_eq!(said, RequestId::parse(id.as_bytes()).ok());
        for text in [
            format!("w1 {id} "),
            format!("w1 {id}0"),
            format!("w1  {id}"),
            format!("w2 {id}"),
            format!("w1 {}", id.to_uppercase()),
            "w1 somebody".into(),
            "w1 ".into(),
            "w1 ".repeat(10_000),
        ] {
            assert_eq!(guests_message(text.as_bytes()), None, "{text:.60}");
        }
    }

    #[test]
    fn replies_about_leaders() {
        let looks = |items: &[&str]| {
            let items = items.iter().map(|item| bulk(item)).collect();
            answer(Value::Array(items)).map(|answer| answer.body)
        };
        let Ok(Body::Leader(seen)) = looks(&["5 0 leader 30 9 2 4", "a", ""]) else {
            panic!("it fits")
        };
        assert_eq!((seen.ttl_ms, seen.token), (Some(30), Token::new(9)));
        let announced = Announced { change: 2, since_ms: 4, value: Vec::new() };
        assert_eq!(seen.announced, Some(announced));
        let Ok(Body::Leader(seen)) = looks(&["5 0 leader - 9 - -", "a"]) else { panic!("it fits") };
        assert_eq!((seen.holder, seen.announced), (Some(OwnerId::parse(b"a")), None));
        assert!(answer(bulk("5 0 leader - - - -")).is_ok());
        for odd in [
            &["5 0 leader - - - -", "a", "b"][..],
            &["5 0 leader 30 9 2 4", "a"],
            &["5 0 leader 30 9 2 -", "a", "b"],
            &["5 0 leader 30 9 2", "a", "b"],
            &["5 0 leader 30 9 - -"],
            &["5 0 announced 1"],
        ] {
            assert!(looks(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn forged_messages_of_leaders_are_nothing() {
        let owner = "01234567-89ab-8def-8123-456789abcdef:7";
        assert!(is_leader_message(format!("l1 5 1000 {owner}").as_bytes()));
        for text in [
            String::new(),
            "0".into(),
            format!("l2 5 1000 {owner}"),
            format!("l1 0 1000 {owner}"),
            format!("l1 5 x {owner}"),
            format!("l1 5 1000 {owner} 1"),
            "l1 5 1000 somebody".into(),
            "l1 5 1000".into(),
            "l1 ".repeat(10_000),
        ] {
            assert!(!is_leader_message(text.as_bytes()), "{text:.60}");
        }
    }

    #[test]
    fn forged_messages_are_nothing() {
        let id = "0123456789abcdef0123456789abcdef";
        assert!(grant_message(format!("g1 {id} 5 1000 6000").as_bytes()).is_some());
        for text in [
            String::new(),
            "0".into(),
            format!("g2 {id} 5 1000 6000"),
            format!("g1 {id} 0 1000 6000"),
            format!("g1 {id} 9007199254740992 1000 6000"),
            format!("g1 {id} 5 1000"),
            format!("g1 {id} 5 1000 6000 1"),
            format!("g1 {id} 5 1000 -6"),
            format!("g1 {} 5 1000 6000", id.to_uppercase()),
            format!("g1 {id} 5 1000 99999999999999999999"),
            "g1 ".repeat(10_000),
        ] {
            assert_eq!(grant_message(text.as_bytes()), None, "{text:.60}");
        }
    }
}
