//! What is in `model.onnx`, as an independent reader of the format sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use onnx_protobuf::tensor_proto::DataLocation;
use onnx_protobuf::tensor_shape_proto::dimension::Value;
use onnx_protobuf::{Message, ModelProto, TensorProto, ValueInfoProto, type_proto};
use planish::compile::CompileOptions;
use planish_passes::{ONNX, ORT};

use crate::support::{ONNX_TARGETS, Stored, compiled, golden, options, scratch, tensors};

/// The format's number of float32.
const FLOAT: i32 = 1;

/// Parses a model file.
pub(crate) fn parse(path: &Path) -> ModelProto {
    ModelProto::parse_from_bytes(&fs::read(path).unwrap()).unwrap()
}

/// The model that a golden becomes.
fn exported(name: &str, options: &CompileOptions) -> ModelProto {
    let folder = scratch();
    let compiled = compiled(&golden(name), &folder.path().join("out"), options);
    parse(&compiled.draft.folder().join("model.onnx"))
}

/// Name, element type and dimensions of an input or output.
fn port(info: &ValueInfoProto) -> String {
    let Some(type_proto::Value::TensorType(tensor)) = &info.type_.value else {
        panic!("{} is not a tensor", info.name)
    };
    let dims = tensor.shape.dim.iter().map(|dim| match dim.value.as_ref().unwrap() {
        Value::DimValue(size) => size.to_string(),
        Value::DimParam(name) => name.clone(),
        other => panic!("{other:?}"),
    });
    format!("{}: {}[{}]", info.name, tensor.elem_type, dims.collect::<Vec<_>>().join(", "))
}

#[test]
fn interfaces_are_those_of_optimum() {
    let interface = |name: &str| {
        let model = exported(name, &options(&ONNX));
        let ports = |infos: &[ValueInfoProto]| infos.iter().map(port).collect::<Vec<_>>();
        (ports(&model.graph.input), ports(&model.graph.output))
    };
    let tokens =
        |names: &[&str]| names.iter().map(|n| format!("{n}: 7[batch_size, sequence_length]")).collect::<Vec<_>>();
    let bert = tokens(&["input_ids", "attention_mask", "token_type_ids"]);
    let two = tokens(&["input_ids", "attention_mask"]);
    let hidden = ["last_hidden_state: 1[batch_size, sequence_length, 48]", "pooler_output: 1[batch_size, 48]"];
    assert_eq!(interface("bert"), (bert.clone(), hidden.map(str::to_owned).to_vec()));
    assert_eq!(interface("bert-classify"), (bert.clone(), vec!["logits: 1[batch_size, 3]".to_owned()]));
    let logits = vec!["logits: 1[batch_size, sequence_length, 131]".to_owned()];
    assert_eq!(interface("bert-mlm"), (bert, logits.clone()));
    assert_eq!(interface("roberta-mlm"), (two.clone(), logits));
    let spans = ["start_logits", "end_logits"].map(|n| format!("{n}: 1[batch_size, sequence_length]"));
    assert_eq!(interface("distilbert-qa"), (two, spans.to_vec()));
}

#[test]
fn versions_follow_the_opset() {
    // Each opset with the version of the format that brought it (onnx's docs/Versioning.md).
    let versions = [8, 8, 9, 9, 10, 10, 11, 12, 13, 13, 13, 14];
    for (opset, ir_version) in (17..=28).zip(versions) {
        let mut options = options(&ONNX);
        options.passes.opset = opset;
        let model = exported("bert", &options);
        let imports: Vec<_> = model.opset_import.iter().map(|set| (set.domain.as_str(), set.version)).collect();
        assert_eq!((model.ir_version, imports), (ir_version, vec![("", i64::from(opset))]));
        assert_eq!(
            (model.producer_name.as_str(), model.producer_version.as_str()),
            ("planish", env!("CARGO_PKG_VERSION"))
        );
        assert!(model.graph.node.iter().all(|node| node.domain.is_empty()));
    }
}

#[test]
fn domains_in_use_are_imported() {
    let model = exported("bert", &options(&ORT));
    let imported: BTreeSet<&str> = model.opset_import.iter().map(|set| set.domain.as_str()).collect();
    let used: BTreeSet<&str> = model.graph.node.iter().map(|node| node.domain.as_str()).chain([""]).collect();
    assert_eq!(imported, used);
    assert_eq!(imported.len(), model.opset_import.len(), "each once");
}

#[test]
fn graphs_are_in_static_single_assignment_form_and_order() {
    for target in ONNX_TARGETS {
        for fusion in [true, false] {
            let mut options = options(target);
            options.passes.fusion = fusion;
            let model = exported("bert-mlm", &options);
            let graph = &model.graph;
            let mut defined = BTreeSet::new();
            let inputs = graph.input.iter().map(|input| &input.name);
            for name in inputs.chain(graph.initializer.iter().map(|tensor| &tensor.name)) {
                assert!(!name.is_empty() && defined.insert(name.clone()), "{name} is defined twice");
            }
            let mut nodes = BTreeSet::new();
            for node in &graph.node {
                for input in node.input.iter().filter(|name| !name.is_empty()) {
                    assert!(defined.contains(input), "{} uses {input} before it is defined", node.name);
                }
                for output in &node.output {
                    assert!(defined.insert(output.clone()), "{output} is defined twice");
                }
                assert!(nodes.insert(&node.name), "two nodes are called {}", node.name);
            }
            assert!(graph.output.iter().all(|output| defined.contains(&output.name)));
            let used: BTreeSet<&str> =
                graph.node.iter().flat_map(|node| node.input.iter().map(String::as_str)).collect();
            let unused =
                graph.initializer.iter().find(|tensor| !used.contains(tensor.name.as_str())).map(|tensor| &tensor.name);
            assert_eq!(unused, None, "no constant is dead weight");
        }
    }
}

/// The bytes of an f32 matrix transposed.
fn transposed(stored: &Stored) -> Option<Vec<u8>> {
    let [rows, columns] = *stored.shape.as_slice() else { return None };
    let at = |row: usize, column: usize| &stored.bytes[4 * (row * columns + column)..][..4];
    Some((0..columns).flat_map(|c| (0..rows).flat_map(move |r| at(r, c).iter().copied())).collect())
}

/// Every tensor of the checkpoint is an initializer, as stored or transposed, under its name
/// without the base model's prefix; and none is there twice.
#[test]
fn initializers_are_the_tensors_of_the_checkpoint() {
    for (golden_name, prefix) in [("bert", ""), ("bert-mlm", "bert."), ("distilbert-qa", "distilbert.")] {
        let model = exported(golden_name, &options(&ONNX));
        let initializers: BTreeMap<&str, &TensorProto> =
            model.graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let checkpoint = tensors(&golden(golden_name).join("model.safetensors"));
        for (name, stored) in &checkpoint {
            let short = name.strip_prefix(prefix).unwrap_or(name);
            let tensor = initializers.get(short).unwrap_or_else(|| panic!("{name} is not an initializer"));
            let location = tensor.data_location.enum_value();
            assert_eq!((tensor.data_type, location), (FLOAT, Ok(DataLocation::DEFAULT)), "{name}");
            let dims: Vec<usize> = tensor.dims.iter().map(|&d| usize::try_from(d).unwrap()).collect();
            let as_stored = dims == stored.shape && tensor.raw_data == stored.bytes;
            let turned = || {
                let reversed = stored.shape.iter().rev().eq(&dims);
                reversed && transposed(stored).is_some_and(|bytes| tensor.raw_data == bytes)
            };
            assert!(as_stored || turned(), "{name} has other bytes");
        }
        let large = model.graph.initializer.iter().filter(|tensor| tensor.raw_data.len() > 1024).count();
        assert_eq!(large, checkpoint.values().filter(|tensor| tensor.bytes.len() > 1024).count());
    }
}
