//! The records of clients, which show operators who holds a lock or waits for it.
//!
//! A record is a courtesy. If it cannot be written, or contains what no client writes, the client
//! is unknown, and nothing else changes.

use super::classify::classify;
use super::keys;
use super::wire::{self, Cmd, Pipeline, Value};
use crate::base::clock::Moment;
use crate::base::error::ErrorKind;
use crate::settings::client_info::ClientInfo;
use crate::settings::text::{VALUE_BYTES_MAX, is_printable};
use fairlock_core::{ClientId, TOKEN_LIMIT};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::Notify;

/// The shortest TTL of a record: two refreshes may fail, the third comes in time.
const TTL: Duration = Duration::from_secs(90);

/// Between two refreshes.
pub(crate) const REFRESH: Duration = Duration::from_secs(30);

const CLIENT: &str = include_str!("lua/client.lua");
const RECORD: &str = include_str!("lua/record.lua");

const FIELDS: [&str; 7] = ["host", "pid", "user", "label", "version", "since", "lease"];

/// The record of this client.
pub(crate) struct Record {
    key: Vec<u8>,
    values: Vec<(&'static str, String)>,
    began: Moment,
    /// `began` by the server's clock, in ms since 1970, once that is known.
    since_ms: OnceLock<u64>,
    /// The lease of all holds, in ms; 0 once there was another.
    lease_ms: AtomicU64,
    /// Notified when the record must be written again.
    changed: Notify,
    /// The server does not allow the write; trying again on the same connection would only fill its
    /// log.
    denied: AtomicBool,
    /// The client has ended: nothing may be written after the removal.
    gone: AtomicBool,
}

impl Record {
    pub(crate) fn new(client: ClientId, info: ClientInfo) -> Self {
        let ClientInfo { host, pid, user, label, version, since: _, lease } = info;
        let values = [
            ("host", host),
            ("pid", Some(pid.to_string())),
            ("user", user),
            ("label", label),
            ("version", Some(version)),
        ];
        let known = values.into_iter().filter_map(|(field, value)| Some((field, value?)));
        Self {
            key: keys::client(client),
            values: known.collect(),
            began: Moment::now(),
            since_ms: OnceLock::new(),
            lease_ms: AtomicU64::new(lease.map_or(0, |lease| lease.as_millis() as u64)),
            changed: Notify::new(),
            denied: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// From now on, the client does not say which lease its holds have.
    pub(crate) fn drop_lease(&self) {
        if self.lease_ms.swap(0, Ordering::Relaxed) != 0 {
            self.changed.notify_one();
        }
    }

    /// Resolves when the record must be written again before its next refresh.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// There is a new connection, on which the server may allow the write. Returns whether its
    /// clock must be read before a write.
    pub(crate) fn connected(&self) -> bool {
        self.denied.store(false, Ordering::Relaxed);
        self.since_ms.get().is_none()
    }

    /// Notes the server's reply to `TIME`.
    pub(crate) fn note_time(&self, reply: Value) {
        let Value::Array(parts) = reply else { return };
        let Ok([Value::BulkString(seconds), _]) = <[Value; 2]>::try_from(parts) else { return };
        let Some(seconds) = std::str::from_utf8(&seconds).ok().and_then(number) else { return };
        let age_ms = Moment::now().since(self.began).as_millis() as u64;
        let since_ms = seconds.saturating_mul(1_000).saturating_sub(age_ms);
        self.since_ms.get_or_init(|| since_ms);
    }

    /// A record lives as long as the holds that were renewed after it was written, so it says of each that its renewal
    /// is overdue.
    fn ttl(&self) -> Duration {
        TTL.max(Duration::from_millis(self.lease_ms.load(Ordering::Relaxed)) + REFRESH)
    }

    /// Writes the record, or extends its TTL; `None` if that is pointless. No record may exist
    /// without its TTL.
    pub(crate) fn write(&self) -> Option<Cmd> {
        if self.gone.load(Ordering::Acquire) || self.denied.load(Ordering::Relaxed) {
            return None;
        }
        let since_ms = self.since_ms.get()?;
        let mut cmd = wire::cmd("EVAL");
        cmd.arg(RECORD).arg(1_u8).arg(&self.key).arg(self.ttl().as_millis() as u64);
        cmd.arg("since").arg(since_ms).arg("lease").arg(self.lease_ms.load(Ordering::Relaxed));
        for (field, value) in &self.values {
            cmd.arg(*field).arg(value);
        }
        Some(cmd)
    }

    /// Notes the server's reply to a write.
    pub(crate) fn note(&self, reply: Value) {
        let denied = |error| classify(&error).error.kind() == ErrorKind::Denied;
        if reply.extract_error().is_err_and(denied) {
            self.denied.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the record, and allows no later write; `None` the second time.
    pub(crate) fn remove(&self) -> Option<Cmd> {
        let first = !self.gone.swap(true, Ordering::AcqRel);
        first.then(|| {
            let mut cmd = wire::cmd("DEL");
            cmd.arg(&self.key);
            cmd
        })
    }
}

/// Asks for the records of `clients`, in one pipeline.
pub(crate) fn read(clients: &[ClientId]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(clients.len());
    for client in clients {
        let cmd = pipeline.cmd("EVAL").arg(CLIENT).arg(1_u8).arg(keys::client(*client));
        cmd.arg(VALUE_BYTES_MAX).args(&FIELDS);
    }
    pipeline
}

/// Strict: a value that no client of ours would have written makes the whole record unknown.
pub(crate) fn decode(reply: Value) -> Option<ClientInfo> {
    let Value::Array(values) = reply else { return None };
    let [host, pid, user, label, version, since, lease] = <[Value; 7]>::try_from(values).ok()?;
    let pid = text(pid)??;
    let since_ms = number(&text(since)??).filter(|ms| *ms < TOKEN_LIMIT)?;
    // Former versions write none.
    let lease_ms = match text(lease)? {
        Some(lease) => number(&lease).filter(|ms| *ms < TOKEN_LIMIT)?,
        None => 0,
    };
    Some(ClientInfo {
        host: text(host)?,
        pid: u32::try_from(number(&pid)?).ok()?,
        user: text(user)?,
        label: text(label)?,
        version: text(version)??,
        since: UNIX_EPOCH + Duration::from_millis(since_ms),
        lease: (lease_ms > 0).then(|| Duration::from_millis(lease_ms)),
    })
}

fn text(value: Value) -> Option<Option<String>> {
    match value {
        Value::Nil => Some(None),
        Value::BulkString(bytes) => {
            let text = String::from_utf8(bytes).ok()?;
            is_printable(&text).then_some(Some(text))
        }
        _ => None,
    }
}

/// A whole number in plain digits.
fn number(text: &str) -> Option<u64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn good() -> Vec<Value> {
        ["web-1", "42", "ann", "nightly", "0.1.0", "2000000000000", "30000"].map(bulk).to_vec()
    }

    #[test]
    fn a_record_is_read_whole_or_not_at_all() {
        let info = decode(Value::Array(good())).unwrap();
        assert_eq!((info.host.as_deref(), info.pid), (Some("web-1"), 42));
        assert_eq!(info.since, UNIX_EPOCH + Duration::from_secs(2_000_000_000));
        assert_eq!(info.lease, Some(Duration::from_secs(30)));
        for (at, field) in FIELDS.iter().enumerate() {
            let with = |value| {
                let mut values = good();
                values[at] = value;
                decode(Value::Array(values))
            };
            let odd = ["", "\x1b[2J", "a\nb", "\u{202e}", &"x".repeat(129)].map(bulk);
            for value in odd.into_iter().chain([Value::Int(1), Value::BulkString(vec![0xff])]) {
                assert_eq!(with(value.clone()), None, "{field} {value:?}");
            }
            let may_lack = matches!(*field, "host" | "user" | "label" | "lease");
            assert_eq!(with(Value::Nil).is_some(), may_lack, "{field}");
            if matches!(*field, "pid" | "since" | "lease") {
                for text in ["-1", "+1", "1.5", "1e3", "99999999999999999999", "9007199254740992"] {
                    assert_eq!(with(bulk(text)), None, "{field} {text}");
                }
            }
        }
        assert_eq!(decode(Value::Nil), None);
        assert_eq!(decode(Value::Array(good()[..6].to_vec())), None);
        assert_eq!(decode(Value::Array([good(), good()].concat())), None);
    }

    /// The record of a client with a lease of minutes was gone before a renewal could be overdue.
    #[test]
    fn a_record_outlives_the_lease_that_it_names() {
        let secs = Duration::from_secs;
        for (lease, ttl) in [(30, 90), (60, 90), (61, 91), (600, 630)] {
            let mut info = decode(Value::Array(good())).unwrap();
            info.lease = Some(secs(lease));
            let record = Record::new(ClientId::from_random(1), info);
            assert_eq!(record.ttl(), secs(ttl));
            record.drop_lease();
            assert_eq!(record.ttl(), TTL, "it names none");
        }
    }

    #[test]
    fn nothing_is_written_after_the_removal() {
        let info = decode(Value::Array(good())).unwrap();
        let record = Record::new(ClientId::from_random(1), info);
        assert!(record.connected() && record.write().is_none(), "since when is not known");
        record.note_time(Value::Array(vec![bulk("2000000000"), bulk("5")]));
        assert!(!record.connected() && record.write().is_some());
        assert!(record.remove().is_some());
        assert!(record.write().is_none());
        assert!(record.remove().is_none());
    }
}
