//! The values of the names of the ONNX graph, while its nodes are imported one after another.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use planish_ir::ops::{Cast, Reshape, Sizes};
use planish_ir::{DType, Dim, Graph, Op, Origin, Shape, TensorType, Type, ValueId, Weight};

use super::cut;
use super::known::Known;
use super::order::label;
use super::skeleton::WeightFile;
use super::symbols::Symbols;
use super::tensors::{Files, dtype};
use super::{is_default, name_of, types};
use crate::proto::{DimensionValue, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto, ValueInfoProto};

/// What a name stands for.
#[derive(Clone)]
enum Slot {
    /// A value of the graph.
    Value(ValueId),
    /// A constant, not in the graph before it is used.
    Weight(Weight, Origin),
    /// Integers that are known, and the value that they are where they were used as a tensor.
    Known(Known, Option<ValueId>),
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

    /// For a graph that contains all of its constants itself; `of` is where it is from.
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
            let ty = self.input_type(input).map_err(|e| format!("input `{}`: {e}", input.name))?;
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

    fn input_type(&mut self, info: &ValueInfoProto) -> Result<Type, String> {
        let ty = info.r#type.as_ref().ok_or("its type is not given")?;
        let ty = types::read(&mut self.symbols, ty, &info.name)?.ok_or("its type is not given")?;
        if let Type::Unranked(_) = ty {
            let name = &info.name;
            self.warnings.push(format!(
                "the number of dimensions of the input `{name}` is not given, so that what is computed from it stays as \
                 it is; --shapes {name}=... gives it, e.g. {name}=1x128"
            ));
        }
        Ok(ty)
    }

    /// The type that the graph declares for a result, where it does.
    ///
    /// # Errors
    /// When it is not a type that graphs have.
    pub(super) fn declared(&mut self, name: &str) -> Result<Option<Type>, String> {
        match self.declared.get(name) {
            Some(ty) => types::read(&mut self.symbols, ty, name).map_err(|e| format!("`{name}`: {e}")),
            None => Ok(None),
        }
    }

    /// Says that what is declared of a value is not what it is.
    pub(super) fn warn_declared(
        &mut self,
        name: &str,
        node: Option<&NodeProto>,
        declared: &dyn Display,
        found: &dyn Display,
    ) {
        let of = node.map(|node| format!(" of {}", label(node))).unwrap_or_default();
        self.warnings.push(format!(
            "the result `{name}`{of} is declared as {declared} and computed as {found}: the declaration is ignored"
        ));
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
        self.slots.insert(name.to_owned(), Slot::Known(known, None));
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
            Slot::Known(known, _) => Some(known.clone()),
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
            Slot::Known(known, _) => known.weight(),
            Slot::Unsupported(_) | Slot::Failed => None,
        }
    }

    /// Element type and shape of a name.
    ///
    /// # Errors
    /// When it is not a tensor of a known number of dimensions.
    pub(super) fn ty(&self, name: &str) -> Result<TensorType, String> {
        match self.type_of(name)? {
            Type::Tensor(ty) => Ok(ty),
            other => Err(format!("`{name}` is {other}, no tensor of a known number of dimensions")),
        }
    }

    /// The type of a name.
    ///
    /// # Errors
    /// When it stands for nothing.
    pub(super) fn type_of(&self, name: &str) -> Result<Type, String> {
        let sizes =
            |shape: &[usize]| Shape::new(shape.iter().map(|&d| Dim::constant(i64::try_from(d).unwrap_or(i64::MAX))));
        match self.slots.get(name) {
            Some(Slot::Value(value)) => Ok(self.graph.type_of(*value).clone()),
            Some(Slot::Weight(weight, _)) => Ok(TensorType::new(weight.dtype(), sizes(weight.shape())).into()),
            Some(Slot::Known(known, _)) => Ok(TensorType::new(known.dtype, sizes(&known.shape)).into()),
            Some(Slot::Unsupported(reason)) => Err(format!("`{name}`: {reason}")),
            Some(Slot::Failed) | None => Err(format!("`{name}` is not defined")),
        }
    }

    /// The value of a name; what was not in the graph yet comes into it.
    pub(super) fn value(&mut self, name: &str) -> Result<ValueId, String> {
        let value = match self.slots.get(name) {
            Some(Slot::Value(value)) => return Ok(*value),
            Some(Slot::Weight(weight, origin)) => self.graph.add_weight(name, weight.clone(), origin.clone()),
            Some(Slot::Known(_, Some(value))) => return Ok(*value),
            Some(Slot::Known(known, None)) => {
                let known = known.clone();
                let value = self.tensor(name, &known)?;
                self.slots.insert(name.to_owned(), Slot::Known(known, Some(value)));
                return Ok(value);
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
        let results = self.graph.emit(op, name, origin).map_err(|e| e.to_string())?;
        let negative = |dim: &Dim| dim.as_constant().is_some_and(|size| size < 0);
        match results
            .iter()
            .filter_map(|id| self.graph.type_of(*id).as_tensor())
            .find(|ty| ty.shape.iter().any(negative))
        {
            Some(ty) => Err(format!("its result would be {ty}")),
            None => Ok(results),
        }
    }

    /// The version of a domain.
    pub(super) fn version(&self, domain: &str) -> i64 {
        let same = |o: &&OperatorSetIdProto| o.domain == domain || is_default(&o.domain) && is_default(domain);
        self.opsets.iter().find(same).map_or(1, |o| o.version)
    }

    /// Ends the graph with its outputs, and has it begin with the values that are given, if there are any; returns it
    /// with the warnings. An output that is given twice stays once: runtimes find it by its name.
    ///
    /// # Errors
    /// When an output cannot be of the type that the graph declares, or needs more than what is given.
    pub(super) fn finish(
        mut self,
        graph: &GraphProto,
        given: &[(String, ValueId)],
    ) -> Result<(Graph, Vec<String>), String> {
        let mut names: HashSet<&str> = HashSet::with_capacity(graph.output.len());
        for output in &graph.output {
            let name = &output.name;
            if !names.insert(name) {
                self.warnings.push(format!("the output `{name}` is given twice; it is kept once"));
                continue;
            }
            let value = self.value(name)?;
            self.check_declared(name, value)?;
            self.graph.add_output(name, value);
        }
        if !given.is_empty() {
            self.graph = cut::inputs(&self.graph, given)?;
        }
        self.graph.compact();
        Ok((self.graph, self.warnings))
    }

    /// Compares an output with what is declared of it. Other sizes are a warning, as for runtimes.
    ///
    /// # Errors
    /// When it is declared to be something else than a tensor of these elements.
    fn check_declared(&mut self, name: &str, value: ValueId) -> Result<(), String> {
        let (Some(declared), found) = (self.declared(name)?, self.graph.type_of(value).clone()) else { return Ok(()) };
        let elements = (declared.dtype(), found.dtype());
        if matches!(elements, (Some(a), Some(b)) if a != b) {
            return Err(format!("the output `{name}` is declared as {declared} and computed as {found}"));
        }
        let (Type::Tensor(a), Type::Tensor(b)) = (&declared, &found) else { return Ok(()) };
        let differ = |(a, b): (&Dim, &Dim)| a.as_constant().zip(b.as_constant()).is_some_and(|(a, b)| a != b);
        let differs = a.shape.rank() != b.shape.rank() || a.shape.iter().zip(&*b.shape).any(differ);
        // What has sizes of its own was compared when it was imported.
        let is_compared = self.graph.producer(value).is_some_and(|node| node.op.determines_sizes());
        if differs && !is_compared {
            self.warn_declared(name, None, &declared, &found);
        }
        Ok(())
    }
}
