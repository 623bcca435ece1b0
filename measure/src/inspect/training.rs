//! What it takes to train a model, by the formulas of the field.

use std::collections::BTreeMap;

use planish_data::inputs::Sizes;
use planish_ir::{Graph, Op};
use serde::Serialize;

use super::Opened;
use super::cost::{is_parameter, parameters};
use super::memory::bindings;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct TrainingOptions {
    /// The tokens to train on; 20 for each parameter where absent (Hoffmann et al. 2022, arXiv:2203.15556).
    pub tokens: Option<f64>,
    /// The peak of the machine in floating-point operations a second, where the time is asked for.
    pub machine_flops: Option<f64>,
    /// The share of the peak that training reaches, from 0 to 1.
    pub utilization: f64,
}

/// What it takes to train a model.
#[derive(Debug, Serialize)]
pub struct Training {
    /// The parameters, each once.
    pub parameters: u64,
    /// The tokens.
    pub tokens: f64,
    /// Floating-point operations: 6 for each parameter and token (Kaplan et al. 2020, arXiv:2001.08361).
    pub flops: f64,
    /// The bytes of weights, gradients and the state of Adam in mixed precision.
    pub state: TrainingState,
    /// The bytes of activations that the backward pass needs; absent where the graph has no attention that planish knows.
    pub activations: Option<TrainingActivations>,
    /// How long it takes; absent without a machine.
    pub days: Option<f64>,
}

/// The bytes of weights and their optimizer in mixed precision: 16 for each parameter (Rajbhandari et al. 2020,
/// arXiv:1910.02054).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrainingState {
    /// Half-precision weights: 2 a parameter.
    pub weights: u64,
    /// Half-precision gradients: 2.
    pub gradients: u64,
    /// The weights in float32: 4.
    pub master: u64,
    /// The two moments of Adam in float32: 8.
    pub moments: u64,
}

impl TrainingState {
    fn of(parameters: u64) -> Self {
        let of = |bytes| parameters.saturating_mul(bytes);
        Self { weights: of(2), gradients: of(2), master: of(4), moments: of(8) }
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.weights, self.gradients, self.master, self.moments].into_iter().fold(0, u64::saturating_add)
    }
}

/// The bytes of activations of transformer layers in half precision (Korthikanti et al. 2022, arXiv:2205.05198): of a layer
/// with `s` tokens, `b` rows, `h` features and `a` heads `s * b * h * (34 + 5 * a * s / h)`, and `2 * s * b * h` where the
/// backward pass computes the layer again. The formula has a feed-forward network of `4 * h` features.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrainingActivations {
    /// The layers: one for each attention.
    pub layers: usize,
    /// Of one layer, the largest.
    pub layer: f64,
    /// Of all layers.
    pub all: f64,
    /// Of all layers with recomputation: their inputs, and one layer.
    pub recomputed: f64,
}

impl Opened {
    /// What it takes to train the model on rows of these sizes.
    #[must_use]
    pub fn training(&self, sizes: Sizes, options: TrainingOptions) -> Training {
        let parameters = self.parameters();
        let tokens = options.tokens.unwrap_or(20.0 * parameters as f64);
        let flops = 6.0 * parameters as f64 * tokens;
        let speed = options.machine_flops.map(|peak| peak * options.utilization);
        Training {
            parameters,
            tokens,
            flops,
            state: TrainingState::of(parameters),
            activations: self.activations(sizes),
            days: speed.map(|speed| flops / speed / 86_400.0),
        }
    }

    /// The parameters of all parts, those that several parts have once.
    fn parameters(&self) -> u64 {
        if let [(_, graph)] = self.graphs.as_slice() {
            return parameters(graph);
        }
        let weights = self.graphs.iter().flat_map(|(_, graph)| graph.weights());
        let weights = weights.filter(|(_, _, weight)| is_parameter(weight.dtype()));
        let named: BTreeMap<&str, u64> =
            weights.map(|(_, value, weight)| (value.name.as_str(), weight.elements() as u64)).collect();
        named.into_values().fold(0, u64::saturating_add)
    }

    /// The activations of layers: of the graphs for whole sequences, the encoder and the first decoder.
    fn activations(&self, sizes: Sizes) -> Option<TrainingActivations> {
        let parts = self.graphs.iter().take(2);
        let layers: Vec<[f64; 2]> = parts.flat_map(|(_, graph)| layers(graph, sizes)).collect();
        let layer = layers.iter().map(|[all, _]| *all).reduce(f64::max)?;
        let [all, inputs] = [0, 1].map(|which| layers.iter().map(|layer| layer[which]).sum::<f64>());
        Some(TrainingActivations { layers: layers.len(), layer, all, recomputed: inputs + layer })
    }
}

/// For each attention the activations of its layer, and the input of the layer.
fn layers(graph: &Graph, sizes: Sizes) -> Vec<[f64; 2]> {
    let bound = bindings(graph, sizes, 0);
    let layer = |op: &Op| {
        let Op::Attention(op) = op else { return None };
        let shape = graph.ty(op.q).shape.evaluate(&bound)?;
        let [rows, tokens, features] = shape.as_slice() else { return None };
        let [b, s, h, a] = [*rows, *tokens, *features, op.heads].map(|n| n as f64);
        Some([s * b * h * (34.0 + 5.0 * a * s / h), 2.0 * s * b * h])
    };
    graph.nodes().filter_map(|(_, node)| layer(&node.op)).collect()
}
