//! Elementwise arithmetic, conversion and reductions.

use super::infer::{self, Types, broadcast, ensure};
use super::kinds::kinds;
use super::payload::{TypeRule, payload};
use crate::{DType, Dim, Shape, TensorType, ValueId};

kinds! {
    /// Elementwise functions of one tensor.
    UnaryKind {
        /// `-x`.
        Neg = "neg",
        /// `|x|`.
        Abs = "abs",
        /// The largest integer not above `x`.
        Floor = "floor",
        /// The smallest integer not below `x`.
        Ceil = "ceil",
        /// `e^x`.
        Exp = "exp",
        /// The natural logarithm.
        Log = "log",
        /// The square root.
        Sqrt = "sqrt",
        /// The cosine.
        Cos = "cos",
        /// The sine.
        Sin = "sin",
        /// The error function.
        Erf = "erf",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + e^-x)`.
        Sigmoid = "sigmoid",
        /// `max(x, 0)`.
        Relu = "relu",
        /// `x * sigmoid(x)`.
        Silu = "silu",
        /// Boolean negation.
        Not = "not",
        /// Whether `x` is not a number: the result is boolean.
        IsNan = "is_nan",
    }
}

payload! {
    /// `kind(x)`, element by element; the result has the operand's type but where that is said.
    Unary: UnaryKind {
        operands {
            /// Any shape; floating-point, but `neg` and `abs` take integers too and `not` booleans.
            x: ValueId,
        }
        attributes {}
    }
}

impl TypeRule for Unary {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        let fits = match self.kind {
            UnaryKind::Not => x.dtype == DType::Bool,
            UnaryKind::Neg | UnaryKind::Abs => x.dtype.is_float() || x.dtype.is_integer(),
            _ => x.dtype.is_float(),
        };
        ensure(fits, || format!("`x` is {x}, an element type that `{}` is not defined for", self.kind))?;
        let dtype = if self.kind == UnaryKind::IsNan { DType::Bool } else { x.dtype };
        infer::one(dtype, x.shape.clone())
    }
}

kinds! {
    /// Elementwise functions of two tensors.
    BinaryKind {
        /// `a + b`.
        Add = "add",
        /// `a - b`.
        Sub = "sub",
        /// `a * b`.
        Mul = "mul",
        /// `a / b`; integers truncate towards zero.
        Div = "div",
        /// `a` to the power of `b`.
        Pow = "pow",
        /// The smaller.
        Min = "min",
        /// The larger.
        Max = "max",
        /// Whether `a == b`.
        Equal = "equal",
        /// Whether `a < b`.
        Less = "less",
        /// Whether `a <= b`.
        LessOrEqual = "less_or_equal",
        /// Whether `a > b`.
        Greater = "greater",
        /// Whether `a >= b`.
        GreaterOrEqual = "greater_or_equal",
        /// Boolean conjunction.
        And = "and",
        /// Boolean disjunction.
        Or = "or",
    }
}

impl BinaryKind {
    /// Whether the result is boolean.
    #[must_use]
    pub fn is_predicate(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual | Self::And | Self::Or
        )
    }

    /// Whether the operands may be exchanged.
    #[must_use]
    pub fn is_commutative(self) -> bool {
        matches!(self, Self::Add | Self::Mul | Self::Min | Self::Max | Self::Equal | Self::And | Self::Or)
    }
}

payload! {
    /// `kind(a, b)`, element by element, shapes broadcast.
    Binary: BinaryKind {
        operands {
            /// Any shape.
            a: ValueId,
            /// Same element type, a shape that broadcasts with `a`.
            b: ValueId,
        }
        attributes {}
    }
}

impl TypeRule for Binary {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (a, b) = (types.of(self.a), types.of(self.b));
        ensure(a.dtype == b.dtype, || format!("`a` is {a} and `b` is {b}, expected one element type"))?;
        let fits = match self.kind {
            BinaryKind::And | BinaryKind::Or => a.dtype == DType::Bool,
            BinaryKind::Equal => true,
            _ => a.dtype != DType::Bool,
        };
        ensure(fits, || format!("`a` is {a}, an element type that `{}` is not defined for", self.kind))?;
        let dtype = if self.kind.is_predicate() { DType::Bool } else { a.dtype };
        infer::one(dtype, broadcast(&a.shape, &b.shape)?)
    }
}

payload! {
    /// `a` where `condition` holds, `b` elsewhere; shapes broadcast.
    Select = "select" {
        operands {
            /// Booleans.
            condition: ValueId,
            /// Taken where the condition holds.
            a: ValueId,
            /// Taken elsewhere; same element type as `a`.
            b: ValueId,
        }
        attributes {}
    }
}

impl TypeRule for Select {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (c, a, b) = (types.of(self.condition), types.of(self.a), types.of(self.b));
        ensure(c.dtype == DType::Bool, || format!("`condition` is {c}, expected booleans"))?;
        ensure(a.dtype == b.dtype, || format!("`a` is {a} and `b` is {b}, expected one element type"))?;
        infer::one(a.dtype, broadcast(&c.shape, &broadcast(&a.shape, &b.shape)?)?)
    }
}

payload! {
    /// Elements converted: to floats rounding to nearest even, to integers truncating, to booleans
    /// whether they differ from zero.
    Cast = "cast" {
        operands {
            /// Any type.
            x: ValueId,
        }
        attributes {
            /// The element type of the result.
            to: DType,
        }
    }
}

impl TypeRule for Cast {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        infer::one(self.to, types.of(self.x).shape.clone())
    }
}

kinds! {
    /// Reductions.
    ReduceKind {
        /// The sum.
        Sum = "reduce_sum",
        /// The arithmetic mean.
        Mean = "reduce_mean",
        /// The largest element.
        Max = "reduce_max",
        /// The smallest element.
        Min = "reduce_min",
    }
}

payload! {
    /// Reduces over axes; these stay as dimensions of size 1 with `keep`, and vanish otherwise.
    Reduce: ReduceKind {
        operands {
            /// Numbers of any shape.
            x: ValueId,
        }
        attributes {
            /// Ascending, without repeats, at least one.
            axes: Vec<usize>,
            /// Whether reduced dimensions stay.
            keep: bool,
        }
    }
}

impl TypeRule for Reduce {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        ensure(x.dtype != DType::Bool, || format!("`x` is {x}, expected numbers"))?;
        let ascending = !self.axes.is_empty() && self.axes.is_sorted_by(|a, b| a < b);
        ensure(ascending, || format!("axes {:?} are none or not ascending", self.axes))?;
        self.axes.iter().try_for_each(|&a| infer::axis(a, x))?;
        let dims = x.shape.iter().enumerate().filter_map(|(i, d)| match (self.axes.contains(&i), self.keep) {
            (false, _) => Some(d.clone()),
            (true, true) => Some(Dim::constant(1)),
            (true, false) => None,
        });
        infer::one(x.dtype, Shape::new(dims))
    }
}

payload! {
    /// The running sum along an axis, each element included in its own.
    CumSum = "cumsum" {
        operands {
            /// Numbers of any shape.
            x: ValueId,
        }
        attributes {
            /// Along which axis.
            axis: usize,
        }
    }
}

impl TypeRule for CumSum {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        ensure(x.dtype != DType::Bool, || format!("`x` is {x}, expected numbers"))?;
        infer::axis(self.axis, x)?;
        Ok(vec![x.clone()])
    }
}
