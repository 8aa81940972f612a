//! `testing/redisson-methods.txt`, the methods that docs/redisson.md has to explain, is what the newest jar has.

use std::fs;
use std::path::Path;
use std::process::Command;

use fairlock_interop::version::Version;
use fairlock_testkit::server::workspace_root;

/// The interfaces of the lock family, their superinterfaces with methods for locks, and the class behind `getMultiLock`.
/// `RExpirable` and `RObject` are about keys.
const TYPES: [&str; 17] = [
    "org.redisson.api.RedissonClient",
    "java.util.concurrent.locks.Lock",
    "java.util.concurrent.locks.ReadWriteLock",
    "org.redisson.api.RObservable",
    "org.redisson.api.RObservableAsync",
    "org.redisson.api.RLock",
    "org.redisson.api.RLockAsync",
    "org.redisson.api.RFencedLock",
    "org.redisson.api.RFencedLockAsync",
    "org.redisson.api.RReadWriteLock",
    "org.redisson.api.RSemaphore",
    "org.redisson.api.RSemaphoreAsync",
    "org.redisson.api.RPermitExpirableSemaphore",
    "org.redisson.api.RPermitExpirableSemaphoreAsync",
    "org.redisson.api.RCountDownLatch",
    "org.redisson.api.RCountDownLatchAsync",
    "org.redisson.RedissonMultiLock",
];

/// What a method of `RedissonClient` returns that belongs to the family.
const FAMILY: [&str; 7] = [
    "RLock",
    "RFencedLock",
    "RReadWriteLock",
    "RSemaphore",
    "RPermitExpirableSemaphore",
    "RCountDownLatch",
    "RRateLimiter",
];

const HEAD: &str = "\
# The public methods of the lock family of Redisson 4.7.0, as javap lists them: type.method(parameters).
# docs/redisson.md explains each; a test there reads this file, and one of fairlock-interop compares it with the jar.
";

/// The types without their packages.
fn short(text: &str) -> String {
    let mut short = String::new();
    let mut word = String::new();
    for c in text.chars().chain(Some(' ')) {
        if c.is_alphanumeric() || "._$".contains(c) {
            word.push(c);
            continue;
        }
        let dots = word.len() - word.trim_end_matches('.').len();
        let name = word.trim_end_matches('.');
        short.push_str(name.rsplit('.').next().unwrap_or_default());
        short.push_str(&".".repeat(dots));
        short.push(c);
        word.clear();
    }
    short.trim_end().to_owned()
}

/// `type.method(parameters)` of each method that javap shows of a type.
fn methods(jars: &Path, of: &str) -> Vec<String> {
    let mut javap = Command::new("javap");
    javap.arg("-public").arg("-cp").arg(jars).arg(of);
    let output = javap.output().expect("a JDK has javap");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let name = of.rsplit('.').next().unwrap_or_default();
    let mut methods = Vec::new();
    for line in text.lines().filter(|line| line.contains('(')) {
        let line = short(line.trim());
        let (before, rest) = line.split_once('(').expect("it has one");
        let parameters = rest.split_once(')').expect("it ends").0;
        let mut words = before.split(' ').rev();
        let (method, returned) = (words.next().unwrap_or_default(), words.next());
        let is_constructor = method == name;
        let is_other = name == "RedissonClient"
            && !returned.is_some_and(|returned| FAMILY.contains(&returned));
        if !is_constructor && !is_other {
            methods.push(format!("{name}.{method}({parameters})"));
        }
    }
    assert!(!methods.is_empty(), "{of}");
    methods.sort();
    // A method of a generic superinterface is listed twice.
    methods.dedup();
    methods
}

#[test]
fn the_recorded_methods_are_those_of_the_jar() {
    let Some(folder) = Version::V4_7.require() else { return };
    let jar = folder.join("jars/redisson-4.7.0.jar");
    let lines: Vec<_> = TYPES.iter().flat_map(|of| methods(&jar, of)).collect();
    let text = format!("{HEAD}{}\n", lines.join("\n"));
    let recorded = workspace_root().join("testing/redisson-methods.txt");
    if fs::read_to_string(&recorded).unwrap_or_default() != text {
        let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redisson-methods.txt");
        fs::write(&found, text).unwrap();
        panic!(
            "the jar has other methods; compare, and if that is right: cp {} {}",
            found.display(),
            recorded.display()
        );
    }
}
