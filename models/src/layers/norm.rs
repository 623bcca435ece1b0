//! Normalization of features.

use planish_ir::ValueId;
use planish_ir::ops::{LayerNorm, Real, RmsNorm};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;

/// A kind of norm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Norm {
    /// Root mean square normalization.
    Rms,
    /// The same with a weight that the checkpoint stores less 1.
    RmsAroundOne,
    /// The same without a weight.
    RmsPlain,
    /// Layer normalization with a weight, and with or without a bias.
    Layer { bias: bool },
    /// Layer normalization with neither.
    Plain,
    /// Layer normalization with a weight that the checkpoint stores less 1, and a bias.
    LayerAroundOne,
}

impl Norm {
    /// Normalizes the last axis, of a size.
    pub(crate) fn apply(
        self,
        b: &mut Builder<'_>,
        x: ValueId,
        module: &str,
        size: Size,
        eps: f64,
    ) -> Result<ValueId, ModelError> {
        match self {
            Norm::Rms => b.rms_norm(x, module, size, eps),
            Norm::RmsAroundOne => b.rms_norm_around_one(x, module, size, eps),
            Norm::RmsPlain => {
                let weight = b.ones(&format!("{module}.ones"), size);
                b.emit(RmsNorm { x, weight, eps: Real(eps) }, module)
            }
            Norm::Plain => {
                let weight = b.ones(&format!("{module}.ones"), size);
                b.emit(LayerNorm { x, weight, bias: None, eps: Real(eps) }, module)
            }
            Norm::Layer { bias: true } => b.layer_norm(x, module, size, eps),
            Norm::Layer { bias: false } => b.layer_norm_without_bias(x, module, size, eps),
            Norm::LayerAroundOne => b.layer_norm_around_one(x, module, size, eps),
        }
    }
}
