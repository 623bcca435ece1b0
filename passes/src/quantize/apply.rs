//! The pass that applies a plan.

use std::collections::{HashMap, HashSet};

use planish_ir::handle::Handle;
use planish_ir::ops::{Attention, Binary, BinaryKind, LayerNorm, Linear, RmsNorm};
use planish_ir::weight::WeightError;
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, Step, ValueId, Weight};
use rayon::prelude::*;

use super::weights::{WeightScales, scales};
use super::{Activation, PlannedAttention, PlannedInput, Quantization, maps, recurrent, sites, tables, weight_codes};
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Quantizes the inputs and weights of linear layers.
pub const QUANTIZE: Pass = Pass {
    name: "quantize",
    summary: "Quantizes linear layers as the plan of the quantization says. The pass runs where a quantization is asked \
              for. Each input of linear layers becomes a fake_quantize of it, which all its layers share. So do queries and keys \
              of an attention as the plan says. Each weight \
              becomes codes with a scale for each output feature, and stays lazy: dequantize(quantize(W)). Columns of \
              the input that the plan smooths are divided by a factor, by the weights of the norm that gives the input where \
              nothing else takes it, and the weight is multiplied by it (SmoothQuant, \
              Xiao et al. 2022, arXiv:2211.10438). The bias takes the mean error of the layer where the plan has it. \
              A table that token ids are looked up in becomes codes with a scale for each row, which a layer shares that \
              scores tokens with it. So do the weights of LSTM, GRU and RNN, with a scale for each feature; ONNX Runtime's \
              DynamicQuantizeLSTM takes the codes of an LSTM for target ort. \
              What convolutions take and give becomes a fake_quantize too, with the sums, concatenations and pools between them, and their \
              weights codes with a scale for each output channel. An activation goes where the codes have its limits. Without a calibration, \
              only the weights of convolutions become codes. \
              All later passes see linear layers and tables, and lower-quantized emits what the target computes with codes.",
    numerics: "Inputs and weights round to codes of 8 bits. planish evaluate measures what that does to a model.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = dense([1.0, 2.0]) : f32[1, 2]
            %y = linear(%x, @w) : f32[n, 1]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @w = dequantize([quantize([dense([1.0, 2.0]) : f32[1, 2], dense([0.015748031]) : f32[1]], 0) : i8[1, 2], dense([0.015748031]) : f32[1]], 0) : f32[1, 2]
            %x/fake_quantize = fake_quantize(%x) {to = u8, scale = 0.25, zero_point = 128, split = [1]} : f32[n, 2]
            %y = linear(%x/fake_quantize, @w) : f32[n, 1]
            output y = %y",
    },
    applies: |options| options.quantization.is_some(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let Some(quantization) = &options.quantization else { return Ok(Outcome::default()) };
    let planned: HashMap<&str, &PlannedInput> =
        quantization.plan.inputs.iter().map(|input| (input.value.as_str(), input)).collect();
    let uses = graph.use_counts();
    // What only the layers take.
    let mut alone: HashSet<ValueId> = HashSet::new();
    let mut layers: HashMap<NodeId, &PlannedInput> = HashMap::new();
    for site in sites(graph) {
        let input = planned.get(graph.value(site.value).name.as_str());
        let Some(input) = input.filter(|input| !matches!(input.activation, Activation::Float { .. })) else { continue };
        if uses[site.value.index()] == site.layers.len() {
            alone.insert(site.value);
        }
        layers.extend(site.layers.iter().map(|layer| (*layer, *input)));
    }
    let attention: HashMap<&str, &PlannedAttention> =
        quantization.plan.attention.iter().map(|planned| (planned.attention.as_str(), planned)).collect();
    let tables = tables::quantized(graph, &quantization.plan, quantization.weight_scales)?;
    let weights = quantized_weights(graph, quantization, &layers, &tables)?;
    // A table and the layer that shares it take one value.
    let mut coded: HashMap<ValueId, ValueId> = HashMap::new();
    let mut recurrent = recurrent::Codes::default();
    let mut inputs: HashMap<ValueId, ValueId> = HashMap::new();
    let changed = graph.rewrite(|graph, node| {
        let looked_up = tables::table(&graph.node(node).op).and_then(|table| Some((table, tables.get(&table)?)));
        if let Some((table, weight)) = looked_up {
            let weight = *coded.entry(table).or_insert_with(|| graph.weight_like(weight.clone(), table));
            let (mut op, like) = (graph.node(node).op.clone(), graph.node(node).outputs[0]);
            op.visit_operands_mut(&mut |operand| *operand = if *operand == table { weight } else { *operand });
            return Ok(Step::Replace(graph.emit_all(op, like)?));
        }
        if let Some(results) = recurrent.step(graph, node, &quantization.plan, quantization.weight_scales)? {
            return Ok(Step::Replace(results));
        }
        if let Op::Attention(op) = graph.node(node).op.clone() {
            let like = graph.node(node).outputs[0];
            let planned = attention.get(graph.value(like).name.as_str());
            let done = matches!(graph.producer(op.q).map(|node| &node.op), Some(Op::FakeQuantize(_)));
            let Some(planned) = planned.filter(|planned| planned.queries.codes().is_some() && !done) else {
                return Ok(Step::Keep);
            };
            let q = quantized_input(graph, op.q, &planned.queries, false)?;
            let k = quantized_input(graph, op.k, &planned.keys, false)?;
            return Ok(Step::Replace(graph.emit_all(Attention { q, k, ..op }, like)?));
        }
        let (Some(input), Some(weight)) = (layers.get(&node), weights.get(&node)) else {
            return Ok::<_, PassError>(Step::Keep);
        };
        let Op::Linear(linear) = graph.node(node).op.clone() else { return Ok(Step::Keep) };
        let like = graph.node(node).outputs[0];
        let x = match inputs.get(&linear.x) {
            Some(x) => *x,
            None => quantized_input(graph, linear.x, &input.activation, alone.contains(&linear.x))?,
        };
        inputs.insert(linear.x, x);
        let bias = linear.bias;
        let mut new = || graph.weight_like(weight.clone(), linear.weight);
        let weight = match tables.get(&linear.weight) {
            Some(table) if table == weight => *coded.entry(linear.weight).or_insert_with(new),
            _ => new(),
        };
        Ok(Step::Replace(vec![graph.emit(Linear { x, weight, bias, ..linear }, like)?]))
    })?;
    graph.compact();
    let changed = changed + maps::apply(graph, quantization)?;
    graph.compact();
    Ok(changed.into())
}

/// The input divided by its smoothing factors, and quantized; `alone` says that nothing else takes it.
fn quantized_input(
    graph: &mut Rewriter<'_>,
    x: ValueId,
    activation: &Activation,
    alone: bool,
) -> Result<ValueId, PassError> {
    let smoothed = smoothed_input(graph, x, activation.smooth(), alone)?;
    match activation.operator(smoothed) {
        Some(operator) => Ok(graph.part(operator, x)?),
        None => Ok(x),
    }
}

/// The input with each column divided by a factor; `alone` says that nothing else takes it.
pub(super) fn smoothed_input(
    graph: &mut Rewriter<'_>,
    x: ValueId,
    factors: &[f32],
    alone: bool,
) -> Result<ValueId, PassError> {
    let factors: Vec<f64> = factors.iter().map(|factor| 1.0 / f64::from(*factor)).collect();
    let Some(factors) = Weight::numbers(DType::F32, vec![factors.len()], &factors).filter(|_| !factors.is_empty())
    else {
        return Ok(x);
    };
    match if alone { scaled_norm(graph, x, &factors) } else { None } {
        Some(norm) => Ok(graph.part(norm, x)?),
        None => {
            let b = graph.weight_part(factors, x);
            Ok(graph.part(Binary { kind: BinaryKind::Mul, a: x, b }, x)?)
        }
    }
}

/// The norm with stored weights that gives a value, with results multiplied by factors.
fn scaled_norm(graph: &mut Rewriter<'_>, x: ValueId, factors: &Weight) -> Option<Op> {
    let op = graph.producer(x)?.op.clone();
    let mut scaled = |value: ValueId| {
        let weight = graph.weight(value)?.scale(0, factors)?;
        Some(graph.weight_like(weight, value))
    };
    match op {
        Op::LayerNorm(norm) => {
            let weight = scaled(norm.weight)?;
            let bias = match norm.bias {
                Some(bias) => Some(scaled(bias)?),
                None => None,
            };
            Some(LayerNorm { weight, bias, ..norm }.into())
        }
        Op::RmsNorm(norm) => Some(RmsNorm { weight: scaled(norm.weight)?, ..norm }.into()),
        _ => None,
    }
}

/// The weights of layers as codes with scales.
fn quantized_weights(
    graph: &Graph,
    quantization: &Quantization,
    layers: &HashMap<NodeId, &PlannedInput>,
    tables: &HashMap<ValueId, Weight>,
) -> Result<HashMap<NodeId, Weight>, PassError> {
    let nodes: Vec<(NodeId, &PlannedInput)> =
        graph.nodes().filter_map(|(id, _)| Some((id, *layers.get(&id)?))).collect();
    let one = |(id, input): (NodeId, &PlannedInput)| {
        let Op::Linear(linear) = &graph.node(id).op else { return Ok(None) };
        let Some(weight) = graph.weight(linear.weight) else { return Ok(None) };
        let codes = weight_codes(input.activation.codes().unwrap_or(DType::I8));
        let is_shared = tables::is_shared(graph, &quantization.plan, linear) && input.activation.smooth().is_empty();
        if let Some(table) = tables.get(&linear.weight).filter(|_| is_shared && codes == DType::I8) {
            return Ok(Some((id, table.clone())));
        }
        let name = sites::name(graph, id);
        let given = quantization.rounded.get(name).map(|rounded| (rounded.codes.clone(), rounded.scales.clone()));
        let quantized = quantized_weight(weight, linear.transposed.0, input, codes, quantization.weight_scales, given);
        let quantized = quantized.map_err(|source| PassError::of_weight(graph, linear.weight, source))?;
        Ok(quantized.map(|weight| (id, weight)))
    };
    nodes.into_par_iter().filter_map(|layer| one(layer).transpose()).collect()
}

/// A weight as codes with scales; `None` where the plan does not fit it.
fn quantized_weight(
    weight: &Weight,
    transposed: bool,
    input: &PlannedInput,
    codes: DType,
    how: WeightScales,
    given: Option<(Weight, Weight)>,
) -> Result<Option<Weight>, WeightError> {
    let axis = usize::from(transposed);
    if let Some((codes, scales)) = given {
        let codes = if transposed { codes.transpose(&[1, 0]) } else { Some(codes) };
        return Ok(codes.and_then(|codes| codes.dequantize(axis, &scales, None)));
    }
    let Some(smoothed) = smoothed(weight, 1 - axis, input.activation.smooth()) else { return Ok(None) };
    let scales = scales(&smoothed, axis, codes, how)?;
    let quantized = smoothed.quantize(codes, axis, &scales, None);
    Ok(quantized.and_then(|quantized| quantized.dequantize(axis, &scales, None)))
}

/// A weight with its input features multiplied by the smoothing factors.
pub(super) fn smoothed(weight: &Weight, axis: usize, factors: &[f32]) -> Option<Weight> {
    if factors.is_empty() {
        return Some(weight.clone());
    }
    let factors: Vec<f64> = factors.iter().copied().map(f64::from).collect();
    weight.scale(axis, &Weight::numbers(DType::F32, vec![factors.len()], &factors)?)
}
