//! Lists of tensors, and values that may be none.

use planish_ir::{DType, Dim, Shape, TensorType, Type};

use super::super::nodes::{Node, axis};
use super::super::scope::Scope;
use super::super::types;
use super::{Inferred, Partial, elementwise};
use crate::proto::AttributeType;

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Result<Option<Vec<Inferred>>, String> {
    let operand = |index: usize| node.input(index).and_then(|name| scope.type_of(name));
    let found = match node.proto.op_type.as_str() {
        "SequenceEmpty" => {
            let dtype = elementwise::element(node, "dtype")?.unwrap_or(DType::F32);
            Inferred::Other(Type::Sequence(Box::new(Type::Unranked(dtype))))
        }
        "SequenceConstruct" => {
            let mut all: Option<Type> = None;
            for index in 0..node.proto.input.len() {
                let ty = operand(index)?;
                all = Some(all.map_or_else(|| ty.clone(), |all| common(&all, &ty)));
            }
            all.map_or(Inferred::Nothing, |of| Inferred::Other(Type::Sequence(Box::new(of))))
        }
        "SplitToSequence" => split(scope, node)?,
        "SequenceInsert" => match operand(0)? {
            Type::Sequence(of) => Inferred::Other(Type::Sequence(Box::new(common(&of, &operand(1)?)))),
            _ => Inferred::Nothing,
        },
        "SequenceErase" => Inferred::Other(operand(0)?),
        "SequenceAt" => element(&operand(0)?),
        "SequenceLength" => Inferred::Tensor(Partial::open(DType::I64, 0)),
        "ConcatFromSequence" => match element(&operand(0)?) {
            Inferred::Tensor(mut part) => {
                let new = node.int_or("new_axis", 0)? == 1;
                let at = node.int("axis")?.ok_or("it has no `axis`")?;
                let at = axis(at, part.dims.len() + usize::from(new))?;
                if new {
                    part.dims.insert(at, None);
                } else {
                    part.dims[at] = None;
                }
                Inferred::Tensor(part)
            }
            other => other,
        },
        "Optional" => {
            let named = node.attribute("type", AttributeType::TypeProto)?.and_then(|a| a.tp.as_ref());
            let of = match (node.has(0), named) {
                (true, _) => operand(0)?,
                (false, Some(named)) => types::read(&mut scope.symbols, named, "optional")?.unwrap_or(Type::Unknown),
                (false, None) => return Err("it has neither a value nor a type".to_owned()),
            };
            Inferred::Other(Type::Optional(Box::new(of)))
        }
        "OptionalGetElement" => match operand(0)? {
            Type::Optional(of) => loose(&of),
            other => Inferred::of(other),
        },
        "OptionalHasElement" => Inferred::Tensor(Partial::open(DType::Bool, 0)),
        _ => return Ok(None),
    };
    Ok(Some(vec![found]))
}

/// What is known of an element of a list.
fn element(list: &Type) -> Inferred {
    match list {
        Type::Sequence(of) => loose(of),
        _ => Inferred::Nothing,
    }
}

/// What is known of one of several values of a type: sizes that are symbols differ from one to the next.
fn loose(ty: &Type) -> Inferred {
    match ty {
        Type::Tensor(ty) => {
            let dims = ty.shape.iter().map(|d| d.as_constant().map(Dim::constant));
            Inferred::Tensor(Partial::new(ty.dtype, dims))
        }
        Type::Unknown => Inferred::Nothing,
        other => Inferred::Other(other.clone()),
    }
}

/// A type that values of both types have.
fn common(a: &Type, b: &Type) -> Type {
    match (a, b) {
        (Type::Tensor(x), Type::Tensor(y)) if x.dtype == y.dtype && x.shape.rank() == y.shape.rank() => {
            let any = || Dim::symbol("any");
            let dims = x.shape.iter().zip(y.shape.iter()).map(|(a, b)| if a == b { a.clone() } else { any() });
            Type::Tensor(TensorType::new(x.dtype, Shape::new(dims)))
        }
        _ if a == b => a.clone(),
        _ => a.dtype().filter(|dtype| b.dtype() == Some(*dtype)).map_or(Type::Unknown, Type::Unranked),
    }
}

/// The parts along an axis: of a size each, or of 1 where none is given, and then without the axis unless it is kept.
fn split(scope: &mut Scope, node: &Node<'_>) -> Result<Inferred, String> {
    let Type::Tensor(x) = scope.type_of(node.input(0)?)? else { return Ok(Inferred::Nothing) };
    let at = axis(node.int_or("axis", 0)?, x.shape.rank())?;
    let mut dims = x.shape.to_vec();
    // ONNX Runtime divides by the one size that all parts have.
    let size = if node.has(1) { scope.known(node.input(1)?).filter(|size| size.shape.is_empty()) } else { None };
    if let Some([size @ ..=0]) = size.and_then(|size| size.constants()).as_deref() {
        return Err(format!("it splits into parts of {size} elements"));
    }
    match (node.has(1), node.int_or("keepdims", 1)?) {
        (false, 0) => drop(dims.remove(at)),
        (false, _) => dims[at] = Dim::constant(1),
        (true, _) => dims[at] = scope.symbols.fresh(&format!("{}_part", node.output()?)),
    }
    Ok(Inferred::Other(Type::Sequence(Box::new(TensorType::new(x.dtype, Shape::new(dims)).into()))))
}
