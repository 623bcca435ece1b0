//! Operators that work element by element, and those that make tensors of given shapes.

use planish_ir::{DType, Dim};

use super::super::nodes::Node;
use super::super::scope::Scope;
use super::super::tensors;
use super::{Partial, length, numbers};
use crate::proto::AttributeType;

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Result<Option<Vec<Partial>>, String> {
    let like = |index: usize| -> Result<Partial, String> { Ok(scope.ty(node.input(index)?)?.into()) };
    let found = match node.proto.op_type.as_str() {
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "BitShift" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" => {
            all(scope, node, 2, like(0)?.dtype)?
        }
        "Min" | "Max" | "Sum" | "Mean" => all(scope, node, 1, like(0)?.dtype)?,
        "And" | "Or" | "Xor" | "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => {
            all(scope, node, 2, DType::Bool)?
        }
        "Where" => all(scope, node, 3, like(1)?.dtype)?,
        "IsNaN" | "IsInf" => Partial { dtype: DType::Bool, ..like(0)? },
        "Cast" => Partial { dtype: element(node, "to")?.ok_or("it has no `to`")?, ..like(0)? },
        "CastLike" => Partial { dtype: like(1)?.dtype, ..like(0)? },
        "BitCast" => {
            let (from, to) = (like(0)?, element(node, "to")?.ok_or("it has no `to`")?);
            if from.dtype.bits() != to.bits() {
                return Err(format!("it takes {from} as {to}, which is not as large"));
            }
            Partial { dtype: to, ..from }
        }
        "EyeLike" | "RandomNormalLike" | "RandomUniformLike" | "Bernoulli" => {
            let like = like(0)?;
            Partial { dtype: element(node, "dtype")?.unwrap_or(like.dtype), ..like }
        }
        "RandomNormal" | "RandomUniform" => {
            let shape: Vec<Dim> =
                node.ints("shape")?.ok_or("it has no `shape`")?.into_iter().map(Dim::constant).collect();
            Partial::known(element(node, "dtype")?.unwrap_or(DType::F32), &shape)
        }
        "Multinomial" => {
            let samples = Dim::constant(node.int_or("sample_size", 1)?);
            let batch = like(0)?.dims.into_iter().next().flatten();
            Partial::new(element(node, "dtype")?.unwrap_or(DType::I32), [batch, Some(samples)])
        }
        "QuantizeLinear" => {
            let stored = if node.has(2) { Some(like(2)?.dtype) } else { element(node, "output_dtype")? };
            Partial { dtype: stored.unwrap_or(DType::U8), ..like(0)? }
        }
        "DequantizeLinear" => {
            let dtype = element(node, "output_dtype")?.unwrap_or(like(1)?.dtype);
            Partial { dtype, ..like(0)? }
        }
        "DynamicQuantizeLinear" => {
            let (scale, zero) = (Partial::known(DType::F32, &[]), Partial::known(DType::U8, &[]));
            return Ok(Some(vec![Partial { dtype: DType::U8, ..like(0)? }, scale, zero]));
        }
        "Dropout" => return Ok(Some(vec![like(0)?, Partial { dtype: DType::Bool, ..like(0)? }])),
        "ConstantOfShape" => {
            let attribute = node.attribute("value", AttributeType::Tensor)?;
            let dtype = attribute.and_then(|a| a.t.as_ref()).map(|t| tensors::dtype(t.data_type)).transpose()?;
            Partial::of_rank(dtype.unwrap_or(DType::F32), length(scope, node.input(0)?))
        }
        "Range" => Partial::open(like(0)?.dtype, 1),
        "BlackmanWindow" | "HammingWindow" | "HannWindow" => {
            let size = numbers(scope, node, 0).and_then(|n| n.first().copied()).map(Dim::constant);
            Partial::new(element(node, "output_datatype")?.unwrap_or(DType::F32), [size])
        }
        "OneHot" => {
            let (indices, depth) = (like(0)?, numbers(scope, node, 1).and_then(|d| d.first().copied()));
            let mut dims = indices.dims;
            let at = super::super::nodes::axis(node.int_or("axis", -1)?, dims.len() + 1)?;
            dims.insert(at, depth.map(Dim::constant));
            Partial::new(like(2)?.dtype, dims)
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![found]))
}

/// The element type that an attribute names.
pub(super) fn element(node: &Node<'_>, name: &str) -> Result<Option<DType>, String> {
    let number = node.int(name)?.filter(|&n| n != 0);
    number.map(|n| tensors::dtype(i32::try_from(n).unwrap_or(-1))).transpose()
}

/// All operands, at least so many, broadcast.
pub(super) fn all(scope: &Scope, node: &Node<'_>, least: usize, dtype: DType) -> Result<Partial, String> {
    node.input(least - 1)?;
    let mut dims: Vec<Option<Dim>> = Vec::new();
    for name in &node.proto.input {
        let other: Vec<Option<Dim>> = scope.ty(name)?.shape.iter().cloned().map(Some).collect();
        dims = broadcast(&dims, &other)?;
    }
    Ok(Partial::new(dtype, dims))
}

/// What two shapes broadcast to; open where that depends on sizes that only a run knows.
pub(super) fn broadcast(a: &[Option<Dim>], b: &[Option<Dim>]) -> Result<Vec<Option<Dim>>, String> {
    let rank = a.len().max(b.len());
    let one = Some(Dim::constant(1));
    let dim =
        |dims: &[Option<Dim>], i: usize| (i + dims.len()).checked_sub(rank).map_or(one.clone(), |k| dims[k].clone());
    let size = |dim: &Option<Dim>| dim.as_ref().and_then(Dim::as_constant);
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x.is_some() && x == y || y == one => Ok(x),
            (x, y) if x == one => Ok(y),
            (x, y) => match (size(&x), size(&y)) {
                (Some(x), Some(y)) => Err(format!("its operands have {x} and {y} elements along one dimension")),
                // The other one is of the same size, or 1.
                (Some(_), None) => Ok(x),
                (None, Some(_)) => Ok(y),
                (None, None) => Ok(None),
            },
        })
        .collect()
}
