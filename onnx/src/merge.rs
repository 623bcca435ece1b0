//! Two graphs as one with a switch.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use prost::{DecodeError, Message};

use crate::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// Why two graphs cannot be one.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// One is no ONNX model.
    #[error("one is no ONNX model: {0}")]
    Malformed(#[from] DecodeError),
    /// One has no graph.
    #[error("one has no graph")]
    NoGraph,
    /// A weight is in another file, which cannot be read.
    #[error("the weight `{0}` cannot be read: {1}")]
    Outside(String, String),
    /// The graphs are of different operator sets.
    #[error("they have the operator sets {1} and {2} of domain `{0}`")]
    Opset(String, i64, i64),
    /// A name is an input of the graphs and the switch.
    #[error("`{0}` is an input of theirs already")]
    Taken(String),
    /// The file would have more bytes than the format can have.
    #[error("together they have {0} bytes, and an ONNX file has 2 GB at most; compile with weights of fewer bits")]
    TooLarge(usize),
}

/// The contents of a file of weights, by its name; or why there are none.
pub type OutsideWeights<'a> = &'a mut dyn FnMut(&str) -> Result<Bytes, String>;

/// How names of values of the second graph begin in the merged one, and those of the first.
const NEXT: &str = "with_past/";
const FIRST: &str = "without_past/";

/// One model of two: the second one where the input `switch`, `bool[1]`, is true, and the first one where it is false. It has the inputs of
/// both, and the outputs of the first. Of outputs that the second does not have, it gives empty tensors. Weights that both have
/// are stored once, in the file; `outside` gives the contents of files that they are in, by their names.
///
/// # Errors
/// When that is no model; see [`MergeError`].
pub fn merge(first: Bytes, next: Bytes, switch: &str, outside: OutsideWeights<'_>) -> Result<Vec<u8>, MergeError> {
    let (mut first, mut next) = (ModelProto::decode(first)?, ModelProto::decode(next)?);
    for set in &next.opset_import {
        match first.opset_import.iter().find(|other| other.domain == set.domain) {
            Some(other) if other.version != set.version => {
                return Err(MergeError::Opset(set.domain.clone(), other.version, set.version));
            }
            Some(_) => {}
            None => first.opset_import.push(set.clone()),
        }
    }
    let known = |function: &&crate::proto::FunctionProto| first.functions.iter().all(|other| other != *function);
    let more: Vec<_> = next.functions.iter().filter(known).cloned().collect();
    first.functions.extend(more);
    let mut off = first.graph.take().ok_or(MergeError::NoGraph)?;
    let mut on = next.graph.take().ok_or(MergeError::NoGraph)?;

    let inputs = inputs(&off, &on, switch)?;
    off.initializer.iter_mut().chain(&mut on.initializer).try_for_each(|weight| take_in(weight, &mut *outside))?;
    let taken: HashSet<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let (mut weights, renamed) =
        weights(std::mem::take(&mut off.initializer), std::mem::take(&mut on.initializer), &taken);
    let outputs = off.output.clone();
    let missing: Vec<&ValueInfoProto> =
        outputs.iter().filter(|output| on.output.iter().all(|other| other.name != output.name)).collect();
    let empty: Vec<NodeProto> = missing.iter().map(|output| constant(output)).collect();
    on.node.extend(empty);
    on.output = outputs.clone();
    let attribute = |name: &str, graph: GraphProto| AttributeProto {
        name: name.to_owned(),
        kind: AttributeType::Graph as i32,
        g: Some(graph),
        ..AttributeProto::default()
    };
    let branches = [("then_branch", on, NEXT, renamed), ("else_branch", off, FIRST, HashMap::new())];
    let branches = branches.map(|(name, mut graph, prefix, mut names)| {
        graph.initializer = own_blocks(&graph, &weights, prefix, &mut names);
        put_names(&mut graph, prefix, names);
        (name, graph)
    });
    let mut read = HashSet::new();
    branches.iter().for_each(|(_, graph)| names_read(graph, &mut read));
    weights.retain(|weight| read.contains(&weight.name));
    let branches = branches.map(|(name, graph)| attribute(name, graph));
    let choice = NodeProto {
        input: vec![switch.to_owned()],
        output: outputs.iter().map(|output| output.name.clone()).collect(),
        name: "branches".to_owned(),
        op_type: "If".to_owned(),
        attribute: branches.into(),
        ..NodeProto::default()
    };
    first.ir_version = first.ir_version.max(next.ir_version);
    first.graph = Some(GraphProto {
        node: vec![choice],
        name: "merged".to_owned(),
        initializer: weights,
        input: inputs,
        output: outputs,
        ..GraphProto::default()
    });
    match first.encoded_len() {
        length if length > i32::MAX as usize => Err(MergeError::TooLarge(length)),
        _ => Ok(first.encode_to_vec()),
    }
}

fn dims(value: &ValueInfoProto) -> Option<&[DimensionProto]> {
    Some(&value.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?.dim)
}

fn symbol(dim: &DimensionProto) -> Option<&String> {
    match &dim.value {
        Some(DimensionValue::DimParam(name)) => Some(name),
        _ => None,
    }
}

/// The inputs of both, and the switch. Inputs of the second alone are empty where the first is chosen, so their sizes but that of
/// rows are not those of the inputs of the first.
fn inputs(first: &GraphProto, next: &GraphProto, switch: &str) -> Result<Vec<ValueInfoProto>, MergeError> {
    let mut inputs = first.input.clone();
    let own: BTreeSet<String> =
        inputs.iter().filter_map(dims).flat_map(|dims| dims.iter().skip(1).filter_map(symbol)).cloned().collect();
    for input in &next.input {
        if inputs.iter().any(|other| other.name == input.name) {
            continue;
        }
        let mut input = input.clone();
        let shape = input.r#type.as_mut().and_then(|ty| ty.tensor_type.as_mut()).and_then(|ty| ty.shape.as_mut());
        for dim in shape.into_iter().flat_map(|shape| shape.dim.iter_mut().skip(1)) {
            if let Some(name) = symbol(dim).filter(|name| own.contains(*name)) {
                dim.value = Some(DimensionValue::DimParam(format!("past_{name}")));
            }
        }
        inputs.push(input);
    }
    if inputs.iter().any(|input| input.name == switch) {
        return Err(MergeError::Taken(switch.to_owned()));
    }
    let one = DimensionProto { value: Some(DimensionValue::DimValue(1)) };
    let of_switch =
        TensorTypeProto { elem_type: DataType::Bool as i32, shape: Some(TensorShapeProto { dim: vec![one] }) };
    inputs.push(ValueInfoProto {
        name: switch.to_owned(),
        r#type: Some(TypeProto { tensor_type: Some(of_switch), ..TypeProto::default() }),
    });
    Ok(inputs)
}

/// What makes a weight the same as another one.
type Contents = (Vec<i64>, i32, Bytes);

/// The weights of both, and the names of those of the second that have others now.
fn weights(
    first: Vec<TensorProto>,
    next: Vec<TensorProto>,
    taken: &HashSet<String>,
) -> (Vec<TensorProto>, HashMap<String, String>) {
    let contents = |weight: &TensorProto| -> Option<Contents> {
        (!weight.raw_data.is_empty()).then(|| (weight.dims.clone(), weight.data_type, weight.raw_data.clone()))
    };
    let known: HashMap<Contents, String> =
        first.iter().filter_map(|weight| Some((contents(weight)?, weight.name.clone()))).collect();
    let names: HashSet<String> = first.iter().map(|weight| weight.name.clone()).collect();
    let (mut all, mut renamed) = (first, HashMap::new());
    for mut weight in next {
        if let Some(same) = contents(&weight).and_then(|contents| known.get(&contents)) {
            renamed.insert(weight.name, same.clone());
            continue;
        }
        if names.contains(&weight.name) || taken.contains(&weight.name) {
            let name = format!("{NEXT}{}", weight.name);
            renamed.insert(std::mem::replace(&mut weight.name, name.clone()), name);
        }
        all.push(weight);
    }
    (all, renamed)
}

/// The weights of blocks that a branch has for itself, and their names there: ONNX Runtime 1.32 makes a MatMulNBits of a
/// DequantizeLinear of blocks in a branch only where its operands are in the branch too, and fails where they are outside.
fn own_blocks(
    graph: &GraphProto,
    weights: &[TensorProto],
    prefix: &str,
    names: &mut HashMap<String, String>,
) -> Vec<TensorProto> {
    let of_blocks = |node: &&NodeProto| {
        node.op_type == "DequantizeLinear" && node.attribute.iter().any(|attribute| attribute.name == "block_size")
    };
    let operands: BTreeSet<&String> = graph.node.iter().filter(of_blocks).flat_map(|node| &node.input).collect();
    let known: HashMap<&String, &TensorProto> = weights.iter().map(|weight| (&weight.name, weight)).collect();
    let mut own = Vec::new();
    for name in operands {
        let Some(weight) = known.get(names.get(name).unwrap_or(name)) else { continue };
        let there = format!("{prefix}{name}");
        own.push(TensorProto { name: there.clone(), ..TensorProto::clone(weight) });
        names.insert(name.clone(), there);
    }
    own
}

/// Adds the names that nodes of a graph read, and those that are its outputs.
fn names_read(graph: &GraphProto, read: &mut HashSet<String>) {
    read.extend(graph.node.iter().flat_map(|node| &node.input).cloned());
    read.extend(graph.output.iter().map(|output| output.name.clone()));
    let inner = graph.node.iter().flat_map(|node| &node.attribute).filter_map(|attribute| attribute.g.as_ref());
    inner.for_each(|graph| names_read(graph, read));
}

/// Puts the elements of a weight that are in another file into the graph.
fn take_in(weight: &mut TensorProto, outside: OutsideWeights<'_>) -> Result<(), MergeError> {
    if weight.external_data.is_empty() {
        return Ok(());
    }
    let error = |why: String| MergeError::Outside(weight.name.clone(), why);
    let value =
        |key: &str| weight.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
    let number =
        |key: &str| value(key).map(|text| text.parse::<usize>().map_err(|why| error(format!("`{key}`: {why}"))));
    let bytes = outside(value("location").unwrap_or_default()).map_err(error)?;
    let from = number("offset").transpose()?.unwrap_or(0);
    let to = number("length").transpose()?.map_or(Some(bytes.len()), |length| from.checked_add(length));
    let Some(to) = to.filter(|to| from <= *to && *to <= bytes.len()) else {
        return Err(error(format!("its place is outside of the {} bytes of its file", bytes.len())));
    };
    weight.raw_data = bytes.slice(from..to);
    weight.external_data.clear();
    weight.data_location = 0;
    Ok(())
}

/// An empty tensor with the type of an output: no rows, and 1 where a size is open.
fn constant(output: &ValueInfoProto) -> NodeProto {
    let size = |(axis, dim): (usize, &DimensionProto)| match dim.value {
        _ if axis == 0 => 0,
        Some(DimensionValue::DimValue(size)) => size,
        _ => 1,
    };
    let tensor = TensorProto {
        dims: dims(output).into_iter().flatten().enumerate().map(size).collect(),
        data_type: output.r#type.as_ref().and_then(|ty| Some(ty.tensor_type.as_ref()?.elem_type)).unwrap_or_default(),
        ..TensorProto::default()
    };
    NodeProto {
        output: vec![output.name.clone()],
        name: output.name.clone(),
        op_type: "Constant".to_owned(),
        attribute: vec![AttributeProto {
            name: "value".to_owned(),
            kind: AttributeType::Tensor as i32,
            t: Some(tensor),
            ..AttributeProto::default()
        }],
        ..NodeProto::default()
    }
}

/// Makes a graph the body of an `If`: it has no inputs, and its values have names that no other graph has.
fn put_names(graph: &mut GraphProto, prefix: &str, mut names: HashMap<String, String>) {
    let made = graph.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty());
    names.extend(made.map(|name| (name.clone(), format!("{prefix}{name}"))));
    rename(graph, &names);
    for output in &mut graph.output {
        output.name = names.get(&output.name).cloned().unwrap_or_else(|| output.name.clone());
    }
    graph.input.clear();
    graph.value_info.clear();
    for node in &mut graph.node {
        node.name.insert_str(0, prefix);
        for name in &mut node.output {
            if let Some(other) = names.get(name) {
                name.clone_from(other);
            }
        }
    }
    graph.name = prefix.trim_end_matches('/').to_owned();
}

/// Puts other names to what nodes read, those in graphs inside of nodes too.
fn rename(graph: &mut GraphProto, names: &HashMap<String, String>) {
    for node in &mut graph.node {
        for name in &mut node.input {
            if let Some(other) = names.get(name) {
                name.clone_from(other);
            }
        }
        for inner in node.attribute.iter_mut().filter_map(|attribute| attribute.g.as_mut()) {
            rename(inner, names);
            for output in &mut inner.output {
                if let Some(other) = names.get(&output.name) {
                    output.name.clone_from(other);
                }
            }
        }
    }
}
