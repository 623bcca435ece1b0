//! Operators on text.

use planish_ir::DType;

use super::super::nodes::Node;
use super::super::scope::Scope;
use super::{Partial, elementwise};

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Result<Option<Vec<Partial>>, String> {
    let like = |index: usize| -> Result<Partial, String> { Ok(scope.ty(node.input(index)?)?.into()) };
    let found = match node.proto.op_type.as_str() {
        "StringConcat" => elementwise::all(scope, node, 2, DType::String)?,
        "StringNormalizer" => {
            let x = like(0)?;
            // Words may be left out of the last dimension.
            let mut dims = x.dims;
            if let Some(last) = dims.last_mut() {
                *last = None;
            }
            Partial::new(DType::String, dims)
        }
        "RegexFullMatch" => Partial { dtype: DType::Bool, ..like(0)? },
        "StringSplit" => {
            let x = like(0)?;
            let parts = Partial::new(DType::String, x.dims.iter().cloned().chain([None]));
            return Ok(Some(vec![parts, Partial { dtype: DType::I64, ..x }]));
        }
        "TfIdfVectorizer" => {
            let x = like(0)?;
            let outer = x.dims.len().saturating_sub(1);
            Partial::new(DType::F32, x.dims.into_iter().take(outer).chain([None]))
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![found]))
}
