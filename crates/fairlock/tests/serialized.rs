//! The feature `serde`: tokens, ids and names survive the way there and back, wrong ones are refused, and what looks at
//! locks return can be written.

use fairlock::{
    Client, ClientId, FencingToken, GuardState, Kind, LockName, LostReason, Opened, OwnerId,
    Release, Share,
};
use proptest::prelude::{any, proptest};
use proptest::{prop_assert, prop_assert_eq};
use serde::de::DeserializeOwned;
use serde::de::value::{BytesDeserializer, Error as ValueError};
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};
use serde_json::{Value, from_str, from_value, json, to_string, to_value};
use std::fmt::Debug;

/// Writes and reads it, as text and as a tree.
#[track_caller]
fn there_and_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, form: &Value) {
    assert_eq!(to_value(&value).unwrap(), *form);
    assert_eq!(from_value::<T>(form.clone()).unwrap(), value);
    assert_eq!(from_str::<T>(&to_string(&value).unwrap()).unwrap(), value);
}

#[test]
fn values_have_their_forms() {
    there_and_back(FencingToken::new(42).unwrap(), &json!(42));
    there_and_back(LockName::new(b"invoice:42").unwrap(), &json!("invoice:42"));
    there_and_back(LockName::new("Z\u{fc}g\0\"\\".as_bytes()).unwrap(), &json!("Z\u{fc}g\0\"\\"));
    there_and_back(LockName::new(b"a\xff").unwrap(), &json!([97, 255]));
    let client = ClientId::from_random(u128::MAX);
    there_and_back(client, &json!(client.to_string()));
    there_and_back(OwnerId::ours(client, 7).unwrap(), &json!(format!("{client}:7")));
    there_and_back(OwnerId::parse(b"java:51"), &json!("java:51"));
    there_and_back(OwnerId::parse(b"\xfe"), &json!([254]));
    there_and_back(Kind::ReadWrite, &json!("read_write"));
    there_and_back(Share::Whole, &json!("whole"));
    there_and_back(
        Share::Permits { n: 2, limit: 3 },
        &json!({ "permits": { "n": 2, "limit": 3 } }),
    );
    there_and_back(Opened::CountedDown, &json!("counted_down"));
    there_and_back(GuardState::Suspect, &json!("suspect"));
    there_and_back(Release::StillHeld(2), &json!({ "still_held": 2 }));
    there_and_back(LostReason::DataLost, &json!("data_lost"));
}

#[test]
fn what_is_none_is_refused() {
    for token in [json!(0), json!(1_u64 << 53), json!(u64::MAX), json!(-1), json!(1.5), json!("1")]
    {
        assert!(from_value::<FencingToken>(token.clone()).is_err(), "{token}");
    }
    for name in [
        json!(""),
        json!("a".repeat(4_097)),
        json!("fairlock_x"),
        json!([256]),
        json!(7),
        json!(null),
    ] {
        assert!(from_value::<LockName>(name.clone()).is_err(), "{name}");
    }
    // Redisson's ids are UUIDs of version 4.
    let java = json!("5f3c1a52-0f4e-4a1b-9c3d-1234567890ab");
    assert!(from_value::<ClientId>(java).is_err());
    let error = from_value::<LockName>(json!("fairlock_x")).unwrap_err().to_string();
    assert!(error.contains("must not begin with `fairlock_`"), "{error}");
}

/// A format that is not for people, and does not describe itself: it can only be asked for bytes.
struct Binary<'a>(&'a [u8]);

impl<'de> Deserializer<'de> for Binary<'_> {
    type Error = ValueError;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, ValueError> {
        panic!("it does not know what it contains")
    }

    fn deserialize_byte_buf<V: serde::de::Visitor<'de>>(
        self,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        BytesDeserializer::new(self.0).deserialize_byte_buf(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

proptest! {
    #[test]
    fn a_number_is_a_token_or_refused(bits in any::<u64>(), shift in 0..64_u32) {
        let number = bits >> shift;
        prop_assert_eq!(from_value::<FencingToken>(json!(number)).ok(), FencingToken::new(number));
    }

    #[test]
    fn any_bytes_survive(bytes in any::<Vec<u8>>()) {
        let owner = OwnerId::parse(&bytes);
        prop_assert_eq!(&from_str::<OwnerId>(&to_string(&owner).unwrap()).unwrap(), &owner);
        prop_assert_eq!(OwnerId::deserialize(Binary(&bytes)).unwrap(), owner);
        if let Ok(name) = LockName::new(&bytes) {
            prop_assert_eq!(&from_str::<LockName>(&to_string(&name).unwrap()).unwrap(), &name);
            prop_assert_eq!(LockName::deserialize(Binary(&bytes)).unwrap(), name);
        } else {
            prop_assert!(LockName::deserialize(Binary(&bytes)).is_err());
        }
    }
}

#[tokio::test]
async fn a_status_is_written_whole() -> Result<(), fairlock::Error> {
    let client = Client::connect("memory:").await?;
    let pool = client.semaphore("pool", 3);
    let permit = pool.acquire_many(2).await?;
    let status = to_value(pool.inspect().await?).unwrap();
    assert_eq!((&status["holding"], &status["used"]), (&json!(1), &json!(2)));
    assert_eq!(status["limits"], json!([3, 3]));
    let holder = &status["holders"][0];
    assert_eq!(holder["owner"], json!(permit.owner().to_string()));
    assert_eq!(holder["share"], json!({ "permits": { "n": 2, "limit": 3 } }));
    assert!(holder["ttl"]["secs"].is_u64() && status["at"]["secs_since_epoch"].is_u64());
    let id = client.id().to_string();
    assert_eq!(status["clients"][&id]["pid"], json!(std::process::id()));
    assert_eq!(to_value(pool.usage().await?).unwrap()["waiting"], json!(0));

    let guard = client.fair_lock("job").lock().await?;
    let turn = client.fair_lock("job").enqueue().await?;
    let status = to_value(client.fair_lock("job").inspect().await?).unwrap();
    assert_eq!(status["token"], json!(guard.token().get()));
    assert_eq!(
        (&status["queue"][0]["place"], &status["queue"][0]["alive"]),
        (&json!(1), &json!(true))
    );
    let mut locks = client.locks();
    let mut seen = Vec::new();
    while let Some(entries) = locks.next_page().await? {
        seen.extend(entries.into_iter().map(|entry| to_value(entry).unwrap()));
    }
    assert!(
        seen.iter().any(|it| it["name"] == "job" && it["kind"] == "fair" && it["held"] == true),
        "{seen:?}"
    );
    drop((permit, turn, guard));

    let election = client.election("scheduler");
    let term = election.campaign("http://10.0.0.7:8080").await?;
    let leader = to_value(election.leader().await?.expect("it leads")).unwrap();
    assert_eq!(leader["value"], "http://10.0.0.7:8080");
    assert_eq!(leader["term"], json!(term.token().get()));
    term.proclaim([0xff]).await?;
    assert_eq!(
        to_value(election.leader().await?.expect("it leads")).unwrap()["value"],
        json!([255])
    );
    Ok(())
}
