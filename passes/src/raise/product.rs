//! Products, in whatever order they are written.

use planish_ir::ops::{Binary, BinaryKind, Unary, UnaryKind};
use planish_ir::{Graph, Op, ValueId};

use super::pattern::{op, with_scalar};

/// How deep products are taken apart.
const DEPTH: usize = 6;

/// A value as `coefficient * numerator / denominator`: scaling, multiplication, division, negation and small
/// powers taken apart. The factors are sorted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    pub(super) coefficient: f64,
    pub(super) numerator: Vec<ValueId>,
    pub(super) denominator: Vec<ValueId>,
}

impl Product {
    /// The factors of a value.
    pub(super) fn of(graph: &Graph, value: ValueId) -> Self {
        let mut product = Self { coefficient: 1.0, numerator: Vec::new(), denominator: Vec::new() };
        product.multiply(graph, value, false, DEPTH);
        product.numerator.sort_unstable();
        product.denominator.sort_unstable();
        product
    }

    fn multiply(&mut self, graph: &Graph, value: ValueId, inverse: bool, depth: usize) {
        if let Some(number) = graph.number(value) {
            self.coefficient *= if inverse { 1.0 / number } else { number };
            return;
        }
        match op(graph, value).filter(|_| depth > 0) {
            Some(Op::Binary(Binary { kind: BinaryKind::Mul, a, b })) => {
                self.multiply(graph, *a, inverse, depth - 1);
                self.multiply(graph, *b, inverse, depth - 1);
            }
            Some(Op::Binary(Binary { kind: BinaryKind::Div, a, b })) => {
                self.multiply(graph, *a, inverse, depth - 1);
                self.multiply(graph, *b, !inverse, depth - 1);
            }
            Some(Op::Unary(Unary { kind: UnaryKind::Neg, x })) => {
                self.coefficient = -self.coefficient;
                self.multiply(graph, *x, inverse, depth - 1);
            }
            _ => match power(graph, value) {
                Some((x, n)) => (0..n).for_each(|_| self.multiply(graph, x, inverse, depth.saturating_sub(1))),
                None if inverse => self.denominator.push(value),
                None => self.numerator.push(value),
            },
        }
    }

    /// Takes one factor out: the first that `wanted` says something of.
    pub(super) fn take<T>(&mut self, wanted: impl Fn(ValueId) -> Option<T>) -> Option<T> {
        let (at, found) = self.numerator.iter().enumerate().find_map(|(i, &v)| Some((i, wanted(v)?)))?;
        self.numerator.remove(at);
        Some(found)
    }

    /// The number, where it is `number * x^n`, whatever x itself is a product of.
    pub(super) fn multiple_of(&self, graph: &Graph, x: ValueId, n: usize) -> Option<f64> {
        let x = Product::of(graph, x);
        let repeat = |factors: &[ValueId]| {
            let mut all = factors.repeat(n);
            all.sort_unstable();
            all
        };
        let is = self.numerator == repeat(&x.numerator) && self.denominator == repeat(&x.denominator);
        is.then(|| (0..n).fold(self.coefficient, |number, _| number / x.coefficient))
    }
}

/// Base and exponent, where a value is the square or the cube of another.
fn power(graph: &Graph, value: ValueId) -> Option<(ValueId, usize)> {
    match with_scalar(graph, value, BinaryKind::Pow)? {
        (x, 2.0) => Some((x, 2)),
        (x, 3.0) => Some((x, 3)),
        _ => None,
    }
}
