//! The columns of a benchmark's table.

use planish_artifact::evaluation::{Evaluation, Figure};

use super::document::{Cell, Status};
use super::ratio::Ratio;
use super::table::significant;

/// When a column is in the narrow table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It is always there, where it has something and differs between rows.
    Needed,
    /// It is there as far as there is room; a lower number comes first.
    Wanted(u8),
    /// It is in the wide table only.
    Wide,
}

use Rank::{Needed, Wanted, Wide};

/// A column: its name, its rank, whether it is words, and what it has of a cell, among all of them.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) rank: Rank,
    pub(super) is_words: bool,
    pub(super) text: fn(&Cell, &[Cell]) -> Option<String>,
}

const fn words(name: &'static str, rank: Rank, text: fn(&Cell, &[Cell]) -> Option<String>) -> Column {
    Column { name, rank, is_words: true, text }
}

const fn number(name: &'static str, rank: Rank, text: fn(&Cell, &[Cell]) -> Option<String>) -> Column {
    Column { name, rank, is_words: false, text }
}

/// The name of the column of names, which is shortened where it is long.
pub(super) const ARTIFACT: &str = "artifact";
/// The names of columns that are in every table, also where all rows have one value.
pub(super) const ALWAYS: [&str; 3] = [ARTIFACT, MEDIAN, SPEEDUP];
const MEDIAN: &str = "p50 ms ±CI";
const SPEEDUP: &str = "vs base";

/// All columns in their order.
pub(super) const COLUMNS: [Column; 32] = [
    // A bar would end the cell in Markdown.
    words(ARTIFACT, Needed, |cell, _| Some(cell.model.id.replace('|', "\\|").replace('\n', "\\n"))),
    words("runtime", Needed, |cell, _| Some(cell.backend.clone())),
    words("prec", Wanted(5), |cell, _| Some(cell.precision.clone())),
    words("part", Needed, |cell, _| cell.shape.part.clone()),
    number("batch", Needed, |cell, _| Some(cell.shape.batch.to_string())),
    number("seq", Needed, |cell, _| cell.shape.seq.map(|seq| seq.to_string())),
    number(MEDIAN, Needed, |cell, _| match (&cell.latency_ms, cell.status) {
        (Some(latency), _) => {
            let half = latency.ci95.map(|[low, high]| format!(" ±{}", significant((high - low) / 2.0)));
            Some(significant(latency.p50) + &half.unwrap_or_default())
        }
        (None, Status::Unavailable) => Some("unavailable".to_owned()),
        (None, Status::Unfinished) => Some("not finished".to_owned()),
        (None, Status::Failed | Status::Measured) => Some("failed".to_owned()),
    }),
    number(SPEEDUP, Needed, speedup),
    number("no graph ms", Wanted(3), |cell, _| cell.without_graph_ms.map(significant)),
    number("p90", Wide, |cell, _| cell.latency_ms.as_ref()?.p90.map(significant)),
    number("p99", Wide, |cell, _| cell.latency_ms.as_ref()?.p99.map(significant)),
    number("inf/s", Wanted(6), |cell, _| Some(significant(cell.throughput?.inf_s))),
    number("tok/s", Wanted(4), |cell, _| Some(format!("{:.0}", cell.throughput?.tok_s?))),
    number("padding", Wanted(1), |cell, _| {
        Some(percent(1.0 - cell.padding?.real as f64 / cell.padding?.padded.max(1) as f64))
    }),
    number("new", Wanted(7), |cell, _| Some(cell.generation?.new_tokens.to_string())),
    number("first ms", Wanted(1), |cell, _| Some(significant(cell.generation?.ttft_ms))),
    number("ms/token", Wanted(1), |cell, _| Some(significant(cell.generation?.tpot_ms))),
    number("TFLOP/s", Wide, |cell, _| Some(significant(cell.roofline?.tflops))),
    number("MFU", Wide, |cell, _| Some(percent(cell.roofline?.mfu))),
    number("roof", Wide, |cell, _| Some(percent(cell.roofline?.share))),
    number("J", Wide, |cell, _| Some(significant(cell.energy?.joules))),
    number("file MB", Wanted(1), |cell, _| Some(format!("{:.1}", cell.model.file_bytes? as f64 / 1e6))),
    number("load ms", Wanted(8), |cell, _| Some(format!("{:.0}", cell.load.ms)).filter(|_| cell.load.ms > 0.0)),
    number("read MB", Wanted(2), |cell, _| Some(format!("{:.1}", cell.load.read_bytes? as f64 / 1e6))),
    number("load MB", Wanted(9), |cell, _| Some(format!("{:.0}", cell.memory.load_rss? as f64 / 1e6))),
    number("peak MB", Wanted(3), |cell, _| Some(format!("{:.0}", cell.memory.peak_rss? as f64 / 1e6))),
    number("neighbours kept", Wanted(0), |cell, _| share(cell, Figure::Neighbours)),
    number("top-1 kept", Wanted(1), |cell, _| share(cell, Figure::Top1)),
    number("perplexity (ratio)", Wanted(0), |cell, _| {
        let of = cell.evaluation.as_ref()?.perplexity?;
        Some(format!(
            "{} ({:.4}{})",
            significant(of.artifact),
            of.ratio,
            ends(of.ratio_ci95.map(|ci95| (ci95, of.ratio)), 4)
        ))
    }),
    number("cosine on data", Wanted(2), |cell, cells| {
        let of = cell.evaluation.as_ref()?;
        let cosine = of.figure(Figure::Cosine).filter(|_| compares_on_data(cells))?;
        Some(format!("{cosine:.5}{}", ends(of.certainty(Figure::Cosine).map(|(ci95, _)| (ci95, cosine)), 5)))
    }),
    number("KL", Wide, |cell, _| Some(format!("{:.2e}", cell.evaluation.as_ref()?.predictions?.mean_divergence))),
    // One cosine is enough: that on random tokens is left to the wide table where there is one on data.
    number("cosine, random input", Wanted(2), |cell, _| Some(format!("{:.5}", cell.accuracy?.cos))),
];

/// The columns of the narrow table that are not of cells with accuracy on data.
pub(super) fn is_left_to_data(column: &Column, cells: &[Cell]) -> bool {
    column.name == "cosine, random input" && compares_on_data(cells)
}

fn compares_on_data(cells: &[Cell]) -> bool {
    cells.iter().any(|cell| cell.evaluation.is_some())
}

/// Half of an interval, where it is that wide that its digits show it.
fn ends(interval: Option<([f64; 2], f64)>, digits: usize) -> String {
    let half = interval.map(|([low, high], value)| (high - value).max(value - low));
    half.map_or_else(String::new, |half| format!(" ±{half:.digits$}"))
}

/// A share in %, with the ends of its interval.
fn share(cell: &Cell, figure: Figure) -> Option<String> {
    let evaluation: &Evaluation = cell.evaluation.as_ref()?;
    let value = evaluation.figure(figure)?;
    let ends = evaluation.certainty(figure).map(|([low, high], _)| format!(" ({low:.0}-{high:.0})"));
    Some(format!("{value:.1}%{}", ends.unwrap_or_default()))
}

/// How many times as fast a cell is as the first artifact at the same shape.
fn speedup(cell: &Cell, cells: &[Cell]) -> Option<String> {
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
