//! Roots of means.

use planish_ir::ops::{BinaryKind, Reduce, ReduceKind, Reshape, UnaryKind};
use planish_ir::{Dim, Graph, Op, ValueId};

use super::super::pattern::{binary, op, unary, with_scalar};
use super::super::product::Product;

/// `(mean + eps)^power`, as it divides a product: with the sign of the power turned where it is a factor.
pub(super) struct Root {
    pub(super) value: ValueId,
    mean: ValueId,
    pub(super) eps: f64,
    power: f64,
}

impl Root {
    /// Takes the root out of what a product is divided by, where there is nothing else; or, where the product is
    /// not divided, its inverse out of the factors.
    pub(super) fn taken(graph: &Graph, product: &mut Product) -> Option<Self> {
        match product.denominator[..] {
            [value] => {
                let root = Self::of(graph, value).filter(|root| root.power > 0.0)?;
                product.denominator.clear();
                Some(root)
            }
            [] => product.take(|factor| Self::inverse(graph, factor)),
            _ => None,
        }
    }

    /// Whether a product is divided, or has an inverse root as a factor.
    pub(super) fn is_in(graph: &Graph, product: &Product) -> bool {
        !product.denominator.is_empty() || product.numerator.iter().any(|v| Self::inverse(graph, *v).is_some())
    }

    fn inverse(graph: &Graph, value: ValueId) -> Option<Self> {
        let root = Self::of(graph, value).filter(|root| root.power < 0.0)?;
        Some(Self { power: -root.power, ..root })
    }

    fn of(graph: &Graph, value: ValueId) -> Option<Self> {
        let root = unary(graph, value, UnaryKind::Sqrt).map(|sum| (sum, 0.5));
        let (sum, power) = root.or_else(|| with_scalar(graph, value, BinaryKind::Pow))?;
        let (mean, eps) = with_scalar(graph, sum, BinaryKind::Add)?;
        averaged(graph, mean)?;
        Some(Self { value, mean, eps, power })
    }

    /// What the mean is taken of, where it is over the last axis and this is its square root.
    pub(super) fn square(&self, graph: &Graph) -> Result<ValueId, String> {
        let name = |value: ValueId| &graph.value(value).name;
        if self.power != 0.5 {
            let (root, mean) = (name(self.value), name(self.mean));
            return Err(format!("`{root}` has another power of `{mean}` than its square root"));
        }
        let last = || format!("the mean `{}` is not over the last axis, and that axis kept", name(self.mean));
        mean_of(graph, self.mean).ok_or_else(last)
    }
}

/// `x` and `mean(x^2) + eps`, where a value is the square root of that and the mean is over the last axis.
pub(crate) fn root_of_squares(graph: &Graph, value: ValueId) -> Option<[ValueId; 2]> {
    let sum = unary(graph, value, UnaryKind::Sqrt)?;
    let square = Root::of(graph, value)?.square(graph).ok()?;
    Some([squared(graph, square)?, sum])
}

/// What a value is a mean of.
pub(super) fn averaged(graph: &Graph, value: ValueId) -> Option<&Reduce> {
    match op(graph, value)? {
        Op::Reduce(mean) if mean.kind == ReduceKind::Mean => Some(mean),
        Op::Reshape(Reshape { x, .. }) => match op(graph, *x)? {
            Op::Reduce(mean) if mean.kind == ReduceKind::Mean => Some(mean),
            _ => None,
        },
        _ => None,
    }
}

/// What a value is the mean of, over the last axis, which stays or is put back.
pub(super) fn mean_of(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let Reduce { x, axes, .. } = averaged(graph, value)?;
    let shape = &graph.ty(*x).shape;
    let last = shape.rank().checked_sub(1)?;
    (axes[..] == [last] && graph.ty(value).shape == shape.with_dim(last, Dim::constant(1))).then_some(*x)
}

/// What a value is the square of, without a negation.
pub(super) fn squared(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let power = || with_scalar(graph, value, BinaryKind::Pow).filter(|(_, power)| *power == 2.0).map(|(x, _)| x);
    let product = || binary(graph, value, BinaryKind::Mul).filter(|[a, b]| a == b).map(|[a, _]| a);
    let root = power().or_else(product)?;
    Some(unary(graph, root, UnaryKind::Neg).unwrap_or(root))
}
