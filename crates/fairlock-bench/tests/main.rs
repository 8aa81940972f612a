//! A small soak in every test run; `fairlock-bench soak` is the large one.

use std::process::Command;

/// Memory may grow by a megabyte, as in the large run; nothing else may be left.
#[test]
fn twenty_thousand_cycles_leave_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlock-bench"))
        .args(["soak", "20000"])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("memory: 20000 cycles"), "{said}");
}
