//! Parts of a graph that become graphs when the types of all operands are known: the graphs that operators contain, and
//! operators that passed through because sizes were open.

use std::collections::HashSet;

use planish_ir::ops::Foreign;
use planish_ir::{Graph, TensorType, Weight};
use prost::Message;

use super::scope::Scope;
use super::{nodes, order};
use crate::export::{attribute, data_type, value_info};
use crate::proto::{DimensionProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto};

/// An operator, or a graph in it, is not one that a graph here can have: why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PartError(String);

impl From<String> for PartError {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<PartError> for String {
    fn from(error: PartError) -> Self {
        error.0
    }
}

/// An operand of an operator.
pub struct KnownOperand {
    /// Its type, without symbols.
    pub ty: TensorType,
    /// Its elements, where knowing them helps: of shapes, axes and indices.
    pub elements: Option<Weight>,
}

/// The graph that an operator contains in ONNX's encoding as `body`. Its inputs are those of `body`, of the types
/// `inputs`, and then the values around it that the operator uses, of the types `captured`. Where `body` declares an
/// input of one element with another number of dimensions, it has that.
///
/// # Errors
/// When it is not a graph of such inputs, or has what graphs here cannot have.
pub fn read_body(
    op: &Foreign,
    body: &[u8],
    inputs: &[TensorType],
    captured: &[TensorType],
) -> Result<Graph, PartError> {
    let mut graph = GraphProto::decode(body).map_err(|e| format!("its graph is malformed: {e}"))?;
    if graph.input.len() != inputs.len() || op.captures.len() != captured.len() {
        let (own, given) = (graph.input.len(), inputs.len());
        return Err(PartError(format!("its graph has {own} inputs, and {given} are given")));
    }
    forget_sizes(&mut graph);
    for (info, ty) in graph.input.iter_mut().zip(inputs) {
        let rank = info.r#type.as_ref().and_then(|t| Some(t.tensor_type.as_ref()?.shape.as_ref()?.dim.len()));
        let ty = match rank {
            Some(rank) if ty.shape.iter().all(|d| d.as_constant() == Some(1)) => {
                TensorType::new(ty.dtype, planish_ir::Shape::new(vec![1.into(); rank]))
            }
            _ => ty.clone(),
        };
        *info = value_info(&info.name, &ty.into());
    }
    let given: HashSet<String> = graph.input.iter().map(|i| i.name.clone()).collect();
    graph.initializer.retain(|tensor| !given.contains(&tensor.name));
    graph.input.extend(op.captures.iter().zip(captured).map(|(name, ty)| value_info(&name.0, &ty.clone().into())));
    tell_results_apart(&mut graph);
    Ok(read(op, graph)?)
}

/// An operator as a graph of the operators that it becomes, now that its operands are known. Operand `I` is the input
/// `iI`, or a weight where its elements are given; outputs are the results that it has, in order.
///
/// # Errors
/// When it is not an operator of such operands.
pub fn read_operator(op: &Foreign, operands: &[Option<KnownOperand>]) -> Result<Graph, PartError> {
    let mut graph = GraphProto { name: op.op.0.clone(), ..GraphProto::default() };
    let mut node = NodeProto { op_type: op.op.0.clone(), name: op.op.0.clone(), ..NodeProto::default() };
    if !op.is_standard() {
        node.domain.clone_from(&op.domain.0);
    }
    for (index, operand) in operands.iter().enumerate() {
        let Some(KnownOperand { ty, elements }) = operand else {
            node.input.push(String::new());
            continue;
        };
        let name = format!("i{index}");
        match elements {
            Some(weight) => graph.initializer.push(TensorProto {
                name: name.clone(),
                dims: ty.shape.as_constant().ok_or_else(|| "an operand has no size".to_owned())?,
                data_type: data_type(ty.dtype),
                raw_data: weight.read().map_err(|e| e.to_string())?.into(),
                ..TensorProto::default()
            }),
            None => graph.input.push(value_info(&name, &ty.clone().into())),
        }
        node.input.push(name);
    }
    for (index, result) in op.results.0.iter().enumerate() {
        let name = if result.is_some() { format!("o{index}") } else { String::new() };
        if !name.is_empty() {
            graph.output.push(ValueInfoProto { name: name.clone(), r#type: None });
        }
        node.output.push(name);
    }
    let settings = op.settings.0.iter().map(|(name, value)| attribute(name, value, &|_| None));
    node.attribute = settings.collect::<Result<_, _>>()?;
    graph.node.push(node);
    Ok(read(op, graph)?)
}

/// Imports a part of the graph that an operator is in.
fn read(op: &Foreign, mut graph: GraphProto) -> Result<Graph, String> {
    let set = |domain: &str, version: usize| OperatorSetIdProto {
        domain: domain.to_owned(),
        version: i64::try_from(version).unwrap_or(i64::MAX),
    };
    let mut opsets = vec![set(if op.is_standard() { "" } else { &op.domain.0 }, op.version)];
    opsets.extend(op.inner.0.iter().map(|inner| set(&inner.domain, inner.version)));
    order::check(&mut graph, &|_| false)?;
    let mut scope = Scope::without_files(&graph, opsets, &op.op.0);
    scope.interface(&graph)?;
    for node in &graph.node {
        nodes::import(&mut scope, node);
    }
    if !scope.problems.is_empty() {
        return Err(scope.problems.join("; "));
    }
    let (graph, _) = scope.finish(&graph, &[])?;
    planish_ir::verify(&graph).map_err(|e| e.to_string())?;
    Ok(graph)
}

/// Sizes that a graph declares for its results, and for those of graphs in it, need not hold in each run of it. The
/// numbers of dimensions do.
fn forget_sizes(graph: &mut GraphProto) {
    let infos = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    let shapes = infos.filter_map(|info| info.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut());
    shapes.flat_map(|shape| &mut shape.dim).for_each(|dim| *dim = DimensionProto { value: None });
    let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    attributes.filter_map(|a| a.g.as_mut()).for_each(forget_sizes);
}

/// Gives results that a graph names twice names of their own.
fn tell_results_apart(graph: &mut GraphProto) {
    let mut names = HashSet::new();
    super::bodies::names(graph, &mut names);
    let mut seen = HashSet::new();
    for output in &mut graph.output {
        if seen.insert(output.name.clone()) {
            continue;
        }
        let mut name = output.name.clone();
        while !names.insert(name.clone()) || seen.contains(&name) {
            name.push('_');
        }
        let from = std::mem::replace(&mut output.name, name.clone());
        graph.node.push(super::bodies::identity(from, name.clone()));
        seen.insert(name);
    }
}
