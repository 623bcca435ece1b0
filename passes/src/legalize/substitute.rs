//! Substitutes for kernels that the target lacks.

use std::collections::HashMap;

use planish_ir::ops::{Binary, BinaryKind, Cast, Foreign, Row, Setting};
use planish_ir::{DType, Dim, Graph, NodeId, Op, Rewriter, Shape, Step, ValueId};

use super::Signature;
use crate::build::Builder;
use crate::{Example, ORT_CUDA, Options, Outcome, Pass, PassError};

/// Has operators that the target has no kernel for run on kernels that it has.
pub const SUBSTITUTE_KERNELS: Pass = Pass {
    name: "substitute-kernels",
    summary: "Replaces operators that the target has no kernel for by operators that it has kernels for. The pass runs \
              for targets onnx, ort-cuda and trt. Operators on float16 or bfloat16 run in float32, between casts: for \
              example comparisons, logarithms, means and running sums of bfloat16. Operators on integers of 8 bits \
              run in int32. Equality beyond opset 18 becomes `less_or_equal` and `greater_or_equal`. A \
              DequantizeLinear of int32, such as a quantized bias, becomes a product with its scale. Operators without \
              a substitute stay, and check-kernels reports them.",
    numerics: "none: float32 holds every number of the half types, and results round once. A dequantized int32 beyond \
               2^24 rounds to float32 first.",
    example: Example {
        target: &ORT_CUDA,
        fusion: true,
        before: "
            input %x: bf16[n]
            input %i: i64[n]
            %f = floor(%x) : bf16[n]
            %e = equal(%i, %i) : bool[n]
            output f = %f
            output e = %e",
        after: "
            input %x: bf16[n]
            input %i: i64[n]
            %f/cast = cast(%x) {to = f32} : f32[n]
            %f/floor = floor(%f/cast) : f32[n]
            %f/cast_1 = cast(%f/floor) {to = bf16} : bf16[n]
            %e/less_or_equal = less_or_equal(%i, %i) : bool[n]
            %e/greater_or_equal = greater_or_equal(%i, %i) : bool[n]
            %e/and = and(%e/less_or_equal, %e/greater_or_equal) : bool[n]
            output f = %f/cast_1
            output e = %e/and",
    },
    applies: |options| options.target.substitutes_kernels,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let mut substitutes = Substitutes { options, widened: HashMap::new() };
    let changed = graph.rewrite(|graph, node| substitutes.step(graph, node))?;
    graph.compact();
    Ok(changed.into())
}

/// The type that has kernels more often and holds every number of a type, if there is one.
fn wider(dtype: DType) -> Option<DType> {
    match dtype {
        DType::F16 | DType::Bf16 => Some(DType::F32),
        DType::I8 | DType::U8 => Some(DType::I32),
        _ => None,
    }
}

/// The signature of an operator on wider types.
fn widened(signature: &Signature) -> Signature {
    let widened = |dtype: DType| wider(dtype).unwrap_or(dtype);
    Signature {
        row: signature.row,
        operands: signature.operands.iter().map(|(name, dtype)| (*name, widened(*dtype))).collect(),
        results: signature.results.iter().map(|dtype| widened(*dtype)).collect(),
    }
}

struct Substitutes<'a> {
    options: &'a Options,
    /// Values of narrow types in the wider type, each cast once.
    widened: HashMap<ValueId, ValueId>,
}

impl Substitutes<'_> {
    fn lacks(&self, signature: &Signature) -> bool {
        (self.options.target.kernels.missing)(signature, self.options.opset).is_some()
    }

    fn step(&mut self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
        let (op, outputs) = (graph.node(node).op.clone(), graph.node(node).outputs.clone());
        let like = outputs[0];
        if let Op::Foreign(foreign) = &op {
            return self.foreign(graph, foreign, like);
        }
        let signature = Signature::of(graph, graph.node(node));
        if !self.lacks(&signature) {
            return Ok(Step::Keep);
        }
        let wide = widened(&signature);
        if let Op::Binary(Binary { kind: BinaryKind::Equal, a, b }) = op
            && self.lacks(&wide)
            && Row::of(BinaryKind::LessOrEqual.name())
                .is_some_and(|row| !self.lacks(&Signature { row, ..wide.clone() }))
        {
            let (a, b) = (self.widen(graph, a, like)?, self.widen(graph, b, like)?);
            let mut l = Builder::at(graph, like);
            let at_most = l.binary(BinaryKind::LessOrEqual, a, b)?;
            let at_least = l.binary(BinaryKind::GreaterOrEqual, a, b)?;
            return Ok(Step::Replace(vec![l.binary(BinaryKind::And, at_most, at_least)?]));
        }
        if wide == signature || self.lacks(&wide) {
            return Ok(Step::Keep);
        }
        let mut wide = op;
        let mut failed = None;
        wide.visit_operands_mut(&mut |operand| match self.widen(graph, *operand, like) {
            Ok(widened) => *operand = widened,
            Err(error) => failed = Some(error),
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut l = Builder::at(graph, like);
        let results = l.emit_all(wide)?;
        let types: Vec<DType> = outputs.iter().map(|output| l.graph.ty(*output).dtype).collect();
        let narrowed = results.into_iter().zip(types).map(|(result, dtype)| l.cast(result, dtype));
        Ok(Step::Replace(narrowed.collect::<Result<_, _>>()?))
    }

    /// A `DequantizeLinear` of int32 as a product, where the target does not take the operator.
    fn foreign(&self, graph: &mut Rewriter<'_>, foreign: &Foreign, like: ValueId) -> Result<Step, PassError> {
        let [Some(x), Some(scale), ref zero @ ..] = foreign.inputs[..] else { return Ok(Step::Keep) };
        let ty = graph.ty(x).clone();
        let symmetric = zero.iter().flatten().all(|zero| is_zero(graph, *zero));
        let int32 = foreign.is("DequantizeLinear") && ty.dtype == DType::I32 && symmetric;
        let result = graph.ty(like).dtype;
        let axis = match foreign.setting("axis") {
            Some(Setting::Int(axis)) => *axis,
            _ => 1,
        };
        let Some(dims) = scale_dims(&ty.shape, &graph.ty(scale).shape, axis) else { return Ok(Step::Keep) };
        if !int32 || !result.is_float() || (self.options.target.kernels.foreign)(graph, foreign).is_none() {
            return Ok(Step::Keep);
        }
        let mut l = Builder::at(graph, like);
        let numbers = l.cast(x, DType::F32)?;
        let scale = l.cast(scale, DType::F32)?;
        let scale = l.reshape(scale, dims)?;
        let product = l.binary(BinaryKind::Mul, numbers, scale)?;
        Ok(Step::Replace(vec![l.cast(product, result)?]))
    }

    /// A value in the wider type, if there is one.
    fn widen(&mut self, graph: &mut Rewriter<'_>, value: ValueId, like: ValueId) -> Result<ValueId, PassError> {
        let Some(to) = wider(graph.ty(value).dtype) else { return Ok(value) };
        if let Some(widened) = self.widened.get(&value) {
            return Ok(*widened);
        }
        let widened = graph.part(Cast { x: value, to }, like)?;
        self.widened.insert(value, widened);
        Ok(widened)
    }
}

/// Whether a value is a weight whose bytes are all 0.
pub(super) fn is_zero(graph: &Graph, value: ValueId) -> bool {
    let bytes = graph.weight(value).and_then(|weight| weight.read().ok());
    bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// The shape in which a scale of one number, or of one for each index of an axis, multiplies a tensor.
fn scale_dims(x: &Shape, scale: &Shape, axis: i64) -> Option<Vec<Dim>> {
    let one = Dim::constant(1);
    match scale.rank() {
        0 => Some(Vec::new()),
        1 if scale[0] == one => Some(Vec::new()),
        1 => {
            let rank = i64::try_from(x.rank()).ok()?;
            let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
            let mut dims = vec![one; x.rank()];
            *dims.get_mut(axis)? = scale[0].clone();
            Some(dims)
        }
        _ => None,
    }
}
