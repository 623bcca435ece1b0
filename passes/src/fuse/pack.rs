//! Linear layers of one operand as one.

use std::collections::{HashMap, HashSet};

use planish_ir::ops::{BinaryKind, Linear, Split};
use planish_ir::weight::Channels;
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, ValueId, Weight};

use super::{Found, Uses, activation, apply};
use crate::legalize::becomes_block_product;
use crate::raise::NoMatch;
use crate::{CUDA, Example, Options, Outcome, Packing, Pass, PassError};

/// Computes the linear layers of one operand in one product.
pub const PACK_PROJECTIONS: Pass = Pass {
    name: "pack-projections",
    summary: "Computes the linear layers that take one operand in one product, for targets cuda and ort. For target ort \
              the pass takes all layers where the recipe says `projections=joined`, and otherwise layers that become MatMulNBits: each of them wakes all threads, and rounds the operand to \
              integers unless the recipe's `accuracy_level` is float. Examples are the queries, keys and values of an attention, the gate of a feed-forward and what it gates, and the keys and \
              values that all layers of a decoder compute of the encoder's states. Their weights become one weight, \
              and a split gives their results. Where only some layers have a bias, the others get zeros. Weights with \
              other uses stay, because they would be stored twice. Layers of codes of the same type are joined with each \
              other: their codes and scales stay what they are. Layers that only an activation takes stay, because they become one \
              operator with it.",
    numerics: "none, except that a product of another size may sum in another order",
    example: Example {
        target: &CUDA,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @q = uniform(1) : f32[4, 2]
            weight @k = uniform(2) : f32[3, 2]
            weight @b = uniform(3) : f32[4]
            %q1 = linear(%x, @q, bias: @b) : f32[n, 4]
            %k1 = linear(%x, @k) : f32[n, 3]
            output q = %q1
            output k = %k1",
        after: "
            input %x: f32[n, 2]
            weight @q1/const = concat([uniform(1) : f32[4, 2], uniform(2) : f32[3, 2]], 0) : f32[7, 2]
            weight @q1/const_1 = concat([uniform(3) : f32[4], pad(dense([]) : f32[0], 0.0) : f32[3]], 0) : f32[7]
            %q1/linear = linear(%x, @q1/const, bias: @q1/const_1) : f32[n, 7]
            %q1/split, %q1/split_1 = split(%q1/linear) {axis = 1, sizes = [4, 3]} : f32[n, 4], f32[n, 3]
            output q = %q1/split
            output k = %q1/split_1",
    },
    applies: |options| options.keeps_operators() || (options.fusion && options.packing != Packing::None),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let packs_all = options.keeps_operators() || options.packing == Packing::All;
    graph.compact();
    let groups = groups(graph, &|linear| packs_all || becomes_block_product(graph, linear, options));
    let mut results: HashMap<NodeId, ValueId> = HashMap::new();
    let pack = |graph: &mut Rewriter<'_>, node: NodeId, _: &Uses| -> Found {
        if let Some(result) = results.get(&node) {
            return Ok(vec![*result]);
        }
        let group = groups.get(&node).ok_or(NoMatch::Other)?;
        let parts = packed(graph, group)?;
        results.extend(group.iter().map(|layer| layer.node).zip(parts));
        results.get(&node).map(|result| vec![*result]).ok_or(NoMatch::Other)
    };
    Ok(apply(graph, options, "packed layers", pack))
}

/// A layer that may be packed.
#[derive(Clone)]
struct Layer {
    node: NodeId,
    weight: Weight,
    bias: Option<Weight>,
}

/// The layers that become one, by the first of them.
fn groups(graph: &Graph, is_taken: &dyn Fn(&Linear) -> bool) -> HashMap<NodeId, Vec<Layer>> {
    let uses = Uses::of(graph);
    let activated = activated(graph, &uses);
    let mut by_operand: HashMap<(ValueId, bool, Option<Codes>), Vec<Layer>> = HashMap::new();
    for (node, layer) in graph.nodes() {
        let Op::Linear(linear) = &layer.op else { continue };
        if !is_taken(linear) {
            continue;
        }
        let Some(layer) = packable(graph, node, linear, &uses) else { continue };
        if !activated.contains(&graph.node(node).outputs[0]) {
            by_operand.entry((linear.x, linear.transposed.0, codes(&layer.weight))).or_default().push(layer);
        }
    }
    let several = by_operand.into_values().filter(|group| group.len() > 1);
    several.map(|group| (group[0].node, group)).collect()
}

/// What weights of codes have in common where they can be one: the type of the codes, the channels of the scales, and whether
/// there are zero points.
type Codes = (DType, Channels, bool);

fn codes(weight: &Weight) -> Option<Codes> {
    let found = weight.as_dequantized()?;
    Some((found.codes.dtype(), found.channels, found.zero_points.is_some()))
}

/// Values that only an activation takes which gates nothing.
fn activated(graph: &Graph, uses: &Uses) -> HashSet<ValueId> {
    let mut gates = HashSet::new();
    for (_, node) in graph.nodes() {
        if let Op::Binary(p) = &node.op
            && p.kind == BinaryKind::Mul
        {
            gates.extend([p.a, p.b]);
        }
    }
    let active = graph.nodes().filter_map(|(_, node)| {
        let (x, _) = activation(&node.op)?;
        (uses.is_single(x) && !gates.contains(&node.outputs[0])).then_some(x)
    });
    active.collect()
}

/// A layer of weights that nothing else uses.
fn packable(graph: &Graph, node: NodeId, linear: &Linear, uses: &Uses) -> Option<Layer> {
    let weight = graph.weight(linear.weight).filter(|_| uses.is_single(linear.weight))?;
    let bias = match linear.bias {
        Some(bias) => Some(graph.weight(bias)?.clone()),
        None => None,
    };
    graph.weight(linear.x).is_none().then(|| Layer { node, weight: weight.clone(), bias })
}

/// The results of layers, as parts of one.
fn packed(graph: &mut Rewriter<'_>, layers: &[Layer]) -> Result<Vec<ValueId>, NoMatch> {
    let first = layers[0].node;
    let like = graph.node(first).outputs[0];
    // With the operand as it is rewritten.
    let Op::Linear(linear) = graph.node(first).op.clone() else { return Err(NoMatch::Other) };
    let axis = usize::from(linear.transposed.0);
    let weights: Vec<Weight> = layers.iter().map(|layer| layer.weight.clone()).collect();
    let sizes: Vec<usize> = weights.iter().map(|weight| weight.shape()[axis]).collect();
    let too_large = || NoMatch::Miss("the weights are too large for one".to_owned());
    let weight = Weight::concat(&weights, axis).ok_or_else(too_large)?;
    // Scales that are not by output feature have no place in one weight.
    if weights[0].as_dequantized().is_some() && weight.as_dequantized().is_none() {
        return Err(NoMatch::Miss("the codes of the weights have scales that do not fit each other".to_owned()));
    }
    let bias = match layers.iter().any(|layer| layer.bias.is_some()) {
        true => {
            let dtype = weight.dtype();
            let biases = layers.iter().zip(&sizes);
            let biases = biases.map(|(layer, size)| layer.bias.clone().or_else(|| zeros(dtype, *size)));
            let biases = biases.collect::<Option<Vec<Weight>>>().ok_or_else(too_large)?;
            Some(Weight::concat(&biases, 0).ok_or_else(too_large)?)
        }
        false => None,
    };
    let weight = graph.weight_part(weight, like);
    let bias = bias.map(|bias| graph.weight_part(bias, like));
    // Of all layers, `x` is the same: it is there where the first one is.
    let whole = graph.part(Linear { weight, bias, ..linear }, like)?;
    let axis = graph.ty(whole).shape.rank() - 1;
    Ok(graph.emit_part(Split { x: whole, axis, sizes }, like)?)
}

/// So many zeros, of which nothing is in memory.
fn zeros(dtype: DType, size: usize) -> Option<Weight> {
    Weight::inline(dtype, vec![0], Vec::new())?.pad(&[size], 0.0)
}
