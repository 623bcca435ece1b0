//! What a device holds and does: a rank of a stage.

use std::collections::HashMap;

use planish_compiler::compile::{balance, stage_layers};
use planish_data::inputs::Sizes;
use planish_ir::cost::{Cost, costs, stored_bytes};
use planish_ir::ops::Experts;
use planish_ir::{Bindings, Graph, Node, Op, SymbolRole, Weight};
use planish_passes::cut::{cut, sent};
use planish_passes::shard::shard;
use planish_runtimes::cuda::plan_nodes;
use serde::Serialize;

use super::super::IMAGE_SIDE;
use super::super::cost::{bytes, cache_bytes, cache_growth, weight_bytes};
use super::super::memory::bindings;
use super::{Device, RESERVE, Split};

/// The share of its bytes in the graph below which a checkpoint counts as one of a half type.
const IS_HALF: f64 = 0.6;

/// What each device of a stage has to hold and to do.
#[derive(Debug, Serialize)]
pub struct PlannedStage {
    /// The first and the last layer.
    pub layers: Option<[String; 2]>,
    /// The bytes of its weights, as they are stored.
    pub weights: u64,
    /// Those of them that each rank has whole; absent where a stage has one rank.
    pub replicated_weights: Option<u64>,
    /// The bytes of its caches for each token of a row.
    pub cache_per_token: u64,
    /// The bytes of the results of nodes of its graph for a prompt of one row; absent where a size is not known.
    pub activations: Option<u64>,
    /// The bytes that it sends to other ranks for a prompt of one row; absent where a stage has one rank.
    pub exchanged: Option<u64>,
    /// The same for a step.
    pub exchanged_by_step: Option<u64>,
    /// The bytes that go to the next stage for a prompt of one row; absent of the last stage.
    pub sent: Option<u64>,
    /// The same for a step.
    pub sent_by_step: Option<u64>,
    /// The most rows that fit; absent where the memory of a row is not known.
    pub batch: Option<u64>,
    /// The least time of a prompt; absent where rates of devices are not known.
    pub prompt: Option<LeastTime>,
    /// The least time of a step; absent without a cache too.
    pub step: Option<LeastTime>,
}

/// The least time of a run by a data sheet, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LeastTime {
    /// Of reading weights, and of a step its caches.
    pub memory_ms: f64,
    /// Of products.
    pub products_ms: f64,
    /// Of what goes to other ranks and to the next stage.
    pub link_ms: f64,
    /// The larger one of memory and products, and the link: ranks wait for collectives.
    pub ms: f64,
}

/// What is planned for.
pub(super) struct Run<'a> {
    pub(super) device: &'a Device,
    pub(super) sequence: usize,
    pub(super) is_decoder: bool,
}

/// The graph of a device: of the first rank of a stage. The others do as much.
struct Part<'a> {
    graph: &'a Graph,
    /// The ranks of the stage.
    ranks: u64,
    /// The bytes of weights as they are stored for each byte in the graph.
    narrowed: f64,
}

impl Run<'_> {
    /// Cuts a graph for ranks and then into stages, balanced for a run of some sizes, and plans a rank of each stage.
    pub(super) fn stages(&self, graph: &Graph, split: Split, balanced: Sizes) -> Result<Vec<PlannedStage>, String> {
        let rank = match split.tensor_parallel {
            1 => graph.clone(),
            ranks => shard(graph, ranks, 0).map_err(|error| error.to_string())?.0,
        };
        let stages = match split.pipeline {
            1 => vec![rank],
            count => {
                cut(&rank, count, balance(&rank), &bindings(&rank, balanced, 0)).map_err(|error| error.to_string())?
            }
        };
        let (stored, ranks) = (Stored::of(graph), split.tensor_parallel as u64);
        let planned = |(at, graph): (usize, &Graph)| {
            let (weights, shared) = stored.of_rank(graph);
            let narrowed = weights as f64 / weight_bytes(graph).max(1) as f64;
            let shared = (ranks > 1).then_some(shared);
            self.planned(&Part { graph, ranks, narrowed }, stages.get(at + 1), (weights, shared))
        };
        Ok(stages.iter().enumerate().map(planned).collect())
    }

    fn planned(&self, part: &Part<'_>, next: Option<&Graph>, weights: (u64, Option<u64>)) -> PlannedStage {
        let (graph, (weights, replicated_weights)) = (part.graph, weights);
        let one = |sequence| Sizes { batch: 1, sequence, side: Some(IMAGE_SIDE) };
        let has_past = graph.interface.symbols.values().any(|role| *role == SymbolRole::Past);
        let past = if has_past { self.sequence } else { 0 };
        let (prompt, step) = (bindings(graph, one(self.sequence), 0), bindings(graph, one(1), past));
        let peak = |bound| plan_nodes(graph, bound).ok().map(|plan| part.halved(plan.peak as u64));
        let (activations, of_step) = (peak(&prompt), peak(&step));
        let cache_per_token = part.halved(cache_growth(graph, one(1)).unwrap_or(0));
        let cache = cache_bytes(graph, &step).map(|bytes| part.halved(bytes));
        let room = (self.device.memory as f64 * (1.0 - RESERVE)) as u64;
        // Prompts of a decoder are read one after the other, and its steps are of all rows at once.
        let needs = match self.is_decoder {
            true => activations
                .zip(of_step)
                .zip(cache)
                .map(|((prompt, step), cache)| (weights.saturating_add(prompt), cache.saturating_add(step))),
            false => activations.map(|of_row| (weights, of_row)),
        };
        let of_decoder = self.is_decoder.then_some(&step);
        let (exchanged, exchanged_by_step) =
            (part.exchanged(&prompt), of_decoder.and_then(|step| part.exchanged(step)));
        let (sent, sent_by_step) = (part.sent(next, &prompt), of_decoder.and_then(|step| part.sent(next, step)));
        let link = |exchanged: Option<u64>, sent: Option<u64>| exchanged.unwrap_or(0) + sent.unwrap_or(0);
        let layers = stage_layers(graph);
        PlannedStage {
            layers: layers.first().cloned().zip(layers.last().cloned()).map(Into::into),
            weights,
            replicated_weights,
            cache_per_token,
            activations,
            exchanged,
            exchanged_by_step,
            sent,
            sent_by_step,
            batch: needs.map(|(fixed, by_row)| room.saturating_sub(fixed) / by_row.max(1)),
            prompt: self.time(part, &prompt, 0, link(exchanged, sent)),
            step: of_decoder
                .and_then(|step| self.time(part, step, cache.unwrap_or(0), link(exchanged_by_step, sent_by_step))),
        }
    }

    /// The least time of a run that also reads caches, and sends so many bytes.
    fn time(&self, part: &Part<'_>, bound: &Bindings, cache: u64, link: u64) -> Option<LeastTime> {
        let rates = self.device.rates?;
        let work = part.work(bound);
        let bytes = work.weights as f64 * part.narrowed + cache as f64;
        let memory_ms = bytes / (rates.memory_gb_s * 1e6);
        let products_ms = work.product_flops as f64 / (rates.half_tflops * 1e9);
        let link_ms = link as f64 / (rates.link_gb_s * 1e6);
        Some(LeastTime { memory_ms, products_ms, link_ms, ms: memory_ms.max(products_ms) + link_ms })
    }
}

impl Part<'_> {
    /// A checkpoint of a half type runs in that type, in which everything takes half of float32.
    fn halved(&self, bytes: u64) -> u64 {
        if self.narrowed < IS_HALF { bytes / 2 } else { bytes }
    }

    /// The bytes that the device sends to other ranks, around a ring: of an `all_reduce` each piece twice, as a sum and as
    /// a result, and of an `all_gather` what all but one rank give.
    fn exchanged(&self, bound: &Bindings) -> Option<u64> {
        let others = self.ranks - 1;
        let sent = |(_, node): (_, &Node)| match &node.op {
            Op::AllReduce(op) => Some(share(bytes(self.graph, op.x, bound)?, 2 * others, self.ranks)),
            Op::AllGather(op) => Some(bytes(self.graph, op.x, bound)?.saturating_mul(others)),
            _ => Some(0),
        };
        let sent = self.graph.nodes().map(sent).sum::<Option<u64>>().filter(|_| others > 0);
        sent.map(|bytes| self.halved(bytes))
    }

    /// The bytes of the outputs that the next stage takes.
    fn sent(&self, next: Option<&Graph>, bound: &Bindings) -> Option<u64> {
        sent(self.graph, next?, bound).map(|bytes| self.halved(bytes))
    }

    /// The work of a run, in which tokens take the experts of all ranks alike.
    fn work(&self, bound: &Bindings) -> Cost {
        let of = |(node, cost): &(_, Cost)| match &self.graph.node(*node).op {
            Op::Experts(op) => evenly(self.graph, op, *cost, bound, self.ranks),
            _ => *cost,
        };
        costs(self.graph, bound).nodes.iter().map(of).sum()
    }
}

/// The work of the experts of a rank, if tokens take those of all ranks alike, instead of its own alone.
fn evenly(graph: &Graph, op: &Experts, cost: Cost, bound: &Bindings, ranks: u64) -> Cost {
    let experts = graph.weight(op.gate).map_or(0, |gate| gate.shape()[0] as u64);
    let Some(shape) = graph.ty(op.indices).shape.evaluate(bound) else { return cost };
    let taken: u64 = shape.iter().map(|size| *size as u64).product();
    let own = taken.div_ceil(ranks);
    Cost {
        product_flops: share(cost.product_flops, own, taken),
        weights: share(cost.weights, own.min(experts), taken.min(experts)),
        ..cost
    }
}

/// The weights of a whole graph by name: the bytes that a checkpoint stores them in, and those in the graph.
struct Stored<'a>(HashMap<&'a str, (u64, u64)>);

impl<'a> Stored<'a> {
    fn of(graph: &'a Graph) -> Self {
        let of = |weight: &Weight| (of_checkpoint(weight), weight.bytes());
        Self(graph.weights().map(|(_, value, weight)| (value.name.as_str(), of(weight))).collect())
    }

    /// The stored bytes of the weights of a rank: all, and of those that the rank has whole.
    fn of_rank(&self, graph: &Graph) -> (u64, u64) {
        graph.weights().fold((0, 0), |(all, whole), (_, value, weight)| {
            let known = self.0.get(value.name.as_str()).copied();
            let (stored, bytes) = known.unwrap_or_else(|| (of_checkpoint(weight), weight.bytes()));
            let own = share(stored, weight.bytes(), bytes);
            (all + own, if weight.bytes() == bytes { whole + own } else { whole })
        })
    }
}

/// A share of a number: `part` of `whole`.
fn share(number: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(number) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// The bytes that a checkpoint stores a weight in.
fn of_checkpoint(weight: &Weight) -> u64 {
    let children = weight.expr().children();
    let stored = children.iter().map(of_checkpoint).fold(0, u64::saturating_add);
    if children.is_empty() { weight.bytes() } else { stored.min(stored_bytes(weight)) }
}
