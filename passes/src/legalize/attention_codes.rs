//! The product of queries and keys as a product of codes.

use planish_ir::ops::{Attention, Foreign};
use planish_ir::{BuildError, DType, Graph, Op, TensorType, ValueId, Weight};

use super::attention::split_heads;
use super::quantized::{DEPTH, MICROSOFT, foreign, moved};
use crate::build::Builder;
use crate::{Options, QuantizedForm};

/// Queries and keys that are the numbers of codes.
pub(super) struct Codes {
    queries: Numbers,
    keys: Numbers,
}

/// What `DequantizeLinear` takes.
struct Numbers {
    codes: ValueId,
    /// What a code of 1 stands for.
    scale: f64,
    zero_point: ValueId,
}

impl Codes {
    /// The codes of the queries and keys of an attention, where the target multiplies them.
    pub(super) fn of(graph: &Graph, attention: &Attention, options: &Options) -> Option<Self> {
        let alone = attention.past_key.is_none() && !attention.present.0 && graph.ty(attention.k).shape.rank() == 3;
        let fits = alone
            && options.target.quantized == QuantizedForm::IntegerProducts
            && graph.ty(attention.q).dtype == DType::F32;
        let of = |value, dtype| Numbers::of(graph, value).filter(|n| fits && graph.ty(n.codes).dtype == dtype);
        Some(Self { queries: of(attention.q, DType::U8)?, keys: of(attention.k, DType::I8)? })
    }

    /// Scaled scores, [batch, heads, queries, keys]; with fewer heads of keys, those of the queries are rows of one matrix.
    pub(super) fn products(
        &self,
        l: &mut Builder<'_, '_>,
        attention: &Attention,
        grouped: impl Fn(&mut Builder<'_, '_>, ValueId) -> Result<ValueId, BuildError>,
    ) -> Result<ValueId, BuildError> {
        let q = as_numbers(l, attention.q, self.queries.codes)?;
        let k = as_numbers(l, attention.k, self.keys.codes)?;
        let q = split_heads(l, q, attention.heads, [0, 2, 1, 3])?;
        let q = grouped(l, q)?;
        let k = split_heads(l, k, attention.kv_heads(), [0, 2, 3, 1])?;
        let scale =
            |l: &mut Builder<'_, '_>, scale: f64| l.graph.weight_part(Weight::scalar(DType::F32, scale), l.like);
        let q_scale = scale(l, self.queries.scale * attention.scale.0);
        let k_scale = scale(l, self.keys.scale);
        let keys = l.graph.ty(k).shape[3].clone();
        let ty = TensorType::new(DType::F32, l.graph.ty(q).shape.with_dim(3, keys));
        let inputs = [q, k, q_scale, k_scale, self.queries.zero_point, self.keys.zero_point];
        let inputs = inputs.map(Some).to_vec();
        Ok(foreign(l, (MICROSOFT, "MatMulIntegerToFloat", 1), inputs, Vec::new(), vec![ty])?[0])
    }
}

impl Numbers {
    /// What becomes a value, but for its shape and its order.
    fn of(graph: &Graph, value: ValueId) -> Option<Self> {
        let mut value = value;
        for _ in 0..DEPTH {
            let Some(before) = moved(graph, value) else { break };
            value = before;
        }
        match &graph.producer(value)?.op {
            Op::Foreign(foreign @ Foreign { inputs, .. }) if foreign.is("DequantizeLinear") => {
                let [Some(codes), Some(scale), Some(zero_point)] = inputs[..] else { return None };
                Some(Self { codes, scale: graph.number(scale)?, zero_point })
            }
            _ => None,
        }
    }
}

/// The codes in the shape and the order of their numbers.
fn as_numbers(l: &mut Builder<'_, '_>, numbers: ValueId, codes: ValueId) -> Result<ValueId, BuildError> {
    let op = l.graph.producer(numbers).map(|node| node.op.clone());
    let (Some(before), Some(mut op)) = (moved(l.graph, numbers), op) else { return Ok(codes) };
    let inner = as_numbers(l, before, codes)?;
    op.visit_operands_mut(&mut |v| *v = inner);
    l.emit(op)
}
