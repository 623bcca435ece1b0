//! A comparison in words, in Markdown.

use std::fmt;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::{CellDiff, CellId, Diff, Verdict};
use crate::bench::ratio::Ratio;
use crate::bench::table::significant;

const HEADER: [&str; 9] =
    ["artifact", "runtime", "prec", "cell", "before ms", "after ms", "change", "95% CI", "verdict"];

/// The place of the first column of numbers.
const NUMBERS: usize = 4;

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "before: {}; after: {}", self.a, self.b)?;
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(HEADER);
        self.cells.iter().for_each(|cell| _ = table.add_row(row(cell)));
        let numbers = table.column_iter_mut().skip(NUMBERS).take(HEADER.len() - NUMBERS - 1);
        numbers.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        writeln!(f, "{table}")?;
        for (name, only) in [(&self.a, &self.only_a), (&self.b, &self.only_b)] {
            only.iter().try_for_each(|id: &CellId| writeln!(f, "only in {name}: {}", id.text()))?;
        }
        writeln!(f, "{}", self.summary())
    }
}

impl Diff {
    /// How many cells changed.
    fn summary(&self) -> String {
        let count = |verdict| self.cells.iter().filter(|cell| cell.verdict == verdict).count();
        let mut text = format!(
            "{} cells in both; beyond {} and significant: {} slower, {} faster",
            self.cells.len(),
            percent(self.threshold),
            count(Verdict::Slower),
            count(Verdict::Faster),
        );
        let more = [
            (Verdict::Broken, "failed now and not before"),
            (Verdict::Unknown, "with too few samples for an interval"),
            (Verdict::NotMeasured, "without a speed in one of the two"),
        ];
        for (verdict, what) in more.into_iter().filter(|(verdict, _)| count(*verdict) > 0) {
            text += &format!("; {} {what}", count(verdict));
        }
        text
    }
}

fn row(cell: &CellDiff) -> [String; HEADER.len()] {
    let none = || "-".to_owned();
    let id = &cell.id;
    [
        // A bar would end the cell in Markdown.
        id.model.replace('|', "\\|"),
        id.runtime.clone(),
        id.precision.clone(),
        id.what.clone(),
        cell.a_ms.map_or_else(none, significant),
        cell.b_ms.map_or_else(none, significant),
        cell.ratio.map_or_else(none, |ratio| signed(ratio.value)),
        cell.ratio.and_then(|ratio| ratio.ci95).map_or_else(none, interval),
        match cell.verdict {
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::Same => "same",
            Verdict::Unknown => "unknown",
            Verdict::Broken => "failed",
            Verdict::NotMeasured => "-",
        }
        .to_owned(),
    ]
}

/// A ratio as a change in percent.
fn signed(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn interval([low, high]: [f64; 2]) -> String {
    format!("{} .. {}", signed(low), signed(high))
}

/// A change with its interval.
pub(super) fn change(ratio: &Ratio) -> String {
    let ends = ratio.ci95.map_or_else(String::new, |ends| format!(" (95% interval {})", interval(ends)));
    signed(ratio.value) + &ends
}

fn percent(share: f64) -> String {
    // Without the digits of rounding: 0.07 * 100 is not 7.
    format!("{} %", (share * 1e6).round() / 1e4)
}
