//! Two documents of benchmarks next to each other: which cells became slower or faster, and how certain that is.

mod machines;
mod table;

use serde::Serialize;

use super::document::{Cell, CellShape, Document, Status, Workload};
use super::ratio::Ratio;
use super::report::view::{variant, what};
use super::table::significant;

pub(in crate::bench) use machines::differences;

/// The version of the form of a comparison in JSON.
pub const DIFF_SCHEMA: u32 = 2;

/// How two documents differ.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// [`DIFF_SCHEMA`].
    pub schema: u32,
    /// The names of the two documents, `a` the one before.
    pub a: String,
    /// The one after.
    pub b: String,
    /// The least change of a median that counts, as a share: 0.02 is 2%.
    pub threshold: f64,
    /// The cells of both, in the order of the first document.
    pub cells: Vec<CellDiff>,
    /// The cells that only the first document has.
    pub only_a: Vec<CellId>,
    /// The cells that only the second document has.
    pub only_b: Vec<CellId>,
    /// In what the machines and the conditions differ.
    pub warnings: Vec<String>,
}

/// Which cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellId {
    /// The artifact.
    pub model: String,
    /// The runtime.
    pub runtime: String,
    /// The precision it computes in.
    pub precision: String,
    /// What a run is.
    pub workload: Workload,
    /// What is run.
    pub shape: CellShape,
    /// How texts are put into batches, or what is generated; absent for other workloads.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// What is run, in words.
    #[serde(skip)]
    what: String,
}

/// A cell in both documents.
#[derive(Clone, Debug, Serialize)]
pub struct CellDiff {
    /// Which.
    #[serde(flatten)]
    pub id: CellId,
    /// The median latency before, in milliseconds; absent where there is no speed.
    pub a_ms: Option<f64>,
    /// That after.
    pub b_ms: Option<f64>,
    /// The second over the first: above 1 is slower; absent where one of the two has no speed.
    #[serde(flatten)]
    pub ratio: Option<Ratio>,
    /// What this comes to.
    pub verdict: Verdict,
    /// Why there is no speed after, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// What a comparison of two cells comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Significantly slower, by more than the threshold.
    Slower,
    /// Significantly faster, by more than the threshold.
    Faster,
    /// No significant change, or one within the threshold.
    Same,
    /// There are too few samples for an interval.
    Unknown,
    /// It had a speed, and now it failed.
    Broken,
    /// One of the two has no speed for another reason.
    NotMeasured,
}

impl Diff {
    /// Compares documents, each with its name; `threshold` is the least change that counts, as a share.
    #[must_use]
    pub fn of(a: (&str, &Document), b: (&str, &Document), threshold: f64) -> Self {
        let id = |cell: &Cell| CellId {
            model: cell.model.id.clone(),
            runtime: cell.backend.clone(),
            precision: cell.precision.clone(),
            workload: cell.workload,
            shape: cell.shape.clone(),
            variant: variant(cell),
            what: what(cell),
        };
        let ids = |document: &Document| document.cells.iter().map(id).collect::<Vec<CellId>>();
        let (ids_a, ids_b) = (ids(a.1), ids(b.1));
        let mut warnings = differences((a.0, &a.1.env), (b.0, &b.1.env));
        let (mut cells, mut only_a) = (Vec::new(), Vec::new());
        for (before, id) in a.1.cells.iter().zip(&ids_a) {
            // `what` is the same where all else is.
            match ids_b.iter().position(|other| other == id).and_then(|at| b.1.cells.get(at)) {
                Some(after) => {
                    warnings.extend(machines::conditions(id, before, after));
                    cells.push(compare(id.clone(), before, after, threshold));
                }
                None => only_a.push(id.clone()),
            }
        }
        let only_b = ids_b.into_iter().filter(|id| !ids_a.contains(id)).collect();
        let [a, b] = [a.0, b.0].map(str::to_owned);
        Self { schema: DIFF_SCHEMA, a, b, threshold, cells, only_a, only_b, warnings }
    }

    /// The cells that became slower or broke, each in a sentence.
    #[must_use]
    pub fn regressions(&self) -> Vec<String> {
        let bad = |of: &&CellDiff| matches!(of.verdict, Verdict::Slower | Verdict::Broken);
        self.cells.iter().filter(bad).map(CellDiff::sentence).collect()
    }
}

fn compare(id: CellId, a: &Cell, b: &Cell, threshold: f64) -> CellDiff {
    let ratio = a.latency_ms.as_ref().zip(b.latency_ms.as_ref()).and_then(|(a, b)| Ratio::of_runs(a, b));
    let verdict = match ratio {
        None if a.latency_ms.is_some() && b.status != Status::Measured => Verdict::Broken,
        None => Verdict::NotMeasured,
        Some(ratio) => match ratio.significant() {
            None => Verdict::Unknown,
            Some(true) if ratio.value > 1.0 + threshold => Verdict::Slower,
            Some(true) if ratio.value < 1.0 / (1.0 + threshold) => Verdict::Faster,
            Some(_) => Verdict::Same,
        },
    };
    let median = |cell: &Cell| cell.latency_ms.as_ref().map(|latency| latency.p50);
    CellDiff { id, a_ms: median(a), b_ms: median(b), ratio, verdict, failure: b.failure.clone() }
}

impl CellId {
    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} ({}, {}), {}", self.model, self.runtime, self.precision, self.what)
    }
}

impl CellDiff {
    /// What became of the cell.
    fn sentence(&self) -> String {
        let id = self.id.text();
        match (self.ratio, self.a_ms, self.b_ms) {
            (Some(ratio), Some(a), Some(b)) => {
                format!("{id}: {} ms, {} ms before; {}", significant(b), significant(a), table::change(&ratio))
            }
            _ => format!("{id}: it has no speed: {}", self.failure.as_deref().unwrap_or("no reason is given")),
        }
    }
}

#[cfg(test)]
mod tests;
