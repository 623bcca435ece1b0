//! Running models on ONNX Runtime.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_eval::Tensor;
use planish_ir::DType;
use planish_onnx::proto::{GraphProto, ModelProto, OperatorSetIdProto};
use planish_runtimes::ort::{OnnxRuntime, OptimizationLevel, OrtOptions};
use planish_runtimes::{Model, Runtime, Session, SessionOptions};
use prost::Message;

use crate::attributes::{node, typed};

/// Named tensors.
pub(crate) type Tensors = Vec<(String, Tensor)>;

/// The newest opset that is tried.
const NEWEST: i64 = 28;

/// Loads and runs models on ONNX Runtime, through files in a folder.
pub(crate) struct Runner {
    folder: PathBuf,
}

impl Runner {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Loads a model; with optimization as programs do that choose nothing but products of dequantized weights without
    /// rounding of their own.
    pub(crate) fn load(&self, path: &Path, optimize: bool) -> Result<Box<dyn Session>, String> {
        let optimization = if optimize { OptimizationLevel::All } else { OptimizationLevel::Disabled };
        let options = OrtOptions { spin: false, optimization, unrounded_products: true, ..OrtOptions::default() };
        let runtime = OnnxRuntime::new(None).options(options);
        runtime.load(Model::onnx(path), SessionOptions { threads: 1 }).map_err(|error| error.to_string())
    }

    /// Writes a model and loads it.
    pub(crate) fn load_model(&self, model: &ModelProto, optimize: bool) -> Result<Box<dyn Session>, String> {
        let path = self.folder.join("part.onnx");
        fs::write(&path, model.encode_to_vec()).map_err(|error| error.to_string())?;
        self.load(&path, optimize)
    }

    /// The newest opset that the library of ONNX Runtime runs, and planish reads.
    pub(crate) fn newest_opset(&self) -> i64 {
        let runs = |opset: &i64| {
            let relu = vec![node("Relu", &["x"], &["y"], Vec::new())];
            let x = typed("x", DType::F32, Some(Vec::new()));
            let y = typed("y", DType::F32, None);
            let graph = GraphProto { node: relu, input: vec![x], output: vec![y], ..GraphProto::default() };
            self.load_model(&model(*opset, graph), false).is_ok()
        };
        let newest = NEWEST.min(*planish_onnx::import::OPSETS.end());
        (13..=newest).rev().find(runs).unwrap_or(13)
    }
}

/// A model of one graph, in the version of the format that an opset came with.
pub(crate) fn model(opset: i64, mut graph: GraphProto) -> ModelProto {
    let ir_version = match opset {
        ..15 => 7,
        15..19 => 8,
        19..21 => 9,
        21..23 => 10,
        23 => 11,
        24 => 12,
        25..28 => 13,
        _ => 14,
    };
    graph.name = "g".to_owned();
    let domain = |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
    let opset_import = vec![domain("", opset), domain("com.microsoft", 1)];
    ModelProto { ir_version, opset_import, graph: Some(graph), ..ModelProto::default() }
}

/// Runs a session on those of the tensors that it takes.
pub(crate) fn run(session: &mut dyn Session, feeds: &[(String, Tensor)]) -> Result<Tensors, String> {
    let takes = |name: &str| session.inputs().iter().any(|port| port.name == name);
    let given = feeds.iter().filter(|(name, _)| takes(name));
    let given: Vec<(&str, Tensor)> = given.map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    session.run(&given).map_err(|error| error.to_string())
}

/// Whether one of some tensors has no elements.
pub(crate) fn has_empty(tensors: &[(String, Tensor)]) -> bool {
    tensors.iter().any(|(_, tensor)| tensor.data().is_empty())
}

/// A model that gives the results of all its nodes.
pub(crate) fn with_results(model: &ModelProto, results: &[(String, DType)]) -> ModelProto {
    let mut model = model.clone();
    if let Some(graph) = &mut model.graph {
        let made: HashSet<&String> = graph.node.iter().flat_map(|node| &node.output).collect();
        let made = results.iter().filter(|(name, _)| made.contains(name));
        graph.output = made.map(|(name, dtype)| typed(name, *dtype, None)).collect();
    }
    model
}
