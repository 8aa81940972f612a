//! The slots of a Cluster: which one a lock is in, and which node serves it.

use super::wire::Value;
use crate::base::host_port::HostPort;
use fairlock_core::LockName;
pub(crate) use fairlock_core::{SLOTS, slot, slot_tag as tag};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The slot of a lock, if all its keys are in one. Redisson's rule for keys overlooks three kinds
/// of names: `a}b`, `a{b` and `{}x`.
pub(crate) fn slot_of(name: &LockName) -> Result<u16, &'static str> {
    let bytes = name.as_bytes();
    if !bytes.contains(&b'{') {
        return match bytes.contains(&b'}') {
            true => Err("has a `}` without a `{`"),
            false => Ok(slot(bytes)),
        };
    }
    match tag(bytes).len() < bytes.len() {
        true => Ok(slot(bytes)),
        false => Err("has no text between its first `{` and a `}`"),
    }
}

/// A set of slots.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotSet(Box<[u64; SLOTS / 64]>);

impl Default for SlotSet {
    fn default() -> Self {
        Self(Box::new([0; SLOTS / 64]))
    }
}

impl SlotSet {
    pub(crate) fn insert(&mut self, slot: u16) {
        self.0[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    pub(crate) fn contains(&self, slot: u16) -> bool {
        self.0[usize::from(slot) / 64] & (1 << (slot % 64)) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The slots that are not in it.
    pub(crate) fn others(&self) -> Self {
        Self(Box::new(self.0.map(|word| !word)))
    }
}

/// As ranges, `0-99, 120, 200-16383`; only the first of many.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More would not help anybody.
        const SHOWN: usize = 8;
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in (0..SLOTS as u16).filter(|slot| self.contains(*slot)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        for (n, (first, last)) in ranges.iter().take(SHOWN).enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        match ranges.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more ranges"),
        }
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        write!(f, "SlotSet({count} slots)")
    }
}

/// Where a node listens. The host is a name or an address, as the Cluster reports it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Addr {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Addr {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The address in a redirection, `host:port`. If there is no host, it is that of the node that
    /// redirects.
    pub(crate) fn redirected(text: &str, by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let host = if host.is_empty() { by.host.as_ref() } else { host };
        legible(host).then(|| Self::new(host, port))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HostPort(&self.host, self.port).fmt(f)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether this can be a host. `?` cannot: a node uses it if it knows no name for itself.
fn legible(host: &str) -> bool {
    !host.is_empty() && host != "?" && !host.bytes().any(|b| b <= b' ' || b == 0x7f)
}

/// Which node serves which slot, as one node sees it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SlotMap {
    masters: Vec<Addr>,
    /// For each slot, the index of its master plus 1; 0: nobody serves it.
    owners: Box<[u16]>,
    /// Replicas: they know the map as well.
    pub(crate) replicas: BTreeSet<Addr>,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self { masters: Vec::new(), owners: vec![0; SLOTS].into(), replicas: BTreeSet::new() }
    }
}

impl SlotMap {
    /// Reads the reply to `CLUSTER SLOTS` of the node at `asked`. Strict: a range that has another
    /// form, is out of bounds or overlaps makes the whole reply unusable.
    pub(crate) fn read(reply: &Value, asked: &Addr) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut map = Self::default();
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), master, replicas @ ..] = &parts[..] else {
                return None;
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            if first > last || last >= SLOTS {
                return None;
            }
            let owner = map.number(node(master, asked)?)?;
            for slot in &mut map.owners[first..=last] {
                if *slot != 0 {
                    return None;
                }
                *slot = owner;
            }
            // Replicas with an unknown address are of no use.
            map.replicas.extend(replicas.iter().filter_map(|replica| node(replica, asked)));
        }
        Some(map)
    }

    fn number(&mut self, master: Addr) -> Option<u16> {
        let index = self.masters.iter().position(|known| *known == master).unwrap_or_else(|| {
            self.masters.push(master);
            self.masters.len() - 1
        });
        u16::try_from(index + 1).ok()
    }

    /// A node reported that `slot` is at `to`.
    pub(crate) fn moved(&mut self, slot: u16, to: Addr) {
        if let (Some(number), Some(owner)) =
            (self.number(to), self.owners.get_mut(usize::from(slot)))
        {
            *owner = number;
        }
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<&Addr> {
        let number = usize::from(*self.owners.get(usize::from(slot))?);
        self.masters.get(number.checked_sub(1)?)
    }

    /// The value of `of` for the master of each slot, 0 if there is none.
    pub(crate) fn each(&self, of: impl Fn(&Addr) -> u64) -> impl Iterator<Item = u64> {
        let of_masters: Vec<u64> = std::iter::once(0).chain(self.masters.iter().map(of)).collect();
        self.owners.iter().map(move |number| of_masters[usize::from(*number)])
    }

    /// The masters that serve any slot.
    pub(crate) fn masters(&self) -> BTreeSet<Addr> {
        let numbers: BTreeSet<u16> = self.owners.iter().copied().filter(|n| *n > 0).collect();
        numbers.iter().filter_map(|n| self.masters.get(usize::from(*n) - 1)).cloned().collect()
    }

    /// How many slots nobody serves.
    pub(crate) fn missing(&self) -> usize {
        self.owners.iter().filter(|owner| **owner == 0).count()
    }
}

impl fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotMap")
            .field("masters", &self.masters)
            .field("missing", &self.missing())
            .finish_non_exhaustive()
    }
}

/// A node in the reply to `CLUSTER SLOTS`: host, port, id and, on newer servers, more. If there is
/// no host, it is that of the node that was asked.
fn node(value: &Value, asked: &Addr) -> Option<Addr> {
    let Value::Array(parts) = value else { return None };
    let [host, Value::Int(port), ..] = &parts[..] else { return None };
    let host = match host {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    let host = if host.is_empty() { asked.host.as_ref() } else { host };
    let port = u16::try_from(*port).ok().filter(|port| *port > 0)?;
    legible(host).then(|| Addr::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text.as_bytes()).unwrap()
    }

    /// From `CLUSTER KEYSLOT` of a server.
    #[test]
    fn slots_are_those_of_the_servers() {
        let table: [(&str, u16); 6] = [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("a{foo}c", 12_182),
            ("{foo}{bar}", 12_182),
            ("foo{{bar}}zap", slot(b"{bar")),
            ("foo{}{bar}", slot(b"foo{}{bar}")),
        ];
        for (key, expected) in table {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn sets_of_slots_are_shown_as_ranges() {
        let set = |slots: &[u16]| {
            let mut set = SlotSet::default();
            slots.iter().for_each(|slot| set.insert(*slot));
            set
        };
        assert_eq!(set(&[0, 1, 2, 7, 16_383]).to_string(), "0-2, 7, 16383");
        assert_eq!(set(&[0, 1]).others().to_string(), "2-16383");
        assert!(set(&[]).others().others().is_empty());
        let odd: Vec<u16> = (0..20).map(|n| 2 * n).collect();
        assert_eq!(set(&odd).to_string(), "0, 2, 4, 6, 8, 10, 12, 14 and 12 more ranges");
    }

    #[test]
    fn the_keys_of_a_lock_are_in_its_slot_or_it_is_refused() {
        for text in ["job", "{job}", "a{b}c", "{a}{", "{{x}}", "x{y}{}", "a{b}}c"] {
            let name = name(text);
            let slot_of_name = slot_of(&name).unwrap();
            for key in super::super::keys::Keys::new(&name).all() {
                assert_eq!(slot(&key), slot_of_name, "{text}: {}", key.escape_ascii());
            }
        }
        for text in ["a{b", "{}x", "a}b", "}", "{", "a{}{b}", "}{"] {
            assert!(slot_of(&name(text)).is_err(), "{text}");
        }
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, hosts: &[(&str, i64)]) -> Value {
        let nodes = hosts.iter().map(|(host, port)| {
            Value::Array(vec![bulk(host), Value::Int(*port), bulk("id"), Value::Array(vec![])])
        });
        Value::Array([Value::Int(first), Value::Int(last)].into_iter().chain(nodes).collect())
    }

    #[test]
    fn a_map_is_read_strictly() {
        let asked = Addr::new("10.0.0.9", 7000);
        let read = |ranges: Vec<Value>| SlotMap::read(&Value::Array(ranges), &asked);
        let map =
            read(vec![range(0, 9, &[("a", 1), ("b", 2)]), range(11, 16_383, &[("", 3), ("?", 4)])]);
        let map = map.unwrap();
        assert_eq!(map.owner(9), Some(&Addr::new("a", 1)));
        assert_eq!(map.owner(10), None);
        assert_eq!(map.owner(16_383), Some(&Addr::new("10.0.0.9", 3)), "the host that was asked");
        assert_eq!((map.missing(), map.replicas.len()), (1, 1), "`?` is no host");
        let mut moved = map.clone();
        moved.moved(10, Addr::new("a", 1));
        assert_eq!((moved.missing(), moved.masters().len()), (0, 2));
        for odd in [
            range(5, 4, &[("a", 1)]),
            range(-1, 4, &[("a", 1)]),
            range(0, 16_384, &[("a", 1)]),
            range(0, 1, &[]),
            range(0, 1, &[("a", 0)]),
            range(0, 1, &[("a", 65_536)]),
            range(0, 1, &[("?", 1)]),
            range(0, 1, &[("a b", 1)]),
            Value::Nil,
        ] {
            assert!(read(vec![odd.clone()]).is_none(), "{odd:?}");
        }
        let overlap = vec![range(0, 5, &[("a", 1)]), range(5, 6, &[("b", 1)])];
        assert!(read(overlap).is_none(), "two masters of one slot");
        assert!(SlotMap::read(&Value::Nil, &asked).is_none());
    }

    #[test]
    fn redirections_are_read() {
        let by = Addr::new("h", 1);
        let read = |text: &str| Addr::redirected(text, &by).map(|addr| addr.to_string());
        assert_eq!(read("10.0.0.1:7000").as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(read(":7000").as_deref(), Some("h:7000"));
        assert_eq!(read("::1:7000").as_deref(), Some("[::1]:7000"));
        for odd in ["", "h", "h:", "h:0", "h:65536", "h:x", "?:1", "a b:1"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
