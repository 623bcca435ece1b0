//! The sum of what all layers give, each times its share, which classifiers of recordings learn.

use planish_ir::ValueId;
use planish_ir::ops::BinaryKind;

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;

/// The tensor of the weights of layers, whose softmax is their shares.
const LAYER_WEIGHTS: &str = "layer_weights";

/// The weighted sum of what layers take and give, values of one shape.
pub(crate) fn weighted_sum(b: &mut Builder<'_>, states: &[ValueId]) -> Result<ValueId, ModelError> {
    const KEY: &str = "use_weighted_layer_sum";
    let count = Size::derived(states.len(), "layers + 1");
    let (weights, _) = b.tensors.take(&[LAYER_WEIGHTS], &[count])?;
    let weights =
        weights.read_numbers().map_err(|error| b.config.error(format!("tensor `{LAYER_WEIGHTS}`: {error}")))?;
    let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = weights.iter().map(|weight| (weight - largest).exp()).collect();
    let total: f64 = powers.iter().sum();
    let mut sum = None;
    for (i, (state, power)) in states.iter().zip(powers).enumerate() {
        let at = |name: &str| format!("{LAYER_WEIGHTS}.{i}.{name}");
        let part = b.with_number(BinaryKind::Mul, *state, power / total, &at("mul"), KEY)?;
        sum = Some(sum.map_or(Ok(part), |sum| b.add(sum, part, &at("add")))?);
    }
    Ok(sum.unwrap_or_else(|| unreachable!("there are the embeddings at least")))
}
