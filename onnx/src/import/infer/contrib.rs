//! Operators that ONNX Runtime adds (its docs/ContribOperators.md), by the rules of its schemas.

use planish_ir::{DType, Dim, TensorType};

use super::super::nodes::{Node, axis};
use super::super::scope::Scope;
use super::elementwise::broadcast;
use super::network::{gemm, product};
use super::{Found, Inferred, Partial, spatial};

/// Operators whose first result has the type of the first operand.
const LIKE_FIRST: &[&str] = &[
    "BiasAdd",
    "BiasGelu",
    "BiasSoftmax",
    "FastGelu",
    "Gelu",
    "GroupNorm",
    "Inverse",
    "LongformerAttention",
    "MoE",
    "QLinearLeakyRelu",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QMoE",
    "QuickGelu",
    "RotaryEmbedding",
    "SkipGroupNorm",
    "Trilu",
];

pub(super) fn types(scope: &Scope, node: &Node<'_>) -> Found {
    let ty = |index: usize| -> Result<TensorType, String> { scope.ty(node.input(index)?) };
    let op = node.proto.op_type.as_str();
    let found = match op {
        _ if LIKE_FIRST.contains(&op) => ty(0)?.into(),
        "NGramRepeatBlock" => ty(1)?.into(),
        "FusedGemm" => gemm(node, &ty(0)?, &ty(1)?)?,
        "FusedMatMul" | "TransposeMatMul" | "FusedMatMulActivation" | "GemmFastGelu" => {
            let flag = |name: &str| node.int_or(name, 0).map(|i| i != 0);
            if flag("transBatchA")? || flag("transBatchB")? {
                return Ok(Vec::new());
            }
            let (a, b) = (turned(ty(0)?, flag("transA")?), turned(ty(1)?, flag("transB")?));
            product(&a, &b, a.dtype)?
        }
        "MatMulNBits" | "MatMulBnb4" | "MatMulFpQ4" => columns(&ty(0)?, node.int("N")?),
        "DynamicQuantizeMatMul" => product(&ty(0)?, &ty(1)?, DType::F32)?,
        "MatMulIntegerToFloat" => product(&ty(0)?, &ty(1)?, ty(2)?.dtype)?,
        "MatMulInteger16" => product(&ty(0)?, &ty(1)?, DType::I32)?,
        "QGemm" => {
            let stored = if node.has(8) { ty(8)?.dtype } else { DType::F32 };
            Partial { dtype: stored, ..gemm(node, &ty(0)?, &ty(3)?)? }
        }
        "QLinearAdd" | "QLinearMul" => together(&[ty(0)?, ty(3)?], ty(0)?.dtype)?,
        "QLinearWhere" => together(&[ty(0)?, ty(1)?, ty(4)?], ty(1)?.dtype)?,
        "QLinearConcat" => concat(scope, node)?,
        "QLinearConv" => Partial::open(ty(7)?.dtype, ty(0)?.shape.rank()),
        "QLinearAveragePool" | "QLinearGlobalAveragePool" | "NhwcMaxPool" | "NhwcFusedConv" => {
            Partial::open(ty(0)?.dtype, ty(0)?.shape.rank())
        }
        "FusedConv" => spatial::convolution(node, &ty(0)?, &ty(1)?, ty(0)?.dtype)?,
        "QuantizeLinear" => {
            let stored = if node.has(2) { ty(2)?.dtype } else { DType::U8 };
            Partial { dtype: stored, ..ty(0)?.into() }
        }
        "DequantizeLinear" => Partial { dtype: ty(1)?.dtype, ..ty(0)?.into() },
        "GatherBlockQuantized" => looked_up(node, &ty(0)?, &ty(1)?, ty(2)?.dtype)?,
        "CDist" => {
            let (a, b) = (ty(0)?, ty(1)?);
            Partial::new(a.dtype, [a.shape.first().cloned(), b.shape.first().cloned()])
        }
        "GreedySearch" => Partial::open(DType::I32, 2),
        "BeamSearch" => {
            let scores = [2, 4].map(|rank| Partial::open(DType::F32, rank));
            return Ok([Partial::open(DType::I32, 3)].into_iter().chain(scores).map(Inferred::from).collect());
        }
        _ => return several(scope, node),
    };
    Ok(vec![found.into()])
}

/// Operators of several results.
fn several(scope: &Scope, node: &Node<'_>) -> Found {
    let ty = |index: usize| -> Result<TensorType, String> { scope.ty(node.input(index)?) };
    let found: Vec<Partial> = match node.proto.op_type.as_str() {
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => {
            let x = ty(0)?;
            let statistics = statistics(&x, x.shape.rank().saturating_sub(1));
            vec![x.clone().into(), statistics.clone(), statistics, x.into()]
        }
        "EmbedLayerNormalization" | "QEmbedLayerNormalization" => {
            let (ids, table) = (ty(0)?, ty(2)?);
            let dtype = if table.dtype.is_float() { table.dtype } else { DType::F32 };
            let dims = ids.shape.iter().cloned().map(Some).chain([table.shape.last().cloned()]);
            let rows = Partial::new(dtype, dims);
            vec![rows.clone(), Partial::new(DType::I32, [ids.shape.first().cloned()]), rows]
        }
        "Attention" => {
            let x = ty(0)?;
            let sizes = node.ints("qkv_hidden_sizes")?.and_then(|sizes| sizes.get(2).copied());
            let width = if node.has(2) { ty(2)?.shape.first().cloned() } else { ty(1)?.shape.last().cloned() };
            let third = |width: Dim| width.exact_div(&Dim::constant(3));
            let width = sizes.map(Dim::constant).or_else(|| third(width?));
            vec![with_last(&x, x.dtype, width), Partial::open(x.dtype, 5)]
        }
        "QAttention" => {
            let (x, dtype) = (ty(0)?, ty(3)?.dtype);
            let width = ty(2)?.shape.first().and_then(|width| width.exact_div(&Dim::constant(3)));
            vec![with_last(&x, dtype, width), Partial::open(dtype, 5)]
        }
        "MultiHeadAttention" | "DecoderMaskedMultiHeadAttention" => {
            let q = ty(0)?;
            let value = if node.has(2) { Some(ty(2)?) } else { None };
            let width = value.and_then(|v| match &v.shape[..] {
                [_, _, width] => Some(width.clone()),
                [_, heads, _, size] => heads.checked_mul(size),
                _ => None,
            });
            let rows = Partial::new(q.dtype, [q.shape.first().cloned(), q.shape.get(1).cloned(), width]);
            let cache = Partial::open(q.dtype, 4);
            vec![rows, cache.clone(), cache.clone(), cache]
        }
        "GroupQueryAttention" => {
            let q = ty(0)?;
            let [heads, shared] = [node.int_or("num_heads", 0)?, node.int_or("kv_num_heads", 0)?];
            let size = |all: i64| q.shape.last().and_then(|width| width.exact_div(&Dim::constant(all)));
            // Queries, keys and values side by side where there are no keys.
            let width = match node.has(1) {
                true => q.shape.last().cloned(),
                false => shared
                    .checked_mul(2)
                    .and_then(|shared| heads.checked_add(shared))
                    .filter(|all| *all > 0)
                    .and_then(size)
                    .and_then(|size| size.checked_mul(&Dim::constant(heads))),
            };
            let cache = Partial::open(if node.has(3) { ty(3)?.dtype } else { q.dtype }, 4);
            vec![with_last(&q, q.dtype, width), cache.clone(), cache.clone(), cache]
        }
        _ => return Ok(Vec::new()),
    };
    Ok(found.into_iter().map(Inferred::from).collect())
}

/// Mean and deviation over the dimensions from one on.
pub(super) fn statistics(x: &TensorType, from: usize) -> Partial {
    let dims = x.shape.iter().enumerate().map(|(i, d)| Some(if i < from { d.clone() } else { Dim::constant(1) }));
    Partial::new(DType::F32, dims)
}

/// A type with another last dimension.
fn with_last(x: &TensorType, dtype: DType, last: Option<Dim>) -> Partial {
    let outer = x.shape.rank().saturating_sub(1);
    Partial::new(dtype, x.shape.iter().take(outer).cloned().map(Some).chain([last]))
}

/// Rows times a packed matrix of so many columns.
fn columns(x: &TensorType, count: Option<i64>) -> Partial {
    with_last(x, x.dtype, count.map(Dim::constant))
}

/// What indices look up in a table of codes; those of a byte are columns beside each other.
fn looked_up(node: &Node<'_>, table: &TensorType, indices: &TensorType, dtype: DType) -> Result<Partial, String> {
    let at = axis(node.int_or("gather_axis", 0)?, table.shape.rank())?;
    let of_byte = if table.dtype == DType::U8 { 8_i64.checked_div(node.int_or("bits", 4)?).unwrap_or(1) } else { 1 };
    let mut dims: Vec<Option<Dim>> = table.shape.iter().cloned().map(Some).collect();
    if let Some(last) = dims.last_mut() {
        *last = last.take().and_then(|bytes| bytes.checked_mul(&Dim::constant(of_byte)));
    }
    dims.splice(at..=at, indices.shape.iter().cloned().map(Some));
    Ok(Partial::new(dtype, dims))
}

/// Operands broadcast.
fn together(types: &[TensorType], dtype: DType) -> Result<Partial, String> {
    let mut dims: Vec<Option<Dim>> = Vec::new();
    for ty in types {
        dims = broadcast(&dims, &Partial::from(ty.clone()).dims)?;
    }
    Ok(Partial::new(dtype, dims))
}

/// Tensors, each with scale and zero point, after the scale and zero point of the result.
fn concat(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let mut sum: Option<Partial> = None;
    for name in node.proto.input.iter().skip(2).step_by(3) {
        let part: Partial = scope.ty(name)?.into();
        let at = axis(node.int_or("axis", 0)?, part.dims.len())?;
        sum = Some(match sum {
            Some(mut sum) if sum.dims.len() == part.dims.len() => {
                sum.dims[at] = sum.dims[at].take().zip(part.dims[at].clone()).and_then(|(a, b)| a.checked_add(&b));
                sum
            }
            Some(_) => return Err("its operands differ in their number of dimensions".to_owned()),
            None => part,
        });
    }
    sum.ok_or_else(|| "it has no operands".to_owned())
}

/// The type with its last two dimensions in turn.
fn turned(ty: TensorType, turn: bool) -> TensorType {
    let mut dims = ty.shape.to_vec();
    let rank = dims.len();
    if turn && rank > 1 {
        dims.swap(rank - 2, rank - 1);
    }
    TensorType::new(ty.dtype, planish_ir::Shape::new(dims))
}
