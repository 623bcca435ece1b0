//! Columns that are split, computed by the layer in front of an activation.

use std::collections::HashMap;

use planish_ir::handle::Handle;
use planish_ir::ops::{Binary, BinaryKind, Columns, FakeQuantize, Gelu, Linear, Unary, UnaryKind};
use planish_ir::weight::code_range;
use planish_ir::{DType, Graph, Op, Rewriter, Step, ValueId, Weight};

use super::quantized::LEAST_OF_GELU;
use crate::{Example, OPENVINO, Options, Outcome, Pass, PassError, QuantizedForm};

/// Has the layer in front of an activation compute the columns that are split.
pub const SPLIT_AHEAD: Pass = Pass {
    name: "split-ahead",
    summary: "Has a layer compute further features for the columns that are split after its activation, Gelu or ReLU. The \
              pass runs for target openvino. A further feature is equal to the column, and less by the range of the codes after the \
              activation, so its code is what the column exceeds the range by. OpenVINO computes activation, \
              difference and codes in the product; where columns are gathered and limited, it writes and reads the floats. \
              Below the range such a code stands for the least number and not for 0, which the bias of the next layer makes \
              up for. Features are padded to a multiple of 16.",
    numerics: "The bias rounds once more: relative differences of 1e-7.",
    example: Example {
        target: &OPENVINO,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @up = uniform(1) : f32[15, 2]
            weight @down = dequantize([uniform(2) : i8[1, 15], dense([0.5]) : f32[1]], 0) : f32[1, 15]
            %u = linear(%x, @up) : f32[n, 15]
            %r = relu(%u) : f32[n, 15]
            %q = fake_quantize(%r) {to = u8, scale = 0.25, split = [3]} : f32[n, 15]
            %y = linear(%q, @down) : f32[n, 1]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @up = gather(uniform(1) : f32[15, 2], 0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 3]) : f32[16, 2]
            weight @r/const = dense([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 63.75]) : f32[16]
            weight @down = gather(dequantize([uniform(2) : i8[1, 15], dense([0.5]) : f32[1]], 0) : f32[1, 15], 1, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 3]) : f32[1, 16]
            weight @y/const = dense([0.0]) : f32[1]
            %u = linear(%x, @up) : f32[n, 16]
            %r = relu(%u) : f32[n, 16]
            %r/sub = sub(%r, @r/const) : f32[n, 16]
            %q = fake_quantize(%r/sub) {to = u8, scale = 0.25} : f32[n, 16]
            %y = linear(%q, @down, bias: @y/const) : f32[n, 1]
            output y = %y",
    },
    applies: |options| options.fusion && options.target.quantized == QuantizedForm::UnsignedPairs,
    run,
};

/// OpenVINO's products with so many features more or fewer are 2 to 4 % faster than with others.
const MULTIPLE: usize = 16;

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    // Dead users of a value would count.
    graph.compact();
    let uses = graph.use_counts();
    let mut widened: HashMap<ValueId, ValueId> = HashMap::new();
    let changed = graph.rewrite(|graph, node| {
        let (op, like) = (graph.node(node).op.clone(), graph.node(node).outputs[0]);
        let Op::Linear(next) = op else { return Ok::<_, PassError>(Step::Keep) };
        let Some(parts) = Parts::of(graph, &next, &uses) else { return Ok(Step::Keep) };
        let Some(layer) = parts.next(graph, &next)? else { return Ok(Step::Keep) };
        let x = match widened.get(&next.x) {
            Some(x) => *x,
            None => match parts.input(graph, next.x)? {
                Some(x) => x,
                None => return Ok(Step::Keep),
            },
        };
        widened.insert(next.x, x);
        let weight = graph.weight_like(layer.weight, next.weight);
        let bias = match next.bias {
            Some(bias) => graph.weight_like(layer.bias, bias),
            None => graph.weight_part(layer.bias, like),
        };
        Ok(Step::Replace(vec![graph.emit(Linear { x, weight, bias: Some(bias), ..next }, like)?]))
    })?;
    graph.compact();
    Ok(changed.into())
}

/// What makes an input whose columns are split.
struct Parts {
    before: Linear,
    /// What the layer before gives.
    operand: ValueId,
    activation: Op,
    quantize: FakeQuantize,
    scale: f64,
    /// The features of the layer before.
    features: usize,
}

/// The weight of the layer after, with columns for the further features, and its bias.
struct Next {
    weight: Weight,
    bias: Weight,
}

impl Parts {
    /// `None` where the input of a layer is another one, or something else takes what would be computed anew.
    fn of(graph: &Graph, next: &Linear, uses: &[usize]) -> Option<Self> {
        let alone = |value: ValueId| uses.get(value.index()) == Some(&1);
        let Op::FakeQuantize(quantize) = graph.producer(next.x)?.op.clone() else { return None };
        let activation = graph.producer(quantize.x)?.op.clone();
        let (operand, least) = operand(&activation)?;
        let Op::Linear(before) = graph.producer(operand)?.op.clone() else { return None };
        let scale = quantize.scale?.0;
        let features = graph.weight(before.weight)?.shape()[usize::from(before.transposed.0)];
        let held = (least / scale).round_ties_even() >= -(quantize.zero_point.unwrap_or(0) as f64);
        let known = before.bias.is_none_or(|bias| graph.weight(bias).is_some());
        let fits = quantize.to == DType::U8
            && !quantize.split.0.is_empty()
            && graph.ty(operand).dtype == DType::F32
            && [quantize.x, operand, before.weight].into_iter().all(alone);
        (fits && held && known).then_some(Self { before, operand, activation, quantize, scale, features })
    }

    /// The features of the wider layer that are features of the layer.
    fn columns(&self) -> Vec<usize> {
        (0..self.features).chain(self.quantize.split.0.iter().copied()).collect()
    }

    /// The layer, the activation and the codes, with further features.
    fn input(&self, graph: &mut Rewriter<'_>, like: ValueId) -> Result<Option<ValueId>, PassError> {
        let columns = self.columns();
        let wider = |graph: &Graph, value: ValueId, axis: usize| wider(graph.weight(value)?, axis, &columns);
        let Some(weight) = wider(graph, self.before.weight, usize::from(self.before.transposed.0)) else {
            return Ok(None);
        };
        let bias = self.before.bias.map(|bias| (bias, wider(graph, bias, 0)));
        let Some(starts) = self.starts() else { return Ok(None) };
        let weight = graph.weight_like(weight, self.before.weight);
        let bias = match bias {
            Some((old, Some(bias))) => Some(graph.weight_like(bias, old)),
            Some((_, None)) => return Ok(None),
            None => None,
        };
        let product = graph.emit(Linear { weight, bias, ..self.before.clone() }, self.operand)?;
        let mut activation = self.activation.clone();
        activation.visit_operands_mut(&mut |v| *v = product);
        let a = graph.emit(activation, self.quantize.x)?;
        let b = graph.weight_part(starts, self.quantize.x);
        let x = graph.part(Binary { kind: BinaryKind::Sub, a, b }, self.quantize.x)?;
        Ok(Some(graph.emit(FakeQuantize { x, split: Columns::default(), ..self.quantize.clone() }, like)?))
    }

    /// What is taken off each feature: 0, and for the further ones of a column the range of the codes, twice the range and so on.
    fn starts(&self) -> Option<Weight> {
        let split = &self.quantize.split.0;
        let (least, largest) = code_range(self.quantize.to)?;
        let nth = |at: usize| split[..=at].iter().filter(|column| **column == split[at]).count();
        let further = (0..split.len()).map(|at| (largest - least) as f64 * self.scale * nth(at) as f64);
        let mut starts: Vec<f64> = std::iter::repeat_n(0.0, self.features).chain(further).collect();
        starts.resize(starts.len().next_multiple_of(MULTIPLE), 0.0);
        Weight::numbers(DType::F32, vec![starts.len()], &starts)
    }

    /// The weight and the bias of the layer after. `None` where they are not known.
    fn next(&self, graph: &Graph, next: &Linear) -> Result<Option<Next>, PassError> {
        let read = |source| PassError::of_weight(graph, next.weight, source);
        let axis = usize::from(!next.transposed.0);
        let Some(weight) = graph.weight(next.weight).filter(|weight| weight.as_dequantized().is_some()) else {
            return Ok(None);
        };
        let (Some(wide), Some(further)) =
            (wider(weight, axis, &self.columns()), weight.gather(axis, &self.quantize.split.0))
        else {
            return Ok(None);
        };
        let (outputs, count) = (weight.shape()[1 - axis], self.quantize.split.0.len());
        let mut bias = match next.bias.map(|bias| graph.weight(bias)) {
            None => vec![0.0; outputs],
            Some(Some(bias)) => bias.read_numbers().map_err(read)?,
            Some(None) => return Ok(None),
        };
        let lowest = -(self.quantize.zero_point.unwrap_or(0) as f64) * self.scale;
        let numbers = further.read_numbers().map_err(read)?;
        for (at, number) in numbers.iter().enumerate() {
            bias[if axis == 1 { at / count } else { at % outputs }] -= lowest * number;
        }
        let bias = Weight::numbers(DType::F32, vec![outputs], &bias);
        Ok(bias.map(|bias| Next { weight: wide, bias }))
    }
}

/// The operand of an activation that returns large operands as they are, and its least result.
fn operand(op: &Op) -> Option<(ValueId, f64)> {
    match op {
        Op::Unary(Unary { kind: UnaryKind::Relu, x }) => Some((*x, 0.0)),
        Op::Gelu(Gelu { x, .. }) => Some((*x, LEAST_OF_GELU)),
        _ => None,
    }
}

/// These slices of an axis, and slices of zeros up to a multiple of [`MULTIPLE`].
fn wider(weight: &Weight, axis: usize, columns: &[usize]) -> Option<Weight> {
    let mut shape = weight.shape().to_vec();
    *shape.get_mut(axis)? = columns.len().next_multiple_of(MULTIPLE);
    weight.gather(axis, columns)?.pad(&shape, 0.0)
}
