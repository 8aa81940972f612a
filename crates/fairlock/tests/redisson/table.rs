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
        assert!(is_test(&format!("{module}::ours_does_not")), "{module}");
        let by_rules = is_test(&format!("{module}::redisson_fails"));
        match names(&row[3])[..] {
            [] => assert!(by_rules, "nothing shows the failure of {module}"),
            [jars] => assert!(is_test(jars) && !by_rules, "{jars} alone shows it"),
            _ => panic!("one test with the jars: {row:?}"),
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
