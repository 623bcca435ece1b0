//! Tests that cannot run on this machine.

use std::fs::OpenOptions;
use std::io::Write;
use std::thread;

/// Where [`skipped`] adds a line for each test, if the variable is set.
pub const SKIPPED_TESTS: &str = "PLANISH_SKIPPED_TESTS";

/// Says that the calling test, or a part of it, does not run on this machine, and why. `make test` counts and lists
/// what its tests said.
pub fn skipped(reason: &str) {
    let line = line(thread::current().name(), reason);
    eprint!("skipped: {line}");
    if let Some(file) = std::env::var_os(SKIPPED_TESTS) {
        // One write of a short line at the end of a file is not mixed with those of other processes.
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// The test harness names its threads after the tests.
fn line(test: Option<&str>, reason: &str) -> String {
    let reason: Vec<&str> = reason.split_whitespace().collect();
    format!("{}: {}\n", test.unwrap_or("?"), reason.join(" "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_skipped_test_has_one_line() {
        assert_eq!(super::line(Some("folders::a"), "mount failed:\n no\n"), "folders::a: mount failed: no\n");
    }
}
