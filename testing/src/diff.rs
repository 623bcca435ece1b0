//! Differences between texts.

use similar::TextDiff;

/// How many equal lines are shown around lines that differ.
const CONTEXT: usize = 3;

/// The lines in which two texts differ, as `diff -u` prints them; empty where the texts are equal.
#[must_use]
pub fn unified_diff(expected: &str, found: &str) -> String {
    TextDiff::from_lines(expected, found).unified_diff().context_radius(CONTEXT).header("expected", "found").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_stand_among_equal_ones() {
        let text = |changed: &str| -> String {
            (0..9).map(|i| if i == 5 { changed.to_owned() } else { format!("{i}\n") }).collect()
        };
        let (a, b) = (text("five\n"), text("fünf\n"));
        let expected = "--- expected\n+++ found\n@@ -3,7 +3,7 @@\n 2\n 3\n 4\n-five\n+fünf\n 6\n 7\n 8\n";
        assert_eq!(unified_diff(&a, &b), expected);
        assert_eq!(unified_diff(&a, &a), "");
        assert!(unified_diff("a\n", "a").contains("\\ No newline at end of file"));
    }
}
