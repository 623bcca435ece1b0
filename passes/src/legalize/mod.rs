//! Legalization: from the canonical form to what the target has kernels for.

mod absorb;
mod activation;
mod attention;
mod flatten;
mod kernels;
mod linear;
mod mask;
mod norm;
mod rotary;
mod substitute;

pub use absorb::ABSORB_BIASES;
pub use activation::LOWER_ACTIVATIONS;
pub use attention::LOWER_ATTENTION;
pub(crate) use attention::scores;
pub use flatten::FLATTEN_TOKENS;
pub(crate) use kernels::tables;
pub use kernels::{CHECK_KERNELS, Kernels, Signature};
pub use linear::LOWER_LINEAR;
pub use norm::LOWER_NORMS;
pub use rotary::LOWER_ROTARY;
pub use substitute::SUBSTITUTE_KERNELS;

use planish_ir::ops::{Binary, BinaryKind, Cast, Reshape, Transpose, Unary, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Op, Rewriter, Shape, ValueId, Weight};

/// Swaps the first two dimensions of [batch, sequence, features].
const SWAP_TOKENS: &[usize] = &[1, 0, 2];

/// A size as a dimension.
fn dim(size: usize) -> Dim {
    // Sizes of graphs fit: a typing rule has counted with them.
    Dim::constant(i64::try_from(size).unwrap_or(i64::MAX))
}

/// Emits the parts of what takes the place of a value, or is said of it.
pub(crate) struct Lowering<'a, 'g> {
    pub(crate) graph: &'a mut Rewriter<'g>,
    pub(crate) like: ValueId,
}

impl Lowering<'_, '_> {
    /// The first result, which every operator has.
    pub(crate) fn emit(&mut self, op: impl Into<Op>) -> Result<ValueId, BuildError> {
        Ok(self.emit_all(op)?[0])
    }

    fn emit_all(&mut self, op: impl Into<Op>) -> Result<Vec<ValueId>, BuildError> {
        self.graph.emit_part(op, self.like)
    }

    pub(crate) fn unary(&mut self, kind: UnaryKind, x: ValueId) -> Result<ValueId, BuildError> {
        self.emit(Unary { kind, x })
    }

    fn binary(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> Result<ValueId, BuildError> {
        self.emit(Binary { kind, a, b })
    }

    /// A binary operator with a constant of the operand's element type.
    fn with_scalar(&mut self, kind: BinaryKind, a: ValueId, value: f64) -> Result<ValueId, BuildError> {
        let b = self.scalar(a, value);
        self.binary(kind, a, b)
    }

    /// A constant of the element type of `of`.
    fn scalar(&mut self, of: ValueId, value: f64) -> ValueId {
        let dtype = self.graph.ty(of).dtype;
        self.graph.weight_part(Weight::scalar(dtype, value), self.like)
    }

    /// In another element type, if it is not in it.
    pub(crate) fn cast(&mut self, x: ValueId, to: DType) -> Result<ValueId, BuildError> {
        if self.graph.ty(x).dtype == to { Ok(x) } else { self.emit(Cast { x, to }) }
    }

    /// In float32, if it is in half precision.
    fn widened(&mut self, x: ValueId) -> Result<ValueId, BuildError> {
        match self.graph.ty(x).dtype {
            DType::F16 | DType::Bf16 => self.cast(x, DType::F32),
            _ => Ok(x),
        }
    }

    pub(crate) fn reshape(&mut self, x: ValueId, dims: impl IntoIterator<Item = Dim>) -> Result<ValueId, BuildError> {
        self.emit(Reshape { x, shape: Shape::new(dims) })
    }

    fn transpose(&mut self, x: ValueId, perm: &[usize]) -> Result<ValueId, BuildError> {
        self.emit(Transpose { x, perm: perm.to_vec() })
    }
}
