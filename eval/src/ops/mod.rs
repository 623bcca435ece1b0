//! The kernels of the operators, one file for each group: an implementation of [`Kernel`] for its payload.
//!
//! The typing rule of an operator is checked on the actual sizes before its kernel runs, so a
//! kernel trusts ranks, sizes and element types. It checks what only values tell: indices, and
//! integers that leave their range.

mod attention;
mod collective;
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
mod states;
mod unary;

pub use collective::Communicator;
pub use quantize::Codes;

use std::borrow::Cow;
use std::collections::BTreeMap;

use planish_ir::ops::{AllGather, AllReduce, Conv, Types};
use planish_ir::{Bindings, Dim, Op, Shape, Type, ValueId};

use crate::error::Failure;
use crate::limits::{Limits, Loops, Memory};
use crate::{Data, EvalError, Reader, Tensor};

/// What the computation of a node may use besides its operands.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) reader: Option<&'a dyn Reader>,
    /// The ranks that collectives exchange tensors with; a run of one program has none.
    pub(crate) communicator: Option<&'a dyn Communicator>,
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
    let context =
        Context { reader: None, communicator: None, memory: Memory::new(None), loops: &loops, is_read_again: false };
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
    if let Op::AllReduce(AllReduce { x, .. }) | Op::AllGather(AllGather { x, .. }) = &*op {
        return Ok(vec![collective::run(&op, operand(*x), context)?]);
    }
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
    let data = kernel(&op).run(&call)?;
    let tensors = call.results.into_iter().zip(data).map(|(shape, data)| Tensor::new(shape, data));
    Ok(tensors.collect::<Option<_>>().ok_or("computed another number of elements than its type says")?)
}

macro_rules! kernels {
    ($($name:ident)*) => {
        /// The operator's kernel.
        fn kernel(op: &Op) -> &dyn Kernel {
            match op { $(Op::$name(p) => p,)* }
        }
    };
}

planish_ir::with_operators!(kernels);

/// The operator with the sizes in its attributes as numbers.
fn resolve<'a, 'b>(
    op: &'a Op,
    operand: &dyn Fn(ValueId) -> &'b Tensor,
    bindings: &Bindings,
) -> Result<Cow<'a, Op>, String> {
    // Sizes that nothing in front of it has are those that it determines.
    if let Op::Conv(p) = op {
        let size = |d: &Dim| d.evaluate(bindings).map_or_else(|| d.clone(), Dim::constant);
        let sized = Conv { sizes: Shape::new(p.sizes.iter().map(size)), ..p.clone() };
        let (x, weight) = (operand(p.x).ty(), operand(p.weight).ty());
        return Ok(Cow::Owned(sized.resolved(&x.shape, &weight.shape).into()));
    }
    let (mut is_known, mut unknown) = (true, None);
    op.visit_dims(&mut |dim| is_known &= dim.as_constant().is_some());
    if is_known {
        return Ok(Cow::Borrowed(op));
    }
    let mut op = op.clone();
    op.map_dims(&mut |dim| match dim.evaluate(bindings) {
        Some(size) => Dim::constant(size),
        None => {
            unknown.get_or_insert_with(|| unresolved(dim, bindings));
            dim.clone()
        }
    });
    unknown.map_or(Ok(Cow::Owned(op)), Err)
}

/// Why a dimension has no value.
pub(crate) fn unresolved(dim: &Dim, bindings: &Bindings) -> String {
    match dim.symbols().find(|s| !bindings.contains_key(*s)) {
        Some(symbol) => format!("symbol `{symbol}` of dimension `{dim}` has no value"),
        None => format!("dimension `{dim}` does not fit 64 bits"),
    }
}
