//! Lowering of quantized values and of the linear layers that take them.

mod ahead;
mod blocks;
mod codebook;
mod codes;
mod emit;
mod shared;
mod weights;

use std::collections::{HashMap, HashSet};

pub(super) use ahead::LEAST_OF_GELU;
use blocks::Blocks;
pub use blocks::{block_bits, product_inputs};
pub(super) use codes::unfit;
pub(crate) use emit::MICROSOFT;
pub use emit::{LAST_WITH_QUANTIZE_KERNELS, opset_of_codes};
pub(super) use emit::{attributes, foreign, standard};
pub(super) use shared::{DEPTH, moved};
pub(crate) use weights::reshaped;

use planish_ir::handle::Handle;
use planish_ir::ops::{FakeQuantize, Linear};
use planish_ir::weight::{Channels, Dequantized};
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, Step, ValueId, Weight};

use crate::{BlockInputs, Example, ORT, Options, Outcome, Pass, PassError, QuantizedForm};

/// Emits what the target computes quantized layers with.
pub const LOWER_QUANTIZED: Pass = Pass {
    name: "lower-quantized",
    summary: "Lowers quantized values and the linear layers that take them. For target ort, a layer whose input and \
              weight are quantized becomes a product of integers: QuantizeLinear, which all layers of the input share, \
              and MatMulIntegerToFloat with the bias. With the scale of each run they become DynamicQuantizeLinear and \
              MatMulIntegerToFloat, or one DynamicQuantizeMatMul where one layer takes the input. For the other targets \
              the input goes through QuantizeLinear and DequantizeLinear, and the codes of the weight through \
              DequantizeLinear, which TensorRT fuses with the product. Columns that are split are put after the \
              input: what they exceed the range by, limited to the range. Rows of the weight are repeated for them. \
              For target ort, where the input is Gelu or ReLU of a product of integers, a QGemm with results of codes \
              computes these columns from the input of that product, and the bias makes up for the zero point. \
              Weights of codes that other operators take go through DequantizeLinear too, except vectors, which are \
              computed. Rows of a table of codes with a scale for each row are looked up as codes, and \
              multiplied by their scales; for target trt they go through DequantizeLinear, and a layer that shares the table takes its \
              numbers transposed. For target ort, rows of a table of codes with one scale are looked up before DequantizeLinear. Where the target \
              runs ONNX Runtime's own operators, layers with a scale for each block of their weight become MatMulNBits, and \
              rows of such a table are looked up by GatherBlockQuantized; for target ort, so do layers whose weights alone \
              are codes of 8 bits, because ONNX Runtime rounds the input of a product after DequantizeLinear; layers of indices of the tables NF4 and FP4 become \
              MatMulBnb4. For target \
              trt, u8 with a zero point of 128 becomes i8. For target cuda, a layer becomes quantize and \
              quantized_linear, with its activation and residual: layers of one input share its codes, the weight is \
              [out, in], and its scales are multiplied by that of the input. Layers whose sizes are no multiples of 4, \
              which products of codes do not have there, stay products of floats.",
    numerics: "Products of integers are exact, and are multiplied by the scales once: relative differences of 1e-7.",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = dequantize([dense([1, 2]) : i8[1, 2], dense([0.5]) : f32[1]], 0) : f32[1, 2]
            %q = fake_quantize(%x) {to = u8, scale = 0.25, zero_point = 128, split = [1]} : f32[n, 2]
            %y = linear(%q, @w) : f32[n, 1]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @q/const = dense([0.25]) : f32[]
            weight @q/const_1 = dense([128]) : u8[]
            weight @q/const_2 = dense([-32.0]) : f32[]
            weight @q/const_3 = dense([31.75]) : f32[]
            weight @w = gather(transpose(dense([1, 2]) : i8[1, 2], [1, 0]) : i8[2, 1], 0, [0, 1, 1]) : i8[3, 1]
            weight @w/const = dense([0.5]) : f32[1]
            %q/foreign = foreign([%x, @q/const, @q/const_1], []) {domain = \"ai.onnx\", op = \"QuantizeLinear\", version = 19, captures = [], results = [u8[n, 2]]} : u8[n, 2]
            %q/slice = slice(%x) {axis = 1, start = 1, end = 2} : f32[n, 1]
            %q/max = max(%q/slice, @q/const_2) : f32[n, 1]
            %q/min = min(%q/max, @q/const_3) : f32[n, 1]
            %q/sub = sub(%q/slice, %q/min) : f32[n, 1]
            %q/foreign_1 = foreign([%q/sub, @q/const, @q/const_1], []) {domain = \"ai.onnx\", op = \"QuantizeLinear\", version = 19, captures = [], results = [u8[n, 1]]} : u8[n, 1]
            %q/concat = concat([%q/foreign, %q/foreign_1]) {axis = 1} : u8[n, 3]
            %y/foreign = foreign([%q/concat, @w, @q/const, @w/const, @q/const_1, _, _], []) {domain = \"com.microsoft\", op = \"MatMulIntegerToFloat\", version = 1, captures = [], results = [f32[n, 1]]} : f32[n, 1]
            output y = %y/foreign",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    // Dead users of a value would count.
    graph.compact();
    if options.target.quantized == QuantizedForm::Codes {
        return Ok(codes::lower(graph)?.into());
    }
    let mut lowering = Lowering {
        form: options.target.quantized,
        opset: options.opset,
        integers: options.block_inputs == BlockInputs::Integers && options.target.rounds_block_inputs(),
        rounds: options.target.rounds_block_inputs(),
        microsoft: options.target.has_block_operators(),
        layers: layers(graph),
        looked_up: graph.nodes().filter_map(|(_, node)| Some(weights::lookup(&node.op)?[0])).collect(),
        uses: graph.use_counts(),
        numbers: HashMap::new(),
        codes: HashMap::new(),
        wide: HashMap::new(),
        ahead: HashMap::new(),
        tables: HashMap::new(),
        moved: HashMap::new(),
    };
    let changed = graph.rewrite(|graph, node| lowering.step(graph, node))?;
    graph.compact();
    Ok(changed.into())
}

/// How many layers with a quantized weight take a value.
fn layers(graph: &Graph) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    for (_, node) in graph.nodes() {
        if let Op::Linear(linear) = &node.op
            && graph.weight(linear.weight).is_some_and(|weight| weight.as_dequantized().is_some())
        {
            *uses.entry(linear.x).or_default() += 1;
        }
    }
    uses
}

/// A value as codes.
#[derive(Clone, Copy)]
struct Coded {
    /// The codes, [.., columns and those after them].
    codes: ValueId,
    /// What a code of 1 stands for, a float32 scalar.
    scale: ValueId,
    /// The code of 0, a scalar of the type of the codes.
    zero_point: ValueId,
}

struct Lowering {
    form: QuantizedForm,
    /// Whether the target runs ONNX Runtime's own operators.
    microsoft: bool,
    /// Whether products with weights that have a scale for each block round blocks of their input to integers.
    integers: bool,
    /// Whether the runtime makes such products of DequantizeLinear and a product, and rounds their input unless told otherwise.
    rounds: bool,
    /// The opset that the graph is written for.
    opset: u32,
    /// By quantized value, how many layers with a quantized weight take it.
    layers: HashMap<ValueId, usize>,
    /// The tables that rows are looked up in.
    looked_up: HashSet<ValueId>,
    /// By quantized value, how many operators and outputs take it.
    uses: Vec<usize>,
    /// What was quantized, by the numbers that took its place.
    numbers: HashMap<ValueId, FakeQuantize>,
    /// The codes of values.
    codes: HashMap<FakeQuantize, Coded>,
    /// The codes of activations whose columns after the layer before computes.
    ahead: HashMap<FakeQuantize, Option<ahead::Ahead>>,
    /// The numbers of values, with those of the columns after.
    wide: HashMap<FakeQuantize, ValueId>,
    /// The numbers of weights of codes.
    tables: HashMap<ValueId, ValueId>,
    /// The codes of values that were given another shape or order.
    moved: HashMap<ValueId, Coded>,
}

impl Lowering {
    fn step(&mut self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
        let like = graph.node(node).outputs[0];
        match graph.node(node).op.clone() {
            Op::FakeQuantize(quantize) => {
                let of_layers = self.layers.get(&like).copied().unwrap_or(0);
                // What only layers take is emitted with them. Nothing but a layer takes what is split.
                if of_layers == self.uses[like.index()] || !quantize.split.0.is_empty() {
                    return Ok(Step::Keep);
                }
                let quantize = self.signed(quantize);
                let numbers = self.pair(graph, &quantize, like)?;
                self.numbers.insert(numbers, quantize);
                Ok(Step::Replace(vec![numbers]))
            }
            Op::Linear(linear) => match self.layer(graph, &linear, like)? {
                Some(result) => Ok(Step::Replace(vec![result])),
                None => self.other(graph, node),
            },
            Op::Foreign(foreign) => match self.share(graph, &foreign, like) {
                Some(codes) => Ok(Step::Replace(vec![codes])),
                None => self.other(graph, node),
            },
            _ => self.other(graph, node),
        }
    }

    /// A layer with a quantized weight; `None` for another.
    fn layer(
        &mut self,
        graph: &mut Rewriter<'_>,
        linear: &Linear,
        like: ValueId,
    ) -> Result<Option<ValueId>, PassError> {
        let input = self.input(graph, linear.x);
        if input.is_none()
            && let Some(product) = self.indexed_product(graph, linear, like)?
        {
            return Ok(Some(product));
        }
        let weight = graph.weight(linear.weight).and_then(Weight::as_dequantized);
        let Some(weight) = weight else {
            // The input is quantized, and the weight is not.
            let Some(input) = input.filter(|_| is_quantized(graph, linear.x)) else { return Ok(None) };
            let x = self.pair(graph, &input, linear.x)?;
            return Ok(Some(graph.emit(Linear { x, ..linear.clone() }, like)?));
        };
        if self.microsoft
            && input.is_none()
            && let Some(blocks) = blocks(&weight, linear.transposed.0, self.rounds)
        {
            return Ok(Some(blocks.product(graph, linear, like, self.integers)?));
        }
        let Some(matrix) = Matrix::new(self.signed_codes(weight), linear, input.as_ref()) else { return Ok(None) };
        let integers = self.form == QuantizedForm::IntegerProducts
            && graph.ty(like).dtype == DType::F32
            && graph.ty(linear.x).shape.rank() > 1;
        match input {
            Some(input) if integers && matrix.is_of_integers(input.to) => {
                Ok(Some(self.integer_product(graph, &input, &matrix, linear, like)?))
            }
            input => {
                // What is moved is numbers already.
                let input = input.filter(|_| is_quantized(graph, linear.x));
                Ok(Some(self.product_of_numbers(graph, input.as_ref(), &matrix, linear, like)?))
            }
        }
    }
}

/// Whether `lower-quantized` makes a MatMulNBits of a layer whose input is not quantized.
pub(crate) fn becomes_block_product(graph: &Graph, linear: &Linear, options: &Options) -> bool {
    let weight = || graph.weight(linear.weight).and_then(Weight::as_dequantized);
    options.target.has_block_operators()
        && !is_quantized(graph, linear.x)
        && weight()
            .is_some_and(|weight| blocks(&weight, linear.transposed.0, options.target.rounds_block_inputs()).is_some())
}

/// A weight with a scale for each block as ONNX Runtime's own operators take it; `transposed` says that it is [in, out].
/// With `rows`, codes of 8 bits with a scale for each output feature, or with one scale, are blocks that are whole rows: MatMulNBits
/// says whether it rounds its input, which DequantizeLinear does not.
fn blocks(weight: &Dequantized, transposed: bool, rows: bool) -> Option<Blocks> {
    let turned = if transposed { weight.clone().transpose(&[1, 0])? } else { weight.clone() };
    match turned.channels {
        Channels::Axis(_) if rows && turned.codes.dtype().bits() == 8 && turned.scales.dtype() == DType::F32 => {
            Blocks::new(&whole_rows(turned)?)
        }
        _ => Blocks::new(&turned),
    }
}

/// Codes [out, in] with a scale for each row, or one for all, as those of blocks that are rows. `None` where columns have scales.
fn whole_rows(weight: Dequantized) -> Option<Dequantized> {
    let [rows, columns] = *weight.codes.shape() else { return None };
    let by_row = |of: &Weight| match of.shape() {
        [] => of.reshape(&[1, 1])?.gather(0, &vec![0; rows]),
        [_] if weight.channels == Channels::Axis(0) => of.reshape(&[rows, 1]),
        _ => None,
    };
    let zero_points = match &weight.zero_points {
        Some(zeros) => Some(by_row(zeros)?),
        None => None,
    };
    let channels = Channels::Blocks { axis: 1, size: columns.max(1) };
    Some(Dequantized { scales: by_row(&weight.scales)?, zero_points, codes: weight.codes, channels })
}

/// Whether a value is what an operator quantizes.
fn is_quantized(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.producer(value).map(|node| &node.op), Some(Op::FakeQuantize(_)))
}

/// A quantized weight as a product takes it.
struct Matrix {
    /// [in, out], with rows repeated for columns that are split.
    codes: Weight,
    /// Floats: `[out]`, `[]`, or [blocks, out].
    scales: Weight,
    /// As the scales.
    zero_points: Option<Weight>,
    /// By output feature, or by block of input features.
    channels: Channels,
}

impl Matrix {
    fn new(weight: Dequantized, linear: &Linear, input: Option<&FakeQuantize>) -> Option<Self> {
        let weight = if linear.transposed.0 { weight } else { weight.transpose(&[1, 0])? };
        let Dequantized { codes, scales, zero_points, channels } = weight;
        let split = input.map_or(&[][..], |input| &input.split.0);
        match channels {
            // A scale for each input feature is no factor of a product.
            Channels::Axis(axis) if axis != 1 && !scales.shape().is_empty() => return None,
            Channels::Axis(_) => {}
            Channels::Blocks { axis, .. } if axis != 0 || !split.is_empty() => return None,
            Channels::Blocks { .. } => return Some(Self { codes, scales, zero_points, channels }),
        }
        let rows: Vec<usize> = (0..codes.shape()[0]).chain(added_columns(split).map(|(column, _)| column)).collect();
        Some(Self { codes: codes.gather(0, &rows)?, scales, zero_points, channels: Channels::Axis(1) })
    }

    /// Whether the operators of ONNX Runtime for products of integers take the codes, with codes of this type. They have
    /// no product of signed codes with unsigned ones.
    fn is_of_integers(&self, input: DType) -> bool {
        let codes = self.codes.dtype();
        let pair = matches!((input, codes), (DType::U8, DType::U8 | DType::I8) | (DType::I8, DType::I8));
        pair && self.scales.dtype() == DType::F32 && matches!(self.channels, Channels::Axis(_))
    }
}

/// The first opset whose QuantizeLinear and DequantizeLinear have codes of a type for floats of a type.
fn first_opset(floats: DType, codes: DType) -> u32 {
    match codes {
        DType::I2 | DType::U2 => 25,
        DType::F4E2M1 => 23,
        DType::I16 | DType::U16 | DType::I4 | DType::U4 => 21,
        DType::I8 | DType::U8 | DType::I32 if floats == DType::F32 => 13,
        _ => 19,
    }
}

/// The columns of codes after the input: the column that each is of, and how many columns of codes that one has
/// before. All second ones come first, then all third ones.
fn added_columns(split: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let mut parts: Vec<(usize, usize)> = Vec::with_capacity(split.len());
    for (at, column) in split.iter().enumerate() {
        parts.push((split[..at].iter().filter(|before| *before == column).count() + 1, *column));
    }
    parts.sort_unstable();
    parts.into_iter().map(|(before, column)| (column, before))
}
