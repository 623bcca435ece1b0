//! How a model is divided among accelerators as stages: the memory of each, what goes between them, and the least time of a run.

mod hardware;

use planish_compiler::compile::{balance, stage_layers};
use planish_data::inputs::Sizes;
use planish_ir::cost::{costs, stored_bytes};
use planish_ir::{Graph, SymbolRole, Weight};
use planish_passes::cut::cut;
use planish_runtimes::cuda::plan_nodes;
use serde::Serialize;

use super::cost::{bytes, cache_growth, weight_bytes};
use super::memory::bindings;
use super::{Asked, IMAGE_SIDE, Opened};

pub use hardware::{Device, Devices, Rates};

/// The share of a device's memory that is left to the driver, the runtime and its kernels.
pub const RESERVE: f64 = 0.1;

/// The share of its bytes in the graph below which a checkpoint counts as one of a half type.
const IS_HALF: f64 = 0.6;

/// A plan for devices.
#[derive(Debug, Serialize)]
pub struct DevicePlan {
    /// The devices.
    pub devices: Devices,
    /// The tokens of a row: of a prompt, and of the caches that fit.
    pub sequence: usize,
    /// The stages, one on each device.
    pub stages: Vec<PlannedStage>,
    /// The most rows of so many tokens that fit on all devices; 0 where one does not.
    pub batch: u64,
    /// The least milliseconds of one prompt of one row; absent where rates of devices are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_ms: Option<f64>,
    /// The least milliseconds of one step of one row after such a prompt; absent without a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_ms: Option<f64>,
}

/// What a device has to hold and to do.
#[derive(Debug, Serialize)]
pub struct PlannedStage {
    /// The first and the last layer.
    pub layers: Option<[String; 2]>,
    /// The bytes of its weights, as they are stored.
    pub weights: u64,
    /// The bytes of its caches for each token of a row.
    pub cache_per_token: u64,
    /// The bytes of the results of nodes for a prompt of one row; absent where a size is not known.
    pub activations: Option<u64>,
    /// The bytes that go to the next stage for a prompt of one row; absent of the last stage.
    pub sent: Option<u64>,
    /// The same for a step.
    pub sent_by_step: Option<u64>,
    /// The most rows that fit.
    pub batch: u64,
    /// The least milliseconds of a prompt.
    pub prompt_ms: Option<f64>,
    /// The least milliseconds of a step.
    pub step_ms: Option<f64>,
}

impl Opened {
    /// Divides the model among devices, a stage for each.
    ///
    /// # Errors
    /// When the model has several parts, or fewer places to be cut at.
    pub fn devices(&self, devices: &Devices, asked: Asked) -> Result<DevicePlan, String> {
        let [(name, graph)] = self.graphs.as_slice() else {
            let names: Vec<&str> = self.graphs.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("--devices takes a model of one graph, and this one has {}", names.join(", ")));
        };
        let sequence = self.sizes(asked).sequence;
        let is_decoder = graph.interface.has_cache();
        let balanced =
            if is_decoder { Sizes { batch: 1, sequence: 1, side: Some(IMAGE_SIDE) } } else { self.sizes(asked) };
        let graphs = match devices.count {
            1 => vec![graph.clone()],
            count => cut(graph, count, balance(graph), &bindings(graph, balanced, 0))
                .map_err(|error| format!("--devices {devices}: {name}: {error}"))?,
        };
        let stage =
            |(at, graph): (usize, &Graph)| Run { devices, sequence, is_decoder }.stage(graph, graphs.get(at + 1));
        let stages: Vec<PlannedStage> = graphs.iter().enumerate().map(stage).collect();
        let sum = |of: fn(&PlannedStage) -> Option<f64>, sent: fn(&PlannedStage) -> Option<u64>| {
            let link = devices.device.rates?.link_gb_s;
            let one = |stage: &PlannedStage| Some(of(stage)? + sent(stage).unwrap_or(0) as f64 / (link * 1e6));
            stages.iter().map(one).sum::<Option<f64>>()
        };
        Ok(DevicePlan {
            devices: devices.clone(),
            sequence,
            batch: stages.iter().map(|stage| stage.batch).min().unwrap_or(0),
            prompt_ms: sum(|stage| stage.prompt_ms, |stage| stage.sent),
            step_ms: sum(|stage| stage.step_ms, |stage| stage.sent_by_step),
            stages,
        })
    }
}

/// What is planned for.
struct Run<'a> {
    devices: &'a Devices,
    sequence: usize,
    is_decoder: bool,
}

impl Run<'_> {
    fn stage(&self, graph: &Graph, next: Option<&Graph>) -> PlannedStage {
        let one = |sequence| Sizes { batch: 1, sequence, side: Some(IMAGE_SIDE) };
        let has_past = graph.interface.symbols.values().any(|role| *role == SymbolRole::Past);
        let past = if has_past { self.sequence } else { 0 };
        let (prompt, step) = (bindings(graph, one(self.sequence), 0), bindings(graph, one(1), past));
        let sent = |bound| {
            let next = next?;
            let takes = |name: &str| next.inputs().iter().any(|value| next.value(*value).name == name);
            let outputs = graph.outputs().iter().filter(|output| takes(&output.name));
            outputs.map(|output| bytes(graph, output.value, bound)).sum::<Option<u64>>()
        };
        let weights = graph.weights().map(|(_, _, weight)| of_checkpoint(weight)).fold(0, u64::saturating_add);
        let narrowed = weights as f64 / weight_bytes(graph).max(1) as f64;
        // A checkpoint of a half type runs in that type, in which everything takes half of float32.
        let halved = |bytes: u64| if narrowed < IS_HALF { bytes / 2 } else { bytes };
        let peak = |bound| plan_nodes(graph, bound).ok().map(|plan| halved(plan.peak as u64));
        let cache_per_token = halved(cache_growth(graph, one(1)).unwrap_or(0));
        let (activations, of_step) = (peak(&prompt), peak(&step));
        let cache = cache_per_token.saturating_mul(self.sequence as u64);
        let room = (self.devices.device.memory as f64 * (1.0 - RESERVE)) as u64;
        // Prompts of a decoder are read one after the other, and its steps are of all rows at once.
        let (fixed, by_row) = match self.is_decoder {
            true => (weights.saturating_add(activations.unwrap_or(0)), cache.saturating_add(of_step.unwrap_or(0))),
            false => (weights, activations.unwrap_or(0)),
        };
        let time = |bound, moved: u64| {
            let rates = self.devices.device.rates?;
            let total = costs(graph, bound).total();
            let bytes = total.weights as f64 * narrowed + moved as f64;
            Some((bytes / (rates.memory_gb_s * 1e6)).max(total.product_flops as f64 / (rates.half_tflops * 1e9)))
        };
        let layers = stage_layers(graph);
        PlannedStage {
            layers: layers.first().cloned().zip(layers.last().cloned()).map(Into::into),
            weights,
            cache_per_token,
            activations,
            sent: sent(&prompt).map(halved),
            sent_by_step: if self.is_decoder { sent(&step).map(halved) } else { None },
            batch: room.checked_sub(fixed).map_or(0, |left| left / by_row.max(1)),
            prompt_ms: time(&prompt, 0),
            step_ms: if self.is_decoder { time(&step, cache) } else { None },
        }
    }
}

/// The bytes that a checkpoint stores a weight in.
fn of_checkpoint(weight: &Weight) -> u64 {
    let children = weight.expr().children();
    let stored = children.iter().map(of_checkpoint).fold(0, u64::saturating_add);
    if children.is_empty() { weight.bytes() } else { stored.min(stored_bytes(weight)) }
}
