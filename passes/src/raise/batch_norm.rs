//! Batch norms as a part of the convolution before them.

use planish_ir::handle::Handle;
use planish_ir::ops::{Conv, Foreign, Setting};
use planish_ir::{DType, Graph, Op, Step, ValueId, Weight};

use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// What ONNX's BatchNormalization adds to the variance unless it says otherwise.
const EPSILON: f64 = 1e-5;

/// Makes batch norms a part of the convolutions before them.
pub const FOLD_BATCH_NORMS: Pass = Pass {
    name: "fold-batch-norms",
    summary: "Makes a BatchNormalization a part of the convolution before it, where nothing else takes what that gives. Each \
              filter is multiplied by scale / sqrt(variance + epsilon) of its channel, and the bias has the rest. The filters stay lazy.",
    numerics: "The results of the convolution are not rounded in between: relative differences of 1e-7.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 1, 4]
            weight @w = uniform(1) : f32[2, 1, 3]
            weight @scale = dense([2.0, 3.0]) : f32[2]
            weight @shift = dense([0.5, 0.0]) : f32[2]
            weight @mean = dense([1.0, -1.0]) : f32[2]
            weight @variance = dense([3.0, 8.0]) : f32[2]
            %c = conv(%x, @w) {strides = [1], dilations = [1], pads = [0, 0], groups = 1, sizes = [2]} : f32[n, 2, 2]
            %y = foreign([%c, @scale, @shift, @mean, @variance], []) {domain = \"ai.onnx\", op = \"BatchNormalization\", version = 15, settings = [epsilon = float(1.0)], captures = [], results = [f32[n, 2, 2]]} : f32[n, 2, 2]
            output y = %y",
        after: "
            input %x: f32[n, 1, 4]
            weight @w = scale([uniform(1) : f32[2, 1, 3], dense([1.0, 1.0]) : f32[2]], 0) : f32[2, 1, 3]
            weight @y/const = dense([-0.5, 1.0]) : f32[2]
            %y = conv(%x, @w, bias: @y/const) {strides = [1], dilations = [1], pads = [0, 0], groups = 1, sizes = [2]} : f32[n, 2, 2]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    // Dead users of a value would count.
    graph.compact();
    let uses = graph.use_counts();
    let folded = graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let Some((conv, factors, bias)) = folded(graph, &graph.node(node).op, &uses) else { return Ok(Step::Keep) };
        let weight = graph.weight(conv.weight).and_then(|weight| weight.scale(0, &factors));
        let Some(weight) = weight else { return Ok(Step::Keep) };
        let weight = graph.weight_like(weight, conv.weight);
        let bias = Some(graph.weight_part(bias, like));
        Ok::<_, PassError>(Step::Replace(vec![graph.emit(Conv { weight, bias, ..conv }, like)?]))
    })?;
    graph.compact();
    Ok(folded.into())
}

/// The convolution before a norm, what its filters are multiplied by, and its bias with the norm.
fn folded(graph: &Graph, op: &Op, uses: &[usize]) -> Option<(Conv, Weight, Weight)> {
    let Op::Foreign(norm) = op else { return None };
    let is_known = norm.is("BatchNormalization") && norm.results.0.iter().skip(1).all(Option::is_none);
    let is_trained = norm.setting("training_mode").is_none_or(|mode| *mode == Setting::Int(0));
    let of_channels = norm.setting("spatial").is_none_or(|spatial| *spatial == Setting::Int(1));
    if !is_known || !is_trained || !of_channels {
        return None;
    }
    let value = |at: usize| norm.inputs.get(at).copied().flatten();
    let x = value(0)?;
    let Op::Conv(conv) = &graph.producer(x)?.op else { return None };
    let out = *graph.weight(conv.weight).filter(|weight| weight.dtype() == DType::F32)?.shape().first()?;
    if uses.get(x.index()).copied() != Some(1) {
        return None;
    }
    let vector = |value: ValueId| -> Option<Vec<f64>> {
        let weight = graph.weight(value).filter(|weight| weight.shape() == [out])?;
        weight.read_numbers().ok()
    };
    let [scale, shift, mean, variance] = [1, 2, 3, 4].map(|at| vector(value(at)?));
    let (scale, shift, mean, variance) = (scale?, shift?, mean?, variance?);
    let bias = match conv.bias {
        Some(bias) => vector(bias)?,
        None => vec![0.0; out],
    };
    let epsilon = epsilon(norm);
    let factors: Vec<f64> = scale.iter().zip(&variance).map(|(scale, v)| scale / (v + epsilon).sqrt()).collect();
    let shifts: Vec<f64> = (0..out).map(|at| (bias[at] - mean[at]) * factors[at] + shift[at]).collect();
    let is_finite = factors.iter().chain(&shifts).all(|number| (*number as f32).is_finite());
    let numbers = |values: &[f64]| Weight::numbers(DType::F32, vec![out], values).filter(|_| is_finite);
    Some((conv.clone(), numbers(&factors)?, numbers(&shifts)?))
}

fn epsilon(norm: &Foreign) -> f64 {
    match norm.setting("epsilon") {
        Some(Setting::Float(epsilon)) => epsilon.0,
        _ => EPSILON,
    }
}
