//! What entrants lose on data.

use std::cell::RefCell;

use anyhow::Result;
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::evaluation::Evaluation;
use planish_artifact::split::Split;
use planish_check::evaluate::{EvaluateOptions, Reference, evaluate_compiled};

use super::groups::{Group, Member};
use super::watching::Watching;
use super::{BenchObserver, BenchOptions, Cell, Contest};

impl Contest {
    /// Compares entrants of one model with it on data. What goes wrong is said of their cells.
    pub(super) fn evaluate(
        &self,
        group: &Group<'_>,
        options: &BenchOptions,
        cells: &mut [Cell],
        observer: &mut dyn BenchObserver,
    ) {
        let Some((data, how)) = &self.data else { return };
        let mut reference = Reference::of_several();
        let watching = Watching(RefCell::new(observer));
        for Member { entrant, places, .. } in &group.members {
            for (runtime, make) in places {
                if watching.0.borrow().is_ended() {
                    return;
                }
                watching.0.borrow_mut().step(&format!("comparing {} on data", entrant.label));
                let settings = RuntimeSettings { runtime: Some(*make), ..self.settings.clone() };
                let how =
                    EvaluateOptions { data: how.clone(), threads: options.threads, settings, ..Default::default() };
                let artifact = &entrant.artifact;
                let source = (&group.model, &group.loaded);
                let evaluation = evaluate_compiled(artifact, source, &mut reference, data, &how, &watching);
                let own = |cell: &&mut Cell| cell.model.id == entrant.label && cell.backend == runtime.name();
                for cell in cells.iter_mut().filter(own) {
                    note_evaluation(cell, &evaluation);
                }
            }
        }
    }
}

/// The samples, or predictions, below which an interval is too wide to tell forms apart that differ by some percent.
const ENOUGH: u64 = 100;

/// The same for tokens of a language model, whose losses vary more.
const ENOUGH_TOKENS: u64 = 1000;

/// Why an evaluation says little, where it is of few samples.
fn few(evaluation: &Evaluation) -> Option<String> {
    let (count, enough, of) = match (&evaluation.perplexity, &evaluation.predictions) {
        (Some(of), _) => (of.tokens, ENOUGH_TOKENS, "tokens"),
        (None, Some(of)) => (of.count, ENOUGH, "predictions"),
        (None, None) => (evaluation.samples as u64, ENOUGH, "samples"),
    };
    let more = match evaluation.split {
        Split::HeldOut => {
            "every fifth sample of --data is held out; --set calibrate=FILE with other data leaves all of them for the comparison"
        }
        Split::All | Split::Rest => "name more with --data",
    };
    (count < enough).then(|| {
        format!("accuracy on data is of {count} {of} only, and {enough} are needed to tell forms apart that are close: {more}")
    })
}

/// What the warning begins with of a cell that was measured and could not be evaluated.
pub const UNEVALUATED: &str = "it could not be evaluated on the data";

fn note_evaluation(cell: &mut Cell, evaluation: &Result<Evaluation>) {
    match evaluation {
        Ok(evaluation) => {
            cell.warnings.extend(few(evaluation));
            cell.evaluation = Some(evaluation.clone());
        }
        Err(error) => cell.warnings.push(format!("{UNEVALUATED}: {error:#}")),
    }
}
