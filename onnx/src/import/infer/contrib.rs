//! Operators that ONNX Runtime adds (its docs/ContribOperators.md).

use planish_ir::{Dim, TensorType};

use super::super::nodes::Node;
use super::super::scope::Scope;
use super::network::{gemm, product};
use super::{Found, Partial};

/// The domain of these operators.
pub(super) const DOMAIN: &str = "com.microsoft";

/// Operators whose first result has the type of the first operand.
const LIKE_FIRST: &[&str] = &["BiasAdd", "BiasGelu", "BiasSoftmax", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding"];

pub(super) fn types(scope: &Scope, node: &Node<'_>) -> Found {
    let ty = |index: usize| -> Result<TensorType, String> { scope.ty(node.input(index)?) };
    let op = node.proto.op_type.as_str();
    let found = match op {
        _ if LIKE_FIRST.contains(&op) => ty(0)?.into(),
        "FusedGemm" => gemm(node, &ty(0)?, &ty(1)?)?,
        "FusedMatMul" | "TransposeMatMul" => {
            let flag = |name: &str| node.int_or(name, 0).map(|i| i != 0);
            if flag("transBatchA")? || flag("transBatchB")? {
                return Ok(Vec::new());
            }
            let (a, b) = (turned(ty(0)?, flag("transA")?), turned(ty(1)?, flag("transB")?));
            product(&a, &b, a.dtype)?
        }
        "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization" => {
            let x = ty(0)?;
            let statistics = x.shape.iter().take(x.shape.rank().saturating_sub(1)).cloned().chain([Dim::constant(1)]);
            let statistics = Partial::new(planish_ir::DType::F32, statistics.map(Some));
            return Ok(vec![x.clone().into(), statistics.clone(), statistics, x.into()]);
        }
        _ => return Ok(Vec::new()),
    };
    Ok(vec![found])
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
