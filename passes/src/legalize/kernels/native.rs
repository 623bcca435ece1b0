//! The operators that a runtime of this project executes: those of the graph.

use planish_ir::DType::{self, Bf16, F16, F32};
use planish_ir::{Graph, Type, ValueId};

use super::Signature;
use super::tables::missing;

/// The element types of a bias of attention. The typing rule says where it is of another type than the queries: where scores
/// are computed in float32.
const BIAS: &[DType] = &[F16, Bf16, F32];

/// Why the runtime has no kernel for a signature.
pub(crate) fn native(signature: &Signature, _: u32) -> Option<String> {
    let row = signature.row;
    missing(signature, row.types.native, |operand| match (row.mnemonic, operand) {
        ("attention", "bias") => Some(BIAS),
        _ => row.own_types(operand),
    })
}

/// Why the runtime cannot hold an input or a weight.
pub(crate) fn native_value(graph: &Graph, value: ValueId) -> Option<String> {
    match graph.type_of(value) {
        Type::Tensor(ty) if ty.dtype.is_computed() => None,
        Type::Tensor(ty) => Some(format!("no kernel takes elements of type {}", ty.dtype)),
        Type::Unranked(_) => Some("its number of dimensions is unknown".to_owned()),
        ty => Some(format!("it is {ty}, and the runtime has tensors only")),
    }
}

#[cfg(test)]
mod tests {
    use planish_ir::DType::{Bool, F64, I8, I32, I64};
    use planish_ir::ops::Row;

    use super::*;

    #[test]
    fn element_types_decide() {
        let reason = |mnemonic, operands: &[(&'static str, DType)], result| {
            let row = Row::of(mnemonic).unwrap();
            native(&Signature { row, operands: operands.to_vec(), results: vec![result] }, 20)
        };
        assert_eq!(
            reason("attention", &[("q", F16), ("k", F16), ("v", F16), ("bias", F32), ("mask", Bool)], F16),
            None
        );
        assert_eq!(reason("linear", &[("x", F64), ("weight", F64)], F64).as_deref(), Some("no kernel for f64"));
        assert_eq!(reason("add", &[("a", F64), ("b", F64)], F64), None);
        assert_eq!(reason("embedding_norm", &[("tables", F16), ("ids", I64), ("weight", F16)], F16), None);
        let codes =
            |bias| reason("quantized_linear", &[("x", I8), ("weight", I8), ("scales", F32), ("bias", bias)], F16);
        assert_eq!((codes(F16), codes(I32).is_some()), (None, true));
    }
}
