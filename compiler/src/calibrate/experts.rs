//! What a calibration tells of mixtures of experts.

use planish_passes::CalibrationTable;

/// How many mixtures, and how many experts of each, a warning names.
const NAMED: usize = 4;

/// That no token took some experts, if so: their weights have no data.
#[must_use]
pub fn unused_experts(table: &CalibrationTable) -> Option<String> {
    let all =
        table.experts().flat_map(|(_, results)| results.iter().map(|(result, counts)| (result.as_str(), &counts[..])));
    of_counts(all)
}

/// The same of counts by the names of what mixtures give.
pub(super) fn of_counts<'a>(all: impl Iterator<Item = (&'a str, &'a [u64])>) -> Option<String> {
    let (mut experts, mut unused) = (0, 0);
    let mut named = Vec::new();
    for (result, counts) in all {
        let none: Vec<String> = (0..counts.len()).filter(|e| counts[*e] == 0).map(|e| e.to_string()).collect();
        (experts, unused) = (experts + counts.len(), unused + none.len());
        if !none.is_empty() {
            let more = if none.len() > NAMED { ", ..." } else { "" };
            named.push(format!("`{result}` {}{more}", none[..none.len().min(NAMED)].join(", ")));
        }
    }
    let more = if named.len() > NAMED { "; ..." } else { "" };
    (unused > 0).then(|| {
        format!(
            "no token of the data took {unused} of {experts} experts ({}{more}); give more data to measure what all experts take",
            named[..named.len().min(NAMED)].join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_without_tokens_are_named() {
        let table = |counts: &[&[u64]]| {
            let mut table = CalibrationTable::default();
            for (layer, counts) in counts.iter().enumerate() {
                table.record_choices("model", &format!("layer.{layer}"), counts).unwrap();
            }
            table
        };
        assert_eq!(unused_experts(&CalibrationTable::default()), None);
        assert_eq!(unused_experts(&table(&[&[1, 2], &[5, 1]])), None);
        let expected = "no token of the data took 2 of 5 experts (`layer.1` 0, 2); give more data to measure what all experts take";
        assert_eq!(unused_experts(&table(&[&[1, 2], &[0, 1, 0]])).as_deref(), Some(expected));
        let many = unused_experts(&table(&[&[0; 6]])).unwrap();
        assert!(many.contains("took 6 of 6 experts (`layer.0` 0, 1, 2, 3, ...)"), "{many}");
    }
}
