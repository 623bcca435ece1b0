//! Error messages for names that do not exist.

/// How many names a message lists.
pub(super) const LISTED: usize = 5;

/// Says that a name is not there, and which ones are closest to it.
pub(super) fn unknown<'a>(kind: &str, name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut close: Vec<(usize, &str)> = names.filter(|n| !n.is_empty()).map(|n| (distance(name, n), n)).collect();
    close.sort_unstable();
    close.dedup();
    close.truncate(LISTED);
    let close: Vec<String> = close.iter().map(|(_, name)| format!("`{name}`")).collect();
    let close = if close.is_empty() { "there is none".to_owned() } else { format!("close: {}", close.join(", ")) };
    format!("there is no {kind} `{name}`; {close}")
}

/// How far a name is from what was asked for: the edits of single bytes that make one the other (Levenshtein),
/// where neither is part of the other.
fn distance(a: &str, b: &str) -> usize {
    if !a.is_empty() && (b.contains(a) || a.contains(b)) {
        return 0;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (corner + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            corner = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        for (a, b, expected) in [("kitten", "sitting", 3), ("ids", "ids", 0), ("abc", "xyz", 3), ("ab", "ba", 2)] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn close_names_come_first() {
        let names = ["attention_mask", "token_type_ids", "input_ids"];
        let message = unknown("input", "input_idz", names.into_iter());
        assert!(message.starts_with("there is no input `input_idz`; close: `input_ids`, "), "{message}");
    }
}
