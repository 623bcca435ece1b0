//! Nodes that the IR has no counterpart of: they pass through with the types of their results.

use planish_ir::ops::{Foreign, InnerOperators, Real, Results, Setting, Settings, Text};
use planish_ir::{DType, Origin, Type, ValueId, Weight};
use prost::Message;

use super::bodies::Body;
use super::infer::{self, Inferred};
use super::is_default;
use super::nodes::Node;
use super::order::captured;
use super::scope::Scope;
use super::tensors::{dtype, is_elsewhere};
use crate::export::changes;
use crate::proto::{AttributeProto, AttributeType, NodeProto};

/// The attributes that count heads of attention, of ONNX and of ONNX Runtime.
const HEADS: [&str; 3] = ["num_heads", "q_num_heads", "kv_num_heads"];

/// Checks numbers of heads, which features are divided by: ONNX Runtime ends the process where one is 0. Operands of
/// ONNX's attention may have heads as a dimension of their own, and then nothing is divided.
fn check_heads(scope: &Scope, node: &Node<'_>) -> Result<(), String> {
    let has_heads = |name: &String| scope.ty(name).is_ok_and(|ty| ty.shape.rank() == 4);
    if is_default(&node.proto.domain) && node.proto.input.len() >= 3 && node.proto.input[..3].iter().all(has_heads) {
        return Ok(());
    }
    let no_count = |attribute: &&AttributeProto| {
        HEADS.contains(&attribute.name.as_str()) && !(1..=i64::from(i32::MAX)).contains(&attribute.i)
    };
    match node.proto.attribute.iter().find(no_count) {
        Some(AttributeProto { name, i, .. }) => Err(format!("its `{name}` is {i}, expected 1 or more heads")),
        None => Ok(()),
    }
}

/// Lets a node pass.
///
/// # Errors
/// When operands do not fit the operator, or an attribute is of a kind that graphs do not hold.
pub(super) fn pass_through(scope: &mut Scope, node: &Node<'_>) -> Result<(), String> {
    let is_standard = is_default(&node.proto.domain);
    if is_standard {
        exists(&node.proto.op_type, node.version)?;
    }
    check_heads(scope, node)?;
    let mut found = infer::results(scope, node)?.into_iter();
    let mut results: Vec<Option<Type>> = Vec::new();
    for name in &node.proto.output {
        let found = found.next().unwrap_or(Inferred::Nothing);
        let ty = if name.is_empty() { None } else { Some(result_type(scope, found, name, node.proto)?) };
        results.push(ty);
    }
    let inputs =
        node.proto.input.iter().map(|name| if name.is_empty() { Ok(None) } else { scope.value(name).map(Some) });
    let mut inputs = inputs.collect::<Result<Vec<Option<ValueId>>, String>>()?;
    if is_standard && node.proto.op_type == "Pad" {
        whole_pads(scope, node, &mut inputs)?;
    }
    let mut settings = Vec::new();
    let (mut names, mut values, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    let prefix = node.proto.output.iter().find(|name| !name.is_empty()).map_or("", String::as_str);
    for attribute in &node.proto.attribute {
        let mut attribute = attribute.clone();
        if let Some(graph) = &mut attribute.g {
            let body = Body::lift(scope, graph, prefix);
            inner.extend(body.map_err(|e| format!("its graph `{}`: {e}", attribute.name))?.inner);
        }
        let attribute = &attribute;
        for name in captured(attribute) {
            if !names.contains(&Text(name.clone())) {
                values.push(scope.value(&name)?);
                names.push(Text(name));
            }
        }
        settings.push((
            attribute.name.clone(),
            setting(attribute).map_err(|e| format!("attribute `{}`: {e}", attribute.name))?,
        ));
    }
    let domain = if is_standard { Foreign::STANDARD } else { &node.proto.domain };
    let op = Foreign {
        inputs,
        captured: values,
        domain: Text(domain.to_owned()),
        op: Text(node.proto.op_type.clone()),
        version: usize::try_from(node.version).unwrap_or(1),
        settings: Settings(settings),
        captures: names,
        inner: InnerOperators(inner),
        results: Results(results),
    };
    let outputs: Vec<&String> = node.proto.output.iter().filter(|n| !n.is_empty()).collect();
    let first = outputs.first().map_or("", |n| n.as_str());
    let values = scope.emit_all(op, first)?;
    for (name, value) in outputs.into_iter().zip(values) {
        scope.graph.rename(value, name);
        scope.set(name, value);
    }
    Ok(())
}

/// Has pads of some axes, where both are constant, be those of all axes: ONNX Runtime moves a Transpose after a Pad as if
/// it had no axes.
fn whole_pads(scope: &mut Scope, node: &Node<'_>, inputs: &mut Vec<Option<ValueId>>) -> Result<(), String> {
    let constants = |index| scope.known(node.input(index).ok()?)?.constants();
    let (true, Ok(x)) = (node.has(3), scope.ty(node.input(0)?)) else { return Ok(()) };
    let (Some(pads), Some(axes)) = (constants(1), constants(3)) else { return Ok(()) };
    let rank = x.shape.rank();
    let mut whole = vec![0i64; 2 * rank];
    let (begins, ends) = pads.split_at(axes.len().min(pads.len()));
    for (at, (begin, end)) in axes.into_iter().zip(begins.iter().zip(ends)) {
        let at = super::nodes::axis(at, rank)?;
        (whole[at], whole[at + rank]) = (*begin, *end);
    }
    let bytes: Vec<u8> = whole.iter().flat_map(|pad| pad.to_le_bytes()).collect();
    let Some(weight) = Weight::inline(DType::I64, vec![whole.len()], bytes) else { return Ok(()) };
    let name = format!("{}/pads", node.output()?);
    inputs[1] = Some(scope.graph.add_weight(&name, weight, Origin::Unknown));
    inputs.truncate(3);
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    Ok(())
}

/// Checks that an opset has an operator of the default domain.
///
/// # Errors
/// When it has none of this name.
pub(super) fn exists(op: &str, opset: i64) -> Result<(), String> {
    let first = changes(op)?.first().map_or(1, |(since, _)| *since);
    // ONNX Runtime had this one in the default domain before ONNX.
    let first = if op == "LayerNormalization" { 1 } else { first };
    match usize::try_from(opset).is_ok_and(|opset| first <= opset) {
        true => Ok(()),
        false => Err(format!("it came with opset {first}, and the graph is of opset {opset}")),
    }
}

/// The type of a result: as the operator has it, and what that leaves open as declared.
pub(super) fn result_type(scope: &mut Scope, found: Inferred, name: &str, node: &NodeProto) -> Result<Type, String> {
    let declared = scope.declared(name)?;
    Ok(match (found, declared) {
        (Inferred::Tensor(found), declared) => {
            let declared = declared.as_ref().and_then(Type::as_tensor);
            found.complete(declared, scope, name, node)?.into()
        }
        (Inferred::Other(Type::Unranked(dtype)), Some(Type::Tensor(ty))) if ty.dtype == dtype => ty.into(),
        (Inferred::Other(found), _) => found,
        (Inferred::Nothing, declared) => declared.unwrap_or(Type::Unknown),
    })
}

/// The value of an attribute.
fn setting(attribute: &AttributeProto) -> Result<Setting, String> {
    let real = |f: f32| Real(f.into());
    let kind = AttributeType::try_from(attribute.kind).unwrap_or(AttributeType::Undefined);
    Ok(match kind {
        AttributeType::Float => Setting::Float(real(attribute.f)),
        AttributeType::Int => Setting::Int(attribute.i),
        AttributeType::String => Setting::Bytes(attribute.s.to_vec().into()),
        AttributeType::Floats => Setting::Floats(attribute.floats.iter().copied().map(real).collect()),
        AttributeType::Ints => Setting::Ints(attribute.ints.clone()),
        AttributeType::Strings => Setting::Strings(attribute.strings.iter().map(|s| s.to_vec().into()).collect()),
        AttributeType::Graph => {
            let graph = attribute.g.as_ref().ok_or("it has no graph")?;
            Setting::Graph(graph.encode_to_vec().into())
        }
        AttributeType::Tensor => {
            let tensor = attribute.t.as_ref().ok_or("it has no tensor")?;
            let dtype = dtype(tensor.data_type)?;
            if is_elsewhere(tensor) {
                return Err("its tensor is large".to_owned());
            }
            let weight = super::tensors::inline(tensor, dtype)?;
            let bytes = weight.read().map_err(|e| e.to_string())?;
            Setting::Tensor(dtype, weight.shape().to_vec(), bytes.into())
        }
        AttributeType::TypeProto => {
            Setting::Type(attribute.tp.as_ref().ok_or("it has no type")?.encode_to_vec().into())
        }
        other => return Err(format!("attributes of kind {other:?} are not supported")),
    })
}
