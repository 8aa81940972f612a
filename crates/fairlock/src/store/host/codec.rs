//! A lock's [`Snapshot`] as the bytes of its row.
//!
//! ```text
//! byte 0        the form's number, FORM
//! bytes 1..5    CRC-32C of the lock's name and of the body, little endian
//! body          which fields follow (a bit set), the clients that occur, the fields in order
//! ```
//!
//! Numbers are LEB128, signed ones zigzag. An owner of ours is encoded as its client's index in the
//! list and its number, so a waiter costs some 45 bytes. Maps are sorted by key, each key once. So
//! each state has exactly one encoding, and no other bytes decode to it.
//!
//! A lock with shares has a [`Mark`] in place of its hold; its holds are in rows of their own
//! ([`parts`](super::parts)).

use super::parts::Mark;
use fairlock_core::{
    ClientId, LockName, OwnerId, RequestId, SimpleValue, Snapshot, SnapshotRecord, SnapshotWaiter,
    Watch,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of the encoding below. A changed encoding gets a new number and a new schema version.
const FORM: u8 = 1;

/// Bytes before the body.
const HEAD: usize = 5;

/// Why bytes are not a valid state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged(pub(super) &'static str);

/// The fields that may be absent, in order, each with its bit.
mod bit {
    pub(super) const HOLD: u64 = 1;
    pub(super) const HOLD_EXPIRES: u64 = 1 << 1;
    pub(super) const VALUE: u64 = 1 << 2;
    pub(super) const VALUE_EXPIRES: u64 = 1 << 3;
    pub(super) const TOKEN: u64 = 1 << 4;
    pub(super) const TOKEN_EXPIRES: u64 = 1 << 5;
    pub(super) const QUEUE: u64 = 1 << 6;
    pub(super) const QUEUE_EXPIRES: u64 = 1 << 7;
    pub(super) const SCORES: u64 = 1 << 8;
    pub(super) const SCORES_EXPIRES: u64 = 1 << 9;
    pub(super) const ORDER: u64 = 1 << 10;
    pub(super) const ORDER_EXPIRES: u64 = 1 << 11;
    pub(super) const WAITERS: u64 = 1 << 12;
    pub(super) const STATE_EXPIRES: u64 = 1 << 13;
    pub(super) const BEATS: u64 = 1 << 14;
    pub(super) const BEATS_EXPIRES: u64 = 1 << 15;
    pub(super) const BURIED: u64 = 1 << 16;
    pub(super) const GRANT: u64 = 1 << 17;
    pub(super) const CHANGE: u64 = 1 << 18;
    pub(super) const AMNESTY: u64 = 1 << 19;
    pub(super) const SILENCE: u64 = 1 << 20;
    pub(super) const WATCH: u64 = 1 << 21;
    pub(super) const GATHER: u64 = 1 << 22;
    pub(super) const REMOVED: u64 = 1 << 23;
    /// Only used where time may go back, so never in a file of this store. So older versions can
    /// read the file.
    pub(super) const GIVEN: u64 = 1 << 24;
    pub(super) const ALL: u64 = (1 << 25) - 1;
}

/// Writes `s` into `out`, which is emptied first; of a lock with shares, with its mark.
pub(super) fn encode(name: &LockName, s: &Snapshot, mark: Option<Mark>, out: &mut Vec<u8>) {
    out.clear();
    out.extend([FORM, 0, 0, 0, 0]);
    let clients = clients_of(s);
    let mut w = Writer { out, clients: &clients };
    let mark = mark.map(Mark::fields);
    let hold = mark.as_ref().unwrap_or(&s.hold);
    let beside = mark.as_ref().map(|_| Mark::beside());
    w.number(present(s) | if mark.is_some() { bit::HOLD | bit::VALUE } else { 0 });
    if clients.is_empty() {
        w.number(0);
    } else {
        w.number(clients.len() as u64);
        for client in &clients {
            w.out.extend(client.to_bits().to_be_bytes());
        }
    }
    w.list(hold, |w, (owner, count)| {
        w.owner(owner);
        w.signed(*count);
    });
    w.maybe(s.hold_expires);
    if let Some(value) = beside.as_ref().or(s.value.as_ref()) {
        w.value(value);
    }
    w.maybe(s.value_expires);
    w.maybe(s.token);
    w.maybe(s.token_expires);
    w.list(&s.queue, |w, owner| w.owner(owner));
    w.maybe(s.queue_expires);
    w.list(&s.scores, |w, (owner, score)| {
        w.owner(owner);
        w.signed(*score);
    });
    w.maybe(s.scores_expires);
    w.list(&s.order, |w, (owner, number)| {
        w.owner(owner);
        w.number(*number);
    });
    w.maybe(s.order_expires);
    w.list(&s.waiters, |w, (owner, waiter)| {
        w.owner(owner);
        w.request(waiter.request);
        w.number(waiter.lease_ms);
        w.out.push(u8::from(waiter.sure));
    });
    w.maybe(s.state_expires);
    w.list(&s.beats, |w, (client, beat)| {
        w.client(*client);
        w.number(*beat);
    });
    w.maybe(s.beats_expires);
    w.list(&s.buried, |w, (request, until)| {
        w.request(*request);
        w.number(*until);
    });
    w.record(&s.record);
    let sum = checksum(name, &out[HEAD..]);
    out[1..HEAD].copy_from_slice(&sum.to_le_bytes());
}

/// Reads only the mark of a lock with shares, which shows whether the lock has other rows as well.
pub(super) fn mark(bytes: &[u8]) -> Option<Mark> {
    let mut r = Reader::new(bytes.get(HEAD..)?);
    r.has = r.number().ok()?;
    if r.has & bit::HOLD == 0 {
        return None;
    }
    let clients = r.count().ok()?.checked_mul(size_of::<u128>())?;
    r.rest = r.rest.get(clients..)?;
    // A holder of ours is in the list of clients, which was left out, and ends this.
    let hold = r.map(bit::HOLD, |r| Ok((r.owner()?, r.signed()?))).ok()?;
    Mark::parse(&hold)
}

/// Reads what [`encode`] wrote for the lock `name`.
pub(super) fn decode(name: &LockName, bytes: &[u8]) -> Result<Snapshot, Damaged> {
    let Some((head, body)) = bytes.split_at_checked(HEAD) else {
        return Err(Damaged("it is too short"));
    };
    if head[0] != FORM {
        return Err(Damaged("its form has an unknown number"));
    }
    if head[1..] != checksum(name, body).to_le_bytes() {
        return Err(Damaged("its checksum does not match"));
    }
    let mut r = Reader::new(body);
    r.has = r.number()?;
    if r.has & !bit::ALL != 0 {
        return Err(Damaged("it has an unknown field"));
    }
    let count = r.count()?;
    for _ in 0..count {
        let bits = u128::from_be_bytes(r.take::<16>()?);
        let client = ClientId::from_random(bits);
        if client.to_bits() != bits || r.clients.last().is_some_and(|last| *last >= client) {
            return Err(Damaged("its clients are no list of clients"));
        }
        r.clients.push(client);
    }
    // In the order of the encoding: each field is read where the one before it ended.
    let s = Snapshot {
        hold: r.map(bit::HOLD, |r| Ok((r.owner()?, r.signed()?)))?,
        hold_expires: r.maybe(bit::HOLD_EXPIRES)?,
        value: if r.has & bit::VALUE != 0 { Some(r.value()?) } else { None },
        value_expires: r.maybe(bit::VALUE_EXPIRES)?,
        token: r.maybe(bit::TOKEN)?,
        token_expires: r.maybe(bit::TOKEN_EXPIRES)?,
        queue: r.queue()?,
        queue_expires: r.maybe(bit::QUEUE_EXPIRES)?,
        scores: r.map(bit::SCORES, |r| Ok((r.owner()?, r.signed()?)))?,
        scores_expires: r.maybe(bit::SCORES_EXPIRES)?,
        order: r.map(bit::ORDER, |r| Ok((r.owner()?, r.number()?)))?,
        order_expires: r.maybe(bit::ORDER_EXPIRES)?,
        waiters: r.map(bit::WAITERS, |r| {
            let owner = r.owner()?;
            let (request, lease_ms) = (r.request()?, r.number()?);
            Ok((owner, SnapshotWaiter { request, lease_ms, sure: r.flag()? }))
        })?,
        state_expires: r.maybe(bit::STATE_EXPIRES)?,
        beats: r.map(bit::BEATS, |r| Ok((r.client()?, r.number()?)))?,
        beats_expires: r.maybe(bit::BEATS_EXPIRES)?,
        buried: r.map(bit::BURIED, |r| Ok((r.request()?, r.number()?)))?,
        record: r.record()?,
    };
    if !r.rest.is_empty() {
        return Err(Damaged("something follows its end"));
    }
    Ok(s)
}

fn present(s: &Snapshot) -> u64 {
    let r = &s.record;
    [
        (bit::HOLD, !s.hold.is_empty()),
        (bit::HOLD_EXPIRES, s.hold_expires.is_some()),
        (bit::VALUE, s.value.is_some()),
        (bit::VALUE_EXPIRES, s.value_expires.is_some()),
        (bit::TOKEN, s.token.is_some()),
        (bit::TOKEN_EXPIRES, s.token_expires.is_some()),
        (bit::QUEUE, !s.queue.is_empty()),
        (bit::QUEUE_EXPIRES, s.queue_expires.is_some()),
        (bit::SCORES, !s.scores.is_empty()),
        (bit::SCORES_EXPIRES, s.scores_expires.is_some()),
        (bit::ORDER, !s.order.is_empty()),
        (bit::ORDER_EXPIRES, s.order_expires.is_some()),
        (bit::WAITERS, !s.waiters.is_empty()),
        (bit::STATE_EXPIRES, s.state_expires.is_some()),
        (bit::BEATS, !s.beats.is_empty()),
        (bit::BEATS_EXPIRES, s.beats_expires.is_some()),
        (bit::BURIED, !s.buried.is_empty()),
        (bit::GRANT, r.grant.is_some()),
        (bit::CHANGE, r.change.is_some()),
        (bit::AMNESTY, r.amnesty.is_some()),
        (bit::SILENCE, r.silence.is_some()),
        (bit::WATCH, r.watch.is_some()),
        (bit::GATHER, r.gather.is_some()),
        (bit::REMOVED, r.removed.is_some()),
        (bit::GIVEN, r.given.is_some()),
    ]
    .into_iter()
    .filter(|(_, is)| *is)
    .fold(0, |all, (bit, _)| all | bit)
}

/// Every client that occurs, in order.
fn clients_of(s: &Snapshot) -> Vec<ClientId> {
    let mut clients: BTreeSet<ClientId> = s.beats.keys().copied().collect();
    let owners = s.hold.keys().chain(&s.queue).chain(s.scores.keys());
    let owners = owners.chain(s.order.keys()).chain(s.waiters.keys());
    let watched = s.record.watch.as_ref().map(|watch| &watch.id);
    let holds = match &s.value {
        Some(SimpleValue::Ours { owner, .. }) => Some(owner),
        _ => None,
    };
    clients.extend(owners.chain(watched).chain(holds).filter_map(OwnerId::client));
    clients.into_iter().collect()
}

pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    clients: &'a [ClientId],
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, clients: &'a [ClientId]) -> Self {
        Self { out, clients }
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(super) fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.out.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.out.push(n as u8);
    }

    fn signed(&mut self, n: i64) {
        self.number((n << 1) as u64 ^ (n >> 63) as u64);
    }

    fn maybe(&mut self, n: Option<u64>) {
        if let Some(n) = n {
            self.number(n);
        }
    }

    /// An empty list is not written.
    fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        each: impl Fn(&mut Self, T),
    ) {
        let items = items.into_iter();
        if items.len() > 0 {
            self.number(items.len() as u64);
            items.for_each(|item| each(self, item));
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend(bytes);
    }

    fn client(&mut self, client: ClientId) {
        // The list contains every client that occurs.
        let at = self.clients.binary_search(&client).unwrap_or(usize::MAX);
        self.number(at as u64);
    }

    /// Ours: index of the client plus 1, number. Foreign: 0, bytes.
    fn owner(&mut self, owner: &OwnerId) {
        match owner.parts() {
            Some((client, number)) => {
                let at = self.clients.binary_search(&client).map_or(usize::MAX, |at| at + 1);
                self.number(at as u64);
                self.number(number);
            }
            None => {
                self.number(0);
                self.bytes(&owner.to_bytes());
            }
        }
    }

    pub(super) fn request(&mut self, request: RequestId) {
        self.out.extend(request.to_bits().to_be_bytes());
    }

    fn value(&mut self, value: &SimpleValue) {
        match value {
            SimpleValue::Ours { owner, request, token } => {
                self.owner(owner);
                self.request(*request);
                self.number(token.get());
            }
            SimpleValue::Foreign(bytes) => {
                self.number(0);
                self.bytes(bytes);
            }
        }
    }

    fn record(&mut self, r: &SnapshotRecord) {
        if let Some((token, request)) = r.grant {
            self.number(token);
            self.request(request);
        }
        if let Some((token, change)) = r.change {
            self.number(token);
            self.number(change);
        }
        self.maybe(r.amnesty);
        self.maybe(r.silence);
        if let Some(watch) = &r.watch {
            self.owner(&watch.id);
            self.signed(watch.score);
            self.number(watch.since);
            self.number(watch.pinged);
        }
        self.maybe(r.gather);
        self.maybe(r.removed);
        self.maybe(r.given);
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
    clients: Vec<ClientId>,
    has: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body, clients: Vec::new(), has: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damaged> {
        self.take().map(|[byte]| byte)
    }

    /// A number of 32 bits.
    pub(super) fn small(&mut self) -> Result<u32, Damaged> {
        u32::try_from(self.number()?).map_err(|_| Damaged("a number in it is too large"))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Damaged("it ends too early"))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn number(&mut self) -> Result<u64, Damaged> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit, and the last byte must not be a superfluous
            // zero.
            if shift == 63 && bits > 1 || shift > 0 && byte == 0 {
                break;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(Damaged("a number in it is too large"))
    }

    fn signed(&mut self) -> Result<i64, Damaged> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    fn maybe(&mut self, bit: u64) -> Result<Option<u64>, Damaged> {
        if self.has & bit == 0 { Ok(None) } else { self.number().map(Some) }
    }

    /// The number of items that follow. Each has at least one byte, so a wrong number cannot
    /// reserve memory.
    fn count(&mut self) -> Result<usize, Damaged> {
        let n = self.number()?;
        usize::try_from(n)
            .ok()
            .filter(|n| *n <= self.rest.len())
            .ok_or(Damaged("a list in it is longer than itself"))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Damaged> {
        let count = self.count()?;
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken.to_vec())
    }

    /// The items of a list, if it is present. Then it has at least one.
    fn items<T>(
        &mut self,
        bit: u64,
        each: impl Fn(&mut Self) -> Result<T, Damaged>,
        mut add: impl FnMut(T) -> bool,
    ) -> Result<(), Damaged> {
        if self.has & bit == 0 {
            return Ok(());
        }
        let count = self.count()?;
        if count == 0 {
            return Err(Damaged("an empty list stands in it"));
        }
        for _ in 0..count {
            if !add(each(self)?) {
                return Err(Damaged("a list in it is out of order"));
            }
        }
        Ok(())
    }

    fn map<K: Ord + Clone, V>(
        &mut self,
        bit: u64,
        each: impl Fn(&mut Self) -> Result<(K, V), Damaged>,
    ) -> Result<BTreeMap<K, V>, Damaged> {
        let mut pairs: Vec<(K, V)> = Vec::new();
        self.items(bit, each, |pair| {
            let rises = pairs.last().is_none_or(|last| last.0 < pair.0);
            pairs.push(pair);
            rises
        })?;
        Ok(pairs.into_iter().collect())
    }

    fn queue(&mut self) -> Result<VecDeque<OwnerId>, Damaged> {
        let mut queue = VecDeque::new();
        self.items(bit::QUEUE, Self::owner, |owner| {
            queue.push_back(owner);
            true
        })?;
        Ok(queue)
    }

    fn client(&mut self) -> Result<ClientId, Damaged> {
        let at = self.number()?;
        self.client_at(at)
    }

    fn client_at(&self, at: u64) -> Result<ClientId, Damaged> {
        let client = usize::try_from(at).ok().and_then(|at| self.clients.get(at));
        client.copied().ok_or(Damaged("a client in it is not in its list"))
    }

    fn owner(&mut self) -> Result<OwnerId, Damaged> {
        let at = self.number()?;
        if at > 0 {
            let client = self.client_at(at - 1)?;
            return OwnerId::ours(client, self.number()?).map_err(|_| Damaged("an owner's number"));
        }
        let owner = OwnerId::parse(&self.bytes()?);
        if owner.is_ours() {
            Err(Damaged("an owner in it is in the wrong form"))
        } else {
            Ok(owner)
        }
    }

    pub(super) fn request(&mut self) -> Result<RequestId, Damaged> {
        Ok(RequestId::from_random(u128::from_be_bytes(self.take()?)))
    }

    fn flag(&mut self) -> Result<bool, Damaged> {
        match self.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Damaged("a yes or no in it is neither")),
        }
    }

    fn value(&mut self) -> Result<SimpleValue, Damaged> {
        let at = self.number()?;
        if at == 0 {
            let value = SimpleValue::parse(&self.bytes()?);
            return if value.is_ours() { Err(Damaged("its value's form")) } else { Ok(value) };
        }
        let client = self.client_at(at - 1)?;
        let owner =
            OwnerId::ours(client, self.number()?).map_err(|_| Damaged("an owner's number"))?;
        let request = self.request()?;
        let token =
            fairlock_core::Token::new(self.number()?).ok_or(Damaged("its value's token"))?;
        Ok(SimpleValue::Ours { owner, request, token })
    }

    fn record(&mut self) -> Result<SnapshotRecord, Damaged> {
        let has = self.has;
        let there = |bit: u64| has & bit != 0;
        Ok(SnapshotRecord {
            grant: there(bit::GRANT).then(|| Ok((self.number()?, self.request()?))).transpose()?,
            change: there(bit::CHANGE).then(|| Ok((self.number()?, self.number()?))).transpose()?,
            amnesty: self.maybe(bit::AMNESTY)?,
            silence: self.maybe(bit::SILENCE)?,
            watch: there(bit::WATCH).then(|| self.watch()).transpose()?,
            gather: self.maybe(bit::GATHER)?,
            // Only a server has guests.
            guest: None,
            removed: self.maybe(bit::REMOVED)?,
            given: self.maybe(bit::GIVEN)?,
        })
    }

    fn watch(&mut self) -> Result<Watch, Damaged> {
        let (id, score) = (self.owner()?, self.signed()?);
        Ok(Watch { id, score, since: self.number()?, pinged: self.number()? })
    }
}

/// CRC-32C (Castagnoli) of a name and a body: detects every change within 32 neighbouring bits, and
/// a row stored under another lock's name.
pub(super) fn checksum(name: &LockName, body: &[u8]) -> u32 {
    checksum_of(name, &[body])
}

/// The same for the concatenation of several parts.
pub(super) fn checksum_of(name: &LockName, body: &[&[u8]]) -> u32 {
    let crc = crc32c(!0, &(name.as_bytes().len() as u64).to_le_bytes());
    !body.iter().fold(crc32c(crc, name.as_bytes()), |crc, part| crc32c(crc, part))
}

pub(super) fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    bytes.iter().fold(crc, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard check value of CRC-32C.
    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }
}
