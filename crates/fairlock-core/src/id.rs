//! Names and ids of locks, clients, owners and requests.

use std::fmt;
use std::sync::Arc;

/// Longest lock name in bytes. Names become parts of eight keys and two channels; 4 KiB is far more
/// than any intended name needs.
pub const MAX_NAME_BYTES: usize = 4096;

/// How many bytes of a foreign owner, or of a foreign value as its holder, are shown: more than any id has, and few enough
/// to be read with every call, whatever somebody stored there.
pub const VALUE_SHOWN_BYTES: usize = 256;

/// Largest owner number: fifteen decimal digits, exact in a Lua number and in a Java `long`.
pub const MAX_OWNER_NUMBER: u64 = 999_999_999_999_999;

/// Owners from this number on hold a lock once in a period: when their work is done, the hold is
/// left to its lease on purpose. No client ever counts that far. The number has no effect on the
/// rules; it is information for inspections of the lock.
///
/// It has the form `9EMMnnnnnnnnnnn`. The lease while the work is under way is at most `MM` times
/// 10 to the `E` ms, so a hold with a longer TTL was left to the store; `n` counts the owners of
/// this kind. If `MM` is below 10, the lease is unknown.
pub const ONCE_NUMBER_MIN: u64 = 900_000_000_000_000;

/// How many owners of this kind a client can have.
const ONCE_OWNERS_MAX: u64 = 100_000_000_000;

/// Prefixes of keys that Redisson or fairlock derive from lock names. A lock with such a name would
/// write into another lock's queue or registry.
const RESERVED_PREFIXES: [&str; 6] = [
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_lock_token:",
    "redisson_unlock_latch:",
    "fairlock_",
    "fairlock:client:",
];

/// The reason for which a name or an id was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdError {
    /// The lock name has no bytes.
    EmptyName,
    /// The lock name is longer than 4096 bytes.
    NameTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The lock name begins with a prefix of keys that belong to other locks.
    ReservedName {
        /// The prefix it begins with.
        prefix: &'static str,
    },
    /// The text is not 32 lower-case hexadecimal digits.
    NotARequest,
    /// The owner number is 0 or above [`MAX_OWNER_NUMBER`].
    OwnerNumber,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => write!(f, "a lock name needs at least one byte"),
            Self::NameTooLong { bytes } => {
                write!(f, "a lock name has at most {MAX_NAME_BYTES} bytes, this one has {bytes}")
            }
            Self::ReservedName { prefix } => {
                write!(f, "a lock name must not begin with `{prefix}`, keys of other locks do")
            }
            Self::NotARequest => write!(f, "a request id is 32 lower-case hexadecimal digits"),
            Self::OwnerNumber => {
                write!(f, "an owner number is between 1 and {MAX_OWNER_NUMBER}")
            }
        }
    }
}

impl std::error::Error for IdError {}

/// A valid lock name: 1 to 4096 bytes, any bytes, not a derived key of another lock.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<[u8]>);

impl LockName {
    /// Validates and copies `name`.
    ///
    /// # Errors
    /// [`IdError`] if the name is empty, too long or reserved; nothing is copied in that case.
    ///
    /// ```
    /// # use fairlock_core::LockName;
    /// assert!(LockName::new(b"invoice:42").is_ok());
    /// assert!(LockName::new(b"").is_err());
    /// ```
    pub fn new(name: &[u8]) -> Result<Self, IdError> {
        if name.is_empty() {
            return Err(IdError::EmptyName);
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(IdError::NameTooLong { bytes: name.len() });
        }
        for prefix in RESERVED_PREFIXES {
            if name.starts_with(prefix.as_bytes()) {
                return Err(IdError::ReservedName { prefix });
            }
        }
        Ok(Self(name.into()))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockName({self})")
    }
}

/// A client of ours: a UUID of version 8. Redisson's are of version 4, so every script can tell our
/// clients from Java's by the id alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u128);

const VERSION_MASK: u128 = 0xf000 << 64;
const VERSION_8: u128 = 0x8000 << 64;
const VARIANT_MASK: u128 = 0b11 << 62;
const VARIANT_RFC: u128 = 0b10 << 62;

impl ClientId {
    /// Creates a client id from 128 random bits, six of which are replaced by the UUID's version
    /// and variant.
    pub fn from_random(bits: u128) -> Self {
        Self(bits & !VERSION_MASK & !VARIANT_MASK | VERSION_8 | VARIANT_RFC)
    }

    /// All 128 bits, including version and variant: [`from_random`](Self::from_random) creates the
    /// same id from them.
    pub fn to_bits(self) -> u128 {
        self.0
    }

    fn to_text(self) -> [u8; 36] {
        let digits = hex_digits(self.0);
        let mut text = [b'-'; 36];
        for (group, from) in [(0..8, 0), (9..13, 8), (14..18, 12), (19..23, 16), (24..36, 20)] {
            let to = from + group.len();
            text[group].copy_from_slice(&digits[from..to]);
        }
        text
    }

    /// Reads the 36 characters of a lower-case version-8 UUID; `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != 36 {
            return None;
        }
        let mut bits = 0_u128;
        for (position, byte) in text.iter().enumerate() {
            if matches!(position, 8 | 13 | 18 | 23) {
                if *byte != b'-' {
                    return None;
                }
                continue;
            }
            bits = bits << 4 | u128::from(hex_digit(*byte)?);
        }
        (bits & VERSION_MASK == VERSION_8 && bits & VARIANT_MASK == VARIANT_RFC)
            .then_some(Self(bits))
    }
}

/// The id as it is written in keys and calls. Not a method, because [`ClientId`] is part of the public
/// API of `fairlock`.
pub fn client_text(client: ClientId) -> [u8; 36] {
    client.to_text()
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text(&self.to_text()))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// A holder or waiter: one of ours (`<version-8 uuid>:<number>`), or the opaque bytes of a foreign
/// client. Foreign ids are never parsed: Redisson has several forms of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Ours { client: ClientId, number: u64 },
    Foreign(Arc<[u8]>),
}

impl OwnerId {
    /// Creates the id of owner `number` of a client of ours.
    ///
    /// # Errors
    /// [`IdError::OwnerNumber`] if the number is 0 or above [`MAX_OWNER_NUMBER`].
    pub fn ours(client: ClientId, number: u64) -> Result<Self, IdError> {
        if number == 0 || number > MAX_OWNER_NUMBER {
            return Err(IdError::OwnerNumber);
        }
        Ok(Self(Repr::Ours { client, number }))
    }

    /// Creates the id of owner number `count` among the owners of a client that hold a lock once in
    /// a period, with a lease of at most `lease_ms` while their work is under way.
    ///
    /// # Errors
    /// [`IdError::OwnerNumber`] if `count` is 0, or 10^11 or more.
    pub fn once(client: ClientId, lease_ms: u64, count: u64) -> Result<Self, IdError> {
        if count == 0 || count >= ONCE_OWNERS_MAX {
            return Err(IdError::OwnerNumber);
        }
        let tens = (0..10).map(|exponent| 10_u64.pow(exponent)).zip(0_u64..);
        let code = tens.filter_map(|(ten, exponent)| {
            let mantissa = lease_ms.div_ceil(ten).max(10);
            (mantissa < 100).then_some(exponent * 100 + mantissa)
        });
        // Longer than any lease that the number can encode: not known.
        let code = code.min().unwrap_or(0);
        Self::ours(client, ONCE_NUMBER_MIN + code * ONCE_OWNERS_MAX + count)
    }

    /// Reads an owner id as it is written in a key: ours if it has exactly our form, otherwise
    /// foreign.
    pub fn parse(bytes: &[u8]) -> Self {
        Self::parse_ours(bytes).unwrap_or_else(|| Self(Repr::Foreign(bytes.into())))
    }

    fn parse_ours(bytes: &[u8]) -> Option<Self> {
        let (uuid, rest) = bytes.split_at_checked(36)?;
        let digits = rest.strip_prefix(b":")?;
        if digits.is_empty() || digits.len() > 15 || digits[0] == b'0' {
            return None;
        }
        let mut number = 0_u64;
        for digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            number = number * 10 + u64::from(digit - b'0');
        }
        Some(Self(Repr::Ours { client: ClientId::parse(uuid)?, number }))
    }

    /// The owner as answers name it: of a foreign one, which may have any length, the first [`VALUE_SHOWN_BYTES`].
    pub(crate) fn cut(&self) -> Self {
        match &self.0 {
            Repr::Foreign(bytes) if bytes.len() > VALUE_SHOWN_BYTES => {
                Self(Repr::Foreign(bytes[..VALUE_SHOWN_BYTES].into()))
            }
            _ => self.clone(),
        }
    }

    /// The client, if this owner is one of ours.
    pub fn client(&self) -> Option<ClientId> {
        match &self.0 {
            Repr::Ours { client, .. } => Some(*client),
            Repr::Foreign(_) => None,
        }
    }

    /// Client and number, if this owner is one of ours.
    pub fn parts(&self) -> Option<(ClientId, u64)> {
        match &self.0 {
            Repr::Ours { client, number } => Some((*client, *number)),
            Repr::Foreign(_) => None,
        }
    }

    /// Whether this owner belongs to a client of ours.
    pub fn is_ours(&self) -> bool {
        self.client().is_some()
    }

    /// Whether its number is [`ONCE_NUMBER_MIN`] or larger.
    pub fn is_once(&self) -> bool {
        matches!(self.0, Repr::Ours { number, .. } if number >= ONCE_NUMBER_MIN)
    }

    /// Returns the longest lease of such an owner's hold while its work is under way, in
    /// milliseconds; `None` for other owners, and if the number does not encode it.
    pub fn once_lease_ms(&self) -> Option<u64> {
        let number = self.parts().map(|(_, number)| number).filter(|_| self.is_once())?;
        let code = (number - ONCE_NUMBER_MIN) / ONCE_OWNERS_MAX;
        let (exponent, mantissa) = (u32::try_from(code / 100).ok()?, code % 100);
        (mantissa >= 10).then(|| mantissa * 10_u64.pow(exponent))
    }

    /// The id as it is written in a key.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Repr::Ours { client, number } => {
                let mut bytes = Vec::with_capacity(52);
                bytes.extend_from_slice(&client.to_text());
                bytes.push(b':');
                bytes.extend_from_slice(number.to_string().as_bytes());
                bytes
            }
            Repr::Foreign(bytes) => bytes.to_vec(),
        }
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Ours { client, number } => write!(f, "{client}:{number}"),
            Repr::Foreign(bytes) => write!(f, "{}", bytes.escape_ascii()),
        }
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

/// One attempt to get a lock: 128 random bits, one for each queue entry. A grant names the request,
/// so that a message for an abandoned attempt has no effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u128);

impl RequestId {
    /// Creates a request id from 128 random bits.
    pub fn from_random(bits: u128) -> Self {
        Self(bits)
    }

    /// All 128 bits.
    pub fn to_bits(self) -> u128 {
        self.0
    }

    /// The id as it is written in keys and calls.
    pub fn to_text(self) -> [u8; 32] {
        hex_digits(self.0)
    }

    /// Reads the 32 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`IdError::NotARequest`] for anything else.
    pub fn parse(text: &[u8]) -> Result<Self, IdError> {
        if text.len() != 32 {
            return Err(IdError::NotARequest);
        }
        let mut bits = 0_u128;
        for byte in text {
            bits = bits << 4 | u128::from(hex_digit(*byte).ok_or(IdError::NotARequest)?);
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text(&self.to_text()))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}

/// The 32 digits of an id. Every call to a server contains some, and `{:x}` of a `u128` costs ten
/// times as much.
fn hex_digits(bits: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 0xf)];
    }
    digits
}

const HEX: [u8; 16] = *b"0123456789abcdef";

/// Digits and dashes are UTF-8.
fn text(ascii: &[u8]) -> &str {
    std::str::from_utf8(ascii).unwrap_or_default()
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_round_trips_and_java_is_foreign() {
        let client = ClientId::from_random(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let owner = OwnerId::ours(client, 7).unwrap();
        assert_eq!(OwnerId::parse(&owner.to_bytes()), owner);
        assert_eq!(owner.client(), Some(client));
        assert_eq!(owner.parts(), Some((client, 7)));
        for foreign in [
            "5f3c1a52-0f4e-4a1b-9c3d-1234567890ab:51",
            "01234567-89ab-8def-8123-456789abcdef:0",
            "01234567-89ab-8def-8123-456789abcdef:01",
            "01234567-89AB-8def-8123-456789abcdef:1",
            "01234567-89ab-8def-8123-456789abcdef:1:write",
            "01234567-89ab-8def-4123-456789abcdef:1",
            "01234567-89ab-8def-8123-456789abcdef:1234567890123456",
            "",
        ] {
            let id = OwnerId::parse(foreign.as_bytes());
            assert!(!id.is_ours(), "{foreign}");
            assert_eq!(id.to_bytes(), foreign.as_bytes());
        }
    }

    #[test]
    fn names_are_bounded_and_keep_their_bytes() {
        assert_eq!(LockName::new(b""), Err(IdError::EmptyName));
        assert!(LockName::new(&[0; MAX_NAME_BYTES]).is_ok());
        assert!(LockName::new(&[0; MAX_NAME_BYTES + 1]).is_err());
        assert!(LockName::new(b"redisson_lock_queue:{x}").is_err());
        assert_eq!(LockName::new(b"a\0\r\n\xff").unwrap().as_bytes(), b"a\0\r\n\xff");
    }

    /// Compared with std's own formatting.
    #[test]
    fn ids_are_written_in_full() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0fed_cba9_8765_4321] {
            assert_eq!(RequestId::from_random(bits).to_string(), format!("{bits:032x}"));
            let client = ClientId::from_random(bits);
            let mut text = format!("{:032x}", client.to_bits());
            for dash in [8, 13, 18, 23] {
                text.insert(dash, '-');
            }
            assert_eq!(client.to_string(), text);
            for number in [1, ONCE_NUMBER_MIN - 1, ONCE_NUMBER_MIN, MAX_OWNER_NUMBER] {
                let owner = OwnerId::ours(client, number).unwrap();
                assert_eq!(owner.is_once(), number >= ONCE_NUMBER_MIN);
                assert_eq!(owner.to_bytes(), format!("{text}:{number}").as_bytes());
                assert_eq!(owner.to_string(), format!("{text}:{number}"));
            }
        }
    }

    /// The encoded lease is never shorter than the lease, and at most a tenth longer. There is none
    /// if it does not fit, or if the owner is not of this kind.
    #[test]
    fn the_number_of_a_once_owner_tells_its_lease() {
        let client = ClientId::from_random(7);
        for lease in [10, 99, 100, 101, 300, 999, 30_000, 30_001, 3_600_000, 31_536_000_000] {
            for count in [1, ONCE_OWNERS_MAX - 1] {
                let owner = OwnerId::once(client, lease, count).unwrap();
                let told = owner.once_lease_ms().unwrap();
                assert!(told >= lease && told - lease <= lease / 10, "{lease}: {told}");
                assert!(owner.is_once() && OwnerId::parse(&owner.to_bytes()) == owner);
            }
        }
        let told = |owner: OwnerId| owner.once_lease_ms();
        assert_eq!(told(OwnerId::once(client, 1, 1).unwrap()), Some(10));
        assert_eq!(told(OwnerId::once(client, u64::MAX, 1).unwrap()), None);
        assert_eq!(told(OwnerId::ours(client, ONCE_NUMBER_MIN + 1).unwrap()), None);
        assert_eq!(told(OwnerId::ours(client, ONCE_NUMBER_MIN - 1).unwrap()), None);
        for count in [0, ONCE_OWNERS_MAX] {
            assert_eq!(OwnerId::once(client, 30_000, count), Err(IdError::OwnerNumber));
        }
    }

    /// For any bits: version 8, the variant of RFC 9562, and the other 122 bits unchanged.
    #[test]
    fn every_client_id_is_of_version_8() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834_u128;
        let edges = [0, u128::MAX, VERSION_MASK, VARIANT_MASK, !VERSION_MASK, !VARIANT_MASK];
        let steps = (0..100_000).map(|_| {
            bits = bits.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
            bits
        });
        for bits in edges.into_iter().chain(steps) {
            let id = ClientId::from_random(bits);
            let text = id.to_string();
            assert_eq!((text.len(), text.as_bytes()[14]), (36, b'8'), "{text}");
            assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{text}");
            assert_eq!(ClientId::parse(text.as_bytes()), Some(id));
            assert_eq!(ClientId::from_random(id.to_bits()), id);
            assert_eq!((id.0 ^ bits) & !VERSION_MASK & !VARIANT_MASK, 0);
        }
    }
}
