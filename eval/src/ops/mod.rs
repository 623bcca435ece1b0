//! The kernels of the operators, one file for each group: an implementation of [`Kernel`] for its payload.
//!
//! The typing rule of an operator is checked on the actual sizes before its kernel runs, so a
//! kernel trusts ranks, sizes and element types. It checks what only values tell: indices, and
//! integers that leave their range.

mod attention;
mod conv;
mod elementwise;
mod experts;
mod foreign;
mod fused;
mod gather;
mod linear;
mod movement;
mod normalize;
mod order;
mod quantize;
mod reduce;
mod rotary;
mod unary;

pub use quantize::Codes;

use std::borrow::Cow;
use std::collections::BTreeMap;

use planish_ir::ops::{Conv, Expand, Iota, Reshape, Sizes, Slice, TopK, Types};
use planish_ir::{Bindings, Dim, Op, Shape, Type, ValueId};

use crate::error::Failure;
use crate::limits::{Limits, Loops, Memory};
use crate::{Data, EvalError, Reader, Tensor};

/// What the computation of a node may use besides its operands.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) reader: Option<&'a dyn Reader>,
    pub(crate) memory: Memory,
    pub(crate) loops: &'a Loops,
    /// Whether the graph is what the reader made of an operator: one that is in it again is not read once more.
    pub(crate) is_read_again: bool,
}

/// An operator's operands and the shapes of its results.
struct Call<'a> {
    operand: &'a dyn Fn(ValueId) -> &'a Tensor,
    results: Vec<Vec<usize>>,
}

impl<'a> Call<'a> {
    /// An operand.
    fn operand(&self, value: ValueId) -> &'a Tensor {
        (self.operand)(value)
    }

    /// The shape of the first result.
    fn shape(&self) -> &[usize] {
        self.results.first().map_or(&[], Vec::as_slice)
    }
}

/// The semantics of an operator.
trait Kernel {
    /// The elements of each result.
    ///
    /// # Errors
    /// What cannot be computed, and why.
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String>;
}

/// The results of an operator applied to tensors. `operand` finds the operands; `bindings` says
/// what the symbols in its attributes stand for.
///
/// # Errors
/// [`EvalError::Op`] when operands do not fit the operator, an index is out of range, an integer
/// leaves its range or is divided by zero, or a result does not fit in memory; [`EvalError::Unsupported`] when there is
/// no kernel, or a size has no value.
pub fn evaluate_op<'a>(
    op: &Op,
    operand: &'a dyn Fn(ValueId) -> &'a Tensor,
    bindings: &Bindings,
) -> Result<Vec<Tensor>, EvalError> {
    let loops = Loops::new(Limits::default());
    let context = Context { reader: None, memory: Memory::new(None), loops: &loops, is_read_again: false };
    apply(op, operand, bindings, context)
}

/// As [`evaluate_op`], with what the run has.
pub(crate) fn apply<'a>(
    op: &Op,
    operand: &'a dyn Fn(ValueId) -> &'a Tensor,
    bindings: &Bindings,
    context: Context<'_>,
) -> Result<Vec<Tensor>, EvalError> {
    run(op, operand, bindings, context).map_err(|failure| failure.at(op.kind()))
}

fn run<'a>(
    op: &Op,
    operand: &'a dyn Fn(ValueId) -> &'a Tensor,
    bindings: &Bindings,
    context: Context<'_>,
) -> Result<Vec<Tensor>, Failure> {
    if let Op::Foreign(foreign) = op {
        return foreign::run(foreign, operand, context);
    }
    let op = resolve(op, operand, bindings).map_err(Failure::Unsupported)?;
    let operands: BTreeMap<ValueId, Type> = op.operands().into_iter().map(|v| (v, operand(v).ty().into())).collect();
    let types = op.infer(&Types::new(&|v| &operands[&v]))?;
    let mut memory = context.memory;
    let mut results = Vec::with_capacity(types.len());
    for ty in types.iter().map(Type::tensor) {
        results.push(ty.shape.evaluate(&Bindings::new()).ok_or_else(|| format!("a result cannot be {ty}"))?);
        memory.check_type(ty)?;
        memory.hold(ty.bytes().unwrap_or(0));
    }
    let call = Call { operand, results };
    let data = kernel(&op)?.run(&call)?;
    let tensors = call.results.into_iter().zip(data).map(|(shape, data)| Tensor::new(shape, data));
    Ok(tensors.collect::<Option<_>>().ok_or("computed another number of elements than its type says")?)
}

/// The operator's kernel.
fn kernel(op: &Op) -> Result<&dyn Kernel, String> {
    Ok(match op {
        Op::Unary(p) => p,
        Op::Binary(p) => p,
        Op::Select(p) => p,
        Op::Cast(p) => p,
        Op::Reduce(p) => p,
        Op::CumSum(p) => p,
        Op::Reshape(p) => p,
        Op::Transpose(p) => p,
        Op::Slice(p) => p,
        Op::Split(p) => p,
        Op::Concat(p) => p,
        Op::Expand(p) => p,
        Op::Gather(p) => p,
        Op::Iota(p) => p,
        Op::Sizes(p) => p,
        Op::Linear(p) => p,
        Op::MatMul(p) => p,
        Op::Conv(p) => p,
        Op::Experts(p) => p,
        Op::TopK(p) => p,
        Op::ArgMax(p) => p,
        Op::Softmax(p) => p,
        Op::MaskedSoftmax(p) => p,
        Op::LayerNorm(p) => p,
        Op::Gelu(p) => p,
        Op::Embedding(p) => p,
        Op::Attention(p) => p,
        Op::Rotary(p) => p,
        Op::RmsNorm(p) => p,
        Op::FakeQuantize(p) => p,
        Op::Quantize(p) => p,
        Op::QuantizedLinear(p) => p,
        Op::FusedLinear(p) => p,
        Op::Gated(p) => p,
        Op::AddNorm(p) => p,
        Op::EmbeddingNorm(p) => p,
        Op::RotaryAppend(p) => p,
        Op::Foreign(_) => return Err("it passes through".to_owned()),
    })
}

/// The operator with the sizes in its attributes as numbers.
fn resolve<'a, 'b>(
    op: &'a Op,
    operand: &dyn Fn(ValueId) -> &'b Tensor,
    bindings: &Bindings,
) -> Result<Cow<'a, Op>, String> {
    let dim = |d: &Dim| d.evaluate(bindings).map(Dim::constant).ok_or_else(|| unresolved(d, bindings));
    let shape = |s: &Shape| s.iter().map(dim).collect::<Result<Vec<_>, _>>().map(Shape::new);
    Ok(Cow::Owned(match op {
        Op::Reshape(p) => Reshape { shape: shape(&p.shape)?, ..p.clone() }.into(),
        Op::Expand(p) => Expand { shape: shape(&p.shape)?, ..p.clone() }.into(),
        Op::Slice(p) => Slice { start: dim(&p.start)?, end: dim(&p.end)?, ..p.clone() }.into(),
        Op::Sizes(p) => Sizes { of: shape(&p.of)? }.into(),
        Op::Iota(p) => Iota { length: dim(&p.length)?, ..p.clone() }.into(),
        Op::TopK(p) => TopK { k: dim(&p.k)?, ..p.clone() }.into(),
        // Sizes that nothing in front of it has are those that it determines.
        Op::Conv(p) => {
            let size = |d: &Dim| d.evaluate(bindings).map_or_else(|| d.clone(), Dim::constant);
            let sized = Conv { sizes: Shape::new(p.sizes.iter().map(size)), ..p.clone() };
            sized.resolved(&operand(p.x).ty().shape, &operand(p.weight).ty().shape).into()
        }
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Select(_)
        | Op::Cast(_)
        | Op::Reduce(_)
        | Op::CumSum(_)
        | Op::Transpose(_)
        | Op::Split(_)
        | Op::Concat(_)
        | Op::Gather(_)
        | Op::Linear(_)
        | Op::MatMul(_)
        | Op::Experts(_)
        | Op::ArgMax(_)
        | Op::Softmax(_)
        | Op::MaskedSoftmax(_)
        | Op::LayerNorm(_)
        | Op::Gelu(_)
        | Op::Embedding(_)
        | Op::Attention(_)
        | Op::Rotary(_)
        | Op::RmsNorm(_)
        | Op::FakeQuantize(_)
        | Op::Quantize(_)
        | Op::QuantizedLinear(_)
        | Op::FusedLinear(_)
        | Op::Gated(_)
        | Op::AddNorm(_)
        | Op::EmbeddingNorm(_)
        | Op::RotaryAppend(_)
        | Op::Foreign(_) => return Ok(Cow::Borrowed(op)),
    }))
}

/// Why a dimension has no value.
pub(crate) fn unresolved(dim: &Dim, bindings: &Bindings) -> String {
    match dim.symbols().find(|s| !bindings.contains_key(*s)) {
        Some(symbol) => format!("symbol `{symbol}` of dimension `{dim}` has no value"),
        None => format!("dimension `{dim}` does not fit 64 bits"),
    }
}
