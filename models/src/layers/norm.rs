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

impl Builder<'_> {
    /// `torch.nn.LayerNorm`; `gamma` and `beta` are what checkpoints converted from TensorFlow
    /// call weight and bias.
    pub(crate) fn layer_norm(&mut self, x: ValueId, module: &str, size: Size, eps: f64) -> Result<ValueId, ModelError> {
        let weight = self.weight(&[&format!("{module}.weight"), &format!("{module}.gamma")], &[size])?;
        let bias = Some(self.weight(&[&format!("{module}.bias"), &format!("{module}.beta")], &[size])?);
        self.emit(LayerNorm { x, weight, bias, eps: Real(eps) }, module)
    }

    /// `torch.nn.LayerNorm` without a bias.
    pub(crate) fn layer_norm_without_bias(
        &mut self,
        x: ValueId,
        module: &str,
        size: Size,
        eps: f64,
    ) -> Result<ValueId, ModelError> {
        let weight = self.weight(&[&format!("{module}.weight")], &[size])?;
        self.emit(LayerNorm { x, weight, bias: None, eps: Real(eps) }, module)
    }

    /// `torch.nn.LayerNorm` with a weight that is stored less 1, as `NemotronLayerNorm1P` of the transformers library.
    pub(crate) fn layer_norm_around_one(
        &mut self,
        x: ValueId,
        module: &str,
        size: Size,
        eps: f64,
    ) -> Result<ValueId, ModelError> {
        let weight = self.weight_around_one(module, size)?;
        let bias = Some(self.weight(&[&format!("{module}.bias")], &[size])?);
        self.emit(LayerNorm { x, weight, bias, eps: Real(eps) }, module)
    }

    /// The weight of a norm that is stored less 1.
    fn weight_around_one(&mut self, module: &str, size: Size) -> Result<ValueId, ModelError> {
        let stored = self.weight(&[&format!("{module}.weight")], &[size])?;
        let one = self.number(1.0, &format!("{module}.one"), "model_type");
        self.add(stored, one, &format!("{module}.weight.add"))
    }

    /// Root mean square normalization, as `LlamaRMSNorm` of the transformers library.
    pub(crate) fn rms_norm(&mut self, x: ValueId, module: &str, size: Size, eps: f64) -> Result<ValueId, ModelError> {
        let weight = self.weight(&[&format!("{module}.weight")], &[size])?;
        self.emit(RmsNorm { x, weight, eps: Real(eps) }, module)
    }

    /// The same with a weight that is stored less 1, as `GemmaRMSNorm` of the transformers library.
    pub(crate) fn rms_norm_around_one(
        &mut self,
        x: ValueId,
        module: &str,
        size: Size,
        eps: f64,
    ) -> Result<ValueId, ModelError> {
        if self.tensors.has_whole_norms() {
            return self.rms_norm(x, module, size, eps);
        }
        let weight = self.weight_around_one(module, size)?;
        self.emit(RmsNorm { x, weight, eps: Real(eps) }, module)
    }
}
