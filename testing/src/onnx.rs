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

use crate::scratch;

/// A model of one graph.
pub fn model(opset: i64, graph: GraphProto) -> ModelProto {
    let domain = OperatorSetIdProto { domain: String::new(), version: opset };
    ModelProto { ir_version: 8, opset_import: vec![domain], graph: Some(graph), ..ModelProto::default() }
}

/// Dimensions from text: sizes and names, separated by commas; `?` is neither.
pub fn typed(name: &str, elements: DataType, dims: &str) -> ValueInfoProto {
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

/// A value of binary32 numbers; dimensions as [`typed`] takes them.
pub fn f32(name: &str, dims: &str) -> ValueInfoProto {
    typed(name, DataType::Float, dims)
}

/// An output of which nothing is declared.
pub fn output(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.to_owned(), r#type: None }
}

/// A node: `y, z = Op(a, b)`.
pub fn node(text: &str, attribute: Vec<AttributeProto>) -> NodeProto {
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

/// An attribute of a kind, without its value.
pub fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.to_owned(), kind: kind.into(), ..AttributeProto::default() }
}

/// An attribute of one integer.
pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, AttributeType::Int) }
}

/// An attribute of several integers.
pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::Ints) }
}

/// An attribute of a text.
pub fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: value.to_owned().into(), ..attribute(name, AttributeType::String) }
}

/// An attribute of a graph.
pub fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..attribute(name, AttributeType::Graph) }
}

/// A constant of 64 bit integers.
pub fn integers(name: &str, dims: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: DataType::Int64.into(),
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// A constant of binary32 numbers.
pub fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: dims.to_vec(),
        data_type: DataType::Float.into(),
        float_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// A graph of which nothing is declared of the outputs.
pub fn graph(
    input: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
    node: Vec<NodeProto>,
    outputs: &[&str],
) -> GraphProto {
    let output = outputs.iter().map(|name| output(name)).collect();
    GraphProto { name: "g".to_owned(), node, initializer, input, output, ..GraphProto::default() }
}

/// Imports the bytes of a model.
pub fn import_bytes(bytes: &[u8]) -> Result<Graph, String> {
    let folder = scratch();
    import_in(folder.path(), bytes)
}

/// Imports the bytes of a model from a folder.
pub fn import_in(folder: &Path, bytes: &[u8]) -> Result<Graph, String> {
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

/// Imports a model.
pub fn import(model: &ModelProto) -> Result<Graph, String> {
    import_bytes(&model.encode_to_vec())
}

/// Imports a model with options; the graph and the warnings.
pub fn import_with(model: &ModelProto, options: &ImportOptions) -> Result<(Graph, Vec<String>), String> {
    let folder = scratch();
    let path = folder.path().join("model.onnx");
    fs::write(&path, model.encode_to_vec()).unwrap();
    let imported = planish_onnx::import_with(&path, options).map_err(|e| e.to_string())?;
    Ok((imported.graph, imported.warnings))
}

/// The nodes of an imported graph in the text form, a line each, and its weights.
pub fn lines(opset: i64, graph: GraphProto) -> Vec<String> {
    let graph = import(&model(opset, graph)).unwrap();
    let text = graph.to_string();
    let lines = text.lines().map(str::trim);
    lines.filter(|l| l.starts_with('%') || l.starts_with("weight")).map(str::to_owned).collect()
}

/// The nodes of an imported graph of one input `x` and one output `y`.
#[track_caller]
pub fn assert_nodes(opset: i64, graph: GraphProto, expected: &[&str]) {
    let nodes: Vec<String> = lines(opset, graph).into_iter().filter(|l| l.starts_with('%')).collect();
    assert_eq!(nodes, expected);
}

/// The error of importing a graph.
#[track_caller]
pub fn refused(graph: GraphProto, expected: &str) {
    let error = import(&model(17, graph)).err().unwrap_or_default();
    assert!(error.contains(expected), "`{expected}` is not in `{error}`");
}
