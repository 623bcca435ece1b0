//! Small models.

use std::fs;
use std::path::Path;

use planish_ir::Graph;
use planish_onnx::ImportOptions;
use planish_onnx::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use prost::Message;

/// A model of one graph.
pub(crate) fn model(opset: i64, graph: GraphProto) -> ModelProto {
    let domain = OperatorSetIdProto { domain: String::new(), version: opset };
    ModelProto { ir_version: 8, opset_import: vec![domain], graph: Some(graph), ..ModelProto::default() }
}

/// Dimensions from text: sizes and names, separated by commas; `?` is neither.
pub(crate) fn typed(name: &str, elements: DataType, dims: &str) -> ValueInfoProto {
    let dim = |text: &str| DimensionProto {
        value: match text.parse() {
            Ok(size) => Some(DimensionValue::DimValue(size)),
            Err(_) if text == "?" => None,
            Err(_) => Some(DimensionValue::DimParam(text.to_owned())),
        },
    };
    let dims = dims.split(',').map(str::trim).filter(|d| !d.is_empty()).map(dim).collect();
    let tensor = TensorTypeProto { elem_type: elements.into(), shape: Some(TensorShapeProto { dim: dims }) };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { tensor_type: Some(tensor), ..TypeProto::default() }),
    }
}

pub(crate) fn f32(name: &str, dims: &str) -> ValueInfoProto {
    typed(name, DataType::Float, dims)
}

/// An output of which nothing is declared.
pub(crate) fn output(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.to_owned(), r#type: None }
}

/// A node: `y, z = Op(a, b)`.
pub(crate) fn node(text: &str, attribute: Vec<AttributeProto>) -> NodeProto {
    let (outputs, call) = text.split_once(" = ").unwrap();
    let (op, inputs) = call.trim_end_matches(')').split_once('(').unwrap();
    let names = |text: &str| -> Vec<String> {
        if text.is_empty() { Vec::new() } else { text.split(", ").map(|n| n.trim_matches('_').to_owned()).collect() }
    };
    NodeProto {
        op_type: op.to_owned(),
        input: names(inputs),
        output: names(outputs),
        attribute,
        ..NodeProto::default()
    }
}

pub(crate) fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.to_owned(), kind: kind.into(), ..AttributeProto::default() }
}

pub(crate) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, AttributeType::Int) }
}

pub(crate) fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::Ints) }
}

pub(crate) fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: value.to_owned().into(), ..attribute(name, AttributeType::String) }
}

pub(crate) fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..attribute(name, AttributeType::Graph) }
}

/// A constant of 64 bit integers.
pub(crate) fn integers(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: DataType::Int64.into(),
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// A constant of binary32 numbers.
pub(crate) fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: DataType::Float.into(),
        float_data: values.to_vec(),
        ..TensorProto::default()
    }
}

pub(crate) fn graph(
    input: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
    node: Vec<NodeProto>,
    outputs: &[&str],
) -> GraphProto {
    let output = outputs.iter().map(|name| output(name)).collect();
    GraphProto { name: "g".to_owned(), node, initializer, input, output, ..GraphProto::default() }
}

/// Imports the bytes of a model.
pub(crate) fn import_bytes(bytes: &[u8]) -> Result<Graph, String> {
    let folder = tempfile::tempdir().unwrap();
    import_in(folder.path(), bytes)
}

/// Imports the bytes of a model from a folder.
pub(crate) fn import_in(folder: &Path, bytes: &[u8]) -> Result<Graph, String> {
    let path = folder.join("model.onnx");
    fs::write(&path, bytes).unwrap();
    match planish_onnx::import(&path) {
        Ok(imported) => {
            planish_ir::verify(&imported.graph).unwrap();
            Ok(imported.graph)
        }
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn import(model: &ModelProto) -> Result<Graph, String> {
    import_bytes(&model.encode_to_vec())
}

/// Imports a model with options; the graph and the warnings.
pub(crate) fn import_with(model: &ModelProto, options: &ImportOptions) -> Result<(Graph, Vec<String>), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    fs::write(&path, model.encode_to_vec()).unwrap();
    let imported = planish_onnx::import_with(&path, options).map_err(|e| e.to_string())?;
    Ok((imported.graph, imported.warnings))
}

/// The nodes of an imported graph in the text form, a line each, and its weights.
pub(crate) fn lines(opset: i64, graph: GraphProto) -> Vec<String> {
    let graph = import(&model(opset, graph)).unwrap();
    let text = graph.to_string();
    let lines = text.lines().map(str::trim);
    lines.filter(|l| l.starts_with('%') || l.starts_with("weight")).map(str::to_owned).collect()
}

/// The nodes of an imported graph of one input `x` and one output `y`.
#[track_caller]
pub(crate) fn assert_nodes(opset: i64, graph: GraphProto, expected: &[&str]) {
    let nodes: Vec<String> = lines(opset, graph).into_iter().filter(|l| l.starts_with('%')).collect();
    assert_eq!(nodes, expected);
}

/// The error of importing a graph.
#[track_caller]
pub(crate) fn refused(graph: GraphProto, expected: &str) {
    let error = import(&model(17, graph)).err().unwrap_or_default();
    assert!(error.contains(expected), "`{expected}` is not in `{error}`");
}
