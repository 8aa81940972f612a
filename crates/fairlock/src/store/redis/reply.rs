//! Strict decoding: a reply or message that fits no form is an error, never a default.

use crate::base::clock::{Moment, ServerClock};
use crate::store::Event;
use fairlock_core::{
    Answer, Body, Grant, HeldBy, Inspection, LOOKED_AT_MAX, OwnerId, RequestId, Token, WaiterView,
};
use redis::Value;
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
    let Value::Array(items) = value else { return None };
    let mut r = Reader(items.into_iter());
    let now_ms = r.count()?;
    let (more, removed) = r.more()?;
    let tag = r.bytes()?;
    let body = match tag.as_slice() {
        b"granted" => Body::Granted { token: r.token()?, ttl_ms: r.count()? },
        b"queued" => {
            let (order, retry_ms, foreign) = (r.decimal()?, r.maybe_count()?, r.flag()?);
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
        b"forced" => Body::Forced { holder: r.maybe_owner()? },
        b"beat" => {
            let retry_ms = r.maybe_count()?;
            let foreign = r.flag()?;
            let held = match (r.value()?, r.value()?, r.value()?) {
                (Value::Nil, Value::Nil, Value::Nil) => None,
                (Value::BulkString(request), Value::BulkString(token), Value::Int(ttl)) => {
                    Some(Grant {
                        request: RequestId::parse(&request).ok()?,
                        token: token_of(&token)?,
                        ttl_ms: u64::try_from(ttl).ok()?,
                    })
                }
                _ => return None,
            };
            let mut queued = Vec::new();
            for item in r.0.by_ref() {
                queued.push(flag(&item)?);
            }
            Body::Beaten { held, queued, retry_ms, foreign }
        }
        b"place" => Body::Place { ahead: r.maybe_count()? },
        b"inspected" => Body::Inspected(inspection(&mut r)?),
        _ => return None,
    };
    r.0.next().is_none().then_some(Answer { now_ms, more, removed, body })
}

fn inspection(r: &mut Reader) -> Option<Inspection> {
    let owner = r.maybe_owner()?;
    let count = r.maybe_count()?;
    let ttl_ms = r.maybe_count()?;
    let token = match r.value()? {
        Value::Nil => None,
        // An operator may have written 0, which is not a token.
        Value::BulkString(text) => token_of(&text),
        _ => return None,
    };
    let queue_len = r.count()?;
    let Value::Array(listed) = r.value()? else { return None };
    let mut queue = Vec::with_capacity(listed.len());
    for waiter in listed {
        let Value::Array(fields) = waiter else { return None };
        let mut f = Reader(fields.into_iter());
        let owner = OwnerId::parse(&f.bytes()?);
        let (beat_age_ms, order) = (f.maybe_count()?, f.maybe_decimal()?);
        if f.0.next().is_some() || queue.len() as u64 == queue_len {
            return None;
        }
        queue.push(WaiterView { owner, beat_age_ms, order });
    }
    let holder = owner.map(|owner| HeldBy { owner, count: count.unwrap_or(0) });
    Some(Inspection { holder, ttl_ms, token, queue_len, queue })
}

struct Reader(std::vec::IntoIter<Value>);

impl Reader {
    fn value(&mut self) -> Option<Value> {
        self.0.next()
    }

    fn count(&mut self) -> Option<u64> {
        match self.value()? {
            Value::Int(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    fn maybe_count(&mut self) -> Option<Option<u64>> {
        match self.value()? {
            Value::Nil => Some(None),
            Value::Int(n) => u64::try_from(n).ok().map(Some),
            _ => None,
        }
    }

    fn flag(&mut self) -> Option<bool> {
        flag(&self.value()?)
    }

    /// Whether there are more, and how many dead waiters were removed.
    fn more(&mut self) -> Option<(bool, u32)> {
        let number = u32::try_from(self.count()?).ok()?;
        let (more, removed) = (number % 2 == 1, number / 2);
        (removed <= LOOKED_AT_MAX).then_some((more, removed))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        match self.value()? {
            Value::BulkString(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn decimal(&mut self) -> Option<u64> {
        decimal(&self.bytes()?)
    }

    fn maybe_decimal(&mut self) -> Option<Option<u64>> {
        match self.value()? {
            Value::Nil => Some(None),
            Value::BulkString(text) => decimal(&text).map(Some),
            _ => None,
        }
    }

    fn token(&mut self) -> Option<Token> {
        token_of(&self.bytes()?)
    }

    fn maybe_owner(&mut self) -> Option<Option<OwnerId>> {
        match self.value()? {
            Value::Nil => Some(None),
            Value::BulkString(bytes) => Some(Some(OwnerId::parse(&bytes))),
            _ => None,
        }
    }
}

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        _ => None,
    }
}

/// A whole number in plain digits, at most 16 of them.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
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

/// Decodes a message in the inbox. `clock` is that of the server it came from, if there are
/// several.
pub(crate) fn inbox_message(
    payload: &[u8],
    arrived: Moment,
    clock: impl FnOnce() -> Option<Arc<ServerClock>>,
) -> Event {
    if let Some((grant, at_ms)) = grant_message(payload) {
        return Event::Granted { grant, at_ms, arrived, clock: clock() };
    }
    match forced_message(payload) {
        Some((owner, token)) => Event::Forced { owner, token },
        None => Event::Invalid,
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
        let good = vec![Value::Int(5), Value::Int(0), bulk("granted"), bulk("7"), Value::Int(30)];
        let answer = answer(Value::Array(good.clone())).unwrap();
        assert_eq!(answer.now_ms, 5);
        assert_eq!(answer.body, Body::Granted { token: Token::new(7).unwrap(), ttl_ms: 30 });
        let removed = |n| Value::Array([&[Value::Int(5), Value::Int(n)], &good[2..]].concat());
        let answer = super::answer(removed(129)).unwrap();
        assert!(answer.more && answer.removed == 64);
        let mut odd =
            vec![removed(130), Value::Nil, Value::Int(1), bulk("granted"), Value::Array(vec![])];
        for at in 0..good.len() {
            for wrong in [Value::Nil, Value::Int(-1), bulk("x"), bulk("9007199254740992")] {
                let mut items = good.clone();
                items[at] = wrong;
                odd.push(Value::Array(items));
            }
            odd.push(Value::Array(good[..at].to_vec()));
        }
        let mut long = good;
        long.push(Value::Int(0));
        odd.push(Value::Array(long));
        for value in odd {
            assert!(super::answer(value.clone()).is_err(), "{value:?}");
        }
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
