//! The pass that applies a plan of weights.

use std::collections::HashMap;

use planish_ir::handle::Handle;
use planish_ir::ops::{Embedding, Gather, Linear};
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, Step, ValueId, Weight};

use super::super::apply::{smoothed, smoothed_input};
use super::super::sites::sites;
use super::super::weights::{WeightScales, quantized_rows};
use super::planner::expert_weights;
use super::{WeightForm, WeightQuantization};
use crate::{Example, ORT, Options, Outcome, Pass, PassError};

/// Quantizes weights, and leaves activations as they are.
pub const QUANTIZE_WEIGHTS: Pass = Pass {
    name: "quantize-weights",
    summary: "Quantizes weights as the plan of the weights says. The pass runs where weight-only quantization is asked for. \
              Each weight of a linear layer, and each table that token ids are looked up in, becomes codes with a scale for \
              each block of neighbours in a row, and stays lazy: the export fits scales and codes to a row when it writes it. \
              With AWQ, columns of an input are divided by factors, by the weights of the norm that gives the input where \
              nothing else takes it, and the columns of the weights are multiplied by them. lower-quantized emits what the \
              target computes with such weights.",
    numerics: "Weights round to codes of 4 or 8 bits. planish evaluate measures what that does to a model.",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = dense([1.0, 2.0]) : f32[1, 2]
            %y = linear(%x, @w) : f32[n, 1]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @w = dequantize([quantize([dense([1.0, 2.0]) : f32[1, 2], fitted_scales([dense([1.0, 2.0]) : f32[1, 2]], i4, 2, least_squares, negative) : f32[1, 1]], 1, 2) : i4[1, 2], fitted_scales([dense([1.0, 2.0]) : f32[1, 2]], i4, 2, least_squares, negative) : f32[1, 1]], 1, 2) : f32[1, 2]
            %y = linear(%x, @w) : f32[n, 1]
            output y = %y",
    },
    applies: |options| options.weight_quantization.is_some(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let Some(quantization) = &options.weight_quantization else { return Ok(Outcome::default()) };
    let negative = options.target.has_block_operators();
    let forms: HashMap<&str, &WeightForm> =
        quantization.plan.weights.iter().map(|planned| (planned.weight.as_str(), &planned.form)).collect();
    let layers = scaled_layers(graph, quantization);
    let mut quantized: HashMap<(ValueId, Option<&str>), ValueId> = HashMap::new();
    let mut inputs: HashMap<&str, ValueId> = HashMap::new();
    let changed = graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let mut op = graph.node(node).op.clone();
        if let Op::Experts(experts) = &op {
            let taken = expert_weights(graph, experts).into_iter();
            let mut changed = HashMap::new();
            let importance = quantization.of_experts.get(&graph.value(like).name);
            for (weight, [inner, _]) in taken {
                // What the last matrix takes is not measured.
                let importance = importance.filter(|_| weight != experts.down);
                let planned = forms.get(graph.value(weight).name.as_str()).copied();
                let Some(form) = planned.filter(|form| form.codes().is_some()) else { continue };
                let key = (weight, None);
                let known = quantized.get(&key).copied();
                let made = || {
                    Some(graph.weight_like(stacked_codes(graph, weight, inner, form, importance, negative)?, weight))
                };
                let Some(new) = known.or_else(made) else { continue };
                quantized.insert(key, new);
                changed.insert(weight, new);
            }
            if changed.is_empty() {
                return Ok(Step::Keep);
            }
            op.visit_operands_mut(&mut |v| *v = changed.get(v).copied().unwrap_or(*v));
            return Ok(Step::Replace(graph.emit_all(op, like)?));
        }
        let (weight, transposed) = match &op {
            Op::Linear(Linear { weight, transposed, .. }) => (*weight, transposed.0),
            Op::Embedding(Embedding { weight, .. }) | Op::Gather(Gather { x: weight, axis: 0, .. }) => (*weight, false),
            _ => return Ok::<_, PassError>(Step::Keep),
        };
        let is_quantized = graph.weight(weight).is_none_or(|weight| weight.as_dequantized().is_some());
        let form = forms.get(graph.value(weight).name.as_str()).copied().filter(|_| !is_quantized);
        let Some(form) = form.filter(|form| form.codes().is_some()) else { return Ok(Step::Keep) };
        let scaled = layers.get(&node);
        // A weight of several inputs with factors of their own becomes several weights.
        let key = (weight, scaled.map(|scaled| scaled.input));
        let new = match quantized.get(&key) {
            Some(new) => *new,
            None => {
                let codes = match form {
                    WeightForm::Rows { .. } => rows(graph, weight)?,
                    _ => codes(graph, weight, transposed, form, scaled, quantization, negative),
                };
                let Some(codes) = codes else { return Ok(Step::Keep) };
                *quantized.entry(key).or_insert(graph.weight_like(codes, weight))
            }
        };
        if let Op::Linear(linear) = &mut op {
            linear.weight = new;
            if let Some(scaled) = scaled.filter(|scaled| !scaled.factors.is_empty()) {
                linear.x = match inputs.get(scaled.input) {
                    Some(x) => *x,
                    None => {
                        let x = smoothed_input(graph, linear.x, scaled.factors, scaled.alone)?;
                        *inputs.entry(scaled.input).or_insert(x)
                    }
                };
            }
        } else {
            op.visit_operands_mut(&mut |v| *v = if *v == weight { new } else { *v });
        }
        Ok(Step::Replace(graph.emit_all(op, like)?))
    })?;
    graph.compact();
    Ok(changed.into())
}

/// Stacked matrices as codes with scales: those of the matrices one below the other. `importance`, [matrices, inner], is of the
/// columns of each.
fn stacked_codes(
    graph: &Rewriter<'_>,
    value: ValueId,
    inner: usize,
    form: &WeightForm,
    importance: Option<&Vec<f32>>,
    negative: bool,
) -> Option<Weight> {
    let weight = graph.weight(value)?;
    let rows = weight.elements().checked_div(inner)?;
    let importance = importance.filter(|importance| importance.len() == weight.shape()[0] * inner);
    let importance = importance.and_then(|importance| {
        let numbers: Vec<f64> = importance.iter().copied().map(f64::from).collect();
        Weight::numbers(DType::F32, vec![weight.shape()[0], inner], &numbers)
    });
    let of = weight.reshape(&[rows, inner])?.fit(form.fit(inner, negative)?, importance.as_ref())?;
    of.codes.dequantize(of.channels, &of.scales, of.zero_points.as_ref())?.reshape(weight.shape())
}

/// A layer whose input was measured.
struct Scaled<'a> {
    /// The name of the input.
    input: &'a str,
    /// What the columns of the input are divided by; empty for nothing.
    factors: &'a [f32],
    /// How much the columns of the weight count.
    importance: &'a [f32],
    /// Whether nothing but layers takes the input.
    alone: bool,
}

fn scaled_layers<'a>(graph: &Graph, quantization: &'a WeightQuantization) -> HashMap<NodeId, Scaled<'a>> {
    let uses = graph.use_counts();
    let mut layers = HashMap::new();
    for site in sites(graph) {
        let found = quantization.importance.get_key_value(&graph.value(site.value).name);
        let Some((input, importance)) = found.filter(|(_, importance)| importance.len() == site.columns) else {
            continue;
        };
        let factors = quantization.factors.get(input).map_or(&[][..], Vec::as_slice);
        let alone = uses[site.value.index()] == site.layers.len();
        layers.extend(site.layers.iter().map(|layer| (*layer, Scaled { input, factors, importance, alone })));
    }
    layers
}

/// A table as codes with a scale for each row.
fn rows(graph: &Rewriter<'_>, table: ValueId) -> Result<Option<Weight>, PassError> {
    let Some(weight) = graph.weight(table) else { return Ok(None) };
    quantized_rows(weight, WeightScales::MinMax).map_err(|source| PassError::of_weight(graph, table, source))
}

/// A weight as codes with scales, of the shape that it has; `None` where the plan does not fit it.
fn codes(
    graph: &Rewriter<'_>,
    value: ValueId,
    transposed: bool,
    form: &WeightForm,
    scaled: Option<&Scaled<'_>>,
    quantization: &WeightQuantization,
    negative: bool,
) -> Option<Weight> {
    let turned = |weight: &Weight| if transposed { weight.transpose(&[1, 0]) } else { Some(weight.clone()) };
    let of = match quantization.chosen.get(&graph.value(value).name) {
        Some(chosen) => chosen.clone(),
        None => {
            let matrix = turned(graph.weight(value)?)?;
            let factors = scaled.map_or(&[][..], |scaled| scaled.factors);
            let matrix = smoothed(&matrix, 1, factors)?;
            let fit = form.fit(matrix.shape()[1], negative)?;
            match scaled.map(|scaled| scaled.importance) {
                None => matrix.fit(fit, None)?,
                Some(importance) => {
                    let factor = |i: usize| factors.get(i).map_or(1.0, |factor| f64::from(*factor));
                    let squares: Vec<f64> =
                        importance.iter().enumerate().map(|(i, x)| f64::from(*x) / factor(i).powi(2)).collect();
                    matrix.fit(fit, Some(&Weight::numbers(DType::F32, vec![squares.len()], &squares)?))?
                }
            }
        }
    };
    turned(&of.codes.dequantize(of.channels, &of.scales, of.zero_points.as_ref())?)
}
