//! Every test that docs/redisson-tests.md names exists.

use crate::named::{is_test, names, page, rows};

/// How many failures the page must list, and how many of Redisson's tests.
const FAILURES: usize = 18;
const TESTS: usize = 40;
/// How many tests beside the real jars it must name.
const MEASURED: usize = 7;

/// Those of what we do not have: a stored number of permits.
const WITHOUT: [usize; 1] = [38];

#[test]
fn every_test_that_is_named_exists() {
    let page = page("redisson-tests.md");
    let failures = rows(&page, "Failures");
    assert_eq!(failures.len(), FAILURES);
    for row in &failures {
        let [module] = names(&row[2])[..] else { panic!("one module: {row:?}") };
        for half in ["redisson_fails", "ours_does_not"] {
            assert!(is_test(&format!("{module}::{half}")), "{module}::{half}");
        }
    }
    let measured = page.split("\n## Measured with the jars\n").nth(1).unwrap();
    let measured = names(measured.split("\n## ").next().unwrap());
    let measured: Vec<_> = measured.into_iter().filter(|name| name.contains("::")).collect();
    assert_eq!(measured.len(), MEASURED);
    for name in measured {
        assert!(is_test(name), "there is no test {name}");
    }
    let tests = rows(&page, "Tests");
    for (number, row) in (1..).zip(&tests) {
        assert_eq!(row[0], number.to_string(), "{row:?}");
        let ours = names(&row[2]);
        assert_eq!(ours.is_empty(), WITHOUT.contains(&number), "{row:?}");
        for name in ours {
            assert!(is_test(name), "{number}: there is no test {name}");
        }
    }
    assert_eq!(tests.len(), TESTS);
}
