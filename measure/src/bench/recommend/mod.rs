//! Which contestant to choose: the fastest within limits of accuracy; of those that are as fast within the intervals, the
//! smallest.

#[cfg(test)]
mod tests;

use std::fmt;

use planish_artifact::evaluation::{Evaluation, Figure, Requirements};
use serde::{Deserialize, Serialize};

use super::document::{Cell, Status};
use super::ratio::Ratio;
use super::table::significant;

/// What one model's contestants come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The number of the rounds of the cells that it is of.
    pub rounds: usize,
    /// The contestant to choose; absent where none is within the limits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub choice: Option<Choice>,
    /// The limits of accuracy on data; absent where no accuracy on data is known, and only forms that compute in floats are
    /// considered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limits: Option<String>,
    /// The contestants that are not considered, and why, the fastest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused: Vec<Refused>,
}

/// The contestant to choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The artifact.
    pub id: String,
    /// The runtime.
    pub backend: String,
    /// The artifact that its speed is relative to.
    pub base: String,
    /// The runtime of that.
    pub base_backend: String,
    /// How many times as fast it is: the geometric mean over the shapes of both.
    pub speedup: f64,
    /// The 95% interval of that; absent where there are too few samples.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speedup_ci95: Option<[f64; 2]>,
    /// How many shapes that is of.
    pub shapes: usize,
    /// What it keeps on data, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub accuracy: Option<String>,
    /// The bytes of its files.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file_bytes: Option<u64>,
    /// Those that are as fast within the intervals, and not smaller.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ties: Vec<String>,
    /// The command that makes it, where it was compiled for the benchmark.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<String>,
}

/// A contestant that is not considered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The artifact.
    pub id: String,
    /// The runtime.
    pub backend: String,
    /// How many times as fast it is; absent where it was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speedup: Option<f64>,
    /// Why it is not considered.
    pub why: String,
}

/// The precisions of forms that are considered without accuracy on data: their outputs are those of the model but for rounding.
const FLOATS: [&str; 3] = ["f32", "fp16", "bf16"];

/// Sizes that differ by less than this factor are about the same.
const ABOUT_AS_SMALL: f64 = 1.02;

/// The limits unless told otherwise, of what an evaluation has.
fn usual(evaluation: &Evaluation) -> Requirements {
    let limits = match (evaluation.figure(Figure::Neighbours), &evaluation.perplexity, &evaluation.predictions) {
        (Some(_), ..) => "cos=0.99,neighbours=90",
        (None, Some(_), _) => "perplexity=1.02",
        (None, None, Some(_)) => "top1=98",
        (None, None, None) => "cos=0.99",
    };
    limits.parse().unwrap_or_default()
}

/// A contestant: its cells.
struct Contestant<'a> {
    id: &'a str,
    backend: &'a str,
    cells: Vec<&'a Cell>,
}

impl<'a> Contestant<'a> {
    /// How many times as fast it is as another one: the geometric mean over the shapes of both, and its interval.
    fn speedup(&self, base: &Self) -> Option<(Ratio, usize)> {
        let of_shape = |cell: &&Cell| {
            let same = |other: &&&Cell| other.workload == cell.workload && other.shape == cell.shape;
            Ratio::of_rounds(cell, base.cells.iter().find(same)?)
        };
        let ratios: Vec<Ratio> = self.cells.iter().filter_map(of_shape).collect();
        Some((Ratio::geometric_mean(&ratios)?, ratios.len()))
    }

    fn evaluation(&self) -> Option<&'a Evaluation> {
        self.cells.iter().find_map(|cell| cell.evaluation.as_ref())
    }

    fn bytes(&self) -> Option<u64> {
        self.cells.iter().filter_map(|cell| cell.model.file_bytes).max()
    }

    /// Why it is not considered, if it is not.
    fn refused(&self, limits: Option<&Requirements>) -> Option<String> {
        if let Some(cell) = self.cells.iter().find(|cell| cell.status != Status::Measured) {
            return Some(format!("{}: {}", cell.shape, cell.failure.as_deref().unwrap_or(cell.status_text())));
        }
        let Some(limits) = limits else {
            let is_float = self.cells.iter().all(|cell| FLOATS.contains(&cell.precision.as_str()));
            return (!is_float).then(|| "its accuracy on data is not known".to_owned());
        };
        let Some(evaluation) = self.evaluation() else { return Some("its accuracy on data is not known".to_owned()) };
        match limits.misses(evaluation) {
            Ok(misses) => (!misses.is_empty()).then(|| misses.join("; ")),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// What the cells of each model come to that has several contestants; `command` gives the command that makes one of them.
pub(super) fn recommend(
    cells: &[Cell],
    limits: Option<&Requirements>,
    command: impl Fn(&str) -> Option<String>,
) -> Vec<Recommendation> {
    let mut rounds: Vec<usize> = cells.iter().filter_map(|cell| cell.rounds).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let of_rounds = |rounds: usize| {
        let own = cells.iter().filter(|cell| cell.rounds == Some(rounds) && cell.status != Status::Unavailable);
        recommend_one(rounds, &contestants(own), limits, &command)
    };
    rounds.into_iter().filter_map(of_rounds).collect()
}

fn contestants<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<Contestant<'a>> {
    let mut all: Vec<Contestant<'a>> = Vec::new();
    for cell in cells {
        let (id, backend) = (cell.model.id.as_str(), cell.backend.as_str());
        match all.iter_mut().find(|of| of.id == id && of.backend == backend) {
            Some(of) => of.cells.push(cell),
            None => all.push(Contestant { id, backend, cells: vec![cell] }),
        }
    }
    all
}

fn recommend_one(
    rounds: usize,
    all: &[Contestant<'_>],
    limits: Option<&Requirements>,
    command: &impl Fn(&str) -> Option<String>,
) -> Option<Recommendation> {
    let is_measured = |of: &&Contestant<'_>| of.cells.iter().any(|cell| cell.status == Status::Measured);
    // Cells that were not finished, as after Ctrl-C, say nothing of which is the fastest.
    let is_open = all.iter().flat_map(|of| &of.cells).any(|cell| cell.status == Status::Unfinished);
    let base = all.iter().find(is_measured).filter(|_| !is_open && all.iter().filter(is_measured).count() > 1)?;
    let of_data = all.iter().find_map(Contestant::evaluation);
    let limits = of_data.map(|evaluation| limits.cloned().unwrap_or_else(|| usual(evaluation)));
    // An artifact that runs on several runtimes is named with the runtime.
    let runs_on_several = |id: &str| all.iter().filter(|of| of.id == id).count() > 1;
    let name = |id: &str, backend: &str| if runs_on_several(id) { format!("{id} ({backend})") } else { id.to_owned() };
    let (mut within, mut refused) = (Vec::new(), Vec::new());
    for of in all {
        let speedup = of.speedup(base);
        match (of.refused(limits.as_ref()), speedup) {
            (None, Some((ratio, _))) => within.push((of, ratio.value)),
            (why, speedup) => refused.push(Refused {
                id: of.id.to_owned(),
                backend: of.backend.to_owned(),
                speedup: speedup.map(|(ratio, _)| ratio.value),
                why: why.unwrap_or_else(|| "it has no shape in common with the first".to_owned()),
            }),
        }
    }
    refused.sort_by(|a, b| b.speedup.unwrap_or(0.0).total_cmp(&a.speedup.unwrap_or(0.0)));
    within.sort_by(|a, b| b.1.total_cmp(&a.1));
    let choice = within.first().map(|(fastest, _)| {
        let is_tie = |of: &Contestant<'_>| {
            let ratio = of.speedup(fastest).map(|(ratio, _)| ratio);
            // Without an interval nothing says that it is as fast.
            std::ptr::eq(of, *fastest) || ratio.is_some_and(|ratio| ratio.significant() == Some(false))
        };
        let ties: Vec<&Contestant<'_>> = within.iter().map(|(of, _)| *of).filter(|of| is_tie(of)).collect();
        let bytes = |of: &Contestant<'_>| of.bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
        let least = ties.iter().map(|of| bytes(of)).fold(f64::INFINITY, f64::min);
        // The first of those that are about as small is the fastest of them.
        let chosen = ties.iter().copied().find(|of| bytes(of) <= least * ABOUT_AS_SMALL).unwrap_or(fastest);
        let (speedup, shapes) = chosen.speedup(base).unwrap_or((Ratio { value: 1.0, ci95: None }, 0));
        Choice {
            id: chosen.id.to_owned(),
            backend: chosen.backend.to_owned(),
            base: base.id.to_owned(),
            base_backend: base.backend.to_owned(),
            speedup: speedup.value,
            speedup_ci95: speedup.ci95.filter(|_| !std::ptr::eq(chosen, base)),
            shapes,
            accuracy: chosen.evaluation().map(kept),
            file_bytes: chosen.bytes(),
            ties: ties.iter().filter(|of| !std::ptr::eq(**of, chosen)).map(|of| name(of.id, of.backend)).collect(),
            command: command(chosen.id),
        }
    });
    Some(Recommendation { rounds, choice, limits: limits.map(|of| of.to_string()), refused })
}

/// What an artifact keeps on data, in words, with the interval and the count.
fn kept(evaluation: &Evaluation) -> String {
    let share = |figure: Figure, of: &str, unit: &str| {
        let value = evaluation.figure(figure)?;
        let certainty = evaluation.certainty(figure);
        let ends = certainty.map(|([low, high], count)| format!(" (95% {low:.1} to {high:.1} %; {count} {unit})"));
        Some(format!("{value:.1} % of {of} kept{}", ends.unwrap_or_default()))
    };
    let perplexity = || {
        let of = evaluation.perplexity?;
        let ends = of.ratio_ci95.map(|[low, high]| format!(" (95% {low:.4} to {high:.4}; {} tokens)", of.tokens));
        Some(format!("{:.4} times the perplexity{}", of.ratio, ends.unwrap_or_default()))
    };
    let cosine = || {
        let cosine = evaluation.figure(Figure::Cosine).unwrap_or(f64::NAN);
        format!("cosine {cosine:.5} ({} samples)", evaluation.samples)
    };
    share(Figure::Neighbours, "neighbours", "samples")
        .or_else(perplexity)
        .or_else(|| share(Figure::Top1, "predictions", "predictions"))
        .unwrap_or_else(cosine)
}

impl Choice {
    /// Whether it is what speeds are relative to.
    fn is_base(&self) -> bool {
        (&self.id, &self.backend) == (&self.base, &self.base_backend)
    }

    /// Its name and that of the base, each with the runtime where they are the same artifact.
    pub(super) fn names(&self) -> [String; 2] {
        let of =
            |id: &str, backend: &str| if self.id == self.base { format!("{id} ({backend})") } else { id.to_owned() };
        [of(&self.id, &self.backend), of(&self.base, &self.base_backend)]
    }

    /// Its speed in words: `~` where it is not certain that it differs from the first.
    #[must_use]
    pub fn times(&self) -> String {
        let is_certain = self.speedup_ci95.is_some_and(|[low, high]| low > 1.0 || high < 1.0) || self.is_base();
        format!("{}{:.2}x", if is_certain { "" } else { "~" }, self.speedup)
    }
}

impl Recommendation {
    /// The rule by which the choice was made, in a sentence.
    #[must_use]
    pub fn rule(&self) -> String {
        format!("the fastest {}; the smallest of those as fast within the intervals", self.among())
    }

    /// Why a contestant is not considered, with its runtime where the artifact is there on several.
    fn refusal(&self, of: &Refused) -> String {
        let same = self.refused.iter().filter(|other| other.id == of.id).count();
        let is_chosen = self.choice.as_ref().is_some_and(|choice| choice.id == of.id || choice.base == of.id);
        let runtime = (same > 1 || is_chosen).then(|| of.backend.clone());
        let speedup = of.speedup.map(|speedup| format!("{speedup:.2}x"));
        let details: Vec<String> = runtime.into_iter().chain(speedup).collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        format!("{}{details}: {}", of.id, of.why)
    }

    /// What is considered.
    pub(super) fn among(&self) -> String {
        match &self.limits {
            Some(limits) => format!("within {limits} (--max-loss)"),
            None => "in floating point (no --data)".to_owned(),
        }
    }
}

impl fmt::Display for Recommendation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(of) = &self.choice else {
            write!(f, "choose none: no contestant is {}", self.among())?;
            return self.refused.iter().try_for_each(|of| write!(f, "\n  {}", self.refusal(of)));
        };
        if of.is_base() {
            write!(f, "choose {}: {}", of.id, of.times())?;
        } else {
            let [chosen, base] = of.names();
            write!(f, "choose {chosen}: {} as fast as {base}", of.times())?;
        }
        if of.shapes > 1 {
            write!(f, " in the mean of {} shapes", of.shapes)?;
        }
        of.accuracy.iter().try_for_each(|accuracy| write!(f, ", {accuracy}"))?;
        of.file_bytes.iter().try_for_each(|bytes| write!(f, ", {} MB", significant(*bytes as f64 / 1e6)))?;
        write!(f, "\n  the rule: {}", self.rule())?;
        if !of.ties.is_empty() {
            write!(f, "\n  as fast within the intervals, and not smaller: {}", of.ties.join(", "))?;
        }
        let mut faster = self.refused.iter().filter(|other| other.speedup.is_some_and(|speedup| speedup > of.speedup));
        faster.try_for_each(|of| write!(f, "\n  faster, and left out: {}", self.refusal(of)))?;
        of.command.iter().try_for_each(|command| write!(f, "\n  {command}"))
    }
}
