//! Arbitrary bytes as a row, as a wake-up message, and as the file itself.

use super::super::codec::{checksum, decode};
use super::super::wake_up::Message;
use super::fixture::*;
use crate::ErrorKind;
use fairlock_core::{Mode, Snapshot};
use fairlock_testkit::fuzz::{cases, input, noise};
use rusqlite::Connection;
use std::fs;

fn encode(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    super::super::codec::encode(&name("job"), snapshot, None, &mut out);
    out
}

/// A file that is in use, and the row of a lock with waiters.
fn real() -> (Vec<u8>, Vec<u8>) {
    let fixture = Fixture::new();
    let mut file = fixture.open();
    take(&mut file, "job", 1);
    for waiter in 2..6 {
        body(&mut file, "job", &acquire(waiter, Mode::Wait));
    }
    let row = row(&file, "job").1;
    drop(file);
    (fs::read(fixture.path()).unwrap(), row)
}

#[test]
fn rows() {
    let corpus = [real().1, encode(&Snapshot::default())];
    cases("rows", 10_000, |rng| {
        let mut bytes = input(rng, &corpus);
        // Mostly with the right checksum: what a bug could write.
        if rng.chance(80) && bytes.len() > 5 {
            let sum = checksum(&name("job"), &bytes[5..]);
            bytes[1..5].copy_from_slice(&sum.to_le_bytes());
        }
        if let Ok(snapshot) = decode(&name("job"), &bytes) {
            assert_eq!(decode(&name("job"), &encode(&snapshot)), Ok(snapshot));
        }
    });
}

#[test]
fn messages() {
    let corpus = [Message::Free(7).to_bytes().to_vec(), Message::Moved(1).to_bytes().to_vec()];
    cases("messages of bells", 20_000, |rng| {
        let mut bytes = input(rng, &corpus);
        if rng.chance(50) {
            bytes.resize(64, 0);
        }
        if let Some(message) = Message::parse(&bytes) {
            assert_eq!(message.to_bytes()[..], bytes[..], "none of ours would have written it");
        }
    });
}

/// Another program's file, a truncated file, noise: opening fails with an error, or the locks work.
#[test]
fn files() {
    let (whole, _) = real();
    let foreign = {
        let fixture = Fixture::new();
        Connection::open(fixture.path())
            .unwrap()
            .execute_batch("CREATE TABLE lock (name)")
            .unwrap();
        fs::read(fixture.path()).unwrap()
    };
    let corpus = [whole.clone(), whole, foreign];
    let (mut refused, mut used) = (0, 0);
    cases("files", 60, |rng| {
        let fixture = Fixture::new();
        let mut bytes = input(rng, &corpus);
        if rng.chance(30) {
            // In the part that identifies the file.
            let noise = noise(rng, 100);
            let end = noise.len().min(bytes.len());
            bytes[..end].copy_from_slice(&noise[..end]);
        }
        fs::write(fixture.path(), &bytes).unwrap();
        let result = open(&fixture.path()).and_then(|mut file| {
            for op in [inspect(), acquire(9, Mode::Try), acquire(1, Mode::Try)] {
                apply(&mut file, "job", &op).map_err(|failure| failure.error)?;
            }
            Ok(())
        });
        match result {
            Ok(()) => used += 1,
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::Protocol | ErrorKind::Unavailable), "{error:?}");
                refused += 1;
            }
        }
    });
    println!("measured: {refused} files were refused, {used} used");
    assert!(refused > 10 && used > 3, "{refused} and {used}");
}
