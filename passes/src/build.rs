//! Building graphs: what raising, lowering and observing emit.

use planish_ir::ops::{Binary, BinaryKind, Cast, Reshape, Transpose, Unary, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Op, Rewriter, Shape, ValueId, Weight};

/// Emits the parts of what takes the place of a value, or is said of it.
pub(crate) struct Builder<'a, 'g> {
    pub(crate) graph: &'a mut Rewriter<'g>,
    pub(crate) like: ValueId,
}

impl<'a, 'g> Builder<'a, 'g> {
    /// Parts of what takes the place of `like`.
    pub(crate) fn at(graph: &'a mut Rewriter<'g>, like: ValueId) -> Self {
        Self { graph, like }
    }

    /// The first result, which every operator has.
    pub(crate) fn emit(&mut self, op: impl Into<Op>) -> Result<ValueId, BuildError> {
        self.graph.part(op, self.like)
    }

    /// All results.
    pub(crate) fn emit_all(&mut self, op: impl Into<Op>) -> Result<Vec<ValueId>, BuildError> {
        self.graph.emit_part(op, self.like)
    }

    /// An elementwise function of one tensor.
    pub(crate) fn unary(&mut self, kind: UnaryKind, x: ValueId) -> Result<ValueId, BuildError> {
        self.emit(Unary { kind, x })
    }

    /// An elementwise function of two tensors.
    pub(crate) fn binary(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> Result<ValueId, BuildError> {
        self.emit(Binary { kind, a, b })
    }

    /// A binary operator with a constant of the operand's element type.
    pub(crate) fn with_scalar(&mut self, kind: BinaryKind, a: ValueId, value: f64) -> Result<ValueId, BuildError> {
        let b = self.scalar(a, value);
        self.binary(kind, a, b)
    }

    /// A constant of the element type of `of`.
    pub(crate) fn scalar(&mut self, of: ValueId, value: f64) -> ValueId {
        let dtype = self.graph.ty(of).dtype;
        self.graph.weight_part(Weight::scalar(dtype, value), self.like)
    }

    /// In another element type, if it is not in it.
    pub(crate) fn cast(&mut self, x: ValueId, to: DType) -> Result<ValueId, BuildError> {
        if self.graph.ty(x).dtype == to { Ok(x) } else { self.emit(Cast { x, to }) }
    }

    /// In float32, if it is in half precision.
    pub(crate) fn widened(&mut self, x: ValueId) -> Result<ValueId, BuildError> {
        match self.graph.ty(x).dtype {
            DType::F16 | DType::Bf16 => self.cast(x, DType::F32),
            _ => Ok(x),
        }
    }

    /// The same elements under another shape.
    pub(crate) fn reshape(&mut self, x: ValueId, dims: impl IntoIterator<Item = Dim>) -> Result<ValueId, BuildError> {
        self.emit(Reshape { x, shape: Shape::new(dims) })
    }

    /// The dimensions permuted.
    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId, BuildError> {
        self.emit(Transpose { x, perm: perm.to_vec() })
    }
}

/// Transposes a value; what it is a transpose of is transposed once.
pub(crate) fn transpose_once(graph: &mut Rewriter<'_>, x: ValueId, perm: &[usize]) -> Result<ValueId, BuildError> {
    let (of, perm) = match graph.producer(x).map(|node| &node.op) {
        Some(Op::Transpose(inner)) => (inner.x, perm.iter().map(|&p| inner.perm[p]).collect()),
        _ => (x, perm.to_vec()),
    };
    if perm.is_sorted() { Ok(of) } else { graph.part(Transpose { x: of, perm }, x) }
}

/// Reshapes a value; what it is a reshape of is reshaped once.
pub(crate) fn reshape_once(
    graph: &mut Rewriter<'_>,
    x: ValueId,
    dims: impl IntoIterator<Item = Dim>,
) -> Result<ValueId, BuildError> {
    let shape = Shape::new(dims);
    let of = match graph.producer(x).map(|node| &node.op) {
        Some(Op::Reshape(inner)) => inner.x,
        _ => x,
    };
    if graph.ty(of).shape == shape { Ok(of) } else { graph.part(Reshape { x: of, shape }, x) }
}
