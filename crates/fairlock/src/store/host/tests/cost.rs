use super::bed::*;
use fairlock_core::Body;
use std::time::Instant;

#[test]
fn pairs() {
    let bed = Bed::new();
    let mut file = bed.open();
    const N: u32 = 20_000;
    let start = Instant::now();
    for _ in 0..N {
        let token = take(&mut file, "job", 1);
        assert_eq!(body(&mut file, "job", &release(1, token)), Body::Released);
    }
    let took = start.elapsed();
    println!("measured: {:?} for a pair, {:.0}/s", took / N, f64::from(N) / took.as_secs_f64());
}
