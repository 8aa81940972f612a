//! Arbitrary URLs: each gives a configuration or an error, and neither shows a password.

use crate::Config;
use fairlock_testkit::fuzz::texts;

/// Every scheme and every option.
const URLS: [&str; 14] = [
    "redis://h",
    "redis://ann:CANARY@db.example:6380/3?replicas=2&replicas-timeout-ms=500",
    "valkey://:CANARY@127.0.0.1:1/15",
    "rediss://ann:CANARY@[::1]:6380/0?ca=/ca.pem&cert=/c.pem&key=/k.pem&server-name=x",
    "redis+sentinel://ann:CANARY@a:1,b:2,[::1]/main/2?sentinel-username=s&sentinel-password=CANARY",
    "rediss+sentinel://a/main",
    "redis+cluster://ann:CANARY@a:1,b:2?sharded-pubsub=never",
    "unix:/run/redis.sock?db=3&user=ann&password=CANARY",
    "redis://h?password-file=/run/secret&username=ann",
    "redis://h?password-env=LOCKS&on-eviction=refuse",
    "sqlite:/var/lib/locks?shared=group",
    "memory:",
    "redis://%C3%A4:CANARY%40@h",
    "redis://h:65536/99999999999#x",
];

#[test]
fn urls() {
    texts("urls", 20_000, &URLS, |url| {
        let told = match Config::from_url(url) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        // Only where the canary still stands as a password: a mutation may have moved it into the
        // path or the host.
        let begins = ["redis://ann:CANARY@", "valkey://:CANARY@", "rediss://ann:CANARY@"];
        let secret = begins.iter().any(|begin| url.starts_with(begin));
        let elsewhere = url.matches("CANARY").count() > 1;
        assert!(!secret || elsewhere || !told.contains("CANARY"), "{url}: {told}");
        assert!(told.len() < 4_000 + 8 * url.len(), "{} bytes about {}", told.len(), url.len());
    });
}
