//! Sizes of values in one run.

use crate::weight::{Weight, WeightExpr};
use crate::{Bindings, Graph, Node, ValueId};

use super::{Cost, Flops};

/// Looks up sizes.
pub(super) struct Sizes<'a> {
    pub(super) graph: &'a Graph,
    pub(super) bindings: &'a Bindings,
}

/// The product of numbers, at most the largest one.
pub(super) fn product(numbers: &[u64]) -> u64 {
    // A zero after what has become the largest number makes it zero again, as it should.
    numbers.iter().fold(1, |product, n| product.saturating_mul(*n))
}

impl Sizes<'_> {
    /// The dimensions of a value.
    pub(super) fn shape(&self, value: ValueId) -> Result<Vec<u64>, String> {
        let (ty, name) = (self.graph.type_of(value), &self.graph.value(value).name);
        let shape = ty.as_tensor().and_then(|ty| ty.shape.evaluate(self.bindings));
        let shape = shape.ok_or_else(|| format!("the size of `{name}`, {ty}, is not known"))?;
        Ok(shape.into_iter().map(|size| size as u64).collect())
    }

    /// The number of elements of a value.
    pub(super) fn elements(&self, value: ValueId) -> Result<u64, String> {
        self.shape(value).map(|shape| product(&shape))
    }

    /// The last dimension of a value; 1 of a scalar.
    pub(super) fn last(&self, value: ValueId) -> Result<u64, String> {
        Ok(self.shape(value)?.last().copied().unwrap_or(1))
    }

    /// The number of elements of the first result, where these are floating-point numbers; else 0.
    pub(super) fn numbers(&self, node: &Node) -> Result<u64, String> {
        let float = |v: &&ValueId| self.graph.type_of(**v).dtype().is_some_and(|dtype| dtype.is_float());
        node.outputs.first().filter(float).map_or(Ok(0), |v| self.elements(*v))
    }

    /// The bytes of a value: of a weight, those that it is stored in; of text, none.
    pub(super) fn bytes(&self, value: ValueId) -> Result<u64, String> {
        if let Some(weight) = self.graph.weight(value) {
            return Ok(stored_bytes(weight));
        }
        let elements = u128::from(self.elements(value)?);
        let bits = self.graph.type_of(value).dtype().map_or(0, |dtype| dtype.bits() as u128);
        Ok(u64::try_from((elements * bits).div_ceil(8)).unwrap_or(u64::MAX))
    }

    /// The bytes of so many elements of a value.
    pub(super) fn part(&self, value: ValueId, elements: u64) -> Result<u64, String> {
        let (bytes, all) = (u128::from(self.bytes(value)?), u128::from(self.elements(value)?));
        if all == 0 {
            return Ok(0);
        }
        let part = bytes.checked_mul(u128::from(elements)).map_or(u128::MAX, |product| product.div_ceil(all));
        Ok(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// The cost of a node that does so many operations. `taken` gives how many elements the node reads of an operand,
    /// where these are not all.
    pub(super) fn cost(
        &self,
        node: &Node,
        flops: Flops,
        taken: impl Fn(ValueId) -> Result<Option<u64>, String>,
    ) -> Result<Cost, String> {
        let mut cost = Cost { flops: flops.sum(), product_flops: flops.products, ..Cost::default() };
        let mut operands = node.op.operands();
        operands.sort_unstable();
        operands.dedup();
        for operand in operands {
            let bytes = match taken(operand)? {
                Some(elements) => self.part(operand, elements)?,
                None => self.bytes(operand)?,
            };
            cost.read = cost.read.saturating_add(bytes);
            if self.graph.weight(operand).is_some() {
                cost.weights = cost.weights.saturating_add(bytes);
            }
        }
        for output in &node.outputs {
            cost.written = cost.written.saturating_add(self.bytes(*output)?);
        }
        Ok(cost)
    }
}

/// The bytes that a weight is stored in: those of its elements; where it is an expression of codes, those of the codes,
/// the scales and the zero points.
#[must_use]
pub fn stored_bytes(weight: &Weight) -> u64 {
    match weight.expr() {
        WeightExpr::Dequantize(parts, _) => parts.iter().map(stored_bytes).fold(0, u64::saturating_add),
        WeightExpr::Concat(parts, _) => parts.iter().map(stored_bytes).fold(0, u64::saturating_add),
        WeightExpr::Transpose(of, _) | WeightExpr::Reshape(of) => stored_bytes(of),
        _ => weight.bytes(),
    }
}
