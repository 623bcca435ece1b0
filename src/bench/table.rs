//! The table of a benchmark, in Markdown.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use super::document::{Cell, Status};
use super::ratio::Ratio;

/// A column: its header, and what it has of a cell, among all of them.
type Column = (&'static str, fn(&Cell, &[Cell]) -> Option<String>);

/// The columns that say what a cell is.
const KEYS: [Column; 6] = [
    // A bar would end the cell in Markdown.
    ("artifact", |cell, _| Some(cell.model.id.replace('|', "\\|"))),
    ("runtime", |cell, _| Some(cell.backend.clone())),
    ("prec", |cell, _| Some(cell.precision.clone())),
    ("part", |cell, _| cell.shape.part.clone()),
    ("batch", |cell, _| Some(cell.shape.batch.to_string())),
    ("seq", |cell, _| cell.shape.seq.map(|seq| seq.to_string())),
];

/// The columns of figures.
const FIGURES: [Column; 26] = [
    ("p50 ms", |cell, _| match (&cell.latency_ms, cell.status) {
        (Some(latency), _) => Some(significant(latency.p50)),
        (None, Status::Unavailable) => Some("unavailable".to_owned()),
        (None, Status::Unfinished) => Some("not finished".to_owned()),
        (None, Status::Failed | Status::Measured) => Some("failed".to_owned()),
    }),
    ("±CI", |cell, _| cell.latency_ms.as_ref()?.ci95.map(|[low, high]| significant((high - low) / 2.0))),
    ("p90", |cell, _| cell.latency_ms.as_ref()?.p90.map(significant)),
    ("p99", |cell, _| cell.latency_ms.as_ref()?.p99.map(significant)),
    ("inf/s", |cell, _| Some(significant(cell.throughput?.inf_s))),
    ("tok/s", |cell, _| Some(format!("{:.0}", cell.throughput?.tok_s?))),
    ("padding", |cell, _| Some(percent(1.0 - cell.padding?.real as f64 / cell.padding?.padded.max(1) as f64))),
    ("new", |cell, _| Some(cell.generation?.new_tokens.to_string())),
    ("first ms", |cell, _| Some(significant(cell.generation?.ttft_ms))),
    ("ms/token", |cell, _| Some(significant(cell.generation?.tpot_ms))),
    ("TFLOP/s", |cell, _| Some(significant(cell.roofline?.tflops))),
    ("MFU", |cell, _| Some(percent(cell.roofline?.mfu))),
    ("roof", |cell, _| Some(percent(cell.roofline?.share))),
    ("J", |cell, _| Some(significant(cell.energy?.joules))),
    ("file MB", |cell, _| Some(format!("{:.1}", cell.model.file_bytes? as f64 / 1e6))),
    ("load ms", |cell, _| Some(format!("{:.0}", cell.load.ms)).filter(|_| cell.load.ms > 0.0)),
    ("read MB", |cell, _| Some(format!("{:.1}", cell.load.read_bytes? as f64 / 1e6))),
    ("load MB", |cell, _| Some(format!("{:.0}", cell.memory.load_rss? as f64 / 1e6))),
    ("peak MB", |cell, _| Some(format!("{:.0}", cell.memory.peak_rss? as f64 / 1e6))),
    ("cos", |cell, _| Some(format!("{:.5}", cell.accuracy?.cos))),
    ("data cos", |cell, _| {
        let evaluation = cell.evaluation.as_ref()?;
        let of_logits = evaluation.predictions.as_ref().map(|of| of.mean_cosine);
        evaluation.embeddings.as_ref().map(|of| of.mean_cosine).or(of_logits).map(|cosine| format!("{cosine:.5}"))
    }),
    ("neighbours", |cell, _| Some(format!("{:.1}%", cell.evaluation.as_ref()?.embeddings?.neighbours_kept?))),
    ("top-1", |cell, _| Some(format!("{:.1}%", cell.evaluation.as_ref()?.predictions?.top1_agreement))),
    ("KL", |cell, _| Some(format!("{:.2e}", cell.evaluation.as_ref()?.predictions?.mean_divergence))),
    ("perplexity", |cell, _| Some(format!("{:.4}", cell.evaluation.as_ref()?.perplexity?.artifact))),
    ("vs base", |cell, cells| ratio(cell, cells)),
];

/// The cells as a table. A column that has nothing of any cell is left out.
///
/// `vs base` is how many times as fast a cell is as the first artifact on its runtime at the same
/// shape, with `~` where the interval of that contains 1. `±CI` is
/// half of that 95% interval. `load MB` is [`Memory::load_rss`](super::Memory::load_rss).
#[must_use]
pub fn table(cells: &[Cell]) -> String {
    let text = |(_, of): &Column| cells.iter().map(|cell| of(cell, cells)).collect::<Vec<_>>();
    let columns: Vec<(&Column, Vec<Option<String>>)> = KEYS.iter().chain(&FIGURES).map(|c| (c, text(c))).collect();
    let shown: Vec<_> = columns.iter().filter(|(_, texts)| texts.iter().any(Option::is_some)).collect();
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(shown.iter().map(|((name, _), _)| *name));
    for at in 0..cells.len() {
        table.add_row(shown.iter().map(|(_, texts)| texts[at].clone().unwrap_or_else(|| "-".to_owned())));
    }
    let left = shown.iter().filter(|((name, _), _)| KEYS[..4].iter().any(|(key, _)| key == name)).count();
    table.column_iter_mut().skip(left).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// How many times as fast a cell is as the first artifact at the same shape.
fn ratio(cell: &Cell, cells: &[Cell]) -> Option<String> {
    let first = cells.first()?;
    let same = |c: &&Cell| c.model.id == first.model.id && c.backend == first.backend && c.shape == cell.shape;
    let base = cells.iter().find(same)?;
    let ratio = Ratio::of_rounds(cell, base)?;
    let known = std::ptr::eq(base, cell) || ratio.significant() == Some(true);
    Some(format!("{}{:.2}x", if known { "" } else { "~" }, ratio.value))
}

fn percent(share: f64) -> String {
    format!("{}%", significant(share * 100.0))
}

/// What makes the latency of a cell uncertain: a line for each reason.
#[must_use]
pub fn remarks(cells: &[Cell]) -> Vec<String> {
    let all = cells.iter().flat_map(|cell| cell.warnings.iter().map(move |warning| (cell, warning)));
    all.map(|(cell, warning)| format!("{} ({}, {}): {warning}", cell.model.id, cell.backend, cell.shape)).collect()
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
        let mut cells = [
            cell("a", 8, Some(100)),
            cell("b|c", 8, Some(40)),
            cell("d", 8, Some(101)),
            cell("a", 16, None),
            cell("b|c", 16, Some(5)),
        ];
        // Its times differ between rounds by more than the medians do.
        cells[2].samples_ns.sort_unstable();
        let expected = [
            r"| artifact | runtime | prec | batch | seq | p50 ms |    ±CI |  p90 | inf/s | tok/s | load ms | load MB |     cos | vs base |",
            r"|----------|---------|------|-------|-----|--------|--------|------|-------|-------|---------|---------|---------|---------|",
            r"| a        | ort     | f32  |     2 |   8 |    100 |   1.50 |  108 |  20.0 |   160 |      12 |     100 | 1.00000 |   1.00x |",
            r"| b\|c     | ort     | f32  |     2 |   8 |   40.0 |  0.600 | 43.2 |  50.0 |   400 |      12 |      40 | 1.00000 |   2.50x |",
            r"| d        | ort     | f32  |     2 |   8 |    101 |   1.52 |  109 |  19.8 |   158 |      12 |     101 | 1.00000 |  ~0.99x |",
            r"| a        | ort     | f32  |     2 |  16 | failed |      - |    - |     - |     - |      12 |       - | 1.00000 |       - |",
            r"| b\|c     | ort     | f32  |     2 |  16 |   5.00 | 0.0750 | 5.40 |   400 |  6400 |      12 |       5 | 1.00000 |       - |",
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
        assert_eq!((lines[3][15], lines[4][15]), ("1.00x", "2.00x"));
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
