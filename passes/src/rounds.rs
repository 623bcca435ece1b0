//! Running passes: once, or round after round until none of them changes anything.

use std::time::{Duration, Instant};

use planish_ir::{Graph, verify};

use crate::{Note, Outcome, Pass, PassError, Pipeline};

/// The most rounds that passes are run for. What exporters write takes two or three, the last of which
/// changes nothing; passes that undo each other would never end.
pub const MAX_ROUNDS: usize = 16;

/// One application of a pass.
pub struct Stage {
    /// The pass.
    pub pass: &'static str,
    /// How many places it changed.
    pub changed: usize,
    /// What it has to say beyond that.
    pub notes: Vec<Note>,
    /// How long it took.
    pub time: Duration,
}

/// A graph on its way through passes, and those that it has been through.
pub(crate) struct Run<'a> {
    pub(crate) pipeline: &'a Pipeline,
    pub(crate) graph: &'a mut Graph,
    pub(crate) stages: &'a mut Vec<Stage>,
    /// Sees the graph after each pass.
    pub(crate) after: &'a mut dyn FnMut(&'static str, &Graph),
}

impl Run<'_> {
    /// Applies passes one after another, as far as the pipeline goes.
    pub(crate) fn once(&mut self, passes: &[&Pass]) -> Result<(), PassError> {
        passes.iter().try_for_each(|pass| self.apply(pass))
    }

    /// Applies a pass, if it applies with the options and the pipeline goes that far.
    fn apply(&mut self, pass: &Pass) -> Result<(), PassError> {
        let options = &self.pipeline.options;
        if !(pass.applies)(options) || self.pipeline.stop_after.is_some_and(|limit| self.stages.len() >= limit) {
            return Ok(());
        }
        let start = Instant::now();
        let Outcome { changed, notes } = (pass.run)(self.graph, options)?;
        self.stages.push(Stage { pass: pass.name, changed, notes, time: start.elapsed() });
        if self.pipeline.verify {
            verify(self.graph).map_err(|source| PassError::Broken { pass: pass.name, source })?;
        }
        (self.after)(pass.name, self.graph);
        Ok(())
    }

    /// Applies passes, and again, until a round of them changes nothing.
    ///
    /// # Errors
    /// When a pass fails, or when the last of [`MAX_ROUNDS`] rounds still changes something.
    pub(crate) fn until_nothing_changes(&mut self, passes: &[&Pass]) -> Result<(), PassError> {
        for _ in 0..MAX_ROUNDS {
            let first = self.stages.len();
            self.once(passes)?;
            if self.stages[first..].iter().all(|stage| stage.changed == 0) {
                return Ok(());
            }
        }
        let last = &self.stages[self.stages.len().saturating_sub(passes.len())..];
        let changed = last.iter().filter(|stage| stage.changed > 0);
        Err(PassError::NoFixedPoint {
            rounds: MAX_ROUNDS,
            passes: changed.map(|stage| format!("\n  `{}`: {} changes", stage.pass, stage.changed)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::IDENTITIES;
    use crate::fold::FOLD;
    use crate::{ONNX, Options};

    /// Runs passes until nothing changes; the names and counts of those that ran, and how it ended.
    fn rounds(passes: &[&Pass], stop_after: Option<usize>) -> (Vec<(&'static str, usize)>, Result<(), String>) {
        let mut pipeline = Pipeline::new(Options::new(&ONNX, 20));
        pipeline.stop_after = stop_after;
        let (mut graph, mut stages) = (Graph::new("g"), Vec::new());
        let (graph, stages_of) = (&mut graph, &mut stages);
        let mut run = Run { pipeline: &pipeline, graph, stages: stages_of, after: &mut |_, _| {} };
        let end = run.until_nothing_changes(passes).map_err(|error| error.to_string());
        (stages.iter().map(|stage| (stage.pass, stage.changed)).collect(), end)
    }

    #[test]
    fn passes_that_change_nothing_run_once() {
        assert_eq!(rounds(&[&IDENTITIES, &FOLD], None), (vec![("identities", 0), ("fold", 0)], Ok(())));
    }

    /// Names a graph `a`, `aa`, `aaa`, and then leaves it.
    const THRICE: Pass = Pass {
        name: "thrice",
        run: |graph, _| {
            let change = graph.name.len() < 4;
            graph.name.push_str(if change { "a" } else { "" });
            Ok(usize::from(change).into())
        },
        ..IDENTITIES
    };

    #[test]
    fn a_round_follows_each_that_changed_something() {
        let (stages, end) = rounds(&[&THRICE, &FOLD], None);
        assert_eq!(end, Ok(()));
        let changed: Vec<usize> = stages.iter().map(|stage| stage.1).collect();
        assert_eq!(changed, [1, 0, 1, 0, 1, 0, 0, 0]);
        assert_eq!(rounds(&[&THRICE, &FOLD], Some(3)), (stages[..3].to_vec(), Ok(())));
    }

    #[test]
    fn passes_that_do_not_end_are_an_error() {
        const RESTLESS: Pass = Pass { name: "restless", run: |_, _| Ok(2.into()), ..IDENTITIES };
        let (stages, end) = rounds(&[&RESTLESS, &FOLD, &THRICE], None);
        assert_eq!(stages.len(), 3 * MAX_ROUNDS);
        let message = end.unwrap_err();
        assert!(message.contains("after 16 rounds") && message.ends_with("\n  `restless`: 2 changes"), "{message}");
    }
}
