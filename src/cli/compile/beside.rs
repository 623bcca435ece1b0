//! Options that do not go together.

use planish_check::gate::Asked;

use super::{Arguments, Weights};

impl Arguments {
    /// The first given option that runs the artifact in other ways than all ranks at once do, or makes several.
    pub(super) fn beside_ranks(&self, asked: &Asked) -> Option<&'static str> {
        let options = [
            (!self.variants.is_empty(), "--variants"),
            (self.pipeline.is_some(), "--pipeline"),
            (asked.evaluate.is_some(), "--evaluate"),
            (asked.max_loss.is_some(), "--max-loss"),
            (self.tuning.is_given(), "--tune"),
        ];
        options.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// The first given option that is of no use where nothing is written.
    pub(super) fn beside_stop(&self, asked: &Asked) -> Option<&'static str> {
        let options = [
            (!self.variants.is_empty(), "--variants"),
            (self.pipeline.is_some(), "--pipeline"),
            (self.output.is_some(), "--output"),
            (matches!(self.weights, Weights::Link), "--weights"),
            (asked.verify, "--verify"),
            (asked.evaluate.is_some(), "--evaluate"),
            (asked.max_loss.is_some(), "--max-loss"),
            (self.tuning.is_given(), "--tune"),
            (self.force, "--force"),
            (self.json, "--json"),
        ];
        options.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}
