//! Everybody who may use the workspace may use its dependencies, too (F90).
//!
//! This does not check for known vulnerabilities: their list would have to be fetched anew each
//! time.

use serde_json::Value;
use std::process::Command;

/// Licenses that require no more than a copy of their text.
const FREE: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Where packages may come from, besides the workspace.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Stricter than the standard if AND and OR are combined without brackets.
fn is_free(license: &str) -> bool {
    let plain = license.replace(['(', ')'], " ").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|name| FREE.contains(&name.trim())))
}

fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8(output.stdout).unwrap())
}

/// All packages that are built on this system with all features. They have been built, so nothing
/// is fetched.
fn packages() -> Result<Vec<Value>, String> {
    let version = said("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let how = ["--locked", "--offline", "--all-features", "--format-version=1"];
    let mut arguments = vec!["metadata", "--filter-platform", host];
    arguments.extend(how);
    let text = said(option_env!("CARGO").unwrap_or("cargo"), &arguments)?;
    let all: Value = serde_json::from_str(&text).unwrap();
    Ok(all["packages"].as_array().unwrap().clone())
}

#[test]
fn f90_everybody_may_use_the_dependencies() {
    let packages = match packages() {
        Ok(packages) => packages,
        // Only one package may have been built, or the binary may run without cargo.
        Err(why) => {
            return fairlock_testkit::skip(&format!("cargo, to tell the dependencies: {why}"));
        }
    };
    println!("measured: {} packages", packages.len());
    assert!(packages.len() > 50, "{}", packages.len());
    for package in &packages {
        let (name, version) = (&package["name"], &package["version"]);
        let license = package["license"].as_str().unwrap_or("none");
        assert!(is_free(license), "{name} {version}: its license is `{license}`");
        let source = package["source"].as_str().unwrap_or(REGISTRY);
        assert_eq!(source, REGISTRY, "{name} {version}");
    }
}

#[test]
fn licenses_are_told_apart() {
    for free in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0"] {
        assert!(is_free(free), "{free}");
    }
    for other in ["none", "GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT OR ISC) AND AGPL-3.0", ""] {
        assert!(!is_free(other), "{other}");
    }
}
