//! What names of the ONNX graph stand for while its nodes are imported, one after another.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use planish_ir::ops::{Cast, Reshape, Sizes};
use planish_ir::{DType, Dim, Graph, Op, Origin, Shape, TensorType, ValueId, Weight};

use super::cut;
use super::known::Known;
use super::skeleton::WeightFile;
use super::symbols::Symbols;
use super::tensors::{Files, dtype};
use super::{is_default, name_of};
use crate::proto::{DimensionValue, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto, ValueInfoProto};

/// What a name stands for.
#[derive(Clone)]
enum Slot {
    /// A value of the graph.
    Value(ValueId),
    /// A constant, not in the graph before it is used.
    Weight(Weight, Origin),
    /// Integers that are known, not in the graph before they are used as a tensor.
    Known(Known),
    /// A constant of elements that graphs do not have, and which those are: an error where it is used.
    Unsupported(String),
    /// A result of a node that could not be imported.
    Failed,
}

/// The graph in the making.
pub(super) struct Scope {
    pub(super) graph: Graph,
    pub(super) symbols: Symbols,
    pub(super) files: Files,
    /// Nodes that cannot be imported, a line each.
    pub(super) problems: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// The nodes that loops were unrolled to.
    pub(super) unrolled: usize,
    opsets: Vec<OperatorSetIdProto>,
    slots: HashMap<String, Slot>,
    /// The types that the graph declares for results.
    declared: HashMap<String, TypeProto>,
    file: Arc<str>,
}

impl Scope {
    pub(super) fn new(graph: &GraphProto, opsets: Vec<OperatorSetIdProto>, path: &Path, file: Arc<WeightFile>) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self::of(graph, &name_of(graph, path), opsets, &name, Files::new(file, path))
    }

    /// For a graph that holds all of its constants itself; `of` is where it is from.
    pub(super) fn without_files(graph: &GraphProto, opsets: Vec<OperatorSetIdProto>, of: &str) -> Self {
        Self::of(graph, &graph.name, opsets, of, Files::none())
    }

    fn of(graph: &GraphProto, name: &str, opsets: Vec<OperatorSetIdProto>, file: &str, files: Files) -> Self {
        Self {
            graph: Graph::new(name),
            symbols: Symbols::default(),
            files,
            problems: Vec::new(),
            warnings: Vec::new(),
            unrolled: 0,
            opsets,
            slots: HashMap::with_capacity(graph.node.len() + graph.initializer.len()),
            declared: HashMap::new(),
            file: file.into(),
        }
    }

    /// Takes constants, inputs and declared types.
    ///
    /// # Errors
    /// When a constant or an input cannot be had.
    pub(super) fn interface(&mut self, graph: &GraphProto) -> Result<(), String> {
        if let Some(sparse) = graph.sparse_initializer.first() {
            let name = sparse.values.as_ref().map_or("", |t| t.name.as_str());
            return Err(format!("the initializer `{name}` is sparse, which is not supported"));
        }
        for tensor in &graph.initializer {
            self.constant(&tensor.name, tensor).map_err(|e| format!("initializer `{}`: {e}", tensor.name))?;
        }
        let inputs: Vec<&ValueInfoProto> = graph.input.iter().filter(|i| !self.slots.contains_key(&i.name)).collect();
        let dims = inputs.iter().filter_map(|i| i.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref());
        let texts = dims.flat_map(|s| &s.dim).filter_map(|d| match &d.value {
            Some(DimensionValue::DimParam(text)) if !text.trim().is_empty() => Some(text.as_str()),
            _ => None,
        });
        self.symbols.declare(texts);
        for input in inputs {
            let ty = self.declared_type(input).map_err(|e| format!("input `{}`: {e}", input.name))?;
            let value = self.graph.add_input(&input.name, ty, Origin::Unknown);
            self.slots.insert(input.name.clone(), Slot::Value(value));
        }
        for info in graph.value_info.iter().chain(&graph.output) {
            if let Some(ty) = &info.r#type {
                self.declared.insert(info.name.clone(), ty.clone());
            }
        }
        Ok(())
    }

    fn declared_type(&mut self, info: &ValueInfoProto) -> Result<TensorType, String> {
        let ty = info.r#type.as_ref().ok_or("its type is not given")?;
        let tensor = ty.tensor_type.as_ref().ok_or("it is no tensor")?;
        let dtype = dtype(tensor.elem_type)?;
        let shape = self.symbols.shape(ty, &info.name)?;
        Ok(TensorType::new(
            dtype,
            shape.ok_or_else(|| {
                let name = &info.name;
                format!("the number of its dimensions is not given; --shapes {name}=... gives it, e.g. {name}=1x128")
            })?,
        ))
    }

    /// The type that the graph declares for a result, where it does.
    ///
    /// # Errors
    /// When it is no tensor of a type that graphs have.
    pub(super) fn declared(&mut self, name: &str) -> Result<Option<TensorType>, String> {
        let Some(ty) = self.declared.get(name).cloned() else { return Ok(None) };
        let tensor = ty.tensor_type.as_ref().ok_or_else(|| format!("`{name}` is no tensor"))?;
        let dtype = dtype(tensor.elem_type)?;
        Ok(self.symbols.shape(&ty, name)?.map(|shape| TensorType::new(dtype, shape)))
    }

    /// The element type that the graph declares for a result.
    pub(super) fn declared_dtype(&self, name: &str) -> Option<DType> {
        dtype(self.declared.get(name)?.tensor_type.as_ref()?.elem_type).ok()
    }

    /// Makes a name stand for a constant, of whatever elements as long as it is not used.
    pub(super) fn constant(&mut self, name: &str, tensor: &TensorProto) -> Result<(), String> {
        if let Err(reason) = dtype(tensor.data_type) {
            self.slots.insert(name.to_owned(), Slot::Unsupported(reason));
            return Ok(());
        }
        let weight = self.files.weight(tensor)?;
        let origin = Origin::Tensor { file: Arc::clone(&self.file), name: name.into() };
        self.slots.insert(name.to_owned(), Slot::Weight(weight, origin));
        Ok(())
    }

    /// Makes a name stand for a weight.
    pub(super) fn set_weight(&mut self, name: &str, weight: Weight) {
        let origin = Origin::Tensor { file: Arc::clone(&self.file), name: name.into() };
        self.slots.insert(name.to_owned(), Slot::Weight(weight, origin));
    }

    /// Makes a name stand for a value.
    pub(super) fn set(&mut self, name: &str, value: ValueId) {
        self.slots.insert(name.to_owned(), Slot::Value(value));
    }

    /// Makes a name stand for integers.
    pub(super) fn set_known(&mut self, name: &str, known: Known) {
        self.slots.insert(name.to_owned(), Slot::Known(known));
    }

    /// Makes a name stand for what another one does; a constant stays one.
    pub(super) fn alias(&mut self, name: &str, other: &str) {
        if let Some(Slot::Weight(weight, origin)) = self.slots.get(other) {
            let value = self.graph.add_weight(other, weight.clone(), origin.clone());
            self.slots.insert(other.to_owned(), Slot::Value(value));
        }
        if let Some(slot) = self.slots.get(other).cloned() {
            self.slots.insert(name.to_owned(), slot);
        }
    }

    /// Whether a name stands for something.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.slots.contains_key(name)
    }

    /// A name like this one that stands for nothing yet.
    pub(super) fn unused(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.is_defined(&name) {
            name.push('_');
        }
        name
    }

    /// Makes the results of a node stand for nothing: it could not be imported.
    pub(super) fn fail(&mut self, node: &NodeProto) {
        for name in node.output.iter().filter(|n| !n.is_empty()) {
            self.slots.insert(name.clone(), Slot::Failed);
        }
    }

    /// Whether a name stands for a result of a node that could not be imported.
    pub(super) fn failed(&self, name: &str) -> bool {
        matches!(self.slots.get(name), Some(Slot::Failed))
    }

    /// The elements of a name, where they are integers that are known.
    pub(super) fn known(&self, name: &str) -> Option<Known> {
        match self.slots.get(name)? {
            Slot::Known(known) => Some(known.clone()),
            Slot::Weight(weight, _) => Known::of_weight(weight),
            Slot::Value(value) => Known::of_weight(self.graph.weight(*value)?),
            Slot::Unsupported(_) | Slot::Failed => None,
        }
    }

    /// The weight of a name.
    pub(super) fn weight(&self, name: &str) -> Option<Weight> {
        match self.slots.get(name)? {
            Slot::Weight(weight, _) => Some(weight.clone()),
            Slot::Value(value) => self.graph.weight(*value).cloned(),
            Slot::Known(known) => known.weight(),
            Slot::Unsupported(_) | Slot::Failed => None,
        }
    }

    /// Element type and shape of a name.
    pub(super) fn ty(&self, name: &str) -> Result<TensorType, String> {
        let sizes =
            |shape: &[usize]| Shape::new(shape.iter().map(|&d| Dim::constant(i64::try_from(d).unwrap_or(i64::MAX))));
        match self.slots.get(name) {
            Some(Slot::Value(value)) => Ok(self.graph.ty(*value).clone()),
            Some(Slot::Weight(weight, _)) => Ok(TensorType::new(weight.dtype(), sizes(weight.shape()))),
            Some(Slot::Known(known)) => Ok(TensorType::new(known.dtype, sizes(&known.shape))),
            Some(Slot::Unsupported(reason)) => Err(format!("`{name}`: {reason}")),
            Some(Slot::Failed) | None => Err(format!("`{name}` is not defined")),
        }
    }

    /// The value of a name; what was not in the graph yet comes into it.
    pub(super) fn value(&mut self, name: &str) -> Result<ValueId, String> {
        let value = match self.slots.get(name) {
            Some(Slot::Value(value)) => return Ok(*value),
            Some(Slot::Weight(weight, origin)) => self.graph.add_weight(name, weight.clone(), origin.clone()),
            Some(Slot::Known(known)) => {
                let known = known.clone();
                self.tensor(name, &known)?
            }
            Some(Slot::Unsupported(reason)) => return Err(format!("`{name}`: {reason}")),
            Some(Slot::Failed) | None => return Err(format!("`{name}` is not defined")),
        };
        self.slots.insert(name.to_owned(), Slot::Value(value));
        Ok(value)
    }

    /// Integers as a tensor, which no name of the file stands for.
    pub(super) fn tensor(&mut self, name: &str, known: &Known) -> Result<ValueId, String> {
        if let Some(weight) = known.weight() {
            return Ok(self.graph.add_weight(name, weight, Origin::Unknown));
        }
        let mut value = self.emit(Sizes { of: Shape::new(known.elements.iter().cloned()) }, name)?;
        if known.shape.len() != 1 {
            let shape = known.shape.iter().map(|&d| Dim::constant(i64::try_from(d).unwrap_or(i64::MAX)));
            value = self.emit(Reshape { x: value, shape: Shape::new(shape) }, name)?;
        }
        if known.dtype != DType::I64 {
            value = self.emit(Cast { x: value, to: known.dtype }, name)?;
        }
        Ok(value)
    }

    /// A scalar or vector constant that is part of an operator's meaning.
    pub(super) fn number(&mut self, name: &str, dtype: DType, value: f64) -> ValueId {
        self.graph.add_scalar(&format!("{name}/const"), dtype, value)
    }

    /// Emits a node of one result for a result of the ONNX graph.
    pub(super) fn emit(&mut self, op: impl Into<Op>, name: &str) -> Result<ValueId, String> {
        Ok(self.emit_all(op, name)?[0])
    }

    /// Emits a node for a result of the ONNX graph, or the first of several.
    pub(super) fn emit_all(&mut self, op: impl Into<Op>, name: &str) -> Result<Vec<ValueId>, String> {
        let origin = Origin::Node { file: Arc::clone(&self.file), name: name.into() };
        self.graph.emit(op, name, origin).map_err(|e| e.to_string())
    }

    /// The version of a domain.
    pub(super) fn version(&self, domain: &str) -> i64 {
        let same = |o: &&OperatorSetIdProto| o.domain == domain || is_default(&o.domain) && is_default(domain);
        self.opsets.iter().find(same).map_or(1, |o| o.version)
    }

    /// Ends the graph with its outputs, and has it begin with the values that are given, if there are any.
    ///
    /// # Errors
    /// When an output cannot be of the type that the graph declares, or needs more than what is given.
    pub(super) fn finish(mut self, graph: &GraphProto, given: &[(String, ValueId)]) -> Result<Graph, String> {
        for output in &graph.output {
            let value = self.value(&output.name)?;
            let found = self.graph.ty(value).clone();
            let clash = |declared: &dyn Display| {
                Err(format!("the output `{}` is declared as {declared} and computed as {found}", output.name))
            };
            if let Some(declared) = self.declared(&output.name)? {
                let differ = |(a, b): (&Dim, &Dim)| a.as_constant().zip(b.as_constant()).is_some_and(|(a, b)| a != b);
                if declared.dtype != found.dtype
                    || declared.shape.rank() != found.shape.rank()
                    || declared.shape.iter().zip(&*found.shape).any(differ)
                {
                    return clash(&declared);
                }
            } else if let Some(declared) = self.declared_dtype(&output.name).filter(|d| *d != found.dtype) {
                return clash(&declared);
            }
            if self.graph.outputs().iter().any(|o| o.name == output.name) {
                return Err(format!("the output `{}` is given twice", output.name));
            }
            self.graph.add_output(&output.name, value);
        }
        if !given.is_empty() {
            self.graph = cut::inputs(&self.graph, given)?;
        }
        self.graph.compact();
        Ok(self.graph)
    }
}
