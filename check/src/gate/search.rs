//! Compiling a model again, with more precision where it harms most.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use planish_artifact::evaluation::Evaluation;
use planish_compiler::compile::{CompileOptions, Compiled, compile};
use planish_compiler::quantize::Quantizations;
use planish_compiler::source::SourceModel;

use super::{Gate, GateObserver};
use crate::evaluate::Reference;
use crate::within::Trials;

/// How many samples give a rough figure.
const FEW: usize = 16;

/// The most tokens of them.
const FEW_TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(FEW * 512 - 1);

/// Compiles a model again, with other quantizations.
pub(super) struct Search<'a> {
    pub(super) gate: &'a Gate,
    pub(super) model: &'a SourceModel,
    pub(super) folder: PathBuf,
    pub(super) options: CompileOptions,
    pub(super) reference: Reference,
    pub(super) observer: &'a dyn GateObserver,
}

impl Trials for Search<'_> {
    type Made = Compiled;

    fn make(&mut self, quantizations: Quantizations) -> Result<Compiled> {
        let options = self.options.clone().with_quantizations(Some(&quantizations));
        compile(self.model, &self.folder, &options, &*self.observer.compilation())
    }

    fn evaluate(&mut self, made: &Compiled, is_rough: bool) -> Result<Evaluation> {
        let mut options = self.gate.options.clone();
        if is_rough {
            options.data.samples = options.data.split.samples(FEW);
            options.data.tokens = Some(FEW_TOKENS);
        }
        self.gate.evaluated(made, self.model, &mut self.reference, &options, self.observer.evaluation(true))
    }
}
