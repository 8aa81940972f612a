//! The slots of a Redis Cluster. They are here because, on every store, a client takes several locks in the order of
//! their slots.

/// How many slots a Cluster has.
pub const SLOTS: usize = 16_384;

/// The part of a key that determines its slot: the text in its first braces, if there is any,
/// otherwise the whole key.
pub fn slot_tag(key: &[u8]) -> &[u8] {
    let in_braces = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    in_braces.unwrap_or(key)
}

/// The slot of a key: CRC16 (XMODEM) of its tag.
pub fn slot(key: &[u8]) -> u16 {
    let crc = slot_tag(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS as u16
}
