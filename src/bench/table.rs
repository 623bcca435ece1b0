//! The table of a benchmark, in Markdown.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::document::Cell;

const HEADER: [&str; 16] = [
    "artifact", "runtime", "prec", "part", "batch", "seq", "p50 ms", "±CI", "p90", "p99", "inf/s", "tok/s", "load ms",
    "load MB", "cos", "vs base",
];

/// The place of `part` in the header.
const PART: usize = 3;

/// The cells as a table.
/// `part` is a column where a model is run in several ways ([`CellShape`](super::CellShape)).
///
/// `vs base` is how many times as fast a cell is as the first artifact on its runtime at the same
/// shape, with `~` where the confidence intervals of the two medians do not lie apart. `±CI` is
/// half of that 95% interval. `load MB` is [`Memory::load_rss`](super::Memory::load_rss).
#[must_use]
pub fn table(cells: &[Cell]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let parts = cells.iter().any(|cell| cell.shape.part.is_some());
    let shown = |row: [String; HEADER.len()]| {
        let all = row.into_iter().enumerate();
        all.filter(move |(at, _)| parts || *at != PART).map(|(_, text)| text)
    };
    table.set_header(shown(HEADER.map(str::to_owned)));
    for cell in cells {
        table.add_row(shown(row(cell, cells)));
    }
    let numbers = table.column_iter_mut().skip(PART + usize::from(parts));
    numbers.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// What makes the latency of a cell uncertain: a line for each reason.
#[must_use]
pub fn remarks(cells: &[Cell]) -> Vec<String> {
    let all = cells.iter().flat_map(|cell| cell.warnings.iter().map(move |warning| (cell, warning)));
    all.map(|(cell, warning)| format!("{} ({}, {}): {warning}", cell.model.id, cell.backend, cell.shape)).collect()
}

fn row(cell: &Cell, cells: &[Cell]) -> [String; HEADER.len()] {
    let none = || "-".to_owned();
    let latency = cell.latency_ms.as_ref();
    let base = cells.first().and_then(|first| {
        let same = |c: &&Cell| c.model == first.model && c.backend == first.backend && c.shape == cell.shape;
        cells.iter().find(same)
    });
    let ratio = base.and_then(|base| {
        let (own, other) = (latency?, base.latency_ms.as_ref()?);
        let apart = |a: [f64; 2], b: [f64; 2]| a[1] < b[0] || b[1] < a[0];
        let known = std::ptr::eq(base, cell) || own.ci95.zip(other.ci95).is_some_and(|(a, b)| apart(a, b));
        Some(format!("{}{:.2}x", if known { "" } else { "~" }, other.p50 / own.p50))
    });
    let interval = latency.and_then(|l| l.ci95).map(|[low, high]| significant((high - low) / 2.0));
    [
        // A bar would end the cell in Markdown.
        cell.model.id.replace('|', "\\|"),
        cell.backend.clone(),
        cell.precision.clone(),
        cell.shape.part.clone().unwrap_or_else(none),
        cell.shape.batch.to_string(),
        cell.shape.seq.map_or_else(none, |seq| seq.to_string()),
        latency.map_or_else(|| "failed".to_owned(), |l| significant(l.p50)),
        interval.unwrap_or_else(none),
        latency.and_then(|l| l.p90).map_or_else(none, significant),
        latency.and_then(|l| l.p99).map_or_else(none, significant),
        cell.throughput.map_or_else(none, |t| significant(t.inf_s)),
        cell.throughput.and_then(|t| t.tok_s).map_or_else(none, |tokens| format!("{tokens:.0}")),
        format!("{:.0}", cell.load.ms),
        cell.memory.load_rss.map_or_else(none, |bytes| format!("{:.0}", bytes as f64 / 1e6)),
        cell.accuracy.map_or_else(none, |a| format!("{:.5}", a.cos)),
        ratio.unwrap_or_else(none),
    ]
}

/// Three significant digits, and all digits before the point.
pub(super) fn significant(value: f64) -> String {
    let digits = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::document::examples::cell;
    use crate::bench::{CellShape, DeviceLatency, device_table};

    #[test]
    fn the_first_artifact_is_the_base_at_each_shape() {
        let cells = [
            cell("a", 8, Some(100)),
            cell("b|c", 8, Some(40)),
            cell("d", 8, Some(101)),
            cell("a", 16, None),
            cell("b|c", 16, Some(5)),
        ];
        let expected = [
            r"| artifact | runtime | prec | batch | seq | p50 ms |    ±CI |  p90 | p99 | inf/s | tok/s | load ms | load MB |     cos | vs base |",
            r"|----------|---------|------|-------|-----|--------|--------|------|-----|-------|-------|---------|---------|---------|---------|",
            r"| a        | ort     | f32  |     2 |   8 |    100 |   1.50 |  108 |   - |  20.0 |   160 |      12 |     100 | 1.00000 |   1.00x |",
            r"| b\|c     | ort     | f32  |     2 |   8 |   40.0 |  0.600 | 43.2 |   - |  50.0 |   400 |      12 |      40 | 1.00000 |   2.50x |",
            r"| d        | ort     | f32  |     2 |   8 |    101 |   1.52 |  109 |   - |  19.8 |   158 |      12 |     101 | 1.00000 |  ~0.99x |",
            r"| a        | ort     | f32  |     2 |  16 | failed |      - |    - |   - |     - |     - |      12 |       - | 1.00000 |       - |",
            r"| b\|c     | ort     | f32  |     2 |  16 |   5.00 | 0.0750 | 5.40 |   - |   400 |  6400 |      12 |       5 | 1.00000 |       - |",
        ];
        assert_eq!(table(&cells).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn runs_of_a_model_are_told_apart() {
        let step = |id, ms| {
            let shape = CellShape { batch: 1, seq: Some(8), part: Some("step".to_owned()), tokens: Some(1), past: 8 };
            Cell { shape, ..cell(id, 8, ms) }
        };
        let mut cells = [cell("a", 8, Some(100)), step("a", Some(10)), step("b", Some(5)), step("c", None)];
        cells[1].warnings.push("too few runs".to_owned());
        let text = table(&cells);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(lines[0][3..7], ["prec", "part", "batch", "seq"]);
        assert_eq!((lines[2][4], lines[3][4], lines[4][4]), ("-", "step", "step"));
        assert_eq!((lines[3][16], lines[4][16]), ("1.00x", "2.00x"));
        assert_eq!(remarks(&cells), ["a (ort, step, 1 x 8): too few runs"]);
    }

    #[test]
    fn cells_on_a_device_have_a_table_of_their_own() {
        let run = |us| planish_runtimes::DeviceTimes {
            enqueue: Duration::from_micros(100),
            compute: Duration::from_micros(us),
            to_device: None,
            to_host: None,
            graph: true,
        };
        let device = DeviceLatency::of(&[run(1000), run(1010), run(1020)], Duration::from_millis(6));
        let cells = [cell("host", 8, Some(100)), Cell { device, ..cell("a|b", 8, Some(1)) }];
        let expected = [
            "Times by CUDA events, medians, without transfers, CUDA graphs:",
            r"| artifact | cell  | GPU compute ms |  p90 |  p99 | enqueue ms | H2D ms | D2H ms | latency ms | queries/s |",
            r"|----------|-------|----------------|------|------|------------|--------|--------|------------|-----------|",
            r"| a\|b     | 2 x 8 |           1.01 | 1.02 | 1.02 |      0.100 |      - |      - |       1.01 |       500 |",
        ];
        assert_eq!(device_table(&cells).unwrap().lines().collect::<Vec<_>>(), expected);
        assert_eq!(device_table(&cells[..1]), None);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [1234.5, 99.95, 12.34, 1.234, 0.1234, 0.01234].map(significant);
        assert_eq!(shown, ["1234", "100.0", "12.3", "1.23", "0.123", "0.0123"]);
    }
}
